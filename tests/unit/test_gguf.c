/* gguf/: good files of both versions, split models, the writer, and what hostile files get. */

#include "support/bytes.h"
#include "support/check.h"
#include "support/cpu_time.h"
#include "support/tmpdir.h"

#include "base/file.h"
#include "base/mem.h"
#include "gguf/gguf.h"
#include "gguf/gguf_write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    F32 = 0,
    Q4_K = 12
};

#define SPAN(s) ((pn_span){ s, sizeof(s) - 1 })

static const pn_span words[] = { { "a", 1 }, { "", 0 }, { "\xc4\xa0the", 5 } };
static const float row[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };

/* A model of four tensors: t.0 to t.2 [8] F32 with row in them, and q [256, 3] Q4_K of 0xab. */
static void write_model(const char *path, const pn_gguf_write_opts *opts)
{
    pn_gguf_writer *w;
    pn_err err = { 0 };
    assert_int_equal(pn_gguf_writer_new(opts, &w, &err), PN_OK);
    pn_gguf_put_str(w, "general.architecture", SPAN("testing"));
    pn_gguf_put_u32(w, "n", 42);
    pn_gguf_put_f32(w, "x", 0.25f);
    pn_gguf_put_bool(w, "yes", true);
    pn_gguf_put(w, "i8", PN_GGUF_I8, &(int8_t){ -5 });
    pn_gguf_put(w, "u64", PN_GGUF_U64, &(uint64_t){ UINT64_MAX });
    pn_gguf_put(w, "f64", PN_GGUF_F64, &(double){ 1e300 });
    pn_gguf_put(w, "d", PN_GGUF_F64, &(double){ 0.5 });
    pn_gguf_put_arr(w, "ints", PN_GGUF_I16, 3, (const int16_t[]){ 7, -8, 9 });
    pn_gguf_put_arr(w, "bools", PN_GGUF_BOOL, 2, (const uint8_t[]){ 1, 0 });
    pn_gguf_put_arr(w, "floats", PN_GGUF_F32, 2, (const float[]){ 1.5f, -2 });
    pn_gguf_put_strs(w, "words", 3, words);
    for (int i = 0; i < 3; i++) {
        char name[16];
        snprintf(name, sizeof name, "t.%d", i);
        assert_int_equal(pn_gguf_put_tensor(w, name, F32, 1, (const uint64_t[]){ 8 }, &err), PN_OK);
    }
    assert_int_equal(pn_gguf_put_tensor(w, "q", Q4_K, 2, (const uint64_t[]){ 256, 3 }, &err),
                     PN_OK);
    uint8_t q[3 * 144];
    memset(q, 0xab, sizeof q);
    assert_int_equal(pn_gguf_write_begin(w, path, &err), PN_OK);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pn_gguf_write_data(w, row, sizeof row, &err), PN_OK);
    assert_int_equal(pn_gguf_write_data(w, q, sizeof q, &err), PN_OK);
    assert_int_equal(pn_gguf_write_end(w, &err), PN_OK);
    pn_gguf_writer_free(w);
}

static pn_gguf *must_open(const char *path)
{
    pn_gguf *f = NULL;
    pn_err err = { 0 };
    if (pn_gguf_open(path, NULL, &f, &err) != PN_OK)
        fail_msg("%s", err.msg);
    return f;
}

/* Opening must fail and say all of what; a NULL what is not looked for. */
static void must_refuse(const char *path, const char *what, const char *what2)
{
    pn_gguf *f = NULL;
    pn_err err = { 0 };
    const pn_status st = pn_gguf_open(path, NULL, &f, &err);
    if (st == PN_OK)
        fail_msg("%s was opened; expected: %s", path, what);
    if (!strstr(err.msg, what) || (what2 && !strstr(err.msg, what2)))
        fail_msg("got: %s; expected: %s, %s", err.msg, what, what2 ? what2 : "");
    assert_null(f);
}

static void check_tensors(const pn_gguf *f)
{
    assert_int_equal(pn_gguf_n_tensors(f), 4);
    for (int i = 0; i < 3; i++) {
        char name[16];
        snprintf(name, sizeof name, "t.%d", i);
        const pn_gguf_tensor *const t = pn_gguf_find_tensor(f, name);
        assert_non_null(t);
        assert_ptr_equal(t, pn_gguf_tensor_at(f, (size_t)i));
        assert_int_equal(t->n_bytes, sizeof row);
        assert_memory_equal(t->data, row, sizeof row);
        assert_int_equal(t->n_dims, 1);
        assert_int_equal(t->dims[1], 1);
    }
    const pn_gguf_tensor *const q = pn_gguf_find_tensor(f, "q");
    assert_non_null(q);
    assert_int_equal(q->type, Q4_K);
    assert_int_equal(q->n_bytes, 3 * 144);
    assert_true(q->dims[0] == 256 && q->dims[1] == 3 && q->dims[2] == 1 && q->dims[3] == 1);
    assert_int_equal(q->data[431], 0xab);
    assert_null(pn_gguf_find_tensor(f, "t."));
    assert_null(pn_gguf_find_tensor(f, "zzz"));
    assert_null(pn_gguf_tensor_at(f, 4));
}

/* What the writer writes in either version and any alignment, the reader reads. */
static void test_round_trip(void **state)
{
    (void)state;
    static const pn_gguf_write_opts opts[] = {
        { .version = 2 }, { .version = 3 }, { .alignment = 8 }, { .alignment = 4096 }
    };
    for (size_t i = 0; i < sizeof opts / sizeof opts[0]; i++) {
        const char *const path = pn_tmpdir_path("whole.gguf");
        write_model(path, &opts[i]);
        pn_gguf *const f = must_open(path);
        assert_int_equal(pn_gguf_version(f), opts[i].version ? opts[i].version : 3);
        assert_int_equal(pn_gguf_n_files(f), 1);
        assert_string_equal(pn_gguf_path(f), path);
        assert_int_equal(pn_gguf_n_keys(f), 12 + (opts[i].alignment != 0));
        check_tensors(f);
        pn_gguf_close(f);
    }
}

/* Read into memory instead of mapped, a file gives the same. */
static void test_no_mmap(void **state)
{
    (void)state;
    write_model(pn_tmpdir_path("whole.gguf"), NULL);
    pn_gguf *f = NULL;
    const pn_gguf_opts opts = { .no_mmap = true };
    assert_int_equal(pn_gguf_open(pn_tmpdir_path("whole.gguf"), &opts, &f, NULL), PN_OK);
    check_tensors(f);
    pn_gguf_close(f);
}

/* Getters take every width whose value fits and nothing else. */
static void test_getters(void **state)
{
    (void)state;
    write_model(pn_tmpdir_path("whole.gguf"), NULL);
    pn_gguf *const f = must_open(pn_tmpdir_path("whole.gguf"));
    uint32_t u = 0;
    float x = 0;
    bool b = false;
    pn_span s = { 0 };
    int32_t ints[3];
    float floats[2];
    assert_int_equal(pn_gguf_get_u32(f, "n", &u, NULL), PN_OK);
    assert_int_equal(u, 42);
    assert_int_equal(pn_gguf_get_f32(f, "x", &x, NULL), PN_OK);
    assert_true(x == 0.25f);
    assert_int_equal(pn_gguf_get_f32(f, "d", &x, NULL), PN_OK);
    assert_true(x == 0.5f);
    assert_int_equal(pn_gguf_get_bool(f, "yes", &b, NULL), PN_OK);
    assert_true(b);
    assert_int_equal(pn_gguf_get_str(f, "general.architecture", &s, NULL), PN_OK);
    assert_true(s.len == 7 && memcmp(s.ptr, "testing", 7) == 0);
    assert_int_equal(pn_gguf_get_arr_i32(f, "ints", 3, ints, NULL), PN_OK);
    assert_true(ints[0] == 7 && ints[1] == -8 && ints[2] == 9);
    assert_int_equal(pn_gguf_get_arr_i32(f, "bools", 2, ints, NULL), PN_OK);
    assert_true(ints[0] == 1 && ints[1] == 0);
    assert_int_equal(pn_gguf_get_arr_i32(f, "n", 3, ints, NULL), PN_OK); /* scalar, three times */
    assert_true(ints[0] == 42 && ints[2] == 42);
    assert_int_equal(pn_gguf_get_arr_f32(f, "floats", 2, floats, NULL), PN_OK);
    assert_true(floats[0] == 1.5f && floats[1] == -2);
    assert_int_equal(pn_gguf_arr_len(f, "ints"), 3);
    assert_int_equal(pn_gguf_arr_len(f, "n"), 1);
    assert_int_equal(pn_gguf_arr_len(f, "none"), 0);
    /* Absent keys: get fails and names it, opt leaves the default. */
    pn_err err = { 0 };
    u = 7;
    assert_int_equal(pn_gguf_get_u32(f, "none", &u, &err), PN_ERR_FORMAT);
    assert_string_equal(err.msg, "key none: is missing");
    assert_int_equal(pn_gguf_opt_u32(f, "none", &u, &err), PN_OK);
    assert_int_equal(u, 7);
    pn_gguf_close(f);
}

/* A value of another kind or out of range is refused by name, and the target stays as it was. */
static void test_getters_refuse(void **state)
{
    (void)state;
    write_model(pn_tmpdir_path("whole.gguf"), NULL);
    pn_gguf *const f = must_open(pn_tmpdir_path("whole.gguf"));
    pn_err err = { 0 };
    uint32_t u = 7;
    float x = 7;
    bool b = true;
    pn_span s = { 0 };
    int32_t ints[4] = { 7 };
    uint64_t len = 7;
    assert_int_equal(pn_gguf_get_u32(f, "i8", &u, &err), PN_ERR_FORMAT);
    assert_string_equal(err.msg, "key i8: is -5; 0 to 4294967295 expected");
    assert_int_equal(pn_gguf_get_u32(f, "u64", &u, &err), PN_ERR_FORMAT);
    assert_int_equal(pn_gguf_get_u32(f, "x", &u, &err), PN_ERR_FORMAT);
    assert_string_equal(err.msg, "key x: has type f32; an integer expected");
    assert_int_equal(pn_gguf_get_u32(f, "ints", &u, &err), PN_ERR_FORMAT);
    assert_string_equal(err.msg, "key ints: is an array of i16; an integer expected");
    assert_int_equal(pn_gguf_get_u32(f, "yes", &u, &err), PN_ERR_FORMAT);
    assert_int_equal(pn_gguf_get_f32(f, "f64", &x, &err), PN_ERR_FORMAT);
    assert_int_equal(pn_gguf_get_f32(f, "n", &x, &err), PN_ERR_FORMAT);
    assert_int_equal(pn_gguf_get_bool(f, "n", &b, &err), PN_ERR_FORMAT);
    assert_int_equal(pn_gguf_get_str(f, "words", &s, &err), PN_ERR_FORMAT);
    assert_int_equal(pn_gguf_get_arr_i32(f, "ints", 4, ints, &err), PN_ERR_FORMAT);
    assert_string_equal(err.msg, "key ints: has 3 values; 4 expected");
    assert_int_equal(pn_gguf_get_arr_i32(f, "words", 1, ints, &err), PN_ERR_FORMAT);
    assert_int_equal(pn_gguf_get_arr_i32(f, "floats", 1, ints, &err), PN_ERR_FORMAT);
    assert_int_equal(pn_gguf_check_str_arr(f, "ints", &len, &err), PN_ERR_FORMAT);
    assert_true(u == 7 && x == 7 && b && !s.ptr && ints[0] == 7 && len == 7);
    pn_gguf_close(f);
}

/* A walk over an array of strings gives each of them once, empty ones too. */
static void test_strings(void **state)
{
    (void)state;
    write_model(pn_tmpdir_path("whole.gguf"), NULL);
    pn_gguf *const f = must_open(pn_tmpdir_path("whole.gguf"));
    uint64_t len;
    assert_int_equal(pn_gguf_check_str_arr(f, "words", &len, NULL), PN_OK);
    assert_int_equal(len, 3);
    pn_gguf_str_it it = { 0 };
    pn_span s;
    for (size_t i = 0; i < 3; i++) {
        assert_true(pn_gguf_next_str(f, "words", &it, &s));
        assert_int_equal(s.len, words[i].len);
        assert_memory_equal(s.ptr, words[i].ptr, s.len);
    }
    assert_false(pn_gguf_next_str(f, "words", &it, &s));
    pn_gguf_close(f);
}

/* Every proper prefix of a file is refused; each is a block of its own, so that a sanitizer sees
 * a read past its end. */
static void test_every_prefix_is_refused(void **state)
{
    (void)state;
    write_model(pn_tmpdir_path("whole.gguf"), NULL);
    pn_buf whole = { 0 };
    assert_int_equal(pn_file_read(pn_tmpdir_path("whole.gguf"), 1 << 20, &whole, NULL), PN_OK);
    pn_gguf *f = NULL;
    const size_t padding = 16; /* 3 * 144 ends in the middle of the last 32 */
    for (size_t n = 0; n < whole.len - padding; n++) {
        uint8_t *const cut = pn_alloc(n);
        memcpy(cut, whole.ptr, n);
        pn_err err = { 0 };
        if (pn_gguf_open_mem(cut, n, &f, &err) == PN_OK)
            fail_msg("the first %zu of %zu bytes were taken for a whole file", n, whole.len);
        assert_int_not_equal(err.msg[0], 0);
        pn_free(cut);
    }
    assert_int_equal(pn_gguf_open_mem(whole.ptr, whole.len, &f, NULL), PN_OK);
    pn_gguf_close(f);
    pn_buf_free(&whole);
}

/* A file on disk that lost its last byte names the tensor that lost it. */
static void test_truncated_file_names_the_tensor(void **state)
{
    (void)state;
    const char *const path = pn_tmpdir_path("cut.gguf");
    write_model(path, NULL);
    pn_buf whole = { 0 };
    assert_int_equal(pn_file_read(path, 1 << 20, &whole, NULL), PN_OK);
    assert_int_equal(truncate(path, (off_t)whole.len - 17), 0);
    must_refuse(path, "cut.gguf: tensor q: ", "past the end");
    pn_buf_free(&whole);
}

/* One tensor t [8] F32 behind a head with n_kv keys. */
#define HEAD(n_tensor, n_kv) "r:GGUF i:3 q:" #n_tensor " q:" #n_kv " "
#define T8                   "s:t i:1 q:8 i:0 q:0 "
#define DATA                 "p:32 z:32"

static const struct {
    const char *bytes, *message; /* message NULL: the file is good */
} cases[] = {
    { HEAD(1, 0) T8 DATA, NULL },
    { HEAD(0, 0), NULL },
    { "r:GGUF i:2 q:1 q:0 " T8 DATA, NULL },
    { "", "inside the magic number" },
    { "r:GGML i:3 q:0 q:0", "is not a GGUF file" },
    { "r:FUGG b:0 b:0 b:0 b:3 q:0 q:0", "big-endian" },
    { "r:GGUF b:0 b:0 b:0 b:3 q:0 q:0", "big-endian" },
    { "r:GGUF i:1 i:0 i:0", "version 1 is not supported" },
    { "r:GGUF i:0 q:0 q:0", "version 0 is not supported" },
    { "r:GGUF i:4 q:0 q:0", "version 4 is not supported" },
    { "r:GGUF i:3 q:0", "inside the header" },
    /* counts */
    { HEAD(0x2000000000000000, 0) T8 DATA, "2305843009213693952 tensors" },
    { HEAD(-1, 0), "18446744073709551615 tensors" },
    { HEAD(0, -1), "18446744073709551615 keys" },
    { HEAD(0, 2) "s:k i:0 b:1", "2 keys" },
    { HEAD(2, 0) T8, "2 tensors" },
    { HEAD(2, 0) T8 DATA, "a tensor name at byte 57 is empty" },
    /* keys */
    { HEAD(0, 1) "s: i:0 b:1 z:64", "a key at byte 24 is empty" },
    { HEAD(0, 1) "q:-1 z:64", "claims 18446744073709551615 bytes" },
    { HEAD(0, 1) "q:65 z:64", "claims 65 bytes" },
    { HEAD(0, 1) "q:257 z:300", "257 bytes; the limit is 256" },
    { HEAD(0, 1) "s:a%0ab i:0 b:1", "control character U+000A" },
    { HEAD(0, 1) "s:a%00b i:0 b:1", "control character U+0000" },
    { HEAD(0, 1) "s:a%c2%9bb i:0 b:1", "control character U+009B" },
    { HEAD(0, 1) "s:a%ffb i:0 b:1", "not valid UTF-8" },
    { HEAD(0, 1) "s:a%c0%80 i:0 b:1", "not valid UTF-8" },
    { HEAD(0, 1) "s:a%ed%a0%80 i:0 b:1", "not valid UTF-8" },
    { HEAD(0, 1) "s:k i:13 z:64", "key k: unknown value type 13" },
    { HEAD(0, 1) "s:k i:-1 z:64", "key k: unknown value type 4294967295" },
    { HEAD(0, 2) "s:k i:0 b:1 s:k i:0 b:2", "key k: appears twice" },
    { HEAD(0, 1) "s:k i:7 b:2", "key k: a bool is 2" },
    { HEAD(0, 1) "s:k i:10 i:0", "key k: 1 values of type u64" },
    { HEAD(0, 1) "s:k i:8 q:-1", "key k: a string" },
    { HEAD(0, 1) "s:k i:8 q:1", "key k: a string" },
    /* arrays */
    { HEAD(0, 1) "s:k i:9 i:7 q:2 b:0 b:3", "key k: a bool is 3" },
    { HEAD(0, 1) "s:k i:9 i:9 q:1 i:0 q:1 b:1", "key k: arrays of arrays" },
    { HEAD(0, 1) "s:k i:9 i:99 q:1 b:1", "key k: unknown value type 99" },
    { HEAD(0, 1) "s:k i:9 i:0 q:0x8000000000000000", "key k: 9223372036854775808 values" },
    { HEAD(0, 1) "s:k i:9 i:12 q:0x2000000000000001 z:64", "key k: 2305843009213693953 values" },
    { HEAD(0, 1) "s:k i:9 i:8 q:0x8000000000000000 z:64", "key k: 9223372036854775808 values" },
    { HEAD(0, 1) "s:k i:9 i:8 q:2 s:ab q:9", "key k: a string" },
    { HEAD(0, 1) "s:k i:9 i:4 q:0", NULL },
    { HEAD(0, 1) "s:k i:9 i:4", "inside an array" },
    /* tensors */
    { HEAD(1, 0) "s: i:1 q:8 i:0 q:0 z:64", "a tensor name at byte 24 is empty" },
    { HEAD(1, 0) "s:t%1b[2J i:1 q:8 i:0 q:0 " DATA, "control character U+001B" },
    { HEAD(1, 0) "s:t i:0 i:0 q:0 z:64", "tensor t: 0 dimensions" },
    { HEAD(1, 0) "s:t i:5 q:1 q:1 q:1 q:1 q:1 i:0 q:0 " DATA, "tensor t: 5 dimensions" },
    { HEAD(1, 0) "s:t i:-1 z:64", "tensor t: 4294967295 dimensions" },
    { HEAD(1, 0) "s:t i:1 q:0 i:0 q:0 " DATA, "tensor t: dimension 0 is 0" },
    { HEAD(1, 0) "s:t i:3 q:8 q:1 q:0 i:0 q:0 " DATA, "tensor t: dimension 2 is 0" },
    { HEAD(1, 0) "s:t i:1 q:0x40000000001 i:0 q:0 " DATA, "tensor t: 17592186044420 bytes" },
    { HEAD(1, 0) "s:t i:2 q:0x40000000001 q:0x400000 i:0 q:0 " DATA, "overflows" },
    { HEAD(1, 0) "s:t i:1 q:0x8000000000000000 i:0 q:0 " DATA, "overflows" },
    { HEAD(1, 0) "s:t i:1 q:0x4000000000000000 i:0 q:0 " DATA, "overflows" },
    { HEAD(1, 0) "s:t i:4 q:0x10000 q:0x10000 q:0x10000 q:0x10000 i:99 q:0 " DATA, "overflows" },
    { HEAD(1, 0) "s:t i:1 q:255 i:12 q:0 " DATA, "tensor t: rows of 255 weights" },
    { HEAD(1, 0) "s:t i:1 q:9 i:0 q:0 " DATA, "tensor t: 36 bytes at offset 0" },
    { HEAD(1, 0) "s:t i:1 q:8 i:0 q:32 " DATA, "tensor t: 32 bytes at offset 32" },
    { HEAD(1, 0) "s:t i:1 q:8 i:0 q:0xffffffffffffffe0 " DATA, "past the end" },
    { HEAD(1, 0) "s:t i:1 q:8 i:0 q:16 " DATA " z:32", "no multiple of the alignment 32" },
    { HEAD(1, 0) T8, "tensor t: 32 bytes at offset 0" },
    { HEAD(2, 0) T8 "s:t i:1 q:8 i:0 q:32 " DATA " z:32", "tensor t: appears twice" },
    { HEAD(2, 0) T8 "s:u i:1 q:8 i:0 q:0 " DATA " z:32", "shares bytes with tensor" },
    { HEAD(2, 0) "s:t i:1 q:16 i:0 q:0 s:u i:1 q:8 i:0 q:32 " DATA " z:32",
      "tensor u of type F32: shares bytes with tensor t of type F32" },
    /* types that the format does not know: no size, but the offset still counts */
    { HEAD(1, 0) "s:t i:1 q:8 i:99 q:0 " DATA, NULL },
    { HEAD(1, 0) "s:t i:1 q:8 i:-1 q:64 " DATA, "tensor t: 0 bytes at offset 64" },
    { HEAD(1, 0) "s:t i:1 q:8 i:99 q:8 " DATA, "no multiple of the alignment" },
    /* alignment */
    { HEAD(1, 1) "s:general.alignment i:4 i:64 " T8 "p:64 z:32", NULL },
    { HEAD(1, 1) "s:general.alignment i:4 i:0 " T8 DATA, "general.alignment: is 0" },
    { HEAD(1, 1) "s:general.alignment i:4 i:3 " T8 DATA, "general.alignment: is 3" },
    { HEAD(1, 1) "s:general.alignment i:4 i:24 " T8 DATA, "general.alignment: is 24" },
    { HEAD(1, 1) "s:general.alignment i:4 i:0x80000000 " T8 DATA, "alignment: is 2147483648" },
    { HEAD(1, 1) "s:general.alignment i:10 q:-1 " T8 DATA,
      "general.alignment: is 922337203685477" },
    { HEAD(1, 1) "s:general.alignment i:6 i:64 " T8 DATA, "general.alignment: has type f32" },
    /* splits */
    { HEAD(0, 1) "s:split.count i:4 i:1", NULL },
    { HEAD(0, 1) "s:split.count i:4 i:2", "split.no: is missing" },
    { HEAD(0, 1) "s:split.count i:4 i:70000", "split.count: is 70000" },
    { HEAD(0, 1) "s:split.count i:4 i:2000", "split.count: is 2000; the limit is 1024" },
    { HEAD(0, 2) "s:split.count i:4 i:2 s:split.no i:4 i:2", "not below split.count" },
    { HEAD(0, 2) "s:split.count i:4 i:2 s:split.no i:4 i:0", "cannot stand alone" },
};

/* Each broken header is refused in well under a second with its own message; the good ones among
 * them, which differ in one place, open. */
static void test_headers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        pn_buf b = { 0 };
        pn_bytes_add(&b, cases[i].bytes);
        pn_gguf *f = NULL;
        pn_err err = { 0 };
        const double t0 = cpu_time_s();
        const pn_status st = pn_gguf_open_mem(b.ptr, b.len, &f, &err);
        assert_true(cpu_time_s() - t0 < 1);
        if (!cases[i].message && st != PN_OK)
            fail_msg("case %zu: %s", i, err.msg);
        if (cases[i].message && (st == PN_OK || !strstr(err.msg, cases[i].message)))
            fail_msg("case %zu: got \"%s\", expected \"%s\"", i, err.msg, cases[i].message);
        pn_gguf_close(f);
        pn_buf_free(&b);
    }
}

/* A tensor of a type that the format does not know opens, without data, and keeps its id. */
static void test_unknown_tensor_type(void **state)
{
    (void)state;
    pn_buf b = { 0 };
    pn_bytes_add(&b, HEAD(1, 0) "s:t i:1 q:8 i:99 q:0 " DATA);
    pn_gguf *f = NULL;
    assert_int_equal(pn_gguf_open_mem(b.ptr, b.len, &f, NULL), PN_OK);
    const pn_gguf_tensor *const t = pn_gguf_find_tensor(f, "t");
    assert_true(t && t->type == 99 && !t->data && t->n_bytes == 0);
    pn_gguf_close(f);
    pn_buf_free(&b);
}

/* A missing file and a directory are refused by their path. */
static void test_paths_that_are_no_file(void **state)
{
    (void)state;
    must_refuse(pn_tmpdir_path("none.gguf"), "none.gguf: No such file", NULL);
    must_refuse(pn_tmpdir(), "is a directory", NULL);
}

static void write_split(void)
{
    const pn_gguf_write_opts opts = { .split_bytes = 64 };
    write_model(pn_tmpdir_path("m.gguf"), &opts);
}

/* A split model opens by any of its parts and is the same as the whole one. */
static void test_split_opens_by_any_part(void **state)
{
    (void)state;
    write_split();
    static const char *const parts[] = { "m-00001-of-00003.gguf", "m-00002-of-00003.gguf",
                                         "m-00003-of-00003.gguf" };
    for (int i = 0; i < 3; i++) {
        pn_gguf *const f = must_open(pn_tmpdir_path(parts[i]));
        assert_int_equal(pn_gguf_n_files(f), 3);
        assert_string_equal(pn_gguf_path(f), pn_tmpdir_path(parts[0]));
        check_tensors(f);
        assert_int_equal(pn_gguf_tensor_at(f, 1)->i_file, 0);
        assert_int_equal(pn_gguf_tensor_at(f, 2)->i_file, 1);
        assert_int_equal(pn_gguf_tensor_at(f, 3)->i_file, 2);
        uint32_t n = 0;
        assert_int_equal(pn_gguf_get_u32(f, "n", &n, NULL), PN_OK);
        assert_int_equal(n, 42);
        pn_gguf_close(f);
    }
    assert_int_not_equal(access(pn_tmpdir_path("m.gguf"), F_OK), 0);
}

/* Writes old's file under name with the 16 low bits of the number behind the key changed. */
static void patch(const char *old, const char *name, const char *key, uint16_t value)
{
    pn_buf b = { 0 };
    assert_int_equal(pn_file_read(pn_tmpdir_path(old), 1 << 20, &b, NULL), PN_OK);
    char *const at = memmem(b.ptr, b.len, key, strlen(key));
    assert_non_null(at);
    memcpy(at + strlen(key) + 4, &value, sizeof value);
    FILE *const out = fopen(pn_tmpdir_path(name), "wb");
    assert_int_equal(fwrite(b.ptr, 1, b.len, out), b.len);
    fclose(out);
    pn_buf_free(&b);
}

/* Parts that are missing, renamed, renumbered, of another model or twice the same are refused. */
static void test_split_refuses(void **state)
{
    (void)state;
    const char *const p1 = "m-00001-of-00003.gguf", *const p2 = "m-00002-of-00003.gguf",
                      *const p3 = "m-00003-of-00003.gguf";
    write_split();
    assert_int_equal(unlink(pn_tmpdir_path(p3)), 0);
    must_refuse(pn_tmpdir_path(p1), p3, "part 3 of 3");
    write_split();
    patch(p1, p1, "split.count", 4);
    must_refuse(pn_tmpdir_path(p1), "must end in -00001-of-00004.gguf", p1);
    must_refuse(pn_tmpdir_path(p2), p1, "does not match its name");
    write_split();
    patch(p3, p2, "split.no", 2);
    must_refuse(pn_tmpdir_path(p1), p2, "does not match its name");
    write_split();
    patch(p2, p3, "split.no", 2);
    must_refuse(pn_tmpdir_path(p1), "tensor t.2: appears twice", NULL);
    write_split();
    patch(p1, p3, "split.no", 2);
    must_refuse(pn_tmpdir_path(p1), "hold 5 tensors", "split.tensors.count is 4");
    write_split();
    patch(p2, p2, "split.tensors.count", 5);
    must_refuse(pn_tmpdir_path(p1), p2, "split.tensors.count is 5, but 4");
    write_split();
    patch(p1, p1, "split.tensors.count", 5);
    patch(p2, p2, "split.tensors.count", 5);
    patch(p3, p3, "split.tensors.count", 5);
    must_refuse(pn_tmpdir_path(p2), "hold 4 tensors", "split.tensors.count is 5");
    write_split();
    assert_int_equal(rename(pn_tmpdir_path(p1), pn_tmpdir_path("x.gguf")), 0);
    must_refuse(pn_tmpdir_path("x.gguf"), "must end in -00001-of-00003.gguf", NULL);
}

/* A writer that is not brought to its end leaves nothing, under no name, and says what is amiss. */
static void test_writer_refuses(void **state)
{
    (void)state;
    pn_gguf_writer *w;
    pn_err err = { 0 };
    assert_int_equal(pn_gguf_writer_new(NULL, &w, &err), PN_OK);
    assert_int_equal(pn_gguf_put_tensor(w, "t", Q4_K, 1, (const uint64_t[]){ 100 }, &err),
                     PN_ERR_ARG);
    assert_int_equal(pn_gguf_put_tensor(w, "t", 99, 1, (const uint64_t[]){ 1 }, &err), PN_ERR_ARG);
    assert_int_equal(
        pn_gguf_put_tensor(w, "t", F32, 2, (const uint64_t[]){ 1ull << 40, 1ull << 40 }, &err),
        PN_ERR_ARG);
    assert_int_equal(pn_gguf_put_tensor(w, "t", F32, 1, (const uint64_t[]){ 8 }, &err), PN_OK);
    assert_int_equal(pn_gguf_write_begin(w, pn_tmpdir_path("half.gguf"), &err), PN_OK);
    assert_int_equal(pn_gguf_write_data(w, row, 8, &err), PN_OK);
    assert_int_equal(pn_gguf_write_end(w, &err), PN_ERR_ARG);
    assert_non_null(strstr(err.msg, "tensor t"));
    assert_int_equal(pn_gguf_write_data(w, row, 28, &err), PN_ERR_ARG);
    assert_non_null(strstr(err.msg, "past the last tensor"));
    pn_gguf_writer_free(w);
    assert_int_not_equal(access(pn_tmpdir_path("half.gguf"), F_OK), 0);
    assert_int_not_equal(access(pn_tmpdir_path("half.gguf.tmp"), F_OK), 0);
    assert_int_equal(pn_gguf_writer_new(NULL, &w, &err), PN_OK);
    assert_int_equal(pn_gguf_write_begin(w, pn_tmpdir_path("no/such/dir.gguf"), &err), PN_ERR_IO);
    pn_gguf_writer_free(w);
}

/* Thousands of tensors are found by name, each its own. */
static void test_many_tensors(void **state)
{
    (void)state;
    enum {
        N = 20000
    };
    pn_buf b = { 0 };
    pn_bytes_add(&b, HEAD(20000, 0));
    for (int i = 0; i < N; i++) {
        char text[64];
        snprintf(text, sizeof text, "s:t.%d i:1 q:1 i:24 q:%d", (i * 7919) % N, 32 * i);
        pn_bytes_add(&b, text);
    }
    pn_bytes_add(&b, "p:32 z:640000");
    pn_gguf *f = NULL;
    pn_err err = { 0 };
    assert_int_equal(pn_gguf_open_mem(b.ptr, b.len, &f, &err), PN_OK);
    for (int i = 0; i < N; i++) {
        char name[16];
        snprintf(name, sizeof name, "t.%d", (i * 7919) % N);
        assert_ptr_equal(pn_gguf_find_tensor(f, name), pn_gguf_tensor_at(f, (size_t)i));
    }
    pn_gguf_close(f);
    pn_buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_no_mmap),
        cmocka_unit_test(test_getters),
        cmocka_unit_test(test_getters_refuse),
        cmocka_unit_test(test_strings),
        cmocka_unit_test(test_every_prefix_is_refused),
        cmocka_unit_test(test_truncated_file_names_the_tensor),
        cmocka_unit_test(test_headers),
        cmocka_unit_test(test_unknown_tensor_type),
        cmocka_unit_test(test_paths_that_are_no_file),
        cmocka_unit_test(test_split_opens_by_any_part),
        cmocka_unit_test(test_split_refuses),
        cmocka_unit_test(test_writer_refuses),
        cmocka_unit_test(test_many_tensors),
    };
    return cmocka_run_group_tests_name("gguf", tests, pn_tmpdir_setup, pn_tmpdir_teardown);
}
