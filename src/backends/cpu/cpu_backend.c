/* cpu_backend.c: the CPU as a backend. Memory is the host's; steps are computed by the kernels of
 * this folder, and large BFloat16 matrix products and large convolutions by the oneDNN plugin where
 * it is installed (cpu_plugin.c).
 */
#include <cflux/backend.h>
#include "backends.h"
#include "cpu_float_mode.h"
#include "cpu_kernels.h"
#include "cpu_plugin.h"
#include "memory.h"

/* 64 bytes: the longest vector of any instruction set, and a cache line, so that no two arrays
 * share a line. */
static void *cpu_alloc(fx_device *device, size_t bytes)
{
    (void)device;
    return fxi_aligned(64, bytes);
}

static void cpu_free(fx_device *device, void *ptr)
{
    (void)device;
    fxi_free(ptr);
}

/* Asks the plugin to prepare the step. `bare`: without the epilogue, whose operands follow the
 * first two inputs. */
static fx_status ask_plugin(const fx_step *step, bool bare, fxi_kernel_ready **out)
{
    fx_step asked = *step;
    if (bare) {
        asked.nin = 2;
        *(step->op == FX_OP_CONV ? &asked.as.conv.epilogue : &asked.as.matmul.epilogue) =
            (fx_program){0};
    }
    return fxi_cpu_plugin_prepare(&asked, out);
}

/* Does the plugin compute the step? Also true if it only ran out of memory; `prepare` will report
 * that. */
static bool plugin_takes(const fx_step *step, bool bare)
{
    fxi_kernel_ready *ready = NULL;
    const fx_status status = ask_plugin(step, bare, &ready);
    if (!status)
        fxi_cpu_plugin_release(ready);
    return status != FX_STATUS_UNSUPPORTED;
}

/* The plugin is asked first, even where our kernels would compute more of the epilogue. If it takes
 * the bare product but not this epilogue, the answer is UNSUPPORTED: the planner then retries with
 * a shorter epilogue and makes a step of what it cut off (docs/design/0006). Any other error of the
 * plugin, such as missing memory, is returned and not hidden by a slower kernel. */
static fx_status cpu_prepare(fx_device *device, fx_step *step)
{
    (void)device;
    if (step->op != FX_OP_MATMUL && step->op != FX_OP_CONV)
        return fxi_cpu_prepare_step(step);
    fxi_kernel_ready *ready = NULL;
    const fx_status status = ask_plugin(step, false, &ready);
    if (!status) {
        step->ready = ready;
        step->work_bytes = ready->work_bytes;
        step->by_plugin = true;
    }
    if (status != FX_STATUS_UNSUPPORTED)
        return status;
    if (fx_step_has_epilogue(step) && plugin_takes(step, true))
        return FX_STATUS_UNSUPPORTED;
    return fxi_cpu_prepare_step(step);
}

/* Channels-last order is faster only if the plugin computes the convolution: our own kernels for
 * convolutions expect each channel as a plane. Pooling keeps the order of its input, so that no
 * copy is needed between the two. */
static bool cpu_channels_last(fx_device *device, const fx_step *step)
{
    (void)device;
    return step->op == FX_OP_CONV ? plugin_takes(step, true) : fxi_cpu_pools_channels_last(step);
}

/* The plugin frees what it prepared, our own kernels theirs; `by_plugin` tells which of them made
 * `ready`. */
static void cpu_release(fx_device *device, fx_step *step)
{
    (void)device;
    if (step->by_plugin)
        fxi_cpu_plugin_release(step->ready);
    else
        fxi_cpu_release_step(step);
}

static fx_status run_step(const fx_step *step, const void *const *in, void *out, fx_run *run)
{
    if (step->by_plugin)
        return fxi_cpu_plugin_run(step->ready, step, in, out, run);
    return fxi_cpu_run_step(step, in, out, run);
}

/* The floating-point mode belongs to the program's thread, so it is restored after each step. */
static fx_status cpu_run(fx_device *device, const fx_step *step, const void *const *in, void *out,
                         fx_run *run)
{
    (void)device;
    if (!fxi_cpu_flushes())
        return run_step(step, in, out, run);
    const uint64_t before = fxi_float_mode();
    fxi_float_mode_set(before | FXI_MODE_FLUSH);
    const fx_status status = run_step(step, in, out, run);
    fxi_float_mode_set(before);
    return status;
}

const fx_backend fxi_cpu_backend = {.head = FX_BACKEND_HEAD("CPU"),
                                    .views = true,
                                    .fuses = true,
                                    .channels_last = cpu_channels_last,
                                    .attention = fxi_cpu_has_attention,
                                    .part = fxi_cpu_plugin_why,
                                    .alloc = cpu_alloc,
                                    .free = cpu_free,
                                    .prepare = cpu_prepare,
                                    .release = cpu_release,
                                    .run = cpu_run};
