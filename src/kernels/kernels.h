/* The kernel table: one struct of function pointers for one instruction set level.
 *
 * scalar/ is the specification; every other level's variant gives the same bits (memcmp), proved by
 * tests/kernels/. Kernels know no thread: callers split output rows, heads or tokens among threads.
 * No kernel allocates, and none reads or writes outside what its comment names. Float operands need
 * no alignment unless stated; quantised activations (pn_q8k, pn_q8b, pn_q8s) are 64-byte
 * aligned.
 * Source of every formula and its order: docs/NUMERICS.md. */
#ifndef PN_KERNELS_KERNELS_H
#define PN_KERNELS_KERNELS_H

#include "base/cpu.h"
#include "quant/quant.h"

/* --- matrix times vector, matrix times columns ------------------------------------------------ */

/* y[r] = row r . x for n_row consecutive rows of one type (row stride row_bytes).
 * x: the activations that the type's pn_act_kind names, n values. y [n_row]. */
typedef void pn_qmv_rows_fn(const void *w, size_t row_bytes, size_t n_row, const void *x, size_t n,
                            float *y);

/* y[c][r] = row r . x[c] for n_row consecutive rows and n_col columns, any n_row and n_col.
 * x[c]: activations of column c as above. y[c]: where row 0's result of column c goes.
 * scratch: pn_kernels.gemm_scratch_bytes(n) bytes, 64-byte aligned, of the calling thread. */
typedef void pn_gemm_fn(const void *w, size_t row_bytes, size_t n_row, const void *const *x,
                        float *const *y, size_t n_col, size_t n, void *scratch);

/* dst covers n activations: pn_act_bytes(kind, n). n a multiple of 256 (q8k) or 32 (q8b, q8s). */
typedef void pn_quantize_fn(void *dst, const float *x, size_t n);

/* --- vectors ---------------------------------------------------------------------------------- */

/* y = x * w / sqrt(mean(x^2) + eps); y may be x. */
typedef void pn_rmsnorm_fn(float *y, const float *x, const float *w, size_t n, float eps);
/* y = x / sqrt(sum(x^2) + eps): no division by n, no weight; y may be x. */
typedef void pn_l2norm_fn(float *y, const float *x, size_t n, float eps);
/* y = RMSNorm(x; w, eps) * silu(z): the gated norm of the delta net; y may be x. */
typedef void pn_gated_norm_fn(float *y, const float *x, const float *w, const float *z, size_t n,
                              float eps);
/* y = silu(gate) * up; y may be gate or up. */
typedef void pn_silu_mul_fn(float *y, const float *gate, const float *up, size_t n);
/* y = x * sigmoid(gate); y may be x. */
typedef void pn_sigmoid_mul_fn(float *y, const float *x, const float *gate, size_t n);
/* y = y + x: the residual. */
typedef void pn_add_fn(float *y, const float *x, size_t n);
/* acc = fma(a, x, acc): one expert's share. */
typedef void pn_axpy_fn(float *acc, float a, const float *x, size_t n);
/* p = softmax(x): p = exp(x - max), summed as for norms by plain adds, p / sum; p may be x. */
typedef void pn_softmax_fn(float *p, const float *x, size_t n);
/* Rotates one head in place: pairs (i, i + n_rot/2); cos_t, sin_t [n_rot / 2]. */
typedef void pn_rope_fn(float *x, const float *cos_t, const float *sin_t, size_t n_rot);
/* Whether all n values are finite. */
typedef bool pn_all_finite_fn(const float *x, size_t n);

/* --- gated delta net -------------------------------------------------------------------------- */

/* Causal depthwise convolution and SiLU of n_tok tokens, channels [c0, c1) of n_ch.
 *   y: token t's c1 - c0 outputs at t * y_stride; x [n_tok][n_ch];
 *   w [n_ch][n_conv] oldest tap first;
 *   window [n_conv - 1][n_ch]: the inputs before token 0, oldest row first; updated to the last
 *   n_conv - 1 inputs. Each output: one fma chain from +0, oldest tap first, then silu.
 * 1 <= n_conv <= PN_CONV_MAX; y, x and window do not overlap. */
enum {
    PN_CONV_MAX = 64 /* taps; the architecture uses 4 */
};
typedef void pn_conv_silu_fn(float *y, size_t y_stride, const float *x, float *window,
                             const float *w, size_t n_tok, size_t n_ch, size_t n_conv, size_t c0,
                             size_t c1);

/* The gated delta rule of one V-head over n_tok tokens.
 *   state [n_k][n_v] row-major, updated; n_k = n_v = S in this architecture.
 *   q, k: token t's vector at t * qk_stride, n_k floats, L2-normalised; v at t * v_stride;
 *   g (log decay) and beta at t * gate_stride; y at t * y_stride, n_v floats: y may be v.
 *   S' = e^g S; pred_j and y_j: 4 fma chains over i mod 4, (a0 + a1) + (a2 + a3);
 *   S = fma(k_i, (v_j - pred_j) * beta, S'); y_j scaled by scale once.
 * Source: arXiv:2412.06464, eq. 10; docs/NUMERICS.md. */
typedef struct pn_delta_args {
    float *state;
    const float *next; /* the state of the next call, which may be fetched meanwhile; or NULL */
    const float *q, *k, *v, *g, *beta;
    float *y;
    size_t n_tok, n_k, n_v;
    size_t qk_stride, v_stride, gate_stride, y_stride;
    float scale;
} pn_delta_args;
typedef void pn_delta_rule_fn(const pn_delta_args *a);

/* --- attention -------------------------------------------------------------------------------- */
#include "kernels/attention.h"

/* --- the limit -------------------------------------------------------------------------------- */

/* What a level's multiply-add instructions can do at best: run() does n_iter times `macs` of them
 * on registers alone, independent of each other. For profiles; NULL where nobody measured. */
typedef struct pn_peak {
    void (*run)(size_t n_iter);
    double macs;
} pn_peak;

/* ---------------------------------------------------------------------------------------------- */

typedef struct pn_kernels {
    pn_isa isa;                         /* the highest level whose variants are in the table */
    pn_qmv_rows_fn *qmv[PN_TYPE_COUNT]; /* NULL for types that are not supported */
    pn_gemm_fn *gemm[PN_TYPE_COUNT];
    /* n_row multiples of this keep gemm on full tiles; callers split rows among threads by it. */
    size_t gemm_rows;
    size_t (*gemm_scratch_bytes)(size_t n);
    size_t gemm_cols_min; /* columns from which gemm is faster than qmv for each of them */
    pn_quantize_fn *quantize_q8k, *quantize_q8b, *quantize_q8s;
    pn_rmsnorm_fn *rmsnorm;
    pn_l2norm_fn *l2norm;
    pn_gated_norm_fn *gated_norm;
    pn_silu_mul_fn *silu_mul;
    pn_sigmoid_mul_fn *sigmoid_mul;
    pn_add_fn *add;
    pn_axpy_fn *axpy;
    pn_softmax_fn *softmax;
    pn_rope_fn *rope;
    pn_all_finite_fn *all_finite;
    pn_conv_silu_fn *conv_silu;
    pn_delta_rule_fn *delta_rule;
    pn_attn_kernels attn;
    pn_peak peak_i8, peak_f32; /* int8 dots into int32; float32 */
} pn_kernels;

/* Fills the table with scalar, then overlays each level up to and including isa that the processor
 * has. isa must be present (pn_isa_present). */
void pn_kernels_init(pn_kernels *k, pn_isa isa);

/* Each level's overlay, in kernels/<isa>/. */
void pn_kernels_init_scalar(pn_kernels *k);
void pn_kernels_init_avx2(pn_kernels *k);
void pn_kernels_init_avxvnni(pn_kernels *k);
void pn_kernels_init_avx512(pn_kernels *k);
void pn_kernels_init_neon(pn_kernels *k);
void pn_kernels_init_dotprod(pn_kernels *k);
void pn_kernels_init_i8mm(pn_kernels *k);

#endif
