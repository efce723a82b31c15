#include "tools/limits.h"

#include "base/clock.h"
#include "base/mem.h"

#include <string.h>

enum {
    PEAK_ITER = 1 << 13, /* rounds of one item: some 0.05 ms */
    PEAK_ITEMS = 256
};

struct pn_reader {
    pn_pool *pool;
    pn_span *pieces; /* [n_piece] */
    size_t n_piece;
    uint64_t sums[PN_POOL_MAX_THREADS * 8]; /* one cache line a thread: keeps the loads alive */
};

/* Items: pieces. Eight sums, so that the loads of a line do not wait for each other. */
static void read_pieces(void *ctx, size_t i0, size_t i1, int ith)
{
    pn_reader *const r = ctx;
    uint64_t s[8] = { 0 };
    for (size_t i = i0; i < i1; i++)
        for (size_t at = 0; at + sizeof s <= r->pieces[i].len; at += sizeof s) {
            uint64_t v[8];
            memcpy(v, r->pieces[i].ptr + at, sizeof v);
            for (int k = 0; k < 8; k++)
                s[k] += v[k];
        }
    for (int k = 0; k < 8; k++)
        r->sums[ith * 8] += s[k];
}

pn_reader *pn_reader_new(pn_pool *pool, const pn_span *pieces, size_t n_piece)
{
    pn_reader *const r = pn_calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->pool = pool;
    r->n_piece = n_piece;
    r->pieces = pn_calloc(n_piece, sizeof *r->pieces);
    if (!r->pieces) {
        pn_free(r);
        return NULL;
    }
    memcpy(r->pieces, pieces, n_piece * sizeof *r->pieces);
    pn_reader_run(r);
    return r;
}

void pn_reader_free(pn_reader *r)
{
    if (r)
        pn_free(r->pieces);
    pn_free(r);
}

double pn_reader_run(pn_reader *r)
{
    if (!r)
        return 0;
    size_t bytes = 0;
    for (size_t i = 0; i < r->n_piece; i++)
        bytes += r->pieces[i].len;
    const double t0 = pn_now_s();
    pn_pool_run(r->pool, r->n_piece, 1, read_pieces, r);
    return (double)bytes / (pn_now_s() - t0);
}

static void run_peak(void *ctx, size_t i0, size_t i1, int ith)
{
    (void)ith;
    const pn_peak *const peak = ctx;
    peak->run((i1 - i0) * PEAK_ITER);
}

double pn_peak_macs(pn_pool *pool, const pn_peak *peak, int n_run)
{
    double best_s = 0;
    for (int i = 0; peak->run && i < n_run; i++) {
        const double t0 = pn_now_s();
        pn_pool_run(pool, PEAK_ITEMS, 1, run_peak, (void *)peak);
        const double took_s = pn_now_s() - t0;
        best_s = !best_s || took_s < best_s ? took_s : best_s;
    }
    return best_s > 0 ? (double)PEAK_ITEMS * PEAK_ITER * peak->macs / best_s : 0;
}
