#include "grammar/llguidance.h"

#include "base/buf.h"
#include "base/mem.h"
#include "grammar/constraint.h"
#include "grammar/digits.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FILE_NAME "libpantheon_llguidance.so"
#define VERSION   "llguidance@1.9." /* the structs below are of these versions */

/* --- the C interface of llguidance 1.9 -------------------------------------------------------- */

typedef struct LlgTokenizer LlgTokenizer;
typedef struct LlgMatcher LlgMatcher;

typedef struct LlgParserLimits {
    size_t max_items_in_row;
    uint64_t initial_lexer_fuel, step_lexer_fuel;
    size_t step_max_items, max_lexer_states, max_grammar_size;
    bool precompute_large_lexemes, verbose_errors;
} LlgParserLimits;

typedef struct LlgConstraintInit {
    const LlgTokenizer *tokenizer;
    uint32_t log_buffer_level, log_stderr_level;
    bool ff_tokens_ok, backtrack_ok;
    LlgParserLimits limits;
} LlgConstraintInit;

typedef struct LlgTokenizerInitV2 {
    size_t struct_size;
    uint32_t vocab_size, tok_eos;
    const uint32_t *token_lens; /* [vocab_size] */
    const uint8_t *token_bytes; /* of all tokens in a row; special ones begin with 0xff */
    const char *tokenizer_json;
    bool tokenize_assumes_string;
    size_t (*tokenize_fn)(const void *, const uint8_t *, size_t, uint32_t *, size_t);
    bool use_approximate_greedy_tokenize_fn; /* only forced tokens are found by it */
    const void *tokenize_user_data;
    const char *const *slices;
    const uint32_t *tok_eos_extra;
    uint32_t tok_eos_extra_count;
} LlgTokenizerInitV2;

struct pn_llguidance {
    LlgTokenizer *tokenizer; /* of the grammar's vocabulary; made by the first constraint */
    const char *(*get_version)(void);
    LlgTokenizer *(*new_tokenizer_v2)(const LlgTokenizerInitV2 *init, char *error, size_t len);
    void (*free_tokenizer)(LlgTokenizer *t);
    void (*constraint_init_set_defaults)(LlgConstraintInit *init, const LlgTokenizer *t);
    LlgMatcher *(*new_matcher)(const LlgConstraintInit *init, const char *type, const char *data);
    LlgMatcher *(*clone_matcher)(const LlgMatcher *m);
    void (*free_matcher)(LlgMatcher *m);
    const char *(*matcher_get_error)(LlgMatcher *m); /* NULL: none */
    bool (*matcher_is_stopped)(const LlgMatcher *m);
    bool (*matcher_is_accepting)(LlgMatcher *m);
    int32_t (*matcher_consume_token)(LlgMatcher *m, uint32_t token);
    int32_t (*matcher_compute_mask_into)(LlgMatcher *m, uint32_t *mask, size_t n_byte);
};

static const struct {
    const char *name;
    size_t off;
} symbols[] = {
#define SYMBOL(name)                                \
    {                                               \
        "llg_" #name, offsetof(pn_llguidance, name) \
    }
    SYMBOL(get_version),           SYMBOL(new_tokenizer_v2),
    SYMBOL(free_tokenizer),        SYMBOL(constraint_init_set_defaults),
    SYMBOL(new_matcher),           SYMBOL(clone_matcher),
    SYMBOL(free_matcher),          SYMBOL(matcher_get_error),
    SYMBOL(matcher_is_stopped),    SYMBOL(matcher_is_accepting),
    SYMBOL(matcher_consume_token), SYMBOL(matcher_compute_mask_into),
#undef SYMBOL
};

/* --- loading ---------------------------------------------------------------------------------- */

/* The folder that this code was loaded from. */
static bool own_folder(char *path, size_t size)
{
    static const char here;
    Dl_info info;
    struct link_map *map = NULL;
    if (!dladdr1(&here, &info, (void **)&map, RTLD_DL_LINKMAP) || !map)
        return false;
    ssize_t n = -1;
    if (map->l_name[0])
        n = snprintf(path, size, "%s", map->l_name);
    else
        n = readlink("/proc/self/exe", path, size);
    char *const slash = n > 0 && (size_t)n < size ? memrchr(path, '/', (size_t)n) : NULL;
    if (!slash)
        return false;
    *slash = '\0';
    return true;
}

static void *open_own(void)
{
    static const char *const places[] = { "llguidance", "../llguidance", "pantheon",
                                          "../lib/pantheon" };
    char dir[4096 - 64], path[4096];
    if (!own_folder(dir, sizeof dir))
        return NULL;
    void *handle = NULL;
    for (size_t i = 0; i < sizeof places / sizeof *places && !handle; i++) {
        snprintf(path, sizeof path, "%s/%s/" FILE_NAME, dir, places[i]);
        handle = access(path, R_OK) == 0 ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    }
    return handle;
}

static pn_status find_symbols(pn_llguidance *l, void *handle, pn_err *err)
{
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *const at = dlsym(handle, symbols[i].name);
        if (!at)
            return pn_fail(err, PN_ERR_UNSUPPORTED, "llguidance lacks %s: it is another version",
                           symbols[i].name);
        memcpy((char *)l + symbols[i].off, &at, sizeof at);
    }
    const char *const version = l->get_version();
    if (strncmp(version, VERSION, strlen(VERSION)) != 0)
        return pn_fail(err, PN_ERR_UNSUPPORTED, "llguidance is \"%.80s\", expected %sx", version,
                       VERSION);
    return PN_OK;
}

pn_status pn_llguidance_open(const char *path, pn_llguidance **out, pn_err *err)
{
    static const char hint[] = "make it with `make llguidance`";
    void *const handle = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : open_own();
    if (!handle && path)
        return pn_fail(err, PN_ERR_UNSUPPORTED,
                       "schemas and grammars need llguidance, which cannot be loaded (%.200s); %s",
                       dlerror(), hint);
    if (!handle)
        return pn_fail(err, PN_ERR_UNSUPPORTED,
                       "schemas and grammars need llguidance, which is not installed; %s", hint);
    pn_llguidance *const l = pn_calloc(1, sizeof *l);
    if (!l)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for llguidance");
    const pn_status st = find_symbols(l, handle, err);
    if (st != PN_OK) {
        pn_free(l);
        return st;
    }
    *out = l;
    return PN_OK;
}

void pn_llguidance_close(pn_llguidance *l)
{
    if (l && l->tokenizer)
        l->free_tokenizer(l->tokenizer);
    pn_free(l);
}

/* --- the vocabulary --------------------------------------------------------------------------- */

static bool is_special(pn_token_kind kind)
{
    return kind == PN_TOKEN_CONTROL || kind == PN_TOKEN_USER_DEFINED;
}

/* Ids without a text, and unused ones, are empty. */
static void add_tokens(const pn_vocab *v, pn_buf *bytes, uint32_t *lens)
{
    for (int32_t id = 0; id < pn_vocab_size(v); id++) {
        const pn_token_kind kind = pn_token_type(v, id);
        const pn_span b = pn_token_bytes(v, id);
        if (kind == PN_TOKEN_UNUSED || kind == PN_TOKEN_UNKNOWN)
            continue;
        if (is_special(kind))
            pn_buf_addc(bytes, (char)0xff);
        pn_buf_add(bytes, b.ptr, b.len);
        lens[id] = (uint32_t)b.len + is_special(kind);
    }
}

static pn_status make_tokenizer(pn_llguidance *l, const pn_grammar *g, pn_err *err)
{
    const pn_vocab *const v = pn_grammar_vocab(g);
    size_t n_end;
    const int32_t *const ends = pn_grammar_ends(g, &n_end);
    if (!n_end)
        return pn_fail(err, PN_ERR_UNSUPPORTED, "the model has no token that ends a turn");
    pn_buf bytes = { 0 };
    uint32_t *const lens = pn_calloc(pn_grammar_n_logit(g), sizeof *lens);
    if (lens)
        add_tokens(v, &bytes, lens);
    char why[256] = "";
    if (lens && pn_buf_ok(&bytes)) {
        const LlgTokenizerInitV2 init = { .struct_size = sizeof init,
                                          .vocab_size = (uint32_t)pn_grammar_n_logit(g),
                                          .tok_eos = (uint32_t)ends[0],
                                          .token_lens = lens,
                                          .token_bytes = (const uint8_t *)bytes.ptr,
                                          .use_approximate_greedy_tokenize_fn = true,
                                          .tok_eos_extra = (const uint32_t *)ends + 1,
                                          .tok_eos_extra_count = (uint32_t)n_end - 1 };
        l->tokenizer = l->new_tokenizer_v2(&init, why, sizeof why);
    }
    pn_free(lens);
    pn_buf_free(&bytes);
    return l->tokenizer ? PN_OK
           : why[0] ? pn_fail(err, PN_ERR_UNSUPPORTED, "llguidance refuses the vocabulary: %s", why)
                    : pn_fail(err, PN_ERR_NOMEM, "no memory for llguidance's vocabulary");
}

/* --- constraints ------------------------------------------------------------------------------ */

typedef struct llg_constraint {
    pn_constraint base;
    pn_grammar *grammar;
    const pn_llguidance *l;
    LlgMatcher *start;   /* at the beginning, to be cloned */
    const pn_trie *trie; /* to limit digits; NULL: they are not limited */
} llg_constraint;

typedef struct llg_matcher {
    pn_matcher base;
    const llg_constraint *c;
    LlgMatcher *m;
    pn_match_end end;
    pn_digits digits;
    uint32_t mask[]; /* [n_word] */
} llg_matcher;

static bool names_any(const char *text, const char *const *words)
{
    while (*words && !strstr(text, *words))
        words++;
    return *words != NULL;
}

/* llguidance's reason in one line. Its words tell what it does not implement, and what is too much,
 * from what is wrong. */
static pn_status fail(const pn_llguidance *l, LlgMatcher *m, const char *what, pn_err *err)
{
    static const char *const unsupported[] = { "nimplemented", "upported", "Unknown format", NULL };
    static const char *const too_much[] = { "limit", "fuel", "too ", "max is", NULL };
    const char *why = l->matcher_get_error(m);
    const char *const at_end = why ? strstr(why, "error: ") : NULL;
    why = at_end ? at_end + strlen("error: ") : why; /* behind the picture of a regex */
    char line[400];
    size_t n = 0;
    for (const char *p = why ? why : "no reason given"; *p && n < sizeof line - 1; p++)
        if (!strchr(" \n\t", *p))
            line[n++] = *p;
        else if (n && line[n - 1] != ' ')
            line[n++] = ' ';
    line[n] = '\0';
    if (strncmp(line, "NoExtension", strlen("NoExtension")) == 0)
        return pn_fail(err, PN_ERR_FORMAT, "%s: no text can follow: all of it is forbidden here",
                       what);
    const pn_status st = names_any(line, unsupported) ? PN_ERR_UNSUPPORTED
                         : names_any(line, too_much)  ? PN_ERR_LIMIT
                                                      : PN_ERR_FORMAT;
    return pn_fail(err, st, "%s: %s", what, line);
}

static void find_end(llg_matcher *m)
{
    const pn_llguidance *const l = m->c->l;
    m->end = l->matcher_is_stopped(m->m)     ? PN_MATCH_MUST_END
             : l->matcher_is_accepting(m->m) ? PN_MATCH_MAY_END
                                             : PN_MATCH_GOES_ON;
}

static pn_match_end llg_end(const pn_matcher *m)
{
    return ((const llg_matcher *)m)->end;
}

static pn_status llg_mask(pn_matcher *m, const uint32_t **allowed, pn_err *err)
{
    llg_matcher *const lm = (llg_matcher *)m;
    const pn_llguidance *const l = lm->c->l;
    const size_t n_word = pn_grammar_n_word(lm->c->grammar);
    if (l->matcher_compute_mask_into(lm->m, lm->mask, n_word * sizeof *lm->mask) != 0)
        return fail(l, lm->m, "constraint", err);
    if (lm->c->trie)
        pn_digits_limit(&lm->digits, lm->c->trie, lm->mask, n_word);
    *allowed = lm->mask;
    return PN_OK;
}

static pn_status llg_accept(pn_matcher *m, int32_t token, pn_err *err)
{
    llg_matcher *const lm = (llg_matcher *)m;
    if (lm->c->l->matcher_consume_token(lm->m, (uint32_t)token) != 0)
        return fail(lm->c->l, lm->m, "constraint", err);
    if (lm->c->trie)
        pn_digits_feed(&lm->digits, pn_token_bytes(pn_grammar_vocab(lm->c->grammar), token));
    find_end(lm);
    return PN_OK;
}

static pn_status llg_start(const pn_constraint *c, pn_matcher **m, pn_err *err)
{
    const llg_constraint *const lc = (const llg_constraint *)c;
    llg_matcher *const lm =
        pn_calloc(1, sizeof *lm + pn_grammar_n_word(lc->grammar) * sizeof lm->mask[0]);
    if (lm)
        lm->m = lc->l->clone_matcher(lc->start);
    if (!lm || !lm->m) {
        pn_free(lm);
        return pn_fail(err, PN_ERR_NOMEM, "no memory for a constraint");
    }
    lm->base.constraint = c;
    lm->c = lc;
    find_end(lm);
    *m = &lm->base;
    return PN_OK;
}

static void llg_stop(pn_matcher *m)
{
    llg_matcher *const lm = (llg_matcher *)m;
    lm->c->l->free_matcher(lm->m);
    pn_free(lm);
}

static void llg_free(pn_constraint *c)
{
    llg_constraint *const lc = (llg_constraint *)c;
    if (lc->start)
        lc->l->free_matcher(lc->start);
    pn_free(lc);
}

enum {
    STACK_BYTES = 64 << 20 /* llguidance calls itself as deep as rules refer to rules, 4 kB each */
};

typedef struct job {
    llg_constraint *c;
    const char *type, *data;
} job;

static void *compile(void *arg)
{
    const job *const j = arg;
    llg_constraint *const c = j->c;
    /* Room behind, should a later 1.9 fill in more. */
    union {
        LlgConstraintInit init;
        char room[1024];
    } u = { .room = { 0 } };
    c->l->constraint_init_set_defaults(&u.init, c->l->tokenizer);
    u.init.log_stderr_level = u.init.log_buffer_level = 0;
    u.init.ff_tokens_ok = u.init.backtrack_ok = false;
    u.init.limits.max_lexer_states = 50000; /* one or two kilobytes each */
    u.init.limits.max_items_in_row = 8192;  /* two for each property that may come */
    u.init.limits.verbose_errors = false;
    c->start = c->l->new_matcher(&u.init, j->type, j->data);
    return NULL;
}

/* Compiles on a thread of its own, for the sake of its stack. */
static pn_status run_job(job *j, pn_err *err)
{
    llg_constraint *const c = j->c;
    pthread_attr_t attr;
    pthread_t thread;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    const bool is_made = pthread_create(&thread, &attr, compile, j) == 0;
    pthread_attr_destroy(&attr);
    if (is_made)
        pthread_join(thread, NULL);
    if (!c->start)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for a constraint");
    const char *const what = strcmp(j->type, "lark") == 0 ? "grammar" : j->type;
    return c->l->matcher_get_error(c->start) ? fail(c->l, c->start, what, err) : PN_OK;
}

pn_status pn_llguidance_compile(pn_grammar *g, const char *type, const char *data,
                                bool limits_digits, pn_constraint **out, pn_err *err)
{
    static const pn_constraint_kind kind = { llg_start, llg_stop,   llg_end,
                                             llg_mask,  llg_accept, llg_free };
    pn_llguidance *l;
    const pn_trie *trie = NULL;
    PN_TRY(pn_grammar_llguidance(g, &l, err));
    if (limits_digits)
        PN_TRY(pn_grammar_trie(g, &trie, err));
    llg_constraint *const c = pn_calloc(1, sizeof *c);
    if (!c)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for a constraint");
    *c = (llg_constraint){ { &kind }, g, l, NULL, trie };
    const pn_status st = run_job(&(job){ c, type, data }, err);
    if (st != PN_OK)
        llg_free(&c->base);
    else
        *out = &c->base;
    return st;
}

pn_status pn_llguidance_prepare(pn_llguidance *l, const pn_grammar *g, pn_err *err)
{
    return l->tokenizer ? PN_OK : make_tokenizer(l, g, err);
}
