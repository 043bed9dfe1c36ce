/* conform_main.c: expands the table into cases, runs them, counts.
 *
 *   conform_runner [--mode test|grad|types|random|mixed|huge|threads|replay|perf|support]
 *                  [--device cuda:0] [--full] [--sample N] [--shard k/n] [--graphs N]
 *                  [--seed FIRST] [-v] [filter…]
 *
 * Several modes are a comma-separated list; default: test, grad, types, random and mixed. `huge`
 * records the rows on arrays of huge sizes, `threads` compares the bits that several numbers of
 * threads give, `replay` those of launches and of replayed graphs. A filter is a part of a name, or
 * a full name with its device, which is then the device under test. The default run has every
 * operation, type, mode and variant, but not every combination. --full runs all combinations,
 * --sample every N-th case of a row (the seed CFLUX_SEED chooses the first one), --shard the k-th
 * part (from 1) of n. --graphs is the number of random graphs of `mixed`, --seed the seed of the
 * first.
 *
 * A run fails if a case fails, if a case that a backend declared as missing passes, if no kernel
 * ran (or, where the backend counts them, none was launched on its device), if fewer cases ran than
 * are known to exist (a table that lost its rows), and if an operation has no row.
 */
#include "conform.h"
#include "standin.h"

#include <cflux/backend.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

typedef struct mode {
    const char *name, *suffix;
    cf_mode_fn run;                                   /* NULL: not over the table */
    void (*graphs)(const cf_options *o, cf_tally *t); /* NULL: over the table */
    bool asked;                                       /* runs only if --mode names it */
    int least, least_full;
} mode;
static const mode modes[] = {
    {"test", "", cf_run_test, NULL, false, 5000, 35000},
    {"grad", ".grad", cf_run_grad, NULL, false, 1500, 7000},
    {"grad", ".second", cf_run_second, NULL, false, 250, 1800},
    {"types", ".types", cf_run_types, NULL, false, 3000, 3000},
    {"random", "", NULL, cf_random_graphs, false, 300, 2500},
    {"mixed", "", NULL, cf_mixed_graphs, false, 300, 1000},
    {"huge", "", NULL, cf_huge_sizes, true, 1900, 1900},
    {"threads", ".threads", cf_run_threads, NULL, true, 5000, 35000},
    {"replay", ".replay", cf_run_replay, NULL, true, 5000, 35000},
    {"replay", ".random", NULL, cf_replayed_graphs, true, 300, 2400},
};

bool cf_in_shard(const cf_options *o)
{
    /* A plain remainder would follow the types of each row: a shard could have no Float64. */
    static uint32_t unit;
    const uint32_t mixed = ++unit * 0x9E3779B1u;
    return (int)((mixed ^ mixed >> 15) * 0x85EBCA6Bu >> 16) % o->shards == o->shard;
}

/* Is the mode in the comma-separated list? Without a list: is it a mode that runs by default? */
static bool wanted(const char *list, const mode *m)
{
    const size_t n = strlen(m->name);
    for (const char *at = list; at && (at = strstr(at, m->name)) != NULL; at += n)
        if ((at == list || at[-1] == ',') && (at[n] == ',' || at[n] == '\0'))
            return true;
    return !list && !m->asked;
}

bool cf_selected(const cf_options *o, const char *name)
{
    for (int k = 0; k < o->nfilters; k++)
        if (strchr(o->filters[k], '@') ? strcmp(o->filters[k], name) == 0
                                       : strstr(name, o->filters[k]) != NULL)
            return true;
    return o->nfilters == 0;
}

void cf_count(const cf_options *o, cf_tally *t, const char *name, cf_outcome outcome,
              const char *why)
{
    const cf_declaration *d = cf_declared(o->device_name, name);
    if (outcome == CF_SKIP) {
        t->skipped++;
    } else if (outcome == CF_UNSUPPORTED && cf_lacks_f64(o->device, why)) {
        t->unsupported++;
    } else if (d && outcome == (d->xfail ? CF_FAIL : CF_UNSUPPORTED)) {
        *(d->xfail ? &t->xfail : &t->unsupported) += 1;
    } else if (outcome == CF_PASS && !d) {
        t->passed++;
        if (o->verbose)
            printf("ok   %s\n", name);
    } else {
        t->failed++;
        printf("FAIL %s: %s\n", name, outcome == CF_PASS ? "passes, but is declared:" : why);
        if (outcome == CF_PASS)
            printf("     %s\n", d->reason);
    }
    fflush(stdout);
}

/* Does a quick run include this combination? `nth` counts the row's shapes. */
static bool chosen(const cf_options *o, const mode *m, const cf_case *c, int nth)
{
    if (m->run == cf_run_types)
        return c->variant == CF_PLAIN && !c->shape.full_only && nth < 3 &&
               !(c->row->flags & CF_OWN_TYPES);
    const bool main_type = c->dtype == FX_DTYPE_F32 || c->dtype == FX_DTYPE_F64;
    if (m->run != cf_run_test && m->run != cf_run_threads && m->run != cf_run_replay &&
        (!main_type || (c->row->flags & CF_NO_GRAD) || c->variant == CF_SPECIAL ||
         c->variant == CF_UNALIGNED))
        return false;
    if (m->run == cf_run_second && ((c->row->flags & CF_NO_SECOND) || c->dtype != FX_DTYPE_F64))
        return false;
    if ((c->variant == CF_SPECIAL && (c->row->flags & CF_NO_SPECIAL)) ||
        (c->variant == CF_BROADCAST && (c->row->flags & CF_NO_BROADCAST)))
        return false;
    if (o->full)
        return true;
    if (c->shape.full_only)
        return false;
    if (m->run != cf_run_grad && m->run != cf_run_second && c->dtype == FX_DTYPE_F32)
        return c->variant == CF_PLAIN || nth < 2;
    if (c->dtype == FX_DTYPE_F64 && m->run != cf_run_second)
        return c->variant == CF_PLAIN || (c->variant == CF_STRIDED && nth < 2) || nth == 0;
    return c->variant == CF_PLAIN ? nth < 3 : nth == 0;
}

static void run_case(const cf_options *o, const mode *m, cf_case *c, cf_tally *t)
{
    char name[CF_NAME + 40], why[512] = "";
    const bool plain = c->variant == CF_PLAIN;
    snprintf(c->name, sizeof c->name, "conform/%s.%s.%s%s%s", c->row->name, cf_type_names[c->dtype],
             c->shape.name, plain ? "" : ".", plain ? "" : cf_variant_names[c->variant]);
    snprintf(name, sizeof name, "%s%s@%s", c->name, m->suffix, o->device_name);
    if (!cf_selected(o, name))
        return;
    const cf_outcome outcome = m->run(o, c, why, sizeof why);
    if (outcome == CF_PASS && fx_error_status() != FX_OK) {
        cf_error_outcome(why, sizeof why);
        cf_count(o, t, name, CF_FAIL, why);
        return;
    }
    cf_count(o, t, name, outcome, why);
}

/* Runs each `sample`-th case of a row, from case number `from` on; −1: runs none. Returns the
 * number of its cases. */
static int walk_row(const cf_options *o, const mode *m, const cf_row *row, int from, cf_tally *t)
{
    int nth = 0;
    const unsigned types = m->run == cf_run_types ? CF_ALL : row->types;
    for (int type = 0; type < FX_DTYPE_COUNT; type++) {
        const bool mine = from >= 0 && (types & 1u << type) && cf_in_shard(o);
        for (int s = 0; row->shapes[s] && (types & 1u << type); s++)
            for (int v = 0; v < CF_VARIANTS; v++) {
                cf_case c = {.row = row, .dtype = (fx_dtype)type, .variant = (cf_variant)v};
                if (!cf_parse_shape(row->shapes[s], &c.shape) || c.shape.nin != row->nin) {
                    cf_count(o, t, row->shapes[s], CF_FAIL, "malformed shape in the table");
                    return 0;
                }
                if (chosen(o, m, &c, s) && nth++ % o->sample == from && mine)
                    run_case(o, m, &c, t);
            }
    }
    return nth;
}

/* A sample has at least one case of each row: the first with seed 0, else one that the seed and the
 * row's name choose. */
static void run_row(const cf_options *o, const mode *m, const cf_row *row, cf_tally *t)
{
    uint64_t from = o->sample_seed;
    for (const char *c = row->name; from != 0 && *c; c++)
        from = (from ^ (unsigned char)*c) * UINT64_C(0x100000001b3);
    const int cases = from != 0 ? walk_row(o, m, row, -1, t) : 1,
              first = o->sample < cases ? o->sample : cases;
    if (first > 0)
        walk_row(o, m, row, (int)((from >> 20) % (uint64_t)first), t);
}

static cf_tally run_mode(const cf_options *o, const mode *m)
{
    cf_tally t = {0};
    if (m->graphs)
        m->graphs(o, &t);
    else
        for (const cf_row *const *table = cf_tables; *table; table++)
            for (const cf_row *row = *table; row->name; row++)
                run_row(o, m, row, &t);
    /* Shards are of about the same size. */
    const int most = m->graphs && o->graphs ? (int)o->graphs : INT_MAX,
              known = o->full ? m->least_full : m->least,
              least =
                  (known < most ? known : most) / o->sample / (o->shards > 1 ? 2 * o->shards : 1);
    if (o->nfilters == 0 && t.passed + t.xfail + t.unsupported + t.failed < least) {
        printf("FAIL %s%s ran %d cases, at least %d exist\n", m->name, m->suffix, t.passed, least);
        t.failed++;
    }
    printf("%s%s on %s: %d passed, %d failed, %d unsupported, %d known failures, %d skipped\n",
           m->name, m->suffix, o->device_name, t.passed, t.failed, t.unsupported, t.xfail,
           t.skipped);
    return t;
}

/* Did the device replay no graph, although its backend records plans? A few cases may have nothing
 * to record: a single launch is not recorded. */
static bool replayed_nothing(const fx_device *device, int passed)
{
    const fx_counters n = fx_stats();
    const char *graphs = getenv("FX_GPU_GRAPHS");
    printf("graphs: %llu recorded, %llu replayed\n", (unsigned long long)n.graphs_captured,
           (unsigned long long)n.graphs_replayed);
    return device->backend->plan_run && !(graphs && strcmp(graphs, "0") == 0) && passed >= 20 &&
           n.graphs_replayed == 0;
}

/* Did no kernel run? Stand-in devices and GPU backends count the kernels that they ran. */
static bool idle(const fx_device *device)
{
    const standin *s = standin_of(device);
    const fx_backend *b = device->backend;
    const uint64_t *launches = b->proc ? b->proc("launches") : NULL;
    if (launches)
        printf("%llu kernels launched on %s\n", (unsigned long long)*launches, device->name);
    return cf_device_kernels == 0 || (launches && *launches < cf_device_kernels / 2) ||
           (s && s->calls(fx_device_id(device), STANDIN_LAUNCH) < (int64_t)cf_device_kernels / 2);
}

static int run_tables(const cf_options *o, const char *only)
{
    int passed = 0, failed = 0;
    bool table = false; /* a mode over the table ran: only such modes count kernels */
    bool replay = false;
    if (o->sample > 1)
        printf("every %d-th case of a row, CFLUX_SEED=%llu\n", o->sample,
               (unsigned long long)o->sample_seed);
    for (size_t k = 0; k < sizeof modes / sizeof *modes; k++) {
        if (!wanted(only, &modes[k]))
            continue;
        const cf_tally t = run_mode(o, &modes[k]);
        table |= modes[k].run != NULL;
        replay |= modes[k].run == cf_run_replay;
        passed += t.passed;
        failed += t.failed;
    }
    if (o->nfilters == 0)
        failed += cf_check_coverage(o->device, !only && o->shards == 1);
    if (passed + failed == 0) {
        printf("FAIL no case has such a name\n");
        failed++;
    }
    if (o->nfilters == 0 && table && idle(o->device)) {
        printf("FAIL no kernel ran on %s\n", o->device_name);
        failed++;
    }
    if (replay && replayed_nothing(o->device, passed)) {
        printf("FAIL no graph was replayed on %s\n", o->device_name);
        failed++;
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed ? 1 : 0;
}

static int usage(void)
{
    fprintf(stderr,
            "usage: conform_runner [--mode "
            "test|grad|types|random|mixed|huge|threads|replay|perf|support]\n"
            "                      [--device NAME]\n"
            "                      [--full] [--sample N] [--shard K/N] [--graphs N] [--seed "
            "FIRST] [-v]\n"
            "                      [filter...]\n"
            "  --sample N     every N-th case; the environment's CFLUX_SEED chooses the first\n"
            "  --shard K/N    the K-th part of N\n"
            "  --graphs N     random graphs of mode mixed (default: 300, with --full 1000)\n"
            "  --seed FIRST   seed of the first of them (default: 0)\n"
            "  filter         a part of a case's name; with @device, a case\n");
    return 2;
}

static bool shard(cf_options *o, const char *text)
{
    int k = 0, n = 0, end = 0;
    if (sscanf(text, "%d/%d%n", &k, &n, &end) != 2 || text[end] || k < 1 || k > n)
        return false;
    o->shard = k - 1;
    o->shards = n;
    return true;
}

int main(int argc, char **argv)
{
    const char *seed = getenv("CFLUX_SEED");
    cf_options o = {.device_name = "CPU",
                    .sample = 1,
                    .shards = 1,
                    .sample_seed = seed ? strtoull(seed, NULL, 10) : 0};
    const char *only = NULL;
    const char *filters[64];
    for (int k = 1; k < argc; k++) {
        const bool more = k + 1 < argc;
        if (strcmp(argv[k], "--mode") == 0 && more)
            only = argv[++k];
        else if (strcmp(argv[k], "--device") == 0 && more)
            o.device_name = argv[++k];
        else if (strcmp(argv[k], "--sample") == 0 && more && atoi(argv[k + 1]) > 0)
            o.sample = atoi(argv[++k]);
        else if (strcmp(argv[k], "--shard") == 0 && more && shard(&o, argv[k + 1]))
            k++;
        else if (strcmp(argv[k], "--graphs") == 0 && more && atoll(argv[k + 1]) > 0)
            o.graphs = atoll(argv[++k]);
        else if (strcmp(argv[k], "--seed") == 0 && more)
            o.seed = strtoull(argv[++k], NULL, 10);
        else if (strcmp(argv[k], "--full") == 0)
            o.full = true;
        else if (strcmp(argv[k], "-v") == 0)
            o.verbose = true;
        else if (argv[k][0] != '-' && o.nfilters < 64)
            filters[o.nfilters++] = argv[k];
        else
            return usage();
    }
    o.filters = filters;
    for (int k = 0; k < o.nfilters; k++)
        if (strchr(filters[k], '@')) {
            o.device_name = strchr(filters[k], '@') + 1;
            o.full = true; /* the name may be that of a case of the full run */
        }
    o.device = fx_device_find(o.device_name);
    if (fx_error_print(stderr))
        return 1;
    o.device_name = fx_device_name(o.device);
    fx_message_set_hook(NULL, NULL);
    if (only && strcmp(only, "perf") == 0)
        return cf_perf(&o) ? 1 : 0;
    if (only && strcmp(only, "support") == 0)
        return cf_support(&o);
    const int failed = run_tables(&o, only);
    /* Frees the plans: at the end of the process, what a vendor's library made for them would not
     * be freed. */
    fx_reclaim();
    return failed;
}
