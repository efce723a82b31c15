#include "support/bytes.h"

#include <stdlib.h>
#include <string.h>

/* Decodes len bytes of text in place of '~' and %hh. */
static void add_text(pn_buf *b, const char *x, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (x[i] == '%' && i + 2 < len) {
            const char hex[3] = { x[i + 1], x[i + 2], 0 };
            pn_buf_addc(b, (char)strtoul(hex, NULL, 16));
            i += 2;
        } else {
            pn_buf_addc(b, x[i] == '~' ? ' ' : x[i]);
        }
    }
}

static void add_word(pn_buf *b, char kind, const char *x, size_t len)
{
    const uint64_t n = strtoull(x, NULL, 0);
    pn_buf text = { 0 };
    switch (kind) {
    case 'b':
        pn_buf_add(b, &n, 1);
        break;
    case 'i':
        pn_buf_add(b, &n, 4);
        break;
    case 'q':
        pn_buf_add(b, &n, 8);
        break;
    case 'r':
        add_text(b, x, len);
        break;
    case 's':
        add_text(&text, x, len);
        pn_buf_add(b, &text.len, 8);
        pn_buf_add(b, text.ptr, text.len);
        break;
    case 'p':
        while (b->len % n != 0)
            pn_buf_addc(b, 0);
        break;
    case 'z':
        for (uint64_t i = 0; i < n; i++)
            pn_buf_addc(b, 0);
        break;
    default:
        abort(); /* a test's own mistake */
    }
    pn_buf_free(&text);
}

void pn_bytes_add(pn_buf *b, const char *text)
{
    for (const char *p = text; *p;) {
        const size_t len = strcspn(p, " ");
        if (len > 0)
            add_word(b, p[0], p + 2, len - 2);
        p += len + (p[len] == ' ');
    }
}
