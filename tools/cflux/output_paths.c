/* output_paths.c: checks output paths before a command begins: see output_paths.h. */
#include "output_paths.h"
#include "failure.h"
#include "system.h"
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static void folder_of(const char *path, char folder[FILE_PATH_BYTES])
{
    const char *slash = strrchr(path, '/');
    snprintf(folder, FILE_PATH_BYTES, "%.*s", slash ? (int)(slash - path) + 1 : 1,
             slash ? path : ".");
}

/* The path without links and dots. If the file does not exist: its resolved folder and its name. */
static bool resolve(const char *path, char out[FILE_PATH_BYTES])
{
    char folder[FILE_PATH_BYTES], whole[FILE_PATH_BYTES];
    if (real_path(path, out))
        return true;
    folder_of(path, folder);
    const char *slash = strrchr(path, '/');
    if (!real_path(folder, whole))
        return false;
    const int n = snprintf(out, FILE_PATH_BYTES, "%s/%s", whole, slash ? slash + 1 : path);
    return n > 0 && n < FILE_PATH_BYTES;
}

/* Checks that an output can be written. Devices and pipes such as /dev/null are written directly.
 * Other files are made beside the existing one and replace it; for a link, beside its target. */
static int check_path(const output_path *o)
{
    char whole[FILE_PATH_BYTES], folder[FILE_PATH_BYTES];
    const path_kind kind = kind_of_path(o->path);
    if (!*o->path)
        return fail(EXIT_BAD_INPUT, "%s: the path is empty", o->name);
    if (kind == PATH_FOLDER)
        return fail(EXIT_BAD_INPUT, "%s %s is a folder, not a file", o->name, o->path);
    folder_of(kind != PATH_ABSENT && real_path(o->path, whole) ? whole : o->path, folder);
    const bool as_it_is = kind == PATH_DEVICE || kind == PATH_OTHER;
    const bool good = as_it_is ? may_write(o->path) : may_make_files_in(folder);
    if (good)
        return EXIT_FINE;
    return errno == ENOENT
               ? fail(EXIT_BAD_INPUT, "%s %s: there is no folder %s", o->name, o->path, folder)
               : fail(EXIT_BAD_INPUT, "%s %s: %s", o->name, o->path, strerror(errno));
}

static bool is_same_file(const char *a, const char *b)
{
    char whole[2][FILE_PATH_BYTES];
    const path_kind kind = a && b ? kind_of_path(a) : PATH_OTHER;
    if (kind != PATH_ABSENT && kind != PATH_FILE)
        return false;
    return resolve(a, whole[0]) && resolve(b, whole[1]) && strcmp(whole[0], whole[1]) == 0;
}

/* True if the output is also an input. "-" is standard input. An input that is not a file, such as
 * a column name, never matches. */
static bool is_read(const char *output, const char *input)
{
    const char *from = input && strcmp(input, "-") == 0 ? "/dev/stdin" : input;
    return from && kind_of_path(from) != PATH_ABSENT && is_same_file(output, from);
}

int check_outputs(const output_path *outputs, int n, const char *const *inputs, int ninputs)
{
    int status = EXIT_FINE;
    for (int i = 0; i < n && status == EXIT_FINE; i++) {
        const output_path *o = &outputs[i];
        status = o->path ? check_path(o) : EXIT_FINE;
        for (int k = 0; k < i && status == EXIT_FINE; k++)
            if (is_same_file(o->path, outputs[k].path))
                status = fail(EXIT_BAD_INPUT, "%s and %s are the same file, %s", outputs[k].name,
                              o->name, o->path);
        for (int k = 0; k < ninputs && status == EXIT_FINE; k++)
            if (is_read(o->path, inputs[k]))
                status = fail(EXIT_BAD_INPUT, "%s %s is also an input file", o->name, o->path);
    }
    return status;
}
