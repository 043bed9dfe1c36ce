/* timeline.c: see timeline.h.
 *
 * Each event is a line, so all complete lines can be read after a crash. The times come from a
 * clock that never goes back. Its distance from the time of day is measured once, when the file is
 * opened, and added. So the files of several machines can be joined, as exactly as their clocks
 * agree.
 */
#include "timeline.h"

#include "c_text.h"
#include "clock.h"
#include "files.h"
#include "launcher.h"
#include "thread.h"
#include "this_process.h"

#include <cflux/base.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static fxi_mutex lock = FXI_MUTEX_INIT; /* protects the variables below */
static FILE *file;
static long process; /* that opened the file; atomic */
static int rank, threads;
static int64_t since_1970; /* to add to the clock */

enum { UNKNOWN, OFF, ON };
static int state; /* atomic */

static void name_row(int row, const char *name)
{
    fprintf(file,
            ",{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":\"%"
            "s\"}}\n",
            rank, row, name);
}

/* The child of a fork must not write to the file. It must not even wait for the lock, which another
 * thread of its parent may have held. */
static bool is_ours(void)
{
    return __atomic_load_n(&process, __ATOMIC_RELAXED) == fxi_process_id();
}

/* At the end of the process. A file without the bracket can still be shown. */
static void finish(void)
{
    if (!is_ours())
        return;
    fxi_mutex_lock(&lock);
    if (file) {
        fputs("]\n", file);
        fclose(file);
        file = NULL;
        __atomic_store_n(&state, OFF, __ATOMIC_RELEASE);
    }
    fxi_mutex_unlock(&lock);
}

static fxi_exit_handler at_exit = {.run = finish};

/* The file of this process; false if the user asked for none. */
static bool wanted_path(char *path, size_t size)
{
    int n;
    const char *wanted = fxi_trusted_variable("FX_TIMELINE");
    if (!wanted || !*wanted)
        return false;
    fxi_launcher_of_process(&n);
    rank = fxi_launcher_rank();
    if (n > 1)
        snprintf(path, size, "%s.%d", wanted, rank);
    else
        snprintf(path, size, "%s", wanted);
    return true;
}

/* With the lock held. False: errno tells why. */
static bool opened(const char *path)
{
    file = fxi_os_open_stream(path, "w");
    if (!file)
        return false;
    /* Each line is written at once: events of a process that is killed are kept, and the child of a
     * fork has no buffered events to write when it ends. */
    setvbuf(file, NULL, _IOLBF, BUFSIZ);
    __atomic_store_n(&process, fxi_process_id(), __ATOMIC_RELAXED);
    since_1970 = fxi_clock_since_1970() - fxi_clock_nanoseconds();
    fprintf(
        file,
        "[\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":\"rank %d\"}}\n",
        rank, rank);
    name_row(0, "communication");
    fxi_process_on_exit(&at_exit);
    return true;
}

/* Called until the state is known. Not part of fxi_timeline_on, which every step of a plan calls:
 * there, clearing the path cost 900 instructions in each call. */
static bool decide(void)
{
    char path[FXI_PATH_MOST] = "";
    int why = 0, decided;
    fxi_mutex_lock(&lock);
    if (state == UNKNOWN) {
        const bool wanted = wanted_path(path, sizeof path), on = wanted && opened(path);
        why = wanted && !on ? errno : 0;
        __atomic_store_n(&state, on ? ON : OFF, __ATOMIC_RELEASE);
    }
    decided = state;
    fxi_mutex_unlock(&lock);
    if (why) /* without the lock: a program's hook may evaluate arrays */
        fx_message(1, "FX_TIMELINE: cannot create %s: %s", path, strerror(why));
    return decided == ON;
}

bool fxi_timeline_on(void)
{
    const int now = __atomic_load_n(&state, __ATOMIC_ACQUIRE);
    return now == UNKNOWN ? decide() : now == ON;
}

int64_t fxi_timeline_now(void)
{
    return fxi_timeline_on() ? fxi_clock_nanoseconds() : 0;
}

void fxi_timeline_event(fxi_row row, const char *kind, const char *name, int64_t begin)
{
    static _Thread_local int own; /* the number of the thread, from 1 */
    const int64_t end = begin ? fxi_clock_nanoseconds() : 0;
    if (begin == 0 || !is_ours())
        return;
    fxi_mutex_lock(&lock);
    if (file) {
        if (row == FXI_ROW_THREAD && own == 0) {
            char text[32];
            own = ++threads;
            snprintf(text, sizeof text, "thread %d", own);
            name_row(own, text);
        }
        char times[80]; /* in microseconds */
        fxi_snprintf(times, sizeof times, "\"ts\":%.3f,\"dur\":%.3f",
                     1e-3 * (double)(begin + since_1970), 1e-3 * (double)(end - begin));
        fprintf(file, ",{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"X\",%s,\"pid\":%d,\"tid\":%d}\n",
                name, kind, times, rank, row == FXI_ROW_THREAD ? own : 0);
    }
    fxi_mutex_unlock(&lock);
}
