/* The lock, the queue and the writer. Files are read and written outside of the lock; what a reader
 * (store_read.c) or the writer works with is pinned meanwhile. */
#include "engine/store_internal.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static void job_clear(pn_store_job *j)
{
    pn_free(j->ids);
    pn_snapshot_free(j->snapshot);
    *j = (pn_store_job){ 0 };
}

/* --- the writer ------------------------------------------------------------------------------- */

/* Makes room for n more bytes and counts them. Called with the lock. */
static pn_status book(pn_store *s, uint64_t n, pn_err *err)
{
    if (n > s->max_bytes || !pn_index_shrink(&s->index, s->max_bytes - n))
        return pn_fail(err, PN_ERR_LIMIT,
                       "a border of %.1f MB does not fit the disk budget of %.1f MB%s", n * 1e-6,
                       s->max_bytes * 1e-6, n > s->max_bytes ? "" : " beside what is in use");
    s->index.bytes += n;
    return PN_OK;
}

static pn_status write_file(pn_store *s, pn_record *r, const pn_snapshot *snapshot, pn_err *err)
{
    pn_new_file file;
    PN_TRY(pn_new_file_open(s->index.dir_fd, r->name, &file, err));
    const pn_status st = pn_seq_file_write(file.fd, r->name, &r->head, snapshot, err);
    if (st != PN_OK) {
        pn_new_file_abort(&file);
        return st;
    }
    /* Not waited for until it is on the disk: after a crash of the system the sums tell. */
    return pn_new_file_commit(&file, false, err);
}

/* A border that continues parent, or stands alone. Called with the lock, which it lets go while it
 * writes; parent is pinned. */
static pn_status write_new(pn_store *s, const pn_store_job *j, pn_record *parent, pn_err *err)
{
    pn_seq_head head;
    pn_record *r = NULL;
    const size_t n_tok = (size_t)j->snapshot->pos;
    PN_TRY(pn_seq_head_init(&head, &s->kind, j->ids, parent ? parent->head.n_tok : 0, n_tok, err));
    pn_status st = pn_record_new(&head, parent, &r, err);
    pn_seq_head_clear(&head);
    PN_TRY(st);
    const uint64_t bytes = pn_seq_file_bytes(&r->head, true);
    if (pn_index_by_key(&s->index, &r->head.key, n_tok))
        st = pn_fail(err, PN_ERR_FORMAT, "%s: has other tokens with the same key", r->name);
    if (st == PN_OK)
        st = book(s, bytes, err);
    if (st != PN_OK) {
        pn_record_free(r);
        return st;
    }
    pthread_mutex_unlock(&s->lock);
    st = write_file(s, r, j->snapshot, err);
    pthread_mutex_lock(&s->lock);
    const bool is_there = st == PN_OK;
    if (st == PN_OK && parent && parent->is_dead)
        st = pn_fail(err, PN_ERR_FORMAT, "%s: what it continues was removed", r->name);
    if (st == PN_OK)
        st = pn_index_add(&s->index, r, err);
    if (st == PN_OK) {
        pn_store_touch(s, r, j->rank);
        return PN_OK;
    }
    if (is_there)
        unlinkat(s->index.dir_fd, r->name, 0);
    s->index.bytes -= bytes;
    pn_record_free(r);
    return st;
}

/* The recurrent block of a file that lost it. Called as above; r is pinned. */
static pn_status write_again(pn_store *s, const pn_store_job *j, pn_record *r, pn_err *err)
{
    const uint64_t bytes = r->head.kind.rec_bytes;
    PN_TRY(book(s, bytes, err));
    pthread_mutex_unlock(&s->lock);
    int fd = -1;
    pn_status st = pn_index_open_file(&s->index, r->name, O_RDWR, &fd, err);
    if (st == PN_OK) {
        st = pn_seq_rec_write(fd, r->name, &r->head, j->snapshot, err);
        if (st != PN_OK && ftruncate(fd, (off_t)pn_seq_file_bytes(&r->head, false)) != 0)
            st = pn_fail(err, PN_ERR_IO, "%s: %s", r->name, strerror(errno));
        close(fd);
    }
    pthread_mutex_lock(&s->lock);
    if (st != PN_OK || r->is_dead) {
        s->index.bytes -= bytes;
        return st;
    }
    r->has_rec = true;
    pn_store_touch(s, r, j->rank);
    return PN_OK;
}

static pn_status write_job(pn_store *s, const pn_store_job *j, pn_err *err)
{
    const size_t n_tok = (size_t)j->snapshot->pos;
    pn_record *const r = pn_index_find(&s->index, &s->kind, j->ids, n_tok).longest;
    const bool is_known = r && r->head.n_tok == n_tok;
    if (is_known && r->has_rec) {
        pn_store_touch(s, r, j->rank);
        return PN_OK;
    }
    pn_index_pin(r);
    const pn_status st = is_known ? write_again(s, j, r, err) : write_new(s, j, r, err);
    pn_index_unpin(&s->index, r);
    s->n_written += st == PN_OK;
    return st;
}

/* Tells the first of failures in a row. Called with the lock. */
static void note(pn_store *s, pn_status st, const pn_err *err)
{
    char line[PN_ERR_MSG_BYTES + 64];
    if (st != PN_OK) {
        s->n_failed++;
        if (!s->has_failed && s->index.log) {
            snprintf(line, sizeof line, "state cache: a border is not kept on disk: %s", err->msg);
            s->index.log(s->index.log_ctx, 1, line);
        }
    }
    s->has_failed = st != PN_OK;
}

static void *writer_main(void *arg)
{
    pn_store *const s = arg; /* SIGXFSZ is blocked: a file too large is an error */
    /* What decoding leaves of the processors. Not SCHED_IDLE: beside a busy program that could keep
     * the lock from an engine for long. */
    setpriority(PRIO_PROCESS, (id_t)gettid(), 19);
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (!s->n_queued && !s->is_closing)
            pthread_cond_wait(&s->is_changed, &s->lock);
        if (!s->n_queued)
            break;
        pn_err err = { 0 };
        const pn_store_job j = s->queue[0]; /* stays there, to be seen, until it is done */
        s->is_writing = true;
        note(s, write_job(s, &j, &err), &err);
        s->is_writing = false;
        job_clear(&s->queue[0]);
        memmove(s->queue, s->queue + 1, --s->n_queued * sizeof *s->queue);
        pthread_cond_broadcast(&s->is_changed);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* --- the queue -------------------------------------------------------------------------------- */

static bool begins_with(const pn_store_job *j, const int32_t *ids, int n_tok)
{
    return j->snapshot->pos >= n_tok && memcmp(j->ids, ids, (size_t)n_tok * sizeof *ids) == 0;
}

/* The same border in the queue; NULL: none. */
static pn_store_job *find_job(pn_store *s, const int32_t *ids, int n_tok)
{
    for (size_t i = 0; i < s->n_queued; i++)
        if (s->queue[i].snapshot->pos == n_tok && begins_with(&s->queue[i], ids, n_tok))
            return &s->queue[i];
    return NULL;
}

/* Takes the steps out of the queue whose path j continues. */
static void drop_steps(pn_store *s, const pn_store_job *j)
{
    size_t n = s->is_writing;
    for (size_t i = n; i < s->n_queued; i++)
        if (s->queue[i].rank == PN_STORE_STEP &&
            begins_with(j, s->queue[i].ids, s->queue[i].snapshot->pos))
            job_clear(&s->queue[i]);
        else
            s->queue[n++] = s->queue[i];
    s->n_queued = n;
}

/* Puts a job behind all others; steps make way. Called with the lock. */
static pn_status enqueue(pn_store *s, const pn_store_job *j, pn_err *err)
{
    drop_steps(s, j);
    if (s->n_queued == PN_STORE_MAX_QUEUE)
        return pn_fail(err, PN_ERR_LIMIT, "%d borders wait to be written already",
                       PN_STORE_MAX_QUEUE);
    size_t at = s->n_queued++;
    for (; at > s->is_writing && s->queue[at - 1].rank == PN_STORE_STEP && j->rank > PN_STORE_STEP;
         at--)
        s->queue[at] = s->queue[at - 1];
    s->queue[at] = *j;
    pthread_cond_broadcast(&s->is_changed);
    return PN_OK;
}

pn_status pn_store_put(pn_store *s, const int32_t *ids, pn_snapshot *snapshot, pn_store_rank rank,
                       pn_err *err)
{
    PN_ASSERT(snapshot->kv_type == s->kind.kv_type);
    const size_t n_tok = (size_t)snapshot->pos;
    pn_store_job j = { .ids = pn_calloc(n_tok, sizeof *ids), .snapshot = snapshot, .rank = rank };
    pn_status st = PN_OK;
    if (!j.ids)
        st = pn_fail(err, PN_ERR_NOMEM, "no memory for the ids of a border");
    else
        memcpy(j.ids, ids, n_tok * sizeof *ids);
    pthread_mutex_lock(&s->lock);
    pn_store_job *const same = find_job(s, ids, snapshot->pos);
    bool is_taken = false;
    if (same)
        same->rank = rank > same->rank ? rank : same->rank;
    else if (st == PN_OK) {
        st = enqueue(s, &j, err);
        is_taken = st == PN_OK;
    }
    pthread_mutex_unlock(&s->lock);
    if (!is_taken)
        job_clear(&j);
    return st;
}

bool pn_store_flush(pn_store *s)
{
    pthread_mutex_lock(&s->lock);
    const bool had_some = s->n_queued > 0;
    while (s->n_queued)
        pthread_cond_wait(&s->is_changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
    return had_some;
}

bool pn_store_drop_queue(pn_store *s)
{
    pthread_mutex_lock(&s->lock);
    const bool had_some = s->n_queued > s->is_writing;
    while (s->n_queued > s->is_writing)
        job_clear(&s->queue[--s->n_queued]);
    pthread_cond_broadcast(&s->is_changed);
    pthread_mutex_unlock(&s->lock);
    return had_some;
}

/* --- finding ---------------------------------------------------------------------------------- */

size_t pn_store_find(pn_store *s, const int32_t *ids, size_t n_tok)
{
    pthread_mutex_lock(&s->lock);
    const pn_record *const r = pn_index_find(&s->index, &s->kind, ids, n_tok).border;
    const size_t n = r ? r->head.n_tok : 0;
    pthread_mutex_unlock(&s->lock);
    return n;
}

pn_status pn_store_each_leaf(pn_store *s, pn_store_leaf_fn *fn, void *ctx, pn_err *err)
{
    pn_buf ids = { 0 };
    bool goes_on = true;
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < s->index.n_record && goes_on && pn_buf_ok(&ids); i++) {
        const pn_record *const leaf = s->index.records[i];
        if (leaf->n_child || leaf->is_dead || !pn_seq_kind_equal(&leaf->head.kind, &s->kind))
            continue;
        ids.len = 0;
        int32_t *const all = (void *)pn_buf_extend(&ids, leaf->head.n_tok * sizeof *all);
        for (const pn_record *r = leaf; all && r; r = r->parent)
            memcpy(all + r->head.n_parent, r->head.ids,
                   (r->head.n_tok - r->head.n_parent) * sizeof *all);
        if (all)
            goes_on = fn(ctx, all, leaf->head.n_tok);
    }
    pthread_mutex_unlock(&s->lock);
    const bool is_ok = pn_buf_ok(&ids);
    pn_buf_free(&ids);
    return is_ok ? PN_OK : pn_fail(err, PN_ERR_NOMEM, "no memory for the ids of a border");
}

/* --- opening and closing ---------------------------------------------------------------------- */

static pn_status open_dir(const char *dir, int *dir_fd, pn_err *err)
{
    if (mkdir(dir, 0700) != 0 && errno != EEXIST)
        return pn_fail(err, PN_ERR_IO, "cache folder %s: cannot be made: %s", dir, strerror(errno));
    const int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return pn_fail(err, PN_ERR_IO, "cache folder %s: %s", dir, strerror(errno));
    if (faccessat(fd, ".", R_OK | W_OK | X_OK, AT_EACCESS) != 0) {
        const int why = errno;
        close(fd);
        return pn_fail(err, PN_ERR_IO, "cache folder %s: cannot be written: %s", dir,
                       strerror(why));
    }
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        const int why = errno;
        close(fd);
        return pn_fail(err, PN_ERR_IO, "cache folder %s: %s", dir,
                       why == EWOULDBLOCK ? "another process is using it; give this one a folder "
                                            "of its own"
                                          : strerror(why));
    }
    *dir_fd = fd;
    return PN_OK;
}

/* Everything but the thread. */
static void clear(pn_store *s)
{
    pn_index_clear(&s->index);
    if (s->index.dir_fd >= 0)
        close(s->index.dir_fd);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->is_changed);
    pn_free(s);
}

static pn_status fill(pn_store *s, const char *dir, pn_err *err)
{
    PN_TRY(open_dir(dir, &s->index.dir_fd, err));
    const pn_status st = pn_index_scan(&s->index, err);
    if (st != PN_OK) {
        pn_err_prefix(err, "cache folder %s: ", dir);
        return st;
    }
    pn_index_shrink(&s->index, s->max_bytes); /* nothing is held yet */
    if (!pn_thread_start(&s->writer, writer_main, s))
        return pn_fail(err, PN_ERR_NOMEM, "cache folder %s: no thread to write it", dir);
    return PN_OK;
}

pn_status pn_store_open(const pn_seq_kind *kind, const pn_store_opts *opts, pn_store **store,
                        pn_err *err)
{
    pn_store *const s = pn_calloc(1, sizeof *s);
    if (!s)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for a state cache");
    s->kind = *kind;
    s->max_bytes = opts->max_bytes;
    s->index = (pn_index){ .dir_fd = -1, .log = opts->log, .log_ctx = opts->log_ctx };
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->is_changed, NULL);
    const pn_status st = fill(s, opts->dir, err);
    if (st != PN_OK) {
        clear(s);
        return st;
    }
    *store = s;
    return PN_OK;
}

void pn_store_close(pn_store *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->is_closing = true;
    pthread_cond_broadcast(&s->is_changed);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->writer, NULL);
    clear(s);
}

void pn_store_get_stats(pn_store *s, pn_store_stats *stats)
{
    pthread_mutex_lock(&s->lock);
    *stats = (pn_store_stats){
        .n_files = s->index.n_record,
        .bytes = s->index.bytes,
        .max_bytes = s->max_bytes,
        .n_queued = s->n_queued,
        .n_written = s->n_written,
        .n_failed = s->n_failed,
        .n_evicted = s->index.n_evicted,
        .n_damaged = s->index.n_damaged,
    };
    for (size_t i = 0; i < s->index.n_record; i++)
        stats->n_borders += s->index.records[i]->has_rec;
    pthread_mutex_unlock(&s->lock);
}
