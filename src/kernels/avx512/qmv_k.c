/* y = W x for Q2_K to Q6_K on the file's own layout, 512 bits: the arithmetic and the order are
 * those of avx2/qmv_k.inc.h, which also explains the parked sums.
 *
 * A superblock is four vectors of codes, in the order in which its bytes unpack without crossing
 * lanes; the activations are copied once into the same order (unit_of). Two rows go side by side:
 * they share every load of activations, and their scales are unpacked together. Codes and
 * activations are read once, which gcc has to be told. Where a code stands for code - offset, the
 * dot product starts from -offset times the sum of the activations: nothing is taken off later.
 *
 * Against the 256-bit template, of which these are half the instructions: GB/s of two threads, rows
 * of 2048, Zen 4 VM, medians, 2026-11-30:
 *              Q3_K     Q4_K     Q5_K     Q6_K
 *   in cache  27 31    40 47    40 48    51 61
 * From memory, where plain reading gave 31: Q3_K 24 and 26, the others 29 with both. Since then
 * cycles a superblock in cache on one core: Q3_K 20.9 to 19.7, Q4_K 16.0, Q5_K 21.8 to 21.2, Q6_K
 * 20.0 to 19.3. */
#include "kernels/avx512/avx512.h"

#define LEVEL avx512
#include "kernels/avx2/codes.inc.h"

enum {
    ROWS = 8,
    SEG = 16,       /* superblocks parked at a time */
    PREFETCH = 8192 /* bytes ahead, into the second cache level */
};

typedef struct parked {
    _Alignas(64) __m256i isum[SEG][ROWS], imin[SEG][ROWS];
    uint32_t d[SEG][ROWS]; /* dmin in the high half, where there is one */
    /* The activations: in unit_of's order; what a dot product of raised codes starts from;
     * sub-scales and, where there are minima, sums for the scales of two rows. */
    __m512i q[SEG][4], start[SEG][4], sub_scale[SEG], bsum[SEG];
} parked;

/* A superblock's 16 weights, counted from its start, that lane l of code vector i holds. */
PN_INLINE int unit_of(pn_type type, int i, int l)
{
    switch (type) {
    case PN_TYPE_Q4_K:
    case PN_TYPE_Q5_K: /* 64 bytes: the low nibbles of two groups, then the high ones of two more */
        return 8 * (i / 2) + 2 * (i % 2) + l % 2 + 4 * (l / 2);
    case PN_TYPE_Q6_K:
        return 4 * i + l;
    default: /* Q2_K, Q3_K: two bits of both halves */
        return 2 * i + l % 2 + 8 * (l / 2);
    }
}

/* For vpermw: the scales of row r of two beside the packed sums of vectors i and i + 1. */
PN_INLINE __m512i word_control(pn_type type, int i, int r)
{
    int16_t at[32];
    for (int w = 0; w < 32; w++) {
        const int unit = unit_of(type, i + w % 8 / 4, w / 8);
        at[w] = (int16_t)(has_scale16(type) ? unit + 16 * r : unit / 2 + 8 * r);
    }
    return _mm512_loadu_si512(at);
}

PN_INLINE __m512i twice(__m256i v)
{
    return _mm512_broadcast_i64x4(v);
}
/* Read once: gcc would read memory for each use. */
PN_INLINE __m512i load512(const void *p)
{
    __m512i v = _mm512_loadu_si512(p);
    __asm__("" : "+v"(v));
    return v;
}
/* v with its low half's dwords rotated left by low, its high half's by high; negative: right. */
PN_INLINE __m512i rotate(__m512i v, int low, int high)
{
    return _mm512_rolv_epi32(
        v, _mm512_inserti64x4(_mm512_set1_epi32(low & 31), _mm256_set1_epi32(high & 31), 1));
}
PN_INLINE __m512i masked(__m512i v, int right, int mask)
{
    return _mm512_and_si512(_mm512_srli_epi16(v, (unsigned)right), _mm512_set1_epi8((char)mask));
}
PN_INLINE __m512i or_masked(__m512i base, __m512i v, int mask)
{
    return _mm512_ternarylogic_epi32(base, v, _mm512_set1_epi8((char)mask), 0xf8);
}

/* The bits of a where mask has them, those of b elsewhere. */
PN_INLINE __m512i blend_bits(int mask, __m512i a, __m512i b)
{
    return _mm512_ternarylogic_epi32(_mm512_set1_epi8((char)mask), a, b, 0xca);
}

/* The codes of vector i come 2^place_of(i) too large, which costs less than moving them: park_acts
 * makes up for it in the other vectors' sub-scales, so that isum is 2^sum_place_bits too large. */
PN_INLINE int place_of(pn_type type, int i)
{
    return type == PN_TYPE_Q3_K && i >= 2 ? 4 : 0;
}
PN_INLINE int sum_place_bits(pn_type type)
{
    return place_of(type, 3);
}

PN_INLINE void code_vectors(pn_type type, const uint8_t *block, __m512i q[4])
{
    switch (type) {
    case PN_TYPE_Q6_K: {
        const pn_block_q6_k *const b = (const void *)block;
        for (int i = 0; i < 2; i++) {
            const __m512i v = load512(b->q + 64 * i), h = twice(load256(b->h + 32 * i));
            q[2 * i] = or_masked(masked(v, 0, 15), rotate(h, 4, 2), 48);
            q[2 * i + 1] = or_masked(masked(v, 4, 15), rotate(h, 0, -2), 48);
        }
        return;
    }
    case PN_TYPE_Q2_K: {
        const __m512i v = load512(((const pn_block_q2_k *)(const void *)block)->q);
        for (int i = 0; i < 4; i++)
            q[i] = masked(v, 2 * i, 3);
        return;
    }
    case PN_TYPE_Q3_K: {
        const pn_block_q3_k *const b = (const void *)block;
        /* Codes i and i + 2 in the nibbles of a byte: their low bits are there after a shift by 2i,
         * a table takes bits i and i + 2 of h's nibble to bits 2 and 6. */
        const __m512i to[2] = {
            _mm512_broadcast_i32x4(
                _mm_setr_epi8(0, 4, 0, 4, 64, 68, 64, 68, 0, 4, 0, 4, 64, 68, 64, 68)),
            _mm512_broadcast_i32x4(
                _mm_setr_epi8(0, 0, 4, 4, 0, 0, 4, 4, 64, 64, 68, 68, 64, 64, 68, 68)),
        };
        const __m512i v = load512(b->q), h = twice(load256(b->h));
        const __m512i nibble =
            _mm512_and_si512(_mm512_srlv_epi32(h, _mm512_inserti64x4(_mm512_setzero_si512(),
                                                                     _mm256_set1_epi32(4), 1)),
                             _mm512_set1_epi8(15));
        for (int i = 0; i < 2; i++) {
            const __m512i both = blend_bits(0x33, _mm512_srli_epi16(v, 2 * (unsigned)i),
                                            _mm512_shuffle_epi8(to[i], nibble));
            q[i] = _mm512_and_si512(both, _mm512_set1_epi8(0x0f));
            q[i + 2] = _mm512_and_si512(both, _mm512_set1_epi8((char)0xf0));
        }
        return;
    }
    default: { /* Q4_K, Q5_K: the quants end the block */
        const uint8_t *const nibbles = block + block_bytes(type) - 128;
        for (int i = 0; i < 2; i++) {
            const __m512i v = load512(nibbles + 64 * i);
            q[2 * i] = masked(v, 0, 15);
            q[2 * i + 1] = masked(v, 4, 15);
        }
        if (type == PN_TYPE_Q4_K)
            return;
        const __m512i h = twice(load256(((const pn_block_q5_k *)(const void *)block)->h));
        for (int i = 0; i < 4; i++) {
            const int g = unit_of(type, i, 0) / 2; /* in the low half; g + 2 in the high one */
            q[i] = or_masked(q[i], rotate(h, 4 - g, 2 - g), 16);
        }
    }
    }
}

/* --- scales ----------------------------------------------------------------------------------- */

/* 16 bytes of each of two rows, one after the other. */
PN_INLINE __m256i two_rows(const uint8_t *p0, const uint8_t *p1)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(load128(p0)), load128(p1), 1);
}
/* Both 128-bit lanes twice: a row's fields in each half. */
PN_INLINE __m512i halves(__m256i v)
{
    return _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 1, 0, 1, 2, 3, 2, 3),
                                    _mm512_castsi256_si512(v));
}
/* Bytes picked, masked, and neighbours multiplied and added: a 6-bit field's two parts. */
PN_INLINE __m512i fields(__m512i v, __m256i at, __m256i bits, __m256i by)
{
    v = _mm512_and_si512(_mm512_shuffle_epi8(v, twice(at)), twice(bits));
    return _mm512_maddubs_epi16(v, twice(by));
}

/* Q3_K's 16 scales of two rows as words: lo, the nibble of sc[j % 8], and hi, two bits of
 * sc[8 + j % 4]. lo + 16 hi - 32 as (lo + 16) - 16 (3 - hi), with 3 - hi the bits inverted. */
PN_INLINE __m512i scales_q3_k(const uint8_t *block0, const uint8_t *block1)
{
    const size_t off = offsetof(pn_block_q3_k, sc) - 2; /* 16 bytes that end with the block */
    const __m512i at =
        twice(_mm256_broadcastsi128_si256(_mm_setr_epi8(2, 10, 3, 11, 4, 12, 5, 13, //
                                                        6, 10, 7, 11, 8, 12, 9, 13)));
    __m512i v = _mm512_shuffle_epi8(
        _mm512_mask_broadcast_i32x4(_mm512_broadcast_i32x4(load128(block0 + off)), 0xff00,
                                    load128(block1 + off)),
        at);
    v = _mm512_srlv_epi64(v, _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4));
    const __m128i bits = _mm_set_epi64x(0x0c0f0c0f0c0f0c0fll, 0x030f030f030f030fll);
    const __m128i flip = _mm_set_epi64x(0x0c100c100c100c10ll, 0x0310031003100310ll);
    const __m128i by = _mm_set_epi64x((long long)0xfc01fc01fc01fc01ull, /* -4, 1; -16, 1 */
                                      (long long)0xf001f001f001f001ull);
    v = _mm512_ternarylogic_epi32(v, _mm512_broadcast_i32x4(bits), _mm512_broadcast_i32x4(flip),
                                  0x6a); /* (v & bits) ^ flip */
    return _mm512_maddubs_epi16(v, _mm512_broadcast_i32x4(by));
}

/* Scale times sub-scale of two rows: words 0.. of either half where has_scale16, else 0..7 and
 * 8..15. And where there are minima the lanes of imin, 2^min_place_bits too large. */
PN_INLINE __m512i factors(pn_type type, const uint8_t *block0, const uint8_t *block1,
                          __m512i sub_scale, __m512i bsum, __m512i *m)
{
    switch (type) {
    case PN_TYPE_Q2_K: {
        const __m512i both = _mm512_cvtepu8_epi16(two_rows(block0, block1));
        *m = _mm512_madd_epi16(_mm512_srli_epi16(both, 4), bsum);
        return _mm512_mullo_epi16(_mm512_and_si512(both, _mm512_set1_epi16(15)), sub_scale);
    }
    case PN_TYPE_Q3_K:
        return _mm512_mullo_epi16(scales_q3_k(block0, block1), sub_scale);
    case PN_TYPE_Q6_K: {
        const size_t off = offsetof(pn_block_q6_k, sc);
        return _mm512_mullo_epi16(_mm512_cvtepi8_epi16(two_rows(block0 + off, block1 + off)),
                                  sub_scale);
    }
    default: { /* Q4_K, Q5_K: as scales64 and minima16 of avx2/qmv_k.inc.h */
        const __m256i head = two_rows(block0, block1);
        const __m128i at = _mm_setr_epi8(4, -1, 5, -1, 6, -1, 7, -1, 12, 4, 13, 5, 14, 6, 15, 7);
        const __m128i bits = _mm_set_epi64x((long long)0xc00fc00fc00fc00full, 0x003f003f003f003fll);
        const __m128i by = _mm_set_epi64x(0x1040104010401040ll, 0x0040004000400040ll);
        const __m256i field = _mm256_shuffle_epi8(head, _mm256_broadcastsi128_si256(at));
        const __m256i sc64 =
            _mm256_maddubs_epi16(_mm256_and_si256(field, _mm256_broadcastsi128_si256(bits)),
                                 _mm256_broadcastsi128_si256(by));
        const __m512i min16 =
            fields(halves(head),
                   _mm256_setr_epi8(8, -1, 8, -1, 9, -1, 9, -1, 10, -1, 10, -1, 11, -1, 11, -1, //
                                    12, 8, 12, 8, 13, 9, 13, 9, 14, 10, 14, 10, 15, 11, 15, 11),
                   _mm256_set_m128i(_mm_set1_epi16((short)0xc0f0), _mm_set1_epi16(0x003f)),
                   _mm256_set_m128i(_mm_set1_epi16(0x0401), _mm_set1_epi16(0x0010)));
        *m = _mm512_madd_epi16(min16, bsum);
        return _mm512_castsi256_si512(_mm256_mulhi_epi16(sc64, _mm512_castsi512_si256(sub_scale)));
    }
    }
}

/* What imin, parked, is shifted by. */
PN_INLINE int min_place_bits(pn_type type)
{
    return type == PN_TYPE_Q2_K ? 0 : 4;
}

/* --- dots ------------------------------------------------------------------------------------- */

/* Sums of 4 products of one superblock of two rows, in pairs of vectors packed to words: at most
 * 4 * 127 * 31 where there is a minimum, * 32 for Q6_K, * 4 * 2^4 for Q3_K, below 2^15. */
PN_INLINE void dots(pn_type type, const uint8_t *block0, const uint8_t *block1, const parked *park,
                    size_t b, __m512i s0[2], __m512i s1[2])
{
    __m512i q0[4], q1[4];
    code_vectors(type, block0, q0);
    code_vectors(type, block1, q1);
    for (int i = 0; i < 4; i++) {
        const __m512i a = load512(&park->q[b][i]);
        const __m512i start = has_min(type) ? _mm512_setzero_si512() : load512(&park->start[b][i]);
        q0[i] = _mm512_dpbusd_epi32(start, q0[i], a);
        q1[i] = _mm512_dpbusd_epi32(start, q1[i], a);
    }
    for (int i = 0; i < 2; i++) {
        s0[i] = _mm512_packs_epi32(q0[2 * i], q0[2 * i + 1]);
        s1[i] = _mm512_packs_epi32(q1[2 * i], q1[2 * i + 1]);
    }
}

/* The dots of row r of two times factors. */
PN_INLINE __m512i scaled(pn_type type, const __m512i s[2], __m512i w, int r)
{
    return _mm512_dpwssd_epi32(
        _mm512_madd_epi16(s[0], _mm512_permutexvar_epi16(word_control(type, 0, r), w)), s[1],
        _mm512_permutexvar_epi16(word_control(type, 2, r), w));
}

/* One superblock of two rows: packed dots of each and the factors of both. */
typedef struct unscaled {
    __m512i row0[2], row1[2], w;
} unscaled;

/* Of rows r and r + 1 of the parked eight; parks what needs no scaling. */
PN_INLINE unscaled multiply_two(pn_type type, const uint8_t *block0, const uint8_t *block1,
                                parked *park, size_t b, size_t r)
{
    __m512i m;
    unscaled u;
    u.w = factors(type, block0, block1, park->sub_scale[b], park->bsum[b], &m);
    dots(type, block0, block1, park, b, u.row0, u.row1);
    if (has_min(type)) {
        _mm512_store_si512(&park->imin[b][r], m);
        park->d[b][r] = d_bits(type, block0) | (uint32_t)min_bits(type, block0) << 16;
        park->d[b][r + 1] = d_bits(type, block1) | (uint32_t)min_bits(type, block1) << 16;
    } else {
        park->d[b][r] = d_bits(type, block0);
        park->d[b][r + 1] = d_bits(type, block1);
    }
    return u;
}

PN_INLINE void scale_two(pn_type type, const unscaled *u, parked *park, size_t b, size_t r)
{
    const __m512i s0 = scaled(type, u->row0, u->w, 0), s1 = scaled(type, u->row1, u->w, 1);
    _mm512_store_si512(&park->isum[b][r], _mm512_add_epi32(_mm512_shuffle_i64x2(s0, s1, 0x4e),
                                                           _mm512_mask_blend_epi64(0xf0, s0, s1)));
}

/* --- rows ------------------------------------------------------------------------------------- */

PN_INLINE void park_acts(pn_type type, const pn_q8k *x, size_t nb, parked *park)
{
    for (size_t b = 0; b < nb; b++) {
        for (int i = 0; i < 16; i++)
            memcpy((uint8_t *)park->q[b] + 16 * i, x[b].q + 16 * unit_of(type, i / 4, i % 4), 16);
        const __m128i s = load128(x[b].s);
        park->sub_scale[b] =
            has_scale16(type)
                ? twice(_mm256_set_m128i(_mm_unpackhi_epi16(s, s), _mm_unpacklo_epi16(s, s)))
                : _mm512_slli_epi16(_mm512_broadcast_i32x4(s), 10);
        if (type == PN_TYPE_Q3_K) /* units 0..3 and 8..11 are those of vectors 0 and 1 */
            park->sub_scale[b] = _mm512_mask_slli_epi16(park->sub_scale[b], 0x0f0f0f0f,
                                                        park->sub_scale[b], sum_place_bits(type));
        if (has_min(type)) {
            park->bsum[b] = twice(load256(x[b].bsum));
            continue;
        }
        for (int i = 0; i < 4; i++) {
            const __m512i zero = _mm512_setzero_si512();
            const __m512i offset = _mm512_set1_epi8((char)(code_offset(type) << place_of(type, i)));
            park->start[b][i] =
                _mm512_sub_epi32(zero, _mm512_dpbusd_epi32(zero, offset, park->q[b][i]));
        }
    }
}

/* t of eight rows of one parked superblock. */
PN_INLINE __m256 float_step(pn_type type, const parked *park, size_t b)
{
    const __m256i bits = load256(park->d[b]);
    const __m256 d = _mm256_cvtph_ps(_mm256_cvtepi32_epi16(bits));
    const __m256 isum =
        _mm256_cvtepi32_ps(_mm256_srai_epi32(sum_lanes8(park->isum[b]), sum_place_bits(type)));
    if (!has_min(type))
        return _mm256_mul_ps(d, isum);
    const __m256 dmin = _mm256_cvtph_ps(_mm256_cvtepi32_epi16(_mm256_srli_epi32(bits, 16)));
    const __m256 imin =
        _mm256_cvtepi32_ps(_mm256_srai_epi32(sum_lanes8(park->imin[b]), min_place_bits(type)));
    return _mm256_fmsub_ps(d, isum, _mm256_mul_ps(dmin, imin));
}

PN_INLINE void prefetch_block(pn_type type, const uint8_t *block)
{
    for (size_t i = 0; i < block_bytes(type); i += 64)
        _mm_prefetch((const char *)block + PREFETCH + i, _MM_HINT_T1);
}

/* nb superblocks of rows r and r + 1 of the parked eight. A superblock is scaled while the next
 * one's loads and products are under way: from memory 1.3 times as fast. */
PN_INLINE void rows_two(pn_type type, const uint8_t *block0, const uint8_t *block1, size_t nb,
                        parked *park, size_t r)
{
    prefetch_block(type, block0);
    prefetch_block(type, block1);
    unscaled u = multiply_two(type, block0, block1, park, 0, r);
    for (size_t b = 1; b < nb; b++) {
        block0 += block_bytes(type);
        block1 += block_bytes(type);
        prefetch_block(type, block0);
        prefetch_block(type, block1);
        scale_two(type, &u, park, b - 1, r);
        u = multiply_two(type, block0, block1, park, b, r);
    }
    scale_two(type, &u, park, nb - 1, r);
}

PN_INLINE void qmv(pn_type type, const void *w, size_t row_bytes, size_t n_row, const void *act,
                   size_t n, float *y)
{
    const pn_q8k *const x = act;
    const size_t n_block = n / PN_QK;
    parked park;
    if (n_row % ROWS) /* the lanes of absent rows are computed with, too */
        memset(&park, 0, sizeof park);
    for (size_t r0 = 0; r0 < n_row; r0 += ROWS) {
        const size_t nr = n_row - r0 < ROWS ? n_row - r0 : ROWS;
        __m256 acc = _mm256_setzero_ps();
        for (size_t b0 = 0; b0 < n_block; b0 += SEG) {
            const size_t nb = n_block - b0 < SEG ? n_block - b0 : SEG;
            if (r0 == 0 || n_block > SEG)
                park_acts(type, x + b0, nb, &park);
            for (size_t r = 0; r < nr; r += 2) {
                const uint8_t *const block0 =
                    (const uint8_t *)w + (r0 + r) * row_bytes + b0 * block_bytes(type);
                rows_two(type, block0, r + 1 < nr ? block0 + row_bytes : block0, nb, &park, r);
            }
            for (size_t b = 0; b < nb; b++)
                acc = _mm256_fmadd_ps(_mm256_set1_ps(x[b0 + b].d), float_step(type, &park, b), acc);
        }
        float out[ROWS];
        _mm256_storeu_ps(out, acc);
        memcpy(y + r0, out, nr * sizeof *y);
    }
}

#define DEFINE(name, type)                                                                    \
    void pn_qmv_##name##_avx512(const void *w, size_t row_bytes, size_t n_row, const void *x, \
                                size_t n, float *y)                                           \
    {                                                                                         \
        qmv(type, w, row_bytes, n_row, x, n, y);                                              \
    }
DEFINE(q2_k, PN_TYPE_Q2_K)
DEFINE(q3_k, PN_TYPE_Q3_K)
DEFINE(q4_k, PN_TYPE_Q4_K)
DEFINE(q5_k, PN_TYPE_Q5_K)
DEFINE(q6_k, PN_TYPE_Q6_K)
