/* Fuzz target: any bytes as weights and activations, through every level of the kernel table that
 * the processor has. All give the scalar level's bits, and none reads past the blocks.
 *
 * Input: type, rows, columns and blocks a row, one byte each; then the activations as floats, then
 * the weights; what is missing is zero. */

#include "base/tensor_types.h"
#include "kernels/kernels.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    MAX_ROW = 36,
    MAX_COL = 20,
    MAX_UNIT = 5
};

typedef struct input {
    uint32_t type;
    const pn_type_info *info;
    size_t n_row, n_col, n, row_bytes, act_bytes;
    const float *x;   /* [n_col][n] */
    const uint8_t *w; /* [n_row][row_bytes] */
} input;

/* The next bytes bytes of the input, zeros behind its end, in a block of their own that a sanitizer
 * guards; freed by the caller. */
static uint8_t *take(const uint8_t **data, size_t *size, size_t bytes)
{
    uint8_t *const p = calloc(bytes ? bytes : 1, 1);
    const size_t n = *size < bytes ? *size : bytes;
    memcpy(p, *data, n);
    *data += n;
    *size -= n;
    return p;
}

static bool is_nan(float f)
{
    return f != f;
}

/* Quantises by k, runs its gemm and its qmv; y [n_col][n_row]. act [n_col][act_bytes]. */
static void run(const pn_kernels *k, const input *in, uint8_t *act, float *y)
{
    const void *xs[MAX_COL];
    float *ys[MAX_COL];
    for (size_t c = 0; c < in->n_col; c++) {
        uint8_t *const a = act + c * in->act_bytes;
        const float *const x = in->x + c * in->n;
        if (in->info->act == PN_ACT_F32)
            memcpy(a, x, in->act_bytes);
        else
            (in->info->act == PN_ACT_Q8K ? k->quantize_q8k : k->quantize_q8s)(a, x, in->n);
        xs[c] = a;
        ys[c] = y + c * in->n_row;
    }
    const size_t scratch_bytes = (k->gemm_scratch_bytes(in->n) + 63) / 64 * 64;
    void *const scratch = aligned_alloc(64, scratch_bytes + 64);
    k->gemm[in->type](in->w, in->row_bytes, in->n_row, xs, ys, in->n_col, in->n, scratch);
    free(scratch);
    float *const y0 = calloc(in->n_row + 1, sizeof *y0);
    k->qmv[in->type](in->w, in->row_bytes, in->n_row, xs[0], in->n, y0);
    for (size_t r = 0; r < in->n_row; r++)
        if (memcmp(&y0[r], &y[r], sizeof *y) != 0 && !(is_nan(y0[r]) && is_nan(y[r])))
            abort(); /* one column alone is the product's column */
    free(y0);
}

static void compare_levels(const input *in)
{
    static pn_kernels k[PN_ISA_COUNT];
    const size_t act_all = in->n_col * in->act_bytes, n_y = in->n_col * in->n_row;
    uint8_t *ref_act = NULL;
    float *ref = NULL;
    for (pn_isa isa = PN_ISA_SCALAR; isa < PN_ISA_COUNT; isa++) {
        if (!pn_isa_present(isa))
            continue;
        if (!k[isa].qmv[in->type])
            pn_kernels_init(&k[isa], isa);
        uint8_t *const act = aligned_alloc(64, (act_all + 63) / 64 * 64);
        float *const y = calloc(n_y + 1, sizeof *y);
        run(&k[isa], in, act, y);
        if (!ref) { /* the scalar level comes first */
            ref = y;
            ref_act = act;
            continue;
        }
        if (memcmp(act, ref_act, act_all) != 0)
            abort();
        for (size_t i = 0; i < n_y; i++)
            if (memcmp(&y[i], &ref[i], sizeof *y) != 0 && !(is_nan(y[i]) && is_nan(ref[i])))
                abort();
        free(act);
        free(y);
    }
    free(ref);
    free(ref_act);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *const head = take(&data, &size, 4);
    input in = { .type = head[0] % PN_TYPE_COUNT };
    in.info = pn_type_get(in.type);
    in.n_row = head[1] % (MAX_ROW + 1);
    in.n_col = 1 + head[2] % MAX_COL;
    const size_t n_unit = 1 + head[3] % MAX_UNIT;
    free(head);
    if (!in.info)
        return 0;
    in.n = n_unit * in.info->unit;
    in.act_bytes = pn_act_bytes(in.info->act, in.n);
    if (!pn_tensor_type_row_bytes(in.type, in.n, &in.row_bytes))
        abort();
    float *const x = (float *)(void *)take(&data, &size, in.n_col * in.n * sizeof *x);
    uint8_t *const w = take(&data, &size, in.n_row * in.row_bytes);
    in.x = x;
    in.w = w;
    compare_levels(&in);
    free(x);
    free(w);
    return 0;
}
