/* The forward pass of qwen35moe once more, in binary64 and as plainly as its description allows:
 * no workspace, no threads, no cache, no kernels, whole sequences only. It reads the file by itself
 * and shares nothing with src/models/ but the meaning of the format; weights are dequantised by
 * src/quant/ (which has tests of its own). For small models: it holds every layer as doubles. */
#ifndef PN_TESTS_SUPPORT_REFERENCE_QWEN35MOE_H
#define PN_TESTS_SUPPORT_REFERENCE_QWEN35MOE_H

#include <stdint.h>

/* The logits [n][*n_vocab] of all positions; the caller's, free(). *margin, unless NULL: the
 * smallest distance, over all tokens and layers, between the last chosen expert's logit and the
 * first one not chosen (infinite when all are chosen). Where it is near rounding, another engine
 * may rightly choose otherwise. No rope scaling. A fault of the file fails the test. */
double *pn_reference_logits(const char *path, const int32_t *ids, int n, int *n_vocab,
                            double *margin);

#endif
