/* conform_shape.c: rows of reductions, running sums, movement, joining and indexing.
 *
 * Parameters of reductions: axis mask, drop, corrected. Movement must be exact in every element
 * type; strided variants take views of views, to find wrong offsets.
 */
#include "conform.h"

/* A mask of axes; 0: all of them. */
static fx_axes axes_of(int64_t mask)
{
    return mask ? FXI_AXES((unsigned)mask) : FX_ALL;
}

#define REDUCTION(name)                                                                            \
    static fx_array *b_##name(fx_array *const *x, const int64_t *p)                                \
    {                                                                                              \
        return fx_##name(x[0], .dims = axes_of(p[0]), .drop = p[1] != 0);                          \
    }
#define VARIANCE(name)                                                                             \
    static fx_array *b_##name(fx_array *const *x, const int64_t *p)                                \
    {                                                                                              \
        return fx_##name(x[0], .dims = axes_of(p[0]), .drop = p[1] != 0, .corrected = p[2] == 0);  \
    }
#define SOFTMAX(name)                                                                              \
    static fx_array *b_##name(fx_array *const *x, const int64_t *p)                                \
    {                                                                                              \
        return p[0] ? fx_##name(x[0], .dims = axes_of(p[0])) : fx_##name(x[0]);                    \
    }
REDUCTION(sum)
REDUCTION(prod)
REDUCTION(mean)
VARIANCE(var)
VARIANCE(std)
REDUCTION(maximum)
REDUCTION(minimum)
REDUCTION(any)
REDUCTION(all)
REDUCTION(norm)
SOFTMAX(softmax)
SOFTMAX(logsoftmax)
REDUCTION(logsumexp)
REDUCTION(argmax)
REDUCTION(argmin)

/* An expression of x[0] (and x[1], x[2]) and the parameters p. */
#define EXPR(name, value)                                                                          \
    static fx_array *b_##name(fx_array *const *x, const int64_t *p)                                \
    {                                                                                              \
        (void)p;                                                                                   \
        return value;                                                                              \
    }
/* clang-format off */
EXPR(mean_rest, fx_sub(fx_sub(x[0], fx_mean(x[0], .dims = axes_of(p[0]))),
                       fx_mean_rest(x[0], .dims = axes_of(p[0]))))
EXPR(cumsum, fx_cumsum(x[0], (int)p[0]))
EXPR(cumsum_reverse, fx_cumsum_reverse(x[0], (int)p[0]))
EXPR(reshape, fxi_reshape(x[0], (int)p[0], p + 1))
EXPR(permute, fxi_permute(x[0], (int)p[0], p + 1))
EXPR(expand, fxi_expand(x[0], (int)p[0], p + 1))
EXPR(transpose, fx_transpose(x[0]))
EXPR(flatten, fx_flatten(x[0]))
EXPR(vec, fx_vec(x[0]))
EXPR(unsqueeze, fx_unsqueeze(x[0], (int)p[0]))
EXPR(squeeze, fx_squeeze(x[0], FXI_AXES((unsigned)p[0])))
EXPR(slice, fx_slice(x[0], (int)p[0], p[1], p[2]))
EXPR(slice_step, fx_slice_step(x[0], (int)p[0], p[1], p[2], p[3]))
EXPR(flip, fx_flip(x[0], FXI_AXES((unsigned)p[0])))
EXPR(pad, fx_pad(x[0], (int)p[0], p[1], p[2], (double)p[3]))
EXPR(pad_reflect, fx_pad_reflect(x[0], (int)p[0], p[1], p[2]))
EXPR(pad_symmetric, fx_pad_symmetric(x[0], (int)p[0], p[1], p[2]))
EXPR(pad_repeat, fx_pad_repeat(x[0], (int)p[0], p[1], p[2]))
EXPR(pad_circular, fx_pad_circular(x[0], (int)p[0], p[1], p[2]))
EXPR(repeat, fxi_repeat(x[0], (int)p[0], p + 1))
EXPR(repeat_inner, fx_repeat_inner(x[0], (int)p[0], p[1]))
EXPR(concat, fxi_concat((int)p[0], 3, x))
EXPR(stack, fxi_stack((int)p[0], 3, x))
EXPR(glu, fx_glu(x[0], (int)p[0]))
EXPR(tril, fx_tril(x[0], p[0]))
EXPR(triu, fx_triu(x[0], p[0]))
/* Views of views, which the planner merges into one set of strides. */
EXPR(view_chain,
     fx_slice_step(fx_transpose(fx_flip(fx_slice(x[0], 1, 1, 6), FX_AXES(0))), 0, 3, -2, 2))
/* A reshape that no strides can express, and one after it. */
EXPR(view_copy, fx_vec(fx_transpose(fx_reshape(fx_transpose(x[0]), 5, 7))))
EXPR(gather, fx_gather(x[0], x[1], (int)p[1]))
EXPR(gather_elements, fx_gather_elements(x[0], x[1], (int)p[1]))
static const fx_reduce scatter_kinds[] = {FX_REDUCE_SUM, FX_REDUCE_MAX, FX_REDUCE_MIN,
                                          FX_REDUCE_PROD, FX_REDUCE_MEAN};
EXPR(scatter, fx_scatter(scatter_kinds[p[2]], x[0], x[1], (int)p[1], p[0]))
/* Rows that a view repeats, so that their elements have the strides of the indices. */
EXPR(scatter_repeated,
     fx_scatter(scatter_kinds[p[2]], fx_expand(x[0], 16, fx_size(x[0], 1)), x[1], (int)p[1], p[0]))
EXPR(scatter_bounded, fx_clamp(b_scatter(x, p), -100, 100))
EXPR(maximum_squared, fx_square(fx_maximum(x[0], .dims = axes_of(p[0]))))
EXPR(gather_squared, fx_square(fx_gather(x[0], x[1], (int)p[1])))
EXPR(scatter_elements, fx_scatter_elements(x[0], x[1], x[2], (int)p[1]))
/* clang-format on */

#define MATRIX "1024x1024"
static const char *const reductions[] = {
    "all=5x7:0",       "axis0=5x7:1",      "axis1=5x7:2",           "both=5x7:3",
    "drop0=3x4x5:1,1", "drop02=3x4x5:5,1", "axis1of3=3x4x5:2",      "vector=17:1",
    "vectorall=17:0",  "one=1:0",          "empty0=0x3:1",          "empty1=0x3:2",
    "emptyall=0:0",    "scalar=s:0",       "+long=1031:0",          "+tall=257x3:1",
    "+wide=3x257:2",   "+four=2x3x4x5:10", "+fourdrop=2x3x4x5:6,1", NULL};
/* Short ones, because long products leave the range of Float32. */
static const char *const products[] = {"all=5x7:0",       "axis0=5x7:1",      "axis1=5x7:2",
                                       "drop0=3x4x5:1,1", "vector=17:1",      "one=1:0",
                                       "empty0=0x3:1",    "empty1=0x3:2",     "emptyall=0:0",
                                       "scalar=s:0",      "+four=2x3x4x5:10", NULL};
/* max and min of nothing are errors; so is an argmax over two axes. */
static const char *const extrema[] = {"all=5x7:0",
                                      "axis0=5x7:1",
                                      "axis1=5x7:2",
                                      "drop1=3x4x5:2,1",
                                      "axis2=3x4x5:4",
                                      "vector=17:1",
                                      "one=1:0",
                                      "scalar=s:0",
                                      "empty1=0x3:2",
                                      "+long=1031:0",
                                      "+tall=257x3:1",
                                      "+wide=3x257:2",
                                      "+drop0=2x3x4x5:1,1",
                                      NULL};
static const char *const variances[] = {"all=5x7:0",
                                        "axis0=5x7:1",
                                        "biased=5x7:1,0,1",
                                        "axis1=5x7:2",
                                        "drop=3x4x5:3,1",
                                        "vector=17:0",
                                        "empty1=0x3:2",
                                        "+long=1031:0",
                                        "+biasedall=257x3:0,0,1",
                                        NULL};
static const char *const softmaxes[] = {
    "default=5x7:0", "axis1=5x7:2",  "both=3x4x5:3",  "vector=17:1",   "one=1x3:1",
    "empty1=0x3:2",  "empty0=5x0:1", "+tall=257x3:1", "+wide=3x257:2", NULL};
static const char *const scans[] = {
    "axis0=5x7:0", "axis1=5x7:1",  "axis1of3=3x4x5:1", "vector=17:0",    "one=1:0",
    "empty=0x3:0", "empty1=0x3:1", "+long=257:0",      "+axis2=3x4x5:2", NULL};
static const char *const reshapes[] = {"a=5x7:2,7,5",
                                       "vec=5x7:1,35",
                                       "infer=3x4x5:2,-1,5",
                                       "scalar=1x1:0",
                                       "same=17:1,17",
                                       "split=12:3,2,3,2",
                                       "empty=0x3:2,3,0",
                                       "+five=2x3x4:5,1,4,1,3,2",
                                       NULL};
static const char *const permutes[] = {
    "t=5x7:2,1,0", "cab=3x4x5:3,2,0,1", "bca=3x4x5:3,1,2,0",       "same=3x4x5:3,0,1,2",
    "one=17:1,0",  "empty=0x3:2,1,0",   "+four=2x3x4x5:4,3,1,0,2", "+five=2x1x3x2x2:5,4,2,0,3,1",
    NULL};
static const char *const expands[] = {
    "rows=5:2,5,7",   "columns=1x7:2,5,7", "inner=3x1x5:3,3,4,5", "scalar=s:2,3,4",
    "same=5x7:2,5,7", "zero=1x3:2,0,3",    "+many=1x1:4,2,3,4,5", NULL};
static const char *const matrices[] = {"5x7", "1x6", "0x5", "3x4x5", "+17x17", "+2x3x4x5", NULL};
static const char *const flattened[] = {"5x7", "3x4x5", "0x5", "2x3x4x5", "+1x1x9", NULL};
static const char *const any_rank[] = {"5x7", "17", "s", "0x5", "3x4x5", "+2x3x4x5", NULL};
static const char *const new_axes[] = {"front=5x7:0", "middle=5x7:1", "back=5x7:2",
                                       "scalar=s:0",  "empty=0x3:1",  NULL};
static const char *const dropped[] = {"front=1x5x7:1", "middle=5x1x7:2", "two=1x5x1:5",
                                      "all=1x1:3",     "empty=0x1x3:2",  NULL};
static const char *const slices[] = {
    "rows=5x7:0,1,4",      "columns=5x7:1,2,7",   "none=5x7:0,2,2",
    "all=17:0,0,17",       "last=3x4x5:2,4,5",    "empty=0x3:1,1,3",
    "+middle=3x4x5:1,1,3", "+long=257:0,100,131", NULL};
static const char *const steps[] = {
    "two=5x7:1,0,2,4", "back=5x7:0,4,-1,5",    "backtwo=17:0,15,-3,5",  "none=5x7:0,0,1,0",
    "one=17:0,5,7,1",  "axis2=3x4x5:2,3,-2,2", "+long=257:0,256,-5,50", NULL};
static const char *const flips[] = {"rows=5x7:1",  "columns=5x7:2", "both=3x4x5:5",
                                    "vector=17:1", "empty=0x3:1",   NULL};
static const char *const pads[] = {
    "rows=5x7:0,1,2,0",    "value=5x7:1,2,0,3",   "none=17:0,0,0,1",
    "crop=5x7:1,-1,-2,0",  "mixed=17:0,-3,4,1",   "empty=0x3:0,2,1,1",
    "axis1=3x4x5:1,1,1,0", "+long=257:0,31,17,0", NULL};
static const char *const edges[] = {"rows=5x7:0,1,2",
                                    "columns=5x7:1,3,0",
                                    "vector=17:0,4,5",
                                    "axis1=3x4x5:1,2,1",
                                    "none=5x7:0,0,0",
                                    "+more=5x7:1,4,4",
                                    NULL};
static const char *const repeats[] = {
    "rows=5x7:1,3",   "both=5x7:2,2,3", "vector=17:1,2",        "more=5:2,2,3",
    "zero=5x7:2,1,0", "empty=0x3:1,2",  "+three=2x3x4:3,2,1,2", NULL};
static const char *const inner_repeats[] = {"rows=5x7:0,3",  "columns=5x7:1,2", "vector=17:0,2",
                                            "empty=0x3:0,2", "zero=5:0,0",      NULL};
static const char *const joins[] = {"rows=2x7 3x7 1x7:0",  "columns=5x1 5x4 5x2:1",
                                    "vectors=3 5 1:0",     "axis2=2x3x1 2x3x2 2x3x4:2",
                                    "empty=0x3 2x3 0x3:0", "none=0 0 0:0",
                                    "+long=100 57 100:0",  NULL};
static const char *const stacks[] = {"new0=5x7 5x7 5x7:0",  "new1=5x7 5x7 5x7:1",
                                     "new2=5x7 5x7 5x7:2",  "scalars=s s s:0",
                                     "empty=0x3 0x3 0x3:1", NULL};
static const char *const halves[] = {"axis0=6x5:0", "axis1=3x4x2:1", "vector=14:0", NULL};
static const char *const triangles[] = {
    "main=5x7:0",    "above=5x7:2",  "below=7x5:-2", "square=6x6:1",
    "batch=3x4x5:0", "beyond=3x3:9", "empty=0x3:0",  NULL};
static const char *const chains[] = {"5x7", "+9x8", NULL};
static const char *const copies[] = {"5x7", NULL};
/* Parameters: size along the axis, axis. */
static const char *const gathers[] = {
    "columns=5x7 4:7,1",  "rows=5x7 4:5,0",       "vector=17 9:17,0",   "matrix=5x7 2x3:7,1",
    "scalar=5x7 s:7,1",   "none=5x7 0:7,1",       "middle=3x4x5 6:4,1", "empty=0x5 3:5,1",
    "deep=3x4x5 2x2:3,0", "vectors=32x7x2 5:7,1", "+many=7x5 257:5,1",  NULL};
static const char *const element_gathers[] = {"rows=5x7 3x7:5,0",
                                              "columns=5x7 5x2:7,1",
                                              "vector=17 9:17,0",
                                              "axis1=3x4x5 3x2x5:4,1",
                                              "none=5x7 0x7:5,0",
                                              "+long=2200x2 2100x2:2200,0",
                                              NULL};
#define SCATTERS(k)                                                                                \
    {                                                                                              \
        "columns=5x4 4:7,1," k, "rows=4x5 4:3,0," k, "vector=9 9:4,0," k,                          \
            "matrix=5x2x3 2x3:4,1," k, "deep=2x3x5 2x3:4,0," k, "none=5x0 0:3,1," k,               \
            "middle=3x6x5 6:4,1," k, "vectors=16x600 600:600,1," k, "+many=7x257 257:5,1," k, NULL \
    }
static const char *const scatter_sum[] = SCATTERS("0"), *const scatter_max[] = SCATTERS("1"),
                         *const scatter_min[] = SCATTERS("2"),
                         *const scatter_prod[] = SCATTERS("3"),
                         *const scatter_mean[] = SCATTERS("4");
static const char *const repeated_scatters[] = {"small=1x9 9:4,1,0", "vectors=1x600 600:600,1,0",
                                                NULL};
static const char *const element_scatters[] = {
    "rows=5x7 3x7 3x7:5,0", "columns=5x7 5x2 5x2:7,1",           "vector=17 9 9:17,0",
    "none=5x7 0x7 0x7:5,0", "+long=2200x2 2100x2 2100x2:2200,0", NULL};

#define REDUCE(name, shapes, types, tolerance, flags)                                              \
    {                                                                                              \
#name, NULL, b_##name, shapes, MATRIX ":1", 1, {CF_ANY }, types, tolerance, flags          \
    }
/* Equal extremes share the gradient evenly; the first one is the argmax. */
#define TIES(name, flags)                                                                          \
    {                                                                                              \
#name ".ties", "fx_" #name, b_##name, extrema, NULL, 1,                                    \
            {CF_TIES }, CF_REAL, CF_EXACT, CF_NO_SECOND | CF_NO_DIFFERENCES | flags                \
    }
#define MOVE(name, shapes, perf)                                                                   \
    {                                                                                              \
#name, NULL, b_##name, shapes, perf, 1, {CF_ANY }, CF_ALL, CF_EXACT, CF_NO_SECOND          \
    }
#define SCATTER(kind, tolerance, flags)                                                            \
    {                                                                                              \
        "scatter." #kind, "fx_scatter", b_scatter, scatter_##kind, NULL, 2,                        \
            {CF_NONZERO, CF_INDEX}, CF_NUM, tolerance, flags                                       \
    }

/* Slices that no index names give infinities, which are left out here: differences need finite
 * losses. */
#define BOUNDED(kind)                                                                              \
    {                                                                                              \
        "scatter." #kind ".bounded", "fx_scatter", b_scatter_bounded, scatter_##kind, NULL, 2,     \
            {CF_NONZERO, CF_INDEX}, CF_REAL, CF_EXACT, CF_NO_SECOND                                \
    }

const cf_row cf_shape_rows[] = {
    REDUCE(sum, reductions, CF_HALF | CF_INT | CF_T(BOOL), CF_NMSE, 0),
    REDUCE(mean, reductions, CF_REAL | CF_T(BOOL), CF_NMSE, 0),
    /* The least and greatest integers cancel in Float64, and the rest depends on the order. */
    {"mean.integer",
     "fx_mean",
     b_mean,
     reductions,
     NULL,
     1,
     {CF_ANY},
     CF_INT,
     CF_NMSE,
     CF_NO_SPECIAL},
    {"prod", NULL, b_prod, products, MATRIX ":1", 1, {CF_NONZERO}, CF_NUM, CF_NMSE, CF_NO_SECOND},
    REDUCE(var, variances, CF_REAL, CF_NMSE, CF_NO_BROADCAST),
    REDUCE(std, variances, CF_REAL, CF_NMSE, CF_NO_BROADCAST),
    REDUCE(mean_rest, variances, CF_REAL | CF_INT | CF_T(BOOL), CF_POINT, CF_NO_SPECIAL),
    REDUCE(norm, reductions, CF_REAL, CF_NMSE, CF_NO_SECOND),
    /* Squared, so that gradients depend on the results and have gradients themselves. */
    {"maximum.squared",
     "fx_maximum",
     b_maximum_squared,
     extrema,
     NULL,
     1,
     {CF_ANY},
     CF_REAL,
     CF_POINT,
     0},
    {"gather.squared",
     "fx_gather",
     b_gather_squared,
     gathers,
     NULL,
     2,
     {CF_ANY, CF_INDEX},
     CF_REAL,
     CF_POINT,
     0},
    REDUCE(maximum, extrema, CF_ALL, CF_EXACT, CF_NO_SECOND),
    REDUCE(minimum, extrema, CF_ALL, CF_EXACT, CF_NO_SECOND),
    {"any", NULL, b_any, reductions, NULL, 1, {CF_BOOL}, CF_T(BOOL), CF_EXACT, CF_NO_GRAD},
    {"all", NULL, b_all, reductions, NULL, 1, {CF_BOOL}, CF_T(BOOL), CF_EXACT, CF_NO_GRAD},
    REDUCE(softmax, softmaxes, CF_REAL, CF_POINT, 0),
    REDUCE(logsoftmax, softmaxes, CF_REAL, CF_POINT, 0),
    REDUCE(logsumexp, extrema, CF_REAL, CF_POINT, 0),
    TIES(maximum, 0),
    TIES(minimum, 0),
    TIES(argmax, CF_NO_GRAD),
    TIES(argmin, CF_NO_GRAD),
    REDUCE(argmax, extrema, CF_NUM, CF_EXACT, CF_NO_GRAD),
    REDUCE(argmin, extrema, CF_NUM, CF_EXACT, CF_NO_GRAD),
    {"cumsum", NULL, b_cumsum, scans, MATRIX ":0", 1, {CF_ANY}, CF_NUM, CF_NMSE, CF_NO_SECOND},
    {"cumsum_reverse",
     NULL,
     b_cumsum_reverse,
     scans,
     MATRIX ":1",
     1,
     {CF_ANY},
     CF_NUM,
     CF_NMSE,
     CF_NO_SECOND},
    MOVE(reshape, reshapes, NULL),
    MOVE(permute, permutes, "256x64x64:3,2,0,1"),
    MOVE(expand, expands, "1024x1:2,1024,1024"),
    MOVE(transpose, matrices, MATRIX),
    MOVE(flatten, flattened, NULL),
    MOVE(vec, any_rank, NULL),
    MOVE(unsqueeze, new_axes, NULL),
    MOVE(squeeze, dropped, NULL),
    MOVE(slice, slices, NULL),
    MOVE(slice_step, steps, NULL),
    MOVE(flip, flips, MATRIX ":1"),
    MOVE(pad, pads, MATRIX ":0,1,1,0"),
    MOVE(pad_reflect, edges, MATRIX ":0,1,1"),
    MOVE(pad_symmetric, edges, NULL),
    MOVE(pad_repeat, edges, NULL),
    MOVE(pad_circular, edges, NULL),
    MOVE(repeat, repeats, NULL),
    MOVE(repeat_inner, inner_repeats, NULL),
    {"concat",
     NULL,
     b_concat,
     joins,
     "512x512 512x512 512x512:1",
     3,
     {CF_ANY, CF_ANY, CF_ANY},
     CF_ALL,
     CF_EXACT,
     CF_NO_SECOND},
    {"stack",
     NULL,
     b_stack,
     stacks,
     NULL,
     3,
     {CF_ANY, CF_ANY, CF_ANY},
     CF_ALL,
     CF_EXACT,
     CF_NO_SECOND},
    {.name = "glu",
     .build = b_glu,
     .shapes = halves,
     .nin = 1,
     .domain = {CF_ANY},
     .types = CF_REAL,
     .tolerance = CF_POINT},
    MOVE(tril, triangles, MATRIX ":0"),
    MOVE(triu, triangles, MATRIX ":0"),
    {"views.chain",
     "fx_slice_step",
     b_view_chain,
     chains,
     NULL,
     1,
     {CF_ANY},
     CF_ALL,
     CF_EXACT,
     CF_NO_SECOND},
    {"views.copy",
     "fx_reshape",
     b_view_copy,
     copies,
     NULL,
     1,
     {CF_ANY},
     CF_ALL,
     CF_EXACT,
     CF_NO_SECOND},
    {"gather",
     NULL,
     b_gather,
     gathers,
     "64x1000 4096:1000,1",
     2,
     {CF_ANY, CF_INDEX},
     CF_ALL,
     CF_EXACT,
     CF_NO_SECOND},
    {"gather_elements",
     NULL,
     b_gather_elements,
     element_gathers,
     NULL,
     2,
     {CF_ANY, CF_INDEX},
     CF_ALL,
     CF_EXACT,
     CF_NO_SECOND},
    SCATTER(sum, CF_NMSE, 0),
    SCATTER(max, CF_EXACT, CF_NO_GRAD),
    SCATTER(min, CF_EXACT, CF_NO_GRAD),
    BOUNDED(max),
    BOUNDED(min),
    SCATTER(prod, CF_NMSE, CF_NO_SECOND),
    SCATTER(mean, CF_NMSE, 0),
    {"scatter.repeated",
     "fx_scatter",
     b_scatter_repeated,
     repeated_scatters,
     NULL,
     2,
     {CF_NONZERO, CF_INDEX},
     CF_NUM,
     CF_NMSE,
     0},
    {"scatter_elements",
     NULL,
     b_scatter_elements,
     element_scatters,
     NULL,
     3,
     {CF_ANY, CF_INDEX_DISTINCT, CF_ANY},
     CF_NUM,
     CF_EXACT,
     CF_NO_SECOND},
    {0},
};
