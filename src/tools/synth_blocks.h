/* Random weights made directly in a tensor type's blocks, fast and repeatable: every byte is a
 * function of (key, block number), so any part of a tensor can be made alone. */
#ifndef PN_TOOLS_SYNTH_BLOCKS_H
#define PN_TOOLS_SYNTH_BLOCKS_H

#include "base/status.h"

typedef struct pn_synth_gen {
    uint32_t type; /* tensor type id */
    size_t block_bytes, block_n;
    float scale; /* of the block's d field: the weights then have the wanted deviation */
} pn_synth_gen;

/* Random 64 bits number i of stream key: a mixing function of a counter, so there is no state. */
uint64_t pn_synth_random(uint64_t key, uint64_t i);

/* Prepares weights of mean 0 and standard deviation sigma > 0.
 * Errors: PN_ERR_UNSUPPORTED for a type that quant/ cannot compute with. */
pn_status pn_synth_gen_init(uint32_t type, float sigma, pn_synth_gen *gen, pn_err *err);

/* Writes blocks [first, first + n) of the stream key to out [n * block_bytes]. */
void pn_synth_gen_fill(const pn_synth_gen *gen, uint64_t key, uint64_t first, size_t n,
                       uint8_t *out);

#endif
