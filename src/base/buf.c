#include "base/buf.h"

#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void pn_buf_free(pn_buf *b)
{
    pn_free(b->ptr);
    *b = (pn_buf){ 0 };
}

char *pn_buf_extend(pn_buf *b, size_t len)
{
    size_t need;
    if (b->failed)
        return NULL;
    if (!pn_add_size(b->len, len, &need)) {
        b->failed = true;
        return NULL;
    }
    if (need > b->cap || !b->ptr) {
        const size_t cap = need < 64 ? 64 : need > SIZE_MAX / 2 ? need : need + need / 2;
        char *const p = pn_realloc(b->ptr, cap, 1);
        if (!p) {
            b->failed = true;
            return NULL;
        }
        b->ptr = p;
        b->cap = cap;
    }
    char *const at = b->ptr + b->len;
    b->len = need;
    return at;
}

void pn_buf_add(pn_buf *b, const void *bytes, size_t len)
{
    if (!len)
        return;
    char *const at = pn_buf_extend(b, len);
    if (at)
        memcpy(at, bytes, len);
}

void pn_buf_adds(pn_buf *b, const char *cstr)
{
    pn_buf_add(b, cstr, strlen(cstr));
}

void pn_buf_addc(pn_buf *b, char c)
{
    pn_buf_add(b, &c, 1);
}

void pn_buf_addf(pn_buf *b, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    const int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *const at = n >= 0 ? pn_buf_extend(b, (size_t)n + 1) : NULL;
    if (at) {
        vsnprintf(at, (size_t)n + 1, fmt, again);
        b->len--; /* the NUL is not content */
    }
    va_end(again);
}

const char *pn_buf_cstr(pn_buf *b)
{
    char *const at = pn_buf_extend(b, 1);
    if (!at)
        return NULL;
    *at = '\0';
    b->len--;
    return b->ptr;
}

bool pn_span_begins(pn_span s, const char *cstr)
{
    const size_t n = strlen(cstr);
    return s.len >= n && (!n || memcmp(s.ptr, cstr, n) == 0);
}

bool pn_span_is(pn_span s, const char *cstr)
{
    return s.len == strlen(cstr) && pn_span_begins(s, cstr);
}
