#include "support/gpu_models.h"

#include "support/check.h"
#include "support/small_model.h"
#include "support/tmpdir.h"

#include "tools/synth.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

gpu_model gpu_small, gpu_mixed_k, gpu_mixed_b;

void gpu_model_open(gpu_model *m, const char *file, int n)
{
    *m = (gpu_model){ .model = pn_test_load(file), .n = n };
    m->n_vocab = (size_t)pn_test_n_vocab(m->model);
    m->ids = calloc((size_t)n, sizeof *m->ids);
    assert_non_null(m->ids);
    for (int i = 0; i < n; i++)
        m->ids[i] = (int32_t)((size_t)(i * 37 + 11) % m->n_vocab);
}

void gpu_model_close(gpu_model *m)
{
    for (int i = 0; i < PN_KV_COUNT; i++)
        free(m->logits[i]);
    free(m->ids);
    pn_model_free(m->model);
    *m = (gpu_model){ 0 };
}

static void open_small(gpu_model *m, int n, int n_ctx)
{
    small_shape shape = small_base();
    if (n_ctx)
        shape.n_ctx = n_ctx;
    small_write(pn_tmpdir_path("small.gguf"), &shape);
    gpu_model_open(m, pn_tmpdir_path("small.gguf"), n);
}

const float *gpu_want(gpu_model *m, pn_kv_type kv_type, int i)
{
    const pn_run run = { .n_threads = 1, .kv_type = kv_type };
    if (!m->logits[kv_type])
        m->logits[kv_type] = pn_test_logits(m->model, &run, m->ids, m->n);
    return m->logits[kv_type] + (size_t)i * m->n_vocab;
}

static const char *const k_types[] = {
    "attn_qkv=q5_k",
    "attn_q=q6_k",
    "attn_k=iq4_xs",
    "attn_v=q3_k",
    "attn_output=q2_k",
    "ffn_up_exps=q3_k",
    "ffn_gate_exps=q3_k",
    "ffn_down_exps=q6_k",
    "ffn_up_shexp=q2_k",
    "ssm_out=q5_k",
    "ffn_down_shexp=q8_0",
    "ssm_alpha=q8_0",
    NULL,
};
static const char *const b_types[] = {
    "attn_qkv=q4_0",
    "attn_q=q4_1",
    "attn_k=q5_0",
    "attn_v=q5_1",
    "attn_output=iq4_nl",
    "ffn_up_exps=mxfp4",
    "ffn_gate_exps=mxfp4",
    "ffn_down_exps=f16",
    "ffn_up_shexp=bf16",
    "ssm_out=f32",
    "output=q6_k",
    "attn_gate=bf16",
    NULL,
};

static void open_mixed(gpu_model *m, const char *quant, const char *const *types, int n_id)
{
    const char *sets[32] = {
        "n_layer=4",      "interval=2",   "n_embd=256",      "n_vocab=512",
        "n_ctx=1024",     "n_head=4",     "n_head_kv=2",     "head_dim=64",
        "n_rot=32",       "n_expert=8",   "n_expert_used=3", "n_ff_exp=256",
        "n_ff_shexp=256", "ssm_state=64", "ssm_groups=2",    "ssm_heads=4",
    };
    size_t n = 16;
    while (*types)
        sets[n++] = *types++;
    char file[PATH_MAX];
    snprintf(file, sizeof file, "%s", pn_tmpdir_path(quant));
    pn_err err = { 0 };
    size_t bytes;
    const pn_synth_opts opts = { .quant = quant, .sets = sets, .n_set = n };
    if (pn_synth_write(file, &opts, &bytes, &err) != PN_OK)
        fail_msg("%s", err.msg);
    gpu_model_open(m, file, n_id);
}

int gpu_models_setup(void **state, int n, int n_ctx, bool has_mixed)
{
    if (pn_tmpdir_setup(state) != 0)
        return -1;
    open_small(&gpu_small, n, n_ctx);
    if (has_mixed) {
        open_mixed(&gpu_mixed_k, "q4_k", k_types, n);
        open_mixed(&gpu_mixed_b, "q8_0", b_types, n);
    }
    return 0;
}

int gpu_models_teardown(void **state)
{
    gpu_model_close(&gpu_small);
    gpu_model_close(&gpu_mixed_k);
    gpu_model_close(&gpu_mixed_b);
    return pn_tmpdir_teardown(state);
}
