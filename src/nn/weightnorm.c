/* weightnorm.c: WeightNorm, which separates the length g of a weight from its direction v.
 *
 * Every call makes a copy of the layer with the normalised weight, so any layer works, and
 * gradients flow to v and g. The name of the array is resolved when the layer is made; the struct
 * points to the name in the table of the layer's type, which is never freed.
 */
#include "nn_layer.h"

#include <inttypes.h>
#include <string.h>

static fx_axes axes_of(const fx_dims *dims)
{
    return fx_axes_of((int)dims->n, dims->v);
}

static fx_array *squares(fx_array *v, const fx_dims *dims)
{
    return fx_sum(fx_square(fxi_wide_enough(v)), .dims = axes_of(dims));
}

/* ---- the array ------------------------------------------------------------------------------- */

/* True if `name` is the field's name, or its name in Flux. */
static bool is_called(const fx_type *type, const fx_field *field, const char *name)
{
    const fx_layer *layer = fx_layer_of(type);
    if (strcmp(field->name, name) == 0)
        return true;
    for (int i = 0; layer && i < layer->nrows; i++) {
        const fx_layer_row *row = fxi_layer_row(layer, i);
        const char *at = row->member == field->offset ? row->flux : NULL;
        for (size_t n; at && *at; at += n + strspn(at + n, " ")) {
            n = strcspn(at, " ");
            if (strlen(name) == n && strncmp(at, name, n) == 0)
                return true;
        }
    }
    return false;
}

/* The field of the layer that holds the array; NULL if there is none. */
static const fx_field *field_named(const void *layer, const char *name)
{
    const fx_type *type = fx_type_of(layer);
    for (int i = 0; i < type->nfields; i++) {
        const fx_field *f = &type->fields[i];
        const void *x = NULL;
        if (f->kind != FX_FIELD_CHILD || !is_called(type, f, name))
            continue;
        memcpy(&x, (const char *)layer + f->offset, sizeof x);
        return x && fx_is_array(x) ? f : NULL;
    }
    return NULL;
}

/* The index of the array among the children of the layer. */
static int64_t child_of(const fx_weightnorm_layer *l)
{
    int64_t i = 0;
    while (i < fx_count(l->layer) && strcmp(fx_child_name(l->layer, i), l->which) != 0)
        i++;
    return i;
}

/* g·v/√(Σv² + ε), in v's type. */
static fx_array *normalised(const fx_weightnorm_layer *l, fx_array *v)
{
    fx_array *length = fx_sqrt(fx_add(squares(v, &l->dims), fxi_epsilon(fx_eltype(v))));
    fx_array *w = fx_div(fx_mul(fxi_wide_enough(l->g), fxi_wide_enough(v)), length);
    return fx_cast(w, fx_eltype(v));
}

/* The layer with the normalised array. */
static void *plain_layer(const fx_weightnorm_layer *l)
{
    const int64_t at = child_of(l);
    FXI_SCOPE;
    void *children = fx_functor(l->layer);
    if (fx_is_error(children) || at >= fx_count(children))
        return fx_error_object(fx_type_of(l->layer));
    fx_tuple_object *parts = children;
    fxi_set(&parts->items.items[at], normalised(l, fx_child(l->layer, at)));
    return fx_keep(fxi_rebuild(l->layer, children));
}

static void *weightnorm_forward(void *self, int n, void *const *args)
{
    const fx_weightnorm_layer *l = self;
    if (fx_type_of(self)->error == self)
        return fx_error_array(FX_STATUS_ARGUMENT);
    FXI_SCOPE;
    return fx_keep(fxi_call(plain_layer(l), n, args));
}

/* ---- construction ---------------------------------------------------------------------------- */

static bool axes_fit(const fx_type *type, fx_dims *dims, const fx_array *v)
{
    const int ndims = fx_ndims(v);
    if (dims->n == 0)
        *dims = (fx_dims){1, {ndims - 1}};
    for (int64_t i = 0; i < dims->n; i++)
        if (dims->v[i] >= ndims)
            return fxi_layer_fail(type, "dims has axis %" PRId64 ", but the array has %d axes",
                                  dims->v[i], ndims);
    return ndims > 0 || fxi_layer_fail(type, "the array has no axes");
}

static bool weightnorm_build(const fx_type *type, const void *options, void *self)
{
    const fx_weightnorm_args *a = options;
    fx_weightnorm_layer *l = self;
    char got[100];
    if (l->layer && fx_is_error(l->layer))
        return false;
    fxi_given(l->layer, got, sizeof got);
    if (!fxi_is_callable(l->layer) || !a->which)
        return fxi_layer_fail(type, "needs a layer and the name of an array, got %s", got);
    const fx_field *field = field_named(l->layer, a->which);
    if (!field)
        return fxi_layer_fail(type, "%s has no array called %s", got, a->which);
    fx_array *v = fx_child_named(l->layer, field->name);
    l->which = field->name;
    if (!axes_fit(type, &l->dims, v))
        return false;
    /* An all-zero array is refused, because its norm is 0. The check evaluates pending weights. */
    double all_zero;
    if (fx_item_get(fx_all(fx_eq(v, 0)), &all_zero) != FX_OK)
        return false;
    if (all_zero == 1)
        return fxi_layer_fail(type, "the array %s of %s is all zero", l->which, got);
    /* The divisor of `normalised`, so that a new layer computes what the layer in it computes. */
    fx_array *length = fx_sqrt(fx_add(squares(v, &l->dims), fxi_epsilon(fx_eltype(v))));
    l->g = fx_stop_gradient(fx_cast(length, fx_eltype(v))); /* a parameter, not a function of v */
    return !fx_is_error(l->g);
}

/* clang-format off */
#define ROWS(M, O, F)                                                                              \
    M(layer, CHILD, FX_FROM(layer, LAYER), .positional = "a layer", .required = true, .flux = "layer")  \
    M(g, CHILD, .flux = "g")                                                                       \
    M(which, STRING, FX_FROM(which, SYMBOL), .positional = "the name of a field", .flux = "which")      \
    M(dims, DIMS, FX_FROM(dims, AXES), .names = "dims", .least = 1, .flux = "dims")
/* clang-format on */
static const fx_flux_form forms[] = {{"layer g which dims", "layer g dims", 0, 0}, {0}};
FX_LAYER_TYPE(weightnorm, fx_weightnorm_layer, fx_weightnorm_args, FXI_WEIGHTNORM_ARGS, ROWS,
              (.name = "WeightNorm", .forward = weightnorm_forward, .flags = FX_TYPE_ONE_LINE,
               .layout_bytes = 24),
              .build = weightnorm_build, .semicolon = true, .flux = "Flux.WeightNorm",
              .forms = forms);
FXI_LIBRARY_LAYER(weightnorm, fx_weightnorm_layer, fx_weightnorm_args)

/* ---- removal --------------------------------------------------------------------------------- */

static fx_array *same(fx_array *x, void *user)
{
    (void)user;
    return x;
}

static void *without_norm(void *object, void *user)
{
    (void)user;
    return fx_is(object, fxi_weightnorm_type()) && !fx_is_error(object) ? plain_layer(object)
                                                                        : NULL;
}

void *fx_remove_weight_norms(void *model)
{
    FXI_SCOPE;
    if (!model)
        return fx_error_array(
            fx_fail(FX_STATUS_ARGUMENT, "remove_weight_norms", "the model is NULL"));
    void *copy = fx_fmap_objects(same, without_norm, NULL, model);
    const fx_status status = fx_is_error(copy) ? FX_OK : fxi_evaluate_new(copy, NULL, NULL);
    return fx_keep(status == FX_OK ? copy : fx_error_array(status));
}
