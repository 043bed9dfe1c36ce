/* bench_sample.c: samples times that are meaningful on a machine that other programs use too.
 *
 * A sample calls the body of the case for at least MIN_SAMPLE seconds, so that the cost of reading
 * the clock is negligible. A sample during which the program's threads waited for a core for more
 * than 1 % of the time (the kernel counts this per task) was disturbed by other programs and is
 * left out. If fewer than three samples are left, the row has all samples, the disturbed ones too,
 * and is marked as contended. With one thread a sample of such a row is the processor time, which
 * is exact except for effects on the caches. With several threads it is the elapsed time. At least
 * MIN_SAMPLES undisturbed ones are taken (FEW_SAMPLES if a call takes more than SLOW seconds), and
 * more while the time for the case lasts; if they are not found in 5 times this time and one
 * second, sampling ends. Compare medians; the minimum shows what an idle machine can do.
 *
 * Processes of a group take equally many samples of equally many calls. A sample's time is that of
 * the slowest process, and a sample that was disturbed in one process is left out in all.
 */
#include "bench.h"

#include <dirent.h>
#include <stdlib.h>
#include <time.h>

enum { MIN_SAMPLES = 7, FEW_SAMPLES = 3, MAX_SAMPLES = 400, WARM_UP = 3 };
static const double MIN_SAMPLE = 5e-3, SLOW = 0.5;

double bench_seconds = 0.5;

double bench_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds in which threads of this process were runnable but had no core; 0 on systems that do not
 * count it. */
static double run_delay(void)
{
    double total = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *e; tasks && (e = readdir(tasks)) != NULL;) {
        char path[300];
        unsigned long long ran = 0, waited = 0;
        snprintf(path, sizeof path, "/proc/self/task/%s/schedstat", e->d_name);
        FILE *f = e->d_name[0] == '.' ? NULL : fopen(path, "r");
        if (f && fscanf(f, "%llu %llu", &ran, &waited) == 2)
            total += 1e-9 * (double)waited;
        if (f)
            fclose(f);
    }
    if (tasks)
        closedir(tasks);
    return total;
}

static double processor_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The largest x of all processes of the group. Returns when all of them have called it. */
static double of_all(double x)
{
    FX_SCOPE;
    return bench_group ? fx_item(fx_dist_allreduce(bench_group, fx_scalar(x), FX_REDUCE_MAX)) : x;
}

static double repeat(void (*body)(bench_state *), bench_state *s, int64_t n)
{
    const double start = bench_now();
    for (int64_t i = 0; i < n; i++)
        body(s);
    return bench_now() - start;
}

/* Returns how often a sample calls the body; *out_least: how many samples a row needs. */
static int64_t calibrate(void (*body)(bench_state *), bench_state *s, int *out_least)
{
    int64_t n = 1;
    double t;
    repeat(body, s, WARM_UP);
    while ((t = of_all(repeat(body, s, n))) < MIN_SAMPLE)
        n *= t > MIN_SAMPLE / 8 ? 2 : 8;
    *out_least = n == 1 && t > SLOW ? FEW_SAMPLES : MIN_SAMPLES;
    return n;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void bench_row_of(double *values, int n, const char *unit, bench_row *out)
{
    qsort(values, (size_t)n, sizeof *values, ascending);
    out->unit = unit;
    out->median = n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
    out->min = values[0];
    out->max = values[n - 1];
    out->samples = out->taken = n;
    out->contended = false;
}

void bench_sample(void (*body)(bench_state *), bench_state *s, bench_row *out)
{
    double clean[MAX_SAMPLES], ran[MAX_SAMPLES];
    int nclean = 0, taken = 0, least;
    const int64_t n = calibrate(body, s, &least);
    const double start = bench_now();
    for (double spent = 0; taken < MAX_SAMPLES; spent = of_all(bench_now() - start)) {
        if ((nclean >= least && spent >= bench_seconds) ||
            (taken >= least && spent >= 5 * bench_seconds + 1))
            break;
        const double before = run_delay(), cpu_before = processor_seconds();
        const double alone = repeat(body, s, n), cpu = processor_seconds() - cpu_before;
        const double waited = of_all(run_delay() - before), time = of_all(alone);
        const bool one_thread = fx_num_threads() == 1 && !bench_group;
        ran[taken++] = 1e6 * (one_thread && cpu < time ? cpu : time) / (double)n;
        if (waited < 0.01 * time)
            clean[nclean++] = 1e6 * time / (double)n;
    }
    const bool contended = nclean < 3;
    bench_row_of(contended ? ran : clean, contended ? taken : nclean, "us", out);
    out->taken = taken;
    out->contended = contended;
}
