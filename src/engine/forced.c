#include "engine/forced.h"

#include "tokenizer/encode.h"

static pn_status encode(const pn_engine *e, pn_span text, bool parse_special, pn_ids *ids,
                        pn_err *err)
{
    const pn_encode_opts opts = { .parse_special = parse_special,
                                  .strict_content = true,
                                  .no_nfc = e->no_nfc };
    return text.len ? pn_encode(e->vocab, text, &opts, ids, err) : PN_OK;
}

static void put(pn_forced *f, const pn_ids *ids)
{
    PN_ASSERT(f->queue.len + ids->len <= f->queue.cap);
    for (size_t i = 0; i < ids->len; i++)
        pn_ids_add(&f->queue, ids->ptr[i]);
}

/* What the queue held has been taken. */
static void rewind_queue(pn_forced *f)
{
    if (pn_forced_is_empty(f))
        f->queue.len = f->i_queue = 0;
}

static pn_status fill(pn_forced *f, const pn_engine *e, const pn_gen_opts *opts, pn_err *err)
{
    if (e->think_close >= 0) {
        PN_TRY(encode(e, opts->think_hint, false, &f->closing, err));
        if (!pn_ids_add(&f->closing, e->think_close))
            return pn_fail(err, PN_ERR_NOMEM, "no memory for the end of thoughts");
        PN_TRY(encode(e, (pn_span){ "\n\n", 2 }, false, &f->line, err));
    }
    PN_TRY(encode(e, opts->opening, true, &f->opening, err));
    if (!pn_ids_reserve(&f->queue, f->closing.len + f->line.len + f->opening.len))
        return pn_fail(err, PN_ERR_NOMEM, "no memory for the opening");
    return PN_OK;
}

pn_status pn_forced_init(pn_forced *f, const pn_engine *engine, const pn_gen_opts *opts,
                         pn_err *err)
{
    *f = (pn_forced){ 0 };
    const pn_status st = fill(f, engine, opts, err);
    if (st != PN_OK) {
        pn_forced_clear(f);
        return st;
    }
    f->is_open = !opts->starts_thinking;
    if (f->is_open)
        put(f, &f->opening);
    return PN_OK;
}

void pn_forced_clear(pn_forced *f)
{
    pn_ids_free(&f->closing);
    pn_ids_free(&f->line);
    pn_ids_free(&f->opening);
    pn_ids_free(&f->queue);
    *f = (pn_forced){ 0 };
}

void pn_forced_close(pn_forced *f)
{
    if (f->is_closing || !f->closing.len)
        return;
    f->is_closing = true;
    rewind_queue(f);
    put(f, &f->closing);
}

void pn_forced_thoughts_end(pn_forced *f, bool needs_line)
{
    rewind_queue(f);
    if (f->is_closing || (!f->is_open && (needs_line || f->opening.len)))
        put(f, &f->line);
    if (!f->is_open)
        put(f, &f->opening);
    f->is_closing = false;
    f->is_open = true;
}

bool pn_forced_next(pn_forced *f, int32_t *id)
{
    if (pn_forced_is_empty(f))
        return false;
    *id = f->queue.ptr[f->i_queue++];
    return true;
}
