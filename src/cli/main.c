/* pantheon: finds the subcommand, reads its options, runs it. */

#include "base/numa.h"
#include "cli/cli.h"

#include <errno.h>
#include <string.h>

typedef struct command {
    const char *name;
    unsigned bit;      /* PN_CMD_*: its rows in the option table */
    const char *usage; /* behind the name */
    const char *summary;
    int min_args, max_args;
    pn_cmd_fn *run;
} command;

static const command commands[] = {
    { "run", PN_CMD_RUN, "[-m MODEL] [-p PROMPT | -f FILE] [options]",
      "Chats in the terminal, or answers one prompt.", 0, 0, pn_cmd_run },
    { "serve", PN_CMD_SERVE, "[-m MODEL] [--host ADDRESS] [--port N] [options]",
      "Serves the OpenAI, Anthropic and ollama protocols and a chat page over HTTP.", 0, 0,
      pn_cmd_serve },
    { "batch", PN_CMD_BATCH, "IN.jsonl -o OUT.jsonl [-m MODEL] [--shard I/N] [--resume] [options]",
      "Answers a file of requests, as OpenAI's batches have them, without a server.", 1, 1,
      pn_cmd_batch },
    { "logits", PN_CMD_LOGITS, "-m MODEL (--tokens 1,2,3 | --tokens-file FILE) -o OUT [options]",
      "Runs token ids and writes the logits, little-endian float32 [n][n_vocab].", 0, 0,
      pn_cmd_logits },
    { "bench", PN_CMD_BENCH, "[-m MODEL] [-p 512] [-n 128] [-d DEPTH] [-r 5] [--json]",
      "Measures how fast this machine reads prompts and generates.", 0, 0, pn_cmd_bench },
    { "inspect", PN_CMD_INSPECT, "MODEL [options]",
      "Shows what is in a model file, what it needs and what is not supported.", 0, 1,
      pn_cmd_inspect },
    { "render", PN_CMD_RENDER, "[-m MODEL] [-f REQUEST.json]",
      "Prints the prompt that the model's chat template makes of a request's messages.", 0, 0,
      pn_cmd_render },
    { "parse", PN_CMD_PARSE, "[--tools TOOLS.json] [--no-think] [-f TEXT]",
      "Takes a model's raw answer apart: thoughts, text and tool calls, as JSON.", 0, 0,
      pn_cmd_parse },
    { "synth", PN_CMD_SYNTH, "-o OUT [options]",
      "Writes a model of the real shapes with random weights, for benchmarks and tests.", 0, 0,
      pn_cmd_synth },
    { "tokenize", PN_CMD_TOKENIZE, "[-m MODEL] [--special] [--no-nfc] [-f FILE]",
      "Turns text, from FILE or standard input, into a JSON array of token ids.", 0, 0,
      pn_cmd_tokenize },
    { "detokenize", PN_CMD_DETOKENIZE, "[-m MODEL] [-f FILE]",
      "Turns token ids, a JSON array or a list, back into text.", 0, 0, pn_cmd_detokenize },
};

enum {
    N_COMMAND = sizeof commands / sizeof commands[0]
};

static void print_help(void)
{
    printf("usage: pantheon COMMAND [options]\n\n"
           "Runs qwen35moe models (Qwen3.5 and 3.6 MoE) from GGUF files.\n\ncommands:\n");
    for (size_t i = 0; i < N_COMMAND; i++)
        printf("  %-12s %s\n", commands[i].name, commands[i].summary);
    printf(
        "\npantheon COMMAND --help lists a command's options; pantheon --version the version.\n");
}

static int run_command(const command *c, int argc, char **argv)
{
    pn_cli_opts opts;
    pn_err err = { 0 };
    bool want_help;
    int status;
    const pn_status st = pn_cli_opts_parse(c->bit, argc, argv, &opts, &want_help, &err);
    if (st != PN_OK) {
        status = pn_cli_usage("%s: %s", c->name, err.msg);
    } else if (want_help) {
        printf("usage: pantheon %s %s\n\n%s\n", c->name, c->usage, c->summary);
        pn_cli_opts_help(c->bit, stdout);
        status = PN_EXIT_OK;
    } else if (opts.n_args > c->max_args) {
        status = pn_cli_usage("%s: unexpected argument \"%s\"; usage: pantheon %s %s", c->name,
                              opts.args[c->max_args], c->name, c->usage);
    } else if (opts.n_args < c->min_args) {
        status = pn_cli_usage("%s: an argument is missing; usage: pantheon %s %s", c->name, c->name,
                              c->usage);
    } else {
        pn_cli_interrupt_arm();
        status = opts.plan_only ? pn_cmd_plan(&opts) : c->run(&opts);
    }
    pn_cli_opts_clear(&opts);
    return status;
}

static int dispatch(int argc, char **argv)
{
    if (argc < 2)
        return pn_cli_usage("a command is missing; see pantheon --help");
    const char *const name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        print_help();
        return PN_EXIT_OK;
    }
    if (strcmp(name, "--version") == 0) {
        printf("pantheon %s\n", PN_VERSION);
        return PN_EXIT_OK;
    }
    for (size_t i = 0; i < N_COMMAND; i++)
        if (strcmp(name, commands[i].name) == 0)
            return run_command(&commands[i], argc - 2, argv + 2);
    return pn_cli_usage("unknown command \"%s\"; see pantheon --help", name);
}

int main(int argc, char **argv)
{
    pn_cli_guard_files();
    pn_numa_interleave();
    const int status = dispatch(argc, argv);
    /* A full disk behind standard output must not look like success. */
    if ((fflush(stdout) != 0 || ferror(stdout)) && status == PN_EXIT_OK) {
        pn_cli_say("standard output: %s", strerror(errno));
        return PN_EXIT_FAILED;
    }
    return status;
}
