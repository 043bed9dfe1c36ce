/* conform_mixed_ops.c: the operations of random graphs of mixed types.
 *
 * All values are integers between −8 and 8, except directly after an operation, before they are
 * limited again. Every element type represents these numbers exactly, and every operation here is
 * exact on them, in any order of summation and however often a result is rounded on the way. So all
 * ways to compute a graph must agree in every bit, whatever is fused, and a value that was
 * overwritten, or read at a wrong address, is detected. If a conversion saturates, wraps or gets
 * NaN, its result is defined as well.
 */
#include "conform_mixed.h"

#include <math.h>
#include <string.h>

/* splitmix64 (Steele, Lea, Flood, 2014). */
static uint64_t next(cfm_graph *g)
{
    uint64_t z = g->state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

int cfm_below(cfm_graph *g, int n)
{
    return (int)((next(g) >> 11) % (uint64_t)n);
}

fx_array *cfm_pick(cfm_graph *g)
{
    /* Half of the time one of the four latest, so that graphs have chains and are not only wide. */
    const int recent = g->n > 4 && cfm_below(g, 2) ? 4 : g->n;
    const int k = g->n - 1 - cfm_below(g, recent);
    if (g->npicked < 8)
        g->picked[g->npicked++] = k;
    return g->node[k];
}

static bool is_bool(fx_array *x)
{
    return fx_eltype(x) == FX_DTYPE_BOOL;
}

fx_array *cfm_tame(fx_array *x)
{
    if (is_bool(x))
        return x;
    return fx_eltype(x) == FX_DTYPE_U8 ? fx_min(x, 8) : fx_clamp(x, -8, 8);
}

/* Limits x to integers between −most and most, so that sums of many of them, and products of
 * several, are exact in every type. */
static fx_array *tiny(fx_array *x, int most)
{
    if (is_bool(x))
        return x;
    return fx_eltype(x) == FX_DTYPE_U8 ? fx_min(x, most) : fx_clamp(x, -most, most);
}

/* Limits x so that sums of n elements are exact in every type. */
static fx_array *summable(fx_array *x, int64_t n)
{
    return n * 8 <= 240 ? x : tiny(x, (int)(240 / n));
}

fx_dtype cfm_type(cfm_graph *g)
{
    const fx_dtype t = (fx_dtype)cfm_below(g, FX_DTYPE_COUNT);
    if (!g->real)
        return t;
    return t == FX_DTYPE_F16 ? FX_DTYPE_F32 : t == FX_DTYPE_BF16 ? FX_DTYPE_F64 : t;
}

static int axis_of(cfm_graph *g, fx_array *x)
{
    return cfm_below(g, fx_ndims(x) ? fx_ndims(x) : 1);
}

/* ---- elementwise ----------------------------------------------------------------------------- */

static fx_array *unary(cfm_graph *g)
{
    fx_array *x = cfm_pick(g);
    const int which = cfm_below(g, 6);
    if (is_bool(x))
        return fx_not(x);
    switch (which) {
    case 0:
        return cfm_tame(fx_neg(x));
    case 1:
        return fx_abs(x);
    case 2:
        return fx_relu(x);
    case 3:
        return cfm_tame(fx_square(x));
    case 4:
        return fx_sign(x);
    default:
        return cfm_tame(fx_pow(x, 3));
    }
}

static fx_array *with_number(cfm_graph *g)
{
    fx_array *x = cfm_pick(g);
    switch (cfm_below(g, 5)) {
    case 0:
        return cfm_tame(fx_mul(x, 2));
    case 1:
        return cfm_tame(fx_sub(3, x));
    case 2:
        return cfm_tame(fx_add(x, 1));
    case 3:
        return cfm_tame(fx_floor(fx_mul(x, 0.5)));
    default:
        return fx_gt(x, 1);
    }
}

static fx_array *binary(cfm_graph *g)
{
    fx_array *a = cfm_pick(g), *b = cfm_pick(g);
    if (!cf_broadcasts(a, b))
        b = fx_maximum(b);
    switch (cfm_below(g, 9)) {
    case 0:
    case 1:
        return cfm_tame(fx_add(a, b));
    case 2:
        return cfm_tame(fx_sub(a, b));
    case 3:
        return cfm_tame(fx_mul(a, b));
    case 4:
        return fx_max(a, b);
    case 5:
        return fx_min(a, b);
    case 6:
        return fx_where(fx_gt(a, b), a, b);
    case 7:
        return is_bool(a) && is_bool(b) ? fx_xor(a, b) : fx_le(a, b);
    default:
        return fx_ne(a, b);
    }
}

static fx_array *converted(cfm_graph *g)
{
    return cfm_tame(fx_cast(cfm_pick(g), cfm_type(g)));
}

/* Conversions beyond the range of the result saturate, and NaN becomes 0. */
static fx_array *converted_extreme(cfm_graph *g)
{
    static const fx_dtype integers[] = {FX_DTYPE_I32, FX_DTYPE_I64, FX_DTYPE_U8};
    fx_array *x = fx_cast(cfm_pick(g), cfm_below(g, 2) ? FX_DTYPE_F32 : FX_DTYPE_F64);
    x = cfm_below(g, 2) ? fx_mul(x, 1e9) : fx_where(fx_eq(x, 1), NAN, x);
    return cfm_tame(fx_cast(x, integers[cfm_below(g, 3)]));
}

/* A conversion of a part: a step that works in place must not write its result over the whole. */
static fx_array *converted_part(cfm_graph *g)
{
    fx_array *x = cfm_pick(g);
    if (fx_ndims(x) == 0)
        return NULL;
    const int axis = fx_ndims(x) - 1; /* the elements of a prefix are contiguous */
    const int64_t n = fx_size(x, axis);
    const int64_t from = cfm_below(g, 3) ? 0 : n / 2, to = from + (n - from + 1) / 2;
    return cfm_tame(fx_cast(fx_slice(x, axis, from, to), cfm_type(g)));
}

/* ---- views ----------------------------------------------------------------------------------- */

static fx_array *spread(cfm_graph *g, fx_array *x)
{
    int64_t sizes[FX_MAX_DIMS];
    const int n = fx_ndims(x), at = cfm_below(g, n + 1);
    for (int k = 0; k <= n; k++)
        sizes[k] = k < at ? fx_size(x, k) : k == at ? 2 + cfm_below(g, 2) : fx_size(x, k - 1);
    return fxi_expand(fx_unsqueeze(x, at), n + 1, sizes);
}

static fx_array *reshaped(cfm_graph *g, fx_array *x)
{
    const int64_t n = fx_length(x), r = 1 + cfm_below(g, 6);
    if (n % r != 0)
        return fx_vec(x);
    return n % (2 * r) == 0 && cfm_below(g, 2) ? fx_reshape(x, r, 2, -1) : fx_reshape(x, r, -1);
}

static fx_array *view(cfm_graph *g)
{
    fx_array *x = cfm_pick(g);
    const int axis = axis_of(g, x), which = cfm_below(g, 9);
    const int64_t n = fx_size(x, axis);
    if (fx_ndims(x) == 0)
        return fx_reshape(x, 1, 1);
    switch (which) {
    case 0:
        return fx_ndims(x) >= 2 ? fx_transpose(x) : fx_unsqueeze(x, 0);
    case 1:
        return reshaped(g, x);
    case 2:
        return fx_slice(x, axis, n / 3, n);
    case 3:
        return fx_slice(x, axis, 0, (n + 1) / 2);
    case 4:
        return fx_slice_step(x, axis, n - 1, -1, n);
    case 5:
        return fx_slice_step(x, axis, 0, 2, (n + 1) / 2);
    case 6:
        return fx_ndims(x) == 3 ? fx_permute(x, 2, 0, 1) : fx_unsqueeze(x, 1);
    case 7:
        return spread(g, fx_slice(x, axis, 0, (n + 1) / 2));
    default:
        return spread(g, x);
    }
}

/* ---- reductions, rows, products -------------------------------------------------------------- */

static fx_array *sum_along(fx_array *x, int axis)
{
    return fx_sum(summable(x, fx_size(x, axis)), .dims = FX_AXES(axis));
}
static fx_array *most_along(fx_array *x, int axis)
{
    return fx_maximum(x, .dims = FX_AXES(axis));
}

static fx_array *reduction(cfm_graph *g)
{
    fx_array *x = cfm_pick(g);
    const int which = cfm_below(g, 8);
    if (fx_ndims(x) == 0)
        return NULL;
    const int axis = axis_of(g, x);
    const int64_t n = fx_size(x, axis);
    switch (which) {
    case 0:
        return cfm_tame(sum_along(x, axis));
    case 1:
        return most_along(x, axis);
    case 2:
        return fx_minimum(x, .dims = FX_AXES(axis), .drop = true);
    case 3:
        return cfm_tame(fx_cumsum(summable(x, n), axis));
    case 4:
        return cfm_tame(fx_cumsum_reverse(summable(x, n), axis));
    case 5:
        return cfm_tame(fx_argmax(x, .dims = FX_AXES(axis)));
    case 6:
        return fx_length(x) <= 240 ? cfm_tame(fx_sum(summable(x, fx_length(x)))) : fx_maximum(x);
    default: /* an exact mean, if the number of elements is a power of two */
        return n <= 16 && (n & (n - 1)) == 0 ? fx_floor(fx_mean(x, .dims = FX_AXES(axis))) : NULL;
    }
}

/* A value of each slice, combined with the slice. */
static fx_array *row_pattern(cfm_graph *g)
{
    fx_array *x = cfm_pick(g);
    const int which = cfm_below(g, 6);
    if (fx_ndims(x) == 0)
        return NULL;
    const int axis = cfm_below(g, 3) ? 0 : axis_of(g, x);
    switch (which) {
    case 0:
        return fx_eq(x, most_along(x, axis));
    case 1:
        return cfm_tame(fx_sub(most_along(x, axis), x));
    case 2:
        return cfm_tame(fx_mul(x, sum_along(tiny(x, 1), axis)));
    case 3:
        return cfm_tame(fx_add(fx_cast(x, cfm_type(g)), sum_along(x, axis)));
    case 4:
        return fx_where(fx_lt(x, sum_along(tiny(x, 2), axis)), x, most_along(x, axis));
    default:
        return cfm_tame(sum_along(fx_mul(tiny(x, 2), fx_ne(x, most_along(x, axis))), axis));
    }
}

static fx_array *product(cfm_graph *g)
{
    fx_array *a = cfm_pick(g), *b = cfm_pick(g);
    const int finish = cfm_below(g, 3);
    if (fx_ndims(a) != 2 || fx_ndims(b) != 2 || is_bool(a) || is_bool(b))
        return NULL;
    if (fx_size(a, 1) != fx_size(b, 0))
        b = fx_size(a, 1) == fx_size(b, 1) ? fx_transpose(b) : fx_transpose(a);
    b = fx_cast(b, fx_eltype(a));
    const int most = fx_size(a, 1) <= 12 ? 4 : 1;
    fx_array *y = fx_matmul(tiny(a, most), tiny(b, most));
    if (finish == 0) /* a bias and relu: an epilogue */
        y = fx_relu(fx_add(y, fx_slice(y, 1, 0, 1)));
    if (finish == 1)
        y = fx_relu(fx_add(y, fx_slice(tiny(a, 4), 1, 0, 1)));
    return cfm_tame(y);
}

/* ---- joins and indices ----------------------------------------------------------------------- */

static fx_array *joined(cfm_graph *g)
{
    fx_array *x = cfm_pick(g);
    const int which = cfm_below(g, 5);
    if (fx_ndims(x) == 0)
        return fx_stack(0, x, x);
    const int axis = axis_of(g, x);
    switch (which) {
    case 0:
        return fx_concat(axis, x, fx_cast(fx_relu(fx_cast(x, FX_DTYPE_I32)), fx_eltype(x)));
    case 1:
        return fx_pad(x, axis, 1, 2, 1);
    case 2:
        return fx_repeat_inner(x, axis, 2);
    case 3:
        return fx_ndims(x) == 2 ? fx_tril(x, 0) : NULL;
    default:
        return fx_ndims(x) < 3 ? fx_stack(axis, x, x) : NULL;
    }
}

/* Constant indices, or indices computed from any value of the graph. */
static fx_array *indices(cfm_graph *g, int64_t n)
{
    const int64_t count = 3 + cfm_below(g, 3);
    const fx_dtype t = cfm_below(g, 2) ? FX_DTYPE_I64 : FX_DTYPE_I32;
    fx_array *x = cfm_pick(g);
    int64_t at[8];
    for (int k = 0; k < count; k++)
        at[k] = cfm_below(g, (int)n);
    if (cfm_below(g, 2) && fx_length(x) >= count)
        return fx_clamp(fx_cast(fx_slice(fx_vec(x), 0, 0, count), t), 0, (int)n - 1);
    return fx_array_to(g->device, fx_cast(fxi_from(FX_DTYPE_I64, at, 1, &count), t));
}

static fx_array *indexed(cfm_graph *g)
{
    fx_array *x = cfm_pick(g);
    if (fx_ndims(x) == 0 || fx_length(x) == 0)
        return NULL;
    const int axis = axis_of(g, x);
    const int64_t n = fx_size(x, axis);
    fx_array *at = indices(g, n), *y = fx_gather(x, at, axis);
    if (is_bool(x) || cfm_below(g, 3))
        return y;
    return cfm_tame(fx_scatter(cfm_below(g, 2) ? FX_REDUCE_SUM : FX_REDUCE_MAX, y, at, axis, n));
}

/* ---- growing --------------------------------------------------------------------------------- */

/* An operation that occurs several times is chosen more often. */
static const struct {
    const char *name;
    fx_array *(*make)(cfm_graph *g);
} operations[] = {
    {"unary", unary},
    {"with a number", with_number},
    {"binary", binary},
    {"binary", binary},
    {"binary", binary},
    {"converted", converted},
    {"converted", converted},
    {"converted extreme", converted_extreme},
    {"converted part", converted_part},
    {"converted part", converted_part},
    {"view", view},
    {"view", view},
    {"view", view},
    {"reduction", reduction},
    {"reduction", reduction},
    {"row pattern", row_pattern},
    {"row pattern", row_pattern},
    {"product", product},
    {"joined", joined},
    {"indexed", indexed},
    {"indexed", indexed},
};
enum { OPERATIONS = sizeof operations / sizeof *operations };

static void list_node(const cfm_graph *g, const char *name)
{
    const fx_array *x = g->node[g->n - 1];
    printf("  %d: %s of", g->n - 1, name);
    for (int k = 0; k < g->npicked; k++)
        printf(" %d", g->picked[k]);
    printf(" -> %s", fx_dtype_name(fx_eltype(x)));
    for (int k = 0; k < fx_ndims(x); k++)
        printf(k ? "x%lld" : " %lld", (long long)fx_size(x, k));
    printf("\n");
}

void cfm_leaf(cfm_graph *g, int k, fx_dtype dtype)
{
    static const int64_t sizes[2][CFM_LEAVES][2] = {
        {{4, 6}, {6, 4}, {6, 1}, {1, 4}, {3, 4}},
        {{48, 12}, {12, 48}, {48, 1}, {1, 12}, {24, 24}},
    };
    double v[24 * 24];
    const int64_t *size = sizes[g->large][k], n = size[0] * size[1];
    for (int i = 0; i < n; i++)
        v[i] = cfm_below(g, 15) - 7;
    fx_array *x = cfm_tame(fx_cast(fxi_from(FX_DTYPE_F64, v, 2, size), dtype));
    fx_eval(x);
    g->node[k] = fx_array_to(g->device, x);
    fx_eval(g->node[k]);
    g->npicked = 0;
    g->n = k + 1;
    if (g->list)
        list_node(g, "leaf");
}

static bool fits(const cfm_graph *g, fx_array *y)
{
    for (int k = 0; k < fx_ndims(y); k++)
        if (fx_size(y, k) > (g->large ? 60 : 12))
            return false;
    return fx_length(y) <= (g->large ? 2400 : 96) && fx_ndims(y) <= 4;
}

bool cfm_grow(cfm_graph *g, int target)
{
    for (int tries = 0; g->n < target && tries < 8 * CFM_MOST; tries++) {
        const int which = cfm_below(g, OPERATIONS), read = cfm_below(g, 12);
        g->npicked = 0;
        fx_array *y = operations[which].make(g);
        if (!y || (!fx_is_error(y) && !fits(g, y)))
            continue;
        if (fx_is_error(y))
            return false;
        g->node[g->n++] = y;
        if (g->list)
            list_node(g, operations[which].name);
        if (g->stepwise && fx_eval(y) != FX_OK)
            return false;
        if (read == 0) /* a read stores a value and changes no result */
            (void)fx_item(fx_maximum(fx_cast(g->node[cfm_below(g, g->n)], FX_DTYPE_F64)));
        if (read == 1)
            fx_eval(g->node[cfm_below(g, g->n)]);
    }
    return fx_error_status() == FX_OK;
}
