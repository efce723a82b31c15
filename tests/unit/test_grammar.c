/* grammar/: the JSON automaton against jansson, masks against every token of the real vocabulary
 * tried one by one, choices, limits. */

#include "support/check.h"
#include "support/real_vocab.h"

#include "base/clock.h"
#include "base/mem.h"
#include "grammar/grammar.h"
#include "grammar/json_text.h"
#include "grammar/matcher.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    N_LOGIT = 248320
};

static uint64_t seed = 1;
static uint32_t next_u32(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 32);
}

static int below(int n)
{
    return (int)(next_u32() % (uint32_t)n);
}

typedef struct setup {
    pn_vocab *vocab;
    pn_grammar *g;
} setup;

static int open_real(void **state)
{
    setup *const t = calloc(1, sizeof *t);
    t->vocab = pn_test_real_vocab();
    assert_int_equal(pn_grammar_new(t->vocab, N_LOGIT, NULL, &t->g, NULL), PN_OK);
    *state = t;
    return 0;
}

static int close_real(void **state)
{
    setup *const t = *state;
    pn_grammar_free(t->g);
    pn_vocab_free(t->vocab);
    free(t);
    return 0;
}

/* --- the automaton ---------------------------------------------------------------------------- */

typedef struct doc {
    char at[4096];
    int n;
} doc;

static void put(doc *t, const char *s)
{
    while (*s && t->n < (int)sizeof t->at - 8)
        t->at[t->n++] = *s++;
}

static void put_white(doc *t)
{
    static const char *const whites[] = { "", "", "", " ", "\n  ", "\t", "\r\n" };
    put(t, whites[below(7)]);
}

static void put_string(doc *t)
{
    static const char *const parts[] = { "a",
                                         "key",
                                         "\\n",
                                         "\\\"",
                                         "\\u00e9",
                                         "\\uD83D\\uDE00",
                                         "\\ud7ff",
                                         "\xc3\xa9",
                                         "/",
                                         "\xe2\x82\xac",
                                         "\xf0\x9f\x98\x80",
                                         "\xed\x9f\xbf",
                                         "\xe0\xa0\x80",
                                         "\xf4\x8f\xbf\xbf",
                                         "\x7f",
                                         "\\/",
                                         "\\\\" };
    put(t, "\"");
    for (int i = below(4); i > 0; i--)
        put(t, parts[below(sizeof parts / sizeof *parts)]);
    put(t, "\"");
}

static void put_value(doc *t, int depth)
{
    static const char *const plain[] = { "true", "false", "null", "0",    "-0",    "12",
                                         "-7.5", "0.25",  "1e9",  "2E-5", "3.0e+1" };
    const int kind = below(depth ? 6 : 4);
    if (kind < 2) {
        put(t, plain[below(sizeof plain / sizeof *plain)]);
    } else if (kind < 4) {
        put_string(t);
    } else {
        const bool is_object = kind == 4;
        put(t, is_object ? "{" : "[");
        put_white(t);
        for (int i = below(4), n = i; i > 0; i--) {
            if (i < n)
                put(t, ",");
            put_white(t);
            if (is_object) {
                put_string(t);
                put_white(t);
                put(t, ":");
                put_white(t);
            }
            put_value(t, depth - 1);
            put_white(t);
        }
        put(t, is_object ? "}" : "]");
    }
}

static void put_object(doc *t)
{
    put(t, "{");
    put_string(t);
    put(t, ":");
    put_white(t);
    put_value(t, 4);
    put(t, "}");
}

static bool accepts(const char *s, size_t n)
{
    pn_json_text j = { 0 };
    for (size_t i = 0; i < n; i++)
        if (!pn_json_text_step(&j, (uint8_t)s[i]))
            return false;
    return j.at == PN_JSON_AT_DONE;
}

/* jansson and the automaton agree about objects, whole ones and damaged ones. */
static void test_json_against_jansson(void **state)
{
    (void)state;
    int n_good = 0, n_bad = 0;
    for (int round = 0; round < 100000; round++) {
        doc t = { .n = 0 };
        put_object(&t);
        if (round % 4) { /* one byte changed, left out or put in */
            static const char odd[] =
                "{}[]\",:\\ \n0159.eE+-utrnfdD\x01\x7f\x80\xbf\xc0\xc3\xe0\xed\xf0\xf5x";
            const int at = below(t.n), kind = below(3);
            if (kind)
                memmove(t.at + at + (kind == 1), t.at + at + (kind == 2),
                        (size_t)(t.n - at - (kind == 2)));
            t.n += kind == 1 ? 1 : kind == 2 ? -1 : 0;
            if (kind < 2)
                t.at[at] = odd[below(sizeof odd - 1)];
        }
        if (memmem(t.at, (size_t)t.n, "\\u0000", 6) || strchr(" \n", t.at[t.n - 1]) ||
            strchr(" \n", t.at[0]))
            continue;
        json_t *const j = json_loadb(t.at, (size_t)t.n, 0, NULL);
        const bool is_good = json_is_object(j);
        json_decref(j);
        if (accepts(t.at, (size_t)t.n) != is_good)
            fail_msg("%s, but jansson says otherwise: %.*s", is_good ? "refused" : "accepted", t.n,
                     t.at);
        n_good += is_good;
        n_bad += !is_good;
    }
    assert_in_range(n_good, 30000, 80000);
    assert_in_range(n_bad, 20000, 80000);
}

/* Limits that keep an answer finite and readable everywhere. */
static void test_json_limits(void **state)
{
    (void)state;
    char s[400];
    for (int n = 1; n < 100; n++) {
        const int len[] = {
            snprintf(s, sizeof s, "{\"a\":%.*s}", n, "1234567890123456789012345678901234567890"),
        };
        if (n <= 40)
            assert_int_equal(accepts(s, (size_t)len[0]), n <= PN_JSON_TEXT_INT_DIGITS);
        snprintf(s, sizeof s, "{\"a\":0.%0*d}", n, 1);
        assert_int_equal(accepts(s, strlen(s)), n + 1 <= PN_JSON_TEXT_DIGITS);
        snprintf(s, sizeof s, "{%*s}", n, "");
        assert_int_equal(accepts(s, strlen(s)), n <= PN_JSON_TEXT_WHITE);
        memset(s, '[', sizeof s);
        memcpy(s, "{\"a\":", 5);
        memset(s + 5 + n, ']', (size_t)n);
        s[5 + 2 * n] = '}';
        assert_int_equal(accepts(s, (size_t)(6 + 2 * n)), n < PN_JSON_TEXT_DEPTH);
    }
    static const char *const good[] = { "{\"a\":1e99}", "{\"a\":-1.5E-07}", "{ }" };
    static const char *const bad[] = { "{\"a\":1e999}",
                                       "{} ",
                                       " {}",
                                       "[]",
                                       "1",
                                       "{\"a\":\"\\ud83d\"}",
                                       "{\"a\":\"\\udc00\"}",
                                       "{\"a\":\"\\ud83d\\u0041\"}",
                                       "{\"a\":01}",
                                       "{\"a\":1.}",
                                       "{\"a\":.5}",
                                       "{\"a\":+1}",
                                       "{\"a\":NaN}",
                                       "{a:1}",
                                       "{'a':1}",
                                       "{\"a\":1,}",
                                       "{,}",
                                       "" };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(accepts(good[i], strlen(good[i])));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (accepts(bad[i], strlen(bad[i])))
            fail_msg("accepted: %s", bad[i]);
}

/* --- masks ------------------------------------------------------------------------------------ */

static bool is_text(const setup *t, int32_t id)
{
    return id < pn_vocab_size(t->vocab) && pn_token_type(t->vocab, id) == PN_TOKEN_NORMAL;
}

static bool takes(pn_json_text s, pn_span bytes)
{
    for (size_t i = 0; i < bytes.len; i++)
        if (!pn_json_text_step(&s, (uint8_t)bytes.ptr[i]))
            return false;
    return true;
}

static bool has(const uint32_t *mask, int32_t id)
{
    return mask[id / 32] >> id % 32 & 1;
}

/* A random allowed token, of several the one with the most of the wanted bytes in front. */
static int32_t choose(const setup *t, const uint32_t *mask, const char *wanted)
{
    int32_t best = -1;
    size_t most = 0;
    for (int i = 0; i < 400000; i++) {
        const int32_t id = below(N_LOGIT);
        if (!has(mask, id))
            continue;
        const pn_span b = pn_token_bytes(t->vocab, id);
        size_t n = 0;
        while (n < b.len && strchr(wanted, b.ptr[n]) && b.ptr[n])
            n++;
        if (best < 0 || n > most) {
            best = id;
            most = n;
        }
        if (best >= 0 && (i > 40000 || !*wanted))
            break;
    }
    for (int32_t id = 0; best < 0 && id < N_LOGIT; id++)
        best = has(mask, id) ? id : -1;
    return best;
}

/* Along random texts, deep ones too, the mask is what every token of the vocabulary, tried alone,
 * says. */
static void test_json_masks(void **state)
{
    const setup *const t = *state;
    static const char *const ways[] = { "[{\":", "]}\",", "\" \n", "0123456789", "[", "]}",
                                        "\\u\"", " \n\t", "}]",    "\",:{",      "" };
    pn_constraint *c = NULL;
    pn_err err = { 0 };
    assert_int_equal(pn_json_object_new(t->g, &c, &err), PN_OK);
    int n_step = 0;
    double worst = 0, sum = 0;
    for (int run = 0; run < 12; run++) {
        pn_matcher *m = NULL;
        pn_json_text text = { 0 };
        assert_int_equal(pn_matcher_new(c, &m, &err), PN_OK);
        for (int i = 0; i < 40 && pn_matcher_end(m) == PN_MATCH_GOES_ON; i++, n_step++) {
            const uint32_t *mask = NULL;
            const double t0 = pn_now_s();
            assert_int_equal(pn_matcher_mask(m, &mask, &err), PN_OK);
            const double s = pn_now_s() - t0;
            sum += s;
            worst = s > worst ? s : worst;
            for (int32_t id = 0; id < N_LOGIT; id++) {
                const bool want = is_text(t, id) && takes(text, pn_token_bytes(t->vocab, id));
                if (has(mask, id) != want)
                    fail_msg("run %d step %d: token %d is %s", run, i, id,
                             want ? "forbidden" : "allowed");
            }
            const char *const way = run == 0   ? (i < 2 ? "{\":" : "[")
                                    : run == 1 ? (i < 25 ? "[{\":" : "]}")
                                               : ways[below(sizeof ways / sizeof *ways)];
            const int32_t id = choose(t, mask, way);
            const pn_span bytes = pn_token_bytes(t->vocab, id);
            for (size_t k = 0; k < bytes.len; k++)
                assert_true(pn_json_text_step(&text, (uint8_t)bytes.ptr[k]));
            assert_int_equal(pn_matcher_accept(m, id, &err), PN_OK);
        }
        pn_matcher_free(m);
    }
    print_message("%d masks of %d tokens: mean %.3f ms, worst (a first one of its kind) %.1f ms\n",
                  n_step, N_LOGIT, sum / n_step * 1e3, worst * 1e3);
    assert_in_range(n_step, 150, 480);
    pn_constraint_free(c);
}

/* What a mask costs where a model writes an ordinary text: each of its tokens in turn. */
static void test_json_mask_time(void **state)
{
    const setup *const t = *state;
    static const char text[] =
        "{\n  \"city\": \"Reykjav\xc3\xadk\",\n  \"population\": 139875,\n  \"districts\": [\n    "
        "{\"name\": \"Mi\xc3\xb0"
        "borg\", \"area\": 4.52, \"old\": true},\n    {\"name\": \"Grafarvogur\", \"area\": "
        "null}\n  ],\n  \"motto\": \"\\u00c1fram\"\n}";
    pn_constraint *c = NULL;
    const pn_trie *trie = NULL;
    assert_int_equal(pn_json_object_new(t->g, &c, NULL), PN_OK);
    assert_int_equal(pn_grammar_trie(t->g, &trie, NULL), PN_OK);
    double sum = 0;
    int n = 0;
    for (int round = 0; round < 20; round++) {
        pn_matcher *m = NULL;
        assert_int_equal(pn_matcher_new(c, &m, NULL), PN_OK);
        for (size_t at = 0; at < sizeof text - 1;) {
            const uint32_t *mask = NULL;
            const double t0 = pn_now_s();
            assert_int_equal(pn_matcher_mask(m, &mask, NULL), PN_OK);
            sum += round ? pn_now_s() - t0 : 0; /* the first round makes what is kept */
            n += round > 0;
            uint32_t node = 0, last = 0; /* the longest token that stands here */
            for (size_t i = at; i < sizeof text - 1; i++) {
                node = pn_trie_child(trie, node, (uint8_t)text[i]);
                if (!node)
                    break;
                last = trie->nodes[node].first < trie->nodes[node + 1].first ? node : last;
            }
            const int32_t id = trie->ids[trie->nodes[last].first];
            assert_true(has(mask, id));
            assert_int_equal(pn_matcher_accept(m, id, NULL), PN_OK);
            at += pn_token_bytes(t->vocab, id).len;
        }
        assert_int_equal(pn_matcher_end(m), PN_MATCH_MUST_END);
        pn_matcher_free(m);
    }
    print_message("an ordinary text: %.1f us a mask\n", sum / n * 1e6);
#ifndef PN_DEBUG
    assert_true(sum / n < 3e-3); /* ten times what is promised: the machine may be busy */
#endif
    pn_constraint_free(c);
}

/* --- choices ---------------------------------------------------------------------------------- */

static const char *const names[] = { "get_weather",       "get", "get_web",
                                     "\xc3\xa9t\xc3\xa9", "zoo", "zoo" };
enum {
    N_NAME = sizeof names / sizeof *names
};

/* Whether bytes may follow the text: it stays a beginning of a name, or is one and more. */
static bool choice_takes(const char *text, pn_span bytes, bool goes_on)
{
    char all[1024];
    const size_t n = strlen(text) + bytes.len;
    if (n >= sizeof all || memchr(bytes.ptr, 0, bytes.len))
        return false;
    memcpy(all, text, strlen(text));
    memcpy(all + strlen(text), bytes.ptr, bytes.len);
    for (int i = 0; i < N_NAME; i++) {
        const size_t len = strlen(names[i]);
        if (n <= len ? memcmp(all, names[i], n) == 0 : goes_on && memcmp(all, names[i], len) == 0)
            return true;
    }
    return false;
}

/* Masks of choices at every place of every name are what all tokens say one by one; they end where
 * they must. */
static void test_choice(void **state)
{
    const setup *const t = *state;
    pn_span strings[N_NAME];
    for (int i = 0; i < N_NAME; i++)
        strings[i] = (pn_span){ names[i], strlen(names[i]) };
    for (int goes_on = 0; goes_on < 2; goes_on++) {
        pn_constraint *c = NULL;
        assert_int_equal(pn_choice_new(t->g, strings, N_NAME, goes_on, &c, NULL), PN_OK);
        for (int in = 0; in < N_NAME - 1; in++) {
            pn_matcher *m = NULL;
            assert_int_equal(pn_matcher_new(c, &m, NULL), PN_OK);
            char text[64] = "";
            for (size_t at = 0;; at++) {
                const uint32_t *mask = NULL;
                const bool is_get = strcmp(text, "get") == 0;
                const bool is_over = goes_on && strncmp(text, "get", 3) == 0;
                const bool is_whole = !names[in][at];
                const pn_match_end want = is_over || is_get || (is_whole && goes_on)
                                              ? PN_MATCH_MAY_END
                                          : is_whole ? PN_MATCH_MUST_END
                                                     : PN_MATCH_GOES_ON;
                assert_int_equal(pn_matcher_end(m), want);
                if (want == PN_MATCH_MUST_END)
                    break;
                assert_int_equal(pn_matcher_mask(m, &mask, NULL), PN_OK);
                if (goes_on && want == PN_MATCH_MAY_END) {
                    assert_null(mask);
                } else {
                    for (int32_t id = 0; id < N_LOGIT; id++) {
                        const bool is_end = is_get && pn_token_is_eog(t->vocab, id);
                        const bool is_right =
                            is_end || (is_text(t, id) &&
                                       choice_takes(text, pn_token_bytes(t->vocab, id), goes_on));
                        if (has(mask, id) != is_right)
                            fail_msg("behind \"%s\" token %d is %s", text, id,
                                     is_right ? "forbidden" : "allowed");
                    }
                }
                if (is_whole)
                    break;
                text[at] = names[in][at];
                const int32_t id = pn_vocab_find(t->vocab, (pn_span){ &names[in][at], 1 });
                assert_int_equal(pn_matcher_accept(m, id, NULL), PN_OK);
            }
            pn_matcher_free(m);
        }
        pn_constraint_free(c);
    }
}

/* Bad choices are refused by name. */
static void test_choice_refusals(void **state)
{
    const setup *const t = *state;
    char *const big = calloc(1, PN_CONSTRAINT_MAX_BYTES);
    const pn_span one = { "a", 1 }, empty[2] = { { "a", 1 }, { "", 0 } };
    const pn_span large[2] = { { big, PN_CONSTRAINT_MAX_BYTES }, { "a", 1 } };
    const struct {
        const pn_span *strings;
        size_t n;
        pn_status st;
        const char *word;
    } cases[] = {
        { &one, 0, PN_ERR_ARG, "0 strings" },
        { &one, 5000, PN_ERR_ARG, "5000 strings" },
        { empty, 2, PN_ERR_ARG, "choice[1]: is empty" },
        { large, 2, PN_ERR_LIMIT, "1048576 bytes" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pn_err err = { 0 };
        pn_constraint *c = NULL;
        assert_int_equal(pn_choice_new(t->g, cases[i].strings, cases[i].n, false, &c, &err),
                         cases[i].st);
        if (!strstr(err.msg, cases[i].word))
            fail_msg("\"%s\", expected %s in it", err.msg, cases[i].word);
        assert_null(c);
    }
    free(big);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json_against_jansson),
        cmocka_unit_test(test_json_limits),
        cmocka_unit_test(test_json_masks),
        cmocka_unit_test(test_json_mask_time),
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_choice_refusals),
    };
    return cmocka_run_group_tests(tests, open_real, close_real);
}
