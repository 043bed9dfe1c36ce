/* forked.h: devices in the child of a fork. Internal. */
#ifndef CFLUX_FORKED_H
#define CFLUX_FORKED_H

#include <cflux/backend.h>

/* Fills in a table that takes the place of `of`, a backend that was opened before this process was
 * forked: what would reach a device fails with a sentence that says so. */
void fxi_forked_table(const fx_backend *of, fx_backend *out);

#endif
