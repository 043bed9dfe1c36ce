/* precision.c: the precision of Float32 products, set by the program or by FX_MATMUL_PRECISION. A
 * graph is evaluated with the precision that is set at that time. The precision is part of the key
 * of plans with products.
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

/* The index of the name in `text`; 0 if it is NULL or empty, NAMES if it is another word. */
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
    /* Read on first use, so a program can set the variable at its start. */
    const char *text = getenv("FX_MATMUL_PRECISION");
    const int found = from_environment(text), choice = found < NAMES ? found : FX_PRECISION_HIGHEST;
    /* A choice that the program has made in another thread meanwhile has precedence over the
     * environment. */
    if (!__atomic_compare_exchange_n(&chosen, &now, choice, false, __ATOMIC_RELAXED,
                                     __ATOMIC_RELAXED))
        return (fx_precision)now;
    if (found == NAMES)
        fx_message(1, "FX_MATMUL_PRECISION=%s is ignored: it must be highest, high or medium.",
                   text);
    return (fx_precision)choice;
}

fx_status fx_set_matmul_precision(fx_precision precision)
{
    if ((unsigned)precision >= NAMES)
        return fx_fail(FX_STATUS_ARGUMENT, "set_matmul_precision", "%d is not an fx_precision",
                       (int)precision);
    __atomic_store_n(&chosen, (int)precision, __ATOMIC_RELAXED);
    return FX_OK;
}
