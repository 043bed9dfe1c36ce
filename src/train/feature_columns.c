/* feature_columns.c: applies the features of a model to a table: see predict.h. */
#include <cflux/data.h>
#include <cflux/io.h>
#include <cflux/ops.h>
#include <cflux/predict.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"

static const char *const OP = "table_features";

/* ---- columns by name ------------------------------------------------------------------------- */

typedef struct column_name {
    const char *text;
    int64_t index;
} column_name;

static int by_text(const void *a, const void *b)
{
    return strcmp(((const column_name *)a)->text, ((const column_name *)b)->text);
}

/* A table with its column names sorted, because a table may have many thousands of columns. */
typedef struct table_names {
    void *table, *columns;
    column_name *sorted; /* NULL: no memory */
    int64_t n;
} table_names;

static table_names names_of(void *table)
{
    table_names t = {.table = table, .columns = fx_child_named(table, "columns")};
    t.n = fx_count(t.columns);
    t.sorted = fxi_calloc((size_t)t.n + 1, sizeof *t.sorted);
    for (int64_t i = 0; t.sorted && i < t.n; i++)
        t.sorted[i] = (column_name){fx_child_name(t.columns, i), i};
    if (t.sorted)
        qsort(t.sorted, (size_t)t.n, sizeof *t.sorted, by_text);
    return t;
}

/* The first n bytes of a text. */
typedef struct part_of_text {
    const char *text;
    size_t n;
} part_of_text;

static int by_part(const void *part, const void *column)
{
    const part_of_text *p = part;
    const char *name = ((const column_name *)column)->text;
    const int order = strncmp(p->text, name, p->n);
    return order ? order : -(name[p->n] != 0);
}

/* The column whose name, or number from 1, is the first n bytes of `wanted`; −1: none. */
static int64_t find_column(const table_names *t, const char *wanted, size_t n)
{
    char *end;
    const part_of_text key = {wanted, n};
    const column_name *found = bsearch(&key, t->sorted, (size_t)t->n, sizeof *t->sorted, by_part);
    if (found)
        return found->index;
    const long long number = strtoll(wanted, &end, 10);
    return n > 0 && end == wanted + n && number >= 1 && number <= t->n ? number - 1 : -1;
}

/* The column of a feature; −1 if there is none. *out_text: the text "red" of the feature
 * "color=red"; NULL for a column of numbers. The name of a column may contain '=' too. Allocates
 * nothing: a failure would look like a missing column. */
static int64_t find_feature(const table_names *t, const char *wanted, const char **out_text)
{
    int64_t column = find_column(t, wanted, strlen(wanted));
    *out_text = NULL;
    for (const char *at = strchr(wanted, '='); at && column < 0; at = strchr(at + 1, '=')) {
        column = find_column(t, wanted, (size_t)(at - wanted));
        *out_text = at + 1;
    }
    return column;
}

static const char *feature_name(void *features, int64_t i)
{
    return i < fx_count(features) ? fx_string_text(fx_child(features, i)) : NULL;
}

static fx_status check_arguments(void *table, void *features)
{
    bool good = table && features && !fx_is_array(table) && !fx_is_array(features);
    for (int64_t i = 0; good && i < fx_count(features); i++)
        good = feature_name(features, i) != NULL;
    if (good && fx_count(features) > 0 && fx_count(table) >= 4 &&
        strcmp(fx_child_name(table, 1), "columns") == 0)
        return FX_OK;
    return fx_fail(FX_STATUS_ARGUMENT, OP,
                   "expected a table from fx_read_table and a tuple of texts");
}

static fx_status no_memory(void)
{
    return fx_fail(FX_STATUS_MEMORY, OP, "no memory for the features");
}

fx_array *fx_table_columns(void *table, void *features)
{
    const char *text;
    fx_status status = check_arguments(table, features);
    if (status != FX_OK)
        return fx_error_array(status);
    const int64_t n = fx_count(features);
    table_names t = names_of(table);
    int64_t *found = fxi_calloc((size_t)n, sizeof *found);
    for (int64_t i = 0; t.sorted && found && i < n; i++)
        found[i] = find_feature(&t, feature_name(features, i), &text);
    fx_array *columns =
        t.sorted && found ? fx_from(FX_DTYPE_I64, found, n) : fx_error_array(no_memory());
    fxi_free(found);
    fxi_free(t.sorted);
    return columns;
}

/* ---- features -------------------------------------------------------------------------------- */

typedef struct feature_list {
    const table_names *of;
    void *features;
    const char *path;
    const int64_t *skip;
    int64_t nskip;
    int64_t *columns; /* of each feature */
    float *codes;     /* of each feature: the number of its text; NaN for a column of numbers */
    int64_t n;
    bool texts; /* a feature belongs to a text */
} feature_list;

static void add_feature(feature_list *l, int64_t column, float code)
{
    l->columns[l->n] = column;
    l->codes[l->n++] = code;
    l->texts = l->texts || !isnan(code);
}

static bool is_skipped(const feature_list *l, int64_t column)
{
    for (int64_t i = 0; i < l->nskip; i++)
        if (l->skip[i] == column)
            return true;
    return false;
}

static int64_t label_index(void *labels, const char *text)
{
    for (int64_t k = 0; k < fx_count(labels); k++)
        if (strcmp(fx_child_name(labels, k), text) == 0)
            return k;
    return -1;
}

/* The values of a column; NULL on failure (recorded). */
static const float *column_values(const feature_list *l, int64_t column)
{
    return fx_data(fx_slice(fx_child_named(l->of->table, "values"), 0, column, column + 1));
}

static int64_t rows_of(const feature_list *l)
{
    return fx_size(fx_child_named(l->of->table, "values"), 1);
}

/* False if all values of the column are missing: it may then be a column of texts. */
static bool has_numbers(const feature_list *l, int64_t column)
{
    const float *values = column_values(l, column);
    int64_t i = 0;
    while (values && i < rows_of(l) && isnan(values[i]))
        i++;
    return !values || i < rows_of(l);
}

/* The line number of a row. */
static long long line_of(const feature_list *l, int64_t row)
{
    void *lines = fx_child_named(l->of->table, "lines");
    const int64_t *numbers = fx_is_array(lines) ? fx_data(lines) : NULL;
    return numbers ? numbers[row] : (long long)fx_item(fx_child_named(l->of->table, "line")) + row;
}

/* Reports the first row that is not missing: its text made the whole column a text column. */
static fx_status not_a_number(const feature_list *l, int64_t column)
{
    void *columns = l->of->columns;
    const float *values = column_values(l, column);
    int64_t row = 0;
    if (!values)
        return fx_error_status();
    while (row + 1 < rows_of(l) && isnan(values[row]))
        row++;
    return fx_fail(FX_STATUS_FORMAT, OP,
                   "%s: line %lld, column %lld: expected a number for \"%s\", found \"%s\"",
                   l->path, line_of(l, row), (long long)column + 1, fx_child_name(columns, column),
                   isnan(values[row])
                       ? "a text"
                       : fx_child_name(fx_child(columns, column), (int64_t)values[row]));
}

/* Adds the feature named `wanted`. A feature of a text that the file does not contain is 0 in every
 * observation whose text is not missing. */
static fx_status add_wanted(feature_list *l, const char *wanted)
{
    const char *text;
    const int64_t column = find_feature(l->of, wanted, &text);
    if (column < 0)
        return fx_fail(
            FX_STATUS_FORMAT, OP, "%s has no column%s \"%s\"; it has %lld, from \"%s\" to \"%s\"",
            l->path, strchr(wanted, '=') ? " for the feature" : "", wanted, (long long)l->of->n,
            fx_child_name(l->of->columns, 0), fx_child_name(l->of->columns, l->of->n - 1));
    if (is_skipped(l, column))
        return FX_OK;
    void *labels = fx_child(l->of->columns, column);
    if (!text && fx_count(labels) > 0)
        return not_a_number(l, column);
    if (text && fx_count(labels) == 0 && has_numbers(l, column))
        return fx_fail(FX_STATUS_FORMAT, OP,
                       "%s: column \"%s\" contains numbers: expected texts such as \"%s\"", l->path,
                       fx_child_name(l->of->columns, column), text);
    add_feature(l, column, text ? (float)label_index(labels, text) : NAN);
    return FX_OK;
}

/* ---- tables without names -------------------------------------------------------------------- */

/* The number of features of a text column whose first feature has number i: their names are equal
 * up to the first '='. 0 if feature i belongs to no text. */
static int64_t features_of_text(const feature_list *l, int64_t i)
{
    const char *first = feature_name(l->features, i), *next;
    const char *sign = first ? strchr(first, '=') : NULL;
    int64_t n = sign != NULL;
    for (; sign && (next = feature_name(l->features, i + n)); n++)
        if (strncmp(first, next, (size_t)(sign - first) + 1) != 0)
            break;
    return n;
}

/* The number of features of column i of a table without names; `at`: the number of its first
 * feature. */
static int64_t features_of_column(const feature_list *l, int64_t i, int64_t at)
{
    return fx_count(fx_child(l->of->columns, i)) > 0 ? features_of_text(l, at) : 1;
}

bool fx_table_fits(void *table, void *features, fx_array *skip)
{
    if (check_arguments(table, features) != FX_OK)
        return false;
    const table_names t = {.table = table, .columns = fx_child_named(table, "columns")};
    feature_list l = {.of = &t, .features = features, .skip = skip ? fx_data(skip) : NULL};
    l.nskip = l.skip ? fx_length(skip) : 0;
    int64_t at = 0;
    for (int64_t i = 0, n; i < fx_count(t.columns); i++, at += n) {
        n = is_skipped(&l, i) ? 0 : features_of_column(&l, i, at);
        if (n == 0 && !is_skipped(&l, i))
            return false;
    }
    return at == fx_count(features);
}

static fx_status bad_count(const feature_list *l)
{
    const int64_t n = fx_count(l->features);
    return fx_fail(FX_STATUS_FORMAT, OP,
                   "%s has no column names, and its columns do not match those of the training "
                   "data, in this order: \"%s\" to \"%s\", %lld features; add a line of names, or "
                   "if a column is the target, leave it out with skip",
                   l->path, feature_name(l->features, 0), feature_name(l->features, n - 1),
                   (long long)n);
}

/* Assigns the columns of a table without names to the features in order. */
static fx_status features_in_order(feature_list *l)
{
    int64_t at = 0;
    for (int64_t i = 0; i < l->of->n; i++) {
        void *labels = fx_child(l->of->columns, i);
        if (is_skipped(l, i))
            continue;
        const bool texts = fx_count(labels) > 0;
        const int64_t n = features_of_column(l, i, at);
        if (n == 0 || at + n > fx_count(l->features))
            return bad_count(l);
        for (int64_t k = 0; k < n; k++, at++) {
            const char *sign = strchr(feature_name(l->features, at), '=');
            add_feature(l, i, texts ? (float)label_index(labels, sign + 1) : NAN);
        }
    }
    return at == fx_count(l->features) ? FX_OK : bad_count(l);
}

/* ---- texts without a feature ----------------------------------------------------------------- */

/* The first row of a column that has the text with this number. */
static int64_t first_row(const feature_list *l, int64_t column, int64_t code)
{
    const float *values = column_values(l, column);
    int64_t row = 0;
    while (values && row + 1 < rows_of(l) && values[row] != (float)code)
        row++;
    return row;
}

/* Fails if a column contains a text without a feature. i: the first feature of the column. */
static fx_status check_column(const feature_list *l, int64_t i)
{
    const int64_t column = l->columns[i];
    void *labels = fx_child(l->of->columns, column);
    for (int64_t k = 0; k < fx_count(labels); k++) {
        bool known = false;
        for (int64_t j = i; !known && j < l->n && l->columns[j] == column; j++)
            known = l->codes[j] == (float)k;
        if (!known)
            return fx_fail(FX_STATUS_FORMAT, OP,
                           "%s: line %lld: column \"%s\" contains \"%s\", which the first "
                           "training file does not",
                           l->path, line_of(l, first_row(l, column, k)),
                           fx_child_name(l->of->columns, column), fx_child_name(labels, k));
    }
    return FX_OK;
}

static fx_status choose_features(feature_list *l)
{
    fx_status status = FX_OK;
    if (strcmp(fx_child_name(l->of->columns, 0), "1") == 0)
        status = features_in_order(l);
    else
        for (int64_t i = 0; status == FX_OK && i < fx_count(l->features); i++)
            status = add_wanted(l, feature_name(l->features, i));
    for (int64_t i = 0; status == FX_OK && i < l->n; i++)
        if (!isnan(l->codes[i]) && (i == 0 || l->columns[i - 1] != l->columns[i]))
            status = check_column(l, i);
    if (status == FX_OK && l->n == 0)
        status = fx_fail(FX_STATUS_FORMAT, OP, "%s has no columns but the target", l->path);
    return status;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Where a text is missing, all features of its column are NaN. */
static fx_array *values_of(const feature_list *l)
{
    fx_array *values = fx_child_named(l->of->table, "values");
    fx_array *raw = fx_gather(values, fx_from(FX_DTYPE_I64, l->columns, l->n), 0);
    if (!l->texts)
        return raw;
    fx_array *codes = fx_from(FX_DTYPE_F32, l->codes, l->n, 1);
    fx_array *number = fx_isnan(codes), *missing = fx_isnan(raw);
    return fx_where(fx_or(number, missing), raw, fx_cast(fx_eq(raw, codes), FX_DTYPE_F32));
}

fx_array *fx_table_features(void *table, void *features, fx_array *skip, const char *path)
{
    fx_status status = check_arguments(table, features);
    const int64_t *skipped = status == FX_OK && skip ? fx_data(skip) : NULL;
    if (status == FX_OK && skip && (!skipped || fx_eltype(skip) != FX_DTYPE_I64)) {
        char got[100];
        fx_summary(skip, got, sizeof got);
        status = fx_fail(FX_STATUS_ARGUMENT, OP, "skip must be an Int64 vector, got %s", got);
    }
    if (status != FX_OK)
        return fx_error_array(status);
    const size_t most = (size_t)fx_count(features);
    table_names t = names_of(table);
    feature_list l = {.of = &t, .features = features, .path = path ? path : "the table"};
    l.skip = skipped;
    l.nskip = skip ? fx_length(skip) : 0;
    l.columns = fxi_calloc(most, sizeof *l.columns);
    l.codes = fxi_calloc(most, sizeof *l.codes);
    status = t.sorted && l.columns && l.codes ? choose_features(&l) : no_memory();
    fx_array *values = status == FX_OK ? values_of(&l) : fx_error_array(status);
    fxi_free(l.columns);
    fxi_free(l.codes);
    fxi_free(t.sorted);
    return values;
}
