/* gpu_map.h: programs that compute one value for every element of a space, as text. Internal to
 * gpu_map.c and gpu_foreach.c.
 */
#ifndef CFLUX_GPU_MAP_H
#define CFLUX_GPU_MAP_H

#include "gpu_text.h"

/* Instead of a pattern of strides: one value, or the output's layout. */
enum { FXI_GPU_SINGLE = -1, FXI_GPU_OWN = -2 };
enum { FXI_GPU_OPERANDS = 32 };

/* Tiles of an elementwise step some of whose operands are dense along another axis than the output
 * (kernels/map.cl): the axis of the walk, the size of a tile along it and along axis 0, the
 * output's pattern, and the walk over the other axes. */
typedef struct fxi_gpu_tiles {
    int axis; /* 0: no tiles */
    int size, out;
    fxi_gpu_walk rest;
} fxi_gpu_tiles;

/* The tensors of one program over one space. */
typedef struct fxi_gpu_map {
    const fx_tensor *in;
    int nin, nout;
    uint8_t out[1 + FX_MORE_OUTPUTS]; /* registers */
    int pattern[FXI_GPU_OPERANDS];
    fxi_gpu_buffer_ref from[FXI_GPU_OPERANDS];
    fxi_gpu_layout layout;
    fxi_gpu_walk walk;
    int64_t length;
    int elements; /* that a work-item loads before it stores the first */
    bool beside;  /* in each walked operand these elements are neighbours, or one element */
    bool wide;
    fxi_gpu_tiles tiles;
} fxi_gpu_map;

void fxi_gpu_map_outputs(fxi_gpu_map *p, const fx_step *s);
/* Sets the number of elements of a work-item, when operands, outputs and patterns are known. */
void fxi_gpu_map_count(const fxi_gpu_builder *b, fxi_gpu_map *p);
/* The element type of output k in memory. */
const fxi_gpu_type *fxi_gpu_map_type(const fx_step *s, const fxi_gpu_map *p, int k);
/* Appends loads, program and stores for element i, or for several elements from i on, of which
 * `left` exist. With several, p->beside is true if an operand is walked. */
void fxi_gpu_map_say_element(fxi_gpu_builder *b, const fxi_gpu_map *p);
void fxi_gpu_map_say_elements(fxi_gpu_builder *b, const fxi_gpu_map *p);

#endif
