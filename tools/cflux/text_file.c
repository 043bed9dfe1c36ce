/* text_file.c: writes a text file completely or not at all: see text_file.h. */
#include "text_file.h"
#include "failure.h"
#include "system.h"
#include <errno.h>
#include <string.h>

int text_file_open(text_file *f, const char *path)
{
    *f = (text_file){.to = stdout, .path = path};
    if (!path)
        return EXIT_FINE;
    /* A link is written through, because /dev/stdout must not be replaced by a file. */
    const path_kind kind = kind_without_links(path);
    const bool regular = kind == PATH_ABSENT || kind == PATH_FILE;
    if (strlen(path) + 24 > sizeof f->beside)
        return fail(EXIT_BAD_INPUT, "%.40s…: %s", path, strerror(ENAMETOOLONG));
    if (regular)
        snprintf(f->beside, sizeof f->beside, "%s.%ld", path, process_number());
    f->to = open_file(regular ? f->beside : path, "w");
    return f->to ? EXIT_FINE : fail(EXIT_BAD_INPUT, "%s: %s", path, strerror(errno));
}

/* Makes the new name survive a power failure. */
static bool sync_folder_of(const char *path)
{
    char folder[FILE_PATH_BYTES];
    const char *slash = strrchr(path, '/');
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) + 1 : 1,
             slash ? path : ".");
    return sync_folder(folder);
}

/* Writes everything to the disk and closes the file; on failure errno gives the reason. */
static bool finish(text_file *f)
{
    bool good = flush_stream(f->to);
    good = good && (!*f->beside || sync_stream(f->to));
    const int why = errno;
    const bool closed = fclose(f->to) == 0;
    if (!good)
        errno = why;
    return good && closed;
}

int text_file_close(text_file *f, int status)
{
    if (!f->path)
        return status;
    const bool old = kind_of_path(f->path) != PATH_ABSENT;
    bool good = finish(f), named = false;
    if (good && status == EXIT_FINE && *f->beside) {
        named = replace_file(f->beside, f->path);
        good = named && sync_folder_of(f->path);
    }
    const int why = errno;
    if (*f->beside && !named)
        remove_file(f->beside);
    if (status != EXIT_FINE || good)
        return status;
    return fail(EXIT_FAILED, "%s: %s%s", f->path, strerror(why),
                named ? "; the new file is in place but may not survive a power failure"
                : old && *f->beside ? "; the old file is unchanged"
                                    : "");
}
