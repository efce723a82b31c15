#include "engine/pace.h"

#include "base/status.h"

enum {
    CHUNK_FIRST = 8, /* small: the first guess must not be the longest gap */
    QUIET_EVERY = 64 /* mixed passes between two measurements of the quiet gap: under 1 % of them */
};
#define QUIET_KEEP 0.75 /* of the old average, when a quiet pass is averaged in */
#define STEP_UP    1.25 /* most that a chunk grows at once; it shrinks by up to 2 */
#define STEP_DOWN  0.5

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
    const int chunk = (int)(p->chunk + 0.5);
    return chunk < room ? chunk : room;
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
    double step = took > 0 ? room / took : STEP_UP;
    step = step > STEP_UP ? STEP_UP : step < STEP_DOWN ? STEP_DOWN : step;
    if (step > 1 && !is_full)
        return; /* a short piece says nothing of a longer one's time */
    const double want = step > 1 && n_read * step < n_read + 1 ? n_read + 1 : n_read * step;
    p->chunk = (p->chunk + want) / 2; /* half way: single passes are noisy */
    p->chunk = p->chunk < 1 ? 1 : p->chunk > p->n_batch ? p->n_batch : p->chunk;
}
