/* Rotary position embedding: the table of angles, made on the host in binary64 by the project's own
 * functions and rounded once to f32, so that every device rotates by the same bits.
 *
 * Sections (interleaved M-RoPE): pair i takes its position from height if i % 3 == 1 and
 * i < 3 * sections[1], from width if i % 3 == 2 and i < 3 * sections[2], else from time.
 * Scaling: none, linear, or YaRN (arXiv:2309.00071, "NTK-by-parts" and the attention factor). */
#ifndef PN_MODELS_ROPE_H
#define PN_MODELS_ROPE_H

#include "base/status.h"

enum {
    PN_ROPE_MAX_PAIRS = 512
};

typedef enum pn_rope_scaling {
    PN_ROPE_NONE = 0,
    PN_ROPE_LINEAR,
    PN_ROPE_YARN
} pn_rope_scaling;

typedef struct pn_rope_cfg {
    int n_rot;       /* rotated dimensions of a head, even */
    int sections[3]; /* pairs for time, height, width; their sum is n_rot / 2 */
    float freq_base;
    pn_rope_scaling scaling;
    float factor;      /* context is factor times the original; 1 when scaling is none */
    int n_ctx_orig;    /* context length the model was trained at (YaRN) */
    float attn_factor; /* YaRN: multiplies the usual 0.1 ln(factor) + 1; 1 by default */
} pn_rope_cfg;

typedef struct pn_rope {
    int n_pair;
    int8_t section_of[PN_ROPE_MAX_PAIRS]; /* 0 time, 1 height, 2 width */
    double inv_freq[PN_ROPE_MAX_PAIRS];   /* radians a position */
    double magnitude;                     /* scales cos and sin (YaRN), else 1 */
} pn_rope;

/* Errors: PN_ERR_FORMAT when n_rot is odd, 0 or too large, sections do not sum to n_rot / 2, or the
 * scaling's numbers make no sense. */
pn_status pn_rope_init(pn_rope *rope, const pn_rope_cfg *cfg, pn_err *err);

/* cos_t, sin_t [n_rot / 2] for one token at positions pos[3] = time, height, width (equal for
 * text).
 * |pos| < 2^24. */
void pn_rope_row(const pn_rope *rope, const int pos[3], float *cos_t, float *sin_t);

#endif
