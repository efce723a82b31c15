/* What the processor offers and how many cores we may use. */
#ifndef PN_BASE_CPU_H
#define PN_BASE_CPU_H

#include <stdbool.h>

/* The instruction set levels, each a bundle of features (docs/ARCHITECTURE.md, "kernel table"). A
 * higher level may use everything of those below it on the same architecture. */
typedef enum pn_isa {
    PN_ISA_SCALAR = 0,
    PN_ISA_AVX2,    /* AVX2 FMA F16C BMI2 */
    PN_ISA_AVXVNNI, /* AVX2 level + AVX-VNNI (256 bit) */
    PN_ISA_AVX512,  /* AVX2 level + AVX-512 F BW VL DQ VNNI */
    PN_ISA_NEON,    /* aarch64 baseline */
    PN_ISA_DOTPROD, /* NEON level + SDOT */
    PN_ISA_I8MM,    /* dotprod level + SMMLA */
    PN_ISA_COUNT
} pn_isa;

/* "scalar", "avx2", ...; the names that --isa takes. */
const char *pn_isa_name(pn_isa isa);
/* Whether this processor, and the operating system's register saving, carry the level. */
bool pn_isa_present(pn_isa isa);
/* The highest level present. */
pn_isa pn_isa_best(void);
/* Whether a hardware fused multiply-add exists; without it the exact arithmetic is emulated. */
bool pn_cpu_has_fma(void);
/* Physical cores in the affinity mask, capped by the cgroup's CPU quota (v1 and v2); >= 1. */
int pn_cpu_default_threads(void);

#endif
