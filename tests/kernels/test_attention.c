/* Attention: every level, KV type and division of the work gives the bits of the definition in
 * docs/NUMERICS.md, which is written here once more over plain arrays. */

#include "support/check.h"

#include "base/mem.h"
#include "kernels/kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* --- data ------------------------------------------------------------------------------------- */

static uint64_t rng_state = 88172645463325252ull;

static uint32_t rnd(void)
{
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 7;
    rng_state ^= rng_state << 17;
    return (uint32_t)(rng_state >> 32);
}

static size_t below(size_t n)
{
    return rnd() % n;
}

/* About normal, standard deviation 1. */
static float noise(void)
{
    float s = 0.0f;
    for (int i = 0; i < 12; i++)
        s += (float)rnd() * 0x1p-32f;
    return s - 6.0f;
}

/* bytes (rounded up to 64) that end at a page nobody may touch, filled with 0xff: NaN in every
 * float type. */
typedef struct guarded {
    char *map, *ptr;
    size_t map_bytes;
} guarded;

static guarded guarded_new(size_t bytes)
{
    const size_t page = 4096, body = pn_round_up(bytes, page);
    guarded g = { .map_bytes = body + page };
    g.map = mmap(NULL, g.map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(g.map, MAP_FAILED);
    assert_int_equal(mprotect(g.map + body, page, PROT_NONE), 0);
    memset(g.map, 0xff, body);
    g.ptr = g.map + body - pn_round_up(bytes, PN_ALIGN);
    return g;
}

static void guarded_free(guarded *g)
{
    munmap(g->map, g->map_bytes);
}

enum {
    MAX_DIM = 288,
    MAX_POS = 400,
    MAX_Q = 110,
    MAX_PAGE = (MAX_POS + PN_KV_CHUNK - 1) / PN_KV_CHUNK
};

/* Keys and values of one KV head as plain rows, and the pages that a level stored them in. */
typedef struct cache {
    pn_kv_type type;
    size_t head_dim, n_pos;
    float k[MAX_POS][MAX_DIM], v[MAX_POS][MAX_DIM];
    guarded k_mem[MAX_PAGE];
    const uint8_t *pages[MAX_PAGE];
    size_t v_off;
} cache;

static cache the_cache;

/* The K part and the V part of a page lie one behind the other, the guard behind both. */
static cache *cache_fill(const pn_kernels *kern, pn_kv_type type, size_t head_dim, size_t n_pos,
                         float k_size)
{
    cache *const c = &the_cache;
    c->type = type;
    c->head_dim = head_dim;
    c->n_pos = n_pos;
    c->v_off = pn_kv_k_bytes(type, head_dim);
    for (size_t p = 0; p < MAX_PAGE; p++) {
        c->k_mem[p] = guarded_new(c->v_off + pn_kv_v_bytes(type, head_dim));
        c->pages[p] = (const uint8_t *)c->k_mem[p].ptr;
    }
    for (size_t i = 0; i < n_pos; i++) {
        for (size_t d = 0; d < head_dim; d++) {
            c->k[i][d] = noise() * k_size;
            c->v[i][d] = noise();
        }
        char *const page = c->k_mem[i / PN_KV_CHUNK].ptr;
        kern->attn.store[type](page, page + c->v_off, i % PN_KV_CHUNK, c->k[i], c->v[i], head_dim);
    }
    return c;
}

static void cache_clear(cache *c)
{
    for (size_t p = 0; p < MAX_PAGE; p++)
        guarded_free(&c->k_mem[p]);
}

/* --- the definition --------------------------------------------------------------------------- */

static float stored(pn_kv_type type, float x)
{
    return type == PN_KV_F16 ? pn_h2f(pn_f2h(x)) : x;
}

/* x [32] -> integers, scale as f16. */
static float ref_quantize_kv(const float *x, int *q)
{
    float amax = 0.0f;
    for (int i = 0; i < 32; i++)
        amax = pn_max(fabsf(x[i]), amax);
    const float d = pn_h2f(pn_f2h(amax / 127.0f));
    for (int i = 0; i < 32; i++) {
        const float t = d == 0.0f ? 0.0f : x[i] * (1.0f / d);
        q[i] = (int)nearbyintf(t > 127.0f ? 127.0f : t < -127.0f ? -127.0f : t);
    }
    return d;
}

static float ref_score(const cache *c, const float *q, size_t i)
{
    float acc = 0.0f;
    for (size_t d = 0; c->type != PN_KV_Q8_0 && d < c->head_dim; d++)
        acc = pn_fma(stored(c->type, c->k[i][d]), q[d], acc);
    for (size_t d0 = 0; c->type == PN_KV_Q8_0 && d0 < c->head_dim; d0 += 32) {
        int kq[32], isum = 0;
        const float dk = ref_quantize_kv(c->k[i] + d0, kq);
        float amax = 0.0f;
        for (size_t d = 0; d < 32; d++)
            amax = pn_max(fabsf(q[d0 + d]), amax);
        const float is = amax < 0x1p-119f ? 0.0f : 127.0f / amax;
        for (size_t d = 0; d < 32; d++)
            isum += kq[d] * (int)nearbyintf(q[d0 + d] * is);
        acc = pn_fma(dk * (is == 0.0f ? 0.0f : 1.0f / is), (float)isum, acc);
    }
    return acc;
}

static void ref_values(const cache *c, const float *p, size_t c0, size_t n, float *o)
{
    for (size_t d = 0; c->type != PN_KV_Q8_0 && d < c->head_dim; d++) {
        o[d] = 0.0f;
        for (size_t j = 0; j < n; j++)
            o[d] = pn_fma(p[j], stored(c->type, c->v[c0 + j][d]), o[d]);
        o[d] += 0.0f;
    }
    for (size_t d0 = 0; c->type == PN_KV_Q8_0 && d0 < c->head_dim; d0 += 32) {
        int vq[PN_KV_CHUNK][32], isum[32] = { 0 };
        float w[PN_KV_CHUNK], w_max = 0.0f;
        for (size_t j = 0; j < n; j++) {
            w[j] = p[j] * ref_quantize_kv(c->v[c0 + j] + d0, vq[j]);
            w_max = w[j] > w_max ? w[j] : w_max;
        }
        const float is = w_max < 0x1p-100f ? 0.0f : 32767.0f / w_max;
        for (size_t j = 0; j < n; j++)
            for (size_t d = 0; d < 32; d++)
                isum[d] += (int)nearbyintf(w[j] * is) * vq[j][d];
        for (size_t d = 0; d < 32; d++)
            o[d0 + d] = is == 0.0f ? 0.0f : 1.0f / is * (float)isum[d];
    }
}

static float ref_sum32(const float *p)
{
    float t[32];
    memcpy(t, p, sizeof t);
    for (size_t half = 16; half; half /= 2)
        for (size_t i = 0; i < half; i++)
            t[i] += t[i + half];
    return t[0];
}

static void ref_attention(const cache *c, const float *q, int pos, float scale, float *o)
{
    float m_all = 0.0f, l_all = 0.0f;
    for (size_t c0 = 0; c0 <= (size_t)pos; c0 += PN_KV_CHUNK) {
        const size_t n = (size_t)pos + 1 - c0 < PN_KV_CHUNK ? (size_t)pos + 1 - c0 : PN_KV_CHUNK;
        float p[PN_KV_CHUNK] = { 0 }, m = 0.0f, oc[MAX_DIM];
        for (size_t j = 0; j < n; j++) {
            p[j] = ref_score(c, q, c0 + j) * scale;
            m = j == 0 || p[j] > m ? p[j] : m;
        }
        for (size_t j = 0; j < n; j++)
            p[j] = pn_exp(p[j] - m);
        const float l =
            (ref_sum32(p) + ref_sum32(p + 32)) + (ref_sum32(p + 64) + ref_sum32(p + 96));
        ref_values(c, p, c0, n, oc);
        const float m_new = m_all > m ? m_all : m;
        const float f = c0 == 0 ? 0.0f : pn_exp(m_all - m_new);
        const float g = c0 == 0 ? 1.0f : pn_exp(m - m_new);
        l_all = c0 == 0 ? l : pn_fma(l_all, f, l * g);
        for (size_t d = 0; d < c->head_dim; d++)
            o[d] = c0 == 0 ? oc[d] : pn_fma(o[d], f, oc[d] * g);
        m_all = c0 == 0 ? m : m_new;
    }
    for (size_t d = 0; d < c->head_dim; d++)
        o[d] = o[d] / l_all;
}

/* --- queries ---------------------------------------------------------------------------------- */

typedef struct queries {
    float q[MAX_Q][MAX_DIM], o[MAX_Q][MAX_DIM], want[MAX_Q][MAX_DIM];
    const float *q_ptr[MAX_Q];
    float *o_ptr[MAX_Q];
    int pos[MAX_Q];
    pn_attn_args args;
    guarded scratch;
} queries;

static queries the_queries;

static queries *queries_fill(const cache *c, size_t n_q, float q_size)
{
    queries *const s = &the_queries;
    for (size_t j = 0; j < n_q; j++) {
        for (size_t d = 0; d < c->head_dim; d++)
            s->q[j][d] = noise() * q_size;
        s->q_ptr[j] = s->q[j];
        s->o_ptr[j] = s->o[j];
        s->pos[j] = (int)below(c->n_pos);
    }
    s->scratch = guarded_new(pn_attn_scratch_bytes(c->head_dim));
    s->args = (pn_attn_args){ .type = c->type,
                              .head_dim = c->head_dim,
                              .scale = 1.0f / sqrtf((float)c->head_dim),
                              .pages = c->pages,
                              .v_off = c->v_off,
                              .q = s->q_ptr,
                              .pos = s->pos,
                              .o = s->o_ptr,
                              .n_q = n_q,
                              .scratch = s->scratch.ptr };
    return s;
}

static void want_fill(queries *s, const cache *c)
{
    for (size_t j = 0; j < s->args.n_q; j++)
        ref_attention(c, s->q[j], s->pos[j], s->args.scale, s->want[j]);
}

/* Compares bit for bit, names the first difference, and forgets the results. */
static void expect_same(queries *s, const char *what, const pn_kernels *kern)
{
    const pn_attn_args *const a = &s->args;
    for (size_t j = 0; j < a->n_q; j++)
        for (size_t d = 0; d < a->head_dim; d++)
            if (memcmp(&s->o[j][d], &s->want[j][d], 4) != 0)
                fail_msg("%s, %s, %s: head_dim %zu, query %zu of %zu at %d, d %zu: got %a, want %a",
                         what, pn_isa_name(kern->isa), pn_kv_type_name(a->type), a->head_dim, j,
                         a->n_q, s->pos[j], d, (double)s->o[j][d], (double)s->want[j][d]);
    memset(s->o, 0xff, sizeof s->o);
}

/* Computes in each way the interface allows and compares. */
static void check_all_ways(const pn_kernels *kern, const cache *c, queries *s)
{
    want_fill(s, c);
    pn_attn_rows(kern, &s->args);
    expect_same(s, "whole", kern);

    for (size_t j = 0; j < s->args.n_q;) { /* cut into random blocks of queries */
        pn_attn_args a = s->args;
        a.q += j;
        a.pos += j;
        a.o += j;
        a.n_q = 1 + below(s->args.n_q - j);
        pn_attn_rows(kern, &a);
        j += a.n_q;
    }
    expect_same(s, "cut queries", kern);

    const size_t n_chunk = (c->n_pos + PN_KV_CHUNK - 1) / PN_KV_CHUNK;
    guarded parts =
        guarded_new(pn_attn_parts_floats(c->head_dim, s->args.n_q, n_chunk) * sizeof(float));
    for (size_t end = n_chunk; end > 0;) { /* chunks apart, the last ones first */
        const size_t n = 1 + below(end);
        pn_attn_parts(kern, &s->args, end - n, end, (float *)parts.ptr);
        end -= n;
    }
    const size_t j1 = below(s->args.n_q + 1);
    pn_attn_join(kern, &s->args, (const float *)parts.ptr, j1, s->args.n_q);
    pn_attn_join(kern, &s->args, (const float *)parts.ptr, 0, j1);
    expect_same(s, "joined parts", kern);
    guarded_free(&parts);
    guarded_free(&s->scratch);
}

static void for_each_level(void (*check)(const pn_kernels *kern, pn_kv_type type))
{
    for (int isa = PN_ISA_SCALAR; isa < PN_ISA_COUNT; isa++) {
        if (!pn_isa_present((pn_isa)isa))
            continue;
        pn_kernels kern;
        pn_kernels_init(&kern, (pn_isa)isa);
        for (int type = 0; type < PN_KV_COUNT; type++)
            check(&kern, (pn_kv_type)type);
    }
}

/* --- tests ------------------------------------------------------------------------------------ */

static const size_t dims[] = { 256, 128, 64, 32, 96, 80, 16, 2, 34, 288 };

static bool takes(pn_kv_type type, size_t head_dim)
{
    return type != PN_KV_Q8_0 || head_dim % 32 == 0;
}

static void check_shapes(const pn_kernels *kern, pn_kv_type type)
{
    static const size_t n_pos[] = { 400, 128, 129, 15, 257, 1, 127, 33, 16, 2 };
    static const size_t n_q[] = { 8, 1, 13, 12, 24, 3, 16, 7, 6, 110 };
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        if (!takes(type, dims[i]))
            continue;
        cache *const c = cache_fill(kern, type, dims[i], n_pos[i], 1.0f);
        check_all_ways(kern, c, queries_fill(c, n_q[i], 1.0f));
        check_all_ways(kern, c, queries_fill(c, n_q[(i + 3) % 9], 1.0f));
        cache_clear(c);
    }
}

/* Whole results, results of cut query blocks and of chunks computed apart are the definition's
 * bits, for all head sizes, on pages whose unused positions hold NaN and that end at a guard. */
static void test_bits_of_the_definition(void **state)
{
    (void)state;
    for_each_level(check_shapes);
}

static void check_edges(const pn_kernels *kern, pn_kv_type type)
{
    static const int pos[] = {
        0, 14, 15, 16, 30, 31, 32, 62, 63, 64, 126, 127, 128, 142, 143, 255
    };
    cache *const c = cache_fill(kern, type, 64, 256, 1.0f);
    queries *s = queries_fill(c, 16, 1.0f);
    memcpy(s->pos, pos, sizeof pos);
    check_all_ways(kern, c, s);
    for (size_t j = 0; j < 16; j++) { /* a single query, nothing stored past it */
        cache_clear(c);
        cache_fill(kern, type, 64, (size_t)pos[j] + 1, 1.0f);
        s = queries_fill(c, 1, 1.0f);
        s->pos[0] = pos[j];
        check_all_ways(kern, c, s);
    }
    cache_clear(c);
}

/* Counts at the edges of tiles and chunks, alone and in one block. */
static void test_position_edges(void **state)
{
    (void)state;
    for_each_level(check_edges);
}

static void check_sizes(const pn_kernels *kern, pn_kv_type type)
{
    static const float sizes[] = { 0.0f, 1e-30f, 1e-6f, 30.0f, 3000.0f, 60000.0f / 6.0f };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        cache *const c = cache_fill(kern, type, 96, 200, sizes[i]);
        queries *const s = queries_fill(c, 9, sizes[i]);
        check_all_ways(kern, c, s);
        for (size_t j = 0; j < 9; j++)
            for (size_t d = 0; d < 96; d++)
                assert_true(isfinite(s->want[j][d]) && fabsf(s->want[j][d]) < 7.0f);
        cache_clear(c);
    }
}

/* Scores from 0 to over 10^10 neither overflow nor lose the bits: weights sum to one, so every
 * result stays within the values' range. */
static void test_score_sizes(void **state)
{
    (void)state;
    for_each_level(check_sizes);
}

/* f32 against double: |error| of a chain of n fma is under n 2^-24 sum |terms|; scores err by
 * (head_dim + 2) 2^-24 sum|q k| scale, each weight then by e^(2 err) - 1 and the few ulp of exp;
 * the chains over keys and chunks, the merges and the division add theirs. */
static void test_close_to_double(void **state)
{
    (void)state;
    pn_kernels kern;
    pn_kernels_init(&kern, pn_isa_best());
    cache *const c = cache_fill(&kern, PN_KV_F32, 128, 400, 1.0f);
    queries *const s = queries_fill(c, 20, 1.0f);
    pn_attn_rows(&kern, &s->args);
    const double eps = 0x1p-24;
    for (size_t j = 0; j < s->args.n_q; j++) {
        const size_t n = (size_t)s->pos[j] + 1;
        double score[MAX_POS], m = -INFINITY, l = 0.0, err = 0.0;
        for (size_t i = 0; i < n; i++) {
            double sum = 0.0, sum_abs = 0.0;
            for (size_t d = 0; d < 128; d++) {
                sum += (double)c->k[i][d] * (double)s->q[j][d];
                sum_abs += fabs((double)c->k[i][d] * (double)s->q[j][d]);
            }
            score[i] = sum * (double)s->args.scale;
            err = fmax(err, 130.0 * eps * sum_abs * (double)s->args.scale);
            m = fmax(m, score[i]);
        }
        for (size_t i = 0; i < n; i++)
            l += exp(score[i] - m);
        /* relative error of a weight: of its score and of the difference (|s - m| < 16), 8 ulp of
         * exp; then the chain over 128 keys and, per chunk, exp, two products and an fma. */
        const double rel = 2.0 * (2.0 * err + 16.0 * eps + 8.0 * eps) + (130.0 + 4.0 * 12.0) * eps;
        for (size_t d = 0; d < 128; d++) {
            double o = 0.0, o_abs = 0.0;
            for (size_t i = 0; i < n; i++) {
                o += exp(score[i] - m) / l * (double)c->v[i][d];
                o_abs += exp(score[i] - m) / l * fabs((double)c->v[i][d]);
            }
            if (!(fabs((double)s->o[j][d] - o) <= rel * o_abs))
                fail_msg("query %zu d %zu: got %a, double %a, bound %a", j, d, (double)s->o[j][d],
                         o, rel * o_abs);
        }
    }
    guarded_free(&s->scratch);
    cache_clear(c);
}

static void check_store(const pn_kernels *kern, pn_kv_type type)
{
    pn_kernels scalar;
    pn_kernels_init(&scalar, PN_ISA_SCALAR);
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        if (!takes(type, dims[i]))
            continue;
        const size_t kb = pn_kv_k_bytes(type, dims[i]), vb = pn_kv_v_bytes(type, dims[i]);
        guarded got_k = guarded_new(kb), got_v = guarded_new(vb);
        guarded want_k = guarded_new(kb), want_v = guarded_new(vb);
        for (size_t round = 0; round < 40; round++) {
            float k[MAX_DIM], v[MAX_DIM];
            const size_t at = round < 4 ? round : below(PN_KV_CHUNK);
            const float size = ldexpf(1.0f, (int)below(60) - 40);
            for (size_t d = 0; d < dims[i]; d++) {
                k[d] = noise() * size;
                v[d] = noise() * (round % 5 ? size : 0.0f);
            }
            if (round == 7)
                k[0] = INFINITY;
            if (round == 8)
                v[dims[i] - 1] = NAN;
            kern->attn.store[type](got_k.ptr, got_v.ptr, at, k, v, dims[i]);
            scalar.attn.store[type](want_k.ptr, want_v.ptr, at, k, v, dims[i]);
            assert_memory_equal(got_k.ptr, want_k.ptr, kb);
            assert_memory_equal(got_v.ptr, want_v.ptr, vb);
        }
        guarded_free(&got_k);
        guarded_free(&got_v);
        guarded_free(&want_k);
        guarded_free(&want_v);
    }
}

/* Storing writes the scalar level's bytes and no others, infinities and subnormals included. */
static void test_store(void **state)
{
    (void)state;
    for_each_level(check_store);
}

static void check_not_finite(const pn_kernels *kern, pn_kv_type type)
{
    for (int in_v = 0; in_v < 2; in_v++) {
        cache *const c = cache_fill(kern, type, 64, 140, 1.0f);
        queries *const s = queries_fill(c, 5, 1.0f);
        c->k[130][3] = in_v ? 0.0f : -INFINITY;
        c->v[130][40] = in_v ? INFINITY : 0.0f;
        char *const page = c->k_mem[1].ptr;
        kern->attn.store[type](page, page + c->v_off, 2, c->k[130], c->v[130], 64);
        const int pos[5] = { 129, 130, 131, 139, 127 };
        memcpy(s->pos, pos, sizeof pos);
        for (size_t j = 0; j < 5; j++)
            s->q[j][3] = 1.0f; /* the score of -infinity in f32 is legal: weight 0 */
        pn_attn_rows(kern, &s->args);
        for (size_t j = 1; j < 4 && (in_v || type != PN_KV_F32); j++)
            assert_false(isfinite(s->o[j][40]));
        guarded_free(&s->scratch);
        cache_clear(c);
    }
}

/* A stored value past the type's range reaches every query that sees it as NaN or infinity. */
static void test_overflow_is_not_hidden(void **state)
{
    (void)state;
    for_each_level(check_not_finite);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits_of_the_definition),
        cmocka_unit_test(test_position_edges),
        cmocka_unit_test(test_score_sizes),
        cmocka_unit_test(test_close_to_double),
        cmocka_unit_test(test_store),
        cmocka_unit_test(test_overflow_is_not_hidden),
    };
    return cmocka_run_group_tests_name("attention", tests, NULL, NULL);
}
