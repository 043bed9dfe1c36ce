/* text_file.c: see text_file.h. */
#include "text_file.h"
#include "failure.h"
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int text_file_open(text_file *f, const char *path)
{
    struct stat s;
    *f = (text_file){.to = stdout, .path = path};
    if (!path)
        return EXIT_FINE;
    /* A link is written through: /dev/stdout must not be replaced by a file. */
    const bool regular = lstat(path, &s) != 0 || S_ISREG(s.st_mode);
    if (strlen(path) + 24 > sizeof f->beside)
        return fail(EXIT_BAD_INPUT, "%.40s…: %s", path, strerror(ENAMETOOLONG));
    if (regular)
        snprintf(f->beside, sizeof f->beside, "%s.%ld", path, (long)getpid());
    f->to = fopen(regular ? f->beside : path, "w");
    return f->to ? EXIT_FINE : fail(EXIT_BAD_INPUT, "%s: %s", path, strerror(errno));
}

int text_file_close(text_file *f, int status)
{
    if (!f->path)
        return status;
    bool good = fflush(f->to) == 0 && !ferror(f->to);
    good = good && (!*f->beside || fsync(fileno(f->to)) == 0);
    int why = errno;
    if (fclose(f->to) != 0 && good) {
        good = false;
        why = errno;
    }
    if (good && status == EXIT_FINE && *f->beside && rename(f->beside, f->path) != 0) {
        good = false;
        why = errno;
    }
    if (*f->beside && (!good || status != EXIT_FINE))
        unlink(f->beside);
    return status != EXIT_FINE || good ? status
                                       : fail(EXIT_FAILED, "%s: %s", f->path, strerror(why));
}
