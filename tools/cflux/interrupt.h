/* interrupt.h: SIGINT and SIGTERM as a wish to stop. The first is noted; the second ends the
 * program as if nobody had asked for it. */
#ifndef CFLUX_TOOL_INTERRUPT_H
#define CFLUX_TOOL_INTERRUPT_H

void interrupt_begin(void);
/* The signal that came, 0: none. */
int interrupt_caught(void);
/* Signals act as they did before. */
void interrupt_end(void);

#endif
