#include "engine/pace.h"

#include "base/status.h"

#include <math.h>

enum {
    CHUNK_FIRST = 8, /* small: the first guess must not be the longest gap */
    QUIET_EVERY = 64 /* mixed passes between two measurements of the quiet gap: under 1 % of them */
};
#define QUIET_KEEP 0.75 /* of the old average, when a quiet pass is averaged in */
#define STEP_UP    0.25 /* of itself, most that a chunk grows at once, or by one token */
#define STEP_DOWN  0.5  /* of itself: the least that it is then thought to be */

void pn_pace_init(pn_pace *p, double gap_s, int n_batch)
{
    *p = (pn_pace){ .gap_s = gap_s, .n_batch = n_batch, .chunk = CHUNK_FIRST };
}

int pn_pace_tokens(const pn_pace *p, int n_writer)
{
    PN_ASSERT(n_writer >= 0 && n_writer <= PN_PACE_MAX_WRITERS);
    const int room = p->n_batch - n_writer;
    if (n_writer == 0)
        return room;
    if (p->quiet_s[n_writer] == 0 || p->n_mixed >= QUIET_EVERY)
        return 0;
    return p->chunk < room ? (int)p->chunk : room;
}

void pn_pace_learn(pn_pace *p, int n_writer, int n_read, bool is_full, double s)
{
    if (n_writer == 0)
        return;
    double *const quiet = &p->quiet_s[n_writer];
    if (n_read == 0) {
        *quiet = *quiet == 0 ? s : QUIET_KEEP * *quiet + (1 - QUIET_KEEP) * s;
        p->n_mixed = 0;
        return;
    }
    p->n_mixed++;
    const double limit = p->gap_s > 0 ? p->gap_s : PN_PACE_RATIO * *quiet;
    const double room = limit - *quiet, took = s - *quiet;
    const double fits = took > 0 ? n_read * room / took : INFINITY;
    if (fits < n_read) { /* half way back: single passes are noisy */
        p->chunk = (p->chunk + (fits > p->chunk * STEP_DOWN ? fits : p->chunk * STEP_DOWN)) / 2;
    } else if (is_full) { /* a short piece says nothing of a longer one's time */
        const double most = n_read + (n_read * STEP_UP > 1 ? n_read * STEP_UP : 1);
        p->chunk = fits < most ? fits : most;
    }
    p->chunk = p->chunk < 1 ? 1 : p->chunk > p->n_batch ? p->n_batch : p->chunk;
}
