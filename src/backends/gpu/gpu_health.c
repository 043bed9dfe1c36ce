/* gpu_health.c: decides from an error whether a device is lost; see gpu_health.h. */
#include "gpu_health.h"

#include <stddef.h>

/* Only the first error is kept: later ones are consequences. */
static void lose(fxi_gpu_health *h, const char *call, int error)
{
    const char *none = NULL;
    if (__atomic_compare_exchange_n(&h->call, &none, call, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE))
        __atomic_store_n(&h->lost, error, __ATOMIC_RELEASE);
}

fxi_gpu_verdict fxi_gpu_judge(fxi_gpu_health *h, const char *call, int error,
                              fxi_gpu_error_kind kind, int (*wait)(void *user), void *user)
{
    if (__atomic_load_n(&h->call, __ATOMIC_ACQUIRE))
        return FXI_GPU_LOST;
    /* Two waits: the first may only return the error of work that was queued before. */
    if (kind == FXI_GPU_ERROR_LOSS || (wait(user) != 0 && wait(user) != 0)) {
        lose(h, call, error);
        return FXI_GPU_LOST;
    }
    return kind == FXI_GPU_ERROR_MEMORY ? FXI_GPU_NO_MEMORY : FXI_GPU_CALL_FAILED;
}
