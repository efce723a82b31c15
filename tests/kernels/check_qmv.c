/* qmv and gemm of every type: against the scalar level by bits, and the scalar level against exact
 * sums in double within a derived bound. */
#include "kernels/qmv_data.h"

#include "base/arith.h"
#include "base/mem.h"
#include "base/tensor_types.h"
#include "quant/unpack.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const size_t rows[] = { 0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 32, 33, 40 };
static const size_t cols[] = { 0, 1, 2, 3, 5, 7, 8, 9, 13, 16, 17, 33 };
static const size_t n_k[] = { 256, 512, 768, 2048 };
static const size_t n_b[] = { 32, 64, 96, 224, 256, 288 };
static const size_t n_f[] = { 1, 7, 31, 32, 33, 64, 100, 256, 288 };
#define COUNT(a) (sizeof(a) / sizeof *(a))

enum {
    Y_GAP = 3 /* floats between the columns' results: nobody may write there */
};

typedef struct shape {
    uint32_t type;
    pn_act_kind act;
    w_family wf;
    x_family xf;
    size_t n_row, n_col, n;
    bool is_gemm;
} shape;

/* --- the outside reference -------------------------------------------------------------------- */

/* The sum over one block in double, and the sum of the magnitudes of all that enters it. */
typedef struct exact {
    double sum, mag;
} exact;

static void add_term(exact *e, double scale, double q, double offset, double x)
{
    e->sum += (scale * q + offset) * x;
    e->mag += (fabs(scale * q) + fabs(offset)) * fabs(x);
}

static void exact_k(exact *e, const pn_unpacked_k *u, const pn_q8k *a)
{
    for (size_t i = 0; i < PN_QK; i++)
        add_term(e, (double)u->d * u->sc[i / 16], u->q[i], -((double)u->dmin * u->m[i / 16]),
                 (double)a->d * a->s[i / 32] * a->q[i]);
}

static void exact_b(exact *e, const pn_unpacked_b *u, const pn_q8s *a, size_t j)
{
    for (size_t i = 0; i < PN_QB; i++)
        add_term(e, (double)u->d, u->q[i], (double)u->m,
                 (double)a->d * a->s[2 * j + i / 16] * a->q[PN_QB * j + i]);
}

static exact exact_dot(const shape *s, const uint8_t *row, const void *x)
{
    exact e = { 0.0, 0.0 };
    const pn_tensor_type *const info = pn_tensor_type_get(s->type);
    for (size_t ib = 0; ib < s->n / info->block_n; ib++) {
        const uint8_t *const block = row + ib * info->block_bytes;
        if (s->act == PN_ACT_Q8K) {
            pn_unpacked_k u;
            pn_unpack_k_of(s->type)(block, &u);
            exact_k(&e, &u, (const pn_q8k *)x + ib);
        } else if (s->act == PN_ACT_Q8S) {
            pn_unpacked_b u;
            pn_unpack_b_of(s->type)(block, &u);
            exact_b(&e, &u, (const pn_q8s *)x + ib / PN_Q8B_GROUP, ib % PN_Q8B_GROUP);
        } else {
            float w;
            pn_type_get(s->type)->dequant(block, &w, 1);
            add_term(&e, (double)w, 1.0, 0.0, (double)((const float *)x)[ib]);
        }
    }
    return e;
}

/* Worst error of a chain of float operations whose terms have magnitudes that sum to mag: each
 * term passes through at most L roundings of the chain and those before or after it, each 2^-24
 * relative, and 1 more covers the products of two such errors.
 *   256-blocks: chain n/256; before it int -> float, dmin * imin, fma: 3
 *   32-blocks:  chain ceil(n/256); before it int -> float and a chain of up to 16: 17
 *   floats:     chain ceil(n/32); after it 5 additions
 * A product of two scales may be subnormal, off by 2^-150 absolute, times |isum| < 2^20. */
static double bound(const shape *s, double mag)
{
    const size_t roundings = s->act == PN_ACT_Q8K   ? s->n / 256 + 3
                             : s->act == PN_ACT_Q8S ? (s->n + 255) / 256 + 17
                                                    : (s->n + 31) / 32 + 5;
    return (double)(roundings + 1) * 0x1p-24 * mag + (double)s->n * 0x1p-130;
}

static void check_exact(kt *t, const shape *s, const uint8_t *w, size_t row_bytes,
                        const void *const *x, float *const *y)
{
    for (size_t c = 0; c < s->n_col; c++)
        for (size_t r = 0; r < s->n_row; r++) {
            const exact e = exact_dot(s, w + r * row_bytes, x[c]);
            if (e.mag < 1e37) /* else float overflows where double does not */
                kt_near(t, "y", r, y[c][r], e.sum, bound(s, e.mag));
        }
}

/* --- one case --------------------------------------------------------------------------------- */

/* n_col columns of activations, by the scalar level. */
static kt_buf make_columns(kt *t, const shape *s)
{
    const size_t bytes = pn_act_bytes(s->act, s->n);
    kt_buf b = kt_buf_new(s->n_col * bytes, s->act == PN_ACT_F32 ? 4 : 64);
    kt_buf f = kt_buf_new(s->n * sizeof(float), 4);
    for (size_t c = 0; c < s->n_col; c++) {
        make_floats(t, s->xf, (float *)f.ptr, s->n);
        uint8_t *const dst = b.ptr + c * bytes;
        if (s->act == PN_ACT_Q8K)
            t->scalar->quantize_q8k(dst, (const float *)f.ptr, s->n);
        else if (s->act == PN_ACT_Q8S)
            t->scalar->quantize_q8s(dst, (const float *)f.ptr, s->n);
        else
            memcpy(dst, f.ptr, bytes);
    }
    kt_buf_free(&f);
    kt_buf_seal(&b);
    return b;
}

/* A result that must show that something was not finite does. */
static void check_bad_shows(kt *t, const shape *s, float *const *y)
{
    for (size_t c = 0; c < s->n_col; c++)
        for (size_t r = 0; r < s->n_row; r++)
            if ((pn_asu(y[c][r]) & 0x7f800000u) != 0x7f800000u)
                kt_fail(t, "y[%zu][%zu] is %g though an activation is not finite", c, r,
                        (double)y[c][r]);
}

static void run(const kt *t, const pn_kernels *k, const shape *s, const kt_buf *w, size_t row_bytes,
                const void *const *x, float *const *y, void *scratch)
{
    (void)t;
    if (s->is_gemm)
        k->gemm[s->type](w->ptr, row_bytes, s->n_row, x, y, s->n_col, s->n, scratch);
    else
        k->qmv[s->type](w->ptr, row_bytes, s->n_row, x[0], s->n, y[0]);
}

static kt_buf make_scratch(const pn_kernels *k, size_t n)
{
    return kt_buf_new(pn_round_up(k->gemm_scratch_bytes(n), 64), 64);
}

enum {
    MAX_COL = 512
};

static void check_case(kt *t, const shape *s)
{
    kt_case(t, "n_row %zu, n_col %zu, n %zu, weights %s, activations %s", s->n_row, s->n_col, s->n,
            w_family_names[s->wf], x_family_names[s->xf]);
    const pn_tensor_type *const info = pn_tensor_type_get(s->type);
    const size_t n_block = s->n / info->block_n, packed = n_block * info->block_bytes;
    /* Mostly rows without gaps; the stride is what counts, at any alignment. */
    const size_t row_bytes = packed + (kt_index(t, 4) ? 0 : 1 + kt_index(t, 9));
    kt_buf w = kt_buf_new(s->n_row ? (s->n_row - 1) * row_bytes + packed : 0, 1);
    for (size_t r = 0; r < s->n_row; r++)
        make_blocks(t, s->type, s->wf, w.ptr + r * row_bytes, n_block);
    kt_buf_seal(&w);
    kt_buf x = make_columns(t, s);
    kt_buf scratch = make_scratch(t->k, s->n), ref_scratch = make_scratch(t->scalar, s->n);
    const size_t n_y = s->n_col ? s->n_col * (s->n_row + Y_GAP) - Y_GAP : 0;
    kt_buf got = kt_buf_new(n_y * sizeof(float), 4), want = kt_buf_new(n_y * sizeof(float), 4);
    const void *xs[MAX_COL] = { NULL };
    float *y_got[MAX_COL], *y_want[MAX_COL];
    for (size_t c = 0; c < s->n_col; c++) {
        xs[c] = x.ptr + c * pn_act_bytes(s->act, s->n);
        y_got[c] = (float *)got.ptr + c * (s->n_row + Y_GAP);
        y_want[c] = (float *)want.ptr + c * (s->n_row + Y_GAP);
    }
    run(t, t->scalar, s, &w, row_bytes, xs, y_want, ref_scratch.ptr);
    KT_CALL(t, run(t, t->k, s, &w, row_bytes, xs, y_got, scratch.ptr));
    kt_same_floats(t, "y", &got, &want);
    if (s->is_gemm)
        kt_same_outside(t, "scratch", &scratch);
    if (s->xf == X_BAD)
        check_bad_shows(t, s, y_got);
    else if (kt_is_scalar(t) && s->wf != W_BITS)
        check_exact(t, s, w.ptr, row_bytes, xs, y_got);
    kt_buf_free(&w);
    kt_buf_free(&x);
    kt_buf_free(&scratch);
    kt_buf_free(&ref_scratch);
    kt_buf_free(&got);
    kt_buf_free(&want);
}

/* --- all cases of a slot ---------------------------------------------------------------------- */

typedef struct lengths {
    const size_t *n;
    size_t count;
} lengths;

static lengths lengths_of(pn_act_kind act)
{
    return act == PN_ACT_Q8K   ? (lengths){ n_k, COUNT(n_k) }
           : act == PN_ACT_Q8S ? (lengths){ n_b, COUNT(n_b) }
                               : (lengths){ n_f, COUNT(n_f) };
}

/* A case with everything drawn at random; callers then fix what they sweep. */
static shape draw(kt *t, const shape *of)
{
    const lengths l = lengths_of(of->act);
    shape s = *of;
    s.wf = (w_family)kt_index(t, W_FAMILY_COUNT);
    s.xf = (x_family)kt_index(t, X_FAMILY_COUNT);
    s.n_row = rows[kt_index(t, COUNT(rows))];
    s.n_col = s.is_gemm ? cols[kt_index(t, COUNT(cols))] : 1;
    s.n = l.n[kt_index(t, l.count)];
    return s;
}

static void check_all(kt *t, const shape *of)
{
    const lengths l = lengths_of(of->act);
    const size_t n_cols = of->is_gemm ? COUNT(cols) : 1;
    shape s;
    for (size_t f = 0; f < W_FAMILY_COUNT * X_FAMILY_COUNT && !kt_gave_up(t); f++) {
        s = draw(t, of);
        s.wf = (w_family)(f / X_FAMILY_COUNT);
        s.xf = (x_family)(f % X_FAMILY_COUNT);
        s.n_row = s.n_row ? s.n_row : 6;
        s.n_col = s.n_col ? s.n_col : 4;
        check_case(t, &s);
    }
    for (size_t i = 0; i < COUNT(rows) && !kt_gave_up(t); i++) {
        s = draw(t, of);
        s.n_row = rows[i];
        check_case(t, &s);
    }
    for (size_t i = 0; i < n_cols && !kt_gave_up(t); i++) {
        s = draw(t, of);
        s.n_col = of->is_gemm ? cols[i] : 1;
        check_case(t, &s);
    }
    for (size_t i = 0; i < l.count && !kt_gave_up(t); i++) {
        s = draw(t, of);
        s.n = l.n[i];
        check_case(t, &s);
    }
    for (int i = 0; i < 30 && !kt_gave_up(t); i++) {
        s = draw(t, of);
        check_case(t, &s);
    }
    for (size_t i = 0; t->is_soak && i < COUNT(rows) * n_cols * l.count && !kt_gave_up(t); i++) {
        s = draw(t, of);
        s.n_row = rows[i % COUNT(rows)];
        s.n_col = of->is_gemm ? cols[i / COUNT(rows) % n_cols] : 1;
        s.n = l.n[i / COUNT(rows) / n_cols];
        check_case(t, &s);
    }
}

/* Columns beyond any part that a level passes by at a time, and more rows than any tile holds. */
static void check_large(kt *t, const shape *of)
{
    shape s = *of;
    s.wf = W_TYPICAL;
    s.xf = X_SPREAD;
    s.n = 256;
    s.n_row = 129;
    s.n_col = of->is_gemm ? 300 : 1;
    check_case(t, &s);
}

/* --- timing ----------------------------------------------------------------------------------- */

/* qmv: weights read from memory, by running through 64 MB of matrices, and from the cache.
 * gemm: multiply-adds, weights in the cache. */
static void bench(kt *t, const shape *of, size_t n_row)
{
    shape s = *of;
    s.n = 2048;
    s.n_row = n_row;
    size_t row_bytes = 0;
    pn_tensor_type_row_bytes(s.type, s.n, &row_bytes);
    const size_t bytes = row_bytes * n_row, n_mat = s.is_gemm ? 1 : (64u << 20) / bytes;
    kt_buf w = kt_buf_new(bytes * n_mat, 64);
    make_blocks(t, s.type, W_TYPICAL, w.ptr,
                bytes * n_mat / pn_tensor_type_get(s.type)->block_bytes);
    char name[64];
    static const size_t n_cols[] = { 8, 56, 168 };
    for (size_t i = 0; i < (s.is_gemm ? COUNT(n_cols) : 2); i++) {
        s.n_col = s.is_gemm ? n_cols[i] : 1;
        kt_buf x = make_columns(t, &s), scratch = make_scratch(t->k, s.n);
        kt_buf y = kt_buf_new(s.n_col * n_row * sizeof(float), 64);
        const void *xs[MAX_COL];
        float *ys[MAX_COL];
        for (size_t c = 0; c < s.n_col; c++) {
            xs[c] = x.ptr + c * pn_act_bytes(s.act, s.n);
            ys[c] = (float *)y.ptr + c * n_row;
        }
        kt_buf wi = w;
        size_t im = 0;
        if (s.is_gemm) {
            snprintf(name, sizeof name, "%zux%zu x %zu", n_row, s.n, s.n_col);
            KT_BENCH(t, name, "GMAC/s", (double)n_row * (double)s.n * (double)s.n_col,
                     run(t, t->k, &s, &wi, row_bytes, xs, ys, scratch.ptr));
        } else {
            snprintf(name, sizeof name, "%zux%zu %s", n_row, s.n, i ? "cached" : "memory");
            KT_BENCH(t, name, "GB/s", bytes,
                     (wi.ptr = w.ptr + (i ? 0 : im++ % n_mat * bytes),
                      run(t, t->k, &s, &wi, row_bytes, xs, ys, scratch.ptr)));
        }
        kt_buf_free(&x);
        kt_buf_free(&y);
        kt_buf_free(&scratch);
    }
    kt_buf_free(&w);
}

static void check_slot(kt *t, const shape *s)
{
    check_all(t, s);
    check_large(t, s);
    if (t->is_bench && !t->n_fail_slot) {
        bench(t, s, 512);
        bench(t, s, 2048);
    }
}

/* The scratch size never shrinks as n grows, so that a caller may plan for its largest n. */
static void check_scratch(kt *t)
{
    if (!kt_begin(t, KT_SLOT(gemm_scratch_bytes), "gemm_scratch_bytes"))
        return;
    kt_case(t, "n 32..8192");
    for (size_t n = 32; n < 8192; n += 32)
        if (t->k->gemm_scratch_bytes(n) > t->k->gemm_scratch_bytes(n + 32))
            kt_fail(t, "%zu bytes for n = %zu, fewer for %zu", t->k->gemm_scratch_bytes(n), n,
                    n + 32);
}

void check_qmv(kt *t)
{
    check_scratch(t);
    for (uint32_t type = 0; type < PN_TYPE_COUNT; type++) {
        const pn_type_info *const info = pn_type_get(type);
        if (!info)
            continue;
        const char *const name = pn_tensor_type_name(type);
        shape s = { .type = type, .act = info->act };
        if (kt_begin(t, KT_SLOT(qmv[0]) + type * sizeof t->k->qmv[0], "qmv %s", name))
            check_slot(t, &s);
        s.is_gemm = true;
        if (kt_begin(t, KT_SLOT(gemm[0]) + type * sizeof t->k->gemm[0], "gemm %s", name))
            check_slot(t, &s);
    }
}
