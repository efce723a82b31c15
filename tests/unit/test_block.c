/* Blocks and their twins on a device, with a device that is made up: which bytes count, who may
 * write, what is copied where, and what a lost device takes along. And the map of its memory. */
#include "models/block.h"

#include "models/vram_map.h"
#include "support/check.h"

#include <stdlib.h>
#include <string.h>

enum {
    BYTES = 5000
};

/* A device whose memory is the host's. */
typedef struct fake {
    pn_home home;
    int n_twin, n_fetch, n_copy;
    int max_twin;
    bool is_dead;
} fake;

static pn_status fetch(pn_home *home, pn_block *b, pn_err *err)
{
    fake *const f = (fake *)home;
    if (f->is_dead) {
        pn_block_lose(b);
        return pn_fail(err, PN_ERR_IO, "the device is dead");
    }
    f->n_fetch++;
    memcpy(b->data, b->twin, b->bytes);
    b->is_zero = false;
    b->newest = PN_NEWEST_BOTH;
    return PN_OK;
}

static pn_status give_twin(fake *f, pn_block *b)
{
    if (f->n_twin == f->max_twin)
        return PN_ERR_LIMIT;
    b->twin = malloc(b->bytes);
    b->home = &f->home;
    f->n_twin++;
    return PN_OK;
}

static pn_status copy(pn_home *home, pn_block *to, pn_block *from, pn_err *err)
{
    fake *const f = (fake *)home;
    if (give_twin(f, to) != PN_OK)
        return pn_fail(err, PN_ERR_LIMIT, "full");
    f->n_copy++;
    memcpy(to->twin, from->twin, from->bytes);
    to->newest = PN_NEWEST_TWIN;
    return PN_OK;
}

static void drop(pn_home *home, pn_block *b)
{
    ((fake *)home)->n_twin--;
    free(b->twin);
    b->twin = NULL;
    b->home = NULL;
}

static fake device(void)
{
    return (fake){ .home = { fetch, copy, drop }, .max_twin = 100 };
}

static pn_block *new_block(pn_budget *budget)
{
    pn_block *b = NULL;
    assert_int_equal(pn_block_new(budget, BYTES, &b, NULL), PN_OK);
    return b;
}

/* As a pass on the device does: its bytes become x. */
static void compute(fake *f, pn_block *b, int x)
{
    assert_false(pn_block_is_shared(b));
    if (!b->home)
        assert_int_equal(give_twin(f, b), PN_OK);
    memset(b->twin, x, b->bytes);
    b->newest = PN_NEWEST_TWIN;
}

static void has(pn_block *b, int x)
{
    assert_int_equal(pn_block_read(b, NULL), PN_OK);
    for (size_t i = 0; i < b->bytes; i++)
        if (b->data[i] != x)
            fail_msg("byte %zu is %d, not %d", i, b->data[i], x);
}

/* Reading brings the device's bytes home once; writing makes the twin's obsolete. */
static void test_newest(void **state)
{
    (void)state;
    fake f = device();
    pn_block *const b = new_block(NULL);
    has(b, 0);
    compute(&f, b, 7);
    has(b, 7);
    has(b, 7);
    assert_int_equal(f.n_fetch, 1);
    compute(&f, b, 8);
    assert_int_equal(pn_block_write(b, NULL), PN_OK);
    assert_int_equal(f.n_twin, 0);
    has(b, 8);
    memset(b->data, 9, b->bytes);
    has(b, 9);
    assert_int_equal(f.n_fetch, 2);
    pn_block_unref(b);
}

/* A block is zero again, wherever its bytes were; one that the host never saw is not touched. */
static void test_clear(void **state)
{
    (void)state;
    fake f = device();
    pn_block *const b = new_block(NULL);
    compute(&f, b, 7);
    pn_block_clear(b);
    assert_int_equal(f.n_twin, 0);
    has(b, 0);
    assert_int_equal(f.n_fetch, 0);
    compute(&f, b, 7);
    has(b, 7);
    pn_block_clear(b);
    has(b, 0);
    assert_int_equal(pn_block_write(b, NULL), PN_OK);
    memset(b->data, 3, b->bytes);
    pn_block_clear(b);
    has(b, 0);
    compute(&f, b, 7);
    pn_block_unref(b); /* and takes the twin along */
    assert_int_equal(f.n_twin, 0);
}

/* Holders share a twin; who goes on gets a copy of it on the device, or in host memory when that is
 * full. Neither sees the other's bytes. */
static void test_copy_on_write(void **state)
{
    (void)state;
    for (int is_full = 0; is_full < 2; is_full++) {
        fake f = device();
        f.max_twin = is_full ? 1 : 2;
        pn_block *const kept = new_block(NULL);
        compute(&f, kept, 7);
        pn_block *mine = pn_block_ref(kept);
        assert_int_equal(pn_block_own(&mine, NULL), PN_OK);
        assert_ptr_not_equal(mine, kept);
        assert_int_equal(f.n_copy, !is_full);
        assert_int_equal(f.n_fetch, is_full);
        if (is_full)
            memset(mine->data, 8, mine->bytes);
        else
            compute(&f, mine, 8);
        has(kept, 7);
        has(mine, 8);
        pn_block_unref(mine);
        has(kept, 7);
        pn_block_unref(kept);
        assert_int_equal(f.n_twin, 0);
    }
}

/* With the device go the bytes that it alone had: reading, writing and copying say so, and nothing
 * of the budget is lost; cleared, the block is as new. */
static void test_lost(void **state)
{
    (void)state;
    fake f = device();
    pn_budget budget = { 0 };
    pn_block *b = new_block(&budget);
    compute(&f, b, 7);
    f.is_dead = true;
    pn_err err = { 0 };
    assert_int_equal(pn_block_read(b, &err), PN_ERR_IO);
    assert_true(pn_block_is_lost(b));
    assert_int_equal(pn_block_read(b, &err), PN_ERR_IO);
    assert_non_null(strstr(err.msg, "lost with the GPU"));
    assert_int_equal(pn_block_write(b, NULL), PN_ERR_IO);
    const size_t used = budget.used;
    assert_int_equal(budget.n_lost, 1);
    pn_block *const other = pn_block_ref(b);
    assert_int_equal(pn_block_own(&b, NULL), PN_ERR_IO);
    assert_ptr_equal(b, other);
    assert_int_equal(budget.used, used);
    pn_block_unref(other);
    pn_block_clear(b);
    assert_false(pn_block_is_lost(b));
    has(b, 0);
    pn_block_unref(b);
    assert_int_equal(budget.used, 0);
}

/* What is taken never overlaps, all of it can be had again, and what is given back joins. */
static void test_vram_map(void **state)
{
    (void)state;
    enum {
        N = 64,
        UNITS = 1000
    };
    struct {
        size_t off, bytes;
    } taken[N] = { 0 };
    pn_vram_map map;
    assert_int_equal(pn_vram_map_init(&map, UNITS * PN_VRAM_UNIT + 3, NULL), PN_OK);
    uint32_t seed = 1;
    for (int step = 0; step < 20000; step++) {
        seed = seed * 1664525u + 1013904223u;
        const size_t i = (seed >> 8) % N;
        if (taken[i].bytes) {
            pn_vram_give(&map, taken[i].off, taken[i].bytes);
            taken[i].bytes = 0;
            continue;
        }
        const size_t bytes = 1 + (seed >> 16) % (40 * PN_VRAM_UNIT);
        const size_t off = pn_vram_take(&map, bytes, seed >> 30 & 1);
        if (off == PN_VRAM_NONE)
            continue;
        assert_int_equal(off % PN_VRAM_UNIT, 0);
        assert_true(off + bytes <= UNITS * PN_VRAM_UNIT);
        for (size_t k = 0; k < N; k++)
            assert_true(!taken[k].bytes || taken[k].off >= off + bytes ||
                        taken[k].off + taken[k].bytes <= off);
        taken[i].off = off;
        taken[i].bytes = bytes;
    }
    for (size_t i = 0; i < N; i++)
        if (taken[i].bytes)
            pn_vram_give(&map, taken[i].off, taken[i].bytes);
    assert_int_equal(map.used, 0);
    assert_int_equal(map.n_free, 1);
    assert_int_equal(pn_vram_take(&map, UNITS * PN_VRAM_UNIT + 1, false), PN_VRAM_NONE);
    assert_int_equal(pn_vram_take(&map, SIZE_MAX, false), PN_VRAM_NONE);
    assert_int_equal(pn_vram_take(&map, UNITS * PN_VRAM_UNIT, false), 0);
    assert_int_equal(pn_vram_take(&map, 1, true), PN_VRAM_NONE);
    pn_vram_give(&map, 0, UNITS * PN_VRAM_UNIT);
    assert_int_equal(pn_vram_take(&map, 1, true), (UNITS - 1) * PN_VRAM_UNIT);
    pn_vram_map_clear(&map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_newest),        cmocka_unit_test(test_clear),
        cmocka_unit_test(test_copy_on_write), cmocka_unit_test(test_lost),
        cmocka_unit_test(test_vram_map),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
