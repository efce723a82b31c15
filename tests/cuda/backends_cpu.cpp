/* The backends of the tests: all on the CPU. */
#include "cuda/backend.h"

#include <stdlib.h>

std::vector<std::unique_ptr<backend>> all_backends(void)
{
    const char *const device = getenv("DEVICE");
    std::vector<std::unique_ptr<backend>> all = shim_backends(device);
    for (auto &b : ptx_backends(device))
        all.push_back(std::move(b));
    return all;
}

pn_isa cpu_level(void)
{
    return PN_ISA_SCALAR;
}
