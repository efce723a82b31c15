#include "support/store_run.h"

#include "support/check.h"
#include "support/store_restore.h"

#include "models/seq.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static void hear(void *ctx, int level, const char *line)
{
    store_log *const l = ctx;
    (void)level;
    l->n++;
    snprintf(l->last, sizeof l->last, "%s", line);
}

pn_store *store_open(const char *dir, uint64_t max_bytes, uint8_t model, store_log *log)
{
    pn_store *s = NULL;
    pn_err err = { 0 };
    const pn_seq_kind kind = made_kind(model);
    const pn_store_opts opts = {
        .dir = dir,
        .max_bytes = max_bytes,
        .log = log ? hear : NULL,
        .log_ctx = log,
    };
    if (pn_store_open(&kind, &opts, &s, &err) != PN_OK)
        fail_msg("%s", err.msg);
    return s;
}

void store_put_ranked(pn_store *s, const int32_t *ids, size_t n, pn_store_rank rank)
{
    pn_err err = { 0 };
    if (pn_store_put(s, ids, made_snapshot(ids, n), rank, &err) != PN_OK)
        fail_msg("%s", err.msg);
}

void store_put(pn_store *s, const int32_t *ids, size_t n)
{
    store_put_ranked(s, ids, n, PN_STORE_USED);
}

size_t store_restored(pn_store *s, const int32_t *ids, size_t n)
{
    pn_seq seq = made_seq();
    pn_err err = { 0 };
    if (store_restore(s, ids, n, &seq, &err) != PN_OK)
        fail_msg("%s", err.msg);
    const size_t pos = (size_t)pn_seq_pos(&seq);
    assert_in_range(pos, 0, n);
    if (!made_is_right(&seq, ids, 0))
        fail_msg("what came back for %zu of %zu tokens is wrong", pos, n);
    pn_seq_clear(&seq);
    return pos;
}

pn_store_stats store_stats(pn_store *s)
{
    pn_store_stats stats;
    pn_store_get_stats(s, &stats);
    return stats;
}

static bool ends_in(const char *name, const char *suffix)
{
    const size_t n = strlen(name), k = strlen(suffix);
    return n >= k && strcmp(name + n - k, suffix) == 0;
}

size_t store_files(const char *dir, const char *suffix, uint64_t *bytes)
{
    size_t n = 0;
    DIR *const d = opendir(dir);
    assert_non_null(d);
    *bytes = 0;
    for (const struct dirent *e; (e = readdir(d));) {
        char path[600];
        struct stat st;
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        if (!ends_in(e->d_name, suffix) || lstat(path, &st) != 0)
            continue;
        n++;
        *bytes += (uint64_t)st.st_size;
    }
    closedir(d);
    return n;
}

const char *store_file(const char *dir, size_t i)
{
    static char path[600];
    struct dirent **names = NULL;
    const int n = scandir(dir, &names, NULL, alphasort);
    assert_true(n >= 0);
    size_t at = 0;
    path[0] = '\0';
    for (int k = 0; k < n; k++) {
        if (ends_in(names[k]->d_name, ".pnstate") && at++ == i)
            snprintf(path, sizeof path, "%s/%s", dir, names[k]->d_name);
        free(names[k]);
    }
    free(names);
    assert_int_not_equal(path[0], '\0');
    return path;
}
