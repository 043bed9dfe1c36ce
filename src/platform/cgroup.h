/* cgroup.h: the limits that Linux sets for groups of processes, such as a container. Internal, only
 * on Linux. */
#ifndef CFLUX_CGROUP_H
#define CFLUX_CGROUP_H

#include <stdint.h>

/* Calls `visit` with the folder of the process's cgroup, then with those of all cgroups above it:
 * each of them may have a limit. controller: "memory" or another name of version 1; "": version 2.
 * root: the folder that contains proc and sys; "" except in tests. */
typedef void (*fxi_cgroup_fn)(const char *folder, void *user);
void fxi_cgroup_visit(const char *root, const char *controller, fxi_cgroup_fn visit, void *user);

/* Reads the first line of folder/name; "" if it cannot be read. */
void fxi_cgroup_line(const char *folder, const char *name, char *text, int size);

/* The least limit of memory, and the least part of such a limit that is left, in bytes; −1: no
 * limit. Pages of files that the system can drop at once count as left. out_left may be NULL. */
void fxi_cgroup_memory(const char *root, int64_t *out_limit, int64_t *out_left);

#endif
