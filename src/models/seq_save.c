/* One sequence as one file, which the user names. */
#include "models/seq_file.h"

#include "base/file.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- saving ----------------------------------------------------------------------------------- */

/* The folder of a path and, in *name, the rest of it. */
static pn_status open_parent(const char *path, const char **name, int *dir_fd, pn_err *err)
{
    const char *const slash = strrchr(path, '/');
    const char *const base = slash ? slash + 1 : path;
    if (!*base)
        return pn_fail(err, PN_ERR_ARG, "%s: is not the name of a file", path);
    char *const dir = slash ? pn_strndup(path, (size_t)(base - path)) : pn_strndup(".", 1);
    if (!dir)
        return pn_fail(err, PN_ERR_NOMEM, "%s: no memory for its name", path);
    const int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const int why = errno;
    pn_free(dir);
    if (fd < 0)
        return pn_fail(err, PN_ERR_IO, "%s: %s", path, strerror(why));
    *name = base;
    *dir_fd = fd;
    return PN_OK;
}

/* A saved state may be replaced, and nothing else. */
static pn_status check_target(int dir_fd, const char *name, pn_err *err)
{
    const int fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return PN_OK;
    const bool is_state = fd >= 0 && pn_seq_file_is_one(fd);
    if (fd >= 0)
        close(fd);
    if (!is_state)
        return pn_fail(err, PN_ERR_ARG, "%s: is there already, and is not a saved state", name);
    return PN_OK;
}

static pn_status write_file(int dir_fd, const char *name, pn_seq_head *head,
                            const pn_snapshot *snapshot, pn_err *err)
{
    pn_new_file file;
    PN_TRY(check_target(dir_fd, name, err));
    PN_TRY(pn_new_file_open(dir_fd, name, &file, err));
    const pn_status st = pn_seq_file_write(file.fd, name, head, snapshot, err);
    if (st == PN_OK)
        return pn_new_file_commit(&file, true, err);
    pn_new_file_abort(&file);
    return st;
}

pn_status pn_snapshot_save(const pn_model *model, const pn_snapshot *snapshot, const int32_t *ids,
                           int dir_fd, const char *name, pn_err *err)
{
    pn_seq_head head = { 0 };
    const pn_seq_kind kind = pn_seq_kind_of(model, snapshot->kv_type);
    PN_TRY(pn_seq_head_init(&head, &kind, ids, 0, (size_t)snapshot->pos, err));
    const pn_status st = write_file(dir_fd, name, &head, snapshot, err);
    pn_seq_head_clear(&head);
    return st;
}

pn_status pn_seq_save(const pn_model *model, const pn_seq *seq, const int32_t *ids,
                      const char *path, pn_err *err)
{
    PN_REQUIRE(model && seq && ids && path && seq->layout == &model->layout, err);
    pn_snapshot *snapshot = NULL;
    const char *name = NULL;
    int dir_fd = -1;
    PN_TRY(pn_snapshot_new(seq, &snapshot, err));
    pn_status st = open_parent(path, &name, &dir_fd, err);
    if (st == PN_OK) {
        st = pn_snapshot_save(model, snapshot, ids, dir_fd, name, err);
        close(dir_fd);
    }
    pn_snapshot_free(snapshot);
    return st;
}

/* --- restoring -------------------------------------------------------------------------------- */

/* Whether a file is of this model and for this sequence. */
static pn_status check_head(const pn_model *model, const pn_seq *seq, const char *path,
                            const pn_seq_head *head, bool has_rec, pn_err *err)
{
    const pn_seq_kind kind = pn_seq_kind_of(model, seq->kv_type);
    if (!pn_key_equal(&head->kind.model, &kind.model))
        return pn_fail(err, PN_ERR_UNSUPPORTED,
                       "%s: was saved with another model, or another version of %s", path,
                       model->info.path);
    if (head->kind.kv_type != seq->kv_type)
        return pn_fail(err, PN_ERR_UNSUPPORTED,
                       "%s: has keys and values of type %s; this sequence keeps them as %s", path,
                       pn_kv_type_name(head->kind.kv_type), pn_kv_type_name(seq->kv_type));
    if (!pn_seq_kind_equal(&head->kind, &kind) || !has_rec || head->n_parent)
        return pn_fail(err, PN_ERR_FORMAT, "%s: is not the whole state of a sequence", path);
    if (head->n_tok > (size_t)seq->n_ctx)
        return pn_fail(err, PN_ERR_LIMIT, "%s: has %zu tokens; the context holds %d", path,
                       head->n_tok, seq->n_ctx);
    return PN_OK;
}

/* Reads all of a file into a new sequence. */
static pn_status read_state(int fd, const char *path, const pn_seq_head *head, pn_seq *seq,
                            pn_err *err)
{
    PN_TRY(pn_seq_reserve(seq, (int)head->n_tok, err));
    PN_TRY(pn_seq_to_host(seq, (int)head->n_tok, err));
    for (size_t i = 0; i < pn_seq_head_end_page(head); i++)
        PN_TRY(pn_seq_page_read(fd, path, head, i, seq->pages[i]->data, err));
    PN_TRY(pn_seq_rec_read(fd, path, head, seq->rec->data, err));
    seq->pos = (int)head->n_tok;
    return PN_OK;
}

pn_status pn_seq_restore_fd(const pn_model *model, pn_seq *seq, int fd, const char *name,
                            int32_t *ids, pn_err *err)
{
    pn_seq_head head = { 0 };
    pn_seq made = { 0 };
    bool has_rec = false;
    pn_status st = pn_seq_head_read(fd, name, &head, &has_rec, err);
    if (st == PN_OK)
        st = check_head(model, seq, name, &head, has_rec, err);
    if (st == PN_OK)
        st = pn_seq_init(&made, seq->layout, seq->kv_type, seq->n_ctx, seq->budget, err);
    if (st == PN_OK)
        st = read_state(fd, name, &head, &made, err);
    if (st == PN_OK)
        st = pn_seq_fork(seq, &made, err);
    if (st == PN_OK)
        memcpy(ids, head.ids, head.n_tok * sizeof *ids);
    pn_seq_clear(&made);
    pn_seq_head_clear(&head);
    return st;
}

pn_status pn_seq_restore(const pn_model *model, pn_seq *seq, const char *path, int32_t *ids,
                         pn_err *err)
{
    PN_REQUIRE(model && seq && ids && path && seq->layout == &model->layout, err);
    int fd;
    PN_TRY(pn_fd_open(AT_FDCWD, path, 0, &fd, err));
    const pn_status st = pn_seq_restore_fd(model, seq, fd, path, ids, err);
    close(fd);
    return st;
}
