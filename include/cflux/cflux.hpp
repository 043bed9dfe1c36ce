/* cflux/cflux.hpp: the library for C++11 and later. <cflux.h> includes this file when a C++
 * compiler reads it.
 *
 * The call macros of the other headers (options, lists, arguments of several types) need compound
 * literals and _Generic, which C++ does not have. This file undefines them and declares functions
 * of the same names. These take an option struct (docs/cpp.md), or the most frequent arguments in
 * the order of the C macro. FX_LAYER_TYPE, FX_OBJECT and the macros for them exist in C only. */
#ifndef CFLUX_CFLUX_HPP
#define CFLUX_CFLUX_HPP

#include <cflux.h>
#include <type_traits>

extern "C++" {
/* Options as the library expects them: preceded by their size, the first member of the struct in C.
 * An object of this class lives until the call for which it is made has returned. */
template <class T> class fxi_sized
{
    size_t size_;
    T options_;

  public:
    explicit fxi_sized(const T &options) : size_(sizeof(fxi_sized)), options_(options) {}
    operator const T *() const { return reinterpret_cast<const T *>(this); }
    T *in_c() { return reinterpret_cast<T *>(this); }
    const T &options() const { return options_; }
};

/* ---- array.h --------------------------------------------------------------------------------- */
#undef FX_ALL
#undef FX_AXES
#undef fx_keep
#undef fx_retain
#undef fx_set
#undef fx_full
#undef fx_full_dtype
#undef fx_zeros
#undef fx_ones
#undef fx_rand
#undef fx_randn
#undef fx_rand_dtype
#undef fx_randn_dtype
#undef fx_from
#undef fx_borrow
#undef fx_vector
#undef fx_range
#undef FX_DIMS
#undef FX_DIMS_TAKES_AT_MOST_16_NUMBERS
#undef FX_FROM_C

#define FX_ALL fx_axes(FXI_BIT_ALL)
template <class... A> inline fx_axes fx_make_axes(A... a)
{
    const int64_t axes[] = {static_cast<int64_t>(a)...};
    return fx_axes_of(static_cast<int>(sizeof...(a)), axes);
}
#define FX_AXES(...) fx_make_axes(__VA_ARGS__)

struct fxi_scope_guard {
    int depth;
    explicit fxi_scope_guard(int d) : depth(d) {}
    ~fxi_scope_guard() { fxi_scope_close(depth); }
    fxi_scope_guard(const fxi_scope_guard &) = delete;
    fxi_scope_guard &operator=(const fxi_scope_guard &) = delete;
};
#undef FXI_OPEN_AT
#define FXI_OPEN_AT(mode, file, line)                                                              \
    fxi_scope_guard FXI_CAT(fxi_scope_, __COUNTER__)(fxi_scope_open(mode, file, line))

template <class T> inline T *fx_keep(T *x)
{
    return static_cast<T *>(fxi_keep(x));
}
template <class T> inline T *fx_retain(T *x)
{
    return static_cast<T *>(fxi_retain(x));
}
template <class T> inline void fx_set(T **handle, T *x)
{
    fxi_set(static_cast<void *>(handle), x);
}
template <class T> inline void fx_set(T **handle, decltype(nullptr))
{
    fxi_set(static_cast<void *>(handle), nullptr);
}

template <class... D> inline fx_array *fx_full_dtype(fx_dtype t, double v, D... d)
{
    const int64_t sizes[] = {0, static_cast<int64_t>(d)...};
    return fxi_full(t, v, static_cast<int>(sizeof...(d)), sizes + 1);
}
template <class... D> inline fx_array *fx_full(double v, D... d)
{
    return fx_full_dtype(FX_DTYPE_F32, v, d...);
}
template <class... D> inline fx_array *fx_zeros(D... d)
{
    return fx_full_dtype(FX_DTYPE_F32, 0.0, d...);
}
template <class... D> inline fx_array *fx_ones(D... d)
{
    return fx_full_dtype(FX_DTYPE_F32, 1.0, d...);
}
template <class... D> inline fx_array *fx_rand_dtype(fx_dtype t, D... d)
{
    const int64_t sizes[] = {0, static_cast<int64_t>(d)...};
    return fxi_rand(t, static_cast<int>(sizeof...(d)), sizes + 1);
}
template <class... D> inline fx_array *fx_randn_dtype(fx_dtype t, D... d)
{
    const int64_t sizes[] = {0, static_cast<int64_t>(d)...};
    return fxi_randn(t, static_cast<int>(sizeof...(d)), sizes + 1);
}
template <class... D> inline fx_array *fx_rand(D... d)
{
    return fx_rand_dtype(FX_DTYPE_F32, d...);
}
template <class... D> inline fx_array *fx_randn(D... d)
{
    return fx_randn_dtype(FX_DTYPE_F32, d...);
}
template <class... D> inline fx_array *fx_from(fx_dtype t, const void *data, D... d)
{
    const int64_t sizes[] = {0, static_cast<int64_t>(d)...};
    return fxi_from(t, data, static_cast<int>(sizeof...(d)), sizes + 1);
}
template <class... D>
inline fx_array *fx_borrow(fx_dtype t, const void *data, fx_release_fn f, void *user, D... d)
{
    const int64_t sizes[] = {0, static_cast<int64_t>(d)...};
    return fxi_borrow(t, data, f, user, static_cast<int>(sizeof...(d)), sizes + 1);
}
inline fx_array *fx_range(double start, double step, int64_t n)
{
    return fx_range_dtype(FX_DTYPE_F32, start, step, n);
}
template <class... V> inline fx_array *fx_vector(V... v)
{
    const float data[] = {static_cast<float>(v)...};
    const int64_t n = static_cast<int64_t>(sizeof...(v));
    return fxi_from(FX_DTYPE_F32, data, 1, &n);
}
template <class... D> inline fx_dims fx_make_dims(D... d)
{
    static_assert(sizeof...(d) <= 2 * FX_MAX_DIMS, "FX_DIMS takes at most 16 numbers");
    fx_dims r = {static_cast<int64_t>(sizeof...(d)), {static_cast<int64_t>(d)...}};
    return r;
}
#define FX_DIMS(...) fx_make_dims(__VA_ARGS__)
template <class T> struct fxi_dtype_of;
template <> struct fxi_dtype_of<float> {
    static const fx_dtype value = FX_DTYPE_F32;
};
template <> struct fxi_dtype_of<double> {
    static const fx_dtype value = FX_DTYPE_F64;
};
template <> struct fxi_dtype_of<int32_t> {
    static const fx_dtype value = FX_DTYPE_I32;
};
template <> struct fxi_dtype_of<int64_t> {
    static const fx_dtype value = FX_DTYPE_I64;
};
template <> struct fxi_dtype_of<unsigned char> {
    static const fx_dtype value = FX_DTYPE_U8;
};
template <> struct fxi_dtype_of<bool> {
    static const fx_dtype value = FX_DTYPE_BOOL;
};
template <class A> inline fx_array *fxi_from_c(const A &a)
{
    typedef typename std::remove_const<typename std::remove_all_extents<A>::type>::type T;
    const int n = static_cast<int>(std::rank<A>::value);
    int64_t sizes[FX_MAX_DIMS];
    const int64_t ext[] = {static_cast<int64_t>(std::extent<A, 0>::value),
                           static_cast<int64_t>(std::extent<A, 1>::value),
                           static_cast<int64_t>(std::extent<A, 2>::value),
                           static_cast<int64_t>(std::extent<A, 3>::value)};
    static_assert(std::rank<A>::value >= 1 && std::rank<A>::value <= 4,
                  "FX_FROM_C takes a C array of 1 to 4 dimensions");
    for (int i = 0; i < n; i++)
        sizes[i] = ext[n - 1 - i];
    return fxi_borrow(fxi_dtype_of<T>::value, static_cast<const void *>(&a), nullptr, nullptr, n,
                      sizes);
}
#define FX_FROM_C(a) fxi_from_c(a)

/* ---- ops.h ----------------------------------------------------------------------------------- */
#undef fx_add
#undef fx_sub
#undef fx_mul
#undef fx_div
#undef fx_fld
#undef fx_mod
#undef fx_rem
#undef fx_pow
#undef fx_max
#undef fx_min
#undef fx_atan2
#undef fx_lt
#undef fx_le
#undef fx_gt
#undef fx_ge
#undef fx_eq
#undef fx_ne
#undef fx_and
#undef fx_or
#undef fx_xor
#undef fx_where
#undef fx_clamp
#undef fx_xlogy
#undef fx_sum
#undef fx_prod
#undef fx_mean
#undef fx_mean_rest
#undef fx_var
#undef fx_std
#undef fx_maximum
#undef fx_minimum
#undef fx_any
#undef fx_all
#undef fx_norm
#undef fx_softmax
#undef fx_logsoftmax
#undef fx_logsumexp
#undef fx_argmax
#undef fx_argmin
#undef fx_reshape
#undef fx_permute
#undef fx_expand
#undef fx_repeat
#undef fx_concat
#undef fx_stack
#undef fx_convolve
#undef fx_convolve_transposed
#undef fx_pool_max
#undef fx_pool_lpnorm
#undef fx_pool_mean

template <class T, bool Float = std::is_floating_point<T>::value> struct fxi_argof {
    static fxi_arg of(T x)
    {
        return std::is_unsigned<T>::value ? fxi_arg_u64(static_cast<uint64_t>(x))
                                          : fxi_arg_int(static_cast<int64_t>(x));
    }
};
template <class T> struct fxi_argof<T, true> {
    static fxi_arg of(T x) { return fxi_arg_real(static_cast<double>(x)); }
};
template <class T> struct fxi_argof<T *, false> {
    static fxi_arg of(T *x) { return fxi_arg_array(x); }
};
template <class T> inline fxi_arg fxi_any(T x)
{
    return fxi_argof<T>::of(x);
}
#undef FXI_ARG
#define FXI_ARG(x) fxi_any(x)

#define FXI_CXX2(name)                                                                             \
    template <class A, class B> inline fx_array *fx_##name(A a, B b)                               \
    {                                                                                              \
        return fxi_##name(FXI_ARG(a), FXI_ARG(b));                                                 \
    }
#define FXI_CXX3(name)                                                                             \
    template <class A, class B, class C> inline fx_array *fx_##name(A a, B b, C c)                 \
    {                                                                                              \
        return fxi_##name(FXI_ARG(a), FXI_ARG(b), FXI_ARG(c));                                     \
    }
FXI_CXX2(add)
FXI_CXX2(sub)
FXI_CXX2(mul)
FXI_CXX2(div)
FXI_CXX2(fld)
FXI_CXX2(mod)
FXI_CXX2(rem)
FXI_CXX2(pow)
FXI_CXX2(max)
FXI_CXX2(min)
FXI_CXX2(atan2)
FXI_CXX2(lt)
FXI_CXX2(le)
FXI_CXX2(gt)
FXI_CXX2(ge)
FXI_CXX2(eq)
FXI_CXX2(ne)
FXI_CXX2(and)
FXI_CXX2(or)
FXI_CXX2(xor)
FXI_CXX2(xlogy)
FXI_CXX3(where)
FXI_CXX3(clamp)

#define FXI_CXXR(name, sym)                                                                        \
    inline fx_array *name(const fx_reduce_args &a)                                                 \
    {                                                                                              \
        return sym(fxi_sized<fx_reduce_args>(a));                                                  \
    }                                                                                              \
    inline fx_array *name(fx_array *x, fx_axes dims = fx_reduce_args().dims,                       \
                          bool drop = fx_reduce_args().drop)                                       \
    {                                                                                              \
        return name(fx_reduce_args().with_x(x).with_dims(dims).with_drop(drop));                   \
    }
#define FXI_CXXV(name, sym)                                                                        \
    inline fx_array *name(const fx_var_args &a)                                                    \
    {                                                                                              \
        return sym(fxi_sized<fx_var_args>(a));                                                     \
    }                                                                                              \
    inline fx_array *name(fx_array *x, fx_axes dims = fx_var_args().dims,                          \
                          bool drop = fx_var_args().drop,                                          \
                          bool corrected = fx_var_args().corrected)                                \
    {                                                                                              \
        return name(                                                                               \
            fx_var_args().with_x(x).with_dims(dims).with_drop(drop).with_corrected(corrected));    \
    }
#define FXI_CXXS(name, sym)                                                                        \
    inline fx_array *name(const fx_softmax_args &a)                                                \
    {                                                                                              \
        return sym(fxi_sized<fx_softmax_args>(a));                                                 \
    }                                                                                              \
    inline fx_array *name(fx_array *x)                                                             \
    {                                                                                              \
        return name(fx_softmax_args().with_x(x));                                                  \
    }                                                                                              \
    inline fx_array *name(fx_array *x, fx_axes dims)                                               \
    {                                                                                              \
        return name(fx_softmax_args().with_x(x).with_dims(dims));                                  \
    }
FXI_CXXR(fx_sum, fxi_sum)
FXI_CXXR(fx_prod, fxi_prod)
FXI_CXXR(fx_mean, fxi_mean)
FXI_CXXR(fx_mean_rest, fxi_mean_rest)
FXI_CXXV(fx_var, fxi_var)
FXI_CXXV(fx_std, fxi_std)
FXI_CXXR(fx_maximum, fxi_maximum)
FXI_CXXR(fx_minimum, fxi_minimum)
FXI_CXXR(fx_any, fxi_any_true)
FXI_CXXR(fx_all, fxi_all_true)
FXI_CXXR(fx_norm, fxi_norm)
FXI_CXXS(fx_softmax, fxi_softmax)
FXI_CXXS(fx_logsoftmax, fxi_logsoftmax)
FXI_CXXR(fx_logsumexp, fxi_logsumexp)
FXI_CXXR(fx_argmax, fxi_argmax)
FXI_CXXR(fx_argmin, fxi_argmin)

#define FXI_CXXL(name)                                                                             \
    template <class... D> inline fx_array *fx_##name(fx_array *x, D... d)                          \
    {                                                                                              \
        const int64_t sizes[] = {0, static_cast<int64_t>(d)...};                                   \
        return fxi_##name(x, static_cast<int>(sizeof...(d)), sizes + 1);                           \
    }
FXI_CXXL(reshape)
FXI_CXXL(permute)
FXI_CXXL(expand)
FXI_CXXL(repeat)
template <class... A> inline fx_array *fx_concat(int axis, A... a)
{
    fx_array *const list[] = {a...};
    return fxi_concat(axis, static_cast<int>(sizeof...(a)), list);
}
template <class... A> inline fx_array *fx_stack(int axis, A... a)
{
    fx_array *const list[] = {a...};
    return fxi_stack(axis, static_cast<int>(sizeof...(a)), list);
}

inline fx_array *fx_convolve(const fx_convolve_args &a)
{
    return fxi_convolve(fxi_sized<fx_convolve_args>(a));
}
inline fx_array *fx_convolve_transposed(const fx_convolve_args &a)
{
    return fxi_convolve_transposed(fxi_sized<fx_convolve_args>(a));
}
inline fx_array *fx_pool_lpnorm(const fx_pool_args &a)
{
    return fxi_pool_lpnorm(fxi_sized<fx_pool_args>(a));
}
inline fx_array *fx_pool_max(const fx_pool_args &a)
{
    return fxi_pool_max(fxi_sized<fx_pool_args>(a));
}
inline fx_array *fx_pool_mean(const fx_pool_args &a)
{
    return fxi_pool_mean(fxi_sized<fx_pool_args>(a));
}

/* ---- grad.h ---------------------------------------------------------------------------------- */
#undef fx_gradient

template <class T> inline T *fx_gradient(fx_array *loss, T *model)
{
    return static_cast<T *>(fxi_gradient(loss, model));
}

/* ---- tree.h ---------------------------------------------------------------------------------- */
#undef FX_OBJECT
#undef fx_new
#undef fx_tuple
#undef fx_named_tuple
#undef fx_fmap
#undef fx_fmap2
#undef fx_mapleaves
#undef fx_rebuild
#undef fx_restructure
#undef fx_f16
#undef fx_bf16
#undef fx_f32
#undef fx_f64
#undef fx_snapshot
#undef fx_call
#undef fx_checkpointed

template <class F> struct fxi_kind {
    static_assert(sizeof(F) == sizeof(void *), "a field is an array, an object or a number");
    static constexpr fx_field_kind of = FX_FIELD_CHILD;
};
#define FXI_CXX_KIND(F, K)                                                                         \
    template <> struct fxi_kind<F> {                                                               \
        static constexpr fx_field_kind of = K;                                                     \
    };
FXI_CXX_KIND(fx_list, FX_FIELD_LIST)
FXI_CXX_KIND(fx_dims, FX_FIELD_DIMS)
FXI_CXX_KIND(double, FX_FIELD_NUMBER)
FXI_CXX_KIND(float, FX_FIELD_FLOAT)
FXI_CXX_KIND(int64_t, FX_FIELD_INTEGER)
FXI_CXX_KIND(int, FX_FIELD_INT)
FXI_CXX_KIND(bool, FX_FIELD_FLAG)
FXI_CXX_KIND(const char *, FX_FIELD_STRING)
#undef FXI_KIND_
#define FXI_KIND_(T, f) fxi_kind<decltype(T::f)>::of

#undef FXI_ASSERT_
#define FXI_ASSERT_ static_assert

template <class T> inline T *fxi_new_of(const fx_type *type, const T &value)
{
    return static_cast<T *>(fxi_new(type, &value));
}
#define fx_new(T, ...) (fxi_new_of<T>(fxi_type_##T(), __VA_ARGS__))

template <class... A> inline void *fx_tuple(A *...a)
{
    void *const items[] = {nullptr, static_cast<void *>(a)...};
    return fxi_tuple(static_cast<int>(sizeof...(a)), items + 1);
}
template <class... A> inline void *fx_named_tuple(A... names_and_objects)
{
    const void *const pairs[] = {nullptr, static_cast<const void *>(names_and_objects)...};
    return fxi_named_pairs(static_cast<int>(sizeof...(A)), pairs + 1);
}

template <class T> inline T *fx_fmap2(fx_map2_fn f, T *x, void *y)
{
    return static_cast<T *>(fxi_fmap2(f, x, y));
}
template <class T> inline T *fx_fmap(fx_map_fn f, T *x)
{
    return static_cast<T *>(fxi_fmap(f, x));
}
template <class T> inline T *fx_mapleaves(fx_map_fn f, T *x)
{
    return fx_fmap(f, x);
}

template <class T> inline T *fx_rebuild(T *x, void *children)
{
    return static_cast<T *>(fxi_rebuild(x, children));
}

template <class T> inline T *fx_restructure(T *model, fx_array *flat)
{
    return static_cast<T *>(fxi_restructure(model, flat));
}
#define FXI_CXX_PRECISION(name, type)                                                              \
    template <class T> inline T *name(T *x)                                                        \
    {                                                                                              \
        return static_cast<T *>(fxi_in_precision(type, x));                                        \
    }
FXI_CXX_PRECISION(fx_f16, FX_DTYPE_F16)
FXI_CXX_PRECISION(fx_bf16, FX_DTYPE_BF16)
FXI_CXX_PRECISION(fx_f32, FX_DTYPE_F32)
FXI_CXX_PRECISION(fx_f64, FX_DTYPE_F64)

template <class T> inline T *fx_snapshot(T *x)
{
    return static_cast<T *>(fxi_snapshot(x));
}

template <class... A> inline fx_array *fx_call(void *model, A *...a)
{
    void *const args[] = {nullptr, static_cast<void *>(a)...};
    return static_cast<fx_array *>(fxi_call(model, static_cast<int>(sizeof...(a)), args + 1));
}

template <class... A> inline fx_array *fx_checkpointed(void *model, A *...a)
{
    void *const args[] = {nullptr, static_cast<void *>(a)...};
    return static_cast<fx_array *>(
        fxi_checkpointed(model, static_cast<int>(sizeof...(a)), args + 1));
}

/* ---- layer.h --------------------------------------------------------------------------------- */
#undef FX_LAYER_TYPE
#undef FX_FROM
#undef FX_PRESENT
#undef FX_MAKE

/* ---- nn.h ------------------------------------------------------------------------------------ */
#undef fx_dense
#undef fx_chain
#undef fx_chain_of
#undef fx_parallel
#undef fx_parallel_of
#undef fx_pairwisefusion
#undef fx_pairwisefusion_of
#undef fx_maxout
#undef fx_skipconnection
#undef fx_scale
#undef fx_bilinear
#undef fx_embedding
#undef fx_weightnorm
#undef fx_outputsize
#undef fx_activations
#undef fx_embeddingbag
#undef fx_batchnorm
#undef fx_layernorm
#undef fx_dropout
#undef fx_call_loss
#undef fx_init
#undef fx_mse
#undef fx_mae
#undef fx_msle
#undef fx_huber_loss
#undef fx_quantile_loss
#undef fx_crossentropy
#undef fx_logitcrossentropy
#undef fx_binarycrossentropy
#undef fx_logitbinarycrossentropy
#undef fx_kldivergence
#undef fx_poisson_loss
#undef fx_hinge_loss
#undef fx_squared_hinge_loss
#undef fx_focal_loss
#undef fx_binary_focal_loss
#undef fx_siamese_contrastive_loss
#undef fx_dice_coeff_loss
#undef fx_tversky_loss
#undef fx_ctc_loss

inline fx_dense_layer *fx_dense(const fx_dense_args &a)
{
    return fxi_dense(fxi_sized<fx_dense_args>(a));
}
inline fx_dense_layer *fx_dense(int64_t in, int64_t out, fx_function *act = fx_dense_args().act,
                                int bias = fx_dense_args().bias)
{
    return fx_dense(fx_dense_args().with_in(in).with_out(out).with_act(act).with_bias(bias));
}

template <class... L> inline fx_chain_layer *fx_chain(L *...l)
{
    void *const items[] = {nullptr, static_cast<void *>(l)...};
    return fxi_chain(static_cast<int>(sizeof...(l)), items + 1);
}
template <class... A> inline fx_chain_layer *fx_chain_of(A... names_and_layers)
{
    const void *const pairs[] = {nullptr, static_cast<const void *>(names_and_layers)...};
    return fxi_chain_pairs(static_cast<int>(sizeof...(A)), pairs + 1);
}

inline fx_batchnorm_layer *fx_batchnorm(const fx_batchnorm_args &a)
{
    return fxi_batchnorm(fxi_sized<fx_batchnorm_args>(a));
}
inline fx_batchnorm_layer *fx_batchnorm(int64_t channels,
                                        fx_function *act = fx_batchnorm_args().act)
{
    return fx_batchnorm(fx_batchnorm_args().with_channels(channels).with_act(act));
}

template <class... L> inline fx_parallel_layer *fx_parallel(L *...connection_and_layers)
{
    void *const items[] = {nullptr, connection_and_layers...};
    return fxi_parallel(static_cast<int>(sizeof...(connection_and_layers)), items + 1);
}
template <class... A>
inline fx_parallel_layer *fx_parallel_of(void *connection, A... names_and_layers)
{
    const void *const pairs[] = {nullptr, names_and_layers...};
    return fxi_parallel_pairs(connection, static_cast<int>(sizeof...(A)), pairs + 1);
}
template <class... L> inline fx_pairwisefusion_layer *fx_pairwisefusion(L *...connection_and_layers)
{
    void *const items[] = {nullptr, connection_and_layers...};
    return fxi_pairwisefusion(static_cast<int>(sizeof...(connection_and_layers)), items + 1);
}
template <class... A>
inline fx_pairwisefusion_layer *fx_pairwisefusion_of(void *connection, A... names_and_layers)
{
    const void *const pairs[] = {nullptr, names_and_layers...};
    return fxi_pairwisefusion_pairs(connection, static_cast<int>(sizeof...(A)), pairs + 1);
}
template <class... L> inline fx_maxout_layer *fx_maxout(L *...layers)
{
    void *const items[] = {nullptr, layers...};
    return fxi_maxout(static_cast<int>(sizeof...(layers)), items + 1);
}
inline fx_skipconnection_layer *fx_skipconnection(const fx_skipconnection_args &a)
{
    return fxi_skipconnection(fxi_sized<fx_skipconnection_args>(a));
}
inline fx_skipconnection_layer *fx_skipconnection(void *layers, void *connection)
{
    return fx_skipconnection(
        fx_skipconnection_args().with_layers(layers).with_connection(connection));
}
inline fx_scale_layer *fx_scale(const fx_scale_args &a)
{
    return fxi_scale(fxi_sized<fx_scale_args>(a));
}
inline fx_scale_layer *fx_scale(fx_dims size)
{
    return fx_scale(fx_scale_args().with_size(size));
}
inline fx_scale_layer *fx_scale(int64_t n)
{
    return fx_scale(fxi_dims_of_number(n));
}
template <class... A> inline void *fx_activations(fx_chain_layer *chain, A *...args)
{
    void *const items[] = {nullptr, args...};
    return fxi_activations(chain, static_cast<int>(sizeof...(args)), items + 1);
}
inline fx_dims fx_outputsize(const fx_outputsize_args &a)
{
    return fxi_outputsize(fxi_sized<fx_outputsize_args>(a));
}
inline fx_dims fx_outputsize(void *model, fx_dims size)
{
    return fx_outputsize(fx_outputsize_args().with_model(model).with_size(size));
}
inline fx_weightnorm_layer *fx_weightnorm(const fx_weightnorm_args &a)
{
    return fxi_weightnorm(fxi_sized<fx_weightnorm_args>(a));
}
inline fx_weightnorm_layer *fx_weightnorm(void *layer)
{
    return fx_weightnorm(fx_weightnorm_args().with_layer(layer));
}
inline fx_embedding_layer *fx_embedding(const fx_embedding_args &a)
{
    return fxi_embedding(fxi_sized<fx_embedding_args>(a));
}
inline fx_embedding_layer *fx_embedding(int64_t in, int64_t out)
{
    return fx_embedding(fx_embedding_args().with_in(in).with_out(out));
}
inline fx_embeddingbag_layer *fx_embeddingbag(const fx_embeddingbag_args &a)
{
    return fxi_embeddingbag(fxi_sized<fx_embeddingbag_args>(a));
}
inline fx_embeddingbag_layer *fx_embeddingbag(int64_t in, int64_t out)
{
    return fx_embeddingbag(fx_embeddingbag_args().with_in(in).with_out(out));
}
inline fx_bilinear_layer *fx_bilinear(const fx_bilinear_args &a)
{
    return fxi_bilinear(fxi_sized<fx_bilinear_args>(a));
}
inline fx_bilinear_layer *fx_bilinear(fx_dims in, int64_t out)
{
    return fx_bilinear(fx_bilinear_args().with_in(in).with_out(out));
}
inline fx_layernorm_layer *fx_layernorm(const fx_layernorm_args &a)
{
    return fxi_layernorm(fxi_sized<fx_layernorm_args>(a));
}
inline fx_layernorm_layer *fx_layernorm(fx_dims size)
{
    return fx_layernorm(fx_layernorm_args().with_size(size));
}
inline fx_layernorm_layer *fx_layernorm(int64_t n)
{
    return fx_layernorm(fxi_dims_of_number(n));
}

inline fx_dropout_layer *fx_dropout(const fx_dropout_args &a)
{
    return fxi_dropout(fxi_sized<fx_dropout_args>(a));
}
inline fx_dropout_layer *fx_dropout(double p)
{
    return fx_dropout(fx_dropout_args().with_p(p));
}

/* ---- attention.h ----------------------------------------------------------------------------- */
#undef fx_dot_product_attention
#undef fx_dot_product_attention_scores
#undef fx_rotary_embedding
#undef fx_multiheadattention
#undef fx_attend
#undef fx_transformerblock

inline void *fx_dot_product_attention(const fx_dot_product_attention_args &a)
{
    return fxi_dot_product_attention(fxi_sized<fx_dot_product_attention_args>(a));
}
inline void *fx_dot_product_attention(fx_array *q, fx_array *k, fx_array *v)
{
    return fx_dot_product_attention(
        fx_dot_product_attention_args().with_query(q).with_key(k).with_value(v));
}
inline fx_array *fx_dot_product_attention_scores(const fx_dot_product_attention_args &a)
{
    return fxi_dot_product_attention_scores(fxi_sized<fx_dot_product_attention_args>(a));
}
inline fx_array *fx_rotary_embedding(const fx_rotary_embedding_args &a)
{
    return fxi_rotary_embedding(fxi_sized<fx_rotary_embedding_args>(a));
}
inline fx_array *fx_rotary_embedding(fx_array *x)
{
    return fx_rotary_embedding(fx_rotary_embedding_args().with_x(x));
}
inline fx_multiheadattention_layer *fx_multiheadattention(const fx_multiheadattention_args &a)
{
    return fxi_multiheadattention(fxi_sized<fx_multiheadattention_args>(a));
}
inline fx_multiheadattention_layer *fx_multiheadattention(fx_dims dims)
{
    return fx_multiheadattention(fx_multiheadattention_args().with_dims(dims));
}
inline fx_multiheadattention_layer *fx_multiheadattention(int64_t n)
{
    return fx_multiheadattention(fxi_dims_of_number(n));
}
inline void *fx_attend(const fx_attend_args &a)
{
    return fxi_attend(fxi_sized<fx_attend_args>(a));
}

inline fx_transformerblock_layer *fx_transformerblock(const fx_transformerblock_args &a)
{
    return fxi_transformerblock(fxi_sized<fx_transformerblock_args>(a));
}
inline fx_transformerblock_layer *
fx_transformerblock(int64_t size, fx_function *act = fx_transformerblock_args().act)
{
    return fx_transformerblock(fx_transformerblock_args().with_size(size).with_act(act));
}

/* ---- norm.h ---------------------------------------------------------------------------------- */
#undef fx_instancenorm
#undef fx_groupnorm
#undef fx_rmsnorm
#undef fx_alphadropout

inline fx_instancenorm_layer *fx_instancenorm(const fx_instancenorm_args &a)
{
    return fxi_instancenorm(fxi_sized<fx_instancenorm_args>(a));
}
inline fx_instancenorm_layer *fx_instancenorm(int64_t channels,
                                              fx_function *act = fx_instancenorm_args().act)
{
    return fx_instancenorm(fx_instancenorm_args().with_channels(channels).with_act(act));
}

inline fx_groupnorm_layer *fx_groupnorm(const fx_groupnorm_args &a)
{
    return fxi_groupnorm(fxi_sized<fx_groupnorm_args>(a));
}
inline fx_groupnorm_layer *fx_groupnorm(int64_t channels, int64_t groups,
                                        fx_function *act = fx_groupnorm_args().act)
{
    return fx_groupnorm(
        fx_groupnorm_args().with_channels(channels).with_groups(groups).with_act(act));
}

inline fx_rmsnorm_layer *fx_rmsnorm(const fx_rmsnorm_args &a)
{
    return fxi_rmsnorm(fxi_sized<fx_rmsnorm_args>(a));
}
inline fx_rmsnorm_layer *fx_rmsnorm(fx_dims size)
{
    return fx_rmsnorm(fx_rmsnorm_args().with_size(size));
}
inline fx_rmsnorm_layer *fx_rmsnorm(int64_t n)
{
    return fx_rmsnorm(fxi_dims_of_number(n));
}

inline fx_alphadropout_layer *fx_alphadropout(const fx_alphadropout_args &a)
{
    return fxi_alphadropout(fxi_sized<fx_alphadropout_args>(a));
}
inline fx_alphadropout_layer *fx_alphadropout(double p)
{
    return fx_alphadropout(fx_alphadropout_args().with_p(p));
}

/* ---- recurrent.h ----------------------------------------------------------------------------- */
#undef fx_rnncell
#undef fx_lstmcell
#undef fx_grucell
#undef fx_gruv3cell
#undef fx_rnn
#undef fx_lstm
#undef fx_gru
#undef fx_gruv3
#undef fx_recurrence
#undef fx_bidirectional
#undef fx_recur

#define FXI_CXX_RECURRENT(name, layer, options)                                                    \
    inline layer *fx_##name(const options &a)                                                      \
    {                                                                                              \
        return fxi_##name(fxi_sized<options>(a));                                                  \
    }                                                                                              \
    inline layer *fx_##name(int64_t in, int64_t out)                                               \
    {                                                                                              \
        return fx_##name(options().with_in(in).with_out(out));                                     \
    }
FXI_CXX_RECURRENT(rnncell, fx_cell_layer, fx_rnncell_args)
FXI_CXX_RECURRENT(lstmcell, fx_cell_layer, fx_lstmcell_args)
FXI_CXX_RECURRENT(grucell, fx_cell_layer, fx_lstmcell_args)
FXI_CXX_RECURRENT(gruv3cell, fx_cell_layer, fx_lstmcell_args)
FXI_CXX_RECURRENT(rnn, fx_recurrent_layer, fx_rnn_args)
FXI_CXX_RECURRENT(lstm, fx_recurrent_layer, fx_lstm_args)
FXI_CXX_RECURRENT(gru, fx_recurrent_layer, fx_lstm_args)
FXI_CXX_RECURRENT(gruv3, fx_recurrent_layer, fx_lstm_args)
#undef FXI_CXX_RECURRENT
inline fx_recurrent_layer *fx_recurrence(const fx_recurrence_args &a)
{
    return fxi_recurrence(fxi_sized<fx_recurrence_args>(a));
}
inline fx_recurrent_layer *fx_recurrence(void *cell)
{
    return fx_recurrence(fx_recurrence_args().with_cell(cell));
}
inline fx_bidirectional_layer *fx_bidirectional(const fx_bidirectional_args &a)
{
    return fxi_bidirectional(fxi_sized<fx_bidirectional_args>(a));
}
inline fx_bidirectional_layer *fx_bidirectional(void *forward, void *backward)
{
    return fx_bidirectional(fx_bidirectional_args().with_forward(forward).with_backward(backward));
}
inline void *fx_recur(const fx_recur_args &a)
{
    return fxi_recur(fxi_sized<fx_recur_args>(a));
}

inline fx_array *fx_init(const fx_init_args &a)
{
    return fxi_init(fxi_sized<fx_init_args>(a));
}
inline fx_array *fx_init(fx_init_fn init, fx_dims sizes)
{
    return fx_init(fx_init_args().with_init(init).with_sizes(sizes));
}

#define FXI_CXX_LOSS(name)                                                                         \
    inline fx_array *fx_##name(const fx_loss_args &a)                                              \
    {                                                                                              \
        return fxi_##name(fxi_sized<fx_loss_args>(a));                                             \
    }                                                                                              \
    inline fx_array *fx_##name(fx_array *pred, fx_array *target)                                   \
    {                                                                                              \
        return fx_##name(fx_loss_args().with_pred(pred).with_target(target));                      \
    }
FXI_CXX_LOSS(mse)
FXI_CXX_LOSS(mae)
FXI_CXX_LOSS(msle)
FXI_CXX_LOSS(huber_loss)
FXI_CXX_LOSS(quantile_loss)
FXI_CXX_LOSS(crossentropy)
FXI_CXX_LOSS(logitcrossentropy)
FXI_CXX_LOSS(binarycrossentropy)
FXI_CXX_LOSS(logitbinarycrossentropy)
FXI_CXX_LOSS(kldivergence)
FXI_CXX_LOSS(poisson_loss)
FXI_CXX_LOSS(hinge_loss)
FXI_CXX_LOSS(squared_hinge_loss)
FXI_CXX_LOSS(focal_loss)
FXI_CXX_LOSS(binary_focal_loss)
FXI_CXX_LOSS(siamese_contrastive_loss)
FXI_CXX_LOSS(dice_coeff_loss)
FXI_CXX_LOSS(tversky_loss)
FXI_CXX_LOSS(ctc_loss)
inline fx_array *fx_call_loss(fx_array *(*formula)(const fx_loss_args *), const fx_loss_args &a)
{
    return formula(fxi_sized<fx_loss_args>(a));
}
inline fx_array *fx_call_loss(fx_array *(*formula)(const fx_loss_args *), fx_array *pred,
                              fx_array *target)
{
    return fx_call_loss(formula, fx_loss_args().with_pred(pred).with_target(target));
}

/* ---- conv.h ---------------------------------------------------------------------------------- */
#undef fx_conv
#undef fx_crosscor
#undef fx_convtranspose
#undef fx_depthwiseconv
#undef fx_maxpool
#undef fx_meanpool
#undef fx_adaptivemaxpool
#undef fx_adaptivemeanpool
#undef fx_lpnormpool
#undef fx_upsample
#undef fx_pixelshuffle

inline fx_conv_layer *fx_conv(const fx_conv_args &a)
{
    return fxi_conv(fxi_sized<fx_conv_args>(a));
}
inline fx_conv_layer *fx_conv(fx_dims kernel, int64_t in, int64_t out,
                              fx_function *act = fx_conv_args().act)
{
    return fx_conv(fx_conv_args().with_kernel(kernel).with_in(in).with_out(out).with_act(act));
}

inline fx_crosscor_layer *fx_crosscor(const fx_crosscor_args &a)
{
    return fxi_crosscor(fxi_sized<fx_crosscor_args>(a));
}
inline fx_crosscor_layer *fx_crosscor(fx_dims kernel, int64_t in, int64_t out,
                                      fx_function *act = fx_crosscor_args().act)
{
    return fx_crosscor(
        fx_crosscor_args().with_kernel(kernel).with_in(in).with_out(out).with_act(act));
}

inline fx_convtranspose_layer *fx_convtranspose(const fx_convtranspose_args &a)
{
    return fxi_convtranspose(fxi_sized<fx_convtranspose_args>(a));
}
inline fx_convtranspose_layer *fx_convtranspose(fx_dims kernel, int64_t in, int64_t out,
                                                fx_function *act = fx_convtranspose_args().act)
{
    return fx_convtranspose(
        fx_convtranspose_args().with_kernel(kernel).with_in(in).with_out(out).with_act(act));
}

inline fx_depthwiseconv_layer *fx_depthwiseconv(const fx_depthwiseconv_args &a)
{
    return fxi_depthwiseconv(fxi_sized<fx_depthwiseconv_args>(a));
}
inline fx_depthwiseconv_layer *fx_depthwiseconv(fx_dims kernel, int64_t in, int64_t out,
                                                fx_function *act = fx_depthwiseconv_args().act)
{
    return fx_depthwiseconv(
        fx_depthwiseconv_args().with_kernel(kernel).with_in(in).with_out(out).with_act(act));
}

inline fx_maxpool_layer *fx_maxpool(const fx_maxpool_args &a)
{
    return fxi_maxpool(fxi_sized<fx_maxpool_args>(a));
}
inline fx_meanpool_layer *fx_meanpool(const fx_meanpool_args &a)
{
    return fxi_meanpool(fxi_sized<fx_meanpool_args>(a));
}
inline fx_maxpool_layer *fx_maxpool(fx_dims window)
{
    return fx_maxpool(fx_maxpool_args().with_window(window));
}
inline fx_meanpool_layer *fx_meanpool(fx_dims window)
{
    return fx_meanpool(fx_meanpool_args().with_window(window));
}

inline fx_adaptivemaxpool_layer *fx_adaptivemaxpool(const fx_adaptivemaxpool_args &a)
{
    return fxi_adaptivemaxpool(fxi_sized<fx_adaptivemaxpool_args>(a));
}
inline fx_adaptivemaxpool_layer *fx_adaptivemaxpool(fx_dims out)
{
    return fx_adaptivemaxpool(fx_adaptivemaxpool_args().with_out(out));
}

inline fx_adaptivemeanpool_layer *fx_adaptivemeanpool(const fx_adaptivemeanpool_args &a)
{
    return fxi_adaptivemeanpool(fxi_sized<fx_adaptivemeanpool_args>(a));
}
inline fx_adaptivemeanpool_layer *fx_adaptivemeanpool(fx_dims out)
{
    return fx_adaptivemeanpool(fx_adaptivemeanpool_args().with_out(out));
}

inline fx_lpnormpool_layer *fx_lpnormpool(const fx_lpnormpool_args &a)
{
    return fxi_lpnormpool(fxi_sized<fx_lpnormpool_args>(a));
}
inline fx_lpnormpool_layer *fx_lpnormpool(fx_dims window)
{
    return fx_lpnormpool(fx_lpnormpool_args().with_window(window));
}

inline fx_upsample_layer *fx_upsample(const fx_upsample_args &a)
{
    return fxi_upsample(fxi_sized<fx_upsample_args>(a));
}
inline fx_upsample_layer *fx_upsample(fx_upsample_mode mode, fx_dims scale)
{
    return fx_upsample(fx_upsample_args().with_mode(mode).with_scale(scale));
}

inline fx_pixelshuffle_layer *fx_pixelshuffle(const fx_pixelshuffle_args &a)
{
    return fxi_pixelshuffle(fxi_sized<fx_pixelshuffle_args>(a));
}
inline fx_pixelshuffle_layer *fx_pixelshuffle(int64_t r)
{
    return fx_pixelshuffle(fx_pixelshuffle_args().with_r(r));
}

/* ---- resample.h ------------------------------------------------------------------------------ */
#undef fx_resize
#undef fx_unfold
#undef fx_fold
#undef fx_grid_sample

inline fx_array *fx_resize(const fx_resize_args &a)
{
    return fxi_resize(fxi_sized<fx_resize_args>(a));
}
inline fx_array *fx_unfold(const fx_unfold_args &a)
{
    return fxi_unfold(fxi_sized<fx_unfold_args>(a));
}
inline fx_array *fx_fold(const fx_fold_args &a)
{
    return fxi_fold(fxi_sized<fx_fold_args>(a));
}
inline fx_array *fx_grid_sample(const fx_grid_sample_args &a)
{
    return fxi_grid_sample(fxi_sized<fx_grid_sample_args>(a));
}

/* ---- optim.h --------------------------------------------------------------------------------- */
#undef fx_descent
#undef fx_momentum
#undef fx_nesterov
#undef fx_adam
#undef fx_adamw
#undef fx_rprop
#undef fx_rmsprop
#undef fx_adamax
#undef fx_nadam
#undef fx_radam
#undef fx_amsgrad
#undef fx_oadam
#undef fx_adabelief
#undef fx_adagrad
#undef fx_lion
#undef fx_adadelta
#undef fx_weight_decay
#undef fx_sign_decay
#undef fx_clip_grad
#undef fx_clip_norm
#undef fx_accum_grad
#undef fx_mixed_precision
#undef fx_optimiser_chain
#undef fx_clip_global_norm
#undef fx_adjust
#undef fx_update

/* Declares the constructor of a rule twice: with options, and with the value of the first option,
 * which has the given type. */
#define FXI_CXX_RULE(name, type, first)                                                            \
    inline fx_rule *fx_##name(const fx_##name##_args &a = fx_##name##_args())                      \
    {                                                                                              \
        return fxi_##name(fxi_sized<fx_##name##_args>(a));                                         \
    }                                                                                              \
    inline fx_rule *fx_##name(type first)                                                          \
    {                                                                                              \
        return fx_##name(fx_##name##_args().with_##first(first));                                  \
    }
FXI_CXX_RULE(descent, double, eta)
FXI_CXX_RULE(momentum, double, eta)
FXI_CXX_RULE(nesterov, double, eta)
FXI_CXX_RULE(adam, double, eta)
FXI_CXX_RULE(adamw, double, eta)
FXI_CXX_RULE(rprop, double, eta)
FXI_CXX_RULE(rmsprop, double, eta)
FXI_CXX_RULE(adamax, double, eta)
FXI_CXX_RULE(nadam, double, eta)
FXI_CXX_RULE(radam, double, eta)
FXI_CXX_RULE(amsgrad, double, eta)
FXI_CXX_RULE(oadam, double, eta)
FXI_CXX_RULE(adabelief, double, eta)
FXI_CXX_RULE(adagrad, double, eta)
FXI_CXX_RULE(lion, double, eta)
FXI_CXX_RULE(adadelta, double, rho)
FXI_CXX_RULE(weight_decay, double, lambda)
FXI_CXX_RULE(sign_decay, double, lambda)
FXI_CXX_RULE(clip_grad, double, delta)
FXI_CXX_RULE(clip_norm, double, omega)
FXI_CXX_RULE(accum_grad, int64_t, n)

inline fx_rule *fx_mixed_precision(const fx_mixed_precision_args &a)
{
    return fxi_mixed_precision(fxi_sized<fx_mixed_precision_args>(a));
}
inline fx_rule *fx_mixed_precision(fx_rule *rule)
{
    return fx_mixed_precision(fx_mixed_precision_args().with_rule(rule));
}
template <class... Rules> inline fx_rule *fx_optimiser_chain(Rules *...rules)
{
    void *const all[] = {nullptr, rules...};
    return fxi_optimiser_chain(static_cast<int>(sizeof...(rules)), all + 1);
}

template <class T> inline T *fx_clip_global_norm(T *gradient, double most)
{
    return static_cast<T *>(fxi_clip_global_norm(gradient, most));
}
inline fx_status fx_adjust(void *state, const fx_adjust_args &given)
{
    return fxi_adjust(state, fxi_sized<fx_adjust_args>(given));
}
inline fx_status fx_update(const fx_update_args &a)
{
    return fxi_update(fxi_sized<fx_update_args>(a));
}
inline fx_status fx_update(void *state, void *model, void *gradient)
{
    return fx_update(fx_update_args().with_state(state).with_model(model).with_gradient(gradient));
}

/* ---- predict.h ------------------------------------------------------------------------------- */
#undef fx_generate

inline fx_array *fx_generate(const fx_generate_args &a)
{
    return fxi_generate(fxi_sized<fx_generate_args>(a));
}
inline fx_array *fx_generate(void *predictor, const char *prompt = nullptr,
                             int64_t length = fx_generate_args().length)
{
    return fx_generate(
        fx_generate_args().with_predictor(predictor).with_prompt(prompt).with_length(length));
}

/* ---- data.h ---------------------------------------------------------------------------------- */
#undef fx_read_table
#undef fx_mapobs
#undef fx_dataloader

inline void *fx_read_table(const fx_read_table_args &a)
{
    return fxi_read_table(fxi_sized<fx_read_table_args>(a));
}
inline void *fx_read_table(const char *path)
{
    return fx_read_table(fx_read_table_args().with_path(path));
}
inline void *fx_read_table(const char *path, char separator,
                           int64_t skip = fx_read_table_args().skip)
{
    return fx_read_table(
        fx_read_table_args().with_path(path).with_separator(separator).with_skip(skip));
}
inline void *fx_mapobs(fx_map_fn f, void *data)
{
    return fxi_mapobs(f, data);
}
inline fx_loader *fx_dataloader(const fx_dataloader_args &a)
{
    return fxi_dataloader(fxi_sized<fx_dataloader_args>(a));
}
inline fx_loader *fx_dataloader(void *data)
{
    return fx_dataloader(fx_dataloader_args().with_data(data));
}
inline fx_loader *fx_dataloader(void *data, int64_t batchsize,
                                bool shuffle = fx_dataloader_args().shuffle)
{
    return fx_dataloader(
        fx_dataloader_args().with_data(data).with_batchsize(batchsize).with_shuffle(shuffle));
}

/* ---- mlutils.h ------------------------------------------------------------------------------- */
#undef FX_FRACTIONS
#undef fx_joinobs
#undef fx_splitobs
#undef fx_kfolds
#undef fx_timeseries_kfolds

/* A list of fractions or counts: FX_FRACTIONS(0.7, 0.15). */
template <class... D> inline fx_fractions fx_make_fractions(D... d)
{
    static_assert(sizeof...(d) <= 8, "FX_FRACTIONS takes at most 8 numbers");
    return fx_fractions{static_cast<int64_t>(sizeof...(d)), {static_cast<double>(d)...}};
}
#define FX_FRACTIONS(...) fx_make_fractions(__VA_ARGS__)

template <class... D> inline void *fx_joinobs(D *...data)
{
    void *const list[] = {data..., nullptr};
    return fxi_joinobs(static_cast<int>(sizeof...(data)), list);
}
inline void *fx_splitobs(const fx_splitobs_args &a)
{
    return fxi_splitobs(fxi_sized<fx_splitobs_args>(a));
}
inline void *fx_splitobs(void *data, fx_fractions at, bool shuffle = fx_splitobs_args().shuffle)
{
    return fx_splitobs(fx_splitobs_args().with_data(data).with_at(at).with_shuffle(shuffle));
}
inline void *fx_kfolds(const fx_kfolds_args &a)
{
    return fxi_kfolds(fxi_sized<fx_kfolds_args>(a));
}
inline void *fx_kfolds(void *data, int64_t k = fx_kfolds_args().k)
{
    return fx_kfolds(fx_kfolds_args().with_data(data).with_k(k));
}
inline void *fx_timeseries_kfolds(const fx_timeseries_kfolds_args &a)
{
    return fxi_timeseries_kfolds(fxi_sized<fx_timeseries_kfolds_args>(a));
}
inline void *fx_timeseries_kfolds(void *data, int64_t k = fx_timeseries_kfolds_args().k,
                                  int64_t gap = fx_timeseries_kfolds_args().gap)
{
    return fx_timeseries_kfolds(
        fx_timeseries_kfolds_args().with_data(data).with_k(k).with_gap(gap));
}

/* ---- augment.h ------------------------------------------------------------------------------- */
#undef fx_random_flip
#undef fx_random_crop
#undef fx_random_shift
#undef fx_random_noise
#define FXI_CXX_AUGMENT(name)                                                                      \
    inline fx_array *fx_##name(const fx_augment_args &a)                                           \
    {                                                                                              \
        return fxi_##name(fxi_sized<fx_augment_args>(a));                                          \
    }                                                                                              \
    inline fx_array *fx_##name(fx_array *x)                                                        \
    {                                                                                              \
        return fx_##name(fx_augment_args().with_x(x));                                             \
    }                                                                                              \
    inline fx_array *fx_##name(fx_array *x, const fx_dims &sizes)                                  \
    {                                                                                              \
        return fx_##name(fx_augment_args().with_x(x).with_sizes(sizes));                           \
    }
FXI_CXX_AUGMENT(random_flip)
FXI_CXX_AUGMENT(random_crop)
FXI_CXX_AUGMENT(random_shift)
FXI_CXX_AUGMENT(random_noise)

/* ---- signal.h -------------------------------------------------------------------------------- */
#undef fx_stft
#undef fx_spectrogram
#undef fx_istft

inline void *fx_stft(const fx_stft_args &a)
{
    return fxi_stft(fxi_sized<fx_stft_args>(a));
}
inline void *fx_stft(fx_array *x, int64_t n_fft, int64_t hop_length = fx_stft_args().hop_length)
{
    return fx_stft(fx_stft_args().with_x(x).with_n_fft(n_fft).with_hop_length(hop_length));
}
inline fx_array *fx_spectrogram(const fx_stft_args &a)
{
    return fxi_spectrogram(fxi_sized<fx_stft_args>(a));
}
inline fx_array *fx_spectrogram(fx_array *x, int64_t n_fft,
                                int64_t hop_length = fx_stft_args().hop_length)
{
    return fx_spectrogram(fx_stft_args().with_x(x).with_n_fft(n_fft).with_hop_length(hop_length));
}
inline fx_array *fx_istft(const fx_istft_args &a)
{
    return fxi_istft(fxi_sized<fx_istft_args>(a));
}
inline fx_array *fx_istft(fx_array *re, fx_array *im, int64_t n_fft,
                          int64_t hop_length = fx_istft_args().hop_length)
{
    return fx_istft(
        fx_istft_args().with_re(re).with_im(im).with_n_fft(n_fft).with_hop_length(hop_length));
}

/* ---- report.h -------------------------------------------------------------------------------- */
#undef fx_report
#undef fx_run_log_start
#undef fx_run_log_epoch
#undef fx_run_log_end

inline fx_status fx_run_log_start(fx_run_log *log, const fx_run_log_start_args &start)
{
    return fxi_run_log_start(log, fxi_sized<fx_run_log_start_args>(start));
}
inline fx_status fx_run_log_epoch(fx_run_log *log, const fx_run_log_epoch_args &epoch)
{
    return fxi_run_log_epoch(log, fxi_sized<fx_run_log_epoch_args>(epoch));
}
inline fx_status fx_run_log_end(fx_run_log *log, const fx_run_log_end_args &end)
{
    return fxi_run_log_end(log, fxi_sized<fx_run_log_end_args>(end));
}
inline fx_status fx_report(const fx_report_args &a)
{
    return fxi_report(fxi_sized<fx_report_args>(a));
}
inline fx_status fx_report(const char *log, const char *page)
{
    return fx_report(fx_report_args().with_log(log).with_page(page));
}

/* ---- train.h --------------------------------------------------------------------------------- */
#undef fx_train
#undef fx_dist_init
#undef fx_dist_optimiser

inline fx_rule *fx_dist_optimiser(fx_dist *d, const fx_dist_optimiser_args &a)
{
    return fxi_dist_optimiser(d, fxi_sized<fx_dist_optimiser_args>(a));
}
inline fx_rule *fx_dist_optimiser(fx_dist *d, fx_rule *rule)
{
    return fx_dist_optimiser(d, fx_dist_optimiser_args().with_rule(rule));
}
inline fx_status fx_dist_init(const fx_dist_init_args &a)
{
    return fxi_dist_init(fxi_sized<fx_dist_init_args>(a));
}
inline fx_status fx_dist_init(fx_dist_kind kind)
{
    return fx_dist_init(fx_dist_init_args().with_kind(kind));
}
inline fx_status fx_train(const fx_train_args &a)
{
    return fxi_train(fxi_sized<fx_train_args>(a));
}

/* ---- io.h ------------------------------------------------------------------------------------ */
#undef fx_save
#undef fx_load_into
#undef fx_metadata
#undef fx_checkpoint_save
#undef fx_checkpoint_load

inline fx_status fx_checkpoint_save(const char *path, const fx_checkpoint_args &c)
{
    return fxi_checkpoint_save(path, fxi_sized<fx_checkpoint_args>(c));
}
inline fx_status fx_checkpoint_load(const char *path, fx_checkpoint_args *io)
{
    if (!io)
        return fxi_checkpoint_load(path, nullptr);
    fxi_sized<fx_checkpoint_args> sized(*io);
    const fx_status status = fxi_checkpoint_load(path, sized.in_c());
    *io = sized.options();
    return status;
}
template <class... A> inline fx_status fx_save(const char *path, A... names_and_objects)
{
    const void *const pairs[] = {nullptr, static_cast<const void *>(names_and_objects)...};
    return fxi_save(path, static_cast<int>(sizeof...(A)), pairs + 1);
}
template <class... A> inline fx_status fx_load_into(const char *path, A... names_and_objects)
{
    const void *const pairs[] = {nullptr, static_cast<const void *>(names_and_objects)...};
    return fxi_load_into(path, static_cast<int>(sizeof...(A)), pairs + 1);
}
template <class... A> inline void *fx_metadata(A... keys_and_texts)
{
    const void *const pairs[] = {nullptr, static_cast<const void *>(keys_and_texts)...};
    return fxi_metadata(static_cast<int>(sizeof...(A)), pairs + 1);
}

/* ---- device.h -------------------------------------------------------------------------------- */
#undef fx_get_device
#undef fx_to
#undef fx_gpu
#undef fx_gpu_strict
#undef fx_cu
#undef fx_cpu

inline fx_device *fx_get_device(const fx_get_device_args &opts)
{
    return fxi_get_device(fxi_sized<fx_get_device_args>(opts));
}
inline fx_device *fx_get_device(bool verbose = fx_get_device_args().verbose)
{
    return fx_get_device(fx_get_device_args().with_verbose(verbose));
}
template <class T> inline T *fx_to(fx_device *d, T *x)
{
    return static_cast<T *>(fxi_to(d, x));
}
template <class T> inline T *fx_gpu(T *x)
{
    return static_cast<T *>(fxi_gpu(x));
}
template <class T> inline T *fx_gpu_strict(T *x)
{
    return static_cast<T *>(fxi_gpu_strict(x));
}
template <class T> inline T *fx_cu(T *x)
{
    return static_cast<T *>(fxi_cu(x));
}
template <class T> inline T *fx_cpu(T *x)
{
    return static_cast<T *>(fxi_cpu(x));
}
}
#endif
