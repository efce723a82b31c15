/* The CPU quota that Linux control groups set for this process. */
#ifndef PN_BASE_CGROUP_H
#define PN_BASE_CGROUP_H

/* The smallest quota of the process's own group and the groups around it, in whole CPUs, rounded
 * up; 0 when there is none. Versions 1 and 2 of the interface, on the host or inside a container.
 * proc: "/proc/self/cgroup"; mount: "/sys/fs/cgroup"; other paths serve tests. */
int pn_cgroup_cpus(const char *proc, const char *mount);

#endif
