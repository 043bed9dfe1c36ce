/* csv.c: reads numbers in columns, one observation per line.
 *
 * Only one record and the numbers read so far are in memory. A row-major table with one row per
 * line has the same bytes as the column-major matrix columns×rows, so lines are simply appended.
 * Header lines are allowed only at the top. After the first row of numbers, a line that is neither
 * blank nor numbers is an error: silently skipped rows would misalign features and labels.
 */
#include "csv_lines.h"
#include "lend.h"
#include "separator.h"

#include <cflux/data.h>
#include <string.h>

static const char *const OP = "read_csv";
enum { FIRST_CAPACITY = 256 };

typedef struct csv_reader {
    fxi_lines lines;
    char separator;
    float *values;
    size_t count, capacity;
    int64_t columns; /* 0 before the first row */
} csv_reader;

static bool push(csv_reader *r, float value)
{
    if (r->count == r->capacity) {
        size_t bytes, capacity = r->capacity ? r->capacity + r->capacity / 2 : FIRST_CAPACITY;
        float *values = fxi_mul_size(capacity, sizeof *values, &bytes) &&
                                fxi_data_file_check_memory(&r->lines.file, bytes) == FX_OK
                            ? fxi_realloc(r->values, bytes)
                            : NULL;
        if (!values)
            return false;
        r->values = values;
        r->capacity = capacity;
    }
    r->values[r->count++] = value;
    return true;
}

/* The line, without surrounding blanks if blanks are separators. */
static fxi_field row_of(const csv_reader *r)
{
    char *start = r->lines.line, *stop = start + r->lines.length;
    return r->separator == ' ' ? fxi_field_trim(start, stop)
                               : (fxi_field){.start = start, .stop = stop};
}

static fx_status parse_row(csv_reader *r)
{
    const fxi_lines *lines = &r->lines;
    const fxi_field all = row_of(r);
    char *start = all.start, *const end = all.stop;
    int64_t column = 0;
    for (bool more = true; more;) {
        char *const stop = fxi_find_separator(start, end, r->separator);
        const fxi_field f = fxi_field_unquote(start, stop);
        float value;
        bool too_large;
        column++;
        if (!fxi_field_number(f, '.', &value, &too_large))
            return fxi_field_fail(lines, column, f, "a number");
        if (too_large)
            return fxi_field_fail(lines, column, f, "a number that fits Float32");
        if (r->columns && column > r->columns)
            break;
        if (!push(r, value))
            return fxi_lines_out_of_memory(lines);
        more = stop < end;
        start = stop + more;
        while (r->separator == ' ' && start < end && fxi_is_blank(*start))
            start++; /* several blanks are one separator */
    }
    if (r->columns && column != r->columns)
        return fx_fail(FX_STATUS_FORMAT, OP,
                       "%s: line %lld: expected %lld columns as above, found %s%lld%s",
                       lines->file.path, (long long)lines->number, (long long)r->columns,
                       column > r->columns ? "at least " : "", (long long)column, lines->hint);
    r->columns = column;
    return FX_OK;
}

/* True if, before the first row of numbers, the line begins with a field that is not a number. */
static bool is_header(const csv_reader *r)
{
    const fxi_field all = row_of(r);
    float value;
    bool too_large;
    const fxi_field first =
        fxi_field_unquote(all.start, fxi_find_separator(all.start, all.stop, r->separator));
    return r->columns == 0 && !fxi_field_number(first, '.', &value, &too_large);
}

static fx_status read_rows(csv_reader *r)
{
    fx_status status = fxi_find_separator_of(&r->lines, '.', &r->separator);
    if (status != FX_OK)
        return status;
    for (;;) {
        bool more;
        status = fxi_lines_next_record(&r->lines, r->separator, &more);
        if (status != FX_OK)
            return status;
        if (!more)
            break;
        const fxi_field all = fxi_field_trim(r->lines.line, r->lines.line + r->lines.length);
        if (all.start == all.stop || is_header(r))
            continue;
        const fx_status row = parse_row(r);
        if (row != FX_OK)
            return row;
    }
    if (!r->columns)
        return fx_fail(FX_STATUS_FORMAT, OP,
                       "%s: expected rows of numbers, found none in %lld line%s%s",
                       r->lines.file.path, (long long)(r->lines.number - 1),
                       r->lines.number == 2 ? "" : "s", r->lines.hint);
    return FX_OK;
}

static fx_array *to_matrix(csv_reader *r)
{
    const int64_t sizes[] = {r->columns, (int64_t)r->count / r->columns};
    float *values = r->values;
    r->values = NULL;
    return fxi_lend(FX_DTYPE_F32, values, 2, sizes);
}

fx_array *fx_read_csv(const char *path)
{
    csv_reader r = {.count = 0};
    fx_status status = fxi_lines_open(&r.lines, OP, path);
    if (status == FX_OK)
        status = read_rows(&r);
    fx_array *result = status == FX_OK ? to_matrix(&r) : fx_error_array(status);
    fxi_free(r.values);
    fxi_lines_close(&r.lines);
    return result;
}
