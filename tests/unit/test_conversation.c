/* The whole of it, as an agent uses it all day: a conversation of ten turns on a long system
 * message. From the second turn on no more is evaluated than what is new, whatever happened in
 * between: the program ended or was killed, the last message was edited, an older branch was taken
 * up again; with thoughts that the template drops, and without. And the logits are always those of
 * the same ids in an empty cache. SOAK=1: the system message has 20,000 tokens. */

#include "support/check.h"
#include "support/model_run.h"
#include "support/odd_ids.h"
#include "support/tmpdir.h"

#include "base/utf8.h"
#include "chat/turn.h"
#include "engine/prompt.h"
#include "engine/session.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    N_CTX = 24576,
    N_SYSTEM = 1200,
    N_SYSTEM_SOAK = 20000,
    N_ANSWER = 24,
    SLACK = 64, /* tokens evaluated beyond what is new */
    N_TURN = 10
};

static const char dir_name[] = "states";

typedef struct rig {
    pn_model *m;
    pn_engine *e, *cold_e; /* with a cache, and without */
    pn_session *s, *cold;
    pn_chat chat;
    pn_prompt prompt;
    pn_buf thought, answer; /* of the answer that comes */
    bool thinks;
    size_t n_before; /* messages before the last user's */
} rig;

static void must(pn_status st, const pn_err *err)
{
    if (st != PN_OK)
        fail_msg("%s", err->msg);
}

static void open_engine(rig *r, bool has_cache, pn_engine **e, pn_session **s)
{
    pn_err err = { 0 };
    const pn_engine_opts opts = {
        .exec = { .n_threads = 2, .n_batch = 512 },
        .cache_ram_bytes = has_cache ? (size_t)512 << 20 : 0,
        .cache_disk_bytes = (uint64_t)1 << 30,
        .cache_dir = has_cache ? pn_tmpdir_path(dir_name) : NULL,
    };
    must(pn_engine_new(r->m, &opts, e, &err), &err);
    must(pn_session_new(*e, &(pn_state_opts){ .n_ctx = N_CTX }, s, &err), &err);
}

static void add(rig *r, pn_chat_role role, pn_span text, const pn_span *thought)
{
    assert_int_equal(pn_chat_add(&r->chat, role, text, thought, NULL), PN_OK);
}

/* The same conversation each time: thousands of different words, then nothing. */
static rig rig_open(bool thinks)
{
    rig r = { .m = pn_test_load(pn_test_tiny("Q4_K_M")), .thinks = thinks };
    static const char *const words[] = {
        "stone", "water", "king", "bread", "year", "hand", "light"
    };
    pn_buf text = { 0 };
    const int n = getenv("SOAK") ? N_SYSTEM_SOAK : N_SYSTEM;
    for (unsigned i = 0, x = 1; i < (unsigned)n; i++, x = x * 1664525 + 1013904223)
        pn_buf_addf(&text, "%s ", words[(x >> 16) % 7]);
    add(&r, PN_CHAT_SYSTEM, pn_buf_span(&text), NULL);
    pn_buf_free(&text);
    open_engine(&r, true, &r.e, &r.s);
    return r;
}

static void close_engine(rig *r)
{
    pn_session_free(r->s);
    pn_engine_free(r->e);
}

static void rig_close(rig *r)
{
    close_engine(r);
    pn_session_free(r->cold);
    pn_engine_free(r->cold_e);
    pn_chat_clear(&r->chat);
    pn_prompt_free(&r->prompt);
    pn_buf_free(&r->thought);
    pn_buf_free(&r->answer);
    pn_model_free(r->m);
}

static bool on_text(void *ctx, pn_span text, bool is_thinking)
{
    rig *const r = ctx;
    pn_utf8_clean(text, is_thinking ? &r->thought : &r->answer);
    return true;
}

static pn_gen_result stream(rig *r, pn_session *s, const pn_ids *ids, int n_predict)
{
    pn_err err = { 0 };
    pn_gen_result result;
    const pn_gen_opts gen = {
        .n_predict = n_predict,
        .starts_thinking = r->prompt.is_thinking,
        .borders = r->prompt.borders.ptr,
        .n_border = r->prompt.borders.len,
        .on_text = on_text,
        .ctx = r,
    };
    r->thought.len = r->answer.len = 0;
    must(pn_stream(s, ids->ptr, ids->len, &gen, &result, &err), &err);
    return result;
}

static void check_cold(rig *r)
{
    if (!r->cold)
        open_engine(r, false, &r->cold_e, &r->cold);
    pn_session_reset(r->cold);
    const pn_gen_result g = stream(r, r->cold, &r->prompt.ids, 0);
    assert_int_equal(g.n_cached, 0);
    pn_test_same_bits("cached and cold", r->cold->logits, r->s->logits, 1,
                      (size_t)pn_test_n_vocab(r->m));
}

/* The user says something; the prompt for the answer is read. Checks what that cost (not in the
 * first turn), and the logits. */
static void say(rig *r, const char *text, bool is_first, bool checks_bits)
{
    pn_err err = { 0 };
    r->n_before = r->chat.n_msg;
    add(r, PN_CHAT_USER, (pn_span){ text, strlen(text) }, NULL);
    r->chat.add_generation_prompt = true;
    r->chat.enable_thinking = r->thinks ? PN_CHAT_TRUE : PN_CHAT_FALSE;
    must(pn_prompt_of_chat(r->e, &r->chat, &r->prompt, &err), &err);
    const pn_gen_result g = stream(r, r->s, &r->prompt.ids, 0);
    const int32_t *const last = r->prompt.borders.ptr + r->prompt.borders.len;
    /* What is new: this turn, and the answer before it where its thoughts were dropped. */
    const int from = is_first ? 0 : last[r->thinks ? -3 : -2];
    const int n_new = g.n_prompt - from, n_read = g.n_prompt - g.n_cached;
    if (n_read > n_new + SLACK)
        fail_msg("\"%s\": %d tokens read of %d, %d are new", text, n_read, g.n_prompt, n_new);
    if (checks_bits)
        check_cold(r);
}

/* The model's own answer, which the client sends back from then on. */
static void hear(rig *r)
{
    const pn_gen_result g = stream(r, r->s, &r->prompt.ids, N_ANSWER);
    assert_int_equal(g.n_cached, g.n_prompt);
    const pn_span thought = pn_chat_strip(pn_buf_span(&r->thought));
    add(r, PN_CHAT_ASSISTANT, pn_chat_strip(pn_buf_span(&r->answer)), r->thinks ? &thought : NULL);
}

/* A long answer in odd tokens, as if the model had chosen them. */
static void hear_long(rig *r)
{
    static const char text[] =
        "I think that this should be said, all of it, and slowly.\n</think>\n\n"
        "One would need to go back a long way, to the time before the house was "
        "built, and ask who carried the stones, and for whom, and why. Nobody is left who saw it, "
        "and the books that tell "
        "of it were written by those who were paid by the king; they praise him on "
        "every page and say little of the stones.";
    const char *const body = strstr(text, "One");
    const pn_span thought = { text, (size_t)(strchr(text, '\n') - text) };
    pn_ids ids = { 0 };
    assert_true(pn_ids_reserve(&ids, r->prompt.ids.len));
    memcpy(ids.ptr, r->prompt.ids.ptr, r->prompt.ids.len * sizeof *ids.ptr);
    ids.len = r->prompt.ids.len;
    pn_test_odd_ids(r->e->vocab, r->thinks ? text : body, &ids);
    assert_true(ids.len > r->prompt.ids.len + 4 * SLACK);
    stream(r, r->s, &ids, 0);
    pn_replay_learn(r->e->replay, ids.ptr, ids.len, r->prompt.ids.len, NULL);
    pn_ids_free(&ids);
    add(r, PN_CHAT_ASSISTANT, (pn_span){ body, strlen(body) }, r->thinks ? &thought : NULL);
}

static const char *line_of(int turn)
{
    static const char *const lines[] = { "What is the capital of France?", "And of Italy?",
                                         "Who built the house?", "How many days has a year?" };
    return lines[turn % 4];
}

static void talk(rig *r, int n_turn)
{
    for (int i = 0; i < n_turn; i++) {
        say(r, line_of(i), r->chat.n_msg == 1, i % 3 == 0);
        if (i % 2)
            hear(r);
        else
            hear_long(r);
    }
}

/* Ten turns; the last message edited; an older branch; the program started again. */
static void conversation(bool thinks)
{
    rig r = rig_open(thinks);
    talk(&r, N_TURN);

    pn_chat_truncate(&r.chat, r.n_before);
    say(&r, "Edited: what is the capital of Spain?", false, true);
    hear(&r);

    pn_chat_truncate(&r.chat, 1 + 2 * 3); /* three turns are left */
    say(&r, "Another branch: who is the king?", false, true);
    hear_long(&r);
    say(&r, "And his brother?", false, false);

    close_engine(&r);
    open_engine(&r, true, &r.e, &r.s);
    pn_chat_truncate(&r.chat, r.n_before);
    say(&r, "After a restart: and his brother?", false, true);
    hear_long(&r);
    say(&r, "And his sister?", false, true);
    rig_close(&r);
}

static void test_thinking(void **state)
{
    (void)state;
    conversation(true);
}

static void test_not_thinking(void **state)
{
    (void)state;
    conversation(false);
}

/* A tool call that the model spaced oddly comes back as JSON, to another session: all that was fed
 * is known, the call's end included, and only the tool's answer is read. */
static void test_tool_call_as_json(void **state)
{
    (void)state;
    static const char sampled[] =
        "<tool_call>\n<function=find>\n<parameter=where>\n{\"dir\":\"/a\",\"deep\":true}\n"
        "</parameter>\n<parameter=all> True </parameter>\n</function>\n\n</tool_call>";
    rig r = rig_open(false);
    say(&r, "Find it.", true, false);
    pn_ids ids = { 0 };
    assert_true(pn_ids_reserve(&ids, r.prompt.ids.len));
    memcpy(ids.ptr, r.prompt.ids.ptr, r.prompt.ids.len * sizeof *ids.ptr);
    ids.len = r.prompt.ids.len;
    pn_test_odd_ids(r.e->vocab, sampled, &ids);
    stream(&r, r.s, &ids, 0);
    pn_replay_learn(r.e->replay, ids.ptr, ids.len, r.prompt.ids.len, NULL);

    const pn_range system = r.chat.msgs[0].content;
    pn_buf request = { 0 };
    pn_buf_addf(&request, "{\"messages\":[{\"role\":\"system\",\"content\":\"%.*s\"},",
                (int)system.len, r.chat.pool.ptr + system.off);
    pn_buf_adds(&request, "{\"role\":\"user\",\"content\":\"Find it.\"},"
                          "{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"c1\",\"type\":"
                          "\"function\",\"function\":{\"name\":\"find\",\"arguments\":"
                          "{\"all\": true, \"where\":{\"deep\":true,\"dir\":\"/a\"}}}}]},"
                          "{\"role\":\"tool\",\"content\":\"nothing\"}],"
                          "\"enable_thinking\":false}");
    pn_json *v = NULL;
    pn_err err = { 0 };
    must(pn_json_parse(request.ptr, request.len, "request", &v, &err), &err);
    pn_chat_clear(&r.chat);
    must(pn_chat_read(&r.chat, v, &err), &err);
    r.chat.add_generation_prompt = true;
    must(pn_prompt_of_chat(r.e, &r.chat, &r.prompt, &err), &err);
    pn_session *other;
    must(pn_session_new(r.e, &(pn_state_opts){ .n_ctx = N_CTX }, &other, &err), &err);
    const pn_gen_result g = stream(&r, other, &r.prompt.ids, 0);
    assert_int_equal(g.n_cached, ids.len);
    assert_in_range(g.n_prompt - g.n_cached, 1, SLACK);
    pn_session_free(r.s);
    r.s = other;
    check_cold(&r);
    pn_json_free(v);
    pn_buf_free(&request);
    pn_ids_free(&ids);
    rig_close(&r);
}

static void send(int fd, pn_span text)
{
    assert_int_equal(write(fd, &text.len, sizeof text.len), sizeof text.len);
    assert_int_equal(write(fd, text.ptr, text.len), text.len);
}

static bool receive(int fd, char *text, size_t max, size_t *len)
{
    return read(fd, len, sizeof *len) == sizeof *len && *len <= max &&
           read(fd, text, *len) == (ssize_t)*len;
}

/* What the killed process does: some turns, each told to its parent, then more and more. */
static void be_killed(int fd)
{
    rig r = rig_open(false);
    for (int i = 0;; i++) {
        say(&r, line_of(i), i == 0, false);
        hear_long(&r);
        const pn_range said = r.chat.msgs[r.chat.n_msg - 1].content;
        pn_store_flush(pn_cache_store(r.e->cache));
        if (i < 4)
            send(fd, (pn_span){ r.chat.pool.ptr + said.off, said.len });
    }
}

/* kill -9 in the midst of an answer: what was said before is not read again. */
static void test_killed(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(ends[0]);
        be_killed(ends[1]);
    }
    close(ends[1]);
    char answers[4][4096];
    size_t lens[4];
    for (int i = 0; i < 4; i++)
        assert_true(receive(ends[0], answers[i], sizeof answers[i], &lens[i]));
    usleep(20000);
    kill(child, SIGKILL);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    close(ends[0]);

    rig r = rig_open(false);
    for (int i = 0; i < 4; i++) {
        add(&r, PN_CHAT_USER, (pn_span){ line_of(i), strlen(line_of(i)) }, NULL);
        add(&r, PN_CHAT_ASSISTANT, (pn_span){ answers[i], lens[i] }, NULL);
    }
    say(&r, "Where were we?", false, true);
    hear(&r);
    say(&r, "Go on.", false, true);
    rig_close(&r);
}

int main(void)
{
    /* Each in a folder of its own; the fork comes before there are threads. */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_killed, pn_tmpdir_setup, pn_tmpdir_teardown),
        cmocka_unit_test_setup_teardown(test_tool_call_as_json, pn_tmpdir_setup,
                                        pn_tmpdir_teardown),
        cmocka_unit_test_setup_teardown(test_thinking, pn_tmpdir_setup, pn_tmpdir_teardown),
        cmocka_unit_test_setup_teardown(test_not_thinking, pn_tmpdir_setup, pn_tmpdir_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
