/* command_inspect.c: cflux inspect: shows the contents of a file and warns about problems in it. */
#include "array_stats.h"
#include "clean_text.h"
#include "failure.h"
#include "input_file.h"
#include "options.h"
#include "tree_text.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LABELS_SHOWN = 12 };

static bool as_json, with_stats;
static const char *flux_version;
static option_row options[] = {
    {"stats", 's', OPTION_FLAG, &with_stats, NULL,
     "Print for every array the minimum, maximum, mean and standard deviation (dividing by n − 1) "
     "of its finite values, and the number of NaN and infinite values",
     0, 0},
    OPTION_FLUX_VERSION(&flux_version),
    OPTION_JSON(&as_json),
    OPTIONS_END,
};

typedef struct array_row {
    char *path;
    fx_array *array;
    array_stats stats;
} array_row;

typedef struct report {
    input_file file;
    array_row *rows;
    int64_t n, capacity;
    int64_t parameters, array_bytes;
    char **warnings;
    int64_t nwarnings, warning_capacity;
    object_set inspected; /* objects already checked for warnings */
    bool formula_said;    /* the note about LayerNorm's formula was printed */
    fx_status status;
} report;

static bool grow(void **items, int64_t n, int64_t *capacity, size_t size)
{
    if (n < *capacity)
        return true;
    void *more = realloc(*items, (size_t)(2 * *capacity + 16) * size);
    *items = more ? more : *items;
    *capacity = more ? 2 * *capacity + 16 : *capacity;
    return more;
}

static fx_status no_memory(report *r)
{
    return r->status = fx_fail(FX_STATUS_MEMORY, "inspect", "out of memory");
}

static void add_warning(report *r, const char *format, ...) FXI_PRINTF(2, 3);
static void add_warning(report *r, const char *format, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, format);
    const int n = vasprintf(&text, format, args);
    va_end(args);
    if (n < 0 ||
        !grow((void **)&r->warnings, r->nwarnings, &r->warning_capacity, sizeof *r->warnings))
        no_memory(r);
    else
        r->warnings[r->nwarnings++] = text;
}

/* ---- inspection ------------------------------------------------------------------------------ */

static void add_array(fx_array *x, const char *path, bool trainable, void *user)
{
    report *r = user;
    (void)trainable;
    char *copy = strdup(path);
    if (!copy || !grow((void **)&r->rows, r->n, &r->capacity, sizeof *r->rows)) {
        free(copy);
        no_memory(r);
        return;
    }
    r->rows[r->n++] = (array_row){.path = copy, .array = x};
    r->array_bytes += fx_length(x) * (int64_t)fx_dtype_size(fx_eltype(x));
}

/* Every column of a CSV file is an array of its own. */
static void add_columns(report *r)
{
    fx_array *values = fx_child(r->file.entries, 0);
    for (int64_t i = 0; i < fx_count(r->file.columns); i++)
        add_array(fx_vec(fx_slice(values, 0, i, i + 1)), fx_child_name(r->file.columns, i), true,
                  r);
}

static void warn_of_numbers(report *r, array_row *row)
{
    if (r->status != FX_OK)
        return;
    r->status = array_stats_of(row->array, &row->stats);
    /* The counts of fx_train in a checkpoint contain an infinite number before the first best
     * epoch.
     */
    const bool counts = strcmp(row->path, "metrics.train") == 0;
    if (!counts && (row->stats.nan || row->stats.inf))
        add_warning(r, "%s has %" PRId64 " NaN and %" PRId64 " infinite of %" PRId64 " elements",
                    row->path, row->stats.nan, row->stats.inf, fx_length(row->array));
}

/* Notes that a BSON file does not store which of Flux's formulas its LayerNorms use. */
static void say_formula(report *r, const void *object)
{
    const fx_type *type = fx_type_of(object);
    if (r->formula_said || strcmp(r->file.format, "BSON") != 0 ||
        strcmp(type->name, "LayerNorm") != 0 || type->size != sizeof(fx_layernorm_layer))
        return;
    const double flux = ((const fx_layernorm_layer *)object)->flux;
    r->formula_said = true;
    add_warning(r, "LayerNorm divides by %s: %s",
                flux == 0.14   ? "σ + ε, as Flux until 0.14"
                : flux == 0.15 ? "√(σ² + ε²), as Flux 0.15 to 0.16.10"
                               : "√(σ² + ε), as Flux 0.16.11 and later",
                flux_version
                    ? "chosen by --flux-version"
                    : "the newest formula possible for this file; --flux-version chooses another");
}

/* Warns about structs for which the library has no layer. */
static void warn_of_structs(report *r, void *object, const char *path)
{
    char name[200], below[600];
    const tree_kind kind = tree_kind_of(object);
    if (tree_is_of_optimiser(object))
        return;
    if (kind == TREE_STRUCT) {
        tree_struct_name(object, name, sizeof name);
        add_warning(r,
                    "%s is a %s, which is not a layer of this library: its arrays can be read, but "
                    "it cannot be called",
                    path, name);
    }
    if (kind < TREE_TUPLE || object_set_has(&r->inspected, object))
        return;
    if (!object_set_add(&r->inspected, object)) {
        no_memory(r);
        return;
    }
    say_formula(r, object);
    for (int64_t i = 0; i < fx_count(object); i++) {
        const char *child = fx_child_name(object, i);
        char number[24];
        snprintf(number, sizeof number, "%" PRId64, i);
        snprintf(below, sizeof below, "%.500s%s%.60s", path, *path ? "." : "",
                 *child ? child : number);
        warn_of_structs(r, fx_child(object, i), below);
    }
}

/* Counts the parameters of layers and structs. Arrays outside them are not parameters. */
static int64_t parameters_of(report *r, object_set *seen, void *object)
{
    const tree_kind kind = tree_kind_of(object);
    int64_t n = 0;
    if (kind < TREE_TUPLE || object_set_has(seen, object))
        return 0;
    if (!object_set_add(seen, object))
        no_memory(r);
    if (kind == TREE_LAYER || (kind == TREE_STRUCT && !tree_is_of_optimiser(object)))
        return fx_parameter_count(object);
    for (int64_t i = 0; kind == TREE_TUPLE && r->status == FX_OK && i < fx_count(object); i++)
        n += parameters_of(r, seen, fx_child(object, i));
    return n;
}

static bool inspect_file(const char *path, report *r)
{
    if (!input_file_read(path, &r->file))
        return false;
    if (*r->file.notice)
        add_warning(r, "%s", r->file.notice);
    if (r->file.columns)
        add_columns(r);
    else
        fx_visit(r->file.entries, add_array, r);
    object_set seen = {0};
    r->parameters = parameters_of(r, &seen, r->file.entries);
    object_set_free(&seen);
    if (r->parameters == 0 && !r->file.table) /* the file has only arrays */
        r->parameters = fx_parameter_count(r->file.entries);
    warn_of_structs(r, r->file.entries, "");
    for (int64_t i = 0; i < r->n; i++)
        warn_of_numbers(r, &r->rows[i]);
    return r->status == FX_OK;
}

/* ---- as text --------------------------------------------------------------------------------- */

static void print_head(const input_file *file)
{
    put_clean(stdout, file->path, 0);
    printf(": %s, %" PRId64 " bytes%s", file->format, file->bytes, *file->origin ? ", " : "");
    put_clean(stdout, file->origin, 0);
    putchar('\n');
}

static void print_stats(const report *r)
{
    int width = 5;
    for (int64_t i = 0; i < r->n; i++) {
        const int columns = put_clean(NULL, r->rows[i].path, 0);
        width = columns > width ? columns : width;
    }
    printf("\n%-*s %12s %12s %12s %12s %8s %8s\n", width, "array", "min", "max", "mean", "std",
           "NaN", "Inf");
    for (int64_t i = 0; i < r->n; i++) {
        const array_stats *s = &r->rows[i].stats;
        printf("%*s", width - put_clean(stdout, r->rows[i].path, 0), "");
        printf(" %12.6g %12.6g %12.6g", s->min, s->max, s->mean);
        s->n == 1 ? printf(" %12s", "-") : printf(" %12.6g", s->std);
        printf(" %8" PRId64 " %8" PRId64 "\n", s->nan, s->inf);
    }
}

/* "species: setosa (50), versicolor (50)": labels with their numbers of rows. */
static void print_columns(void *columns)
{
    for (int64_t i = 0; columns && i < fx_count(columns); i++) {
        void *labels = fx_child(columns, i);
        fputs("  ", stdout);
        put_clean(stdout, fx_child_name(columns, i), 0);
        const int64_t n = fx_count(labels), shown = n > LABELS_SHOWN ? LABELS_SHOWN : n;
        for (int64_t k = 0; k < shown; k++) {
            fputs(k ? ", " : ": ", stdout);
            put_clean(stdout, fx_child_name(labels, k), 0);
            printf(" (%.0f)", fx_item(fx_child(labels, k)));
        }
        printf(n > shown ? ", … %" PRId64 " more\n" : "\n", n - shown);
    }
}

static void print_report(const report *r)
{
    tree_shown shown = {.n = 0};
    print_head(&r->file);
    putchar('\n');
    for (int64_t i = 0; i < fx_count(r->file.entries); i++)
        tree_print(stdout, &shown, fx_child_name(r->file.entries, i), fx_child(r->file.entries, i),
                   0);
    object_set_free(&shown.objects);
    print_columns(r->file.columns);
    printf("\n%" PRId64 " %s%s, ", r->n, r->file.columns ? "column" : "array",
           r->n == 1 ? "" : "s");
    if (!r->file.table)
        printf("%" PRId64 " parameters, ", r->parameters);
    printf("%" PRId64 " bytes of numbers\n", r->array_bytes);
    if (with_stats)
        print_stats(r);
    for (int64_t i = 0; i < r->nwarnings; i++) {
        fputs(i ? "warning: " : "\nwarning: ", stdout);
        put_clean(stdout, r->warnings[i], 0);
        putchar('\n');
    }
}

/* ---- as JSON --------------------------------------------------------------------------------- */

static void json_head(fx_json *j, const input_file *file)
{
    fx_json_open(j, NULL, '{');
    fx_json_text(j, "path", file->path);
    fx_json_text(j, "format", *file->format ? file->format : NULL);
    fx_json_integer(j, "bytes", file->bytes);
    fx_json_text(j, "origin", *file->origin ? file->origin : NULL);
}

static void json_stats(fx_json *j, const array_stats *s)
{
    fx_json_number(j, "min", s->min);
    fx_json_number(j, "max", s->max);
    fx_json_number(j, "mean", s->mean);
    fx_json_number(j, "std", s->std);
    fx_json_integer(j, "nan", s->nan);
    fx_json_integer(j, "inf", s->inf);
}

static void json_columns(fx_json *j, void *columns)
{
    fx_json_open(j, "columns", '[');
    for (int64_t i = 0; i < fx_count(columns); i++) {
        void *labels = fx_child(columns, i);
        fx_json_open(j, NULL, '{');
        fx_json_text(j, "name", fx_child_name(columns, i));
        if (fx_count(labels) > 0)
            fx_json_open(j, "labels", '{');
        for (int64_t k = 0; k < fx_count(labels); k++)
            fx_json_integer(j, fx_child_name(labels, k), (int64_t)fx_item(fx_child(labels, k)));
        if (fx_count(labels) > 0)
            fx_json_close(j);
        fx_json_close(j);
    }
    fx_json_close(j);
}

static void json_report(const report *r)
{
    fx_json j = {.to = stdout};
    json_head(&j, &r->file);
    fx_json_open(&j, "entries", '[');
    tree_shown shown = {.n = 0};
    for (int64_t i = 0; i < fx_count(r->file.entries); i++)
        tree_json(&j, &shown, fx_child_name(r->file.entries, i), fx_child(r->file.entries, i));
    fx_json_close(&j);
    object_set_free(&shown.objects);
    if (r->file.columns)
        json_columns(&j, r->file.columns);
    fx_json_integer(&j, "parameters", r->parameters);
    fx_json_integer(&j, "array_bytes", r->array_bytes);
    fx_json_open(&j, "arrays", '[');
    for (int64_t i = 0; i < r->n; i++) {
        fx_json_open(&j, NULL, '{');
        fx_json_text(&j, "path", r->rows[i].path);
        tree_json_sizes(&j, r->rows[i].array);
        if (with_stats)
            json_stats(&j, &r->rows[i].stats);
        fx_json_close(&j);
    }
    fx_json_close(&j);
    fx_json_open(&j, "warnings", '[');
    for (int64_t i = 0; i < r->nwarnings; i++)
        fx_json_text(&j, NULL, r->warnings[i]);
    fx_json_close(&j);
    fx_json_text(&j, "refused", NULL);
    fx_json_end(&j);
}

static void json_refused(const input_file *file, const char *why)
{
    fx_json j = {.to = stdout};
    json_head(&j, file);
    fx_json_text(&j, "refused", why);
    fx_json_end(&j);
}

/* ---- the command ----------------------------------------------------------------------------- */

static void free_report(report *r)
{
    for (int64_t i = 0; i < r->n; i++)
        free(r->rows[i].path);
    for (int64_t i = 0; i < r->nwarnings; i++)
        free(r->warnings[i]);
    free(r->rows);
    free(r->warnings);
    object_set_free(&r->inspected);
}

/* The reason of a refusal. The library's list of extensions does not contain that of tables, which
 * fx_load does not read. */
static const char *refusal(const fx_error *why, char *text, size_t size)
{
    static const char extensions[] = "its extension is not one of ";
    const char *sentence = table_sentence(why, "cflux train ", text, size);
    if (!strstr(sentence, extensions))
        return sentence;
    /* The sentence may be in `text` already. */
    const size_t n = strlen(sentence);
    if (sentence != text)
        snprintf(text, size, "%s", sentence);
    if (n < size)
        snprintf(text + n, size - n, ", .csv");
    return text;
}

static int run_inspect(int n, char **operands)
{
    (void)n;
    report r = {.status = FX_OK};
    int status = EXIT_FINE;
    if (fx_load_flux_version(flux_version) != FX_OK)
        return fail(EXIT_BAD_INPUT, "%s", fx_error_take().message);
    if (inspect_file(operands[0], &r)) {
        (as_json ? json_report : print_report)(&r);
    } else {
        const fx_error why = fx_error_take();
        char text[2048];
        const char *sentence = refusal(&why, text, sizeof text);
        if (as_json)
            json_refused(&r.file, sentence);
        else if (*r.file.format)
            print_head(&r.file);
        status =
            fail(why.status == FX_STATUS_MEMORY ? EXIT_FAILED : EXIT_BAD_INPUT, "%s", sentence);
    }
    free_report(&r);
    return status;
}

const command command_inspect = {
    .name = "inspect",
    .summary = "Show the content of a file of models or arrays",
    .operands = "FILE",
    .least = 1,
    .most = 1,
    .examples = "cflux inspect digits.bson\n"
                "cflux inspect --stats digits.bson\n",
    .about =
        "Reads BSON, safetensors, NumPy's .npy and .npz, checkpoints, IDX and .csv (.gz or not) "
        "and prints the format, the versions of Flux that may have written the file, the tree in "
        "Flux's notation, the number of parameters and bytes, and warnings: NaN, unknown layers. "
        "For an invalid file it prints the reason and the offset. inspect never runs code from a "
        "file.",
    .options = options,
    .run = run_inspect,
};
