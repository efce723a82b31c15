/* On a card: what it reaches at best, and the kernels at the shapes of the 35B, each with its bits
 * against the CPU's, its time, and the share of the card's best that this is. One line a launch. */
#include "cuda/attention_case.h"
#include "cuda/card.h"
#include "cuda/delta_net_case.h"
#include "cuda/moe_case.h"

#include <stdarg.h>
#include <stdio.h>
#include <string>

namespace
{
/* Multiply-adds a second that the products of these weights may reach. */
double peak_of(uint32_t type, bool is_tile)
{
    const card_limits &l = card_get_limits();
    const bool is_float = pn_type_get(type)->act == PN_ACT_F32;
    if (!is_float && is_tile && l.mma_macs_s > 0)
        return l.mma_macs_s;
    return !is_float && l.dp4a_macs_s > 0 ? l.dp4a_macs_s : l.f32_macs_s;
}

/* Launches until the end of its scope are timed: they move so many bytes at least, and make so many
 * multiply-adds of which the card can do `peak` a second. */
class timed
{
  public:
    timed(const std::string &what, double bytes, double macs, double peak)
    {
        const double read = card_get_limits().read_bytes_s;
        test_case("%s", what.c_str());
        time_launches([=](const char *kernel, double s) {
            if (s > 0)
                printf("%-24s %-34s %9.1f us %7.1f GB/s %3.0f %% %8.2f TMAC/s %3.0f %%\n", kernel,
                       what.c_str(), s * 1e6, bytes / s / 1e9, 100 * bytes / s / read,
                       macs / s / 1e12, 100 * macs / s / peak);
        });
    }
    ~timed()
    {
        time_launches(nullptr);
    }
    timed(const timed &) = delete;
    timed &operator=(const timed &) = delete;
};

std::string text(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
std::string text(const char *fmt, ...)
{
    char line[128];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    return line;
}

/* --- matrix products -------------------------------------------------------------------------- */

void product(const weights &w, const acts &x, uint32_t n_tok)
{
    const size_t n_row = w.w.n_row, act = pn_act_bytes(pn_type_get(w.d.type)->act, w.w.n);
    array<float> y(n_tok * n_row);
    pn_matmul_args a = {};
    a.mat[0] = { w.d, y, nullptr, (uint32_t)n_row, 0 };
    a.x = x.d;
    a.n_mat = 1;
    a.n_tok = n_tok;
    const pn_dims d = pn_matmul_dims(&a, fc_device_get_info(card_device())->n_sm);
    {
        const timed t(text("%s %zu x %zu, %u tok", type_name(w.d.type), n_row, w.w.n, n_tok),
                      (double)w.d.mat_bytes + (double)n_tok * ((double)act + 4.0 * (double)n_row),
                      (double)n_row * (double)w.w.n * n_tok,
                      peak_of(w.d.type, n_tok > PN_QMV_COLS));
        launch(a, d);
    }
    std::vector<float> want(n_row);
    for (const uint32_t c : { 0u, n_tok / 2, n_tok - 1 }) {
        scalar_product(w, 0, x.col(w.d.type, c), want.data());
        same_floats("y", y + c * n_row, want.data(), n_row);
    }
}

/* --- experts ---------------------------------------------------------------------------------- */

double expert_macs(const moe_shape &s, size_t n_matrix)
{
    return (double)(s.n_tok * n_matrix * s.n_embd) * (double)(s.n_used * s.n_ff + s.n_ff_shexp);
}

/* Matrices of a stack that are read. */
double read_bytes(const weights &w, const moe_layer &l)
{
    std::vector<int32_t> ids(l.top_id.begin(), l.top_id.end());
    std::sort(ids.begin(), ids.end());
    const size_t n = (size_t)(std::unique(ids.begin(), ids.end()) - ids.begin());
    return (double)w.d.mat_bytes * (double)(w.w.n_mat > 1 ? n : 1);
}

void experts(const moe_shape &s, bool is_grouped)
{
    const moe_layer l(s, X_NORMAL);
    const std::string what =
        text("%s %s, %zu tok", type_name(s.t_up), type_name(s.t_down), s.n_tok);
    array<float> h(l.h.size()), h_s(l.h_s.size());
    pn_moe_up_args up = moe_up_args(l, is_grouped, h, h_s);
    {
        const timed t(what,
                      read_bytes(l.gate, l) + read_bytes(l.up, l) + read_bytes(l.gate_s, l) +
                          read_bytes(l.up_s, l),
                      expert_macs(s, 2), peak_of(s.t_up, is_grouped));
        const int n_sm = fc_device_get_info(card_device())->n_sm;
        launch(up, is_grouped ? pn_moe_up_grouped_dims(&up) : pn_moe_up_dims(&up, n_sm));
    }
    const std::vector<float> want = is_grouped ? l.by_place(l.h, s.n_ff) : l.h;
    same_floats("h", h, want.data(), want.size());
    same_floats("h_shexp", h_s, l.h_s.data(), l.h_s.size());

    const moe_forms in(want, s.n_ff), in_s(l.h_s, s.n_ff_shexp);
    const timed t(what, read_bytes(l.down, l) + read_bytes(l.down_s, l), expert_macs(s, 1),
                  peak_of(s.t_down, is_grouped));
    if (is_grouped) {
        array<float> y(l.y.size()), y_s(l.y_s.size());
        const pn_moe_product_args a = moe_down_product_args(l, true, in, in_s, y, y_s);
        launch(a, pn_moe_product_grouped_dims(&a));
        same_floats("y", y, l.by_place(l.y, s.n_embd).data(), y.size());
        same_floats("y_shexp", y_s, l.y_s.data(), y_s.size());
        return;
    }
    array<float> x(l.res.begin(), l.res.size());
    const pn_moe_down_args a = moe_down_args(l, in, in_s, x);
    launch(a, pn_moe_down_dims(&a));
    same("x", x, l.sum);
}

/* --- delta net -------------------------------------------------------------------------------- */

void delta_net(const delta_layer &l)
{
    const size_t n = l.n_tok() * l.n_head * l.S;
    delta_sequences s(l);
    delta_wanted want(s);
    const size_t n_gate = l.n_tok() * l.n_head;
    array<float> x(l.n_tok() * l.n_ch()), g(n_gate), beta(n_gate), y(n);
    fill_normal(x, 0.5f);
    fill_normal(g, 2.0f);
    fill_normal(beta, 0.5f);
    for (float &v : g)
        v = v > 0 ? -v : v;
    std::vector<float> want_y(n);
    cpu_delta(l, std::vector<float>(x.begin(), x.end()), g, beta, want, want_y);
    const pn_delta_scan_args a = scan_args(l, s, x, g, beta, y);
    {
        const timed t(text("%zu heads of %zu, %zu tok", l.n_head, l.S, l.n_tok()),
                      4.0 * (2.0 * (double)l.state_floats() + (double)(x.size() + n)),
                      4.0 * (double)(n * l.S), card_get_limits().f32_macs_s);
        launch(a, pn_delta_scan_dims(&a));
    }
    same("y", y, want_y);
    want.check(s);
}

/* --- attention -------------------------------------------------------------------------------- */

double kv_bytes(const attention_shape &s)
{
    const attention_part &p = s.parts[0];
    return (double)(p.pos + p.n_tok) * (double)s.n_head_kv / PN_KV_CHUNK *
           (double)(pn_kv_k_bytes(p.type, s.head_dim) + pn_kv_v_bytes(p.type, s.head_dim));
}

double attention_macs(const attention_shape &s)
{
    return 2.0 * (double)(s.n_tok() * s.n_head * s.head_dim) * (double)(s.parts[0].pos + 1);
}

void attention_decode(const attention_shape &s)
{
    attention_step step(s);
    const pn_kv_type type = s.parts[0].type;
    const pn_attend_step_args a = step.args(type);
    {
        const timed t(text("%s keys, at %d", pn_kv_type_name(type), s.parts[0].pos), kv_bytes(s),
                      attention_macs(s), card_get_limits().f32_macs_s);
        launch(a, pn_attend_step_dims(&a, type));
    }
    {
        const timed t(text("its %d chunks", s.n_chunk()), 4.0 * (double)step.part_o.size(),
                      (double)step.part_o.size(), card_get_limits().f32_macs_s);
        launch(a.attend, pn_attend_join_dims(&a.attend));
    }
    step.check();
}

void attention_prefill(const attention_shape &s)
{
    const attention_inputs in(s);
    const pn_kv_type type = s.parts[0].type;
    array<float> out(s.n_tok() * s.n_head * s.head_dim);
    const pn_attend_args a = attend_args(s, in, type, out);
    {
        const timed t(
            text("%s keys, %d tok at %d", pn_kv_type_name(type), s.parts[0].n_tok, s.parts[0].pos),
            kv_bytes(s), attention_macs(s), card_get_limits().f32_macs_s);
        launch(a, pn_attend_rows_dims(&a, type));
    }
    same("out", out, want_out(s, in, true));
}
} // namespace

TEST(limits, "what the card reaches at best")
{
    const card_limits &l = card_get_limits();
    printf("reads memory at %.0f GB/s (%.0f by its data sheet)\n", l.read_bytes_s / 1e9,
           fc_device_get_info(card_device())->mem_gbs);
    printf("multiply-adds: float %.1f, dp4a %.1f, int8 tensor cores %.1f TMAC/s\n",
           l.f32_macs_s / 1e12, l.dp4a_macs_s / 1e12, l.mma_macs_s / 1e12);
    printf("an empty kernel: recorded %.2f us, launched %.2f us, waited for %.2f us\n",
           l.node_s * 1e6, l.launch_s * 1e6, l.wait_s * 1e6);
}

TEST(products, "a trunk's largest matrix, of every type, times 1 to 512 vectors")
{
    const bool is_small = card_is_small();
    const size_t n = is_small ? 256 : 2048, n_row = is_small ? 64 : 8192;
    const uint32_t most = is_small ? 12 : 512;
    const acts x(n, most, X_NORMAL);
    for (const uint32_t type : all_types) {
        const weights w(type, n, n_row, 1, W_TYPICAL);
        for (const uint32_t n_tok : { 1u, 2u, 8u, most })
            product(w, x, n_tok);
    }
}

/* Prefill: 16 tokens an expert, as 512 tokens have of 256 experts. */
TEST(experts_of_a_layer, "the experts of one token, and of many")
{
    static const uint32_t types[][2] = { { PN_TYPE_Q4_K, PN_TYPE_Q5_K },
                                         { PN_TYPE_Q3_K, PN_TYPE_Q4_K },
                                         { PN_TYPE_Q8_0, PN_TYPE_Q8_0 } };
    for (const auto &t : types) {
        if (card_is_small()) {
            experts({ t[0], t[0], t[1], 256, 256, 256, 4, 2, 1 }, false);
            experts({ t[0], t[0], t[1], 256, 256, 256, 4, 2, 9 }, true);
            continue;
        }
        experts({ t[0], t[0], t[1], 2048, 512, 512, 8, 8, 1 }, false);
        experts({ t[0], t[0], t[1], 2048, 512, 512, 64, 8, 128 }, true);
    }
}

TEST(delta_rule, "the delta rule of a layer, one token and many")
{
    if (card_is_small()) {
        delta_net({ 16, 1, 2, 4, { 1 } });
        delta_net({ 16, 1, 2, 4, { 9 } });
        return;
    }
    delta_net({ 128, 16, 32, 4, { 1 } });
    delta_net({ 128, 16, 32, 4, { 512 } });
}

TEST(attention_of_a_layer, "attention of a layer, one token far back and many")
{
    for (const pn_kv_type type : { PN_KV_F16, PN_KV_Q8_0 }) {
        if (card_is_small()) {
            attention_decode({ 4, 2, 64, 16, { { 200, 1, type } } });
            attention_prefill({ 4, 2, 64, 16, { { 100, 9, type } } });
            continue;
        }
        attention_decode({ 16, 2, 256, 64, { { 4095, 1, type } } });
        attention_decode({ 16, 2, 256, 64, { { 32767, 1, type } } });
        attention_prefill({ 16, 2, 256, 64, { { 0, 512, type } } });
        attention_prefill({ 16, 2, 256, 64, { { 8192, 128, type } } });
    }
}
