/* cpu_program.h: register programs, prepared: what a step's instructions become once and for all.
 *
 * A program is made from instructions, their operands' layouts and the registers that leave it. It
 * says which loop each instruction calls, in which tile each value lives, and how each operand is
 * read; running it is pointer arithmetic and calls. It is immutable and may run in several threads
 * at once; running takes no memory and cannot fail.
 *
 * A tensor among the operands may be
 *   dense    element i is at in[k] + i
 *   scalar   one value for all elements; in[k] points at it, and may change from run to run
 *   strided  anything else over the same elements: in[k] points at the first element of the whole
 * and a step over rows describes a row: dense and scalar operands of one axis.
 */
#ifndef CFLUX_CPU_PROGRAM_H
#define CFLUX_CPU_PROGRAM_H

#include "cpu_kernels.h"

enum { FXI_PROGRAM_OPERANDS = 32, FXI_PROGRAM_OUTPUTS = 1 + FX_MORE_OUTPUTS };

typedef struct fxi_program fxi_program;

typedef struct fxi_program_spec {
    fx_program program;
    int nin, nout;
    const fx_tensor *in;              /* nin operands; registers 0 … nin−1 */
    int64_t length;                   /* the number of elements computed in all */
    uint8_t out[FXI_PROGRAM_OUTPUTS]; /* registers, results of instructions, all different */
} fxi_program_spec;

/* *out_program (a step's `ready`, say) is NULL unless FX_OK. FX_STATUS_UNSUPPORTED: an instruction
 * has no meaning for its type; FX_STATUS_INTERNAL: too many registers. */
fx_status fxi_program_make(const fxi_program_spec *spec, void **out_program);
void fxi_program_free(fxi_program *p);

/* Takes a tile: tiles[k] holds elements at … at+n−1 of output k, in its element type. */
typedef void (*fxi_tile_sink)(void *user, const void *const *tiles, int64_t at, int n);

typedef struct fxi_program_args {
    const void *const *in; /* one a operand: where element 0 of the whole is, whatever `from` is */
    void *const *out;      /* one an output: where its element 0 goes; NULL: it is only shown to the
                              sink. May be a dense operand's memory. */
    int64_t from, to;      /* elements computed */
    fxi_tile_sink sink;    /* NULL: none */
    void *user;
    bool stream; /* results go past the caches: outputs much larger than them */
} fxi_program_args;

void fxi_program_run(const fxi_program *p, const fxi_program_args *args);
/* The same on several threads where that pays; without a sink. */
void fxi_program_run_parallel(const fxi_program *p, const fxi_program_args *args);
/* Nanoseconds that an element costs one thread, roughly (cpu_parallel.h). */
double fxi_program_cost(const fxi_program *p);

#endif
