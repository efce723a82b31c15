#include "cuda/cost_count.h"

#include <algorithm>

/* --- the table -------------------------------------------------------------------------------- */

static void registers(const ptx_operand &a, std::vector<int> *out)
{
    if ((a.kind == ptx_operand::REGISTER || a.kind == ptx_operand::ADDRESS) && a.reg >= 0)
        out->push_back(a.reg);
    for (const ptx_operand &part : a.parts)
        registers(part, out);
}

/* tidy: long, a table of instructions */
static void classes(const ptx_instruction &i, int arch, double n[COST_CLASSES])
{
    const bool is_float = i.type == F32, is_long = ptx_size(i.type) == 8, is_kepler = arch < 500;
    const bool is_register = i.args.size() > 1 && i.args[1].kind == ptx_operand::REGISTER;
    switch (i.op) {
    case OP_ADD:
    case OP_SUB:
        n[is_float ? COST_FLOAT : COST_INT] = is_long ? 2 : 1;
        break;
    case OP_FMA:
        n[COST_FLOAT] = 1;
        break;
    case OP_MUL:
    case OP_MAD:
        if (is_float)
            n[COST_FLOAT] = 1;
        else if (i.mode == "wide")
            n[COST_PRODUCT] = is_kepler ? 2 : 1;
        else
            n[COST_PRODUCT] = is_long ? 4 : 1;
        break;
    case OP_DP2A:
    case OP_DP4A:
        n[COST_PRODUCT] = 1;
        break;
    case OP_DIV:
    case OP_REM:
        n[COST_FLOAT] = is_float ? 8 : 0;
        n[COST_INT] = is_float ? 2 : is_long ? 60 : 12;
        n[COST_PRODUCT] = is_float ? 0 : is_long ? 20 : 4;
        n[COST_CONVERT] = is_float ? 0 : 2;
        n[COST_SPECIAL] = 1;
        break;
    case OP_SQRT:
        n[COST_FLOAT] = 6;
        n[COST_INT] = 2;
        n[COST_SPECIAL] = 1;
        break;
    case OP_NEG:
    case OP_ABS: /* of a float: part of what reads it */
        n[COST_INT] = is_float ? 0 : 1;
        break;
    case OP_AND:
    case OP_OR:
    case OP_XOR:
    case OP_NOT:
    case OP_LOP3:
    case OP_MIN:
    case OP_MAX:
    case OP_SETP:
    case OP_SELP:
    case OP_VOTE:
        n[COST_INT] = is_long ? 2 : 1;
        break;
    case OP_SHL:
    case OP_SHR:
    case OP_SHF:
        n[COST_SHIFT] = is_long ? 2 : 1;
        break;
    case OP_BFE:
    case OP_BFI: /* Maxwell was the last to have them */
        n[COST_BITS] = arch < 700 ? 1 : 2;
        break;
    case OP_PRMT:
        n[COST_BITS] = 1;
        break;
    case OP_POPC:
    case OP_BREV:
    case OP_CLZ:
    case OP_BFIND:
        n[COST_SPECIAL] = 1;
        break;
    case OP_CVT:
        if (is_float && i.mode == "f16" && !is_kepler) /* 64 a clock */
            n[COST_INT] = 1;
        else if (is_float || i.from == F32 || i.mode.find("f16") != std::string::npos)
            n[COST_CONVERT] = 1;
        else if (ptx_size(i.type) < 4 || ptx_size(i.from) < 4) /* Kepler: 128 a clock */
            n[is_kepler ? COST_INT : COST_BITS] = 1;
        else
            n[COST_INT] = is_long && i.from == S32 ? 1 : 0;
        break;
    case OP_MOV: /* between registers: ptxas gives both the same one */
        n[COST_INT] = i.args[1].kind == ptx_operand::SPECIAL ? 1 : 0;
        n[COST_BITS] = !is_register && i.args[1].kind == ptx_operand::VECTOR && !is_long ? 1 : 0;
        break;
    case OP_MMA:
        n[COST_MMA] = (double)i.args[0].parts.size() / 4 * (double)i.args[2].parts.size() / 2;
        break;
    case OP_LD: /* parameters are operands of what reads them */
        n[COST_ISSUE] = i.space == PARAM ? 0 : 1;
        return;
    case OP_CVTA:
        return;
    case OP_SHFL:
        n[COST_MEMORY] = 1;
        break;
    default: /* stores, branches, barriers: the scheduler's; passes are counted as they run */
        n[COST_ISSUE] = 1;
        return;
    }
    for (int c = 0; c < COST_CLASSES; c++)
        n[COST_ISSUE] += c == COST_ISSUE ? 0 : c == COST_MMA && n[c] > 0 ? 1 : n[c];
}

cost_op cost_op_of(const ptx_instruction &i, int arch, const cost_latency &l)
{
    cost_op o;
    classes(i, arch, o.n);
    const bool has_result = i.op != OP_ST && i.op != OP_BRA && i.op != OP_BRX && i.op != OP_COPY &&
                            i.op != OP_PREFETCH && i.op != OP_GRID_NEXT && i.op != OP_GRID_WAIT &&
                            i.op != OP_BARWARP && i.op != OP_BAR;
    for (size_t a = 0; a < i.args.size(); a++)
        registers(i.args[a], a == 0 && has_result ? &o.writes : &o.reads);
    if (i.pred >= 0)
        o.reads.push_back(i.pred);
    o.clocks = i.op == OP_SHFL         ? l.shuffle
               : i.op == OP_MMA        ? l.mma
               : o.n[COST_SPECIAL] > 0 ? l.special + l.alu * (o.n[COST_ISSUE] - 1)
               : o.n[COST_CONVERT] > 0 ? l.special
               : o.n[COST_ISSUE] > 0   ? l.alu * o.n[COST_ISSUE]
                                       : 0;
    return o;
}

/* --- memory ----------------------------------------------------------------------------------- */

#define EACH_LANE(m)                                    \
    for (uint32_t left_ = m; left_; left_ &= left_ - 1) \
        if (const int lane = __builtin_ctz(left_); true)

static bool is_shared(const ptx_warp &w, const ptx_instruction &i, const ptx_operand &a, uint32_t m)
{
    return i.space == SHARED ||
           (i.space == GENERIC && ptx_address(w, a, __builtin_ctz(m)) >> 56 == SHARED_WINDOW >> 56);
}

/* Passes: a bank gives a word a pass. Accesses of 8 and 16 bytes go by halves and quarters. */
double cost_counter::access_shared(const ptx_warp &w, const ptx_instruction &i, uint32_t m)
{
    const ptx_operand &a = i.op == OP_ST ? i.args[0] : i.args[1];
    const size_t bytes = ptx_size(i.type) * (size_t)i.vector, words = (bytes + 3) / 4;
    const int step = 32 / (int)words;
    double passes = 0;
    for (int first = 0; first < 32; first += step) {
        std::vector<uint64_t> bank[32];
        size_t most = 0;
        EACH_LANE(m)
        {
            if (lane < first || lane >= first + step)
                continue;
            for (size_t k = 0; k < words; k++) {
                const uint64_t word = ptx_address(w, a, lane) / 4 + k;
                std::vector<uint64_t> &b = bank[word % 32];
                if (std::find(b.begin(), b.end(), word) == b.end())
                    b.push_back(word);
                most = std::max(most, b.size());
            }
        }
        passes += (double)most;
    }
    block_->n[COST_MEMORY] += passes;
    return latency_.shared + passes - 1;
}

/* It has not been touched: clocks until it is in L2, where it then is. */
double cost_counter::bring(uint64_t sector, double start)
{
    const bool is_there = l2_ && l2_->holds(sector);
    const double clocks = is_there ? latency_.l2 : latency_.dram;
    counts.first_read += is_there ? 0 : 32;
    if (l2_)
        l2_->touch(sector, times_, is_there);
    read_.at(sector).arrives = (float)(start + clocks);
    return clocks;
}

/* Clocks until it is there. */
double cost_counter::read_sector(uint64_t sector, double start, bool is_cached)
{
    const unsigned now = (unsigned)counts.blocks.size();
    seen &s = read_.at(sector);
    double clocks = latency_.l1;
    if (!s.block && !written_.at(sector)) {
        counts.l2_read += 32;
        clocks = bring(sector, start);
    } else if (s.block != now || !is_cached) {
        counts.l2_read += 32;
        clocks = latency_.l2;
    }
    s.block = now;
    return std::max(clocks, (double)s.arrives - start);
}

void cost_counter::write_sector(uint64_t sector)
{
    bool &is_written = written_.at(sector);
    counts.l2_write += 32;
    counts.first_write += is_written ? 0 : 32;
    if (l2_ && !is_written)
        l2_->touch(sector, times_, true);
    is_written = true;
}

/* Four sectors a pass; the latency of the farthest. */
double cost_counter::access_global(const ptx_warp &w, const ptx_instruction &i,
                                   const ptx_operand &a, uint32_t m, double start)
{
    const bool writes = i.op == OP_ST || i.op == OP_ATOM;
    const bool is_cached = arch_ >= 700 ? i.text.find(".cg") == std::string::npos
                                        : i.text.find(".nc") != std::string::npos;
    const size_t bytes = i.op == OP_COPY ? 16 : ptx_size(i.type) * (size_t)i.vector;
    std::vector<uint64_t> sectors;
    EACH_LANE(m)
    {
        const uint64_t p = ptx_address(w, a, lane);
        for (uint64_t s = p / 32; s <= (p + bytes - 1) / 32; s++)
            sectors.push_back(s);
    }
    std::sort(sectors.begin(), sectors.end());
    sectors.erase(std::unique(sectors.begin(), sectors.end()), sectors.end());
    double clocks = writes ? latency_.l2 : latency_.l1;
    for (const uint64_t s : sectors)
        if (writes)
            write_sector(s);
        else
            clocks = std::max(clocks, read_sector(s, start, is_cached));
    const size_t passes = (sectors.size() + 3) / 4;
    block_->n[COST_MEMORY] += (double)passes;
    return clocks + (double)passes - 1;
}

/* Bytes go to L2 and none farther: a load that follows waits until they are there, and pays L2's
 * latency. */
void cost_counter::prefetch(const ptx_warp &w, const ptx_instruction &i, uint32_t m, double start)
{
    EACH_LANE(m)
    {
        const uint64_t sector = ptx_address(w, i.args[0], lane) / 32;
        seen &s = read_.at(sector);
        if (s.block || written_.at(sector))
            continue;
        bring(sector, start);
        s.block = NO_BLOCK;
    }
    block_->n[COST_MEMORY]++;
}

double cost_counter::access(const ptx_warp &w, const ptx_instruction &i, uint32_t m, double start)
{
    if (i.space == PARAM)
        return 0;
    if (i.text.find(".const") != std::string::npos) {
        block_->n[COST_MEMORY]++;
        return latency_.shared;
    }
    const ptx_operand &a = i.op == OP_ST ? i.args[0] : i.args[1];
    if (i.op == OP_COPY || !is_shared(w, i, a, m))
        return access_global(w, i, a, m, start);
    return access_shared(w, i, m);
}

/* --- time ------------------------------------------------------------------------------------- */

void cost_counter::begin_launch(const ptx_kernel &k)
{
    kernel_ = &k;
    ops_.clear();
    for (const ptx_instruction &i : k.code)
        ops_.push_back(cost_op_of(i, arch_, latency_));
    counts = cost_counts();
    read_.clear();
    written_.clear();
}

void cost_counter::begin_block(size_t n_warp)
{
    counts.blocks.emplace_back();
    block_ = &counts.blocks.back();
    warps_.resize(n_warp);
    for (warp &t : warps_) {
        t.ready.assign(kernel_->registers.size(), 0);
        t.from = t.issued = t.last = t.copied = 0;
        t.copies.clear();
    }
}

/* A branch or a barrier: all before it must have started. */
void cost_counter::cut(warp *t, double clocks)
{
    t->from = std::max(t->from + t->issued, t->last + 1) + clocks;
    t->issued = 0;
    t->last = t->from;
}

void cost_counter::issue(size_t i_warp, const ptx_warp &w, int pc, uint32_t m)
{
    const ptx_instruction &i = kernel_->code[(size_t)pc];
    const cost_op &o = ops_[(size_t)pc];
    warp &t = warps_[i_warp];
    for (int c = 0; c < COST_CLASSES; c++)
        block_->n[c] += o.n[c];
    t.issued += o.n[COST_ISSUE];
    double start = t.from;
    for (const int r : o.reads)
        start = std::max(start, t.ready[(size_t)r]);
    t.last = std::max(t.last, start);
    if (i.op == OP_BRA || i.op == OP_BRX || i.op == OP_RET)
        cut(&t, m ? latency_.branch : 0);
    if (!m)
        return;
    double clocks = o.clocks;
    switch (i.op) {
    case OP_LD:
    case OP_ST:
    case OP_ATOM:
        clocks = access(w, i, m, start);
        break;
    case OP_COPY:
        t.copied = std::max(t.copied, start + access(w, i, m, start));
        break;
    case OP_COPY_COMMIT:
        t.copies.push_back(t.copied);
        break;
    case OP_COPY_WAIT:
        for (size_t n = 0; n + (size_t)i.args[0].number < t.copies.size(); n++)
            t.last = std::max(t.last, t.copies[n]);
        cut(&t, 0);
        break;
    case OP_PREFETCH:
        prefetch(w, i, m, start);
        break;
    case OP_FENCE:
        cut(&t, latency_.l2);
        break;
    case OP_BAR:
        cut(&t, 0);
        break;
    default:
        break;
    }
    for (const int r : o.writes)
        t.ready[(size_t)r] = start + clocks;
}

void cost_counter::meet(void)
{
    double last = 0;
    for (const warp &t : warps_)
        last = std::max(last, t.from);
    for (warp &t : warps_)
        t.from = t.last = last + latency_.barrier;
}

void cost_counter::end_block(void)
{
    for (const warp &t : warps_)
        block_->clocks = std::max(block_->clocks, std::max(t.from + t.issued, t.last));
}
