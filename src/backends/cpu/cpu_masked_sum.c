/* cpu_masked_sum.c: sums of the elements that a Bool mask chooses.
 *
 * In a one-hot column one element of many is true. So blocks of the mask without a true element are
 * skipped, and x is read only in the other blocks. A skipped term would be 0, which changes no sum:
 * a sum that begins with 0 is never −0. Element i is added to sum i mod 16, and the 16 sums are
 * folded in halves, as in cpu_isa_reduce.h.
 */
#include "cpu_masked_sum.h"
#include "cpu_simd.h"

#include <string.h>

enum {
    LANES = FXI_MASKED_LEAST,
    BLOCK = 64, /* mask_list may list up to this many elements more than MOST */
    MOST = 16   /* true elements of a tile; with more, its terms are computed and added */
};

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
    int64_t list[MOST + BLOCK];
    const int listed = fxi_cpu_simd()->mask_list(mask, n, MOST, list);
    if (listed > MOST)
        return false;
    /* In a one-hot column the sum is the only element. */
    *sum += listed == 1 ? (double)x[list[0]] : sum_of_lanes(x, list, listed);
    return true;
}
