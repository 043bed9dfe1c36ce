/* closure_layer.c: the layer type for small anonymous Julia functions: see closure_layer.h. */
#include "closure_layer.h"
#include "c_text.h"
#include "julia_number.h"
#include "object_types.h"
#include "option_struct.h"

#include <cflux/nn.h>
#include <string.h>

/* Enough for the 8 operations that a function has at most: each adds a number or a name, two
 * parentheses and four more characters. */
enum { ACTIVATION_TEXT = 640 };

static const struct activation_op {
    char op;
    const char *name;
    fx_array *(*apply)(fx_array *x, double parameter);
} ACTIVATIONS[] = {{'l', "leakyrelu", fx_leakyrelu_slope},
                   {'e', "elu", fx_elu_alpha},
                   {'c', "celu", fx_celu_alpha},
                   {'s', "softshrink", fx_softshrink_lambda},
                   {'t', "trelu", fx_trelu_theta}};
enum { NACTIVATIONS = sizeof ACTIVATIONS / sizeof ACTIVATIONS[0] };

static const struct activation_op *activation_of(const fxi_closure_layer *l)
{
    for (int i = 0; i < NACTIVATIONS; i++)
        if (ACTIVATIONS[i].op == (char)l->op)
            return &ACTIVATIONS[i];
    return NULL;
}

char fxi_closure_op_named(const char *name)
{
    for (int i = 0; i < NACTIVATIONS; i++)
        if (strcmp(ACTIVATIONS[i].name, name) == 0)
            return ACTIVATIONS[i].op;
    return 0;
}

static fx_array *arithmetic(const fxi_closure_layer *l, fx_array *x)
{
    switch (l->op) {
    case '*':
        return fx_mul(x, l->number);
    case '+':
        return fx_add(x, l->number);
    case '-':
        return l->number_first ? fx_sub(l->number, x) : fx_sub(x, l->number);
    case '/':
        return l->number_first ? fx_div(l->number, x) : fx_div(x, l->number);
    default: /* ^ */
        return l->number_first              ? fx_pow(l->number, x)
               : l->literal == FX_DTYPE_I64 ? fx_pow(x, (int64_t)l->number)
                                            : fx_pow(x, l->number);
    }
}

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
    const struct activation_op *activation = activation_of(l);
    return activation     ? activation->apply(x, l->number)
           : l->op == 'r' ? fxi_reshape(x, (int)l->dims.n, sizes)
                          : arithmetic(l, x);
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

/* 2 .* x or leakyrelu.(x, 0.2f0), where `x` may be another expression. */
static int arithmetic_text(const fxi_closure_layer *l, const char *x, char *dst, size_t capacity)
{
    char number[FXI_NUMBER_TEXT];
    const struct activation_op *activation = activation_of(l);
    number_text(l, number);
    if (activation)
        return fxi_snprintf(dst, capacity, "%s.(%s, %s)", activation->name, x, number);
    return l->number_first ? fxi_snprintf(dst, capacity, "%s .%c %s", number, (char)l->op, x)
                           : fxi_snprintf(dst, capacity, "%s .%c %s", x, (char)l->op, number);
}

static void closure_describe(const void *self, fx_text *text)
{
    const fxi_closure_layer *l = self;
    if (l->op != 'r') {
        char body[2 * FXI_NUMBER_TEXT];
        arithmetic_text(l, "x", body, sizeof body);
        fx_text_add(text, "x -> %s", body);
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

/* ---- activations ----------------------------------------------------------------------------- */

/* function.name points to `text`. */
typedef struct activation {
    fx_function function;
    fx_list parts;
    char text[ACTIVATION_TEXT];
} activation;

static void *activation_forward(void *self, int n, void *const *args)
{
    const fx_list *parts = &((activation *)self)->parts;
    FXI_SCOPE;
    void *x = fxi_call(parts->items[0], n, args);
    for (int64_t i = 1; i < parts->n; i++)
        x = fx_call(parts->items[i], x);
    return fx_keep(x);
}

/* A C function has no pointer to its object. */
static fx_array *activation_apply(fx_array *x)
{
    (void)x;
    return fx_error_array(fx_fail(FX_STATUS_ARGUMENT, "call",
                                  "an anonymous function is called with fx_call, not through its "
                                  "member apply"));
}

static const fx_field activation_fields[] = {
    {"parts", offsetof(activation, parts), FX_FIELD_LIST, false}};
static activation activation_error = {.function = {.apply = activation_apply, .name = "error"}};
static const fx_type activation_type = {.fxi_size = sizeof(fx_type),
                                        .name = "Function",
                                        .size = sizeof(activation),
                                        .fields = activation_fields,
                                        .nfields = 1,
                                        .forward = activation_forward,
                                        .error = &activation_error,
                                        .flags =
                                            FX_TYPE_FUNCTION | FX_TYPE_ONE_LINE | FX_TYPE_INTERNAL};

/* x -> (tanh.(x) .+ 1) ./ 2: an operation on the result of another one needs parentheses. */
static void activation_text(const fx_list *parts, char dst[ACTIVATION_TEXT])
{
    char inner[ACTIVATION_TEXT], all[ACTIVATION_TEXT] = "x";
    bool arithmetic = false;
    for (int64_t i = 0; i < parts->n; i++) {
        const fxi_closure_layer *l = fxi_closure_of(parts->items[i]);
        const fx_function *f = parts->items[i];
        const bool operation = l && !activation_of(l);
        fxi_snprintf(inner, sizeof inner, operation && arithmetic ? "(%s)" : "%s", all);
        if (l)
            arithmetic_text(l, inner, all, sizeof all);
        else
            fxi_snprintf(all, sizeof all, "%s.(%s)", f->name, inner);
        arithmetic = operation;
    }
    fxi_snprintf(dst, ACTIVATION_TEXT, "x -> %s", all);
}

fx_function *fxi_closure_activation(int n, void *const *layers)
{
    if (n == 0 || (n == 1 && !fxi_closure_of(layers[0])))
        return n ? layers[0] : FX_IDENTITY;
    activation init = {.function = {.apply = activation_apply},
                       .parts = {.n = n, .items = (void **)(uintptr_t)layers}};
    activation_text(&init.parts, init.text);
    activation *made = fxi_new(&activation_type, &init);
    if (!fx_is_error(made))
        made->function.name = made->text;
    return &made->function;
}

const fx_list *fxi_closure_parts(const void *object)
{
    return fx_is(object, &activation_type) ? &((const activation *)object)->parts : NULL;
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
