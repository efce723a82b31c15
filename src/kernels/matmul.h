/* The front of the kernel table for matrices: activations in every form that weights ask for, and
 * rows of a pn_qweight times columns of them. Knows no thread: callers hand out row ranges. */
#ifndef PN_KERNELS_MATMUL_H
#define PN_KERNELS_MATMUL_H

#include "kernels/kernels.h"

enum {
    PN_NEED_F32 = 1 << PN_ACT_F32,
    PN_NEED_Q8K = 1 << PN_ACT_Q8K,
    PN_NEED_Q8S = 1 << PN_ACT_Q8S,
};

/* n_col activation vectors of n values, each in the forms of `need`. Storage is the workspace's. */
typedef struct pn_acts {
    size_t n;     /* values a vector */
    size_t n_col; /* vectors in use */
    unsigned need;
    float *f32;   /* [n_col_max][n]: always there, written by the producer */
    uint8_t *q8k; /* [n_col_max] of pn_act_bytes(PN_ACT_Q8K, n); NULL when never needed */
    uint8_t *q8s; /* the same for PN_ACT_Q8S */
} pn_acts;

/* Bytes of the storage for n_col_max vectors, a multiple of PN_ALIGN; and its division. */
size_t pn_acts_bytes(unsigned need, size_t n, size_t n_col_max);
void pn_acts_init(pn_acts *a, void *storage, unsigned need, size_t n, size_t n_col_max);

/* Quantises vectors [c0, c1) of f32 into the other forms. */
void pn_acts_quantize(const pn_kernels *k, pn_acts *a, size_t c0, size_t c1);

/* Vector c in the form that the weight type takes. */
static inline const void *pn_acts_col(const pn_acts *a, pn_act_kind kind, size_t c)
{
    switch (kind) {
    case PN_ACT_Q8K:
        return a->q8k + c * pn_act_bytes(PN_ACT_Q8K, a->n);
    case PN_ACT_Q8S:
        return a->q8s + c * pn_act_bytes(PN_ACT_Q8S, a->n);
    default:
        return a->f32 + c * a->n;
    }
}

/* The form that a weight's type takes, and its bit. */
static inline pn_act_kind pn_qweight_act(const pn_qweight *w)
{
    return pn_type_get(w->type)->act;
}
static inline unsigned pn_qweight_need(const pn_qweight *w)
{
    return w->data ? 1u << pn_qweight_act(w) : 0;
}

/* y[c][r - row0] = row r of matrix i_mat . x[c] for rows [row0, row1) and n_col columns.
 * x[c] is in the form of the weight's type; scratch is pn_mm_scratch_bytes(k, w->n) bytes, 64-byte
 * aligned, of the calling thread. The same bits for any cut of rows and columns. */
void pn_qmv(const pn_kernels *k, const pn_qweight *w, size_t i_mat, size_t row0, size_t row1,
            const void *const *x, float *const *y, size_t n_col, void *scratch);
size_t pn_mm_scratch_bytes(const pn_kernels *k, size_t n);

#endif
