#include "cuda/cost_card.h"

#include <algorithm>

/* Where the figures come from:
 *
 * [G] NVIDIA, CUDA C++ Programming Guide, "Throughput of Native Arithmetic Instructions" (since 13
 *     in the Best Practices Guide): results a clock and multiprocessor; 32 are a warp instruction.
 *     "Compute Capabilities": warps, blocks, registers, shared memory of a multiprocessor.
 * [N] NVIDIA, Nsight Compute's profiling guide: which pipe executes what.
 * [S] Data sheets: K80, GA102, AD102 and H100 white papers, H200.
 * [P] LANL, PPT-GPU's Kepler (K40m), after Arafa et al., arXiv:1905.08778: latencies.
 * [D] github.com/markdewing/AI_kernels, latency/README.md: pointer chases over all of a memory on
 *     a 4090, H100 SXM, A100 SXM, RTX 2000 Ada.
 * [B] BabelStream's results: a K80 copies 180 GB/s with ECC, 204 without.
 * [X] github.com/xytpai/nvbench: a 4090 reads 921 GB/s, 91 % of its data sheet.
 * [R] github.com/te42kyfo/gpu-benches: L2 of A100 and H100, "about 5.x TB/s".
 * [H] Spector et al. 2025, "Look Ma, No Bubbles": on an H100 a kernel costs 2.1 us by stream and
 *     1.3 in a graph beside its work.
 * [E] github.com/pegainfer-project/pegainfer/issues/569: two empty kernels by themselves in a
 *     graph: programmatic dependent launch takes 0.96 us off the gap.
 * [F] Luo et al., arXiv:2402.13499, from memory: shared memory 29 to 30 clocks; mma.sync reaches
 *     some 60 % of an H100's tensor cores.
 *
 * What has none of them is assumed. */

// clang-format off
/* [G] 3.7: 192 f32, 160 integer sums, comparisons and logic, 64 shifts, 32 of the rest. Assumed:
 * four schedulers that may issue two at a time reach 80 % of six a clock, all the f32 there are. */
static const cost_pipe kepler_pipes[COST_PIPES] = {
    /*               issue     f32     int     shift   bits  product convert special memory mma */
    { "issue",     { 1 / 4.8 } },
    { "f32",       { 0,        1 / 6.0 } },
    { "integer",   { 0,        0,      1 / 5.0 } },
    { "products",  { 0,        0,      0,      0.5,    1,    1 } },
    { "conversion",{ 0,        0,      0,      0,      0,    0,      1 } },
    { "special",   { 0,        0,      0,      0,      0,    0,      0,      1 } },
    { "load/store",{ 0,        0,      0,      0,      0,    0,      0,      0,      1 } },
};
/* [G] 8.6, 8.9, 9.0: 128 f32, 64 integer sums, logic and shifts, 64 products, 16 special, 32
 * shuffles. [N]: dp4a by the heavy half of the fma pipe, as products; conversions of integers and
 * floats by the special unit. [S] int8 tensor cores: 1024 dense multiply-adds a clock, on 9.0
 * 4096, of which mma.sync reaches half [F]. */
#define PIPES(mma) \
    { "issue",     { 1 / 4.0 } }, \
    { "f32",       { 0,        1 / 4.0 } }, \
    { "integer",   { 0,        0,      0.5,    0.5,    0.5 } }, \
    { "products",  { 0,        0,      0,      0,      0,    0.5 } }, \
    { "special",   { 0,        0,      0,      0,      0,    0,      2,      2 } }, \
    { "load/store",{ 0,        0,      0,      0,      0,    0,      0,      0,      1 } }, \
    { "tensor",    { 0,        0,      0,      0,      0,    0,      0,      0,      0, mma } },
static const cost_pipe ampere_pipes[COST_PIPES] = { PIPES(4) };
static const cost_pipe hopper_pipes[COST_PIPES] = { PIPES(2) };

static const cost_arch kepler = { 37, kepler_pipes, 64, 16, 131072, 112 << 10 };
static const cost_arch ampere = { 86, ampere_pipes, 48, 16, 65536, 100 << 10 };
static const cost_arch ada    = { 86, ampere_pipes, 48, 24, 65536, 100 << 10 }; /* the same code */
static const cost_arch hopper = { 90, hopper_pipes, 64, 32, 65536, 228 << 10 };

/* Multiprocessors, clocks, the data sheet's GB/s, L2's and the memory's size: [S]. DRAM: [B]; as
 * the 4090, [X]; [X]; a copy measured on an H200. L2: assumed; assumed; assumed; [R]. Gaps: [H],
 * assumed where it is not a Hopper, most of all on a K80. Latencies in clocks, L1, L2, DRAM: K80
 * [P], its texture cache for L1, DRAM 331 there, with misses of the address translation assumed;
 * 3090 assumed, near A100 and RTX 2000 of [D]; 4090 and H100 [D]. f32 and integers: [P]; 4 since
 * Volta, assumed. Shared memory: [P], [F]. Others assumed. */
const cost_card cost_cards[] = {
    { "two K80 dies", &kepler, 2, 13, 0.875, { 240, 180, 340, 10 }, 1.5e6, 11400,
      { 2.5, 3.0, 5.0, 0 }, { 9, 20, 24, 26, 112, 188, 500, 0, 12, 40 } },
    { "RTX 3090", &ampere, 1, 82, 1.695, { 936, 855, 2000, 25 }, 6e6, 24200,
      { 1.3, 2.1, 3.0, 0 }, { 4, 20, 24, 29, 40, 215, 560, 33, 10, 25 } },
    { "RTX 4090", &ada, 1, 128, 2.52, { 1008, 921, 4500, 25 }, 72e6, 24200,
      { 1.3, 2.1, 3.0, 0 }, { 4, 20, 24, 30, 40, 296, 636, 33, 10, 25 } },
    { "H200", &hopper, 1, 132, 1.83, { 4800, 4300, 5500, 50 }, 50e6, 140000,
      { 1.3, 2.1, 3.0, 0.96 }, { 4, 20, 24, 29, 40, 291, 700, 33, 10, 25 } },
};
// clang-format on
const size_t cost_n_card = sizeof cost_cards / sizeof *cost_cards;

/* Blocks that a multiprocessor holds at a time. */
static unsigned resident(const cost_card &c, const cost_launch &l)
{
    const unsigned warps = (l.threads + 31) / 32;
    unsigned n = std::min(c.arch->blocks, c.arch->warps / warps);
    if (l.registers) /* given out to warps in units of 256 */
        n = std::min(n, c.arch->registers / ((l.registers * 32 + 255) / 256 * 256 * warps));
    if (l.shared)
        n = std::min(n, (unsigned)(c.arch->shared / l.shared));
    return std::max(n, 1u);
}

cost_time cost_time_of(const cost_card &c, const cost_launch &l)
{
    const std::vector<cost_block> &ran = l.counts.blocks;
    const double whole = (double)l.n_block / (double)ran.size();
    /* Blocks go to the place that is free first; what a multiprocessor's blocks do adds up. */
    const size_t n_place = (size_t)c.n_sm * resident(c, l);
    std::vector<std::pair<double, size_t>> places;
    for (size_t p = 0; p < std::min<size_t>(n_place, l.n_block); p++)
        places.push_back({ 0, p });
    std::vector<cost_block> sms((size_t)c.n_sm);
    const auto later = [](const auto &a, const auto &b) { return a > b; };
    double path = 0;
    for (unsigned b = 0; b < l.n_block; b++) {
        const cost_block &block = ran[(size_t)((double)b / whole)];
        std::pop_heap(places.begin(), places.end(), later);
        std::pair<double, size_t> &place = places.back();
        place.first += block.clocks;
        path = std::max(path, place.first);
        for (int k = 0; k < COST_CLASSES; k++)
            sms[place.second % (size_t)c.n_sm].n[k] += block.n[k];
        std::push_heap(places.begin(), places.end(), later);
    }
    cost_time t = {};
    double most = 0;
    const auto take = [&](const char *name, double clocks) {
        if (clocks > most) {
            most = clocks;
            t.bound = name;
        }
    };
    for (int p = 0; p < COST_PIPES; p++)
        for (const cost_block &sm : sms) {
            double clocks = 0;
            for (int k = 0; k < COST_CLASSES; k++)
                clocks += sm.n[k] * c.arch->pipes[p].clocks[k];
            take(c.arch->pipes[p].name, clocks);
        }
    const double read = std::min(whole * l.counts.first_read, l.most_read);
    t.dram_bytes = read + whole * l.counts.first_write;
    t.l2_bytes = whole * (l.counts.l2_read + l.counts.l2_write);
    take("DRAM", t.dram_bytes / c.rate.dram * c.ghz);
    take("L2", t.l2_bytes / c.rate.l2 * c.ghz);
    most += c.latency.dram; /* until the first bytes are there */
    if (l.has_tail) {
        std::vector<double> clocks;
        for (const cost_block &b : ran)
            clocks.push_back(b.clocks);
        std::nth_element(clocks.begin(), clocks.begin() + (ptrdiff_t)clocks.size() / 2,
                         clocks.end());
        most += std::max(0.0, ran.back().clocks - clocks[clocks.size() / 2]);
    }
    take("latency", path);
    t.us = most / c.ghz * 1e-3;
    return t;
}
