/* What the server counts, and its text for Prometheus.
 *
 * Threads: the loop's. */
#ifndef PN_SERVER_METRICS_H
#define PN_SERVER_METRICS_H

#include "base/buf.h"

#include <stdint.h>

enum {
    PN_METRICS_N_BUCKET = 14,
    PN_METRICS_N_CODE = 16
};

typedef struct pn_histogram {
    uint64_t n[PN_METRICS_N_BUCKET + 1]; /* not cumulative; the last is beyond all bounds */
    double sum;
} pn_histogram;

typedef struct pn_metrics {
    uint64_t n_by_status[PN_METRICS_N_CODE]; /* answers, by the places of pn_metrics_statuses */
    uint64_t n_requests;                     /* generations that ended */
    uint64_t n_by_finish[5];                 /* of their choices, by pn_finish */
    uint64_t n_failed, n_gone;               /* choices that failed; clients that left */
    uint64_t n_prompt, n_cached, n_generated, n_thought; /* tokens */
    double prefill_s, decode_s;
    pn_histogram first_token, per_token, whole; /* seconds */
} pn_metrics;

void pn_metrics_status(pn_metrics *m, int status);
void pn_metrics_observe(pn_histogram *h, double seconds);

struct pn_server;
/* Appends all of it, with the engine's and the cache's figures. */
void pn_metrics_put(struct pn_server *s, pn_buf *out);

#endif
