/* cpu_float_mode.c: fx_flush_denormals.
 *
 * The program decides with fx_flush_denormals, else the environment variable FX_FLUSH_DENORMALS
 * does. The variable is read at the first use, so that a program may set it at its start.
 */
#include "cpu_float_mode.h"
#include "step.h"

#include <stdlib.h>
#include <string.h>

int fxi_cpu_flush_choice = -1;

bool fxi_cpu_flush_decide(void)
{
    int now = -1;
    const char *text = getenv("FX_FLUSH_DENORMALS");
    const int found = FXI_MODE_FLUSH != 0 && text && *text && strcmp(text, "0") != 0;
    /* A choice that the program has made in another thread meanwhile wins. */
    return __atomic_compare_exchange_n(&fxi_cpu_flush_choice, &now, found, false, __ATOMIC_RELAXED,
                                       __ATOMIC_RELAXED)
               ? found
               : now;
}

bool fx_flush_denormals(bool on)
{
    __atomic_store_n(&fxi_cpu_flush_choice, on && FXI_MODE_FLUSH != 0, __ATOMIC_RELAXED);
    return FXI_MODE_FLUSH != 0;
}
