#include "support/tmpdir.h"

#include "support/check.h"

#include <stdio.h>
#include <stdlib.h>

static char dir[64];

int pn_tmpdir_setup(void **state)
{
    (void)state;
    const char *const tmp = getenv("TMPDIR");
    snprintf(dir, sizeof dir, "%.40s/pantheon-XXXXXX", tmp ? tmp : "/tmp");
    return mkdtemp(dir) ? 0 : -1;
}

int pn_tmpdir_teardown(void **state)
{
    (void)state;
    char cmd[96];
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", dir);
    return system(cmd);
}

const char *pn_tmpdir(void)
{
    return dir;
}

const char *pn_tmpdir_path(const char *name)
{
    static char path[4][160];
    static int i;
    assert_true(dir[0]); /* pn_tmpdir_setup has been called */
    i = (i + 1) % 4;
    snprintf(path[i], sizeof path[i], "%s/%s", dir, name);
    return path[i];
}
