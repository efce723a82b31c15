#include "engine/prompt.h"

#include "base/mem.h"
#include "chat/turn.h"
#include "tokenizer/encode.h"

#include <string.h>

void pn_prompt_free(pn_prompt *p)
{
    pn_ids_free(&p->ids);
    pn_ids_free(&p->borders);
    *p = (pn_prompt){ 0 };
}

static void make_empty(pn_prompt *p)
{
    p->ids.len = p->borders.len = p->n_replayed = 0;
    p->is_thinking = false;
}

/* A rendered conversation that is encoded piece by piece. Pieces end before <|im_start|> and
 * <|im_end|>, which are tokens whatever stands beside them, so the ids are those of the whole. */
typedef struct encoding {
    const pn_engine *e;
    const pn_spans *spans;
    size_t at;        /* bytes that are encoded */
    size_t i_trusted; /* ranges that end there */
    pn_range *ranges; /* [n_trusted], of one piece */
    pn_prompt *p;
} encoding;

static pn_status encode_to(encoding *c, size_t to, pn_err *err)
{
    size_t n = 0;
    for (; c->i_trusted < c->spans->n_trusted; c->i_trusted++) {
        const pn_range r = c->spans->trusted[c->i_trusted];
        const size_t begin = r.off > c->at ? r.off : c->at, end = r.off + r.len;
        if (begin >= to)
            break;
        if (begin < end)
            c->ranges[n++] = (pn_range){ begin - c->at, (end < to ? end : to) - begin };
        if (end > to)
            break;
    }
    const pn_encode_opts opts = {
        .trusted = c->ranges,
        .n_trusted = n,
        .strict_content = c->e->strict_content,
        .no_nfc = c->e->no_nfc,
    };
    const pn_span text = { c->spans->text.ptr + c->at, to - c->at };
    PN_TRY(pn_encode(c->e->vocab, text, &opts, &c->p->ids, err));
    c->at = to;
    return PN_OK;
}

static pn_status encode_all(encoding *c, const pn_chat *chat, const pn_chat_prompt *rendered,
                            pn_err *err)
{
    pn_prompt *const p = c->p;
    bool ok = true;
    for (size_t i = 0; i < rendered->n_msg; i++) {
        const pn_chat_role role = chat->msgs[i].role;
        const size_t begin = rendered->msg_off[i];
        if (role != PN_CHAT_USER && role != PN_CHAT_ASSISTANT)
            continue;
        PN_TRY(encode_to(c, begin, err));
        if (p->ids.len && (role == PN_CHAT_USER || (i && chat->msgs[i - 1].role == PN_CHAT_USER)))
            ok = ok && pn_ids_add(&p->borders, (int32_t)p->ids.len);
        if (role != PN_CHAT_ASSISTANT)
            continue;
        const size_t said = begin + strlen(PN_CHAT_HEADER);
        const size_t end = rendered->msg_off[i + 1] - strlen(PN_CHAT_END);
        const pn_span turn = { c->spans->text.ptr + said, end - said };
        if (pn_replay_find(c->e->replay, &p->ids, turn, &p->ids)) {
            c->at = end;
            p->n_replayed++;
        }
    }
    if (chat->add_generation_prompt || chat->continue_final_message) {
        PN_TRY(encode_to(c, rendered->msg_off[rendered->n_msg], err));
        ok = ok && pn_ids_add(&p->borders, (int32_t)p->ids.len);
    }
    PN_TRY(encode_to(c, c->spans->text.len, err));
    return ok ? PN_OK : pn_fail(err, PN_ERR_NOMEM, "no memory for a prompt");
}

pn_status pn_prompt_of_chat(const pn_engine *e, const pn_chat *chat, pn_prompt *p, pn_err *err)
{
    pn_chat_prompt rendered = { 0 };
    make_empty(p);
    PN_TRY(pn_chat_render(chat, &e->style, &rendered, err));
    encoding c = { .e = e, .spans = &rendered.spans, .p = p };
    c.ranges = pn_calloc(rendered.spans.n_trusted, sizeof *c.ranges);
    const pn_status st = c.ranges ? encode_all(&c, chat, &rendered, err)
                                  : pn_fail(err, PN_ERR_NOMEM, "no memory for a prompt");
    if (st == PN_OK)
        p->is_thinking = rendered.is_thinking;
    else
        make_empty(p);
    pn_free(c.ranges);
    pn_chat_prompt_free(&rendered);
    return st;
}

pn_status pn_prompt_of_text(const pn_engine *e, pn_span text, pn_prompt *p, pn_err *err)
{
    make_empty(p);
    if (pn_vocab_add_bos(e->vocab) && pn_vocab_bos(e->vocab) >= 0 &&
        !pn_ids_add(&p->ids, pn_vocab_bos(e->vocab)))
        return pn_fail(err, PN_ERR_NOMEM, "no memory for a prompt");
    const pn_encode_opts opts = { .parse_special = true, .no_nfc = e->no_nfc };
    const pn_status st = pn_encode(e->vocab, text, &opts, &p->ids, err);
    if (st != PN_OK)
        make_empty(p);
    return st;
}
