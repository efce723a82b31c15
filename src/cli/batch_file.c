#include "cli/batch_file.h"

#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* --- ids -------------------------------------------------------------------------------------- */

static void place(struct pn_id_hash *slots, size_t cap, struct pn_id_hash h, bool *is_new)
{
    size_t i = h.lo & (cap - 1);
    while ((slots[i].lo || slots[i].hi) && (slots[i].lo != h.lo || slots[i].hi != h.hi))
        i = (i + 1) & (cap - 1);
    *is_new = !slots[i].lo && !slots[i].hi;
    slots[i] = h;
}

pn_status pn_id_set_add(pn_id_set *set, pn_span id, bool *is_new, pn_err *err)
{
    const XXH128_hash_t x = XXH3_128bits(id.ptr, id.len);
    const struct pn_id_hash h = { x.low64, x.high64 | 1 }; /* never the mark of a free slot */
    if (2 * (set->n + 1) > set->cap) {
        const size_t cap = set->cap ? 2 * set->cap : 1024;
        struct pn_id_hash *const slots = pn_calloc(cap, sizeof *slots);
        if (!slots)
            return pn_fail(err, PN_ERR_NOMEM, "no memory for %zu ids", set->n);
        bool unused;
        for (size_t i = 0; i < set->cap; i++)
            if (set->slots[i].hi)
                place(slots, cap, set->slots[i], &unused);
        pn_free(set->slots);
        set->slots = slots;
        set->cap = cap;
    }
    place(set->slots, set->cap, h, is_new);
    set->n += *is_new;
    return PN_OK;
}

void pn_id_set_free(pn_id_set *set)
{
    pn_free(set->slots);
    *set = (pn_id_set){ 0 };
}

/* --- requests --------------------------------------------------------------------------------- */

pn_status pn_batch_in_open(const char *path, pn_batch_in *in, pn_err *err)
{
    const bool is_stdin = strcmp(path, "-") == 0;
    *in = (pn_batch_in){ .name = is_stdin ? "standard input" : path };
    in->file = is_stdin ? stdin : fopen(path, "re");
    return in->file ? PN_OK : pn_fail(err, PN_ERR_IO, "%s: %s", path, strerror(errno));
}

void pn_batch_in_close(pn_batch_in *in)
{
    if (in->file && in->file != stdin)
        fclose(in->file);
    pn_buf_free(&in->line);
    *in = (pn_batch_in){ 0 };
}

/* A line with its end, if it has one; empty at the end of the file. */
static pn_status read_line(pn_batch_in *in, pn_err *err)
{
    int c = 0;
    in->line.len = 0;
    while (c != '\n' && (c = getc_unlocked(in->file)) != EOF) {
        pn_buf_addc(&in->line, (char)c);
        if (in->line.len > PN_JSON_MAX_BYTES)
            return pn_fail(err, PN_ERR_LIMIT, "%s: line %lld is longer than %zu MiB", in->name,
                           (long long)in->n_line + 1, PN_JSON_MAX_BYTES >> 20);
    }
    if (ferror(in->file))
        return pn_fail(err, PN_ERR_IO, "%s: %s", in->name, strerror(errno));
    return pn_buf_ok(&in->line) ? PN_OK : pn_fail(err, PN_ERR_NOMEM, "no memory for a line");
}

static bool is_blank(const pn_buf *line)
{
    for (size_t i = 0; i < line->len; i++)
        if (!strchr(" \t\r\n", line->ptr[i]) || !line->ptr[i])
            return false;
    return true;
}

pn_status pn_batch_in_next(pn_batch_in *in, pn_span *text, pn_err *err)
{
    *text = (pn_span){ 0 };
    do {
        PN_TRY(read_line(in, err));
        if (!in->line.len)
            return PN_OK;
        in->n_line++;
    } while (is_blank(&in->line));
    *text = pn_buf_span(&in->line);
    return PN_OK;
}

/* --- answers ---------------------------------------------------------------------------------- */

static const char beginning[] = "{\"custom_id\": \""; /* of each line that we write */

/* Notes the id of a whole line. */
static pn_status read_answer(pn_span line, pn_id_set *done, pn_err *err)
{
    pn_json *v = NULL;
    bool is_new;
    PN_TRY(pn_json_parse(line.ptr, line.len, "answer", &v, err));
    const pn_json *const id = pn_json_get(v, "custom_id");
    /* A file of requests has ids, too, but no responses. */
    const pn_status st = id && pn_json_type_of(id) == PN_JSON_STR && pn_json_get(v, "response")
                             ? pn_id_set_add(done, pn_json_str(id), &is_new, err)
                             : pn_fail(err, PN_ERR_FORMAT, "no custom_id or no response");
    pn_json_free(v);
    return st;
}

/* Reads the ids of what is there; *end: behind the last whole line. Only what may be the beginning
 * of an answer counts as torn: it will be cut off. */
static pn_status read_done(pn_batch_out *out, pn_id_set *done, off_t *end, pn_err *err)
{
    pn_batch_in lines = { .file = out->file, .name = out->name };
    pn_span text;
    pn_status st;
    *end = 0;
    while ((st = pn_batch_in_next(&lines, &text, err)) == PN_OK && text.ptr) {
        const size_t n = text.len < sizeof beginning - 1 ? text.len : sizeof beginning - 1;
        const bool is_torn = text.ptr[text.len - 1] != '\n';
        if (is_torn && memcmp(text.ptr, beginning, n) == 0)
            break;
        st = is_torn ? pn_fail(err, PN_ERR_FORMAT, "not the beginning of one either")
                     : read_answer(text, done, err);
        if (st != PN_OK) {
            pn_err_prefix(err, "%s: line %lld is no answer of a batch: ", out->name,
                          (long long)lines.n_line);
            break;
        }
        *end = ftello(out->file);
    }
    pn_buf_free(&lines.line);
    return st;
}

/* Makes an open file of answers ready to be added to. Pipes and devices are so already. */
static pn_status go_on(pn_batch_out *out, const pn_batch_in *in, pn_id_set *done, pn_err *err)
{
    const int fd = fileno(out->file);
    struct stat info, source;
    off_t end;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))
        return PN_OK;
    if (fstat(fileno(in->file), &source) == 0 && source.st_dev == info.st_dev &&
        source.st_ino == info.st_ino)
        return pn_fail(err, PN_ERR_IO, "%s: the answers cannot go into the file of requests",
                       out->name);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return pn_fail(err, PN_ERR_IO, "%s: another process is writing it", out->name);
    PN_TRY(read_done(out, done, &end, err));
    if (fseeko(out->file, end, SEEK_SET) != 0 || ftruncate(fd, end) != 0)
        return pn_fail(err, PN_ERR_IO, "%s: %s", out->name, strerror(errno));
    return PN_OK;
}

pn_status pn_batch_out_open(const char *path, const pn_batch_in *in, bool is_resumed,
                            pn_id_set *done, pn_batch_out *out, pn_err *err)
{
    *out = (pn_batch_out){ .name = path };
    const int flags = O_RDWR | O_CREAT | O_CLOEXEC | (is_resumed ? 0 : O_EXCL);
    const int fd = open(path, flags, 0666);
    if (fd < 0 && errno == EEXIST)
        return pn_fail(err, PN_ERR_IO, "%s exists: --resume goes on with it", path);
    out->file = fd < 0 ? NULL : fdopen(fd, "r+");
    if (!out->file) {
        const int error = errno;
        if (fd >= 0)
            close(fd);
        return pn_fail(err, PN_ERR_IO, "%s: %s", path, strerror(error));
    }
    const pn_status st = go_on(out, in, done, err);
    if (st != PN_OK) {
        fclose(out->file);
        out->file = NULL;
    }
    return st;
}

pn_status pn_batch_out_put(pn_batch_out *out, pn_span line, pn_err *err)
{
    if (fwrite(line.ptr, 1, line.len, out->file) == line.len && fputc('\n', out->file) == '\n' &&
        fflush(out->file) == 0)
        return PN_OK;
    return pn_fail(err, PN_ERR_IO, "%s: %s", out->name, strerror(errno));
}

pn_status pn_batch_out_close(pn_batch_out *out, pn_err *err)
{
    if (!out->file)
        return PN_OK;
    /* EINVAL: a pipe or a device, which has nothing to be put on a disk. */
    const bool is_safe =
        fflush(out->file) == 0 && (fsync(fileno(out->file)) == 0 || errno == EINVAL);
    const int error = errno;
    fclose(out->file);
    out->file = NULL;
    return is_safe ? PN_OK : pn_fail(err, PN_ERR_IO, "%s: %s", out->name, strerror(error));
}
