/* gpu_gate.c: counts the calls into a driver, and waits for them when the process ends; gpu_gate.h
 * explains why. */
#include "gpu_gate.h"
#include "clock.h"
#include "this_process.h"
#include "thread.h"

enum { OPEN, ENDING, FORKED };
/* The longest time to wait for calls at exit. Calls that take longer are abandoned, since the
 * process must end: a hook of the program may wait for the very thread that exits. A compiler on a
 * loaded machine needs longer than a hook. */
enum { MILLISECONDS_MOST = 20000, COMPILING_MOST = 600000 };

static struct {
    int inside;  /* atomic: threads in calls */
    int guarded; /* atomic: threads that compile */
    int state;   /* atomic: OPEN, ENDING or FORKED */
    long owner;  /* the process that opened the gate */
    void (*quiesce)(void);
    fxi_mutex lock; /* protects the registration */
} gate = {.lock = FXI_MUTEX_INIT};
static _Thread_local int depth;  /* nested calls of this thread */
static _Thread_local bool known; /* the handler for the thread's end is registered */

/* ---- the end --------------------------------------------------------------------------------- */

static int most_milliseconds(void)
{
    return __atomic_load_n(&gate.guarded, __ATOMIC_SEQ_CST) > 0 ? COMPILING_MOST
                                                                : MILLISECONDS_MOST;
}

/* Waits for the calls of other threads. The exiting thread may be in a call itself, if a hook of
 * the program called exit. */
static void wait_for_calls(void)
{
    const int own = depth > 0;
    for (int k = 0; k < most_milliseconds(); k++) {
        if (__atomic_load_n(&gate.inside, __ATOMIC_SEQ_CST) <= own)
            return;
        fxi_sleep_milliseconds(1);
    }
}

static void at_exit(void)
{
    /* A forked child has inherited the handler, and the handler may run twice. */
    if (fxi_process_id() != gate.owner ||
        __atomic_exchange_n(&gate.state, ENDING, __ATOMIC_SEQ_CST) != OPEN)
        return;
    wait_for_calls();
    gate.quiesce();
}

static fxi_exit_handler exit_handler = {.run = at_exit},
                        thread_handler = {.run = fxi_gpu_gate_renew};

/* The handler is not moved after the process has begun to end, because exit may be running it. */
void fxi_gpu_gate_renew(void)
{
    if (__atomic_load_n(&gate.state, __ATOMIC_SEQ_CST) != OPEN)
        return;
    fxi_mutex_lock(&gate.lock);
    (void)fxi_process_on_exit(&exit_handler);
    fxi_mutex_unlock(&gate.lock);
}

static void *keep_first(void *guard)
{
    const fxi_gpu_guard *g = guard;
    while (!__atomic_load_n(&g->ended, __ATOMIC_ACQUIRE)) {
        fxi_gpu_gate_renew();
        fxi_sleep_milliseconds(1);
    }
    return NULL;
}

/* If the thread cannot be started, the handler is moved at the end of the compilation only. */
void fxi_gpu_guard_begin(fxi_gpu_guard *g)
{
    /* While this is above 0, exit waits longer (most_milliseconds). */
    __atomic_add_fetch(&gate.guarded, 1, __ATOMIC_SEQ_CST);
    g->ended = 0;
    g->runs = fxi_thread_start(&g->thread, keep_first, g) == 0;
}

/* The handler is moved once more at the end: the driver may have registered a destructor after the
 * thread last moved it. */
void fxi_gpu_guard_end(fxi_gpu_guard *g)
{
    __atomic_store_n(&g->ended, 1, __ATOMIC_RELEASE);
    if (g->runs)
        fxi_thread_join(g->thread);
    fxi_gpu_gate_renew();
    __atomic_sub_fetch(&gate.guarded, 1, __ATOMIC_SEQ_CST);
}

/* The handler for the thread's end is registered once in a thread, at its first call. */
static void know_thread(void)
{
    if (!known)
        fxi_process_on_thread_end(&thread_handler);
    known = true;
}

/* The child must not call the driver, whose threads it does not have. */
static void in_child(void)
{
    /* The calls that this thread had begun in the parent do not count. */
    __atomic_store_n(&gate.state, FORKED, __ATOMIC_SEQ_CST);
    depth = 0;
}

bool fxi_gpu_gate_open(void (*quiesce)(void))
{
    gate.owner = fxi_process_id();
    gate.quiesce = quiesce;
    know_thread();
    return fxi_process_on_fork(NULL, NULL, in_child) && fxi_process_on_exit(&exit_handler);
}

/* ---- calls ----------------------------------------------------------------------------------- */

const char *fxi_gpu_enter(void)
{
    /* A nested call is part of the outer one, which has passed the gate. Refusing the nested call
     * would fail the outer one half way. */
    if (depth > 0) {
        depth++;
        return NULL;
    }
    know_thread();
    /* The count is raised before the state is read, and at_exit changes the state before it reads
     * the count: a call is either refused or waited for. */
    __atomic_add_fetch(&gate.inside, 1, __ATOMIC_SEQ_CST);
    const int state = __atomic_load_n(&gate.state, __ATOMIC_SEQ_CST);
    if (state == OPEN) {
        depth = 1;
        return NULL;
    }
    __atomic_sub_fetch(&gate.inside, 1, __ATOMIC_SEQ_CST);
    return state == FORKED ? "was opened before this process was forked"
                           : "is closed: the process is ending";
}

void fxi_gpu_leave(void)
{
    if (--depth == 0)
        __atomic_sub_fetch(&gate.inside, 1, __ATOMIC_SEQ_CST);
}
