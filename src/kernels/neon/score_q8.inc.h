/* Scores of q8_0 keys, the template of the neon and dotprod levels: a K tile is the rows of
 * products.inc.h, 32 positions, and the queries its columns. */
#ifndef PN_KERNELS_NEON_SCORE_Q8_INC_H
#define PN_KERNELS_NEON_SCORE_Q8_INC_H

#include "kernels/attention.h"
#include "kernels/neon/products.inc.h"
#include "quant/quant.h"

/* One block of 32 d, 8 positions, 4 queries. */
PN_INLINE void score_step_q8(const int8_t *k, const uint16_t *scale, const int8_t *const *q,
                             const float *d, bool is_first, float *out, size_t ldo)
{
    int32x4_t isum[N_A][N_B];
    for (int a = 0; a < N_A; a++)
        for (int b = 0; b < N_B; b++)
            isum[a][b] = vdupq_n_s32(0);
    products(PN_TYPE_Q8_0, k, (size_t)PN_ATTN_LANES * 4, -128, 32, q, N_B, isum);
    for (int a = 0; a < N_A; a++) {
        const float32x4_t dk = vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(scale + 4 * a)));
        for (int b = 0; b < N_B; b++) {
            float *const o = out + (size_t)b * ldo + 4 * a;
            const float32x4_t old = is_first ? vdupq_n_f32(0.0f) : vld1q_f32(o);
            vst1q_f32(o, vfmaq_f32(old, vmulq_n_f32(dk, d[b]), vcvtq_f32_s32(isum[a][b])));
        }
    }
}

static pn_attn_score_q8_fn score_q8;
static void score_q8(const void *tile, size_t n_block, const void *q, size_t q_stride, float *out,
                     size_t ldo, size_t n_row, const void *next)
{
    const char *b = tile;
    const ptrdiff_t ahead = (const char *)next - b;
    for (size_t ib = 0; ib < n_block; ib++, b += PN_KV_K_BLOCK) {
        for (size_t line = 0; line < PN_KV_K_BLOCK; line += 64)
            __builtin_prefetch(b + ahead + line);
        for (size_t r = 0; r < n_row; r += N_B) {
            const int8_t *qq[N_B];
            float d[N_B];
            for (size_t i = 0; i < N_B; i++) {
                const pn_q8b *const g =
                    (const pn_q8b *)((const char *)q + (r + i) * q_stride) + ib / PN_Q8B_GROUP;
                qq[i] = g->q + ib % PN_Q8B_GROUP * 32;
                d[i] = g->d[ib % PN_Q8B_GROUP];
            }
            for (size_t lane = 0; lane < PN_ATTN_LANES; lane += STEP_ROWS)
                score_step_q8((const int8_t *)b + PN_ATTN_LANES * 2 + 4 * lane,
                              (const uint16_t *)b + lane, qq, d, ib == 0, out + r * ldo + lane,
                              ldo);
        }
    }
}

#endif
