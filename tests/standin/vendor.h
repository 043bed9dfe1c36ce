/* vendor.h: a backend over src/backends/gpu with a library that multiplies matrices, as cuBLAS
 * does, and a driver that records launches. Its device is host memory; its kernels compute nothing.
 */
#ifndef CFLUX_VENDOR_H
#define CFLUX_VENDOR_H

#include <stdbool.h>

/* What has happened, and what tests ask for: the plugin's function vendor_control_of returns it. */
typedef struct vendor_control {
    int made, freed;        /* states of library calls */
    int calls, kernels;     /* that ran */
    int recorded, replayed; /* recordings */
    int recordings;         /* that live */
    int refuse_from;        /* the step with state number n, from 1, fails; 0: none does */
    bool captures_nothing;  /* calls of steps prepared from now on cannot be recorded */
    bool record_fails;      /* a recording fails at its end */
    bool compiles_nothing;  /* no kernel compiles */
} vendor_control;

#endif
