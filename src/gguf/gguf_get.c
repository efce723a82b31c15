/* Typed access to keys. The parser has checked that every value lies inside the file; here kinds
 * and ranges are checked against what the caller wants. Values are unaligned in the file. */

#include "gguf/gguf_internal.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

const pn_gguf_kv *pn_gguf_find_kv(const pn_gguf_part *part, const char *key)
{
    for (size_t lo = 0, hi = part->n_kv; lo < hi;) {
        const size_t mid = lo + (hi - lo) / 2;
        const pn_gguf_kv *const kv = &part->kvs[part->kv_order[mid]];
        const int order = strcmp(key, kv->name);
        if (order == 0)
            return kv;
        if (order < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return NULL;
}

static const pn_gguf_kv *find(const pn_gguf *file, const char *key)
{
    return pn_gguf_find_kv(&file->parts[0], key);
}

static pn_status missing(const char *key, pn_err *err)
{
    return pn_fail(err, PN_ERR_FORMAT, "key %s: is missing", key);
}

static pn_status wrong_kind(const pn_gguf_kv *kv, const char *expected, pn_err *err)
{
    if (kv->type == PN_GGUF_ARRAY)
        return pn_fail(err, PN_ERR_FORMAT, "key %s: is an array of %s; %s expected", kv->name,
                       pn_gguf_type_name(kv->elem), expected);
    return pn_fail(err, PN_ERR_FORMAT, "key %s: has type %s; %s expected", kv->name,
                   pn_gguf_type_name(kv->type), expected);
}

/* Element i as an integer; false for floats and strings. A u64 beyond int64 reads as INT64_MAX,
 * which no caller's range admits. */
static bool int_at(const pn_gguf_kv *kv, size_t i, int64_t *out)
{
    const uint8_t *const p = kv->val + i * pn_gguf_scalar_bytes(kv->elem);
    union {
        int8_t i8;
        uint16_t u16;
        int16_t i16;
        uint32_t u32;
        int32_t i32;
        uint64_t u64;
        int64_t i64;
    } v = { 0 };
    memcpy(&v, p, pn_gguf_scalar_bytes(kv->elem));
    switch (kv->elem) {
    case PN_GGUF_U8:
    case PN_GGUF_BOOL:
        *out = p[0];
        return true;
    case PN_GGUF_I8:
        *out = v.i8;
        return true;
    case PN_GGUF_U16:
        *out = v.u16;
        return true;
    case PN_GGUF_I16:
        *out = v.i16;
        return true;
    case PN_GGUF_U32:
        *out = v.u32;
        return true;
    case PN_GGUF_I32:
        *out = v.i32;
        return true;
    case PN_GGUF_U64:
        *out = v.u64 > INT64_MAX ? INT64_MAX : (int64_t)v.u64;
        return true;
    case PN_GGUF_I64:
        *out = v.i64;
        return true;
    default:
        return false;
    }
}

static pn_status int_in(const pn_gguf_kv *kv, size_t i, int64_t lo, int64_t hi, int64_t *out,
                        pn_err *err)
{
    int64_t v = 0;
    if (!int_at(kv, i, &v))
        return wrong_kind(kv, "an integer", err);
    if (v < lo || v > hi)
        return pn_fail(err, PN_ERR_FORMAT,
                       "key %s: is %" PRId64 "; %" PRId64 " to %" PRId64 " expected", kv->name, v,
                       lo, hi);
    *out = v;
    return PN_OK;
}

static pn_status scalar_u32(const pn_gguf_kv *kv, uint32_t max, uint32_t *out, pn_err *err)
{
    int64_t v = 0;
    if (kv->type == PN_GGUF_ARRAY || kv->type == PN_GGUF_BOOL)
        return wrong_kind(kv, "an integer", err);
    PN_TRY(int_in(kv, 0, 0, max, &v, err));
    *out = (uint32_t)v;
    return PN_OK;
}

pn_status pn_gguf_part_u32(const pn_gguf_part *part, const char *key, uint32_t max, uint32_t *out,
                           pn_err *err)
{
    const pn_gguf_kv *const kv = pn_gguf_find_kv(part, key);
    return kv ? scalar_u32(kv, max, out, err) : PN_OK;
}

/* Element i of a float kind. Infinities and NaN are no setting that a model can mean. */
static pn_status f32_in(const pn_gguf_kv *kv, size_t i, float *out, pn_err *err)
{
    double v = 0;
    float f = 0;
    if (kv->elem == PN_GGUF_F32) {
        memcpy(&f, kv->val + i * sizeof f, sizeof f);
        v = f;
    } else if (kv->elem == PN_GGUF_F64) {
        memcpy(&v, kv->val + i * sizeof v, sizeof v);
    } else {
        return wrong_kind(kv, "a float", err);
    }
    if (!(fabs(v) <= FLT_MAX))
        return pn_fail(err, PN_ERR_FORMAT, "key %s: is %g; a finite number expected", kv->name, v);
    *out = (float)v;
    return PN_OK;
}

static pn_status scalar_f32(const pn_gguf_kv *kv, float *out, pn_err *err)
{
    if (kv->type == PN_GGUF_ARRAY)
        return wrong_kind(kv, "a float", err);
    return f32_in(kv, 0, out, err);
}

static pn_status scalar_bool(const pn_gguf_kv *kv, bool *out, pn_err *err)
{
    if (kv->type != PN_GGUF_BOOL)
        return wrong_kind(kv, "a bool", err);
    *out = kv->val[0] != 0;
    return PN_OK;
}

/* The string at p, which the parser has checked; *next is behind it. */
static pn_span str_at(const uint8_t *p, const uint8_t **next)
{
    uint64_t len;
    memcpy(&len, p, sizeof len);
    p += sizeof len;
    *next = p + len;
    return (pn_span){ (const char *)p, (size_t)len };
}

static pn_status scalar_str(const pn_gguf_kv *kv, pn_span *out, pn_err *err)
{
    const uint8_t *next;
    if (kv->type != PN_GGUF_STRING)
        return wrong_kind(kv, "a string", err);
    *out = str_at(kv->val, &next);
    return PN_OK;
}

bool pn_gguf_has(const pn_gguf *file, const char *key)
{
    return find(file, key) != NULL;
}

pn_status pn_gguf_get_u32(const pn_gguf *file, const char *key, uint32_t *out, pn_err *err)
{
    return find(file, key) ? pn_gguf_opt_u32(file, key, out, err) : missing(key, err);
}

pn_status pn_gguf_get_f32(const pn_gguf *file, const char *key, float *out, pn_err *err)
{
    return find(file, key) ? pn_gguf_opt_f32(file, key, out, err) : missing(key, err);
}

pn_status pn_gguf_get_bool(const pn_gguf *file, const char *key, bool *out, pn_err *err)
{
    return find(file, key) ? pn_gguf_opt_bool(file, key, out, err) : missing(key, err);
}

pn_status pn_gguf_get_str(const pn_gguf *file, const char *key, pn_span *out, pn_err *err)
{
    return find(file, key) ? pn_gguf_opt_str(file, key, out, err) : missing(key, err);
}

pn_status pn_gguf_opt_u32(const pn_gguf *file, const char *key, uint32_t *out, pn_err *err)
{
    return pn_gguf_part_u32(&file->parts[0], key, UINT32_MAX, out, err);
}

pn_status pn_gguf_opt_f32(const pn_gguf *file, const char *key, float *out, pn_err *err)
{
    const pn_gguf_kv *const kv = find(file, key);
    return kv ? scalar_f32(kv, out, err) : PN_OK;
}

pn_status pn_gguf_opt_bool(const pn_gguf *file, const char *key, bool *out, pn_err *err)
{
    const pn_gguf_kv *const kv = find(file, key);
    return kv ? scalar_bool(kv, out, err) : PN_OK;
}

pn_status pn_gguf_opt_str(const pn_gguf *file, const char *key, pn_span *out, pn_err *err)
{
    const pn_gguf_kv *const kv = find(file, key);
    return kv ? scalar_str(kv, out, err) : PN_OK;
}

uint64_t pn_gguf_arr_len(const pn_gguf *file, const char *key)
{
    const pn_gguf_kv *const kv = find(file, key);
    return kv ? kv->len : 0;
}

/* Finds key with at least n elements; a scalar stands for any number of them. */
static pn_status find_arr(const pn_gguf *file, const char *key, size_t n, const pn_gguf_kv **out,
                          pn_err *err)
{
    const pn_gguf_kv *const kv = find(file, key);
    if (!kv)
        return missing(key, err);
    if (kv->type == PN_GGUF_ARRAY && kv->len < n)
        return pn_fail(err, PN_ERR_FORMAT, "key %s: has %" PRIu64 " values; %zu expected", key,
                       kv->len, n);
    *out = kv;
    return PN_OK;
}

pn_status pn_gguf_get_arr_i32(const pn_gguf *file, const char *key, size_t n, int32_t *out,
                              pn_err *err)
{
    const pn_gguf_kv *kv = NULL;
    PN_TRY(find_arr(file, key, n, &kv, err));
    for (size_t i = 0; i < n; i++) {
        int64_t v = 0;
        PN_TRY(int_in(kv, kv->type == PN_GGUF_ARRAY ? i : 0, INT32_MIN, INT32_MAX, &v, err));
        out[i] = (int32_t)v;
    }
    return PN_OK;
}

pn_status pn_gguf_get_arr_f32(const pn_gguf *file, const char *key, size_t n, float *out,
                              pn_err *err)
{
    const pn_gguf_kv *kv = NULL;
    PN_TRY(find_arr(file, key, n, &kv, err));
    for (size_t i = 0; i < n; i++)
        PN_TRY(f32_in(kv, kv->type == PN_GGUF_ARRAY ? i : 0, &out[i], err));
    return PN_OK;
}

pn_status pn_gguf_check_str_arr(const pn_gguf *file, const char *key, uint64_t *len, pn_err *err)
{
    const pn_gguf_kv *const kv = find(file, key);
    if (!kv)
        return missing(key, err);
    if (kv->type != PN_GGUF_ARRAY || kv->elem != PN_GGUF_STRING)
        return wrong_kind(kv, "an array of strings", err);
    *len = kv->len;
    return PN_OK;
}

bool pn_gguf_next_str(const pn_gguf *file, const char *key, pn_gguf_str_it *it, pn_span *out)
{
    if (!it->next) {
        const pn_gguf_kv *const kv = find(file, key);
        PN_ASSERT(kv && kv->type == PN_GGUF_ARRAY && kv->elem == PN_GGUF_STRING);
        it->next = kv->val;
        it->len = kv->len;
    }
    if (it->i >= it->len)
        return false;
    *out = str_at(it->next, &it->next);
    it->i++;
    return true;
}

size_t pn_gguf_n_keys(const pn_gguf *file)
{
    return file->parts[0].n_kv;
}

void pn_gguf_key_at(const pn_gguf *file, size_t i, const char **name, pn_gguf_type *type,
                    pn_gguf_type *elem, uint64_t *len)
{
    PN_ASSERT(i < file->parts[0].n_kv);
    const pn_gguf_kv *const kv = &file->parts[0].kvs[i];
    *name = kv->name;
    *type = kv->type;
    *elem = kv->elem;
    *len = kv->len;
}
