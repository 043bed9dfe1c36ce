/* gpurt_program.c: compiles kernels with NVRTC or hipRTC and loads them.
 */
#include "gpurt.h"

#include <stdio.h>
#include <string.h>

/* A program of the shared code (gpu_device.h). */
typedef struct program {
    fxi_rt_module module;
    void *code; /* its compiled form, until `binary` takes it; NULL: none */
    size_t size;
} program;

/* ---- the compiler ---------------------------------------------------------------------------- */

/* Returns the compiler's log, or NULL. */
static char *log_of(fxi_rtc_program p)
{
    size_t length = 0;
    char *log = NULL;
    if (fxi_rtc.LogSize(p, &length) == 0 && length > 1)
        log = fxi_rt_host->alloc(length + 1);
    if (!log)
        return NULL;
    log[length] = '\0';
    if (fxi_rtc.Log(p, log) == 0)
        return log;
    fxi_rt_host->free(log);
    return NULL;
}

/* The first error of the log, as one line. */
static void say_error(const fxi_rt_device *d, int error, fxi_gpu_failure *why)
{
    enum { OUT_OF_MEMORY = 1 }; /* of NVRTC and of hipRTC */
    const char *what = why->log ? strstr(why->log, "error") : NULL;
    snprintf(why->text, sizeof why->text, "%s (%s) cannot compile a kernel: %s%s%.120s",
             d->gpu.label, d->gpu.name, fxi_rtc.ErrorString(error), what ? ": " : "",
             what ? what : "");
    why->text[strcspn(why->text, "\n")] = '\0';
    if (error == OUT_OF_MEMORY)
        why->status = FX_STATUS_MEMORY;
}

/* The compiled form of a program; NULL with the compiler's error; the error is 0 if host memory ran
 * out. */
static void *take_code(const fxi_rt_device *d, fxi_rtc_program p, size_t *out_size, int *out_error)
{
    const fxi_rt_form form = fxi_rt_form_of(d);
    *out_error = form.size(p, out_size);
    char *code = *out_error ? NULL : fxi_rt_host->alloc(*out_size);
    if (code)
        *out_error = form.code(p, code);
    if (!code || !*out_error)
        return code;
    fxi_rt_host->free(code);
    return NULL;
}

/* Compiles a text to code for the device. NULL with the reason. */
static void *code_of(const fxi_rt_device *d, const char *source, size_t *out_size,
                     fxi_gpu_failure *why)
{
    enum { OPTIONS = 8 };
    const char *options[OPTIONS] = {d->option};
    int n = 1;
    fxi_rtc_program p = NULL;
    void *code = NULL;
    for (int k = 0; k < fxi_rt_noptions && n < OPTIONS; k++)
        options[n++] = fxi_rt_options[k];
    int error = fxi_rtc.Create(&p, source, "cflux.cu", 0, NULL, NULL);
    if (!error)
        error = fxi_rtc.Compile(p, n, options);
    if (!error)
        code = take_code(d, p, out_size, &error);
    if (error) {
        why->log = p ? log_of(p) : NULL;
        say_error(d, error, why);
    } else if (!code)
        fxi_gpu_no_host_memory(&d->gpu, why);
    if (p)
        fxi_rtc.Destroy(&p);
    return code;
}

/* ---- loading --------------------------------------------------------------------------------- */

static int load_module(fxi_rt_device *d, const void *code, fxi_rt_module *out)
{
    /* The device is selected in every call, because threads of cflux compile too. */
    const int error = fxi_rt_select(d);
    return error ? error : fxi_rt.ModuleLoad(out, code);
}

static void say_unloadable(fxi_rt_device *d, int error, fxi_gpu_failure *why)
{
    if (error == FXI_RT_UNSUPPORTED_PTX || error == FXI_RT_NO_BINARY ||
        error == FXI_RT_INVALID_IMAGE)
        snprintf(why->text, sizeof why->text,
                 "%s (%s): the driver (%s) cannot load the code of %s (%s); update the driver or "
                 "install an older %s",
                 d->gpu.label, d->gpu.name, d->driver, fxi_rt_compiler, fxi_rt_error_name(error),
                 fxi_rt_compiler);
    else
        why->status =
            fxi_gpu_why(&d->gpu, fxi_rt_name.ModuleLoad, error, why->text, sizeof why->text);
}

static program *new_program(void)
{
    program *p = fxi_rt_host->alloc(sizeof *p);
    if (p)
        *p = (program){.module = NULL};
    return p;
}

/* Loads code as a program. NULL with the driver's error; the error is 0 if host memory ran out. */
static program *program_of(fxi_rt_device *d, const void *code, int *out_error)
{
    program *p = new_program();
    *out_error = p ? load_module(d, code, &p->module) : 0;
    if (!*out_error)
        return p;
    fxi_rt_host->free(p);
    return NULL;
}

void *fxi_rt_compile(fxi_gpu_device *device, const char *source, fxi_gpu_failure *why)
{
    fxi_rt_device *d = (fxi_rt_device *)device;
    size_t bytes = 0;
    int error = 0;
    void *code = code_of(d, source, &bytes, why);
    if (!code)
        return NULL;
    program *p = program_of(d, code, &error);
    if (error)
        say_unloadable(d, error, why);
    else if (!p)
        fxi_gpu_no_host_memory(device, why);
    /* If there is a cache on disk, `binary` will ask for the code. */
    if (p && fxi_rt_host->kernels_cached())
        p->code = code, p->size = bytes;
    else
        fxi_rt_host->free(code);
    return p;
}

void *fxi_rt_binary(fxi_gpu_device *device, void *made, size_t *out_size)
{
    program *p = made;
    void *code = p->code;
    (void)device;
    /* The caller frees the code now. */
    p->code = NULL;
    *out_size = p->size;
    return code;
}

void *fxi_rt_load(fxi_gpu_device *device, const void *bytes, size_t size)
{
    int error;
    (void)size;
    return program_of((fxi_rt_device *)device, bytes, &error);
}

/* ---- functions ------------------------------------------------------------------------------- */

/* Each kernel has groups of one size, for which a device may have too few registers. Without an
 * answer of the driver the kernel counts as fitting. */
static bool fits(const fxi_rt_device *d, fxi_rt_function f, const char *name, int32_t group,
                 fxi_gpu_failure *why)
{
    int items = 0;
    return !fxi_rt.FunctionAttribute ||
           fxi_rt.FunctionAttribute(&items, FXI_RT_FUNCTION_ITEMS, f) != 0 || items <= 0 ||
           fxi_gpu_group_fits(&d->gpu, name, items, group, why);
}

void *fxi_rt_function_of(fxi_gpu_device *device, void *made, const char *name, int32_t group,
                         fxi_gpu_failure *why)
{
    fxi_rt_device *d = (fxi_rt_device *)device;
    fxi_rt_function f = NULL;
    int error = fxi_rt_select(d);
    if (!error)
        error = fxi_rt.ModuleFunction(&f, ((program *)made)->module, name);
    if (error) {
        why->status =
            fxi_gpu_why(device, fxi_rt_name.ModuleFunction, error, why->text, sizeof why->text);
        return NULL;
    }
    return fits(d, f, name, group, why) ? f : NULL;
}
