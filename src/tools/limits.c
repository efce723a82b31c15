#include "tools/limits.h"

#include "base/clock.h"
#include "base/mem.h"

#include <string.h>

enum {
    PIECE = 1 << 20,     /* bytes of one item: far over what a thread's start costs */
    PEAK_ITER = 1 << 13, /* rounds of one item: some 0.05 ms */
    PEAK_ITEMS = 256
};

typedef struct reader {
    uint8_t *data;
    uint64_t sums[PN_POOL_MAX_THREADS * 8]; /* one cache line a thread: keeps the loads alive */
} reader;

static void touch(void *ctx, size_t i0, size_t i1, int ith)
{
    (void)ith;
    memset(((reader *)ctx)->data + i0 * PIECE, 1, (i1 - i0) * PIECE);
}

/* Eight sums, so that the loads of a line do not wait for each other. */
static void read_pieces(void *ctx, size_t i0, size_t i1, int ith)
{
    reader *const r = ctx;
    uint64_t s[8] = { 0 };
    const uint8_t *const end = r->data + i1 * PIECE;
    for (const uint8_t *p = r->data + i0 * PIECE; p < end; p += 64) {
        uint64_t v[8];
        memcpy(v, p, sizeof v);
        for (int i = 0; i < 8; i++)
            s[i] += v[i];
    }
    for (int i = 0; i < 8; i++)
        r->sums[ith * 8] += s[i];
}

double pn_read_bandwidth(pn_pool *pool, size_t bytes, int n_run)
{
    const size_t n_piece = bytes / PIECE;
    reader *const r = pn_calloc(1, sizeof *r);
    if (r)
        r->data = pn_pages_alloc(n_piece * PIECE);
    double best_s = 0;
    if (r && r->data) {
        pn_pool_run(pool, n_piece, 1, touch, r);
        for (int i = 0; i < n_run; i++) {
            const double t0 = pn_now_s();
            pn_pool_run(pool, n_piece, 8, read_pieces, r);
            const double took_s = pn_now_s() - t0;
            best_s = !best_s || took_s < best_s ? took_s : best_s;
        }
        pn_pages_free(r->data, n_piece * PIECE);
    }
    pn_free(r);
    return best_s > 0 ? (double)(n_piece * PIECE) / best_s : 0;
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
