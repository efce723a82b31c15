/* pantheon logits: runs given token ids and writes the raw logits, little-endian float32
 * [n][n_vocab], of all positions or the last ones. */

#include "base/file.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/load.h"
#include "cli/profile.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    TOKENS_BYTES_MAX = 256 << 20
};

/* The ids of --tokens or --tokens-file; bytes: room for the file, the caller's to free. */
static pn_status read_tokens(const pn_cli_opts *opts, pn_buf *bytes, int32_t **tokens, size_t *n,
                             pn_err *err)
{
    if (opts->tokens_file) {
        PN_TRY(pn_file_read(opts->tokens_file, TOKENS_BYTES_MAX, bytes, err));
        if (bytes->len % 4)
            return pn_fail(err, PN_ERR_FORMAT, "%s: %zu bytes, expected a multiple of 4 (int32)",
                           opts->tokens_file, bytes->len);
    }
    *n = opts->tokens_file ? bytes->len / 4 : opts->tokens.n;
    if (!*n)
        return pn_fail(err, PN_ERR_ARG, "the prompt is empty: no tokens were given");
    *tokens = pn_calloc(*n, sizeof **tokens);
    if (!*tokens)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for %zu tokens", *n);
    for (size_t i = 0; i < *n; i++) {
        if (opts->tokens_file) {
            const uint8_t *const b = (const uint8_t *)bytes->ptr + 4 * i;
            (*tokens)[i] = (int32_t)((uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 |
                                     (uint32_t)b[3] << 24);
        } else {
            const int64_t v = opts->tokens.at[i];
            (*tokens)[i] = v < 0 || v > INT32_MAX ? -1 : (int32_t)v;
        }
    }
    return PN_OK;
}

static pn_status write_rows(FILE *out, const char *path, const float *x, size_t n, pn_err *err)
{
    if (fwrite(x, sizeof *x, n, out) != n)
        return pn_fail(err, PN_ERR_IO, "%s: %s", path, strerror(errno));
    return PN_OK;
}

typedef struct job {
    const pn_cli_opts *opts;
    pn_model *model;
    pn_exec *exec;
    pn_state *state;
    const int32_t *tokens;
    size_t n, n_skip; /* positions before the first row that is written */
    float *logits;    /* [n_batch][n_vocab] */
    FILE *out;
    pn_cli_bar bar;
} job;

static bool should_stop(void *ctx, int i_part)
{
    (void)ctx, (void)i_part;
    return pn_cli_interrupted();
}

static pn_status run_batches(job *j, pn_err *err)
{
    pn_model_info info;
    pn_model_get_info(j->model, &info);
    const size_t n_batch = (size_t)pn_exec_n_batch(j->exec);
    for (size_t at = 0; at < j->n;) {
        const size_t now = j->n - at < n_batch ? j->n - at : n_batch;
        const size_t end = at + now, first = j->n_skip > at ? j->n_skip : at;
        const size_t n_logits = end > first ? end - first : 0;
        const pn_part part = { pn_state_seq(j->state), j->tokens + at, (int)now, j->logits,
                               (int)n_logits };
        const pn_batch batch = { .parts = &part, .n_part = 1, .should_stop = should_stop };
        PN_TRY(pn_get_forward_fn(j->model)(j->exec, &batch, err));
        PN_TRY(
            write_rows(j->out, j->opts->output, j->logits, n_logits * (size_t)info.n_vocab, err));
        at = end;
        pn_cli_progress(&j->bar, "running", at, j->n);
    }
    if (fflush(j->out) != 0)
        return pn_fail(err, PN_ERR_IO, "%s: %s", j->opts->output, strerror(errno));
    return PN_OK;
}

/* Opens the output. A model is no place for logits: it may be the very file that is mapped, and
 * -m and -o are easily swapped. */
static pn_status open_output(const char *path, FILE **out, pn_err *err)
{
    struct stat there;
    if (stat(path, &there) == 0 && S_ISREG(there.st_mode)) {
        char magic[4] = "";
        FILE *const old = fopen(path, "rb");
        const size_t n = old ? fread(magic, 1, sizeof magic, old) : 0;
        if (old)
            fclose(old);
        if (n == sizeof magic && memcmp(magic, "GGUF", n) == 0)
            return pn_fail(err, PN_ERR_ARG, "%s: is a GGUF file; it is not overwritten with logits",
                           path);
    }
    *out = fopen(path, "wb");
    return *out ? PN_OK : pn_fail(err, PN_ERR_IO, "%s: %s", path, strerror(errno));
}

static pn_status prepare(job *j, pn_err *err)
{
    const pn_cli_opts *const o = j->opts;
    j->model = pn_cli_load_model(o, err);
    if (!j->model)
        return err->code;
    pn_model_info info;
    pn_model_get_info(j->model, &info);
    const int64_t n_ctx = o->n_ctx > 0 ? o->n_ctx : info.n_ctx_train;
    if (j->n > (size_t)n_ctx)
        return pn_fail(err, PN_ERR_LIMIT, "%zu tokens do not fit a context of %lld", j->n,
                       (long long)n_ctx);
    for (size_t i = 0; i < j->n; i++)
        if (j->tokens[i] < 0 || j->tokens[i] >= info.n_vocab)
            return pn_fail(err, PN_ERR_ARG,
                           "the token id at place %zu (from 0) is out of range, expected 0 to %d",
                           i, info.n_vocab - 1);
    const size_t want = o->n_last > 0 && (size_t)o->n_last < j->n ? (size_t)o->n_last : j->n;
    j->n_skip = j->n - want;
    const pn_exec_opts exec =
        pn_cli_exec_opts(o, j->n < (size_t)o->n_batch ? (int)j->n : (int)o->n_batch);
    PN_TRY(pn_exec_new(j->model, &exec, &j->exec, err));
    const pn_state_opts state = { .n_ctx = (int)j->n, .kv_type = pn_cli_kv_type(o), .err = err };
    j->state = pn_state_new(j->model, &state);
    if (!j->state)
        return err->code;
    const size_t rows =
        (size_t)pn_exec_n_batch(j->exec) < want ? (size_t)pn_exec_n_batch(j->exec) : want;
    j->logits = pn_calloc(rows * (size_t)info.n_vocab, sizeof(float));
    if (!j->logits)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for %zu rows of logits", rows);
    return open_output(o->output, &j->out, err);
}

int pn_cmd_logits(const pn_cli_opts *opts)
{
    if (!opts->output)
        return pn_cli_usage("logits: -o is missing: where shall the logits go?");
    if (!opts->tokens_file == !opts->tokens.at) /* --tokens "" is given: an empty prompt */
        return pn_cli_usage("logits: give either --tokens or --tokens-file");
    pn_err err = { 0 };
    int32_t *tokens = NULL;
    pn_buf bytes = { 0 };
    job j = { .opts = opts };
    pn_status st = read_tokens(opts, &bytes, &tokens, &j.n, &err);
    j.tokens = tokens;
    if (st == PN_OK)
        st = prepare(&j, &err);
    if (st == PN_OK)
        st = run_batches(&j, &err);
    pn_cli_bar_clear(&j.bar);
    if (j.out && fclose(j.out) != 0 && st == PN_OK)
        st = pn_fail(&err, PN_ERR_IO, "%s: %s", opts->output, strerror(errno));
    if (j.exec)
        pn_cli_profile_report(opts, j.exec);
    pn_free(j.logits);
    pn_free(tokens);
    pn_buf_free(&bytes);
    pn_state_free(j.state);
    pn_exec_free(j.exec);
    pn_model_free(j.model);
    return st == PN_OK ? PN_EXIT_OK : pn_cli_fail(&err);
}
