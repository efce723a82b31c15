/* A state cache and one sequence that reads prompts through it, as the engine does. Whatever cannot
 * be done fails the test with the reason. */
#ifndef PN_TESTS_SUPPORT_CACHE_RUN_H
#define PN_TESTS_SUPPORT_CACHE_RUN_H

#include "engine/cache.h"
#include "support/model_run.h"

enum {
    RIG_N_CTX = 4096,
    RIG_N_BATCH = 512
};

/* How its passes and those of cold runs are made. */
extern const pn_run rig_run;

typedef struct rig {
    pn_model *model;
    pn_exec *ex;
    pn_cache *cache;
    pn_seq seq;
    pn_cache_pin pin;
    pn_cache_hit hit; /* of the last prompt */
    int n_evaluated;  /* of the last prompt */
    size_t n_vocab;
    float *y; /* [RIG_N_BATCH][n_vocab] */
    char log[200];
} rig;

void rig_must(pn_status st, const pn_err *err);

/* A model's file, and a cache without a folder; ram_bytes 0: no limit. */
rig *rig_new(const char *model, size_t ram_bytes);
/* On a small model with random weights in the test's folder, no limit. */
rig *rig_small(void);
void rig_free(rig *r);
/* Another cache and sequence, after rig_close_cache; dir may be NULL. */
void rig_open_cache(rig *r, size_t ram_bytes, const char *dir);
void rig_close_cache(rig *r);

/* n ids that depend on seed. */
void rig_ids(int32_t *ids, int n, uint32_t seed);

void rig_begin(rig *r, const int32_t *ids, int n);
/* Feeds ids up to `end`; with cold, compares all logits. */
void rig_feed(rig *r, const int32_t *ids, int end, const float *cold);
void rig_keep(rig *r, const int32_t *ids, pn_cache_kind kind);
/* The prompt of a request as the engine reads it: from the cache, through the planned borders, to
 * the end; rig_read_on with the logits of a cold run or NULL, rig_read makes them. */
void rig_read(rig *r, const int32_t *ids, int n, const int *turns, size_t n_turn);
void rig_read_on(rig *r, const int32_t *ids, int n, const int *turns, size_t n_turn,
                 const float *cold);
/* The request is over: what the sequence holds is kept. */
void rig_end(rig *r, const int32_t *ids);

#endif
