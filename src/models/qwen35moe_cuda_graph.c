/* Decoding is many short launches, whose cost for the host is more than the work of small models.
 * So a pass of single tokens whose launches are those of one before is recorded, and from then on
 * replayed by one call. All that differs between such passes is in device memory (the tables that
 * pn_gpu_index uploads); what is in the launches themselves is the key. */
#include "models/qwen35moe_cuda.h"

#include <string.h>

static pn_qwen35moe_gpu_key key_of(const pn_qwen35moe_gpu_pass *p)
{
    pn_qwen35moe_gpu_key key;
    memset(&key, 0, sizeof key); /* with what is between the fields: keys are compared by bytes */
    key.x = pn_gpu_ws(p)->x;
    key.n_part = p->c.n_part;
    key.n_out = (int)p->n_out;
    for (int ip = 0; ip < p->c.n_part; ip++) {
        const pn_seq *const seq = p->c.parts[ip].seq;
        const int n_chunk = pn_seq_n_page(pn_qwen35moe_pos(&p->c, ip) + 1);
        key.n_chunk = n_chunk > key.n_chunk ? n_chunk : key.n_chunk;
        key.kv_types |= 1u << seq->kv_type;
    }
    return key;
}

bool pn_gpu_records(const pn_qwen35moe_gpu_pass *p)
{
    const pn_qwen35moe_gpu *const q = p->q;
    return q->gpus.n == 1 && !q->gpus.plan.n_cpu_moe && !q->times_stages && !q->lacks_graphs &&
           p->c.n_tok == (size_t)p->c.n_part && p->c.n_tok <= PN_QMV_COLS &&
           fc_device_get_info(q->gpus.device[0])->can_graph;
}

/* The entry of a key, or the one that was used longest ago, made free for it. */
static pn_qwen35moe_gpu_graph *find(pn_qwen35moe_gpu *q, const pn_qwen35moe_gpu_key *key)
{
    pn_qwen35moe_gpu_graph *oldest = &q->graphs[0];
    for (int i = 0; i < PN_GPU_GRAPHS; i++) {
        pn_qwen35moe_gpu_graph *const g = &q->graphs[i];
        if (g->used_at && memcmp(&g->key, key, sizeof *key) == 0)
            return g;
        oldest = g->used_at < oldest->used_at ? g : oldest;
    }
    fc_graph_free(oldest->graph);
    *oldest = (pn_qwen35moe_gpu_graph){ .key = *key };
    return oldest;
}

/* What a recorded pass adds to the profile; attention's work grows with the positions. */
static void take_stages(const pn_exec *ex, pn_stage_profile *stages)
{
    memcpy(stages, ex->stages[1], sizeof ex->stages[1]);
}

static void subtract(pn_stage_profile *after, const pn_stage_profile *before)
{
    for (int i = 0; i < PN_STAGE_COUNT; i++) {
        after[i].bytes -= before[i].bytes;
        after[i].macs -= before[i].macs;
        after[i].launches -= before[i].launches;
    }
}

static void add_stages(const pn_qwen35moe_gpu_pass *p, const pn_stage_profile *more)
{
    pn_exec *const ex = p->c.ex;
    for (int i = 0; ex->profile && i < PN_STAGE_COUNT; i++) {
        pn_stage_profile *const s = &ex->stages[1][i];
        s->bytes += i == PN_STAGE_ATTN ? 0 : more[i].bytes;
        s->macs += i == PN_STAGE_ATTN ? 0 : more[i].macs;
        s->launches += more[i].launches;
        for (int k = 0; i == PN_STAGE_ATTN && k < p->c.m->n_attn; k++)
            pn_qwen35moe_attn_count(&p->c, &p->c.m->attn[k], &s->bytes, &s->macs);
    }
}

/* Records the pass; false: this driver does not, and nothing is queued. */
static bool record(pn_qwen35moe_gpu_pass *p, pn_qwen35moe_gpu_graph *g,
                   void (*compute)(pn_qwen35moe_gpu_pass *))
{
    pn_stage_profile before[PN_STAGE_COUNT];
    take_stages(p->c.ex, before);
    if (fc_graph_begin(pn_gpu_stream(p), NULL) != PN_OK)
        return false;
    compute(p);
    const pn_status st = fc_graph_end(pn_gpu_stream(p), &g->graph, NULL);
    take_stages(p->c.ex, g->stages);
    memcpy(p->c.ex->stages[1], before, sizeof before);
    subtract(g->stages, before);
    if (p->st == PN_OK && st == PN_OK)
        return true;
    fc_graph_free(st == PN_OK ? g->graph : NULL);
    g->graph = NULL;
    p->st = PN_OK; /* what failed will fail again when it is done without */
    p->is_normed = false;
    return false;
}

void pn_gpu_run_recorded(pn_qwen35moe_gpu_pass *p, void (*compute)(pn_qwen35moe_gpu_pass *))
{
    pn_qwen35moe_gpu *const q = p->q;
    const pn_qwen35moe_gpu_key key = key_of(p);
    pn_qwen35moe_gpu_graph *const g = find(q, &key);
    const bool is_new = !g->used_at;
    g->used_at = ++q->graph_clock;
    if (!is_new && !g->graph)
        q->lacks_graphs = !record(p, g, compute);
    if (is_new || q->lacks_graphs || p->st != PN_OK) {
        compute(p);
        return;
    }
    p->st = fc_graph_launch(g->graph, pn_gpu_stream(p), p->err);
    p->is_normed = false;
    add_stages(p, g->stages);
    q->n_replayed++;
}

void pn_gpu_graphs_clear(pn_qwen35moe_gpu *q)
{
    for (int i = 0; i < PN_GPU_GRAPHS; i++)
        fc_graph_free(q->graphs[i].graph);
    memset(q->graphs, 0, sizeof q->graphs);
}
