#include "engine/replay.h"

#include "base/mem.h"
#include "chat/turn.h"
#include "engine/replay_view.h"
#include "tokenizer/detok.h"
#include "tokenizer/encode.h"

#include <pthread.h>
#include <string.h>
#include <sys/random.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

enum {
    BYTES_PER_BUCKET = 1024, /* a turn of 200 tokens: about one in each bucket when full */
};

typedef struct turn {
    struct turn *next;          /* in its bucket, the newest first */
    struct turn *newer, *older; /* by use */
    XXH128_hash_t key;          /* of the ids before it and its body */
    uint64_t thought;           /* the sum of its thoughts; 0: it has none */
    size_t n;
    int32_t ids[]; /* [n], header included */
} turn;

struct pn_replay {
    const pn_vocab *vocab;
    pn_replay_opts opts;
    pn_ids header;
    int32_t end_id;
    uint64_t seed; /* sums that nobody outside can aim at */
    size_t room;   /* bytes of max_bytes for turns; 0 where the vocabulary lacks the markers */
    pthread_mutex_t lock;
    /* under the lock: */
    turn **buckets; /* [n_bucket] */
    size_t n_bucket;
    turn *newest, *oldest;
    pn_replay_stats stats;
    pn_buf text, view, canon; /* scratch */
};

/* The ids that turns are found by; they begin with control tokens, which text cannot forge. */
static bool find_markers(pn_replay *r)
{
    static const char both[] = PN_CHAT_END PN_CHAT_HEADER;
    const size_t n_end = strlen(PN_CHAT_END);
    const pn_encode_opts trusted = { .parse_special = true };
    pn_ids end = { 0 };
    bool ok = pn_encode(r->vocab, (pn_span){ both, n_end }, &trusted, &end, NULL) == PN_OK &&
              pn_encode(r->vocab, (pn_span){ both + n_end, strlen(both) - n_end }, &trusted,
                        &r->header, NULL) == PN_OK;
    if (ok)
        r->end_id = end.ptr[0];
    pn_ids_free(&end);
    return ok && pn_token_type(r->vocab, r->end_id) == PN_TOKEN_CONTROL &&
           pn_token_type(r->vocab, r->header.ptr[0]) == PN_TOKEN_CONTROL;
}

pn_status pn_replay_new(const pn_vocab *vocab, const pn_replay_opts *opts, pn_replay **replay,
                        pn_err *err)
{
    PN_REQUIRE(vocab && opts && opts->style && replay, err);
    pn_replay *const r = pn_calloc(1, sizeof *r);
    if (!r)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for replayed turns");
    pthread_mutex_init(&r->lock, NULL);
    r->vocab = vocab;
    r->opts = *opts;
    r->n_bucket = opts->max_bytes / BYTES_PER_BUCKET + 1;
    r->buckets = pn_calloc(r->n_bucket, sizeof(turn *));
    if (!r->buckets) {
        pn_replay_free(r);
        return pn_fail(err, PN_ERR_NOMEM, "no memory for replayed turns");
    }
    const size_t table = r->n_bucket * sizeof(turn *);
    if (find_markers(r) && opts->max_bytes > table)
        r->room = opts->max_bytes - table;
    const ssize_t n = getrandom(&r->seed, sizeof r->seed, 0);
    (void)n; /* a seed of 0 works as well, but sums are known */
    *replay = r;
    return PN_OK;
}

void pn_replay_free(pn_replay *r)
{
    if (!r)
        return;
    for (turn *t = r->newest; t;) {
        turn *const older = t->older;
        pn_free(t);
        t = older;
    }
    pthread_mutex_destroy(&r->lock);
    pn_ids_free(&r->header);
    pn_buf_free(&r->text);
    pn_buf_free(&r->view);
    pn_buf_free(&r->canon);
    pn_free(r->buckets);
    pn_free(r);
}

/* --- the turns -------------------------------------------------------------------------------- */

static size_t turn_bytes(size_t n)
{
    return sizeof(turn) + n * sizeof(int32_t);
}

static turn **bucket_of(pn_replay *r, XXH128_hash_t key)
{
    return &r->buckets[key.low64 % r->n_bucket];
}

static void unlink_use(pn_replay *r, turn *t)
{
    *(t->newer ? &t->newer->older : &r->newest) = t->older;
    *(t->older ? &t->older->newer : &r->oldest) = t->newer;
}

static void link_newest(pn_replay *r, turn *t)
{
    t->newer = NULL;
    t->older = r->newest;
    *(r->newest ? &r->newest->newer : &r->oldest) = t;
    r->newest = t;
}

static void forget_oldest(pn_replay *r)
{
    turn *const t = r->oldest;
    turn **at = bucket_of(r, t->key);
    while (*at != t)
        at = &(*at)->next;
    *at = t->next;
    unlink_use(r, t);
    r->stats.n_turns--;
    r->stats.bytes -= turn_bytes(t->n);
    pn_free(t);
}

/* The sums of a turn's text behind the ids before [n]. */
typedef struct sums {
    XXH128_hash_t key;
    uint64_t thought;
} sums;

static bool sum_turn(pn_replay *r, const int32_t *before, size_t n, const pn_chat_turn *t, sums *s)
{
    const XXH128_hash_t past = XXH3_128bits_withSeed(before, n * sizeof *before, r->seed);
    r->canon.len = 0;
    pn_buf_add(&r->canon, &past, sizeof past);
    pn_chat_body_canon(t->body, &r->canon);
    s->key = XXH3_128bits_withSeed(r->canon.ptr, r->canon.len, r->seed);
    s->thought = 0;
    if (t->thought.len) /* one bit is given for the 0 */
        s->thought = XXH3_64bits_withSeed(t->thought.ptr, t->thought.len, r->seed) | 1;
    const bool ok = pn_buf_ok(&r->canon);
    r->canon.failed = false;
    return ok;
}

/* Remembers ids [n], header included, unless they are remembered already. */
static void add_turn(pn_replay *r, const sums *s, const int32_t *ids, size_t n)
{
    turn **const bucket = bucket_of(r, s->key);
    for (turn *t = *bucket; t; t = t->next)
        if (t->n == n && XXH128_isEqual(t->key, s->key) && !memcmp(t->ids, ids, n * sizeof *ids)) {
            unlink_use(r, t);
            link_newest(r, t);
            return;
        }
    if (turn_bytes(n) > r->room)
        return;
    turn *const t = pn_alloc(turn_bytes(n));
    if (!t)
        return;
    while (r->stats.bytes > r->room - turn_bytes(n))
        forget_oldest(r);
    t->key = s->key;
    t->thought = s->thought;
    t->n = n;
    memcpy(t->ids, ids, n * sizeof *ids);
    t->next = *bucket;
    *bucket = t;
    link_newest(r, t);
    r->stats.n_turns++;
    r->stats.bytes += turn_bytes(n);
}

/* --- learning --------------------------------------------------------------------------------- */

/* Turn ids [begin, end), which comes back as this text. */
static void learn_text(pn_replay *r, const int32_t *ids, size_t begin, size_t end, pn_span text)
{
    const pn_chat_turn t = pn_chat_turn_split(text);
    sums s;
    if ((t.thought.len || t.body.len) && sum_turn(r, ids, begin, &t, &s))
        add_turn(r, &s, ids + begin, end - begin);
}

/* ... as its client may send it, where these are the tools. */
static void learn_view(pn_replay *r, const int32_t *ids, size_t begin, size_t end,
                       const pn_json *tools)
{
    r->view.len = 0;
    r->view.failed = false; /* this one may fit again */
    if (pn_replay_view(r->opts.style, tools, pn_buf_span(&r->text), &r->view, NULL) == PN_OK)
        learn_text(r, ids, begin, end, pn_buf_span(&r->view));
}

/* The turn that is ids [begin, end), under every text that it may come back as: mostly one. Where
 * the request's tools are not known, those that it names stand for them: not in all types, but it
 * is seen what was a call. */
static void learn_turn(pn_replay *r, const int32_t *ids, size_t begin, size_t end,
                       const pn_json *tools)
{
    pn_detok detok = { .vocab = r->vocab, .replace = true }; /* as JSON must spell bad bytes */
    bool ok = true;
    r->text.len = 0;
    for (size_t i = begin + r->header.len; ok && i < end; i++)
        ok = pn_detok_push(&detok, ids[i], &r->text, NULL) == PN_OK;
    ok = ok && pn_detok_flush(&detok, &r->text, NULL) == PN_OK;
    r->text.failed = false; /* the next one may fit again */
    if (!ok || !pn_chat_turn_split(pn_buf_span(&r->text)).is_closed)
        return; /* unfinished thoughts come back finished */
    learn_text(r, ids, begin, end, pn_buf_span(&r->text));
    learn_view(r, ids, begin, end, tools);
    pn_json *named = NULL;
    if (!tools && pn_replay_named_tools(pn_buf_span(&r->text), &named, NULL) == PN_OK && named)
        learn_view(r, ids, begin, end, named);
    pn_json_free(named);
}

static bool is_header(const pn_replay *r, const int32_t *ids, size_t n)
{
    const size_t len = r->header.len; /* 0: the vocabulary cannot write one */
    return len && n >= len && !memcmp(ids, r->header.ptr, len * sizeof *ids);
}

void pn_replay_learn(pn_replay *r, const int32_t *ids, size_t n, size_t from, const pn_json *tools)
{
    pthread_mutex_lock(&r->lock);
    for (size_t begin = 0; begin < n; begin++) {
        if (!is_header(r, ids + begin, n - begin))
            continue;
        size_t end = begin + r->header.len;
        while (end < n && ids[end] != r->end_id)
            end++;
        if (end > from)
            learn_turn(r, ids, begin, end, tools);
        begin = end;
    }
    pthread_mutex_unlock(&r->lock);
}

/* --- finding ---------------------------------------------------------------------------------- */

static turn *find_turn(pn_replay *r, const pn_ids *before, pn_span text)
{
    const pn_chat_turn seen = pn_chat_turn_split(text);
    sums s;
    if (!sum_turn(r, before->ptr, before->len, &seen, &s))
        return NULL;
    const bool puts_back = r->opts.keeps_thoughts && seen.has_think && !seen.thought.len;
    turn *t = *bucket_of(r, s.key);
    while (t && !(XXH128_isEqual(t->key, s.key) && (t->thought == s.thought || puts_back)))
        t = t->next;
    return t;
}

bool pn_replay_find(pn_replay *r, const pn_ids *before, pn_span text, pn_ids *out)
{
    pthread_mutex_lock(&r->lock);
    turn *const t = find_turn(r, before, text);
    const bool found = t && pn_ids_reserve(out, t->n);
    if (found) {
        memcpy(out->ptr + out->len, t->ids, t->n * sizeof *t->ids);
        out->len += t->n;
        unlink_use(r, t);
        link_newest(r, t);
        r->stats.n_found++;
    } else {
        r->stats.n_missed++;
    }
    pthread_mutex_unlock(&r->lock);
    return found;
}

void pn_replay_get_stats(pn_replay *r, pn_replay_stats *stats)
{
    pthread_mutex_lock(&r->lock);
    *stats = r->stats;
    pthread_mutex_unlock(&r->lock);
}
