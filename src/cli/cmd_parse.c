/* pantheon parse: a model's raw answer as thoughts, text and tool calls, by the library's parser,
 * for finding out why an agent went wrong. */

#include "base/file.h"
#include "base/utf8.h"
#include "chat/parse_message.h"
#include "cli/cli.h"

static pn_status print(const pn_cli_opts *opts, const pn_json *tools, pn_span text, pn_err *err)
{
    const pn_parse_opts o = { .tools = tools, .starts_thinking = !opts->no_think };
    pn_buf b = { 0 };
    pn_jw w = { .buf = &b };
    pn_jw_begin_obj(&w, NULL);
    pn_status st = pn_parse_message(&o, text, &w, err);
    pn_jw_end_obj(&w);
    if (st == PN_OK && !pn_buf_cstr(&b))
        st = pn_fail(err, PN_ERR_NOMEM, "no memory for the answer");
    if (st == PN_OK)
        puts(b.ptr);
    pn_buf_free(&b);
    return st;
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
    pn_err err = { 0 };
    pn_status st = opts->tools_file ? read_tools(opts->tools_file, &root, &tools, &err) : PN_OK;
    if (st == PN_OK)
        st = pn_file_read(opts->file ? opts->file : "-", PN_JSON_MAX_BYTES, &raw, &err);
    if (st == PN_OK) {
        pn_utf8_clean(pn_buf_span(&raw), &text);
        st = pn_buf_ok(&text) ? print(opts, tools, pn_buf_span(&text), &err)
                              : pn_fail(&err, PN_ERR_NOMEM, "no memory for the answer");
    }
    pn_buf_free(&text);
    pn_buf_free(&raw);
    pn_json_free(root);
    return st == PN_OK ? PN_EXIT_OK : pn_cli_fail(&err);
}
