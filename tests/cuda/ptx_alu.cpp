/* What one instruction does to the lanes of a warp (ptx.h). Source: PTX ISA 8.x. */
#include "cuda/ptx_lanes.h"

#include <math.h>
#include <stdlib.h>

size_t ptx_size(ptx_type t)
{
    static const unsigned char sizes[] = { 1, 2, 4, 8, 1, 2, 4, 8, 1, 2, 4, 8, 4, 1, 4 };
    return sizes[t];
}

uint64_t ptx_value(const ptx_warp &w, const ptx_operand &a, int lane)
{
    switch (a.kind) {
    case ptx_operand::REGISTER: {
        const uint64_t v = w.reg[(size_t)a.reg * 32 + (size_t)lane];
        return a.negated ? !v : v;
    }
    case ptx_operand::NUMBER:
        return (uint64_t)a.number;
    case ptx_operand::SPECIAL: {
        const unsigned id = w.first + (unsigned)lane, n = (unsigned)a.special;
        const unsigned tid[3] = { id % ptx_block[0], id / ptx_block[0] % ptx_block[1],
                                  id / (ptx_block[0] * ptx_block[1]) };
        return n < 3    ? tid[n]
               : n < 6  ? ptx_block_id[n - 3]
               : n < 9  ? ptx_block[n - 6]
               : n < 12 ? ptx_grid[n - 9]
                        : (unsigned)lane;
    }
    default:
        return 0;
    }
}

/* --- arithmetic ------------------------------------------------------------------------------- */

static void float_arithmetic(ptx_warp *w, const ptx_instruction &i, uint32_t m)
{
    const row x(*w, i.args[1]), y(*w, i.args[2]);
    switch (i.op) {
    case OP_ADD:
        return set(w, i, m, [&](int l) { return to_bits(x.f(l) + y.f(l)); });
    case OP_SUB:
        return set(w, i, m, [&](int l) { return to_bits(x.f(l) - y.f(l)); });
    case OP_MUL:
        return set(w, i, m, [&](int l) { return to_bits(x.f(l) * y.f(l)); });
    case OP_DIV:
        return set(w, i, m, [&](int l) { return to_bits(x.f(l) / y.f(l)); });
    case OP_MAX: /* with a constant: what the compiler makes of a comparison */
    case OP_MIN:
        if (i.args[2].kind != ptx_operand::NUMBER)
            ptx_die("a maximum of the hardware's", i.text);
        if (i.op == OP_MAX)
            return set(w, i, m, [&](int l) { return x.f(l) > y.f(l) ? to_bits(x.f(l)) : y[l]; });
        return set(w, i, m, [&](int l) { return x.f(l) < y.f(l) ? to_bits(x.f(l)) : y[l]; });
    default:
        ptx_die("not implemented for floats", i.text);
    }
}

static uint64_t high_half(int64_t x, int64_t y, const width &t)
{
    if (t.n < 64)
        return (uint64_t)((int64_t)((uint64_t)x * (uint64_t)y) >> t.n);
    return t.is_signed ? (uint64_t)((__int128)x * y >> 64)
                       : (uint64_t)((unsigned __int128)(uint64_t)x * (uint64_t)y >> 64);
}

static int64_t quotient(const ptx_instruction &i, int64_t x, int64_t y)
{
    if (!y)
        ptx_die("division by zero", i.text);
    if (i.type == U64) {
        const uint64_t ux = (uint64_t)x, uy = (uint64_t)y;
        return (int64_t)(i.op == OP_DIV ? ux / uy : ux % uy);
    }
    return i.op == OP_DIV ? x / y : x % y;
}

static bool is_less(int64_t x, int64_t y, bool by_size)
{
    return by_size ? (uint64_t)x < (uint64_t)y : x < y;
}

static void arithmetic(ptx_warp *w, const ptx_instruction &i, uint32_t m)
{
    if (i.type == F32)
        return float_arithmetic(w, i, m);
    const row x(*w, i.args[1]), y(*w, i.args[2]);
    const width t(i.type);
    const bool by_size = i.type == U64, is_max = i.op == OP_MAX;
    switch (i.op) {
    case OP_ADD:
        return set(w, i, m, [&](int l) { return t.cut(x[l] + y[l]); });
    case OP_SUB:
        return set(w, i, m, [&](int l) { return t.cut(x[l] - y[l]); });
    case OP_MUL:
        if (i.is_high)
            return set(w, i, m,
                       [&](int l) { return t.cut(high_half(t.extend(x[l]), t.extend(y[l]), t)); });
        if (i.is_wide) {
            const uint64_t mask = t.n == 16 ? 0xffffffff : ~0ull;
            return set(w, i, m, [&](int l) {
                return (uint64_t)t.extend(x[l]) * (uint64_t)t.extend(y[l]) & mask;
            });
        }
        return set(w, i, m, [&](int l) { return t.cut(x[l] * y[l]); });
    case OP_DIV:
    case OP_REM:
        return set(w, i, m, [&](int l) {
            return t.cut((uint64_t)quotient(i, t.extend(x[l]), t.extend(y[l])));
        });
    case OP_MIN:
    case OP_MAX:
        return set(w, i, m, [&](int l) {
            const int64_t a = t.extend(x[l]), b = t.extend(y[l]);
            return t.cut((uint64_t)(is_less(a, b, by_size) != is_max ? a : b));
        });
    default:
        ptx_die("not implemented", i.text);
    }
}

static void multiply_add(ptx_warp *w, const ptx_instruction &i, uint32_t m)
{
    const row x(*w, i.args[1]), y(*w, i.args[2]), z(*w, i.args[3]);
    const width t(i.type);
    if (i.op == OP_FMA)
        set(w, i, m, [&](int l) { return to_bits(__builtin_fmaf(x.f(l), y.f(l), z.f(l))); });
    else if (i.is_wide)
        set(w, i, m,
            [&](int l) { return (uint64_t)t.extend(x[l]) * (uint64_t)t.extend(y[l]) + z[l]; });
    else
        set(w, i, m, [&](int l) { return t.cut(x[l] * y[l] + z[l]); });
}

static uint64_t reversed(uint64_t x, unsigned n)
{
    uint64_t r = 0;
    for (unsigned b = 0; b < n; b++)
        r = r << 1 | (x >> b & 1);
    return r;
}

static void unary(ptx_warp *w, const ptx_instruction &i, uint32_t m)
{
    const row x(*w, i.args[1]);
    const width t(i.type);
    const auto zeros = [&](uint64_t v) { return (unsigned)__builtin_clzll(v) - t.spare; };
    switch (i.op) {
    case OP_NEG:
        if (i.type == F32)
            return set(w, i, m, [&](int l) { return (x[l] ^ 0x80000000u) & 0xffffffffu; });
        return set(w, i, m, [&](int l) { return t.cut(-x[l]); });
    case OP_ABS:
        if (i.type == F32)
            return set(w, i, m, [&](int l) { return x[l] & 0x7fffffffu; });
        return set(w, i, m, [&](int l) { return t.cut((uint64_t)llabs(t.extend(x[l]))); });
    case OP_NOT:
        if (i.type == PRED)
            return set(w, i, m, [&](int l) { return (uint64_t)!x[l]; });
        return set(w, i, m, [&](int l) { return t.cut(~x[l]); });
    case OP_POPC:
        return set(w, i, m, [&](int l) { return (uint64_t)__builtin_popcountll(t.cut(x[l])); });
    case OP_BFIND: { /* the highest bit, or with .shiftamt by how much it may be shifted */
        if (t.is_signed)
            ptx_die("not implemented", i.text);
        const bool is_shift = i.mode == "shiftamt";
        return set(w, i, m, [&](int l) {
            const uint64_t v = t.cut(x[l]);
            return !v ? 0xffffffffu : is_shift ? zeros(v) : t.n - 1 - zeros(v);
        });
    }
    case OP_BREV:
        return set(w, i, m, [&](int l) { return reversed(x[l], t.n); });
    case OP_CLZ:
        return set(w, i, m, [&](int l) { return t.cut(x[l]) ? zeros(t.cut(x[l])) : t.n; });
    case OP_SQRT:
        return set(w, i, m, [&](int l) { return to_bits(sqrtf(x.f(l))); });
    default:
        ptx_die("not implemented", i.text);
    }
}

/* --- bits ------------------------------------------------------------------------------------- */

static void shift(ptx_warp *w, const ptx_instruction &i, uint32_t m)
{
    const row x(*w, i.args[1]), y(*w, i.args[2]);
    const width t(i.type);
    if (i.op == OP_SHL)
        set(w, i, m, [&](int l) {
            const unsigned by = (uint32_t)y[l];
            return by >= t.n ? 0 : t.cut(x[l] << by);
        });
    else if (t.is_signed)
        set(w, i, m, [&](int l) {
            const unsigned by = (uint32_t)y[l];
            return t.cut((uint64_t)(t.extend(x[l]) >> (by >= t.n ? 63 : by)));
        });
    else
        set(w, i, m, [&](int l) {
            const unsigned by = (uint32_t)y[l];
            return by >= t.n ? 0 : t.cut(x[l]) >> by;
        });
}

/* Of two registers, one behind the other. */
static void funnel(ptx_warp *w, const ptx_instruction &i, uint32_t m)
{
    const row x(*w, i.args[1]), y(*w, i.args[2]), z(*w, i.args[3]);
    const bool clamps = i.mode.find("clamp") != std::string::npos, is_right = i.mode[0] == 'r';
    set(w, i, m, [&](int l) {
        const uint32_t by = (uint32_t)z[l], c = clamps ? std::min(by, 32u) : by & 31;
        const uint64_t both = y[l] << 32 | (uint32_t)x[l];
        return (uint64_t)(uint32_t)(is_right ? both >> c : both << c >> 32);
    });
}

static uint64_t extract(const width &t, uint64_t x, unsigned pos, unsigned len)
{
    uint64_t r = pos >= t.n ? 0 : t.cut(x) >> pos;
    if (len < t.n)
        r &= ((uint64_t)1 << len) - 1;
    if (t.is_signed && len && len < t.n && (r >> (len - 1) & 1))
        r |= ~(uint64_t)0 << len;
    return t.cut(r);
}

static uint64_t insert(const width &t, uint64_t x, uint64_t y, unsigned pos, unsigned len)
{
    if (pos >= t.n)
        return t.cut(y);
    const uint64_t mask = (len >= t.n ? ~(uint64_t)0 : ((uint64_t)1 << len) - 1) << pos;
    return t.cut((y & ~mask) | (x << pos & mask));
}

static uint64_t permuted(uint32_t x, uint32_t y, uint32_t choice)
{
    const uint64_t both = (uint64_t)y << 32 | x;
    uint32_t r = 0;
    for (int b = 0; b < 4; b++) {
        const unsigned c = choice >> 4 * b & 15;
        uint8_t byte = (uint8_t)(both >> 8 * (c & 7));
        byte = c & 8 ? (byte & 128 ? 255 : 0) : byte;
        r |= (uint32_t)byte << 8 * b;
    }
    return r;
}

/* Bit by bit what the table says of three bits: the or of the rows that are set. */
static uint64_t looked_up(uint32_t x, uint32_t y, uint32_t z, unsigned table)
{
    uint32_t r = 0;
    for (unsigned k = 0; k < 8; k++)
        if (table >> k & 1)
            r |= (k & 4 ? x : ~x) & (k & 2 ? y : ~y) & (k & 1 ? z : ~z);
    return r;
}

static void fields(ptx_warp *w, const ptx_instruction &i, uint32_t m)
{
    const row x(*w, i.args[1]), y(*w, i.args[2]), z(*w, i.args[3]);
    const width t(i.type);
    switch (i.op) {
    case OP_BFE:
        return set(w, i, m, [&](int l) { return extract(t, x[l], y[l] & 255, z[l] & 255); });
    case OP_BFI: {
        const row len(*w, i.args[4]);
        return set(w, i, m, [&](int l) { return insert(t, x[l], y[l], z[l] & 255, len[l] & 255); });
    }
    case OP_PRMT:
        return set(w, i, m,
                   [&](int l) { return permuted((uint32_t)x[l], (uint32_t)y[l], (uint32_t)z[l]); });
    default: { /* lop3 */
        const unsigned table = (unsigned)i.args[4].number;
        return set(w, i, m, [&](int l) {
            return looked_up((uint32_t)x[l], (uint32_t)y[l], (uint32_t)z[l], table);
        });
    }
    }
}

static void logic(ptx_warp *w, const ptx_instruction &i, uint32_t m)
{
    const row x(*w, i.args[1]), y(*w, i.args[2]);
    if (i.op == OP_AND)
        set(w, i, m, [&](int l) { return x[l] & y[l]; });
    else if (i.op == OP_OR)
        set(w, i, m, [&](int l) { return x[l] | y[l]; });
    else
        set(w, i, m, [&](int l) { return x[l] ^ y[l]; });
}

/* --- comparisons, conversions ----------------------------------------------------------------- */

static void set_predicate(ptx_warp *w, const ptx_instruction &i, uint32_t m)
{
    const row x(*w, i.args[1]), y(*w, i.args[2]);
    const width t(i.type);
    const bool by_size = i.type == U64 || i.type == B64;
    const unsigned when = i.when;
    uint64_t holds[32];
    if (i.type == F32)
        for (int l = 0; l < 32; l++) {
            const float a = x.f(l), b = y.f(l);
            holds[l] = (when & (a < b ? LESS : a == b ? EQUAL : a > b ? GREATER : UNORDERED)) != 0;
        }
    else
        for (int l = 0; l < 32; l++) {
            const int64_t a = t.extend(x[l]), b = t.extend(y[l]);
            holds[l] = (when & (a == b ? EQUAL : is_less(a, b, by_size) ? LESS : GREATER)) != 0;
        }
    if (i.combine.empty())
        return set(w, i, m, [&](int l) { return holds[l]; });
    const row c(*w, i.args[3]);
    if (i.combine == "and")
        set(w, i, m, [&](int l) { return holds[l] & (c[l] != 0); });
    else if (i.combine == "or")
        set(w, i, m, [&](int l) { return holds[l] | (c[l] != 0); });
    else
        set(w, i, m, [&](int l) { return holds[l] ^ (c[l] != 0); });
}

static void select(ptx_warp *w, const ptx_instruction &i, uint32_t m)
{
    const row x(*w, i.args[1]), y(*w, i.args[2]), c(*w, i.args[3]);
    const width t(i.type);
    set(w, i, m, [&](int l) { return t.cut(c[l] ? x[l] : y[l]); });
}

/* Exact. */
static float half_to_float(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = h >> 10 & 31, m = h & 0x3ff;
    if (e == 31)
        return to_float(m ? 0x7fffffff : sign | 0x7f800000);
    return to_float(sign | 0x33800000) * (float)(e ? (m | 0x400) << (e - 1) : m); /* 2^-24 */
}

static void convert(ptx_warp *w, const ptx_instruction &i, uint32_t m)
{
    const row x(*w, i.args[1]);
    const width to(i.type), from(i.from);
    const bool is_float = i.type == F32, was_float = i.from == F32, to_nearest = i.mode == "rni";
    if (is_float && i.mode == "f16")
        return set(w, i, m, [&](int l) { return to_bits(half_to_float((uint16_t)x[l])); });
    if (was_float && !to_nearest && (is_float || i.mode != "rzi"))
        ptx_die("rounding", i.text);
    if (was_float && is_float)
        set(w, i, m, [&](int l) { return to_bits(rintf(x.f(l))); });
    else if (is_float && i.from == U64)
        set(w, i, m, [&](int l) { return to_bits((float)x[l]); });
    else if (is_float)
        set(w, i, m, [&](int l) { return to_bits((float)from.extend(x[l])); });
    else if (was_float)
        set(w, i, m, [&](int l) {
            return to.cut((uint64_t)(int64_t)(to_nearest ? rintf(x.f(l)) : x.f(l)));
        });
    else { /* a byte lies in a register of 16 bits or more, extended */
        const width kept(to.n < 32 ? U32 : i.type);
        set(w, i, m,
            [&](int l) { return kept.cut((uint64_t)to.extend((uint64_t)from.extend(x[l]))); });
    }
}

/* Where shared and local memory lie among generic addresses, and back. */
static void convert_address(ptx_warp *w, const ptx_instruction &i, uint32_t m)
{
    const row x(*w, i.args[1]);
    const uint64_t window = i.space == SHARED  ? (uint64_t)SHARED_WINDOW
                            : i.space == LOCAL ? (uint64_t)LOCAL_WINDOW
                                               : 0;
    if (!window)
        set(w, i, m, [&](int l) { return x[l]; });
    else if (i.text.find(".to.") != std::string::npos)
        set(w, i, m, [&](int l) { return (uint64_t)(uint32_t)x[l]; });
    else
        set(w, i, m, [&](int l) { return window | (uint32_t)x[l]; });
}

/* The byte at a bit, of either sign. */
static int byte_at(uint32_t v, int bit, bool is_signed)
{
    return is_signed ? (int8_t)(v >> bit) : (int)(uint8_t)(v >> bit);
}

static void dot(ptx_warp *w, const ptx_instruction &i, uint32_t m)
{
    const row x(*w, i.args[1]), y(*w, i.args[2]), z(*w, i.args[3]);
    const bool sa = i.type == S32, sb = i.from == S32;
    const unsigned skip = i.op == OP_DP2A && i.is_high ? 16 : 0;
    if (i.op == OP_DP4A)
        return set(w, i, m, [&](int l) {
            const uint32_t a = (uint32_t)x[l], b = (uint32_t)y[l];
            uint32_t c = (uint32_t)z[l];
            for (int bit = 0; bit < 32; bit += 8)
                c += (uint32_t)(byte_at(a, bit, sa) * byte_at(b, bit, sb));
            return (uint64_t)c;
        });
    set(w, i, m, [&](int l) {
        const uint32_t a = (uint32_t)x[l], b = (uint32_t)y[l] >> skip;
        uint32_t c = (uint32_t)z[l];
        for (int k = 0; k < 2; k++)
            c += (uint32_t)((sa ? (int16_t)(a >> 16 * k) : (int)(uint16_t)(a >> 16 * k)) *
                            byte_at(b, 8 * k, sb));
        return (uint64_t)c;
    });
}

static void move(ptx_warp *w, const ptx_instruction &i, uint32_t m)
{
    const ptx_operand &to = i.args[0], &from = i.args[1];
    const width t(i.type);
    if (to.kind == ptx_operand::VECTOR) { /* unpacks */
        const unsigned n = t.n / (unsigned)to.parts.size();
        EACH_LANE
        {
            const uint64_t v = ptx_value(*w, from, lane);
            for (size_t k = 0; k < to.parts.size(); k++)
                w->reg[(size_t)to.parts[k].reg * 32 + (size_t)lane] =
                    v >> n * k & (((uint64_t)1 << n) - 1);
        }
        return;
    }
    if (from.kind == ptx_operand::VECTOR) { /* packs */
        const unsigned n = t.n / (unsigned)from.parts.size();
        EACH_LANE
        {
            uint64_t v = 0;
            for (size_t k = 0; k < from.parts.size(); k++)
                v |= (ptx_value(*w, from.parts[k], lane) & (((uint64_t)1 << n) - 1)) << n * k;
            DEST = v;
        }
        return;
    }
    const row x(*w, from);
    if (i.type == PRED)
        set(w, i, m, [&](int l) { return (uint64_t)(x[l] != 0); });
    else
        set(w, i, m, [&](int l) { return t.cut(x[l]); });
}

/* --- all of them ------------------------------------------------------------------------------ */

/* tidy: long, a table of instructions */
bool ptx_step(ptx_warp *w, const ptx_instruction &i, uint32_t m)
{
    switch (i.op) {
    case OP_ADD:
    case OP_SUB:
    case OP_MUL:
    case OP_DIV:
    case OP_REM:
    case OP_MIN:
    case OP_MAX:
        arithmetic(w, i, m);
        return true;
    case OP_FMA:
    case OP_MAD:
        multiply_add(w, i, m);
        return true;
    case OP_NEG:
    case OP_ABS:
    case OP_NOT:
    case OP_POPC:
    case OP_BFIND:
    case OP_BREV:
    case OP_CLZ:
    case OP_SQRT:
        unary(w, i, m);
        return true;
    case OP_AND:
    case OP_OR:
    case OP_XOR:
        logic(w, i, m);
        return true;
    case OP_SHL:
    case OP_SHR:
        shift(w, i, m);
        return true;
    case OP_SHF:
        funnel(w, i, m);
        return true;
    case OP_BFE:
    case OP_BFI:
    case OP_PRMT:
    case OP_LOP3:
        fields(w, i, m);
        return true;
    case OP_SETP:
        set_predicate(w, i, m);
        return true;
    case OP_SELP:
        select(w, i, m);
        return true;
    case OP_CVT:
        convert(w, i, m);
        return true;
    case OP_CVTA:
        convert_address(w, i, m);
        return true;
    case OP_DP2A:
    case OP_DP4A:
        dot(w, i, m);
        return true;
    case OP_MOV:
        move(w, i, m);
        return true;
    default:
        return ptx_step_memory(w, i, m);
    }
}
