/* sim_compiler.c: the functions of NVRTC and hipRTC. The host's C++ compiler compiles a kernel's
 * text to a shared library. The "machine code" that a plugin gets is a text with the path of this
 * library. Libraries are kept in SIM_CACHE, named by their content.
 */
#include "gpurt_api.h"
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

static uint64_t hash(const char *text, uint64_t h)
{
    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return h ^ h >> 29;
}

static const char *cache(void)
{
    const char *folder = getenv("SIM_CACHE");
    return folder && *folder ? folder : "/tmp";
}

/* Writes a list of the text's kernels for the simulator. A kernel's name follows the word that
 * begins a kernel. */
static void write_kernels(FILE *f, const char *source)
{
    static const char word[] = "\nFX_KERNEL ";
    for (const char *at = source; (at = strstr(at, word)) != NULL; at += sizeof word - 1)
        fprintf(f, "SIM_KERNEL(%.*s)\n", (int)strcspn(at + sizeof word - 1, "("),
                at + sizeof word - 1);
}

/* Writes the macros that a compiler for this architecture defines, because texts test them to find
 * special instructions. */
static void write_architecture(FILE *f, const char *architecture)
{
#ifdef FXI_AMDGPU
    fprintf(f, "#define SIM_AMD 1\n#define __%.*s__ 1\n", (int)strcspn(architecture, ":"),
            architecture);
    if (strncmp(architecture, "gfx11", 5) == 0)
        fprintf(f, "#define __GFX11__ 1\n");
#else
    fprintf(f, "#define SIM_ARCH %d\n", atoi(strchr(architecture, '_') + 1));
#endif
}

static bool write_source(const program *p, const char *path, const char *architecture, int warp)
{
    FILE *f = fopen(path, "w");
    if (!f)
        return false;
    write_architecture(f, architecture);
    fprintf(f,
            "#define SIM_WARP %d\n#include \"%s\"\n"
            "extern \"C\" {\nextern __attribute__((visibility(\"default\"))) const int sim_warp;\n"
            "const int sim_warp = %d;\n}\n#line 1 \"kernel\"\n%s\n",
            warp, SIM_SHIM, warp, p->source);
    write_kernels(f, p->source);
    return fclose(f) == 0;
}

static void read_log(program *p, const char *path)
{
    FILE *f = fopen(path, "r");
    const size_t n = f ? fread(p->log, 1, LOG - 1, f) : 0;
    p->log[n] = '\0';
    if (f)
        fclose(f);
}

/* The library is renamed when it is complete, because other processes may build the same one at the
 * same time. */
static bool build(program *p, const char *library, const char *architecture, int warp)
{
    static int count;
    char fresh[512], command[3200];
    snprintf(fresh, sizeof fresh, "%s.%ld.%d", library, (long)getpid(),
             __atomic_fetch_add(&count, 1, __ATOMIC_RELAXED));
    char text[540], log[540];
    snprintf(text, sizeof text, "%s.cpp", fresh);
    snprintf(log, sizeof log, "%s.log", fresh);
    if (!write_source(p, text, architecture, warp))
        return false;
    const char *cxx = getenv("CXX");
    snprintf(
        command, sizeof command,
        "%s -std=c++17 -O1 -w -march=native -fPIC -shared -fno-exceptions -fno-strict-aliasing "
        "-ffp-contract=off "
        "-fvisibility=hidden -o %s %s > %s 2>&1",
        cxx && *cxx ? cxx : "c++", fresh, text, log);
    const bool built = system(command) == 0 && rename(fresh, library) == 0;
    read_log(p, log);
    unlink(text);
    unlink(log);
    return built;
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
    const int warp = strncmp(architecture, "gfx9", 4) == 0 ? 64 : 32;
    snprintf(library, sizeof library, "%s/sim-%016llx-%.*s.so", cache(),
             (unsigned long long)hash(p->source, hash(SIM_STAMP, 1469598103934665603u)),
             (int)strcspn(architecture, ":"), architecture);
    if (access(library, R_OK) != 0 && !build(p, library, architecture, warp))
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
