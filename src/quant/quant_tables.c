/* Constant grids of the formats.
 *
 * pn_iq4_values: the 16 levels that define IQ4_NL and IQ4_XS; taken from ggml (ggml-common.h,
 * kvalues_iq4nl; MIT licence, the ggml authors; see NOTICE).
 * pn_mxfp4_values: twice the e2m1 values 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives, from the
 * OCP Microscaling Formats (MX) specification v1.0, section 5.3.3; the doubling is ggml's. */
#include "quant/quant_tables.h"

const int8_t pn_iq4_values[16] = { -127, -104, -83, -65, -49, -35, -22, -10,
                                   1,    13,   25,  38,  53,  69,  89,  113 };

const int8_t pn_mxfp4_values[16] = { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 };
