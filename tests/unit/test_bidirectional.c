/* test_bidirectional.c: Bidirectional, and sequences of several lengths in recurrent layers,
 * against PyTorch's packed sequences (packed_sequences.h) and against each sequence alone.
 * Gradients, printing and files: test_every_layer.c. */
#include "semantics_check.h"

#include "each_allocation.h"
#include "memory.h"
#include "packed_sequences.h"
#include "wave.h"

enum { IN = 3, OUT = 2, LEN = 4, BATCH = 3 };
static const int64_t lengths_of_batch[BATCH] = {2, 4, 3};

static fx_array *input(void)
{
    return wave(0.5, 2, 3, (const int64_t[]){IN, LEN, BATCH});
}

static fx_array *lengths(void)
{
    return fx_from(FX_DTYPE_I64, lengths_of_batch, BATCH);
}

/* True for the elements of the batch: LEN×BATCH. */
static fx_array *mask(void)
{
    return fx_lt(fx_range(0, 1, LEN), fx_reshape(lengths(), 1, BATCH));
}

/* Gives the arrays of a layer the values of the generator, in the order and with the names of
 * PyTorch's parameters. */
static void set_weights(void *layer, bool gru)
{
    static const char *const names[] = {
        "weight_ih_l0",         "weight_hh_l0",         "bias_ih_l0",         "bias_hh_l0",
        "weight_ih_l0_reverse", "weight_hh_l0_reverse", "bias_ih_l0_reverse", "bias_hh_l0_reverse"};
    void *old = fx_torch_state(layer), *arrays[COUNT(names)];
    const int n = (int)fx_count(old);
    assert_true(n == 4 || n == 8);
    for (int i = 0; i < n; i++) {
        fx_array *x = fx_child_named(old, names[i]);
        assert_false(fx_is_error(x));
        arrays[i] = wave(i, 0.5, fx_ndims(x), (const int64_t[]){fx_size(x, 0), fx_size(x, 1)});
        if (gru && i % 4 == 3) /* cflux's GRU has no bias there */
            arrays[i] = fx_mul(arrays[i], fx_lt(fx_range(0, 1, 3 * OUT), 2 * OUT));
    }
    assert_int_equal(fx_load_torch_state(layer, fx_named_tuple_from(n, names, arrays)), FX_OK);
}

static fx_recurrent_layer *layer_named(const char *name)
{
    char text[40];
    snprintf(text, sizeof text, "%s(%d => %d)", name, IN, OUT);
    return fx_f64(fx_parse_model(text));
}

/* The state of one direction to start with; i: 0 forward, 1 backward. */
static void *state_of(const packed_case *c, int i)
{
    const int64_t sizes[] = {OUT, BATCH, 1 + c->both};
    fx_array *part[2];
    for (int k = 0; k < 2; k++) {
        fx_array *x = wave(1.5 + k, 0.5, 3, sizes);
        part[k] = fx_reshape(fx_slice(x, 2, i, i + 1), OUT, BATCH);
    }
    return c->lstm ? fx_tuple(part[0], part[1]) : (void *)part[0];
}

static void same_as(const char *what, fx_array *x, const double *expected)
{
    fx_eval(x);
    for (int64_t i = 0; i < fx_length(x); i++)
        check_value(what, i, fx_at(x, i), expected[i], 1e-12, 1e-12);
}

/* A state and the recorded one, of which direction i follows direction i − 1. */
static void same_state(const packed_case *c, void *state, int i)
{
    same_as(c->text, c->lstm ? fx_child(state, 0) : state, c->h + i * OUT * BATCH);
    if (c->lstm)
        same_as(c->text, fx_child(state, 1), c->c + i * OUT * BATCH);
}

static void are_pytorchs_packed_sequences(void **state)
{
    (void)state;
    for (const packed_case *c = packed_cases; c < packed_cases + COUNT(packed_cases); c++) {
        FX_SCOPE;
        fx_recurrent_layer *first = layer_named(c->text), *second = layer_named(c->text);
        void *l = c->both ? (void *)fx_bidirectional(first, second, .return_state = true) : first;
        first->return_state = !c->both;
        set_weights(l, strcmp(c->text, "GRU") == 0);
        void *start = c->both ? fx_tuple(state_of(c, 0), state_of(c, 1)) : state_of(c, 0);
        /* Values after the end of a sequence do not matter. */
        fx_array *x = fx_where(fx_reshape(mask(), 1, LEN, BATCH), input(), NAN);
        void *pair = fx_recur(l, x, .state = start, .lengths = lengths());
        fx_array *y = fx_child(pair, 0);
        same_as(c->text, y, c->y);
        for (int i = 0; i < 1 + c->both; i++)
            same_state(c, c->both ? fx_child(fx_child(pair, 1), i) : fx_child(pair, 1), i);

        fx_array *flat = fx_vec(y);
        fx_array *factors = fx_cos(fx_range_dtype(FX_DTYPE_F64, 0.3, 1, fx_length(flat)));
        fx_cell_layer *cell = (c->both ? second : first)->cell;
        fx_array *g[2];
        fx_gradient_of(fx_sum(fx_mul(flat, factors)), (fx_array *[]){x, cell->wh}, 2, g);
        same_as("gradient of x", g[0], c->dx);
        same_as("gradient of Wh", fx_transpose(g[1]), c->dw);
        assert_int_equal(fx_error_take().status, FX_OK);
    }
}

static void same_arrays(fx_array *a, fx_array *b)
{
    assert_int_equal(fx_length(a), fx_length(b));
    for (int64_t i = 0; i < fx_length(a); i++)
        check_value("element", i, fx_at(a, i), fx_at(b, i), 1e-12, 1e-12);
}

/* A cell of the library in a struct of the program, which hides its kind. */
typedef struct wrapped {
    fx_object base;
    void *cell;
} wrapped;
static void *wrapped_forward(void *self, int n, void *const *args)
{
    return fxi_call(((wrapped *)self)->cell, n, args);
}
FX_LAYER(wrapped, wrapped_forward, cell);

/* A Recurrence of any cell gives the same, also if its state is a tuple. */
static void any_cell_has_lengths(void **state)
{
    (void)state;
    FX_SCOPE;
    static const char *const kinds[] = {"LSTM", "GRU", "GRUv3", "RNN"};
    for (int i = 0; i < COUNT(kinds); i++) {
        fx_recurrent_layer *a = layer_named(kinds[i]), *b = layer_named(kinds[i]);
        void *own = fx_bidirectional(a, b, .return_state = true);
        void *any =
            fx_bidirectional(fx_recurrence(fx_new(wrapped, .cell = a->cell)),
                             fx_recurrence(fx_new(wrapped, .cell = b->cell)), .return_state = true);
        void *one = fx_recur(own, input(), .lengths = lengths());
        void *start = fx_initialstates(own);
        void *other = fx_recur(any, input(), start, .lengths = lengths());
        same_arrays(fx_child(one, 0), fx_child(other, 0));
        for (int k = 0; k < 2; k++) {
            void *s = fx_child(fx_child(one, 1), k), *t = fx_child(fx_child(other, 1), k);
            same_arrays(i == 0 ? fx_child(s, 1) : s, i == 0 ? fx_child(t, 1) : t);
        }
        assert_true(fx_is_error(fx_recur(any, input(), .lengths = lengths())));
        expect_error(FX_STATUS_ARGUMENT, "Recurrence: with lengths or a mask, set .state");
    }
}

/* A mask with gaps skips time steps: as a sequence without them. */
static void masks_skip_time_steps(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_recurrent_layer *a = layer_named("LSTM"), *b = layer_named("GRU");
    void *l = fx_bidirectional(a, b, .return_state = true);
    static const bool on[BATCH * LEN] = {0, 1, 0, 1, 1, 1, 0, 1, 1, 1, 1, 1};
    fx_array *x = input(), *kept = fx_from(FX_DTYPE_BOOL, on, LEN, BATCH);
    void *all = fx_recur(l, x, .mask = kept);
    for (int k = 0; k < BATCH; k++) {
        int64_t at[LEN], n = 0;
        for (int t = 0; t < LEN; t++)
            if (on[k * LEN + t])
                at[n++] = t;
        fx_array *one = fx_squeeze(fx_slice(x, 2, k, k + 1), FX_AXES(2));
        void *alone = fx_call(l, fx_gather(one, fx_from(FX_DTYPE_I64, at, n), 1));
        fx_array *y = fx_squeeze(fx_slice(fx_child(all, 0), 2, k, k + 1), FX_AXES(2));
        same_arrays(fx_gather(y, fx_from(FX_DTYPE_I64, at, n), 1), fx_child(alone, 0));
        fx_array *rest = fx_where(fx_reshape(fx_slice(kept, 1, k, k + 1), 1, LEN), 0, y);
        assert_true(fx_item(fx_any(fx_ne(rest, 0))) == 0);
        fx_array *h = fx_child(fx_child(all, 1), 1);
        same_arrays(fx_slice(h, 1, k, k + 1), fx_child(fx_child(alone, 1), 1));
    }
    /* Lengths are the mask of the first time steps; beyond the end and below 1 they are clamped. */
    void *by_mask = fx_recur(l, x, .mask = mask()),
         *by_length = fx_recur(l, x, .lengths = lengths());
    same_arrays(fx_child(by_mask, 0), fx_child(by_length, 0));
    by_length = fx_recur(l, x, .lengths = fx_from(FX_DTYPE_I32, ((int32_t[]){9, 4, 0}), BATCH));
    same_arrays(fx_slice(fx_child(by_length, 0), 2, 0, 2),
                fx_slice(fx_child(fx_call(l, x), 0), 2, 0, 2));
    assert_true(fx_item(fx_any(fx_ne(fx_slice(fx_child(by_length, 0), 2, 2, 3), 0))) == 0);
    assert_true(fx_at(fx_child(fx_child(by_length, 1), 1), 2 * OUT) == 0);
}

/* Without lengths: the second layer on the reversed sequence. */
static void runs_in_both_directions(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_recurrent_layer *a = layer_named("RNN"), *b = layer_named("LSTM");
    fx_array *x = input(), *y = fx_call(fx_bidirectional(a, b), x);
    same_arrays(fx_slice(y, 0, 0, OUT), fx_call(a, x));
    fx_array *reversed = fx_flip(fx_call(b, fx_flip(x, FX_AXES(1))), FX_AXES(1));
    same_arrays(fx_slice(y, 0, OUT, 2 * OUT), reversed);
    fx_array *one = fx_squeeze(fx_slice(x, 2, 1, 2), FX_AXES(2)); /* without a batch axis */
    same_arrays(fx_call(fx_bidirectional(a, b), one), fx_slice(y, 2, 1, 2));
    char text[100];
    fx_summary(fx_bidirectional(a, b, .return_state = true), text, sizeof text);
    assert_string_equal(text, "Bidirectional(RNN(3 => 2, tanh), LSTM(3 => 2); return_state=true)");
}

static void wrong_inputs_are_errors(void **state)
{
    (void)state;
    FX_SCOPE;
    void *l = fx_bidirectional(fx_rnn(3, 2), fx_rnn(3, 2)), *x = fx_ones(3, 4, 5);
#define REFUSED(status, text, ...)                                                                 \
    do {                                                                                           \
        assert_true(fx_is_error(__VA_ARGS__));                                                     \
        expect_error((status), (text));                                                            \
    } while (0)
    REFUSED(FX_STATUS_ARGUMENT,
            "Bidirectional: expects two recurrent layers, such as LSTM, got NULL",
            fx_bidirectional(fx_rnn(3, 2)));
    REFUSED(FX_STATUS_ARGUMENT, "got Dense(3 => 2)",
            fx_bidirectional(fx_rnn(3, 2), fx_dense(3, 2)));
    REFUSED(FX_STATUS_ARGUMENT, "set return_state of Bidirectional, not of its layers",
            fx_bidirectional(fx_rnn(3, 2), fx_rnn(3, 2, .return_state = true)));
    REFUSED(FX_STATUS_ARGUMENT,
            "expects a tuple of the states of its two layers, but got 2-element",
            fx_call(l, x, fx_ones(2)));
    REFUSED(FX_STATUS_SHAPE, "layer RNN(3 => 2, tanh) expects size(input, 1) == 3",
            fx_call(l, fx_ones(2, 4)));
    REFUSED(FX_STATUS_ARGUMENT, "recur: expects a recurrent layer, got Dense(3 => 2)",
            fx_recur(fx_dense(3, 2), x));
    REFUSED(FX_STATUS_ARGUMENT, "recur: expects a recurrent layer, got NULL", fx_recur(NULL, x));
    REFUSED(FX_STATUS_ARGUMENT, "Bidirectional: takes lengths or a mask, not both",
            fx_recur(l, x, .lengths = fx_ones(5), .mask = fx_ones(4, 5)));
    REFUSED(FX_STATUS_SHAPE, "expects one length for each of 5 sequences, got 4-element",
            fx_recur(l, x, .lengths = fx_ones(4)));
    REFUSED(FX_STATUS_SHAPE, "expects a mask of 4×5 (length×batch), got 5×4",
            fx_recur(l, x, .mask = fx_ones(5, 4)));
    REFUSED(FX_STATUS_SHAPE, "expects ndims(input) == 3 with lengths or a mask, but got 3×4",
            fx_recur(l, fx_ones(3, 4), .lengths = fx_ones(1)));
    REFUSED(FX_STATUS_ARGUMENT, "", fx_recur(l, NULL));
}

/* The losses of training steps whose lengths change; 0 is a length too. */
static void train_with_lengths(bool recorded, double *losses)
{
    FX_SCOPE;
    fx_seed(5);
    void *l = fx_bidirectional(fx_lstm(IN, OUT), fx_gru(IN, OUT)), *opt = fx_setup(fx_adam(0.1), l);
    fx_array *x = fx_f32(input());
    fx_eval(x);
    for (int64_t i = 0; i < 6; i++) {
        FX_SCOPE;
        const int64_t n[BATCH] = {i % 5, LEN, 1 + i % 3};
        fx_array *loss, *lengths = fx_from(FX_DTYPE_I64, n, BATCH);
        if (recorded) {
            FX_RECORD;
            loss = fx_sum(fx_square(fx_recur(l, x, .lengths = lengths)));
            assert_int_equal(fx_update(opt, l, fx_gradient(loss, l)), FX_OK);
            losses[i] = fx_item(loss);
        } else {
            FX_STEP;
            loss = fx_sum(fx_square(fx_recur(l, x, .lengths = lengths)));
            assert_int_equal(fx_update(opt, l, fx_gradient(loss, l)), FX_OK);
            losses[i] = fx_item(loss);
        }
    }
}

static void recorded_steps_have_the_same_bits(void **state)
{
    (void)state;
    double step[6], recorded[6];
    train_with_lengths(false, step);
    const uint64_t before = fx_stats().repeated_evals;
    train_with_lengths(true, recorded);
    assert_true(fx_stats().repeated_evals > before);
    assert_memory_equal(step, recorded, sizeof step);
}

static void *shared_layer;
static void *call(const char *unused)
{
    (void)unused;
    return fx_recur(shared_layer, fx_ones(IN, LEN, BATCH), .lengths = lengths());
}

static void each_allocation_fails(void **state)
{
    (void)state;
    FX_SCOPE;
    shared_layer = fx_bidirectional(fx_lstm(IN, OUT), fx_recurrence(fx_gruv3cell(IN, OUT)),
                                    .return_state = true);
    fx_eval(shared_layer);
    assert_false(fx_is_error(call(NULL)));
    each_allocation_of(call, NULL, 5);
    int failures = 0; /* also after a failed allocation that the call tolerates */
    for (int64_t nth = 0; nth < 600; nth++) {
        FX_SCOPE;
        fxi_fault_set(nth);
        const bool failed = fx_is_error(call(NULL));
        fxi_fault_set(-1);
        assert_int_equal(fx_error_take().status, failed ? FX_STATUS_MEMORY : FX_OK);
        failures += failed;
    }
    assert_in_range(failures, 300, 599); /* 599: the last ones fail no allocation */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(are_pytorchs_packed_sequences),
        TEST(any_cell_has_lengths),
        TEST(masks_skip_time_steps),
        TEST(runs_in_both_directions),
        TEST(wrong_inputs_are_errors),
        TEST(each_allocation_fails),
        TEST(recorded_steps_have_the_same_bits),
    };
    return cmocka_run_group_tests_name("bidirectional", tests, NULL, NULL);
}
