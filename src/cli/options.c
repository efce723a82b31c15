#include "cli/options.h"

#include "base/mem.h"
#include "base/pool.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef enum opt_kind {
    FLAG,
    INT,
    SIZE, /* bytes, with K, M, G or T for powers of 1024 */
    REAL,
    STR,
    PICK, /* a string out of choices */
    INTS, /* comma-separated integers */
    STRS  /* may be given more than once */
} opt_kind;

typedef struct opt_row {
    char letter;      /* 0: none */
    const char *name; /* long, without "--"; NULL: environment only */
    opt_kind kind;
    size_t off;      /* of the field in pn_cli_opts */
    unsigned cmds;   /* subcommands that take it; idle: of those to which it matters not */
    const char *arg; /* what the help calls the value; for PICK the choices, "a|b" */
    const char *def; /* as it would be typed; NULL: none */
    double lo, hi;   /* of numbers */
    const char *env; /* "": PANTHEON_ and the name; NULL: none */
    const char *help;
} opt_row;

#define AT(field) offsetof(pn_cli_opts, field)
#define BIG       9007199254740992.0 /* 2^53: the largest integer that a row's double can bound */

enum {
    SERVES = PN_CMD_SERVE | PN_CMD_BATCH,
    LOADS = PN_CMD_RUN | PN_CMD_LOGITS | PN_CMD_BENCH | SERVES,
    CHATS = PN_CMD_RUN | SERVES,
    TEXT = PN_CMD_TOKENIZE | PN_CMD_DETOKENIZE | PN_CMD_RENDER,
    MODEL = LOADS | TEXT | PN_CMD_INSPECT,
    ALL = MODEL | PN_CMD_PARSE | PN_CMD_SYNTH
};

// clang-format off
static const opt_row rows[] = {
    { 'm', "model", STR, AT(model), MODEL, "FILE", NULL, 0, 0, "",
      "the GGUF file, or any part of a split one (default: the bundled tiny model)" },
    { 'p', "prompt", STR, AT(prompt), PN_CMD_RUN, "TEXT", NULL, 0, 0, NULL,
      "answer this and end; without it (and -f) chat" },
    { 'f', "file", STR, AT(file), PN_CMD_RUN, "FILE", NULL, 0, 0, NULL,
      "answer the content of a file (-: standard input)" },
    { 'f', "file", STR, AT(file), TEXT | PN_CMD_PARSE, "FILE", NULL, 0, 0, NULL,
      "read this instead of standard input" },
    { 'n', "n-predict", INT, AT(n_predict), PN_CMD_RUN, "N", NULL, 0, 1 << 30, "",
      "generate at most N tokens" },
    { 0, "temp", REAL, AT(temp), PN_CMD_RUN, "T", NULL, 0, 100, "",
      "temperature; 0 is greedy and repeatable (default: the model's)" },
    { 0, "top-k", INT, AT(top_k), PN_CMD_RUN, "K", NULL, 0, 1 << 30, "",
      "keep the K likeliest tokens; 0: all (default: the model's)" },
    { 0, "top-p", REAL, AT(top_p), PN_CMD_RUN, "P", NULL, 0, 1, "",
      "keep the likeliest tokens that sum to P (default: the model's)" },
    { 0, "min-p", REAL, AT(min_p), PN_CMD_RUN, "P", NULL, 0, 1, "",
      "drop tokens below P times the likeliest (default: the model's)" },
    { 0, "presence-penalty", REAL, AT(presence_penalty), PN_CMD_RUN, "X", NULL, -2, 2, "",
      "against every token generated before (default: the model's)" },
    { 0, "frequency-penalty", REAL, AT(frequency_penalty), PN_CMD_RUN, "X", NULL, -2, 2, "",
      "the same, for each time that it was generated (default: 0)" },
    { 0, "repeat-penalty", REAL, AT(repeat_penalty), PN_CMD_RUN, "X", NULL, 0.01, 100, "",
      "divides the logits of recent tokens; 1: off (default: the model's)" },
    { 0, "repeat-last-n", INT, AT(repeat_last_n), PN_CMD_RUN, "N", "64", 0, 1 << 30, "",
      "how many generated tokens are recent" },
    { 0, "seed", INT, AT(seed), PN_CMD_RUN, "S", NULL, 0, BIG, "",
      "makes the choice of tokens repeatable (default: another one each time)" },
    { 0, "raw", FLAG, AT(raw), PN_CMD_RUN, NULL, NULL, 0, 0, NULL,
      "continue the text as it is, without the chat template" },
    { 0, "no-think", FLAG, AT(no_think), PN_CMD_RUN, NULL, NULL, 0, 0, "",
      "answer without thinking first" },
    { 0, "no-think", FLAG, AT(no_think), PN_CMD_PARSE, NULL, NULL, 0, 0, NULL,
      "the text starts with the answer, not inside <think>" },
    { 0, "ignore-eos", FLAG, AT(ignore_eos), PN_CMD_RUN, NULL, NULL, 0, 0, "",
      "go on past the end tokens" },
    { 0, "think-budget", INT, AT(think_budget), PN_CMD_RUN | PN_CMD_BATCH, "N", NULL, 0, 1 << 30,
      "", "close the thoughts after N tokens" },
    { 0, "json-object", FLAG, AT(json_object), PN_CMD_RUN, NULL, NULL, 0, 0, NULL,
      "the answer is a JSON object" },
    { 0, "json-schema", STR, AT(json_schema), PN_CMD_RUN, "FILE", NULL, 0, 0, NULL,
      "the answer is JSON of this schema; needs `make llguidance`, as the next does" },
    { 0, "grammar", STR, AT(grammar), PN_CMD_RUN, "FILE", NULL, 0, 0, NULL,
      "the answer is of this grammar, GBNF or Lark" },
    { 0, "llguidance", STR, AT(llguidance), PN_CMD_RUN, "FILE", NULL, 0, 0, "",
      "llguidance's library (default: where make put it)" },
    { 0, "system", STR, AT(system), PN_CMD_RUN, "TEXT", NULL, 0, 0, "", "the system message" },
    { 0, "resume", FLAG, AT(resume), PN_CMD_RUN, NULL, NULL, 0, 0, NULL,
      "go on with the chat that was last" },

    { 0, "host", STR, AT(host), PN_CMD_SERVE, "ADDRESS", NULL, 0, 0, "",
      "listen on this address (default: 127.0.0.1: this machine alone)" },
    { 0, "port", INT, AT(port), PN_CMD_SERVE, "N", "8080", 0, 65535, "",
      "listen on this port; 0: any that is free" },
    { 0, "unix", STR, AT(unix_path), PN_CMD_SERVE, "PATH", NULL, 0, 0, "",
      "listen on a unix socket, and on an address only if --host is given" },
    { 0, "ssl-cert-file", STR, AT(cert_file), PN_CMD_SERVE, "FILE", NULL, 0, 0, "",
      "certificate (PEM): speak TLS" },
    { 0, "ssl-key-file", STR, AT(key_file), PN_CMD_SERVE, "FILE", NULL, 0, 0, "",
      "its private key (PEM)" },
    { 0, "api-key", STR, AT(api_keys), PN_CMD_SERVE, "KEY,...", NULL, 0, 0, "",
      "answer only clients that have one of these keys" },
    { 0, "api-key-file", STR, AT(api_key_file), PN_CMD_SERVE, "FILE", NULL, 0, 0, "",
      "the same from a file, one a line" },
    { 0, "allowed-hosts", STR, AT(allowed_hosts), PN_CMD_SERVE, "NAME,...", NULL, 0, 0, "",
      "names that clients may call this server by, beside addresses and localhost" },
    { 0, "cors-origins", STR, AT(cors_origins), PN_CMD_SERVE, "URL,...", NULL, 0, 0, "",
      "pages of other sites that may call it (default: none)" },
    { 0, "parallel", INT, AT(n_parallel), SERVES, "N", "8", 1, 256, "",
      "answers written at once" },
    { 0, "queue", INT, AT(n_queue), PN_CMD_SERVE, "N", "64", 1, 1 << 20, "",
      "requests that may wait; more are told to come again" },
    { 0, "gap-ms", REAL, AT(gap_ms), PN_CMD_SERVE, "MS", NULL, 0, 1e9, "",
      "longest time between two tokens while prompts are read (default: twice the quiet one)" },
    { 0, "think-budget", INT, AT(think_budget), PN_CMD_SERVE, "N", NULL, 0, 1 << 30, "",
      "tokens of thoughts where the request does not say (default: no limit)" },
    { 0, "slot-save-path", STR, AT(slot_dir), PN_CMD_SERVE, "DIR", NULL, 0, 0, "",
      "where /slots saves and restores" },
    { 0, "keep-nonce", FLAG, AT(keeps_nonce), PN_CMD_SERVE, NULL, NULL, 0, 0, "",
      "leave x-anthropic-billing-header in prompts, although it defeats the cache" },
    { 0, "max-body", SIZE, AT(max_body), PN_CMD_SERVE, "SIZE", "64M", 1, BIG, "",
      "longest request" },
    { 0, "ping", REAL, AT(ping_s), PN_CMD_SERVE, "SECONDS", "10", 0.01, 3600, "",
      "longest silence on a connection whose answer is not ready" },
    { 0, "drain", REAL, AT(drain_s), SERVES, "SECONDS", "30", 0, 86400, "",
      "after a signal to end: how long running answers may take" },

    { 'o', "output", STR, AT(output), PN_CMD_BATCH, "FILE", NULL, 0, 0, NULL,
      "where the answers go, one a line" },
    { 0, "resume", FLAG, AT(resume), PN_CMD_BATCH, NULL, NULL, 0, 0, NULL,
      "go on with a file of answers: leave out the requests that it has" },
    { 0, "shard", STR, AT(shard), PN_CMD_BATCH, "I/N", NULL, 0, 0, "",
      "of the lines only each N-th, from the I-th on: 0/4 to 3/4 share a file out" },

    { 0, "tokens", INTS, AT(tokens), PN_CMD_LOGITS, "1,2,3", NULL, -BIG, BIG, NULL,
      "the token ids to run" },
    { 0, "tokens-file", STR, AT(tokens_file), PN_CMD_LOGITS, "FILE", NULL, 0, 0, NULL,
      "the same from a file of little-endian int32" },
    { 'o', "output", STR, AT(output), PN_CMD_LOGITS, "FILE", NULL, 0, 0, NULL,
      "where the logits go: little-endian float32, [n][n_vocab]" },
    { 0, "last", INT, AT(n_last), PN_CMD_LOGITS, "N", NULL, 1, 1 << 30, NULL,
      "only the last N positions (default: all)" },

    { 0, "special", FLAG, AT(parse_special), PN_CMD_TOKENIZE, NULL, NULL, 0, 0, NULL,
      "control tokens in the text become their ids" },
    { 0, "no-nfc", FLAG, AT(no_nfc), PN_CMD_TOKENIZE, NULL, NULL, 0, 0, NULL,
      "leave out the normalization, so that decoding gives the same bytes" },

    { 0, "tools", STR, AT(tools_file), PN_CMD_PARSE, "FILE", NULL, 0, 0, NULL,
      "the tools' definitions, JSON: types of the arguments" },

    { 0, "tensors", FLAG, AT(list_tensors), PN_CMD_INSPECT, NULL, NULL, 0, 0, NULL,
      "list every tensor" },

    { 'p', "n-prompt", INT, AT(n_prompt), PN_CMD_BENCH, "N", "512", 0, 1 << 30, NULL,
      "tokens of the prompt that is timed" },
    { 'n', "n-predict", INT, AT(n_predict), PN_CMD_BENCH, "N", "128", 0, 1 << 30, NULL,
      "tokens to decode" },
    { 'd', "depth", INT, AT(n_depth), PN_CMD_BENCH, "N", "0", 0, 1 << 30, NULL,
      "tokens that are in the context before" },
    { 'r', "repeat", INT, AT(n_repeat), PN_CMD_BENCH, "N", "5", 1, 1000, NULL,
      "times that each figure is measured" },
    { 0, "parallel", INTS, AT(parallel), PN_CMD_BENCH, "1,2,4", NULL, 1, 1024, NULL,
      "sequences that are decoded together, for a table of them" },
    { 0, "beside", INT, AT(n_beside), PN_CMD_BENCH, "N", NULL, 1, 1 << 30, NULL,
      "instead, the gaps of --parallel answers while a prompt of N tokens is read beside them" },

    { 'o', "output", STR, AT(output), PN_CMD_SYNTH, "FILE", NULL, 0, 0, NULL,
      "the file to write" },
    { 0, "preset", PICK, AT(preset), PN_CMD_SYNTH, "tiny|35b-a3b", "tiny", 0, 0, NULL,
      "the shapes" },
    { 0, "layers", INT, AT(n_layers), PN_CMD_SYNTH, "N", NULL, 1, 1024, NULL,
      "trunk layers (default: the preset's)" },
    { 0, "quant", STR, AT(quant), PN_CMD_SYNTH, "NAME", "q4_k_m", 0, 0, NULL,
      "a mix (q3_k_m, q4_k_m, q8trunk) or a type for all matrices (q8_0, bf16, f32, ...)" },
    { 0, "mtp", FLAG, AT(with_mtp), PN_CMD_SYNTH, NULL, NULL, 0, 0, NULL,
      "add the block for multi-token prediction" },
    { 0, "seed", INT, AT(seed), PN_CMD_SYNTH, "S", "0", 0, BIG, NULL,
      "other weights for another seed" },
    { 0, "set", STRS, AT(sets), PN_CMD_SYNTH, "KEY=VALUE", NULL, 0, 0, NULL,
      "change a shape of the preset or a matrix's type; --set help lists the keys" },

    { 0, "json", FLAG, AT(as_json), PN_CMD_INSPECT | PN_CMD_BENCH, NULL, NULL, 0, 0, NULL,
      "one JSON object on standard output" },
    { 't', "threads", INT, AT(n_threads), MODEL, "N", NULL, 1, PN_POOL_MAX_THREADS, "",
      "threads (default: the physical cores that we may use)" },
    { 0, "ctx", INT, AT(n_ctx), MODEL, "N", NULL, 1, 1 << 30, "",
      "positions to make room for (default: what is needed; 32768 in a chat)" },
    { 0, "batch", INT, AT(n_batch), MODEL, "N", "2048", 1, 1 << 16, "",
      "tokens of one pass over a prompt" },
    { 0, "isa", PICK, AT(isa), MODEL, "auto|scalar|avx2|avxvnni|avx512|neon|dotprod|i8mm",
      "auto", 0, 0, "",
      "instruction set; the results are the same" },
    { 0, "device", PICK, AT(device), MODEL, "auto|cpu|cuda", "auto", 0, 0, "",
      "where to compute" },
    { 0, "vram", SIZE, AT(vram), LOADS, "auto|SIZE", "auto", 1, BIG, "",
      "the most of each GPU's memory, such as 8G; auto: what is free, but for a reserve" },
    { 0, "cpu-moe", FLAG, AT(cpu_moe), LOADS, NULL, NULL, 0, 0, "",
      "with a GPU: all routed experts are computed on the CPU" },
    { 0, "n-cpu-moe", INT, AT(n_cpu_moe), LOADS, "N", NULL, 0, 1024, "",
      "with a GPU: those of the first N layers (default: as many as do not fit)" },
    { 0, "expert-cache", SIZE, AT(expert_cache), LOADS, "auto|SIZE", "auto", 0, BIG, "",
      "GPU memory for the experts that the CPU's layers use most; auto: what is left" },
    { 0, "plan", FLAG, AT(plan_only), LOADS, NULL, NULL, 0, 0, NULL,
      "print what would go to which GPU, and end" },
    { 0, "kv-type", PICK, AT(kv_type), MODEL, "f16|f32|q8_0", "f16", 0, 0, "",
      "how keys and values are stored" },
    { 0, "rope-scaling", PICK, AT(rope_scaling), MODEL, "none|linear|yarn", NULL, 0, 0, "",
      "for contexts beyond the trained one (default: the file's)" },
    { 0, "rope-scale", REAL, AT(rope_scale), MODEL, "F", NULL, 1, 1024, "",
      "by how much (default: the file's)" },
    { 0, "yarn-orig-ctx", INT, AT(yarn_orig_ctx), MODEL, "N", NULL, 1, 1 << 30, "",
      "yarn: the trained context (default: the file's)" },
    { 0, "cache-ram", SIZE, AT(cache_ram), CHATS, "SIZE", NULL, 0, BIG, "",
      "memory for sequences and kept states together, such as 4G (default: by the context)" },
    { 0, "cache-disk", SIZE, AT(cache_disk), CHATS, "SIZE", "4G", 0, BIG, "",
      "the most that kept states take on disk" },
    { 0, "cache-dir", STR, AT(cache_dir), CHATS, "DIR", NULL, 0, 0, "",
      "keep states there between runs; none: do not (default: ~/.cache/pantheon for chats)" },
    { 0, "replay", PICK, AT(replay), CHATS, "shown|full", "shown", 0, 0, "",
      "full: thoughts that a client left out are put back where they were" },
    { 0, "strict-content", FLAG, AT(strict_content), MODEL, NULL, NULL, 0, 0, "",
      "markers such as <think> in messages stay plain text" },
    { 0, "mlock", FLAG, AT(lock_memory), MODEL, NULL, NULL, 0, 0, "",
      "keep the model in memory" },
    { 0, "no-mmap", FLAG, AT(no_mmap), MODEL, NULL, NULL, 0, 0, "",
      "read the model instead of mapping it" },
    { 'v', "verbose", FLAG, AT(verbose), ALL, NULL, NULL, 0, 0, "", "say more" },

    { 0, NULL, INT, AT(gpu_split_layer), LOADS, NULL, NULL, 0, 1024, "QWEN35_GPU_SPLIT_LAYER",
      NULL },
    { 0, NULL, INT, AT(gpu_die_a), LOADS, NULL, NULL, 0, 255, "QWEN35_GPU_DIE_A", NULL },
    { 0, NULL, INT, AT(gpu_die_b), LOADS, NULL, NULL, 0, 255, "QWEN35_GPU_DIE_B", NULL },
    { 0, NULL, FLAG, AT(gpu_barswap), LOADS, NULL, NULL, 0, 0, "QWEN35_GPU_BARSWAP", NULL },
    { 0, NULL, STR, AT(gpu_barswap_lock), LOADS, NULL, NULL, 0, 0, "QWEN35_GPU_BARSWAP_LOCK",
      NULL },
    { 0, NULL, STR, AT(gpu_barswap_command), LOADS, NULL, NULL, 0, 0, "QWEN35_GPU_BARSWAP_CMD",
      NULL },
    { 0, NULL, INT, AT(fuse_mask), LOADS, NULL, NULL, 0, UINT32_MAX, "QWEN35_FUSE", NULL },
    { 0, NULL, INT, AT(expert_stream), LOADS, NULL, NULL, 0, 1, "QWEN35_EXPERT_STREAM", NULL },
    { 0, NULL, FLAG, AT(profile), LOADS, NULL, NULL, 0, 0, "QWEN35_PROF", NULL },
};
// clang-format on

/* The common flags are taken by all commands with a model, also where they change nothing; the help
 * says where. */
static const struct {
    const char *name;
    unsigned cmds;
} idle[] = {
    { "threads", TEXT },
    { "ctx", TEXT },
    { "batch", TEXT },
    { "isa", TEXT },
    { "device", TEXT | PN_CMD_INSPECT },
    { "kv-type", TEXT },
    { "rope-scaling", TEXT },
    { "rope-scale", TEXT },
    { "yarn-orig-ctx", TEXT },
    { "strict-content", MODEL & ~(CHATS | PN_CMD_TOKENIZE) },
    { "mlock", TEXT | PN_CMD_INSPECT },
    { "no-mmap", PN_CMD_TOKENIZE | PN_CMD_DETOKENIZE },
};

enum {
    N_ROW = sizeof rows / sizeof rows[0],
    ENV_NAME_BYTES = 64
};

/* The row's environment variable; false when it has none. */
static bool env_name(const opt_row *row, char out[ENV_NAME_BYTES])
{
    if (!row->env)
        return false;
    snprintf(out, ENV_NAME_BYTES, "%s%s", row->env[0] ? "" : "PANTHEON_",
             row->env[0] ? row->env : row->name);
    for (char *p = out; *p; p++)
        *p = *p == '-' ? '_' : (char)toupper((unsigned char)*p);
    return true;
}

static pn_status wrong(const char *source, const char *value, const char *expected, pn_err *err)
{
    return pn_fail(err, PN_ERR_ARG, "%s: got \"%s\"; %s expected", source, value, expected);
}

static pn_status wrong_number(const opt_row *row, const char *source, const char *value,
                              pn_err *err)
{
    char expected[96];
    snprintf(expected, sizeof expected, "%s from %.16g to %.16g",
             row->kind == REAL ? "a number" : "an integer", row->lo, row->hi);
    return wrong(source, value, expected, err);
}

/* An integer in decimal, or with 0x in hexadecimal: the whole of text up to end, no blanks. */
static bool read_int(const char *text, const char *end, int64_t *out)
{
    const char *const digits = text + (*text == '-');
    const bool is_hex = digits[0] == '0' && (digits[1] == 'x' || digits[1] == 'X');
    if (!isdigit((unsigned char)digits[0]) || (is_hex && !isxdigit((unsigned char)digits[2])))
        return false;
    char *stop;
    errno = 0;
    const long long v = strtoll(text, &stop, is_hex ? 16 : 10);
    *out = v;
    return errno == 0 && stop == end;
}

static bool is_in(const opt_row *row, int64_t v)
{
    return (double)v >= row->lo && (double)v <= row->hi;
}

static pn_status read_size(const opt_row *row, const char *source, const char *value, int64_t *out,
                           pn_err *err)
{
    static const char units[] = "KMGT";
    const char *end = value + strlen(value);
    const char *const unit = end > value ? strchr(units, toupper((unsigned char)end[-1])) : NULL;
    const int shift = unit ? 10 * (int)(unit - units + 1) : 0;
    int64_t n;
    const bool has_auto = strncmp(row->arg, "auto|", 5) == 0;
    if (has_auto && strcmp(value, "auto") == 0) {
        *out = -1;
        return PN_OK;
    }
    end -= unit != NULL;
    if (!read_int(value, end, &n) || n < 0 || n > (int64_t)row->hi >> shift ||
        !is_in(row, n << shift))
        return wrong(source, value,
                     has_auto ? "auto or a number of bytes such as 512M or 4G"
                              : "a number of bytes such as 512M or 4G",
                     err);
    *out = n << shift;
    return PN_OK;
}

static pn_status read_ints(const opt_row *row, const char *source, const char *value,
                           pn_opt_ints *out, pn_err *err)
{
    size_t n = value[0] != '\0';
    for (const char *p = value; *p; p++)
        n += *p == ',';
    int64_t *const at = pn_calloc(n, sizeof *at);
    if (!at)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for %zu numbers", n);
    const char *p = value;
    for (size_t i = 0; i < n; i++) {
        const char *const end = p + strcspn(p, ",");
        if (!read_int(p, end, &at[i]) || !is_in(row, at[i])) {
            pn_free(at);
            char item[32];
            snprintf(item, sizeof item, "%.*s", (int)(end - p < 31 ? end - p : 31), p);
            return wrong_number(row, source, item, err);
        }
        p = end + 1;
    }
    pn_free(out->at);
    *out = (pn_opt_ints){ at, n };
    return PN_OK;
}

/* The choice that equals value. */
static bool is_choice(const char *choices, const char *value)
{
    const size_t len = strlen(value);
    for (const char *p = choices; *p;) {
        const size_t n = strcspn(p, "|");
        if (n == len && memcmp(p, value, n) == 0)
            return true;
        p += n + (p[n] == '|');
    }
    return false;
}

static pn_status read_flag(const char *source, const char *value, bool *out, pn_err *err)
{
    static const char *const words[] = { "0", "1", "false", "true", "no", "yes", "off", "on", "" };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(words[i], value) == 0) {
            *out = i % 2 == 1;
            return PN_OK;
        }
    return wrong(source, value, "0 or 1", err);
}

/* Stores value, which came from source ("--ctx", "PANTHEON_CTX"), in the row's field. */
static pn_status store(const opt_row *row, const char *source, const char *value, pn_cli_opts *opts,
                       pn_err *err)
{
    void *const field = (char *)opts + row->off;
    char *stop;
    int64_t i;
    switch (row->kind) {
    case FLAG:
        return read_flag(source, value, field, err);
    case INT:
        if (!read_int(value, value + strlen(value), &i) || !is_in(row, i))
            return wrong_number(row, source, value, err);
        *(int64_t *)field = i;
        return PN_OK;
    case SIZE:
        return read_size(row, source, value, field, err);
    case REAL: {
        const double x = strtod(value, &stop);
        if (stop == value || *stop || isspace((unsigned char)*value) ||
            !(x >= row->lo && x <= row->hi))
            return wrong_number(row, source, value, err);
        *(double *)field = x;
        return PN_OK;
    }
    case PICK:
        if (!is_choice(row->arg, value))
            return wrong(source, value, row->arg, err);
        *(const char **)field = value;
        return PN_OK;
    case STR:
        *(const char **)field = value;
        return PN_OK;
    case INTS:
        return read_ints(row, source, value, field, err);
    case STRS: {
        pn_opt_strs *const strs = field;
        if (strs->n == PN_CLI_MAX_SETS)
            return pn_fail(err, PN_ERR_ARG, "%s: given more than %d times", source,
                           PN_CLI_MAX_SETS);
        strs->at[strs->n++] = value;
        return PN_OK;
    }
    }
    return PN_OK;
}

static pn_status set_default(const opt_row *row, pn_cli_opts *opts, pn_err *err)
{
    void *const field = (char *)opts + row->off;
    if (row->def)
        return store(row, row->name, row->def, opts, err);
    if (row->kind == INT || row->kind == SIZE)
        *(int64_t *)field = -1;
    if (row->kind == REAL)
        *(double *)field = NAN;
    return PN_OK;
}

/* Defaults of every row, those of this subcommand last; then the environment. */
static pn_status start(unsigned cmd, pn_cli_opts *opts, pn_err *err)
{
    for (int own = 0; own < 2; own++)
        for (size_t i = 0; i < N_ROW; i++)
            if (((rows[i].cmds & cmd) != 0) == own)
                PN_TRY(set_default(&rows[i], opts, err));
    char name[ENV_NAME_BYTES];
    for (size_t i = 0; i < N_ROW; i++) {
        const char *const value =
            (rows[i].cmds & cmd) && env_name(&rows[i], name) ? getenv(name) : NULL;
        if (value)
            PN_TRY(store(&rows[i], name, value, opts, err));
    }
    return PN_OK;
}

/* The row of "-x" or of a long name of len bytes; NULL when the subcommand has none. */
static const opt_row *find_row(unsigned cmd, char letter, const char *name, size_t len)
{
    for (size_t i = 0; i < N_ROW; i++) {
        const opt_row *const r = &rows[i];
        if (!(r->cmds & cmd) || !r->name)
            continue;
        if (name ? strlen(r->name) == len && memcmp(r->name, name, len) == 0 : r->letter == letter)
            return r;
    }
    return NULL;
}

/* Takes the option at argv[*i] and, when it is a word of its own, its value. */
static pn_status take_option(unsigned cmd, int argc, char **argv, int *i, pn_cli_opts *opts,
                             pn_err *err)
{
    const char *const word = argv[*i];
    const bool is_long = word[1] == '-';
    const char *const name = is_long ? word + 2 : NULL;
    const size_t len = is_long ? strcspn(name, "=") : 1;
    const opt_row *const row = find_row(cmd, word[1], name, len);
    if (!row && find_row(~0u, word[1], name, len))
        return pn_fail(err, PN_ERR_ARG, "%s: is an option of other commands; see --help", word);
    if (!row)
        return pn_fail(err, PN_ERR_ARG, "%s: unknown option; see --help", word);
    char source[64];
    if (is_long)
        snprintf(source, sizeof source, "--%s", row->name);
    else
        snprintf(source, sizeof source, "-%c", row->letter);
    const char *value = is_long ? (name[len] ? name + len + 1 : NULL) : (word[2] ? word + 2 : NULL);
    if (row->kind == FLAG) {
        if (value)
            return pn_fail(err, PN_ERR_ARG, "%s: takes no value", source);
        *(bool *)((char *)opts + row->off) = true;
        return PN_OK;
    }
    if (!value) {
        if (*i + 1 >= argc)
            return pn_fail(err, PN_ERR_ARG, "%s: needs a value (%s)", source, row->arg);
        value = argv[++*i];
    }
    return store(row, source, value, opts, err);
}

pn_status pn_cli_opts_parse(unsigned cmd, int argc, char **argv, pn_cli_opts *opts, bool *want_help,
                            pn_err *err)
{
    *opts = (pn_cli_opts){ 0 };
    *want_help = false;
    bool only_args = false; /* behind "--" */
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
        *want_help = *want_help || strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0;
    if (*want_help)
        return PN_OK;
    PN_TRY(start(cmd, opts, err));
    for (int i = 0; i < argc; i++) {
        const char *const word = argv[i];
        if (!only_args && strcmp(word, "--") == 0) {
            only_args = true;
        } else if (!only_args && word[0] == '-' && word[1]) {
            PN_TRY(take_option(cmd, argc, argv, &i, opts, err));
        } else {
            if (opts->n_args == PN_CLI_MAX_ARGS)
                return pn_fail(err, PN_ERR_ARG, "%s: one argument too many", word);
            opts->args[opts->n_args++] = word;
        }
    }
    return PN_OK;
}

void pn_cli_opts_clear(pn_cli_opts *opts)
{
    pn_free(opts->tokens.at);
    pn_free(opts->parallel.at);
    *opts = (pn_cli_opts){ 0 };
}

static bool is_idle(const char *name, unsigned cmd)
{
    for (size_t i = 0; i < sizeof idle / sizeof idle[0]; i++)
        if (strcmp(idle[i].name, name) == 0)
            return (idle[i].cmds & cmd) != 0;
    return false;
}

/* A list of names, some a line, the first of them under a heading. */
static void list_name(FILE *out, int n, const char *heading, const char *name)
{
    if (n % 4 == 0)
        fprintf(out, n ? "\n " : "\n%s:\n ", heading);
    fprintf(out, " %s", name);
}

/* What the command takes without heeding it; what the environment may set. */
static void list_names(unsigned cmd, FILE *out)
{
    int n_idle = 0, n_env = 0;
    char name[ENV_NAME_BYTES];
    for (size_t i = 0; i < N_ROW; i++)
        if ((rows[i].cmds & cmd) && rows[i].name && is_idle(rows[i].name, cmd)) {
            snprintf(name, sizeof name, "--%s", rows[i].name);
            list_name(out, n_idle++, "taken as by other commands, without effect here", name);
        }
    if (n_idle)
        fprintf(out, "\n");
    for (size_t i = 0; i < N_ROW; i++)
        if ((rows[i].cmds & cmd) && env_name(&rows[i], name) &&
            !(rows[i].name && is_idle(rows[i].name, cmd)))
            list_name(out, n_env++, "set by these environment variables too, flags first", name);
    if (n_env)
        fprintf(out, "\n");
}

void pn_cli_opts_help(unsigned cmd, FILE *out)
{
    enum {
        HELP_COLUMN = 30
    };
    fprintf(out, "\noptions:\n");
    for (size_t i = 0; i < N_ROW; i++) {
        const opt_row *const r = &rows[i];
        if (!(r->cmds & cmd) || !r->name || is_idle(r->name, cmd))
            continue;
        fprintf(out, r->letter ? "  -%c, " : "      ", r->letter);
        int width = fprintf(out, "--%s%s%s", r->name, r->arg ? " " : "", r->arg ? r->arg : "") + 6;
        if (width > HELP_COLUMN - 2) {
            fprintf(out, "\n");
            width = 0;
        }
        fprintf(out, "%*s%s", HELP_COLUMN - width, "", r->help);
        fprintf(out, r->def ? " (default: %s)\n" : "\n", r->def);
    }
    fprintf(out, "  -h, --help%*sthis\n", HELP_COLUMN - 12, "");
    list_names(cmd, out);
}
