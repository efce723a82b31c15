/* Random numbers by counter, not by state: Philox4x32-10 of Salmon, Moraes, Dror and Shaw,
 * "Parallel random numbers: as easy as 1, 2, 3", SC 2011; constants from its table 2 and section 4.
 * A number depends on its key and counter alone, so neither neighbours in a batch nor drafts that
 * were thrown away ever change a text. */
#ifndef PN_SAMPLING_RNG_H
#define PN_SAMPLING_RNG_H

#include <stdint.h>

/* x [4]: the counter, replaced by four random words; key [2]. */
static inline void pn_philox(uint32_t x[4], const uint32_t key[2])
{
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        const uint64_t a = (uint64_t)0xd2511f53u * x[0], b = (uint64_t)0xcd9e8d57u * x[2];
        const uint32_t x1 = x[1], x3 = x[3];
        x[0] = (uint32_t)(b >> 32) ^ x1 ^ k0;
        x[1] = (uint32_t)b;
        x[2] = (uint32_t)(a >> 32) ^ x3 ^ k1;
        x[3] = (uint32_t)a;
        k0 += 0x9e3779b9u; /* 2^32 / golden ratio */
        k1 += 0xbb67ae85u; /* (sqrt(3) - 1) 2^32 */
    }
}

/* The 64 bits that draw the token at position pos of a request's answer i_choice. */
static inline uint64_t pn_rng_bits(uint64_t seed, uint32_t i_choice, uint64_t pos)
{
    const uint32_t key[2] = { (uint32_t)seed, (uint32_t)(seed >> 32) };
    uint32_t x[4] = { (uint32_t)pos, (uint32_t)(pos >> 32), i_choice, 0 };
    pn_philox(x, key);
    return (uint64_t)x[1] << 32 | x[0];
}

#endif
