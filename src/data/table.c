/* table.c: reads CSV files with column names and texts.
 *
 * The file is read once. The first field of a column that is not missing decides whether the column
 * holds numbers or texts, so a text among numbers further down is an error with its location, and
 * cannot change the meaning of earlier rows. To decide whether the first line is a header, it is
 * held back until the second line is read. Texts get numbers in the order of appearance; at the end
 * these are changed to the alphabetical order, which does not depend on the order of the rows.
 */
#include "c_text.h"
#include "csv_lines.h"
#include "hash.h"
#include "lend.h"
#include "option_struct.h"
#include "separator.h"
#include "utf8.h"

#include <cflux/data.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const OP = "read_table";
enum {
    MOST_LABELS = 1 << 24, /* Float32 must represent label numbers exactly */
    LARGE = 1 << 24        /* Float32 represents whole numbers up to this one exactly */
};

typedef struct label {
    char *text;
    int32_t code; /* number in the order of appearance */
    int64_t rows;
} label;

typedef struct column {
    char *name;
    bool text, known; /* known: a field decided whether it is a text column */
    label *labels;    /* in the order of appearance; at the end in alphabetical order */
    int32_t n;        /* number of labels */
    int32_t *buckets; /* hash table of labels: code + 1, 0: free; at most half full */
    int32_t nbuckets; /* a power of two */
    double *wide;     /* the column in Float64, if it holds a number that Float32 would round */
} column;

/* A line and its fields. */
typedef struct whole_line {
    char *line;
    size_t length, capacity;
    int64_t number;
    fxi_field *fields;
    int32_t nfields, field_capacity;
} whole_line;

typedef struct table {
    fxi_lines lines;
    char separator, decimal;
    bool missing;      /* missing values become NaN */
    const char *named; /* name or number of a column that is a text column in any case; or NULL */
    int32_t text;      /* index of that column; −1: none */
    fxi_field *fields; /* of the line */
    int32_t nfields, field_capacity;
    column *columns;
    int32_t ncolumns, column_capacity;
    float *values;
    int64_t rows, capacity; /* rows read; capacity of `values` in rows */
    int64_t first;          /* line number of the first row */
    int64_t *numbers;       /* line numbers of the rows; NULL: each row is on the line after the
                               previous one */
    whole_line held;        /* the first line while the second is read; afterwards the second */
} table;

/* ---- fields ---------------------------------------------------------------------------------- */

static fx_status bad_line(const table *t, const char *expected, const char *found)
{
    return fx_fail(FX_STATUS_FORMAT, OP, "%s: line %lld: expected %s, found %s%s",
                   t->lines.file.path, (long long)t->lines.number, expected, found, t->lines.hint);
}

static bool add_field(table *t, fxi_field f)
{
    if (!fxi_grow(&t->fields, &t->field_capacity, t->nfields + 1, sizeof *t->fields))
        return false;
    t->fields[t->nfields++] = f;
    return true;
}

/* The quoted text at *at, with doubled quotes reduced in place, terminated. *at moves after the
 * closing quote, which exists because the record is complete. */
static fxi_field unquote(char **at, const char *end, int64_t *number)
{
    char *to = *at, *from = *at + 1;
    fxi_field f = {.start = to, .number = *number};
    while (from < end && !(from[0] == '"' && from[1] != '"')) {
        from += from[0] == '"';
        *number += from[0] == '\n';
        *to++ = *from++;
    }
    *at = from + (from < end);
    *to = 0;
    f.stop = to;
    return f;
}

/* Text after the closing quote usually means that earlier quotes were not closed, so the message
 * names the line in which they open. */
static fx_status bad_end(const table *t, int64_t opened, fxi_field rest)
{
    char expected[80] = "a separator after a quote";
    if (rest.number > opened)
        snprintf(expected, sizeof expected, "a separator after the quotes that open in line %lld",
                 (long long)opened);
    return fxi_field_fail(&t->lines, t->nfields + 1, rest, expected);
}

/* The line without surrounding blanks. Tabs stay if they are the separator. */
static fxi_field whole_row(const table *t)
{
    fxi_field all = {.start = t->lines.line, .stop = t->lines.line + t->lines.length};
    if (t->separator != '\t')
        return fxi_field_trim(all.start, all.stop);
    while (all.stop > all.start && fxi_is_blank(all.stop[-1]) && all.stop[-1] != '\t')
        all.stop--;
    return all;
}

static fx_status split(table *t)
{
    const fxi_field all = whole_row(t);
    char *at = all.start, *const end = all.stop;
    int64_t number = t->lines.number;
    bool more = true;
    for (t->nfields = 0; more;) {
        while (at < end && fxi_is_blank(*at) && (*at != '\t' || t->separator != '\t'))
            at++;
        fxi_field f;
        if (at < end && *at == '"') {
            f = unquote(&at, end, &number);
            fxi_field rest = fxi_field_trim(at, fxi_find_separator(at, end, t->separator));
            rest.number = number;
            if (rest.start < rest.stop)
                return bad_end(t, f.number, rest);
            at = fxi_find_separator(at, end, t->separator);
        } else {
            char *const stop = fxi_find_separator(at, end, t->separator);
            f = fxi_field_trim(at, stop);
            f.number = number;
            at = stop;
        }
        more = at < end;
        at += more;
        if (!add_field(t, f))
            return fxi_lines_out_of_memory(&t->lines);
    }
    return FX_OK;
}

/* Reads the next line that is not blank into fields; *out_more is false at the end. */
static fx_status next_row(table *t, bool *out_more)
{
    fx_status status;
    while ((status = fxi_lines_next_record(&t->lines, t->separator, out_more)) == FX_OK &&
           *out_more) {
        const fxi_field all = whole_row(t);
        if (all.start < all.stop)
            return split(t);
    }
    return status;
}

/* ---- columns --------------------------------------------------------------------------------- */

static bool is_number(const table *t, fxi_field f)
{
    float value;
    bool too_large;
    return fxi_field_number(f, t->decimal, &value, &too_large);
}

static int compare_field(fxi_field f, const char *text)
{
    const size_t n = strnlen(f.start, (size_t)(f.stop - f.start)); /* texts end at a zero byte */
    const int order = strncmp(f.start, text, n);
    return order ? order : -(text[n] != 0);
}

static bool is_missing(fxi_field f)
{
    static const char *const words[] = {"",     "NA",  "N/A", "#N/A", "null", "NULL",
                                        "None", "NaN", "nan", "?",    "-"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (compare_field(f, words[i]) == 0)
            return true;
    return false;
}

/* How many fields of the row are texts; *out_missing: one of them marks a missing value. */
static int32_t texts_in(const table *t, bool *out_missing)
{
    int32_t n = 0;
    *out_missing = false;
    for (int32_t i = 0; i < t->nfields; i++) {
        const bool text = !is_number(t, t->fields[i]);
        *out_missing = *out_missing || (text && is_missing(t->fields[i]));
        n += text;
    }
    return n;
}

/* Swaps the current row and the held row. */
static void swap_rows(table *t)
{
    const whole_line now = {t->lines.line, t->lines.length, t->lines.capacity, t->lines.number,
                            t->fields,     t->nfields,      t->field_capacity};
    t->lines.line = t->held.line;
    t->lines.length = t->held.length;
    t->lines.capacity = t->held.capacity;
    t->lines.number = t->held.number;
    t->fields = t->held.fields;
    t->nfields = t->held.nfields;
    t->field_capacity = t->held.field_capacity;
    t->held = now;
}

/* True if the current row is a header: every text is above a number of the held row, or above a
 * missing value, and at least one is above a number. */
static bool is_above_numbers(const table *t)
{
    bool above = false;
    for (int32_t i = 0; i < t->nfields && t->nfields == t->held.nfields; i++) {
        const bool number = is_number(t, t->held.fields[i]);
        if (is_number(t, t->fields[i]))
            continue;
        if (!number && !(t->missing && is_missing(t->held.fields[i])))
            return false;
        above = above || number;
    }
    return above;
}

static bool is_utf8(fxi_field f)
{
    size_t at;
    return fxi_is_utf8((const unsigned char *)f.start, (size_t)(f.stop - f.start), &at);
}

static fx_status bad_text(const table *t, int32_t i)
{
    return fx_fail(FX_STATUS_FORMAT, OP, "%s: line %lld, column %d: the text is not UTF-8",
                   t->lines.file.path, (long long)t->fields[i].number, (int)i + 1);
}

static char *copy_text(const char *start, const char *stop)
{
    const size_t n = (size_t)(stop - start);
    char *text = fxi_malloc(n + 1);
    if (text) {
        memcpy(text, start, n);
        text[n] = 0;
    }
    return text;
}

static int by_text(const void *a, const void *b)
{
    const fxi_field *x = *(const fxi_field *const *)a, *y = *(const fxi_field *const *)b;
    const size_t n = (size_t)(x->stop - x->start), m = (size_t)(y->stop - y->start);
    const int order = memcmp(x->start, y->start, n < m ? n : m);
    return order ? order : (n > m) - (n < m);
}

static int by_text_and_index(const void *a, const void *b)
{
    const fxi_field *x = *(const fxi_field *const *)a, *y = *(const fxi_field *const *)b;
    const int order = by_text(a, b);
    return order ? order : (x > y) - (x < y);
}

/* "#3", or "#3.1", "#3.2", … if another column already has that name. */
static char *new_name(int32_t number, const fxi_field *const *sorted, int32_t n)
{
    char text[32];
    int length = snprintf(text, sizeof text, "#%d", (int)number);
    for (int i = 1;; i++) {
        const fxi_field name = {.start = text, .stop = text + length}, *const key = &name;
        if (!bsearch(&key, sorted, (size_t)n, sizeof key, by_text))
            return copy_text(text, text + length);
        length = snprintf(text, sizeof text, "#%d.%d", (int)number, i);
    }
}

/* Sorts the names to find duplicates, because a wide table may have very many. */
static bool name_columns(table *t)
{
    const fxi_field **sorted = fxi_calloc((size_t)t->nfields, sizeof *sorted);
    bool memory = sorted != NULL;
    for (int32_t i = 0; memory && i < t->nfields; i++)
        sorted[i] = &t->fields[i];
    if (memory)
        qsort((void *)sorted, (size_t)t->nfields, sizeof *sorted, by_text_and_index);
    for (int32_t i = 0; memory && i < t->nfields; i++) {
        const fxi_field f = *sorted[i];
        const bool again = i > 0 && by_text(&sorted[i - 1], &sorted[i]) == 0;
        const int32_t at = (int32_t)(sorted[i] - t->fields);
        t->columns[at].name = f.start == f.stop || again ? new_name(at + 1, sorted, t->nfields)
                                                         : copy_text(f.start, f.stop);
        memory = t->columns[at].name != NULL;
    }
    fxi_free((void *)sorted);
    return memory;
}

static bool number_columns(table *t)
{
    char text[16];
    bool memory = true;
    for (int32_t i = 0; memory && i < t->ncolumns; i++) {
        const int n = snprintf(text, sizeof text, "%d", (int)i + 1);
        t->columns[i].name = copy_text(text, text + n);
        memory = t->columns[i].name != NULL;
    }
    return memory;
}

/* The column that the caller named, −1 if there is none. A name takes precedence over a number. */
static int32_t named_column(const table *t)
{
    char *end;
    for (int32_t i = 0; t->named && i < t->ncolumns; i++)
        if (strcmp(t->columns[i].name, t->named) == 0)
            return i;
    const long long number = t->named ? strtoll(t->named, &end, 10) : 0;
    return number >= 1 && number <= t->ncolumns && !*end ? (int32_t)number - 1 : -1;
}

static fx_status make_columns(table *t, bool header)
{
    if (!fxi_grow(&t->columns, &t->column_capacity, t->nfields, sizeof *t->columns))
        return fxi_lines_out_of_memory(&t->lines);
    memset(t->columns, 0, (size_t)t->nfields * sizeof *t->columns);
    t->ncolumns = t->nfields;
    for (int32_t i = 0; i < t->ncolumns && header; i++)
        if (!is_utf8(t->fields[i]))
            return bad_text(t, i);
    if (!(header ? name_columns : number_columns)(t))
        return fxi_lines_out_of_memory(&t->lines);
    t->text = named_column(t);
    if (t->named && t->text < 0)
        return fx_fail(FX_STATUS_ARGUMENT, OP,
                       "%s has no column \"%s\" (.text); it has %d, from \"%s\" to \"%s\"",
                       t->lines.file.path, t->named, (int)t->ncolumns, t->columns[0].name,
                       t->columns[t->ncolumns - 1].name);
    if (t->text >= 0)
        t->columns[t->text].text = t->columns[t->text].known = true;
    return FX_OK;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* The bucket of a text, or the free bucket for it. */
static int32_t *bucket_of(const column *c, const char *text, size_t n)
{
    const uint64_t mask = (uint64_t)c->nbuckets - 1;
    uint64_t at = fxi_hash(text, n, 0) & mask;
    for (; c->buckets[at]; at = (at + 1) & mask) {
        const char *known = c->labels[c->buckets[at] - 1].text;
        if (strncmp(known, text, n) == 0 && known[n] == 0)
            break;
    }
    return &c->buckets[at];
}

/* Makes space for one more label. A file may have a column for every few bytes, so the first
 * allocation is small. */
static bool more_buckets(column *c)
{
    if (c->n < c->nbuckets / 2)
        return true;
    const int32_t nbuckets = c->nbuckets ? 2 * c->nbuckets : 4;
    label *labels = fxi_realloc(c->labels, (size_t)nbuckets / 2 * sizeof *labels);
    if (!labels)
        return false;
    c->labels = labels;
    int32_t *buckets = fxi_calloc((size_t)nbuckets, sizeof *buckets);
    if (!buckets)
        return false;
    fxi_free(c->buckets);
    c->buckets = buckets;
    c->nbuckets = nbuckets;
    for (int32_t k = 0; k < c->n; k++)
        *bucket_of(c, c->labels[k].text, strlen(c->labels[k].text)) = k + 1;
    return true;
}

static label *label_of(column *c, fxi_field f)
{
    if (!more_buckets(c))
        return NULL;
    int32_t *bucket = bucket_of(c, f.start, (size_t)(f.stop - f.start));
    if (*bucket)
        return &c->labels[*bucket - 1];
    char *text = copy_text(f.start, f.stop);
    if (!text)
        return NULL;
    c->labels[c->n] = (label){.text = text, .code = c->n};
    *bucket = ++c->n;
    return &c->labels[c->n - 1];
}

/* Begins a Float64 copy of the column, from its first row. */
static bool begin_wide(table *t, int32_t i)
{
    double *wide = fxi_malloc((size_t)t->capacity * sizeof *wide);
    for (int64_t k = 0; wide && k < t->rows; k++)
        wide[k] = (double)t->values[k * t->ncolumns + i];
    t->columns[i].wide = wide;
    return wide != NULL;
}

/* Stores a number in the Float64 copy. Below 2^24 the Float32 value is kept, so that the same text
 * gives the same number in every column.
 */
static bool widen(table *t, int32_t i, float value)
{
    column *c = &t->columns[i];
    const bool large = value >= LARGE || value <= -LARGE;
    const double exact = large ? fxi_field_wide(t->fields[i], t->decimal) : value;
    if (large && !c->wide && exact != (double)value && !begin_wide(t, i))
        return false;
    if (c->wide)
        c->wide[t->rows] = exact;
    return true;
}

#define MISSING " (for missing values: .missing = true)"

/* A field of the first row may be a number or a text: it decides which of them its column holds. */
static const char *wanted_text(const table *t)
{
    if (t->rows > 0)
        return "a text" MISSING;
    return t->lines.number == 1 ? "a number or a text (if the table begins at line 2, call "
                                  "fx_read_table with .skip = 1)"
                                : "a number or a text" MISSING;
}

static fx_status read_field(table *t, int32_t i, float *out)
{
    column *c = &t->columns[i];
    const fxi_field f = t->fields[i];
    bool too_large;
    /* The column .text may hold names such as that of the country NA. */
    if (t->missing && is_missing(f) && (i != t->text || f.start == f.stop)) {
        *out = NAN;
        if (c->wide)
            c->wide[t->rows] = NAN;
        return FX_OK;
    }
    if (!c->known) {
        c->known = true;
        c->text = !is_number(t, f);
    }
    if (!c->text && !fxi_field_number(f, t->decimal, out, &too_large))
        return fxi_field_fail(&t->lines, i + 1, f,
                              is_missing(f)       ? "a number" MISSING
                              : t->decimal == ',' ? "a number with a decimal comma"
                                                  : "a number");
    if (!c->text && too_large)
        return fxi_field_fail(&t->lines, i + 1, f, "a number that fits Float32");
    if (!c->text)
        return widen(t, i, *out) ? FX_OK : fxi_lines_out_of_memory(&t->lines);
    if (f.start == f.stop || memchr(f.start, 0, (size_t)(f.stop - f.start)))
        return fxi_field_fail(&t->lines, i + 1, f, wanted_text(t));
    if (!is_utf8(f))
        return bad_text(t, i);
    if (c->n == MOST_LABELS)
        return fxi_field_fail(&t->lines, i + 1, f, "fewer than 2^24 distinct texts");
    label *found = label_of(c, f);
    if (!found)
        return fxi_lines_out_of_memory(&t->lines);
    found->rows++;
    *out = (float)found->code;
    return FX_OK;
}

static bool grow(table *t)
{
    enum { FIRST = 4096 }; /* values of the first allocation; one row if a row is longer */
    size_t values, bytes;
    const int64_t capacity =
        t->capacity ? t->capacity + (t->capacity + 1) / 2 : 1 + FIRST / t->ncolumns;
    if (t->rows < t->capacity)
        return true;
    float *grown = fxi_mul_size((size_t)capacity, (size_t)t->ncolumns, &values) &&
                           fxi_mul_size(values, sizeof *grown, &bytes) &&
                           fxi_data_file_check_memory(&t->lines.file, bytes) == FX_OK
                       ? fxi_realloc(t->values, bytes)
                       : NULL;
    if (!grown)
        return false;
    t->values = grown;
    for (int32_t i = 0; i < t->ncolumns; i++) {
        double *wide = t->columns[i].wide;
        wide = wide ? fxi_realloc(wide, (size_t)capacity * sizeof *wide) : NULL;
        if (t->columns[i].wide && !wide)
            return false;
        t->columns[i].wide = wide;
    }
    int64_t *numbers =
        t->numbers ? fxi_realloc(t->numbers, (size_t)capacity * sizeof *numbers) : NULL;
    if (t->numbers && !numbers)
        return false;
    t->numbers = numbers;
    t->capacity = capacity;
    return true;
}

/* Notes the line number of the row. False if out of memory. */
static bool note_line(table *t)
{
    if (!t->numbers && t->lines.number == t->first + t->rows)
        return true;
    if (!t->numbers) {
        t->numbers = fxi_malloc((size_t)t->capacity * sizeof *t->numbers);
        for (int64_t k = 0; t->numbers && k < t->rows; k++)
            t->numbers[k] = t->first + k;
    }
    if (t->numbers)
        t->numbers[t->rows] = t->lines.number;
    return t->numbers != NULL;
}

/* If the lines before this one have fewer columns, they may be remarks above the table. */
static fx_status bad_count(const table *t)
{
    char found[160], expected[48];
    const int n = snprintf(found, sizeof found, "%d", (int)t->nfields);
    if (t->rows <= 1 && t->nfields > t->ncolumns && !*t->lines.hint)
        snprintf(found + n, sizeof found - (size_t)n,
                 "; to begin the table here, call fx_read_table with .skip = %lld%s",
                 (long long)t->lines.number - 1,
                 t->ncolumns > 1 && t->separator == ',' ? "; texts that contain ',' need quotes"
                                                        : "");
    else if (t->nfields > t->ncolumns && t->separator == ',' && !*t->lines.hint)
        snprintf(found + n, sizeof found - (size_t)n, "; texts that contain ',' need quotes");
    snprintf(expected, sizeof expected, "%d columns as above", (int)t->ncolumns);
    return bad_line(t, expected, found);
}

static fx_status read_row(table *t)
{
    if (t->nfields != t->ncolumns)
        return bad_count(t);
    if (t->rows == 0)
        t->first = t->lines.number;
    if (!grow(t) || !note_line(t))
        return fxi_lines_out_of_memory(&t->lines);
    fx_status status = FX_OK;
    for (int32_t i = 0; i < t->ncolumns && status == FX_OK; i++)
        status = read_field(t, i, t->values + t->rows * t->ncolumns + i);
    t->rows++;
    return status;
}

/* Reads the first line, as a header or a row. *out_more: there is a second line, which is the
 * current row from now on. */
static fx_status read_first(table *t, bool *out_more)
{
    bool missing;
    const int32_t texts = texts_in(t, &missing);
    bool header = texts == t->nfields;
    const bool held = !header && texts > 0 && !missing;
    fx_status status = FX_OK;
    if (held) {
        t->held.number = t->lines.number;
        swap_rows(t);
        status = next_row(t, out_more);
        swap_rows(t);
        header = *out_more && is_above_numbers(t);
    }
    if (status == FX_OK)
        status = make_columns(t, header);
    if (status == FX_OK && !header)
        status = read_row(t);
    if (held)
        swap_rows(t);
    return status == FX_OK && !held ? next_row(t, out_more) : status;
}

static fx_status read_all(table *t, int64_t skip)
{
    bool more = true;
    fx_status status = FX_OK;
    for (int64_t i = 0; i < skip && more && status == FX_OK; i++)
        status = fxi_lines_next(&t->lines, &more);
    if (status == FX_OK && !t->separator)
        status = fxi_find_separator_of(&t->lines, t->decimal, &t->separator);
    if (status == FX_OK)
        status = next_row(t, &more);
    if (status == FX_OK && more)
        status = read_first(t, &more);
    while (status == FX_OK && more) {
        status = read_row(t);
        if (status == FX_OK)
            status = next_row(t, &more);
    }
    if (status == FX_OK && t->rows == 0)
        status = fx_fail(FX_STATUS_FORMAT, OP, "%s: expected rows, found none in %lld line%s%s",
                         t->lines.file.path, (long long)(t->lines.number - 1),
                         t->lines.number == 2 ? "" : "s", t->lines.hint);
    return status;
}

/* ---- the result ------------------------------------------------------------------------------ */

static int by_label(const void *a, const void *b)
{
    return strcmp(((const label *)a)->text, ((const label *)b)->text);
}

/* Changes label numbers from the order of appearance to the alphabetical order. */
static bool sort_codes(table *t, int32_t i)
{
    const column *c = &t->columns[i];
    if (c->n > 0)
        qsort(c->labels, (size_t)c->n, sizeof *c->labels, by_label);
    float *order = fxi_malloc((size_t)c->n * sizeof *order + 1);
    for (int32_t k = 0; order && k < c->n; k++)
        order[c->labels[k].code] = (float)k;
    for (int64_t row = 0; order && row < t->rows; row++) {
        float *value = t->values + row * t->ncolumns + i;
        *value = isnan(*value) ? *value : order[(int32_t)*value];
    }
    fxi_free(order);
    return order != NULL;
}

/* A named tuple of the results of `item` for n names, without NULL results; an error array if one
 * is an error. */
static void *named(const table *t, int32_t n, void *from,
                   void *(*item)(void *from, int32_t i, const char **out_name))
{
    const char **names = fxi_calloc((size_t)n + 1, sizeof *names);
    void **items = fxi_calloc((size_t)n + 1, sizeof *items);
    const bool memory = names && items;
    fx_status status = memory ? FX_OK : fxi_lines_out_of_memory(&t->lines);
    int32_t found = 0;
    for (int32_t i = 0; status == FX_OK && i < n; i++) {
        items[found] = item(from, i, &names[found]);
        status = items[found] && fx_is_error(items[found]) ? fx_error_status() : FX_OK;
        found += items[found] != NULL;
    }
    void *tuple =
        status == FX_OK ? fx_named_tuple_from(found, names, items) : fx_error_array(status);
    fxi_free((void *)names);
    fxi_free((void *)items);
    return tuple;
}

static void *rows_of_label(void *from, int32_t i, const char **out_name)
{
    const label *l = (const label *)from + i;
    *out_name = l->text;
    return fxi_from(FX_DTYPE_I64, &l->rows, 0, NULL);
}

static void *labels_of_column(void *from, int32_t i, const char **out_name)
{
    table *t = from;
    const column *c = &t->columns[i];
    *out_name = c->name;
    return c->text ? named(t, c->n, c->labels, rows_of_label) : fxi_tuple(0, NULL);
}

static void *line_of_first(const table *t)
{
    return fxi_from(FX_DTYPE_I64, &t->first, 0, NULL);
}

/* The line numbers of the rows, which the array takes over; an empty tuple if they are consecutive.
 */
static void *lines_of_rows(table *t)
{
    int64_t *numbers = t->numbers;
    t->numbers = NULL;
    return numbers ? (void *)fxi_lend(FX_DTYPE_I64, numbers, 1, &t->rows) : fxi_tuple(0, NULL);
}

/* The column in Float64, which takes over the numbers; NULL if Float32 holds them exactly. */
static void *wide_column(void *from, int32_t i, const char **out_name)
{
    table *t = from;
    column *c = &t->columns[i];
    double *wide = c->wide;
    c->wide = NULL;
    *out_name = c->name;
    return wide ? fxi_lend(FX_DTYPE_F64, wide, 1, &t->rows) : NULL;
}

static void *to_object(table *t)
{
    FXI_SCOPE;
    for (int32_t i = 0; i < t->ncolumns; i++)
        if (t->columns[i].text && !sort_codes(t, i))
            return fx_error_array(fxi_lines_out_of_memory(&t->lines));
    const int64_t sizes[] = {t->ncolumns, t->rows};
    float *values = t->values;
    t->values = NULL;
    fx_array *matrix = fxi_lend(FX_DTYPE_F32, values, 2, sizes);
    void *columns = named(t, t->ncolumns, t, labels_of_column);
    void *wide = named(t, t->ncolumns, t, wide_column), *line = line_of_first(t);
    void *lines = lines_of_rows(t);
    if (fx_is_error(matrix) || fx_is_error(columns) || fx_is_error(wide) || fx_is_error(line) ||
        fx_is_error(lines))
        return fx_error_array(fx_error_status());
    return fx_keep(fx_named_tuple("values", matrix, "columns", columns, "wide", wide, "line", line,
                                  "lines", lines));
}

static void free_table(table *t)
{
    for (int32_t i = 0; i < t->ncolumns; i++) {
        for (int32_t k = 0; k < t->columns[i].n; k++)
            fxi_free(t->columns[i].labels[k].text);
        fxi_free(t->columns[i].labels);
        fxi_free(t->columns[i].buckets);
        fxi_free(t->columns[i].name);
        fxi_free(t->columns[i].wide);
    }
    fxi_free(t->columns);
    fxi_free(t->fields);
    fxi_free(t->held.fields);
    fxi_free(t->held.line);
    fxi_free(t->values);
    fxi_free(t->numbers);
    fxi_lines_close(&t->lines);
}

void *fxi_read_table(const fx_read_table_args *given)
{
    FXI_TAKE_OPTIONS(fx_read_table_args, FXI_READ_TABLE_ARGS, a, OP, given);
    if (!a_ok)
        return fx_error_array(FX_STATUS_ARGUMENT);
    table t = {.separator = a.separator,
               .decimal = a.decimal ? a.decimal : '.',
               .missing = a.missing,
               .named = a.text};
    if (a.skip < 0)
        return fx_error_array(fx_fail(FX_STATUS_ARGUMENT, OP, "skip is %lld, expected at least 0",
                                      (long long)a.skip));
    if (t.separator && !strchr(",;|\t ", t.separator))
        return fx_error_array(fx_fail(FX_STATUS_ARGUMENT, OP,
                                      "the separator is '%c', expected , ; | tab or space",
                                      t.separator));
    if (t.decimal != '.' && t.decimal != ',')
        return fx_error_array(fx_fail(FX_STATUS_ARGUMENT, OP,
                                      "the decimal mark is '%c', expected . or ,", t.decimal));
    fx_status status = fxi_lines_open(&t.lines, OP, a.path);
    if (status == FX_OK)
        status = read_all(&t, a.skip);
    void *result = status == FX_OK ? to_object(&t) : fx_error_array(status);
    free_table(&t);
    return result;
}
