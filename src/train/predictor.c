/* predictor.c: predictions of models that the command line saved: see predict.h. */
#include <cflux/data.h>
#include <cflux/device.h>
#include <cflux/io.h>
#include <cflux/nn.h>
#include <cflux/ops.h>
#include <cflux/predict.h>
#include <cflux/tokenizer.h>
#include <string.h>

#include "memory.h"
#include "predictor_parts.h"

enum { BATCH = 256, TARGETS_AT_MOST = 64, NAME_BYTES = 400 };
static const char *const OP = "predict";

/* ---- entries --------------------------------------------------------------------------------- */

static bool is_tuple(const void *object)
{
    const fx_type *type = object && !fx_is_array(object) ? fx_type_of(object) : NULL;
    return type && (type->flags & FX_TYPE_TUPLE);
}

static bool is_model(const void *object)
{
    return object && !fx_is_array(object) && fx_type_of(object)->forward;
}

void *fxi_predictor_entry(const void *entries, const char *name)
{
    for (int64_t i = 0; is_tuple(entries) && i < fx_count(entries); i++)
        if (strcmp(fx_child_name(entries, i), name) == 0)
            return fx_child(entries, i);
    return NULL;
}

static void *entry(const void *entries, const char *name)
{
    return fxi_predictor_entry(entries, name);
}

const char *fxi_predictor_about(const void *predictor, const char *name)
{
    const void *text = entry(entry(predictor, "about"), name);
    return text ? fx_string_text(text) : NULL;
}

fx_status fxi_predictor_check(const char *op, const void *predictor)
{
    const fx_status status = fxi_predictor_status(predictor);
    if (status != FX_OK || is_model(entry(predictor, "model")))
        return status;
    return fx_fail(FX_STATUS_ARGUMENT, op, "expected a predictor from fx_load_predictor");
}

int64_t fxi_predictor_context(const void *predictor)
{
    int64_t context = 0;
    const char *kind = fxi_predictor_about(predictor, "kind");
    fx_array *shape = entry(predictor, "shape");
    const bool forecasts = kind && strcmp(kind, FXI_KIND_LANGUAGE) == 0;
    if (!forecasts || !entry(predictor, "merges") || !shape || fx_length(shape) != 1)
        return 0;
    return fx_read_as(shape, FX_DTYPE_I64, &context, 1) == FX_OK ? context : 0;
}

/* The entry "model", or the only one that can be called. */
static void *find_model(void *entries)
{
    void *model = entry(entries, "model"), *other = NULL;
    int found = 0;
    for (int64_t i = 0; is_tuple(entries) && i < fx_count(entries); i++)
        if (is_model(fx_child(entries, i))) {
            other = fx_child(entries, i);
            found++;
        }
    model = is_model(model) ? model : found == 1 ? other : NULL;
    return model;
}

/* True if the object is a tuple of at least this many texts. */
static bool are_texts(const void *object, int64_t least)
{
    bool good = is_tuple(object) && fx_count(object) >= least;
    for (int64_t i = 0; good && i < fx_count(object); i++)
        good = fx_string_text(fx_child(object, i)) != NULL;
    return good;
}

/* Reads the sizes of an observation. Returns its number of elements; 0 if `shape` is not a list of
 * sizes. */
static int64_t sizes_of(fx_array *shape, int64_t sizes[FX_MAX_DIMS])
{
    const int64_t n = fx_is_array(shape) && fx_ndims(shape) == 1 ? fx_length(shape) : 0;
    int64_t each = n > 0 && n < FX_MAX_DIMS && fx_eltype(shape) == FX_DTYPE_I64;
    if (each && fx_read_as(shape, FX_DTYPE_I64, sizes, n) != FX_OK)
        each = 0;
    for (int64_t i = 0; each && i < n; i++)
        if (sizes[i] < 1 || __builtin_mul_overflow(each, sizes[i], &each))
            each = 0;
    return each;
}

/* True if the array fits observations of these sizes (any sizes if `shape` is unknown). */
static bool is_scale(const fx_array *x, const fx_array *shape, const int64_t *sizes)
{
    bool good = fx_is_array(x) && (!shape || fx_ndims(x) == fx_length(shape));
    for (int k = 0; good && shape && k < fx_ndims(x); k++)
        good = fx_size(x, k) == 1 || fx_size(x, k) == sizes[k];
    return good;
}

/* True if the entry is missing, or a matrix of the merges of a tokenizer. */
static bool are_merges(const void *x)
{
    return !x || (fx_is_array(x) && fx_ndims(x) == 2 && fx_size(x, 0) == 2 &&
                  (fx_eltype(x) == FX_DTYPE_I32 || fx_eltype(x) == FX_DTYPE_I64));
}

/* The name of an entry that does not have the form that its name requires; NULL if all are valid.
 */
static const char *invalid_entry(const void *entries)
{
    static const char *const scales[] = {"mean", "std", "fill"};
    int64_t sizes[FX_MAX_DIMS] = {0};
    fx_array *shape = entry(entries, "shape");
    void *columns = entry(entries, "columns"), *classes = entry(entries, "classes");
    if (shape && sizes_of(shape, sizes) <= 0)
        return "shape";
    if (columns && !are_texts(columns, 1))
        return "columns";
    if (classes && !are_texts(classes, 2))
        return "classes";
    if (!entry(entries, "mean") != !entry(entries, "std"))
        return entry(entries, "mean") ? "std" : "mean";
    for (int i = 0; i < 3; i++)
        if (entry(entries, scales[i]) && !is_scale(entry(entries, scales[i]), shape, sizes))
            return scales[i];
    return are_merges(entry(entries, "merges")) ? NULL : "merges";
}

void *fx_predictor(const char *path, void *entries)
{
    static const char *const all[] = {"model", "about", "shape", "columns", "classes",
                                      "mean",  "std",   "fill",  "merges"};
    enum { ENTRIES = sizeof all / sizeof all[0] };
    const char *names[ENTRIES];
    void *items[ENTRIES];
    int n = 0;
    path = path ? path : "the file";
    if (fxi_predictor_status(entries) == FX_OK)
        entries = fxi_predictor_entries(path, entries);
    if (fxi_predictor_status(entries) != FX_OK)
        return fx_error_array(fxi_predictor_status(entries));
    void *model = find_model(entries);
    if (!model)
        return fx_error_array(fx_fail(FX_STATUS_FORMAT, OP,
                                      "%s contains no model: cflux inspect shows its content, and "
                                      "cflux convert --model NOTATION makes a model of arrays",
                                      path));
    const char *invalid = invalid_entry(entries);
    if (invalid)
        return fx_error_array(fx_fail(FX_STATUS_FORMAT, OP,
                                      "%s: the entry \"%s\" is missing or invalid", path, invalid));
    for (int i = 0; i < ENTRIES; i++) {
        void *item = i == 0 ? model : entry(entries, all[i]);
        if (item) {
            names[n] = all[i];
            items[n++] = item;
        }
    }
    return fx_named_tuple_from(n, names, items);
}

void *fx_load_predictor(const char *path)
{
    FXI_SCOPE;
    return fx_keep(fx_predictor(path, fx_load_entries(path, NULL)));
}

/* ---- prediction ------------------------------------------------------------------------------ */

static fx_array *no_observations(void)
{
    return fx_error_array(fx_fail(FX_STATUS_SHAPE, OP,
                                  "expected observations along the final axis of x, found none"));
}

/* Reshapes x to `sizes` with the first two axes exchanged, and exchanges them. */
static fx_array *transposed(fx_array *x, int ndims, const int64_t *sizes)
{
    int64_t raw[FX_MAX_DIMS], axes[FX_MAX_DIMS];
    for (int i = 0; i < ndims; i++) {
        axes[i] = i < 2 ? 1 - i : i;
        raw[i] = sizes[axes[i]];
    }
    return fxi_permute(fxi_reshape(x, ndims, raw), ndims, axes);
}

/* Reshapes the observations to the sizes of the training data. */
static fx_array *shaped(void *predictor, fx_array *x)
{
    int64_t sizes[FX_MAX_DIMS];
    fx_array *shape = entry(predictor, "shape");
    const int last = fx_ndims(x) - 1;
    const int64_t n = last > 0 ? fx_size(x, last) : 0;
    if (n == 0)
        return no_observations();
    const int64_t each = shape ? sizes_of(shape, sizes) : 0;
    if (!shape)
        return x;
    if (each != fx_length(x) / n)
        return fx_error_array(fx_fail(FX_STATUS_SHAPE, OP,
                                      "the model takes %lld numbers per observation, got %lld",
                                      (long long)each, (long long)(fx_length(x) / n)));
    const int ndims = (int)fx_length(shape);
    sizes[ndims] = n;
    return fxi_predictor_about(predictor, "transpose") && ndims > 1
               ? transposed(x, ndims + 1, sizes)
               : fxi_reshape(x, ndims + 1, sizes);
}

/* Replaces missing values, then scales: in Float64, as in training. */
static fx_array *scaled(void *predictor, fx_array *x)
{
    fx_array *fill = entry(predictor, "fill"), *mean = entry(predictor, "mean");
    if (fill) {
        fill = fx_cpu(fill);
        x = fx_where(fx_isnan(x), fx_unsqueeze(fill, fx_ndims(fill)), x);
    }
    if (!mean)
        return x;
    fx_array *std = fx_cpu((fx_array *)entry(predictor, "std"));
    return fx_div(fx_sub(fx_cast(x, FX_DTYPE_F64), fx_cpu(mean)), std);
}

static void find_double(fx_array *x, const char *path, bool trainable, void *user)
{
    (void)path, (void)trainable;
    if (fx_eltype(x) == FX_DTYPE_F64)
        *(fx_dtype *)user = FX_DTYPE_F64;
}

/* The element type of the model's input: Float64 if the model has a Float64 array. */
static fx_dtype input_type(void *predictor)
{
    fx_dtype type = FX_DTYPE_F32;
    fx_visit(entry(predictor, "model"), find_double, &type);
    return type;
}

/* The input of the model for some observations. */
static void *input_of(void *predictor, fx_dtype type, fx_array *x)
{
    if (fxi_predictor_context(predictor) > 0)
        return x;
    return entry(predictor, "merges") ? fx_token_bags(x) : fx_cast(scaled(predictor, x), type);
}

/* The outputs for one batch, evaluated, on the CPU; the scope of the caller owns them. */
static fx_array *predict_batch(void *predictor, fx_device *device, fx_dtype type, fx_array *x)
{
    FXI_SCOPE;
    fx_array *y =
        fx_cpu(fx_call(entry(predictor, "model"), fx_to(device, input_of(predictor, type, x))));
    const fx_status status = fx_eval(y);
    return fx_keep(status == FX_OK ? y : fx_error_array(status));
}

static fx_array *predict_batches(void *predictor, fx_array *x)
{
    const int last = fx_ndims(x) - 1;
    const int64_t n = fx_size(x, last), batches = (n + BATCH - 1) / BATCH;
    fx_device *device = fx_device_of(entry(predictor, "model"));
    const fx_dtype type = input_type(predictor);
    fx_array **parts = fxi_calloc((size_t)batches, sizeof *parts);
    fx_status status =
        parts ? FX_OK : fx_fail(FX_STATUS_MEMORY, OP, "no memory for the predictions");
    for (int64_t i = 0; status == FX_OK && i < batches; i++) {
        const int64_t end = (i + 1) * BATCH < n ? (i + 1) * BATCH : n;
        parts[i] = predict_batch(predictor, device ? device : fx_cpu_device(), type,
                                 fx_slice(x, last, i * BATCH, end));
        status = fx_is_error(parts[i]) ? fx_array_status(parts[i]) : FX_OK;
    }
    fx_array *all =
        status == FX_OK ? fxi_concat(fx_ndims(parts[0]) - 1, (int)batches, parts) : NULL;
    if (all)
        status = fx_eval(all);
    fxi_free(parts);
    return status == FX_OK ? all : fx_error_array(status);
}

/* x on the CPU if it has ids of texts; otherwise an error array. */
static fx_array *ids_of(fx_array *x)
{
    const bool integers = fx_eltype(x) == FX_DTYPE_I32 || fx_eltype(x) == FX_DTYPE_I64;
    if (!integers || fx_ndims(x) != 2)
        return fx_error_array(fx_fail(FX_STATUS_SHAPE, OP,
                                      "the model takes texts as a matrix of ids: use "
                                      "fx_predict_texts or fx_tokenizer_encode_texts"));
    return fx_size(x, 1) > 0 ? fx_cpu(x) : no_observations();
}

fx_array *fx_predict(void *predictor, fx_array *x)
{
    FXI_OPEN_AT(FXI_SCOPE_TEST, NULL, 0);
    const fx_status wrong = fxi_predictor_check(OP, predictor);
    if (wrong != FX_OK)
        return fx_error_array(wrong);
    if (!fx_is_array(x) || fx_is_error(x))
        return fx_is_array(x)
                   ? x
                   : fx_error_array(fx_fail(FX_STATUS_ARGUMENT, OP, "x must be an array, got %s",
                                            x ? fx_type_of(x)->name : "NULL"));
    const fx_dtype type = fx_eltype(x) == FX_DTYPE_F64 ? FX_DTYPE_F64 : FX_DTYPE_F32;
    x = entry(predictor, "merges") ? ids_of(x) : shaped(predictor, fx_cpu(fx_cast(x, type)));
    return fx_is_error(x) ? x : fx_keep(predict_batches(predictor, x));
}

fx_array *fx_predict_texts(void *predictor, int64_t n, const char *const *texts)
{
    int64_t most = 0;
    fx_array *merges = entry(predictor, "merges"), *shape = entry(predictor, "shape");
    FXI_SCOPE;
    const fx_status wrong = fxi_predictor_check(OP, predictor);
    if (wrong != FX_OK)
        return fx_error_array(wrong);
    if (!merges)
        return fx_error_array(
            fx_fail(FX_STATUS_ARGUMENT, OP, "the model was not trained on texts"));
    if (fxi_predictor_context(predictor) > 0)
        return fx_error_array(fx_fail(FX_STATUS_ARGUMENT, OP,
                                      "the model is a language model: fx_generate continues a "
                                      "text with it"));
    if (shape && fx_length(shape) == 1)
        fx_read_as(shape, FX_DTYPE_I64, &most, 1);
    fx_array *ids = fx_tokenizer_encode_texts(fx_tokenizer_from_merges(merges), n, texts, most);
    return fx_keep(fx_is_error(ids) ? ids : fx_predict(predictor, ids));
}

/* ---- tables ---------------------------------------------------------------------------------- */

/* Copies the next name of a list such as `height,"a, b"`. Returns the rest of the list. */
static const char *next_name(const char *list, char name[NAME_BYTES])
{
    bool quoted = false;
    size_t n = 0;
    for (; *list && (quoted || *list != ','); list++) {
        const bool doubled = quoted && list[0] == '"' && list[1] == '"';
        if (*list == '"' && !doubled) {
            quoted = !quoted;
            continue;
        }
        list += doubled;
        if (n + 1 < NAME_BYTES)
            name[n++] = *list;
    }
    name[n] = 0;
    return list + (*list == ',');
}

/* The positions of the target columns `height,"a, b"` in a table; NULL if a column is missing. */
static fx_array *target_columns(void *table, const char *target)
{
    void *names[TARGETS_AT_MOST] = {fx_string(target)};
    char name[NAME_BYTES];
    fx_array *found = fx_table_columns(table, fxi_tuple(1, names));
    int n = 0;
    if (fx_is_error(found) || fx_item(found) >= 0)
        return found;
    while (*target && n < TARGETS_AT_MOST) {
        target = next_name(target, name);
        names[n++] = fx_string(name);
    }
    found = fx_table_columns(table, fxi_tuple(n, names));
    return fx_is_error(found) || fx_item(fx_minimum(found)) >= 0 ? found : NULL;
}

/* The inputs from a table of numbers, for a predictor without names: all columns if the model takes
 * that many, otherwise all except the targets (default: the last column). A new array, because the
 * table owns the array of its values. */
static fx_array *numbers_of(void *predictor, void *table, const char *path)
{
    int64_t sizes[FX_MAX_DIMS], n = 0;
    fx_array *values = fx_child_named(table, "values"), *shape = entry(predictor, "shape");
    const int64_t columns = fx_size(values, 0), last = columns - 1;
    const int64_t each = shape ? sizes_of(shape, sizes) : columns;
    const char *kind = fxi_predictor_about(predictor, "kind"),
               *target = fxi_predictor_about(predictor, "target");
    fx_array *targets = each == columns ? NULL
                        : kind && target && strcmp(kind, "csv") == 0
                            ? target_columns(table, target)
                            : fx_from(FX_DTYPE_I64, &last, 1);
    const int64_t *skip = targets ? fx_data(targets) : NULL;
    const int64_t nskip = skip ? fx_length(targets) : 0;
    int64_t *kept = fxi_calloc((size_t)columns, sizeof *kept);
    for (int64_t i = 0; kept && i < columns; i++) {
        bool is_target = false;
        for (int64_t k = 0; !is_target && k < nskip; k++)
            is_target = skip[k] == i;
        if (!is_target)
            kept[n++] = i;
    }
    fx_status status = kept ? FX_OK : fx_fail(FX_STATUS_MEMORY, OP, "no memory for the columns");
    if (status == FX_OK && n != each)
        status = fx_fail(FX_STATUS_FORMAT, OP,
                         "%s has %lld columns, but the model takes %lld numbers per observation",
                         path, (long long)columns, (long long)each);
    values = status == FX_OK ? fx_gather(values, fx_from(FX_DTYPE_I64, kept, n), 0)
                             : fx_error_array(status);
    fxi_free(kept);
    return values;
}

/* The features of a table in the form that the predictor needs. */
static fx_array *features_of(void *predictor, void *table, const char *path)
{
    void *features = entry(predictor, "columns"), *columns = fx_child_named(table, "columns");
    const bool named = strcmp(fx_child_name(columns, 0), "1") != 0;
    const int64_t n = fx_count(columns);
    if (features) {
        const char *target = fxi_predictor_about(predictor, "target");
        const bool has_target = !named && target && !fx_table_fits(table, features, NULL);
        return fx_table_features(table, features, has_target ? target_columns(table, target) : NULL,
                                 path);
    }
    for (int64_t i = 0; i < n; i++)
        if (fx_count(fx_child(columns, i)) > 0)
            return fx_error_array(fx_fail(
                FX_STATUS_FORMAT, OP, "%s: line %lld, column %lld: expected a number, found \"%s\"",
                path, (long long)fx_item(fx_child_named(table, "line")), (long long)i + 1,
                fx_child_name(fx_child(columns, i), 0)));
    return numbers_of(predictor, table, path);
}

fx_array *fx_predict_csv(void *predictor, const char *path)
{
    FXI_SCOPE;
    const fx_status wrong = fxi_predictor_check(OP, predictor);
    if (wrong != FX_OK)
        return fx_error_array(wrong);
    const char *mark = fxi_predictor_about(predictor, "decimal");
    void *table = fx_read_table(path, .missing = entry(predictor, "fill") != NULL,
                                .decimal = mark && strcmp(mark, ",") == 0 ? ',' : '.');
    if (fx_is_error(table))
        return fx_error_array(fx_array_status(table));
    return fx_keep(fx_predict(predictor, features_of(predictor, table, path)));
}

/* ---- classes --------------------------------------------------------------------------------- */

const char *fx_class_name(const void *predictor, int64_t k)
{
    const void *classes = entry(predictor, "classes");
    return classes && k >= 0 && k < fx_count(classes) ? fx_string_text(fx_child(classes, k)) : NULL;
}

/* The number of classes. */
static fx_status count_classes(const void *predictor, int64_t *out_n)
{
    const void *classes = entry(predictor, "classes");
    const fx_status status = fxi_predictor_status(predictor);
    *out_n = classes ? fx_count(classes) : 0;
    if (status != FX_OK || classes)
        return status;
    return fx_fail(FX_STATUS_ARGUMENT, OP, "the predictor has no classes");
}

fx_array *fx_predicted_classes(void *predictor, fx_array *y)
{
    int64_t n;
    const fx_status wrong = count_classes(predictor, &n);
    return wrong == FX_OK ? fx_output_classes(fxi_predictor_about(predictor, "loss"), n, y)
                          : fx_error_array(wrong);
}

fx_array *fx_predicted_probabilities(void *predictor, fx_array *y)
{
    int64_t n;
    const fx_status wrong = count_classes(predictor, &n);
    return wrong == FX_OK ? fx_output_probabilities(fxi_predictor_about(predictor, "loss"), n, y)
                          : fx_error_array(wrong);
}
