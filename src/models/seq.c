#include "models/seq.h"

#include "base/mem.h"

size_t pn_seq_recurrent_bytes(const pn_seq_layout *l)
{
    return l->n_ssm * (l->conv_floats + l->state_floats) * sizeof(float);
}

size_t pn_seq_page_bytes(const pn_seq_layout *l, pn_kv_type kv_type)
{
    return l->n_head_kv_sum *
           (pn_kv_k_bytes(kv_type, l->head_dim) + pn_kv_v_bytes(kv_type, l->head_dim));
}

size_t pn_seq_k_off(const pn_seq *seq, size_t i_kv)
{
    const size_t d = seq->layout->head_dim;
    return i_kv * (pn_kv_k_bytes(seq->kv_type, d) + pn_kv_v_bytes(seq->kv_type, d));
}

size_t pn_seq_v_off(const pn_seq *seq, size_t i_kv)
{
    return pn_seq_k_off(seq, i_kv) + pn_kv_k_bytes(seq->kv_type, seq->layout->head_dim);
}

pn_status pn_seq_init(pn_seq *seq, const pn_seq_layout *layout, pn_kv_type kv_type, int n_ctx,
                      pn_budget *budget, pn_err *err)
{
    PN_REQUIRE(n_ctx >= 1, err);
    if (kv_type == PN_KV_Q8_0 && layout->head_dim % PN_QB)
        return pn_fail(
            err, PN_ERR_UNSUPPORTED,
            "kv type q8_0 needs a head size that is a multiple of %d, this model's is %zu", PN_QB,
            layout->head_dim);
    const int n_page_max = (n_ctx - 1) / PN_KV_CHUNK + 1; /* n_ctx may be INT_MAX */
    pn_block **const pages = pn_calloc((size_t)n_page_max, sizeof *pages);
    const uint8_t **const page_data = pn_calloc((size_t)n_page_max, sizeof *page_data);
    if (!pages || !page_data) {
        pn_free(pages);
        pn_free(page_data);
        return pn_fail(err, PN_ERR_NOMEM, "no memory for a sequence of %d positions", n_ctx);
    }
    *seq = (pn_seq){
        .layout = layout,
        .budget = budget,
        .kv_type = kv_type,
        .n_ctx = n_ctx,
        .pages = pages,
        .page_data = page_data,
        .n_page_max = n_page_max,
    };
    return PN_OK;
}

/* Puts a block in the place of the recurrent state; NULL: none. */
static void set_rec(pn_seq *seq, pn_block *rec)
{
    seq->rec = rec;
    seq->conv = rec ? (float *)rec->data : NULL;
    seq->state = rec ? seq->conv + seq->layout->n_ssm * seq->layout->conv_floats : NULL;
}

static void set_page(pn_seq *seq, int i, pn_block *page)
{
    seq->pages[i] = page;
    seq->page_data[i] = page->data;
    if (i >= seq->n_page)
        seq->n_page = i + 1;
}

void pn_seq_release(pn_seq *seq)
{
    for (int i = 0; i < seq->n_page; i++)
        pn_block_unref(seq->pages[i]);
    seq->n_page = 0;
    pn_block_unref(seq->rec);
    set_rec(seq, NULL);
    seq->pos = 0;
    seq->is_broken = false;
}

void pn_seq_clear(pn_seq *seq)
{
    pn_seq_release(seq);
    pn_free(seq->pages);
    pn_free(seq->page_data);
    *seq = (pn_seq){ 0 };
}

/* Pages whose bytes went with a GPU cannot be written in part, so none is kept then. */
static void drop_lost_pages(pn_seq *seq)
{
    bool is_lost = false;
    for (int i = 0; i < seq->n_page; i++)
        is_lost = is_lost || pn_block_is_lost(seq->pages[i]);
    for (int i = 0; is_lost && i < seq->n_page; i++)
        pn_block_unref(seq->pages[i]);
    seq->n_page = is_lost ? 0 : seq->n_page;
}

void pn_seq_reset(pn_seq *seq)
{
    drop_lost_pages(seq);
    if (seq->rec && pn_block_is_shared(seq->rec)) {
        pn_block_unref(seq->rec);
        set_rec(seq, NULL);
    } else if (seq->rec)
        pn_block_clear(seq->rec);
    seq->pos = 0;
    seq->is_broken = false;
}

static pn_status reserve_rec(pn_seq *seq, pn_err *err)
{
    pn_block *rec = seq->rec;
    if (rec)
        PN_TRY(pn_block_own(&rec, err));
    else
        PN_TRY(pn_block_new(seq->budget, pn_seq_recurrent_bytes(seq->layout), &rec, err));
    set_rec(seq, rec);
    return PN_OK;
}

pn_status pn_seq_reserve(pn_seq *seq, int n_tok, pn_err *err)
{
    PN_REQUIRE(n_tok >= 0, err);
    if (n_tok > seq->n_ctx - seq->pos)
        return pn_fail(err, PN_ERR_LIMIT,
                       "context is full: %d tokens are held, %d more do not fit in %d", seq->pos,
                       n_tok, seq->n_ctx);
    PN_TRY(reserve_rec(seq, err));
    const int n_page = pn_seq_n_page(seq->pos + n_tok);
    const size_t bytes = pn_seq_page_bytes(seq->layout, seq->kv_type);
    for (int i = seq->pos / PN_KV_CHUNK; i < n_page; i++) {
        pn_block *page = i < seq->n_page ? seq->pages[i] : NULL;
        if (page)
            PN_TRY(pn_block_own(&page, err)); /* keeps the part before pos */
        else
            PN_TRY(pn_block_new(seq->budget, bytes, &page, err));
        set_page(seq, i, page);
    }
    return PN_OK;
}

pn_status pn_seq_to_host(pn_seq *seq, int n_tok, pn_err *err)
{
    const int first = seq->pos / PN_KV_CHUNK, n_page = pn_seq_n_page(seq->pos + n_tok);
    PN_TRY(pn_block_write(seq->rec, err));
    for (int i = 0; i < n_page; i++)
        PN_TRY(i < first ? pn_block_read(seq->pages[i], err) : pn_block_write(seq->pages[i], err));
    return PN_OK;
}

bool pn_seq_is_lost(const pn_seq *seq)
{
    bool is_lost = seq->rec && pn_block_is_lost(seq->rec);
    for (int i = 0; i < pn_seq_n_page(seq->pos); i++)
        is_lost = is_lost || pn_block_is_lost(seq->pages[i]);
    return is_lost;
}

/* --- snapshots -------------------------------------------------------------------------------- */

pn_status pn_snapshot_copy(const pn_snapshot *of, pn_snapshot **copy, pn_err *err)
{
    pn_snapshot *const s = pn_calloc(1, sizeof *s);
    pn_block **const pages = pn_calloc((size_t)of->n_page, sizeof *pages);
    if (!s || !pages) {
        pn_free(s);
        pn_free(pages);
        return pn_fail(err, PN_ERR_NOMEM, "no memory for a snapshot");
    }
    for (int i = 0; i < of->n_page; i++)
        pages[i] = pn_block_ref(of->pages[i]);
    pn_block_ref(of->rec);
    *s = *of;
    s->pages = pages;
    *copy = s;
    return PN_OK;
}

pn_status pn_snapshot_new(const pn_seq *seq, pn_snapshot **snapshot, pn_err *err)
{
    PN_REQUIRE(seq && snapshot, err);
    if (seq->is_broken || seq->pos == 0)
        return pn_fail(err, PN_ERR_ARG, "a snapshot of a sequence that %s",
                       seq->is_broken ? "was left half advanced" : "holds nothing");
    const pn_snapshot view = {
        .layout = seq->layout,
        .kv_type = seq->kv_type,
        .pos = seq->pos,
        .rec = seq->rec,
        .pages = seq->pages,
        .n_page = pn_seq_n_page(seq->pos),
    };
    return pn_snapshot_copy(&view, snapshot, err);
}

void pn_snapshot_free(pn_snapshot *s)
{
    if (!s)
        return;
    for (int i = 0; i < s->n_page; i++)
        pn_block_unref(s->pages[i]);
    pn_block_unref(s->rec);
    pn_free(s->pages);
    pn_free(s);
}

int pn_snapshot_pos(const pn_snapshot *s)
{
    return s->pos;
}

bool pn_snapshot_is_lost(const pn_snapshot *s)
{
    bool is_lost = pn_block_is_lost(s->rec);
    for (int i = 0; i < s->n_page; i++)
        is_lost = is_lost || pn_block_is_lost(s->pages[i]);
    return is_lost;
}

/* The first n_page pages of a snapshot. */
static pn_status take_pages(pn_seq *seq, const pn_snapshot *s, int n_page, pn_err *err)
{
    PN_REQUIRE(seq && s && seq->layout == s->layout, err);
    if (seq->kv_type != s->kv_type)
        return pn_fail(err, PN_ERR_ARG, "the snapshot's keys and values are of another type");
    if (s->pos > seq->n_ctx)
        return pn_fail(err, PN_ERR_LIMIT, "a snapshot of %d tokens does not fit a context of %d",
                       s->pos, seq->n_ctx);
    for (int i = 0; i < n_page; i++) {
        pn_block_ref(s->pages[i]);
        if (i < seq->n_page)
            pn_block_unref(seq->pages[i]);
        set_page(seq, i, s->pages[i]);
    }
    return PN_OK;
}

pn_status pn_seq_rewind(pn_seq *seq, const pn_snapshot *s, pn_err *err)
{
    PN_TRY(take_pages(seq, s, s->n_page, err));
    pn_block_ref(s->rec);
    pn_block_unref(seq->rec);
    set_rec(seq, s->rec);
    seq->pos = s->pos;
    seq->is_broken = false;
    return PN_OK;
}

pn_status pn_seq_rewind_pages(pn_seq *seq, const pn_snapshot *s, pn_err *err)
{
    const int n_full = s->pos / PN_KV_CHUNK;
    PN_TRY(take_pages(seq, s, n_full, err));
    pn_block_unref(seq->rec);
    set_rec(seq, NULL);
    seq->pos = n_full * PN_KV_CHUNK;
    seq->is_broken = true;
    return PN_OK;
}

pn_status pn_seq_fork(pn_seq *dst, const pn_seq *src, pn_err *err)
{
    PN_REQUIRE(dst && src && dst != src, err);
    if (src->pos == 0 && !src->is_broken) {
        pn_seq_reset(dst);
        return PN_OK;
    }
    pn_snapshot *s = NULL;
    PN_TRY(pn_snapshot_new(src, &s, err));
    const pn_status st = pn_seq_rewind(dst, s, err);
    pn_snapshot_free(s);
    return st;
}

/* --- what it holds ---------------------------------------------------------------------------- */

int pn_seq_pos(const pn_seq *seq)
{
    return seq->pos;
}

int pn_seq_n_ctx(const pn_seq *seq)
{
    return seq->n_ctx;
}

bool pn_seq_is_broken(const pn_seq *seq)
{
    return seq->is_broken;
}
