/* Models of the real shapes with random weights, for benchmarks and tests: any qwen35moe shape,
 * any supported tensor types, reproducible by seed. */
#ifndef PN_TOOLS_SYNTH_H
#define PN_TOOLS_SYNTH_H

#include "base/buf.h"
#include "base/status.h"

typedef struct pn_synth_opts {
    const char *preset; /* "tiny" or "35b-a3b"; NULL: tiny */
    int n_layer;        /* trunk layers; 0: the preset's */
    const char *quant;  /* a mix or a type name (pn_synth_quant_names); NULL: q4_k_m */
    bool with_mtp;      /* one MTP block behind the trunk */
    uint64_t seed;
    /* "key=value": a shape key (pn_synth_set_help) with an integer, or a matrix by its GGUF name
     * without block and ".weight" (attn_v) with a type name. */
    const char *const *sets; /* [n_set] */
    size_t n_set;
    pn_progress_fn *progress; /* may be NULL */
    void *progress_ctx;
} pn_synth_opts;

/* Writes the model to path; on failure nothing is left there. *bytes: the size of what was written.
 *
 * Weights: matrices have mean 0 and deviation 1/sqrt(row length), so that activations keep their
 * order through any number of layers; token_embd has deviation 1; norms are near 1; ssm_a, ssm_dt
 * lie in the ranges that trained models have.
 * Errors: PN_ERR_ARG for options that name or mean nothing; PN_ERR_IO; PN_ERR_CANCELLED. */
pn_status pn_synth_write(const char *path, const pn_synth_opts *opts, size_t *bytes, pn_err *err);

/* Appends the keys of `sets` and their meaning, one a line. */
void pn_synth_set_help(pn_buf *out);

#endif
