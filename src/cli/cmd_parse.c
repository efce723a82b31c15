/* pantheon parse: a model's raw answer as thoughts, text and tool calls, by the library's parser,
 * for finding out why an agent went wrong. */

#include "base/file.h"
#include "base/utf8.h"
#include "chat/parse.h"
#include "cli/cli.h"

typedef struct parts {
    pn_buf thought, text, args;
    pn_buf calls; /* the items of an array, as JSON */
    pn_jw w;      /* ... and who writes them */
} parts;

static void on_event(void *ctx, const pn_parse_event *e)
{
    parts *const p = ctx;
    switch (e->kind) {
    case PN_PARSE_THOUGHT:
        pn_buf_add(&p->thought, e->text.ptr, e->text.len);
        break;
    case PN_PARSE_TEXT:
        pn_buf_add(&p->text, e->text.ptr, e->text.len);
        break;
    case PN_PARSE_CALL:
        pn_jw_begin_obj(&p->w, NULL);
        pn_jw_span(&p->w, "name", e->text);
        break;
    case PN_PARSE_ARGS:
        pn_buf_add(&p->args, e->text.ptr, e->text.len);
        break;
    case PN_PARSE_CALL_END: {
        pn_json *args = NULL;
        if (pn_buf_ok(&p->args) &&
            pn_json_parse(p->args.ptr, p->args.len, "arguments", &args, NULL) == PN_OK)
            pn_jw_value(&p->w, "arguments", args);
        else
            pn_jw_span(&p->w, "arguments", pn_buf_span(&p->args));
        pn_json_free(args);
        p->args.len = 0;
        if (!e->is_complete)
            pn_jw_bool(&p->w, "is_complete", false);
        pn_jw_end_obj(&p->w);
        break;
    }
    }
}

static pn_status parse(const pn_cli_opts *opts, const pn_json *tools, pn_span text, parts *out,
                       pn_err *err)
{
    pn_parse *p;
    const pn_parse_opts o = {
        .tools = tools,
        .starts_thinking = !opts->no_think,
        .on_event = on_event,
        .ctx = out,
    };
    PN_TRY(pn_parse_new(&o, &p, err));
    pn_parse_feed(p, text);
    const pn_status st = pn_parse_finish(p, err);
    pn_parse_free(p);
    return st;
}

static pn_status print(parts *p, pn_err *err)
{
    pn_buf b = { 0 };
    pn_jw w = { .buf = &b };
    pn_jw_begin_obj(&w, NULL);
    pn_jw_span(&w, "reasoning_content", pn_buf_span(&p->thought));
    pn_jw_span(&w, "content", pn_buf_span(&p->text));
    pn_buf_adds(&b, ", \"tool_calls\": ");
    pn_buf_add(&b, p->calls.ptr, p->calls.len);
    pn_jw_end_obj(&w);
    const bool ok = pn_buf_ok(&p->thought) && pn_buf_ok(&p->text) && pn_buf_ok(&p->args) &&
                    pn_buf_ok(&p->calls) && pn_buf_cstr(&b);
    if (ok)
        puts(b.ptr);
    pn_buf_free(&b);
    return ok ? PN_OK : pn_fail(err, PN_ERR_NOMEM, "no memory for the answer");
}

/* The tools of a file: an array, or a request that has one. */
static pn_status read_tools(const char *path, pn_json **root, const pn_json **tools, pn_err *err)
{
    pn_buf text = { 0 };
    pn_status st = pn_file_read(path, PN_JSON_MAX_BYTES, &text, err);
    if (st == PN_OK)
        st = pn_json_parse(text.ptr, text.len, path, root, err);
    pn_buf_free(&text);
    if (st != PN_OK)
        return st;
    *tools = pn_json_type_of(*root) == PN_JSON_OBJ ? pn_json_get(*root, "tools") : *root;
    if (!*tools || pn_json_type_of(*tools) != PN_JSON_ARR)
        return pn_fail(err, PN_ERR_FORMAT, "%s: expected an array of tools, or an object with one",
                       path);
    return PN_OK;
}

int pn_cmd_parse(const pn_cli_opts *opts)
{
    pn_json *root = NULL;
    const pn_json *tools = NULL;
    pn_buf raw = { 0 }, text = { 0 };
    parts p = { 0 };
    p.w.buf = &p.calls;
    pn_err err = { 0 };
    pn_status st = opts->tools_file ? read_tools(opts->tools_file, &root, &tools, &err) : PN_OK;
    if (st == PN_OK)
        st = pn_file_read(opts->file ? opts->file : "-", PN_JSON_MAX_BYTES, &raw, &err);
    if (st == PN_OK) {
        pn_utf8_clean(pn_buf_span(&raw), &text);
        pn_jw_begin_arr(&p.w, NULL);
        st = pn_buf_ok(&text) ? parse(opts, tools, pn_buf_span(&text), &p, &err)
                              : pn_fail(&err, PN_ERR_NOMEM, "no memory for the answer");
        pn_jw_end_arr(&p.w);
    }
    if (st == PN_OK)
        st = print(&p, &err);
    pn_buf_free(&p.thought);
    pn_buf_free(&p.text);
    pn_buf_free(&p.args);
    pn_buf_free(&p.calls);
    pn_buf_free(&text);
    pn_buf_free(&raw);
    pn_json_free(root);
    return st == PN_OK ? PN_EXIT_OK : pn_cli_fail(&err);
}
