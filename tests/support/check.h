/* cmocka with the headers it needs before it. */
#ifndef PN_TESTS_SUPPORT_CHECK_H
#define PN_TESTS_SUPPORT_CHECK_H

// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#endif
