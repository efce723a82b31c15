/* A strict reading of a request's head (RFC 9110, 9112) before evhttp's lax one: refuses what two
 * readers could take for two different requests, and finds the fields that decide on its entry. */
#ifndef PN_SERVER_HTTP_HYGIENE_H
#define PN_SERVER_HTTP_HYGIENE_H

#include "base/buf.h"

/* Spans point into the head that was read; {NULL, 0}: not there. */
typedef struct pn_http_head {
    int status;      /* 0: fine; 400, 405, 413, 414, 415, 417, 431, 501, 505 */
    const char *why; /* where status is not 0: one sentence that lives for ever */
    pn_span method;
    pn_span authority, target; /* of "http://authority/target"; else authority is not there */
    pn_span host, origin, authorization, x_api_key;
    pn_span ask_method, ask_headers; /* Access-Control-Request-Method and -Headers */
    bool asks_private;               /* Access-Control-Request-Private-Network: true */
    bool is_chunked;
    uint64_t content_length; /* 0 where none is given */
} pn_http_head;

/* The length of the head at the start of bytes, with the empty line that ends it; 0 while that line
 * is not there. from: where to begin to look, 0 or what was seen before less 3. */
size_t pn_http_head_len(pn_span bytes, size_t from);

/* Why what came of a head so far can become none: status and why as above, 0: it can. Its first
 * line is judged as soon as it is there. */
int pn_http_head_so_far(pn_span bytes, const char **why);

/* head: as pn_http_head_len gave it. max_body: of Content-Length. */
void pn_http_head_read(pn_span head, uint64_t max_body, pn_http_head *out);

/* How far the reading of a chunked body is; zero: at its begin. */
typedef struct pn_http_chunks {
    uint64_t left, total; /* bytes of the chunk that is read; of all so far */
    int place, n_digit;
} pn_http_chunks;

/* Reads on in a chunked body, as strictly as a head: a size is hexadecimal digits and no more,
 * CR LF ends each line and each chunk, nothing is between the last chunk and the end. What follows
 * the end is passed over. max_body: of all chunks. 0, or a status and why as above. */
int pn_http_chunks_read(pn_http_chunks *c, pn_span bytes, uint64_t max_body, const char **why);

/* s without the bytes of set at its ends. */
pn_span pn_http_trim(pn_span s, const char *set);

/* Appends target's path (to '?'): several slashes in front are one, escapes are decoded where that
 * changes no meaning; %2F, %5C, %25, %3F, %23 and bytes that are no UTF-8 stay as they are. False:
 * an escape that is none, or of a control character; or memory is short (pn_buf_ok). */
bool pn_http_path_decode(pn_span target, pn_buf *out);

#endif
