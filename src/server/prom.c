#include "server/prom.h"

#include "base/json.h"
#include "base/status.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* A line break would end the line; in a label's value the quote would end it, too. */
static void put_escaped(pn_buf *out, const char *text, size_t len, bool is_quoted)
{
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '\\')
            pn_buf_adds(out, "\\\\");
        else if (text[i] == '\n')
            pn_buf_adds(out, "\\n");
        else if (text[i] == '"' && is_quoted)
            pn_buf_adds(out, "\\\"");
        else
            pn_buf_addc(out, text[i]);
    }
}

static void put_number(pn_buf *out, double v)
{
    if (isnan(v))
        pn_buf_adds(out, "NaN");
    else if (isinf(v))
        pn_buf_adds(out, v > 0 ? "+Inf" : "-Inf");
    else if (v == floor(v) && fabs(v) <= 0x1p53)
        pn_buf_addf(out, "%" PRId64, (int64_t)v);
    else
        pn_json_put_real(out, v);
}

void pn_prom_begin(pn_prom *p, pn_prom_kind kind, const char *name, const char *help)
{
    static const char *const words[] = { "counter", "gauge", "histogram" };
    p->name = name;
    p->kind = kind;
    pn_buf_addf(p->out, "# HELP %s ", name);
    put_escaped(p->out, help, strlen(help), false);
    pn_buf_addf(p->out, "\n# TYPE %s %s\n", name, words[kind]);
}

/* le: the bound of a bucket; NULL: the sample has none. */
static void put_sample(const pn_prom *p, const char *suffix, const pn_prom_label *labels,
                       size_t n_label, const double *le, double value)
{
    pn_buf *const out = p->out;
    pn_buf_addf(out, "%s%s", p->name, suffix);
    if (n_label || le)
        pn_buf_addc(out, '{');
    for (size_t i = 0; i < n_label; i++) {
        pn_buf_addf(out, "%s%s=\"", i ? "," : "", labels[i].name);
        put_escaped(out, labels[i].value.ptr, labels[i].value.len, true);
        pn_buf_addc(out, '"');
    }
    if (le) {
        pn_buf_adds(out, n_label ? ",le=\"" : "le=\"");
        put_number(out, *le);
        pn_buf_addc(out, '"');
    }
    if (n_label || le)
        pn_buf_addc(out, '}');
    pn_buf_addc(out, ' ');
    put_number(out, value);
    pn_buf_addc(out, '\n');
}

void pn_prom_put(pn_prom *p, const pn_prom_label *labels, size_t n_label, double value)
{
    PN_ASSERT(p->name && p->kind != PN_PROM_HISTOGRAM);
    put_sample(p, "", labels, n_label, NULL, value);
}

void pn_prom_put_histogram(pn_prom *p, const pn_prom_label *labels, size_t n_label,
                           const double *bounds, size_t n_bound, const uint64_t *counts, double sum)
{
    uint64_t n = 0;
    PN_ASSERT(p->name && p->kind == PN_PROM_HISTOGRAM);
    for (size_t i = 0; i <= n_bound; i++) {
        const double le = i < n_bound ? bounds[i] : (double)INFINITY;
        n += counts[i];
        put_sample(p, "_bucket", labels, n_label, &le, (double)n);
    }
    put_sample(p, "_sum", labels, n_label, NULL, sum);
    put_sample(p, "_count", labels, n_label, NULL, (double)n);
}

void pn_prom_one(pn_prom *p, pn_prom_kind kind, const char *name, const char *help, double value)
{
    pn_prom_begin(p, kind, name, help);
    pn_prom_put(p, NULL, 0, value);
}
