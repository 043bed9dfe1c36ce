/* sim_build.c: compiles sim_shim.h and a kernel's text to a shared library. Libraries are kept
 * in SIM_CACHE, named by their content.
 *
 * Starting the compiler and the linker costs more than most texts. So with SIM_COLLECT=1 texts are
 * stored only, their kernels compute nothing, and the end of the process compiles many texts to one
 * library. Another run of the same program then finds all of its kernels (collect.sh). Everything
 * that a text declares has the text's number in its name, or is in a namespace.
 */
#include "sim_build.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The usual libraries of C++ are not linked: reading them would take most of the linker's time. */
static const char flags[] =
    "-std=c++17 -w -march=native -fPIC -shared -fno-exceptions -fno-strict-aliasing "
    "-ffp-contract=off -fvisibility=hidden";
static const char libraries[] = "-nostdlib -lm -lgcc";

static const char *setting(const char *name, const char *usual)
{
    const char *value = getenv(name);
    return value && *value ? value : usual;
}

static uint64_t hash(const char *text, uint64_t h)
{
    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return h ^ h >> 29;
}

/* ---- the source ------------------------------------------------------------------------------ */

/* Calls `say` for each kernel of a text. A kernel's name follows the word that begins a kernel. */
static void each_kernel(FILE *f, const char *source, const char *id,
                        void (*say)(FILE *f, int n, const char *name, const char *id))
{
    static const char word[] = "\nFX_KERNEL ";
    for (const char *at = source; (at = strstr(at, word)) != NULL; at += sizeof word - 1)
        say(f, (int)strcspn(at + sizeof word - 1, "("), at + sizeof word - 1, id);
}

static void rename_kernel(FILE *f, int n, const char *name, const char *id)
{
    fprintf(f, "#define %.*s %.*s_%s\n", n, name, n, name, id);
}

static void offer_kernel(FILE *f, int n, const char *name, const char *id)
{
    fprintf(f, "SIM_KERNEL(%.*s, %s)\n", n, name, id);
}

static void forget_kernel(FILE *f, int n, const char *name, const char *id)
{
    (void)id;
    fprintf(f, "#undef %.*s\n", n, name);
}

/* Writes a pragma for each macro that the text defines: the next text may define it differently. */
static void write_macros(FILE *f, const char *source, const char *pragma)
{
    static const char word[] = "#define ";
    for (const char *at = source; (at = strstr(at, word)) != NULL;) {
        at += sizeof word - 1;
        fprintf(f, "#pragma %s(\"%.*s\")\n", pragma, (int)strcspn(at, "( \n"), at);
    }
}

static bool write_source(const sim_text *t, const char *id, const char *path)
{
    FILE *f = fopen(path, "w");
    if (!f)
        return false;
    fprintf(f,
            "#ifndef SIM_WARP\n%s#define SIM_WARP %d\n#include \"%s\"\n"
            "extern \"C\" {\nextern __attribute__((visibility(\"default\"))) const int sim_warp;\n"
            "const int sim_warp = %d;\n}\n#endif\n",
            t->macros, t->warp, SIM_SHIM, t->warp);
    write_macros(f, t->source, "push_macro");
    each_kernel(f, t->source, id, rename_kernel);
    fprintf(f,
            "#define SIM_SHARED \"sim_shared_%s\"\nnamespace sim_%s\n{\n#line 1 \"kernel\"\n%s\n",
            id, id, t->source);
    each_kernel(f, t->source, id, offer_kernel);
    fprintf(f, "}\nSIM_TEXT(%s)\n#undef SIM_SHARED\n", id);
    fprintf(f,
            "#ifdef FX_GROUP\nextern \"C\" {\n"
            "extern __attribute__((visibility(\"default\"))) const unsigned sim_group_%s;\n"
            "const unsigned sim_group_%s = FX_GROUP;\n}\n#endif\n",
            id, id);
    each_kernel(f, t->source, id, forget_kernel);
    write_macros(f, t->source, "pop_macro");
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

/* ---- one text -------------------------------------------------------------------------------- */

/* A file name that no other process and no other thread uses. */
static void fresh_name(const char *library, char *name, size_t size)
{
    static int count;
    snprintf(name, size, "%s.%ld.%d", library, (long)getpid(),
             __atomic_fetch_add(&count, 1, __ATOMIC_RELAXED));
}

/* The library is renamed when it is complete, because other processes may build the same one at the
 * same time. */
static bool compile(const char *text, const char *library, char *log, size_t size)
{
    char fresh[512], printed[540], command[3200];
    fresh_name(library, fresh, sizeof fresh);
    snprintf(printed, sizeof printed, "%s.log", fresh);
    snprintf(command, sizeof command, "%s %s -O%s -o %s %s %s > %s 2>&1", setting("CXX", "c++"),
             flags, setting("SIM_OPTIMIZE", "1"), fresh, text, libraries, printed);
    const bool built = system(command) == 0 && rename(fresh, library) == 0;
    read_log(printed, log, size);
    unlink(printed);
    return built;
}

/* ---- many texts ------------------------------------------------------------------------------ */

typedef struct text_file {
    char source[440], library[400], target[40];
} text_file;
enum { BATCH = 32 };
static text_file batch[BATCH];
static int nbatch;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Compiles the texts of the batch to one library, and makes links to it with the names of the
 * texts' own libraries. If one of the texts has an error, none gets a library; the next run
 * compiles each text by itself and reports the error. */
static void compile_batch(void)
{
    char name[420], source[440], library[440], log[16];
    fresh_name(batch[0].library, name, sizeof name);
    snprintf(source, sizeof source, "%s.batch.cpp", name);
    snprintf(library, sizeof library, "%s.batch", name);
    FILE *f = nbatch ? fopen(source, "w") : NULL;
    for (int k = 0; f && k < nbatch; k++)
        fprintf(f, "#include \"%s\"\n", strrchr(batch[k].source, '/') + 1);
    const bool built = f && fclose(f) == 0 && compile(source, library, log, sizeof log);
    for (int k = 0; k < nbatch; k++) {
        if (built)
            (void)!symlink(strrchr(library, '/') + 1, batch[k].library);
        unlink(batch[k].source);
    }
    unlink(source);
    nbatch = 0;
}

__attribute__((destructor)) static void compile_rest(void)
{
    if (nbatch)
        compile_batch();
}

/* Texts for different targets need different macros. */
static bool collect(const sim_text *t, const char *id, const char *library)
{
    pthread_mutex_lock(&lock);
    bool good = true, known = false;
    for (int k = 0; k < nbatch; k++)
        known |= strcmp(batch[k].library, library) == 0;
    if (nbatch == BATCH || (nbatch && strcmp(batch[0].target, t->target) != 0))
        compile_batch();
    if (!known) {
        text_file *b = &batch[nbatch];
        snprintf(b->library, sizeof b->library, "%s", library);
        snprintf(b->target, sizeof b->target, "%s", t->target);
        char name[420];
        fresh_name(library, name, sizeof name);
        snprintf(b->source, sizeof b->source, "%s.cpp", name);
        good = write_source(t, id, b->source);
        nbatch += good;
    }
    pthread_mutex_unlock(&lock);
    return good;
}

bool sim_build(const sim_text *t, char *library, size_t library_size, char *log, size_t log_size)
{
    char id[20], name[512], source[540];
    const uint64_t stamp =
        hash(flags, hash(setting("SIM_OPTIMIZE", "1"), hash(SIM_STAMP, 1469598103934665603u)));
    snprintf(id, sizeof id, "%016llx", (unsigned long long)hash(t->source, stamp));
    snprintf(library, library_size, "%s/sim-%s-%s.so", setting("SIM_CACHE", "/tmp"), id, t->target);
    *log = '\0';
    if (access(library, R_OK) == 0)
        return true;
    if (*setting("SIM_COLLECT", "0") == '1')
        return collect(t, id, library);
    fresh_name(library, name, sizeof name);
    snprintf(source, sizeof source, "%s.cpp", name);
    const bool built = write_source(t, id, source) && compile(source, library, log, log_size);
    unlink(source);
    return built;
}
