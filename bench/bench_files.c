/* bench_files.c: measures files of half a gigabyte, compared with what the operating system does
 * with the same bytes.
 *
 * The library and the system are measured alternately, on files in the system's page cache. Only
 * writing uses the disk, which other programs use too, so the rows that compare are medians of the
 * ratios of neighbouring measurements. Reading copies every array to the program's memory, compared
 * with read(2) of the file into the same memory. Saving ends when everything is on the disk,
 * compared with `cp` of the file and `sync` of the copy. The files are in TMPDIR; rows are skipped
 * if it has too little free space.
 */
#include "bench.h"

#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ARRAYS = 50, ROWS = 1000, COLUMNS = 2500, ROUNDS = 9, MIB = 1 << 20 };
static const size_t ARRAY_BYTES = sizeof(float) * ROWS * COLUMNS; /* 10 MB */
static const char NO_DISK_SPACE[] =
    "the disk has less than 2 GB free: set TMPDIR to a folder on another disk";

typedef struct files {
    char folder[PATH_MAX - 40], saved[PATH_MAX], copy[PATH_MAX];
    void *model; /* a tuple of arrays */
    char *buffer;
} files;

/* ---- the files ------------------------------------------------------------------------------- */

static bool has_disk_space(const char *folder)
{
    struct statvfs disk;
    const double needed = 4.0 * ARRAYS * (double)ARRAY_BYTES; /* new files beside old ones */
    return statvfs(folder, &disk) == 0 && (double)disk.f_bavail * (double)disk.f_frsize >= needed;
}

static fx_status io_failure(const char *what)
{
    return fx_fail(FX_STATUS_IO, "bench", "%s", what);
}

static void make_model(files *f)
{
    FX_SCOPE;
    void *arrays[ARRAYS];
    for (int i = 0; i < ARRAYS; i++)
        arrays[i] = fx_rand(ROWS, COLUMNS);
    fx_set(&f->model, fxi_tuple(ARRAYS, arrays));
    fx_eval(f->model);
}

/* FX_STATUS_UNSUPPORTED if there is too little disk space; then nothing is recorded. */
static fx_status open_files(files *f)
{
    const char *base = getenv("TMPDIR");
    base = base && *base ? base : "/tmp";
    *f = (files){.model = NULL};
    if (!has_disk_space(base))
        return FX_STATUS_UNSUPPORTED;
    snprintf(f->folder, sizeof f->folder, "%s/cflux-bench-XXXXXX", base);
    if (!mkdtemp(f->folder))
        return io_failure("no folder for files");
    snprintf(f->saved, sizeof f->saved, "%s/saved.safetensors", f->folder);
    snprintf(f->copy, sizeof f->copy, "%s/copy.safetensors", f->folder);
    f->buffer = malloc(ARRAY_BYTES);
    if (!f->buffer)
        return fx_fail(FX_STATUS_MEMORY, "bench", "no memory");
    memset(f->buffer, 1, ARRAY_BYTES);
    make_model(f);
    return fx_save(f->saved, "m", f->model);
}

static void close_files(files *f)
{
    fx_set(&f->model, NULL);
    free(f->buffer);
    unlink(f->saved);
    unlink(f->copy);
    rmdir(f->folder);
}

/* ---- measured actions: seconds, negative on failure ------------------------------------------ */

static double open_mapped(files *f)
{
    const double start = bench_now();
    FX_SCOPE;
    return fx_is_error(fx_load(f->saved)) ? -1 : bench_now() - start;
}

static double read_mapped(files *f)
{
    const double start = bench_now();
    FX_SCOPE;
    void *file = fx_load(f->saved);
    bool good = !fx_is_error(file) && fx_count(file) == ARRAYS;
    for (int i = 0; good && i < ARRAYS; i++)
        good = fx_read_into(fx_child(file, i), f->buffer, ARRAY_BYTES) == FX_OK;
    return good ? bench_now() - start : -1;
}

static double read_plainly(files *f)
{
    const double start = bench_now();
    const int fd = open(f->saved, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : 1;
    size_t all = 0;
    while (got > 0) {
        got = read(fd, f->buffer, ARRAY_BYTES);
        all += got > 0 ? (size_t)got : 0;
    }
    if (fd >= 0)
        close(fd);
    return got == 0 && all > ARRAYS * ARRAY_BYTES ? bench_now() - start : -1;
}

static double save(files *f)
{
    const double start = bench_now();
    return fx_save(f->saved, "m", f->model) == FX_OK ? bench_now() - start : -1;
}

static bool ran(const char *const *command)
{
    extern char **environ;
    pid_t child;
    int how;
    return posix_spawnp(&child, command[0], NULL, NULL, (char *const *)(uintptr_t)command,
                        environ) == 0 &&
           waitpid(child, &how, 0) == child && WIFEXITED(how) && WEXITSTATUS(how) == 0;
}

static double copy_and_sync(files *f)
{
    const double start = bench_now();
    return ran((const char *const[]){"cp", f->saved, f->copy, NULL}) &&
                   ran((const char *const[]){"sync", f->copy, NULL})
               ? bench_now() - start
               : -1;
}

/* ---- rows ------------------------------------------------------------------------------------ */

typedef double (*action)(files *f);
typedef enum what { OPEN, READ, READ_BY_READ, SAVE, SAVE_BY_CP } what;
static const struct {
    action ours, peer; /* with a peer the row is the peer's time divided by the library's */
} actions[] = {[OPEN] = {open_mapped, NULL},
               [READ] = {read_mapped, NULL},
               [READ_BY_READ] = {read_mapped, read_plainly},
               [SAVE] = {save, NULL},
               [SAVE_BY_CP] = {save, copy_and_sync}};

/* The first round warms up. */
static bool measure_rounds(files *f, what w, bench_row *out)
{
    double values[ROUNDS];
    for (int i = -1; i < ROUNDS; i++) {
        const double own = actions[w].ours(f);
        const double other = actions[w].peer ? actions[w].peer(f) : 0;
        if ((own < 0 || other < 0) && fx_error_status() == FX_OK)
            io_failure("a file cannot be read or written");
        if (own < 0 || other < 0)
            return false;
        if (i >= 0)
            values[i] = actions[w].peer ? other / own : 1e6 * own;
    }
    bench_row_of(values, ROUNDS, actions[w].peer ? "times" : "us", out);
    return true;
}

/* flag: the value of `what`. */
static bool measure(const bench_case *c, bench_row *out)
{
    files f;
    const fx_status opened = open_files(&f);
    if (opened == FX_STATUS_UNSUPPORTED)
        out->skipped = NO_DISK_SPACE;
    const bool good = opened == FX_OK && measure_rounds(&f, (what)c->flag, out);
    close_files(&f);
    return good || out->skipped;
}

/* The autoencoder of Flux's model zoo, 3 MB. */
static const char ZOO[] =
    "flux-bson/FluxML__model-zoo__vision.vae_mnist.output.model__b14376d.bson";

static void load_zoo(bench_state *s)
{
    FX_SCOPE;
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", getenv("CFLUX_DATA"), ZOO);
    (void)s;
    fx_load(path);
}

static bool measure_zoo(const bench_case *c, bench_row *out)
{
    bench_state s = {.which = c};
    if (!getenv("CFLUX_DATA")) {
        out->skipped = "CFLUX_DATA is not set: it names the folder of the recorded files";
        return true;
    }
    bench_sample(load_zoo, &s, out);
    return true;
}

const bench_case bench_files[] = {
    {.name = "files/safetensors-500MB-open", .measure = measure, .flag = OPEN},
    {.name = "files/safetensors-500MB-read", .measure = measure, .flag = READ},
    {.name = "files/safetensors-500MB-read-by-plain", .measure = measure, .flag = READ_BY_READ},
    {.name = "files/safetensors-500MB-save", .measure = measure, .flag = SAVE},
    {.name = "files/safetensors-500MB-save-by-cp", .measure = measure, .flag = SAVE_BY_CP},
    {.name = "files/bson-3MB-load", .measure = measure_zoo},
    {.name = NULL},
};
