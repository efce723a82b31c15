/* Weights and activations for the tests of the matrix kernels: the families of the CPU's tests
 * (kernels/qmv_data.h), in the forms of the host and of the device. */
#ifndef PN_TESTS_CUDA_MATMUL_DATA_H
#define PN_TESTS_CUDA_MATMUL_DATA_H

#include "cuda/launch.h"
extern "C" {
#include "base/tensor_types.h"
#include "cuda/matmul.h"
#include "cuda/repack.h"
#include "kernels/qmv_data.h"
}

static const uint32_t all_types[] = { PN_TYPE_Q2_K,  PN_TYPE_Q3_K,   PN_TYPE_Q4_K, PN_TYPE_Q5_K,
                                      PN_TYPE_Q6_K,  PN_TYPE_IQ4_XS, PN_TYPE_Q8_0, PN_TYPE_Q4_0,
                                      PN_TYPE_Q4_1,  PN_TYPE_Q5_0,   PN_TYPE_Q5_1, PN_TYPE_IQ4_NL,
                                      PN_TYPE_MXFP4, PN_TYPE_F32,    PN_TYPE_F16,  PN_TYPE_BF16 };

/* The families' generator, on from the harness's random numbers. */
static inline kt family_random(void)
{
    kt t = {};
    t.rand = random_bits();
    return t;
}

/* A stack of n_mat matrices, as in a file and on the device. */
struct weights {
    std::vector<uint8_t> file;
    pn_qweight w;
    array<uint8_t> device;
    pn_dmat d;

    weights(uint32_t type, size_t n, size_t n_row, size_t n_mat, w_family family)
        : file(bytes_of(type, n, n_row, n_mat)), w(make(type, n, n_row, n_mat, family)),
          device(n_mat * fc_repack_bytes((pn_type)type, n, n_row))
    {
        const size_t bytes = fc_repack_bytes((pn_type)type, n, n_row);
        for (size_t i = 0; i < n_mat; i++) { /* in two parts, as two threads would */
            fc_repack_weight(&w, i, n_row / 2, n_row, device + i * bytes);
            fc_repack_weight(&w, i, 0, n_row / 2, device + i * bytes);
        }
        d = { device, bytes, type, (uint32_t)n, (uint32_t)n_row };
    }

  private:
    static size_t bytes_of(uint32_t type, size_t n, size_t n_row, size_t n_mat)
    {
        const pn_tensor_type *const t = pn_tensor_type_get(type);
        return n / t->block_n * t->block_bytes * n_row * n_mat;
    }
    pn_qweight make(uint32_t type, size_t n, size_t n_row, size_t n_mat, w_family family)
    {
        kt t = family_random();
        const pn_tensor_type *const info = pn_tensor_type_get(type);
        make_blocks(&t, type, family, file.data(), n / info->block_n * n_row * n_mat);
        pn_qweight r = {};
        CHECK(pn_qweight_init(&r, "test", type, file.data(), n, n_row, n_mat, nullptr) == PN_OK);
        return r;
    }
};

/* n_vec vectors of n values in every form that n allows, each vector of another family. */
struct acts {
    size_t n, n_vec;
    array<float> f32;
    array<uint8_t> q8k, q8s;
    pn_dacts d;

    acts(size_t n_, size_t n_vec_, x_family family)
        : n(n_), n_vec(n_vec_), f32(n_ * n_vec_),
          q8k(n_ % 256 ? 0 : n_vec_ * pn_act_bytes(PN_ACT_Q8K, n_)),
          q8s(n_ % 32 ? 0 : n_vec_ * pn_act_bytes(PN_ACT_Q8S, n_))
    {
        kt t = family_random();
        for (size_t i = 0; i < n_vec; i++)
            make_floats(&t, (x_family)((family + i) % X_BAD), f32 + i * n, n);
        quantize();
        d = { f32, (const pn_q8k *)(uint8_t *)q8k, (const pn_q8s *)(uint8_t *)q8s };
    }
    void quantize(void)
    {
        for (size_t i = 0; i < n_vec; i++) {
            if (q8k.size())
                scalar().quantize_q8k(q8k + i * pn_act_bytes(PN_ACT_Q8K, n), f32 + i * n, n);
            if (q8s.size())
                scalar().quantize_q8s(q8s + i * pn_act_bytes(PN_ACT_Q8S, n), f32 + i * n, n);
        }
    }
    const void *col(uint32_t type, size_t i) const
    {
        const pn_act_kind kind = pn_type_get(type)->act;
        if (kind == PN_ACT_F32)
            return f32 + i * n;
        return (kind == PN_ACT_Q8K ? q8k : q8s) + i * pn_act_bytes(kind, n);
    }
};

/* y [n_row] = matrix i_mat . x, by the specification. */
static inline void scalar_product(const weights &w, size_t i_mat, const void *x, float *y)
{
    scalar().qmv[w.w.type](pn_qweight_row(&w.w, i_mat, 0), w.w.row_bytes, w.w.n_row, x, w.w.n, y);
}

/* Equal bits, but that any NaN is as good as another: which one a sum of two has is open. */
static inline void same_floats(const char *what, const float *got, const float *want, size_t n)
{
    std::vector<float> g(got, got + n), w(want, want + n);
    for (std::vector<float> *const v : { &g, &w })
        for (float &f : *v)
            if (f != f)
                f = 0x1.8p127f;
    same(what, g.data(), w.data(), n);
}

/* The kernel that pn_matmul_dims chooses against the specification, n_tok columns, with a residual
 * or without. */
static inline void check_product(const weights &w, const acts &x, uint32_t n_tok, bool has_residual,
                                 int n_sm)
{
    const size_t n_row = w.w.n_row, stride = n_row + 3;
    array<float> y(n_tok * stride), res(n_tok * n_row);
    fill_normal(res, 1.0f);
    std::vector<float> want(y.begin(), y.end()), want_res(res.begin(), res.end());
    for (size_t c = 0; c < n_tok; c++) {
        float *const yc = want.data() + c * stride;
        scalar_product(w, 0, x.col(w.d.type, c), yc);
        if (has_residual)
            scalar().add(want_res.data() + c * n_row, yc, n_row);
    }
    pn_matmul_args a = {};
    a.mat[0] = { w.d, y, has_residual ? (float *)res : nullptr, (uint32_t)stride, 0 };
    a.x = x.d;
    a.n_mat = 1;
    a.n_tok = n_tok;
    launch(a, pn_matmul_dims(&a, n_sm));
    same_floats("y", y, want.data(), want.size());
    same_floats("residual", res, want_res.data(), want_res.size());
}

static inline const char *type_name(uint32_t type)
{
    return pn_tensor_type_get(type)->name;
}

#endif
