/* join_timelines.c: see join_timelines.h. */
#include "join_timelines.h"
#include "failure.h"
#include "system.h"
#include <errno.h>
#include <string.h>

/* The file to which the library writes the events of a process (src/base/timeline.c). */
static void part_path(const char *timeline, int64_t rank, char path[FILE_PATH_BYTES])
{
    snprintf(path, FILE_PATH_BYTES, "%s.%lld", timeline, (long long)rank);
}

/* Copies the complete events of a process: a process that was killed may have written half a line.
 * Returns their number; −1: there is no file. */
static int64_t copy_events(const char *path, bool first, FILE *out)
{
    char text[1000];
    int64_t n = 0;
    FILE *in = open_file(path, "r");
    if (!in)
        return -1;
    while (fgets(text, sizeof text, in)) {
        const char *event = text + (*text == ',');
        const size_t end = strcspn(event, "\n");
        if (*event != '{' || end < 2 || event[end] != '\n' || event[end - 1] != '}')
            continue;
        fprintf(out, "%s%.*s\n", first && n == 0 ? "" : ",", (int)end, event);
        n++;
    }
    fclose(in);
    return n;
}

int join_timelines(const char *timeline, int64_t processes)
{
    char path[FILE_PATH_BYTES];
    int64_t all = 0, missing = 0;
    if (processes == 1)
        return EXIT_FINE;
    FILE *out = open_file(timeline, "w");
    if (!out)
        return fail(EXIT_FAILED, "cannot write %s: %s", timeline, strerror(errno));
    fputs("[\n", out);
    for (int64_t k = 0; k < processes; k++) {
        part_path(timeline, k, path);
        const int64_t n = copy_events(path, all == 0, out);
        all += n > 0 ? n : 0;
        missing += n < 0;
    }
    fputs("]\n", out);
    if (ferror(out) | fclose(out))
        return fail(EXIT_FAILED, "cannot write %s: %s", timeline, strerror(errno));
    for (int64_t k = 0; k < processes; k++) {
        part_path(timeline, k, path);
        remove_file(path);
    }
    if (missing)
        return fail(EXIT_FAILED,
                    "%s has no events of %lld of %lld processes: on several machines, its folder "
                    "must be shared",
                    timeline, (long long)missing, (long long)processes);
    return EXIT_FINE;
}
