/* PTX text to instructions (ptx.h). Grammar: PTX ISA 8.x, as far as NVRTC writes it. */
#include "cuda/ptx.h"

#include <fstream>
#include <sstream>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ptx_die(const std::string &what, const std::string &where)
{
    fprintf(stderr, "ptxrun: %s: %s\n", what.c_str(), where.c_str());
    abort();
}

static std::string trim(const std::string &s)
{
    const size_t a = s.find_first_not_of(" \t\r\n"), b = s.find_last_not_of(" \t\r\n");
    return a == std::string::npos ? "" : s.substr(a, b - a + 1);
}

/* Cuts at c, but not within brackets. */
static std::vector<std::string> split(const std::string &s, char c)
{
    std::vector<std::string> parts(1);
    int depth = 0;
    for (const char x : s) {
        depth += (x == '{' || x == '[') - (x == '}' || x == ']');
        if (x == c && !depth)
            parts.emplace_back();
        else
            parts.back() += x;
    }
    for (std::string &p : parts)
        p = trim(p);
    return parts;
}

static ptx_type type_of(const std::string &s)
{
    static const std::map<std::string, ptx_type> types = {
        { "u8", U8 },   { "u16", U16 }, { "u32", U32 }, { "u64", U64 },   { "s8", S8 },
        { "s16", S16 }, { "s32", S32 }, { "s64", S64 }, { "b8", B8 },     { "b16", B16 },
        { "b32", B32 }, { "b64", B64 }, { "f32", F32 }, { "pred", PRED },
    };
    const auto it = types.find(s);
    return it == types.end() ? NO_TYPE : it->second;
}

static int64_t number(const std::string &s, const std::string &where)
{
    if (s.size() == 10 && s[0] == '0' && (s[1] == 'f' || s[1] == 'F')) /* a float's bits */
        return (int64_t)strtoull(s.c_str() + 2, nullptr, 16);
    char *end;
    const int64_t v =
        s[0] == '-' ? strtoll(s.c_str(), &end, 0) : (int64_t)strtoull(s.c_str(), &end, 0);
    if (s.empty() || (*end && strcmp(end, "U")))
        ptx_die("operand " + s, where);
    return v;
}

/* When a comparison of this name holds. */
static unsigned relation(const std::string &c)
{
    static const struct {
        const char *name;
        unsigned when;
    } all[] = {
        { "eq", EQUAL },
        { "ne", LESS | GREATER },
        { "lt", LESS },
        { "le", LESS | EQUAL },
        { "gt", GREATER },
        { "ge", GREATER | EQUAL },
        { "lo", LESS },
        { "ls", LESS | EQUAL },
        { "hi", GREATER },
        { "hs", GREATER | EQUAL },
        { "equ", EQUAL | UNORDERED },
        { "neu", LESS | GREATER | UNORDERED },
        { "ltu", LESS | UNORDERED },
        { "leu", LESS | EQUAL | UNORDERED },
        { "gtu", GREATER | UNORDERED },
        { "geu", GREATER | EQUAL | UNORDERED },
        { "nan", UNORDERED },
        { "num", LESS | EQUAL | GREATER },
    };
    for (const auto &r : all)
        if (c == r.name)
            return r.when;
    ptx_die("comparison", c);
}

namespace
{
class parser
{
  public:
    parser(ptx_module *m, ptx_kernel *k) : m_(m), k_(k)
    {
    }
    void statement(const std::string &s);

  private:
    void declare_registers(const std::string &s);
    void instruction(std::string s);
    void modifiers(ptx_instruction *i, const std::vector<std::string> &words);
    ptx_operand operand(std::string s, const std::string &where);
    /* The value of a name; false when it is none. */
    bool symbol(const std::string &name, int64_t *value) const;
    ptx_module *m_;
    ptx_kernel *k_;
};
} // namespace

bool parser::symbol(const std::string &name, int64_t *value) const
{
    const auto own = k_->symbols.find(name);
    if (own != k_->symbols.end()) {
        *value = own->second;
        return true;
    }
    const auto global = m_->variables.find(name);
    if (global == m_->variables.end())
        return false;
    *value = (int64_t)(uintptr_t)global->second.data();
    return true;
}

ptx_operand parser::operand(std::string s, const std::string &where)
{
    static const std::map<std::string, int> specials = {
        { "%tid.x", 0 },   { "%tid.y", 1 },    { "%tid.z", 2 },     { "%ctaid.x", 3 },
        { "%ctaid.y", 4 }, { "%ctaid.z", 5 },  { "%ntid.x", 6 },    { "%ntid.y", 7 },
        { "%ntid.z", 8 },  { "%nctaid.x", 9 }, { "%nctaid.y", 10 }, { "%nctaid.z", 11 },
        { "%laneid", 12 },
    };
    ptx_operand a;
    s = trim(s.substr(0, s.find('|'))); /* a shuffle's second result is not looked at */
    if (s[0] == '{') {
        a.kind = ptx_operand::VECTOR;
        for (const std::string &part : split(s.substr(1, s.size() - 2), ','))
            a.parts.push_back(operand(part, where));
        return a;
    }
    if (s[0] == '[') {
        a.kind = ptx_operand::ADDRESS;
        s = s.substr(1, s.size() - 2);
        const size_t plus = s.find('+');
        const std::string base = trim(s.substr(0, plus));
        if (plus != std::string::npos)
            a.number = number(trim(s.substr(plus + 1)), where);
        int64_t value = 0;
        if (base[0] == '%')
            a.reg = k_->registers.at(base);
        else if (symbol(base, &value))
            a.number += value;
        else
            a.number += number(base, where);
        return a;
    }
    if (s[0] == '!') {
        a.negated = true;
        s = s.substr(1);
    }
    if (s[0] == '%') {
        const auto special = specials.find(s);
        if (special != specials.end()) {
            a.kind = ptx_operand::SPECIAL;
            a.special = special->second;
            return a;
        }
        const auto it = k_->registers.find(s);
        if (it == k_->registers.end())
            ptx_die("register " + s, where);
        a.kind = ptx_operand::REGISTER;
        a.reg = it->second;
        return a;
    }
    a.kind = ptx_operand::NUMBER;
    if (!symbol(s, &a.number))
        a.number = number(s, where);
    return a;
}

void parser::modifiers(ptx_instruction *i, const std::vector<std::string> &words)
{
    static const std::map<std::string, ptx_space> spaces = {
        { "global", GLOBAL }, { "shared", SHARED }, { "param", PARAM },
        { "local", LOCAL },   { "const", GLOBAL },
    };
    static const char *const refused[] = { "approx", "ftz", "full", "sat", "rm", "rp" };
    static const char *const silent[] = { "rn",  "lo",  "sync",     "uni",      "to", "nc",
                                          "row", "col", "aligned",  "volatile", "cg", "relaxed",
                                          "gpu", "cta", "m16n8k32", "m8n8k16",  "gl", "sys" };
    bool rounded = false;
    for (size_t n = 1; n < words.size(); n++) {
        const std::string &w = words[n];
        const ptx_type t = type_of(w);
        const auto space = spaces.find(w);
        bool known = false;
        for (const char *r : refused)
            if (w == r)
                ptx_die("not IEEE", i->text);
        for (const char *r : silent)
            known |= w == r;
        rounded |= w == "rn";
        if (t != NO_TYPE)
            (i->type == NO_TYPE ? i->type : i->from) = t;
        else if (space != spaces.end())
            i->space = i->space == GENERIC ? space->second : i->space;
        else if (w == "v2" || w == "v4")
            i->vector = w[1] - '0';
        else if (i->op == OP_SETP && (w == "and" || w == "or" || w == "xor"))
            i->combine = w;
        else if (w == "lo" && i->op == OP_DP2A)
            i->mode = "lo";
        else if (!known)
            i->mode = i->mode.empty() ? w : i->mode + "." + w;
    }
    i->is_wide = i->mode == "wide";
    i->is_high = i->mode == "hi";
    if (i->op == OP_SETP)
        i->when = relation(i->mode);
    const bool rounds = i->op == OP_ADD || i->op == OP_SUB || i->op == OP_MUL || i->op == OP_FMA ||
                        i->op == OP_DIV || i->op == OP_SQRT;
    if (i->type == F32 && rounds && !rounded)
        ptx_die("rounding is left to the assembler", i->text);
}

// clang-format off
static const std::map<std::string, ptx_op> ops = {
    { "abs", OP_ABS }, { "add", OP_ADD }, { "and", OP_AND }, { "atom", OP_ATOM },
    { "red", OP_ATOM }, { "bar", OP_BAR }, { "barrier", OP_BAR }, { "bfe", OP_BFE },
    { "bfi", OP_BFI }, { "bfind", OP_BFIND }, { "bra", OP_BRA }, { "brev", OP_BREV },
    { "brx", OP_BRX }, { "clz", OP_CLZ }, { "cp", OP_COPY }, { "cvt", OP_CVT },
    { "cvta", OP_CVTA }, { "div", OP_DIV }, { "rcp", OP_DIV }, { "dp2a", OP_DP2A },
    { "dp4a", OP_DP4A }, { "exit", OP_RET }, { "fma", OP_FMA }, { "fence", OP_FENCE },
    { "griddepcontrol", OP_GRID_NEXT }, { "ld", OP_LD }, { "lop3", OP_LOP3 }, { "mad", OP_MAD },
    { "max", OP_MAX }, { "membar", OP_FENCE }, { "min", OP_MIN }, { "mma", OP_MMA },
    { "mov", OP_MOV }, { "mul", OP_MUL }, { "neg", OP_NEG }, { "not", OP_NOT },
    { "or", OP_OR }, { "popc", OP_POPC }, { "prefetch", OP_PREFETCH }, { "prmt", OP_PRMT },
    { "rem", OP_REM }, { "ret", OP_RET }, { "selp", OP_SELP }, { "setp", OP_SETP },
    { "shf", OP_SHF }, { "shfl", OP_SHFL }, { "shl", OP_SHL }, { "shr", OP_SHR },
    { "sqrt", OP_SQRT }, { "st", OP_ST }, { "sub", OP_SUB }, { "vote", OP_VOTE },
    { "xor", OP_XOR },
};
// clang-format on

void parser::instruction(std::string s)
{
    ptx_instruction i;
    i.text = s;
    if (s[0] == '@') {
        const size_t space = s.find_first_of(" \t");
        i.pred_negated = s[1] == '!';
        i.pred = k_->registers.at(s.substr(1 + i.pred_negated, space - 1 - i.pred_negated));
        s = trim(s.substr(space));
    }
    const size_t space = s.find_first_of(" \t");
    const std::vector<std::string> words = split(s.substr(0, space), '.');
    const std::string rest = space == std::string::npos ? "" : trim(s.substr(space));
    const auto op = ops.find(words[0]);
    if (op == ops.end())
        ptx_die("instruction", i.text);
    i.op = op->second;
    modifiers(&i, words);
    if (i.op == OP_BAR && i.mode == "warp")
        i.op = OP_BARWARP;
    if (i.op == OP_GRID_NEXT && i.mode == "wait") {
        i.op = OP_GRID_WAIT;
        k_->waits_for_grid = true;
    }
    if (i.op == OP_COPY)
        i.op = i.mode == "async.commit_group" ? OP_COPY_COMMIT
               : i.mode == "async.wait_group" ? OP_COPY_WAIT
                                              : OP_COPY;
    if (i.op == OP_BRA) {
        i.labels = { rest };
    } else if (i.op == OP_BRX) {
        const std::vector<std::string> parts = split(rest, ',');
        i.args = { operand(parts[0], i.text) };
        i.labels = { parts[1] };
    } else {
        for (const std::string &part : split(rest, ','))
            if (!part.empty())
                i.args.push_back(operand(part, i.text));
    }
    if (words[0] == "red") /* an atom whose result nobody takes */
        i.args.insert(i.args.begin(), ptx_operand());
    if (words[0] == "rcp") {
        ptx_operand one;
        one.kind = ptx_operand::NUMBER;
        one.number = 0x3f800000;
        i.args.insert(i.args.begin() + 1, one);
    }
    k_->code.push_back(std::move(i));
}

void parser::declare_registers(const std::string &s)
{
    for (const std::string &part : split(trim(s.substr(s.find('%'))), ',')) {
        const size_t open = part.find('<');
        const int n = open == std::string::npos ? 0 : atoi(part.c_str() + open + 1);
        for (int j = 0; j < (n ? n : 1); j++) {
            const int id = (int)k_->registers.size();
            k_->registers[n ? part.substr(0, open) + std::to_string(j) : part] = id;
        }
    }
}

/* "... .align 16 .b8 name[32]": its name, alignment and bytes. */
static std::string variable(const std::string &s, size_t *align, size_t *bytes)
{
    const size_t a = s.find(".align "), open = s.find('[');
    *align = a == std::string::npos ? 4 : (size_t)atoi(s.c_str() + a + 7);
    *bytes = open == std::string::npos ? 8 : (size_t)atoi(s.c_str() + open + 1);
    const std::string head = trim(s.substr(0, open));
    if (head.find(" .b8 ") == std::string::npos && open != std::string::npos)
        *bytes *= head.find("64 ") != std::string::npos   ? 8
                  : head.find("16 ") != std::string::npos ? 2
                                                          : 4;
    return head.substr(head.find_last_of(" \t") + 1);
}

static int64_t place(size_t *total, size_t align, size_t bytes)
{
    const size_t at = (*total + align - 1) / align * align;
    *total = at + bytes;
    return (int64_t)at;
}

void parser::statement(const std::string &s)
{
    size_t align, bytes;
    if (s.compare(0, 5, ".reg ") == 0) {
        declare_registers(s);
    } else if (s.compare(0, 7, ".shared") == 0) {
        const std::string name = variable(s, &align, &bytes);
        k_->symbols[name] = place(&k_->shared_bytes, align, bytes);
    } else if (s.compare(0, 6, ".local") == 0) {
        const std::string name = variable(s, &align, &bytes);
        k_->symbols[name] = place(&k_->local_bytes, align, bytes);
    } else if (s[0] != '.') {
        instruction(s);
    }
}

/* A table of the module: ".const .align 4 .b8 name[16] = {1, 2, ...}". */
static void add_variable(ptx_module *m, const std::string &s)
{
    size_t align, bytes;
    const std::string name = variable(s.substr(0, s.find('=')), &align, &bytes);
    std::vector<unsigned char> &v = m->variables[name];
    v.assign(bytes + 16, 0);
    const size_t open = s.find('{');
    if (open == std::string::npos)
        return;
    const std::vector<std::string> values = split(s.substr(open + 1, s.rfind('}') - open - 1), ',');
    const size_t each = bytes / (values.empty() ? 1 : values.size());
    for (size_t i = 0; i < values.size(); i++) {
        const int64_t x = number(values[i], s);
        memcpy(v.data() + i * each, &x, each < 8 ? each : 8);
    }
}

static std::string name_of_entry(const std::string &s)
{
    const std::string after = s.substr(s.find(".entry ") + 7);
    return trim(after.substr(0, after.find('(')));
}

/* All of a kernel's statements; what branches name, as places in the code. */
static void parse_body(ptx_module *m, ptx_kernel *k)
{
    parser p(m, k);
    for (const std::string &s : m->shared)
        p.statement(s);
    std::map<std::string, std::vector<std::string>> tables; /* of brx */
    std::vector<std::string> code;
    for (const std::string &s : k->body) /* declarations first: they may stand anywhere */
        if (s[0] == '.' && s.find(".branchtargets") == std::string::npos)
            p.statement(s);
        else
            code.push_back(s);
    for (const std::string &name : m->dynamic)
        k->symbols[name] = (int64_t)((k->shared_bytes + 15) / 16 * 16);
    std::string label;
    for (const std::string &s : code) {
        if (s.compare(0, 15, ".branchtargets ") == 0)
            tables[label] = split(s.substr(15), ',');
        else if (s.back() == ':')
            k->labels[label = s.substr(0, s.size() - 1)] = (int)k->code.size();
        else
            p.statement(s);
    }
    for (ptx_instruction &i : k->code) {
        if (i.op == OP_BRX)
            i.labels = tables.at(i.labels[0]);
        for (const std::string &l : i.labels) {
            if (!k->labels.count(l))
                ptx_die("label " + l, i.text);
            i.targets.push_back(k->labels[l]);
        }
    }
}

ptx_kernel *ptx_get(ptx_module *m, const std::string &name)
{
    ptx_kernel *const k = &m->kernels.at(name);
    if (!k->body.empty())
        parse_body(m, k);
    k->body.clear();
    return k;
}

static void add_parameters(ptx_kernel *k, const std::string &list)
{
    for (const std::string &s : split(list, ',')) {
        if (s.empty())
            continue;
        size_t align, bytes;
        const std::string name = variable(s, &align, &bytes);
        k->symbols[name] = place(&k->args_bytes, align, bytes);
    }
}

/* What stands outside of kernels: tables and shared variables. */
static void module_statement(ptx_module *m, const std::string &s)
{
    size_t align, bytes;
    if (s.find(".extern .shared") == 0)
        m->dynamic.push_back(variable(s, &align, &bytes));
    else if (s.find(".shared ") != std::string::npos)
        m->shared.push_back(s.substr(s.find(".shared ")));
    else if (s.find(".const") != std::string::npos || s.find(".global") != std::string::npos)
        add_variable(m, s);
}

bool ptx_load(ptx_module *m, const char *file)
{
    std::ifstream in(file);
    if (!in)
        return false;
    std::string line, held;
    ptx_kernel *k = nullptr;
    bool in_head = false;
    int depth = 0;
    while (std::getline(in, line)) {
        line = trim(line.substr(0, line.find("//")));
        if (line.empty() || line.compare(0, 7, ".pragma") == 0)
            continue;
        if (line.compare(0, 11, ".target sm_") == 0)
            m->arch = 10 * atoi(line.c_str() + 11);
        if (line.find(".func") != std::string::npos)
            ptx_die("a function that was not inlined", line);
        if (line.find(".entry ") != std::string::npos) {
            const std::string name = name_of_entry(line);
            k = &m->kernels[name];
            k->name = name;
            in_head = true;
            held = line.substr(line.find('('));
            continue;
        }
        if (in_head) {
            if (line != "{") {
                held += line;
                continue;
            }
            add_parameters(k, held.substr(1, held.find(')') - 1));
            in_head = false;
            held.clear();
            depth = 1;
            continue;
        }
        if (k && line == "{") { /* of inline assembly */
            depth++;
            continue;
        }
        if (k && line == "}") {
            if (--depth == 0)
                k = nullptr;
            continue;
        }
        if (k && held.empty() && line.back() == ':') {
            k->body.push_back(line);
            continue;
        }
        held += held.empty() ? line : " " + line;
        if (held.back() != ';')
            continue;
        held.pop_back();
        if (k)
            k->body.push_back(trim(held));
        else
            module_statement(m, held);
        held.clear();
    }
    for (auto &v : m->variables)
        ptx_add_memory(v.second.data(), v.second.size());
    return true;
}
