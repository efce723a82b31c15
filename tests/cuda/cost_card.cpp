#include "cuda/cost_card.h"

#include <algorithm>

// clang-format off
/* Results a clock and multiprocessor: CUDA C++ Programming Guide, "Throughput of Native Arithmetic
 * Instructions"; 32 results are one warp instruction.
 *
 * Kepler: 192 f32, 160 integer sums and logic, 64 shifts, 32 of the rest. Four schedulers that may
 * issue two at a time reach about 80 % of 6 a clock in the best known code (SGEMM). */
static const cost_pipe kepler[COST_PIPES] = {
    /*               issue     f32     int     shift   bits  product convert special memory mma */
    { "issue",     { 1 / 4.8 } },
    { "f32",       { 0,        1 / 6.0 } },
    { "integer",   { 0,        0,      1 / 5.0 } },
    { "products",  { 0,        0,      0,      0.5,    1,    1 } },
    { "conversion",{ 0,        0,      0,      0,      0,    0,      1 } },
    { "special",   { 0,        0,      0,      0,      0,    0,      0,      1 } },
    { "load/store",{ 0,        0,      0,      0,      0,    0,      0,      0,      1 } },
};
/* 8.6, 8.9: 128 f32, 64 integer, 64 products, 16 conversions and special; int8 tensor cores: 1024
 * dense multiply-adds a clock. 9.0: the same but tensor cores of 4096 by wgmma, which mma.sync
 * reaches half of. */
#define PIPES(mma) \
    { "issue",     { 1 / 4.0 } }, \
    { "f32",       { 0,        1 / 4.0 } }, \
    { "integer",   { 0,        0,      0.5,    0.5,    0.5 } }, \
    { "products",  { 0,        0,      0,      0,      0,    0.5 } }, \
    { "special",   { 0,        0,      0,      0,      0,    0,      2,      2 } }, \
    { "load/store",{ 0,        0,      0,      0,      0,    0,      0,      0,      1 } }, \
    { "tensor",    { 0,        0,      0,      0,      0,    0,      0,      0,      0, mma } },
static const cost_pipe ampere[COST_PIPES] = { PIPES(4) };
static const cost_pipe hopper[COST_PIPES] = { PIPES(2) };

const cost_card cost_cards[] = {
    { "2 x K80 die", 37, 2, 13, 0.875, 240, 170, 500, 10, (size_t)11400 << 20,
      64, 16, 131072, 112 << 10, 2.5, 3.0, 5.0, { 9, 20, 24, 33, 100, 230, 500, 0, 12, 40 },
      kepler },
    { "RTX 3090", 86, 1, 82, 1.695, 936, 860, 2000, 25, (size_t)24200 << 20,
      48, 16, 65536, 100 << 10, 1.5, 2.0, 3.0, { 5, 20, 24, 29, 35, 240, 530, 33, 10, 25 },
      ampere },
    /* 8.9 has the same code */
    { "RTX 4090", 86, 1, 128, 2.52, 1008, 930, 4500, 25, (size_t)24200 << 20,
      48, 24, 65536, 100 << 10, 1.5, 2.0, 3.0, { 5, 20, 24, 29, 35, 280, 640, 33, 10, 25 },
      ampere },
    { "H200", 90, 1, 132, 1.83, 4800, 4300, 5500, 50, (size_t)140000 << 20,
      64, 32, 65536, 228 << 10, 1.5, 2.0, 3.0, { 5, 20, 24, 29, 35, 270, 700, 33, 10, 25 },
      hopper },
};
// clang-format on
const size_t cost_n_card = sizeof cost_cards / sizeof *cost_cards;

/* Blocks that a multiprocessor holds at a time. */
static unsigned resident(const cost_card &c, const cost_launch &l)
{
    const unsigned warps = (l.threads + 31) / 32;
    unsigned n = std::min(c.blocks, c.warps / warps);
    if (l.registers) /* given out to warps in units of 256 */
        n = std::min(n, c.registers / ((l.registers * 32 + 255) / 256 * 256 * warps));
    if (l.shared)
        n = std::min(n, (unsigned)(c.shared / l.shared));
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
                clocks += sm.n[k] * c.pipes[p].clocks[k];
            take(c.pipes[p].name, clocks);
        }
    const double read = std::min(whole * l.counts.first_read, l.most_read);
    t.dram_bytes = read + whole * l.counts.first_write;
    t.l2_bytes = whole * (l.counts.l2_read + l.counts.l2_write);
    take("DRAM", t.dram_bytes / c.dram * c.ghz);
    take("L2", t.l2_bytes / c.l2 * c.ghz);
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
