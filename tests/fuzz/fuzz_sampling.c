/* Any parameters, history and logits, bit for bit: what is out of range is refused, what is chosen
 * may be chosen, and again. Then any stop strings on any text, in any pieces: what comes out is the
 * text up to the first stop string. */
#include "sampling/sampler.h"
#include "sampling/stop.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define REQUIRE(cond) ((cond) ? (void)0 : abort())

enum {
    N_MAX = 1200, /* beyond the 512 that are sorted: both ways to draw */
    N_STOP_MAX = 4
};

typedef struct reader {
    const uint8_t *at;
    size_t left;
} reader;

/* The next bytes; zeros behind the end. */
static void take(reader *r, void *to, size_t len)
{
    const size_t n = len < r->left ? len : r->left;
    memset(to, 0, len);
    memcpy(to, r->at, n);
    r->at += n;
    r->left -= n;
}

static void check_pick(reader *r)
{
    pn_sampler_opts o;
    uint16_t n_vocab, n_history;
    take(r, &o, sizeof o);
    take(r, &n_vocab, sizeof n_vocab);
    take(r, &n_history, sizeof n_history);
    pn_sampler *s = NULL;
    pn_err err = { 0 };
    if (pn_sampler_new(&o, &s, &err) != PN_OK) {
        REQUIRE(err.code == PN_ERR_ARG && err.msg[0]);
        return;
    }
    static float l[N_MAX];
    const size_t n = 1 + n_vocab % N_MAX;
    for (size_t i = 0; i < n; i++) { /* whole logits as long as there are bytes, then small ones */
        l[i] = (float)(i * 37 % 64) - 32;
        if (r->left >= sizeof l[i])
            take(r, &l[i], sizeof l[i]);
    }
    for (int32_t i = 0; i < n_history % 300; i++)
        REQUIRE(pn_sampler_accept(s, i % 2 ? i : -i * 1000003, NULL) == PN_OK);
    pn_sampler_space *space;
    REQUIRE(pn_sampler_space_new(n, &space, NULL) == PN_OK);
    /* A mask and a bias by what is left, mostly none. */
    uint32_t masks[(N_MAX + 31) / 32];
    uint8_t use = 0;
    pn_logit_bias bias[2];
    take(r, &use, 1);
    take(r, masks, sizeof masks);
    take(r, bias, sizeof bias);
    const uint32_t *const allowed = use & 1 ? masks : NULL;
    const bool is_biased = (use & 2) && pn_sampler_set_bias(s, bias, 2, n, NULL) == PN_OK;
    pn_sampler_pause_penalties(s, use & 4);
    int32_t t = -1, again = -1;
    const pn_status st = pn_sampler_pick(s, space, l, allowed, n_history, &t, &err);
    REQUIRE(pn_sampler_pick(s, space, l, allowed, n_history, &again, NULL) == st && again == t);
    if (st == PN_OK) {
        REQUIRE(t >= 0 && (size_t)t < n && l[t] > -INFINITY);
        REQUIRE(!allowed || (allowed[t / 32] >> t % 32 & 1));
        for (int i = 0; i < 2 && is_biased; i++)
            REQUIRE(t != bias[i].token || bias[i].bias != -100);
    } else { /* no number is left, or bias and mask together leave no token */
        REQUIRE(t == -1 && err.msg[0]);
        REQUIRE(st == PN_ERR_NUMERIC || (st == PN_ERR_ARG && (allowed || is_biased)));
    }
    pn_logprob chosen, top[3];
    const size_t n_top = n < 3 ? n : 3;
    if (pn_logprobs(space, l, (int32_t)(n - 1), &chosen, n_top, top, NULL) == PN_OK)
        REQUIRE(top[0].logprob <= 1e-5f && chosen.logprob <= top[0].logprob);
    pn_sampler_space_free(space);
    pn_sampler_free(s);
}

static void check_stop(reader *r)
{
    pn_span strings[N_STOP_MAX];
    size_t n_string = 0;
    for (uint8_t len = 1; n_string < N_STOP_MAX && len; n_string++) {
        take(r, &len, 1);
        len %= 8;
        if (len > r->left)
            return;
        strings[n_string] = (pn_span){ (const char *)r->at, len };
        r->at += len;
        r->left -= len;
    }
    pn_stop *s;
    pn_err err = { 0 };
    if (pn_stop_new(strings, n_string, &s, &err) != PN_OK) {
        REQUIRE(err.code == PN_ERR_ARG);
        n_string--; /* the empty one that ended the list */
        REQUIRE(pn_stop_new(strings, n_string, &s, NULL) == PN_OK);
    }
    const char *const text = (const char *)r->at;
    size_t want = r->left;
    for (size_t end = 1; end <= r->left && want == r->left; end++)
        for (size_t k = 0; k < n_string; k++)
            if (strings[k].len <= end && end - strings[k].len < want &&
                memcmp(text + end - strings[k].len, strings[k].ptr, strings[k].len) == 0)
                want = end - strings[k].len;
    pn_buf out = { 0 };
    for (size_t i = 0; i < r->left;) {
        const size_t piece = 1 + (uint8_t)text[i] % 7;
        const size_t len = piece < r->left - i ? piece : r->left - i;
        pn_stop_feed(s, text + i, len, &out, NULL);
        i += len;
    }
    pn_stop_flush(s, &out);
    REQUIRE(out.len == want && (want == 0 || memcmp(out.ptr, text, want) == 0));
    pn_buf_free(&out);
    pn_stop_free(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    reader r = { data + 1, size - 1 };
    if (data[0] & 1)
        check_stop(&r);
    else
        check_pick(&r);
    return 0;
}
