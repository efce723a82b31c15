/* pantheon bench --beside N: answers are written by the engine, and the time of each pass is the
 * gap that their readers see; then the same while a prompt of N tokens is read beside them. */
#include "cli/bench.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "cli/load.h"

#include <stdlib.h>

enum {
    N_QUIET = 48,  /* gaps measured without the prompt */
    N_PROMPT = 16, /* tokens of each answer's own prompt */
    N_GAP_MAX = 1 << 16
};

typedef struct beside {
    const pn_cli_opts *opts;
    pn_model *model;
    pn_engine *engine;
    int n_writer;
    int64_t n_predict; /* of each answer: more than will be needed, if the context has room */
    int32_t *tokens;
    pn_request **writers; /* [n_writer] */
    pn_request *reader;
    double *gaps; /* [N_GAP_MAX] seconds */
} beside;

typedef struct gaps {
    int n;
    double median_s, high_s, max_s; /* high: 95 of 100 are shorter */
} gaps;

static bool should_stop(void *ctx)
{
    (void)ctx;
    return pn_cli_interrupted();
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static gaps summary(double *s, int n)
{
    qsort(s, (size_t)n, sizeof *s, by_value);
    return (gaps){ n, s[n / 2], s[n - 1 - n / 20], s[n - 1] };
}

static pn_status submit(beside *b, const int32_t *ids, int64_t n, int64_t n_predict, pn_request **r,
                        pn_err *err)
{
    const pn_request_opts o = {
        .ids = ids,
        .n_id = (size_t)n,
        .state = { .n_ctx = (int)(n + n_predict), .kv_type = pn_cli_kv_type(b->opts) },
        .gen = { .n_predict = (int)n_predict, .ignore_eos = true, .should_stop = should_stop },
    };
    return pn_engine_submit(b->engine, &o, r, err);
}

/* Steps until *until is done, at most n times. Returns the number of gaps. */
static int step(beside *b, const pn_request *until, int n)
{
    int i = 0;
    for (; i < n && !(until && pn_request_is_done(until)); i++) {
        const double t0 = pn_now_s();
        pn_engine_step(b->engine);
        b->gaps[i] = pn_now_s() - t0;
    }
    return i;
}

/* Whether all answers are still being written; else the reason. */
static pn_status check(const beside *b, pn_err *err)
{
    for (int i = 0; i < b->n_writer; i++) {
        pn_gen_result r;
        PN_TRY(pn_request_result(b->writers[i], &r, err));
        if (pn_request_is_done(b->writers[i]))
            return r.finish == PN_FINISH_CALLER
                       ? pn_fail(err, PN_ERR_CANCELLED, "stopped")
                       : pn_fail(err, PN_ERR_LIMIT,
                                 "the answers filled their contexts before the prompt was read");
    }
    return PN_OK;
}

static pn_status measure(beside *b, gaps *quiet, gaps *busy, double *read_s, pn_err *err)
{
    const int64_t n_read = b->opts->n_beside;
    for (int i = 0; i < b->n_writer; i++)
        PN_TRY(submit(b, b->tokens + (int64_t)i * N_PROMPT, N_PROMPT, b->n_predict, &b->writers[i],
                      err));
    step(b, NULL, N_QUIET / 4); /* prompts are read, threads are awake */
    *quiet = summary(b->gaps, step(b, NULL, N_QUIET));
    PN_TRY(submit(b, b->tokens + (int64_t)b->n_writer * N_PROMPT, n_read, 1, &b->reader, err));
    const double t0 = pn_now_s();
    *busy = summary(b->gaps, step(b, b->reader, N_GAP_MAX - N_QUIET * 2));
    *read_s = pn_now_s() - t0;
    return check(b, err);
}

static void print(const beside *b, const gaps *quiet, const gaps *busy, double read_s)
{
    const double ratio = busy->median_s / quiet->median_s;
    const double tok_s = (double)b->opts->n_beside / read_s;
    if (b->opts->as_json) {
        pn_buf json = { 0 };
        pn_jw w = { .buf = &json };
        pn_jw_begin_obj(&w, NULL);
        pn_jw_int(&w, "parallel", b->n_writer);
        pn_jw_int(&w, "beside", b->opts->n_beside);
        pn_jw_real(&w, "quiet_gap_ms", quiet->median_s * 1e3);
        pn_jw_real(&w, "gap_ms", busy->median_s * 1e3);
        pn_jw_real(&w, "gap_ms_95", busy->high_s * 1e3);
        pn_jw_real(&w, "gap_ms_max", busy->max_s * 1e3);
        pn_jw_real(&w, "gap_ratio", ratio);
        pn_jw_real(&w, "prefill_tok_s", tok_s);
        pn_jw_end_obj(&w);
        if (pn_buf_cstr(&json))
            puts(json.ptr);
        pn_buf_free(&json);
        return;
    }
    printf("%d answers: %.1f ms between tokens\n"
           "beside a prompt of %lld tokens, read at %.1f tokens/s: %.1f ms, %.2f times as long; "
           "95 of 100 under %.1f, the longest %.1f\n",
           b->n_writer, quiet->median_s * 1e3, (long long)b->opts->n_beside, tok_s,
           busy->median_s * 1e3, ratio, busy->high_s * 1e3, busy->max_s * 1e3);
}

static pn_status prepare(beside *b, pn_err *err)
{
    const pn_cli_opts *const o = b->opts;
    b->model = pn_cli_load_model(o, err);
    if (!b->model)
        return err->code;
    pn_model_info info;
    pn_model_get_info(b->model, &info);
    b->n_writer = o->parallel.n ? (int)o->parallel.at[0] : 1;
    b->n_predict =
        info.n_ctx_train - N_PROMPT < N_GAP_MAX ? info.n_ctx_train - N_PROMPT : N_GAP_MAX;
    if (o->n_beside >= info.n_ctx_train || b->n_predict < 1)
        return pn_fail(err, PN_ERR_ARG, "--beside %lld: the model's context of %d does not hold it",
                       (long long)o->n_beside, info.n_ctx_train);
    const int64_t n_tok = o->n_beside + (int64_t)b->n_writer * N_PROMPT;
    b->tokens = pn_calloc((size_t)n_tok, sizeof *b->tokens);
    b->writers = pn_calloc((size_t)b->n_writer, sizeof(pn_request *));
    b->gaps = pn_calloc(N_GAP_MAX, sizeof *b->gaps);
    if (!b->tokens || !b->writers || !b->gaps)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for the benchmark");
    pn_bench_tokens(b->tokens, n_tok, info.n_vocab);
    const pn_engine_opts engine = { .exec = pn_cli_exec_opts(o, 0), .n_parallel = b->n_writer + 1 };
    return pn_engine_new(b->model, &engine, &b->engine, err);
}

int pn_bench_beside(const pn_cli_opts *opts)
{
    beside b = { .opts = opts };
    gaps quiet, busy;
    double read_s;
    pn_err err = { 0 };
    pn_status st = prepare(&b, &err);
    if (st == PN_OK)
        st = measure(&b, &quiet, &busy, &read_s, &err);
    if (st == PN_OK)
        print(&b, &quiet, &busy, read_s);
    for (int i = 0; i < b.n_writer && b.writers; i++)
        pn_request_free(b.writers[i]);
    pn_request_free(b.reader);
    pn_engine_free(b.engine);
    pn_model_free(b.model);
    pn_free(b.tokens);
    pn_free(b.writers);
    pn_free(b.gaps);
    return st == PN_OK ? PN_EXIT_OK : pn_cli_fail(&err);
}
