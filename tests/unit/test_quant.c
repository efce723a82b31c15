/* quant/: the type table, dequantisation of every format, pn_qweight. */

#include "support/check.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/tensor_types.h"
#include "quant/quant.h"

#include <stdio.h>
#include <string.h>

/* Every supported type has sizes in base's table, a unit that is whole blocks and whole
 * activations, and its name in the list for messages; every other id is refused. */
static void test_type_table(void **state)
{
    (void)state;
    size_t n_known = 0, names_len = 0;
    for (uint32_t id = 0; id < 100; id++) {
        const pn_type_info *const info = pn_type_get(id);
        if (!info)
            continue;
        n_known++;
        const pn_tensor_type *const t = pn_tensor_type_get(id);
        assert_non_null(t);
        assert_int_equal(info->unit % t->block_n, 0);
        assert_non_null(strstr(pn_type_supported_names(), t->name));
        names_len += strlen(t->name) + 1;
        const size_t one = pn_act_bytes(info->act, 256);
        assert_int_equal(one, info->act == PN_ACT_F32 ? 1024 : info->act == PN_ACT_Q8S ? 384 : 320);
    }
    assert_int_equal(n_known, 16);
    assert_int_equal(strlen(pn_type_supported_names()) + 1, names_len);
    assert_null(pn_type_get(UINT32_MAX));
    assert_int_equal(pn_act_bytes(PN_ACT_Q8B, 32), 320);
    assert_int_equal(pn_act_bytes(PN_ACT_Q8B, 288), 640);
}

static void read_file(const char *name, const char *ext, pn_map *m)
{
    char path[256];
    snprintf(path, sizeof path, "tests/golden/data/quants/%s.%s", name, ext);
    pn_err err = { 0 };
    if (pn_map_open(path, false, m, &err) != PN_OK)
        fail_msg("%s", err.msg);
}

/* Each format's weights equal the numpy implementation's to the bit, from a base address of any
 * alignment. Equality is exact because every product of our fma is: d * sc * q has at most
 * 11 + 6 + 5 significant bits where a minimum follows, and elsewhere the order is the same. */
static void test_dequant_equals_numpy(void **state)
{
    (void)state;
    size_t n_tested = 0;
    for (uint32_t id = 0; id < PN_TYPE_COUNT; id++) {
        const pn_type_info *const info = pn_type_get(id);
        if (!info || id == PN_TYPE_F32)
            continue;
        const char *const name = pn_tensor_type_name(id);
        pn_map blocks, want;
        read_file(name, "blocks", &blocks);
        read_file(name, "f32", &want);
        const size_t n = want.size / sizeof(float);
        size_t row_bytes;
        assert_true(pn_tensor_type_row_bytes(id, n, &row_bytes));
        assert_int_equal(row_bytes, blocks.size);
        uint8_t *const odd = pn_alloc(blocks.size + 1);
        float *const y = pn_calloc(n, sizeof *y);
        memcpy(odd + 1, blocks.data, blocks.size);
        pn_qweight w;
        assert_int_equal(pn_qweight_init(&w, name, id, odd + 1, n, 1, 1, NULL), PN_OK);
        pn_qweight_dequant_row(&w, 0, 0, y);
        for (size_t i = 0; i < n; i++)
            if (memcmp(&y[i], want.data + i * sizeof *y, sizeof *y) != 0) {
                float ref;
                memcpy(&ref, want.data + i * sizeof *y, sizeof ref);
                fail_msg("%s: weight %zu is %a, numpy has %a", name, i, (double)y[i], (double)ref);
            }
        pn_free(odd);
        pn_free(y);
        pn_map_close(&blocks);
        pn_map_close(&want);
        n_tested++;
    }
    assert_int_equal(n_tested, 15);
}

/* A pn_qweight addresses row r of matrix i, and refuses what it cannot compute, by name. */
static void test_qweight(void **state)
{
    (void)state;
    float data[2 * 3 * 4], y[4];
    for (int i = 0; i < 24; i++)
        data[i] = (float)i;
    pn_qweight w = { 0 };
    pn_err err = { 0 };
    const uint8_t *const bytes = (const uint8_t *)data;
    assert_int_equal(pn_qweight_init(&w, "t", PN_TYPE_F32, bytes, 4, 3, 2, &err), PN_OK);
    pn_qweight_dequant_row(&w, 1, 2, y);
    assert_memory_equal(y, data + 20, sizeof y);

    const pn_qweight before = w;
    assert_int_equal(pn_qweight_init(&w, "blk.0.ffn_up.weight", 19, bytes, 256, 1, 1, &err),
                     PN_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "blk.0.ffn_up.weight: type IQ1_S (19)"));
    assert_int_equal(pn_qweight_init(&w, "t", 4242, bytes, 256, 1, 1, &err), PN_ERR_UNSUPPORTED);
    assert_int_equal(pn_qweight_init(&w, "t", PN_TYPE_Q4_K, bytes, 96, 1, 1, &err), PN_ERR_FORMAT);
    assert_int_equal(pn_qweight_init(&w, "t", PN_TYPE_F32, bytes, SIZE_MAX / 4, 5, 1, &err),
                     PN_ERR_FORMAT);
    assert_memory_equal(&w, &before, sizeof w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_type_table),
        cmocka_unit_test(test_dequant_equals_numpy),
        cmocka_unit_test(test_qweight),
    };
    return cmocka_run_group_tests_name("quant", tests, NULL, NULL);
}
