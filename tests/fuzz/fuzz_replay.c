/* fuzz_replay.c: fuzzes the readers, with any compiler.
 *
 *   fuzz_runner TARGET [--rounds N | --seconds N] [--seed N] [FILE or FOLDER]…
 *
 * Reads every seed, then seeds with random changes, the same ones for the same --seed. If an input
 * ends the program, it is written to TARGET.input in the current folder.
 */
#include "fuzz_target.h"

#include <cflux.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MOST_SEEDS = 4096, MOST_BYTES = 1 << 22, EDITS = 6, PATH_BYTES = 1024 };

typedef struct seed {
    unsigned char *data;
    size_t n;
} seed;
static seed seeds[MOST_SEEDS];
static int nseeds;

static const fuzz_target *target;
static const unsigned char *current;
static size_t current_size;

/* ---- seeds ----------------------------------------------------------------------------------- */

static void add_path(const char *path);

static void add_folder(const char *path)
{
    char inside[PATH_BYTES];
    struct dirent **entries;
    const int n = scandir(path, &entries, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        if (entries[i]->d_name[0] != '.') {
            snprintf(inside, sizeof inside, "%s/%s", path, entries[i]->d_name);
            add_path(inside);
        }
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
}

static void add_path(const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0) {
        perror(path);
        exit(2);
    }
    if (S_ISDIR(info.st_mode)) {
        add_folder(path);
        return;
    }
    FILE *f = fopen(path, "rb");
    const size_t capacity = info.st_size < MOST_BYTES ? (size_t)info.st_size : MOST_BYTES;
    unsigned char *data = malloc(capacity + 1);
    if (!f || !data || nseeds == MOST_SEEDS) {
        perror(path);
        exit(2);
    }
    seeds[nseeds++] = (seed){data, fread(data, 1, capacity, f)};
    fclose(f);
}

/* ---- changes --------------------------------------------------------------------------------- */

static uint64_t random_state;

static size_t below(size_t n) /* xorshift64* (Marsaglia, 2003; Vigna, 2016) */
{
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return n ? (size_t)((random_state * 0x2545F4914F6CDD1Du) >> 11) % n : 0;
}

static void put_number(unsigned char *at, size_t capacity)
{
    static const int64_t values[] = {
        0,     1,     -1,        2,         127,        128,       255,       256,     32767,
        65535, 65536, INT32_MAX, INT32_MIN, UINT32_MAX, INT64_MAX, INT64_MIN, 1 << 20, 64};
    const int64_t v = values[below(sizeof values / sizeof *values)];
    const size_t width = (size_t)1 << below(4);
    const bool big_endian = below(2);
    for (size_t i = 0; i < width && width <= capacity; i++)
        at[big_endian ? width - 1 - i : i] = (unsigned char)((uint64_t)v >> 8 * i);
}

/* Replaces `cut` bytes at `at` by `n` others. */
static size_t replace(unsigned char *data, size_t size, size_t capacity, size_t at, size_t cut,
                      const unsigned char *with, size_t n)
{
    if (size - cut + n > capacity)
        return size;
    memmove(data + at + n, data + at + cut, size - at - cut);
    memcpy(data + at, with, n);
    return size - cut + n;
}

static size_t change(unsigned char *data, size_t size, size_t capacity)
{
    unsigned char piece[64];
    const size_t at = below(size + 1), rest = size - at, cut = below(rest < 64 ? rest + 1 : 64);
    const seed *other = &seeds[below((size_t)nseeds)];
    size_t from, n;
    switch (below(6)) {
    case 0:
        if (rest)
            data[at] ^= (unsigned char)(1 << below(8));
        return size;
    case 1:
        put_number(data + at, rest);
        return size;
    case 2: /* less */
        return replace(data, size, capacity, at, cut, piece, 0);
    case 3: /* the same again */
        memcpy(piece, data + at, cut);
        return replace(data, size, capacity, below(size + 1), 0, piece, cut);
    case 4: /* a piece of another seed */
        from = below(other->n + 1);
        n = below(other->n - from < 64 ? other->n - from + 1 : 64);
        return replace(data, size, capacity, at, below(2) ? cut : 0, other->data + from, n);
    default:
        piece[0] = (unsigned char)below(256);
        return replace(data, size, capacity, at, 0, piece, 1);
    }
}

/* ---- running --------------------------------------------------------------------------------- */

static void run_input(const unsigned char *data, size_t n)
{
    current = data;
    current_size = n;
    fuzz_one(target, data, n);
}

/* Calls only functions that a signal handler may call. */
static void keep_input(int signal_number)
{
    char name[64] = "";
    strncat(name, target->name, 40);
    strcat(name, ".input");
    const int f = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (f >= 0 && write(f, current, current_size) == (ssize_t)current_size)
        close(f);
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

static int64_t run_changed(int64_t rounds, double limit)
{
    const size_t capacity = fuzz_longest(target);
    unsigned char *data = malloc(capacity);
    const time_t start = time(NULL);
    int64_t n = 0;
    while (data && (limit > 0 ? difftime(time(NULL), start) < limit : n < rounds)) {
        const seed *s = &seeds[below((size_t)nseeds)];
        size_t size = s->n < capacity ? s->n : capacity;
        memcpy(data, s->data, size);
        for (size_t edits = 1 + below(EDITS); edits > 0; edits--)
            size = change(data, size, capacity);
        run_input(data, size);
        n++;
    }
    free(data);
    return n;
}

int main(int argc, char **argv)
{
    int64_t rounds = 0;
    double limit = 0;
    random_state = 1;
    target = argc > 1 ? fuzz_target_named(argv[1]) : NULL;
    if (!target) {
        fprintf(stderr, "usage: %s TARGET [--rounds N | --seconds N] [--seed N] [path]…\n", *argv);
        return 2;
    }
    fx_message_set_hook(NULL, NULL);
    for (int i = 2; i < argc; i++) {
        const bool option = argv[i][0] == '-' && i + 1 < argc;
        if (option && strcmp(argv[i], "--rounds") == 0)
            rounds = atoll(argv[++i]);
        else if (option && strcmp(argv[i], "--seconds") == 0)
            limit = atof(argv[++i]);
        else if (option && strcmp(argv[i], "--seed") == 0)
            random_state = strtoull(argv[++i], NULL, 10) + 1;
        else
            add_path(argv[i]);
    }
    const bool own = nseeds > 0;
    for (int i = 0; !own && fuzz_seed_folder(target, i); i++)
        add_folder(fuzz_seed_folder(target, i));
    signal(SIGABRT, keep_input);
    signal(SIGSEGV, keep_input);
    for (int i = 0; i < nseeds; i++)
        run_input(seeds[i].data, seeds[i].n);
    const int64_t changed = nseeds ? run_changed(rounds, limit) : 0;
    printf("%s: %d seeds, %lld changed inputs\n", target->name, nseeds, (long long)changed);
    return nseeds > 0 && changed >= rounds ? 0 : 1;
}
