/* A sequence in a file of the user's: it goes on with the same bits, and a file that is not whole,
 * of another model or of another kind is refused by name, with the sequence as it was. The bundled
 * model. */

#include "support/check.h"
#include "support/model_run.h"
#include "support/tmpdir.h"

#include "base/buf.h"
#include "base/file.h"
#include "models/seq_file.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    N_CTX = 200,
    N_SAVED = 150, /* two pages */
    N_MORE = 40,
};

typedef struct setup {
    pn_model *m;
    pn_exec *ex;
    pn_state *s;
    int32_t ids[N_SAVED + N_MORE];
    int n_vocab;
} setup;

/* A model and a sequence that holds the first N_SAVED ids. */
static setup setup_open(pn_kv_type kv_type)
{
    setup t = { .m = pn_test_load(pn_test_tiny("Q4_K_M")) };
    const pn_run run = { .kv_type = kv_type };
    t.ex = pn_test_exec(t.m, &run);
    t.s = pn_test_state(t.m, &run, N_CTX);
    t.n_vocab = pn_test_n_vocab(t.m);
    for (int i = 0; i < N_SAVED + N_MORE; i++)
        t.ids[i] = (i * 37 + 11) % t.n_vocab;
    pn_test_feed(t.ex, t.m, t.s, t.ids, N_SAVED, NULL, 0);
    return t;
}

static void setup_close(setup *t)
{
    pn_state_free(t->s);
    pn_exec_free(t->ex);
    pn_model_free(t->m);
}

static void save(const setup *t, const char *path)
{
    pn_err err = { 0 };
    if (pn_seq_save(t->m, pn_state_seq(t->s), t->ids, path, &err) != PN_OK)
        fail_msg("%s", err.msg);
}

static void write_bytes(const char *path, const void *bytes, size_t n)
{
    FILE *const f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

/* The file is refused with code, and the message has both words; the sequence stays as it is. */
static void check_refused(const setup *t, pn_state *s, const char *path, pn_status code,
                          const char *word)
{
    int32_t ids[N_CTX];
    pn_err err = { 0 };
    const int pos = pn_seq_pos(pn_state_seq(s));
    assert_int_equal(pn_seq_restore(t->m, pn_state_seq(s), path, ids, &err), code);
    if (!strstr(err.msg, word) || !strstr(err.msg, path))
        fail_msg("\"%s\" does not have \"%s\"", err.msg, word);
    assert_int_equal(pn_seq_pos(pn_state_seq(s)), pos);
}

/* Logits after a restore, in a new state and in one that held something else, are those of the
 * sequence that went on; with every KV type. */
static void test_same_bits(void **state)
{
    (void)state;
    for (pn_kv_type kv_type = 0; kv_type < PN_KV_COUNT; kv_type++) {
        setup t = setup_open(kv_type);
        const char *const path = pn_tmpdir_path("chat");
        const size_t n = (size_t)N_MORE * (size_t)t.n_vocab;
        float *const want = malloc(n * sizeof *want), *const got = malloc(n * sizeof *got);
        save(&t, path);
        pn_test_feed(t.ex, t.m, t.s, t.ids + N_SAVED, N_MORE, want, N_MORE);
        pn_state *const fresh = pn_test_state(t.m, &(pn_run){ .kv_type = kv_type }, N_CTX);
        pn_state *const both[] = { fresh, t.s };
        for (int i = 0; i < 2; i++) {
            int32_t ids[N_CTX];
            pn_err err = { 0 };
            if (pn_seq_restore(t.m, pn_state_seq(both[i]), path, ids, &err) != PN_OK)
                fail_msg("%s", err.msg);
            assert_int_equal(pn_seq_pos(pn_state_seq(both[i])), N_SAVED);
            assert_memory_equal(ids, t.ids, N_SAVED * sizeof *ids);
            pn_test_feed(t.ex, t.m, both[i], t.ids + N_SAVED, N_MORE, got, N_MORE);
            pn_test_same_bits("after a restore", want, got, N_MORE, (size_t)t.n_vocab);
        }
        pn_state_free(fresh);
        free(want);
        free(got);
        setup_close(&t);
    }
}

/* The fixed part of the head byte by byte, then ids and sums, then here and there. */
static size_t step(size_t at)
{
    return at < 88 ? 1 : at < 800 ? 7 : 20011;
}

/* Any byte changed, any length but the whole: refused, and nothing of the sequence is lost. */
static void test_damage(void **state)
{
    (void)state;
    setup t = setup_open(PN_KV_F16);
    const char *const path = pn_tmpdir_path("whole"), *const bad = pn_tmpdir_path("bad");
    pn_buf file = { 0 };
    save(&t, path);
    assert_int_equal(pn_file_read(path, 1 << 30, &file, NULL), PN_OK);
    for (size_t at = 0; at < file.len; at += step(at)) {
        file.ptr[at] ^= 4;
        write_bytes(bad, file.ptr, file.len);
        file.ptr[at] ^= 4;
        int32_t ids[N_CTX];
        pn_err err = { 0 };
        assert_int_not_equal(pn_seq_restore(t.m, pn_state_seq(t.s), bad, ids, &err), PN_OK);
        assert_int_not_equal(err.msg[0], '\0');
    }
    for (size_t len = 0; len < file.len; len += step(len)) {
        write_bytes(bad, file.ptr, len);
        check_refused(&t, t.s, bad, PN_ERR_FORMAT, "state");
    }
    write_bytes(bad, file.ptr, file.len - 1);
    check_refused(&t, t.s, bad, PN_ERR_FORMAT, "not the whole state");
    pn_buf_addc(&file, 'x');
    write_bytes(bad, file.ptr, file.len);
    check_refused(&t, t.s, bad, PN_ERR_FORMAT, "1 bytes too long");
    file.ptr[8]++;
    write_bytes(bad, file.ptr, file.len - 1);
    check_refused(&t, t.s, bad, PN_ERR_UNSUPPORTED, "version 2");
    pn_buf_free(&file);

    /* and after all of this it is still the sequence that it was */
    const size_t n = (size_t)N_MORE * (size_t)t.n_vocab;
    float *const got = malloc(n * sizeof *got);
    float *const want = pn_test_logits(t.m, &(pn_run){ 0 }, t.ids, N_SAVED + N_MORE);
    pn_test_feed(t.ex, t.m, t.s, t.ids + N_SAVED, N_MORE, got, N_MORE);
    pn_test_same_bits("after refusals", want + (size_t)N_SAVED * (size_t)t.n_vocab, got, N_MORE,
                      (size_t)t.n_vocab);
    free(got);
    free(want);
    setup_close(&t);
}

/* Where the first tensor begins: behind it all tensors lie without gaps, to the file's end. */
static size_t first_weight_off(const pn_model *m)
{
    const pn_gguf *const f = pn_model_file(m);
    const uint8_t *first = pn_gguf_tensor_at(f, 0)->data, *end = first;
    for (size_t i = 0; i < pn_gguf_n_tensors(f); i++) {
        const pn_gguf_tensor *const t = pn_gguf_tensor_at(f, i);
        first = t->data < first ? t->data : first;
        end = t->data + t->n_bytes > end ? t->data + t->n_bytes : end;
    }
    return pn_gguf_file_bytes(f) - (size_t)(end - first);
}

/* The bundled model from a copy, with the time of the original's last change and later_s; the byte
 * at changed, unless 0, is another. */
static pn_model *load_copy(const char *path, size_t changed, int later_s)
{
    const char *const from = pn_test_tiny("Q4_K_M");
    struct stat st;
    pn_buf file = { 0 };
    assert_int_equal(pn_file_read(from, 1 << 30, &file, NULL), PN_OK);
    if (changed)
        file.ptr[changed] ^= 1;
    unlink(path); /* an older copy may be mapped still */
    write_bytes(path, file.ptr, file.len);
    pn_buf_free(&file);
    assert_int_equal(stat(from, &st), 0);
    st.st_mtim.tv_sec += later_s;
    const struct timespec times[] = { st.st_mtim, st.st_mtim };
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    return pn_test_load(path);
}

/* Another model, another KV type, a shorter context, no file, a folder. */
static void test_mismatch(void **state)
{
    (void)state;
    setup t = setup_open(PN_KV_F16);
    const char *const path = pn_tmpdir_path("mine"), *const copy = pn_tmpdir_path("copy.gguf");
    save(&t, path);
    pn_state *const q8 = pn_test_state(t.m, &(pn_run){ .kv_type = PN_KV_Q8_0 }, N_CTX);
    pn_state *const brief = pn_test_state(t.m, &(pn_run){ 0 }, N_SAVED - 1);
    check_refused(&t, q8, path, PN_ERR_UNSUPPORTED, "q8_0");
    check_refused(&t, brief, path, PN_ERR_LIMIT, "the context holds 149");
    check_refused(&t, t.s, pn_tmpdir_path("none"), PN_ERR_IO, "No such file");
    check_refused(&t, t.s, pn_tmpdir(), PN_ERR_FORMAT, "not a saved state");
    check_refused(&t, t.s, pn_test_tiny("Q4_K_M"), PN_ERR_FORMAT, "not a saved state");
    pn_state_free(q8);
    pn_state_free(brief);

    /* A copy is the same model only if nothing tells it from the file: not the time of the last
     * change, not a byte of what is sampled. Another rope is another model. */
    pn_model *const same = load_copy(copy, 0, 0);
    setup u = { .m = same };
    int32_t ids[N_CTX];
    pn_state *const s = pn_test_state(u.m, &(pn_run){ 0 }, N_CTX);
    assert_int_equal(pn_seq_restore(u.m, pn_state_seq(s), path, ids, NULL), PN_OK);
    pn_state_free(s);
    pn_model_free(same);
    const pn_load_opts linear = { .rope_scaling = "linear", .rope_scale = 2.0f };
    const size_t first_weight = first_weight_off(t.m);
    pn_model *const others[] = { load_copy(copy, 0, 1), load_copy(copy, first_weight, 0),
                                 pn_load_ex(pn_test_tiny("Q4_K_M"), &linear) };
    for (int i = 0; i < 3; i++) {
        assert_non_null(others[i]);
        u.m = others[i];
        pn_state *const other = pn_test_state(u.m, &(pn_run){ 0 }, N_CTX);
        check_refused(&u, other, path, PN_ERR_UNSUPPORTED, "another model");
        pn_state_free(other);
        pn_model_free(u.m);
    }
    setup_close(&t);
}

/* Only a saved state is ever replaced; what cannot be written leaves the old one and no other. */
static void test_targets(void **state)
{
    (void)state;
    setup t = setup_open(PN_KV_F16);
    const char *const notes = pn_tmpdir_path("notes.txt"), *const link = pn_tmpdir_path("link");
    pn_seq *const seq = pn_state_seq(t.s);
    pn_err err = { 0 };
    pn_buf text = { 0 };
    write_bytes(notes, "precious", 8);
    assert_int_equal(symlink("notes.txt", link), 0);
    assert_int_equal(pn_seq_save(t.m, seq, t.ids, notes, &err), PN_ERR_ARG);
    assert_non_null(strstr(err.msg, "notes.txt: is there already"));
    assert_int_equal(pn_seq_save(t.m, seq, t.ids, link, &err), PN_ERR_ARG);
    assert_int_equal(pn_seq_save(t.m, seq, t.ids, pn_tmpdir(), &err), PN_ERR_ARG);
    assert_int_equal(pn_seq_save(t.m, seq, t.ids, "/tmp/", &err), PN_ERR_ARG);
    assert_int_equal(pn_seq_save(t.m, seq, t.ids, pn_tmpdir_path("no/such"), &err), PN_ERR_IO);
    assert_int_equal(pn_file_read(notes, 100, &text, NULL), PN_OK);
    assert_string_equal(pn_buf_cstr(&text), "precious");
    pn_buf_free(&text);

    /* A file that becomes too large is what a full disk is: the older state stays. */
    const char *const kept = pn_tmpdir_path("kept");
    struct rlimit old, small = { .rlim_cur = 100000 };
    struct stat before, after;
    save(&t, kept);
    assert_int_equal(stat(kept, &before), 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small.rlim_max = old.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    assert_int_equal(pn_seq_save(t.m, seq, t.ids, kept, &err), PN_ERR_IO);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_non_null(strstr(err.msg, "kept: File too large"));
    assert_int_equal(stat(kept, &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);
    assert_int_equal(access(pn_tmpdir_path("kept.tmp"), F_OK), -1);
    save(&t, kept);
    assert_int_equal(stat(kept, &after), 0);
    assert_int_equal(after.st_mode & 0777, 0600);

    pn_state_reset(t.s);
    assert_int_equal(pn_seq_save(t.m, seq, t.ids, kept, &err), PN_ERR_ARG);
    setup_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_mismatch),
        cmocka_unit_test(test_targets),
    };
    return cmocka_run_group_tests(tests, pn_tmpdir_setup, pn_tmpdir_teardown);
}
