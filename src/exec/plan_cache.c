/* plan_cache.c: keeps the plans of this process, so that a graph is planned once and a training
 * loop only runs.
 *
 * The hash finds the bucket; the whole key is compared, so equal hashes never give a wrong plan. If
 * there are too many plans, or they take too much memory, the least recently used one is evicted.
 * With FX_TRACE=plan,miss every new plan is reported, with the first difference from the most
 * recently used plan with the same number of nodes.
 */
#include "counters.h"
#include "planning.h"
#include "pool.h"
#include "run.h"
#include "thread.h"

#include <stdio.h>
#include <string.h>

/* The FEWEST most recently used plans stay, however large: a program that alternates between a few
 * large graphs must not plan each of them again. MAX_PLANS bounds programs whose sizes never
 * repeat. */
enum { BUCKETS = 1024, MAX_PLANS = 512, FEWEST = 8 };
/* Bytes. Plans of a small program need less, so all are kept. */
static const int64_t MAX_BYTES = (int64_t)32 << 20;

/* One lock for all threads. It is held for a lookup or an insertion, never while a plan is built.
 * Plans are linked by bucket, and by the order of their last use. */
static struct {
    fxi_mutex lock;
    fxi_plan *bucket[BUCKETS];
    fxi_plan *newest; /* atomic, because fxi_plan_again reads it without the lock */
    fxi_plan *oldest;
    int32_t count;
    int64_t bytes;
} cache = {.lock = FXI_MUTEX_INIT};

/* ---- trace ----------------------------------------------------------------------------------- */

/* Writes operation, type and sizes of a node's record; graph.h describes the words. */
static void record_text(const uint64_t *w, char *text, size_t capacity)
{
    const int op = (int)(w[0] & 255), ndim = (int)(w[0] >> 16 & 255), nin = (int)(w[0] >> 32);
    const uint64_t *shape = w + 1 + (nin + 1) / 2;
    size_t n = (size_t)snprintf(text, capacity, "%s %s", fxi_ops[op].name,
                                fx_dtype_name((fx_dtype)(w[0] >> 8 & 255)));
    for (int i = 0; i < ndim && n < capacity; i++)
        n += (size_t)snprintf(text + n, capacity - n, i ? "×%lld" : " %lld", (long long)shape[i]);
}

enum { MISS_TEXT = 512 };

/* Writes the first node in which the graph differs from the most recently used plan with the same
 * number of nodes. It only writes the text: the message is sent after the cache is unlocked,
 * because a message hook may call functions that lock it, such as fx_reclaim. */
static void explain_miss(const fxi_graph *g, char text[MISS_TEXT])
{
    const fxi_plan *p = cache.newest;
    /* A graph with another number of nodes is usually another program: the first difference would
     * explain nothing. */
    while (p && p->nnodes != g->n)
        p = p->older;
    if (!p) {
        snprintf(text, MISS_TEXT, "plan miss: no plan of %d nodes yet", (int)g->n);
        return;
    }
    for (int32_t i = 0; i < g->n; i++) {
        /* A record ends where the next one starts; the last one ends before the outputs and the
         * word of the device. */
        const uint32_t a = g->record[i],
                       a1 = i + 1 < g->n ? g->record[i + 1] : g->nkey - (uint32_t)g->noutputs - 1;
        const uint32_t b = p->record[i],
                       b1 = i + 1 < g->n ? p->record[i + 1] : p->nkey - (uint32_t)p->noutputs - 1;
        if (a1 - a == b1 - b && memcmp(g->key + a, p->key + b, (a1 - a) * sizeof *g->key) == 0)
            continue;
        char now[160], before[160];
        record_text(g->key + a, now, sizeof now);
        record_text(p->key + b, before, sizeof before);
        /* Equal texts: the difference is in words that the text leaves out. */
        if (strcmp(now, before) == 0)
            snprintf(text, MISS_TEXT,
                     "plan miss: node %d of %d (%s) differs in its attributes, inputs or layout",
                     (int)i, (int)g->n, now);
        else
            snprintf(text, MISS_TEXT, "plan miss: node %d of %d is %s, was %s", (int)i, (int)g->n,
                     now, before);
        return;
    }
    snprintf(text, MISS_TEXT,
             "plan miss: the same %d nodes with other outputs, donations, device or precision",
             (int)g->n);
}

/* ---- the cache ------------------------------------------------------------------------------- */

static void set_newest(fxi_plan *p)
{
    __atomic_store_n(&cache.newest, p, __ATOMIC_RELAXED);
}

/* The list of plans by their last use, most recent first. */
static void unlink_use(fxi_plan *p)
{
    if (p->newer)
        p->newer->older = p->older;
    else
        set_newest(p->older);
    if (p->older)
        p->older->newer = p->newer;
    else
        cache.oldest = p->newer;
}

static void link_newest(fxi_plan *p)
{
    p->newer = NULL;
    p->older = cache.newest;
    if (cache.newest)
        cache.newest->newer = p;
    set_newest(p);
    if (!cache.oldest)
        cache.oldest = p;
}

/* Counts the memory of a plan that enters or leaves the cache. */
static void count_bytes(const fxi_plan *p, int64_t bytes)
{
    cache.bytes += bytes;
    __atomic_fetch_add(&fxi_pool_of(p->device)->plans, bytes, __ATOMIC_RELAXED);
}

/* Removes a plan from the cache. Runs that use it and threads that keep it have references of their
 * own, so it is freed when the last of them is dropped. */
static void evict(fxi_plan *p)
{
    /* A bucket is a short list, so it has no links backwards. */
    fxi_plan **at = &cache.bucket[p->hash % BUCKETS];
    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    unlink_use(p);
    cache.count--;
    count_bytes(p, -p->bytes);
    fxi_plan_release(p);
}

static inline bool is_plan_of(const fxi_plan *p, const fxi_graph *g)
{
    return p->nkey == g->nkey && memcmp(p->key, g->key, (size_t)g->nkey * sizeof *g->key) == 0;
}

/* Finds the plan of a graph and makes it the most recently used one. The cache must be locked. */
static fxi_plan *find(const fxi_graph *g)
{
    /* A training loop finds the same plan each time: it needs no hash and changes no link. */
    fxi_plan *p = cache.newest;
    if (p && is_plan_of(p, g))
        return p;
    const uint64_t hash = fxi_graph_hash(g);
    p = cache.bucket[hash % BUCKETS];
    while (p && !(p->hash == hash && is_plan_of(p, g)))
        p = p->next;
    if (p) {
        unlink_use(p);
        link_newest(p);
    }
    return p;
}

/* The most bytes of plans: MAX_BYTES, or a quarter of the peak of array memory if that is more. So
 * the cache stays small compared with the program's data. */
static int64_t most_bytes(void)
{
    const int64_t quarter = __atomic_load_n(&fxi_counters.peak_bytes, __ATOMIC_RELAXED) / 4;
    return quarter > MAX_BYTES ? quarter : MAX_BYTES;
}

/* Adds a plan and evicts others until it fits. The cache must be locked. */
static void insert(fxi_plan *p)
{
    while (cache.count >= MAX_PLANS ||
           (cache.count >= FEWEST && cache.bytes + p->bytes > most_bytes())) {
        evict(cache.oldest);
        fxi_count(&fxi_counters.plans_evicted, 1);
    }
    /* The reference of the cache. The caller has the first one. */
    p->refs++;
    p->next = cache.bucket[p->hash % BUCKETS];
    cache.bucket[p->hash % BUCKETS] = p;
    link_newest(p);
    cache.count++;
    count_bytes(p, p->bytes);
}

fx_status fxi_plan_of(const fxi_graph *g, fxi_plan **out_plan)
{
    char miss[MISS_TEXT] = "";
    fxi_mutex_lock(&cache.lock);
    fxi_plan *p = find(g);
    /* The reference is taken under the lock. Otherwise another thread could evict and free the plan
     * before. */
    if (p)
        __atomic_fetch_add(&p->refs, 1, __ATOMIC_RELAXED);
    else if (fxi_traced("miss"))
        explain_miss(g, miss);
    fxi_mutex_unlock(&cache.lock);
    if (*miss)
        fx_message(0, "%s", miss);
    if (p) {
        fxi_count(&fxi_counters.plan_hits, 1);
        *out_plan = p;
        return FX_OK;
    }
    /* Planned without the lock: a backend may compile for seconds, and other threads must find
     * their plans meanwhile. */
    const fx_status status = fxi_plan_new(g, out_plan);
    if (status != FX_OK)
        return status;
    p = *out_plan;
    fxi_count(&fxi_counters.plans_built, 1);
    if (fxi_traced("plan"))
        fx_message(0,
                   "plan: %d nodes, %d steps, %lld bytes of arena, %lld of work space at most, "
                   "%d donations (%d denied)",
                   (int)p->nnodes, (int)p->nsteps, (long long)p->arena_bytes,
                   (long long)fxi_plan_work_bytes(p), (int)p->donations, (int)p->donations_denied);
    fxi_mutex_lock(&cache.lock);
    if (!find(g)) /* another thread may have built the same plan meanwhile; then both are correct
                     and one is cached */
        insert(p);
    fxi_mutex_unlock(&cache.lock);
    return FX_OK;
}

/* If the caller's plan is the most recently used one, it is in the cache and `find` would change
 * nothing. So the lock and the count of references are left out, which saves 20 ns. */
fx_status fxi_plan_again(const fxi_graph *g, fxi_plan **plan)
{
    fxi_plan *p = *plan;
    if (p && p == __atomic_load_n(&cache.newest, __ATOMIC_RELAXED) && is_plan_of(p, g)) {
        fxi_count(&fxi_counters.plan_hits, 1);
        return FX_OK;
    }
    if (p)
        fxi_plan_release(p);
    const fx_status status = fxi_plan_of(g, plan);
    if (status != FX_OK)
        *plan = NULL;
    return status;
}

int64_t fxi_plans_bytes(void)
{
    fxi_mutex_lock(&cache.lock);
    const int64_t bytes = cache.bytes;
    fxi_mutex_unlock(&cache.lock);
    return bytes;
}

void fxi_plans_reclaim(void)
{
    fxi_mutex_lock(&cache.lock);
    while (cache.oldest)
        evict(cache.oldest);
    fxi_mutex_unlock(&cache.lock);
}

/* Called when memory is short: only plans without a run can be freed at once. */
void fxi_plans_reclaim_idle(void)
{
    uint64_t evicted = 0;
    fxi_mutex_lock(&cache.lock);
    /* Evicting a plan in use would free no memory now. */
    for (fxi_plan *p = cache.oldest, *newer; p; p = newer) {
        newer = p->newer;
        if (__atomic_load_n(&p->refs, __ATOMIC_ACQUIRE) > 1)
            continue;
        evict(p);
        evicted++;
    }
    fxi_mutex_unlock(&cache.lock);
    fxi_count(&fxi_counters.plans_evicted, evicted);
}

/* At the end of the process frees all plans, with everything that backends prepared for them. */
__attribute__((destructor)) static void drop_at_exit(void)
{
    fxi_plan_drop(fxi_own_context ? fxi_own_context->scratch : NULL);
    fxi_plans_reclaim();
}
