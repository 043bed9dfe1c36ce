/* ref_backend.c: the reference backend, with which tests compare all others: host memory and one
 * naive kernel for each operation. It computes movements as steps of their own (`views` is false),
 * so it also checks how the planner turns movements into strides.
 */
#include <cflux/backend.h>
#include "backends.h"
#include "memory.h"
#include "ref_kernels.h"

static void *ref_alloc(fx_device *device, size_t bytes)
{
    (void)device;
    return fxi_aligned(64, bytes);
}

static void ref_free(fx_device *device, void *ptr)
{
    (void)device;
    fxi_free(ptr);
}

static fx_status ref_run(fx_device *device, const fx_step *step, const void *const *in, void *out,
                         fx_run *run)
{
    (void)device;
    return fxi_ref_run_step(step, in, out, run);
}

const fx_backend fxi_ref_backend = {.head = FX_BACKEND_HEAD("ref"),
                                    .views = false,
                                    .alloc = ref_alloc,
                                    .free = ref_free,
                                    .run = ref_run};
