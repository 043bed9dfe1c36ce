/* dataset.h: reads observations and targets for the commands train, eval and predict: images, and
 * IDX, CSV, npy and npz files. */
#ifndef CFLUX_TOOL_DATASET_H
#define CFLUX_TOOL_DATASET_H

#include "options.h"

#include <cflux.h>

/* How missing values are treated. */
typedef enum missing_values {
    MISSING_REFUSED = 0, /* they are an error */
    MISSING_KEPT,        /* missing features are NaN; observations without a target are dropped */
    MISSING_DROPPED      /* observations with a missing feature are dropped too; if `unlabelled`,
                            they are an error, because every observation gets a prediction */
} missing_values;

/* The data to read. Zeroed members mean the default. */
typedef struct data_request {
    text_list data;        /* the values of --data; see dataset_inputs */
    const char *path;      /* first file */
    char *const *operands; /* further files, after those of --data */
    int more;              /* number of files after the first */
    /* Each is a column, an entry or a file; one for all files, or one per file. */
    text_list targets;
    int first, files;      /* first: index of the target of `path`; files: number of data files that
                              need targets; 0: those of this request */
    const char *column;    /* column for CSV files without --target; NULL: the last one */
    const char *target;    /* of the file being read; set by dataset_read */
    const char *id;        /* column of names of the observations, never a feature; or NULL */
    const char *entry;     /* entry of npz files with the observations; NULL: x, X, … */
    const char *shape;     /* size of an observation, "8x8x1" */
    const char *separator; /* of CSV files: one character, or "tab" or "space" */
    const char
        *decimal;     /* decimal mark of the numbers of CSV files, "." or ","; NULL: see `comma` */
    bool comma;       /* the model was trained with --decimal , */
    int64_t skip;     /* lines to skip at the top of CSV files */
    void *columns;    /* names of the features that the model needs, a tuple of texts; NULL: all
                         columns */
    int64_t features; /* number of features that the model needs; for texts the most tokens of a
                         line that it uses; 0: unknown */
    const fx_tokenizer *tokenizer; /* the files are texts; NULL: they are other data */
    int64_t context;               /* of a language model: tokens of an observation; 0: none */
    bool context_is_fixed;         /* the context is that of a saved model */
    const char *other; /* a file of another request with the same options: an option that fits it
                          is not refused; NULL: none */
    const char *part;  /* the value of --part; NULL: not given */
    bool test;         /* use the test part if a folder or file has two parts */
    bool unlabelled;   /* targets may be missing */
    missing_values missing;
    bool transpose; /* swap the first two axes of each observation */
    bool no_target; /* no target: every column is a feature */
} data_request;

/* The option --data with the help text about files. */
#define OPTION_DATA(request, help)                                                                 \
    {                                                                                              \
        "data", 'd', OPTION_TEXTS, &(request).data, "FILE|FOLDER",                                 \
            help ". The option may be given several times. Operands are data files too", 0, 0      \
    }

/* The options for reading files, for the tables of commands. */
#define DATA_OPTIONS(request)                                                                      \
    {"target",                                                                                     \
     't',                                                                                          \
     OPTION_TEXTS,                                                                                 \
     &(request).targets,                                                                           \
     "COLUMN|FILE",                                                                                \
     "The target. CSV: a column by name or by number from 1, or several, separated by commas "     \
     "(default: the last; in eval and predict the target of training). npz: an entry (default: "   \
     "y, Y or y_train; in eval and predict y_test, y or Y). npy and IDX: a separate file for "     \
     "each data file, so it may be given several times, in the same order as the data files. In "  \
     "cflux train, the targets of --validation come last",                                         \
     0,                                                                                            \
     0},                                                                                           \
        {"id",                                                                                     \
         0,                                                                                        \
         OPTION_TEXT,                                                                              \
         &(request).id,                                                                            \
         "COLUMN",                                                                                 \
         "A column of a CSV file, by name or by number from 1, that names the "                    \
         "observations and is not a feature; cflux predict writes it first",                       \
         0,                                                                                        \
         0},                                                                                       \
        {"entry",                                                                                  \
         0,                                                                                        \
         OPTION_TEXT,                                                                              \
         &(request).entry,                                                                         \
         "NAME",                                                                                   \
         "The entry of an npz file that has the observations (default: x, X or x_train; in eval "  \
         "and predict x_test, x or X)",                                                            \
         0,                                                                                        \
         0},                                                                                       \
        {"transpose",                                                                              \
         0,                                                                                        \
         OPTION_FLAG,                                                                              \
         &(request).transpose,                                                                     \
         NULL,                                                                                     \
         "Swap the first two sizes of each observation, for images whose width and height are "    \
         "exchanged. eval and predict do the same for a model that was trained with it",           \
         0,                                                                                        \
         0},                                                                                       \
        {"shape",                                                                                  \
         0,                                                                                        \
         OPTION_TEXT,                                                                              \
         &(request).shape,                                                                         \
         "SIZES",                                                                                  \
         "The sizes of an observation, such as 28x28x1: width, height, channels. PNG and JPEG "    \
         "images are resized to these sizes, also in eval and predict",                            \
         0,                                                                                        \
         0},                                                                                       \
        {"separator",                                                                              \
         0,                                                                                        \
         OPTION_TEXT,                                                                              \
         &(request).separator,                                                                     \
         "CHARACTER",                                                                              \
         "The column separator of a CSV file: , ; | tab or space (default: found from the file)",  \
         0,                                                                                        \
         0},                                                                                       \
        {"decimal",                                                                                \
         0,                                                                                        \
         OPTION_CHOICE,                                                                            \
         &(request).decimal,                                                                       \
         ".|,",                                                                                    \
         "The decimal mark of the numbers in a CSV file (default: the point; in eval and predict " \
         "the mark that was given to train)",                                                      \
         0,                                                                                        \
         0},                                                                                       \
    {                                                                                              \
        "skip", 0, OPTION_INTEGER, &(request).skip, "LINES",                                       \
            "Skip this many lines at the top of a CSV file (default: 0)", 0, 1e9                   \
    }

/* For the commands that evaluate and predict: an npz file, or a folder of images or IDX files, can
 * have two parts. */
#define OPTION_PART(request)                                                                       \
    {                                                                                              \
        "part", 0, OPTION_CHOICE, &(request).part, "test|train",                                   \
            "The part to read of an npz file, or of a folder of images or IDX files (default: "    \
            "test)",                                                                               \
            0, 0                                                                                   \
    }

typedef struct dataset {
    const char *path, *kind; /* kind: "csv", "idx", "images", "npy", "npz", "text",
                                "language" */
    fx_array *x;             /* Float32, observations along the final axis; ids of texts: Int32 */
    fx_array *y; /* as in the file, one or more numbers per observation; NULL: no targets */
    int64_t n;
    int64_t line;       /* line number of the first observation; 0: not a text file */
    fx_array *lines;    /* line numbers of the observations; NULL: consecutive */
    void *paths;        /* joined files: a tuple of their paths; NULL: one file */
    fx_array *firsts;   /* for each of them the number of its first observation, from 0 */
    const char *target; /* name of the target; NULL: no target */
    void *labels;  /* texts of y, which then holds positions in this named tuple; NULL: numbers */
    void *columns; /* names of the features, a tuple of texts; NULL: no names */
    fx_array *id;  /* positions in `ids`, a named tuple of the names of observations; NULL: none */
    void *ids;
    const char *id_name; /* name of their column */
    bool transposed;     /* the first two axes of x are swapped */
} dataset;

/* Fills in path, operands and more from --data and then the n operands. path is NULL if there is no
 * file. */
void dataset_inputs(data_request *r, int n, char *const *operands);

/* Refuses a command without data. Returns EXIT_BAD_INPUT. */
int no_data(void);

/* True if a file of data, not of texts, is read as CSV. Its name decides. */
bool dataset_is_csv(const char *path);

/* The path of file i, counted from 0. */
const char *dataset_path(const data_request *r, int i);

/* The number of paths that need a target. A folder of IDX files has its own. */
int dataset_files(const data_request *r);

/* Reads the data into the scope. Returns EXIT_FINE, or the exit status of a failure (printed). */
int dataset_read(const data_request *r, dataset *out);

/* Writes where an observation is: "PATH: line 5", "PATH: observation 3", or the path of an
 * image. `row` counts from 0. */
void dataset_location(const dataset *d, int64_t row, char *text, size_t size);

/* The line numbers of all observations as a vector. Requires d->line. */
fx_array *dataset_lines(const dataset *d);

/* The text of the first target. The targets are positions in `labels`. */
const char *first_text(fx_array *y, void *labels);

/* The name of the column of feature k of x, counted from 0; NULL without names. */
const char *dataset_column(const dataset *d, int64_t k);

/* The sizes of an observation as text: "8×8×1". */
void describe_sizes(const fx_array *x, bool observation, char *text, size_t size);

#endif
