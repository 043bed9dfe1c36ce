/* dist_leave.c: the end of a process that has joined a group.
 *
 * A program may call exit, or return from main, while an operation runs: in the thread of the
 * group, if exit is called within an evaluation, or in another thread of the program. MPI accepts
 * calls of one thread at a time, and the transport finalises MPI when the process ends. So the exit
 * handler below, which runs before that of the transport, waits until no operation runs, at most
 * three time limits, and lets none begin afterwards.
 *
 * The operation that runs is completed, because the other members take part in it, and it has a
 * time limit. Operations that are queued are refused: so the other members get an error at once,
 * and not at the time limit. Neither locks nor hooks are used, because the thread that calls exit
 * may hold a lock, and objects that a hook needs may have been destroyed.
 */
#include "dist_group.h"

#include "clock.h"
#include "this_process.h"

enum { STAYS, REFUSES, LEFT };

static _Thread_local bool inside; /* this thread runs an operation */

/* Before and after an operation, which holds d->lock. One of two threads sees what the other has
 * written first: either this one sees that the group has been left, or fxi_dist_leave sees the
 * operation. */
bool fxi_dist_enter(fx_dist *d)
{
    __atomic_store_n(&d->busy, true, __ATOMIC_SEQ_CST);
    inside = __atomic_load_n(&d->leaving, __ATOMIC_SEQ_CST) != LEFT;
    if (!inside)
        __atomic_store_n(&d->busy, false, __ATOMIC_SEQ_CST);
    return inside;
}

void fxi_dist_done(fx_dist *d)
{
    inside = false;
    __atomic_store_n(&d->busy, false, __ATOMIC_SEQ_CST);
}

bool fxi_dist_refuses(const fx_dist *d)
{
    return __atomic_load_n(&d->leaving, __ATOMIC_SEQ_CST) != STAYS;
}

/* The comparison and each wait for data have a time limit of their own, so three limits are enough
 * for most operations, and a longer one is cut off. A refusal takes one. The thread that exits may
 * itself be in an operation, if a hook or a signal handler calls exit: then it cannot wait for it.
 */
void fxi_dist_leave(fx_dist *d)
{
    const double end = fxi_clock() + 3 * d->limit;
    if (inside)
        return;
    __atomic_store_n(&d->leaving, REFUSES, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&d->queue.unfinished, __ATOMIC_SEQ_CST) > 0 && fxi_clock() < end)
        fxi_sleep_milliseconds(1);
    __atomic_store_n(&d->leaving, LEFT, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&d->busy, __ATOMIC_SEQ_CST) && fxi_clock() < end)
        fxi_sleep_milliseconds(1);
}

/* ---- at exit --------------------------------------------------------------------------------- */

static fx_dist *joined;
static long process; /* a child (fork) inherits the handler, but not the group */

static void leave(void)
{
    if (fxi_process_id() == process)
        fxi_dist_leave(joined);
}

bool fxi_dist_leave_at_exit(fx_dist *d)
{
    static fxi_exit_handler handler = {.run = leave};
    joined = d;
    process = fxi_process_id();
    return fxi_process_on_exit(&handler);
}
