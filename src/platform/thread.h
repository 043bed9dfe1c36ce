/* thread.h: threads and locks of the operating system. Internal. Locks and conditions are inline,
 * because each evaluation takes several of them. Only files of this folder name the system's types.
 */
#ifndef CFLUX_THREAD_H
#define CFLUX_THREAD_H

#include <pthread.h>
#include <stdbool.h>

/* ---- locks ----------------------------------------------------------------------------------- */

typedef pthread_mutex_t fxi_mutex;
#define FXI_MUTEX_INIT PTHREAD_MUTEX_INITIALIZER

static inline void fxi_mutex_init(fxi_mutex *m)
{
    pthread_mutex_init(m, NULL);
}
static inline void fxi_mutex_destroy(fxi_mutex *m)
{
    pthread_mutex_destroy(m);
}
static inline void fxi_mutex_lock(fxi_mutex *m)
{
    pthread_mutex_lock(m);
}
static inline void fxi_mutex_unlock(fxi_mutex *m)
{
    pthread_mutex_unlock(m);
}

/* ---- conditions ------------------------------------------------------------------------------ */

typedef pthread_cond_t fxi_cond;
#define FXI_COND_INIT PTHREAD_COND_INITIALIZER

/* False: the system cannot create another one. */
static inline bool fxi_cond_init(fxi_cond *c)
{
    return pthread_cond_init(c, NULL) == 0;
}
static inline void fxi_cond_destroy(fxi_cond *c)
{
    pthread_cond_destroy(c);
}
static inline void fxi_cond_wait(fxi_cond *c, fxi_mutex *m)
{
    pthread_cond_wait(c, m);
}
static inline void fxi_cond_wake_one(fxi_cond *c)
{
    pthread_cond_signal(c);
}
static inline void fxi_cond_wake_all(fxi_cond *c)
{
    pthread_cond_broadcast(c);
}

/* ---- once in a process ----------------------------------------------------------------------- */

typedef pthread_once_t fxi_once;
#define FXI_ONCE_INIT PTHREAD_ONCE_INIT

static inline void fxi_call_once(fxi_once *once, void (*function)(void))
{
    pthread_once(once, function);
}

/* ---- threads --------------------------------------------------------------------------------- */

typedef pthread_t fxi_thread;

/* Starts a thread with all signals blocked, so that the handlers of a program run in its own
 * threads. Returns 0, or an error number like errno. */
int fxi_thread_start(fxi_thread *out, void *(*run)(void *), void *user);
void fxi_thread_join(fxi_thread thread);
/* Lets another thread run on this processor, if one is ready. */
void fxi_thread_yield(void);

/* ---- the end of a thread --------------------------------------------------------------------- */

/* A variable that has its own value in each thread. When a thread ends, `end` is called with its
 * value unless that is NULL; not for the main thread at the end of the process. */
typedef pthread_key_t fxi_thread_value;

/* False: no memory, or more variables than the system allows (Windows: 4). `end` may use
 * _Thread_local variables. */
bool fxi_thread_value_init(fxi_thread_value *v, void (*end)(void *));
static inline bool fxi_thread_value_set(fxi_thread_value v, void *value)
{
    return pthread_setspecific(v, value) == 0;
}

#endif
