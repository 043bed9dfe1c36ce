/* loss_list.h: collects everything that a file format cannot hold, as one sentence for a message.
 */
#ifndef CFLUX_TOOL_LOSS_LIST_H
#define CFLUX_TOOL_LOSS_LIST_H

#include <cflux.h>

enum { LOSSES_BYTES = 1200 };
typedef struct losses {
    int n, shown;
    char text[LOSSES_BYTES]; /* "model": why; "mean", "std": why; … */
} losses;

/* Adds `"name": why`; a NULL name adds only the reason. Allocates no memory. */
void losses_add(losses *l, const char *name, const char *why);

/* The whole sentence. Items that did not fit are counted: "…; and 7 more". */
const char *losses_sentence(losses *l);

#endif
