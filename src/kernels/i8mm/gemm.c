/* Matrix times columns on quantised types, i8mm level: smmla. */
#include "kernels/neon/codes.inc.h"

#include "kernels/neon/gemm.inc.h"

PN_INLINE void products(pn_type type, const int8_t *code, int n, const int8_t *const *q, int n_b,
                        int32x4_t p[N_A][N_B])
{
    (void)type;
#pragma GCC unroll 2
    for (int k = 0; k < n; k += 16, code += 16 * STEP_ROWS) {
        int8x16_t x[N_B][2]; /* eight activations of two columns, the next eight */
        for (int b = 0; b < n_b; b++) {
            const int64x2_t c0 = vreinterpretq_s64_s8(vld1q_s8(q[2 * b] + k));
            const int64x2_t c1 = vreinterpretq_s64_s8(vld1q_s8(q[2 * b + 1] + k));
            x[b][0] = vreinterpretq_s8_s64(vtrn1q_s64(c0, c1));
            x[b][1] = vreinterpretq_s8_s64(vtrn2q_s64(c0, c1));
        }
        for (int i = 0; i < 2; i++)
            for (int a = 0; a < N_A; a++) {
                const int8x16_t w = vld1q_s8(code + 64 * i + 16 * a);
                for (int b = 0; b < n_b; b++)
                    p[a][b] = vmmlaq_s32(p[a][b], w, x[b][i]);
            }
    }
}

void pn_gemm_init_i8mm(pn_kernels *k)
{
    init(k);
}
