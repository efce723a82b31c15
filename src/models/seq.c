#include "models/seq.h"

#include "base/mem.h"

#include <string.h>

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
                      pn_err *err)
{
    PN_REQUIRE(n_ctx >= 1, err);
    if (kv_type == PN_KV_Q8_0 && layout->head_dim % PN_QB)
        return pn_fail(
            err, PN_ERR_UNSUPPORTED,
            "kv type q8_0 needs a head size that is a multiple of %d, this model's is %zu", PN_QB,
            layout->head_dim);
    const size_t rec_bytes = pn_seq_recurrent_bytes(layout);
    const int n_page_max = (n_ctx - 1) / PN_KV_CHUNK + 1; /* n_ctx may be INT_MAX */
    float *const rec = pn_pages_alloc(rec_bytes);
    pn_kv_page **const pages = pn_calloc((size_t)n_page_max, sizeof *pages);
    const uint8_t **const page_data = pn_calloc((size_t)n_page_max, sizeof *page_data);
    if (!rec || !pages || !page_data) {
        pn_pages_free(rec, rec_bytes);
        pn_free(pages);
        pn_free(page_data);
        return pn_fail(err, PN_ERR_NOMEM, "no memory for a sequence's state of %zu bytes",
                       rec_bytes);
    }
    *seq = (pn_seq){
        .layout = layout,
        .kv_type = kv_type,
        .n_ctx = n_ctx,
        .conv = rec,
        .state = rec + layout->n_ssm * layout->conv_floats,
        .rec_bytes = rec_bytes,
        .pages = pages,
        .page_data = page_data,
        .n_page_max = n_page_max,
    };
    return PN_OK;
}

void pn_seq_clear(pn_seq *seq)
{
    for (int i = 0; i < seq->n_page; i++)
        pn_kv_page_unref(seq->pages[i]);
    pn_free(seq->pages);
    pn_free(seq->page_data);
    pn_pages_free(seq->conv, seq->rec_bytes);
    *seq = (pn_seq){ 0 };
}

void pn_seq_reset(pn_seq *seq)
{
    if (seq->rec_bytes)
        memset(seq->conv, 0, seq->rec_bytes);
    seq->pos = 0;
    seq->is_broken = false;
}

void pn_kv_page_ref(pn_kv_page *page)
{
    atomic_fetch_add_explicit(&page->n_ref, 1, memory_order_relaxed);
}

void pn_kv_page_unref(pn_kv_page *page)
{
    if (page && atomic_fetch_sub_explicit(&page->n_ref, 1, memory_order_acq_rel) == 1) {
        pn_pages_free(page->data, page->bytes);
        pn_free(page);
    }
}

static pn_kv_page *page_new(size_t bytes)
{
    pn_kv_page *const page = pn_calloc(1, sizeof *page);
    if (!page)
        return NULL;
    page->bytes = bytes;
    page->data = pn_pages_alloc(bytes);
    if (!page->data) {
        pn_free(page);
        return NULL;
    }
    atomic_init(&page->n_ref, 1);
    return page;
}

pn_status pn_seq_reserve(pn_seq *seq, int n_tok, pn_err *err)
{
    PN_REQUIRE(n_tok >= 0, err);
    if (n_tok > seq->n_ctx - seq->pos)
        return pn_fail(err, PN_ERR_LIMIT,
                       "context is full: %d tokens are held, %d more do not fit in %d", seq->pos,
                       n_tok, seq->n_ctx);
    const int end = seq->pos + n_tok;
    const int n_page = end ? (end - 1) / PN_KV_CHUNK + 1 : 0;
    const size_t bytes = pn_seq_page_bytes(seq->layout, seq->kv_type);
    for (int i = seq->pos / PN_KV_CHUNK; i < n_page; i++) {
        pn_kv_page *const old = i < seq->n_page ? seq->pages[i] : NULL;
        if (old && atomic_load_explicit(&old->n_ref, memory_order_acquire) == 1)
            continue;
        pn_kv_page *const page = page_new(bytes);
        if (!page)
            return pn_fail(err, PN_ERR_NOMEM, "no memory for %zu bytes of keys and values", bytes);
        if (old) { /* shared: keep the part before pos, in a copy of our own */
            memcpy(page->data, old->data, bytes);
            pn_kv_page_unref(old);
        }
        seq->pages[i] = page;
        seq->page_data[i] = page->data;
        if (i >= seq->n_page)
            seq->n_page = i + 1;
    }
    return PN_OK;
}

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
