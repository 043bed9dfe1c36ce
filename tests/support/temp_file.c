/* temp_file.c: small files for tests: see temp_file.h. The folder is made at first use; its files
 * are listed by name. */
#include "temp_file.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

enum { MOST_FILES = 256, PATH_BYTES = 512 };
static char folder[PATH_BYTES];
static char *paths[MOST_FILES];
static int npaths;
static pid_t owner; /* process that made the folder: children of a fork do not remove it */

static void give_up(const char *what)
{
    fprintf(stderr, "temporary files: ");
    perror(what);
    exit(2);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *place)
{
    (void)st;
    (void)type;
    (void)place;
    return remove(path);
}

/* Runs at the end of the program. Also removes files that other code wrote there. */
static void remove_all(void)
{
    if (getpid() == owner)
        nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static const char *remember(const char *name)
{
    if (!folder[0]) {
        const char *base = getenv("TMPDIR");
        snprintf(folder, sizeof folder, "%s/cflux-XXXXXX", base && *base ? base : P_tmpdir);
        if (!mkdtemp(folder))
            give_up(folder);
        owner = getpid();
        if (atexit(remove_all) != 0)
            give_up("atexit");
    }
    char path[2 * PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    for (int i = 0; i < npaths; i++)
        if (strcmp(paths[i], path) == 0)
            return paths[i];
    char *copy = npaths < MOST_FILES ? strdup(path) : NULL;
    if (!copy)
        give_up(path);
    return paths[npaths++] = copy;
}

const char *temp_file(const char *name, const void *data, size_t n)
{
    const char *path = remember(name);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, n, f) != n || fclose(f) != 0)
        give_up(path);
    return path;
}

const char *temp_text(const char *name, const char *text)
{
    return temp_file(name, text, strlen(text));
}

const char *temp_gzip(const char *name, const void *data, size_t n)
{
    const char *path = remember(name);
    gzFile f = gzopen(path, "wb6");
    if (!f || (n && gzwrite(f, data, (unsigned)n) != (int)n) || gzclose(f) != Z_OK)
        give_up(path);
    return path;
}

const char *recorded_path(const char *rest)
{
    static char path[1024];
    const char *base = getenv("CFLUX_DATA");
    if (!base || !*base)
        return NULL;
    snprintf(path, sizeof path, "%s/%s", base, rest);
    return access(path, R_OK) == 0 ? path : NULL;
}
