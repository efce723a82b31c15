/* The harness of the CUDA kernels' tests: no GPU takes part. Each test is run once on every
 * backend: the device code compiled for the CPU (cushim.h: two architectures, lanes up, down,
 * shuffled and chaotic), and the PTX that NVRTC made of it, interpreted (ptx.h: compute_37, 75, 90;
 * left out where NVRTC cannot be fetched). What must hold is the scalar CPU kernels' bits.
 *
 * To add a test: a file tests/cuda/test_NAME.cpp is found by the Makefile; `make
 * run-cuda/test_NAME`; ONLY=text runs the tests whose name contains it, BACKEND=text those
 * backends, DEVICE=file.so or file.ptx other device code. In it:
 *
 *     #include "cuda/harness.h"
 *
 *     TEST(add_ragged, "the residual is added as on the CPU, at any length")
 *     {
 *         for (size_t n : { 1, 31, 256, 2050 }) {
 *             test_case("n %zu", n);
 *             array<float> y(n), x(n);          // device memory: NaN, guarded on both sides
 *             fill_normal(y, 1.0f);
 *             fill_normal(x, 1.0f);
 *             std::vector<float> want(y.begin(), y.end());
 *             scalar().add(want.data(), x, n);  // pn_kernels: the specification
 *             run("pn_k_add", pn_add_args{ y, x, n }, { (n + 255) / 256 }, { 256 });
 *             same("y", y, want);
 *         }
 *     }
 *
 * The body runs anew on each backend, with the same random numbers. A kernel that exists from some
 * architecture on is asked for with has(). A kernel that no test has run fails `make test-cuda`. */
#ifndef PN_TESTS_CUDA_HARNESS_H
#define PN_TESTS_CUDA_HARNESS_H

#include <functional>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <type_traits>
#include <vector>

#define _Static_assert static_assert
extern "C" {
#include "cuda/args.h"
#include "kernels/kernels.h"
}

/* --- tests and their environment -------------------------------------------------------------- */

#define TEST(name, claim) TEST_(name, claim, false)
/* Without a backend: of host code, which launches through a driver (standin.h). */
#define TEST_ONCE(name, claim) TEST_(name, claim, true)
#define TEST_(name, claim, once)                                             \
    static void name(void);                                                  \
    static const registration registration_##name(#name, claim, name, once); \
    static void name(void)

struct registration {
    registration(const char *name, const char *claim, void (*body)(void), bool once);
};

/* The CPU's kernels: the specification, at the scalar level; where tests run on a card, at the
 * processor's best. */
const pn_kernels &scalar(void);
/* 370 ... of the running backend. */
int arch(void);
/* Warp instructions that the running backend has executed so far; 0: it does not count them. */
unsigned long long executed(void);
/* Whether the running backend's device code has this kernel. */
bool has(const char *kernel);

/* Names what follows, for failures. */
void test_case(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Reports a failure of the running test; it goes on. */
void fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
#define CHECK(cond) ((cond) ? (void)0 : fail("%s:%d: not so: %s", __FILE__, __LINE__, #cond))

/* --- device memory ---------------------------------------------------------------------------- */

/* n bytes, 64-byte aligned, filled with 0xff; a page that faults lies behind them, and the bytes
 * around them are checked when they are freed. Kernels of the interpreter reach nothing else. */
void *device_alloc(size_t bytes, bool holds_addresses);
void device_free(void *p);

/* Whether a T has addresses of device memory in it. */
template <class T> struct holds_addresses : std::is_pointer<T> {
};
template <> struct holds_addresses<pn_cuda_part> : std::true_type {
};

/* n values of T in device memory. */
template <class T> class array
{
  public:
    explicit array(size_t n)
        : p_((T *)device_alloc(n * sizeof(T), holds_addresses<T>::value)), n_(n)
    {
    }
    array(const T *src, size_t n) : array(n)
    {
        if (n)
            memcpy(p_, src, n * sizeof(T));
    }
    explicit array(const std::vector<T> &src) : array(src.data(), src.size())
    {
    }
    ~array()
    {
        device_free(p_);
    }
    array(const array &) = delete;
    array &operator=(const array &) = delete;
    operator T *() const
    {
        return p_;
    }
    T *begin() const
    {
        return p_;
    }
    T *end() const
    {
        return p_ + n_;
    }
    size_t size() const
    {
        return n_;
    }
    size_t bytes() const
    {
        return n_ * sizeof(T);
    }

  private:
    T *p_;
    size_t n_;
};

/* --- launches and what must hold -------------------------------------------------------------- */

struct extent {
    unsigned v[3];
    extent(size_t x, size_t y = 1, size_t z = 1) : v{ (unsigned)x, (unsigned)y, (unsigned)z }
    {
    }
};

/* Runs the kernel to its end. A refused launch, a missing kernel or arguments of another size are
 * failures; a kernel that breaks a rule of CUDA ends the program with its place. */
void run_bytes(const char *kernel, const void *args, size_t args_bytes, extent grid, extent block,
               size_t smem);
/* The same of a kernel that begins early (pn_dims): until it has waited for what was launched
 * before, all device memory holds 0xff, which must stay. */
void run_early(const char *kernel, const void *args, size_t args_bytes, extent grid, extent block,
               size_t smem);
template <class A>
void run(const char *kernel, const A &args, extent grid, extent block, size_t smem = 0)
{
    run_bytes(kernel, &args, sizeof args, grid, block, smem);
}

/* From now on every launch is timed after it ran, where the backend can (seconds: else 0), and told
 * what it took; an empty function: no longer. */
void time_launches(std::function<void(const char *kernel, double seconds)> told);

/* The bytes are equal; else a failure with the first difference, as values of size bytes each. */
void same_bytes(const char *what, const void *got, const void *want, size_t n, size_t size);
template <class T> void same(const char *what, const T *got, const T *want, size_t n)
{
    same_bytes(what, got, want, n, sizeof(T));
}
template <class T> void same(const char *what, const array<T> &got, const std::vector<T> &want)
{
    CHECK(got.size() == want.size());
    same_bytes(what, got.begin(), want.data(), want.size(), sizeof(T));
}

/* --- random numbers: the same in every backend ------------------------------------------------ */

uint64_t random_bits(void);
/* 0 <= r < n */
size_t random_below(size_t n);
/* Of mean 0 and deviation 1. */
float random_normal(void);
void fill_normal(float *x, size_t n, float scale);
static inline void fill_normal(array<float> &x, float scale)
{
    fill_normal(x.begin(), x.size(), scale);
}
void fill_random(void *p, size_t bytes);

#endif
