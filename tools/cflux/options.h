/* options.h: a command and its options as a table. Parser, help, manual and shell completion use
 * the same rows. */
#ifndef CFLUX_TOOL_OPTIONS_H
#define CFLUX_TOOL_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* All options with a value except OPTION_TEXTS are refused if given twice. */
typedef enum option_kind {
    OPTION_HEADING, /* no option: `name` is the heading of the rows after it */
    OPTION_FLAG,    /* bool: set to true; may be repeated */
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
    void *to;            /* address of the value, which initially holds the default */
    const char *metavar; /* "N"; the shell completes FILE and FOLDER as paths; NULL for flags */
    const char *help;    /* a sentence without its full stop; states the default */
    double least, most;  /* bounds of a number; no bounds unless least < most */
} option_row;

typedef struct command {
    const char *name, *summary; /* the summary is a phrase without a full stop */
    const char *operands;       /* as printed in the usage line: "MODEL --data FILE", "[NAME]" */
    int least, most;            /* number of operands; most −1: no limit */
    const char *examples; /* commands for help and manual, one per line; a line that begins with
                             a blank continues the previous one */
    const char *about;    /* paragraphs for help and manual, separated by line ends */
    option_row *options;  /* NULL: only --help */
    bool operands_end_options;          /* true: what follows the first operand are operands too */
    int (*run)(int n, char **operands); /* returns the exit status */
} command;

/* The row --json, for every command with results. */
#define OPTION_JSON(target)                                                                        \
    {                                                                                              \
        "json", 0, OPTION_FLAG, (target), NULL, "Print one JSON document instead of text", 0, 0    \
    }
/* The row --flux-version, for commands that read BSON files. */
#define OPTION_FLUX_VERSION(target)                                                                \
    {                                                                                              \
        "flux-version", 0, OPTION_TEXT, (target), "VERSION",                                       \
            "The version of Flux whose LayerNorm formula to use for a BSON file, such as 0.14 or " \
            "0.16.10 (default: the newest that can have written the file)",                        \
            0, 0                                                                                   \
    }
/* The row --device, for commands that compute. */
#define OPTION_DEVICE(target)                                                                      \
    {                                                                                              \
        "device", 0, OPTION_TEXT, (target), "DEVICE",                                              \
            "The device to compute on, such as cpu or opencl:0; cflux devices lists them "         \
            "(default: cpu)",                                                                      \
            0, 0                                                                                   \
    }
/* Begins a group of options in help and manual: a noun phrase such as "Validation". */
#define OPTIONS_HEADING(text)                                                                      \
    {                                                                                              \
        (text), 0, OPTION_HEADING, NULL, NULL, NULL, 0, 0                                          \
    }
#define OPTIONS_END                                                                                \
    {                                                                                              \
        NULL, 0, OPTION_FLAG, NULL, NULL, NULL, 0, 0                                               \
    }

/* Parses argv (argv[0] is the command's name) into the rows. Returns −1 if the command should run
 * with the operands; otherwise the exit status, after printing an error or the requested help. */
int options_read(const command *c, int argc, char **argv, int *n, char ***operands);

/* Print the tables for users. */
void options_help(const command *c, FILE *to);
void options_manual(const command *const *commands, int n, FILE *to);
void options_completion(const command *const *commands, int n, FILE *to);

#endif
