/* aware_mpi.c: makes an MPI that knows only host memory one that knows the memory of simulated GPUs
 * ("CUDA-aware"). check_mpi.py compiles it for each MPI and loads it before a program (LD_PRELOAD).
 * The functions that cflux calls with addresses of GPUs copy the memory by the driver, as an MPI
 * with this ability may do. Without them such an address ends the process, as it would with a GPU.
 *
 *   AWARE_OF=CUDA     the driver: CUDA or AMDGPU
 *   AWARE_WRONG=1     the first element of a reduction is wrong; nan: all its bits are 1, a NaN
 *   AWARE_STOPS=N     rank 1 does not return from its N-th reduction
 *   AWARE_LATE=S      rank 1 returns S seconds late from its reductions, except the first
 *   AWARE_ENTERS=S    rank 1 is as late in the function that it calls before such a reduction
 *
 * Messages on stderr: "two threads in MPI" if the main thread calls a function of MPI while a
 * thread is late, and "MPI is finalised".
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int copy_function(void *to, void *from, size_t bytes, void *stream);

static struct {
    copy_function *read, *write;
    int (*wait)(void *stream);
    void *stream;
} driver;

static void *find(void *library, const char *name)
{
    void *function = dlsym(library, name);
    if (!function)
        abort();
    return function;
}

static void open_driver(void)
{
    int (*create)(void **stream, unsigned flags);
    const char *of = getenv("AWARE_OF");
    if (driver.stream)
        return;
    const int hip = of && strcmp(of, "AMDGPU") == 0;
    void *library = dlopen(hip ? "libamdhip64.so.7" : "libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (!library)
        abort();
    *(void **)&driver.read = find(library, hip ? "hipMemcpyDtoHAsync" : "cuMemcpyDtoHAsync_v2");
    *(void **)&driver.write = find(library, hip ? "hipMemcpyHtoDAsync" : "cuMemcpyHtoDAsync_v2");
    *(void **)&driver.wait = find(library, hip ? "hipStreamSynchronize" : "cuStreamSynchronize");
    *(void **)&create = find(library, hip ? "hipStreamCreateWithFlags" : "cuStreamCreate");
    if (create(&driver.stream, 1) != 0)
        abort();
}

static int late_threads; /* atomic */

static void say(const char *text)
{
    if (write(STDERR_FILENO, text, strlen(text)) < 0)
        abort();
}

/* Sleeps on rank 1, except in the first call with this variable. */
static void be_late(const char *variable, int *calls)
{
    const char *seconds = getenv(variable);
    int rank;
    if (!seconds || (*calls)++ == 0)
        return;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank != 1)
        return;
    __atomic_add_fetch(&late_threads, 1, __ATOMIC_SEQ_CST);
    sleep((unsigned)atoi(seconds));
    __atomic_sub_fetch(&late_threads, 1, __ATOMIC_SEQ_CST);
}

static void look_for_late_threads(void)
{
    if (__atomic_load_n(&late_threads, __ATOMIC_SEQ_CST) > 0)
        say("two threads in MPI\n");
}

int MPI_Type_size(MPI_Datatype type, int *size)
{
    static int calls;
    if (gettid() != getpid())
        be_late("AWARE_ENTERS", &calls);
    return PMPI_Type_size(type, size);
}

int MPI_Ibarrier(MPI_Comm comm, MPI_Request *request)
{
    look_for_late_threads();
    return PMPI_Ibarrier(comm, request);
}

int MPI_Isend(const void *data, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    look_for_late_threads();
    return PMPI_Isend(data, n, type, to, tag, comm, request);
}

int MPI_Finalize(void)
{
    say("MPI is finalised\n");
    return PMPI_Finalize();
}

static size_t bytes_of(int n, MPI_Datatype type)
{
    int width;
    PMPI_Type_size(type, &width);
    return (size_t)n * (size_t)width;
}

/* A host copy of n elements. */
static void *read_copy(const void *from, int n, MPI_Datatype type)
{
    const size_t bytes = bytes_of(n, type);
    void *copy = malloc(bytes + 1);
    open_driver();
    if (!copy || driver.read(copy, (void *)from, bytes, driver.stream) != 0 ||
        driver.wait(driver.stream) != 0)
        abort();
    return copy;
}

/* Writes a host copy back, and frees it. */
static void write_copy(void *to, void *copy, int n, MPI_Datatype type)
{
    if (driver.write(to, copy, bytes_of(n, type), driver.stream) != 0 ||
        driver.wait(driver.stream) != 0)
        abort();
    free(copy);
}

int MPIX_Query_cuda_support(void);
int MPIX_Query_cuda_support(void)
{
    return 1;
}

int MPIX_Query_hip_support(void);
int MPIX_Query_hip_support(void)
{
    return 1;
}

static void stop_here(MPI_Comm comm)
{
    static int calls;
    const char *stops = getenv("AWARE_STOPS");
    int rank;
    PMPI_Comm_rank(comm, &rank);
    calls++;
    while (stops && rank == 1 && calls == atoi(stops))
        pause();
}

int MPI_Reduce(const void *in, void *out, int n, MPI_Datatype type, MPI_Op op, int root,
               MPI_Comm comm)
{
    stop_here(comm);
    void *from = read_copy(in, n, type), *to = read_copy(out, n, type);
    const int code = PMPI_Reduce(from, to, n, type, op, root, comm);
    static int calls;
    be_late("AWARE_LATE", &calls);
    const char *wrong = getenv("AWARE_WRONG");
    if (wrong)
        memset(to, strcmp(wrong, "nan") == 0 ? 0xff : 1, bytes_of(1, type));
    write_copy(out, to, n, type);
    free(from);
    return code;
}

int MPI_Bcast(void *data, int n, MPI_Datatype type, int root, MPI_Comm comm)
{
    void *copy = read_copy(data, n, type);
    const int code = PMPI_Bcast(copy, n, type, root, comm);
    write_copy(data, copy, n, type);
    return code;
}

int MPI_Sendrecv(const void *in, int n, MPI_Datatype type, int to, int tag, void *out, int m,
                 MPI_Datatype other, int from, int its_tag, MPI_Comm comm, MPI_Status *status)
{
    void *sent = read_copy(in, n, type), *got = read_copy(out, m, other);
    const int code =
        PMPI_Sendrecv(sent, n, type, to, tag, got, m, other, from, its_tag, comm, status);
    write_copy(out, got, m, other);
    free(sent);
    return code;
}
