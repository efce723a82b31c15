/* The only place that calls malloc and free. Sizes from files pass pn_mul_size and pn_add_size
 * first; every allocator here returns NULL when memory is short and never aborts. */
#ifndef PN_BASE_MEM_H
#define PN_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>

#define PN_ALIGN 64 /* cache line; every pn_alloc_aligned block starts on one */

/* *out = a * b or a + b; false on overflow, *out is then untouched. */
static inline bool pn_mul_size(size_t a, size_t b, size_t *out)
{
    size_t r;
    if (__builtin_mul_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

static inline bool pn_add_size(size_t a, size_t b, size_t *out)
{
    size_t r;
    if (__builtin_add_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

static inline size_t pn_round_up(size_t n, size_t unit)
{
    return (n + unit - 1) / unit * unit;
}

/* n * size bytes, zeroed; NULL when the product overflows or memory is short. n or size of 0
 * gives a unique pointer. Freed with pn_free. */
void *pn_calloc(size_t n, size_t size);
/* Uninitialised bytes; as malloc. */
void *pn_alloc(size_t bytes);
/* As realloc of n * size bytes; on failure NULL and p is unchanged. */
void *pn_realloc(void *p, size_t n, size_t size);
/* Uninitialised, PN_ALIGN-aligned; freed with pn_free. */
void *pn_alloc_aligned(size_t bytes);
/* Whole zero pages straight from the system, which commits them when they are first touched:
 * for states, KV pages and workspaces. NULL when refused.
 * Freed with pn_pages_free and the same size. */
void *pn_pages_alloc(size_t bytes);
void pn_pages_free(void *p, size_t bytes);
/* A copy of len bytes and a NUL; NULL when memory is short. */
char *pn_strndup(const char *s, size_t len);
/* Takes NULL; also frees what a wrapped library allocated with malloc. */
void pn_free(void *p);

#endif
