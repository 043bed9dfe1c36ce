/* precision.c: how exact products of Float32 have to be. Graphs are evaluated with what is set
 * then; it is part of the key of plans that have products.
 */
#include "error.h"
#include "planning.h"

#include <cflux/ops.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {[FX_PRECISION_HIGHEST] = "highest",
                                    [FX_PRECISION_HIGH] = "high",
                                    [FX_PRECISION_MEDIUM] = "medium"};
enum { NAMES = sizeof names / sizeof names[0] };

static int chosen = -1; /* atomic; −1: FX_MATMUL_PRECISION has not been read yet */

/* NAMES: the variable has another value. */
static int from_environment(const char *text)
{
    int k = 0;
    while (text && *text && k < NAMES && strcmp(text, names[k]) != 0)
        k++;
    return k;
}

fx_precision fx_matmul_precision(void)
{
    int now = __atomic_load_n(&chosen, __ATOMIC_RELAXED);
    if (now >= 0)
        return (fx_precision)now;
    const char *text = getenv("FX_MATMUL_PRECISION");
    const int found = from_environment(text), wish = found < NAMES ? found : FX_PRECISION_HIGHEST;
    /* Unless somebody has chosen meanwhile. */
    if (!__atomic_compare_exchange_n(&chosen, &now, wish, false, __ATOMIC_RELAXED,
                                     __ATOMIC_RELAXED))
        return (fx_precision)now;
    if (found == NAMES)
        fx_message(1, "FX_MATMUL_PRECISION=%s is ignored: it must be highest, high or medium.",
                   text);
    return (fx_precision)wish;
}

fx_status fx_set_matmul_precision(fx_precision precision)
{
    if ((unsigned)precision >= NAMES)
        return fx_fail(FX_STATUS_ARGUMENT, "set_matmul_precision", "%d is not an fx_precision",
                       (int)precision);
    __atomic_store_n(&chosen, (int)precision, __ATOMIC_RELAXED);
    return FX_OK;
}
