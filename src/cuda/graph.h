/* Streams recorded once and replayed with one call: what the launches of a token cost the host then
 * is that of one. The addresses and arguments are those of the recording. */
#ifndef PN_CUDA_GRAPH_H
#define PN_CUDA_GRAPH_H

#include "cuda/device.h"

typedef struct fc_graph fc_graph;

/* What the stream is given until fc_graph_end is recorded instead of run: launches, fills and
 * copies, pinned memory only; no events of other streams, no allocation and no wait of the host in
 * between. Needs info.can_graph. */
pn_status fc_graph_begin(fc_stream *s, pn_err *err);
/* On failure the recording is dropped, *out untouched. */
pn_status fc_graph_end(fc_stream *s, fc_graph **out, pn_err *err);
/* Queues the whole recording; in the order of the stream. */
pn_status fc_graph_launch(fc_graph *g, fc_stream *s, pn_err *err);
/* After its last launch was waited for. Takes NULL. */
void fc_graph_free(fc_graph *g);

#endif
