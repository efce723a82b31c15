/* The float types' products where check_qmv's data cannot tell the right from the nearly right. */
#include "kernels/harness.h"

#include "base/arith.h"
#include "base/mem.h"
#include "base/tensor_types.h"

#include <string.h>

static void put(uint8_t *w, uint32_t type, size_t i, float v)
{
    const uint16_t h = type == PN_TYPE_F16 ? pn_f2h(v) : (uint16_t)(pn_asu(v) >> 16);
    if (type == PN_TYPE_F32)
        memcpy(w + 4 * i, &v, 4);
    else
        memcpy(w + 2 * i, &h, 2);
}

/* Every product underflows to -0, so that each chain, and their sum, is -0; a chain that a kernel
 * lets take a padding zero would be +0. */
static void check_minus_zero(kt *t, uint32_t type, bool is_gemm, size_t n)
{
    kt_case(t, "n %zu, every product underflows", n);
    enum {
        N_ROW = 5,
        N_COL = 4
    };
    const size_t row_bytes = n * pn_tensor_type_get(type)->block_bytes;
    kt_buf w = kt_buf_new(N_ROW * row_bytes, 1), x = kt_buf_new(n * sizeof(float), 4);
    kt_buf got = kt_buf_new(N_ROW * N_COL * sizeof(float), 4);
    kt_buf scratch = kt_buf_new(pn_round_up(t->k->gemm_scratch_bytes(n), 64), 64);
    for (size_t i = 0; i < N_ROW * n; i++)
        put(w.ptr, type, i, 0x1p-24f);
    for (size_t i = 0; i < n; i++)
        ((float *)x.ptr)[i] = -0x1p-149f;
    float *const y = (float *)got.ptr, *const ys[N_COL] = { y, y + N_ROW, y + 2 * N_ROW,
                                                            y + 3 * N_ROW };
    const void *const xs[N_COL] = { x.ptr, x.ptr, x.ptr, x.ptr };
    if (is_gemm)
        KT_CALL(t, t->k->gemm[type](w.ptr, row_bytes, N_ROW, xs, ys, N_COL, n, scratch.ptr));
    else
        KT_CALL(t, t->k->qmv[type](w.ptr, row_bytes, N_ROW, x.ptr, n, y));
    for (size_t i = 0; i < N_ROW * (is_gemm ? N_COL : 1); i++)
        if (pn_asu(y[i]) != 0x80000000u)
            kt_fail(t, "y[%zu] is %a, expected -0", i, (double)y[i]);
    kt_buf_free(&w);
    kt_buf_free(&x);
    kt_buf_free(&got);
    kt_buf_free(&scratch);
}

void check_qmv_f(kt *t)
{
    static const uint32_t types[] = { PN_TYPE_F32, PN_TYPE_F16, PN_TYPE_BF16 };
    static const size_t lengths[] = { 32, 33, 40, 47, 48, 63, 64, 65 };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        for (int is_gemm = 0; is_gemm < 2; is_gemm++) {
            const size_t slot = is_gemm ? KT_SLOT(gemm[0]) : KT_SLOT(qmv[0]);
            if (!kt_begin(t, slot + types[i] * sizeof t->k->qmv[0], "%s %s -0",
                          is_gemm ? "gemm" : "qmv", pn_tensor_type_name(types[i])))
                continue;
            for (size_t j = 0; j < sizeof lengths / sizeof *lengths; j++)
                check_minus_zero(t, types[i], is_gemm, lengths[j]);
        }
}
