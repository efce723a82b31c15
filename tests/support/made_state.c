#include "support/made_state.h"

#include "models/seq.h"

#include <stdlib.h>
#include <string.h>

static const int n_head_kv[] = { 1 };
static const size_t kv_first[] = { 0 };
const pn_seq_layout made_layout = {
    .n_ssm = 1,
    .conv_floats = 24,
    .state_floats = 1000,
    .n_attn = 1,
    .head_dim = 8,
    .n_head_kv = n_head_kv,
    .n_head_kv_sum = 1,
    .kv_first = kv_first,
};

pn_seq_kind made_kind(uint8_t model)
{
    return (pn_seq_kind){
        .model = { { model } },
        .kv_type = PN_KV_F16,
        .n_vocab = 1 << 30,
        .page_bytes = pn_seq_page_bytes(&made_layout, PN_KV_F16),
        .rec_bytes = pn_seq_recurrent_bytes(&made_layout),
    };
}

void made_ids(int32_t ids[MADE_MAX_TOK], int trunk, int n_trunk, int branch)
{
    for (int i = 0; i < MADE_MAX_TOK; i++)
        ids[i] = i < n_trunk ? i * 7 + trunk : i * 3 + 100000 * (branch + 1);
}

static uint64_t mix(uint64_t h, uint64_t x)
{
    h = (h ^ x) * 0x9e3779b97f4a7c15u;
    return h ^ (h >> 29);
}

static void fill(uint8_t *dst, size_t n, uint64_t h)
{
    for (size_t i = 0; i < n; i++) {
        h = mix(h, i);
        dst[i] = (uint8_t)h;
    }
}

static size_t row_bytes(void)
{
    return pn_seq_page_bytes(&made_layout, PN_KV_F16) / PN_KV_CHUNK;
}

static uint8_t *row_of(const pn_seq *seq, size_t pos)
{
    return seq->pages[pos / PN_KV_CHUNK]->data + pos % PN_KV_CHUNK * row_bytes();
}

pn_seq made_seq(void)
{
    pn_seq seq;
    if (pn_seq_init(&seq, &made_layout, PN_KV_F16, MADE_MAX_TOK, NULL, NULL) != PN_OK)
        abort();
    return seq;
}

/* A sequence that holds the state after ids [n]. */
static pn_seq fill_seq(const int32_t *ids, size_t n)
{
    pn_seq seq = made_seq();
    if (pn_seq_reserve(&seq, (int)n, NULL) != PN_OK)
        abort();
    uint64_t h = 1;
    for (size_t pos = 0; pos < n; pos++) {
        h = mix(h, (uint64_t)ids[pos]);
        fill(row_of(&seq, pos), row_bytes(), h);
    }
    fill(seq.rec->data, seq.rec->bytes, h);
    seq.pos = (int)n;
    return seq;
}

pn_snapshot *made_snapshot(const int32_t *ids, size_t n)
{
    pn_seq seq = fill_seq(ids, n);
    pn_snapshot *snapshot = NULL;
    for (size_t pos = n; pos < (size_t)seq.n_page * PN_KV_CHUNK; pos++)
        fill(row_of(&seq, pos), row_bytes(), (uint64_t)rand());
    if (pn_snapshot_new(&seq, &snapshot, NULL) != PN_OK)
        abort();
    pn_seq_clear(&seq);
    return snapshot;
}

bool made_is_right(const pn_seq *seq, const int32_t *ids, size_t first)
{
    const size_t n = (size_t)seq->pos;
    pn_seq want = fill_seq(ids, n);
    bool is_right = n == 0 || memcmp(seq->rec->data, want.rec->data, want.rec->bytes) == 0;
    for (size_t pos = first; pos < n; pos++)
        is_right = is_right && memcmp(row_of(seq, pos), row_of(&want, pos), row_bytes()) == 0;
    pn_seq_clear(&want);
    return is_right;
}
