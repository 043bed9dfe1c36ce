/* bench_allreduce.c: cflux bench allreduce: times sums over all processes that a launcher started.
 *
 * The time is that of fx_dist_allreduce on an array of this process: the check that all processes
 * run the same operation, the copies, and the transport. It is followed by the time of MPI's own
 * all-reduce in the same processes. The bus bandwidth is 2(n−1)/n · S/t for S bytes and n
 * processes: a ring moves that many bytes over each link, so with a link of bandwidth B it takes at
 * least the bound 2(n−1)/n · S/B, whatever n is. B is measured with messages to the next rank.
 * Processes of one machine can be faster than the bound: cflux then sends no messages.
 */
#include "bench_allreduce.h"
#include "array_stats.h"
#include "failure.h"
#include "members.h"
#include "system.h"
#include <cflux/json_out.h>
#include <stdlib.h>

enum { SAMPLES = 11, RUNS_AT_MOST = 1 << 16, LINK_BYTES = 4 << 20 };

/* Seconds of one run. */
typedef double measure_fn(fx_array *x, int64_t runs);

static double time_runs(fx_array *x, int64_t runs)
{
    fx_dist_barrier(members());
    const double start = seconds_now();
    for (int64_t i = 0; i < runs && fx_error_status() == FX_OK; i++) {
        FX_SCOPE;
        fx_eval(fx_dist_allreduce(members(), x, FX_REDUCE_SUM));
    }
    return (seconds_now() - start) / (double)runs;
}

static double time_mpi(fx_array *x, int64_t runs)
{
    return fx_dist_time_sum(members(), fx_length(x), runs);
}

static double time_link(fx_array *x, int64_t runs)
{
    return fx_dist_time_link(members(), fx_length(x), runs);
}

/* Seconds per operation on rank 0, whose clock decides for all. */
typedef struct times {
    double median, least;
} times;

static times time_of(measure_fn *measure, fx_array *x, double seconds)
{
    double samples[SAMPLES];
    measure(x, 1);
    const double first = fx_dist_synchronize_number(members(), measure(x, 2), 0);
    double runs = seconds / SAMPLES / (first > 0 ? first : 1);
    runs = runs < 1 ? 1 : runs > RUNS_AT_MOST ? RUNS_AT_MOST : runs;
    for (int i = 0; i < SAMPLES; i++)
        samples[i] = measure(x, (int64_t)runs);
    qsort(samples, SAMPLES, sizeof *samples, compare_numbers);
    return (times){.median = samples[SAMPLES / 2], .least = samples[0]};
}

static fx_array *array_of(int64_t bytes)
{
    fx_array *x = fx_ones(bytes / (int64_t)sizeof(float));
    fx_eval(x);
    return x;
}

static double link_bandwidth(double seconds)
{
    FX_SCOPE;
    return LINK_BYTES / time_of(time_link, array_of(LINK_BYTES), seconds).median;
}

static void print_row(fx_json *j, bool as_json, int64_t bytes, times each, times own, double link)
{
    const double n = members_count(), moved = 2 * (n - 1) / n * (double)bytes;
    if (!members_first())
        return;
    if (!as_json) {
        printf("%10lld %12.1f %8.3f %12.1f %8.3f %12.1f\n", (long long)bytes, 1e6 * each.median,
               moved / each.median * 1e-9, 1e6 * own.median, moved / own.median * 1e-9,
               1e6 * moved / link);
        fflush(stdout);
        return;
    }
    fx_json_open(j, NULL, '{');
    fx_json_integer(j, "bytes", bytes);
    fx_json_number(j, "seconds", each.median);
    fx_json_number(j, "least_seconds", each.least);
    fx_json_number(j, "bus_bandwidth", moved / each.median * 1e-9);
    fx_json_number(j, "mpi_seconds", own.median);
    fx_json_number(j, "mpi_least_seconds", own.least);
    fx_json_number(j, "mpi_bus_bandwidth", moved / own.median * 1e-9);
    fx_json_number(j, "bound_seconds", moved / link);
    fx_json_close(j);
}

static void print_head(fx_json *j, bool as_json, double link)
{
    if (!members_first())
        return;
    if (!as_json) {
        printf("%d processes: sums of Float32, and the bus bandwidth 2(n−1)/n · S/t\n"
               "bound: 2(n−1)/n · S/B, with B = %.3f GB/s, messages of 4 MiB to the next rank\n\n"
               "     bytes     cflux µs     GB/s       MPI µs     GB/s     bound µs\n",
               members_count(), link * 1e-9);
        return;
    }
    fx_json_open(j, NULL, '{');
    fx_json_integer(j, "processes", members_count());
    fx_json_number(j, "link_bandwidth", link * 1e-9);
    fx_json_open(j, "rows", '[');
}

int bench_allreduce(double seconds, bool as_json)
{
    static const int64_t sizes[] = {4, 4096, 65536, 800000, 4 << 20, 16 << 20, 40000000, 64 << 20};
    fx_json j = {.to = stdout};
    int status = members_join();
    if (status == EXIT_FINE && members_count() == 1)
        status = fail(EXIT_BAD_INPUT, "one process moves no data: start several, for example with "
                                      "cflux launch -n 2 cflux bench allreduce");
    status = members_agree(status);
    if (status != EXIT_FINE)
        return status;
    const double link = fx_dist_synchronize_number(members(), link_bandwidth(seconds), 0);
    if (fx_error_status() != FX_OK)
        return fail_library(EXIT_FAILED);
    print_head(&j, as_json, link);
    double each = 0; /* a size that takes longer than the time for a row is the last one */
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && each <= seconds; i++) {
        FX_SCOPE;
        fx_array *x = array_of(sizes[i]);
        const times t = time_of(time_runs, x, seconds), own = time_of(time_mpi, x, seconds);
        each = fx_dist_synchronize_number(members(), t.median + own.median, 0);
        if (fx_error_status() != FX_OK)
            break;
        print_row(&j, as_json, sizes[i], t, own, link);
    }
    if (j.depth > 0)
        fx_json_end(&j);
    return fx_error_status() == FX_OK ? EXIT_FINE : fail_library(EXIT_FAILED);
}
