/* cores.h: how many cores this process may use. Internal. */
#ifndef CFLUX_CORES_H
#define CFLUX_CORES_H

/* The cores of the process's affinity mask, fewer where a cgroup's quota grants fewer: a container
 * of two cores on a machine of 64 would be throttled with 64 threads. At least 1. */
int fxi_system_cores(void);

/* The cores that a cgroup's quota grants, rounded up, from the text of its cpu.max ("max 100000",
 * "150000 100000"). 0: no limit. */
int fxi_cgroup_cores(const char *text);

#endif
