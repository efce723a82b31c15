/* What every architecture's model has in common, and the row of the registry that an architecture
 * fills. A new model is one row in registry.c and its own files. */
#ifndef PN_MODELS_MODEL_H
#define PN_MODELS_MODEL_H

#include "gguf/gguf.h"
#include "models/seq.h"
#include "pantheon/pantheon.h"

/* Memory that a model needs beside its file, exact to the byte as allocated. */
typedef struct pn_plan {
    size_t model_bytes;     /* tables made at load: layers, small tensors as f32 */
    size_t workspace_bytes; /* of one pn_exec with its batch and threads */
    size_t recurrent_bytes; /* one sequence: windows and state matrices */
    size_t kv_page_bytes;   /* one page of PN_KV_CHUNK positions */
} pn_plan;

struct pn_placement;

typedef struct pn_arch_ops {
    pn_arch arch;
    const char *name; /* general.architecture */
    /* Fills model->impl, ->layout and ->info from model->file. */
    pn_status (*load)(pn_model *model, const pn_load_opts *opts, pn_err *err);
    void (*free)(void *impl);
    /* The workspace of an exec for n_batch tokens: bytes, then its division. scratch_bytes is
     * what each thread needs. */
    void (*workspace_plan)(const pn_model *model, const pn_exec *exec, size_t *ws_bytes,
                           size_t *scratch_bytes);
    void (*workspace_init)(const pn_model *model, pn_exec *exec);
    pn_forward_fn *forward;
    /* GPUs: what would go where on those that there are (pn_placement_clear); the same opened,
     * filled and put into exec->gpu; and closed. *has_driver tells what kept from it: no driver. */
    pn_status (*gpu_plan)(const pn_exec *exec, const pn_device_opts *opts,
                          struct pn_placement *plan, bool *has_driver, pn_err *err);
    pn_status (*gpu_new)(pn_exec *exec, const pn_device_opts *opts, bool *has_driver, pn_err *err);
    void (*gpu_free)(pn_exec *exec);
    bool (*gpu_bring)(pn_exec *exec, pn_seq *seq); /* pn_exec_bring */
} pn_arch_ops;

struct pn_model {
    const pn_arch_ops *ops;
    pn_gguf *file;
    pn_model_info info;
    pn_seq_layout layout;
    size_t model_bytes; /* allocated by load */
    /* What the loader was told in place of the file's rope.scaling keys: it changes results. */
    char rope_scaling[8]; /* "": nothing */
    float rope_scale;
    int yarn_orig_ctx;
    void *impl; /* pn_qwen35moe */
};

const pn_gguf *pn_model_file(const pn_model *model);

/* The context that a sequence gets which asks for n_ctx positions (0: all that the model has).
 * Errors: PN_ERR_ARG when the model has fewer. */
pn_status pn_model_n_ctx(const pn_model *model, int asked, int *n_ctx, pn_err *err);

/* What n_batch and n_threads would need, without making them. Errors as pn_exec_new. */
pn_status pn_model_plan(const pn_model *model, const pn_exec_opts *opts, pn_kv_type kv_type,
                        pn_plan *plan, pn_err *err);

#endif
