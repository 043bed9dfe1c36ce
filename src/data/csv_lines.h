/* csv_lines.h: the lines of a text file, plain or gzip, and the numbers in them. Internal to
 * src/data.
 *
 * The file is streamed: a window of 64 KiB and one line, or record, are all that is held. Numbers
 * are read in the C locale: correctly rounded, and "1.5" means the same under a locale with a
 * decimal comma.
 */
#ifndef CFLUX_CSV_LINES_H
#define CFLUX_CSV_LINES_H

#include "data_file.h"

typedef struct fxi_lines {
    fxi_data_file file;
    char *window; /* bytes [at, end) of it are unread */
    size_t at, end;
    char *line; /* terminated, without its newline and a byte order mark */
    size_t length, capacity;
    int64_t number; /* of the line, from 1; of a record's first one */
    int64_t last;   /* of the line that was read last */
    /* What ends a sentence on a file that makes no sense with commas: that its first record has
     * another separator and no comma, or "". */
    const char *hint;
    bool hinted; /* that record has been looked at */
    char other;  /* the separator that it speaks of, or 0 */
} fxi_lines;

/* A field is [start, stop) of a line, without the blanks around it. */
typedef struct fxi_field {
    char *start, *stop;
    int64_t number; /* of the line it begins in; 0: lines->number */
} fxi_field;

fx_status fxi_lines_open(fxi_lines *lines, const char *op, const char *path);
/* The next line into lines->line; *out_more is false at the end of the file, which is an error
 * where a gzip stream breaks off. */
fx_status fxi_lines_next(fxi_lines *lines, bool *out_more);
/* The next record: a line, and those that fields in quotes go on in (RFC 4180), with the line
 * breaks between them. Quotes that are not closed are an error, with the line they open in. */
fx_status fxi_lines_next_record(fxi_lines *lines, char separator, bool *out_more);
void fxi_lines_close(fxi_lines *lines);

bool fxi_is_blank(char c);
/* A space as the separator stands for tabs too. */
bool fxi_is_separator(char c, char separator);
fxi_field fxi_field_trim(char *start, char *stop);
/* Is the field a number? One that Float32 cannot hold says so. */
bool fxi_field_number(fxi_field f, float *out, bool *out_too_large);
/* "PATH: line 3, column 2: expected a number, found "x"" and the hint, FX_STATUS_FORMAT. */
fx_status fxi_field_fail(const fxi_lines *lines, int64_t column, fxi_field f, const char *expected);
/* FX_STATUS_MEMORY, with the line. */
fx_status fxi_lines_out_of_memory(const fxi_lines *lines);

#endif
