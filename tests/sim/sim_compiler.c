/* sim_compiler.c: the functions of NVRTC and hipRTC. The host's C++ compiler compiles a kernel's
 * text to a shared library (sim_build.c). The "machine code" that a plugin gets is a text with the
 * path of this library.
 */
#include "gpurt_api.h"
#include "sim.h"
#include "sim_build.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DECLARE(result, member, cuda, hip, need, arguments)                                        \
    __attribute__((visibility("default")))                                                         \
    result sim_##member arguments __asm__(FXI_RT_SYMBOL(cuda, hip));
FXI_RTC_FUNCTIONS(DECLARE)

#define NAME(result, member, cuda, hip, need, arguments) const char *member;
static const struct {
    FXI_RTC_FUNCTIONS(NAME)
} names = {
#undef NAME
#define NAME(result, member, cuda, hip, need, arguments) FXI_RT_SYMBOL(cuda, hip),
    FXI_RTC_FUNCTIONS(NAME)};

enum { CREATION = 1, COMPILATION = 6, OPTION = 5, LOG = 1 << 14 };
#ifdef FXI_AMDGPU
enum { MAJOR = 9, MINOR = 0 };
static const char option[] = "--offload-arch=", *const archs[] = {"gfx90a", "gfx942", "gfx1100"};
#else
enum { MAJOR = 13, MINOR = 0 };
static const char option[] = "--gpu-architecture=";
static const int archs[] = {75, 80, 86, 90, 100};
#endif

typedef struct program {
    char *source, log[LOG], code[1024];
} program;

int sim_Version(int *major, int *minor)
{
    const int version = (int)sim_setting("SIM_COMPILER", 1000 * MAJOR + MINOR);
    *major = version / 1000;
    *minor = version % 1000 / 10;
    return 0;
}

const char *sim_ErrorString(int error)
{
    return error == COMPILATION ? "ERROR_COMPILATION"
           : error == OPTION    ? "ERROR_INVALID_OPTION"
                                : "ERROR";
}

int sim_Create(fxi_rtc_program *out, const char *source, const char *name, int nheaders,
               const char *const *headers, const char *const *files)
{
    program *p = calloc(1, sizeof *p);
    bool lost;
    (void)name, (void)nheaders, (void)headers, (void)files;
    const int error = sim_script(names.Create, &lost);
    if (!p || error || !(p->source = strdup(source))) {
        free(p);
        return error ? error : CREATION;
    }
    *out = (fxi_rtc_program)p;
    return 0;
}

/* Writes the macros that a compiler for this architecture defines, because texts test them to find
 * special instructions. */
static void say_macros(const char *architecture, char *text, size_t size)
{
#ifdef FXI_AMDGPU
    snprintf(text, size, "#define SIM_AMD 1\n#define __%.*s__ 1\n%s",
             (int)strcspn(architecture, ":"), architecture,
             strncmp(architecture, "gfx11", 5) == 0 ? "#define __GFX11__ 1\n" : "");
#else
    snprintf(text, size, "#define SIM_ARCH %d\n", atoi(strchr(architecture, '_') + 1));
#endif
}

/* Returns the architecture that the options name; the compiler must support it. */
static const char *target(int n, const char *const *options)
{
    const char *found = NULL;
    for (int k = 0; k < n; k++)
        if (strncmp(options[k], option, sizeof option - 1) == 0)
            found = options[k] + sizeof option - 1;
    for (size_t k = 0; found && k < sizeof archs / sizeof *archs; k++) {
#ifdef FXI_AMDGPU
        if (strncmp(found, archs[k], strlen(archs[k])) == 0)
            return found;
#else
        if (strchr(found, '_') && atoi(strchr(found, '_') + 1) == archs[k])
            return found;
#endif
    }
    return NULL;
}

int sim_Compile(fxi_rtc_program it, int n, const char *const *options)
{
    program *p = (program *)it;
    char library[400];
    bool lost;
    int error = sim_script(names.Compile, &lost), major, minor;
    const char *architecture = target(n, options);
    if (!architecture || error) {
        snprintf(p->log, LOG, "error: invalid value of %s", option);
        return error ? error : OPTION;
    }
    char macros[160], target_name[40];
    say_macros(architecture, macros, sizeof macros);
    snprintf(target_name, sizeof target_name, "%.*s", (int)strcspn(architecture, ":"),
             architecture);
    const sim_text text = {.source = p->source,
                           .macros = macros,
                           .target = target_name,
                           .warp = strncmp(architecture, "gfx9", 4) == 0 ? 64 : 32};
    if (!sim_build(&text, library, sizeof library, p->log, LOG))
        return COMPILATION;
    sim_Version(&major, &minor);
    snprintf(p->code, sizeof p->code, "simulated %s %s %d\n%s\n",
             strncmp(architecture, "compute", 7) == 0 ? "PTX" : "code", architecture,
             1000 * major + 10 * minor, library);
    return 0;
}

/* Returns the size of a text, or the text, unless the script makes the function fail. */
static int give(const char *function, const char *text, size_t *out_size, char *out)
{
    bool lost;
    const int error = sim_script(function, &lost);
    if (!error && out_size)
        *out_size = strlen(text) + 1;
    if (!error && out)
        strcpy(out, text);
    return error;
}

int sim_LogSize(fxi_rtc_program p, size_t *out)
{
    return give(names.LogSize, ((program *)p)->log, out, NULL);
}

int sim_Log(fxi_rtc_program p, char *out)
{
    return give(names.Log, ((program *)p)->log, NULL, out);
}

int sim_CodeSize(fxi_rtc_program p, size_t *out)
{
    return give(names.CodeSize, ((program *)p)->code, out, NULL);
}

int sim_Code(fxi_rtc_program p, char *out)
{
    return give(names.Code, ((program *)p)->code, NULL, out);
}

int sim_Destroy(fxi_rtc_program *p)
{
    free(((program *)*p)->source);
    free(*p);
    *p = NULL;
    return 0;
}

#ifndef FXI_AMDGPU
int sim_PTXSize(fxi_rtc_program p, size_t *out)
{
    return give(names.PTXSize, ((program *)p)->code, out, NULL);
}

int sim_PTX(fxi_rtc_program p, char *out)
{
    return give(names.PTX, ((program *)p)->code, NULL, out);
}

int sim_ArchCount(int *out)
{
    bool lost;
    *out = (int)(sizeof archs / sizeof *archs);
    return sim_script(names.ArchCount, &lost);
}

int sim_Archs(int *out)
{
    memcpy(out, archs, sizeof archs);
    return 0;
}
#endif
