#include "base/mem.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

void *pn_calloc(size_t n, size_t size)
{
    size_t bytes;
    if (!pn_mul_size(n, size, &bytes))
        return NULL;
    return calloc(bytes ? bytes : 1, 1);
}

void *pn_alloc(size_t bytes)
{
    return malloc(bytes ? bytes : 1);
}

void *pn_realloc(void *p, size_t n, size_t size)
{
    size_t bytes;
    if (!pn_mul_size(n, size, &bytes))
        return NULL;
    return realloc(p, bytes ? bytes : 1);
}

void *pn_alloc_aligned(size_t bytes)
{
    size_t padded;
    if (!pn_add_size(bytes ? bytes : 1, PN_ALIGN - 1, &padded))
        return NULL;
    return aligned_alloc(PN_ALIGN, padded - padded % PN_ALIGN);
}

void *pn_pages_alloc(size_t bytes)
{
    void *const p = mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

void pn_pages_free(void *p, size_t bytes)
{
    if (p)
        munmap(p, bytes ? bytes : 1);
}

char *pn_strndup(const char *s, size_t len)
{
    size_t bytes;
    char *const copy = pn_add_size(len, 1, &bytes) ? malloc(bytes) : NULL;
    if (copy) {
        memcpy(copy, s, len);
        copy[len] = '\0';
    }
    return copy;
}

void pn_free(void *p)
{
    free(p);
}
