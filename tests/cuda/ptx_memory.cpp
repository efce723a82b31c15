/* Memory, and what the lanes of a warp do together (ptx.h). Source: PTX ISA 8.x. */
#include "cuda/ptx_lanes.h"

uint64_t ptx_address(const ptx_warp &w, const ptx_operand &a, int lane)
{
    const uint64_t base = a.reg >= 0 ? w.reg[(size_t)a.reg * 32 + (size_t)lane] : 0;
    return base + (uint64_t)a.number;
}

static void load(ptx_warp *w, const ptx_instruction &i, uint32_t m)
{
    const size_t n = ptx_size(i.type), all = n * (size_t)i.vector;
    const width t(i.type), kept(n < 4 ? B32 : i.type);
    EACH_LANE
    {
        const unsigned char *const p =
            ptx_reach(w, lane, i, i.space, ptx_address(*w, i.args[1], lane), all);
        for (int k = 0; k < i.vector; k++) {
            uint64_t v = 0;
            memcpy(&v, p + (size_t)k * n, n);
            if (t.is_signed)
                v = kept.cut((uint64_t)t.extend(v));
            const ptx_operand &to = i.vector > 1 ? i.args[0].parts[(size_t)k] : i.args[0];
            w->reg[(size_t)to.reg * 32 + (size_t)lane] = v;
        }
    }
}

static void store(ptx_warp *w, const ptx_instruction &i, uint32_t m)
{
    const size_t n = ptx_size(i.type), all = n * (size_t)i.vector;
    EACH_LANE
    {
        unsigned char *const p =
            ptx_reach(w, lane, i, i.space, ptx_address(*w, i.args[0], lane), all);
        for (int k = 0; k < i.vector; k++) {
            const ptx_operand &from = i.vector > 1 ? i.args[1].parts[(size_t)k] : i.args[1];
            const uint64_t v = ptx_value(*w, from, lane);
            memcpy(p + (size_t)k * n, &v, n);
        }
    }
}

/* What an atomic leaves where x was; z: cas' third operand. */
static int64_t combined(const ptx_instruction &i, int64_t x, int64_t y, int64_t z)
{
    if (i.mode == "add")
        return (int64_t)((uint64_t)x + (uint64_t)y);
    if (i.mode == "max")
        return x > y ? x : y;
    if (i.mode == "min")
        return x < y ? x : y;
    if (i.mode == "or")
        return x | y;
    if (i.mode == "and")
        return x & y;
    if (i.mode == "exch")
        return y;
    if (i.mode == "inc")
        return (uint64_t)x >= (uint64_t)y ? 0 : x + 1;
    if (i.mode == "cas")
        return x == y ? z : x;
    ptx_die("not implemented", i.text);
}

static void atomic(ptx_warp *w, const ptx_instruction &i, uint32_t m)
{
    const width t(i.type);
    const size_t n = ptx_size(i.type);
    if (i.type == F32)
        ptx_die("an atomic sum of floats has no order", i.text);
    EACH_LANE
    {
        unsigned char *const p =
            ptx_reach(w, lane, i, i.space, ptx_address(*w, i.args[1], lane), n);
        uint64_t old = 0;
        memcpy(&old, p, n);
        const uint64_t z = i.args.size() > 3 ? ptx_value(*w, i.args[3], lane) : 0;
        const int64_t r =
            combined(i, t.extend(old), t.extend(ptx_value(*w, i.args[2], lane)), t.extend(z));
        memcpy(p, &r, n);
        if (i.args[0].kind == ptx_operand::REGISTER)
            DEST = old;
    }
}

static void copy(ptx_warp *w, const ptx_instruction &i, uint32_t m)
{
    EACH_LANE
    {
        const size_t n = (size_t)i.args[2].number;
        unsigned char *const dst =
            ptx_reach(w, lane, i, SHARED, ptx_address(*w, i.args[0], lane), n);
        const unsigned char *const src =
            ptx_reach(w, lane, i, GLOBAL, ptx_address(*w, i.args[1], lane), n);
        if (n != 16)
            ptx_die("a copy of other than 16 bytes", i.text);
        memset(dst, 0xff, n);
        w->copies.push_back({ dst, src, w->copy_group });
    }
}

static void prefetch(ptx_warp *w, const ptx_instruction &i, uint32_t m)
{
    EACH_LANE
    {
        ptx_reach(w, lane, i, i.space, ptx_address(*w, i.args[0], lane), 1);
    }
}

/* The groups are the warp's here: our code commits and waits with all lanes together. */
static void copy_wait(ptx_warp *w, const ptx_instruction &i)
{
    size_t n = 0;
    const unsigned keep = (unsigned)i.args[0].number;
    while (n < w->copies.size() && w->copies[n].group + keep < w->copy_group) {
        memcpy(w->copies[n].dst, w->copies[n].src, 16);
        n++;
    }
    w->copies.erase(w->copies.begin(), w->copies.begin() + (ptrdiff_t)n);
}

/* --- what lanes do together ------------------------------------------------------------------ */

/* Whether all lanes of the mask are here. */
static bool all_here(const ptx_warp &w, const ptx_instruction &i, uint32_t mask, uint32_t m)
{
    if (mask != 0xffffffffu && (mask & ~w.live))
        ptx_die("a mask names a lane that has ended", i.text);
    return (mask & w.live & m) == (mask & w.live);
}

static bool shuffle(ptx_warp *w, const ptx_instruction &i, uint32_t m)
{
    const uint32_t mask = (uint32_t)ptx_value(*w, i.args[4], __builtin_ctz(m));
    if (!all_here(*w, i, mask, m))
        return false;
    const row x(*w, i.args[1]), by(*w, i.args[2]), bounds(*w, i.args[3]);
    const char mode = i.mode == "bfly" ? 'b' : i.mode == "up" ? 'u' : i.mode == "down" ? 'd' : 'i';
    uint64_t got[32];
    EACH_LANE
    {
        const uint32_t b = (uint32_t)by[lane], c = (uint32_t)bounds[lane], clamp = c & 31,
                       segment = c >> 8 & 31, l = (uint32_t)lane;
        const uint32_t max = (l & segment) | (clamp & ~segment), min = l & segment;
        uint32_t j = mode == 'b'   ? l ^ b
                     : mode == 'u' ? l - b
                     : mode == 'd' ? l + b
                                   : min | (b & ~segment & 31);
        if (mode == 'u' ? (int)j < (int)max : j > max)
            j = l;
        if (!(mask & m & 1u << j))
            ptx_die("a shuffle reads a lane that is not in its mask", i.text);
        got[lane] = x[(int)j];
    }
    EACH_LANE DEST = got[lane];
    return true;
}

static bool vote(ptx_warp *w, const ptx_instruction &i, uint32_t m)
{
    const uint32_t mask = (uint32_t)ptx_value(*w, i.args[2], __builtin_ctz(m));
    if (!all_here(*w, i, mask, m))
        return false;
    uint32_t yes = 0;
    EACH_LANE yes |= (ptx_value(*w, i.args[1], lane) != 0 ? 1u : 0u) << lane;
    uint64_t r;
    if (i.mode == "ballot")
        r = yes & mask;
    else if (i.mode == "any")
        r = (yes & mask) != 0;
    else if (i.mode == "all")
        r = (yes & mask) == (mask & m);
    else
        ptx_die("not implemented", i.text);
    EACH_LANE DEST = r;
    return true;
}

static bool multiply(ptx_warp *w, const ptx_instruction &i, uint32_t m)
{
    if (m != 0xffffffffu)
        return false;
    const size_t n_c = i.args[0].parts.size(), n_row = 4 * n_c;
    const size_t depth = i.args[2].parts.size() * 16;
    /* as bytes: a by row, b by column, both along the depth */
    int8_t a[16][32], b[8][32];
    for (size_t k = 0; k < depth; k += 4) {
        const int at = (int)(k / 4 % 4);
        for (size_t r = 0; r < n_row; r++) {
            const ptx_operand &p = i.args[1].parts[k / 16 * (n_row / 8) + r / 8];
            const uint32_t v = (uint32_t)ptx_value(*w, p, (int)(r % 8 * 4) + at);
            memcpy(&a[r][k], &v, 4);
        }
        for (int c = 0; c < 8; c++) {
            const uint32_t v = (uint32_t)ptx_value(*w, i.args[2].parts[k / 16], c * 4 + at);
            memcpy(&b[c][k], &v, 4);
        }
    }
    uint32_t out[32][4];
    for (int l = 0; l < 32; l++)
        for (size_t n = 0; n < n_c; n++) {
            const int8_t *const p = a[(size_t)l / 4 + 8 * (n / 2)], *const q =
                                                                        b[2 * (l % 4) + (int)n % 2];
            uint32_t sum = (uint32_t)ptx_value(*w, i.args[3].parts[n], l);
            for (size_t k = 0; k < depth; k++)
                sum += (uint32_t)(p[k] * q[k]);
            out[l][n] = sum;
        }
    for (size_t l = 0; l < 32; l++)
        for (size_t n = 0; n < n_c; n++)
            w->reg[(size_t)i.args[0].parts[n].reg * 32 + l] = out[l][n];
    return true;
}

bool ptx_step_memory(ptx_warp *w, const ptx_instruction &i, uint32_t m)
{
    switch (i.op) {
    case OP_LD:
        load(w, i, m);
        return true;
    case OP_ST:
        store(w, i, m);
        return true;
    case OP_ATOM:
        atomic(w, i, m);
        return true;
    case OP_COPY:
        copy(w, i, m);
        return true;
    case OP_COPY_COMMIT:
        w->copy_group++;
        return true;
    case OP_COPY_WAIT:
        copy_wait(w, i);
        return true;
    case OP_FENCE:
    case OP_GRID_NEXT:
        return true;
    case OP_GRID_WAIT:
        w->may_run_early &= ~m;
        return true;
    case OP_PREFETCH:
        prefetch(w, i, m);
        return true;
    case OP_SHFL:
        return shuffle(w, i, m);
    case OP_VOTE:
        return vote(w, i, m);
    case OP_BARWARP:
        return all_here(*w, i, (uint32_t)ptx_value(*w, i.args[0], __builtin_ctz(m)), m);
    case OP_MMA:
        return multiply(w, i, m);
    default:
        ptx_die("not implemented", i.text);
    }
}
