/* metal_program.c: compiles programs with Metal and makes their pipelines; gpu_compile.c calls
 * these functions. Metal's system service keeps compiled programs on disk, so the backend's own
 * cache keeps none.
 */
#include "metal.h"

#include "gpu_gate.h"

#include <stdio.h>
#include <string.h>

/* ---- the compiler ---------------------------------------------------------------------------- */

/* Results must agree with the CPU's, so the compiler may not reorder arithmetic or assume that no
 * number is infinite. macOS 15 and later have `set_math`. */
static fxi_id options(void)
{
    const fxi_id made = FXI_SEND(make, fxi_mtl.class.MTLCompileOptions);
    if (!made)
        return NULL;
    if (FXI_SEND_WITH(responds, made, fxi_mtl.sel.set_math))
        FXI_SEND_WITH(set_math, made, FXI_MTL_MATH_SAFE);
    else
        FXI_SEND_WITH(set_fast, made, false);
    FXI_SEND_WITH(set_language, made, FXI_MTL_LANGUAGE_3_0);
    return made;
}

/* Copies an error's description, which belongs to a pool. NULL only if memory is exhausted. */
static char *description(fxi_id error)
{
    const fxi_id text = error ? FXI_SEND(described, error) : NULL;
    const char *bytes = text ? FXI_SEND(utf8, text) : NULL;
    bytes = bytes ? bytes : "Metal gives no reason";
    char *copy = fxi_metal_host->alloc(strlen(bytes) + 1);
    return copy ? strcpy(copy, bytes) : NULL;
}

/* Writes the first line of the log that contains "error:", or the log's first line if none does. */
static void say_first_error(const fxi_gpu_device *d, const char *log, char *text, size_t size)
{
    const char *what = log ? strstr(log, "error:") : NULL;
    what = what ? what : log ? log : "out of host memory";
    snprintf(text, size, "%s (%s) cannot compile a kernel: %.*s", d->label, d->name,
             (int)strcspn(what, "\n"), what);
}

/* Records nothing, because it may run in a thread that cflux has started. */
void *fxi_metal_compile(fxi_gpu_device *device, const char *source, fxi_gpu_failure *why)
{
    const fxi_metal_device *d = (fxi_metal_device *)device;
    void *pool = fxi_mtl.push();
    fxi_id error = NULL, how = options(), library = NULL;
    const fxi_id string = FXI_SEND_WITH(string, fxi_mtl.class.NSString, source);
    if (how && string)
        library = FXI_SEND_WITH(library, d->device, string, how, &error);
    if (!library) {
        why->log = how && string ? description(error) : NULL;
        why->status = why->log ? why->status : FX_STATUS_MEMORY;
        say_first_error(device, why->log, why->text, sizeof why->text);
    }
    if (how)
        fxi_mtl.release(how);
    fxi_mtl.pop(pool);
    return library;
}

void *fxi_metal_binary(fxi_gpu_device *device, void *program, size_t *out_size)
{
    (void)device, (void)program;
    *out_size = 0;
    return NULL;
}

void *fxi_metal_load(fxi_gpu_device *device, const void *bytes, size_t size)
{
    (void)device, (void)bytes, (void)size;
    return NULL;
}

/* ---- functions ------------------------------------------------------------------------------- */

/* Can the device run the kernel? It may need too many registers or too much memory for the size of
 * its groups, and the exchange of values within a warp assumes the warp's width. The attribute
 * max_total_threads_per_threadgroup of a text limits maxTotalThreadsPerThreadgroup (Apple's page of
 * MTLComputePipelineDescriptor). */
static bool fits(const fxi_gpu_device *d, fxi_id pipeline, const char *name, int32_t group,
                 fxi_gpu_failure *why)
{
    char *text = why->text;
    const size_t size = sizeof why->text;
    const fxi_ns_uint items = FXI_SEND(pipeline_items, pipeline),
                      warp = FXI_SEND(pipeline_warp, pipeline),
                      memory = FXI_SEND(pipeline_memory, pipeline);
    if (!fxi_gpu_group_fits(d, name, (int64_t)items, group, why))
        return false;
    if (memory > (uint64_t)d->limits.group_memory)
        snprintf(text, size, "%s (%s) has %lld bytes of local memory, but %s needs %lu", d->label,
                 d->name, (long long)d->limits.group_memory, name, memory);
    else if (d->limits.warp > 1 && warp != (fxi_ns_uint)d->limits.warp)
        snprintf(text, size,
                 "%s (%s) runs %s in SIMD groups of %lu work-items, but the kernel needs %d",
                 d->label, d->name, name, warp, (int)d->limits.warp);
    else
        return true;
    return false;
}

static fxi_id make_pipeline(const fxi_metal_device *d, fxi_id program, const char *name, char *text,
                            size_t size)
{
    fxi_id error = NULL;
    const fxi_id string = FXI_SEND_WITH(string, fxi_mtl.class.NSString, name);
    const fxi_id function = string ? FXI_SEND_WITH(function, program, string) : NULL;
    if (!function) {
        snprintf(text, size, "%s (%s): a program has no kernel %s", d->gpu.label, d->gpu.name,
                 name);
        return NULL;
    }
    const fxi_id pipeline = FXI_SEND_WITH(pipeline, d->device, function, &error);
    fxi_mtl.release(function);
    if (!pipeline) {
        char *why = description(error);
        snprintf(text, size, "%s (%s) cannot make a pipeline of %s: %.160s", d->gpu.label,
                 d->gpu.name, name, why ? why : "out of host memory");
        fxi_metal_host->free(why);
    }
    return pipeline;
}

/* A kernel of the backend is its pipeline. */
void *fxi_metal_function_of(fxi_gpu_device *device, void *program, const char *name, int32_t group,
                            fxi_gpu_failure *why)
{
    void *pool = fxi_mtl.push();
    fxi_id pipeline =
        make_pipeline((fxi_metal_device *)device, program, name, why->text, sizeof why->text);
    /* Metal may compile only now, and a compiler registers destructors (gpu_gate.h). */
    fxi_gpu_gate_renew();
    /* Checked when the plan is made, so that a fused kernel that does not fit is refused and not
     * run. */
    if (pipeline && !fits(device, pipeline, name, group, why)) {
        fxi_mtl.release(pipeline);
        pipeline = NULL;
    }
    fxi_mtl.pop(pool);
    return pipeline;
}
