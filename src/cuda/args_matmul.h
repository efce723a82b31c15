/* Arguments of the kernels of matrix products (device/): quantisation of activations, matrix times
 * columns, experts. Conventions: args.h. Grids: matmul.h fills them in from these structs.
 *
 * A slot is one (token, rank) pair of the chosen experts: token * n_used + rank in decode; its
 * place in the order grouped by expert where `place` is given. */
#ifndef PN_CUDA_ARGS_MATMUL_H
#define PN_CUDA_ARGS_MATMUL_H

#include "cuda/args_net.h"
#include "quant/acts.h"

enum {
    PN_MATMUL_MATS = 8, /* matrices of one launch */
    PN_QMV_COLS = 8,    /* columns that pn_k_qmv_nx takes at once */
    /* how kernels and grids (matmul.c) divide the work */
    PN_QMV_WARPS = 4,       /* of a block, each with rows of its own */
    PN_QMV_BLOCKS = 4,      /* such blocks that most multiprocessors have registers for */
    PN_TILE_ROWS = 64,      /* of a prefill tile, 128 threads */
    PN_TILE_COLS = 64,      /* tokens of a tile of pn_k_gemm */
    PN_MOE_TILE_COLS = 32,  /* tokens of an expert in a tile */
    PN_MOE_ITER = 2,        /* times that a warp of pn_k_moe_product takes pn_rows_at_once rows */
    PN_MOE_UP_ITER = 8,     /* the same, at most, of pn_k_moe_up */
    PN_MOE_DOWN_ROWS = 16,  /* output rows of a block of pn_k_moe_down */
    PN_MOE_DOWN_WARPS = 12, /* most warps of such a block, each with an expert */
    PN_MOE_DOWN_SMEM = 40 << 10, /* most bytes of activations that it makes */
    PN_TAIL_SMEM = 16 << 10,     /* bytes of shared memory that PN_TAIL_ROUTER takes */
};

/* A matrix in the device's layout (cuda/repack.h), or a stack of them (experts). */
typedef struct pn_dmat {
    const void *w;      /* 256-byte aligned; NULL: there is none */
    uint64_t mat_bytes; /* from one matrix of the stack to the next: fc_repack_bytes */
    uint32_t type;      /* a pn_type */
    uint32_t n;         /* row length */
    uint32_t n_row;     /* rows of one matrix */
} pn_dmat;

/* Vectors of n values in the forms that weights ask for: PN_ACT_F32, PN_ACT_Q8K, PN_ACT_Q8S. NULL
 * where none of the launch's matrices wants the form. 16-byte aligned. */
typedef struct pn_dacts {
    const float *f32;  /* [n_vec][n] */
    const pn_q8k *q8k; /* [n_vec][n / 256] */
    const pn_q8s *q8s; /* [n_vec][ceil(n / 256)] */
} pn_dacts;

/* pn_k_quantize: vectors into the forms that are not NULL, as quantize_q8k and quantize_q8s of the
 * kernel table do. n a multiple of 256 where q8k is wanted, of 32 for q8s. A warp a group of
 * 256. */
typedef struct pn_quantize_args {
    const float *x; /* [n_vec][n], 16-byte aligned */
    pn_q8k *q8k;    /* [n_vec][n / 256] */
    pn_q8s *q8s;    /* [n_vec][ceil(n / 256)] */
    uint32_t n, n_vec;
} pn_quantize_args;

/* What the block that ends last does with the results of all, so that it needs no launch. */
typedef enum pn_tail_kind {
    PN_TAIL_NONE = 0,
    PN_TAIL_NORM,  /* as pn_k_norm */
    PN_TAIL_ROUTER /* as pn_k_router */
} pn_tail_kind;
typedef struct pn_tail {
    int32_t kind;      /* a pn_tail_kind; what is not of this kind is not read */
    int32_t *count;    /* 0 before the launch, and after it */
    pn_norm_args norm; /* x: what the launch makes; w 16-byte aligned; y, q8k, q8s: nothing that it
                          reads */
    pn_router_args router; /* logits and sgate: what the launch makes */
} pn_tail;

/* One matrix of a launch: y[it] = w . x[it], then residual[it] = residual[it] + y[it] if asked. */
typedef struct pn_matmul_mat {
    pn_dmat w;
    float *y;          /* [n_tok] rows of y_stride floats; NULL: only the residual is wanted */
    float *residual;   /* [n_tok][w.n_row]; NULL: none */
    uint32_t y_stride; /* >= w.n_row */
    uint32_t first;    /* blocks (of the grid's x) before this matrix: pn_matmul_dims */
} pn_matmul_mat;

/* pn_k_qmv (n_tok = 1), pn_k_qmv_nx (n_tok <= PN_QMV_COLS), pn_k_gemm (any n_tok): up to
 * PN_MATMUL_MATS matrices of the same row length times the same vectors. Equal bits. */
typedef struct pn_matmul_args {
    pn_matmul_mat mat[PN_MATMUL_MATS];
    pn_dacts x; /* n_tok vectors of mat[0].w.n values */
    uint32_t n_mat, n_tok;
    uint32_t n_iter;  /* of the qmv kernels: times that a warp takes pn_rows_at_once rows */
    uint32_t n_early; /* of the qmv kernels: the first blocks, which may begin early */
    pn_tail tail;     /* of the qmv kernels, for n_tok rows or tokens */
} pn_matmul_args;

/* The chosen experts of a batch and who computes them. */
typedef struct pn_moe_route {
    const int32_t *top_id; /* [n_tok][n_used] experts in rank order */
    const int32_t *slot;   /* [n_expert]: an expert's place in the stacks, -1: it is not on this
                              device, its rows are left alone; NULL: all are, in their order */
    /* grouped by expert (pn_k_group_by_expert); NULL for the kernels of decode */
    const int32_t *exp_first; /* [n_expert + 1]: first place of each expert */
    const int32_t *exp_tok;   /* [n_tok * n_used]: token of each place */
    const int32_t *place;     /* [n_tok * n_used]: place of (token, rank); NULL: itself */
    uint32_t n_tok, n_used, n_expert;
} pn_moe_route;

/* pn_k_moe_up, decode: h[slot] = silu(gate_e . x) * up_e . x, and the shared expert likewise.
 * pn_k_moe_up_grouped, prefill: the same bits by tiles over the tokens of an expert. */
typedef struct pn_moe_up_args {
    pn_moe_route route;
    pn_dmat gate, up;             /* stacks of [n_embd] -> [n_ff_exp]; w NULL: no routed experts */
    pn_dmat gate_shexp, up_shexp; /* [n_embd] -> [n_ff_shexp]; w NULL: no shared expert here */
    pn_dacts x;                   /* n_tok vectors of n_embd */
    float *h;                     /* [n_tok * n_used][n_ff_exp] */
    float *h_shexp;               /* [n_tok][n_ff_shexp] */
    uint32_t n_iter;              /* of pn_k_moe_up: times that a warp takes pn_rows_at_once rows */
} pn_moe_up_args;

/* pn_k_moe_product: y[slot] = w_e . x, the part that pn_k_moe_up and pn_k_moe_down are made of.
 * pn_k_moe_product_grouped: the same for prefill. */
typedef struct pn_moe_product_args {
    pn_moe_route route;
    pn_dmat w;          /* a stack; w NULL: no routed experts */
    pn_dmat w_shexp;    /* w NULL: no shared expert here */
    pn_dacts x;         /* vectors of w.n: a token's (gate, up) or a slot's (down) */
    pn_dacts x_shexp;   /* [n_tok] of w_shexp.n */
    uint32_t x_is_slot; /* 1: x is by slot; 0: by token */
    float *y;           /* [n_tok * n_used][w.n_row] */
    float *y_shexp;     /* [n_tok][w_shexp.n_row] */
} pn_moe_product_args;

/* pn_k_moe_down, decode: x[it] += sum over ranks of top_w * down_e . h, from +0 in rank order, the
 * shared expert times sgate last. All experts are on this device, and pn_moe_down_fits. Where h
 * or h_shexp lack the form that the weights ask for, the kernel quantises h.f32 and h_shexp.f32
 * itself: the same bits. */
typedef struct pn_moe_down_args {
    pn_moe_route route;
    pn_dmat down, down_shexp; /* [n_ff_exp] -> [n_embd], [n_ff_shexp] -> [n_embd] */
    pn_dacts h;               /* [n_tok * n_used] vectors of n_ff_exp, by slot */
    pn_dacts h_shexp;         /* [n_tok] of n_ff_shexp */
    const float *top_w;       /* [n_tok][n_used] */
    const float *sgate;       /* [n_tok]: sigmoid of the shared expert's gate */
    float *x;                 /* [n_tok][n_embd]: the residual stream */
    pn_tail tail;             /* none or a norm of x; count [n_tok] */
} pn_moe_down_args;

/* pn_k_moe_combine: the sums and the residual of pn_k_moe_down, from the experts' products. */
typedef struct pn_moe_combine_args {
    const float *acc;     /* [n_tok][n_embd]: sums that the CPU made, to start from; NULL: +0 */
    const float *y;       /* [n_tok * n_used][n_embd] by slot; not read where n_used is 0 */
    const float *y_shexp; /* [n_tok][n_embd] */
    const float *top_w, *sgate;
    const int32_t *place;     /* [n_tok * n_used]: slot of (token, rank); NULL: itself */
    const float *y_cpu;       /* products that the CPU made, [n_embd] each */
    const int32_t *place_cpu; /* [n_tok * n_used]: which of them is that of (token, rank); -1: none,
                                 it is in y; NULL: all are */
    float *x;                 /* [n_tok][n_embd] */
    uint32_t n_tok, n_used, n_embd;
} pn_moe_combine_args;

#endif
