/* cflux/array.h: arrays, scopes, ownership, creation, reading.
 *
 * An fx_array is a handle to an immutable value that may still have to be computed. An operation
 * checks shapes, element types and devices immediately and adds a node to a graph; the computation
 * runs when a value is read or an update needs it. The first axis is contiguous (column-major): a C
 * array img[N][C][H][W] is the array W×H×C×N with the same bytes. Axes and indices count from 0.
 *
 * Ownership: the innermost open scope of the calling thread owns every object that a function
 * returns, and releases it when the scope ends. Outside of all scopes the thread's root scope owns
 * it until the thread ends. */
#ifndef CFLUX_ARRAY_H
#define CFLUX_ARRAY_H

#include <cflux/base.h>

FXI_BEGIN_C

/* Element types. Julia's names are Float32, Float64, Int32, Int64, UInt8, Bool, Float16,
 * BFloat16. */
typedef enum fx_dtype {
    FX_DTYPE_F32 = 0, /* the default element type */
    FX_DTYPE_F64,
    FX_DTYPE_I32,
    FX_DTYPE_I64,
    FX_DTYPE_U8,
    FX_DTYPE_BOOL,
    FX_DTYPE_F16,  /* stored in 16 bits; arithmetic is done in Float32 */
    FX_DTYPE_BF16, /* stored in 16 bits; arithmetic is done in Float32 */
    FX_DTYPE_COUNT /* number of element types */
} fx_dtype;

/* Returns Julia's name of an element type: "Float32", "Bool", …; "?" if `dtype` is not an element
 * type. Static storage. */
FX_API const char *fx_dtype_name(fx_dtype dtype);
FX_API size_t fx_dtype_size(fx_dtype dtype); /* bytes per element; 0 if it is not an element type */

/* Element type of an operation on two arrays, by Julia's promotion: Int64 with Float32 gives
 * Float32, Int32 with Int64 gives Int64, Bool with another type gives the other. Float16 with
 * BFloat16 gives Float32. */
FX_API fx_dtype fx_dtype_promote(fx_dtype a, fx_dtype b);

typedef struct fx_type fx_type;     /* describes a type of objects: tree.h */
typedef struct fx_device fx_device; /* holds and computes values: device.h */

/* First member of every object: arrays, layers, tuples, structs of programs. All fields are
 * private. */
typedef struct fx_object {
    const fx_type *type;
    int64_t refs;
    struct fx_object *fxi_prev, *fxi_next;
    struct fxi_scope *fxi_scope;
} fx_object;

/* Opaque handle to a value: elements of one type along 0 to FX_MAX_DIMS axes, on one device. */
typedef struct fx_array fx_array;

/* A list of n sizes v[0] … v[n−1]: FX_DIMS(5, 5). */
typedef struct fx_dims {
    int64_t n;
    int64_t v[2 * FX_MAX_DIMS];
} fx_dims;
/* Defaults of options that are lists of sizes: an empty list, 1, and 0. */
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
/* A list of up to 8 numbers: FX_FRACTIONS(0.7, 0.15). */
typedef struct fx_fractions {
    int64_t n;
    double v[8];
} fx_fractions;
#define FXI_FRACTIONS_NONE                                                                         \
    {                                                                                              \
        0,                                                                                         \
        {                                                                                          \
            0                                                                                      \
        }                                                                                          \
    }
/* A list of 1 to 8 numbers, for options such as .at of fx_splitobs and .factors of fx_resize. */
#define FX_FRACTIONS(...)                                                                          \
    ((fx_fractions){(int64_t)(sizeof((const double[]){__VA_ARGS__}) / sizeof(double)),             \
                    {__VA_ARGS__}})

/* Two bits that are not axes. FXI_BIT_ALL: all axes are in the set. FXI_BIT_OUTSIDE: an axis
 * outside 0 … 28 was requested. */
typedef enum fxi_axis_bits { FXI_BIT_ALL = 1 << 30, FXI_BIT_OUTSIDE = 1 << 29 } fxi_axis_bits;
/* A set of axes: FX_AXES(0, 2) has the first and the third axis, FX_ALL has all. The bits are
 * private. A plain number does not compile as a set (.dims = 2). */
typedef struct fx_axes {
    unsigned bits;
    FXI_CXX(fx_axes() : bits(0){})
    FXI_CXX(fx_axes(fxi_axis_bits set) : bits(static_cast<unsigned>(set)){})
} fx_axes;
/* Returns the set of the n axes in a list. An axis that the array does not have is reported by the
 * function that receives the set. */
static inline fx_axes fx_axes_of(int n, const int64_t *axes)
{
    fx_axes set;
    set.bits = 0;
    for (int i = 0; i < n; i++)
        set.bits |=
            axes[i] >= 0 && axes[i] < 29 ? 1u << axes[i] : FXI_TO(unsigned, FXI_BIT_OUTSIDE);
    return set;
}
#define FXI_AXES_ALL                                                                               \
    {                                                                                              \
        FXI_BIT_ALL                                                                                \
    }
#define FXI_AXES_OF(axis)                                                                          \
    {                                                                                              \
        FXI_TO(fxi_axis_bits, 1u << (axis))                                                        \
    }
/* FX_ALL: all axes of an array. FX_AXES(0, 2): the listed axes. */
#define FX_ALL ((fx_axes)FXI_AXES_ALL)
#define FX_AXES(...)                                                                               \
    fx_axes_of((int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),                    \
               (const int64_t[]){__VA_ARGS__})
/* The axes whose bits are set in `mask`; for the library and its tests. */
#define FXI_AXES(mask) ((fx_axes){mask})

/* ---- scopes ---------------------------------------------------------------------------------- */
enum {
    FXI_SCOPE_INHERIT = 0,
    FXI_SCOPE_STEP = 1,
    FXI_SCOPE_TEST = 2,
    FXI_SCOPE_QUIET = 3,
    FXI_SCOPE_RECORD = 4,
    FXI_SCOPE_RECORD_INSIDE = 5 /* a recorded training step of the library: fx_train */
};
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
/* For library code: a scope for intermediate results. Error records keep the location of the
 * caller's scope, and requests by fx_set, fx_want and fx_stage move to the caller's scope. */
#define FXI_SCOPE FXI_OPEN_AT(FXI_SCOPE_QUIET, NULL, 0)

/* Open a scope that ends with the enclosing C block. Write the macro as the first statement of a {}
 * block. The scope closes on every exit from the block, including break and return. If a longjmp
 * leaves the block, the scope closes together with the enclosing one.
 *   FX_SCOPE;   keeps the mode of the enclosing scope
 *   FX_STEP;    a training step: dropout is active, batch norm uses the statistics of the batch
 *               and updates the running ones
 *   FX_TEST;    inference
 * The mode belongs to the thread; a thread starts in inference mode. */
#define FX_SCOPE FXI_OPEN(FXI_SCOPE_INHERIT)
#define FX_STEP  FXI_OPEN(FXI_SCOPE_STEP)
#define FX_TEST  FXI_OPEN(FXI_SCOPE_TEST)

/* Write FX_RECORD; in place of FX_STEP; to record a training step and repeat it, which is faster,
 * above all for small models. The first training step at a line of the program is built as usual
 * and recorded. The next training steps at this line repeat the recording. The results have the
 * same bits as with FX_STEP.
 *
 * Each call is compared with the call at the same position in the previous training step. If
 * the operation, the operands, the attributes and the sizes are equal, the call returns its
 * recorded result, and nothing is built; the update runs the recorded plan with the new data and
 * numbers. From the first call that differs, the training step is built as usual and recorded
 * again. Control flow, sizes, data, learning rates and random numbers may therefore change.
 *
 * Each thread keeps its own recordings, for the 8 locations that it used most recently. An
 * FX_RECORD inside another FX_RECORD acts as FX_STEP. Training steps with moves between devices or
 * with a parameter that is a view of another, such as its transpose, are not recorded. fx_reclaim
 * frees the recordings of the calling thread. */
#define FX_RECORD FXI_OPEN(FXI_SCOPE_RECORD)

/* Returns true in training mode: inside FX_STEP or FX_RECORD. Layers that behave differently in
 * training call it. Where these headers say "inside FX_STEP", FX_RECORD has the same effect. */
FX_API bool fx_training(void);

/* fx_keep(x) moves an object from the innermost scope to the enclosing one, without computing it,
 * and returns it: `return fx_keep(y);` ends a function that opened a scope. An object that no scope
 * owns, such as an item that only its tuple holds, or an array of a batch (data.h), then also
 * belongs to the enclosing scope, and outlives its holder. Objects of other scopes, NULL and error
 * objects are returned unchanged. */
FX_API void *fxi_keep(void *object);
/* fx_retain(x) adds a reference that keeps x alive after its scope ends, and returns x;
 * fx_release(x) removes one. fx_release without an earlier fx_retain removes the scope's reference,
 * so the object is freed before the scope ends unless another object or variable holds it. NULL and
 * error objects are ignored. Any thread may call them for an object that it can use
 * (docs/limits.md), but only the scope's thread may remove the scope's reference. */
FX_API void *fxi_retain(void *object);
FX_API void fx_release(void *object);
/* fx_set(&variable, x) stores x in a variable or struct field: retains x and releases the object
 * that was there. The variable must be NULL before its first fx_set. Use it for recurrent state and
 * running totals. The value of an array is computed with the next fx_update, or when the training
 * step ends; outside of a training step, when the scope ends. It is a constant for later gradients.
 * The arrays of a tuple or of another object are not computed: store each in a variable of its own.
 * Plain C assignment does not change ownership. fx_set(&variable, NULL) empties the variable; an
 * error object is stored too. */
FX_API void fxi_set(void *target, void *object);

#define fx_keep(x)        (FXI_HERE, (__typeof__(x))fxi_keep(x))
#define fx_retain(x)      (FXI_HERE, (__typeof__(x))fxi_retain(x))
#define fx_set(target, x) (((void)sizeof(*(target) = (x))), FXI_HERE, fxi_set((target), (x)))

/* Layer state, e.g. running statistics. fx_stage requests that the array `state` gets this value.
 * The next update within the training step, or the end of the training step, computes it and
 * rebinds the handle; outside of a training step the end of the scope does. The handle also gets
 * the shape and element type of `value`, which are not checked. If the computation fails, `state`
 * keeps its value. fx_staged returns the value staged so far, or `state` if there is none. NULL is
 * FX_STATUS_ARGUMENT in both functions; fx_staged then returns an error array.
 *
 * fx_stage returns FX_OK if the request was made, or if there is nothing to do because the call
 * computes only shapes. Otherwise it changes nothing and returns the status of the error array
 * among its arguments, or FX_STATUS_MEMORY. A layer should then return an error array
 * (fx_error_array), so that the update fails too and no parameter changes without its state. */
FX_API fx_status fx_stage(fx_array *state, fx_array *value);
FX_API fx_array *fx_staged(fx_array *state);

/* Returns the error array of a status (not FX_OK), for code that extends cflux. It is shared and
 * never freed. */
FX_API fx_array *fx_error_array(fx_status status);

/* ---- properties of an array ------------------------------------------------------------------ */
/* These functions record no error for NULL and error arrays. Except in fx_is_error, NULL and
 * objects that are not arrays count as error arrays with the status FX_STATUS_ARGUMENT. */
/* Number of axes; 0 for a scalar and for an error array. */
FX_API int fx_ndims(const fx_array *x);
/* Size along an axis; 1 for an axis that x does not have, as in Julia; 0 for an error array. */
FX_API int64_t fx_size(const fx_array *x, int axis);
FX_API int64_t fx_length(const fx_array *x);  /* number of elements, 0 for an error array */
FX_API fx_dtype fx_eltype(const fx_array *x); /* element type, FX_DTYPE_F32 for an error array */
/* Device that holds or will compute the value. Values made only of numbers (fx_zeros, fx_rand, …)
 * belong to no device, and combine with arrays of any device. For these values the result is the
 * device that has computed them, the CPU before; for error arrays it is the CPU. */
FX_API fx_device *fx_array_device(const fx_array *x);
FX_API bool fx_is_error(const void *object); /* true for an error object and for NULL */
/* Status of the error in an error array, otherwise FX_OK. */
FX_API fx_status fx_array_status(const fx_array *x);
/* Returns true if the value has been computed: a read then only copies it. */
FX_API bool fx_is_evaluated(const fx_array *x);

/* ---- creation -------------------------------------------------------------------------------- */
/* Creation functions take the sizes as their last arguments: fx_zeros(3, 4) is 3×4, fx_zeros() is a
 * scalar (0-d). A negative size, more than FX_MAX_DIMS sizes, an overflow of the number of bytes
 * and an unknown element type are FX_STATUS_ARGUMENT. */
#define FXI_LIST(...)                                                                              \
    (FXI_HERE, (int)(sizeof((int64_t[]){0, __VA_ARGS__}) / sizeof(int64_t)) - 1),                  \
        (const int64_t[]){0, __VA_ARGS__} + 1

/* fx_full(value, 3, 4): all elements equal to `value`; fx_zeros: 0; fx_ones: 1. They are Float32;
 * fx_full_dtype has the given element type, to which it converts `value` as fx_cast does. Memory is
 * allocated when the value is needed. */
FX_API fx_array *fxi_full(fx_dtype dtype, double value, int ndims, const int64_t *sizes);
/* Zeros with the shape, element type and device of x. */
FX_API fx_array *fx_zeros_like(const fx_array *x);
/* fx_rand(3, 4): uniform in [0, 1). fx_randn(3, 4): standard normal (Box and Muller, 1958). They
 * are Float32; fx_rand_dtype and fx_randn_dtype take Float32, Float64, Float16 or BFloat16, and
 * other types are FX_STATUS_DTYPE. The generator is Philox4x32-10 (Salmon et al., 2011), with the
 * seed of the thread's stream (fx_seed) and a new counter for every call. All backends give the
 * same numbers. */
FX_API fx_array *fxi_rand(fx_dtype dtype, int ndims, const int64_t *sizes);
FX_API fx_array *fxi_randn(fx_dtype dtype, int ndims, const int64_t *sizes);
/* Vector x[i] = start + i·step for 0 ≤ i < n. For integer types start and step are truncated; Bool
 * gives Int64. FX_STATUS_ARGUMENT if n is negative. */
FX_API fx_array *fx_range_dtype(fx_dtype dtype, double start, double step, int64_t n);
FX_API fx_array *fxi_vector(int64_t n, const double *values); /* see fx_vector */
/* fx_from(dtype, data, 3, 4): copies Π sizes elements of type dtype from C memory, column-major.
 * FX_STATUS_ARGUMENT if data is NULL and the array is not empty. */
FX_API fx_array *fxi_from(fx_dtype dtype, const void *data, int ndims, const int64_t *sizes);
/* fx_borrow(dtype, data, release, user, 3, 4): an array that reads C memory in place. When the last
 * value that reads the memory is freed, cflux calls release(data, user), which may be NULL. Until
 * then the memory must stay valid and unchanged. cflux never writes to it. FX_STATUS_ARGUMENT if
 * data is NULL (and the array is not empty) or not aligned for dtype. If the call fails, release is
 * called immediately. */
typedef void (*fx_release_fn)(void *data, void *user);
FX_API fx_array *fxi_borrow(fx_dtype dtype, const void *data, fx_release_fn release, void *user,
                            int ndims, const int64_t *sizes);
/* A 0-d Float32 array of a number. As an argument of an operation it counts as a real number, not
 * as an array: it does not widen Float16, and turns integer arrays into Float32 (ops.h). */
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
/* Float32 vector of the listed numbers: fx_vector(1, 2, 3). */
#define fx_vector(...)                                                                             \
    fxi_vector((FXI_HERE, (int64_t)(sizeof((const double[]){__VA_ARGS__}) / sizeof(double))),      \
               (const double[]){__VA_ARGS__})
/* FX_DIMS(5, 5): a list of sizes for options. More than 16 numbers do not compile; the compiler's
 * message then contains the name of the macro below. (clang does not accept a static assertion here
 * because the numbers need not be constants.) */
#define FX_DIMS(...)                                                                               \
    ((fx_dims){.n = FX_DIMS_TAKES_AT_MOST_16_NUMBERS(                                              \
                   sizeof((int64_t[]){0, __VA_ARGS__}) / sizeof(int64_t) - 1),                     \
               .v = {__VA_ARGS__}})
#define FX_DIMS_TAKES_AT_MOST_16_NUMBERS(n)                                                        \
    ((int64_t)(n) + 0 * (int64_t)sizeof(char[(n) <= 2 * FX_MAX_DIMS ? 1 : -1]))
/* The arguments of a constructor whose first option is a list of sizes. FXI_SIZES_FIRST accepts a
 * number n for FX_DIMS(n). FXI_DIMS_FIRST accepts a list only; for a number the compiler's message
 * contains the name of the function fxi_sizes_are_written_as_FX_DIMS. */
static inline fx_dims fxi_dims_themselves(fx_dims sizes)
{
    return sizes;
}
static inline fx_dims fxi_dims_of_number(int64_t n)
{
    fx_dims sizes = FXI_DIMS_NONE;
    sizes.n = 1;
    sizes.v[0] = n;
    return sizes;
}
static inline fx_dims fxi_sizes_are_written_as_FX_DIMS(fx_dims sizes)
{
    return sizes;
}
#define FXI_SIZES_FIRST(...) FXI_CONVERT_FIRST_(fxi_dims_of_number, __VA_ARGS__, )
#define FXI_DIMS_FIRST(...)  FXI_CONVERT_FIRST_(fxi_sizes_are_written_as_FX_DIMS, __VA_ARGS__, )
#define FXI_CONVERT_FIRST_(other, first, ...)                                                      \
    _Generic((first), fx_dims : fxi_dims_themselves, default : other)(first), __VA_ARGS__
/* FX_FROM_C(W): an array that reads a C array of 1 to 4 dimensions in place, with the order of the
 * axes reversed: float W[2][5] is the 5×2 array with the same bytes. The C array must stay valid
 * and unchanged until the last value that reads it is freed. FXI_SUB is the first sub-array, or the
 * argument itself if its elements are numbers. */
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
/* fx_range_dtype in Float32: fx_range(0, 0.5, 3) is [0, 0.5, 1]. */
#define fx_range(start, step, n) fx_range_dtype(FX_DTYPE_F32, (start), (step), (n))

/* One-hot encoding without a check: y[c, j…] = (labels[j…] == c). labels: integers in 0 …
 * nclasses−1, any shape; result: Bool, nclasses × size(labels)…. A label outside this range gives a
 * column of false. Floating-point labels are FX_STATUS_DTYPE; a negative nclasses, and labels with
 * FX_MAX_DIMS axes, are FX_STATUS_ARGUMENT. */
FX_API fx_array *fx_onehot(fx_array *labels, int64_t nclasses);
/* fx_onehot with a check: evaluates labels and returns an error array ("Value 9 is not in labels 0
 * … 2", FX_STATUS_ARGUMENT) if a label is outside 0 … nclasses−1. Flux.onehotbatch(labels,
 * 0:nclasses-1). */
FX_API fx_array *fx_onehotbatch(fx_array *labels, int64_t nclasses);
/* Index of the first largest element of every column: fx_argmax along axis 0, with axis 0 removed.
 * Int64, from 0; the inverse of fx_onehot. Flux.onecold. */
FX_API fx_array *fx_onecold(fx_array *y);

/* ---- evaluation and reading ------------------------------------------------------------------ */
/* A read computes the value if needed; the array keeps it. Gradients may still flow through a value
 * that has been read. Pending values of other threads are FX_STATUS_STATE, NULL is
 * FX_STATUS_ARGUMENT; for an error array the read returns its status without a new record. */

/* Computes every array of an object (an array, model, tuple, …) in one plan. Returns the status of
 * the first failure, also if it is that of an error array in the object; FX_STATUS_ARGUMENT for
 * NULL. */
FX_API fx_status fx_eval(void *object);
/* Requests x: the next fx_update, or the end of the training step, also computes it, so that a
 * later read needs no second run. Outside of a training step the end of the scope computes it.
 * Returns x; ignores NULL and error arrays. */
FX_API fx_array *fx_want(fx_array *x);
/* Value of a one-element array as a double, which rounds integers beyond ±2^53. On failure: NaN and
 * an error record. */
FX_API double fx_item(fx_array *x);
/* fx_item with a status: stores the value of a one-element array in *out_value. The status shows
 * whether a NaN is the value or a failure. FX_STATUS_SHAPE if x does not have one element. On
 * failure *out_value is NaN. */
FX_API fx_status fx_item_get(fx_array *x, double *out_value);
/* Element at linear index i (column-major, from 0) as a double. On failure: NaN and an error
 * record, FX_STATUS_ARGUMENT if i is out of range. On a device with its own memory, every call
 * copies one element to the host: see fx_allowscalar. */
FX_API double fx_at(fx_array *x, int64_t i);
/* Copies all elements to dst, dense and column-major, in x's element type. `bytes` must be length ×
 * element size, otherwise FX_STATUS_SHAPE. */
FX_API fx_status fx_read_into(fx_array *x, void *dst, size_t bytes);
/* Copies all elements to dst, converted to `dtype` as by fx_cast. `count` must be the number of
 * elements, otherwise FX_STATUS_SHAPE. */
FX_API fx_status fx_read_as(fx_array *x, fx_dtype dtype, void *dst, int64_t count);
/* Computes x and returns a pointer to its dense elements in host memory, NULL on failure. Do not
 * free the memory or write to it. The pointer is valid until all arrays that use the value are
 * released or rebound. Later updates do not reuse the value's buffer. For a value on another
 * device, and for a view that is not dense, the first call makes a copy, and later calls return
 * this copy. */
FX_API const void *fx_data(fx_array *x);
/* Gives dst a copy of src's values, converted to dst's element type, on dst's device.
 * FX_STATUS_SHAPE if the sizes differ; dst is unchanged on failure. dst's handle is rebound to the
 * new value, so every model that holds this handle sees it. Other arrays keep the old value:
 * results computed from dst, views of dst (fx_transpose, fx_permute, fx_reshape, fx_slice), and the
 * array that dst is a view of.
 *
 * Afterwards a view and its array are no longer tied (tree.h), and results that were computed from
 * dst before have no gradient with respect to dst (FX_STATUS_STATE): build views and results again.
 * fx_loadmodel and fx_update keep ties. */
FX_API fx_status fx_copy_into(fx_array *dst, fx_array *src);
/* Returns x's value on another device (NULL: the CPU), or x itself if it is already there.
 * Differentiable: gradients return to x's device. An evaluated value is copied immediately, a
 * pending one when the result is needed. FX_STATUS_MEMORY if the device has no memory left. */
FX_API fx_array *fx_array_to(fx_device *device, fx_array *x);

FXI_END_C
#endif
