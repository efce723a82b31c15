#include "server/slots.h"

#include "base/file.h"
#include "base/mem.h"
#include "engine/request.h"
#include "server/native.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct slot {
    pn_session *session; /* NULL: it holds nothing */
    bool is_taken;
    pn_slot_wait *waits; /* by arrival */
    uint64_t used_at;    /* by the slots' clock */
} slot;

struct pn_slots {
    pn_engine *engine;
    pn_state_opts state;
    int dir_fd; /* -1: none */
    uint64_t clock;
    int n;
    slot slots[];
};

/* --- memory ----------------------------------------------------------------------------------- */

static void empty(slot *s)
{
    pn_session_free(s->session);
    s->session = NULL;
}

/* Empties the slot that was unused for longest of those that nobody uses. */
static bool shed(void *ctx)
{
    pn_slots *const all = ctx;
    slot *oldest = NULL;
    for (slot *s = all->slots; s < all->slots + all->n; s++)
        if (s->session && !s->is_taken && (!oldest || s->used_at < oldest->used_at))
            oldest = s;
    if (!oldest)
        return false;
    empty(oldest);
    return true;
}

pn_status pn_slots_new(pn_engine *engine, const pn_state_opts *state, const char *dir,
                       pn_slots **slots, pn_err *err)
{
    const int n = engine->scheduler.n_max;
    pn_slots *const s = pn_calloc(1, sizeof *s + (size_t)n * sizeof *s->slots);
    if (!s)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for %d slots", n);
    *s = (pn_slots){ .engine = engine, .state = *state, .dir_fd = -1, .n = n };
    if (dir) {
        const pn_status st = pn_fd_open(AT_FDCWD, dir, O_DIRECTORY, &s->dir_fd, err);
        if (st != PN_OK) {
            pn_free(s);
            return st;
        }
    }
    if (engine->cache)
        pn_cache_set_shed(engine->cache, shed, s);
    *slots = s;
    return PN_OK;
}

void pn_slots_free(pn_slots *s)
{
    if (!s)
        return;
    if (s->engine->cache)
        pn_cache_set_shed(s->engine->cache, NULL, NULL);
    for (int id = 0; id < s->n; id++)
        empty(&s->slots[id]);
    if (s->dir_fd >= 0)
        close(s->dir_fd);
    pn_free(s);
}

int pn_slots_count(const pn_slots *s)
{
    return s->n;
}

/* --- use -------------------------------------------------------------------------------------- */

/* NULL, with the problem, when there is none of this id. */
static slot *find(pn_slots *s, int id, pn_problem *p)
{
    if (id >= 0 && id < s->n)
        return &s->slots[id];
    pn_problem_fail(p, 400, NULL, "id_slot: found %d, expected -1 to %d", id, s->n - 1);
    return NULL;
}

/* The same of one that nobody uses. */
static slot *find_free(pn_slots *s, int id, pn_problem *p)
{
    slot *const sl = find(s, id, p);
    if (!sl || !sl->is_taken)
        return sl;
    pn_problem_fail(p, 409, "slot_busy", "slot %d: a request is using it", id);
    return NULL;
}

static pn_status fill(const pn_slots *s, slot *sl, pn_problem *p)
{
    return sl->session ? PN_OK : pn_session_new(s->engine, &s->state, &sl->session, &p->err);
}

pn_status pn_slots_take(pn_slots *s, int id, pn_slot_wait *wait, pn_session **session,
                        pn_problem *p)
{
    slot *const sl = find(s, id, p);
    if (!sl)
        return p->err.code;
    *session = NULL;
    if (sl->is_taken) {
        pn_slot_wait **end = &sl->waits;
        while (*end)
            end = &(*end)->next;
        wait->next = NULL;
        *end = wait;
        return PN_OK;
    }
    PN_TRY(fill(s, sl, p));
    sl->is_taken = true;
    *session = sl->session;
    return PN_OK;
}

void pn_slots_give(pn_slots *s, int id)
{
    slot *const sl = &s->slots[id];
    PN_ASSERT(sl->is_taken);
    sl->is_taken = false;
    sl->used_at = ++s->clock;
    if (!sl->session->held.len)
        empty(sl);
    while (sl->waits && !sl->is_taken) { /* who waited may want it no more */
        pn_slot_wait *const first = sl->waits;
        sl->waits = first->next;
        first->ready(first->ctx);
    }
}

void pn_slots_leave(pn_slots *s, int id, pn_slot_wait *wait)
{
    if (id < 0 || id >= s->n)
        return;
    pn_slot_wait **at = &s->slots[id].waits;
    while (*at && *at != wait)
        at = &(*at)->next;
    if (*at)
        *at = wait->next;
}

/* --- rows ------------------------------------------------------------------------------------- */

static int id_of(const pn_slots *s, const pn_session *session)
{
    for (int id = 0; session && id < s->n; id++)
        if (s->slots[id].session == session)
            return id;
    return -1;
}

static void put_request(const pn_slots *s, const pn_request *r, pn_jw *w)
{
    const int n_left = r->opts.gen.n_predict - r->result.n_generated;
    pn_jw_begin_obj(w, NULL);
    pn_jw_int(w, "id", id_of(s, r->session));
    pn_jw_int(w, "n_ctx", r->session ? r->session->seq.n_ctx : s->state.n_ctx);
    pn_jw_bool(w, "speculative", false);
    pn_jw_bool(w, "is_processing", r->phase != PN_WAITING);
    pn_jw_int(w, "n_prompt_tokens", r->result.n_prompt);
    pn_jw_int(w, "n_prompt_tokens_cache", r->result.n_cached);
    if (r->phase == PN_READING)
        pn_jw_int(w, "n_prompt_tokens_processed",
                  (int64_t)r->session->held.len - r->result.n_cached);
    else
        pn_jw_int(w, "n_prompt_tokens_processed",
                  r->phase == PN_WAITING ? 0 : r->result.n_prompt - r->result.n_cached);
    pn_native_put_settings(w, "params", &r->opts.gen);
    pn_jw_begin_arr(w, "next_token");
    pn_jw_begin_obj(w, NULL);
    pn_jw_bool(w, "has_next_token", r->phase != PN_DONE);
    pn_jw_int(w, "n_remain", r->opts.gen.n_predict < 0 ? -1 : n_left);
    pn_jw_int(w, "n_decoded", r->result.n_generated);
    pn_jw_end_obj(w);
    pn_jw_end_arr(w);
    pn_jw_end_obj(w);
}

void pn_slots_put(const pn_slots *s, pn_jw *w)
{
    const pn_scheduler *const all = &s->engine->scheduler;
    for (const pn_request *r = all->working; r; r = r->next_in_list)
        put_request(s, r, w);
    for (const pn_request *r = all->waiting; r; r = r->next_in_list)
        put_request(s, r, w);
    for (int id = 0; id < s->n; id++) {
        const slot *const sl = &s->slots[id];
        if (!sl->session || sl->is_taken)
            continue;
        pn_jw_begin_obj(w, NULL);
        pn_jw_int(w, "id", id);
        pn_jw_int(w, "n_ctx", sl->session->seq.n_ctx);
        pn_jw_bool(w, "speculative", false);
        pn_jw_bool(w, "is_processing", false);
        pn_jw_int(w, "n_prompt_tokens", (int64_t)sl->session->held.len);
        pn_jw_int(w, "n_prompt_tokens_cache", (int64_t)sl->session->held.len);
        pn_jw_int(w, "n_prompt_tokens_processed", 0);
        pn_jw_end_obj(w);
    }
}

/* --- files ------------------------------------------------------------------------------------ */

/* Checks the folder and a name, and copies it with a NUL. */
static pn_status check_name(const pn_slots *s, pn_span name, char out[PN_SLOT_NAME_MAX + 1],
                            pn_problem *p)
{
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-";
    if (s->dir_fd < 0)
        return pn_problem_fail(p, 501, "not_supported",
                               "slots are saved nowhere: start the server with --slot-save-path");
    bool ok = name.len >= 1 && name.len <= PN_SLOT_NAME_MAX && name.ptr[0] != '.';
    for (size_t i = 0; ok && i < name.len; i++)
        ok = memchr(allowed, name.ptr[i], sizeof allowed - 1) != NULL;
    if (!ok)
        return pn_problem_fail(p, 400, NULL,
                               "filename: expected 1 to %d of A-Z a-z 0-9 _ . - and no . in front",
                               PN_SLOT_NAME_MAX);
    memcpy(out, name.ptr, name.len);
    out[name.len] = '\0';
    return PN_OK;
}

pn_status pn_slots_copy(pn_slots *s, int id, pn_slot_copy *copy, pn_problem *p)
{
    slot *const sl = find_free(s, id, p);
    if (!sl)
        return p->err.code;
    const size_t n = sl->session ? sl->session->held.len : 0;
    if (!n)
        return pn_problem_fail(p, 400, NULL, "slot %d: holds nothing", id);
    int32_t *const ids = pn_alloc(n * sizeof *ids);
    if (!ids)
        return pn_fail(&p->err, PN_ERR_NOMEM, "no memory for %zu tokens", n);
    const pn_status st = pn_snapshot_new(&sl->session->seq, &copy->snapshot, &p->err);
    if (st != PN_OK) {
        pn_free(ids);
        return st;
    }
    memcpy(ids, sl->session->held.ptr, n * sizeof *ids);
    copy->ids = ids;
    copy->n_tok = (int)n;
    return PN_OK;
}

void pn_slot_copy_clear(pn_slot_copy *copy)
{
    pn_snapshot_free(copy->snapshot);
    pn_free(copy->ids);
    *copy = (pn_slot_copy){ 0 };
}

static uint64_t file_bytes(int dir_fd, const char *name)
{
    struct stat st;
    return fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 ? (uint64_t)st.st_size : 0;
}

pn_status pn_slot_copy_save(const pn_slots *s, const pn_slot_copy *copy, pn_span name,
                            uint64_t *n_byte, pn_problem *p)
{
    char file[PN_SLOT_NAME_MAX + 1];
    PN_TRY(check_name(s, name, file, p));
    PN_TRY(pn_snapshot_save(s->engine->model, copy->snapshot, copy->ids, s->dir_fd, file, &p->err));
    *n_byte = file_bytes(s->dir_fd, file);
    return PN_OK;
}

/* The saved file, never through a link. */
static pn_status open_saved(const pn_slots *s, const char *name, int *fd, pn_problem *p)
{
    if (pn_fd_open(s->dir_fd, name, O_NOFOLLOW, fd, &p->err) == PN_OK)
        return PN_OK;
    if (errno == ENOENT)
        return pn_problem_fail(p, 404, NULL, "%s: there is no saved slot of this name", name);
    if (errno == ELOOP)
        return pn_problem_fail(p, 400, NULL, "%s: is a link, not a saved slot", name);
    return p->err.code;
}

static pn_status restore(slot *sl, const pn_slots *s, const char *name, uint64_t *n_byte,
                         pn_problem *p)
{
    int fd;
    PN_TRY(open_saved(s, name, &fd, p));
    sl->is_taken = true; /* not to be shed while room is made for it */
    const pn_status st = pn_session_restore_fd(sl->session, fd, name, &p->err);
    sl->is_taken = false;
    close(fd);
    *n_byte = file_bytes(s->dir_fd, name);
    return st;
}

pn_status pn_slots_restore(pn_slots *s, int id, pn_span name, int *n_tok, uint64_t *n_byte,
                           pn_problem *p)
{
    char file[PN_SLOT_NAME_MAX + 1];
    PN_TRY(check_name(s, name, file, p));
    slot *const sl = find_free(s, id, p);
    if (!sl)
        return p->err.code;
    PN_TRY(fill(s, sl, p));
    const pn_status st = restore(sl, s, file, n_byte, p);
    sl->used_at = ++s->clock;
    *n_tok = (int)sl->session->held.len;
    if (!sl->session->held.len)
        empty(sl);
    return st;
}

pn_status pn_slots_erase(pn_slots *s, int id, int *n_tok, pn_problem *p)
{
    slot *const sl = find_free(s, id, p);
    if (!sl)
        return p->err.code;
    *n_tok = sl->session ? (int)sl->session->held.len : 0;
    empty(sl);
    return PN_OK;
}
