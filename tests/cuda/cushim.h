/* CUDA's dialect on the CPU: device code whose prelude includes this compiles as C++ and runs here.
 *
 * One fiber a CUDA thread, one block at a time. Barriers, shuffles, votes and tensor-core products
 * are real meetings of the lanes that take part, checked as a GPU would not: a lane missing from a
 * mask, a shuffle from outside it, a barrier that part of a block reaches, a deadlock, a copy that
 * nobody waited for end the program with the kernel, block and thread. Shared memory is NaN before
 * each block. Lanes and warps run in the order that cushim_order asks for.
 *
 * What it cannot see: what a compiler for GPUs makes of the source (tests/cuda/ptxrun does), memory
 * ordering (one thread runs at a time), and blocks that wait for other blocks (they run in turn).
 *
 * This file is what device code sees; cushim_run.h is how tests launch. */
#ifndef PN_TESTS_CUDA_CUSHIM_H
#define PN_TESTS_CUDA_CUSHIM_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define __device__
#define __host__
#define __global__
#define __constant__
#define __forceinline__ inline
#define __noinline__    __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __restrict__ __restrict
/* All static shared variables lie in one section, which is poisoned before each block;
 * AddressSanitizer guards globals only in their own. */
#ifdef __SANITIZE_ADDRESS__
#define __shared__ static
#else
#define __shared__ static __attribute__((section("cushim_shared")))
#endif
#define PN_DYN_SMEM(T, name) T *const name = (T *)cushim_dyn
#ifdef CUSHIM_NAMES /* a preprocessor run that only lists the kernels */
#define PN_KERNEL(name) cushim_kernel_name name
#else
#define PN_KERNEL(name) extern "C" void name
#endif

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};
struct __align__(4) char4
{
    signed char x, y, z, w;
};
struct __align__(4) uchar4
{
    unsigned char x, y, z, w;
};
struct __align__(4) ushort2
{
    unsigned short x, y;
};
struct __align__(8) ushort4
{
    unsigned short x, y, z, w;
};
struct __align__(8) int2
{
    int x, y;
};
struct __align__(8) uint2
{
    unsigned x, y;
};
struct __align__(8) float2
{
    float x, y;
};
struct __align__(16) int4
{
    int x, y, z, w;
};
struct __align__(16) uint4
{
    unsigned x, y, z, w;
};
struct __align__(16) float4
{
    float x, y, z, w;
};
static inline int4 make_int4(int x, int y, int z, int w)
{
    return int4{ x, y, z, w };
}
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w)
{
    return uint4{ x, y, z, w };
}
static inline float4 make_float4(float x, float y, float z, float w)
{
    return float4{ x, y, z, w };
}
static inline uint2 make_uint2(unsigned x, unsigned y)
{
    return uint2{ x, y };
}
static inline int2 make_int2(int x, int y)
{
    return int2{ x, y };
}
static inline float2 make_float2(float x, float y)
{
    return float2{ x, y };
}

/* --- the running thread ----------------------------------------------------------------------- */

struct cushim_warp;
struct cushim_lane {
    void *sp; /* of the fiber, while it does not run */
    uint3 tid;
    unsigned id, lane; /* in the block, in the warp */
    unsigned pos;      /* in the warp's order of running */
    unsigned state;
    bool has_waited; /* for what was launched before */
    cushim_warp *warp;
};
extern cushim_lane *cushim_cur;
extern dim3 cushim_grid, cushim_block;
extern uint3 cushim_bid;
extern unsigned char *cushim_dyn;
#define threadIdx (cushim_cur->tid)
#define blockIdx  cushim_bid
#define blockDim  cushim_block
#define gridDim   cushim_grid
#define warpSize  32

/* Ends the program with what, the kernel, block and thread. */
[[noreturn]] void cushim_die(const char *what);

/* --- meetings --------------------------------------------------------------------------------- */

enum cushim_kind {
    CUSHIM_SHUFFLE,
    CUSHIM_VOTE,
    CUSHIM_SYNCWARP,
    CUSHIM_MMA
};
/* Waits for the lanes of mask at the same kind of operation and returns what each gave, [32];
 * *arrived: those that exist. Every call is followed by cushim_part, when the values were read. */
const uint64_t *cushim_meet(cushim_kind kind, unsigned mask, uint64_t v, unsigned *arrived);
void cushim_part(const uint64_t *values);
/* place: where the source has it; threads that meet must be at the same one. */
void cushim_barrier(const char *place);

template <class T> static inline T cushim_pick(unsigned mask, T v, unsigned src)
{
    static_assert(sizeof(T) <= 8, "shuffles move 8 bytes at most");
    uint64_t bits = 0;
    memcpy(&bits, &v, sizeof v);
    unsigned arrived;
    const uint64_t *const all = cushim_meet(CUSHIM_SHUFFLE, mask, bits, &arrived);
    if (src < 32 && !(arrived >> src & 1))
        cushim_die("a shuffle reads a lane that is not in its mask");
    T r = v;
    if (src < 32)
        memcpy(&r, &all[src], sizeof r);
    cushim_part(all);
    return r;
}
template <class T> static inline T __shfl_sync(unsigned mask, T v, int src, int width = 32)
{
    const unsigned l = cushim_cur->lane, w = (unsigned)width - 1;
    return cushim_pick(mask, v, (l & ~w) | ((unsigned)src & w));
}
template <class T> static inline T __shfl_xor_sync(unsigned mask, T v, int bits, int width = 32)
{
    const unsigned l = cushim_cur->lane, s = l ^ (unsigned)bits, w = (unsigned)width - 1;
    return cushim_pick(mask, v, (s & ~w) <= (l & ~w) ? s : l);
}
template <class T> static inline T __shfl_down_sync(unsigned mask, T v, unsigned by, int width = 32)
{
    const unsigned l = cushim_cur->lane;
    return cushim_pick(mask, v, (l & ((unsigned)width - 1)) + by < (unsigned)width ? l + by : l);
}
template <class T> static inline T __shfl_up_sync(unsigned mask, T v, unsigned by, int width = 32)
{
    const unsigned l = cushim_cur->lane;
    return cushim_pick(mask, v, (l & ((unsigned)width - 1)) >= by ? l - by : l);
}
static inline unsigned __ballot_sync(unsigned mask, int pred)
{
    unsigned arrived, r = 0;
    const uint64_t *const all = cushim_meet(CUSHIM_VOTE, mask, pred != 0, &arrived);
    for (unsigned i = 0; i < 32; i++)
        if ((arrived >> i & 1) && all[i])
            r |= 1u << i;
    cushim_part(all);
    return r;
}
static inline int __any_sync(unsigned mask, int pred)
{
    return __ballot_sync(mask, pred) != 0;
}
static inline int __all_sync(unsigned mask, int pred)
{
    return __ballot_sync(mask, !pred) == 0;
}
static inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    unsigned arrived;
    cushim_part(cushim_meet(CUSHIM_SYNCWARP, mask, 0, &arrived));
}
/* By the place in the source, not in the code: the compiler may have the same call twice. */
#define CUSHIM_TEXT_(x) #x
#define CUSHIM_TEXT(x)  CUSHIM_TEXT_(x)
#define __syncthreads() cushim_barrier(__FILE__ ":" CUSHIM_TEXT(__LINE__))

/* c += a b on the tensor cores, fragments as PTX lays them out (device/prelude.cuh): n_row 16 or
 * 8 rows, depth 32 or 16, 8 columns. */
void cushim_mma(unsigned n_row, unsigned depth, int *c, const uint32_t *a, const uint32_t *b);

/* Copies to shared memory that end by themselves: the bytes arrive at the wait, not before. */
void cushim_cp16(void *dst, const void *src);
/* What a prefetch needs of an address: that it is there. */
inline void cushim_touch(const char *p)
{
    (void)*(const volatile char *)p;
}
void cushim_cp_commit(void);
/* Until what was launched before has ended. */
void cushim_grid_wait(void);
void cushim_cp_wait(unsigned n_left);

/* --- one thread runs at a time: fences are nothing, read-modify-write is atomic --------------- */

static inline void __threadfence(void)
{
}
static inline void __threadfence_block(void)
{
}
template <class T> static inline T cushim_exchange(T *p, T v)
{
    const T old = *p;
    *p = v;
    return old;
}
template <class T> static inline T atomicAdd(T *p, T v)
{
    return cushim_exchange(p, (T)(*p + v));
}
template <class T> static inline T atomicMax(T *p, T v)
{
    return cushim_exchange(p, v > *p ? v : *p);
}
template <class T> static inline T atomicMin(T *p, T v)
{
    return cushim_exchange(p, v < *p ? v : *p);
}
template <class T> static inline T atomicOr(T *p, T v)
{
    return cushim_exchange(p, (T)(*p | v));
}
template <class T> static inline T atomicExch(T *p, T v)
{
    return cushim_exchange(p, v);
}
template <class T> static inline T atomicCAS(T *p, T expected, T v)
{
    return cushim_exchange(p, *p == expected ? v : *p);
}

/* --- one thread's instructions ---------------------------------------------------------------- */

template <class T> static inline T __ldg(const T *p)
{
    return *p;
}
static inline int __dp4a(int a, int b, int c)
{
    for (int i = 0; i < 32; i += 8)
        c += (int8_t)(a >> i) * (int8_t)(b >> i);
    return c;
}
static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
static inline int __clz(int x)
{
    return x ? __builtin_clz((unsigned)x) : 32;
}
static inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)((uint64_t)a * b >> 32);
}
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector)
{
    const uint64_t bytes = (uint64_t)b << 32 | a;
    unsigned r = 0;
    for (int i = 0; i < 4; i++)
        r |= (unsigned)(bytes >> 8 * (selector >> 4 * i & 7) & 255) << 8 * i;
    return r;
}
static inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned by)
{
    return (unsigned)(((uint64_t)hi << 32 | lo) >> (by & 31));
}
template <class T> static inline T min(T a, T b)
{
    static_assert((T)0.5 == 0, "on floats write the comparison: NUMERICS.md");
    return b < a ? b : a;
}
template <class T> static inline T max(T a, T b)
{
    static_assert((T)0.5 == 0, "on floats write the comparison: NUMERICS.md");
    return b > a ? b : a;
}

#endif
