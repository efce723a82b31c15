#include "engine/store_index.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SUFFIX     ".pnstate"
#define TMP_SUFFIX SUFFIX PN_TMP_SUFFIX

enum {
    HEX_DIGITS = 2 * sizeof(pn_key)
};
_Static_assert(HEX_DIGITS + sizeof SUFFIX <= PN_RECORD_NAME_BYTES, "names fit");

/* --- names and logging ------------------------------------------------------------------------ */

static void name_of_key(const pn_key *key, char name[PN_RECORD_NAME_BYTES])
{
    for (size_t i = 0; i < sizeof key->bytes; i++)
        snprintf(name + 2 * i, 3, "%02x", key->bytes[i]);
    memcpy(name + HEX_DIGITS, SUFFIX, sizeof SUFFIX);
}

/* Whether a name is one that a store makes, and ends in suffix. */
static bool is_ours(const char *name, const char *suffix)
{
    return strspn(name, "0123456789abcdef") == HEX_DIGITS && strcmp(name + HEX_DIGITS, suffix) == 0;
}

static void log_line(const pn_index *index, const pn_err *err, const char *what)
{
    char line[PN_ERR_MSG_BYTES + 64];
    if (!index->log)
        return;
    snprintf(line, sizeof line, "state cache: %s%s", err->msg, what);
    index->log(index->log_ctx, 1, line);
}

/* The time of day, but later than whatever it told before, so that a clock that is set back does
 * not make what is used now look older than all else. */
static int64_t now_ns(pn_index *index)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    const int64_t now = pn_ns_of(t);
    index->now_ns = now > index->now_ns ? now : index->now_ns + 1;
    return index->now_ns;
}

/* --- records ---------------------------------------------------------------------------------- */

pn_status pn_record_new(pn_seq_head *head, pn_record *parent, pn_record **record, pn_err *err)
{
    pn_record *const r = pn_calloc(1, sizeof *r);
    if (!r)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for the index of the state cache");
    r->head = *head;
    *head = (pn_seq_head){ 0 };
    r->parent = parent;
    r->has_rec = true;
    name_of_key(&r->head.key, r->name);
    *record = r;
    return PN_OK;
}

void pn_record_free(pn_record *r)
{
    if (!r)
        return;
    pn_seq_head_clear(&r->head);
    pn_free(r);
}

/* The first place whose record has at least n_tok tokens. */
static size_t lower_bound(const pn_index *index, size_t n_tok)
{
    size_t lo = 0, hi = index->n_record;
    while (lo < hi) {
        const size_t mid = lo + (hi - lo) / 2;
        if (index->records[mid]->head.n_tok < n_tok)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

pn_status pn_index_add(pn_index *index, pn_record *r, pn_err *err)
{
    if (index->n_record == index->cap) {
        const size_t cap = index->cap ? 2 * index->cap : 64;
        pn_record **const grown = pn_realloc(index->records, cap, sizeof *grown);
        if (!grown)
            return pn_fail(err, PN_ERR_NOMEM, "no memory for the index of the state cache");
        index->records = grown;
        index->cap = cap;
    }
    const size_t at = lower_bound(index, r->head.n_tok);
    memmove(index->records + at + 1, index->records + at,
            (index->n_record - at) * sizeof *index->records);
    index->records[at] = r;
    index->n_record++;
    if (r->parent)
        r->parent->n_child++;
    return PN_OK;
}

pn_record *pn_index_by_key(const pn_index *index, const pn_key *key, size_t n_tok)
{
    for (size_t i = lower_bound(index, n_tok); i < index->n_record; i++) {
        pn_record *const r = index->records[i];
        if (r->head.n_tok != n_tok)
            break;
        if (!r->is_dead && pn_key_equal(&r->head.key, key))
            return r;
    }
    return NULL;
}

pn_index_hit pn_index_find(pn_index *index, const pn_seq_kind *kind, const int32_t *ids,
                           size_t n_tok)
{
    pn_index_hit hit = { 0 };
    for (size_t i = 0; i < index->n_record; i++) {
        pn_record *const r = index->records[i];
        const pn_seq_head *const h = &r->head;
        if (h->n_tok > n_tok)
            break;
        r->is_on_path =
            !r->is_dead && (!r->parent || r->parent->is_on_path) &&
            pn_seq_kind_equal(&h->kind, kind) &&
            memcmp(h->ids, ids + h->n_parent, (h->n_tok - h->n_parent) * sizeof *ids) == 0;
        if (r->is_on_path)
            hit.longest = r;
        if (r->is_on_path && r->has_rec)
            hit.border = r;
    }
    return hit;
}

/* --- removing --------------------------------------------------------------------------------- */

static void remove_file(pn_index *index, const pn_record *r)
{
    unlinkat(index->dir_fd, r->name, 0);
    index->bytes -= pn_seq_file_bytes(&r->head, r->has_rec);
}

/* Drops the records that nobody needs or can reach; the longest first, which may free others. */
static void sweep(pn_index *index)
{
    size_t n = index->n_record;
    for (size_t i = n; i-- > 0;) {
        pn_record *const r = index->records[i];
        if (r->n_pin || (!r->is_dead && (r->has_rec || r->n_child)))
            continue;
        if (!r->is_dead)
            remove_file(index, r);
        if (r->parent)
            r->parent->n_child--;
        pn_record_free(r);
        index->records[i] = NULL;
    }
    n = 0;
    for (size_t i = 0; i < index->n_record; i++)
        if (index->records[i])
            index->records[n++] = index->records[i];
    index->n_record = n;
}

void pn_index_remove(pn_index *index, pn_record *record, const pn_err *why)
{
    log_line(index, why, "; it was removed");
    record->is_dead = true;
    for (size_t i = 0; i < index->n_record; i++) {
        pn_record *const r = index->records[i];
        const bool is_new = r == record || (!r->is_dead && r->parent && r->parent->is_dead);
        if (!is_new)
            continue;
        r->is_dead = true;
        remove_file(index, r);
        index->n_damaged++;
    }
    sweep(index);
}

void pn_index_pin(pn_record *r)
{
    for (; r; r = r->parent)
        r->n_pin++;
}

void pn_index_unpin(pn_index *index, pn_record *r)
{
    for (; r; r = r->parent)
        r->n_pin--;
    sweep(index);
}

/* Takes the recurrent block from a border: cut off the file where others need the rest. False, and
 * nothing is changed, when the file cannot be opened for want of descriptors. */
static bool evict(pn_index *index, pn_record *r)
{
    const uint64_t rest = pn_seq_file_bytes(&r->head, false);
    pn_err why = { 0 };
    if (r->n_child || r->n_pin) {
        int fd = -1;
        pn_status st = pn_index_open_file(index, r->name, O_RDWR, &fd, &why);
        if (st == PN_OK && ftruncate(fd, (off_t)rest) != 0)
            st = pn_fail(&why, PN_ERR_IO, "%s: %s", r->name, strerror(errno));
        if (fd >= 0)
            close(fd);
        if (st == PN_ERR_LIMIT)
            return false;
        if (st != PN_OK) {
            pn_index_remove(index, r, &why);
            return true;
        }
    }
    index->n_evicted++;
    index->bytes -= pn_seq_file_bytes(&r->head, true) - rest;
    r->has_rec = false;
    sweep(index);
    return true;
}

/* Bytes of what is held and cannot go. */
static uint64_t held_bytes(const pn_index *index)
{
    uint64_t n = 0;
    for (size_t i = 0; i < index->n_record; i++) {
        const pn_record *const r = index->records[i];
        if (r->n_pin && !r->is_dead)
            n += pn_seq_file_bytes(&r->head, r->n_reader > 0);
    }
    return n;
}

bool pn_index_shrink(pn_index *index, uint64_t max_bytes)
{
    if (held_bytes(index) > max_bytes)
        return false;
    while (index->bytes > max_bytes) {
        pn_record *oldest = NULL;
        for (size_t i = 0; i < index->n_record; i++) {
            pn_record *const r = index->records[i];
            if (r->has_rec && !r->is_dead && !r->n_reader &&
                (!oldest || r->used_ns < oldest->used_ns))
                oldest = r;
        }
        if (!oldest || !evict(index, oldest))
            return false;
    }
    return true;
}

void pn_index_touch(pn_index *index, pn_record *r, int64_t ago_s)
{
    const int64_t used_ns = now_ns(index) - ago_s * PN_NS_PER_S;
    if (used_ns < r->used_ns)
        return;
    r->used_ns = used_ns;
    const struct timespec t = pn_timespec_of(used_ns);
    const struct timespec times[] = { t, t };
    utimensat(index->dir_fd, r->name, times, AT_SYMLINK_NOFOLLOW);
}

/* --- the folder ------------------------------------------------------------------------------- */

pn_status pn_index_open_file(const pn_index *index, const char *name, int flags, int *fd,
                             pn_err *err)
{
    /* O_NONBLOCK: a pipe in the place of a file must not be waited for. */
    *fd = openat(index->dir_fd, name, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (*fd < 0)
        return pn_fail(err, errno == EMFILE || errno == ENFILE ? PN_ERR_LIMIT : PN_ERR_IO, "%s: %s",
                       name, strerror(errno));
    struct stat st;
    if (flags == O_RDWR && (fstat(*fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_nlink != 1)) {
        close(*fd);
        *fd = -1;
        return pn_fail(err, PN_ERR_IO, "%s: is not the state cache's alone", name);
    }
    return PN_OK;
}

/* One file as a record that has no parent yet. What is left of a block that was being cut off or
 * written again goes. */
static pn_status record_read(pn_index *index, const char *name, const struct stat *st,
                             pn_record **record, pn_err *err)
{
    pn_seq_head head;
    bool has_rec = false;
    int fd = -1;
    PN_TRY(pn_index_open_file(index, name, O_RDWR, &fd, err));
    pn_record *r = NULL;
    pn_status status = pn_seq_head_read(fd, name, &head, &has_rec, err);
    if (status == PN_OK) {
        status = pn_record_new(&head, NULL, &r, err);
        pn_seq_head_clear(&head);
    }
    if (status == PN_OK && strcmp(r->name, name) != 0)
        status = pn_fail(err, PN_ERR_FORMAT, "%s: has the content of another file", name);
    if (status == PN_OK && !has_rec &&
        ftruncate(fd, (off_t)pn_seq_file_bytes(&r->head, false)) != 0)
        status = pn_fail(err, PN_ERR_IO, "%s: %s", name, strerror(errno));
    close(fd);
    if (status != PN_OK) {
        pn_record_free(r);
        return status;
    }
    r->has_rec = has_rec;
    r->used_ns = pn_ns_of(st->st_mtim);
    if (r->used_ns > index->now_ns) /* a clock was wrong: it must not stay for ever */
        r->used_ns = index->now_ns;
    *record = r;
    return PN_OK;
}

/* Takes one file into the index, or removes it when it is damaged. Errors: PN_ERR_NOMEM. */
static pn_status scan_file(pn_index *index, const char *name, pn_err *err)
{
    struct stat st;
    if (fstatat(index->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode) ||
        st.st_nlink != 1) /* a file that has another name, too, is not the store's alone */
        return PN_OK;
    pn_record *r = NULL;
    pn_err why = { 0 };
    pn_status status = record_read(index, name, &st, &r, &why);
    if (status == PN_OK)
        status = pn_index_add(index, r, &why);
    if (status == PN_OK) {
        index->bytes += pn_seq_file_bytes(&r->head, r->has_rec);
        return PN_OK;
    }
    pn_record_free(r);
    if (status == PN_ERR_NOMEM)
        return pn_fail(err, status, "%s", why.msg);
    const bool is_gone = (status == PN_ERR_FORMAT || status == PN_ERR_UNSUPPORTED) &&
                         unlinkat(index->dir_fd, name, 0) == 0;
    index->n_damaged += is_gone;
    log_line(index, &why, is_gone ? "; it was removed" : "");
    return PN_OK;
}

/* Finds every record's parent, and removes those whose parent is not there. */
static void link_records(pn_index *index)
{
    for (size_t i = 0; i < index->n_record; i++) {
        pn_record *const r = index->records[i];
        if (!r->head.n_parent)
            continue;
        pn_record *const p = pn_index_by_key(index, &r->head.parent, r->head.n_parent);
        if (p && pn_seq_kind_equal(&p->head.kind, &r->head.kind)) {
            r->parent = p;
            p->n_child++;
        } else {
            r->is_dead = true;
            remove_file(index, r);
        }
    }
    sweep(index);
}

pn_status pn_index_scan(pn_index *index, pn_err *err)
{
    const int fd = openat(index->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *const dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir) {
        const int why = errno;
        if (fd >= 0)
            close(fd);
        return pn_fail(err, PN_ERR_IO, "the folder cannot be read: %s", strerror(why));
    }
    pn_status st = PN_OK;
    now_ns(index);
    for (const struct dirent *e; st == PN_OK && (e = readdir(dir));) {
        if (is_ours(e->d_name, TMP_SUFFIX))
            unlinkat(index->dir_fd, e->d_name, 0);
        else if (is_ours(e->d_name, SUFFIX))
            st = scan_file(index, e->d_name, err);
    }
    closedir(dir);
    if (st == PN_OK)
        link_records(index);
    return st;
}

void pn_index_clear(pn_index *index)
{
    for (size_t i = 0; i < index->n_record; i++)
        pn_record_free(index->records[i]);
    pn_free(index->records);
    index->records = NULL;
    index->n_record = index->cap = 0;
}
