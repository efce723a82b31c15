/* What a pass uploads, in one copy: embeddings, rotation angles, and the tables by which kernels
 * find each sequence's state and pages. */
#include "models/qwen35moe_cuda.h"

#include "base/carve.h"

#include <string.h>

enum {
    PAGES_MAX = 1 << 16, /* of all parts of a pass together: 8 million positions */
    ALIGN = 256
};

/* The same division twice: of pinned memory, and of the GPU's copy of it. */
typedef struct block {
    float *x; /* first: what may be left out */
    float *cos_t, *sin_t;
    pn_cuda_part *parts;
    int32_t *tok_part, *out_row, *out_part, *old_row;
    uint8_t **pages; /* of all parts, one after the other */
} block;

static size_t divide(const pn_qwen35moe *m, size_t n_tok, size_t n_part, size_t n_out,
                     size_t n_page, uint64_t base, block *b)
{
    const size_t n_pair = (size_t)m->cfg.rope.n_rot / 2;
    pn_carver c = { base, 0, ALIGN };
    b->x = pn_carve(&c, sizeof(float), n_tok * (size_t)m->cfg.n_embd);
    b->cos_t = pn_carve(&c, sizeof(float), n_tok * n_pair);
    b->sin_t = pn_carve(&c, sizeof(float), n_tok * n_pair);
    b->parts = pn_carve(&c, sizeof *b->parts, n_part);
    b->tok_part = pn_carve(&c, sizeof(int32_t), n_tok);
    b->out_row = pn_carve(&c, sizeof(int32_t), n_out);
    b->out_part = pn_carve(&c, sizeof(int32_t), n_out);
    b->old_row = pn_carve(&c, sizeof(int32_t), n_tok);
    b->pages = pn_carve(&c, sizeof *b->pages, n_page);
    return c.used;
}

size_t pn_qwen35moe_index_bytes(const pn_qwen35moe *m, size_t n_batch)
{
    block b;
    return divide(m, n_batch, n_batch, n_batch, PAGES_MAX, 0, &b);
}

/* --- twins ------------------------------------------------------------------------------------ */

static int page_kind(const pn_seq *seq)
{
    return 1 + (int)seq->kv_type;
}

static int n_page_held(const pn_part *part)
{
    return pn_seq_n_page(part->seq->pos + part->n_tok);
}

static bool bring(pn_twins *t, const pn_seq *seq)
{
    const size_t n_page = (size_t)pn_seq_n_page(seq->pos);
    const bool has_state = pn_twins_bring(t, &seq->rec, seq->rec != NULL, 0);
    return pn_twins_bring(t, seq->pages, n_page, page_kind(seq)) && has_state;
}

bool pn_qwen35moe_gpu_bring(pn_exec *ex, pn_seq *seq)
{
    return bring(((pn_qwen35moe_gpu *)ex->gpu)->gpus.twins, seq);
}

static pn_status hold_part(pn_twins *t, const pn_part *part, pn_err *err)
{
    pn_seq *const seq = part->seq;
    const int first = seq->pos / PN_KV_CHUNK;
    bring(t, seq); /* all at once; then each is waited for */
    PN_TRY(pn_twins_hold(t, seq->rec, 0, true, err));
    for (int i = 0; i < n_page_held(part); i++)
        PN_TRY(pn_twins_hold(t, seq->pages[i], page_kind(seq), i >= first, err));
    return PN_OK;
}

int pn_qwen35moe_gpu_hold(pn_qwen35moe_gpu *q, const pn_part *parts, int n_part, pn_status *st,
                          pn_err *err)
{
    size_t n_page = 0;
    *st = PN_OK;
    for (int ip = 0; ip < n_part; ip++) {
        n_page += (size_t)n_page_held(&parts[ip]);
        *st = n_page > PAGES_MAX
                  ? pn_fail(err, PN_ERR_LIMIT, "%zu pages are too many for a pass", n_page)
                  : hold_part(q->gpus.twins, &parts[ip], err);
        if (*st != PN_OK)
            return ip;
    }
    return n_part;
}

/* --- tables ----------------------------------------------------------------------------------- */

static int n_page_of(const pn_qwen35moe_pass *p, int ip)
{
    return pn_seq_n_page(pn_qwen35moe_pos(p, ip) + p->parts[ip].n_tok);
}

/* Fills the pinned block; pointers in it are those of the GPU, whose copy of the page table begins
 * at `pages`. */
static void fill(pn_qwen35moe_gpu_pass *p, const block *b, uint8_t *const *pages)
{
    const pn_qwen35moe_ws *const ws = p->c.ws;
    const pn_twins *const t = p->q->gpus.twins;
    size_t i_page = 0, i_out = 0;
    for (int ip = 0; ip < p->c.n_part; ip++) {
        const pn_part *const part = &p->c.parts[ip];
        const pn_seq *const seq = part->seq;
        const int tok0 = ws->part_off[ip];
        uint8_t *const rec = pn_twins_at(t, seq->rec, p->g);
        b->parts[ip] = (pn_cuda_part){
            .tok0 = tok0,
            .n_tok = part->n_tok,
            .pos = pn_qwen35moe_pos(&p->c, ip),
            .kv_type = (int32_t)seq->kv_type,
            .conv = (float *)rec,
            .state = (float *)(rec ? rec + p->q->state_at[p->g] : NULL),
            .pages = pages + i_page,
        };
        for (int i = 0; i < n_page_of(&p->c, ip); i++)
            b->pages[i_page++] = pn_twins_at(t, seq->pages[i], p->g);
        for (int i = 0; i < part->n_tok; i++) {
            b->tok_part[tok0 + i] = ip;
            b->old_row[tok0 + i] = p->q->first_row[ws->part_id[ip]] + i;
        }
        for (int i = part->n_tok - part->n_logits; i < part->n_tok; i++, i_out++) {
            b->out_row[i_out] = tok0 + i;
            b->out_part[i_out] = ip;
        }
    }
}

void pn_gpu_index(pn_qwen35moe_gpu_pass *p, bool has_x)
{
    const pn_qwen35moe *const m = p->c.m;
    const pn_qwen35moe_ws *const ws = p->c.ws;
    const size_t n_pair = (size_t)m->cfg.rope.n_rot / 2, n_tok = p->c.n_tok;
    size_t n_page = 0;
    p->n_out = 0;
    for (int ip = 0; ip < p->c.n_part; ip++) {
        n_page += (size_t)n_page_of(&p->c, ip);
        p->n_out += (size_t)p->c.parts[ip].n_logits;
    }
    if (p->st != PN_OK)
        return; /* a table before it may still be on its way */
    block host, gpu;
    uint8_t *const to = pn_gpu_ws(p)->index, *const from = p->q->index[p->g];
    const size_t n_part = (size_t)p->c.n_part;
    const size_t bytes = divide(m, n_tok, n_part, p->n_out, n_page, (uintptr_t)from, &host);
    divide(m, n_tok, n_part, p->n_out, n_page, (uintptr_t)to, &gpu);
    fill(p, &host, gpu.pages);
    memcpy(host.cos_t, ws->cos_t, n_tok * n_pair * sizeof(float));
    memcpy(host.sin_t, ws->sin_t, n_tok * n_pair * sizeof(float));
    if (has_x)
        memcpy(host.x, ws->x, n_tok * (size_t)m->cfg.n_embd * sizeof(float));
    const size_t skip = has_x ? 0 : (size_t)((uint8_t *)host.cos_t - from);
    fc_stream *const s = pn_gpu_stream(p);
    if (!p->c.n_before) /* the marks of micro-batches add up */
        p->st = fc_fill(s, pn_gpu_ws(p)->bad, 0, n_part * sizeof(int32_t), p->err);
    if (p->st == PN_OK)
        p->st = fc_copy_in(s, to + skip, from + skip, bytes - skip, p->err);
    if (p->st == PN_OK && has_x)
        p->st = fc_copy(s, pn_gpu_ws(p)->x, gpu.x, n_tok * (size_t)m->cfg.n_embd * sizeof(float),
                        p->err);
    p->index[p->g] = (pn_qwen35moe_gpu_index){
        .parts = gpu.parts,
        .tok_part = gpu.tok_part,
        .out_row = gpu.out_row,
        .out_part = gpu.out_part,
        .old_row = gpu.old_row,
        .cos_t = gpu.cos_t,
        .sin_t = gpu.sin_t,
    };
    p->is_indexed[p->g] = true;
}
