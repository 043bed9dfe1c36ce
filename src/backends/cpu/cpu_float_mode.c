/* cpu_float_mode.c: fx_flush_denormals.
 *
 * The choice is the program's, else FX_FLUSH_DENORMALS, which is read at the first use, so that a
 * program may set the variable at its start.
 */
#include "cpu_float_mode.h"
#include "step.h"

#include <stdlib.h>
#include <string.h>

static int chosen = -1; /* atomic; −1: not decided yet */

bool fxi_cpu_flushes(void)
{
    int now = __atomic_load_n(&chosen, __ATOMIC_RELAXED);
    if (now >= 0)
        return now;
    const char *text = getenv("FX_FLUSH_DENORMALS");
    const int found = FXI_MODE_FLUSH != 0 && text && *text && strcmp(text, "0") != 0;
    /* A choice that the program has made in another thread meanwhile wins. */
    return __atomic_compare_exchange_n(&chosen, &now, found, false, __ATOMIC_RELAXED,
                                       __ATOMIC_RELAXED)
               ? found
               : now;
}

bool fx_flush_denormals(bool on)
{
    __atomic_store_n(&chosen, on && FXI_MODE_FLUSH != 0, __ATOMIC_RELAXED);
    return FXI_MODE_FLUSH != 0;
}
