/* See harness.h. */
#include "kernels/harness.h"

#include "base/arith.h"
#include "base/clock.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    PATTERN = 0xA5 /* of fresh buffers: as a float about -3e-16, as int8 -91 */
};

/* --- slots and cases -------------------------------------------------------------------------- */

typedef void any_fn(void);

/* The function in the slot at off. */
static any_fn *slot_at(const pn_kernels *k, size_t off)
{
    any_fn *fn;
    memcpy(&fn, (const char *)k + off, sizeof fn);
    return fn;
}

static uint64_t mix(uint64_t z) /* splitmix64's finalizer, public domain, S. Vigna */
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

bool kt_begin(kt *t, size_t off, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(t->slot, sizeof t->slot, fmt, ap);
    va_end(ap);
    t->registered[off / sizeof(void *)] = true;
    t->what[0] = 0;
    t->n_fail_slot = 0;
    t->rand = t->seed;
    for (const char *p = t->slot; *p; p++)
        t->rand = mix(t->rand + (unsigned char)*p);
    any_fn *const fn = slot_at(t->k, off);
    if (!fn || (t->below && fn == slot_at(t->below, off)) || (t->only && !strstr(t->slot, t->only)))
        return false;
    t->n_slot++;
    return true;
}

void kt_case(kt *t, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(t->what, sizeof t->what, fmt, ap);
    va_end(ap);
    t->n_case++;
}

void kt_fail(kt *t, const char *fmt, ...)
{
    t->n_fail++;
    if (t->n_fail_slot++ >= 4)
        return;
    va_list ap;
    va_start(ap, fmt);
    printf("FAILED %s %s: %s: ", pn_isa_name(t->isa), t->slot, t->what);
    vprintf(fmt, ap);
    printf("\n");
    va_end(ap);
}

void kt_check_registered(kt *t)
{
    const size_t end = offsetof(pn_kernels, peak_i8); /* the peaks behind compute nothing */
    for (size_t off = 0; off < end; off += sizeof(void *)) {
        if (off == offsetof(pn_kernels, isa) || off == offsetof(pn_kernels, gemm_rows) ||
            off == offsetof(pn_kernels, gemm_cols_min))
            continue; /* what is no function; all else in the table is one */
        any_fn *const fn = slot_at(t->k, off);
        if (!fn || (t->below && fn == slot_at(t->below, off)))
            continue;
        snprintf(t->slot, sizeof t->slot, "slot %zu of pn_kernels", off / sizeof(void *));
        snprintf(t->what, sizeof t->what, "offset %zu", off);
        t->n_fail_slot = 0;
        if (!t->registered[off / sizeof(void *)])
            kt_fail(t, "no check has begun it (harness.h says how)");
        if (!slot_at(t->scalar, off))
            kt_fail(t, "set, but without a scalar specification");
    }
}

/* --- random numbers --------------------------------------------------------------------------- */

uint64_t kt_rand(kt *t)
{
    return mix(t->rand += 0x9e3779b97f4a7c15u);
}

size_t kt_index(kt *t, size_t n)
{
    return (size_t)(kt_rand(t) >> 33) % n;
}

float kt_uniform(kt *t)
{
    return (float)((int32_t)(kt_rand(t) >> 40) - (1 << 23)) * 0x1p-23f;
}

float kt_normal(kt *t)
{
    float s = 0.0f; /* the sum of four uniforms has variance 4/3 */
    for (int i = 0; i < 4; i++)
        s += kt_uniform(t);
    return s * 0.8660254f;
}

float kt_scale2(float x, int e)
{
    return x * pn_asf((uint32_t)(127 + e) << 23);
}

void kt_fill(kt *t, void *p, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 8) {
        const uint64_t r = kt_rand(t);
        memcpy((uint8_t *)p + i, &r, bytes - i < 8 ? bytes - i : 8);
    }
}

/* --- buffers ---------------------------------------------------------------------------------- */

kt_buf kt_buf_new(size_t bytes, size_t align)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t body = (bytes + align + 256 + page - 1) / page * page; /* 256 to guard the front */
    kt_buf b = { .bytes = bytes, .map_bytes = body + page };
    b.map = mmap(NULL, b.map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (b.map == MAP_FAILED || mprotect(b.map + body, page, PROT_NONE) != 0) {
        perror("mmap");
        exit(2);
    }
    memset(b.map, PATTERN, body);
    b.ptr = b.map + ((body - bytes) & ~(align - 1));
    return b;
}

static size_t body_bytes(const kt_buf *b)
{
    return b->map_bytes - (size_t)sysconf(_SC_PAGESIZE);
}

void kt_buf_seal(kt_buf *b)
{
    mprotect(b->map, body_bytes(b), PROT_READ);
}

void kt_buf_free(kt_buf *b)
{
    munmap(b->map, b->map_bytes);
}

/* --- faults ----------------------------------------------------------------------------------- */

sigjmp_buf kt_jump;
volatile int kt_armed;
static volatile sig_atomic_t fault_signal;
static void *volatile fault_address;

static void on_fault(int sig, siginfo_t *info, void *context)
{
    (void)context;
    if (!kt_armed) { /* the harness itself: let it die as usual */
        signal(sig, SIG_DFL);
        return;
    }
    kt_armed = 0;
    fault_signal = sig;
    fault_address = info->si_addr;
    siglongjmp(kt_jump, 1);
}

void kt_catch_faults(void)
{
    struct sigaction a = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER };
    static const int signals[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE };
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        sigaction(signals[i], &a, NULL);
}

void kt_fault(kt *t)
{
    kt_fail(t, "%s at address %p", strsignal(fault_signal), fault_address);
}

/* --- comparisons ------------------------------------------------------------------------------ */

/* The pattern stands wherever the buffer is not. */
void kt_same_outside(kt *t, const char *name, const kt_buf *b)
{
    const uint8_t *const end = b->map + body_bytes(b);
    for (const uint8_t *p = b->map; p < end; p++) {
        if (p == b->ptr)
            p += b->bytes;
        if (p < end && *p != PATTERN) {
            kt_fail(t, "%s: wrote outside, at byte %td of %zu", name, p - b->ptr, b->bytes);
            return;
        }
    }
}

static void digest(kt *t, const void *p, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) /* FNV-1a, 64 bit */
        t->digest = (t->digest ^ ((const uint8_t *)p)[i]) * 0x100000001b3u;
}

void kt_same_bytes(kt *t, const char *name, const kt_buf *got, const kt_buf *want)
{
    kt_same_outside(t, name, got);
    if (kt_is_scalar(t))
        digest(t, want->ptr, want->bytes);
    for (size_t i = 0; i < want->bytes; i++)
        if (got->ptr[i] != want->ptr[i]) {
            kt_fail(t, "%s: byte %zu is 0x%02x, scalar has 0x%02x", name, i, got->ptr[i],
                    want->ptr[i]);
            return;
        }
}

static bool is_nan_bits(uint32_t u)
{
    return (u & 0x7fffffffu) > 0x7f800000u;
}

void kt_same_floats(kt *t, const char *name, const kt_buf *got, const kt_buf *want)
{
    kt_same_outside(t, name, got);
    for (size_t i = 0; i < want->bytes / 4; i++) {
        uint32_t g, w;
        memcpy(&g, got->ptr + 4 * i, 4);
        memcpy(&w, want->ptr + 4 * i, 4);
        const uint32_t w_alike = is_nan_bits(w) ? 0x7fc00000u : w;
        if (kt_is_scalar(t))
            digest(t, &w_alike, 4);
        if (g != w && !(is_nan_bits(g) && is_nan_bits(w))) {
            kt_fail(t, "%s[%zu] is %a (%.9g), scalar has %a (%.9g)", name, i, (double)pn_asf(g),
                    (double)pn_asf(g), (double)pn_asf(w), (double)pn_asf(w));
            return;
        }
    }
    const size_t whole = want->bytes & ~(size_t)3;
    if (memcmp(got->ptr + whole, want->ptr + whole, want->bytes - whole) != 0)
        kt_fail(t, "%s: the bytes after the last float differ", name);
}

void kt_near(kt *t, const char *name, size_t i, float got, double want, double bound)
{
    const double diff = (double)got - want;
    if (!(diff <= bound && diff >= -bound))
        kt_fail(t, "%s[%zu] is %.9g, exact %.17g: off by %.3g, bound %.3g", name, i, (double)got,
                want, diff, bound);
}

/* --- timing ----------------------------------------------------------------------------------- */

kt_bench kt_bench_begin(kt *t)
{
    (void)t;
    return (kt_bench){ .best = 1e30, .batch = 1, .is_first = true, .start = pn_now_s() };
}

/* Counts calls in batches of at least 2 ms; the best batch of 0.15 s stands. */
bool kt_bench_more(kt_bench *b)
{
    const double now = pn_now_s();
    if (b->is_first) {
        b->is_first = false;
        b->t0 = now;
        b->n = 0;
        return true;
    }
    if (++b->n < b->batch)
        return true;
    const double dt = now - b->t0;
    if (dt < 2e-3) {
        b->batch *= 2;
    } else if (dt / b->n < b->best) {
        b->best = dt / b->n;
    }
    b->n = 0;
    b->t0 = now;
    return now - b->start < 0.15 || b->best > 1e29;
}

void kt_bench_end(kt *t, const kt_bench *b, const char *name, const char *unit, double amount)
{
    double rate = amount / b->best;
    rate *= unit[0] == 'G' ? 1e-9 : unit[0] == 'M' ? 1e-6 : 1.0;
    printf("%-8s %-16s %-22s %9.2f %s\n", pn_isa_name(t->isa), t->slot, name, rate, unit);
}
