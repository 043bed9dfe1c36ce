/* random.h: the thread's random stream. */
#ifndef CFLUX_RANDOM_H
#define CFLUX_RANDOM_H

#include <stdbool.h>
#include <stdint.h>

typedef struct fxi_random_state {
    uint64_t seed, name, count;
    bool named;
} fxi_random_state;

/* The (seed, counter) pair of the next random operation; every call takes a fresh counter. */
void fxi_random_next(uint64_t out_stream[2]);

/* Gives the calling thread a named stream: the same seed and name give the same numbers whatever
 * else runs. For worker threads. */
void fxi_random_name(uint64_t seed, uint64_t name);

/* The calling thread's stream as it is; fxi_random_leave makes it so again. */
fxi_random_state fxi_random_now(void);

/* From here to fxi_random_leave, which takes what this gives, the calling thread draws from a
 * stream of that key: what is made in between is the same in whatever thread. */
fxi_random_state fxi_random_enter(uint64_t key);
void fxi_random_leave(fxi_random_state before);

#endif
