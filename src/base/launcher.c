/* launcher.c: reads the environment variables that srun and the launchers of MPI set. */
#include "launcher.h"

#include "this_process.h"

#include <cflux/base.h>
#include <stdlib.h>

static const fxi_launcher launchers[] = {
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "Open MPI", "openmpi"},
    {"PMI_SIZE", "PMI_SIZE", "PMI_RANK", "MPICH", "mpich"},
    {"PMIX_RANK", "SLURM_STEP_NUM_TASKS", "PMIX_RANK", "PMIx", "openmpi"}, /* srun --mpi=pmix */
    /* srun without --mpi. A batch script runs once, but has SLURM_NTASKS too. */
    {"SLURM_STEP_NUM_TASKS", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "Slurm", NULL},
};
enum { LAUNCHERS = sizeof launchers / sizeof *launchers };
bool fxi_launcher_checked;

const fxi_launcher *fxi_launcher_of_process(int *out_size)
{
    for (int i = 0; i < LAUNCHERS; i++) {
        const char *set = fxi_trusted_variable(launchers[i].variable);
        if (!set || !*set)
            continue;
        const char *size = fxi_trusted_variable(launchers[i].size);
        *out_size = size ? atoi(size) : 1;
        *out_size = *out_size > 1 ? *out_size : 1;
        return &launchers[i];
    }
    *out_size = 1;
    return NULL;
}

int fxi_launcher_rank(void)
{
    int n;
    const fxi_launcher *l = fxi_launcher_of_process(&n);
    const char *rank = l ? fxi_trusted_variable(l->rank) : NULL;
    return rank ? atoi(rank) : 0;
}

void fxi_launcher_joined(void)
{
    __atomic_store_n(&fxi_launcher_checked, true, __ATOMIC_RELAXED);
}

void fxi_launcher_check(const char *alone)
{
    int n;
    if (__atomic_test_and_set(&fxi_launcher_checked, __ATOMIC_RELAXED))
        return;
    const fxi_launcher *l = fxi_launcher_of_process(&n);
    if (l && n > 1 && fxi_launcher_rank() == 0)
        fx_message(1,
                   "This is one of %d processes that %s's launcher started, but fx_dist_init was "
                   "not called: each of them %s",
                   n, l->name, alone);
}
