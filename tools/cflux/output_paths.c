/* output_paths.c: see output_paths.h. */
#include "output_paths.h"
#include "failure.h"
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void folder_of(const char *path, char folder[PATH_MAX])
{
    const char *slash = strrchr(path, '/');
    snprintf(folder, PATH_MAX, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
}

/* The path without links and dots; of a file that is not there, its folder's and its name. */
static bool resolve(const char *path, char out[PATH_MAX])
{
    char folder[PATH_MAX], whole[PATH_MAX];
    if (realpath(path, out))
        return true;
    folder_of(path, folder);
    const char *slash = strrchr(path, '/');
    if (!realpath(folder, whole))
        return false;
    const int n = snprintf(out, PATH_MAX, "%s/%s", whole, slash ? slash + 1 : path);
    return n > 0 && n < PATH_MAX;
}

/* A file that is there and is none, such as /dev/null, is written to as it is; others are made
 * beside the old one, where a link leads. */
static int check_place(const output_path *o)
{
    char whole[PATH_MAX], folder[PATH_MAX];
    struct stat s;
    const bool there = stat(o->path, &s) == 0;
    if (there && S_ISDIR(s.st_mode))
        return fail(EXIT_BAD_INPUT, "%s %s: it is a folder", o->name, o->path);
    folder_of(there && realpath(o->path, whole) ? whole : o->path, folder);
    const bool good = there && !S_ISREG(s.st_mode) ? access(o->path, W_OK) == 0
                                                   : access(folder, W_OK | X_OK) == 0;
    if (good)
        return EXIT_FINE;
    return errno == ENOENT
               ? fail(EXIT_BAD_INPUT, "%s %s: there is no folder %s", o->name, o->path, folder)
               : fail(EXIT_BAD_INPUT, "%s %s: %s", o->name, o->path, strerror(errno));
}

static bool is_same_file(const char *a, const char *b)
{
    char whole[2][PATH_MAX];
    struct stat s;
    if (!a || !b || (stat(a, &s) == 0 && !S_ISREG(s.st_mode)))
        return false;
    return resolve(a, whole[0]) && resolve(b, whole[1]) && strcmp(whole[0], whole[1]) == 0;
}

/* "-" is what standard input was opened from. A name such as that of a column is no file. */
static bool is_read(const char *output, const char *input)
{
    const char *from = input && strcmp(input, "-") == 0 ? "/dev/stdin" : input;
    return from && access(from, F_OK) == 0 && is_same_file(output, from);
}

int check_outputs(const output_path *outputs, int n, const char *const *inputs, int ninputs)
{
    int status = EXIT_FINE;
    for (int i = 0; i < n && status == EXIT_FINE; i++) {
        const output_path *o = &outputs[i];
        status = o->path ? check_place(o) : EXIT_FINE;
        for (int k = 0; k < i && status == EXIT_FINE; k++)
            if (is_same_file(o->path, outputs[k].path))
                status = fail(EXIT_BAD_INPUT, "%s and %s are one file, %s", outputs[k].name,
                              o->name, o->path);
        for (int k = 0; k < ninputs && status == EXIT_FINE; k++)
            if (is_read(o->path, inputs[k]))
                status = fail(EXIT_BAD_INPUT, "%s %s is a file that is read", o->name, o->path);
    }
    return status;
}
