/* test_every_layer.c: what holds for every layer, checked for every row of layer_cases.h: gradients
 * against central differences, printing and notation, files of Flux, state dictionaries, 16-bit
 * floats, errors, and equal results on every device. ctest: timeout=1200 */
#include "semantics_check.h"

#include <stdlib.h>

#include "layer_cases.h"
#include "temp_file.h"

enum { CASES = sizeof layer_cases / sizeof *layer_cases, MOST_ARRAYS = 64, MOST_ELEMENTS = 4096 };

#define FOR_EACH_CASE(c)                                                                           \
    for (const layer_case *c = layer_cases; c < layer_cases + CASES && (fx_seed(7), true); c++)

/* ---- models, inputs, results ----------------------------------------------------------------- */

/* Distinct numbers in every parameter, so that zeros and ones do not hide mistakes. */
static void *shaken(const layer_case *c)
{
    void *model = fx_parse_model(c->text);
    if (!model || fx_is_array(model) || fx_error_status() != FX_OK)
        fail_msg("%s: %s", c->text, fx_error_take().message);
    void *arrays = fx_trainables(model);
    for (int64_t i = 0; i < fx_count(arrays); i++) {
        fx_array *p = fx_child(arrays, i);
        int64_t sizes[FX_MAX_DIMS];
        for (int k = 0; k < fx_ndims(p); k++)
            sizes[k] = fx_size(p, k);
        fx_array *noise = fx_mul(0.3, fxi_randn(FX_DTYPE_F32, fx_ndims(p), sizes));
        assert_int_equal(fx_copy_into(p, fx_add(p, noise)), FX_OK);
    }
    return model;
}

static int inputs_of(const layer_case *c, fx_dtype type, fx_array **out)
{
    int n = 0;
    for (; n < 3 && c->inputs[n].ndims; n++) {
        const layer_input *in = &c->inputs[n];
        out[n] = fxi_randn(FX_DTYPE_F32, in->ndims, in->sizes);
        out[n] = in->labels
                     ? fx_cast(fx_floor(fx_mul((double)in->labels,
                                               fxi_rand(FX_DTYPE_F32, in->ndims, in->sizes))),
                               FX_DTYPE_I64)
                     : fx_cast(out[n], type);
        assert_int_equal(fx_eval(out[n]), FX_OK);
    }
    return n;
}

/* The floating-point arrays of a result: one, or those of a tuple. */
static int outputs_of(void *y, fx_array **out, int n)
{
    if (y && fx_is_array(y)) {
        const fx_dtype t = fx_eltype(y);
        if (t != FX_DTYPE_BOOL && t != FX_DTYPE_I64 && t != FX_DTYPE_I32) {
            assert_true(n < MOST_ARRAYS);
            out[n++] = y;
        }
        return n;
    }
    for (int64_t i = 0; y && i < fx_count(y); i++)
        n = outputs_of(fx_child(y, i), out, n);
    return n;
}

static void *called(void *model, int n, fx_array *const *inputs)
{
    fx_seed(11); /* the same dropout in every call */
    return fxi_call(model, n, (void *const *)inputs);
}

/* A number that depends on every element of every output. */
static fx_array *loss_of(const char *text, void *model, int n, fx_array *const *inputs)
{
    fx_array *out[MOST_ARRAYS], *sum = NULL;
    const int count = outputs_of(called(model, n, inputs), out, 0);
    for (int k = 0; k < count; k++) {
        fx_array *flat = fx_vec(out[k]);
        fx_array *weights =
            fx_cos(fx_add(fx_range_dtype(FX_DTYPE_F64, 0.3 + k, 0.7, fx_length(flat)), 0.1));
        fx_array *part = fx_sum(fx_mul(flat, fx_cast(weights, fx_eltype(flat))));
        sum = sum ? fx_add(sum, part) : part;
    }
    if (!sum || fx_is_error(sum))
        fail_msg("%s: %s", text, fx_error_take().message);
    return sum;
}

static double value_of(const char *text, void *model, bool training, int n, fx_array *const *inputs)
{
    FX_SCOPE;
    double value = 0;
    if (training) {
        FX_STEP;
        value = fx_item(loss_of(text, model, n, inputs));
    } else {
        value = fx_item(loss_of(text, model, n, inputs));
    }
    return value;
}

static int64_t read_all(const char *text, fx_array *x, double *out)
{
    const int64_t n = fx_length(x);
    assert_true(n <= MOST_ELEMENTS);
    check_read(text, x, out, n);
    return n;
}

/* ---- every layer has a row ------------------------------------------------------------------- */

static void every_layer_has_a_row(void **state)
{
    (void)state;
    int layers = 0;
    const fx_type *type;
    for (; (type = fx_layer_type(layers)); layers++) {
        char name[100];
        bool found = false;
        snprintf(name, sizeof name, "%s(", type->name);
        FOR_EACH_CASE(c)
        {
            const char *at = strstr(c->text, name);
            found |= at && (at == c->text || strchr(" (", at[-1]));
        }
        if (!found)
            fail_msg("layer %s has no row in layer_cases.h", type->name);
    }
    assert_true(layers >= 8);
}

/* ---- gradients ------------------------------------------------------------------------------- */

/* The gradient of x, at up to 24 elements, against central differences of the loss. */
static int64_t check_differences(const char *text, void *model, bool training, int n,
                                 fx_array *const *inputs, fx_array *x, fx_array *gradient)
{
    double values[MOST_ELEMENTS], slopes[MOST_ELEMENTS];
    int64_t sizes[FX_MAX_DIMS], checked = 0;
    const int64_t length = read_all(text, x, values), stride = length / 24 + 1;
    assert_int_equal(read_all(text, gradient, slopes), length);
    for (int k = 0; k < fx_ndims(x); k++)
        sizes[k] = fx_size(x, k);
    for (int64_t i = 0; i < length; i += stride, checked++) {
        FX_SCOPE;
        const double at = values[i], h = 1e-5;
        double side[2];
        for (int k = 0; k < 2; k++) {
            values[i] = k ? at + h : at - h;
            assert_int_equal(fx_copy_into(x, fxi_from(FX_DTYPE_F64, values, fx_ndims(x), sizes)),
                             FX_OK);
            side[k] = value_of(text, model, training, n, inputs);
        }
        values[i] = at;
        assert_int_equal(fx_copy_into(x, fxi_from(FX_DTYPE_F64, values, fx_ndims(x), sizes)),
                         FX_OK);
        check_value(text, i, slopes[i], (side[1] - side[0]) / (2 * h), 2e-5, 2e-6);
    }
    return checked;
}

static int64_t check_slopes(const layer_case *c, bool training)
{
    FX_SCOPE;
    void *model = fx_f64(shaken(c)), *arrays = fx_trainables(model);
    fx_array *inputs[3], *x[MOST_ARRAYS], *g[MOST_ARRAYS];
    const int n = inputs_of(c, FX_DTYPE_F64, inputs);
    int nx = 0;
    for (int64_t i = 0; i < fx_count(arrays); i++)
        x[nx++] = fx_child(arrays, i);
    for (int i = 0; i < n; i++)
        if (fx_eltype(inputs[i]) == FX_DTYPE_F64)
            x[nx++] = inputs[i];
    if (training) {
        FX_STEP;
        assert_int_equal(fx_gradient_of(loss_of(c->text, model, n, inputs), x, nx, g), FX_OK);
        for (int i = 0; i < nx; i++) {
            assert_int_equal(fx_eval(g[i]), FX_OK);
            fx_keep(g[i]);
        }
    } else {
        assert_int_equal(fx_gradient_of(loss_of(c->text, model, n, inputs), x, nx, g), FX_OK);
    }
    int64_t checked = 0;
    for (int i = 0; i < nx; i++)
        checked += check_differences(c->text, model, training, n, inputs, x[i], g[i]);
    return checked;
}

static void gradients_agree_with_differences(void **state)
{
    (void)state;
    int64_t checked = 0;
    FOR_EACH_CASE(c)
    {
        checked += check_slopes(c, false);
        checked += check_slopes(c, true);
    }
    assert_true(checked >= 40 * CASES);
}

/* ---- printing and notation ------------------------------------------------------------------- */

static void prints_and_reads_its_notation(void **state)
{
    (void)state;
    FOR_EACH_CASE(c)
    {
        FX_SCOPE;
        char text[500], again[500];
        fx_summary(fx_parse_model(c->text), text, sizeof text);
        assert_string_equal(text, c->printed ? c->printed : c->text);
        fx_summary(fx_parse_model(text), again, sizeof again);
        assert_string_equal(again, text);
    }
}

/* ---- files ----------------------------------------------------------------------------------- */

typedef struct array_list {
    fx_array *x[MOST_ARRAYS];
    int n;
} array_list;

static void list_array(fx_array *x, const char *path, bool trainable, void *user)
{
    array_list *list = user;
    (void)path, (void)trainable;
    assert_true(list->n < MOST_ARRAYS);
    list->x[list->n++] = x;
}

static void same_bits(const char *text, fx_array *a, fx_array *b)
{
    double x[MOST_ELEMENTS], y[MOST_ELEMENTS];
    assert_int_equal(fx_eltype(a), fx_eltype(b));
    const int64_t n = read_all(text, a, x);
    assert_int_equal(read_all(text, b, y), n);
    for (int64_t i = 0; i < n; i++)
        check_value(text, i, y[i], x[i], 0, 0);
}

/* Same arrays, same settings, same results. */
static void same_model(const char *text, void *a, void *b, int n, fx_array *const *inputs)
{
    char one[500], other[500];
    array_list x = {.n = 0}, y = {.n = 0};
    fx_array *outa[MOST_ARRAYS], *outb[MOST_ARRAYS];
    if (!b || fx_is_array(b))
        fail_msg("%s: %s", text, fx_error_take().message);
    fx_summary(a, one, sizeof one);
    fx_summary(b, other, sizeof other);
    assert_string_equal(one, other);
    fx_visit(a, list_array, &x);
    fx_visit(b, list_array, &y);
    assert_int_equal(x.n, y.n);
    for (int i = 0; i < x.n; i++)
        same_bits(text, x.x[i], y.x[i]);
    const int na = outputs_of(called(a, n, inputs), outa, 0);
    assert_int_equal(outputs_of(called(b, n, inputs), outb, 0), na);
    for (int i = 0; i < na; i++)
        same_bits(text, outa[i], outb[i]);
}

/* A model whose states have changed in a training step. */
static void *trained(const layer_case *c, fx_array **inputs, int *n)
{
    void *model = shaken(c);
    *n = inputs_of(c, FX_DTYPE_F32, inputs);
    value_of(c->text, model, true, *n, inputs);
    return model;
}

static void keeps_its_bits_in_bson(void **state)
{
    (void)state;
    int written = 0;
    FOR_EACH_CASE(c)
    {
        FX_SCOPE;
        fx_array *inputs[3];
        int n;
        void *model = trained(c, inputs, &n);
        const char *path = temp_file("layer.bson", "", 0);
        if (c->no_bson) {
            assert_int_equal(fx_save(path, "model", model), FX_STATUS_UNSUPPORTED);
            fx_error_take();
            continue;
        }
        if (fx_save(path, "model", model) != FX_OK)
            fail_msg("%s: %s", c->text, fx_error_take().message);
        same_model(c->text, model, fx_load_key(path, "model"), n, inputs);
        written++;
    }
    assert_true(written >= 14);
}

static void keeps_its_bits_in_states(void **state)
{
    (void)state;
    FOR_EACH_CASE(c)
    {
        FX_SCOPE;
        fx_array *inputs[3];
        int n;
        void *model = trained(c, inputs, &n);
        array_list x = {.n = 0};
        fx_visit(model, list_array, &x);
        void *copy = fx_parse_model(c->text);
        assert_int_equal(fx_loadmodel(copy, fx_state(model)), FX_OK);
        same_model(c->text, model, copy, n, inputs);
        if (x.n == 0)
            continue;
        const char *path = temp_file("layer.safetensors", "", 0);
        copy = fx_parse_model(c->text);
        if (fx_save(path, "", fx_torch_state(model)) != FX_OK ||
            fx_load_torch_state(copy, fx_load(path)) != FX_OK)
            fail_msg("%s: %s", c->text, fx_error_take().message);
        same_model(c->text, model, copy, n, inputs);
    }
}

/* ---- element types --------------------------------------------------------------------------- */

/* Half the digits of the type are lost in sums of a few products. */
static void works_with_16_bit_floats(void **state)
{
    (void)state;
    static const struct {
        fx_dtype type;
        double tolerance;
    } types[] = {{FX_DTYPE_F16, 0.02}, {FX_DTYPE_BF16, 0.12}};
    FOR_EACH_CASE(c)
    for (int t = 0; t < 2; t++) {
        FX_SCOPE;
        fx_array *inputs[3], *out[MOST_ARRAYS], *exact[MOST_ARRAYS];
        double got[MOST_ELEMENTS], want[MOST_ELEMENTS];
        void *model = shaken(c);
        int n = inputs_of(c, types[t].type, inputs);
        void *small = fxi_in_precision(types[t].type, model);
        const int count = outputs_of(called(small, n, inputs), out, 0);
        for (int i = 0; i < n; i++)
            inputs[i] = c->inputs[i].labels ? inputs[i] : fx_cast(inputs[i], FX_DTYPE_F32);
        assert_int_equal(outputs_of(called(model, n, inputs), exact, 0), count);
        for (int k = 0; k < count; k++) {
            if (fx_is_error(out[k]) || fx_eltype(out[k]) != types[t].type)
                fail_msg("%s: %s, element type %d", c->text, fx_error_take().message,
                         (int)fx_eltype(out[k]));
            const int64_t length = read_all(c->text, out[k], got);
            read_all(c->text, exact[k], want);
            for (int64_t i = 0; i < length; i++)
                check_value(c->text, i, got[i], want[i], types[t].tolerance, types[t].tolerance);
        }
    }
}

/* ---- devices --------------------------------------------------------------------------------- */

/* Outputs, then the gradients of parameters and inputs, on a device. */
static int results_on(const layer_case *c, fx_device *device, bool training, fx_array **out)
{
    fx_array *inputs[3], *x[MOST_ARRAYS];
    fx_seed(7);
    void *model = fx_to(device, shaken(c)), *arrays = fx_trainables(model);
    int n = inputs_of(c, FX_DTYPE_F32, inputs), nx = 0;
    for (int i = 0; i < n; i++)
        inputs[i] = fx_array_to(device, inputs[i]);
    for (int64_t i = 0; i < fx_count(arrays); i++)
        x[nx++] = fx_child(arrays, i);
    for (int i = 0; i < n; i++)
        if (!c->inputs[i].labels)
            x[nx++] = inputs[i];
    int count = 0;
    if (training) {
        FX_STEP;
        fx_gradient_of(loss_of(c->text, model, n, inputs), x, nx, out);
        for (count = 0; count < nx; count++) {
            fx_eval(out[count]);
            fx_keep(out[count]);
        }
        return count;
    }
    fx_gradient_of(loss_of(c->text, model, n, inputs), x, nx, out);
    return outputs_of(called(model, n, inputs), out, nx);
}

static void compare_with_ref(const layer_case *c, fx_device *device, bool training)
{
    FX_SCOPE;
    fx_array *got[MOST_ARRAYS], *want[MOST_ARRAYS];
    double x[MOST_ELEMENTS], y[MOST_ELEMENTS];
    char what[200];
    const int n = results_on(c, device, training, got);
    assert_int_equal(results_on(c, fx_device_get("ref", 0), training, want), n);
    for (int k = 0; k < n; k++) {
        snprintf(what, sizeof what, "%s on %s, result %d", c->text, fx_device_name(device), k);
        const int64_t length = read_all(what, got[k], x);
        assert_int_equal(read_all(what, want[k], y), length);
        for (int64_t i = 0; i < length; i++)
            check_value(what, i, x[i], y[i], 2e-4, 5e-5);
    }
}

static void is_the_same_on_every_device(void **state)
{
    (void)state;
    static const char *const names[] = {"cpu", "check:cpu:0", "opencl:0"};
    assert_int_equal(fx_use("check:cpu"), FX_OK);
    int devices = 0;
    for (int k = 0; k < 3; k++) {
        fx_device *device = k == 2 && !getenv("FX_PLUGIN_PATH") ? NULL : fx_device_find(names[k]);
        if (fx_error_take().status != FX_OK || !device) {
            assert_int_equal(k, 2);
            print_message("skipped: no OpenCL device\n");
            continue;
        }
        devices++;
        /* OpenCL's compiler takes a second for a layer: a quarter of them, from CFLUX_SEED on. */
        const char *seed = getenv("CFLUX_SEED");
        const int every = k == 2 ? 4 : 1, from = seed ? atoi(seed) % every : 0;
        FOR_EACH_CASE(c)
        {
            if ((c - layer_cases) % every != from)
                continue;
            compare_with_ref(c, device, false);
            compare_with_ref(c, device, true);
        }
    }
    assert_true(devices >= 2);
}

/* ---- mistakes -------------------------------------------------------------------------------- */

static void mistakes_are_errors(void **state)
{
    (void)state;
    FOR_EACH_CASE(c)
    {
        FX_SCOPE;
        void *model = fx_parse_model(c->text);
        void *broken = fx_error_object(fx_type_of(model));
        fx_array *x = fxi_randn(FX_DTYPE_F32, c->inputs[0].ndims, c->inputs[0].sizes);
        assert_true(fx_is_error(fx_call(broken, x)));
        assert_true(fx_is_error(fx_call(model, NULL)));
        assert_int_equal(fx_error_take().status, FX_STATUS_ARGUMENT);
        assert_true(fx_is_error(fx_call(model, fx_error_array(FX_STATUS_SHAPE))));
        fx_call(model, x, x, x, x); /* four inputs: an error, or a layer that takes them */
        fx_call(model, fx_ones(3, 1, 2, 5));
        fx_call(model, fx_full(0, 0));
        fx_error_take();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_layer_has_a_row),         TEST(gradients_agree_with_differences),
        TEST(prints_and_reads_its_notation), TEST(keeps_its_bits_in_bson),
        TEST(keeps_its_bits_in_states),      TEST(works_with_16_bit_floats),
        TEST(is_the_same_on_every_device),   TEST(mistakes_are_errors),
    };
    return cmocka_run_group_tests_name("every_layer", tests, NULL, NULL);
}
