/* sampling/: choices against a plain double reference, properties that hold for any logits, the
 * generator's published vectors, and stop strings against a search of the whole text. */

#include "support/check.h"

#include "base/mem.h"
#include "sampling/rng.h"
#include "sampling/sampler.h"
#include "sampling/stop.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A number for test data, not the generator under test. */
static uint64_t test_state = 1;
static uint32_t next_u32(void)
{
    test_state = test_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(test_state >> 32);
}
static double next_unit(void)
{
    return next_u32() / 4294967296.0;
}

/* Published known answers of Random123 (kat_vectors, philox 4x32 10). */
static void test_philox_known_answers(void **state)
{
    (void)state;
    static const struct {
        uint32_t x[4], key[2], want[4];
    } kat[] = {
        { { 0, 0, 0, 0 }, { 0, 0 }, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
        { { ~0u, ~0u, ~0u, ~0u },
          { ~0u, ~0u },
          { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
        { { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 },
          { 0xa4093822, 0x299f31d0 },
          { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
    };
    for (size_t i = 0; i < 3; i++) {
        uint32_t x[4];
        memcpy(x, kat[i].x, sizeof x);
        pn_philox(x, kat[i].key);
        assert_memory_equal(x, kat[i].want, sizeof x);
    }
}

typedef struct rig {
    pn_sampler *s;
    pn_sampler_space *space;
} rig;

static rig rig_new(const pn_sampler_opts *o, size_t n_vocab)
{
    rig r;
    assert_int_equal(pn_sampler_new(o, &r.s, NULL), PN_OK);
    assert_int_equal(pn_sampler_space_new(n_vocab, &r.space, NULL), PN_OK);
    return r;
}

static void rig_free(rig *r)
{
    pn_sampler_free(r->s);
    pn_sampler_space_free(r->space);
}

static int32_t pick(const rig *r, const float *logits, uint64_t pos)
{
    int32_t t = -1;
    assert_int_equal(pn_sampler_pick(r->s, r->space, logits, NULL, pos, &t, NULL), PN_OK);
    return t;
}

static size_t argmax(const float *l, size_t n)
{
    size_t at = 0;
    for (size_t i = 1; i < n; i++)
        at = l[i] > l[at] ? i : at;
    return at;
}

/* Temperature 0, top_k 1, top_p 0, min_p 1 and a temperature near 0 all choose the likeliest, of
 * equals the lowest id. */
static void test_all_ways_to_argmax(void **state)
{
    (void)state;
    enum {
        N = 1000
    };
    static const pn_sampler_opts ways[] = {
        { .temperature = 0 },
        { .temperature = 5, .top_k = 1, .top_p = 1 },
        { .temperature = 5, .top_k = 0, .top_p = 0 },
        { .temperature = 5, .top_k = 7, .top_p = 0 },
        { .temperature = 2, .top_k = 0, .top_p = 1, .min_p = 1 },
        { .temperature = 1e-6f, .top_p = 1 },
    };
    for (int round = 0; round < 50; round++) {
        float l[N];
        for (size_t i = 0; i < N; i++)
            l[i] = (float)(next_unit() * 20 - 10);
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
            rig r = rig_new(&ways[w], N);
            assert_int_equal(pick(&r, l, (uint64_t)round), argmax(l, N));
            rig_free(&r);
        }
        l[900] = l[901] = l[950] = 11;
        rig r = rig_new(&ways[0], N);
        assert_int_equal(pick(&r, l, 0), 900);
        rig_free(&r);
    }
}

/* --- a plain reference in double -------------------------------------------------------------- */

static const double *sort_key;
static int by_key(const void *a, const void *b)
{
    const int i = *(const int *)a, j = *(const int *)b;
    return sort_key[i] != sort_key[j] ? (sort_key[i] < sort_key[j] ? 1 : -1) : i - j;
}

/* The kept set's probabilities, in p [n] (0: dropped), as the header says: temperature, top-k,
 * top-p of what is left, min-p. *margin: how near a border of top-p or min-p comes to a token. */
static void reference(const pn_sampler_opts *o, const float *l, int n, double *p, double *margin)
{
    int *const at = pn_calloc((size_t)n, sizeof *at);
    double *const w = pn_calloc((size_t)n, sizeof *w);
    double max = l[argmax(l, (size_t)n)], sum = 0, run = 0, kept = 0;
    for (int i = 0; i < n; i++) {
        w[i] = exp((l[i] - max) / o->temperature);
        at[i] = i;
        p[i] = 0;
    }
    sort_key = w;
    qsort(at, (size_t)n, sizeof *at, by_key);
    const int k = o->top_k && o->top_k < n ? o->top_k : n;
    for (int i = 0; i < k; i++)
        sum += w[at[i]];
    *margin = 1;
    for (int i = 0; i < k; i++) {
        const double border = run / sum - o->top_p, least = w[at[i]] - o->min_p;
        if (o->top_p < 1 && i > 0)
            *margin = fmin(*margin, fabs(border));
        if (o->min_p > 0 && i > 0)
            *margin = fmin(*margin, fabs(least));
        if (i > 0 && ((o->top_p < 1 && border >= 0) || least < 0))
            break;
        run += w[at[i]];
        kept += p[at[i]] = w[at[i]];
    }
    for (int i = 0; i < n; i++)
        p[i] /= kept;
    pn_free(at);
    pn_free(w);
}

/* Over many positions the choices are distributed as the reference says: nothing outside the kept
 * set, and Pearson's chi-square of the rest within six standard deviations of its mean. */
static void test_distribution(void **state)
{
    (void)state;
    enum {
        N_MAX = 600,
        N_DRAW = 20000
    };
    static const pn_sampler_opts opts[] = {
        { .temperature = 1, .top_p = 1 },
        { .temperature = 0.7f, .top_k = 20, .top_p = 0.8f },
        { .temperature = 1, .top_k = 20, .top_p = 0.95f },
        { .temperature = 1.5f, .top_p = 0.9f },
        { .temperature = 2, .top_k = 50, .top_p = 1, .min_p = 0.1f },
        { .temperature = 3, .top_p = 0.99f, .min_p = 0.01f, .seed = 1234567890123u },
        { .temperature = 100, .top_p = 1, .i_choice = 3 },
    };
    for (size_t c = 0; c < sizeof opts / sizeof *opts; c++) {
        const int n = c % 2 ? N_MAX : 40;
        float l[N_MAX];
        double p[N_MAX], margin = 0;
        while (margin < 1e-5) { /* a border that rounding could move decides nothing */
            for (int i = 0; i < n; i++)
                l[i] = (float)(next_unit() * 8);
            reference(&opts[c], l, n, p, &margin);
        }
        rig r = rig_new(&opts[c], (size_t)n);
        int hits[N_MAX] = { 0 }, df = -1;
        for (int i = 0; i < N_DRAW; i++)
            hits[pick(&r, l, (uint64_t)i)]++;
        double chi2 = 0;
        for (int i = 0; i < n; i++) {
            if (p[i] == 0)
                assert_int_equal(hits[i], 0);
            else
                chi2 += pow(hits[i] - N_DRAW * p[i], 2) / (N_DRAW * p[i]), df++;
        }
        /* With rare tokens the variance of the statistic is 2 df + sum of 1 / expected. */
        double var = 2.0 * df;
        for (int i = 0; i < n; i++)
            var += p[i] > 0 ? 1 / (N_DRAW * p[i]) : 0;
        if (fabs(chi2 - df) > 6 * sqrt(var) + 1)
            fail_msg("case %zu: chi-square %g for %d degrees of freedom", c, chi2, df);
        rig_free(&r);
    }
}

/* Many small random cases: what is chosen over 300 positions is exactly the kept set's support
 * where that is small, and never outside it. */
static void test_kept_sets(void **state)
{
    (void)state;
    enum {
        N = 30
    };
    for (int round = 0; round < 400; round++) {
        const pn_sampler_opts o = {
            .temperature = (float)(0.3 + next_unit()),
            .top_k = (int32_t)(next_u32() % 8),
            .top_p = next_u32() % 3 ? (float)next_unit() : 1,
            .min_p = next_u32() % 2 ? (float)next_unit() : 0,
            .seed = next_u32(),
        };
        float l[N];
        for (size_t i = 0; i < N; i++)
            l[i] = (float)(next_u32() % 16) / 4; /* with ties */
        double p[N], margin;
        reference(&o, l, N, p, &margin);
        if (margin < 1e-5)
            continue;
        rig r = rig_new(&o, N);
        bool hit[N] = { false };
        for (uint64_t pos = 0; pos < 300; pos++)
            hit[pick(&r, l, pos)] = true;
        for (size_t i = 0; i < N; i++)
            if (p[i] == 0 ? hit[i] : !hit[i] && p[i] > 0.07) /* 0.93^300 < 1e-9 */
                fail_msg("round %d: token %zu, p %g, %s", round, i, p[i],
                         hit[i] ? "chosen" : "never chosen");
        rig_free(&r);
    }
}

/* A large vocabulary with top_k off or large, many ties among the logits: the choice is that of a
 * full sort. */
static void test_large_row(void **state)
{
    (void)state;
    enum {
        N = 20000
    };
    float *const l = pn_calloc(N, sizeof *l);
    int *const at = pn_calloc(N, sizeof *at);
    double *const key = pn_calloc(N, sizeof *key);
    for (int i = 0; i < N; i++) {
        l[i] = (float)(next_u32() % 64) / 64 - 0.5f;
        if (l[i] == 0 && i % 2)
            l[i] = -0.0f;
        key[i] = l[i];
        at[i] = i;
    }
    sort_key = key;
    qsort(at, N, sizeof *at, by_key);
    for (int k = 513; k <= N; k += 3247) {
        const pn_sampler_opts o = { .temperature = 1, .top_p = 1, .top_k = k % N, .seed = 5 };
        const int n_row = o.top_k ? o.top_k : N;
        rig r = rig_new(&o, N);
        double sum = 0;
        for (int i = 0; i < n_row; i++)
            sum += exp(l[at[i]] - l[at[0]]);
        for (uint64_t pos = 0; pos < 60; pos++) {
            const double u = (double)pn_rng_bits(5, 0, pos) / 18446744073709551616.0;
            double run = 0;
            int i = 0;
            while (i + 1 < n_row && (run += exp(l[at[i]] - l[at[0]])) <= u * sum)
                i++;
            const int32_t got = pick(&r, l, pos);
            /* Sums in double and in units of 2^-40 part only next to a border. */
            if (got != at[i] && (i + 1 == n_row || got != at[i + 1]) &&
                (i == 0 || got != at[i - 1]))
                fail_msg("top_k %d, position %d: got %d, expected %d", k, (int)pos, (int)got,
                         at[i]);
        }
        rig_free(&r);
    }
    pn_free(l);
    pn_free(at);
    pn_free(key);
}

/* The two ways to draw, a sorted row and a search over all weights, choose the same: tokens of no
 * weight behind the others change nothing but the way. */
static void test_few_equals_many(void **state)
{
    (void)state;
    enum {
        N = 40,
        N_PADDED = 1000
    };
    for (int round = 0; round < 300; round++) {
        pn_sampler_opts o = {
            .temperature = (float)(0.3 + next_unit()),
            .top_p = next_u32() % 3 ? (float)next_unit() : 1,
            .min_p = next_u32() % 2 ? (float)next_unit() : 0,
            .seed = next_u32(),
        };
        float l[N_PADDED];
        for (size_t i = 0; i < N_PADDED; i++)
            l[i] = i < N ? (float)(next_u32() % 32) / 8 - 2 : i % 2 ? -1000 : -INFINITY;
        rig few = rig_new(&o, N);
        o.top_k = round % 2 ? 700 : 0;
        rig many = rig_new(&o, N_PADDED);
        for (uint64_t pos = 0; pos < 40; pos++)
            assert_int_equal(pick(&few, l, pos), pick(&many, l, pos));
        rig_free(&few);
        rig_free(&many);
    }
}

/* A choice depends on its own logits, history, seed, choice index and position, on nothing else:
 * not on what was drawn before with the same space, nor on how often. */
static void test_independence(void **state)
{
    (void)state;
    enum {
        N = 500
    };
    const pn_sampler_opts a = { .temperature = 1,
                                .top_k = 20,
                                .top_p = 0.95f,
                                .seed = 7,
                                .presence_penalty = 1.5f,
                                .repeat_penalty = 1.3f,
                                .repeat_last_n = 64 },
                          b = { .temperature = 2,
                                .top_p = 1,
                                .seed = 8,
                                .repeat_penalty = 2,
                                .repeat_last_n = 3 };
    float l[N];
    for (size_t i = 0; i < N; i++)
        l[i] = (float)(next_unit() * 10 - 5);
    rig ra = rig_new(&a, N), rb = rig_new(&b, N), alone = rig_new(&a, N);
    int n_same_seed = 0;
    for (uint64_t pos = 0; pos < 100; pos++) {
        const int32_t want = pick(&alone, l, pos);
        int32_t other, got;
        assert_int_equal(pn_sampler_pick(rb.s, ra.space, l, NULL, pos, &other, NULL), PN_OK);
        assert_int_equal(pn_sampler_pick(ra.s, ra.space, l, NULL, pos, &got, NULL), PN_OK);
        assert_int_equal(got, want);
        assert_int_equal(pick(&ra, l, pos), want);
        n_same_seed += other == want;
        assert_int_equal(pn_sampler_accept(alone.s, want, NULL), PN_OK);
        assert_int_equal(pn_sampler_accept(ra.s, got, NULL), PN_OK);
        assert_int_equal(pn_sampler_accept(rb.s, other, NULL), PN_OK);
    }
    assert_in_range(n_same_seed, 0, 50);
    rig_free(&ra);
    rig_free(&rb);
    rig_free(&alone);

    int n_differ[3] = { 0 };
    for (int way = 0; way < 3; way++) { /* seed, choice and position each make other choices */
        for (uint64_t pos = 0; pos < 200; pos++) {
            const uint64_t x = pn_rng_bits(1, 0, pos);
            const uint64_t y = pn_rng_bits(1 + (way == 0), way == 1, pos + (way == 2));
            n_differ[way] += x != y;
        }
        assert_int_equal(n_differ[way], 200);
    }
}

/* Penalties against the formula: repetition on the recent tokens once each, presence once and
 * frequency by count over all generated ones, in that order. */
static void test_penalties(void **state)
{
    (void)state;
    enum {
        N = 64
    };
    for (int round = 0; round < 300; round++) {
        const pn_sampler_opts o = {
            .presence_penalty = (float)(next_unit() * 4 - 2),
            .frequency_penalty = (float)(next_unit() * 4 - 2),
            .repeat_penalty = round % 3 ? (float)(0.5 + next_unit()) : 1,
            .repeat_last_n = (int32_t)(next_u32() % 80),
        };
        float l[N];
        double want[N];
        for (size_t i = 0; i < N; i++)
            want[i] = l[i] = (float)(next_unit() * 10 - 5);
        rig r = rig_new(&o, N);
        const int n_gen = (int)(next_u32() % 150);
        int32_t gen[150];
        int count[N] = { 0 };
        for (int i = 0; i < n_gen; i++) {
            gen[i] = (int32_t)(next_u32() % (round % 2 ? 8 : N));
            count[gen[i]]++;
            assert_int_equal(pn_sampler_accept(r.s, gen[i], NULL), PN_OK);
        }
        for (int t = 0; t < N; t++) {
            bool is_recent = false;
            for (int i = n_gen - o.repeat_last_n < 0 ? 0 : n_gen - o.repeat_last_n; i < n_gen; i++)
                is_recent |= gen[i] == t;
            if (is_recent)
                want[t] = want[t] > 0 ? want[t] / o.repeat_penalty : want[t] * o.repeat_penalty;
            want[t] -= (count[t] > 0) * o.presence_penalty + count[t] * o.frequency_penalty;
        }
        int best = 0;
        for (int t = 1; t < N; t++)
            best = want[t] > want[best] ? t : best;
        const int32_t got = pick(&r, l, 0);
        assert_int_equal(pick(&r, l, 1), got); /* greedy: a second look is the same */
        if (got != best && want[best] - want[got] > 1e-4)
            fail_msg("round %d: got %d (%g), expected %d (%g)", round, (int)got, want[got], best,
                     want[best]);
        rig_free(&r);
    }
}

/* Parameters out of range are refused by name; NaN too. Zero and the defaults pass. */
static void test_ranges(void **state)
{
    (void)state;
    static const struct {
        pn_sampler_opts o;
        const char *name;
    } bad[] = {
        { { .temperature = NAN }, "temperature" },
        { { .temperature = -0.1f }, "temperature" },
        { { .temperature = 101 }, "temperature" },
        { { .temperature = INFINITY }, "temperature" },
        { { .top_k = -1 }, "top_k" },
        { { .top_p = 1.01f }, "top_p" },
        { { .top_p = NAN }, "top_p" },
        { { .min_p = -1 }, "min_p" },
        { { .presence_penalty = 2.5f }, "presence_penalty" },
        { { .frequency_penalty = -INFINITY }, "frequency_penalty" },
        { { .repeat_penalty = -1 }, "repeat_penalty" },
        { { .repeat_penalty = NAN }, "repeat_penalty" },
        { { .repeat_last_n = -1 }, "repeat_last_n" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pn_sampler *s = NULL;
        pn_err err = { 0 };
        assert_int_equal(pn_sampler_new(&bad[i].o, &s, &err), PN_ERR_ARG);
        assert_null(s);
        assert_memory_equal(err.msg, bad[i].name, strlen(bad[i].name));
    }
    assert_int_equal(pn_sampler_check(&(pn_sampler_opts){ 0 }, NULL), PN_OK);
    for (int m = 0; m < 3; m++) {
        pn_sampler_opts o = pn_sampler_defaults((pn_sampler_mode)m);
        assert_int_equal(pn_sampler_check(&o, NULL), PN_OK);
        assert_int_equal(o.top_k, 20);
        pn_sampler_set_greedy(&o);
        assert_true(o.temperature == 0 && o.presence_penalty == 0);
    }
}

/* Logits that are no numbers are an error, never a token; -infinity forbids one. */
static void test_bad_logits(void **state)
{
    (void)state;
    float l[100];
    const pn_sampler_opts o[] = { { 0 }, { .temperature = 1, .top_p = 1 } };
    for (int way = 0; way < 2; way++) {
        rig r = rig_new(&o[way], 100);
        int32_t t = -7;
        for (int i = 0; i < 100; i++)
            l[i] = -INFINITY;
        assert_int_equal(pn_sampler_pick(r.s, r.space, l, NULL, 0, &t, NULL), PN_ERR_ARG);
        l[42] = -3;
        assert_int_equal(pick(&r, l, 0), 42);
        l[99] = NAN;
        assert_int_equal(pn_sampler_pick(r.s, r.space, l, NULL, 0, &t, NULL), PN_ERR_NUMERIC);
        l[99] = INFINITY;
        assert_int_equal(pn_sampler_pick(r.s, r.space, l, NULL, 0, &t, NULL), PN_ERR_NUMERIC);
        assert_int_equal(t, -7);
        rig_free(&r);
    }
}

/* Log-probabilities agree with double, come likeliest first, and those of all tokens sum to 1. */
static void test_logprobs(void **state)
{
    (void)state;
    enum {
        N = 90
    };
    float l[N];
    double sum = 0, total = 0;
    for (size_t i = 0; i < N; i++) {
        l[i] = (float)(next_unit() * 30 - 10);
        sum += exp(l[i]);
    }
    rig r = rig_new(&(pn_sampler_opts){ 0 }, N);
    pn_logprob chosen, top[N];
    assert_int_equal(pn_logprobs(r.space, l, 17, &chosen, N, top, NULL), PN_OK);
    assert_int_equal(chosen.token, 17);
    assert_true(fabs(chosen.logprob - (l[17] - log(sum))) < 1e-5);
    for (size_t i = 0; i < N; i++) {
        assert_true(fabs(top[i].logprob - (l[top[i].token] - log(sum))) < 1e-5);
        assert_true(i == 0 || top[i].logprob <= top[i - 1].logprob);
        total += exp(top[i].logprob);
    }
    assert_true(fabs(total - 1) < 1e-5);
    rig_free(&r);
}

/* --- stop strings ----------------------------------------------------------------------------- */

/* Where the first complete string ends, and where the longest that ends there begins; else n. */
static size_t find_stop(const char *text, size_t n, const pn_span *stops, size_t n_stop)
{
    for (size_t end = 1; end <= n; end++) {
        size_t longest = 0;
        for (size_t k = 0; k < n_stop; k++)
            if (stops[k].len <= end && stops[k].len > longest &&
                memcmp(text + end - stops[k].len, stops[k].ptr, stops[k].len) == 0)
                longest = stops[k].len;
        if (longest)
            return end - longest;
    }
    return n;
}

/* Random texts over two letters, so that prefixes overlap in every way, in pieces of any length:
 * what comes out is the text up to the first stop string, and never less than can be told. */
static void test_stop_equals_search(void **state)
{
    (void)state;
    for (int round = 0; round < 20000; round++) {
        char text[40], stops_text[3][6];
        pn_span stops[3];
        const size_t n = next_u32() % sizeof text, n_stop = next_u32() % 4;
        for (size_t i = 0; i < n; i++)
            text[i] = "ab"[next_u32() % 2];
        for (size_t k = 0; k < n_stop; k++) {
            stops[k] = (pn_span){ stops_text[k], 1 + next_u32() % 6 };
            for (size_t i = 0; i < stops[k].len; i++)
                stops_text[k][i] = "ab"[next_u32() % 2];
        }
        pn_stop *s;
        assert_int_equal(pn_stop_new(stops, n_stop, &s, NULL), PN_OK);
        pn_buf out = { 0 };
        bool done = false;
        size_t which = 99;
        for (size_t i = 0; i < n;) {
            const size_t piece = 1 + next_u32() % 5, len = piece < n - i ? piece : n - i;
            done = pn_stop_feed(s, text + i, len, &out, &which);
            i += len;
            if (!done) { /* held back: exactly the longest end that begins a string */
                size_t hold = 0;
                for (size_t h = 1; h <= i; h++)
                    for (size_t k = 0; k < n_stop; k++)
                        if (h < stops[k].len && memcmp(text + i - h, stops[k].ptr, h) == 0)
                            hold = h;
                assert_int_equal(out.len, i - hold);
            }
        }
        pn_stop_flush(s, &out);
        const size_t want = find_stop(text, n, stops, n_stop);
        assert_int_equal(out.len, want);
        if (want)
            assert_memory_equal(out.ptr, text, want);
        assert_int_equal(done, want < n);
        if (done)
            assert_memory_equal(text + want, stops[which].ptr, stops[which].len);
        pn_buf_free(&out);
        pn_stop_free(s);
    }
}

/* Too many, empty and too long stop strings are refused; the longest allowed one works. */
static void test_stop_limits(void **state)
{
    (void)state;
    static char big[PN_STOP_MAX_BYTES + 1];
    memset(big, 'x', sizeof big);
    pn_span many[PN_STOP_MAX_STRINGS + 1];
    for (size_t i = 0; i < sizeof many / sizeof *many; i++)
        many[i] = (pn_span){ "x", 1 };
    pn_stop *s = NULL;
    pn_err err = { 0 };
    assert_int_equal(pn_stop_new(many, PN_STOP_MAX_STRINGS + 1, &s, &err), PN_ERR_ARG);
    many[1] = (pn_span){ "", 0 };
    assert_int_equal(pn_stop_new(many, 2, &s, &err), PN_ERR_ARG);
    assert_string_equal(err.msg, "stop[1]: found 0 bytes, expected 1 to 1024");
    many[0] = (pn_span){ big, PN_STOP_MAX_BYTES + 1 };
    assert_int_equal(pn_stop_new(many, 1, &s, &err), PN_ERR_ARG);
    many[0].len--;
    assert_int_equal(pn_stop_new(many, 1, &s, &err), PN_OK);
    pn_buf out = { 0 };
    assert_false(pn_stop_feed(s, big, PN_STOP_MAX_BYTES - 1, &out, NULL));
    assert_int_equal(out.len, 0);
    assert_false(pn_stop_feed(s, "yx", 2, &out, NULL));
    assert_int_equal(out.len, PN_STOP_MAX_BYTES);
    pn_stop_flush(s, &out);
    assert_int_equal(out.len, PN_STOP_MAX_BYTES + 1);
    pn_buf_free(&out);
    pn_stop_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox_known_answers),
        cmocka_unit_test(test_all_ways_to_argmax),
        cmocka_unit_test(test_distribution),
        cmocka_unit_test(test_kept_sets),
        cmocka_unit_test(test_large_row),
        cmocka_unit_test(test_few_equals_many),
        cmocka_unit_test(test_independence),
        cmocka_unit_test(test_penalties),
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_bad_logits),
        cmocka_unit_test(test_logprobs),
        cmocka_unit_test(test_stop_equals_search),
        cmocka_unit_test(test_stop_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
