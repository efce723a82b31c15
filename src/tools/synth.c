#include "tools/synth.h"

#include "base/arith.h"
#include "base/mem.h"
#include "base/tensor_types.h"
#include "gguf/gguf_write.h"
#include "quant/quant.h"
#include "tools/synth_blocks.h"
#include "tools/synth_vocab.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The shape; -1 in section_*: derived from n_rot. */
typedef struct shape {
    int n_layer, n_mtp, interval, n_embd, n_vocab, n_ctx;
    int n_head, n_head_kv, head_dim, n_rot, n_section, section_t, section_h, section_w;
    int n_expert, n_expert_used, n_ff_exp, n_ff_shexp;
    int conv_kernel, ssm_state, ssm_groups, ssm_heads;
    int fused_gate_up, tied_output, recurrent_array, kv_array, ff_array, plain_dt;
    int split_mb, version;
} shape;

#define FIELD(f) offsetof(shape, f)
#define INT_BIG  (1 << 30)

// clang-format off
static const struct {
    const char *key;
    size_t off;
    int lo, hi;
    const char *help;
} shape_keys[] = {
    { "n_layer", FIELD(n_layer), 1, 1024, "trunk layers" },
    { "n_mtp", FIELD(n_mtp), 0, 1, "MTP blocks" },
    { "interval", FIELD(interval), 1, 1024, "every so many layers is attention" },
    { "n_embd", FIELD(n_embd), 1, 1 << 20, "width of the residual stream" },
    { "n_vocab", FIELD(n_vocab), PN_SYNTH_MIN_VOCAB, 1 << 22, "tokens" },
    { "n_ctx", FIELD(n_ctx), 1, INT_BIG, "trained context" },
    { "n_head", FIELD(n_head), 1, 4096, "query heads" },
    { "n_head_kv", FIELD(n_head_kv), 1, 4096, "key/value heads" },
    { "head_dim", FIELD(head_dim), 2, 4096, "size of an attention head" },
    { "n_rot", FIELD(n_rot), 2, 4096, "rotated dimensions of a head" },
    { "n_section", FIELD(n_section), 3, 4, "entries of rope.dimension_sections" },
    { "section_t", FIELD(section_t), -1, 4096, "the time section; -1: a third of n_rot / 2" },
    { "section_h", FIELD(section_h), -1, 4096, "the height section" },
    { "section_w", FIELD(section_w), -1, 4096, "the width section" },
    { "n_expert", FIELD(n_expert), 1, 65536, "experts" },
    { "n_expert_used", FIELD(n_expert_used), 1, 65536, "experts of a token" },
    { "n_ff_exp", FIELD(n_ff_exp), 1, 1 << 20, "width of an expert" },
    { "n_ff_shexp", FIELD(n_ff_shexp), 1, 1 << 20, "width of the shared expert" },
    { "conv_kernel", FIELD(conv_kernel), 1, 64, "taps of the convolution" },
    { "ssm_state", FIELD(ssm_state), 1, 4096, "size of a DeltaNet head" },
    { "ssm_groups", FIELD(ssm_groups), 1, 4096, "DeltaNet key heads" },
    { "ssm_heads", FIELD(ssm_heads), 1, 4096, "DeltaNet value heads" },
    { "fused_gate_up", FIELD(fused_gate_up), 0, 1, "ffn_gate_up_exps instead of two tensors" },
    { "tied_output", FIELD(tied_output), 0, 1, "no output.weight" },
    { "recurrent_array", FIELD(recurrent_array), 0, 1, "write attention.recurrent_layers" },
    { "kv_array", FIELD(kv_array), 0, 1, "head_count_kv as an array" },
    { "ff_array", FIELD(ff_array), 0, 1, "expert_feed_forward_length as an array" },
    { "plain_dt", FIELD(plain_dt), 0, 1, "ssm_dt instead of ssm_dt.bias" },
    { "split_mb", FIELD(split_mb), 0, INT_BIG, "megabytes of a part; 0: one file" },
    { "version", FIELD(version), 2, 3, "of GGUF" },
};

/* 35b-a3b: the values of Qwen3.5-35B-A3B's config.json; tiny: those of the bundled model. */
static const struct {
    const char *name;
    shape s;
} presets[] = {
    { "tiny", { .n_layer = 8, .interval = 4, .n_embd = 256, .n_vocab = 512, .n_ctx = 32768,
                .n_head = 4, .n_head_kv = 2, .head_dim = 128, .n_rot = 32, .n_expert = 8,
                .n_expert_used = 3, .n_ff_exp = 256, .n_ff_shexp = 256, .conv_kernel = 4,
                .ssm_state = 128, .ssm_groups = 2, .ssm_heads = 4 } },
    { "35b-a3b", { .n_layer = 40, .interval = 4, .n_embd = 2048, .n_vocab = 248320, .n_ctx = 262144,
                   .n_head = 16, .n_head_kv = 2, .head_dim = 256, .n_rot = 64, .n_expert = 256,
                   .n_expert_used = 8, .n_ff_exp = 512, .n_ff_shexp = 512, .conv_kernel = 4,
                   .ssm_state = 128, .ssm_groups = 16, .ssm_heads = 32 } },
};

/* The mixes: what differs from the base type. Always F32: the router and every vector. */
static const struct {
    const char *name;
    uint32_t base, file_type; /* general.file_type: the nearest one that the format has */
    struct {
        const char *tensor;
        uint32_t type;
    } others[14];
} mixes[] = {
    { "q3_k_m", PN_TYPE_Q3_K, 12,
      { { "attn_v", PN_TYPE_Q5_K }, { "ffn_down_exps", PN_TYPE_Q4_K },
        { "ssm_out", PN_TYPE_Q4_K }, { "attn_output", PN_TYPE_Q4_K }, { "output", PN_TYPE_Q6_K },
        { "ffn_gate_shexp", PN_TYPE_Q8_0 }, { "ffn_up_shexp", PN_TYPE_Q8_0 },
        { "ffn_down_shexp", PN_TYPE_Q8_0 },
        { "ssm_alpha", PN_TYPE_F32 }, { "ssm_beta", PN_TYPE_F32 } } },
    { "q4_k_m", PN_TYPE_Q4_K, 15,
      { { "attn_v", PN_TYPE_Q6_K }, { "ffn_down_exps", PN_TYPE_Q5_K }, { "output", PN_TYPE_Q6_K },
        { "ffn_gate_shexp", PN_TYPE_Q8_0 }, { "ffn_up_shexp", PN_TYPE_Q8_0 },
        { "ffn_down_shexp", PN_TYPE_Q8_0 },
        { "ssm_alpha", PN_TYPE_F32 }, { "ssm_beta", PN_TYPE_F32 } } },
    { "q8trunk", PN_TYPE_Q8_0, 15,
      { { "ffn_gate_exps", PN_TYPE_Q4_K }, { "ffn_up_exps", PN_TYPE_Q4_K },
        { "ffn_gate_up_exps", PN_TYPE_Q4_K }, { "ffn_down_exps", PN_TYPE_Q5_K },
        { "ssm_alpha", PN_TYPE_F32 }, { "ssm_beta", PN_TYPE_F32 } } },
};
// clang-format on

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

/* How a tensor's values are made. */
typedef enum fill_kind {
    MATRIX, /* mean 0, deviation sigma */
    NEAR_1, /* 0.9 to 1.1: norms */
    DECAY,  /* ssm_a: -1 to -16, log-uniform, as exp(A_log) is initialised */
    STEP    /* ssm_dt: -7 to -2, softplus of which is 0.001 to 0.13 */
} fill_kind;

typedef struct spec {
    char name[64];
    uint32_t type;
    int n_dims;
    uint64_t dims[3];
    fill_kind fill;
    float sigma;
} spec;

enum {
    MAX_OVERRIDES = 64,
    CHUNK_BYTES = 1 << 20
};

typedef struct synth {
    const pn_synth_opts *opts;
    shape s;
    size_t i_mix; /* COUNT(mixes): one type for all */
    uint32_t base;
    struct {
        pn_span tensor;
        uint32_t type;
        bool is_used;
    } overrides[MAX_OVERRIDES];
    size_t n_override;
    spec *specs; /* [n_spec], owned */
    size_t n_spec, cap;
    size_t all_bytes;
    pn_status status; /* of add(): the first failure */
    pn_err *err;
} synth;

void pn_synth_set_help(pn_buf *out)
{
    for (size_t i = 0; i < COUNT(shape_keys); i++)
        pn_buf_addf(out, "  %-16s %s\n", shape_keys[i].key, shape_keys[i].help);
    pn_buf_adds(out, "  MATRIX=TYPE      for example attn_v=q5_1\n");
}

/* --- options ---------------------------------------------------------------------------------- */

static pn_status choose_preset(synth *y, pn_err *err)
{
    const char *const name = y->opts->preset ? y->opts->preset : presets[0].name;
    for (size_t i = 0; i < COUNT(presets); i++)
        if (strcmp(name, presets[i].name) == 0) {
            y->s = presets[i].s;
            y->s.n_section = 4;
            y->s.section_t = y->s.section_h = y->s.section_w = -1;
            y->s.recurrent_array = 1;
            y->s.n_mtp = y->opts->with_mtp;
            if (y->opts->n_layer)
                y->s.n_layer = y->opts->n_layer;
            return PN_OK;
        }
    return pn_fail(err, PN_ERR_ARG, "preset %s is unknown; tiny and 35b-a3b are known", name);
}

static pn_status choose_quant(synth *y, pn_err *err)
{
    const char *const name = y->opts->quant ? y->opts->quant : "q4_k_m";
    for (y->i_mix = 0; y->i_mix < COUNT(mixes); y->i_mix++)
        if (strcmp(name, mixes[y->i_mix].name) == 0) {
            y->base = mixes[y->i_mix].base;
            return PN_OK;
        }
    if (!pn_tensor_type_find(name, &y->base) || !pn_type_get(y->base))
        return pn_fail(err, PN_ERR_ARG,
                       "quant %s is unknown; mixes: q3_k_m q4_k_m q8trunk; types: %s", name,
                       pn_type_supported_names());
    return PN_OK;
}

static pn_status apply_set(synth *y, const char *set, pn_err *err)
{
    const size_t n = strcspn(set, "=");
    const char *const value = set + n + 1;
    if (set[n] != '=' || n == 0 || !*value)
        return pn_fail(err, PN_ERR_ARG, "%s: KEY=VALUE expected", set);
    for (size_t i = 0; i < COUNT(shape_keys); i++) {
        if (strlen(shape_keys[i].key) != n || memcmp(shape_keys[i].key, set, n) != 0)
            continue;
        char *end;
        errno = 0;
        const long v = strtol(value, &end, 10);
        if (errno || *end || v < shape_keys[i].lo || v > shape_keys[i].hi)
            return pn_fail(err, PN_ERR_ARG, "%s: an integer from %d to %d expected", set,
                           shape_keys[i].lo, shape_keys[i].hi);
        *(int *)((char *)&y->s + shape_keys[i].off) = (int)v;
        return PN_OK;
    }
    uint32_t type;
    if (!pn_tensor_type_find(value, &type) || !pn_type_get(type))
        return pn_fail(err, PN_ERR_ARG, "%s: neither a known key nor a tensor and a supported type",
                       set);
    if (y->n_override == MAX_OVERRIDES)
        return pn_fail(err, PN_ERR_ARG, "%s: more than %d types set", set, MAX_OVERRIDES);
    y->overrides[y->n_override].tensor = (pn_span){ set, n };
    y->overrides[y->n_override++].type = type;
    return PN_OK;
}

/* What no single range can say. */
static pn_status check_shape(shape *s, pn_err *err)
{
    const int half = s->n_rot / 2;
    if (s->section_t < 0 && s->section_h < 0 && s->section_w < 0) {
        s->section_t = (half + 2) / 3;
        s->section_h = (half + 1) / 3;
        s->section_w = half / 3;
    }
    if (s->n_rot % 2 || s->n_rot > s->head_dim)
        return pn_fail(err, PN_ERR_ARG, "n_rot=%d: an even number up to head_dim=%d expected",
                       s->n_rot, s->head_dim);
    if (s->section_t + s->section_h + s->section_w != half || s->section_t < 0 ||
        s->section_h < 0 || s->section_w < 0)
        return pn_fail(err, PN_ERR_ARG, "section_t, _h and _w must sum to n_rot / 2, which is %d",
                       half);
    if (s->n_head % s->n_head_kv)
        return pn_fail(err, PN_ERR_ARG, "n_head=%d is no multiple of n_head_kv=%d", s->n_head,
                       s->n_head_kv);
    if (s->ssm_heads % s->ssm_groups)
        return pn_fail(err, PN_ERR_ARG, "ssm_heads=%d is no multiple of ssm_groups=%d",
                       s->ssm_heads, s->ssm_groups);
    if (s->n_expert_used > s->n_expert)
        return pn_fail(err, PN_ERR_ARG, "n_expert_used=%d is more than n_expert=%d",
                       s->n_expert_used, s->n_expert);
    return PN_OK;
}

static pn_status configure(synth *y, pn_err *err)
{
    PN_TRY(choose_preset(y, err));
    PN_TRY(choose_quant(y, err));
    for (size_t i = 0; i < y->opts->n_set; i++)
        PN_TRY(apply_set(y, y->opts->sets[i], err));
    return check_shape(&y->s, err);
}

/* --- tensors ---------------------------------------------------------------------------------- */

static bool is_attention(const shape *s, int il)
{
    return il >= s->n_layer || (il + 1) % s->interval == 0; /* the MTP block always is */
}

/* The type of a matrix by its bare name. */
static uint32_t type_of(synth *y, const char *base)
{
    for (size_t i = 0; i < y->n_override; i++)
        if (strlen(base) == y->overrides[i].tensor.len &&
            memcmp(base, y->overrides[i].tensor.ptr, y->overrides[i].tensor.len) == 0) {
            y->overrides[i].is_used = true;
            return y->overrides[i].type;
        }
    if (strcmp(base, "ffn_gate_inp") == 0)
        return PN_TYPE_F32;
    for (size_t i = 0; y->i_mix < COUNT(mixes) && i < COUNT(mixes[0].others); i++)
        if (mixes[y->i_mix].others[i].tensor && strcmp(base, mixes[y->i_mix].others[i].tensor) == 0)
            return mixes[y->i_mix].others[i].type;
    return y->base;
}

/* Appends a tensor; il < 0: outside the blocks. base: "attn_v"; suffix: ".weight" or "". */
static spec *add(synth *y, int il, const char *base, const char *suffix, int n_dims, uint64_t d0,
                 uint64_t d1, uint64_t d2)
{
    static spec sink; /* for the caller to write to after a failure; never read */
    if (y->status == PN_OK && y->n_spec == y->cap) {
        const size_t cap = y->cap ? 2 * y->cap : 256;
        spec *const grown = pn_realloc(y->specs, cap, sizeof *grown);
        if (grown) {
            y->specs = grown;
            y->cap = cap;
        } else {
            y->status = pn_fail(y->err, PN_ERR_NOMEM, "no memory for %zu tensors", cap);
        }
    }
    if (y->status != PN_OK)
        return &sink;
    spec *const t = &y->specs[y->n_spec++];
    *t = (spec){ .type = PN_TYPE_F32, .n_dims = n_dims, .dims = { d0, d1, d2 } };
    if (il < 0)
        snprintf(t->name, sizeof t->name, "%s%s", base, suffix);
    else
        snprintf(t->name, sizeof t->name, "blk.%d.%s%s", il, base, suffix);
    return t;
}

/* A matrix [n_out][n_in], or n_mat of them. */
static spec *add_matrix(synth *y, int il, const char *base, int n_in, int n_out, int n_mat)
{
    spec *const t = add(y, il, base, ".weight", n_mat > 0 ? 3 : 2, (uint64_t)n_in, (uint64_t)n_out,
                        (uint64_t)(n_mat > 0 ? n_mat : 1));
    t->type = type_of(y, base);
    t->sigma = 1.0f / pn_sqrt((float)n_in);
    return t;
}

static void add_norm(synth *y, int il, const char *base, int n)
{
    add(y, il, base, ".weight", 1, (uint64_t)n, 1, 1)->fill = NEAR_1;
}

static void add_attention(synth *y, int il)
{
    const shape *const s = &y->s;
    add_matrix(y, il, "attn_k", s->n_embd, s->n_head_kv * s->head_dim, 0);
    add_norm(y, il, "attn_k_norm", s->head_dim);
    add_norm(y, il, "attn_norm", s->n_embd);
    add_matrix(y, il, "attn_output", s->n_head * s->head_dim, s->n_embd, 0);
    add_matrix(y, il, "attn_q", s->n_embd, 2 * s->n_head * s->head_dim, 0);
    add_norm(y, il, "attn_q_norm", s->head_dim);
    add_matrix(y, il, "attn_v", s->n_embd, s->n_head_kv * s->head_dim, 0);
}

static void add_delta_net(synth *y, int il)
{
    const shape *const s = &y->s;
    const int n_v = s->ssm_heads * s->ssm_state;
    const int n_qkv = 2 * s->ssm_groups * s->ssm_state + n_v;
    add_matrix(y, il, "attn_gate", s->n_embd, n_v, 0);
    add_norm(y, il, "attn_norm", s->n_embd);
    add_matrix(y, il, "attn_qkv", s->n_embd, n_qkv, 0);
    add(y, il, "ssm_a", "", 1, (uint64_t)s->ssm_heads, 1, 1)->fill = DECAY;
    add_matrix(y, il, "ssm_alpha", s->n_embd, s->ssm_heads, 0);
    add_matrix(y, il, "ssm_beta", s->n_embd, s->ssm_heads, 0);
    spec *const conv =
        add(y, il, "ssm_conv1d", ".weight", 2, (uint64_t)s->conv_kernel, (uint64_t)n_qkv, 1);
    conv->sigma = 1.0f / pn_sqrt((float)s->conv_kernel);
    add(y, il, s->plain_dt ? "ssm_dt" : "ssm_dt.bias", "", 1, (uint64_t)s->ssm_heads, 1, 1)->fill =
        STEP;
    add_norm(y, il, "ssm_norm", s->ssm_state);
    add_matrix(y, il, "ssm_out", n_v, s->n_embd, 0);
}

static void add_moe(synth *y, int il)
{
    const shape *const s = &y->s;
    add_matrix(y, il, "ffn_down_exps", s->n_ff_exp, s->n_embd, s->n_expert);
    add_matrix(y, il, "ffn_down_shexp", s->n_ff_shexp, s->n_embd, 0);
    if (s->fused_gate_up) {
        add_matrix(y, il, "ffn_gate_up_exps", s->n_embd, 2 * s->n_ff_exp, s->n_expert);
    } else {
        add_matrix(y, il, "ffn_gate_exps", s->n_embd, s->n_ff_exp, s->n_expert);
        add_matrix(y, il, "ffn_up_exps", s->n_embd, s->n_ff_exp, s->n_expert);
    }
    add_matrix(y, il, "ffn_gate_inp", s->n_embd, s->n_expert, 0);
    add(y, il, "ffn_gate_inp_shexp", ".weight", 1, (uint64_t)s->n_embd, 1, 1)->sigma =
        1.0f / pn_sqrt((float)s->n_embd);
    add_matrix(y, il, "ffn_gate_shexp", s->n_embd, s->n_ff_shexp, 0);
    add_matrix(y, il, "ffn_up_shexp", s->n_embd, s->n_ff_shexp, 0);
    add_norm(y, il, "post_attention_norm", s->n_embd);
}

static pn_status list_tensors(synth *y, pn_err *err)
{
    const shape *const s = &y->s;
    y->err = err;
    if (!s->tied_output)
        add_matrix(y, -1, "output", s->n_embd, s->n_vocab, 0);
    add_norm(y, -1, "output_norm", s->n_embd);
    add_matrix(y, -1, "token_embd", s->n_embd, s->n_vocab, 0)->sigma = 1;
    for (int il = 0; il < s->n_layer + s->n_mtp; il++) {
        if (is_attention(s, il))
            add_attention(y, il);
        else
            add_delta_net(y, il);
        add_moe(y, il);
        if (il >= s->n_layer) {
            add_matrix(y, il, "nextn.eh_proj", 2 * s->n_embd, s->n_embd, 0);
            add_norm(y, il, "nextn.enorm", s->n_embd);
            add_norm(y, il, "nextn.hnorm", s->n_embd);
            add_norm(y, il, "nextn.shared_head_norm", s->n_embd);
        }
    }
    PN_TRY(y->status);
    for (size_t i = 0; i < y->n_override; i++)
        if (!y->overrides[i].is_used)
            return pn_fail(err, PN_ERR_ARG, "%.*s: this model has no such matrix, nor is it a key",
                           (int)y->overrides[i].tensor.len, y->overrides[i].tensor.ptr);
    return PN_OK;
}

/* --- keys ------------------------------------------------------------------------------------- */

#define PREFIX "qwen35moe."

static void put_sizes(pn_gguf_writer *w, const shape *s)
{
    const struct {
        const char *key;
        int value;
    } sizes[] = {
        { PREFIX "block_count", s->n_layer + s->n_mtp },
        { PREFIX "context_length", s->n_ctx },
        { PREFIX "embedding_length", s->n_embd },
        { PREFIX "attention.head_count", s->n_head },
        { PREFIX "expert_count", s->n_expert },
        { PREFIX "expert_used_count", s->n_expert_used },
        { PREFIX "attention.key_length", s->head_dim },
        { PREFIX "attention.value_length", s->head_dim },
        { PREFIX "expert_shared_feed_forward_length", s->n_ff_shexp },
        { PREFIX "ssm.conv_kernel", s->conv_kernel },
        { PREFIX "ssm.state_size", s->ssm_state },
        { PREFIX "ssm.group_count", s->ssm_groups },
        { PREFIX "ssm.time_step_rank", s->ssm_heads },
        { PREFIX "ssm.inner_size", s->ssm_heads * s->ssm_state },
        { PREFIX "full_attention_interval", s->interval },
        { PREFIX "rope.dimension_count", s->n_rot },
    };
    for (size_t i = 0; i < COUNT(sizes); i++)
        pn_gguf_put_u32(w, sizes[i].key, (uint32_t)sizes[i].value);
    if (s->n_mtp)
        pn_gguf_put_u32(w, PREFIX "nextn_predict_layers", (uint32_t)s->n_mtp);
}

static pn_status put_arrays(pn_gguf_writer *w, const shape *s, pn_err *err)
{
    const size_t n = (size_t)(s->n_layer + s->n_mtp);
    uint8_t *const recurrent = pn_calloc(n, sizeof *recurrent);
    uint32_t *const n_kv = pn_calloc(n, sizeof *n_kv), *const n_ff = pn_calloc(n, sizeof *n_ff);
    const bool has_memory = recurrent && n_kv && n_ff;
    for (size_t i = 0; has_memory && i < n; i++) {
        recurrent[i] = !is_attention(s, (int)i);
        n_kv[i] = recurrent[i] ? 0 : (uint32_t)s->n_head_kv;
        n_ff[i] = (uint32_t)s->n_ff_exp;
    }
    if (has_memory) {
        const int32_t sections[4] = { s->section_t, s->section_h, s->section_w, 0 };
        pn_gguf_put_arr(w, PREFIX "rope.dimension_sections", PN_GGUF_I32, (size_t)s->n_section,
                        sections);
        if (s->recurrent_array)
            pn_gguf_put_arr(w, PREFIX "attention.recurrent_layers", PN_GGUF_BOOL, n, recurrent);
        if (s->kv_array)
            pn_gguf_put_arr(w, PREFIX "attention.head_count_kv", PN_GGUF_U32, n, n_kv);
        else
            pn_gguf_put_u32(w, PREFIX "attention.head_count_kv", (uint32_t)s->n_head_kv);
        if (s->ff_array)
            pn_gguf_put_arr(w, PREFIX "expert_feed_forward_length", PN_GGUF_U32, n, n_ff);
        else
            pn_gguf_put_u32(w, PREFIX "expert_feed_forward_length", (uint32_t)s->n_ff_exp);
    }
    pn_free(recurrent);
    pn_free(n_kv);
    pn_free(n_ff);
    return has_memory ? PN_OK : pn_fail(err, PN_ERR_NOMEM, "no memory for %zu layers", n);
}

static pn_status put_keys(const synth *y, pn_gguf_writer *w, pn_err *err)
{
    pn_gguf_put_str(w, "general.architecture", (pn_span){ "qwen35moe", 9 });
    pn_gguf_put_str(w, "general.type", (pn_span){ "model", 5 });
    pn_gguf_put_str(w, "general.name", (pn_span){ "synthetic", 9 });
    put_sizes(w, &y->s);
    PN_TRY(put_arrays(w, &y->s, err));
    pn_gguf_put_f32(w, PREFIX "rope.freq_base", 1e7f);
    pn_gguf_put_f32(w, PREFIX "attention.layer_norm_rms_epsilon", 1e-6f);
    PN_TRY(pn_synth_put_vocab(w, (size_t)y->s.n_vocab, err));
    pn_gguf_put_u32(w, "general.quantization_version", 2);
    if (y->i_mix < COUNT(mixes))
        pn_gguf_put_u32(w, "general.file_type", mixes[y->i_mix].file_type);
    return PN_OK;
}

/* --- data ------------------------------------------------------------------------------------- */

/* FNV-1a of the name, mixed with the seed: the tensor's random stream. */
static uint64_t stream_key(uint64_t seed, const char *name)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (; *name; name++)
        h = (h ^ (uint8_t)*name) * 0x100000001b3u;
    return pn_synth_random(h, seed);
}

/* Value i of a vector that is no matrix. */
static float vector_at(fill_kind fill, uint64_t key, uint64_t i)
{
    const float u = (float)(pn_synth_random(key, i) >> 40) * (1.0f / 16777216.0f); /* 0 to 1 */
    if (fill == NEAR_1)
        return 0.9f + 0.2f * u;
    return fill == DECAY ? -pn_exp(2.7725887f * u) : 5.0f * u - 7.0f; /* log 16 */
}

static pn_status write_tensor(const synth *y, pn_gguf_writer *w, const spec *t, uint8_t *chunk,
                              size_t *done, pn_err *err)
{
    const uint64_t key = stream_key(y->opts->seed, t->name);
    uint64_t n = 1;
    for (int i = 0; i < t->n_dims; i++)
        n *= t->dims[i];
    pn_synth_gen gen = { .block_bytes = sizeof(float), .block_n = 1 };
    if (t->fill == MATRIX)
        PN_TRY(pn_synth_gen_init(t->type, t->sigma, &gen, err));
    const uint64_t n_block = n / gen.block_n, per_chunk = CHUNK_BYTES / gen.block_bytes;
    for (uint64_t b = 0; b < n_block; b += per_chunk) {
        const size_t m = (size_t)(n_block - b < per_chunk ? n_block - b : per_chunk);
        if (t->fill == MATRIX)
            pn_synth_gen_fill(&gen, key, b, m, chunk);
        for (size_t i = 0; t->fill != MATRIX && i < m; i++)
            ((float *)chunk)[i] = vector_at(t->fill, key, b + i);
        PN_TRY(pn_gguf_write_data(w, chunk, m * gen.block_bytes, err));
        *done += m * gen.block_bytes;
        if (y->opts->progress &&
            !y->opts->progress(y->opts->progress_ctx, "writing", *done, y->all_bytes))
            return pn_fail(err, PN_ERR_CANCELLED, "stopped; nothing was left behind");
    }
    return PN_OK;
}

static pn_status write_all(synth *y, const char *path, pn_gguf_writer *w, size_t *bytes,
                           pn_err *err)
{
    PN_TRY(put_keys(y, w, err));
    for (size_t i = 0; i < y->n_spec; i++) {
        const spec *const t = &y->specs[i];
        size_t row_bytes = 0;
        PN_TRY(pn_gguf_put_tensor(w, t->name, t->type, t->n_dims, t->dims, err));
        (void)pn_tensor_type_row_bytes(t->type, t->dims[0], &row_bytes);
        y->all_bytes += row_bytes * t->dims[1] * t->dims[2];
    }
    PN_TRY(pn_gguf_write_begin(w, path, err));
    uint8_t *const chunk = pn_alloc_aligned(CHUNK_BYTES);
    pn_status st = chunk ? PN_OK : pn_fail(err, PN_ERR_NOMEM, "no memory for a buffer");
    size_t done = 0;
    for (size_t i = 0; i < y->n_spec && st == PN_OK; i++)
        st = write_tensor(y, w, &y->specs[i], chunk, &done, err);
    pn_free(chunk);
    PN_TRY(st);
    PN_TRY(pn_gguf_write_end(w, err));
    *bytes = pn_gguf_write_bytes(w);
    return PN_OK;
}

pn_status pn_synth_write(const char *path, const pn_synth_opts *opts, size_t *bytes, pn_err *err)
{
    PN_REQUIRE(path && opts && bytes, err);
    synth y = { .opts = opts };
    PN_TRY(configure(&y, err));
    pn_status st = list_tensors(&y, err);
    pn_gguf_writer *w = NULL;
    const pn_gguf_write_opts write_opts = { .version = (uint32_t)y.s.version,
                                            .split_bytes = (size_t)y.s.split_mb * 1000000 };
    if (st == PN_OK)
        st = pn_gguf_writer_new(&write_opts, &w, err);
    if (st == PN_OK)
        st = write_all(&y, path, w, bytes, err);
    pn_gguf_writer_free(w);
    pn_free(y.specs);
    return st;
}
