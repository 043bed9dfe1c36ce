/* csv_lines.h: reads the lines of a text file, plain or gzip, and the numbers in them. Internal.
 *
 * The file is streamed: only a window of 64 KiB and one line, or record, are in memory. Numbers are
 * parsed in the C locale: correctly rounded, and "1.5" means the same under a locale with a decimal
 * comma.
 */
#ifndef CFLUX_CSV_LINES_H
#define CFLUX_CSV_LINES_H

#include "data_file.h"

typedef struct fxi_lines {
    fxi_data_file file;
    char *window; /* bytes [at, end) are unread */
    size_t at, end;
    char *line; /* terminated, without its newline and without a byte order mark */
    size_t length, capacity;
    bool newline;   /* the line ends with a newline; only the last line of a file may lack it */
    int64_t number; /* line number, from 1; for a record its first line */
    int64_t latest; /* number of the line read most recently */
    /* Text to append to an error message about a file that does not parse with commas: it names the
     * other separator that the first record has. "" if none. */
    const char *hint;
    bool hinted; /* the first record was checked for a hint */
    char other;  /* the separator that the hint names, or 0 */
} fxi_lines;

/* A field is [start, stop) of a line, without surrounding blanks. */
typedef struct fxi_field {
    char *start, *stop;
    int64_t number; /* number of the line in which it begins; 0: lines->number */
} fxi_field;

fx_status fxi_lines_open(fxi_lines *lines, const char *op, const char *path);
/* Reads the next line into lines->line. *out_more is false at the end of the file; a truncated gzip
 * stream is an error. */
fx_status fxi_lines_next(fxi_lines *lines, bool *out_more);
/* Reads the next record: a line, and the lines into which its quoted fields continue (RFC 4180),
 * with the line breaks between them. Unclosed quotes are an error that names the line in which they
 * open. A carriage return outside of quotes that does not end the line is an error. */
fx_status fxi_lines_next_record(fxi_lines *lines, char separator, bool *out_more);
/* The unread bytes of the file, at most 64 KiB, terminated by a zero. They stay unread. *out_whole:
 * the file ends with them. */
fx_status fxi_lines_peek(fxi_lines *lines, const char **out_start, size_t *out_n, bool *out_whole);
void fxi_lines_close(fxi_lines *lines);

/* The parser's state at a character. Quotes are special only at the start of a field, after blanks;
 * elsewhere they are text. */
typedef enum fxi_position {
    FXI_FIELD_BEFORE, /* at the start of a field */
    FXI_FIELD_INSIDE, /* inside quotes */
    FXI_FIELD_AFTER,  /* after a quote, which ends the quotes unless it is doubled */
    FXI_FIELD_OUTSIDE
} fxi_position;
fxi_position fxi_position_after(fxi_position now, char c, char separator);

bool fxi_is_blank(char c);
/* The separator ' ' also matches tabs. */
bool fxi_is_separator(char c, char separator);
/* The first separator in [start, end), else `end`. */
char *fxi_find_separator(char *start, char *end, char separator);
fxi_field fxi_field_trim(char *start, char *stop);
/* A field without surrounding blanks and quotes. Quotes that are not closed before the separator
 * stay: the field is then not a number. */
fxi_field fxi_field_unquote(char *start, char *stop);
/* True if the field is a number whose decimal mark is `decimal`, '.' or ','. *out_too_large:
 * Float32 cannot represent it. */
bool fxi_field_number(fxi_field f, char decimal, float *out, bool *out_too_large);
/* The same number in Float64. */
double fxi_field_wide(fxi_field f, char decimal);
/* Records FX_STATUS_FORMAT: "PATH: line 3, column 2: expected a number, found "x"" and the hint. */
fx_status fxi_field_fail(const fxi_lines *lines, int64_t column, fxi_field f, const char *expected);
/* Records FX_STATUS_MEMORY with the line number. */
fx_status fxi_lines_out_of_memory(const fxi_lines *lines);

#endif
