/* The way from one device to another, for vectors between layers: by the bus from card to card
 * where they can, else through pinned memory. */
#ifndef PN_CUDA_LINK_H
#define PN_CUDA_LINK_H

#include "cuda/device.h"

typedef struct fc_link fc_link;

/* From src to dst, at most bytes_max at a time. staged: through pinned memory even where the cards
 * reach each other. Same device on both ends is a plain copy. */
pn_status fc_link_new(fc_link **out, fc_device *src, fc_device *dst, size_t bytes_max, bool staged,
                      pn_err *err);
/* What it pins: bytes_max or 0. */
size_t fc_link_pinned(fc_device *src, fc_device *dst, size_t bytes_max);
/* Waits for what it carries. Takes NULL. */
void fc_link_free(fc_link *l);
/* Whether bytes go from card to card. */
bool fc_link_is_direct(const fc_link *l);

/* Copies bytes from src, as src_stream has made them so far, to dst; what dst_stream is given from
 * now on finds them there. src may be overwritten by what src_stream is given from now on; dst is
 * not written before dst_stream has done what it was given so far. The host does not wait. */
pn_status fc_link_send(fc_link *l, fc_stream *src_stream, const void *src, fc_stream *dst_stream,
                       void *dst, size_t bytes, pn_err *err);

#endif
