/* csv.c: numbers in columns, separated by commas, one observation per line.
 *
 * The file is streamed: a 64 KiB window, one line, and the numbers so far are all that is held. A
 * row-major table with one row per line is the column-major matrix columns×rows with the same
 * bytes, so lines are simply appended. Numbers are read with strtof_l in the C locale: correctly
 * rounded, and "1.5" means the same under a locale with a decimal comma. Header lines may stand at
 * the top only; after the first row of numbers everything that is not one is an error, since
 * silently skipped rows are how features and labels come apart.
 */
#include "data_file.h"
#include "lend.h"

#include <cflux/data.h>
#include <errno.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>

static const char *const OP = "read_csv";
enum { WINDOW = 1 << 16, FIRST_CAPACITY = 256 };

typedef struct csv_reader {
    fxi_data_file file;
    locale_t c_locale;
    char *window; /* bytes [at, end) of it are unread */
    size_t at, end;
    char *line; /* terminated, without its newline */
    size_t length, capacity;
    int64_t line_number; /* from 1 */
    float *values;
    size_t count, room;
    int64_t columns; /* 0 before the first row */
} csv_reader;

static fx_status out_of_memory(const csv_reader *r)
{
    return fx_fail(FX_STATUS_MEMORY, OP, "%s: out of memory at line %lld", r->file.path,
                   (long long)r->line_number);
}

static bool append_to_line(csv_reader *r, const char *text, size_t n)
{
    size_t capacity = r->capacity ? r->capacity : FIRST_CAPACITY;
    while (capacity <= r->length + n)
        capacity *= 2;
    char *line = capacity > r->capacity ? fxi_realloc(r->line, capacity) : r->line;
    if (!line)
        return false;
    r->line = line;
    r->capacity = capacity;
    memcpy(line + r->length, text, n);
    r->length += n;
    line[r->length] = 0;
    return true;
}

/* The next line into r->line; *out_more is false at the end of the file. */
static fx_status read_line(csv_reader *r, bool *out_more)
{
    bool found_newline = false;
    r->length = 0;
    r->line_number++;
    *out_more = false;
    while (!found_newline) {
        if (r->at == r->end) {
            const int64_t got = fxi_data_file_read(&r->file, r->window, WINDOW);
            if (got < 0)
                return r->file.status;
            r->at = 0;
            r->end = (size_t)got;
            if (got == 0)
                break;
        }
        const char *start = r->window + r->at, *newline = memchr(start, '\n', r->end - r->at);
        const size_t n = newline ? (size_t)(newline - start) : r->end - r->at;
        found_newline = newline != NULL;
        r->at += n + found_newline;
        *out_more = true;
        if (!append_to_line(r, start, n))
            return out_of_memory(r);
    }
    return FX_OK;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* A field is [start, stop) without the blanks around it. */
typedef struct field {
    const char *start, *stop;
} field;

static field trim(const char *start, const char *stop)
{
    while (start < stop && is_blank(*start))
        start++;
    while (stop > start && is_blank(stop[-1]))
        stop--;
    return (field){start, stop};
}

/* strtof stops at the comma or the line's terminator, so it may run on the line itself. */
static bool parse(const csv_reader *r, field f, float *out, bool *out_too_large)
{
    char *end = NULL;
    errno = 0;
    *out = f.start < f.stop ? strtof_l(f.start, &end, r->c_locale) : 0.0f;
    *out_too_large = errno == ERANGE && (*out > 1.0f || *out < -1.0f);
    return f.start < f.stop && end == f.stop;
}

static bool push(csv_reader *r, float value)
{
    if (r->count == r->room) {
        size_t bytes, room = r->room ? r->room + r->room / 2 : FIRST_CAPACITY;
        float *values =
            fxi_mul_size(room, sizeof *values, &bytes) ? fxi_realloc(r->values, bytes) : NULL;
        if (!values)
            return false;
        r->values = values;
        r->room = room;
    }
    r->values[r->count++] = value;
    return true;
}

static fx_status bad_field(const csv_reader *r, int64_t column, field f, const char *expected)
{
    const int n = (int)(f.stop - f.start < 40 ? f.stop - f.start : 40);
    const char *quote = n ? "\"" : "";
    return fx_fail(FX_STATUS_FORMAT, OP, "%s: line %lld, column %lld: expected %s, found %s%.*s%s",
                   r->file.path, (long long)r->line_number, (long long)column, expected, quote,
                   n ? n : 7, n ? f.start : "nothing", quote);
}

static fx_status parse_row(csv_reader *r)
{
    const char *start = r->line, *const end = r->line + r->length;
    int64_t column = 0;
    for (bool more = true; more;) {
        const char *comma = memchr(start, ',', (size_t)(end - start));
        const field f = trim(start, comma ? comma : end);
        float value;
        bool too_large;
        column++;
        if (!parse(r, f, &value, &too_large))
            return bad_field(r, column, f, "a number");
        if (too_large)
            return bad_field(r, column, f, "a number that fits Float32");
        if (r->columns && column > r->columns)
            break;
        if (!push(r, value))
            return out_of_memory(r);
        more = comma != NULL;
        start = comma ? comma + 1 : end;
    }
    if (r->columns && column != r->columns)
        return fx_fail(FX_STATUS_FORMAT, OP,
                       "%s: line %lld: expected %lld columns as above, found %s%lld", r->file.path,
                       (long long)r->line_number, (long long)r->columns,
                       column > r->columns ? "at least " : "", (long long)column);
    r->columns = column;
    return FX_OK;
}

/* Before the first row of numbers: does the line begin with something that is not a number? */
static bool is_header(const csv_reader *r)
{
    const char *comma = memchr(r->line, ',', r->length);
    float value;
    bool too_large;
    return r->columns == 0 &&
           !parse(r, trim(r->line, comma ? comma : r->line + r->length), &value, &too_large);
}

/* Some editors begin a UTF-8 file with one; left there it would turn the first row into a header.
 */
static void drop_byte_order_mark(csv_reader *r)
{
    if (r->line_number != 1 || r->length < 3 || memcmp(r->line, "\xEF\xBB\xBF", 3) != 0)
        return;
    r->length -= 3;
    memmove(r->line, r->line + 3, r->length + 1);
}

static fx_status read_rows(csv_reader *r)
{
    for (;;) {
        bool more;
        const fx_status status = read_line(r, &more);
        if (status != FX_OK)
            return status;
        if (!more)
            break;
        drop_byte_order_mark(r);
        const field all = trim(r->line, r->line + r->length);
        if (all.start == all.stop || is_header(r))
            continue;
        const fx_status row = parse_row(r);
        if (row != FX_OK)
            return row;
    }
    if (r->file.cut)
        return fx_fail(FX_STATUS_FORMAT, OP,
                       "%s: line %lld: expected the end of the gzip stream, found nothing%s",
                       r->file.path, (long long)r->line_number, fxi_data_file_cut_note(&r->file));
    if (!r->columns)
        return fx_fail(FX_STATUS_FORMAT, OP,
                       "%s: expected rows of numbers, found none in %lld lines", r->file.path,
                       (long long)(r->line_number - 1));
    return FX_OK;
}

static fx_array *to_matrix(csv_reader *r)
{
    const int64_t dims[] = {r->columns, (int64_t)r->count / r->columns};
    float *values = r->values;
    r->values = NULL;
    return fxi_lend(FX_DTYPE_F32, values, 2, dims);
}

fx_array *fx_read_csv(const char *path)
{
    csv_reader r = {0};
    fx_status status = fxi_data_file_open(&r.file, OP, path);
    if (status == FX_OK) {
        r.c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
        r.window = fxi_malloc(WINDOW);
        status = r.c_locale && r.window ? read_rows(&r) : out_of_memory(&r);
    }
    fx_array *result = status == FX_OK ? to_matrix(&r) : fx_error_array(status);
    if (r.c_locale)
        freelocale(r.c_locale);
    fxi_free(r.values);
    fxi_free(r.line);
    fxi_free(r.window);
    fxi_data_file_close(&r.file);
    return result;
}
