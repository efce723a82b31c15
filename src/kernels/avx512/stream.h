/* Reading a matrix of weights 16 rows at a time, with the next rows on their way from memory.
 *
 * A group of 16 rows is one contiguous piece, but its reading jumps between 16 places, which the
 * hardware prefetchers do not follow. So the group ahead is prefetched in address order, a few
 * cache lines per step: the same lines, as one ascending stream. The number of lines of a step is a
 * constant: with a loop that ends at the right line, whose length alternates, the same reading ran
 * at 19 instead of 50 GB/s (2-core Zen 5 VM, 2026-11-29). */
#ifndef PN_KERNELS_AVX512_STREAM_H
#define PN_KERNELS_AVX512_STREAM_H

#include "kernels/avx512/rows16.h"

/* Asks for n_byte bytes from p on, if p is before end; n_byte is a constant. A prefetch never
 * faults, so its last lines may lie past the end. */
PN_INLINE void pn_prefetch_ahead(uintptr_t p, uintptr_t end, size_t n_byte)
{
    if (p < end)
#pragma GCC unroll 16
        for (size_t i = 0; i < n_byte; i += 64)
            _mm_prefetch((const char *)(p + i), _MM_HINT_T0);
}

/* The rows r0 .. r0 + 15; past n_row the last row again, whose results are not stored. */
PN_INLINE void pn_rows16_at(const uint8_t *w, size_t row_bytes, size_t r0, size_t n_row,
                            const uint8_t *row[16])
{
    for (size_t i = 0; i < 16; i++)
        row[i] = w + (r0 + i < n_row ? r0 + i : n_row - 1) * row_bytes;
}

PN_INLINE void pn_rows16_store(float *y, size_t r0, size_t n_row, __m512 acc)
{
    const size_t left = n_row - r0;
    const __mmask16 m = (__mmask16)(left < 16 ? (1u << left) - 1 : 0xffff);
    _mm512_mask_storeu_ps(y + r0, m, acc);
}

#endif
