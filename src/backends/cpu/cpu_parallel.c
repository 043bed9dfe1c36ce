/* cpu_parallel.c: the thread pool.
 *
 * A job is announced by one atomic word, the ticket: how many of its parts nobody has taken, how
 * many threads may join and have joined, and the job's number. Who wants a part lowers the ticket
 * by a compare-and-swap. It succeeds only while the job still has such a part, and then the caller
 * cannot be gone; so a thread that was asleep or preempted in between harms nothing, and the caller
 * waits for parts that were begun, never for a thread that was not scheduled.
 *
 * Who finds nothing to do looks again for SPIN nanoseconds and then sleeps. Both sides do: a worker
 * for the next job, the caller for the last parts. Sleeping soon matters on a machine that has
 * other work: who spins holds the core that somebody needs to finish.
 *
 * Workers start when a job of more than one part first wants them. One job runs at a time; whoever
 * finds the pool taken works alone. What changes the pool (start, stop, another number of threads)
 * is done by who holds it. A child of fork() has no workers and starts anew.
 */
#include "cpu_parallel.h"
#include "cpu_threads.h"
#include "memory.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>

enum { SPIN = 5000, PAUSES = 16 }; /* nanoseconds; looks between two readings of the clock */

/* ---- the ticket ------------------------------------------------------------------------------ */

enum { LEFT_BITS = 20, COUNT_BITS = 8 };
#define LEFT_MOST   ((UINT64_C(1) << LEFT_BITS) - 1)
#define COUNT_MOST  ((UINT64_C(1) << COUNT_BITS) - 1)
#define JOINED_ONE  (UINT64_C(1) << LEFT_BITS)
#define WIDTH_SHIFT (LEFT_BITS + COUNT_BITS)
#define JOB_SHIFT   (LEFT_BITS + 2 * COUNT_BITS)

static int64_t left_of(uint64_t t)
{
    return (int64_t)(t & LEFT_MOST);
}
static int joined_of(uint64_t t)
{
    return (int)(t >> LEFT_BITS & COUNT_MOST);
}
static int width_of(uint64_t t)
{
    return (int)(t >> WIDTH_SHIFT & COUNT_MOST);
}
static uint64_t job_of(uint64_t t)
{
    return t >> JOB_SHIFT;
}

/* ---- the pool -------------------------------------------------------------------------------- */

typedef struct job {
    void (*run)(const struct job *j, int64_t part, int slot);
    void *user;
    int64_t first; /* of the parts on the ticket */
    union {
        void (*plain)(void *user, int64_t part);
        void (*scratch)(void *user, int64_t part, void *scratch);
        fx_status (*status)(void *user, int64_t part, fxi_run *run);
    } body;
    char *scratch; /* of slot 0 */
    size_t scratch_bytes;
    struct failure *failure;
} job;

static struct {
    _Alignas(64) uint64_t ticket; /* atomic, as what follows up to `lock` */
    _Alignas(64) int64_t done;    /* parts of this job that workers have finished */
    const job *job;
    bool busy;  /* somebody holds the pool */
    bool quit;  /* workers, end */
    bool waits; /* the caller sleeps until parts are finished */
    int asleep; /* workers */
    pthread_mutex_t lock;
    pthread_cond_t more, finished;
    /* Of who holds the pool: */
    int workers, wanted; /* threads that run; how many there were to be */
    bool fork_handled;
    pthread_t threads[FXI_THREADS_MOST];
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER,
          .more = PTHREAD_COND_INITIALIZER,
          .finished = PTHREAD_COND_INITIALIZER};

static uint64_t ticket_now(void)
{
    return __atomic_load_n(&pool.ticket, __ATOMIC_SEQ_CST);
}

static int64_t nanoseconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void pause_a_little(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Looks for SPIN nanoseconds whether ready(expected) holds; the answer. */
static bool spin_until(bool (*ready)(int64_t expected), int64_t expected)
{
    const int64_t end = nanoseconds() + SPIN;
    do
        for (int k = 0; k < PAUSES; k++) {
            if (ready(expected))
                return true;
            pause_a_little();
        }
    while (nanoseconds() < end);
    return false;
}

/* ---- taking parts ---------------------------------------------------------------------------- */

typedef struct member { /* of a job: who takes its parts */
    uint64_t job;
    int slot; /* 0: the caller */
} member;

static bool may_join(uint64_t ticket)
{
    return left_of(ticket) > 0 && joined_of(ticket) < width_of(ticket);
}

/* Takes a part of the job on the ticket: its number counted from the end, or 0. A worker that is no
 * member joins. */
static int64_t take(member *m)
{
    uint64_t t = ticket_now(), next;
    do {
        const bool member_already = m->job == job_of(t);
        if (member_already ? left_of(t) == 0 : !may_join(t))
            return 0;
        next = t - 1 + (member_already ? 0 : JOINED_ONE);
    } while (!__atomic_compare_exchange_n(&pool.ticket, &t, next, true, __ATOMIC_SEQ_CST,
                                          __ATOMIC_SEQ_CST));
    if (m->job != job_of(t))
        *m = (member){job_of(t), joined_of(t)};
    return left_of(t);
}

/* ---- workers --------------------------------------------------------------------------------- */

static bool worker_ready(int64_t unused)
{
    (void)unused;
    return may_join(ticket_now()) || __atomic_load_n(&pool.quit, __ATOMIC_SEQ_CST);
}

static void worker_sleep(void)
{
    pthread_mutex_lock(&pool.lock);
    __atomic_add_fetch(&pool.asleep, 1, __ATOMIC_SEQ_CST);
    while (!worker_ready(0))
        pthread_cond_wait(&pool.more, &pool.lock);
    __atomic_sub_fetch(&pool.asleep, 1, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&pool.lock);
}

static void finish_part(void)
{
    __atomic_add_fetch(&pool.done, 1, __ATOMIC_SEQ_CST);
    if (!__atomic_load_n(&pool.waits, __ATOMIC_SEQ_CST))
        return;
    pthread_mutex_lock(&pool.lock);
    pthread_cond_signal(&pool.finished);
    pthread_mutex_unlock(&pool.lock);
}

static void *worker_main(void *unused)
{
    member m = {0};
    while (!__atomic_load_n(&pool.quit, __ATOMIC_SEQ_CST)) {
        for (int64_t left; (left = take(&m)) > 0; finish_part()) {
            const job *j = __atomic_load_n(&pool.job, __ATOMIC_SEQ_CST);
            j->run(j, -left, m.slot);
        }
        m = (member){0};
        if (!spin_until(worker_ready, 0))
            worker_sleep();
    }
    return unused;
}

static void stop_workers(void)
{
    pthread_mutex_lock(&pool.lock);
    __atomic_store_n(&pool.quit, true, __ATOMIC_SEQ_CST);
    pthread_cond_broadcast(&pool.more);
    pthread_mutex_unlock(&pool.lock);
    for (int k = 0; k < pool.workers; k++)
        pthread_join(pool.threads[k], NULL);
    pool.workers = pool.wanted = 0;
    __atomic_store_n(&pool.quit, false, __ATOMIC_SEQ_CST);
}

/* In the child of a fork the workers are gone, whatever they held. */
static void forget_workers(void)
{
    pool.workers = pool.wanted = pool.asleep = 0;
    pool.busy = pool.quit = pool.waits = false;
    pthread_mutex_init(&pool.lock, NULL);
    pthread_cond_init(&pool.more, NULL);
    pthread_cond_init(&pool.finished, NULL);
}

/* Brings the workers to `wanted`; where the system refuses a thread there are fewer. Signals are
 * for the program's own threads. */
static void set_workers(int wanted)
{
    sigset_t all, before;
    if (wanted < pool.wanted)
        stop_workers();
    if (!pool.fork_handled && pthread_atfork(NULL, NULL, forget_workers) != 0)
        return;
    pool.fork_handled = true;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (pool.workers < wanted &&
           pthread_create(&pool.threads[pool.workers], NULL, worker_main, NULL) == 0)
        pool.workers++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pool.wanted = wanted;
}

static bool hold_pool(void)
{
    return !__atomic_load_n(&pool.busy, __ATOMIC_RELAXED) &&
           !__atomic_exchange_n(&pool.busy, true, __ATOMIC_ACQUIRE);
}

static void leave_pool(void)
{
    __atomic_store_n(&pool.busy, false, __ATOMIC_RELEASE);
}

/* At exit the pool stays held: what comes later works alone. While another thread holds it the
 * workers end with the process. */
__attribute__((destructor)) static void stop_at_exit(void)
{
    if (hold_pool())
        stop_workers();
}

/* ---- the caller ------------------------------------------------------------------------------ */

/* How many threads may take part, the caller included; above 1 the caller holds the pool. */
static int gather(int64_t parts)
{
    const int threads = parts > 1 ? fx_num_threads() : 1;
    if (threads == 1 || !hold_pool())
        return 1;
    if (pool.wanted != threads - 1)
        set_workers(threads - 1);
    if (pool.workers == 0) {
        leave_pool();
        return 1;
    }
    return parts <= pool.workers ? (int)parts : pool.workers + 1;
}

static bool caller_ready(int64_t expected)
{
    return __atomic_load_n(&pool.done, __ATOMIC_SEQ_CST) == expected;
}

static void await(int64_t done)
{
    if (caller_ready(done) || spin_until(caller_ready, done))
        return;
    pthread_mutex_lock(&pool.lock);
    __atomic_store_n(&pool.waits, true, __ATOMIC_SEQ_CST);
    while (!caller_ready(done))
        pthread_cond_wait(&pool.finished, &pool.lock);
    __atomic_store_n(&pool.waits, false, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&pool.lock);
}

static void wake(int workers)
{
    const int asleep = __atomic_load_n(&pool.asleep, __ATOMIC_SEQ_CST);
    if (asleep == 0)
        return;
    pthread_mutex_lock(&pool.lock);
    for (int k = 0; k < workers && k < asleep; k++)
        pthread_cond_signal(&pool.more);
    pthread_mutex_unlock(&pool.lock);
}

/* Parts first … first + parts − 1; a run gets them counted from the end, as negative numbers. */
static void share(job *j, int64_t first, int64_t parts, int width)
{
    const uint64_t number = (job_of(ticket_now()) + 1) & (UINT64_MAX >> JOB_SHIFT);
    member m = {number ? number : 1, 0}; /* 0 is nobody's job */
    j->first = first + parts;
    __atomic_store_n(&pool.done, 0, __ATOMIC_SEQ_CST);
    __atomic_store_n(&pool.job, j, __ATOMIC_SEQ_CST);
    __atomic_store_n(&pool.ticket,
                     m.job << JOB_SHIFT | (uint64_t)width << WIDTH_SHIFT | JOINED_ONE |
                         (uint64_t)parts,
                     __ATOMIC_SEQ_CST);
    wake(width - 1);
    int64_t mine = 0;
    for (int64_t left; (left = take(&m)) > 0; mine++)
        j->run(j, -left, 0);
    await(parts - mine);
}

/* Runs the parts and leaves the pool. */
static void run_job(job *j, int64_t parts, int width)
{
    for (int64_t part = 0; part < parts && width == 1; part++)
        j->run(j, part, 0);
    if (width == 1)
        return;
    for (int64_t first = 0; first < parts; first += (int64_t)LEFT_MOST)
        share(j, first, parts - first < (int64_t)LEFT_MOST ? parts - first : (int64_t)LEFT_MOST,
              width);
    leave_pool();
}

/* ---- the three forms ------------------------------------------------------------------------- */

static void run_plain(const job *j, int64_t part, int slot)
{
    (void)slot;
    j->body.plain(j->user, j->first + part);
}

void fxi_cpu_parallel(int64_t parts, void (*body)(void *user, int64_t part), void *user)
{
    job j = {.run = run_plain, .user = user, .body.plain = body};
    run_job(&j, parts, gather(parts));
}

static void run_scratch(const job *j, int64_t part, int slot)
{
    j->body.scratch(j->user, j->first + part, j->scratch + (size_t)slot * j->scratch_bytes);
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
    const int width = gather(parts);
    j.scratch = fxi_aligned(64, j.scratch_bytes * (size_t)width);
    if (!j.scratch) {
        if (width > 1)
            leave_pool();
        return FX_STATUS_MEMORY;
    }
    for (int slot = 0; slot < width; slot++)
        memset(j.scratch + (size_t)slot * j.scratch_bytes, 0, bytes < 64 ? bytes : 64);
    run_job(&j, parts, width);
    fxi_free(j.scratch);
    return FX_OK;
}

typedef struct failure { /* of the lowest part that failed */
    int64_t part;        /* atomic */
    fx_status status;
    const fxi_run *run;
    char error[sizeof((fxi_run *)0)->error];
    pthread_mutex_t lock;
} failure;

static void run_status(const job *j, int64_t part, int slot)
{
    (void)slot;
    failure *f = j->failure;
    part += j->first;
    if (part > __atomic_load_n(&f->part, __ATOMIC_RELAXED))
        return;
    fxi_run mine = *f->run;
    const fx_status status = j->body.status(j->user, part, &mine);
    if (status == FX_OK)
        return;
    pthread_mutex_lock(&f->lock);
    if (part < f->part) {
        __atomic_store_n(&f->part, part, __ATOMIC_RELAXED);
        f->status = status;
        memcpy(f->error, mine.error, sizeof f->error);
    }
    pthread_mutex_unlock(&f->lock);
}

fx_status fxi_cpu_parallel_run(int64_t parts,
                               fx_status (*body)(void *user, int64_t part, fxi_run *run),
                               void *user, fxi_run *run)
{
    failure f = {.part = parts, .run = run, .lock = PTHREAD_MUTEX_INITIALIZER};
    job j = {.run = run_status, .user = user, .body.status = body, .failure = &f};
    run_job(&j, parts, gather(parts));
    if (f.status)
        memcpy(run->error, f.error, sizeof f.error);
    return f.status;
}

/* ---- when threads pay ------------------------------------------------------------------------ */

/* Below `least` nanoseconds a second thread would come too late: waking one takes microseconds.
 * Parts of half of it hide the cost of taking one; more than MOST_PARTS serve nobody. */
static int64_t least = FXI_PARTS_FROM;
enum { MOST_PARTS = 128 };

void fxi_cpu_parts_from(int64_t nanoseconds)
{
    __atomic_store_n(&least, nanoseconds, __ATOMIC_RELAXED);
}

int64_t fxi_cpu_parts(int64_t items, double cost)
{
    const double from = (double)__atomic_load_n(&least, __ATOMIC_RELAXED);
    if (items <= 1 || cost < from)
        return 1;
    const int64_t parts =
        cost < MOST_PARTS * (from / 2) ? (int64_t)(cost / (from / 2)) : MOST_PARTS;
    return parts < items ? parts : items;
}
