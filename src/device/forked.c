/* forked.c: replaces the table of a backend in the child of a fork.
 *
 * The threads of a driver, and its state in the kernel of the operating system, are not copied into
 * the child: a call that waits for them would never return. So no function of the backend except
 * `proc` is called in the child. Memory and prepared steps of the device are not freed; they end
 * with the process. Optional members that are NULL stay NULL, because NULL tells the library what
 * the backend cannot do.
 */
#include "forked.h"
#include "error.h"
#include "memory.h"
#include "thread.h"

#include <stdio.h>

#define SENTENCE "%s cannot be used: the device was opened before this process was forked"

static fx_status refused(const char *operation, const fx_device *device)
{
    return fx_fail(FX_STATUS_DEVICE, operation, SENTENCE, device->name);
}

static void *refuse_alloc(fx_device *device, size_t bytes)
{
    (void)bytes;
    refused("alloc", device);
    return NULL;
}

static void forget(fx_device *device, void *address)
{
    (void)device, (void)address;
}

static fx_status refuse_write(fx_device *device, void *to, const void *from, size_t bytes)
{
    (void)to, (void)from, (void)bytes;
    return refused("write", device);
}

static fx_status refuse_read(fx_device *device, void *to, const void *from, size_t bytes)
{
    (void)to, (void)from, (void)bytes;
    return refused("read", device);
}

static fx_status refuse_copy(fx_device *to_device, void *to, fx_device *from_device,
                             const void *from, size_t bytes)
{
    (void)to, (void)from_device, (void)from, (void)bytes;
    return refused("copy", to_device);
}

static fx_status refuse_fill(fx_device *device, void *to, uint8_t value, size_t bytes)
{
    (void)to, (void)value, (void)bytes;
    return refused("fill", device);
}

static fx_status refuse_prepare(fx_device *device, fx_step *step)
{
    (void)step;
    return refused("prepare", device);
}

/* Prepared steps of freed plans. They cannot be freed; this list keeps them reachable, so that leak
 * checkers do not report them. */
static struct {
    fxi_mutex lock;
    void **ready;
    int32_t n, capacity;
} left = {.lock = FXI_MUTEX_INIT};

static void leave(void *ready)
{
    fxi_mutex_lock(&left.lock);
    if (ready && fxi_grow(&left.ready, &left.capacity, left.n + 1, sizeof *left.ready))
        left.ready[left.n++] = ready;
    fxi_mutex_unlock(&left.lock);
}

static void leave_step(fx_device *device, fx_step *step)
{
    (void)device;
    leave(step->ready);
}

static fx_status refuse_run(fx_device *device, const fx_step *step, const void *const *in,
                            void *out, fx_run *run)
{
    (void)in, (void)out, (void)run;
    return refused(fx_op_name(step->op), device);
}

static fx_status refuse_plan(fx_device *device, const fx_plan *plan, void *const *values,
                             fx_run *run, int32_t *out_step)
{
    (void)plan, (void)values, (void)run;
    *out_step = -1;
    return refused("plan", device);
}

static void leave_plan(fx_device *device, fx_plan *plan)
{
    (void)device;
    leave(plan->ready);
}

static fx_status refuse_sync(fx_device *device)
{
    return refused("synchronize", device);
}

static const char *refuse_part(const char *name)
{
    (void)name;
    return "the backend was opened before this process was forked";
}

/* compile, plan_prepare, submit and the marks of queues are NULL: nothing new is queued. */
void fxi_forked_table(const fx_backend *of, fx_backend *out)
{
    *out = (fx_backend){.head = of->head,
                        .views = of->views,
                        .fuses = of->fuses,
                        .alloc = refuse_alloc,
                        .free = forget,
                        .read = of->read ? refuse_read : NULL,
                        .write = of->write ? refuse_write : NULL,
                        .copy = of->copy ? refuse_copy : NULL,
                        .fill = of->fill ? refuse_fill : NULL,
                        .prepare = refuse_prepare,
                        .release = leave_step,
                        .run = refuse_run,
                        .plan_run = of->plan_run ? refuse_plan : NULL,
                        .plan_release = of->plan_release ? leave_plan : NULL,
                        .part = of->part ? refuse_part : NULL,
                        .sync = refuse_sync,
                        .proc = of->proc};
}
