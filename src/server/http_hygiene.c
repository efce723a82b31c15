#include "server/http_hygiene.h"

#include "base/utf8.h"
#include "server/http.h"

#include <string.h>
#include <strings.h>

enum {
    MAX_REQUEST_LINE = PN_HTTP_MAX_URI_BYTES + sizeof "OPTIONS  HTTP/1.1\r\n"
};

/* tchar of RFC 9110, 5.6.2: what methods and names are made of. */
static bool is_token_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool is_token(pn_span s)
{
    for (size_t i = 0; i < s.len; i++)
        if (!is_token_char(s.ptr[i]))
            return false;
    return s.len > 0;
}

static bool is_word(pn_span s, const char *word)
{
    return s.len == strlen(word) && strncasecmp(s.ptr, word, s.len) == 0;
}

pn_span pn_http_trim(pn_span s, const char *set)
{
    while (s.len && *s.ptr && strchr(set, *s.ptr)) {
        s.ptr++;
        s.len--;
    }
    while (s.len && s.ptr[s.len - 1] && strchr(set, s.ptr[s.len - 1]))
        s.len--;
    return s;
}

/* Takes up to the byte c off the front of *s; false if there is none. */
static bool cut(pn_span *s, char c, pn_span *before)
{
    const char *const at = s->len ? memchr(s->ptr, c, s->len) : NULL;
    if (!at)
        return false;
    *before = (pn_span){ s->ptr, (size_t)(at - s->ptr) };
    s->len -= before->len + 1;
    s->ptr = at + 1;
    return true;
}

size_t pn_http_head_len(pn_span bytes, size_t from)
{
    /* evhttp takes a bare LF for a line's end: so the end is found there too, and refused. */
    for (size_t i = from; i < bytes.len; i++) {
        if (bytes.ptr[i] != '\n')
            continue;
        const size_t j = i + 1 < bytes.len && bytes.ptr[i + 1] == '\r' ? i + 2 : i + 1;
        if (j < bytes.len && bytes.ptr[j] == '\n')
            return j + 1;
    }
    return 0;
}

static bool take_cr(pn_span *line)
{
    if (!line->len || line->ptr[line->len - 1] != '\r')
        return false;
    line->len--;
    return true;
}

static int fail(const char **why, int status, const char *text)
{
    *why = text;
    return status;
}

/* Of "http://authority/path", which leaves the path; {NULL, 0} of a target without one. */
static pn_span take_authority(pn_span *target)
{
    const char *const s = target->ptr;
    const size_t skip = target->len >= 7 && strncasecmp(s, "http://", 7) == 0    ? 7
                        : target->len >= 8 && strncasecmp(s, "https://", 8) == 0 ? 8
                                                                                 : 0;
    if (!skip)
        return (pn_span){ NULL, 0 };
    const char *const slash = memchr(s + skip, '/', target->len - skip);
    const size_t len = slash ? (size_t)(slash - s) : target->len;
    target->ptr = slash ? slash : "/";
    target->len = slash ? target->len - len : 1;
    return (pn_span){ s + skip, len - skip };
}

static int read_request_line(pn_span line, pn_http_head *h)
{
    static const char *const methods[] = { "GET",    "HEAD",    "POST", "PUT",
                                           "DELETE", "OPTIONS", "PATCH" };
    if (!cut(&line, ' ', &h->method) || !is_token(h->method) || !cut(&line, ' ', &h->target))
        return fail(&h->why, 400, "the request line is malformed");
    for (size_t i = 0; i < h->target.len; i++)
        if (h->target.ptr[i] <= ' ' || h->target.ptr[i] == 0x7f || h->target.ptr[i] == '#')
            return fail(&h->why, 400, "the request's target is malformed");
    if (line.len != 8 || memcmp(line.ptr, "HTTP/", 5) != 0 || line.ptr[6] != '.')
        return fail(&h->why, 400, "the request line is malformed");
    if (line.ptr[5] != '1' || (line.ptr[7] != '1' && line.ptr[7] != '0'))
        return fail(&h->why, 505, "only HTTP/1.1 and HTTP/1.0 are spoken here");
    if (h->target.len > PN_HTTP_MAX_URI_BYTES)
        return fail(&h->why, 414, "the request's target is longer than 8192 bytes");
    if (is_word(h->method, "CONNECT") || is_word(h->method, "TRACE"))
        return fail(&h->why, 405, "the method is not allowed");
    bool is_known = false;
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        is_known |= h->method.len == strlen(methods[i]) &&
                    memcmp(h->method.ptr, methods[i], h->method.len) == 0;
    if (!is_known)
        return fail(&h->why, 501, "the method is not known");
    const bool is_star = is_word(h->target, "*") && is_word(h->method, "OPTIONS");
    h->authority = take_authority(&h->target);
    if (!is_star && (!h->target.len || h->target.ptr[0] != '/'))
        return fail(&h->why, 400, "the request's target is not a path");
    return 0;
}

int pn_http_head_so_far(pn_span bytes, const char **why)
{
    pn_http_head head = { 0 };
    pn_span line, rest = bytes;
    if (bytes.len && !is_token_char(bytes.ptr[0]))
        return fail(why, 400, "this is no HTTP request");
    if (bytes.len && memchr(bytes.ptr, 0, bytes.len)) /* to evhttp its line is an empty one */
        return fail(why, 400, "a header has a control character");
    const bool is_line = cut(&rest, '\n', &line);
    if ((is_line ? line.len + 1 : bytes.len) > MAX_REQUEST_LINE)
        return fail(why, 414, "the request's target is longer than 8192 bytes");
    if (is_line && rest.len > PN_HTTP_MAX_HEADER_BYTES)
        return fail(why, 431, "the request's headers are longer than 32768 bytes");
    /* evhttp would judge this line before the rest is there. */
    if (is_line && !take_cr(&line))
        return fail(why, 400, "a line does not end with CR LF");
    const int status = is_line ? read_request_line(line, &head) : 0;
    *why = head.why;
    return status;
}

/* Fields of which a second one would be another's reading. */
typedef struct fields {
    pn_span content_length, content_encoding, transfer_encoding, expect, asks_private;
} fields;

static int read_field(pn_span line, pn_http_head *h, fields *f)
{
    pn_span name;
    if (line.ptr[0] == ' ' || line.ptr[0] == '\t')
        return fail(&h->why, 400, "a header goes on in a second line");
    if (!cut(&line, ':', &name) || !is_token(name))
        return fail(&h->why, 400, "a header's name is malformed");
    const pn_span value = pn_http_trim(line, " \t");
    for (size_t i = 0; i < value.len; i++)
        if (((unsigned char)value.ptr[i] < ' ' && value.ptr[i] != '\t') || value.ptr[i] == 0x7f)
            return fail(&h->why, 400, "a header has a control character");
    const struct {
        const char *name;
        pn_span *out;
    } once[] = {
        { "Host", &h->host },
        { "Origin", &h->origin },
        { "Authorization", &h->authorization },
        { "X-Api-Key", &h->x_api_key },
        { "Content-Length", &f->content_length },
        { "Content-Encoding", &f->content_encoding },
        { "Transfer-Encoding", &f->transfer_encoding },
        { "Expect", &f->expect },
        { "Access-Control-Request-Method", &h->ask_method },
        { "Access-Control-Request-Headers", &h->ask_headers },
        { "Access-Control-Request-Private-Network", &f->asks_private },
    };
    for (size_t i = 0; i < sizeof once / sizeof *once; i++) {
        if (!is_word(name, once[i].name))
            continue;
        if (once[i].out->ptr)
            return fail(&h->why, 400, "a header that may come once came twice");
        *once[i].out = value;
    }
    return 0;
}

static int read_length(pn_span s, uint64_t max_body, pn_http_head *h)
{
    if (!s.len)
        return fail(&h->why, 400, "Content-Length is not a number");
    for (size_t i = 0; i < s.len; i++) {
        if (s.ptr[i] < '0' || s.ptr[i] > '9')
            return fail(&h->why, 400, "Content-Length is not a number");
        const unsigned digit = (unsigned)(s.ptr[i] - '0');
        if (h->content_length > (UINT64_MAX - digit) / 10)
            return fail(&h->why, 413, "the request's body is too long");
        h->content_length = h->content_length * 10 + digit;
    }
    if (h->content_length > max_body)
        return fail(&h->why, 413, "the request's body is too long");
    return 0;
}

/* What the fields say together. */
static int judge(const fields *f, uint64_t max_body, bool is_11, pn_http_head *h)
{
    if (is_11 && !h->host.ptr)
        return fail(&h->why, 400, "the request has no Host header");
    if (h->authority.ptr && h->host.ptr &&
        (h->authority.len != h->host.len ||
         strncasecmp(h->authority.ptr, h->host.ptr, h->host.len) != 0))
        return fail(&h->why, 400, "the request's target names another host than its Host header");
    if (f->content_length.ptr && f->transfer_encoding.ptr)
        return fail(&h->why, 400, "the request has both Content-Length and Transfer-Encoding");
    if (f->transfer_encoding.ptr && (!is_11 || !is_word(f->transfer_encoding, "chunked")))
        return fail(&h->why, 400, "the only transfer encoding is chunked");
    h->is_chunked = f->transfer_encoding.ptr;
    if (f->content_length.ptr) {
        const int status = read_length(f->content_length, max_body, h);
        if (status)
            return status;
    }
    if (f->content_encoding.len && !is_word(f->content_encoding, "identity"))
        return fail(&h->why, 415, "compressed bodies are not taken: leave out Content-Encoding");
    /* evhttp would take such a body for the next request. */
    if (is_word(h->method, "HEAD") && (h->is_chunked || h->content_length))
        return fail(&h->why, 400, "a HEAD request has no body");
    if (f->expect.ptr && !is_word(f->expect, "100-continue"))
        return fail(&h->why, 417, "the only expectation that can be met is 100-continue");
    h->asks_private = f->asks_private.ptr && is_word(f->asks_private, "true");
    return 0;
}

void pn_http_head_read(pn_span head, uint64_t max_body, pn_http_head *out)
{
    *out = (pn_http_head){ 0 };
    fields f = { 0 };
    pn_span line;
    int n_line = 0;
    bool is_11 = false;
    out->status = pn_http_head_so_far(head, &out->why);
    while (!out->status && cut(&head, '\n', &line)) {
        if (!take_cr(&line))
            out->status = fail(&out->why, 400, "a line does not end with CR LF");
        else if (!line.len)
            break;
        else if (n_line++ == 0) {
            out->status = read_request_line(line, out);
            is_11 = line.ptr[line.len - 1] == '1';
        } else if (n_line > PN_HTTP_MAX_HEADERS + 1)
            out->status = fail(&out->why, 431, "the request has more than 128 headers");
        else
            out->status = read_field(line, out, &f);
    }
    if (!out->status)
        out->status = judge(&f, max_body, is_11, out);
}

static int hex(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Places in a chunked body: what is expected next. */
enum {
    CHUNK_SIZE,
    CHUNK_SIZE_LF,
    CHUNK_DATA,
    CHUNK_CR,
    CHUNK_LF,
    CHUNK_LAST_CR,
    CHUNK_LAST_LF,
    CHUNK_END
};

/* A digit of a chunk's size, or the CR behind them. */
static int read_chunk_size(pn_http_chunks *c, char byte, uint64_t max_body, const char **why)
{
    const int digit = hex(byte), max_digits = 16;
    if (digit < 0 && (byte != '\r' || !c->n_digit))
        return fail(why, 400, "a chunk's size is not a number");
    if (digit < 0) {
        c->place = CHUNK_SIZE_LF;
        return 0;
    }
    if (++c->n_digit > max_digits)
        return fail(why, 400, "a chunk's size has more than 16 digits");
    if (c->left > (max_body - c->total) >> 4)
        return fail(why, 413, "the request's body is too long");
    c->left = c->left << 4 | (unsigned)digit;
    if (c->left > max_body - c->total)
        return fail(why, 413, "the request's body is too long");
    return 0;
}

static int expect_byte(pn_http_chunks *c, char byte, char expected, int next, const char **why)
{
    c->place = next;
    return byte == expected ? 0 : fail(why, 400, "a chunk does not end with CR LF");
}

static int read_chunk_byte(pn_http_chunks *c, char byte, uint64_t max_body, const char **why)
{
    switch (c->place) {
    case CHUNK_SIZE:
        return read_chunk_size(c, byte, max_body, why);
    case CHUNK_SIZE_LF:
        return expect_byte(c, byte, '\n', c->left ? CHUNK_DATA : CHUNK_LAST_CR, why);
    case CHUNK_CR:
        return expect_byte(c, byte, '\r', CHUNK_LF, why);
    case CHUNK_LF:
        c->n_digit = 0;
        return expect_byte(c, byte, '\n', CHUNK_SIZE, why);
    case CHUNK_LAST_CR:
        if (byte != '\r')
            return fail(why, 400, "fields behind the last chunk are not taken");
        c->place = CHUNK_LAST_LF;
        return 0;
    default:
        return expect_byte(c, byte, '\n', CHUNK_END, why);
    }
}

int pn_http_chunks_read(pn_http_chunks *c, pn_span bytes, uint64_t max_body, const char **why)
{
    int status = 0;
    for (size_t i = 0; !status && i < bytes.len && c->place != CHUNK_END;) {
        if (c->place != CHUNK_DATA) {
            status = read_chunk_byte(c, bytes.ptr[i++], max_body, why);
            continue;
        }
        const size_t n = c->left < bytes.len - i ? (size_t)c->left : bytes.len - i;
        i += n;
        c->left -= n;
        c->total += n;
        if (!c->left)
            c->place = CHUNK_CR;
    }
    return status;
}

/* Appends the well-formed code points of s as they are, other bytes as escapes. */
static void add_decoded(pn_span s, pn_buf *out)
{
    uint32_t cp;
    for (size_t i = 0; i < s.len;) {
        const size_t n = pn_utf8_next(s.ptr + i, s.len - i, &cp);
        if (n)
            pn_buf_add(out, s.ptr + i, n);
        else
            pn_buf_addf(out, "%%%02X", (unsigned)(unsigned char)s.ptr[i]);
        i += n ? n : 1;
    }
}

bool pn_http_path_decode(pn_span target, pn_buf *out)
{
    pn_buf run = { 0 }; /* decoded bytes that may be parts of code points */
    const char *const query = memchr(target.ptr, '?', target.len);
    const size_t len = query ? (size_t)(query - target.ptr) : target.len;
    size_t i = 0;
    while (i + 1 < len && target.ptr[i] == '/' && target.ptr[i + 1] == '/')
        i++;
    bool is_fine = true;
    while (is_fine && i < len) {
        if (target.ptr[i] != '%') {
            pn_buf_addc(&run, target.ptr[i++]);
            continue;
        }
        const int hi = i + 2 < len ? hex(target.ptr[i + 1]) : -1;
        const int lo = i + 2 < len ? hex(target.ptr[i + 2]) : -1;
        const int c = hi * 16 + lo;
        is_fine = hi >= 0 && lo >= 0 && c >= 0x20 && c != 0x7f;
        if (is_fine && strchr("/\\%?#", c)) {
            add_decoded(pn_buf_span(&run), out);
            run.len = 0;
            pn_buf_addf(out, "%%%02X", (unsigned)c);
        } else
            pn_buf_addc(&run, (char)c);
        i += 3;
    }
    add_decoded(pn_buf_span(&run), out);
    is_fine = is_fine && pn_buf_ok(&run) && pn_buf_ok(out);
    pn_buf_free(&run);
    return is_fine;
}
