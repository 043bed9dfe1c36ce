/* fuzz_one.c: passes one input to one reader, and checks the bounds for it.
 *
 * Files are a piece of memory with a name (memfd), so that nothing is written to a disk; the name
 * is a link with the extension that the reader looks at. Time is processor time, which other
 * programs on the machine do not change much.
 */
#include "fuzz_target.h"

#include "memory.h"

#include <cflux.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

enum { LONGEST = 1 << 16, SLACK = 16 << 20, PATH_BYTES = 512 };
static const fuzz_target *running;
static size_t input_size;
static size_t reading_peak; /* of the heap, before the result was printed; 0: not reached yet */
static char folder[PATH_BYTES / 2], path[PATH_BYTES];
static int file = -1;

const fuzz_target *fuzz_target_named(const char *name)
{
    for (int i = 0; i < fuzz_target_count; i++)
        if (strcmp(fuzz_targets[i].name, name) == 0)
            return &fuzz_targets[i];
    return NULL;
}

size_t fuzz_longest(const fuzz_target *target)
{
    return target->longest ? target->longest : LONGEST;
}

const char *fuzz_seed_folder(const fuzz_target *target, int i)
{
    static char found[PATH_BYTES];
    const char *data = getenv("CFLUX_DATA");
    struct stat info;
    for (int k = -1; k < FUZZ_SEED_FOLDERS; k++) {
        if (k >= 0 && (!data || !target->seeds[k]))
            continue;
        snprintf(found, sizeof found, "%s/%s", k < 0 ? FUZZ_CORPUS_DIR : data,
                 k < 0 ? target->name : target->seeds[k]);
        if (stat(found, &info) == 0 && S_ISDIR(info.st_mode) && i-- == 0)
            return found;
    }
    return NULL;
}

void fuzz_expect(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "fuzz: %s, input of %zu bytes: %s\n", running->name, input_size, what);
    abort();
}

void fuzz_outcome(void *object)
{
    char text[256];
    reading_peak = reading_peak ? reading_peak : fuzz_heap_peak();
    const fx_error e = fx_error_take();
    fuzz_expect(fx_is_error(object) == (e.status != FX_OK), "an error and its record go together");
    fuzz_expect(e.status == FX_OK || (e.op[0] && e.message[0]), "a record says what is wrong");
    fuzz_expect(e.status != FX_STATUS_INTERNAL, e.message);
    fuzz_expect(e.status != FX_STATUS_MEMORY || running->memory_limit, e.message);
    if (!fx_is_error(object))
        fx_show_text(object, text, sizeof text);
    const fx_status shown = fx_error_take().status;
    fuzz_expect(shown == FX_OK || (running->memory_limit && shown == FX_STATUS_MEMORY),
                "what was read can be shown");
}

/* ---- the file -------------------------------------------------------------------------------- */

static void remove_folder(void)
{
    unlink(path);
    rmdir(folder);
}

static void make_file(const char *extension)
{
    char source[64];
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/cflux-fuzz-XXXXXX", base && *base ? base : P_tmpdir);
    file = memfd_create("input", MFD_CLOEXEC);
    if (file < 0 || !mkdtemp(folder)) {
        perror("fuzz: a file for the input");
        exit(2);
    }
    snprintf(source, sizeof source, "/proc/self/fd/%d", file);
    snprintf(path, sizeof path, "%s/input%s", folder, extension);
    if (symlink(source, path) != 0) {
        perror(path);
        exit(2);
    }
    atexit(remove_folder);
}

static void write_file(const unsigned char *data, size_t n)
{
    if (ftruncate(file, 0) != 0 || pwrite(file, data, n, 0) != (ssize_t)n) {
        perror("fuzz: the input's file");
        exit(2);
    }
}

/* The decompressed size of a gzip file, plus three times as much for arrays of wider elements and
 * their text. */
static size_t measured_by(const fuzz_target *target, const unsigned char *data, size_t n)
{
    static unsigned char out[1 << 16];
    if (!target->gzip || n < 2 || data[0] != 0x1F || data[1] != 0x8B)
        return n;
    z_stream z = {.next_in = (z_const Bytef *)(uintptr_t)data, .avail_in = (uInt)n};
    if (inflateInit2(&z, 16 + MAX_WBITS) != Z_OK)
        return n;
    do {
        z.next_out = out;
        z.avail_out = sizeof out;
    } while (inflate(&z, Z_NO_FLUSH) == Z_OK);
    const size_t size = z.total_out;
    inflateEnd(&z);
    return n + 3 * size;
}

/* ---- one input ------------------------------------------------------------------------------- */

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Checks that the heap is counted, including that of libraries (zlib allocates its state). At least
 * half of the block must be counted: a thread of libFuzzer may free memory at the same time.
 */
static void check_heap(void)
{
    static bool checked;
    z_stream z = {0};
    if (checked)
        return;
    checked = true;
    fuzz_heap_begin();
    void *volatile block = malloc(1 << 20);
    free(block);
    fuzz_expect(fuzz_heap_peak() >= 1 << 19, "the heap is not counted");
    fuzz_heap_begin();
    fuzz_expect(inflateInit2(&z, MAX_WBITS) == Z_OK && fuzz_heap_peak() > 1 << 12,
                "the heap of libraries is not counted");
    inflateEnd(&z);
    fuzz_heap_begin();
    fuzz_expect(fuzz_heap_peak() == 0, "what is freed is counted");
}

static void read_input(const fuzz_target *target, const unsigned char *data, size_t n)
{
    FX_SCOPE;
    if (target->load) {
        fuzz_outcome(target->load(path));
        return;
    }
    char *text = malloc(n + 1);
    fuzz_expect(text != NULL, "out of memory for the text");
    memcpy(text, data, n);
    text[n] = 0;
    target->read(text, n);
    free(text);
}

void fuzz_one(const fuzz_target *target, const unsigned char *data, size_t n)
{
    static const unsigned char none[1];
    char what[96];
    running = target;
    input_size = n;
    reading_peak = 0;
    check_heap();
    fx_set_memory_limit(fx_cpu_device(), target->memory_limit);
    if (target->load && file < 0)
        make_file(target->extension);
    if (target->load)
        write_file(n ? data : none, n);
    const size_t each = target->heap_per_byte ? target->heap_per_byte : 2;
    const size_t measure = measured_by(target, data, n);
    const size_t allowed = each * measure + SLACK;
    const double allowed_time = 1 + (double)measure / LONGEST;
    fxi_memory_reclaim();
    fuzz_heap_begin();
    const double start = seconds();
    read_input(target, n ? data : none, n);
    const double took = seconds() - start;
    const size_t peak = reading_peak ? reading_peak : fuzz_heap_peak();
    snprintf(what, sizeof what, "took %.2f s, more than %.2f", took, allowed_time);
    fuzz_expect(took <= allowed_time, what);
    snprintf(what, sizeof what, "took %zu bytes of heap, more than %zu", peak, allowed);
    fuzz_expect(peak <= allowed, what);
}
