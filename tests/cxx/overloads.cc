/* overloads.cc: the headers as a C++17 program sees them. ctest: quick
 *
 * C++ has no designated initialisers (before C++20), no compound literals and no _Generic, so none
 * of the C macros with options is defined there: overloads, default arguments and the option
 * structs take their place. Every one of them is called here at least once and its result compared
 * with a value that is known without cflux. A failed check is printed with its line; the exit
 * status is the number of failed checks, at most 99.
 */
#include <cflux.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>

namespace
{

int failures = 0;

void check(bool ok, const char *what, int line)
{
    if (ok)
        return;
    failures++;
    std::fprintf(stderr, "overloads.cc:%d: %s\n", line, what);
}

#define CHECK(...) check((__VA_ARGS__), #__VA_ARGS__, __LINE__)

bool near(double a, double b)
{
    return std::fabs(a - b) <= 1e-5 * (1 + std::fabs(b));
}

/* x is the vector, or matrix in column-major order, of these numbers. */
bool holds(fx_array *x, std::initializer_list<double> want)
{
    if (fx_is_error(x) || fx_length(x) != static_cast<int64_t>(want.size()))
        return false;
    int64_t i = 0;
    for (const double w : want) {
        const double v = fx_at(x, i++);
        if (std::isnan(w) ? !std::isnan(v) : !(v == w || near(v, w)))
            return false;
    }
    return true;
}

bool shaped(fx_array *x, std::initializer_list<int64_t> want)
{
    if (fx_is_error(x) || fx_ndims(x) != static_cast<int>(want.size()))
        return false;
    int axis = 0;
    for (const int64_t size : want)
        if (fx_size(x, axis++) != size)
            return false;
    return true;
}

/* ---- arrays ---------------------------------------------------------------------------------- */

void count_release(void *, void *user)
{
    ++*static_cast<int *>(user);
}

void creation()
{
    FX_SCOPE;
    CHECK(shaped(fx_zeros(), {}) && shaped(fx_zeros(3, 4), {3, 4}));
    CHECK(holds(fx_ones(2), {1, 1}) && holds(fx_full(2.5, 2), {2.5, 2.5}));
    fx_array *i = fx_full_dtype(FX_DTYPE_I32, 7, 1, 2);
    CHECK(shaped(i, {1, 2}) && fx_eltype(i) == FX_DTYPE_I32 && holds(i, {7, 7}));
    CHECK(shaped(fx_rand(2, 5), {2, 5}) && shaped(fx_randn(int64_t{3}, 2u), {3, 2}));
    CHECK(fx_eltype(fx_rand_dtype(FX_DTYPE_F64, 2)) == FX_DTYPE_F64);
    CHECK(fx_eltype(fx_randn_dtype(FX_DTYPE_F64, 2)) == FX_DTYPE_F64);
    CHECK(holds(fx_vector(1, 2.5f, 3.0), {1, 2.5, 3}) && holds(fx_range(1, 2, 3), {1, 3, 5}));

    const double d[] = {1, 2, 3, 4};
    fx_array *copy = fx_from(FX_DTYPE_F64, d, 2, 2);
    CHECK(shaped(copy, {2, 2}) && fx_eltype(copy) == FX_DTYPE_F64 && holds(copy, {1, 2, 3, 4}));

    const fx_dims dims = FX_DIMS(5, 6);
    CHECK(dims.n == 2 && dims.v[0] == 5 && dims.v[1] == 6);
}

void memory_of_others()
{
    static float rows[2][3] = {{1, 2, 3}, {4, 5, 6}};
    static const int64_t longs[4] = {1, 2, 3, 4};
    static const bool cube[1][2][3] = {{{true, false, true}, {false, true, false}}};
    static const uint8_t four[1][1][1][2] = {{{{3, 4}}}};
    static const int32_t ints[1] = {9};
    static const double doubles[1][1] = {{0.5}};
    int released = 0;
    {
        FX_SCOPE;
        CHECK(shaped(FX_FROM_C(rows), {3, 2}) && holds(FX_FROM_C(rows), {1, 2, 3, 4, 5, 6}));
        CHECK(fx_eltype(FX_FROM_C(longs)) == FX_DTYPE_I64 && holds(FX_FROM_C(longs), {1, 2, 3, 4}));
        CHECK(shaped(FX_FROM_C(cube), {3, 2, 1}) && holds(FX_FROM_C(cube), {1, 0, 1, 0, 1, 0}));
        CHECK(shaped(FX_FROM_C(four), {2, 1, 1, 1}) && fx_eltype(FX_FROM_C(four)) == FX_DTYPE_U8);
        CHECK(holds(FX_FROM_C(ints), {9}) && holds(FX_FROM_C(doubles), {0.5}));
        fx_array *b = fx_borrow(FX_DTYPE_F32, rows, count_release, &released, 6);
        CHECK(near(fx_item(fx_sum(b)), 21) && released == 0);
    }
    CHECK(released == 1);
}

/* ---- numbers or arrays ----------------------------------------------------------------------- */

void arithmetic()
{
    FX_SCOPE;
    fx_array *x = fx_vector(-1.5, 2, 4), *y = fx_vector(2, 2, 2);
    CHECK(holds(fx_add(x, 1), {-0.5, 3, 5}) && holds(fx_sub(1, x), {2.5, -1, -3}));
    CHECK(holds(fx_mul(0.5, x), {-0.75, 1, 2}) && holds(fx_div(x, y), {-0.75, 1, 2}));
    CHECK(holds(fx_fld(x, 2), {-1, 1, 2}) && holds(fx_mod(x, 2), {0.5, 0, 0}));
    CHECK(holds(fx_rem(x, 2.0f), {-1.5, 0, 0}) && holds(fx_pow(x, 2), {2.25, 4, 16}));
    CHECK(holds(fx_max(x, y), {2, 2, 4}) && holds(fx_min(3u, x), {-1.5, 2, 3}));
    CHECK(holds(fx_atan2(fx_vector(1), fx_vector(1)), {std::atan2(1.0, 1.0)}));
    CHECK(holds(fx_lt(x, y), {1, 0, 0}) && holds(fx_le(x, y), {1, 1, 0}));
    CHECK(holds(fx_gt(x, y), {0, 0, 1}) && holds(fx_ge(x, y), {0, 1, 1}));
    CHECK(holds(fx_eq(x, 2), {0, 1, 0}) && holds(fx_ne(x, 2), {1, 0, 1}));
    fx_array *p = fx_gt(x, 0), *q = fx_lt(x, 3);
    CHECK(holds(fx_and(p, q), {0, 1, 0}) && holds(fx_or(p, q), {1, 1, 1}));
    CHECK(holds(fx_xor(p, q), {1, 0, 1}) && holds(fx_where(p, x, -1), {-1, 2, 4}));
    CHECK(holds(fx_clamp(x, 0, 3), {0, 2, 3}));
    CHECK(holds(fx_xlogy(fx_vector(0, 2), fx_vector(0, 3)), {0, 2 * std::log(3.0)}));

    fx_array *i = fx_full_dtype(FX_DTYPE_I32, 3, 2);
    CHECK(fx_eltype(fx_add(i, 1)) == FX_DTYPE_I32 &&
          fx_eltype(fx_add(i, int64_t{1} << 40)) == FX_DTYPE_I32);
    CHECK(fx_eltype(fx_add(i, 0.5)) == FX_DTYPE_F32 && fx_eltype(fx_mul(true, i)) == FX_DTYPE_I32);
    const fx_array *constant = x;
    void *untyped = x;
    CHECK(holds(fx_add(constant, untyped), {-3, 4, 8}));
}

void reductions()
{
    FX_SCOPE;
    fx_array *x = fx_reshape(fx_vector(1, 2, 3, 4, 5, 9), 2, 3);
    CHECK(shaped(fx_sum(x), {}) && holds(fx_sum(x), {24}));
    CHECK(shaped(fx_sum(x, FX_AXES(0)), {1, 3}) && holds(fx_sum(x, FX_AXES(0)), {3, 7, 14}));
    CHECK(shaped(fx_sum(x, FX_AXES(1), true), {2}) && holds(fx_sum(x, FX_AXES(0, 1)), {24}));
    CHECK(holds(fx_prod(x, FX_AXES(1)), {15, 72}) && holds(fx_mean(x), {4}));
    CHECK(holds(fx_var(x, FX_AXES(0)), {0.5, 0.5, 8}));
    CHECK(holds(fx_var(x, FX_AXES(0), false, false), {0.25, 0.25, 4}));
    CHECK(holds(fx_std(x, FX_AXES(0), true, false), {0.5, 0.5, 2}));
    CHECK(holds(fx_maximum(x), {9}) && holds(fx_minimum(x, FX_AXES(0)), {1, 3, 5}));
    CHECK(holds(fx_any(fx_gt(x, 8)), {1}) && holds(fx_all(fx_gt(x, 8)), {0}));
    CHECK(holds(fx_norm(fx_vector(3, 4)), {5}));
    const double e = std::exp(1.0);
    CHECK(holds(fx_softmax(fx_vector(0, 1)), {1 / (1 + e), e / (1 + e)}));
    CHECK(holds(fx_logsoftmax(fx_vector(0, 1)), {-std::log(1 + e), 1 - std::log(1 + e)}));
    CHECK(holds(fx_logsumexp(fx_vector(0, 1)), {std::log(1 + e)}));
    CHECK(holds(fx_argmax(x, FX_AXES(0)), {1, 1, 1}) && holds(fx_argmin(x), {0}));
    fx_reduce_args a = fx_reduce_args();
    a.x = x, a.dims = FX_AXES(1), a.drop = true;
    CHECK(shaped(fx_mean(a), {2}) && holds(fx_mean(a), {3, 5}));
}

void shapes()
{
    FX_SCOPE;
    fx_array *x = fx_reshape(fx_range(1, 1, 6), 2, -1), *v = fx_vector(1, 2);
    CHECK(shaped(x, {2, 3}) && shaped(fx_permute(x, 1, 0), {3, 2}));
    CHECK(holds(fx_permute(x, 1, 0), {1, 3, 5, 2, 4, 6}));
    CHECK(holds(fx_expand(v, 2, 2), {1, 2, 1, 2}) && holds(fx_repeat(v, 2), {1, 2, 1, 2}));
    CHECK(shaped(fx_concat(1, x, x), {2, 6}) && holds(fx_concat(0, v, v), {1, 2, 1, 2}));
    CHECK(holds(fx_stack(0, v, fx_vector(3, 4)), {1, 3, 2, 4}));
}

void windows()
{
    FX_SCOPE;
    fx_array *x = fx_reshape(fx_range(1, 1, 4), 4, 1, 1),
             *w = fx_reshape(fx_vector(1, 10), 2, 1, 1);
    fx_convolve_args c = fx_convolve_args();
    c.x = x, c.w = w;
    CHECK(holds(fx_convolve(c), {12, 23, 34})); /* the kernel is flipped */
    c.flipped = true, c.pad = FX_DIMS(1, 0);
    CHECK(holds(fx_convolve(c), {10, 21, 32, 43}));
    c = fx_convolve_args();
    c.x = x, c.w = w, c.stride = FX_DIMS(2);
    CHECK(shaped(fx_convolve_transposed(c), {8, 1, 1}));
    fx_pool_args p = fx_pool_args();
    p.x = x, p.window = FX_DIMS(2);
    CHECK(holds(fx_pool_max(p), {2, 4}) && holds(fx_pool_mean(p), {1.5, 3.5}));
}

/* ---- ownership ------------------------------------------------------------------------------- */

fx_array *doubled(fx_array *x)
{
    FX_SCOPE;
    fx_array *y = fx_mul(x, 2);
    return fx_keep(y);
}

void ownership()
{
    static_assert(std::is_same<decltype(fx_keep(static_cast<fx_dense_layer *>(nullptr))),
                               fx_dense_layer *>::value,
                  "fx_keep keeps the type");
    fx_array *total = nullptr, *held = nullptr;
    fx_set(&total, fx_scalar(0));
    for (int i = 1; i <= 4; i++) {
        FX_STEP;
        CHECK(fx_training());
        fx_set(&total, fx_add(total, i));
        {
            FX_TEST;
            CHECK(!fx_training());
        }
        if (i == 4)
            held = fx_retain(doubled(total));
    }
    CHECK(near(fx_item(total), 10) && near(fx_item(held), 20));
    fx_release(held);
    fx_set(&total, nullptr);
    CHECK(total == nullptr);

    FX_SCOPE;
    fx_dense_layer *model = fx_dense(1, 1);
    fx_dense_layer *then = fx_snapshot(model);
    const double before = fx_item(model->weight);
    CHECK(fx_copy_into(model->weight, fx_full(before + 1, 1, 1)) == FX_OK);
    CHECK(near(fx_item(then->weight), before) && near(fx_item(model->weight), before + 1));
}

/* ---- objects --------------------------------------------------------------------------------- */

struct Affine {
    fx_object base;
    fx_array *scale, *shift;
};

void *affine(void *self, int, void *const *args)
{
    const Affine *a = static_cast<const Affine *>(self);
    return fx_add(fx_mul(a->scale, static_cast<fx_array *>(args[0])), a->shift);
}
FX_LAYER(Affine, affine, scale, shift);

fx_array *negated(fx_array *x)
{
    return fx_neg(x);
}

Affine *make_affine(double scale, double shift)
{
    Affine init = {};
    init.scale = fx_full(scale, 1), init.shift = fx_full(shift, 1);
    return fx_new(Affine, init);
}

struct Wide {
    fx_object base;
    fx_array *f0, *f1, *f2, *f3, *f4, *f5, *f6, *f7, *f8, *f9, *f10, *f11, *f12, *f13, *f14, *f15,
        *f16, *f17, *f18, *f19, *f20, *f21, *f22, *f23, *f24, *f25, *f26, *f27, *f28, *f29, *f30,
        *f31;
};
FX_FUNCTOR(Wide, f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17,
           f18, f19, f20, f21, f22, f23, f24, f25, f26, f27, f28, f29, f30, f31);

void wide_objects()
{
    FX_SCOPE;
    Wide init = {};
    init.f0 = fx_vector(1), init.f31 = fx_vector(2);
    Wide *m = fx_fmap(negated, fx_new(Wide, init));
    CHECK(holds(m->f0, {-1}) && holds(m->f31, {-2}) && fx_type_of(m)->nfields == 32);
}

void objects()
{
    FX_SCOPE;
    Affine *a = make_affine(3, 1);
    CHECK(fx_parameter_count(a) == 2 && holds(fx_call(a, fx_vector(2)), {7}));
    Affine *other = fx_new(Affine, {{}, fx_vector(2), fx_vector(3)});
    CHECK(holds(fx_call(other, fx_vector(4)), {11}));
    CHECK(holds(fx_new(Affine, *other)->scale, {2}) && !fx_new(Affine, Affine())->scale);
    Affine *b = fx_fmap(negated, a);
    CHECK(b != a && holds(b->scale, {-3}) && holds(fx_mapleaves(negated, b)->shift, {1}));

    fx_array *x = fx_vector(2);
    Affine *g = fx_gradient(fx_sum(fx_square(fx_call(a, x))), a);
    CHECK(holds(g->scale, {28}) && holds(g->shift, {14})); /* 2·7·x, 2·7 */
    fx_array *gx = fx_gradient(fx_sum(fx_call(a, x)), x);
    CHECK(holds(gx, {3}));
    double value = 0;
    Affine *h = static_cast<Affine *>(fx_withgradient(fx_sum(fx_call(a, x)), a, &value));
    CHECK(near(value, 7) && holds(h->scale, {2}));
    fx_array *of[2], *const wanted[] = {a->scale, x};
    CHECK(fx_gradient_of(fx_sum(fx_call(a, x)), wanted, 2, of) == FX_OK);
    CHECK(holds(of[0], {2}) && holds(of[1], {3}));

    void *pair = fx_tuple(x, a);
    CHECK(fx_count(pair) == 2 && fx_child(pair, 1) == a);
    void *named = fx_named_tuple("x", x, "model", a);
    CHECK(fx_child_named(named, "model") == a && std::strcmp(fx_child_name(named, 0), "x") == 0);
    fx_array *two = fx_vector(1, 3);
    CHECK(holds(fx_call(fx_parallel(FX_ADD, FX_RELU, FX_RELU), two), {2, 6}));
    CHECK(holds(fx_call(fx_parallel_of(FX_VCAT, "a", FX_RELU), two), {1, 3}));
    CHECK(holds(fx_call(fx_maxout(FX_RELU, FX_IDENTITY), two), {1, 3}));
    CHECK(holds(fx_call(fx_skipconnection(FX_RELU, FX_ADD), two), {2, 6}));
    CHECK(holds(fx_call(fx_scale(FX_DIMS(2)), two), {1, 3}));
    CHECK(shaped(fx_scale(2)->scale, {2}) && fx_multiheadattention(8)->nheads == 8);
    CHECK(fx_outputsize(FX_RELU, FX_DIMS(2, 3)).v[1] == 3);
    CHECK(fx_count(fx_activations(fx_chain(FX_RELU, FX_TANH), two)) == 2);
    CHECK(shaped(fx_weightnorm(fx_dense(2, 3))->g, {3, 1}));
    CHECK(shaped(fx_embedding(5, 2)->weight, {2, 5}));
    CHECK(fx_embeddingbag(5, 2)->reduction == FX_MEAN);
    CHECK(shaped(fx_call(fx_bilinear(FX_DIMS(2), 4), two), {4}));
    CHECK(fx_count(fx_call(fx_pairwisefusion(FX_ADD, FX_RELU, FX_RELU), two)) == 2);
    CHECK(fx_count(fx_call(fx_pairwisefusion_of(FX_ADD, "a", FX_RELU), two)) == 1);
    fx_chain_layer *chain = fx_chain_of("first", fx_dense(1, 2), "act", FX_TANH);
    CHECK(fx_child_named(chain, "act") == FX_TANH && shaped(fx_call(chain, x), {2}));
    CHECK(fx_to(fx_cpu_device(), a) == a && fx_cpu(a) == a && fx_gpu(x) == x && fx_cu(x) == x);
    CHECK(std::strcmp(fx_device_name(fx_get_device()), "CPU") == 0);
    char text[80];
    fx_summary(fx_chain(fx_dense(2, 3, FX_RELU), FX_SOFTMAX), text, sizeof text);
    CHECK(std::strcmp(text, "Chain(Dense(2 => 3, relu), softmax)") == 0);
}

void layers()
{
    FX_SCOPE;
    fx_array *image = fx_ones(8, 8, 3, 2);
    fx_dense_args d = fx_dense_args();
    d.in = 4, d.out = 2, d.bias = false, d.init = fx_ones_init;
    CHECK(holds(fx_call(fx_dense(d), fx_vector(1, 2, 3, 4)), {10, 10}));
    CHECK(fx_dense(4, 2, FX_IDENTITY, false)->bias == nullptr);

    fx_conv_args c = fx_conv_args();
    c.kernel = FX_DIMS(3, 3), c.in = 3, c.out = 4, c.act = FX_RELU, c.pad = FX_SAME;
    CHECK(shaped(fx_call(fx_conv(c), image), {8, 8, 4, 2}));
    CHECK(shaped(fx_call(fx_conv(FX_DIMS(3, 3), 3, 4, FX_RELU), image), {6, 6, 4, 2}));
    CHECK(shaped(fx_call(fx_crosscor(FX_DIMS(3, 3), 3, 4, FX_RELU), image), {6, 6, 4, 2}));
    CHECK(shaped(fx_call(fx_convtranspose(FX_DIMS(3, 3), 3, 4), image), {10, 10, 4, 2}));
    CHECK(shaped(fx_call(fx_depthwiseconv(FX_DIMS(3, 3), 3, 6), image), {6, 6, 6, 2}));
    fx_maxpool_args p = fx_maxpool_args();
    p.window = FX_DIMS(2, 2), p.stride = FX_DIMS(1);
    CHECK(shaped(fx_call(fx_maxpool(p), image), {7, 7, 3, 2}));
    CHECK(shaped(fx_call(fx_meanpool(p), image), {7, 7, 3, 2}));
    CHECK(shaped(fx_call(fx_maxpool(FX_DIMS(2, 2)), image), {4, 4, 3, 2}));
    CHECK(shaped(fx_call(fx_meanpool(FX_DIMS(2, 2)), image), {4, 4, 3, 2}));
    CHECK(shaped(fx_call(fx_adaptivemaxpool(FX_DIMS(2, 3)), image), {2, 3, 3, 2}));
    CHECK(shaped(fx_call(fx_adaptivemeanpool(FX_DIMS(2, 3)), image), {2, 3, 3, 2}));
    CHECK(
        shaped(fx_call(fx_upsample(FX_UPSAMPLE_MODE_BILINEAR, FX_DIMS(2)), image), {16, 16, 3, 2}));
    CHECK(shaped(fx_call(fx_pixelshuffle(1), image), {8, 8, 3, 2}));
    CHECK(
        shaped(fx_resize(fx_resize_args().with_x(image).with_scale(FX_DIMS(1, 2))), {8, 16, 3, 2}));
    CHECK(
        shaped(fx_unfold(fx_unfold_args().with_x(image).with_kernel(FX_DIMS(8, 7))), {2, 168, 2}));
    CHECK(shaped(fx_fold(fx_fold_args()
                             .with_x(fx_ones(2, 168, 2))
                             .with_size(FX_DIMS(8, 8))
                             .with_kernel(FX_DIMS(8, 7))),
                 {8, 8, 3, 2}));
    CHECK(
        shaped(fx_grid_sample(fx_grid_sample_args().with_x(image).with_grid(fx_zeros(2, 5, 4, 2))),
               {5, 4, 3, 2}));
    CHECK(shaped(fx_call(fx_lpnormpool(FX_DIMS(2, 2)), image), {4, 4, 3, 2}));
    CHECK(shaped(fx_pool_lpnorm(fx_pool_args().with_x(image).with_window(FX_DIMS(2, 2))),
                 {4, 4, 3, 2}));

    fx_batchnorm_args b = fx_batchnorm_args();
    b.channels = 3, b.affine = false;
    CHECK(fx_batchnorm(b)->gamma == nullptr && fx_batchnorm(3, FX_RELU)->act == FX_RELU);
    fx_layernorm_args l = fx_layernorm_args();
    l.size = FX_DIMS(2), l.affine = false;
    CHECK(holds(fx_call(fx_layernorm(l), fx_vector(1, 3)), {-1, 1}));
    CHECK(shaped(fx_layernorm(FX_DIMS(2))->scale, {2}));
    CHECK(shaped(fx_layernorm(2)->scale, {2}) && fx_rmsnorm(3)->size.v[0] == 3);
    fx_dropout_args o = fx_dropout_args();
    o.p = 0.5, o.active = FX_ACTIVE_OFF;
    CHECK(holds(fx_call(fx_dropout(o), fx_vector(1, 2)), {1, 2}) &&
          near(fx_dropout(0.25)->p, 0.25));
    CHECK(shaped(fx_call(fx_chain(fx_conv(c), FX_FLATTEN), image), {8 * 8 * 4, 2}));
}

/* The setters of C++11 to 17; every option has its default before. */
void setters()
{
    FX_SCOPE;
    fx_dense_layer *d = fx_dense(fx_dense_args().with_in(2).with_out(3).with_bias(false));
    CHECK(d->bias == nullptr && d->act == FX_IDENTITY && shaped(d->weight, {3, 2}));
    const fx_dense_args fresh;
    CHECK(fresh.bias && fresh.init == fx_glorot_uniform);
    CHECK(near(fx_batchnorm(fx_batchnorm_args().with_channels(2).with_momentum(0))->momentum, 0));
    fx_array *x = fx_vector(1, 2, 3, 6);
    CHECK(holds(fx_var(fx_var_args().with_x(x).with_corrected(false)), {3.5}));
    CHECK(holds(fx_sum(fx_reshape(x, 2, 2), FX_ALL), {12}));
    CHECK(holds(fx_softmax(fx_zeros(2, 2), FX_ALL), {0.25, 0.25, 0.25, 0.25}));
    CHECK(near(fx_item(fx_call_loss(fxi_mse, fx_vector(1, 2), fx_vector(1, 4))), 2));
    fx_loader *l = fx_dataloader(
        fx_dataloader_args().with_data(fx_ones(2, 5)).with_batchsize(2).with_partial(false));
    CHECK(fx_loader_length(l) == 2);
}

void losses()
{
    FX_SCOPE;
    fx_array *p = fx_vector(0.25, 0.75), *t = fx_vector(0, 1);
    fx_loss_args a = fx_loss_args();
    a.pred = p, a.target = t, a.sum = true;
    CHECK(near(fx_item(fx_mse(p, t)), 0.0625) && near(fx_item(fx_mse(a)), 0.125));
    CHECK(near(fx_item(fx_mae(p, t)), 0.25) && near(fx_item(fx_mae(a)), 0.5));
    CHECK(near(fx_item(fx_huber_loss(p, t)), 0.03125) && near(fx_item(fx_huber_loss(a)), 0.0625));
    const double ce = -std::log(0.75);
    CHECK(near(fx_item(fx_crossentropy(p, t)), ce) && near(fx_item(fx_crossentropy(a)), ce));
    CHECK(near(fx_item(fx_binarycrossentropy(p, t)), ce));
    CHECK(near(fx_item(fx_binarycrossentropy(a)), 2 * ce));
    const double logit = std::log(1 + std::exp(-0.5));
    CHECK(near(fx_item(fx_logitcrossentropy(p, t)), logit));
    CHECK(near(fx_item(fx_logitcrossentropy(a)), logit));
    const double binary = std::log(1 + std::exp(0.25)) + std::log(1 + std::exp(-0.75));
    CHECK(near(fx_item(fx_logitbinarycrossentropy(p, t)), binary / 2));
    CHECK(near(fx_item(fx_logitbinarycrossentropy(a)), binary));
    const double poisson = 0.25 + 0.75 - std::log(0.75);
    CHECK(near(fx_item(fx_poisson_loss(p, t)), poisson / 2));
    CHECK(near(fx_item(fx_poisson_loss(a)), poisson));
    CHECK(near(fx_item(fx_kldivergence(p, t)), ce) && near(fx_item(fx_kldivergence(a)), ce));
    CHECK(near(fx_item(fx_hinge_loss(p, t)), 0.625) && near(fx_item(fx_hinge_loss(a)), 1.25));
    CHECK(near(fx_item(fx_squared_hinge_loss(p, t)), 1.0625 / 2));
    CHECK(near(fx_item(fx_squared_hinge_loss(a)), 1.0625));
    const double msle = std::pow(std::log(0.75), 2);
    a.eps = 0, a.pred = a.target = fx_vector(1, 2);
    CHECK(fx_item(fx_msle(a)) == 0 && near(fx_item(fx_msle(fx_vector(0.75), fx_vector(1))), msle));
}

/* ---- training -------------------------------------------------------------------------------- */

/* x − η·g, whatever the state: the first step of each rule with eta, from a gradient of 1. */
double first_step(fx_rule *rule)
{
    FX_SCOPE;
    fx_array *w = fx_vector(1);
    void *state = fx_setup(rule, w);
    CHECK(fx_update(state, w, fx_vector(1)) == FX_OK);
    return 1 - fx_item(w);
}

void rules()
{
    FX_SCOPE;
    fx_nesterov_args a;
    a.eta = 0.25, a.rho = 0.5;
    CHECK(near(first_step(fx_descent(0.25)), 0.25) && near(first_step(fx_descent(0)), 0));
    CHECK(near(first_step(fx_descent(fx_descent_args().with_eta(0.5))), 0.5));
    CHECK(near(first_step(fx_momentum(0.25)), 0.25));
    CHECK(near(first_step(fx_momentum(fx_momentum_args().with_eta(0.5).with_rho(0))), 0.5));
    CHECK(near(first_step(fx_nesterov(0.25)), 1.9 * 0.25));
    CHECK(near(first_step(fx_nesterov(a)), 1.5 * 0.25));
    CHECK(near(first_step(fx_adam(0.25)), 0.25));
    CHECK(near(first_step(fx_adam(fx_adam_args().with_eta(0.25).with_beta1(0))), 0.25));
    CHECK(near(first_step(fx_adamw(0.25)), 0.25));
    CHECK(near(first_step(fx_adamw(fx_adamw_args().with_eta(0.25).with_lambda(2))), 0.75));
    CHECK(near(first_step(fx_optimiser_chain(fx_clip_grad(0.5), fx_descent(0.5))), 0.25));
    CHECK(near(first_step(fx_optimiser_chain()), 1) && near(first_step(fx_lion(0.25)), 0.25));
    CHECK(near(first_step(fx_rmsprop(fx_rmsprop_args().with_eta(0.5).with_rho(0))), 0.5));
    CHECK(near(first_step(fx_mixed_precision(fx_descent(0.5))), 0.5));
    CHECK(near(first_step(fx_accum_grad(2)), 0) && near(first_step(fx_weight_decay(0.5)), 1.5));
    CHECK(near(first_step(fx_descent()), 0.1) && near(first_step(fx_momentum()), 0.01));
    CHECK(near(first_step(fx_adam()), 0.001));

    fx_array *w = fx_vector(1);
    void *state = fx_setup(fx_descent(), w);
    fx_update_args u;
    u.state = state, u.model = w, u.gradient = fx_vector(1);
    u.guard = fx_scalar(std::numeric_limits<double>::quiet_NaN());
    CHECK(fx_update(u) == FX_STATUS_NONFINITE && holds(w, {1}));
    u.guard = nullptr;
    CHECK(fx_update(u) == FX_OK && holds(w, {0.9}));
}

fx_array *loss(void *model, const fx_batch *b, void *user)
{
    ++*static_cast<int *>(user);
    return fx_mse(fx_call(model, b->x), b->y);
}

/* Recovers the line through noiseless points, with a loop written by hand and with fx_train. */
void training()
{
    FX_SCOPE;
    fx_seed(1);
    fx_array *x = fx_rand(1, 100), *y = fx_add(fx_mul(2, x), -0.5);
    fx_dense_layer *model = fx_dense(1, 1);
    void *opt = fx_setup(fx_adam(0.1), model);
    fx_loader *by_hand = fx_dataloader(fx_tuple(x, y), 20, true);
    CHECK(fx_loader_length(by_hand) == 5 && fx_loader_length(fx_dataloader(x)) == 100);
    for (int epoch = 0; epoch < 60; epoch++)
        for (fx_batch b{}; fx_next(by_hand, &b);) {
            FX_STEP;
            fx_array *l = fx_mse(fx_call(model, b.x), b.y);
            CHECK(fx_update(opt, model, fx_gradient(l, model)) == FX_OK);
        }
    CHECK(std::fabs(fx_item(model->weight) - 2) < 0.05);
    CHECK(std::fabs(fx_item(model->bias) + 0.5) < 0.05);

    fx_dataloader_args la;
    la.data = fx_tuple(x, y), la.batchsize = 30, la.shuffle = true, la.workers = 1;
    fx_train_args t;
    int calls = 0;
    fx_dense_layer *second = fx_dense(1, 1);
    t.loss = loss, t.model = second, t.data = fx_dataloader(la);
    t.state = fx_setup(fx_adam(0.1), second), t.epochs = 75, t.user = &calls;
    CHECK(fx_train(t) == FX_OK && calls == 4 * 75);
    CHECK(std::fabs(fx_item(second->weight) - 2) < 0.05);
}

/* An error names the operation and both shapes, and the program continues. */
void errors()
{
    FX_SCOPE;
    fx_array *bad = fx_add(fx_zeros(3, 4), fx_zeros(5));
    const fx_error e = fx_error_take();
    CHECK(e.status == FX_STATUS_SHAPE && std::strcmp(e.op, "add") == 0);
    CHECK(std::strstr(e.message, "3×4") && std::strstr(e.message, "and 5"));
    CHECK(fx_is_error(fx_sum(fx_mul(bad, 2))) && fx_error_status() == FX_OK);
    CHECK(std::isnan(fx_item(fx_sum(bad))));
    fx_error_take();
}

} // namespace

int main()
{
    void (*const parts[])() = {creation, memory_of_others, arithmetic,   reductions, shapes,
                               windows,  ownership,        wide_objects, objects,    layers,
                               setters,  losses,           rules,        training,   errors};
    for (void (*part)() : parts) {
        part();
        const fx_error e = fx_error_take();
        if (e.status != FX_OK)
            check(false, e.message, e.line);
    }
    return failures < 99 ? failures : 99;
}
