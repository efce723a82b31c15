/* Small models of odd shapes against llama.cpp's logits, so that nothing is fitted to one model's
 * dimensions. Data and bounds: tests/golden/data/model/README.md. */

#include "support/check.h"
#include "support/model_run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct variant {
    const char *name, *file; /* file NULL: NAME.gguf */
    /* Exact float mathematics agrees with these logits to 4e-5; 1e-3 leaves room for both sides'
     * rounding. 0: llama.cpp rounds activations, so single rows part where a routing tie flips, and
     * the median KL is judged. */
    double delta_max;
    /* Both engines round activations to 8 bits for q8 and q51, each in its own way: llama.cpp alone
     * is 1.1e-3 (q8) and 9e-4 (q51) from exact mathematics. */
    double kl_max;
} variant;

static const variant variants[] = {
    { "base", NULL, 1e-3, 1 },
    { "v3k", NULL, 1e-3, 1 },
    { "wide_v", NULL, 1e-3, 1 },
    { "interval2", NULL, 1e-3, 1 },
    { "recarr", NULL, 1e-3, 1 },
    { "ffarr", NULL, 1e-3, 1 },
    { "mqa", NULL, 1e-3, 1 },
    { "tied", NULL, 1e-3, 1 },
    { "conv2", NULL, 1e-3, 1 },
    { "split", "split-00003-of-00004.gguf", 1e-3, 1 }, /* any part opens the whole */
    { "f16", NULL, 0, 1e-5 },
    { "q8", NULL, 0, 1e-3 },
    { "q51", NULL, 0, 1e-3 },
};

static void *read_part(const char *name, const char *what, size_t *n)
{
    char path[160];
    snprintf(path, sizeof path, PN_TEST_MODELS "variants/%s.%s", name, what);
    return pn_test_read(path, n);
}

static void check_variant(const variant *v, int n_batch)
{
    char path[160];
    snprintf(path, sizeof path, PN_TEST_MODELS "variants/%s%s", v->file ? v->file : v->name,
             v->file ? "" : ".gguf");
    size_t n_ids, n_at, n_logits;
    int32_t *const ids = read_part(v->name, "ids.i32", &n_ids);
    int32_t *const at = read_part(v->name, "at.i32", &n_at);
    float *const want = read_part(v->name, "logits.f32", &n_logits);
    pn_model *const m = pn_test_load(path);
    const int n_vocab = pn_test_n_vocab(m);
    assert_int_equal(n_logits, n_at * (size_t)n_vocab);
    const pn_run run = { .n_batch = n_batch, .kv_type = PN_KV_F32 };
    float *const y = pn_test_logits(m, &run, ids, (int)n_ids);
    double worst = 0, kl[64];
    assert_in_range(n_at, 1, 64);
    for (size_t i = 0; i < n_at; i++) {
        const float *const row = y + (size_t)at[i] * (size_t)n_vocab;
        const float *const ref = want + i * (size_t)n_vocab;
        kl[i] = pn_test_kl(ref, row, n_vocab);
        for (int j = 0; j < n_vocab; j++)
            worst = fmax(worst, fabs((double)row[j] - (double)ref[j]));
    }
    const double median = pn_test_quantile(kl, n_at, 0.5);
    print_message("%-9s largest difference %.2g, median KL %.2g\n", v->name, worst, median);
    if (v->delta_max > 0 && !(worst <= v->delta_max))
        fail_msg("%s: a logit is off by %g, expected at most %g", v->name, worst, v->delta_max);
    if (!(median <= v->kl_max))
        fail_msg("%s: median KL is %g, expected at most %g", v->name, median, v->kl_max);
    free(y);
    free(want);
    free(at);
    free(ids);
    pn_model_free(m);
}

/* Every odd shape agrees with llama.cpp. */
static void test_variants(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++)
        check_variant(&variants[i], 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_variants) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
