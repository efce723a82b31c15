#include "base/spans.h"

#include "base/mem.h"

void pn_spans_free(pn_spans *s)
{
    pn_buf_free(&s->text);
    pn_free(s->trusted);
    *s = (pn_spans){ 0 };
}

void pn_spans_add(pn_spans *s, const char *bytes, size_t len, bool is_trusted)
{
    const size_t off = s->text.len;
    pn_buf_add(&s->text, bytes, len);
    if (!is_trusted || !len || s->text.failed)
        return;
    pn_range *const last = s->n_trusted ? &s->trusted[s->n_trusted - 1] : NULL;
    if (last && last->off + last->len == off) {
        last->len += len;
        return;
    }
    if (s->n_trusted == s->cap) {
        const size_t cap = s->cap ? 2 * s->cap : 16;
        pn_range *const p = pn_realloc(s->trusted, cap, sizeof *p);
        if (!p) {
            s->text.failed = true;
            return;
        }
        s->trusted = p;
        s->cap = cap;
    }
    s->trusted[s->n_trusted++] = (pn_range){ off, len };
}
