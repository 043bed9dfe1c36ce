/* gpu_steps.h: a list of steps for which the GPU code builds all kernel texts that it has. */
#ifndef GPU_STEPS_H
#define GPU_STEPS_H

#include <cflux/backend.h>

enum { GPU_INPUTS = 64, GPU_INSTRUCTIONS = 64, GPU_SEGMENTS = 20 };

typedef struct gpu_case {
    char name[96];
    fx_step step;
    fx_tensor in[GPU_INPUTS];
    int32_t in_value[GPU_INPUTS]; /* foreach steps: operands with equal numbers share memory */
    int64_t in_offset[GPU_INPUTS];
    fx_instr program[GPU_INSTRUCTIONS];
    int32_t ninstr;
    fx_segment segments[GPU_SEGMENTS];
    fx_step each[GPU_SEGMENTS]; /* reductions that are one step */
    int64_t index_size;         /* > 0: operand 1 holds indices below it */
    bool specials;              /* operands hold NaN, infinities and both zeros, too */
    bool infinite;              /* the first element of operand 1 is infinite */
    bool too_large;             /* too large to run; only the text is tested */
    double scale; /* sums: errors may be relative to this size, as terms cancel each other */
    bool exact;   /* results must have the same bits as on the CPU */
} gpu_case;

typedef void (*gpu_visitor)(void *user, const gpu_case *c);
/* Calls visit for every step. Returns the number of steps. */
int gpu_visit(gpu_visitor visit, void *user);
/* The same for the steps of attention, which only CUDA has kernels for. */
int gpu_visit_attention(gpu_visitor visit, void *user);
/* The same for the steps of convolution and pooling only. */
int gpu_visit_windows(gpu_visitor visit, void *user);

#endif
