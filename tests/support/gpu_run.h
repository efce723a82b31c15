/* A model on the CPU and on stand-in GPUs (cuda/fakecuda.h), for tests that compare the two.
 * Whatever cannot be done fails the test with the reason. */
#ifndef PN_TESTS_SUPPORT_GPU_RUN_H
#define PN_TESTS_SUPPORT_GPU_RUN_H

#include "cuda/fakecuda.h"
#include "pantheon/engine.h"
#include "support/gpu_models.h"

/* How the stand-in is set up and what is asked of the executor; 0: as it stands here. */
typedef struct gpu_case {
    int n_device;
    int sm;     /* 90 */
    int driver; /* the CUDA version that it knows; 12040 */
    size_t mem; /* of each; 256 MB */
    unsigned seed;
    int starved;           /* fakecuda_setup's */
    int oom, lose, refuse; /* the allocation or call, from 1 on, at which it happens; 0: never */
    bool no_graph;         /* streams cannot be recorded */
    bool no_peer;          /* the devices do not reach each other */
    bool never_pins;       /* no host memory can be pinned */
    int split, n_cpu_moe;
    int n_threads, n_batch, n_ctx; /* 1, 64, enough */
    pn_kv_type kv_type;
    uint32_t unfused;
    int n_ubatch;                    /* a batch: none */
    size_t vram_bytes, expert_cache; /* expert_cache 0: none */
    bool streams;                    /* experts of layers on the CPU: always; else never */
    bool takes_turns;
    const char *lock, *command;
    bool falls_back; /* PN_DEVICE_AUTO */
    bool profile;
} gpu_case;

typedef struct gpu_rig {
    gpu_model *m;
    gpu_case c;
    pn_exec *ex, *cpu; /* cpu: without a GPU */
    pn_state *state;
    float *y;      /* [m->n][n_vocab] of the last pass */
    char log[600]; /* the last warning */
} gpu_rig;

/* Sets the stand-in up, and the rig without an executor; gpu_rig_close. The options of one. */
pn_exec_opts gpu_exec_opts(gpu_rig *r, gpu_model *m, const gpu_case *c);
/* The executor alone; returns what pn_exec_new does. gpu_rig_close, whatever it is. */
pn_status gpu_rig_try(gpu_rig *r, gpu_model *m, const gpu_case *c, pn_err *err);
/* It, which must be on a GPU, and a state of m->n positions. */
void gpu_rig_open(gpu_rig *r, gpu_model *m, const gpu_case *c);
/* Nothing of the driver may be left. */
void gpu_rig_close(gpu_rig *r);

/* Room for the logits of a pass. */
float *gpu_logits(gpu_rig *r);
/* Appends the ids up to `end` in one pass, with all logits. */
pn_status gpu_pass(gpu_rig *r, pn_seq *seq, int end, pn_err *err);
/* And compares them with the CPU's; of the rig's own state. */
void gpu_feed_seq(gpu_rig *r, pn_seq *seq, int end);
void gpu_feed(gpu_rig *r, int end);
/* The same on the CPU alone; and, quicker than all on the GPU, the last two ids there. */
void gpu_feed_cpu(gpu_rig *r, pn_seq *seq, int end);
void gpu_read(gpu_rig *r, pn_seq *seq, int end);

/* What a request of an engine wrote. */
typedef struct gpu_answer {
    int32_t ids[16];
    int n;
} gpu_answer;
/* n_predict tokens, greedy, into *a. */
pn_gen_opts gpu_gen_opts(int n_predict, gpu_answer *a);

fakecuda_state gpu_state(void);
/* The n-th call of the driver from here on, counted from 0, is refused. */
void gpu_refuse(int n);

#endif
