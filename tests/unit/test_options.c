/* cli/options: flags, values, defaults, environment twins and what is refused. */

#include "support/check.h"

#include "cli/options.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_WORDS = 16
};

/* Parses the words of text, separated by blanks ('_' alone: an empty word). The strings live in a
 * static buffer until the next call. */
static pn_status parse(unsigned cmd, const char *text, pn_cli_opts *opts, bool *want_help,
                       pn_err *err)
{
    static char buf[256];
    char *argv[MAX_WORDS];
    int argc = 0;
    strncpy(buf, text, sizeof buf - 1);
    for (char *save, *w = strtok_r(buf, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
        if (strcmp(w, "_") == 0)
            *w = '\0';
        argv[argc++] = w;
    }
    return pn_cli_opts_parse(cmd, argc, argv, opts, want_help, err);
}

static pn_cli_opts must_parse(unsigned cmd, const char *text)
{
    pn_cli_opts opts;
    pn_err err = { 0 };
    bool want_help;
    if (parse(cmd, text, &opts, &want_help, &err) != PN_OK)
        fail_msg("%s: %s", text, err.msg);
    assert_false(want_help);
    return opts;
}

static void must_refuse(unsigned cmd, const char *text, const char *message)
{
    pn_cli_opts opts;
    pn_err err = { 0 };
    bool want_help;
    assert_int_equal(parse(cmd, text, &opts, &want_help, &err), PN_ERR_ARG);
    if (!strstr(err.msg, message))
        fail_msg("%s: got \"%s\", expected \"%s\"", text, err.msg, message);
    pn_cli_opts_clear(&opts);
}

/* Not given: the command's own defaults, and "unset" where it has none. */
static void test_defaults(void **state)
{
    (void)state;
    pn_cli_opts o = must_parse(PN_CMD_BENCH, "");
    assert_true(o.n_prompt == 512 && o.n_predict == 128 && o.n_repeat == 5 && o.n_depth == 0);
    assert_string_equal(o.isa, "auto");
    assert_string_equal(o.kv_type, "f16");
    assert_int_equal(o.n_batch, 2048);
    assert_true(o.n_ctx == -1 && o.n_threads == -1 && !o.model && !o.as_json);
    o = must_parse(PN_CMD_RUN, "");
    assert_true(o.n_predict == -1 && o.seed == -1 && o.top_k == -1 && o.repeat_last_n == 64);
    assert_false(pn_opt_is_given(o.temp) || pn_opt_is_given(o.presence_penalty));
    o = must_parse(PN_CMD_SYNTH, "");
    assert_string_equal(o.preset, "tiny");
    assert_int_equal(o.seed, 0);
}

/* Every way to write an option: short, long, joined, with '='; "--" ends them; "-" is a name. */
static void test_forms(void **state)
{
    (void)state;
    pn_cli_opts o = must_parse(
        PN_CMD_RUN, "-m a.gguf -t 3 --temp=0.5 --top-k 7 --presence-penalty -1.5 -n12 --raw");
    assert_string_equal(o.model, "a.gguf");
    assert_true(o.n_threads == 3 && o.temp == 0.5 && o.top_k == 7 && o.n_predict == 12);
    assert_true(o.presence_penalty == -1.5 && o.raw && !o.no_think);
    o = must_parse(PN_CMD_RUN, "-p -x --system _");
    assert_string_equal(o.prompt, "-x");
    assert_string_equal(o.system, "");
}

/* Sizes in bytes or with a unit. */
static void test_sizes(void **state)
{
    (void)state;
    pn_cli_opts o = must_parse(PN_CMD_RUN, "");
    assert_true(o.cache_ram == -1 && o.cache_disk == (int64_t)4 << 30);
    o = must_parse(PN_CMD_RUN, "--cache-ram 0 --cache-disk 123456789");
    assert_true(o.cache_ram == 0 && o.cache_disk == 123456789);
    o = must_parse(PN_CMD_RUN, "--cache-ram 3k --cache-disk 8192T");
    assert_true(o.cache_ram == 3072 && o.cache_disk == (int64_t)1 << 53);
    assert_int_equal(o.vram, -1); /* auto */
    assert_int_equal(must_parse(PN_CMD_SERVE, "--vram 8G").vram, (int64_t)8 << 30);
    assert_int_equal(must_parse(PN_CMD_SERVE, "--vram auto").vram, -1);
    must_refuse(PN_CMD_RUN, "--vram most", "--vram: got \"most\"; auto or a number of bytes");
    must_refuse(PN_CMD_RUN, "--vram 0", "--vram: got \"0\""); /* it would not be none */
    must_refuse(PN_CMD_SERVE, "--max-body 0K", "--max-body: got \"0K\"");
    assert_int_equal(must_parse(PN_CMD_SERVE, "--cache-ram 0").cache_ram, 0);
    must_refuse(PN_CMD_RUN, "--cache-ram auto", "--cache-ram: got \"auto\"");
}

/* Positional words are kept in order; behind "--" everything is one. */
static void test_arguments(void **state)
{
    (void)state;
    const pn_cli_opts o = must_parse(PN_CMD_INSPECT, "a --json - -- --json");
    assert_int_equal(o.n_args, 3);
    assert_string_equal(o.args[0], "a");
    assert_string_equal(o.args[1], "-");
    assert_string_equal(o.args[2], "--json");
    assert_true(o.as_json);
    must_refuse(PN_CMD_INSPECT, "a b c d e", "e: one argument too many");
}

/* Lists of integers and options that may repeat. */
static void test_lists(void **state)
{
    (void)state;
    pn_cli_opts o = must_parse(PN_CMD_LOGITS, "--tokens 1,-2,0x10,99999999999");
    assert_int_equal(o.tokens.n, 4);
    assert_true(o.tokens.at[0] == 1 && o.tokens.at[1] == -2 && o.tokens.at[2] == 16 &&
                o.tokens.at[3] == 99999999999);
    pn_cli_opts_clear(&o);
    o = must_parse(PN_CMD_LOGITS, "--tokens _ --tokens 7 --tokens _");
    assert_int_equal(o.tokens.n, 0);
    assert_non_null(o.tokens.at);
    pn_cli_opts_clear(&o);
    must_refuse(PN_CMD_LOGITS, "--tokens 1,,2", "--tokens: got \"\"");
    must_refuse(PN_CMD_LOGITS, "--tokens 1,2,", "--tokens: got \"\"");
    must_refuse(PN_CMD_LOGITS, "--tokens 1,2x", "--tokens: got \"2x\"");
    must_refuse(PN_CMD_BENCH, "--parallel 1,0", "--parallel: got \"0\"");
    o = must_parse(PN_CMD_SYNTH, "--set a=1 --set b=2");
    assert_int_equal(o.sets.n, 2);
    assert_string_equal(o.sets.at[1], "b=2");
}

/* Wrong usage: one message that names the option. */
static void test_refuses(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        { "--bogus", "--bogus: unknown option" },
        { "-Z", "-Z: unknown option" },
        { "--tensors", "--tensors: is an option of other commands" },
        { "--temp", "--temp: needs a value" },
        { "--temp _", "--temp: got \"\"" },
        { "--temp 1e", "--temp: got \"1e\"" },
        { "--temp nan", "--temp: got \"nan\"" },
        { "--temp inf", "--temp: got \"inf\"" },
        { "--temp -0.1", "a number from 0 to 100" },
        { "--temp=", "--temp: got \"\"" },
        { "--top-p 1.01", "--top-p: got \"1.01\"" },
        { "--top-k 1.5", "--top-k: got \"1.5\"" },
        { "--top-k +1", "--top-k: got \"+1\"" },
        { "--top-k 0x", "--top-k: got \"0x\"" },
        { "--top-k 0x-1", "--top-k: got \"0x-1\"" },
        { "--top-k 99999999999999999999", "an integer from 0 to 1073741824" },
        { "-t 0", "-t: got \"0\"; an integer from 1 to 256" },
        { "-t257", "-t: got \"257\"" },
        { "--raw=1", "--raw: takes no value" },
        { "--isa sse", "--isa: got \"sse\"; auto|scalar" },
        { "--isa auto|scalar", "--isa: got" },
        { "--kv-type _", "--kv-type: got \"\"" },
        { "--cache-ram _", "--cache-ram: got \"\"; a number of bytes such as 512M or 4G" },
        { "--cache-ram G", "--cache-ram: got \"G\"" },
        { "--cache-ram 4GB", "--cache-ram: got \"4GB\"" },
        { "--cache-ram 1.5G", "--cache-ram: got \"1.5G\"" },
        { "--cache-ram -1", "--cache-ram: got \"-1\"" },
        { "--cache-disk 8193T", "--cache-disk: got \"8193T\"" },
        { "--replay all", "--replay: got \"all\"; shown|full" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        must_refuse(PN_CMD_RUN, cases[i].text, cases[i].message);
}

/* A variable stands in for a flag, a flag wins over it, and it is checked like one; commands that
 * do not take the option do not look at it. */
static void test_environment(void **state)
{
    (void)state;
    setenv("PANTHEON_TOP_K", "9", 1);
    setenv("PANTHEON_NO_MMAP", "1", 1);
    setenv("QWEN35_FUSE", "0x37", 1);
    setenv("QWEN35_PROF", "1", 1);
    pn_cli_opts o = must_parse(PN_CMD_RUN, "");
    assert_true(o.top_k == 9 && o.no_mmap && o.fuse_mask == 0x37 && o.profile);
    o = must_parse(PN_CMD_RUN, "--top-k 3");
    assert_int_equal(o.top_k, 3);
    setenv("PANTHEON_NO_MMAP", "0", 1);
    assert_false(must_parse(PN_CMD_RUN, "").no_mmap);
    setenv("PANTHEON_NO_MMAP", "maybe", 1);
    must_refuse(PN_CMD_RUN, "", "PANTHEON_NO_MMAP: got \"maybe\"; 0 or 1 expected");
    unsetenv("PANTHEON_NO_MMAP");
    setenv("PANTHEON_TOP_K", "-1", 1);
    must_refuse(PN_CMD_RUN, "", "PANTHEON_TOP_K: got \"-1\"");
    (void)must_parse(PN_CMD_INSPECT, "");
    unsetenv("PANTHEON_TOP_K");
    unsetenv("QWEN35_FUSE");
    unsetenv("QWEN35_PROF");
}

static char *help_of(unsigned cmd)
{
    char *text = NULL;
    size_t len = 0;
    FILE *const out = open_memstream(&text, &len);
    pn_cli_opts_help(cmd, out);
    fclose(out);
    return text;
}

/* Common flags are taken everywhere, and help does not claim that they matter where they do not. */
static void test_idle_flags(void **state)
{
    (void)state;
    static const struct {
        unsigned cmd;
        const char *heeded, *idle; /* idle: NULL: none */
    } cases[] = {
        { PN_CMD_INSPECT, "--ctx N", "--device" },
        { PN_CMD_RENDER, "--no-mmap", "--device" },
        { PN_CMD_TOKENIZE, "--strict-content", "--no-mmap" },
        { PN_CMD_LOGITS, "--device auto|cpu|cuda", "--strict-content" },
        { PN_CMD_RUN, "--device auto|cpu|cuda", NULL },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *const text = help_of(cases[i].cmd);
        char *const none = strstr(text, "without effect here:");
        assert_non_null(strstr(text, cases[i].heeded));
        assert_int_equal(none != NULL, cases[i].idle != NULL);
        if (none) {
            assert_true(strstr(text, cases[i].heeded) < none);
            assert_true(strstr(text, cases[i].idle) > none);
        }
        free(text);
    }
    assert_string_equal(must_parse(PN_CMD_RENDER, "--device cuda").device, "cuda");
    assert_true(must_parse(PN_CMD_DETOKENIZE, "--mlock -t 3").lock_memory);
}

/* Help is asked for whatever else is wrong, but not behind "--". */
static void test_help(void **state)
{
    (void)state;
    pn_cli_opts o;
    bool want_help = false;
    assert_int_equal(parse(PN_CMD_RUN, "--bogus --help", &o, &want_help, NULL), PN_OK);
    assert_true(want_help);
    assert_int_equal(parse(PN_CMD_INSPECT, "-- -h", &o, &want_help, NULL), PN_OK);
    assert_false(want_help);
    char *const text = help_of(PN_CMD_BENCH);
    assert_non_null(strstr(text, "-r, --repeat N"));
    assert_non_null(strstr(text, "(default: 512)"));
    assert_non_null(strstr(text, "PANTHEON_KV_TYPE"));
    assert_non_null(strstr(text, "QWEN35_PROF"));
    assert_null(strstr(text, "--tensors"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),    cmocka_unit_test(test_forms),
        cmocka_unit_test(test_sizes),       cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_lists),       cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_environment), cmocka_unit_test(test_help),
        cmocka_unit_test(test_idle_flags),
    };
    return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}
