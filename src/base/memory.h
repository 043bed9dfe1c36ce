/* memory.h: the one place from which the library takes host memory.
 *
 * All of cflux allocates here, so that tests can fail the n-th allocation and count the live ones.
 * Failure is an error like any other: callers check for NULL and report FX_STATUS_MEMORY.
 */
#ifndef CFLUX_MEMORY_H
#define CFLUX_MEMORY_H

#include <cflux/base.h>

void *fxi_malloc(size_t bytes);
void *fxi_calloc(size_t count, size_t size); /* zeroed; NULL when count·size overflows */
void *fxi_realloc(void *p, size_t bytes);
void *fxi_aligned(size_t alignment, size_t bytes); /* alignment a power of two; freed by fxi_free */
void fxi_free(void *p);
/* Frees a block whose first `keep` bytes stay as they are until `waiting` others have been freed
 * that way by the calling thread (the same number in all calls). It counts as freed at once.
 * fxi_malloc_late is fxi_malloc, faster for the sizes of such blocks. */
void fxi_free_late(void *p, uint32_t waiting, size_t keep);
void *fxi_malloc_late(size_t bytes, uint32_t waiting);
char *fxi_strdup(const char *s);
/* Grows *array (a pointer to a pointer) to hold `need` elements of `size` bytes, at least doubling
 * it; false when memory is out, and then nothing has changed. */
bool fxi_grow(void *array, int32_t *capacity, int32_t need, size_t size);

/* Frees the calling thread's cached blocks. */
void fxi_memory_reclaim(void);
/* The same, and the allocator of the system returns what it keeps of freed memory: without that,
 * small blocks that are still in use hold most of it. Takes milliseconds for large heaps. */
void fxi_memory_reclaim_all(void);
/* Bytes of blocks that this thread took less bytes of blocks that it freed, whoever took them:
 * the difference of two readings is what the work between them keeps. */
int64_t fxi_memory_held_here(void);
size_t fxi_memory_cached(void);        /* their bytes */
size_t fxi_memory_cached_by_all(void); /* of all threads */

/* Checked arithmetic on sizes that come from outside. Returns false on overflow. */
static inline bool fxi_mul_size(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool fxi_mul_i64(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

/* Test hooks (exported, not part of the API): the allocation with this number from now fails (−1:
 * none). */
FX_API void fxi_fault_set(int64_t nth);
FX_API int64_t fxi_fault_seen(void); /* allocations counted since fxi_fault_set */
FX_API int64_t fxi_live_allocations(void);

#endif
