/* Which experts have a copy in a GPU's memory: room, use, exchanges; and the thread that prepares
 * them. */
#include "models/expert_stage.h"

#include "base/clock.h"
#include "support/check.h"

#include <string.h>
#include <unistd.h>

enum {
    N_LAYER = 5,
    N_EXPERT = 8
};

/* Layers of two sizes; one takes no part. */
static const size_t sizes[N_LAYER] = { 100, 0, 300, 100, 300 };

static pn_expert_room room_of(size_t room)
{
    return (pn_expert_room){ sizes, N_LAYER, N_EXPERT, room };
}

static pn_expert_cache *new_cache(size_t room)
{
    pn_expert_cache *c = NULL;
    const pn_expert_room r = room_of(room);
    assert_int_equal(pn_expert_cache_new(&r, &c, NULL), PN_OK);
    size_t bytes;
    const size_t n = pn_expert_room_slots(&r, &bytes);
    for (size_t i = 0; i < n; i++)
        pn_expert_cache_first(c, i);
    return c;
}

/* With any room the slots of all classes keep within it, byte for byte, and lie side by side; room
 * for all holds all and no more. */
static void test_room(void **state)
{
    (void)state;
    for (size_t bytes = 0; bytes < 8000; bytes += 37) {
        const pn_expert_room r = room_of(bytes);
        size_t used, off, n, end = 0;
        const size_t n_slot = pn_expert_room_slots(&r, &used);
        assert_true(used <= bytes);
        assert_true(n_slot <= 4 * N_EXPERT);
        pn_expert_room_of(&r, 1, &off, &n);
        assert_int_equal(n, 0);
        for (int il = 0; il < 3; il += 2) {
            pn_expert_room_of(&r, il, &off, &n);
            assert_int_equal(off, end);
            end += n * sizes[il];
        }
        assert_int_equal(end, used);
        /* each layer of either class has room for as many, but for one slot */
        size_t n_a, n_b;
        pn_expert_room_of(&r, 3, &off, &n_a);
        pn_expert_room_of(&r, 4, &off, &n_b);
        assert_true(n_a <= n_b + 1 && n_b <= n_a + 1);
    }
    const pn_expert_room r = room_of(1 << 20);
    size_t used;
    assert_int_equal(pn_expert_room_slots(&r, &used), 4 * N_EXPERT);
    assert_int_equal(used, 2 * N_EXPERT * (100 + 300));
}

/* No slot is given twice, and those of a class go to its layers alike. */
static void check_table(const pn_expert_cache *c, size_t room, size_t n_missing)
{
    const int32_t *const slots = pn_expert_cache_slots(c);
    const pn_expert_room r = room_of(room);
    size_t n = 0, bytes, off, n_slot;
    bool is_taken[2][4 * N_EXPERT] = { 0 };
    for (int il = 0; il < N_LAYER; il++)
        for (int ie = 0; ie < N_EXPERT; ie++) {
            const int32_t s = slots[il * N_EXPERT + ie];
            if (s < 0)
                continue;
            pn_expert_room_of(&r, il, &off, &n_slot);
            assert_true((size_t)s < n_slot);
            assert_false(is_taken[sizes[il] == 300][s]);
            is_taken[sizes[il] == 300][s] = true;
            n++;
        }
    assert_int_equal(n + n_missing, pn_expert_room_slots(&r, &bytes));
}

static void test_first(void **state)
{
    (void)state;
    for (size_t room = 0; room < 8000; room += 111) {
        pn_expert_cache *const c = new_cache(room);
        check_table(c, room, 0);
        const int32_t *const slots = pn_expert_cache_slots(c);
        int n[N_LAYER] = { 0 };
        for (int i = 0; i < N_LAYER * N_EXPERT; i++)
            n[i / N_EXPERT] += slots[i] >= 0;
        assert_in_range(n[0] - n[3], 0, 1);
        assert_in_range(n[2] - n[4], 0, 1);
        pn_expert_cache_free(c);
    }
}

static void use(pn_expert_cache *c, int il, int32_t ie, int n)
{
    while (n-- > 0)
        pn_expert_cache_count(c, il, &ie, 1);
}

/* An expert that is clearly used more takes the place of the least used of its class. */
static void test_exchange(void **state)
{
    (void)state;
    const size_t room = 2 * 2 * 400; /* two experts a layer */
    pn_expert_cache *const c = new_cache(room);
    const int32_t *const slots = pn_expert_cache_slots(c);
    pn_expert_move m, other;
    assert_false(pn_expert_cache_choose(c, &m)); /* nothing was used */
    for (int il = 0; il < N_LAYER; il++)
        for (int ie = 0; ie < 2; ie++)
            use(c, il, ie, il == 3 && ie == 1 ? 10 : 20);
    use(c, 0, 5, 17);
    assert_false(pn_expert_cache_choose(c, &m)); /* not clearly */
    use(c, 0, 5, 3);
    assert_true(pn_expert_cache_choose(c, &m));
    assert_int_equal(m.il, 0);
    assert_int_equal(m.ie, 5);
    assert_int_equal(m.old_il, 3);
    assert_int_equal(m.old_ie, 1);
    assert_false(pn_expert_cache_choose(c, &other)); /* it is under way */

    assert_int_equal(slots[3 * N_EXPERT + 1], m.slot);
    pn_expert_cache_begin(c, &m);
    check_table(c, room, 1);
    assert_int_equal(slots[3 * N_EXPERT + 1], -1);
    assert_int_equal(slots[5], -1);
    use(c, 3, 1, 100); /* it may come back, for another one */
    assert_true(pn_expert_cache_choose(c, &other));
    assert_int_equal(other.ie, 1);
    pn_expert_cache_end(c, &m);
    check_table(c, room, 0);
    assert_int_equal(slots[5], m.slot);
    pn_expert_cache_begin(c, &other);
    pn_expert_cache_end(c, &other);
    check_table(c, room, 0);
    assert_false(pn_expert_cache_choose(c, &m));
    pn_expert_cache_free(c);
}

/* What was used long ago gives way. */
static void test_age(void **state)
{
    (void)state;
    pn_expert_cache *const c = new_cache(2 * 2 * 400);
    pn_expert_move m;
    use(c, 2, 0, 1000);
    use(c, 2, 1, 1000);
    use(c, 4, 0, 1000);
    use(c, 4, 1, 1000);
    use(c, 4, 6, 100);
    assert_false(pn_expert_cache_choose(c, &m));
    for (int i = 0; i < 1000; i++) {
        pn_expert_cache_age(c, 50);
        use(c, 4, 6, 1);
    }
    assert_true(pn_expert_cache_choose(c, &m));
    assert_int_equal(m.il, 4);
    assert_int_equal(m.ie, 6);
    pn_expert_cache_free(c);
}

/* Whatever is used and exchanged, the table stays whole, and in the end the most used are in it. */
static void test_random(void **state)
{
    (void)state;
    const size_t room = 3 * 2 * 400;
    pn_expert_cache *const c = new_cache(room);
    pn_expert_move moves[3];
    int n = 0;
    uint32_t x = 1;
    for (int i = 0; i < 20000; i++) {
        x = x * 1664525u + 1013904223u;
        const int32_t ie = x >> 30 ? (int32_t)(x >> 8) % 3 + 5 : (int32_t)(x >> 8) % N_EXPERT;
        pn_expert_cache_count(c, (int)(x >> 16) % N_LAYER, &ie, 1);
        if (n < 3 && pn_expert_cache_choose(c, &moves[n]))
            pn_expert_cache_begin(c, &moves[n++]);
        check_table(c, room, (size_t)n);
        if (n && x % 5 == 0)
            pn_expert_cache_end(c, &moves[--n]);
    }
    while (n)
        pn_expert_cache_end(c, &moves[--n]);
    const int32_t *const slots = pn_expert_cache_slots(c);
    for (int il = 0; il < N_LAYER; il++)
        for (int ie = 0; ie < N_EXPERT; ie++)
            assert_int_equal(slots[il * N_EXPERT + ie] >= 0, sizes[il] && ie >= 5);
    pn_expert_cache_free(c);
}

/* --- stages ----------------------------------------------------------------------------------- */

static size_t write_two(void *ctx, int il, int ie, uint8_t *dst)
{
    (void)ctx;
    dst[0] = (uint8_t)il;
    dst[1] = (uint8_t)ie;
    return 2;
}

/* Experts that are asked for are written into their stages, and stay there; no faster than allowed;
 * the end does not wait for the pause. */
static void test_stages(void **state)
{
    (void)state;
    uint8_t mem[PN_EXPERT_STAGES][2] = { 0 };
    pn_expert_stages *s = NULL;
    const pn_expert_stages_opts opts = {
        .mem = mem[0], .stage_bytes = 2, .bytes_s = 100, .write = write_two
    };
    assert_int_equal(pn_expert_stages_new(&opts, &s, NULL), PN_OK);
    assert_int_equal(pn_expert_stages_find(s, PN_EXPERT_FREE), 0);
    assert_int_equal(pn_expert_stages_find(s, PN_EXPERT_WRITTEN), -1);
    const double t0 = pn_now_s();
    for (int i = 0; i < 3; i++)
        pn_expert_stages_ask(s, i, &(pn_expert_move){ .il = i + 1, .ie = 7 + i });
    assert_int_equal(pn_expert_stages_find(s, PN_EXPERT_FREE), 3);
    for (int i = 0; i < 3; i++) {
        int at;
        while ((at = pn_expert_stages_find(s, PN_EXPERT_WRITTEN)) < 0)
            usleep(100);
        assert_int_equal(at, i);
        assert_int_equal(pn_expert_stages_mem(s, i)[0], i + 1);
        assert_int_equal(pn_expert_stages_mem(s, i)[1], 7 + i);
        assert_int_equal(pn_expert_stages_move(s, i)->ie, 7 + i);
        pn_expert_stages_set(s, i, PN_EXPERT_SENT);
    }
    assert_true(pn_now_s() - t0 > 0.03); /* two pauses of 20 ms, less what the clock is off */
    pn_expert_stages_free(s);

    const pn_expert_stages_opts slow = {
        .mem = mem[0], .stage_bytes = 2, .bytes_s = 1e-6, .write = write_two
    };
    assert_int_equal(pn_expert_stages_new(&slow, &s, NULL), PN_OK);
    pn_expert_stages_ask(s, 0, &(pn_expert_move){ .il = 1 });
    while (pn_expert_stages_find(s, PN_EXPERT_WRITTEN) < 0)
        usleep(100);
    pn_expert_stages_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_room), cmocka_unit_test(test_first),  cmocka_unit_test(test_exchange),
        cmocka_unit_test(test_age),  cmocka_unit_test(test_random), cmocka_unit_test(test_stages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
