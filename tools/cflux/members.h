/* members.h: the processes that mpirun, srun or cflux launch started to run one command together.
 * Without a launcher this process is the only one, and nothing changes. */
#ifndef CFLUX_TOOL_MEMBERS_H
#define CFLUX_TOOL_MEMBERS_H

#include <cflux.h>

/* Joins the group. EXIT_FINE, or the exit status of a failure (printed). From here on, failures are
 * held until members_agree, because all members may have the same one. */
int members_join(void);
fx_dist *members(void);
int members_count(void);
/* True for the member that writes files and prints. */
bool members_first(void);
/* Holds failures until members_agree, which must follow on all members. */
void members_hold(void);
/* Returns the same status on all members: that of the failed member with the lowest rank. Rank 0
 * prints its failure, with its rank unless it is 0. If the members can no longer communicate, each
 * prints its own failure. */
int members_agree(int status);
/* Fails if the lines of text differ from those of the first member; the failure has the first line
 * that differs, and is held until members_agree. */
int members_same(const char *text);
/* The device with this name; a name without a number means the device with this member's number on
 * its machine. NULL on failure (recorded). */
fx_device *members_device(const char *name);
/* Connects GPUs by NCCL or RCCL; warns if that is not possible. All members call it. */
void members_use_gpus(const fx_device *device);

#endif
