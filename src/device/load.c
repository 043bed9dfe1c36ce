/* load.c: finds, checks and opens backends in shared objects.
 *
 * A backend NAME is the file libcflux-name.so in one of the folders of CFLUX_BACKEND_PATH, or where
 * plugins are installed (plugin_file.h). The first file of that name counts. It is never unloaded:
 * devices and arrays point into it. What is wrong with a file that is there is logged as well as
 * kept for fx_why_not; that a file is not there is only kept.
 */
#include "load.h"
#include "backends.h"
#include "error.h"
#include "memory.h"
#include "plugin_file.h"

#include <ctype.h>
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define PREFIX "libcflux-"
#define SUFFIX ".so"
enum { PATH_MOST = 4096, NAME_MOST = 64 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* one file at a time */

/* ---- the library's side ---------------------------------------------------------------------- */

static fx_status host_fail(fx_status status, const char *operation, const char *text)
{
    return fx_fail(status, operation, "%s", text);
}

static void host_message(int level, const char *text)
{
    fx_message(level, "%s", text);
}

static fx_host host = {.alloc = fxi_malloc,
                       .free = fxi_free,
                       .fail = host_fail,
                       .message = host_message,
                       .cpu = &fxi_cpu_backend};

/* ---- one file -------------------------------------------------------------------------------- */

typedef struct search {
    const char *name; /* of the backend */
    char file[NAME_MOST + 16], path[PATH_MOST];
    char why[256]; /* "" when the file works, or there is none */
} search;

/* What is missing in a table whose layout is the library's own, or NULL. */
static const char *missing(const fx_backend *b)
{
    if (!b->name || !*b->name || strlen(b->name) >= NAME_MOST)
        return "it has no name";
    if (!b->alloc || !b->free || !b->run)
        return "its table lacks alloc, free or run";
    if (!b->write != !b->read)
        return "its table has only one of read and write";
    if (!b->prepare != !b->release)
        return "its table has only one of prepare and release";
    return NULL;
}

static bool fits(const fx_backend *b, search *s)
{
    static const uint32_t sizes[] = FX_BACKEND_SIZES_HERE;
    const char *why = NULL;
    if (b->abi != FX_BACKEND_ABI)
        snprintf(s->why, sizeof s->why,
                 "it was built for backend ABI %u, and this cflux has ABI %d: build it again",
                 (unsigned)b->abi, (int)FX_BACKEND_ABI);
    else if (memcmp(b->sizes, sizes, sizeof sizes) != 0)
        snprintf(s->why, sizeof s->why,
                 "its structs have other sizes than this cflux's: build it again with the headers "
                 "of this cflux");
    else if ((why = missing(b)) != NULL)
        snprintf(s->why, sizeof s->why, "%s", why);
    else if (strcasecmp(b->name, s->name) != 0)
        snprintf(s->why, sizeof s->why, "it says that it is the backend %s", b->name);
    return !*s->why;
}

static void open_file(search *s)
{
    const char *why;
    const fx_backend *b = fxi_plugin_open(s->path, "fx_backend_plugin", &why);
    if (!b)
        snprintf(s->why, sizeof s->why, "it does not open: %s", why);
    if (!b || !fits(b, s))
        return;
    char reason[200] = "";
    host.version = fx_version();
    int n = b->open ? b->open(&host, reason, sizeof reason) : 1;
    n = n < 0 ? 0 : n > FXI_DEVICES_MOST ? FXI_DEVICES_MOST : n;
    if (n == 0 && !*reason)
        snprintf(reason, sizeof reason, "it found no device");
    fxi_backend_register(b, n, n ? "" : reason);
}

/* An error that a backend's functions record is the reason, and no error of the program. */
static void open_quietly(search *s)
{
    const fx_error before = fx_error_take();
    open_file(s);
    const fx_error mine = fx_error_take();
    if (mine.status != FX_OK)
        snprintf(s->why, sizeof s->why, "%.250s", mine.message);
    if (before.status != FX_OK)
        fxi_error_put(&before);
}

static bool try_folder(const char *folder, void *user)
{
    search *s = user;
    const int n = snprintf(s->path, sizeof s->path, "%s/%s", folder, s->file);
    if (n < 0 || (size_t)n >= sizeof s->path || access(s->path, F_OK) != 0)
        return false;
    open_quietly(s);
    return true;
}

static void load(const char *name)
{
    search s = {.name = name};
    snprintf(s.file, sizeof s.file, PREFIX "%s" SUFFIX, name);
    for (char *c = s.file; *c; c++)
        *c = (char)tolower((unsigned char)*c);
    char why[512] = "";
    if (!fxi_plugin_folders("CFLUX_BACKEND_PATH", try_folder, &s))
        snprintf(why, sizeof why,
                 "it is not installed: there is no %s in the folders of CFLUX_BACKEND_PATH, beside "
                 "the library, or in " CFLUX_PLUGIN_DIR,
                 s.file);
    else if (*s.why)
        fx_message(1, "%.*s", snprintf(why, sizeof why, "%s is not used: %s", s.path, s.why), why);
    fxi_registered *r = *why ? fxi_registered_find(name) : NULL;
    if (r)
        fxi_registered_why(r, why);
}

const char *fxi_checked_name(const char *name)
{
    static const char prefix[] = "check:";
    const size_t n = sizeof prefix - 1;
    return name && strncasecmp(name, prefix, n) == 0 ? name + n : NULL;
}

/* Registers the wrapper around a backend that is loaded and works. */
static void load_check(const char *inner)
{
    const fxi_registered *r = fxi_registered_find(inner);
    const fx_backend *b = fxi_works(r) ? fxi_check_backend(r->backend, r->devices, r->count) : NULL;
    if (b)
        fxi_backend_register(b, r->count, "");
}

void fxi_backend_load(const char *name)
{
    const char *inner = fxi_checked_name(name), *own = inner ? inner : name;
    if (!name || !*own || strlen(name) >= NAME_MOST || strpbrk(own, "/:. "))
        return;
    if (inner)
        fxi_backend_load(inner);
    pthread_mutex_lock(&lock);
    if (!fxi_loaded(fxi_registered_find(name)))
        inner ? load_check(inner) : load(name);
    pthread_mutex_unlock(&lock);
}

/* ---- all of them ----------------------------------------------------------------------------- */

/* Plugins that are no backends: the CPU opens them itself. */
static bool is_backend(const char *name)
{
    return strcmp(name, "onednn") != 0;
}

static bool load_folder(const char *folder, void *user)
{
    (void)user;
    DIR *dir = opendir(folder);
    for (struct dirent *e; dir && (e = readdir(dir)) != NULL;) {
        char name[NAME_MOST];
        const size_t n = strlen(e->d_name), prefix = strlen(PREFIX), suffix = strlen(SUFFIX);
        if (n <= prefix + suffix || n >= sizeof name || strncmp(e->d_name, PREFIX, prefix) != 0 ||
            strcmp(e->d_name + n - suffix, SUFFIX) != 0)
            continue;
        snprintf(name, sizeof name, "%.*s", (int)(n - prefix - suffix), e->d_name + prefix);
        if (is_backend(name))
            fxi_backend_load(name);
    }
    if (dir)
        closedir(dir);
    return false;
}

void fxi_backend_load_all(void)
{
    fxi_plugin_folders("CFLUX_BACKEND_PATH", load_folder, NULL);
}
