/* dataset_table.c: reads CSV files: see dataset_table.h. */
#include "dataset_table.h"
#include "csv_text.h"
#include "failure.h"
#include "model_file.h"
#include "sorted_names.h"
#include "system.h"
#include "table_features.h"
#include "text_parts.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Adds the columns of a list such as `height,"a, b"`. If one is missing and the data need no
 * targets, no column is a target. */
static int choose_several(const data_request *r, void *columns, const sorted_name *names,
                          const char *wanted, feature_choice *out)
{
    while (*wanted) {
        char *name = next_csv_text(&wanted);
        const int64_t column = name ? find_column(names, fx_count(columns), name) : -1;
        int status = EXIT_FINE;
        if (column < 0 && !r->unlabelled)
            status = name ? no_column(r->path, name, columns) : fail(EXIT_FAILED, "out of memory");
        else if (column >= 0 && is_target(out, column))
            status = fail(EXIT_BAD_INPUT, "--target names column \"%s\" twice", name);
        else if (out->ntargets == TARGETS_AT_MOST)
            status = fail(EXIT_BAD_INPUT, "--target names more than %d columns", TARGETS_AT_MOST);
        free(name);
        if (status != EXIT_FINE)
            return status;
        if (column < 0) {
            out->ntargets = 0;
            return EXIT_FINE;
        }
        out->targets[out->ntargets++] = column;
    }
    return EXIT_FINE;
}

/* Chooses the target columns: by default the last column that is not --id. */
static int choose_targets(const data_request *r, void *table, const sorted_name *names,
                          feature_choice *out)
{
    void *columns = fx_child_named(table, "columns");
    const int64_t n = fx_count(columns);
    if (r->no_target || (r->unlabelled && are_all_features(r, table, out->id)))
        return EXIT_FINE;
    const char *wanted = r->target ? r->target : r->column;
    const int64_t one = wanted ? find_column(names, n, wanted) : n - 1 - (out->id == n - 1);
    if (one < 0 && wanted && strchr(wanted, ','))
        return choose_several(r, columns, names, wanted, out);
    /* Without a target the features are found by name, or all columns are features. */
    if (one < 0 && r->unlabelled && (r->columns || !r->target))
        return EXIT_FINE;
    if (one < 0)
        return no_column(r->path, wanted ? wanted : "1", columns);
    out->targets[out->ntargets++] = one;
    return EXIT_FINE;
}

/* Prefers the Float64 copy of a column with numbers that Float32 would round. */
static fx_array *target_column(void *table, int64_t i)
{
    const char *name = fx_child_name(fx_child_named(table, "columns"), i);
    fx_array *wide = model_file_entry(fx_child_named(table, "wide"), name);
    return wide ? wide : fx_vec(fx_slice(fx_child_named(table, "values"), 0, i, i + 1));
}

/* Takes the column --id, which was read as texts. Returns its index in *out, −1 for none. */
static int take_ids(const data_request *r, dataset *d, void *table, const sorted_name *names,
                    int64_t *out)
{
    void *columns = fx_child_named(table, "columns");
    *out = r->id ? find_column(names, fx_count(columns), r->id) : -1;
    if (!r->id)
        return EXIT_FINE;
    if (*out < 0)
        return no_column(r->path, r->id, columns);
    d->id = fx_vec(fx_slice(fx_child_named(table, "values"), 0, *out, *out + 1));
    d->ids = fx_child(columns, *out);
    d->id_name = fx_child_name(columns, *out);
    const float *codes = fx_data(d->id);
    for (int64_t i = 0; codes && i < fx_length(d->id); i++)
        if (isnan(codes[i]))
            return fail(EXIT_BAD_INPUT, "%s: observation %lld has no name in column \"%s\"",
                        d->path, (long long)i + 1, d->id_name);
    return codes ? EXIT_FINE : fail_library(EXIT_FAILED);
}

/* The list of the names of the targets; NULL on failure (printed). */
static const char *names_of_targets(void *columns, const feature_choice *of)
{
    text_stream t;
    open_text(&t);
    for (int i = 0; t.to && i < of->ntargets; i++) {
        if (i)
            fputc(',', t.to);
        put_csv_text(t.to, fx_child_name(columns, of->targets[i]));
    }
    char *list = close_text(&t);
    const char *names = list ? fx_string_text(fx_string(list)) : NULL;
    if (!names)
        fail(EXIT_FAILED, "no memory for the names of the targets");
    free(list);
    return names;
}

/* Several targets are numbers, in the order of --target. */
static int take_several(const data_request *r, dataset *d, void *table, const feature_choice *of)
{
    void *columns = fx_child_named(table, "columns");
    fx_array *rows[TARGETS_AT_MOST];
    for (int i = 0; i < of->ntargets; i++) {
        const char *name = fx_child_name(columns, of->targets[i]);
        if (fx_count(fx_child(columns, of->targets[i])) > 0)
            return fail(EXIT_BAD_INPUT,
                        "%s: column \"%s\" contains text: several targets must be numbers", r->path,
                        name);
        fx_array *y = fx_cast(target_column(table, of->targets[i]), FX_DTYPE_F64);
        rows[i] = fx_reshape(y, 1, fx_length(y));
    }
    d->y = fxi_concat(0, of->ntargets, rows);
    d->target = names_of_targets(columns, of);
    return d->target ? EXIT_FINE : EXIT_FAILED;
}

static int take_target(const data_request *r, dataset *d, void *table, const feature_choice *of)
{
    void *columns = fx_child_named(table, "columns");
    for (int i = 0; i < of->ntargets; i++)
        if (of->targets[i] == of->id)
            return fail(EXIT_BAD_INPUT, "%s: column \"%s\" is both --id and the target", r->path,
                        d->id_name);
    d->line = (int64_t)fx_item(fx_child_named(table, "line"));
    void *lines = fx_child_named(table, "lines");
    d->lines = fx_is_array(lines) ? lines : NULL;
    if (of->ntargets == 0)
        return EXIT_FINE;
    if (of->ntargets > 1)
        return take_several(r, d, table, of);
    const int64_t target = of->targets[0];
    d->y = target_column(table, target);
    d->target = fx_child_name(columns, target);
    d->labels = fx_count(fx_child(columns, target)) > 0 ? fx_child(columns, target) : NULL;
    return EXIT_FINE;
}

static int take_columns(const data_request *r, dataset *d, void *table)
{
    void *columns = fx_child_named(table, "columns");
    feature_choice choice = {.id = -1};
    sorted_name *names = sorted_names(columns);
    int status =
        names ? take_ids(r, d, table, names, &choice.id) : fail(EXIT_FAILED, "out of memory");
    if (status == EXIT_FINE)
        status = choose_targets(r, table, names, &choice);
    if (status == EXIT_FINE)
        status = take_target(r, d, table, &choice);
    if (status == EXIT_FINE)
        status = read_features(r, table, &choice, d);
    free(names);
    return status;
}

static int separator_of(const data_request *r, char *out)
{
    static const char *const names[] = {",", ";", "|", "tab", "space", "\\t"};
    static const char characters[] = ",;|\t \t";
    *out = 0; /* found from the first lines */
    if (!r->separator)
        return EXIT_FINE;
    for (int i = 0; characters[i]; i++)
        if (strcmp(r->separator, names[i]) == 0 ||
            (r->separator[0] == characters[i] && !r->separator[1])) {
            *out = characters[i];
            return EXIT_FINE;
        }
    return fail(EXIT_BAD_INPUT, "--separator takes one of , ; | tab space, got \"%s\"",
                r->separator);
}

/* True if the text is several numbers with blanks between them. */
static bool are_numbers(const char *text)
{
    int n = 0;
    for (char *end; *text; text = end + strspn(end, " "), n++) {
        strtod(text, &end);
        if (end == text || (*end && *end != ' '))
            return false;
    }
    return n > 1;
}

/* A single text column usually means that the file uses another separator. */
static int check_separator(const data_request *r, void *columns)
{
    if (r->separator || fx_count(columns) != 1 || fx_count(fx_child(columns, 0)) == 0)
        return EXIT_FINE;
    const char *text = fx_child_name(are_named(columns) ? columns : fx_child(columns, 0), 0);
    const char *other = strpbrk(text, ";|\t");
    const bool blanks = !other && are_numbers(fx_child_name(fx_child(columns, 0), 0));
    if (!other && !blanks)
        return EXIT_FINE;
    const char quoted[] = {'\'', blanks ? ' ' : *other, '\'', 0};
    const bool tabs = !blanks && *other == '\t';
    return fail(EXIT_BAD_INPUT,
                "%s has one column, \"%s\", with no ',' but with %s: use --separator %s", r->path,
                text,
                blanks ? "blanks between numbers"
                : tabs ? "tabs"
                       : quoted,
                blanks ? "space"
                : tabs ? "tab"
                       : quoted);
}

/* Names such as "150", "4", "setosa" are usually counts and names of classes above a table without
 * names. */
static void warn_of_metadata(const data_request *r, void *columns)
{
    const int64_t n = fx_count(columns);
    int64_t numbers = 0;
    for (int64_t i = 0; i < n; i++)
        numbers += is_number_text(fx_child_name(columns, i));
    if (are_named(columns) && numbers > 0 && numbers < n &&
        is_number_text(fx_child_name(columns, 0)))
        warn("%s: line %lld is used as names of columns, but it begins with the number \"%s\": if "
             "it describes the file, use --skip %lld",
             r->path, (long long)r->skip + 1, fx_child_name(columns, 0), (long long)r->skip + 1);
}

static bool has_decimal_comma(const data_request *r)
{
    return r->decimal ? *r->decimal == ',' : r->comma;
}

/* True for a number that contains the mark. For a comma: 12,5 and 1,000,000 and 1,000.5. For a
 * point, the date 12.05.2024 is not such a number: after a second mark there must be three digits.
 */
static bool is_number_with(char mark, const char *text)
{
    static const char digits[] = "0123456789";
    text += *text == '-' || *text == '+';
    size_t n = strspn(text, digits);
    bool marks = false, good = n > 0;
    for (text += n; good && *text == mark; text += 1 + n) {
        n = strspn(text + 1, digits);
        good = n > 0 && (!marks || n == 3);
        marks = true;
    }
    if (marks && *text && strchr(".,", *text))
        text += 1 + strspn(text + 1, digits);
    return good && marks && !*text;
}

/* A column of such numbers would become a feature for each of them, or a class. */
static void warn_of_commas(const data_request *r, void *columns)
{
    const bool comma = has_decimal_comma(r);
    const char mark = comma ? '.' : ',';
    for (int64_t i = 0; i < fx_count(columns); i++) {
        void *labels = fx_child(columns, i);
        const char *example = NULL;
        bool good = fx_count(labels) > 0;
        for (int64_t k = 0; good && k < fx_count(labels); k++) {
            const char *text = fx_child_name(labels, k);
            const bool marks = is_number_with(mark, text);
            good = marks || is_number_with(comma ? ',' : '.', text) || is_number_text(text);
            example = marks ? text : example;
        }
        if (good && example) {
            warn("%s: column \"%s\" is text, such as \"%s\": numbers have a decimal %s between "
                 "thousands%s",
                 r->path, fx_child_name(columns, i), example,
                 comma ? "comma, and no points" : "point, and no commas",
                 comma ? "; for decimal points, use --decimal ."
                       : "; for decimal commas, use --decimal ,");
            return;
        }
    }
}

/* `text`: the column of names, or NULL. */
static void *table_of(const data_request *r, char separator, const char *text)
{
    return fx_read_table(r->path, .separator = separator, .skip = r->skip,
                         .decimal = has_decimal_comma(r) ? ',' : '.',
                         .missing = r->missing != MISSING_REFUSED, .text = text);
}

int read_csv(const data_request *r, dataset *d)
{
    char separator;
    int status = separator_of(r, &separator);
    if (status != EXIT_FINE)
        return status;
    void *table = table_of(r, separator, r->id);
    /* Without the column --id, the table is read again to find a similar name for the message. A
     * pipe can be read only once. */
    if (fx_is_error(table) && r->id && fx_error_status() == FX_STATUS_ARGUMENT &&
        kind_of_path(r->path) == PATH_FILE) {
        fx_error_take();
        table = table_of(r, separator, NULL);
    }
    if (fx_is_error(table))
        return fail_table(EXIT_BAD_INPUT, "");
    d->kind = "csv";
    status = check_separator(r, fx_child_named(table, "columns"));
    if (status == EXIT_FINE) {
        warn_of_metadata(r, fx_child_named(table, "columns"));
        warn_of_commas(r, fx_child_named(table, "columns"));
    }
    return status == EXIT_FINE ? take_columns(r, d, table) : status;
}
