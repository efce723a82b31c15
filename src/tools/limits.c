#include "tools/limits.h"

#include "base/clock.h"
#include "base/mem.h"

#include <string.h>

enum {
    LINE = 64,
    PEAK_ITER = 1 << 13, /* rounds of one item: some 0.05 ms */
    PEAK_ITEMS = 256
};

struct pn_reader {
    pn_pool *pool;
    pn_span *pieces; /* [n_piece] */
    size_t n_piece;
    uint64_t sums[PN_POOL_MAX_THREADS * 8]; /* one cache line a thread: keeps the loads alive */
};

/* A register of every level. Eight words in an array gcc keeps in memory: 28 GB/s of a Zen 4 core,
 * even from its caches, which is less than it reads. */
typedef uint64_t words __attribute__((vector_size(16)));

static inline words read_words(const char *p)
{
    words v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* Items: pieces. Four sums, so that the loads of a line do not wait for each other. */
static void read_pieces(void *ctx, size_t i0, size_t i1, int ith)
{
    pn_reader *const r = ctx;
    words s0 = { 0 }, s1 = s0, s2 = s0, s3 = s0;
    for (size_t i = i0; i < i1; i++) {
        const char *const end = r->pieces[i].ptr + r->pieces[i].len / LINE * LINE;
        for (const char *p = r->pieces[i].ptr; p < end; p += LINE) {
            s0 += read_words(p);
            s1 += read_words(p + 16);
            s2 += read_words(p + 32);
            s3 += read_words(p + 48);
        }
    }
    const words sum = s0 + s1 + s2 + s3;
    r->sums[ith * 8] += sum[0] + sum[1];
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
