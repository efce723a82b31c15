#include "cuda/matmul.h"

#include "base/status.h"
#include "cuda/layout.h"

enum {
    QMV_BEGIN = 3,        /* what a warp does before its first rows, in halves of such rows */
    UP_WARPS_PER_SM = 16, /* of pn_k_moe_up: as many as its registers leave room for */
    QMV_ITER_MAX = 8,     /* activations kept in registers are paid for by then */
    COMBINE_THREADS = 256
};

static uint32_t ceil_div(uint32_t a, uint32_t b)
{
    return (a + b - 1) / b;
}

static uint32_t max_u32(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

pn_dims pn_quantize_dims(const pn_quantize_args *a)
{
    const uint32_t n_group = a->n_vec * ceil_div(a->n, 256);
    return (pn_dims){ .kernel = "pn_k_quantize",
                      .grid = { ceil_div(n_group, PN_QMV_WARPS), 1, 1 },
                      .block = 32 * PN_QMV_WARPS };
}

/* --- plain products --------------------------------------------------------------------------- */

/* Blocks of the qmv kernels whose warps take each matrix's rows n_iter times. */
static uint32_t qmv_blocks(const pn_matmul_args *a, uint32_t n_iter)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < a->n_mat; i++) {
        const pn_dmat *const w = &a->mat[i].w;
        n += ceil_div(w->n_row, PN_QMV_WARPS * n_iter * pn_rows_at_once(w->type, w->n));
    }
    return n;
}

/* More iterations where the device's warps are used up anyway: as many as leave the busiest
 * multiprocessor the least to do. */
static void choose_iter(pn_matmul_args *a, int n_sm)
{
    uint32_t least = UINT32_MAX;
    for (uint32_t n = 1; n <= QMV_ITER_MAX; n++) {
        const uint32_t n_block = qmv_blocks(a, n);
        const uint32_t work = ceil_div(n_block, (uint32_t)n_sm) * (2 * n + QMV_BEGIN);
        if (work < least) {
            least = work;
            a->n_iter = n;
        }
        if (n_block <= (uint32_t)n_sm * PN_QMV_BLOCKS)
            break; /* all run at once */
    }
}

pn_dims pn_matmul_dims(pn_matmul_args *a, int n_sm)
{
    PN_ASSERT(a->n_mat >= 1 && a->n_mat <= PN_MATMUL_MATS);
    PN_ASSERT(n_sm > 0);
    const bool is_gemm = a->n_tok > PN_QMV_COLS;
    PN_ASSERT(!is_gemm || a->tail.kind == PN_TAIL_NONE);
    choose_iter(a, n_sm);
    uint32_t n_block = 0;
    for (uint32_t i = 0; i < a->n_mat; i++) {
        const pn_dmat *const w = &a->mat[i].w;
        a->mat[i].first = n_block;
        const uint32_t rows = PN_QMV_WARPS * a->n_iter * pn_rows_at_once(w->type, w->n);
        n_block += ceil_div(w->n_row, is_gemm ? PN_TILE_ROWS : rows);
    }
    if (is_gemm)
        return (pn_dims){ .kernel = "pn_k_gemm",
                          .grid = { n_block, ceil_div(a->n_tok, PN_TILE_COLS), 1 },
                          .block = 128 };
    a->n_early = (uint32_t)n_sm * PN_QMV_BLOCKS;
    return (pn_dims){ .kernel = a->n_tok == 1 ? "pn_k_qmv" : "pn_k_qmv_nx",
                      .grid = { n_block, 1, 1 },
                      .block = 32 * PN_QMV_WARPS,
                      .begins_early = 1,
                      .smem = a->tail.kind == PN_TAIL_ROUTER ? PN_TAIL_SMEM : 0 };
}

/* --- experts ---------------------------------------------------------------------------------- */

/* Blocks of the decode kernels that cover the rows of w by n_warp warps, n_iter times each; 0 where
 * there is no such matrix. */
static uint32_t row_blocks(const pn_dmat *w, uint32_t n_warp, uint32_t n_iter)
{
    if (!w->w)
        return 0;
    return ceil_div(w->n_row, n_warp * n_iter * pn_rows_at_once(w->type, w->n));
}

static uint32_t row_tiles(const pn_dmat *w)
{
    return w->w ? ceil_div(w->n_row, PN_TILE_ROWS) : 0;
}

/* Tiles that hold all tokens of all experts however they are spread, then those of the shared
 * expert. */
static uint32_t col_tiles(const pn_moe_route *r, bool has_experts, bool has_shexp)
{
    const uint32_t n_slot = r->n_tok * r->n_used;
    const uint32_t n_exp = r->n_expert < n_slot ? r->n_expert : n_slot;
    return (has_experts ? n_exp + n_slot / PN_MOE_TILE_COLS : 0) +
           (has_shexp ? ceil_div(r->n_tok, PN_MOE_TILE_COLS) : 0);
}

pn_dims pn_moe_up_dims(pn_moe_up_args *a, int n_sm)
{
    PN_ASSERT(n_sm > 0);
    const uint32_t n_warp = PN_QMV_WARPS / 2; /* two share rows */
    const uint32_t n_vec = a->route.n_tok * (a->route.n_used + 1);
    const uint32_t once =
        2 * n_vec * max_u32(row_blocks(&a->gate, 1, 1), row_blocks(&a->gate_shexp, 1, 1));
    /* as few as let all blocks run at once: a second round would take as long as the first */
    const uint32_t want = ceil_div(once, (uint32_t)n_sm * UP_WARPS_PER_SM);
    a->n_iter = want < 1 ? 1 : want > PN_MOE_UP_ITER ? PN_MOE_UP_ITER : want;
    return (pn_dims){ .kernel = "pn_k_moe_up",
                      .grid = { max_u32(row_blocks(&a->gate, n_warp, a->n_iter),
                                        row_blocks(&a->gate_shexp, n_warp, a->n_iter)),
                                a->route.n_used + 1, a->route.n_tok },
                      .block = 32 * PN_QMV_WARPS,
                      .begins_early = 1 };
}

pn_dims pn_moe_product_dims(const pn_moe_product_args *a)
{
    return (pn_dims){ .kernel = "pn_k_moe_product",
                      .grid = { max_u32(row_blocks(&a->w, PN_QMV_WARPS, PN_MOE_ITER),
                                        row_blocks(&a->w_shexp, PN_QMV_WARPS, PN_MOE_ITER)),
                                a->route.n_used + 1, a->route.n_tok },
                      .block = 32 * PN_QMV_WARPS };
}

/* Bytes of the larger of an expert's and the shared one's h, quantised. */
static uint32_t down_act_bytes(const pn_moe_down_args *a)
{
    const uint32_t n = max_u32(a->down.n, a->down_shexp.n);
    return ceil_div(n, 256) * (uint32_t)max_u32(sizeof(pn_q8k), sizeof(pn_q8s));
}

bool pn_moe_down_fits(const pn_moe_down_args *a)
{
    const uint32_t n_warp = a->route.n_used + 1;
    return n_warp <= PN_MOE_DOWN_WARPS && n_warp * down_act_bytes(a) <= PN_MOE_DOWN_SMEM;
}

pn_dims pn_moe_down_dims(const pn_moe_down_args *a)
{
    PN_ASSERT(pn_moe_down_fits(a));
    const uint32_t n_warp = a->route.n_used + 1;
    return (pn_dims){ .kernel = "pn_k_moe_down",
                      .grid = { ceil_div(a->down.n_row, PN_MOE_DOWN_ROWS), a->route.n_tok, 1 },
                      .block = 32 * max_u32(n_warp, 8), /* the tail's sum takes eight */
                      .smem = n_warp * down_act_bytes(a),
                      .begins_early = 1 };
}

pn_dims pn_moe_up_grouped_dims(const pn_moe_up_args *a)
{
    return (pn_dims){ .kernel = "pn_k_moe_up_grouped",
                      .grid = { max_u32(row_tiles(&a->gate), row_tiles(&a->gate_shexp)),
                                col_tiles(&a->route, a->gate.w, a->gate_shexp.w), 1 },
                      .block = 128 };
}

pn_dims pn_moe_product_grouped_dims(const pn_moe_product_args *a)
{
    return (pn_dims){ .kernel = "pn_k_moe_product_grouped",
                      .grid = { max_u32(row_tiles(&a->w), row_tiles(&a->w_shexp)),
                                col_tiles(&a->route, a->w.w, a->w_shexp.w), 1 },
                      .block = 128 };
}

pn_dims pn_moe_combine_dims(const pn_moe_combine_args *a)
{
    return (pn_dims){ .kernel = "pn_k_moe_combine",
                      .grid = { ceil_div(a->n_embd, COMBINE_THREADS), a->n_tok, 1 },
                      .block = COMBINE_THREADS };
}
