/* The fibers and meetings of cushim.h. One block runs at a time; a thread runs until it meets
 * others or ends, then the next runnable lane of its warp, in the launch's order, goes on. */
#include "cuda/cushim.h"

#include "cuda/cushim_run.h"

#include <algorithm>
#include <random>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <vector>

extern const cushim_kernel cushim_kernels[];
extern const size_t cushim_n_kernel;
extern const int cushim_arch;
/* The bounds of the section of static shared variables; absent where there are none. */
extern unsigned char __start_cushim_shared[] __attribute__((weak, visibility("hidden")));
extern unsigned char __stop_cushim_shared[] __attribute__((weak, visibility("hidden")));

cushim_lane *cushim_cur;
dim3 cushim_grid, cushim_block;
uint3 cushim_bid;
unsigned char *cushim_dyn;

namespace
{
enum {
    STACK_BYTES = (64 << 10) + 7 * 64, /* no power of two: tops of stacks share no cache set */
    MAX_THREADS = 1024,
    MAX_WARPS = MAX_THREADS / 32,
    MEETINGS = 33, /* of one warp at a time: one a lane, and one that is being left */
};
enum {
    RUN,
    AT_MEETING,
    AT_BARRIER,
    AT_GRID_WAIT,
    DONE
};

struct meeting {
    uint64_t value[32];
    unsigned mask, arrived, left;
    cushim_kind kind;
    bool used, done; /* done: all have arrived, not all have left */
};
struct copy {
    void *dst;
    const void *src;
    unsigned group;
};
} // namespace

struct cushim_warp {
    unsigned exist, exited, run; /* lanes; run: positions in the order, not lanes */
    unsigned char lane_at[32];
    meeting meetings[MEETINGS];
};

static cushim_lane lanes[MAX_THREADS];
static cushim_warp warps[MAX_WARPS];
static unsigned n_thread, n_warp, n_alive, n_at_barrier;
static bool is_early;              /* threads must wait for what was launched before */
static void (*end_before)(void *); /* ends that; NULL: it has ended */
static void *end_context;
static unsigned warp_at[MAX_WARPS], warp_pos; /* the warps' order and where it stands */
static void *main_sp;
static const char *barrier_place;
static unsigned char *stacks;
static const cushim_kernel *kernel;
static const void *kernel_args;
static cushim_order order;
static std::mt19937 rng;
static unsigned long long n_thread_run;
static std::vector<copy> copies[MAX_THREADS];
static unsigned copy_group[MAX_THREADS];

/* --- fibers ----------------------------------------------------------------------------------- */

#ifndef __x86_64__
#error "cushim_switch is x86-64 code"
#endif
/* Saves the callee-saved registers and the stack pointer, goes on with another's. */
extern "C" __attribute__((visibility("hidden"))) void cushim_switch(void **save, void *to);
asm(".text\n"
    ".hidden cushim_switch\n"
    ".type cushim_switch, @function\n"
    "cushim_switch:\n"
    "    push %rbp\n    push %rbx\n    push %r12\n    push %r13\n    push %r14\n    push %r15\n"
    "    mov %rsp, (%rdi)\n"
    "    mov %rsi, %rsp\n"
    "    pop %r15\n    pop %r14\n    pop %r13\n    pop %r12\n    pop %rbx\n    pop %rbp\n"
    "    pop %rcx\n"
    "    jmp *%rcx\n"
    ".size cushim_switch, . - cushim_switch\n");

__attribute__((no_sanitize("address"))) static void prepare(cushim_lane *l, void (*entry)(void))
{
    void **s = (void **)(stacks + (size_t)(l->id + 1) * STACK_BYTES);
    *--s = nullptr; /* keeps the stack 16-byte aligned at entry */
    *--s = (void *)entry;
    for (int i = 0; i < 6; i++)
        *--s = nullptr;
    l->sp = s;
}

static const char *where(void)
{
    static char text[256];
    const cushim_lane *const l = cushim_cur;
    if (!l)
        return "no kernel runs";
    snprintf(text, sizeof text, "%s (arch %d), block (%u, %u, %u), thread (%u, %u, %u), lane %u",
             kernel->name, cushim_arch, cushim_bid.x, cushim_bid.y, cushim_bid.z, l->tid.x,
             l->tid.y, l->tid.z, l->lane);
    return text;
}

[[noreturn]] void cushim_die(const char *what)
{
    fprintf(stderr, "cushim: %s\n  in %s\n", what, where());
    for (unsigned w = 0; w < n_warp; w++)
        for (const meeting &m : warps[w].meetings)
            if (m.used && !m.done)
                fprintf(stderr, "  warp %u: kind %d, mask %08x, arrived %08x\n", w, m.kind, m.mask,
                        m.arrived);
    fprintf(stderr, "  %u threads alive, %u at the barrier\n", n_alive, n_at_barrier);
    abort();
}

static cushim_lane *lane_of(const cushim_warp *w, unsigned pos)
{
    return &lanes[(size_t)(w - warps) * 32 + w->lane_at[pos]];
}

/* Who can run: of this warp, in its order, then of the warps that follow; NULL for nobody. */
static cushim_lane *find_runnable(bool other_warp)
{
    const cushim_warp *const w = cushim_cur->warp;
    if (w->run && !other_warp) {
        const unsigned p = cushim_cur->pos, later = p < 31 ? w->run >> (p + 1) << (p + 1) : 0;
        return lane_of(w, (unsigned)__builtin_ctz(later ? later : w->run));
    }
    for (unsigned i = 1; i <= n_warp; i++) {
        const unsigned q = (warp_pos + i) % n_warp;
        const cushim_warp *const x = &warps[warp_at[q]];
        if (x->run) {
            warp_pos = q;
            return lane_of(x, (unsigned)__builtin_ctz(x->run));
        }
    }
    return nullptr;
}

static void wake(cushim_lane *l)
{
    l->state = RUN;
    l->warp->run |= 1u << l->pos;
}

/* Who runs next; when nobody can, what was launched before ends, and who waited for that can. */
static cushim_lane *pick(bool other_warp)
{
    cushim_lane *const next = find_runnable(other_warp);
    if (next || !end_before)
        return next;
    void (*const end)(void *) = end_before;
    end_before = nullptr;
    end(end_context);
    for (unsigned i = 0; i < n_thread; i++)
        if (lanes[i].state == AT_GRID_WAIT)
            wake(&lanes[i]);
    return find_runnable(other_warp);
}

static void switch_to(cushim_lane *next)
{
    cushim_lane *const from = cushim_cur;
    if (!next || next == from)
        return;
    cushim_cur = next;
    cushim_switch(&from->sp, next->sp);
}

static void wait_as(unsigned state)
{
    cushim_lane *const me = cushim_cur;
    me->state = state;
    me->warp->run &= ~(1u << me->pos);
    cushim_lane *const next = pick(false);
    if (!next)
        cushim_die("deadlock: no thread of the block can go on");
    switch_to(next);
}

void cushim_grid_wait(void)
{
    cushim_cur->has_waited = true;
    if (end_before)
        wait_as(AT_GRID_WAIT);
}

/* --- meetings --------------------------------------------------------------------------------- */

/* The open meeting of this kind and mask, or a fresh one. */
static meeting *find_meeting(cushim_warp *w, cushim_kind kind, unsigned mask)
{
    meeting *unused = nullptr;
    for (meeting &m : w->meetings) {
        if (m.used && !m.done && m.mask == mask && m.kind == kind)
            return &m;
        if (!m.used && !unused)
            unused = &m;
    }
    if (!unused)
        cushim_die("too many operations of a warp are pending");
    unused->used = true;
    unused->done = false;
    unused->mask = mask;
    unused->kind = kind;
    unused->arrived = unused->left = 0;
    return unused;
}

const uint64_t *cushim_meet(cushim_kind kind, unsigned mask, uint64_t v, unsigned *arrived)
{
    const cushim_lane *const me = cushim_cur;
    cushim_warp *const w = me->warp;
    const unsigned bit = 1u << me->lane;
    if (!(mask & bit))
        cushim_die("a lane is not in the mask that it gives");
    if (mask & w->exist & w->exited)
        cushim_die("a mask names a lane that has ended");
    meeting *const m = find_meeting(w, kind, mask);
    m->value[me->lane] = v;
    m->arrived |= bit;
    if (m->arrived == (mask & w->exist)) {
        m->done = true;
        for (unsigned left = m->arrived & ~bit; left; left &= left - 1)
            wake(&lanes[(size_t)(w - warps) * 32 + (unsigned)__builtin_ctz(left)]);
        if (order.chaos && n_warp > 1 && (rng() & 3) == 0)
            switch_to(pick(true));
    } else {
        wait_as(AT_MEETING);
    }
    *arrived = m->arrived;
    return m->value;
}

void cushim_part(const uint64_t *values)
{
    meeting *const m = (meeting *)values; /* value is its first field */
    m->left |= 1u << cushim_cur->lane;
    if (m->left == m->arrived)
        m->used = false;
}

void cushim_barrier(const char *place)
{
    if (n_at_barrier && strcmp(place, barrier_place) != 0)
        cushim_die("threads of one block wait at different __syncthreads");
    barrier_place = place;
    if (n_alive != n_thread)
        cushim_die("__syncthreads after a thread of the block has ended");
    if (++n_at_barrier < n_alive) {
        wait_as(AT_BARRIER);
        return;
    }
    n_at_barrier = 0;
    for (unsigned i = 0; i < n_thread; i++)
        if (lanes[i].state == AT_BARRIER)
            wake(&lanes[i]);
    if (order.direction != CUSHIM_UP)
        switch_to(pick(order.direction == CUSHIM_SHUFFLED && n_warp > 1));
}

void cushim_mma(unsigned n_row, unsigned depth, int *c, const uint32_t *a, const uint32_t *b)
{
    struct fragments {
        const uint32_t *a, *b;
    } const mine = { a, b };
    unsigned arrived;
    const uint64_t *const all =
        cushim_meet(CUSHIM_MMA, 0xffffffffu, (uint64_t)(uintptr_t)&mine, &arrived);
    const unsigned g = cushim_cur->lane / 4, t = cushim_cur->lane % 4, n_a = n_row / 8;
    int8_t row[2][32], col[2][32]; /* this lane's, of depth */
    for (unsigned k = 0; k < depth / 4; k++) {
        const fragments *const fa = (const fragments *)(uintptr_t)all[g * 4 + k % 4];
        for (unsigned r = 0; r < n_a; r++)
            memcpy(&row[r][4 * k], &fa->a[k / 4 * n_a + r], 4);
        for (unsigned n = 0; n < 2; n++) {
            const fragments *const fb = (const fragments *)(uintptr_t)all[(2 * t + n) * 4 + k % 4];
            memcpy(&col[n][4 * k], &fb->b[k / 4], 4);
        }
    }
    int sum[4] = { 0, 0, 0, 0 };
    for (unsigned i = 0; i < n_row / 4; i++)
        for (unsigned k = 0; k < depth; k++)
            sum[i] += row[i / 2][k] * col[i % 2][k];
    cushim_part(all);
    __syncwarp(); /* nobody leaves, or writes c, which may be a or b, while others read */
    for (unsigned i = 0; i < n_row / 4; i++)
        c[i] += sum[i];
}

/* --- copies to shared memory ------------------------------------------------------------------ */

void cushim_cp16(void *dst, const void *src)
{
    if ((uintptr_t)dst % 16 || (uintptr_t)src % 16)
        cushim_die("a copy of 16 bytes is not aligned");
    memset(dst, 0xff, 16);
    copies[cushim_cur->id].push_back({ dst, src, copy_group[cushim_cur->id] });
}

void cushim_cp_commit(void)
{
    copy_group[cushim_cur->id]++;
}

void cushim_cp_wait(unsigned n_left)
{
    std::vector<copy> &mine = copies[cushim_cur->id];
    size_t n = 0;
    while (n < mine.size() && mine[n].group + n_left < copy_group[cushim_cur->id]) {
        memcpy(mine[n].dst, mine[n].src, 16);
        n++;
    }
    mine.erase(mine.begin(), mine.begin() + (ptrdiff_t)n);
}

/* --- launch ----------------------------------------------------------------------------------- */

/* A fiber's function; it never returns, so an address sanitizer's frame would stay poisoned. */
__attribute__((no_sanitize("address"))) static void entry(void)
{
    kernel->run(kernel_args);
    cushim_lane *const me = cushim_cur;
    if (!copies[me->id].empty())
        cushim_die("a thread ends before its copies to shared memory were waited for");
    if (is_early && !me->has_waited)
        cushim_die("a thread ends without pn_grid_wait");
    me->state = DONE;
    me->warp->run &= ~(1u << me->pos);
    me->warp->exited |= 1u << me->lane;
    n_alive--;
    if (n_at_barrier)
        cushim_die("a thread ends while others wait at __syncthreads");
    cushim_lane *const next = n_alive ? pick(false) : nullptr;
    if (n_alive && !next)
        cushim_die("deadlock: the other threads wait for one that has ended");
    void *nobody;
    if (next) {
        cushim_cur = next;
        cushim_switch(&nobody, next->sp);
    }
    cushim_switch(&nobody, main_sp);
    __builtin_unreachable();
}

static void begin_warp(unsigned iw)
{
    cushim_warp *const w = &warps[iw];
    const unsigned n = std::min(32u, n_thread - 32 * iw);
    w->exist = w->run = n == 32 ? ~0u : (1u << n) - 1;
    w->exited = 0;
    for (meeting &m : w->meetings)
        m.used = false;
    for (unsigned i = 0; i < n; i++)
        w->lane_at[i] = (unsigned char)(order.direction == CUSHIM_DOWN ? n - 1 - i : i);
    if (order.direction == CUSHIM_SHUFFLED)
        std::shuffle(w->lane_at, w->lane_at + n, rng);
    for (unsigned i = 0; i < n; i++) {
        cushim_lane *const l = lane_of(w, i);
        l->lane = w->lane_at[i];
        l->id = 32 * iw + l->lane;
        l->pos = i;
        l->state = RUN;
        l->has_waited = false;
        l->warp = w;
        l->tid = { l->id % cushim_block.x, l->id / cushim_block.x % cushim_block.y,
                   l->id / (cushim_block.x * cushim_block.y) };
        copies[l->id].clear();
        copy_group[l->id] = 0;
        prepare(l, entry);
    }
}

static void run_block(size_t smem)
{
    if (__start_cushim_shared)
        memset(__start_cushim_shared, 0xff, (size_t)(__stop_cushim_shared - __start_cushim_shared));
    if (smem)
        memset(cushim_dyn, 0xff, smem);
    for (unsigned w = 0; w < n_warp; w++)
        warp_at[w] = order.direction == CUSHIM_DOWN ? n_warp - 1 - w : w;
    if (order.direction == CUSHIM_SHUFFLED)
        std::shuffle(warp_at, warp_at + n_warp, rng);
    for (unsigned w = 0; w < n_warp; w++)
        begin_warp(w);
    n_alive = n_thread;
    n_at_barrier = warp_pos = 0;
    n_thread_run += n_thread;
    cushim_cur = lane_of(&warps[warp_at[0]], 0);
    cushim_switch(&main_sp, cushim_cur->sp);
    cushim_cur = nullptr;
}

/* Shared memory a block may have: 48 KB, or what the architecture gives those that ask. */
static size_t smem_max(void)
{
    switch (cushim_arch / 10) {
    case 75:
        return 64 << 10;
    case 80:
        return 163 << 10;
    case 86:
    case 89:
    case 120:
        return 99 << 10;
    case 90:
    case 100:
        return 227 << 10;
    default:
        return 48 << 10;
    }
}

static bool accepts(const unsigned g[3], const unsigned b[3], size_t smem)
{
    return g[0] && g[1] && g[2] && g[0] <= 0x7fffffff && g[1] <= 65535 && g[2] <= 65535 && b[0] &&
           b[1] && b[2] && b[2] <= 64 && (size_t)b[0] * b[1] * b[2] <= MAX_THREADS &&
           smem <= smem_max();
}

static bool launch(const cushim_kernel *k, const unsigned g[3], const unsigned b[3], size_t smem,
                   const void *args, cushim_order o)
{
    if (!accepts(g, b, smem))
        return false;
    enum {
        DYN_BYTES = 256 << 10
    };
    static unsigned char *dyn; /* ends at a page that nobody may touch */
    if (!stacks) {
        const int prot = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
        stacks = (unsigned char *)mmap(nullptr, (size_t)MAX_THREADS * STACK_BYTES, prot,
                                       flags | MAP_NORESERVE, -1, 0);
        dyn = (unsigned char *)mmap(nullptr, DYN_BYTES + 4096, prot, flags, -1, 0);
        if (stacks == MAP_FAILED || dyn == MAP_FAILED || mprotect(dyn + DYN_BYTES, 4096, PROT_NONE))
            cushim_die("no memory for stacks");
    }
    cushim_dyn = dyn + DYN_BYTES - (smem + 15) / 16 * 16;
    kernel = k;
    kernel_args = args;
    order = o;
    rng.seed(o.seed);
    cushim_grid = dim3(g[0], g[1], g[2]);
    cushim_block = dim3(b[0], b[1], b[2]);
    n_thread = b[0] * b[1] * b[2];
    n_warp = (n_thread + 31) / 32;
    const size_t n_block = (size_t)g[0] * g[1] * g[2], first = end_before ? rng() % n_block : 0;
    for (size_t i = 0; i < n_block; i++) {
        const size_t id = (first + i) % n_block;
        cushim_bid = { (unsigned)(id % g[0]), (unsigned)(id / g[0] % g[1]),
                       (unsigned)(id / g[0] / g[1]) };
        run_block(smem);
    }
    return true;
}

static bool launch_early(const cushim_kernel *k, const unsigned g[3], const unsigned b[3],
                         size_t smem, const void *args, cushim_order o, void (*end)(void *),
                         void *context)
{
    is_early = true;
    end_before = end;
    end_context = context;
    const bool accepted = launch(k, g, b, smem, args, o);
    is_early = false;
    end_before = nullptr;
    return accepted;
}

extern "C" __attribute__((visibility("default"))) const cushim_module *cushim_module_get(void)
{
    static const cushim_module module = {
        cushim_arch, cushim_kernels, cushim_n_kernel, accepts,
        launch,      launch_early,   where,           &n_thread_run,
    };
    return &module;
}
