/* check.c: the table of the checking backend: a backend around another one that verifies how the
 * library and the backend use memory.
 *
 * "check:CPU" computes with the CPU backend, so only the checks take additional time. Its table is
 * made at run time. check_memory.c allocates, and check_step.c runs steps. The functions for whole
 * plans and for collective steps are always NULL: plans run step by step, which can be checked, and
 * collective steps work on host memory. All other calls are passed on with the inner device. A
 * violation is an error like any other. step->ready belongs to the inner backend.
 */
#include "check.h"
#include "backends.h"
#include "memory.h"
#include "pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const fx_backend *inner_of(const fx_device *device)
{
    return fxi_checker_of(device)->inner;
}

/* Switches the library's pool off for this device: the checker cannot see that the library reuses
 * memory in a pool. */
static fx_status check_info(fx_device *device)
{
    fxi_pool_keep(device, 0);
    fx_device *inner = fxi_checker_of(device)->devices[device->id];
    device->info = inner->info;
    device->data = inner;
    return FX_OK;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* Is [at, at + bytes) memory of the device? If not, records an error of the operation. */
static fx_status check_memory(fx_device *device, const char *operation, const void *at,
                              size_t bytes)
{
    char why[FXI_CHECK_TEXT];
    const fxi_span range = {(uintptr_t)at, (uintptr_t)at + bytes};
    if (bytes == 0 || !fxi_check_is_outside(device, range, why))
        return FX_OK;
    return fx_fail(FX_STATUS_INTERNAL, operation, "the range on %s %s", device->name, why);
}

static fx_status check_write(fx_device *device, void *to, const void *from, size_t bytes)
{
    const fx_status status = check_memory(device, "write", to, bytes);
    return status ? status : inner_of(device)->write(fxi_check_inner(device), to, from, bytes);
}

static fx_status check_read(fx_device *device, void *to, const void *from, size_t bytes)
{
    const fx_status status = check_memory(device, "read", from, bytes);
    return status ? status : inner_of(device)->read(fxi_check_inner(device), to, from, bytes);
}

static fx_status check_copy(fx_device *to_device, void *to, fx_device *from_device,
                            const void *from, size_t bytes)
{
    fx_status status = check_memory(to_device, "copy", to, bytes);
    if (status == FX_OK)
        status = check_memory(from_device, "copy", from, bytes);
    if (status == FX_OK)
        status = inner_of(to_device)->copy(fxi_check_inner(to_device), to,
                                           fxi_check_inner(from_device), from, bytes);
    return status;
}

static fx_status check_fill(fx_device *device, void *to, uint8_t value, size_t bytes)
{
    const fx_status status = check_memory(device, "fill", to, bytes);
    return status ? status : inner_of(device)->fill(fxi_check_inner(device), to, value, bytes);
}

static int64_t check_available(fx_device *device)
{
    return inner_of(device)->available(fxi_check_inner(device));
}

/* ---- work ------------------------------------------------------------------------------------ */

static bool check_channels_last(fx_device *device, const fx_step *step)
{
    return inner_of(device)->channels_last(fxi_check_inner(device), step);
}

static bool check_attention(fx_device *device, const fx_step *step)
{
    return inner_of(device)->attention(fxi_check_inner(device), step);
}

static fx_status check_prepare(fx_device *device, fx_step *step)
{
    return inner_of(device)->prepare(fxi_check_inner(device), step);
}

static fx_status check_compile(fx_device *device, fx_step *steps, int32_t n, int32_t *out_step)
{
    return inner_of(device)->compile(fxi_check_inner(device), steps, n, out_step);
}

static void check_release(fx_device *device, fx_step *step)
{
    inner_of(device)->release(fxi_check_inner(device), step);
}

static void check_submit(fx_device *device)
{
    inner_of(device)->submit(fxi_check_inner(device));
}

/* Returns a mark of the inner backend, which `wait` and `unmark` pass back to it. */
static void *check_mark(fx_device *device)
{
    return inner_of(device)->mark(fxi_check_inner(device));
}

static fx_status check_wait(fx_device *device, void *mark)
{
    return inner_of(device)->wait(fxi_check_inner(device), mark);
}

static void check_unmark(fx_device *device, void *mark)
{
    inner_of(device)->unmark(fxi_check_inner(device), mark);
}

/* Waits if the inner backend can, then verifies all memory. */
static fx_status check_sync(fx_device *device)
{
    char why[FXI_CHECK_TEXT];
    const fx_backend *inner = inner_of(device);
    const fx_status status = inner->sync ? inner->sync(fxi_check_inner(device)) : FX_OK;
    if (status != FX_OK)
        return status;
    fxi_check_all(device, why);
    return fxi_check_report(device, why);
}

/* ---- the table ------------------------------------------------------------------------------- */

/* An entry that the inner backend lacks must be NULL here too, because the library tests entries to
 * learn a backend's abilities. `info` and `sync` are set even then: `info` switches the pool off,
 * and `sync` verifies all memory. */
static fx_backend table_over(const fx_backend *inner, const char *name)
{
    return (fx_backend){.head = FX_BACKEND_HEAD(name),
                        .views = inner->views,
                        .fuses = inner->fuses,
                        .info = check_info,
                        .part = inner->part,
                        .alloc = fxi_check_alloc,
                        .free = fxi_check_free,
                        .write = inner->write ? check_write : NULL,
                        .read = inner->read ? check_read : NULL,
                        .copy = inner->copy ? check_copy : NULL,
                        .fill = inner->fill ? check_fill : NULL,
                        .available = inner->available ? check_available : NULL,
                        .channels_last = inner->channels_last ? check_channels_last : NULL,
                        .attention = inner->attention ? check_attention : NULL,
                        .prepare = inner->prepare ? check_prepare : NULL,
                        .compile = inner->compile ? check_compile : NULL,
                        .release = inner->release ? check_release : NULL,
                        .run = fxi_check_run,
                        .submit = inner->submit ? check_submit : NULL,
                        .sync = check_sync,
                        .mark = inner->mark ? check_mark : NULL,
                        .wait = inner->mark ? check_wait : NULL,
                        .unmark = inner->mark ? check_unmark : NULL,
                        .proc = inner->proc};
}

int64_t fxi_check_work_guard(const fx_backend *backend)
{
    return backend->run == fxi_check_run ? FXI_CHECK_WORK_GUARD : 0;
}

const fx_backend *fxi_check_backend(const fx_backend *inner, fx_device *const *devices, int count)
{
    const size_t name_bytes = sizeof "check:" + strlen(inner->head.name);
    fxi_checker *c = fxi_calloc(1, sizeof *c + name_bytes);
    if (!c)
        return NULL;
    char *name = (char *)(c + 1);
    snprintf(name, name_bytes, "check:%s", inner->head.name);
    const char *setting = getenv("FX_CHECK");
    c->table = table_over(inner, name);
    c->inner = inner;
    c->devices = devices;
    c->count = count;
    c->thorough = setting && strcmp(setting, "all") == 0;
    c->latest = "nothing";
    fxi_mutex_init(&c->lock);
    return &c->table;
}
