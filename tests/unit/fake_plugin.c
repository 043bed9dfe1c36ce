/* fake_plugin.c: a kernel library for tests, built as one that works and as one that does not open
 * (FAKE_…). It takes matrix products without epilogue and "computes" 42 for every element. The
 * environment variable FAKE_STATUS names the function that fails: prepare or run. */
#include "kernel_library.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const fxi_kernel_host *the_host;
enum { WORK = 1000 };                             /* bytes of work space of each step */
extern FX_API const fxi_kernel_library fx_plugin; /* at the end of this file */

static bool fails(const char *what)
{
    const char *setting = getenv("FAKE_STATUS");
    return setting && strcmp(setting, what) == 0;
}

static const char *open_fake(const fxi_kernel_host *host)
{
    the_host = host;
#ifdef FAKE_FAILS_OPEN
    return "it does not feel like it";
#else
    return NULL;
#endif
}

static fx_status prepare(const fx_step *step, fxi_kernel_ready **out)
{
    if (step->op != FX_OP_MATMUL || fx_step_has_epilogue(step))
        return FX_STATUS_UNSUPPORTED;
    *out = fails("prepare") ? NULL : the_host->alloc(64, sizeof **out);
    if (!*out)
        return FX_STATUS_MEMORY;
    (*out)->library = &fx_plugin;
    (*out)->work_bytes = WORK;
    return FX_OK;
}

static void release(fxi_kernel_ready *ready)
{
    the_host->free(ready);
}

typedef struct rows {
    float *out;
    int64_t length;
} rows;

static void fill(void *user, int64_t k, void *scratch)
{
    const rows *r = user;
    memset(scratch, 1, 100);
    for (int64_t i = k * r->length; i < (k + 1) * r->length; i++)
        r->out[i] = 42;
}

static fx_status run_step(const fxi_kernel_ready *ready, const fx_step *step, const void *const *in,
                          void *out, fx_run *run)
{
    (void)ready, (void)in;
    if (!run->work)
        return the_host->fail(FX_STATUS_INTERNAL, fx_op_name(step->op), "no work space");
    memset(run->work, 0xA5, WORK);
    if (fails("run")) {
        return the_host->fail(FX_STATUS_INTERNAL, fx_op_name(step->op), "not today");
    }
    rows r = {out, step->out.shape[0]};
    return the_host->parallel(fxi_length(step->out.ndim - 1, step->out.shape + 1), 100, fill, &r);
}

FX_PLUGIN_EXPORT(fxi_kernel_library) = {.head = FXI_KERNEL_HEAD("oneDNN"),
                                        .open = open_fake,
                                        .prepare = prepare,
                                        .release = release,
                                        .run = run_step};
