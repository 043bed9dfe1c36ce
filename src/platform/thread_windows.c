/* thread_windows.c: threads of MinGW's winpthreads; see thread.h. Windows has no signals that a
 * thread could receive. */
#include "thread.h"

#include <sched.h>

int fxi_thread_start(fxi_thread *out, void *(*run)(void *), void *user)
{
    return pthread_create(out, NULL, run, user);
}

void fxi_thread_join(fxi_thread thread)
{
    pthread_join(thread, NULL);
}

void fxi_thread_yield(void)
{
    sched_yield();
}

/* ---- the end of a thread --------------------------------------------------------------------- */

/* gcc stores _Thread_local variables on Windows as the value of a key of winpthreads, which it
 * creates when the first of these variables is used. The destructor of that key frees the
 * variables; later uses in the same thread find them zero again. A thread that ends calls the
 * destructors in the order in which the keys were created. So the keys of the library are created
 * here, before other constructors run. A destructor does not know its key: each has its own
 * function. */
enum { VALUES = 4 };
static fxi_thread_value values[VALUES];
static void (*ends[VALUES])(void *);
static int nvalues, ntaken;

static void end_0(void *value)
{
    ends[0](value);
}
static void end_1(void *value)
{
    ends[1](value);
}
static void end_2(void *value)
{
    ends[2](value);
}
static void end_3(void *value)
{
    ends[3](value);
}

__attribute__((constructor(101))) static void make_values(void)
{
    static void (*const all[VALUES])(void *) = {end_0, end_1, end_2, end_3};
    while (nvalues < VALUES && pthread_key_create(&values[nvalues], all[nvalues]) == 0)
        nvalues++;
}

bool fxi_thread_value_init(fxi_thread_value *v, void (*end)(void *))
{
    const int i = __atomic_fetch_add(&ntaken, 1, __ATOMIC_RELAXED);
    if (i >= nvalues)
        return false;
    ends[i] = end;
    *v = values[i];
    return true;
}
