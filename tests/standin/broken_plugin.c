/* broken_plugin.c: a test backend with a valid head (head_plugin.c has the invalid heads). The
 * build makes several versions with one defect each (BROKEN_…), and two without a defect: one has
 * the longest allowed name, the other lacks the optional function `open`. */
#include <cflux/backend.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef BROKEN_NEEDS_LIBRARY
int fake_library_function(void);
#endif

#ifdef BROKEN_NO_OPEN
#define open_broken NULL
#else
static int open_broken(const fx_host *host, char *why, size_t size)
{
    (void)host, (void)why, (void)size;
#ifdef BROKEN_NEEDS_LIBRARY
    return fake_library_function();
#elif defined BROKEN_NO_DEVICE
    snprintf(why, size, "the driver is of 1999");
    return 0;
#elif defined BROKEN_NO_REASON
    return 0;
#elif defined BROKEN_MANY_DEVICES
    return 1000;
#elif defined BROKEN_MINUS_DEVICES
    return -1;
#else
    return 1;
#endif
}
#endif

#ifdef BROKEN_FEW_BUFFERS
static fx_status describe(fx_device *device)
{
    device->info.buffers = 4;
    return FX_OK;
}
#endif

static void *take(fx_device *device, size_t bytes)
{
    (void)device;
    return aligned_alloc(64, bytes / 64 * 64 + 64);
}

static void give_back(fx_device *device, void *ptr)
{
    (void)device;
    free(ptr);
}

#ifndef BROKEN_NO_RUN
static fx_status launch(fx_device *device, const fx_step *step, const void *const *in, void *out,
                        fx_run *run)
{
    (void)device, (void)step, (void)in, (void)out, (void)run;
    return FX_STATUS_UNSUPPORTED;
}
#endif

#ifdef BROKEN_HALF
static fx_status read_bytes(fx_device *device, void *to, const void *from, size_t bytes)
{
    (void)device, (void)to, (void)from, (void)bytes;
    return FX_OK;
}
#endif

#ifdef BROKEN_PART_OF_PLANS
static fx_status plan_run(fx_device *device, const fx_plan *plan, void *const *values, fx_run *run,
                          int32_t *out_step)
{
    (void)device, (void)plan, (void)values, (void)run, (void)out_step;
    return FX_STATUS_UNSUPPORTED;
}

static void plan_release(fx_device *device, fx_plan *plan)
{
    (void)device, (void)plan;
}
#endif

#ifdef BROKEN_PART_OF_MARKS
static void *mark(fx_device *device)
{
    return device;
}
#endif

FX_BACKEND_PLUGIN = {.head = FX_BACKEND_HEAD(BROKEN_NAME),
#ifdef BROKEN_HALF
                     .read = read_bytes,
#endif
#ifdef BROKEN_PART_OF_PLANS
                     .plan_run = plan_run,
                     .plan_release = plan_release,
#endif
#ifdef BROKEN_PART_OF_MARKS
                     .mark = mark,
#endif
#ifdef BROKEN_FEW_BUFFERS
                     .info = describe,
#endif
#ifndef BROKEN_NO_RUN
                     .run = launch,
#endif
                     .open = open_broken,
                     .alloc = take,
                     .free = give_back};
