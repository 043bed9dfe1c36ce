/* shared_library_posix.c: opens shared libraries on systems with dlopen; see shared_library.h. */
#include "shared_library.h"
#include "posix.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* ---- opening --------------------------------------------------------------------------------- */

/* Is it neither a file nor a folder? Opening a pipe would wait until another process writes to it.
 * dlopen reports folders. */
static bool is_special(const char *path)
{
    struct stat st;
    return strchr(path, '/') && stat(path, &st) == 0 && !S_ISREG(st.st_mode) &&
           !S_ISDIR(st.st_mode);
}

void *fxi_library_open(const char *path, char *why, size_t size)
{
    const char *refusal =
        is_special(path) ? "it is not a regular file" : fxi_posix_library_refused(path);
    if (refusal) {
        snprintf(why, size, "%s", refusal);
        return NULL;
    }
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    const char *reason = library ? NULL : dlerror();
    if (!library)
        snprintf(why, size, "%s", reason ? reason : "no reason given");
    return library;
}

void *fxi_library_symbol(void *library, const char *name)
{
    return dlsym(library, name);
}

/* ---- its folder ------------------------------------------------------------------------------ */

bool fxi_library_folder(const void *address, char *folder, size_t size)
{
    Dl_info object;
    const char *slash = dladdr(address, &object) ? strrchr(object.dli_fname, '/') : NULL;
    const size_t n = slash ? (size_t)(slash - object.dli_fname) : 0;
    if (n == 0 || n >= size)
        return false;
    snprintf(folder, size, "%.*s", (int)n, object.dli_fname);
    return true;
}
