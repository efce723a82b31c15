#include "cuda/link.h"

#include "base/mem.h"
#include "cuda/device_internal.h"

struct fc_link {
    fc_device *src, *dst;
    size_t bytes_max;
    bool direct;
    void *staging; /* pinned, where not direct */
    /* ready: dst's stream may be written; sent: src's part is done; taken: dst's is. */
    fc_event *ready, *sent, *taken;
    bool is_used; /* taken has been recorded */
};

static pn_status can_reach(fc_device *src, fc_device *dst, int *can, pn_err *err)
{
    FC_TRY(dst, err, cuDeviceCanAccessPeer(can, dst->device, src->device), "its peers");
    return PN_OK;
}

size_t fc_link_pinned(fc_device *src, fc_device *dst, size_t bytes_max)
{
    int can = 0;
    return can_reach(src, dst, &can, NULL) == PN_OK && can ? 0 : bytes_max;
}

/* Whether dst's context reaches src's memory, made so. */
static pn_status enable_peer(fc_device *src, fc_device *dst, bool *direct, pn_err *err)
{
    int can = 0;
    PN_TRY(can_reach(src, dst, &can, err));
    *direct = false;
    if (!can)
        return PN_OK;
    const CUresult r = dst->drv->cuCtxEnablePeerAccess(src->ctx, 0);
    *direct = r == 0 || r == FC_CUDA_PEER_ACCESS_ALREADY_ENABLED;
    return PN_OK; /* a refusal, of too many peers, leaves the way through pinned memory */
}

pn_status fc_link_new(fc_link **out, fc_device *src, fc_device *dst, size_t bytes_max, bool staged,
                      pn_err *err)
{
    fc_link *const l = pn_calloc(1, sizeof *l);
    if (!l)
        return pn_fail(err, PN_ERR_NOMEM, "cuda: out of memory");
    *l = (fc_link){ .src = src, .dst = dst, .bytes_max = bytes_max, .direct = src == dst };
    pn_status st = PN_OK;
    if (src != dst && !staged)
        st = enable_peer(src, dst, &l->direct, err);
    if (st == PN_OK && !l->direct)
        st = fc_pinned_alloc(src, bytes_max, "the way between two devices", &l->staging, err);
    if (st == PN_OK)
        st = fc_event_new(&l->ready, dst, false, err);
    if (st == PN_OK)
        st = fc_event_new(&l->sent, src, false, err);
    if (st == PN_OK)
        st = fc_event_new(&l->taken, dst, false, err);
    if (st != PN_OK) {
        fc_link_free(l);
        return st;
    }
    *out = l;
    return PN_OK;
}

void fc_link_free(fc_link *l)
{
    if (!l)
        return;
    if (l->staging) { /* no copy may come after it is freed; a lost device makes none */
        fc_device_sync(l->src, NULL);
        fc_device_sync(l->dst, NULL);
    }
    fc_event_free(l->ready);
    fc_event_free(l->sent);
    fc_event_free(l->taken);
    fc_pinned_free(l->src, l->staging);
    pn_free(l);
}

bool fc_link_is_direct(const fc_link *l)
{
    return l->direct;
}

pn_status fc_link_send(fc_link *l, fc_stream *src_stream, const void *src, fc_stream *dst_stream,
                       void *dst, size_t bytes, pn_err *err)
{
    PN_REQUIRE(bytes <= l->bytes_max, err);
    if (!bytes)
        return PN_OK;
    if (l->direct) { /* src's stream makes the copy, once dst's has reached this point */
        PN_TRY(fc_event_record(l->ready, dst_stream, err));
        PN_TRY(fc_stream_wait(src_stream, l->ready, err));
        if (l->src == l->dst)
            PN_TRY(fc_copy(src_stream, dst, src, bytes, err));
        else
            FC_TRY(l->src, err,
                   cuMemcpyPeerAsync(fc_address(dst), l->dst->ctx, fc_address(src), l->src->ctx,
                                     bytes, src_stream->stream),
                   "a copy of %zu bytes to device %d", bytes, l->dst->info.ordinal);
        PN_TRY(fc_event_record(l->sent, src_stream, err));
        return fc_stream_wait(dst_stream, l->sent, err);
    }
    if (l->is_used) /* the staging memory still holds what was sent before */
        PN_TRY(fc_stream_wait(src_stream, l->taken, err));
    PN_TRY(fc_copy_out(src_stream, l->staging, src, bytes, err));
    PN_TRY(fc_event_record(l->sent, src_stream, err));
    PN_TRY(fc_stream_wait(dst_stream, l->sent, err));
    PN_TRY(fc_copy_in(dst_stream, dst, l->staging, bytes, err));
    PN_TRY(fc_event_record(l->taken, dst_stream, err));
    l->is_used = true;
    return PN_OK;
}
