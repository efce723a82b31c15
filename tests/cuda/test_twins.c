/* Blocks' twins on the stand-in, between threads: one makes passes, another reads, saves and drops
 * what they have made. */
#include "models/twins.h"

#include "support/check.h"
#include "support/gpu_run.h"

#include <pthread.h>
#include <stdlib.h>

enum {
    BIG = 18 << 20, /* of several parts */
    SMALL = 4096,
    N_SMALL = 200
};

/* A GPU with `room` bytes for twins of two kinds, big and small. */
typedef struct rig {
    gpu_rig standin;
    fc_driver *driver;
    fc_device *device;
    fc_stream *stream;
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

static void rig_open(rig *r, size_t room)
{
    static gpu_model none = { .n = 1 };
    static const pn_twin_shape shapes[1][PN_TWIN_KINDS] = {
        { { { { 0, BIG }, { 0, 0 } } }, { { { 0, SMALL / 2 }, { SMALL / 2, SMALL / 2 } } } }
    };
    pn_err err = { 0 };
    *r = (rig){ 0 };
    const pn_exec_opts opts =
        gpu_exec_opts(&r->standin, &none, &(gpu_case){ .n_device = 1, .mem = 32 << 20 });
    ok(fc_driver_open(&r->driver, opts.device.driver, NULL, &err), &err);
    ok(fc_device_open(&r->device, r->driver, 0, NULL, &err), &err);
    ok(fc_stream_new(&r->stream, r->device, &err), &err);
    const pn_twins_opts twins = {
        .device = &r->device,
        .stream = &r->stream,
        .n_gpu = 1,
        .room = &room,
        .shapes = shapes,
        .turn = turn,
    };
    ok(pn_twins_new(&twins, &r->twins, &err), &err);
}

static void rig_close(rig *r)
{
    pn_twins_free(r->twins);
    fc_stream_free(r->stream);
    fc_device_close(r->device);
    fc_driver_close(r->driver);
    gpu_rig_close(&r->standin);
}

/* A block that only the GPU knows: every byte is `byte`. */
static pn_block *block_on_gpu(rig *r, int kind, uint8_t byte)
{
    const size_t bytes = kind ? SMALL : BIG;
    pn_block *b = NULL;
    pn_err err = { 0 };
    ok(pn_block_new(NULL, bytes, &b, &err), &err);
    pn_twins_begin(r->twins);
    ok(pn_twins_hold(r->twins, b, kind, true, &err), &err);
    ok(fc_fill(r->stream, pn_twins_at(r->twins, b, 0), byte, bytes, &err), &err);
    pn_twins_end(r->twins);
    return b;
}

static void check_bytes(const pn_block *b, uint8_t byte)
{
    for (size_t i = 0; i < b->bytes; i++)
        if (b->data[i] != byte)
            fail_msg("byte %zu is %02x, not %02x", i, b->data[i], byte);
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
        rig_open(&r, BIG);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_passes_go_on),
        cmocka_unit_test(test_closed_beside_readers),
    };
    cmocka_set_test_filter(getenv("ONLY"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
