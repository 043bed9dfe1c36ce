/* conform_modes.c: the modes of a run: test, grad and second derivative, threads, replay, perf,
 * support.
 *
 * test    compares the value on the device with that of ref in Float64.
 * grad    tests the gradient of the loss Σ y·c, with fixed c, so that every element of y counts
 *         differently: ref's Float64 gradient is compared with central differences on ref, and the
 *         device's gradient with ref's.
 * second  does the same for the loss Σ_k Σ g_k·c, where the g_k are gradients of the first loss.
 * threads tests that any number of threads gives the same bits as one thread, for the value and for
 *         the gradient if there is one, however small the work is.
 * replay  computes the value and the gradient with some inputs, and with other inputs and another
 *         seed, alternately. A backend that records plans launches the first run, records the
 *         second and replays later ones that find the same addresses. Every later run must have
 *         the bits of the first one with its inputs, and the second run is compared with ref.
 *
 * Where an operation is not differentiable (a tie of a maximum), central differences are
 * meaningless. The broadcast variant makes ties on purpose, so it is compared with ref's gradient
 * only.
 */
#include "conform.h"
#include "cpu_parallel.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_RESULTS = CF_MAX_IN };

typedef struct inputs {
    int n;
    cf_values v[CF_MAX_IN];
    uint64_t seed; /* of random operations */
} inputs;

static void free_inputs(inputs *in)
{
    for (int k = 0; k < in->n; k++)
        cf_free_values(&in->v[k]);
}

static bool make_inputs(const cf_case *c, inputs *in)
{
    *in = (inputs){.seed = 7};
    for (in->n = 0; in->n < c->row->nin; in->n++)
        if (!cf_make_values(c, in->n, &in->v[in->n])) {
            free_inputs(in);
            return false;
        }
    return true;
}

/* Reals in Float64, unless the row says that its result depends on the type. */
static fx_dtype ref_type(const cf_case *c, const cf_values *v)
{
    return cf_is_real(v->dtype) && !(c->row->flags & CF_SAME_TYPE) ? FX_DTYPE_F64 : v->dtype;
}

static void arrays(const cf_options *o, const cf_case *c, const inputs *in, bool on_ref,
                   fx_array **x)
{
    for (int k = 0; k < in->n; k++)
        x[k] = on_ref ? cf_ref_array(&in->v[k], ref_type(c, &in->v[k]))
                      : cf_array(o->device, &in->v[k], c->variant);
}

cf_outcome cf_error_outcome(char *why, size_t size)
{
    const fx_error e = fx_error_take();
    snprintf(why, size, "%s %s", fx_status_name(e.status), e.message);
    return e.status == FX_STATUS_UNSUPPORTED ? CF_UNSUPPORTED : CF_FAIL;
}

uint64_t cf_device_kernels;

/* The device and ref begin with the same seed, so that random numbers agree. */
static bool evaluate(const cf_options *o, const cf_case *c, const inputs *in, bool on_ref,
                     cf_result *r)
{
    FX_SCOPE;
    fx_array *x[CF_MAX_IN];
    fx_seed(in->seed);
    arrays(o, c, in, on_ref, x);
    fx_array *y = c->row->build(x, c->shape.param);
    cf_mark_primitives(y);
    const uint64_t before = fx_stats().steps_run;
    const bool ok = cf_read(y, r);
    cf_device_kernels += on_ref ? 0 : fx_stats().steps_run - before;
    return ok;
}

cf_outcome cf_run_test(const cf_options *o, const cf_case *c, char *why, size_t size)
{
    inputs in;
    cf_result got = {0}, want = {0};
    if (!make_inputs(c, &in)) {
        snprintf(why, size, "out of memory");
        return CF_FAIL;
    }
    cf_outcome outcome = CF_PASS;
    if (!evaluate(o, c, &in, true, &want) || !evaluate(o, c, &in, false, &got))
        outcome = cf_error_outcome(why, size);
    else if (!cf_close(&got, &want, c->row->tolerance, why, size))
        outcome = CF_FAIL;
    cf_free_result(&got);
    cf_free_result(&want);
    free_inputs(&in);
    return outcome;
}

/* ---- gradients ------------------------------------------------------------------------------- */
/* Σ y·c with c from a fixed sequence, on y's device and in y's type. */
static fx_array *weighted_sum(fx_array *y, double seed)
{
    if (fx_is_error(y))
        return y;
    const int64_t n = fx_length(y);
    int64_t sizes[FX_MAX_DIMS];
    for (int k = 0; k < fx_ndims(y); k++)
        sizes[k] = fx_size(y, k);
    double *c = calloc((size_t)n + 1, sizeof *c);
    if (!c)
        return fx_error_array(FX_STATUS_MEMORY);
    for (int64_t i = 0; i < n; i++) {
        const double u = (double)(i + 1) * 0.7548776662466927 + seed;
        c[i] = (double)(float)(0.5 + u - floor(u)); /* the same number in Float32 */
    }
    fx_array *weights = fx_cast(fxi_from(FX_DTYPE_F64, c, fx_ndims(y), sizes), fx_eltype(y));
    free(c);
    return fx_sum(fx_mul(y, fx_array_to(fx_array_device(y), weights)));
}

static int real_inputs(const inputs *in, fx_array *const *x, fx_array **wrt)
{
    int n = 0;
    for (int k = 0; k < in->n; k++)
        if (cf_is_real(in->v[k].dtype))
            wrt[n++] = x[k];
    return n;
}

/* The function that is differentiated: order 1 the loss, order 2 a weighted sum of its gradients.
 */
static fx_array *objective(const cf_case *c, const inputs *in, fx_array *const *x, int order)
{
    fx_array *loss = weighted_sum(c->row->build(x, c->shape.param), 0.13);
    if (order == 1 || fx_is_error(loss))
        return loss;
    fx_array *wrt[CF_MAX_IN], *g[CF_MAX_IN];
    const int n = real_inputs(in, x, wrt);
    if (fx_gradient_of(loss, wrt, n, g) != FX_OK)
        return fx_error_array(fx_error_status());
    fx_array *sum = weighted_sum(g[0], 0.41);
    for (int k = 1; k < n; k++)
        sum = fx_add(sum, weighted_sum(g[k], 0.41 + 0.2 * k));
    return sum;
}

static bool gradients(const cf_options *o, const cf_case *c, const inputs *in, int order,
                      bool on_ref, cf_result *r)
{
    FX_SCOPE;
    fx_array *x[CF_MAX_IN], *wrt[CF_MAX_IN], *g[CF_MAX_IN];
    arrays(o, c, in, on_ref, x);
    fx_array *f = objective(c, in, x, order);
    const int n = real_inputs(in, x, wrt);
    const uint64_t before = fx_stats().steps_run;
    if (fx_is_error(f) || fx_gradient_of(f, wrt, n, g) != FX_OK)
        return false;
    for (int k = 0; k < n; k++) {
        cf_mark_primitives(g[k]);
        if (!cf_read(g[k], &r[k]))
            return false;
    }
    cf_device_kernels += on_ref ? 0 : fx_stats().steps_run - before;
    return true;
}

static double objective_value(const cf_options *o, const cf_case *c, const inputs *in, int order)
{
    FX_SCOPE;
    fx_array *x[CF_MAX_IN];
    arrays(o, c, in, true, x);
    return fx_item(objective(c, in, x, order));
}

/* Central difference of fourth order: error h⁴·f⁽⁵⁾/30 and about 1e-16/h of rounding. */
static double difference(const cf_options *o, const cf_case *c, inputs *in, int order, double *at,
                         double h)
{
    const double x = *at;
    double f[4];
    static const double where[4] = {-2, -1, 1, 2};
    for (int k = 0; k < 4; k++) {
        *at = x + where[k] * h;
        f[k] = objective_value(o, c, in, order);
    }
    *at = x;
    return (8 * (f[2] - f[1]) - (f[3] - f[0])) / (12 * h);
}

static double largest(const cf_result *r)
{
    double m = 0;
    for (int64_t i = 0; i < r->n; i++)
        m = fmax(m, fabs(r->real[i]));
    return m;
}

/* Checks one element. A kink or jump between the four points makes the difference wrong, so a
 * failed check is repeated with points that are closer together. */
static bool check_difference(const cf_options *o, const cf_case *c, inputs *in, int order,
                             double *at, double got, double scale, double *out_want)
{
    static const double steps[] = {2e-4, 1e-5};
    for (int k = 0; k < 2; k++) {
        *out_want = difference(o, c, in, order, at, steps[k] * fmax(1, fabs(*at)));
        if (fabs(got - *out_want) <= 2e-8 * (1 + fabs(*out_want) + scale))
            return true;
    }
    return false;
}

/* Checks some elements of every real input, spread over it. */
static bool check_differences(const cf_options *o, const cf_case *c, inputs *in, int order,
                              const cf_result *g, char *why, size_t size)
{
    const int64_t most = o->full ? 12 : 4;
    for (int k = 0, slot = 0; k < in->n; k++) {
        cf_values *v = &in->v[k];
        if (!cf_is_real(v->dtype))
            continue;
        const int64_t tries = v->n < most ? v->n : most;
        for (int64_t t = 0; t < tries; t++) {
            const int64_t i = t * v->n / tries;
            const double got = g[slot].real[i];
            double want;
            if (check_difference(o, c, in, order, &v->real[i], got, largest(&g[slot]), &want))
                continue;
            snprintf(why, size,
                     "ref's gradient of input %d, element %lld is %.12g, differences give %.12g", k,
                     (long long)i, got, want);
            return false;
        }
        slot++;
    }
    return true;
}

/* Gradients of pointwise operations have the same pointwise limits. All others, also those of exact
 * operations, contain sums and have the limit of the squared error. */
static cf_tolerance gradient_tolerance(const cf_case *c)
{
    return c->row->tolerance == CF_POINT ? CF_POINT : CF_NMSE;
}

static cf_outcome run_gradient(const cf_options *o, const cf_case *c, int order, char *why,
                               size_t size)
{
    inputs in;
    cf_result got[MAX_RESULTS] = {0}, want[MAX_RESULTS] = {0};
    if (!make_inputs(c, &in)) {
        snprintf(why, size, "out of memory");
        return CF_FAIL;
    }
    cf_outcome outcome = CF_PASS;
    if (!gradients(o, c, &in, order, true, want) || !gradients(o, c, &in, order, false, got))
        outcome = cf_error_outcome(why, size);
    for (int k = 0; k < MAX_RESULTS && outcome == CF_PASS; k++)
        if (want[k].real && !cf_close(&got[k], &want[k], gradient_tolerance(c), why, size))
            outcome = CF_FAIL;
    if (outcome == CF_PASS && c->variant == CF_PLAIN && c->dtype == FX_DTYPE_F64 &&
        !(c->row->flags & CF_NO_DIFFERENCES) &&
        !check_differences(o, c, &in, order, want, why, size))
        outcome = CF_FAIL;
    for (int k = 0; k < MAX_RESULTS; k++) {
        cf_free_result(&got[k]);
        cf_free_result(&want[k]);
    }
    free_inputs(&in);
    return outcome;
}

cf_outcome cf_run_grad(const cf_options *o, const cf_case *c, char *why, size_t size)
{
    return run_gradient(o, c, 1, why, size);
}

cf_outcome cf_run_second(const cf_options *o, const cf_case *c, char *why, size_t size)
{
    return run_gradient(o, c, 2, why, size);
}

/* ---- threads --------------------------------------------------------------------------------- */
/* The value and then the gradients of real inputs: 1 + inputs results. */
static bool everything(const cf_options *o, const cf_case *c, const inputs *in, bool on_ref,
                       cf_result *r)
{
    const bool differentiable =
        !(c->row->flags & CF_NO_GRAD) && (c->dtype == FX_DTYPE_F32 || c->dtype == FX_DTYPE_F64);
    return evaluate(o, c, in, on_ref, &r[0]) &&
           (!differentiable || gradients(o, c, in, 1, on_ref, r + 1));
}

static bool same_bits(const cf_result *a, const cf_result *b)
{
    const size_t n = (size_t)a->n * sizeof(double);
    return a->n == b->n && !a->real == !b->real && (!a->real || memcmp(a->real, b->real, n) == 0) &&
           (!a->integer || memcmp(a->integer, b->integer, n) == 0);
}

cf_outcome cf_run_threads(const cf_options *o, const cf_case *c, char *why, size_t size)
{
    static const int counts[] = {1, 2, 3, 5};
    enum { COUNTS = sizeof counts / sizeof *counts };
    inputs in;
    cf_result r[COUNTS][1 + MAX_RESULTS] = {0};
    if (!make_inputs(c, &in)) {
        snprintf(why, size, "out of memory");
        return CF_FAIL;
    }
    cf_outcome outcome = CF_PASS;
    fxi_cpu_parts_from(0);
    for (int k = 0; k < COUNTS && outcome == CF_PASS; k++) {
        fx_set_num_threads(counts[k]);
        if (!everything(o, c, &in, false, r[k]))
            outcome = cf_error_outcome(why, size);
        for (int i = 0; i <= MAX_RESULTS && outcome == CF_PASS; i++)
            if (!same_bits(&r[0][i], &r[k][i])) {
                snprintf(why, size, "result %d: %d threads give other bits than one", i, counts[k]);
                outcome = CF_FAIL;
            }
    }
    fxi_cpu_parts_from(FXI_PARTS_FROM);
    fx_set_num_threads(0);
    for (int k = 0; k < COUNTS; k++)
        for (int i = 0; i <= MAX_RESULTS; i++)
            cf_free_result(&r[k][i]);
    free_inputs(&in);
    return outcome;
}

/* ---- replay ---------------------------------------------------------------------------------- */
static void reverse(double *x, int64_t n)
{
    for (int64_t i = 0; i < n / 2; i++) {
        const double first = x[i];
        x[i] = x[n - 1 - i];
        x[n - 1 - i] = first;
    }
}

/* The other inputs: reals in the opposite order, and another seed. A second call restores the first
 * ones. */
static void exchange(inputs *in)
{
    in->seed ^= 1;
    for (int k = 0; k < in->n; k++)
        if (cf_is_real(in->v[k].dtype))
            reverse(in->v[k].real, in->v[k].n);
}

enum { REPLAYS = 6 };

/* r[REPLAYS] are ref's results with the inputs of the second run. */
static cf_outcome judge_replays(const cf_case *c, cf_result r[REPLAYS + 1][1 + MAX_RESULTS],
                                char *why, size_t size)
{
    for (int i = 0; i <= MAX_RESULTS; i++) {
        const cf_result *want = &r[REPLAYS][i];
        if ((want->real || want->integer) &&
            !cf_close(&r[1][i], want, i == 0 ? c->row->tolerance : gradient_tolerance(c), why,
                      size))
            return CF_FAIL;
        for (int k = 2; k < REPLAYS; k++)
            if (!same_bits(&r[k % 2][i], &r[k][i])) {
                snprintf(why, size, "result %d: run %d has other bits than run %d", i, k + 1,
                         k % 2 + 1);
                return CF_FAIL;
            }
    }
    return CF_PASS;
}

cf_outcome cf_run_replay(const cf_options *o, const cf_case *c, char *why, size_t size)
{
    inputs in;
    cf_result r[REPLAYS + 1][1 + MAX_RESULTS] = {0};
    bool ok = true;
    if (!make_inputs(c, &in)) {
        snprintf(why, size, "out of memory");
        return CF_FAIL;
    }
    for (int k = 0; ok && k < REPLAYS; k++, exchange(&in))
        ok = everything(o, c, &in, false, r[k]);
    exchange(&in);
    ok = ok && everything(o, c, &in, true, r[REPLAYS]);
    const cf_outcome outcome = ok ? judge_replays(c, r, why, size) : cf_error_outcome(why, size);
    for (int k = 0; k <= REPLAYS; k++)
        for (int i = 0; i <= MAX_RESULTS; i++)
            cf_free_result(&r[k][i]);
    free_inputs(&in);
    return outcome;
}

/* ---- perf ------------------------------------------------------------------------------------ */
static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool once(const cf_case *c, fx_array *const *x)
{
    FX_SCOPE;
    return fx_eval(c->row->build(x, c->shape.param)) == FX_OK;
}

static bool time_case(const cf_options *o, const cf_case *c, const inputs *in, double *per_call,
                      double *bytes)
{
    FX_SCOPE;
    fx_array *x[CF_MAX_IN];
    arrays(o, c, in, false, x);
    for (int k = 0; k < in->n; k++)
        if (fx_eval(x[k]) != FX_OK)
            return false;
    if (!once(c, x))
        return false;
    const uint64_t moved = fx_stats().bytes_moved;
    const double start = seconds();
    int calls = 0;
    do {
        if (!once(c, x))
            return false;
        calls++;
    } while (calls < 3 || (seconds() - start < 0.2 && calls < 1000));
    *per_call = (seconds() - start) / calls;
    *bytes = (double)(fx_stats().bytes_moved - moved) / calls;
    return true;
}

int cf_perf(const cf_options *o)
{
    printf("%-52s %12s %10s\n", "case", "us/call", "GB/s");
    int failures = 0;
    for (const cf_row *const *t = cf_tables; *t; t++)
        for (const cf_row *row = *t; row->name; row++) {
            cf_case c = {.row = row, .dtype = FX_DTYPE_F32};
            char name[CF_NAME + 40], why[512];
            inputs in;
            double per_call = 0, bytes = 0;
            if (!row->perf || !(row->types & CF_T(F32)) || !cf_parse_shape(row->perf, &c.shape))
                continue;
            snprintf(name, sizeof name, "conform/%s.f32.%s@%s", row->name, c.shape.name,
                     o->device_name);
            if (!cf_selected(o, name) || !make_inputs(&c, &in))
                continue;
            if (time_case(o, &c, &in, &per_call, &bytes)) {
                printf("%-52s %12.1f %10.2f\n", name, per_call * 1e6, bytes / per_call * 1e-9);
            } else {
                cf_error_outcome(why, sizeof why);
                printf("%-52s %s\n", name, why);
                failures++;
            }
            free_inputs(&in);
        }
    return failures;
}

/* ---- support --------------------------------------------------------------------------------- */
static bool supported(const cf_options *o, const cf_row *row, fx_dtype t, char *why, size_t size)
{
    cf_case c = {.row = row, .dtype = t};
    inputs in;
    cf_result r = {0};
    if (!cf_parse_shape(row->shapes[0], &c.shape) || !make_inputs(&c, &in)) {
        snprintf(why, size, "no inputs");
        return false;
    }
    const bool ok = evaluate(o, &c, &in, false, &r);
    if (!ok)
        cf_error_outcome(why, size);
    cf_free_result(&r);
    free_inputs(&in);
    return ok;
}

/* Prints a table of operation × element type, and below it the reasons for what is missing. */
int cf_support(const cf_options *o)
{
    printf("%-22s", o->device_name);
    for (int t = 0; t < FX_DTYPE_COUNT; t++)
        printf("%6s", cf_type_names[t]);
    printf("\n");
    for (const cf_row *const *table = cf_tables; *table; table++)
        for (const cf_row *row = *table; row->name; row++) {
            char why[FX_DTYPE_COUNT][512];
            bool ok[FX_DTYPE_COUNT];
            if (!cf_selected(o, row->name))
                continue;
            printf("%-22s", row->name);
            for (int t = 0; t < FX_DTYPE_COUNT; t++) {
                ok[t] = supported(o, row, (fx_dtype)t, why[t], sizeof why[t]);
                printf("%6s", ok[t] ? "yes" : row->types & 1u << t ? "MISS" : "-");
            }
            printf("\n");
            for (int t = 0; t < FX_DTYPE_COUNT; t++)
                if (!ok[t] && (o->verbose || row->types & 1u << t))
                    printf("    %s: %s\n", cf_type_names[t], why[t]);
        }
    return 0;
}
