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
 * choose. The units are taken as free: what they bear is the business of cost_card.h. */
#ifndef PN_TESTS_CUDA_COST_COUNT_H
#define PN_TESTS_CUDA_COST_COUNT_H

#include "cuda/ptx_run.h"

#include <memory>
#include <unordered_map>

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
    double first_read = 0, first_write = 0; /* of those the ones that no block before has touched */
};

/* Which sectors of 32 bytes have been touched, and by which block last; sparse. */
class cost_sectors
{
  public:
    unsigned &at(uint64_t sector);
    void clear(void);

  private:
    enum {
        CHUNK = 32768
    };
    std::unordered_map<uint64_t, std::unique_ptr<unsigned[]>> chunks_;
    uint64_t last_ = ~0ull;
    unsigned *hit_ = nullptr;
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
    void cut(warp *t, double clocks);
    double access(const ptx_warp &w, const ptx_instruction &i, uint32_t m, double start);
    void prefetch(const ptx_warp &w, const ptx_instruction &i, uint32_t m, double start);
    double access_shared(const ptx_warp &w, const ptx_instruction &i, uint32_t m);
    double access_global(const ptx_warp &w, const ptx_instruction &i, const ptx_operand &a,
                         uint32_t m, double start);
    int arch_;
    cost_latency latency_;
    const ptx_kernel *kernel_ = nullptr;
    std::vector<cost_op> ops_;
    std::vector<warp> warps_;
    cost_sectors read_, written_;
    std::unordered_map<uint64_t, double> arrivals_; /* clock at which a sector is in L2 */
    cost_block *block_ = nullptr;
};

#endif
