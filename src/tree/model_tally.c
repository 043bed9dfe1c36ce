/* model_tally.c: counts arrays, parameters and bytes of an object for printing: see model_tally.h.
 *
 * Sizes in bytes equal Julia's summarysize of the same model on a CPU: header and elements of every
 * array, and the layout of every struct.
 */
#include "model_tally.h"

#include "elements.h"
#include "host.h"
#include "identity_map.h"
#include "object_types.h"
#include "show_parts.h"
#include "walk.h"

#include <cflux/layer.h>
#include <math.h>

/* Notes whether there is a value other than 0, whether there is a NaN, and whether there is an
 * infinity. Works for any strides; `x` must be evaluated. */
static void scan_values(const fx_array *x, fxi_tally *t)
{
    const fxi_node *n = x->node;
    const int64_t size = (int64_t)fx_dtype_size(fx_eltype(x)), count = fx_length(x);
    int64_t index[FX_MAX_DIMS] = {0};
    fxi_elements e;
    if (fxi_elements_open("show", x, &e) != FX_OK)
        return;
    const char *p = e.at;
    for (int64_t i = 0; i < count; i++) {
        const double v = fxi_host_double(n->dtype, p);
        t->nonzero |= v != 0;
        t->nan |= isnan(v);
        t->inf |= isinf(v);
        for (int k = 0; k < n->ndim; k++) {
            p += n->data->stride[k] * size;
            if (++index[k] < n->shape[k])
                break;
            p -= n->shape[k] * n->data->stride[k] * size;
            index[k] = 0;
        }
    }
    fxi_elements_close(&e);
}

static void count_array(fx_array *x, fx_array *of, bool trainable, void *user)
{
    fxi_tally *t = user;
    if (fx_is_error(x) || of) /* a view is counted with its array */
        return;
    const int64_t n = fx_length(x), bytes = n * (int64_t)fx_dtype_size(fx_eltype(x));
    *(trainable ? &t->arrays : &t->other_arrays) += 1;
    *(trainable ? &t->parameters : &t->other_parameters) += n;
    t->bytes += bytes;
    t->bytes_julia += bytes + 32 + 8 * fx_ndims(x);
    if (t->arrays + t->other_arrays == 1)
        t->device = fx_array_device(x);
    else if (t->device != fx_array_device(x))
        t->device = NULL;
    if (trainable && t->scan && fx_is_evaluated(x) && !x->node->data->buffer->freed)
        scan_values(x, t);
    else if (trainable)
        t->nonzero = true;
}

fxi_tally fxi_tally_of(void *object, bool scan)
{
    fxi_tally t = {.scan = scan};
    fxi_visit_tied(object, count_array, &t);
    return t;
}

/* The size of each struct that was already computed, by object. */
typedef struct sizes {
    fxi_identity_map known;
    bool failed;
} sizes;

static int64_t struct_bytes(sizes *s, const void *object, int depth);

/* The bytes of a struct's field: an immutable value is stored in place, a mutable one by a
 * pointer. */
static int64_t part_bytes(sizes *s, const fxi_part *p, const fx_type *owner, bool plain, int depth)
{
    const bool sequence = owner->flags & (FX_TYPE_SEQUENCE | FX_TYPE_TUPLE);
    const fx_type *type = p->is_object ? fx_type_of(p->object) : NULL;
    int64_t bytes = 0;
    if (plain)
        bytes = p->field->kind == FX_FIELD_DIMS ? 8 * ((const fx_dims *)p->at)->n : 8;
    if (type && p->field->kind != FX_FIELD_SHARED && !fxi_is_leaf(p->object))
        bytes += struct_bytes(s, p->object, depth + 1) +
                 (!plain && (type->flags & FX_TYPE_MUTABLE) ? 8 : 0);
    return bytes + (type && fx_is_array(p->object) && sequence ? 8 : 0);
}

/* Julia's size of a struct without the objects that it points to. A type without a layout counts as
 * a struct of untyped fields, which are pointers. */
static int64_t struct_bytes(sizes *s, const void *object, int depth)
{
    const fx_type *type = fx_type_of(object);
    void *known;
    if (fxi_is_leaf(object) || fx_is_error(object) || depth > FXI_MAX_DEPTH || s->failed)
        return 0;
    if (fxi_identity_get(&s->known, object, &known))
        return (int64_t)(intptr_t)known;
    const fx_layer *layer = fx_layer_of(type);
    const bool known_layout = layer && layer->layout_bytes;
    int64_t bytes = known_layout ? layer->layout_bytes(object) : type->layout_bytes;
    const bool plain =
        !known_layout && !bytes && !(type->flags & (FX_TYPE_SEQUENCE | FX_TYPE_TUPLE));
    fxi_parts it = {.object = object, .frozen = true};
    for (fxi_part p; fxi_next_part(&it, &p);)
        if (__builtin_add_overflow(bytes, part_bytes(s, &p, type, plain, depth), &bytes))
            bytes = INT64_MAX; /* reached by 2^60 paths: the sum would overflow */
    s->failed |= !fxi_identity_put(&s->known, object, (void *)(intptr_t)bytes);
    return bytes;
}

int64_t fxi_struct_bytes(fx_text *text, const void *object)
{
    sizes s = {.failed = false};
    const int64_t bytes = struct_bytes(&s, object, 0);
    text->failed |= s.failed;
    fxi_identity_free(&s.known);
    return bytes;
}
