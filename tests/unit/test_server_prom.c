/* Prometheus' text form: what a scraper reads, byte for byte. */
#include "support/check.h"

#include "server/prom.h"

#include <math.h>
#include <string.h>

#define SPAN(s) ((pn_span){ (s), sizeof(s) - 1 })

static void expect(pn_buf *out, const char *text)
{
    assert_true(pn_buf_ok(out));
    assert_string_equal(pn_buf_cstr(out), text);
    pn_buf_free(out);
}

static void samples_and_labels(void **state)
{
    (void)state;
    pn_buf out = { 0 };
    pn_prom p = { .out = &out };
    const pn_prom_label labels[] = { { "path", SPAN("/v1/\"a\"\\b\nc") }, { "code", SPAN("200") } };
    pn_prom_begin(&p, PN_PROM_COUNTER, "pantheon:requests_total", "requests \"by\" code,\nand \\");
    pn_prom_put(&p, labels, 2, 7);
    pn_prom_put(&p, labels + 1, 1, 0);
    pn_prom_one(&p, PN_PROM_GAUGE, "pantheon:share", "of all", 0.25);
    expect(&out, "# HELP pantheon:requests_total requests \"by\" code,\\nand \\\\\n"
                 "# TYPE pantheon:requests_total counter\n"
                 "pantheon:requests_total{path=\"/v1/\\\"a\\\"\\\\b\\nc\",code=\"200\"} 7\n"
                 "pantheon:requests_total{code=\"200\"} 0\n"
                 "# HELP pantheon:share of all\n"
                 "# TYPE pantheon:share gauge\n"
                 "pantheon:share 0.25\n");
}

static void numbers(void **state)
{
    (void)state;
    static const struct {
        double v;
        const char *text;
    } cases[] = {
        { 0, "0" },
        { -3, "-3" },
        { 0x1p53, "9007199254740992" },
        { 1e300, "1e+300" },
        { 1e-7, "1e-07" },
        { (double)NAN, "NaN" },
        { (double)INFINITY, "+Inf" },
        { -(double)INFINITY, "-Inf" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pn_buf out = { 0 }, all = { 0 };
        pn_prom p = { .out = &out };
        pn_prom_one(&p, PN_PROM_GAUGE, "x", "y", cases[i].v);
        pn_buf_addf(&all, "# HELP x y\n# TYPE x gauge\nx %s\n", cases[i].text);
        expect(&out, pn_buf_cstr(&all));
        pn_buf_free(&all);
    }
}

static void histograms_cumulate(void **state)
{
    (void)state;
    static const double bounds[] = { 0.1, 1, 10 };
    static const uint64_t counts[] = { 2, 0, 3, 1 };
    const pn_prom_label of = { "model", SPAN("m") };
    pn_buf out = { 0 };
    pn_prom p = { .out = &out };
    pn_prom_begin(&p, PN_PROM_HISTOGRAM, "t_seconds", "time");
    pn_prom_put_histogram(&p, NULL, 0, bounds, 3, counts, 40.5);
    pn_prom_put_histogram(&p, &of, 1, bounds, 1, counts, 1);
    expect(&out, "# HELP t_seconds time\n"
                 "# TYPE t_seconds histogram\n"
                 "t_seconds_bucket{le=\"0.1\"} 2\n"
                 "t_seconds_bucket{le=\"1\"} 2\n"
                 "t_seconds_bucket{le=\"10\"} 5\n"
                 "t_seconds_bucket{le=\"+Inf\"} 6\n"
                 "t_seconds_sum 40.5\n"
                 "t_seconds_count 6\n"
                 "t_seconds_bucket{model=\"m\",le=\"0.1\"} 2\n"
                 "t_seconds_bucket{model=\"m\",le=\"+Inf\"} 2\n"
                 "t_seconds_sum{model=\"m\"} 1\n"
                 "t_seconds_count{model=\"m\"} 2\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_and_labels),
        cmocka_unit_test(numbers),
        cmocka_unit_test(histograms_cumulate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
