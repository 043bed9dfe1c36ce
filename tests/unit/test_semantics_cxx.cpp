// test_semantics_cxx.cpp: scopes, options and batches as C++17 sees them: guard objects
// close scopes on every way out, an exception included; no option macro is defined, overloads and
// option structs take their place; a zero batch is fx_batch b{}.
#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
extern "C" {
#include <cmocka.h>
}

#include <cflux.h>

#include <stdexcept>

#if defined(fx_dense) || defined(fx_sum) || defined(fx_update) || defined(fx_add) ||               \
    defined(fx_zeros) || defined(fx_keep) || defined(fx_set) || defined(fx_gradient) ||            \
    defined(fx_adam) || defined(fx_dataloader)
#error "option macros must not be defined in C++"
#endif

static int released;
static const float memory[2] = {1, 2};
static void count_release(void *, void *)
{
    released++;
}
static fx_array *tracked()
{
    return fx_borrow(FX_DTYPE_F32, memory, count_release, nullptr, 2);
}

static fx_array *kept()
{
    FX_SCOPE;
    tracked();
    return fx_keep(fx_add(tracked(), 1));
}

static void guards_close_scopes(void **)
{
    FX_SCOPE;
    released = 0;
    try {
        FX_STEP;
        tracked();
        assert_true(fx_training());
        {
            FX_TEST;
            tracked();
            assert_false(fx_training());
            throw std::runtime_error("out");
        }
    } catch (const std::exception &) {
        assert_false(fx_training());
        assert_int_equal(released, 2);
    }
    fx_array *y = kept();
    assert_int_equal(released, 3);
    assert_false(fx_is_evaluated(y));
    assert_true(fx_at(y, 1) == 3);
    fx_array *slot = nullptr;
    {
        FX_STEP;
        fx_set(&slot, fx_mul(y, 2));
    }
    assert_true(fx_is_evaluated(slot));
    assert_true(fx_at(slot, 0) == 4);
    fx_set(&slot, nullptr);
    fx_release(fx_retain(y));
    assert_int_equal(fx_error_status(), FX_OK);
}

static void overloads_take_numbers_and_arrays(void **)
{
    FX_SCOPE;
    fx_array *x = fx_vector(1, 2, 3);
    assert_true(fx_at(fx_sub(1, x), 2) == -2);
    assert_true(fx_at(fx_mul(0.5, x), 2) == 1.5);
    assert_true(fx_at(fx_add(x, x), 2) == 6);
    assert_true(fx_item(fx_sum(x)) == 6);
    assert_int_equal(fx_ndims(fx_sum(x, FX_AXES(0))), 1);
    assert_int_equal(fx_ndims(fx_sum(x, FX_AXES(0), true)), 0);
    assert_int_equal(fx_eltype(fx_mul(fx_full_dtype(FX_DTYPE_I32, 3, 2), 2)), FX_DTYPE_I32);
    assert_int_equal(fx_eltype(fx_mul(fx_full_dtype(FX_DTYPE_I32, 3, 2), 2.0)), FX_DTYPE_F32);
    assert_int_equal(fx_eltype(fx_mul(fx_full_dtype(FX_DTYPE_U8, 3, 2), true)), FX_DTYPE_U8);
    const float W[2][5] = {{1, 2, 3, 4, 5}, {6, 7, 8, 9, 10}};
    assert_int_equal(fx_size(FX_FROM_C(W), 0), 5);
    assert_int_equal(fx_size(FX_FROM_C(W), 1), 2);
    assert_true(fx_at(FX_FROM_C(W), 5) == 6);
    assert_int_equal(fx_length(fx_zeros(2, 3, 4)), 24);
    assert_int_equal(fx_ndims(fx_zeros()), 0);
    assert_int_equal(fx_error_status(), FX_OK);
}

static void training_reads_the_same(void **)
{
    FX_SCOPE;
    fx_chain_layer *m = fx_chain(fx_dense(2, 4, FX_TANH), fx_dense(4, 1));
    void *opt = fx_setup(fx_adam(0.05), m);
    fx_array *X = fx_sin(fx_reshape(fx_range(0, 1, 20), 2, 10)), *Y = fx_slice(X, 0, 0, 1);
    fx_loader *loader = fx_dataloader(fx_tuple(X, Y), 4);
    double first = 0, last = 0;
    int steps = 0;
    for (int epoch = 0; epoch < 30; epoch++)
        for (fx_batch b{}; fx_next(loader, &b); steps++) {
            FX_STEP;
            fx_array *loss = fx_mse(fx_call(m, b.x), b.y);
            assert_int_equal(fx_update(opt, m, fx_gradient(loss, m)), FX_OK);
            last = fx_item(loss);
            first = steps == 0 ? last : first;
        }
    assert_int_equal(steps, 90);
    assert_true(last < 0.5 * first);
    fx_update_args a;
    a.state = opt, a.model = m;
    FX_STEP;
    fx_array *loss = fx_mse(fx_call(m, X), Y);
    a.gradient = fx_gradient(loss, m), a.guard = loss;
    assert_int_equal(fx_update(a), FX_OK);
    assert_int_equal(fx_error_status(), FX_OK);
}

int main()
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(guards_close_scopes),
        cmocka_unit_test(overloads_take_numbers_and_arrays),
        cmocka_unit_test(training_reads_the_same),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
