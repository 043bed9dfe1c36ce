/* test_layer_table.c: a layer of a program, made by FX_LAYER_TYPE as the library's are.
 *
 * Gate, y = act(rate .* (W·x .+ b)), has every kind of row: a parameter that is an option, a bias
 * that may be absent, a state that no option sets, members that are numbers, a function, axes. The
 * results of its table are compared with texts and numbers written here.
 */
#include "semantics_check.h"

#include "memory.h"
#include "temp_file.h"

#include <stddef.h>

typedef struct Gate {
    fx_object base;
    fx_array *weight, *bias, *seen; /* seen: a state, one number */
    fx_function *act;
    double rate, drift; /* drift: a member that is not an option */
    int64_t steps, active;
    fx_dims window, along;
    bool loud;
} Gate;

#define GATE_OPTIONS(F)                                                                            \
    F(int64_t, in, 0)                                                                              \
    F(int64_t, out, 0)                                                                             \
    F(fx_function *, act, FX_TANH)                                                                 \
    F(double, rate, 1)                                                                             \
    F(fx_dims, window, FXI_DIMS_ONE)                                                               \
    F(fx_axes, along, FXI_AXES_ALL)                                                                \
    F(int, bias, true)                                                                             \
    F(fx_active, active, FX_ACTIVE_AUTO)                                                           \
    F(fx_array *, weight_array, NULL)                                                              \
    F(fx_array *, bias_array, NULL)
FX_OPTIONS(gate_options, GATE_OPTIONS);

static void *gate_forward(void *self, int n, void *const *args)
{
    const Gate *g = self;
    (void)n;
    fx_array *y = fx_matmul(g->weight, (fx_array *)args[0]);
    y = fx_mul(g->rate, g->bias ? fx_add(y, g->bias) : y);
    return g->act->apply(y);
}

static bool gate_build(const fx_type *type, const void *options, void *self)
{
    const gate_options *o = options;
    Gate *g = self;
    const int64_t dims[] = {o->out, o->in};
    if (!g->weight && (o->in < 1 || o->out < 1)) {
        fx_fail(FX_STATUS_ARGUMENT, type->name, "sizes must be positive");
        return false;
    }
    g->weight = g->weight ? g->weight : fx_glorot_uniform(2, dims);
    g->bias = !o->bias ? NULL : g->bias ? g->bias : fx_zeros(fx_size(g->weight, 0));
    g->seen = fx_zeros(1);
    g->drift = 0.25;
    return true;
}

static bool gate_recover(const void *self, void *options)
{
    const Gate *g = self;
    gate_options *o = options;
    o->in = fx_size(g->weight, 1), o->out = fx_size(g->weight, 0);
    return true;
}

/* Until version 0.12 the file kept the root of the rate. */
static bool gate_from_flux(const fx_flux_source *source, void *options, void *self)
{
    gate_options *o = options;
    (void)self;
    if (source->nfields == 2)
        o->rate *= o->rate;
    return true;
}

/* clang-format off */
#define ROWS(M, O, F)                                                                              \
    O(in, PAIR, .positional = "in => out", .least = 1, .required = true)                                \
    M(weight, CHILD, FX_FROM(weight_array, MATRIX), .flux = "weight W", .torch = "kernel",         \
      .layout = FX_TORCH_LAYOUT_TRANSPOSED)                                                               \
    M(bias, CHILD, FX_FROM(bias_array, VECTOR), .flux = "bias")                                    \
    M(seen, BUFFER, .flux = "seen", .torch = "observed", .torch_count = "times")                   \
    M(act, SHARED, FX_FROM(act, FUNCTION), .positional = "a function", .flux = "σ")                     \
    M(rate, NUMBER, FX_FROM(rate, REAL), .names = "rate η", .flux = "rate root")                   \
    M(drift, NUMBER, .flux = "drift")                                                              \
    M(steps, INTEGER, .flux = "steps")                                                             \
    M(window, DIMS, FX_FROM(window, NUMBERS), .names = "window", .least = 1, .flux = "window")     \
    M(along, DIMS, FX_FROM(along, AXES), .names = "along", .least = 1, .flux = "along")            \
    M(active, INTEGER, FX_FROM(active, ACTIVE), .names = "active", .flux = "active")               \
    M(loud, FLAG, .flux = "loud")                                                                  \
    O(bias, BIAS, FX_PRESENT(bias), .names = "bias")
/* clang-format on */
#define NEWEST "weight bias seen σ rate drift steps window along active loud"
static const fx_flux_form forms[] = {
    {"W root", NULL, 0, 1199}, {NEWEST, "weight #window", 1200, 0}, {0}};
FX_LAYER_TYPE(Gate, Gate, gate_options, GATE_OPTIONS, ROWS,
              (.name = "Gate", .forward = gate_forward), .build = gate_build,
              .recover = gate_recover, .flux = "MyModels.Gate", .forms = forms,
              .from_flux = gate_from_flux);
#define gate(...) ((Gate *)FX_MAKE(Gate, gate_options, GATE_OPTIONS, in, __VA_ARGS__))

/* The struct as an old program wrote it. */
static const fx_flux_form old_forms[] = {{"W root", "", 0, 0}, {0}};
FX_LAYER_TYPE(Old, Gate, gate_options, GATE_OPTIONS, ROWS, (.name = "Old", .forward = gate_forward),
              .build = gate_build, .flux = "MyModels.Gate", .forms = old_forms);

static const char *summary(void *object)
{
    static char text[400];
    fx_summary(object, text, sizeof text);
    return text;
}

static void fails_with(const char *message)
{
    const fx_error e = fx_error_take();
    assert_string_equal(e.message, message);
}

static void constructed_and_printed(void **state)
{
    FX_SCOPE;
    (void)state;
    assert_string_equal(summary(gate(2, 3)), "Gate(2 => 3)");
    assert_string_equal(summary(gate(2, 3, FX_IDENTITY)), "Gate(2 => 3, identity)");
    Gate *g = gate(2, 3, FX_RELU, 0.5, .window = FX_DIMS(2, 3), .along = FX_AXES(0, 2),
                   .bias = false, .active = FX_ACTIVE_ON);
    assert_string_equal(
        summary(g),
        "Gate(2 => 3, relu, rate=0.5, window=(2, 3), along=(1, 3), active=true, bias=false)");
    assert_true(!g->bias && g->drift == 0.25 && g->along.n == 2 && g->along.v[1] == 2);
    assert_int_equal(fx_count(fx_trainables(gate(2, 3))), 2); /* not the state */
    assert_true(fx_is_error(gate(0, 3)));
    fails_with("Gate: sizes must be positive");
    assert_true(fx_is_error(gate(2, 3, .weight_array = fx_error_array(FX_STATUS_SHAPE))));
    fx_error_take();
}

static void copied_by_its_options(void **state)
{
    FX_SCOPE;
    (void)state;
    char text[400];
    Gate *g = gate(4, 2, FX_GELU, .window = FX_DIMS(7), .bias = false);
    gate_options o = {.fxi_size = sizeof o};
    assert_true(fx_layer_options(g, &o));
    assert_true(o.in == 4 && o.out == 2 && o.act == FX_GELU && !o.bias && o.window.v[0] == 7);
    assert_true(o.weight_array == g->weight);
    o.weight_array = NULL;
    Gate *copy = fx_layer_make(fxi_type_Gate(), &o);
    snprintf(text, sizeof text, "%s", summary(g));
    assert_string_equal(summary(copy), text);
    assert_true(copy->weight != g->weight);
    assert_false(fx_layer_options(fx_chain(g), &o));
    assert_int_equal(fx_error_take().status, FX_OK);
}

static void known_to_the_notation(void **state)
{
    FX_SCOPE;
    (void)state;
    static const char begin[] = "model, column 1: unknown layer Gate; known are Dense, Conv, ";
    assert_true(fx_is_error(fx_parse_model("Gate(2 => 3)")));
    const fx_error e = fx_error_take(); /* test_notation.c checks the whole list */
    assert_memory_equal(e.message, begin, sizeof begin - 1);
    assert_null(strstr(e.message + sizeof begin, "Gate"));
    assert_int_equal(fx_register_layer(fxi_type_Gate()), FX_OK);
    assert_int_equal(fx_register_layer(fxi_type_Gate()), FX_OK);
    void *m =
        fx_parse_model("Chain(f = Gate(2 => 3, relu; η=0.5, along=:), g = Gate(3, 1, bias=false))");
    assert_string_equal(summary(fx_child(m, 0)), "Gate(2 => 3, relu, rate=0.5)");
    assert_string_equal(summary(fx_child(m, 1)), "Gate(3 => 1, bias=false)");
    assert_true(fx_is_error(fx_parse_model("Gate(2 => 3; bais=1)")));
    fails_with(
        "model, column 14: Gate has no option bais; it has rate, window, along, active, bias");
    assert_true(fx_is_error(fx_parse_model("Wall(2)")));
    const fx_error after = fx_error_take();
    const char *gate = strstr(after.message, ", Gate"), *cut = strstr(after.message, ", …");
    assert_true((gate && !gate[6]) || (cut && !cut[5]));
}

static void registered_once(void **state)
{
    (void)state;
    int64_t n = 0, gates = 0;
    for (; fx_layer_type(n); n++)
        gates += fx_layer_type(n) == fxi_type_Gate();
    assert_true(n >= 9 && gates == 1);
    assert_ptr_equal(fx_layer_type(n - 1), fxi_type_Gate()); /* after those of the library */
    assert_null(fx_layer_type(-1));
    assert_int_equal(fx_register_layer(fxi_type_Old()), FX_STATUS_ARGUMENT);
    fails_with("register_layer: Old and the registered type Gate have the same name in files, "
               "MyModels.Gate");
    assert_int_equal(fx_register_layer(fx_type_of(FX_RELU)), FX_STATUS_ARGUMENT);
    fx_error_take();
    assert_int_equal(fx_register_layer(NULL), FX_STATUS_ARGUMENT);
    fx_error_take();
}

static void in_files_of_flux(void **state)
{
    FX_SCOPE;
    (void)state;
    const char *path = temp_file("gate.bson", "", 0);
    Gate *g = gate(2, 3, FX_RELU, 0.5, .window = FX_DIMS(2, 3), .along = FX_AXES(2), .bias = false,
                   .active = FX_ACTIVE_OFF);
    g->drift = 3, g->steps = 41, g->loud = true;
    fx_set(&g->seen, fx_vector(7));
    assert_int_equal(fx_save(path, "model", fx_chain(g, fx_dense(3, 1))), FX_OK);
    Gate *read = fx_child(fx_load_key(path, "model"), 0);
    assert_true(fx_is(read, fxi_type_Gate()));
    assert_string_equal(summary(read), "Gate(2 => 3, relu, rate=0.5, window=(2, 3), along=3, "
                                       "active=false, bias=false)");
    assert_true(read->drift == 3 && read->steps == 41 && read->loud && !read->bias);
    assert_true(fx_at(read->seen, 0) == 7 && fx_at(read->weight, 5) == fx_at(g->weight, 5));

    void *names = fx_flux_state(g);
    assert_string_equal(fx_child_name(names, 0), "weight");
    assert_string_equal(fx_child_name(names, 10), "loud");
    assert_int_equal(fx_error_take().status, FX_OK);
}

static void of_an_older_version(void **state)
{
    FX_SCOPE;
    (void)state;
    const char *path = temp_file("old.bson", "", 0);
    Gate *old = FX_MAKE(Old, gate_options, GATE_OPTIONS, in, 2, 3, .rate = 3);
    assert_int_equal(fx_save(path, "model", old), FX_OK);
    Gate *read = fx_load_key(path, "model");
    assert_string_equal(summary(read), "Gate(2 => 3, rate=9.0)");
    assert_true(fx_at(read->weight, 4) == fx_at(old->weight, 4) && read->bias);
    assert_int_equal(fx_error_take().status, FX_OK);
}

static void in_state_dictionaries(void **state)
{
    FX_SCOPE;
    (void)state;
    Gate *g = gate(2, 3), *other = gate(2, 3);
    void *s = fx_torch_state(fx_chain(g));
    static const char *const names[] = {"0.kernel", "0.bias", "0.observed", "0.times"};
    assert_int_equal(fx_count(s), 4);
    for (int i = 0; i < 4; i++)
        assert_string_equal(fx_child_name(s, i), names[i]);
    assert_true(fx_size(fx_child(s, 0), 0) == 2 && fx_at(fx_child(s, 0), 5) == fx_at(g->weight, 5));
    assert_int_equal(fx_load_torch_state(fx_chain(other), s), FX_OK);
    assert_true(fx_at(other->weight, 5) == fx_at(g->weight, 5));
    assert_int_equal(fx_error_take().status, FX_OK);
}

static void in_training_mode(void **state)
{
    FX_SCOPE;
    (void)state;
    Gate *g = gate(2, 3);
    assert_int_equal(fx_trainmode(fx_chain(g)), FX_OK);
    assert_int_equal(g->active, FX_ACTIVE_ON);
    assert_int_equal(fx_testmode(g), FX_OK);
    assert_int_equal(g->active, FX_ACTIVE_OFF);
}

/* A descriptor of an older program ends before `layer`; rows of a newer one are longer. */
static void of_other_headers(void **state)
{
    FX_SCOPE;
    (void)state;
    fx_type old = *fxi_type_Gate();
    old.fxi_size = offsetof(fx_type, layer);
    old.describe = NULL;
    old.layer = (const fx_layer *)(const void *)&old; /* the bytes after an older struct */
    assert_null(fx_layer_of(&old));
    Gate *g = fxi_new(&old, gate(2, 3));
    assert_true(strncmp(summary(g), "Gate(", 5) == 0);
    assert_int_equal(fx_trainmode(g), FX_OK);
    assert_int_equal(g->active, FX_ACTIVE_AUTO);

    static struct {
        fx_layer_row row;
        char more[24];
    } longer[20];
    fx_layer layer = *fx_layer_of(fxi_type_Gate());
    assert_true(layer.nrows <= 20);
    for (int i = 0; i < layer.nrows; i++) {
        longer[i].row = layer.rows[i];
        memset(longer[i].more, 0xa5, sizeof longer[i].more);
    }
    layer.rows = &longer[0].row;
    layer.row_size = sizeof longer[0];
    fx_type newer = *fxi_type_Gate();
    newer.layer = &layer;
    const gate_options o = {.fxi_size = sizeof o, GATE_OPTIONS(FXI_DEFAULT)};
    gate_options given = o;
    given.in = 3, given.out = 2, given.rate = 0.125;
    assert_string_equal(summary(fx_layer_make(&newer, &given)), "Gate(3 => 2, rate=0.125)");
    given.fxi_size = offsetof(gate_options, window); /* the options of an older program */
    given.bias = false;
    assert_string_equal(summary(fx_layer_make(&newer, &given)), "Gate(3 => 2, rate=0.125)");
}

/* A text without options would be another layer's: each failing allocation is seen or does nothing.
 */
static void printed_without_memory(void **state)
{
    FX_SCOPE;
    (void)state;
    char whole[400], text[400];
    void *layers[] = {gate(2, 3, FX_RELU, 0.5, .bias = false), fx_dense(2, 3, FX_TANH),
                      fx_conv(FX_DIMS(3), 1, 2, .stride = FX_DIMS(2)), fx_batchnorm(5, FX_RELU)};
    int faults = 0;
    for (int i = 0; i < 4; i++) {
        snprintf(whole, sizeof whole, "%s", summary(layers[i]));
        bool hit = true;
        for (int64_t k = 0; hit; k++, faults++) {
            fxi_fault_set(k);
            fx_summary(layers[i], text, sizeof text);
            hit = fxi_fault_seen() > k;
            fxi_fault_set(-1);
            if (fx_error_take().status == FX_OK)
                assert_string_equal(text, whole);
        }
    }
    assert_true(faults >= 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(constructed_and_printed), cmocka_unit_test(copied_by_its_options),
        cmocka_unit_test(known_to_the_notation),   cmocka_unit_test(registered_once),
        cmocka_unit_test(in_files_of_flux),        cmocka_unit_test(of_an_older_version),
        cmocka_unit_test(in_state_dictionaries),   cmocka_unit_test(in_training_mode),
        cmocka_unit_test(of_other_headers),        cmocka_unit_test(printed_without_memory),
    };
    return cmocka_run_group_tests_name("layer_table", tests, NULL, NULL);
}
