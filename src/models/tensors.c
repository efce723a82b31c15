#include "models/tensors.h"

#include "base/tensor_types.h"

#include <inttypes.h>
#include <stdio.h>

/* "256 x 512 x 8" */
static void print_dims(char *out, size_t bytes, int n_dims, const uint64_t *dims)
{
    size_t at = 0;
    out[0] = '\0';
    for (int i = 0; i < n_dims && at < bytes; i++)
        at += (size_t)snprintf(out + at, bytes - at, "%s%" PRIu64, i ? " x " : "", dims[i]);
}

static pn_status check_shape(const pn_gguf_tensor *t, const uint64_t *want, int n_want, pn_err *err)
{
    bool same = true;
    for (int i = 0; i < PN_GGUF_MAX_DIMS; i++) {
        const uint64_t have = i < t->n_dims ? t->dims[i] : 1;
        same = same && have == (i < n_want ? want[i] : 1);
    }
    if (same)
        return PN_OK;
    while (n_want > 1 && want[n_want - 1] == 1)
        n_want--;
    char have[96], expected[96];
    print_dims(have, sizeof have, t->n_dims, t->dims);
    print_dims(expected, sizeof expected, n_want, want);
    return pn_fail(err, PN_ERR_FORMAT, "%s: its shape is %s, expected %s", t->name, have, expected);
}

static pn_status find(const pn_gguf *file, const char *name, const uint64_t *want, int n_want,
                      const pn_gguf_tensor **tensor, pn_err *err)
{
    const pn_gguf_tensor *const t = pn_gguf_find_tensor(file, name);
    if (!t)
        return pn_fail(err, PN_ERR_FORMAT, "%s: this tensor is missing from the file", name);
    if (!pn_type_get(t->type) || !t->data)
        return pn_fail(err, PN_ERR_UNSUPPORTED,
                       "%s: type %s (%" PRIu32 ") is not supported; "
                       "supported: %s",
                       name, pn_tensor_type_name(t->type), t->type, pn_type_supported_names());
    PN_TRY(check_shape(t, want, n_want, err));
    *tensor = t;
    return PN_OK;
}

pn_status pn_tensor_matrix(const pn_gguf *file, const char *name, size_t n, size_t n_row,
                           size_t n_mat, pn_qweight *w, pn_err *err)
{
    const uint64_t want[] = { n, n_row, n_mat };
    const pn_gguf_tensor *t = NULL;
    PN_TRY(find(file, name, want, 3, &t, err));
    PN_TRY(pn_qweight_init(w, t->name, t->type, t->data, n, n_row, n_mat, err));
    PN_ASSERT(w->mat_bytes * n_mat == t->n_bytes);
    return PN_OK;
}

pn_status pn_tensor_float_rows(const pn_gguf *file, const char *name, size_t n_col, size_t n_row,
                               float *out, pn_err *err)
{
    pn_qweight w;
    PN_TRY(pn_tensor_matrix(file, name, n_col, n_row, 1, &w, err));
    for (size_t r = 0; out && r < n_row; r++)
        pn_qweight_dequant_row(&w, 0, r, out + r * n_col);
    return PN_OK;
}

pn_status pn_tensor_floats(const pn_gguf *file, const char *name, size_t n, float *out, pn_err *err)
{
    return pn_tensor_float_rows(file, name, n, 1, out, err);
}
