#include "tokenizer/ids.h"

#include <string.h>

void pn_ids_free(pn_ids *ids)
{
    pn_free(ids->ptr);
    *ids = (pn_ids){ 0 };
}

bool pn_ids_reserve(pn_ids *ids, size_t n)
{
    size_t need;
    if (n <= ids->cap - ids->len)
        return true;
    if (!pn_add_size(ids->len, n, &need) || need > SIZE_MAX / 2)
        return false;
    const size_t cap = need + need / 2 + 16;
    int32_t *const p = pn_realloc(ids->ptr, cap, sizeof *p);
    if (!p)
        return false;
    ids->ptr = p;
    ids->cap = cap;
    return true;
}

/* A place in a text of ids. */
typedef struct cursor {
    pn_span text;
    size_t at;
} cursor;

static void skip_space(cursor *c)
{
    while (c->at < c->text.len && c->text.ptr[c->at] && strchr(" \t\r\n", c->text.ptr[c->at]))
        c->at++;
}

static bool skip_char(cursor *c, char want)
{
    if (c->at == c->text.len || c->text.ptr[c->at] != want)
        return false;
    c->at++;
    return true;
}

static pn_status unexpected(const cursor *c, const char *expected, pn_err *err)
{
    if (c->at == c->text.len)
        return pn_fail(err, PN_ERR_FORMAT, "token ids: end at byte %zu, %s expected", c->at,
                       expected);
    return pn_fail(err, PN_ERR_FORMAT, "token ids: '%c' (0x%02x) at byte %zu, %s expected",
                   c->text.ptr[c->at], (unsigned char)c->text.ptr[c->at], c->at, expected);
}

static bool is_digit(const cursor *c)
{
    return c->at < c->text.len && c->text.ptr[c->at] >= '0' && c->text.ptr[c->at] <= '9';
}

static pn_status parse_id(cursor *c, pn_ids *ids, pn_err *err)
{
    const size_t start = c->at;
    const bool is_negative = skip_char(c, '-');
    int64_t v = 0;
    if (!is_digit(c))
        return unexpected(c, "a token id", err);
    for (; is_digit(c); c->at++) {
        v = 10 * v + (c->text.ptr[c->at] - '0');
        if (v > INT32_MAX)
            return pn_fail(err, PN_ERR_FORMAT, "token ids: the number at byte %zu is over %d",
                           start, INT32_MAX);
    }
    if (!pn_ids_add(ids, (int32_t)(is_negative ? -v : v)))
        return pn_fail(err, PN_ERR_NOMEM, "token ids: out of memory");
    return PN_OK;
}

static pn_status parse_list(cursor *c, bool is_array, pn_ids *ids, pn_err *err)
{
    PN_TRY(parse_id(c, ids, err));
    for (;;) {
        const size_t before = c->at;
        skip_space(c);
        if (c->at == c->text.len || (is_array && c->text.ptr[c->at] == ']'))
            return PN_OK;
        if (skip_char(c, ','))
            skip_space(c);
        else if (is_array || c->at == before)
            return unexpected(c, is_array ? "',' or ']'" : "white space or ','", err);
        PN_TRY(parse_id(c, ids, err));
    }
}

static pn_status parse_text(cursor *c, pn_ids *ids, pn_err *err)
{
    skip_space(c);
    const bool is_array = skip_char(c, '[');
    skip_space(c);
    const bool is_empty = c->at == c->text.len || (is_array && c->text.ptr[c->at] == ']');
    if (!is_empty)
        PN_TRY(parse_list(c, is_array, ids, err));
    if (is_array && !skip_char(c, ']'))
        return unexpected(c, "']'", err);
    skip_space(c);
    return c->at == c->text.len ? PN_OK : unexpected(c, "the end", err);
}

pn_status pn_ids_parse(pn_span text, pn_ids *ids, pn_err *err)
{
    cursor c = { text, 0 };
    const size_t before = ids->len;
    const pn_status st = parse_text(&c, ids, err);
    if (st != PN_OK)
        ids->len = before;
    return st;
}

void pn_ids_print(const pn_ids *ids, pn_buf *out)
{
    pn_buf_addc(out, '[');
    for (size_t i = 0; i < ids->len; i++) {
        char text[13]; /* "," and an int32_t: at most 11 characters */
        char *const end = text + sizeof text, *p = end;
        const bool is_negative = ids->ptr[i] < 0;
        uint32_t v = is_negative ? 0 - (uint32_t)ids->ptr[i] : (uint32_t)ids->ptr[i];
        do
            *--p = (char)('0' + v % 10);
        while (v /= 10);
        if (is_negative)
            *--p = '-';
        if (i)
            *--p = ',';
        pn_buf_add(out, p, (size_t)(end - p));
    }
    pn_buf_addc(out, ']');
}
