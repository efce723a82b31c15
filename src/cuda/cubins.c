#include "cuda/cubins.h"

/* C17 has no #embed; the assembler puts in the files that `make cuda` made, from the folder that
 * the Makefile gives it, as it gives FC_CUBIN_LIST(X): X(37) X(50) ..., or nothing. */
#define EMBED(sm)                                                                     \
    __asm__(".pushsection .rodata\n"                                                  \
            ".hidden fc_cubin_" #sm "\n"                                              \
            ".globl fc_cubin_" #sm "\n"                                               \
            ".hidden fc_cubin_end_" #sm "\n"                                          \
            ".globl fc_cubin_end_" #sm "\n"                                           \
            ".balign 64\n"                                                            \
            "fc_cubin_" #sm ": .incbin \"pantheon-" #sm ".cubin\"\n"                  \
            "fc_cubin_end_" #sm ":\n"                                                 \
            ".popsection\n");                                                         \
    extern const unsigned char fc_cubin_##sm[] __attribute__((visibility("hidden"))); \
    extern const unsigned char fc_cubin_end_##sm[] __attribute__((visibility("hidden")));
FC_CUBIN_LIST(EMBED)

#define ROW(sm) { sm, fc_cubin_##sm, fc_cubin_end_##sm },
static const fc_cubin table[] = { FC_CUBIN_LIST(ROW){ 0, NULL, NULL } };

const fc_cubin *fc_cubins(size_t *n)
{
    *n = sizeof table / sizeof *table - 1;
    return table;
}

const fc_cubin *fc_cubin_for(const fc_cubin *cubins, size_t n, int sm)
{
    const fc_cubin *best = NULL;
    for (size_t i = 0; i < n; i++)
        if (cubins[i].sm / 10 == sm / 10 && cubins[i].sm <= sm &&
            (!best || cubins[i].sm > best->sm))
            best = &cubins[i];
    return best;
}
