/* Matrix times columns on quantised types, neon level: bytes are multiplied into int16. */
#include "kernels/neon/codes.inc.h"

#include "kernels/neon/gemm.inc.h"

/* How many products of a code fit in int16. */
PN_INLINE int steps16(pn_type type)
{
    return code_max(type) ? 8 : 2; /* Q6_K: 32 * 127 * 8 = 32512; signed types: 128 * 127 * 2 */
}

/* Four rows after four: a lane holds products of one row and one k mod 4, steps16 of them. */
PN_INLINE void products(pn_type type, const int8_t *code, int n, const int8_t *const *q, int n_b,
                        int32x4_t p[N_A][N_B])
{
    const int n_k = n / 4, n_step = steps16(type) < n_k ? steps16(type) : n_k;
#pragma GCC unroll 2
    for (int a = 0; a < N_A; a++)
#pragma GCC unroll 4
        for (int k0 = 0; k0 < n_k; k0 += n_step) {
            int16x8_t low[N_B], high[N_B]; /* rows 0, 1 and 2, 3 */
#pragma GCC unroll 8
            for (int k = k0; k < k0 + n_step; k++) {
                const int8x16_t w = vld1q_s8(code + (4 * k) * STEP_ROWS + 16 * a);
#pragma GCC unroll 4
                for (int b = 0; b < n_b; b++) {
                    int32_t four;
                    memcpy(&four, q[b] + 4 * k, sizeof four);
                    const int8x16_t x = vreinterpretq_s8_s32(vdupq_n_s32(four));
                    if (k == k0) {
                        low[b] = vmull_s8(vget_low_s8(w), vget_low_s8(x));
                        high[b] = vmull_high_s8(w, x);
                    } else {
                        low[b] = vmlal_s8(low[b], vget_low_s8(w), vget_low_s8(x));
                        high[b] = vmlal_high_s8(high[b], w, x);
                    }
                }
            }
#pragma GCC unroll 4
            for (int b = 0; b < n_b; b++)
                p[a][b] = vaddq_s32(p[a][b], vpaddq_s32(vpaddlq_s16(low[b]), vpaddlq_s16(high[b])));
        }
}

void pn_gemm_init_neon(pn_kernels *k)
{
    init(k);
}
