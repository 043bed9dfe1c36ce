/* one_thread_mpi.c: says "two threads in MPI" if a thread calls MPI while another one is in it,
 * which MPI_THREAD_SERIALIZED forbids. check_exits.py compiles it for each MPI and loads it before
 * a program (LD_PRELOAD). It has those functions that wait or that begin operations, and makes the
 * frequent ones slower, so that two threads meet there. */
#define _GNU_SOURCE
#include <mpi.h>
#include <string.h>
#include <unistd.h>

static int threads; /* in MPI; atomic */

static void enter(void)
{
    static const char text[] = "two threads in MPI\n";
    if (__atomic_add_fetch(&threads, 1, __ATOMIC_SEQ_CST) > 1 &&
        write(STDERR_FILENO, text, strlen(text)) < 0)
        _exit(1);
}

static int leave(int code)
{
    __atomic_sub_fetch(&threads, 1, __ATOMIC_SEQ_CST);
    return code;
}

int MPI_Test(MPI_Request *request, int *is_done, MPI_Status *status)
{
    enter();
    usleep(100);
    return leave(PMPI_Test(request, is_done, status));
}

int MPI_Iprobe(int from, int tag, MPI_Comm comm, int *some, MPI_Status *status)
{
    enter();
    usleep(100);
    return leave(PMPI_Iprobe(from, tag, comm, some, status));
}

int MPI_Ibarrier(MPI_Comm comm, MPI_Request *request)
{
    enter();
    return leave(PMPI_Ibarrier(comm, request));
}

int MPI_Isend(const void *data, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    enter();
    return leave(PMPI_Isend(data, n, type, to, tag, comm, request));
}

int MPI_Win_free(MPI_Win *window)
{
    enter();
    return leave(PMPI_Win_free(window));
}

int MPI_Finalize(void)
{
    enter();
    return leave(PMPI_Finalize());
}
