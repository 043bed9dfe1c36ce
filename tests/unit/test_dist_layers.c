/* test_dist_layers.c: an update of a model of every family of layers by three members, of which
 * each has a third of the batch, gives the parameters of one process with the whole batch. The
 * members are threads (meeting.h). ctest: threads */
#include "meeting.h"

#include <cflux/notation.h>
#include <string.h>

enum { BATCH = 6, PARAMETERS = 1000, INDICES = 7 };

typedef struct family {
    const char *model;
    int64_t sizes[4]; /* of the input, without the batch */
    int axes;
    bool indices; /* the input has integers below INDICES */
} family;

static const family families[] = {
    {"Chain(Dense(3 => 5, tanh), Dense(5 => 2))", {3}, 1, false},
    {"SkipConnection(Dense(3 => 2, tanh), Bilinear((2, 3) => 4))", {3}, 1, false},
    {"Chain(Dense(3 => 4), Flux.Scale(4, tanh))", {3}, 1, false},
    {"WeightNorm(Dense(3 => 4, tanh))", {3}, 1, false},
    {"Chain(Conv((3, 3), 2 => 3, tanh; stride=2, pad=1), Conv((2, 2), 3 => 2))", {5, 5, 2}, 3, 0},
    {"Conv((3,), 4 => 6, tanh; groups=2, dilation=2)", {7, 4}, 2, false},
    {"Conv((2, 2, 2), 1 => 2, tanh)", {3, 3, 3, 1}, 4, false},
    {"ConvTranspose((3, 3), 2 => 3, tanh; stride=2)", {3, 3, 2}, 3, false},
    {"CrossCor((3, 3), 2 => 3, tanh)", {4, 4, 2}, 3, false},
    {"DepthwiseConv((3, 3), 2 => 4, tanh)", {4, 4, 2}, 3, false},
    {"Chain(Conv((3, 3), 1 => 2), MaxPool((2, 2)), Upsample(2), MeanPool((2, 2)), Flux.flatten, "
     "Dense(8 => 3))",
     {6, 6, 1},
     3,
     false},
    {"Chain(Conv((3, 3), 1 => 4), PixelShuffle(2), GlobalMaxPool(), Flux.flatten, Dense(1 => 3))",
     {5, 5, 1},
     3,
     false},
    {"Chain(Dense(3 => 4), BatchNorm(4, tanh), Dense(4 => 2))", {3}, 1, false},
    {"Chain(Conv((2, 2), 1 => 2), BatchNorm(2, relu), GlobalMeanPool())", {4, 4, 1}, 3, false},
    {"Chain(Conv((2, 2), 1 => 2), InstanceNorm(2, tanh; affine=true))", {4, 4, 1}, 3, false},
    {"Chain(Conv((2, 2), 1 => 4), GroupNorm(4, 2, tanh))", {4, 4, 1}, 3, false},
    {"Chain(Dense(3 => 4), LayerNorm(4), Dense(4 => 2))", {3}, 1, false},
    {"Chain(Dense(3 => 4), RMSNorm(4), Dense(4 => 2))", {3}, 1, false},
    {"RNN(3 => 4)", {3, 5}, 2, false},
    {"LSTM(3 => 4)", {3, 5}, 2, false},
    {"GRU(3 => 4)", {3, 5}, 2, false},
    {"GRUv3(3 => 4)", {3, 5}, 2, false},
    {"Recurrence(LSTMCell(3 => 4))", {3, 5}, 2, false},
    {"Bidirectional(LSTM(3 => 2), GRU(3 => 2))", {3, 5}, 2, false},
    {"Chain(Embedding(7 => 4), Dense(4 => 2, tanh))", {5}, 1, true},
    {"Chain(EmbeddingBag(7 => 4), Dense(4 => 2, tanh))", {5}, 1, true},
    {"MultiHeadAttention(4; nheads=2)", {4, 3}, 2, false},
    {"TransformerBlock(4, gelu; nheads=2, hidden=5, dropout_prob=0)", {4, 3}, 2, false},
    {"Maxout(Dense(3 => 2), Dense(3 => 2), Dense(3 => 2))", {3}, 1, false},
    {"Parallel(vcat, Dense(3 => 2, tanh), Chain(Dense(3 => 4), Dense(4 => 1)))", {3}, 1, false},
    {"PairwiseFusion(+, Dense(3 => 3, tanh), Dense(3 => 3))", {3}, 1, false},
};
static const family *chosen;

typedef struct parameters {
    int64_t n;
    double before[PARAMETERS], after[PARAMETERS];
} parameters;
static parameters serial, updated[MEMBERS];

/* The observations first … last − 1 of the batch. */
static fx_array *input(int64_t first, int64_t last)
{
    int64_t sizes[5], n = BATCH;
    for (int i = 0; i < chosen->axes; i++)
        n *= sizes[i] = chosen->sizes[i];
    sizes[chosen->axes] = BATCH;
    fx_array *x = fx_range_dtype(FX_DTYPE_F64, 0, 1, n);
    x = chosen->indices ? fx_cast(fx_mod(fx_mul(x, 3), INDICES), FX_DTYPE_I32)
                        : fx_sin(fx_add(fx_square(fx_mul(x, 0.1)), x));
    return fx_slice(fxi_reshape(x, chosen->axes + 1, sizes), chosen->axes, first, last);
}

static void read_all(void *model, double *out, int64_t *out_n)
{
    fx_array *all = fx_destructure(model);
    *out_n = fx_length(all);
    if (*out_n <= PARAMETERS)
        fx_read_as(all, FX_DTYPE_F64, out, *out_n);
}

/* One update by gradient descent with step 1, so the parameters change by the gradient. */
static void update(fx_dist *d, int64_t first, int64_t last, parameters *p)
{
    FX_SCOPE;
    fx_seed(5);
    void *model = fx_f64(fx_parse_model(chosen->model));
    fx_trainmode(model);
    read_all(model, p->before, &p->n);
    void *opt = fx_setup(fx_dist_optimiser(d, fx_descent(1)), model);
    fx_dist_sync_norms(d);
    void *y = fx_call(model, input(first, last));
    y = fx_is_array(y) ? y : fx_child(y, 0); /* attention also returns its scores */
    void *g = fx_gradient(fx_mean(fx_exp(fx_mul(y, 0.5))), model);
    fx_update(opt, model, g);
    fx_dist_sync_norms(NULL);
    read_all(model, p->after, &p->n);
}

static void *updates(void *argument)
{
    member *m = argument;
    const int r = fx_dist_rank(&m->d);
    update(&m->d, r * BATCH / MEMBERS, (r + 1) * BATCH / MEMBERS, &updated[r]);
    take_error(m);
    return NULL;
}

static void check(const family *f)
{
    static fx_dist alone;
    double largest = 0, most = 0, wrong = 0;
    chosen = f;
    begin(&alone, 0, 1, NULL);
    update(&alone, 0, BATCH, &serial);
    fxi_dist_end(&alone);
    const fx_error e = fx_error_take();
    if (e.status != FX_OK || serial.n > PARAMETERS)
        fail_msg("%s: %s, %d parameters", f->model, e.message, (int)serial.n);
    run_members(updates);
    for (int r = 0; r < MEMBERS; r++) {
        if (members[r].status != FX_OK || updated[r].n != serial.n)
            fail_msg("%s, rank %d: %s", f->model, r, members[r].message);
        assert_memory_equal(updated[r].after, updated[0].after, (size_t)serial.n * sizeof(double));
    }
    for (int64_t i = 0; i < serial.n; i++) {
        most = fmax(most, fabs(serial.after[i]));
        largest = fmax(largest, fabs(serial.after[i] - serial.before[i]));
        wrong = fmax(wrong, fabs(serial.after[i] - updated[0].after[i]));
    }
    printf("%-90s %4d parameters, gradient up to %8.1e, error %8.1e\n", f->model, (int)serial.n,
           largest, wrong);
    assert_true(largest > 1e-3);
    if (!(wrong <= 1e-12 * fmax(most, largest)))
        fail_msg("%s: the error is %g, the largest parameter %g", f->model, wrong, most);
}

static void members_have_the_gradient_of_one_process(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof families / sizeof *families; k++)
        check(&families[k]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_have_the_gradient_of_one_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
