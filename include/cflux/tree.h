/* cflux/tree.h: objects, their type descriptors, and the one walk over them.
 *
 * Arrays, layers, tuples and the user's own structs are objects: a descriptor says which fields are
 * children (arrays or objects), numbers or functions. One walk over the descriptor serves maps,
 * gradients, optimiser state, counting, printing and moves. Identity is kept: what is reached twice
 * is visited once and stays shared in the result.
 */
#ifndef CFLUX_TREE_H
#define CFLUX_TREE_H

#include <cflux/array.h>

FXI_BEGIN_C

typedef enum fx_field_kind {
    FX_FIELD_CHILD = 0, /* fx_array *, or any object pointer; NULL allowed */
    FX_FIELD_LIST,      /* fx_list: a counted list of children, perhaps named */
    FX_FIELD_SHARED,    /* an object that walks pass by: activation functions, constants */
    FX_FIELD_NUMBER,    /* double */
    FX_FIELD_INTEGER,   /* int64_t */
    FX_FIELD_FLAG,      /* bool */
    FX_FIELD_DIMS       /* fx_dims */
} fx_field_kind;

typedef struct fx_field {
    const char *name;
    size_t offset;
    fx_field_kind kind;
    bool frozen; /* a child that optimisers do not see (running statistics) */
} fx_field;

/* A counted list of children inside a struct; memory owned by the object. names may be NULL. */
typedef struct fx_list {
    int64_t n;
    void **items;
    char **names;
} fx_list;

/* A growing piece of text, for describe functions. */
typedef struct fx_text fx_text;
FX_API void fx_text_add(fx_text *text, const char *format, ...) FXI_PRINTF(2, 3);

struct fx_type {
    size_t fxi_size;  /* sizeof(fx_type) */
    const char *name; /* as Flux prints it: "Dense" */
    size_t size;      /* sizeof of the struct */
    const fx_field *fields;
    int nfields;
    /* y = self(args…); NULL when the object is not a layer. Returns an object owned by the scope.
     */
    void *(*forward)(void *self, int n, void *const *args);
    /* Writes the one-line form, "Dense(10 => 5, relu; bias=false)"; NULL, or a sequence:
     * Name(fields…). */
    void (*describe)(const void *self, fx_text *text);
    void (*finish)(void *self); /* extra clean-up before the fields are released; usually NULL */
    void *error; /* static storage of `size` bytes: what constructors return when memory is out */
    unsigned flags;
    /* The struct's own size in Julia, for byte counts as Flux prints them: 8 for each array, its
     * numbers, flags and tuples of numbers, padding. 0: a struct of untyped fields, 8 bytes each.
     */
    int64_t layout_bytes;
};
enum {
    FX_TYPE_ONE_LINE = 1, /* always printed on one line (Flux's :noexpand) */
    FX_TYPE_SEQUENCE = 2, /* children of its list are printed as its own lines (Chain) */
    FX_TYPE_FUNCTION = 4, /* a function object: a leaf of every walk */
    FX_TYPE_TUPLE = 8,
    FX_TYPE_LEAF = 16, /* opaque to walks */
    FX_TYPE_MUTABLE =
        32 /* a mutable struct in Flux (BatchNorm, Dropout): containers hold a pointer to it */
};

/* Makes an object of the type from `init`, a struct of type->size bytes whose head is ignored:
 * children are retained, lists copied. Owned by the scope; on failure the type's error object. */
FX_API void *fxi_new(const fx_type *type, const void *init);
/* The error object of a type, all of whose arrays are error arrays. */
FX_API void *fxi_error_object(const fx_type *type);
FX_API const fx_type *fx_type_of(const void *object);
/* True when object is of that type; NULL and error arrays are not. */
FX_API bool fx_is(const void *object, const fx_type *type);
FX_API bool fx_is_array(const void *object);

/* FX_FUNCTOR(T, fields…) declares how walks see the struct T: the named fields are its children
 * (@functor T); a field not named is shared with the original. FX_LAYER(T, forward, fields…) also
 * names its forward function, void *forward(void *self, int n, void *const *args), so that fx_call
 * and fx_chain take it. Both go after the struct, at file level. The struct's first member is
 * fx_object base. */
#define FXI_FIELD_(T, f) {#f, offsetof(T, f), FX_FIELD_CHILD, false},
#define FXI_FE0(T)
#define FXI_FE1(T, a)                             FXI_FIELD_(T, a)
#define FXI_FE2(T, a, ...)                        FXI_FIELD_(T, a) FXI_FE1(T, __VA_ARGS__)
#define FXI_FE3(T, a, ...)                        FXI_FIELD_(T, a) FXI_FE2(T, __VA_ARGS__)
#define FXI_FE4(T, a, ...)                        FXI_FIELD_(T, a) FXI_FE3(T, __VA_ARGS__)
#define FXI_FE5(T, a, ...)                        FXI_FIELD_(T, a) FXI_FE4(T, __VA_ARGS__)
#define FXI_FE6(T, a, ...)                        FXI_FIELD_(T, a) FXI_FE5(T, __VA_ARGS__)
#define FXI_FE7(T, a, ...)                        FXI_FIELD_(T, a) FXI_FE6(T, __VA_ARGS__)
#define FXI_FE8(T, a, ...)                        FXI_FIELD_(T, a) FXI_FE7(T, __VA_ARGS__)
#define FXI_PICK9(a, b, c, d, e, f, g, h, n, ...) n
#define FXI_FIELDS_(T, ...)                                                                        \
    FXI_PICK9(__VA_ARGS__, FXI_FE8, FXI_FE7, FXI_FE6, FXI_FE5, FXI_FE4, FXI_FE3, FXI_FE2, FXI_FE1, \
              0)                                                                                   \
    (T, __VA_ARGS__)
#define FXI_TYPE_(T, fwd, ...)                                                                     \
    static inline const fx_type *fxi_type_##T(void)                                                \
    {                                                                                              \
        static const fx_field fields[] = {FXI_FIELDS_(T, __VA_ARGS__)};                            \
        static T error;                                                                            \
        static const fx_type type = {sizeof(fx_type),                                              \
                                     #T,                                                           \
                                     sizeof(T),                                                    \
                                     fields,                                                       \
                                     (int)(sizeof(fields) / sizeof(fields[0])),                    \
                                     fwd,                                                          \
                                     NULL,                                                         \
                                     NULL,                                                         \
                                     &error,                                                       \
                                     0,                                                            \
                                     0};                                                           \
        return &type;                                                                              \
    }                                                                                              \
    struct fxi_eat_semicolon_##T
#define FX_FUNCTOR(T, ...)        FXI_TYPE_(T, NULL, __VA_ARGS__)
#define FX_LAYER(T, forward, ...) FXI_TYPE_(T, forward, __VA_ARGS__)
#ifndef __cplusplus
/* fx_new(ActorCritic, .actor = fx_ones(2, 2), …): an object of a declared type. */
#define fx_new(T, ...) ((T *)fxi_new(fxi_type_##T(), &(const T){.base = {0}, __VA_ARGS__}))
#else
#define fx_new(T, value) (static_cast<T *>(fxi_new(fxi_type_##T(), &(value))))
#endif

/* ---- tuples and lists ------------------------------------------------------------------------ */
typedef struct fx_tuple_object {
    fx_object base;
    fx_list items;
} fx_tuple_object;
FX_API void *fxi_tuple(int n, void *const *items);
FX_API void *fxi_named_tuple(int n, const char *const *names, void *const *items);
FX_API int64_t fx_count(const void *container);       /* children of a tuple, list or layer */
FX_API void *fx_child(const void *object, int64_t i); /* borrowed; error array when out of range */
FX_API const char *fx_child_name(const void *object, int64_t i); /* "" when it has none */
FX_API void *fx_child_named(const void *object, const char *name);
FX_API void *fxi_named_pairs(int n, const void *const *names_and_objects);
FXI_END_C
#ifdef __cplusplus
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
#else
#define FXI_OBJECTS(...)                                                                           \
    (int)(sizeof((void *[]){NULL, __VA_ARGS__}) / sizeof(void *)) - 1,                             \
        (void *const[]){NULL, __VA_ARGS__} + 1
/* fx_tuple(x, y) */
#define fx_tuple(...)       fxi_tuple(FXI_OBJECTS(__VA_ARGS__))
/* fx_named_tuple("x", X, "y", Y): names and objects alternate. */
#define fx_named_tuple(...) fxi_named_pairs(FXI_PAIRS(__VA_ARGS__))
#define FXI_PAIRS(...)                                                                             \
    (int)(sizeof((const void *[]){NULL, __VA_ARGS__}) / sizeof(void *)) - 1,                       \
        (const void *const[]){NULL, __VA_ARGS__} + 1
#endif
FXI_BEGIN_C

/* ---- functions as objects -------------------------------------------------------------------- */
typedef struct fx_function {
    fx_object base;
    fx_array *(*apply)(fx_array *x);
    const char *name; /* as Flux prints it: "relu", "flatten" */
} fx_function;
/* FX_RELU, FX_TANH, … : activations and other functions as objects, for layers and chains. */
/* clang-format off */
#define FXI_FUNCTIONS(X)                                                                           \
    X(IDENTITY, identity) X(SIGMOID, sigmoid) X(HARDSIGMOID, hardsigmoid)                          \
    X(LOGSIGMOID, logsigmoid) X(TANH, tanh) X(HARDTANH, hardtanh)                                  \
    X(RELU, relu) X(RELU6, relu6) X(LEAKYRELU, leakyrelu)                                          \
    X(RRELU, rrelu) X(ELU, elu) X(CELU, celu)                                                      \
    X(SELU, selu) X(GELU, gelu) X(GELU_SIGMOID, gelu_sigmoid)                                      \
    X(GELU_ERF, gelu_erf) X(SWISH, swish) X(HARDSWISH, hardswish)                                  \
    X(LISHT, lisht) X(SOFTPLUS, softplus) X(SOFTSIGN, softsign)                                    \
    X(LOGCOSH, logcosh) X(MISH, mish) X(TANHSHRINK, tanhshrink)                                    \
    X(SOFTSHRINK, softshrink) X(TRELU, trelu) X(EXP, exp)                                          \
    X(SOFTMAX, softmax) X(LOGSOFTMAX, logsoftmax) X(FLATTEN, flatten)
/* clang-format on */
#define FXI_FUNCTION_DECL(NAME, name) extern FX_API fx_function fxi_function_##name;
FXI_FUNCTIONS(FXI_FUNCTION_DECL)
#define FX_IDENTITY     (&fxi_function_identity)
#define FX_SIGMOID      (&fxi_function_sigmoid)
#define FX_HARDSIGMOID  (&fxi_function_hardsigmoid)
#define FX_LOGSIGMOID   (&fxi_function_logsigmoid)
#define FX_TANH         (&fxi_function_tanh)
#define FX_HARDTANH     (&fxi_function_hardtanh)
#define FX_RELU         (&fxi_function_relu)
#define FX_RELU6        (&fxi_function_relu6)
#define FX_LEAKYRELU    (&fxi_function_leakyrelu)
#define FX_RRELU        (&fxi_function_rrelu)
#define FX_ELU          (&fxi_function_elu)
#define FX_CELU         (&fxi_function_celu)
#define FX_SELU         (&fxi_function_selu)
#define FX_GELU         (&fxi_function_gelu)
#define FX_GELU_SIGMOID (&fxi_function_gelu_sigmoid)
#define FX_GELU_ERF     (&fxi_function_gelu_erf)
#define FX_SWISH        (&fxi_function_swish)
#define FX_HARDSWISH    (&fxi_function_hardswish)
#define FX_LISHT        (&fxi_function_lisht)
#define FX_SOFTPLUS     (&fxi_function_softplus)
#define FX_SOFTSIGN     (&fxi_function_softsign)
#define FX_LOGCOSH      (&fxi_function_logcosh)
#define FX_MISH         (&fxi_function_mish)
#define FX_TANHSHRINK   (&fxi_function_tanhshrink)
#define FX_SOFTSHRINK   (&fxi_function_softshrink)
#define FX_TRELU        (&fxi_function_trelu)
#define FX_EXP          (&fxi_function_exp)
#define FX_SOFTMAX      (&fxi_function_softmax)
#define FX_LOGSOFTMAX   (&fxi_function_logsoftmax)
#define FX_FLATTEN      (&fxi_function_flatten)
/* Any C function of one array as a layer: fx_function_new("halve", halve). Owned by the scope; the
 * name must outlive it. */
FX_API fx_function *fx_function_new(const char *name, fx_array *(*apply)(fx_array *x));

/* ---- the walk -------------------------------------------------------------------------------- */
/* A copy of x's structure in which every array is replaced by f(array); what is not a child is
 * shared with the original; an array reached twice is mapped once and stays shared. If every array
 * maps to itself the result is x. fx_mapleaves is the older name. */
typedef fx_array *(*fx_map_fn)(fx_array *x);
FX_API void *fxi_fmap(fx_map_fn f, void *x);
typedef fx_array *(*fx_map_user_fn)(fx_array *x, void *user);
FX_API void *fx_fmap_with(fx_map_user_fn f, void *user, void *x);
#ifdef __cplusplus
}
template <class T> inline T *fx_fmap(fx_map_fn f, T *x)
{
    return static_cast<T *>(fxi_fmap(f, x));
}
template <class T> inline T *fx_mapleaves(fx_map_fn f, T *x)
{
    return fx_fmap(f, x);
}
extern "C" {
#else
#define fx_fmap(f, x)      ((__typeof__(x))fxi_fmap((f), (x)))
#define fx_mapleaves(f, x) fx_fmap((f), (x))
#endif
/* Calls visit for every distinct array of x, depth first in field order; `path` is
 * "layers.0.weight". */
typedef void (*fx_visit_fn)(fx_array *x, const char *path, bool trainable, void *user);
FX_API void fx_visit(void *x, fx_visit_fn visit, void *user);
/* The distinct trainable arrays of a model (floating point, not frozen) as a tuple, in walk order.
 */
FX_API void *fx_trainables(void *model);
/* Number of trainable elements; of all elements. */
FX_API int64_t fx_parameter_count(void *model);
/* A model as it is now: new handles for the same values, which later updates do not touch and never
 * reuse in place: what readers in other threads hold. */
FX_API void *fxi_snapshot(void *model);
#ifdef __cplusplus
}
template <class T> inline T *fx_snapshot(T *x)
{
    return static_cast<T *>(fxi_snapshot(x));
}
extern "C" {
#else
#define fx_snapshot(x) ((__typeof__(x))fxi_snapshot(x))
#endif

/* y = model(x…): calls a layer or function object. Everything but a layer is an error that names
 * it. */
FX_API void *fxi_call(void *model, int n, void *const *args);
#ifdef __cplusplus
}
template <class... A> inline fx_array *fx_call(void *model, A *...a)
{
    void *const args[] = {nullptr, static_cast<void *>(a)...};
    return static_cast<fx_array *>(fxi_call(model, static_cast<int>(sizeof...(a)), args + 1));
}
extern "C" {
#else
#define fx_call(model, ...) ((fx_array *)fxi_call((model), FXI_OBJECTS(__VA_ARGS__)))
#endif

/* ---- printing -------------------------------------------------------------------------------- */
/* Arrays as Julia shows them ("3×2 Matrix{Float32}:" and aligned columns), models in Flux's
 * notation and columns with true byte counts. fx_show prints to stdout with a newline at the
 * end. */
FX_API void fx_show(void *object);
FX_API void fx_show_to(FILE *out, void *object);
/* The same text, without the last newline, into dst (always terminated); returns its full length.
 */
FX_API size_t fx_show_text(void *object, char *dst, size_t capacity);
/* The one-line form: "Dense(2 => 3, relu)", "3×2 Matrix{Float32}". */
FX_API size_t fx_summary(void *object, char *dst, size_t capacity);

/* How the pending arrays of an object (an array, a model, a tuple) would be computed: one line a
 * step, with what was fused, sizes, and the arithmetic of contractions; a summary before them.
 * Nothing is computed. fx_plan_show adds the bytes each step moves, and lists what the inputs x0,
 * x1, … and literals c0, … are. fx_plan_text writes to dst (always terminated) and returns the full
 * length. */
FX_API void fx_plan_show(FILE *out, void *object);
FX_API size_t fx_plan_text(void *object, char *dst, size_t capacity);

FXI_END_C
#endif
