/* away.c: a backend whose memory the host cannot address: see away.h. */
#include "away.h"
#include "backends.h"
#include "registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Addresses with this bit are invalid in the user space of every processor. */
#define AWAY ((uintptr_t)1 << 52)

away_counts away;
int64_t away_alloc_fails, away_copy_fails, away_run_fails;

static void *handed(void *host)
{
    return (void *)((uintptr_t)host + AWAY);
}
static void *real(const void *address)
{
    return (void *)((uintptr_t)address - AWAY);
}

static void count(int64_t *counter, int64_t n)
{
    __atomic_fetch_add(counter, n, __ATOMIC_RELAXED);
}
/* Counts down to the call that must fail. */
static bool fails(int64_t *countdown)
{
    return __atomic_load_n(countdown, __ATOMIC_RELAXED) > 0 &&
           __atomic_sub_fetch(countdown, 1, __ATOMIC_RELAXED) == 0;
}

static void *away_alloc(fx_device *device, size_t bytes)
{
    (void)device;
    if (fails(&away_alloc_fails))
        return NULL;
    void *host = aligned_alloc(64, (bytes + 64) / 64 * 64);
    if (!host)
        return NULL;
    count(&away.allocs, 1);
    count(&away.live, 1);
    return handed(host);
}

static void away_free(fx_device *device, void *ptr)
{
    (void)device;
    count(&away.live, -1);
    free(real(ptr));
}

static fx_status away_write(fx_device *device, void *to, const void *from, size_t bytes)
{
    if (fails(&away_copy_fails))
        return fx_fail(FX_STATUS_DEVICE, "write", "%s does not answer", device->name);
    count(&away.writes, 1);
    count(&away.bytes_written, (int64_t)bytes);
    memcpy(real(to), from, bytes);
    return FX_OK;
}

static fx_status away_read(fx_device *device, void *to, const void *from, size_t bytes)
{
    if (fails(&away_copy_fails))
        return fx_fail(FX_STATUS_DEVICE, "read", "%s does not answer", device->name);
    count(&away.reads, 1);
    count(&away.bytes_read, (int64_t)bytes);
    memcpy(to, real(from), bytes);
    return FX_OK;
}

static fx_status away_copy(fx_device *to_device, void *to, fx_device *from_device, const void *from,
                           size_t bytes)
{
    (void)from_device;
    if (fails(&away_copy_fails))
        return fx_fail(FX_STATUS_DEVICE, "copy", "%s does not answer", to_device->name);
    count(&away.copies, 1);
    memcpy(real(to), real(from), bytes);
    return FX_OK;
}

static fx_status away_prepare(fx_device *device, fx_step *step)
{
    return fxi_cpu_backend.prepare(device, step);
}
static void away_release(fx_device *device, fx_step *step)
{
    fxi_cpu_backend.release(device, step);
}

static fx_status away_run(fx_device *device, const fx_step *step, const void *const *in, void *out,
                          fx_run *run)
{
    const int outputs = step->cls == FX_CLASS_FOREACH ? fx_step_outputs(step) : 0;
    const void **inputs = malloc(((size_t)step->nin + 1) * sizeof *inputs);
    void **segments = malloc(((size_t)outputs + 1) * sizeof *segments);
    fx_run here = {.work = run->work ? real(run->work) : NULL,
                   .streams = run->streams ? real(run->streams) : NULL,
                   .outputs = segments};
    for (int k = 0; k < step->nin; k++)
        inputs[k] = real(in[k]);
    for (int k = 0; k < fx_step_more(step)->n && outputs == 0; k++)
        here.more[k] = real(run->more[k]);
    for (int k = 0; k < outputs; k++)
        segments[k] = real(run->outputs[k]);
    fx_status status = FX_STATUS_DEVICE;
    if (fails(&away_run_fails))
        fx_fail(status, fx_op_name(step->op), "%s does not answer", device->name);
    else
        status = fxi_cpu_backend.run(device, step, inputs, real(out), &here);
    count(&away.runs, 1);
    free(inputs);
    free(segments);
    return status;
}

static fx_status away_info(fx_device *device)
{
    snprintf(device->info.name, sizeof device->info.name, "Test device %d", device->id);
    return FX_OK;
}

fx_device *away_register(const char *name, int devices)
{
    static fx_backend backends[4];
    static int used;
    if (used == 4)
        abort();
    backends[used] = (fx_backend){.head = FX_BACKEND_HEAD(name),
                                  .views = true,
                                  .fuses = true,
                                  .info = away_info,
                                  .alloc = away_alloc,
                                  .free = away_free,
                                  .write = away_write,
                                  .read = away_read,
                                  .copy = away_copy,
                                  .prepare = away_prepare,
                                  .release = away_release,
                                  .run = away_run};
    if (fxi_backend_register(&backends[used++], devices, "") != FX_OK)
        abort();
    for (int i = 0; i < devices; i++) /* freed memory is not cached, so it is counted */
        fx_set_memory_cache(fx_device_get(name, i), 0);
    return fx_device_get(name, 0);
}
