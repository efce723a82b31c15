#include "gguf/gguf_write.h"

#include "base/buf.h"
#include "base/mem.h"
#include "base/tensor_types.h"
#include "gguf/gguf_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct out_tensor {
    char *name; /* owned */
    uint32_t type, n_dims;
    uint64_t dims[PN_GGUF_MAX_DIMS];
    size_t n_bytes, off; /* off counts from its part's data section */
    size_t part;
} out_tensor;

typedef struct out_part {
    char *path, *tmp_path; /* owned; tmp_path NULL before it is opened and after renaming */
    size_t n_tensor;
} out_part;

struct pn_gguf_writer {
    pn_gguf_write_opts opts;
    pn_buf kvs;
    uint64_t n_kv;
    out_tensor *tensors; /* [n_tensor], owned */
    size_t n_tensor, cap;
    out_part *parts; /* [n_part], owned; from begin on */
    size_t n_part;
    FILE *out; /* the part that is being written */
    size_t i_part, i_tensor;
    size_t tensor_pos; /* bytes of tensor i_tensor that are written */
    size_t all_bytes;  /* of all parts */
};

pn_status pn_gguf_writer_new(const pn_gguf_write_opts *opts, pn_gguf_writer **writer, pn_err *err)
{
    pn_gguf_writer *const w = pn_calloc(1, sizeof *w);
    if (!w)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for a writer");
    if (opts)
        w->opts = *opts;
    if (!w->opts.version)
        w->opts.version = 3;
    if (w->opts.alignment)
        pn_gguf_put_u32(w, "general.alignment", w->opts.alignment);
    else
        w->opts.alignment = 32;
    *writer = w;
    return PN_OK;
}

void pn_gguf_writer_free(pn_gguf_writer *w)
{
    if (!w)
        return;
    if (w->out)
        fclose(w->out);
    for (size_t i = 0; i < w->n_part; i++) {
        if (w->parts[i].tmp_path)
            unlink(w->parts[i].tmp_path);
        pn_free(w->parts[i].tmp_path);
        pn_free(w->parts[i].path);
    }
    for (size_t i = 0; i < w->n_tensor; i++)
        pn_free(w->tensors[i].name);
    pn_free(w->tensors);
    pn_free(w->parts);
    pn_buf_free(&w->kvs);
    pn_free(w);
}

static void add_u32(pn_buf *b, uint32_t v)
{
    pn_buf_add(b, &v, sizeof v);
}

static void add_u64(pn_buf *b, uint64_t v)
{
    pn_buf_add(b, &v, sizeof v);
}

static void add_str(pn_buf *b, pn_span s)
{
    add_u64(b, s.len);
    pn_buf_add(b, s.ptr, s.len);
}

static void add_cstr(pn_buf *b, const char *s)
{
    add_str(b, (pn_span){ s, strlen(s) });
}

static void put_head(pn_gguf_writer *w, const char *key, pn_gguf_type type)
{
    add_cstr(&w->kvs, key);
    add_u32(&w->kvs, type);
    w->n_kv++;
}

void pn_gguf_put(pn_gguf_writer *w, const char *key, pn_gguf_type type, const void *value)
{
    PN_ASSERT(pn_gguf_scalar_bytes(type) > 0);
    put_head(w, key, type);
    pn_buf_add(&w->kvs, value, pn_gguf_scalar_bytes(type));
}

void pn_gguf_put_u32(pn_gguf_writer *w, const char *key, uint32_t value)
{
    pn_gguf_put(w, key, PN_GGUF_U32, &value);
}

void pn_gguf_put_f32(pn_gguf_writer *w, const char *key, float value)
{
    pn_gguf_put(w, key, PN_GGUF_F32, &value);
}

void pn_gguf_put_bool(pn_gguf_writer *w, const char *key, bool value)
{
    const uint8_t byte = value;
    pn_gguf_put(w, key, PN_GGUF_BOOL, &byte);
}

void pn_gguf_put_str(pn_gguf_writer *w, const char *key, pn_span value)
{
    put_head(w, key, PN_GGUF_STRING);
    add_str(&w->kvs, value);
}

void pn_gguf_put_arr(pn_gguf_writer *w, const char *key, pn_gguf_type elem, size_t n,
                     const void *values)
{
    PN_ASSERT(pn_gguf_scalar_bytes(elem) > 0);
    put_head(w, key, PN_GGUF_ARRAY);
    add_u32(&w->kvs, elem);
    add_u64(&w->kvs, n);
    pn_buf_add(&w->kvs, values, n * pn_gguf_scalar_bytes(elem));
}

void pn_gguf_put_strs(pn_gguf_writer *w, const char *key, size_t n, const pn_span *values)
{
    put_head(w, key, PN_GGUF_ARRAY);
    add_u32(&w->kvs, PN_GGUF_STRING);
    add_u64(&w->kvs, n);
    for (size_t i = 0; i < n; i++)
        add_str(&w->kvs, values[i]);
}

pn_status pn_gguf_put_tensor(pn_gguf_writer *w, const char *name, uint32_t type, int n_dims,
                             const uint64_t *dims, pn_err *err)
{
    PN_REQUIRE(n_dims >= 1 && n_dims <= PN_GGUF_MAX_DIMS, err);
    out_tensor t = { .type = type, .n_dims = (uint32_t)n_dims };
    bool fits = pn_tensor_type_row_bytes(type, dims[0], &t.n_bytes);
    for (int i = 0; i < n_dims; i++) {
        t.dims[i] = dims[i];
        fits = fits && (i == 0 || pn_mul_size(t.n_bytes, dims[i], &t.n_bytes));
    }
    if (!fits)
        return pn_fail(err, PN_ERR_ARG, "tensor %s: rows of %llu weights do not fit type %s", name,
                       (unsigned long long)dims[0], pn_tensor_type_name(type));
    if (w->n_tensor == w->cap) {
        const size_t cap = w->cap ? 2 * w->cap : 64;
        out_tensor *const grown = pn_realloc(w->tensors, cap, sizeof *grown);
        if (!grown)
            return pn_fail(err, PN_ERR_NOMEM, "no memory for %zu tensors", cap);
        w->tensors = grown;
        w->cap = cap;
    }
    t.name = pn_strndup(name, strlen(name));
    if (!t.name)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for a tensor name");
    w->tensors[w->n_tensor++] = t;
    return PN_OK;
}

/* Gives every tensor its part and offset; returns the number of parts. */
static size_t lay_out(pn_gguf_writer *w)
{
    size_t part = 0, off = 0;
    for (size_t i = 0; i < w->n_tensor; i++) {
        out_tensor *const t = &w->tensors[i];
        const size_t padded = pn_round_up(t->n_bytes, w->opts.alignment);
        if (w->opts.split_bytes && off && off + padded > w->opts.split_bytes) {
            part++;
            off = 0;
        }
        t->part = part;
        t->off = off;
        off += padded;
    }
    return part + 1;
}

static pn_status name_part(pn_gguf_writer *w, size_t i, const char *path, pn_err *err)
{
    pn_buf b = { 0 };
    const size_t len = strlen(path);
    const bool has_ext = len > 5 && strcmp(path + len - 5, ".gguf") == 0;
    if (w->n_part > 1)
        pn_buf_addf(&b, "%.*s-%05zu-of-%05zu.gguf", (int)(has_ext ? len - 5 : len), path, i + 1,
                    w->n_part);
    else
        pn_buf_adds(&b, path);
    if (pn_buf_cstr(&b))
        w->parts[i].path = pn_strndup(b.ptr, b.len);
    pn_buf_free(&b);
    return w->parts[i].path ? PN_OK : pn_fail(err, PN_ERR_NOMEM, "no memory for a path");
}

/* The tables of a part, padded to where its data begin. */
static pn_status build_head(const pn_gguf_writer *w, size_t i_part, pn_buf *b, pn_err *err)
{
    /* Widths as llama.cpp writes them: it reads no others. */
    const struct {
        const char *key;
        pn_gguf_type type;
        uint32_t value;
    } split[] = { { "split.no", PN_GGUF_U16, (uint32_t)i_part },
                  { "split.count", PN_GGUF_U16, (uint32_t)w->n_part },
                  { "split.tensors.count", PN_GGUF_I32, (uint32_t)w->n_tensor } };
    const bool is_split = w->n_part > 1;
    pn_buf_adds(b, "GGUF");
    add_u32(b, w->opts.version);
    add_u64(b, w->parts[i_part].n_tensor);
    /* general.alignment comes first among the keys and belongs to every part. */
    const bool own_alignment = i_part > 0 && w->opts.alignment != 32;
    add_u64(b, (i_part == 0 ? w->n_kv : own_alignment) + (is_split ? 3 : 0));
    if (i_part == 0) {
        pn_buf_add(b, w->kvs.ptr, w->kvs.len);
    } else if (own_alignment) {
        add_cstr(b, "general.alignment");
        add_u32(b, PN_GGUF_U32);
        add_u32(b, w->opts.alignment);
    }
    for (int i = 0; is_split && i < 3; i++) {
        add_cstr(b, split[i].key);
        add_u32(b, split[i].type);
        pn_buf_add(b, &split[i].value, pn_gguf_scalar_bytes(split[i].type));
    }
    for (size_t i = 0; i < w->n_tensor; i++) {
        const out_tensor *const t = &w->tensors[i];
        if (t->part != i_part)
            continue;
        add_cstr(b, t->name);
        add_u32(b, t->n_dims);
        pn_buf_add(b, t->dims, t->n_dims * sizeof t->dims[0]);
        add_u32(b, t->type);
        add_u64(b, t->off);
    }
    while (b->len % w->opts.alignment != 0 && pn_buf_ok(b))
        pn_buf_addc(b, 0);
    if (!pn_buf_ok(b) || !pn_buf_ok(&w->kvs))
        return pn_fail(err, PN_ERR_NOMEM, "no memory for the tables of the file");
    return PN_OK;
}

static pn_status write_bytes(pn_gguf_writer *w, const void *bytes, size_t n, pn_err *err)
{
    if (n && fwrite(bytes, 1, n, w->out) != n)
        return pn_fail(err, PN_ERR_IO, "%s: %s", w->parts[w->i_part].path, strerror(errno));
    w->all_bytes += n;
    return PN_OK;
}

static pn_status open_part(pn_gguf_writer *w, pn_err *err)
{
    out_part *const part = &w->parts[w->i_part];
    /* The finished file takes the path's place by renaming: a device must not be replaced. */
    struct stat there;
    if (stat(part->path, &there) == 0 && !S_ISREG(there.st_mode))
        return pn_fail(err, PN_ERR_IO, "%s: is no regular file", part->path);
    pn_buf b = { 0 };
    pn_buf_addf(&b, "%s.tmp", part->path);
    part->tmp_path = pn_buf_cstr(&b) ? pn_strndup(b.ptr, b.len) : NULL;
    pn_buf_free(&b);
    if (!part->tmp_path)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for a path");
    w->out = fopen(part->tmp_path, "wbe");
    if (!w->out)
        return pn_fail(err, PN_ERR_IO, "%s: %s", part->tmp_path, strerror(errno));
    pn_status st = build_head(w, w->i_part, &b, err);
    if (st == PN_OK)
        st = write_bytes(w, b.ptr, b.len, err);
    pn_buf_free(&b);
    return st;
}

static pn_status close_part(pn_gguf_writer *w, pn_err *err)
{
    FILE *const out = w->out;
    w->out = NULL;
    if (fclose(out) != 0)
        return pn_fail(err, PN_ERR_IO, "%s: %s", w->parts[w->i_part].path, strerror(errno));
    return PN_OK;
}

pn_status pn_gguf_write_begin(pn_gguf_writer *w, const char *path, pn_err *err)
{
    PN_REQUIRE(!w->parts, err);
    const size_t n_part = lay_out(w);
    if (n_part > PN_GGUF_MAX_SPLITS)
        return pn_fail(err, PN_ERR_LIMIT, "%s: would need %zu parts; the limit is %d", path, n_part,
                       PN_GGUF_MAX_SPLITS);
    w->parts = pn_calloc(n_part, sizeof *w->parts);
    if (!w->parts)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for %zu parts", n_part);
    w->n_part = n_part;
    for (size_t i = 0; i < w->n_tensor; i++)
        w->parts[w->tensors[i].part].n_tensor++;
    for (size_t i = 0; i < n_part; i++)
        PN_TRY(name_part(w, i, path, err));
    return open_part(w, err);
}

/* Tensor i_tensor is complete: pads it and moves to the next one's part. */
static pn_status next_tensor(pn_gguf_writer *w, pn_err *err)
{
    static const char zeros[256];
    size_t pad = pn_round_up(w->tensor_pos, w->opts.alignment) - w->tensor_pos;
    while (pad > 0) {
        const size_t n = pad < sizeof zeros ? pad : sizeof zeros;
        PN_TRY(write_bytes(w, zeros, n, err));
        pad -= n;
    }
    w->tensor_pos = 0;
    w->i_tensor++;
    if (w->i_tensor < w->n_tensor && w->tensors[w->i_tensor].part != w->i_part) {
        PN_TRY(close_part(w, err));
        w->i_part++;
        return open_part(w, err);
    }
    return PN_OK;
}

pn_status pn_gguf_write_data(pn_gguf_writer *w, const void *bytes, size_t n, pn_err *err)
{
    PN_REQUIRE(w->out, err);
    const char *p = bytes;
    while (n > 0) {
        if (w->i_tensor == w->n_tensor)
            return pn_fail(err, PN_ERR_ARG, "%s: %zu bytes past the last tensor",
                           w->parts[w->i_part].path, n);
        const size_t room = w->tensors[w->i_tensor].n_bytes - w->tensor_pos;
        const size_t step = n < room ? n : room;
        PN_TRY(write_bytes(w, p, step, err));
        p += step;
        n -= step;
        w->tensor_pos += step;
        if (step == room)
            PN_TRY(next_tensor(w, err));
    }
    return PN_OK;
}

pn_status pn_gguf_write_end(pn_gguf_writer *w, pn_err *err)
{
    PN_REQUIRE(w->out, err);
    if (w->i_tensor != w->n_tensor)
        return pn_fail(err, PN_ERR_ARG, "%s: data of tensor %s are missing",
                       w->parts[w->i_part].path, w->tensors[w->i_tensor].name);
    PN_TRY(close_part(w, err));
    for (size_t i = 0; i < w->n_part; i++) {
        out_part *const part = &w->parts[i];
        if (rename(part->tmp_path, part->path) != 0)
            return pn_fail(err, PN_ERR_IO, "%s: %s", part->path, strerror(errno));
        pn_free(part->tmp_path);
        part->tmp_path = NULL;
    }
    return PN_OK;
}

size_t pn_gguf_write_bytes(const pn_gguf_writer *w)
{
    return w->all_bytes;
}
