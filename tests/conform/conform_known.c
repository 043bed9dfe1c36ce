/* conform_known.c: the failures that backends declare.
 *
 * `unsupported`: the backend refuses the case with FX_STATUS_UNSUPPORTED, for the reason given.
 * `xfail`: the case fails, for the reason given. A case that passes although it is declared counts
 * as a failure, so that a row is removed as soon as its cause is removed.
 *
 * A device without Float64 (fx_device_info.no_f64) needs no rows for that: a refusal that names
 * Float64 counts as unsupported.
 */
#include "conform.h"

#include <cflux/backend.h>

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

bool cf_lacks_f64(const fx_device *device, const char *why)
{
    return device->info.no_f64 && strstr(why, "Float64") != NULL;
}
