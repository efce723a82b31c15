/* Memory of machines with several nodes. */
#ifndef PN_BASE_NUMA_H
#define PN_BASE_NUMA_H

#include <stdbool.h>

/* On a machine with several memory nodes, spreads over them what this process touches from now on,
 * pages of mapped files included: any thread may compute any row, so a weight has no best node, but
 * all nodes' channels should be busy. Leaves a policy alone that the user has set (numactl).
 * Threads made later inherit it. Returns whether it did. */
bool pn_numa_interleave(void);

#endif
