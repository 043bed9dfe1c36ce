/* loss_list.h: what a file cannot hold, as one sentence for a message. */
#ifndef CFLUX_TOOL_LOSS_LIST_H
#define CFLUX_TOOL_LOSS_LIST_H

#include <cflux.h>

enum { LOSSES_BYTES = 1200 };
typedef struct losses {
    int n, shown;
    char text[LOSSES_BYTES]; /* "model": why; "mean", "std": why; … */
} losses;

/* Adds `"name": why`; a name that is NULL adds the reason alone. Needs no memory. */
void losses_add(losses *l, const char *name, const char *why);

/* All of it; what did not fit is counted: "…; and 7 more". */
const char *losses_sentence(losses *l);

#endif
