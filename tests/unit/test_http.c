/* The HTTP layer from a raw client's side. */

#include "support/check.h"
#include "support/http_run.h"

#include "base/clock.h"
#include "base/mem.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const char get_health[] =
    "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/* A request, its answer. */
static void test_one(void **state)
{
    (void)state;
    http_run r;
    http_run_start(&r, NULL);
    pn_buf in = { 0 };
    assert_int_equal(http_run_ask(&r, get_health, sizeof get_health - 1, 5, &in), 200);
    assert_non_null(strstr(pn_buf_cstr(&in), "\r\n\r\nfine"));
    pn_buf_free(&in);
    http_run_stop(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
