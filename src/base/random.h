/* random.h: the thread's random stream. */
#ifndef CFLUX_RANDOM_H
#define CFLUX_RANDOM_H

#include <stdint.h>

/* The (seed, counter) pair of the next random operation; every call takes a fresh counter. */
void fxi_random_next(uint64_t out_stream[2]);

/* Gives the calling thread a named stream: the same seed and name give the same numbers whatever
 * else runs. For worker threads. */
void fxi_random_name(uint64_t seed, uint64_t name);

#endif
