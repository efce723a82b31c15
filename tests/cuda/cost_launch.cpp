#include "cuda/cost_launch.h"

#include <algorithm>
#include <math.h>

#define _Static_assert static_assert
extern "C" {
#include "cuda/args.h"
}

bool cost_is(const fakecuda_launch *l, const char *prefix)
{
    return strncmp(l->kernel, prefix, strlen(prefix)) == 0;
}

/* The places of layers within a sequence's blocks do not make a launch another. */
static void forget_places(std::string *args, const fakecuda_launch *l)
{
    const auto forget = [&](auto a, auto... field) {
        ((a.*field = 0), ...);
        args->assign((const char *)&a, sizeof a);
    };
    if (cost_is(l, "pn_k_ssm_step"))
        forget(cost_args<pn_ssm_step_args>(l), &pn_ssm_step_args::conv_off,
               &pn_ssm_step_args::state_off);
    else if (cost_is(l, "pn_k_ssm_in"))
        forget(cost_args<pn_ssm_in_args>(l), &pn_ssm_in_args::conv_off);
    else if (cost_is(l, "pn_k_conv"))
        forget(cost_args<pn_conv_args>(l), &pn_conv_args::conv_off);
    else if (cost_is(l, "pn_k_delta_scan"))
        forget(cost_args<pn_delta_scan_args>(l), &pn_delta_scan_args::state_off);
    else if (cost_is(l, "pn_k_qk_"))
        forget(cost_args<pn_qk_args>(l), &pn_qk_args::kv_off);
    else if (cost_is(l, "pn_k_attend_step")) {
        pn_attend_step_args a = cost_args<pn_attend_step_args>(l);
        a.qk.kv_off = a.attend.kv_off = 0;
        args->assign((const char *)&a, sizeof a);
    } else if (cost_is(l, "pn_k_attend"))
        forget(cost_args<pn_attend_args>(l), &pn_attend_args::kv_off);
}

/* Whether it is an address: one of this process's mappings. */
static bool is_address(uint64_t v)
{
    return v >> 44 == 7;
}

std::string cost_signature(const fakecuda_launch *l)
{
    std::string args((const char *)l->args, l->args_bytes);
    forget_places(&args, l);
    for (size_t at = 0; at + 8 <= args.size(); at += 8) {
        uint64_t v;
        memcpy(&v, &args[at], 8);
        if (is_address(v))
            v = 1;
        memcpy(&args[at], &v, 8);
    }
    args.append((const char *)l->grid, sizeof l->grid);
    return l->kernel + args;
}

std::vector<uint64_t> cost_pointers(const fakecuda_launch *l)
{
    std::vector<uint64_t> pointers;
    for (size_t at = 0; at + 8 <= l->args_bytes; at += 8) {
        uint64_t v;
        memcpy(&v, (const char *)l->args + at, 8);
        if (is_address(v))
            pointers.push_back(v);
    }
    return pointers;
}

static double stack_bytes(const pn_dmat &m, double n)
{
    return m.w ? n * (double)m.mat_bytes : 0;
}

double cost_most_read(const fakecuda_launch *l)
{
    const auto used = [](const pn_moe_route &r) {
        return (double)std::min(r.n_expert, r.n_tok * r.n_used);
    };
    if (cost_is(l, "pn_k_gemm")) {
        const pn_matmul_args a = cost_args<pn_matmul_args>(l);
        double bytes = 4.0 * a.n_tok * a.mat[0].w.n;
        for (uint32_t i = 0; i < a.n_mat; i++)
            bytes += stack_bytes(a.mat[i].w, 1);
        return bytes;
    }
    if (cost_is(l, "pn_k_moe_up_grouped")) {
        const pn_moe_up_args a = cost_args<pn_moe_up_args>(l);
        const double n = used(a.route);
        return stack_bytes(a.gate, n) + stack_bytes(a.up, n) + stack_bytes(a.gate_shexp, 1) +
               stack_bytes(a.up_shexp, 1) + 4.0 * a.route.n_tok * a.gate.n;
    }
    if (cost_is(l, "pn_k_moe_product_grouped")) {
        const pn_moe_product_args a = cost_args<pn_moe_product_args>(l);
        return stack_bytes(a.w, used(a.route)) + stack_bytes(a.w_shexp, 1) +
               4.0 * a.route.n_tok * (a.route.n_used * a.w.n + a.w_shexp.n);
    }
    return INFINITY;
}

bool cost_has_tail(const fakecuda_launch *l)
{
    if (cost_is(l, "pn_k_qmv"))
        return cost_args<pn_matmul_args>(l).tail.kind != PN_TAIL_NONE;
    return cost_is(l, "pn_k_moe_down") && cost_args<pn_moe_down_args>(l).tail.kind != PN_TAIL_NONE;
}

std::string cost_label(const fakecuda_launch *l)
{
    if (!cost_is(l, "pn_k_qmv") && !cost_is(l, "pn_k_gemm"))
        return l->kernel;
    static const char *const tails[] = { "", ", norm", ", router" };
    const pn_matmul_args a = cost_args<pn_matmul_args>(l);
    uint32_t n_row = 0;
    for (uint32_t i = 0; i < a.n_mat; i++)
        n_row += a.mat[i].w.n_row;
    return std::string(l->kernel) + " " + std::to_string(n_row) + "x" +
           std::to_string(a.mat[0].w.n) + tails[a.tail.kind];
}

unsigned cost_sample(const fakecuda_launch *l)
{
    static const struct {
        const char *kernel;
        unsigned n;
    } samples[] = {
        { "pn_k_ssm_step", ~0u }, /* the last one must know that it is */
        { "pn_k_moe_up_grouped", 32 }, { "pn_k_moe_product_grouped", 32 },
        { "pn_k_moe_up", ~0u }, /* the last of an expert quantises */
        { "pn_k_delta_scan", 2 },      { "pn_k_gemm", 6 },
        { "pn_k_attend_rows", 4 },     { "pn_k_group_by_expert", ~0u },
    };
    const bool is_row_product = cost_is(l, "pn_k_qmv"); /* of few tokens; all but the head */
    if (cost_has_tail(l) || (is_row_product && l->grid[0] * l->grid[1] * l->grid[2] < 4096))
        return ~0u;
    for (const auto &s : samples)
        if (cost_is(l, s.kernel))
            return s.n;
    return 128;
}
