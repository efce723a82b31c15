/* Source: the kernel's admin-guide/cgroup-v1/cgroups.rst, scheduler/sched-bwc.rst, and
 * admin-guide/cgroup-v2.rst ("cpu.max"). */
#include "base/cgroup.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* First numbers of a one-line file; how many of the n there are, 0 when it cannot be read. */
static int read_longs(const char *path, long *out, int n)
{
    FILE *const f = fopen(path, "re");
    if (!f)
        return 0;
    int got = 0;
    while (got < n && fscanf(f, "%ld", &out[got]) == 1)
        got++;
    fclose(f);
    return got;
}

/* One group's quota in whole CPUs; 0: none, and for "max" and -1, which mean so. */
static int group_cpus(const char *dir, bool is_v2)
{
    char path[PATH_MAX + 32];
    long v[2] = { 0 }; /* quota, period */
    if (is_v2) {
        snprintf(path, sizeof path, "%s/cpu.max", dir);
        read_longs(path, v, 2);
    } else {
        snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", dir);
        read_longs(path, &v[0], 1);
        snprintf(path, sizeof path, "%s/cpu.cfs_period_us", dir);
        read_longs(path, &v[1], 1);
    }
    if (v[0] <= 0 || v[1] <= 0)
        return 0;
    const long n = v[0] / v[1] + (v[0] % v[1] != 0);
    return n < INT_MAX ? (int)n : 0;
}

/* The least over the group `path` below `root` and all around it, the root's own included: inside a
 * container the root is the container's group, and the path may not exist there. */
static int least(const char *root, const char *path, bool is_v2)
{
    char dir[PATH_MAX];
    const int len = snprintf(dir, sizeof dir, "%s%s", root, path);
    if (len < 0 || (size_t)len >= sizeof dir)
        return 0;
    const size_t n_root = strlen(root);
    int cpus = 0;
    for (;;) {
        const int n = group_cpus(dir, is_v2);
        if (n && (!cpus || n < cpus))
            cpus = n;
        char *const slash = strrchr(dir + n_root, '/');
        if (!slash)
            return cpus;
        *slash = '\0';
    }
}

/* Whether "cpu" is in a comma-separated list of controllers. */
static bool has_cpu(const char *list)
{
    for (const char *p = list; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
        if (strncmp(p, "cpu", 3) == 0 && (p[3] == ',' || p[3] == '\0'))
            return true;
    return false;
}

int pn_cgroup_cpus(const char *proc, const char *mount)
{
    FILE *const f = fopen(proc, "re");
    if (!f)
        return 0;
    char line[PATH_MAX + 256], root[PATH_MAX];
    int cpus = 0;
    while (fgets(line, sizeof line, f)) { /* hierarchy-ID:controller-list:path */
        line[strcspn(line, "\n")] = '\0';
        char *const list = strchr(line, ':');
        char *const path = list ? strchr(list + 1, ':') : NULL;
        if (!path)
            continue;
        *path = '\0';
        const bool is_v2 = strcmp(line, "0:") == 0;
        if (!is_v2 && !has_cpu(list + 1))
            continue;
        snprintf(root, sizeof root, "%s%s", mount, is_v2 ? "" : "/cpu");
        const int n = least(root, path + 1, is_v2);
        if (n && (!cpus || n < cpus))
            cpus = n;
    }
    fclose(f);
    return cpus;
}
