/* Blocks' twins on the stand-in, between threads: one makes passes, another reads, saves and drops
 * what they have made. */
#include "models/twins.h"

#include "support/check.h"
#include "support/gpu_run.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    PART = 256 << 10,
    BIG = 4 * PART + PART / 2,
    SMALL = 4096,
    N_SMALL = 200
};

/* One GPU, or two that have halves, each with `room` bytes for twins of two kinds, big and small
 * ones. */
typedef struct rig {
    gpu_rig standin;
    fc_driver *driver;
    fc_device *device[2];
    fc_stream *stream[2];
    int n_gpu;
    pn_twins *twins;
} rig;

static pn_status turn(void *ctx, int g, pn_err *err)
{
    (void)ctx, (void)g, (void)err;
    return PN_OK;
}

static void ok(pn_status st, const pn_err *err)
{
    if (st != PN_OK)
        fail_msg("%s", err->msg);
}

static const pn_twin_shape whole[1][PN_TWIN_KINDS] = {
    { { { { 0, BIG }, { 0, 0 } } }, { { { 0, SMALL / 2 }, { SMALL / 2, SMALL / 2 } } } },
};
static const pn_twin_shape halves[2][PN_TWIN_KINDS] = {
    { { { { 0, BIG / 2 }, { 0, 0 } } }, { { { 0, SMALL / 4 }, { SMALL / 2, SMALL / 4 } } } },
    { { { { BIG / 2, BIG / 2 }, { 0, 0 } } },
      { { { SMALL / 4, SMALL / 4 }, { SMALL / 4 * 3, SMALL / 4 } } } },
};

/* c: of the stand-in alone. */
static void rig_open_case(rig *r, int n_gpu, size_t room, const gpu_case *c)
{
    static gpu_model none = { .n = 1 };
    pn_err err = { 0 };
    *r = (rig){ .n_gpu = n_gpu };
    const size_t rooms[2] = { room, room };
    gpu_case with_memory = *c;
    with_memory.n_device = n_gpu;
    with_memory.mem = 4 << 20;
    const pn_exec_opts opts = gpu_exec_opts(&r->standin, &none, &with_memory);
    ok(fc_driver_open(&r->driver, opts.device.driver, NULL, &err), &err);
    for (int g = 0; g < n_gpu; g++) {
        ok(fc_device_open(&r->device[g], r->driver, g, NULL, &err), &err);
        ok(fc_stream_new(&r->stream[g], r->device[g], &err), &err);
    }
    const pn_twins_opts twins = {
        .device = r->device,
        .stream = r->stream,
        .n_gpu = n_gpu,
        .room = rooms,
        .part_bytes = PART,
        .shapes = n_gpu == 2 ? halves : whole,
        .turn = turn,
    };
    ok(pn_twins_new(&twins, &r->twins, &err), &err);
}

static void rig_open(rig *r, size_t room)
{
    rig_open_case(r, 1, room, &(gpu_case){ 0 });
}

static void rig_close(rig *r)
{
    pn_twins_free(r->twins);
    for (int g = 0; g < r->n_gpu; g++) {
        fc_stream_free(r->stream[g]);
        fc_device_close(r->device[g]);
    }
    fc_driver_close(r->driver);
    gpu_rig_close(&r->standin);
}

static pn_block *new_block(int kind)
{
    pn_block *b = NULL;
    pn_err err = { 0 };
    ok(pn_block_new(NULL, kind ? SMALL : BIG, &b, &err), &err);
    return b;
}

/* A pass that makes every byte of the block `byte`, which only the GPUs know then. */
static pn_status write_block(rig *r, pn_block *b, int kind, uint8_t byte, pn_err *err)
{
    const pn_twin_shape(*const shapes)[PN_TWIN_KINDS] = r->n_gpu == 2 ? halves : whole;
    pn_twins_begin(r->twins);
    pn_status st = pn_twins_hold(r->twins, b, kind, true, err);
    for (int g = 0; g < r->n_gpu && st == PN_OK; g++)
        st = fc_fill(r->stream[g], pn_twins_at(r->twins, b, g), byte,
                     pn_twin_shape_bytes(&shapes[g][kind]), err);
    pn_twins_end(r->twins);
    return st;
}

static pn_block *block_on_gpu(rig *r, int kind, uint8_t byte)
{
    pn_block *const b = new_block(kind);
    pn_err err = { 0 };
    ok(write_block(r, b, kind, byte, &err), &err);
    return b;
}

static void check_bytes(const pn_block *b, uint8_t byte)
{
    for (size_t i = 0; i < b->bytes; i++)
        if (b->data[i] != byte)
            fail_msg("byte %zu is %02x, not %02x", i, b->data[i], byte);
}

static void passes(rig *r, int n)
{
    for (int i = 0; i < n; i++) {
        pn_twins_begin(r->twins);
        pn_twins_end(r->twins);
    }
}

static void *read_block(void *ctx)
{
    pn_err err = { 0 };
    return (void *)(intptr_t)pn_block_read(ctx, &err);
}

/* While a big block comes home for one thread, passes of another go on; what arrives is whole, also
 * where all of it was brought home meanwhile. */
static void test_passes_go_on(void **state)
{
    (void)state;
    int n_beside = 0;
    for (int round = 0; round < 8 || !n_beside; round++) {
        assert_true(round < 1000);
        rig r;
        rig_open_case(&r, 1 + round % 2, BIG, &(gpu_case){ .seed = 1 + (unsigned)round });
        pn_block *const b = block_on_gpu(&r, 0, (uint8_t)(round + 1));
        pthread_t reader;
        assert_int_equal(pthread_create(&reader, NULL, read_block, pn_block_ref(b)), 0);
        while (b->newest == PN_NEWEST_TWIN) {
            pn_twins_begin(r.twins);
            n_beside += b->newest == PN_NEWEST_TWIN && !b->is_zero; /* some of it is at home */
            pn_twins_end(r.twins);
            if (round % 4 == 3)
                pn_twins_evacuate(r.twins);
        }
        void *st;
        pthread_join(reader, &st);
        assert_int_equal((intptr_t)st, PN_OK);
        check_bytes(b, (uint8_t)(round + 1));
        pn_block_unref(b);
        pn_block_unref(b);
        rig_close(&r);
    }
}

typedef struct blocks {
    pn_block *at[N_SMALL];
} blocks;

static void *drop_all(void *ctx)
{
    blocks *const all = ctx;
    pn_err err = { 0 };
    for (int i = 0; i < N_SMALL; i++) {
        if (pn_block_read(all->at[i], &err) != PN_OK || all->at[i]->data[SMALL - 1] != (uint8_t)i)
            return all->at[i];
        pn_block_unref(all->at[i]);
    }
    return NULL;
}

/* The GPU is given up while another thread reads and drops blocks that it knows. */
static void test_closed_beside_readers(void **state)
{
    (void)state;
    for (int round = 0; round < 10; round++) {
        rig r;
        blocks all;
        rig_open(&r, N_SMALL * SMALL);
        for (int i = 0; i < N_SMALL; i++)
            all.at[i] = block_on_gpu(&r, 1, (uint8_t)i);
        pthread_t reader;
        assert_int_equal(pthread_create(&reader, NULL, drop_all, &all), 0);
        pn_twins_free(r.twins);
        r.twins = NULL;
        void *wrong;
        pthread_join(reader, &wrong);
        assert_null(wrong);
        rig_close(&r);
    }
}

/* --- to the GPUs ------------------------------------------------------------------------------ */

/* Bytes of which no part is like another, whatever their size. */
static uint8_t byte_at(size_t i, unsigned seed)
{
    return (uint8_t)(((uint32_t)i * 2654435761u >> 24) + seed);
}

static pn_block *block_on_host(int kind, unsigned seed)
{
    pn_block *const b = new_block(kind);
    pn_err err = { 0 };
    ok(pn_block_write(b, &err), &err);
    for (size_t i = 0; i < b->bytes; i++)
        b->data[i] = byte_at(i, seed);
    return b;
}

static bool bring(rig *r, pn_block *b, int kind)
{
    return pn_twins_bring(r->twins, &b, 1, kind);
}

/* A pass holds the block; what its stream is given finds the bytes of block_on_host there. */
static void check_on_gpu(rig *r, pn_block *b, int kind, unsigned seed)
{
    const pn_twin_shape(*const shapes)[PN_TWIN_KINDS] = r->n_gpu == 2 ? halves : whole;
    pn_err err = { 0 };
    pn_twins_begin(r->twins);
    ok(pn_twins_hold(r->twins, b, kind, false, &err), &err);
    for (int g = 0; g < r->n_gpu; g++) {
        const pn_twin_shape *const shape = &shapes[g][kind];
        uint8_t *const got = malloc(pn_twin_shape_bytes(shape));
        assert_non_null(got);
        ok(fc_copy_out(r->stream[g], got, pn_twins_at(r->twins, b, g), pn_twin_shape_bytes(shape),
                       &err),
           &err);
        ok(fc_stream_sync(r->stream[g], &err), &err);
        for (int k = 0; k < PN_TWIN_RANGES; k++)
            for (size_t i = 0; i < shape->ranges[k].bytes; i++)
                if (got[pn_twin_range_at(shape, k) + i] != byte_at(shape->ranges[k].off + i, seed))
                    fail_msg("GPU %d: byte %zu of range %d is wrong", g, i, k);
        free(got);
    }
    pn_twins_end(r->twins);
}

/* Streams of a rig with one GPU, in the order of making. */
enum {
    OF_PASSES = 1,
    BESIDE,
    INWARD
};

/* A block is sent while passes go on, of which the first that needs it waits on the device; or the
 * pass sends it itself. Every stream may be the last to run, or the first. */
static void test_sent(void **state)
{
    (void)state;
    int n_beside = 0;
    for (int round = 0; round < 14 || !n_beside; round++) {
        assert_true(round < 1000);
        rig r;
        const gpu_case c = { .seed = 1 + (unsigned)round, .starved = round % 7 - 3 };
        rig_open_case(&r, 1 + round / 7 % 2, BIG + SMALL, &c);
        pn_block *const b = block_on_host(0, c.seed), *const other = new_block(1);
        pn_err err = { 0 };
        while (round % 4 < 3 && !bring(&r, b, 0)) {
            ok(write_block(&r, other, 1, 1, &err), &err);
            n_beside++;
            usleep(100); /* the other thread wants the driver, too */
        }
        check_on_gpu(&r, b, 0, c.seed);
        assert_int_equal(b->newest, PN_NEWEST_BOTH);
        assert_true(bring(&r, b, 0));
        pn_block_unref(b);
        pn_block_unref(other);
        rig_close(&r);
    }
}

/* What is sent goes into memory that a copy within the GPU may still be read from. */
static void test_sent_into_freed(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 6; seed++) {
        rig r;
        const gpu_case c = { .seed = seed, .starved = seed % 2 ? OF_PASSES : -INWARD };
        rig_open_case(&r, 1, 2 * BIG, &c);
        pn_err err = { 0 };
        pn_block *const old = block_on_gpu(&r, 0, 7), *copy = pn_block_ref(old);
        ok(pn_block_own(&copy, &err), &err);
        assert_int_equal(copy->newest, PN_NEWEST_TWIN);
        pn_block_unref(old);
        pn_block *const b = block_on_host(0, seed);
        while (!bring(&r, b, 0))
            usleep(100);
        ok(pn_block_read(copy, &err), &err);
        check_bytes(copy, 7);
        check_on_gpu(&r, b, 0, seed);
        pn_block_unref(copy);
        pn_block_unref(b);
        rig_close(&r);
    }
}

/* A block on its way to the GPU is dropped, changed on the host, evicted or evacuated; the memory
 * that it was to have is another's then. */
static void test_called_back(void **state)
{
    (void)state;
    rig r;
    pn_err err = { 0 };
    rig_open_case(&r, 2, BIG / 2, &(gpu_case){ .seed = 5 });
    for (unsigned round = 0; round < 24; round++) {
        pn_block *const b = block_on_host(0, round);
        bring(&r, b, 0);
        usleep(round % 6 * 500);
        switch (round % 4) {
        case 0:
            break;
        case 1:
            ok(pn_block_write(b, &err), &err);
            b->data[BIG / 3] = byte_at(BIG / 3, round);
            break;
        case 2:
            pn_twins_evacuate(r.twins);
            break;
        default:
            passes(&r, 1);
        }
        if (round % 4)
            check_on_gpu(&r, b, 0, round);
        if (round % 3)
            bring(&r, b, 0);
        pn_block *const next = block_on_gpu(&r, 0, (uint8_t)round);
        ok(pn_block_read(next, &err), &err);
        check_bytes(next, (uint8_t)round);
        pn_block_unref(b);
        pn_block_unref(next);
    }
    rig_close(&r);
}

/* Many blocks are dropped before their turn to be sent has come. */
static void test_many_called_back(void **state)
{
    (void)state;
    rig r;
    pn_block *b[N_SMALL];
    rig_open_case(&r, 2, N_SMALL * SMALL / 2, &(gpu_case){ .seed = 9 });
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < N_SMALL; i++)
            b[i] = block_on_host(1, (unsigned)i);
        pn_twins_bring(r.twins, b, N_SMALL, 1);
        for (int i = N_SMALL - 1; i >= 0; i--) {
            if (i % 8 == 0)
                check_on_gpu(&r, b[i], 1, (unsigned)i);
            pn_block_unref(b[i]);
        }
    }
    rig_close(&r);
}

/* --- room ahead of need ----------------------------------------------------------------------- */

enum {
    N_COLD = 24,
    N_PASS = 16 /* after which what they do not use is cold */
};

/* What was not used for some passes comes home beside them, whole; making room for others then
 * costs no call of the driver. */
static void test_room_ahead(void **state)
{
    (void)state;
    for (int n_gpu = 1; n_gpu <= 2; n_gpu++) {
        rig r;
        pn_block *b[N_COLD], *more[N_COLD];
        rig_open_case(&r, n_gpu, N_COLD * SMALL / (size_t)n_gpu, &(gpu_case){ .seed = 7 });
        for (int i = 0; i < N_COLD; i++)
            b[i] = block_on_gpu(&r, 1, (uint8_t)i);
        for (int i = 0; i < N_COLD; i++)
            for (int k = 0; b[i]->newest != PN_NEWEST_BOTH; k++) {
                assert_true(k < 100000);
                passes(&r, 1);
                usleep(100);
            }
        const int64_t n_call = gpu_state().n_call;
        pn_twins_begin(r.twins);
        for (int i = 0; i < N_COLD; i++) {
            pn_err err = { 0 };
            more[i] = new_block(1);
            ok(pn_twins_hold(r.twins, more[i], 1, true, &err), &err);
        }
        /* zeros into both ranges of each on each GPU */
        assert_true(gpu_state().n_call == n_call + 2 * N_COLD * n_gpu);
        pn_twins_end(r.twins);
        for (int i = 0; i < N_COLD; i++) {
            assert_int_equal(b[i]->newest, PN_NEWEST_HOST);
            check_bytes(b[i], (uint8_t)i);
            pn_block_unref(b[i]);
            pn_block_unref(more[i]);
        }
        rig_close(&r);
    }
}

/* What is on its way home to make room is changed by a pass, read, or dropped. */
static void test_used_again(void **state)
{
    (void)state;
    rig r;
    pn_block *b[N_COLD];
    uint8_t byte[N_COLD];
    pn_err err = { 0 };
    rig_open_case(&r, 2, N_COLD * SMALL / 2, &(gpu_case){ .seed = 3 });
    for (int i = 0; i < N_COLD; i++)
        b[i] = block_on_gpu(&r, 1, byte[i] = (uint8_t)i);
    for (int round = 0; round < 4000; round++) {
        const int i = round * 7 % N_COLD;
        switch (round / N_COLD % 4) {
        case 0:
        case 1:
            byte[i]++;
            ok(write_block(&r, b[i], 1, byte[i], &err), &err);
            break;
        case 2:
            ok(pn_block_read(b[i], &err), &err);
            check_bytes(b[i], byte[i]);
            break;
        default:
            pn_block_unref(b[i]);
            b[i] = block_on_gpu(&r, 1, byte[i]);
        }
    }
    for (int i = 0; i < N_COLD; i++) {
        ok(pn_block_read(b[i], &err), &err);
        check_bytes(b[i], byte[i]);
        pn_block_unref(b[i]);
    }
    rig_close(&r);
}

/* A large block is dropped while parts of it come home. */
static void test_dropped(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, BIG);
    for (int round = 0; round < 60; round++) {
        pn_block *const b = block_on_gpu(&r, 0, (uint8_t)round);
        passes(&r, N_PASS);
        usleep((useconds_t)(round % 20) * 100);
        pn_block_unref(b);
    }
    rig_close(&r);
}

/* A large block is changed while parts of it come home. */
static void test_changed(void **state)
{
    (void)state;
    rig r;
    pn_err err = { 0 };
    rig_open(&r, BIG);
    pn_block *const b = block_on_gpu(&r, 0, 0);
    for (int round = 1; round < 100; round++) {
        passes(&r, N_PASS);
        usleep((useconds_t)(round % 20) * 20);
        ok(write_block(&r, b, 0, (uint8_t)round, &err), &err);
        if (round % 4 == 0) {
            ok(pn_block_read(b, &err), &err);
            check_bytes(b, (uint8_t)round);
        }
    }
    pn_block_unref(b);
    rig_close(&r);
}

/* What is evacuated is at home at once. */
static void test_evacuated(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, BIG);
    pn_block *const b = block_on_gpu(&r, 0, 5);
    pn_twins_evacuate(r.twins);
    check_bytes(b, 5);
    pn_block_unref(b);
    rig_close(&r);
}

/* --- failures --------------------------------------------------------------------------------- */

/* Blocks are made, become cold, are read and sent back. Each has its bytes or is lost, and that is
 * said. */
static void failing_scene(rig *r)
{
    pn_block *b[N_COLD];
    bool is_made[N_COLD];
    for (int i = 0; i < N_COLD; i++) {
        pn_err err = { 0 };
        const int kind = i != N_COLD / 2;
        b[i] = new_block(kind);
        is_made[i] = write_block(r, b[i], kind, (uint8_t)i, &err) == PN_OK;
        assert_true(is_made[i] || err.msg[0]);
    }
    passes(r, N_PASS);
    for (int i = 0; i < N_COLD; i++) {
        pn_err err = { 0 };
        const pn_status st = pn_block_read(b[i], &err);
        if (st == PN_OK && is_made[i])
            check_bytes(b[i], (uint8_t)i);
        assert_true(st == PN_OK || (pn_block_is_lost(b[i]) && err.msg[0]));
    }
    pn_twins_evacuate(r->twins);
    bring(r, b[N_COLD / 2], 0);
    for (int i = 0; i < N_COLD; i++) {
        const int kind = i != N_COLD / 2;
        pn_err err = { 0 };
        if (!is_made[i] || pn_block_is_lost(b[i]))
            continue;
        pn_twins_begin(r->twins);
        const pn_status st = pn_twins_hold(r->twins, b[i], kind, true, &err);
        pn_twins_end(r->twins);
        assert_true(st == PN_OK || err.msg[0]);
        if (st == PN_OK && pn_block_read(b[i], &err) == PN_OK)
            check_bytes(b[i], (uint8_t)i);
    }
    pn_twins_evacuate(r->twins);
    for (int i = 0; i < N_COLD; i++)
        pn_block_unref(b[i]);
}

/* Any call is refused, or a GPU falls away there, in the copies of all threads. SOAK=1: each; else
 * every 17th. */
static void test_failures(void **state)
{
    (void)state;
    rig r;
    const int step = getenv("SOAK") ? 1 : 17;
    for (int n_gpu = 1; n_gpu <= 2; n_gpu++) {
        rig_open_case(&r, n_gpu, BIG + 4 * SMALL, &(gpu_case){ 0 });
        const int n_open = (int)gpu_state().n_call;
        rig_close(&r);
        for (int lose = 0; lose < 2; lose++) {
            int n = 0;
            for (int at = n_open + 1;; at += step, n++) {
                const gpu_case c = { .lose = lose ? at : 0, .refuse = lose ? 0 : at };
                rig_open_case(&r, n_gpu, BIG + 4 * SMALL, &c);
                failing_scene(&r);
                rig_close(&r);
                const fakecuda_state s = gpu_state();
                if (!(lose ? s.lost : s.refused))
                    break;
            }
            assert_true(n >= 10);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_passes_go_on),     cmocka_unit_test(test_closed_beside_readers),
        cmocka_unit_test(test_room_ahead),       cmocka_unit_test(test_used_again),
        cmocka_unit_test(test_dropped),          cmocka_unit_test(test_changed),
        cmocka_unit_test(test_evacuated),        cmocka_unit_test(test_sent),
        cmocka_unit_test(test_sent_into_freed),  cmocka_unit_test(test_called_back),
        cmocka_unit_test(test_many_called_back), cmocka_unit_test(test_failures),
    };
    cmocka_set_test_filter(getenv("ONLY"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
