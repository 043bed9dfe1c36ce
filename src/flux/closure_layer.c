/* closure_layer.c: the layer type for small anonymous Julia functions: see closure_layer.h. */
#include "closure_layer.h"
#include "object_types.h"

#include <cflux/ops.h>

static void *closure_forward(void *self, int n, void *const *args)
{
    const fxi_closure_layer *l = self;
    if (n != 1)
        return fx_error_array(
            fx_fail(FX_STATUS_ARGUMENT, "call", "x -> … takes one array, got %d arguments", n));
    if (!fx_is_array(args[0]))
        return fx_error_array(fx_fail(FX_STATUS_ARGUMENT, "call", "x -> … takes one array, got %s",
                                      fxi_type_name(args[0])));
    fx_array *x = args[0];
    int64_t sizes[2 * FX_MAX_DIMS];
    for (int64_t i = 0; i < l->dims.n; i++)
        sizes[i] = l->dims.v[i] >= -1 ? l->dims.v[i] : fx_size(x, (int)(-2 - l->dims.v[i]));
    switch (l->op) {
    case '*':
        return fx_mul(x, l->number);
    case '+':
        return fx_add(x, l->number);
    case '-':
        return l->number_first ? fx_sub(l->number, x) : fx_sub(x, l->number);
    case '/':
        return l->number_first ? fx_div(l->number, x) : fx_div(x, l->number);
    default:
        return fxi_reshape(x, (int)l->dims.n, sizes);
    }
}

static void closure_describe(const void *self, fx_text *text)
{
    const fxi_closure_layer *l = self;
    if (l->op != 'r') {
        if (l->number_first)
            fx_text_add(text, "x -> %g .%c x", l->number, (char)l->op);
        else
            fx_text_add(text, "x -> x .%c %g", (char)l->op, l->number);
        return;
    }
    fx_text_add(text, "x -> reshape(x");
    for (int64_t i = 0; i < l->dims.n; i++) {
        const int64_t d = l->dims.v[i];
        if (d == -1)
            fx_text_add(text, ", :");
        else if (d < 0)
            fx_text_add(text, ", size(x, %lld)", (long long)(-1 - d));
        else
            fx_text_add(text, ", %lld", (long long)d);
    }
    fx_text_add(text, ")");
}

static const fx_field closure_fields[] = {
    {"dims", offsetof(fxi_closure_layer, dims), FX_FIELD_DIMS, false},
    {"op", offsetof(fxi_closure_layer, op), FX_FIELD_INTEGER, false},
    {"number_first", offsetof(fxi_closure_layer, number_first), FX_FIELD_FLAG, false},
    {"number", offsetof(fxi_closure_layer, number), FX_FIELD_NUMBER, false},
    {"literal", offsetof(fxi_closure_layer, literal), FX_FIELD_INTEGER, false}};
static fxi_closure_layer closure_error;
static const fx_type closure_type = {.fxi_size = sizeof(fx_type),
                                     .name = "Closure",
                                     .size = sizeof(fxi_closure_layer),
                                     .fields = closure_fields,
                                     .nfields = 5,
                                     .forward = closure_forward,
                                     .describe = closure_describe,
                                     .error = &closure_error,
                                     .flags = FX_TYPE_ONE_LINE | FX_TYPE_INTERNAL};

void *fxi_closure_new(const fxi_closure_layer *init)
{
    return fxi_new(&closure_type, init);
}

const fxi_closure_layer *fxi_closure_of(const void *object)
{
    return fx_is(object, &closure_type) ? object : NULL;
}
