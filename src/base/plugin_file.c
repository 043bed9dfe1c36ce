/* plugin_file.c: finds, checks and describes the files of plugins of every kind.
 *
 * A request describes the wanted plugin; the file's name follows from it (cflux/plugin.h). A search
 * continues after a candidate that it rejects, so that an old file in one folder does not hide a
 * good one in another. Defects of existing files are logged. A missing file is not, because
 * programs ask for plugins that few machines have. An opened file is never closed: devices, arrays
 * and steps point into it.
 */
#include "plugin_file.h"
#include "c_text.h"
#include "error.h"
#include "files.h"
#include "shared_library.h"
#include "this_process.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define PREFIX "libcflux-"

/* The symbol that every plugin exports, and those of earlier versions, whose objects also began
 * with their ABI number. */
static const char symbol[] = "fx_plugin";
static const struct {
    const char *symbol;
    fx_plugin_kind kind;
} former_symbols[] = {{"fx_backend_plugin", FX_PLUGIN_BACKEND},
                      {"fxi_plugin_table", FX_PLUGIN_KERNEL_LIBRARY}};
enum { FORMER = sizeof former_symbols / sizeof former_symbols[0] };

static const char *const kinds[] = {"plugin", "backend", "kernel library", "transport"};

const char *fxi_plugin_kind_text(uint32_t kind)
{
    return kinds[kind < sizeof kinds / sizeof kinds[0] ? kind : 0];
}

/* ---- folders --------------------------------------------------------------------------------- */

/* The environment variables that name folders; the first that is set is read. */
static const struct {
    const char *name, *now; /* now: its present name, if it was renamed */
} variables[] = {{"FX_PLUGIN_PATH", NULL}, {"CFLUX_BACKEND_PATH", "FX_PLUGIN_PATH"}};
enum { VARIABLES = sizeof variables / sizeof variables[0] };

static const char *listed_folders(void)
{
    static bool warned[VARIABLES];
    for (int i = 0; i < VARIABLES; i++) {
        const char *list = fxi_trusted_variable(variables[i].name);
        if (!list || !*list)
            continue;
        if (variables[i].now && !__atomic_test_and_set(&warned[i], __ATOMIC_RELAXED))
            fx_message(1, "The environment variable %s was renamed: set %s instead.",
                       variables[i].name, variables[i].now);
        return list;
    }
    return "";
}

const char *fxi_installed_plugins = CFLUX_PLUGIN_DIR;

bool fxi_plugin_folders(bool (*visit)(const char *folder, void *user), void *user)
{
    static const char anchor;
    char folder[FXI_PATH_MOST];
    for (const char *list = listed_folders(); *list;) {
        const size_t n = strcspn(list, FXI_LIST_SEPARATOR);
        snprintf(folder, sizeof folder, "%.*s", (int)n, list);
        if (n > 0 && n < sizeof folder && visit(folder, user))
            return true;
        list += n + (list[n] != 0);
    }
    if (fxi_library_folder(&anchor, folder, sizeof folder - sizeof "/cflux")) {
        if (visit(folder, user))
            return true;
        strcat(folder, "/cflux");
        if (visit(folder, user))
            return true;
        if (strcmp(folder, fxi_installed_plugins) == 0)
            return false;
    }
    return visit(fxi_installed_plugins, user);
}

/* ---- names ----------------------------------------------------------------------------------- */

/* libcflux-opencl.so, libcflux-cpu-onednn.so. Returns false if that is too long. */
static bool file_name(const fxi_plugin_request *request, char *out, size_t size)
{
    const int n =
        snprintf(out, size, PREFIX "%s%s%s" FXI_LIBRARY_SUFFIX,
                 request->serves ? request->serves : "", request->serves ? "-" : "", request->name);
    for (char *c = out; *c; c++)
        *c = (char)tolower((unsigned char)*c);
    return n > 0 && (size_t)n < size;
}

/* The transports are in the library's sources, so their names are known. */
static bool is_transport(const char *text)
{
    return fxi_same_start_ignoring_case(text, "mpi-", 4) || fxi_same_ignoring_case(text, "nccl") ||
           fxi_same_ignoring_case(text, "rccl");
}

bool fxi_plugin_name_of(const char *file, fxi_plugin_name *out)
{
    const char *slash = strrchr(file, '/');
    const size_t prefix = strlen(PREFIX), suffix = strlen(FXI_LIBRARY_SUFFIX);
    file = slash ? slash + 1 : file;
    const size_t n = strlen(file);
    if (n <= prefix + suffix || n - prefix - suffix >= FXI_PLUGIN_NAME ||
        strncmp(file, PREFIX, prefix) != 0 || strcmp(file + n - suffix, FXI_LIBRARY_SUFFIX) != 0)
        return false;
    char text[FXI_PLUGIN_NAME];
    snprintf(text, sizeof text, "%.*s", (int)(n - prefix - suffix), file + prefix);
    char *hyphen = strchr(text, '-');
    *out = (fxi_plugin_name){.kind = hyphen ? FX_PLUGIN_KERNEL_LIBRARY : FX_PLUGIN_BACKEND};
    if (is_transport(text))
        out->kind = FX_PLUGIN_TRANSPORT;
    snprintf(out->name, sizeof out->name, "%s", hyphen ? hyphen + 1 : text);
    snprintf(out->serves, sizeof out->serves, "%.*s", hyphen ? (int)(hyphen - text) : 0, text);
    return *out->name && (!hyphen || *out->serves);
}

typedef struct listing {
    void (*visit)(const char *path, const fxi_plugin_name *name, void *user);
    void *user;
    const char *folder;
} listing;

static bool list_file(const char *file, void *user)
{
    const listing *l = user;
    fxi_plugin_name name;
    char path[FXI_PATH_MOST];
    const int n = snprintf(path, sizeof path, "%s/%s", l->folder, file);
    if (n > 0 && (size_t)n < sizeof path && fxi_plugin_name_of(file, &name))
        l->visit(path, &name, l->user);
    return false;
}

static bool list_folder(const char *folder, void *user)
{
    listing *l = user;
    l->folder = folder;
    return fxi_folder_each(folder, list_file, l);
}

void fxi_plugin_each(void (*visit)(const char *path, const fxi_plugin_name *name, void *user),
                     void *user)
{
    listing l = {.visit = visit, .user = user};
    fxi_plugin_folders(list_folder, &l);
}

/* ---- one file -------------------------------------------------------------------------------- */

typedef struct search {
    const fxi_plugin_request *request;
    const fx_plugin_head *found;
    char file[2 * FXI_PLUGIN_NAME + 16];
    int absent, rejected;
    char absent_from[FXI_PLUGIN_WHY]; /* folders, ", " between them */
    char why[FXI_PLUGIN_WHY];         /* one part for each rejected file */
} search;

static void add(char *text, const char *separator, const char *part)
{
    const size_t n = strlen(text);
    snprintf(text + n, FXI_PLUGIN_WHY - n, "%s%s", n ? separator : "", part);
}

static void other_abi(fx_plugin_kind kind, uint32_t abi, char *why, size_t size)
{
    snprintf(why, size, "it was built for %s ABI %u, but this cflux has ABI %d: rebuild it",
             fxi_plugin_kind_text(kind), (unsigned)abi, (int)FX_PLUGIN_ABI);
}

/* The head of an open library. NULL, with the reason in `why`: it is not a plugin, or a plugin of
 * an earlier version. */
static const fx_plugin_head *head_of(void *library, char *why, size_t size)
{
    const fx_plugin_head *head = fxi_library_symbol(library, symbol);
    const uint32_t *former = NULL;
    for (int i = 0; !head && !former && i < FORMER; i++) {
        former = fxi_library_symbol(library, former_symbols[i].symbol);
        if (former)
            other_abi(former_symbols[i].kind, *former, why, size);
    }
    if (!head && !former)
        snprintf(why, size, "it does not export %s: it is not a plugin of cflux", symbol);
    return head;
}

/* Is it the wanted plugin? */
static bool fits(const fx_plugin_head *p, const fxi_plugin_request *request, char *why, size_t size)
{
    if (p->abi != FX_PLUGIN_ABI)
        other_abi(p->kind, p->abi, why, size);
    else if (p->kind != (uint32_t)request->kind)
        snprintf(why, size, "it is a %s, not a %s", fxi_plugin_kind_text(p->kind),
                 fxi_plugin_kind_text(request->kind));
    else if (memcmp(p->sizes, request->sizes, sizeof p->sizes) != 0)
        snprintf(
            why, size,
            "the sizes of its structs differ from this cflux's: rebuild it with the headers of "
            "this cflux");
    else if (!p->name || !*p->name || strlen(p->name) >= FXI_PLUGIN_NAME)
        snprintf(why, size, "it has no name");
    else if (!fxi_same_ignoring_case(p->name, request->name))
        snprintf(why, size, "it identifies itself as the %s %s", fxi_plugin_kind_text(p->kind),
                 p->name);
    else if (request->serves && (!p->serves || !fxi_same_ignoring_case(p->serves, request->serves)))
        snprintf(why, size, "it identifies itself as a plugin for %s",
                 p->serves ? p->serves : "no backend");
    return !*why;
}

/* Calls `take`. An error that `take` records becomes the reason, and is not left as an error of the
 * program. */
static void take_quietly(const fx_plugin_head *p, const fxi_plugin_request *request, char *why,
                         size_t size)
{
    const fx_error before = fx_error_take();
    const char *reason = request->take(p, request->user);
    const fx_error mine = fx_error_take();
    if (mine.status != FX_OK || reason)
        snprintf(why, size, "%s", mine.status != FX_OK ? mine.message : reason);
    if (before.status != FX_OK)
        fxi_error_carry(&before);
}

static bool try_file(const char *path, search *s)
{
    char why[FXI_PLUGIN_WHY] = "", reason[FXI_PLUGIN_WHY - 24], line[FXI_PATH_MOST];
    void *library = fxi_library_open(path, reason, sizeof reason);
    const fx_plugin_head *p = library ? head_of(library, why, sizeof why) : NULL;
    if (!library)
        snprintf(why, sizeof why, "it cannot be opened: %s", reason);
    if (p && fits(p, s->request, why, sizeof why) && s->request->take)
        take_quietly(p, s->request, why, sizeof why);
    fxi_plugin_note(path, p && p->abi == FX_PLUGIN_ABI ? p : NULL, why);
    if (!*why) {
        s->found = p;
        return true;
    }
    snprintf(line, sizeof line, "%s is ignored: %s", path, why);
    fx_message(1, "%s", line);
    add(s->why, "; ", line);
    s->rejected++;
    return false;
}

/* ---- all candidates -------------------------------------------------------------------------- */

static bool try_folder(const char *folder, void *user)
{
    search *s = user;
    char path[FXI_PATH_MOST];
    const int n = snprintf(path, sizeof path, "%s/%s", folder, s->file);
    if (n > 0 && (size_t)n < sizeof path && fxi_file_exists(path))
        return try_file(path, s);
    add(s->absent_from, ", ", folder);
    s->absent++;
    return false;
}

/* "A is ignored: …; there is no libcflux-metal.so in B, C". */
static void describe(const search *s, char *why, size_t size)
{
    snprintf(why, size, "%s%s%s%s%s%s", s->rejected ? s->why : "it is not installed",
             s->absent ? (s->rejected ? "; " : ": ") : "", s->absent ? "there is no " : "",
             s->absent ? s->file : "", s->absent ? " in " : "", s->absent ? s->absent_from : "");
}

fxi_plugin_result fxi_plugin_find(const fxi_plugin_request *request,
                                  const fx_plugin_head **out_plugin, char *why, size_t size)
{
    search s = {.request = request};
    *out_plugin = NULL;
    if (size > 0)
        *why = 0;
    if (!file_name(request, s.file, sizeof s.file)) {
        snprintf(why, size, "its name is too long");
        return FXI_PLUGIN_ABSENT;
    }
    if (!request->path)
        fxi_plugin_folders(try_folder, &s);
    else if (fxi_file_exists(request->path))
        try_file(request->path, &s);
    else
        snprintf(why, size, "it is not installed: there is no %s", request->path);
    *out_plugin = s.found;
    if (s.found)
        return FXI_PLUGIN_TAKEN;
    if (!request->path || s.rejected)
        describe(&s, why, size);
    return s.rejected ? FXI_PLUGIN_REJECTED : FXI_PLUGIN_ABSENT;
}
