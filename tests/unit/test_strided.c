/* Dense copies of strided memory: every element has its position, no other byte is written, and the
 * parts of a copy together give the whole copy. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>
#include "memory.h"
#include "strided.h"

/* Bytes that differ from element to element and from neighbour to neighbour. */
static void fill(unsigned char *p, int64_t elements, size_t size)
{
    for (int64_t i = 0; i < elements; i++)
        for (size_t k = 0; k < size; k++)
            p[(size_t)i * size + k] =
                (unsigned char)(((uint64_t)i * 0x9E3779B97F4A7C15u) >> (8 * k));
}

/* Copies a dense array of this shape with its axes in another order, `shift` elements off a cache
 * line, in one go or a part at a time. */
static void check(size_t size, int ndim, const int64_t *shape, const int *order, int64_t shift,
                  bool in_parts)
{
    int64_t length = 1, dense[FX_MAX_DIMS], moved[FX_MAX_DIMS], stride[FX_MAX_DIMS];
    for (int d = 0; d < ndim; d++) {
        dense[d] = length;
        length *= shape[d];
    }
    for (int d = 0; d < ndim; d++) {
        moved[d] = shape[order[d]];
        stride[d] = dense[order[d]];
    }
    const size_t bytes = (size_t)(length + shift) * size;
    unsigned char *src = fxi_aligned(64, bytes), *memory = fxi_aligned(64, bytes + 64);
    assert_true(src && memory);
    fill(src, length, size);
    memset(memory, 0xA5, bytes + 64);
    unsigned char *dst = memory + (size_t)shift * size;
    fxi_copy c;
    fxi_copy_init(&c, ndim, moved, stride, size);
    assert_true(c.parts > 0 || length == 0);
    for (int64_t k = c.parts; in_parts && k-- > 0;)
        fxi_copy_parts(&c, src, dst, k, k + 1);
    if (!in_parts)
        fxi_copy_elements(ndim, moved, stride, size, src, dst);
    int64_t index[FX_MAX_DIMS] = {0}, wrong = 0;
    for (int64_t i = 0; i < length; i++) {
        int64_t at = 0;
        for (int d = 0; d < ndim; d++)
            at += index[d] * stride[d];
        wrong += memcmp(dst + (size_t)i * size, src + (size_t)at * size, size) != 0;
        for (int d = 0; d < ndim && ++index[d] == moved[d]; d++)
            index[d] = 0;
    }
    assert_int_equal(wrong, 0);
    for (size_t k = 0; k < (size_t)shift * size; k++)
        assert_int_equal(memory[k], 0xA5);
    for (size_t k = 0; k < 64; k++)
        assert_int_equal(memory[bytes + k], 0xA5);
    fxi_free(src);
    fxi_free(memory);
}

static const size_t sizes[] = {1, 2, 4, 8};

static void transposes(void **state)
{
    (void)state;
    static const int64_t lengths[] = {1, 3, 4, 7, 16, 31, 64, 65, 100};
    enum { N = sizeof lengths / sizeof *lengths };
    for (int s = 0; s < 4; s++)
        for (int i = 0; i < N; i++)
            for (int j = 0; j < N; j++)
                check(sizes[s], 2, (const int64_t[]){lengths[i], lengths[j]}, (const int[]){1, 0},
                      i % 2, j % 2);
}

static void permutations(void **state)
{
    (void)state;
    int checked = 0;
    for (int s = 0; s < 4; s++)
        for (int code = 0; code < 256; code++) {
            const int order[] = {code & 3, code >> 2 & 3, code >> 4 & 3, code >> 6};
            if ((1 << order[0] | 1 << order[1] | 1 << order[2] | 1 << order[3]) != 15)
                continue;
            check(sizes[s], 4, (const int64_t[]){19, 6, 34, 5}, order, 1, code % 2);
            checked++;
        }
    assert_int_equal(checked, 4 * 24);
}

/* Beyond FXI_STREAM_BYTES, on and off the lines of the cache, and in sizes that no line divides. In
 * one of the final two shapes the lines of a plane begin on lines of the cache, and the planes do
 * not; in the other one the planes do, and the lines do not. */
static void large_transposes(void **state)
{
    (void)state;
    for (int s = 0; s < 4; s++) {
        const int64_t n = (FXI_STREAM_BYTES / (int64_t)sizes[s] + 1023) / 1024;
        for (int k = 0; k < 2; k++) {
            check(sizes[s], 2, (const int64_t[]){n, 1024}, (const int[]){1, 0}, k, k);
            check(sizes[s], 2, (const int64_t[]){1024, n + 5}, (const int[]){1, 0}, k, !k);
        }
        check(sizes[s], 3, (const int64_t[]){n, 512, 2}, (const int[]){1, 0, 2}, 0, true);
        check(sizes[s], 3, (const int64_t[]){n, 64, 17}, (const int[]){2, 1, 0}, 0, true);
        check(sizes[s], 3, (const int64_t[]){n, 17, 64}, (const int[]){1, 0, 2}, 0, true);
    }
}

static void empty_and_single(void **state)
{
    (void)state;
    for (int s = 0; s < 4; s++) {
        check(sizes[s], 2, (const int64_t[]){0, 5}, (const int[]){1, 0}, 0, false);
        check(sizes[s], 2, (const int64_t[]){1, 1}, (const int[]){1, 0}, 0, true);
        check(sizes[s], 0, NULL, NULL, 0, false);
    }
}

/* Every other element, backwards, and one element many times. */
static void other_strides(void **state)
{
    (void)state;
    uint32_t src[64], dst[48];
    for (uint32_t i = 0; i < 64; i++)
        src[i] = i * i;
    fxi_copy_elements(2, (const int64_t[]){6, 8}, (const int64_t[]){-2, 0}, 4, src + 20, dst);
    for (int i = 0; i < 48; i++)
        assert_int_equal(dst[i], src[20 - 2 * (i % 6)]);
    fxi_copy_elements(2, (const int64_t[]){6, 8}, (const int64_t[]){-8, 1}, 4, src + 56, dst);
    for (int i = 0; i < 48; i++)
        assert_int_equal(dst[i], src[56 - 8 * (i % 6) + i / 6]);
}

/* Every second element, of sources that end with the last one that is read. */
static void every_second(void **state)
{
    (void)state;
    for (int s = 0; s < 4; s++)
        for (int64_t n = 1; n < 40; n++) {
            const size_t size = sizes[s], bytes = (size_t)n * size;
            unsigned char *src = fxi_malloc((size_t)(2 * n - 1) * size),
                          *dst = fxi_malloc(bytes + 64);
            assert_true(src && dst);
            fill(src, 2 * n - 1, size);
            memset(dst, 0xA5, bytes + 64);
            fxi_copy_strided(dst, src, n, 2, size);
            for (int64_t i = 0; i < n; i++)
                assert_memory_equal(dst + (size_t)i * size, src + (size_t)(2 * i) * size, size);
            for (size_t k = 0; k < 64; k++)
                assert_int_equal(dst[bytes + k], 0xA5);
            fxi_free(src);
            fxi_free(dst);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(transposes),       cmocka_unit_test(permutations),
        cmocka_unit_test(large_transposes), cmocka_unit_test(empty_and_single),
        cmocka_unit_test(other_strides),    cmocka_unit_test(every_second),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
