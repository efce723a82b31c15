/* Weights and activations for the matrix kernels' tests: families that aim at what goes wrong. */
#ifndef PN_TESTS_KERNELS_QMV_DATA_H
#define PN_TESTS_KERNELS_QMV_DATA_H

#include "kernels/harness.h"

typedef enum w_family {
    W_TYPICAL = 0, /* random codes, scales of trained weights */
    W_WORST,       /* the codes and scales of largest magnitude: integer overflow */
    W_CORNERS,     /* each field of a block all 0x00, 0x7f, 0x80, 0xff, ... */
    W_SCALES,      /* f16 scales 0, -0, subnormal, largest; e8m0 at its ends */
    W_BITS,        /* any bytes: infinite and NaN scales too */
    W_FAMILY_COUNT
} w_family;

typedef enum x_family {
    X_NORMAL = 0,
    X_SPREAD,  /* each 32 has its own magnitude: all sub-scales */
    X_MAX,     /* all quants 127 or -127 */
    X_ONE_HOT, /* one value: finds the dropped and the swapped element */
    X_ZERO,
    X_TINY,  /* around the thresholds below which a block becomes zero, and subnormals */
    X_HUGE,  /* about 2^80 */
    X_HOLES, /* zero blocks among others */
    X_BAD,   /* a NaN or an infinity somewhere: every result must be NaN or infinite */
    X_FAMILY_COUNT
} x_family;

extern const char *const w_family_names[W_FAMILY_COUNT];
extern const char *const x_family_names[X_FAMILY_COUNT];

/* n_block blocks of the type, which is any that pn_type_get knows; w: exactly their bytes. */
void make_blocks(kt *t, uint32_t type, w_family family, uint8_t *w, size_t n_block);
void make_floats(kt *t, x_family family, float *x, size_t n);

#endif
