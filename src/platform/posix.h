/* posix.h: for all POSIX files of this folder: names that macOS and Linux spell differently, and
 * what these files share. Internal to src/platform. */
#ifndef CFLUX_POSIX_H
#define CFLUX_POSIX_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>
#ifdef __APPLE__
#include <xlocale.h> /* strtod_l, strtof_l */
#define st_mtim st_mtimespec
#endif

/* Why dlopen must not be called for this file, or NULL. */
const char *fxi_posix_library_refused(const char *path);

/* fxi_os_open_nameless where the system has no such call: creates a file and removes its name. */
int fxi_posix_open_unlinked(const char *beside);

/* The folder below the home folder for files that programs can create again, with a leading '/'. */
extern const char *const fxi_posix_caches;

#endif
