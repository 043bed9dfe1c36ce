/* cpu_parallel.c: the thread pool.
 *
 * A job's parts are dealt out in ranges of neighbours, one for each thread that may take part. So
 * the same thread gets the same memory step after step and finds it in its own cache (two cores,
 * Adam over 200,000 elements: 139 µs, with parts from one counter 215). A range is one atomic word.
 * Its owner takes parts from the front; a thread without parts takes them from the ends of others'
 * ranges. A part is taken by a compare-and-swap, which succeeds only while the job still has that
 * part, so the caller is still waiting for it. So a thread that was asleep or preempted in between
 * does no harm, and the caller waits for parts that were begun, never for a thread that the system
 * has not scheduled.
 *
 * A thread without work looks for more during SPIN nanoseconds and then sleeps: a worker for the
 * next job, the caller for the last parts. Sleeping soon matters on a machine with other work,
 * because a spinning thread holds the core that another one needs to finish. For comparison: a
 * parallel region of OpenMP takes 4 to 8 ms when another process holds a core.
 *
 * Workers start when a job of more than one part first needs them. One job runs at a time; a thread
 * that finds the pool in use works alone. Only the thread that holds the pool changes it (starts
 * and stops workers, changes their number). A child of fork() has no workers and starts new ones.
 */
#include "cpu_parallel.h"
#include "clock.h"
#include "cpu_float_mode.h"
#include "cpu_threads.h"
#include "memory.h"
#include "this_process.h"
#include "thread.h"

#include <string.h>

/* SPIN: nanoseconds of spinning. PAUSES: tests of the condition between two readings of the clock.
 */
enum { SPIN = 20000, PAUSES = 16 };

/* ---- ranges of parts ------------------------------------------------------------------------- */

/* A range is the job's number (24 bits), the first part (20) and the first part after the range
 * (20). The number makes the word of an old job differ from that of a new one, so an old
 * compare-and-swap fails. */
enum { PART_BITS = 20, MOST_PARTS = (1 << PART_BITS) - 1 };

static uint64_t range_of(uint64_t number, int64_t from, int64_t to)
{
    return number << 2 * PART_BITS | (uint64_t)from << PART_BITS | (uint64_t)to;
}
static int64_t from_of(uint64_t range)
{
    return (int64_t)(range >> PART_BITS & MOST_PARTS);
}
static int64_t to_of(uint64_t range)
{
    return (int64_t)(range & MOST_PARTS);
}

/* ---- the pool -------------------------------------------------------------------------------- */

typedef struct job {
    void (*run)(const struct job *j, int64_t part, int number);
    void *user;
    int64_t first; /* the part that has number 0 in the ranges */
    union {
        void (*plain)(void *user, int64_t part);
        void (*scratch)(void *user, int64_t part, void *scratch);
    } body;
    uint64_t mode; /* the caller's floating-point mode */
    char *scratch; /* the scratch of participant 0; those of the other participants follow */
    size_t scratch_bytes;
} job;

/* Participant 0 is the caller, participant k is worker k. Each has its own cache lines, because
 * several threads write its range. */
typedef struct participant {
    _Alignas(64) uint64_t range; /* atomic */
    bool asleep;                 /* atomic */
    fxi_cond more;
    fxi_thread thread;
} participant;

static struct {
    _Alignas(64) uint64_t number; /* the job's number; atomic, like all members up to `lock` */
    int width;                    /* participants that may take part in the job */
    const job *job;
    bool busy;                 /* a thread holds the pool */
    bool quit;                 /* tells the workers to end */
    bool waits;                /* the caller sleeps and must be woken */
    _Alignas(64) int64_t done; /* parts of this job that workers have finished */
    fxi_mutex lock;
    fxi_cond finished;
    /* The next three are used only by the thread that holds the pool. */
    int workers, wanted; /* workers that run; the number that was requested */
    bool fork_handled;
    participant participants[FXI_THREADS_MOST];
} pool = {.lock = FXI_MUTEX_INIT, .finished = FXI_COND_INIT};

/* Tells the processor that this thread spins: the other thread of the core gets more of it, and
 * leaving the loop is faster. */
static void pause_a_little(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Waits up to SPIN nanoseconds for ready(of, than); returns whether it holds. The clock is read
 * once in PAUSES tests, because reading it takes longer than a test. */
static bool spin_until(bool (*ready)(int of, uint64_t than), int of, uint64_t than)
{
    const int64_t end = fxi_clock_nanoseconds() + SPIN;
    do
        for (int k = 0; k < PAUSES; k++) {
            if (ready(of, than))
                return true;
            pause_a_little();
        }
    while (fxi_clock_nanoseconds() < end);
    return false;
}

/* ---- taking parts ---------------------------------------------------------------------------- */

/* Takes a part from the front of the range, or from its end; −1 if it is empty. A participant
 * beyond the job's width takes none, because it has no scratch. */
static int64_t take_from(uint64_t *range, int me, bool front)
{
    uint64_t r = __atomic_load_n(range, __ATOMIC_SEQ_CST), left;
    do {
        if (from_of(r) >= to_of(r) || me >= __atomic_load_n(&pool.width, __ATOMIC_SEQ_CST))
            return -1;
        left = front ? r + (UINT64_C(1) << PART_BITS) : r - 1;
    } while (
        !__atomic_compare_exchange_n(range, &r, left, true, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
    return front ? from_of(r) : to_of(left);
}

/* Takes a part from this thread's range, else from the range of another thread. Each thread visits
 * the others in its own order, so that they do not all try the same range. */
static int64_t take(int me)
{
    int64_t part = take_from(&pool.participants[me].range, me, true);
    const int width = __atomic_load_n(&pool.width, __ATOMIC_SEQ_CST);
    for (int k = 1; k < width && part < 0; k++)
        part = take_from(&pool.participants[(me + k) % width].range, me, false);
    return part;
}

/* ---- workers --------------------------------------------------------------------------------- */

/* Is there a newer job than `number` for worker `me`, or are the workers to end? */
static bool worker_ready(int me, uint64_t number)
{
    return (__atomic_load_n(&pool.number, __ATOMIC_SEQ_CST) != number &&
            me < __atomic_load_n(&pool.width, __ATOMIC_SEQ_CST)) ||
           __atomic_load_n(&pool.quit, __ATOMIC_SEQ_CST);
}

/* `asleep` is set under the lock, and the caller reads it after it published the job: either the
 * worker sees the job, or the caller sees the sleeper and wakes it. */
static void worker_sleep(int me, uint64_t number)
{
    participant *s = &pool.participants[me];
    fxi_mutex_lock(&pool.lock);
    __atomic_store_n(&s->asleep, true, __ATOMIC_SEQ_CST);
    while (!worker_ready(me, number))
        fxi_cond_wait(&s->more, &pool.lock);
    __atomic_store_n(&s->asleep, false, __ATOMIC_SEQ_CST);
    fxi_mutex_unlock(&pool.lock);
}

/* The lock is taken only if the caller sleeps, which is rare. */
static void finish_part(void)
{
    __atomic_add_fetch(&pool.done, 1, __ATOMIC_SEQ_CST);
    if (!__atomic_load_n(&pool.waits, __ATOMIC_SEQ_CST))
        return;
    fxi_mutex_lock(&pool.lock);
    fxi_cond_wake_one(&pool.finished);
    fxi_mutex_unlock(&pool.lock);
}

/* The number is read before the search for parts: a job that begins in between is then seen as new,
 * and the worker does not sleep through it. */
static void *worker_main(void *self)
{
    const int me = (int)((participant *)self - pool.participants);
    uint64_t mode = fxi_float_mode();
    while (!__atomic_load_n(&pool.quit, __ATOMIC_SEQ_CST)) {
        const uint64_t number = __atomic_load_n(&pool.number, __ATOMIC_SEQ_CST);
        for (int64_t part; (part = take(me)) >= 0; finish_part()) {
            const job *j = __atomic_load_n(&pool.job, __ATOMIC_SEQ_CST);
            /* Changing the mode stalls the processor, so it is done only if it differs. */
            if (j->mode != mode)
                fxi_float_mode_set(mode = j->mode);
            j->run(j, part, me);
        }
        if (!spin_until(worker_ready, me, number))
            worker_sleep(me, number);
    }
    return NULL;
}

/* `quit` is set under the lock, so that no worker goes to sleep between testing it and waiting. */
static void stop_workers(void)
{
    fxi_mutex_lock(&pool.lock);
    __atomic_store_n(&pool.quit, true, __ATOMIC_SEQ_CST);
    for (int k = 1; k <= pool.workers; k++)
        fxi_cond_wake_one(&pool.participants[k].more);
    fxi_mutex_unlock(&pool.lock);
    for (int k = 1; k <= pool.workers; k++) {
        fxi_thread_join(pool.participants[k].thread);
        fxi_cond_destroy(&pool.participants[k].more);
    }
    pool.workers = pool.wanted = 0;
    __atomic_store_n(&pool.quit, false, __ATOMIC_SEQ_CST);
}

/* In the child of a fork the workers do not exist, and locks may be held by threads that do not
 * exist either. A job that another thread was running is forgotten too: its data may be on that
 * thread's stack. */
static void forget_workers(void)
{
    for (int k = 0; k <= pool.workers; k++) {
        pool.participants[k].asleep = false;
        pool.participants[k].range = 0;
    }
    pool.workers = pool.wanted = 0;
    pool.busy = pool.quit = pool.waits = false;
    fxi_mutex_init(&pool.lock);
    fxi_cond_init(&pool.finished);
}

/* A worker that cannot be started is not an error: jobs are divided among fewer threads. */
static bool start_worker(participant *s)
{
    if (!fxi_cond_init(&s->more))
        return false;
    if (fxi_thread_start(&s->thread, worker_main, s) == 0)
        return true;
    fxi_cond_destroy(&s->more);
    return false;
}

/* Changes the number of workers to `wanted`, or to fewer if the system refuses a thread. Without
 * the fork handler no worker is started, because a child process could not forget it. */
static void set_workers(int wanted)
{
    if (wanted < pool.wanted)
        stop_workers();
    if (!pool.fork_handled && !fxi_process_on_fork(NULL, NULL, forget_workers))
        return;
    pool.fork_handled = true;
    while (pool.workers < wanted && start_worker(&pool.participants[pool.workers + 1]))
        pool.workers++;
    pool.wanted = wanted;
}

/* The plain load first: most calls that find the pool in use then write nothing to its cache
 * line. */
static bool hold_pool(void)
{
    return !__atomic_load_n(&pool.busy, __ATOMIC_RELAXED) &&
           !__atomic_exchange_n(&pool.busy, true, __ATOMIC_ACQUIRE);
}

static void leave_pool(void)
{
    __atomic_store_n(&pool.busy, false, __ATOMIC_RELEASE);
}

/* At exit the workers are stopped, and the pool stays held, so that later jobs run in their caller.
 * If another thread holds the pool, the workers end with the process. */
static void stop_at_exit(void)
{
    if (hold_pool())
        stop_workers();
}
FXI_STOPS_THREADS(stop_at_exit);

/* ---- the caller ------------------------------------------------------------------------------ */

/* How many workers spin, from the first on. One that falls asleep meanwhile is woken: rare. */
static int awake_workers(void)
{
    int k = 0;
    while (k < pool.workers && !__atomic_load_n(&pool.participants[k + 1].asleep, __ATOMIC_RELAXED))
        k++;
    return k;
}

/* The number of threads that may take part, the caller included; if above 1, the caller holds the
 * pool. Changes of the number of threads take effect here, between two jobs, when no worker has
 * parts. */
static int claim_threads(int64_t parts, bool wakes)
{
    const int threads = parts > 1 ? fx_num_threads() : 1;
    /* A kernel that runs inside a part, or in another thread while the pool is in use, computes
     * alone. */
    if (threads == 1 || !hold_pool())
        return 1;
    if (pool.wanted != threads - 1)
        set_workers(threads - 1);
    const int workers = wakes ? pool.workers : awake_workers();
    if (workers == 0) {
        leave_pool();
        return 1;
    }
    /* More threads than parts would find no work. */
    return parts <= workers ? (int)parts : workers + 1;
}

static bool caller_ready(int unused, uint64_t done)
{
    (void)unused;
    return __atomic_load_n(&pool.done, __ATOMIC_SEQ_CST) == (int64_t)done;
}

/* The caller sets `waits` before it looks again, and workers count a part before they read `waits`,
 * so no wake-up is lost. */
static void await(uint64_t done)
{
    if (caller_ready(0, done) || spin_until(caller_ready, 0, done))
        return;
    fxi_mutex_lock(&pool.lock);
    __atomic_store_n(&pool.waits, true, __ATOMIC_SEQ_CST);
    while (!caller_ready(0, done))
        fxi_cond_wait(&pool.finished, &pool.lock);
    __atomic_store_n(&pool.waits, false, __ATOMIC_SEQ_CST);
    fxi_mutex_unlock(&pool.lock);
}

/* Only sleepers are woken: a spinning worker sees the new job by itself, and waking costs a system
 * call. */
static void wake(int width)
{
    for (int k = 1; k < width; k++) {
        if (!__atomic_load_n(&pool.participants[k].asleep, __ATOMIC_SEQ_CST))
            continue;
        fxi_mutex_lock(&pool.lock);
        fxi_cond_wake_one(&pool.participants[k].more);
        fxi_mutex_unlock(&pool.lock);
    }
}

/* Runs parts first … first + parts − 1. The job and its width are published before the ranges,
 * because a worker may take a part as soon as it sees a range. */
static void share(job *j, int64_t first, int64_t parts, int width)
{
    const uint64_t number = __atomic_load_n(&pool.number, __ATOMIC_SEQ_CST) + 1;
    j->first = first;
    j->mode = fxi_float_mode();
    __atomic_store_n(&pool.done, 0, __ATOMIC_SEQ_CST);
    __atomic_store_n(&pool.job, j, __ATOMIC_SEQ_CST);
    __atomic_store_n(&pool.width, width, __ATOMIC_SEQ_CST);
    for (int k = 0; k < width; k++) {
        int64_t from, to;
        fxi_cpu_range(parts, width, k, &from, &to);
        __atomic_store_n(&pool.participants[k].range, range_of(number, from, to), __ATOMIC_SEQ_CST);
    }
    __atomic_store_n(&pool.number, number, __ATOMIC_SEQ_CST);
    wake(width);
    uint64_t mine = 0;
    for (int64_t part; (part = take(0)) >= 0; mine++)
        j->run(j, part, 0);
    await((uint64_t)parts - mine);
}

/* Runs all parts, and leaves the pool if the caller holds it (width above 1). Numbers of parts have
 * 20 bits in a range, so a job with more parts is run in several rounds. */
static void run_job(job *j, int64_t parts, int width)
{
    for (int64_t part = 0; part < parts && width == 1; part++)
        j->run(j, part, 0);
    if (width == 1)
        return;
    for (int64_t first = 0; first < parts; first += MOST_PARTS)
        share(j, first, parts - first < MOST_PARTS ? parts - first : MOST_PARTS, width);
    leave_pool();
}

/* ---- the two forms --------------------------------------------------------------------------- */

static void run_plain(const job *j, int64_t part, int number)
{
    (void)number;
    j->body.plain(j->user, j->first + part);
}

void fxi_cpu_parallel(int64_t parts, void (*body)(void *user, int64_t part), void *user)
{
    job j = {.run = run_plain, .user = user, .body.plain = body};
    run_job(&j, parts, claim_threads(parts, true));
}

bool fxi_cpu_parallel_if_awake(int64_t parts, void (*body)(void *user, int64_t part), void *user)
{
    const int width = claim_threads(parts, false);
    job j = {.run = run_plain, .user = user, .body.plain = body};
    if (width > 1)
        run_job(&j, parts, width);
    return width > 1;
}

enum { STACK_BYTES = 16384 };

/* Each participant has scratch of its own, so parts on different threads never share it. */
static void run_scratch(const job *j, int64_t part, int number)
{
    j->body.scratch(j->user, j->first + part, j->scratch + (size_t)number * j->scratch_bytes);
}

fx_status fxi_cpu_parallel_scratch(int64_t parts, size_t bytes,
                                   void (*body)(void *user, int64_t part, void *scratch),
                                   void *user)
{
    if (parts <= 0)
        return FX_OK;
    job j = {.run = run_scratch,
             .user = user,
             .body.scratch = body,
             .scratch_bytes = (bytes + 127) & ~(size_t)127};
    const int width = claim_threads(parts, true);
    /* The scratch of a small kernel is on the stack. */
    _Alignas(64) char stack[STACK_BYTES];
    const bool small = width == 1 && j.scratch_bytes <= sizeof stack;
    /* One allocation for all participants, before the job starts, so that no part can fail for lack
     * of memory. */
    j.scratch = small ? stack : fxi_aligned(64, j.scratch_bytes * (size_t)width);
    if (!j.scratch) {
        if (width > 1)
            leave_pool();
        return FX_STATUS_MEMORY;
    }
    for (int number = 0; number < width; number++)
        if (bytes > 0) /* then each has at least 128 bytes */
            memset(j.scratch + (size_t)number * j.scratch_bytes, 0, 64);
    run_job(&j, parts, width);
    if (!small)
        fxi_free(j.scratch);
    return FX_OK;
}

/* ---- the number of parts --------------------------------------------------------------------- */

/* Below `least` nanoseconds a second thread would start too late to help, because waking it takes
 * microseconds. Parts of half that length hide the cost of taking one. More than USEFUL_PARTS parts
 * gain nothing on any machine. */
static int64_t least = FXI_PARTS_FROM;
enum { USEFUL_PARTS = 128, AWAKE = 4 };

void fxi_cpu_parts_from(int64_t nanoseconds)
{
    __atomic_store_n(&least, nanoseconds, __ATOMIC_RELAXED);
}

/* The number of threads has no influence: results must not depend on it. */
int64_t fxi_cpu_parts(int64_t items, double cost)
{
    const double from = (double)__atomic_load_n(&least, __ATOMIC_RELAXED);
    if (items <= 1 || cost < from)
        return 1;
    const int64_t parts =
        cost < USEFUL_PARTS * (from / 2) ? (int64_t)(cost / (from / 2)) : USEFUL_PARTS;
    return parts < items ? parts : items;
}

int64_t fxi_cpu_parts_if_awake(int64_t items, double cost)
{
    /* A spinning worker begins a part within a microsecond, so parts may be AWAKE times as short.
     */
    return fxi_cpu_parts(items, AWAKE * cost);
}
