/* test_semantics_options.c: options and batches as C sees them: option structs that
 * begin with their size, zero as a value, Flux's spellings, sets of axes; and batches. How it looks
 * from C++ is in test_semantics_cxx.cpp.
 */
#include "semantics_check.h"

static fx_array *three_axes(void)
{
    return fx_reshape(fx_range(1, 1, 24), 2, 3, 4);
}

static void defaults_are_fluxs(void **state)
{
    (void)state;
    FX_SCOPE;
    NEAR(fx_eta(fx_setup(fx_descent(), fx_dense(1, 1))), 0.1, 0);
    NEAR(fx_eta(fx_setup(fx_adam(.beta1 = 0.5), fx_dense(1, 1))), 0.001, 0);
    fx_batchnorm_layer *bn = fx_batchnorm(2);
    NEAR(bn->momentum, 0.1, 0);
    NEAR(bn->epsilon, 1e-5, 1e-12);
    assert_int_equal(bn->active, FX_ACTIVE_AUTO);
    fx_dense_layer *d = fx_dense(2, 3);
    assert_ptr_equal(d->act, FX_IDENTITY);
    assert_non_null(d->bias);
    fx_conv_layer *c = fx_conv(FX_DIMS(3, 3), 1, 2);
    assert_int_equal(c->groups, 1);
    check_dims("conv", fx_call(c, fx_ones(5, 5, 1, 1)), 4, (int64_t[]){3, 3, 2, 1});
    SAME(fx_item(fx_sum(three_axes())), 300);
}

/* Zero is a value like any other, whatever the default is. */
static void zero_is_a_value(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_batchnorm_layer *bn = fx_batchnorm(2, .momentum = 0, .eps = 0);
    SAME(bn->momentum, 0);
    SAME(bn->epsilon, 0);
    SAME(fx_layernorm(FX_DIMS(2), .eps = 0)->epsilon, 0);
    fx_dense_layer *m = fx_dense(0, 0, .weight_array = fx_ones(1, 2), .bias = false);
    fx_eval(m);
    void *opt = fx_setup(fx_descent(.eta = 0), m);
    SAME(fx_eta(opt), 0);
    SAME(fx_eta(fx_setup(fx_descent(0.25), m)), 0.25); /* Descent(0.25) */
    {
        FX_STEP;
        fx_array *loss = fx_sum(fx_square(m->weight));
        assert_int_equal(fx_update(opt, m, fx_gradient(loss, m)), FX_OK);
    }
    CHECK(m->weight, (1, 2), 0, 1, 1);
    /* Adam without a memory of the mean: the first steps are η·sign(g) */
    void *adam = fx_setup(fx_adam(.eta = 0.5, .beta1 = 0, .beta2 = 0), m);
    for (int k = 1; k <= 2; k++) {
        FX_STEP;
        fx_array *loss = fx_sum(fx_mul(m->weight, fx_reshape(fx_vector(3, -0.2f), 1, 2)));
        assert_int_equal(fx_update(adam, m, fx_gradient(loss, m)), FX_OK);
        CHECK(m->weight, (1, 2), 1e-6, 1 - 0.5 * k, 1 + 0.5 * k);
    }
    assert_int_equal(fx_adjust(adam, .beta1 = 0.75), FX_OK);
    SAME(fx_eta(adam), 0.5); /* options that are not given are unchanged */
    assert_int_equal(fx_adjust(adam, .eta = 0), FX_OK);
    SAME(fx_eta(adam), 0);
    check_error(fx_call(fx_dense(2, 2), fx_sum(three_axes(), .dims = FX_AXES(7))),
                FX_STATUS_ARGUMENT, "sum: there is no axis 7");
    assert_true(fx_is_error(fx_conv(FX_DIMS(3, 3), 1, 2, .groups = 0)));
    assert_int_equal(fx_error_take().status, FX_STATUS_ARGUMENT);
    assert_true(fx_is_error(fx_convolve(fx_ones(3, 1, 1), fx_ones(2, 1, 1), .groups = 0)));
    assert_int_equal(fx_error_take().status, FX_STATUS_ARGUMENT);
    /* Huber with δ = 0 is 0; with the default, δ = 1, it is not */
    SAME(fx_item(fx_huber_loss(fx_vector(1, 2), fx_vector(0, 0), .delta = 0)), 0);
    SAME(fx_item(fx_huber_loss(fx_vector(1, 2), fx_vector(0, 0))), 1); /* (½ + 1½)/2 */
    /* without ε the logarithm of 0 is infinite */
    assert_true(isinf(fx_item(fx_crossentropy(fx_vector(0, 1), fx_vector(1, 0), .eps = 0))));
    assert_true(isfinite(fx_item(fx_crossentropy(fx_vector(0, 1), fx_vector(1, 0)))));
}

static void fluxs_spellings_hold(void **state)
{
    (void)state;
    FX_SCOPE;
    assert_null(fx_dense(2, 3, .bias = false)->bias);
    assert_non_null(fx_dense(2, 3, .bias = true)->bias);
    CHECK(fx_dense(2, 3, .bias_array = fx_vector(1, 2, 3))->bias, (3), 0, 1, 2, 3);
    assert_null(fx_conv(FX_DIMS(3), 1, 2, .bias = false)->bias);
    assert_null(fx_batchnorm(2, .affine = false)->gamma);
    assert_null(fx_batchnorm(2, .track_stats = false)->mean);
    assert_null(fx_layernorm(FX_DIMS(2), .affine = false)->scale);
    assert_int_equal(fx_batchnorm(2, .active = false)->active, FX_ACTIVE_OFF);
    assert_int_equal(fx_dropout(0.5, .active = true)->active, FX_ACTIVE_ON);
    CHECK(fx_var(fx_vector(1, 2, 3, 6)), (), 1e-6, 14 / 3.0);
    CHECK(fx_var(fx_vector(1, 2, 3, 6), .corrected = false), (), 1e-6, 3.5);
}

static void axes_are_sets(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = three_axes();
    CHECK(fx_sum(x, .dims = FX_AXES(0, 2)), (1, 3, 1), 0, 84, 100, 116);
    CHECK(fx_sum(x, .dims = FX_AXES(2, 0)), (1, 3, 1), 0, 84, 100, 116);
    CHECK(fx_sum(x, .dims = fx_axes_of(2, (const int64_t[]){0, 2}), .drop = true), (3), 0, 84, 100,
          116);
    CHECK(fx_sum(x, .dims = FX_AXES(0, 1, 2)), (1, 1, 1), 0, 300);
    CHECK(fx_sum(x, .dims = FX_ALL), (), 0, 300);
    CHECK(fx_sum(x), (), 0, 300);
    check_error(fx_sum(x, .dims = FX_AXES(3)), FX_STATUS_ARGUMENT,
                "sum: there is no axis 3: the array has 3 axes (");
    check_error(fx_sum(x, .dims = FX_AXES(-1)), FX_STATUS_ARGUMENT,
                "sum: an axis in the set is below 0");
    check_error(fx_sum(x, .dims = fx_axes_of(0, NULL)), FX_STATUS_ARGUMENT,
                "sum: the set of axes is empty");
    /* softmax has a default of its own, and all axes at once is another thing */
    CHECK(fx_softmax(fx_zeros(2, 2)), (2, 2), 1e-7, 0.5, 0.5, 0.5, 0.5);
    CHECK(fx_softmax(fx_zeros(2, 2), .dims = FX_ALL), (2, 2), 1e-7, 0.25, 0.25, 0.25, 0.25);
}

/* Members that an older program's struct does not have are not read: here they are garbage. */
static void the_size_limits_what_is_read(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_dense_layer *m = fx_dense(0, 0, .weight_array = fx_ones(1, 2), .bias = false);
    void *opt = fx_setup(fx_descent(.eta = 0.5), m);
    fx_eval(m);
    FX_STEP;
    fx_array *loss = fx_sum(fx_square(m->weight)), *norm = fx_sum(fx_abs(m->weight));
    fx_update_args a;
    memset(&a, 0xFF, sizeof a);
    a.fxi_size = offsetof(fx_update_args, guard);
    a.state = opt, a.model = m, a.gradient = fx_gradient(loss, m);
    assert_int_equal(fxi_update(&a), FX_OK);
    CHECK(m->weight, (1, 2), 0, 0, 0);
    SAME(fx_item(norm), 2); /* sinks are on by default */

    fx_dataloader_args l;
    memset(&l, 0xFF, sizeof l);
    l.fxi_size = offsetof(fx_dataloader_args, batchsize);
    l.data = fx_ones(2, 5);
    assert_int_equal(fx_loader_length(fxi_dataloader(&l)), 5);
}

/* ---- batches --------------------------------------------------------------------------------- */

static void batches(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_reshape(fx_range(0, 1, 10), 1, 10), *y = fx_neg(x);
    fx_loader *loader = fx_dataloader(fx_tuple(x, y), .batchsize = 4);
    /* A zeroed batch starts a pass; the last batch ends it. */
    for (int pass = 0; pass < 2; pass++) {
        int n = 0;
        for (fx_batch b = {0}; fx_next(loader, &b); n++) {
            FX_STEP;
            assert_int_equal(b.index, n);
            assert_int_equal(b.size, n < 2 ? 4 : 2);
            SAME(fx_at(b.x, 1), 4 * n + 1);
            SAME(fx_at(b.y, 1), -(4 * n + 1));
        }
        assert_int_equal(n, 3);
    }
    int64_t live = 0;
    for (int k = 0; k < 6; k++) { /* b owns its arrays until the next call, or fx_batch_end */
        fx_batch b = {0};
        assert_true(fx_next(loader, &b));
        assert_true(fx_next(loader, &b));
        SAME(fx_at(b.x, 0), 4);
        fx_batch_end(&b);
        assert_null(b.x);
        fx_batch_end(&b); /* does nothing after the end, or if no pass was begun */
        if (k == 2)
            live = fxi_live_allocations();
    }
    assert_int_equal(fxi_live_allocations(), live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(defaults_are_fluxs),           TEST(zero_is_a_value),
        TEST(fluxs_spellings_hold),         TEST(axes_are_sets),
        TEST(the_size_limits_what_is_read), TEST(batches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
