/* Activations to 8 bits on the device. */
#include "cuda/matmul_data.h"

TEST(quantize_all, "the forms are the CPU's bytes, whatever the values, ragged ends included")
{
    for (const size_t n : { (size_t)32, (size_t)256, (size_t)288, (size_t)480, (size_t)768 })
        for (int f = 0; f < X_FAMILY_COUNT; f++) {
            const size_t n_vec = 3, k_bytes = n % 256 ? 0 : pn_act_bytes(PN_ACT_Q8K, n),
                         s_bytes = pn_act_bytes(PN_ACT_Q8S, n);
            test_case("n %zu, %s", n, x_family_names[f]);
            array<float> x(n * n_vec);
            kt t = family_random();
            for (size_t i = 0; i < n_vec; i++)
                make_floats(&t, (x_family)f, x + i * n, n);
            std::vector<uint8_t> want_k(k_bytes * n_vec), want_s(s_bytes * n_vec);
            for (size_t i = 0; i < n_vec; i++) {
                scalar().quantize_q8s(want_s.data() + i * s_bytes, x + i * n, n);
                if (k_bytes)
                    scalar().quantize_q8k(want_k.data() + i * k_bytes, x + i * n, n);
            }
            array<uint8_t> k(want_k.size()), s(want_s.size());
            pn_quantize_args a = { x, nullptr, (pn_q8s *)(uint8_t *)s, (uint32_t)n,
                                   (uint32_t)n_vec };
            if (k_bytes)
                a.q8k = (pn_q8k *)(uint8_t *)k;
            launch(a, pn_quantize_dims(&a));
            same("q8k", k, want_k);
            same("q8s", s, want_s);
        }
}
