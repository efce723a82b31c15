/* Borders on their way back: a thread for each fills a sequence's blocks from the files of a chain
 * while the engine goes on with other sequences. */
#include "engine/store_internal.h"

#include "base/mem.h"
#include "base/thread.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <unistd.h>

struct pn_store_read {
    pn_store *store;
    pn_record *border; /* pinned */
    pn_seq *seq;       /* the caller's; NULL: nobody wants it any more */
    pn_seq own;        /* what the caller's had, with blocks for the border */
    size_t first_page; /* that is read: own has those before */
    pthread_t thread;
    bool has_thread;
    atomic_bool is_left;   /* nobody wants it any more */
    pthread_cond_t is_set; /* the following, which the store's lock guards */
    bool is_done;
    pn_status st;
    pn_err why;
    pn_record *bad; /* whose file was no good; NULL: that is not why it failed */
};

/* --- the thread ------------------------------------------------------------------------------- */

/* The pages [from, to) that the file of r has, and with wants_rec the recurrent block. */
static pn_status read_file(const pn_store_read *read, const pn_record *r, size_t from, size_t to,
                           bool wants_rec, pn_err *err)
{
    int fd = -1;
    PN_TRY(pn_index_open_file(&read->store->index, r->name, O_RDONLY, &fd, err));
    pn_status st = PN_OK;
    for (size_t i = from; i < to && st == PN_OK; i++)
        st = atomic_load(&read->is_left)
                 ? pn_fail(err, PN_ERR_CANCELLED, "%s: is not wanted any more", r->name)
                 : pn_seq_page_read(fd, r->name, &r->head, i, read->own.pages[i]->data, err);
    if (st == PN_OK && wants_rec)
        st = pn_seq_rec_read(fd, r->name, &r->head, read->own.rec->data, err);
    close(fd);
    return st;
}

/* Reads the border and what it continues. Each page comes from the longest file that has it. */
static pn_status read_chain(pn_store_read *read, pn_err *err)
{
    size_t to = pn_seq_head_end_page(&read->border->head);
    for (pn_record *r = read->border; r && to > read->first_page; r = r->parent) {
        const size_t first = pn_seq_head_first_page(&r->head);
        const size_t from = first > read->first_page ? first : read->first_page;
        const pn_status st = read_file(read, r, from, to, r == read->border, err);
        if (st == PN_ERR_FORMAT || st == PN_ERR_IO) /* and not that something is scarce */
            read->bad = r;
        PN_TRY(st);
        to = from < to ? from : to;
    }
    return PN_OK;
}

static void *reader_main(void *arg)
{
    pn_store_read *const read = arg;
    const pn_status st = read_chain(read, &read->why);
    pthread_mutex_lock(&read->store->lock);
    read->st = st;
    read->is_done = true;
    pthread_cond_signal(&read->is_set);
    pthread_mutex_unlock(&read->store->lock);
    return NULL;
}

/* --- the engine's side ------------------------------------------------------------------------ */

/* own and the caller's sequence change places: what the thread fills is nobody else's. */
static void swap(pn_store_read *read)
{
    const pn_seq had = *read->seq;
    *read->seq = read->own;
    read->own = had;
}

/* Blocks of the sequence's own for the border, from read->first_page on. */
static pn_status make_room(pn_store_read *read, pn_err *err)
{
    pn_seq *const seq = read->seq;
    PN_TRY(pn_seq_init(&read->own, seq->layout, seq->kv_type, seq->n_ctx, seq->budget, err));
    const size_t n_tok = read->border->head.n_tok;
    const bool keeps_pages = (size_t)seq->pos < n_tok && seq->pos % PN_KV_CHUNK == 0;
    if (!keeps_pages)
        pn_seq_reset(seq);
    read->first_page = (size_t)seq->pos / PN_KV_CHUNK;
    PN_TRY(pn_seq_reserve(seq, (int)n_tok - seq->pos, err));
    return pn_seq_to_host(seq, (int)n_tok - seq->pos, err);
}

/* What can be pinned of ids [n_tok]; NULL: nothing. */
static pn_record *take_border(pn_store *s, const int32_t *ids, size_t n_tok)
{
    pthread_mutex_lock(&s->lock);
    pn_record *const border = pn_index_find(&s->index, &s->kind, ids, n_tok).border;
    if (border) {
        pn_index_pin(border);
        border->n_reader++;
    }
    pthread_mutex_unlock(&s->lock);
    return border;
}

/* Takes a damaged file out, and lets go of all. */
static void give_back(pn_store_read *read)
{
    pn_store *const s = read->store;
    pthread_mutex_lock(&s->lock);
    read->border->n_reader--;
    if (read->st == PN_OK && !read->border->is_dead)
        pn_store_touch(s, read->border, PN_STORE_USED);
    if (read->bad && !read->bad->is_dead)
        pn_index_remove(&s->index, read->bad, &read->why);
    pn_index_unpin(&s->index, read->border);
    pthread_mutex_unlock(&s->lock);
    pthread_cond_destroy(&read->is_set);
    if (read->own.layout)
        pn_seq_clear(&read->own);
    pn_free(read);
}

pn_status pn_store_read_begin(pn_store *s, const int32_t *ids, size_t n_tok, pn_seq *seq,
                              pn_store_read **out, pn_err *err)
{
    PN_REQUIRE(seq->kv_type == s->kind.kv_type, err);
    *out = NULL;
    pn_store_read *const read = pn_calloc(1, sizeof *read);
    if (!read)
        return pn_fail(err, PN_ERR_NOMEM, "no memory to read a border");
    const size_t most = n_tok < (size_t)seq->n_ctx ? n_tok : (size_t)seq->n_ctx;
    *read = (pn_store_read){ .store = s, .seq = seq, .border = take_border(s, ids, most) };
    if (!read->border) {
        pn_free(read);
        pn_seq_reset(seq);
        return PN_OK;
    }
    pn_cond_init_timed(&read->is_set);
    read->st = make_room(read, &read->why);
    if (read->st != PN_OK) {
        const pn_status st = pn_fail(err, read->st, "%s", read->why.msg);
        give_back(read);
        pn_seq_reset(seq);
        return st;
    }
    swap(read);
    read->has_thread = pn_thread_start(&read->thread, reader_main, read);
    if (!read->has_thread) /* then it is waited for */
        reader_main(read);
    *out = read;
    return PN_OK;
}

bool pn_store_read_wait(pn_store_read *read, double seconds)
{
    pn_store *const s = read->store;
    const struct timespec until = pn_time_in(seconds);
    int why = 0;
    pthread_mutex_lock(&s->lock);
    while (!read->is_done && why == 0)
        why = pthread_cond_timedwait(&read->is_set, &s->lock, &until);
    const bool is_done = read->is_done;
    pthread_mutex_unlock(&s->lock);
    return is_done;
}

void pn_store_read_leave(pn_store_read *read)
{
    read->seq = NULL;
    atomic_store(&read->is_left, true);
}

pn_status pn_store_read_end(pn_store_read *read, pn_err *err)
{
    if (read->has_thread)
        pthread_join(read->thread, NULL);
    const pn_status st = read->bad ? PN_ERR_FORMAT : read->st;
    if (st != PN_OK)
        pn_fail(err, st, "%s", read->why.msg);
    else if (read->seq) {
        swap(read);
        read->seq->pos = (int)read->border->head.n_tok;
        read->seq->is_broken = false;
    }
    give_back(read);
    return st;
}
