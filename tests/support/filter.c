/* CMOCKA_TEST_FILTER: a pattern ('*' and '?') of the tests to run, for all programs of cmocka. */
#include "support/check.h"

#include <stdlib.h>

__attribute__((constructor)) static void take_filter(void)
{
    const char *const pattern = getenv("CMOCKA_TEST_FILTER");
    if (pattern)
        cmocka_set_test_filter(pattern);
}
