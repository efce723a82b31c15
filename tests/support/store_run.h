/* A store in a test's folder, filled with made states. Whatever cannot be done fails the test. */
#ifndef PN_TESTS_SUPPORT_STORE_RUN_H
#define PN_TESTS_SUPPORT_STORE_RUN_H

#include "engine/store.h"
#include "support/made_state.h"

/* What a store logged: how often, and the last line. */
typedef struct store_log {
    int n;
    char last[600];
} store_log;

/* log may be NULL. */
pn_store *store_open(const char *dir, uint64_t max_bytes, uint8_t model, store_log *log);
void store_put(pn_store *store, const int32_t *ids, size_t n); /* one that was used */
void store_put_ranked(pn_store *store, const int32_t *ids, size_t n, pn_store_rank rank);
/* How much of ids [n] comes back; it is checked to be right. */
size_t store_restored(pn_store *store, const int32_t *ids, size_t n);
pn_store_stats store_stats(pn_store *store);

/* Files in a folder whose names end in suffix, and the bytes of all of them. */
size_t store_files(const char *dir, const char *suffix, uint64_t *bytes);
/* The path of the i-th of them, by name; the last one is valid. */
const char *store_file(const char *dir, size_t i);

#endif
