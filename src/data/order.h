/* order.h: random orders of observations. Internal to src/data.
 *
 * Fisher–Yates with SplitMix64 (Steele, Lea, Flood, OOPSLA 2014), a counter-based generator: the
 * result depends on the key only, not on the thread's random stream.
 */
#ifndef CFLUX_ORDER_H
#define CFLUX_ORDER_H

#include <stdint.h>

/* A stream of random numbers: {.key = …}. */
typedef struct fxi_draws {
    uint64_t key, counter;
} fxi_draws;

/* A bijection of the 64-bit numbers that mixes all bits (the final step of SplitMix64). */
uint64_t fxi_mix(uint64_t z);
/* Uniform in [0, bound), bound > 0. */
uint64_t fxi_draw_below(fxi_draws *draws, uint64_t bound);
/* Shuffles n numbers in place. */
void fxi_draw_order(fxi_draws *draws, int64_t n, int64_t *io);
/* The numbers 0 … n−1 in the random order of pass number `pass`; from memory.h, NULL if out of
 * memory. */
int64_t *fxi_shuffled(int64_t n, uint64_t seed, uint64_t pass);

#endif
