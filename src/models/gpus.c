#include "models/gpus.h"

#include "kernels/kernels.h"

#include <stdio.h>

enum {
    N_CTX_DEFAULT = 32768,
    RESERVE_SHARE =
        16,          /* 1/16 of a GPU's free memory is left alone: for the screen and the driver, */
    N_STATE_MIN = 3, /* a sequence, what it is copied from, a kept one */
    PART_BYTES = 4 << 20 /* of blocks on their way, copied at once: 0.3 ms of PCIe 3 */
};
#define RESERVE_MAX ((size_t)512 << 20) /* and no more than this */

/* Opens a GPU and says what it has to use. */
static pn_status open_one(pn_gpus *gpus, const pn_device_opts *opts, int ordinal, pn_gpu_room *room,
                          pn_err *err)
{
    const fc_device_options device = { .mem_max = opts->vram_bytes, .spin = true };
    fc_device **const at = &gpus->device[gpus->n];
    size_t bytes = 0;
    PN_TRY(pn_turns_take(&gpus->turns, ordinal, NULL, err));
    PN_TRY(fc_device_open(at, gpus->driver, ordinal, &device, err));
    gpus->n++;
    PN_TRY(fc_device_memory(*at, NULL, NULL, &bytes, err));
    const size_t share = bytes / RESERVE_SHARE;
    const size_t reserve = share < RESERVE_MAX ? share : RESERVE_MAX;
    bytes -= reserve;
    *room = (pn_gpu_room){ .ordinal = ordinal, .free_bytes = bytes };
    if (opts->vram_bytes && opts->vram_bytes < bytes)
        room->free_bytes = opts->vram_bytes;
    snprintf(room->name, sizeof room->name, "%s", fc_device_get_info(*at)->name);
    return PN_OK;
}

/* Named ones must open. Of those that nobody named the first that opens is taken, then a second. */
static pn_status open_all(pn_gpus *gpus, const pn_device_opts *opts, pn_placement_in *in,
                          pn_err *err)
{
    PN_TRY(pn_turns_init(&gpus->turns, opts, err));
    PN_TRY(fc_driver_open(&gpus->driver, opts->driver, NULL, err));
    for (int i = 0; i < opts->n_die; i++)
        PN_TRY(open_one(gpus, opts, opts->die[i], &in->gpus[gpus->n], err));
    if (opts->n_die)
        return PN_OK;
    pn_err why = { 0 };
    for (int i = 0; i < gpus->driver->n_device && gpus->n < PN_GPU_MAX; i++) {
        pn_err this = { 0 };
        const int n = gpus->n;
        if (open_one(gpus, opts, i, &in->gpus[n], &this) == PN_OK)
            continue;
        if (gpus->n > n) /* it opened, and then failed */
            fc_device_close(gpus->device[--gpus->n]);
        if (why.code == PN_OK)
            why = this;
    }
    if (!gpus->n)
        return pn_fail(err, why.code, "%s", why.msg);
    return PN_OK;
}

pn_status pn_gpus_open(pn_gpus *gpus, const pn_device_opts *opts, pn_placement_in *in, pn_err *err)
{
    PN_REQUIRE(opts->n_die >= 0 && opts->n_die <= PN_GPU_MAX, err);
    PN_REQUIRE(opts->n_ubatch >= 0, err);
    if (opts->n_die == 2 && opts->die[0] == opts->die[1])
        return pn_fail(err, PN_ERR_ARG, "both dies are GPU %d", opts->die[0]);
    PN_TRY(open_all(gpus, opts, in, err));
    in->n_gpu = gpus->n;
    in->uses_all = opts->n_die == 2;
    in->split_layer = opts->n_die == 2 && opts->split_layer > 0 ? opts->split_layer : -1;
    in->n_cpu_moe = opts->n_cpu_moe;
    return PN_OK;
}

pn_status pn_gpus_plan(pn_gpus *gpus, const pn_placement_in *in, pn_err *err)
{
    PN_TRY(pn_placement_make(in, &gpus->plan, err));
    while (gpus->n > gpus->plan.n_gpu)
        fc_device_close(gpus->device[--gpus->n]);
    size_t len = 0;
    for (int g = 0; g < gpus->n; g++)
        len += (size_t)snprintf(gpus->name + len, sizeof gpus->name - len, "%sGPU %d (%s)",
                                g ? " and " : "", in->gpus[g].ordinal, in->gpus[g].name);
    return PN_OK;
}

void pn_gpus_pinned(const pn_gpus *gpus, size_t x_bytes, size_t *states, size_t *x)
{
    *states = (size_t)PN_TWIN_PARTS * PART_BYTES;
    *x = gpus->turns.is_on ? x_bytes
         : gpus->n == 2    ? fc_link_pinned(gpus->device[0], gpus->device[1], x_bytes)
                           : 0;
}

static pn_status turn(void *ctx, int g, pn_err *err)
{
    pn_gpus *const gpus = ctx;
    return g < 0 ? pn_turns_end(&gpus->turns, err) : pn_gpus_turn(gpus, g, err);
}

pn_status pn_gpus_start(pn_gpus *gpus, size_t x_bytes, const pn_twin_shape (*shapes)[PN_TWIN_KINDS],
                        pn_err *err)
{
    size_t room[PN_GPU_MAX];
    for (int g = 0; g < gpus->n; g++) {
        PN_TRY(pn_gpus_turn(gpus, g, err));
        PN_TRY(fc_stream_new(&gpus->stream[g], gpus->device[g], err));
        room[g] = gpus->plan.shares[g].sequences;
    }
    if (gpus->turns.is_on)
        PN_TRY(fc_staging_alloc(gpus->device[0], x_bytes, "handover", &gpus->handover, err));
    else if (gpus->n == 2)
        PN_TRY(fc_link_new(&gpus->link, gpus->device[0], gpus->device[1], x_bytes, false, err));
    const pn_twins_opts twins = {
        .device = gpus->device,
        .stream = gpus->stream,
        .n_gpu = gpus->n,
        .room = room,
        .part_bytes = PART_BYTES,
        .shapes = shapes,
        .turn = turn,
        .ctx = gpus,
        .takes_turns = gpus->turns.is_on,
    };
    return pn_twins_new(&twins, &gpus->twins, err);
}

pn_status pn_gpus_turn(pn_gpus *gpus, int g, pn_err *err)
{
    return pn_turns_take(&gpus->turns, gpus->plan.gpus[g].ordinal, gpus->stream[g], err);
}

pn_status pn_gpus_send(pn_gpus *gpus, int from, const void *src, int to, void *dst, size_t bytes,
                       pn_err *err)
{
    if (gpus->link)
        return fc_link_send(gpus->link, gpus->stream[from], src, gpus->stream[to], dst, bytes, err);
    PN_TRY(fc_copy_out(gpus->stream[from], gpus->handover, src, bytes, err));
    PN_TRY(fc_stream_sync(gpus->stream[from], err));
    PN_TRY(pn_gpus_turn(gpus, to, err));
    return fc_copy_in(gpus->stream[to], dst, gpus->handover, bytes, err);
}

void pn_gpus_close(pn_gpus *gpus)
{
    pn_twins_free(gpus->twins);
    fc_link_free(gpus->link);
    if (gpus->handover)
        fc_staging_free(gpus->device[0], gpus->handover);
    for (int g = 0; g < gpus->n; g++) {
        pn_gpus_turn(gpus, g, NULL);
        gpus->turns.stream = NULL;
        fc_stream_free(gpus->stream[g]);
        fc_device_close(gpus->device[g]);
    }
    pn_turns_clear(&gpus->turns);
    fc_driver_close(gpus->driver);
    pn_placement_clear(&gpus->plan);
    *gpus = (pn_gpus){ 0 };
}

int pn_gpus_n_ctx(const pn_device_opts *opts, int n_ctx_model)
{
    const int n = opts->n_ctx ? opts->n_ctx : N_CTX_DEFAULT;
    return n < n_ctx_model ? n : n_ctx_model;
}

void pn_gpus_want(const pn_device_opts *opts, int n_ctx_model, pn_placement_in *in)
{
    const size_t n_seq = opts->n_seq ? (size_t)opts->n_seq : 1;
    const size_t n_page = ((size_t)pn_gpus_n_ctx(opts, n_ctx_model) - 1) / PN_KV_CHUNK + 1;
    in->n_state = N_STATE_MIN;
    in->n_page = n_page + 1;         /* the last one is copied when a kept state is gone on from */
    in->want_state = 22 + 2 * n_seq; /* as the state cache (pn_cli_default_cache) */
    in->want_page = (1 + (n_seq + 3) / 4) * n_page;
}
