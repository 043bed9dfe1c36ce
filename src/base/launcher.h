/* launcher.h: which launcher started this process, if any. Internal. */
#ifndef CFLUX_LAUNCHER_H
#define CFLUX_LAUNCHER_H

#include <stdbool.h>

typedef struct fxi_launcher {
    const char *variable; /* if it is set, this launcher started the process */
    const char *size;     /* the variable with the number of processes */
    const char *rank;     /* the variable with the rank of this process */
    const char *mpi;      /* "Open MPI" */
    const char
        *plugin; /* the transport for it: "openmpi"; NULL: the launcher connects no processes */
} fxi_launcher;

/* NULL: the program was started alone. *out_size: the number of processes, at least 1. */
const fxi_launcher *fxi_launcher_of_process(int *out_size);
/* The rank that the launcher gave this process; 0 if there is no launcher. */
int fxi_launcher_rank(void);
/* Notes that the program joined a group. */
void fxi_launcher_joined(void);
/* Warns once if there are several processes and none was joined: each trains alone. */
void fxi_launcher_warn(void);

#endif
