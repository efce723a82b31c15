/* Builds the kernel table: scalar first, then each level that is asked for and present. */
#include "kernels/kernels.h"

#include <string.h>

void pn_kernels_init(pn_kernels *k, pn_isa isa)
{
    memset(k, 0, sizeof *k);
    pn_kernels_init_scalar(k);
    k->isa = PN_ISA_SCALAR;
    static const struct {
        pn_isa isa;
        void (*init)(pn_kernels *);
    } levels[] = {
#if defined(__x86_64__)
        { PN_ISA_AVX2, pn_kernels_init_avx2 },
        { PN_ISA_AVXVNNI, pn_kernels_init_avxvnni },
        { PN_ISA_AVX512, pn_kernels_init_avx512 },
#else
        { PN_ISA_NEON, pn_kernels_init_neon },
        { PN_ISA_DOTPROD, pn_kernels_init_dotprod },
        { PN_ISA_I8MM, pn_kernels_init_i8mm },
#endif
    };
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++)
        if (levels[i].isa <= isa && pn_isa_present(levels[i].isa)) {
            levels[i].init(k);
            k->isa = levels[i].isa;
        }
}
