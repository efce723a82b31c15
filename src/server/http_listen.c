/* Where clients come in: TCP and a unix socket; and when nobody is let in for a while. */

#include "server/http_internal.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/status.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    BACKLOG = 511
};

/* --- accepting -------------------------------------------------------------------------------- */

void pn_http_update_accepting(pn_http *h)
{
    for (int i = 0; i < h->n_listener; i++) {
        if (!h->listeners[i].bound)
            continue;
        struct evconnlistener *const l = evhttp_bound_socket_get_listener(h->listeners[i].bound);
        if (h->is_full || h->is_pausing)
            evconnlistener_disable(l);
        else
            evconnlistener_enable(l);
    }
}

/* No more files can be opened: the listening socket would stay readable and the loop spin. The
 * argument is evhttp's. */
static void on_accept_error(struct evconnlistener *l, void *arg)
{
    (void)l, (void)arg;
    static const struct timeval pause = { 0, 100000 };
    static const double quiet_s = 10;
    const int error = errno;
    pn_http *const h = pn_http_running();
    const double now = pn_now_s();
    if (now - h->told_pause_at > quiet_s) {
        pn_http_log(h, 1, "no new connections for a moment: %s", strerror(error));
        h->told_pause_at = now;
    }
    h->is_pausing = true;
    pn_http_update_accepting(h);
    pn_conn_evict_idle(h);
    event_add(h->resume, &pause);
}

void pn_http_resume(evutil_socket_t fd, short what, void *http)
{
    (void)fd, (void)what;
    pn_http *const h = http;
    h->is_pausing = false;
    pn_http_update_accepting(h);
}

/* Takes fd, which listens. */
static pn_status serve(pn_http *h, int fd, bool is_local, pn_err *err)
{
    enum {
        METHODS = EVHTTP_REQ_GET | EVHTTP_REQ_HEAD | EVHTTP_REQ_POST | EVHTTP_REQ_PUT |
                  EVHTTP_REQ_DELETE | EVHTTP_REQ_OPTIONS | EVHTTP_REQ_PATCH
    };
    pn_listener *const l = &h->listeners[h->n_listener];
    *l = (pn_listener){ .http = h, .ev = evhttp_new(h->base), .is_local = is_local };
    if (!l->ev) {
        close(fd);
        return pn_fail(err, PN_ERR_NOMEM, "no memory for a listener");
    }
    h->n_listener++;
    /* The gate's limits are below evhttp's, so that refusals are ours: a body's bytes are counted
     * as they come, its exact length when it is whole. */
    evhttp_set_max_headers_size(l->ev, 4 * (PN_HTTP_MAX_HEADER_BYTES + PN_HTTP_MAX_URI_BYTES));
    evhttp_set_max_body_size(l->ev, -1);
    evhttp_set_allowed_methods(l->ev, METHODS);
    evhttp_set_default_content_type(l->ev, NULL);
    evhttp_set_bevcb(l->ev, pn_conn_new, l);
    evhttp_set_gencb(l->ev, pn_conn_on_request, l);
    l->bound = evhttp_accept_socket_with_handle(l->ev, fd);
    if (!l->bound) {
        close(fd);
        return pn_fail(err, PN_ERR_NOMEM, "no memory for a listener");
    }
    evconnlistener_set_error_cb(evhttp_bound_socket_get_listener(l->bound), on_accept_error);
    return PN_OK;
}

/* --- TCP -------------------------------------------------------------------------------------- */

static bool is_loopback(const struct sockaddr *sa)
{
    if (sa->sa_family == AF_INET) {
        struct sockaddr_in in;
        memcpy(&in, sa, sizeof in);
        return ntohl(in.sin_addr.s_addr) >> 24 == 127;
    }
    struct sockaddr_in6 in6;
    memcpy(&in6, sa, sizeof in6);
    return IN6_IS_ADDR_LOOPBACK(&in6.sin6_addr);
}

/* A listening socket, or -1 with errno. */
static int bind_tcp(const struct addrinfo *a)
{
    const int on = 1, off = 0;
    const int fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (a->ai_family == AF_INET6) /* "::" is every address of both families */
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(fd, a->ai_addr, a->ai_addrlen) != 0 || listen(fd, BACKLOG) != 0) {
        const int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

static int port_of(int fd)
{
    struct sockaddr_storage sa;
    socklen_t len = sizeof sa;
    char port[NI_MAXSERV];
    if (getsockname(fd, (struct sockaddr *)&sa, &len) != 0 ||
        getnameinfo((struct sockaddr *)&sa, len, NULL, 0, port, sizeof port, NI_NUMERICSERV) != 0)
        return 0;
    return (int)strtol(port, NULL, 10);
}

static pn_status listen_tcp(pn_http *h, const char *host, int port, pn_err *err)
{
    char service[16];
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE }, *list = NULL;
    if (port < 0 || port > 65535)
        return pn_fail(err, PN_ERR_ARG, "port: %d, expected 0 to 65535", port);
    snprintf(service, sizeof service, "%d", port);
    const int failure = getaddrinfo(host, service, &hints, &list);
    if (failure)
        return pn_fail(err, PN_ERR_IO, "%s: %s", host, gai_strerror(failure));
    int fd = -1, error = 0;
    const struct addrinfo *a = list;
    for (; a && fd < 0; a = fd < 0 ? a->ai_next : a) {
        fd = bind_tcp(a);
        error = fd < 0 && !error ? errno : error;
    }
    const bool is_public = fd >= 0 && !is_loopback(a->ai_addr);
    freeaddrinfo(list);
    if (fd < 0)
        return pn_fail(err, PN_ERR_IO, "%s:%d: %s", host, port, strerror(error));
    h->port = port_of(fd);
    if (is_public && !pn_guard_has_keys(h->guard))
        pn_http_log(h, 1,
                    "listening on %s without --api-key: whoever reaches this machine may use it",
                    host);
    return serve(h, fd, false, err);
}

/* --- the unix socket -------------------------------------------------------------------------- */

/* Removes the file of a socket on which nobody listens any more. */
static pn_status remove_dead(const char *path, const struct sockaddr_un *sa, pn_err *err)
{
    struct stat st;
    if (lstat(path, &st) != 0)
        return errno == ENOENT ? PN_OK : pn_fail(err, PN_ERR_IO, "%s: %s", path, strerror(errno));
    if (!S_ISSOCK(st.st_mode))
        return pn_fail(err, PN_ERR_IO, "%s: is there and is no socket", path);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return pn_fail(err, PN_ERR_IO, "%s: %s", path, strerror(errno));
    const bool is_dead =
        connect(fd, (const struct sockaddr *)sa, sizeof *sa) != 0 && errno == ECONNREFUSED;
    close(fd);
    if (!is_dead)
        return pn_fail(err, PN_ERR_IO, "%s: another process listens there", path);
    if (unlink(path) != 0)
        return pn_fail(err, PN_ERR_IO, "%s: %s", path, strerror(errno));
    return PN_OK;
}

static pn_status listen_unix(pn_http *h, const char *path, pn_err *err)
{
    struct sockaddr_un sa = { .sun_family = AF_UNIX };
    struct stat st;
    if (!*path || strlen(path) >= sizeof sa.sun_path)
        return pn_fail(err, PN_ERR_ARG, "%s: the path of a unix socket has 1 to %zu bytes", path,
                       sizeof sa.sun_path - 1);
    memcpy(sa.sun_path, path, strlen(path) + 1);
    PN_TRY(remove_dead(path, &sa, err));
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    /* Linux gives the file the socket's mode: it is never open to others, not even for a moment. */
    if (fd < 0 || fchmod(fd, 0600) != 0 || bind(fd, (struct sockaddr *)&sa, sizeof sa) != 0 ||
        listen(fd, BACKLOG) != 0 || stat(path, &st) != 0) {
        pn_fail(err, PN_ERR_IO, "%s: %s", path, strerror(errno));
        if (fd >= 0)
            close(fd);
        return PN_ERR_IO;
    }
    h->unix_path = pn_strndup(path, strlen(path));
    h->unix_dev = st.st_dev;
    h->unix_ino = st.st_ino;
    if (!h->unix_path) {
        close(fd);
        return pn_fail(err, PN_ERR_NOMEM, "no memory for a listener");
    }
    return serve(h, fd, true, err);
}

pn_status pn_http_listen(pn_http *h, pn_err *err)
{
    if (h->opts.is_silent)
        return PN_OK;
    if (h->opts.host || !h->opts.unix_path)
        PN_TRY(listen_tcp(h, h->opts.host ? h->opts.host : "127.0.0.1", h->opts.port, err));
    return h->opts.unix_path ? listen_unix(h, h->opts.unix_path, err) : PN_OK;
}

void pn_http_unlisten(pn_http *h)
{
    struct stat st;
    /* The file goes first, and only if it is still ours: a server that follows may have its own. */
    if (h->unix_path && lstat(h->unix_path, &st) == 0 && st.st_dev == h->unix_dev &&
        st.st_ino == h->unix_ino)
        unlink(h->unix_path);
    pn_free(h->unix_path);
    h->unix_path = NULL;
    for (int i = 0; i < h->n_listener; i++) {
        pn_listener *const l = &h->listeners[i];
        if (l->bound)
            evhttp_del_accept_socket(l->ev, l->bound);
        l->bound = NULL;
    }
}
