/* The kernels that measure a card's limits. */
#include "cuda/harness.h"

#include <math.h>

TEST(read_sums, "every word is read once, whatever the number of blocks")
{
    for (const size_t n : { (size_t)4, (size_t)1020, (size_t)4096, (size_t)20004 })
        for (const size_t n_block : { (size_t)1, (size_t)3 }) {
            test_case("n %zu, %zu blocks", n, n_block);
            array<uint32_t> x(n), sum(n_block);
            fill_random(x, x.bytes());
            run("pn_k_read", pn_read_args{ x, sum, n }, n_block, 256);
            uint32_t got = 0, want = 0;
            for (const uint32_t s : sum)
                got += s;
            for (const uint32_t w : x)
                want += w;
            same("sum", &got, &want, 1);
        }
}

TEST(peak_steps, "the arithmetic that is timed is done: every step of every accumulator")
{
    for (const int kind : { PN_PEAK_F32, PN_PEAK_DP4A, PN_PEAK_MMA })
        for (const uint32_t n_iter : { 0u, 1u, 3u }) {
            test_case("kind %d, %u iterations", kind, n_iter);
            array<uint32_t> out(512);
            run("pn_k_peak", pn_peak_args{ out, n_iter, kind }, 2, 256);
            const uint32_t n_step = n_iter * PN_PEAK_ROUNDS;
            const uint32_t depth = arch() >= 800 ? 32 : arch() >= 750 ? 16 : 0;
            std::vector<uint32_t> want(512, 0);
            for (uint32_t thread = 0; thread < 512; thread++)
                for (uint32_t j = 0; j < PN_PEAK_CHAINS; j++) {
                    float f = (float)(thread + j);
                    uint32_t c = thread + j;
                    for (uint32_t i = 0; i < n_step; i++) {
                        f = fmaf(f, 0.5f, 1.0f);
                        const uint32_t was = c;
                        for (uint32_t b = 0; b < 4; b++)
                            c += (uint32_t)((int8_t)(was >> (8 * b)) * (int)(3 + 2 * b));
                    }
                    uint32_t bits;
                    memcpy(&bits, &f, 4);
                    /* elements of an 8 x 8 fragment: two a lane; of 16 x 8: four */
                    want[thread] += kind == PN_PEAK_F32    ? bits
                                    : kind == PN_PEAK_DP4A ? c
                                                           : 6 * depth * n_step * (depth / 8);
                }
            same("out", out, want);
        }
}
