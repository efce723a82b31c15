#include "cuda/graph.h"

#include "base/mem.h"
#include "cuda/device_internal.h"

struct fc_graph {
    fc_device *dev;
    CUgraphExec exec;
    uint64_t n_launch; /* kernels in it */
};

enum {
    CAPTURE_THREAD_LOCAL = 1
}; /* CU_STREAM_CAPTURE_MODE_THREAD_LOCAL */

pn_status fc_graph_begin(fc_stream *s, pn_err *err)
{
    if (!s->dev->info.can_graph)
        return pn_fail(err, PN_ERR_UNSUPPORTED, "cuda: this driver does not record streams");
    FC_TRY_STREAM(s, err, cuStreamBeginCapture(s->stream, CAPTURE_THREAD_LOCAL),
                  "recording a stream");
    s->is_recording = true;
    s->dev->n_recorded = s->dev->n_launch;
    return PN_OK;
}

pn_status fc_graph_end(fc_stream *s, fc_graph **out, pn_err *err)
{
    fc_device *const dev = s->dev;
    CUgraph recorded = NULL;
    s->is_recording = false;
    FC_TRY_STREAM(s, err, cuStreamEndCapture(s->stream, &recorded), "the recording of a stream");
    const uint64_t n_launch = dev->n_launch - dev->n_recorded;
    dev->n_launch = dev->n_recorded; /* nothing has run yet */
    fc_graph *const g = pn_calloc(1, sizeof *g);
    CUresult r = 0;
    if (g)
        r = dev->drv->cuGraphInstantiate(&g->exec, recorded, 0);
    dev->drv->cuGraphDestroy(recorded);
    if (!g)
        return pn_fail(err, PN_ERR_NOMEM, "cuda: out of memory");
    if (r) {
        pn_free(g);
        return fc_fail(dev, r, err, "the recording of a stream");
    }
    g->dev = dev;
    g->n_launch = n_launch;
    *out = g;
    return PN_OK;
}

pn_status fc_graph_launch(fc_graph *g, fc_stream *s, pn_err *err)
{
    FC_TRY_STREAM(s, err, cuGraphLaunch(g->exec, s->stream), "launching a recording");
    s->dev->n_launch += g->n_launch;
    return PN_OK;
}

void fc_graph_free(fc_graph *g)
{
    if (!g)
        return;
    if (!g->dev->drv->cuCtxSetCurrent(g->dev->ctx))
        g->dev->drv->cuGraphExecDestroy(g->exec);
    pn_free(g);
}
