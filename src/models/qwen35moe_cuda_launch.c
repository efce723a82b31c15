/* What all sub-blocks launch. */
#include "models/qwen35moe_cuda.h"

#include "base/clock.h"

#include "cuda/matmul.h"

void pn_gpu_launch(pn_qwen35moe_gpu_pass *p, pn_dims d, const void *args)
{
    const unsigned block[3] = { d.block, 1, 1 };
    if (p->st == PN_OK)
        p->st = (d.begins_early ? fc_launch_early : fc_launch)(pn_gpu_stream(p), d.kernel, d.grid,
                                                               block, d.smem, args, p->err);
}

void pn_gpu_stage_begin(pn_qwen35moe_gpu_pass *p)
{
    p->bytes = p->macs = 0;
    p->launches = fc_launches(p->q->gpus.device[p->g]);
    p->stage_t0 = pn_now_s();
}

void pn_gpu_stage_end(pn_qwen35moe_gpu_pass *p, pn_stage stage)
{
    pn_exec *const ex = p->c.ex;
    pn_stage_profile *const s = &ex->stages[1 + p->g][stage];
    if (!ex->profile)
        return;
    if (p->q->times_stages && p->st == PN_OK)
        p->st = fc_stream_sync(pn_gpu_stream(p), p->err);
    if (p->q->times_stages)
        s->seconds += pn_now_s() - p->stage_t0;
    s->bytes += p->bytes;
    s->macs += p->macs;
    s->launches += (double)(fc_launches(p->q->gpus.device[p->g]) - p->launches);
}

void pn_gpu_quantize(pn_qwen35moe_gpu_pass *p, const pn_qwen35moe_gpu_acts *acts, unsigned need,
                     size_t n, size_t n_vec)
{
    const pn_quantize_args a = {
        .x = acts->f32,
        .q8k = need & PN_NEED_Q8K ? acts->q8k : NULL,
        .q8s = need & PN_NEED_Q8S ? acts->q8s : NULL,
        .n = (uint32_t)n,
        .n_vec = (uint32_t)n_vec,
    };
    if (a.q8k || a.q8s)
        pn_gpu_launch(p, pn_quantize_dims(&a), &a);
}

pn_norm_args pn_gpu_norm_args(const pn_qwen35moe_gpu_pass *p, const pn_qwen35moe_gpu_acts *acts,
                              unsigned need, const float *x, const float *w, size_t n_row, size_t n)
{
    const bool is_fused = pn_gpu_fuses(p, PN_FUSE_NORM);
    return (pn_norm_args){
        .x = x,
        .w = w,
        .y = is_fused && !(need & PN_NEED_F32) ? NULL : acts->f32,
        .q8k = is_fused && need & PN_NEED_Q8K ? acts->q8k : NULL,
        .q8s = is_fused && need & PN_NEED_Q8S ? acts->q8s : NULL,
        .x_stride = (int64_t)n,
        .y_stride = (int64_t)n,
        .n_row = (int32_t)n_row,
        .n = (int32_t)n,
        .eps = p->c.m->cfg.rms_eps,
    };
}

void pn_gpu_norm(pn_qwen35moe_gpu_pass *p, const pn_qwen35moe_gpu_acts *acts, unsigned need,
                 const float *x, const float *w, size_t n_row, size_t n)
{
    const pn_norm_args a = pn_gpu_norm_args(p, acts, need, x, w, n_row, n);
    pn_gpu_launch(p, pn_norm_dims(&a), &a);
    if (!pn_gpu_fuses(p, PN_FUSE_NORM))
        pn_gpu_quantize(p, acts, need, n, n_row);
}

/* --- projections ------------------------------------------------------------------------------ */

static void add(pn_qwen35moe_gpu_pass *p, float *y, const float *x, size_t n)
{
    const pn_vector_args a = { .y = y, .up = x, .n = (int64_t)n };
    pn_gpu_launch(p, pn_add_dims(&a), &a);
}

static void matmul(pn_qwen35moe_gpu_pass *p, const pn_qwen35moe_gpu_acts *x, size_t n_tok,
                   const pn_gpu_proj *projs, int n_proj, const pn_tail *tail)
{
    static const pn_tail none;
    pn_matmul_args a = { .x = pn_gpu_dacts(x),
                         .n_mat = (uint32_t)n_proj,
                         .n_tok = (uint32_t)n_tok,
                         .tail = tail ? *tail : none };
    for (int i = 0; i < n_proj; i++)
        a.mat[i] = (pn_matmul_mat){
            .w = *projs[i].w,
            .y = projs[i].y,
            .residual = projs[i].residual,
            .y_stride = projs[i].w->n_row,
        };
    for (int i = 0; i < n_proj; i++) {
        p->bytes += (double)projs[i].w->mat_bytes;
        p->macs += (double)projs[i].w->n * projs[i].w->n_row * (double)n_tok;
    }
    pn_gpu_launch(p, pn_matmul_dims(&a, pn_gpu_n_sm(p)), &a);
}

bool pn_gpu_project_tail(pn_qwen35moe_gpu_pass *p, const pn_qwen35moe_gpu_acts *x, size_t n_tok,
                         const pn_gpu_proj *projs, int n_proj, const pn_tail *tail)
{
    PN_ASSERT(n_proj >= 1 && n_proj <= PN_MATMUL_MATS);
    const bool is_one = pn_gpu_fuses(p, PN_FUSE_PROJ);
    const bool adds = pn_gpu_fuses(p, PN_FUSE_RESIDUAL);
    const bool has_tail =
        tail->kind != PN_TAIL_NONE && is_one && adds && n_tok <= PN_GPU_TAIL_TOKENS;
    pn_gpu_proj parts[PN_MATMUL_MATS];
    for (int i = 0; i < n_proj; i++) {
        parts[i] = projs[i];
        if (projs[i].residual && !adds) {
            parts[i].residual = NULL;
            parts[i].y = projs[i].y ? projs[i].y : pn_gpu_ws(p)->spare;
        }
    }
    if (is_one)
        matmul(p, x, n_tok, parts, n_proj, has_tail ? tail : NULL);
    for (int i = 0; !is_one && i < n_proj; i++)
        matmul(p, x, n_tok, &parts[i], 1, NULL);
    for (int i = 0; i < n_proj; i++)
        if (projs[i].residual && !adds)
            add(p, projs[i].residual, parts[i].y, n_tok * projs[i].w->n_row);
    return has_tail;
}

void pn_gpu_project(pn_qwen35moe_gpu_pass *p, const pn_qwen35moe_gpu_acts *x, size_t n_tok,
                    const pn_gpu_proj *projs, int n_proj)
{
    static const pn_tail none;
    pn_gpu_project_tail(p, x, n_tok, projs, n_proj, &none);
}

bool pn_gpu_norm_tail(const pn_qwen35moe_gpu_pass *p, const float *x, const float *w, size_t n_tok,
                      pn_tail *tail)
{
    const pn_qwen35moe *const m = p->c.m;
    *tail = (pn_tail){ 0 };
    if (!pn_gpu_fuses(p, PN_FUSE_TAIL) || !pn_gpu_fuses(p, PN_FUSE_NORM) ||
        n_tok > PN_GPU_TAIL_TOKENS)
        return false;
    tail->kind = PN_TAIL_NORM;
    tail->count = pn_gpu_ws(p)->tail_count;
    tail->norm =
        pn_gpu_norm_args(p, &pn_gpu_ws(p)->embd, m->need_embd, x, w, n_tok, (size_t)m->cfg.n_embd);
    return true;
}

void pn_gpu_project_norm(pn_qwen35moe_gpu_pass *p, const pn_qwen35moe_gpu_acts *acts, size_t n_tok,
                         const pn_gpu_proj *proj, const float *next)
{
    pn_tail tail = { 0 };
    if (next)
        pn_gpu_norm_tail(p, proj->residual, next, n_tok, &tail);
    p->is_normed = pn_gpu_project_tail(p, acts, n_tok, proj, 1, &tail);
}
