/* Runs every check at every level that the processor has; see harness.h. */
#include "kernels/harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void (*const checks[])(kt *) = {
    check_quantize, check_qmv,       check_qmv_f,     check_vector,
    check_norm,     check_delta_net, check_attention,
};

static const char *setting(const char *name)
{
    const char *const s = getenv(name);
    return s && *s ? s : NULL;
}

int main(void)
{
    static pn_kernels tables[PN_ISA_COUNT];
    const char *const seed = setting("SEED"), *const isa_only = setting("ISA");
    kt t = { .scalar = &tables[PN_ISA_SCALAR],
             .only = setting("ONLY"),
             .is_bench = setting("BENCH") != NULL,
             .is_soak = setting("SOAK") != NULL,
             .seed = seed ? strtoull(seed, NULL, 0) : (uint64_t)time(NULL),
             .digest = 0xcbf29ce484222325u };
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("kernels: SEED=%llu\n", (unsigned long long)t.seed);
    kt_catch_faults();
    const pn_kernels *below = NULL;
    for (pn_isa isa = PN_ISA_SCALAR; isa < PN_ISA_COUNT; isa++) {
        if (!pn_isa_present(isa))
            continue;
        pn_kernels_init(&tables[isa], isa);
        t.k = &tables[isa];
        t.below = below;
        t.isa = isa;
        t.n_slot = t.n_case = 0;
        below = t.k;
        const int n_fail_before = t.n_fail;
        if (isa_only && strcmp(isa_only, pn_isa_name(isa)) != 0)
            continue;
        for (size_t i = 0; i < sizeof checks / sizeof *checks; i++)
            checks[i](&t);
        printf("%-8s %3d slots, %6d cases, %d failures\n", pn_isa_name(isa), t.n_slot, t.n_case,
               t.n_fail - n_fail_before);
        kt_check_registered(&t);
    }
    /* The same on every architecture for the same seed: `make aarch64` compares it. */
    printf("digest of the scalar results: %016llx\n", (unsigned long long)t.digest);
    return t.n_fail ? 1 : 0;
}
