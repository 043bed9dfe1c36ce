/* gpu_health.h: decides from a driver's error whether its device is lost. Internal.
 *
 * Drivers report a device that is lost (unplugged, reset, or after a kernel accessed memory that is
 * not its own) with whatever error the current call may return: out of memory from an allocation,
 * out of resources from a launch. But a lost device keeps failing. So after an error that does not
 * itself mean a loss, the backend waits for the device, twice: if both waits fail, with nothing
 * queued between them, the device is lost. After that nothing is queued on it (gpu_device.h lists
 * the calls that are still made).
 */
#ifndef CFLUX_GPU_HEALTH_H
#define CFLUX_GPU_HEALTH_H

#include <stdbool.h>

typedef struct fxi_gpu_health {
    int lost;         /* atomic: the error that showed the loss; 0: the device works */
    const char *call; /* atomic: the driver's function that returned it */
} fxi_gpu_health;

typedef enum fxi_gpu_verdict {
    FXI_GPU_CALL_FAILED, /* only this call failed */
    FXI_GPU_NO_MEMORY,   /* the device's memory is full */
    FXI_GPU_LOST
} fxi_gpu_verdict;

/* The meaning of an error according to the driver's documentation. */
typedef enum fxi_gpu_error_kind {
    FXI_GPU_ERROR_OTHER,
    FXI_GPU_ERROR_MEMORY, /* device memory is exhausted */
    FXI_GPU_ERROR_LOSS    /* the device, its context or its queue no longer works */
} fxi_gpu_error_kind;

/* Classifies an error. wait(user) waits for all work queued on the device and returns the driver's
 * error, 0: none. */
fxi_gpu_verdict fxi_gpu_judge(fxi_gpu_health *h, const char *call, int error,
                              fxi_gpu_error_kind kind, int (*wait)(void *user), void *user);

static inline int fxi_gpu_lost(const fxi_gpu_health *h)
{
    return __atomic_load_n(&h->lost, __ATOMIC_ACQUIRE);
}

#endif
