/* bench_main.c: runs named benchmark cases and prints one JSON object per line.
 *
 *   bench_runner [--seconds S] [--threads N] [--commit TEXT] [part of a name…]
 *                             prints a header, then a row per case (default: one thread)
 *   bench_runner --list                                            prints the names
 *   bench_runner --serve      reads one name per line and answers with its row, so that
 *                             bench/run.py can alternate with the measurements of a peer
 *   bench_runner --blas LIBRARY …       measures the products of a BLAS library, as a peer
 *   bench_runner --device opencl:0 device/       measures a device (bench_devices.c)
 *   bench_runner --device cuda:0 [--tiny] gpu/   the cases of large GPUs (bench_gpu.c)
 *   mpirun -n 2 bench_runner --processes train/  each process trains on batches of its own; rank 0
 *                                                prints the rows (peer_ddp.py, scaling.py);
 *                                                --each-array: one exchange for each array of a
 *                                                gradient, without buckets (buckets.py)
 *   bench_runner --count NAME CALLS     only calls the body of a case, for counting instructions
 *
 * By default the program loads the oneDNN plugin of the build folder, if it was built; with
 * --no-onednn before the other options it does not. The first line describes the run: version,
 * commit, compiler, processor, instruction set. Do not compare medians of rows from different
 * machines; compare ratios of rows from one run.
 */
#include "bench.h"
#include "evaluate.h"
#include "cpu_plugin.h"
#include "cpu_simd.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static const bench_case no_cases; /* an empty table */
static const bench_case *tables[] = {
    bench_networks, bench_arrays, bench_convolutions, bench_products, bench_overheads,
    bench_loaders,  bench_files,  &no_cases,          &no_cases,      &no_cases};
enum { TABLES = sizeof tables / sizeof tables[0], OF_DEVICES = TABLES - 3 };
static const char *program = "cflux";
fx_dist *bench_group;
bool bench_each_array;
static bool is_peer;
static int threads = 1;

/* ---- output ---------------------------------------------------------------------------------- */
static void print_text(const char *key, const char *text)
{
    printf(", \"%s\": \"", key);
    for (; *text; text++)
        if ((unsigned char)*text >= ' ')
            printf(*text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
    putchar('"');
}

static void processor(char *name, size_t capacity)
{
    char line[300];
    FILE *f = fopen("/proc/cpuinfo", "r");
    snprintf(name, capacity, "unknown");
    while (f && fgets(line, sizeof line, f)) {
        const char *colon = strncmp(line, "model name", 10) == 0 ? strchr(line, ':') : NULL;
        if (!colon)
            continue;
        snprintf(name, capacity, "%s", colon + 2);
        name[strcspn(name, "\n")] = '\0';
        break;
    }
    if (f)
        fclose(f);
}

static void print_header(const char *commit)
{
    char cpu[200], date[40];
    const time_t now = time(NULL);
    struct tm utc;
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    processor(cpu, sizeof cpu);
    printf("{\"row\": \"header\"");
    print_text("program", program);
    print_text("version", fx_version());
    print_text("commit", commit);
    print_text("compiler", CFLUX_COMPILER);
    print_text("build", CFLUX_BUILD_TYPE);
    print_text("cpu", cpu);
    print_text("isa", fxi_cpu_simd()->name);
    print_text("date", date);
    if (bench_device)
        print_text("device", fx_device_model(fx_device_find(bench_device)));
    printf("}\n");
    fflush(stdout);
}

static void print_row(const char *name, const bench_row *r)
{
    printf("{\"row\": \"case\"");
    print_text("case", name);
    print_text("variant", program);
    print_text("backend", bench_device                 ? bench_device
                          : fxi_cpu_plugin_name(false) ? "cpu+oneDNN"
                                                       : "cpu");
    printf(", \"threads\": %d, \"n\": %d, \"taken\": %d, \"median\": %.6g, \"min\": %.6g, "
           "\"max\": %.6g",
           threads, r->samples, r->taken, r->median, r->min, r->max);
    print_text("unit", r->unit);
    if (r->host > 0)
        printf(", \"host\": %.6g", r->host);
    if (bench_group)
        printf(", \"processes\": %d", fx_dist_total_workers(bench_group));
    printf(", \"contended\": %s}\n", r->contended ? "true" : "false");
    fflush(stdout);
}

/* Prints a row without a measurement; kind: failure or skipped. */
static void print_without(const char *kind, const char *name, const char *message)
{
    printf("{\"row\": \"%s\"", kind);
    print_text("case", name);
    print_text("message", message);
    printf("}\n");
    fflush(stdout);
}

/* ---- cases ----------------------------------------------------------------------------------- */
static const bench_case *find(const char *name)
{
    for (int t = 0; t < TABLES; t++)
        for (const bench_case *c = tables[t]; c->name; c++)
            if (strcmp(c->name, name) == 0)
                return c;
    return NULL;
}

void bench_open(const bench_case *c, bench_state *s)
{
    FX_SCOPE;
    fx_seed(1);
    *s = (bench_state){.which = c};
    if (c->setup)
        c->setup(s);
}

void bench_close(bench_state *s)
{
    void **const all[] = {&s->model,      &s->opt,        (void **)&s->x, (void **)&s->y,
                          (void **)&s->g, (void **)&s->w, (void **)&s->b};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        fx_set(all[i], NULL);
    fxi_reclaim_all(); /* each case starts with the same state of the process */
}

/* Returns the number of failures: 0 or 1. */
static int run_case(const bench_case *c)
{
    bench_row row = {0};
    bool ok = true;
    if (c->measure) {
        ok = c->measure(c, &row);
    } else {
        bench_state s;
        bench_open(c, &s);
        if (fx_error_status() == FX_OK)
            bench_sample(c->body, &s, &row);
        bench_close(&s);
    }
    const fx_error e = fx_error_take();
    if (ok && row.skipped)
        print_without("skipped", c->name, row.skipped);
    else if (ok && e.status == FX_OK)
        print_row(c->name, &row);
    else
        print_without("failure", c->name, e.message);
    return !(ok && e.status == FX_OK);
}

static int list(void)
{
    for (int t = 0; t < TABLES; t++)
        for (const bench_case *c = tables[t]; c->name; c++)
            puts(c->name);
    return 0;
}

static int serve(void)
{
    char name[200];
    int failures = 0;
    while (fgets(name, sizeof name, stdin)) {
        name[strcspn(name, "\n")] = '\0';
        const bench_case *c = find(name);
        if (c)
            failures += run_case(c);
        else if (!is_peer)
            print_without("failure", name, "no case of this name");
        if (is_peer)
            puts("{\"row\": \"end\"}");
        fflush(stdout);
    }
    return failures > 0;
}

static int count(const char *name, int64_t calls)
{
    const bench_case *c = find(name);
    if (!c || !c->body) {
        fprintf(stderr, "%s: no case with a body\n", name);
        return 2;
    }
    bench_state s;
    setenv("FX_ONEDNN", "0", 1); /* uses the library's own kernels */
    bench_open(c, &s);
    for (int64_t i = 0; i < calls; i++)
        c->body(&s);
    bench_close(&s);
    return fx_error_print(stderr);
}

static void only(const bench_case *table)
{
    for (int t = 0; t < TABLES; t++)
        tables[t] = t == 0 ? table : &no_cases;
}

/* Joins the group for --processes. Leaves only the cases of networks and of bench_scaling.c, and
 * lets only rank 0 print. */
static bool join_group(void)
{
    only(bench_networks);
    tables[1] = bench_scaling;
    if (fx_dist_init(FX_MPI) != FX_OK)
        return false;
    bench_group = fx_dist_backend(FX_MPI);
    return fx_dist_rank(bench_group) == 0 || freopen("/dev/null", "w", stdout);
}

/* Replaces the library's cases by those of the BLAS library. */
static bool become_peer(const char *library)
{
    const bench_case *products = bench_blas_open(library);
    only(products);
    is_peer = true;
    program = "BLAS";
    return products != NULL;
}

static bool chosen(const char *name, int n, char **parts)
{
    for (int i = 0; i < n; i++)
        if (strstr(name, parts[i]))
            return true;
    return n == 0;
}

static int run_chosen(int n, char **parts)
{
    int failures = 0, ran = 0;
    for (int t = 0; t < TABLES; t++)
        for (const bench_case *c = tables[t]; c->name; c++)
            if (chosen(c->name, n, parts)) {
                failures += run_case(c);
                ran++;
            }
    if (ran == 0)
        fprintf(stderr, "no case has a name with one of these parts; --list prints the names\n");
    return failures > 0 || ran == 0;
}

int main(int argc, char **argv)
{
    const char *commit = "unknown";
    bool serving = false;
    int i = 1;
    bench_program = argv[0];
    setenv("FX_PLUGIN_PATH", CFLUX_BUILD_DIR, 0);
    for (; i < argc && strncmp(argv[i], "--", 2) == 0; i++) {
        if (strncmp(argv[i], "--first-", 8) == 0) {
            bench_device = i + 1 < argc ? argv[i + 1] : NULL;
            return strcmp(argv[i], "--first-step") == 0 ? bench_first_step()
                                                        : bench_first_prediction();
        }
        if (strcmp(argv[i], "--list") == 0)
            return list();
        if (strcmp(argv[i], "--count") == 0 && i + 2 < argc)
            return count(argv[i + 1], atoll(argv[i + 2]));
        if (strcmp(argv[i], "--no-onednn") == 0) {
            setenv("FX_ONEDNN", "0", 1);
        } else if (strcmp(argv[i], "--serve") == 0) {
            serving = true;
        } else if (strcmp(argv[i], "--processes") == 0) {
            if (!join_group())
                return fx_error_print(stderr);
        } else if (strcmp(argv[i], "--each-array") == 0) {
            bench_each_array = true;
        } else if (strcmp(argv[i], "--seconds") == 0 && i + 1 < argc) {
            bench_seconds = atof(argv[++i]);
        } else if (strcmp(argv[i], "--device") == 0 && i + 1 < argc) {
            bench_device = argv[++i];
            tables[OF_DEVICES] = bench_devices;
            tables[OF_DEVICES + 1] = bench_gpu;
            tables[OF_DEVICES + 2] = bench_gpu_networks;
        } else if (strcmp(argv[i], "--tiny") == 0) {
            bench_tiny = true;
        } else if (strcmp(argv[i], "--threads") == 0 && i + 1 < argc) {
            threads = atoi(argv[++i]);
        } else if (strcmp(argv[i], "--blas") == 0 && i + 1 < argc) {
            if (!become_peer(argv[++i])) {
                fprintf(stderr, "%s: no BLAS library\n", argv[i]);
                return 2;
            }
        } else if (strcmp(argv[i], "--commit") == 0 && i + 1 < argc) {
            commit = argv[++i];
        } else {
            fprintf(stderr, "unknown option %s; see the head of bench_main.c\n", argv[i]);
            return 2;
        }
    }
    if (fx_set_num_threads(threads))
        return 2;
    print_header(commit);
    return serving ? serve() : run_chosen(argc - i, argv + i);
}
