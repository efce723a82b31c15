/* pantheon serve: listens, loads the model beside it, serves until a signal. */
#include "cli/cli.h"
#include "cli/load.h"
#include "cli/profile.h"
#include "server/http.h"
#include "server/server.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum {
    SERVE_CTX = 32768 /* default context of a sequence */
};

typedef struct serving {
    const pn_cli_opts *opts;
    pn_server *server;
    pn_model *model;
    pn_engine *engine;
    pn_status status; /* of loading */
    pn_err err;
} serving;

/* "2026-11-30T06:43:21Z line" on standard error. */
static void log_line(void *ctx, int level, const char *line)
{
    const pn_cli_opts *const o = ctx;
    if (level > 2 && !o->verbose)
        return;
    char at[32];
    struct tm tm;
    const time_t now = time(NULL);
    strftime(at, sizeof at, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &tm));
    fprintf(stderr, "%s %s\n", at, line);
}

/* Tells systemd (Type=notify); https://www.freedesktop.org/software/systemd/man/sd_notify.html */
static void notify_ready(void)
{
    const char *const path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un to = { .sun_family = AF_UNIX };
    if (!path || (path[0] != '/' && path[0] != '@') || strlen(path) >= sizeof to.sun_path)
        return;
    memcpy(to.sun_path, path, strlen(path));
    if (path[0] == '@') /* an abstract name */
        to.sun_path[0] = '\0';
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    const socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
    sendto(fd, "READY=1", 7, MSG_NOSIGNAL, (struct sockaddr *)&to, len);
    close(fd);
}

static int n_ctx_of(const serving *v)
{
    pn_model_info info;
    if (v->opts->n_ctx > 0)
        return (int)v->opts->n_ctx;
    pn_model_get_info(v->model, &info);
    return SERVE_CTX < info.n_ctx_train ? SERVE_CTX : info.n_ctx_train;
}

static pn_status make_engine(serving *v, pn_err *err)
{
    const pn_cli_opts *const o = v->opts;
    const bool has_dir = o->cache_dir && strcmp(o->cache_dir, "none") != 0;
    pn_engine_opts opts = {
        .exec = pn_cli_exec_opts(o, 0),
        .strict_content = o->strict_content,
        .keeps_thoughts = strcmp(o->replay, "full") == 0,
        .cache_kv_type = pn_cli_kv_type(o),
        .cache_dir = has_dir ? o->cache_dir : NULL,
        .cache_disk_bytes = (uint64_t)o->cache_disk,
        .cache_ram_bytes = o->cache_ram > 0 ? (size_t)o->cache_ram : 0,
        .log = log_line,
        .log_ctx = (void *)o,
        .n_parallel = (int)o->n_parallel,
        .gap_ms = pn_opt_is_given(o->gap_ms) ? o->gap_ms : 0,
    };
    if (o->cache_ram < 0)
        PN_TRY(pn_cli_default_cache(v->model, &opts.exec, opts.cache_kv_type, n_ctx_of(v),
                                    (int)o->n_parallel, &opts.cache_ram_bytes, err));
    PN_TRY(pn_engine_new(v->model, &opts, &v->engine, err));
    pn_cli_print_cache(v->engine, opts.cache_dir);
    if (pn_engine_template_note(v->engine)[0])
        pn_cli_say("%s", pn_engine_template_note(v->engine));
    return PN_OK;
}

static void *load(void *ctx)
{
    serving *const v = ctx;
    v->model = pn_cli_load_model(v->opts, &v->err);
    v->status = v->model ? make_engine(v, &v->err) : v->err.code;
    if (v->status == PN_OK)
        v->status = pn_server_ready(v->server, v->engine, n_ctx_of(v), &v->err);
    if (v->status == PN_OK)
        notify_ready();
    else
        pn_server_stop(v->server);
    return NULL;
}

static pn_status make_server(serving *v, pn_err *err)
{
    const pn_cli_opts *const o = v->opts;
    const pn_guard_opts guard = {
        .allowed_hosts = o->allowed_hosts,
        .cors_origins = o->cors_origins,
        .api_keys = o->api_keys,
        .api_key_file = o->api_key_file,
    };
    const pn_http_opts http = {
        .host = o->host,
        .port = (int)o->port,
        .unix_path = o->unix_path,
        .cert_file = o->cert_file,
        .key_file = o->key_file,
        .max_body = (size_t)o->max_body,
        .guard = &guard,
        .log = log_line,
        .log_ctx = (void *)o,
    };
    const pn_server_opts opts = {
        .http = &http,
        .kv_type = pn_cli_kv_type(o),
        .n_parallel = (int)o->n_parallel,
        .max_queue = (int)o->n_queue,
        .ping_s = o->ping_s,
        .drain_s = o->drain_s,
        .slot_dir = o->slot_dir,
        .keeps_nonce = o->keeps_nonce,
        .think_budget = (int)o->think_budget,
        .log = log_line,
        .log_ctx = (void *)o,
    };
    return pn_server_new(&opts, &v->server, err);
}

static void say_where(const serving *v)
{
    const pn_cli_opts *const o = v->opts;
    const char *const host = o->host ? o->host : "127.0.0.1";
    const bool is_v6 = strchr(host, ':') != NULL;
    if (o->unix_path)
        fprintf(stderr, "[listening on %s]\n", o->unix_path);
    if (o->host || !o->unix_path)
        fprintf(stderr, "[listening on http%s://%s%s%s:%d]\n", o->cert_file ? "s" : "",
                is_v6 ? "[" : "", host, is_v6 ? "]" : "", pn_server_port(v->server));
}

static pn_status serve(serving *v, pn_err *err)
{
    pthread_t loader;
    if (pthread_create(&loader, NULL, load, v) != 0)
        return pn_fail(err, PN_ERR_NOMEM, "the system refused a thread");
    const pn_status st = pn_server_run(v->server, err);
    pthread_join(loader, NULL);
    if (v->status != PN_OK) {
        *err = v->err;
        return v->status;
    }
    return st;
}

int pn_cmd_serve(const pn_cli_opts *opts)
{
    serving v = { .opts = opts };
    pn_err err = { 0 };
    if (!!opts->cert_file != !!opts->key_file)
        return pn_cli_usage("serve: --ssl-cert-file and --ssl-key-file go together");
    pn_status st = make_server(&v, &err);
    if (st == PN_OK) {
        say_where(&v);
        st = serve(&v, &err);
    }
    pn_server_free(v.server);
    if (v.engine)
        pn_cli_profile_report(opts, pn_engine_exec(v.engine));
    pn_engine_free(v.engine);
    pn_model_free(v.model);
    return st == PN_OK ? PN_EXIT_OK : pn_cli_fail(&err);
}
