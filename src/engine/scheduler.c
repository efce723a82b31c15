#include "engine/scheduler.h"

#include "engine/request.h"

#include "base/clock.h"
#include "base/mem.h"
#include "models/exec.h"

#include <math.h>

enum {
    N_PARALLEL_DEFAULT = 16,
    QUANTUM = 16,   /* prompt tokens handed out at once */
    MAX_PASSED = 64 /* requests that may come later and leave the queue earlier than another */
};

#define RESTORE_WAIT_S 0.02 /* and callers are asked again whether they want to go on */

pn_status pn_scheduler_init(pn_scheduler *s, const pn_engine_opts *opts, int n_batch, pn_err *err)
{
    const int n = opts->n_parallel ? opts->n_parallel : N_PARALLEL_DEFAULT;
    if (n < 1 || n > PN_PACE_MAX_WRITERS)
        return pn_fail(err, PN_ERR_ARG, "parallel: %d, expected 1 to %d", n, PN_PACE_MAX_WRITERS);
    if (!(opts->gap_ms >= 0 && opts->gap_ms <= 1e9))
        return pn_fail(err, PN_ERR_ARG, "gap: %g ms, expected 0 to 1e9", opts->gap_ms);
    s->n_max = n < n_batch ? n : n_batch;
    s->parts = pn_calloc((size_t)s->n_max, sizeof *s->parts);
    s->part_of = pn_calloc((size_t)s->n_max, sizeof *s->part_of);
    if (!s->parts || !s->part_of)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for %d requests", s->n_max);
    pn_pace_init(&s->pace, opts->gap_ms / 1000, n_batch);
    return PN_OK;
}

void pn_scheduler_clear(pn_scheduler *s)
{
    PN_ASSERT(!s->waiting && !s->working);
    pn_free(s->parts);
    pn_free(s->part_of);
}

/* --- the queue -------------------------------------------------------------------------------- */

/* Before those of a lower priority than `above`, unless they have waited for too many already. */
static void put(pn_scheduler *s, pn_request *r, int above)
{
    pn_request **at = &s->waiting;
    while (*at && ((*at)->opts.priority >= above || (*at)->n_passed >= MAX_PASSED))
        at = &(*at)->next_in_list;
    r->next_in_list = *at;
    *at = r;
    for (pn_request *p = r->next_in_list; p; p = p->next_in_list)
        p->n_passed++;
}

void pn_scheduler_add(pn_scheduler *s, pn_request *r)
{
    put(s, r, r->opts.priority);
}

/* The first of its priority: it was at work already, or nearly. */
static void put_back(pn_scheduler *s, pn_request *r)
{
    put(s, r, r->opts.priority + 1);
}

static bool unlink_from(pn_request **at, pn_request *r)
{
    while (*at && *at != r)
        at = &(*at)->next_in_list;
    if (!*at)
        return false;
    *at = r->next_in_list;
    return true;
}

void pn_scheduler_remove(pn_scheduler *s, pn_request *r)
{
    if (!unlink_from(&s->waiting, r) && unlink_from(&s->working, r)) {
        s->n_working--;
        s->is_full = false;
    }
    for (int ip = 0; ip < s->n_part; ip++)
        if (s->part_of[ip] == r)
            s->part_of[ip] = NULL;
}

/* Ends those whose callers want no more. */
static void end_unwanted(pn_request *list)
{
    for (pn_request *r = list, *next; r; r = next) {
        next = r->next_in_list;
        if (pn_request_wants_end(r))
            pn_request_end(r, PN_FINISH_CALLER);
    }
}

/* Whether others at work have memory that r may wait for. */
static bool others_hold(const pn_scheduler *s, const pn_request *r)
{
    for (const pn_request *p = s->working; p; p = p->next_in_list)
        if (p != r && pn_request_holds(p))
            return true;
    return false;
}

/* False: memory is short for it now, it is back in the queue. */
static bool begin(pn_scheduler *s, pn_request *r, double wait_s)
{
    if (pn_request_begin(r, others_hold(s, r), wait_s))
        return true;
    pn_scheduler_remove(s, r);
    put_back(s, r);
    return false;
}

/* From the queue to work while there is room. */
static void admit(pn_scheduler *s)
{
    while (s->waiting && s->n_working < s->n_max && !s->is_full) {
        pn_request *const r = s->waiting;
        s->waiting = r->next_in_list;
        pn_request **end = &s->working;
        while (*end)
            end = &(*end)->next_in_list;
        *end = r;
        r->next_in_list = NULL;
        r->served = s->served;
        s->n_working++;
        if (!begin(s, r, 0))
            return;
    }
}

/* Asks after those whose states are read from disk. While nobody else has work it is waited. */
static void restore(pn_scheduler *s)
{
    bool is_idle = true;
    for (const pn_request *r = s->working; r; r = r->next_in_list)
        is_idle = is_idle && r->phase == PN_RESTORING;
    for (pn_request *r = s->working, *next; r; r = next) {
        next = r->next_in_list;
        if (r->phase == PN_RESTORING)
            begin(s, r, is_idle ? RESTORE_WAIT_S : 0);
    }
}

/* --- a pass ----------------------------------------------------------------------------------- */

/* Those whose state is on its way to the GPUs leave passes to others meanwhile; where there are
 * none, the first of them waits for it in the pass. */
static void await_states(pn_engine *e)
{
    pn_request *first = NULL;
    bool is_any_here = false;
    for (pn_request *r = e->scheduler.working; r; r = r->next_in_list) {
        r->is_coming = r->is_coming && !pn_exec_bring(e->exec, &r->session->seq);
        first = !first && r->is_coming ? r : first;
        is_any_here = is_any_here || (!r->is_coming && r->phase != PN_RESTORING);
    }
    if (first && !is_any_here)
        first->is_coming = false;
}

/* The reading request with room in this pass that was served least; the first of equals. */
static pn_request *least_served(const pn_scheduler *s)
{
    pn_request *least = NULL;
    for (pn_request *r = s->working; r; r = r->next_in_list)
        if (r->phase == PN_READING && !r->is_coming && r->n_now < pn_request_n_left(r) &&
            (!least || r->served < least->served))
            least = r;
    return least;
}

/* Sets every n_now. Returns the prompt tokens given; *n_writer and *n_room: answers beside them,
 * and how many tokens there might have been. */
static int share_out(pn_scheduler *s, int *n_writer, int *n_room)
{
    *n_writer = 0;
    for (pn_request *r = s->working; r; r = r->next_in_list) {
        r->n_now = r->phase == PN_WRITING && !r->is_coming;
        *n_writer += r->n_now;
    }
    *n_room = pn_pace_tokens(&s->pace, *n_writer);
    int n_left = *n_room;
    for (pn_request *r; n_left > 0 && (r = least_served(s));) {
        const int can = pn_request_n_left(r) - r->n_now;
        int n = QUANTUM < n_left ? QUANTUM : n_left;
        n = n < can ? n : can;
        r->n_now += n;
        n_left -= n;
        s->served = r->served;
        r->served += ldexp(n, -r->opts.priority);
    }
    return *n_room - n_left;
}

static bool should_stop(void *ctx, int i_part)
{
    const pn_scheduler *const s = ctx;
    return pn_request_leaves(s->part_of[i_part]);
}

/* None can go on: r, the last to come, waits until another one has ended. Where there is no other,
 * the border that it stands on is given up, and it tries again, before it fails. */
static void give_way(pn_scheduler *s, pn_request *r)
{
    if (s->n_working == 1 && pn_session_unpin(r->session))
        return;
    if (s->n_working == 1 || !pn_request_step_back(r)) {
        pn_request_fail(r, &r->err);
        return;
    }
    pn_scheduler_remove(s, r);
    put_back(s, r);
    s->is_full = true;
}

static void run_pass(pn_engine *e)
{
    pn_scheduler *const s = &e->scheduler;
    int n_writer, n_room;
    await_states(e);
    const int n_read = share_out(s, &n_writer, &n_room);
    pn_request *lacking = NULL;
    s->n_part = 0;
    for (pn_request *r = s->working; r; r = r->next_in_list) {
        if (!r->n_now)
            continue;
        if (pn_request_part(r, &s->parts[s->n_part]))
            s->part_of[s->n_part++] = r;
        else
            lacking = r; /* memory is short: it waits while others go on */
    }
    if (!s->n_part && lacking)
        give_way(s, lacking);
    if (!s->n_part)
        return;
    const pn_batch batch = {
        .parts = s->parts, .n_part = s->n_part, .should_stop = should_stop, .ctx = s
    };
    pn_err err = { 0 };
    const double t0 = pn_now_s();
    const pn_status st = pn_get_forward_fn(e->model)(e->exec, &batch, &err);
    if (st == PN_OK)
        pn_pace_learn(&s->pace, n_writer, n_read, n_read == n_room, pn_now_s() - t0);
    for (int ip = 0; ip < s->n_part; ip++)
        if (s->part_of[ip])
            pn_request_advance(s->part_of[ip], st, &err);
    s->n_part = 0;
}

bool pn_engine_step(pn_engine *e)
{
    pn_scheduler *const s = &e->scheduler;
    PN_ASSERT(!s->is_stepping);
    if (s->is_stepping)
        return false;
    s->is_stepping = true;
    end_unwanted(s->waiting);
    end_unwanted(s->working);
    admit(s);
    restore(s);
    run_pass(e);
    s->is_stepping = false;
    return s->working || s->waiting;
}
