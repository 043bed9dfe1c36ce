/* dataset.c: reads observations and targets: see dataset.h. The library's readers parse the files;
 * this file chooses files and columns and reports problems in one sentence. */
#include "dataset.h"
#include "array_stats.h"
#include "dataset_images.h"
#include "dataset_join.h"
#include "dataset_table.h"
#include "dataset_text.h"
#include "language.h"
#include "failure.h"
#include "image_file.h"
#include "input_file.h"
#include "missing.h"
#include "model_file.h"
#include "system.h"
#include "text_parts.h"
#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void describe_sizes(const fx_array *x, bool observation, char *text, size_t size)
{
    const int n = fx_ndims(x) - (observation ? 1 : 0);
    size_t at = 0;
    snprintf(text, size, "1");
    for (int i = 0; i < n && at < size; i++)
        at += (size_t)snprintf(text + at, size - at, "%s%lld", i ? "×" : "",
                               (long long)fx_size(x, i));
}

/* ---- arrays ---------------------------------------------------------------------------------- */

/* Converts to Float32, with observations along the final axis. */
static fx_array *as_features(fx_array *x)
{
    if (fx_ndims(x) == 1)
        x = fx_reshape(x, 1, fx_length(x));
    return fx_eltype(x) == FX_DTYPE_F32 ? x : fx_cast(x, FX_DTYPE_F32);
}

static int64_t observations_of(const fx_array *x)
{
    return fx_ndims(x) ? fx_size(x, fx_ndims(x) - 1) : 0;
}

static int check_counts(const dataset *d)
{
    if (d->y && observations_of(d->y) != d->n)
        return fail(EXIT_BAD_INPUT, "%s has %lld observations and %lld targets", d->path,
                    (long long)d->n, (long long)observations_of(d->y));
    return d->n > 0 ? EXIT_FINE : fail(EXIT_BAD_INPUT, "%s has no observations", d->path);
}

/* Refuses element i, which is NaN (`nan`: what the message says then), infinite, or too large. */
static int refuse_number(const dataset *d, const fx_array *x, int64_t i, double value,
                         const char *nan)
{
    char where[1200], number[80];
    const int64_t each = fx_length(x) / d->n;
    const char *column = x == d->x ? dataset_column(d, i % each) : NULL;
    dataset_location(d, i / each, where, sizeof where);
    snprintf(number, sizeof number, "%.6g, which does not fit Float32", value);
    return fail(EXIT_BAD_INPUT, "%s: %s %lld%s%s%s is %s", where, x == d->x ? "feature" : "target",
                (long long)(i % each) + 1, column ? ", column \"" : "", column ? column : "",
                column ? "\"," : "",
                isinf(value)   ? "infinite"
                : isnan(value) ? nan
                               : number);
}

/* What the message about a feature that is NaN says; NULL: NaN is accepted. */
static const char *words_for_nan(const data_request *r)
{
    if (r->missing == MISSING_REFUSED)
        return "NaN, which only cflux train --missing accepts";
    return r->missing == MISSING_DROPPED && r->unlabelled
               ? "missing: the model was trained with --missing drop, but predict writes a line "
                 "for every row; remove the row, or train with --missing mean or median, which "
                 "replaces missing values also in predict"
               : NULL;
}

/* Refuses NaN (unless `nan` is NULL), infinity, and numbers that become infinite in Float32: they
 * would make every weight NaN. */
static int check_finite(const dataset *d, fx_array *x, const char *nan)
{
    const bool wide = fx_eltype(x) == FX_DTYPE_F64;
    if (!has_floats(x))
        return EXIT_FINE;
    const void *values = fx_data(wide ? x : fx_cast(x, FX_DTYPE_F32));
    for (int64_t i = 0; values && i < fx_length(x); i++) {
        const double value =
            wide ? ((const double *)values)[i] : (double)((const float *)values)[i];
        if (!(fabs(value) <= FLT_MAX) && (nan || !isnan(value)))
            return refuse_number(d, x, i, value, nan);
    }
    return values ? EXIT_FINE : fail_library(EXIT_FAILED);
}

static int give_shape(const data_request *r, dataset *d)
{
    int64_t sizes[FX_MAX_DIMS], product = 1;
    char have[100];
    if (!r->shape || strcmp(d->kind, "images") == 0) /* images have been changed to this size */
        return EXIT_FINE;
    const int n = read_sizes(r->shape, sizes);
    if (n == 0)
        return fail(EXIT_BAD_INPUT, "--shape takes sizes such as 28x28x1, got \"%s\"", r->shape);
    for (int i = 0; i < n; i++) /* 0: the product is too large */
        if (__builtin_mul_overflow(product, sizes[i], &product))
            product = 0;
    const int64_t each = fx_length(d->x) / d->n;
    describe_sizes(d->x, true, have, sizeof have);
    if (product == 0)
        return fail(EXIT_BAD_INPUT, "--shape %s is too large", r->shape);
    if (product != each)
        return fail(EXIT_BAD_INPUT,
                    "--shape %s has %lld numbers, but an observation of %s has %lld (%s)", r->shape,
                    (long long)product, d->path, (long long)each, have);
    sizes[n] = d->n;
    d->x = fxi_reshape(d->x, n + 1, sizes);
    return EXIT_FINE;
}

/* Swaps the first two axes of each observation. */
static int transpose(const data_request *r, dataset *d)
{
    int64_t axes[FX_MAX_DIMS] = {1, 0};
    const int n = fx_ndims(d->x);
    if (!r->transpose)
        return EXIT_FINE;
    if (n < 3)
        return fail(
            EXIT_BAD_INPUT,
            "--transpose: an observation of %s has one size, but an image has at least two: "
            "give them with --shape",
            d->path);
    for (int i = 2; i < n; i++)
        axes[i] = i;
    d->x = fxi_permute(d->x, n, axes);
    d->transposed = true;
    return fx_eval(d->x) == FX_OK ? EXIT_FINE : fail_library(EXIT_FAILED);
}

const char *dataset_column(const dataset *d, int64_t k)
{
    if (d->transposed) { /* columns are in the order of the file */
        const int64_t n = fx_size(d->x, 0), m = fx_size(d->x, 1), image = k / (n * m);
        k = image * n * m + k % n * m + k / n % m;
    }
    return d->columns ? fx_string_text(fx_child(d->columns, k)) : NULL;
}

const char *first_text(fx_array *y, void *labels)
{
    return fx_child_name(labels, (int64_t)fx_item(fx_slice(fx_vec(y), 0, 0, 1)));
}

/* ---- targets in files of their own ----------------------------------------------------------- */

/* A target file needs exactly one file of observations. */
static int check_target_file(const data_request *r)
{
    if (!r->target && !r->unlabelled && !r->no_target)
        return fail(EXIT_BAD_INPUT, "%s contains no targets: give their file with --target FILE",
                    r->path);
    if (r->target && !r->no_target && r->targets.n == 1 && r->files > 1)
        return fail(EXIT_BAD_INPUT,
                    "%s: --target %s belongs to one file: give one --target per data file, in the "
                    "same order",
                    r->path, r->target);
    return EXIT_FINE;
}

/* ---- IDX ------------------------------------------------------------------------------------- */

/* Reads images as Flux's data sets do: bytes become numbers from 0 to 1, and images get a channel
 * axis of size 1. */
static fx_array *read_images(const char *path)
{
    fx_array *x = fx_read_idx(path);
    if (fx_eltype(x) == FX_DTYPE_U8)
        x = fx_div(fx_cast(x, FX_DTYPE_F32), 255);
    return fx_ndims(x) == 3 ? fx_reshape(x, fx_size(x, 0), fx_size(x, 1), 1, fx_size(x, 2)) : x;
}

static int read_idx(const data_request *r, dataset *d, const char *x, const char *y)
{
    d->kind = "idx";
    d->x = read_images(x);
    if (y && !r->no_target) {
        d->y = fx_read_idx(y);
        d->target = y == r->target ? y : "labels";
    }
    return fx_is_error(d->x) || (d->y && fx_is_error(d->y)) ? fail_library(EXIT_BAD_INPUT)
                                                            : EXIT_FINE;
}

static bool is_part(const char *name, const char *what, bool test)
{
    const bool of_test = strstr(name, "t10k") || strstr(name, "test");
    return strstr(name, what) && strstr(name, "idx") && of_test == test;
}

/* The files of one part in a folder. */
typedef struct wanted_part {
    const char *folder, *what; /* what: "images" or "labels" */
    bool test;
    char path[FILE_PATH_BYTES];  /* the plain file if there is a gzip file too; "": none */
    char other[FILE_PATH_BYTES]; /* a file of another data set; "": none */
} wanted_part;

/* The length of a path without the ending .gz. */
static int plain_length(const char *path)
{
    return (int)strlen(path) - (ends_with(path, ".gz") ? 3 : 0);
}

static void note_file(const char *name, void *user)
{
    wanted_part *w = user;
    char path[FILE_PATH_BYTES];
    if (!is_part(name, w->what, w->test))
        return;
    snprintf(path, sizeof path, "%s/%s", w->folder, name);
    const int n = plain_length(path);
    if (!*w->path || (n == plain_length(w->path) && strncmp(path, w->path, (size_t)n) == 0)) {
        if (!*w->path || !ends_with(name, ".gz"))
            snprintf(w->path, sizeof w->path, "%s", path);
    } else
        snprintf(w->other, sizeof w->other, "%s", path);
}

static void find_part(const char *folder, const char *what, bool test, wanted_part *out)
{
    *out = (wanted_part){.folder = folder, .what = what, .test = test};
    each_file(folder, note_file, out);
}

static bool has_idx(const data_request *r)
{
    static wanted_part images[2];
    for (int test = 0; test < 2; test++)
        find_part(r->path, "images", test, &images[test]);
    return *images[0].path || *images[1].path;
}

/* Images of one data set must not get the labels of another. */
static int check_only(const data_request *r, const wanted_part *w)
{
    return !*w->other ? EXIT_FINE
                      : fail(EXIT_BAD_INPUT,
                             "%s has several data sets, such as %s and %s: give a file of images, "
                             "and its labels with --target",
                             r->path, w->path, w->other);
}

static int read_folder(const data_request *r, dataset *d)
{
    static wanted_part images, labels;
    const char *part = r->test ? "t10k" : "train";
    find_part(r->path, "images", r->test, &images);
    if (!*images.path)
        return fail(EXIT_BAD_INPUT,
                    "%s is a folder without images: expected PNG or JPEG files, folders of them "
                    "(one per class), or %s-images-idx3-ubyte (or .gz)",
                    r->path, part);
    find_part(r->path, "labels", r->test, &labels);
    int status = check_only(r, &images);
    if (status == EXIT_FINE)
        status = check_only(r, &labels);
    if (status != EXIT_FINE)
        return status;
    if (!*labels.path && !r->unlabelled && !r->no_target)
        return fail(EXIT_BAD_INPUT, "%s has images but no %s-labels-idx1-ubyte (or .gz)", r->path,
                    part);
    return read_idx(r, d, images.path, *labels.path ? labels.path : NULL);
}

/* ---- NumPy ----------------------------------------------------------------------------------- */

static fx_array *first_of(void *file, const char *const *names, const char **out_name)
{
    fx_array *found = NULL;
    for (int i = 0; names[i] && !found; i++) {
        found = model_file_entry(file, names[i]);
        *out_name = names[i];
    }
    return found;
}

static int no_entry(const char *path, const char *wanted, void *file)
{
    char names[300] = "";
    size_t n = 0;
    if (fx_count(file) == 0)
        return fail(EXIT_BAD_INPUT, "%s contains no arrays", path);
    for (int64_t i = 0; i < fx_count(file) && n < sizeof names; i++)
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", i ? ", " : "",
                              fx_child_name(file, i));
    return fail(EXIT_BAD_INPUT, "%s has no array %s; it has %s", path, wanted, names);
}

/* The only array of a file such as KMNIST's, which NumPy calls arr_0. */
static fx_array *only_array(void *file, const char **out_name)
{
    *out_name = fx_count(file) == 1 ? fx_child_name(file, 0) : NULL;
    return *out_name ? model_file_entry(file, *out_name) : NULL;
}

/* Targets in another file, which has one array. */
static int read_target_file(const data_request *r, dataset *d)
{
    const char *name;
    const int status = check_target_file(r);
    if (status != EXIT_FINE || r->no_target || !r->target)
        return status;
    void *file = fx_load(r->target);
    if (fx_is_error(file))
        return fail_library(EXIT_BAD_INPUT);
    d->y = fx_is_array(file) ? file : only_array(file, &name);
    d->target = r->target;
    return d->y ? EXIT_FINE
                : fail(EXIT_BAD_INPUT, "--target %s: expected a file with one array, found %lld",
                       r->target, (long long)fx_count(file));
}

static int read_npz(const data_request *r, dataset *d)
{
    static const char *const train[][4] = {{"x", "X", "x_train", NULL},
                                           {"y", "Y", "y_train", NULL}};
    static const char *const test[][4] = {{"x_test", "x", "X", NULL}, {"y_test", "y", "Y", NULL}};
    static const char *const parts[] = {"x_train", "x_test", NULL};
    const char *const given[] = {r->target, NULL};
    void *file = fx_load(r->path);
    const char *name;
    if (fx_is_error(file))
        return fail_library(EXIT_BAD_INPUT);
    d->kind = "npz";
    if (r->part && !first_of(file, parts, &name))
        return fail(EXIT_BAD_INPUT,
                    "--part: %s has no training and test part: it has neither %s nor %s", r->path,
                    parts[0], parts[1]);
    const char *const entry[] = {r->entry, NULL};
    d->x = first_of(file, r->entry ? entry : r->test ? test[0] : train[0], &name);
    const bool alone = !d->x && !r->entry && fx_count(file) == 1;
    d->x = alone ? only_array(file, &name) : d->x;
    if (!d->x)
        return no_entry(r->path, r->entry ? r->entry : "x", file);
    if (r->no_target)
        return EXIT_FINE;
    d->y = first_of(file, r->target ? given : r->test ? test[1] : train[1], &d->target);
    if (alone ||
        (!d->y && r->target && (ends_with(r->target, ".npz") || ends_with(r->target, ".npy"))))
        return read_target_file(r, d);
    if (!d->y && (r->target || !r->unlabelled))
        return no_entry(r->path, r->target ? r->target : "y", file);
    d->target = d->y ? d->target : NULL;
    return EXIT_FINE;
}

static int read_npy(const data_request *r, dataset *d)
{
    d->kind = "npy";
    d->x = fx_load(r->path);
    if (fx_is_error(d->x))
        return fail_library(EXIT_BAD_INPUT);
    const int status = check_target_file(r);
    if (status != EXIT_FINE || r->no_target || !r->target)
        return status;
    d->y = fx_load(r->target);
    d->target = r->target;
    return fx_is_error(d->y) ? fail_library(EXIT_BAD_INPUT) : EXIT_FINE;
}

/* ---- choice of the reader -------------------------------------------------------------------- */

static int read_idx_file(const data_request *r, dataset *d)
{
    const int status = check_target_file(r);
    return status == EXIT_FINE ? read_idx(r, d, r->path, r->target) : status;
}

static bool is_folder(const char *path)
{
    return kind_of_path(path) == PATH_FOLDER;
}

/* Formats of models, which can also hold plain arrays. */
static bool holds_models(const char *path)
{
    static const char *const ends[] = {".bson", ".safetensors", ".checkpoint", ".ckpt"};
    bool found = false;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        found |= ends_with(path, ends[i]);
    return found;
}

/* The kind of a path that is not read as CSV, for messages; NULL: it is read as CSV. */
static const char *other_kind(const char *path)
{
    return is_folder(path)           ? "a folder"
           : is_image_name(path)     ? "an image"
           : ends_with(path, ".npz") ? "an npz file"
           : ends_with(path, ".npy") ? "an npy file"
           : is_idx_name(path)       ? "an IDX file"
                                     : NULL;
}

bool dataset_is_csv(const char *path)
{
    return !other_kind(path);
}

/* Refuses options that only CSV files have if none of the files is one. */
static int check_csv_options(const data_request *r)
{
    const char *name = r->id          ? "id"
                       : r->separator ? "separator"
                       : r->decimal   ? "decimal"
                       : r->skip > 0  ? "skip"
                                      : NULL;
    bool used = !name || (r->other && dataset_is_csv(r->other));
    for (int i = 0; i <= r->more && !used; i++)
        used = dataset_is_csv(dataset_path(r, i));
    return used ? EXIT_FINE
                : fail(EXIT_BAD_INPUT, "--%s: %s is %s, not a CSV file", name, r->path,
                       other_kind(r->path));
}

static int read_data_file(const data_request *r, dataset *d)
{
    return ends_with(r->path, ".npz")   ? read_npz(r, d)
           : ends_with(r->path, ".npy") ? read_npy(r, d)
           : is_idx_name(r->path)       ? read_idx_file(r, d)
                                        : read_csv(r, d);
}

static int read_any(const data_request *r, dataset *d)
{
    const path_kind kind = kind_of_path(r->path);
    const bool image = kind != PATH_FOLDER && is_image_name(r->path);
    if (kind == PATH_ABSENT)
        return fail(EXIT_BAD_INPUT, "%s: %s", r->path, strerror(errno));
    if (holds_models(r->path))
        return fail(EXIT_BAD_INPUT,
                    "%s: files of models and arrays are not data; cflux convert writes their "
                    "arrays to an .npz file",
                    r->path);
    if (r->entry && (kind == PATH_FOLDER || !ends_with(r->path, ".npz")))
        return fail(EXIT_BAD_INPUT, "--entry: %s is not an npz file and has no entries", r->path);
    if (r->part && kind != PATH_FOLDER && !ends_with(r->path, ".npz"))
        return fail(EXIT_BAD_INPUT,
                    "--part: %s has no training and test part, which only npz files and folders "
                    "of images or IDX files have",
                    r->path);
    if (r->tokenizer && kind == PATH_FOLDER)
        return fail(EXIT_BAD_INPUT, "%s is a folder: expected text files", r->path);
    if (r->tokenizer && !input_file_has_end(r->path))
        return fail_library(EXIT_BAD_INPUT);
    if (r->tokenizer)
        return r->context ? read_text_pieces(r, d) : read_text_lines(r, d);
    if (image || (kind == PATH_FOLDER && !has_idx(r) && holds_images(r->path)))
        return read_image_files(r, d);
    if (kind == PATH_FOLDER)
        return read_folder(r, d);
    if (!input_file_has_end(r->path) || (r->target && !input_file_has_end(r->target)))
        return fail_library(EXIT_BAD_INPUT);
    return read_data_file(r, d);
}

static int read_one(const data_request *r, dataset *out)
{
    data_request one = *r;
    one.path = strcmp(r->path, "-") == 0 ? "/dev/stdin" : r->path;
    *out = (dataset){.path = one.path};
    int status = read_any(&one, out);
    if (status != EXIT_FINE)
        return status;
    out->n = observations_of(out->x);
    status = check_counts(out);
    if (r->unlabelled) { /* every observation gets a prediction, also one without a target */
        out->y = NULL;
        out->labels = NULL;
    }
    if (status == EXIT_FINE) /* before rows are dropped: the message has the row's number in the
                                file */
        status = check_finite(out, out->x, words_for_nan(r));
    out->x = one.tokenizer ? out->x : as_features(out->x);
    if (status == EXIT_FINE && !r->unlabelled && r->missing != MISSING_REFUSED)
        status = missing_drop(r, out);
    if (status == EXIT_FINE)
        status = give_shape(r, out);
    if (status == EXIT_FINE)
        status = transpose(r, out);
    if (status == EXIT_FINE && out->y && !out->labels)
        status = check_finite(out, out->y, "NaN");
    return status;
}

fx_array *dataset_lines(const dataset *d)
{
    return d->lines ? d->lines : fx_range_dtype(FX_DTYPE_I64, (double)d->line, 1, d->n);
}

void dataset_location(const dataset *d, int64_t row, char *text, size_t size)
{
    const float *ids = d->ids && strcmp(d->kind, "images") == 0 ? fx_data(d->id) : NULL;
    const int64_t *lines = d->lines ? fx_data(d->lines) : NULL;
    const int64_t *firsts = d->paths ? fx_data(d->firsts) : NULL;
    const char *path = d->path;
    int64_t first = 0;
    for (int64_t i = 0; firsts && i < fx_count(d->paths) && firsts[i] <= row; i++) {
        path = fx_string_text(fx_child(d->paths, i));
        first = firsts[i];
    }
    if (ids)
        snprintf(text, size, "%s", fx_child_name(d->ids, (int64_t)ids[row]));
    else if (d->line)
        snprintf(text, size, "%s: line %lld", path,
                 (long long)(lines ? lines[row] : d->line + row));
    else
        snprintf(text, size, "%s: observation %lld", path, (long long)(row - first + 1));
}

int no_data(void)
{
    return fail(EXIT_BAD_INPUT, "--data is missing: give a file, or - for CSV on standard input");
}

void dataset_inputs(data_request *r, int n, char *const *operands)
{
    const int first = r->data.n == 0 && n > 0; /* an operand without --data */
    if (first)
        r->data.items[r->data.n++] = operands[0];
    r->path = r->data.n > 0 ? r->data.items[0] : NULL;
    r->operands = operands + first;
    r->more = r->data.n > 0 ? r->data.n - 1 + n - first : 0;
}

const char *dataset_path(const data_request *r, int i)
{
    return i == 0 ? r->path : i < r->data.n ? r->data.items[i] : r->operands[i - r->data.n];
}

int dataset_files(const data_request *r)
{
    int files = !is_folder(r->path);
    for (int i = 0; i < r->more; i++)
        files += !is_folder(dataset_path(r, i + 1));
    return files;
}

/* Selects the target of `path`: the next one if each file has its own. */
static void next_target(data_request *r)
{
    const bool has = r->targets.n > 0 && !is_folder(r->path);
    r->target = !has ? NULL : r->targets.items[r->targets.n == 1 ? 0 : r->first++];
}

/* The column names of the first file are looked up in the others. */
int dataset_read(const data_request *r, dataset *out)
{
    const int files = r->files ? r->files : dataset_files(r);
    data_request one = *r;
    if (r->targets.n > 1 && r->targets.n != files)
        return fail(EXIT_BAD_INPUT, "--target is given %d times for %d %s of data", r->targets.n,
                    files, files == 1 ? "file" : "files");
    if (r->targets.n == 1 && files == 0)
        return fail(EXIT_BAD_INPUT, "--target: %s is a folder, which has its own targets", r->path);
    const int checked = r->tokenizer ? EXIT_FINE : check_csv_options(r);
    if (checked != EXIT_FINE)
        return checked;
    one.files = files;
    next_target(&one);
    if (r->more == 0)
        return read_one(&one, out);
    dataset *parts = calloc((size_t)r->more + 1, sizeof *parts);
    int status = parts ? read_one(&one, &parts[0]) : fail(EXIT_FAILED, "out of memory");
    for (int i = 1; i <= r->more && status == EXIT_FINE; i++) {
        one.path = dataset_path(r, i);
        next_target(&one);
        one.columns = one.columns ? one.columns : parts[0].columns;
        status = read_one(&one, &parts[i]);
    }
    if (status == EXIT_FINE)
        status = dataset_join(parts, r->more + 1, out);
    free(parts);
    return status;
}
