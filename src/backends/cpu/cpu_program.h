/* cpu_program.h: register programs, prepared for running. Internal.
 *
 * A program is made from instructions, the layouts of their operands, and the registers that are
 * outputs. Making it decides which loop each instruction calls, in which tile each value is kept,
 * and how each operand is read; this is done once, with the plan, because a small step would
 * otherwise spend most of its time on these decisions. Running it is pointer arithmetic and calls.
 * A program is immutable and may run in several threads at once; running allocates nothing and
 * cannot fail.
 *
 * A tensor among the operands may be
 *   dense    element i is at in[k] + i
 *   scalar   one value for all elements, at in[k]; it may change between runs of the program
 *   strided  any other layout of the same elements: in[k] is the first element of the whole
 * A foreach step describes its longest segment: dense and scalar operands of one axis.
 */
#ifndef CFLUX_CPU_PROGRAM_H
#define CFLUX_CPU_PROGRAM_H

#include "cpu_kernels.h"
#include <string.h>

enum { FXI_PROGRAM_OPERANDS = 32, FXI_PROGRAM_OUTPUTS = 1 + FX_MORE_OUTPUTS };

typedef struct fxi_program fxi_program;

typedef struct fxi_program_spec {
    fx_program program;
    int nin, nout;
    const fx_tensor *in; /* nin operands; registers 0 … nin−1 */
    int64_t length;      /* the total number of elements */
    bool stretches; /* tiles may end where stretches of equal elements of an operand, or rows of a
                       slice, end. Not for programs with a sink whose result depends on where tiles
                       end. */
    uint8_t out[FXI_PROGRAM_OUTPUTS]; /* registers of the outputs: results of instructions, all
                                         different */
} fxi_program_spec;

/* Makes a program. *out_program, usually a step's `ready`, is NULL unless FX_OK is returned.
 * Returns FX_STATUS_UNSUPPORTED if the type of an instruction does not support it,
 * FX_STATUS_INTERNAL if there are too many registers. */
fx_status fxi_program_make(const fxi_program_spec *spec, void **out_program);
void fxi_program_free(fxi_program *p);

/* Receives a finished tile: tiles[k] holds elements at … at+n−1 of output k, in its element
 * type. */
typedef void (*fxi_tile_sink)(void *user, const void *const *tiles, int64_t at, int n);

typedef struct fxi_program_args {
    const void *const *in; /* one for each operand: its element 0, whatever `from` is */
    void *const *out;   /* one for each output: where its element 0 is stored. NULL: only the sink
                           gets it. May be a dense operand's memory. */
    int64_t from, to;   /* the elements to compute */
    fxi_tile_sink sink; /* NULL: none */
    void *user;
    bool stream; /* stores bypass the caches, for outputs much larger than these */
} fxi_program_args;

void fxi_program_run(const fxi_program *p, const fxi_program_args *args);
/* Runs on several threads if that is faster. `args` must not have a sink. */
void fxi_program_run_parallel(const fxi_program *p, const fxi_program_args *args);
/* Nanoseconds that an element costs one thread, roughly (cpu_parallel.h). */
double fxi_program_cost(const fxi_program *p);

/* Repeats the first `have` bytes up to `need` bytes. Each copy reads a whole number of periods
 * earlier. It copies a whole block, so up to 63 bytes after `need` are overwritten. Calls of memcpy
 * would take longer, because most periods are a few numbers. */
static inline void fxi_fill_period(char *to, size_t have, size_t need)
{
    enum { BLOCK = 64 };
    /* A block must not reach the bytes that it writes, so the first ones are shorter. */
    for (; have < BLOCK && have < need; have *= 2)
        for (size_t k = 0; k < have; k += sizeof(uint64_t)) {
            uint64_t word;
            memcpy(&word, to + k, sizeof word);
            memcpy(to + have + k, &word, sizeof word);
        }
    for (size_t k = have; k < need; k += BLOCK)
        memcpy(to + k, to + k - have, BLOCK);
}

#endif
