/* Matrix times one vector or up to 8: decode. docs/NUMERICS.md, "Matrix products".
 *
 * A lane has a unit of 64 weights, four lanes a group of 256 (a superblock, or 8 blocks of 32), a
 * warp the up to 8 groups of a row side by side, or fewer of several rows (pn_rows_at_once): the
 * integer sums meet in the four lanes, the float chain then runs over the groups in their order.
 *
 * pn_k_qmv: the vector's units stay in registers from row to row where a row has at most 8 groups.
 * Of a lane's rows four are taken at a time, whose weights are on their way together: their sums
 * meet so that each of the four lanes of a group has those of one row. pn_k_qmv_nx: the weights are
 * opened once and stay in registers over the columns; the chains run in as many lanes as there are
 * (row, column) pairs, over groups' results in shared memory.
 *
 * Both: the block that ends last may make the norm or the routing of the results (pn_tail).
 *
 * Bytes a row: those of the file's, nearly. Bound: memory; 60 to 90 instructions a unit. */
#ifndef PN_CUDA_DEVICE_QMV_CUH
#define PN_CUDA_DEVICE_QMV_CUH

#include "cuda/device/dot.cuh"
#include "cuda/device/norm.cuh"
#include "cuda/device/router.cuh"

_Static_assert(sizeof(pn_route_smem) <= PN_TAIL_SMEM, "what pn_matmul_dims asks for");

/* Registers for as many blocks as pn_matmul_dims counts on. Expanded activations need more of them,
 * and on 12.0 the compiler is two short. */
#define PN_QMV_BOUNDS                                                          \
    __launch_bounds__(32 * PN_QMV_WARPS, PN_ARCH < 610     ? 1                 \
                                         : PN_ARCH >= 1200 ? PN_QMV_BLOCKS - 1 \
                                                           : PN_QMV_BLOCKS)

/* Where results go: y[c * y_stride + row - row0]; added to r[c * r_stride + row] if r is there. */
struct pn_out {
    float *y, *r;
    uint32_t y_stride, r_stride, row0;
};

/* The residual as it is before; it can be fetched long before the product is there. */
PN_FN float pn_before(const pn_out &o, uint32_t row, uint32_t c)
{
    return o.r ? o.r[(size_t)c * o.r_stride + row] : 0.0f;
}
PN_FN void pn_put_onto(const pn_out &o, uint32_t row, uint32_t c, float v, float before)
{
    if (o.y)
        o.y[(size_t)c * o.y_stride + row - o.row0] = v;
    if (o.r)
        o.r[(size_t)c * o.r_stride + row] = before + v;
}
PN_FN void pn_put(const pn_out &o, uint32_t row, uint32_t c, float v)
{
    pn_put_onto(o, row, c, v, pn_before(o, row, c));
}

/* A lane's place: which of the rows and of the groups side by side, which 64 of the group. */
struct pn_lane {
    int lane, r, group, row, n_side; /* n_side: groups of a row side by side */
};

PN_FN pn_lane pn_lane_of(uint32_t n)
{
    pn_lane l;
    l.lane = threadIdx.x % 32;
    l.r = l.lane % 4;
    l.n_side = (int)pn_groups_at_once(n);
    l.group = l.lane / 4 & (l.n_side - 1);
    l.row = l.lane / 4 / l.n_side;
    return l;
}

/* --- one vector ------------------------------------------------------------------------------- */

enum {
    PN_QUAD = 4 /* a lane's rows whose sums meet at a time: each in one of the group's four lanes */
};

/* Of N numbers that four lanes each have, lane r gets the whole sums of numbers r, 4 + r, ... */
template <int N> PN_FN void pn_scatter_sums(const int v[N], int r, int sum[N / 4])
{
    int half[N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
        const int keep = r & 1 ? v[2 * i + 1] : v[2 * i], give = r & 1 ? v[2 * i] : v[2 * i + 1];
        half[i] = keep + __shfl_xor_sync(PN_FULL, give, 1);
    }
#pragma unroll
    for (int i = 0; i < N / 4; i++) {
        const int keep = r & 2 ? half[2 * i + 1] : half[2 * i];
        const int give = r & 2 ? half[2 * i] : half[2 * i + 1];
        sum[i] = keep + __shfl_xor_sync(PN_FULL, give, 2);
    }
}

/* The chain acc of the lane's row through the groups side by side, ascending, of which n_left are
 * there; t: of the lane's group and row, d: of the group's activations. */
PN_FN float pn_chain_groups(float acc, float t, float d, const pn_lane &l, int n_left)
{
    const int n = n_left < l.n_side ? n_left : l.n_side;
    const int first = (l.lane & ~(4 * l.n_side - 1)) + l.r;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const float di = __shfl_sync(PN_FULL, d, first ^ 4 * i);
        const float ti = __shfl_sync(PN_FULL, t, first ^ 4 * i);
        acc = i < n ? pn_fma(di, ti, acc) : acc;
    }
    return acc;
}

/* Blocks of 32: a group's t, in the last of its four lanes. */
template <class W>
PN_FN float pn_group_b(const pn_raw<W> &raw, const pn_act64 &act, const pn_expanded &e, int r)
{
    pn_opened w;
    int isum[2];
    pn_open_scales<W>(raw, w);
    pn_dot_raw_b<W>(raw, act, e, isum);
    float t = pn_chain_b<W>(w, act, isum, 0.0f);
#pragma unroll
    for (int i = 1; i < 4; i++) { /* the chain goes from lane to lane */
        const float before = __shfl_up_sync(PN_FULL, t, 1);
        if (r == i)
            t = pn_chain_b<W>(w, act, isum, before);
    }
    return t;
}

/* A quad of a warp's rows: those of its first lanes, `rows` apart, as far as below row1. */
struct pn_quad {
    uint32_t row, row1, rows;
};
PN_FN bool pn_quad_has(const pn_quad &q, uint32_t k)
{
    return k == 0 || q.row + k * q.rows < q.row1;
}
/* Of rows side by side beyond the last that one is read again, for nobody. */
PN_FN uint32_t pn_quad_row(const pn_quad &q, uint32_t k, const pn_lane &l)
{
    const uint32_t row = q.row + k * q.rows + (uint32_t)l.row;
    return row < q.row1 ? row : q.row1 - 1;
}

/* Unit u of rows k0 .. k0 + N - 1 of the quad; blocks of 32: with d, which is 0 past the end. */
template <class W, int N>
PN_FN void pn_load_rows(pn_raw<W> raw[N], const pn_matrix &m, const pn_quad &q, uint32_t k0,
                        const pn_lane &l, uint32_t u)
{
    const uint32_t at = u < m.n_unit ? u : m.n_unit - 1;
#pragma unroll
    for (uint32_t k = 0; k < N; k++) {
        if (!pn_quad_has(q, k0 + k))
            continue;
        const uint32_t row = pn_quad_row(q, k0 + k, l);
        pn_load_codes<W>(raw[k], m, row, at);
        if (!W::is_k)
            raw[k].d = u < m.n_unit ? pn_load_d<W>(m, row, at) : make_uint2(0, 0);
    }
}

/* What the four lanes of a group have of a quad. */
struct pn_quad_sums {
    int isum[PN_QUAD], imin[PN_QUAD]; /* superblock types: the lane's shares */
    float t;                          /* blocks of 32: the lane's row's */
};

template <class W, int N>
PN_FN void pn_sum_rows(pn_quad_sums &s, const pn_raw<W> raw[N], const pn_act64 &act,
                       const pn_expanded &e, const pn_quad &q, uint32_t k0, const pn_lane &l)
{
#pragma unroll
    for (uint32_t k = k0; k < k0 + N; k++) {
        if (!pn_quad_has(q, k))
            continue;
        if (W::is_k) {
            pn_dot_raw_k<W>(raw[k - k0], act, e, &s.isum[k], &s.imin[k]);
        } else {
            const float t = pn_group_b<W>(raw[k - k0], act, e, l.r);
            const float whole = __shfl_sync(PN_FULL, t, l.lane | 3);
            s.t = (uint32_t)l.r == k ? whole : s.t;
        }
    }
}

/* Rows [row0, row1) of matrix i_mat times the vector x, by one warp. */
template <class W, bool IS_ANY>
PN_FN void pn_rows_quant_1(const pn_dmat &mat, uint32_t i_mat, uint32_t row0, uint32_t row1,
                           const void *x, const pn_out &out)
{
    /* rows that are on their way at a time, for which registers are left */
    constexpr int N = W::n_bit > 4 || PN_ARCH < 610 ? 2 : (int)PN_QUAD;
    const pn_lane l = pn_lane_of(mat.n);
    const pn_matrix m = pn_open_matrix<W>(mat, i_mat);
    const uint32_t n_side = (uint32_t)l.n_side, n_group = (mat.n + 255) / 256;
    pn_quad q = { row0, row1, 8 / n_side };
    pn_act64 act;
    pn_expanded e;
    float d = 0.0f;
#pragma unroll 1
    for (; q.row < row1; q.row += PN_QUAD * q.rows) {
        const uint32_t own = q.row + (uint32_t)l.r * q.rows + (uint32_t)l.row;
        const bool is_out = l.group == 0 && own < row1;
        const float before = is_out ? pn_before(out, own, 0) : 0.0f;
        float acc = 0.0f;
#pragma unroll 1
        for (uint32_t g0 = 0; g0 < n_group; g0 += n_side) {
            /* lanes past the end have a group that is there, which no chain takes */
            const uint32_t g = g0 + (uint32_t)l.group < n_group ? g0 + (uint32_t)l.group : 0;
            const uint32_t u = 4 * g + (uint32_t)l.r;
            pn_raw<W> raw[N];
            uint2 own_d = make_uint2(0, 0);
            pn_quad_sums s = { { 0, 0, 0, 0 }, { 0, 0, 0, 0 }, 0.0f };
            pn_load_rows<W, N>(raw, m, q, 0, l, u);
            if (W::is_k)
                own_d = pn_load_d<W>(m, pn_quad_row(q, (uint32_t)l.r, l), u);
            if (n_group > n_side || q.row == row0) {
                const uint8_t *const group = pn_act_group<W>(x, g);
                d = pn_act_d<W, IS_ANY>(group);
                pn_load_act<W, IS_ANY>(act, group, l.r);
                pn_expand(e, act.q);
            }
            pn_sum_rows<W, N>(s, raw, act, e, q, 0, l);
            if (N < (int)PN_QUAD) {
                pn_load_rows<W, N>(raw, m, q, N, l, u);
                pn_sum_rows<W, N>(s, raw, act, e, q, N, l);
            }
            if (W::is_k) {
                int isum, imin = 0;
                pn_scatter_sums<PN_QUAD>(s.isum, l.r, &isum);
                if (W::has_min)
                    pn_scatter_sums<PN_QUAD>(s.imin, l.r, &imin);
                s.t = pn_superblock<W>(own_d.x, isum, imin);
            }
            acc = pn_chain_groups(acc, s.t, d, l, (int)(n_group - g0));
        }
        if (is_out)
            pn_put_onto(out, own, 0, acc, before);
    }
}

/* Float types: 32 chains, a lane each, then the butterfly. */
template <int TYPE> struct pn_floats {
    enum {
        n = TYPE == PN_TYPE_F32 ? 4 : 8 /* of 16 bytes */
    };
    float v[n];
};

template <int TYPE> PN_FN void pn_open_floats(pn_floats<TYPE> &f, const uint4 &raw)
{
    const uint32_t w[4] = { raw.x, raw.y, raw.z, raw.w };
#pragma unroll
    for (int i = 0; i < pn_floats<TYPE>::n; i++) {
        if (TYPE == PN_TYPE_F32)
            f.v[i] = pn_asf(w[i % 4]);
        else if (TYPE == PN_TYPE_F16)
            f.v[i] = i % 2 ? pn_half_hi(w[i / 2]) : pn_half_lo(w[i / 2]);
        else
            f.v[i] = pn_asf(i % 2 ? w[i / 2] & 0xffff0000u : w[i / 2] << 16);
    }
}

/* A chunk of a row, whose first value for this lane is number i, times the vectors of n values.
 * IS_WHOLE: all of its values are in the row. */
template <int TYPE, bool IS_ANY, int N_COL, bool IS_WHOLE>
PN_FN void pn_chunk_float(float acc[N_COL], const uint4 &raw, const float *x, uint32_t n,
                          uint32_t i, uint32_t n_col)
{
    pn_floats<TYPE> f;
    pn_open_floats<TYPE>(f, raw);
#pragma unroll
    for (uint32_t c = 0; c < N_COL; c++)
        if (c < n_col) {
#pragma unroll
            for (uint32_t j = 0; j < pn_floats<TYPE>::n; j++)
                if (IS_WHOLE || i + 32 * j < n)
                    acc[c] =
                        pn_fma(f.v[j], pn_load<IS_ANY>(x + (size_t)c * n + i + 32 * j), acc[c]);
        }
}

template <int TYPE, bool IS_ANY, int N_COL>
PN_FN void pn_rows_float(const pn_dmat &mat, uint32_t i_mat, uint32_t row0, uint32_t row1,
                         const float *x, uint32_t n_col, const pn_out &out)
{
    enum {
        N_AHEAD = N_COL == 1 ? 8 : 2 /* chunks that are on their way at a time */
    };
    const uint32_t e = pn_floats<TYPE>::n, n_chunk = (mat.n + 32 * e - 1) / (32 * e);
    const uint32_t lane = threadIdx.x % 32;
    const uint4 *const m = (const uint4 *)((const uint8_t *)mat.w + i_mat * mat.mat_bytes) + lane;
#pragma unroll 1
    for (uint32_t row = row0; row < row1; row++) {
        const uint4 *const w = m + (size_t)row * n_chunk * 32;
        float acc[N_COL];
#pragma unroll
        for (uint32_t c = 0; c < N_COL; c++)
            acc[c] = 0.0f;
        uint32_t ic = 0;
#pragma unroll 1
        for (; 32 * e * (ic + N_AHEAD) <= mat.n; ic += N_AHEAD) {
            uint4 raw[N_AHEAD];
#pragma unroll
            for (uint32_t k = 0; k < N_AHEAD; k++)
                raw[k] = pn_ldg(w + (ic + k) * 32);
#pragma unroll
            for (uint32_t k = 0; k < N_AHEAD; k++)
                pn_chunk_float<TYPE, IS_ANY, N_COL, true>(acc, raw[k], x, mat.n,
                                                          32 * e * (ic + k) + lane, n_col);
        }
#pragma unroll 1
        for (; ic < n_chunk; ic++)
            pn_chunk_float<TYPE, IS_ANY, N_COL, false>(acc, pn_ldg(w + ic * 32), x, mat.n,
                                                       32 * e * ic + lane, n_col);
#pragma unroll
        for (uint32_t c = 0; c < N_COL; c++)
            if (c < n_col) {
                const float y = pn_warp_tree(acc[c]);
                if (lane == 0)
                    pn_put(out, row, c, y);
            }
    }
}

/* The vector in the form that a type takes. */
PN_FN const void *pn_act_of(const pn_dacts &x, uint32_t type, uint32_t n, uint32_t iv)
{
    const pn_unit_layout u = pn_unit_layout_of(type);
    const size_t n_group = (n + 255) / 256;
    if (u.code_bytes == 0)
        return x.f32 + (size_t)iv * n;
    if (u.units_per_d == 4)
        return x.q8k + iv * n_group;
    return x.q8s + iv * n_group;
}

/* Rows [row0, row1) of matrix i_mat of any type times x, in the type's form, by one warp.
 * IS_ANY: x may lie in shared memory. */
template <bool IS_ANY>
PN_FN void pn_rows_1(const pn_dmat &mat, uint32_t i_mat, uint32_t row0, uint32_t row1,
                     const void *x, const pn_out &out)
{
    switch (mat.type) {
#define PN_CASE(id, ...)                                                       \
    case id:                                                                   \
        pn_rows_quant_1<pn_wtype<id>, IS_ANY>(mat, i_mat, row0, row1, x, out); \
        break;
        PN_UNIT_LAYOUTS(PN_CASE)
#undef PN_CASE
    case PN_TYPE_F32:
        pn_rows_float<PN_TYPE_F32, IS_ANY, 1>(mat, i_mat, row0, row1, (const float *)x, 1, out);
        break;
    case PN_TYPE_F16:
        pn_rows_float<PN_TYPE_F16, IS_ANY, 1>(mat, i_mat, row0, row1, (const float *)x, 1, out);
        break;
    case PN_TYPE_BF16:
        pn_rows_float<PN_TYPE_BF16, IS_ANY, 1>(mat, i_mat, row0, row1, (const float *)x, 1, out);
        break;
    default:
        break;
    }
}

/* --- ahead of time ---------------------------------------------------------------------------- */

/* Rows [row0, row1) of matrix i_mat on their way to L2; by a warp. */
PN_FN void pn_prefetch_rows(const pn_dmat &m, uint32_t i_mat, uint32_t row0, uint32_t row1)
{
    const pn_unit_layout u = pn_unit_layout_of(m.type);
    const uint8_t *const w = (const uint8_t *)m.w + i_mat * m.mat_bytes;
    const uint32_t n_row = row1 - row0, lane = threadIdx.x % 32;
    const pn_planes p = pn_planes_of(m.type, m.n, m.n_row);
    if (u.code_bytes == 0) { /* floats, in chunks of 512 bytes */
        pn_prefetch_bytes(w + (uint64_t)row0 * p.n_unit * 512, n_row * p.n_unit * 512, lane, 32);
        return;
    }
    const uint64_t at = (uint64_t)row0 * p.n_unit;
    const uint32_t n = n_row * p.n_unit, d_bytes = p.n_unit / u.units_per_d * u.d_bytes;
    pn_prefetch_bytes(w + at * u.code_bytes, n * u.code_bytes, lane, 32);
    pn_prefetch_bytes(w + p.high + at * u.high_bytes, n * u.high_bytes, lane, 32);
    pn_prefetch_bytes(w + p.scales + at * u.scale_bytes, n * u.scale_bytes, lane, 32);
    pn_prefetch_bytes(w + p.d + (uint64_t)row0 * d_bytes, n_row * d_bytes, lane, 32);
}

/* Before pn_grid_wait, of blocks that may have begun early: while they wait it costs nothing. */
PN_FN void pn_prefetch_early(const pn_dmat &m, uint32_t row0, uint32_t row1)
{
    if (PN_HAS_GRID_WAIT)
        pn_prefetch_rows(m, 0, row0, row1);
}

/* --- up to 8 vectors -------------------------------------------------------------------------- */

/* Results of the groups that a warp has side by side, for the chains: [group][column]. */
struct pn_group_results {
    float t[8][PN_QMV_COLS];
};

/* The groups' t of all columns into shared memory. xg: column 0's activations of the lane's group;
 * stride: bytes from column to column. */
template <class W>
PN_FN void pn_groups_nx(const pn_raw<W> &raw, const uint8_t *xg, size_t stride, uint32_t n_col,
                        const pn_lane &l, pn_group_results *res)
{
    pn_opened w;
    pn_expanded e;
    int isum[PN_QMV_COLS], imin[PN_QMV_COLS];
    float *const t = res->t[l.lane / 4];
    pn_open<W>(raw, w);
    pn_expand(e, w.q);
#pragma unroll
    for (uint32_t c = 0; c < PN_QMV_COLS; c++) {
        isum[c] = imin[c] = 0;
        if (c >= n_col)
            continue;
        pn_act64 act;
        pn_load_act<W, false>(act, xg + c * stride, l.r);
        if (W::is_k) {
            pn_dot_k<W>(w, act, e, act.q, &isum[c], &imin[c]);
            continue;
        }
        int dot[2];
        pn_dot_b(act, e, act.q, dot);
        float tc = pn_chain_b<W>(w, act, dot, 0.0f);
#pragma unroll
        for (int i = 1; i < 4; i++) { /* the chain goes from lane to lane */
            const float before = __shfl_up_sync(PN_FULL, tc, 1);
            if (l.r == i)
                tc = pn_chain_b<W>(w, act, dot, before);
        }
        if (l.r == 3)
            t[c] = tc;
    }
    if (W::is_k) {
        int s[2], m[2] = { 0, 0 };
        pn_scatter_sums<PN_QMV_COLS>(isum, l.r, s);
        if (W::has_min)
            pn_scatter_sums<PN_QMV_COLS>(imin, l.r, m);
#pragma unroll
        for (int i = 0; i < 2; i++)
            t[4 * i + l.r] = pn_superblock<W>(raw.d.x, s[i], m[i]);
    }
}

/* Takes rows row0 .. row1 - 1 of a matrix in steps of those side by side, each in n_pass passes of
 * the groups side by side. */
struct pn_walk {
    uint32_t row, row1, pass, n_pass, rows, n_group;
};

template <class W>
PN_FN void pn_load_at(pn_raw<W> &raw, const pn_matrix &m, const pn_walk &w, const pn_lane &l)
{
    const uint32_t row = w.row + (uint32_t)l.row;
    const uint32_t u = (w.pass * (uint32_t)l.n_side + (uint32_t)l.group) * 4 + (uint32_t)l.r;
    if (row < w.row1 && u < m.n_unit)
        pn_load_unit<W>(raw, m, row, u);
    else
        pn_raw_zero<W>(raw);
}

PN_FN void pn_step(pn_walk &w)
{
    if (++w.pass >= w.n_pass) {
        w.pass = 0;
        w.row += w.rows;
    }
}

PN_FN pn_walk pn_walk_of(uint32_t row0, uint32_t row1, uint32_t n, int n_side)
{
    pn_walk w;
    w.row = row0;
    w.row1 = row1;
    w.pass = 0;
    w.n_group = (n + 255) / 256;
    w.n_pass = (w.n_group + (uint32_t)n_side - 1) / (uint32_t)n_side;
    w.rows = 8 / (uint32_t)n_side;
    return w;
}

/* As pn_rows_quant_1 for n_col columns, stride bytes apart. */
template <class W>
PN_FN void pn_rows_quant_nx(const pn_dmat &mat, uint32_t i_mat, uint32_t row0, uint32_t row1,
                            const void *x, uint32_t n_col, const pn_out &out, pn_group_results *res)
{
    const pn_lane l = pn_lane_of(mat.n);
    const pn_matrix m = pn_open_matrix<W>(mat, i_mat);
    pn_walk at = pn_walk_of(row0, row1, mat.n, l.n_side);
    const size_t stride = at.n_group * (W::is_k ? sizeof(pn_q8k) : sizeof(pn_q8s));
    float acc[2] = { 0.0f, 0.0f };
#pragma unroll 1
    while (at.row < row1) {
        pn_raw<W> raw;
        pn_load_at<W>(raw, m, at, l);
        const uint32_t g0 = at.pass * (uint32_t)l.n_side, g = g0 + (uint32_t)l.group;
        const uint32_t left = at.n_group - g0;
        pn_groups_nx<W>(raw, pn_act_group<W>(x, g < at.n_group ? g : 0), stride, n_col, l, res);
        __syncwarp();
        /* chain i of the warp: of row i / 8, column i % 8 */
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const uint32_t i = (uint32_t)l.lane + 32 * k, c = i % PN_QMV_COLS;
            const uint32_t row = i / PN_QMV_COLS;
            if (row >= at.rows || c >= n_col)
                continue;
            for (uint32_t j = 0; j < (uint32_t)l.n_side && j < left; j++)
                acc[k] = pn_fma(pn_act_d<W, false>(pn_act_group<W>(x, g0 + j) + c * stride),
                                res->t[row * (uint32_t)l.n_side + j][c], acc[k]);
            if (at.pass + 1 == at.n_pass) {
                if (at.row + row < row1)
                    pn_put(out, at.row + row, c, acc[k]);
                acc[k] = 0.0f;
            }
        }
        __syncwarp();
        pn_step(at);
    }
}

PN_FN void pn_rows_nx(const pn_dmat &mat, uint32_t i_mat, uint32_t row0, uint32_t row1,
                      const void *x, uint32_t n_col, const pn_out &out, pn_group_results *res)
{
    switch (mat.type) {
#define PN_CASE(id, ...)                                                            \
    case id:                                                                        \
        pn_rows_quant_nx<pn_wtype<id>>(mat, i_mat, row0, row1, x, n_col, out, res); \
        break;
        PN_UNIT_LAYOUTS(PN_CASE)
#undef PN_CASE
#define PN_CASE(id)                                                                            \
    case id:                                                                                   \
        pn_rows_float<id, false, PN_QMV_COLS>(mat, i_mat, row0, row1, (const float *)x, n_col, \
                                              out);                                            \
        break;
        PN_CASE(PN_TYPE_F32)
        PN_CASE(PN_TYPE_F16)
        PN_CASE(PN_TYPE_BF16)
#undef PN_CASE
    default:
        break;
    }
}

/* --- kernels ---------------------------------------------------------------------------------- */

/* The matrix that a block works at, and the block's number within it. */
PN_FN pn_matmul_mat pn_pick_mat(const pn_matmul_args &a, uint32_t *block)
{
    uint32_t im = 0;
#pragma unroll
    for (uint32_t i = 1; i < PN_MATMUL_MATS; i++)
        if (i < a.n_mat && blockIdx.x >= a.mat[i].first)
            im = i;
    *block = blockIdx.x - a.mat[im].first;
    return a.mat[im];
}

/* The rows of the calling warp; both row numbers are at most n_row. */
PN_FN void pn_warp_rows(const pn_dmat &w, uint32_t block, uint32_t n_iter, uint32_t *row0,
                        uint32_t *row1)
{
    const uint32_t rows = n_iter * pn_rows_at_once(w.type, w.n);
    const uint32_t r = (block * PN_QMV_WARPS + threadIdx.x / 32) * rows;
    *row0 = r < w.n_row ? r : w.n_row;
    *row1 = r + rows < w.n_row ? r + rows : w.n_row;
}

/* The weights of a norm that is to follow on their way, by the first block: it is early. */
PN_FN void pn_tail_prefetch(const pn_tail &tail)
{
    if (tail.kind == PN_TAIL_NORM && blockIdx.x == 0)
        pn_prefetch_bytes(tail.norm.w, 4 * (uint32_t)tail.norm.n, threadIdx.x, blockDim.x);
}

/* One row or token after the other. s: there for PN_TAIL_ROUTER. */
PN_FN void pn_matmul_tail(const pn_matmul_args &a, pn_route_smem *s)
{
    __shared__ float part[8];
    __shared__ int flag;
    if (a.tail.kind == PN_TAIL_NONE || !pn_arrive_last(a.tail.count, (int)gridDim.x, &flag))
        return;
    for (uint32_t it = 0; it < a.n_tok; it++) {
        if (a.tail.kind == PN_TAIL_NORM) {
            const pn_norm_args &n = a.tail.norm;
            const pn_fresh x = { n.x + it * n.x_stride };
            pn_norm_row<32 * PN_QMV_WARPS>(&n, it, x, part);
        } else {
            const pn_router_args &r = a.tail.router;
            const pn_fresh logits = { r.logits + (size_t)it * r.n_expert },
                           sgate = { r.sgate + it };
            pn_route<32 * PN_QMV_WARPS>(s, &r, it, logits, sgate);
        }
        __syncthreads();
    }
}

PN_KERNEL(PN_QMV_BOUNDS pn_k_qmv)(pn_matmul_args a)
{
    PN_DYN_SMEM(pn_route_smem, s);
    uint32_t block, row0, row1;
    const pn_matmul_mat m = pn_pick_mat(a, &block);
    pn_warp_rows(m.w, block, a.n_iter, &row0, &row1);
    const pn_out out = { m.y, m.residual, m.y_stride, m.w.n_row, 0 };
    pn_grid_next();
    pn_tail_prefetch(a.tail);
    if (blockIdx.x < a.n_early)
        pn_prefetch_early(m.w, row0, row1);
    pn_grid_wait();
    pn_rows_1<false>(m.w, 0, row0, row1, pn_act_of(a.x, m.w.type, m.w.n, 0), out);
    pn_matmul_tail(a, s);
}

PN_KERNEL(PN_QMV_BOUNDS pn_k_qmv_nx)(pn_matmul_args a)
{
    PN_DYN_SMEM(pn_route_smem, s);
    __shared__ pn_group_results res[PN_QMV_WARPS];
    uint32_t block, row0, row1;
    const pn_matmul_mat m = pn_pick_mat(a, &block);
    pn_warp_rows(m.w, block, a.n_iter, &row0, &row1);
    const pn_out out = { m.y, m.residual, m.y_stride, m.w.n_row, 0 };
    pn_grid_next();
    pn_tail_prefetch(a.tail);
    if (blockIdx.x < a.n_early)
        pn_prefetch_early(m.w, row0, row1);
    pn_grid_wait();
    pn_rows_nx(m.w, 0, row0, row1, pn_act_of(a.x, m.w.type, m.w.n, 0), a.n_tok, out,
               &res[threadIdx.x / 32]);
    pn_matmul_tail(a, s);
}

#endif
