/* Fuzz target: a folder of up to three files of any bytes as a state cache. A byte of flags, then
 * of each file its length (u16) and bytes. A file gets the name that its key asks for; a flag has
 * its sums made right first, so that what lies behind them is reached. Opening, restoring and
 * writing succeed whatever is there, within the budget, and the bytes counted are the folder's. */

#include "support/store_restore.h"

#include "base/file.h"
#include "engine/store.h"
#include "models/seq.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { /* as docs/CACHE_FORMAT.md has them */
    AT_KEY = 32,
    AT_N_PARENT = 64,
    AT_N_TOK = 68,
    FIXED_BYTES = 88,
    MAX_TOK = 1000,
    MAX_FILES = 3,
    N_VOCAB = 1 << 30,
};

#define MUST(cond)   \
    do {             \
        if (!(cond)) \
            abort(); \
    } while (0)

static const int n_head_kv[] = { 1 };
static const size_t kv_first[] = { 0 };
static const pn_seq_layout layout = { .n_ssm = 1,
                                      .conv_floats = 2,
                                      .state_floats = 2,
                                      .n_attn = 1,
                                      .head_dim = 1,
                                      .n_head_kv = n_head_kv,
                                      .n_head_kv_sum = 1,
                                      .kv_first = kv_first };

static char dir[64];
static int dir_fd = -1;

static void remove_dir(void)
{
    rmdir(dir);
}

static void make_dir(void)
{
    snprintf(dir, sizeof dir, "%s/pantheon-fuzz-XXXXXX",
             access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    MUST(mkdtemp(dir));
    dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    MUST(dir_fd >= 0);
    atexit(remove_dir);
}

/* Bytes of all files; removes them, too, when is_last. */
static uint64_t count_dir(bool is_last)
{
    uint64_t n = 0;
    DIR *const d = opendir(dir);
    MUST(d);
    for (const struct dirent *e; (e = readdir(d));) {
        struct stat st;
        if (e->d_name[0] == '.' || fstatat(dir_fd, e->d_name, &st, 0) != 0)
            continue;
        n += (uint64_t)st.st_size;
        if (is_last)
            MUST(unlinkat(dir_fd, e->d_name, 0) == 0);
    }
    closedir(d);
    return n;
}

/* Makes the sums of a file what its other bytes ask for, where its counts allow. */
static void repair(uint8_t *file, size_t size, const pn_seq_kind *kind)
{
    uint32_t n_parent, n_tok;
    memcpy(&n_parent, file + AT_N_PARENT, 4);
    memcpy(&n_tok, file + AT_N_TOK, 4);
    if (n_tok > MAX_TOK || n_parent >= n_tok)
        return;
    const size_t n_page = (n_tok - 1) / PN_KV_CHUNK + 1 - n_parent / PN_KV_CHUNK;
    const size_t at_sums = FIXED_BYTES + (n_tok - n_parent) * 4;
    const size_t at_pages = at_sums + (n_page + 2) * 8;
    if (size < at_pages + n_page * kind->page_bytes)
        return;
    for (size_t i = 0; i <= n_page; i++) {
        const size_t at = at_pages + i * kind->page_bytes;
        const size_t len = i < n_page ? kind->page_bytes : kind->rec_bytes;
        if (size - at < len)
            break;
        const uint64_t sum = XXH3_64bits(file + at, len);
        memcpy(file + at_sums + i * 8, &sum, 8);
    }
    const uint64_t sum = XXH3_64bits(file, at_pages - 8);
    memcpy(file + at_pages - 8, &sum, 8);
}

/* Puts one file into the folder, and its ids where they stand. */
static void add_file(uint8_t *file, size_t size, bool is_repaired, const pn_seq_kind *kind,
                     int32_t ids[MAX_TOK])
{
    char name[48];
    uint32_t n_parent;
    if (size < FIXED_BYTES)
        return;
    if (is_repaired)
        repair(file, size, kind);
    for (size_t i = 0; i < 16; i++)
        snprintf(name + 2 * i, 3, "%02x", file[AT_KEY + i]);
    memcpy(name + 32, ".pnstate", 9);
    const int fd = openat(dir_fd, name, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    MUST(fd >= 0 && pn_fd_write(fd, name, file, size, 0, NULL) == PN_OK);
    close(fd);
    memcpy(&n_parent, file + AT_N_PARENT, 4);
    for (size_t i = 0; n_parent + i < MAX_TOK && FIXED_BYTES + 4 * i + 4 <= size; i++)
        memcpy(&ids[n_parent + i], file + FIXED_BYTES + 4 * i, 4);
}

static pn_store *open_store(const pn_seq_kind *kind, uint64_t max_bytes)
{
    pn_store *s = NULL;
    const pn_store_opts opts = { .dir = dir, .max_bytes = max_bytes };
    MUST(pn_store_open(kind, &opts, &s, NULL) == PN_OK);
    return s;
}

static size_t restore(pn_store *s, const int32_t *ids, size_t n)
{
    pn_seq seq;
    MUST(pn_seq_init(&seq, &layout, PN_KV_F16, MAX_TOK, NULL, NULL) == PN_OK);
    MUST(store_restore(s, ids, n, &seq, NULL) == PN_OK);
    const size_t pos = (size_t)pn_seq_pos(&seq);
    MUST(pos <= n && pn_store_find(s, ids, n) == pos);
    pn_seq_clear(&seq);
    return pos;
}

static void put(pn_store *s, const int32_t *ids, size_t n)
{
    pn_seq seq;
    pn_snapshot *snapshot;
    MUST(pn_seq_init(&seq, &layout, PN_KV_F16, MAX_TOK, NULL, NULL) == PN_OK);
    MUST(pn_seq_reserve(&seq, (int)n, NULL) == PN_OK);
    seq.pos = (int)n;
    MUST(pn_snapshot_new(&seq, &snapshot, NULL) == PN_OK);
    MUST(pn_store_put(s, ids, snapshot, (pn_store_rank)(n % 3), NULL) == PN_OK);
    pn_seq_clear(&seq);
}

static bool see_leaf(void *ctx, const int32_t *ids, size_t n_tok)
{
    for (size_t i = 0; i < n_tok; i++)
        MUST(ids[i] >= 0 && ids[i] < N_VOCAB);
    ++*(size_t *)ctx;
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* Small parts make small inputs: the store believes what the kind says. */
    const pn_seq_kind kind = { { "fuzz" }, PN_KV_F16, N_VOCAB, .page_bytes = 64, .rec_bytes = 16 };
    int32_t ids[MAX_TOK] = { 0 };
    pn_store_stats stats;
    size_t n_leaf = 0;
    if (dir_fd < 0)
        make_dir();
    const uint8_t flags = size ? data[0] : 0;
    size_t at = 1;
    for (int i = 0; i < MAX_FILES && at + 2 <= size; i++) {
        size_t len = data[at] + 256u * data[at + 1];
        at += 2;
        len = len < size - at ? len : size - at;
        uint8_t *const file = malloc(len ? len : 1); /* its own, so that its end is seen */
        MUST(file);
        memcpy(file, data + at, len);
        add_file(file, len, flags >> i & 1, &kind, ids);
        free(file);
        at += len;
    }
    const uint64_t max_bytes = flags & 8 ? 3000 : 1 << 20;
    pn_store *s = open_store(&kind, max_bytes);
    restore(s, ids, MAX_TOK);
    pn_store_get_stats(s, &stats);
    MUST(stats.bytes <= max_bytes && stats.bytes == count_dir(false));
    for (size_t i = 0; i < MAX_TOK; i++)
        ids[i] &= N_VOCAB - 1;
    const size_t n = 100u + flags;
    put(s, ids, n);
    put(s, ids, n / 2);
    MUST(pn_store_each_leaf(s, see_leaf, &n_leaf, NULL) == PN_OK);
    pn_store_close(s);

    s = open_store(&kind, max_bytes);
    restore(s, ids, MAX_TOK);
    pn_store_get_stats(s, &stats);
    MUST(stats.bytes <= max_bytes && stats.bytes == count_dir(false));
    pn_store_close(s);
    count_dir(true);
    return 0;
}
