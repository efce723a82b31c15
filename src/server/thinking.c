#include "server/thinking.h"

typedef struct wish {
    pn_chat_tri enable;   /* enable_thinking, the clearest */
    pn_chat_tri preserve; /* preserve_thinking */
    pn_chat_tri type;     /* what `thinking` says */
    bool has_effort;
    pn_span effort;
    bool has_budget;
    int64_t budget;
} wish;

/* The first place that says it counts. */
static pn_status read_tri(const pn_jat *from, const char *key, pn_chat_tri *out, pn_err *err)
{
    const pn_jat at = pn_jat_get(from, key);
    bool v;
    if (*out != PN_CHAT_UNSET || !pn_jat_is_set(&at))
        return PN_OK;
    PN_TRY(pn_jat_bool(&at, &v, err));
    *out = v ? PN_CHAT_TRUE : PN_CHAT_FALSE;
    return PN_OK;
}

static pn_status read_effort(const pn_jat *from, const char *key, wish *w, pn_err *err)
{
    const pn_jat at = pn_jat_get(from, key);
    if (w->has_effort || !pn_jat_is_set(&at))
        return PN_OK;
    PN_TRY(pn_jat_str(&at, &w->effort, err));
    w->has_effort = true;
    return PN_OK;
}

static pn_status read_budget(const pn_jat *from, const char *key, wish *w, pn_err *err)
{
    const pn_jat at = pn_jat_get(from, key);
    if (w->has_budget || !pn_jat_is_set(&at))
        return PN_OK;
    PN_TRY(pn_jat_int(&at, -1, INT32_MAX, &w->budget, err));
    w->has_budget = true;
    return PN_OK;
}

/* `thinking`: a boolean, or an object with "type" and "budget_tokens". */
static pn_status read_type(const pn_jat *from, wish *w, pn_err *err)
{
    const pn_jat at = pn_jat_get(from, "thinking");
    if (!pn_jat_is_set(&at))
        return PN_OK;
    if (pn_json_type_of(at.v) == PN_JSON_BOOL)
        return read_tri(from, "thinking", &w->type, err);
    PN_TRY(pn_jat_want(&at, PN_JSON_OBJ, err));
    PN_TRY(read_budget(&at, "budget_tokens", w, err));
    const pn_jat type = pn_jat_get(&at, "type");
    pn_span word;
    if (!pn_jat_is_set(&type))
        return PN_OK;
    PN_TRY(pn_jat_str(&type, &word, err));
    if (pn_span_is(word, "disabled"))
        w->type = PN_CHAT_FALSE;
    else if (pn_span_is(word, "enabled"))
        w->type = PN_CHAT_TRUE;
    else if (!pn_span_is(word, "adaptive") && !pn_span_is(word, "auto"))
        return pn_jat_fail(&type, err, PN_ERR_FORMAT,
                           "found \"%.*s\", expected enabled, disabled or adaptive",
                           (int)(word.len < 40 ? word.len : 40), word.ptr);
    return PN_OK;
}

static pn_status read_place(const pn_jat *from, wish *w, pn_err *err)
{
    PN_TRY(read_tri(from, "enable_thinking", &w->enable, err));
    PN_TRY(read_tri(from, "preserve_thinking", &w->preserve, err));
    PN_TRY(read_effort(from, "reasoning_effort", w, err));
    return read_budget(from, "thinking_budget", w, err);
}

static pn_status read_all(const pn_jat *request, wish *w, pn_err *err)
{
    const pn_jat kwargs = pn_jat_get(request, "chat_template_kwargs");
    const pn_jat extra = pn_jat_get(request, "extra_body");
    const pn_jat extra_kwargs = pn_jat_get(&extra, "chat_template_kwargs");
    const pn_jat reasoning = pn_jat_get(request, "reasoning");
    const pn_jat *const places[] = { &kwargs, request, &extra, &extra_kwargs };
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        if (!pn_jat_is_set(places[i]))
            continue;
        PN_TRY(pn_jat_want(places[i], PN_JSON_OBJ, err));
        PN_TRY(read_place(places[i], w, err));
    }
    PN_TRY(read_type(request, w, err));
    if (pn_jat_is_set(&extra))
        PN_TRY(read_type(&extra, w, err));
    if (!pn_jat_is_set(&reasoning))
        return PN_OK;
    PN_TRY(pn_jat_want(&reasoning, PN_JSON_OBJ, err));
    PN_TRY(read_tri(&reasoning, "enabled", &w->type, err));
    PN_TRY(read_effort(&reasoning, "effort", w, err));
    return read_budget(&reasoning, "max_tokens", w, err);
}

/* The template's word for a client's. */
static pn_status find_effort(const wish *w, const char **word, pn_err *err)
{
    static const char *const words[][2] = {
        { "none", NULL },       { "minimal", "low" }, { "low", "low" },
        { "medium", "medium" }, { "high", "xhigh" },  { "xhigh", "xhigh" },
        { "max", "xhigh" },     { "auto", "xhigh" },  { "default", "xhigh" },
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (pn_span_is(w->effort, words[i][0])) {
            *word = words[i][1];
            return PN_OK;
        }
    return pn_fail(err, PN_ERR_FORMAT,
                   "reasoning_effort: found \"%.*s\", expected none, minimal, low, medium, high, "
                   "xhigh or max",
                   (int)(w->effort.len < 40 ? w->effort.len : 40), w->effort.ptr);
}

pn_status pn_thinking_read(const pn_jat *request, const pn_chat_style *style, int budget_default,
                           pn_thinking *out, pn_err *err)
{
    wish w = { 0 };
    const char *effort = NULL;
    PN_TRY(read_all(request, &w, err));
    if (w.has_effort)
        PN_TRY(find_effort(&w, &effort, err));
    const bool says_nothing =
        w.enable == PN_CHAT_UNSET && w.type == PN_CHAT_UNSET && !w.has_effort && !w.has_budget;
    if (says_nothing && budget_default >= 0) {
        w.has_budget = true;
        w.budget = budget_default;
    }
    pn_chat_tri enable = w.enable;
    if (enable == PN_CHAT_UNSET)
        enable = w.type;
    if (enable == PN_CHAT_UNSET && w.has_effort)
        enable = effort ? PN_CHAT_TRUE : PN_CHAT_FALSE;
    if (w.has_budget && w.budget == 0)
        enable = PN_CHAT_FALSE;
    *out = (pn_thinking){
        .enable = enable,
        .preserve = w.preserve,
        .effort = effort,
        .is_on = enable == PN_CHAT_UNSET ? style->is_think_default : enable == PN_CHAT_TRUE,
    };
    out->has_budget = out->is_on && w.has_budget && w.budget > 0;
    out->budget = out->has_budget ? (int)w.budget : 0;
    return PN_OK;
}
