/* What 256-bit multiply-adds can do at best; an int8 dot is three instructions here. */
#include "kernels/wide/peak.h"
#include "kernels/avx2/avx2.h"

#include <immintrin.h>

#define I8_DOT(acc, a, b) \
    _mm256_add_epi32(acc, _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), _mm256_set1_epi16(1)))
#define F32_FMA(acc, a, b) _mm256_fmadd_ps(a, b, acc)
PN_PEAK(i8_dots, __m256i, I8_DOT)
PN_PEAK(f32_fmas, __m256, F32_FMA)

void pn_peak_init_avx2(pn_kernels *k)
{
    k->peak_i8 = (pn_peak){ i8_dots, 32 * PN_PEAK_CHAINS };
    k->peak_f32 = (pn_peak){ f32_fmas, 8 * PN_PEAK_CHAINS };
}
