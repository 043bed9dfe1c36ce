/* cpu_walk.h: walks (strided.h) over some of the axes of a step's tensor. Internal. */
#ifndef CFLUX_CPU_WALK_H
#define CFLUX_CPU_WALK_H

#include "step.h"
#include "strided.h"

/* Starts a walk over the axes of t whose bit in `mask` equals `in`. */
void fxi_walk_axes(fxi_walk *w, const fx_tensor *t, uint32_t mask, bool in);

/* fxi_transpose, with blocks in registers where the instruction set has a loop for them. */
void fxi_cpu_transpose(void *dst, const void *src, int64_t ni, int64_t nj, int64_t si, int64_t dj,
                       size_t size);

#endif
