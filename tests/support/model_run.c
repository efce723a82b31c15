#include "support/model_run.h"

#include "support/check.h"

#include "base/file.h"
#include "kernels/kernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *pn_test_tiny(const char *type)
{
    static char path[128];
    if (strcmp(type, "Q4_K_M") == 0)
        return "models/pantheon-tiny-Q4_K_M.gguf";
    snprintf(path, sizeof path, PN_TEST_MODELS "trunk-%s.gguf", type);
    return path;
}

pn_model *pn_test_load(const char *path)
{
    pn_err err = { 0 };
    pn_model *const m = pn_load_ex(path, &(pn_load_opts){ .err = &err });
    if (!m)
        fail_msg("%s", err.msg);
    return m;
}

int pn_test_n_vocab(const pn_model *model)
{
    pn_model_info info;
    pn_model_get_info(model, &info);
    return info.n_vocab;
}

pn_exec *pn_test_exec(const pn_model *model, const pn_run *run)
{
    pn_err err = { 0 };
    pn_exec *ex = NULL;
    const pn_exec_opts opts = { .n_threads = run->n_threads ? run->n_threads : 2,
                                .n_batch = run->n_batch,
                                .isa = run->isa };
    if (pn_exec_new(model, &opts, &ex, &err) != PN_OK)
        fail_msg("%s", err.msg);
    return ex;
}

pn_state *pn_test_state(const pn_model *model, const pn_run *run, int n_ctx)
{
    pn_err err = { 0 };
    pn_state *const s = pn_state_new(
        model, &(pn_state_opts){ .n_ctx = n_ctx, .kv_type = run->kv_type, .err = &err });
    if (!s)
        fail_msg("%s", err.msg);
    return s;
}

void pn_test_feed(pn_exec *ex, const pn_model *model, pn_state *s, const int32_t *ids, int n,
                  float *logits, int n_logits)
{
    const int n_batch = pn_exec_n_batch(ex);
    const size_t n_vocab = (size_t)pn_test_n_vocab(model);
    for (int i = 0; i < n; i += n_batch) {
        const int n_tok = n - i < n_batch ? n - i : n_batch;
        const int over = i + n_tok - (n - n_logits), n_out = over < 0       ? 0
                                                             : over < n_tok ? over
                                                                            : n_tok;
        const pn_part part = { pn_state_seq(s), ids + i, n_tok, logits, n_out };
        pn_err err = { 0 };
        const pn_batch batch = { .parts = &part, .n_part = 1 };
        if (pn_get_forward_fn(model)(ex, &batch, &err) != PN_OK)
            fail_msg("%s", err.msg);
        logits += (size_t)n_out * n_vocab;
    }
}

float *pn_test_logits(const pn_model *model, const pn_run *run, const int32_t *ids, int n)
{
    float *const logits = malloc((size_t)n * (size_t)pn_test_n_vocab(model) * sizeof *logits);
    assert_non_null(logits);
    pn_exec *const ex = pn_test_exec(model, run);
    pn_state *const s = pn_test_state(model, run, n);
    pn_test_feed(ex, model, s, ids, n, logits, n);
    pn_state_free(s);
    pn_exec_free(ex);
    return logits;
}

void *pn_test_read(const char *path, size_t *n)
{
    pn_buf b = { 0 };
    pn_err err = { 0 };
    if (pn_file_read(path, (size_t)1 << 30, &b, &err) != PN_OK)
        fail_msg("%s", err.msg);
    void *const copy = malloc(b.len ? b.len : 1);
    assert_non_null(copy);
    memcpy(copy, b.ptr, b.len);
    if (n)
        *n = b.len / 4;
    pn_buf_free(&b);
    return copy;
}

int pn_test_index(const char *path, pn_test_item *items, int max)
{
    FILE *const f = fopen(path, "r");
    if (!f)
        fail_msg("%s cannot be opened", path);
    int n = 0;
    while (n < max && fscanf(f, "%39s %d", items[n].name, &items[n].n) == 2)
        n++;
    fclose(f);
    assert_in_range(n, 1, max);
    return n;
}

int pn_test_argmax(const float *x, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        best = x[i] > x[best] ? i : best;
    return best;
}

double pn_test_lse(const float *x, int n)
{
    const double max = (double)x[pn_test_argmax(x, n)];
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += exp((double)x[i] - max);
    return max + log(sum);
}

double pn_test_kl(const float *exact, const float *ours, int n)
{
    const double le = pn_test_lse(exact, n), lo = pn_test_lse(ours, n);
    double kl = 0;
    for (int i = 0; i < n; i++) {
        const double log_p = (double)exact[i] - le;
        kl += exp(log_p) * (log_p - ((double)ours[i] - lo));
    }
    return kl;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double pn_test_quantile(double *x, size_t n, double q)
{
    qsort(x, n, sizeof *x, compare);
    const double at = q * (double)(n - 1);
    const size_t i = (size_t)at;
    return i + 1 < n ? x[i] + (at - (double)i) * (x[i + 1] - x[i]) : x[n - 1];
}

void pn_test_same_bits(const char *what, const float *a, const float *b, size_t n_row, size_t n_col)
{
    if (memcmp(a, b, n_row * n_col * sizeof *a) == 0)
        return;
    for (size_t i = 0; i < n_row * n_col; i++)
        if (memcmp(a + i, b + i, sizeof *a) != 0)
            fail_msg("%s: row %zu column %zu is %a, expected %a", what, i / n_col, i % n_col,
                     (double)b[i], (double)a[i]);
}

int pn_test_isas(const char *names[4])
{
    int n = 0;
    for (int i = 0; i < PN_ISA_COUNT && n < 4; i++)
        if (pn_isa_present((pn_isa)i))
            names[n++] = pn_isa_name((pn_isa)i);
    return n;
}
