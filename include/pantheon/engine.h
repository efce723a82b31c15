/* Text in, text out: a model with its tokenizer, chat template and sampler, and sessions that hold
 * conversations.
 *
 * Ownership: the model outlives its engine, the engine its sessions.
 * Threads:   one call at a time per engine, sessions included. */
#ifndef PN_PANTHEON_ENGINE_H
#define PN_PANTHEON_ENGINE_H

#include "pantheon/constraint.h"
#include "pantheon/pantheon.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- sampling --------------------------------------------------------------------------------- */

/* In this order: logit bias, repetition, frequency and presence penalties, what a constraint
 * forbids, temperature, top-k, top-p, min-p, draw (docs/SAMPLING.md). The zero struct is greedy. */
typedef struct pn_sampler_opts {
    float temperature;       /* 0 (the likeliest token, lowest id of equals) to 100 */
    int32_t top_k;           /* only the k likeliest; 0: all */
    float top_p;             /* the fewest likeliest that have this share, 0 to 1; 1: all */
    float min_p;             /* none below this share of the likeliest, 0 to 1; 0: all */
    float presence_penalty;  /* off the logit of every token generated before, -2 to 2 */
    float frequency_penalty; /* the same for each time that it was generated, -2 to 2 */
    float repeat_penalty;    /* logits of recent tokens: positive ones are divided, negative ones
                                 multiplied by it, 0.01 to 100; 1 and 0: off */
    int32_t repeat_last_n;   /* how many generated tokens are recent; 0: none */
    uint64_t seed;
    uint32_t i_choice; /* which of a request's n answers this is */
} pn_sampler_opts;

typedef struct pn_logit_bias {
    int32_t token;
    float bias; /* is added to its logit, -100 to 100; -100 forbids the token */
} pn_logit_bias;

enum {
    PN_MAX_TOP_LOGPROBS = 100,
    PN_MAX_LOGIT_BIAS = 4096,
};

/* A token and its logarithm of probability, natural, of the plain distribution: softmax of the
 * model's logits, before bias, penalties, constraint, temperature and filters. */
typedef struct pn_token_alt {
    int32_t id;
    pn_span bytes; /* what it stands for, maybe a part of a character; empty: it has no text */
    float logprob;
} pn_token_alt;

/* A token of an answer, sampled or forced; the views live as long as the callback runs. */
typedef struct pn_token {
    int32_t id;
    pn_span bytes;    /* as above; bytes of the engine live as long as it */
    bool is_thinking; /* belongs to the thoughts; their markers do */
    bool is_forced;   /* not sampled: the opening, the end of thoughts that ran out of budget */
    float logprob;    /* as above; 0 unless wants_logprobs */
    const pn_token_alt *top; /* [n_top], likeliest first */
    size_t n_top;
} pn_token;

/* --- engine ----------------------------------------------------------------------------------- */

typedef struct pn_engine pn_engine;

typedef struct pn_engine_opts {
    pn_exec_opts exec;
    bool strict_content; /* user-defined tokens such as <think> are plain text in messages */
    bool no_nfc;         /* prompts are not normalised */
    bool keeps_thoughts; /* thoughts that a client dropped are put back where the template has a
                            place for them (docs/CHAT.md, replay) */
    /* The state cache: prompts start from the deepest state kept of their beginning, and the memory
     * of all sequences and kept states stays under the limit (docs/CACHE.md). */
    size_t cache_ram_bytes;    /* 0: no cache, and no limit */
    uint64_t cache_disk_bytes; /* of the folder */
    const char *cache_dir;     /* kept states on disk, too; NULL: none */
    pn_kv_type cache_kv_type;  /* of the sequences that it serves; others go without */
    pn_log_fn *log;            /* may be NULL */
    void *log_ctx;
    int n_parallel; /* most requests worked on at once, at most exec's n_batch; 0: 16 */
    /* Most milliseconds between two tokens of an answer while prompts are read beside it; 0: twice
     * what they are without, so that readers get about half of the machine. */
    double gap_ms;
    /* The file of llguidance, for schemas and grammars; loaded when first wanted. NULL: where `make
     * llguidance` and `make install` put it beside the library. */
    const char *llguidance;
} pn_engine_opts; /* the zero struct is valid */

/* Errors: the file has no usable tokenizer, the executor cannot be made. opts may be NULL. */
PN_API pn_status pn_engine_new(const pn_model *model, const pn_engine_opts *opts,
                               pn_engine **engine, pn_err *err);
PN_API void pn_engine_free(pn_engine *engine);
PN_API pn_exec *pn_engine_exec(pn_engine *engine);
/* What is odd about the file's chat template, for the user, once; "" when nothing is. */
PN_API const char *pn_engine_template_note(const pn_engine *engine);
/* The authors' recommendation for the mode, and the file's general.sampling.* over it. */
PN_API pn_sampler_opts pn_engine_sampler_defaults(const pn_engine *engine, bool is_thinking);

/* --- sessions --------------------------------------------------------------------------------- */

/* One sequence and the ids it holds. */
typedef struct pn_session pn_session;

/* opts: as for pn_state_new. */
PN_API pn_status pn_session_new(pn_engine *engine, const pn_state_opts *opts, pn_session **session,
                                pn_err *err);
PN_API void pn_session_free(pn_session *session);
PN_API void pn_session_reset(pn_session *session);
/* pn_seq_save and pn_seq_restore of what the session holds. After a restore a prompt that begins
 * with it goes on from there, and the turns in it are known for replay; on failure the session is
 * as before. The session must not be busy; one that holds nothing cannot be saved. */
PN_API pn_status pn_session_save(const pn_session *session, const char *path, pn_err *err);
PN_API pn_status pn_session_restore(pn_session *session, const char *path, pn_err *err);

typedef enum pn_finish {
    PN_FINISH_EOS = 0, /* the model ended its turn */
    PN_FINISH_STOP,    /* a stop string came */
    PN_FINISH_LENGTH,  /* n_predict tokens, or the context is full */
    PN_FINISH_CALLER,  /* on_text, on_token, should_stop or pn_request_cancel asked for it */
    PN_FINISH_LOOP,    /* it repeated itself: stops_loops */
} pn_finish;

typedef struct pn_gen_opts {
    pn_sampler_opts sampler;
    int n_predict;        /* most tokens to generate; negative: until the context is full */
    bool ignore_eos;      /* an end of turn is a token like others */
    bool starts_thinking; /* the prompt ends inside a think block */
    /* Positions of the prompt, ascending, where another may part from it: where messages begin. The
     * cache keeps states there; without them it still keeps some. [n_border], copied. */
    const int32_t *borders;
    size_t n_border;
    const pn_span *stop; /* [n_stop] stop strings; not part of the text */
    size_t n_stop;
    const pn_logit_bias *logit_bias; /* [n_logit_bias], at most PN_MAX_LOGIT_BIAS; copied */
    size_t n_logit_bias;

    /* Forced tokens: they take the sampler's place, go through the model, are counted and shown as
     * if they had been sampled, and leave the same state. */

    /* With has_think_budget: after so many tokens of thoughts (0: before the first) they are closed
     * by force: think_hint, then the token </think> and an empty line. The same is done when
     * pn_request_end_thinking asks for it. */
    bool has_think_budget;
    int think_budget;
    pn_span think_hint; /* plain text, may be empty; copied */
    /* The beginning of the answer proper: forced where thoughts end, or at once if there are none.
     * Special tokens in it are parsed, so it must come from the program, not from a user: a forced
     * tool call is "<tool_call>\n<function=NAME>\n". Copied. */
    pn_span opening;
    const pn_constraint *constraint; /* what may follow the opening; NULL: anything */

    /* An exact repetition, period up to 256 tokens, at least four times and over at least 384
     * tokens, closes the thoughts or else ends the answer as PN_FINISH_LOOP. */
    bool stops_loops;

    /* Each token of the answer, end tokens apart, before its text comes; false stops. Tokens of a
     * stop string and held back characters come, too. May be NULL. */
    bool (*on_token)(void *ctx, const pn_token *token);
    bool wants_logprobs; /* on_token gets logprob and top */
    int n_top_logprobs;  /* 0 to PN_MAX_TOP_LOGPROBS */
    /* Each piece of the answer as soon as it is whole UTF-8; what never becomes that is U+FFFD.
     * False stops. May be NULL. */
    bool (*on_text)(void *ctx, pn_span text, bool is_thinking);
    pn_progress_fn *progress; /* while the prompt is read; may be NULL */
    /* Asked before each pass, and before each layer of one that reads much of this prompt; may be
     * NULL. */
    bool (*should_stop)(void *ctx);
    void *ctx; /* handed to all of them */
} pn_gen_opts;

typedef enum pn_cache_miss { /* why a prompt did not start further on (docs/CACHE.md) */
    PN_CACHE_MISS_NONE = 0,  /* it starts where what is known of it ends */
    PN_CACHE_MISS_NEW,       /* nothing kept begins as it does, or there is no cache */
    PN_CACHE_MISS_BORDER,    /* something does, but no state is kept as early as they part */
    PN_CACHE_MISS_COUNT
} pn_cache_miss;

typedef struct pn_gen_result {
    pn_finish finish;
    int i_stop;             /* with PN_FINISH_STOP: which of the stop strings */
    int n_prompt, n_cached; /* tokens of the prompt; of these, held by the session already */
    int n_common;           /* of these, the most that the cache knows of it; n_cached or more */
    pn_cache_miss miss;
    int n_generated;
    int n_thought; /* of these, tokens of thoughts, their markers included */
    double prefill_s, decode_s;
} pn_gen_result;

/* Streams the continuation of ids [n_id], the whole prompt: what the session holds of it already
 * (all of its tokens being a prefix) is not computed again, else it starts over. The answer's
 * tokens are held afterwards, but for the last one: an end token, or one that completed a stop
 * string, reached n_predict or found the context full. It is a request as below, and passes that
 * carry others' requests too may run until it is done.
 *
 * Errors: PN_ERR_LIMIT when the prompt does not fit the context, PN_ERR_ARG (empty prompt, an id
 *         out of range, sampling options), those of a forward pass; the session is then empty. */
PN_API pn_status pn_stream(pn_session *session, const int32_t *ids, size_t n_id,
                           const pn_gen_opts *opts, pn_gen_result *result, pn_err *err);

/* The same with the whole text at the end: *text is the caller's, freed with pn_text_free; on_text
 * and ctx of opts still work. */
PN_API pn_status pn_generate(pn_session *session, const int32_t *ids, size_t n_id,
                             const pn_gen_opts *opts, char **text, size_t *len,
                             pn_gen_result *result, pn_err *err);
PN_API void pn_text_free(char *text);

/* --- requests --------------------------------------------------------------------------------- */

/* A prompt and how to continue it, worked on together with others: one pass carries the next token
 * of every answer and a piece of the prompts being read. A request's tokens are the same bits as if
 * it were alone.
 *
 * Threads: an engine, its sessions and requests belong to one thread at a time, pn_request_cancel
 *          and pn_request_end_thinking apart. Callbacks run on the thread that calls
 *          pn_engine_step; they may make and cancel requests, but not step, and free none but the
 *          one that on_done names. */
typedef struct pn_request pn_request;

typedef struct pn_request_opts {
    const int32_t *ids; /* [n_id] the whole prompt; copied */
    size_t n_id;
    pn_session *session; /* what it continues, as pn_stream does, and holds until it is done; NULL:
                            a sequence of its own */
    pn_state_opts state; /* of a sequence of its own */
    int priority;    /* -8 to 8. The highest leaves the queue first, but after 64 that came later
                        nobody goes first any more; among the prompts being read, one step is twice
                        the tokens */
    bool is_passing; /* starts from kept states as others do, but leaves nothing behind: no state in
                        the cache, no turn to replay. For calls that nothing will continue */
    /* The functions that the prompt offers, a JSON array as in a chat request; ptr NULL: not known.
     * The answer's calls are turned to JSON by their schemas before a client sends them back, so
     * that replay knows them again. Copied; what is no such array is passed over. */
    pn_span tools;
    pn_gen_opts gen; /* what it points to is copied, but for the constraint */
    void (*on_done)(void *ctx, pn_request *request); /* once, with gen.ctx; may be NULL */
} pn_request_opts;

/* Queues a request; nothing is computed yet. Freed with pn_request_free.
 * Errors: PN_ERR_ARG: an empty prompt, an id out of range, options, a session that is busy;
 *         PN_ERR_LIMIT: the prompt does not fit the context; PN_ERR_NOMEM. */
PN_API pn_status pn_engine_submit(pn_engine *engine, const pn_request_opts *opts,
                                  pn_request **request, pn_err *err);

/* Runs one pass; false when no request waits for one. While all of them wait for states from disk
 * it waits, too, a few hundredths of a second at most. What goes wrong with a request ends that
 * request alone. */
PN_API bool pn_engine_step(pn_engine *engine);

/* Asks the request to end, as PN_FINISH_CALLER: before the next pass, or within a pass that reads
 * much of its prompt. Threads: any. */
PN_API void pn_request_cancel(pn_request *request);
/* Asks for the answer now: thoughts are closed before the next token, as if their budget ran out.
 * Does nothing where the request is not thinking. Threads: any. */
PN_API void pn_request_end_thinking(pn_request *request);
PN_API bool pn_request_is_done(const pn_request *request);
/* The figures so far, and how the request ended: PN_OK, as *result says, or its error. */
PN_API pn_status pn_request_result(const pn_request *request, pn_gen_result *result, pn_err *err);
/* Ends it first where it is not done, without on_done. Takes NULL. */
PN_API void pn_request_free(pn_request *request);

#ifdef __cplusplus
}
#endif

#endif
