#include "server/metrics.h"

#include "server/core.h"
#include "server/prom.h"

#include <stdio.h>
#include <string.h>

static const double bounds[PN_METRICS_N_BUCKET] = { 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
                                                    1,     2.5,  5,     10,   30,  60,   300 };

/* All that the server answers with. */
static const int statuses[PN_METRICS_N_CODE] = { 200, 400, 401, 403, 404, 405, 408, 409,
                                                 413, 414, 429, 431, 500, 501, 503, 0 };

void pn_metrics_status(pn_metrics *m, int status)
{
    size_t i = 0;
    while (i < PN_METRICS_N_CODE - 1 && statuses[i] != status)
        i++;
    m->n_by_status[i]++; /* the last: any other */
}

void pn_metrics_observe(pn_histogram *h, double seconds)
{
    size_t i = 0;
    while (i < PN_METRICS_N_BUCKET && seconds > bounds[i])
        i++;
    h->n[i]++;
    h->sum += seconds;
}

static pn_prom_label label(const char *name, const char *value)
{
    return (pn_prom_label){ name, { value, strlen(value) } };
}

static void put_statuses(pn_prom *p, const pn_metrics *m)
{
    pn_prom_begin(p, PN_PROM_COUNTER, "pantheon:http_responses_total", "answers by status");
    for (size_t i = 0; i < PN_METRICS_N_CODE; i++) {
        char code[16] = "other";
        if (statuses[i])
            snprintf(code, sizeof code, "%d", statuses[i]);
        const pn_prom_label l = label("code", code);
        if (m->n_by_status[i])
            pn_prom_put(p, &l, 1, (double)m->n_by_status[i]);
    }
}

static void put_requests(pn_prom *p, const pn_metrics *m)
{
    static const char *const finishes[] = { "eos", "stop", "length", "cancelled", "loop" };
    pn_prom_one(p, PN_PROM_COUNTER, "pantheon:requests_total", "generations that ended",
                (double)m->n_requests);
    pn_prom_begin(p, PN_PROM_COUNTER, "pantheon:answers_total", "answers by what ended them");
    for (size_t i = 0; i < sizeof finishes / sizeof *finishes; i++) {
        const pn_prom_label l = label("reason", finishes[i]);
        pn_prom_put(p, &l, 1, (double)m->n_by_finish[i]);
    }
    const pn_prom_label failed = label("reason", "error");
    pn_prom_put(p, &failed, 1, (double)m->n_failed);
    pn_prom_one(p, PN_PROM_COUNTER, "pantheon:client_aborts_total",
                "clients that left before their answer's end", (double)m->n_gone);
}

static void put_tokens(pn_prom *p, const pn_metrics *m)
{
    const struct {
        const char *name, *help;
        double value;
    } rows[] = {
        { "pantheon:prompt_tokens_total", "tokens of prompts", (double)m->n_prompt },
        { "pantheon:cached_tokens_total", "of these, taken from kept states", (double)m->n_cached },
        { "pantheon:evaluated_tokens_total", "of these, computed",
          (double)(m->n_prompt - m->n_cached) },
        { "pantheon:generation_tokens_total", "tokens of answers", (double)m->n_generated },
        { "pantheon:thought_tokens_total", "of these, in thoughts", (double)m->n_thought },
        { "pantheon:prompt_seconds_total", "time in which prompts were read", m->prefill_s },
        { "pantheon:generation_seconds_total", "time in which answers were written", m->decode_s },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        pn_prom_one(p, PN_PROM_COUNTER, rows[i].name, rows[i].help, rows[i].value);
}

static void put_histogram(pn_prom *p, const char *name, const char *help, const pn_histogram *h)
{
    pn_prom_begin(p, PN_PROM_HISTOGRAM, name, help);
    pn_prom_put_histogram(p, NULL, 0, bounds, PN_METRICS_N_BUCKET, h->n, h->sum);
}

static void put_cache(pn_prom *p, const pn_cache_stats *c)
{
    const struct {
        pn_prom_kind kind;
        const char *name, *help;
        double value;
    } rows[] = {
        { PN_PROM_GAUGE, "pantheon:cache_ram_bytes", "of live sequences and kept states",
          (double)c->ram_bytes },
        { PN_PROM_GAUGE, "pantheon:cache_ram_limit_bytes", "their budget", (double)c->ram_limit },
        { PN_PROM_GAUGE, "pantheon:kv_cache_usage_perc", "share of the budget, 0 to 1",
          c->ram_limit ? (double)c->ram_bytes / (double)c->ram_limit : 0 },
        { PN_PROM_GAUGE, "pantheon:cache_states", "kept in memory", (double)c->n_borders },
        { PN_PROM_GAUGE, "pantheon:cache_disk_bytes", "of kept states on disk",
          (double)c->disk.bytes },
        { PN_PROM_COUNTER, "pantheon:prefix_cache_hits_total", "prompts that began at a kept state",
          (double)c->n_restored },
        { PN_PROM_COUNTER, "pantheon:prefix_cache_disk_hits_total", "hits that came from disk",
          (double)c->n_from_disk },
        { PN_PROM_COUNTER, "pantheon:cache_evictions_total", "states that made room",
          (double)c->n_evicted },
        { PN_PROM_COUNTER, "pantheon:cache_refused_total", "states for which there was no room",
          (double)c->n_refused },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        pn_prom_one(p, rows[i].kind, rows[i].name, rows[i].help, rows[i].value);
    const pn_prom_label fresh = label("reason", "new"), no_state = label("reason", "no_state");
    pn_prom_begin(p, PN_PROM_COUNTER, "pantheon:prefix_cache_misses_total",
                  "prompts of which nothing was known; known further than the last kept state");
    pn_prom_put(p, &fresh, 1, (double)c->n_by_miss[PN_CACHE_MISS_NEW]);
    pn_prom_put(p, &no_state, 1, (double)c->n_by_miss[PN_CACHE_MISS_BORDER]);
}

static void put_now(pn_prom *p, const pn_server *s)
{
    const int n_run = s->n_asked < s->opts.n_parallel ? s->n_asked : s->opts.n_parallel;
    const pn_http_counts http = pn_http_count(s->http);
    pn_prom_one(p, PN_PROM_GAUGE, "pantheon:num_requests_running", "requests worked on", n_run);
    pn_prom_one(p, PN_PROM_GAUGE, "pantheon:num_requests_waiting", "requests in the queue",
                s->n_asked - n_run);
    pn_prom_one(p, PN_PROM_GAUGE, "pantheon:connections", "open connections", http.n_conn);
    pn_prom_one(p, PN_PROM_COUNTER, "pantheon:http_refused_total",
                "requests refused by limits, hygiene or keys", (double)http.n_refused);
    pn_prom_one(p, PN_PROM_COUNTER, "pantheon:http_timeouts_total", "connections cut by a deadline",
                (double)http.n_timeout);
}

void pn_metrics_put(pn_server *s, pn_buf *out)
{
    const pn_metrics *const m = &s->metrics;
    pn_prom p = { .out = out };
    pthread_mutex_lock(&s->lock);
    const pn_cache_stats cache = s->cache_stats;
    const bool has_lost_gpus = s->has_lost_gpus;
    pthread_mutex_unlock(&s->lock);
    put_now(&p, s);
    put_statuses(&p, m);
    put_requests(&p, m);
    put_tokens(&p, m);
    put_histogram(&p, "pantheon:time_to_first_token_seconds", "from a request's arrival",
                  &m->first_token);
    put_histogram(&p, "pantheon:inter_token_latency_seconds", "mean of an answer", &m->per_token);
    put_histogram(&p, "pantheon:e2e_request_latency_seconds", "from arrival to the last byte",
                  &m->whole);
    put_cache(&p, &cache);
    pn_prom_one(&p, PN_PROM_GAUGE, "pantheon:gpus_lost", "1: GPUs failed, and the CPU goes on",
                has_lost_gpus);
}
