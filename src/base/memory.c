/* memory.c: allocates host memory: counted, able to fail on demand, and cached by thread. See
 * memory.h.
 *
 * A training step allocates and frees the same sizes again and again. So freed blocks are kept in
 * lists of the calling thread, by size class (two classes for each power of two), and are used
 * again. In the steady state a training step allocates nothing from the system. A header in front
 * of each block holds its class and the offset of the system's block.
 *
 * A thread caches at most 64 MiB, or half of the peak of live array memory if that is more. Beyond
 * that, blocks of other sizes are returned to the system first. Blocks of 4 MiB and more ask for
 * huge pages while these are fast (huge_pages.h); those of fxi_aligned are aligned to huge pages.
 * Under AddressSanitizer nothing is cached, so that it sees every use after free.
 */
#include "memory.h"
#include "counters.h"
#include "huge_pages.h"
#include "system_memory.h"
#include "thread.h"

#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#define CACHING 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(memory_sanitizer)
#define CACHING 0
#endif
#endif
#ifndef CACHING
#define CACHING 1
#else
#include <sanitizer/asan_interface.h>
#endif

enum { CLASSES = 96, PLAIN = 16, ALIGNED = 64 };
enum { LISTS = 2 * CLASSES }; /* plain blocks by class, then aligned ones */
enum { SMALL = 512 };         /* bytes; the classes of smaller sizes are in a table */
static const size_t HUGE_BYTES = (size_t)4 << 20, HUGE_PAGE = (size_t)2 << 20;
static const size_t CACHE_BYTES = (size_t)64 << 20;

typedef struct header { /* 16 bytes directly in front of the caller's block */
    uint32_t offset;    /* from the system's block */
    uint16_t list;      /* number of the list it belongs to */
    bool aligned;
    union {
        size_t capacity;     /* while it is in use and caching is off */
        struct header *next; /* while it is in a list */
    } u;
} header;

/* Cached blocks of one size. */
typedef struct list {
    header *first;
    size_t bytes; /* of each block */
} list;

typedef struct cache {
    list lists[LISTS];
    size_t bytes;
    int64_t live;        /* blocks that this thread allocated, minus those it freed */
    int64_t held;        /* their bytes; not read by other threads */
    header *late, **end; /* waiting blocks, the oldest first, and the end of that list */
    uint32_t nlate;
    fxi_spares spares;  /* `live` and `held` count them as allocated */
    fx_counters counts; /* of the thread (counters.h) */
    struct cache *next, *prev;
} cache;

/* The cache of the thread, created on first use. */
static _Thread_local cache *mine;
/* Never written. */
fxi_spares fxi_no_spares = {
    .n = FXI_MOST_SPARES, .held = INT64_MAX, .nlate = FXI_MOST_LATE, .late_held = INT64_MAX};
_Thread_local fxi_spares *fxi_own_spares = &fxi_no_spares; /* of `mine` */
/* Spare blocks are kept only where a node is known to take FXI_SPARE_BYTES (node.h): with 64-bit
 * addresses. */
static bool sparing = CACHING && sizeof(void *) == 8;
static fxi_mutex lock = FXI_MUTEX_INIT;
static cache *all;      /* caches of running threads */
static int64_t retired; /* live count of threads that ended */
static int64_t without; /* live count of blocks of threads without a cache (atomic) */
static fxi_thread_value exit_key;
static fxi_once once = FXI_ONCE_INIT;
static int64_t fault_at = -1; /* −1: no allocation is to fail; atomic */
static int64_t fault_seen;

/* ---- size classes ---------------------------------------------------------------------------- */

/* 16, 24, 32, 48, 64, 96, … bytes. */
static inline size_t class_bytes(int c)
{
    return (size_t)(c % 2 ? 24 : 16) << ((unsigned)c / 2);
}

static inline int class_of(size_t bytes)
{
#define TIMES4(c) c, c, c, c
    static const uint8_t small[] = {
        /* by words of 8 bytes, rounded up */
        0,         0,         0,         1,          2,          3,          3,         4,
        4,         TIMES4(5), TIMES4(6), TIMES4(7),  TIMES4(7),  TIMES4(8),  TIMES4(8), TIMES4(9),
        TIMES4(9), TIMES4(9), TIMES4(9), TIMES4(10), TIMES4(10), TIMES4(10), TIMES4(10)};
#undef TIMES4
    if (__builtin_expect(bytes <= SMALL, 1))
        return small[(bytes + 7) / 8];
    const int octave =
        63 - __builtin_clzll((unsigned long long)(bytes - 1)); /* 2^octave < bytes ≤ 2^(octave+1) */
    return 2 * (octave - 4) + (bytes > ((size_t)3 << (octave - 1)) ? 2 : 1);
}

static header *header_of(void *p)
{
    return (header *)p - 1;
}
/* Returns a block to the system. */
static void free_block(header *h)
{
    fxi_system_free((char *)(h + 1) - h->offset, h->aligned);
}

/* Makes AddressSanitizer report reads of a waiting block. Nothing has to undo this: with
 * AddressSanitizer nothing is cached, so a block that has waited is returned to the system. */
static void cover(header *h, size_t keep)
{
#if CACHING
    (void)h, (void)keep;
#else
    if (h->u.capacity > keep)
        ASAN_POISON_MEMORY_REGION((char *)(h + 1) + keep, h->u.capacity - keep);
#endif
}

/* Does a test want an allocation to fail? */
static inline bool faults(void)
{
    return __builtin_expect(__atomic_load_n(&fault_at, __ATOMIC_RELAXED) != -1, 0);
}

/* ---- threads --------------------------------------------------------------------------------- */

/* Atomic, because other threads read it. */
static inline void set_bytes(cache *c, size_t bytes)
{
    __atomic_store_n(&c->bytes, bytes, __ATOMIC_RELAXED);
}

static inline header *pop_late(cache *c)
{
    header *h = c->late;
    c->late = h->u.next;
    if (--c->nlate == 0)
        c->end = &c->late;
    return h;
}

static void reclaim_late(cache *c)
{
    while (c->late)
        free_block(pop_late(c));
}

static void reclaim_lists(cache *c)
{
    for (int i = 0; i < LISTS; i++)
        while (c->lists[i].first) {
            header *h = c->lists[i].first;
            c->lists[i].first = h->u.next;
            free_block(h);
        }
    set_bytes(c, 0);
}

/* The calling thread's spare blocks become cached ones. */
static void reclaim_spares(cache *c)
{
    while (c->spares.first) {
        void *p = c->spares.first;
        c->spares.first = *(void **)p;
        fxi_free(p);
    }
    __atomic_store_n(&c->spares.n, 0, __ATOMIC_RELAXED);
}

static void reclaim_waiting_spares(cache *c)
{
    for (int64_t n = c->spares.nlate; n > 0; n--) {
        void **p = c->spares.late;
        c->spares.late = p[-1];
        fxi_free(p);
    }
    __atomic_store_n(&c->spares.nlate, 0, __ATOMIC_RELAXED);
    c->spares.end = &c->spares.late;
}

static size_t spare_bytes(const cache *c)
{
    return (size_t)__atomic_load_n(&c->spares.n, __ATOMIC_RELAXED) * FXI_SPARE_BYTES;
}

static void close_cache(void *p)
{
    cache *c = p;
    reclaim_spares(c);
    reclaim_waiting_spares(c);
    reclaim_late(c);
    reclaim_lists(c);
    fxi_mutex_lock(&lock);
    *(c->prev ? &c->prev->next : &all) = c->next;
    if (c->next)
        c->next->prev = c->prev;
    retired += c->live;
    fxi_counters_add(&fxi_counters, &c->counts);
    fxi_mutex_unlock(&lock);
    mine = NULL;
    fxi_own_spares = &fxi_no_spares;
    fxi_own_counters = NULL;
    free(c);
}

/* Nothing is taken from the lists while a test wants an allocation to fail. */
static void hold_spares(cache *c, bool all_blocks)
{
    __atomic_store_n(&c->spares.held, all_blocks ? INT64_MAX : 0, __ATOMIC_RELAXED);
    __atomic_store_n(&c->spares.late_held, all_blocks ? INT64_MAX : FXI_SPARES_WAIT,
                     __ATOMIC_RELAXED);
}

void fxi_memory_no_spares(void)
{
    sparing = false;
    fxi_own_spares = &fxi_no_spares;
    if (mine) {
        reclaim_spares(mine);
        reclaim_waiting_spares(mine);
    }
}

static void make_key(void)
{
    fxi_thread_value_init(&exit_key, close_cache);
}
__attribute__((destructor(101))) static void close_at_exit(void)
{
    if (mine) {
        reclaim_spares(mine);
        reclaim_waiting_spares(mine);
        reclaim_late(mine);
        reclaim_lists(mine);
    }
}

/* NULL if the allocation fails: the thread works without a cache and tries again at its next call.
 */
static __attribute__((noinline)) cache *register_cache(void)
{
    cache *c = calloc(1, sizeof *c);
    fxi_call_once(&once, make_key);
    if (!c || !fxi_thread_value_set(exit_key, c)) {
        free(c);
        return NULL;
    }
    for (int i = 0; i < LISTS; i++)
        c->lists[i].bytes = class_bytes(i % CLASSES);
    c->end = &c->late;
    c->spares.end = &c->spares.late;
    fxi_mutex_lock(&lock);
    c->next = all;
    if (all)
        all->prev = c;
    all = c;
    hold_spares(c, faults());
    fxi_mutex_unlock(&lock);
    fxi_own_spares = sparing ? &c->spares : &fxi_no_spares;
    fxi_own_counters = &c->counts;
    return mine = c;
}

static inline cache *my_cache(void)
{
    return __builtin_expect(mine != NULL, 1) ? mine : register_cache();
}

/* Counts a block that was allocated (by: 1) or freed (−1). */
static inline void count_live(cache *c, int by, size_t bytes)
{
    if (__builtin_expect(c == NULL, 0)) {
        __atomic_fetch_add(&without, by, __ATOMIC_RELAXED);
        return;
    }
    __atomic_store_n(&c->live, c->live + by, __ATOMIC_RELAXED);
    c->held += by * (int64_t)bytes;
}

void fxi_memory_reclaim(void)
{
    if (!mine)
        return;
    reclaim_spares(mine);
    reclaim_lists(mine);
}

size_t fxi_memory_cached(void)
{
    return mine ? mine->bytes + spare_bytes(mine) : 0;
}

int64_t fxi_memory_held_here(void)
{
    return mine
               ? mine->held - (int64_t)spare_bytes(mine) - mine->spares.nlate * FXI_SPARE_LATE_BYTES
               : 0;
}

void fxi_memory_reclaim_all(void)
{
    fxi_memory_reclaim();
    fxi_system_memory_reclaim();
}

size_t fxi_memory_cached_by_all(void)
{
    size_t n = 0;
    fxi_mutex_lock(&lock);
    for (const cache *c = all; c; c = c->next)
        n += __atomic_load_n(&c->bytes, __ATOMIC_RELAXED) + spare_bytes(c);
    fxi_mutex_unlock(&lock);
    return n;
}

/* Under the lock, so that a thread that ends is counted once. */
void fxi_memory_counters(fx_counters *sum)
{
    fxi_mutex_lock(&lock);
    fxi_counters_add(sum, &fxi_counters);
    for (const cache *c = all; c; c = c->next)
        fxi_counters_add(sum, &c->counts);
    fxi_mutex_unlock(&lock);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static size_t capacity_of(const header *h)
{
    return CACHING ? class_bytes(h->list % CLASSES) : h->u.capacity;
}

static __attribute__((noinline)) bool counted_fault(void)
{
    const int64_t n = __atomic_fetch_add(&fault_seen, 1, __ATOMIC_RELAXED);
    return n == __atomic_load_n(&fault_at, __ATOMIC_RELAXED);
}

/* Must this allocation fail? Counts allocations while a test wants one to fail. */
static inline bool fault(void)
{
    return faults() && counted_fault();
}

/* Requests huge pages for the first bytes of a block. */
static void request_huge_pages(void *base, size_t bytes)
{
    static fxi_huge_pages state;
    static const fxi_huge_pages_calls calls = {fxi_system_huge_pages, fxi_system_try_huge_page};
    const uintptr_t end = (uintptr_t)base + bytes;
    const uintptr_t first = ((uintptr_t)base + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1);
    fxi_huge_pages_request(&state, &calls, (void *)first, (end - first) & ~(HUGE_PAGE - 1));
}

/* `used`: the part of the bytes that the caller asked for. */
static header *from_system(int number, size_t bytes, size_t used, size_t alignment, bool aligned)
{
    const size_t front = aligned ? (alignment > ALIGNED ? alignment : ALIGNED) : PLAIN;
    if (bytes > SIZE_MAX - front)
        return NULL;
    fxi_count(&fxi_counters.allocations, 1);
    const size_t beginning = !aligned ? 0 : bytes >= HUGE_BYTES ? HUGE_PAGE : front;
    void *base = fxi_system_alloc(beginning, front + bytes);
    if (!base)
        return NULL;
    if (bytes >= HUGE_BYTES)
        request_huge_pages(base, front + used);
    header *h = (header *)(void *)((char *)base + front) - 1;
    h->offset = (uint32_t)front;
    h->list = (uint16_t)number;
    h->aligned = aligned;
    return h;
}

static void *take_new(cache *c, int size_class, size_t bytes, size_t alignment, bool aligned)
{
    const size_t whole = class_bytes(size_class);
    header *h = from_system(size_class + aligned * CLASSES, CACHING ? whole : bytes, bytes,
                            alignment, aligned);
    if (!h)
        return NULL;
    h->u.capacity = bytes;
    count_live(c, 1, whole);
    return h + 1;
}

static inline void *pop(cache *c, list *l)
{
    header *h = l->first;
    l->first = h->u.next;
    set_bytes(c, c->bytes - l->bytes);
    count_live(c, 1, l->bytes);
    return h + 1;
}

static __attribute__((noinline)) void *take_any(size_t bytes, size_t alignment, bool aligned)
{
    const int k = class_of(bytes);
    if (fault() || k >= CLASSES)
        return NULL;
    cache *c = my_cache();
    list *l = CACHING && c && alignment <= ALIGNED ? &c->lists[k + aligned * CLASSES] : NULL;
    return l && l->first ? pop(c, l) : take_new(c, k, bytes, alignment, aligned);
}

/* Like take_any, but small cached blocks need no function call. */
static inline void *take(size_t bytes, size_t alignment, bool aligned)
{
    cache *c = mine;
    if (CACHING && c && bytes <= SMALL && alignment <= ALIGNED && !faults()) {
        list *l = &c->lists[class_of(bytes) + aligned * CLASSES];
        if (l->first)
            return pop(c, l);
    }
    return take_any(bytes, alignment, aligned);
}

/* Half of the peak. A quarter would not hold the result of a step that makes one large array from
 * another: fresh memory in every run then costs 4 to 6 % of the time of a transpose or a long
 * chain. */
static size_t cache_limit(void)
{
    const int64_t half = __atomic_load_n(&fxi_counters.peak_bytes, __ATOMIC_RELAXED) / 2;
    return (size_t)half > CACHE_BYTES ? (size_t)half : CACHE_BYTES;
}

/* Frees blocks of other classes, the largest first, until the limit permits one more block of this
 * class. Otherwise blocks of sizes that are no longer used would fill the cache. */
static bool reclaim_others(cache *c, const list *wanted)
{
    const size_t bytes = wanted->bytes, limit = cache_limit();
    for (int k = CLASSES - 1; k >= 0 && bytes <= limit; k--)
        for (int kind = 0; kind < 2; kind++) {
            list *l = &c->lists[k + kind * CLASSES];
            while (l->first && c->bytes + bytes > limit && l != wanted) {
                header *h = l->first;
                l->first = h->u.next;
                set_bytes(c, c->bytes - l->bytes);
                free_block(h);
            }
        }
    return c->bytes + bytes <= limit;
}

void *fxi_malloc(size_t bytes)
{
    return take(bytes, 0, false);
}

void *fxi_calloc(size_t count, size_t size)
{
    size_t bytes;
    void *p = fxi_mul_size(count, size, &bytes) ? take(bytes, 0, false) : NULL;
    return p ? memset(p, 0, bytes) : NULL;
}

void *fxi_aligned(size_t alignment, size_t bytes)
{
    return take(bytes, alignment, true);
}

void *fxi_realloc(void *p, size_t bytes)
{
    if (!p)
        return fxi_malloc(bytes);
    const size_t old = capacity_of(header_of(p));
    if (bytes <= old)
        return fault() ? NULL : p;
    void *q = fxi_malloc(bytes);
    if (!q)
        return NULL;
    memcpy(q, p, old);
    fxi_free(p);
    return q;
}

static inline void push(cache *c, list *l, header *h)
{
    h->u.next = l->first;
    l->first = h;
    set_bytes(c, c->bytes + l->bytes);
}

/* Puts a block into its list, or returns it to the system. */
static void put_away(cache *c, header *h)
{
    list *l = CACHING && c && h->offset <= ALIGNED ? &c->lists[h->list] : NULL;
    if (l && (c->bytes + l->bytes <= CACHE_BYTES || reclaim_others(c, l)))
        push(c, l, h);
    else
        free_block(h);
}

static __attribute__((noinline)) void free_any(header *h)
{
    cache *c = my_cache();
    count_live(c, -1, class_bytes(h->list % CLASSES));
    put_away(c, h);
}

void fxi_free(void *p)
{
    if (!p)
        return;
    header *h = header_of(p);
    cache *c = mine;
    list *l = CACHING && c && h->offset <= ALIGNED ? &c->lists[h->list] : NULL;
    if (!l || c->bytes + l->bytes > CACHE_BYTES) {
        free_any(h);
        return;
    }
    count_live(c, -1, l->bytes);
    push(c, l, h);
}

/* The oldest waiting block h has another size. It moves to its list, so that the next waiting block
 * can serve the next call. Few blocks then wait longer than they must, and the blocks in use stay
 * in the processor's cache. */
static __attribute__((noinline)) void *malloc_other(cache *c, header *h, size_t bytes)
{
    put_away(c, h);
    return fxi_malloc(bytes);
}

void *fxi_malloc_late(size_t bytes, uint32_t waiting)
{
    cache *c = mine;
    if (!CACHING || !c || c->nlate <= waiting || faults())
        return fxi_malloc(bytes);
    header *h = pop_late(c);
    if (h->list != class_of(bytes))
        return malloc_other(c, h, bytes);
    count_live(c, 1, c->lists[h->list].bytes);
    return h + 1;
}

static __attribute__((noinline)) void free_late_first(void *p, uint32_t waiting, size_t keep)
{
    if (register_cache())
        fxi_free_late(p, waiting, keep);
    else
        fxi_free(p);
}

void fxi_free_late(void *p, uint32_t waiting, size_t keep)
{
    cache *c = mine;
    if (__builtin_expect(!c, 0)) {
        free_late_first(p, waiting, keep);
        return;
    }
    header *h = header_of(p);
    count_live(c, -1, c->lists[h->list].bytes);
    cover(h, keep);
    h->u.next = NULL;
    *c->end = h;
    c->end = &h->u.next;
    if (__builtin_expect(++c->nlate > waiting + (CACHING ? FXI_MORE_LATE : 0), 0))
        put_away(c, pop_late(c));
}

char *fxi_strdup(const char *s)
{
    const size_t n = strlen(s) + 1;
    char *copy = fxi_malloc(n);
    return copy ? memcpy(copy, s, n) : NULL;
}

bool fxi_grow(void *array, int32_t *capacity, int32_t need, size_t size)
{
    if (need <= *capacity)
        return true;
    int64_t grown = *capacity ? 2 * (int64_t)*capacity : 64;
    if (grown < need)
        grown = need;
    void **at = array;
    void *p = grown > INT32_MAX ? NULL : fxi_realloc(*at, (size_t)grown * size);
    if (!p)
        return false;
    *at = p;
    *capacity = (int32_t)grown;
    return true;
}

/* ---- tests ----------------------------------------------------------------------------------- */

void fxi_fault_set(int64_t nth)
{
    fxi_mutex_lock(&lock);
    __atomic_store_n(&fault_seen, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&fault_at, nth, __ATOMIC_RELAXED);
    for (cache *c = all; c; c = c->next)
        hold_spares(c, nth != -1);
    fxi_mutex_unlock(&lock);
}

int64_t fxi_fault_seen(void)
{
    return __atomic_load_n(&fault_seen, __ATOMIC_RELAXED);
}

int64_t fxi_live_allocations(void)
{
    fxi_mutex_lock(&lock);
    int64_t n = retired + __atomic_load_n(&without, __ATOMIC_RELAXED);
    for (const cache *c = all; c; c = c->next)
        n += __atomic_load_n(&c->live, __ATOMIC_RELAXED) -
             __atomic_load_n(&c->spares.n, __ATOMIC_RELAXED) -
             __atomic_load_n(&c->spares.nlate, __ATOMIC_RELAXED);
    fxi_mutex_unlock(&lock);
    return n;
}
