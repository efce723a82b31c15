/* usage: logits_digest ISA IDS N MODEL...
 * Prints a digest of the logits of every model with every KV type: the first N ids in IDS (int32)
 * that are below n_vocab, all but the last N_DECODE in one pass, then one by one. It needs no test
 * library, so that it also runs under an emulator of another architecture (`make aarch64`). */
#include "pantheon/pantheon.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    N_IDS_MAX = 4096,
    N_DECODE = 4
};

static int fail(const char *what, const pn_err *err)
{
    fprintf(stderr, "logits_digest: %s: %s\n", what, err->msg);
    return 1;
}

/* FNV-1a, 64 bit, over the bytes; digest goes on. */
static unsigned long long fnv(unsigned long long digest, const void *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        digest = (digest ^ ((const unsigned char *)p)[i]) * 0x100000001b3u;
    return digest;
}

static pn_status run(const pn_model *model, pn_exec *exec, pn_state *state, const int32_t *ids,
                     int n, float *logits, int n_vocab, pn_err *err)
{
    unsigned long long digest = 0xcbf29ce484222325u;
    for (int i = 0, n_tok; i < n; i += n_tok) {
        n_tok = i == 0 ? n - N_DECODE : 1;
        const pn_part part = { pn_state_seq(state), ids + i, n_tok, logits, n_tok };
        const pn_batch batch = { .parts = &part, .n_part = 1 };
        const pn_status s = pn_get_forward_fn(model)(exec, &batch, err);
        if (s != PN_OK)
            return s;
        digest = fnv(digest, logits, (size_t)n_tok * (size_t)n_vocab * sizeof *logits);
    }
    printf(" %016llx", digest);
    return PN_OK;
}

static int run_model(const char *path, const char *isa, const int32_t *all, int n_all, int n_max)
{
    pn_err err = { 0 };
    pn_model *const model = pn_load_ex(path, &(pn_load_opts){ .err = &err });
    if (!model)
        return fail(path, &err);
    pn_model_info info;
    pn_model_get_info(model, &info);
    int32_t ids[N_IDS_MAX];
    int n = 0;
    for (int i = 0; i < n_all && n < n_max; i++)
        if (all[i] >= 0 && all[i] < info.n_vocab)
            ids[n++] = all[i];
    pn_exec *exec = NULL;
    float *const logits = malloc((size_t)n * (size_t)info.n_vocab * sizeof *logits);
    const pn_exec_opts opts = { .n_threads = 2, .n_batch = n_max, .isa = isa };
    pn_status s = n > N_DECODE && logits ? pn_exec_new(model, &opts, &exec, &err) : PN_ERR_ARG;
    printf("%s, %d tokens:", path, n);
    for (pn_kv_type kv = PN_KV_F16; s == PN_OK && kv < PN_KV_COUNT; kv++) {
        pn_state *const state =
            pn_state_new(model, &(pn_state_opts){ .n_ctx = n, .kv_type = kv, .err = &err });
        s = state ? run(model, exec, state, ids, n, logits, info.n_vocab, &err) : PN_ERR_NOMEM;
        pn_state_free(state);
    }
    printf("\n");
    pn_exec_free(exec);
    free(logits);
    pn_model_free(model);
    return s == PN_OK ? 0 : fail(path, &err);
}

int main(int argc, char **argv)
{
    static int32_t all[N_IDS_MAX];
    FILE *const f = argc > 4 ? fopen(argv[2], "rb") : NULL;
    const int n_max = argc > 4 ? (int)strtol(argv[3], NULL, 10) : 0;
    if (!f || n_max <= N_DECODE || n_max > N_IDS_MAX) {
        fprintf(stderr, "usage: logits_digest ISA IDS N MODEL...\n");
        return 2;
    }
    const int n_all = (int)fread(all, sizeof *all, N_IDS_MAX, f);
    fclose(f);
    for (int i = 4; i < argc; i++)
        if (run_model(argv[i], argv[1], all, n_all, n_max) != 0)
            return 1;
    return 0;
}
