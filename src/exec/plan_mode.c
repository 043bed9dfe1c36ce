/* plan_mode.c: fills in the planner's table for a backend and the mode of the process, which
 * environment variables or a test set.
 */
#include "backends.h"
#include "launcher.h"
#include "planning.h"
#include "tape.h"

#include <stdlib.h>
#include <string.h>

/* The variable is read once, because getenv is not safe while another thread calls setenv. `asked`
 * is stored after `trace`, so a thread that finds it set also sees the text. */
bool fxi_traced(const char *what)
{
    static const char *trace;
    static bool asked;
    if (!__atomic_load_n(&asked, __ATOMIC_ACQUIRE)) {
        __atomic_store_n(&trace, getenv("FX_TRACE"), __ATOMIC_RELAXED);
        __atomic_store_n(&asked, true, __ATOMIC_RELEASE);
    }
    const char *t = __atomic_load_n(&trace, __ATOMIC_RELAXED);
    /* The variable is a list of words such as "plan,miss". No word is part of another. */
    return t && strstr(t, what);
}

static int eager = -1; /* atomic; -1: FX_EAGER has not been read yet */
static bool checked =
#ifdef CFLUX_DEBUG_CHECKS
    true;
#else
    false;
#endif

bool fxi_eager(void)
{
    int e = __atomic_load_n(&eager, __ATOMIC_RELAXED);
    /* Two threads may both read the variable and store the same answer, so no lock is needed. */
    if (e < 0) {
        const char *v = getenv("FX_EAGER");
        e = v && *v && strcmp(v, "0") != 0;
        __atomic_store_n(&eager, e, __ATOMIC_RELAXED);
    }
    return e;
}

/* Takes precedence over the environment. */
void fxi_eager_set(bool wanted)
{
    __atomic_store_n(&eager, wanted, __ATOMIC_RELAXED);
}

/* Tests switch the check on in builds that do not check by default. */
bool fxi_plans_checked(void)
{
    return __atomic_load_n(&checked, __ATOMIC_RELAXED);
}

void fxi_plans_checked_set(bool wanted)
{
    __atomic_store_n(&checked, wanted, __ATOMIC_RELAXED);
}

/* Reports a denied donation, with FX_TRACE=donation. */
static void trace_denied(const fxi_node *n, const char *why)
{
    char t[FXI_SHAPE_TEXT];
    fx_message(0, "donation miss: %s %s: %s", fx_dtype_name((fx_dtype)n->dtype),
               fxi_shape_text(n->ndim, n->shape, t), why);
}

fx_status fxi_graph_of(fxi_context *c, fxi_graph *g, int n, const fxi_root *roots)
{
    fxi_tape_catch_up(c);
    /* Taken once for each graph: the mode is part of the key, and must not change while the graph
     * is planned. */
    g->eager = fxi_eager();
    g->precision = (uint8_t)fx_matmul_precision();
    g->denied = fxi_traced("donation") ? trace_denied : NULL;
    return fxi_graph_build(c, g, n, roots);
}

/* Uses the device's table at the time of release, not the one at the time of planning: the child of
 * a fork gets another table. */
static void release_step(fx_device *device, fx_step *step)
{
    device->backend->release(device, step);
}

static void release_plan(fx_device *device, fx_plan *plan)
{
    device->backend->plan_release(device, plan);
}

/* Does the plan compute what a network computes, not only its data? */
static bool computes_network(const fxi_plan *p)
{
    for (int32_t i = 0; i < p->nsteps; i++)
        if (p->steps[i].cls == FX_CLASS_MATMUL || p->steps[i].cls == FX_CLASS_CONV)
            return true;
    return false;
}

fx_status fxi_plan_new(const fxi_graph *g, fxi_plan **out_plan)
{
    const fx_backend *backend = g->device->backend;
    const bool fuses = backend->fuses && !g->eager;
    /* 0: no limit. */
    const int32_t buffers = g->device->info.buffers;
    /* Eager mode has one step for each operation, in column-major order, run one by one: so a wrong
     * number can be traced to its operation. A backend without `write` computes in host memory;
     * with `write`, its devices have memory of their own. */
    const fxi_planner how = {.views = backend->views,
                             .fuses = fuses,
                             .rows = fuses,
                             .buffers = buffers ? buffers : INT32_MAX,
                             .own_memory = backend->write,
                             .is_cpu = g->device == fx_cpu_device(),
                             .checks = fxi_plans_checked(),
                             .work_guard = fxi_check_work_guard(backend),
                             .channels_last = g->eager ? NULL : backend->channels_last,
                             .attention = backend->attention,
                             .collective = backend->collective,
                             .begins = backend->begin,
                             .prepare = backend->prepare,
                             .compile = backend->compile,
                             .release = release_step,
                             .plan_prepare = g->eager ? NULL : backend->plan_prepare,
                             .plan_release = release_plan,
                             .denied = g->denied};
    const fx_status status = fxi_plan_build(&how, g, out_plan);
    if (status == FX_OK && computes_network(*out_plan))
        fxi_launcher_warn("computes everything alone");
    return status;
}
