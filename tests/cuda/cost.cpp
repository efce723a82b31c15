/* make cuda-cost: the predicted speed of a 35B on cards that are not here.
 *
 * The program's own passes run over the stand-in driver (fakecuda.h) with a model of the real
 * shapes, without its bytes: the launches, their grids and arguments are those of a GPU. Each
 * launch that differs from those before by more than addresses is executed by the PTX interpreter,
 * counted (cost_count.h) and timed (cost_card.h): all of its blocks, or of large even grids some,
 * evenly spread. Every matrix has the same bytes all over, so the router is given random experts
 * where a pass has many tokens.
 *
 * cost [MIX ...] [-v]: q3_k_m q4_k_m q8trunk; -v: each kernel's share. CARD=text: cards whose name
 * has it. QUICK=1: decode at 0 only. */
#include "cuda/cost_card.h"
#include "cuda/fakecuda.h"
#include "cuda/standin.h"

#include <algorithm>
#include <dlfcn.h>
#include <fstream>
#include <math.h>
#include <random>
#include <sstream>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define _Static_assert static_assert
extern "C" {
#include "cuda/args.h"
#include "pantheon/pantheon.h"
#include "tools/synth.h"

/* Without the bytes of large tensors: the file has holes there, nothing is repacked. */
size_t __real_fwrite(const void *p, size_t size, size_t n, FILE *f);
size_t __wrap_fwrite(const void *p, size_t size, size_t n, FILE *f);
size_t __wrap_fwrite(const void *p, size_t size, size_t n, FILE *f)
{
    if (size * n < 1 << 19 || memcmp(p, "GGUF", 4) == 0)
        return __real_fwrite(p, size, n, f);
    return fseeko(f, (off_t)(size * n), SEEK_CUR) ? 0 : n;
}
void __wrap_pn_synth_gen_fill(const void *, uint64_t, uint64_t, size_t, uint8_t *);
void __wrap_pn_synth_gen_fill(const void *, uint64_t, uint64_t, size_t, uint8_t *)
{
}
void __wrap_fc_repack_weight(const void *, size_t, size_t, size_t, uint8_t *);
void __wrap_fc_repack_weight(const void *, size_t, size_t, size_t, uint8_t *)
{
}
const fc_cubin *__wrap_fc_cubins(size_t *n);
}

namespace
{
struct kernel_sum {
    double n = 0, us = 0, dram = 0;
    std::map<std::string, double> bound; /* us */
};
/* One pass. */
struct pass {
    double us = 0, dram = 0;
    int n_launch = 0;
    std::map<std::string, kernel_sum> kernels;
};
const cost_card *card;
ptx_module module;
std::unique_ptr<cost_counter> counter;
std::map<std::string, unsigned> kernel_registers;
std::map<std::string, cost_time> known; /* by kernel, grid and arguments */
pass *counted;                          /* NULL: launches are not looked at */
size_t hollow_copy;                     /* fakecuda.h; weights are larger */
std::mt19937 rng(1);

[[noreturn]] void die(const char *what)
{
    fprintf(stderr, "cost: %s\n", what);
    exit(2);
}
} // namespace

const fc_cubin *__wrap_fc_cubins(size_t *n)
{
    static fakecuda_image image;
    static fc_cubin cubin;
    image = FAKECUDA_IMAGE(card->sm);
    cubin = { card->sm, (unsigned char *)&image, (unsigned char *)(&image + 1) };
    *n = 1;
    return &cubin;
}

/* --- a launch --------------------------------------------------------------------------------- */

static bool is(const fakecuda_launch *l, const char *prefix)
{
    return strncmp(l->kernel, prefix, strlen(prefix)) == 0;
}

template <class A> static A args_of(const fakecuda_launch *l)
{
    A a;
    if (l->args_bytes != sizeof a)
        die(l->kernel);
    memcpy(&a, l->args, sizeof a);
    return a;
}

/* The places of layers within a sequence's blocks do not make a launch another. */
static void forget_places(std::string *args, const fakecuda_launch *l)
{
    const auto forget = [&](auto a, auto... field) {
        ((a.*field = 0), ...);
        args->assign((const char *)&a, sizeof a);
    };
    if (is(l, "pn_k_ssm_step"))
        forget(args_of<pn_ssm_step_args>(l), &pn_ssm_step_args::conv_off,
               &pn_ssm_step_args::state_off);
    else if (is(l, "pn_k_ssm_in"))
        forget(args_of<pn_ssm_in_args>(l), &pn_ssm_in_args::conv_off);
    else if (is(l, "pn_k_conv"))
        forget(args_of<pn_conv_args>(l), &pn_conv_args::conv_off);
    else if (is(l, "pn_k_delta_scan"))
        forget(args_of<pn_delta_scan_args>(l), &pn_delta_scan_args::state_off);
    else if (is(l, "pn_k_qk_"))
        forget(args_of<pn_qk_args>(l), &pn_qk_args::kv_off);
    else if (is(l, "pn_k_attend_step")) {
        pn_attend_step_args a = args_of<pn_attend_step_args>(l);
        a.qk.kv_off = a.attend.kv_off = 0;
        args->assign((const char *)&a, sizeof a);
    } else if (is(l, "pn_k_attend"))
        forget(args_of<pn_attend_args>(l), &pn_attend_args::kv_off);
}

/* What two launches that cost the same have in common: all but addresses. */
static std::string signature(const fakecuda_launch *l)
{
    std::string args((const char *)l->args, l->args_bytes);
    forget_places(&args, l);
    for (size_t at = 0; at + 8 <= args.size(); at += 8) {
        uint64_t v;
        memcpy(&v, &args[at], 8);
        if (v >> 44 == 7) /* of this process's mappings */
            v = 1;
        memcpy(&args[at], &v, 8);
    }
    args.append((const char *)l->grid, sizeof l->grid);
    return l->kernel + args;
}

static double stack_bytes(const pn_dmat &m, double n)
{
    return m.w ? n * (double)m.mat_bytes : 0;
}

/* Bytes that the tiled kernels read at least, where blocks read the same ones; else no limit. */
static double most_read(const fakecuda_launch *l)
{
    const auto used = [](const pn_moe_route &r) {
        return (double)std::min(r.n_expert, r.n_tok * r.n_used);
    };
    if (is(l, "pn_k_gemm")) {
        const pn_matmul_args a = args_of<pn_matmul_args>(l);
        double bytes = 4.0 * a.n_tok * a.mat[0].w.n;
        for (uint32_t i = 0; i < a.n_mat; i++)
            bytes += stack_bytes(a.mat[i].w, 1);
        return bytes;
    }
    if (is(l, "pn_k_moe_up_grouped")) {
        const pn_moe_up_args a = args_of<pn_moe_up_args>(l);
        const double n = used(a.route);
        return stack_bytes(a.gate, n) + stack_bytes(a.up, n) + stack_bytes(a.gate_shexp, 1) +
               stack_bytes(a.up_shexp, 1) + 4.0 * a.route.n_tok * a.gate.n;
    }
    if (is(l, "pn_k_moe_product_grouped")) {
        const pn_moe_product_args a = args_of<pn_moe_product_args>(l);
        return stack_bytes(a.w, used(a.route)) + stack_bytes(a.w_shexp, 1) +
               4.0 * a.route.n_tok * (a.route.n_used * a.w.n + a.w_shexp.n);
    }
    return INFINITY;
}

static bool has_tail(const fakecuda_launch *l)
{
    if (is(l, "pn_k_qmv"))
        return args_of<pn_matmul_args>(l).tail.kind != PN_TAIL_NONE;
    return is(l, "pn_k_moe_down") && args_of<pn_moe_down_args>(l).tail.kind != PN_TAIL_NONE;
}

/* What a launch is called in the tables: products by their rows and what follows on them. */
static std::string label(const fakecuda_launch *l)
{
    if (!is(l, "pn_k_qmv") && !is(l, "pn_k_gemm"))
        return l->kernel;
    static const char *const tails[] = { "", ", norm", ", router" };
    const pn_matmul_args a = args_of<pn_matmul_args>(l);
    uint32_t n_row = 0;
    for (uint32_t i = 0; i < a.n_mat; i++)
        n_row += a.mat[i].w.n_row;
    return std::string(l->kernel) + " " + std::to_string(n_row) + "x" +
           std::to_string(a.mat[0].w.n) + tails[a.tail.kind];
}

/* Blocks that are executed, at most. */
static unsigned sample(const fakecuda_launch *l)
{
    if (has_tail(l) || is(l, "pn_k_ssm_step")) /* the last one must know that it is */
        return ~0u;
    if (is(l, "pn_k_delta_scan"))
        return 2;
    if (is(l, "pn_k_gemm"))
        return 12;
    if (is(l, "pn_k_attend_rows"))
        return 8;
    return is(l, "pn_k_moe_up_grouped") || is(l, "pn_k_moe_product_grouped") ? 64 : 1024;
}

static cost_time execute(const fakecuda_launch *l)
{
    ptx_kernel &k = *ptx_get(&module, l->kernel);
    cost_launch c = {};
    c.n_block = l->grid[0] * l->grid[1] * l->grid[2];
    c.threads = l->block[0];
    c.registers = kernel_registers.at(l->kernel);
    c.shared = k.shared_bytes + l->smem;
    c.has_tail = has_tail(l);
    c.most_read = most_read(l);
    const unsigned n = std::min(c.n_block, sample(l));
    std::vector<unsigned> blocks;
    for (unsigned i = 0; i < n; i++)
        blocks.push_back((unsigned)(((double)i + 0.5) * c.n_block / n));
    ptx_add_memory(l->memory, l->memory_bytes);
    ptx_watching = counter.get();
    ptx_launch(&k, l->grid, l->block, l->smem, l->args, &blocks);
    ptx_watching = nullptr;
    ptx_drop_memory(l->memory);
    c.counts = std::move(counter->counts);
    return cost_time_of(*card, c);
}

/* Different experts for every token. */
static void route_at_random(const fakecuda_launch *l)
{
    const pn_router_args a = args_of<pn_router_args>(l);
    std::vector<int32_t> ids((size_t)a.n_expert);
    for (int32_t i = 0; i < a.n_expert; i++)
        ids[(size_t)i] = i;
    for (int32_t t = 0; t < a.n_tok; t++) {
        for (int32_t r = 0; r < a.n_used; r++)
            std::swap(ids[(size_t)r], ids[(size_t)r + rng() % (unsigned)(a.n_expert - r)]);
        memcpy(a.top_id + (size_t)t * (size_t)a.n_used, ids.data(), (size_t)a.n_used * 4);
    }
}

/* Tokens that differ, in place of the embedding's rows, which the file lacks. */
static void make_tokens(const fakecuda_launch *l)
{
    const pn_norm_args a = args_of<pn_norm_args>(l);
    std::normal_distribution<float> normal;
    float *const x = const_cast<float *>(a.x);
    for (int64_t i = 0; i < (int64_t)a.n_row * a.x_stride; i++)
        x[i] = normal(rng);
}

static void on_launch(const fakecuda_launch *l)
{
    if (!counted)
        return;
    if (!counted->n_launch && is(l, "pn_k_norm"))
        make_tokens(l);
    const std::string key = signature(l);
    auto it = known.find(key);
    if (it == known.end()) {
        it = known.emplace(key, execute(l)).first;
        if (is(l, "pn_k_router"))
            route_at_random(l);
        if (is(l, "pn_k_finite")) /* what such weights lead to is nobody's concern */
            args_of<pn_finite_args>(l).bad[0] = 0;
    }
    const cost_time &t = it->second;
    kernel_sum &k = counted->kernels[label(l)];
    k.n++;
    k.us += t.us;
    k.dram += t.dram_bytes;
    k.bound[t.bound] += t.us;
    counted->us += t.us;
    counted->dram += t.dram_bytes;
    counted->n_launch++;
}

/* --- passes ----------------------------------------------------------------------------------- */

namespace
{
/* A model on a card. */
class rig
{
  public:
    rig(const char *file)
    {
        fakecuda_setup s;
        standin_defaults(&s);
        s.n_device = card->n_device;
        s.sm = card->sm;
        s.n_sm = card->n_sm;
        s.mem = card->memory;
        s.launch = on_launch;
        s.hollow_copy = &hollow_copy;
        hollow_copy = 1 << 20;
        standin_begin(&s);
        pn_load_opts load = {};
        load.err = &err_;
        model_ = pn_load_ex(file, &load);
        ok(model_ ? PN_OK : PN_ERR_FORMAT);
        pn_exec_opts opts = {};
        opts.n_threads = 1;
        opts.device.kind = PN_DEVICE_CUDA;
        opts.device.driver = standin_library();
        opts.device.n_ctx = N_CTX;
        opts.device.n_die = card->n_device;
        opts.device.die[1] = 1;
        ok(pn_exec_new(model_, &opts, &exec_, &err_));
        hollow_copy = SIZE_MAX;
        pn_state_opts state = {};
        state.n_ctx = N_CTX;
        state.err = &err_;
        state_ = pn_state_new(model_, &state);
        ok(state_ ? PN_OK : PN_ERR_NOMEM);
    }
    ~rig()
    {
        pn_state_free(state_);
        pn_exec_free(exec_);
        pn_model_free(model_);
    }
    rig(const rig &) = delete;
    rig &operator=(const rig &) = delete;

    /* Goes on to position `end`, in one pass or several; p: counts them. */
    void feed(int end, pass *p)
    {
        const pn_seq *const seq = pn_state_seq(state_);
        counted = p;
        while (pn_seq_pos(seq) < end) {
            const int n = std::min(end - pn_seq_pos(seq), pn_exec_n_batch(exec_));
            const std::vector<int32_t> ids((size_t)n, 1);
            std::vector<float> logits(1 << 18);
            const pn_part part = { pn_state_seq(state_), ids.data(), n, logits.data(), 1 };
            pn_batch batch = {};
            batch.parts = &part;
            batch.n_part = 1;
            ok(pn_get_forward_fn(model_)(exec_, &batch, &err_));
        }
        counted = nullptr;
    }
    /* One token at position `at`. */
    pass decode(int at)
    {
        pass p;
        feed(at, nullptr);
        feed(at + 1, &p);
        return p;
    }
    /* Bytes of weights that a token needs. */
    double active_bytes(void) const
    {
        pn_model_info info;
        pn_model_get_info(model_, &info);
        return (double)info.active_bytes;
    }
    pass prefill(int n)
    {
        pass p;
        pn_state_reset(state_);
        feed(n, &p);
        return p;
    }

  private:
    enum {
        N_CTX = 33024
    };
    void ok(pn_status st)
    {
        if (st != PN_OK)
            die(err_.msg);
    }
    pn_err err_ = {};
    pn_model *model_ = nullptr;
    pn_exec *exec_ = nullptr;
    pn_state *state_ = nullptr;
};
} // namespace

/* --- what it says ----------------------------------------------------------------------------- */

/* With what is between the kernels, and the way of logits and of x from die to die. */
static double whole_us(const pass &p, bool is_decode)
{
    const bool has_graph = is_decode && card->n_device == 1;
    const double gap = has_graph ? card->launch_graph : card->launch_stream;
    const double device = p.us + p.n_launch * gap;
    const double host = has_graph ? 0 : p.n_launch * card->launch_cpu;
    const double logits = 248320 * 4 / card->pcie * 1e-3;
    return std::max(device, host) + logits + 30 + (card->n_device - 1) * 30;
}

static void print_kernels(const pass &p)
{
    std::vector<std::pair<double, std::string>> order;
    for (const auto &k : p.kernels)
        order.push_back({ -k.second.us, k.first });
    std::sort(order.begin(), order.end());
    for (const auto &o : order) {
        const kernel_sum &k = p.kernels.at(o.second);
        const auto most = std::max_element(k.bound.begin(), k.bound.end(),
                                           [](auto &a, auto &b) { return a.second < b.second; });
        printf("    %-30s %4.0f x %8.2f us = %9.1f us  %5.0f GB/s  bound by %s\n", o.second.c_str(),
               k.n, k.us / k.n, k.us, k.dram / k.us * 1e-3, most->first.c_str());
    }
}

static void print_pass(const char *what, const pass &p, int n_tok, double active, bool is_verbose)
{
    const double us = whole_us(p, n_tok == 1), tok_s = n_tok / us * 1e6;
    printf("  %-13s %8.1f tok/s", what, tok_s);
    if (n_tok == 1)
        printf("  %4.1f %% of %.0f GB/s", active / (us * 1e3) / card->dram_sheet * 100,
               card->dram_sheet);
    printf("  %d launches, kernels %.0f of %.0f us\n", p.n_launch, p.us, us);
    if (is_verbose)
        print_kernels(p);
}

static void measure(const char *mix, const char *file, bool is_verbose)
{
    known.clear();
    rig r(file);
    const double active = r.active_bytes();
    printf("%s, %s, %.2f GB of weights a token\n", card->name, mix, active * 1e-9);
    print_pass("decode at 0", r.decode(0), 1, active, is_verbose);
    if (getenv("QUICK"))
        return;
    print_pass("decode at 4k", r.decode(4096), 1, active, is_verbose);
    print_pass("decode at 32k", r.decode(32768), 1, active, is_verbose);
    print_pass("prefill 512", r.prefill(512), 512, active, is_verbose);
    print_pass("prefill 2048", r.prefill(2048), 2048, active, is_verbose);
}

static void open_card(const cost_card *c)
{
    const std::string name = "build/cuda/pantheon-" + std::to_string(c->sm);
    card = c;
    module = ptx_module();
    if (!ptx_load(&module, (name + ".ptx").c_str()))
        die((name + ".ptx is missing").c_str());
    std::ifstream in(name + ".uses"); /* scripts/cuda.py uses */
    std::string kernel;
    unsigned registers, frame;
    kernel_registers.clear();
    while (in >> kernel >> registers >> frame)
        kernel_registers[kernel] = registers;
    counter.reset(new cost_counter(10 * c->sm, c->latency));
}

int main(int argc, char **argv)
{
    std::vector<std::string> mixes;
    bool is_verbose = false;
    const char *const only = getenv("CARD");
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "-v") == 0)
            is_verbose = true;
        else
            mixes.push_back(argv[i]);
    if (mixes.empty())
        mixes = { "q3_k_m", "q4_k_m", "q8trunk" };
    setvbuf(stdout, nullptr, _IOLBF, 0);
    for (const std::string &mix : mixes) {
        const std::string file = "/tmp/pantheon-cost-" + std::to_string(getpid()) + ".gguf";
        pn_synth_opts opts = {};
        opts.preset = "35b-a3b";
        opts.quant = mix.c_str();
        pn_err err = {};
        size_t bytes;
        if (pn_synth_write(file.c_str(), &opts, &bytes, &err) != PN_OK)
            die(err.msg);
        for (size_t i = 0; i < cost_n_card; i++) {
            if (only && !strstr(cost_cards[i].name, only))
                continue;
            open_card(&cost_cards[i]);
            measure(mix.c_str(), file.c_str(), is_verbose);
        }
        unlink(file.c_str());
    }
    return 0;
}
