/* terminal.h: what a stream writes to. Internal. */
#ifndef CFLUX_TERMINAL_H
#define CFLUX_TERMINAL_H

#include <stdbool.h>
#include <stdio.h>

bool fxi_is_terminal(FILE *stream);
/* The width of the stream's terminal, which may change at any time; 0 if unknown. */
int fxi_terminal_columns(FILE *stream);

#endif
