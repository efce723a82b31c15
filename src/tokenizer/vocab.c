#include "tokenizer/vocab.h"

#include "base/buf.h"
#include "base/mem.h"
#include "tokenizer/hash.h"

#include <inttypes.h>
#include <string.h>

#define KEY_MODEL  "tokenizer.ggml.model"
#define KEY_PRE    "tokenizer.ggml.pre"
#define KEY_TOKENS "tokenizer.ggml.tokens"
#define KEY_TYPES  "tokenizer.ggml.token_type"
#define KEY_MERGES "tokenizer.ggml.merges"

#define EOG_BIT 0x80 /* beside the kind in pn_vocab.kind */

typedef struct find_slot {
    uint32_t tag; /* upper half of the hash */
    int32_t id;   /* -1: empty */
} find_slot;

struct pn_vocab {
    int32_t n_token;
    pn_buf bytes;    /* of all tokens, one behind the other */
    uint32_t *start; /* [n_token + 1] in bytes; owned */
    uint8_t *kind;   /* [n_token] pn_token_kind, and EOG_BIT; owned */
    find_slot *slot; /* [mask + 1] normal tokens by their bytes, open addressing; owned */
    size_t mask;
    pn_bpe bpe;
    pn_special special;
    int32_t eos, eot, bos;
    bool add_bos;
};

/* The byte-level alphabet (GPT-2's bytes_to_unicode): the bytes that print stand for themselves as
 * code points, the others, in ascending order, for U+0100 onwards. */
typedef struct alphabet {
    int16_t byte_of[0x144]; /* by code point; -1: not in the alphabet */
} alphabet;

static void alphabet_init(alphabet *a)
{
    memset(a->byte_of, 0xff, sizeof a->byte_of);
    int next = 0x100;
    for (int b = 0; b < 256; b++) {
        const bool is_printed =
            (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || (b >= 0xae && b <= 0xff);
        a->byte_of[is_printed ? b : next++] = (int16_t)b;
    }
    PN_ASSERT(next == 0x144);
}

/* Decodes text to dst, which has room for text.len bytes. Returns the number of bytes, or SIZE_MAX
 * when a character is not in the alphabet. */
static size_t alphabet_decode(const alphabet *a, pn_span text, char *dst)
{
    const uint8_t *p = (const uint8_t *)text.ptr;
    size_t n = 0;
    for (size_t i = 0; i < text.len; i++) {
        uint32_t cp = p[i];
        if (cp >= 0x80) { /* all of it lies below U+0144: two bytes, c2 to c5 */
            if (cp < 0xc2 || cp > 0xc5 || i + 1 == text.len || (p[i + 1] & 0xc0) != 0x80)
                return SIZE_MAX;
            cp = (cp & 0x1f) << 6 | (p[++i] & 0x3fu);
        }
        if (cp >= 0x144 || a->byte_of[cp] < 0)
            return SIZE_MAX;
        dst[n++] = (char)a->byte_of[cp];
    }
    return n;
}

/* <0xNN>, the form of a byte token. */
static bool parse_byte_token(pn_span text, char *byte)
{
    unsigned v = 0;
    if (text.len != 6 || memcmp(text.ptr, "<0x", 3) != 0 || text.ptr[5] != '>')
        return false;
    for (int i = 3; i < 5; i++) {
        const char c = text.ptr[i];
        const int d = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                             : -1;
        if (d < 0)
            return false;
        v = v << 4 | (unsigned)d;
    }
    *byte = (char)v;
    return true;
}

static pn_span token_span(const pn_vocab *v, int32_t id)
{
    return (pn_span){ v->bytes.ptr + v->start[id], v->start[id + 1] - v->start[id] };
}

/* The normal token of these bytes, or -1; *at is its slot or the empty one where it belongs,
 * SIZE_MAX when there were too many probes. */
static int32_t find_normal(const pn_vocab *v, pn_span bytes, uint64_t hash, size_t *at)
{
    size_t i = (size_t)hash & v->mask;
    for (int n_probe = 0; n_probe <= PN_HASH_MAX_PROBE; n_probe++, i = (i + 1) & v->mask) {
        const find_slot s = v->slot[i];
        if (s.id < 0) {
            *at = i;
            return -1;
        }
        if (s.tag != (uint32_t)(hash >> 32))
            continue;
        const pn_span t = token_span(v, s.id);
        if (t.len == bytes.len && memcmp(t.ptr, bytes.ptr, t.len) == 0) {
            *at = i;
            return s.id;
        }
    }
    *at = SIZE_MAX;
    return -1;
}

static int32_t normal_id(const pn_vocab *v, pn_span bytes)
{
    size_t at;
    return find_normal(v, bytes, pn_hash_bytes(bytes.ptr, bytes.len), &at);
}

static pn_status index_normal(pn_vocab *v, int32_t id, pn_err *err)
{
    const pn_span t = token_span(v, id);
    const uint64_t hash = pn_hash_bytes(t.ptr, t.len);
    size_t at;
    const int32_t same = find_normal(v, t, hash, &at);
    if (same >= 0)
        return pn_fail(err, PN_ERR_FORMAT, KEY_TOKENS ": tokens %d and %d are the same", same, id);
    if (at == SIZE_MAX)
        return pn_fail(err, PN_ERR_LIMIT, KEY_TOKENS ": too many tokens of one hash at %d", id);
    v->slot[at] = (find_slot){ (uint32_t)(hash >> 32), id };
    return PN_OK;
}

/* Appends the bytes that token id of this text stands for. */
static pn_status add_token(pn_vocab *v, const alphabet *a, int32_t id, pn_span text, pn_err *err)
{
    const int kind = v->kind[id];
    if (text.len > PN_TOKEN_MAX_BYTES)
        return pn_fail(err, PN_ERR_LIMIT,
                       KEY_TOKENS ": token %d has %zu bytes, at most %d expected", id, text.len,
                       PN_TOKEN_MAX_BYTES);
    if (!text.len && kind != PN_TOKEN_UNUSED)
        return pn_fail(err, PN_ERR_FORMAT, KEY_TOKENS ": token %d is empty", id);
    const size_t start = v->bytes.len;
    char *const dst = pn_buf_extend(&v->bytes, text.len);
    if (!dst)
        return pn_fail(err, PN_ERR_NOMEM, KEY_TOKENS ": out of memory");
    size_t n = text.len;
    if (kind == PN_TOKEN_NORMAL) {
        n = alphabet_decode(a, text, dst);
        if (n == SIZE_MAX)
            return pn_fail(err, PN_ERR_FORMAT,
                           KEY_TOKENS ": token %d, '%.*s', is not in the "
                                      "byte-level alphabet",
                           id, (int)(text.len < 64 ? text.len : 64), text.ptr);
    } else if (kind == PN_TOKEN_BYTE) {
        n = 1;
        if (!parse_byte_token(text, dst))
            return pn_fail(err, PN_ERR_FORMAT,
                           KEY_TOKENS ": byte token %d is not of the form "
                                      "<0xNN>",
                           id);
    } else if (n) {
        memcpy(dst, text.ptr, n);
    }
    v->bytes.len = start + n;
    if (v->bytes.len > UINT32_MAX)
        return pn_fail(err, PN_ERR_LIMIT, KEY_TOKENS ": over %" PRIu32 " bytes in all", UINT32_MAX);
    v->start[id + 1] = (uint32_t)v->bytes.len;
    return PN_OK;
}

/* kind [n_token] from token_type, checked. */
static pn_status load_kinds(pn_vocab *v, const pn_gguf *file, pn_err *err)
{
    const size_t n = (size_t)v->n_token;
    if (pn_gguf_arr_len(file, KEY_TYPES) != n)
        return pn_fail(err, PN_ERR_FORMAT,
                       KEY_TYPES ": has %" PRIu64 " entries, %zu expected, one "
                                 "for each token",
                       pn_gguf_arr_len(file, KEY_TYPES), n);
    int32_t *const types = pn_calloc(n, sizeof *types);
    if (!types)
        return pn_fail(err, PN_ERR_NOMEM, KEY_TYPES ": out of memory");
    pn_status st = pn_gguf_get_arr_i32(file, KEY_TYPES, n, types, err);
    for (size_t i = 0; i < n && st == PN_OK; i++) {
        if (types[i] < PN_TOKEN_NORMAL || types[i] > PN_TOKEN_BYTE)
            st = pn_fail(err, PN_ERR_FORMAT, KEY_TYPES ": token %zu has type %d, 1 to 6 expected",
                         i, types[i]);
        else
            v->kind[i] = (uint8_t)types[i];
    }
    pn_free(types);
    return st;
}

static pn_status load_tokens(pn_vocab *v, const alphabet *a, const pn_gguf *file, pn_err *err)
{
    uint64_t n;
    PN_TRY(pn_gguf_check_str_arr(file, KEY_TOKENS, &n, err));
    if (n < 1 || n > PN_VOCAB_MAX_TOKENS)
        return pn_fail(err, PN_ERR_LIMIT, KEY_TOKENS ": has %" PRIu64 " tokens, 1 to %d expected",
                       n, PN_VOCAB_MAX_TOKENS);
    v->n_token = (int32_t)n;
    const size_t n_slot = pn_hash_slots((size_t)n);
    v->mask = n_slot - 1;
    v->kind = pn_calloc((size_t)n, sizeof *v->kind);
    v->start = pn_calloc((size_t)n + 1, sizeof *v->start);
    v->slot = pn_calloc(n_slot, sizeof *v->slot);
    if (!v->kind || !v->start || !v->slot)
        return pn_fail(err, PN_ERR_NOMEM, KEY_TOKENS ": out of memory");
    memset(v->slot, 0xff, n_slot * sizeof *v->slot);
    PN_TRY(load_kinds(v, file, err));
    pn_gguf_str_it it = { 0 };
    pn_span text;
    for (int32_t id = 0; id < v->n_token && pn_gguf_next_str(file, KEY_TOKENS, &it, &text); id++) {
        PN_TRY(add_token(v, a, id, text, err));
        if (v->kind[id] == PN_TOKEN_NORMAL)
            PN_TRY(index_normal(v, id, err));
    }
    return PN_OK;
}

static pn_status load_special(pn_vocab *v, pn_err *err)
{
    size_t n = 0;
    for (int32_t id = 0; id < v->n_token; id++)
        n += v->kind[id] == PN_TOKEN_CONTROL || v->kind[id] == PN_TOKEN_USER_DEFINED;
    pn_special_token *const list = pn_calloc(n, sizeof *list);
    if (!list)
        return pn_fail(err, PN_ERR_NOMEM, KEY_TOKENS ": out of memory");
    n = 0;
    for (int32_t id = 0; id < v->n_token; id++) {
        const int kind = v->kind[id];
        if (kind == PN_TOKEN_CONTROL || kind == PN_TOKEN_USER_DEFINED)
            list[n++] = (pn_special_token){ token_span(v, id), id, kind == PN_TOKEN_CONTROL };
    }
    const pn_status st = pn_special_init(&v->special, list, n, err);
    if (st != PN_OK)
        pn_err_prefix(err, KEY_TOKENS ": ");
    pn_free(list);
    return st;
}

/* One merge "left right": both and their concatenation must be normal tokens. scratch has room for
 * the text's bytes. */
static pn_status add_merge(pn_vocab *v, const alphabet *a, pn_span text, char *scratch, pn_err *err)
{
    const int at = v->bpe.n_merges;
    const char *const space = text.len ? memchr(text.ptr, ' ', text.len) : NULL;
    if (!space)
        return pn_fail(err, PN_ERR_FORMAT,
                       KEY_MERGES ": merge %d is not two tokens with a space "
                                  "between",
                       at);
    const pn_span left = { text.ptr, (size_t)(space - text.ptr) };
    const pn_span right = { space + 1, text.len - left.len - 1 };
    const size_t n_left = alphabet_decode(a, left, scratch);
    const size_t n_right =
        n_left == SIZE_MAX ? SIZE_MAX : alphabet_decode(a, right, scratch + n_left);
    if (n_right == SIZE_MAX)
        return pn_fail(err, PN_ERR_FORMAT,
                       KEY_MERGES ": merge %d is not in the byte-level alphabet", at);
    const int32_t id_left = normal_id(v, (pn_span){ scratch, n_left });
    const int32_t id_right = normal_id(v, (pn_span){ scratch + n_left, n_right });
    const int32_t merged = normal_id(v, (pn_span){ scratch, n_left + n_right });
    if (id_left < 0 || id_right < 0 || merged < 0)
        return pn_fail(err, PN_ERR_FORMAT, KEY_MERGES ": merge %d: its %s is no token", at,
                       id_left < 0    ? "left half"
                       : id_right < 0 ? "right half"
                                      : "whole");
    const pn_status st = pn_bpe_add(&v->bpe, id_left, id_right, merged, err);
    if (st != PN_OK)
        pn_err_prefix(err, KEY_MERGES ": ");
    return st;
}

static pn_status load_merges(pn_vocab *v, const alphabet *a, const pn_gguf *file, pn_err *err)
{
    int32_t byte_id[256];
    for (int b = 0; b < 256; b++) {
        const char c = (char)b;
        byte_id[b] = normal_id(v, (pn_span){ &c, 1 });
        if (byte_id[b] < 0)
            return pn_fail(err, PN_ERR_FORMAT, KEY_TOKENS ": no token for the byte 0x%02x", b);
    }
    uint64_t n;
    PN_TRY(pn_gguf_check_str_arr(file, KEY_MERGES, &n, err));
    if (n > PN_BPE_MAX_MERGES)
        return pn_fail(err, PN_ERR_LIMIT,
                       KEY_MERGES ": has %" PRIu64 " entries, at most %d expected", n,
                       PN_BPE_MAX_MERGES);
    PN_TRY(pn_bpe_init(&v->bpe, byte_id, (size_t)n, err));
    char *const scratch = pn_alloc(2 * PN_TOKEN_MAX_BYTES + 1);
    if (!scratch)
        return pn_fail(err, PN_ERR_NOMEM, KEY_MERGES ": out of memory");
    pn_status st = PN_OK;
    pn_gguf_str_it it = { 0 };
    pn_span text;
    while (st == PN_OK && pn_gguf_next_str(file, KEY_MERGES, &it, &text)) {
        if (text.len > 2 * PN_TOKEN_MAX_BYTES + 1)
            st = pn_fail(err, PN_ERR_LIMIT, KEY_MERGES ": merge %d has %zu bytes", v->bpe.n_merges,
                         text.len);
        else
            st = add_merge(v, a, text, scratch, err);
    }
    pn_free(scratch);
    if (st == PN_OK)
        pn_bpe_finish(&v->bpe);
    return st;
}

/* An optional id, checked. */
static pn_status load_id(const pn_vocab *v, const pn_gguf *file, const char *key, int32_t *id,
                         pn_err *err)
{
    *id = -1;
    if (!pn_gguf_has(file, key))
        return PN_OK;
    uint32_t u;
    PN_TRY(pn_gguf_get_u32(file, key, &u, err));
    if (u >= (uint32_t)v->n_token)
        return pn_fail(err, PN_ERR_FORMAT,
                       "%s: is %" PRIu32 ", below %d expected, the number of "
                       "tokens",
                       key, u, v->n_token);
    *id = (int32_t)u;
    return PN_OK;
}

static pn_status load_ids(pn_vocab *v, const pn_gguf *file, pn_err *err)
{
    PN_TRY(load_id(v, file, "tokenizer.ggml.eos_token_id", &v->eos, err));
    PN_TRY(load_id(v, file, "tokenizer.ggml.eot_token_id", &v->eot, err));
    PN_TRY(load_id(v, file, "tokenizer.ggml.bos_token_id", &v->bos, err));
    PN_TRY(pn_gguf_opt_bool(file, "tokenizer.ggml.add_bos_token", &v->add_bos, err));
    static const char *const names[] = { "<|im_end|>", "<|endoftext|>" };
    int32_t eog[4] = { v->eos, v->eot, -1, -1 };
    for (int i = 0; i < 2; i++) {
        const int32_t id = pn_special_get(&v->special, (pn_span){ names[i], strlen(names[i]) });
        eog[2 + i] = id >= 0 && v->kind[id] == PN_TOKEN_CONTROL ? id : -1;
    }
    for (int i = 0; i < 4; i++)
        if (eog[i] >= 0)
            v->kind[eog[i]] |= EOG_BIT;
    return PN_OK;
}

static pn_status expect_str(const pn_gguf *file, const char *key, const char *expected, pn_err *err)
{
    pn_span s;
    PN_TRY(pn_gguf_get_str(file, key, &s, err));
    if (s.len != strlen(expected) || memcmp(s.ptr, expected, s.len) != 0)
        return pn_fail(err, PN_ERR_UNSUPPORTED, "%s: is '%.*s', '%s' expected", key,
                       (int)(s.len < 64 ? s.len : 64), s.ptr, expected);
    return PN_OK;
}

pn_status pn_vocab_load(const pn_gguf *file, pn_vocab **vocab, pn_err *err)
{
    PN_TRY(expect_str(file, KEY_MODEL, "gpt2", err));
    PN_TRY(expect_str(file, KEY_PRE, "qwen35", err));
    pn_vocab *const v = pn_calloc(1, sizeof *v);
    if (!v)
        return pn_fail(err, PN_ERR_NOMEM, "vocabulary: out of memory");
    alphabet a;
    alphabet_init(&a);
    pn_status st = load_tokens(v, &a, file, err);
    if (st == PN_OK)
        st = load_special(v, err);
    if (st == PN_OK)
        st = load_merges(v, &a, file, err);
    if (st == PN_OK)
        st = load_ids(v, file, err);
    if (st != PN_OK) {
        pn_vocab_free(v);
        return st;
    }
    *vocab = v;
    return PN_OK;
}

void pn_vocab_free(pn_vocab *v)
{
    if (!v)
        return;
    pn_buf_free(&v->bytes);
    pn_free(v->start);
    pn_free(v->kind);
    pn_free(v->slot);
    pn_bpe_clear(&v->bpe);
    pn_special_clear(&v->special);
    pn_free(v);
}

int32_t pn_vocab_size(const pn_vocab *v)
{
    return v->n_token;
}

pn_span pn_token_bytes(const pn_vocab *v, int32_t id)
{
    PN_ASSERT(id >= 0 && id < v->n_token);
    return token_span(v, id);
}

pn_token_kind pn_token_type(const pn_vocab *v, int32_t id)
{
    PN_ASSERT(id >= 0 && id < v->n_token);
    return v->kind[id] & ~EOG_BIT;
}

int32_t pn_vocab_find(const pn_vocab *v, pn_span text)
{
    const int32_t id = pn_special_get(&v->special, text);
    return id >= 0 ? id : normal_id(v, text);
}

bool pn_token_is_eog(const pn_vocab *v, int32_t id)
{
    return id >= 0 && id < v->n_token && v->kind[id] & EOG_BIT;
}

int32_t pn_vocab_eos(const pn_vocab *v)
{
    return v->eos;
}

int32_t pn_vocab_eot(const pn_vocab *v)
{
    return v->eot;
}

int32_t pn_vocab_bos(const pn_vocab *v)
{
    return v->bos;
}

bool pn_vocab_add_bos(const pn_vocab *v)
{
    return v->add_bos;
}

const pn_bpe *pn_vocab_bpe(const pn_vocab *v)
{
    return &v->bpe;
}

const pn_special *pn_vocab_special(const pn_vocab *v)
{
    return &v->special;
}
