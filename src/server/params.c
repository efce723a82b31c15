#include "server/params.h"

#include "base/mem.h"
#include "engine/engine.h"
#include "sampling/sampler.h"
#include "sampling/stop.h"
#include "tokenizer/encode.h"

#include <limits.h>
#include <stddef.h>
#include <string.h>
#include <sys/random.h>

/* --- the table -------------------------------------------------------------------------------- */

typedef enum param_kind {
    PARAM_REAL, /* to a float */
    PARAM_INT,  /* to an int32_t */
    PARAM_BOOL, /* to a bool */
} param_kind;

typedef struct param {
    const char *name;
    param_kind kind;
    double lo, hi;
    size_t off; /* of the field in pn_ask */
} param;

#define AT(field)      offsetof(pn_ask, field)
#define SAMPLER(field) AT(gen.sampler.field)

/* Of several names of one field the last that is given counts. -1 stands for "no limit" where other
 * servers have it so. */
static const param params[] = {
    { "temperature", PARAM_REAL, 0, 100, SAMPLER(temperature) },
    { "top_k", PARAM_INT, -1, INT32_MAX, SAMPLER(top_k) },
    { "top_p", PARAM_REAL, 0, 1, SAMPLER(top_p) },
    { "min_p", PARAM_REAL, 0, 1, SAMPLER(min_p) },
    { "presence_penalty", PARAM_REAL, -2, 2, SAMPLER(presence_penalty) },
    { "frequency_penalty", PARAM_REAL, -2, 2, SAMPLER(frequency_penalty) },
    { "repeat_penalty", PARAM_REAL, 0.01, 100, SAMPLER(repeat_penalty) },
    { "repetition_penalty", PARAM_REAL, 0.01, 100, SAMPLER(repeat_penalty) },
    { "repeat_last_n", PARAM_INT, -1, INT32_MAX, SAMPLER(repeat_last_n) },
    { "n_predict", PARAM_INT, -1, INT32_MAX, AT(gen.n_predict) },
    { "max_tokens", PARAM_INT, -1, INT32_MAX, AT(gen.n_predict) },
    { "max_completion_tokens", PARAM_INT, -1, INT32_MAX, AT(gen.n_predict) },
    { "ignore_eos", PARAM_BOOL, 0, 0, AT(gen.ignore_eos) },
    { "n", PARAM_INT, 1, PN_ASK_MAX_CHOICES, AT(n_choices) },
    { "stream", PARAM_BOOL, 0, 0, AT(is_streamed) },
    { "timings_per_token", PARAM_BOOL, 0, 0, AT(wants_timings) },
    { "return_progress", PARAM_BOOL, 0, 0, AT(wants_progress) },
    { "return_tokens", PARAM_BOOL, 0, 0, AT(wants_ids) },
    { "return_token_ids", PARAM_BOOL, 0, 0, AT(wants_ids) },
    { "background", PARAM_BOOL, 0, 0, AT(is_background) },
    { "t_max_predict_ms", PARAM_INT, -1, INT32_MAX, AT(max_write_ms) },
    { "id_slot", PARAM_INT, -1, INT32_MAX, AT(id_slot) },
};

_Static_assert(sizeof(int) == sizeof(int32_t), "the table writes ints and int32_ts alike");

static pn_status read_param(const pn_jat *request, const param *p, pn_ask *a, pn_err *err)
{
    void *const to = (char *)a + p->off;
    const pn_jat at = pn_jat_get(request, p->name);
    if (!pn_jat_is_set(&at))
        return PN_OK;
    double real;
    int64_t integer;
    switch (p->kind) {
    case PARAM_REAL:
        PN_TRY(pn_jat_real(&at, p->lo, p->hi, &real, err));
        *(float *)to = (float)real;
        return PN_OK;
    case PARAM_INT:
        PN_TRY(pn_jat_int(&at, (int64_t)p->lo, (int64_t)p->hi, &integer, err));
        *(int32_t *)to = (int32_t)integer;
        return PN_OK;
    case PARAM_BOOL:
        return pn_jat_bool(&at, to, err);
    }
    return PN_OK;
}

/* Samplers of other engines that are not here: at these values they do nothing. */
static const struct {
    const char *name;
    double lo, hi; /* any number in between is none */
} absent[] = {
    { "typical_p", 1, 1 },       { "tfs_z", 1, 1 },          { "top_a", 0, 0 },
    { "top_n_sigma", -1, 0 },    { "mirostat", 0, 0 },       { "dynatemp_range", 0, 0 },
    { "xtc_probability", 0, 0 }, { "dry_multiplier", 0, 0 }, { "smoothing_factor", 0, 0 },
};

static pn_status refuse_absent(const pn_jat *request, pn_err *err)
{
    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++) {
        const pn_jat at = pn_jat_get(request, absent[i].name);
        if (!pn_jat_is_set(&at))
            continue;
        PN_TRY(pn_jat_want(&at, PN_JSON_REAL, err));
        const double x = pn_json_real(at.v);
        if (x < absent[i].lo || x > absent[i].hi)
            return pn_jat_fail(&at, err, PN_ERR_UNSUPPORTED, "this sampler is not supported");
    }
    return PN_OK;
}

/* --- the rest --------------------------------------------------------------------------------- */

/* `seed`: any integer; -1 and none: one that nobody knows. */
static pn_status read_seed(const pn_jat *request, pn_ask *a, pn_err *err)
{
    int64_t seed = -1;
    PN_TRY(pn_jat_opt_int(request, "seed", INT64_MIN, INT64_MAX, &seed, err));
    if (seed == -1 && getrandom(&seed, sizeof seed, GRND_NONBLOCK) != (ssize_t)sizeof seed)
        seed = 0;
    a->gen.sampler.seed = (uint64_t)seed;
    return PN_OK;
}

/* `stop`: a string or an array of strings; empty ones stop nothing. */
static pn_status read_stop(const pn_jat *request, pn_ask *a, pn_err *err)
{
    const pn_jat stop = pn_jat_get(request, "stop");
    if (!pn_jat_is_set(&stop))
        return PN_OK;
    const bool is_one = pn_json_type_of(stop.v) == PN_JSON_STR;
    if (!is_one)
        PN_TRY(pn_jat_want(&stop, PN_JSON_ARR, err));
    const size_t n = is_one ? 1 : pn_json_len(stop.v);
    if (n > PN_STOP_MAX_STRINGS)
        return pn_jat_fail(&stop, err, PN_ERR_FORMAT, "found %zu strings, expected at most %d", n,
                           PN_STOP_MAX_STRINGS);
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++) {
        const pn_jat item = is_one ? stop : pn_jat_item(&stop, i);
        pn_span s;
        PN_TRY(pn_jat_str(&item, &s, err));
        if (s.len > PN_STOP_MAX_BYTES)
            return pn_jat_fail(&item, err, PN_ERR_FORMAT, "found %zu bytes, expected at most %d",
                               s.len, PN_STOP_MAX_BYTES);
        bytes += s.len;
    }
    pn_span *const spans = pn_alloc(n * sizeof *spans + bytes);
    if (!spans)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for stop strings");
    char *to = (char *)(spans + n);
    size_t n_stop = 0;
    for (size_t i = 0; i < n; i++) {
        const pn_span s = pn_json_str(is_one ? stop.v : pn_json_item(stop.v, i));
        if (!s.len)
            continue;
        memcpy(to, s.ptr, s.len);
        spans[n_stop++] = (pn_span){ to, s.len };
        to += s.len;
    }
    pn_free(a->stop);
    a->stop = spans;
    a->gen.stop = spans;
    a->gen.n_stop = n_stop;
    return PN_OK;
}

/* `logprobs`: whether, or how many others are wanted, too; `top_logprobs` and `n_probs`: how
 * many. */
static pn_status read_logprobs(const pn_jat *request, pn_ask *a, pn_err *err)
{
    const pn_jat logprobs = pn_jat_get(request, "logprobs");
    int64_t n = -1;
    bool is_wanted = false;
    if (pn_jat_is_set(&logprobs)) {
        is_wanted = true;
        if (pn_json_type_of(logprobs.v) == PN_JSON_BOOL)
            is_wanted = pn_json_bool(logprobs.v);
        else
            PN_TRY(pn_jat_int(&logprobs, 0, PN_MAX_TOP_LOGPROBS, &n, err));
        if (!is_wanted)
            n = 0;
    }
    int64_t top = -1, n_probs = 0;
    PN_TRY(pn_jat_opt_int(request, "top_logprobs", 0, PN_MAX_TOP_LOGPROBS, &top, err));
    PN_TRY(pn_jat_opt_int(request, "n_probs", 0, PN_MAX_TOP_LOGPROBS, &n_probs, err));
    if (n < 0 && (top > 0 || is_wanted))
        n = top;
    if (n_probs > 0)
        n = n_probs;
    a->gen.wants_logprobs = is_wanted || n > 0;
    a->gen.n_top_logprobs = n > 0 ? (int)n : 0;
    return PN_OK;
}

static pn_status read_stream_options(const pn_jat *request, pn_ask *a, pn_err *err)
{
    const pn_jat options = pn_jat_get(request, "stream_options");
    if (!pn_jat_is_set(&options))
        return PN_OK;
    PN_TRY(pn_jat_want(&options, PN_JSON_OBJ, err));
    return pn_jat_opt_bool(&options, "include_usage", &a->wants_usage, err);
}

/* --- logit bias ------------------------------------------------------------------------------- */

pn_status pn_params_add_bias(pn_ask *a, int32_t token, float bias, pn_err *err)
{
    const size_t n = a->gen.n_logit_bias;
    if (n == PN_MAX_LOGIT_BIAS)
        return pn_fail(err, PN_ERR_LIMIT, "logit_bias: more than %d tokens", PN_MAX_LOGIT_BIAS);
    if ((n & (n - 1)) == 0) { /* full at each power of two */
        pn_logit_bias *const more = pn_realloc(a->biases, n ? 2 * n : 1, sizeof *more);
        if (!more)
            return pn_fail(err, PN_ERR_NOMEM, "no memory for logit_bias");
        a->biases = more;
    }
    a->biases[n] = (pn_logit_bias){ .token = token, .bias = bias };
    a->gen.logit_bias = a->biases;
    a->gen.n_logit_bias = n + 1;
    return PN_OK;
}

/* A number, or false for "never". */
static pn_status read_bias_value(const pn_jat *at, float *bias, pn_err *err)
{
    double x = -100;
    if (!at->v || pn_json_type_of(at->v) != PN_JSON_BOOL || pn_json_bool(at->v))
        PN_TRY(pn_jat_real(at, -100, 100, &x, err));
    *bias = (float)x;
    return PN_OK;
}

/* Every token of a text. */
static pn_status add_bias_text(const pn_engine *e, const pn_jat *at, pn_span text, float bias,
                               pn_ask *a, pn_err *err)
{
    pn_ids ids = { 0 };
    pn_err why = { 0 };
    pn_status st = pn_encode(e->vocab, text, NULL, &ids, &why);
    for (size_t i = 0; st == PN_OK && i < ids.len; i++)
        st = pn_params_add_bias(a, ids.ptr[i], bias, &why);
    pn_ids_free(&ids);
    return st == PN_OK ? PN_OK : pn_jat_fail(at, err, st, "%s", why.msg);
}

static pn_status add_bias_id(const pn_engine *e, const pn_jat *at, int64_t id, float bias,
                             pn_ask *a, pn_err *err)
{
    if (id < 0 || id >= pn_vocab_size(e->vocab))
        return pn_jat_fail(at, err, PN_ERR_FORMAT, "found %lld, expected a token, 0 to %d",
                           (long long)id, (int)pn_vocab_size(e->vocab) - 1);
    return pn_params_add_bias(a, (int32_t)id, bias, err);
}

/* A key of decimal digits: a token's id, at most INT32_MAX; -1: it is none. */
static int64_t id_of_key(pn_span key)
{
    int64_t id = 0;
    for (size_t i = 0; i < key.len; i++) {
        if (key.ptr[i] < '0' || key.ptr[i] > '9' || id > INT32_MAX)
            return -1;
        id = 10 * id + (key.ptr[i] - '0');
    }
    return key.len ? id : -1;
}

static pn_status read_bias_object(const pn_engine *e, const pn_jat *biases, pn_ask *a, pn_err *err)
{
    pn_json_iter it = { 0 };
    while (pn_json_next(biases->v, &it)) {
        const pn_jat at = { .v = it.value, .up = biases, .key = it.key.ptr };
        float bias;
        PN_TRY(read_bias_value(&at, &bias, err));
        const int64_t id = id_of_key(it.key);
        PN_TRY(id < 0 ? add_bias_text(e, &at, it.key, bias, a, err)
                      : add_bias_id(e, &at, id, bias, a, err));
    }
    return PN_OK;
}

static pn_status read_bias_list(const pn_engine *e, const pn_jat *biases, pn_ask *a, pn_err *err)
{
    for (size_t i = 0; i < pn_json_len(biases->v); i++) {
        const pn_jat pair = pn_jat_item(biases, i);
        const pn_jat token = pn_jat_item(&pair, 0), value = pn_jat_item(&pair, 1);
        float bias;
        int64_t id;
        PN_TRY(pn_jat_want(&pair, PN_JSON_ARR, err));
        PN_TRY(read_bias_value(&value, &bias, err));
        if (token.v && pn_json_type_of(token.v) == PN_JSON_STR) {
            PN_TRY(add_bias_text(e, &token, pn_json_str(token.v), bias, a, err));
        } else {
            PN_TRY(pn_jat_int(&token, INT64_MIN, INT64_MAX, &id, err));
            PN_TRY(add_bias_id(e, &token, id, bias, a, err));
        }
    }
    return PN_OK;
}

/* {"ID or text": bias}, or [[ID or text, bias]]. */
static pn_status read_bias(const pn_engine *e, const pn_jat *request, pn_ask *a, pn_err *err)
{
    const pn_jat biases = pn_jat_get(request, "logit_bias");
    if (!pn_jat_is_set(&biases))
        return PN_OK;
    if (pn_json_type_of(biases.v) == PN_JSON_ARR)
        return read_bias_list(e, &biases, a, err);
    PN_TRY(pn_jat_want(&biases, PN_JSON_OBJ, err));
    return read_bias_object(e, &biases, a, err);
}

/* --- all -------------------------------------------------------------------------------------- */

pn_status pn_params_read(const pn_engine *engine, const pn_jat *request,
                         const pn_sampler_opts *defaults, pn_ask *a, pn_err *err)
{
    pn_sampler_opts *const o = &a->gen.sampler;
    *o = *defaults;
    const pn_jat temperature = pn_jat_get(request, "temperature");
    double t = 1;
    PN_TRY(pn_jat_opt_real(request, temperature.key, 0, 100, &t, err));
    if (t == 0)
        pn_sampler_set_greedy(o);
    bool is_cached = !a->no_cache;
    a->id_slot = -1;
    a->n_choices = 1;
    a->gen.n_predict = -1;
    for (size_t i = 0; i < sizeof params / sizeof *params; i++)
        PN_TRY(read_param(request, &params[i], a, err));
    o->top_k = o->top_k < 0 ? 0 : o->top_k;
    o->repeat_last_n = o->repeat_last_n < 0 ? INT32_MAX : o->repeat_last_n;
    PN_TRY(pn_jat_opt_bool(request, "cache_prompt", &is_cached, err));
    a->no_cache = !is_cached;
    bool is_parallel = true;
    PN_TRY(pn_jat_opt_bool(request, "parallel_tool_calls", &is_parallel, err));
    a->is_one_call = !is_parallel;
    PN_TRY(refuse_absent(request, err));
    PN_TRY(read_seed(request, a, err));
    PN_TRY(read_stop(request, a, err));
    PN_TRY(read_logprobs(request, a, err));
    PN_TRY(read_stream_options(request, a, err));
    PN_TRY(read_bias(engine, request, a, err));
    return pn_sampler_check(o, err);
}
