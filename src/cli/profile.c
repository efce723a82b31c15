#include "cli/profile.h"

#include "models/exec.h"

enum {
    RUNS = 3,
    PIECES = 128,   /* together beyond what a core's cache holds */
    PIECE = 1 << 20 /* bytes; far over what it costs to begin one */
};

/* Of pieces of the weights, spread evenly over their files: on a virtual machine memory can be a
 * fifth slower in one place than in another. */
static pn_reader *weights_reader(const pn_exec *exec)
{
    const pn_gguf *const file = pn_model_file(exec->model);
    size_t all = 0, before = 0, n = 0;
    for (size_t it = 0; it < pn_gguf_n_tensors(file); it++)
        all += pn_gguf_tensor_at(file, it)->n_bytes;
    pn_span pieces[PIECES];
    for (size_t it = 0; it < pn_gguf_n_tensors(file); it++) {
        const pn_gguf_tensor *const t = pn_gguf_tensor_at(file, it);
        for (; n < PIECES && all / PIECES * n < before + t->n_bytes; n++) {
            const size_t at = all / PIECES * n - before, left = t->n_bytes - at;
            pieces[n] = (pn_span){ (const char *)t->data + at, left < PIECE ? left : PIECE };
        }
        before += t->n_bytes;
    }
    return pn_reader_new(exec->pool, pieces, n);
}

double pn_cli_measure_read(const pn_exec *exec, pn_reader **reader)
{
    if (exec->gpu)
        return exec->gpu_read_bytes_s;
    if (!*reader)
        *reader = weights_reader(exec);
    return pn_reader_run(*reader);
}

pn_cli_limits pn_cli_measure_limits(const pn_exec *exec)
{
    pn_reader *reader = NULL;
    pn_cli_limits limits = { 0 };
    for (int i = 0; i < RUNS; i++) {
        const double now = pn_cli_measure_read(exec, &reader);
        limits.read_bytes_s = now > limits.read_bytes_s ? now : limits.read_bytes_s;
    }
    pn_reader_free(reader);
    if (exec->gpu) /* what it computes at is not known */
        return limits;
    limits.i8_macs_s = pn_peak_macs(exec->pool, &exec->k.peak_i8, RUNS);
    limits.f32_macs_s = pn_peak_macs(exec->pool, &exec->k.peak_f32, RUNS);
    return limits;
}

void pn_cli_profile_take(pn_cli_profile *p, pn_exec *exec)
{
    pn_stage_profile s;
    for (int i = 0; i < PN_CLI_STAGE_MAX && pn_exec_profile(exec, i, &s); i++) {
        if (i == p->n_stage)
            p->stages[p->n_stage++] = (pn_stage_profile){ .name = s.name, .is_float = s.is_float };
        p->stages[i].seconds += s.seconds;
        p->stages[i].bytes += s.bytes;
        p->stages[i].macs += s.macs;
        p->stages[i].launches += s.launches;
    }
    p->n_cpu_experts += exec->n_cpu_experts;
    p->n_cached_experts += exec->n_cached_experts;
    pn_exec_profile_reset(exec);
}

/* The share of a stage's time that the machine's limits explain; 0 where nothing was counted. */
static double share(const pn_stage_profile *s, const pn_cli_limits *limits)
{
    const double macs_s = s->is_float ? limits->f32_macs_s : limits->i8_macs_s;
    const double read_s = limits->read_bytes_s > 0 ? s->bytes / limits->read_bytes_s : 0;
    const double mul_s = macs_s > 0 ? s->macs / macs_s : 0;
    return s->seconds > 0 ? (read_s > mul_s ? read_s : mul_s) / s->seconds : 0;
}

static pn_stage_profile sum(const pn_cli_profile *p)
{
    pn_stage_profile all = { .name = "all stages" };
    for (int i = 0; i < p->n_stage; i++) {
        all.seconds += p->stages[i].seconds;
        all.bytes += p->stages[i].bytes;
        all.macs += p->stages[i].macs;
        all.launches += p->stages[i].launches;
    }
    return all;
}

double pn_cli_profile_bytes(const pn_cli_profile *p)
{
    return sum(p).bytes;
}

static void print_row(const pn_stage_profile *s, double all_s, const pn_cli_limits *limits)
{
    const double per_s = s->seconds > 0 ? 1e-9 / s->seconds : 0;
    fprintf(stderr, "%-32s %10.2f %6.1f %10.1f %8.2f %10.1f %8.0f", s->name, s->seconds * 1e3,
            all_s > 0 ? s->seconds / all_s * 100 : 0, s->bytes / 1e6, s->bytes * per_s,
            s->macs * per_s, share(s, limits) * 100);
    fprintf(stderr, s->launches > 0 ? " %10.0f\n" : "\n", s->launches);
}

void pn_cli_profile_print(const pn_cli_profile *p, const char *title, const pn_cli_limits *limits)
{
    const pn_stage_profile all = sum(p);
    fprintf(stderr, "%-32s %10s %6s %10s %8s %10s %8s%s\n", title, "ms", "%", "MB", "GB/s",
            "GMAC/s", "% limit", all.launches > 0 ? "   launches" : "");
    for (int i = 0; i < p->n_stage; i++)
        if (all.launches == 0 || p->stages[i].seconds > 0)
            print_row(&p->stages[i], all.seconds, limits);
    print_row(&all, all.seconds, limits);
    if (p->n_cpu_experts > 0)
        fprintf(stderr, "%-32s %.1f %% of their work by copies in GPU memory\n",
                "experts of the CPU's layers", p->n_cached_experts / p->n_cpu_experts * 100);
    fprintf(stderr, "%-32s %.1f GB/s, %.0f GMAC/s int8, %.0f GMAC/s float32\n", "limits, measured",
            limits->read_bytes_s / 1e9, limits->i8_macs_s / 1e9, limits->f32_macs_s / 1e9);
}

void pn_cli_profile_json(const pn_cli_profile *p, pn_jw *w, const char *key,
                         const pn_cli_limits *limits)
{
    pn_jw_begin_arr(w, key);
    for (int i = 0; i < p->n_stage; i++) {
        const pn_stage_profile *const s = &p->stages[i];
        pn_jw_begin_obj(w, NULL);
        pn_jw_str(w, "stage", s->name);
        pn_jw_real(w, "seconds", s->seconds);
        pn_jw_real(w, "bytes", s->bytes);
        pn_jw_real(w, "macs", s->macs);
        pn_jw_real(w, "launches", s->launches);
        pn_jw_real(w, "limit_share", share(s, limits));
        pn_jw_end_obj(w);
    }
    pn_jw_end_arr(w);
}

void pn_cli_profile_report(const pn_cli_opts *opts, pn_exec *exec)
{
    if (!opts->profile)
        return;
    pn_cli_profile p = { 0 };
    pn_cli_profile_take(&p, exec);
    const pn_cli_limits limits = pn_cli_measure_limits(exec);
    pn_cli_profile_print(&p, "stage", &limits);
}
