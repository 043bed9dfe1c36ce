/* cpu_masked_sum.c: sums of the elements that a Bool mask chooses, the number of these, and the
 * parts of a mask that have any.
 *
 * In a one-hot column one element of many is true. So blocks of the mask without a true element are
 * skipped, and x is read only in the other blocks. A skipped term would be 0, which changes no sum:
 * a sum that begins with 0 is never −0. Element i is added to number i mod 16, and these are folded
 * in halves, as in cpu_isa_reduce.h.
 */
#include "cpu_masked_sum.h"

#include <string.h>

enum {
    LANES = FXI_MASKED_LEAST,
    WORD = 8,   /* bytes of a word */
    BLOCK = 64, /* bytes of the mask that are tested or counted at once */
    MOST = 16   /* true elements of a tile; with more, its terms are computed and added */
};

static inline uint64_t eight(const uint8_t *mask)
{
    uint64_t bytes;
    memcpy(&bytes, mask, sizeof bytes);
    return bytes;
}

/* Is a byte of a block not 0? The words are not copied to an array: gcc 12 would store it in halves
 * and load it in wholes, which waits for the stores. */
static inline bool some_of_block(const uint8_t *m)
{
    return (eight(m) | eight(m + 8) | eight(m + 16) | eight(m + 24) | eight(m + 32) |
            eight(m + 40) | eight(m + 48) | eight(m + 56)) != 0;
}

/* The same for n bytes. */
static bool some_of(const uint8_t *mask, int64_t n)
{
    uint64_t some = 0;
    int64_t i = 0;
    for (; i + WORD <= n; i += WORD)
        some |= eight(mask + i);
    for (; i < n; i++)
        some |= mask[i];
    return some != 0;
}

int64_t fxi_cpu_mask_run(const uint8_t *mask, int64_t n, bool *out_some)
{
    int64_t run = 0;
    while (run < n) {
        const int64_t left = n - run, size = left < BLOCK ? left : BLOCK;
        const bool some = size == BLOCK ? some_of_block(mask + run) : some_of(mask + run, size);
        if (run == 0)
            *out_some = some;
        if (some != *out_some)
            break;
        run += size;
    }
    return run;
}

/* The highest byte of the product is the sum of all bytes: at most 64. */
static inline int64_t sum_of_bytes(uint64_t bytes)
{
    return (int64_t)(bytes * UINT64_C(0x0101010101010101) >> 56);
}

int64_t fxi_cpu_count_true(const uint8_t *mask, int64_t n)
{
    int64_t count = 0, i = 0;
    for (; i + BLOCK <= n; i += BLOCK) {
        const uint8_t *m = mask + i;
        count += sum_of_bytes(eight(m) + eight(m + 8) + eight(m + 16) + eight(m + 24) +
                              eight(m + 32) + eight(m + 40) + eight(m + 48) + eight(m + 56));
    }
    for (; i + WORD <= n; i += WORD)
        count += sum_of_bytes(eight(mask + i));
    for (; i < n; i++)
        count += mask[i];
    return count;
}

/* Adds the indices of the true elements from `from` to `to` to a list of n, and returns its length.
 * It may grow beyond MOST by a word. */
static int list_true(const uint8_t *mask, int64_t from, int64_t to, int64_t *list, int n)
{
    for (int64_t word = from; word < to && n <= MOST; word += WORD) {
        const int64_t end = word + WORD < to ? word + WORD : to;
        if (end - word == WORD && eight(mask + word) == 0)
            continue;
        for (int64_t i = word; i < end; i++)
            if (mask[i])
                list[n++] = i;
    }
    return n;
}

/* The sum of the listed elements, each in its lane. */
static double sum_of_lanes(const float *x, const int64_t *list, int n)
{
    double lanes[LANES] = {0};
    for (int k = 0; k < n; k++)
        lanes[list[k] % LANES] += (double)x[list[k]];
    for (int w = LANES / 2; w; w /= 2)
        for (int j = 0; j < w; j++)
            lanes[j] += lanes[j + w];
    return lanes[0];
}

bool fxi_cpu_sparse_sum(const uint8_t *mask, const float *x, int64_t n, double *sum)
{
    int64_t list[MOST + WORD], i = 0;
    int listed = 0;
    for (; i + BLOCK <= n && listed <= MOST; i += BLOCK)
        if (some_of_block(mask + i))
            listed = list_true(mask, i, i + BLOCK, list, listed);
    listed = list_true(mask, i, n, list, listed);
    if (listed > MOST)
        return false;
    /* In a one-hot column the sum is the only element. */
    *sum += listed == 1 ? (double)x[list[0]] : sum_of_lanes(x, list, listed);
    return true;
}
