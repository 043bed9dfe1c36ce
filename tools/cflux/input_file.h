/* input_file.h: reads any file that the library supports and determines its format. */
#ifndef CFLUX_TOOL_INPUT_FILE_H
#define CFLUX_TOOL_INPUT_FILE_H

#include <cflux.h>

typedef struct input_file {
    const char *path, *format; /* format: as in fx_file_info, or "IDX" or "CSV" */
    bool table;                /* IDX or CSV: data without parameters */
    int64_t bytes;
    char origin[120];
    void *entries;    /* a named tuple owned by the scope; a single array is the entry "array" */
    void *columns;    /* of a CSV file, as fx_read_table returns them; NULL: no column names */
    char notice[600]; /* a problem of the file that did not prevent reading; "" if none */
} input_file;

/* False if the file cannot be read (recorded); members known by then are filled in. */
bool input_file_read(const char *path, input_file *out);

/* True if the name is that of an IDX file. A name that contains .csv too is a CSV file. */
bool is_idx_name(const char *path);

/* True for a file that has an end: a regular file, a pipe or the terminal. False for other devices,
 * which may have none (recorded). */
bool input_file_has_end(const char *path);

#endif
