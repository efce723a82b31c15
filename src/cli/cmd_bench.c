/* pantheon bench: prefill and decode speed of a model on this machine, with the share of the
 * memory's measured speed that decoding reaches. Tokens are arbitrary: speed does not depend on
 * what they say, apart from which experts they choose; so sequences side by side have tokens of
 * their own, and the bytes that had to move are those of the experts really chosen. */
#include "cli/bench.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/load.h"
#include "cli/profile.h"

#include <stdlib.h>
#include <string.h>

enum {
    READ_TIMES = 8, /* of a round's decodes; and at their end */
    READINGS = 3    /* of the memory each time */
};

typedef struct bench {
    const pn_cli_opts *opts;
    pn_model *model;
    pn_model_info info;
    pn_exec *exec;
    pn_state **states;        /* [n_seq] */
    pn_snapshot **near_depth; /* [n_seq] one token before the depth, once it has been there */
    int n_seq;
    float *logits;            /* [n_seq][n_vocab] */
    pn_part *parts;           /* [n_seq] */
    int32_t *tokens;          /* [n_seq][depth + p + n] */
    int64_t n_tok;            /* of one sequence */
    double *prefill, *decode; /* [r] tokens/s */
    pn_reader *reader;
    double *read;         /* [r] bytes/s that memory was read at during each round */
    pn_cli_limits limits; /* read_bytes_s: their median */
    pn_cli_profile prefill_stages, decode_stages; /* of the measured rounds */
    pn_cli_bar bar;
} bench;

static bool should_stop(void *ctx, int i_part)
{
    (void)ctx, (void)i_part;
    return pn_cli_interrupted();
}

/* Token `at` of sequence i. */
static const int32_t *token(const bench *b, int i, int64_t at)
{
    return b->tokens + i * b->n_tok + at;
}

/* Feeds tokens [at, at + n) to sequence i, logits of the last. */
static pn_status feed(bench *b, int i, int64_t at, int64_t n, pn_err *err)
{
    const int64_t n_batch = pn_exec_n_batch(b->exec);
    while (n > 0) {
        const int64_t now = n < n_batch ? n : n_batch;
        const pn_part part = { pn_state_seq(b->states[i]), token(b, i, at), (int)now, b->logits,
                               now == n };
        const pn_batch batch = { .parts = &part, .n_part = 1, .should_stop = should_stop };
        PN_TRY(pn_get_forward_fn(b->model)(b->exec, &batch, err));
        at += now;
        n -= now;
    }
    return PN_OK;
}

/* Brings sequence i to the depth: filled once, then by the snapshot. The last token is fed anew
 * every time, so that copying what the snapshot shares is not part of what is timed. */
static pn_status go_to_depth(bench *b, int i, pn_err *err)
{
    const int64_t d = b->opts->n_depth;
    pn_seq *const seq = pn_state_seq(b->states[i]);
    pn_snapshot **const snapshot = &b->near_depth[i];
    if (*snapshot) {
        PN_TRY(pn_seq_rewind(seq, *snapshot, err));
        return feed(b, i, d - 1, 1, err);
    }
    pn_state_reset(b->states[i]);
    if (d < 2)
        return feed(b, i, 0, d, err);
    PN_TRY(feed(b, i, 0, d - 1, err));
    PN_TRY(pn_snapshot_new(seq, snapshot, err));
    return feed(b, i, d - 1, 1, err);
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *x, int64_t n)
{
    double tmp[1000];
    memcpy(tmp, x, (size_t)n * sizeof *x);
    qsort(tmp, (size_t)n, sizeof *tmp, by_value);
    return n % 2 ? tmp[n / 2] : (tmp[n / 2 - 1] + tmp[n / 2]) / 2;
}

/* Adds a few readings of the memory to the n that are there. */
static void read_memory(bench *b, double *readings, int *n)
{
    for (int i = 0; i < READINGS; i++)
        readings[(*n)++] = pn_cli_measure_read(b->exec, &b->reader);
}

/* One measured round over all sequences: depth, then the timed prompt, then n decodes together.
 * The machine drifts within seconds, so its memory is measured between the decodes. */
static pn_status round_of(bench *b, double *prefill, double *decode, double *read, pn_err *err)
{
    const int64_t d = b->opts->n_depth, p = b->opts->n_prompt, n = b->opts->n_predict;
    double prefill_s = 0;
    for (int i = 0; i < b->n_seq; i++) {
        PN_TRY(go_to_depth(b, i, err));
        pn_exec_profile_reset(b->exec);
        const double t0 = pn_now_s();
        PN_TRY(feed(b, i, d, p, err));
        prefill_s += pn_now_s() - t0;
        pn_cli_profile_take(&b->prefill_stages, b->exec);
    }
    double decode_s = 0, readings[READINGS * (READ_TIMES + 1)];
    int n_reading = 0;
    for (int64_t k = 0; k < n; k++) {
        for (int i = 0; i < b->n_seq; i++)
            b->parts[i] = (pn_part){ pn_state_seq(b->states[i]), token(b, i, d + p + k), 1,
                                     b->logits + (size_t)i * (size_t)b->info.n_vocab, 1 };
        const pn_batch batch = { .parts = b->parts,
                                 .n_part = b->n_seq,
                                 .should_stop = should_stop };
        if (k % ((n + READ_TIMES - 1) / READ_TIMES) == 0)
            read_memory(b, readings, &n_reading);
        const double t0 = pn_now_s();
        PN_TRY(pn_get_forward_fn(b->model)(b->exec, &batch, err));
        decode_s += pn_now_s() - t0;
    }
    read_memory(b, readings, &n_reading);
    *read = median(readings, n_reading);
    pn_cli_profile_take(&b->decode_stages, b->exec);
    *prefill = p && prefill_s > 0 ? b->n_seq * (double)p / prefill_s : 0;
    *decode = n && decode_s > 0 ? b->n_seq * (double)n / decode_s : 0;
    return PN_OK;
}

void pn_bench_tokens(int32_t *tokens, int64_t n, int n_vocab)
{
    uint64_t x = 1; /* Knuth's MMIX generator: any fixed scatter over the vocabulary does */
    for (int64_t i = 0; i < n; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        tokens[i] = (int32_t)((x >> 33) % (uint64_t)n_vocab);
    }
}

/* Largest distance from the median, as a share of it. */
static double spread(const double *x, int64_t n)
{
    const double m = median(x, n);
    double far = 0;
    for (int64_t i = 0; i < n; i++)
        far = x[i] - m > far ? x[i] - m : m - x[i] > far ? m - x[i] : far;
    return m > 0 ? far / m : 0;
}

/* Bytes that one decoding pass had to move: weights, those of the experts chosen, and states. */
static double bytes_per_pass(const bench *b)
{
    const double n_pass = (double)(b->opts->n_repeat * b->opts->n_predict);
    return n_pass > 0 ? pn_cli_profile_bytes(&b->decode_stages) / n_pass : 0;
}

/* The share of the time that reading those bytes alone would take. */
static double bound_share(const bench *b)
{
    const double pass_s = median(b->decode, b->opts->n_repeat) / b->n_seq;
    return b->limits.read_bytes_s > 0 ? pass_s * bytes_per_pass(b) / b->limits.read_bytes_s : 0;
}

/* --- output ----------------------------------------------------------------------------------- */

static void put_all(pn_jw *w, const char *key, const double *x, int64_t n)
{
    pn_jw_begin_arr(w, key);
    for (int64_t i = 0; i < n; i++)
        pn_jw_real(w, NULL, x[i]);
    pn_jw_end_arr(w);
}

static void put_json(const bench *b, pn_jw *w)
{
    const int64_t r = b->opts->n_repeat;
    pn_jw_begin_obj(w, NULL);
    pn_jw_str(w, "engine", "pantheon " PN_VERSION);
    pn_jw_str(w, "model", b->info.path);
    pn_jw_real(w, "prefill_tok_s", median(b->prefill, r));
    pn_jw_real(w, "decode_tok_s", median(b->decode, r));
    put_all(w, "prefill_all", b->prefill, r);
    put_all(w, "decode_all", b->decode, r);
    pn_jw_uint(w, "bytes_per_token", b->info.active_bytes);
    pn_jw_real(w, "read_gb_s", b->limits.read_bytes_s / 1e9);
    pn_jw_real(w, "i8_gmac_s", b->limits.i8_macs_s / 1e9);
    pn_jw_real(w, "f32_gmac_s", b->limits.f32_macs_s / 1e9);
    pn_jw_real(w, "macs_per_token", b->info.active_macs);
    pn_jw_real(w, "bandwidth_share",
               b->limits.read_bytes_s > 0
                   ? median(b->decode, r) * (double)b->info.active_bytes / b->limits.read_bytes_s
                   : 0);
    pn_jw_real(w, "bytes_per_pass", bytes_per_pass(b));
    pn_jw_real(w, "bound_share", bound_share(b));
    pn_jw_int(w, "p", b->opts->n_prompt);
    pn_jw_int(w, "n", b->opts->n_predict);
    pn_jw_int(w, "d", b->opts->n_depth);
    pn_jw_int(w, "parallel", b->n_seq);
    pn_jw_int(w, "batch", pn_exec_n_batch(b->exec));
    pn_jw_int(w, "threads", pn_exec_n_threads(b->exec));
    pn_jw_str(w, "isa", pn_exec_isa(b->exec));
    if (pn_exec_gpus(b->exec))
        pn_jw_str(w, "gpus", pn_exec_gpus(b->exec));
    if (b->opts->profile) {
        pn_cli_profile_json(&b->prefill_stages, w, "prefill_stages", &b->limits);
        pn_cli_profile_json(&b->decode_stages, w, "decode_stages", &b->limits);
    }
    pn_jw_end_obj(w);
}

static void print_table(const bench *b)
{
    const int64_t r = b->opts->n_repeat;
    const double dec = median(b->decode, r);
    printf("%s, %d thread%s, %s", b->info.path, pn_exec_n_threads(b->exec),
           pn_exec_n_threads(b->exec) == 1 ? "" : "s", pn_exec_isa(b->exec));
    if (pn_exec_gpus(b->exec))
        printf(", %s", pn_exec_gpus(b->exec));
    if (b->n_seq > 1)
        printf(", %d sequences together", b->n_seq);
    printf("\nprefill %6lld tokens  %9.2f tokens/s  (+- %.1f %%)\n", (long long)b->opts->n_prompt,
           median(b->prefill, r), spread(b->prefill, r) * 100);
    printf("decode  %6lld tokens  %9.2f tokens/s  (+- %.1f %%)", (long long)b->opts->n_predict, dec,
           spread(b->decode, r) * 100);
    if (b->n_seq == 1 && b->limits.read_bytes_s > 0)
        printf("  %.1f MB a token, %.1f GB/s: %.0f %% of the %.1f GB/s that memory reads at",
               (double)b->info.active_bytes / 1e6, dec * (double)b->info.active_bytes / 1e9,
               dec * (double)b->info.active_bytes / b->limits.read_bytes_s * 100,
               b->limits.read_bytes_s / 1e9);
    if (b->n_seq > 1)
        printf("  %.1f MB a pass, %.1f GB/s: %.0f %% of the %.1f GB/s that memory reads at",
               bytes_per_pass(b) / 1e6, dec / b->n_seq * bytes_per_pass(b) / 1e9,
               bound_share(b) * 100, b->limits.read_bytes_s / 1e9);
    printf("\n");
}

/* --- the command ------------------------------------------------------------------------------ */

static pn_status measure(bench *b, pn_err *err)
{
    const int64_t r = b->opts->n_repeat;
    for (int64_t i = 0; i < r; i++) {
        pn_cli_progress(&b->bar, "measuring", (uint64_t)i, (uint64_t)r);
        if (i == 0) { /* the first round only warms up: pages are read, threads are awake */
            PN_TRY(round_of(b, &b->prefill[0], &b->decode[0], &b->read[0], err));
            b->prefill_stages = b->decode_stages = (pn_cli_profile){ 0 };
        }
        PN_TRY(round_of(b, &b->prefill[i], &b->decode[i], &b->read[i], err));
    }
    b->limits = pn_cli_measure_limits(b->exec);
    b->limits.read_bytes_s = median(b->read, r);
    pn_cli_bar_clear(&b->bar);
    return PN_OK;
}

static pn_status make_states(bench *b, int n_seq, pn_err *err)
{
    const pn_cli_opts *const o = b->opts;
    b->n_seq = 0;
    b->states = pn_calloc((size_t)n_seq, sizeof *b->states);
    b->near_depth = pn_calloc((size_t)n_seq, sizeof *b->near_depth);
    b->parts = pn_calloc((size_t)n_seq, sizeof *b->parts);
    b->logits = pn_calloc((size_t)n_seq * (size_t)b->info.n_vocab, sizeof *b->logits);
    b->tokens = pn_calloc((size_t)n_seq * (size_t)b->n_tok, sizeof *b->tokens);
    if (!b->states || !b->near_depth || !b->parts || !b->logits || !b->tokens)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for %d sequences", n_seq);
    pn_bench_tokens(b->tokens, n_seq * b->n_tok, b->info.n_vocab);
    const pn_state_opts state = { .n_ctx = (int)b->n_tok,
                                  .kv_type = pn_cli_kv_type(o),
                                  .err = err };
    for (; b->n_seq < n_seq; b->n_seq++) {
        b->states[b->n_seq] = pn_state_new(b->model, &state);
        if (!b->states[b->n_seq])
            return err->code;
    }
    return PN_OK;
}

static void free_states(bench *b)
{
    for (int i = 0; i < b->n_seq; i++) {
        pn_snapshot_free(b->near_depth[i]);
        pn_state_free(b->states[i]);
    }
    pn_free(b->near_depth);
    pn_free(b->states);
    pn_free(b->parts);
    pn_free(b->logits);
    pn_free(b->tokens);
    b->tokens = NULL;
    b->near_depth = NULL;
    b->states = NULL;
    b->parts = NULL;
    b->logits = NULL;
    b->n_seq = 0;
}

static pn_status prepare(bench *b, pn_err *err)
{
    const pn_cli_opts *const o = b->opts;
    b->model = pn_cli_load_model(o, err);
    if (!b->model)
        return err->code;
    pn_model_get_info(b->model, &b->info);
    b->n_tok = o->n_depth + o->n_prompt + o->n_predict;
    if (b->n_tok < 1 || b->n_tok > b->info.n_ctx_train)
        return pn_fail(err, PN_ERR_ARG,
                       "-d, -p and -n sum to %lld tokens, expected 1 to the model's %d",
                       (long long)b->n_tok, b->info.n_ctx_train);
    b->prefill = pn_calloc((size_t)o->n_repeat, sizeof *b->prefill);
    b->decode = pn_calloc((size_t)o->n_repeat, sizeof *b->decode);
    b->read = pn_calloc((size_t)o->n_repeat, sizeof *b->read);
    if (!b->prefill || !b->decode || !b->read)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for the benchmark");
    pn_exec_opts exec = pn_cli_exec_opts(o, 0);
    exec.profile = true; /* counts the bytes; two readings of the clock a stage */
    return pn_exec_new(b->model, &exec, &b->exec, err);
}

/* Without --parallel one sequence; with it a row for each number, as an array under --json. */
static pn_status run_all(bench *b, pn_err *err)
{
    static const int64_t one = 1;
    const bool is_table = b->opts->parallel.n > 0;
    const int64_t *const n_seqs = is_table ? b->opts->parallel.at : &one;
    pn_buf json = { 0 };
    pn_jw w = { .buf = &json };
    pn_status st = PN_OK;
    if (is_table)
        pn_jw_begin_arr(&w, NULL);
    for (size_t i = 0; st == PN_OK && i < (is_table ? b->opts->parallel.n : 1); i++) {
        st = make_states(b, (int)n_seqs[i], err);
        if (st == PN_OK)
            st = measure(b, err);
        if (st == PN_OK && b->opts->as_json)
            put_json(b, &w);
        else if (st == PN_OK)
            print_table(b);
        if (st == PN_OK && b->opts->profile && !b->opts->as_json) {
            pn_cli_profile_print(&b->prefill_stages, "prefill", &b->limits);
            pn_cli_profile_print(&b->decode_stages, "decode", &b->limits);
        }
        free_states(b);
    }
    if (is_table)
        pn_jw_end_arr(&w);
    if (st == PN_OK && b->opts->as_json && pn_buf_cstr(&json))
        puts(json.ptr);
    pn_buf_free(&json);
    return st;
}

int pn_cmd_bench(const pn_cli_opts *opts)
{
    if (opts->n_beside > 0)
        return pn_bench_beside(opts);
    bench b = { .opts = opts };
    pn_err err = { 0 };
    pn_status st = prepare(&b, &err);
    if (st == PN_OK)
        st = run_all(&b, &err);
    pn_cli_bar_clear(&b.bar);
    pn_free(b.prefill);
    pn_free(b.decode);
    pn_free(b.read);
    pn_reader_free(b.reader);
    pn_exec_free(b.exec);
    pn_model_free(b.model);
    return st == PN_OK ? PN_EXIT_OK : pn_cli_fail(&err);
}
