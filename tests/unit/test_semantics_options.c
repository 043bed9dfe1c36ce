/* test_semantics_options.c: promises 14 and 17 of semantics.md as C sees them: option structs that
 * begin with their size, zero as the default, FX_ZERO, turned-round flags, axis masks; batches. How
 * it looks from C++ is in test_semantics_cxx.cpp.
 */
#include "semantics_check.h"

#define SIZE_COMES_FIRST(T)                                                                        \
    _Static_assert(offsetof(T, fxi_size) == 0 && sizeof(((T *)0)->fxi_size) == sizeof(size_t), #T)
SIZE_COMES_FIRST(fx_reduce_args);
SIZE_COMES_FIRST(fx_conv_args);
SIZE_COMES_FIRST(fx_pool_args);
SIZE_COMES_FIRST(fx_custom_op);
SIZE_COMES_FIRST(fx_dense_args);
SIZE_COMES_FIRST(fx_conv_layer_args);
SIZE_COMES_FIRST(fx_pool_layer_args);
SIZE_COMES_FIRST(fx_batchnorm_args);
SIZE_COMES_FIRST(fx_layernorm_args);
SIZE_COMES_FIRST(fx_dropout_args);
SIZE_COMES_FIRST(fx_loss_args);
SIZE_COMES_FIRST(fx_rule_args);
SIZE_COMES_FIRST(fx_update_args);
SIZE_COMES_FIRST(fx_train_args);
SIZE_COMES_FIRST(fx_loader_args);
SIZE_COMES_FIRST(fx_dev_opts);
SIZE_COMES_FIRST(fx_type);

static fx_array *three_axes(void)
{
    return fx_reshape(fx_range(1, 1, 24), 2, 3, 4);
}

static void p14_zero_is_the_default(void **state)
{
    (void)state;
    FX_SCOPE;
    NEAR(fx_eta(fx_setup(fx_descent(), fx_dense(1, 1))), 0.1, 0);
    NEAR(fx_eta(fx_setup(fx_descent(.eta = 0), fx_dense(1, 1))), 0.1, 0);
    NEAR(fx_eta(fx_setup(fx_adam(.beta1 = 0.5), fx_dense(1, 1))), 0.001, 0);
    fx_batchnorm_layer *bn = fx_batchnorm(2, .momentum = 0);
    NEAR(bn->momentum, 0.1, 0);
    NEAR(bn->epsilon, 1e-5, 1e-12);
    fx_conv_layer *c = fx_conv(FX_DIMS(3, 3), 1, 2, .groups = 0);
    assert_int_equal(c->groups, 1);
    check_dims("conv", fx_call(c, fx_ones(5, 5, 1, 1)), 4, (int64_t[]){3, 3, 2, 1});
    fx_dense_layer *d = fx_dense(2, 3);
    assert_ptr_equal(d->act, FX_IDENTITY);
    assert_non_null(d->bias);
    SAME(fx_item(fx_sum(three_axes(), .dims = 0)), 300);
    /* the macros say how large the struct is */
    const fx_reduce_args *a = FXI_REDUCE(NULL);
    assert_int_equal(a->fxi_size, sizeof *a);
}

static void p14_a_meaningful_zero_is_written(void **state)
{
    (void)state;
    FX_SCOPE;
    assert_true(signbit(FX_ZERO));
    fx_dense_layer *m = fx_dense(0, 0, .weight = fx_ones(1, 2), .no_bias = true);
    fx_eval(m);
    void *opt = fx_setup(fx_descent(.eta = FX_ZERO), m);
    SAME(fx_eta(opt), 0);
    {
        FX_STEP;
        fx_array *loss = fx_sum(fx_square(m->weight));
        assert_int_equal(fx_update(opt, m, fx_gradient(loss, m)), FX_OK);
    }
    CHECK(m->weight, (1, 2), 0, 1, 1);
    /* Adam without a memory of the mean: the first steps are η·sign(g) */
    void *adam = fx_setup(fx_adam(.eta = 0.5, .beta1 = FX_ZERO, .beta2 = FX_ZERO), m);
    for (int k = 1; k <= 2; k++) {
        FX_STEP;
        fx_array *loss = fx_sum(fx_mul(m->weight, fx_reshape(fx_vector(3, -0.2f), 1, 2)));
        assert_int_equal(fx_update(adam, m, fx_gradient(loss, m)), FX_OK);
        CHECK(m->weight, (1, 2), 1e-6, 1 - 0.5 * k, 1 + 0.5 * k);
    }
    SAME(fx_batchnorm(2, .momentum = FX_ZERO)->momentum, 0);
}

static void p14_fields_are_turned_round(void **state)
{
    (void)state;
    FX_SCOPE;
    assert_null(fx_dense(2, 3, .no_bias = true)->bias);
    assert_null(fx_conv(FX_DIMS(3), 1, 2, .no_bias = true)->bias);
    assert_null(fx_batchnorm(2, .no_affine = true)->gamma);
    assert_null(fx_batchnorm(2, .no_track = true)->mean);
    CHECK(fx_var(fx_vector(1, 2, 3, 6)), (), 1e-6, 14 / 3.0);
    CHECK(fx_var(fx_vector(1, 2, 3, 6), .uncorrected = true), (), 1e-6, 3.5);
}

static void p14_axes_are_masks(void **state)
{
    (void)state;
    FX_SCOPE;
    assert_int_equal(FX_AXES(0), 1);
    assert_int_equal(FX_AXES(0, 2), 5);
    assert_int_equal(FX_AXES(2, 0), 5);
    assert_int_equal(FX_AXES(0, 1, 2, 3, 4, 5, 6, 7), 255);
    fx_array *x = three_axes();
    CHECK(fx_sum(x, .dims = FX_AXES(0, 2)), (1, 3, 1), 0, 84, 100, 116);
    CHECK(fx_sum(x, .dims = FX_AXES(0, 2), .drop = true), (3), 0, 84, 100, 116);
    CHECK(fx_sum(x, .dims = FX_AXES(0, 1, 2)), (1, 1, 1), 0, 300);
    CHECK(fx_sum(x), (), 0, 300);
    check_error(fx_sum(x, .dims = FX_AXES(3)), FX_STATUS_ARGUMENT, "sum: ");
}

/* What an older program did not know of is not read: here it is garbage. */
static void p14_the_size_limits_what_is_read(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_dense_layer *m = fx_dense(0, 0, .weight = fx_ones(1, 2), .no_bias = true);
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

    fx_loader_args l;
    memset(&l, 0xFF, sizeof l);
    l.fxi_size = offsetof(fx_loader_args, batchsize);
    l.data = fx_ones(2, 5);
    assert_int_equal(fx_loader_length(fxi_dataloader(&l)), 5);
}

/* ---- 17: batches ----------------------------------------------------------------------------- */

static void p17_batches(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_reshape(fx_range(0, 1, 10), 1, 10), *y = fx_neg(x);
    fx_loader *loader = fx_dataloader(fx_tuple(x, y), .batchsize = 4);
    for (int pass = 0; pass < 2; pass++) { /* a zeroed batch starts a pass, exhaustion ends it */
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
        fx_batch_end(&b); /* again, or never begun: nothing */
        if (k == 2)
            live = fxi_live_allocations();
    }
    assert_int_equal(fxi_live_allocations(), live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(p14_zero_is_the_default),          TEST(p14_a_meaningful_zero_is_written),
        TEST(p14_fields_are_turned_round),      TEST(p14_axes_are_masks),
        TEST(p14_the_size_limits_what_is_read), TEST(p17_batches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
