/* output_paths.h: checks before any computation that a command's output files can be written, and
 * that none is the same file as another output or an input. */
#ifndef CFLUX_TOOL_OUTPUT_PATHS_H
#define CFLUX_TOOL_OUTPUT_PATHS_H

typedef struct output_path {
    const char *path; /* NULL: not requested */
    const char *name; /* name in messages: "--save" */
} output_path;

/* EXIT_FINE, or the exit status of a failure (printed). Inputs may be NULL, and need not be files;
 * "-" is standard input. */
int check_outputs(const output_path *outputs, int n, const char *const *inputs, int ninputs);

#endif
