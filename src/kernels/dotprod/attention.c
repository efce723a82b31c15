/* Attention, dotprod level: the neon level's kernels, but for the scores of q8_0 keys. */
#include "kernels/neon/score_q8.inc.h"

void pn_attn_init_dotprod(pn_attn_kernels *k)
{
    k->score_q8 = score_q8;
}
