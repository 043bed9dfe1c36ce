/* memory.c: host memory: counted, able to fail on demand, and cached by thread. See memory.h.
 *
 * A training step makes and drops the same sizes again and again, so freed blocks go to the calling
 * thread's lists by size class (two classes an octave) and come back without a call of the system.
 * In the steady state a step makes none. Every block has a header in front of it that says its
 * class and where the system's block begins. A thread caches at most 64 MiB, or half of the most
 * array memory that was ever live if that is more; beyond it, blocks of other sizes go back to the
 * system first.
 *
 * Blocks of 4 MiB and more are aligned to huge pages and ask for them: the first touch of fresh
 * memory costs a third. Under AddressSanitizer nothing is cached, so that it sees every use after
 * free.
 */
#include "memory.h"
#include "counters.h"
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
enum { MORE_LATE = 1024 }; /* blocks that have waited long enough and are kept for the next */
static const size_t HUGE_BYTES = (size_t)4 << 20, HUGE_PAGE = (size_t)2 << 20;
static const size_t CACHE_BYTES = (size_t)64 << 20;

typedef struct header { /* 16 bytes directly in front of what the caller gets */
    uint32_t offset;    /* from the system's block */
    uint16_t size_class, aligned;
    union {
        size_t capacity;     /* while it is handed out, and nothing is cached */
        struct header *next; /* while it is in a list */
    } u;
} header;

typedef struct cache {
    header *lists[2][CLASSES];
    size_t bytes;
    int64_t live;          /* blocks handed out less blocks taken back by this thread */
    int64_t held;          /* their bytes; other threads do not read it */
    header *late, *latest; /* blocks that wait, the oldest first */
    uint32_t nlate;
    struct cache *next, *prev;
} cache;

/* The thread's, made when it is first needed. */
static _Thread_local cache *mine;
static fxi_mutex lock = FXI_MUTEX_INIT;
static cache *all;      /* of living threads */
static int64_t retired; /* live count of threads that ended */
static int64_t without; /* live count of blocks handled while a thread had no cache (atomic) */
static fxi_thread_value exit_key;
static fxi_once once = FXI_ONCE_INIT;
static int64_t fault_at = -1, fault_seen;

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
    if (__builtin_expect(bytes <= 512, 1))
        return small[(bytes + 7) / 8];
    const int octave =
        63 - __builtin_clzll((unsigned long long)(bytes - 1)); /* 2^octave < bytes ≤ 2^(octave+1) */
    return 2 * (octave - 4) + (bytes > ((size_t)3 << (octave - 1)) ? 2 : 1);
}

static header *header_of(void *p)
{
    return (header *)p - 1;
}
/* To the system. */
static void free_block(header *h)
{
    fxi_system_free((char *)(h + 1) - h->offset, h->aligned);
}

/* Under AddressSanitizer, reads of what a waiting block held are reported. Nothing undoes this:
 * without caching a block that has waited goes back to the system. */
static void cover(header *h, size_t keep)
{
#if CACHING
    (void)h, (void)keep;
#else
    if (h->u.capacity > keep)
        ASAN_POISON_MEMORY_REGION((char *)(h + 1) + keep, h->u.capacity - keep);
#endif
}

/* ---- threads --------------------------------------------------------------------------------- */

/* Other threads read it. */
static inline void set_bytes(cache *c, size_t bytes)
{
    __atomic_store_n(&c->bytes, bytes, __ATOMIC_RELAXED);
}

static header *pop_late(cache *c)
{
    header *h = c->late;
    c->late = h->u.next;
    c->nlate--;
    return h;
}

static void release_late(cache *c)
{
    while (c->late)
        free_block(pop_late(c));
}

static void release_lists(cache *c)
{
    for (int kind = 0; kind < 2; kind++)
        for (int i = 0; i < CLASSES; i++)
            while (c->lists[kind][i]) {
                header *h = c->lists[kind][i];
                c->lists[kind][i] = h->u.next;
                free_block(h);
            }
    set_bytes(c, 0);
}

static void close_cache(void *p)
{
    cache *c = p;
    release_late(c);
    release_lists(c);
    fxi_mutex_lock(&lock);
    *(c->prev ? &c->prev->next : &all) = c->next;
    if (c->next)
        c->next->prev = c->prev;
    retired += c->live;
    fxi_mutex_unlock(&lock);
    mine = NULL;
    free(c);
}

static void make_key(void)
{
    fxi_thread_value_init(&exit_key, close_cache);
}
__attribute__((destructor(101))) static void close_at_exit(void)
{
    if (mine) {
        release_late(mine);
        release_lists(mine);
    }
}

/* NULL if there is no memory for a cache: the thread then works without one and tries again at its
 * next call. */
static __attribute__((noinline)) cache *register_cache(void)
{
    cache *c = calloc(1, sizeof *c);
    fxi_call_once(&once, make_key);
    if (!c || !fxi_thread_value_set(exit_key, c)) {
        free(c);
        return NULL;
    }
    fxi_mutex_lock(&lock);
    c->next = all;
    if (all)
        all->prev = c;
    all = c;
    fxi_mutex_unlock(&lock);
    return mine = c;
}

static inline cache *my_cache(void)
{
    return __builtin_expect(mine != NULL, 1) ? mine : register_cache();
}

static inline void count_live(cache *c, int64_t by)
{
    if (__builtin_expect(c != NULL, 1))
        __atomic_store_n(&c->live, c->live + by, __ATOMIC_RELAXED);
    else
        __atomic_fetch_add(&without, by, __ATOMIC_RELAXED);
}

void fxi_memory_trim(void)
{
    if (mine)
        release_lists(mine);
}

size_t fxi_memory_cached(void)
{
    return mine ? mine->bytes : 0;
}

int64_t fxi_memory_held_here(void)
{
    return mine ? mine->held : 0;
}

void fxi_memory_give_back(void)
{
    fxi_memory_trim();
    fxi_system_memory_trim();
}

size_t fxi_memory_cached_by_all(void)
{
    size_t n = 0;
    fxi_mutex_lock(&lock);
    for (const cache *c = all; c; c = c->next)
        n += __atomic_load_n(&c->bytes, __ATOMIC_RELAXED);
    fxi_mutex_unlock(&lock);
    return n;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static size_t capacity_of(const header *h)
{
    return CACHING ? class_bytes(h->size_class) : h->u.capacity;
}

static __attribute__((noinline)) bool counted_fault(void)
{
    const int64_t n = __atomic_fetch_add(&fault_seen, 1, __ATOMIC_RELAXED);
    return n == __atomic_load_n(&fault_at, __ATOMIC_RELAXED);
}

/* True when this allocation is the one a test wants to fail. */
static inline bool fault(void)
{
    return __builtin_expect(__atomic_load_n(&fault_at, __ATOMIC_RELAXED) != -1, 0) &&
           counted_fault();
}

static header *from_system(int size_class, size_t bytes, size_t alignment, bool aligned)
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
        fxi_system_huge_pages(
            (void *)(((uintptr_t)base + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1)),
            bytes - bytes % HUGE_PAGE);
    header *h = (header *)(void *)((char *)base + front) - 1;
    h->offset = (uint32_t)front;
    h->size_class = (uint16_t)size_class;
    h->aligned = aligned;
    return h;
}

static void *hand_out(cache *c, header *h)
{
    count_live(c, 1);
    if (c)
        c->held += (int64_t)class_bytes(h->size_class);
    return h + 1;
}

static __attribute__((noinline)) void *take_new(cache *c, size_t bytes, size_t alignment,
                                                bool aligned)
{
    const int k = class_of(bytes);
    if (k >= CLASSES)
        return NULL;
    header *h = from_system(k, CACHING ? class_bytes(k) : bytes, alignment, aligned);
    if (!h)
        return NULL;
    h->u.capacity = bytes;
    return hand_out(c, h);
}

static inline void *take(size_t bytes, size_t alignment, bool aligned)
{
    if (fault())
        return NULL;
    const int k = class_of(bytes);
    cache *c = my_cache();
    header *h = CACHING && c && alignment <= ALIGNED && k < CLASSES ? c->lists[aligned][k] : NULL;
    if (!h)
        return take_new(c, bytes, alignment, aligned);
    c->lists[aligned][k] = h->u.next;
    set_bytes(c, c->bytes - class_bytes(k));
    return hand_out(c, h);
}

/* A quarter of the peak would not hold the result of a step that makes one large array of another:
 * it would be fresh memory at every step, 4 to 6 % of the time of a transpose or a long chain. */
static size_t cache_limit(void)
{
    const int64_t half = __atomic_load_n(&fxi_counters.peak_bytes, __ATOMIC_RELAXED) / 2;
    return (size_t)half > CACHE_BYTES ? (size_t)half : CACHE_BYTES;
}

/* Room for one more block of a class: blocks of other classes go, the largest first, so that sizes
 * that are no longer used do not keep out those that are. */
static bool make_room(cache *c, int aligned, int size_class)
{
    const size_t bytes = class_bytes(size_class), limit = cache_limit();
    for (int k = CLASSES - 1; k >= 0 && bytes <= limit; k--)
        for (int kind = 0; kind < 2; kind++) {
            header **list = &c->lists[kind][k];
            while (*list && c->bytes + bytes > limit && (kind != aligned || k != size_class)) {
                header *h = *list;
                *list = h->u.next;
                set_bytes(c, c->bytes - class_bytes(k));
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

static inline void taken_back(cache *c, const header *h)
{
    count_live(c, -1);
    if (c)
        c->held -= (int64_t)class_bytes(h->size_class);
}

/* To the lists, or to the system. */
static inline void put_away(cache *c, header *h)
{
    const size_t bytes = class_bytes(h->size_class);
    if (!CACHING || !c || __builtin_expect(h->offset > ALIGNED, 0) ||
        (__builtin_expect(c->bytes + bytes > CACHE_BYTES, 0) &&
         !make_room(c, h->aligned, h->size_class))) {
        free_block(h);
        return;
    }
    h->u.next = c->lists[h->aligned][h->size_class];
    c->lists[h->aligned][h->size_class] = h;
    set_bytes(c, c->bytes + bytes);
}

void fxi_free(void *p)
{
    if (!p)
        return;
    cache *c = my_cache();
    taken_back(c, header_of(p));
    put_away(c, header_of(p));
}

void *fxi_malloc_late(size_t bytes, uint32_t waiting)
{
    cache *c = my_cache();
    if (!CACHING || !c || c->nlate <= waiting || c->late->size_class != class_of(bytes))
        return fxi_malloc(bytes);
    return fault() ? NULL : hand_out(c, pop_late(c));
}

void fxi_free_late(void *p, uint32_t waiting, size_t keep)
{
    cache *c = my_cache();
    if (!c) {
        fxi_free(p);
        return;
    }
    header *h = header_of(p);
    taken_back(c, h);
    cover(h, keep);
    h->u.next = NULL;
    *(c->late ? &c->latest->u.next : &c->late) = h;
    c->latest = h;
    if (__builtin_expect(++c->nlate > waiting + (CACHING ? MORE_LATE : 0), 0))
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
    __atomic_store_n(&fault_seen, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&fault_at, nth, __ATOMIC_RELAXED);
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
        n += __atomic_load_n(&c->live, __ATOMIC_RELAXED);
    fxi_mutex_unlock(&lock);
    return n;
}
