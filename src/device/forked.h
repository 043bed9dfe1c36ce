/* forked.h: makes devices refuse work in the child of a fork. Internal. */
#ifndef CFLUX_FORKED_H
#define CFLUX_FORKED_H

#include <cflux/backend.h>

/* Fills in a table that replaces `of`, a backend that was opened before this process was forked.
 * Functions that would use the device fail, with this reason in the message. */
void fxi_forked_table(const fx_backend *of, fx_backend *out);

#endif
