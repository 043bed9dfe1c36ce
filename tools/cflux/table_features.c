/* table_features.c: chooses the features of a table: see table_features.h. */
#include "table_features.h"
#include "failure.h"
#include "nearest.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NAMES_AT_MOST = 4096, MOST_TEXTS = 100 };

/* ---- columns --------------------------------------------------------------------------------- */

int no_column(const char *path, const char *wanted, void *columns)
{
    const char *names[NAMES_AT_MOST];
    int n = 0;
    char *end;
    strtoll(wanted, &end, 10);
    if (end != wanted && !*end)
        return fail(EXIT_BAD_INPUT, "%s has no column \"%s\": columns are numbered from 1 to %lld",
                    path, wanted, (long long)fx_count(columns));
    for (; n < fx_count(columns) && n < NAMES_AT_MOST; n++)
        names[n] = fx_child_name(columns, n);
    const char *near = nearest(wanted, names, n);
    if (near)
        return fail(EXIT_BAD_INPUT, "%s has no column \"%s\"; did you mean \"%s\"?", path, wanted,
                    near);
    return fail(EXIT_BAD_INPUT, "%s has no column \"%s\"; it has %lld, from \"%s\" to \"%s\"", path,
                wanted, (long long)fx_count(columns), fx_child_name(columns, 0),
                fx_child_name(columns, fx_count(columns) - 1));
}

int64_t find_column(const sorted_name *names, int64_t n, const char *wanted)
{
    char *end;
    const int64_t index = index_of_name(names, n, wanted);
    if (index >= 0)
        return index;
    const long long number = strtoll(wanted, &end, 10);
    return end != wanted && !*end && number >= 1 && number <= n ? number - 1 : -1;
}

bool are_named(void *columns)
{
    return fx_count(columns) > 0 && strcmp(fx_child_name(columns, 0), "1") != 0;
}

/* ---- features -------------------------------------------------------------------------------- */

typedef struct feature_list {
    int64_t *columns; /* of each feature */
    float *codes;     /* the number of its text in the column; NaN: the column has numbers */
    void **names;     /* texts */
    int64_t n, capacity;
    bool texts; /* there is a feature that belongs to a text */
} feature_list;

static bool add_feature(feature_list *l, int64_t column, float code, const char *name)
{
    if (l->n == l->capacity) {
        const size_t more = l->capacity ? 2 * (size_t)l->capacity : 64;
        int64_t *columns = realloc(l->columns, more * sizeof *columns);
        l->columns = columns ? columns : l->columns;
        float *codes = realloc(l->codes, more * sizeof *codes);
        l->codes = codes ? codes : l->codes;
        void **names = realloc(l->names, more * sizeof *names);
        l->names = names ? names : l->names;
        if (!columns || !codes || !names)
            return false;
        l->capacity = (int64_t)more;
    }
    l->columns[l->n] = column;
    l->codes[l->n] = code;
    l->names[l->n++] = fx_string(name);
    l->texts = l->texts || !isnan(code);
    return true;
}

static bool is_number(const char *text)
{
    char *end;
    strtod(text, &end);
    return end != text && !*end;
}

static const char *first_text_of(void *labels)
{
    int64_t k = 0;
    while (k + 1 < fx_count(labels) && is_number(fx_child_name(labels, k)))
        k++;
    return fx_child_name(labels, k);
}

/* Splits "color=red" into a column of the file and a text. Returns the column, −1 if there is none;
 * a column name may contain '=' too. */
static int64_t split_name(const sorted_name *names, int64_t n, const char *wanted,
                          const char **out_text)
{
    int64_t column = -1;
    for (const char *at = strchr(wanted, '='); at && column < 0; at = strchr(at + 1, '=')) {
        char *name = strndup(wanted, (size_t)(at - wanted));
        column = name ? find_column(names, n, name) : -1;
        free(name);
        *out_text = at + 1;
    }
    return column;
}

/* The name "color=red"; the caller frees it. */
static char *joined_name(const char *column, const char *text)
{
    const size_t n = strlen(column), m = strlen(text);
    char *name = malloc(n + m + 2);
    if (name) {
        memcpy(name, column, n);
        name[n] = '=';
        memcpy(name + n + 1, text, m + 1);
    }
    return name;
}

/* Refuses a name that eval and predict would take for another feature. */
static int check_name(const char *path, void *columns, const sorted_name *names, int64_t column,
                      const char *name)
{
    const char *text;
    int64_t found = find_column(names, fx_count(columns), name);
    if (found < 0)
        found = split_name(names, fx_count(columns), name, &text);
    if (found == column)
        return EXIT_FINE;
    return fail(EXIT_BAD_INPUT,
                "%s: the feature \"%s\" of column \"%s\" has a name like that of column \"%s\": "
                "rename one of the columns",
                path, name, fx_child_name(columns, column), fx_child_name(columns, found));
}

static int add_texts(feature_list *l, const char *path, void *columns, const sorted_name *names,
                     int64_t column)
{
    void *labels = fx_child(columns, column);
    const char *of = fx_child_name(columns, column);
    if (fx_count(labels) > MOST_TEXTS)
        return fail(EXIT_BAD_INPUT,
                    "%s: column \"%s\" has %lld different texts, such as \"%s\": a feature has at "
                    "most %d; remove the column",
                    path, of, (long long)fx_count(labels), fx_child_name(labels, 0), MOST_TEXTS);
    int64_t numbers = 0;
    for (int64_t k = 0; k < fx_count(labels); k++)
        numbers += is_number(fx_child_name(labels, k));
    if (2 * numbers >= fx_count(labels))
        return fail(EXIT_BAD_INPUT,
                    "%s: column \"%s\" contains numbers and text, such as \"%s\"; --missing mean, "
                    "median or drop is for missing values",
                    path, of, first_text_of(labels));
    int status = EXIT_FINE;
    for (int64_t k = 0; status == EXIT_FINE && k < fx_count(labels); k++) {
        char *name = joined_name(of, fx_child_name(labels, k));
        if (!name || !add_feature(l, column, (float)k, name))
            status = fail(EXIT_FAILED, "no memory for the features of %s", path);
        else
            status = check_name(path, columns, names, column, name);
        free(name);
    }
    return status;
}

static int all_features(feature_list *l, const data_request *r, void *columns,
                        const sorted_name *names, int64_t target)
{
    int status = EXIT_FINE;
    for (int64_t i = 0; status == EXIT_FINE && i < fx_count(columns); i++) {
        if (i == target)
            continue;
        if (fx_count(fx_child(columns, i)) > 0)
            status = add_texts(l, r->path, columns, names, i);
        else if (!add_feature(l, i, NAN, fx_child_name(columns, i)))
            status = fail(EXIT_FAILED, "no memory for the features of %s", r->path);
    }
    return status;
}

/* ---- the features of a model ----------------------------------------------------------------- */

static int64_t label_index(void *labels, const char *text)
{
    for (int64_t k = 0; k < fx_count(labels); k++)
        if (strcmp(fx_child_name(labels, k), text) == 0)
            return k;
    return -1;
}

/* False if all values of the column are missing: it may then be a column of texts. */
static bool has_numbers(void *table, int64_t column)
{
    fx_array *x = fx_slice(fx_child_named(table, "values"), 0, column, column + 1);
    const float *values = fx_data(x);
    int64_t i = 0;
    while (values && i < fx_length(x) && isnan(values[i]))
        i++;
    return !values || i < fx_length(x);
}

/* Adds the feature that the model calls `wanted`. If it belongs to a text that the file does not
 * have, it is 0 in every observation that has a text. */
static int add_wanted(feature_list *l, const data_request *r, void *table, const sorted_name *names,
                      int64_t target, const char *wanted)
{
    const char *text = NULL;
    void *columns = fx_child_named(table, "columns");
    const int64_t n = fx_count(columns);
    int64_t column = find_column(names, n, wanted);
    if (column < 0)
        column = split_name(names, n, wanted, &text);
    if (column < 0)
        return no_column(r->path, wanted, columns);
    if (column == target)
        return EXIT_FINE;
    void *labels = fx_child(columns, column);
    if (!text && fx_count(labels) > 0)
        return fail(EXIT_BAD_INPUT,
                    "%s: column \"%s\" contains text, such as \"%s\": expected numbers", r->path,
                    wanted, first_text_of(labels));
    if (text && fx_count(labels) == 0 && has_numbers(table, column))
        return fail(EXIT_BAD_INPUT,
                    "%s: column \"%s\" contains numbers: expected texts such as \"%s\"", r->path,
                    fx_child_name(columns, column), text);
    const float code = text ? (float)label_index(labels, text) : NAN;
    return add_feature(l, column, code, wanted)
               ? EXIT_FINE
               : fail(EXIT_FAILED, "no memory for the features of %s", r->path);
}

/* Refuses a text for which the model has no feature. */
static int check_texts(const feature_list *l, const data_request *r, void *columns)
{
    for (int64_t i = 0; i < l->n; i++) {
        const int64_t column = l->columns[i];
        if (isnan(l->codes[i]) || (i > 0 && l->columns[i - 1] == column))
            continue;
        void *labels = fx_child(columns, column);
        for (int64_t k = 0; k < fx_count(labels); k++) {
            bool known = false;
            for (int64_t j = i; !known && j < l->n && l->columns[j] == column; j++)
                known = l->codes[j] == (float)k;
            if (!known)
                return fail(EXIT_BAD_INPUT,
                            "%s: column \"%s\" contains \"%s\", which the training data do not",
                            r->path, fx_child_name(columns, column), fx_child_name(labels, k));
        }
    }
    return EXIT_FINE;
}

static int wanted_features(feature_list *l, const data_request *r, void *table,
                           const sorted_name *names, int64_t target)
{
    int status = EXIT_FINE;
    for (int64_t i = 0; status == EXIT_FINE && i < fx_count(r->columns); i++)
        status = add_wanted(l, r, table, names, target, fx_string_text(fx_child(r->columns, i)));
    return status == EXIT_FINE ? check_texts(l, r, fx_child_named(table, "columns")) : status;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* A missing text, NaN, is missing in each of its features. */
static fx_array *values_of(const feature_list *l, fx_array *values)
{
    fx_array *raw = fx_gather(values, fx_from(FX_DTYPE_I64, l->columns, l->n), 0);
    if (!l->texts)
        return raw;
    fx_array *codes = fx_from(FX_DTYPE_F32, l->codes, l->n, 1);
    fx_array *number = fx_isnan(codes), *missing = fx_isnan(raw);
    return fx_where(fx_or(number, missing), raw, fx_cast(fx_eq(raw, codes), FX_DTYPE_F32));
}

int read_features(const data_request *r, void *table, const sorted_name *names, int64_t target,
                  dataset *d)
{
    void *columns = fx_child_named(table, "columns");
    feature_list l = {.n = 0};
    int status = r->columns ? wanted_features(&l, r, table, names, target)
                            : all_features(&l, r, columns, names, target);
    if (status == EXIT_FINE && l.n == 0)
        status = fail(EXIT_BAD_INPUT, "%s has no columns but the target", r->path);
    if (status == EXIT_FINE) {
        d->x = values_of(&l, fx_child_named(table, "values"));
        d->columns = are_named(columns) || l.texts ? fxi_tuple((int)l.n, l.names) : NULL;
        if (fx_is_error(d->x) || (d->columns && fx_is_error(d->columns)))
            status = fail_library(EXIT_FAILED);
    }
    free(l.columns);
    free(l.codes);
    free(l.names);
    return status;
}
