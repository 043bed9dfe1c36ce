/* csv_lines.c: lines of a file and numbers in them, for the readers of tables. */
#include "csv_lines.h"
#include "memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW = 1 << 16, FIRST_CAPACITY = 256, SHOWN = 40 };

fx_status fxi_lines_out_of_memory(const fxi_lines *lines)
{
    return fx_fail(FX_STATUS_MEMORY, lines->file.op, "%s: out of memory at line %lld",
                   lines->file.path, (long long)lines->number);
}

fx_status fxi_lines_open(fxi_lines *lines, const char *op, const char *path)
{
    *lines = (fxi_lines){.number = 0};
    const fx_status status = fxi_data_file_open(&lines->file, op, path);
    if (status != FX_OK)
        return status;
    lines->c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    lines->window = fxi_malloc(WINDOW);
    return lines->c_locale && lines->window ? FX_OK : fxi_lines_out_of_memory(lines);
}

void fxi_lines_close(fxi_lines *lines)
{
    if (lines->c_locale)
        freelocale(lines->c_locale);
    fxi_free(lines->line);
    fxi_free(lines->window);
    fxi_data_file_close(&lines->file);
}

static bool append(fxi_lines *lines, const char *text, size_t n)
{
    size_t capacity = lines->capacity ? lines->capacity : FIRST_CAPACITY;
    while (capacity <= lines->length + n)
        capacity *= 2;
    char *line = capacity > lines->capacity ? fxi_realloc(lines->line, capacity) : lines->line;
    if (!line)
        return false;
    lines->line = line;
    lines->capacity = capacity;
    memcpy(line + lines->length, text, n);
    lines->length += n;
    line[lines->length] = 0;
    return true;
}

/* Some editors begin a UTF-8 file with one; left there it would turn the first row into a header.
 */
static void drop_byte_order_mark(fxi_lines *lines)
{
    if (lines->number != 1 || lines->length < 3 || memcmp(lines->line, "\xEF\xBB\xBF", 3) != 0)
        return;
    lines->length -= 3;
    memmove(lines->line, lines->line + 3, lines->length + 1);
}

static fx_status check_end(const fxi_lines *lines)
{
    return lines->file.cut
               ? fx_fail(FX_STATUS_FORMAT, lines->file.op,
                         "%s: line %lld: expected the end of the gzip stream, found nothing%s",
                         lines->file.path, (long long)lines->number,
                         fxi_data_file_cut_note(&lines->file))
               : FX_OK;
}

fx_status fxi_lines_next(fxi_lines *lines, bool *out_more)
{
    bool found_newline = false;
    lines->length = 0;
    lines->number++;
    *out_more = false;
    while (!found_newline) {
        if (lines->at == lines->end) {
            const int64_t got = fxi_data_file_read(&lines->file, lines->window, WINDOW);
            if (got < 0)
                return lines->file.status;
            lines->at = 0;
            lines->end = (size_t)got;
            if (got == 0)
                break;
        }
        const char *start = lines->window + lines->at;
        const char *newline = memchr(start, '\n', lines->end - lines->at);
        const size_t n = newline ? (size_t)(newline - start) : lines->end - lines->at;
        found_newline = newline != NULL;
        lines->at += n + found_newline;
        *out_more = true;
        if (!append(lines, start, n))
            return fxi_lines_out_of_memory(lines);
    }
    drop_byte_order_mark(lines);
    return *out_more ? FX_OK : check_end(lines);
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

fxi_field fxi_field_trim(char *start, char *stop)
{
    while (start < stop && is_blank(*start))
        start++;
    while (stop > start && is_blank(stop[-1]))
        stop--;
    return (fxi_field){start, stop};
}

/* strtof stops at a separator or the line's terminator, so it may run on the line itself. */
bool fxi_field_number(const fxi_lines *lines, fxi_field f, float *out, bool *out_too_large)
{
    char *end = NULL;
    errno = 0;
    *out = f.start < f.stop ? strtof_l(f.start, &end, lines->c_locale) : 0.0f;
    *out_too_large = errno == ERANGE && (*out > 1.0f || *out < -1.0f);
    return f.start < f.stop && end == f.stop;
}

fx_status fxi_field_bad(const fxi_lines *lines, int64_t column, fxi_field f, const char *expected)
{
    const int n = (int)(f.stop - f.start < SHOWN ? f.stop - f.start : SHOWN);
    const char *quote = n ? "\"" : "";
    return fx_fail(FX_STATUS_FORMAT, lines->file.op,
                   "%s: line %lld, column %lld: expected %s, found %s%.*s%s", lines->file.path,
                   (long long)lines->number, (long long)column, expected, quote, n ? n : 7,
                   n ? f.start : "nothing", quote);
}
