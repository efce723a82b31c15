/* Reading a template's style off its text. Each point is one or two phrases that only the templates
 * with that point have; on top, every line is looked up among the lines of the known templates
 * (template_tables.c), so a template that was edited anywhere is reported. */
#include "chat/chat.h"

#include "chat/template_tables.h"

#include <stdio.h>
#include <string.h>

static bool has(pn_span text, const char *phrase)
{
    return text.len && memmem(text.ptr, text.len, phrase, strlen(phrase)) != NULL;
}

/* What stands behind the last "add_generation_prompt": how the assistant's turn opens. */
static pn_span tail_of(pn_span text)
{
    static const char mark[] = "add_generation_prompt";
    pn_span tail = { 0 };
    for (const char *p = text.ptr; p;) {
        const size_t left = text.len - (size_t)(p - text.ptr);
        const char *const at = memmem(p, left, mark, sizeof mark - 1);
        if (!at)
            break;
        p = at + sizeof mark - 1;
        tail = (pn_span){ p, text.len - (size_t)(p - text.ptr) };
    }
    return tail;
}

/* FNV-1a, 64 bit: http://www.isthe.com/chongo/tech/comp/fnv/ */
static uint64_t hash_line(pn_span line)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < line.len; i++)
        h = (h ^ (unsigned char)line.ptr[i]) * 0x100000001b3u;
    return h;
}

static bool is_known(uint64_t hash)
{
    size_t lo = 0, hi = pn_template_n_line;
    while (lo < hi) {
        const size_t mid = lo + (hi - lo) / 2;
        if (pn_template_lines[mid] < hash)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < pn_template_n_line && pn_template_lines[lo] == hash;
}

static pn_span strip_blanks(pn_span s)
{
    while (s.len && strchr(" \t\r", s.ptr[0]))
        s.ptr++, s.len--;
    while (s.len && strchr(" \t\r", s.ptr[s.len - 1]))
        s.len--;
    return s;
}

/* The number of the first line (from 1) that no known template has, or 0; *line is the line.
 * Empty lines and comments change nothing. */
static int first_unknown_line(pn_span text, pn_span *line)
{
    int n = 1;
    for (size_t i = 0; i < text.len; n++) {
        const char *const end = memchr(text.ptr + i, '\n', text.len - i);
        const size_t len = end ? (size_t)(end - text.ptr) - i : text.len - i;
        *line = strip_blanks((pn_span){ text.ptr + i, len });
        const bool is_comment = line->len >= 4 && memcmp(line->ptr, "{#", 2) == 0 &&
                                memcmp(line->ptr + line->len - 2, "#}", 2) == 0;
        if (line->len && !is_comment && !is_known(hash_line(*line)))
            return n;
        i += len + 1;
    }
    return 0;
}

static void detect_points(pn_span text, pn_chat_style *s)
{
    const pn_span tail = tail_of(text);
    if (has(text, "preserve_thinking"))
        s->keep = has(text, "preserve_thinking is undefined") ||
                          has(text, "preserve_thinking is not defined") ||
                          has(text, "preserve_thinking is false")
                      ? PN_CHAT_KEEP_UNLESS
                      : PN_CHAT_KEEP_IF_TRUE;
    if (has(text, "tool_call.arguments is mapping"))
        s->args = PN_CHAT_ARGS_LENIENT;
    else if (has(text, "tool_call.arguments != ''"))
        s->args = PN_CHAT_ARGS_OR_EMPTY;
    /* Thinking by default: `is false` closes the block, or a test that also takes "not given". */
    s->is_think_default = !has(tail, "enable_thinking") || has(tail, "enable_thinking is false") ||
                          has(tail, "enable_thinking is undefined") ||
                          has(tail, "enable_thinking is not defined");
    s->kind = has(tail, "<think>\\n'") || has(tail, "<think>\\n\"") ? PN_CHAT_CHATML_THINK
                                                                    : PN_CHAT_CHATML;
    s->splits_think = has(text, "'</think>' in content");
    s->has_json_scalars = has(text, "args_value | string if args_value is string else");
    s->has_effort = has(text, "Reasoning effort is set to xhigh");
    s->merges_system = has(text, "merged_system");
    s->needs_query = has(text, "No user query found in messages");
}

void pn_chat_style_detect(pn_span text, pn_chat_style *style)
{
    *style = (pn_chat_style){
        .kind = PN_CHAT_CHATML_THINK,
        .is_think_default = true,
        .splits_think = true,
        .needs_query = true,
    };
    if (!text.len) {
        snprintf(style->note, sizeof style->note,
                 "the file has no chat template; that of Qwen3.5 is used");
        return;
    }
    if (!has(text, "<|im_start|>") || !has(text, "<tool_call>\\n<function=") ||
        !has(text, "last_query_index")) {
        snprintf(style->note, sizeof style->note,
                 "the file's chat template is not of the Qwen3.5 family; that of Qwen3.5 is used");
        return;
    }
    detect_points(text, style);
    pn_span line;
    const int n = first_unknown_line(text, &line);
    if (n)
        snprintf(style->note, sizeof style->note,
                 "the file's chat template has a line that is not known (line %d: %.*s); rendered "
                 "as the %s template",
                 n, (int)(line.len < 60 ? line.len : 60), line.ptr,
                 style->has_effort                  ? "Qwen3.8"
                 : style->keep != PN_CHAT_KEEP_NONE ? "Qwen3.6"
                                                    : "Qwen3.5");
}
