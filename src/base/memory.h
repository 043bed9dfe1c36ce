/* memory.h: allocates host memory for the whole library. Internal. All of cflux allocates here, so
 * that tests can make the n-th allocation fail and count the live ones. A failed allocation is an
 * error like any other: callers check for NULL and report FX_STATUS_MEMORY.
 */
#ifndef CFLUX_MEMORY_H
#define CFLUX_MEMORY_H

#include <cflux/base.h>

void *fxi_malloc(size_t bytes);
void *fxi_calloc(size_t count, size_t size); /* zeroed; NULL also if count·size overflows */
void *fxi_realloc(void *p, size_t bytes);
void *fxi_aligned(size_t alignment, size_t bytes); /* alignment a power of two; freed by fxi_free */
void fxi_free(void *p);
/* Frees a block but keeps its first `keep` bytes readable until the calling thread has freed
 * `waiting` others in this way (use the same number in all calls). It counts as freed at once.
 * fxi_malloc_late is fxi_malloc, faster for the sizes of these blocks. */
void fxi_free_late(void *p, uint32_t waiting, size_t keep);
void *fxi_malloc_late(size_t bytes, uint32_t waiting);
/* Like fxi_malloc and fxi_free, in few instructions, for the blocks that a thread allocates and
 * frees most often: nodes. A thread keeps up to FXI_MOST_SPARES freed blocks in a list of its own.
 * All calls must have the same size, for which fxi_malloc allocates FXI_SPARE_BYTES. */
enum { FXI_MOST_SPARES = 4096, FXI_SPARE_BYTES = 384 };
typedef struct fxi_spares {
    void *first; /* each begins with the address of the next one */
    int64_t n;   /* atomic, because other threads read it */
    /* Waiting blocks (fxi_spare_free_late), the oldest first, and the end of that list. The address
     * of the next one is in front of a block. */
    void *late, **end;
    int64_t nlate; /* atomic */
} fxi_spares;
extern _Thread_local fxi_spares *fxi_own_spares; /* NULL: this thread keeps no blocks */
extern int64_t fxi_fault_at;                     /* −1: no allocation is to fail; atomic */
static inline void *fxi_spare_malloc(size_t bytes)
{
    fxi_spares *s = fxi_own_spares;
    if (!s || !s->first || __atomic_load_n(&fxi_fault_at, __ATOMIC_RELAXED) != -1)
        return fxi_malloc(bytes);
    void *p = s->first;
    s->first = *(void **)p;
    __atomic_store_n(&s->n, s->n - 1, __ATOMIC_RELAXED);
    return p;
}
static inline void fxi_spare_free(void *p)
{
    fxi_spares *s = fxi_own_spares;
    if (!s || s->n >= FXI_MOST_SPARES) {
        fxi_free(p);
        return;
    }
    *(void **)p = s->first;
    s->first = p;
    __atomic_store_n(&s->n, s->n + 1, __ATOMIC_RELAXED);
}
/* Like fxi_malloc_late and fxi_free_late, also for one size: handles of arrays. */
enum { FXI_SPARE_LATE_BYTES = 64 };
enum { FXI_MORE_LATE = 1024 }; /* blocks that have waited long enough and are kept for reuse */
static inline void *fxi_spare_malloc_late(size_t bytes, uint32_t waiting)
{
    fxi_spares *s = fxi_own_spares;
    if (!s || s->nlate <= waiting || __atomic_load_n(&fxi_fault_at, __ATOMIC_RELAXED) != -1)
        return fxi_malloc_late(bytes, waiting);
    void **p = s->late; /* not the last one, so `end` stays */
    s->late = p[-1];
    __atomic_store_n(&s->nlate, s->nlate - 1, __ATOMIC_RELAXED);
    return p;
}
static inline void fxi_spare_free_late(void *block, uint32_t waiting, size_t keep)
{
    fxi_spares *s = fxi_own_spares;
    if (!s || s->nlate >= waiting + FXI_MORE_LATE) {
        fxi_free_late(block, waiting, keep);
        return;
    }
    void **p = block;
    *s->end = p;
    s->end = p - 1;
    __atomic_store_n(&s->nlate, s->nlate + 1, __ATOMIC_RELAXED);
}
char *fxi_strdup(const char *s);
/* Grows *array (a pointer to a pointer) to hold `need` elements of `size` bytes, and at least
 * doubles it. False if the allocation fails; nothing has changed then. */
bool fxi_grow(void *array, int32_t *capacity, int32_t need, size_t size);

/* Frees the calling thread's cached blocks. */
void fxi_memory_reclaim(void);
/* Also asks the C library to return its freed memory to the system: otherwise small blocks in use
 * keep most of it. Takes milliseconds for large heaps. */
void fxi_memory_reclaim_all(void);
/* Bytes of blocks that this thread allocated, minus bytes of blocks that it freed, even if another
 * thread allocated them. The difference of two readings is the memory that the work between them
 * keeps. */
int64_t fxi_memory_held_here(void);
size_t fxi_memory_cached(void);        /* bytes of the calling thread's cached blocks */
size_t fxi_memory_cached_by_all(void); /* bytes of the cached blocks of all threads */
/* Adds the counts of all threads (counters.h) to *sum. */
void fxi_memory_counters(fx_counters *sum);

/* Values of a plan begin at multiples of this many bytes: a cache line, and the widest vector
 * register (AVX-512). No value shares a line with another, except values inside the output of a
 * concatenation (plan/inside.c). */
enum { FXI_ARENA_ALIGN = 64 };

/* Checked arithmetic for sizes from the caller. Returns false on overflow. */
static inline bool fxi_mul_size(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool fxi_mul_i64(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}
/* a·b and a + b for sizes ≥ 0 of an array that does not exist yet. A result that is too large for
 * any array becomes FXI_SIZE_CAP, which fxi_node_new refuses; sums of a few such sizes do not
 * overflow. */
#define FXI_SIZE_CAP (INT64_MAX / 16 + 1)
static inline int64_t fxi_mul_sizes(int64_t a, int64_t b)
{
    int64_t product;
    return fxi_mul_i64(a, b, &product) && product < FXI_SIZE_CAP ? product : FXI_SIZE_CAP;
}
static inline int64_t fxi_add_sizes(int64_t a, int64_t b)
{
    return a < FXI_SIZE_CAP - b ? a + b : FXI_SIZE_CAP;
}

/* Test hooks (exported, not part of the API): makes the nth allocation from now fail (−1: none). */
FX_API void fxi_fault_set(int64_t nth);
FX_API int64_t fxi_fault_seen(void); /* allocations counted since fxi_fault_set */
FX_API int64_t fxi_live_allocations(void);

#endif
