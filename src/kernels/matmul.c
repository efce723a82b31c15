#include "kernels/matmul.h"

#include "base/mem.h"

enum {
    QMV_ROWS = 16 /* that stay in the first cache level while few columns pass by, one by one */
};

static size_t form_bytes(pn_act_kind kind, size_t n, size_t n_col)
{
    return pn_round_up(pn_act_bytes(kind, n) * n_col, PN_ALIGN);
}

size_t pn_acts_bytes(unsigned need, size_t n, size_t n_col_max)
{
    return form_bytes(PN_ACT_F32, n, n_col_max) +
           (need & PN_NEED_Q8K ? form_bytes(PN_ACT_Q8K, n, n_col_max) : 0) +
           (need & PN_NEED_Q8S ? form_bytes(PN_ACT_Q8S, n, n_col_max) : 0);
}

void pn_acts_init(pn_acts *a, void *storage, unsigned need, size_t n, size_t n_col_max)
{
    uint8_t *at = storage;
    *a = (pn_acts){ .n = n, .need = need, .f32 = storage };
    at += form_bytes(PN_ACT_F32, n, n_col_max);
    if (need & PN_NEED_Q8K) {
        a->q8k = at;
        at += form_bytes(PN_ACT_Q8K, n, n_col_max);
    }
    if (need & PN_NEED_Q8S)
        a->q8s = at;
}

void pn_acts_quantize(const pn_kernels *k, pn_acts *a, size_t c0, size_t c1)
{
    for (size_t c = c0; c < c1; c++) {
        const float *const x = a->f32 + c * a->n;
        if (a->q8k)
            k->quantize_q8k(a->q8k + c * pn_act_bytes(PN_ACT_Q8K, a->n), x, a->n);
        if (a->q8s)
            k->quantize_q8s(a->q8s + c * pn_act_bytes(PN_ACT_Q8S, a->n), x, a->n);
    }
}

void pn_qmv(const pn_kernels *k, const pn_qweight *w, size_t i_mat, size_t row0, size_t row1,
            const void *const *x, float *const *y, size_t n_col, void *scratch)
{
    PN_ASSERT(row0 <= row1 && row1 <= w->n_row && i_mat < w->n_mat);
    const uint8_t *const rows = pn_qweight_row(w, i_mat, row0);
    const size_t n_row = row1 - row0;
    if (n_col == 1) {
        k->qmv[w->type](rows, w->row_bytes, n_row, x[0], w->n, y[0]);
        return;
    }
    if (n_col >= k->gemm_cols_min) {
        k->gemm[w->type](rows, w->row_bytes, n_row, x, y, n_col, w->n, scratch);
        return;
    }
    for (size_t r = 0; r < n_row; r += QMV_ROWS) {
        const size_t n = n_row - r < QMV_ROWS ? n_row - r : QMV_ROWS;
        for (size_t c = 0; c < n_col; c++)
            k->qmv[w->type](rows + r * w->row_bytes, w->row_bytes, n, x[c], w->n, y[c] + r);
    }
}

size_t pn_mm_scratch_bytes(const pn_kernels *k, size_t n)
{
    return pn_round_up(k->gemm_scratch_bytes ? k->gemm_scratch_bytes(n) : 0, PN_ALIGN);
}
