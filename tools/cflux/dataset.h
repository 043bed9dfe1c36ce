/* dataset.h: observations and targets from files, as the commands train, eval and predict take
 * them: folders and files of IDX, CSV, npy and npz. */
#ifndef CFLUX_TOOL_DATASET_H
#define CFLUX_TOOL_DATASET_H

#include "options.h"

#include <cflux.h>

/* What to read. Zeroed members mean the default. */
typedef struct data_request {
    text_list data;        /* the values of --data; see dataset_inputs */
    const char *path;      /* the first file */
    char *const *operands; /* further files, after those of --data */
    int more;              /* how many files follow the first one */
    text_list targets;  /* each a column, an entry or a file: one for all, or one for each file */
    int first, files;   /* which of the targets is that of path, and for how many files they are;
                           0: these alone */
    const char *column; /* of a CSV file without those; NULL: the last one */
    const char *target; /* of the file that is read; set by dataset_read */
    const char *shape;  /* of an observation: "8x8x1" */
    const char *separator; /* of a CSV file: one character, or "tab" or "space" */
    int64_t skip;          /* lines at its top */
    void *columns;         /* a tuple of texts: the features a model wants, by name; NULL: all */
    int64_t features;      /* how many it wants; 0: unknown */
    bool test;             /* the test part, where a folder or file has two */
    bool unlabelled;       /* a target may be missing */
    bool no_target;        /* there is none: every column is a feature */
} data_request;

/* The option --data, with what it says about the files. */
#define OPTION_DATA(request, help)                                                                 \
    {                                                                                              \
        "data", 'd', OPTION_TEXTS, &(request).data, "FILE|FOLDER",                                 \
            help "; may be given several times. Additional files, also as operands, are appended", \
            0, 0                                                                                   \
    }

/* The options that say how files are read, for the commands' tables. */
#define DATA_OPTIONS(request)                                                                      \
    {"target",                                                                                     \
     't',                                                                                          \
     OPTION_TEXTS,                                                                                 \
     &(request).targets,                                                                           \
     "COLUMN|FILE",                                                                                \
     "The target: a column of a CSV file by name or by number from 1 (default: the last), an "     \
     "entry of an npz file (default: y), or a separate file for an npy or IDX file; may be given " \
     "several times: once per data file, in the same order, then for the validation files",        \
     0,                                                                                            \
     0},                                                                                           \
        {"shape",     0,                                                                           \
         OPTION_TEXT, &(request).shape,                                                            \
         "SIZES",     "The sizes of an observation, such as 28x28x1: width, height, channels",     \
         0,           0},                                                                          \
        {"separator", 0,                                                                           \
         OPTION_TEXT, &(request).separator,                                                        \
         "CHARACTER", "The column separator of a CSV file: , ; | tab or space (default: ,)",       \
         0,           0},                                                                          \
    {                                                                                              \
        "skip", 0, OPTION_INTEGER, &(request).skip, "LINES",                                       \
            "Skip this many lines at the top of a CSV file (default: 0)", 0, 1e9                   \
    }

/* Of the commands that measure and predict: a folder of IDX files has two parts. */
#define OPTION_PART(target)                                                                        \
    {                                                                                              \
        "part", 0, OPTION_CHOICE, (target), "test|train",                                          \
            "Which part of a folder of IDX files (default: test)", 0, 0                            \
    }

typedef struct dataset {
    const char *path, *kind; /* kind: "csv", "idx", "npy", "npz" */
    fx_array *x;             /* Float32, observations along the last axis */
    fx_array *y;             /* as in the file, one or more numbers for each; NULL: none */
    int64_t n;
    int64_t line;       /* of the first observation in its file; 0: it has no lines */
    const char *target; /* what the target is called; NULL: none */
    void *labels;       /* texts of y, which holds positions in this named tuple; NULL: numbers */
    void *columns;      /* a tuple of texts, the names of the features; NULL: they have none */
} dataset;

/* Fills in path, operands and more: the files are those of --data, then n operands. path is NULL
 * where
 * --data is missing. */
void dataset_inputs(data_request *r, int n, char *const *operands);

/* How many of the paths go with a target: a folder of IDX files has its own. */
int dataset_files(const data_request *r);

/* Reads it into the scope. Returns EXIT_FINE, or the exit status of what was printed. */
int dataset_read(const data_request *r, dataset *out);

/* The text of the first of the targets, which are positions in labels. */
const char *first_text(fx_array *y, void *labels);

/* The sizes of one observation as text: "8×8×1". */
void describe_sizes(const fx_array *x, bool observation, char *text, size_t size);

#endif
