#include "support/small_model.h"

#include "support/check.h"

#include "base/tensor_types.h"
#include "gguf/gguf_write.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum small_kind {
    SMALL_MATRIX,  /* deviation 1 / sqrt(row length) */
    SMALL_UNIT,    /* deviation 1: token_embd */
    SMALL_NORM,    /* 0.8 to 1.2 */
    SMALL_DECAY,   /* -4 to -0.1: ssm_a */
    SMALL_SPREAD,  /* -2 to 2: ssm_dt */
    SMALL_GATE_UP, /* per expert the rows of ffn_gate_exps, then those of ffn_up_exps */
} small_kind;

typedef struct small_tensor {
    char name[64];
    small_kind kind;
    int n_dims;
    uint64_t dims[4];
    size_t n;
    uint32_t type;
} small_tensor;

typedef struct small_list {
    const small_shape *s;
    small_tensor t[SMALL_MAX_LAYERS * 24 + 4];
    int n;
} small_list;

static bool is(const char *a, const char *b)
{
    return a && strcmp(a, b) == 0;
}

static void add(small_list *l, int il, const char *what, small_kind kind, int d0, int d1, int d2)
{
    small_tensor *const t = &l->t[l->n];
    if (il < 0)
        snprintf(t->name, sizeof t->name, "%s", what);
    else
        snprintf(t->name, sizeof t->name, "blk.%d.%s", il, what);
    if (is(l->s->lacks, t->name))
        return;
    t->kind = kind;
    t->n_dims = d2 ? 3 : d1 ? 2 : 1;
    t->dims[0] = (uint64_t)d0;
    t->dims[1] = (uint64_t)(d1 ? d1 : 1);
    t->dims[2] = (uint64_t)(d2 ? d2 : 1);
    t->dims[3] = 1;
    t->type = 0; /* F32 */
    if (is(l->s->odd_tensor, t->name)) {
        if (l->s->odd_dims[0]) {
            memcpy(t->dims, l->s->odd_dims, sizeof t->dims);
            for (t->n_dims = 4; t->n_dims > 1 && t->dims[t->n_dims - 1] <= 1;)
                t->n_dims--;
        }
        t->type = l->s->odd_type;
    }
    t->n = t->dims[0];
    for (int i = 1; i < t->n_dims; i++)
        t->n *= t->dims[i];
    l->n++;
}

static bool is_attention(const small_shape *s, int il)
{
    if (s->n_recurrent)
        return !s->recurrent[il];
    return (il + 1) % (s->interval ? s->interval : 4) == 0;
}

static void add_layer(small_list *l, int il)
{
    const small_shape *const s = l->s;
    const int e = s->n_embd, d = s->head_dim, inner = s->d_state * s->dt_rank;
    add(l, il, "attn_norm.weight", SMALL_NORM, e, 0, 0);
    add(l, il, "post_attention_norm.weight", SMALL_NORM, e, 0, 0);
    if (is_attention(s, il)) {
        bool has_array = false;
        for (int i = 0; i < SMALL_MAX_LAYERS; i++)
            has_array = has_array || s->head_kv_array[i];
        const int kv = has_array && s->head_kv_array[il] ? s->head_kv_array[il] : s->n_head_kv;
        add(l, il, "attn_q.weight", SMALL_MATRIX, e, 2 * d * s->n_head, 0);
        add(l, il, "attn_k.weight", SMALL_MATRIX, e, d * kv, 0);
        add(l, il, "attn_v.weight", SMALL_MATRIX, e, d * kv, 0);
        add(l, il, "attn_output.weight", SMALL_MATRIX, d * s->n_head, e, 0);
        add(l, il, "attn_q_norm.weight", SMALL_NORM, d, 0, 0);
        add(l, il, "attn_k_norm.weight", SMALL_NORM, d, 0, 0);
    } else {
        const int n_ch = 2 * s->d_state * s->n_group + inner;
        add(l, il, "attn_qkv.weight", SMALL_MATRIX, e, n_ch, 0);
        add(l, il, "attn_gate.weight", SMALL_MATRIX, e, inner, 0);
        add(l, il, "ssm_alpha.weight", SMALL_MATRIX, e, s->dt_rank, 0);
        add(l, il, "ssm_beta.weight", SMALL_MATRIX, e, s->dt_rank, 0);
        add(l, il, "ssm_conv1d.weight", SMALL_MATRIX, s->d_conv, n_ch, 0);
        add(l, il, "ssm_a", SMALL_DECAY, s->dt_rank, 0, 0);
        add(l, il, s->dt_is_bare ? "ssm_dt" : "ssm_dt.bias", SMALL_SPREAD, s->dt_rank, 0, 0);
        add(l, il, "ssm_norm.weight", SMALL_NORM, s->d_state, 0, 0);
        add(l, il, "ssm_out.weight", SMALL_MATRIX, inner, e, 0);
    }
    const int width = s->ff_array[0] ? s->ff_array[il] : s->n_ff_exp;
    const int ff = width > 0 ? width : 1,
              ffs = s->n_ff_shexp; /* the key may be wrong, not the file */
    add(l, il, "ffn_gate_inp.weight", SMALL_MATRIX, e, s->n_expert, 0);
    add(l, il, "ffn_gate_inp_shexp.weight", SMALL_MATRIX, e, 0, 0);
    if (s->is_fused) {
        add(l, il, "ffn_gate_up_exps.weight", SMALL_GATE_UP, e, 2 * ff, s->n_expert);
    } else {
        add(l, il, "ffn_gate_exps.weight", SMALL_MATRIX, e, ff, s->n_expert);
        add(l, il, "ffn_up_exps.weight", SMALL_MATRIX, e, ff, s->n_expert);
    }
    add(l, il, "ffn_down_exps.weight", SMALL_MATRIX, ff, e, s->n_expert);
    add(l, il, "ffn_gate_shexp.weight", SMALL_MATRIX, e, ffs, 0);
    add(l, il, "ffn_up_shexp.weight", SMALL_MATRIX, e, ffs, 0);
    add(l, il, "ffn_down_shexp.weight", SMALL_MATRIX, ffs, e, 0);
}

/* Uniform in [-1, 1) from a name's hash and an index (splitmix64's finisher). */
static double value(uint64_t hash, uint64_t i)
{
    uint64_t z = hash + (i + 1) * 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    z ^= z >> 31;
    return (double)(int64_t)(z >> 11) * 0x1p-52 - 1.0;
}

static uint64_t hash_name(const char *name)
{
    uint64_t h = 0xcbf29ce484222325ull; /* FNV-1a */
    for (; *name; name++)
        h = (h ^ (uint8_t)*name) * 0x100000001b3ull;
    return h;
}

/* The name whose values tensor t shows at element *i, which becomes the element there. */
static uint64_t source(const small_tensor *t, size_t i, size_t *at)
{
    char name[80];
    snprintf(name, sizeof name, "%s", t->name);
    *at = i;
    char *const fused = strstr(name, "ffn_gate_up_exps"), *const dt = strstr(name, ".ssm_dt");
    if (fused) {
        const size_t half = t->dims[0] * t->dims[1] / 2, mat = i / (2 * half), in = i % (2 * half);
        strcpy(fused, in < half ? "ffn_gate_exps.weight" : "ffn_up_exps.weight");
        *at = mat * half + in % half;
    } else if (dt) {
        strcpy(dt, ".ssm_dt.bias");
    }
    return hash_name(name);
}

static float element(const small_shape *s, const small_tensor *t, size_t i)
{
    if (s->has_odd_value && is(s->odd_tensor, t->name) && i == t->n - 1)
        return s->odd_value;
    if (strstr(t->name, "nextn"))
        return NAN;
    size_t at;
    const uint64_t hash = source(t, i, &at);
    const double u = value(hash, at);
    switch (t->kind) {
    case SMALL_UNIT:
        return (float)(u * sqrt(3));
    case SMALL_NORM:
        return (float)(1 + 0.2 * u);
    case SMALL_DECAY:
        return (float)(-2.05 + 1.95 * u);
    case SMALL_SPREAD:
        return (float)(2 * u);
    default:
        return (float)(u * sqrt(3.0 / (double)t->dims[0]));
    }
}

/* --- keys ------------------------------------------------------------------------------------- */

typedef struct keys {
    pn_gguf_writer *w;
    const small_shape *s;
} keys;

static const char *full_key(const char *name)
{
    static char key[96];
    snprintf(key, sizeof key, "qwen35moe.%s", name);
    return key;
}

static void put_int(const keys *k, const char *name, int v)
{
    if (is(k->s->lacks, name))
        return;
    pn_gguf_put_u32(k->w, full_key(name),
                    is(k->s->odd_key, name) ? k->s->odd_key_value : (uint32_t)v);
}

static void put_float(const keys *k, const char *name, float v)
{
    if (!is(k->s->lacks, name))
        pn_gguf_put_f32(k->w, full_key(name), v);
}

static void put_keys(pn_gguf_writer *w, const small_shape *s)
{
    const keys k = { w, s };
    pn_gguf_put_str(w, "general.architecture", (pn_span){ "qwen35moe", 9 });
    put_int(&k, "block_count", s->n_layer + s->n_nextn);
    if (s->n_nextn)
        put_int(&k, "nextn_predict_layers", s->n_nextn);
    put_int(&k, "context_length", s->n_ctx);
    put_int(&k, "embedding_length", s->n_embd);
    put_int(&k, "attention.head_count", s->n_head);
    bool has_array = false;
    for (int i = 0; i < SMALL_MAX_LAYERS; i++)
        has_array = has_array || s->head_kv_array[i];
    if (has_array)
        pn_gguf_put_arr(w, full_key("attention.head_count_kv"), PN_GGUF_I32,
                        (size_t)(s->n_layer + s->n_nextn), s->head_kv_array);
    else
        put_int(&k, "attention.head_count_kv", s->n_head_kv);
    put_int(&k, "attention.key_length", s->head_dim);
    put_int(&k, "attention.value_length", s->head_dim);
    put_float(&k, "attention.layer_norm_rms_epsilon", 1e-6f);
    put_float(&k, "rope.freq_base", 1e6f);
    put_int(&k, "rope.dimension_count", s->n_rot);
    if (s->n_section)
        pn_gguf_put_arr(w, full_key("rope.dimension_sections"), PN_GGUF_I32, (size_t)s->n_section,
                        s->sections);
    if (s->rope_scaling) {
        pn_gguf_put_str(w, full_key("rope.scaling.type"),
                        (pn_span){ s->rope_scaling, strlen(s->rope_scaling) });
        put_float(&k, "rope.scaling.factor", s->rope_factor);
        put_int(&k, "rope.scaling.original_context_length", s->rope_n_ctx_orig);
    }
    put_int(&k, "ssm.state_size", s->d_state);
    put_int(&k, "ssm.group_count", s->n_group);
    put_int(&k, "ssm.time_step_rank", s->dt_rank);
    put_int(&k, "ssm.inner_size", s->d_state * s->dt_rank);
    put_int(&k, "ssm.conv_kernel", s->d_conv);
    put_int(&k, "expert_count", s->n_expert);
    put_int(&k, "expert_used_count", s->n_expert_used);
    if (s->ff_array[0])
        pn_gguf_put_arr(w, full_key("expert_feed_forward_length"), PN_GGUF_I32,
                        (size_t)(s->n_layer + s->n_nextn), s->ff_array);
    else
        put_int(&k, "expert_feed_forward_length", s->n_ff_exp);
    put_int(&k, "expert_shared_feed_forward_length", s->n_ff_shexp);
    if (s->weights_scale > 0)
        put_float(&k, "expert_weights_scale", s->weights_scale);
    if (s->interval)
        put_int(&k, "full_attention_interval", s->interval);
    if (s->n_recurrent) {
        uint8_t flags[SMALL_MAX_LAYERS] = { 0 };
        for (int i = 0; i < s->n_recurrent && i < SMALL_MAX_LAYERS; i++)
            flags[i] = (uint8_t)s->recurrent[i];
        pn_gguf_put_arr(w, full_key("attention.recurrent_layers"), PN_GGUF_BOOL,
                        (size_t)s->n_recurrent, flags);
    }
}

/* --- the file --------------------------------------------------------------------------------- */

small_shape small_base(void)
{
    return (small_shape){
        .n_layer = 2,
        .n_embd = 64,
        .n_vocab = 96,
        .n_ctx = 512,
        .n_head = 4,
        .n_head_kv = 2,
        .head_dim = 32,
        .n_rot = 16,
        .sections = { 4, 2, 2, 0 },
        .n_section = 4,
        .d_state = 32,
        .n_group = 2,
        .dt_rank = 4,
        .d_conv = 4,
        .n_expert = 8,
        .n_expert_used = 3,
        .n_ff_exp = 32,
        .n_ff_shexp = 64,
        .interval = 2,
    };
}

static void must(pn_status st, const pn_err *err)
{
    if (st != PN_OK)
        fail_msg("%s", err->msg);
}

static void write_tensor(pn_gguf_writer *w, const small_shape *s, const small_tensor *t)
{
    pn_err err = { 0 };
    if (t->type) { /* zeros of another type */
        size_t bytes;
        assert_true(pn_tensor_type_row_bytes(t->type, t->dims[0], &bytes));
        bytes *= t->n / t->dims[0];
        void *const zeros = calloc(bytes, 1);
        assert_non_null(zeros);
        must(pn_gguf_write_data(w, zeros, bytes, &err), &err);
        free(zeros);
        return;
    }
    float *const x = malloc(t->n * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < t->n; i++)
        x[i] = element(s, t, i);
    must(pn_gguf_write_data(w, x, t->n * sizeof *x, &err), &err);
    free(x);
}

void small_write(const char *path, const small_shape *s)
{
    small_list *const l = calloc(1, sizeof *l);
    assert_non_null(l);
    l->s = s;
    add(l, -1, "token_embd.weight", SMALL_UNIT, s->n_embd, s->n_vocab, 0);
    add(l, -1, "output_norm.weight", SMALL_NORM, s->n_embd, 0, 0);
    if (!s->is_tied)
        add(l, -1, "output.weight", SMALL_MATRIX, s->n_embd, s->n_vocab, 0);
    assert_in_range(s->n_layer, 1, SMALL_MAX_LAYERS);
    for (int il = 0; il < s->n_layer; il++)
        add_layer(l, il);
    if (s->has_mtp_tensors)
        add(l, s->n_layer, "nextn.eh_proj.weight", SMALL_MATRIX, 2 * s->n_embd, s->n_embd, 0);

    pn_gguf_writer *w = NULL;
    pn_err err = { 0 };
    must(pn_gguf_writer_new(NULL, &w, &err), &err);
    put_keys(w, s->keys_of ? s->keys_of : s);
    for (int i = 0; i < l->n; i++)
        must(pn_gguf_put_tensor(w, l->t[i].name, l->t[i].type, l->t[i].n_dims, l->t[i].dims, &err),
             &err);
    must(pn_gguf_write_begin(w, path, &err), &err);
    for (int i = 0; i < l->n; i++)
        write_tensor(w, s, &l->t[i]);
    must(pn_gguf_write_end(w, &err), &err);
    pn_gguf_writer_free(w);
    free(l);
}
