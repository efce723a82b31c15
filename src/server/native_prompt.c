/* /completion and /infill: requests -> asks. */
#include "server/ask_parts.h"
#include "server/native.h"

#include "engine/engine.h"
#include "tokenizer/encode.h"

#include <string.h>

static pn_status check(const pn_jat *root, const pn_ask *a, pn_err *err)
{
    bool is_post = false;
    PN_TRY(pn_jat_opt_bool(root, "post_sampling_probs", &is_post, err));
    if (is_post)
        return pn_fail(err, PN_ERR_UNSUPPORTED,
                       "post_sampling_probs: only the model's own probabilities are given");
    if (a->n_choices > 1)
        return pn_fail(err, PN_ERR_UNSUPPORTED,
                       "n: found %d; one answer is made here, /v1/completions makes several",
                       a->n_choices);
    return PN_OK;
}

/* The rest, once the prompt is there. */
static pn_status read_rest(pn_server *s, const pn_jat *root, pn_ask *a, pn_problem *p)
{
    PN_TRY(pn_ask_read_text(s, (pn_span){ 0 }, a, p));
    const pn_status st = check(root, a, &p->err);
    if (st != PN_OK)
        pn_problem_name_field(p);
    return st;
}

pn_status pn_native_complete(pn_server *s, pn_visit *v, pn_ask *a, pn_problem *p)
{
    a->body = v->body;
    v->body = NULL;
    const pn_jat root = pn_jat_root(a->body), prompt = pn_jat_get(&root, "prompt");
    PN_TRY(pn_ask_read_prompt(s, &prompt, &a->prompt, p));
    return read_rest(s, &root, a, p);
}

/* --- infill ----------------------------------------------------------------------------------- */

static pn_status add_mark(const pn_engine *e, const char *mark, pn_ids *ids, pn_err *err)
{
    const int32_t id = pn_vocab_find(e->vocab, (pn_span){ mark, strlen(mark) });
    if (id < 0)
        return pn_fail(err, PN_ERR_UNSUPPORTED,
                       "input_extra: the model's vocabulary has no %s to set files apart", mark);
    return pn_ids_add(ids, id) ? PN_OK : pn_fail(err, PN_ERR_NOMEM, "no memory for a prompt");
}

static pn_status add_text(const pn_engine *e, pn_span text, pn_ids *ids, pn_err *err)
{
    const pn_encode_opts plain = { .strict_content = true, .no_nfc = true };
    return pn_encode(e->vocab, text, &plain, ids, err);
}

static pn_status add_line(const pn_engine *e, pn_span text, pn_ids *ids, pn_err *err)
{
    PN_TRY(add_text(e, text, ids, err));
    return add_text(e, (pn_span){ "\n", 1 }, ids, err);
}

/* `input_extra`: files of the same project, [{"filename", "text"}], put before the file that is
 * written as Qwen2.5-Coder was trained (arXiv:2409.12186, section 3.2.2); as llama-server. */
static pn_status add_files(const pn_engine *e, const pn_jat *root, pn_ids *ids, pn_err *err)
{
    const pn_jat files = pn_jat_get(root, "input_extra");
    if (!pn_jat_is_set(&files))
        return PN_OK;
    PN_TRY(pn_jat_want(&files, PN_JSON_ARR, err));
    const size_t n = pn_json_len(files.v);
    if (n == 0)
        return PN_OK;
    PN_TRY(add_mark(e, "<|repo_name|>", ids, err));
    PN_TRY(add_line(e, (pn_span){ "myproject", 9 }, ids, err));
    for (size_t i = 0; i < n; i++) {
        const pn_jat file = pn_jat_item(&files, i), text_at = pn_jat_get(&file, "text");
        pn_span name = { "tmp", 3 }, text;
        PN_TRY(pn_jat_want(&file, PN_JSON_OBJ, err));
        PN_TRY(pn_jat_opt_str(&file, "filename", &name, err));
        PN_TRY(pn_jat_str(&text_at, &text, err));
        PN_TRY(add_mark(e, "<|file_sep|>", ids, err));
        PN_TRY(add_line(e, name, ids, err));
        PN_TRY(add_text(e, text, ids, err));
    }
    PN_TRY(add_mark(e, "<|file_sep|>", ids, err));
    return add_line(e, (pn_span){ "filename", 8 }, ids, err);
}

static pn_status read_infill(pn_server *s, const pn_jat *root, pn_ask *a, pn_problem *p)
{
    const pn_jat before_at = pn_jat_get(root, "input_prefix"),
                 behind_at = pn_jat_get(root, "input_suffix");
    pn_span before, behind, prompt = { 0 };
    PN_TRY(pn_jat_str(&before_at, &before, &p->err));
    PN_TRY(pn_jat_str(&behind_at, &behind, &p->err));
    PN_TRY(pn_jat_opt_str(root, "prompt", &prompt, &p->err));
    PN_TRY(add_files(pn_server_engine(s), root, &a->prompt.ids, &p->err));
    pn_buf joined = { 0 };
    pn_buf_add(&joined, before.ptr, before.len);
    pn_buf_add(&joined, prompt.ptr, prompt.len);
    const pn_status st = pn_buf_ok(&joined)
                             ? pn_ask_read_fim(s, pn_buf_span(&joined), behind, &a->prompt, p)
                             : pn_fail(&p->err, PN_ERR_NOMEM, "no memory for a prompt");
    pn_buf_free(&joined);
    return st;
}

pn_status pn_native_infill(pn_server *s, pn_visit *v, pn_ask *a, pn_problem *p)
{
    a->body = v->body;
    v->body = NULL;
    const pn_jat root = pn_jat_root(a->body);
    const pn_status st = read_infill(s, &root, a, p);
    if (st == PN_OK)
        return read_rest(s, &root, a, p);
    pn_problem_name_field(p);
    return st;
}
