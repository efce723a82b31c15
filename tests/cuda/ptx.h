/* An interpreter of the PTX that NVRTC made of our device code: a warp at a time, 32 lanes an
 * instruction, on the CPU. It sees what the shim cannot: what the compiler made of the source.
 *
 * Every access is checked: within an allocation or the block's shared memory, aligned as a GPU
 * wants it; registers are full of garbage until they are written, shared memory of NaN. A shuffle
 * that names lanes that do not come, a barrier that part of a block reaches, a float operation that
 * is not IEEE, an instruction that nobody has needed so far: each ends the program with its text.
 * So do accesses, but for prefetches, before griddepcontrol.wait in kernels that have it, and lanes
 * that end without it: such a launch may begin while the one before still runs.
 *
 * Divergent lanes go on in groups, the one at the lowest place first, and meet again where they
 * reach the same place: the structure of compiled code. Blocks run in turn. */
#ifndef PN_TESTS_CUDA_PTX_H
#define PN_TESTS_CUDA_PTX_H

#include <map>
#include <stddef.h>
#include <stdint.h>
#include <string>
#include <vector>

enum ptx_op {
    OP_ABS,
    OP_ADD,
    OP_AND,
    OP_ATOM,
    OP_BAR,
    OP_BARWARP,
    OP_BFE,
    OP_BFI,
    OP_BFIND,
    OP_BRA,
    OP_BREV,
    OP_BRX,
    OP_CLZ,
    OP_COPY, /* cp.async */
    OP_COPY_COMMIT,
    OP_COPY_WAIT,
    OP_CVT,
    OP_CVTA,
    OP_DIV,
    OP_DP2A,
    OP_DP4A,
    OP_FENCE,
    OP_FMA,
    OP_GRID_NEXT, /* griddepcontrol */
    OP_GRID_WAIT,
    OP_LD,
    OP_LOP3,
    OP_MAD,
    OP_MAX,
    OP_MIN,
    OP_MMA,
    OP_MOV,
    OP_MUL,
    OP_NEG,
    OP_NOT,
    OP_OR,
    OP_POPC,
    OP_PREFETCH, /* into L2 */
    OP_PRMT,
    OP_REM,
    OP_RET,
    OP_SELP,
    OP_SETP,
    OP_SHF,
    OP_SHFL,
    OP_SHL,
    OP_SHR,
    OP_SQRT,
    OP_ST,
    OP_SUB,
    OP_VOTE,
    OP_XOR,
};
enum ptx_type {
    U8,
    U16,
    U32,
    U64,
    S8,
    S16,
    S32,
    S64,
    B8,
    B16,
    B32,
    B64,
    F32,
    PRED,
    NO_TYPE
};
/* How two values stand to each other. */
enum ptx_relation {
    LESS = 1,
    EQUAL = 2,
    GREATER = 4,
    UNORDERED = 8
};
enum ptx_space {
    GENERIC,
    GLOBAL,
    SHARED,
    LOCAL,
    PARAM
};
/* What shared and local addresses are when they are made generic. */
enum : uint64_t {
    SHARED_WINDOW = 0x7a00000000000000,
    LOCAL_WINDOW = 0x7b00000000000000
};

struct ptx_operand {
    enum {
        NONE,
        REGISTER,
        NUMBER,
        SPECIAL,
        ADDRESS,
        VECTOR
    } kind = NONE;
    int reg = -1;         /* ADDRESS: the base, or -1 */
    bool negated = false; /* a predicate's ! */
    int64_t number = 0;   /* ADDRESS: what is added */
    int special = 0;
    std::vector<ptx_operand> parts; /* of a VECTOR */
};

struct ptx_instruction {
    ptx_op op;
    ptx_type type = NO_TYPE, from = NO_TYPE; /* from: the second one */
    ptx_space space = GENERIC;
    std::string mode; /* lt, bfly, hi, wide, rzi, add, ... */
    bool is_wide = false, is_high = false;
    unsigned when = 0; /* a comparison's: of ptx_relation */
    std::string combine;
    int vector = 1;
    int pred = -1; /* the guard */
    bool pred_negated = false;
    std::vector<ptx_operand> args;
    std::vector<std::string> labels;
    std::vector<int> targets;
    std::string text;
    uint64_t count = 0; /* of warps that ran it */
};

struct ptx_kernel {
    std::string name;
    size_t args_bytes = 0, shared_bytes = 0, local_bytes = 0;
    bool waits_for_grid = false;
    std::vector<ptx_instruction> code;
    std::map<std::string, int> registers, labels;
    std::map<std::string, int64_t> symbols; /* parameters, shared and local variables: offsets */
    std::vector<std::string> body;          /* its statements, until somebody needs the code */
};

struct ptx_module {
    int arch = 0; /* 370 */
    std::map<std::string, ptx_kernel> kernels;
    std::map<std::string, std::vector<unsigned char>> variables; /* .global, .const */
    /* Shared variables: a kernel has all of them, its own, and behind them the dynamic memory. */
    std::vector<std::string> shared, dynamic;
};

/* Reads a module; false when there is no such file. */
bool ptx_load(ptx_module *m, const char *file);
/* A kernel with its code, which is parsed at the first call: a test needs few of them. */
ptx_kernel *ptx_get(ptx_module *m, const std::string &name);

/* Ends the program. */
[[noreturn]] void ptx_die(const std::string &what, const std::string &where);

/* Memory that kernels may touch. */
void ptx_add_memory(const void *p, size_t bytes);
void ptx_drop_memory(const void *p);

/* Runs the kernel to its end. blocks: the numbers of those that run, x first; NULL: all. */
void ptx_launch(ptx_kernel *k, const unsigned grid[3], const unsigned block[3], size_t smem,
                const void *args, const std::vector<unsigned> *blocks = nullptr);

#endif
