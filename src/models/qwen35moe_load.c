/* Keys and tensors of a qwen35moe file into a pn_qwen35moe: everything is checked here, so that the
 * forward pass trusts it. Source of the keys and shapes: docs/QWEN35MOE.md. */
#include "models/qwen35moe.h"

#include "base/mem.h"
#include "models/tensors.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define KEY(name) "qwen35moe." name

/* --- keys ------------------------------------------------------------------------------------- */

/* A required (is_required) or optional integer key within [lo, hi]; an absent optional key leaves
 * *out as it is. */
static pn_status key_int(const pn_gguf *f, const char *key, bool is_required, int lo, int hi,
                         int *out, pn_err *err)
{
    if (!is_required && !pn_gguf_has(f, key))
        return PN_OK;
    uint32_t v;
    PN_TRY(pn_gguf_get_u32(f, key, &v, err));
    if (v < (uint32_t)lo || v > (uint32_t)hi)
        return pn_fail(err, PN_ERR_FORMAT, "%s is %" PRIu32 ", expected %d to %d", key, v, lo, hi);
    *out = (int)v;
    return PN_OK;
}

/* A key that is one integer for all layers or an array with one for each of block_count layers. */
static pn_status key_per_layer(const pn_gguf *f, const char *key, int n_block, int n_layer,
                               int32_t *out, pn_err *err)
{
    const uint64_t len = pn_gguf_arr_len(f, key);
    if (len > 1 && len != (uint64_t)n_block && len != (uint64_t)n_layer)
        return pn_fail(err, PN_ERR_FORMAT, "%s has %" PRIu64 " entries, expected 1 or %d", key, len,
                       n_block);
    return pn_gguf_get_arr_i32(f, key, (size_t)n_layer, out, err);
}

static pn_status load_sections(const pn_gguf *f, pn_rope_cfg *rope, pn_err *err)
{
    const char *const key = KEY("rope.dimension_sections");
    int32_t s[4] = { rope->n_rot / 2, 0, 0, 0 };
    if (pn_gguf_has(f, key)) {
        const uint64_t len = pn_gguf_arr_len(f, key);
        if (len != 3 && len != 4)
            return pn_fail(err, PN_ERR_FORMAT, "%s has %" PRIu64 " entries, expected 3 or 4", key,
                           len);
        PN_TRY(pn_gguf_get_arr_i32(f, key, (size_t)len, s, err));
        if (s[3])
            return pn_fail(err, PN_ERR_FORMAT, "%s: the fourth section is %d, expected 0", key,
                           s[3]);
    }
    memcpy(rope->sections, s, sizeof rope->sections);
    return PN_OK;
}

/* The scaling that the file names, or the caller's instead of it. */
static pn_status load_scaling(const pn_gguf *f, const pn_load_opts *opts, pn_qwen35moe_cfg *c,
                              pn_err *err)
{
    pn_rope_cfg *const r = &c->rope;
    pn_span type = { "none", 4 };
    PN_TRY(pn_gguf_opt_str(f, KEY("rope.scaling.type"), &type, err));
    PN_TRY(pn_gguf_opt_f32(f, KEY("rope.scaling.factor"), &r->factor, err));
    PN_TRY(pn_gguf_opt_f32(f, KEY("rope.scaling.attn_factor"), &r->attn_factor, err));
    r->n_ctx_orig = c->n_ctx;
    PN_TRY(key_int(f, KEY("rope.scaling.original_context_length"), false, 1, INT32_MAX,
                   &r->n_ctx_orig, err));
    if (opts && opts->rope_scaling) {
        type = (pn_span){ opts->rope_scaling, strlen(opts->rope_scaling) };
        if (opts->rope_scale > 0.0f)
            r->factor = opts->rope_scale;
        if (opts->yarn_orig_ctx > 0)
            r->n_ctx_orig = opts->yarn_orig_ctx;
    }
    static const char *const names[] = { "none", "linear", "yarn" };
    for (int i = 0; i < 3; i++)
        if (type.len == strlen(names[i]) && memcmp(type.ptr, names[i], type.len) == 0) {
            r->scaling = (pn_rope_scaling)i;
            if (opts && opts->rope_scaling && i != PN_ROPE_NONE) {
                const double n_ctx = (double)r->n_ctx_orig * (double)r->factor;
                c->n_ctx = n_ctx < INT32_MAX ? (int)n_ctx : INT32_MAX;
            }
            return PN_OK;
        }
    return pn_fail(err, PN_ERR_UNSUPPORTED,
                   "rope.scaling.type is %.*s; supported: none linear yarn",
                   (int)(type.len < 40 ? type.len : 40), type.ptr);
}

static pn_status load_cfg(const pn_gguf *f, const pn_load_opts *opts, pn_qwen35moe_cfg *c,
                          pn_err *err)
{
    int n_block = 0, n_kv_dim = 0;
    *c = (pn_qwen35moe_cfg){
        .rope = { .freq_base = 1e7f, .factor = 1.0f, .attn_factor = 1.0f },
        .expert_weights_scale = 1.0f,
    };
    PN_TRY(key_int(f, KEY("block_count"), true, 1, PN_QWEN35MOE_MAX_LAYERS, &n_block, err));
    PN_TRY(key_int(f, KEY("nextn_predict_layers"), false, 0, n_block - 1, &c->n_nextn, err));
    c->n_layer = n_block - c->n_nextn;
    PN_TRY(key_int(f, KEY("embedding_length"), true, 1, PN_QWEN35MOE_MAX_EMBD, &c->n_embd, err));
    PN_TRY(key_int(f, KEY("context_length"), true, 1, INT32_MAX, &c->n_ctx, err));
    PN_TRY(pn_gguf_get_f32(f, KEY("attention.layer_norm_rms_epsilon"), &c->rms_eps, err));
    if (!(c->rms_eps > 0.0f && c->rms_eps < 1.0f))
        return pn_fail(err, PN_ERR_FORMAT, "%s is %g, expected more than 0 and less than 1",
                       KEY("attention.layer_norm_rms_epsilon"), (double)c->rms_eps);

    PN_TRY(key_int(f, KEY("attention.key_length"), true, 2, PN_QWEN35MOE_MAX_HEAD_DIM, &c->head_dim,
                   err));
    PN_TRY(key_int(f, KEY("attention.value_length"), true, 2, PN_QWEN35MOE_MAX_HEAD_DIM, &n_kv_dim,
                   err));
    if (c->head_dim != n_kv_dim || c->head_dim % 2)
        return pn_fail(err, PN_ERR_FORMAT, "%s is %d and %s is %d, expected the same even number",
                       KEY("attention.key_length"), c->head_dim, KEY("attention.value_length"),
                       n_kv_dim);
    c->rope.n_rot = c->head_dim;
    PN_TRY(key_int(f, KEY("rope.dimension_count"), false, 2, c->head_dim, &c->rope.n_rot, err));
    PN_TRY(pn_gguf_opt_f32(f, KEY("rope.freq_base"), &c->rope.freq_base, err));
    PN_TRY(load_sections(f, &c->rope, err));
    PN_TRY(load_scaling(f, opts, c, err));
    c->n_ctx = c->n_ctx < PN_QWEN35MOE_MAX_CTX ? c->n_ctx : PN_QWEN35MOE_MAX_CTX;

    PN_TRY(key_int(f, KEY("ssm.state_size"), true, 1, PN_QWEN35MOE_MAX_STATE, &c->d_state, err));
    PN_TRY(key_int(f, KEY("ssm.group_count"), true, 1, PN_QWEN35MOE_MAX_HEADS, &c->n_group, err));
    PN_TRY(
        key_int(f, KEY("ssm.time_step_rank"), true, 1, PN_QWEN35MOE_MAX_HEADS, &c->dt_rank, err));
    PN_TRY(key_int(f, KEY("ssm.inner_size"), true, 1, INT32_MAX, &c->d_inner, err));
    PN_TRY(key_int(f, KEY("ssm.conv_kernel"), true, 1, PN_QWEN35MOE_MAX_CONV, &c->d_conv, err));
    if (c->dt_rank % c->n_group)
        return pn_fail(err, PN_ERR_FORMAT, "%s is %d, expected a multiple of %s (%d)",
                       KEY("ssm.time_step_rank"), c->dt_rank, KEY("ssm.group_count"), c->n_group);
    if (c->d_inner != c->d_state * c->dt_rank)
        return pn_fail(err, PN_ERR_FORMAT, "%s is %d, expected %s times %s: %d",
                       KEY("ssm.inner_size"), c->d_inner, KEY("ssm.state_size"),
                       KEY("ssm.time_step_rank"), c->d_state * c->dt_rank);
    c->conv_dim = 2 * c->d_state * c->n_group + c->d_inner;

    PN_TRY(key_int(f, KEY("expert_count"), true, 1, PN_QWEN35MOE_MAX_EXPERTS, &c->n_expert, err));
    const int used_max =
        c->n_expert < PN_QWEN35MOE_MAX_EXPERTS_USED ? c->n_expert : PN_QWEN35MOE_MAX_EXPERTS_USED;
    PN_TRY(key_int(f, KEY("expert_used_count"), true, 1, used_max, &c->n_expert_used, err));
    PN_TRY(key_int(f, KEY("expert_shared_feed_forward_length"), true, 1, PN_QWEN35MOE_MAX_FF,
                   &c->n_ff_shexp, err));
    PN_TRY(pn_gguf_opt_f32(f, KEY("expert_weights_scale"), &c->expert_weights_scale, err));
    if (!(c->expert_weights_scale > 0.0f && c->expert_weights_scale < 1e6f)) {
        if (c->expert_weights_scale != 0.0f) /* some converters write 0 for "none" */
            return pn_fail(err, PN_ERR_FORMAT, "%s is %g, expected a positive number",
                           KEY("expert_weights_scale"), (double)c->expert_weights_scale);
        c->expert_weights_scale = 1.0f;
    }
    return PN_OK;
}

/* --- which layer is what ---------------------------------------------------------------------- */

static pn_status load_order(const pn_gguf *f, pn_qwen35moe *m, int32_t *tmp, pn_err *err)
{
    const int n_layer = m->cfg.n_layer, n_block = n_layer + m->cfg.n_nextn;
    int interval = 4;
    PN_TRY(key_int(f, KEY("full_attention_interval"), false, 1, PN_QWEN35MOE_MAX_LAYERS, &interval,
                   err));
    const char *const key = KEY("attention.recurrent_layers");
    const bool has_array = pn_gguf_has(f, key);
    if (has_array) {
        if (pn_gguf_arr_len(f, key) != (uint64_t)n_block)
            return pn_fail(err, PN_ERR_FORMAT, "%s has %" PRIu64 " entries, expected %d", key,
                           pn_gguf_arr_len(f, key), n_block);
        PN_TRY(pn_gguf_get_arr_i32(f, key, (size_t)n_layer, tmp, err));
    }
    for (int il = 0; il < n_layer; il++) {
        const bool is_attn = has_array ? !tmp[il] : (il + 1) % interval == 0;
        m->block_order[il] = is_attn ? PN_BLOCK_ATTN : PN_BLOCK_SSM;
        m->block_index[il] = is_attn ? m->n_attn++ : m->n_ssm++;
    }
    return PN_OK;
}

/* --- tensors ---------------------------------------------------------------------------------- */

/* Carries the file, the next free floats and sums while the tensors are found. */
typedef struct finder {
    const pn_gguf *f;
    float *next_float;                /* NULL: shapes and types are checked, nothing is read */
    double expert_bytes, expert_macs; /* all experts of all layers */
    double trunk_bytes, trunk_macs;   /* every other matrix */
    pn_err *err;
} finder;

static const char *blk_name(char out[64], int il, const char *what)
{
    snprintf(out, 64, "blk.%d.%s", il, what);
    return out;
}

static pn_status find_matrix(finder *fi, int il, const char *what, int n, int n_row, int n_mat,
                             pn_qweight *w)
{
    char name[64];
    PN_TRY(pn_tensor_matrix(fi->f, blk_name(name, il, what), (size_t)n, (size_t)n_row,
                            (size_t)n_mat, w, fi->err));
    const double bytes = (double)w->mat_bytes * n_mat, macs = (double)n * n_row * n_mat;
    *(n_mat > 1 ? &fi->expert_bytes : &fi->trunk_bytes) += bytes;
    *(n_mat > 1 ? &fi->expert_macs : &fi->trunk_macs) += macs;
    return PN_OK;
}

static pn_status find_rows(finder *fi, int il, const char *what, int n_col, int n_row,
                           const float **out)
{
    char name[64];
    PN_TRY(pn_tensor_float_rows(fi->f, blk_name(name, il, what), (size_t)n_col, (size_t)n_row,
                                fi->next_float, fi->err));
    if (!fi->next_float)
        return PN_OK;
    *out = fi->next_float;
    fi->next_float += (size_t)n_col * (size_t)n_row;
    return PN_OK;
}

static pn_status find_floats(finder *fi, int il, const char *what, int n, const float **out)
{
    return find_rows(fi, il, what, n, 1, out);
}

static pn_status find_attn(finder *fi, const pn_qwen35moe_cfg *c, int il, pn_qwen35moe_attn *a)
{
    const int d = c->head_dim;
    PN_TRY(find_matrix(fi, il, "attn_q.weight", c->n_embd, 2 * d * a->n_head, 1, &a->attn_q));
    PN_TRY(find_matrix(fi, il, "attn_k.weight", c->n_embd, d * a->n_head_kv, 1, &a->attn_k));
    PN_TRY(find_matrix(fi, il, "attn_v.weight", c->n_embd, d * a->n_head_kv, 1, &a->attn_v));
    PN_TRY(find_matrix(fi, il, "attn_output.weight", d * a->n_head, c->n_embd, 1, &a->attn_output));
    PN_TRY(find_floats(fi, il, "attn_q_norm.weight", d, &a->attn_q_norm));
    return find_floats(fi, il, "attn_k_norm.weight", d, &a->attn_k_norm);
}

static pn_status find_ssm(finder *fi, const pn_qwen35moe_cfg *c, int il, pn_qwen35moe_ssm *s)
{
    PN_TRY(find_matrix(fi, il, "attn_qkv.weight", c->n_embd, c->conv_dim, 1, &s->attn_qkv));
    PN_TRY(find_matrix(fi, il, "attn_gate.weight", c->n_embd, c->d_inner, 1, &s->attn_gate));
    PN_TRY(find_matrix(fi, il, "ssm_alpha.weight", c->n_embd, c->dt_rank, 1, &s->ssm_alpha));
    PN_TRY(find_matrix(fi, il, "ssm_beta.weight", c->n_embd, c->dt_rank, 1, &s->ssm_beta));
    PN_TRY(find_matrix(fi, il, "ssm_out.weight", c->d_inner, c->n_embd, 1, &s->ssm_out));
    PN_TRY(find_rows(fi, il, "ssm_conv1d.weight", c->d_conv, c->conv_dim, &s->ssm_conv1d));
    PN_TRY(find_floats(fi, il, "ssm_a", c->dt_rank, &s->ssm_a));
    char name[64];
    const char *dt = "ssm_dt.bias"; /* some converters leave the ending out */
    if (!pn_gguf_find_tensor(fi->f, blk_name(name, il, dt)) &&
        pn_gguf_find_tensor(fi->f, blk_name(name, il, "ssm_dt")))
        dt = "ssm_dt";
    PN_TRY(find_floats(fi, il, dt, c->dt_rank, &s->ssm_dt));
    return find_floats(fi, il, "ssm_norm.weight", c->d_state, &s->ssm_norm);
}

/* ffn_gate_exps and ffn_up_exps, or both as views of ffn_gate_up_exps (gate rows first). */
static pn_status find_gate_up(finder *fi, const pn_qwen35moe_cfg *c, int il, pn_qwen35moe_moe *x)
{
    char name[64];
    const int ff = x->n_ff_exp;
    if (!pn_gguf_find_tensor(fi->f, blk_name(name, il, "ffn_gate_up_exps.weight"))) {
        PN_TRY(find_matrix(fi, il, "ffn_gate_exps.weight", c->n_embd, ff, c->n_expert,
                           &x->ffn_gate_exps));
        return find_matrix(fi, il, "ffn_up_exps.weight", c->n_embd, ff, c->n_expert,
                           &x->ffn_up_exps);
    }
    pn_qweight both;
    PN_TRY(find_matrix(fi, il, "ffn_gate_up_exps.weight", c->n_embd, 2 * ff, c->n_expert, &both));
    both.n_row = (size_t)ff;
    x->ffn_gate_exps = x->ffn_up_exps = both;
    x->ffn_up_exps.data += (size_t)ff * both.row_bytes;
    return PN_OK;
}

static pn_status find_moe(finder *fi, const pn_qwen35moe_cfg *c, int il, pn_qwen35moe_moe *x)
{
    const int ffs = c->n_ff_shexp;
    PN_TRY(find_matrix(fi, il, "ffn_gate_inp.weight", c->n_embd, c->n_expert, 1, &x->ffn_gate_inp));
    PN_TRY(
        find_matrix(fi, il, "ffn_gate_inp_shexp.weight", c->n_embd, 1, 1, &x->ffn_gate_inp_shexp));
    PN_TRY(find_gate_up(fi, c, il, x));
    PN_TRY(find_matrix(fi, il, "ffn_down_exps.weight", x->n_ff_exp, c->n_embd, c->n_expert,
                       &x->ffn_down_exps));
    PN_TRY(find_matrix(fi, il, "ffn_gate_shexp.weight", c->n_embd, ffs, 1, &x->ffn_gate_shexp));
    PN_TRY(find_matrix(fi, il, "ffn_up_shexp.weight", c->n_embd, ffs, 1, &x->ffn_up_shexp));
    return find_matrix(fi, il, "ffn_down_shexp.weight", ffs, c->n_embd, 1, &x->ffn_down_shexp);
}

/* token_embd gives n_vocab; output falls back to it (tied embeddings). */
static pn_status find_ends(finder *fi, pn_qwen35moe *m)
{
    pn_qwen35moe_cfg *const c = &m->cfg;
    const pn_gguf_tensor *const t = pn_gguf_find_tensor(fi->f, "token_embd.weight");
    if (!t)
        return pn_fail(fi->err, PN_ERR_FORMAT,
                       "token_embd.weight: this tensor is missing from the file");
    if (t->dims[1] < 1 || t->dims[1] > INT32_MAX)
        return pn_fail(fi->err, PN_ERR_FORMAT,
                       "token_embd.weight: %" PRIu64 " rows, expected 1 to %d", t->dims[1],
                       INT32_MAX);
    c->n_vocab = (int)t->dims[1];
    PN_TRY(pn_tensor_matrix(fi->f, t->name, (size_t)c->n_embd, (size_t)c->n_vocab, 1,
                            &m->token_embd, fi->err));
    m->output = m->token_embd;
    if (pn_gguf_find_tensor(fi->f, "output.weight"))
        PN_TRY(pn_tensor_matrix(fi->f, "output.weight", (size_t)c->n_embd, (size_t)c->n_vocab, 1,
                                &m->output, fi->err));
    PN_TRY(
        pn_tensor_floats(fi->f, "output_norm.weight", (size_t)c->n_embd, fi->next_float, fi->err));
    if (fi->next_float) {
        m->output_norm = fi->next_float;
        fi->next_float += c->n_embd;
    }
    fi->trunk_bytes += (double)m->output.mat_bytes + (double)m->token_embd.row_bytes;
    fi->trunk_macs += (double)c->n_embd * c->n_vocab;
    return PN_OK;
}

/* --- memory ----------------------------------------------------------------------------------- */

static size_t n_floats(const pn_qwen35moe *m)
{
    const pn_qwen35moe_cfg *const c = &m->cfg;
    const size_t ssm =
        (size_t)c->conv_dim * (size_t)c->d_conv + 2 * (size_t)c->dt_rank + (size_t)c->d_state;
    return (size_t)c->n_embd * (2 * (size_t)c->n_layer + 1) +
           (size_t)m->n_attn * 2 * (size_t)c->head_dim + (size_t)m->n_ssm * ssm;
}

static bool alloc_layers(pn_qwen35moe *m, size_t *bytes)
{
    const size_t n = (size_t)m->cfg.n_layer;
    m->moe = pn_calloc(n, sizeof *m->moe);
    m->attn = pn_calloc((size_t)m->n_attn, sizeof *m->attn);
    m->ssm = pn_calloc((size_t)m->n_ssm, sizeof *m->ssm);
    m->attn_norm = pn_calloc(n, sizeof *m->attn_norm);
    m->post_attention_norm = pn_calloc(n, sizeof *m->post_attention_norm);
    m->n_head_kv = pn_calloc((size_t)m->n_attn, sizeof *m->n_head_kv);
    m->kv_first = pn_calloc((size_t)m->n_attn, sizeof *m->kv_first);
    *bytes = sizeof *m +
             n * (sizeof *m->moe + 2 * sizeof *m->attn_norm + sizeof *m->block_order +
                  sizeof *m->block_index) +
             (size_t)m->n_attn * (sizeof *m->attn + sizeof *m->n_head_kv + sizeof *m->kv_first) +
             (size_t)m->n_ssm * sizeof *m->ssm + n_floats(m) * sizeof(float);
    return m->moe && m->attn && m->ssm && m->attn_norm && m->post_attention_norm && m->n_head_kv &&
           m->kv_first;
}

void pn_qwen35moe_free(void *impl)
{
    pn_qwen35moe *const m = impl;
    if (!m)
        return;
    pn_free(m->block_order);
    pn_free(m->block_index);
    pn_free(m->moe);
    pn_free(m->attn);
    pn_free(m->ssm);
    pn_free(m->attn_norm);
    pn_free(m->post_attention_norm);
    pn_free(m->n_head_kv);
    pn_free(m->kv_first);
    pn_free(m->floats);
    pn_free(m);
}

/* --- putting it together ---------------------------------------------------------------------- */

/* Head counts and expert widths of every layer, scalar or array. */
static pn_status load_widths(const pn_gguf *f, pn_qwen35moe *m, int32_t *tmp, pn_err *err)
{
    const pn_qwen35moe_cfg *const c = &m->cfg;
    const int n_block = c->n_layer + c->n_nextn;
    PN_TRY(key_per_layer(f, KEY("expert_feed_forward_length"), n_block, c->n_layer, tmp, err));
    for (int il = 0; il < c->n_layer; il++) {
        if (tmp[il] < 1 || tmp[il] > PN_QWEN35MOE_MAX_FF)
            return pn_fail(err, PN_ERR_FORMAT, "%s of layer %d is %d, expected 1 to %d",
                           KEY("expert_feed_forward_length"), il, tmp[il], PN_QWEN35MOE_MAX_FF);
        m->moe[il].n_ff_exp = tmp[il];
        m->n_ff_exp_max = tmp[il] > m->n_ff_exp_max ? tmp[il] : m->n_ff_exp_max;
    }
    static const char *const keys[2] = { KEY("attention.head_count"),
                                         KEY("attention.head_count_kv") };
    for (int k = 0; k < 2; k++) {
        PN_TRY(key_per_layer(f, keys[k], n_block, c->n_layer, tmp, err));
        for (int il = 0; il < c->n_layer; il++) {
            if (m->block_order[il] != PN_BLOCK_ATTN)
                continue;
            if (tmp[il] < 1 || tmp[il] > PN_QWEN35MOE_MAX_HEADS)
                return pn_fail(err, PN_ERR_FORMAT, "%s of layer %d is %d, expected 1 to %d",
                               keys[k], il, tmp[il], PN_QWEN35MOE_MAX_HEADS);
            pn_qwen35moe_attn *const a = &m->attn[m->block_index[il]];
            *(k ? &a->n_head_kv : &a->n_head) = tmp[il];
        }
    }
    for (int i = 0; i < m->n_attn; i++) {
        const pn_qwen35moe_attn *const a = &m->attn[i];
        if (a->n_head % a->n_head_kv)
            return pn_fail(err, PN_ERR_FORMAT, "%s is %d, expected a multiple of %s (%d)", keys[0],
                           a->n_head, keys[1], a->n_head_kv);
        m->n_head_max = a->n_head > m->n_head_max ? a->n_head : m->n_head_max;
        m->n_head_kv_max = a->n_head_kv > m->n_head_kv_max ? a->n_head_kv : m->n_head_kv_max;
        m->n_head_kv[i] = a->n_head_kv;
        m->kv_first[i] = i ? m->kv_first[i - 1] + (size_t)m->n_head_kv[i - 1] : 0;
    }
    return PN_OK;
}

/* Which forms of its input each width of activations must be given in. */
static void collect_needs(pn_qwen35moe *m)
{
    m->need_embd = pn_qweight_need(&m->output);
    for (int i = 0; i < m->n_attn; i++) {
        const pn_qwen35moe_attn *const a = &m->attn[i];
        m->need_embd |=
            pn_qweight_need(&a->attn_q) | pn_qweight_need(&a->attn_k) | pn_qweight_need(&a->attn_v);
        m->need_heads |= pn_qweight_need(&a->attn_output);
    }
    for (int i = 0; i < m->n_ssm; i++) {
        const pn_qwen35moe_ssm *const s = &m->ssm[i];
        m->need_embd |= pn_qweight_need(&s->attn_qkv) | pn_qweight_need(&s->attn_gate) |
                        pn_qweight_need(&s->ssm_alpha) | pn_qweight_need(&s->ssm_beta);
        m->need_inner |= pn_qweight_need(&s->ssm_out);
    }
    for (int il = 0; il < m->cfg.n_layer; il++) {
        const pn_qwen35moe_moe *const x = &m->moe[il];
        m->need_embd |= pn_qweight_need(&x->ffn_gate_inp) |
                        pn_qweight_need(&x->ffn_gate_inp_shexp) |
                        pn_qweight_need(&x->ffn_gate_exps) | pn_qweight_need(&x->ffn_up_exps) |
                        pn_qweight_need(&x->ffn_gate_shexp) | pn_qweight_need(&x->ffn_up_shexp);
        m->need_ff |= pn_qweight_need(&x->ffn_down_exps);
        m->need_ff_shexp |= pn_qweight_need(&x->ffn_down_shexp);
    }
}

static pn_status find_all(finder *fi, pn_qwen35moe *m, const pn_load_opts *opts)
{
    const pn_qwen35moe_cfg *const c = &m->cfg;
    PN_TRY(find_ends(fi, m));
    for (int il = 0; il < c->n_layer; il++) {
        if (opts && opts->progress &&
            !opts->progress(opts->ctx, "loading", (uint64_t)il, (uint64_t)c->n_layer))
            return pn_fail(fi->err, PN_ERR_CANCELLED, "loading was stopped");
        PN_TRY(find_floats(fi, il, "attn_norm.weight", c->n_embd, &m->attn_norm[il]));
        PN_TRY(find_floats(fi, il, "post_attention_norm.weight", c->n_embd,
                           &m->post_attention_norm[il]));
        const int i = m->block_index[il];
        PN_TRY(m->block_order[il] == PN_BLOCK_ATTN ? find_attn(fi, c, il, &m->attn[i])
                                                   : find_ssm(fi, c, il, &m->ssm[i]));
        PN_TRY(find_moe(fi, c, il, &m->moe[il]));
    }
    return PN_OK;
}

static pn_status find_tensors(pn_model *model, pn_qwen35moe *m, const pn_load_opts *opts,
                              pn_err *err)
{
    const pn_qwen35moe_cfg *const c = &m->cfg;
    /* First every shape: keys that the tensors do not bear out must not size an allocation. */
    finder check = { .f = model->file, .err = err };
    PN_TRY(find_all(&check, m, NULL));
    m->floats = pn_alloc_aligned(n_floats(m) * sizeof(float));
    if (!m->floats)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for the model's tables");
    finder fi = { .f = model->file, .next_float = m->floats, .err = err };
    PN_TRY(find_all(&fi, m, opts));
    PN_ASSERT(fi.next_float == m->floats + n_floats(m));
    if (opts && opts->progress)
        opts->progress(opts->ctx, "loading", (uint64_t)c->n_layer, (uint64_t)c->n_layer);
    const double share = (double)c->n_expert_used / c->n_expert;
    model->info.weight_bytes = (size_t)(fi.trunk_bytes + fi.expert_bytes) +
                               m->token_embd.mat_bytes - m->token_embd.row_bytes -
                               (m->output.data == m->token_embd.data ? m->output.mat_bytes : 0);
    model->info.lookup_bytes = m->output.data == m->token_embd.data ? 0 : m->token_embd.mat_bytes;
    model->info.active_bytes = (size_t)(fi.trunk_bytes + fi.expert_bytes * share);
    model->info.active_macs = fi.trunk_macs + fi.expert_macs * share;
    return PN_OK;
}

/* What was loaded, and what in it is known to cost quality: gates below 8 bits a weight. */
static void log_model(const pn_model *model, const pn_qwen35moe *m, const pn_load_opts *opts)
{
    if (!opts || !opts->log)
        return;
    const pn_qwen35moe_cfg *const c = &m->cfg;
    char line[256];
    snprintf(line, sizeof line,
             "%d layers (%d with attention) of width %d, %d of %d experts a token, "
             "context %d, %.1f MB of weights",
             c->n_layer, m->n_attn, c->n_embd, c->n_expert_used, c->n_expert, c->n_ctx,
             (double)model->info.weight_bytes / 1e6);
    opts->log(opts->ctx, 2, line);
    int n_coarse = 0;
    for (int i = 0; i < m->n_ssm; i++)
        n_coarse += m->ssm[i].ssm_alpha.row_bytes < m->ssm[i].ssm_alpha.n ||
                    m->ssm[i].ssm_beta.row_bytes < m->ssm[i].ssm_beta.n;
    if (n_coarse) {
        snprintf(line, sizeof line,
                 "ssm_alpha or ssm_beta of %d layers has fewer than 8 bits a weight: these gates "
                 "are sensitive, Q8_0 or finer is usual",
                 n_coarse);
        opts->log(opts->ctx, 2, line);
    }
}

static pn_status load_into(pn_model *model, pn_qwen35moe *m, const pn_load_opts *opts, pn_err *err)
{
    pn_qwen35moe_cfg *const c = &m->cfg;
    PN_TRY(load_cfg(model->file, opts, c, err));
    PN_TRY(pn_rope_init(&m->rope, &c->rope, err));
    m->block_order = pn_calloc((size_t)c->n_layer, sizeof *m->block_order);
    m->block_index = pn_calloc((size_t)c->n_layer, sizeof *m->block_index);
    int32_t tmp[PN_QWEN35MOE_MAX_LAYERS];
    if (!m->block_order || !m->block_index)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for the model's tables");
    PN_TRY(load_order(model->file, m, tmp, err));
    if (!alloc_layers(m, &model->model_bytes))
        return pn_fail(err, PN_ERR_NOMEM, "no memory for the model's tables");
    PN_TRY(load_widths(model->file, m, tmp, err));
    PN_TRY(find_tensors(model, m, opts, err));
    collect_needs(m);

    const int last = m->n_attn - 1;
    model->layout = (pn_seq_layout){
        .n_ssm = (size_t)m->n_ssm,
        .conv_floats = (size_t)(c->d_conv - 1) * (size_t)c->conv_dim,
        .state_floats = (size_t)c->d_inner * (size_t)c->d_state,
        .n_attn = (size_t)m->n_attn,
        .head_dim = (size_t)c->head_dim,
        .n_head_kv = m->n_head_kv,
        .n_head_kv_sum = last >= 0 ? m->kv_first[last] + (size_t)m->n_head_kv[last] : 0,
        .kv_first = m->kv_first,
    };
    model->info.n_layer = c->n_layer;
    model->info.n_embd = c->n_embd;
    model->info.n_vocab = c->n_vocab;
    model->info.n_ctx_train = c->n_ctx;
    log_model(model, m, opts);
    return PN_OK;
}

pn_status pn_qwen35moe_load(pn_model *model, const pn_load_opts *opts, pn_err *err)
{
    pn_qwen35moe *const m = pn_calloc(1, sizeof *m);
    if (!m)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for the model's tables");
    const pn_status st = load_into(model, m, opts, err);
    if (st != PN_OK) {
        pn_qwen35moe_free(m);
        return st;
    }
    model->impl = m;
    return PN_OK;
}
