/* The kernels that measure a card's limits. */
#include "cuda/harness.h"

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
