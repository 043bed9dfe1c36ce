/* pair_map.h: a map from pairs of tokens to numbers, and a queue that returns the smallest entry
 * first. Internal. Zeroed structs are empty.
 */
#ifndef CFLUX_PAIR_MAP_H
#define CFLUX_PAIR_MAP_H

#include <stdbool.h>
#include <stdint.h>

/* A pair as one number: pairs are ordered by their first token, then by their second one. */
static inline uint64_t fxi_pair(int32_t a, int32_t b)
{
    return (uint64_t)(uint32_t)a << 32 | (uint32_t)b;
}

typedef struct fxi_pair_entry {
    uint64_t pair;
    int64_t value;
} fxi_pair_entry;

typedef struct fxi_pair_map {
    fxi_pair_entry *entries; /* open addressing, at most half full */
    int32_t count, capacity; /* capacity: 0 or a power of two */
} fxi_pair_map;

/* The value of the pair; NULL if it is not in the map. */
const int64_t *fxi_pair_find(const fxi_pair_map *map, uint64_t pair);
/* The value of the pair, which is added with the value −1 if it is new. NULL: out of memory. Valid
 * until the next call. */
int64_t *fxi_pair_put(fxi_pair_map *map, uint64_t pair);
void fxi_pair_map_free(fxi_pair_map *map);

/* Entries are ordered by `first`, then by `second`. */
typedef struct fxi_queued {
    uint64_t first, second;
    int32_t value;
} fxi_queued;

typedef struct fxi_queue {
    fxi_queued *heap;
    int32_t count, capacity;
} fxi_queue;

bool fxi_queue_push(fxi_queue *queue, fxi_queued entry); /* false: out of memory */
bool fxi_queue_pop(fxi_queue *queue, fxi_queued *out);   /* false: the queue is empty */
void fxi_queue_free(fxi_queue *queue);

#endif
