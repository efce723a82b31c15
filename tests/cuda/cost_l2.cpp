#include "cuda/cost_l2.h"

#include <algorithm>

enum {
    UNIT = 1024,      /* of stamps, bytes */
    REACH = 64 << 20, /* of an argument's array, bytes at most */
    SPARSE = 4        /* times fewer sectors than a sample of a whole array would have touched */
};

void cost_l2::stamp(uint64_t sector, double when)
{
    stamps_.at(sector) = (uint32_t)(when / UNIT) + 1;
}

bool cost_l2::holds(uint64_t sector)
{
    const uint32_t s = stamps_.at(sector);
    return s && came_ - (s - 1.0) * UNIT < capacity_;
}

void cost_l2::touch(uint64_t sector, double times, bool stays)
{
    if (capacity_ <= 0)
        return;
    if (!holds(sector))
        came_ += 32 * times;
    stamp(sector, came_);
    if (stays)
        touched_.push_back(sector);
}

void cost_l2::begin(void)
{
    touched_.clear();
    began_ = came_;
}

double cost_l2::age(uint64_t sector)
{
    return std::max(0.0, came_ - (stamps_.at(sector) - 1.0) * UNIT);
}

/* What was touched of the array that p names: [a, b) in touched_, sorted. */
void cost_l2::add_runs(size_t i_pointer, uint64_t p, const uint64_t *a, const uint64_t *b,
                       double times, cost_trace *t)
{
    /* Of a sample all that lies between: the blocks that did not run touched it. */
    const bool is_whole = times > 1 && (double)(b[-1] - *a) < SPARSE * times * (double)(b - a);
    while (a < b) {
        const uint64_t *last = is_whole ? b - 1 : a;
        while (last + 1 < b && last[1] == *last + 1)
            last++;
        t->runs.push_back({ i_pointer, (int64_t)(*a - p), *last - *a + 1, age(*a), age(*last) });
        a = last + 1;
    }
}

cost_trace cost_l2::end(const std::vector<uint64_t> &pointers, double times, double most)
{
    cost_trace t;
    came_ = std::min(came_, began_ + most);
    t.bytes = came_ - began_;
    std::vector<std::pair<uint64_t, size_t>> order; /* of the pointers, by address */
    for (size_t i = 0; i < pointers.size(); i++)
        order.push_back({ pointers[i] / 32, i });
    std::sort(order.begin(), order.end());
    std::sort(touched_.begin(), touched_.end());
    touched_.erase(std::unique(touched_.begin(), touched_.end()), touched_.end());
    for (size_t i = 0; i < order.size(); i++) {
        const uint64_t p = order[i].first;
        const uint64_t stop =
            std::min(p + REACH / 32, i + 1 < order.size() ? order[i + 1].first : UINT64_MAX);
        const auto a = std::lower_bound(touched_.begin(), touched_.end(), p);
        const auto b = std::lower_bound(a, touched_.end(), stop);
        if (a < b)
            add_runs(order[i].second, p, &*a, &*a + (b - a), times, &t);
    }
    came_ = began_;
    replay(t, pointers);
    return t;
}

void cost_l2::replay(const cost_trace &trace, const std::vector<uint64_t> &pointers)
{
    came_ += trace.bytes;
    for (const cost_trace::run &r : trace.runs) {
        const uint64_t first = pointers[r.i_pointer] / 32 + (uint64_t)r.offset;
        const double step = (r.age_last - r.age_first) / (double)std::max<uint64_t>(r.n - 1, 1);
        for (uint64_t i = 0; i < r.n; i++)
            stamp(first + i, std::max(0.0, came_ - r.age_first - step * (double)i));
    }
}
