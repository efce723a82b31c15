/* make cuda-cost: the predicted speed of a 35B on cards that are not here, as a table's rows to
 * stdout, and what they are made of to stderr.
 *
 * The program's own passes run over the stand-in driver (fakecuda.h) with a model of the real
 * shapes, without its bytes: the launches, their grids and arguments are those of a GPU. Each
 * launch that differs from those before by more than addresses is executed by the PTX interpreter,
 * counted (cost_count.h, cost_l2.h) and timed (cost_card.h): all of its blocks, or of large even
 * grids some, evenly spread (cost_launch.h). Every matrix has the same bytes all over, so the
 * router is given random experts where a pass has many tokens.
 *
 * cost [MIX ...] [-v]: q3_k_m q4_k_m q8trunk; -v: each kernel's share. CARD=text: cards whose name
 * has it. QUICK=1: decode at 0 only. L2=0: as if each launch found L2 empty. */
#include "cuda/cost_card.h"
#include "cuda/cost_launch.h"
#include "cuda/standin.h"

#include <algorithm>
#include <fstream>
#include <random>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define _Static_assert static_assert
extern "C" {
#include "cuda/args.h"
#include "cuda/cost_model.h"
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
    double bytes = 0;      /* that had to move, of one token */
    int n_tok = 0;         /* of each part of it */
    int n_micro_batch = 1; /* of each */
    int n_launch = 0, n_early = 0;
    struct {
        double us = 0;
        int n_launch = 0;
    } dies[2];
    std::map<std::string, kernel_sum> kernels;
};
const cost_card *card;
ptx_module module;
std::unique_ptr<cost_counter> counter;
std::map<std::string, unsigned> kernel_registers;
struct known_launch {
    cost_time time;
    cost_trace trace;
};
std::map<std::string, known_launch> known; /* by signature */
std::vector<cost_l2> l2;                   /* [card->n_device] */
pass *counted;                             /* NULL: launches are not looked at */
size_t hollow_copy;                        /* fakecuda.h; weights are larger */
std::mt19937 rng(1);

} // namespace

void cost_die(const char *what)
{
    fprintf(stderr, "cost: %s\n", what);
    exit(2);
}

const fc_cubin *__wrap_fc_cubins(size_t *n)
{
    static fakecuda_image image;
    static fc_cubin cubin;
    image = FAKECUDA_IMAGE(card->arch->sm);
    cubin = { card->arch->sm, (unsigned char *)&image, (unsigned char *)(&image + 1) };
    *n = 1;
    return &cubin;
}

/* --- a launch --------------------------------------------------------------------------------- */

static known_launch execute(const fakecuda_launch *l)
{
    ptx_kernel &k = *ptx_get(&module, l->kernel);
    cost_launch c = {};
    c.n_block = l->grid[0] * l->grid[1] * l->grid[2];
    c.threads = l->block[0];
    c.registers = kernel_registers.at(l->kernel);
    c.shared = k.shared_bytes + l->smem;
    c.has_tail = cost_has_tail(l);
    c.most_read = cost_most_read(l);
    const unsigned n = std::min(c.n_block, cost_sample(l));
    const double times = (double)c.n_block / n;
    std::vector<unsigned> blocks;
    for (unsigned i = 0; i < n; i++)
        blocks.push_back((unsigned)((i + 0.5) * times));
    cost_l2 *const cache = &l2[(size_t)l->device];
    counter->use_l2(cache, times);
    ptx_add_memory(l->memory, l->memory_bytes);
    ptx_watching = counter.get();
    cache->begin();
    ptx_launch(&k, l->grid, l->block, l->smem, l->args, &blocks);
    ptx_watching = nullptr;
    ptx_drop_memory(l->memory);
    c.counts = std::move(counter->counts);
    const double written = c.counts.first_write * times;
    return { cost_time_of(*card, c), cache->end(cost_pointers(l), times, c.most_read + written) };
}

/* Different experts for every token. */
static void route_at_random(const fakecuda_launch *l)
{
    const pn_router_args a = cost_args<pn_router_args>(l);
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
    const pn_norm_args a = cost_args<pn_norm_args>(l);
    std::normal_distribution<float> normal;
    float *const x = const_cast<float *>(a.x);
    for (int64_t i = 0; i < (int64_t)a.n_row * a.x_stride; i++) {
        x[i] = normal(rng);
        l2[(size_t)l->device].touch((uint64_t)(x + i) / 32, 1, false);
    }
}

static void on_launch(const fakecuda_launch *l)
{
    if (!counted)
        return;
    if (!counted->n_launch) {
        const bool has_l2 = !getenv("L2") || atoi(getenv("L2"));
        l2.clear();
        for (int d = 0; d < card->n_device; d++)
            l2.emplace_back(has_l2 ? card->l2_bytes : 0);
        if (cost_is(l, "pn_k_norm"))
            make_tokens(l);
    }
    /* Tables in the device's memory, which a signature has not, follow from the tokens. */
    const std::string key = std::to_string(counted->n_tok) + cost_signature(l);
    auto it = known.find(key);
    if (it != known.end()) {
        l2[(size_t)l->device].replay(it->second.trace, cost_pointers(l));
    } else {
        it = known.emplace(key, execute(l)).first;
        if (cost_is(l, "pn_k_router"))
            route_at_random(l);
        if (cost_is(l, "pn_k_finite")) /* what such weights lead to is nobody's concern */
            cost_args<pn_finite_args>(l).bad[0] = 0;
    }
    const cost_time &t = it->second.time;
    kernel_sum &k = counted->kernels[cost_label(l)];
    k.n++;
    k.us += t.us;
    k.dram += t.dram_bytes;
    k.bound[t.bound] += t.us;
    counted->us += t.us;
    counted->dram += t.dram_bytes;
    counted->dies[l->device].us += t.us;
    counted->dies[l->device].n_launch++;
    counted->n_launch++;
    counted->n_early += l->is_early;
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
        s.sm = card->arch->sm;
        s.n_sm = card->n_sm;
        s.mem = card->memory_mb << 20;
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
        fits_ = cost_fits(model_, &opts);
        if (!fits_)
            return;
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

    bool fits(void) const
    {
        return fits_;
    }
    /* Goes on to position `end`, in one pass or several; p: counts them. */
    void feed(int end, pass *p)
    {
        const pn_seq *const seq = pn_state_seq(state_);
        counted = p;
        while (pn_seq_pos(seq) < end) {
            const int n = std::min(end - pn_seq_pos(seq), pn_exec_n_batch(exec_));
            if (p) {
                p->n_tok = n;
                p->n_micro_batch = card->n_device == 2 ? cost_n_micro_batch(exec_, n) : 1;
            }
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
        p.bytes = cost_token_bytes(model_, at);
        return p;
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
            cost_die(err_.msg);
    }
    bool fits_ = false;
    pn_err err_ = {};
    pn_model *model_ = nullptr;
    pn_exec *exec_ = nullptr;
    pn_state *state_ = nullptr;
};
} // namespace

/* --- what it says ----------------------------------------------------------------------------- */

/* With what is between the kernels, and the way of logits and of x from die to die. Of two dies one
 * works at a micro-batch while the other has the one before. */
static double whole_us(const pass &p, bool is_decode)
{
    const bool has_graph = is_decode && card->n_device == 1;
    const double gap = has_graph ? card->gap.graph : card->gap.stream;
    const double a = p.dies[0].us + p.dies[0].n_launch * gap;
    const double b = p.dies[1].us + p.dies[1].n_launch * gap;
    const int n = p.n_micro_batch;
    const double device = (a + b + (n - 1) * std::max(a, b)) / n - p.n_early * card->gap.early;
    const double host = has_graph ? 0 : p.n_launch * card->gap.cpu;
    const double logits = 248320 * 4 / card->rate.pcie * 1e-3;
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
        fprintf(stderr, "    %-30s %4.0f x %8.2f us = %9.1f us  %5.0f GB/s  bound by %s\n",
                o.second.c_str(), k.n, k.us / k.n, k.us, k.dram / k.us * 1e-3, most->first.c_str());
    }
}

/* What is measured, a column each. */
static const struct column {
    const char *name;
    int at, n_tok;
} columns[] = {
    { "decode at 0", 0, 1 },      { "at 4k", 4096, 1 },   { "at 32k", 32768, 1 },
    { "prefill of 512", 0, 512 }, { "of 2048", 0, 2048 }, { "of 8192", 0, 8192 },
};

/* A cell of the table; and the same with what it is made of to stderr. */
static std::string tell(const column &c, const pass &p, bool is_verbose)
{
    const double us = whole_us(p, c.n_tok == 1), tok_s = c.n_tok / us * 1e6;
    char cell[64];
    int n = snprintf(cell, sizeof cell, "%.*f", tok_s < 100 ? 1 : 0, tok_s);
    if (c.n_tok == 1) {
        const double gb_s = p.bytes / us * 1e-3;
        snprintf(cell + n, sizeof cell - (size_t)n, " (%.0f, %.0f)",
                 gb_s / card->rate.dram_sheet * 100, gb_s / card->rate.dram * 100);
    }
    fprintf(stderr, "  %-14s %-18s %d launches, kernels %.0f of %.0f us, %.2f GB, from DRAM %.2f\n",
            c.name, cell, p.n_launch, p.us, us, p.bytes * 1e-9, p.dram * 1e-9);
    if (is_verbose)
        print_kernels(p);
    return cell;
}

static std::string measure(const char *mix, const char *file, bool is_verbose)
{
    known.clear();
    rig r(file);
    std::string row = std::string("| ") + card->name + ", " + mix + " |";
    fprintf(stderr, "%s, %s\n", card->name, mix);
    if (!r.fits())
        return row + " does not fit |";
    for (const column &c : columns) {
        if (&c > columns && getenv("QUICK"))
            break;
        row += " " + tell(c, c.n_tok == 1 ? r.decode(c.at) : r.prefill(c.n_tok), is_verbose) + " |";
    }
    return row;
}

static void open_card(const cost_card *c)
{
    const std::string name = "build/cuda/pantheon-" + std::to_string(c->arch->sm);
    card = c;
    module = ptx_module();
    if (!ptx_load(&module, (name + ".ptx").c_str()))
        cost_die((name + ".ptx is missing").c_str());
    std::ifstream in(name + ".uses"); /* scripts/cuda.py uses */
    std::string kernel;
    unsigned registers, frame;
    kernel_registers.clear();
    while (in >> kernel >> registers >> frame)
        kernel_registers[kernel] = registers;
    counter.reset(new cost_counter(10 * c->arch->sm, c->latency));
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
    std::vector<std::string> rows;
    for (const std::string &mix : mixes) {
        const std::string file = "/tmp/pantheon-cost-" + std::to_string(getpid()) + ".gguf";
        pn_synth_opts opts = {};
        opts.preset = "35b-a3b";
        opts.quant = mix.c_str();
        pn_err err = {};
        size_t bytes;
        if (pn_synth_write(file.c_str(), &opts, &bytes, &err) != PN_OK)
            cost_die(err.msg);
        for (size_t i = 0; i < cost_n_card; i++) {
            if (only && !strstr(cost_cards[i].name, only))
                continue;
            open_card(&cost_cards[i]);
            rows.push_back(measure(mix.c_str(), file.c_str(), is_verbose));
        }
        unlink(file.c_str());
    }
    printf("| tok/s |");
    for (const column &c : columns)
        printf(" %s |", c.name);
    printf("\n|---|---|---|---|---|---|---|\n");
    for (const std::string &row : rows)
        printf("%s\n", row.c_str());
    return 0;
}
