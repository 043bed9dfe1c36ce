/* plugin_file.c: see plugin_file.h. */
#include "plugin_file.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 4000 }; /* of a folder's name */

static bool visit_part(const char *folder, size_t length, const char *below,
                       bool (*visit)(const char *, void *), void *user)
{
    char path[MOST + 8];
    if (length == 0 || length >= MOST)
        return false;
    snprintf(path, sizeof path, "%.*s%s", (int)length, folder, below);
    return visit(path, user);
}

bool fxi_plugin_folders(const char *variable, bool (*visit)(const char *folder, void *user),
                        void *user)
{
    static const char anchor;
    const char *list = secure_getenv(variable);
    while (list && *list) {
        const size_t n = strcspn(list, ":");
        if (visit_part(list, n, "", visit, user))
            return true;
        list += n + (list[n] == ':');
    }
    Dl_info self;
    const char *slash = dladdr(&anchor, &self) ? strrchr(self.dli_fname, '/') : NULL;
    const size_t n = slash ? (size_t)(slash - self.dli_fname) : 0;
    return visit_part(slash ? self.dli_fname : "", n, "", visit, user) ||
           visit_part(slash ? self.dli_fname : "", n, "/cflux", visit, user) ||
           visit_part(CFLUX_PLUGIN_DIR, strlen(CFLUX_PLUGIN_DIR), "", visit, user);
}

static bool read_at(FILE *f, long at, void *out, size_t bytes)
{
    return fseek(f, at, SEEK_SET) == 0 && fread(out, 1, bytes, f) == bytes;
}

/* Does the file end before what is to be mapped of it? dlopen would look there all the same, and
 * the process would end. What is no object at all is left to dlopen to say. */
static bool is_cut_short(const char *path)
{
    ElfW(Ehdr) head;
    FILE *f = fopen(path, "rb");
    bool cut = false;
    if (f && read_at(f, 0, &head, sizeof head) && memcmp(head.e_ident, ELFMAG, SELFMAG) == 0 &&
        fseek(f, 0, SEEK_END) == 0) {
        const long size = ftell(f);
        for (int i = 0; i < head.e_phnum && !cut; i++) {
            ElfW(Phdr) part;
            cut = !read_at(f, (long)head.e_phoff + i * (long)sizeof part, &part, sizeof part) ||
                  (part.p_type == PT_LOAD && (long)(part.p_offset + part.p_filesz) > size);
        }
    }
    if (f)
        fclose(f);
    return cut;
}

const void *fxi_plugin_open(const char *path, const char *symbol, const char **why)
{
    if (is_cut_short(path)) {
        *why = "the file is cut short";
        return NULL;
    }
    dlerror();
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    const void *found = library ? dlsym(library, symbol) : NULL;
    *why = found ? NULL : dlerror();
    if (!found && !*why)
        *why = "it is empty";
    return found;
}
