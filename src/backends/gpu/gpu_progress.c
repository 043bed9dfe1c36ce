/* gpu_progress.c: measures compile time and decides when a progress message is due; see
 * gpu_progress.h. */
#include "gpu_progress.h"
#include "clock.h"

#include <stdio.h>

/* Short compilations are not worth a message; long ones repeat it, less and less often. */
enum { SECONDS_FIRST = 2, SECONDS_BETWEEN = 5 };

/* Seconds in which at least one thread compiled, not the sum over threads. */
static double spent(const fxi_gpu_progress *p)
{
    return p->busy + (p->active > 0 ? fxi_clock() - p->since : 0);
}

void fxi_gpu_progress_init(fxi_gpu_progress *p)
{
    *p = (fxi_gpu_progress){.next = SECONDS_FIRST};
    fxi_mutex_init(&p->lock);
}

void fxi_gpu_compile_begin(fxi_gpu_progress *p)
{
    fxi_mutex_lock(&p->lock);
    if (p->active++ == 0)
        p->since = fxi_clock();
    fxi_mutex_unlock(&p->lock);
}

/* Other threads may still compile, so the time until now is added and the clock starts again. */
void fxi_gpu_compile_end(fxi_gpu_progress *p, int compiled)
{
    fxi_mutex_lock(&p->lock);
    p->count += compiled;
    p->busy = spent(p);
    p->since = fxi_clock();
    p->active--;
    fxi_mutex_unlock(&p->lock);
}

void fxi_gpu_progress_say(fxi_gpu_progress *p, const fx_host *host, const char *device)
{
    char text[160];
    fxi_mutex_lock(&p->lock);
    const double seconds = spent(p);
    /* Programs loaded from the disk cache do not count: they take no noticeable time. */
    const bool due = p->count > 0 && seconds >= p->next;
    if (due) {
        p->next = seconds + (seconds > 4 * SECONDS_BETWEEN ? seconds / 4 : SECONDS_BETWEEN);
        snprintf(text, sizeof text, "%s: compiling kernels for the first time: %d so far, %.0f s",
                 device, p->count, seconds);
    }
    fxi_mutex_unlock(&p->lock);
    /* Without the lock: other threads that compile need not wait until the text is written. */
    if (due)
        host->message(0, text);
}
