/* What 512-bit multiply-adds can do at best. */
#include "kernels/wide/peak.h"
#include "kernels/avx512/avx512.h"

#include <immintrin.h>

#define I8_DOT(acc, a, b)  _mm512_dpbusd_epi32(acc, a, b)
#define F32_FMA(acc, a, b) _mm512_fmadd_ps(a, b, acc)
PN_PEAK(i8_dots, __m512i, I8_DOT)
PN_PEAK(f32_fmas, __m512, F32_FMA)

void pn_peak_init_avx512(pn_kernels *k)
{
    k->peak_i8 = (pn_peak){ i8_dots, 64 * PN_PEAK_CHAINS };
    k->peak_f32 = (pn_peak){ f32_fmas, 16 * PN_PEAK_CHAINS };
}
