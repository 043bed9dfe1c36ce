/* embedding.c: Embedding and EmbeddingBag, which look up columns of a matrix.
 *
 * Flux multiplies the result by 0 where the index is the padding; here it is replaced by 0, so that
 * NaN in that column does not spread. Either way the gradient of the column is 0. The offsets of
 * EmbeddingBag are read when the layer is called, because Flux checks them then and the number of
 * columns of every bag follows from them.
 */
#include "memory.h"
#include "nn_layer.h"

#include <inttypes.h>

static bool is_integer(const fx_array *x)
{
    const fx_dtype t = fx_eltype(x);
    return t == FX_DTYPE_I64 || t == FX_DTYPE_I32 || t == FX_DTYPE_U8;
}

static fx_array *refused(void *self, fx_array *x)
{
    return fx_error_array(fxi_layer_mismatch(self, x, FX_STATUS_DTYPE,
                                             "an array of integers, or a one-hot array of Bool"));
}

/* W[:, i], or W·x for a one-hot x. */
static fx_array *columns(void *self, fx_array *weight, fx_array *x)
{
    if (is_integer(x))
        return fx_gather(weight, x, 1);
    if (fx_eltype(x) != FX_DTYPE_BOOL)
        return refused(self, x);
    const fx_status s = fxi_expect_size(self, x, 0, fx_size(weight, 1));
    return s != FX_OK ? fx_error_array(s) : fxi_weighted(weight, fx_cast(x, fx_eltype(weight)));
}

static bool table_fits(const fx_type *type, fx_array **weight, fx_init_fn init, int64_t in,
                       int64_t out)
{
    if (!*weight && (in < 1 || out < 1))
        return fxi_layer_fail(type, "sizes must be positive, got %" PRId64 " => %" PRId64, in, out);
    return fxi_weight(type, weight, init, 2, (const int64_t[]){out, in});
}

/* ---- Embedding ------------------------------------------------------------------------------- */

/* y with 0 where x is the padding: along all axes of x, which follow the first axis of y. */
static fx_array *without_padding(fx_array *y, fx_array *x, int64_t padding)
{
    fx_array *at = is_integer(x) ? fx_unsqueeze(fx_eq(fx_cast(x, FX_DTYPE_I64), padding), 0)
                                 : fx_slice(x, 0, padding, padding + 1);
    return fx_where(at, 0.0, y);
}

static void *embedding_forward(void *self, int n, void *const *args)
{
    const fx_embedding_layer *l = self;
    FXI_SCOPE;
    fx_array *x = fxi_weighted_input(self, n, args, l->weight);
    if (fx_is_error(x))
        return x;
    fx_array *y = columns(self, l->weight, x);
    if (l->padding_idx >= 0 && !fx_is_error(y))
        y = without_padding(y, x, l->padding_idx);
    return fx_keep(y);
}

static bool embedding_build(const fx_type *type, const void *options, void *self)
{
    const fx_embedding_args *a = options;
    fx_embedding_layer *l = self;
    const bool given = l->weight != NULL;
    if (!table_fits(type, &l->weight, a->init, a->in, a->out))
        return false;
    const int64_t in = fx_size(l->weight, 1), padding = l->padding_idx;
    if (padding < -1 || padding >= in)
        return fxi_layer_fail(type, "padding_idx must be 0 to %" PRId64 ", or -1, got %" PRId64,
                              in - 1, padding);
    if (padding >= 0 && !given)
        l->weight =
            fx_where(fx_eq(fx_reshape(fx_range_dtype(FX_DTYPE_I64, 0, 1, in), 1, in), padding), 0.0,
                     l->weight);
    return !fx_is_error(l->weight);
}

static bool embedding_recover(const void *self, void *options)
{
    const fx_embedding_layer *l = self;
    fx_embedding_args *a = options;
    a->in = l->weight ? fx_size(l->weight, 1) : 0;
    a->out = l->weight ? fx_size(l->weight, 0) : 0;
    return l->weight != NULL;
}

/* clang-format off */
#define ROWS(M, O, F)                                                                              \
    O(in, PAIR, .positional = "in => out", .least = 1, .required = true)                                \
    M(weight, CHILD, FX_FROM(weight_array, MATRIX), .flux = "weight")                              \
    M(padding_idx, INTEGER, FX_FROM(padding_idx, INDEX), .names = "padding_idx", .least = 1,       \
      .flux = "padding_idx")                                                                       \
    O(init, INIT, .names = "init")
/* clang-format on */
static const fx_flux_form embedding_forms[] = {
    {"weight", NULL, 1205, 1610}, {"weight padding_idx", "weight", 1611, 0}, {0}};
FX_LAYER_TYPE(embedding, fx_embedding_layer, fx_embedding_args, FXI_EMBEDDING_ARGS, ROWS,
              (.name = "Embedding", .forward = embedding_forward, .layout_bytes = 8),
              .build = embedding_build, .recover = embedding_recover, .flux = "Flux.Embedding",
              .forms = embedding_forms);
FXI_LIBRARY_LAYER(embedding, fx_embedding_layer, fx_embedding_args)
#undef ROWS

/* ---- EmbeddingBag ---------------------------------------------------------------------------- */

/* The reductions: the option's value, the function along an axis (one bag per column), and the
 * constant for fx_scatter (bags at offsets). */
static const struct reduction {
    const fx_function *function;
    fx_array *(*reduce)(const fx_reduce_args *a);
    fx_reduce scatter;
} reductions[] = {
    {FX_MEAN, fxi_mean, FX_REDUCE_MEAN},
    {FX_SUM, fxi_sum, FX_REDUCE_SUM},
    {FX_MAXIMUM, fxi_maximum, FX_REDUCE_MAX},
    {FX_MINIMUM, fxi_minimum, FX_REDUCE_MIN},
};
static const char REDUCTIONS[] = "the reduction must be mean, sum, maximum or minimum";

static const struct reduction *reduction_of(const fx_function *function)
{
    for (int i = 0; i < FXI_COUNT(reductions); i++)
        if (reductions[i].function == function)
            return &reductions[i];
    return NULL;
}

/* The offsets as numbers; NULL on failure (recorded). The caller frees them. */
static int64_t *offsets_of(fx_array *at)
{
    const int64_t n = fx_length(at);
    int64_t *v = fxi_calloc((size_t)n + 1, sizeof *v);
    if (!v)
        fx_fail(FX_STATUS_MEMORY, "EmbeddingBag", "no memory for %" PRId64 " offsets", n);
    else if (fx_read_into(fx_cast(at, FX_DTYPE_I64), v, (size_t)n * sizeof *v) != FX_OK) {
        fxi_free(v);
        v = NULL;
    }
    return v;
}

static const char *wrong_offsets(const int64_t *at, int64_t bags, int64_t n)
{
    if (bags < 1 || at[0] != 0)
        return "The first element in `at` must be 0.";
    if (at[bags - 1] >= n)
        return "The last element in `at` must be an index of `data`.";
    for (int64_t b = 1; b < bags; b++)
        if (at[b] <= at[b - 1])
            return "`at` must be monotonically increasing with no duplicates.";
    return NULL;
}

/* For every element of data, the number of its bag. */
static fx_array *bags_of(const int64_t *at, int64_t bags, int64_t n)
{
    int64_t *bag = fxi_calloc((size_t)n + 1, sizeof *bag);
    if (!bag)
        return fx_error_array(fx_fail(FX_STATUS_MEMORY, "EmbeddingBag",
                                      "no memory for the bags of %" PRId64 " indices", n));
    for (int64_t i = 0, b = 0; i < n; i++) {
        b += b + 1 < bags && at[b + 1] <= i;
        bag[i] = b;
    }
    fx_array *x = fxi_from(FX_DTYPE_I64, bag, 1, &n);
    fxi_free(bag);
    return x;
}

static fx_array *bags_at_offsets(const fx_embeddingbag_layer *l, const struct reduction *reduction,
                                 fx_array *data, fx_array *at)
{
    if (!is_integer(data) || !is_integer(at) || fx_ndims(data) != 1 || fx_ndims(at) != 1)
        return fx_error_array(fx_fail(FX_STATUS_ARGUMENT, "EmbeddingBag",
                                      "takes `data` and `at` as two vectors of integers"));
    int64_t *v = offsets_of(at);
    if (!v)
        return fx_error_array(fx_error_status());
    const int64_t bags = fx_length(at), n = fx_length(data);
    const char *wrong = wrong_offsets(v, bags, n);
    fx_array *bag = wrong ? fx_error_array(fx_fail(FX_STATUS_ARGUMENT, "EmbeddingBag", "%s", wrong))
                          : bags_of(v, bags, n);
    fxi_free(v);
    if (fx_is_error(bag))
        return bag;
    return fx_scatter(reduction->scatter, fx_gather(l->weight, data, 1),
                      fx_array_to(fx_array_device(data), bag), 1, bags);
}

static fx_array *one_bag_per_column(void *self, const struct reduction *reduction, fx_array *x)
{
    const fx_embeddingbag_layer *l = self;
    if (is_integer(x) && fx_ndims(x) == 0)
        return fx_error_array(fx_fail(FX_STATUS_ARGUMENT, "EmbeddingBag",
                                      "EmbeddingBag expects an array of indices, not just one"));
    fx_array *y = columns(self, l->weight, x);
    if (fx_is_error(y) || fx_ndims(y) < 2) /* one one-hot vector: one column */
        return y;
    return FXI_REDUCE(reduction->reduce, y, .dims = FX_AXES(1), .drop = true);
}

static void *bag_forward(void *self, int n, void *const *args)
{
    const fx_embeddingbag_layer *l = self;
    if (fx_type_of(self)->error == self)
        return fx_error_array(FX_STATUS_ARGUMENT);
    const fxi_inputs in = fxi_inputs_of(n, args);
    const struct reduction *reduction = reduction_of(l->reduction);
    FXI_SCOPE;
    if (in.n != 1 && in.n != 2)
        return fx_error_array(fx_fail(FX_STATUS_ARGUMENT, "EmbeddingBag",
                                      "takes one input, or `data` and `at`, got %d", in.n));
    if (!reduction)
        return fx_error_array(fx_fail(FX_STATUS_ARGUMENT, "EmbeddingBag", "%s", REDUCTIONS));
    fx_array *x = fxi_weighted_input(self, 1, in.items, l->weight);
    fx_array *at = in.n == 1 ? x : fxi_weighted_input(self, 1, in.items + 1, l->weight);
    if (fx_is_error(x) || fx_is_error(at))
        return fx_is_error(x) ? x : at;
    return fx_keep(in.n == 1 ? one_bag_per_column(self, reduction, x)
                             : bags_at_offsets(l, reduction, x, at));
}

static bool bag_build(const fx_type *type, const void *options, void *self)
{
    const fx_embeddingbag_args *a = options;
    fx_embeddingbag_layer *l = self;
    if (!reduction_of(l->reduction))
        return fxi_layer_fail(type, "%s, got %s", REDUCTIONS, l->reduction->name);
    return table_fits(type, &l->weight, a->init, a->in, a->out);
}

static bool bag_recover(const void *self, void *options)
{
    const fx_embeddingbag_layer *l = self;
    fx_embeddingbag_args *a = options;
    a->in = l->weight ? fx_size(l->weight, 1) : 0;
    a->out = l->weight ? fx_size(l->weight, 0) : 0;
    return l->weight != NULL;
}

/* clang-format off */
#define ROWS(M, O, F)                                                                              \
    O(in, PAIR, .positional = "in => out", .least = 1, .required = true)                                \
    M(weight, CHILD, FX_FROM(weight_array, MATRIX), .flux = "weight")                              \
    M(reduction, SHARED, FX_FROM(reduction, FUNCTION), .positional = "a reduction", .flux = "reduction") \
    O(init, INIT, .names = "init")
/* clang-format on */
static const fx_flux_form bag_forms[] = {{"weight reduction", "reduction weight", 0, 0}, {0}};
FX_LAYER_TYPE(embeddingbag, fx_embeddingbag_layer, fx_embeddingbag_args, FXI_EMBEDDINGBAG_ARGS,
              ROWS, (.name = "EmbeddingBag", .forward = bag_forward, .layout_bytes = 8),
              .build = bag_build, .recover = bag_recover, .flux = "Flux.EmbeddingBag",
              .forms = bag_forms);
FXI_LIBRARY_LAYER(embeddingbag, fx_embeddingbag_layer, fx_embeddingbag_args)
