/* The table of rotations against libm's binary64: angles, interleaved sections, and YaRN as its
 * paper (arXiv:2309.00071) defines it.
 *
 * The bound. A row holds cos and sin rounded once to f32 (2^-24 of the value at most), of an angle
 * whose own error in binary64 is at most 4 * 2^-53 of it (pow, product) on either side: at position
 * 2^24 that is 1.5e-8. */

#include "support/check.h"

#include "models/rope.h"

#include <math.h>
#include <string.h>

static double bound(double value, double angle, double magnitude)
{
    return 0x1p-24 * fabs(value) + 8 * 0x1p-53 * fabs(angle) * magnitude + 1e-15;
}

static const int positions[] = { 0,    1,     2,      3,       7,       100,     127,     128,
                                 4095, 32768, 262143, 1000000, 1048576, 4194303, 16777215 };

/* Each pair's angle as the double says, at (time, height, width) = pos * (1, mh, mw). */
static void check_table(const pn_rope *r, const double *inv_freq, const int *section, int n_pair,
                        double magnitude, int mh, int mw)
{
    float c[PN_ROPE_MAX_PAIRS], s[PN_ROPE_MAX_PAIRS];
    for (size_t ip = 0; ip < sizeof positions / sizeof *positions; ip++) {
        const int t = positions[ip];
        const int pos[3] = { t, (int)((int64_t)t * mh % (1 << 24)), (int)((int64_t)t * mw % 9999) };
        pn_rope_row(r, pos, c, s);
        for (int i = 0; i < n_pair; i++) {
            const double angle = pos[section[i]] * inv_freq[i];
            const double want_c = cos(angle) * magnitude, want_s = sin(angle) * magnitude;
            if (!(fabs((double)c[i] - want_c) <= bound(want_c, angle, magnitude) &&
                  fabs((double)s[i] - want_s) <= bound(want_s, angle, magnitude)))
                fail_msg("position %d pair %d: (%.9g, %.9g), expected (%.12g, %.12g)",
                         pos[section[i]], i, (double)c[i], (double)s[i], want_c, want_s);
        }
    }
}

/* angle = pos * base^(-2i/n_rot), for the model's sizes, odd ones and the largest. */
static void test_angles(void **state)
{
    (void)state;
    static const struct {
        int n_rot;
        float base;
    } cases[] = { { 64, 1e7f },       { 32, 1e7f },   { 6, 1e6f }, { 2, 1e4f },
                  { 256, 500000.0f }, { 1024, 1e7f }, { 64, 1.5f } };
    for (size_t ic = 0; ic < sizeof cases / sizeof *cases; ic++) {
        const int n_pair = cases[ic].n_rot / 2;
        double f[PN_ROPE_MAX_PAIRS];
        int section[PN_ROPE_MAX_PAIRS] = { 0 };
        for (int i = 0; i < n_pair; i++)
            f[i] = pow((double)cases[ic].base, -2.0 * i / cases[ic].n_rot);
        pn_rope r;
        pn_err err = { 0 };
        const pn_rope_cfg cfg = { .n_rot = cases[ic].n_rot,
                                  .sections = { n_pair, 0, 0 },
                                  .freq_base = cases[ic].base,
                                  .factor = 1,
                                  .attn_factor = 1 };
        assert_int_equal(pn_rope_init(&r, &cfg, &err), PN_OK);
        check_table(&r, f, section, n_pair, 1.0, 1, 1);
    }
}

/* With three different positions every pair takes its own: height where i % 3 == 1 below 3 *
 * sections[1], width where i % 3 == 2 below 3 * sections[2], else time. */
static void test_sections(void **state)
{
    (void)state;
    static const int sections[][3] = { { 11, 11, 10 }, { 6, 5, 5 },  { 2, 1, 1 },   { 8, 0, 0 },
                                       { 20, 2, 4 },   { 0, 16, 0 }, { 24, 20, 20 } };
    for (size_t ic = 0; ic < sizeof sections / sizeof *sections; ic++) {
        const int *const sec = sections[ic];
        const int n_pair = sec[0] + sec[1] + sec[2];
        double f[PN_ROPE_MAX_PAIRS];
        int section[PN_ROPE_MAX_PAIRS] = { 0 };
        for (int i = 0; i < n_pair; i++)
            f[i] = pow(1e7, -2.0 * i / (2 * n_pair));
        for (int i = 1; i < n_pair && i < 3 * sec[1]; i += 3)
            section[i] = 1;
        for (int i = 2; i < n_pair && i < 3 * sec[2]; i += 3)
            section[i] = 2;
        pn_rope r;
        pn_err err = { 0 };
        const pn_rope_cfg cfg = { .n_rot = 2 * n_pair,
                                  .sections = { sec[0], sec[1], sec[2] },
                                  .freq_base = 1e7f,
                                  .factor = 1,
                                  .attn_factor = 1 };
        assert_int_equal(pn_rope_init(&r, &cfg, &err), PN_OK);
        check_table(&r, f, section, n_pair, 1.0, 7, 5);
    }
    /* the published model's numbers, by hand: 11 of 32 pairs height, 10 width, 11 time */
    pn_rope r;
    const pn_rope_cfg cfg = { .n_rot = 64, .sections = { 11, 11, 10 }, .freq_base = 1e7f };
    assert_int_equal(pn_rope_init(&r, &cfg, NULL), PN_OK);
    int n[3] = { 0 };
    for (int i = 0; i < 32; i++)
        n[r.section_of[i]]++;
    assert_int_equal(n[0], 11);
    assert_int_equal(n[1], 11);
    assert_int_equal(n[2], 10);
    assert_int_equal(r.section_of[31], 1); /* 31 % 3 == 1, below 33 */
}

/* Linear scaling divides positions by the factor. */
static void test_linear(void **state)
{
    (void)state;
    double f[32];
    int section[32] = { 0 };
    for (int i = 0; i < 32; i++)
        f[i] = pow(1e6, -2.0 * i / 64) / 8;
    pn_rope r;
    const pn_rope_cfg cfg = { .n_rot = 64,
                              .sections = { 32, 0, 0 },
                              .freq_base = 1e6f,
                              .scaling = PN_ROPE_LINEAR,
                              .factor = 8 };
    assert_int_equal(pn_rope_init(&r, &cfg, NULL), PN_OK);
    check_table(&r, f, section, 32, 1.0, 1, 1);
}

/* YaRN, written from the paper: with r(i) = L / wavelength(i) turns over the original context, a
 * frequency is interpolated wholly where r < alpha = 1, left where r > beta = 32, and blended
 * between; sqrt(1/t) = 0.1 ln(s) + 1 scales cos and sin. Between the two the paper's formula is
 * linear in r; its published code, and every engine since, is linear in the pair's index between
 * the pairs at which r is beta and alpha, rounded outwards to whole ones: models are trained with
 * that, so that is what is meant here. */
static void yarn_double(const pn_rope_cfg *c, double *f, double *magnitude)
{
    const int n_pair = c->n_rot / 2;
    const double base = (double)c->freq_base, L = c->n_ctx_orig, s = (double)c->factor;
    const double pi = acos(-1.0);
    /* r(i) = L * base^(-2i/n) / (2 pi) solved for i */
    const double at_beta = c->n_rot * log(L / (32 * 2 * pi)) / (2 * log(base));
    const double at_alpha = c->n_rot * log(L / (1 * 2 * pi)) / (2 * log(base));
    const double low = fmax(floor(at_beta), 0), high = fmin(ceil(at_alpha), c->n_rot - 1);
    for (int i = 0; i < n_pair; i++) {
        const double extrapolated = pow(base, -2.0 * i / c->n_rot);
        const double gamma = 1 - fmin(fmax((i - low) / fmax(high - low, 0.001), 0), 1);
        f[i] = (1 - gamma) * extrapolated / s + gamma * extrapolated;
    }
    *magnitude = (0.1 * log(s) + 1) * (double)c->attn_factor;
}

static void test_yarn(void **state)
{
    (void)state;
    static const struct {
        int n_rot, n_ctx_orig;
        float base, factor, attn_factor;
    } cases[] = { { 64, 262144, 1e7f, 4, 1 },     { 64, 32768, 1e7f, 2, 1 },
                  { 128, 4096, 1e4f, 16, 1 },     { 32, 512, 1e7f, 40, 1 },
                  { 64, 262144, 1e7f, 4, 1.25f }, { 16, 100, 1e4f, 3, 1 },
                  { 64, 3, 1e7f, 8, 1 },          { 64, 262144, 1e7f, 1, 1 } };
    for (size_t ic = 0; ic < sizeof cases / sizeof *cases; ic++) {
        const int n_pair = cases[ic].n_rot / 2;
        const pn_rope_cfg cfg = { .n_rot = cases[ic].n_rot,
                                  .sections = { n_pair, 0, 0 },
                                  .freq_base = cases[ic].base,
                                  .scaling = PN_ROPE_YARN,
                                  .factor = cases[ic].factor,
                                  .n_ctx_orig = cases[ic].n_ctx_orig,
                                  .attn_factor = cases[ic].attn_factor };
        double f[PN_ROPE_MAX_PAIRS], magnitude;
        int section[PN_ROPE_MAX_PAIRS] = { 0 };
        yarn_double(&cfg, f, &magnitude);
        pn_rope r;
        pn_err err = { 0 };
        assert_int_equal(pn_rope_init(&r, &cfg, &err), PN_OK);
        check_table(&r, f, section, n_pair, magnitude, 1, 1);
    }
    /* the ends, whatever happens between: the fastest pair is left, the slowest interpolated */
    double f[PN_ROPE_MAX_PAIRS], magnitude;
    const pn_rope_cfg cfg = { .n_rot = 64,
                              .sections = { 32, 0, 0 },
                              .freq_base = 1e7f,
                              .scaling = PN_ROPE_YARN,
                              .factor = 4,
                              .n_ctx_orig = 262144,
                              .attn_factor = 1 };
    yarn_double(&cfg, f, &magnitude);
    assert_true(f[0] == 1.0);
    assert_true(fabs(f[31] / (pow(1e7, -62.0 / 64) / 4) - 1) < 1e-12);
    assert_true(fabs(magnitude - 1.1386294361119891) < 1e-12);
}

/* Numbers that make no sense are refused by name. */
static void test_refused(void **state)
{
    (void)state;
    const pn_rope_cfg good = { .n_rot = 16,
                               .sections = { 4, 2, 2 },
                               .freq_base = 1e6f,
                               .scaling = PN_ROPE_YARN,
                               .factor = 2,
                               .n_ctx_orig = 64,
                               .attn_factor = 1 };
    pn_rope r;
    assert_int_equal(pn_rope_init(&r, &good, NULL), PN_OK);
    pn_rope_cfg bad[14];
    for (int i = 0; i < 14; i++)
        bad[i] = good;
    bad[0].n_rot = 0;
    bad[1].n_rot = 15;
    bad[2].n_rot = 4096;
    bad[3].n_rot = -2;
    bad[4].sections[0] = 5;
    bad[5].sections[0] = -1, bad[5].sections[1] = 7;
    bad[6].sections[0] = INT32_MAX, bad[6].sections[1] = INT32_MAX;
    bad[7].freq_base = 0;
    bad[8].freq_base = NAN;
    bad[9].freq_base = INFINITY;
    bad[10].factor = 0;
    bad[11].factor = NAN;
    bad[12].n_ctx_orig = 0;
    bad[13].attn_factor = NAN;
    for (int i = 0; i < 14; i++) {
        pn_err err = { 0 };
        if (pn_rope_init(&r, &bad[i], &err) != PN_ERR_FORMAT || !strstr(err.msg, "rope"))
            fail_msg("case %d: status %d \"%s\"", i, (int)err.code, err.msg);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_angles),  cmocka_unit_test(test_sections),
        cmocka_unit_test(test_linear),  cmocka_unit_test(test_yarn),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
