/* Two dies of which the machine can reach one at a time work in turn: each is acquired before its
 * work and released after it, by a lock that other programs may take too and by a command of the
 * owner's, which does what the box needs. Where turns are not asked for, all this is nothing. */
#ifndef PN_MODELS_TURNS_H
#define PN_MODELS_TURNS_H

#include "cuda/device.h"
#include "models/placement.h"
#include "pantheon/pantheon.h"

typedef struct pn_turns {
    bool is_on;
    int lock_fd;         /* -1: none */
    const char *command; /* a program's path, run with "acquire N" and "release N", apart from this
                            program's input, output and signals; NULL: none */
    int at;              /* the ordinal that is acquired; -1: none */
    fc_stream *stream;   /* of its work; NULL: there is none yet */
} pn_turns;

/* Errors: PN_ERR_IO when the lock's file cannot be opened. */
pn_status pn_turns_init(pn_turns *t, const pn_device_opts *opts, pn_err *err);
void pn_turns_clear(pn_turns *t);

/* The die with that ordinal has the turn from now on; stream: where its work will be queued, or
 * NULL. Another one's work is waited for before. Errors: PN_ERR_IO, a command that failed; those of
 * fc_stream_sync. */
pn_status pn_turns_take(pn_turns *t, int ordinal, fc_stream *stream, pn_err *err);
/* Nobody has it. As above. */
pn_status pn_turns_end(pn_turns *t, pn_err *err);

#endif
