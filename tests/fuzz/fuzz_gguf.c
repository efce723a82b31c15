/* Fuzz target: any bytes as a GGUF file. Opening either fails with a message or gives tables whose
 * every key, string and tensor byte can be read. */

#include "base/status.h"
#include "gguf/gguf.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned sum; /* of what was read, so that reading is not optimised away */

static void read_key(const pn_gguf *f, size_t i)
{
    const char *name;
    pn_gguf_type type, elem;
    uint64_t len;
    uint32_t u;
    float x;
    bool b;
    pn_span s;
    pn_gguf_str_it it = { 0 };
    pn_gguf_key_at(f, i, &name, &type, &elem, &len);
    (void)pn_gguf_get_u32(f, name, &u, NULL);
    (void)pn_gguf_get_f32(f, name, &x, NULL);
    (void)pn_gguf_get_bool(f, name, &b, NULL);
    if (pn_gguf_get_str(f, name, &s, NULL) == PN_OK && s.len > 0)
        sum += (unsigned char)s.ptr[s.len - 1];
    int32_t ints[8];
    float floats[8];
    const size_t n = len < 8 ? (size_t)len : 8;
    (void)pn_gguf_get_arr_i32(f, name, n, ints, NULL);
    (void)pn_gguf_get_arr_f32(f, name, n, floats, NULL);
    if (pn_gguf_check_str_arr(f, name, &len, NULL) != PN_OK)
        return;
    while (pn_gguf_next_str(f, name, &it, &s))
        sum += s.len ? (unsigned char)s.ptr[s.len - 1] : 0;
    if (it.i != len)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pn_gguf *f = NULL;
    pn_err err = { 0 };
    if (pn_gguf_open_mem(data, size, &f, &err) != PN_OK) {
        if (err.code == PN_OK || !err.msg[0] || f)
            abort();
        return 0;
    }
    for (size_t i = 0; i < pn_gguf_n_keys(f); i++)
        read_key(f, i);
    for (size_t i = 0; i < pn_gguf_n_tensors(f); i++) {
        const pn_gguf_tensor *const t = pn_gguf_tensor_at(f, i);
        if (pn_gguf_find_tensor(f, t->name) != t)
            abort();
        for (size_t k = 0; k < t->n_bytes; k++)
            sum += t->data[k];
    }
    pn_gguf_close(f);
    return 0;
}
