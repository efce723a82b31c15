/* A protocol's wire over an answer, without a server: what a client would read. */
#ifndef PN_TESTS_SUPPORT_WIRE_H
#define PN_TESTS_SUPPORT_WIRE_H

#include "server/reply.h"

typedef struct wire_case {
    const pn_wire *wire;
    pn_ask *ask;        /* n_choices is 1; streamed or whole as it says */
    const char *answer; /* the model's text */
    size_t step;        /* bytes that come at a time; 0: all */
    bool pings;         /* a ping behind each of them */
    pn_gen_result result;
    const pn_problem *problem; /* how it failed; NULL: it did not */
} wire_case;

/* Appends the bytes of the answer to out. Ids are the prefixes and 1, 2, ...; it was made at second
 * 7. The wire's extra, the ask's too, is freed. */
void wire_run(const wire_case *c, pn_buf *out);

#endif
