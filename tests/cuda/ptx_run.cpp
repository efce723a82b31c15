/* Runs the instructions (ptx.h): warps of a block, their groups of lanes, one instruction after the
 * other. What one does to the lanes' values is in ptx_alu.cpp. */
#include "cuda/ptx_run.h"

#include <algorithm>
#include <string.h>

unsigned ptx_grid[3], ptx_block[3], ptx_block_id[3];
std::vector<unsigned char> ptx_shared, ptx_args;
ptx_watcher *ptx_watching;

/* --- memory ----------------------------------------------------------------------------------- */

static std::map<uint64_t, uint64_t> memory; /* start to end */
static uint64_t hit_start, hit_end;         /* the range that was found last */

void ptx_add_memory(const void *p, size_t bytes)
{
    memory[(uint64_t)(uintptr_t)p] = (uint64_t)(uintptr_t)p + bytes;
}

void ptx_drop_memory(const void *p)
{
    memory.erase((uint64_t)(uintptr_t)p);
    hit_start = hit_end = 0;
}

unsigned char *ptx_reach(ptx_warp *w, int lane, const ptx_instruction &i, ptx_space space,
                         uint64_t p, size_t bytes)
{
    if (p & (bytes - 1)) /* of a power of two */
        ptx_die("misaligned access", i.text);
    if (space == GENERIC)
        space = p >> 56 == SHARED_WINDOW >> 56  ? SHARED
                : p >> 56 == LOCAL_WINDOW >> 56 ? LOCAL
                                                : GLOBAL;
    if (space == PARAM || space == SHARED || space == LOCAL) {
        const size_t at = (uint32_t)p;
        std::vector<unsigned char> &all = space == PARAM    ? ptx_args
                                          : space == SHARED ? ptx_shared
                                                            : w->local;
        const size_t part = space == LOCAL ? all.size() / 32 : all.size();
        if (at + bytes > part)
            ptx_die("an access behind the end of shared or local memory", i.text);
        return all.data() + (space == LOCAL ? (size_t)lane * part : 0) + at;
    }
    if (w->may_run_early >> lane & 1 && i.op != OP_PREFETCH)
        ptx_die("an access before griddepcontrol.wait", i.text);
    if (p >= hit_start && p + bytes <= hit_end)
        return (unsigned char *)(uintptr_t)p;
    auto it = memory.upper_bound(p);
    if (it == memory.begin() || (--it, p + bytes > it->second))
        ptx_die("an access outside of every allocation", i.text);
    hit_start = it->first;
    hit_end = it->second;
    return (unsigned char *)(uintptr_t)p;
}

/* --- registers -------------------------------------------------------------------------------- */

/* Warps' registers, all garbage between blocks. A kernel has up to 66,000 of them, one for each
 * value in its code, of which a block writes few; to fill them all for each block took two thirds
 * of the interpreter's time. So it is noted what a block runs, and the registers named there are
 * filled. */
static std::vector<std::vector<uint64_t>> files; /* [warp][register, 32 lanes] */
static const uint64_t GARBAGE = 0xdddddddddddddddd;

static uint64_t *registers(size_t i_warp, size_t n_register)
{
    if (files.size() <= i_warp)
        files.resize(i_warp + 1);
    if (files[i_warp].size() < n_register * 32)
        files[i_warp].resize(n_register * 32, GARBAGE);
    return files[i_warp].data();
}

static void spoil(ptx_warp *w, const ptx_operand &a)
{
    if (a.reg >= 0)
        std::fill_n(w->reg + (size_t)a.reg * 32, 32, GARBAGE);
    for (const ptx_operand &part : a.parts)
        spoil(w, part);
}

static void spoil_registers(ptx_warp *w, const ptx_kernel &k)
{
    for (const int pc : w->ran) {
        for (const ptx_operand &a : k.code[(size_t)pc].args)
            spoil(w, a);
        w->has_run[(size_t)pc] = 0;
    }
    w->ran.clear();
}

static void note(ptx_warp *w, int pc)
{
    if (w->has_run[(size_t)pc])
        return;
    w->has_run[(size_t)pc] = 1;
    w->ran.push_back(pc);
}

/* --- warps ------------------------------------------------------------------------------------ */

static void add_group(ptx_warp *w, int pc, uint32_t lanes)
{
    if (!lanes)
        return;
    for (ptx_group &g : w->groups)
        if (g.pc == pc) {
            g.lanes |= lanes;
            g.waits = false;
            return;
        }
    w->groups.push_back({ pc, lanes, false });
}

static uint32_t guarded(const ptx_warp &w, const ptx_instruction &i, uint32_t lanes)
{
    if (i.pred < 0)
        return lanes;
    uint32_t m = 0;
    for (uint32_t left = lanes; left; left &= left - 1) {
        const int l = __builtin_ctz(left);
        if ((w.reg[(size_t)i.pred * 32 + l] != 0) != i.pred_negated)
            m |= 1u << l;
    }
    return m;
}

/* The lanes of a branch go where they want; false: the group goes on at the next instruction. */
static bool branch(ptx_warp *w, const ptx_instruction &i, const ptx_group &g, uint32_t m)
{
    if (i.op == OP_BRA) {
        add_group(w, i.targets[0], m);
    } else {
        for (uint32_t left = m; left; left &= left - 1) {
            const int l = __builtin_ctz(left);
            const uint64_t n = w->reg[(size_t)i.args[0].reg * 32 + l];
            if (n >= i.targets.size())
                ptx_die("a branch behind the end of its table", i.text);
            add_group(w, i.targets[n], 1u << l);
        }
    }
    add_group(w, g.pc + 1, g.lanes & ~m);
    return true;
}

/* Takes the group at the lowest place off the list; *stop: where another may join it. */
static ptx_group take_group(ptx_warp *w, const ptx_kernel *k, int *stop)
{
    const size_t none = w->groups.size();
    size_t best = none;
    for (size_t n = 0; n < none; n++)
        if (!w->groups[n].waits && (best == none || w->groups[n].pc < w->groups[best].pc))
            best = n;
    if (best == none)
        ptx_die("lanes of a warp wait for each other", k->code[(size_t)w->groups[0].pc].text);
    const ptx_group g = w->groups[best];
    w->groups.erase(w->groups.begin() + (ptrdiff_t)best);
    *stop = 1 << 30;
    for (const ptx_group &other : w->groups)
        if (other.pc > g.pc)
            *stop = std::min(*stop, other.pc);
    return g;
}

static void watch(const ptx_warp &w, int pc, uint32_t m)
{
    if (ptx_watching)
        ptx_watching->issue(w.first / 32, w, pc, m);
}

/* Whether an instruction of lanes that come one after the other happens once they are all there. */
static bool awaits_lanes(const ptx_instruction &i)
{
    return i.op == OP_SHFL || i.op == OP_VOTE || i.op == OP_BARWARP || i.op == OP_MMA ||
           i.op == OP_BAR;
}

/* One group until it ends, branches or meets another; true: the warp is at the block's barrier. */
static bool run_group(ptx_warp *w, ptx_kernel *k, ptx_group g, int stop)
{
    for (;;) {
        ptx_instruction &i = k->code[(size_t)g.pc];
        const uint32_t m = guarded(*w, i, g.lanes);
        i.count++;
        note(w, g.pc);
        if (!m || !awaits_lanes(i))
            watch(*w, g.pc, m);
        if (i.op == OP_BAR && m) {
            if (m != w->live) {
                w->groups.push_back({ g.pc, g.lanes, true });
                return false;
            }
            watch(*w, g.pc, m);
            add_group(w, g.pc + 1, g.lanes);
            return true;
        }
        if ((i.op == OP_BRA || i.op == OP_BRX) && m)
            return !branch(w, i, g, m);
        if (i.op == OP_RET && m) {
            if (w->may_run_early & m)
                ptx_die("lanes end without griddepcontrol.wait", k->name);
            w->live &= ~m;
            g.lanes &= ~m;
            if (!g.lanes)
                return false;
        } else if (m && !ptx_step(w, i, m)) {
            w->groups.push_back({ g.pc, g.lanes, true });
            return false;
        } else if (m && awaits_lanes(i)) {
            watch(*w, g.pc, m);
        }
        if (++g.pc >= stop) {
            add_group(w, g.pc, g.lanes);
            return false;
        }
    }
}

/* Until the barrier or the end. */
static void run_warp(ptx_warp *w, ptx_kernel *k)
{
    while (!w->groups.empty()) {
        int stop;
        const ptx_group g = take_group(w, k, &stop);
        if (run_group(w, k, g, stop)) {
            w->at_barrier = true;
            return;
        }
    }
}

static void run_block(std::vector<ptx_warp> *warps, ptx_kernel *k, unsigned n_thread)
{
    for (size_t n = 0; n < warps->size(); n++) {
        ptx_warp &w = (*warps)[n];
        const unsigned rest = n_thread - 32 * (unsigned)n;
        w.live = rest >= 32 ? ~0u : (1u << rest) - 1;
        w.first = 32 * (unsigned)n;
        w.may_run_early = k->waits_for_grid ? w.live : 0;
        w.at_barrier = false;
        w.groups.assign(1, { 0, w.live, false });
        w.copies.clear();
        w.copy_group = 0;
        std::fill(w.local.begin(), w.local.end(), (unsigned char)0xff);
    }
    for (bool more = true; more;) {
        size_t n_barrier = 0, n_done = 0;
        for (size_t n = warps->size(); n-- > 0;) /* the last first, as a GPU may */
            run_warp(&(*warps)[n], k);
        for (ptx_warp &w : *warps) {
            n_barrier += w.at_barrier;
            n_done += w.groups.empty();
            w.at_barrier = false;
            if (w.groups.empty() && !w.copies.empty())
                ptx_die("a warp ends before its copies were waited for", k->name);
        }
        if (n_barrier && n_done)
            ptx_die("a warp ends while others wait at the barrier", k->name);
        if (n_barrier && ptx_watching)
            ptx_watching->meet();
        more = n_done < warps->size();
    }
    for (ptx_warp &w : *warps)
        spoil_registers(&w, *k);
}

void ptx_launch(ptx_kernel *k, const unsigned grid[3], const unsigned block[3], size_t smem,
                const void *args, const std::vector<unsigned> *blocks)
{
    memcpy(ptx_grid, grid, sizeof ptx_grid);
    memcpy(ptx_block, block, sizeof ptx_block);
    const unsigned n_thread = block[0] * block[1] * block[2];
    ptx_args.assign((const unsigned char *)args, (const unsigned char *)args + k->args_bytes);
    std::vector<ptx_warp> warps((n_thread + 31) / 32);
    for (size_t i = 0; i < warps.size(); i++) {
        warps[i].reg = registers(i, k->registers.size());
        warps[i].local.resize((k->local_bytes + 15) / 16 * 16 * 32);
        warps[i].has_run.resize(k->code.size());
    }
    if (ptx_watching)
        ptx_watching->begin_launch(*k);
    const size_t n_block = blocks ? blocks->size() : (size_t)grid[0] * grid[1] * grid[2];
    for (size_t i = 0; i < n_block; i++) {
        const unsigned b = blocks ? (*blocks)[i] : (unsigned)i;
        ptx_block_id[0] = b % grid[0];
        ptx_block_id[1] = b / grid[0] % grid[1];
        ptx_block_id[2] = b / grid[0] / grid[1];
        ptx_shared.assign((k->shared_bytes + 15) / 16 * 16 + smem, 0xff);
        if (ptx_watching)
            ptx_watching->begin_block(warps.size());
        run_block(&warps, k, n_thread);
        if (ptx_watching)
            ptx_watching->end_block();
    }
}
