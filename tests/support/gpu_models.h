/* Models and the CPU's logits of them, for tests that compare a GPU's with those. Whatever cannot
 * be done fails the test with the reason. */
#ifndef PN_TESTS_SUPPORT_GPU_MODELS_H
#define PN_TESTS_SUPPORT_GPU_MODELS_H

#include "support/model_run.h"

/* A model and, for each KV type, the logits of ids on the CPU. */
typedef struct gpu_model {
    pn_model *model;
    size_t n_vocab;
    int n;                      /* ids */
    int32_t *ids;               /* [n] */
    float *logits[PN_KV_COUNT]; /* [n][n_vocab]; NULL: not made yet */
} gpu_model;

void gpu_model_open(gpu_model *m, const char *file, int n);
void gpu_model_close(gpu_model *m); /* takes the zero struct */
/* The CPU's logits of position i. */
const float *gpu_want(gpu_model *m, pn_kv_type kv_type, int i);

/* Two layers of floats, of odd shapes (support/small_model.h); four layers, every second with
 * attention, of all quantised types: of those of 256 weights; of those of 32, and floats. */
extern gpu_model gpu_small, gpu_mixed_k, gpu_mixed_b;

/* cmocka's set-up and its end: a folder of the test's own, in it these models with n ids; n_ctx: of
 * the small one, 0: its own. */
int gpu_models_setup(void **state, int n, int n_ctx, bool has_mixed);
int gpu_models_teardown(void **state);

#endif
