/* What runs kernels in the tests: the shim's libraries and the PTX interpreter (harness.h). */
#ifndef PN_TESTS_CUDA_BACKEND_H
#define PN_TESTS_CUDA_BACKEND_H

#include <functional>
#include <memory>
#include <stddef.h>
#include <string>
#include <vector>

#define _Static_assert static_assert
extern "C" {
#include "kernels/kernels.h"
}

class backend
{
  public:
    virtual ~backend() = default;
    virtual const char *name() const = 0;
    virtual int arch() const = 0; /* 370, 900 */
    virtual std::vector<std::string> kernels() const = 0;
    /* 0 when there is no such kernel; SIZE_MAX: there is, and its bytes cannot be told. */
    virtual size_t args_bytes(const char *kernel) const = 0;
    /* False where a GPU would refuse the launch. */
    virtual bool launch(const char *kernel, const void *args, size_t args_bytes,
                        const unsigned grid[3], const unsigned block[3], size_t smem) = 0;
    /* Whether kernels can be made to begin early there, */
    virtual bool begins_early() const
    {
        return false;
    }
    /* as this does: what was launched before ends, by end_before, after a block has come as far as
     * it can without. */
    virtual bool launch_early(const char *, const void *, size_t, const unsigned[3],
                              const unsigned[3], size_t, const std::function<void()> &)
    {
        return false;
    }
    /* Warp instructions so far; 0 where nobody counts them. */
    virtual unsigned long long executed() const
    {
        return 0;
    }
    /* Where the running thread is, for a fault. */
    virtual std::string where() const = 0;
    /* Device memory that kernels may reach, from now on and no longer. holds_addresses: of other
     * such memory; kernels only read it. */
    virtual void add_memory(void *p, size_t bytes, bool holds_addresses) = 0;
    virtual void drop_memory(const void *p) = 0;
    /* Seconds of a launch that was accepted; 0 where time means nothing. Memory stays as it is. */
    virtual double seconds(const char *, const void *, size_t, const unsigned[3], const unsigned[3],
                           size_t)
    {
        return 0;
    }
};

/* Those that the program's tests are run on; which, is chosen when it is linked: backends_cpu.cpp
 * or backend_card.cpp. */
std::vector<std::unique_ptr<backend>> all_backends(void);
/* The level of the CPU's kernels that they are held against (scalar() of harness.h). */
pn_isa cpu_level(void);
/* The shim's libraries that lie beside the program, each in its orders; or only `device`, if that
 * is a library (.so). */
std::vector<std::unique_ptr<backend>> shim_backends(const char *device);
/* One for each module of PTX that there is; or only `device`, if that is one (.ptx). PROFILE=1
 * prints the instructions they ran. */
std::vector<std::unique_ptr<backend>> ptx_backends(const char *device);

#endif
