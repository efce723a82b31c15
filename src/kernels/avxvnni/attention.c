/* Attention on AVX-VNNI: the avx2 level's kernels, with the integer dots of q8_0 KV in one
 * instruction each. */
#include "kernels/avx2/floats_avx2.h"

#define LANES PN_ATTN_LANES
#define ROWS  PN_ATTN_ROWS

/* In assembly: gcc 12 copies the accumulators of the intrinsics around the loop. */
#define DOT4_START(sum) _mm256_set1_epi32(-128 * (sum)) /* the bias of k */
PN_INLINE __m256i dot4(__m256i acc, __m256i k_biased, __m256i q)
{
    __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(acc) : "x"(k_biased), "x"(q));
    return acc;
}
PN_INLINE __m256i add_pairs(__m256i acc, __m256i a, __m256i b)
{
    __asm__("%{vex%} vpdpwssd %2, %1, %0" : "+x"(acc) : "x"(a), "x"(b));
    return acc;
}
#include "kernels/avx2/attention_q8.inc.h"

void pn_attn_init_avxvnni(pn_attn_kernels *k)
{
    k->score_q8 = score_q8;
    k->value_q8 = value_q8;
}
