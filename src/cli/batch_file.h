/* The two files of `pantheon batch`: requests, one JSON object a line, and answers, of which a
 * killed process leaves whole lines and at most one that is torn. */
#ifndef PN_CLI_BATCH_FILE_H
#define PN_CLI_BATCH_FILE_H

#include "base/json.h"

#include <stdio.h>

/* Which ids there are, by 128-bit hashes. */
typedef struct pn_id_set {
    struct pn_id_hash {
        uint64_t lo, hi;
    } * slots; /* [cap], a power of two; 0, 0: free */
    size_t n, cap;
} pn_id_set; /* the zero struct is empty */

/* Adds an id; *is_new: it was not there. Errors: PN_ERR_NOMEM. */
pn_status pn_id_set_add(pn_id_set *set, pn_span id, bool *is_new, pn_err *err);
void pn_id_set_free(pn_id_set *set);

typedef struct pn_batch_in {
    FILE *file;
    const char *name;
    pn_buf line;
    int64_t n_line; /* read so far: the number of the last one */
} pn_batch_in;

/* path "-": standard input. */
pn_status pn_batch_in_open(const char *path, pn_batch_in *in, pn_err *err);
void pn_batch_in_close(pn_batch_in *in);
/* The next line that is not blank; PN_OK and text->ptr NULL at the end. Errors: PN_ERR_IO,
 * PN_ERR_LIMIT for a line beyond PN_JSON_MAX_BYTES, PN_ERR_NOMEM. */
pn_status pn_batch_in_next(pn_batch_in *in, pn_span *text, pn_err *err);

typedef struct pn_batch_out {
    FILE *file;
    const char *name;
} pn_batch_out;

/* Opens the answers' file for appending, for this process alone. Without is_resumed it must not
 * exist; with it, the ids of its whole lines are added to done and a torn last answer is cut off.
 * in: it must be another file.
 * Errors: PN_ERR_IO, PN_ERR_FORMAT for a line that is no answer, PN_ERR_NOMEM; the file is as it
 * was. */
pn_status pn_batch_out_open(const char *path, const pn_batch_in *in, bool is_resumed,
                            pn_id_set *done, pn_batch_out *out, pn_err *err);
/* Appends a line; it is the file's when this returns. */
pn_status pn_batch_out_put(pn_batch_out *out, pn_span line, pn_err *err);
/* Makes sure that all is on the disk. */
pn_status pn_batch_out_close(pn_batch_out *out, pn_err *err);

#endif
