/* cflux/array.h: arrays, scopes, ownership, reading.
 *
 * An fx_array is a handle to an immutable value that may not have been computed yet. Operations
 * check shapes, element types and devices at once and only record a node; work happens when
 * somebody needs the numbers. The first dimension is contiguous (column-major): a C array
 * img[N][C][H][W] is the array W×H×C×N with the same bytes. Axes and indices count from 0.
 *
 * Ownership: every object a function returns belongs to the innermost open scope of the calling
 * thread and is released when that scope ends. There is always a root scope.
 */
#ifndef CFLUX_ARRAY_H
#define CFLUX_ARRAY_H

#include <cflux/base.h>

FXI_BEGIN_C

/* Element types, in Julia's names Float32, Float64, Int32, Int64, UInt8, Bool, Float16, BFloat16.
 */
typedef enum fx_dtype {
    FX_DTYPE_F32 = 0, /* the default everywhere */
    FX_DTYPE_F64,
    FX_DTYPE_I32,
    FX_DTYPE_I64,
    FX_DTYPE_U8,
    FX_DTYPE_BOOL,
    FX_DTYPE_F16,  /* storage: arithmetic is done in Float32 */
    FX_DTYPE_BF16, /* storage: arithmetic is done in Float32 */
    FX_DTYPE_COUNT /* how many there are */
} fx_dtype;

/* "Float32", "Bool", … as Julia writes it. */
FX_API const char *fx_dtype_name(fx_dtype dtype);
FX_API size_t fx_dtype_size(fx_dtype dtype); /* bytes of one element */

/* The element type of a result that combines two arrays: Julia's promotion (Int64 with Float32
 * gives Float32, Int32 with Int64 gives Int64, Bool with anything gives the other). Float16 with
 * BFloat16 gives Float32. */
FX_API fx_dtype fx_dtype_promote(fx_dtype a, fx_dtype b);

typedef struct fx_type fx_type;     /* what objects of a kind have in common: tree.h */
typedef struct fx_device fx_device; /* where values live and are computed: device.h */

/* The head of every object: arrays, layers, tuples, the user's own structs. All fields are private.
 */
typedef struct fx_object {
    const fx_type *type;
    int64_t refs;
    struct fx_object *fxi_prev, *fxi_next;
    struct fxi_scope *fxi_scope;
} fx_object;

/* A handle to a value: numbers of one element type in up to FX_MAX_DIMS dimensions, on one device.
 * Opaque. */
typedef struct fx_array fx_array;

/* A list of sizes: FX_DIMS(5, 5). */
typedef struct fx_dims {
    int64_t n;
    int64_t v[2 * FX_MAX_DIMS];
} fx_dims;
/* Values of options that are lists of sizes: none, 1 and 0 for every axis. */
#define FXI_DIMS_NONE                                                                              \
    {                                                                                              \
        0,                                                                                         \
        {                                                                                          \
            0                                                                                      \
        }                                                                                          \
    }
#define FXI_DIMS_ONE                                                                               \
    {                                                                                              \
        1,                                                                                         \
        {                                                                                          \
            1                                                                                      \
        }                                                                                          \
    }
#define FXI_DIMS_ZERO                                                                              \
    {                                                                                              \
        1,                                                                                         \
        {                                                                                          \
            0                                                                                      \
        }                                                                                          \
    }

/* Bits that are no axis: all axes; an axis below 0 or above 29. */
typedef enum fxi_axis_bits { FXI_BIT_ALL = 1 << 30, FXI_BIT_OUTSIDE = 1 << 29 } fxi_axis_bits;
/* A set of axes: FX_AXES(0, 2) are the first and the third, FX_ALL all of them. The bits are
 * private, and a number is no set of axes: .dims = 2 does not compile. */
typedef struct fx_axes {
    unsigned bits;
    FXI_CXX(fx_axes() : bits(0){})
    FXI_CXX(fx_axes(fxi_axis_bits set) : bits(static_cast<unsigned>(set)){})
} fx_axes;
/* The same of a list. */
static inline fx_axes fx_axes_of(int n, const int64_t *axes)
{
    fx_axes set;
    set.bits = 0;
    for (int i = 0; i < n; i++)
        set.bits |= axes[i] >= 0 && axes[i] < 29 ? 1u << axes[i] : (unsigned)FXI_BIT_OUTSIDE;
    return set;
}
#define FXI_AXES_ALL                                                                               \
    {                                                                                              \
        FXI_BIT_ALL                                                                                \
    }
#define FXI_AXES_OF(axis)                                                                          \
    {                                                                                              \
        (fxi_axis_bits)(1u << (axis))                                                              \
    }
/* All axes; the axes that are listed. */
#define FX_ALL ((fx_axes)FXI_AXES_ALL)
#define FX_AXES(...)                                                                               \
    fx_axes_of((int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),                    \
               (const int64_t[]){__VA_ARGS__})
/* The axes whose bits are set; for the library and its tests. */
#define FXI_AXES(mask) ((fx_axes){mask})

/* ---- scopes ---------------------------------------------------------------------------------- */
enum { FXI_SCOPE_INHERIT = 0, FXI_SCOPE_STEP = 1, FXI_SCOPE_TEST = 2, FXI_SCOPE_QUIET = 3 };
FX_API int fxi_scope_open(int mode, const char *file, int line);
FX_API void fxi_scope_close(int depth);
static inline void fxi_scope_end(const int *depth)
{
    fxi_scope_close(*depth);
}

#define FXI_OPEN_AT(mode, file, line)                                                              \
    const int FXI_CAT(fxi_scope_, __COUNTER__) __attribute__((cleanup(fxi_scope_end), unused)) =   \
        (FXI_HERE, fxi_scope_open(mode, file, line))
#define FXI_OPEN(mode) FXI_OPEN_AT(mode, __FILE__, __LINE__)
/* For library code: the scope of intermediates; error records keep the position of the caller's,
 * and what fx_set, fx_want and fx_stage promised passes on to the caller's scope. */
#define FXI_SCOPE FXI_OPEN_AT(FXI_SCOPE_QUIET, NULL, 0)

/* FX_SCOPE; opens a scope to the end of the C block and keeps the mode; FX_STEP; opens a training
 * step (dropout is active, batch norm uses and updates its statistics); FX_TEST; opens inference.
 * They must stand first in a {} block and are closed on every way out, break and return included.
 * Closing by depth makes longjmp over them harmless. The mode belongs to the thread. */
#define FX_SCOPE FXI_OPEN(FXI_SCOPE_INHERIT)
#define FX_STEP  FXI_OPEN(FXI_SCOPE_STEP)
#define FX_TEST  FXI_OPEN(FXI_SCOPE_TEST)

/* True inside FX_STEP: what layers ask. */
FX_API bool fx_training(void);

/* Hands an object of the innermost scope to the enclosing one, still pending; returns it.
 * `return fx_keep(y);` is how a function with a scope returns. Objects of outer scopes stay put;
 * what a loader has handed out, which is in no scope, is shared with the enclosing one. */
FX_API void *fxi_keep(void *object);
/* Takes a reference that outlives scopes, or gives one back. Without fx_retain it is the scope's
 * that is given back: the object is freed before the scope closes. NULL is allowed; error objects
 * ignore both. */
FX_API void *fxi_retain(void *object);
FX_API void fx_release(void *object);
/* Stores x in a variable or field: retains it, releases what was there (NULL at first). The value
 * is computed with the next fx_update, or when the step closes, and is a constant from then on
 * (recurrent state, running totals). Plain C assignment never transfers ownership. fx_set(&slot,
 * NULL) empties it. */
FX_API void fxi_set(void *slot, void *object);

#define fx_keep(x)      (FXI_HERE, (__typeof__(x))fxi_keep(x))
#define fx_retain(x)    (FXI_HERE, (__typeof__(x))fxi_retain(x))
#define fx_set(slot, x) (((void)sizeof(*(slot) = (x))), FXI_HERE, fxi_set((slot), (x)))

/* Layer state (running statistics): fx_stage gives the state array `slot` a new value, which an
 * update within the step, or its close, computes and commits to the handle; on error it is dropped.
 * fx_staged is the value staged so far, or slot itself. Outside a step the commit happens with the
 * scope's close. */
FX_API void fx_stage(fx_array *slot, fx_array *value);
FX_API fx_array *fx_staged(fx_array *slot);

/* The immortal error array of a status (not FX_OK): what failing functions return. */
FX_API fx_array *fx_error_array(fx_status status);

/* ---- what an array is ------------------------------------------------------------------------ */
/* Number of dimensions; 0 for a single number, and for an error array. */
FX_API int fx_ndims(const fx_array *x);
/* Size along axis (1 beyond the last axis, as in Julia; 0 for an error array). */
FX_API int64_t fx_size(const fx_array *x, int axis);
FX_API int64_t fx_length(const fx_array *x);  /* number of elements */
FX_API fx_dtype fx_eltype(const fx_array *x); /* of an error array: FX_DTYPE_F32 */
/* Where its value is, or will be computed: the CPU while nothing else asks for it. */
FX_API fx_device *fx_array_device(const fx_array *x);
FX_API bool fx_is_error(const void *object); /* does it carry an error? NULL does */
/* FX_OK, or the status of the error that an error array carries. */
FX_API fx_status fx_array_status(const fx_array *x);
/* Has its value been computed already? A read of it then costs no more than a copy. */
FX_API bool fx_is_evaluated(const fx_array *x);

/* ---- creation -------------------------------------------------------------------------------- */
/* Dimensions are given as trailing numbers: fx_zeros(3, 4) is 3×4, fx_zeros() a scalar (0-d) array.
 */
#define FXI_LIST(...)                                                                              \
    (FXI_HERE, (int)(sizeof((int64_t[]){0, __VA_ARGS__}) / sizeof(int64_t)) - 1),                  \
        (const int64_t[]){0, __VA_ARGS__} + 1

/* fx_full(value, 3, 4): all elements equal to `value`, in Float32 or the type given; fx_zeros and
 * fx_ones: 0 and 1. Nothing is stored until it is needed. */
FX_API fx_array *fxi_full(fx_dtype dtype, double value, int ndims, const int64_t *sizes);
/* Zeros with the sizes, element type and device of x. */
FX_API fx_array *fx_zeros_like(const fx_array *x);
/* fx_rand(3, 4): uniform in [0, 1); fx_randn: standard normal. Philox4x32-10, one counter a call;
 * the same numbers on every backend (Salmon et al., 2011). Float32, Float64, Float16, BFloat16. */
FX_API fx_array *fxi_rand(fx_dtype dtype, int ndims, const int64_t *sizes);
FX_API fx_array *fxi_randn(fx_dtype dtype, int ndims, const int64_t *sizes);
/* x[i] = start + i·step for i < n: an n-element vector of dtype. */
FX_API fx_array *fx_range_dtype(fx_dtype dtype, double start, double step, int64_t n);
/* fx_from(dtype, data, 3, 4): copies n = Π sizes elements of type dtype from C memory. */
FX_API fx_array *fxi_vector(int64_t n, const double *values); /* as Float32 */
FX_API fx_array *fxi_from(fx_dtype dtype, const void *data, int ndims, const int64_t *sizes);
/* Uses C memory without a copy. It must stay valid and unchanged until release(data, user) is
 * called (when the last value that reads it is gone); release may be NULL. The memory is never
 * written. If the call fails, release is called at once. */
typedef void (*fx_release_fn)(void *data, void *user);
FX_API fx_array *fxi_borrow(fx_dtype dtype, const void *data, fx_release_fn release, void *user,
                            int ndims, const int64_t *sizes);
/* A 0-d array holding a number. Weak like a literal: it does not widen what it meets. */
FX_API fx_array *fx_scalar(double value);

#define fx_full(value, ...)              fxi_full(FX_DTYPE_F32, (value), FXI_LIST(__VA_ARGS__))
#define fx_full_dtype(dtype, value, ...) fxi_full((dtype), (value), FXI_LIST(__VA_ARGS__))
#define fx_zeros(...)                    fxi_full(FX_DTYPE_F32, 0.0, FXI_LIST(__VA_ARGS__))
#define fx_ones(...)                     fxi_full(FX_DTYPE_F32, 1.0, FXI_LIST(__VA_ARGS__))
#define fx_rand(...)                     fxi_rand(FX_DTYPE_F32, FXI_LIST(__VA_ARGS__))
#define fx_randn(...)                    fxi_randn(FX_DTYPE_F32, FXI_LIST(__VA_ARGS__))
#define fx_rand_dtype(dtype, ...)        fxi_rand((dtype), FXI_LIST(__VA_ARGS__))
#define fx_randn_dtype(dtype, ...)       fxi_randn((dtype), FXI_LIST(__VA_ARGS__))
#define fx_from(dtype, data, ...)        fxi_from((dtype), (data), FXI_LIST(__VA_ARGS__))
#define fx_borrow(dtype, data, fn, user, ...)                                                      \
    fxi_borrow((dtype), (data), (fn), (user), FXI_LIST(__VA_ARGS__))
/* A Float32 vector of the listed numbers: fx_vector(1, 2, 3). */
#define fx_vector(...)                                                                             \
    fxi_vector((FXI_HERE, (int64_t)(sizeof((const double[]){__VA_ARGS__}) / sizeof(double))),      \
               (const double[]){__VA_ARGS__})
/* A list of sizes, as options take it: FX_DIMS(5, 5). More than 16 do not compile; the name of the
 * macro below is what compilers print then. (clang takes no static assertion here: in a structure
 * of its own the numbers would have to be constants.) */
#define FX_DIMS(...)                                                                               \
    ((fx_dims){.n = FX_DIMS_TAKES_AT_MOST_16_NUMBERS(                                              \
                   sizeof((int64_t[]){0, __VA_ARGS__}) / sizeof(int64_t) - 1),                     \
               .v = {__VA_ARGS__}})
#define FX_DIMS_TAKES_AT_MOST_16_NUMBERS(n)                                                        \
    ((int64_t)(n) + 0 * (int64_t)sizeof(char[(n) <= 2 * FX_MAX_DIMS ? 1 : -1]))
/* Wraps a C array of 1 to 4 dimensions without a copy, its dimensions reversed: float W[2][5] is
 * the 5×2 array with the same bytes. It is read when the value is evaluated (see fx_borrow).
 * FXI_SUB steps to the sub-array, or stays at the innermost one. */
#define FXI_IF_SCALAR(e, yes, no)                                                                  \
    _Generic((e), float                                                                            \
             : yes, double                                                                         \
             : yes, int32_t                                                                        \
             : yes, int64_t                                                                        \
             : yes, uint8_t                                                                        \
             : yes, bool                                                                           \
             : yes, default                                                                        \
             : no)
#define FXI_SUB(a)    FXI_IF_SCALAR((a)[0], (a), (a)[0])
#define FXI_DEEPER(a) FXI_IF_SCALAR((a)[0], 0, 1)
#define FXI_DTYPE_C(a)                                                                             \
    _Generic((a)[0], float                                                                         \
             : FX_DTYPE_F32, double                                                                \
             : FX_DTYPE_F64, int32_t                                                               \
             : FX_DTYPE_I32, int64_t                                                               \
             : FX_DTYPE_I64, uint8_t                                                               \
             : FX_DTYPE_U8, bool                                                                   \
             : FX_DTYPE_BOOL)
#define FX_FROM_C(a)                                                                               \
    fxi_from_c((FXI_HERE, FXI_DTYPE_C(FXI_SUB(FXI_SUB(FXI_SUB(a))))), (const void *)(a),           \
               1 + FXI_DEEPER(a) + FXI_DEEPER(FXI_SUB(a)) + FXI_DEEPER(FXI_SUB(FXI_SUB(a))),       \
               (const size_t[]){sizeof(a), sizeof(FXI_SUB(a)), sizeof(FXI_SUB(FXI_SUB(a))),        \
                                sizeof(FXI_SUB(FXI_SUB(FXI_SUB(a))))})
FX_API fx_array *fxi_from_c(fx_dtype dtype, const void *data, int ndims, const size_t *level_bytes);
/* The same in Float32: fx_range(0, 0.5, 3) is 0, 0.5, 1. */
#define fx_range(start, step, n) fx_range_dtype(FX_DTYPE_F32, (start), (step), (n))

/* Labels (integers from 0, any shape) → Bool array of shape (nclasses, size(labels)…): column j has
 * its one true element at labels[j]. A label outside 0 … nclasses−1 gives an all-false column; see
 * fx_onehotbatch for the form that checks. */
FX_API fx_array *fx_onehot(fx_array *labels, int64_t nclasses);
/* As Flux.onehotbatch(labels, 0:nclasses-1): reads the labels and fails with "Value 9 is not in
 * labels". */
FX_API fx_array *fx_onehotbatch(fx_array *labels, int64_t nclasses);
/* Index (Int64, from 0) of the largest element of every column: argmax along axis 0, that axis
 * dropped. */
FX_API fx_array *fx_onecold(fx_array *y);

/* ---- evaluation and reading ------------------------------------------------------------------ */
/* A read computes what it needs, stores it and never cuts history. */

/* Evaluates every array in the object (an array, model, tuple, …) in one plan. */
FX_API fx_status fx_eval(void *object);
/* Makes x a root of the next fx_update or step close, so that it is computed with it. Returns x. */
FX_API fx_array *fx_want(fx_array *x);
/* The value of a one-element array as a double; NaN on error (and the error is recorded). */
FX_API double fx_item(fx_array *x);
/* The same, with a status for those who must tell a NaN from an error. */
FX_API fx_status fx_item_get(fx_array *x, double *out_value);
/* Element at linear index i (column-major, from 0) as a double; NaN on error. */
FX_API double fx_at(fx_array *x, int64_t i);
/* Copies all elements, dense and column-major, in x's element type; `bytes` must be the exact size.
 */
FX_API fx_status fx_read_into(fx_array *x, void *dst, size_t bytes);
/* Copies all elements converted to `dtype`. */
FX_API fx_status fx_read_as(fx_array *x, fx_dtype dtype, void *dst, int64_t count);
/* Evaluates x and returns a pointer to its dense data on the host, valid while x's value lives.
 * Pins the value: it is never reused in place. NULL on error. */
FX_API const void *fx_data(fx_array *x);
/* Refills dst with src's values (same shape; converted to dst's type): dst's handle gets a new
 * value, on the device where it is. That is a copy, so src may be dst or a view of it, and later
 * changes of src do not show. Whoever has the same handle, a layer that is in a model twice for
 * example, sees the new value. Every other array keeps the old one: what was computed from dst,
 * views of dst (fx_transpose, fx_permute, fx_reshape, fx_slice), and, when dst is a view itself,
 * the array that it is a view of. Such a view and its array are no longer tied (optim.h): each is
 * a parameter of its own. What was computed from dst before, its views too, has no gradient with
 * respect to dst any more: asking for one is refused (FX_STATUS_STATE), so make views anew, or give
 * them values of their own. fx_loadmodel and fx_update keep ties. */
FX_API fx_status fx_copy_into(fx_array *dst, fx_array *src);
/* The same value on another device (NULL: the CPU), differentiable; the same object when it is
 * already there. A value that is evaluated, or has no past, is copied at once, another one when it
 * is needed. */
FX_API fx_array *fx_array_to(fx_device *device, fx_array *x);

FXI_END_C
#endif
