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

/* What a field of a struct is to walks and to printing. */
typedef enum fx_field_kind {
    FX_FIELD_CHILD = 0, /* fx_array *, or any object pointer; NULL allowed */
    FX_FIELD_LIST,      /* fx_list: a counted list of children, perhaps named */
    FX_FIELD_SHARED,    /* an object that walks pass by: activation functions, constants */
    FX_FIELD_NUMBER,    /* double */
    FX_FIELD_INTEGER,   /* int64_t */
    FX_FIELD_FLAG,      /* bool */
    FX_FIELD_DIMS,      /* fx_dims */
    FX_FIELD_INT,       /* int */
    FX_FIELD_FLOAT,     /* float */
    FX_FIELD_STRING     /* const char *; must outlive the object; NULL allowed */
} fx_field_kind;

/* One field of a struct. */
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

/* What objects of a kind have in common. FX_LAYER and its like below make one; zero means none, or
 * the default. */
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
    /* The fields that optimisers see, by name: "weight bias"; NULL: all that are not frozen. Moves,
     * maps, printing and files see every field. */
    const char *trainable;
    /* Called by maps on a copy that has got new children, to make again what depends on them;
     * returns the copy, or another object to take its place. NULL: the copy is good as it is. */
    void *(*rebuild)(void *copy);
    /* What a move to a device makes of the object, instead of moving its children (a data loader
     * moves its batches, when they are made); each(x, device) is how arrays move, NULL: as they
     * are. A NULL entry: the children move. */
    void *(*move)(void *self, fx_device *device, fx_array *(*each)(fx_array *x, void *device));
    /* Options of a layer and its names in files (layer.h); NULL: none. Read it with fx_layer_of: a
     * descriptor of a program that was compiled with an older header ends before this member. */
    const struct fx_layer *layer;
};
/* Flags of a type. */
enum {
    FX_TYPE_ONE_LINE = 1, /* always printed on one line (Flux's :noexpand) */
    FX_TYPE_SEQUENCE = 2, /* children of its list are printed as its own lines (Chain) */
    FX_TYPE_FUNCTION = 4, /* a function object: a leaf of every walk */
    FX_TYPE_TUPLE = 8,    /* a tuple or a named tuple */
    FX_TYPE_LEAF = 16,    /* opaque to walks */
    FX_TYPE_MUTABLE =
        32, /* a mutable struct in Flux (BatchNorm, Dropout): containers hold a pointer to it */
    FX_TYPE_WIDE = 64, /* keeps its arrays in Float32 when a model goes to 16 bits (BatchNorm) */
    FX_TYPE_INTERNAL = 128 /* an object of the library that no other program has a type for */
};

/* Makes an object of the type from `init`, a struct of type->size bytes whose head is ignored:
 * children are retained, lists copied. Owned by the scope; on failure the type's error object. */
FX_API void *fxi_new(const fx_type *type, const void *init);
/* The error object of a type, all of whose arrays are error arrays. */
FX_API void *fx_error_object(const fx_type *type);
FX_API const fx_type *fx_type_of(const void *object); /* what it is; NULL for NULL */
/* True when object is of that type; NULL and error arrays are not. */
FX_API bool fx_is(const void *object, const fx_type *type);
FX_API bool fx_is_array(const void *object); /* an array, or an error array */

/* clang-format off */
#define FXI_KIND_OF_(x)                                                                            \
    _Generic((x), fx_list: FX_FIELD_LIST, fx_dims: FX_FIELD_DIMS, double: FX_FIELD_NUMBER,         \
             float: FX_FIELD_FLOAT, int64_t: FX_FIELD_INTEGER, int: FX_FIELD_INT,                  \
             bool: FX_FIELD_FLAG, char *: FX_FIELD_STRING, const char *: FX_FIELD_STRING,          \
             default: FX_FIELD_CHILD)
/* clang-format on */
/* Does not compile for a field that is neither a pointer nor one of those. */
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
/* Counts the fields: a struct with a char for each is as large as there are fields. */
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
        static T error; /* what constructors return when memory is out */                          \
        static const fx_type type = {__VA_ARGS__};                                                 \
        return &type;                                                                              \
    }                                                                                              \
    struct fxi_eat_semicolon_##T
#define FXI_TYPE_(T, fwd, flags, ...)                                                              \
    FXI_COUNTED_(T, __VA_ARGS__)                                                                   \
    FXI_DESCRIBED_(T, FXI_FIELDS_(T, __VA_ARGS__), sizeof(fx_type), #T, sizeof(T), fields,         \
                   fxi_nfields, fwd, NULL, NULL, &error, flags, 0, NULL, NULL, NULL, NULL)

/* How walks see a struct of the user's. The struct's first member is fx_object base; the macros go
 * after it, at file level, and take up to 32 fields.
 *   FX_FUNCTOR(T, fields…)         the named fields are its children (@functor T): arrays, objects,
 *                                  lists of them (fx_list), and numbers, flags, strings, functions,
 *                                  which stay as they are. A field not named is shared with the
 *                                  original.
 *   FX_LAYER(T, forward, fields…)  also names its forward function, void *forward(void *self,
 *                                  int n, void *const *args), so that fx_call and fx_chain take it.
 *   FX_STRUCT(T, fields…)          fields for printing only: every walk passes it by unchanged.
 *   FX_OBJECT(T, (fields…), …)     everything: further members of fx_type by name, e.g. .forward =
 * f, .trainable = "weight", .rebuild = r (C only; in C++ fill an fx_type by hand). */
#define FX_FUNCTOR(T, ...)        FXI_TYPE_(T, NULL, 0, __VA_ARGS__)
#define FX_LAYER(T, forward, ...) FXI_TYPE_(T, forward, 0, __VA_ARGS__)
#define FX_STRUCT(T, ...)         FXI_TYPE_(T, NULL, FX_TYPE_LEAF, __VA_ARGS__)
#define FXI_BARE_(...)            __VA_ARGS__
#define FXI_FIELDS_OF_(T, ...)    FXI_FIELDS_(T, __VA_ARGS__)
#define FXI_COUNTED_OF_(T, ...)   FXI_COUNTED_(T, __VA_ARGS__)
/* With further members of fx_type by name, see above. C only. */
#define FX_OBJECT(T, fields_in_parentheses, ...)                                                   \
    FXI_COUNTED_OF_(T, FXI_BARE_ fields_in_parentheses)                                            \
    FXI_DESCRIBED_(T, FXI_FIELDS_OF_(T, FXI_BARE_ fields_in_parentheses),                          \
                   .fxi_size = sizeof(fx_type), .name = #T, .size = sizeof(T), .fields = fields,   \
                   .nfields = fxi_nfields, .error = &error, __VA_ARGS__)
/* fx_new(ActorCritic, .actor = fx_ones(2, 2), …): an object of a declared type. */
#define fx_new(T, ...)                                                                             \
    (FXI_HERE, (T *)fxi_new(fxi_type_##T(), &(const T){.base = {0}, __VA_ARGS__}))

/* ---- tuples and lists ------------------------------------------------------------------------ */
/* What fx_tuple and fx_named_tuple make. fx_child reaches the items. */
typedef struct fx_tuple_object {
    fx_object base;
    fx_list items;
} fx_tuple_object;
FX_API void *fxi_tuple(int n, void *const *items);
/* A named tuple of n items from two lists; the names are copied. */
FX_API void *fx_named_tuple_from(int n, const char *const *names, void *const *items);
FX_API int64_t fx_count(const void *container);       /* children of a tuple, list or layer */
FX_API void *fx_child(const void *object, int64_t i); /* borrowed; error array when out of range */
FX_API const char *fx_child_name(const void *object, int64_t i);   /* "" when it has none */
FX_API void *fx_child_named(const void *object, const char *name); /* as fx_child */
FX_API void *fxi_named_pairs(int n, const void *const *names_and_objects);
#define FXI_OBJECTS(...)                                                                           \
    (FXI_HERE, (int)(sizeof((void *[]){NULL, __VA_ARGS__}) / sizeof(void *)) - 1),                 \
        (void *const[]){NULL, __VA_ARGS__} + 1
/* fx_tuple(x, y) */
#define fx_tuple(...) fxi_tuple(FXI_OBJECTS(__VA_ARGS__))
/* fx_named_tuple("x", X, "y", Y): names and objects alternate. */
#define fx_named_tuple(...) fxi_named_pairs(FXI_PAIRS(__VA_ARGS__))
#define FXI_PAIRS(...)                                                                             \
    (FXI_HERE, (int)(sizeof((const void *[]){NULL, __VA_ARGS__}) / sizeof(void *)) - 1),           \
        (const void *const[]){NULL, __VA_ARGS__} + 1

/* ---- functions as objects -------------------------------------------------------------------- */
/* A function of one array that stands in a layer or a chain. */
typedef struct fx_function {
    fx_object base;
    fx_array *(*apply)(fx_array *x);
    const char *name; /* as Flux prints it: "relu", "flatten" */
} fx_function;
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

/* FX_RELU, FX_TANH, … : activations and other functions as objects, for layers and chains. */
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
 * shared with the original; an array reached twice is mapped once and stays shared. An array that
 * is a view of another one of x (transposed, permuted, reshaped or sliced) becomes the same view of
 * what that one becomes. If every array maps to itself the result is x. fx_mapleaves is the older
 * name. */
typedef fx_array *(*fx_map_fn)(fx_array *x);
FX_API void *fxi_fmap(fx_map_fn f, void *x);
typedef fx_array *(*fx_map_user_fn)(fx_array *x, void *user);
FX_API void *fx_fmap_with(fx_map_user_fn f, void *user, void *x);
/* The same, but `object` sees every object before the walk enters it and may say what it becomes
 * (itself to leave it out: Functors' exclude); NULL: the walk goes on inside. */
typedef void *(*fx_object_fn)(void *object, void *user);
FX_API void *fx_fmap_objects(fx_map_user_fn f, fx_object_fn object, void *user, void *x);
/* A map over up to 8 trees of the same structure, Functors' fmap(f, x, y, …): f gets the arrays
 * that stand in one place, those of the first tree first, and NULL where another tree has nothing.
 * The result is a copy of the first tree's structure, with its ties: an array that it reaches twice
 * is mapped once. Trees that differ are an error that names the path. fx_fmap2(f, x, y) takes a
 * function of two arrays. */
typedef fx_array *(*fx_map_n_fn)(int n, fx_array *const *xs, void *user);
FX_API void *fx_fmap_n(fx_map_n_fn f, void *user, int n, void *const *trees);
typedef fx_array *(*fx_map2_fn)(fx_array *x, fx_array *y);
FX_API void *fxi_fmap2(fx_map2_fn f, void *x, void *y);
#define fx_fmap(f, x)      ((__typeof__(x))fxi_fmap((f), (x)))
#define fx_fmap2(f, x, y)  ((__typeof__(x))fxi_fmap2((f), (x), (y)))
#define fx_mapleaves(f, x) fx_fmap((f), (x)) /* the older name */
/* What a walk sees of an object: its children as a named tuple (items of lists included; a tuple
 * for what has no names, the empty one for arrays, functions and leaves); fx_rebuild makes an
 * object like x from such a tuple: Functors.functor(x) gives this pair. Objects of the scope. */
FX_API void *fx_functor(void *x);
FX_API void *fxi_rebuild(void *x, void *children);
#define fx_rebuild(x, children) ((__typeof__(x))fxi_rebuild((x), (children)))
/* What all these functions are made of: one walk over a tree, or over up to 8 trees of the same
 * structure side by side. `meet` sees every place before its children: the objects or arrays that
 * stand in the same place of each tree, NULL where there is nothing. Places with the same objects
 * are one place: the walk meets them once, however many paths lead there, so that its time grows
 * with the number of objects and not with the number of paths. */
typedef struct fx_spot {
    void *const *objects;         /* one of each tree */
    const struct fx_spot *parent; /* NULL at the top */
    int64_t child;                /* its number among the parent's children */
    int depth;                    /* 0 at the top */
    bool frozen;                  /* on this path optimisers do not see it */
} fx_spot;
/* What `meet` says of a place. */
typedef enum fx_walk {
    FX_WALK_PASS,  /* the walk goes on elsewhere */
    FX_WALK_TAKE,  /* the same, and something was taken */
    FX_WALK_ENTER, /* the walk goes into the children of the first tree's object */
    FX_WALK_STOP   /* the walk ends */
} fx_walk;
/* What a walk does. Members that are left out are zero. */
typedef struct fx_tree_walker {
    const char *op; /* for errors */
    int trees;      /* 0: one */
    fx_walk (*meet)(const fx_spot *at, void *user);
    bool (*leave)(const fx_spot *at, void *user); /* after the children; false ends the walk.
                                                     NULL: nothing is done */
    bool every_path;   /* meets a place on each path to it, unless nothing was taken below it */
    bool trained_only; /* leaves out the fields that optimisers do not see */
    void *user;
} fx_tree_walker;
/* FX_OK also when `meet` or `leave` ended the walk. Without memory, and for objects that are nested
 * more than 1000 deep or hold themselves, the walk records an error and ends. */
FX_API fx_status fx_tree_walk(const fx_tree_walker *walker, void *const *trees);
/* Is it an object that walks go into: neither NULL, an array, a function nor a leaf? */
FX_API bool fx_has_children(const void *object);
/* Writes the path of a place, "layers.0.weight", and returns its length, as snprintf does. `naming`
 * gives the name of a field, "" for none; NULL: its own. */
typedef const char *(*fx_naming_fn)(const fx_type *type, const fx_field *field);
FX_API size_t fx_spot_path(const fx_spot *at, fx_naming_fn naming, char *dst, size_t capacity);
/* A naming with which paths consist of the names of fx_child_name, and of numbers: "0.weight". */
FX_API const char *fx_naming_children(const fx_type *type, const fx_field *field);
/* Calls visit for every distinct array of x, depth first in field order; `path` is
 * "layers.0.weight". A view of another array of x is not trainable: it follows that array. */
typedef void (*fx_visit_fn)(fx_array *x, const char *path, bool trainable, void *user);
FX_API void fx_visit(void *x, fx_visit_fn visit, void *user);
/* The distinct trainable arrays of a model (floating point, not frozen) as a tuple, in walk order.
 */
FX_API void *fx_trainables(void *model);
/* Number of trainable elements; of all elements. */
FX_API int64_t fx_parameter_count(void *model);
/* The distinct trainable arrays of a model one after the other as a vector (trainable fields only,
 * a tied array once), in the type that holds them all; fx_restructure makes a model like `model`
 * from such a vector, each array in its own type again: Optimisers.destructure gives this pair.
 * Both are differentiable. Another length is an error: "Rebuild expected a vector of length n, got
 * m". */
FX_API fx_array *fx_destructure(void *model);
FX_API void *fxi_restructure(void *model, fx_array *flat);
/* The arrays of a model as nested tuples with its field names (functions and what holds no arrays
 * are the empty tuple): Flux.state. The arrays are those of the model, not copies. */
FX_API void *fx_state(void *model);
/* Copies every array of src into dst's arrays, whose handles stay valid: Flux.loadmodel!. src is a
 * model of the same structure or a state: of fx_state, of fx_flux_state or of Flux, made here or
 * read from a file. Element types are dst's. A missing bias takes zeros. A tuple of arrays goes
 * into a model's trainable arrays in their order (Flux.loadparams!). Where structures or sizes
 * differ dst is unchanged, and the error names the path of the first difference: "Tried to load
 * size (a) array into size (b) at "layers.0.bias"". */
FX_API fx_status fx_loadmodel(void *dst, void *src);
/* A model with its floating-point arrays in another type; integers and Bool stay, and so do the
 * arrays of BatchNorm where the type has 16 bits (running statistics would lose what they add). */
FX_API void *fxi_in_precision(fx_dtype type, void *model);
#define fx_restructure(model, flat) ((__typeof__(model))fxi_restructure((model), (flat)))
#define fx_f16(x)                   ((__typeof__(x))fxi_in_precision(FX_DTYPE_F16, (x)))
#define fx_bf16(x)                  ((__typeof__(x))fxi_in_precision(FX_DTYPE_BF16, (x)))
#define fx_f32(x)                   ((__typeof__(x))fxi_in_precision(FX_DTYPE_F32, (x)))
#define fx_f64(x)                   ((__typeof__(x))fxi_in_precision(FX_DTYPE_F64, (x)))
/* A model as it is now: new handles for the same values, which later updates do not touch and never
 * reuse in place: what readers in other threads hold. */
FX_API void *fxi_snapshot(void *model);
#define fx_snapshot(x) ((__typeof__(x))fxi_snapshot(x))

/* y = model(x…): calls a layer or function object. Everything but a layer is an error that names
 * it. */
FX_API void *fxi_call(void *model, int n, void *const *args);
#define fx_call(model, ...) ((fx_array *)fxi_call((model), FXI_OBJECTS(__VA_ARGS__)))

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
