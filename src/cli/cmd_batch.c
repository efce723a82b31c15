/* pantheon batch: a file of requests in, a file of answers out, in the form of OpenAI's batches
 * (https://platform.openai.com/docs/guides/batch): the server without HTTP. Answers are written as
 * they come, in any order. */
#include "cli/batch_file.h"
#include "cli/cli.h"
#include "cli/load.h"
#include "server/http.h"
#include "server/server.h"

#include "base/mem.h"

#include <string.h>

typedef struct batch {
    const pn_cli_opts *opts;
    pn_server *server;
    pn_batch_in in;
    pn_batch_out out;
    pn_id_set seen, done; /* ids of IN so far; of OUT, before this run */
    int64_t shard, n_shard;
    int64_t n_ok, n_refused, n_known; /* lines answered with 200, with another status, before */
    int n_open, n_max;
    bool is_filling, is_over; /* is_over: nothing more is to be read */
    bool is_cut;              /* the end of this process left lines for the next run */
    pn_cli_bar bar;
    pn_status status;
    pn_err err;
} batch;

/* A line that the server has. */
typedef struct line {
    batch *b;
    pn_buf id;
} line;

static void fill(batch *b);

static void stop_reading(batch *b, pn_status st)
{
    b->is_over = true;
    if (b->status == PN_OK)
        b->status = st;
}

/* A line of OUT: the response, or the sentence why there is none. */
static void put_answer(batch *b, pn_span id, int status, pn_span body, const char *why)
{
    pn_buf text = { 0 };
    pn_jw w = { .buf = &text };
    pn_jw_begin_obj(&w, NULL);
    pn_jw_span(&w, "custom_id", id);
    if (why) {
        pn_jw_null(&w, "response");
        pn_jw_begin_obj(&w, "error");
        pn_jw_str(&w, "code", "invalid_request");
        pn_jw_str(&w, "message", why);
        pn_jw_end_obj(&w);
    } else {
        pn_jw_begin_obj(&w, "response");
        pn_jw_int(&w, "status_code", status);
        pn_buf_adds(&text, ", \"body\": ");
        pn_buf_add(&text, body.ptr, body.len);
        pn_jw_end_obj(&w);
        pn_jw_null(&w, "error");
    }
    pn_jw_end_obj(&w);
    pn_status st = pn_buf_ok(&text) ? PN_OK : pn_fail(&b->err, PN_ERR_NOMEM, "no memory");
    if (st == PN_OK)
        st = pn_batch_out_put(&b->out, pn_buf_span(&text), &b->err);
    if (st != PN_OK)
        stop_reading(b, st);
    else if (!why && status == 200)
        b->n_ok++;
    else
        b->n_refused++;
    pn_buf_free(&text);
}

static void on_answer(void *ctx, int status, pn_span body)
{
    line *const l = ctx;
    batch *const b = l->b;
    if (status == 503 && pn_server_is_stopping(b->server))
        b->is_cut = true;
    else if (b->status == PN_OK)
        put_answer(b, pn_buf_span(&l->id), status, body, NULL);
    pn_buf_free(&l->id);
    pn_free(l);
    b->n_open--;
    if (!b->is_filling)
        fill(b);
}

/* What a line asks for; false with the reason in err. Views into v. */
static pn_status read_line(const pn_json *v, pn_span *id, pn_span *url, const pn_json **body,
                           pn_err *err)
{
    const pn_jat root = pn_jat_root(v), at_id = pn_jat_get(&root, "custom_id");
    const pn_jat at_url = pn_jat_get(&root, "url"), at_body = pn_jat_get(&root, "body");
    pn_span method = { "POST", 4 };
    PN_TRY(pn_jat_want(&root, PN_JSON_OBJ, err));
    PN_TRY(pn_jat_str(&at_id, id, err));
    PN_TRY(pn_jat_opt_str(&root, "method", &method, err));
    PN_TRY(pn_jat_str(&at_url, url, err));
    PN_TRY(pn_jat_want(&at_body, PN_JSON_OBJ, err));
    *body = at_body.v;
    if (!id->len)
        return pn_fail(err, PN_ERR_FORMAT, "custom_id: is empty");
    if (memchr(url->ptr, '\0', url->len))
        return pn_fail(err, PN_ERR_FORMAT, "url: has a NUL in it");
    if (method.len != 4 || memcmp(method.ptr, "POST", 4) != 0)
        return pn_fail(err, PN_ERR_FORMAT, "method: expected \"POST\"");
    return PN_OK;
}

static void submit(batch *b, pn_span id, pn_span url, const pn_json *body)
{
    if (pn_server_is_stopping(b->server)) {
        b->is_cut = true;
        stop_reading(b, PN_OK);
        return;
    }
    line *const l = pn_calloc(1, sizeof *l);
    pn_buf text = { 0 }, path = { 0 };
    pn_json_dump_py(&text, body);
    pn_buf_add(&path, url.ptr, url.len);
    if (l)
        pn_buf_add(&l->id, id.ptr, id.len);
    if (!l || !pn_buf_ok(&text) || !pn_buf_ok(&l->id) || !pn_buf_cstr(&path)) {
        stop_reading(b, pn_fail(&b->err, PN_ERR_NOMEM, "no memory for a request"));
        pn_buf_free(&text);
        if (l)
            pn_buf_free(&l->id);
        pn_free(l);
    } else {
        l->b = b;
        b->n_open++;
        pn_server_submit(b->server, path.ptr, &text, on_answer, l);
    }
    pn_buf_free(&path);
}

static void take_line(batch *b, pn_span text)
{
    pn_json *v = NULL;
    pn_span id = { "", 0 }, url = id;
    const pn_json *body = NULL;
    pn_err why = { 0 };
    bool is_new = true, is_open = true;
    char where[PN_ERR_MSG_BYTES + 64];
    pn_status st = pn_json_parse(text.ptr, text.len, "request", &v, &why);
    if (st == PN_OK)
        st = read_line(v, &id, &url, &body, &why);
    if (id.len && pn_id_set_add(&b->seen, id, &is_new, &b->err) != PN_OK)
        stop_reading(b, b->err.code);
    /* done already has it where is_open becomes false; else it is added, which does no harm */
    if (id.len && b->done.n && pn_id_set_add(&b->done, id, &is_open, &b->err) != PN_OK)
        stop_reading(b, b->err.code);
    if (st == PN_OK && !is_new)
        st = pn_fail(&why, PN_ERR_FORMAT, "custom_id: another line has it already");
    if (!is_open && is_new) {
        b->n_known++;
    } else if (st != PN_OK) {
        snprintf(where, sizeof where, "%s: line %lld: %s", b->in.name, (long long)b->in.n_line,
                 why.msg);
        put_answer(b, id, 0, (pn_span){ 0 }, where);
    } else {
        submit(b, id, url, body);
    }
    pn_json_free(v);
}

/* Keeps the server busy; at the end of all stops it. */
static void fill(batch *b)
{
    b->is_filling = true;
    while (!b->is_over && b->n_open < b->n_max) {
        pn_span text;
        const pn_status st = pn_batch_in_next(&b->in, &text, &b->err);
        if (st != PN_OK || !text.ptr)
            stop_reading(b, st);
        else if ((b->in.n_line - 1) % b->n_shard == b->shard)
            take_line(b, text);
    }
    b->is_filling = false;
    if (b->is_over && b->n_open == 0 && !pn_server_is_stopping(b->server))
        pn_server_stop(b->server);
}

static void begin(void *ctx)
{
    fill(ctx);
}

/* "i/n", 0 <= i < n. */
static bool read_shard(batch *b)
{
    const char *const text = b->opts->shard;
    int used = 0;
    b->n_shard = 1;
    if (!text)
        return true;
    long long i, n;
    if (sscanf(text, "%lld/%lld%n", &i, &n, &used) != 2 || text[used] || n < 1 || i < 0 || i >= n)
        return false;
    b->shard = i;
    b->n_shard = n;
    return true;
}

static pn_status run(batch *b, pn_model *model, pn_engine **engine, pn_err *err)
{
    const pn_cli_opts *const o = b->opts;
    const pn_http_opts http = { .is_silent = true };
    const pn_server_opts opts = {
        .http = &http,
        .kv_type = pn_cli_kv_type(o),
        .n_parallel = (int)o->n_parallel,
        .max_queue = (int)o->n_parallel,
        .drain_s = o->drain_s,
        .think_budget = (int)o->think_budget,
    };
    PN_TRY(pn_cli_serving_engine(o, model, engine, err));
    PN_TRY(pn_server_new(&opts, &b->server, err));
    PN_TRY(pn_server_ready(b->server, *engine, pn_cli_serving_ctx(o, model), err));
    b->n_max = 2 * (int)o->n_parallel; /* so that none of the engine's places waits for us */
    if (!pn_server_post(b->server, begin, b))
        return pn_fail(err, PN_ERR_NOMEM, "no memory to begin");
    PN_TRY(pn_server_run(b->server, err));
    if (b->status != PN_OK)
        *err = b->err;
    else if (!b->is_over || b->n_open || b->is_cut)
        return pn_fail(err, PN_ERR_CANCELLED, "stopped; --resume goes on where this run ended");
    return b->status;
}

int pn_cmd_batch(const pn_cli_opts *opts)
{
    batch b = { .opts = opts };
    pn_err err = { 0 };
    pn_engine *engine = NULL;
    if (!opts->output)
        return pn_cli_usage("batch: -o is missing: where the answers go");
    if (!read_shard(&b))
        return pn_cli_usage("batch: --shard \"%s\": expected i/n with 0 <= i < n, as 0/4",
                            opts->shard);
    pn_model *model = NULL;
    pn_status st = pn_batch_in_open(opts->args[0], &b.in, &err);
    if (st == PN_OK)
        st = pn_batch_out_open(opts->output, &b.in, opts->resume, &b.done, &b.out, &err);
    if (st == PN_OK) {
        model = pn_cli_load_model(opts, &err);
        st = model ? run(&b, model, &engine, &err) : err.code;
    }
    pn_server_free(b.server);
    pn_engine_free(engine);
    pn_model_free(model);
    pn_err closing = { 0 };
    if (pn_batch_out_close(&b.out, &closing) != PN_OK && st == PN_OK) {
        st = closing.code;
        err = closing;
    }
    pn_batch_in_close(&b.in);
    pn_id_set_free(&b.seen);
    pn_id_set_free(&b.done);
    if (st == PN_OK)
        fprintf(stderr, "[%lld answered, %lld refused, %lld done before]\n", (long long)b.n_ok,
                (long long)b.n_refused, (long long)b.n_known);
    return st == PN_OK ? PN_EXIT_OK : pn_cli_fail(&err);
}
