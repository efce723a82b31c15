/* Knuth, Morris and Pratt's automaton for each string ("Fast pattern matching in strings", SIAM J.
 * Comput. 6, 1977). Its state is the length of the longest end of the text that begins the string,
 * so the largest state is what must be held back. */
#include "sampling/stop.h"

#include "base/mem.h"

#include <string.h>

typedef struct pattern {
    char *text;     /* [len], owned */
    uint16_t *fail; /* [len]: the state to fall back to from state i + 1; owned */
    size_t len, state;
} pattern;

struct pn_stop {
    pattern *at; /* [n] */
    size_t n;
    char held[PN_STOP_MAX_BYTES]; /* [n_held], the end of the text */
    size_t n_held;
    bool is_done;
    size_t which;
};

void pn_stop_free(pn_stop *stop)
{
    if (!stop)
        return;
    for (size_t i = 0; stop->at && i < stop->n; i++) {
        pn_free(stop->at[i].text);
        pn_free(stop->at[i].fail);
    }
    pn_free(stop->at);
    pn_free(stop);
}

static void step(pattern *p, char c)
{
    while (p->state && p->text[p->state] != c)
        p->state = p->fail[p->state - 1];
    p->state += p->text[p->state] == c;
}

static bool pattern_init(pattern *p, pn_span s)
{
    p->text = pn_strndup(s.ptr, s.len);
    p->fail = pn_calloc(s.len, sizeof *p->fail);
    if (!p->text || !p->fail)
        return false;
    p->len = s.len;
    for (size_t i = 1; i < s.len; i++) {
        step(p, s.ptr[i]);
        p->fail[i] = (uint16_t)p->state;
    }
    p->state = 0;
    return true;
}

pn_status pn_stop_new(const pn_span *strings, size_t n, pn_stop **out, pn_err *err)
{
    if (n > PN_STOP_MAX_STRINGS)
        return pn_fail(err, PN_ERR_ARG, "stop: found %zu strings, expected at most %d", n,
                       PN_STOP_MAX_STRINGS);
    for (size_t i = 0; i < n; i++)
        if (!strings[i].len || strings[i].len > PN_STOP_MAX_BYTES)
            return pn_fail(err, PN_ERR_ARG, "stop[%zu]: found %zu bytes, expected 1 to %d", i,
                           strings[i].len, PN_STOP_MAX_BYTES);
    pn_stop *const stop = pn_calloc(1, sizeof *stop);
    bool ok = stop && (stop->at = pn_calloc(n, sizeof *stop->at)) != NULL;
    for (size_t i = 0; ok && i < n; i++) {
        stop->n = i + 1;
        ok = pattern_init(&stop->at[i], strings[i]);
    }
    if (!ok) {
        pn_stop_free(stop);
        return pn_fail(err, PN_ERR_NOMEM, "no memory for the stop strings");
    }
    *out = stop;
    return PN_OK;
}

/* Passes the first n of the held bytes on. */
static void release(pn_stop *stop, size_t n, pn_buf *out)
{
    pn_buf_add(out, stop->held, n);
    stop->n_held -= n;
    memmove(stop->held, stop->held + n, stop->n_held);
}

bool pn_stop_feed(pn_stop *stop, const char *text, size_t len, pn_buf *out, size_t *which)
{
    for (size_t i = 0; i < len && !stop->is_done; i++) {
        size_t longest = 0, hit = 0;
        for (size_t k = 0; k < stop->n; k++) {
            pattern *const p = &stop->at[k];
            step(p, text[i]);
            longest = p->state > longest ? p->state : longest;
            if (p->state == p->len && p->len > hit) {
                hit = p->len;
                stop->which = k;
            }
        }
        /* Held so far is the longest state before this byte, at most the longest string less one:
         * there is room. */
        stop->held[stop->n_held++] = text[i];
        stop->is_done = hit > 0;
        release(stop, stop->n_held - (hit ? hit : longest), out);
    }
    if (stop->is_done && which)
        *which = stop->which;
    return stop->is_done;
}

void pn_stop_flush(pn_stop *stop, pn_buf *out)
{
    if (!stop->is_done)
        release(stop, stop->n_held, out);
}
