/* pair_map.c: a map from pairs of tokens, and a queue: see pair_map.h. The queue is a binary heap:
 * the children of entry i are 2i + 1 and 2i + 2. */
#include "pair_map.h"
#include "hash.h"
#include "memory.h"

#define NO_PAIR UINT64_MAX

static fxi_pair_entry *entry_of(const fxi_pair_map *map, uint64_t pair)
{
    const uint32_t mask = (uint32_t)map->capacity - 1;
    uint32_t at = (uint32_t)fxi_hash(&pair, sizeof pair, 0) & mask;
    while (map->entries[at].pair != pair && map->entries[at].pair != NO_PAIR)
        at = (at + 1) & mask;
    return &map->entries[at];
}

const int64_t *fxi_pair_find(const fxi_pair_map *map, uint64_t pair)
{
    const fxi_pair_entry *entry = map->capacity > 0 ? entry_of(map, pair) : NULL;
    return entry && entry->pair == pair ? &entry->value : NULL;
}

static bool grow_map(fxi_pair_map *map)
{
    enum { FIRST = 1024, MOST = 1 << 30 };
    if (map->capacity == MOST)
        return false;
    fxi_pair_map larger = {.count = map->count,
                           .capacity = map->capacity ? 2 * map->capacity : FIRST};
    larger.entries = fxi_malloc((size_t)larger.capacity * sizeof *larger.entries);
    if (!larger.entries)
        return false;
    for (int32_t i = 0; i < larger.capacity; i++)
        larger.entries[i].pair = NO_PAIR;
    for (int32_t i = 0; i < map->capacity; i++)
        if (map->entries[i].pair != NO_PAIR)
            *entry_of(&larger, map->entries[i].pair) = map->entries[i];
    fxi_free(map->entries);
    *map = larger;
    return true;
}

int64_t *fxi_pair_put(fxi_pair_map *map, uint64_t pair)
{
    if (map->count >= map->capacity / 2 && !grow_map(map))
        return NULL;
    fxi_pair_entry *entry = entry_of(map, pair);
    if (entry->pair == NO_PAIR) {
        *entry = (fxi_pair_entry){pair, -1};
        map->count++;
    }
    return &entry->value;
}

void fxi_pair_map_free(fxi_pair_map *map)
{
    fxi_free(map->entries);
    *map = (fxi_pair_map){0};
}

/* ---- queue ----------------------------------------------------------------------------------- */

static bool is_before(fxi_queued a, fxi_queued b)
{
    return a.first != b.first ? a.first < b.first : a.second < b.second;
}

bool fxi_queue_push(fxi_queue *queue, fxi_queued entry)
{
    if (queue->count == INT32_MAX - 1 ||
        !fxi_grow(&queue->heap, &queue->capacity, queue->count + 1, sizeof entry))
        return false;
    int32_t at = queue->count++;
    for (; at > 0 && is_before(entry, queue->heap[(at - 1) / 2]); at = (at - 1) / 2)
        queue->heap[at] = queue->heap[(at - 1) / 2];
    queue->heap[at] = entry;
    return true;
}

bool fxi_queue_pop(fxi_queue *queue, fxi_queued *out)
{
    if (queue->count == 0)
        return false;
    *out = queue->heap[0];
    const int64_t n = --queue->count;
    const fxi_queued moved = queue->heap[n];
    int64_t at = 0;
    for (int64_t child = 1; child < n; child = 2 * at + 1) {
        child += child + 1 < n && is_before(queue->heap[child + 1], queue->heap[child]);
        if (!is_before(queue->heap[child], moved))
            break;
        queue->heap[at] = queue->heap[child];
        at = child;
    }
    queue->heap[at] = moved;
    return true;
}

void fxi_queue_free(fxi_queue *queue)
{
    fxi_free(queue->heap);
    *queue = (fxi_queue){0};
}
