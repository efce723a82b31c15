/* The attention slots, one by one: against the scalar level by bits, and the scalar level against
 * double. The whole operation, in all its divisions, is tested by test_attention.c. */
#include "kernels/harness.h"

#include "base/arith.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    LANES = PN_ATTN_LANES,
    ROWS = PN_ATTN_ROWS,
    CHUNK = PN_KV_CHUNK,
    LDO = LANES + 5 /* of out: a row stride beyond the row */
};
static const double EPS = 0x1p-24;

static void fill_normal(kt *t, const kt_buf *b, int exponent)
{
    for (size_t i = 0; i < b->bytes / 4; i++)
        ((float *)b->ptr)[i] = kt_scale2(kt_normal(t), exponent);
}

/* Rows from n_row on may hold anything: makes them alike. */
static void clear_rows(const kt_buf *out, size_t n_row, size_t n_padded)
{
    for (size_t r = n_row; r < n_padded; r++)
        memset(out->ptr + r * LDO * 4, 0, LANES * 4);
}

static void same_rows(kt *t, const kt_buf *got, const kt_buf *want, size_t n_row, size_t n_padded)
{
    clear_rows(got, n_row, n_padded);
    clear_rows(want, n_row, n_padded);
    kt_same_floats(t, "out", got, want);
}

/* --- storing ---------------------------------------------------------------------------------- */

static void store_case(kt *t, pn_kv_type type, size_t head_dim, size_t i, int exponent)
{
    kt_case(t, "head_dim %zu, position %zu, size 2^%d", head_dim, i, exponent);
    const size_t kb = pn_kv_k_bytes(type, head_dim), vb = pn_kv_v_bytes(type, head_dim);
    kt_buf k = kt_buf_new(head_dim * 4, 4), v = kt_buf_new(head_dim * 4, 4);
    kt_buf got_k = kt_buf_new(kb, 64), got_v = kt_buf_new(vb, 64);
    kt_buf want_k = kt_buf_new(kb, 64), want_v = kt_buf_new(vb, 64);
    fill_normal(t, &k, exponent);
    fill_normal(t, &v, exponent);
    if (exponent == 0 && kt_index(t, 4) == 0) {
        static const float bad[] = { INFINITY, -INFINITY, NAN, 65520.0f, -70000.0f, 1e30f };
        const float x = bad[kt_index(t, 6)];
        const size_t at = kt_index(t, head_dim);
        ((float *)(kt_index(t, 2) ? k : v).ptr)[at] = x;
    }
    kt_buf_seal(&k);
    kt_buf_seal(&v);
    const float *const kf = (const float *)k.ptr, *const vf = (const float *)v.ptr;
    t->scalar->attn.store[type](want_k.ptr, want_v.ptr, i, kf, vf, head_dim);
    KT_CALL(t, t->k->attn.store[type](got_k.ptr, got_v.ptr, i, kf, vf, head_dim));
    kt_same_bytes(t, "k part", &got_k, &want_k);
    kt_same_bytes(t, "v part", &got_v, &want_v);
    kt_buf_free(&k);
    kt_buf_free(&v);
    kt_buf_free(&got_k);
    kt_buf_free(&got_v);
    kt_buf_free(&want_k);
    kt_buf_free(&want_v);
}

static void check_store(kt *t, pn_kv_type type)
{
    static const size_t dims[] = { 256, 128, 64, 32, 96, 288, 80, 16, 2, 34, 1, 47 };
    static const int exponents[] = { 0, -10, -16, -20, -40, 10, 15, 40, -100 };
    if (!kt_begin(t, KT_SLOT(attn.store[type]), "kv_store_%s", pn_kv_type_name(type)))
        return;
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        if (type == PN_KV_Q8_0 && dims[i] % 32 != 0)
            continue;
        for (size_t j = 0; j < sizeof exponents / sizeof *exponents && !kt_gave_up(t); j++)
            for (size_t n = 0; n < 4; n++)
                store_case(t, type, dims[i], kt_index(t, CHUNK), exponents[j]);
    }
    if (t->is_bench) {
        static uint64_t k[CHUNK * 256 / 2], v[CHUNK * 256 / 2];
        static float x[256];
        KT_BENCH(t, "head_dim 256", "M/s", 1.0,
                 t->k->attn.store[type](k, v, 5, x, x, 256)); /* positions a second */
    }
}

/* --- f16 and f32 tiles ------------------------------------------------------------------------ */

static double tile_value(pn_kv_type type, const void *tile, size_t i)
{
    return (double)(type == PN_KV_F16 ? pn_h2f(((const uint16_t *)tile)[i])
                                      : ((const float *)tile)[i]);
}

static void tile_case(kt *t, pn_kv_type type, size_t n_step, size_t n_row)
{
    kt_case(t, "%zu steps, %zu rows", n_step, n_row);
    const size_t lda = n_step + kt_index(t, 3), n = n_step * LANES;
    kt_buf tile = kt_buf_new(n * (type == PN_KV_F16 ? 2 : 4), 64);
    kt_buf a = kt_buf_new(ROWS * lda * 4, 4);
    kt_buf got = kt_buf_new(ROWS * LDO * 4, 4), want = kt_buf_new(ROWS * LDO * 4, 4);
    fill_normal(t, &a, 0);
    for (size_t i = 0; i < n; i++) {
        const int exponent = -(int)kt_index(t, 18);
        const float x = kt_scale2(kt_normal(t), exponent);
        if (type == PN_KV_F16)
            ((uint16_t *)tile.ptr)[i] = pn_f2h(x);
        else
            ((float *)tile.ptr)[i] = x;
    }
    if (kt_index(t, 3) == 0) /* weights 0, and -0 on the way */
        for (size_t i = 0; i < ROWS * lda; i++)
            ((float *)a.ptr)[i] *= kt_index(t, 3) ? 0.0f : 0x1p-125f;
    kt_buf_seal(&tile);
    kt_buf_seal(&a);
    const float *const af = (const float *)a.ptr;
    t->scalar->attn.tile[type](tile.ptr, n_step, af, lda, (float *)want.ptr, LDO, n_row, tile.ptr);
    KT_CALL(t, t->k->attn.tile[type](tile.ptr, n_step, af, lda, (float *)got.ptr, LDO, n_row,
                                     tile.ptr));
    same_rows(t, &got, &want, n_row, ROWS);
    for (size_t r = 0; kt_is_scalar(t) && r < n_row; r++)
        for (size_t lane = 0; lane < LANES; lane++) {
            double sum = 0.0, sum_abs = 0.0;
            for (size_t i = 0; i < n_step; i++) {
                const double x =
                    (double)af[r * lda + i] * tile_value(type, tile.ptr, i * LANES + lane);
                sum += x;
                sum_abs += fabs(x);
            }
            kt_near(t, "out", r * LDO + lane, ((const float *)got.ptr)[r * LDO + lane], sum,
                    (double)(n_step + 1) * EPS * sum_abs + (double)n_step * 0x1p-149);
        }
    kt_buf_free(&tile);
    kt_buf_free(&a);
    kt_buf_free(&got);
    kt_buf_free(&want);
}

static void check_tile(kt *t, pn_kv_type type)
{
    static const size_t steps[] = { 256, 128, 1, 2, 3, 16, 31, 80, 127 };
    if (!kt_begin(t, KT_SLOT(attn.tile[type]), "attn_tile_%s", pn_kv_type_name(type)))
        return;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        for (size_t n_row = 1; n_row <= ROWS && !kt_gave_up(t); n_row++)
            tile_case(t, type, steps[i], n_row);
    if (t->is_bench) {
        static _Alignas(64) char tile[256 * LANES * 4];
        static float a[ROWS * 272], out[ROWS * LDO];
        static const size_t rows[] = { 4, 8, 12 };
        for (size_t i = 0; i < 3; i++) {
            char name[32] = "256 steps, 4 rows";
            name[11] = (char)('0' + rows[i] % 10);
            KT_BENCH(t, rows[i] == 12 ? "256 steps, 12 rows" : name, "GFMA/s",
                     rows[i] * 256 * LANES,
                     t->k->attn.tile[type](tile, 256, a, 272, out, LDO, rows[i], tile));
        }
    }
}

/* Every finite and infinite f16 is converted exactly. */
static void check_widen(kt *t)
{
    static const size_t sizes[] = { LANES, 3 * LANES, 1 << 16 };
    if (!kt_begin(t, KT_SLOT(attn.widen), "attn_widen"))
        return;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && !kt_gave_up(t); i++) {
        const size_t n = sizes[i];
        kt_case(t, "%zu values", n);
        kt_buf src = kt_buf_new(n * 2, 64);
        kt_buf got = kt_buf_new(n * 4, 64), want = kt_buf_new(n * 4, 64);
        for (size_t j = 0; j < n; j++)
            ((uint16_t *)src.ptr)[j] = (j & 0x7fff) > 0x7c00 ? 0 : (uint16_t)j; /* no NaN */
        kt_buf_seal(&src);
        t->scalar->attn.widen((float *)want.ptr, src.ptr, n);
        KT_CALL(t, t->k->attn.widen((float *)got.ptr, src.ptr, n));
        kt_same_floats(t, "dst", &got, &want);
        kt_buf_free(&src);
        kt_buf_free(&got);
        kt_buf_free(&want);
    }
}

/* --- q8_0 ------------------------------------------------------------------------------------- */

/* A finite f16, 0 and subnormals included. */
static uint16_t any_scale(kt *t)
{
    const int exponent = -(int)kt_index(t, 26);
    return pn_f2h(kt_scale2(fabsf(kt_normal(t)), exponent));
}

static void score_case(kt *t, size_t n_block, size_t n_row)
{
    kt_case(t, "%zu blocks, %zu rows", n_block, n_row);
    const size_t n = n_block * 32, stride = pn_act_bytes(PN_ACT_Q8B, n) + 64;
    const size_t n_padded = (n_row + ROWS - 1) / ROWS * ROWS;
    kt_buf tile = kt_buf_new(n_block * PN_KV_K_BLOCK, 64), q = kt_buf_new(n_padded * stride, 64);
    kt_buf got = kt_buf_new(n_padded * LDO * 4, 4), want = kt_buf_new(n_padded * LDO * 4, 4);
    kt_fill(t, tile.ptr, tile.bytes);
    for (size_t ib = 0; ib < n_block; ib++)
        for (size_t lane = 0; lane < LANES; lane++)
            ((uint16_t *)(tile.ptr + ib * PN_KV_K_BLOCK))[lane] = any_scale(t);
    for (size_t r = 0; r < n_padded; r++) {
        float x[PN_QK * 2];
        const int exponent = (int)kt_index(t, 20) - 10;
        for (size_t i = 0; i < n; i++) /* many at the ends of the range */
            x[i] = kt_scale2(kt_index(t, 3)   ? kt_normal(t)
                             : kt_index(t, 2) ? 4.0f
                                              : -4.0f,
                             exponent);
        t->scalar->quantize_q8b(q.ptr + r * stride, x, n);
    }
    kt_buf_seal(&tile);
    kt_buf_seal(&q);
    t->scalar->attn.score_q8(tile.ptr, n_block, q.ptr, stride, (float *)want.ptr, LDO, n_row,
                             tile.ptr);
    KT_CALL(t, t->k->attn.score_q8(tile.ptr, n_block, q.ptr, stride, (float *)got.ptr, LDO, n_row,
                                   tile.ptr));
    same_rows(t, &got, &want, n_row, n_padded);
    for (size_t r = 0; kt_is_scalar(t) && r < n_row; r++)
        for (size_t lane = 0; lane < LANES; lane++) {
            const pn_q8b *const qr = (const pn_q8b *)(q.ptr + r * stride);
            double sum = 0.0, sum_abs = 0.0;
            for (size_t d = 0; d < n; d++) {
                const uint8_t *const b = tile.ptr + d / 32 * PN_KV_K_BLOCK;
                const int k = b[LANES * 2 + d % 32 / 4 * (LANES * 4) + lane * 4 + d % 4] - 128;
                const double x = (double)pn_h2f(((const uint16_t *)b)[lane]) * k *
                                 (double)qr[d / PN_QK].d[d % PN_QK / 32] *
                                 qr[d / PN_QK].q[d % PN_QK];
                sum += x;
                sum_abs += fabs(x);
            }
            kt_near(t, "out", r * LDO + lane, ((const float *)got.ptr)[r * LDO + lane], sum,
                    (double)(n_block + 3) * EPS * sum_abs);
        }
    kt_buf_free(&tile);
    kt_buf_free(&q);
    kt_buf_free(&got);
    kt_buf_free(&want);
}

static void check_score(kt *t)
{
    static const size_t blocks[] = { 8, 1, 2, 3, 4, 9, 16 };
    if (!kt_begin(t, KT_SLOT(attn.score_q8), "attn_score_q8"))
        return;
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        for (size_t n_row = 1; n_row <= ROWS && !kt_gave_up(t); n_row++)
            score_case(t, blocks[i], n_row);
    score_case(t, 8, 2 * ROWS + 1);
    score_case(t, 8, 11 * ROWS);
    if (t->is_bench) {
        static _Alignas(64) char tile[8 * PN_KV_K_BLOCK];
        static _Alignas(64) pn_q8b q[ROWS];
        static float out[ROWS * LDO];
        KT_BENCH(t, "256 d, 8 rows", "GMAC/s", 8 * 256 * LANES,
                 t->k->attn.score_q8(tile, 8, q, sizeof *q, out, LDO, 8, tile));
        KT_BENCH(t, "256 d, 12 rows", "GMAC/s", 12 * 256 * LANES,
                 t->k->attn.score_q8(tile, 8, q, sizeof *q, out, LDO, 12, tile));
    }
}

static void value_case(kt *t, size_t n_pos, size_t n_row)
{
    kt_case(t, "%zu positions, %zu rows", n_pos, n_row);
    const size_t ldp = CHUNK + 3;
    kt_buf block = kt_buf_new(PN_KV_V_BLOCK, 64), p = kt_buf_new(ROWS * ldp * 4, 4);
    kt_buf got = kt_buf_new(ROWS * LDO * 4, 4), want = kt_buf_new(ROWS * LDO * 4, 4);
    kt_fill(t, block.ptr, block.bytes); /* positions from n_pos on keep any scale, NaN too */
    memset(p.ptr, 0, p.bytes);
    for (size_t i = 0; i < n_pos; i++)
        ((uint16_t *)block.ptr)[i] = kt_index(t, 8) ? any_scale(t) : 0;
    for (size_t r = 0; r < ROWS; r++) {
        const size_t sees = kt_index(t, 4) ? n_pos : kt_index(t, n_pos + 1);
        const int exponent = kt_index(t, 6) ? 0 : -(int)kt_index(t, 126);
        for (size_t i = 0; i < sees; i++)
            ((float *)p.ptr)[r * ldp + i] = kt_scale2(fabsf(kt_uniform(t)), exponent);
    }
    kt_buf_seal(&block);
    kt_buf_seal(&p);
    const float *const pf = (const float *)p.ptr;
    t->scalar->attn.value_q8(block.ptr, n_pos, pf, ldp, (float *)want.ptr, LDO, n_row, block.ptr);
    KT_CALL(
        t, t->k->attn.value_q8(block.ptr, n_pos, pf, ldp, (float *)got.ptr, LDO, n_row, block.ptr));
    same_rows(t, &got, &want, n_row, ROWS);
    for (size_t r = 0; kt_is_scalar(t) && r < n_row; r++)
        for (size_t d = 0; d < LANES; d++) {
            double sum = 0.0, sum_q = 0.0, w_max = 0.0;
            for (size_t j = 0; j < n_pos; j++) {
                const double w =
                    (double)pf[r * ldp + j] * (double)pn_h2f(((const uint16_t *)block.ptr)[j]);
                const int8_t q = ((int8_t *)block.ptr)[CHUNK * 2 + j / 2 * 64 + 2 * d + j % 2];
                sum += w * q;
                sum_q += abs(q);
                w_max = w > w_max ? w : w_max;
            }
            /* Half a step of 1/32767 for each weight, or all of them where W counts as 0, and the
             * roundings of w, is, w * is, 1 / is, float(isum) and the product. */
            kt_near(t, "out", r * LDO + d, ((const float *)got.ptr)[r * LDO + d], sum,
                    (w_max < 0x1.01p-100 ? w_max : w_max * (0.5 / 32767 + 6.5 * EPS)) * sum_q);
        }
    kt_buf_free(&block);
    kt_buf_free(&p);
    kt_buf_free(&got);
    kt_buf_free(&want);
}

static void check_value(kt *t)
{
    static const size_t n_pos[] = { 128, 1, 2, 3, 15, 16, 17, 64, 127 };
    if (!kt_begin(t, KT_SLOT(attn.value_q8), "attn_value_q8"))
        return;
    for (size_t i = 0; i < sizeof n_pos / sizeof *n_pos; i++)
        for (size_t n_row = 1; n_row <= ROWS && !kt_gave_up(t); n_row++)
            value_case(t, n_pos[i], n_row);
    if (t->is_bench) {
        static _Alignas(64) char block[PN_KV_V_BLOCK];
        static float p[ROWS * CHUNK], out[ROWS * LDO];
        for (size_t i = 0; i < ROWS * CHUNK; i++)
            p[i] = 0.5f;
        memset(block, 1, sizeof block);
        KT_BENCH(t, "128 keys, 8 rows", "GMAC/s", 8 * CHUNK * LANES,
                 t->k->attn.value_q8(block, CHUNK, p, CHUNK, out, LDO, 8, block));
        KT_BENCH(t, "128 keys, 12 rows", "GMAC/s", 12 * CHUNK * LANES,
                 t->k->attn.value_q8(block, CHUNK, p, CHUNK, out, LDO, 12, block));
    }
}

/* --- softmax, merge, division ----------------------------------------------------------------- */

static void softmax_case(kt *t, size_t n, int exponent)
{
    kt_case(t, "%zu positions, size 2^%d", n, exponent);
    kt_buf got = kt_buf_new(CHUNK * 4, 64), want = kt_buf_new(CHUNK * 4, 64);
    kt_buf got_ml = kt_buf_new(8, 4), want_ml = kt_buf_new(8, 4);
    const float scale = 0.0625f;
    fill_normal(t, &want, exponent);
    if (kt_index(t, 4) == 0)
        memset(want.ptr, 0, want.bytes);
    if (kt_index(t, 4) == 0) /* a maximum of -0, +0 or both */
        for (size_t j = 0; j < n; j++)
            ((uint32_t *)want.ptr)[j] = kt_index(t, 2) ? 0 : 0x80000000u;
    memset(want.ptr + n * 4, 0xff, (CHUNK - n) * 4); /* NaN where nothing was stored */
    memcpy(got.ptr, want.ptr, got.bytes);
    double s[CHUNK], s_max = -INFINITY, sum = 0.0;
    for (size_t j = 0; j < n; j++) {
        s[j] = (double)((const float *)want.ptr)[j] * (double)scale;
        s_max = s[j] > s_max ? s[j] : s_max;
    }
    float *const w = (float *)want_ml.ptr, *const g = (float *)got_ml.ptr;
    t->scalar->attn.softmax((float *)want.ptr, CHUNK, &n, 1, scale, &w[0], &w[1]);
    KT_CALL(t, t->k->attn.softmax((float *)got.ptr, CHUNK, &n, 1, scale, &g[0], &g[1]));
    kt_same_floats(t, "p", &got, &want);
    kt_same_floats(t, "m, l", &got_ml, &want_ml);
    for (size_t j = 0; kt_is_scalar(t) && j < CHUNK; j++) {
        const double x = j < n ? s[j] - s_max : -INFINITY, p = exp(x);
        /* the difference's rounding, an ulp of exp and its underflow */
        kt_near(t, "p", j, ((const float *)got.ptr)[j], p,
                j < n ? exp(x + fabs(x) * EPS) - p + 2.1 * EPS * p + 0x1p-149 : 0.0);
        sum += (double)((const float *)got.ptr)[j];
    }
    if (kt_is_scalar(t) && !n && !(g[0] == -INFINITY && g[1] == 0.0f))
        kt_fail(t, "m %g, l %g of no position", (double)g[0], (double)g[1]);
    if (kt_is_scalar(t) && n) {
        kt_near(t, "m", 0, g[0], s_max, 0.0);
        kt_near(t, "l", 0, g[1], sum, 8 * EPS * sum);
    }
    kt_buf_free(&got);
    kt_buf_free(&want);
    kt_buf_free(&got_ml);
    kt_buf_free(&want_ml);
}

/* Many rows at once are what each is alone. */
static void softmax_rows_case(kt *t, size_t n_row)
{
    kt_case(t, "%zu rows", n_row);
    const size_t lds = CHUNK + 16;
    kt_buf got = kt_buf_new(n_row * lds * 4, 64), want = kt_buf_new(n_row * lds * 4, 64);
    kt_buf got_ml = kt_buf_new(2 * n_row * 4, 4), want_ml = kt_buf_new(2 * n_row * 4, 4);
    kt_buf n_buf = kt_buf_new(n_row * sizeof(size_t), sizeof(size_t));
    size_t *const n = (size_t *)n_buf.ptr;
    float *const w = (float *)want_ml.ptr, *const g = (float *)got_ml.ptr;
    fill_normal(t, &want, 3);
    memcpy(got.ptr, want.ptr, got.bytes);
    for (size_t r = 0; r < n_row; r++) {
        n[r] = kt_index(t, 3) ? CHUNK : kt_index(t, CHUNK + 1);
        t->scalar->attn.softmax((float *)want.ptr + r * lds, lds, &n[r], 1, 0.25f, &w[r],
                                &w[n_row + r]);
    }
    kt_buf_seal(&n_buf);
    KT_CALL(t, t->k->attn.softmax((float *)got.ptr, lds, n, n_row, 0.25f, g, g + n_row));
    kt_same_floats(t, "p", &got, &want);
    kt_same_floats(t, "m, l", &got_ml, &want_ml);
    kt_buf_free(&n_buf);
    kt_buf_free(&got);
    kt_buf_free(&want);
    kt_buf_free(&got_ml);
    kt_buf_free(&want_ml);
}

static void check_softmax(kt *t)
{
    static const int exponents[] = { 0, 4, 8, 12, 60, -30 };
    if (!kt_begin(t, KT_SLOT(attn.softmax), "attn_softmax"))
        return;
    for (size_t n = 0; n <= CHUNK; n++)
        for (size_t i = 0; i < sizeof exponents / sizeof *exponents && !kt_gave_up(t); i++)
            softmax_case(t, n, exponents[i]);
    for (size_t n_row = 1; n_row <= 40 && !kt_gave_up(t); n_row++)
        softmax_rows_case(t, n_row);
    if (t->is_bench) {
        static _Alignas(64) float s[11 * ROWS][CHUNK];
        static size_t n[11 * ROWS];
        float m[11 * ROWS], l[11 * ROWS];
        for (size_t r = 0; r < 11 * ROWS; r++)
            n[r] = CHUNK;
        KT_BENCH(t, "132 x 128 positions", "G/s", 11 * ROWS * CHUNK,
                 t->k->attn.softmax(s[0], CHUNK, n, 11 * ROWS, 0.1f, m, l));
    }
}

/* n rows, the first of them m2 - m = diff apart; m = -infinity, l = 0 is the state before all. */
static void rescale_case(kt *t, size_t n, float diff)
{
    kt_case(t, "%zu rows, m2 - m = %g", n, (double)diff);
    kt_buf in = kt_buf_new(2 * n * 4, 4); /* m2, l2 */
    kt_buf got = kt_buf_new(4 * n * 4, 4), want = kt_buf_new(4 * n * 4, 4);
    float *const m2 = (float *)in.ptr, *const l2 = m2 + n;
    float *const w = (float *)want.ptr, *const g = (float *)got.ptr; /* m, l, f, g */
    for (size_t r = 0; r < n; r++) {
        const bool is_first = kt_index(t, 8) == 0;
        w[r] = is_first ? -INFINITY : kt_normal(t) * 3.0f;
        w[n + r] = is_first ? 0.0f : 1.0f + 100.0f * fabsf(kt_uniform(t));
        m2[r] = is_first ? kt_normal(t) : w[r] + (r == 0 ? diff : kt_normal(t) * 20.0f);
        l2[r] = 1.0f + fabsf(kt_uniform(t));
    }
    memset(w + 2 * n, 0xff, 2 * n * 4);
    memcpy(got.ptr, want.ptr, got.bytes);
    kt_buf_seal(&in);
    kt_buf old = kt_buf_new(2 * n * 4, 4);
    memcpy(old.ptr, want.ptr, old.bytes);
    t->scalar->attn.rescale(w, w + n, m2, l2, w + 2 * n, w + 3 * n, n);
    KT_CALL(t, t->k->attn.rescale(g, g + n, m2, l2, g + 2 * n, g + 3 * n, n));
    kt_same_floats(t, "m, l, f, g", &got, &want);
    for (size_t r = 0; kt_is_scalar(t) && r < n; r++) {
        const double m = (double)((float *)old.ptr)[r], l = (double)((float *)old.ptr)[n + r];
        const double m_new = fmax(m, (double)m2[r]), x = m - m_new, x2 = (double)m2[r] - m_new;
        const double f = exp(x), f2 = exp(x2);
        /* the difference's rounding, an ulp of exp and its underflow */
        const double f_err = isinf(x) ? 0.0 : exp(x + fabs(x) * EPS) - f + 2.1 * EPS * f + 0x1p-149;
        const double f2_err = exp(x2 + fabs(x2) * EPS) - f2 + 2.1 * EPS * f2 + 0x1p-149;
        kt_near(t, "m", r, g[r], m_new, 0.0);
        kt_near(t, "f", r, g[2 * n + r], f, f_err);
        kt_near(t, "g", r, g[3 * n + r], f2, f2_err);
        kt_near(t, "l", r, g[n + r], l * f + (double)l2[r] * f2,
                l * f_err + (double)l2[r] * f2_err + 3 * EPS * (l * f + (double)l2[r] * f2));
    }
    kt_buf_free(&in);
    kt_buf_free(&old);
    kt_buf_free(&got);
    kt_buf_free(&want);
}

static void merge_case(kt *t, size_t d0, size_t n_d, size_t n_row)
{
    kt_case(t, "d %zu to %zu, %zu rows", d0, d0 + n_d, n_row);
    const size_t dim = d0 + n_d, ldo2 = n_d + 3;
    kt_buf o2 = kt_buf_new(((n_row - 1) * ldo2 + n_d) * 4, 4), fg = kt_buf_new(2 * n_row * 4, 4);
    kt_buf got = kt_buf_new(n_row * dim * 4, 4), want = kt_buf_new(n_row * dim * 4, 4);
    float *o_got[ROWS], *o_want[ROWS];
    fill_normal(t, &o2, 2);
    fill_normal(t, &want, 2);
    for (size_t r = 0; r < n_row; r++) {
        o_got[r] = (float *)got.ptr + r * dim;
        o_want[r] = (float *)want.ptr + r * dim;
        ((float *)fg.ptr)[r] = kt_index(t, 4) ? fabsf(kt_uniform(t)) : 0.0f;
        ((float *)fg.ptr)[n_row + r] = kt_index(t, 4) ? fabsf(kt_uniform(t)) : 1.0f;
    }
    memcpy(got.ptr, want.ptr, got.bytes);
    const double old = (double)o_want[n_row - 1][d0];
    kt_buf_seal(&o2);
    kt_buf_seal(&fg);
    const float *const x = (const float *)o2.ptr, *const f = (const float *)fg.ptr;
    t->scalar->attn.merge(o_want, d0, n_d, x, ldo2, f, f + n_row, n_row);
    KT_CALL(t, t->k->attn.merge(o_got, d0, n_d, x, ldo2, f, f + n_row, n_row));
    kt_same_floats(t, "o", &got, &want);
    if (kt_is_scalar(t)) {
        const size_t r = n_row - 1;
        const double a = old * (double)f[r], b = (double)x[r * ldo2] * (double)f[n_row + r];
        kt_near(t, "o", r * dim + d0, o_got[r][d0], a + b,
                EPS * (fabs(b) + fabs(a + b) * 1.01) + 0x1p-149);
    }
    kt_buf_free(&o2);
    kt_buf_free(&fg);
    kt_buf_free(&got);
    kt_buf_free(&want);
}

static void finish_case(kt *t, size_t n)
{
    kt_case(t, "head_dim %zu", n);
    kt_buf got = kt_buf_new(n * 4, 4), want = kt_buf_new(n * 4, 4);
    fill_normal(t, &want, 3);
    memcpy(got.ptr, want.ptr, got.bytes);
    const float l = 1.0f + 50.0f * fabsf(kt_uniform(t));
    const double o = (double)*(const float *)want.ptr / (double)l;
    t->scalar->attn.finish((float *)want.ptr, l, n);
    KT_CALL(t, t->k->attn.finish((float *)got.ptr, l, n));
    kt_same_floats(t, "o", &got, &want);
    if (kt_is_scalar(t))
        kt_near(t, "o", 0, *(const float *)got.ptr, o, fabs(o) * EPS);
    kt_buf_free(&got);
    kt_buf_free(&want);
}

static void check_merge_finish(kt *t)
{
    static const float diffs[] = {
        0.0f, 1.0f, -2.5f, 40.0f, -40.0f, 90.0f, -104.0f, 1000.0f, -1e9f
    };
    if (kt_begin(t, KT_SLOT(attn.rescale), "attn_rescale"))
        for (size_t n = 1; n <= 34 && !kt_gave_up(t); n++)
            for (size_t i = 0; i < sizeof diffs / sizeof *diffs; i++)
                rescale_case(t, n == 34 ? 132 : n, diffs[i]);
    if (kt_begin(t, KT_SLOT(attn.merge), "attn_merge"))
        for (size_t n = 1; n <= 67 && !kt_gave_up(t); n++)
            for (size_t n_row = 1; n_row <= ROWS; n_row += 1 + kt_index(t, 3))
                merge_case(t, kt_index(t, 3) * LANES, n == 67 ? 256 : n, n_row);
    if (kt_begin(t, KT_SLOT(attn.finish), "attn_finish"))
        for (size_t n = 1; n <= 67 && !kt_gave_up(t); n++)
            finish_case(t, n == 67 ? 256 : n);
}

void check_attention(kt *t)
{
    for (int type = 0; type < PN_KV_COUNT; type++)
        check_store(t, (pn_kv_type)type);
    check_tile(t, PN_KV_F16);
    check_tile(t, PN_KV_F32);
    check_widen(t);
    check_score(t);
    check_value(t);
    check_softmax(t);
    check_merge_finish(t);
}
