/* memory_limits.c: the public functions that set and read memory limits and figures of a device. A
 * NULL device means the CPU.
 */
#include "pool.h"

#include <cflux/device.h>
#include <string.h>

static fx_device *or_cpu(fx_device *device)
{
    return device ? device : fx_cpu_device();
}

void fx_set_memory_limit(fx_device *device, int64_t bytes)
{
    __atomic_store_n(&fxi_pool_of(or_cpu(device))->limit, bytes > 0 ? bytes : 0, __ATOMIC_RELAXED);
}

void fx_set_memory_cache(fx_device *device, int64_t bytes)
{
    fxi_pool_keep(or_cpu(device), bytes);
}

void fxi_memory_status(fx_device *device, fx_memory *out)
{
    fx_memory m;
    const size_t size = out->fxi_size < sizeof m ? out->fxi_size : sizeof m;
    fxi_memory_figures(or_cpu(device), &m);
    m.fxi_size = out->fxi_size;
    memcpy(out, &m, size);
}
