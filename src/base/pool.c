#include "base/pool.h"

#include "base/mem.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

/* Spins before a worker sleeps, and before the caller lets another process have the core. Decode
 * leaves gaps of a few microseconds between regions (norms, sampling); 4000 pauses are about 40 us
 * on a 4 GHz core (measured: Zen 5, 2026-11). */
enum {
    SPIN_PAUSES = 4000,
    YIELD_PAUSES = 1000
};

/* The runs of a region that one thread has before it: [next, end), next in the low half. Its owner
 * takes the first, whoever has none left takes the last: so a thread reads long contiguous
 * stretches, mostly counts on a line of its own, and a slow one is helped. One word, so that taking
 * a run and knowing that there was one are one step. A worker that comes late finds none, or runs
 * of the next region, which it may as well compute; the caller waits for runs, not for workers, so
 * one that has no core delays nobody. */
typedef struct part {
    _Alignas(PN_ALIGN) _Atomic uint64_t runs;
} part;
#define RUN_MAX ((size_t)UINT32_MAX)

typedef struct worker {
    pn_pool *pool;
    pthread_t thread;
    int ith;
} worker;

struct pn_pool {
    int n_thread;
    worker *workers; /* [n_thread - 1] */
    part *parts;     /* [n_thread] */
    int n_started;

    /* The region: written by the caller before it stores the parts (release), read by those who
     * took a run (acquire); stable until every run is done. */
    pn_pool_fn *fn;
    void *ctx;
    size_t n_item, grain;
    _Alignas(PN_ALIGN) atomic_size_t n_done; /* runs computed; adding releases their results */
    _Alignas(PN_ALIGN) atomic_uint epoch;    /* number of regions begun: what workers watch */
    atomic_int n_sleeping;
    atomic_bool quit;

    pthread_mutex_t lock; /* guards sleeping only */
    pthread_cond_t wake;
};

static inline void cpu_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Takes a run of a part: its first or, for helpers, its last. False when none is left. */
static bool take(part *from, bool is_owner, size_t *run)
{
    uint64_t s = atomic_load_explicit(&from->runs, memory_order_relaxed);
    for (;;) {
        const uint32_t next = (uint32_t)s, end = (uint32_t)(s >> 32);
        if (next >= end)
            return false;
        const uint64_t rest = is_owner ? s + 1 : s - ((uint64_t)1 << 32);
        if (atomic_compare_exchange_weak_explicit(&from->runs, &s, rest, memory_order_acquire,
                                                  memory_order_relaxed)) {
            *run = is_owner ? next : end - 1;
            return true;
        }
    }
}

/* Computes runs until none is left. They are counted at the end: a region in which somebody has
 * uncounted runs cannot end, so all of them are of one region. */
static void work(pn_pool *p, int ith)
{
    size_t run, n_done = 0;
    for (int i = 0; i < p->n_thread; i++) {
        part *const from = &p->parts[(ith + i) % p->n_thread];
        for (; take(from, i == 0, &run); n_done++) {
            const size_t i0 = run * p->grain;
            const size_t i1 = p->n_item - i0 < p->grain ? p->n_item : i0 + p->grain;
            p->fn(p->ctx, i0, i1, ith);
        }
    }
    if (n_done)
        atomic_fetch_add_explicit(&p->n_done, n_done, memory_order_release);
}

/* Waits until epoch differs from seen: spins, then sleeps. Returns the new epoch. */
static unsigned wait_epoch(pn_pool *p, unsigned seen)
{
    for (int i = 0; i < SPIN_PAUSES; i++) {
        const unsigned now = atomic_load_explicit(&p->epoch, memory_order_acquire);
        if (now != seen)
            return now;
        cpu_pause();
    }
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->n_sleeping, 1);
    unsigned now;
    while ((now = atomic_load(&p->epoch)) == seen)
        pthread_cond_wait(&p->wake, &p->lock);
    atomic_fetch_sub(&p->n_sleeping, 1);
    pthread_mutex_unlock(&p->lock);
    return now;
}

/* Begins an epoch. Either the worker that is about to sleep sees it, or we see the worker: both
 * sides store first and load then, in one total order. */
static void raise_epoch(pn_pool *p)
{
    atomic_fetch_add(&p->epoch, 1);
    if (atomic_load(&p->n_sleeping)) {
        pthread_mutex_lock(&p->lock);
        pthread_cond_broadcast(&p->wake);
        pthread_mutex_unlock(&p->lock);
    }
}

static void *worker_main(void *arg)
{
    worker *const w = arg;
    pn_pool *const p = w->pool;
    for (unsigned seen = 0;;) {
        seen = wait_epoch(p, seen);
        if (atomic_load_explicit(&p->quit, memory_order_relaxed))
            return NULL;
        work(p, w->ith);
    }
}

pn_status pn_pool_new(int n_thread, pn_pool **pool, pn_err *err)
{
    PN_REQUIRE(n_thread >= 1 && n_thread <= PN_POOL_MAX_THREADS, err);
    pn_pool *const p = pn_alloc_aligned(sizeof *p);
    if (!p)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for the thread pool");
    memset(p, 0, sizeof *p);
    p->n_thread = n_thread;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    p->workers = pn_calloc((size_t)n_thread, sizeof *p->workers);
    p->parts = pn_alloc_aligned((size_t)n_thread * sizeof *p->parts);
    if (!p->workers || !p->parts) {
        pn_pool_free(p);
        return pn_fail(err, PN_ERR_NOMEM, "no memory for the thread pool");
    }
    memset(p->parts, 0, (size_t)n_thread * sizeof *p->parts);
    for (int i = 0; i < n_thread - 1; i++) {
        p->workers[i] = (worker){ .pool = p, .ith = i + 1 };
        const int rc = pthread_create(&p->workers[i].thread, NULL, worker_main, &p->workers[i]);
        if (rc) {
            pn_pool_free(p);
            return pn_fail(err, PN_ERR_NOMEM, "cannot start thread %d of %d: %s", i + 2, n_thread,
                           strerror(rc));
        }
        p->n_started++;
    }
    *pool = p;
    return PN_OK;
}

void pn_pool_free(pn_pool *p)
{
    if (!p)
        return;
    atomic_store(&p->quit, true);
    raise_epoch(p);
    for (int i = 0; i < p->n_started; i++)
        pthread_join(p->workers[i].thread, NULL);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    pn_free(p->parts);
    pn_free(p->workers);
    pn_free(p);
}

void pn_pool_run(pn_pool *p, size_t n_item, size_t grain, pn_pool_fn *fn, void *ctx)
{
    if (!n_item)
        return;
    grain = grain ? grain : 1;
    if (p->n_thread == 1 || n_item <= grain) {
        fn(ctx, 0, n_item, 0);
        return;
    }
    if (n_item / grain >= RUN_MAX)
        grain = n_item / RUN_MAX + 1;
    const size_t n_run = (n_item + grain - 1) / grain;
    p->fn = fn;
    p->ctx = ctx;
    p->n_item = n_item;
    p->grain = grain;
    atomic_store_explicit(&p->n_done, 0, memory_order_relaxed);
    const size_t n_thread = (size_t)p->n_thread, each = n_run / n_thread, more = n_run % n_thread;
    for (size_t i = 0, next = 0; i < n_thread; i++) {
        const size_t end = next + each + (i < more);
        atomic_store_explicit(&p->parts[i].runs, (uint64_t)end << 32 | next, memory_order_release);
        next = end;
    }
    raise_epoch(p);
    work(p, 0);
    for (int i = 0; atomic_load_explicit(&p->n_done, memory_order_acquire) < n_run; i++) {
        cpu_pause();
        if (i >= YIELD_PAUSES)
            sched_yield();
    }
}
