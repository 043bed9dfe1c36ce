/* system_posix.h: functions of system_posix.c that Linux and macOS have each in their own way. */
#ifndef CFLUX_TOOL_SYSTEM_POSIX_H
#define CFLUX_TOOL_SYSTEM_POSIX_H

#include <stdbool.h>
#include <stddef.h>

/* The path by which other programs can open the descriptor of this process; "" if there is none. */
void path_of_descriptor(int fd, char *out, size_t size);
/* From now on this process gets SIGTERM, or SIGKILL if `killed`, when its parent ends. */
void end_with_parent(bool killed);

#endif
