/* cflux/tree.h: objects, their types, and walks over them.
 *
 * Arrays, layers, tuples and structs of programs are objects. A type (fx_type) lists which fields
 * of a struct are children (arrays or objects), numbers or functions. All maps, gradients,
 * optimiser states, counts, printing and moves use one walk over these lists. An object that is
 * reached by several paths is visited once and stays shared in the result. An array is tied if
 * several paths of an object lead to it, or if the object also contains a view of it: transposed,
 * permuted, reshaped or sliced. */
#ifndef CFLUX_TREE_H
#define CFLUX_TREE_H

#include <cflux/array.h>

FXI_BEGIN_C

/* How walks and printing treat a field of a struct. */
typedef enum fx_field_kind {
    FX_FIELD_CHILD = 0, /* fx_array *, or any object pointer; NULL allowed */
    FX_FIELD_LIST,      /* fx_list: children, with or without names */
    FX_FIELD_SHARED,    /* an object that walks do not enter: an activation function, a constant */
    FX_FIELD_NUMBER,    /* double */
    FX_FIELD_INTEGER,   /* int64_t */
    FX_FIELD_FLAG,      /* bool */
    FX_FIELD_DIMS,      /* fx_dims */
    FX_FIELD_INT,       /* int */
    FX_FIELD_FLOAT,     /* float */
    FX_FIELD_STRING     /* const char *, must outlive the object; NULL allowed */
} fx_field_kind;

/* One field of a struct. */
typedef struct fx_field {
    const char *name;
    size_t offset;
    fx_field_kind kind;
    bool frozen; /* true: a child that optimisers ignore (running statistics) */
} fx_field;

/* A list of n children inside a struct; the object owns its memory. names may be NULL. */
typedef struct fx_list {
    int64_t n;
    void **items;
    char **names;
} fx_list;

/* Opaque: text under construction, for `describe` functions. fx_text_add appends formatted text. */
typedef struct fx_text fx_text;
FX_API void fx_text_add(fx_text *text, const char *format, ...) FXI_PRINTF(2, 3);

/* Type of an object. FX_LAYER and the other macros below define one. Zero and NULL members mean
 * none or the default. */
struct fx_type {
    size_t fxi_size;  /* sizeof(fx_type) */
    const char *name; /* printed name: "Dense" */
    size_t size;      /* sizeof the struct */
    const fx_field *fields;
    int nfields;
    /* Computes y = self(args…) and returns an object that the scope owns. NULL if the object is not
     * a layer. */
    void *(*forward)(void *self, int n, void *const *args);
    /* Writes the one-line form, "Dense(10 => 5, relu; bias=false)". NULL: Name(fields…). */
    void (*describe)(const void *self, fx_text *text);
    void (*finish)(void *self); /* called before the fields are released; usually NULL */
    void *error;    /* static storage of `size` bytes: returned by constructors on failure */
    unsigned flags; /* FX_TYPE_ONE_LINE, … */
    /* Size of the struct in Julia in bytes, for printed byte counts: 8 per array, plus its numbers,
     * flags and tuples of numbers, plus padding. 0: a struct of untyped fields, 8 bytes each. */
    int64_t layout_bytes;
    /* Names of the fields that optimisers use, "weight bias"; NULL: all that are not frozen. Moves,
     * maps, printing and files use every field. */
    const char *trainable;
    /* Called by maps on a copy with new children, to update values that depend on them. Returns the
     * copy or a replacement. NULL: nothing to update. */
    void *(*rebuild)(void *copy);
    /* Moves the object to a device, for objects that do more than move their children (a data
     * loader moves its batches when they are made). each(x, device) moves one array; with `each`
     * NULL arrays are not moved. This member is NULL if moving the children is enough. */
    void *(*move)(void *self, fx_device *device, fx_array *(*each)(fx_array *x, void *device));
    /* Options of a layer and its names in files (layer.h); NULL: none. Read it with fx_layer_of:
     * types of programs compiled with older headers do not have this member. */
    const struct fx_layer *layer;
};
/* Flags of a type, combined with |. */
enum {
    FX_TYPE_ONE_LINE = 1, /* always printed on one line (Flux's :noexpand) */
    FX_TYPE_SEQUENCE = 2, /* each child of its list is printed on its own lines (Chain) */
    FX_TYPE_FUNCTION = 4, /* a function: walks do not enter it */
    FX_TYPE_TUPLE = 8,    /* a tuple or a named tuple */
    FX_TYPE_LEAF = 16,    /* walks do not enter it */
    FX_TYPE_MUTABLE =
        32, /* a mutable struct in Flux (BatchNorm, Dropout): containers hold a pointer to it */
    FX_TYPE_WIDE = 64,     /* keeps its arrays in Float32 in 16-bit models (BatchNorm) */
    FX_TYPE_INTERNAL = 128 /* an internal object of the library; programs have no type for it */
};

/* Makes an object from `init`, a struct of type->size bytes whose first member is ignored. Retains
 * children and copies lists. The scope owns the object. On failure: the type's error object. */
FX_API void *fxi_new(const fx_type *type, const void *init);
/* Returns the error object of a type; its arrays are error arrays. Shared, never freed. */
FX_API void *fx_error_object(const fx_type *type);
FX_API const fx_type *fx_type_of(const void *object); /* type of an object; NULL for NULL */
/* Returns true if an object has this type; false for NULL. */
FX_API bool fx_is(const void *object, const fx_type *type);
FX_API bool fx_is_array(const void *object); /* true for arrays and error arrays */

/* clang-format off */
#define FXI_KIND_OF_(x)                                                                            \
    _Generic((x), fx_list: FX_FIELD_LIST, fx_dims: FX_FIELD_DIMS, double: FX_FIELD_NUMBER,         \
             float: FX_FIELD_FLOAT, int64_t: FX_FIELD_INTEGER, int: FX_FIELD_INT,                  \
             bool: FX_FIELD_FLAG, char *: FX_FIELD_STRING, const char *: FX_FIELD_STRING,          \
             default: FX_FIELD_CHILD)
/* clang-format on */
/* Kind of a field; does not compile if the field is neither a pointer nor one of these types. */
#define FXI_KIND_(T, f)                                                                            \
    ((fx_field_kind)((size_t)FXI_KIND_OF_(((T *)0)->f) *                                           \
                     sizeof(char[FXI_KIND_OF_(((T *)0)->f) != FX_FIELD_CHILD ||                    \
                                         sizeof(((T *)0)->f) == sizeof(void *)                     \
                                     ? 1                                                           \
                                     : -1])))
#define FXI_FIELD_(T, f)    {#f, offsetof(T, f), FXI_KIND_(T, f), false},
#define FXI_FE1(T, a)       FXI_FIELD_(T, a)
#define FXI_FE2(T, a, ...)  FXI_FIELD_(T, a) FXI_FE1(T, __VA_ARGS__)
#define FXI_FE3(T, a, ...)  FXI_FIELD_(T, a) FXI_FE2(T, __VA_ARGS__)
#define FXI_FE4(T, a, ...)  FXI_FIELD_(T, a) FXI_FE3(T, __VA_ARGS__)
#define FXI_FE5(T, a, ...)  FXI_FIELD_(T, a) FXI_FE4(T, __VA_ARGS__)
#define FXI_FE6(T, a, ...)  FXI_FIELD_(T, a) FXI_FE5(T, __VA_ARGS__)
#define FXI_FE7(T, a, ...)  FXI_FIELD_(T, a) FXI_FE6(T, __VA_ARGS__)
#define FXI_FE8(T, a, ...)  FXI_FIELD_(T, a) FXI_FE7(T, __VA_ARGS__)
#define FXI_FE9(T, a, ...)  FXI_FIELD_(T, a) FXI_FE8(T, __VA_ARGS__)
#define FXI_FE10(T, a, ...) FXI_FIELD_(T, a) FXI_FE9(T, __VA_ARGS__)
#define FXI_FE11(T, a, ...) FXI_FIELD_(T, a) FXI_FE10(T, __VA_ARGS__)
#define FXI_FE12(T, a, ...) FXI_FIELD_(T, a) FXI_FE11(T, __VA_ARGS__)
#define FXI_FE13(T, a, ...) FXI_FIELD_(T, a) FXI_FE12(T, __VA_ARGS__)
#define FXI_FE14(T, a, ...) FXI_FIELD_(T, a) FXI_FE13(T, __VA_ARGS__)
#define FXI_FE15(T, a, ...) FXI_FIELD_(T, a) FXI_FE14(T, __VA_ARGS__)
#define FXI_FE16(T, a, ...) FXI_FIELD_(T, a) FXI_FE15(T, __VA_ARGS__)
#define FXI_FE17(T, a, ...) FXI_FIELD_(T, a) FXI_FE16(T, __VA_ARGS__)
#define FXI_FE18(T, a, ...) FXI_FIELD_(T, a) FXI_FE17(T, __VA_ARGS__)
#define FXI_FE19(T, a, ...) FXI_FIELD_(T, a) FXI_FE18(T, __VA_ARGS__)
#define FXI_FE20(T, a, ...) FXI_FIELD_(T, a) FXI_FE19(T, __VA_ARGS__)
#define FXI_FE21(T, a, ...) FXI_FIELD_(T, a) FXI_FE20(T, __VA_ARGS__)
#define FXI_FE22(T, a, ...) FXI_FIELD_(T, a) FXI_FE21(T, __VA_ARGS__)
#define FXI_FE23(T, a, ...) FXI_FIELD_(T, a) FXI_FE22(T, __VA_ARGS__)
#define FXI_FE24(T, a, ...) FXI_FIELD_(T, a) FXI_FE23(T, __VA_ARGS__)
#define FXI_FE25(T, a, ...) FXI_FIELD_(T, a) FXI_FE24(T, __VA_ARGS__)
#define FXI_FE26(T, a, ...) FXI_FIELD_(T, a) FXI_FE25(T, __VA_ARGS__)
#define FXI_FE27(T, a, ...) FXI_FIELD_(T, a) FXI_FE26(T, __VA_ARGS__)
#define FXI_FE28(T, a, ...) FXI_FIELD_(T, a) FXI_FE27(T, __VA_ARGS__)
#define FXI_FE29(T, a, ...) FXI_FIELD_(T, a) FXI_FE28(T, __VA_ARGS__)
#define FXI_FE30(T, a, ...) FXI_FIELD_(T, a) FXI_FE29(T, __VA_ARGS__)
#define FXI_FE31(T, a, ...) FXI_FIELD_(T, a) FXI_FE30(T, __VA_ARGS__)
#define FXI_FE32(T, a, ...) FXI_FIELD_(T, a) FXI_FE31(T, __VA_ARGS__)
#define FXI_PICK33(a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17,     \
                   a18, a19, a20, a21, a22, a23, a24, a25, a26, a27, a28, a29, a30, a31, a32, n,   \
                   ...)                                                                            \
    n
#define FXI_FIELDS_(T, ...)                                                                        \
    FXI_PICK33(__VA_ARGS__, FXI_FE32, FXI_FE31, FXI_FE30, FXI_FE29, FXI_FE28, FXI_FE27, FXI_FE26,  \
               FXI_FE25, FXI_FE24, FXI_FE23, FXI_FE22, FXI_FE21, FXI_FE20, FXI_FE19, FXI_FE18,     \
               FXI_FE17, FXI_FE16, FXI_FE15, FXI_FE14, FXI_FE13, FXI_FE12, FXI_FE11, FXI_FE10,     \
               FXI_FE9, FXI_FE8, FXI_FE7, FXI_FE6, FXI_FE5, FXI_FE4, FXI_FE3, FXI_FE2, FXI_FE1, 0) \
    (T, __VA_ARGS__)
/* Checks the number of fields: a struct with one char per field has this size. */
#define FXI_ASSERT_ _Static_assert
#define FXI_COUNTED_(T, ...)                                                                       \
    struct fxi_fields_of_##T {                                                                     \
        char __VA_ARGS__;                                                                          \
    };                                                                                             \
    FXI_ASSERT_(sizeof(struct fxi_fields_of_##T) <= 32,                                            \
                "FX_FUNCTOR, FX_LAYER, FX_STRUCT and FX_OBJECT take at most 32 fields: put some "  \
                "of them into a struct of their own, which is a field");
#define FXI_DESCRIBED_(T, FIELDS, ...)                                                             \
    static inline const fx_type *fxi_type_##T(void)                                                \
    {                                                                                              \
        static const fx_field fields[] = {FIELDS};                                                 \
        enum { fxi_nfields = sizeof(fields) / sizeof(fields[0]) };                                 \
        static T error; /* returned by constructors on failure */                                  \
        static const fx_type type = {__VA_ARGS__};                                                 \
        return &type;                                                                              \
    }                                                                                              \
    struct fxi_eat_semicolon_##T
#define FXI_TYPE_(T, fwd, flags, ...)                                                              \
    FXI_COUNTED_(T, __VA_ARGS__)                                                                   \
    FXI_DESCRIBED_(T, FXI_FIELDS_(T, __VA_ARGS__), sizeof(fx_type), #T, sizeof(T), fields,         \
                   fxi_nfields, fwd, NULL, NULL, &error, flags, 0, NULL, NULL, NULL, NULL)

/* Define the type of a program's struct, whose first member is fx_object base. Write the macro
 * after the struct, at file level, with up to 32 fields:
 *   FX_FUNCTOR(T, fields…)         the listed fields are its children (@functor T): arrays,
 *                                  objects, and lists of them (fx_list). Numbers, flags, strings
 *                                  and functions are copied. Fields that are not listed are shared
 *                                  with copies.
 *   FX_LAYER(T, forward, fields…)  also names its forward function, for fx_call and fx_chain:
 *                                  void *forward(void *self, int n, void *const *args)
 *   FX_STRUCT(T, fields…)          fields for printing only; walks do not enter it.
 *   FX_OBJECT(T, (fields…), …)     also sets further members of fx_type by name: .forward = f,
 *                                  .trainable = "weight", .rebuild = r (C only; C++ programs
 *                                  fill an fx_type by hand). */
#define FX_FUNCTOR(T, ...)        FXI_TYPE_(T, NULL, 0, __VA_ARGS__)
#define FX_LAYER(T, forward, ...) FXI_TYPE_(T, forward, 0, __VA_ARGS__)
#define FX_STRUCT(T, ...)         FXI_TYPE_(T, NULL, FX_TYPE_LEAF, __VA_ARGS__)
#define FXI_BARE_(...)            __VA_ARGS__
#define FXI_FIELDS_OF_(T, ...)    FXI_FIELDS_(T, __VA_ARGS__)
#define FXI_COUNTED_OF_(T, ...)   FXI_COUNTED_(T, __VA_ARGS__)
/* The macro with further members of fx_type, see above. C only. */
#define FX_OBJECT(T, fields_in_parentheses, ...)                                                   \
    FXI_COUNTED_OF_(T, FXI_BARE_ fields_in_parentheses)                                            \
    FXI_DESCRIBED_(T, FXI_FIELDS_OF_(T, FXI_BARE_ fields_in_parentheses),                          \
                   .fxi_size = sizeof(fx_type), .name = #T, .size = sizeof(T), .fields = fields,   \
                   .nfields = fxi_nfields, .error = &error, __VA_ARGS__)
/* fx_new(ActorCritic, .actor = fx_ones(2, 2), …): an object of a type defined above, see
 * fxi_new. */
#define fx_new(T, ...)                                                                             \
    (FXI_HERE, (T *)fxi_new(fxi_type_##T(), &(const T){.base = {0}, __VA_ARGS__}))

/* ---- tuples and lists ------------------------------------------------------------------------ */
/* Result of fx_tuple and fx_named_tuple. fx_child returns the items. */
typedef struct fx_tuple_object {
    fx_object base;
    fx_list items;
} fx_tuple_object;
/* fx_tuple(x, y, …): a tuple of objects, which it retains. The scope owns it. */
FX_API void *fxi_tuple(int n, void *const *items);
/* A named tuple of n items; names are copied, items retained. FX_STATUS_ARGUMENT if a name is NULL,
 * empty or used twice. */
FX_API void *fx_named_tuple_from(int n, const char *const *names, void *const *items);
/* Children of a tuple or layer. fx_count returns their number (0 for NULL and arrays), fx_child the
 * i-th, fx_child_named the child with a name: NULL if the field is NULL, an error array
 * (FX_STATUS_ARGUMENT) if there is no such child. The object holds the child, and the caller gets
 * no reference: fx_keep and fx_retain make a child outlive the object. fx_child_name returns the
 * name of the i-th child, "" if it has none; the name is valid while the object exists. */
FX_API int64_t fx_count(const void *container);
FX_API void *fx_child(const void *object, int64_t i);
FX_API const char *fx_child_name(const void *object, int64_t i);
FX_API void *fx_child_named(const void *object, const char *name);
FX_API void *fxi_named_pairs(int n, const void *const *names_and_objects);
#define FXI_OBJECTS(...)                                                                           \
    (FXI_HERE, (int)(sizeof((void *[]){NULL, __VA_ARGS__}) / sizeof(void *)) - 1),                 \
        (void *const[]){NULL, __VA_ARGS__} + 1
#define fx_tuple(...) fxi_tuple(FXI_OBJECTS(__VA_ARGS__))
/* fx_named_tuple("x", X, "y", Y): names and objects alternate. */
#define fx_named_tuple(...) fxi_named_pairs(FXI_PAIRS(__VA_ARGS__))
#define FXI_PAIRS(...)                                                                             \
    (FXI_HERE, (int)(sizeof((const void *[]){NULL, __VA_ARGS__}) / sizeof(void *)) - 1),           \
        (const void *const[]){NULL, __VA_ARGS__} + 1

/* ---- functions as objects -------------------------------------------------------------------- */
/* A function as an object: of one array for layers and chains, of several objects for the
 * connections of containers.h. */
typedef struct fx_function {
    fx_object base;
    fx_array *(*apply)(fx_array *x);
    const char *name; /* printed name: "relu", "flatten" */
    /* Computes the function of n ≥ 1 objects; NULL: it takes one array only. */
    void *(*combine)(int n, void *const *args);
} fx_function;
/* clang-format off */
/* Functions that are in Julia's module Base. */
#define FXI_BASE_FUNCTIONS(X)                                                                      \
    X(EXP, exp) X(EXPM1, expm1) X(SIN, sin) X(COS, cos) X(TAN, tan) X(ATAN, atan)                  \
    X(SINH, sinh) X(COSH, cosh) X(ASINH, asinh) X(ABS, abs) X(ABS2, abs2) X(SIGN, sign)            \
    X(INV, inv) X(SQRT, sqrt) X(LOG, log) X(LOG1P, log1p)                                          \
    X(ASIN, asin) X(ACOS, acos) X(ACOSH, acosh) X(ATANH, atanh) X(VEC, vec)
#define FXI_FUNCTIONS(X)                                                                           \
    X(IDENTITY, identity) X(SIGMOID, sigmoid) X(HARDSIGMOID, hardsigmoid)                          \
    X(LOGSIGMOID, logsigmoid) X(TANH, tanh) X(HARDTANH, hardtanh)                                  \
    X(RELU, relu) X(RELU6, relu6) X(LEAKYRELU, leakyrelu)                                          \
    X(RRELU, rrelu) X(ELU, elu) X(CELU, celu)                                                      \
    X(SELU, selu) X(GELU, gelu) X(GELU_SIGMOID, gelu_sigmoid)                                      \
    X(GELU_ERF, gelu_erf) X(SWISH, swish) X(HARDSWISH, hardswish)                                  \
    X(LISHT, lisht) X(SOFTPLUS, softplus) X(SOFTSIGN, softsign)                                    \
    X(LOGCOSH, logcosh) X(MISH, mish) X(TANHSHRINK, tanhshrink)                                    \
    X(SOFTSHRINK, softshrink) X(TRELU, trelu)                                                      \
    X(SOFTMAX, softmax) X(LOGSOFTMAX, logsoftmax) X(FLATTEN, flatten)                              \
    FXI_BASE_FUNCTIONS(X) X(ONLY, only)
/* clang-format on */
#define FXI_FUNCTION_DECL(NAME, name) extern FX_API fx_function fxi_function_##name;
FXI_FUNCTIONS(FXI_FUNCTION_DECL)

/* clang-format off */
#define FXI_CONNECTIONS(X)                                                                         \
    X(ADD, add) X(SUB, sub) X(MATMUL, matmul) X(MUL, mul) X(VCAT, vcat) X(HCAT, hcat)              \
    X(TUPLE, tuple) X(SUM, sum) X(MEAN, mean) X(MAXIMUM, maximum) X(MINIMUM, minimum)
/* clang-format on */
FXI_CONNECTIONS(FXI_FUNCTION_DECL)

/* Functions of several arrays, which combine the results of layers: fx_parallel(FX_VCAT, a, b).
 * FX_ADD and FX_SUB need arrays of one shape (FX_STATUS_SHAPE), as in Julia. With more than two
 * arrays, FX_ADD, FX_MATMUL and FX_MUL are applied from the left, (a + b) + c, and FX_SUB is
 * FX_STATUS_ARGUMENT. */
#define FX_ADD    (&fxi_function_add)    /* Julia's +: a + b + c */
#define FX_SUB    (&fxi_function_sub)    /* Julia's -: a - b, two arrays */
#define FX_MATMUL (&fxi_function_matmul) /* Julia's *: the matrix product of a, b, c */
#define FX_MUL    (&fxi_function_mul)    /* Julia's .*: elementwise product, sizes broadcast */
#define FX_VCAT   (&fxi_function_vcat)   /* joins along axis 0 */
#define FX_HCAT   (&fxi_function_hcat)   /* joins along axis 1; vectors become columns */
#define FX_TUPLE  (&fxi_function_tuple)  /* the tuple of all arguments */
/* Reductions of one array to a 0-d array, as options of layers such as EmbeddingBag. */
#define FX_SUM     (&fxi_function_sum)
#define FX_MEAN    (&fxi_function_mean)
#define FX_MAXIMUM (&fxi_function_maximum)
#define FX_MINIMUM (&fxi_function_minimum)
/* Joins along `axis`; printed as cat(dims=axis+1), Julia's (x...) -> cat(x...; dims=axis+1). The
 * object is static. FX_STATUS_ARGUMENT unless axis is 0 to 7. */
FX_API fx_function *fx_cat_function(int axis);

/* Activations and other functions as objects: fx_dense(10, 5, FX_RELU). Static storage; formulas in
 * ops.h. */
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
#define FX_EXPM1        (&fxi_function_expm1)
#define FX_SIN          (&fxi_function_sin)
#define FX_COS          (&fxi_function_cos)
#define FX_TAN          (&fxi_function_tan)
#define FX_ATAN         (&fxi_function_atan)
#define FX_SINH         (&fxi_function_sinh)
#define FX_COSH         (&fxi_function_cosh)
#define FX_ASINH        (&fxi_function_asinh)
#define FX_ABS          (&fxi_function_abs)
#define FX_ABS2         (&fxi_function_abs2) /* x² */
#define FX_SIGN         (&fxi_function_sign)
#define FX_INV          (&fxi_function_inv) /* 1/x */
#define FX_SQRT         (&fxi_function_sqrt)
#define FX_LOG          (&fxi_function_log)
#define FX_LOG1P        (&fxi_function_log1p)
#define FX_ASIN         (&fxi_function_asin)
#define FX_ACOS         (&fxi_function_acos)
#define FX_ACOSH        (&fxi_function_acosh)
#define FX_ATANH        (&fxi_function_atanh)
#define FX_VEC          (&fxi_function_vec) /* a vector of all elements */
#define FX_ONLY         (&fxi_function_only) /* the element of an array of one element: a 0-d array */
#define FX_SOFTMAX      (&fxi_function_softmax)
#define FX_LOGSOFTMAX   (&fxi_function_logsoftmax)
#define FX_FLATTEN      (&fxi_function_flatten)
/* Makes a layer from a C function of one array: fx_function_new("halve", halve). The scope owns it.
 * `name` must outlive it. FX_STATUS_ARGUMENT if one of them is NULL. */
FX_API fx_function *fx_function_new(const char *name, fx_array *(*apply)(fx_array *x));
/* Makes a connection from a C function of n ≥ 1 objects, which returns a new object or one of its
 * arguments: fx_connection_new("mean", mean_of). Ownership and errors: as fx_function_new. */
FX_API fx_function *fx_connection_new(const char *name, void *(*combine)(int n, void *const *args));

/* ---- the walk -------------------------------------------------------------------------------- */
/* fx_fmap(f, x): a copy of x with every array replaced by f(array). Fields that are not children
 * are shared. An array that is reached twice is mapped once and stays shared. A view of another
 * array of x (transposed, permuted, reshaped or sliced) becomes the same view of that array's
 * result. Returns x if every array maps to itself. If f returns an error array, the result contains
 * it. f must not change the objects of x. fx_fmap_with passes `user` to f. The scope owns the
 * result. Functors.fmap. */
typedef fx_array *(*fx_map_fn)(fx_array *x);
FX_API void *fxi_fmap(fx_map_fn f, void *x);
typedef fx_array *(*fx_map_user_fn)(fx_array *x, void *user);
FX_API void *fx_fmap_with(fx_map_user_fn f, void *user, void *x);
/* fx_fmap_with that calls object(object, user) for every object before its children: it returns a
 * replacement, the object itself to keep it unchanged (Functors' exclude), or NULL to continue with
 * its children. */
typedef void *(*fx_object_fn)(void *object, void *user);
FX_API void *fx_fmap_objects(fx_map_user_fn f, fx_object_fn object, void *user, void *x);
/* Maps f over up to 8 trees of the same structure, as Functors' fmap(f, x, y, …): f receives the
 * arrays at the same position of each tree, in order; NULL where another tree has none. The result
 * has the structure and the ties of the first tree: an array that it reaches twice is mapped once.
 * Different structures are FX_STATUS_ARGUMENT; the message names the path. fx_fmap2(f, x, y) maps a
 * function of two arrays. */
typedef fx_array *(*fx_map_n_fn)(int n, fx_array *const *xs, void *user);
FX_API void *fx_fmap_n(fx_map_n_fn f, void *user, int n, void *const *trees);
typedef fx_array *(*fx_map2_fn)(fx_array *x, fx_array *y);
FX_API void *fxi_fmap2(fx_map2_fn f, void *x, void *y);
#define fx_fmap(f, x)      ((__typeof__(x))fxi_fmap((f), (x)))
#define fx_fmap2(f, x, y)  ((__typeof__(x))fxi_fmap2((f), (x), (y)))
#define fx_mapleaves(f, x) fx_fmap((f), (x)) /* the older name of fx_fmap */
/* fx_functor returns the children of an object, those in lists included: as a named tuple, or as a
 * tuple if a child has no name. Arrays, functions and leaves have no children: the tuple is empty.
 * fx_rebuild returns a copy of x with these children; FX_STATUS_ARGUMENT if their number is not
 * that of x. The scope owns both results. Functors.functor. */
FX_API void *fx_functor(void *x);
FX_API void *fxi_rebuild(void *x, void *children);
#define fx_rebuild(x, children) ((__typeof__(x))fxi_rebuild((x), (children)))
/* A position in a walk over one tree, or over up to 8 trees of the same structure in parallel.
 * If several paths lead to the same objects, these are one position, which is visited once: the
 * time of a walk grows with the number of objects, not with the number of paths. */
typedef struct fx_spot {
    void *const *objects; /* the objects or arrays at this position, one per tree; NULL: none */
    const struct fx_spot *parent; /* NULL at the root */
    int64_t child;                /* index among the parent's children */
    int depth;                    /* 0 at the root */
    bool frozen;                  /* optimisers ignore this path */
} fx_spot;
/* Returned by `meet`: how the walk continues. */
typedef enum fx_walk {
    FX_WALK_PASS,  /* skip the children */
    FX_WALK_TAKE,  /* skip the children; the position counts as taken (see every_path) */
    FX_WALK_ENTER, /* visit the children of the first tree's object */
    FX_WALK_STOP   /* end the walk */
} fx_walk;
/* Parameters of a walk. `op` and `meet` are required; zero and NULL are the defaults of the others.
 */
typedef struct fx_tree_walker {
    const char *op;                                 /* name of the operation in errors */
    int trees;                                      /* number of trees; 0: one */
    fx_walk (*meet)(const fx_spot *at, void *user); /* called before the children */
    /* Called after the children; false ends the walk; NULL: not called. */
    bool (*leave)(const fx_spot *at, void *user);
    bool every_path;   /* visit a position again for each further path to it, if `meet` returned
                          FX_WALK_TAKE for it or for a position below it */
    bool trained_only; /* skip fields that optimisers ignore */
    void *user;
} fx_tree_walker;
/* Walks over trees. FX_OK also if `meet` or `leave` ended the walk. FX_STATUS_MEMORY if memory runs
 * out; FX_STATUS_ARGUMENT for objects that are nested more than 1000 deep or contain themselves. */
FX_API fx_status fx_tree_walk(const fx_tree_walker *walker, void *const *trees);
/* Returns true for objects that walks enter; false for NULL, arrays, functions and leaves. */
FX_API bool fx_has_children(const void *object);
/* Writes the path of a position, "layers.0.weight", to dst and returns its length, as snprintf;
 * if dst is NULL, it writes nothing.
 * `naming` returns the name of a field, "" for none; NULL: the field's own name. */
typedef const char *(*fx_naming_fn)(const fx_type *type, const fx_field *field);
FX_API size_t fx_spot_path(const fx_spot *at, fx_naming_fn naming, char *dst, size_t capacity);
/* A `naming` for paths such as "0.weight": a child's name as in fx_child_name, or its index if it
 * has no name. */
FX_API const char *fx_naming_children(const fx_type *type, const fx_field *field);
/* Calls visit for every distinct array of x, depth first in field order; `path` is
 * "layers.0.weight". A view of another array of x is not trainable, because it changes with that
 * array. A walk that fails (fx_tree_walk) ends early and leaves an error record. */
typedef void (*fx_visit_fn)(fx_array *x, const char *path, bool trainable, void *user);
FX_API void fx_visit(void *x, fx_visit_fn visit, void *user);
/* Returns the distinct trainable arrays of a model (floating-point, not frozen) as a tuple, in the
 * order of fx_visit. The scope owns it. On failure: an error object. */
FX_API void *fx_trainables(void *model);
/* Number of elements in the trainable arrays of a model, counted with fx_visit; 0 and an error
 * record for NULL. */
FX_API int64_t fx_parameter_count(void *model);
/* fx_destructure concatenates the distinct trainable arrays of a model into a vector, in their
 * common element type; fx_restructure(model, vector) makes a model like `model` from this vector,
 * each array in its own element type. Both are differentiable. FX_STATUS_SHAPE: "Rebuild expected a
 * vector of length n, got m". Optimisers.destructure. */
FX_API fx_array *fx_destructure(void *model);
FX_API void *fxi_restructure(void *model, fx_array *flat);
/* The arrays of a model as nested tuples with its field names (an empty tuple for functions and for
 * objects without arrays). Contains the model's arrays, not copies. The scope owns it.
 * FX_STATUS_ARGUMENT for NULL. Flux.state. */
FX_API void *fx_state(void *model);
/* Copies every array of src into dst's arrays; their handles stay valid and keep their element
 * types. src is a model of the same structure, or a state from fx_state, fx_flux_state or Flux,
 * built or loaded. If src has no bias where dst has one, dst gets zeros. A tuple of arrays is
 * copied into the trainable arrays in order (Flux.loadparams!). If structures (FX_STATUS_ARGUMENT)
 * or sizes (FX_STATUS_SHAPE) differ, dst is unchanged, and the error names the first difference:
 * "Tried to load size (a) array into size (b) at "0.bias"". FX_STATUS_ARGUMENT too if arrays that
 * are tied in dst have different values in src. If both are optimiser states, dst also gets the
 * numbers of src, such as the learning rate and powers of β, but not which parameters are frozen;
 * if their rules differ, a message says that the numbers are unchanged. Flux.loadmodel!. */
FX_API fx_status fx_loadmodel(void *dst, void *src);
/* fx_f16(x), fx_bf16(x), fx_f32(x), fx_f64(x): a copy of a model with floating-point arrays of
 * another type. Integer and Bool arrays are not converted; arrays of BatchNorm, InstanceNorm and
 * GroupNorm stay Float32 with 16-bit types, because running statistics would lose small changes.
 * The results of these layers still have the type of their inputs. Flux.f16, bf16, f32, f64. */
FX_API void *fxi_in_precision(fx_dtype type, void *model);
#define fx_restructure(model, flat) ((__typeof__(model))fxi_restructure((model), (flat)))
#define fx_f16(x)                   ((__typeof__(x))fxi_in_precision(FX_DTYPE_F16, (x)))
#define fx_bf16(x)                  ((__typeof__(x))fxi_in_precision(FX_DTYPE_BF16, (x)))
#define fx_f32(x)                   ((__typeof__(x))fxi_in_precision(FX_DTYPE_F32, (x)))
#define fx_f64(x)                   ((__typeof__(x))fxi_in_precision(FX_DTYPE_F64, (x)))
/* fx_snapshot(x): a copy of a model, for readers in other threads or to keep its values (Julia's
 * deepcopy): new handles for the same values, which later updates neither change nor reuse. Pending
 * arrays are evaluated first. The scope owns the copy; an error object on failure. */
FX_API void *fxi_snapshot(void *model);
#define fx_snapshot(x) ((__typeof__(x))fxi_snapshot(x))

/* fx_call(model, x, …): y = model(x, …) for a layer or function object. Calling anything else is
 * FX_STATUS_ARGUMENT, and the message names its type. A NULL input is FX_STATUS_ARGUMENT too; for
 * an error object as input the result is an error array with its status. The scope owns the
 * result. */
FX_API void *fxi_call(void *model, int n, void *const *args);
#define fx_call(model, ...) ((fx_array *)fxi_call((model), FXI_OBJECTS(__VA_ARGS__)))

/* fx_checkpointed(model, x, …): fx_call(model, x, …) that needs less memory and more time. A plan
 * keeps only the inputs for the gradient, and computes the model a second time in the backward
 * pass. Value and gradients are the same: dropout repeats its mask, and running statistics are
 * updated once. Calls may be nested, and parameters may be shared. Checkpoint the parts of a deep
 * model, not the whole: √n parts of a chain of n layers need the least memory. If the result is a
 * tuple, each array of it that reaches the loss computes the model again. An array that the model
 * computes and stores in one of its fields gets no gradient. Errors and result as for fx_call.
 * Zygote.checkpointed. */
FX_API void *fxi_checkpointed(void *model, int n, void *const *args);
#define fx_checkpointed(model, ...)                                                                \
    ((fx_array *)fxi_checkpointed((model), FXI_OBJECTS(__VA_ARGS__)))

/* ---- printing -------------------------------------------------------------------------------- */
/* Evaluates an object and prints it as Julia and Flux do: arrays with header and aligned columns
 * ("3×2 Matrix{Float32}:"), models in Flux's notation with byte counts. fx_show prints to stdout
 * with a newline at the end. */
FX_API void fx_show(void *object);
FX_API void fx_show_to(FILE *out, void *object);
/* Writes the same text without the last newline to dst, truncated to `capacity` bytes and always
 * terminated; returns its full length. If dst is NULL, nothing is written. */
FX_API size_t fx_show_text(void *object, char *dst, size_t capacity);
/* Writes the one-line form, "Dense(2 => 3, relu)", "3×2 Matrix{Float32}", to dst like fx_show_text,
 * but evaluates nothing. */
FX_API size_t fx_summary(void *object, char *dst, size_t capacity);

/* Show the plan that would compute the pending arrays of an object, without running it. The first
 * line counts nodes, steps and bytes. Then each step has one line:
 *     2 matmul then add relu(x0, 1, x2) → Float32 30×40, 0.12 MFLOP
 * number; operations that the step fuses; inputs; element type and sizes of the output; for matrix
 * products, convolutions and attention the floating-point operations, in millions. An input is a
 * step's number, an evaluated array x0, x1, … or a literal c0, c1, …; ′ marks a view. fx_plan_show
 * prints to `out`, with the bytes that each step moves, and with lists of the arrays x0, … and of
 * the literals c0, …. fx_plan_text writes to dst like fx_show_text, without bytes and lists, and
 * with a newline at the end. If no array is pending: "nothing is pending". On failure both leave an
 * error record; fx_plan_show prints nothing, and fx_plan_text writes "" and returns 0. */
FX_API void fx_plan_show(FILE *out, void *object);
FX_API size_t fx_plan_text(void *object, char *dst, size_t capacity);

FXI_END_C
#endif
