/* How functions fail: pn_fail fills the caller's pn_err, PN_TRY passes a failure on, PN_ASSERT
 * states what only a bug can break. See include/pantheon/base.h for the codes. */
#ifndef PN_BASE_STATUS_H
#define PN_BASE_STATUS_H

#include "pantheon/base.h"

/* Fills *err (when not NULL) and returns code. fmt is printf's; the message is cut, never
 * overrun, and control characters in it become '?', since names come from hostile files. */
pn_status pn_fail(pn_err *err, pn_status code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4), cold));

/* Puts a prefix such as a file name before the message of an error already filled. */
void pn_err_prefix(pn_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3), cold));

/* Returns from the enclosing function when call fails; only where nothing is held. */
#define PN_TRY(call)                      \
    do {                                  \
        const pn_status pn_try_ = (call); \
        if (pn_try_ != PN_OK)             \
            return pn_try_;               \
    } while (0)

/* Aborts with file and line when a bug broke cond; debug, sanitizer and test builds only. */
#ifdef PN_DEBUG
void pn_assert_failed(const char *cond, const char *file, int line) __attribute__((noreturn, cold));
#define PN_ASSERT(cond) ((cond) ? (void)0 : pn_assert_failed(#cond, __FILE__, __LINE__))
#else
#define PN_ASSERT(cond) ((void)0)
#endif

/* At the public boundary: asserts in debug builds, returns PN_ERR_ARG in release builds. */
#define PN_REQUIRE(cond, err)                                                    \
    do {                                                                         \
        PN_ASSERT(cond);                                                         \
        if (!(cond))                                                             \
            return pn_fail(err, PN_ERR_ARG, "%s: requires %s", __func__, #cond); \
    } while (0)

#endif
