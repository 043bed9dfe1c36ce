/* cpu_threads.c: how many threads the CPU's kernels may use.
 *
 * The default is FX_NUM_THREADS, else the number of cores that the process may use (cores.h), which
 * may be less than the machine's, for example in a container. The variable is read at the first
 * use, so that a program may set it.
 */
#include "cpu_threads.h"
#include "cores.h"
#include "number_variable.h"

#include <limits.h>

static int chosen; /* atomic; 0: not decided yet */

static int default_threads(void)
{
    const int cores = fxi_system_cores();
    bool warned = false; /* each call reports a wrong value: there are few calls */
    return (int)fxi_number_variable("FX_NUM_THREADS", 1, INT_MAX, cores, &warned);
}

/* At most FXI_THREADS_MOST, the participants of the thread pool. */
static int bounded(int n)
{
    return n < 1 ? 1 : n > FXI_THREADS_MOST ? FXI_THREADS_MOST : n;
}

int fx_num_threads(void)
{
    int n = __atomic_load_n(&chosen, __ATOMIC_RELAXED);
    if (n > 0)
        return n;
    const int found = bounded(default_threads());
    /* Another thread may have called fx_set_num_threads in the meantime; its number wins. */
    return __atomic_compare_exchange_n(&chosen, &n, found, false, __ATOMIC_RELAXED,
                                       __ATOMIC_RELAXED)
               ? found
               : n;
}

fx_status fx_set_num_threads(int n)
{
    /* 0: the default. */
    if (n < 0)
        return fx_fail(FX_STATUS_ARGUMENT, "set_num_threads", "expected at least 0 threads, got %d",
                       n);
    __atomic_store_n(&chosen, bounded(n ? n : default_threads()), __ATOMIC_RELAXED);
    return FX_OK;
}
