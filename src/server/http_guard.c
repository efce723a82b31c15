#include "server/http_guard.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/status.h"
#include "server/http_hygiene.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

#define MAX_KEY_BYTES      ((size_t)4096)
#define MAX_KEY_FILE_BYTES ((size_t)1 << 20)

typedef struct list {
    char **items; /* [n], owned */
    size_t n;
} list;

struct pn_guard {
    list hosts, origins, keys;
    bool (*is_open)(const char *path);
};

/* --- options ---------------------------------------------------------------------------------- */

static pn_status list_add(list *l, pn_span item, pn_err *err)
{
    char **const items = pn_realloc(l->items, l->n + 1, sizeof *items);
    if (items)
        l->items = items;
    char *const copy = items ? pn_strndup(item.ptr, item.len) : NULL;
    if (!copy)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for the server's lists");
    l->items[l->n++] = copy;
    return PN_OK;
}

typedef pn_status check_fn(pn_span item, pn_err *err);

/* Each item between separators that is not empty. */
static pn_status list_split(list *l, pn_span text, char separator, check_fn *check, pn_err *err)
{
    while (text.len) {
        const char *const at = memchr(text.ptr, separator, text.len);
        const size_t len = at ? (size_t)(at - text.ptr) : text.len;
        const pn_span item = pn_http_trim((pn_span){ text.ptr, len }, " \t\r");
        const size_t skip = at ? len + 1 : len;
        text.ptr += skip;
        text.len -= skip;
        if (!item.len || (separator == '\n' && item.ptr[0] == '#'))
            continue;
        PN_TRY(check(item, err));
        PN_TRY(list_add(l, item, err));
    }
    return PN_OK;
}

static pn_status check_host(pn_span s, pn_err *err)
{
    for (size_t i = 0; i < s.len; i++)
        if ((unsigned char)s.ptr[i] <= ' ' || strchr(":/@?#[]", s.ptr[i]))
            return pn_fail(err, PN_ERR_ARG,
                           "allowed hosts: \"%.*s\" is no name; expected one like llm.example.org, "
                           "without a scheme and a port",
                           (int)s.len, s.ptr);
    return PN_OK;
}

static pn_status check_origin(pn_span s, pn_err *err)
{
    const char *const colon = memmem(s.ptr, s.len, "://", 3);
    const bool is_word = s.len == 1 ? s.ptr[0] == '*' : s.len == 4 && memcmp(s.ptr, "null", 4) == 0;
    if (is_word || (colon && colon > s.ptr && colon + 3 < s.ptr + s.len &&
                    !memchr(colon + 3, '/', (size_t)(s.ptr + s.len - colon - 3))))
        return PN_OK;
    return pn_fail(err, PN_ERR_ARG,
                   "origins: \"%.*s\" is none; expected one like https://app.example.org:3000, "
                   "or \"*\"",
                   (int)s.len, s.ptr);
}

static pn_status check_key(pn_span s, pn_err *err)
{
    if (s.len > MAX_KEY_BYTES)
        return pn_fail(err, PN_ERR_ARG, "an API key has %zu bytes; at most %zu are read", s.len,
                       MAX_KEY_BYTES);
    for (size_t i = 0; i < s.len; i++)
        if (s.ptr[i] <= ' ' || s.ptr[i] == 0x7f)
            return pn_fail(err, PN_ERR_ARG,
                           "an API key has a space or a character that is not ASCII");
    return PN_OK;
}

static pn_span of(const char *s)
{
    return (pn_span){ s, s ? strlen(s) : 0 };
}

static pn_status read_keys(pn_guard *g, const pn_guard_opts *opts, pn_err *err)
{
    const size_t n_any = g->keys.n;
    PN_TRY(list_split(&g->keys, of(opts->api_keys), ',', check_key, err));
    if (opts->api_keys && g->keys.n == n_any)
        return pn_fail(err, PN_ERR_ARG, "the API key is empty");
    if (!opts->api_key_file)
        return PN_OK;
    const size_t n_before = g->keys.n;
    pn_buf text = { 0 };
    pn_status status = pn_file_read(opts->api_key_file, MAX_KEY_FILE_BYTES, &text, err);
    if (status == PN_OK)
        status = list_split(&g->keys, pn_buf_span(&text), '\n', check_key, err);
    if (status == PN_OK && g->keys.n == n_before)
        status = pn_fail(err, PN_ERR_ARG, "no API key in it, expected one a line");
    if (text.ptr)
        explicit_bzero(text.ptr, text.len);
    pn_buf_free(&text);
    if (status != PN_OK && err && strncmp(err->msg, opts->api_key_file, strlen(opts->api_key_file)))
        pn_err_prefix(err, "%s: ", opts->api_key_file);
    return status;
}

static bool is_open_default(const char *path)
{
    return strcmp(path, "/") == 0 || strcmp(path, "/health") == 0;
}

pn_status pn_guard_new(const pn_guard_opts *opts, pn_guard **out, pn_err *err)
{
    pn_guard *const g = pn_calloc(1, sizeof *g);
    if (!g)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for the server's lists");
    g->is_open = opts->is_open ? opts->is_open : is_open_default;
    pn_status status = list_split(&g->hosts, of(opts->allowed_hosts), ',', check_host, err);
    if (status == PN_OK)
        status = list_split(&g->origins, of(opts->cors_origins), ',', check_origin, err);
    if (status == PN_OK)
        status = read_keys(g, opts, err);
    if (status != PN_OK) {
        pn_guard_free(g);
        return status;
    }
    *out = g;
    return PN_OK;
}

static void list_clear(list *l)
{
    for (size_t i = 0; i < l->n; i++) {
        explicit_bzero(l->items[i], strlen(l->items[i]));
        pn_free(l->items[i]);
    }
    pn_free(l->items);
}

void pn_guard_free(pn_guard *g)
{
    if (!g)
        return;
    list_clear(&g->hosts);
    list_clear(&g->origins);
    list_clear(&g->keys);
    pn_free(g);
}

bool pn_guard_has_keys(const pn_guard *g)
{
    return g->keys.n > 0;
}

/* --- requests --------------------------------------------------------------------------------- */

static bool equals(pn_span a, const char *b)
{
    return a.len == strlen(b) && strncasecmp(a.ptr, b, a.len) == 0;
}

static bool is_ip(int family, pn_span s)
{
    char text[INET6_ADDRSTRLEN];
    struct in6_addr addr;
    if (s.len >= sizeof text)
        return false;
    memcpy(text, s.ptr, s.len);
    text[s.len] = 0;
    return inet_pton(family, text, &addr) == 1;
}

/* Takes ":port" off; false if what follows the colon is none. */
static bool take_port(pn_span *host)
{
    size_t n = host->len;
    while (n && host->ptr[n - 1] >= '0' && host->ptr[n - 1] <= '9')
        n--;
    if (!n || host->ptr[n - 1] != ':')
        return !memchr(host->ptr, ':', host->len) || host->ptr[0] == '[';
    if (host->len - n > 5)
        return false;
    host->len = n - 1;
    return true;
}

static bool ends_with(pn_span s, pn_span end)
{
    return s.len > end.len && strncasecmp(s.ptr + s.len - end.len, end.ptr, end.len) == 0;
}

/* A page cannot be served under an address or localhost by anyone but who has them, so only names
 * that the name system may point here (DNS rebinding) have to be known. */
static bool knows_host(const pn_guard *g, pn_span host)
{
    if (!host.len || !take_port(&host) || !host.len)
        return false;
    if (host.ptr[0] == '[')
        return host.ptr[host.len - 1] == ']' &&
               is_ip(AF_INET6, (pn_span){ host.ptr + 1, host.len - 2 });
    if (host.len > 1 && host.ptr[host.len - 1] == '.')
        host.len--;
    if (is_ip(AF_INET, host) || equals(host, "localhost") || ends_with(host, of(".localhost")))
        return true;
    for (size_t i = 0; i < g->hosts.n; i++) {
        const char *const item = g->hosts.items[i];
        if (strcmp(item, "*") == 0 || equals(host, item) ||
            (item[0] == '.' && (ends_with(host, of(item)) || equals(host, item + 1))))
            return true;
    }
    return false;
}

/* "http://HOST" or "https://HOST" of the very Host that was asked. */
static bool is_same_origin(pn_span origin, pn_span host)
{
    const size_t skip = origin.len > 7 && strncasecmp(origin.ptr, "http://", 7) == 0    ? 7
                        : origin.len > 8 && strncasecmp(origin.ptr, "https://", 8) == 0 ? 8
                                                                                        : 0;
    return skip && origin.len - skip == host.len &&
           strncasecmp(origin.ptr + skip, host.ptr, host.len) == 0;
}

static bool knows_origin(const pn_guard *g, pn_span origin)
{
    for (size_t i = 0; i < g->origins.n; i++)
        if (strcmp(g->origins.items[i], "*") == 0 || equals(origin, g->origins.items[i]))
            return true;
    return false;
}

/* Whether s is one of the keys, in a time that depends on the lengths alone: every byte of s is
 * compared with every key, whatever was found before. */
static bool is_key(const pn_guard *g, pn_span s)
{
    unsigned is_any = 0;
    for (size_t k = 0; k < g->keys.n; k++) {
        const char *const key = g->keys.items[k];
        const size_t len = strlen(key);
        volatile unsigned differs = len != s.len;
        for (size_t i = 0; i < s.len; i++)
            differs |= (unsigned char)(s.ptr[i] ^ key[i < len ? i : 0]);
        is_any |= !differs;
    }
    return is_any;
}

static pn_span bearer(pn_span authorization)
{
    static const char scheme[] = "Bearer ";
    const size_t n = sizeof scheme - 1;
    if (authorization.len <= n || strncasecmp(authorization.ptr, scheme, n) != 0)
        return (pn_span){ NULL, 0 };
    return pn_http_trim((pn_span){ authorization.ptr + n, authorization.len - n }, " \t");
}

pn_guard_verdict pn_guard_check(const pn_guard *g, const pn_guard_request *r)
{
    const bool has_origin = r->origin.ptr && !r->is_local;
    const bool is_cross = has_origin && !is_same_origin(r->origin, r->host);
    if (!r->is_local && r->host.ptr && !knows_host(g, r->host))
        return (pn_guard_verdict){
            .status = 403,
            .why = "the Host header is not one of this server's: start it with --allowed-hosts"
        };
    if (is_cross && !knows_origin(g, r->origin))
        return (pn_guard_verdict){
            .status = 403,
            .why = "pages of this Origin may not ask here: start the server with --cors-origins"
        };
    if (is_cross && r->asks_method && equals(r->method, "OPTIONS"))
        return (pn_guard_verdict){ .status = 204, .is_cors = true };
    const bool has_bearer = is_key(g, bearer(r->authorization));
    const bool has_x = is_key(g, r->x_api_key);
    if (g->keys.n && !has_bearer && !has_x && !g->is_open(r->path))
        return (pn_guard_verdict){
            .status = 401,
            .why = r->authorization.ptr || r->x_api_key.ptr
                       ? "the API key is not one of this server's"
                       : "an API key is missing: Authorization: Bearer KEY, or x-api-key: KEY",
            .is_cors = is_cross,
        };
    return (pn_guard_verdict){ .is_cors = is_cross };
}
