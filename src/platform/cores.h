/* cores.h: how many cores this process may use. Internal. */
#ifndef CFLUX_CORES_H
#define CFLUX_CORES_H

/* The number of cores in the process's affinity mask, or fewer if a cgroup's quota allows fewer: a
 * container with a quota of two cores on a machine of 64 would be throttled with 64 threads. At
 * least 1. */
int fxi_system_cores(void);

/* The number of cores that a cgroup's quota allows, rounded up, from the text of its cpu.max ("max
 * 100000", "150000 100000"). 0: no limit. Only Linux has it. */
int fxi_cgroup_cores(const char *text);

#endif
