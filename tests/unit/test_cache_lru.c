/* What goes first when the cache is full: calls that nothing continues go before conversations,
 * however many they are and whatever they begin with, and conversations leave room for new ones.
 * The budget holds, and so does the share of protected borders. */

#include "engine/cache_lru.h"

#include "support/cache_run.h"
#include "support/check.h"
#include "support/tmpdir.h"

#include <string.h>

enum {
    SYSTEM = 300,
    TURN = 40, /* of a user, and as much of the answer */
    N_TURN = 5,
    N_TURN_MAX = 30,
    MAX = SYSTEM + 2 * TURN * N_TURN_MAX,
    ONE_SHOT = 150, /* behind what it has in common with others */
    N_ONE_SHOT = 200,
    N_STATE = 24 /* that the budget has room for, with a page each */
};

typedef struct talk {
    int32_t ids[MAX];
    int turns[2 * N_TURN_MAX]; /* where each user's turn and the assistant's header begin */
    int n, n_turn;
} talk;

static rig *open_rig(size_t n_state, const char *dir)
{
    rig *const r = rig_small();
    rig_close_cache(r);
    const size_t one = pn_cache_min_bytes(r->model, PN_KV_F16) / PN_CACHE_MIN_STATES;
    rig_open_cache(r, one * n_state, dir);
    return r;
}

static void check_bounds(rig *r)
{
    pn_cache_stats s;
    pn_cache_get_stats(r->cache, &s);
    assert_in_range(s.ram_bytes, 0, s.ram_limit);
    assert_in_range(pn_lru_protected_bytes(pn_cache_root(r->cache)), 0, s.ram_limit / 4 * 3);
}

/* A conversation that begins with a system message of its own, or with the one of seed 1. */
static talk new_talk(uint32_t seed, bool is_common)
{
    talk t = { .n = SYSTEM };
    rig_ids(t.ids, MAX, seed);
    if (is_common)
        rig_ids(t.ids, SYSTEM, 1);
    return t;
}

/* The next turn and its answer; with checks_bits all of its logits against a cold run. */
static void turn(rig *r, talk *t, bool checks_bits)
{
    t->turns[t->n_turn++] = t->n;
    t->turns[t->n_turn++] = t->n + TURN - 5;
    t->n += TURN;
    if (checks_bits)
        rig_read(r, t->ids, t->n, t->turns, (size_t)t->n_turn);
    else
        rig_read_on(r, t->ids, t->n, t->turns, (size_t)t->n_turn, NULL);
    t->n += TURN;
    rig_feed(r, t->ids, t->n, NULL);
    rig_end(r, t->ids);
    check_bounds(r);
}

static void next_turn(rig *r, talk *t)
{
    turn(r, t, true);
}

/* A call that nothing continues; with a system message of n_common tokens. */
static void one_shot(rig *r, uint32_t seed, int n_common)
{
    int32_t ids[SYSTEM + ONE_SHOT];
    const int turns[] = { n_common, n_common + 100 };
    rig_ids(ids, SYSTEM, 1);
    rig_ids(ids + n_common, ONE_SHOT, 1000 + seed);
    rig_read_on(r, ids, n_common + ONE_SHOT - 5, turns, 2, NULL);
    rig_feed(r, ids, n_common + ONE_SHOT, NULL);
    rig_end(r, ids);
    check_bounds(r);
}

static uint64_t n_evicted(rig *r)
{
    pn_cache_stats s;
    pn_cache_get_stats(r->cache, &s);
    return s.n_evicted;
}

/* A conversation of some turns goes on where it was after hundreds of calls, and so it does where
 * its last message was edited. */
static void stays(int n_common, const char *dir)
{
    rig *const r = open_rig(N_STATE, dir);
    talk t = new_talk(2, n_common > 0);
    for (int i = 0; i < N_TURN; i++)
        next_turn(r, &t);
    const uint64_t before = n_evicted(r);
    for (uint32_t i = 0; i < N_ONE_SHOT; i++)
        one_shot(r, i, n_common);
    assert_true(n_evicted(r) - before > N_ONE_SHOT);

    talk edited = t;
    edited.n = edited.turns[edited.n_turn -= 2];
    rig_ids(edited.ids + edited.n, MAX - edited.n, 3);
    const int n = t.n;
    next_turn(r, &t);
    assert_int_equal(r->hit.pos, n);
    assert_false(r->hit.is_from_disk);
    const int n_kept = edited.n;
    next_turn(r, &edited);
    assert_int_equal(r->hit.pos, n_kept);
    assert_false(r->hit.is_from_disk);
    rig_free(r);
}

static void test_one_shots(void **state)
{
    (void)state;
    stays(0, NULL);
}

/* Calls with the system message of the conversation: many start from its end, which tells that they
 * are strangers. */
static void test_one_shots_with_system(void **state)
{
    (void)state;
    stays(SYSTEM, NULL);
}

/* Their states wait for the disk, too. */
static void test_one_shots_with_folder(void **state)
{
    (void)state;
    stays(0, pn_tmpdir_path("lru"));
}

/* Conversations that fill all that may be protected, and more: the latest are there, the first is
 * not, and a new one is cached from its second turn on, among calls. */
static void test_new_conversation(void **state)
{
    (void)state;
    enum {
        N_TALK = 8
    };
    static talk talks[N_TALK];
    rig *const r = open_rig(N_STATE, NULL);
    for (uint32_t i = 0; i < N_TALK; i++) {
        talks[i] = new_talk(10 + i, false);
        for (int k = 0; k < 3; k++)
            next_turn(r, &talks[i]);
    }
    assert_true(pn_lru_protected_bytes(pn_cache_root(r->cache)) > 0);
    talk fresh = new_talk(50, false);
    for (int i = 0; i < 3; i++) {
        const int n = fresh.n;
        next_turn(r, &fresh);
        assert_int_equal(r->hit.pos, i ? n : 0);
        one_shot(r, 100 + (uint32_t)i, 0);
    }
    const int n = talks[N_TALK - 1].n;
    next_turn(r, &talks[N_TALK - 1]);
    assert_int_equal(r->hit.pos, n);
    next_turn(r, &talks[0]);
    assert_int_equal(r->hit.pos, 0);
    rig_free(r);
}

/* A long conversation gives up its own older states before the end of one that rests. */
static void test_long_beside_resting(void **state)
{
    (void)state;
    rig *const r = open_rig(30, NULL);
    talk resting = new_talk(2, false), busy = new_talk(3, false);
    for (int i = 0; i < 3; i++)
        next_turn(r, &resting);
    for (int i = 0; i < N_TURN_MAX - 1; i++)
        turn(r, &busy, false);
    assert_true(n_evicted(r) > 0);
    int n = resting.n;
    next_turn(r, &resting);
    assert_int_equal(r->hit.pos, n);
    n = busy.n;
    next_turn(r, &busy);
    assert_int_equal(r->hit.pos, n);
    rig_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_shots),
        cmocka_unit_test(test_one_shots_with_system),
        cmocka_unit_test(test_one_shots_with_folder),
        cmocka_unit_test(test_new_conversation),
        cmocka_unit_test(test_long_beside_resting),
    };
    return cmocka_run_group_tests(tests, pn_tmpdir_setup, pn_tmpdir_teardown);
}
