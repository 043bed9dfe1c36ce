/* average_devices.c: fx_average, the mean of the gradients of several models, each on a device of
 * its own.
 *
 * Arrays are joined into buckets, vectors of one element type, because a copy between devices takes
 * about as long for a small array as for 100 KB. Bucket b is added up on the device of gradient b
 * mod n, in the order of the gradients: so all devices share the work, and all get the same bits in
 * every run. If NCCL or RCCL serves the devices, it computes the means (dist_local.c). Everything
 * is queued on the devices; the host does not wait for them.
 */
#include "dist_local.h"
#include "error.h"
#include "evaluate.h"
#include "identity_map.h"
#include "memory.h"
#include "object_types.h"
#include "reads.h"

#include <cflux/device.h>
#include <cflux/ops.h>
#include <cflux/optim.h>

enum {
    MOST_GRADIENTS = 8, /* the limit of fx_tree_walk */
    BUCKET_BYTES = 25 << 20,
    LEAST_BUCKET = 256 << 10 /* a smaller bucket takes as long to copy */
};

/* The arrays at one position of the gradients, and their means. */
typedef struct row {
    fx_array *given[MOST_GRADIENTS], *mean[MOST_GRADIENTS];
} row;

/* Rows first … end − 1: of one type, and of one device in each gradient. */
typedef struct bucket {
    int32_t first, end;
    int64_t bytes;
    bool has_means;                          /* computed by NCCL or RCCL */
    fx_array *mean, *vector[MOST_GRADIENTS]; /* the elements in each gradient, then their means */
} bucket;

typedef struct averages {
    int n;
    row *rows;
    int32_t nrows, row_capacity;
    bucket *buckets;
    int32_t nbuckets, bucket_capacity;
    fxi_identity_map row_of; /* array of a gradient → number of its row, from 1 */
    fxi_node **nodes;        /* the nodes that are evaluated together */
    int32_t nnodes, node_capacity;
    int64_t bytes;                      /* of one gradient */
    fx_device *devices[MOST_GRADIENTS]; /* the first device of each gradient; NULL: none */
    fx_status status;
} averages;

static void fail(averages *a, fx_status status)
{
    a->status = a->status == FX_OK ? status : a->status;
}

static void no_memory(averages *a)
{
    fail(a, fx_fail(FX_STATUS_MEMORY, "average", "out of memory"));
}

/* ---- the arrays ------------------------------------------------------------------------------ */

/* Zeros of a parameter that the loss does not use belong to no device. */
static fx_device *device_in(const averages *a, const row *r, int k)
{
    fx_device *own = r->given[k]->node->device;
    return own ? own : a->devices[k] ? a->devices[k] : fx_cpu_device();
}

/* "3×2 CUDA:0 Matrix{Float32}" */
static void described(void *x, char *text, size_t capacity)
{
    if (x)
        fx_summary(x, text, capacity);
    else
        snprintf(text, capacity, "missing");
}

static fx_walk differ(averages *a, const fx_spot *at, int k, fx_status status)
{
    char path[200], one[200], other[200];
    fx_spot_path(at, fx_naming_children, path, sizeof path);
    described(at->objects[0], one, sizeof one);
    described(at->objects[k], other, sizeof other);
    fail(a, fx_fail(status, "average", "%s%s%s is %s in gradient 1, but %s in gradient %d",
                    *path ? "\"" : "", *path ? path : "the gradient", *path ? "\"" : "", one, other,
                    k + 1));
    return FX_WALK_STOP;
}

static bool same_size(const fx_array *x, const fx_array *y)
{
    return fx_eltype(x) == fx_eltype(y) && fxi_same_sizes(x, y);
}

/* Notes the row of an array. False: the array has another row, so it is tied in this model but not
 * in another one.
 */
static bool note(averages *a, fx_array *x, int32_t number)
{
    void *known;
    if (fxi_identity_get(&a->row_of, x, &known))
        return known == (void *)(intptr_t)number;
    if (!fxi_identity_put(&a->row_of, x, (void *)(intptr_t)number))
        no_memory(a);
    return true;
}

static fx_walk add_row(averages *a, const fx_spot *at)
{
    if (!fxi_grow(&a->rows, &a->row_capacity, a->nrows + 1, sizeof *a->rows)) {
        no_memory(a);
        return FX_WALK_STOP;
    }
    row *r = &a->rows[a->nrows++];
    for (int k = 0; k < a->n; k++) {
        fx_array *x = at->objects[k];
        if (!x || !fx_is_array(x))
            return differ(a, at, k, FX_STATUS_ARGUMENT);
        if (fx_is_error(x)) {
            fail(a, fx_array_status(x));
            return FX_WALK_STOP;
        }
        if (!same_size(at->objects[0], x))
            return differ(a, at, k, FX_STATUS_SHAPE);
        if (!note(a, x, a->nrows)) {
            fail(a, fx_fail(FX_STATUS_ARGUMENT, "average",
                            "gradient %d has the same array in several positions (tied), but in "
                            "another gradient these are different arrays",
                            k + 1));
            return FX_WALK_STOP;
        }
        r->given[k] = x;
        a->devices[k] = a->devices[k] ? a->devices[k] : x->node->device;
    }
    if (!fxi_is_float((int)fx_eltype(r->given[0]))) {
        char text[200];
        described(r->given[0], text, sizeof text);
        fail(a, fx_fail(FX_STATUS_DTYPE, "average",
                        "%s: the elements are not floating-point numbers", text));
    }
    return a->status == FX_OK ? FX_WALK_TAKE : FX_WALK_STOP;
}

/* Gradients have NULL where a model has integers or fields that are not trainable. */
static fx_walk meet(const fx_spot *at, void *user)
{
    averages *a = user;
    const void *first = at->objects[0];
    if (first && fx_is_array(first))
        return add_row(a, at);
    for (int k = 1; k < a->n; k++)
        if (!first != !at->objects[k] ||
            (first && (fx_type_of(first) != fx_type_of(at->objects[k]) ||
                       fx_count(first) != fx_count(at->objects[k]))))
            return differ(a, at, k, FX_STATUS_ARGUMENT);
    return first && fx_has_children(first) ? FX_WALK_ENTER : FX_WALK_PASS;
}

/* ---- buckets --------------------------------------------------------------------------------- */

static int64_t row_bytes(const row *r)
{
    return fx_length(r->given[0]) * (int64_t)fx_dtype_size(fx_eltype(r->given[0]));
}

static bool belongs(const averages *a, const bucket *b, const row *r, int64_t most)
{
    const row *first = &a->rows[b->first];
    bool same = b->bytes < most && fx_eltype(first->given[0]) == fx_eltype(r->given[0]);
    for (int k = 0; k < a->n && same; k++)
        same = device_in(a, first, k) == device_in(a, r, k);
    return same;
}

static void divide(averages *a)
{
    const int64_t share = a->bytes / a->n, least = share < LEAST_BUCKET ? LEAST_BUCKET : share;
    const int64_t most = least < BUCKET_BYTES ? least : BUCKET_BYTES;
    bucket *b = NULL;
    for (int32_t i = 0; i < a->nrows; i++) {
        if (!b || !belongs(a, b, &a->rows[i], most)) {
            if (!fxi_grow(&a->buckets, &a->bucket_capacity, a->nbuckets + 1, sizeof *b)) {
                no_memory(a);
                return;
            }
            b = &a->buckets[a->nbuckets++];
            *b = (bucket){.first = i};
        }
        b->end = i + 1;
        b->bytes += row_bytes(&a->rows[i]);
    }
}

static fx_array *joined(averages *a, const bucket *b, int k)
{
    const int32_t n = b->end - b->first;
    fx_array **parts = fxi_malloc((size_t)n * sizeof(fx_array *));
    if (!parts) {
        no_memory(a);
        return fx_error_array(a->status);
    }
    for (int32_t i = 0; i < n; i++)
        parts[i] = fx_vec(a->rows[b->first + i].given[k]);
    fx_array *vector = n == 1 ? parts[0] : fxi_concat(0, n, parts);
    fxi_free(parts);
    return vector;
}

/* ---- the means ------------------------------------------------------------------------------- */

static void add_node(averages *a, const fx_array *x)
{
    if (x->status != FX_OK)
        fail(a, x->status);
    else if (!x->node->data &&
             fxi_grow(&a->nodes, &a->node_capacity, a->nnodes + 1, sizeof(fxi_node *)))
        a->nodes[a->nnodes++] = x->node;
    else if (!x->node->data)
        no_memory(a);
}

static void evaluate(averages *a)
{
    if (a->status == FX_OK && a->nnodes > 0)
        fail(a, fxi_evaluate(fxi_here(), a->nnodes, a->nodes));
    a->nnodes = 0;
}

/* Promised values are computed in the same plan as the gradients, because they share the forward
 * pass: the losses (fx_want) and the statistics of layers, which the update commits. */
static void compute_gradients(averages *a)
{
    const fxi_context *c = fxi_here();
    for (int32_t i = 0; i < a->nbuckets && a->status == FX_OK; i++)
        for (int k = 0; k < a->n && a->status == FX_OK; k++) {
            a->buckets[i].vector[k] = joined(a, &a->buckets[i], k);
            add_node(a, a->buckets[i].vector[k]);
        }
    for (int i = 0; i < c->npromises && a->status == FX_OK; i++)
        if (c->promises[i].value->status == FX_OK)
            add_node(a, c->promises[i].value);
    evaluate(a);
}

/* 16-bit numbers are added in Float32 and rounded once. */
static fx_array *mean_of(const averages *a, const bucket *b, fx_device *device)
{
    const fx_dtype type = fx_eltype(b->vector[0]);
    const bool narrow = fx_dtype_size(type) < sizeof(float);
    fx_array *sum = NULL;
    for (int k = 0; k < a->n; k++) {
        fx_array *x = fxi_array_to_alone(device, b->vector[k]);
        x = narrow ? fx_cast(x, FX_DTYPE_F32) : x;
        sum = sum ? fx_add(sum, x) : x;
    }
    fx_array *mean = fx_div(sum, a->n);
    return narrow ? fx_cast(mean, type) : mean;
}

/* The means by NCCL or RCCL, if it serves the devices. */
static void average_by_library(averages *a, bucket *b)
{
    fx_array *means[MOST_GRADIENTS];
    if (b->bytes == 0)
        return;
    const fx_status status = fxi_local_mean(a->n, b->vector, means);
    if (status != FX_OK && status != FX_STATUS_UNSUPPORTED)
        fail(a, status);
    b->has_means = status == FX_OK;
    for (int k = 0; k < a->n && b->has_means; k++)
        b->vector[k] = means[k];
}

/* All sums are queued before any mean is copied, so no device waits for the mean of another device
 * before it adds up its own buckets. The means have no history: it would hold the memory of all
 * copies until the scope ends. */
static void average(averages *a)
{
    for (int32_t i = 0; i < a->nbuckets && a->status == FX_OK; i++) {
        bucket *b = &a->buckets[i];
        average_by_library(a, b);
        if (b->has_means || a->status != FX_OK)
            continue;
        b->mean = mean_of(a, b, device_in(a, &a->rows[b->first], i % a->n));
        add_node(a, b->mean);
    }
    evaluate(a);
    for (int32_t i = 0; i < a->nbuckets && a->status == FX_OK; i++) {
        bucket *b = &a->buckets[i];
        if (b->has_means)
            continue;
        fxi_array_cut(b->mean);
        for (int k = 0; k < a->n && a->status == FX_OK; k++) {
            b->vector[k] = fxi_array_to_alone(device_in(a, &a->rows[b->first], k), b->mean);
            if (fx_is_error(b->vector[k]))
                fail(a, fx_array_status(b->vector[k]));
        }
    }
}

/* True if no model's loss depends on the parameter. Its gradient is then not replaced, so that the
 * update still recognises it. */
static bool is_unused(const averages *a, const row *r)
{
    bool unused = true;
    for (int k = 0; k < a->n; k++)
        unused = unused && fxi_is_no_gradient(r->given[k]);
    return unused;
}

static void split(averages *a, const bucket *b, int k)
{
    int64_t at = 0, sizes[FX_MAX_DIMS];
    for (int32_t i = b->first; i < b->end; i++) {
        const fx_array *x = a->rows[i].given[k];
        for (int d = 0; d < fx_ndims(x); d++)
            sizes[d] = fx_size(x, d);
        fx_array *part = fx_slice(b->vector[k], 0, at, at + fx_length(x));
        a->rows[i].mean[k] =
            is_unused(a, &a->rows[i]) ? a->rows[i].given[k] : fxi_reshape(part, fx_ndims(x), sizes);
        at += fx_length(x);
    }
}

/* ---- the gradients --------------------------------------------------------------------------- */

typedef struct replacing {
    const averages *a;
    int k;
} replacing;

static fx_array *mean_instead(fx_array *x, void *user)
{
    const replacing *r = user;
    void *number;
    if (!fxi_identity_get(&r->a->row_of, x, &number))
        return x;
    return r->a->rows[(intptr_t)number - 1].mean[r->k];
}

static void replace(averages *a, void **gradients)
{
    void *means[MOST_GRADIENTS];
    for (int32_t i = 0; i < a->nbuckets; i++)
        for (int k = 0; k < a->n; k++)
            split(a, &a->buckets[i], k);
    for (int k = 0; k < a->n && a->status == FX_OK; k++) {
        replacing r = {a, k};
        means[k] = fx_fmap_with(mean_instead, &r, gradients[k]);
        if (fx_is_error(means[k]))
            fail(a, fx_error_status());
    }
    for (int k = 0; k < a->n && a->status == FX_OK; k++)
        gradients[k] = fx_keep(means[k]);
}

static fx_status check(int n, void *const *gradients)
{
    if (n < 1 || n > MOST_GRADIENTS)
        return fx_fail(FX_STATUS_ARGUMENT, "average", "takes 1 to %d gradients, got %d",
                       MOST_GRADIENTS, n);
    if (!gradients)
        return fx_fail(FX_STATUS_ARGUMENT, "average", "the list of %d gradients is NULL", n);
    for (int k = 0; k < n; k++) {
        if (!gradients[k])
            return fx_fail(FX_STATUS_ARGUMENT, "average", "gradient %d is NULL", k + 1);
        if (fx_is_error(gradients[k]))
            return fx_error_status() != FX_OK ? fx_error_status()
                                              : fx_fail(FX_STATUS_ARGUMENT, "average",
                                                        "gradient %d is an error object", k + 1);
    }
    return FX_OK;
}

fx_status fx_average(int n, void **gradients)
{
    FXI_SCOPE;
    averages a = {.n = n, .status = check(n, gradients)};
    if (a.status != FX_OK)
        return a.status;
    const fx_tree_walker walker = {.op = "average", .trees = n, .meet = meet, .user = &a};
    const fx_status walked = fx_tree_walk(&walker, gradients);
    fail(&a, walked);
    for (int32_t i = 0; i < a.nrows && a.status == FX_OK; i++)
        a.bytes += row_bytes(&a.rows[i]);
    if (a.status == FX_OK)
        divide(&a);
    if (a.status == FX_OK)
        compute_gradients(&a);
    if (a.status == FX_OK)
        average(&a);
    if (a.status == FX_OK)
        replace(&a, gradients);
    fxi_identity_free(&a.row_of);
    fxi_free(a.rows);
    fxi_free(a.buckets);
    fxi_free(a.nodes);
    return a.status;
}
