#include "support/cache_run.h"

#include "support/check.h"
#include "support/model_run.h"
#include "support/small_model.h"
#include "support/tmpdir.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const pn_run rig_run = { .n_threads = 1, .n_batch = RIG_N_BATCH };

void rig_must(pn_status st, const pn_err *err)
{
    if (st != PN_OK)
        fail_msg("%s", err->msg);
}

static void remember(void *ctx, int level, const char *line)
{
    (void)level;
    snprintf(((rig *)ctx)->log, sizeof((rig *)ctx)->log, "%s", line);
}

void rig_open_cache(rig *r, size_t ram_bytes, const char *dir)
{
    pn_err err = { 0 };
    const pn_cache_opts opts = {
        .ram_bytes = ram_bytes,
        .dir = dir,
        .disk_bytes = (uint64_t)1 << 30,
        .log = remember,
        .log_ctx = r,
    };
    rig_must(pn_cache_new(r->model, &opts, &r->cache, &err), &err);
    rig_must(pn_cache_seq_init(r->cache, &r->seq, RIG_N_CTX, &err), &err);
}

void rig_close_cache(rig *r)
{
    pn_cache_release(&r->pin);
    pn_seq_clear(&r->seq);
    pn_cache_free(r->cache);
}

rig *rig_new(const char *model, size_t ram_bytes)
{
    rig *const r = calloc(1, sizeof *r);
    assert_non_null(r);
    r->model = pn_test_load(model);
    r->ex = pn_test_exec(r->model, &rig_run);
    r->n_vocab = (size_t)pn_test_n_vocab(r->model);
    r->y = malloc(RIG_N_BATCH * r->n_vocab * sizeof *r->y);
    assert_non_null(r->y);
    rig_open_cache(r, ram_bytes, NULL);
    return r;
}

rig *rig_small(void)
{
    small_shape shape = small_base();
    shape.n_ctx = RIG_N_CTX;
    const char *const path = pn_tmpdir_path("small.gguf");
    small_write(path, &shape);
    return rig_new(path, 0);
}

void rig_free(rig *r)
{
    rig_close_cache(r);
    free(r->y);
    pn_exec_free(r->ex);
    pn_model_free(r->model);
    free(r);
}

void rig_ids(int32_t *ids, int n, uint32_t seed)
{
    for (int i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        ids[i] = (int32_t)(seed >> 8) % 90;
    }
}

void rig_feed(rig *r, const int32_t *ids, int end, const float *cold)
{
    while (r->seq.pos < end) {
        const int at = r->seq.pos, n = end - at < RIG_N_BATCH ? end - at : RIG_N_BATCH;
        const pn_part part = { &r->seq, ids + at, n, r->y, cold ? n : 1 };
        pn_err err = { 0 };
        rig_must(
            pn_get_forward_fn(r->model)(r->ex, &(pn_batch){ .parts = &part, .n_part = 1 }, &err),
            &err);
        r->n_evaluated += n;
        if (cold)
            pn_test_same_bits("against a cold run", cold + (size_t)at * r->n_vocab, r->y, (size_t)n,
                              r->n_vocab);
    }
}

void rig_begin(rig *r, const int32_t *ids, int n)
{
    pn_err err = { 0 };
    do
        rig_must(pn_cache_restore(r->cache, &r->seq, ids, n, 1, &r->pin, &r->hit, &err), &err);
    while (r->hit.is_reading);
    assert_int_equal(r->hit.pos, r->seq.pos);
    r->n_evaluated = 0;
}

void rig_keep(rig *r, const int32_t *ids, pn_cache_kind kind)
{
    pn_err err = { 0 };
    rig_must(pn_cache_keep(r->cache, &r->seq, ids, kind, &r->pin, &err), &err);
}

void rig_read_on(rig *r, const int32_t *ids, int n, const int *turns, size_t n_turn,
                 const float *cold)
{
    pn_cache_border borders[PN_CACHE_MAX_PLAN];
    rig_begin(r, ids, n);
    const size_t n_border = pn_cache_plan(r->hit.pos, n, turns, n_turn, borders);
    for (size_t i = 0; i < n_border; i++) {
        rig_feed(r, ids, borders[i].pos, cold);
        rig_keep(r, ids, borders[i].kind);
    }
    rig_feed(r, ids, n, cold);
}

void rig_read(rig *r, const int32_t *ids, int n, const int *turns, size_t n_turn)
{
    float *const cold = pn_test_logits(r->model, &rig_run, ids, n);
    rig_read_on(r, ids, n, turns, n_turn, cold);
    free(cold);
}

void rig_end(rig *r, const int32_t *ids)
{
    pn_err err = { 0 };
    rig_must(pn_cache_keep(r->cache, &r->seq, ids, PN_CACHE_TURN, NULL, &err), &err);
    pn_cache_release(&r->pin);
}
