/* sim_build.c: compiles sim_shim.h and a kernel's text to a shared library. Libraries are kept
 * in SIM_CACHE, named by their content.
 */
#include "sim_build.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

static bool write_source(const sim_text *t, const char *path)
{
    FILE *f = fopen(path, "w");
    if (!f)
        return false;
    fprintf(f,
            "%s#define SIM_WARP %d\n#include \"%s\"\n"
            "extern \"C\" {\nextern __attribute__((visibility(\"default\"))) const int sim_warp;\n"
            "const int sim_warp = %d;\n}\n#line 1 \"kernel\"\n%s\n",
            t->macros, t->warp, SIM_SHIM, t->warp, t->source);
    write_kernels(f, t->source);
    return fclose(f) == 0;
}

static void read_log(const char *path, char *log, size_t size)
{
    FILE *f = fopen(path, "r");
    const size_t n = f ? fread(log, 1, size - 1, f) : 0;
    log[n] = '\0';
    if (f)
        fclose(f);
}

/* The library is renamed when it is complete, because other processes may build the same one at the
 * same time. */
static bool compile(const sim_text *t, const char *library, char *log, size_t size)
{
    static int count;
    char fresh[512], command[3200];
    snprintf(fresh, sizeof fresh, "%s.%ld.%d", library, (long)getpid(),
             __atomic_fetch_add(&count, 1, __ATOMIC_RELAXED));
    char text[540], printed[540];
    snprintf(text, sizeof text, "%s.cpp", fresh);
    snprintf(printed, sizeof printed, "%s.log", fresh);
    if (!write_source(t, text))
        return false;
    const char *cxx = getenv("CXX");
    snprintf(
        command, sizeof command,
        "%s -std=c++17 -O1 -w -march=native -fPIC -shared -fno-exceptions -fno-strict-aliasing "
        "-ffp-contract=off "
        "-fvisibility=hidden -o %s %s > %s 2>&1",
        cxx && *cxx ? cxx : "c++", fresh, text, printed);
    const bool built = system(command) == 0 && rename(fresh, library) == 0;
    read_log(printed, log, size);
    unlink(text);
    unlink(printed);
    return built;
}

bool sim_build(const sim_text *t, char *library, size_t library_size, char *log, size_t log_size)
{
    snprintf(library, library_size, "%s/sim-%016llx-%s.so", cache(),
             (unsigned long long)hash(t->source, hash(SIM_STAMP, 1469598103934665603u)), t->target);
    return access(library, R_OK) == 0 || compile(t, library, log, log_size);
}
