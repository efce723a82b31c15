/* The ids of tensor types, for C and for CUDA. */
#ifndef PN_QUANT_TYPE_IDS_H
#define PN_QUANT_TYPE_IDS_H

/* The ids are the file format's; these are the types that can be computed with. */
typedef enum pn_type {
    PN_TYPE_F32 = 0,
    PN_TYPE_F16 = 1,
    PN_TYPE_Q4_0 = 2,
    PN_TYPE_Q4_1 = 3,
    PN_TYPE_Q5_0 = 6,
    PN_TYPE_Q5_1 = 7,
    PN_TYPE_Q8_0 = 8,
    PN_TYPE_Q2_K = 10,
    PN_TYPE_Q3_K = 11,
    PN_TYPE_Q4_K = 12,
    PN_TYPE_Q5_K = 13,
    PN_TYPE_Q6_K = 14,
    PN_TYPE_IQ4_NL = 20,
    PN_TYPE_IQ4_XS = 23,
    PN_TYPE_BF16 = 30,
    PN_TYPE_MXFP4 = 39,
    PN_TYPE_COUNT = 40
} pn_type;

#endif
