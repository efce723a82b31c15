#include "sampling/sampler.h"

#include "base/arith.h"
#include "base/mem.h"
#include "sampling/rng.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* --- options ---------------------------------------------------------------------------------- */

pn_sampler_opts pn_sampler_defaults(pn_sampler_mode mode)
{
    pn_sampler_opts o = { .temperature = 1.0f,
                          .top_k = 20,
                          .top_p = 0.95f,
                          .presence_penalty = 1.5f,
                          .repeat_penalty = 1.0f,
                          .repeat_last_n = 64 };
    if (mode == PN_SAMPLER_THINK_CODE) {
        o.temperature = 0.6f;
        o.presence_penalty = 0.0f;
    } else if (mode == PN_SAMPLER_NO_THINK) {
        o.temperature = 0.7f;
        o.top_p = 0.8f;
    }
    return o;
}

void pn_sampler_set_greedy(pn_sampler_opts *o)
{
    o->temperature = 0.0f;
    o->presence_penalty = o->frequency_penalty = 0.0f;
    o->repeat_penalty = 1.0f;
}

static pn_status check_real(const char *name, float x, float lo, float hi, pn_err *err)
{
    if (x >= lo && x <= hi) /* false for NaN */
        return PN_OK;
    return pn_fail(err, PN_ERR_ARG, "%s: found %g, expected %g to %g", name, (double)x, (double)lo,
                   (double)hi);
}

pn_status pn_sampler_check(const pn_sampler_opts *o, pn_err *err)
{
    PN_TRY(check_real("temperature", o->temperature, 0.0f, 100.0f, err));
    if (o->top_k < 0)
        return pn_fail(err, PN_ERR_ARG, "top_k: found %d, expected 0 or more", (int)o->top_k);
    PN_TRY(check_real("top_p", o->top_p, 0.0f, 1.0f, err));
    PN_TRY(check_real("min_p", o->min_p, 0.0f, 1.0f, err));
    PN_TRY(check_real("presence_penalty", o->presence_penalty, -2.0f, 2.0f, err));
    PN_TRY(check_real("frequency_penalty", o->frequency_penalty, -2.0f, 2.0f, err));
    if (o->repeat_penalty != 0.0f)
        PN_TRY(check_real("repeat_penalty", o->repeat_penalty, 0.01f, 100.0f, err));
    if (o->repeat_last_n < 0)
        return pn_fail(err, PN_ERR_ARG, "repeat_last_n: found %d, expected 0 or more",
                       (int)o->repeat_last_n);
    return PN_OK;
}

/* --- history ---------------------------------------------------------------------------------- */

#define FORBIDS -100.0f /* this bias; -FORBIDS is the largest */

typedef struct count {
    int32_t token; /* valid when n > 0 */
    uint32_t n;    /* times generated */
} count;

struct pn_sampler {
    pn_sampler_opts opts;
    pn_logit_bias *bias; /* [n_bias], owned */
    size_t n_bias;
    bool is_paused;   /* the penalties */
    int32_t *history; /* [n_history], oldest first */
    size_t n_history, cap_history;
    count *counts; /* [cap_count], open addressing by token; a power of two, or 0 */
    size_t n_count, cap_count;
};

pn_status pn_sampler_new(const pn_sampler_opts *o, pn_sampler **out, pn_err *err)
{
    PN_TRY(pn_sampler_check(o, err));
    pn_sampler *const s = pn_calloc(1, sizeof *s);
    if (!s)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for a sampler");
    s->opts = *o;
    *out = s;
    return PN_OK;
}

void pn_sampler_free(pn_sampler *s)
{
    if (!s)
        return;
    pn_free(s->bias);
    pn_free(s->history);
    pn_free(s->counts);
    pn_free(s);
}

pn_status pn_sampler_set_bias(pn_sampler *s, const pn_logit_bias *bias, size_t n, size_t n_vocab,
                              pn_err *err)
{
    if (n > PN_MAX_LOGIT_BIAS)
        return pn_fail(err, PN_ERR_ARG, "logit_bias: found %zu tokens, expected at most %d", n,
                       PN_MAX_LOGIT_BIAS);
    for (size_t i = 0; i < n; i++) {
        PN_TRY(check_real("logit_bias", bias[i].bias, FORBIDS, -FORBIDS, err));
        if (bias[i].token < 0 || (size_t)bias[i].token >= n_vocab)
            return pn_fail(err, PN_ERR_ARG, "logit_bias: token id %d, expected 0 to %zu",
                           (int)bias[i].token, n_vocab - 1);
    }
    pn_logit_bias *const copy = pn_calloc(n, sizeof *copy);
    if (!copy)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for the bias of %zu tokens", n);
    for (size_t i = 0; i < n; i++)
        copy[i] = bias[i];
    pn_free(s->bias);
    s->bias = copy;
    s->n_bias = n;
    return PN_OK;
}

void pn_sampler_pause_penalties(pn_sampler *s, bool is_paused)
{
    s->is_paused = is_paused;
}

/* The token's place in a table of cap entries that has room: its own or the first free one. */
static count *find_count(count *counts, size_t cap, int32_t token)
{
    /* Knuth's multiplicative hash; neighbouring ids spread. */
    size_t i = ((uint32_t)token * 2654435769u >> 7) & (cap - 1);
    while (counts[i].n && counts[i].token != token)
        i = (i + 1) & (cap - 1);
    return &counts[i];
}

/* Doubles the table when it is half full. */
static bool grow_counts(pn_sampler *s)
{
    if (2 * (s->n_count + 1) <= s->cap_count)
        return true;
    const size_t cap = s->cap_count ? 2 * s->cap_count : 64;
    count *const counts = pn_calloc(cap, sizeof *counts);
    if (!counts)
        return false;
    for (size_t i = 0; i < s->cap_count; i++)
        if (s->counts[i].n)
            *find_count(counts, cap, s->counts[i].token) = s->counts[i];
    pn_free(s->counts);
    s->counts = counts;
    s->cap_count = cap;
    return true;
}

pn_status pn_sampler_accept(pn_sampler *s, int32_t token, pn_err *err)
{
    if (s->is_paused)
        return PN_OK;
    if (s->n_history == s->cap_history) {
        const size_t cap = s->cap_history ? 2 * s->cap_history : 256;
        int32_t *const p = pn_realloc(s->history, cap, sizeof *p);
        if (!p)
            return pn_fail(err, PN_ERR_NOMEM, "no memory for the generated tokens");
        s->history = p;
        s->cap_history = cap;
    }
    if (!grow_counts(s))
        return pn_fail(err, PN_ERR_NOMEM, "no memory for the generated tokens");
    count *const c = find_count(s->counts, s->cap_count, token);
    s->n_count += c->n == 0;
    *c = (count){ token, c->n + 1 };
    s->history[s->n_history++] = token;
    return PN_OK;
}

/* --- choosing --------------------------------------------------------------------------------- */

enum {
    FEW = 512 /* up to here a heap and a sorted row are faster than passes over all weights */
};

struct pn_sampler_space {
    size_t n_vocab;
    float *logits;     /* [n_vocab], after bias, penalties and mask */
    int32_t *order;    /* [FEW], the likeliest */
    uint64_t *weights; /* [n_vocab] */
    uint64_t *seen;    /* [n_vocab / 64 + 1] bits, all 0 between calls */
};

pn_status pn_sampler_space_new(size_t n_vocab, pn_sampler_space **out, pn_err *err)
{
    pn_sampler_space *const sp = pn_calloc(1, sizeof *sp);
    if (sp) {
        sp->n_vocab = n_vocab;
        sp->logits = pn_calloc(n_vocab, sizeof *sp->logits);
        sp->order = pn_calloc(FEW, sizeof *sp->order);
        sp->weights = pn_calloc(n_vocab, sizeof *sp->weights);
        sp->seen = pn_calloc(n_vocab / 64 + 1, sizeof *sp->seen);
    }
    if (!sp || !sp->logits || !sp->order || !sp->weights || !sp->seen) {
        pn_sampler_space_free(sp);
        return pn_fail(err, PN_ERR_NOMEM, "no memory to sample from %zu tokens", n_vocab);
    }
    *out = sp;
    return PN_OK;
}

void pn_sampler_space_free(pn_sampler_space *sp)
{
    if (!sp)
        return;
    pn_free(sp->logits);
    pn_free(sp->order);
    pn_free(sp->weights);
    pn_free(sp->seen);
    pn_free(sp);
}

static bool has_penalties(const pn_sampler *s)
{
    const pn_sampler_opts *const o = &s->opts;
    return s->n_history && !s->is_paused &&
           (o->presence_penalty != 0 || o->frequency_penalty != 0 ||
            (o->repeat_penalty != 0 && o->repeat_penalty != 1 && o->repeat_last_n));
}

static void add_bias(const pn_sampler *s, float *logits, size_t n_vocab)
{
    for (size_t i = 0; i < s->n_bias; i++) {
        const pn_logit_bias *const b = &s->bias[i];
        if ((size_t)b->token < n_vocab)
            logits[b->token] += b->bias == FORBIDS ? -INFINITY : b->bias;
    }
}

/* Takes the penalties off, each distinct token once. */
static void penalize(const pn_sampler *s, pn_sampler_space *sp)
{
    const pn_sampler_opts *const o = &s->opts;
    const size_t n_recent = o->repeat_penalty == 0 || o->repeat_penalty == 1 ? 0
                            : (size_t)o->repeat_last_n < s->n_history ? (size_t)o->repeat_last_n
                                                                      : s->n_history;
    const int32_t *const recent = s->history + (s->n_history - n_recent);
    for (size_t i = 0; i < n_recent; i++) {
        const uint32_t t = (uint32_t)recent[i];
        if (t >= sp->n_vocab || (sp->seen[t / 64] >> t % 64 & 1))
            continue;
        sp->seen[t / 64] |= (uint64_t)1 << t % 64;
        float *const l = &sp->logits[t];
        *l = *l > 0 ? pn_div(*l, o->repeat_penalty) : *l * o->repeat_penalty;
    }
    for (size_t i = 0; i < n_recent; i++)
        if ((uint32_t)recent[i] < sp->n_vocab)
            sp->seen[recent[i] / 64] = 0;
    for (size_t i = 0; i < s->cap_count; i++) {
        const count *const c = &s->counts[i];
        if (c->n && (uint32_t)c->token < sp->n_vocab)
            sp->logits[c->token] -= pn_fma(o->frequency_penalty, (float)c->n, o->presence_penalty);
    }
}

static void mask(float *logits, const uint32_t *allowed, size_t n)
{
    for (size_t i = 0; i < n; i++)
        logits[i] = allowed[i / 32] >> i % 32 & 1 ? logits[i] : -INFINITY;
}

/* The logits to choose from: the model's, or a copy with bias, penalties and mask. */
static const float *prepare(const pn_sampler *s, pn_sampler_space *sp, const float *logits,
                            const uint32_t *allowed)
{
    if (!allowed && !s->n_bias && !has_penalties(s))
        return logits;
    memcpy(sp->logits, logits, sp->n_vocab * sizeof *logits);
    add_bias(s, sp->logits, sp->n_vocab);
    if (has_penalties(s))
        penalize(s, sp);
    if (allowed)
        mask(sp->logits, allowed, sp->n_vocab);
    return sp->logits;
}

/* The lowest id of the largest logit. */
static pn_status find_max(const float *l, size_t n, int32_t *at, pn_err *err)
{
    float max = -FLT_MAX;
    int is_bad = 0;
    for (size_t i = 0; i < n; i++) {
        is_bad |= !(l[i] <= FLT_MAX);
        max = l[i] > max ? l[i] : max;
    }
    size_t i = 0;
    while (i < n && !(l[i] >= max)) /* -FLT_MAX itself is no candidate unless it stands there */
        i++;
    if (is_bad)
        return pn_fail(err, PN_ERR_NUMERIC, "a logit is NaN or infinite");
    if (i == n)
        return pn_fail(err, PN_ERR_ARG, "no token is allowed: bias and form together forbid all");
    *at = (int32_t)i;
    return PN_OK;
}

/* Whether a stands before b: larger logit, or equal and lower id. */
static bool is_before(const float *l, int32_t a, int32_t b)
{
    return l[a] > l[b] || (l[a] == l[b] && a < b);
}

/* Restores the heap order[0 .. n) below i: the parent stands behind its children, so the root is
 * the last in the row. */
static void sift_down(const float *l, int32_t *order, size_t n, size_t i)
{
    const int32_t moving = order[i];
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && is_before(l, order[child], order[child + 1]))
            child++;
        if (!is_before(l, moving, order[child]))
            break;
        order[i] = order[child];
    }
    order[i] = moving;
}

/* Puts the first k <= n ids of the row into order, sorted: a heap of the best k so far, then
 * heapsort. Equals come in ascending id, so a later equal never displaces an earlier one. */
static void select_top(const float *l, size_t n, size_t k, int32_t *order)
{
    for (size_t i = 0; i < k; i++)
        order[i] = (int32_t)i;
    for (size_t i = k / 2; i-- > 0;)
        sift_down(l, order, k, i);
    float least = k ? l[order[0]] : 0;
    for (size_t i = k; k && i < n; i++) {
        if (l[i] > least) {
            order[0] = (int32_t)i;
            sift_down(l, order, k, 0);
            least = l[order[0]];
        }
    }
    for (size_t m = k; m-- > 1;) {
        const int32_t last = order[0];
        order[0] = order[m];
        order[m] = last;
        sift_down(l, order, m, 0);
    }
}

/* e^((logit - max) / temperature) in units of 2^-40, rounded down; 2^40 for the largest. */
static uint64_t weight(float logit, float max, float temperature)
{
    const float x = pn_div(logit - max, temperature);
    return x < -28.0f ? 0 : (uint64_t)(pn_exp(x) * 0x1p40f); /* e^-28 < 2^-40 */
}

/* floor(a * b / 2^64) */
static uint64_t mul_high(uint64_t a, uint64_t b)
{
    const uint64_t a0 = (uint32_t)a, a1 = a >> 32, b0 = (uint32_t)b, b1 = b >> 32;
    const uint64_t m = a1 * b0 + (a0 * b0 >> 32), m2 = a0 * b1 + (uint32_t)m;
    return a1 * b1 + (m >> 32) + (m2 >> 32);
}

/* What the filters ask for, in whole numbers. */
typedef struct cut {
    uint64_t stop;  /* the running sum at which top-p ends; the token that reaches it is kept */
    uint64_t least; /* the smallest weight that min-p keeps */
} cut;

static cut cut_of(const pn_sampler_opts *o, uint64_t sum)
{
    /* top_p in units of 2^-32: exact but for its smallest values, a float has 24 bits. */
    const uint64_t share = o->top_p < 1 ? (uint64_t)(o->top_p * 0x1p32f) << 32 : 0;
    const uint64_t stop = o->top_p < 1 ? mul_high(sum, share) : sum;
    return (cut){ stop ? stop : 1, (uint64_t)(o->min_p * 0x1p40f) };
}

/* Draws among the k likeliest by sorting them. */
static int32_t draw_few(const pn_sampler_opts *o, const float *l, size_t n, size_t k, float max,
                        uint64_t random, int32_t *order)
{
    uint64_t w[FEW], sum = 0, kept = 0;
    select_top(l, n, k, order);
    for (size_t i = 0; i < k; i++)
        sum += w[i] = weight(l[order[i]], max, o->temperature);
    const cut c = cut_of(o, sum);
    for (size_t i = 0; i < k && kept < c.stop && (i == 0 || w[i] >= c.least); i++)
        kept += w[i];
    const uint64_t target = mul_high(random, kept);
    size_t i = 0;
    for (uint64_t run = w[0]; run <= target;)
        run += w[++i];
    return order[i];
}

/* Maps a logit to a whole number in the same order; +0 and -0 are one. */
static uint32_t key_of(float logit)
{
    const uint32_t u = pn_asu(logit + 0.0f);
    return u >> 31 ? ~u : u | 0x80000000u;
}

/* The first token of the row at which the running sum of w reaches stop, 1 <= stop <= their sum;
 * that sum, itself included, in *reached. A radix search over the logits' bits, highest first: sums
 * by digit, then only what shares the digit in which stop falls. */
static int32_t locate(const float *l, const uint64_t *w, size_t n, uint64_t stop, uint64_t *reached)
{
    static const int shifts[] = { 21, 10, 0 }, bits[] = { 11, 11, 10 };
    uint32_t prefix = 0;
    uint64_t run = 0;
    for (int level = 0; level < 3; level++) {
        uint64_t sums[1 << 11] = { 0 };
        const uint32_t mask = (1u << bits[level]) - 1;
        for (size_t i = 0; i < n; i++) {
            const uint32_t digits = w[i] ? key_of(l[i]) >> shifts[level] : 0;
            if (w[i] && (level == 0 || digits >> bits[level] == prefix))
                sums[digits & mask] += w[i];
        }
        uint32_t digit = mask;
        for (; digit > 0 && run + sums[digit] < stop; digit--)
            run += sums[digit];
        prefix = prefix << bits[level] | digit;
    }
    size_t at = 0;
    for (size_t i = 0; i < n && run < stop; i++) {
        if (w[i] && key_of(l[i]) == prefix) {
            run += w[i];
            at = i;
        }
    }
    PN_ASSERT(run >= stop);
    *reached = run;
    return (int32_t)at;
}

/* Draws among the k likeliest of many without sorting them. */
static int32_t draw_many(const pn_sampler_opts *o, const float *l, size_t n, size_t k, float max,
                         uint64_t random, uint64_t *w)
{
    int32_t last = 0;
    uint64_t sum = 0, kept;
    if (k < n) {
        for (size_t i = 0; i < n; i++)
            w[i] = 1;
        last = locate(l, w, n, k, &kept);
    }
    for (size_t i = 0; i < n; i++) {
        w[i] = k < n && is_before(l, last, (int32_t)i) ? 0 : weight(l[i], max, o->temperature);
        sum += w[i];
    }
    const cut c = cut_of(o, sum);
    kept = sum;
    if (o->top_p < 1)
        locate(l, w, n, c.stop, &kept);
    if (c.least > 0) {
        uint64_t by_min_p = 0;
        for (size_t i = 0; i < n; i++)
            by_min_p += w[i] >= c.least ? w[i] : 0;
        kept = by_min_p < kept ? by_min_p : kept;
    }
    return locate(l, w, n, mul_high(random, kept) + 1, &kept);
}

static int32_t draw(const pn_sampler_opts *o, pn_sampler_space *sp, const float *l, float max,
                    uint64_t pos)
{
    const size_t n = sp->n_vocab;
    const size_t k = o->top_k && (size_t)o->top_k < n ? (size_t)o->top_k : n;
    const uint64_t random = pn_rng_bits(o->seed, o->i_choice, pos);
    return k <= FEW ? draw_few(o, l, n, k, max, random, sp->order)
                    : draw_many(o, l, n, k, max, random, sp->weights);
}

pn_status pn_sampler_pick(const pn_sampler *s, pn_sampler_space *sp, const float *logits,
                          const uint32_t *allowed, uint64_t pos, int32_t *token, pn_err *err)
{
    const pn_sampler_opts *const o = &s->opts;
    const float *const l = prepare(s, sp, logits, allowed);
    int32_t at = 0;
    PN_TRY(find_max(l, sp->n_vocab, &at, err));
    *token = o->temperature == 0 || o->top_k == 1 ? at : draw(o, sp, l, l[at], pos);
    return PN_OK;
}

/* ln(sum / 2^40) for sum >= 2^40, in IEEE binary64 and no library: with s = (m - 1) / (m + 1),
 * ln(m 2^e) = e ln2 + 2 (s + s^3/3 + s^5/5 + ...); |s| <= 1/3, so 12 terms leave 2^-43. */
static float log_sum(uint64_t sum)
{
    int e = 0;
    double m = (double)sum * 0x1p-40; /* < 2^24 */
    for (; m >= 2; m *= 0.5)
        e++;
    const double s = (m - 1) / (m + 1), s2 = s * s;
    double series = 0;
    for (int k = 23; k >= 1; k -= 2)
        series = series * s2 + 1.0 / k;
    return (float)(e * 0.693147180559945309 + 2 * s * series);
}

pn_status pn_logprobs(pn_sampler_space *sp, const float *logits, int32_t token, pn_logprob *chosen,
                      size_t n_top, pn_logprob *top, pn_err *err)
{
    PN_ASSERT(n_top <= sp->n_vocab && n_top <= PN_MAX_TOP_LOGPROBS);
    PN_ASSERT(token >= 0 && (size_t)token < sp->n_vocab);
    int32_t at = 0;
    PN_TRY(find_max(logits, sp->n_vocab, &at, err));
    const float max = logits[at];
    uint64_t sum = 0;
    for (size_t i = 0; i < sp->n_vocab; i++)
        sum += weight(logits[i], max, 1.0f);
    const float ln = log_sum(sum); /* the largest itself counts 2^40 */
    *chosen = (pn_logprob){ token, logits[token] - max - ln };
    select_top(logits, sp->n_vocab, n_top, sp->order);
    for (size_t i = 0; i < n_top; i++)
        top[i] = (pn_logprob){ sp->order[i], logits[sp->order[i]] - max - ln };
    return PN_OK;
}
