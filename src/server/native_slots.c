/* /slots: what runs and what is kept, and files of it. */
#include "server/native.h"
#include "server/slots.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

typedef struct showing {
    const pn_slots *slots;
    pn_jw w;
} showing;

static void show(pn_engine *engine, void *ctx)
{
    showing *const h = ctx;
    (void)engine;
    pn_slots_put(h->slots, &h->w);
}

pn_status pn_native_show_slots(pn_server *s, pn_visit *v, pn_buf *out, pn_problem *p)
{
    showing h = { .slots = pn_server_slots(s), .w = { .buf = out } };
    (void)v;
    (void)p;
    pn_jw_begin_arr(&h.w, NULL);
    pn_server_on_engine(s, show, &h);
    pn_jw_end_arr(&h.w);
    return PN_OK;
}

/* --- one slot --------------------------------------------------------------------------------- */

/* What is done with a slot. */
typedef struct deed {
    pn_server *server;
    pn_slots *slots;
    int id;
    pn_span name; /* of the file */
    pn_slot_copy copy;
    int n_tok;
    uint64_t n_byte;
    pn_problem *p;
    pn_status st;
} deed;

static void run_copy(pn_engine *engine, void *ctx)
{
    deed *const d = ctx;
    (void)engine;
    d->st = pn_slots_copy(d->slots, d->id, &d->copy, d->p);
}

static void run_restore(pn_engine *engine, void *ctx)
{
    deed *const d = ctx;
    (void)engine;
    d->st = pn_slots_restore(d->slots, d->id, d->name, &d->n_tok, &d->n_byte, d->p);
}

static void run_erase(pn_engine *engine, void *ctx)
{
    deed *const d = ctx;
    (void)engine;
    d->st = pn_slots_erase(d->slots, d->id, &d->n_tok, d->p);
}

/* The file is written here, while the engine goes on. */
static void save(deed *d)
{
    pn_server_on_engine(d->server, run_copy, d);
    if (d->st == PN_OK)
        d->st = pn_slot_copy_save(d->slots, &d->copy, d->name, &d->n_byte, d->p);
    d->n_tok = d->copy.n_tok;
    pn_slot_copy_clear(&d->copy);
}

static void restore(deed *d)
{
    pn_server_on_engine(d->server, run_restore, d);
}

static void erase(deed *d)
{
    pn_server_on_engine(d->server, run_erase, d);
}

typedef struct action {
    const char *name;
    void (*run)(deed *d);
    /* In the answer, as llama-server has them; NULL: not there. */
    const char *n_tok, *n_byte, *ms;
} action;

static const action actions[] = {
    { "save", save, "n_saved", "n_written", "save_ms" },
    { "restore", restore, "n_restored", "n_read", "restore_ms" },
    { "erase", erase, "n_erased", NULL, NULL },
};

/* "action=NAME" among the query's parameters; NULL: none of ours. */
static const action *find_action(const char *query)
{
    static const char key[] = "action=";
    while (query && strncmp(query, key, sizeof key - 1) != 0) {
        query = strchr(query, '&');
        query = query ? query + 1 : NULL;
    }
    if (!query)
        return NULL;
    query += sizeof key - 1;
    const size_t len = strcspn(query, "&");
    for (size_t i = 0; i < sizeof actions / sizeof *actions; i++)
        if (strlen(actions[i].name) == len && memcmp(actions[i].name, query, len) == 0)
            return &actions[i];
    return NULL;
}

static pn_status read_id(const char *text, int *id, pn_problem *p)
{
    char *end;
    const long n = strtol(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end || n > 1 << 20)
        return pn_problem_fail(p, 400, NULL, "slot: expected a number in the path");
    *id = (int)n;
    return PN_OK;
}

pn_status pn_native_use_slot(pn_server *s, pn_visit *v, pn_buf *out, pn_problem *p)
{
    const action *const act = find_action(v->query);
    const pn_jat root = pn_jat_root(v->body), name = pn_jat_get(&root, "filename");
    deed d = { .server = s, .slots = pn_server_slots(s), .p = p };
    if (!act)
        return pn_problem_fail(p, 400, NULL, "action: expected ?action=save, restore or erase");
    PN_TRY(read_id(v->rest, &d.id, p));
    if (act->n_byte)
        PN_TRY(pn_jat_str(&name, &d.name, &p->err));
    const double begun_s = pn_now_s();
    act->run(&d);
    if (d.st != PN_OK)
        return d.st;
    pn_jw w = { .buf = out };
    pn_jw_begin_obj(&w, NULL);
    pn_jw_int(&w, "id_slot", d.id);
    if (act->n_byte)
        pn_jw_span(&w, "filename", d.name);
    pn_jw_int(&w, act->n_tok, d.n_tok);
    if (act->n_byte) {
        pn_jw_uint(&w, act->n_byte, d.n_byte);
        pn_jw_begin_obj(&w, "timings");
        pn_jw_real(&w, act->ms, 1000 * (pn_now_s() - begun_s));
        pn_jw_end_obj(&w);
    }
    pn_jw_end_obj(&w);
    return PN_OK;
}
