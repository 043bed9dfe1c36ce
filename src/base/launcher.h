/* launcher.h: which launcher started this process, if any. Internal. */
#ifndef CFLUX_LAUNCHER_H
#define CFLUX_LAUNCHER_H

#include <stdbool.h>

typedef struct fxi_launcher {
    const char *variable; /* if it is set, this launcher started the process */
    const char *size;     /* the variable with the number of processes */
    const char *rank;     /* the variable with the rank of this process */
    const char *name;     /* for messages: "Open MPI", "Slurm" */
    const char
        *plugin; /* the transport for it: "openmpi"; NULL: the launcher connects no processes */
} fxi_launcher;

/* NULL: the program was started alone. *out_size: the number of processes, at least 1. */
const fxi_launcher *fxi_launcher_of_process(int *out_size);
/* The rank that the launcher gave this process; 0 if there is no launcher. */
int fxi_launcher_rank(void);
/* Notes that the program joined a group. */
void fxi_launcher_joined(void);
/* Atomic. True if no warning is needed any more: the environment was checked, or the program has
 * joined a group. */
extern bool fxi_launcher_checked;
void fxi_launcher_check(const char *alone);
/* Warns if a launcher started several processes and this one has joined no group. `alone` ends the
 * message: what each of them then does, such as "trains a model of its own". The first call of the
 * process decides; only rank 0 warns. Called where training or a network begins, because a program
 * may compute its data before it joins the group. */
static inline void fxi_launcher_warn(const char *alone)
{
    if (!__atomic_load_n(&fxi_launcher_checked, __ATOMIC_RELAXED))
        fxi_launcher_check(alone);
}

#endif
