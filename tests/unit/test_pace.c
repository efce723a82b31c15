/* The pace of prompts beside answers, against machines whose passes take known times. */

#include "support/check.h"

#include "engine/pace.h"

/* A pass's seconds: a quiet one for n_writer answers, and each prompt token more. */
typedef struct machine {
    double base_s, writer_s, token_s;
} machine;

static double pass_s(const machine *m, int n_writer, int n_read)
{
    return m->base_s + m->writer_s * n_writer + m->token_s * n_read;
}

/* Runs passes; returns the longest after the first n_settle. *n_read_all: prompt tokens of all. */
static double longest(pn_pace *p, const machine *m, int n_writer, int n_pass, int n_settle,
                      int *n_read_all)
{
    double most = 0;
    for (int i = 0; i < n_pass; i++) {
        const int n = pn_pace_tokens(p, n_writer);
        const double s = pass_s(m, n_writer, n);
        pn_pace_learn(p, n_writer, n, true, s);
        most = i >= n_settle && s > most ? s : most;
        *n_read_all += n;
    }
    return most;
}

/* Slow and fast machines settle under the limit and use most of it. */
static void test_settles(void **state)
{
    (void)state;
    static const machine machines[] = {
        { 0.04, 0.002, 0.003 }, { 0.001, 0.0001, 0.00001 }, { 0.2, 0, 0.1 }, { 1, 0.1, 2 }
    };
    for (size_t k = 0; k < sizeof machines / sizeof *machines; k++)
        for (int n_writer = 1; n_writer <= 16; n_writer *= 2)
            for (int fixed = 0; fixed < 2; fixed++) {
                const machine *const m = &machines[k];
                const double quiet = pass_s(m, n_writer, 0);
                const double limit = fixed ? quiet * 1.5 : quiet * PN_PACE_RATIO;
                pn_pace p;
                pn_pace_init(&p, fixed ? limit : 0, 2048);
                int n_read = 0;
                const double most = longest(&p, m, n_writer, 400, 40, &n_read);
                const double one = pass_s(m, n_writer, 1); /* a token always goes */
                assert_true(most <= (limit * 1.1 > one ? limit * 1.1 : one));
                const double n_fit = (limit - quiet) / m->token_s;
                const double want = n_fit < 1                 ? 1
                                    : n_fit > 2048 - n_writer ? 2048 - n_writer
                                                              : n_fit;
                assert_true(n_read >= 0.8 * 360 * (int)want);
            }
}

/* The quiet gap is measured first, and again now and then; answers alone and prompts alone need
 * none. */
static void test_measures(void **state)
{
    (void)state;
    pn_pace p;
    pn_pace_init(&p, 0, 512);
    assert_int_equal(pn_pace_tokens(&p, 0), 512);
    assert_int_equal(pn_pace_tokens(&p, 3), 0);
    pn_pace_learn(&p, 3, 0, true, 0.05);
    assert_in_range(pn_pace_tokens(&p, 3), 1, 16);
    assert_int_equal(pn_pace_tokens(&p, 4), 0); /* of four nothing is known */
    int n_quiet = 0;
    for (int i = 0; i < 1000; i++) {
        const int n = pn_pace_tokens(&p, 3);
        n_quiet += n == 0;
        pn_pace_learn(&p, 3, n, true, 0.05 + 0.001 * n);
    }
    assert_in_range(n_quiet, 5, 30);
    assert_int_equal(pn_pace_tokens(&p, 0), 512);
}

/* A machine that becomes slower is followed. */
static void test_follows(void **state)
{
    (void)state;
    pn_pace p;
    pn_pace_init(&p, 0.1, 2048);
    machine m = { 0.02, 0, 0.0005 };
    int n = 0;
    longest(&p, &m, 2, 200, 0, &n);
    m.token_s = 0.005;
    assert_true(longest(&p, &m, 2, 200, 10, &n) <= 0.11);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_settles),
        cmocka_unit_test(test_measures),
        cmocka_unit_test(test_follows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
