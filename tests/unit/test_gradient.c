/* test_gradient.c: the promises of fx_gradient and related functions, except the rules of single
 * operations, which the conformance runner checks. Expected values are derivatives written out by
 * hand.
 */
#include "semantics_check.h"

/* ---- gradients of gradients ------------------------------------------------------------------ */

static void of_gradients(void **state)
{
    (void)state;
    FX_SCOPE;
    const double v[] = {-1.5, 0.25, 2};
    fx_array *x = vector64(v, 3);
    fx_array *d = fx_pow(x, 5);
    double factor = 1;
    for (int k = 1; k <= 5; k++) { /* x⁵, 5x⁴, 20x³, 60x², 120x, 120 */
        d = gradient1(fx_sum(d), x);
        factor *= 6 - k;
        double want[3];
        for (int i = 0; i < 3; i++)
            want[i] = factor * pow(v[i], 5 - k);
        check_array("d/dx x^5", d, 3, want, 1e-13, 0);
    }
    d = gradient1(fx_sum(d), x);
    CHECK(d, (3), 0, 0, 0, 0);
    d = fx_sin(x);
    double (*const next[])(double) = {cos, sin, cos, sin};
    const double sign[] = {1, -1, -1, 1};
    for (int k = 0; k < 4; k++) {
        d = gradient1(fx_sum(d), x);
        double want[3];
        for (int i = 0; i < 3; i++)
            want[i] = sign[k] * next[k](v[i]);
        check_array("d/dx sin", d, 3, want, 1e-12, 1e-15);
    }
}

/* d/dx xⁿ = n·xⁿ⁻¹ for the least n: 64 bits cannot hold n − 1. */
static void of_the_least_exponent(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = vector64((double[]){-2, -1, 1, 2}, 4), *y = fx_pow(x, INT64_MIN);
    CHECK(gradient1(fx_sum(y), x), (4), 0, 0, 0x1p63, -0x1p63, 0);
}

/* A gradient penalty: d/dw |d/dx w·x²|², through a matrix product. */
static void of_a_penalty(void **state)
{
    (void)state;
    FX_SCOPE;
    const double w[] = {1, 2, 3, 4, 5, 6}; /* 2×3 */
    fx_array *W = fx_from(FX_DTYPE_F64, w, 2, 3), *x = vector64((double[]){1, -1, 2}, 3);
    fx_array *y = fx_sum(fx_square(fx_matmul(W, x)));
    fx_array *gx = gradient1(y, x); /* 2WᵀWx */
    const double Wx[] = {1 - 3 + 10, 2 - 4 + 12};
    CHECK(gx, (3), 1e-12, 2 * (1 * Wx[0] + 2 * Wx[1]), 2 * (3 * Wx[0] + 4 * Wx[1]),
          2 * (5 * Wx[0] + 6 * Wx[1]));
    /* d/dx |2WᵀWx|² = 8·WᵀW·WᵀW·x */
    fx_array *gg = gradient1(fx_sum(fx_square(gx)), x);
    const double a[3] = {1 * Wx[0] + 2 * Wx[1], 3 * Wx[0] + 4 * Wx[1], 5 * Wx[0] + 6 * Wx[1]};
    const double Wa[2] = {1 * a[0] + 3 * a[1] + 5 * a[2], 2 * a[0] + 4 * a[1] + 6 * a[2]};
    CHECK(gg, (3), 1e-12, 8 * (1 * Wa[0] + 2 * Wa[1]), 8 * (3 * Wa[0] + 4 * Wa[1]),
          8 * (5 * Wa[0] + 6 * Wa[1]));
}

/* ---- where gradients go ---------------------------------------------------------------------- */

static void stop_gradient_is_a_constant(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_vector(1, 2, 3);
    CHECK(gradient1(fx_sum(fx_mul(x, fx_stop_gradient(x))), x), (3), 0, 1, 2, 3);
    CHECK(gradient1(fx_sum(fx_stop_gradient(fx_square(x))), x), (3), 0, 0, 0, 0);
    CHECK(fx_stop_gradient(x), (3), 0, 1, 2, 3);
    fx_array *s = fx_stop_gradient(x); /* the stopped array itself is like any other array */
    CHECK(gradient1(fx_sum(fx_square(s)), s), (3), 0, 2, 4, 6);
}

static void arrays_used_twice(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_vector(1, -2, 3);
    CHECK(gradient1(fx_sum(fx_add(fx_mul(x, x), x)), x), (3), 0, 3, -3, 7);
    fx_array *A = fx_from(FX_DTYPE_F32, ((const float[]){1, 2, 3, 4}), 2, 2);
    /* d Σ AA / dA = (row sums of A)ᵀ everywhere + column sums: (g Aᵀ + Aᵀ g), g of ones */
    CHECK(gradient1(fx_sum(fx_matmul(A, A)), A), (2, 2), 0, 4 + 3, 4 + 7, 6 + 3, 6 + 7);
    fx_array *y = x;
    for (int i = 0; i < 60; i++) /* 2⁶⁰ paths, 60 nodes */
        y = fx_add(y, y);
    CHECK(gradient1(fx_sum(y), x), (3), 0, 0x1p60, 0x1p60, 0x1p60);
    fx_array *both[2];
    fx_gradient_of(fx_sum(fx_square(x)), (fx_array *[]){x, x}, 2, both);
    CHECK(both[0], (3), 0, 2, -4, 6);
    CHECK(both[1], (3), 0, 2, -4, 6);
}

static void unused_arrays_get_zeros(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_vector(1, 2), *g[4];
    fx_array *others[] = {x, fx_ones(2, 3), fx_full_dtype(FX_DTYPE_F64, 5, 4),
                          fx_full_dtype(FX_DTYPE_F16, 5, 1)};
    assert_int_equal(fx_gradient_of(fx_sum(x), others, 4, g), FX_OK);
    CHECK(g[0], (2), 0, 1, 1);
    CHECK(g[1], (2, 3), 0, 0, 0, 0, 0, 0, 0);
    CHECK(g[2], (4), 0, 0, 0, 0, 0);
    CHECK(g[3], (1), 0, 0);
    assert_int_equal(fx_eltype(g[1]), FX_DTYPE_F32);
    assert_int_equal(fx_eltype(g[2]), FX_DTYPE_F64);
    assert_int_equal(fx_eltype(g[3]), FX_DTYPE_F16);
}

static void integers_get_none(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_vector(1, 2), *g[3], *i = fx_range_dtype(FX_DTYPE_I32, 1, 1, 2);
    fx_array *mask = fx_gt(x, 1.5), *all[] = {i, x, mask};
    fx_array *loss = fx_sum(fx_where(mask, fx_mul(x, i), 0));
    assert_int_equal(fx_gradient_of(loss, all, 3, g), FX_OK);
    assert_null(g[0]);
    CHECK(g[1], (2), 0, 0, 2);
    assert_null(g[2]);
    /* a conversion to integers and back has no gradient */
    fx_array *y = fx_cast(fx_cast(x, FX_DTYPE_I32), FX_DTYPE_F32);
    CHECK(gradient1(fx_sum(fx_mul(y, x)), x), (2), 0, 1, 2);
}

static void intermediate_values(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *w = fx_vector(1, 2, 3), *h = fx_mul(w, 2), *y = fx_square(h), *loss = fx_sum(y);
    fx_array *g[4];
    assert_int_equal(fx_gradient_of(loss, (fx_array *[]){w, h, y, loss}, 4, g), FX_OK);
    CHECK(g[0], (3), 0, 8, 16, 24);
    CHECK(g[1], (3), 0, 4, 8, 12);
    CHECK(g[2], (3), 0, 1, 1, 1);
    CHECK(g[3], (), 0, 1);
}

/* The gradient has the type and the shape of the array that it belongs to, whatever operations are
 * between. */
static void types_and_shapes_fit(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *h = fx_cast(fx_vector(1, 2), FX_DTYPE_F16),
             *d = fx_cast(fx_vector(3, 4), FX_DTYPE_F64);
    fx_array *column = fx_ones(2, 1), *scalar = fxi_full(FX_DTYPE_F32, 3, 0, NULL), *g[4];
    fx_array *wide = fx_ones(2, 5);
    fx_array *loss = fx_sum(fx_mul(fx_mul(fx_mul(h, d), fx_mul(column, wide)), scalar));
    assert_int_equal(fx_gradient_of(loss, (fx_array *[]){h, d, column, scalar}, 4, g), FX_OK);
    assert_int_equal(fx_eltype(g[0]), FX_DTYPE_F16);
    assert_int_equal(fx_eltype(g[1]), FX_DTYPE_F64);
    assert_int_equal(fx_eltype(g[2]), FX_DTYPE_F32);
    CHECK(g[0], (2), 0, 45, 60);
    CHECK(g[1], (2), 0, 15, 30);
    CHECK(g[2], (2, 1), 0, 45, 120);
    CHECK(g[3], (), 0, 55);
}

static void empty_arrays(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_zeros(0, 3), *w = fx_ones(4, 0), *g[2];
    fx_array *loss = fx_sum(fx_square(fx_matmul(w, x)));
    assert_int_equal(fx_gradient_of(loss, (fx_array *[]){w, x}, 2, g), FX_OK);
    check_dims("w", g[0], 2, (int64_t[]){4, 0});
    check_dims("x", g[1], 2, (int64_t[]){0, 3});
    assert_int_equal(fx_eval(g[0]), FX_OK);
    assert_int_equal(fx_eval(g[1]), FX_OK);
    SAME(fx_item(loss), 0);
}

/* ---- evaluated values ------------------------------------------------------------------------ */

static void through_evaluated_values(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_vector(1, 2, 3), *h = fx_exp(x), *loss = fx_sum(fx_square(h));
    fx_eval(h);
    CHECK(gradient1(loss, x), (3), 1e-6, 2 * exp(2), 2 * exp(4), 2 * exp(6));
    NEAR(fx_item(loss), exp(2) + exp(4) + exp(6), 1e-3);
    assert_true(fx_is_evaluated(loss));
    CHECK(gradient1(loss, x), (3), 1e-6, 2 * exp(2), 2 * exp(4), 2 * exp(6));
    fx_array *g = gradient1(loss, x);
    fx_eval(g);
    CHECK(gradient1(fx_sum(g), x), (3), 1e-6, 4 * exp(2), 4 * exp(4), 4 * exp(6));
}

static void withgradient_is_one_plan(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_dense_layer *m = fx_dense(
        0, 0, .weight_array = fx_from(FX_DTYPE_F32, ((float[]){1, 2}), 1, 2), .bias = false);
    fx_array *x = fx_vector(3, 5);
    fx_eval(m);
    double value = 0;
    const uint64_t evals = fx_stats().evals;
    fx_dense_layer *g = fx_withgradient(fx_sum(fx_square(fx_call(m, x))), m, &value);
    assert_int_equal(fx_stats().evals, evals + 1);
    SAME(value, 13 * 13);
    assert_true(fx_is_evaluated(g->weight));
    CHECK(g->weight, (1, 2), 0, 78, 130);
    assert_int_equal(fx_stats().evals, evals + 1);
}

/* ---- models ---------------------------------------------------------------------------------- */

typedef struct Mixed {
    fx_object base;
    fx_array *a, *index;
    void *inner;
    fx_array *constant; /* not a child */
} Mixed;
FX_FUNCTOR(Mixed, a, index, inner);

static void of_a_model_is_a_model(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_dense_layer *dense = fx_dense(2, 3, FX_TANH);
    fx_batchnorm_layer *norm = fx_batchnorm(3);
    Mixed *m = fx_new(Mixed, .a = fx_ones(2), .index = fx_range_dtype(FX_DTYPE_I64, 0, 1, 2),
                      .inner = fx_chain(dense, norm), .constant = fx_ones(1));
    FX_STEP;
    fx_array *y = fx_call(m->inner, fx_reshape(fx_mul(m->a, 2), 2, 1));
    fx_array *loss = fx_add(fx_sum(fx_square(m->a)), fx_mul(0, fx_sum(fx_call(dense, m->a))));
    (void)y;
    Mixed *g = fx_gradient(loss, m);
    assert_ptr_equal(fx_type_of(g), fx_type_of(m));
    CHECK(g->a, (2), 0, 2, 2);
    assert_null(g->index);                      /* integers have none */
    assert_ptr_equal(g->constant, m->constant); /* members that are not children are shared */
    fx_dense_layer *gd = fx_child(g->inner, 0);
    fx_batchnorm_layer *gn = fx_child(g->inner, 1);
    assert_ptr_equal(fx_type_of(g->inner), fx_type_of(m->inner));
    assert_ptr_equal(fx_type_of(gd), fx_type_of(dense));
    check_dims("weight", gd->weight, 2, (int64_t[]){3, 2});
    check_dims("bias", gd->bias, 1, (int64_t[]){3});
    CHECK(gn->gamma, (3), 0, 0, 0, 0); /* not reached */
    assert_null(gn->mean);             /* not trained */
    assert_null(gn->var);
    assert_ptr_equal(gd->act, dense->act);
    fx_error_take(); /* training refuses one value per channel, which this test does not examine */
}

static void of_tuples_and_arrays(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_vector(1, 2), *y = fx_vector(3, 4);
    void *t = fx_named_tuple("x", x, "rest", fx_tuple(y, fx_ones(1)));
    void *g = fx_gradient(fx_sum(fx_mul(x, y)), t);
    CHECK((fx_array *)fx_child_named(g, "x"), (2), 0, 3, 4);
    CHECK((fx_array *)fx_child(fx_child_named(g, "rest"), 0), (2), 0, 1, 2);
    CHECK((fx_array *)fx_child(fx_child_named(g, "rest"), 1), (1), 0, 0);
    fx_array *gx = fx_gradient(fx_sum(fx_square(x)), x); /* the model is an array */
    CHECK(gx, (2), 0, 2, 4);
}

static void ties_are_summed(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *w = fx_from(FX_DTYPE_F32, ((float[]){1, 2, 3, 4}), 2, 2), *x = fx_vector(1, -1);
    fx_chain_layer *m = fx_chain(fx_dense(0, 0, .weight_array = w, .bias = false),
                                 fx_dense(0, 0, .weight_array = w, .bias = false));
    fx_chain_layer *g = fx_gradient(fx_sum(fx_call(m, x)), m);
    const fx_dense_layer *g0 = fx_child(g, 0), *g1 = fx_child(g, 1);
    assert_ptr_equal(g0->weight, g1->weight);
    assert_ptr_not_equal(g0, g1);
    /* s = 1ᵀW·W·x: ∂W = 1(Wx)ᵀ + (Wᵀ1)xᵀ; Wx = (−2, −2), Wᵀ1 = (3, 7) */
    CHECK(g0->weight, (2, 2), 0, -2 + 3, -2 + 7, -2 - 3, -2 - 7);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void wrong_losses(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_vector(1, 2, 3), *g = NULL;
    fx_dense_layer *m = fx_dense(3, 2), *gm;
    assert_int_equal(fx_gradient_of(fx_square(x), &x, 1, &g), FX_STATUS_SHAPE);
    check_error(g, FX_STATUS_SHAPE, "gradient: the loss must have one element, got 3");
    gm = fx_gradient(fx_call(m, x), m);
    expect_error(FX_STATUS_SHAPE, "gradient: the loss must have one element, got 2");
    assert_ptr_equal(fx_type_of(gm), fx_type_of(m));
    assert_int_equal(fx_array_status(gm->weight), FX_STATUS_SHAPE);
    assert_int_equal(fx_array_status(gm->bias), FX_STATUS_SHAPE);

    fx_array *count = fx_sum(fx_gt(x, 1));
    assert_int_equal(fx_gradient_of(count, &x, 1, &g), FX_STATUS_DTYPE);
    check_error(g, FX_STATUS_DTYPE, "gradient: takes a floating-point result, got Int64");

    assert_int_equal(fx_gradient_of(NULL, &x, 1, &g), FX_STATUS_ARGUMENT);
    check_error(g, FX_STATUS_ARGUMENT, "gradient: ");
    fx_array *none = NULL;
    assert_int_equal(fx_gradient_of(fx_sum(x), &none, 1, &g), FX_STATUS_ARGUMENT);
    check_error(g, FX_STATUS_ARGUMENT, "gradient: ");
    fx_array *not_array = (fx_array *)(void *)m;
    assert_int_equal(fx_gradient_of(fx_sum(x), &not_array, 1, &g), FX_STATUS_ARGUMENT);
    check_error(g, FX_STATUS_ARGUMENT, "gradient: ");
    assert_true(fx_is_error(fx_gradient(fx_sum(x), (void *)NULL)));
    expect_error(FX_STATUS_ARGUMENT, "gradient: ");
    /* 1×1 is one element */
    fx_array *one = fx_reshape(fx_sum(x), 1, 1);
    CHECK(gradient1(one, x), (3), 0, 1, 1, 1);
}

static void losses_that_are_errors(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_dense_layer *m = fx_dense(3, 2);
    fx_array *loss = fx_mse(fx_call(m, fx_ones(4)), fx_ones(2));
    assert_true(fx_is_error(loss));
    assert_int_equal(fx_error_take().status, FX_STATUS_SHAPE);
    fx_dense_layer *g = fx_gradient(loss, m);
    assert_ptr_equal(fx_type_of(g), fx_type_of(m));
    assert_int_equal(fx_array_status(g->weight), FX_STATUS_SHAPE);
    assert_int_equal(fx_error_status(), FX_OK); /* recorded once, by the call that failed */
    double value = 0;
    g = fx_withgradient(loss, m, &value);
    assert_true(isnan(value));
    assert_int_equal(fx_array_status(g->bias), FX_STATUS_SHAPE);
    assert_int_equal(fx_error_status(), FX_OK);
}

static void expect_rebound(fx_array *loss, fx_dense_layer *m)
{
    fx_dense_layer *g = fx_gradient(loss, m);
    assert_ptr_equal(fx_type_of(g), fx_type_of(m));
    assert_int_equal(fx_array_status(g->weight), FX_STATUS_STATE);
    expect_error(FX_STATUS_STATE, "gradient: ");
    fx_array *gw = gradient1(loss, m->weight);
    assert_int_equal(fx_array_status(gw), FX_STATUS_STATE);
    expect_error(FX_STATUS_STATE, "gradient: ");
}

/* A gradient against a handle that was rebound after the loss was built is an error, never zeros:
 * whether the loss was read before, was computed by the update, or is still pending, and after its
 * training step has closed as well. */
static void against_rebound_handles(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_dense_layer *m = fx_dense(3, 1), *other = fx_dense(3, 1);
    void *opt = fx_setup(fx_descent(), m);
    fx_array *x = fx_ones(3), *kept;
    {
        FX_STEP;
        fx_array *read = fx_sum(fx_square(fx_call(m, x))), *pending = fx_sum(fx_call(m, x));
        fx_array *unread = fx_sum(fx_exp(fx_call(m, x)));
        fx_array *unrelated = fx_sum(fx_square(fx_call(other, x)));
        kept = fx_keep(fx_sum(fx_mul(fx_call(m, x), 2)));
        fx_item(read);
        for (int i = 0; i < 2; i++) { /* once rebound, and twice */
            fx_array *loss = fx_sum(fx_square(fx_call(m, x)));
            assert_int_equal(fx_update(opt, m, fx_gradient(loss, m)), FX_OK);
            expect_rebound(loss, m);
            expect_rebound(read, m);
            expect_rebound(pending, m);
            expect_rebound(unread, m);
            expect_rebound(kept, m);
        }
        fx_dense_layer *g = fx_gradient(unrelated, other); /* its handles were not */
        assert_int_equal(fx_eval(g), FX_OK);
        fx_array *gx = gradient1(read, x);
        check_dims("gx", gx, 1, (int64_t[]){3});
        fx_error_take(); /* the old weight may be gone: an error then, not a number */
    }
    expect_rebound(kept, m);
}

static void against_handles_refilled(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_vector(1, 2), *loss = fx_sum(fx_square(x));
    assert_int_equal(fx_copy_into(x, fx_vector(5, 6)), FX_OK);
    fx_array *g = gradient1(loss, x);
    check_error(g, FX_STATUS_STATE, "gradient: ");
    SAME(fx_item(loss), 5); /* the operation captured the value */
    CHECK(gradient1(fx_sum(fx_square(x)), x), (2), 0, 10, 12);
}

/* A loss whose training step has closed is a constant: asking for its gradient is an error as well.
 */
static void after_the_step(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_vector(1, 2), *loss, *evaluated;
    {
        FX_STEP;
        loss = fx_keep(fx_sum(fx_square(x)));
        evaluated = fx_keep(fx_square(x));
        fx_item(loss);
        fx_eval(evaluated);
    }
    check_error(gradient1(loss, x), FX_STATUS_STATE, "gradient: ");
    /* The gradient with respect to itself needs no history. */
    CHECK(gradient1(loss, loss), (), 0, 1);
    fx_array *g[2];
    assert_int_equal(fx_gradient_of(loss, (fx_array *[]){x, loss}, 2, g), FX_STATUS_STATE);
    check_error(g[0], FX_STATUS_STATE, "gradient: ");
    assert_int_equal(fx_gradient_of(loss, (fx_array *[]){loss, loss}, 2, g), FX_OK);
    CHECK(g[1], (), 0, 1);
    /* in a new loss it is a constant, as documented */
    CHECK(gradient1(fx_sum(fx_mul(evaluated, x)), x), (2), 0, 1, 4);
}

/* ---- pullback -------------------------------------------------------------------------------- */

static void pullbacks(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_vector(1, 2, 3), *y = fx_square(x), *g = NULL;
    assert_int_equal(fx_pullback(y, fx_vector(1, 10, 100), &x, 1, &g), FX_OK);
    CHECK(g, (3), 0, 2, 40, 600);
    fx_array *W = fx_from(FX_DTYPE_F32, ((float[]){1, 2, 3, 4, 5, 6}), 2, 3);
    assert_int_equal(fx_pullback(fx_matmul(W, x), fx_vector(1, -1), &x, 1, &g), FX_OK);
    CHECK(g, (3), 0, -1, -1, -1);
    /* the upstream gradient is differentiable too: d/du Σ(u·2x) = 2x */
    fx_array *u = fx_vector(1, 1, 1);
    fx_pullback(y, u, &x, 1, &g);
    CHECK(gradient1(fx_sum(g), u), (3), 0, 2, 4, 6);
    /* its size must be the result's */
    assert_int_equal(fx_pullback(y, fx_vector(1, 2), &x, 1, &g), FX_STATUS_SHAPE);
    check_error(g, FX_STATUS_SHAPE, "gradient: ");
    assert_int_equal(fx_pullback(y, fx_ones(3, 2), &x, 1, &g), FX_STATUS_SHAPE);
    check_error(g, FX_STATUS_SHAPE, "gradient: ");
    assert_int_equal(fx_pullback(y, fx_ones(1), &x, 1, &g), FX_STATUS_SHAPE);
    check_error(g, FX_STATUS_SHAPE, "gradient: ");
    assert_int_equal(fx_pullback(y, NULL, &x, 1, &g), FX_STATUS_ARGUMENT);
    check_error(g, FX_STATUS_ARGUMENT, "gradient: ");
    assert_int_equal(fx_pullback(y, y, NULL, 1, &g), FX_STATUS_ARGUMENT);
    check_error(g, FX_STATUS_ARGUMENT, "the list of 1 arrays is NULL");
    assert_int_equal(fx_gradient_of(fx_sum(y), &x, 1, NULL), FX_STATUS_ARGUMENT);
    expect_error(FX_STATUS_ARGUMENT, "gradient: the list of 1 gradients is NULL");
    assert_int_equal(fx_gradient_of(fx_sum(y), &x, -1, &g), FX_STATUS_ARGUMENT);
    expect_error(FX_STATUS_ARGUMENT, "gradient: the number of arrays is -1");
}

/* ---- operations of one's own ----------------------------------------------------------------- */

static fx_status cube(const fx_custom_op *op, int n, const fx_custom_operand *in,
                      const fx_custom_operand *out)
{
    (void)op, (void)n;
    const double *x = in->data;
    double *y = out->data;
    for (int64_t i = 0; i < in->sizes[0]; i++)
        y[i] = x[i] * x[i] * x[i];
    return FX_OK;
}

static void cube_gradient(const fx_custom_op *op, int n, fx_array *const *in, fx_array *out,
                          fx_array *gy, fx_array **gx)
{
    (void)op, (void)n, (void)out;
    gx[0] = fx_mul(gy, fx_mul(3, fx_square(in[0])));
}

static void custom_operations(void **state)
{
    (void)state;
    FX_SCOPE;
    static const fx_custom_op with = {sizeof with, "cube", cube, cube_gradient, NULL};
    static const fx_custom_op without = {sizeof without, "cube", cube, NULL, NULL};
    fx_array *x = vector64((double[]){1, 2, -3}, 3);
    fx_array *y = fx_custom(&with, 1, &x, FX_DTYPE_F64, FX_DIMS(3));
    CHECK(y, (3), 0, 1, 8, -27);
    fx_array *g = gradient1(fx_sum(y), x);
    CHECK(g, (3), 0, 3, 12, 27);
    CHECK(gradient1(fx_sum(g), x), (3), 0, 6, 12, -18);
    y = fx_custom(&without, 1, &x, FX_DTYPE_F64, FX_DIMS(3));
    CHECK(gradient1(fx_sum(fx_mul(y, x)), x), (3), 0, 1, 8, -27);
}

/* A forward function that evaluates arrays itself, which it must not. */
static double own_sum;
static fx_status evaluates(const fx_custom_op *op, int n, const fx_custom_operand *in,
                           const fx_custom_operand *out)
{
    fx_array *x = fx_from(FX_DTYPE_F64, in->data, 3);
    own_sum = fx_item(fx_sum(fx_matmul(fx_reshape(x, 1, 3), fx_exp(x))));
    return cube(op, n, in, out);
}

static void a_forward_function_that_evaluates(void **state)
{
    (void)state;
    FX_SCOPE;
    static const fx_custom_op op = {sizeof op, "evaluates", evaluates, NULL, NULL};
    fx_array *x = fx_exp(vector64((double[]){0, 0, 0}, 3));
    fx_array *y = fx_mul(fx_custom(&op, 1, &x, FX_DTYPE_F64, FX_DIMS(3)), fx_add(x, 1));
    assert_int_equal(fx_eval(y), FX_OK);
    const fx_error e = fx_error_take();
    assert_int_equal(e.status, FX_STATUS_STATE);
    assert_non_null(strstr(e.message, "forward function of a custom operation"));
    assert_true(own_sum != own_sum);
    CHECK(y, (3), 0, 2, 2, 2);
    CHECK(fx_exp(x), (3), 1e-12, 2.718281828459045, 2.718281828459045, 2.718281828459045);
}

/* ---- gradients of slices --------------------------------------------------------------------- */
/* Pieces of x with weights, some overlapping, some leaving gaps, in any order, and x itself: the
 * gradient is, at each position, the sum of the weights of the pieces that contain it. */
static void slices_that_overlap_and_leave_gaps(void **state)
{
    (void)state;
    static const struct {
        int64_t from, to;
        double weight;
    } pieces[] = {{4, 6, 2}, {0, 2, 3}, {5, 9, 5}, {2, 3, 7}, {4, 6, 11}, {6, 6, 13}};
    enum { PIECES = sizeof pieces / sizeof *pieces };
    for (int axis = 0; axis < 2; axis++)
        for (int plain = 0; plain < 2; plain++)
            for (int n = 0; n <= PIECES; n++) {
                FX_SCOPE;
                fx_array *x = axis ? fx_full(1, 3, 10) : fx_full(1, 10, 3), *g;
                fx_eval(x);
                fx_array *loss = plain ? fx_sum(fx_mul(x, 17)) : fx_mul(0, fx_sum(x));
                double want[10];
                for (int i = 0; i < 10; i++)
                    want[i] = plain ? 17 : 0;
                for (int k = 0; k < n; k++) {
                    fx_array *piece = fx_slice(x, axis, pieces[k].from, pieces[k].to);
                    loss = fx_add(loss, fx_sum(fx_mul(piece, pieces[k].weight)));
                    for (int64_t i = pieces[k].from; i < pieces[k].to; i++)
                        want[i] += pieces[k].weight;
                }
                assert_int_equal(fx_gradient_of(loss, &x, 1, &g), FX_OK);
                assert_int_equal(fx_size(g, axis), 10);
                for (int64_t i = 0; i < 30; i++)
                    assert_true(fx_at(g, i) == want[axis ? i / 3 : i % 10]);
            }
}

/* The same with pieces along both axes of one array, in random order. */
static void slices_along_several_axes(void **state)
{
    (void)state;
    enum { ROWS = 4, COLUMNS = 5, ROUNDS = 40 };
    uint32_t random = 7;
    for (int round = 0; round < ROUNDS; round++) {
        FX_SCOPE;
        double want[ROWS * COLUMNS] = {0};
        fx_array *x = fx_full_dtype(FX_DTYPE_F64, 1, ROWS, COLUMNS), *loss = fx_zeros(), *g;
        fx_eval(x);
        for (int k = 0; k < 2 + round % 5; k++) {
            random = random * 1664525u + 1013904223u;
            const int axis = random >> 30 & 1, size = axis ? COLUMNS : ROWS;
            const int64_t from = (int)(random >> 20 & 255) % size,
                          to = from + 1 + (int)(random >> 10 & 255) % (size - from);
            loss = fx_add(loss, fx_sum(fx_mul(fx_slice(x, axis, from, to), k + 1)));
            for (int i = 0; i < ROWS * COLUMNS; i++) {
                const int64_t at = axis ? i / ROWS : i % ROWS;
                want[i] += at >= from && at < to ? k + 1 : 0;
            }
        }
        assert_int_equal(fx_gradient_of(loss, &x, 1, &g), FX_OK);
        for (int i = 0; i < ROWS * COLUMNS; i++)
            assert_true(fx_at(g, i) == want[i]);
    }
}

/* Every start, step and number of a slice of the middle axis: the gradient of x is the sum of those
 * of its copies. */
static void slices_in_steps(void **state)
{
    (void)state;
    enum { INNER = 2, SIZE = 5, OUTER = 3 };
    int checked = 0;
    for (int start = 0; start < SIZE; start++)
        for (int step = -SIZE; step <= SIZE; step++)
            for (int n = 0; n <= SIZE; n++) {
                const int last = start + step * (n - 1);
                if (n > 0 && (last < 0 || last >= SIZE))
                    continue;
                FX_SCOPE;
                fx_array *x = fx_ones(INNER, SIZE, OUTER), *g;
                double want[INNER * SIZE * OUTER] = {0};
                fx_array *weights = fx_reshape(fx_range(1, 1, INNER * n * OUTER), INNER, n, OUTER);
                for (int i = 0; i < INNER * n * OUTER; i++) {
                    const int at = start + step * (i / INNER % n);
                    want[i % INNER + INNER * (at + SIZE * (i / (INNER * n)))] += i + 1;
                }
                fx_array *loss = fx_sum(fx_mul(fx_slice_step(x, 1, start, step, n), weights));
                assert_int_equal(fx_gradient_of(loss, &x, 1, &g), FX_OK);
                for (int i = 0; i < INNER * SIZE * OUTER; i++)
                    assert_true(fx_at(g, i) == want[i]);
                checked++;
            }
    assert_true(checked > 100);
}

/* y = x, and 2x₃ added to its last element. */
static void check_padded(fx_array *x, fx_array *gy, double rest)
{
    fx_array *last = fx_mul(fx_slice(x, 0, 3, 4), 2), *g;
    assert_int_equal(fx_pullback(fx_add(x, fx_pad(last, 0, 3, 0, 0)), gy, &x, 1, &g), FX_OK);
    CHECK(g, (4), 0, rest, 6, 7, 3 * rest);
}

/* Upstream gradients that are pads themselves, of zeros and of something else, pending, evaluated,
 * and kept from a step that has closed: the gradients of slices do not replace the numbers around
 * them. */
static void upstream_gradients_that_are_pads(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_vector(1, 2, 3, 4);
    for (int evaluated = 0; evaluated < 2; evaluated++)
        for (double rest = 0; rest < 20; rest += 9) {
            fx_array *gy;
            {
                FX_STEP;
                gy = fx_keep(fx_pad(fx_add(fx_vector(5, 6), 1), 0, 1, 1, rest));
                if (evaluated)
                    fx_eval(gy);
                check_padded(x, gy, rest);
            }
            for (int i = 0; i < 100; i++) /* may reuse memory that was freed with the step */
                fx_pad(fx_add(fx_vector(1, 1), 1), 0, 1, 1, 0);
            check_padded(x, gy, rest);
        }
}

/* Of a broadcast: the sum over what was repeated, also when the upstream gradient is a negation,
 * pending, evaluated, and kept from a step that has closed. */
static void upstream_gradients_that_are_negations(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_vector(1, 2), *g;
    for (int evaluated = 0; evaluated < 2; evaluated++) {
        fx_array *gy;
        {
            FX_STEP;
            gy = fx_keep(fx_neg(fx_mul(fx_ones(2, 3), fx_vector(5, 7))));
            if (evaluated)
                fx_eval(gy);
            assert_int_equal(fx_pullback(fx_add(x, fx_ones(2, 3)), gy, &x, 1, &g), FX_OK);
            CHECK(g, (2), 0, -15, -21);
        }
        for (int i = 0; i < 100; i++) /* may reuse memory that was freed with the step */
            fx_neg(fx_mul(fx_ones(2, 3), fx_vector(1, 1)));
        assert_int_equal(fx_pullback(fx_add(x, fx_ones(2, 3)), gy, &x, 1, &g), FX_OK);
        CHECK(g, (2), 0, -15, -21);
    }
}

/* Bytes that the gradient of `n` slices moves, of an array that they divide. */
static double bytes_of_slices(int64_t n)
{
    FX_SCOPE;
    fx_array *x = fx_full(2, n, 16), *loss = fx_zeros(), *g;
    fx_eval(x);
    for (int64_t k = 0; k < n; k++)
        loss = fx_add(loss, fx_sum(fx_square(fx_slice(x, 0, k, k + 1))));
    assert_int_equal(fx_gradient_of(loss, &x, 1, &g), FX_OK);
    const uint64_t before = fx_stats().bytes_moved;
    assert_int_equal(fx_eval(g), FX_OK);
    assert_true(fx_at(g, 5) == 4);
    return (double)(fx_stats().bytes_moved - before);
}

static void many_slices_cost_what_the_array_costs(void **state)
{
    (void)state;
    assert_true(bytes_of_slices(400) < 5 * bytes_of_slices(100));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(of_gradients),
        TEST(of_a_penalty),
        TEST(of_the_least_exponent),
        TEST(stop_gradient_is_a_constant),
        TEST(arrays_used_twice),
        TEST(unused_arrays_get_zeros),
        TEST(integers_get_none),
        TEST(intermediate_values),
        TEST(types_and_shapes_fit),
        TEST(empty_arrays),
        TEST(through_evaluated_values),
        TEST(withgradient_is_one_plan),
        TEST(of_a_model_is_a_model),
        TEST(of_tuples_and_arrays),
        TEST(ties_are_summed),
        TEST(wrong_losses),
        TEST(losses_that_are_errors),
        TEST(against_rebound_handles),
        TEST(against_handles_refilled),
        TEST(after_the_step),
        TEST(pullbacks),
        TEST(custom_operations),
        TEST(a_forward_function_that_evaluates),
        TEST(slices_that_overlap_and_leave_gaps),
        TEST(slices_along_several_axes),
        TEST(slices_in_steps),
        TEST(upstream_gradients_that_are_pads),
        TEST(upstream_gradients_that_are_negations),
        TEST(many_slices_cost_what_the_array_costs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
