/* options.h: a command and its options as a table: read, explained in help, manual and completion
 * from the same rows. */
#ifndef CFLUX_TOOL_OPTIONS_H
#define CFLUX_TOOL_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* An option with a value is refused when it is given twice, except OPTION_TEXTS. */
typedef enum option_kind {
    OPTION_FLAG,    /* bool: becomes true; may be repeated */
    OPTION_TEXT,    /* const char * */
    OPTION_CHOICE,  /* const char *: one of the words of metavar, "mean|sum" */
    OPTION_INTEGER, /* int64_t */
    OPTION_NUMBER,  /* double */
    OPTION_TEXTS    /* text_list: the option may be repeated */
} option_kind;

enum { TEXTS_AT_MOST = 64 };
typedef struct text_list {
    int n;
    const char *items[TEXTS_AT_MOST];
} text_list;

/* One option. A row without a name ends the table. */
typedef struct option_row {
    const char *name; /* "epochs": --epochs */
    char letter;      /* 'e': -e; 0: none */
    option_kind kind;
    void *to;            /* where the value goes; holds the default before */
    const char *metavar; /* "N"; FILE and FOLDER are completed as such; NULL for flags */
    const char *help;    /* a sentence without its full stop, with the default in words */
    double least, most;  /* bounds of a number; none when least is not below most */
} option_row;

typedef struct command {
    const char *name, *summary;         /* the summary is a phrase without a full stop */
    const char *operands;               /* as usage shows them: "MODEL --data FILE", "[NAME]" */
    int least, most;                    /* how many operands there are; most −1: any number */
    const char *about;                  /* paragraphs for help and manual, parted by line ends */
    option_row *options;                /* NULL: none but --help */
    int (*run)(int n, char **operands); /* returns the exit status */
} command;

/* The row that every command with results has. */
#define OPTION_JSON(target)                                                                        \
    {                                                                                              \
        "json", 0, OPTION_FLAG, (target), NULL, "Print one JSON document instead of text", 0, 0    \
    }
/* Of the commands that compute. */
#define OPTION_FLUX_VERSION(target)                                                                \
    {                                                                                              \
        "flux-version", 0, OPTION_TEXT, (target), "VERSION",                                       \
            "The version of Flux whose LayerNorm formula to use for a BSON file, such as 0.14 or " \
            "0.16.10 (default: the newest that can have written the file)",                        \
            0, 0                                                                                   \
    }
#define OPTION_DEVICE(target)                                                                      \
    {                                                                                              \
        "device", 0, OPTION_TEXT, (target), "DEVICE",                                              \
            "The device to compute on, such as cpu or opencl:0; cflux devices lists them "         \
            "(default: cpu)",                                                                      \
            0, 0                                                                                   \
    }
#define OPTIONS_END                                                                                \
    {                                                                                              \
        NULL, 0, OPTION_FLAG, NULL, NULL, NULL, 0, 0                                               \
    }

/* Reads argv (argv[0] is the command's name) into the rows. −1: run it with the operands; else the
 * exit status, with what was wrong, or the help that was asked for, printed. */
int options_read(const command *c, int argc, char **argv, int *n, char ***operands);

/* The same tables for readers. */
void options_help(const command *c, FILE *to);
void options_manual(const command *const *commands, int n, FILE *to);
void options_completion(const command *const *commands, int n, FILE *to);

#endif
