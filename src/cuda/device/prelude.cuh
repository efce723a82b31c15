/* The dialect of device code: what NVRTC 11.8 to current and, in the tests, the host's C++ compiler
 * (tests/cuda/cushim.h, -DPN_CUSHIM) understand alike.
 *
 * C-like C++14 without any library. Kernels are written
 *
 *     PN_KERNEL(pn_k_name)(pn_name_args a) { ... }
 *
 * with one plain struct of args.h. Float operations are those of base/arith.h alone, so that
 * results are the CPU's by bits; the build refuses any other in the PTX (tests/cuda/ptxlint).
 * PN_ARCH chooses among variants of equal bits: 370, 750, 900 ... */
#ifndef PN_CUDA_DEVICE_PRELUDE_CUH
#define PN_CUDA_DEVICE_PRELUDE_CUH

#define _Static_assert static_assert

#ifdef PN_CUSHIM
#include "cuda/cushim.h"
#ifndef PN_ARCH
#error "the shim is built for one architecture: -DPN_ARCH=900"
#endif
#else
#define PN_ARCH         __CUDA_ARCH__
#define PN_KERNEL(name) extern "C" __global__ void name
/* T *name: the launch's dynamic shared memory, 16-byte aligned. */
#define PN_DYN_SMEM(T, name)                                       \
    extern __shared__ __align__(16) unsigned char pn_dyn_shared[]; \
    T *const name = (T *)pn_dyn_shared
#endif

#include "base/arith.h"

#include "cuda/args.h"

#define PN_FULL 0xffffffffu /* all lanes of a warp */

/* A load of what no kernel of this launch writes: through the read-only path. */
template <class T> PN_FN T pn_ldg(const T *p)
{
    return __ldg(p);
}

/* A load past the first-level cache: of what another block of this launch may have written. */
template <class T> PN_FN T pn_ldcg(const T *p)
{
#ifdef PN_CUSHIM
    return *p;
#else
    return __ldcg(p);
#endif
}

/* Brings n bytes of device memory to L2, where a later load finds them; nothing waits. By all of
 * n_thread threads, of which this is number i. */
PN_FN void pn_prefetch_bytes(const void *p, uint32_t n, uint32_t i, uint32_t n_thread)
{
    for (uint32_t at = 32 * i; at < n; at += 32 * n_thread) { /* a sector */
#ifdef PN_CUSHIM
        cushim_touch((const char *)p + at);
#else
        asm volatile("prefetch.global.L2 [%0];" ::"l"((const char *)p + at));
#endif
    }
}

/* Launches that begin early (CUDA's programmatic dependent launch, from 9.0 on): while the one
 * before them in the stream ends, they take their places and bring weights to L2.
 *
 * pn_grid_next: the next launch may begin, once all blocks have come here or ended.
 * pn_grid_wait: waits until all launches before have ended; what they wrote can be read then. Every
 * thread comes here before it ends, so that whoever waits for this launch has waited for those
 * before it. Until then nothing is read or written but arguments and shared memory; prefetches are
 * free. What launches before may have written is never read by pn_ldg: that may pass a wait.
 * Elsewhere launches follow each other, and both are nothing.
 * Source: PTX ISA, griddepcontrol. */
#define PN_HAS_GRID_WAIT (PN_ARCH >= 900)
PN_FN void pn_grid_next(void)
{
#if PN_HAS_GRID_WAIT && !defined(PN_CUSHIM)
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}
PN_FN void pn_grid_wait(void)
{
#ifdef PN_CUSHIM
    cushim_grid_wait();
#elif PN_HAS_GRID_WAIT
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* c + a . b, four signed bytes each; exact. */
PN_FN int pn_dp4a(int a, int b, int c)
{
#if PN_ARCH < 610
    c += (int8_t)a * (int8_t)b;
    c += (int8_t)(a >> 8) * (int8_t)(b >> 8);
    c += (int8_t)(a >> 16) * (int8_t)(b >> 16);
    return c + (a >> 24) * (b >> 24);
#elif defined(PN_CUSHIM)
    return __dp4a(a, b, c);
#else /* not __dp4a, which NVRTC 11.8 leaves undefined for sm_70 */
    int r;
    asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
#endif
}

#if PN_ARCH >= 610
/* The same of unsigned bytes a. */
PN_FN int pn_dp4a_unsigned(uint32_t a, int b, int c)
{
#ifdef PN_CUSHIM
    for (int i = 0; i < 32; i += 8)
        c += (int)(uint8_t)(a >> i) * (int8_t)(b >> i);
    return c;
#else
    int r;
    asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
#endif
}

/* c + two signed halves a times signed bytes 2 HIGH, 2 HIGH + 1 of b; exact. */
template <int HIGH> PN_FN int pn_dp2a(int a, uint32_t b, int c)
{
#ifdef PN_CUSHIM
    c += (int16_t)a * (int8_t)(b >> 16 * HIGH);
    return c + (a >> 16) * (int8_t)(b >> (16 * HIGH + 8));
#else
    int r;
    if (HIGH)
        asm("dp2a.hi.s32.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    else
        asm("dp2a.lo.s32.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
#endif
}
#endif

/* Integer tensor cores: c += a b, exact. A lane's fragments are those of PTX's mma.sync.aligned
 * .row.col .s32.s8.s8.s32: with g = lane / 4, t = lane % 4, a[i] holds 4 bytes of row
 * g + 8 (i % 2), columns 4 t + 16 (i / 2) on; b[i] of rows 4 t + 16 i on, column g; c[i] is row
 * g + 8 (i / 2), column 2 t + i % 2. All 32 lanes of the warp take part.
 * Source: PTX ISA, "Matrix Fragments for mma.m16n8k32", "... mma.m8n8k16". */
#if PN_ARCH >= 800
#define PN_HAVE_MMA_16832 1 /* 16 x 8 x 32: a 16 rows, b 8 columns, depth 32 */
PN_FN void pn_mma_16832(int c[4], const uint32_t a[4], const uint32_t b[2])
{
#ifdef PN_CUSHIM
    cushim_mma(16, 32, c, a, b);
#else
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}
/* 16 x 8 x 16: a[0..1], b[0]. */
PN_FN void pn_mma_16816(int c[4], const uint32_t a[2], const uint32_t b[1])
{
#ifdef PN_CUSHIM
    cushim_mma(16, 16, c, a, b);
#else
    asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 "
                 "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b[0]));
#endif
}
#endif
#if PN_ARCH >= 750
#define PN_HAVE_MMA_8816 1 /* 8 x 8 x 16: a[0], b[0], c[0..1] as above without the higher ones */
PN_FN void pn_mma_8816(int c[2], uint32_t a, uint32_t b)
{
#ifdef PN_CUSHIM
    cushim_mma(8, 16, c, &a, &b);
#else
    asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};"
                 : "+r"(c[0]), "+r"(c[1])
                 : "r"(a), "r"(b));
#endif
}
#endif

/* Copies of 16 bytes from device to shared memory that end by themselves: what a thread has issued
 * before pn_cp_commit is one group; pn_cp_wait<n> leaves at most the n latest groups unfinished.
 * Other threads see the bytes after a barrier that follows the wait. Before sm_80 they are loads
 * and stores. */
PN_FN void pn_cp16(void *shared, const void *global)
{
#ifdef PN_CUSHIM
    cushim_cp16(shared, global);
#elif PN_ARCH >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(shared)),
                 "l"(global));
#else
    *(uint4 *)shared = pn_ldg((const uint4 *)global);
#endif
}
PN_FN void pn_cp_commit(void)
{
#ifdef PN_CUSHIM
    cushim_cp_commit();
#elif PN_ARCH >= 800
    asm volatile("cp.async.commit_group;");
#endif
}
template <int N> PN_FN void pn_cp_wait(void)
{
#ifdef PN_CUSHIM
    cushim_cp_wait(N);
#elif PN_ARCH >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#endif
}

#endif
