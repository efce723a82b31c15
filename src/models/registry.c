/* The architectures that can be loaded, one row each, and the front of the model API. */
#include "models/exec.h"
#include "models/qwen35moe.h"

#include "base/mem.h"

#include <stdio.h>
#include <string.h>

static const pn_arch_ops *const archs[] = { &pn_qwen35moe_ops };

static const pn_arch_ops *find_arch(pn_span name)
{
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++)
        if (strlen(archs[i]->name) == name.len && memcmp(archs[i]->name, name.ptr, name.len) == 0)
            return archs[i];
    return NULL;
}

static pn_status load(pn_model *model, const char *path, const pn_load_opts *opts, pn_err *err)
{
    const pn_gguf_opts gguf_opts = {
        .no_mmap = opts->no_mmap,
        .lock = opts->mlock,
        .progress = opts->progress,
        .progress_ctx = opts->ctx,
    };
    PN_TRY(pn_gguf_open(path, &gguf_opts, &model->file, err));
    pn_span name;
    PN_TRY(pn_gguf_get_str(model->file, "general.architecture", &name, err));
    model->ops = find_arch(name);
    if (!model->ops)
        return pn_fail(err, PN_ERR_UNSUPPORTED,
                       "general.architecture is %.*s; supported: qwen35moe",
                       (int)(name.len < 60 ? name.len : 60), name.ptr);
    model->info.arch = model->ops->arch;
    model->info.arch_name = model->ops->name;
    model->info.path = pn_gguf_path(model->file);
    PN_TRY(model->ops->load(model, opts, err));
    if (opts->rope_scaling) { /* one of three short names, else load had failed */
        snprintf(model->rope_scaling, sizeof model->rope_scaling, "%s", opts->rope_scaling);
        model->rope_scale = opts->rope_scale;
        model->yarn_orig_ctx = opts->yarn_orig_ctx;
    }
    return PN_OK;
}

pn_model *pn_load_ex(const char *path, const pn_load_opts *opts)
{
    static const pn_load_opts none;
    opts = opts ? opts : &none;
    pn_model *const model = pn_calloc(1, sizeof *model);
    if (!model) {
        pn_fail(opts->err, PN_ERR_NOMEM, "no memory for a model");
        return NULL;
    }
    pn_err err = { 0 };
    if (load(model, path, opts, &err) != PN_OK) {
        if (model->file) /* the reader's own errors name the file already */
            pn_err_prefix(&err, "%s: ", path);
        if (opts->err)
            *opts->err = err;
        pn_model_free(model);
        return NULL;
    }
    return model;
}

void pn_model_free(pn_model *model)
{
    if (!model)
        return;
    if (model->ops)
        model->ops->free(model->impl);
    pn_gguf_close(model->file);
    pn_free(model);
}

void pn_model_get_info(const pn_model *model, pn_model_info *info)
{
    *info = model->info;
}

const pn_gguf *pn_model_file(const pn_model *model)
{
    return model->file;
}

pn_forward_fn *pn_get_forward_fn(const pn_model *model)
{
    return model->ops->forward;
}

pn_status pn_model_n_ctx(const pn_model *model, int asked, int *n_ctx, pn_err *err)
{
    const int most = model->info.n_ctx_train;
    if (asked < 0 || asked > most)
        return pn_fail(err, PN_ERR_ARG, "context of %d tokens: expected 1 to the model's %d", asked,
                       most);
    *n_ctx = asked ? asked : most;
    return PN_OK;
}

pn_state *pn_state_new(const pn_model *model, const pn_state_opts *opts)
{
    static const pn_state_opts none;
    opts = opts ? opts : &none;
    int n_ctx = 0;
    if (pn_model_n_ctx(model, opts->n_ctx, &n_ctx, opts->err) != PN_OK)
        return NULL;
    pn_state *const state = pn_calloc(1, sizeof *state);
    if (!state) {
        pn_fail(opts->err, PN_ERR_NOMEM, "no memory for a state");
        return NULL;
    }
    if (pn_seq_init(&state->seq, &model->layout, opts->kv_type, n_ctx, NULL, opts->err) != PN_OK) {
        pn_free(state);
        return NULL;
    }
    if (pn_seq_reserve(&state->seq, n_ctx, opts->err) != PN_OK) {
        pn_state_free(state);
        return NULL;
    }
    return state;
}

void pn_state_free(pn_state *state)
{
    if (!state)
        return;
    pn_seq_clear(&state->seq);
    pn_free(state);
}

void pn_state_reset(pn_state *state)
{
    pn_seq_reset(&state->seq);
}

pn_seq *pn_state_seq(pn_state *state)
{
    return &state->seq;
}
