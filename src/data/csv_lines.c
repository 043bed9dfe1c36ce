/* csv_lines.c: reads lines of a text file and the numbers in them: see csv_lines.h. */
#include "csv_lines.h"
#include "c_text.h"
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
    *lines = (fxi_lines){.hint = ""};
    const fx_status status = fxi_data_file_open(&lines->file, op, path);
    if (status != FX_OK)
        return status;
    lines->window = fxi_malloc(WINDOW + 1);
    return lines->window ? FX_OK : fxi_lines_out_of_memory(lines);
}

void fxi_lines_close(fxi_lines *lines)
{
    fxi_free(lines->line);
    fxi_free(lines->window);
    fxi_data_file_close(&lines->file);
}

static bool append(fxi_lines *lines, const char *text, size_t n)
{
    size_t capacity = lines->capacity ? lines->capacity : FIRST_CAPACITY;
    while (capacity <= lines->length + n)
        capacity *= 2;
    char *line = lines->line;
    if (capacity > lines->capacity)
        line = fxi_data_file_check_memory(&lines->file, capacity) == FX_OK
                   ? fxi_realloc(line, capacity)
                   : NULL;
    if (!line)
        return false;
    lines->line = line;
    lines->capacity = capacity;
    memcpy(line + lines->length, text, n);
    lines->length += n;
    line[lines->length] = 0;
    return true;
}

/* Some editors begin a UTF-8 file with a byte order mark, which would turn the first row into a
 * header.
 */
static void drop_byte_order_mark(fxi_lines *lines)
{
    if (lines->number != 1 || lines->length < 3 || memcmp(lines->line, "\xEF\xBB\xBF", 3) != 0)
        return;
    lines->length -= 3;
    memmove(lines->line, lines->line + 3, lines->length + 1);
}

/* Checks the beginning of a file. Excel writes "Unicode Text" as UTF-16 with a byte order mark. */
static fx_status check_beginning(const fxi_lines *lines, const char *start, size_t n)
{
    if (n < 2 || (memcmp(start, "\xFF\xFE", 2) != 0 && memcmp(start, "\xFE\xFF", 2) != 0))
        return FX_OK;
    return fx_fail(FX_STATUS_FORMAT, lines->file.op,
                   "%s: the text is UTF-16, expected UTF-8: in Excel save it as \"CSV UTF-8\", or "
                   "convert it with iconv -f UTF-16 -t UTF-8",
                   lines->file.path);
}

static fx_status check_end(const fxi_lines *lines)
{
    return lines->file.cut
               ? fx_fail(FX_STATUS_FORMAT, lines->file.op,
                         "%s: line %lld: the gzip stream is truncated%s", lines->file.path,
                         (long long)lines->number, fxi_data_file_cut_note(&lines->file))
               : FX_OK;
}

/* Appends the next line to the buffer. */
static fx_status read_line(fxi_lines *lines, bool *out_more)
{
    bool found_newline = false;
    lines->latest++;
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
    lines->newline = found_newline;
    return *out_more ? FX_OK : check_end(lines);
}

fx_status fxi_lines_peek(fxi_lines *lines, const char **out_start, size_t *out_n, bool *out_whole)
{
    lines->end -= lines->at;
    memmove(lines->window, lines->window + lines->at, lines->end);
    lines->at = 0;
    int64_t got = 1;
    while (lines->end < WINDOW && got > 0) {
        got = fxi_data_file_read(&lines->file, lines->window + lines->end, WINDOW - lines->end);
        lines->end += got > 0 ? (size_t)got : 0;
    }
    lines->window[lines->end] = 0;
    *out_start = lines->window;
    *out_n = lines->end;
    *out_whole = got <= 0;
    return got < 0             ? lines->file.status
           : lines->latest > 0 ? FX_OK
                               : check_beginning(lines, lines->window, lines->end);
}

fx_status fxi_lines_next(fxi_lines *lines, bool *out_more)
{
    lines->length = 0;
    lines->number = lines->latest + 1;
    fx_status status = read_line(lines, out_more);
    if (status == FX_OK && lines->number == 1)
        status = check_beginning(lines, lines->line, lines->length);
    drop_byte_order_mark(lines);
    return status;
}

/* ---- records --------------------------------------------------------------------------------- */

bool fxi_is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

bool fxi_is_separator(char c, char separator)
{
    return c == separator || (separator == ' ' && c == '\t');
}

char *fxi_find_separator(char *start, char *end, char separator)
{
    char *at = separator == ' ' ? start : memchr(start, separator, (size_t)(end - start));
    while (separator == ' ' && at < end && !fxi_is_separator(*at, ' '))
        at++;
    return at ? at : end;
}

fxi_position fxi_position_after(fxi_position now, char c, char separator)
{
    if (now == FXI_FIELD_INSIDE)
        return c == '"' ? FXI_FIELD_AFTER : FXI_FIELD_INSIDE;
    if (c == '"' && now != FXI_FIELD_OUTSIDE)
        return FXI_FIELD_INSIDE;
    if (fxi_is_separator(c, separator))
        return FXI_FIELD_BEFORE;
    return now == FXI_FIELD_BEFORE && fxi_is_blank(c) ? FXI_FIELD_BEFORE : FXI_FIELD_OUTSIDE;
}

/* Appends further lines while the end of the line is inside quotes. */
static fx_status read_quoted(fxi_lines *lines, char separator)
{
    fxi_position now = FXI_FIELD_BEFORE;
    int64_t opened = 0;
    bool more = memchr(lines->line, '"', lines->length) != NULL;
    fx_status status = FX_OK;
    for (size_t at = 0; more && status == FX_OK;) {
        for (; at < lines->length; at++) {
            const fxi_position next = fxi_position_after(now, lines->line[at], separator);
            if (now == FXI_FIELD_BEFORE && next == FXI_FIELD_INSIDE)
                opened = lines->latest;
            now = next;
        }
        if (now != FXI_FIELD_INSIDE)
            return FX_OK;
        status = append(lines, "\n", 1) ? read_line(lines, &more) : fxi_lines_out_of_memory(lines);
    }
    return status == FX_OK && now == FXI_FIELD_INSIDE
               ? fx_fail(FX_STATUS_FORMAT, lines->file.op,
                         "%s: line %lld: expected a closing quote, found the end of the file",
                         lines->file.path, (long long)opened)
               : status;
}

static bool holds(const fxi_field *f, char c)
{
    return memchr(f->start, c, (size_t)(f->stop - f->start)) != NULL;
}

/* A carriage return inside of a line, outside of quotes, is an error: in a file in which it ends
 * the lines, all rows would become one. */
static fx_status check_returns(const fxi_lines *lines, char separator)
{
    const fxi_field all = fxi_field_trim(lines->line, lines->line + lines->length);
    if (!holds(&all, '\r'))
        return FX_OK;
    fxi_position now = FXI_FIELD_BEFORE;
    int64_t number = lines->number;
    for (const char *at = all.start; at < all.stop; at++) {
        now = fxi_position_after(now, *at, separator);
        if (*at == '\r' && now != FXI_FIELD_INSIDE)
            return fx_fail(FX_STATUS_FORMAT, lines->file.op,
                           "%s: line %lld: found a carriage return inside of the line; lines must "
                           "end with a line feed, or a carriage return and a line feed",
                           lines->file.path, (long long)number);
        number += *at == '\n';
    }
    return FX_OK;
}

/* Sets the hint from the first line that is not blank. It is dropped if a later line has commas and
 * not the other separator: then the first line was only a remark. */
static void find_hint(fxi_lines *lines, char separator)
{
    static const struct hint {
        char separator;
        const char *text;
    } hints[] = {
        {';', "; the first line has ';' and no ',': call fx_read_table with .separator = ';'"},
        {'|', "; the first line has '|' and no ',': call fx_read_table with .separator = '|'"},
        {'\t', "; the first line has tabs and no ',': call fx_read_table with .separator = '\\t'"}};
    const fxi_field all = fxi_field_trim(lines->line, lines->line + lines->length);
    const bool parted = separator != ',' || holds(&all, ',');
    if (lines->other && parted && !holds(&all, lines->other))
        lines->hint = "";
    if (lines->hinted || all.start == all.stop)
        return;
    lines->hinted = true;
    for (size_t i = 0; i < sizeof hints / sizeof *hints && !parted && !lines->other; i++)
        if (holds(&all, hints[i].separator)) {
            lines->other = hints[i].separator;
            lines->hint = hints[i].text;
        }
}

fx_status fxi_lines_next_record(fxi_lines *lines, char separator, bool *out_more)
{
    fx_status status = fxi_lines_next(lines, out_more);
    if (status == FX_OK && *out_more)
        status = read_quoted(lines, separator);
    if (status == FX_OK && *out_more)
        status = check_returns(lines, separator);
    if (status == FX_OK && *out_more)
        find_hint(lines, separator);
    return status;
}

/* ---- fields ---------------------------------------------------------------------------------- */

fxi_field fxi_field_trim(char *start, char *stop)
{
    while (start < stop && fxi_is_blank(*start))
        start++;
    while (stop > start && fxi_is_blank(stop[-1]))
        stop--;
    return (fxi_field){.start = start, .stop = stop};
}

fxi_field fxi_field_unquote(char *start, char *stop)
{
    const fxi_field f = fxi_field_trim(start, stop);
    return f.stop - f.start >= 2 && *f.start == '"' && f.stop[-1] == '"'
               ? fxi_field_trim(f.start + 1, f.stop - 1)
               : f;
}

/* Replaces the first `mark` in the field. Returns its address, NULL if there is none. */
static char *replace_mark(fxi_field f, char mark, char other)
{
    char *at = f.start < f.stop ? memchr(f.start, mark, (size_t)(f.stop - f.start)) : NULL;
    if (at)
        *at = other;
    return at;
}

/* strtof stops at a separator or at the line's terminator, so it can parse the line in place. It
 * accepts only a decimal point. If the decimal mark is a comma, the first comma is therefore
 * replaced by a point while the field is parsed. The first point is replaced by a character that no
 * number has, so that a thousands separator makes the field a text. A line break inside quotes does
 * not count as a blank. */
bool fxi_field_number(fxi_field f, char decimal, float *out, bool *out_too_large)
{
    char *end = NULL, *point = decimal == ',' ? replace_mark(f, '.', '_') : NULL;
    char *comma = decimal == ',' ? replace_mark(f, ',', '.') : NULL;
    errno = 0;
    *out = f.start < f.stop ? fxi_strtof(f.start, &end) : 0.0f;
    *out_too_large = errno == ERANGE && (*out > 1.0f || *out < -1.0f);
    if (comma)
        *comma = ',';
    if (point)
        *point = '.';
    return f.start < f.stop && *f.start != '\n' && end == f.stop;
}

double fxi_field_wide(fxi_field f, char decimal)
{
    char *comma = decimal == ',' ? replace_mark(f, ',', '.') : NULL;
    const double value = fxi_strtod(f.start, NULL);
    if (comma)
        *comma = ',';
    return value;
}

fx_status fxi_field_fail(const fxi_lines *lines, int64_t column, fxi_field f, const char *expected)
{
    int n = (int)(f.stop - f.start < SHOWN ? f.stop - f.start : SHOWN);
    const char *line_break = memchr(f.start, '\n', (size_t)n);
    n = line_break ? (int)(line_break - f.start) : n;
    const char *nothing = line_break ? "a line break" : "nothing";
    const char *quote = n ? "\"" : "";
    return fx_fail(FX_STATUS_FORMAT, lines->file.op,
                   "%s: line %lld, column %lld: expected %s, found %s%.*s%s%s", lines->file.path,
                   (long long)(f.number ? f.number : lines->number), (long long)column, expected,
                   quote, n ? n : SHOWN, n ? f.start : nothing, quote, lines->hint);
}
