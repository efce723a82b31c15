/* The insides of the interpreter: the state of a warp, and one instruction of it. */
#ifndef PN_TESTS_CUDA_PTX_RUN_H
#define PN_TESTS_CUDA_PTX_RUN_H

#include "cuda/ptx.h"

struct ptx_group {
    int pc;
    uint32_t lanes;
    bool waits; /* for lanes that are elsewhere */
};
struct ptx_copy {
    unsigned char *dst;
    const unsigned char *src;
    unsigned group;
};
struct ptx_warp {
    uint64_t *reg;                    /* [register][32 lanes] */
    std::vector<unsigned char> local; /* [32 lanes][local_bytes] */
    std::vector<ptx_group> groups;    /* of lanes, by where they are */
    std::vector<ptx_copy> copies;     /* to shared memory, that have not arrived */
    unsigned copy_group;
    uint32_t live;          /* lanes that have not ended */
    uint32_t may_run_early; /* those that have not waited for the launch before, but will */
    unsigned first;         /* its first thread in the block */
    bool at_barrier;
    std::vector<int> ran;         /* the places of the instructions that it ran, each once */
    std::vector<uint8_t> has_run; /* [instruction] */
};

/* Sees what runs (cost_count.h). */
class ptx_watcher
{
  public:
    virtual ~ptx_watcher() = default;
    virtual void begin_launch(const ptx_kernel &k) = 0;
    virtual void begin_block(size_t n_warp) = 0;
    /* The instruction at pc, for the lanes of m, which may be none; before a memory access. */
    virtual void issue(size_t i_warp, const ptx_warp &w, int pc, uint32_t m) = 0;
    /* All warps that live have come to the barrier. */
    virtual void meet(void) = 0;
    virtual void end_block(void) = 0;
};
extern ptx_watcher *ptx_watching; /* NULL: nobody */

/* The address of lane's access. */
uint64_t ptx_address(const ptx_warp &w, const ptx_operand &a, int lane);
size_t ptx_size(ptx_type t);
extern unsigned ptx_grid[3], ptx_block[3], ptx_block_id[3];
extern std::vector<unsigned char> ptx_shared, ptx_args;

/* Where an access goes; ends the program where it may not. */
unsigned char *ptx_reach(ptx_warp *w, int lane, const ptx_instruction &i, ptx_space space,
                         uint64_t p, size_t bytes);
/* One instruction, no branch, for the lanes of m; false: they must wait for other lanes. */
bool ptx_step(ptx_warp *w, const ptx_instruction &i, uint32_t m);

#endif
