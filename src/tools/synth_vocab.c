#include "tools/synth_vocab.h"

#include "base/buf.h"
#include "base/mem.h"

#include <string.h>

enum { /* tokenizer.ggml.token_type, the format's values */
    TOKEN_NORMAL = 1,
    TOKEN_CONTROL = 3,
    TOKEN_USER = 4,
    TOKEN_UNUSED = 5
};

/* The control tokens of the family from <|endoftext|> (248044 in the real vocabulary) on. */
static const struct {
    const char *text;
    int type;
} specials[] = {
    { "<|endoftext|>", TOKEN_CONTROL },
    { "<|im_start|>", TOKEN_CONTROL },
    { "<|im_end|>", TOKEN_CONTROL },
    { "<|object_ref_start|>", TOKEN_CONTROL },
    { "<|object_ref_end|>", TOKEN_CONTROL },
    { "<|box_start|>", TOKEN_CONTROL },
    { "<|box_end|>", TOKEN_CONTROL },
    { "<|quad_start|>", TOKEN_CONTROL },
    { "<|quad_end|>", TOKEN_CONTROL },
    { "<|vision_start|>", TOKEN_CONTROL },
    { "<|vision_end|>", TOKEN_CONTROL },
    { "<|vision_pad|>", TOKEN_CONTROL },
    { "<|image_pad|>", TOKEN_CONTROL },
    { "<|video_pad|>", TOKEN_CONTROL },
    { "<tool_call>", TOKEN_USER },
    { "</tool_call>", TOKEN_USER },
    { "<|fim_prefix|>", TOKEN_USER },
    { "<|fim_middle|>", TOKEN_USER },
    { "<|fim_suffix|>", TOKEN_USER },
    { "<|fim_pad|>", TOKEN_USER },
    { "<|repo_name|>", TOKEN_USER },
    { "<|file_sep|>", TOKEN_USER },
    { "<tool_response>", TOKEN_USER },
    { "</tool_response>", TOKEN_USER },
    { "<think>", TOKEN_USER },
    { "</think>", TOKEN_USER },
};

enum {
    N_SPECIAL = sizeof specials / sizeof specials[0],
    REAL_N_VOCAB = 248320, /* of the released models */
    REAL_FIRST_SPECIAL = 248044
};

/* Some frequent pairs of English in an order in which each part exists; U+0120 is the byte-level
 * alphabet's blank. */
static const char *const merges[] = {
    "i n",       "o n",      "a t", "e r",  "e n",      "r e",        "h e",        "t he",
    "\u0120 a",  "a n",      "n d", "an d", "\u0120 t", "\u0120t he", "\u0120 s",   "\u0120 o",
    "\u0120o f", "\u0120 w", "i s", "o u",  "in g",     "\u0120 in",  "\u0120 and", "\u0120t o",
};

enum {
    N_MERGE = sizeof merges / sizeof merges[0]
};

/* Our own template: plain ChatML, thinking first. */
static const char chat_template[] =
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n<think>\\n' }}{%- endif %}";

static bool is_printable(int byte)
{
    return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

/* The byte-level alphabet of GPT-2: printable bytes stand for themselves (as Latin-1), the others
 * for U+0100 onwards. */
static void add_byte(pn_buf *b, int byte)
{
    int cp = byte;
    if (!is_printable(byte)) {
        cp = 0x100;
        for (int i = 0; i < byte; i++)
            cp += !is_printable(i);
    }
    if (cp >= 0x80)
        pn_buf_addc(b, (char)(0xc0 | cp >> 6));
    pn_buf_addc(b, (char)(cp >= 0x80 ? 0x80 | (cp & 0x3f) : cp));
}

static void add_token(pn_buf *b, size_t id, size_t first_special, int32_t *type)
{
    *type = TOKEN_NORMAL;
    if (id < 256) {
        add_byte(b, (int)id);
    } else if (id < 256 + N_MERGE) {
        const char *const m = merges[id - 256];
        const size_t n = strcspn(m, " ");
        pn_buf_add(b, m, n);
        pn_buf_adds(b, m + n + 1);
    } else if (id < first_special) {
        pn_buf_addf(b, "\u0120word%zu", id);
    } else if (id < first_special + N_SPECIAL) {
        pn_buf_adds(b, specials[id - first_special].text);
        *type = specials[id - first_special].type;
    } else {
        pn_buf_addf(b, "[PAD%zu]", id);
        *type = TOKEN_UNUSED;
    }
}

static void put_all(pn_gguf_writer *w, size_t n_vocab, size_t first_special, const pn_span *tokens,
                    const int32_t *types)
{
    pn_span pairs[N_MERGE];
    for (size_t i = 0; i < N_MERGE; i++)
        pairs[i] = (pn_span){ merges[i], strlen(merges[i]) };
    pn_gguf_put_str(w, "tokenizer.ggml.model", (pn_span){ "gpt2", 4 });
    pn_gguf_put_str(w, "tokenizer.ggml.pre", (pn_span){ "qwen35", 6 });
    pn_gguf_put_strs(w, "tokenizer.ggml.tokens", n_vocab, tokens);
    pn_gguf_put_arr(w, "tokenizer.ggml.token_type", PN_GGUF_I32, n_vocab, types);
    pn_gguf_put_strs(w, "tokenizer.ggml.merges", N_MERGE, pairs);
    pn_gguf_put_u32(w, "tokenizer.ggml.eos_token_id", (uint32_t)first_special + 2);
    pn_gguf_put_u32(w, "tokenizer.ggml.padding_token_id", (uint32_t)first_special);
    pn_gguf_put_u32(w, "tokenizer.ggml.bos_token_id", (uint32_t)first_special);
    pn_gguf_put_bool(w, "tokenizer.ggml.add_bos_token", false);
    pn_gguf_put_bool(w, "tokenizer.ggml.add_eos_token", false);
    pn_gguf_put_str(w, "tokenizer.chat_template",
                    (pn_span){ chat_template, sizeof chat_template - 1 });
}

pn_status pn_synth_put_vocab(pn_gguf_writer *w, size_t n_vocab, pn_err *err)
{
    PN_REQUIRE(n_vocab >= PN_SYNTH_MIN_VOCAB, err);
    const size_t first_special =
        n_vocab == REAL_N_VOCAB ? (size_t)REAL_FIRST_SPECIAL : n_vocab - N_SPECIAL;
    pn_buf text = { 0 };
    size_t *const ends = pn_calloc(n_vocab, sizeof *ends);
    pn_span *const tokens = pn_calloc(n_vocab, sizeof *tokens);
    int32_t *const types = pn_calloc(n_vocab, sizeof *types);
    const bool has_memory = ends && tokens && types;
    for (size_t id = 0; has_memory && id < n_vocab; id++) {
        add_token(&text, id, first_special, &types[id]);
        ends[id] = text.len;
    }
    const bool is_ok = has_memory && pn_buf_ok(&text);
    if (is_ok) {
        for (size_t id = 0; id < n_vocab; id++) {
            const size_t begin = id ? ends[id - 1] : 0;
            tokens[id] = (pn_span){ text.ptr + begin, ends[id] - begin };
        }
        put_all(w, n_vocab, first_special, tokens, types);
    }
    pn_free(ends);
    pn_free(tokens);
    pn_free(types);
    pn_buf_free(&text);
    return is_ok ? PN_OK : pn_fail(err, PN_ERR_NOMEM, "no memory for a vocabulary");
}
