/* One chunk of attention by a block of 128 threads: scores of up to R queries of one KV head
 * against 128 positions, their weights, and the chunk's values. A thread has one position of the
 * scores, then some d of the values, for all R queries at once, so that each key and value is read
 * once. Arithmetic: docs/NUMERICS.md, "Attention and KV"; what is done with a chunk:
 * attend_parts.cuh, attend_rows.cuh. */
#ifndef PN_CUDA_DEVICE_ATTEND_CUH
#define PN_CUDA_DEVICE_ATTEND_CUH

#include "cuda/device/kv.cuh"

/* Loads of keys or values that a thread has on their way: few queries leave registers for many, and
 * their launch is short of warps that could wait instead. */
#define PN_ATTEND_AHEAD(R) (R <= PN_ATTEND_ROWS_FEW ? 32 : 8)

enum {
    PN_ATTEND_WARPS = PN_ATTEND_THREADS / 32,
    PN_ATTEND_D = 256 /* d of the queries that are in shared memory at a time */
};

/* The queries of a block: q0.. of the part's n_tok * group that read KV head ik. */
typedef struct pn_attend_tile {
    const pn_cuda_part *part;
    int ik, group, q0, n_row;
} pn_attend_tile;

PN_FN pn_attend_tile pn_attend_tile_at(const pn_attend_args *a, const pn_cuda_part *part, int ik,
                                       int64_t q0, int n_row_max)
{
    pn_attend_tile t;
    t.part = part;
    t.ik = ik;
    t.group = a->n_head / a->n_head_kv;
    const int64_t left = (int64_t)part->n_tok * t.group - q0;
    t.q0 = (int)q0;
    t.n_row = left < 0 ? 0 : left < n_row_max ? (int)left : n_row_max;
    return t;
}

/* Shared memory. Arrays by query are innermost where a thread reads all queries' at once. */
template <int R> struct pn_attend_rows_smem {
    int32_t row[R];   /* token * n_head + head */
    int32_t seen[R];  /* positions that it sees; 0: no query */
    float m[R], l[R]; /* of the chunk */
    float s[R][PN_KV_CHUNK];
};
template <int KV, int R> struct pn_attend_smem {
    pn_attend_rows_smem<R> rows;
    float q[PN_ATTEND_D * R]; /* [d][R] */
    float p[PN_KV_CHUNK * R]; /* [position][R] */
};
template <int R> struct pn_attend_smem<PN_CUDA_KV_Q8_0, R> {
    pn_attend_rows_smem<R> rows;                     /* s becomes the weights */
    int32_t q[PN_ATTEND_D / 4 * R];                  /* [4 d][R] */
    float qd[PN_ATTEND_D / 32 * R];                  /* [32 d][R] */
    int32_t u[PN_ATTEND_WARPS][PN_KV_CHUNK / 2 * R]; /* [2 positions][R] */
};

/* Row indices of the tile; a barrier must follow. */
template <int R>
PN_FN void pn_attend_open(pn_attend_rows_smem<R> *s, const pn_attend_args *a,
                          const pn_attend_tile *t)
{
    const int r = (int)threadIdx.x;
    if (r >= R)
        return;
    const int i = t->q0 + r, it = i / t->group;
    s->row[r] = (t->part->tok0 + it) * a->n_head + t->ik * t->group + i % t->group;
    s->seen[r] = r < t->n_row ? t->part->pos + it + 1 : 0;
}

/* Positions of chunk c that one who sees `seen` sees. */
PN_FN int pn_attend_visible(int seen, int c)
{
    const int n = seen - c * PN_KV_CHUNK;
    return n < 0 ? 0 : n < PN_KV_CHUNK ? n : PN_KV_CHUNK;
}

/* The K part of the tile's head in chunk c; the V part is k_bytes behind. */
PN_FN const uint8_t *pn_attend_k(const pn_attend_args *a, const pn_attend_tile *t, int c)
{
    return t->part->pages[c] + a->kv_off + (int64_t)t->ik * ((int64_t)a->k_bytes + a->v_bytes);
}

/* Stored floats, by plain loads: the block may have stored some itself. f16 by the conversion that
 * every GPU has; exact. */
PN_FN float pn_kv_load(const float *p)
{
    return *p;
}
PN_FN float pn_kv_load(const pn_u16 *p)
{
#ifdef PN_CUSHIM
    return pn_h2f(*p);
#else
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(*p));
    return f;
#endif
}
template <int KV> struct pn_kv_stored {
    typedef float type;
};
template <> struct pn_kv_stored<PN_CUDA_KV_F16> {
    typedef pn_u16 type;
};

/* acc[r] = fma(x, y[r], acc[r]); y: shared, 16-byte aligned. */
template <int R> PN_FN void pn_fma_rows(float acc[R], float x, const float *y)
{
#pragma unroll
    for (int r = 0; r < R; r += 4) {
        const float4 v = *(const float4 *)(y + r);
        acc[r] = pn_fma(x, v.x, acc[r]);
        acc[r + 1] = pn_fma(x, v.y, acc[r + 1]);
        acc[r + 2] = pn_fma(x, v.z, acc[r + 2]);
        acc[r + 3] = pn_fma(x, v.w, acc[r + 3]);
    }
}

/* --- scores ----------------------------------------------------------------------------------- */

/* Queries' [d0, d0 + PN_ATTEND_D) into shared memory; +0 where there is none. */
template <int KV, int R>
PN_FN void pn_attend_load_q(pn_attend_smem<KV, R> *s, const pn_attend_args *a, int d0)
{
    for (int i = (int)threadIdx.x; i < PN_ATTEND_D * R; i += PN_ATTEND_THREADS) {
        const int r = i / PN_ATTEND_D, d = i % PN_ATTEND_D;
        s->q[d * R + r] = s->rows.seen[r] && d0 + d < a->head_dim
                              ? a->q[(int64_t)s->rows.row[r] * 2 * a->head_dim + d0 + d]
                              : 0.0f;
    }
}
template <int R>
PN_FN void pn_attend_load_q(pn_attend_smem<PN_CUDA_KV_Q8_0, R> *s, const pn_attend_args *a, int d0)
{
    const int n_group = (a->head_dim + PN_ATTEND_D - 1) / PN_ATTEND_D;
    for (int i = (int)threadIdx.x; i < PN_ATTEND_D / 4 * R; i += PN_ATTEND_THREADS) {
        const int r = i / (PN_ATTEND_D / 4), w = i % (PN_ATTEND_D / 4);
        const pn_q8b *const b = a->q8 + (int64_t)s->rows.row[r] * n_group + d0 / PN_ATTEND_D;
        const bool is_row = s->rows.seen[r] != 0;
        s->q[w * R + r] = is_row ? ((const int32_t *)b->q)[w] : 0;
        if (w < PN_Q8B_GROUP)
            s->qd[w * R + r] = is_row ? b->d[w] : 0.0f;
    }
}

/* This thread's position against [d0, d0 + n_d) of all queries. k_part: of the chunk; lane: the
 * position in the warp's tile. */
template <int KV, int R>
PN_FN void pn_attend_score(float acc[R], const pn_attend_smem<KV, R> *s, const uint8_t *k_part,
                           int lane, int head_dim, int d0, int n_d)
{
    typedef typename pn_kv_stored<KV>::type stored;
    const stored *const k =
        (const stored *)k_part + ((int64_t)pn_warp_id() * head_dim + d0) * PN_KV_LANES + lane;
#pragma unroll(PN_ATTEND_AHEAD(R))
    for (int d = 0; d < n_d; d++)
        pn_fma_rows<R>(acc, pn_kv_load(k + d * PN_KV_LANES), s->q + d * R);
}
template <int R>
PN_FN void pn_attend_score(float acc[R], const pn_attend_smem<PN_CUDA_KV_Q8_0, R> *s,
                           const uint8_t *k_part, int lane, int head_dim, int d0, int n_d)
{
    const int n_block = head_dim / 32;
    const uint8_t *block = k_part + ((int64_t)pn_warp_id() * n_block + d0 / 32) * PN_KV_K_TILE;
    for (int ib = 0; ib < n_d / 32; ib++, block += PN_KV_K_TILE) {
        const uint32_t *const words = (const uint32_t *)(block + PN_KV_LANES * 2);
        int isum[R];
#pragma unroll
        for (int r = 0; r < R; r++)
            isum[r] = 0;
#pragma unroll
        for (int w = 0; w < 8; w++) { /* stored with 128 added: the top bit turned */
            const int k = (int)(words[w * PN_KV_LANES + lane] ^ 0x80808080u);
#pragma unroll
            for (int r = 0; r < R; r++)
                isum[r] = pn_dp4a(k, s->q[(8 * ib + w) * R + r], isum[r]);
        }
        const float h = pn_kv_load((const pn_u16 *)block + lane);
#pragma unroll
        for (int r = 0; r < R; r++)
            acc[r] = pn_fma(h * s->qd[ib * R + r], pn_i2f(isum[r]), acc[r]);
    }
}

/* Raw scores into rows.s. n: positions that any query sees; what lies behind is not read: in the
 * rest of a tile of 32, whose scores nobody takes, stands the last one's. has_q: the queries' first
 * d are loaded. */
template <int KV, int R>
PN_FN void pn_attend_scores(pn_attend_smem<KV, R> *s, const pn_attend_args *a,
                            const uint8_t *k_part, int n, bool has_q)
{
    const int t = (int)threadIdx.x, left_n = n - (int)pn_warp_id() * PN_KV_LANES;
    const int lane = (int)pn_lane_id() < left_n ? (int)pn_lane_id() : left_n - 1;
    float acc[R];
#pragma unroll
    for (int r = 0; r < R; r++)
        acc[r] = 0.0f;
    for (int d0 = 0; d0 < a->head_dim; d0 += PN_ATTEND_D) {
        if (d0 || !has_q) {
            __syncthreads(); /* the last tile's readers are done */
            pn_attend_load_q(s, a, d0);
            __syncthreads();
        }
        const int left = a->head_dim - d0;
        if (left_n > 0)
            pn_attend_score(acc, s, k_part, lane, a->head_dim, d0,
                            left < PN_ATTEND_D ? left : PN_ATTEND_D);
    }
#pragma unroll
    for (int r = 0; r < R; r++)
        s->rows.s[r][t] = KV == PN_CUDA_KV_Q8_0 ? acc[r] : acc[r] + 0.0f;
}

/* --- weights ---------------------------------------------------------------------------------- */

template <int KV, int R> PN_FN void pn_attend_put_p(pn_attend_smem<KV, R> *s, int r, int j, float p)
{
    s->p[j * R + r] = p;
}
template <int R>
PN_FN void pn_attend_put_p(pn_attend_smem<PN_CUDA_KV_Q8_0, R> *s, int r, int j, float p)
{
    s->rows.s[r][j] = p;
}

/* Weights, maximum and sum of each query in chunk c; a warp takes every fourth query. */
template <int KV, int R> PN_FN void pn_attend_softmax(pn_attend_smem<KV, R> *s, float scale, int c)
{
    const int lane = (int)pn_lane_id();
#pragma unroll(R <= PN_ATTEND_ROWS_FEW ? R / PN_ATTEND_WARPS : 1)
    for (int k_r = 0; k_r < R / PN_ATTEND_WARPS; k_r++) {
        const int r = PN_ATTEND_WARPS * k_r + (int)pn_warp_id();
        const int n = pn_attend_visible(s->rows.seen[r], c);
        float v[4], l[4], m = pn_asf(0xff800000u);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            v[k] = s->rows.s[r][32 * k + lane] * scale;
            m = 32 * k + lane < n ? pn_max(m, v[k]) : m;
        }
        for (int o = 16; o; o >>= 1)
            m = pn_max(m, __shfl_xor_sync(PN_FULL, m, o));
        m = m + 0.0f;
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const float p = 32 * k + lane < n ? pn_exp(v[k] - m) : 0.0f;
            pn_attend_put_p(s, r, 32 * k + lane, p);
            l[k] = pn_warp_tree(p);
        }
        if (lane == 0) {
            s->rows.m[r] = m;
            s->rows.l[r] = (l[0] + l[1]) + (l[2] + l[3]);
        }
    }
}

/* --- values ----------------------------------------------------------------------------------- */

/* n of N_AHEAD positions of one d, loaded together; those behind n count as +0, times +0. */
template <int R, int N_AHEAD, class T>
PN_FN void pn_attend_add_values(float o[R], const T *v, const float *p, int n)
{
    float x[N_AHEAD];
#pragma unroll
    for (int j = 0; j < N_AHEAD; j++) {
        const float xj = pn_kv_load(v + (j < n ? j : 0) * PN_KV_LANES);
        x[j] = j < n ? xj : 0.0f;
    }
#pragma unroll
    for (int j = 0; j < N_AHEAD; j++)
        pn_fma_rows<R>(o, x[j], p + j * R);
}

/* The chunk's values, by emit(d, o): o [R] is this thread's d of all queries. n: as for the scores.
 * A d is always with the same thread. */
template <int KV, int R, class Emit>
PN_FN void pn_attend_values(pn_attend_smem<KV, R> *s, const uint8_t *v_part, int head_dim, int n,
                            const Emit &emit)
{
    typedef typename pn_kv_stored<KV>::type stored;
    enum {
        N_AHEAD = PN_ATTEND_AHEAD(R)
    };
    for (int d = (int)threadIdx.x; d < head_dim; d += PN_ATTEND_THREADS) {
        const stored *const v = (const stored *)v_part +
                                d / PN_KV_LANES * (PN_KV_CHUNK * PN_KV_LANES) + d % PN_KV_LANES;
        float o[R];
#pragma unroll
        for (int r = 0; r < R; r++)
            o[r] = 0.0f;
        int j0 = 0;
#pragma unroll 1
        for (; j0 + N_AHEAD <= n; j0 += N_AHEAD)
            pn_attend_add_values<R, N_AHEAD>(o, v + j0 * PN_KV_LANES, s->p + j0 * R, N_AHEAD);
        if (j0 < n)
            pn_attend_add_values<R, N_AHEAD>(o, v + j0 * PN_KV_LANES, s->p + j0 * R, n - j0);
#pragma unroll
        for (int r = 0; r < R; r++)
            o[r] = o[r] + 0.0f;
        emit(d, o);
    }
}

#define PN_ATTEND_W_MIN 7.888609052210118e-31f /* 2^-100 */

/* The weights of one query for 32 d as 16-bit integers, by one warp: lane's pairs of positions to
 * u[lane * R] and u[(lane + 32) * R]. Returns what a unit is worth, in every lane. */
template <int R>
PN_FN float pn_attend_weights_q8(int32_t *u, const float *p, const uint32_t *scales, int n)
{
    const int lane = (int)pn_lane_id();
    float w[4];
    int32_t bits = 0; /* floats from +0 on order by their bits; what is below them is below 0 */
#pragma unroll
    for (int k = 0; k < 4; k++) { /* positions 2 lane, + 1, 64 + 2 lane, + 1 */
        const int j = k / 2 * 64 + 2 * lane + k % 2;
        const pn_u16 h = (pn_u16)(scales[k / 2] >> (k % 2 * 16));
        w[k] = j < n ? p[j] * pn_h2f(h) : 0.0f;
        bits = (int32_t)pn_asu(w[k]) > bits ? (int32_t)pn_asu(w[k]) : bits;
    }
    const float w_max = pn_asf(pn_warp_max_bits((uint32_t)bits));
    const float is = w_max < PN_ATTEND_W_MIN ? 0.0f : pn_div(32767.0f, w_max);
#pragma unroll
    for (int k = 0; k < 2; k++)
        u[(lane + 32 * k) * R] = (int32_t)(((uint32_t)pn_rinti(w[2 * k] * is) & 0xffffu) |
                                           (uint32_t)pn_rinti(w[2 * k + 1] * is) << 16);
    return w_max < PN_ATTEND_W_MIN ? 0.0f : pn_div(1.0f, is);
}

/* A warp takes every fourth block of 32 d. */
template <int R, class Emit>
PN_FN void pn_attend_values(pn_attend_smem<PN_CUDA_KV_Q8_0, R> *s, const uint8_t *v_part,
                            int head_dim, int n, const Emit &emit)
{
    const int lane = (int)pn_lane_id();
    int32_t *const u = s->u[pn_warp_id()];
    for (int ib = (int)pn_warp_id(); ib < head_dim / 32; ib += PN_ATTEND_WARPS) {
        const uint8_t *const block = v_part + (int64_t)ib * PN_KV_V_TILE;
        const pn_u16 *const v = (const pn_u16 *)(block + PN_KV_CHUNK * 2) + lane;
        const uint32_t scales[2] = { ((const uint32_t *)block)[lane],
                                     ((const uint32_t *)block)[lane + 32] };
        float o[R];
        int isum[R];
#pragma unroll
        for (int r = 0; r < R; r++) {
            o[r] = pn_attend_weights_q8<R>(u + r, s->rows.s[r], scales, n);
            isum[r] = 0;
        }
        __syncwarp();
#pragma unroll 4
        for (int j = 0; j < (n + 1) / 2; j++) {
            const int pair = v[j * PN_KV_LANES];
            const int v0 = (int8_t)pair, v1 = (int8_t)(pair >> 8);
#pragma unroll
            for (int r = 0; r < R; r++)
                isum[r] += (int16_t)u[j * R + r] * v0 + (u[j * R + r] >> 16) * v1;
        }
        __syncwarp();
#pragma unroll
        for (int r = 0; r < R; r++)
            o[r] = o[r] * pn_i2f(isum[r]);
        emit(32 * ib + lane, o);
    }
}

#endif
