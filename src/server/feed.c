#include "server/feed.h"

#include "base/mem.h"

#include <string.h>

/* In the buffer: the item, its text or its token's alternatives, room up to the next multiple. */
enum {
    ALIGN = 16
};

void pn_feed_init(pn_feed *f)
{
    *f = (pn_feed){ 0 };
    pthread_mutex_init(&f->lock, NULL);
}

void pn_feed_clear(pn_feed *f)
{
    pn_buf_free(&f->items);
    pthread_mutex_destroy(&f->lock);
}

static bool tell(pn_feed *f)
{
    const bool is_first = !f->is_told;
    f->is_told = true;
    return is_first;
}

bool pn_feed_put(pn_feed *f, const pn_feed_item *item)
{
    const void *const tail =
        item->kind == PN_FEED_TOKEN ? (const void *)item->token.top : item->text.ptr;
    const size_t n_tail =
        item->kind == PN_FEED_TOKEN ? item->token.n_top * sizeof *item->token.top : item->text.len;
    const size_t size = pn_round_up(sizeof *item + n_tail, ALIGN);
    pthread_mutex_lock(&f->lock);
    char *const at = pn_buf_extend(&f->items, size);
    if (at) {
        memcpy(at, item, sizeof *item);
        if (n_tail)
            memcpy(at + sizeof *item, tail, n_tail);
    }
    const bool wakes = tell(f);
    pthread_mutex_unlock(&f->lock);
    return wakes;
}

bool pn_feed_end_choice(pn_feed *f, int i_choice, const pn_feed_end *end)
{
    pthread_mutex_lock(&f->lock);
    f->ends[i_choice] = *end;
    f->ends[i_choice].is_done = true;
    const bool wakes = tell(f);
    pthread_mutex_unlock(&f->lock);
    return wakes;
}

void pn_feed_untold(pn_feed *f)
{
    pthread_mutex_lock(&f->lock);
    f->is_told = false;
    pthread_mutex_unlock(&f->lock);
}

bool pn_feed_take(pn_feed *f, bool was_told, pn_buf *items, pn_feed_end *ends, int n)
{
    pthread_mutex_lock(&f->lock);
    *items = f->items;
    f->items = (pn_buf){ 0 };
    memcpy(ends, f->ends, (size_t)n * sizeof *ends);
    if (was_told)
        f->is_told = false;
    pthread_mutex_unlock(&f->lock);
    return pn_buf_ok(items);
}

bool pn_feed_is_told(pn_feed *f)
{
    pthread_mutex_lock(&f->lock);
    const bool is_told = f->is_told;
    pthread_mutex_unlock(&f->lock);
    return is_told;
}

bool pn_feed_next(const pn_buf *items, size_t *at, pn_feed_item *item)
{
    if (*at >= items->len)
        return false;
    const char *const tail = items->ptr + *at + sizeof *item;
    memcpy(item, items->ptr + *at, sizeof *item);
    size_t n_tail = item->text.len;
    if (item->kind == PN_FEED_TOKEN) {
        n_tail = item->token.n_top * sizeof *item->token.top;
        item->token.top = n_tail ? (const pn_token_alt *)(const void *)tail : NULL;
    } else {
        item->text.ptr = tail;
    }
    *at += pn_round_up(sizeof *item + n_tail, ALIGN);
    return true;
}
