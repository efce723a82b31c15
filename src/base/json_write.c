/* Writing JSON as Python's json does. Floats are laid out as CPython's repr does (pystrtod.c, code
 * r): fixed notation for exponents from -4 to 15, else d.ddde+XX. */
#include "base/json.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    DIGITS_MAX = 17 /* enough for any double to read back (IEEE 754-2019, 5.12.2) */
};

/* Whether 0.digits * 10^point reads back as x > 0. */
static bool reads_back(const char *digits, int n, int point, double x)
{
    char text[DIGITS_MAX + 16];
    snprintf(text, sizeof text, "%.*se%d", n, digits, point - n);
    return strtod(text, NULL) == x;
}

/* Adds one to the last of n digits; a carry out of the first gives 1 and one more power of ten. */
static void round_up(char *digits, int n, int *point)
{
    int i = n - 1;
    while (i >= 0 && digits[i] == '9')
        digits[i--] = '0';
    if (i >= 0) {
        digits[i]++;
    } else {
        digits[0] = '1';
        ++*point;
    }
}

/* The fewest digits that read back as x > 0, without trailing zeros; x = 0.digits * 10^*point.
 * The nearest n-digit decimal is the only candidate except at a power of two, whose gap above is
 * twice the gap below: there the next decimal above may read back where the nearest does not. */
static int shortest(double x, char digits[DIGITS_MAX + 1], int *point)
{
    for (int n = 1;; n++) {
        char e[DIGITS_MAX + 16];
        snprintf(e, sizeof e, "%.*e", n - 1, x);
        int k = 0;
        const char *p = e;
        for (; *p && *p != 'e'; p++)
            if (*p >= '0' && *p <= '9') /* skips the decimal point of any locale */
                digits[k++] = *p;
        *point = (int)strtol(p + 1, NULL, 10) + 1;
        bool ok = n == DIGITS_MAX || reads_back(digits, n, *point, x);
        if (!ok) {
            round_up(digits, n, point);
            ok = reads_back(digits, n, *point, x);
        }
        if (ok) {
            while (n > 1 && digits[n - 1] == '0')
                n--;
            return n;
        }
    }
}

void pn_json_put_real(pn_buf *b, double x)
{
    if (!isfinite(x)) {
        pn_buf_adds(b, "null");
        return;
    }
    if (signbit(x))
        pn_buf_addc(b, '-');
    if (x == 0) {
        pn_buf_adds(b, "0.0");
        return;
    }
    char d[DIGITS_MAX + 1];
    int point;
    const int n = shortest(fabs(x), d, &point);
    if (point <= -4 || point > 16) {
        pn_buf_addc(b, d[0]);
        if (n > 1)
            pn_buf_addf(b, ".%.*s", n - 1, d + 1);
        pn_buf_addf(b, "e%c%02d", point - 1 < 0 ? '-' : '+', abs(point - 1));
    } else if (point <= 0) {
        pn_buf_addf(b, "0.%.*s%.*s", -point, "000", n, d);
    } else if (point >= n) {
        pn_buf_addf(b, "%.*s%.*s.0", n, d, point - n, "000000000000000");
    } else {
        pn_buf_addf(b, "%.*s.%.*s", point, d, n - point, d + point);
    }
}

void pn_json_put_str(pn_buf *b, pn_span text)
{
    static const char plain[] = "\"\\\n\r\t\f\b", letter[] = "\"\\nrtfb";
    pn_buf_addc(b, '"');
    size_t from = 0;
    for (size_t i = 0; i < text.len; i++) {
        const unsigned char c = (unsigned char)text.ptr[i];
        if (c >= 0x20 && c != '"' && c != '\\')
            continue;
        pn_buf_add(b, text.ptr + from, i - from);
        from = i + 1;
        const char *const at = c ? strchr(plain, c) : NULL;
        if (at)
            pn_buf_addf(b, "\\%c", letter[at - plain]);
        else
            pn_buf_addf(b, "\\u%04x", c);
    }
    if (from < text.len)
        pn_buf_add(b, text.ptr + from, text.len - from);
    pn_buf_addc(b, '"');
}

static void dump(pn_buf *b, const pn_json *v, int depth)
{
    PN_ASSERT(depth <= PN_JSON_MAX_DEPTH);
    pn_json_iter it = { 0 };
    size_t n = 0;
    switch (pn_json_type_of(v)) {
    case PN_JSON_NULL:
        pn_buf_adds(b, "null");
        break;
    case PN_JSON_BOOL:
        pn_buf_adds(b, pn_json_bool(v) ? "true" : "false");
        break;
    case PN_JSON_INT:
        pn_buf_addf(b, "%lld", (long long)pn_json_int(v));
        break;
    case PN_JSON_REAL:
        pn_json_put_real(b, pn_json_real(v));
        break;
    case PN_JSON_STR:
        pn_json_put_str(b, pn_json_str(v));
        break;
    case PN_JSON_ARR:
        pn_buf_addc(b, '[');
        for (size_t i = 0; i < pn_json_len(v); i++) {
            pn_buf_adds(b, i ? ", " : "");
            dump(b, pn_json_item(v, i), depth + 1);
        }
        pn_buf_addc(b, ']');
        break;
    case PN_JSON_OBJ:
        pn_buf_addc(b, '{');
        while (pn_json_next(v, &it)) {
            pn_buf_adds(b, n++ ? ", " : "");
            pn_json_put_str(b, it.key);
            pn_buf_adds(b, ": ");
            dump(b, it.value, depth + 1);
        }
        pn_buf_addc(b, '}');
        break;
    }
}

void pn_json_dump_py(pn_buf *b, const pn_json *v)
{
    dump(b, v, 0);
}

static int add(const char *text, size_t len, void *b)
{
    pn_buf_add(b, text, len);
    return 0;
}

void pn_json_dump_sorted(pn_buf *b, const pn_json *v)
{
    if (json_dump_callback(v, add, b, JSON_SORT_KEYS | JSON_COMPACT | JSON_ENCODE_ANY) != 0)
        b->failed = true; /* it sorts in memory of its own */
}

/* --- the writer without a tree ---------------------------------------------------------------- */

/* The separator and the key before an item. */
static void lead(pn_jw *w, const char *key)
{
    const uint64_t bit = (uint64_t)1 << w->depth;
    if (w->is_used & bit)
        pn_buf_adds(w->buf, ", ");
    w->is_used |= bit;
    if (key) {
        pn_json_put_str(w->buf, (pn_span){ key, strlen(key) });
        pn_buf_adds(w->buf, ": ");
    }
}

static void begin(pn_jw *w, const char *key, char bracket)
{
    PN_ASSERT(w->depth < 63);
    lead(w, key);
    pn_buf_addc(w->buf, bracket);
    w->depth++;
    w->is_used &= ~((uint64_t)1 << w->depth);
}

static void end(pn_jw *w, char bracket)
{
    PN_ASSERT(w->depth > 0);
    w->depth--;
    pn_buf_addc(w->buf, bracket);
}

void pn_jw_begin_obj(pn_jw *w, const char *key)
{
    begin(w, key, '{');
}

void pn_jw_end_obj(pn_jw *w)
{
    end(w, '}');
}

void pn_jw_begin_arr(pn_jw *w, const char *key)
{
    begin(w, key, '[');
}

void pn_jw_end_arr(pn_jw *w)
{
    end(w, ']');
}

void pn_jw_null(pn_jw *w, const char *key)
{
    lead(w, key);
    pn_buf_adds(w->buf, "null");
}

void pn_jw_bool(pn_jw *w, const char *key, bool v)
{
    lead(w, key);
    pn_buf_adds(w->buf, v ? "true" : "false");
}

void pn_jw_int(pn_jw *w, const char *key, int64_t v)
{
    lead(w, key);
    pn_buf_addf(w->buf, "%lld", (long long)v);
}

void pn_jw_uint(pn_jw *w, const char *key, uint64_t v)
{
    lead(w, key);
    pn_buf_addf(w->buf, "%llu", (unsigned long long)v);
}

void pn_jw_real(pn_jw *w, const char *key, double v)
{
    lead(w, key);
    pn_json_put_real(w->buf, v);
}

void pn_jw_str(pn_jw *w, const char *key, const char *cstr)
{
    pn_jw_span(w, key, (pn_span){ cstr, strlen(cstr) });
}

void pn_jw_span(pn_jw *w, const char *key, pn_span text)
{
    lead(w, key);
    pn_json_put_str(w->buf, text);
}

void pn_jw_value(pn_jw *w, const char *key, const pn_json *v)
{
    lead(w, key);
    pn_json_dump_py(w->buf, v);
}
