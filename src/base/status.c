#include "base/status.h"

#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Names in messages come from untrusted files: keep them on one line of a terminal, and the message
 * UTF-8, also where it was cut inside a character. */
static void tame(char *s)
{
    for (size_t len = strlen(s); len;) {
        uint32_t cp = 0;
        const size_t n = pn_utf8_next(s, len, &cp), step = n ? n : 1;
        if (!n || cp < 0x20 || (cp >= 0x7f && cp < 0xa0))
            memset(s, '?', step);
        s += step;
        len -= step;
    }
}

pn_status pn_fail(pn_err *err, pn_status code, const char *fmt, ...)
{
    if (err) {
        va_list ap;
        va_start(ap, fmt);
        err->code = code;
        vsnprintf(err->msg, sizeof err->msg, fmt, ap);
        va_end(ap);
        tame(err->msg);
    }
    return code;
}

void pn_err_prefix(pn_err *err, const char *fmt, ...)
{
    if (!err || err->code == PN_OK)
        return;
    char old[sizeof err->msg];
    memcpy(old, err->msg, sizeof old);
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(err->msg, sizeof err->msg, fmt, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n < sizeof err->msg)
        snprintf(err->msg + n, sizeof err->msg - (size_t)n, "%s", old);
    tame(err->msg);
}

#ifdef PN_DEBUG
void pn_assert_failed(const char *cond, const char *file, int line)
{
    fprintf(stderr, "%s:%d: assertion failed: %s\n", file, line, cond);
    abort();
}
#endif
