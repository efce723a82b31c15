/* pantheon inspect: what a model file holds, what it needs in memory, and what stands in its way.
 */

#include "base/arith.h"
#include "base/cpu.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/tensor_types.h"
#include "base/utf8.h"
#include "cli/cli.h"
#include "cli/load.h"
#include "gguf/gguf.h"
#include "models/model.h"
#include "quant/quant.h"
#include "tokenizer/vocab.h"

#include <inttypes.h>
#include <string.h>

#define ARCH "qwen35moe"

enum {
    UNKNOWN = PN_TENSOR_TYPE_LIMIT, /* the mix entry of all unknown type ids */
    N_MIX
};

/* The shape's keys, in the order of the listing; each below the architecture's prefix. */
static const struct {
    const char *key, *label;
} shape_keys[] = {
    { "block_count", "layers (with MTP)" },
    { "nextn_predict_layers", "MTP layers" },
    { "full_attention_interval", "attention every" },
    { "context_length", "trained context" },
    { "embedding_length", "embedding" },
    { "attention.head_count", "query heads" },
    { "attention.head_count_kv", "key/value heads" },
    { "attention.key_length", "head size" },
    { "rope.dimension_count", "rotated dimensions" },
    { "expert_count", "experts" },
    { "expert_used_count", "experts used" },
    { "expert_feed_forward_length", "expert width" },
    { "expert_shared_feed_forward_length", "shared expert width" },
    { "ssm.group_count", "DeltaNet key heads" },
    { "ssm.time_step_rank", "DeltaNet value heads" },
    { "ssm.state_size", "DeltaNet head size" },
    { "ssm.conv_kernel", "convolution" },
};

enum {
    N_SHAPE = sizeof shape_keys / sizeof shape_keys[0]
};

typedef struct mix_entry {
    size_t n_tensor, bytes;
    uint64_t n_weight;
} mix_entry;

/* What a loaded model takes; all zero when it cannot be loaded. */
typedef struct need {
    pn_model_info info;
    int n_ctx, n_threads, n_batch;
    size_t model, workspace, recurrent, kv; /* bytes beside the mapped weights */
} need;

typedef struct report {
    pn_gguf *file;          /* owned */
    pn_buf arch, name;      /* clean text */
    int64_t shape[N_SHAPE]; /* -1: the key is absent */
    mix_entry mix[N_MIX], all;
    pn_buf problems; /* one a line */
    need need;
} report;

/* The key's number; of an array its largest, since 0 marks layers without; -1 when absent. */
static pn_status read_shape(const report *r, const char *key, int64_t *out, pn_err *err)
{
    pn_buf name = { 0 };
    pn_buf_addf(&name, "%s.%s", r->arch.ptr, key);
    const char *const full = pn_buf_cstr(&name);
    if (!full)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for a key");
    pn_status st = PN_OK;
    const uint64_t n = pn_gguf_arr_len(r->file, full);
    *out = -1;
    int32_t *const at = n <= 1 << 16 ? pn_calloc((size_t)n, sizeof *at) : NULL;
    if (!at)
        st = pn_fail(err, PN_ERR_LIMIT, "key %s: has %" PRIu64 " values", full, n);
    else if (n > 0)
        st = pn_gguf_get_arr_i32(r->file, full, (size_t)n, at, err);
    for (uint64_t i = 0; i < n && st == PN_OK; i++)
        *out = at[i] > *out ? at[i] : *out;
    pn_free(at);
    pn_buf_free(&name);
    return st;
}

static void add_tensor(report *r, const pn_gguf_tensor *t)
{
    mix_entry *const m = &r->mix[pn_tensor_type_get(t->type) ? t->type : UNKNOWN];
    const uint64_t n_weight = t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
    m->n_tensor++;
    m->bytes += t->n_bytes;
    m->n_weight += n_weight;
    r->all.n_tensor++;
    r->all.bytes += t->n_bytes;
    r->all.n_weight += n_weight;
    if (!pn_type_get(t->type))
        pn_buf_addf(&r->problems, "%s: type %s (%" PRIu32 ") is not supported\n", t->name,
                    pn_tensor_type_name(t->type), t->type);
}

/* The key's text, for terminals and JSON: what is no printable UTF-8 becomes '?'. Absent: "". */
static pn_status read_text(const report *r, const char *key, pn_buf *out, pn_err *err)
{
    pn_span s = { 0 };
    PN_TRY(pn_gguf_opt_str(r->file, key, &s, err));
    for (size_t i = 0; i < s.len;) {
        uint32_t cp = 0;
        const size_t n = pn_utf8_next(s.ptr + i, s.len - i, &cp);
        const bool is_clean = n > 0 && cp >= 0x20 && (cp < 0x7f || cp >= 0xa0);
        pn_buf_add(out, is_clean ? s.ptr + i : "?", is_clean ? n : 1);
        i += n ? n : 1;
    }
    return pn_buf_cstr(out) ? PN_OK : pn_fail(err, PN_ERR_NOMEM, "no memory for a report");
}

/* Loads the model as `run` would and plans its memory; what stands in the way becomes a problem. */
static pn_status plan(report *r, const pn_cli_opts *opts, pn_err *err)
{
    enum {
        N_CTX_DEFAULT = 32768 /* of a chat */
    };
    pn_err why = { 0 };
    const pn_load_opts load = {
        /* mapped, whatever the options say: a report reads only tables */
        .rope_scaling = opts->rope_scaling,
        .rope_scale = pn_opt_is_given(opts->rope_scale) ? (float)opts->rope_scale : 0,
        .yarn_orig_ctx = opts->yarn_orig_ctx > 0 ? (int)opts->yarn_orig_ctx : 0,
        .err = &why
    };
    pn_model *const model = pn_load_ex(pn_gguf_path(r->file), &load);
    if (!model) {
        /* An unsupported type was listed already, with every tensor that has it. */
        if (r->problems.len == 0)
            pn_buf_addf(&r->problems, "%s\n", why.msg);
        return PN_OK;
    }
    need *const n = &r->need;
    pn_model_get_info(model, &n->info);
    n->info.path = NULL; /* the model's, which ends here */
    n->n_ctx = opts->n_ctx > 0 ? (int)opts->n_ctx : N_CTX_DEFAULT;
    if (opts->n_ctx <= 0 && n->n_ctx > n->info.n_ctx_train)
        n->n_ctx = n->info.n_ctx_train;
    const pn_exec_opts exec = pn_cli_exec_opts(opts, 0);
    n->n_threads = exec.n_threads ? exec.n_threads : pn_cpu_default_threads();
    n->n_batch = exec.n_batch;
    pn_plan p = { 0 };
    pn_status st = pn_model_plan(model, &exec, pn_cli_kv_type(opts), &p, err);
    if (st == PN_OK && n->n_ctx > n->info.n_ctx_train)
        st = pn_fail(err, PN_ERR_ARG, "--ctx %d is more than the model's context of %d", n->n_ctx,
                     n->info.n_ctx_train);
    n->model = p.model_bytes;
    n->workspace = p.workspace_bytes;
    n->recurrent = p.recurrent_bytes;
    n->kv = ((size_t)n->n_ctx + PN_KV_CHUNK - 1) / PN_KV_CHUNK * p.kv_page_bytes;
    pn_model_free(model);
    return st;
}

static void check_vocab(report *r)
{
    pn_vocab *vocab = NULL;
    pn_err why = { 0 };
    if (pn_vocab_load(r->file, &vocab, &why) != PN_OK)
        pn_buf_addf(&r->problems, "%s\n", why.msg);
    pn_vocab_free(vocab);
}

static pn_status fill(report *r, const pn_cli_opts *opts, pn_err *err)
{
    if (!pn_gguf_has(r->file, "general.architecture"))
        return pn_fail(err, PN_ERR_FORMAT, "key general.architecture: is missing");
    PN_TRY(read_text(r, "general.architecture", &r->arch, err));
    PN_TRY(read_text(r, "general.name", &r->name, err));
    if (strcmp(r->arch.ptr, ARCH) != 0)
        pn_buf_addf(&r->problems, "architecture %s is not supported; %s is\n", r->arch.ptr, ARCH);
    for (size_t i = 0; i < N_SHAPE; i++)
        PN_TRY(read_shape(r, shape_keys[i].key, &r->shape[i], err));
    for (size_t i = 0; i < pn_gguf_n_tensors(r->file); i++)
        add_tensor(r, pn_gguf_tensor_at(r->file, i));
    PN_TRY(plan(r, opts, err));
    check_vocab(r);
    if (!pn_buf_ok(&r->problems))
        return pn_fail(err, PN_ERR_NOMEM, "no memory for a report");
    return PN_OK;
}

static size_t total_bytes(const need *n)
{
    return n->info.weight_bytes - n->info.lookup_bytes + n->model + n->workspace + n->recurrent +
           n->kv;
}

static void print_need(const need *n, const pn_cli_opts *opts)
{
    const struct {
        const char *label;
        size_t bytes;
    } lines[] = {
        { "weights, mapped", n->info.weight_bytes - n->info.lookup_bytes },
        { "tables", n->model },
        { "workspace", n->workspace },
        { "recurrent state", n->recurrent },
        { "keys and values", n->kv },
        { "together", total_bytes(n) },
    };
    printf("\nread per token       %.3g GB, %.3g billion multiplications\n",
           (double)n->info.active_bytes / 1e9, n->info.active_macs / 1e9);
    printf("memory for one sequence of %d positions (%s keys and values, %d threads, batch %d)\n",
           n->n_ctx, opts->kv_type, n->n_threads, n->n_batch);
    if (n->info.lookup_bytes)
        printf("  (token_embd, %zu bytes, is mapped too; only rows that are looked up count)\n",
               n->info.lookup_bytes);
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        printf("  %-18s %16zu bytes %10.1f MiB\n", lines[i].label, lines[i].bytes,
               (double)lines[i].bytes / 1048576.0);
}

static void json_need(pn_jw *w, const need *n, const pn_cli_opts *opts)
{
    pn_jw_uint(w, "active_bytes", n->info.active_bytes);
    pn_jw_real(w, "active_macs", n->info.active_macs);
    pn_jw_begin_obj(w, "memory");
    pn_jw_int(w, "n_ctx", n->n_ctx);
    pn_jw_str(w, "kv_type", opts->kv_type);
    pn_jw_int(w, "n_threads", n->n_threads);
    pn_jw_int(w, "n_batch", n->n_batch);
    pn_jw_uint(w, "weight_bytes", n->info.weight_bytes - n->info.lookup_bytes);
    pn_jw_uint(w, "lookup_bytes", n->info.lookup_bytes);
    pn_jw_uint(w, "model_bytes", n->model);
    pn_jw_uint(w, "workspace_bytes", n->workspace);
    pn_jw_uint(w, "recurrent_bytes", n->recurrent);
    pn_jw_uint(w, "kv_bytes", n->kv);
    pn_jw_uint(w, "total_bytes", total_bytes(n));
    pn_jw_end_obj(w);
}

static const char *mix_name(uint32_t i)
{
    return i == UNKNOWN ? "unknown" : pn_tensor_type_name(i);
}

static void print_tensors(const report *r)
{
    printf("\n%-44s %-10s %26s %14s\n", "tensor", "type", "shape", "bytes");
    for (size_t i = 0; i < pn_gguf_n_tensors(r->file); i++) {
        const pn_gguf_tensor *const t = pn_gguf_tensor_at(r->file, i);
        char shape[96];
        size_t n = 0;
        for (int d = 0; d < t->n_dims; d++)
            n += (size_t)snprintf(shape + n, sizeof shape - n, "%s%" PRIu64, d ? " x " : "",
                                  t->dims[d]);
        printf("%-44s %-10s %26s %14zu\n", t->name, pn_tensor_type_name(t->type), shape,
               t->n_bytes);
    }
}

static void print_text(const report *r, const pn_cli_opts *opts)
{
    printf("file                 %s\n", pn_gguf_path(r->file));
    printf("                     GGUF version %" PRIu32 ", %zu file%s, %.2f GB\n",
           pn_gguf_version(r->file), pn_gguf_n_files(r->file),
           pn_gguf_n_files(r->file) == 1 ? "" : "s", (double)pn_gguf_file_bytes(r->file) / 1e9);
    printf("architecture         %s\n", r->arch.ptr);
    if (r->name.len)
        printf("name                 %s\n", r->name.ptr);
    for (size_t i = 0; i < N_SHAPE; i++)
        if (r->shape[i] >= 0)
            printf("%-20s %" PRId64 "\n", shape_keys[i].label, r->shape[i]);
    printf("weights              %.3g billion in %zu tensors\n", (double)r->all.n_weight / 1e9,
           r->all.n_tensor);
    printf("\n%-10s %8s %16s %10s\n", "type", "tensors", "bytes", "share");
    for (uint32_t i = 0; i < N_MIX; i++)
        if (r->mix[i].n_tensor)
            printf("%-10s %8zu %16zu %8.2f %%\n", mix_name(i), r->mix[i].n_tensor, r->mix[i].bytes,
                   r->all.bytes ? 100.0 * (double)r->mix[i].bytes / (double)r->all.bytes : 0.0);
    printf("%-10s %8zu %16zu %8.2f bits a weight\n", "all", r->all.n_tensor, r->all.bytes,
           r->all.n_weight ? 8.0 * (double)r->all.bytes / (double)r->all.n_weight : 0.0);
    if (r->need.n_ctx)
        print_need(&r->need, opts);
    if (opts->list_tensors)
        print_tensors(r);
    if (r->problems.len)
        printf("\nnot supported (types that are: %s):\n%.*s", pn_type_supported_names(),
               (int)r->problems.len, r->problems.ptr);
}

static void json_mix(pn_jw *w, const report *r)
{
    pn_jw_begin_arr(w, "types");
    for (uint32_t i = 0; i < N_MIX; i++) {
        if (!r->mix[i].n_tensor)
            continue;
        pn_jw_begin_obj(w, NULL);
        pn_jw_str(w, "type", mix_name(i));
        pn_jw_uint(w, "tensors", r->mix[i].n_tensor);
        pn_jw_uint(w, "bytes", r->mix[i].bytes);
        pn_jw_uint(w, "weights", r->mix[i].n_weight);
        pn_jw_end_obj(w);
    }
    pn_jw_end_arr(w);
}

static void json_tensors(pn_jw *w, const report *r)
{
    pn_jw_begin_arr(w, "tensors");
    for (size_t i = 0; i < pn_gguf_n_tensors(r->file); i++) {
        const pn_gguf_tensor *const t = pn_gguf_tensor_at(r->file, i);
        pn_jw_begin_obj(w, NULL);
        pn_jw_str(w, "name", t->name);
        pn_jw_str(w, "type", pn_tensor_type_name(t->type));
        pn_jw_uint(w, "type_id", t->type);
        pn_jw_begin_arr(w, "shape");
        for (int d = 0; d < t->n_dims; d++)
            pn_jw_uint(w, NULL, t->dims[d]);
        pn_jw_end_arr(w);
        pn_jw_uint(w, "bytes", t->n_bytes);
        pn_jw_uint(w, "file", (uint64_t)t->i_file);
        pn_jw_end_obj(w);
    }
    pn_jw_end_arr(w);
}

static pn_status print_json(const report *r, const pn_cli_opts *opts, pn_err *err)
{
    pn_buf b = { 0 };
    pn_jw w = { .buf = &b };
    pn_jw_begin_obj(&w, NULL);
    pn_jw_str(&w, "file", pn_gguf_path(r->file));
    pn_jw_uint(&w, "files", pn_gguf_n_files(r->file));
    pn_jw_uint(&w, "file_bytes", pn_gguf_file_bytes(r->file));
    pn_jw_uint(&w, "gguf_version", pn_gguf_version(r->file));
    pn_jw_str(&w, "architecture", r->arch.ptr);
    pn_jw_str(&w, "name", r->name.ptr);
    pn_jw_begin_obj(&w, "shape");
    for (size_t i = 0; i < N_SHAPE; i++)
        if (r->shape[i] >= 0)
            pn_jw_int(&w, shape_keys[i].key, r->shape[i]);
    pn_jw_end_obj(&w);
    pn_jw_uint(&w, "n_tensors", r->all.n_tensor);
    pn_jw_uint(&w, "weights", r->all.n_weight);
    pn_jw_uint(&w, "weight_bytes", r->all.bytes);
    json_mix(&w, r);
    if (r->need.n_ctx)
        json_need(&w, &r->need, opts);
    if (opts->list_tensors)
        json_tensors(&w, r);
    pn_jw_bool(&w, "supported", r->problems.len == 0);
    pn_jw_begin_arr(&w, "problems");
    for (size_t i = 0; i < r->problems.len;) {
        const char *const line = r->problems.ptr + i;
        const size_t n = strcspn(line, "\n");
        pn_jw_span(&w, NULL, (pn_span){ line, n });
        i += n + 1;
    }
    pn_jw_end_arr(&w);
    pn_jw_end_obj(&w);
    const char *const text = pn_buf_cstr(&b);
    if (text)
        printf("%s\n", text);
    const bool is_ok = text != NULL;
    pn_buf_free(&b);
    return is_ok ? PN_OK : pn_fail(err, PN_ERR_NOMEM, "no memory for a report");
}

int pn_cmd_inspect(const pn_cli_opts *opts)
{
    report r = { 0 };
    pn_err err = { 0 };
    pn_cli_opts with_arg = *opts;
    if (opts->n_args)
        with_arg.model = opts->args[0];
    pn_buf path = { 0 };
    pn_status st = pn_cli_model_path(&with_arg, &path, &err);
    if (st == PN_OK)
        st = pn_gguf_open(path.ptr, &(pn_gguf_opts){ .no_mmap = opts->no_mmap }, &r.file, &err);
    if (st == PN_OK) {
        st = fill(&r, opts, &err);
        if (st != PN_OK)
            pn_err_prefix(&err, "%s: ", path.ptr);
    }
    if (st == PN_OK && opts->as_json)
        st = print_json(&r, opts, &err);
    else if (st == PN_OK)
        print_text(&r, opts);
    pn_gguf_close(r.file);
    pn_buf_free(&r.problems);
    pn_buf_free(&r.arch);
    pn_buf_free(&r.name);
    pn_buf_free(&path);
    return st == PN_OK ? PN_EXIT_OK : pn_cli_fail(&err);
}
