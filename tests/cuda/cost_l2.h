/* What a card's L2 still holds of what launches have touched: the sectors of 32 bytes that were
 * touched last, up to its capacity, wherever they lie; who is not among them comes from DRAM.
 * "Last" is by the bytes that have come in since, in the order in which the interpreter runs
 * blocks.
 *
 * A launch that is as one before it is not executed again (cost.cpp). What it leaves in L2 is then
 * what the other one left, moved to its own arguments' addresses. */
#ifndef PN_TESTS_CUDA_COST_L2_H
#define PN_TESTS_CUDA_COST_L2_H

#include <memory>
#include <stddef.h>
#include <stdint.h>
#include <unordered_map>
#include <vector>

/* A value for each sector of memory, 0 at first; sparse. */
template <class T> class cost_sectors
{
  public:
    T &at(uint64_t sector)
    {
        const uint64_t chunk = sector / CHUNK;
        if (chunk != last_) {
            std::unique_ptr<T[]> &c = chunks_[chunk];
            if (!c)
                c.reset(new T[CHUNK]());
            last_ = chunk;
            hit_ = c.get();
        }
        return hit_[sector % CHUNK];
    }
    void clear(void)
    {
        chunks_.clear();
        last_ = ~0ull;
    }

  private:
    enum {
        CHUNK = 32768
    };
    std::unordered_map<uint64_t, std::unique_ptr<T[]>> chunks_;
    uint64_t last_ = ~0ull;
    T *hit_ = nullptr;
};

/* What a launch does to L2. */
struct cost_trace {
    double bytes = 0; /* that came in */
    struct run {      /* of sectors, young at the launch's end */
        size_t i_pointer;
        int64_t offset; /* sectors */
        uint64_t n;
        double age_first, age_last; /* bytes that came in since */
    };
    std::vector<run> runs;
};

class cost_l2
{
  public:
    explicit cost_l2(double capacity) : capacity_(capacity)
    {
    }
    bool holds(uint64_t sector);
    /* A read or write, for as many others like it, which do not run. stays: a trace has it, as
     * others will read it; else it only drives out what is there. */
    void touch(uint64_t sector, double times, bool stays);
    /* Around a launch that runs. pointers: its arguments'; most: bytes that come in at most. */
    void begin(void);
    cost_trace end(const std::vector<uint64_t> &pointers, double times, double most);
    void replay(const cost_trace &trace, const std::vector<uint64_t> &pointers);

  private:
    void stamp(uint64_t sector, double when);
    double age(uint64_t sector);
    void add_runs(size_t i_pointer, uint64_t p, const uint64_t *a, const uint64_t *b, double times,
                  cost_trace *t);
    double capacity_, came_ = 0, began_ = 0; /* bytes that have come in */
    cost_sectors<uint32_t> stamps_;          /* came_ in KB, from 1 */
    std::vector<uint64_t> touched_;          /* by the launch, and stay */
};

#endif
