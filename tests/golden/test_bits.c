/* One arithmetic: the logits of a sequence are the same bits for any instruction set, thread count
 * and batch, however a prompt was cut, whatever else is in the batch (docs/NUMERICS.md). Every
 * comparison is memcmp. Axes are swept alone, then some random combinations; SOAK=1 runs the full
 * product. */

#include "support/check.h"
#include "support/model_run.h"

#include "models/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Over a page of KV (128), so that two pages and two attention chunks meet; the first LONG rows are
 * computed by the faster sets, SHORT ones by scalar. */
enum {
    LONG = 150,
    SHORT = 36,
    N_RANDOM = 6, /* combinations of all axes, per file */
};

typedef struct subject {
    const char *name, *path;
    pn_model *model;
    size_t n_vocab;
    int32_t ids[LONG];
    float *base; /* [LONG][n_vocab] by the best set, 2 threads, one pass, f16 */
} subject;

static const int batches[] = { 1, 2, 7, 64, 512 };

/* A xorshift of the test's own: the same choices everywhere. */
static unsigned next_random(void)
{
    static uint32_t s = 20260101;
    s ^= s << 13;
    s ^= s >> 17;
    return s ^= s << 5;
}

static subject open_subject(const char *name, const char *path)
{
    subject s = { .name = name, .path = path, .model = pn_test_load(path) };
    s.n_vocab = (size_t)pn_test_n_vocab(s.model);
    for (int i = 0; i < LONG; i++)
        s.ids[i] = (int32_t)(next_random() % s.n_vocab);
    s.base = pn_test_logits(s.model, &(pn_run){ 0 }, s.ids, LONG);
    return s;
}

static void close_subject(subject *s)
{
    free(s->base);
    pn_model_free(s->model);
}

/* The logits of the first n tokens by one configuration equal `want`. */
static void check_run(const subject *s, const pn_run *run, int n, const float *want)
{
    char what[128];
    snprintf(what, sizeof what, "%s isa %s threads %d batch %d kv %d", s->name, run->isa,
             run->n_threads, run->n_batch, (int)run->kv_type);
    float *const y = pn_test_logits(s->model, run, s->ids, n);
    pn_test_same_bits(what, want, y, (size_t)n, s->n_vocab);
    free(y);
}

static int tokens_for(const char *isa)
{
    return strcmp(isa, "scalar") == 0 ? SHORT : LONG;
}

static void check_axes(subject *s)
{
    const char *isas[4];
    const int n_isa = pn_test_isas(isas);
    const char *const best = isas[n_isa - 1];
    int n_run = 0;
    const char *const soak = getenv("SOAK");
    if (soak && *soak) {
        for (int i = 0; i < n_isa; i++)
            for (int t = 1; t <= 3; t++)
                for (size_t b = 0; b < 5; b++, n_run++)
                    check_run(s, &(pn_run){ isas[i], t, batches[b], PN_KV_F16 },
                              tokens_for(isas[i]), s->base);
    } else {
        for (int i = 0; i < n_isa; i++, n_run++)
            check_run(s, &(pn_run){ isas[i], 2, 64, PN_KV_F16 }, tokens_for(isas[i]), s->base);
        for (int t = 1; t <= 3; t++, n_run++)
            check_run(s, &(pn_run){ best, t, 512, PN_KV_F16 }, LONG, s->base);
        for (size_t b = 0; b < 5; b++, n_run++)
            check_run(s, &(pn_run){ best, 2, batches[b], PN_KV_F16 }, LONG, s->base);
        for (int i = 0; i < N_RANDOM; i++, n_run++)
            check_run(s,
                      &(pn_run){ isas[next_random() % (unsigned)n_isa],
                                 1 + (int)(next_random() % 3), batches[next_random() % 5],
                                 PN_KV_F16 },
                      SHORT, s->base);
    }
    print_message("%-10s %d configurations give the same bits\n", s->name, n_run);
}

/* Prefill then decode equals all-decode and one pass; a reset sequence equals a new one, also
 * where it had been longer. */
static void check_cuts(const subject *s)
{
    const pn_run run = { 0 };
    float *const y = malloc(LONG * s->n_vocab * sizeof *y);
    assert_non_null(y);
    pn_exec *const ex = pn_test_exec(s->model, &run);
    pn_state *const st = pn_test_state(s->model, &run, LONG);
    static const int cuts[] = { 1, 3, 63, 64, 127, 128, 129, 140 };
    for (size_t c = 0; c < sizeof cuts / sizeof *cuts; c++) {
        const int n = cuts[c], end = n + 9 < LONG ? n + 9 : LONG;
        pn_state_reset(st);
        pn_test_feed(ex, s->model, st, s->ids, n, y, n);
        for (int i = n; i < end; i++)
            pn_test_feed(ex, s->model, st, s->ids + i, 1, y + (size_t)i * s->n_vocab, 1);
        char what[96];
        snprintf(what, sizeof what, "%s cut at %d", s->name, n);
        pn_test_same_bits(what, s->base, y, (size_t)end, s->n_vocab);
        assert_int_equal(pn_seq_pos(pn_state_seq(st)), end);
    }
    pn_state_free(st);
    pn_exec_free(ex);
    free(y);
}

/* Logits asked for only some rows are those rows of all; asking for none changes no later row. */
static void check_subsets(const subject *s)
{
    const pn_run run = { 0 };
    static const int n_logits[] = { 0, 1, 5, 40 };
    float *const y = malloc(40 * s->n_vocab * sizeof *y);
    assert_non_null(y);
    pn_exec *const ex = pn_test_exec(s->model, &run);
    for (size_t i = 0; i < 4; i++) {
        pn_state *const st = pn_test_state(s->model, &run, LONG);
        pn_test_feed(ex, s->model, st, s->ids, 40, y, n_logits[i]);
        pn_test_same_bits("subset", s->base + (size_t)(40 - n_logits[i]) * s->n_vocab, y,
                          (size_t)n_logits[i], s->n_vocab);
        pn_test_feed(ex, s->model, st, s->ids + 40, 1, y, 1);
        pn_test_same_bits("after a subset", s->base + 40 * s->n_vocab, y, 1, s->n_vocab);
        pn_state_free(st);
    }
    pn_exec_free(ex);
    free(y);
}

/* Four sequences of other tokens and lengths in one batch, some reading a prompt, some decoding,
 * each as if alone. Sequence i holds the ids rotated by 11 i. */
enum {
    N_SEQ = 4
};

static void check_neighbours(const subject *s)
{
    static const int first[N_SEQ] = { 1, 33, 17, 64 }, then[N_SEQ] = { 40, 1, 1, 70 };
    const pn_run run = { 0 };
    int32_t ids[N_SEQ][LONG];
    float *alone[N_SEQ], *y[N_SEQ];
    pn_state *st[N_SEQ];
    pn_part parts[N_SEQ];
    pn_exec *const ex = pn_test_exec(s->model, &run);
    for (int i = 0; i < N_SEQ; i++) {
        for (int j = 0; j < LONG; j++)
            ids[i][j] = s->ids[(j + 11 * i) % LONG];
        alone[i] = pn_test_logits(s->model, &run, ids[i], first[i] + then[i]);
        y[i] = malloc(LONG * s->n_vocab * sizeof *y[i]);
        assert_non_null(y[i]);
        st[i] = pn_test_state(s->model, &run, LONG);
    }
    for (int round = 0; round < 2; round++) {
        const int *const n_tok = round ? then : first;
        for (int i = 0; i < N_SEQ; i++) {
            const int at = round ? first[i] : 0;
            parts[i] = (pn_part){ pn_state_seq(st[i]), ids[i] + at, n_tok[i],
                                  y[i] + (size_t)at * s->n_vocab, n_tok[i] };
        }
        pn_err err = { 0 };
        const pn_batch batch = { .parts = parts, .n_part = N_SEQ };
        if (pn_get_forward_fn(s->model)(ex, &batch, &err) != PN_OK)
            fail_msg("%s", err.msg);
    }
    for (int i = 0; i < N_SEQ; i++) {
        char what[64];
        snprintf(what, sizeof what, "%s sequence %d in a batch", s->name, i);
        pn_test_same_bits(what, alone[i], y[i], (size_t)(first[i] + then[i]), s->n_vocab);
        free(alone[i]);
        free(y[i]);
        pn_state_free(st[i]);
    }
    pn_exec_free(ex);
}

/* Every KV type keeps the promise by itself, and each is another rounding: their logits differ. */
static void check_kv_types(const subject *s)
{
    const char *isas[4];
    const int n_isa = pn_test_isas(isas);
    for (int kv = PN_KV_F32; kv < PN_KV_COUNT; kv++) {
        if (kv == PN_KV_Q8_0 && s->model->layout.head_dim % 32)
            continue;
        float *const want =
            pn_test_logits(s->model, &(pn_run){ .kv_type = (pn_kv_type)kv }, s->ids, LONG);
        assert_memory_not_equal(want, s->base, LONG * s->n_vocab * sizeof *want);
        for (int i = 0; i < n_isa; i++)
            check_run(s, &(pn_run){ isas[i], 1 + i % 3, i % 2 ? 7 : 64, (pn_kv_type)kv },
                      tokens_for(isas[i]), want);
        check_run(s, &(pn_run){ isas[n_isa - 1], 3, 1, (pn_kv_type)kv }, LONG, want);
        free(want);
    }
}

static void check_all(const char *name, const char *path)
{
    subject s = open_subject(name, path);
    check_axes(&s);
    check_cuts(&s);
    check_subsets(&s);
    check_neighbours(&s);
    check_kv_types(&s);
    close_subject(&s);
}

/* The promise on the four bundled quantisations of the trained model. */
static void test_bits_bf16(void **state)
{
    (void)state;
    check_all("bf16", pn_test_tiny("bf16"));
}

static void test_bits_q8_0(void **state)
{
    (void)state;
    check_all("Q8_0", pn_test_tiny("Q8_0"));
}

static void test_bits_q4_k_m(void **state)
{
    (void)state;
    check_all("Q4_K_M", pn_test_tiny("Q4_K_M"));
}

static void test_bits_q3_k_m(void **state)
{
    (void)state;
    check_all("Q3_K_M", pn_test_tiny("Q3_K_M"));
}

/* And on odd shapes and types, whose rows end inside a vector. */
static void test_bits_variants(void **state)
{
    (void)state;
    static const char *const names[] = { "v3k", "mqa", "tied", "f16", "q8", "q51" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[128];
        snprintf(path, sizeof path, PN_TEST_MODELS "variants/%s.gguf", names[i]);
        check_all(names[i], path);
    }
}

/* A prompt of 780 tokens, over six pages of KV, in passes of 512, 64 and 7, by every set but
 * scalar. */
static void test_bits_long(void **state)
{
    (void)state;
    enum {
        N = 780,
        N_LOGITS = 20
    };
    pn_test_item items[16];
    const int n_item = pn_test_index(PN_TEST_MODELS "prompts.txt", items, 16);
    int32_t *const all = pn_test_read(PN_TEST_MODELS "prompts.i32", NULL);
    const int32_t *ids = all;
    int i = 0;
    for (; i < n_item && items[i].n != N; i++)
        ids += items[i].n;
    assert_true(i < n_item);
    pn_model *const m = pn_test_load(pn_test_tiny("Q4_K_M"));
    const size_t V = (size_t)pn_test_n_vocab(m);
    float *const want = malloc(2 * N_LOGITS * V * sizeof *want), *const y = want + N_LOGITS * V;
    assert_non_null(want);
    const char *isas[4];
    const int n_isa = pn_test_isas(isas);
    for (int k = 0, n_run = 0; k < n_isa; k++)
        for (int b = 2; b < 5 && (k > 0 || n_isa == 1); b++, n_run++) {
            const pn_run run = { isas[k], 1 + b % 3, batches[b], PN_KV_F16 };
            pn_exec *const ex = pn_test_exec(m, &run);
            pn_state *const s = pn_test_state(m, &run, N);
            pn_test_feed(ex, m, s, ids, N, n_run ? y : want, N_LOGITS);
            if (n_run)
                pn_test_same_bits(isas[k], want, y, N_LOGITS, V);
            pn_state_free(s);
            pn_exec_free(ex);
        }
    free(want);
    free(all);
    pn_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits_bf16),     cmocka_unit_test(test_bits_q8_0),
        cmocka_unit_test(test_bits_q4_k_m),   cmocka_unit_test(test_bits_q3_k_m),
        cmocka_unit_test(test_bits_variants), cmocka_unit_test(test_bits_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
