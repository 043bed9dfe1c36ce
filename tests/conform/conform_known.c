/* conform_known.c: what backends declare about themselves.
 *
 * `unsupported`: the backend refuses the case with FX_STATUS_UNSUPPORTED, for the reason given.
 * `xfail`: the case fails, and what is known about it. Both are promises: a case that passes
 * although it is declared counts as a failure, so that a row is removed as soon as its cause is.
 */
#include "conform.h"

#include <string.h>

/* Device, part of the full name, reason, xfail. Ends with a NULL device. */
static const cf_declaration declarations[] = {
    {NULL, NULL, NULL, false},
};

const cf_declaration *cf_declared(const char *device, const char *name)
{
    for (const cf_declaration *d = declarations; d->device; d++)
        if (strcmp(d->device, device) == 0 && strstr(name, d->pattern))
            return d;
    return NULL;
}
