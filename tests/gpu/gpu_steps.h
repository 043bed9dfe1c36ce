/* gpu_steps.h: a table of steps that makes the kernels of GPUs render every text they have. */
#ifndef GPU_STEPS_H
#define GPU_STEPS_H

#include <cflux/backend.h>

enum { GPU_INPUTS = 64, GPU_INSTRUCTIONS = 64, GPU_SEGMENTS = 20 };

typedef struct gpu_case {
    char name[96];
    fx_step step;
    fx_tensor in[GPU_INPUTS];
    int32_t in_value[GPU_INPUTS]; /* of a foreach step: equal ones are the same memory */
    int64_t in_offset[GPU_INPUTS];
    fx_instr program[GPU_INSTRUCTIONS];
    int32_t ninstr;
    fx_segment segments[GPU_SEGMENTS];
    int64_t index_size; /* > 0: operand 1 holds indices below it */
    bool specials;      /* operands hold NaN, infinities and both zeros, too */
    bool too_large;     /* to be run: only its text is of interest */
    double scale;       /* of sums: values of about this size may have cancelled each other */
    bool exact;         /* the same bits as on the CPU */
} gpu_case;

typedef void (*gpu_visitor)(void *user, const gpu_case *c);
/* Visits every step; returns how many. */
int gpu_visit(gpu_visitor visit, void *user);
/* Those of convolution and pooling among them. */
int gpu_visit_windows(gpu_visitor visit, void *user);

#endif
