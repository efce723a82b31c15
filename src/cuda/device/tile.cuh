/* A tile of a matrix product: 64 rows times 16 N vectors, 4 warps, for prefill. The chains are
 * those of qmv.cuh: a group of 256 weights after the other, so the bits are the same.
 *
 * For each group the block opens its rows' weights into signed bytes in shared memory, once for all
 * vectors, puts the vectors' activations beside them, and multiplies: int8 tensor cores from Turing
 * on, dp4a or exact float sums before. Scales are applied in int32.
 *
 * Warp w has rows 32 (w / 2) and columns 8 N (w % 2) on; a lane the results of rows g + 8 i, i < 4,
 * and columns 2 t + e + 8 j, e < 2, j < N, with g = lane / 4, t = lane % 4: where mma leaves them.
 * Shared memory: 45 KiB at N = 4, 33 KiB at N = 2. Bound: int8 products, then the scales' integer
 * multiply-adds (two a result and 16 or 32 weights). */
#ifndef PN_CUDA_DEVICE_TILE_CUH
#define PN_CUDA_DEVICE_TILE_CUH

#include "cuda/device/qmv.cuh"

#define PN_TILE_STRIDE   68 /* words of a row of 256 bytes: rows side by side in different banks */
#define PN_TILE_X_STRIDE 36 /* words of an activations' scales: likewise */

struct pn_tile_scales_k { /* superblocks: of each 16 or 32 */
    int16_t sc[16][PN_TILE_ROWS], m[16][PN_TILE_ROWS];
    float d[2][PN_TILE_ROWS];
};
struct pn_tile_scales_b { /* blocks of 32 */
    float d[8][PN_TILE_ROWS], m[8][PN_TILE_ROWS];
};

template <int N> struct pn_tile {
    uint32_t w[PN_TILE_ROWS][PN_TILE_STRIDE], x[16 * N][PN_TILE_STRIDE];
    union {
        pn_tile_scales_k k;
        pn_tile_scales_b b;
    };
    /* the activations' scales and sums, as pn_q8k or pn_q8s begins */
    uint32_t head[16 * N][PN_TILE_X_STRIDE];
    uint32_t col[16 * N]; /* the vector of each column */
};

/* Results of a lane: [i][2 j + e]. */
template <int N> struct pn_results {
    float v[4][2 * N];
};

/* A lane's place in the tile. */
struct pn_spot {
    uint32_t row, col; /* of result [0][0] */
    int g, t;
};
template <int N> PN_FN pn_spot pn_spot_of(void)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    pn_spot s;
    s.g = lane / 4;
    s.t = lane % 4;
    s.row = (uint32_t)(32 * (warp / 2) + s.g);
    s.col = (uint32_t)(8 * N * (warp % 2) + 2 * s.t);
    return s;
}
PN_FN uint32_t pn_spot_row(const pn_spot &s, int i)
{
    return s.row + 8 * (uint32_t)i;
}
PN_FN uint32_t pn_spot_col(const pn_spot &s, int j)
{
    return s.col + 8 * (uint32_t)(j / 2) + (uint32_t)(j % 2);
}

/* --- filling ---------------------------------------------------------------------------------- */

template <class W, int N>
PN_FN void pn_tile_put_scales(pn_tile<N> &t, const pn_opened &o, uint32_t row, uint32_t r)
{
    if (!W::is_k) {
#pragma unroll
        for (uint32_t i = 0; i < 2; i++) {
            t.b.d[2 * r + i][row] = o.d[i];
            if (W::has_min)
                t.b.m[2 * r + i][row] = o.m_f[i];
        }
        return;
    }
    const uint32_t n = W::has_scale16 ? 4 : 2;
#pragma unroll
    for (uint32_t i = 0; i < n; i++) {
        t.k.sc[n * r + i][row] = (int16_t)o.sc[i];
        if (W::has_min)
            t.k.m[n * r + i][row] = (int16_t)o.m[i];
    }
    if (r == 0) {
        t.k.d[0][row] = o.d[0];
        if (W::has_min)
            t.k.d[1][row] = o.d[1];
    }
}

/* Group g of the tile's rows; rows past the end are the last one again. */
template <class W, int N>
PN_FN void pn_tile_fill_w(pn_tile<N> &t, const pn_matrix &m, uint32_t row0, uint32_t n_row,
                          uint32_t g)
{
    const uint32_t r = threadIdx.x % 4;
#pragma unroll
    for (uint32_t k = 0; k < PN_TILE_ROWS; k += 32) {
        const uint32_t row = k + threadIdx.x / 4;
        pn_raw<W> raw;
        pn_opened o;
        if (4 * g + r < m.n_unit)
            pn_load_unit<W>(raw, m, row0 + row < n_row ? row0 + row : n_row - 1, 4 * g + r);
        else
            pn_raw_zero<W>(raw);
        pn_open<W>(raw, o);
        uint4 *const q = (uint4 *)&t.w[row][16 * r];
#pragma unroll
        for (int i = 0; i < 4; i++)
            q[i] = make_uint4(o.q[4 * i], o.q[4 * i + 1], o.q[4 * i + 2], o.q[4 * i + 3]);
        pn_tile_put_scales<W, N>(t, o, row, r);
    }
}

/* Group g of the columns' vectors, n_group groups each. */
template <class W, int N>
PN_FN void pn_tile_fill_x(pn_tile<N> &t, const void *x, uint32_t n_group, uint32_t g)
{
    const uint32_t head = W::is_k ? 4 : 8, all = head + 16; /* pieces of 16 bytes */
    for (uint32_t i = threadIdx.x; i < 16 * N * all; i += 128) {
        const uint32_t c = i / all, p = i % all;
        const uint4 *const src = (const uint4 *)pn_act_group<W>(x, t.col[c] * n_group + g) + p;
        uint4 *const dst = (uint4 *)(p < head ? &t.head[c][4 * p] : &t.x[c][4 * (p - head)]);
        pn_cp16(dst, src);
    }
    pn_cp_commit();
    pn_cp_wait<0>();
}

/* --- multiplying ------------------------------------------------------------------------------ */

/* dot[i][j] = the products of words [k, k + W4) of the lane's rows and columns. */
#if PN_ARCH >= 750
/* 16 rows, 8 columns, depth 4 W4. Fragments: pn_mma_16832. */
template <int W4> PN_FN void pn_mma_16(int c[4], const uint32_t a[4], const uint32_t b[2])
{
#if PN_ARCH >= 800
    if (W4 == 8)
        pn_mma_16832(c, a, b);
    else
        pn_mma_16816(c, a, b);
#else
#pragma unroll
    for (int p = 0; p < W4 / 4; p++) {
        pn_mma_8816(c, a[2 * p], b[p]);
        pn_mma_8816(c + 2, a[2 * p + 1], b[p]);
    }
#endif
}

template <int W4, int N>
PN_FN void pn_tile_dots(int dot[4][2 * N], const pn_tile<N> &t, const pn_spot &s, int k)
{
    uint32_t a[2][4];
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int p = 0; p < W4 / 2; p++)
            a[i][p] = t.w[pn_spot_row(s, 2 * i + p % 2)][k + 4 * (p / 2) + s.t];
#pragma unroll
    for (int j = 0; j < N; j++) {
        const uint32_t col = s.col - 2 * (uint32_t)s.t + 8 * (uint32_t)j + (uint32_t)s.g;
        uint32_t b[2];
#pragma unroll
        for (int p = 0; p < W4 / 4; p++)
            b[p] = t.x[col][k + 4 * p + s.t];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int c[4] = { 0, 0, 0, 0 };
            pn_mma_16<W4>(c, a[i], b);
#pragma unroll
            for (int e = 0; e < 4; e++)
                dot[2 * i + e / 2][2 * j + e % 2] = c[e];
        }
    }
}
#else
#if PN_ARCH >= 610
typedef int pn_tile_sum;
typedef int pn_tile_word;
PN_FN void pn_tile_read(pn_tile_word &w, uint32_t bytes)
{
    w = (int)bytes;
}
PN_FN void pn_tile_add(pn_tile_sum &sum, const pn_tile_word &a, const pn_tile_word &b)
{
    sum = pn_dp4a(a, b, sum);
}
#else
typedef float pn_tile_sum; /* exact: dot.cuh */
struct pn_tile_word {
    float f[4];
};
PN_FN void pn_tile_read(pn_tile_word &w, uint32_t bytes)
{
    pn_bytes_to_floats(w.f, bytes);
}
PN_FN void pn_tile_add(pn_tile_sum &sum, const pn_tile_word &a, const pn_tile_word &b)
{
#pragma unroll
    for (int i = 0; i < 4; i++)
        sum = pn_fma(a.f[i], b.f[i], sum);
}
#endif

template <int W4, int N>
PN_FN void pn_tile_dots(int dot[4][2 * N], const pn_tile<N> &t, const pn_spot &s, int k)
{
    pn_tile_sum sum[4][2 * N];
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 2 * N; j++)
            sum[i][j] = 0;
#pragma unroll
    for (int p = 0; p < W4; p++) {
        pn_tile_word w[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            pn_tile_read(w[i], t.w[pn_spot_row(s, i)][k + p]);
#pragma unroll
        for (int j = 0; j < 2 * N; j++) {
            pn_tile_word x;
            pn_tile_read(x, t.x[pn_spot_col(s, j)][k + p]);
#pragma unroll
            for (int i = 0; i < 4; i++)
                pn_tile_add(sum[i][j], w[i], x);
        }
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 2 * N; j++)
            dot[i][j] = (int)sum[i][j];
}
#endif

/* isum[i][j] += sc * s * dot over group j16 of the scales. */
template <class W, int N>
PN_FN void pn_tile_group_k(const pn_tile<N> &t, const pn_spot &s, pn_results<N> &acc)
{
    int isum[4][2 * N], imin[4][2 * N];
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 2 * N; j++)
            isum[i][j] = imin[i][j] = 0;
    const int words = W::has_scale16 ? 4 : 8;
    for (int p = 0; p < 64 / words; p++) { /* every 16 or 32 weights */
        int dot[4][2 * N];
        pn_tile_dots<words, N>(dot, t, s, words * p);
        int sc[4], m[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            sc[i] = t.k.sc[p][pn_spot_row(s, i)];
            m[i] = W::has_min ? t.k.m[p][pn_spot_row(s, i)] : 0;
        }
#pragma unroll
        for (int j = 0; j < 2 * N; j++) {
            const pn_q8k *const x = (const pn_q8k *)t.head[pn_spot_col(s, j)];
            const int sx = x->s[W::has_scale16 ? p / 2 : p];
            const int sum = !W::has_min      ? 0
                            : W::has_scale16 ? x->bsum[p]
                                             : x->bsum[2 * p] + x->bsum[2 * p + 1];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                isum[i][j] += sc[i] * sx * dot[i][j];
                if (W::has_min)
                    imin[i][j] += m[i] * sum;
            }
        }
    }
#pragma unroll
    for (int j = 0; j < 2 * N; j++) {
        const float dx = ((const pn_q8k *)t.head[pn_spot_col(s, j)])->d;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint32_t row = pn_spot_row(s, i);
            const float sum = pn_i2f(isum[i][j]);
            const float v = W::has_min
                                ? pn_fma(t.k.d[0][row], sum, -(t.k.d[1][row] * pn_i2f(imin[i][j])))
                                : t.k.d[0][row] * sum;
            acc.v[i][j] = pn_fma(dx, v, acc.v[i][j]);
        }
    }
}

template <class W, int N>
PN_FN void pn_tile_group_b(const pn_tile<N> &t, const pn_spot &s, pn_results<N> &acc)
{
    float chain[4][2 * N];
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 2 * N; j++)
            chain[i][j] = 0.0f;
    for (int p = 0; p < 8; p++) { /* every block */
        int dot[4][2 * N], isum[4][2 * N];
        pn_tile_dots<4, N>(dot, t, s, 8 * p);
#pragma unroll
        for (int j = 0; j < 2 * N; j++) {
            const int sx = ((const pn_q8s *)t.head[pn_spot_col(s, j)])->s[2 * p];
#pragma unroll
            for (int i = 0; i < 4; i++)
                isum[i][j] = sx * dot[i][j];
        }
        pn_tile_dots<4, N>(dot, t, s, 8 * p + 4);
#pragma unroll
        for (int j = 0; j < 2 * N; j++) {
            const pn_q8s *const x = (const pn_q8s *)t.head[pn_spot_col(s, j)];
            const int sx = x->s[2 * p + 1];
            const float sum = W::has_min ? pn_i2f(x->sum[p]) : 0.0f;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const uint32_t row = pn_spot_row(s, i);
                float &c = chain[i][j];
                c = pn_fma(t.b.d[p][row], pn_i2f(isum[i][j] + sx * dot[i][j]), c);
                if (W::has_min)
                    c = pn_fma(t.b.m[p][row], sum, c);
            }
        }
    }
#pragma unroll
    for (int j = 0; j < 2 * N; j++) {
        const float dx = ((const pn_q8s *)t.head[pn_spot_col(s, j)])->d;
#pragma unroll
        for (int i = 0; i < 4; i++)
            acc.v[i][j] = pn_fma(dx, chain[i][j], acc.v[i][j]);
    }
}

template <class W, int N>
PN_FN void pn_tile_quant(const pn_dmat &mat, uint32_t i_mat, uint32_t row0, const void *x,
                         pn_tile<N> &t, pn_results<N> &acc)
{
    const pn_spot s = pn_spot_of<N>();
    const pn_matrix m = pn_open_matrix<W>(mat, i_mat);
    const uint32_t n_group = (mat.n + 255) / 256;
    for (uint32_t g = 0; g < n_group; g++) {
        __syncthreads(); /* the group before has been read, t.col written */
        pn_tile_fill_w<W, N>(t, m, row0, mat.n_row, g);
        pn_tile_fill_x<W, N>(t, x, n_group, g);
        __syncthreads();
        if (W::is_k)
            pn_tile_group_k<W, N>(t, s, acc);
        else
            pn_tile_group_b<W, N>(t, s, acc);
    }
}

/* --- float types ------------------------------------------------------------------------------ */

/* A step of the butterfly over 2 HALF values in each lane, of which a lane keeps half. */
template <int HALF> PN_FN void pn_scatter_step(float v[32], int lane)
{
    const bool is_high = lane & HALF;
#pragma unroll
    for (int i = 0; i < HALF; i++) {
        const float keep = is_high ? v[i + HALF] : v[i], give = is_high ? v[i] : v[i + HALF];
        v[i] = keep + __shfl_xor_sync(PN_FULL, give, HALF);
    }
}
/* Of 32 values in each lane, lane l gets the butterfly sum over the lanes of value l. */
PN_FN float pn_scatter_floats(float v[32], int lane)
{
    pn_scatter_step<16>(v, lane);
    pn_scatter_step<8>(v, lane);
    pn_scatter_step<4>(v, lane);
    pn_scatter_step<2>(v, lane);
    pn_scatter_step<1>(v, lane);
    return v[0];
}

/* A warp's 4 rows from row on and 8 columns from col on, into out by (row, column) of the tile. */
template <int TYPE, int N>
PN_FN void pn_tile_floats(const pn_dmat &mat, const uint4 *m, uint32_t row0, const float *x,
                          const pn_tile<N> &t, uint32_t row, uint32_t col, float *out)
{
    const uint32_t e = pn_floats<TYPE>::n, n_chunk = (mat.n + 32 * e - 1) / (32 * e);
    const uint32_t lane = threadIdx.x % 32;
    float sum[32];
#pragma unroll
    for (int i = 0; i < 32; i++)
        sum[i] = 0.0f;
    for (uint32_t ic = 0; ic < n_chunk; ic++) {
        pn_floats<TYPE> w[4];
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t r = row0 + row + i < mat.n_row ? row0 + row + i : mat.n_row - 1;
            pn_open_floats<TYPE>(w[i], pn_ldg(m + ((size_t)r * n_chunk + ic) * 32 + lane));
        }
#pragma unroll
        for (uint32_t j = 0; j < e; j++) {
            const uint32_t at = 32 * (e * ic + j) + lane;
            if (at >= mat.n)
                continue;
#pragma unroll
            for (uint32_t c = 0; c < 8; c++) {
                const float xc = pn_ldg(x + (size_t)t.col[col + c] * mat.n + at);
#pragma unroll
                for (uint32_t i = 0; i < 4; i++)
                    sum[8 * i + c] = pn_fma(w[i].v[j], xc, sum[8 * i + c]);
            }
        }
    }
    const float y = pn_scatter_floats(sum, (int)lane);
    out[(row + lane / 8) * 16 * N + col + lane % 8] = y;
}

template <int TYPE, int N>
PN_FN void pn_tile_float(const pn_dmat &mat, uint32_t i_mat, uint32_t row0, const float *x,
                         pn_tile<N> &t, pn_results<N> &acc)
{
    const uint32_t warp = threadIdx.x / 32;
    const uint4 *const m = (const uint4 *)((const uint8_t *)mat.w + i_mat * mat.mat_bytes);
    float *const out = (float *)t.w; /* [64][16 N], of which each warp has its own part */
    __syncthreads();
    for (uint32_t i = 0; i < 8 * N; i++)
        pn_tile_floats<TYPE, N>(mat, m, row0, x, t, 32 * (warp / 2) + i % 8 * 4,
                                8 * N * (warp % 2) + i / 8 * 8, out);
    __syncwarp();
    const pn_spot s = pn_spot_of<N>();
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 2 * N; j++)
            acc.v[i][j] = out[pn_spot_row(s, i) * 16 * N + pn_spot_col(s, j)];
    __syncwarp();
}

/* --- any type --------------------------------------------------------------------------------- */

/* Rows [row0, row0 + 64) of matrix i_mat times the vectors t.col of x (in the type's form), which
 * the block has written. Results of rows past the end mean nothing. Every thread calls it. */
template <int N>
PN_FN void pn_tile_product(const pn_dmat &mat, uint32_t i_mat, uint32_t row0, const pn_dacts &x,
                           pn_tile<N> &t, pn_results<N> &acc)
{
    const void *const form = pn_act_of(x, mat.type, mat.n, 0);
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 2 * N; j++)
            acc.v[i][j] = 0.0f;
    switch (mat.type) {
#define PN_CASE(id, ...)                                                \
    case id:                                                            \
        pn_tile_quant<pn_wtype<id>, N>(mat, i_mat, row0, form, t, acc); \
        break;
        PN_UNIT_LAYOUTS(PN_CASE)
#undef PN_CASE
#define PN_CASE(id)                                                          \
    case id:                                                                 \
        pn_tile_float<id, N>(mat, i_mat, row0, (const float *)form, t, acc); \
        break;
        PN_CASE(PN_TYPE_F32)
        PN_CASE(PN_TYPE_F16)
        PN_CASE(PN_TYPE_BF16)
#undef PN_CASE
    default:
        break;
    }
}

/* The results of a tile whose first row and column are row0 and col0, as far as there are n_row
 * rows and col_end columns. */
template <int N>
PN_FN void pn_put_tile(const pn_out &out, uint32_t row0, uint32_t n_row, uint32_t col0,
                       uint32_t col_end, const pn_results<N> &acc)
{
    const pn_spot s = pn_spot_of<N>();
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 2 * N; j++) {
            const uint32_t row = row0 + pn_spot_row(s, i), col = col0 + pn_spot_col(s, j);
            if (row < n_row && col < col_end)
                pn_put(out, row, col, acc.v[i][j]);
        }
}

#endif
