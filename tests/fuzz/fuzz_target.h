/* fuzz_target.h: the readers that get damaged input, and the requirements for every input: no
 * crash, no more processor time than a second and one for every 64 KiB of the input, no more heap
 * than 16 MiB and a few bytes for each of the input (two, unless its row says more), and an error
 * object exactly when there is a record.
 *
 * Two programs run them: libFuzzer's (clang, guided by coverage), and one for any compiler that
 * replays the seeds and then changes them at random. A new reader is one row in fuzz_targets.c.
 */
#ifndef CFLUX_FUZZ_TARGET_H
#define CFLUX_FUZZ_TARGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FUZZ_SEED_FOLDERS = 4 };

typedef struct fuzz_target {
    const char *name; /* its seeds are in corpus/NAME/ */
    /* Exactly one is set: the function that reads a file, whose path has the extension, or a text.
     */
    void *(*load)(const char *path);
    void (*read)(const char *text, size_t n); /* terminated; n without the terminator */
    const char *extension;
    const char *seeds[FUZZ_SEED_FOLDERS]; /* further folders of seeds, in CFLUX_DATA */
    bool gzip;      /* reads compressed files: the bound of the heap counts decompressed bytes */
    size_t longest; /* input; default 64 KiB */
    size_t heap_per_byte; /* that a reader may take; default 2 */
    int64_t memory_limit; /* of arrays; larger objects are read but not printed. 0: none */
} fuzz_target;

extern const fuzz_target fuzz_targets[];
extern const int fuzz_target_count;
const fuzz_target *fuzz_target_named(const char *name); /* NULL: there is none */
size_t fuzz_longest(const fuzz_target *target);

/* The i-th folder of seeds that exists; NULL at the end. Valid until the next call. */
const char *fuzz_seed_folder(const fuzz_target *target, int i);

/* Runs one input. If a requirement fails, prints a line to stderr and aborts. */
void fuzz_one(const fuzz_target *target, const unsigned char *data, size_t n);
/* The same check for targets of texts. */
void fuzz_expect(bool holds, const char *what);
/* Checks the result of a reader: an error object with a record, or an object without one, which is
 * then printed. */
void fuzz_outcome(void *object);

/* ---- the heap of the process (fuzz_heap.c) --------------------------------------------------- */
void fuzz_heap_begin(void);
size_t fuzz_heap_peak(void); /* the peak since then, minus the heap at that time */

#endif
