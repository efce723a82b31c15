/* Texts, tokens and templates, without an answer by the model. */
#include "server/ask_parts.h"
#include "server/native.h"

#include "base/utf8.h"
#include "engine/engine.h"
#include "tokenizer/detok.h"
#include "tokenizer/encode.h"

/* --- /tokenize -------------------------------------------------------------------------------- */

typedef struct tokenizing {
    pn_span content;
    bool adds_special, parses_special, has_pieces;
} tokenizing;

static pn_status read_tokenizing(const pn_json *body, tokenizing *t, pn_err *err)
{
    const pn_jat root = pn_jat_root(body);
    *t = (tokenizing){ .parses_special = true };
    PN_TRY(pn_jat_opt_str(&root, "content", &t->content, err));
    PN_TRY(pn_jat_opt_bool(&root, "add_special", &t->adds_special, err));
    PN_TRY(pn_jat_opt_bool(&root, "parse_special", &t->parses_special, err));
    return pn_jat_opt_bool(&root, "with_pieces", &t->has_pieces, err);
}

static pn_status tokenize(const pn_engine *e, const tokenizing *t, pn_ids *ids, pn_err *err)
{
    const pn_encode_opts opts = { .parse_special = t->parses_special, .no_nfc = e->no_nfc };
    if (t->adds_special && pn_vocab_add_bos(e->vocab) && pn_vocab_bos(e->vocab) >= 0 &&
        !pn_ids_add(ids, pn_vocab_bos(e->vocab)))
        return pn_fail(err, PN_ERR_NOMEM, "no memory for tokens");
    return pn_encode(e->vocab, t->content, &opts, ids, err);
}

/* A string, or an array of its bytes where they are no text. */
static void put_piece(pn_jw *w, pn_span bytes)
{
    uint32_t cp;
    bool is_text = true;
    for (size_t i = 0, n; is_text && i < bytes.len; i += n) {
        n = pn_utf8_next(bytes.ptr + i, bytes.len - i, &cp);
        is_text = n > 0;
    }
    if (is_text) {
        pn_jw_span(w, "piece", bytes);
        return;
    }
    pn_jw_begin_arr(w, "piece");
    for (size_t i = 0; i < bytes.len; i++)
        pn_jw_int(w, NULL, (unsigned char)bytes.ptr[i]);
    pn_jw_end_arr(w);
}

pn_status pn_native_tokenize(pn_server *s, pn_visit *v, pn_buf *out, pn_problem *p)
{
    const pn_engine *const e = pn_server_engine(s);
    tokenizing t;
    pn_ids ids = { 0 };
    pn_jw w = { .buf = out };
    pn_status st = read_tokenizing(v->body, &t, &p->err);
    if (st == PN_OK)
        st = tokenize(e, &t, &ids, &p->err);
    if (st != PN_OK) {
        pn_ids_free(&ids);
        pn_problem_name_field(p);
        return st;
    }
    pn_jw_begin_obj(&w, NULL);
    pn_jw_begin_arr(&w, "tokens");
    for (size_t i = 0; i < ids.len; i++) {
        if (!t.has_pieces) {
            pn_jw_int(&w, NULL, ids.ptr[i]);
            continue;
        }
        pn_jw_begin_obj(&w, NULL);
        pn_jw_int(&w, "id", ids.ptr[i]);
        put_piece(&w, pn_token_bytes(e->vocab, ids.ptr[i]));
        pn_jw_end_obj(&w);
    }
    pn_jw_end_arr(&w);
    pn_jw_end_obj(&w);
    pn_ids_free(&ids);
    return PN_OK;
}

/* --- /detokenize ------------------------------------------------------------------------------ */

static pn_status detokenize(const pn_engine *e, const pn_json *body, pn_buf *text, pn_err *err)
{
    const pn_jat root = pn_jat_root(body), tokens = pn_jat_get(&root, "tokens");
    pn_detok d = { .vocab = e->vocab, .replace = true };
    PN_TRY(pn_jat_want(&tokens, PN_JSON_ARR, err));
    for (size_t i = 0; i < pn_json_len(tokens.v); i++) {
        const pn_jat at = pn_jat_item(&tokens, i);
        int64_t id;
        PN_TRY(pn_jat_int(&at, 0, pn_vocab_size(e->vocab) - 1, &id, err));
        PN_TRY(pn_detok_push(&d, (int32_t)id, text, err));
    }
    return pn_detok_flush(&d, text, err);
}

/* {"KEY": text} */
static void put_text(pn_buf *out, const char *key, const pn_buf *text)
{
    pn_jw w = { .buf = out };
    pn_jw_begin_obj(&w, NULL);
    pn_jw_span(&w, key, pn_buf_span(text));
    pn_jw_end_obj(&w);
    out->failed = out->failed || !pn_buf_ok(text);
}

pn_status pn_native_detokenize(pn_server *s, pn_visit *v, pn_buf *out, pn_problem *p)
{
    pn_buf text = { 0 };
    const pn_status st = detokenize(pn_server_engine(s), v->body, &text, &p->err);
    if (st == PN_OK)
        put_text(out, "content", &text);
    else
        pn_problem_name_field(p);
    pn_buf_free(&text);
    return st;
}

/* --- /apply-template -------------------------------------------------------------------------- */

pn_status pn_native_apply_template(pn_server *s, pn_visit *v, pn_buf *out, pn_problem *p)
{
    pn_chat_form form = { 0 };
    pn_chat_prompt prompt = { 0 };
    pn_status st = pn_chat_form_read(s, v->body, &form, p);
    if (st == PN_OK)
        st = pn_chat_render(&form.chat, &pn_server_engine(s)->style, &prompt, &p->err);
    if (st == PN_OK)
        put_text(out, "prompt", &prompt.spans.text);
    pn_chat_prompt_free(&prompt);
    pn_chat_form_clear(&form);
    return st;
}
