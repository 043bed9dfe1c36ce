/* opencl_program.c: compiles programs with OpenCL, from source and from their binary form, and
 * finds their kernels; gpu_compile.c calls these functions.
 */
#include "opencl.h"

#include "gpu_gate.h"

#include <stdio.h>
#include <string.h>

/* Divisions and square roots are rounded correctly where the device can, so results agree with the
 * CPU. */
const char *fxi_opencl_options(const fxi_opencl_device *d)
{
    return d->gpu.limits.rounds_division ? "-cl-std=CL1.2 -cl-fp32-correctly-rounded-divide-sqrt"
                                         : "-cl-std=CL1.2";
}

/* ---- the compiler ---------------------------------------------------------------------------- */

/* Sets the reason: the compiler's log, and its first error as a sentence. */
static void compiler_says(const fxi_opencl_device *d, cl_program made, cl_int error,
                          fxi_gpu_failure *why)
{
    size_t length = 0;
    char *log = NULL;
    if (fxi_cl.GetProgramBuildInfo(made, d->id, CL_PROGRAM_BUILD_LOG, 0, NULL, &length) ==
        CL_SUCCESS)
        log = fxi_opencl_host->alloc(length + 1);
    /* The length includes the closing zero byte on most drivers; one byte more is allocated for the
     * others. */
    if (log && fxi_cl.GetProgramBuildInfo(made, d->id, CL_PROGRAM_BUILD_LOG, length, log, NULL) !=
                   CL_SUCCESS)
        length = 0;
    if (log)
        log[length] = '\0';
    const char *what = log ? strstr(log, "error") : NULL;
    snprintf(why->text, sizeof why->text, "%s (%s) cannot compile a kernel: %s%s%.120s",
             d->gpu.label, d->gpu.name, fxi_cl_error_name(error), what ? ": " : "",
             what ? what : "");
    for (char *c = why->text; *c; c++)
        /* An error message is one line. */
        if (*c == '\n')
            *c = ' ';
    why->log = log;
    if (d->gpu.driver->error_kind(error) == FXI_GPU_ERROR_MEMORY)
        why->status = FX_STATUS_MEMORY;
}

/* Without a callback the call waits until the program is built. Threads compile different programs
 * at the same time (gpu_compile.c). */
static cl_int build(const fxi_opencl_device *d, cl_program made)
{
    return fxi_cl.BuildProgram(made, 1, &d->id, fxi_opencl_options(d), NULL, NULL);
}

/* Records nothing, because it may run in a thread that cflux has started. */
void *fxi_opencl_compile(fxi_gpu_device *device, const char *source, fxi_gpu_failure *why)
{
    fxi_opencl_device *d = (fxi_opencl_device *)device;
    cl_int error;
    cl_program made = fxi_cl.CreateProgramWithSource(d->context, 1, &source, NULL, &error);
    if (!made) {
        why->status =
            fxi_gpu_why(device, "clCreateProgramWithSource", error, why->text, sizeof why->text);
        return NULL;
    }
    error = build(d, made);
    if (error == CL_SUCCESS)
        return made;
    compiler_says(d, made, error, why);
    fxi_cl.ReleaseProgram(made);
    return NULL;
}

/* ---- the compiled form ----------------------------------------------------------------------- */

void *fxi_opencl_load(fxi_gpu_device *device, const void *bytes, size_t size)
{
    const fxi_opencl_device *d = (fxi_opencl_device *)device;
    const unsigned char *binary = bytes;
    cl_int error, of_binary;
    cl_program made =
        fxi_cl.CreateProgramWithBinary(d->context, 1, &d->id, &size, &binary, &of_binary, &error);
    /* If the driver does not accept the binary, the program is compiled from its source. */
    if (made && build(d, made) == CL_SUCCESS)
        return made;
    if (made)
        fxi_cl.ReleaseProgram(made);
    return NULL;
}

/* The program's binary form. Programs are made for one device, so there is one binary; in a context
 * of several devices the others have size 0. PoCL compiles a program a second time for this call,
 * for groups of any size. */
void *fxi_opencl_binary(fxi_gpu_device *device, void *program, size_t *out_size)
{
    enum { MOST = 64 };
    size_t sizes[MOST] = {0}, total = 0, used = 0;
    unsigned char *binaries[MOST] = {NULL};
    (void)device;
    /* The call fails if the context has more than MOST devices; the program is then not kept on
     * disk. */
    if (fxi_cl.GetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof sizes, sizes, NULL))
        return NULL;
    for (int k = 0; k < MOST; k++)
        total += sizes[k];
    unsigned char *bytes = total ? fxi_opencl_host->alloc(total) : NULL;
    for (int k = 0; k < MOST && bytes; k++) {
        /* NULL: the driver skips this device. */
        binaries[k] = sizes[k] ? bytes + used : NULL;
        used += sizes[k];
    }
    *out_size = total;
    if (bytes &&
        !fxi_cl.GetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof binaries, binaries, NULL))
        return bytes;
    fxi_opencl_host->free(bytes);
    return NULL;
}

/* ---- functions ------------------------------------------------------------------------------- */

/* Can the device run the kernel? Each kernel has groups of one size, for which a device may lack
 * registers or local memory. The driver reports the largest size that can be used to execute the
 * kernel. That is the size of reqd_work_group_size, because no other can be used, but many drivers
 * report a larger one. If the driver gives no answer, the kernel is assumed to fit. */
static bool fits(const fxi_opencl_device *d, cl_kernel kernel, const char *name, int32_t group,
                 fxi_gpu_failure *why)
{
    size_t items = 0;
    uint64_t local = 0;
    if (fxi_cl.GetKernelWorkGroupInfo(kernel, d->id, CL_KERNEL_WORK_GROUP_SIZE, sizeof items,
                                      &items, NULL) != CL_SUCCESS)
        items = 0;
    if (fxi_cl.GetKernelWorkGroupInfo(kernel, d->id, CL_KERNEL_LOCAL_MEM_SIZE, sizeof local, &local,
                                      NULL) != CL_SUCCESS)
        local = 0;
    if (items > 0 && !fxi_gpu_group_fits(&d->gpu, name, (int64_t)items, group, why))
        return false;
    if (d->gpu.limits.group_memory <= 0 || local <= (uint64_t)d->gpu.limits.group_memory)
        return true;
    snprintf(why->text, sizeof why->text,
             "%s (%s) has %lld bytes of local memory, but %s needs %llu", d->gpu.label, d->gpu.name,
             (long long)d->gpu.limits.group_memory, name, (unsigned long long)local);
    return false;
}

void *fxi_opencl_function_of(fxi_gpu_device *device, void *program, const char *name, int32_t group,
                             fxi_gpu_failure *why)
{
    fxi_opencl_device *d = (fxi_opencl_device *)device;
    fxi_opencl_function *f = fxi_opencl_host->alloc(sizeof *f);
    cl_int error;
    if (!f) {
        fxi_gpu_no_host_memory(device, why);
        return NULL;
    }
    *f = (fxi_opencl_function){.kernel = fxi_cl.CreateKernel(program, name, &error)};
    /* The driver may compile only now, and a compiler registers destructors (gpu_gate.h). */
    fxi_gpu_gate_renew();
    const bool made = f->kernel != NULL;
    if (!made)
        why->status = fxi_gpu_why(device, "clCreateKernel", error, why->text, sizeof why->text);
    /* Checked when the plan is made, so that a fused kernel that does not fit is refused and not
     * run. */
    if (made && fits(d, f->kernel, name, group, why))
        return f;
    if (made)
        fxi_cl.ReleaseKernel(f->kernel);
    fxi_opencl_host->free(f);
    return NULL;
}
