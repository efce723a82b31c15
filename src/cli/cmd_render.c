/* pantheon render: a request's messages as the prompt text that the model's template makes of
 * them, and nothing else on standard output. As strict as the template. */

#include "base/file.h"
#include "base/json.h"
#include "chat/chat.h"
#include "cli/cli.h"
#include "gguf/gguf.h"

static pn_status read_style(const pn_cli_opts *opts, pn_chat_style *style, pn_err *err)
{
    pn_gguf *file = NULL;
    pn_span text = { 0 };
    pn_buf path = { 0 };
    pn_status st = pn_cli_model_path(opts, &path, err);
    if (st == PN_OK)
        st = pn_gguf_open(path.ptr, &(pn_gguf_opts){ .no_mmap = opts->no_mmap }, &file, err);
    if (st == PN_OK)
        st = pn_gguf_opt_str(file, "tokenizer.chat_template", &text, err);
    if (st == PN_OK) {
        pn_chat_style_detect(text, style);
        if (style->note[0])
            pn_cli_say("%s: %s", path.ptr, style->note);
    }
    pn_gguf_close(file);
    pn_buf_free(&path);
    return st;
}

int pn_cmd_render(const pn_cli_opts *opts)
{
    const char *const from = opts->file ? opts->file : "-";
    pn_chat_style style;
    pn_buf text = { 0 };
    pn_json *request = NULL;
    pn_chat chat = { 0 };
    pn_chat_prompt prompt = { 0 };
    pn_err err = { 0 };
    pn_status st = read_style(opts, &style, &err);
    if (st == PN_OK)
        st = pn_file_read(from, PN_JSON_MAX_BYTES, &text, &err);
    if (st == PN_OK)
        st = pn_json_parse(text.ptr, text.len, opts->file ? opts->file : "standard input", &request,
                           &err);
    if (st == PN_OK)
        st = pn_chat_read(&chat, request, &err);
    if (st == PN_OK)
        st = pn_chat_render(&chat, &style, &prompt, &err);
    if (st == PN_OK)
        fwrite(prompt.spans.text.ptr, 1, prompt.spans.text.len, stdout);
    pn_chat_prompt_free(&prompt);
    pn_chat_clear(&chat);
    pn_json_free(request);
    pn_buf_free(&text);
    return st == PN_OK ? PN_EXIT_OK : pn_cli_fail(&err);
}
