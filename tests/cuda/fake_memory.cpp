/* Memory of the stand-in's devices: one range of addresses each, PROT_NONE unless it works. */
#include "cuda/fake.h"

#include <algorithm>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

namespace
{
enum {
    ALIGN = 256,
    POISON = 0xff,
    HOLLOW = 0x2c,          /* 0.065 as f16 */
    HOLLOW_BYTES = 64 << 20 /* that all of a hollow device is mapped from, copied where written */
};
struct arena {
    unsigned char *base = nullptr;
    size_t cap = 0, used = 0;
    std::map<size_t, size_t> live; /* offset to bytes */
    bool open = false;
};
std::vector<arena> arenas;
std::map<const unsigned char *, size_t> pinned;
} // namespace

static size_t held(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN + ALIGN; /* with a guard behind */
}

/* Fills the range with copies-on-write of the same bytes. */
static void make_hollow(unsigned char *base, size_t bytes)
{
    static int file = -1;
    if (file < 0) {
        file = memfd_create("hollow", 0);
        const std::vector<char> part(HOLLOW_BYTES, HOLLOW);
        if (file < 0 || write(file, part.data(), part.size()) != HOLLOW_BYTES)
            fake_die("no memory for a hollow device");
    }
    for (size_t at = 0; at < bytes; at += HOLLOW_BYTES)
        if (mmap(base + at, std::min<size_t>(bytes - at, HOLLOW_BYTES), PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, file, 0) == MAP_FAILED)
            fake_die("no address space for %zu bytes", bytes);
}

void fake_memory_begin(void)
{
    fake_shared_begin();
    for (const arena &a : arenas)
        munmap(a.base, a.cap);
    arenas.assign((size_t)fake_setup.n_device, arena());
    for (arena &a : arenas) {
        a.cap = fake_setup.mem / 4096 * 4096;
        a.base = (unsigned char *)mmap(nullptr, a.cap, PROT_NONE,
                                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (a.base == MAP_FAILED)
            fake_die("no address space for %zu bytes", a.cap);
        if (fake_setup.launch)
            make_hollow(a.base, a.cap);
    }
}

void fake_memory_open(int x, int y)
{
    if (fake_setup.launch)
        return;
    for (int i = 0; i < (int)arenas.size(); i++) {
        arena &a = arenas[(size_t)i];
        const bool open = i == x || i == y;
        if (open != a.open && mprotect(a.base, a.cap, open ? PROT_READ | PROT_WRITE : PROT_NONE))
            fake_die("mprotect failed");
        a.open = open;
    }
}

const void *fake_memory_all(int device, size_t *bytes)
{
    *bytes = arenas[(size_t)device].cap;
    return arenas[(size_t)device].base;
}

CUdeviceptr fake_memory_alloc(int device, size_t bytes)
{
    arena &a = arenas[(size_t)device];
    const size_t need = held(bytes);
    size_t at = 0; /* first fit */
    for (const auto &l : a.live) {
        if (l.first - at >= need)
            break;
        at = l.first + held(l.second);
    }
    if (need > a.cap || at > a.cap - need || !fake_shared_take(device, need, a.cap))
        return 0;
    a.live[at] = bytes;
    a.used += need;
    fake_state.mem_used += need;
    fake_memory_open(device, -1);
    if (!fake_setup.launch)
        memset(a.base + at, POISON, need);
    fake_memory_open(-1, -1);
    return (CUdeviceptr)(uintptr_t)(a.base + at);
}

int fake_memory_owner(CUdeviceptr p, size_t bytes)
{
    for (int i = 0; i < (int)arenas.size(); i++) {
        const arena &a = arenas[(size_t)i];
        const size_t off = (size_t)(p - (CUdeviceptr)(uintptr_t)a.base);
        if (off >= a.cap)
            continue;
        auto it = a.live.upper_bound(off);
        if (it == a.live.begin() || (--it, off + bytes > it->first + it->second))
            fake_die("%zu bytes at %#llx are not within one allocation of device %d", bytes, p, i);
        return i;
    }
    fake_die("%#llx is no device address", p);
}

void fake_memory_free(CUdeviceptr p)
{
    const int device = fake_memory_owner(p, 1);
    arena &a = arenas[(size_t)device];
    const size_t at = (size_t)(p - (CUdeviceptr)(uintptr_t)a.base);
    if (!a.live.count(at))
        fake_die("%#llx is not the start of an allocation", p);
    const size_t bytes = a.live[at], end = held(bytes);
    fake_memory_open(device, -1);
    for (size_t i = bytes; i < end && !fake_setup.launch; i++)
        if (a.base[at + i] != POISON)
            fake_die("byte %zu of an allocation of %zu was written", i, bytes);
    if (!fake_setup.launch)
        memset(a.base + at, POISON, end);
    fake_memory_open(-1, -1);
    a.live.erase(at);
    a.used -= end;
    fake_state.mem_used -= end;
    fake_shared_give(device, end);
}

size_t fake_memory_free_bytes(int device)
{
    const size_t used = arenas[(size_t)device].used + fake_shared_used(device);
    return arenas[(size_t)device].cap - used;
}

void *fake_pinned_alloc(size_t bytes)
{
    unsigned char *const p = (unsigned char *)aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (!p)
        return nullptr;
    memset(p, POISON, bytes);
    pinned[p] = bytes;
    fake_state.pinned += bytes;
    return p;
}

void fake_pinned_free(void *p)
{
    const auto it = pinned.find((unsigned char *)p);
    if (it == pinned.end())
        fake_die("%p is no pinned memory", p);
    if (fake_is_pending(p, it->second))
        fake_die("pinned memory is freed while a copy of it has not run");
    fake_state.pinned -= it->second;
    pinned.erase(it);
    free(p);
}

bool fake_is_pinned(const void *p, size_t bytes)
{
    const unsigned char *const q = (const unsigned char *)p;
    auto it = pinned.upper_bound(q);
    return it != pinned.begin() && (--it, q + bytes <= it->first + it->second);
}
