/* join_timelines.h: the timeline of all processes of cflux launch. */
#ifndef CFLUX_TOOL_JOIN_TIMELINES_H
#define CFLUX_TOOL_JOIN_TIMELINES_H

#include <stdint.h>

/* Joins the events of all processes, which the library wrote to FILE.0, FILE.1, … (FX_TIMELINE), to
 * one array in FILE, and removes these files. If there is only one process, it has written FILE
 * itself. Returns an exit status; a failure has been printed. */
int join_timelines(const char *timeline, int64_t processes);

#endif
