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
 * All calls must have the same size, for which fxi_malloc allocates FXI_SPARE_BYTES.
 * Also like fxi_malloc_late and fxi_free_late with FXI_SPARES_WAIT, for one other size: handles of
 * arrays. A thread keeps up to FXI_MOST_LATE of them, of which FXI_SPARES_WAIT wait. */
enum { FXI_MOST_SPARES = 4096, FXI_SPARE_BYTES = 384 };
enum { FXI_MORE_LATE = 1024 }; /* blocks that have waited long enough and are kept for reuse */
enum { FXI_SPARES_WAIT = 256, FXI_MOST_LATE = FXI_SPARES_WAIT + FXI_MORE_LATE };
enum { FXI_SPARE_LATE_BYTES = 64 };
typedef struct fxi_spares {
    void *first;  /* each begins with the address of the next one */
    int64_t n;    /* atomic, because other threads read it */
    int64_t held; /* blocks are taken only while n is larger: 0. INT64_MAX: never; atomic */
    /* The late ones, the oldest first, and the end of that list. The address of the next one is in
     * front of a block. */
    void *late, **end;
    int64_t nlate;     /* atomic */
    int64_t late_held; /* as `held`: FXI_SPARES_WAIT, or INT64_MAX */
} fxi_spares;
/* So that the tests of n and nlate are the only ones, a thread that keeps no blocks has
 * fxi_no_spares, which is never empty enough for a free nor full enough for an allocation; and
 * while a test wants an allocation to fail, nothing is taken from the lists of any thread. */
extern _Thread_local fxi_spares *fxi_own_spares;
extern fxi_spares fxi_no_spares;
static inline void *fxi_spare_malloc(size_t bytes)
{
    fxi_spares *s = fxi_own_spares;
    const int64_t n = s->n;
    if (n <= __atomic_load_n(&s->held, __ATOMIC_RELAXED))
        return fxi_malloc(bytes);
    void *p = s->first;
    s->first = *(void **)p;
    __atomic_store_n(&s->n, n - 1, __ATOMIC_RELAXED);
    return p;
}
static inline void fxi_spare_free(void *p)
{
    fxi_spares *s = fxi_own_spares;
    const int64_t n = s->n;
    if (n >= FXI_MOST_SPARES) {
        fxi_free(p);
        return;
    }
    *(void **)p = s->first;
    s->first = p;
    __atomic_store_n(&s->n, n + 1, __ATOMIC_RELAXED);
}
/* May a late block be taken, or added? If not, use fxi_malloc_late or fxi_free_late. */
static inline bool fxi_spares_have_late(const fxi_spares *s)
{
    return s->nlate > __atomic_load_n(&s->late_held, __ATOMIC_RELAXED);
}
static inline bool fxi_spares_want_late(const fxi_spares *s)
{
    return s->nlate < FXI_MOST_LATE;
}
static inline void *fxi_spares_take_late(fxi_spares *s)
{
    void **p = s->late; /* not the last one, so `end` stays */
    s->late = p[-1];
    __atomic_store_n(&s->nlate, s->nlate - 1, __ATOMIC_RELAXED);
    return p;
}
static inline void fxi_spares_add_late(fxi_spares *s, void *block)
{
    void **p = block;
    *s->end = p;
    s->end = p - 1;
    __atomic_store_n(&s->nlate, s->nlate + 1, __ATOMIC_RELAXED);
}
/* From now on no thread keeps such blocks. To be called before there are other threads. */
void fxi_memory_no_spares(void);
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
