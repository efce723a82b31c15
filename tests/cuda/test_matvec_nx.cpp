/* pn_k_qmv_nx: n vectors in one launch are the bits of n launches of pn_k_qmv; what it saves. */
#include "cuda/matmul_data.h"

#include <stdio.h>

namespace
{
/* Bytes that the launch must move: the matrix, the vectors, the results. */
double bytes_moved(const weights &w, size_t n_col)
{
    const size_t act = pn_act_bytes(pn_type_get(w.d.type)->act, w.d.n);
    return (double)w.d.mat_bytes + (double)n_col * ((double)act + 4.0 * w.d.n_row);
}

void run_nx(const weights &w, const acts &x, uint32_t first, uint32_t n_col, float *y)
{
    pn_matmul_args a = {};
    a.mat[0] = { w.d, y, nullptr, w.d.n_row, 0 };
    a.x.f32 = (const float *)x.col(PN_TYPE_F32, first);
    a.x.q8k = (const pn_q8k *)x.col(PN_TYPE_Q4_K, first);
    a.x.q8s = (const pn_q8s *)x.col(PN_TYPE_Q8_0, first);
    a.n_mat = 1;
    a.n_tok = n_col;
    launch(a, pn_matmul_dims(&a, 2));
}
} // namespace

TEST(matvec_nx, "n columns in one launch: the bits of n single ones, for every type and n")
{
    for (const uint32_t type : all_types) {
        const size_t n = 512, n_row = 19;
        const weights w(type, n, n_row, 1, W_TYPICAL);
        const acts x(n, PN_QMV_COLS, X_NORMAL);
        array<float> single(PN_QMV_COLS * n_row);
        for (uint32_t c = 0; c < PN_QMV_COLS; c++)
            run_nx(w, x, c, 1, single + c * n_row);
        for (uint32_t n_col = 2; n_col <= PN_QMV_COLS; n_col++) {
            test_case("%s, %u columns", type_name(type), n_col);
            array<float> y(n_col * n_row);
            run_nx(w, x, 0, n_col, y);
            same("y", y.begin(), single.begin(), y.size());
        }
    }
}

TEST(matvec_nx_gain, "eight columns in one launch move and compute far less than eight launches")
{
    for (const uint32_t type : all_types) {
        const weights w(type, 2048, 16, 1, W_TYPICAL);
        const acts x(2048, 8, X_NORMAL);
        array<float> y(8 * 16);
        const unsigned long long n0 = executed();
        for (uint32_t c = 0; c < 8; c++)
            run_nx(w, x, c, 1, y + c * 16);
        const unsigned long long n1 = executed();
        run_nx(w, x, 0, 8, y);
        const unsigned long long n_single = n1 - n0, n_nx = executed() - n1;
        const double bytes = 8 * bytes_moved(w, 1) / bytes_moved(w, 8);
        CHECK(bytes > 3);
        if (!n_nx)
            continue; /* this backend does not count */
        const double work = (double)n_single / (double)n_nx;
        CHECK(work > 1);
        printf("matvec_nx %d %-6s 8 columns of 2048: %.1f times fewer bytes, %.1f times fewer "
               "instructions\n",
               arch(), type_name(type), bytes, work);
    }
}
