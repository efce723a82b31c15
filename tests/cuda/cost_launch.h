/* What the cost model (cost.cpp) must know of a recorded launch beside its grid: which others cost
 * the same, how many of its blocks stand for all, and what it is called in the tables. */
#ifndef PN_TESTS_CUDA_COST_LAUNCH_H
#define PN_TESTS_CUDA_COST_LAUNCH_H

#include "cuda/fakecuda.h"

#include <string.h>
#include <string>
#include <vector>

/* Whether its kernel's name begins with that. */
bool cost_is(const fakecuda_launch *l, const char *prefix);
[[noreturn]] void cost_die(const char *what);

/* Its argument struct; ends the program where it takes another. */
template <class A> A cost_args(const fakecuda_launch *l)
{
    A a;
    if (l->args_bytes != sizeof a)
        cost_die(l->kernel);
    memcpy(&a, l->args, sizeof a);
    return a;
}

/* Equal for two launches that cost the same: all but addresses. */
std::string cost_signature(const fakecuda_launch *l);
/* The addresses among its arguments, in order; as many for launches of one signature. */
std::vector<uint64_t> cost_pointers(const fakecuda_launch *l);
/* Bytes that the tiled kernels read at least, where blocks read the same ones; else no limit. */
double cost_most_read(const fakecuda_launch *l);
/* Whether the last block does more than the others, at the end. */
bool cost_has_tail(const fakecuda_launch *l);
/* Blocks that are executed, at most. */
unsigned cost_sample(const fakecuda_launch *l);
/* Products by their rows and what follows on them, others by the kernel's name. */
std::string cost_label(const fakecuda_launch *l);

#endif
