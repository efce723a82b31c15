/* Source: set_mempolicy(2), get_mempolicy(2); by number, so that libnuma is not needed. */
#include "base/numa.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    NODE_MAX = 1024, /* the kernel's MAX_NUMNODES on x86-64 and aarch64 */
    WORD = 8 * sizeof(unsigned long)
};

bool pn_numa_interleave(void)
{
    unsigned long allowed[NODE_MAX / WORD] = { 0 };
    int mode = -1, n_node = 0;
    if (syscall(SYS_get_mempolicy, &mode, NULL, 0, NULL, 0) != 0 || mode != MPOL_DEFAULT)
        return false;
    if (syscall(SYS_get_mempolicy, NULL, allowed, NODE_MAX, NULL, MPOL_F_MEMS_ALLOWED) != 0)
        return false;
    for (int i = 0; i < NODE_MAX / WORD; i++)
        n_node += __builtin_popcountl(allowed[i]);
    return n_node > 1 &&
           syscall(SYS_set_mempolicy, MPOL_INTERLEAVE, allowed, (unsigned long)NODE_MAX) == 0;
}
