/* table_features.c: chooses the features of a table: see table_features.h. */
#include "table_features.h"
#include "failure.h"
#include "nearest.h"
#include "text_parts.h"
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

bool is_target(const feature_choice *of, int64_t column)
{
    for (int i = 0; i < of->ntargets; i++)
        if (of->targets[i] == column)
            return true;
    return false;
}

/* The line number of a row. */
static int64_t table_line(void *table, int64_t row)
{
    void *lines = fx_child_named(table, "lines");
    const int64_t *numbers = fx_is_array(lines) ? fx_data(lines) : NULL;
    return numbers ? numbers[row] : (int64_t)fx_item(fx_child_named(table, "line")) + row;
}

/* ---- all features of a table ----------------------------------------------------------------- */

typedef struct feature_list {
    int64_t *columns; /* of each feature */
    void **names;     /* texts */
    int64_t n, capacity;
    bool texts; /* there is a feature that belongs to a text */
} feature_list;

static bool add_feature(feature_list *l, int64_t column, const char *name)
{
    if (l->n == l->capacity) {
        const size_t more = l->capacity ? 2 * (size_t)l->capacity : 64;
        int64_t *columns = realloc(l->columns, more * sizeof *columns);
        l->columns = columns ? columns : l->columns;
        void **names = realloc(l->names, more * sizeof *names);
        l->names = names ? names : l->names;
        if (!columns || !names)
            return false;
        l->capacity = (int64_t)more;
    }
    l->columns[l->n] = column;
    l->names[l->n++] = fx_string(name);
    return true;
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

/* Refuses a column of texts and numbers whose texts are probably missing values, or whose numbers
 * are probably mistakes. */
static int check_mixed(const char *path, void *table, int64_t column)
{
    void *columns = fx_child_named(table, "columns"), *labels = fx_child(columns, column);
    fx_array *values = fx_vec(fx_slice(fx_child_named(table, "values"), 0, column, column + 1));
    const char *of = fx_child_name(columns, column);
    const int64_t number = first_row(values, labels, true), n = fx_count(labels);
    int64_t numbers = 0;
    for (int64_t k = 0; k < n; k++)
        numbers += is_number_text(fx_child_name(labels, k));
    if (number >= LATE_ROW)
        return fail(EXIT_BAD_INPUT,
                    "%s: line %lld: column \"%s\" contains \"%s\", but only texts "
                    "in the %lld rows above",
                    path, (long long)table_line(table, number), of,
                    text_of_row(values, labels, number), (long long)number);
    const int64_t text = first_row(values, labels, false);
    return numbers > 0 && text >= 0 && 2 * numbers >= n
               ? fail(EXIT_BAD_INPUT,
                      "%s: line %lld: column \"%s\" contains numbers and text, such as \"%s\"; "
                      "if the text marks a missing value, pass --missing mean, median or drop",
                      path, (long long)table_line(table, text), of,
                      text_of_row(values, labels, text))
               : EXIT_FINE;
}

static int add_texts(feature_list *l, const char *path, void *table, int64_t column)
{
    void *columns = fx_child_named(table, "columns"), *labels = fx_child(columns, column);
    const char *of = fx_child_name(columns, column);
    int status = check_mixed(path, table, column);
    if (status == EXIT_FINE && fx_count(labels) > MOST_TEXTS)
        status =
            fail(EXIT_BAD_INPUT,
                 "%s: column \"%s\" has %lld different texts, such as \"%s\": a column of text can "
                 "have at most %d; remove the column, or give it with --id if it names the rows",
                 path, of, (long long)fx_count(labels), fx_child_name(labels, 0), MOST_TEXTS);
    for (int64_t k = 0; status == EXIT_FINE && k < fx_count(labels); k++) {
        char *name = joined_name(of, fx_child_name(labels, k));
        if (!name || !add_feature(l, column, name))
            status = fail(EXIT_FAILED, "no memory for the features of %s", path);
        l->texts = true;
        free(name);
    }
    return status;
}

/* Refuses a name for which eval and predict would find another feature. */
static int check_names(const feature_list *l, const char *path, void *table, void *features)
{
    void *columns = fx_child_named(table, "columns");
    const int64_t *found = fx_data(fx_table_columns(table, features));
    for (int64_t i = 0; found && i < l->n; i++)
        if (found[i] != l->columns[i])
            return fail(EXIT_BAD_INPUT,
                        "%s: the feature \"%s\" of column \"%s\" has a name like that of column "
                        "\"%s\": rename one of the columns",
                        path, fx_string_text(l->names[i]), fx_child_name(columns, l->columns[i]),
                        fx_child_name(columns, found[i]));
    return found ? EXIT_FINE : fail_library(EXIT_FAILED);
}

static int add_all(feature_list *l, const data_request *r, void *table, const feature_choice *of)
{
    void *columns = fx_child_named(table, "columns");
    int status = EXIT_FINE;
    for (int64_t i = 0; status == EXIT_FINE && i < fx_count(columns); i++) {
        if (is_target(of, i) || i == of->id)
            continue;
        if (fx_count(fx_child(columns, i)) > 0)
            status = add_texts(l, r->path, table, i);
        else if (!add_feature(l, i, fx_child_name(columns, i)))
            status = fail(EXIT_FAILED, "no memory for the features of %s", r->path);
    }
    return status == EXIT_FINE && l->n == 0
               ? fail(EXIT_BAD_INPUT, "%s has no columns but the target", r->path)
               : status;
}

/* The names of all features, a tuple of texts. *out_shown: the table has column names, or a feature
 * belongs to a text, so the file of the model needs the names. */
static int all_features(const data_request *r, void *table, const feature_choice *of,
                        void **out_features, bool *out_shown)
{
    void *columns = fx_child_named(table, "columns");
    feature_list l = {.n = 0};
    int status = add_all(&l, r, table, of);
    if (status == EXIT_FINE) {
        *out_features = fxi_tuple((int)l.n, l.names);
        *out_shown = are_named(columns) || l.texts;
        status = fx_is_error(*out_features) ? fail_library(EXIT_FAILED)
                                            : check_names(&l, r->path, table, *out_features);
    }
    free(l.columns);
    free(l.names);
    return status;
}

/* ---- the features of a model ----------------------------------------------------------------- */

/* Refuses features that the table lacks, with a suggestion, and the column --id among them. */
static int check_wanted(const data_request *r, void *table, const feature_choice *of)
{
    void *columns = fx_child_named(table, "columns");
    const int64_t *found = fx_data(fx_table_columns(table, r->columns));
    for (int64_t i = 0; found && are_named(columns) && i < fx_count(r->columns); i++) {
        const char *wanted = fx_string_text(fx_child(r->columns, i));
        if (found[i] < 0)
            return no_column(r->path, wanted, columns);
        if (found[i] == of->id)
            return fail(EXIT_BAD_INPUT, "--id: column \"%s\" is a feature of the model", wanted);
    }
    return found ? EXIT_FINE : fail_library(EXIT_FAILED);
}

bool are_all_features(const data_request *r, void *table, int64_t id)
{
    const int64_t n = fx_count(fx_child_named(table, "columns"));
    if (!r->columns)
        return r->features == n - (id >= 0);
    return fx_table_fits(table, r->columns, id >= 0 ? fx_from(FX_DTYPE_I64, &id, 1) : NULL);
}

int read_features(const data_request *r, void *table, const feature_choice *of, dataset *d)
{
    int64_t skip[TARGETS_AT_MOST + 1];
    void *features = r->columns;
    bool shown = are_named(fx_child_named(table, "columns"));
    int n = 0;
    for (; n < of->ntargets; n++)
        skip[n] = of->targets[n];
    if (of->id >= 0)
        skip[n++] = of->id;
    const int status =
        features ? check_wanted(r, table, of) : all_features(r, table, of, &features, &shown);
    if (status != EXIT_FINE)
        return status;
    d->x = fx_table_features(table, features, n ? fx_from(FX_DTYPE_I64, skip, n) : NULL, r->path);
    d->columns = shown ? features : NULL;
    return fx_is_error(d->x) ? fail_table(EXIT_BAD_INPUT, "") : EXIT_FINE;
}
