/* closure_layer.c: the layer type for small anonymous Julia functions: see closure_layer.h. */
#include "closure_layer.h"
#include "julia_number.h"
#include "object_types.h"
#include "option_struct.h"

#include <cflux/nn.h>

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

/* As Julia's literal: 2, 2.0 or 2.0f0. */
static void number_text(const fxi_closure_layer *l, char dst[FXI_NUMBER_TEXT])
{
    const int64_t whole = l->literal == FX_DTYPE_I64 ? (int64_t)l->number : 0;
    const float narrow = (float)l->number;
    const void *element = l->literal == FX_DTYPE_I64   ? (const void *)&whole
                          : l->literal == FX_DTYPE_F32 ? (const void *)&narrow
                                                       : &l->number;
    fxi_number_text((fx_dtype)l->literal, element, FXI_NUMBER_ALONE, dst);
}

static void closure_describe(const void *self, fx_text *text)
{
    const fxi_closure_layer *l = self;
    if (l->op != 'r') {
        char number[FXI_NUMBER_TEXT];
        number_text(l, number);
        if (l->number_first)
            fx_text_add(text, "x -> %s .%c x", number, (char)l->op);
        else
            fx_text_add(text, "x -> x .%c %s", (char)l->op, number);
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

void *fxi_closure_pool(bool max, const fx_dims *window)
{
    FXI_DEFAULT_OPTIONS(fx_maxpool_args, FXI_MAXPOOL_ARGS, p);
    p.window = *window;
    return (max ? fxi_maxpool : fxi_meanpool)(&p);
}

void *fxi_closure_whole(int n, void *const *layers)
{
    return n == 0 ? (void *)FX_IDENTITY : n == 1 ? layers[0] : fxi_chain(n, layers);
}

bool fxi_takes_whole_array(const fx_function *f)
{
    return f == FX_IDENTITY || f == FX_SOFTMAX || f == FX_LOGSOFTMAX || f == FX_FLATTEN ||
           f == FX_VEC || f == FX_ONLY;
}

const fxi_closure_layer *fxi_closure_of(const void *object)
{
    return fx_is(object, &closure_type) ? object : NULL;
}
