/* Who may ask: Host and Origin against pages that reach for a local server (DNS rebinding), CORS,
 * and API keys. Pure functions over a request's headers. */
#ifndef PN_SERVER_HTTP_GUARD_H
#define PN_SERVER_HTTP_GUARD_H

#include "pantheon/base.h"

/* Lists are separated by commas; spaces around an item are dropped. */
typedef struct pn_guard_opts {
    const char *allowed_hosts; /* names beside loopback and IP addresses that Host may have;
                                  ".example.org": and all below it; "*": any. NULL: none */
    const char
        *cors_origins;    /* "https://app.example.org,http://localhost:3000" or "*"; NULL: none */
    const char *api_keys; /* NULL and no file: no key is asked for */
    const char *api_key_file; /* one a line; empty lines and lines with # in front are none */
    /* Whether a path needs no key. NULL: "/" and "/health". */
    bool (*is_open)(const char *path);
} pn_guard_opts;

typedef struct pn_guard pn_guard; /* immutable: any thread */

/* Errors: PN_ERR_IO (the file), PN_ERR_ARG (a key with spaces or control characters, a file without
 * any, an origin that is none), PN_ERR_NOMEM. */
pn_status pn_guard_new(const pn_guard_opts *opts, pn_guard **out, pn_err *err);
void pn_guard_free(pn_guard *guard); /* takes NULL; keys are wiped */
bool pn_guard_has_keys(const pn_guard *guard);

/* {NULL, 0}: the header is not there. */
typedef struct pn_guard_request {
    const char *path;
    pn_span method;
    pn_span host;
    pn_span origin;
    pn_span authorization; /* "Bearer KEY" */
    pn_span x_api_key;     /* KEY */
    bool asks_method;      /* has Access-Control-Request-Method: a preflight if OPTIONS */
    bool is_local;         /* over the unix socket: no page can be its author, Host is free */
} pn_guard_request;

typedef struct pn_guard_verdict {
    int status;      /* 0: let it in; 204: answer this preflight; 401, 403 */
    const char *why; /* a sentence that lives for ever; NULL where status is 0 or 204 */
    bool is_cors;    /* the answer allows the request's Origin */
} pn_guard_verdict;

pn_guard_verdict pn_guard_check(const pn_guard *guard, const pn_guard_request *request);

#endif
