/* conform_graphs.c: random expression graphs must agree with ref, in value and in gradient.
 *
 * A seed fixes a graph of at most 40 nodes: elementwise operations with broadcasting, views of
 * views, reductions, patterns of rows (softmax, norms, losses, and other combinations of a row with
 * its sums), products, joins and indexing, each taking any earlier node. Choices depend on the seed
 * and on shapes only, so the same graph is built on the device and on ref. Results that would grow
 * are passed through tanh, so that values stay near 1 and errors stay small. Float64 graphs are
 * compared closely; every fourth seed also runs in Float32, with a limit that allows the errors of
 * 40 nodes. Every fourth seed also runs in Float16 or BFloat16: there the rounding of 40 nodes may
 * change a comparison, so ref is not used. But every operation rounds its result, in one step with
 * others or alone, so the same device with one step for each node must give the same bits. Every
 * fourth seed also runs three recorded training steps, with other data each time, which must give
 * the same bits as training steps that are not recorded.
 */
#include "conform.h"
#include "planning.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LEAVES = 4, MOST = 40, MOST_ELEMENTS = 240 };

typedef struct graph {
    uint64_t state;
    fx_device *device;
    fx_array *node[MOST];
    int n;
} graph;

/* splitmix64 (Steele, Lea, Flood, 2014). */
static uint64_t next(graph *g)
{
    uint64_t z = g->state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static int below(graph *g, int n)
{
    return (int)(next(g) % (uint64_t)n);
}
static fx_array *pick(graph *g)
{
    return g->node[below(g, g->n)];
}
static fx_array *tame(fx_array *x)
{
    return fx_mul(fx_tanh(x), 1.5);
}

static int axis_of(graph *g, fx_array *x)
{
    return fx_ndims(x) ? below(g, fx_ndims(x)) : 0;
}

/* ---- the operations: each returns a new node, or NULL when it does not fit what was picked --- */
static fx_array *unary(graph *g)
{
    static fx_array *(*const functions[])(fx_array *) = {
        fx_tanh, fx_sigmoid, fx_sin, fx_cos,      fx_softplus, fx_gelu, fx_swish,
        fx_relu, fx_abs,     fx_elu, fx_softsign, fx_neg,      fx_erf,  fx_leakyrelu};
    fx_array *x = pick(g);
    return functions[below(g, (int)(sizeof functions / sizeof *functions))](x);
}

bool cf_broadcasts(fx_array *a, fx_array *b)
{
    const int most = fx_ndims(a) > fx_ndims(b) ? fx_ndims(a) : fx_ndims(b);
    for (int k = 0; k < most; k++)
        if (fx_size(a, k) != fx_size(b, k) && fx_size(a, k) != 1 && fx_size(b, k) != 1)
            return false;
    return true;
}

static fx_array *binary(graph *g)
{
    fx_array *a = pick(g), *b = pick(g);
    if (!cf_broadcasts(a, b))
        b = fx_mean(b);
    switch (below(g, 7)) {
    case 0:
        return fx_add(a, b);
    case 1:
        return fx_sub(a, b);
    case 2:
        return tame(fx_mul(a, b));
    case 3:
        return fx_max(a, fx_mul(0.7, b));
    case 4:
        return fx_min(a, fx_add(0.1, b));
    case 5:
        return tame(fx_div(a, fx_add(fx_square(b), 0.5)));
    default:
        return fx_where(fx_gt(a, fx_mul(0.3, b)), a, fx_sin(b));
    }
}

static fx_array *scalar_forms(graph *g)
{
    fx_array *x = pick(g);
    const double number = 0.25 + 0.125 * below(g, 9);
    switch (below(g, 5)) {
    case 0:
        return fx_mul(x, number);
    case 1:
        return fx_sub(number, x);
    case 2:
        return tame(fx_pow(x, 1 + below(g, 3)));
    case 3:
        return fx_sqrt(fx_add(fx_square(x), number));
    default:
        return fx_log(fx_add(fx_exp(fx_mul(x, 0.5)), number));
    }
}

static fx_array *product(graph *g)
{
    fx_array *a = pick(g), *b = pick(g);
    if (fx_ndims(a) != 2 || fx_ndims(b) != 2)
        return NULL;
    if (fx_size(a, 1) != fx_size(b, 0))
        b = fx_size(a, 1) == fx_size(b, 1) ? fx_transpose(b) : fx_transpose(a);
    return tame(fx_matmul(a, b));
}

static fx_array *reshaped(graph *g, fx_array *x)
{
    const int64_t n = fx_length(x), r = 1 + below(g, 6);
    if (n % r != 0)
        return fx_vec(x);
    return n % (2 * r) == 0 && below(g, 2) ? fx_reshape(x, r, 2, -1) : fx_reshape(x, r, -1);
}

static fx_array *view(graph *g)
{
    fx_array *x = pick(g);
    const int axis = axis_of(g, x);
    const int64_t n = fx_size(x, axis);
    if (fx_ndims(x) == 0)
        return fx_reshape(x, 1, 1);
    switch (below(g, 6)) {
    case 0:
        return fx_ndims(x) >= 2 ? fx_transpose(x) : fx_unsqueeze(x, 0);
    case 1:
        return reshaped(g, x);
    case 2:
        return fx_slice(x, axis, n / 3, n);
    case 3:
        return fx_slice_step(x, axis, n - 1, -1, n);
    case 4:
        return fx_slice_step(x, axis, 0, 2, (n + 1) / 2);
    default:
        return fx_ndims(x) == 3 ? fx_permute(x, 2, 0, 1) : fx_unsqueeze(x, 1);
    }
}

static fx_array *reduction(graph *g)
{
    fx_array *x = pick(g);
    if (fx_ndims(x) == 0)
        return NULL;
    const int axis = axis_of(g, x);
    const fx_axes mask = FX_AXES(axis);
    switch (below(g, 8)) {
    case 0:
        return tame(fx_sum(x, .dims = mask));
    case 1:
        return fx_mean(x, .dims = mask, .drop = true);
    case 2:
        return fx_maximum(x, .dims = mask);
    case 3:
        return fx_minimum(x, .dims = mask);
    case 4:
        return fx_softmax(x, .dims = mask);
    case 5:
        return tame(fx_cumsum(x, axis));
    case 6:
        return fx_logsumexp(x, .dims = mask);
    default:
        return fx_sqrt(fx_add(fx_var(x, .dims = mask, .corrected = false), 0.1));
    }
}

/* Values of a slice combined with the slice. If the slice is contiguous, value and gradient become
 * one row step of several passes. */
static fx_array *row_pattern(graph *g)
{
    fx_array *x = pick(g), *y = pick(g);
    if (fx_ndims(x) == 0)
        return NULL;
    const bool whole = below(g, 8) == 0;
    const fx_axes mask = whole              ? FXI_AXES((1u << fx_ndims(x)) - 1)
                         : below(g, 4) == 0 ? FX_AXES(axis_of(g, x))
                                            : FX_AXES(0);
    if (!cf_broadcasts(x, y) || fx_length(y) > fx_length(x) || fx_ndims(y) != fx_ndims(x))
        y = fx_sin(x);
    switch (below(g, 9)) {
    case 0:
        return fx_logsoftmax(x, .dims = mask);
    case 1:
        return fx_normalise(x, mask, 0.1);
    case 2:
        return fx_add(fx_mul(y, fx_normalise(x, mask, 0.1)), 0.5);
    case 3:
        return fx_div(x, fx_sqrt(fx_add(fx_mean(fx_square(x), .dims = mask), 0.1)));
    case 4:
        return fx_div(x, fx_add(fx_norm(fx_add(x, 0.01), .dims = mask), 0.1));
    case 5:
        return fx_neg(fx_sum(fx_mul(fx_sigmoid(y), fx_logsoftmax(x, .dims = mask)), .dims = mask));
    case 6:
        return fx_sub(x, fx_logsumexp(fx_add(x, y), .dims = mask));
    case 7:
        return tame(fx_mul(fx_sub(x, fx_mean(y, .dims = mask)), fx_sum(x, .dims = mask)));
    default:
        return fx_mul(fx_softmax(x, .dims = mask), fx_maximum(y, .dims = mask));
    }
}

static fx_array *joined(graph *g)
{
    fx_array *x = pick(g);
    if (fx_ndims(x) == 0)
        return fx_stack(0, x, x);
    const int axis = axis_of(g, x);
    switch (below(g, 4)) {
    case 0:
        return fx_concat(axis, x, fx_sin(x));
    case 1:
        return fx_pad(x, axis, 1, 2, 0.5);
    case 2:
        return fx_repeat_inner(x, axis, 2);
    default:
        return fx_ndims(x) < 3 ? fx_stack(axis, x, fx_neg(x)) : NULL;
    }
}

static fx_array *indexed(graph *g)
{
    fx_array *x = pick(g);
    if (fx_ndims(x) == 0)
        return NULL;
    const int axis = axis_of(g, x);
    const int64_t n = fx_size(x, axis), count = 4;
    int64_t idx[4];
    for (int k = 0; k < count; k++)
        idx[k] = below(g, (int)n);
    fx_array *at = fx_array_to(g->device, fxi_from(FX_DTYPE_I64, idx, 1, &count));
    fx_array *y = fx_gather(x, at, axis);
    return below(g, 2) ? y : tame(fx_scatter(FX_REDUCE_SUM, y, at, axis, n));
}

typedef fx_array *(*operation)(graph *g);
/* An operation that occurs several times is chosen more often. */
static const operation operations[] = {
    unary, unary, unary,     binary,    binary,      binary,      scalar_forms, product, view,
    view,  view,  reduction, reduction, row_pattern, row_pattern, joined,       indexed};

static fx_array *leaf(graph *g, fx_dtype dtype, int k)
{
    static const int64_t sizes[LEAVES][2] = {{4, 5}, {5, 4}, {1, 5}, {4, 1}};
    double v[20];
    for (int i = 0; i < 20; i++)
        v[i] = (double)((float)(next(g) >> 40) * 0x1p-23f - 1);
    fx_array *x = fxi_from(FX_DTYPE_F64, v, 2, sizes[k]);
    x = fx_array_to(g->device, dtype == FX_DTYPE_F64 ? x : fx_cast(x, dtype));
    return x;
}

static void begin(graph *g, uint64_t seed, fx_dtype dtype, fx_device *device)
{
    g->state = seed * 0x9E3779B97F4A7C15u + 1;
    g->device = device;
    for (g->n = 0; g->n < LEAVES; g->n++)
        g->node[g->n] = leaf(g, dtype, g->n);
}

/* Makes the graph on its leaves. Its last nodes are summed into the loss, which is returned. */
static fx_array *grow(graph *g)
{
    const int target = 10 + below(g, MOST - 10 + 1);
    for (int tries = 0; g->n < target && tries < 8 * MOST; tries++) {
        fx_array *y = operations[below(g, (int)(sizeof operations / sizeof *operations))](g);
        if (!y || (!fx_is_error(y) && (fx_length(y) > MOST_ELEMENTS || fx_ndims(y) > 4)))
            continue;
        if (fx_is_error(y))
            return y;
        g->node[g->n++] = y;
    }
    fx_array *loss = fx_mean(g->node[g->n - 1]);
    for (int k = 2; k <= 4; k++)
        loss = fx_add(loss, fx_mul(1.0 / k, fx_mean(fx_mul(g->node[g->n - k], g->node[g->n - k]))));
    return loss;
}

/* Results: the loss, the last node, the gradient of every leaf. */
enum { RESULTS = 2 + LEAVES };

static bool run_on_leaves(graph *g, cf_result *r)
{
    fx_array *gradient[LEAVES];
    fx_array *loss = grow(g);
    if (fx_is_error(loss) || fx_gradient_of(loss, g->node, LEAVES, gradient) != FX_OK)
        return false;
    bool ok = cf_read(loss, &r[0]) && cf_read(g->node[g->n - 1], &r[1]);
    for (int k = 0; k < LEAVES && ok; k++)
        ok = cf_read(gradient[k], &r[2 + k]);
    return ok;
}

static bool run_graph(uint64_t seed, fx_dtype dtype, fx_device *device, cf_result *r)
{
    FX_SCOPE;
    graph g;
    begin(&g, seed, dtype, device);
    return run_on_leaves(&g, r);
}

static void free_results(cf_result *r)
{
    for (int k = 0; k < RESULTS; k++)
        cf_free_result(&r[k]);
}

/* One training step, with the leaves of the seed times `scale`. */
static bool run_step(uint64_t seed, fx_dtype dtype, fx_device *device, int mode, double scale,
                     cf_result *r)
{
    FX_SCOPE;
    graph g;
    begin(&g, seed, dtype, device);
    for (int i = 0; i < LEAVES; i++) {
        g.node[i] = fx_mul(g.node[i], scale);
        if (fx_eval(g.node[i]) != FX_OK)
            return false;
    }
    free_results(r);
    FXI_OPEN(mode);
    return run_on_leaves(&g, r);
}

/* Three training steps with other data each; the results are those of the last one. */
static bool run_steps(uint64_t seed, fx_dtype dtype, fx_device *device, int mode, cf_result *r)
{
    bool ok = true;
    for (int k = 0; k < 3 && ok; k++)
        ok = run_step(seed, dtype, device, mode, 1 - 0.25 * k, r);
    return ok;
}

/* unit: the unit of an absolute error, for results that are zero. */
static bool agrees(const cf_result *got, const cf_result *want, double limit, double unit,
                   char *why, size_t size)
{
    double error = 0, scale = 0;
    if (got->n != want->n) {
        snprintf(why, size, "%lld elements, ref has %lld", (long long)got->n, (long long)want->n);
        return false;
    }
    for (int64_t i = 0; i < got->n; i++) {
        const double d = got->real[i] - want->real[i];
        error += d * d;
        scale += want->real[i] * want->real[i];
    }
    if (error <= limit * (scale + 1e-4 * unit * (double)got->n))
        return true;
    snprintf(why, size, "squared error %.3g of %.3g", error, scale);
    return false;
}

static cf_outcome compare_graph(const cf_options *o, uint64_t seed, fx_dtype dtype, char *why,
                                size_t size)
{
    static const char *const names[RESULTS] = {"loss",       "last node",  "gradient 0",
                                               "gradient 1", "gradient 2", "gradient 3"};
    cf_result got[RESULTS] = {0}, want[RESULTS] = {0};
    cf_outcome outcome = CF_PASS;
    if (!run_graph(seed, FX_DTYPE_F64, cf_ref_device(), want) ||
        !run_graph(seed, dtype, o->device, got))
        outcome = cf_error_outcome(why, size);
    for (int k = 0; k < RESULTS && outcome == CF_PASS; k++) {
        char text[200];
        /* A gradient may be zero except for rounding errors of the size of the loss: the derivative
         * of tanh is computed from its value, and two correct functions may differ in its last bit.
         */
        const double loss = want[0].real[0], unit = k >= 2 && loss * loss > 1 ? loss * loss : 1;
        if (agrees(&got[k], &want[k], dtype == FX_DTYPE_F64 ? 1e-20 : 1e-8, unit, text,
                   sizeof text))
            continue;
        snprintf(why, size, "%s: %s", names[k], text);
        outcome = CF_FAIL;
    }
    free_results(got);
    free_results(want);
    return outcome;
}

/* Two ways to compute the same bits. `how`: their names. */
static cf_outcome compare_bits(const cf_result *a, const cf_result *b, const char *const how[2],
                               char *why, size_t size)
{
    for (int k = 0; k < RESULTS; k++)
        for (int64_t i = 0; i < a[k].n; i++) {
            const double x = a[k].real[i], y = b[k].real[i];
            if (x == y || (isnan(x) && isnan(y)))
                continue;
            snprintf(why, size, "result %d, element %lld: %.9g in %s, %.9g in %s", k, (long long)i,
                     x, how[0], y, how[1]);
            return CF_FAIL;
        }
    return CF_PASS;
}

/* Fused and separate steps, bit by bit. */
static cf_outcome compare_modes(const cf_options *o, uint64_t seed, fx_dtype dtype, char *why,
                                size_t size)
{
    cf_result fused[RESULTS] = {0}, single[RESULTS] = {0};
    const bool eager = fxi_eager();
    fxi_eager_set(false);
    bool ran = run_graph(seed, dtype, o->device, fused);
    fxi_eager_set(true);
    ran = ran && run_graph(seed, dtype, o->device, single);
    fxi_eager_set(eager);
    static const char *const how[] = {"fused steps", "single ones"};
    const cf_outcome outcome =
        ran ? compare_bits(fused, single, how, why, size) : cf_error_outcome(why, size);
    free_results(fused);
    free_results(single);
    return outcome;
}

/* Compares recorded training steps with ones that are not recorded, bit by bit. The last two
 * recorded ones must repeat the first. */
static cf_outcome compare_recorded(const cf_options *o, uint64_t seed, fx_dtype dtype, char *why,
                                   size_t size)
{
    static const char *const how[] = {"a recorded step", "one that is built"};
    cf_result built[RESULTS] = {0}, recorded[RESULTS] = {0};
    const uint64_t before = fx_stats().repeated_evals;
    const bool ran = run_steps(seed, dtype, o->device, FXI_SCOPE_STEP, built) &&
                     run_steps(seed, dtype, o->device, FXI_SCOPE_RECORD, recorded);
    const int repeated = (int)(fx_stats().repeated_evals - before);
    cf_outcome outcome =
        ran ? compare_bits(recorded, built, how, why, size) : cf_error_outcome(why, size);
    if (outcome == CF_PASS && repeated < 2) {
        snprintf(why, size, "%d evaluations were repeated, expected at least 2", repeated);
        outcome = CF_FAIL;
    }
    free_results(built);
    free_results(recorded);
    return outcome;
}

/* Training steps with two sets of data, alternately: a device with graphs launches the first,
 * records the second and replays later ones. The last training step of each set must have the bits
 * of the first one. */
static cf_outcome compare_replayed(const cf_options *o, uint64_t seed, fx_dtype dtype, char *why,
                                   size_t size)
{
    static const char *const how[] = {"a later training step", "the first"};
    enum { TIMES = 3 };
    cf_result r[2][2][RESULTS] = {0}; /* of both sets: the first and the last training step */
    bool ran = true;
    for (int k = 0; k < 2 * TIMES; k++)
        ran = ran &&
              run_step(seed, dtype, o->device, FXI_SCOPE_STEP, k % 2 ? 0.75 : 1, r[k % 2][k >= 2]);
    cf_outcome outcome = ran ? CF_PASS : cf_error_outcome(why, size);
    for (int set = 0; set < 2; set++) {
        if (outcome == CF_PASS)
            outcome = compare_bits(r[set][1], r[set][0], how, why, size);
        free_results(r[set][0]);
        free_results(r[set][1]);
    }
    return outcome;
}

void cf_replayed_graphs(const cf_options *o, cf_tally *t)
{
    const int most = o->full ? 2400 : 300;
    for (int seed = 0; seed < most; seed += o->sample) {
        const fx_dtype type = seed % 2 ? FX_DTYPE_F64 : FX_DTYPE_F32;
        char name[CF_NAME], why[512] = "";
        snprintf(name, sizeof name, "conform/random.%s.seed%d.replay@%s", cf_type_names[type], seed,
                 o->device_name);
        if (cf_in_shard(o) && cf_selected(o, name))
            cf_count(o, t, name, compare_replayed(o, (uint64_t)seed, type, why, sizeof why), why);
    }
}

void cf_random_graphs(const cf_options *o, cf_tally *t)
{
    const int most = o->full ? 2400 : 300;
    for (int seed = 0; seed < most; seed += o->sample) {
        const bool mine = cf_in_shard(o);
        const fx_dtype half = seed % 8 == 0 ? FX_DTYPE_BF16 : FX_DTYPE_F16;
        const fx_dtype types[] = {FX_DTYPE_F64, FX_DTYPE_F32, half};
        static const fx_dtype recorded[] = {FX_DTYPE_F16, FX_DTYPE_F32, FX_DTYPE_BF16,
                                            FX_DTYPE_F64};
        /* A sample is for devices that compile: there each node of a graph costs a kernel. */
        const int every = o->sample > 1 ? 40 : 4, n = seed % every == 0 ? 3 : seed % 4 == 0 ? 2 : 1;
        for (int k = 0; k < n; k++) {
            char name[CF_NAME], why[512] = "";
            snprintf(name, sizeof name, "conform/random.%s.seed%d@%s", cf_type_names[types[k]],
                     seed, o->device_name);
            if (!mine || !cf_selected(o, name))
                continue;
            const cf_outcome outcome = (k < 2 ? compare_graph : compare_modes)(
                o, (uint64_t)seed, types[k], why, sizeof why);
            cf_count(o, t, name, outcome, why);
        }
        char name[CF_NAME], why[512] = "";
        const fx_dtype type = recorded[seed / every % 4];
        snprintf(name, sizeof name, "conform/recorded.%s.seed%d@%s", cf_type_names[type], seed,
                 o->device_name);
        if (seed % every == 0 && mine && cf_selected(o, name))
            cf_count(o, t, name, compare_recorded(o, (uint64_t)seed, type, why, sizeof why), why);
    }
}
