/* The cost model's counts and times of kernels whose PTX is written here, against those worked out
 * by hand; and what the interpreter promises them. */
#include "cuda/harness.h"

#include "cuda/cost_card.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <string>
#include <unistd.h>

namespace
{
/* Kernels of one pointer, %rd1; %r1 is the lane. */
struct {
    const char *name, *body;
} const kernels[] = {
    { "mixed", R"(
    .shared .align 16 .b8 s[4096];
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd4, %rd1, %rd3;
    ld.global.nc.f32 %f1, [%rd4];
    fma.rn.f32 %f2, %f1, %f1, %f1;
    shl.b32 %r2, %r1, 7;
    mov.u32 %r3, s;
    add.s32 %r4, %r3, %r2;
    st.shared.f32 [%r4], %f2;
    bar.sync 0;
    ld.shared.f32 %f3, [%r3];
    mul.wide.u32 %rd5, %r1, 128;
    add.s64 %rd6, %rd1, %rd5;
    ld.global.nc.f32 %f4, [%rd6];
    add.rn.f32 %f5, %f3, %f4;
    st.global.f32 [%rd4], %f5;)" },
    { "loop", R"(
$L_1:
    add.s32 %r2, %r1, 1;
    add.s32 %r3, %r3, 1;
    setp.lt.s32 %p1, %r3, 10;
    @%p1 bra $L_1;)" },
    { "wide", R"(
    .shared .align 16 .b8 t[512];
    setp.lt.s32 %p1, %r1, 16;
    mul.wide.u32 %rd2, %r1, 16;
    add.s64 %rd3, %rd1, %rd2;
    mov.u32 %r2, 0;
    mov.u32 %r3, 0;
    mov.u32 %r4, 0;
    mov.u32 %r5, 0;
    @%p1 ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%rd3];
    shl.b32 %r6, %r1, 4;
    mov.u32 %r7, t;
    add.s32 %r8, %r7, %r6;
    st.shared.v4.u32 [%r8], {%r2, %r3, %r4, %r5};
    dp4a.s32.s32 %r9, %r2, %r3, %r4;
    shfl.sync.bfly.b32 %r10|%p1, %r9, 1, 31, -1;
    popc.b32 %r11, %r10;)" },
    { "twice", R"(
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd4, %rd1, %rd3;
    ld.global.nc.f32 %f1, [%rd4];
    ld.global.nc.f32 %f2, [%rd4+32];
    add.rn.f32 %f3, %f1, %f2;)" },
    { "ahead", R"(
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
    prefetch.global.L2 [%rd3];
    ld.global.nc.f32 %f1, [%rd3];
    add.rn.f32 %f2, %f1, %f1;)" },
    { "first_block_writes", R"(
    mov.u32 %r2, %ctaid.x;
    setp.ne.s32 %p1, %r2, 0;
    @%p1 bra $L_1;
    mov.u32 %r4, 1;
$L_1:
    st.global.u32 [%rd1], %r4;)" },
};

/* The same instruction, a thousand times. */
enum {
    N_MANY = 1000
};
struct {
    const char *name, *text;
    double a_clock[2]; /* results a multiprocessor: Kepler, the others */
    const char *bound[2];
} const rates[] = {
    { "many_fma", "fma.rn.f32 %f2, %f1, %f1, %f1;", { 4.8 * 32, 128 }, { "issue", "issue" } },
    { "many_add", "add.s32 %r2, %r1, 1;", { 4.8 * 32, 64 }, { "issue", "integer" } },
    { "many_and", "and.b32 %r2, %r1, 1;", { 4.8 * 32, 64 }, { "issue", "integer" } },
    { "many_shl", "shl.b32 %r2, %r1, 1;", { 64, 64 }, { "products", "integer" } },
    { "many_mul", "mul.lo.s32 %r2, %r1, %r1;", { 32, 64 }, { "products", "products" } },
    { "many_popc", "popc.b32 %r2, %r1;", { 32, 16 }, { "special", "special" } },
    { "many_cvt", "cvt.rn.f32.s32 %f2, %r1;", { 32, 16 }, { "conversion", "special" } },
    { "many_shfl",
      "shfl.sync.bfly.b32 %r2|%p1, %r1, 1, 31, -1;",
      { 32, 32 },
      { "load/store", "load/store" } },
};

std::string entry(const char *name, const std::string &body)
{
    return std::string(".visible .entry ") + name + "(\n.param .u64 " + name + R"(_param_0
)
{
    .reg .pred %p<2>;
    .reg .b32 %r<12>;
    .reg .f32 %f<6>;
    .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [)" +
           name + R"(_param_0];
    mov.u32 %r1, %tid.x;
    mov.u32 %r3, 0;
    mov.f32 %f1, 0f3F800000;)" +
           body + R"(
    ret;
}
)";
}

std::string text(void)
{
    std::string all = ".version 7.8\n.target sm_90\n.address_size 64\n";
    for (const auto &k : kernels)
        all += entry(k.name, k.body);
    for (const auto &r : rates) {
        std::string body;
        for (int i = 0; i < N_MANY; i++)
            body += std::string("\n    ") + r.text;
        all += entry(r.name, body);
    }
    return all;
}

const cost_latency latency = { 5, 20, 24, 30, 40, 200, 500, 33, 10, 25 };

alignas(128) float memory[32 * 32];

ptx_module *module(void)
{
    static ptx_module m;
    if (!m.kernels.empty())
        return &m;
    char name[] = "/tmp/pantheon-test-cost-XXXXXX";
    const int fd = mkstemp(name);
    const std::string ptx = text();
    const bool is_written = fd >= 0 && write(fd, ptx.data(), ptx.size()) == (ssize_t)ptx.size();
    close(fd);
    CHECK(is_written && ptx_load(&m, name));
    unlink(name);
    ptx_add_memory(memory, sizeof memory);
    return &m;
}

/* n_block blocks of a warp, of which those in `blocks` run. */
cost_counts count(const char *kernel, int sm, unsigned n_block = 1,
                  const std::vector<unsigned> *blocks = nullptr, cost_l2 *l2 = nullptr,
                  const cost_latency &l = latency)
{
    cost_counter counter(sm, l);
    const unsigned grid[3] = { n_block, 1, 1 }, block[3] = { 32, 1, 1 };
    const float *const args = memory;
    counter.use_l2(l2, 1);
    ptx_watching = &counter;
    ptx_launch(ptx_get(module(), kernel), grid, block, 0, &args, blocks);
    ptx_watching = nullptr;
    return counter.counts;
}

void near(const char *what, double got, double want)
{
    if (fabs(got - want) > 1e-9 * fabs(want))
        fail("%s: %.17g, not %.17g", what, got, want);
}

void has_classes(const cost_block &b, const double (&want)[COST_CLASSES])
{
    for (int c = 0; c < COST_CLASSES; c++) {
        test_case("class %d", c);
        near("instructions", b.n[c], want[c]);
    }
}

uint64_t sector_of(const void *p)
{
    return (uint64_t)(uintptr_t)p / 32;
}
} // namespace

TEST_ONCE(registers_are_garbage, "a block finds nothing of what other blocks left in registers")
{
    const std::vector<unsigned> first = { 0 }, second = { 1 };
    const auto left = [](const std::vector<unsigned> *blocks) {
        count("first_block_writes", 900, 2, blocks);
        uint32_t u;
        memcpy(&u, memory, 4);
        memory[0] = 0;
        return u;
    };
    CHECK(left(&first) == 1);
    CHECK(left(&second) == 0xdddddddd); /* of an earlier launch */
    CHECK(left(nullptr) == 0xdddddddd); /* of the same one */
}

TEST_ONCE(cost_classes, "every instruction of a kernel is counted once, in its class")
{
    /* issue, float, int, shift, bits, product, convert, special, memory, mma; each entry has the
     * lane's number and a return */
    has_classes(count("mixed", 900).blocks[0], { 18, 2, 6, 1, 0, 2, 0, 0, 1 + 32 + 1 + 8 + 1, 0 });
    has_classes(count("mixed", 370).blocks[0], { 20, 2, 6, 1, 0, 4, 0, 0, 43, 0 });
    has_classes(count("loop", 900).blocks[0], { 42, 0, 31, 0, 0, 0, 0, 0, 0, 0 });
    has_classes(count("wide", 900).blocks[0], { 13, 0, 5, 1, 0, 2, 0, 1, 2 + 4 + 1, 0 });
}

TEST_ONCE(cost_bytes, "a sector is read once by a block, and first by one block")
{
    const cost_counts one = count("mixed", 900);
    near("read", one.l2_read, 32.0 * (4 + 31));
    near("first read", one.first_read, one.l2_read);
    near("written", one.l2_write, 128);
    near("first written", one.first_write, 128);
    const cost_counts three = count("mixed", 900, 3);
    near("read by three", three.l2_read, 3 * one.l2_read);
    near("first read by three", three.first_read, one.first_read);
    near("first written by three", three.first_write, 128);
    near("half a warp's", count("wide", 900).l2_read, 256);
    const cost_counts ahead = count("ahead", 900);
    near("read after a prefetch", ahead.l2_read, 128);
    near("first read by a prefetch", ahead.first_read, 128);
}

TEST_ONCE(cost_clocks, "a block takes as long as its longest chain")
{
    /* lane 5, address 20, load 520, fma 525, store, barrier 551, address 566, strided load 1073,
     * sum 1078, store 1079, end */
    near("mixed", count("mixed", 900).blocks[0].clocks, 1089);
    near("loop", count("loop", 900).blocks[0].clocks, 9 * 21 + 11 + 11);
    /* what the block beside it has asked for is on its way: no sooner here than there */
    const cost_counts two = count("mixed", 900, 2);
    near("second block", two.blocks[1].clocks, 1089);
    /* address 20, what was asked for there comes at 520 as without a prefetch */
    near("ahead", count("ahead", 900).blocks[0].clocks, 531);
    /* three of the second load's four sectors were asked for a clock before */
    near("twice", count("twice", 900).blocks[0].clocks, 20 + 500 + 1 + 10);
}

TEST_ONCE(cost_residency, "what a launch leaves in L2 the next one does not read from DRAM")
{
    cost_l2 l2(4096), small(64), none(0);
    near("cold", count("mixed", 900, 1, nullptr, &l2).first_read, 32.0 * (4 + 31));
    const cost_counts warm = count("mixed", 900, 1, nullptr, &l2);
    near("warm", warm.first_read, 0);
    near("through L2", warm.l2_read, 32.0 * (4 + 31));
    /* both loads from L2: 220, and 773 */
    near("clocks", warm.blocks[0].clocks, 1089 - 2 * 300);
    count("mixed", 900, 1, nullptr, &small);
    near("too small", count("mixed", 900, 1, nullptr, &small).first_read, 32.0 * (4 + 31));
    count("mixed", 900, 1, nullptr, &none);
    near("none", count("mixed", 900, 1, nullptr, &none).first_read, 32.0 * (4 + 31));
}

TEST_ONCE(cost_eviction, "L2 drops what was touched longest ago, once as many bytes have come in")
{
    cost_l2 l2(65536);
    l2.touch(1000, 1, true);
    l2.touch(2000, 1, true);
    l2.touch(5000, 1000, false); /* one of a thousand like it */
    CHECK(l2.holds(1000) && l2.holds(2000) && !l2.holds(3000));
    l2.touch(1000, 1, true); /* young again */
    l2.touch(6000, 1200, false);
    CHECK(l2.holds(1000));
    CHECK(!l2.holds(2000));
}

TEST_ONCE(cost_replay, "a launch that does not run leaves what its like left, at its own addresses")
{
    cost_l2 l2(1 << 20);
    const uint64_t x = 1 << 20, y = 2 << 20; /* bytes */
    l2.begin();
    for (uint64_t i = 0; i < 64; i++) {
        l2.touch(x / 32 + i, 1, false); /* weights, say */
        l2.touch(y / 32 + i, 1, true);
    }
    const cost_trace t = l2.end({ y, x }, 1, INFINITY);
    near("bytes", t.bytes, 2 * 64 * 32);
    CHECK(l2.holds(y / 32) && l2.holds(y / 32 + 63));
    l2.replay(t, { 3 * y, 3 * x });
    CHECK(l2.holds(3 * y / 32) && l2.holds(3 * y / 32 + 63));
    CHECK(!l2.holds(3 * y / 32 + 64) && !l2.holds(3 * x / 32));
    for (int i = 0; i < 254; i++) /* as many launches as fill it but for the last of y */
        l2.replay(t, { 5 * y, 5 * x });
    CHECK(!l2.holds(y / 32) && l2.holds(3 * y / 32 + 63));
    l2.replay(t, { 5 * y, 5 * x });
    l2.replay(t, { 5 * y, 5 * x });
    CHECK(!l2.holds(3 * y / 32 + 63));

    /* Every fourth sector by the blocks that run: all of them; and no more bytes than there are. */
    cost_l2 sampled(1 << 20);
    sampled.begin();
    for (uint64_t i = 0; i < 64; i += 4)
        sampled.touch(y / 32 + i, 4, true);
    near("at most", sampled.end({ y }, 4, 1024).bytes, 1024);
    CHECK(sampled.holds(y / 32 + 1) && sampled.holds(y / 32 + 59) && !sampled.holds(y / 32 + 61));
}

TEST_ONCE(cost_sample, "of a launch the blocks asked for run")
{
    const std::vector<unsigned> some = { 1, 5 };
    near("blocks", (double)count("loop", 900, 8, &some).blocks.size(), 2);
    near("blocks", (double)count("loop", 900, 8).blocks.size(), 8);
}

TEST_ONCE(cost_throughput,
          "a thousand instructions of a kind take each card what NVIDIA's table says")
{
    for (const auto &r : rates)
        for (size_t i = 0; i < cost_n_card; i++) {
            const cost_card &c = cost_cards[i];
            const int a = c.arch->sm >= 50;
            test_case("%s, %s", r.name, c.name);
            cost_launch l = {};
            l.n_block = 8 * (unsigned)c.n_sm;
            l.threads = 32;
            l.most_read = INFINITY;
            l.counts = count(r.name, 10 * c.arch->sm, 1, nullptr, nullptr, c.latency);
            const cost_time t = cost_time_of(c, l);
            /* beside them, at most two instructions a block; and DRAM's latency once */
            const double clocks = t.us * c.ghz * 1e3 - c.latency.dram;
            const double want = 8 * N_MANY * 32 / r.a_clock[a];
            if (clocks < want || clocks > want * 1.0021)
                fail("%g clocks, not %g", clocks, want);
            if (strcmp(t.bound, r.bound[a]) != 0)
                fail("bound by %s, not %s", t.bound, r.bound[a]);
        }
}

TEST_ONCE(cost_bandwidth, "bytes take each card as long as its DRAM or L2 gives them out")
{
    for (size_t i = 0; i < cost_n_card; i++) {
        const cost_card &c = cost_cards[i];
        test_case("%s", c.name);
        CHECK(c.rate.dram < c.rate.dram_sheet && c.rate.dram > 0.7 * c.rate.dram_sheet);
        cost_launch l = {};
        l.n_block = 1u << 20;
        l.threads = 32;
        l.most_read = INFINITY;
        l.counts = count("wide", 10 * c.arch->sm, 1, nullptr, nullptr, c.latency);
        l.counts.blocks[0] = cost_block();
        const cost_time cold = cost_time_of(c, l);
        near("DRAM bytes", cold.dram_bytes, 256.0 * l.n_block);
        near("from DRAM", cold.us,
             (256.0 * l.n_block / c.rate.dram + c.latency.dram / c.ghz) * 1e-3);
        CHECK(strcmp(cold.bound, "DRAM") == 0);
        cost_l2 l2(1 << 20);
        l2.touch(sector_of(memory), 1, true);
        count("wide", 10 * c.arch->sm, 1, nullptr, &l2, c.latency);
        l.counts = count("wide", 10 * c.arch->sm, 1, nullptr, &l2, c.latency);
        l.counts.blocks[0] = cost_block();
        const cost_time warm = cost_time_of(c, l);
        near("no DRAM bytes", warm.dram_bytes, 0);
        near("from L2", warm.us, (256.0 * l.n_block / c.rate.l2 + c.latency.dram / c.ghz) * 1e-3);
        CHECK(strcmp(warm.bound, "L2") == 0);
    }
}

TEST_ONCE(cost_of_launch, "a launch takes the longest of its places, its pipes and its bytes")
{
    const cost_card *c = &cost_cards[0];
    for (size_t i = 0; i < cost_n_card; i++)
        if (cost_cards[i].arch->sm == 90)
            c = &cost_cards[i];
    cost_launch l = {};
    l.n_block = 6 * (unsigned)c->n_sm;
    l.threads = 1024; /* two blocks at a time */
    l.most_read = INFINITY;
    l.counts.blocks.resize(3);
    for (cost_block &b : l.counts.blocks)
        b.clocks = 1000;
    cost_time t = cost_time_of(*c, l);
    near("three rounds", t.us, 3000 / c->ghz * 1e-3);
    CHECK(strcmp(t.bound, "latency") == 0);

    for (cost_block &b : l.counts.blocks)
        b.n[COST_ISSUE] = 8000;
    t = cost_time_of(*c, l);
    near("six blocks of 2000 clocks", t.us, (12000 + c->latency.dram) / c->ghz * 1e-3);
    CHECK(strcmp(t.bound, "issue") == 0);

    l.counts.first_read = c->rate.dram * 1e9 * 1e-3 * 3 / l.n_block; /* of 3 blocks of all: 1 ms */
    t = cost_time_of(*c, l);
    near("bytes", t.us, 1000 + c->latency.dram / c->ghz * 1e-3);
    CHECK(strcmp(t.bound, "DRAM") == 0);
    l.most_read = c->rate.dram * 1e9 * 1e-3 / 2;
    near("at most", cost_time_of(*c, l).us, 500 + c->latency.dram / c->ghz * 1e-3);

    l.has_tail = true;
    l.counts.blocks[2].clocks = 3000;
    near("with a tail", cost_time_of(*c, l).us, 500 + (c->latency.dram + 2000) / c->ghz * 1e-3);
}
