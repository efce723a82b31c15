/* Borders on disk: what is written is read back, bit for bit, whatever else is in the folder and
 * whatever happens to it. States are made up: every row of a page and the recurrent block are a
 * function of the ids up to there, as a model's are. */

#include "support/check.h"
#include "support/tmpdir.h"

#include "engine/store.h"
#include "models/seq.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    MAX_TOK = 2000
};

static const int n_head_kv[] = { 1 };
static const size_t kv_first[] = { 0 };
static const pn_seq_layout layout = {
    .n_ssm = 1,
    .conv_floats = 24,
    .state_floats = 1000,
    .n_attn = 1,
    .head_dim = 8,
    .n_head_kv = n_head_kv,
    .n_head_kv_sum = 1,
    .kv_first = kv_first,
};

static pn_seq_kind kind_of(uint8_t model)
{
    return (pn_seq_kind){
        .model = { { model } },
        .kv_type = PN_KV_F16,
        .page_bytes = pn_seq_page_bytes(&layout, PN_KV_F16),
        .rec_bytes = pn_seq_recurrent_bytes(&layout),
    };
}

/* --- states ----------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t h, uint64_t x)
{
    h = (h ^ x) * 0x9e3779b97f4a7c15u;
    return h ^ (h >> 29);
}

static void fill(uint8_t *dst, size_t n, uint64_t h)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = (uint8_t)(mix(h, i) >> 16);
}

/* Rows of the positions below n, and the recurrent block at n; other bytes as they are. */
static void fill_state(pn_seq *seq, const int32_t *ids, size_t n)
{
    const size_t row = pn_seq_page_bytes(&layout, PN_KV_F16) / PN_KV_CHUNK;
    uint64_t h = 1;
    for (size_t pos = 0; pos < n; pos++) {
        h = mix(h, (uint64_t)ids[pos]);
        fill(seq->pages[pos / PN_KV_CHUNK]->data + pos % PN_KV_CHUNK * row, row, h);
    }
    fill(seq->rec->data, seq->rec->bytes, h);
    seq->pos = (int)n;
}

static pn_seq seq_new(void)
{
    pn_seq seq;
    assert_int_equal(pn_seq_init(&seq, &layout, PN_KV_F16, MAX_TOK, NULL, NULL), PN_OK);
    return seq;
}

static pn_snapshot *snapshot_of(const int32_t *ids, size_t n)
{
    pn_seq seq = seq_new();
    pn_snapshot *snapshot = NULL;
    assert_int_equal(pn_seq_reserve(&seq, MAX_TOK, NULL), PN_OK);
    for (int i = 0; i < seq.n_page; i++) /* rows that are not the border's are anything */
        fill(seq.pages[i]->data, seq.pages[i]->bytes, (uint64_t)rand());
    fill_state(&seq, ids, n);
    assert_int_equal(pn_snapshot_new(&seq, &snapshot, NULL), PN_OK);
    pn_seq_clear(&seq);
    return snapshot;
}

/* The sequence is what ids [pos] give. */
static void check_state(const pn_seq *seq, const int32_t *ids)
{
    pn_seq want = seq_new();
    const size_t n = (size_t)seq->pos;
    const size_t row = pn_seq_page_bytes(&layout, PN_KV_F16) / PN_KV_CHUNK;
    assert_int_equal(pn_seq_reserve(&want, MAX_TOK, NULL), PN_OK);
    fill_state(&want, ids, n);
    for (size_t pos = 0; pos < n; pos++)
        assert_memory_equal(seq->pages[pos / PN_KV_CHUNK]->data + pos % PN_KV_CHUNK * row,
                            want.pages[pos / PN_KV_CHUNK]->data + pos % PN_KV_CHUNK * row, row);
    if (n)
        assert_memory_equal(seq->rec->data, want.rec->data, want.rec->bytes);
    pn_seq_clear(&want);
}

/* Ids of a path: those of its trunk, then its own. */
static void make_ids(int32_t ids[MAX_TOK], int trunk, int n_trunk, int branch)
{
    for (int i = 0; i < MAX_TOK; i++)
        ids[i] = i < n_trunk ? i * 7 + trunk : i * 3 + 100000 * branch;
}

/* --- stores ----------------------------------------------------------------------------------- */

typedef struct log_seen {
    int n;
    char last[600];
} log_seen;

static void hear(void *ctx, int level, const char *line)
{
    log_seen *const l = ctx;
    (void)level;
    l->n++;
    snprintf(l->last, sizeof l->last, "%s", line);
}

static pn_store *store_open(const char *dir, uint64_t max_bytes, uint8_t model, log_seen *log)
{
    pn_store *s = NULL;
    pn_err err = { 0 };
    const pn_seq_kind kind = kind_of(model);
    const pn_store_opts opts = {
        .dir = dir, .max_bytes = max_bytes, .log = log ? hear : NULL, .log_ctx = log
    };
    if (pn_store_open(&kind, &opts, &s, &err) != PN_OK)
        fail_msg("%s", err.msg);
    return s;
}

static void put(pn_store *s, const int32_t *ids, size_t n)
{
    assert_int_equal(pn_store_put(s, ids, snapshot_of(ids, n), NULL), PN_OK);
}

/* What ids [n] are restored to, which is right; its length. */
static size_t restored(pn_store *s, const int32_t *ids, size_t n)
{
    pn_seq seq = seq_new();
    pn_err err = { 0 };
    if (pn_store_restore(s, ids, n, &seq, &err) != PN_OK)
        fail_msg("%s", err.msg);
    check_state(&seq, ids);
    const size_t pos = (size_t)seq.pos;
    pn_seq_clear(&seq);
    return pos;
}

static pn_store_stats stats_of(pn_store *s)
{
    pn_store_stats stats;
    pn_store_get_stats(s, &stats);
    return stats;
}

/* --- tests ------------------------------------------------------------------------------------ */

/* A conversation's borders, in any order of asking, before and after a restart; each file has only
 * what its parent lacks. */
static void test_restart(void **state)
{
    (void)state;
    static const size_t borders[] = { 1, 127, 128, 129, 500, 512, 700, 1999 };
    const char *const dir = pn_tmpdir_path("restart");
    int32_t ids[MAX_TOK], other[MAX_TOK];
    make_ids(ids, 1, MAX_TOK, 0);
    make_ids(other, 1, 600, 1);
    pn_store *s = store_open(dir, 1 << 30, 1, NULL);
    for (size_t i = 0; i < 8; i++)
        put(s, ids, borders[i]);
    put(s, other, 1000);
    pn_store_flush(s);
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < 8; i++) {
            assert_int_equal(pn_store_find(s, ids, borders[i]), borders[i]);
            assert_int_equal(restored(s, ids, borders[i]), borders[i]);
            assert_int_equal(restored(s, ids, borders[i] - 1), i ? borders[i - 1] : 0);
        }
        assert_int_equal(restored(s, ids, MAX_TOK), 1999);
        assert_int_equal(restored(s, other, MAX_TOK), 1000);
        assert_int_equal(restored(s, other, 999), 512);
        const pn_store_stats stats = stats_of(s);
        assert_int_equal(stats.n_borders, 9);
        assert_int_equal(stats.n_queued, 0);
        /* 16 pages, at most one more for every border; 5 of the other branch */
        const pn_seq_kind kind = kind_of(1);
        assert_in_range(stats.bytes, 9 * kind.rec_bytes,
                        9 * (kind.rec_bytes + 600) + 2 * MAX_TOK * 4 +
                            (16 + 8 + 5) * kind.page_bytes);
        pn_store_close(s);
        s = store_open(dir, 1 << 30, 1, NULL);
    }
    pn_store_close(s);
}

/* Another model or KV type finds nothing, and leaves the files where they are. */
static void test_kinds(void **state)
{
    (void)state;
    const char *const dir = pn_tmpdir_path("kinds");
    int32_t ids[MAX_TOK];
    make_ids(ids, 1, MAX_TOK, 0);
    for (uint8_t model = 1; model <= 2; model++) {
        pn_store *const s = store_open(dir, 1 << 30, model, NULL);
        assert_int_equal(restored(s, ids, MAX_TOK), 0);
        put(s, ids, 300);
        pn_store_close(s);
    }
    pn_store *const s = store_open(dir, 1 << 30, 1, NULL);
    assert_int_equal(stats_of(s).n_borders, 2);
    assert_int_equal(restored(s, ids, MAX_TOK), 300);
    pn_store_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_restart),
        cmocka_unit_test(test_kinds),
    };
    return cmocka_run_group_tests(tests, pn_tmpdir_setup, pn_tmpdir_teardown);
}
