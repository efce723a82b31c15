/* Little-endian files written as text, for tests of readers. */
#ifndef PN_TESTS_SUPPORT_BYTES_H
#define PN_TESTS_SUPPORT_BYTES_H

#include "base/buf.h"

/* Appends what the space-separated words of text say:
 *   b:N  one byte    i:N  u32    q:N  u64    (N as strtoull reads it: 7, 0x2a, -1)
 *   r:X  the bytes of X as they are          s:X  their u64 count, then the bytes
 *   p:N  zeros up to a multiple of N         z:N  N zeros
 * In X, '~' stands for a space and %hh for the byte hh. */
void pn_bytes_add(pn_buf *b, const char *text);

#endif
