/* What one instruction does to the lanes of a warp (ptx.h). Source: PTX ISA 8.x. */
#include "cuda/ptx_run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

size_t ptx_size(ptx_type t)
{
    static const unsigned char sizes[] = { 1, 2, 4, 8, 1, 2, 4, 8, 1, 2, 4, 8, 4, 1, 4 };
    return sizes[t];
}

static bool is_signed(ptx_type t)
{
    return t >= S8 && t <= S64;
}

static float to_float(uint64_t v)
{
    const uint32_t u = (uint32_t)v;
    float f;
    memcpy(&f, &u, 4);
    return f;
}

static uint64_t to_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

/* The value of the type in a register, sign- or zero-extended. */
static int64_t extend(uint64_t v, ptx_type t)
{
    switch (t) {
    case U8:
    case B8:
    case PRED:
        return (uint8_t)v;
    case U16:
    case B16:
        return (uint16_t)v;
    case U32:
    case B32:
    case F32:
    case NO_TYPE:
        return (uint32_t)v;
    case S8:
        return (int8_t)v;
    case S16:
        return (int16_t)v;
    case S32:
        return (int32_t)v;
    default:
        return (int64_t)v;
    }
}

static uint64_t cut(uint64_t v, ptx_type t)
{
    const size_t n = ptx_size(t);
    return n == 8 ? v : v & (((uint64_t)1 << 8 * n) - 1);
}

static uint64_t value(const ptx_warp &w, const ptx_operand &a, int lane)
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

#define EACH_LANE                                       \
    for (uint32_t left_ = m; left_; left_ &= left_ - 1) \
        if (const int lane = __builtin_ctz(left_); true)
#define ARG(n) value(*w, i.args[n], lane)
#define DEST   w->reg[(size_t)i.args[0].reg * 32 + (size_t)lane]

/* --- arithmetic ------------------------------------------------------------------------------- */

static float float_op(const ptx_instruction &i, float x, float y)
{
    switch (i.op) {
    case OP_ADD:
        return x + y;
    case OP_SUB:
        return x - y;
    case OP_MUL:
        return x * y;
    case OP_DIV:
        return x / y;
    case OP_MAX: /* with a constant: what the compiler makes of a comparison */
    case OP_MIN:
        if (i.args[2].kind != ptx_operand::NUMBER)
            ptx_die("a maximum of the hardware's", i.text);
        return (i.op == OP_MAX ? x > y : x < y) ? x : y;
    default:
        ptx_die("not implemented for floats", i.text);
    }
}

static int64_t integer_op(const ptx_instruction &i, int64_t x, int64_t y)
{
    const uint64_t ux = (uint64_t)x, uy = (uint64_t)y;
    switch (i.op) {
    case OP_ADD:
        return (int64_t)(ux + uy);
    case OP_SUB:
        return (int64_t)(ux - uy);
    case OP_MUL:
        if (i.mode == "hi")
            return ptx_size(i.type) == 8
                       ? (int64_t)(is_signed(i.type) ? (uint64_t)((__int128)x * y >> 64)
                                                     : (uint64_t)((unsigned __int128)ux * uy >> 64))
                       : (int64_t)(ux * uy) >> 8 * ptx_size(i.type);
        return (int64_t)(ux * uy);
    case OP_DIV:
    case OP_REM:
        if (!y)
            ptx_die("division by zero", i.text);
        if (i.type == U64)
            return (int64_t)(i.op == OP_DIV ? ux / uy : ux % uy);
        return i.op == OP_DIV ? x / y : x % y;
    case OP_MIN:
        return (i.type == U64 ? ux < uy : x < y) ? x : y;
    case OP_MAX:
        return (i.type == U64 ? ux > uy : x > y) ? x : y;
    default:
        ptx_die("not implemented", i.text);
    }
}

static void arithmetic(ptx_warp *w, const ptx_instruction &i, uint32_t m)
{
    const ptx_type t = i.type;
    if (t == F32) {
        EACH_LANE DEST = to_bits(float_op(i, to_float(ARG(1)), to_float(ARG(2))));
        return;
    }
    EACH_LANE
    {
        const int64_t r = integer_op(i, extend(ARG(1), t), extend(ARG(2), t));
        DEST = i.mode == "wide" ? (uint64_t)r & (ptx_size(t) == 2 ? 0xffffffff : ~0ull)
                                : cut((uint64_t)r, t);
    }
}

static void unary(ptx_warp *w, const ptx_instruction &i, uint32_t m)
{
    const ptx_type t = i.type;
    EACH_LANE
    {
        const uint64_t x = ARG(1);
        switch (i.op) {
        case OP_NEG:
            DEST = t == F32 ? (x ^ 0x80000000u) & 0xffffffffu : cut(-x, t);
            break;
        case OP_ABS:
            DEST = t == F32 ? x & 0x7fffffffu : cut((uint64_t)llabs(extend(x, t)), t);
            break;
        case OP_NOT:
            DEST = t == PRED ? !x : cut(~x, t);
            break;
        case OP_POPC:
            DEST = (uint64_t)__builtin_popcountll(cut(x, t));
            break;
        case OP_BFIND: { /* the highest bit, or with .shiftamt by how much it may be shifted */
            const uint64_t v = cut(x, t), n = 8 * ptx_size(t);
            if (is_signed(t))
                ptx_die("not implemented", i.text);
            const uint64_t at = v ? 63 - (uint64_t)__builtin_clzll(v) : 0xffffffff;
            DEST = v && i.mode == "shiftamt" ? n - 1 - at : at;
            break;
        }
        case OP_BREV: {
            uint64_t r = 0;
            for (size_t b = 0; b < 8 * ptx_size(t); b++)
                r = r << 1 | (x >> b & 1);
            DEST = r;
            break;
        }
        case OP_CLZ:
            DEST = cut(x, t) ? (uint64_t)__builtin_clzll(cut(x, t)) - (64 - 8 * ptx_size(t))
                             : 8 * ptx_size(t);
            break;
        case OP_SQRT:
            DEST = to_bits(sqrtf(to_float(x)));
            break;
        default:
            ptx_die("not implemented", i.text);
        }
    }
}

/* tidy: long, a table of instructions */
static void bits(ptx_warp *w, const ptx_instruction &i, uint32_t m)
{
    const ptx_type t = i.type;
    const unsigned n = 8 * (unsigned)ptx_size(t);
    EACH_LANE
    {
        const uint64_t x = ARG(1), y = ARG(2), z = i.args.size() > 3 ? ARG(3) : 0;
        const unsigned by = (uint32_t)y;
        switch (i.op) {
        case OP_AND:
            DEST = x & y;
            break;
        case OP_OR:
            DEST = x | y;
            break;
        case OP_XOR:
            DEST = x ^ y;
            break;
        case OP_SHL:
            DEST = by >= n ? 0 : cut(x << by, t);
            break;
        case OP_SHR: {
            const int64_t s = extend(x, t);
            if (is_signed(t))
                DEST = cut((uint64_t)(s >> (by >= n ? 63 : by)), t);
            else
                DEST = by >= n ? 0 : cut(x, t) >> by;
            break;
        }
        case OP_SHF: {
            const unsigned c = i.mode.find("clamp") != std::string::npos
                                   ? ((uint32_t)z > 32 ? 32 : (uint32_t)z)
                                   : (uint32_t)z & 31;
            const uint64_t both = y << 32 | (uint32_t)x;
            DEST = (uint32_t)(i.mode[0] == 'r' ? both >> c : both << c >> 32);
            break;
        }
        case OP_BFE: {
            const unsigned pos = (uint32_t)y & 255, len = (uint32_t)z & 255;
            uint64_t r = pos >= n ? 0 : cut(x, t) >> pos;
            if (len < n)
                r &= ((uint64_t)1 << len) - 1;
            if (is_signed(t) && len && len < n && (r >> (len - 1) & 1))
                r |= ~(uint64_t)0 << len;
            DEST = cut(r, t);
            break;
        }
        case OP_BFI: {
            const unsigned pos = (uint32_t)z & 255, len = (uint32_t)ARG(4) & 255;
            const uint64_t mask =
                pos >= n ? 0 : (len >= n ? ~(uint64_t)0 : ((uint64_t)1 << len) - 1) << pos;
            DEST = cut((y & ~mask) | (pos >= n ? 0 : x << pos & mask), t);
            break;
        }
        case OP_PRMT: {
            const uint64_t both = y << 32 | (uint32_t)x;
            uint32_t r = 0;
            for (int b = 0; b < 4; b++) {
                const unsigned c = (unsigned)(z >> 4 * b) & 15;
                uint8_t byte = (uint8_t)(both >> 8 * (c & 7));
                byte = c & 8 ? (byte & 128 ? 255 : 0) : byte;
                r |= (uint32_t)byte << 8 * b;
            }
            DEST = r;
            break;
        }
        case OP_LOP3: {
            const unsigned table = (unsigned)ARG(4);
            uint32_t r = 0;
            for (int b = 0; b < 32; b++)
                r |= (table >> ((x >> b & 1) * 4 + (y >> b & 1) * 2 + (z >> b & 1)) & 1u) << b;
            DEST = r;
            break;
        }
        default:
            ptx_die("not implemented", i.text);
        }
    }
}

static bool compare(const std::string &c, bool less, bool equal, bool unordered)
{
    if (c == "eq")
        return equal;
    if (c == "ne")
        return !equal && !unordered;
    if (c == "lt" || c == "lo")
        return less;
    if (c == "le" || c == "ls")
        return less || equal;
    if (c == "gt" || c == "hi")
        return !less && !equal && !unordered;
    if (c == "ge" || c == "hs")
        return !less && !unordered;
    if (c == "equ")
        return equal || unordered;
    if (c == "neu")
        return !equal;
    if (c == "ltu")
        return less || unordered;
    if (c == "leu")
        return less || equal || unordered;
    if (c == "gtu")
        return !less && !equal;
    if (c == "geu")
        return !less;
    if (c == "nan")
        return unordered;
    if (c == "num")
        return !unordered;
    ptx_die("comparison", c);
}

static void set_predicate(ptx_warp *w, const ptx_instruction &i, uint32_t m)
{
    const ptx_type t = i.type;
    const bool by_size = t == U64 || t == B64;
    EACH_LANE
    {
        bool r;
        if (t == F32) {
            const float x = to_float(ARG(1)), y = to_float(ARG(2));
            r = compare(i.mode, x < y, x == y, x != x || y != y);
        } else {
            const int64_t x = extend(ARG(1), t), y = extend(ARG(2), t);
            r = compare(i.mode, by_size ? (uint64_t)x < (uint64_t)y : x < y, x == y, false);
        }
        if (!i.combine.empty()) {
            const bool c = ARG(3) != 0;
            r = i.combine == "and" ? r && c : i.combine == "or" ? r || c : r != c;
        }
        DEST = r;
    }
}

/* Exact. */
static float half_to_float(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = h >> 10 & 31, m = h & 0x3ff;
    if (e == 31)
        return to_float(m ? 0x7fffffff : sign | 0x7f800000);
    return ldexpf(to_float(sign | 0x3f800000), -24) * (float)(e ? (m | 0x400) << (e - 1) : m);
}

static void convert(ptx_warp *w, const ptx_instruction &i, uint32_t m)
{
    const ptx_type to = i.type, from = i.from;
    EACH_LANE
    {
        const uint64_t x = ARG(1);
        if (to == F32 && i.mode == "f16") {
            DEST = to_bits(half_to_float((uint16_t)x));
        } else if (to == F32 && from == F32) {
            if (i.mode != "rni")
                ptx_die("rounding", i.text);
            DEST = to_bits(rintf(to_float(x)));
        } else if (to == F32) {
            DEST = to_bits(from == U64 ? (float)x : (float)extend(x, from));
        } else if (from == F32) {
            if (i.mode != "rzi" && i.mode != "rni")
                ptx_die("rounding", i.text);
            const float f = to_float(x);
            DEST = cut((uint64_t)(int64_t)(i.mode == "rni" ? rintf(f) : f), to);
        } else { /* a byte lies in a register of 16 bits or more, extended */
            const uint64_t v = (uint64_t)extend((uint64_t)extend(x, from), to);
            DEST = ptx_size(to) < 4 ? v & 0xffffffff : cut(v, to);
        }
    }
}

static void dot(ptx_warp *w, const ptx_instruction &i, uint32_t m)
{
    const bool sa = i.type == S32, sb = i.from == S32;
    EACH_LANE
    {
        const uint32_t x = (uint32_t)ARG(1), y = (uint32_t)ARG(2);
        uint32_t c = (uint32_t)ARG(3);
        if (i.op == OP_DP4A) {
            for (int b = 0; b < 32; b += 8)
                c += (uint32_t)((sa ? (int8_t)(x >> b) : (int)(uint8_t)(x >> b)) *
                                (sb ? (int8_t)(y >> b) : (int)(uint8_t)(y >> b)));
        } else {
            const uint32_t part = i.mode == "hi" ? y >> 16 : y;
            for (int b = 0; b < 2; b++)
                c += (uint32_t)((sa ? (int16_t)(x >> 16 * b) : (int)(uint16_t)(x >> 16 * b)) *
                                (sb ? (int8_t)(part >> 8 * b) : (int)(uint8_t)(part >> 8 * b)));
        }
        DEST = c;
    }
}

static void move(ptx_warp *w, const ptx_instruction &i, uint32_t m)
{
    const ptx_type t = i.type;
    EACH_LANE
    {
        const ptx_operand &to = i.args[0], &from = i.args[1];
        if (to.kind == ptx_operand::VECTOR) { /* unpacks */
            const unsigned n = 8 * (unsigned)ptx_size(t) / (unsigned)to.parts.size();
            for (size_t k = 0; k < to.parts.size(); k++)
                w->reg[(size_t)to.parts[k].reg * 32 + (size_t)lane] =
                    ARG(1) >> n * k & (((uint64_t)1 << n) - 1);
        } else if (from.kind == ptx_operand::VECTOR) { /* packs */
            const unsigned n = 8 * (unsigned)ptx_size(t) / (unsigned)from.parts.size();
            uint64_t v = 0;
            for (size_t k = 0; k < from.parts.size(); k++)
                v |= (value(*w, from.parts[k], lane) & (((uint64_t)1 << n) - 1)) << n * k;
            DEST = v;
        } else {
            DEST = t == PRED ? ARG(1) != 0 : cut(ARG(1), t);
        }
    }
}

/* --- memory ----------------------------------------------------------------------------------- */

uint64_t ptx_address(const ptx_warp &w, const ptx_operand &a, int lane)
{
    const uint64_t base = a.reg >= 0 ? w.reg[(size_t)a.reg * 32 + (size_t)lane] : 0;
    return base + (uint64_t)a.number;
}

static void load(ptx_warp *w, const ptx_instruction &i, uint32_t m)
{
    const size_t n = ptx_size(i.type), all = n * (size_t)i.vector;
    EACH_LANE
    {
        const unsigned char *const p =
            ptx_reach(w, lane, i, i.space, ptx_address(*w, i.args[1], lane), all);
        for (int k = 0; k < i.vector; k++) {
            uint64_t v = 0;
            memcpy(&v, p + (size_t)k * n, n);
            if (is_signed(i.type))
                v = cut((uint64_t)extend(v, i.type), n < 4 ? B32 : i.type);
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
            const uint64_t v = value(*w, from, lane);
            memcpy(p + (size_t)k * n, &v, n);
        }
    }
}

static void atomic(ptx_warp *w, const ptx_instruction &i, uint32_t m)
{
    const ptx_type t = i.type;
    const size_t n = ptx_size(t);
    if (t == F32)
        ptx_die("an atomic sum of floats has no order", i.text);
    EACH_LANE
    {
        unsigned char *const p =
            ptx_reach(w, lane, i, i.space, ptx_address(*w, i.args[1], lane), n);
        uint64_t old = 0;
        memcpy(&old, p, n);
        const int64_t x = extend(old, t), y = extend(ARG(2), t);
        int64_t r;
        if (i.mode == "add")
            r = (int64_t)((uint64_t)x + (uint64_t)y);
        else if (i.mode == "max")
            r = x > y ? x : y;
        else if (i.mode == "min")
            r = x < y ? x : y;
        else if (i.mode == "or")
            r = x | y;
        else if (i.mode == "and")
            r = x & y;
        else if (i.mode == "exch")
            r = y;
        else if (i.mode == "inc")
            r = (uint64_t)x >= (uint64_t)y ? 0 : x + 1;
        else if (i.mode == "cas")
            r = x == y ? extend(ARG(3), t) : x;
        else
            ptx_die("not implemented", i.text);
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
    const uint32_t mask = (uint32_t)value(*w, i.args[4], __builtin_ctz(m));
    if (!all_here(*w, i, mask, m))
        return false;
    uint64_t from[32];
    EACH_LANE from[lane] = ARG(1);
    EACH_LANE
    {
        const uint32_t b = (uint32_t)ARG(2), c = (uint32_t)ARG(3), clamp = c & 31,
                       segment = c >> 8 & 31, l = (uint32_t)lane;
        const uint32_t max = (l & segment) | (clamp & ~segment), min = l & segment;
        uint32_t j;
        bool ok;
        if (i.mode == "bfly") {
            j = l ^ b;
            ok = j <= max;
        } else if (i.mode == "up") {
            j = l - b;
            ok = (int)j >= (int)max;
        } else if (i.mode == "down") {
            j = l + b;
            ok = j <= max;
        } else {
            j = min | (b & ~segment & 31);
            ok = j <= max;
        }
        j = ok ? j : l;
        if (!(mask & m & 1u << j))
            ptx_die("a shuffle reads a lane that is not in its mask", i.text);
        DEST = from[j];
    }
    return true;
}

static bool vote(ptx_warp *w, const ptx_instruction &i, uint32_t m)
{
    const uint32_t mask = (uint32_t)value(*w, i.args[2], __builtin_ctz(m));
    if (!all_here(*w, i, mask, m))
        return false;
    uint32_t yes = 0;
    EACH_LANE yes |= (ARG(1) != 0 ? 1u : 0u) << lane;
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
    uint32_t out[32][4];
    for (int l = 0; l < 32; l++)
        for (size_t n = 0; n < n_c; n++) {
            const size_t row = (size_t)l / 4 + 8 * (n / 2), col = 2 * ((size_t)l % 4) + n % 2;
            uint32_t sum = (uint32_t)value(*w, i.args[3].parts[n], l);
            for (size_t k = 0; k < depth; k++) {
                const ptx_operand &a = i.args[1].parts[k / 16 * (n_row / 8) + row / 8];
                const ptx_operand &b = i.args[2].parts[k / 16];
                const uint32_t wa = (uint32_t)value(*w, a, (int)(row % 8 * 4 + k / 4 % 4));
                const uint32_t wb = (uint32_t)value(*w, b, (int)(col * 4 + k / 4 % 4));
                sum += (uint32_t)((int8_t)(wa >> 8 * (k % 4)) * (int8_t)(wb >> 8 * (k % 4)));
            }
            out[l][n] = sum;
        }
    for (size_t l = 0; l < 32; l++)
        for (size_t n = 0; n < n_c; n++)
            w->reg[(size_t)i.args[0].parts[n].reg * 32 + l] = out[l][n];
    return true;
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
        EACH_LANE DEST =
            to_bits(__builtin_fmaf(to_float(ARG(1)), to_float(ARG(2)), to_float(ARG(3))));
        return true;
    case OP_MAD:
        EACH_LANE
        {
            const uint64_t x = (uint64_t)extend(ARG(1), i.type);
            const uint64_t y = (uint64_t)extend(ARG(2), i.type);
            DEST = i.mode == "wide" ? x * y + ARG(3) : cut(x * y + ARG(3), i.type);
        }
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
    case OP_SHL:
    case OP_SHR:
    case OP_SHF:
    case OP_BFE:
    case OP_BFI:
    case OP_PRMT:
    case OP_LOP3:
        bits(w, i, m);
        return true;
    case OP_SETP:
        set_predicate(w, i, m);
        return true;
    case OP_SELP:
        EACH_LANE DEST = cut(ARG(3) ? ARG(1) : ARG(2), i.type);
        return true;
    case OP_CVT:
        convert(w, i, m);
        return true;
    case OP_CVTA: /* .to turns a generic address into one of the space, cut() does */
        EACH_LANE
        {
            const bool to = i.text.find(".to.") != std::string::npos;
            uint64_t window = 0;
            if (i.space == SHARED)
                window = SHARED_WINDOW;
            else if (i.space == LOCAL)
                window = LOCAL_WINDOW;
            DEST = !window ? ARG(1) : to ? (uint32_t)ARG(1) : window | (uint32_t)ARG(1);
        }
        return true;
    case OP_DP2A:
    case OP_DP4A:
        dot(w, i, m);
        return true;
    case OP_MOV:
        move(w, i, m);
        return true;
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
        return true;
    case OP_SHFL:
        return shuffle(w, i, m);
    case OP_VOTE:
        return vote(w, i, m);
    case OP_BARWARP:
        return all_here(*w, i, (uint32_t)value(*w, i.args[0], __builtin_ctz(m)), m);
    case OP_MMA:
        return multiply(w, i, m);
    default:
        ptx_die("not implemented", i.text);
    }
}
