/* cuda/repack: what lies in the device's layout is what the file has, read back here as
 * cuda/layout.h draws it, by code that shares nothing with the writer or the kernels. */

#include "support/check.h"

#include "base/mem.h"
#include "base/tensor_types.h"
#include "cuda/layout.h"
#include "cuda/repack.h"
#include "quant/quant_tables.h"
#include "quant/unpack.h"

#include <string.h>

enum {
    N_ROW = 5,
    ROW_LAST = N_ROW - 1
};

typedef struct image {
    pn_type type;
    pn_unit_layout l;
    pn_planes p;
    const uint8_t *m;
} image;

/* Byte i of a unit's codes. */
static unsigned code_byte(const image *im, size_t row, size_t u, size_t i)
{
    const size_t n_piece = im->l.code_bytes / 16;
    return im->m[((row * n_piece + i / 16) * im->p.n_unit + u) * 16 + i % 16];
}
static const uint8_t *plane(const image *im, uint64_t at, uint32_t bytes, size_t row, size_t u)
{
    return im->m + at + (row * im->p.n_unit + u) * bytes;
}

/* Where bit k of word i of a unit's codes lies, at n_bit bits a weight: of each byte of a word. */
typedef struct bit_place {
    size_t word, bit;
} bit_place;

static bit_place place_of(size_t n_bit, size_t i, size_t k)
{
    const bit_place as_it_is = { i, k };
    switch (n_bit) {
    case 2:
        return (bit_place){ i % 4, i / 4 * 2 + k };
    case 3:
        if (i < 8)
            return (bit_place){ i % 4, i / 4 * 3 + k };
        if (i < 12)
            return (bit_place){ 4 + i % 2, (i - 8) / 2 * 3 + k };
        return k ? (bit_place){ i - 12, 5 + k } : (bit_place){ 4 + (i - 12) / 2, 6 + i % 2 };
    case 4:
        return (bit_place){ i % 8, i / 8 * 4 + k };
    case 5:
        if (i < 10)
            return as_it_is;
        if (k >= 2)
            return (bit_place){ i - 10, 3 + k };
        return i < 14 ? (bit_place){ i - 4, 5 + k } : (bit_place){ 2 * i - 21 - k, 7 };
    case 6:
        return i < 12 ? as_it_is : (bit_place){ i - 4 - k / 2 * 4, 6 + k % 2 };
    default:
        return as_it_is;
    }
}

/* Weight i of a unit, as pn_unpack_* gives it. */
static int weight(const image *im, size_t row, size_t u, size_t i)
{
    const size_t n_code = im->l.code_bytes;
    const size_t n_bit = (n_code + im->l.high_bytes) / 8;
    unsigned c = 0;
    for (size_t k = 0; k < n_bit; k++) {
        const bit_place at = place_of(n_bit, i / 4, k);
        const size_t byte = 4 * at.word + i % 4;
        const unsigned x = byte < n_code
                               ? code_byte(im, row, u, byte)
                               : plane(im, im->p.high, im->l.high_bytes, row, u)[byte - n_code];
        c |= (x >> at.bit & 1) << k;
    }
    if (n_bit == 8)
        return (int8_t)c;
    switch (im->type) {
    case PN_TYPE_IQ4_XS:
    case PN_TYPE_IQ4_NL:
        return pn_iq4_values[c];
    case PN_TYPE_MXFP4:
        return pn_mxfp4_values[c];
    case PN_TYPE_Q3_K:
        return (int)c - 4;
    case PN_TYPE_Q4_0:
        return (int)c - 8;
    case PN_TYPE_Q5_0:
        return (int)c - 16;
    case PN_TYPE_Q6_K:
        return (int)c - 32;
    default:
        return (int)c;
    }
}

static float half_at(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, 2);
    return pn_h2f(h);
}

/* By bits: scales may be NaN. */
static void assert_same(float got, float want)
{
    assert_int_equal(pn_asu(got), pn_asu(want));
}

static void check_superblock(const image *im, size_t row, size_t ib, const pn_unpacked_k *k)
{
    const uint8_t *const d = im->m + im->p.d + (row * (im->p.n_unit / 4) + ib) * im->l.d_bytes;
    assert_same(half_at(d), k->d);
    if (im->l.d_bytes == 4)
        assert_same(half_at(d + 2), k->dmin);
    for (size_t i = 0; i < PN_QK; i++)
        assert_int_equal(weight(im, row, 4 * ib + i / 64, i % 64), k->q[i]);
    for (size_t j = 0; j < 16; j++) { /* groups of 16 */
        const uint8_t *const s = plane(im, im->p.scales, im->l.scale_bytes, row, 4 * ib + j / 4);
        switch (im->type) {
        case PN_TYPE_Q2_K:
            assert_int_equal(s[j % 4] & 15, k->sc[j]);
            assert_int_equal(s[j % 4] >> 4, k->m[j]);
            break;
        case PN_TYPE_Q4_K:
        case PN_TYPE_Q5_K:
            assert_int_equal(s[j % 4 / 2], k->sc[j]);
            assert_int_equal(s[2 + j % 4 / 2], k->m[j]);
            break;
        case PN_TYPE_IQ4_XS:
            assert_int_equal((int8_t)s[j % 4 / 2], k->sc[j]);
            break;
        default:
            assert_int_equal((int8_t)s[j % 4], k->sc[j]);
            break;
        }
    }
}

static void check_block(const image *im, size_t row, size_t ib, const pn_unpacked_b *b)
{
    const uint32_t bytes = im->l.d_bytes / 2;
    const uint8_t *const d = plane(im, im->p.d, im->l.d_bytes, row, ib / 2) + ib % 2 * bytes;
    if (im->type == PN_TYPE_MXFP4)
        assert_same(pn_e8m0_half(*d), b->d);
    else
        assert_same(half_at(d), b->d);
    if (bytes == 4)
        assert_same(half_at(d + 2), b->m);
    for (size_t i = 0; i < PN_QB; i++)
        assert_int_equal(weight(im, row, ib / 2, ib % 2 * 32 + i), b->q[i]);
}

static void check_floats(const image *im, size_t row, const uint8_t *file, size_t n, size_t size)
{
    const size_t e = 16 / size;
    for (size_t i = 0; i < n; i++) {
        const size_t chunk = i / (32 * e), j = i / 32 % e, lane = i % 32;
        const size_t at = ((row * im->p.n_unit + chunk) * 32 + lane) * e + j;
        assert_memory_equal(im->m + at * size, file + i * size, size);
    }
}

static void check_row(const image *im, const pn_qweight *w, size_t i_mat, size_t row)
{
    const uint8_t *file = pn_qweight_row(w, i_mat, row);
    const pn_tensor_type *const t = pn_tensor_type_get(w->type);
    if (t->block_n == 1) {
        check_floats(im, row, file, w->n, t->block_bytes);
        return;
    }
    for (size_t ib = 0; ib < w->n / t->block_n; ib++, file += t->block_bytes) {
        if (pn_unpack_k_of(w->type)) {
            pn_unpacked_k k;
            pn_unpack_k_of(w->type)(file, &k);
            check_superblock(im, row, ib, &k);
        } else {
            pn_unpacked_b b;
            pn_unpack_b_of(w->type)(file, &b);
            check_block(im, row, ib, &b);
        }
    }
}

static void fill(uint8_t *p, size_t bytes)
{
    uint32_t x = 1;
    for (size_t i = 0; i < bytes; i++) {
        x = x * 1664525u + 1013904223u;
        p[i] = (uint8_t)(x >> 24);
    }
}

/* Every weight and scale of every type comes back, in whole and in ragged rows, of the matrix asked
 * for; other rows' bytes are left alone. */
static void test_loses_nothing(void **state)
{
    (void)state;
    for (uint32_t type = 0; type < PN_TYPE_COUNT; type++) {
        const pn_type_info *const info = pn_type_get(type);
        if (!info)
            continue;
        for (size_t n_unit = 1; n_unit <= 3; n_unit++) {
            const size_t n = info->unit == 1 ? 130 * n_unit : n_unit * info->unit;
            const pn_tensor_type *const t = pn_tensor_type_get(type);
            const size_t mat = n / t->block_n * t->block_bytes * N_ROW;
            uint8_t *const file = pn_alloc(2 * mat);
            fill(file, 2 * mat);
            pn_qweight w;
            assert_int_equal(pn_qweight_init(&w, "w", type, file, n, N_ROW, 2, NULL), PN_OK);
            const size_t bytes = fc_repack_bytes((pn_type)type, n, N_ROW);
            assert_int_equal(bytes % 256, 0);
            uint8_t *const dst = pn_alloc(bytes), *const before = pn_alloc(bytes);
            memset(dst, 0x55, bytes);
            fc_repack_weight(&w, 1, ROW_LAST, N_ROW, dst);
            memcpy(before, dst, bytes);
            fc_repack_weight(&w, 1, 0, ROW_LAST, dst);
            const image im = { (pn_type)type, pn_unit_layout_of(type),
                               pn_planes_of(type, (uint32_t)n, N_ROW), dst };
            const image im_before = { im.type, im.l, im.p, before };
            check_row(&im_before, &w, 1, ROW_LAST);
            for (size_t r = 0; r < N_ROW; r++)
                check_row(&im, &w, 1, r);
            pn_free(dst);
            pn_free(before);
            pn_free(file);
        }
    }
}

/* At the sizes of real matrices no type takes more than 4 % over the file, and gaps are none. */
static void test_size(void **state)
{
    (void)state;
    for (uint32_t type = 0; type < PN_TYPE_COUNT; type++) {
        if (!pn_type_get(type))
            continue;
        const pn_tensor_type *const t = pn_tensor_type_get(type);
        const size_t file = (size_t)2048 / t->block_n * t->block_bytes * 512;
        const size_t bytes = fc_repack_bytes((pn_type)type, 2048, 512);
        assert_in_range(bytes, file, file + file / 25);
    }
}

/* The last matrix whose pieces of 16 bytes have numbers of 32 bits, and the first that has more. */
static void test_fits(void **state)
{
    (void)state;
    const size_t n = 1 << 16, n_unit = n / PN_UNIT;
    for (uint32_t type = 0; type < PN_TYPE_COUNT; type++) {
        if (!pn_type_get(type))
            continue;
        const uint32_t n_piece = pn_unit_layout_of(type).code_bytes / 16; /* of a unit */
        const size_t n_row = n_piece ? ((size_t)1 << 32) / (n_unit * n_piece) : UINT32_MAX;
        assert_true(fc_repack_fits((pn_type)type, n, n_row));
        assert_false(fc_repack_fits((pn_type)type, n, n_row + 1));
    }
    assert_false(fc_repack_fits(PN_TYPE_F32, (size_t)UINT32_MAX + 1, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loses_nothing),
        cmocka_unit_test(test_size),
        cmocka_unit_test(test_fits),
    };
    return cmocka_run_group_tests_name("repack", tests, NULL, NULL);
}
