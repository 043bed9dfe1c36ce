/* gpu_nvrtc.c: see gpu_nvrtc.h. */
#include "gpu_nvrtc.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "temp_file.h"

#define COUNT(a) (int)(sizeof a / sizeof *a)

static bool runs(const char *command)
{
    char line[256];
    snprintf(line, sizeof line, "%s --version > /dev/null 2>&1", command);
    return system(line) == 0;
}

const char *gpu_clang(void)
{
    return runs("clang-15") ? "clang-15" : runs("clang") ? "clang" : NULL;
}

/* The contents of a file, or NULL; the caller frees them. */
static char *contents(const char *path)
{
    FILE *f = fopen(path, "r");
    char *text = NULL;
    size_t n = 0;
    if (!f)
        return NULL;
    if (getdelim(&text, &n, '\0', f) < 0) {
        free(text);
        text = NULL;
    }
    fclose(f);
    return text;
}

const char *gpu_clang_new(void)
{
    return runs("clang-19") ? "clang-19" : NULL;
}

char *gpu_hip_assembly(const char *compiler, const char *text, const char *arch)
{
    char line[2048], out[512];
    const char *path = temp_text("kernels.hip", text);
    snprintf(out, sizeof out, "%s.s", path);
    snprintf(line, sizeof line,
             "%s -x hip -nogpuinc -nogpulib --cuda-device-only --offload-arch=%s -O2 "
             "-ffp-contract=off -S -o %s %s",
             compiler, arch, out, path);
    char *assembly = system(line) == 0 ? contents(out) : NULL;
    remove(out);
    return assembly;
}

static struct {
    int (*create)(void **program, const char *text, const char *name, int headers,
                  const char *const *sources, const char *const *names);
    int (*compile)(void *program, int n, const char *const *options);
    int (*log_size)(void *program, size_t *size);
    int (*log)(void *program, char *log);
    int (*ptx_size)(void *program, size_t *size);
    int (*ptx)(void *program, char *ptx);
    int (*destroy)(void **program);
} nvrtc;

bool gpu_nvrtc_open(void)
{
    static const char *const places[] = {"libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12",
                                         "/usr/local/cuda/lib64/libnvrtc.so"};
    const char *wanted = getenv("CFLUX_NVRTC"); /* "0": as on a machine without it */
    void *library = NULL;
    if (wanted && strcmp(wanted, "0") == 0)
        return false;
    for (int k = 0; k < COUNT(places) && !library; k++)
        library = dlopen(places[k], RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return false;
    *(void **)&nvrtc.create = dlsym(library, "nvrtcCreateProgram");
    *(void **)&nvrtc.compile = dlsym(library, "nvrtcCompileProgram");
    *(void **)&nvrtc.log_size = dlsym(library, "nvrtcGetProgramLogSize");
    *(void **)&nvrtc.log = dlsym(library, "nvrtcGetProgramLog");
    *(void **)&nvrtc.ptx_size = dlsym(library, "nvrtcGetPTXSize");
    *(void **)&nvrtc.ptx = dlsym(library, "nvrtcGetPTX");
    *(void **)&nvrtc.destroy = dlsym(library, "nvrtcDestroyProgram");
    return nvrtc.create && nvrtc.compile && nvrtc.log_size && nvrtc.log && nvrtc.ptx_size &&
           nvrtc.ptx && nvrtc.destroy;
}

static const char *ptxas(void)
{
    return runs("ptxas")                       ? "ptxas"
           : runs("/usr/local/cuda/bin/ptxas") ? "/usr/local/cuda/bin/ptxas"
                                               : NULL;
}

bool gpu_ptxas_works(void)
{
    return ptxas() != NULL;
}

bool gpu_ptxas(const char *ptx, const char *arch, char **out_report)
{
    char line[1024], report[512];
    if (out_report)
        *out_report = NULL;
    if (!ptxas())
        return true;
    const char *path = temp_text("kernels.ptx", ptx);
    snprintf(report, sizeof report, "%s.report", path);
    snprintf(line, sizeof line, "%s %s -arch=sm_%s -o /dev/null %s > %s 2>&1", ptxas(),
             out_report ? "-v" : "-O1", arch, path, report);
    const bool good = system(line) == 0;
    char *said = contents(report);
    if (!good)
        print_message("%.4000s\n", said ? said : "");
    if (out_report)
        *out_report = said;
    else
        free(said);
    remove(report);
    return good;
}

int gpu_reported(const char *report, const char *format, const char *word)
{
    int most = -1;
    for (const char *at = report; (at = strstr(at, word)) != NULL; at++) {
        const char *from = at;
        int n;
        while (from > report && from[-1] != '\n' && from[-1] != ',' && from[-1] != ':')
            from--;
        if (sscanf(from + strspn(from, " "), format, &n) == 1 && n > most)
            most = n;
    }
    return most;
}

static char *ptx_of(void *program)
{
    size_t size = 0;
    nvrtc.ptx_size(program, &size);
    char *ptx = malloc(size);
    assert_non_null(ptx);
    nvrtc.ptx(program, ptx);
    return ptx;
}

char *gpu_nvrtc_ptx(const char *text, const char *arch)
{
    char option[64];
    const char *const options[] = {option, "--fmad=false",
                                   "--diag-suppress=177,550"}; /* unused variables and functions */
    void *program;
    size_t size = 0;
    snprintf(option, sizeof option, "--gpu-architecture=compute_%s", arch);
    assert_int_equal(nvrtc.create(&program, text, "kernels.cu", 0, NULL, NULL), 0);
    bool good = nvrtc.compile(program, COUNT(options), options) == 0;
    if (nvrtc.log_size(program, &size) == 0 && size > 1) { /* a warning is a failure */
        char *log = malloc(size);
        assert_non_null(log);
        nvrtc.log(program, log);
        print_message("%.4000s\n", log);
        free(log);
        good = false;
    }
    char *ptx = good ? ptx_of(program) : NULL;
    nvrtc.destroy(&program);
    return ptx;
}

char *gpu_clang_ptx(const char *text)
{
    char line[2048], out[512];
    const char *path = temp_text("kernels.cu", text);
    snprintf(out, sizeof out, "%s.ptx", path);
    snprintf(line, sizeof line,
             "%s -x cuda -nocudainc -nocudalib --cuda-device-only --cuda-gpu-arch=sm_75 -O2 "
             "-Wno-unknown-cuda-version -ffp-contract=off -S -o %s "
             "-include " CFLUX_SOURCE_DATA_DIR "/../tests/gpu/cuda_shim.h %s",
             gpu_clang(), out, path);
    char *ptx = system(line) == 0 ? contents(out) : NULL;
    remove(out);
    return ptx;
}
