/* What runs kernels in the tests: the shim's libraries and the PTX interpreter (harness.h). */
#ifndef PN_TESTS_CUDA_BACKEND_H
#define PN_TESTS_CUDA_BACKEND_H

#include <memory>
#include <stddef.h>
#include <string>
#include <vector>

class backend
{
  public:
    virtual ~backend() = default;
    virtual const char *name() const = 0;
    virtual int arch() const = 0; /* 370, 900 */
    virtual std::vector<std::string> kernels() const = 0;
    /* 0 when there is no such kernel. */
    virtual size_t args_bytes(const char *kernel) const = 0;
    /* False where a GPU would refuse the launch. */
    virtual bool launch(const char *kernel, const void *args, const unsigned grid[3],
                        const unsigned block[3], size_t smem) = 0;
    /* Warp instructions so far; 0 where nobody counts them. */
    virtual unsigned long long executed() const
    {
        return 0;
    }
    /* Where the running thread is, for a fault. */
    virtual std::string where() const = 0;
    /* Device memory that kernels may reach, from now on and no longer. */
    virtual void add_memory(const void *p, size_t bytes) = 0;
    virtual void drop_memory(const void *p) = 0;
};

/* The shim's libraries that lie beside the program, each in its orders. */
std::vector<std::unique_ptr<backend>> shim_backends(void);
/* One for each module of PTX that there is. PROFILE=1 prints the instructions they ran. */
std::vector<std::unique_ptr<backend>> ptx_backends(void);

#endif
