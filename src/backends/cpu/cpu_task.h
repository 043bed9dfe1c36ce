/* cpu_task.h: tasks, the units that a program computes in one call each. A task is one instruction,
 * or two in one loop (fxi_pair_loops). Internal. */
#ifndef CFLUX_CPU_TASK_H
#define CFLUX_CPU_TASK_H

#include "cpu_simd.h"

enum { FXI_TASK_REGISTERS = 256 /* registers are numbered by a byte */ };

typedef struct fxi_cpu_task {
    const fx_instr *ins, *first; /* first: the instruction that the same loop computes before
                                    `ins`; NULL: `ins` alone */
    bool from;                   /* ins subtracts the result of `first` */
    uint8_t nreads, reads[3];    /* registers */
    uint8_t result;
} fxi_cpu_task;

/* Bytes of an element of a register: 16-bit values are Float32 there. */
static inline size_t fxi_cpu_register_size(int dtype)
{
    return fxi_cpu_is_half(dtype) ? sizeof(float) : fxi_cpu_size(dtype);
}

/* Divides a program of `nin` inputs into tasks, and returns their number. `kept`: the registers
 * that are also read outside of the program. */
int fxi_cpu_tasks(const fx_program *program, int nin, const bool *kept, fxi_cpu_task *tasks);

/* The loop of an elementwise task; NULL if the type does not support the operation. `scalars`: bits
 * of t->reads that are available as single numbers. *out_ones: those that the loop takes as single
 * numbers; it takes the others as vectors. */
fxi_tile_fn fxi_cpu_task_loop(const fxi_simd *simd, const fxi_cpu_task *t, unsigned scalars,
                              unsigned *out_ones);

#endif
