/* pantheon tokenize and detokenize: text to a JSON array of token ids, and back. */

#include "cli/cli.h"

#include "base/clock.h"
#include "base/file.h"
#include "tokenizer/detok.h"
#include "tokenizer/encode.h"

#define MAX_IDS_BYTES ((size_t)1 << 30) /* of a list of ids as text */

/* The vocabulary of the model that opts name. */
static pn_status load_vocab(const pn_cli_opts *opts, pn_vocab **vocab, pn_err *err)
{
    pn_buf path = { 0 };
    pn_gguf *file = NULL;
    const double start = pn_now_s();
    pn_status st = pn_cli_model_path(opts, &path, err);
    if (st == PN_OK)
        st = pn_gguf_open(path.ptr, NULL, &file, err);
    if (st == PN_OK) {
        st = pn_vocab_load(file, vocab, err);
        if (st != PN_OK)
            pn_err_prefix(err, "%s: ", path.ptr);
    }
    if (st == PN_OK && opts->verbose)
        pn_cli_say("%s: %d tokens, loaded in %.1f ms", path.ptr, pn_vocab_size(*vocab),
                   1e3 * (pn_now_s() - start));
    pn_gguf_close(file);
    pn_buf_free(&path);
    return st;
}

/* Appends the file that opts name, else standard input. */
static pn_status read_input(const pn_cli_opts *opts, size_t max_bytes, pn_buf *in, pn_err *err)
{
    return pn_file_read(opts->file ? opts->file : "-", max_bytes, in, err);
}

static pn_status write_out(const pn_buf *out, pn_err *err)
{
    if (!pn_buf_ok(out))
        return pn_fail(err, PN_ERR_NOMEM, "no memory for the output");
    if (out->len)
        fwrite(out->ptr, 1, out->len, stdout); /* main checks the stream */
    return PN_OK;
}

static void say_speed(size_t bytes, size_t n_ids, double seconds)
{
    pn_cli_say("%zu bytes, %zu tokens, %.1f ms, %.1f MB/s", bytes, n_ids, 1e3 * seconds,
               seconds > 0 ? (double)bytes / seconds * 1e-6 : 0.0);
}

static pn_status tokenize(const pn_cli_opts *opts, const pn_vocab *vocab, const pn_buf *in,
                          pn_buf *out, pn_err *err)
{
    const pn_encode_opts how = { .parse_special = opts->parse_special,
                                 .strict_content = opts->strict_content,
                                 .no_nfc = opts->no_nfc };
    pn_ids ids = { 0 };
    const double start = pn_now_s();
    const pn_status st = pn_encode(vocab, pn_buf_span(in), &how, &ids, err);
    if (st == PN_OK) {
        if (opts->verbose)
            say_speed(in->len, ids.len, pn_now_s() - start);
        pn_ids_print(&ids, out);
        pn_buf_addc(out, '\n');
    }
    pn_ids_free(&ids);
    return st;
}

static pn_status detokenize(const pn_cli_opts *opts, const pn_vocab *vocab, const pn_buf *in,
                            pn_buf *out, pn_err *err)
{
    pn_ids ids = { 0 };
    pn_status st = pn_ids_parse(pn_buf_span(in), &ids, err);
    if (st == PN_OK) {
        const double start = pn_now_s();
        st = pn_decode(vocab, ids.ptr, ids.len, out, err);
        if (st == PN_OK && opts->verbose)
            say_speed(out->len, ids.len, pn_now_s() - start);
    }
    pn_ids_free(&ids);
    return st;
}

typedef pn_status step_fn(const pn_cli_opts *opts, const pn_vocab *vocab, const pn_buf *in,
                          pn_buf *out, pn_err *err);

/* Vocabulary and input in, step, output out. */
static int run(const pn_cli_opts *opts, size_t max_bytes, step_fn *step)
{
    pn_err err = { 0 };
    pn_vocab *vocab = NULL;
    pn_buf in = { 0 }, out = { 0 };
    pn_status st = load_vocab(opts, &vocab, &err);
    if (st == PN_OK)
        st = read_input(opts, max_bytes, &in, &err);
    if (st == PN_OK)
        st = step(opts, vocab, &in, &out, &err);
    if (st == PN_OK)
        st = write_out(&out, &err);
    pn_buf_free(&out);
    pn_buf_free(&in);
    pn_vocab_free(vocab);
    return st == PN_OK ? PN_EXIT_OK : pn_cli_fail(&err);
}

int pn_cmd_tokenize(const pn_cli_opts *opts)
{
    return run(opts, PN_ENCODE_MAX_BYTES, tokenize);
}

int pn_cmd_detokenize(const pn_cli_opts *opts)
{
    return run(opts, MAX_IDS_BYTES, detokenize);
}
