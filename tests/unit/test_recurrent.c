/* test_recurrent.c: recurrent cells and layers against their formulas in double, in plain C, and
 * properties that test_every_layer.c does not check: states as inputs and outputs, PyTorch's names,
 * any cell in a Recurrence, errors, and the number of steps of a plan. */
#include "semantics_check.h"

#include "temp_file.h"

#include <stdlib.h>

enum { IN = 3, OUT = 2, LEN = 4, BATCH = 2 };

static double sigma(double x)
{
    return 1 / (1 + exp(-x));
}

/* The parameters of a cell in double, and one column of its state. */
typedef struct model {
    double wi[4 * OUT * IN], wh[4 * OUT * OUT], b[4 * OUT], third[OUT * OUT], hidden[OUT];
    double h[OUT], c[OUT];
} model;

static void read_doubles(fx_array *x, double *out)
{
    for (int64_t i = 0; x && i < fx_length(x); i++)
        out[i] = fx_at(x, i);
}

static model read_cell(const fx_cell_layer *l)
{
    model m;
    memset(&m, 0, sizeof m);
    read_doubles(l->wi, m.wi);
    read_doubles(l->wh, m.wh);
    read_doubles(l->bias, m.b);
    read_doubles(l->wh_new, m.third);
    read_doubles(l->hidden_bias, m.hidden);
    return m;
}

/* Σ w[row, k]·x[k] */
static double dot(const double *w, int rows, int row, const double *x, int n)
{
    double sum = 0;
    for (int k = 0; k < n; k++)
        sum += w[row + k * rows] * x[k];
    return sum;
}

typedef void (*step_fn)(model *m, const double *x);

static void rnn(model *m, const double *x)
{
    double h[OUT];
    for (int i = 0; i < OUT; i++)
        h[i] = tanh(dot(m->wi, OUT, i, x, IN) + dot(m->wh, OUT, i, m->h, OUT) + m->b[i]);
    memcpy(m->h, h, sizeof h);
}

static void lstm(model *m, const double *x)
{
    double g[4 * OUT];
    for (int i = 0; i < 4 * OUT; i++)
        g[i] = dot(m->wi, 4 * OUT, i, x, IN) + dot(m->wh, 4 * OUT, i, m->h, OUT) + m->b[i];
    for (int i = 0; i < OUT; i++) {
        m->c[i] = sigma(g[OUT + i]) * m->c[i] + sigma(g[i]) * tanh(g[2 * OUT + i]);
        m->h[i] = sigma(g[3 * OUT + i]) * tanh(m->c[i]);
    }
}

/* Versions 1 and 3: the reset gate multiplies Wh·h, or h. PyTorch's documentation of nn.GRU:
 * version 1 with Wh·h + b_hn. */
static void gru_of(model *m, const double *x, bool third)
{
    const int rows = third ? 2 * OUT : 3 * OUT;
    double r[OUT], z[OUT], kept[OUT], h[OUT];
    for (int i = 0; i < OUT; i++) {
        r[i] = sigma(dot(m->wi, 3 * OUT, i, x, IN) + dot(m->wh, rows, i, m->h, OUT) + m->b[i]);
        z[i] = sigma(dot(m->wi, 3 * OUT, OUT + i, x, IN) + dot(m->wh, rows, OUT + i, m->h, OUT) +
                     m->b[OUT + i]);
        kept[i] = r[i] * m->h[i];
    }
    for (int i = 0; i < OUT; i++) {
        const double old = third ? dot(m->third, OUT, i, kept, OUT)
                                 : r[i] * (dot(m->wh, rows, 2 * OUT + i, m->h, OUT) + m->hidden[i]);
        const double n = tanh(dot(m->wi, 3 * OUT, 2 * OUT + i, x, IN) + old + m->b[2 * OUT + i]);
        h[i] = (1 - z[i]) * n + z[i] * m->h[i];
    }
    memcpy(m->h, h, sizeof h);
}
static void gru(model *m, const double *x)
{
    gru_of(m, x, false);
}
static void gruv3(model *m, const double *x)
{
    gru_of(m, x, true);
}

static const struct kind {
    const char *layer, *cell;
    step_fn step;
} kinds[] = {{"RNN(3 => 2)", "RNNCell(3 => 2)", rnn},
             {"LSTM(3 => 2)", "LSTMCell(3 => 2)", lstm},
             {"GRU(3 => 2)", "GRUCell(3 => 2)", gru},
             {"GRU(3 => 2; hidden_bias=true)", "GRUCell(3 => 2; hidden_bias=true)", gru},
             {"GRUv3(3 => 2)", "GRUv3Cell(3 => 2)", gruv3}};

static fx_recurrent_layer *layer_of(const struct kind *k)
{
    fx_recurrent_layer *l = fx_f64(fx_parse_model(k->layer));
    fx_cell_layer *cell = l->cell;
    fx_set(&cell->bias, fx_mul(0.1, fx_range_dtype(FX_DTYPE_F64, -2, 1, fx_length(cell->bias))));
    if (cell->hidden_bias)
        fx_set(&cell->hidden_bias, fx_cast(fx_vector(0.75, -1.5), FX_DTYPE_F64));
    return l;
}

/* ---- values ---------------------------------------------------------------------------------- */

static void follows_the_formulas(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT(kinds); i++) {
        FX_SCOPE;
        fx_seed(3);
        fx_recurrent_layer *l = layer_of(&kinds[i]);
        fx_array *x = fx_cast(fx_randn(IN, LEN, BATCH), FX_DTYPE_F64), *y = fx_call(l, x);
        assert_true(fx_ndims(y) == 3 && fx_size(y, 0) == OUT && fx_size(y, 1) == LEN);
        for (int b = 0; b < BATCH; b++) {
            model m = read_cell(l->cell);
            for (int t = 0; t < LEN; t++) {
                double column[IN];
                for (int k = 0; k < IN; k++)
                    column[k] = fx_at(x, k + IN * (t + LEN * b));
                kinds[i].step(&m, column);
                for (int k = 0; k < OUT; k++)
                    check_value(kinds[i].layer, k, fx_at(y, k + OUT * (t + LEN * b)), m.h[k], 1e-12,
                                1e-12);
            }
        }
    }
}

static void same_numbers(const char *what, fx_array *a, fx_array *b)
{
    assert_int_equal(fx_ndims(a), fx_ndims(b));
    assert_int_equal(fx_length(a), fx_length(b));
    for (int64_t i = 0; i < fx_length(a); i++)
        check_value(what, i, fx_at(a, i), fx_at(b, i), 1e-12, 1e-12);
}

static void same_states(const char *what, void *a, void *b)
{
    if (fx_is_array(a)) {
        same_numbers(what, a, b);
        return;
    }
    assert_int_equal(fx_count(a), 2);
    for (int i = 0; i < 2; i++)
        same_numbers(what, fx_child(a, i), fx_child(b, i));
}

/* A layer, a Recurrence of its cell, its cell called by hand, and the same in two halves. */
static void states_go_in_and_come_out(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT(kinds); i++) {
        FX_SCOPE;
        const char *name = kinds[i].layer;
        fx_recurrent_layer *l = layer_of(&kinds[i]);
        l->return_state = true;
        fx_array *x = fx_cast(fx_randn(IN, LEN, BATCH), FX_DTYPE_F64);
        void *whole = fx_call(l, x), *first = fx_call(l, fx_slice(x, 1, 0, 2));
        void *second = fx_call(l, fx_slice(x, 1, 2, LEN), fx_child(first, 1));
        same_numbers(name, fx_child(whole, 0),
                     fx_concat(1, fx_child(first, 0), fx_child(second, 0)));
        same_states(name, fx_child(whole, 1), fx_child(second, 1));
        void *other = fx_call(fx_recurrence(l->cell, .return_state = true), x);
        same_numbers(name, fx_child(whole, 0), fx_child(other, 0));
        void *now = fx_initialstates(l);
        for (int t = 0; t < LEN; t++) {
            void *pair = fx_call(l->cell, fx_squeeze(fx_slice(x, 1, t, t + 1), FX_AXES(1)), now);
            now = fx_child(pair, 1);
        }
        same_states(name, fx_child(whole, 1), now);
        /* one sequence alone, without a batch axis */
        fx_array *one = fx_squeeze(fx_slice(x, 2, 1, 2), FX_AXES(2));
        void *alone = fx_call(l, one);
        same_numbers(name, fx_child(alone, 0),
                     fx_squeeze(fx_slice(fx_child(whole, 0), 2, 1, 2), FX_AXES(2)));
        assert_int_equal(fx_ndims(fx_is_array(fx_child(alone, 1))
                                      ? fx_child(alone, 1)
                                      : fx_child(fx_child(alone, 1), 0)),
                         1);
        assert_int_equal(fx_error_take().status, FX_OK);
    }
}

/* h0 and c0 are the start of every sequence, and are trained. */
static void initial_states_are_used(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT(kinds); i++) {
        FX_SCOPE;
        fx_recurrent_layer *l = layer_of(&kinds[i]);
        fx_cell_layer *cell = l->cell;
        fx_array *x = fx_cast(fx_randn(IN, LEN, BATCH), FX_DTYPE_F64);
        fx_array *h = fx_cast(fx_vector(0.5, -0.25), FX_DTYPE_F64),
                 *c = fx_cast(fx_vector(1, 2), FX_DTYPE_F64);
        const bool two = kinds[i].step == lstm;
        fx_array *y = fx_call(l, x, two ? fx_tuple(h, c) : (void *)h);
        const int64_t before = fx_parameter_count(l);
        fx_set(&cell->h0, h);
        fx_set(&cell->c0, two ? c : NULL);
        same_numbers(kinds[i].layer, y, fx_call(l, x));
        assert_int_equal(fx_parameter_count(l), before + (two ? 4 : 2));
        same_states(kinds[i].layer, fx_initialstates(cell), two ? fx_tuple(h, c) : (void *)h);
    }
}

/* ---- any cell -------------------------------------------------------------------------------- */

/* Adds its input to its state; the output is twice the state. */
typedef struct adder {
    fx_object base;
    fx_array *step;
} adder;
static void *adder_forward(void *self, int n, void *const *args)
{
    const adder *l = self;
    fx_array *next = fx_mul(args[0], l->step);
    if (n == 2)
        next = fx_add(next, args[1]);
    return fx_tuple(fx_mul(2, next), next);
}
FX_LAYER(adder, adder_forward, step);

static fx_array *no_pair(fx_array *x)
{
    return x;
}

static void any_cell_can_be_applied(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_recurrent_layer *l =
        fx_recurrence(fx_new(adder, .step = fx_vector(1, 10)), .return_state = true);
    void *pair = fx_call(l, fx_reshape(fx_vector(1, 2, 3, 4, 5, 6), 2, 3));
    static const double expected[] = {2, 40, 8, 120, 18, 240};
    for (int i = 0; i < 6; i++)
        SAME(fx_at(fx_child(pair, 0), i), expected[i]);
    SAME(fx_at(fx_child(pair, 1), 1), 120);
    assert_true(fx_is_error(fx_call(fx_recurrence(fx_function_new("f", no_pair)), fx_ones(2, 3))));
    expect_error(FX_STATUS_ARGUMENT, "the cell must return a tuple (output, state), got");
    assert_true(fx_is_error(fx_recurrence(NULL)));
    expect_error(FX_STATUS_ARGUMENT, "Recurrence: expects a cell, got NULL");
    assert_true(fx_is_error(fx_initialstates(l)));
    expect_error(FX_STATUS_ARGUMENT, "expects a recurrent layer or cell of the library");
}

/* ---- PyTorch --------------------------------------------------------------------------------- */

static void has_pytorch_names(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_chain_layer *m = fx_chain(fx_lstm(3, 2), fx_grucell(2, 2));
    void *dictionary = fx_torch_state(m);
    static const struct {
        const char *name;
        int64_t rows, columns;
    } names[] = {{"0.weight_ih_l0", 3, 8}, {"0.weight_hh_l0", 2, 8}, {"0.bias_ih_l0", 8, 0},
                 {"0.bias_hh_l0", 8, 0},   {"1.weight_ih", 2, 6},    {"1.bias_hh", 6, 0}};
    for (int i = 0; i < COUNT(names); i++) {
        fx_array *x = fx_child_named(dictionary, names[i].name);
        assert_true(fx_size(x, 0) == names[i].rows);
        assert_true(!names[i].columns || fx_size(x, 1) == names[i].columns);
    }
    assert_int_equal(fx_count(dictionary), 8);
    /* PyTorch's two biases are added; the last third of a GRU's second one needs hidden_bias */
    fx_array *b = fx_range(0, 1, 6);
    void *with = fx_named_tuple("weight_ih", fx_ones(2, 6), "weight_hh", fx_ones(2, 6), "bias_ih",
                                b, "bias_hh", fx_vector(1, 1, 1, 1, 0, 0));
    fx_cell_layer *cell = fx_grucell(2, 2);
    assert_int_equal(fx_load_torch_state(cell, with), FX_OK);
    SAME(fx_at(cell->bias, 3), 4);
    SAME(fx_at(cell->bias, 5), 5);
    with = fx_named_tuple("weight_ih", fx_ones(2, 6), "weight_hh", fx_ones(2, 6), "bias_ih", b,
                          "bias_hh", b);
    assert_int_equal(fx_load_torch_state(cell, with), FX_STATUS_UNSUPPORTED);
    expect_error(FX_STATUS_UNSUPPORTED, "bias_hh: the last 1/3 of it is not 0, but the layer has "
                                        "no hidden_bias; make the layer with .hidden_bias = true");
}

/* A state of PyTorch's GRU or GRUCell of 3 => 2 with these biases. */
static void *gru_state(const char *suffix, fx_array *bias_ih, fx_array *bias_hh)
{
    char text[4][40];
    static const char *const names[] = {"weight_ih", "weight_hh", "bias_ih", "bias_hh"};
    void *const arrays[] = {fx_ones(3, 6), fx_ones(2, 6), bias_ih, bias_hh};
    const char *all[4];
    for (int i = 0; i < 4; i++) {
        snprintf(text[i], sizeof text[i], "%s%s", names[i], suffix);
        all[i] = text[i];
    }
    return fx_named_tuple_from(4, all, arrays);
}

/* b_ir + b_hr, b_iz + b_hz, b_in; and b_hn alone. */
static void has_the_biases(const fx_cell_layer *cell)
{
    static const double both[] = {11, 22, 33, 44, 5, 6}, last[] = {50, 60};
    for (int i = 0; i < 6; i++)
        SAME(fx_at(cell->bias, i), both[i]);
    for (int i = 0; i < 2; i++)
        SAME(fx_at(cell->hidden_bias, i), last[i]);
}

static void a_gru_with_both_biases_of_pytorch(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *ih = fx_vector(1, 2, 3, 4, 5, 6), *hh = fx_vector(10, 20, 30, 40, 50, 60);
    fx_recurrent_layer *l = fx_gru(3, 2, .hidden_bias = true), *back = fx_gru(3, 2),
                       *other = fx_gru(3, 2, .hidden_bias = true);
    assert_int_equal(fx_load_torch_state(l, gru_state("_l0", ih, hh)), FX_OK);
    has_the_biases(l->cell);
    fx_cell_layer *cell = fx_grucell(3, 2, .hidden_bias = true);
    assert_int_equal(fx_load_torch_state(cell, gru_state("", ih, hh)), FX_OK);
    has_the_biases(cell);
    /* what PyTorch reads: the sums of the first two thirds, and b_hn alone */
    void *written = fx_torch_state(l);
    assert_int_equal(fx_count(written), 4);
    static const double sums[] = {11, 22, 33, 44, 5, 6}, rest[] = {0, 0, 0, 0, 50, 60};
    for (int i = 0; i < 6; i++) {
        SAME(fx_at(fx_child_named(written, "bias_ih_l0"), i), sums[i]);
        SAME(fx_at(fx_child_named(written, "bias_hh_l0"), i), rest[i]);
    }
    assert_int_equal(fx_load_torch_state(other, written), FX_OK);
    has_the_biases(other->cell);
    /* one direction, or one layer, may have it */
    void *bi = fx_bidirectional(back, other), *forward = gru_state("_l0", ih, fx_mul(hh, 0));
    void *reverse = gru_state("_l0_reverse", ih, hh);
    fx_set(&((fx_cell_layer *)other->cell)->hidden_bias, fx_zeros(2));
    const char *names[8];
    void *arrays[8];
    for (int i = 0; i < 8; i++) {
        names[i] = fx_child_name(i < 4 ? forward : reverse, i % 4);
        arrays[i] = fx_child(i < 4 ? forward : reverse, i % 4);
    }
    assert_int_equal(fx_load_torch_state(bi, fx_named_tuple_from(8, names, arrays)), FX_OK);
    has_the_biases(other->cell);
    assert_int_equal(fx_count(fx_torch_state(bi)), 8);
    /* the k-th layer of a chain from the arrays with _lk */
    void *chain = fx_chain_of("rnn", fx_chain(fx_gru(3, 2), fx_gru(2, 2, .hidden_bias = true)));
    void *two = fx_named_tuple("rnn.weight_ih_l0", fx_ones(3, 6), "rnn.weight_hh_l0", fx_ones(2, 6),
                               "rnn.bias_ih_l0", ih, "rnn.bias_hh_l0", fx_zeros(6),
                               "rnn.weight_ih_l1", fx_ones(2, 6), "rnn.weight_hh_l1", fx_ones(2, 6),
                               "rnn.bias_ih_l1", ih, "rnn.bias_hh_l1", hh);
    assert_int_equal(fx_load_torch_state(chain, two), FX_OK);
    fx_recurrent_layer *second = fx_child(fx_child(chain, 0), 1);
    has_the_biases(second->cell);
}

static void wrong_biases_of_pytorch_are_errors(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_recurrent_layer *l = fx_gru(3, 2, .hidden_bias = true), *plain = fx_gru(3, 2);
    fx_array *ih = fx_ones(6);
    void *const layers[] = {l, plain, fx_rnn(3, 6)};
    for (int i = 0; i < COUNT(layers); i++) {
        void *given =
            i == 2 ? fx_named_tuple("weight_ih_l0", fx_ones(3, 6), "weight_hh_l0", fx_ones(6, 6),
                                    "bias_ih_l0", ih, "bias_hh_l0", fx_ones(7))
                   : gru_state("_l0", ih, fx_ones(7));
        static const char *const text =
            "bias_hh_l0: a 7-element Vector{Float32} cannot be added to "
            "bias_ih_l0, a 6-element Vector{Float32}";
        assert_int_equal(fx_load_torch_state(layers[i], given), FX_STATUS_SHAPE);
        expect_error(FX_STATUS_SHAPE, text);
        assert_true(fx_is_error(fx_load_torch_matching(layers[i], given)));
        expect_error(FX_STATUS_SHAPE, text);
    }
    void *without = fx_named_tuple("weight_ih_l0", fx_ones(3, 6), "weight_hh_l0", fx_ones(2, 6),
                                   "bias_ih_l0", ih);
    assert_int_equal(fx_load_torch_state(plain, without), FX_OK);
    assert_int_equal(fx_load_torch_state(l, without), FX_STATUS_FORMAT);
    expect_error(FX_STATUS_FORMAT, "bias_hh_l0");
    assert_true(fx_is_error(fx_lstm(3, 2, .hidden_bias = true)));
    expect_error(FX_STATUS_ARGUMENT, "LSTMCell: only a GRUCell has hidden_bias");
    assert_true(fx_is_error(fx_gru(3, 2, .bias = false, .hidden_bias = true)));
    expect_error(FX_STATUS_ARGUMENT, "GRUCell: hidden_bias needs bias = true");
    assert_int_equal(fx_save(temp_file("hidden_bias.bson", "", 0), "model", fx_chain(l)),
                     FX_STATUS_UNSUPPORTED);
    expect_error(FX_STATUS_UNSUPPORTED, "the GRUCell in the entry \"model\": Flux has no field for "
                                        "its hidden_bias; .safetensors can store its arrays");
}

/* The arrays of torch.nn.LSTM(3, 2, num_layers=2, bidirectional=…), under the names of its
 * documentation, and a Linear: "rnn.weight_ih_l0", "rnn.weight_hh_l1_reverse", "head.bias". */
static void *two_layers_of_pytorch(bool both)
{
    static const char *const arrays[] = {"weight_ih", "weight_hh", "bias_ih", "bias_hh"};
    char text[18][40];
    const char *names[18];
    void *values[18];
    int n = 0;
    for (int layer = 0; layer < 2; layer++)
        for (int back = 0; back < 1 + both; back++)
            for (int i = 0; i < 4; i++, n++) {
                const int64_t in = layer == 0 ? 3 : 2 + 2 * both, rows = i == 0 ? in : 2;
                snprintf(text[n], sizeof text[n], "rnn.%s_l%d%s", arrays[i], layer,
                         back ? "_reverse" : "");
                values[n] = i < 2 ? fx_full(n + 1, rows, 8) : fx_full(n + 1, 8);
            }
    snprintf(text[n], sizeof *text, "head.weight");
    values[n++] = fx_ones(2 + 2 * both, 1);
    snprintf(text[n], sizeof *text, "head.bias");
    values[n++] = fx_ones(1);
    for (int i = 0; i < n; i++)
        names[i] = text[i];
    return fx_named_tuple_from(n, names, values);
}

/* A chain of layers, with dropout between them, loads from a module with num_layers. */
static void layers_of_one_pytorch_module(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_recurrent_layer *l[] = {fx_lstm(3, 2), fx_lstm(2, 2), fx_lstm(3, 2),
                               fx_lstm(3, 2), fx_lstm(4, 2), fx_lstm(4, 2)};
    void *one = fx_chain_of("rnn", fx_chain(l[0], fx_dropout(0.5), l[1]), "head", fx_dense(2, 1));
    void *both =
        fx_chain_of("rnn", fx_chain(fx_bidirectional(l[2], l[3]), fx_bidirectional(l[4], l[5])),
                    "head", fx_dense(4, 1));
    assert_int_equal(fx_load_torch_state(one, two_layers_of_pytorch(false)), FX_OK);
    assert_int_equal(fx_load_torch_state(both, two_layers_of_pytorch(true)), FX_OK);
    for (int i = 0; i < COUNT(l); i++) {
        const fx_cell_layer *cell = l[i]->cell;
        const int first = i < 2 ? 4 * i : 4 * (i - 2); /* number of its first array */
        SAME(fx_at(cell->wi, 0), first + 1);
        SAME(fx_at(cell->wh, 0), first + 2);
        SAME(fx_at(cell->bias, 0), first + 3 + first + 4);
    }
    /* more layers in the file, or in the model */
    void *shorter = fx_chain_of("rnn", fx_chain(fx_lstm(3, 2)), "head", fx_dense(2, 1));
    assert_int_equal(fx_load_torch_state(shorter, two_layers_of_pytorch(false)), FX_STATUS_FORMAT);
    expect_error(FX_STATUS_FORMAT, "rnn.weight_ih_l1");
    void *longer = fx_chain_of("rnn", fx_chain(fx_lstm(3, 2), fx_lstm(2, 2), fx_lstm(2, 2)), "head",
                               fx_dense(2, 1));
    assert_int_equal(fx_load_torch_state(longer, two_layers_of_pytorch(false)), FX_STATUS_FORMAT);
    expect_error(FX_STATUS_FORMAT, "rnn.2.weight_ih_l0");
    /* the same array under both names */
    void *cell = fx_torch_state(fx_chain_of("rnn", fx_chain(fx_rnn(3, 2))));
    fx_array *w = fx_child_named(cell, "rnn.0.weight_ih_l0");
    void *twice = fx_named_tuple("rnn.0.weight_ih_l0", w, "rnn.0.weight_hh_l0",
                                 fx_child_named(cell, "rnn.0.weight_hh_l0"), "rnn.0.bias_ih_l0",
                                 fx_child_named(cell, "rnn.0.bias_ih_l0"), "rnn.weight_ih_l0", w);
    assert_int_equal(fx_load_torch_state(fx_chain_of("rnn", fx_chain(fx_rnn(3, 2))), twice),
                     FX_STATUS_FORMAT);
    expect_error(FX_STATUS_FORMAT, "rnn.weight_ih_l0");
}

/* A cell with a BatchNorm that is active outside of a training step: each time step stages the
 * running statistics on those of the previous one, and the end of the scope commits them. */
typedef struct norm_cell {
    fx_object base;
    void *norm;
} norm_cell;
static void *norm_cell_forward(void *self, int n, void *const *args)
{
    fx_array *y = fx_call(((norm_cell *)self)->norm, args[0]);
    return fx_tuple(y, n > 1 ? args[1] : y);
}
FX_LAYER(norm_cell, norm_cell_forward, norm);

static void moving_statistics(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_batchnorm_layer *norm = fx_batchnorm(1, .active = FX_ACTIVE_ON, .momentum = 0.5);
    void *l = fx_recurrence(fx_new(norm_cell, .norm = norm));
    {
        FX_SCOPE; /* three time steps of two observations: means 1, 2, 3 */
        fx_call(l, fx_reshape(fx_vector(0, 1, 2, 2, 3, 4), 1, 3, 2));
        SAME(fx_at(norm->mean, 0), 0);
    }
    SAME(fx_at(norm->mean, 0), 1 / 8.0 + 2 / 4.0 + 3 / 2.0);
    SAME(fx_at(norm->var, 0), 1 / 8.0 + 2 * (1 / 8.0 + 1 / 4.0 + 1 / 2.0));
}

/* A state with a batch broadcasts over an input without one, as in Flux: the result has the batch.
 */
static void states_with_a_batch(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_recurrent_layer *l = fx_gru(3, 2, .return_state = true);
    fx_array *x = fx_randn(3, 4), *h = fx_randn(2, 5);
    void *const args[] = {x, h};
    void *pair = fxi_call(l, 2, args);
    fx_array *y = fx_child(pair, 0), *last = fx_child(pair, 1);
    assert_true(fx_ndims(y) == 3 && fx_size(y, 0) == 2 && fx_size(y, 1) == 4 && fx_size(y, 2) == 5);
    assert_true(fx_ndims(last) == 2 && fx_size(last, 1) == 5);
    for (int i = 0; i < 5; i++) {
        void *const one[] = {x, fx_vec(fx_slice(h, 1, i, i + 1))};
        fx_array *apart = fx_child(fxi_call(l, 2, one), 0);
        for (int k = 0; k < 8; k++)
            assert_true(fabs(fx_at(apart, k) - fx_at(y, 8 * i + k)) < 1e-6);
    }
}

/* ---- errors ---------------------------------------------------------------------------------- */

static void wrong_inputs_are_errors(void **state)
{
    (void)state;
    FX_SCOPE;
    void *l = fx_lstm(3, 2), *c = fx_rnncell(3, 2);
    const struct {
        void *layer, *x, *state;
        fx_status status;
        const char *text;
    } rows[] = {
        {l, fx_ones(4, 5), NULL, FX_STATUS_SHAPE,
         "layer LSTM(3 => 2) expects size(input, 1) == 3, but got 4×5 Matrix{Float32}"},
        {l, fx_ones(3), NULL, FX_STATUS_SHAPE, "expects ndims(input) == 2 or 3"},
        {l, fx_zeros(3, 0), NULL, FX_STATUS_SHAPE, "expects size(input, 2) >= 1"},
        {l, fx_ones(3, 4, 2), fx_ones(2), FX_STATUS_ARGUMENT,
         "expects a state that is a tuple of two arrays, but got"},
        {l, fx_ones(3, 4, 2), fx_tuple(fx_ones(2), fx_ones(3)), FX_STATUS_SHAPE,
         "expects a state of 2 numbers, or 2×2, but got 3-element"},
        {l, fx_ones(3, 4, 2), fx_tuple(fx_ones(2, 3), fx_ones(2, 3)), FX_STATUS_SHAPE,
         "expects a state of 2 numbers, or 2×2, but got 2×3"},
        {c, fx_ones(3, 4, 2), NULL, FX_STATUS_SHAPE, "expects ndims(input) == 1 or 2"},
        {c, fx_ones(2, 4), NULL, FX_STATUS_SHAPE,
         "layer RNNCell(3 => 2, tanh) expects size(input, 1) == 3"},
    };
    for (int i = 0; i < COUNT(rows); i++) {
        void *const args[] = {rows[i].x, rows[i].state};
        assert_true(fx_is_error(fxi_call(rows[i].layer, rows[i].state ? 2 : 1, args)));
        expect_error(rows[i].status, rows[i].text);
    }
    assert_true(fx_is_error(fx_lstm(0, 2)));
    expect_error(FX_STATUS_ARGUMENT, "LSTMCell: sizes must be positive, got 0 => 2");
    assert_true(fx_is_error(fx_rnncell(5, 2, .wi_array = fx_ones(2, 3))));
    expect_error(FX_STATUS_ARGUMENT, "in is 5, but the given array has 3 columns");
    assert_true(fx_is_error(fx_lstmcell(3, 7, .wh_array = fx_ones(8, 2))));
    expect_error(FX_STATUS_ARGUMENT, "out is 7, but the given array has 2 columns");
    assert_true(fx_is_error(fx_gru(3, 2, .cell = fx_grucell(2, 2))));
    expect_error(FX_STATUS_ARGUMENT, "GRU: expects a cell of 3 => 2, got GRUCell(2 => 2)");
    assert_true(fx_is_error(fx_gru(0, 0, .cell = fx_lstmcell(2, 2))));
    expect_error(FX_STATUS_ARGUMENT, "GRU: expects a cell of type GRUCell, got LSTMCell(2 => 2)");
    assert_true(fx_is_error(fx_lstmcell(2, 2, .wh_array = fx_ones(4, 2))));
    expect_error(FX_STATUS_ARGUMENT, "weight must be an array of size 8×2");
    assert_true(fx_is_error(fx_rnncell(2, 2, .h0 = fx_ones(3))));
    expect_error(FX_STATUS_ARGUMENT, "h0 must have 2 elements");
}

/* ---- plans ----------------------------------------------------------------------------------- */

/* Steps of the plan of one forward and backward pass over 50 time steps. */
static long steps_of(void *layer)
{
    static char text[4000000];
    FX_SCOPE;
    fx_array *x = fx_randn(64, 50, 32);
    fx_eval(x);
    fx_array *loss = fx_sum(fx_square(fx_call(layer, x)));
    fx_plan_text(fx_tuple(loss, fx_gradient(loss, layer)), text, sizeof text);
    const char *at = strstr(text, " nodes in ");
    assert_non_null(at);
    return strtol(at + strlen(" nodes in "), NULL, 10);
}

static void a_time_step_takes_few_launches(void **state)
{
    (void)state;
    FX_SCOPE;
    const long l = steps_of(fx_lstm(64, 128)), g = steps_of(fx_gru(64, 128)),
               r = steps_of(fx_rnn(64, 128));
    print_message("launches for 50 time steps, forward and backward: LSTM %ld, GRU %ld, RNN %ld\n",
                  l, g, r);
    assert_true(l > 100 && l <= 12 * 50);
    assert_true(g > 100 && g <= 12 * 50);
    assert_true(r > 100 && r <= 5 * 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(follows_the_formulas),
        TEST(states_go_in_and_come_out),
        TEST(initial_states_are_used),
        TEST(any_cell_can_be_applied),
        TEST(has_pytorch_names),
        TEST(layers_of_one_pytorch_module),
        TEST(a_gru_with_both_biases_of_pytorch),
        TEST(wrong_biases_of_pytorch_are_errors),
        TEST(states_with_a_batch),
        TEST(moving_statistics),
        TEST(wrong_inputs_are_errors),
        TEST(a_time_step_takes_few_launches),
    };
    return cmocka_run_group_tests_name("recurrent", tests, NULL, NULL);
}
