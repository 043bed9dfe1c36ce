/* plan_mode.c: what the planner is told: of the backend, and by environment variables or a test. */
#include "backends.h"
#include "planning.h"

#include <stdlib.h>
#include <string.h>

bool fxi_traced(const char *what)
{
    static const char *trace;
    static bool asked;
    if (!__atomic_load_n(&asked, __ATOMIC_ACQUIRE)) {
        __atomic_store_n(&trace, getenv("FX_TRACE"), __ATOMIC_RELAXED);
        __atomic_store_n(&asked, true, __ATOMIC_RELEASE);
    }
    const char *t = __atomic_load_n(&trace, __ATOMIC_RELAXED);
    return t && strstr(t, what);
}

static int eager = -1; /* -1: FX_EAGER has not been read yet */
static bool checked =
#ifdef CFLUX_DEBUG_CHECKS
    true;
#else
    false;
#endif

bool fxi_eager(void)
{
    int e = __atomic_load_n(&eager, __ATOMIC_RELAXED);
    if (e < 0) {
        const char *v = getenv("FX_EAGER");
        e = v && *v && strcmp(v, "0") != 0;
        __atomic_store_n(&eager, e, __ATOMIC_RELAXED);
    }
    return e;
}

void fxi_eager_set(bool wanted)
{
    __atomic_store_n(&eager, wanted, __ATOMIC_RELAXED);
}

bool fxi_plans_checked(void)
{
    return __atomic_load_n(&checked, __ATOMIC_RELAXED);
}

void fxi_plans_checked_set(bool wanted)
{
    __atomic_store_n(&checked, wanted, __ATOMIC_RELAXED);
}

/* With FX_TRACE=donation. */
static void trace_denied(const fxi_node *n, const char *why)
{
    char t[FXI_SHAPE_TEXT];
    fx_message(0, "donation miss: %s %s: %s", fx_dtype_name((fx_dtype)n->dtype),
               fxi_shape_text(n->ndim, n->shape, t), why);
}

fx_status fxi_graph_of(fxi_context *c, fxi_graph *g, int n, const fxi_root *roots)
{
    g->eager = fxi_eager();
    g->precision = (uint8_t)fx_matmul_precision();
    g->denied = fxi_traced("donation") ? trace_denied : NULL;
    return fxi_graph_build(c, g, n, roots);
}

/* By the table that the device has then: it has another one in the child of a fork. */
static void release_step(fx_device *device, fx_step *step)
{
    device->backend->release(device, step);
}

static void release_plan(fx_device *device, fx_plan *plan)
{
    device->backend->plan_release(device, plan);
}

fx_status fxi_plan_new(const fxi_graph *g, fxi_plan **out_plan)
{
    const fx_backend *backend = g->device->backend;
    const bool fuses = backend->fuses && !g->eager;
    const int32_t buffers = g->device->info.buffers;
    const fxi_planner how = {.views = backend->views,
                             .fuses = fuses,
                             .rows = fuses,
                             .buffers = buffers ? buffers : INT32_MAX,
                             .own_memory = backend->write,
                             .checks = fxi_plans_checked(),
                             .work_guard = fxi_check_work_guard(backend),
                             .channels_last = g->eager ? NULL : backend->channels_last,
                             .collective = backend->collective,
                             .prepare = backend->prepare,
                             .compile = backend->compile,
                             .release = release_step,
                             .plan_prepare = g->eager ? NULL : backend->plan_prepare,
                             .plan_release = release_plan,
                             .denied = g->denied};
    return fxi_plan_build(&how, g, out_plan);
}
