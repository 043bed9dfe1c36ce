/* terminal.h: whether a stream is a terminal, and how wide. Internal. */
#ifndef CFLUX_TERMINAL_H
#define CFLUX_TERMINAL_H

#include <stdbool.h>
#include <stdio.h>

bool fxi_is_terminal(FILE *stream);
/* The columns of the terminal to which the stream writes, which can change at any time; 0 if
 * unknown. */
int fxi_terminal_columns(FILE *stream);

#endif
