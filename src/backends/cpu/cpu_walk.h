/* cpu_walk.h: walks (strided.h) over a step's tensors. */
#ifndef CFLUX_CPU_WALK_H
#define CFLUX_CPU_WALK_H

#include "step.h"
#include "strided.h"

/* The walk over the axes of t whose bit in `mask` equals `in`. */
void fxi_walk_axes(fxi_walk *w, const fx_tensor *t, uint32_t mask, bool in);

#endif
