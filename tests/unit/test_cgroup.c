/* The CPU quota of control groups, on trees made for the test. */
#include "base/cgroup.h"
#include "support/check.h"
#include "support/tmpdir.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

typedef struct file {
    const char *path, *text; /* below the mount, or "proc" */
} file;

typedef struct quota_case {
    const char *name, *proc;
    file files[4];
    int want;
} quota_case;

static void write_file(const char *mount, const file *f)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", mount, f->path);
    for (char *p = path + strlen(mount) + 1; (p = strchr(p, '/')); p++) {
        *p = '\0';
        mkdir(path, 0700);
        *p = '/';
    }
    FILE *const out = fopen(path, "w");
    assert_non_null(out);
    fputs(f->text, out);
    fclose(out);
}

static const quota_case cases[] = {
    { "none", "0::/\n", { { 0 } }, 0 },
    { "v2 container", "0::/\n", { { "cpu.max", "150000 100000\n" } }, 2 },
    { "v2 unlimited", "0::/\n", { { "cpu.max", "max 100000\n" } }, 0 },
    { "v2 a slice around us",
      "0::/user.slice/a.scope\n",
      { { "user.slice/cpu.max", "300000 100000\n" },
        { "user.slice/a.scope/cpu.max", "max 100000\n" } },
      3 },
    { "v2 the least counts",
      "0::/user.slice/a.scope\n",
      { { "user.slice/cpu.max", "300000 100000\n" },
        { "user.slice/a.scope/cpu.max", "100000 100000\n" } },
      1 },
    { "v2 another's quota",
      "0::/a\n",
      { { "b/cpu.max", "100000 100000\n" }, { "a/b/cpu.max", "100000 100000\n" } },
      0 },
    { "v1",
      "5:cpuset:/x\n4:cpu,cpuacct:/docker/1\n0::/\n",
      { { "cpu/docker/1/cpu.cfs_quota_us", "400000\n" },
        { "cpu/docker/1/cpu.cfs_period_us", "100000\n" } },
      4 },
    { "v1 in a container, whose path is the host's",
      "4:cpuacct,cpu:/docker/1\n",
      { { "cpu/cpu.cfs_quota_us", "50000\n" }, { "cpu/cpu.cfs_period_us", "100000\n" } },
      1 },
    { "v1 unlimited",
      "4:cpu:/\n",
      { { "cpu/cpu.cfs_quota_us", "-1\n" }, { "cpu/cpu.cfs_period_us", "100000\n" } },
      0 },
    { "cpuset is not cpu",
      "4:cpuset:/\n",
      { { "cpu/cpu.cfs_quota_us", "100000\n" }, { "cpu/cpu.cfs_period_us", "100000\n" } },
      0 },
    { "nonsense", "no colon\n0:\n:::\n0::/\n", { { "cpu.max", "many few\n" } }, 0 },
    { "beyond an int", "0::/\n", { { "cpu.max", "9223372036854775807 1\n" } }, 0 },
};

static void test_quota(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const quota_case *const c = &cases[i];
        char mount[300], proc[320];
        snprintf(mount, sizeof mount, "%s/%zu", pn_tmpdir(), i);
        mkdir(mount, 0700);
        for (const file *f = c->files; f < c->files + 4 && f->path; f++)
            write_file(mount, f);
        write_file(mount, &(file){ "proc", c->proc });
        snprintf(proc, sizeof proc, "%s/proc", mount);
        const int got = pn_cgroup_cpus(proc, mount);
        if (got != c->want)
            fail_msg("%s: %d CPUs, %d expected", c->name, got, c->want);
    }
}

static void test_absent(void **state)
{
    (void)state;
    assert_int_equal(pn_cgroup_cpus("/nowhere/proc", "/nowhere"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quota),
        cmocka_unit_test(test_absent),
    };
    return cmocka_run_group_tests_name("cgroup", tests, pn_tmpdir_setup, pn_tmpdir_teardown);
}
