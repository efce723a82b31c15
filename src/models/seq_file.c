/* The parts of a file, little-endian, nothing between them (docs/CACHE_FORMAT.md):
 *
 *     fixed                           what the file is
 *     ids      [n_tok - n_parent]     i32
 *     sums     [n_page + 1]           u64, of each page and of the recurrent block
 *     sum                             u64, of all the above
 *     pages    [n_page][page_bytes]
 *     rec      [rec_bytes]            may be missing from any byte on */
#include "models/seq_file.h"

#include "base/arith.h"
#include "base/file.h"
#include "base/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

static const char magic[8] = "PNSTATE\n";

typedef struct fixed {
    char magic[8];
    uint32_t version, kv_type;
    pn_key model, key, parent;
    uint32_t n_parent, n_tok, n_vocab, page_bytes;
    uint64_t rec_bytes;
} fixed;
_Static_assert(sizeof(fixed) == 88, "as it lies in the file");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files are written as they lie");

/* --- kinds and keys --------------------------------------------------------------------------- */

static pn_key digest(const XXH3_state_t *sum)
{
    XXH128_canonical_t bytes;
    pn_key key;
    XXH128_canonicalFromHash(&bytes, XXH3_128bits_digest(sum));
    memcpy(key.bytes, bytes.digest, sizeof key.bytes);
    return key;
}

pn_seq_kind pn_seq_kind_of(const pn_model *model, pn_kv_type kv_type)
{
    uint8_t file[16];
    const uint32_t version = PN_ARITH_VERSION;
    XXH3_state_t sum;
    XXH3_128bits_reset(&sum);
    pn_gguf_fingerprint(model->file, file);
    XXH3_128bits_update(&sum, file, sizeof file);
    XXH3_128bits_update(&sum, &version, sizeof version);
    XXH3_128bits_update(&sum, model->rope_scaling, sizeof model->rope_scaling);
    XXH3_128bits_update(&sum, &model->rope_scale, sizeof model->rope_scale);
    XXH3_128bits_update(&sum, &model->yarn_orig_ctx, sizeof model->yarn_orig_ctx);
    return (pn_seq_kind){
        .model = digest(&sum),
        .kv_type = kv_type,
        .n_vocab = (uint32_t)model->info.n_vocab,
        .page_bytes = pn_seq_page_bytes(&model->layout, kv_type),
        .rec_bytes = pn_seq_recurrent_bytes(&model->layout),
    };
}

bool pn_key_equal(const pn_key *a, const pn_key *b)
{
    return memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

bool pn_seq_kind_equal(const pn_seq_kind *a, const pn_seq_kind *b)
{
    return pn_key_equal(&a->model, &b->model) && a->kv_type == b->kv_type &&
           a->n_vocab == b->n_vocab && a->page_bytes == b->page_bytes &&
           a->rec_bytes == b->rec_bytes;
}

static pn_key key_of(const pn_seq_kind *kind, const int32_t *ids, size_t n_tok)
{
    const uint64_t sizes[] = { kind->kv_type, kind->n_vocab, kind->page_bytes, kind->rec_bytes };
    XXH3_state_t sum;
    XXH3_128bits_reset(&sum);
    XXH3_128bits_update(&sum, kind->model.bytes, sizeof kind->model.bytes);
    XXH3_128bits_update(&sum, sizes, sizeof sizes);
    XXH3_128bits_update(&sum, ids, n_tok * sizeof *ids);
    return digest(&sum);
}

/* --- heads ------------------------------------------------------------------------------------ */

size_t pn_seq_head_first_page(const pn_seq_head *head)
{
    return head->n_parent / PN_KV_CHUNK;
}

size_t pn_seq_head_end_page(const pn_seq_head *head)
{
    return (head->n_tok - 1) / PN_KV_CHUNK + 1;
}

static size_t n_id(const pn_seq_head *head)
{
    return head->n_tok - head->n_parent;
}

static size_t n_page(const pn_seq_head *head)
{
    return pn_seq_head_end_page(head) - pn_seq_head_first_page(head);
}

static size_t head_bytes(const pn_seq_head *head)
{
    return sizeof(fixed) + n_id(head) * sizeof *head->ids +
           (n_page(head) + 1) * sizeof *head->sums + sizeof(uint64_t);
}

static uint64_t rec_off(const pn_seq_head *head)
{
    return head_bytes(head) + n_page(head) * head->kind.page_bytes;
}

uint64_t pn_seq_file_bytes(const pn_seq_head *head, bool has_rec)
{
    return rec_off(head) + (has_rec ? head->kind.rec_bytes : 0);
}

/* Room for ids and sums of a head whose counts are set. */
static pn_status head_alloc(pn_seq_head *head, pn_err *err)
{
    head->ids = pn_calloc(n_id(head), sizeof *head->ids);
    head->sums = pn_calloc(n_page(head) + 1, sizeof *head->sums);
    if (head->ids && head->sums)
        return PN_OK;
    pn_seq_head_clear(head);
    return pn_fail(err, PN_ERR_NOMEM, "no memory for the ids of a saved state");
}

pn_status pn_seq_head_init(pn_seq_head *head, const pn_seq_kind *kind, const int32_t *ids,
                           size_t n_parent, size_t n_tok, pn_err *err)
{
    PN_REQUIRE(n_parent < n_tok && n_tok <= PN_SEQ_FILE_MAX_TOKENS, err);
    if (kind->page_bytes > UINT32_MAX)
        return pn_fail(err, PN_ERR_LIMIT, "a page of %" PRIu64 " bytes is too large to be saved",
                       kind->page_bytes);
    pn_seq_head h = { .kind = *kind, .n_parent = n_parent, .n_tok = n_tok };
    PN_TRY(head_alloc(&h, err));
    h.key = key_of(kind, ids, n_tok);
    if (n_parent)
        h.parent = key_of(kind, ids, n_parent);
    memcpy(h.ids, ids + n_parent, n_id(&h) * sizeof *ids);
    *head = h;
    return PN_OK;
}

void pn_seq_head_clear(pn_seq_head *head)
{
    pn_free(head->ids);
    pn_free(head->sums);
    *head = (pn_seq_head){ 0 };
}

/* The sum behind a head. */
static uint64_t head_sum(const fixed *f, const pn_seq_head *head)
{
    XXH3_state_t sum;
    XXH3_64bits_reset(&sum);
    XXH3_64bits_update(&sum, f, sizeof *f);
    XXH3_64bits_update(&sum, head->ids, n_id(head) * sizeof *head->ids);
    XXH3_64bits_update(&sum, head->sums, (n_page(head) + 1) * sizeof *head->sums);
    return XXH3_64bits_digest(&sum);
}

/* --- writing ---------------------------------------------------------------------------------- */

static pn_status head_write(int fd, const char *name, const pn_seq_head *head, pn_err *err)
{
    fixed f = {
        .version = PN_SEQ_FILE_VERSION,
        .kv_type = (uint32_t)head->kind.kv_type,
        .model = head->kind.model,
        .key = head->key,
        .parent = head->parent,
        .n_parent = (uint32_t)head->n_parent,
        .n_tok = (uint32_t)head->n_tok,
        .n_vocab = head->kind.n_vocab,
        .page_bytes = (uint32_t)head->kind.page_bytes,
        .rec_bytes = head->kind.rec_bytes,
    };
    memcpy(f.magic, magic, sizeof magic);
    const uint64_t sum = head_sum(&f, head);
    const size_t ids_bytes = n_id(head) * sizeof *head->ids;
    const size_t sums_bytes = (n_page(head) + 1) * sizeof *head->sums;
    PN_TRY(pn_fd_write(fd, name, &f, sizeof f, 0, err));
    PN_TRY(pn_fd_write(fd, name, head->ids, ids_bytes, sizeof f, err));
    PN_TRY(pn_fd_write(fd, name, head->sums, sums_bytes, sizeof f + ids_bytes, err));
    return pn_fd_write(fd, name, &sum, sizeof sum, sizeof f + ids_bytes + sums_bytes, err);
}

pn_status pn_seq_file_write(int fd, const char *name, pn_seq_head *head,
                            const pn_snapshot *snapshot, pn_err *err)
{
    PN_REQUIRE((size_t)snapshot->pos == head->n_tok, err);
    const size_t first = pn_seq_head_first_page(head), bytes = head->kind.page_bytes;
    for (size_t i = 0; i < n_page(head); i++) {
        PN_TRY(pn_block_read(snapshot->pages[first + i], err));
        const uint8_t *const page = snapshot->pages[first + i]->data;
        head->sums[i] = XXH3_64bits(page, bytes);
        PN_TRY(pn_fd_write(fd, name, page, bytes, head_bytes(head) + i * bytes, err));
    }
    PN_TRY(pn_block_read(snapshot->rec, err));
    const uint8_t *const rec = snapshot->rec->data;
    head->sums[n_page(head)] = XXH3_64bits(rec, head->kind.rec_bytes);
    PN_TRY(pn_fd_write(fd, name, rec, head->kind.rec_bytes, rec_off(head), err));
    return head_write(fd, name, head, err);
}

pn_status pn_seq_rec_write(int fd, const char *name, const pn_seq_head *head,
                           const pn_snapshot *snapshot, pn_err *err)
{
    PN_TRY(pn_block_read(snapshot->rec, err));
    const uint8_t *const rec = snapshot->rec->data;
    if (XXH3_64bits(rec, head->kind.rec_bytes) != head->sums[n_page(head)])
        return pn_fail(err, PN_ERR_FORMAT, "%s: is of another state after the same tokens", name);
    return pn_fd_write(fd, name, rec, head->kind.rec_bytes, rec_off(head), err);
}

/* --- reading ---------------------------------------------------------------------------------- */

/* The counts and sizes of a head; what they say is checked against the file's size. */
static pn_status fixed_check(const fixed *f, const char *name, uint64_t size, pn_seq_head *head,
                             bool *has_rec, pn_err *err)
{
    if (memcmp(f->magic, magic, sizeof magic) != 0)
        return pn_fail(err, PN_ERR_FORMAT, "%s: is not a saved state", name);
    if (f->version != PN_SEQ_FILE_VERSION)
        return pn_fail(err, PN_ERR_UNSUPPORTED,
                       "%s: is a saved state of version %" PRIu32 "; version %d expected", name,
                       f->version, PN_SEQ_FILE_VERSION);
    if (f->kv_type >= PN_KV_COUNT || f->n_vocab > INT32_MAX || f->n_tok > PN_SEQ_FILE_MAX_TOKENS ||
        f->n_parent >= f->n_tok)
        return pn_fail(err, PN_ERR_FORMAT, "%s: is a damaged state: its counts are impossible",
                       name);
    *head = (pn_seq_head){
        .kind = { f->model, (pn_kv_type)f->kv_type, f->n_vocab, f->page_bytes, f->rec_bytes },
        .key = f->key,
        .parent = f->parent,
        .n_parent = f->n_parent,
        .n_tok = f->n_tok,
    };
    const uint64_t end = rec_off(head);
    if (size < end)
        return pn_fail(err, PN_ERR_FORMAT, "%s: is a damaged state: it ends at byte %" PRIu64, name,
                       size);
    if (size - end > f->rec_bytes)
        return pn_fail(err, PN_ERR_FORMAT, "%s: is a damaged state: %" PRIu64 " bytes too long",
                       name, size - end - f->rec_bytes);
    *has_rec = size - end == f->rec_bytes;
    return PN_OK;
}

/* ids and sums, for which there is memory. */
static pn_status tables_read(int fd, const char *name, const fixed *f, pn_seq_head *head,
                             pn_err *err)
{
    const size_t ids_bytes = n_id(head) * sizeof *head->ids;
    const size_t sums_bytes = (n_page(head) + 1) * sizeof *head->sums;
    uint64_t sum = 0;
    PN_TRY(pn_fd_read(fd, name, head->ids, ids_bytes, sizeof *f, err));
    PN_TRY(pn_fd_read(fd, name, head->sums, sums_bytes, sizeof *f + ids_bytes, err));
    PN_TRY(pn_fd_read(fd, name, &sum, sizeof sum, sizeof *f + ids_bytes + sums_bytes, err));
    bool is_good = sum == head_sum(f, head);
    for (size_t i = 0; i < n_id(head); i++)
        is_good = is_good && (uint32_t)head->ids[i] < f->n_vocab;
    if (!is_good)
        return pn_fail(err, PN_ERR_FORMAT, "%s: is a damaged state: its head is wrong", name);
    return PN_OK;
}

pn_status pn_seq_head_read(int fd, const char *name, pn_seq_head *head, bool *has_rec, pn_err *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return pn_fail(err, PN_ERR_IO, "%s: %s", name, strerror(errno));
    fixed f = { 0 };
    if (!S_ISREG(st.st_mode) || (size_t)st.st_size < sizeof f)
        return pn_fail(err, PN_ERR_FORMAT, "%s: is not a saved state", name);
    PN_TRY(pn_fd_read(fd, name, &f, sizeof f, 0, err));
    pn_seq_head h;
    bool is_whole = false;
    PN_TRY(fixed_check(&f, name, (uint64_t)st.st_size, &h, &is_whole, err));
    PN_TRY(head_alloc(&h, err));
    const pn_status status = tables_read(fd, name, &f, &h, err);
    if (status != PN_OK) {
        pn_seq_head_clear(&h);
        return status;
    }
    *head = h;
    *has_rec = is_whole;
    return PN_OK;
}

bool pn_seq_file_is_one(int fd)
{
    char start[sizeof magic];
    return pn_fd_read(fd, "", start, sizeof start, 0, NULL) == PN_OK &&
           memcmp(start, magic, sizeof magic) == 0;
}

static pn_status part_read(int fd, const char *name, void *dst, size_t len, uint64_t off,
                           uint64_t sum, pn_err *err)
{
    PN_TRY(pn_fd_read(fd, name, dst, len, off, err));
    if (XXH3_64bits(dst, len) != sum)
        return pn_fail(err, PN_ERR_FORMAT,
                       "%s: is a damaged state: the sum at byte %" PRIu64 " is wrong", name, off);
    return PN_OK;
}

pn_status pn_seq_page_read(int fd, const char *name, const pn_seq_head *head, size_t i, void *dst,
                           pn_err *err)
{
    i -= pn_seq_head_first_page(head);
    PN_ASSERT(i < n_page(head));
    const size_t bytes = head->kind.page_bytes;
    return part_read(fd, name, dst, bytes, head_bytes(head) + i * bytes, head->sums[i], err);
}

pn_status pn_seq_rec_read(int fd, const char *name, const pn_seq_head *head, void *dst, pn_err *err)
{
    return part_read(fd, name, dst, head->kind.rec_bytes, rec_off(head), head->sums[n_page(head)],
                     err);
}
