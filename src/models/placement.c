#include "models/placement.h"

#include "base/mem.h"
#include "models/expert_cache.h"

#include <stdio.h>
#include <string.h>

/* One way to do it, before it is written down. */
typedef struct candidate {
    int n_gpu, split_layer, n_cpu;
    int last_cpu
        [PN_GPU_MAX]; /* layers before it, of the GPU's own, have their experts on the CPU */
    pn_gpu_share shares[PN_GPU_MAX];
    double fill; /* of the fuller GPU, 0..1 */
} candidate;

typedef struct sums {
    size_t dense, experts, state, page;
} sums;

static sums sum_layers(const pn_layer_bytes *layers, int from, int to)
{
    sums s = { 0 };
    for (int il = from; il < to; il++) {
        s.dense += layers[il].trunk + layers[il].shared;
        s.experts += layers[il].experts;
        s.state += layers[il].state;
        s.page += layers[il].page;
    }
    return s;
}

/* Places layers [from, to) on GPU g. False: they do not fit; *lacking bytes then. */
static bool place_on(const pn_placement_in *in, candidate *c, int g, int from, int to,
                     size_t *lacking)
{
    const bool has_head = g == c->n_gpu - 1;
    const sums s = sum_layers(in->layers, from, to);
    const size_t dense = s.dense + (has_head ? in->head : 0);
    const size_t work = from < to || has_head ? in->work[g] : 0;
    const size_t blocks = in->n_state * s.state + in->n_page * s.page;
    const size_t room = in->gpus[g].free_bytes;
    size_t need = dense + work + blocks, experts = s.experts;
    int il = from;
    for (; il < to && (il < in->n_cpu_moe || need + experts > room); il++) {
        experts -= in->layers[il].experts;
        c->n_cpu++;
    }
    need += experts;
    *lacking = need > room ? need - room : 0;
    const size_t want = in->want_state * s.state + in->want_page * s.page;
    const size_t left = *lacking ? 0 : room - need;
    const size_t more = want > blocks ? want - blocks : 0;
    c->last_cpu[g] = il;
    c->shares[g] = (pn_gpu_share){
        .weights = dense + experts,
        .work = work,
        .sequences = blocks + (more < left ? more : left),
    };
    const double fill = room ? (double)need / (double)room : 0;
    c->fill = fill > c->fill ? fill : c->fill;
    return !*lacking;
}

static bool is_better(const candidate *a, const candidate *b)
{
    if (a->n_cpu != b->n_cpu)
        return a->n_cpu < b->n_cpu;
    return a->n_gpu != b->n_gpu ? a->n_gpu < b->n_gpu : a->fill < b->fill;
}

/* What is least short, for the message. */
typedef struct shortage {
    size_t bytes;
    int gpu;
} shortage;

/* Tries one division; keeps it in *best if it fits and is better. */
static void try_split(const pn_placement_in *in, int n_gpu, int split, candidate *best,
                      shortage *least)
{
    candidate c = { .n_gpu = n_gpu, .split_layer = split };
    const int first[] = { 0, split, in->n_layer };
    bool fits = true;
    shortage worst = { 0 };
    for (int g = 0; g < n_gpu; g++) {
        size_t lacking;
        const int end = g == n_gpu - 1 ? in->n_layer : first[g + 1];
        fits = place_on(in, &c, g, first[g], end, &lacking) && fits;
        if (lacking > worst.bytes)
            worst = (shortage){ lacking, g };
    }
    if (fits && (!best->n_gpu || is_better(&c, best)))
        *best = c;
    if (!fits && worst.bytes < least->bytes)
        *least = worst;
}

/* --- the chosen one --------------------------------------------------------------------------- */

void pn_placement_cache_bytes(const pn_placement *plan, const pn_layer_bytes *layers, int n_expert,
                              int g, size_t *bytes)
{
    for (int il = 0; il < plan->n_layer; il++) {
        const pn_place p = plan->layers[il];
        bytes[il] =
            p.gpu == g && p.experts == PN_PLACE_CPU ? layers[il].experts / (size_t)n_expert : 0;
    }
}

/* Of layers [from, to) of GPU g as many more as had to give way share their room with those: half
 * of their experts, if they are those that are used most, serve most tokens, while each of these
 * layers costs a token the way to the CPU and back. */
static void share_room(const pn_placement_in *in, const candidate *c, int g, int from, int to,
                       pn_placement *plan)
{
    const int asked = in->n_cpu_moe < from ? from : in->n_cpu_moe < to ? in->n_cpu_moe : to;
    const int first = c->last_cpu[g], n_short = first - asked;
    const int end = first + n_short < to ? first + n_short : to;
    const sums shared = sum_layers(in->layers, first, end);
    if (in->cache_max < shared.experts)
        return;
    plan->shares[g].weights -= shared.experts;
    for (int il = first; il < end; il++)
        plan->layers[il].experts = PN_PLACE_CPU;
}

/* Of what is left room for experts on their way, the largest of GPU g's layers on the CPU, if there
 * is so much; then for the most used ones. bytes: room for [n_layer]. */
static void add_experts(const pn_placement_in *in, int g, size_t *bytes, pn_placement *plan)
{
    pn_gpu_share *const s = &plan->shares[g];
    size_t left = in->gpus[g].free_bytes - s->weights - s->work - s->sequences, most = 0;
    pn_placement_cache_bytes(plan, in->layers, in->n_expert, g, bytes);
    for (int il = 0; il < in->n_layer; il++) {
        most = bytes[il] > most ? bytes[il] : most;
        s->n_cacheable += bytes[il] ? (size_t)in->n_expert : 0;
    }
    s->stream = most * (size_t)in->n_stream <= left ? most * (size_t)in->n_stream : 0;
    left -= s->stream;
    const pn_expert_room room = {
        .bytes = bytes,
        .n_layer = in->n_layer,
        .n_expert = in->n_expert,
        .room = left < in->cache_max ? left : in->cache_max,
    };
    s->n_cached = pn_expert_room_slots(&room, &s->cache);
}

static pn_status write_down(const pn_placement_in *in, const candidate *c, pn_placement *plan,
                            pn_err *err)
{
    pn_place *const layers = pn_calloc((size_t)in->n_layer, sizeof *layers);
    size_t *const bytes = pn_calloc((size_t)in->n_layer, sizeof *bytes);
    if (!layers || !bytes) {
        pn_free(layers);
        pn_free(bytes);
        return pn_fail(err, PN_ERR_NOMEM, "no memory for a plan");
    }
    *plan = (pn_placement){
        .layers = layers,
        .n_layer = in->n_layer,
        .split_layer = c->split_layer,
        .n_gpu = c->n_gpu,
    };
    memcpy(plan->gpus, in->gpus, sizeof plan->gpus);
    memcpy(plan->shares, c->shares, sizeof plan->shares);
    for (int il = 0; il < in->n_layer; il++) {
        const int8_t g = il >= c->split_layer;
        layers[il] = (pn_place){ g, il < c->last_cpu[g] ? PN_PLACE_CPU : g };
    }
    for (int g = 0; g < c->n_gpu && in->n_expert; g++) {
        const int to = g == c->n_gpu - 1 ? in->n_layer : c->split_layer;
        share_room(in, c, g, g ? c->split_layer : 0, to, plan);
        add_experts(in, g, bytes, plan);
    }
    for (int il = 0; il < in->n_layer; il++) {
        plan->n_cpu_moe += layers[il].experts == PN_PLACE_CPU;
        plan->cpu_bytes += layers[il].experts == PN_PLACE_CPU ? in->layers[il].experts : 0;
    }
    pn_free(bytes);
    return PN_OK;
}

pn_status pn_placement_make(const pn_placement_in *in, pn_placement *plan, pn_err *err)
{
    PN_REQUIRE(in->n_layer >= 1 && in->n_gpu >= 1 && in->n_gpu <= PN_GPU_MAX, err);
    const bool has_split = in->split_layer >= 0;
    if (has_split && in->n_gpu < 2)
        return pn_fail(err, PN_ERR_ARG, "a split at layer %d needs two GPUs", in->split_layer);
    if (in->split_layer > in->n_layer)
        return pn_fail(err, PN_ERR_ARG, "a split at layer %d: the model has %d", in->split_layer,
                       in->n_layer);
    candidate best = { 0 };
    shortage least = { .bytes = SIZE_MAX };
    if (!has_split && (in->n_gpu == 1 || !in->uses_all))
        try_split(in, 1, in->n_layer, &best, &least);
    const int first = has_split ? in->split_layer : in->n_layer > 1;
    const int last = has_split ? in->split_layer : in->n_layer - 1;
    for (int split = first; in->n_gpu == 2 && split <= last; split++)
        try_split(in, 2, split, &best, &least);
    if (!best.n_gpu)
        return pn_fail(err, PN_ERR_LIMIT,
                       "GPU %d (%s) has %zu MiB to use, %zu MiB more are needed even with all "
                       "routed experts on the CPU",
                       in->gpus[least.gpu].ordinal, in->gpus[least.gpu].name,
                       in->gpus[least.gpu].free_bytes >> 20, (least.bytes >> 20) + 1);
    return write_down(in, &best, plan, err);
}

void pn_placement_clear(pn_placement *plan)
{
    pn_free(plan->layers);
    *plan = (pn_placement){ 0 };
}

/* --- printing --------------------------------------------------------------------------------- */

static const char *place_name(const pn_placement *plan, int gpu, char out[24])
{
    if (gpu == PN_PLACE_CPU)
        return "CPU";
    snprintf(out, 24, "GPU %d", plan->gpus[gpu].ordinal);
    return out;
}

void pn_placement_print(const pn_placement *plan, pn_buf *out)
{
    char range[32], on[24], experts[24];
    pn_buf_addf(out, "%-10s %-46s %s\n", "layers", "trunk, state, router, shared expert",
                "routed experts");
    for (int il = 0, end; il < plan->n_layer; il = end) {
        const pn_place p = plan->layers[il];
        for (end = il; end < plan->n_layer && plan->layers[end].gpu == p.gpu &&
                       plan->layers[end].experts == p.experts;)
            end++;
        snprintf(range, sizeof range, end - il > 1 ? "%d-%d" : "%d", il, end - 1);
        pn_buf_addf(out, "%-10s %-46s %s\n", range, place_name(plan, p.gpu, on),
                    place_name(plan, p.experts, experts));
    }
    for (int g = 0; g < plan->n_gpu; g++) {
        const pn_gpu_share *const s = &plan->shares[g];
        const size_t used = s->weights + s->work + s->sequences + s->stream + s->cache;
        pn_buf_addf(out,
                    "GPU %d (%s): %zu MiB weights, %zu MiB workspace, %zu MiB for sequences, "
                    "%zu MiB left\n",
                    plan->gpus[g].ordinal, plan->gpus[g].name, s->weights >> 20, s->work >> 20,
                    s->sequences >> 20, (plan->gpus[g].free_bytes - used) >> 20);
    }
    for (int g = 0; g < plan->n_gpu; g++)
        if (plan->shares[g].stream)
            pn_buf_addf(out,
                        "experts: %zu MiB of GPU %d for those that pass through for long "
                        "prompts\n",
                        plan->shares[g].stream >> 20, plan->gpus[g].ordinal);
    for (int g = 0; g < plan->n_gpu; g++)
        if (plan->shares[g].cache)
            pn_buf_addf(out, "experts: %zu MiB of GPU %d for the most used %zu of %zu\n",
                        plan->shares[g].cache >> 20, plan->gpus[g].ordinal,
                        plan->shares[g].n_cached, plan->shares[g].n_cacheable);
    if (plan->n_cpu_moe)
        pn_buf_addf(out, "CPU: %zu MiB of routed experts\n", plan->cpu_bytes >> 20);
    const pn_pinned *const p = &plan->pinned;
    pn_buf_addf(out,
                "pinned: %zu MiB of this machine's memory, %zu for states on their way, %zu for "
                "experts, %zu for passes\n",
                (p->states + p->experts + p->passes) >> 20, p->states >> 20, p->experts >> 20,
                p->passes >> 20);
}
