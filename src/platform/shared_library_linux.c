/* shared_library_linux.c: which files of ELF must not be given to dlopen; see shared_library.h. */
#include "posix.h"

#include <link.h>
#include <stdio.h>
#include <string.h>

static bool read_at(FILE *f, long at, void *out, size_t bytes)
{
    return fseek(f, at, SEEK_SET) == 0 && fread(out, 1, bytes, f) == bytes;
}

/* Is the file shorter than the part that dlopen would map? Reading beyond the end of a mapped file
 * kills the process. dlopen reports files that are not ELF objects. */
static bool is_cut_short(const char *path)
{
    ElfW(Ehdr) head;
    FILE *f = strchr(path, '/') ? fopen(path, "rb") : NULL; /* dlopen searches for a bare name */
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

/* The first object is the program. A dynamic linker starts it unless it was linked with -static. */
static int is_dynamic(struct dl_phdr_info *program, size_t size, void *found)
{
    (void)size;
    for (int i = 0; i < program->dlpi_phnum; i++)
        *(bool *)found |= program->dlpi_phdr[i].p_type == PT_INTERP;
    return 1;
}

/* In a static program glibc's dlopen brings a second C library, and thread-local variables of the
 * opened library have no memory: its first use of one kills the process. */
static bool is_static_program(void)
{
    bool dynamic = false;
    dl_iterate_phdr(is_dynamic, &dynamic);
    return !dynamic;
}

const char *fxi_posix_library_refused(const char *path)
{
    return is_static_program()
               ? "a program that is linked with -static cannot open shared libraries"
           : is_cut_short(path) ? "the file is truncated"
                                : NULL;
}
