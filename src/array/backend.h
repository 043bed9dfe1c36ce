/* backend.h: what a device can do for the planner and the arrays: one table a backend.
 *
 * Both backends that exist work in host memory, which reads and moves address directly. The planner
 * asks `views`: true when kernels take strided inputs, so that reshapes,
 * slices and broadcasts cost nothing; false (ref) makes every movement a step that the backend
 * computes itself.
 */
#ifndef CFLUX_ARRAY_BACKEND_H
#define CFLUX_ARRAY_BACKEND_H

#include <cflux/device.h>

struct fxi_step;
struct fxi_run;

typedef struct fxi_backend {
    const char *name;
    bool views;
    bool fuses; /* takes elementwise steps of several instructions and outputs */
    void *(*alloc)(fx_device *device, size_t bytes); /* 64-byte aligned; NULL when memory is out */
    void (*free)(fx_device *device, void *ptr);
    /* Runs one step (step.h); on failure run->error holds the sentence. */
    fx_status (*run)(fx_device *device, const struct fxi_step *step, const void *const *in,
                     void *out, struct fxi_run *run);
} fxi_backend;

struct fx_device {
    fx_object base;
    const fxi_backend *backend;
    int id;
    const char *name; /* "CPU", "ref", "CUDA:0" */
};

#endif
