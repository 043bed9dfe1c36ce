/* input_file.h: any file that the library reads, by what it is. */
#ifndef CFLUX_TOOL_INPUT_FILE_H
#define CFLUX_TOOL_INPUT_FILE_H

#include <cflux.h>

typedef struct input_file {
    const char *path, *format; /* that of fx_file_info, "IDX" or "CSV" */
    bool table;                /* IDX or CSV: data, no parameters */
    int64_t bytes;
    char origin[120];
    void *entries;    /* a named tuple of the scope; one array is the entry "array" */
    void *columns;    /* of a CSV file, as fx_read_table gives them; NULL: it has no names */
    char notice[600]; /* what is odd about the file, and did not keep it from being read; "" */
} input_file;

/* false: it cannot be read; recorded. What was found out by then is filled in. */
bool input_file_read(const char *path, input_file *out);

/* Does the name say that the file is IDX? Where it says .csv too, that decides. */
bool input_file_is_called_idx(const char *path);

/* What is read once may be a pipe or the terminal. false: another device, which may have no end;
 * recorded. */
bool input_file_ends(const char *path);

#endif
