/* The state cache under random use: several sequences at a time whose prompts branch off each
 * other's, small budgets that evict all the while, cancelled passes; with a folder also a restart,
 * and processes that are killed at any moment. After every step: each logit equals the cold run's,
 * bit for bit; the memory booked is what live sequences and borders hold, and within the budget,
 * what protected borders hold is within their share; what is pinned is there. SEED= repeats a run,
 * SOAK=1 makes it long. */

#include "engine/cache_lru.h"

#include "support/check.h"
#include "support/model_run.h"
#include "support/small_model.h"
#include "support/store_run.h"
#include "support/tmpdir.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    N_CTX = 500,
    N_CLIENT = 3,
    N_PROMPT = 24, /* remembered, to branch off */
    N_BATCH = 160
};

typedef struct prompt {
    int n;
    int32_t ids[N_CTX];
} prompt;

typedef struct client {
    pn_seq seq;
    pn_cache_pin pin;
    bool is_active;
    prompt prompt;
    float *cold; /* [n][n_vocab] */
    bool is_restoring;
} client;

typedef struct rig {
    pn_model *model;
    pn_exec *ex;
    pn_cache *cache;
    pn_kv_type kv_type;
    size_t n_vocab;
    uint64_t rng, prompt_rng; /* two, so that a run with other hits has the same prompts */
    prompt prompts[N_PROMPT];
    int n_prompt;
    client clients[N_CLIENT];
    float *y; /* [N_BATCH][n_vocab] */
    int n_checked, n_limit, n_cancelled, n_from_disk;
    int n_protected; /* checks that found protected borders */
    int n_left;      /* borders that were left while they were read */
} rig;

/* splitmix64; 0 to n - 1. */
static int draw(uint64_t *rng, int n)
{
    uint64_t z = *rng += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (int)((z ^ z >> 31) % (uint64_t)n);
}

static int below(rig *r, int n)
{
    return draw(&r->rng, n);
}

/* --- the books -------------------------------------------------------------------------------- */

enum {
    MAX_BLOCKS = 20000
};

typedef struct books {
    const pn_block *blocks[MAX_BLOCKS];
    size_t n;
} books;

static void enter(books *b, const pn_block *block)
{
    assert_true(b->n < MAX_BLOCKS);
    if (block)
        b->blocks[b->n++] = block;
}

static int by_address(const void *a, const void *b)
{
    const uintptr_t x = (uintptr_t) * (const pn_block *const *)a,
                    y = (uintptr_t) * (const pn_block *const *)b;
    return (x > y) - (x < y);
}

static void enter_node(books *b, const pn_cache_node *node)
{
    enter(b, node->ids);
    enter(b, node->snapshot->rec);
    for (int i = 0; i < node->snapshot->n_page; i++)
        enter(b, node->snapshot->pages[i]);
}

/* Bytes of all that was entered, each block once. */
static size_t sum(books *b)
{
    size_t n = 0;
    qsort(b->blocks, b->n, sizeof *b->blocks, by_address);
    for (size_t i = 0; i < b->n; i++)
        if (!i || b->blocks[i] != b->blocks[i - 1])
            n += pn_block_cost(b->blocks[i]->bytes);
    return n;
}

/* Protected borders hold no more than what they are said to, and that is within their share. */
static void check_protected(rig *r, size_t limit)
{
    static books b;
    size_t n = 0;
    b.n = 0;
    pn_cache_node *const root = pn_cache_root(r->cache);
    for (pn_cache_node *node = pn_tree_next(root); node; node = pn_tree_next(node))
        if (node->is_protected) {
            enter_node(&b, node);
            n += pn_tree_node_bytes(node->pos);
        }
    r->n_protected += b.n > 0;
    assert_in_range(sum(&b) + n, 0, pn_lru_protected_bytes(root));
    assert_in_range(pn_lru_protected_bytes(root), 0, limit / 4 * 3);
}

/* What all holders hold, each block once, against what the budget says; the tree's order; pins. */
static void check_books(rig *r)
{
    static books b;
    pn_cache_stats stats;
    b.n = 0;
    pn_cache_get_stats(r->cache, &stats);
    assert_true(stats.ram_bytes <= stats.ram_limit);
    assert_true(stats.disk.bytes <= stats.disk.max_bytes);
    check_protected(r, stats.ram_limit);
    for (int i = 0; i < N_CLIENT; i++) /* blocks that are read into are in no sequence yet */
        if (stats.is_reading_on || r->clients[i].pin.read)
            return;
    if (pn_cache_store(r->cache)) { /* holds what it has not written yet */
        if (below(r, 10))
            return;
        pn_store_flush(pn_cache_store(r->cache));
        pn_cache_get_stats(r->cache, &stats);
    }
    size_t want = 0, n_node = 0;
    int n_pin = 0;
    pn_cache_node *const root = pn_cache_root(r->cache);
    for (pn_cache_node *node = pn_tree_next(root); node; node = pn_tree_next(node)) {
        want += pn_tree_node_bytes(node->pos);
        n_node++;
        n_pin += node->n_pin;
        enter_node(&b, node);
        assert_true(node->parent->pos < node->pos);
        int n_common;
        assert_ptr_equal(pn_tree_find(root, (const int32_t *)node->ids->data, node->pos, &n_common),
                         node);
    }
    for (int i = 0; i < N_CLIENT; i++) {
        const client *const c = &r->clients[i];
        n_pin -= c->pin.node != NULL;
        enter(&b, c->seq.rec);
        for (int k = 0; k < c->seq.n_page; k++)
            enter(&b, c->seq.pages[k]);
    }
    assert_int_equal(stats.ram_bytes, want + sum(&b));
    assert_int_equal(stats.n_borders, n_node);
    assert_int_equal(n_pin, 0);
}

/* --- steps ------------------------------------------------------------------------------------ */

/* A prompt that goes on from, or parts from, one that was there before. */
static void make_prompt(rig *r, prompt *p)
{
    int at = 0;
    if (r->n_prompt && draw(&r->prompt_rng, 8)) {
        const int i = draw(&r->prompt_rng, r->n_prompt < N_PROMPT ? r->n_prompt : N_PROMPT);
        *p = r->prompts[i];
        at = draw(&r->prompt_rng, 2) ? p->n : draw(&r->prompt_rng, p->n + 1);
    }
    p->n = at + draw(&r->prompt_rng, draw(&r->prompt_rng, 2) ? 20 : N_CTX - at + 1);
    p->n = p->n > N_CTX ? N_CTX : p->n < 1 ? 1 : p->n;
    for (int i = at; i < p->n; i++) /* few kinds of ids, so that strangers begin alike, too */
        p->ids[i] = draw(&r->prompt_rng, i % 50 == 0 ? 2 : (int)r->n_vocab);
    r->prompts[r->n_prompt++ % N_PROMPT] = *p;
}

static void must(pn_status st, const pn_err *err)
{
    if (st != PN_OK)
        fail_msg("%s", err->msg);
}

/* Until what is read from disk is there, others have their turns. */
static void begin(rig *r, client *c)
{
    pn_err err = { 0 };
    pn_cache_hit hit;
    if (!c->is_restoring)
        make_prompt(r, &c->prompt);
    must(pn_cache_restore(r->cache, &c->seq, c->prompt.ids, c->prompt.n, below(r, 2) * 0.001,
                          &c->pin, &hit, &err),
         &err);
    c->is_restoring = hit.is_reading;
    if (hit.is_reading)
        return;
    assert_int_equal(hit.pos, c->seq.pos);
    assert_true(hit.pos < c->prompt.n);
    assert_true(hit.pos <= hit.n_common);
    /* One from disk may stay out of memory that is short, and an earlier one is pinned. */
    const int pinned = c->pin.node ? c->pin.node->pos : 0;
    assert_true(hit.is_from_disk ? pinned <= hit.pos : pinned == hit.pos);
    const pn_run run = { .n_threads = 1, .kv_type = r->kv_type };
    c->cold = pn_test_logits(r->model, &run, c->prompt.ids, c->prompt.n);
    c->is_active = true;
}

static void end(rig *r, client *c)
{
    pn_cache_leave(r->cache, &c->pin);
    pn_cache_release(&c->pin);
    pn_seq_release(&c->seq);
    free(c->cold);
    c->cold = NULL;
    c->is_active = c->is_restoring = false;
}

static bool stop_now(void *ctx, int i_part)
{
    (void)i_part;
    return (*(int *)ctx)-- == 0;
}

/* Reads on, some of the time only half. */
static void read_on(rig *r, client *c)
{
    const int at = c->seq.pos, left = c->prompt.n - at;
    const int n = 1 + below(r, left < N_BATCH ? left : N_BATCH);
    const pn_part part = { &c->seq, c->prompt.ids + at, n, r->y, n };
    pn_batch batch = { .parts = &part, .n_part = 1 };
    int n_layer_left = below(r, 2);
    if (below(r, 10) == 0) {
        batch.should_stop = stop_now;
        batch.ctx = &n_layer_left;
    }
    pn_err err = { 0 };
    const pn_status st = pn_get_forward_fn(r->model)(r->ex, &batch, &err);
    if (st == PN_ERR_LIMIT || st == PN_ERR_CANCELLED) {
        r->n_limit += st == PN_ERR_LIMIT;
        r->n_cancelled += st == PN_ERR_CANCELLED;
        end(r, c);
        return;
    }
    must(st, &err);
    pn_test_same_bits("against a cold run", c->cold + (size_t)at * r->n_vocab, r->y, (size_t)n,
                      r->n_vocab);
    r->n_checked += n;
}

static void step(rig *r)
{
    client *const c = &r->clients[below(r, N_CLIENT)];
    pn_err err = { 0 };
    const bool is_whole = c->is_active && c->seq.pos == c->prompt.n;
    if (c->is_restoring && below(r, 6) == 0) {
        r->n_left += c->pin.read != NULL;
        end(r, c); /* nobody waits for it any more */
    } else if (!c->is_active)
        begin(r, c);
    else if (is_whole) {
        if (below(r, 3))
            must(pn_cache_keep(r->cache, &c->seq, c->prompt.ids, PN_CACHE_TURN, NULL, &err), &err);
        end(r, c);
    } else if (below(r, 3) == 0)
        must(pn_cache_keep(r->cache, &c->seq, c->prompt.ids, PN_CACHE_STEP, &c->pin, &err), &err);
    else
        read_on(r, c);
    check_books(r);
}

/* One life of a cache over n_state states of memory, and as many on disk where dir is not NULL. */
static void live(rig *r, int n_state, const char *dir, int n_step)
{
    pn_err err = { 0 };
    const size_t state_bytes = pn_cache_min_bytes(r->model, r->kv_type) / PN_CACHE_MIN_STATES;
    const pn_cache_opts opts = {
        .ram_bytes = state_bytes * (size_t)n_state,
        .kv_type = r->kv_type,
        .dir = dir,
        .disk_bytes = state_bytes * (size_t)n_state,
    };
    must(pn_cache_new(r->model, &opts, &r->cache, &err), &err);
    for (int i = 0; i < N_CLIENT; i++)
        must(pn_cache_seq_init(r->cache, &r->clients[i].seq, N_CTX, &err), &err);
    for (int i = 0; i < n_step; i++)
        step(r);
    pn_cache_stats s;
    pn_cache_get_stats(r->cache, &s);
    printf("%d states%s: %d logits, %.0f of %.0f tokens from the cache, %.0f borders kept, %.0f "
           "evicted, %.0f refused; %.0f read from disk, %d left, %.0f written; %d sequences found "
           "no memory, %d were cancelled\n",
           n_state, dir ? " and a folder" : "", r->n_checked, (double)s.n_hit_tokens,
           (double)s.n_asked_tokens, (double)s.n_kept, (double)s.n_evicted, (double)s.n_refused,
           (double)s.n_from_disk, r->n_left, (double)s.disk.n_written, r->n_limit, r->n_cancelled);
    assert_true(r->n_protected > 0 || n_state < 6);
    assert_true(s.n_restored > 0 && (s.n_evicted > 0 || n_state > 12));
    r->n_from_disk += (int)s.n_from_disk;
    for (int i = 0; i < N_CLIENT; i++) {
        end(r, &r->clients[i]);
        pn_seq_clear(&r->clients[i].seq);
    }
    pn_cache_free(r->cache);
}

static uint64_t seed(void)
{
    const char *const s = getenv("SEED");
    return s ? strtoull(s, NULL, 0) : 1;
}

/* Lives one after the other. Returns how many borders came from disk. */
static int run_seed(uint64_t first, const char *model, int n_state, const char *dir, int n_life,
                    int n_step)
{
    rig *const r = calloc(1, sizeof *r);
    assert_non_null(r);
    r->rng = r->prompt_rng = first + (uint64_t)n_state;
    r->kv_type = (pn_kv_type)(n_state % PN_KV_COUNT);
    r->model = pn_test_load(model);
    r->ex = pn_test_exec(r->model, &(pn_run){ .n_threads = 1, .n_batch = N_BATCH });
    r->n_vocab = (size_t)pn_test_n_vocab(r->model);
    r->y = malloc(N_BATCH * r->n_vocab * sizeof *r->y);
    assert_non_null(r->y);
    for (int i = 0; i < n_life; i++)
        live(r, n_state, dir, n_step);
    const int n_from_disk = r->n_from_disk;
    free(r->y);
    pn_exec_free(r->ex);
    pn_model_free(r->model);
    free(r);
    return n_from_disk;
}

static int run(const char *model, int n_state, const char *dir, int n_life, int n_step)
{
    return run_seed(seed(), model, n_state, dir, n_life, n_step);
}

static const char *write_model(void)
{
    const small_shape shape = small_base();
    const char *const path = pn_tmpdir_path("m.gguf");
    small_write(path, &shape);
    return path;
}

/* How often a test does what it does n times by default. */
static int times(int n)
{
    return getenv("SOAK") ? n * 30 : n;
}

static void test_memory(void **state)
{
    (void)state;
    const char *const model = write_model();
    static const int n_state[] = { 3, 6, 13, 40 };
    for (size_t i = 0; i < sizeof n_state / sizeof *n_state; i++)
        run(model, n_state[i], NULL, 1, times(400));
    run_seed(13, model, 13, NULL, 1, times(400)); /* a fork of two goes */
}

static void test_folder(void **state)
{
    (void)state;
    const char *const model = write_model();
    static const int n_state[] = { 4, 12, 41 };
    for (size_t i = 0; i < sizeof n_state / sizeof *n_state; i++) {
        char name[16];
        snprintf(name, sizeof name, "cache%d", n_state[i]);
        assert_true(run(model, n_state[i], pn_tmpdir_path(name), 2, times(250)) > 0);
    }
}

/* --- killed processes ------------------------------------------------------------------------- */

static pid_t start(const char *model, const char *dir)
{
    const pid_t pid = fork();
    if (pid == 0) {
        execl("/proc/self/exe", "test_cache_random", model, dir, (char *)NULL);
        _exit(127);
    }
    assert_true(pid > 0);
    return pid;
}

/* Until the folder has a state: on a busy machine a process may not come to its first one before it
 * is killed. */
static void wait_for_state(const char *dir)
{
    uint64_t bytes;
    for (int ms = 0; ms < 60000 && !store_files(dir, ".pnstate", &bytes); ms++)
        usleep(1000);
}

/* Processes that work on one folder are killed one after the other; each of them, and the last one
 * to its end, gets the bits of a cold run out of what the one before left behind. */
static void test_killed(void **state)
{
    (void)state;
    const char *const model = write_model(), *const dir = pn_tmpdir_path("cache");
    uint64_t rng = seed();
    int n_killed = 0, status;
    assert_int_equal(mkdir(dir, 0700), 0);
    for (int i = 0; i < times(12); i++) {
        const pid_t pid = start(model, dir);
        wait_for_state(dir);
        usleep((useconds_t)draw(&rng, 400000));
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        n_killed += WIFSIGNALED(status);
        if (WIFEXITED(status))
            assert_int_equal(WEXITSTATUS(status), 0);
    }
    assert_true(n_killed > 0);
    const pid_t pid = start(model, dir);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(int argc, char **argv)
{
    if (argc == 3) /* a process to be killed; what fails in it ends it. Its second life finds the
                      first one's states on disk, whatever the others left */
        return run(argv[1], 30, argv[2], 2, times(250)) > 0 ? 0 : 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_folder),
        cmocka_unit_test(test_killed),
    };
    return cmocka_run_group_tests(tests, pn_tmpdir_setup, pn_tmpdir_teardown);
}
