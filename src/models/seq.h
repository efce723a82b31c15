/* One sequence: what a hybrid model must remember of the tokens so far.
 *
 * Recurrent layers keep a convolution window and a state matrix per head (fixed size, valid at
 * exactly one position); attention layers keep keys and values in pages of PN_KV_CHUNK positions.
 * A page holds all attention layers of its positions. Pages and the recurrent state are blocks held
 * by reference: sequences and snapshots with a common prefix share them, and what is shared is
 * copied before it is written (pn_seq_reserve). So a snapshot or a fork costs references, and a
 * copy of the recurrent state once one of the two goes on. */
#ifndef PN_MODELS_SEQ_H
#define PN_MODELS_SEQ_H

#include "kernels/kernels.h"
#include "models/block.h"
#include "pantheon/pantheon.h"

/* The shapes of a model's sequences, made once at load. */
typedef struct pn_seq_layout {
    size_t n_ssm;           /* recurrent layers */
    size_t conv_floats;     /* of one layer: (d_conv - 1) * n_channel */
    size_t state_floats;    /* of one layer: n_v_heads * S * S */
    size_t n_attn;          /* attention layers */
    size_t head_dim;        /* of keys and values */
    const int *n_head_kv;   /* [n_attn], owned by the model */
    size_t n_head_kv_sum;   /* over the attention layers */
    const size_t *kv_first; /* [n_attn]: heads of the layers before, for offsets in a page */
} pn_seq_layout;

struct pn_seq {
    const pn_seq_layout *layout;
    pn_budget *budget; /* of its blocks; may be NULL */
    pn_kv_type kv_type;
    int n_ctx;
    int pos;                   /* tokens held */
    bool is_broken;            /* a pass was cut short: only reset or restore helps */
    pn_block *rec;             /* both below; NULL: none yet, at position 0 */
    float *conv;               /* [n_ssm][d_conv - 1][n_channel], oldest row first */
    float *state;              /* [n_ssm][n_v_heads][S (key)][S (value)] */
    pn_block **pages;          /* [n_page_max], the first n_page are set; each
                                  [n_head_kv_sum] of { K part, V part } */
    const uint8_t **page_data; /* [n_page_max]: pages[i]->data, as the kernels take them */
    int n_page, n_page_max;
};

/* A sequence as it was at one position. */
struct pn_snapshot {
    const pn_seq_layout *layout;
    pn_kv_type kv_type;
    int pos;          /* >= 1 */
    pn_block *rec;    /* as in pn_seq */
    pn_block **pages; /* [n_page]; of the last one the positions before pos count */
    int n_page;       /* pages that hold positions before pos */
};

struct pn_state {
    pn_seq seq;
};

/* Pages that hold the first pos positions. */
static inline int pn_seq_n_page(int pos)
{
    return pos ? (pos - 1) / PN_KV_CHUNK + 1 : 0;
}

/* Bytes of the recurrent state of one sequence, and of one page. */
size_t pn_seq_recurrent_bytes(const pn_seq_layout *layout);
size_t pn_seq_page_bytes(const pn_seq_layout *layout, pn_kv_type kv_type);

/* An empty sequence in the caller's storage; no block is made yet. budget may be NULL. */
pn_status pn_seq_init(pn_seq *seq, const pn_seq_layout *layout, pn_kv_type kv_type, int n_ctx,
                      pn_budget *budget, pn_err *err);
void pn_seq_clear(pn_seq *seq);
/* Back to position 0; blocks stay reserved unless they are shared. */
void pn_seq_reset(pn_seq *seq);
/* Back to position 0 without any block. */
void pn_seq_release(pn_seq *seq);

/* Makes the recurrent state and the pages for positions up to pos + n_tok exclusive to this
 * sequence, so that a pass may write them without allocating. Errors: PN_ERR_LIMIT past n_ctx or
 * the budget, PN_ERR_NOMEM; the sequence is then unchanged but for blocks it may keep. */
pn_status pn_seq_reserve(pn_seq *seq, int n_tok, pn_err *err);

/* Before a pass on the CPU that appends n_tok tokens, which are reserved: the bytes that it reads
 * and writes are in host memory. Errors: those of pn_block_read. */
pn_status pn_seq_to_host(pn_seq *seq, int n_tok, pn_err *err);
/* Whether bytes of it were lost with a GPU. */
bool pn_seq_is_lost(const pn_seq *seq);
bool pn_snapshot_is_lost(const pn_snapshot *snapshot);

/* A second holder of the same blocks. Errors: PN_ERR_NOMEM. */
pn_status pn_snapshot_copy(const pn_snapshot *snapshot, pn_snapshot **copy, pn_err *err);
/* As pn_seq_rewind, with nothing but the full pages: the sequence stands at their end and has no
 * recurrent state; who calls this fills that in. */
pn_status pn_seq_rewind_pages(pn_seq *seq, const pn_snapshot *snapshot, pn_err *err);

/* As pn_seq_save and pn_seq_restore, of a snapshot, to a name in an open folder and from an open
 * file, which the caller closes; name is for messages. Threads: a snapshot may be saved while its
 * sequence goes on. */
pn_status pn_snapshot_save(const pn_model *model, const pn_snapshot *snapshot, const int32_t *ids,
                           int dir_fd, const char *name, pn_err *err);
pn_status pn_seq_restore_fd(const pn_model *model, pn_seq *seq, int fd, const char *name,
                            int32_t *ids, pn_err *err);

/* Byte offsets within every page of the K and V parts of one KV head, counted over all attention
 * layers (layout->kv_first). */
size_t pn_seq_k_off(const pn_seq *seq, size_t i_kv);
size_t pn_seq_v_off(const pn_seq *seq, size_t i_kv);

#endif
