/* Slots: kept sequences go on where they stood, give way when memory is short, and are saved to
 * files that no name leads out of their folder. The bundled model. */

#include "support/check.h"
#include "support/model_run.h"
#include "support/tmpdir.h"

#include "engine/cache.h"
#include "engine/engine.h"
#include "engine/session.h"
#include "server/slots.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    N_CTX = 512,
    N_SLOT = 3
};

typedef struct setup {
    pn_model *m;
    pn_engine *e;
    pn_slots *slots;
    int32_t ids[N_CTX];
} setup;

static setup setup_open(size_t cache_ram_bytes, const char *dir)
{
    setup t = { .m = pn_test_load(pn_test_tiny("Q4_K_M")) };
    pn_err err = { 0 };
    const pn_engine_opts opts = { .exec = { .n_threads = 2 },
                                  .cache_ram_bytes = cache_ram_bytes,
                                  .n_parallel = N_SLOT };
    if (pn_engine_new(t.m, &opts, &t.e, &err) != PN_OK ||
        pn_slots_new(t.e, &(pn_state_opts){ .n_ctx = N_CTX }, dir, &t.slots, &err) != PN_OK)
        fail_msg("%s", err.msg);
    for (int i = 0; i < N_CTX; i++)
        t.ids[i] = 300 + i * 37 % 3000;
    return t;
}

static void setup_close(setup *t)
{
    pn_slots_free(t->slots);
    pn_engine_free(t->e);
    pn_model_free(t->m);
}

static bool hear(void *ctx, pn_span text, bool is_thinking)
{
    (void)is_thinking;
    pn_buf_add(ctx, text.ptr, text.len);
    return true;
}

/* Eight greedy tokens behind the first n ids, in a slot (-1: in none), appended to text. */
static pn_gen_result answer(setup *t, int id, int n, pn_buf *text)
{
    pn_problem p = { 0 };
    pn_gen_result result = { 0 };
    pn_request *r;
    pn_request_opts opts = { .ids = t->ids, .n_id = (size_t)n, .state = { .n_ctx = N_CTX } };
    opts.gen = (pn_gen_opts){ .n_predict = 8, .ignore_eos = true, .on_text = hear, .ctx = text };
    if ((id >= 0 && pn_slots_take(t->slots, id, NULL, &opts.session, &p) != PN_OK) ||
        pn_engine_submit(t->e, &opts, &r, &p.err) != PN_OK)
        fail_msg("%s", p.err.msg);
    while (!pn_request_is_done(r))
        pn_engine_step(t->e);
    if (pn_request_result(r, &result, &p.err) != PN_OK)
        fail_msg("%s", p.err.msg);
    pn_request_free(r);
    if (id >= 0)
        pn_slots_give(t->slots, id);
    return result;
}

static void same_text(pn_buf *a, pn_buf *b)
{
    assert_true(a->len > 0 && a->len == b->len);
    assert_memory_equal(a->ptr, b->ptr, a->len);
    pn_buf_free(a);
    pn_buf_free(b);
}

static void fails(const pn_problem *p, pn_status st, int status)
{
    assert_int_not_equal(st, PN_OK);
    assert_int_equal(pn_problem_status(p), status);
    assert_true(p->err.msg[0]);
}

/* Without a cache, so that what is not computed again can only be the slot's. */
static void a_slot_goes_on(void **state)
{
    (void)state;
    setup t = setup_open(0, NULL);
    pn_buf alone = { 0 }, kept = { 0 };
    assert_int_equal(pn_slots_count(t.slots), N_SLOT);
    assert_int_equal(answer(&t, 1, 40, &kept).n_cached, 0);
    kept.len = 0;
    assert_int_equal(answer(&t, 0, 40, &kept).n_cached, 0); /* another slot */
    kept.len = 0;
    assert_int_equal(answer(&t, -1, 60, &alone).n_cached, 0);
    /* The answer is not in the prompt, so slot 1 parts from it; what it holds is the whole. */
    assert_int_equal(answer(&t, 1, 60, &kept).n_cached, 0);
    same_text(&alone, &kept);
    pn_problem p = { 0 };
    pn_session *s;
    assert_int_equal(pn_slots_take(t.slots, 1, NULL, &s, &p), PN_OK);
    const int n = (int)s->held.len;
    assert_in_range(n, 60, 68);
    memcpy(t.ids, s->held.ptr, (size_t)n * sizeof *t.ids);
    pn_slots_give(t.slots, 1);
    answer(&t, -1, n + 10, &alone);
    assert_int_equal(answer(&t, 1, n + 10, &kept).n_cached, n);
    same_text(&alone, &kept);
    setup_close(&t);
}

static void who_may_have_one(void **state)
{
    (void)state;
    setup t = setup_open(0, NULL);
    pn_problem p = { 0 };
    pn_session *s = NULL;
    int n = -1;
    fails(&p, pn_slots_take(t.slots, N_SLOT, NULL, &s, &p), 400);
    p = (pn_problem){ 0 };
    fails(&p, pn_slots_take(t.slots, -1, NULL, &s, &p), 400);
    assert_int_equal(pn_slots_take(t.slots, 2, NULL, &s, &p), PN_OK);
    pn_slot_copy copy = { 0 };
    p = (pn_problem){ 0 };
    fails(&p, pn_slots_erase(t.slots, 2, &n, &p), 409);
    p = (pn_problem){ 0 };
    fails(&p, pn_slots_copy(t.slots, 2, &copy, &p), 409);
    pn_slots_give(t.slots, 2);
    p = (pn_problem){ 0 };
    fails(&p, pn_slots_copy(t.slots, 2, &copy, &p), 400); /* holds nothing */
    pn_buf text = { 0 };
    answer(&t, 2, 20, &text);
    pn_buf_free(&text);
    assert_int_equal(pn_slots_erase(t.slots, 2, &n, &p), PN_OK);
    assert_in_range(n, 20, 28);
    assert_int_equal(pn_slots_erase(t.slots, 2, &n, &p), PN_OK);
    assert_int_equal(n, 0);
    setup_close(&t);
}

typedef struct waiter {
    setup *t;
    pn_slot_wait wait;
    bool wants; /* it still does */
    int n_called;
    pn_session *session;
} waiter;

static void ask_again(void *ctx)
{
    waiter *const w = ctx;
    pn_problem p = { 0 };
    w->n_called++;
    if (w->wants)
        assert_int_equal(pn_slots_take(w->t->slots, 0, &w->wait, &w->session, &p), PN_OK);
}

/* In the order of asking; one that has gone meanwhile holds up nobody. */
static void who_waits_for_one(void **state)
{
    (void)state;
    setup t = setup_open(0, NULL);
    pn_problem p = { 0 };
    pn_session *s;
    waiter w[4];
    assert_int_equal(pn_slots_take(t.slots, 0, NULL, &s, &p), PN_OK);
    for (int i = 0; i < 4; i++) {
        w[i] = (waiter){ .t = &t, .wants = i != 0 };
        w[i].wait = (pn_slot_wait){ .ready = ask_again, .ctx = &w[i] };
        assert_int_equal(pn_slots_take(t.slots, 0, &w[i].wait, &w[i].session, &p), PN_OK);
        assert_null(w[i].session);
    }
    pn_slots_leave(t.slots, 0, &w[2].wait);
    pn_slots_leave(t.slots, 0, &w[2].wait);
    pn_slots_leave(t.slots, -1, &w[2].wait);
    pn_slots_give(t.slots, 0);
    assert_true(!w[0].session && w[1].session && !w[3].session);
    pn_slots_give(t.slots, 0);
    assert_true(!w[2].session && w[3].session);
    pn_slots_give(t.slots, 0);
    assert_int_equal(w[0].n_called, 1);
    assert_int_equal(w[1].n_called, 1);
    assert_int_equal(w[2].n_called, 0);
    assert_int_equal(w[3].n_called, 1);
    setup_close(&t);
}

static void rows(void **state)
{
    (void)state;
    setup t = setup_open(0, NULL);
    pn_buf text = { 0 }, out = { 0 };
    pn_problem p = { 0 };
    answer(&t, 2, 33, &text);
    pn_request *r[2] = { NULL, NULL };
    pn_request_opts opts = { .ids = t.ids, .n_id = 50, .state = { .n_ctx = N_CTX } };
    opts.gen = (pn_gen_opts){ .n_predict = 30,
                              .ignore_eos = true,
                              .sampler = { .temperature = 0.5f, .top_k = 3, .seed = 9 } };
    assert_int_equal(pn_engine_submit(t.e, &opts, &r[0], &p.err), PN_OK);
    assert_int_equal(pn_slots_take(t.slots, 1, NULL, &opts.session, &p), PN_OK);
    assert_int_equal(pn_engine_submit(t.e, &opts, &r[1], &p.err), PN_OK);
    for (int i = 0; i < 6; i++)
        pn_engine_step(t.e);
    pn_jw w = { .buf = &out };
    pn_jw_begin_arr(&w, NULL);
    pn_slots_put(t.slots, &w);
    pn_jw_end_arr(&w);
    pn_json *v;
    assert_int_equal(pn_json_parse(out.ptr, out.len, "rows", &v, NULL), PN_OK);
    assert_int_equal(pn_json_len(v), 3);
    static const int ids[] = { -1, 1, 2 };
    for (size_t i = 0; i < 3; i++) {
        const pn_json *const row = pn_json_item(v, i);
        const pn_json *const params = pn_json_get(row, "params");
        const pn_json *const next = pn_json_item(pn_json_get(row, "next_token"), 0);
        assert_int_equal(pn_json_int(pn_json_get(row, "id")), ids[i]);
        assert_int_equal(pn_json_bool(pn_json_get(row, "is_processing")), i < 2);
        assert_int_equal(pn_json_int(pn_json_get(row, "n_ctx")), N_CTX);
        if (i == 2) {
            assert_in_range(pn_json_int(pn_json_get(row, "n_prompt_tokens")), 33, 41);
            continue;
        }
        assert_int_equal(pn_json_int(pn_json_get(row, "n_prompt_tokens")), 50);
        assert_int_equal(pn_json_int(pn_json_get(row, "n_prompt_tokens_cache")), 0);
        assert_int_equal(pn_json_int(pn_json_get(params, "top_k")), 3);
        assert_int_equal(pn_json_int(pn_json_get(params, "seed")), 9);
        const int64_t n_decoded = pn_json_int(pn_json_get(next, "n_decoded"));
        assert_in_range(n_decoded, 1, 6);
        assert_int_equal(pn_json_int(pn_json_get(next, "n_remain")), 30 - n_decoded);
    }
    pn_json_free(v);
    pn_request_free(r[0]);
    pn_request_free(r[1]);
    pn_slots_give(t.slots, 1);
    pn_buf_free(&out);
    pn_buf_free(&text);
    setup_close(&t);
}

/* --- memory ----------------------------------------------------------------------------------- */

static void slots_give_way_when_memory_is_short(void **state)
{
    (void)state;
    setup t = setup_open(0, NULL);
    const size_t least = pn_cache_min_bytes(t.m, PN_KV_F16);
    setup_close(&t);
    t = setup_open(least + least / 3, NULL); /* four states */
    pn_buf text = { 0 };
    pn_cache_stats stats;
    pn_problem p = { 0 };
    for (int round = 0; round < 3; round++)
        for (int id = 0; id < N_SLOT; id++) {
            answer(&t, id, 20 + round, &text);
            t.ids[0]++;
        }
    answer(&t, -1, 500, &text); /* pages of four */
    pn_cache_get_stats(t.e->cache, &stats);
    assert_in_range(stats.ram_bytes, 1, stats.ram_limit);
    int n_kept = 0;
    for (int id = 0; id < N_SLOT; id++) {
        int n;
        assert_int_equal(pn_slots_erase(t.slots, id, &n, &p), PN_OK);
        n_kept += n > 0;
    }
    assert_in_range(n_kept, 0, N_SLOT - 1);
    pn_buf_free(&text);
    setup_close(&t);
}

/* --- files ------------------------------------------------------------------------------------ */

static pn_status save(setup *t, int id, const char *name, size_t len, pn_problem *p)
{
    pn_slot_copy copy = { 0 };
    uint64_t n_byte = 0;
    *p = (pn_problem){ 0 };
    pn_status st = pn_slots_copy(t->slots, id, &copy, p);
    if (st == PN_OK)
        st = pn_slot_copy_save(t->slots, &copy, (pn_span){ name, len }, &n_byte, p);
    assert_true(st != PN_OK || n_byte > 0);
    pn_slot_copy_clear(&copy);
    return st;
}

static pn_status load(setup *t, int id, const char *name, int *n, pn_problem *p)
{
    uint64_t n_byte = 0;
    *p = (pn_problem){ 0 };
    return pn_slots_restore(t->slots, id, (pn_span){ name, strlen(name) }, n, &n_byte, p);
}

static void what_was_saved_goes_on(void **state)
{
    (void)state;
    setup t = setup_open(0, pn_tmpdir());
    pn_problem p;
    pn_buf a = { 0 }, b = { 0 };
    pn_slot_copy copy = { 0 };
    uint64_t n_byte;
    int n = 0, n_now;
    answer(&t, 0, 140, &a);
    p = (pn_problem){ 0 };
    assert_int_equal(pn_slots_copy(t.slots, 0, &copy, &p), PN_OK);
    memcpy(t.ids, copy.ids, (size_t)copy.n_tok * sizeof *t.ids);
    a.len = 0;
    answer(&t, 0, copy.n_tok + 20, &a); /* the copy stands where it was taken */
    assert_int_equal(pn_slot_copy_save(t.slots, &copy, (pn_span){ "x-1_Y.bin", 9 }, &n_byte, &p),
                     PN_OK);
    assert_int_equal(load(&t, 2, "x-1_Y.bin", &n, &p), PN_OK);
    assert_int_equal(n, copy.n_tok);
    pn_slot_copy_clear(&copy);
    assert_int_equal(answer(&t, 2, n + 20, &b).n_cached, n);
    same_text(&a, &b);

    /* A newer state takes the name; a restore that fails leaves the slot as it was. */
    assert_int_equal(save(&t, 2, "x-1_Y.bin", 9, &p), PN_OK);
    assert_int_equal(load(&t, 1, "x-1_Y.bin", &n_now, &p), PN_OK);
    assert_true(n_now > n);
    fails(&p, load(&t, 1, "none", &n, &p), 404);
    assert_int_equal(n, n_now);
    fails(&p, load(&t, N_SLOT, "x-1_Y.bin", &n, &p), 400);
    const int fd = open(pn_tmpdir_path("x-1_Y.bin"), O_WRONLY);
    assert_int_equal(ftruncate(fd, 1000), 0);
    close(fd);
    fails(&p, load(&t, 1, "x-1_Y.bin", &n, &p), 400);
    assert_int_equal(n, n_now);
    setup_close(&t);
}

static void names_stay_in_the_folder(void **state)
{
    (void)state;
    setup t = setup_open(0, pn_tmpdir());
    pn_problem p;
    pn_buf text = { 0 };
    int n;
    char longest[301];
    memset(longest, 'a', 300);
    longest[300] = '\0';
    static const struct {
        const char *name;
        size_t len;
    } bad[] = {
        { "", 0 },
        { ".", 1 },
        { "..", 2 },
        { ".hidden", 7 },
        { "a/b", 3 },
        { "../a", 4 },
        { "a\\b", 3 },
        { "/etc/passwd", 11 },
        { "%2e%2e", 6 },
        { "a\0b", 3 },
        { "\xc0\xae\xc0", 3 },
        { "\xc3\xa9", 2 },
        { "a b", 3 },
        { "a\nb", 3 },
        { "~", 1 },
    };
    answer(&t, 0, 20, &text);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fails(&p, save(&t, 0, bad[i].name, bad[i].len, &p), 400);
        if (strlen(bad[i].name) == bad[i].len)
            fails(&p, load(&t, 0, bad[i].name, &n, &p), 400);
    }
    fails(&p, save(&t, 0, longest, 300, &p), 400);
    fails(&p, save(&t, 0, longest, PN_SLOT_NAME_MAX + 1, &p), 400);
    assert_int_equal(save(&t, 0, longest, PN_SLOT_NAME_MAX, &p), PN_OK);

    /* A link leads nowhere, neither to write nor to read; other files stay whole. */
    longest[PN_SLOT_NAME_MAX] = '\0';
    assert_int_equal(symlink(longest, pn_tmpdir_path("link")), 0);
    assert_int_equal(symlink("nowhere", pn_tmpdir_path("dangling")), 0);
    const int fd = open(pn_tmpdir_path("notes"), O_CREAT | O_WRONLY, 0600);
    assert_int_equal(write(fd, "mine", 4), 4);
    close(fd);
    static const char *const taken[] = { "link", "dangling", "notes" };
    for (size_t i = 0; i < 3; i++) {
        fails(&p, save(&t, 0, taken[i], strlen(taken[i]), &p), 400);
        fails(&p, load(&t, 0, taken[i], &n, &p), 400);
    }
    assert_int_not_equal(access(pn_tmpdir_path("nowhere"), F_OK), 0);
    char held[5] = { 0 };
    const int rd = open(pn_tmpdir_path("notes"), O_RDONLY);
    assert_int_equal(read(rd, held, 5), 4);
    close(rd);
    assert_string_equal(held, "mine");
    pn_buf_free(&text);
    setup_close(&t);
}

static void without_a_folder(void **state)
{
    (void)state;
    setup t = setup_open(0, NULL);
    pn_problem p;
    pn_buf text = { 0 };
    pn_slots *none;
    pn_err err;
    int n;
    answer(&t, 0, 20, &text);
    fails(&p, save(&t, 0, "a", 1, &p), 501);
    fails(&p, load(&t, 0, "a", &n, &p), 501);
    assert_int_equal(pn_slots_new(t.e, &(pn_state_opts){ 0 }, pn_tmpdir_path("no"), &none, &err),
                     PN_ERR_IO);
    pn_buf_free(&text);
    setup_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slot_goes_on),
        cmocka_unit_test(who_may_have_one),
        cmocka_unit_test(who_waits_for_one),
        cmocka_unit_test(rows),
        cmocka_unit_test(slots_give_way_when_memory_is_short),
        cmocka_unit_test(what_was_saved_goes_on),
        cmocka_unit_test(names_stay_in_the_folder),
        cmocka_unit_test(without_a_folder),
    };
    return cmocka_run_group_tests(tests, pn_tmpdir_setup, pn_tmpdir_teardown);
}
