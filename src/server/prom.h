/* Metrics in Prometheus' text form, version 0.0.4:
 * https://prometheus.io/docs/instrumenting/exposition_formats/ */
#ifndef PN_SERVER_PROM_H
#define PN_SERVER_PROM_H

#include "base/buf.h"

#define PN_PROM_TYPE "text/plain; version=0.0.4; charset=utf-8" /* the answer's Content-Type */

typedef enum pn_prom_kind {
    PN_PROM_COUNTER, /* only grows; its name ends in _total */
    PN_PROM_GAUGE,
    PN_PROM_HISTOGRAM,
} pn_prom_kind;

/* A label; the name is ours ([a-zA-Z_][a-zA-Z0-9_]*), the value may be any UTF-8. */
typedef struct pn_prom_label {
    const char *name;
    pn_span value;
} pn_prom_label;

typedef struct pn_prom {
    pn_buf *out;      /* a failure shows in pn_buf_ok */
    const char *name; /* of the metric whose samples are written */
    pn_prom_kind kind;
} pn_prom; /* start with { .out = out } */

/* Begins a metric: its samples, and no other's, follow. Names are unique in a text; name lives
 * until the next begins. */
void pn_prom_begin(pn_prom *p, pn_prom_kind kind, const char *name, const char *help);

/* One sample of a counter or a gauge; labels [n_label] may be NULL. An integer up to 2^53 is
 * written as one. */
void pn_prom_put(pn_prom *p, const pn_prom_label *labels, size_t n_label, double value);

/* A histogram's buckets, sum and count. bounds [n_bound] ascend; counts [n_bound + 1] say how many
 * values were at most the bound of the same place and above the one before, the last one how many
 * were above all. */
void pn_prom_put_histogram(pn_prom *p, const pn_prom_label *labels, size_t n_label,
                           const double *bounds, size_t n_bound, const uint64_t *counts,
                           double sum);

/* begin and put of a metric without labels. */
void pn_prom_one(pn_prom *p, pn_prom_kind kind, const char *name, const char *help, double value);

#endif
