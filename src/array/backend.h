/* backend.h: what a device can do for the planner and the arrays: one table a backend.
 *
 * The planner asks `views`: true when kernels take strided inputs, so that reshapes, slices and
 * broadcasts cost nothing; false (ref) makes every movement a step that the backend computes
 * itself. The CPU and ref work in host memory, which reads and moves address directly; a backend
 * with memory of its own has `read` and `write`.
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
    /* Does it take a conv or pool step channels last (step.h), and rather than dense? Asked before
     * the step is made, with the sizes filled in. NULL: never. */
    bool (*channels_last)(fx_device *device, const struct fxi_step *step);
    void *(*alloc)(fx_device *device, size_t bytes); /* 64-byte aligned; NULL when memory is out */
    void (*free)(fx_device *device, void *ptr);
    /* Memory that the host cannot address: addresses are the backend's own, and the library does
     * nothing with them but add offsets. How bytes get there, back, and from one device of the
     * backend to another; a failure is recorded with its reason (fx_fail). All NULL: the memory is
     * the host's. */
    fx_status (*write)(fx_device *device, void *to, const void *from, size_t bytes);
    fx_status (*read)(fx_device *device, void *to, const void *from, size_t bytes);
    fx_status (*copy)(fx_device *to_device, void *to, fx_device *from_device, const void *from,
                      size_t bytes); /* NULL: by way of the host */
    /* Makes a step of a new plan ready: what can be decided once (loops, tiles, a library's
     * primitive) goes to step->ready, which several threads may use at the same time and `release`
     * frees. FX_STATUS_UNSUPPORTED: not with this epilogue; the planner
     * asks again with less of it. NULL: there is nothing to make ready. */
    fx_status (*prepare)(fx_device *device, struct fxi_step *step);
    void (*release)(fx_device *device, struct fxi_step *step);
    /* Runs one step (step.h); on failure run->error holds the sentence. */
    fx_status (*run)(fx_device *device, const struct fxi_step *step, const void *const *in,
                     void *out, struct fxi_run *run);
} fxi_backend;

struct fx_device {
    fx_object base;
    const fxi_backend *backend;
    int id;
    const char *name; /* "CPU", "ref", "CUDA:0" */
    int64_t live;     /* bytes of its buffers; atomic */
    int64_t limit;    /* the most of them; 0: as many as there are; atomic */
};

#endif
