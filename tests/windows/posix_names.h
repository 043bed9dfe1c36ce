/* posix_names.h: functions of POSIX that tests call and MinGW does not have. Included before every
 * test program for Windows. */
#ifndef CFLUX_POSIX_NAMES_H
#define CFLUX_POSIX_NAMES_H

#include <direct.h>
#include <io.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline int setenv(const char *name, const char *value, int replace)
{
    return replace || !getenv(name) ? _putenv_s(name, value) : 0;
}

static inline int unsetenv(const char *name)
{
    return _putenv_s(name, "");
}

static inline char *stpcpy(char *to, const char *from)
{
    return strcpy(to, from) + strlen(from);
}

#define mkdir(path, mode) ((void)(mode), (mkdir)(path))

static inline char *mkdtemp(char *path)
{
    return _mktemp(path) && mkdir(path, 0700) == 0 ? path : NULL;
}

/* Memory for free, aligned to 16 bytes: that of _aligned_malloc is not for free. */
#define aligned_alloc(alignment, n) ((void)(alignment), malloc(n))

#endif
