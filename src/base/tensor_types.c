/* The table follows the type ids and block structs of ggml (ggml.h and ggml-common.h, MIT licence,
 * the ggml authors; see NOTICE), which the GGUF specification refers to. 4, 5, 31 to 33 and 36 to
 * 38 were removed there; their sizes are those of the last version that had them. */

#include "base/tensor_types.h"

#include "base/mem.h"

#include <strings.h>

static const pn_tensor_type types[PN_TENSOR_TYPE_LIMIT] = {
    [0] = { "F32", 1, 4 },           [1] = { "F16", 1, 2 },
    [2] = { "Q4_0", 32, 18 },        [3] = { "Q4_1", 32, 20 },
    [4] = { "Q4_2", 16, 10 },        [5] = { "Q4_3", 16, 12 },
    [6] = { "Q5_0", 32, 22 },        [7] = { "Q5_1", 32, 24 },
    [8] = { "Q8_0", 32, 34 },        [9] = { "Q8_1", 32, 36 },
    [10] = { "Q2_K", 256, 84 },      [11] = { "Q3_K", 256, 110 },
    [12] = { "Q4_K", 256, 144 },     [13] = { "Q5_K", 256, 176 },
    [14] = { "Q6_K", 256, 210 },     [15] = { "Q8_K", 256, 292 },
    [16] = { "IQ2_XXS", 256, 66 },   [17] = { "IQ2_XS", 256, 74 },
    [18] = { "IQ3_XXS", 256, 98 },   [19] = { "IQ1_S", 256, 50 },
    [20] = { "IQ4_NL", 32, 18 },     [21] = { "IQ3_S", 256, 110 },
    [22] = { "IQ2_S", 256, 82 },     [23] = { "IQ4_XS", 256, 136 },
    [24] = { "I8", 1, 1 },           [25] = { "I16", 1, 2 },
    [26] = { "I32", 1, 4 },          [27] = { "I64", 1, 8 },
    [28] = { "F64", 1, 8 },          [29] = { "IQ1_M", 256, 56 },
    [30] = { "BF16", 1, 2 },         [31] = { "Q4_0_4_4", 32, 18 },
    [32] = { "Q4_0_4_8", 32, 18 },   [33] = { "Q4_0_8_8", 32, 18 },
    [34] = { "TQ1_0", 256, 54 },     [35] = { "TQ2_0", 256, 66 },
    [36] = { "IQ4_NL_4_4", 32, 18 }, [37] = { "IQ4_NL_4_8", 32, 18 },
    [38] = { "IQ4_NL_8_8", 32, 18 }, [39] = { "MXFP4", 32, 17 },
    [40] = { "NVFP4", 64, 36 },      [41] = { "Q1_0", 128, 18 },
};

const pn_tensor_type *pn_tensor_type_get(uint32_t id)
{
    return id < PN_TENSOR_TYPE_LIMIT && types[id].name ? &types[id] : NULL;
}

const char *pn_tensor_type_name(uint32_t id)
{
    const pn_tensor_type *const t = pn_tensor_type_get(id);
    return t ? t->name : "unknown";
}

bool pn_tensor_type_find(const char *name, uint32_t *id)
{
    for (uint32_t i = 0; i < PN_TENSOR_TYPE_LIMIT; i++)
        if (types[i].name && strcasecmp(types[i].name, name) == 0) {
            *id = i;
            return true;
        }
    return false;
}

bool pn_tensor_type_row_bytes(uint32_t id, uint64_t n, size_t *bytes)
{
    const pn_tensor_type *const t = pn_tensor_type_get(id);
    return t && n % t->block_n == 0 && pn_mul_size(n / t->block_n, t->block_bytes, bytes);
}
