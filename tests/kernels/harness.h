/* The kernel tests' harness, after checkasm: every slot of the kernel table, at every level that
 * the processor has, is run against the scalar specification and compared bit for bit.
 *
 * It needs no test library, so that it also runs under an emulator of another architecture.
 * To test a new slot: write `void check_NAME(kt *t)` in check_NAME.c, declare it below and add it
 * to the list in test_kernels.c. In it, for each slot:
 *
 *     if (!kt_begin(t, KT_SLOT(add), "add"))
 *         return;                                       // same function as in the level below
 *     for each case: {
 *         kt_case(t, "n %zu", n);                       // names the case in a failure
 *         kt_buf x = kt_buf_new(n * 4, 4), y = ..., want = ...;
 *         fill; kt_buf_seal(&x);                        // from here a write to x is a fault
 *         t->scalar->add(want.ptr, x.ptr, n);
 *         KT_CALL(t, t->k->add(y.ptr, x.ptr, n));
 *         kt_same_floats(t, "y", &y, &want);
 *         at the scalar level (t->isa), also compare with an outside reference: kt_near
 *         kt_buf_free(...)
 *     }
 *     if (t->is_bench)
 *         KT_BENCH(t, "2048", "GB/s", bytes, t->k->add(...));
 *
 * A slot that no check has begun fails the run. Environment: SEED=n repeats a run, BENCH=1 times,
 * SOAK=1 runs full products, ONLY=text keeps the slots whose name contains it, ISA=name one level
 * (`make check-kernels`). */
#ifndef PN_TESTS_KERNELS_HARNESS_H
#define PN_TESTS_KERNELS_HARNESS_H

#include "kernels/kernels.h"

#include <setjmp.h>
#include <stddef.h>

typedef struct kt {
    const pn_kernels *scalar; /* the specification */
    const pn_kernels *k;      /* the level under test; its slots are what checks call */
    const pn_kernels *below;  /* the next lower level present; NULL at the scalar level */
    pn_isa isa;               /* of k */
    bool is_bench, is_soak;

    uint64_t seed, rand; /* the run's seed; the generator's state, reset by kt_begin */
    const char *only;
    char slot[64], what[160]; /* the running check, for messages */
    int n_slot, n_case, n_fail, n_fail_slot;
    uint64_t digest; /* of every scalar result, NaNs made alike */
    bool registered[sizeof(pn_kernels) / sizeof(void *)];
} kt;

#define KT_SLOT(field) offsetof(pn_kernels, field)

/* Starts the check of the slot at offset off in pn_kernels, named by fmt; false when there is
 * nothing to do: the slot is empty, or the same function as in the level below. Either way the slot
 * counts as tested. Resets the random numbers, so that a slot's cases depend on nothing else. */
bool kt_begin(kt *t, size_t off, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Names the case that follows. */
void kt_case(kt *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Reports a failure of the running case; the first few of a slot are printed. */
void kt_fail(kt *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static inline bool kt_is_scalar(const kt *t)
{
    return t->isa == PN_ISA_SCALAR;
}
/* After the first failures of a slot its remaining cases can be skipped. */
static inline bool kt_gave_up(const kt *t)
{
    return t->n_fail_slot >= 4;
}

/* --- random numbers: the same sequence on every machine ---
 * as long as no expression draws two: C leaves the order of arguments and operands open. */
uint64_t kt_rand(kt *t);
size_t kt_index(kt *t, size_t n);           /* 0..n-1 */
float kt_uniform(kt *t);                    /* -1..1, a multiple of 2^-23 */
float kt_normal(kt *t);                     /* about Gaussian, variance 1, |x| < 3.5 */
float kt_scale2(float x, int e);            /* x * 2^e, |e| <= 126, by one IEEE multiplication */
void kt_fill(kt *t, void *p, size_t bytes); /* random bytes */

/* --- buffers that end where memory ends ---
 * ptr + bytes is the start of an inaccessible page, but for what align (a power of 2) leaves; the
 * bytes before ptr and that rest are a known pattern. A fresh buffer holds the pattern, too. */
typedef struct kt_buf {
    uint8_t *ptr;
    size_t bytes;
    uint8_t *map;
    size_t map_bytes;
} kt_buf;
kt_buf kt_buf_new(size_t bytes, size_t align);
void kt_buf_seal(kt_buf *b); /* read-only from here on */
void kt_buf_free(kt_buf *b);

/* --- calls and comparisons --- */

/* Runs call; a fault in it fails the case instead of ending the program. It jumps back here, so the
 * function around it should be one case, without a loop and with locals that keep their values. */
#define KT_CALL(t, call)                  \
    do {                                  \
        if (sigsetjmp(kt_jump, 0) == 0) { \
            kt_armed = 1;                 \
            call;                         \
            kt_armed = 0;                 \
        } else {                          \
            kt_fault(t);                  \
        }                                 \
    } while (0)

/* The two buffers hold the same floats, bit for bit (NaN equals any NaN), and nothing was written
 * outside got. Bytes past the last whole float are compared, too. */
void kt_same_floats(kt *t, const char *name, const kt_buf *got, const kt_buf *want);
/* The same for any bytes. */
void kt_same_bytes(kt *t, const char *name, const kt_buf *got, const kt_buf *want);
/* Nothing was written around b, whatever is in it. */
void kt_same_outside(kt *t, const char *name, const kt_buf *b);
/* |got - want| <= bound; i names the element. */
void kt_near(kt *t, const char *name, size_t i, float got, double want, double bound);

/* Times call: best of several runs, printed as amount / second in unit (with its prefix, "GB/s":
 * amount is in bytes). */
#define KT_BENCH(t, name, unit, amount, call)               \
    do {                                                    \
        kt_bench b_ = kt_bench_begin(t);                    \
        while (kt_bench_more(&b_))                          \
            call;                                           \
        kt_bench_end(t, &b_, name, unit, (double)(amount)); \
    } while (0)

typedef struct kt_bench {
    double t0, best, start;
    int n, batch;
    bool is_first;
} kt_bench;
kt_bench kt_bench_begin(kt *t);
bool kt_bench_more(kt_bench *b);
void kt_bench_end(kt *t, const kt_bench *b, const char *name, const char *unit, double amount);

/* --- used by the macros and test_kernels.c --- */
extern sigjmp_buf kt_jump;
extern volatile int kt_armed;
void kt_fault(kt *t);
void kt_catch_faults(void);
/* Fails for each slot of the level that no check has begun, or that scalar lacks. */
void kt_check_registered(kt *t);

/* --- the checks, each in its file --- */
void check_quantize(kt *t);
void check_qmv(kt *t);
void check_qmv_f(kt *t);
void check_vector(kt *t);
void check_norm(kt *t);
void check_delta_net(kt *t);
void check_attention(kt *t);

#endif
