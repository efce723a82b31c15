/* The quantised types, once for every list of a level: DO(name, type) for each type of superblocks,
 * and for each of blocks of 32. */
#ifndef PN_KERNELS_TYPE_LIST_H
#define PN_KERNELS_TYPE_LIST_H

// clang-format off
#define PN_K_TYPES(DO) \
    DO(q2_k, PN_TYPE_Q2_K) DO(q3_k, PN_TYPE_Q3_K) DO(q4_k, PN_TYPE_Q4_K) \
    DO(q5_k, PN_TYPE_Q5_K) DO(q6_k, PN_TYPE_Q6_K) DO(iq4_xs, PN_TYPE_IQ4_XS)
#define PN_B_TYPES(DO) \
    DO(q8_0, PN_TYPE_Q8_0) DO(q4_0, PN_TYPE_Q4_0) DO(q4_1, PN_TYPE_Q4_1) DO(q5_0, PN_TYPE_Q5_0) \
    DO(q5_1, PN_TYPE_Q5_1) DO(iq4_nl, PN_TYPE_IQ4_NL) DO(mxfp4, PN_TYPE_MXFP4)
// clang-format on

#endif
