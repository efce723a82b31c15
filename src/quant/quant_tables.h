/* The constant grids of the non-linear types. Origin: quant_tables.c. */
#ifndef PN_QUANT_QUANT_TABLES_H
#define PN_QUANT_QUANT_TABLES_H

#include <stdint.h>

extern const int8_t pn_iq4_values[16];   /* IQ4_NL and IQ4_XS: ascending, -127..113 */
extern const int8_t pn_mxfp4_values[16]; /* e2m1, doubled to be whole; bit 3 is the sign */

#endif
