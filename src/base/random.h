/* random.h: the random streams of threads. Internal. */
#ifndef CFLUX_RANDOM_H
#define CFLUX_RANDOM_H

#include <stdbool.h>
#include <stdint.h>

typedef struct fxi_random_state {
    uint64_t seed, name, count;
    bool named;
} fxi_random_state;

/* The (seed, counter) pair of the next random operation; every call uses a new counter. */
void fxi_random_next(uint64_t out_stream[2]);

/* Gives the calling thread a named stream: equal seeds and names give equal numbers, whatever other
 * threads do. For worker threads. */
void fxi_random_name(uint64_t seed, uint64_t name);

/* The state of the calling thread's stream; fxi_random_leave restores it. */
fxi_random_state fxi_random_now(void);

/* Until fxi_random_leave, the calling thread draws from the stream with this key, whose numbers are
 * the same in every thread. Returns the state that fxi_random_leave restores. */
fxi_random_state fxi_random_enter(uint64_t key);
void fxi_random_leave(fxi_random_state before);

#endif
