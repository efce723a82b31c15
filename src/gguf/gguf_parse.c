/* The tables of one GGUF file. Layout (GGUF specification, versions 2 and 3, little-endian):
 *
 *   "GGUF"  u32 version  u64 n_tensor  u64 n_kv
 *   n_kv x     { string key   u32 value type   value }
 *   n_tensor x { string name  u32 n_dims  u64 dims[n_dims]  u32 type  u64 offset }
 *   padding to general.alignment (32 when absent), then the data that the offsets count from
 *
 * with string = { u64 length  bytes } and array = { u32 element type  u64 length  elements }.
 * Counts and lengths are compared with the bytes that are left before anything is allocated or
 * walked, so the work is bounded by the file's size whatever it claims. */

#include "gguf/gguf_internal.h"

#include "base/mem.h"
#include "base/tensor_types.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    DEFAULT_ALIGNMENT = 32,       /* the specification's */
    MIN_ALIGNMENT = 8,            /* the specification wants a multiple of 8 */
    MAX_ALIGNMENT = 1 << 16,      /* ours: beyond any page size */
    KV_BYTES_MIN = 8 + 1 + 4 + 1, /* a one-letter key with a one-byte value */
    TENSOR_BYTES_MIN = 8 + 1 + 4 + 8 + 4 + 8
};

/* A reader that never passes the end of the file. */
typedef struct cursor {
    const uint8_t *bytes;
    size_t size, off;
} cursor;

static size_t left(const cursor *c)
{
    return c->size - c->off;
}

/* Copies n bytes to out; what names them in the message. */
static pn_status take(cursor *c, void *out, size_t n, const char *what, pn_err *err)
{
    if (n > left(c))
        return pn_fail(err, PN_ERR_FORMAT, "the file ends at byte %zu inside %s", c->size, what);
    memcpy(out, c->bytes + c->off, n);
    c->off += n;
    return PN_OK;
}

static pn_status take_str(cursor *c, pn_span *out, const char *what, pn_err *err)
{
    uint64_t len = 0;
    PN_TRY(take(c, &len, sizeof len, what, err));
    if (len > left(c))
        return pn_fail(err, PN_ERR_FORMAT,
                       "%s at byte %zu claims %" PRIu64 " bytes, but the file has %zu left", what,
                       c->off, len, left(c));
    *out = (pn_span){ (const char *)c->bytes + c->off, (size_t)len };
    c->off += (size_t)len;
    return PN_OK;
}

static char *store_name(pn_gguf *file, pn_span s)
{
    pn_gguf_names *block = file->names;
    if (!block || sizeof block->bytes - block->used <= s.len) {
        block = pn_alloc(sizeof *block);
        if (!block)
            return NULL;
        block->next = file->names;
        block->used = 0;
        file->names = block;
    }
    char *const name = block->bytes + block->used;
    memcpy(name, s.ptr, s.len);
    name[s.len] = '\0';
    block->used += s.len + 1;
    return name;
}

/* Names become C strings, land in messages and on terminals: only clean text passes. */
static pn_status take_name(pn_gguf *file, cursor *c, const char *what, const char **out,
                           pn_err *err)
{
    const size_t at = c->off;
    pn_span s;
    PN_TRY(take_str(c, &s, what, err));
    if (s.len == 0)
        return pn_fail(err, PN_ERR_FORMAT, "%s at byte %zu is empty", what, at);
    if (s.len > PN_GGUF_MAX_NAME_BYTES)
        return pn_fail(err, PN_ERR_LIMIT, "%s at byte %zu has %zu bytes; the limit is %d", what, at,
                       s.len, PN_GGUF_MAX_NAME_BYTES);
    for (size_t i = 0; i < s.len;) {
        uint32_t cp = 0;
        const size_t n = pn_utf8_next(s.ptr + i, s.len - i, &cp);
        if (n == 0)
            return pn_fail(err, PN_ERR_FORMAT, "%s at byte %zu is not valid UTF-8", what, at);
        if (cp < 0x20 || (cp >= 0x7f && cp < 0xa0))
            return pn_fail(err, PN_ERR_FORMAT, "%s at byte %zu holds the control character U+%04X",
                           what, at, (unsigned)cp);
        i += n;
    }
    *out = store_name(file, s);
    return *out ? PN_OK : pn_fail(err, PN_ERR_NOMEM, "no memory for the names of the file");
}

static const struct {
    const char *name;
    size_t bytes; /* of a value; 0: it says its own length */
} value_types[PN_GGUF_TYPE_COUNT] = {
    [PN_GGUF_U8] = { "u8", 1 },       [PN_GGUF_I8] = { "i8", 1 },
    [PN_GGUF_U16] = { "u16", 2 },     [PN_GGUF_I16] = { "i16", 2 },
    [PN_GGUF_U32] = { "u32", 4 },     [PN_GGUF_I32] = { "i32", 4 },
    [PN_GGUF_F32] = { "f32", 4 },     [PN_GGUF_BOOL] = { "bool", 1 },
    [PN_GGUF_U64] = { "u64", 8 },     [PN_GGUF_I64] = { "i64", 8 },
    [PN_GGUF_F64] = { "f64", 8 },     [PN_GGUF_STRING] = { "string", 0 },
    [PN_GGUF_ARRAY] = { "array", 0 },
};

size_t pn_gguf_scalar_bytes(pn_gguf_type type)
{
    return value_types[type].bytes;
}

const char *pn_gguf_type_name(pn_gguf_type type)
{
    return value_types[type].name;
}

static pn_status take_type(cursor *c, const char *key, pn_gguf_type *out, pn_err *err)
{
    uint32_t t = 0;
    PN_TRY(take(c, &t, sizeof t, "a value type", err));
    if (t >= PN_GGUF_TYPE_COUNT)
        return pn_fail(err, PN_ERR_FORMAT, "key %s: unknown value type %" PRIu32, key, t);
    *out = (pn_gguf_type)t;
    return PN_OK;
}

/* Checks the kv->len elements at the cursor and leaves it behind them. */
static pn_status skip_elements(cursor *c, const pn_gguf_kv *kv, pn_err *err)
{
    const size_t bytes = value_types[kv->elem].bytes;
    if (kv->len > left(c) / (bytes ? bytes : sizeof(uint64_t)))
        return pn_fail(err, PN_ERR_FORMAT,
                       "key %s: %" PRIu64 " values of type %s do not fit the %zu bytes left of "
                       "the file",
                       kv->name, kv->len, value_types[kv->elem].name, left(c));
    if (bytes) {
        for (size_t i = 0; kv->elem == PN_GGUF_BOOL && i < kv->len; i++)
            if (kv->val[i] > 1)
                return pn_fail(err, PN_ERR_FORMAT, "key %s: a bool is %u; it must be 0 or 1",
                               kv->name, kv->val[i]);
        c->off += (size_t)kv->len * bytes;
        return PN_OK;
    }
    for (uint64_t i = 0; i < kv->len; i++) {
        pn_span s;
        const pn_status st = take_str(c, &s, "a string", err);
        if (st != PN_OK) {
            pn_err_prefix(err, "key %s: ", kv->name);
            return st;
        }
    }
    return PN_OK;
}

static pn_status take_kv(pn_gguf *file, cursor *c, pn_gguf_kv *kv, pn_err *err)
{
    PN_TRY(take_name(file, c, "a key", &kv->name, err));
    PN_TRY(take_type(c, kv->name, &kv->type, err));
    kv->elem = kv->type;
    kv->len = 1;
    if (kv->type == PN_GGUF_ARRAY) {
        PN_TRY(take_type(c, kv->name, &kv->elem, err));
        if (kv->elem == PN_GGUF_ARRAY)
            return pn_fail(err, PN_ERR_UNSUPPORTED, "key %s: arrays of arrays are not supported",
                           kv->name);
        PN_TRY(take(c, &kv->len, sizeof kv->len, "an array", err));
    }
    kv->val = c->bytes + c->off;
    return skip_elements(c, kv, err);
}

static int by_kv_name(const void *a, const void *b, void *kvs)
{
    const pn_gguf_kv *const t = kvs;
    return strcmp(t[*(const uint32_t *)a].name, t[*(const uint32_t *)b].name);
}

static pn_status take_keys(pn_gguf *file, pn_gguf_part *part, cursor *c, uint64_t n, pn_err *err)
{
    if (n > PN_GGUF_MAX_KEYS || n > left(c) / KV_BYTES_MIN)
        return pn_fail(err, PN_ERR_FORMAT,
                       "the header claims %" PRIu64 " keys, more than %zu bytes can hold or the "
                       "limit of %d allows",
                       n, left(c), PN_GGUF_MAX_KEYS);
    part->kvs = pn_calloc((size_t)n, sizeof *part->kvs);
    part->kv_order = pn_calloc((size_t)n, sizeof *part->kv_order);
    if (!part->kvs || !part->kv_order)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for %" PRIu64 " keys", n);
    for (size_t i = 0; i < n; i++) {
        PN_TRY(take_kv(file, c, &part->kvs[i], err));
        part->kv_order[i] = (uint32_t)i;
    }
    part->n_kv = (size_t)n;
    qsort_r(part->kv_order, part->n_kv, sizeof *part->kv_order, by_kv_name, part->kvs);
    for (size_t i = 1; i < part->n_kv; i++) {
        const char *const name = part->kvs[part->kv_order[i]].name;
        if (strcmp(name, part->kvs[part->kv_order[i - 1]].name) == 0)
            return pn_fail(err, PN_ERR_FORMAT, "key %s: appears twice", name);
    }
    return PN_OK;
}

/* Bytes of the tensor's rows. An id that is none of the format's gives 0 and no error. */
static pn_status tensor_bytes(const pn_gguf_tensor *t, size_t *out, pn_err *err)
{
    size_t n_row = 1, bytes = 0, n_weight;
    const pn_tensor_type *const type = pn_tensor_type_get(t->type);
    bool fits = true;
    for (int i = 1; i < t->n_dims; i++)
        fits = fits && pn_mul_size(n_row, t->dims[i], &n_row);
    fits = fits && pn_mul_size(n_row, t->dims[0], &n_weight);
    if (fits && type && t->dims[0] % type->block_n != 0)
        return pn_fail(err, PN_ERR_FORMAT,
                       "tensor %s: rows of %" PRIu64 " weights are no multiple of the %u of a %s "
                       "block",
                       t->name, t->dims[0], type->block_n, type->name);
    if (fits && type)
        fits = pn_tensor_type_row_bytes(t->type, t->dims[0], &bytes) &&
               pn_mul_size(bytes, n_row, &bytes);
    if (!fits)
        return pn_fail(err, PN_ERR_FORMAT,
                       "tensor %s: the size of [%" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64
                       "] %s overflows",
                       t->name, t->dims[0], t->dims[1], t->dims[2], t->dims[3],
                       pn_tensor_type_name(t->type));
    *out = bytes;
    return PN_OK;
}

/* Reads one tensor's entry; its offset, whose meaning is known only behind the table, to *off. */
static pn_status take_tensor(pn_gguf *file, cursor *c, pn_gguf_tensor *t, uint64_t *off,
                             pn_err *err)
{
    PN_TRY(take_name(file, c, "a tensor name", &t->name, err));
    uint32_t n_dims = 0;
    PN_TRY(take(c, &n_dims, sizeof n_dims, "the tensor table", err));
    if (n_dims < 1 || n_dims > PN_GGUF_MAX_DIMS)
        return pn_fail(err, PN_ERR_FORMAT, "tensor %s: %" PRIu32 " dimensions; 1 to %d expected",
                       t->name, n_dims, PN_GGUF_MAX_DIMS);
    t->n_dims = (int)n_dims;
    for (int i = 0; i < PN_GGUF_MAX_DIMS; i++) {
        t->dims[i] = 1;
        if (i < t->n_dims)
            PN_TRY(take(c, &t->dims[i], sizeof t->dims[i], "the tensor table", err));
        if (t->dims[i] == 0)
            return pn_fail(err, PN_ERR_FORMAT, "tensor %s: dimension %d is 0", t->name, i);
    }
    PN_TRY(take(c, &t->type, sizeof t->type, "the tensor table", err));
    PN_TRY(take(c, off, sizeof *off, "the tensor table", err));
    return tensor_bytes(t, &t->n_bytes, err);
}

/* Turns the offset into a pointer inside the data section [data_off, size). */
static pn_status place_tensor(const pn_gguf_part *part, size_t data_off, size_t alignment,
                              uint64_t off, pn_gguf_tensor *t, pn_err *err)
{
    if (off % alignment != 0)
        return pn_fail(err, PN_ERR_FORMAT,
                       "tensor %s: offset %" PRIu64 " is no multiple of the alignment %zu", t->name,
                       off, alignment);
    const size_t data_size = part->size > data_off ? part->size - data_off : 0;
    if (off > data_size || t->n_bytes > data_size - off)
        return pn_fail(err, PN_ERR_FORMAT,
                       "tensor %s: %zu bytes at offset %" PRIu64 " reach past the end of the file "
                       "(%zu bytes of data); the file is truncated or damaged",
                       t->name, t->n_bytes, off, data_size);
    t->data = t->n_bytes ? part->bytes + data_off + off : NULL;
    return PN_OK;
}

static int by_data(const void *a, const void *b)
{
    const pn_gguf_tensor *const s = *(const pn_gguf_tensor *const *)a;
    const pn_gguf_tensor *const t = *(const pn_gguf_tensor *const *)b;
    return (s->data > t->data) - (s->data < t->data);
}

/* Two tensors on the same bytes are a crafted or broken file. */
static pn_status check_overlap(const pn_gguf_tensor *tensors, size_t n, pn_err *err)
{
    const pn_gguf_tensor **const order = pn_calloc(n, sizeof *order);
    if (!order)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for %zu tensors", n);
    size_t m = 0;
    for (size_t i = 0; i < n; i++)
        if (tensors[i].data)
            order[m++] = &tensors[i];
    qsort(order, m, sizeof *order, by_data);
    pn_status st = PN_OK;
    for (size_t i = 1; i < m && st == PN_OK; i++)
        if ((size_t)(order[i]->data - order[i - 1]->data) < order[i - 1]->n_bytes)
            st = pn_fail(err, PN_ERR_FORMAT,
                         "tensor %s of type %s: shares bytes with tensor %s of type %s",
                         order[i]->name, pn_tensor_type_name(order[i]->type), order[i - 1]->name,
                         pn_tensor_type_name(order[i - 1]->type));
    pn_free(order);
    return st;
}

static pn_status take_tensors(pn_gguf *file, pn_gguf_part *part, cursor *c, uint64_t n, pn_err *err)
{
    if (n > PN_GGUF_MAX_TENSORS - file->n_tensor || n > left(c) / TENSOR_BYTES_MIN)
        return pn_fail(err, PN_ERR_FORMAT,
                       "the header claims %" PRIu64 " tensors, more than %zu bytes can hold or "
                       "the limit of %d allows",
                       n, left(c), PN_GGUF_MAX_TENSORS);
    if (n == 0)
        return PN_OK;
    uint32_t alignment = DEFAULT_ALIGNMENT;
    PN_TRY(pn_gguf_part_u32(part, "general.alignment", UINT32_MAX, &alignment, err));
    if (alignment < MIN_ALIGNMENT || alignment > MAX_ALIGNMENT ||
        (alignment & (alignment - 1)) != 0)
        return pn_fail(err, PN_ERR_FORMAT,
                       "key general.alignment: is %" PRIu32 "; a power of two from %d to %d "
                       "expected",
                       alignment, MIN_ALIGNMENT, MAX_ALIGNMENT);
    const size_t n_old = file->n_tensor, n_all = n_old + (size_t)n;
    pn_gguf_tensor *const all = pn_realloc(file->tensors, n_all, sizeof *all);
    if (!all)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for %zu tensors", n_all);
    file->tensors = all;
    uint64_t *const offs = pn_calloc((size_t)n, sizeof *offs);
    pn_status st =
        offs ? PN_OK : pn_fail(err, PN_ERR_NOMEM, "no memory for %" PRIu64 " tensors", n);
    for (size_t i = 0; i < n && st == PN_OK; i++) {
        all[n_old + i] = (pn_gguf_tensor){ .i_file = (int)(part - file->parts) };
        st = take_tensor(file, c, &all[n_old + i], &offs[i], err);
    }
    const size_t data_off = pn_round_up(c->off, alignment);
    for (size_t i = 0; i < n && st == PN_OK; i++)
        st = place_tensor(part, data_off, alignment, offs[i], &all[n_old + i], err);
    pn_free(offs);
    PN_TRY(st);
    PN_TRY(check_overlap(all + n_old, (size_t)n, err));
    file->n_tensor = n_all;
    return PN_OK;
}

static pn_status take_version(cursor *c, uint32_t *version, pn_err *err)
{
    char magic[4];
    PN_TRY(take(c, magic, sizeof magic, "the magic number", err));
    if (memcmp(magic, "FUGG", sizeof magic) == 0)
        return pn_fail(err, PN_ERR_UNSUPPORTED,
                       "is a big-endian GGUF file; little-endian expected");
    if (memcmp(magic, "GGUF", sizeof magic) != 0)
        return pn_fail(err, PN_ERR_FORMAT,
                       "is not a GGUF file: it starts with %02x %02x %02x %02x, not \"GGUF\"",
                       (uint8_t)magic[0], (uint8_t)magic[1], (uint8_t)magic[2], (uint8_t)magic[3]);
    PN_TRY(take(c, version, sizeof *version, "the version", err));
    if (*version != 0 && (*version & 0xffff) == 0)
        return pn_fail(err, PN_ERR_UNSUPPORTED,
                       "is a big-endian GGUF file; little-endian expected");
    if (*version != 2 && *version != 3)
        return pn_fail(err, PN_ERR_UNSUPPORTED,
                       "GGUF version %" PRIu32 " is not supported; versions 2 and 3 are", *version);
    return PN_OK;
}

pn_status pn_gguf_parse_part(pn_gguf *file, pn_gguf_part *part, pn_err *err)
{
    cursor c = { part->bytes, part->size, 0 };
    uint64_t n_tensor = 0, n_kv = 0;
    PN_TRY(take_version(&c, &part->version, err));
    PN_TRY(take(&c, &n_tensor, sizeof n_tensor, "the header", err));
    PN_TRY(take(&c, &n_kv, sizeof n_kv, "the header", err));
    PN_TRY(take_keys(file, part, &c, n_kv, err));
    PN_TRY(take_tensors(file, part, &c, n_tensor, err));
    part->head_bytes = c.off;
    return PN_OK;
}
