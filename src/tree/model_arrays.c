/* model_arrays.c: the arrays of a whole model as one vector, as a state, and in another precision.
 *
 * Packing into a vector and unpacking are ordinary operations, so gradients flow through both.
 */
#include "array_list.h"
#include "identity_map.h"
#include "memory.h"
#include "object_types.h"
#include "tuples.h"

#include <cflux/ops.h>

/* ---- lists of arrays ------------------------------------------------------------------------- */

typedef fxi_array_list arrays;

void fxi_array_list_add(fxi_array_list *a, fx_array *x)
{
    if (a->status != FX_OK)
        return;
    if (fx_is_error(x))
        a->status = fx_array_status(x);
    else if (!fxi_grow(&a->items, &a->capacity, a->n + 1, sizeof *a->items))
        a->status = fx_fail(FX_STATUS_MEMORY, a->op, "no memory for a list of %d arrays", a->n + 1);
    else
        a->items[a->n++] = x;
}

static void add_trainable(fx_array *x, const char *path, bool trainable, void *user)
{
    (void)path;
    if (trainable)
        fxi_array_list_add(user, x);
}

static arrays trainables(const char *op, void *model)
{
    arrays a = {.op = op};
    if (!model || fx_is_error(model))
        a.status =
            model ? fxi_object_status(model) : fx_fail(FX_STATUS_ARGUMENT, op, "the model is NULL");
    else
        fx_visit(model, add_trainable, &a);
    return a;
}

/* ---- a vector and back ----------------------------------------------------------------------- */

fx_array *fx_destructure(void *model)
{
    FXI_SCOPE;
    arrays a = trainables("destructure", model);
    for (int32_t i = 0; i < a.n && a.status == FX_OK; i++)
        a.items[i] = fx_vec(a.items[i]);
    fx_array *flat = a.status != FX_OK ? fx_error_array(a.status)
                     : a.n             ? fxi_concat(0, a.n, a.items)
                                       : fx_zeros(0);
    fxi_free(a.items);
    return fx_keep(flat);
}

typedef struct pieces {
    fxi_identity_map of; /* array → its slice of the vector */
} pieces;

static fx_array *piece_or_same(fx_array *x, void *user)
{
    const pieces *p = user;
    void *y;
    return fxi_identity_get(&p->of, x, &y) ? y : x;
}

/* Slices the vector into arrays; false if out of memory. */
static bool cut(const arrays *a, fx_array *flat, pieces *out)
{
    int64_t at = 0;
    for (int32_t i = 0; i < a->n; i++) {
        fx_array *x = a->items[i];
        const int64_t n = fx_length(x);
        int64_t sizes[FX_MAX_DIMS];
        for (int k = 0; k < fx_ndims(x); k++)
            sizes[k] = fx_size(x, k);
        fx_array *y = fxi_reshape(fx_slice(flat, 0, at, at + n), fx_ndims(x), sizes);
        if (!fxi_identity_put(&out->of, x, fx_cast(y, fx_eltype(x))))
            return false;
        at += n;
    }
    return true;
}

static fx_status check_vector(const arrays *a, const fx_array *flat)
{
    int64_t n = 0;
    for (int32_t i = 0; i < a->n; i++)
        n += fx_length(a->items[i]);
    if (!flat || fx_is_error(flat))
        return flat ? fx_array_status(flat)
                    : fx_fail(FX_STATUS_ARGUMENT, "restructure", "the vector is NULL");
    if (fx_ndims(flat) == 1 && fx_length(flat) == n)
        return FX_OK;
    return fx_fail(FX_STATUS_SHAPE, "restructure",
                   "Rebuild expected a vector of length %lld, got %lld%s", (long long)n,
                   (long long)fx_length(flat),
                   fx_ndims(flat) == 1 ? "" : " in an array that is not a vector");
}

void *fxi_restructure(void *model, fx_array *flat)
{
    FXI_SCOPE;
    arrays a = trainables("restructure", model);
    if (a.status == FX_OK)
        a.status = check_vector(&a, flat);
    pieces p = {{0}};
    if (a.status == FX_OK && !cut(&a, flat, &p))
        a.status = fx_fail(FX_STATUS_MEMORY, "restructure", "no memory for %d arrays", a.n);
    void *y = a.status == FX_OK ? fx_fmap_with(piece_or_same, &p, model)
                                : fx_error_object(fx_type_of(model));
    fxi_identity_free(&p.of);
    fxi_free(a.items);
    return fx_keep(y);
}

/* ---- state ----------------------------------------------------------------------------------- */

static void *state_leaf(void *x, void *user)
{
    (void)user;
    return !x || fx_is_array(x) ? x : fxi_tuple(0, NULL);
}

void *fx_state(void *model)
{
    FXI_SCOPE;
    if (!model)
        return fx_error_array(fx_fail(FX_STATUS_ARGUMENT, "state", "the model is NULL"));
    return fx_keep(fxi_mirror("state", model, state_leaf, NULL));
}

/* ---- precision ------------------------------------------------------------------------------- */

static const bool real[FX_DTYPE_COUNT] = {
    [FX_DTYPE_F32] = true, [FX_DTYPE_F64] = true, [FX_DTYPE_F16] = true, [FX_DTYPE_BF16] = true};

static fx_array *in_precision(fx_array *x, void *user)
{
    return fx_is_error(x) || !real[fx_eltype(x)] ? x : fx_cast(x, *(const fx_dtype *)user);
}

/* In 16-bit precision some types ask to keep Float32. */
static void *wide_in_precision(void *object, void *user)
{
    fx_dtype wide = FX_DTYPE_F32;
    (void)user;
    return fx_type_of(object)->flags & FX_TYPE_WIDE ? fx_fmap_with(in_precision, &wide, object)
                                                    : NULL;
}

void *fxi_in_precision(fx_dtype type, void *model)
{
    if (!model)
        return fx_error_array(fx_fail(FX_STATUS_ARGUMENT, "precision", "the model is NULL"));
    return fx_fmap_objects(in_precision, fx_dtype_size(type) == 2 ? wide_in_precision : NULL, &type,
                           model);
}
