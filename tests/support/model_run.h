/* Running token sequences through a model and comparing logits, for tests. Whatever cannot be done
 * fails the test with the reason. */
#ifndef PN_TESTS_SUPPORT_MODEL_RUN_H
#define PN_TESTS_SUPPORT_MODEL_RUN_H

#include "pantheon/pantheon.h"

#define PN_TEST_MODELS "tests/golden/data/model/"

typedef struct pn_run {
    const char *isa;    /* NULL: the best present */
    int n_threads;      /* 0: 2 */
    int n_batch;        /* tokens of one pass; 0: 512 */
    pn_kv_type kv_type; /* f16 by default */
} pn_run;

/* The path of the tiny model of a type such as "bf16": one of the bundled four. The last of these
 * paths is valid. */
const char *pn_test_tiny(const char *type);
pn_model *pn_test_load(const char *path);
int pn_test_n_vocab(const pn_model *model);
pn_exec *pn_test_exec(const pn_model *model, const pn_run *run);
/* A sequence of exactly n_ctx positions. */
pn_state *pn_test_state(const pn_model *model, const pn_run *run, int n_ctx);

/* Appends n tokens to the sequence, in passes of at most the exec's batch, and writes the logits
 * [n_logits][n_vocab] of the last n_logits of them. */
void pn_test_feed(pn_exec *ex, const pn_model *model, pn_state *s, const int32_t *ids, int n,
                  float *logits, int n_logits);
/* The logits [n][n_vocab] of all positions on a new exec and state; the caller's, free(). */
float *pn_test_logits(const pn_model *model, const pn_run *run, const int32_t *ids, int n);

/* A whole file of 4-byte items; the caller's, free(). n may be NULL. */
void *pn_test_read(const char *path, size_t *n);

/* Names and lengths of the records of an index file ("name n" a line). */
typedef struct pn_test_item {
    char name[40];
    int n;
} pn_test_item;
/* Returns how many, at most max. */
int pn_test_index(const char *path, pn_test_item *items, int max);

/* KL divergence in nats of softmax(ours) from softmax(exact), in binary64; log-sum-exp; the index
 * of the largest (the first of equals). */
double pn_test_kl(const float *exact, const float *ours, int n);
double pn_test_lse(const float *x, int n);
int pn_test_argmax(const float *x, int n);
/* Sorts x [n] and returns its q quantile, linear between neighbours (numpy's default). */
double pn_test_quantile(double *x, size_t n, double q);

/* memcmp of two blocks of logits; a failure names `what`, the first differing row and column. */
void pn_test_same_bits(const char *what, const float *a, const float *b, size_t n_row,
                       size_t n_col);

/* The instruction sets of this processor, worst first. Returns how many. */
int pn_test_isas(const char *names[4]);

#endif
