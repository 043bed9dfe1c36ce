/* vendor.h: a test backend based on src/backends/gpu. It has a library that multiplies matrices, as
 * cuBLAS does, and a driver that records launches. Its device memory is host memory; its kernels
 * compute nothing.
 */
#ifndef CFLUX_VENDOR_H
#define CFLUX_VENDOR_H

#include <stdbool.h>

/* Counters, and settings of tests. The plugin's function vendor_control_of returns it. */
typedef struct vendor_control {
    int made, freed;        /* states of library calls */
    int calls, kernels;     /* calls and kernels that ran */
    int recorded, replayed; /* recordings */
    int recordings;         /* live recordings */
    int refuse_from;        /* the step with state number n, from 1, fails; 0: none fails */
    bool captures_nothing;  /* calls of steps prepared from now on cannot be recorded */
    bool record_fails;      /* a recording fails at its end */
    bool compiles_nothing;  /* compiling a kernel fails */
} vendor_control;

#endif
