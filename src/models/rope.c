/* log, exp, sin and cos in binary64 from + - * / alone: a libm may round them as it likes, and the
 * table must have the same bits on every machine. Errors below 1e-15 relative (log, exp) and 1e-14
 * absolute (sin, cos of up to 2^24 turns), against f32's 6e-8. */
#include "models/rope.h"

#include <string.h>

static const double LN2 = 0.693147180559945309417;

static double d_log(double x)
{
    uint64_t u;
    memcpy(&u, &x, 8);
    int k = (int)(u >> 52) - 1023;
    u = (u & 0xfffffffffffffull) | 0x3ff0000000000000ull;
    double m;
    memcpy(&m, &u, 8);
    if (m > 1.41421356237309504880) {
        m *= 0.5;
        k++;
    }
    /* log m = 2 atanh(s), s = (m-1)/(m+1), |s| < 0.1716: 13 terms reach 1e-21 */
    const double s = (m - 1.0) / (m + 1.0), z = s * s;
    double p = 0.0;
    for (int i = 25; i >= 1; i -= 2)
        p = p * z + 1.0 / i;
    return k * LN2 + 2.0 * s * p;
}

static double d_exp(double x)
{
    const double kd = (double)(int64_t)(x / LN2 + (x < 0 ? -0.5 : 0.5));
    /* ln 2 in two parts: the first has trailing zeros, so that kd times it is exact */
    double r = x - kd * 6.93147180369123816490e-01;
    r -= kd * 1.90821492927058770002e-10;
    double p = 1.0;
    for (int i = 18; i >= 1; i--)
        p = 1.0 + r * p / i;
    const uint64_t u = (uint64_t)((int64_t)kd + 1023) << 52; /* |x| < 700 */
    double scale;
    memcpy(&scale, &u, 8);
    return p * scale;
}

/* sin and cos of x >= 0 or < 0: reduced by pi/2 in three parts of 33 bits (fdlibm's constants, so
 * that k times a part is exact for k < 2^20), then Taylor series on [-pi/4, pi/4]. */
static void d_sincos(double x, double *s_out, double *c_out)
{
    const double kd = (double)(int64_t)(x * 0.636619772367581343076 + (x < 0 ? -0.5 : 0.5));
    const int64_t k = (int64_t)kd;
    /* Above 2^20 quarter turns k itself is split, each half exact against each part. */
    const double hi = (double)(k / 1048576 * 1048576), lo = kd - hi;
    static const double part[3] = { 1.57079632673412561417e+00, 6.07710050630396597660e-11,
                                    2.02226624879595063154e-21 };
    double r = x;
    for (int i = 0; i < 3; i++)
        r = (r - hi * part[i]) - lo * part[i];
    const double z = r * r;
    double s = 1.0, c = 1.0;
    for (int i = 16; i >= 2; i -= 2) {
        s = 1.0 - s * z / (double)(i * (i + 1));
        c = 1.0 - c * z / (double)(i * (i - 1));
    }
    s *= r;
    switch (k & 3) {
    case 0:
        *s_out = s, *c_out = c;
        break;
    case 1:
        *s_out = c, *c_out = -s;
        break;
    case 2:
        *s_out = -s, *c_out = -c;
        break;
    default:
        *s_out = -c, *c_out = s;
    }
}

/* The pair at which a wave makes n_turn turns over the original context (the paper's d(r)). */
static double yarn_pair(const pn_rope_cfg *cfg, double n_turn)
{
    const double two_pi = 6.28318530717958647693;
    return cfg->n_rot * d_log(cfg->n_ctx_orig / (n_turn * two_pi)) /
           (2.0 * d_log((double)cfg->freq_base));
}

/* Blends each frequency between itself and itself / factor: pairs that turn more than
 * beta_fast = 32 times over the original context stay, those under beta_slow = 1 are stretched. */
static void apply_yarn(pn_rope *rope, const pn_rope_cfg *cfg)
{
    double low = yarn_pair(cfg, 32.0), high = yarn_pair(cfg, 1.0);
    low = low < 0 ? 0 : (double)(int64_t)low;                       /* floor */
    high = high > (double)(int64_t)high ? (double)(int64_t)high + 1 /* ceil */
                                        : (double)(int64_t)high;
    if (high > cfg->n_rot - 1)
        high = cfg->n_rot - 1;
    if (high <= low)
        high = low + 0.001;
    for (int i = 0; i < rope->n_pair; i++) {
        double ramp = (i - low) / (high - low);
        ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
        const double f = rope->inv_freq[i];
        rope->inv_freq[i] = f * (1.0 - ramp) + f / (double)cfg->factor * ramp;
    }
    rope->magnitude = (0.1 * d_log((double)cfg->factor) + 1.0) * (double)cfg->attn_factor;
}

pn_status pn_rope_init(pn_rope *rope, const pn_rope_cfg *cfg, pn_err *err)
{
    const int n_pair = cfg->n_rot / 2;
    if (cfg->n_rot < 2 || cfg->n_rot % 2 || n_pair > PN_ROPE_MAX_PAIRS)
        return pn_fail(err, PN_ERR_FORMAT,
                       "rope.dimension_count is %d, expected an even number from 2 to %d",
                       cfg->n_rot, 2 * PN_ROPE_MAX_PAIRS);
    if (!(cfg->freq_base > 1.0f && cfg->freq_base < 1e30f))
        return pn_fail(err, PN_ERR_FORMAT, "rope.freq_base is %g, expected more than 1",
                       (double)cfg->freq_base);
    const int64_t sum = (int64_t)cfg->sections[0] + cfg->sections[1] + cfg->sections[2];
    if (cfg->sections[0] < 0 || cfg->sections[1] < 0 || cfg->sections[2] < 0 || sum != n_pair)
        return pn_fail(err, PN_ERR_FORMAT,
                       "rope.dimension_sections are %d, %d, %d, expected a sum of %d "
                       "(half of rope.dimension_count)",
                       cfg->sections[0], cfg->sections[1], cfg->sections[2], n_pair);
    if (cfg->scaling != PN_ROPE_NONE && !(cfg->factor >= 1.0f && cfg->factor <= 1e4f))
        return pn_fail(err, PN_ERR_FORMAT, "rope.scaling.factor is %g, expected 1 to 10000",
                       (double)cfg->factor);
    if (cfg->scaling == PN_ROPE_YARN &&
        (cfg->n_ctx_orig < 1 || !(cfg->attn_factor > 0.0f && cfg->attn_factor < 100.0f)))
        return pn_fail(err, PN_ERR_FORMAT,
                       "rope scaling yarn needs rope.scaling.original_context_length (%d) and a "
                       "positive attention factor (%g)",
                       cfg->n_ctx_orig, (double)cfg->attn_factor);

    *rope = (pn_rope){ .n_pair = n_pair, .magnitude = 1.0 };
    const double ln_base = d_log((double)cfg->freq_base);
    for (int i = 0; i < n_pair; i++) {
        rope->inv_freq[i] = d_exp(-2.0 * i / cfg->n_rot * ln_base);
        if (cfg->scaling == PN_ROPE_LINEAR)
            rope->inv_freq[i] /= (double)cfg->factor;
        rope->section_of[i] = i % 3 == 1 && i < 3 * cfg->sections[1]   ? 1
                              : i % 3 == 2 && i < 3 * cfg->sections[2] ? 2
                                                                       : 0;
    }
    if (cfg->scaling == PN_ROPE_YARN && cfg->factor > 1.0f)
        apply_yarn(rope, cfg);
    return PN_OK;
}

void pn_rope_row(const pn_rope *rope, const int pos[3], float *cos_t, float *sin_t)
{
    for (int i = 0; i < rope->n_pair; i++) {
        double s, c;
        d_sincos(pos[rope->section_of[i]] * rope->inv_freq[i], &s, &c);
        cos_t[i] = (float)(c * rope->magnitude);
        sin_t[i] = (float)(s * rope->magnitude);
    }
}
