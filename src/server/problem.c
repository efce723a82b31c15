#include "server/problem.h"

#include <stdarg.h>
#include <stdio.h>

int pn_problem_status(const pn_problem *p)
{
    if (p->status)
        return p->status;
    switch (p->err.code) {
    case PN_ERR_ARG:
    case PN_ERR_FORMAT:
    case PN_ERR_UNSUPPORTED: /* by this model or build: the client can ask for something else */
    case PN_ERR_LIMIT:
        return 400;
    case PN_ERR_NOMEM:
        return 503;
    case PN_OK:
    case PN_ERR_IO:
    case PN_ERR_CANCELLED:
    case PN_ERR_NUMERIC:
        break;
    }
    return 500;
}

pn_status pn_problem_fail(pn_problem *p, int status, const char *code, const char *fmt, ...)
{
    char text[sizeof p->err.msg];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    p->status = status;
    p->code = code;
    return pn_fail(&p->err, PN_ERR_FORMAT, "%s", text);
}
