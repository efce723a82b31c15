/* A directory of a test's own, removed with what is in it. */
#ifndef PN_TESTS_SUPPORT_TMPDIR_H
#define PN_TESTS_SUPPORT_TMPDIR_H

/* cmocka's group setup and teardown: makes the directory, below TMPDIR or /tmp; removes it. */
int pn_tmpdir_setup(void **state);
int pn_tmpdir_teardown(void **state);

/* The directory, and the path of a name in it; the last four of these paths stay valid. */
const char *pn_tmpdir(void);
const char *pn_tmpdir_path(const char *name);

#endif
