/* Small random-weight qwen35moe files of any shape, with any one thing made wrong. Values depend on
 * the tensor's name and the index alone, so that two files of the same shape hold the same model,
 * fused or split. */
#ifndef PN_TESTS_SUPPORT_SMALL_MODEL_H
#define PN_TESTS_SUPPORT_SMALL_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SMALL_MAX_LAYERS = 8
};

/* The keys of MODEL's table; a 0 in a field marked "0: absent" leaves the key out. */
typedef struct small_shape {
    int n_layer, n_nextn; /* trunk layers; 0: the key nextn_predict_layers is absent */
    int n_embd, n_vocab, n_ctx;
    int n_head, n_head_kv, head_dim, n_rot;
    int sections[4], n_section; /* n_section 0: absent */
    int d_state, n_group, dt_rank, d_conv;
    int n_expert, n_expert_used, n_ff_exp, n_ff_shexp;
    int ff_array[SMALL_MAX_LAYERS];      /* [0] = 0: one scalar for all */
    int head_kv_array[SMALL_MAX_LAYERS]; /* all 0: one scalar for all */
    int interval;                        /* 0: absent */
    int n_recurrent;                     /* entries of attention.recurrent_layers; 0: absent */
    int recurrent[SMALL_MAX_LAYERS];
    float weights_scale; /* 0: absent */
    bool is_fused;       /* ffn_gate_up_exps */
    bool is_tied;        /* no output.weight */
    bool dt_is_bare;     /* ssm_dt instead of ssm_dt.bias */
    /* what is made wrong */
    const char *lacks;                 /* a tensor or a key (without prefix) that is left out */
    const char *odd_tensor;            /* this one has ... */
    uint64_t odd_dims[4];              /* ... these dims, unless [0] is 0, */
    uint32_t odd_type;                 /* this type, unless 0, with zero bytes for data, */
    float odd_value;                   /* and this value in place of its last */
    bool has_odd_value;                /* ... */
    const char *odd_key;               /* this integer key (without prefix) is ... */
    uint32_t odd_key_value;            /* ... this */
    const struct small_shape *keys_of; /* the keys are this shape's; NULL: its own */
    bool has_mtp_tensors;     /* with n_nextn: blk.N.nextn.eh_proj.weight of NaN is there */
    const char *rope_scaling; /* rope.scaling.type; NULL: absent, and with it ... */
    float rope_factor;        /* ... rope.scaling.factor and */
    int rope_n_ctx_orig;      /* ... rope.scaling.original_context_length */
} small_shape;

/* A shape of two layers, the second with attention, that everything above can be changed on. */
small_shape small_base(void);
/* Writes the file; what cannot be written fails the test. */
void small_write(const char *path, const small_shape *shape);

#endif
