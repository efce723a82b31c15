/* What the instructions of the interpreter are made of: values of a type, operands in 32 lanes. */
#ifndef PN_TESTS_CUDA_PTX_LANES_H
#define PN_TESTS_CUDA_PTX_LANES_H

#include "cuda/ptx_run.h"

#include <algorithm>
#include <string.h>

/* An operand in one lane. */
uint64_t ptx_value(const ptx_warp &w, const ptx_operand &a, int lane);
/* ptx_step() for memory, and for what lanes do together. */
bool ptx_step_memory(ptx_warp *w, const ptx_instruction &i, uint32_t m);

/* What a type makes of a register's 64 bits. */
struct width {
    unsigned n, spare; /* bits of the type, and those above them */
    bool is_signed;
    explicit width(ptx_type t)
        : n(8 * (unsigned)ptx_size(t)), spare(64 - n), is_signed(t >= S8 && t <= S64)
    {
    }
    /* Sign- or zero-extended. */
    int64_t extend(uint64_t v) const
    {
        return is_signed ? (int64_t)(v << spare) >> spare : (int64_t)cut(v);
    }
    uint64_t cut(uint64_t v) const
    {
        return v << spare >> spare;
    }
};

static inline float to_float(uint64_t v)
{
    const uint32_t u = (uint32_t)v;
    float f;
    memcpy(&f, &u, 4);
    return f;
}

static inline uint64_t to_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

/* An operand in all lanes; what lanes that take no part have in it means nothing. What is decided
 * by the instruction is decided outside of the loops over lanes: most of the interpreter's time
 * goes by in them. */
class row
{
  public:
    row(const ptx_warp &w, const ptx_operand &a) : v_(own_)
    {
        if (a.kind == ptx_operand::REGISTER && !a.negated)
            v_ = &w.reg[(size_t)a.reg * 32];
        else if (a.kind == ptx_operand::NUMBER)
            std::fill_n(own_, 32, (uint64_t)a.number);
        else
            for (int l = 0; l < 32; l++)
                own_[l] = ptx_value(w, a, l);
    }
    row(const row &) = delete;
    row &operator=(const row &) = delete;
    uint64_t operator[](int lane) const
    {
        return v_[lane];
    }
    float f(int lane) const
    {
        return to_float(v_[lane]);
    }

  private:
    const uint64_t *v_;
    uint64_t own_[32];
};

#define EACH_LANE                                       \
    for (uint32_t left_ = m; left_; left_ &= left_ - 1) \
        if (const int lane = __builtin_ctz(left_); true)
#define DEST w->reg[(size_t)i.args[0].reg * 32 + (size_t)lane]

/* The lanes' results, of(lane), into the first operand. */
template <class F> static inline void set(ptx_warp *w, const ptx_instruction &i, uint32_t m, F of)
{
    uint64_t *const d = &w->reg[(size_t)i.args[0].reg * 32];
    if (m == 0xffffffffu)
        for (int l = 0; l < 32; l++)
            d[l] = of(l);
    else
        EACH_LANE d[lane] = of(lane);
}

#endif
