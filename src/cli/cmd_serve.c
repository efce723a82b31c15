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

typedef struct serving {
    const pn_cli_opts *opts;
    pn_server *server;
    pn_model *model;
    pn_engine *engine;
    pn_status status; /* of loading */
    pn_err err;
} serving;

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

static void *load(void *ctx)
{
    serving *const v = ctx;
    v->model = pn_cli_load_model(v->opts, &v->err);
    v->status =
        v->model ? pn_cli_serving_engine(v->opts, v->model, &v->engine, &v->err) : v->err.code;
    if (v->status == PN_OK)
        v->status =
            pn_server_ready(v->server, v->engine, pn_cli_serving_ctx(v->opts, v->model), &v->err);
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
        .log = pn_cli_serving_log,
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
        .log = pn_cli_serving_log,
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
