/* Matrix times columns on quantised types, dotprod level: sdot by element. */
#include "kernels/neon/codes.inc.h"

#include "kernels/neon/gemm.inc.h"

PN_INLINE void products(pn_type type, const int8_t *code, int n, const int8_t *const *q, int n_b,
                        int32x4_t p[N_A][N_B])
{
    (void)type;
#pragma GCC unroll 2
    for (int k = 0; k < n; k += 16, code += 16 * STEP_ROWS) {
        int8x16_t x[N_B];
        for (int b = 0; b < n_b; b++)
            x[b] = vld1q_s8(q[b] + k);
#define FOUR(i)                                                 \
    for (int a = 0; a < N_A; a++) {                             \
        const int8x16_t w = vld1q_s8(code + 32 * (i) + 16 * a); \
        for (int b = 0; b < n_b; b++)                           \
            p[a][b] = vdotq_laneq_s32(p[a][b], w, x[b], i);     \
    }
        FOUR(0)
        FOUR(1)
        FOUR(2)
        FOUR(3)
#undef FOUR
    }
}

void pn_gemm_init_dotprod(pn_kernels *k)
{
    init(k);
}
