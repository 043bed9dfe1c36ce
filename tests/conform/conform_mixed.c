/* conform_mixed.c: random graphs of mixed element types, computed in several ways that must agree.
 *
 *   fused      on the device under test, as programs run
 *   eager      the same with one step for each node, as with FX_EAGER=1
 *   ref        on `ref`, the whole graph at once
 *   checked    on `check:DEVICE`, whose errors (guards, poison, overlaps) are failures
 *
 * They are compared with a second run on `ref`, which evaluates every node as soon as it is
 * recorded and donates nothing, so that none of its plans overwrites a value. All plans of this
 * test are checked (plan_check.c); a wrong plan is a failure too.
 *
 * A seed fixes a graph and what is computed from it:
 *   results    several outputs at once, then some more nodes
 *   gradients  first and second derivatives of a sum of nodes (Float32 and Float64 only)
 *   updates    leaves get new values that are computed from them and from one another, twice, while
 *              other results are pending: tests which memory donation overwrites
 *
 * For a graph that fails, a smaller form with the same seed is searched: `mixed.seed7.n9` are its
 * first nine nodes. Both names are rerun commands; with -v the nodes are listed:
 *   conform_runner -v conform/mixed.seed7.n9@CPU
 * Any number of graphs: conform_runner --mode mixed --graphs 50000 --seed 1000000
 */
#include "conform_mixed.h"
#include "evaluate.h"
#include "planning.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RESULTS = 12, LEAST_NODES = CFM_LEAVES + 2 };
typedef enum kind { KIND_RESULTS, KIND_GRADIENTS, KIND_UPDATES } kind;

/* One way to compute a graph, and its results. */
typedef struct attempt {
    const char *name;
    fx_device *device;
    bool eager, stepwise, list;
    cf_result r[RESULTS];
    int n;
} attempt;

static kind kind_of(uint64_t seed)
{
    static const kind kinds[] = {KIND_RESULTS, KIND_UPDATES, KIND_RESULTS, KIND_GRADIENTS};
    return kinds[seed % 4];
}

static void begin(cfm_graph *g, uint64_t seed, const attempt *a)
{
    *g = (cfm_graph){.state = seed * 0x9E3779B97F4A7C15u + 1,
                     .device = a->device,
                     .real = kind_of(seed) == KIND_GRADIENTS,
                     .large = seed / 4 % 3 == 2,
                     .stepwise = a->stepwise,
                     .list = a->list};
    for (int k = 0; k < CFM_LEAVES; k++)
        cfm_leaf(g, k, cfm_type(g));
}

static bool keep_result(attempt *a, fx_array *x)
{
    return a->n < RESULTS && cf_read(x, &a->r[a->n++]);
}

/* ---- results --------------------------------------------------------------------------------- */

static bool some_results(cfm_graph *g, attempt *a)
{
    void *asked[4] = {NULL};
    const int n = 1 + cfm_below(g, 4);
    for (int k = 0; k < n; k++)
        asked[k] = g->node[k == 0 ? g->n - 1 : cfm_below(g, g->n)];
    bool ok = fx_eval(fxi_tuple(n, asked)) == FX_OK;
    for (int k = 0; k < n && ok; k++)
        ok = keep_result(a, asked[k]);
    for (int k = 0; k < 4 && ok; k++)
        ok = keep_result(a, g->node[cfm_below(g, g->n)]);
    return ok;
}

/* ---- gradients ------------------------------------------------------------------------------- */

static fx_array *weighed(fx_array *x, int weight)
{
    return fx_mul(fx_sum(fx_cast(x, FX_DTYPE_F64)), weight);
}

static bool some_gradients(cfm_graph *g, attempt *a)
{
    fx_array *wrt[CFM_LEAVES], *first[CFM_LEAVES], *second[CFM_LEAVES];
    int n = 0;
    for (int k = 0; k < CFM_LEAVES; k++)
        if (fx_eltype(g->node[k]) <= FX_DTYPE_F64)
            wrt[n++] = g->node[k];
    fx_array *loss = fx_zeros(1);
    loss = fx_array_to(g->device, fx_sum(fx_cast(loss, FX_DTYPE_F64)));
    for (int k = 1; k <= 4; k++) {
        fx_array *y = g->node[g->n - k];
        loss = fx_add(loss, weighed(k % 2 ? fx_square(fx_cast(y, FX_DTYPE_F64)) : y, k));
    }
    if (n == 0)
        return keep_result(a, loss);
    if (fx_gradient_of(loss, wrt, n, first) != FX_OK)
        return false;
    fx_array *again = weighed(first[0], 1);
    for (int k = 0; k < n; k++)
        again = fx_add(again, weighed(fx_square(first[k]), 1 + k));
    if (fx_gradient_of(again, wrt, n, second) != FX_OK)
        return false;
    bool ok = keep_result(a, loss);
    for (int k = 0; k < n && ok; k++)
        ok = keep_result(a, first[k]) && keep_result(a, second[k]);
    return ok;
}

/* ---- updates --------------------------------------------------------------------------------- */

/* A new value for a leaf, of the same sizes and type, often computed from the old value. */
static fx_array *new_value(cfm_graph *g, fx_array *leaf)
{
    fx_array *x = cfm_pick(g), *y = leaf;
    switch (cfm_below(g, 8)) {
    case 0:
        y = fx_flip(leaf, FX_AXES(0));
        break;
    case 1:
        y = fx_cumsum(leaf, 0);
        break;
    case 2:
        y = fx_reshape(fx_transpose(leaf), fx_size(leaf, 0), fx_size(leaf, 1));
        break;
    case 3:
        y = fx_add(leaf, fx_maximum(x));
        break;
    case 4:
        y = fx_sub(fx_mul(leaf, 2), fx_flip(leaf, FX_AXES(1)));
        break;
    case 5:
        y = fx_add(fx_mul(leaf, 2), 1);
        break;
    default: /* the nearest node of as many elements */
        for (int k = g->n - 1; k >= 0; k--)
            if (fx_length(g->node[k]) == fx_length(leaf) && g->node[k] != leaf) {
                y = fx_add(fx_reshape(g->node[k], fx_size(leaf, 0), fx_size(leaf, 1)), leaf);
                break;
            }
    }
    return cfm_tame(fx_cast(cfm_tame(y), fx_eltype(leaf)));
}

static bool one_update(cfm_graph *g, attempt *a)
{
    fx_array *handles[CFM_LEAVES], *values[CFM_LEAVES], *wanted[2];
    int n = 0;
    for (int k = 0; k < CFM_LEAVES; k++)
        if (cfm_below(g, 3) || n == 0)
            handles[n++] = g->node[k];
    for (int k = 0; k < n; k++)
        values[k] = new_value(g, handles[k]);
    for (int k = 0; k < 2; k++)
        wanted[k] = fx_want(g->node[CFM_LEAVES + cfm_below(g, g->n - CFM_LEAVES)]);
    for (int k = 0; k < n && g->stepwise; k++)
        if (fx_eval(values[k]) != FX_OK)
            return false;
    if (fxi_commit(n, handles, values, NULL, false) != FX_OK)
        return false;
    bool ok = keep_result(a, wanted[0]) && keep_result(a, wanted[1]);
    g->n = CFM_LEAVES; /* drops the results of the old values */
    return ok;
}

static bool some_updates(cfm_graph *g, attempt *a)
{
    const int target = g->n;
    bool ok = one_update(g, a) && cfm_grow(g, target) && g->n > CFM_LEAVES && one_update(g, a);
    for (int k = 0; k < CFM_LEAVES && ok; k++)
        ok = keep_result(a, g->node[k]);
    return ok;
}

/* ---- one graph ------------------------------------------------------------------------------- */

static bool compute(uint64_t seed, int most, attempt *a)
{
    FX_SCOPE;
    cfm_graph g;
    begin(&g, seed, a);
    const int drawn = LEAST_NODES + cfm_below(&g, CFM_MOST - LEAST_NODES + 1);
    if (!cfm_grow(&g, drawn < most ? drawn : most))
        return false;
    const kind k = kind_of(seed);
    return k == KIND_RESULTS     ? some_results(&g, a)
           : k == KIND_GRADIENTS ? some_gradients(&g, a)
                                 : some_updates(&g, a);
}

/* Are the numbers equal? Gradients may differ a little, because their products leave the range in
 * which sums are exact. */
static bool same(double got, double want, bool exact)
{
    if (got == want || (isnan(got) && isnan(want)))
        return true;
    return !exact && fabs(got - want) <= 1e-5 * (1 + fabs(want));
}

static bool agrees(const cf_result *got, const cf_result *want, bool exact, char *why, size_t size)
{
    if (got->dtype != want->dtype || got->n != want->n) {
        snprintf(why, size, "%lld elements of %s, expected %lld of %s", (long long)got->n,
                 fx_dtype_name(got->dtype), (long long)want->n, fx_dtype_name(want->dtype));
        return false;
    }
    for (int64_t i = 0; i < want->n; i++) {
        const double g = got->real ? got->real[i] : (double)got->integer[i],
                     w = want->real ? want->real[i] : (double)want->integer[i];
        if (same(g, w, exact))
            continue;
        snprintf(why, size, "element %lld of %lld is %.9g, expected %.9g", (long long)i,
                 (long long)want->n, g, w);
        return false;
    }
    return true;
}

static void forget(attempt *a)
{
    for (int k = 0; k < RESULTS; k++)
        cf_free_result(&a->r[k]);
}

/* Runs one way; compares it with `want` unless that is NULL. */
static cf_outcome run_way(uint64_t seed, int most, attempt *a, const attempt *want, char *why,
                          size_t size)
{
    char text[400] = "";
    fxi_eager_set(a->eager);
    if (!compute(seed, most, a)) {
        const cf_outcome outcome = cf_error_outcome(text, sizeof text);
        snprintf(why, size, "%s: %s", a->name, text);
        return outcome;
    }
    bool ok = !want || a->n == want->n;
    for (int k = 0; want && k < want->n && ok; k++) {
        char difference[200];
        ok = agrees(&a->r[k], &want->r[k], kind_of(seed) != KIND_GRADIENTS, difference,
                    sizeof difference);
        if (!ok)
            snprintf(text, sizeof text, "result %d: %s", k, difference);
    }
    if (ok)
        return CF_PASS;
    snprintf(why, size, "%s: %s", a->name, *text ? text : "another number of results");
    return CF_FAIL;
}

/* The checking wrapper of the device; NULL if the device is one itself, or has none. */
static fx_device *checked(const cf_options *o)
{
    char name[80];
    if (strncmp(o->device_name, "check:", 6) == 0)
        return NULL;
    snprintf(name, sizeof name, "check:%s", o->device_name);
    return fx_device_find(name);
}

static cf_outcome run_graph(const cf_options *o, uint64_t seed, int most, bool list, char *why,
                            size_t size)
{
    attempt want = {.name = "ref, node by node", .device = cf_ref_device(), .stepwise = true};
    attempt ways[] = {{.name = "fused", .device = o->device},
                      {.name = "eager", .device = o->device, .eager = true},
                      {.name = "ref", .device = cf_ref_device()},
                      {.name = "checked", .device = checked(o)}};
    const bool eager = fxi_eager(), checks = fxi_plans_checked();
    want.list = list;
    fxi_plans_checked_set(true);
    cf_outcome outcome = run_way(seed, most, &want, NULL, why, size);
    for (size_t k = 0; k < sizeof ways / sizeof *ways && outcome == CF_PASS; k++) {
        if (ways[k].device)
            outcome = run_way(seed, most, &ways[k], &want, why, size);
        forget(&ways[k]);
    }
    forget(&want);
    fxi_eager_set(eager);
    fxi_plans_checked_set(checks);
    return outcome;
}

/* The least number of nodes with which the graph fails. */
static int smallest(const cf_options *o, uint64_t seed)
{
    char why[512];
    for (int n = LEAST_NODES; n < CFM_MOST; n++) {
        const cf_outcome outcome = run_graph(o, seed, n, false, why, sizeof why);
        fx_error_take();
        if (outcome == CF_FAIL)
            return n;
    }
    return CFM_MOST;
}

static void run_seed(const cf_options *o, cf_tally *t, uint64_t seed, int most)
{
    char name[CF_NAME], why[1024] = "", part[24] = "";
    if (most < CFM_MOST)
        snprintf(part, sizeof part, ".n%d", most);
    snprintf(name, sizeof name, "conform/mixed.seed%llu%s@%s", (unsigned long long)seed, part,
             o->device_name);
    const bool named = o->nfilters > 0 && o->verbose;
    const cf_outcome outcome = run_graph(o, seed, most, named, why, sizeof why);
    fx_error_take();
    if (outcome == CF_FAIL && most == CFM_MOST) {
        const size_t used = strlen(why);
        const int n = smallest(o, seed);
        if (n < CFM_MOST)
            snprintf(why + used, sizeof why - used,
                     "; a smaller form: conform_runner -v conform/mixed.seed%llu.n%d@%s",
                     (unsigned long long)seed, n, o->device_name);
    }
    cf_count(o, t, name, outcome, why);
}

/* Runs the graphs that filters name: "…mixed.seed7" or "…mixed.seed7.n9". */
static bool run_named(const cf_options *o, cf_tally *t)
{
    bool any = false;
    for (int k = 0; k < o->nfilters; k++) {
        const char *at = strstr(o->filters[k], "mixed.seed");
        unsigned long long seed;
        int most = CFM_MOST;
        if (!at || sscanf(at, "mixed.seed%llu.n%d", &seed, &most) < 1)
            continue;
        run_seed(o, t, seed, most < LEAST_NODES || most > CFM_MOST ? CFM_MOST : most);
        any = true;
    }
    return any;
}

void cf_mixed_graphs(const cf_options *o, cf_tally *t)
{
    const int64_t count = o->graphs ? o->graphs : o->full ? 1000 : 300;
    if (run_named(o, t) || !cf_selected(o, "conform/mixed"))
        return;
    const uint64_t donations = fx_stats().donations;
    for (int64_t k = 0; k < count; k += o->sample)
        if (cf_in_shard(o))
            run_seed(o, t, o->seed + (uint64_t)k, CFM_MOST);
    if (count / o->sample / o->shards >= 100 &&
        fx_stats().donations < donations + (uint64_t)(count / o->sample / o->shards) / 10)
        cf_count(o, t, "conform/mixed.donations", CF_FAIL, "hardly an update was in place");
}
