/* What a card reaches at best: reading its memory, arithmetic, the cost of a launch. */
#include "cuda/card.h"

extern "C" {
#include "base/clock.h"
#include "cuda/args.h"
}

#include <algorithm>
#include <string.h>

namespace
{
enum {
    BLOCKS_PER_SM = 16, /* of 256 threads: more than any card holds at once */
    N_EMPTY = 100
};

template <class A> card_launch launch_of(const char *kernel, size_t n_block, const A &args)
{
    const unsigned char *const a = (const unsigned char *)&args;
    return { kernel, { (unsigned)n_block, 1, 1 }, { 256, 1, 1 }, 0, { a, a + sizeof args } };
}

/* Memory of the card, freed at the end of its scope. */
class card_memory
{
  public:
    explicit card_memory(size_t bytes)
    {
        pn_err err = {};
        card_check(fc_alloc(card_device(), bytes, "a measurement", &p, &err), err);
        card_check(fc_fill(card_stream(), p, 1, bytes, &err), err);
    }
    ~card_memory()
    {
        fc_free(card_device(), p);
    }
    card_memory(const card_memory &) = delete;
    card_memory &operator=(const card_memory &) = delete;
    void *p = nullptr;
};

/* One pass over a quarter of what is free, 2 GB at most and far more than any cache. */
double read_bytes_s(size_t n_block)
{
    size_t free = 0;
    pn_err err = {};
    card_check(fc_device_memory(card_device(), nullptr, nullptr, &free, &err), err);
    const size_t most = card_is_small() ? (size_t)64 << 10 : (size_t)2 << 30;
    const size_t bytes = std::min(free / 4, most) / 4096 * 4096;
    const card_memory x(bytes), sum(n_block * sizeof(uint32_t));
    const pn_read_args a = { (const uint32_t *)x.p, (uint32_t *)sum.p, bytes / 4 };
    return (double)bytes / card_seconds({ launch_of("pn_k_read", n_block, a) });
}

double macs_s(int kind, size_t n_block)
{
    const int macs = pn_peak_macs(kind, fc_device_get_info(card_device())->sm_code);
    if (!macs || (kind == PN_PEAK_DP4A && fc_device_get_info(card_device())->sm_code < 61))
        return 0;
    const uint32_t n_iter = card_is_small() ? 1 : 1000;
    const card_memory out(n_block * 256 * sizeof(uint32_t));
    const pn_peak_args a = { (uint32_t *)out.p, n_iter, kind };
    const double n_step = (double)n_iter * PN_PEAK_ROUNDS * PN_PEAK_CHAINS * (double)n_block * 256;
    return macs * n_step / card_seconds({ launch_of("pn_k_peak", n_block, a) });
}

/* From one to the next of empty kernels that are launched one by one. */
double launch_s(const card_launch &empty, bool waits)
{
    pn_err err = {};
    card_run(empty);
    const double t0 = pn_now_s();
    for (int i = 0; i < N_EMPTY; i++) {
        card_check(fc_launch(card_stream(), empty.kernel, empty.grid, empty.block, 0,
                             empty.args.data(), &err),
                   err);
        if (waits)
            card_check(fc_stream_sync(card_stream(), &err), err);
    }
    card_check(fc_stream_sync(card_stream(), &err), err);
    return (pn_now_s() - t0) / N_EMPTY;
}

card_limits measure(void)
{
    const size_t n_block =
        card_is_small() ? 2 : (size_t)fc_device_get_info(card_device())->n_sm * BLOCKS_PER_SM;
    const card_memory sum(sizeof(uint32_t));
    const card_launch empty =
        launch_of("pn_k_read", 1, pn_read_args{ (const uint32_t *)sum.p, (uint32_t *)sum.p, 0 });
    return { read_bytes_s(n_block),
             macs_s(PN_PEAK_F32, n_block),
             macs_s(PN_PEAK_DP4A, n_block),
             macs_s(PN_PEAK_MMA, n_block),
             card_seconds(std::vector<card_launch>(N_EMPTY, empty)),
             launch_s(empty, false),
             launch_s(empty, true) };
}
} // namespace

const card_limits &card_get_limits(void)
{
    static const card_limits limits = measure();
    return limits;
}
