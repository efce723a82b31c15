/* Logits of the trained tiny model against exact float32 mathematics on the same weights, with
 * llama.cpp's distance from it on the same files as the mark; and greedy text.
 * Data: tests/golden/data/model/README.md. */

#include "support/check.h"
#include "support/model_run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_PROMPTS = 16,
    N_LAST = 16,   /* positions with whole rows of logits */
    N_TOP = 20,    /* largest logits kept of the others */
    N_GREEDY = 64, /* tokens of greedy text */
};

typedef struct marks { /* llama.cpp's figures for one type */
    double median, p90, mean, delta_p90;
} marks;

typedef struct golden {
    pn_model *model;
    int n_vocab, n_prompt;
    pn_test_item prompts[MAX_PROMPTS];
    int32_t *ids;
    float *last, *top, *lse, *margins;
    int32_t *top_ids, *greedy;
    marks marks;
} golden;

static void *read_part(const char *type, const char *what)
{
    char path[128];
    snprintf(path, sizeof path, PN_TEST_MODELS "%s.%s", type, what);
    return pn_test_read(path, NULL);
}

static marks read_marks(const char *type)
{
    FILE *const f = fopen(PN_TEST_MODELS "llamacpp.txt", "r");
    assert_non_null(f);
    char name[16];
    marks m = { 0 };
    bool found = false;
    while (!found &&
           fscanf(f, "%15s %lf %lf %lf %lf", name, &m.median, &m.p90, &m.mean, &m.delta_p90) == 5)
        found = strcmp(name, type) == 0;
    fclose(f);
    assert_true(found);
    return m;
}

static golden golden_open(const char *type)
{
    golden g = { .model = pn_test_load(pn_test_tiny(type)), .marks = read_marks(type) };
    g.n_vocab = pn_test_n_vocab(g.model);
    g.n_prompt = pn_test_index(PN_TEST_MODELS "prompts.txt", g.prompts, MAX_PROMPTS);
    g.ids = pn_test_read(PN_TEST_MODELS "prompts.i32", NULL);
    g.last = read_part(type, "last.f32");
    g.top = read_part(type, "top.f32");
    g.top_ids = read_part(type, "top_ids.i32");
    g.lse = read_part(type, "lse.f32");
    g.greedy = read_part(type, "greedy.i32");
    g.margins = read_part(type, "margins.f32");
    return g;
}

static void golden_close(golden *g)
{
    void *const all[] = { g->ids, g->last, g->top, g->top_ids, g->lse, g->greedy, g->margins };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    pn_model_free(g->model);
}

/* Distances of one type, over all prompts. */
typedef struct distances {
    double kl[MAX_PROMPTS * N_LAST]; /* of the whole rows */
    size_t n_kl;
    double delta[MAX_PROMPTS * N_LAST]; /* their largest logit difference */
    double *log_p; /* of the earlier rows: largest |log p difference|, top 20 */
    size_t n_log_p;
} distances;

static void measure(const golden *g, const pn_run *run, distances *d)
{
    const size_t V = (size_t)g->n_vocab;
    const float *last = g->last;
    const int32_t *ids = g->ids;
    size_t i_early = 0;
    for (int ip = 0; ip < g->n_prompt; ip++) {
        const int n = g->prompts[ip].n, n_early = n > N_LAST ? n - N_LAST : 0;
        float *const y = pn_test_logits(g->model, run, ids, n);
        for (int i = 0; i < n_early; i++, i_early++) {
            const float *const row = y + (size_t)i * V;
            const double lse = pn_test_lse(row, g->n_vocab);
            double worst = 0;
            for (size_t j = i_early * N_TOP; j < (i_early + 1) * N_TOP; j++) {
                const double ours = (double)row[g->top_ids[j]] - lse;
                const double exact = (double)g->top[j] - (double)g->lse[i_early];
                worst = fmax(worst, fabs(ours - exact));
            }
            d->log_p[d->n_log_p++] = worst;
        }
        for (int i = n_early; i < n; i++, last += V) {
            const float *const row = y + (size_t)i * V;
            double delta = 0;
            for (size_t j = 0; j < V; j++)
                delta = fmax(delta, fabs((double)row[j] - (double)last[j]));
            d->delta[d->n_kl] = delta;
            d->kl[d->n_kl++] = pn_test_kl(last, row, g->n_vocab);
        }
        ids += n;
        free(y);
    }
}

/* Median and 90 % quantile of KL(exact, ours) at most these parts of llama.cpp's. */
static void check_type(const char *type, double median_max, double p90_max)
{
    golden g = golden_open(type);
    distances d = { .log_p = malloc(4096 * sizeof(double)) };
    assert_non_null(d.log_p);
    measure(&g, &(pn_run){ 0 }, &d);
    double mean = 0;
    for (size_t i = 0; i < d.n_kl; i++)
        mean += d.kl[i] / (double)d.n_kl;
    const double median = pn_test_quantile(d.kl, d.n_kl, 0.5);
    const double p90 = pn_test_quantile(d.kl, d.n_kl, 0.9);
    const double delta = pn_test_quantile(d.delta, d.n_kl, 0.5);
    const double early = pn_test_quantile(d.log_p, d.n_log_p, 0.5);
    const double early_p90 = pn_test_quantile(d.log_p, d.n_log_p, 0.9);
    print_message("%-7s %zu rows: KL median %.3g (llama.cpp %.3g), p90 %.3g (%.3g), mean %.3g "
                  "(%.3g); largest logit difference median %.3g\n",
                  type, d.n_kl, median, g.marks.median, p90, g.marks.p90, mean, g.marks.mean,
                  delta);
    print_message(
        "        %zu earlier rows: log p of the top 20 off by %.3g (median), %.3g (p90)\n",
        d.n_log_p, early, early_p90);
    assert_true(median <= median_max * g.marks.median);
    assert_true(p90 <= p90_max * g.marks.p90);
    /* log p = logit - lse, so its error is at most twice the largest logit difference, for which
     * llama.cpp's 90 % quantile over all positions is the mark */
    assert_true(early_p90 <= 2 * g.marks.delta_p90);
    assert_true(early <= g.marks.delta_p90);
    free(d.log_p);
    golden_close(&g);
}

/* With exact weights the distance is float rounding and the f16 of the KV cache: a tenth of
 * llama.cpp's, which rounds activations to bf16. */
static void test_logits_bf16(void **state)
{
    (void)state;
    check_type("bf16", 0.1, 0.1);
}

/* With 8-bit weights and activations no farther from exact than llama.cpp. */
static void test_logits_q8_0(void **state)
{
    (void)state;
    check_type("Q8_0", 1.0, 1.0);
}

/* On K-quants activations carry sub-scales, so the median is 0.7 of llama.cpp's or less. */
static void test_logits_q4_k_m(void **state)
{
    (void)state;
    check_type("Q4_K_M", 0.7, 1.0);
}

static void test_logits_q3_k_m(void **state)
{
    (void)state;
    check_type("Q3_K_M", 0.7, 1.0);
}

/* Greedy text equals the exact reference's, or parts from it where the exact logits were so close
 * that twice the usual error decides. */
static void check_greedy(const char *type)
{
    golden g = golden_open(type);
    const int32_t *ids = g.ids;
    const pn_run run = { 0 };
    int n_same = 0;
    pn_exec *const ex = pn_test_exec(g.model, &run);
    for (int ip = 0; ip < g.n_prompt; ip++) {
        const int n = g.prompts[ip].n;
        const int32_t *const want = g.greedy + ip * N_GREEDY;
        float *const y = malloc((size_t)g.n_vocab * sizeof *y);
        pn_state *const s = pn_test_state(g.model, &run, n + N_GREEDY);
        pn_test_feed(ex, g.model, s, ids, n, y, 1);
        int32_t tok = pn_test_argmax(y, g.n_vocab);
        int i = 0;
        for (; i < N_GREEDY && tok == want[i]; i++) {
            pn_test_feed(ex, g.model, s, &tok, 1, y, 1);
            tok = pn_test_argmax(y, g.n_vocab);
        }
        if (i < N_GREEDY) {
            const double margin = (double)g.margins[ip * N_GREEDY + i];
            print_message("%s %s: parts at step %d, where the exact margin is %.3g\n", type,
                          g.prompts[ip].name, i, margin);
            if (!(margin < 2 * g.marks.delta_p90))
                fail_msg("%s %s: token %d is %d, expected %d (margin %g, allowed under %g)", type,
                         g.prompts[ip].name, i, tok, want[i], margin, 2 * g.marks.delta_p90);
        } else {
            n_same++;
        }
        pn_state_free(s);
        free(y);
        ids += n;
    }
    print_message("%-7s greedy: %d of %d texts of %d tokens are the exact ones\n", type, n_same,
                  g.n_prompt, N_GREEDY);
    pn_exec_free(ex);
    golden_close(&g);
}

static void test_greedy(void **state)
{
    (void)state;
    static const char *const types[] = { "bf16", "Q8_0", "Q4_K_M", "Q3_K_M" };
    for (size_t i = 0; i < 4; i++)
        check_greedy(types[i]);
}

/* The trunk of a file with an MTP block: the argmax of every position is the exact trunk's, but
 * where two logits are nearly equal; how many may differ is what llama.cpp's own logits show
 * (top-1 agreement 98.66 % for this type). */
static void test_mtp_trunk(void **state)
{
    (void)state;
    pn_test_item items[MAX_PROMPTS];
    const int n_item = pn_test_index(PN_TEST_MODELS "mtp.txt", items, MAX_PROMPTS);
    int32_t *const ids = pn_test_read(PN_TEST_MODELS "mtp.i32", NULL);
    int32_t *const want = pn_test_read(PN_TEST_MODELS "mtp_argmax.i32", NULL);
    pn_model *const m = pn_test_load(PN_TEST_MODELS "mtp-Q4_K_M.gguf");
    const int n_vocab = pn_test_n_vocab(m);
    pn_model_info info;
    pn_model_get_info(m, &info);
    assert_int_equal(info.n_layer, 8);
    int n_same = 0, n_all = 0;
    for (int i = 0; i < n_item; i++) {
        float *const y = pn_test_logits(m, &(pn_run){ 0 }, ids + n_all, items[i].n);
        for (int it = 0; it < items[i].n; it++)
            n_same += pn_test_argmax(y + (size_t)it * (size_t)n_vocab, n_vocab) == want[n_all + it];
        n_all += items[i].n;
        free(y);
    }
    print_message("mtp     trunk: %d of %d argmaxes are the exact ones\n", n_same, n_all);
    assert_true(n_same >= 0.9866 * n_all);
    free(ids);
    free(want);
    pn_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logits_bf16),   cmocka_unit_test(test_logits_q8_0),
        cmocka_unit_test(test_logits_q4_k_m), cmocka_unit_test(test_logits_q3_k_m),
        cmocka_unit_test(test_greedy),        cmocka_unit_test(test_mtp_trunk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
