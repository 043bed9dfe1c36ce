/* output_paths.h: can the files that a command is to write be written, and is none of them another
 * one or an input? Asked before anything is computed. */
#ifndef CFLUX_TOOL_OUTPUT_PATHS_H
#define CFLUX_TOOL_OUTPUT_PATHS_H

typedef struct output_path {
    const char *path; /* NULL: not asked for */
    const char *name; /* what messages call it: "--save" */
} output_path;

/* EXIT_FINE, or the exit status of what was printed. Inputs may be NULL,
 * and need not be files; "-" is standard input. */
int check_outputs(const output_path *outputs, int n, const char *const *inputs, int ninputs);

#endif
