/* Opening and closing, the parts of a split model, and lookups by name. */

#include "gguf/gguf.h"

#include "base/mem.h"
#include "gguf/gguf_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files are read as they lie");

enum {
    SPLIT_SUFFIX_BYTES = 20 /* strlen("-00001-of-00004.gguf") */
};

typedef struct split_info {
    uint32_t no, count; /* no counts from 0 */
    uint32_t n_tensor;  /* of all parts together */
} split_info;

static pn_status read_split_info(const pn_gguf_part *part, split_info *s, pn_err *err)
{
    *s = (split_info){ .count = 1, .n_tensor = UINT32_MAX };
    PN_TRY(pn_gguf_part_u32(part, "split.count", UINT16_MAX, &s->count, err));
    if (s->count <= 1)
        return PN_OK;
    if (s->count > PN_GGUF_MAX_SPLITS)
        return pn_fail(err, PN_ERR_LIMIT, "key split.count: is %" PRIu32 "; the limit is %d",
                       s->count, PN_GGUF_MAX_SPLITS);
    s->no = UINT32_MAX;
    PN_TRY(pn_gguf_part_u32(part, "split.no", UINT16_MAX, &s->no, err));
    if (s->no >= s->count)
        return pn_fail(err, PN_ERR_FORMAT,
                       "key split.no: is missing or not below split.count, which is %" PRIu32,
                       s->count);
    return pn_gguf_part_u32(part, "split.tensors.count", PN_GGUF_MAX_TENSORS, &s->n_tensor, err);
}

/* The suffix that part no of count must have. */
static void split_suffix(char out[SPLIT_SUFFIX_BYTES + 1], uint32_t no, uint32_t count)
{
    snprintf(out, SPLIT_SUFFIX_BYTES + 1, "-%05u-of-%05u.gguf", (no + 1) % 100000, count % 100000);
}

static void part_clear(pn_gguf_part *part)
{
    pn_free(part->path);
    pn_free(part->kvs);
    pn_free(part->kv_order);
    pn_map_close(&part->map);
    *part = (pn_gguf_part){ 0 };
}

/* Back to no parts, no tensors. */
static void clear(pn_gguf *file)
{
    for (size_t i = 0; i < file->n_part; i++)
        part_clear(&file->parts[i]);
    pn_free(file->parts);
    pn_free(file->tensors);
    pn_free(file->tensor_order);
    for (pn_gguf_names *b = file->names; b;) {
        pn_gguf_names *const next = b->next;
        pn_free(b);
        b = next;
    }
    *file = (pn_gguf){ 0 };
}

static pn_status make_parts(pn_gguf *file, size_t n, pn_err *err)
{
    /* The pointer stays, so i_file is an index from its start; unused parts are empty. */
    file->parts = pn_calloc(n, sizeof *file->parts);
    if (!file->parts)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for %zu file parts", n);
    file->n_part = n;
    return PN_OK;
}

static pn_status open_part(pn_gguf *file, size_t i, const char *path, const pn_gguf_opts *opts,
                           pn_err *err)
{
    pn_gguf_part *const part = &file->parts[i];
    part->path = pn_strndup(path, strlen(path));
    if (!part->path)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for a path");
    PN_TRY(pn_map_open(path, !opts->no_mmap, &part->map, err));
    part->bytes = part->map.data;
    part->size = part->map.size;
    pn_status st = opts->lock ? pn_map_lock(&part->map, err) : PN_OK;
    if (st == PN_OK)
        st = pn_gguf_parse_part(file, part, err);
    if (st != PN_OK)
        pn_err_prefix(err, "%s: ", path);
    return st;
}

/* Opens part i, whose path differs from the first one's by its number, and compares its keys. */
static pn_status open_split_part(pn_gguf *file, uint32_t i, const char *stem, size_t stem_len,
                                 const split_info *first, const pn_gguf_opts *opts, pn_err *err)
{
    char suffix[SPLIT_SUFFIX_BYTES + 1];
    split_suffix(suffix, i, first->count);
    pn_buf path = { 0 };
    pn_buf_add(&path, stem, stem_len);
    pn_buf_adds(&path, suffix);
    const char *const p = pn_buf_cstr(&path);
    pn_status st =
        p ? open_part(file, i, p, opts, err) : pn_fail(err, PN_ERR_NOMEM, "no memory for a path");
    split_info s = { 0 };
    if (st == PN_OK)
        st = read_split_info(&file->parts[i], &s, err);
    if (st == PN_OK && (s.no != i || s.count != first->count))
        st = pn_fail(err, PN_ERR_FORMAT,
                     "%s: split.no %" PRIu32 " of split.count %" PRIu32 " does not match its name",
                     p, s.no, s.count);
    if (st == PN_OK && s.n_tensor != UINT32_MAX && s.n_tensor != first->n_tensor)
        st = pn_fail(err, PN_ERR_FORMAT,
                     "%s: split.tensors.count is %" PRIu32 ", but %" PRIu32 " in the first part", p,
                     s.n_tensor, first->n_tensor);
    if (st == PN_ERR_IO)
        pn_err_prefix(err, "part %" PRIu32 " of %" PRIu32 " of a split model: ", i + 1,
                      first->count);
    pn_buf_free(&path);
    return st;
}

/* path was opened as a single file and said to be part s->no of s->count: opens them all. */
static pn_status open_split(pn_gguf *file, const char *path, split_info s, const pn_gguf_opts *opts,
                            pn_err *err)
{
    char suffix[SPLIT_SUFFIX_BYTES + 1];
    split_suffix(suffix, s.no, s.count);
    const size_t len = strlen(path);
    if (len < SPLIT_SUFFIX_BYTES || strcmp(path + len - SPLIT_SUFFIX_BYTES, suffix) != 0)
        return pn_fail(err, PN_ERR_FORMAT,
                       "%s: is part %" PRIu32 " of %" PRIu32 " by its split.* keys, so its name "
                       "must end in %s",
                       path, s.no + 1, s.count, suffix);
    clear(file);
    PN_TRY(make_parts(file, s.count, err));
    for (uint32_t i = 0; i < s.count; i++) {
        PN_TRY(open_split_part(file, i, path, len - SPLIT_SUFFIX_BYTES, &s, opts, err));
        if (i == 0) {
            s.n_tensor = UINT32_MAX; /* the first part's word counts, whichever was named */
            PN_TRY(read_split_info(&file->parts[0], &s, err));
        }
        if (opts->progress && !opts->progress(opts->progress_ctx, "opening", i + 1, s.count))
            return pn_fail(err, PN_ERR_CANCELLED, "%s: opening was cancelled", path);
    }
    if (s.n_tensor != file->n_tensor)
        return pn_fail(err, PN_ERR_FORMAT,
                       "%s: the %" PRIu32
                       " parts hold %zu tensors; split.tensors.count is %" PRId64,
                       file->parts[0].path, s.count, file->n_tensor,
                       s.n_tensor == UINT32_MAX ? (int64_t)-1 : (int64_t)s.n_tensor);
    return PN_OK;
}

static int by_tensor_name(const void *a, const void *b, void *tensors)
{
    const pn_gguf_tensor *const t = tensors;
    return strcmp(t[*(const uint32_t *)a].name, t[*(const uint32_t *)b].name);
}

static pn_status index_tensors(pn_gguf *file, pn_err *err)
{
    file->tensor_order = pn_calloc(file->n_tensor, sizeof *file->tensor_order);
    if (!file->tensor_order)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for %zu tensors", file->n_tensor);
    for (size_t i = 0; i < file->n_tensor; i++)
        file->tensor_order[i] = (uint32_t)i;
    /* Sorted, not hashed: a crafted file cannot make a binary search slow. */
    if (file->n_tensor)
        qsort_r(file->tensor_order, file->n_tensor, sizeof *file->tensor_order, by_tensor_name,
                file->tensors);
    for (size_t i = 1; i < file->n_tensor; i++) {
        const char *const name = file->tensors[file->tensor_order[i]].name;
        if (strcmp(name, file->tensors[file->tensor_order[i - 1]].name) == 0)
            return pn_fail(err, PN_ERR_FORMAT, "%s: tensor %s: appears twice", pn_gguf_path(file),
                           name);
    }
    return PN_OK;
}

static pn_status open_all(pn_gguf *file, const char *path, const pn_gguf_opts *opts, pn_err *err)
{
    PN_TRY(make_parts(file, 1, err));
    PN_TRY(open_part(file, 0, path, opts, err));
    split_info s;
    const pn_status st = read_split_info(&file->parts[0], &s, err);
    if (st != PN_OK) {
        pn_err_prefix(err, "%s: ", path);
        return st;
    }
    if (s.count > 1)
        PN_TRY(open_split(file, path, s, opts, err));
    return index_tensors(file, err);
}

pn_status pn_gguf_open(const char *path, const pn_gguf_opts *opts, pn_gguf **file, pn_err *err)
{
    static const pn_gguf_opts defaults = { 0 };
    PN_REQUIRE(path && file, err);
    pn_gguf *const f = pn_calloc(1, sizeof *f);
    if (!f)
        return pn_fail(err, PN_ERR_NOMEM, "no memory to open a file");
    const pn_status st = open_all(f, path, opts ? opts : &defaults, err);
    if (st == PN_OK)
        *file = f;
    else
        pn_gguf_close(f);
    return st;
}

static pn_status open_mem(pn_gguf *file, const void *bytes, size_t size, pn_err *err)
{
    PN_TRY(make_parts(file, 1, err));
    file->parts[0].bytes = bytes;
    file->parts[0].size = size;
    PN_TRY(pn_gguf_parse_part(file, &file->parts[0], err));
    split_info s;
    PN_TRY(read_split_info(&file->parts[0], &s, err));
    if (s.count > 1)
        return pn_fail(err, PN_ERR_UNSUPPORTED, "one part of a split model cannot stand alone");
    return index_tensors(file, err);
}

pn_status pn_gguf_open_mem(const void *bytes, size_t size, pn_gguf **file, pn_err *err)
{
    PN_REQUIRE(file && (bytes || size == 0), err);
    pn_gguf *const f = pn_calloc(1, sizeof *f);
    if (!f)
        return pn_fail(err, PN_ERR_NOMEM, "no memory to open a file");
    const pn_status st = open_mem(f, bytes, size, err);
    if (st == PN_OK)
        *file = f;
    else
        pn_gguf_close(f);
    return st;
}

void pn_gguf_close(pn_gguf *file)
{
    if (!file)
        return;
    clear(file);
    pn_free(file);
}

const char *pn_gguf_path(const pn_gguf *file)
{
    return file->parts[0].path ? file->parts[0].path : "(memory)";
}

uint32_t pn_gguf_version(const pn_gguf *file)
{
    return file->parts[0].version;
}

size_t pn_gguf_n_files(const pn_gguf *file)
{
    return file->n_part;
}

size_t pn_gguf_file_bytes(const pn_gguf *file)
{
    size_t bytes = 0;
    for (size_t i = 0; i < file->n_part; i++)
        bytes += file->parts[i].size;
    return bytes;
}

size_t pn_gguf_n_tensors(const pn_gguf *file)
{
    return file->n_tensor;
}

const pn_gguf_tensor *pn_gguf_tensor_at(const pn_gguf *file, size_t i)
{
    return i < file->n_tensor ? &file->tensors[i] : NULL;
}

const pn_gguf_tensor *pn_gguf_find_tensor(const pn_gguf *file, const char *name)
{
    for (size_t lo = 0, hi = file->n_tensor; lo < hi;) {
        const size_t mid = lo + (hi - lo) / 2;
        const pn_gguf_tensor *const t = &file->tensors[file->tensor_order[mid]];
        const int order = strcmp(name, t->name);
        if (order == 0)
            return t;
        if (order < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return NULL;
}
