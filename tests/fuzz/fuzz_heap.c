/* fuzz_heap.c: the heap memory of the process, including the libraries that it uses.
 *
 * With a sanitizer, its hooks count. Otherwise this program has its own malloc and related
 * functions, which count and call glibc's.
 */
#include "fuzz_target.h"

#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>

static _Atomic long long held, most;
static long long start;

static void count(long long bytes)
{
    const long long now = atomic_fetch_add(&held, bytes) + bytes;
    long long before = atomic_load(&most);
    while (now > before && !atomic_compare_exchange_weak(&most, &before, now))
        continue;
}

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define FUZZ_SANITIZED
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FUZZ_SANITIZED
#endif

#ifdef FUZZ_SANITIZED
/* sanitizer/allocator_interface.h, which gcc does not install. */
int __sanitizer_install_malloc_and_free_hooks(void (*on_malloc)(const volatile void *p, size_t n),
                                              void (*on_free)(const volatile void *p));
int __sanitizer_get_ownership(const volatile void *p);
size_t __sanitizer_get_allocated_size(const volatile void *p);

static void on_malloc(const volatile void *p, size_t n)
{
    (void)p;
    count((long long)n);
}

static void on_free(const volatile void *p)
{
    if (p && __sanitizer_get_ownership(p))
        count(-(long long)__sanitizer_get_allocated_size(p));
}

static void install(void)
{
    static bool done;
    if (!done)
        __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free);
    done = true;
}
#else
#define EXPORTED __attribute__((visibility("default")))
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t alignment, size_t n);
void __libc_free(void *p);

static void *counted(void *p)
{
    if (p)
        count((long long)malloc_usable_size(p));
    return p;
}

EXPORTED void *malloc(size_t n)
{
    return counted(__libc_malloc(n));
}
EXPORTED void *calloc(size_t n, size_t size)
{
    return counted(__libc_calloc(n, size));
}
EXPORTED void *realloc(void *p, size_t n)
{
    const long long old = p ? (long long)malloc_usable_size(p) : 0;
    void *q = __libc_realloc(p, n);
    if (q || !n) {
        counted(q); /* both blocks are allocated while the bytes are copied */
        count(-old);
    }
    return q;
}
EXPORTED void *memalign(size_t alignment, size_t n)
{
    return counted(__libc_memalign(alignment, n));
}
EXPORTED void *aligned_alloc(size_t alignment, size_t n)
{
    return counted(__libc_memalign(alignment, n));
}
EXPORTED int posix_memalign(void **out, size_t alignment, size_t n)
{
    void *p = counted(__libc_memalign(alignment, n));
    if (!p)
        return ENOMEM;
    *out = p;
    return 0;
}
EXPORTED void free(void *p)
{
    if (p)
        count(-(long long)malloc_usable_size(p));
    __libc_free(p);
}

static void install(void) {}
#endif

void fuzz_heap_begin(void)
{
    install();
    start = atomic_load(&held);
    atomic_store(&most, start);
}

size_t fuzz_heap_peak(void)
{
    return (size_t)(atomic_load(&most) - start);
}
