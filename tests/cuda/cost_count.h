/* What a launch costs, counted while the PTX interpreter runs it: warp instructions by the unit
 * that executes them, bytes by the memory they come from, and the time of each block if it were
 * alone.
 *
 * PTX is not yet machine code. What ptxas makes of an instruction is in a table (cost_count.cpp):
 * loads of parameters and moves cost nothing, 64-bit sums two instructions, an IEEE division ten;
 * what it fuses (logic into LOP3, sums into addresses) is not credited.
 *
 * Time of a block: an instruction starts when the values that it reads are there and all before the
 * last branch or barrier of its warp has started; the order within such a stretch is ptxas's to
 * choose. The units are taken as free: what they bear is the business of cost_card.h. A sector
 * comes from DRAM once a launch, or, where a cost_l2 is given that holds it, not at all; who asks
 * for it while it is on its way, in whichever block, waits for the rest of the way: blocks that
 * share sectors mostly run side by side. */
#ifndef PN_TESTS_CUDA_COST_COUNT_H
#define PN_TESTS_CUDA_COST_COUNT_H

#include "cuda/cost_l2.h"
#include "cuda/ptx_run.h"

enum cost_class {
    COST_ISSUE,   /* all warp instructions */
    COST_FLOAT,   /* sums, products, fma of f32 */
    COST_INT,     /* sums, logic, comparisons, selections */
    COST_SHIFT,   /* of 32 bits */
    COST_BITS,    /* bit fields, byte permutations */
    COST_PRODUCT, /* of integers; dp4a */
    COST_CONVERT, /* between integers and floats */
    COST_SPECIAL, /* reciprocals, roots, counts of bits */
    COST_MEMORY,  /* passes of the load and store unit: shuffles, shared and global memory */
    COST_MMA,     /* in units of m16n8k32, 4096 multiply-adds */
    COST_CLASSES
};

/* Clocks from an instruction's start until another may read its result. */
struct cost_latency {
    double alu, special, shuffle, shared, l1, l2, dram, mma, branch, barrier;
};

struct cost_block {
    double n[COST_CLASSES] = {};
    double clocks = 0; /* alone */
};

struct cost_counts {
    std::vector<cost_block> blocks;         /* that ran */
    double l2_read = 0, l2_write = 0;       /* bytes between multiprocessors and L2 */
    double first_read = 0, first_write = 0; /* of those from and to DRAM: each sector once */
};

/* An instruction as the table has it. */
struct cost_op {
    double n[COST_CLASSES] = {};
    double clocks = 0; /* until the result, where memory does not decide it */
    std::vector<int> reads, writes;
};
cost_op cost_op_of(const ptx_instruction &i, int arch, const cost_latency &l);

class cost_counter : public ptx_watcher
{
  public:
    cost_counter(int arch, const cost_latency &l) : arch_(arch), latency_(l)
    {
    }
    /* For the launches from now on: where one block runs for `times` of them. NULL: nothing is in
     * L2 at first. */
    void use_l2(cost_l2 *l2, double times)
    {
        l2_ = l2;
        times_ = times;
    }
    void begin_launch(const ptx_kernel &k) override;
    void begin_block(size_t n_warp) override;
    void issue(size_t i_warp, const ptx_warp &w, int pc, uint32_t m) override;
    void meet(void) override;
    void end_block(void) override;
    cost_counts counts; /* of the last launch */

  private:
    struct warp {
        std::vector<double> ready;  /* [register] */
        double from, issued, last;  /* start of the stretch, instructions in it, its last start */
        double copied;              /* cp.async of the open group */
        std::vector<double> copies; /* of closed groups */
    };
    static constexpr unsigned NO_BLOCK = ~0u;
    struct seen {       /* of a sector */
        unsigned block; /* that touched it last; 0: none has; NO_BLOCK: a prefetch */
        float arrives;  /* clocks from its start */
    };
    void cut(warp *t, double clocks);
    double access(const ptx_warp &w, const ptx_instruction &i, uint32_t m, double start);
    double access_shared(const ptx_warp &w, const ptx_instruction &i, uint32_t m);
    double access_global(const ptx_warp &w, const ptx_instruction &i, const ptx_operand &a,
                         uint32_t m, double start);
    void prefetch(const ptx_warp &w, const ptx_instruction &i, uint32_t m, double start);
    double bring(uint64_t sector, double start);
    double read_sector(uint64_t sector, double start, bool is_cached);
    void write_sector(uint64_t sector);
    int arch_;
    cost_latency latency_;
    const ptx_kernel *kernel_ = nullptr;
    std::vector<cost_op> ops_;
    std::vector<warp> warps_;
    cost_sectors<seen> read_;
    cost_sectors<bool> written_;
    cost_l2 *l2_ = nullptr;
    double times_ = 1;
    cost_block *block_ = nullptr;
};

#endif
