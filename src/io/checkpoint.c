/* checkpoint.c: saves and loads everything that training needs to continue, in one file.
 *
 * The file is a safetensors file, so that the hardened reader is reused and other programs can read
 * the weights:
 *
 *   model.…, state.…, metrics.…   the arrays of those objects by their paths
 *   cflux.numbers                 Float64: the numbers in the optimiser state
 *   cflux.counts                  Int64: see `counts` below
 *   "notation.model"              in the header: the model as fx_summary prints it
 *   "set", "rank", "ranks"        in the header: see fxi_checkpoint_part; only with .dist
 *   __crc32__                     the CRC-32 of every byte before it; last in the file
 *
 * Saving is safe against a kill at any moment: the new file is complete on the disk before an older
 * one is renamed, and the newest file keeps its name until the new one replaces it. Loading checks
 * the CRC-32 first and falls back to the previous file. If the newest file is damaged, the new file
 * replaces it and no older file is renamed, because the previous file may be the only intact one.
 *
 * With .dist each member of a group saves such a file (checkpoint_set.c).
 */
#include "check_arguments.h"
#include "checkpoint_about.h"
#include "checkpoint_files.h"
#include "dist_update.h"
#include "entries_load.h"
#include "error.h"
#include "files.h"
#include "formats.h"
#include "memory.h"
#include "metadata.h"
#include "option_struct.h"
#include "random.h"
#include "safetensors.h"
#include "state_parts.h"

#include <cflux/io.h>
#include <cflux/optim.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { MAX_PATH = FXI_CHECKPOINT_PATH, LONGEST_PATH = MAX_PATH - 16, MAX_KEEP = 1000 };
static const char FORMAT[] = "cflux.checkpoint", VERSION[] = "1";
static const char NUMBERS[] = "cflux.numbers", COUNTS[] = "cflux.counts";

typedef enum counts {
    EPOCH,
    STEP,
    RANDOM_SEED,
    RANDOM_NAME,
    RANDOM_COUNT,
    HAS_LOADER,
    LOADER_SEED,
    LOADER_PASS,
    LOADER_BATCH,
    NCOUNTS
} counts;

/* ---- names of files -------------------------------------------------------------------------- */

bool fxi_checkpoint_numbered(char out[MAX_PATH], const char *path, int i)
{
    const int n =
        i ? snprintf(out, MAX_PATH, "%s.%d", path, i) : snprintf(out, MAX_PATH, "%s", path);
    return n >= 0 && n < MAX_PATH;
}

static bool sum_is_right(const fxi_bytes *b)
{
    if (b->size <= FXI_SUM_BYTES)
        return false;
    const size_t end = b->size - FXI_SUM_BYTES;
    fxi_bytes sum = *b;
    sum.at = end;
    return fxi_bytes_number(&sum, FXI_SUM_BYTES, "the checksum") == crc32_z(0, b->data, end);
}

/* Decides whether the newest file is worth keeping. A file that is damaged or cannot be read is not
 * kept, and does not prevent the next save. Running out of memory says nothing about the file, so
 * it is a failure (recorded). */
static fx_status inspect_newest(const char *op, const char *path, bool *out_whole)
{
    fxi_file *file;
    *out_whole = false;
    if (!fxi_file_exists(path))
        return FX_OK;
    const fx_error earlier = fxi_error_begin();
    const fx_status status = fxi_file_map(op, path, &file);
    if (status != FX_OK && status != FX_STATUS_MEMORY)
        fx_error_take();
    fxi_error_end(&earlier);
    if (status != FX_OK)
        return status == FX_STATUS_MEMORY ? status : FX_OK;
    const fxi_bytes b = fxi_file_bytes(file, op, path);
    *out_whole = sum_is_right(&b);
    fxi_file_release(file);
    return FX_OK;
}

/* Renames each older file to the next number, which replaces the oldest, and links the newest file
 * as number 1. The newest keeps its own name too. */
static bool move_up(const char *path, int keep)
{
    char from[MAX_PATH], to[MAX_PATH];
    for (int i = keep - 1; i > 1; i--)
        if (fxi_checkpoint_numbered(from, path, i - 1) && fxi_checkpoint_numbered(to, path, i) &&
            fxi_file_rename(from, to) != 0 && errno != ENOENT)
            return false;
    fxi_checkpoint_numbered(to, path, 1);
    return (fxi_os_remove(to) == 0 || errno == ENOENT) && fxi_file_link(path, to) == 0;
}

static fx_status keep_older(const char *op, const char *path, int keep)
{
    bool whole = false;
    const fx_status status = keep > 1 ? inspect_newest(op, path, &whole) : FX_OK;
    if (status != FX_OK || !whole || move_up(path, keep))
        return status;
    return fx_fail(FX_STATUS_IO, op,
                   "%s: cannot keep the previous file: %s; the newest file is unchanged", path,
                   strerror(errno));
}

fx_status fxi_checkpoint_commit(const char *op, const char *from, const char *path, int keep)
{
    const fx_status status = keep_older(op, path, keep);
    if (status != FX_OK || fxi_file_rename(from, path) == 0)
        return status;
    return fx_fail(FX_STATUS_IO, op, "cannot rename %s to %s: %s", from, path, strerror(errno));
}

bool fx_checkpoint_exists(const char *path)
{
    char name[MAX_PATH];
    for (int i = 0; path && i < 2; i++)
        if (fxi_checkpoint_numbered(name, path, i) && fxi_file_exists(name))
            return true;
    return false;
}

/* ---- saving ---------------------------------------------------------------------------------- */

static void fill_counts(const fx_checkpoint_args *c, int64_t out[NCOUNTS])
{
    const fxi_random_state random = fxi_random_now();
    const fx_loader_position at = fx_loader_tell(c->data, c->batch);
    out[EPOCH] = c->epoch;
    out[STEP] = c->step;
    out[RANDOM_SEED] = (int64_t)random.seed;
    out[RANDOM_NAME] = (int64_t)random.name;
    out[RANDOM_COUNT] = (int64_t)random.count;
    out[HAS_LOADER] = c->data != NULL;
    out[LOADER_SEED] = (int64_t)at.seed;
    out[LOADER_PASS] = (int64_t)at.pass;
    out[LOADER_BATCH] = at.batch;
}

static double *numbers_new(const char *op, int64_t n)
{
    double *numbers = fxi_calloc((size_t)n + 1, sizeof *numbers);
    if (!numbers)
        fx_fail(FX_STATUS_MEMORY, op, "no memory for %lld numbers", (long long)n);
    return numbers;
}

/* The numbers of a state; the caller frees them. */
static fx_status state_numbers(const char *op, void *state, double **out, int64_t *out_n)
{
    *out = NULL;
    *out_n = state ? fxi_state_numbers(state, NULL, 0) : 0;
    if (*out_n < 0)
        return *out_n == -2 ? fx_error_status()
                            : fx_fail(FX_STATUS_ARGUMENT, op, "the state was not made by fx_setup");
    *out = numbers_new(op, *out_n);
    const bool complete = *out && (!state || fxi_state_numbers(state, *out, *out_n) == *out_n);
    return complete ? FX_OK : FX_STATUS_MEMORY;
}

static fx_status collect(fxi_entries *e, const fx_checkpoint_args *c)
{
    int64_t all[NCOUNTS], n;
    double *numbers;
    e->status = state_numbers(e->op, c->state, &numbers, &n);
    if (e->status != FX_OK) {
        fxi_free(numbers);
        return e->status;
    }
    fill_counts(c, all);
    fxi_entries_walk(e, "model", c->model);
    if (c->state)
        fxi_entries_walk(e, "state", c->state);
    if (c->metrics)
        fxi_entries_walk(e, "metrics", c->metrics);
    fxi_entries_add(e, NUMBERS, fxi_from(FX_DTYPE_F64, numbers, 1, &n));
    fxi_entries_add(e, COUNTS, fxi_from(FX_DTYPE_I64, all, 1, (const int64_t[]){NCOUNTS}));
    fxi_free(numbers);
    return e->status;
}

/* The texts of the header; the numbers of a part are texts too. */
static void *header_of(const char *model, const fxi_checkpoint_part *part)
{
    char numbers[3][24];
    snprintf(numbers[0], sizeof numbers[0], "%lld", (long long)part->set);
    snprintf(numbers[1], sizeof numbers[1], "%lld", (long long)part->rank);
    snprintf(numbers[2], sizeof numbers[2], "%lld", (long long)part->ranks);
    const void *const texts[] = {"format",         FORMAT,     "version", VERSION,
                                 "notation.model", model,      "set",     numbers[0],
                                 "rank",           numbers[1], "ranks",   numbers[2]};
    return fxi_metadata(part->ranks > 0 ? 12 : 6, texts);
}

static fx_status write_checkpoint(fxi_file_out *out, const fx_checkpoint_args *c,
                                  const fxi_checkpoint_part *part)
{
    fxi_entries e = {.op = out->op};
    const size_t n = fx_summary(c->model, NULL, 0) + 1;
    char *model = fxi_malloc(n);
    out->sum = true;
    fx_status status = collect(&e, c);
    if (!model)
        status = fx_fail(FX_STATUS_MEMORY, out->op, "no memory for the model's notation");
    if (status == FX_OK && (n == 1 || fx_summary(c->model, model, n) != n - 1))
        status = FX_STATUS_MEMORY; /* fx_summary failed, and has recorded it */
    if (status == FX_OK)
        status = fxi_safetensors_write(out, &e, header_of(model, part), true);
    fxi_free(model);
    fxi_entries_free(&e);
    return status;
}

fx_status fxi_checkpoint_write(const char *op, const char *path, const fx_checkpoint_args *c,
                               const fxi_checkpoint_part *part, int keep)
{
    FXI_SCOPE;
    fxi_file_out out;
    fx_status status = fxi_file_out_open(&out, op, path);
    if (status == FX_OK)
        status = write_checkpoint(&out, c, part);
    if (status == FX_OK)
        status = fxi_file_out_sync(&out);
    if (status == FX_OK)
        status = keep_older(op, out.real, keep);
    return fxi_file_out_close(&out, status);
}

static fx_status check_path(const char *op, const char *path)
{
    if (fxi_check_text(op, 1, "a path", path) != FX_OK)
        return FX_STATUS_ARGUMENT;
    return !path || strlen(path) <= LONGEST_PATH
               ? FX_OK
               : fx_fail(FX_STATUS_ARGUMENT, op, "the path has %zu bytes, at most %d are allowed",
                         strlen(path), LONGEST_PATH);
}

static fx_status check_saved(const char *op, const char *path, const fx_checkpoint_args *c)
{
    const fx_status status = check_path(op, path);
    if (status != FX_OK)
        return status;
    if (c->keep < 1 || c->keep > MAX_KEEP)
        return fx_fail(FX_STATUS_ARGUMENT, op, "keep is %d, expected 1 to %d", c->keep, MAX_KEEP);
    if (!c->dist && c->state && fxi_dist_divided(c->state))
        return fx_fail(FX_STATUS_ARGUMENT, op,
                       "the state is divided among the ranks: save it with .dist on all ranks, or "
                       "save the result of fx_dist_whole");
    return FX_OK;
}

fx_status fxi_checkpoint_save(const char *path, const fx_checkpoint_args *given)
{
    static const char *const op = "checkpoint_save";
    static const fxi_checkpoint_part alone;
    FXI_TAKE_OPTIONS(fx_checkpoint_args, FXI_CHECKPOINT_ARGS, c, op, given);
    const fx_status status = c_ok ? check_saved(op, path, &c) : FX_STATUS_ARGUMENT;
    if (c.dist)
        return fxi_checkpoint_set_save(op, path, &c, status);
    return status == FX_OK ? fxi_checkpoint_write(op, path, &c, &alone, c.keep) : status;
}

/* ---- loading: choice of the file ------------------------------------------------------------- */

static void *child(void *file, const char *name)
{
    for (int64_t i = 0; i < fx_count(file); i++)
        if (strcmp(fx_child_name(file, i), name) == 0)
            return fx_child(file, i);
    return NULL;
}

/* The version of a checkpoint; NULL if the file is not a checkpoint. */
static const char *version_of(void *file)
{
    const void *texts = child(file, FXI_METADATA_NAME);
    const char *format = fx_metadata_text(texts, "format");
    return format && strcmp(format, FORMAT) == 0 ? fx_metadata_text(texts, "version") : NULL;
}

static bool is_checkpoint(void *file)
{
    const char *version = version_of(file);
    fx_array *all = child(file, COUNTS), *numbers = child(file, NUMBERS);
    return version && strcmp(version, VERSION) == 0 && all && fx_is_array(all) &&
           fx_eltype(all) == FX_DTYPE_I64 && fx_length(all) == NCOUNTS && numbers &&
           fx_is_array(numbers) && fx_eltype(numbers) == FX_DTYPE_F64;
}

/* Does the name of the checksum occur in the file? The header of every checkpoint has it. */
static bool names_sum(const fxi_bytes *b)
{
    static const char name[] = FXI_SUM_NAME;
    const size_t n = sizeof name - 1;
    const unsigned char *at = b->data, *end = at + b->size;
    while ((at = end - at >= (ptrdiff_t)n ? memchr(at, name[0], (size_t)(end - at) - n + 1) : NULL))
        if (memcmp(at++, name, n) == 0)
            return true;
    return false;
}

/* Checks the CRC-32; damage is recorded. */
static fx_status check_sum(fxi_bytes *b)
{
    if (b->size <= FXI_SUM_BYTES)
        return fxi_bytes_fail(b, b->size, "the file has %zu bytes: a checkpoint has more", b->size);
    if (sum_is_right(b))
        return FX_OK;
    return names_sum(b)
               ? fxi_bytes_fail(b, b->size - FXI_SUM_BYTES,
                                "the file is damaged: its CRC-32 differs")
               : fxi_bytes_fail(b, 0,
                                "the file has no checksum: it is truncated, or not a checkpoint "
                                "(fx_load_into loads the weights of other files)");
}

static int64_t number_in(const void *texts, const char *key)
{
    const char *text = fx_metadata_text(texts, key);
    return text ? strtoll(text, NULL, 10) : 0;
}

static fxi_checkpoint_part part_of(void *file)
{
    const void *texts = child(file, FXI_METADATA_NAME);
    return (fxi_checkpoint_part){.set = number_in(texts, "set"),
                                 .rank = number_in(texts, "rank"),
                                 .ranks = number_in(texts, "ranks"),
                                 .step = (int64_t)fx_at(child(file, COUNTS), STEP)};
}

fx_status fxi_checkpoint_about(fxi_bytes *b, fx_file_info *out)
{
    fxi_bytes whole = *b;
    void *file = fxi_format_safetensors.load(b);
    if (fx_is_error(file))
        return fxi_status_of_error(file);
    const char *format = fx_metadata_text(child(file, FXI_METADATA_NAME), "format");
    if (!format || strcmp(format, FORMAT) != 0)
        return FX_OK;
    out->format = b->format = whole.format = "checkpoint";
    if (check_sum(&whole) != FX_OK || !is_checkpoint(file))
        return whole.status;
    const fxi_checkpoint_part part = part_of(file);
    const int n = snprintf(out->origin, sizeof out->origin, "cflux, epoch %.0f, training step %lld",
                           fx_at(child(file, COUNTS), EPOCH), (long long)part.step);
    if (part.ranks > 0)
        snprintf(out->origin + n, sizeof out->origin - (size_t)n, ", rank %lld of %lld",
                 (long long)part.rank, (long long)part.ranks);
    return FX_OK;
}

fx_status fxi_checkpoint_open(const char *op, const char *path, void **out,
                              fxi_checkpoint_part *out_part)
{
    fxi_file *in;
    *out = NULL;
    fx_status status = fxi_file_map(op, path, &in);
    if (status != FX_OK)
        return status;
    fxi_bytes b = fxi_file_bytes(in, op, path);
    b.format = "checkpoint";
    void *file = check_sum(&b) == FX_OK ? fxi_format_safetensors.load(&b) : NULL;
    status = file && fx_is_error(file) ? fxi_status_of_error(file) : b.status;
    const char *version = status == FX_OK ? version_of(file) : NULL;
    if (version && strcmp(version, VERSION) != 0)
        status =
            fxi_bytes_fail(&b, 0,
                           "the checkpoint has version %.20s, but this cflux reads version %s: "
                           "use the version of cflux that saved it",
                           version, VERSION);
    else if (status == FX_OK && !is_checkpoint(file))
        status = fxi_bytes_fail(&b, 0, "the file is not a checkpoint");
    fxi_file_release(in);
    if (status != FX_OK)
        return status;
    *out = file;
    *out_part = part_of(file);
    return FX_OK;
}

/* Opens the newest intact file. If newer files are damaged, a message says so instead of an error.
 * Running out of memory says nothing about a file, so it ends the search. */
static fx_status open_newest(const char *op, const char *path, char used[MAX_PATH], void **out,
                             fxi_checkpoint_part *out_part)
{
    const bool clean = fx_error_status() == FX_OK;
    fx_error why = {0};
    fx_status first = FX_OK;
    for (int i = 0; i < MAX_KEEP && fxi_checkpoint_numbered(used, path, i); i++) {
        if (i > 1 && !fxi_file_exists(used))
            break;
        const fx_status status = fxi_checkpoint_open(op, used, out, out_part);
        if (status == FX_STATUS_MEMORY)
            return status;
        if (status == FX_OK && i > 0)
            fx_message(1, "%s. The previous one, %s, is used.",
                       clean ? why.message : "The newest checkpoint cannot be read", used);
        const fx_error error = clean ? fx_error_take() : (fx_error){0};
        if (status == FX_OK)
            return status;
        first = i == 0 ? status : first;
        why = i == 0 ? error : why;
    }
    return clean ? fx_fail(why.status, op, "%s", why.message + strlen(op) + 2) : first;
}

/* ---- loading: contents ----------------------------------------------------------------------- */

/* The arrays of a file that belong to one of n object names. */
static void *arrays_of(const char *op, void *file, const char *const *names, int n)
{
    fxi_entries e = {.op = op};
    for (int64_t i = 0; i < fx_count(file); i++)
        for (int k = 0; k < n; k++) {
            const char *name = fx_child_name(file, i);
            const size_t length = strlen(names[k]);
            if (strncmp(name, names[k], length) == 0 && (name[length] == '.' || !name[length]))
                fxi_entries_add(&e, name, fx_child(file, i));
        }
    void *all = fxi_entries_tuple(&e);
    fxi_entries_free(&e);
    return all;
}

/* Loads model and state together, so that both change or neither. */
static fx_status load_arrays(const char *op, const char *path, void *file,
                             const fx_checkpoint_args *io)
{
    const char *const names[] = {"model", "state"};
    void *const objects[] = {io->model, io->state};
    const int n = io->state ? 2 : 1;
    void *arrays = arrays_of(op, file, names, n);
    if (fx_is_error(arrays))
        return fxi_status_of_error(arrays);
    return fxi_entries_load(op, path, arrays, "", fx_named_tuple_from(n, names, objects));
}

static fx_status load_objects(const char *op, const char *path, void *file, fx_checkpoint_args *io)
{
    int64_t n;
    fx_array *saved = child(file, NUMBERS);
    double *before, *numbers = numbers_new(op, fx_length(saved));
    fx_status status = state_numbers(op, io->state, &before, &n);
    if (!numbers)
        status = FX_STATUS_MEMORY;
    if (status == FX_OK && n > 0 && fx_length(saved) == 0)
        status =
            fx_fail(FX_STATUS_ARGUMENT, op,
                    "%s: the checkpoint was saved without an optimiser state; to load only the "
                    "model, set .state to NULL",
                    path);
    if (status == FX_OK && fx_length(saved) != 0)
        status = fx_read_into(saved, numbers, (size_t)fx_length(saved) * sizeof *numbers);
    if (status == FX_OK && io->state)
        status = fxi_state_numbers_set(io->state, numbers, fx_length(saved), false);
    if (status == FX_OK) {
        status = load_arrays(op, path, file, io);
        if (status != FX_OK && io->state)
            fxi_state_numbers_set(io->state, before, n, false);
    }
    fxi_free(before);
    fxi_free(numbers);
    return status;
}

static fx_status check_args(const char *op, const char *path, const fx_checkpoint_args *io)
{
    return path && io->model
               ? check_path(op, path)
               : fx_fail(FX_STATUS_ARGUMENT, op, "the %s is NULL", path ? "model" : "path");
}

static fx_status take_counts(const char *op, const char *path, fx_checkpoint_args *io,
                             const int64_t all[NCOUNTS])
{
    const fx_loader_position at = {(uint64_t)all[LOADER_SEED], (uint64_t)all[LOADER_PASS],
                                   all[LOADER_BATCH]};
    if (io->data && !all[HAS_LOADER])
        return fx_fail(FX_STATUS_ARGUMENT, op, "%s: the checkpoint was saved without a loader",
                       path);
    return io->data ? fx_loader_seek(io->data, at) : FX_OK;
}

fx_status fxi_checkpoint_take(const char *op, const char *path, void *file, fx_checkpoint_args *io)
{
    int64_t all[NCOUNTS];
    void *metrics = fxi_entries_below(op, file, "metrics");
    if (metrics && fx_is_error(metrics))
        return fxi_status_of_error(metrics);
    const fx_loader_position before = fx_loader_tell(io->data, NULL);
    fx_status status = fx_read_into(child(file, COUNTS), all, sizeof all);
    if (status == FX_OK)
        status = take_counts(op, path, io, all);
    if (status == FX_OK) {
        status = load_objects(op, path, file, io);
        if (status != FX_OK && io->data)
            fx_loader_seek(io->data, before);
    }
    if (status != FX_OK)
        return status;
    fxi_random_leave((fxi_random_state){.seed = (uint64_t)all[RANDOM_SEED],
                                        .name = (uint64_t)all[RANDOM_NAME],
                                        .count = (uint64_t)all[RANDOM_COUNT],
                                        .named = true});
    io->epoch = all[EPOCH];
    io->step = all[STEP];
    io->metrics = fx_keep(metrics);
    return FX_OK;
}

static fx_status load(const char *op, const char *path, fx_checkpoint_args *io)
{
    FXI_SCOPE;
    char used[MAX_PATH];
    void *file = NULL;
    fxi_checkpoint_part part = {.ranks = 0};
    const fx_status status = open_newest(op, path, used, &file, &part);
    if (status != FX_OK)
        return status;
    if (part.ranks > 0)
        return fx_fail(FX_STATUS_ARGUMENT, op,
                       "%s is the part of rank %lld of a checkpoint of %lld ranks: load all parts "
                       "with .dist",
                       used, (long long)part.rank, (long long)part.ranks);
    return fxi_checkpoint_take(op, used, file, io);
}

/* Fills in only the members that the caller's version of the struct has. */
fx_status fxi_checkpoint_load(const char *path, fx_checkpoint_args *io)
{
    static const char *const op = "checkpoint_load";
    if (!io)
        return fx_fail(FX_STATUS_ARGUMENT, op, "the checkpoint to fill is NULL");
    FXI_TAKE_OPTIONS(fx_checkpoint_args, FXI_CHECKPOINT_ARGS, c, op, io);
    fx_status status = c_ok ? check_args(op, path, &c) : FX_STATUS_ARGUMENT;
    if (c.dist)
        status = fxi_checkpoint_set_load(op, path, &c, status);
    else if (status == FX_OK)
        status = load(op, path, &c);
    if (status == FX_OK)
        fxi_give_options(io, &c, sizeof c);
    return status;
}
