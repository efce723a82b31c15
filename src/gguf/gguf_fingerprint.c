/* Telling one model file from another without reading it whole. */

#include "gguf/gguf.h"

#include "gguf/gguf_internal.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* Of each part: milliseconds of reading from a solid disk, half a second from another. */
enum {
    N_SAMPLE = 64,
    SAMPLE_BYTES = 4096
};

static void add_part(XXH3_state_t *sum, const pn_gguf_part *part)
{
    const uint64_t size = part->size;
    XXH3_128bits_update(sum, &size, sizeof size);
    XXH3_128bits_update(sum, &part->map.mtime_ns, sizeof part->map.mtime_ns);
    XXH3_128bits_update(sum, part->bytes, part->head_bytes);
    const size_t stride = (part->size - part->head_bytes) / N_SAMPLE;
    for (size_t i = 0; i < N_SAMPLE && stride >= SAMPLE_BYTES; i++)
        XXH3_128bits_update(sum, part->bytes + part->head_bytes + i * stride, SAMPLE_BYTES);
    if (stride < SAMPLE_BYTES) /* a small file is read whole */
        XXH3_128bits_update(sum, part->bytes + part->head_bytes, part->size - part->head_bytes);
}

void pn_gguf_fingerprint(const pn_gguf *file, uint8_t sum[16])
{
    XXH3_state_t state;
    XXH3_128bits_reset(&state);
    for (size_t i = 0; i < file->n_part; i++)
        add_part(&state, &file->parts[i]);
    XXH128_canonical_t bytes;
    XXH128_canonicalFromHash(&bytes, XXH3_128bits_digest(&state));
    memcpy(sum, bytes.digest, sizeof bytes.digest);
}
