/* fake_plugin.c: a plugin for tests, built several times with one thing wrong, or nothing (FAKE_…).
 * It takes matrix products without epilogue and "computes" 42 for every element; the environment
 * variable FAKE_STATUS makes its functions fail: "prepare" and "run". */
#include "plugin.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef FAKE_NEEDS_LIBRARY
int fake_library_function(void);
#endif

static const fxi_plugin_host *the_host;
extern const fxi_plugin fxi_plugin_table;

static bool fails(const char *what)
{
    const char *wish = getenv("FAKE_STATUS");
    return wish && strcmp(wish, what) == 0;
}

static const char *open_fake(const fxi_plugin_host *host)
{
    the_host = host;
#ifdef FAKE_FAILS_OPEN
    return "it does not feel like it";
#elif defined FAKE_NEEDS_LIBRARY
    return fake_library_function() ? "" : NULL;
#else
    return NULL;
#endif
}

static fx_status prepare(const fx_step *step, fxi_plugin_ready **out)
{
    if (step->op != FX_OP_MATMUL || step->ninstr > 0)
        return FX_STATUS_UNSUPPORTED;
    *out = fails("prepare") ? NULL : the_host->alloc(64, sizeof **out);
    if (!*out)
        return FX_STATUS_MEMORY;
    (*out)->plugin = &fxi_plugin_table;
    return FX_OK;
}

static void release(fxi_plugin_ready *ready)
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

static fx_status run_step(const fxi_plugin_ready *ready, const fx_step *step, const void *const *in,
                          void *out, fx_run *run)
{
    (void)ready, (void)in;
    if (fails("run")) {
        snprintf(run->error, sizeof run->error, "not today");
        return FX_STATUS_INTERNAL;
    }
    rows r = {out, step->out.shape[0]};
    return the_host->parallel(fxi_length(step->out.ndim - 1, step->out.shape + 1), 100, fill, &r);
}

#ifndef FAKE_NO_TABLE
FX_API const fxi_plugin fxi_plugin_table = {
#ifdef FAKE_OTHER_ABI
    .abi = FXI_PLUGIN_ABI + 1,
#else
    .abi = FXI_PLUGIN_ABI,
#endif
#ifdef FAKE_OTHER_SIZES
    .sizes = {sizeof(fxi_plugin), sizeof(fxi_plugin_host), sizeof(fx_step) + 8, sizeof(fx_tensor),
              sizeof(fx_run)},
#else
    .sizes = FXI_PLUGIN_SIZES_HERE,
#endif
    .name = "fake",
    .open = open_fake,
    .prepare = prepare,
    .release = release,
    .run = run_step};
#else
const fxi_plugin fxi_plugin_table = {
    .open = open_fake, .prepare = prepare, .release = release, .run = run_step};
#endif
