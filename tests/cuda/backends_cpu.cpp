/* The backends of the tests: all on the CPU. */
#include "cuda/backend.h"

std::vector<std::unique_ptr<backend>> all_backends(void)
{
    std::vector<std::unique_ptr<backend>> all = shim_backends();
    for (auto &b : ptx_backends())
        all.push_back(std::move(b));
    return all;
}

pn_isa cpu_level(void)
{
    return PN_ISA_SCALAR;
}
