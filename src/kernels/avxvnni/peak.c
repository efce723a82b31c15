/* What 256-bit VNNI can do at best; float32 is as on avx2. */
#include "kernels/wide/peak.h"
#include "kernels/avxvnni/avxvnni.h"

#include <immintrin.h>

#define I8_DOT(acc, a, b) _mm256_dpbusd_avx_epi32(acc, a, b)
PN_PEAK(i8_dots, __m256i, I8_DOT)

void pn_peak_init_avxvnni(pn_kernels *k)
{
    k->peak_i8 = (pn_peak){ i8_dots, 32 * PN_PEAK_CHAINS };
}
