/* uses.h: which steps of a plan compute and read each value. The lists are made once, because
 * searching all steps for each value would make planning quadratic in the number of layers. */
#ifndef CFLUX_USES_H
#define CFLUX_USES_H

#include "plan.h"

typedef struct fxi_uses {
    int32_t *made; /* per value: the step that computes it; −1: none */
    int32_t *first; /* per value v: its readers are reader[first[v]] … reader[first[v + 1] − 1] */
    int32_t *reader;
} fxi_uses;

/* False if an allocation fails; the lists must be freed then, too. */
bool fxi_uses_list(const fxi_plan *p, fxi_uses *out);
void fxi_uses_free(fxi_uses *u);

#endif
