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
char *fxi_strdup(const char *s);
/* Grows *array (a pointer to a pointer) to hold `need` elements of `size` bytes, at least doubling
 * it; false when memory is out, and then nothing has changed. */
bool fxi_grow(void *array, int32_t *capacity, int32_t need, size_t size);

/* Gives the calling thread's cached blocks back to the system. */
void fxi_memory_trim(void);
size_t fxi_memory_cached(void);        /* their bytes */
size_t fxi_memory_cached_by_all(void); /* of all threads */
/* Bytes that the machine has and that are free for programs; −1: nobody knows. */
void fxi_memory_of_system(int64_t *out_total, int64_t *out_available);

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
