/* bench_allreduce.c: cflux bench allreduce: times sums over all processes that a launcher started.
 *
 * The time is that of fx_dist_allreduce on an array of this process: the check that all processes
 * run the same operation, the copies, and the transport. The bus bandwidth is 2(n−1)/n · S/t for S
 * bytes and n processes: a ring moves that many bytes over each link, so the number is at most the
 * bandwidth of a link, whatever n is.
 */
#include "bench_allreduce.h"
#include "array_stats.h"
#include "failure.h"
#include "members.h"
#include "system.h"
#include <cflux/json_out.h>
#include <stdlib.h>

enum { SAMPLES = 11, RUNS_AT_MOST = 1 << 16 };

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

/* Seconds per operation on rank 0, whose clock decides for all. */
typedef struct times {
    double median, least;
} times;

static times time_of(fx_array *x, double seconds)
{
    double samples[SAMPLES];
    time_runs(x, 1);
    const double first = fx_dist_synchronize_number(members(), time_runs(x, 2), 0);
    double runs = seconds / SAMPLES / (first > 0 ? first : 1);
    runs = runs < 1 ? 1 : runs > RUNS_AT_MOST ? RUNS_AT_MOST : runs;
    for (int i = 0; i < SAMPLES; i++)
        samples[i] = time_runs(x, (int64_t)runs);
    qsort(samples, SAMPLES, sizeof *samples, compare_numbers);
    return (times){.median = samples[SAMPLES / 2], .least = samples[0]};
}

static void print_row(fx_json *j, bool as_json, int64_t bytes, times each)
{
    const double n = members_count();
    const double rate = 2 * (n - 1) / n * (double)bytes / each.median * 1e-9;
    if (!members_first())
        return;
    if (!as_json) {
        printf("%12lld bytes %12.1f µs %10.3f GB/s\n", (long long)bytes, 1e6 * each.median, rate);
        fflush(stdout);
        return;
    }
    fx_json_open(j, NULL, '{');
    fx_json_integer(j, "bytes", bytes);
    fx_json_number(j, "seconds", each.median);
    fx_json_number(j, "least_seconds", each.least);
    fx_json_number(j, "bus_bandwidth", rate);
    fx_json_close(j);
}

static void print_head(fx_json *j, bool as_json)
{
    if (!members_first())
        return;
    if (!as_json) {
        printf("%d processes: sums of Float32, and the bus bandwidth 2(n−1)/n · S/t\n\n",
               members_count());
        return;
    }
    fx_json_open(j, NULL, '{');
    fx_json_integer(j, "processes", members_count());
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
    print_head(&j, as_json);
    double each = 0; /* a size that takes longer than the time for a row is the last one */
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && each <= seconds; i++) {
        FX_SCOPE;
        fx_array *x = fx_ones(sizes[i] / (int64_t)sizeof(float));
        fx_eval(x);
        const times t = time_of(x, seconds);
        each = fx_dist_synchronize_number(members(), t.median, 0);
        if (fx_error_status() != FX_OK)
            break;
        print_row(&j, as_json, sizes[i], t);
    }
    if (j.depth > 0)
        fx_json_end(&j);
    return fx_error_status() == FX_OK ? EXIT_FINE : fail_library(EXIT_FAILED);
}
