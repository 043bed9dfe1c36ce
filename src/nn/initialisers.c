/* initialisers.c: initial values of parameters: Flux's formulas over the thread's random stream.
 *
 * A row of the table is an initialiser with the function that computes it from options. The public
 * function takes sizes only and uses the default options; fx_init finds the row by the address of
 * the public function. All return Float32. All but orthogonal, sparse and identity are lazy: their
 * values are computed when they are needed. The fans are Flux's nfan. The truncated normal
 * inverts the distribution function, as Flux does, so it needs no rejection and every element
 * depends on one random number. The inverse error function is M. Giles' polynomial (GPU Computing
 * Gems, 2012), relative error below 1e-6; its tail branch is computed only for bounds that reach
 * it. Sources: Glorot, Bengio, 2010; He et al., 2015; LeCun et al., 1998.
 */
#include "error.h"
#include "memory.h"
#include "nn_layer.h"
#include "option_struct.h"
#include "random.h"

#include <cflux/init.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double SQRT2 = 1.4142135623730951;

/* ---- options --------------------------------------------------------------------------------- */

static double or_else(double given, double otherwise)
{
    return isnan(given) ? otherwise : given;
}

static int64_t product(const fx_init_args *a, int64_t from, int64_t to)
{
    int64_t n = 1;
    for (int64_t i = from; i < to; i++)
        n *= a->sizes.v[i];
    return n;
}

static void fans_of(const fx_init_args *a, double *out_in, double *out_out)
{
    fx_nfan((int)a->sizes.n, a->sizes.v, out_in, out_out);
}

void fx_nfan(int ndims, const int64_t *sizes, double *out_in, double *out_out)
{
    double kernel = 1;
    *out_in = *out_out = (double)NAN;
    if (fxi_check_list("nfan", "sizes", ndims, sizes) != FX_OK)
        return;
    for (int i = 0; i < ndims - 2; i++)
        kernel *= (double)sizes[i];
    *out_in = ndims < 2 ? 1 : kernel * (double)sizes[ndims - (ndims == 2 ? 1 : 2)];
    *out_out = ndims < 1 ? 1 : kernel * (double)sizes[ndims - (ndims == 2 ? 2 : 1)];
}

/* ---- uniform and normal ---------------------------------------------------------------------- */

static fx_array *random_uniform(const fx_init_args *a)
{
    return fxi_rand(FX_DTYPE_F32, (int)a->sizes.n, a->sizes.v);
}
static fx_array *random_normal(const fx_init_args *a)
{
    return fxi_randn(FX_DTYPE_F32, (int)a->sizes.n, a->sizes.v);
}

/* U(−bound, bound). */
static fx_array *uniform(const fx_init_args *a, double bound)
{
    FXI_SCOPE;
    return fx_keep(fx_mul(fx_sub(random_uniform(a), 0.5), 2 * bound));
}

static fx_array *normal(const fx_init_args *a, double deviation)
{
    FXI_SCOPE;
    return fx_keep(fx_mul(random_normal(a), deviation));
}

static fx_array *glorot_uniform(const fx_init_args *a)
{
    double in, out;
    fans_of(a, &in, &out);
    return uniform(a, or_else(a->gain, 1) * sqrt(6 / (in + out)));
}
static fx_array *glorot_normal(const fx_init_args *a)
{
    double in, out;
    fans_of(a, &in, &out);
    return normal(a, or_else(a->gain, 1) * sqrt(2 / (in + out)));
}
/* The default gain is √2, for layers with relu. */
static fx_array *kaiming_uniform(const fx_init_args *a)
{
    double in, out;
    fans_of(a, &in, &out);
    return uniform(a, or_else(a->gain, SQRT2) * sqrt(3 / in));
}
static fx_array *kaiming_normal(const fx_init_args *a)
{
    double in, out;
    fans_of(a, &in, &out);
    return normal(a, or_else(a->gain, SQRT2) / sqrt(in));
}

/* ---- the truncated normal -------------------------------------------------------------------- */

enum { GILES = 9 };
static fx_array *polynomial(const double c[GILES], fx_array *w)
{
    fx_array *p = fx_add(fx_mul(w, c[0]), c[1]);
    for (int i = 2; i < GILES; i++)
        p = fx_add(fx_mul(p, w), c[i]);
    return p;
}

/* erf⁻¹(t); `tail`: also for t² ≥ 0.993. Two polynomials in w = −log(1 − t²) (Giles, "Approximating
 * the erfinv function", 2012, single precision). */
static fx_array *erf_inverse(fx_array *t, bool tail)
{
    static const double centre[GILES] = {2.81022636e-08,  3.43273939e-07, -3.5233877e-06,
                                         -4.39150654e-06, 0.00021858087,  -0.00125372503,
                                         -0.00417768164,  0.246640727,    1.50140941};
    static const double outer[GILES] = {-0.000200214257, 0.000100950558, 0.00134934322,
                                        -0.00367342844,  0.00573950773,  -0.0076224613,
                                        0.00943887047,   1.00167406,     2.83297682};
    fx_array *w = fx_neg(fx_log1p(fx_neg(fx_square(t))));
    fx_array *p = polynomial(centre, fx_sub(w, 2.5));
    if (tail)
        p = fx_where(fx_lt(w, 5), p, polynomial(outer, fx_sub(fx_sqrt(w), 3)));
    return fx_mul(p, t);
}

/* A normal distribution between lo and hi: the inverse distribution function of a uniform number
 * between its values at lo and hi. No number is rejected and drawn again, so the count of numbers
 * is fixed. */
static fx_array *between(const fx_init_args *a, double mean, double std, double lo, double hi)
{
    const double from = erf((lo - mean) / (std * SQRT2)), to = erf((hi - mean) / (std * SQRT2));
    const double most = 1 - 0x1p-24; /* erf⁻¹(1) is infinite */
    const bool tail = fabs(from) > 0.99 || fabs(to) > 0.99;
    if (!(std > 0) || !(lo <= hi))
        return fx_error_array(fx_fail(FX_STATUS_ARGUMENT, "truncated_normal",
                                      "needs std > 0 and lo ≤ hi, got std = %g, lo = %g, hi = %g",
                                      std, lo, hi));
    FXI_SCOPE;
    /* the random number is centred first, so that its rounding is the same at both ends */
    fx_array *t = fx_mul(fx_sub(random_uniform(a), 0.5), to - from);
    if (from + to != 0)
        t = fx_add(t, (from + to) / 2);
    if (tail)
        t = fx_clamp(t, -most, most);
    fx_array *x = fx_mul(erf_inverse(t, tail), std * SQRT2);
    return fx_keep(fx_clamp(mean != 0 ? fx_add(x, mean) : x, lo, hi));
}

static fx_array *truncated_normal(const fx_init_args *a)
{
    return between(a, or_else(a->mean, 0), or_else(a->std, 1), or_else(a->lo, -2),
                   or_else(a->hi, 2));
}
/* Keeps the variance of a sum of `in` terms at 1, which SELU networks need (LeCun et al., 1998;
 * Klambauer et al., 2017). As in Flux, the bounds are those of truncated_normal, ±2, whatever the
 * deviation: bounds of two deviations would make the variance 0.77. */
static fx_array *lecun_normal(const fx_init_args *a)
{
    double in, out;
    fans_of(a, &in, &out);
    const double std = or_else(a->gain, 1) * sqrt(1 / in);
    return between(a, 0, std, -2, 2);
}

/* ---- constants ------------------------------------------------------------------------------- */

static fx_array *zeros(const fx_init_args *a)
{
    return fxi_full(FX_DTYPE_F32, 0, (int)a->sizes.n, a->sizes.v);
}
static fx_array *ones(const fx_init_args *a)
{
    return fxi_full(FX_DTYPE_F32, 1, (int)a->sizes.n, a->sizes.v);
}

/* ---- structured matrices --------------------------------------------------------------------- */

static fx_array *no_memory(const char *op)
{
    return fx_error_array(fx_fail(FX_STATUS_MEMORY, op, "out of memory"));
}

/* FX_OK if the sizes and their product are valid. */
static fx_status check_sizes(const fx_init_args *a)
{
    FXI_SCOPE;
    return fx_array_status(zeros(a));
}

/* The array of n numbers in double as Float32 of these sizes; frees the numbers. */
static fx_array *as_array(const fx_init_args *a, double *x, int64_t n)
{
    FXI_SCOPE;
    fx_array *y = fx_cast(fx_from(FX_DTYPE_F64, x, n), FX_DTYPE_F32);
    fxi_free(x);
    return fx_keep(fxi_reshape(y, (int)a->sizes.n, a->sizes.v));
}

/* Numbers of the distribution of `draw`, read to the host. NULL without memory or on failure. */
static double *drawn(fx_array *(*draw)(const fx_init_args *a), const fx_init_args *a, int64_t n)
{
    FXI_SCOPE;
    double *x = fxi_malloc((size_t)(n + 1) * sizeof *x);
    if (x && fx_read_as(draw(a), FX_DTYPE_F64, x, n) == FX_OK)
        return x;
    fxi_free(x);
    return NULL;
}

static double dot(const double *x, const double *y, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * y[i];
    return sum;
}

/* Makes the columns of a tall matrix orthonormal in order (Gram–Schmidt, twice for accuracy): Q of
 * the decomposition whose R has a positive diagonal, which is unique. */
static void make_orthonormal(double *x, int64_t rows, int64_t columns)
{
    for (int64_t j = 0; j < columns; j++) {
        double *c = x + j * rows;
        for (int64_t k = 0; k < 2 * j; k++) {
            const double *before = x + k % j * rows, part = dot(before, c, rows);
            for (int64_t i = 0; i < rows; i++)
                c[i] -= part * before[i];
        }
        const double length = sqrt(dot(c, c, rows));
        for (int64_t i = 0; i < rows; i++)
            c[i] /= length;
    }
}

/* The Q of a random normal matrix: it preserves lengths, so signals neither vanish nor grow through
 * linear layers (Saxe et al., 2014). */
static fx_array *orthogonal(const fx_init_args *a)
{
    const fx_status status = check_sizes(a);
    if (status != FX_OK)
        return fx_error_array(status);
    const int64_t nd = a->sizes.n, n = product(a, 0, nd);
    if (nd < 1)
        return fx_error_array(fx_fail(FX_STATUS_SHAPE, "orthogonal",
                                      "the sizes are empty, expected at least one axis"));
    const int64_t columns = a->sizes.v[nd - 1], rows = product(a, 0, nd - 1);
    const int64_t tall = rows > columns ? rows : columns, thin = rows + columns - tall;
    double *x = drawn(random_normal, a, n), *y = x ? fxi_malloc((size_t)(n + 1) * sizeof *y) : NULL;
    if (!y) {
        fxi_free(x);
        return fx_error_status() != FX_OK ? fx_error_array(fx_error_status())
                                          : no_memory("orthogonal");
    }
    make_orthonormal(x, tall, thin);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            y[i + j * rows] =
                or_else(a->gain, 1) * (rows >= columns ? x[i + j * tall] : x[j + i * tall]);
    fxi_free(x);
    return as_array(a, y, n);
}

typedef struct keyed {
    double key;
    int64_t row;
} keyed;

static int by_key(const void *a, const void *b)
{
    const keyed *x = a, *y = b;
    return x->key < y->key ? -1 : x->key > y->key ? 1 : (x->row > y->row) - (x->row < y->row);
}

/* Sets the `zeros` elements of a column that have the smallest keys to 0. */
static void make_sparse(double *column, const double *keys, int64_t rows, int64_t zeros,
                        keyed *order)
{
    for (int64_t i = 0; i < rows; i++)
        order[i] = (keyed){keys[i], i};
    qsort(order, (size_t)rows, sizeof *order, by_key);
    for (int64_t i = 0; i < zeros && i < rows; i++)
        column[order[i].row] = 0;
}

static fx_array *sparse(const fx_init_args *a)
{
    static const char op[] = "sparse_init";
    if (a->sizes.n != 2)
        return fx_error_array(fx_fail(FX_STATUS_SHAPE, op,
                                      "Only 2-dimensional outputs are "
                                      "supported for sparse initialization."));
    if (!(a->sparsity >= 0 && a->sparsity <= 1))
        return fx_error_array(
            fx_fail(FX_STATUS_ARGUMENT, op,
                    "sparsity is %g, expected 0 to 1, as in fx_init(fx_sparse_init, sizes, "
                    ".sparsity = 0.1)",
                    a->sparsity));
    const fx_status status = check_sizes(a);
    if (status != FX_OK)
        return fx_error_array(status);
    const int64_t rows = a->sizes.v[0], columns = a->sizes.v[1], n = rows * columns;
    const int64_t zeros = (int64_t)ceil(a->sparsity * (double)rows);
    double *x = drawn(random_normal, a, n), *keys = x ? drawn(random_uniform, a, n) : NULL;
    keyed *order = keys ? fxi_malloc((size_t)(rows + 1) * sizeof *order) : NULL;
    for (int64_t i = 0; order && i < n; i++)
        x[i] *= or_else(a->std, 0.01);
    for (int64_t j = 0; order && j < columns; j++)
        make_sparse(x + j * rows, keys + j * rows, rows, zeros, order);
    const bool made = order != NULL;
    fxi_free(order);
    fxi_free(keys);
    if (made)
        return as_array(a, x, n);
    fxi_free(x);
    return fx_error_status() != FX_OK ? fx_error_array(fx_error_status()) : no_memory(op);
}

/* The position of an element after the rotation by a->shift. */
static int64_t rotated(const fx_init_args *a, const int64_t *index)
{
    int64_t at = 0, stride = 1;
    for (int64_t i = 0; i < a->sizes.n; i++) {
        const int64_t size = a->sizes.v[i], shift = i < a->shift.n ? a->shift.v[i] : 0;
        at += stride * (((index[i] + shift % size) % size + size) % size);
        stride *= size;
    }
    return at;
}

static fx_array *identity(const fx_init_args *a)
{
    const fx_status status = check_sizes(a);
    if (status != FX_OK)
        return fx_error_array(status);
    const int64_t nd = a->sizes.n, n = product(a, 0, nd);
    double *x = fxi_calloc((size_t)n + 1, sizeof *x);
    int64_t index[2 * FX_MAX_DIMS] = {0};
    if (!x)
        return no_memory("identity_init");
    for (int64_t i = 0; i + 2 < nd; i++)
        index[i] = (a->sizes.v[i] + 1) / 2 - 1; /* Julia's cld(d, 2) */
    for (int64_t i = 0; nd >= 2 && n > 0 && i < a->sizes.v[nd - 2] && i < a->sizes.v[nd - 1]; i++) {
        index[nd - 2] = index[nd - 1] = i;
        x[rotated(a, index)] = or_else(a->gain, 1);
    }
    return as_array(a, x, n);
}

/* ---- the table ------------------------------------------------------------------------------- */

/* INIT(public function, function of options, names of its options) */
#define INITS(INIT)                                                                                \
    INIT(glorot_uniform, glorot_uniform, "gain")                                                   \
    INIT(glorot_normal, glorot_normal, "gain")                                                     \
    INIT(kaiming_uniform, kaiming_uniform, "gain")                                                 \
    INIT(kaiming_normal, kaiming_normal, "gain")                                                   \
    INIT(lecun_normal, lecun_normal, "gain")                                                       \
    INIT(truncated_normal, truncated_normal, "mean std lo hi")                                     \
    INIT(orthogonal, orthogonal, "gain")                                                           \
    INIT(sparse_init, sparse, "sparsity std")                                                      \
    INIT(identity_init, identity, "gain shift")                                                    \
    INIT(rand_init, random_uniform, "")                                                            \
    INIT(randn_init, random_normal, "")                                                            \
    INIT(zeros_init, zeros, "")                                                                    \
    INIT(ones_init, ones, "")

static fx_array *with_defaults(fx_array *(*f)(const fx_init_args *a), int ndims,
                               const int64_t *sizes)
{
    FXI_DEFAULT_OPTIONS(fx_init_args, FXI_INIT_ARGS, a);
    if (ndims < 0 || ndims > FX_MAX_DIMS)
        return fx_error_array(fx_fail(FX_STATUS_ARGUMENT, "init",
                                      "an array has 0 to %d axes, got %d", FX_MAX_DIMS, ndims));
    const fx_status listed = fxi_check_list("init", "sizes", ndims, sizes);
    if (listed != FX_OK)
        return fx_error_array(listed);
    a.sizes.n = ndims;
    for (int i = 0; i < ndims; i++)
        a.sizes.v[i] = sizes[i];
    return f(&a);
}

#define PUBLIC(name, f, options)                                                                   \
    fx_array *fx_##name(int ndims, const int64_t *sizes)                                           \
    {                                                                                              \
        return with_defaults(f, ndims, sizes);                                                     \
    }
INITS(PUBLIC)

typedef struct row {
    fx_init_fn init;
    const char *name, *options;
    fx_array *(*f)(const fx_init_args *a);
} row;
#define ROW(name, f, options) {fx_##name, #name, options, f},
static const row rows[] = {INITS(ROW)};

static bool has_word(const char *words, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at = strstr(words, word); at; at = strstr(at + 1, word))
        if ((at == words || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0'))
            return true;
    return false;
}

/* The name of a given option that is not among `options`; NULL: none. */
static const char *lacking(const fx_init_args *a, const char *options)
{
    const struct {
        const char *name;
        bool given;
    } all[] = {{"gain", !isnan(a->gain)},
               {"mean", !isnan(a->mean)},
               {"std", !isnan(a->std)},
               {"lo", !isnan(a->lo)},
               {"hi", !isnan(a->hi)},
               {"shift", a->shift.n > 0},
               {"sparsity", !isnan(a->sparsity)}};
    for (int i = 0; i < FXI_COUNT(all); i++)
        if (all[i].given && !has_word(options, all[i].name))
            return all[i].name;
    return NULL;
}

static const row *row_of(fx_init_fn init)
{
    for (int i = 0; i < FXI_COUNT(rows); i++)
        if (rows[i].init == init)
            return &rows[i];
    return NULL;
}

static fx_status check(const fx_init_args *a, const row *r)
{
    const char *lacks = lacking(a, r ? r->options : "");
    if (!a->init)
        return fx_fail(FX_STATUS_ARGUMENT, "init", "the initialiser is NULL");
    if (a->sizes.n < 0 || a->sizes.n > FX_MAX_DIMS)
        return fx_fail(FX_STATUS_ARGUMENT, "init", "an array has 0 to %d axes, got %lld",
                       FX_MAX_DIMS, (long long)a->sizes.n);
    for (int64_t i = 0; i < a->sizes.n; i++)
        if (a->sizes.v[i] < 0)
            return fx_fail(FX_STATUS_ARGUMENT, "init", "a size is negative: %lld",
                           (long long)a->sizes.v[i]);
    return lacks ? fx_fail(FX_STATUS_ARGUMENT, "init", "%s has no option %s",
                           r ? r->name : "the initialiser", lacks)
                 : FX_OK;
}

fx_array *fxi_init(const fx_init_args *given)
{
    FXI_TAKE_OPTIONS(fx_init_args, FXI_INIT_ARGS, a, "init", given);
    const row *r = row_of(a.init);
    const fx_status status = a_ok ? check(&a, r) : FX_STATUS_ARGUMENT;
    if (status != FX_OK)
        return fx_error_array(status);
    const bool own = a.seed >= 0;
    const fxi_random_state before =
        own ? fxi_random_enter((uint64_t)a.seed) : (fxi_random_state){0};
    fx_array *x = r ? r->f(&a) : a.init((int)a.sizes.n, a.sizes.v);
    if (own)
        fxi_random_leave(before);
    return x;
}
