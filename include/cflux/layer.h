/* cflux/layer.h: declares a layer type by one table.
 *
 * FX_LAYER (tree.h) lists the fields of a struct, which is enough for gradients, moves, printing
 * and arrays in files. FX_LAYER_TYPE also takes the options that construct the layer, its names in
 * Flux's files by version, and its names in PyTorch's state dictionaries. The table provides
 * construction from options, the error object, printing in Flux's notation, fx_parse_model, reading
 * and writing of BSON, fx_torch_state, fx_trainmode and copies. The library's own layers (src/nn)
 * use the same macro. C only, as FX_OBJECT: C++ programs fill the structs by hand. */
#ifndef CFLUX_LAYER_H
#define CFLUX_LAYER_H

#include <cflux/tree.h>

FXI_BEGIN_C

/* The kind of an option. Each comment has the C type of the option's member in the option struct,
 * and then what users write in Flux's notation. The notation refuses sizes of PAIR, TWO_PAIR,
 * KERNEL, SIZES, SIZE and ATTENTION whose product is above 2^40: this limits the number of
 * parameters that the text of a model can request. */
typedef enum fx_option_kind {
    FX_OPTION_NONE = 0,
    FX_OPTION_PAIR, /* two consecutive int64_t: in => out, as in Dense(4 => 8); older form: 4, 8 */
    FX_OPTION_TWO_PAIR, /* fx_dims and int64_t: (in1, in2) => out, as in Bilinear((3, 4) => 2), or
                           in => out for two equal sizes */
    FX_OPTION_KERNEL,   /* fx_dims: a tuple of kernel or window sizes, as in MaxPool((2, 2)) */
    FX_OPTION_SIZES,    /* fx_dims: sizes of an array, as in LayerNorm(4, 5) or LayerNorm((4, 5)) */
    FX_OPTION_SIZE,     /* int64_t: one size, as in BatchNorm(8) */
    FX_OPTION_INDEX,    /* int64_t from 0, −1: none; the notation and Flux count from 1 and write
                           `nothing` for none */
    FX_OPTION_INTEGER,  /* int64_t: an integer */
    FX_OPTION_REAL,     /* double: a number; Float64 in Flux's files */
    FX_OPTION_REAL32,   /* double: a number; Float32 in Flux's files */
    FX_OPTION_REALS,    /* two consecutive double: (0.9, 0.999) */
    FX_OPTION_NUMBERS,  /* fx_dims: one number for all axes or one for each, as in stride = 2 or
                           stride = (2, 2); equal numbers are printed as one */
    FX_OPTION_PADDING,  /* fx_dims: 2, (2, 2) or SamePad() */
    FX_OPTION_AXES, /* fx_axes: counted from 1, or : for all; the layer's member is an fx_dims */
    FX_OPTION_FUNCTION,   /* fx_function *: a name such as relu; NULL: identity */
    FX_OPTION_BIAS,       /* int: true or false; in Flux's files an absent child is false */
    FX_OPTION_FLAG,       /* bool: true or false; in Flux's files an absent child is `nothing` */
    FX_OPTION_ACTIVE,     /* fx_active: true, false, nothing; the layer's member is an int64_t */
    FX_OPTION_INIT,       /* fx_init_fn: the name of an initialiser, such as glorot_uniform */
    FX_OPTION_VECTOR,     /* fx_array * with one axis; not in the notation */
    FX_OPTION_MATRIX,     /* fx_array * with two axes; not in the notation */
    FX_OPTION_ARRAY,      /* fx_array *; not in the notation */
    FX_OPTION_LAYERS,     /* a member that is an fx_list of layers, as the layers of a Chain */
    FX_OPTION_LAYER,      /* void *: a layer or function that is called with an array */
    FX_OPTION_CONNECTION, /* void *: a layer or function that is called with several objects, such
                             as the + of a SkipConnection */
    FX_OPTION_SYMBOL,     /* const char *: the name of a field, such as :weight */
    FX_OPTION_SCALE, /* Flux's files only: a Flux.Scale made of the members scale, bias and act */
    FX_OPTION_RNG,   /* Flux's files only: the random number generator, or another value that is not
                        stored */
    FX_OPTION_TUPLE, /* fx_dims: like NUMBERS, but always printed as a tuple */
    FX_OPTION_STATES,   /* Flux's files only: an array or a tuple of two, the members h0 and c0 */
    FX_OPTION_FACTORS,  /* fx_dims: 2 or (2, 2), as the scale of Upsample; always printed with its
                           keyword. In Flux's files one number is an Int, an empty list `nothing` */
    FX_OPTION_WORD,     /* an enum whose values count from 0: a symbol such as :nearest; the layer's
                           member is an int64_t; a type parameter in Flux's files */
    FX_OPTION_NOTHING,  /* Flux's files only: not read, written as nothing */
    FX_OPTION_ATTENTION /* fx_dims of six sizes, (q, k, v) => (qk, v) => out of MultiHeadAttention,
                           as in (8, 8, 4) => (16, 12) => 8; 64 => 32 => 16 if q, k and v have equal
                           sizes; 64 if all have */
} fx_option_kind;

/* How PyTorch's layout of an array differs from Flux's. */
typedef enum fx_torch_layout {
    FX_TORCH_LAYOUT_SAME = 0,
    FX_TORCH_LAYOUT_TRANSPOSED, /* the axes in reverse order: a transposed matrix */
    FX_TORCH_LAYOUT_FLIPPED     /* a kernel with reversed spatial axes */
} fx_torch_layout;

/* One row of a layer's table: a member of the layer's struct, an option, or both. Zero and NULL
 * mean none. */
typedef struct fx_layer_row {
    const char *name;    /* name of the member, or of the option if the row has no member */
    size_t member;       /* offset of the member in the layer's struct */
    size_t option;       /* offset of the option in the option struct */
    size_t present;      /* offset of the child that exists if this BIAS or FLAG option is true */
    fx_option_kind kind; /* type of the option; for Flux's files also of a member without option */
    const char *names;   /* keywords in the notation, separated by spaces; the first is printed */
    const char *positional; /* name of a positional option in errors; NULL: keyword only */
    int64_t least;          /* smallest allowed integer */
    bool required;          /* required in the notation */
    bool silent;            /* never printed */
    const char *flux;  /* names of the field in Flux's structs, separated by spaces; NULL: none */
    const char *torch; /* name in a state dictionary; NULL: the member's; "": left out; "*_l0":
                          left out, and _l0 is appended to the names of the child's arrays;
                          "q_proj|in_proj_0": also part 0 of 3 of in_proj_weight and in_proj_bias */
    const char *torch_count; /* name of an Int64 that PyTorch stores as well: written as 0, ignored
                                on load */
    fx_torch_layout layout;  /* layout of the array in PyTorch */
    bool shown;              /* printed also if it has its default value */
    const char *torch_added; /* name of a second array of the same size: written as zeros, and added
                                to this one on load */
    int torch_last; /* k > 0: the final 1/k of torch_added is not added to this array. It is loaded
                       into another array of the layer: the one whose row has torch_added as its
                       `torch`. If the layer does not have that array, the final 1/k must be 0 */
    const char *words; /* names of the values of a WORD, separated by spaces */
} fx_layer_row;

/* The layer's struct in a range of versions of Flux. An array of forms ends with {0}. */
typedef struct fx_flux_form {
    const char *fields; /* field names in order: "weight bias σ" */
    const char *params; /* type parameters: field names, #name for the length of a tuple, #name+2
                           for that length plus 2, =name for the value of a flag, :name for a WORD;
                           NULL: this form is read, not written */
    int since, until;   /* first and last version of Flux: 1206 is 0.12.6; 0: no limit */
} fx_flux_form;

/* Facts about the file from which a layer is read. */
typedef struct fx_flux_source {
    size_t fxi_size;
    int nfields;   /* number of fields of the struct in the file */
    bool in_lists; /* a chain around the layer is a list, as in Flux 0.6 */
    int newest;    /* newest version of Flux that may have written the file: 1610 */
} fx_flux_source;

/* The inputs of a container's layers. */
typedef enum fx_layer_flow {
    FX_LAYER_FLOW_SHARED = 0, /* the input of the container, or its item of a tuple */
    FX_LAYER_FLOW_CHAIN,      /* the result of the previous layer */
    FX_LAYER_FLOW_FIRST       /* the first one: the input of the container; the others: results of a
                           connection */
} fx_layer_flow;

/* The part of a type that FX_LAYER_TYPE makes; fx_type.layer points to it. */
typedef struct fx_layer {
    size_t fxi_size; /* sizeof(fx_layer) */
    const fx_layer_row *rows;
    size_t row_size; /* sizeof(fx_layer_row) */
    int nrows;
    const void *defaults; /* the option struct with all defaults */
    /* Completes `self`, in which members linked to options have the options' values and all others
     * are zero. Returns false after a failure reported by fx_fail. NULL: nothing to complete. */
    bool (*build)(const fx_type *type, const void *options, void *self);
    /* Makes a layer from sublayers, `Name(layer, name = layer)`, instead of `build` and the
     * options; names may be NULL. The layers have the order of the rows: one for a row of kind
     * LAYER or CONNECTION, which has no name, and the others for the row of kind LAYERS. NULL: the
     * layer is made from options. */
    void *(*build_list)(int n, const char *const *names, void *const *layers);
    /* The inverse of `build`: fills in the options that no member holds. Returns false if the layer
     * has no parameters from which to derive them; it is then printed as Name(). NULL if members
     * hold all options. */
    bool (*recover)(const void *self, void *options);
    /* Size of Flux's struct in bytes if it depends on the layer, otherwise NULL; see
     * fx_type.layout_bytes. */
    int64_t (*layout_bytes)(const void *self);
    bool semicolon;            /* print a semicolon before the first keyword, as Flux */
    const char *flux;          /* names of Flux's struct, "Flux.Dense", separated by spaces; the
                                  first is written; NULL: none */
    const fx_flux_form *forms; /* oldest first, ends with {0} */
    /* Completes options, and children of `self` without an option, after reading a file. Returns
     * false if the values do not describe a layer. May be NULL. */
    bool (*from_flux)(const fx_flux_source *source, void *options, void *self);
    /* Called for each number before it is written; the function may change the number. Returns
     * NULL, or a text that says what the file cannot store, which becomes an error. May be NULL. */
    const char *(*to_flux)(const void *self, const char *member, double *number);
    /* Called before the arrays are written to a state dictionary, to log what must be set in
     * PyTorch by hand. May be NULL. */
    void (*to_torch)(const void *self);
    /* Makes a layer of another type from the options, instead of `build`: Flux's DepthwiseConv is a
     * function that makes a Conv. No object has this type then. May be NULL. */
    void *(*make)(const fx_type *type, const void *options);
    fx_layer_flow flow; /* of a container: the inputs of its layers */
} fx_layer;

/* Returns the layer table of a type; NULL if it has none. */
FX_API const fx_layer *fx_layer_of(const fx_type *type);
/* Makes a layer from an option struct of its type. The scope owns it. On failure: the type's error
 * object. */
FX_API void *fx_layer_make(const fx_type *type, const void *options);
/* Stores the options that would construct this layer in `options`, an option struct whose first
 * member is its size. Returns false if the type has no table, or if the layer has no parameters
 * from which to derive the options. */
FX_API bool fx_layer_options(const void *layer, void *options);
/* Writes Name(…) in Flux's notation. The function `describe` of types made by FX_LAYER_TYPE. */
FX_API void fx_layer_describe(const void *layer, fx_text *text);
/* Registers a layer type for fx_parse_model and for readers of Flux's files, until the process
 * ends. The library's layers are registered. The type must stay valid until then.
 * FX_STATUS_ARGUMENT if it has no table, or if another type has the same name or the same
 * fx_layer.flux. */
FX_API fx_status fx_register_layer(const fx_type *type);
/* Returns the i-th registered layer type, the library's first; NULL if i is too large. */
FX_API const fx_type *fx_layer_type(int64_t i);

/* When a layer uses its training behaviour. FX_ACTIVE_AUTO: inside FX_STEP (Flux's `nothing`);
 * FX_ACTIVE_ON, FX_ACTIVE_OFF: always, never (Flux's true and false; .active = false is
 * FX_ACTIVE_OFF). */
typedef enum fx_active { FX_ACTIVE_OFF = 0, FX_ACTIVE_ON = 1, FX_ACTIVE_AUTO = 2 } fx_active;

/* Initialiser: returns a new array of the given sizes, e.g. fx_glorot_uniform (nn.h). */
typedef fx_array *(*fx_init_fn)(int ndims, const int64_t *sizes);

/* Declares an option struct of a program's layer, at most 4096 bytes, from a list F(type, name,
 * default)…:
 *   #define GATE_OPTIONS(F) F(int64_t, size, 0) F(bool, bias, true)
 *   FX_OPTIONS(gate_options, GATE_OPTIONS); */
#define FX_OPTIONS(T, LIST) FXI_OPTION_STRUCT(T, LIST)

/* Option list and option struct of a layer without options. */
#define FX_NO_OPTIONS(F)
typedef struct fx_no_options {
    size_t fxi_size;
} fx_no_options;

/* FX_LAYER_TYPE(id, T, options, LIST, ROWS, (members of fx_type), members of fx_layer) declares the
 * type of layers with struct T. It follows FX_OPTIONS(options, LIST) and
 *   #define ROWS(M, O, F) …
 * which lists the rows in the order of positional arguments and of printing:
 *   M(member, kind, …)  a member of T. Kinds: CHILD, BUFFER (a child that is not trained), LIST,
 *                       SHARED (a function), NUMBER, INTEGER, FLAG, DIMS, STRING. The rest sets
 *                       members of fx_layer_row by name; FX_FROM(option, kind) links an option.
 *   O(option, kind, …)  an option without a member. FX_PRESENT(child) names the child that
 *                       depends on it.
 *   F(name, kind, …)    a field of Flux's struct only: SCALE, RNG, STATES or NOTHING.
 * fxi_type_ID() returns the type; fx_new(ID, …) and FX_MAKE(ID, …) use it. */
#define FX_LAYER_TYPE(id, T, options, LIST, ROWS, type_members, ...)                               \
    static inline const fx_type *fxi_type_##id(void)                                               \
    {                                                                                              \
        typedef T fxi_layer;                                                                       \
        typedef options fxi_options;                                                               \
        static const fx_field fields[] = {                                                         \
            ROWS(FXI_ROW_FIELD, FXI_ROW_NOTHING, FXI_ROW_NOTHING){0}}; /* one more: C has no empty \
                                                                          arrays */                \
        static const fx_layer_row rows[] = {                                                       \
            ROWS(FXI_ROW_MEMBER, FXI_ROW_OPTION, FXI_ROW_FLUX){0}};                                \
        static const fxi_options defaults = {.fxi_size = sizeof(fxi_options), LIST(FXI_DEFAULT)};  \
        static fxi_layer error; /* returned by constructors on failure */                          \
        static const fx_layer layer = {.fxi_size = sizeof(fx_layer),                               \
                                       .rows = rows,                                               \
                                       .row_size = sizeof(fx_layer_row),                           \
                                       .nrows = (int)(sizeof(rows) / sizeof(rows[0])) - 1,         \
                                       .defaults = &defaults,                                      \
                                       __VA_ARGS__};                                               \
        static const fx_type type = {.fxi_size = sizeof(fx_type),                                  \
                                     .size = sizeof(T),                                            \
                                     .fields = fields,                                             \
                                     .nfields = (int)(sizeof(fields) / sizeof(fields[0])) - 1,     \
                                     .describe = fx_layer_describe,                                \
                                     .error = &error,                                              \
                                     .layer = &layer,                                              \
                                     FXI_BARE_ type_members};                                      \
        return &type;                                                                              \
    }                                                                                              \
    struct fxi_eat_semicolon_##id
/* In a row: the option whose value the member holds. */
#define FX_FROM(opt, KIND) .option = offsetof(fxi_options, opt), .kind = FX_OPTION_##KIND
/* In a row of kind BIAS or FLAG: the child that exists if the option is true. */
#define FX_PRESENT(child) .present = offsetof(fxi_layer, child)
/* FX_MAKE(ID, options, LIST, first, values…) makes a layer (fx_layer_make); `first` is the option
 * of the first value:
 *   #define gate(...) ((Gate *)FX_MAKE(Gate, gate_options, GATE_OPTIONS, size, __VA_ARGS__)) */
#define FX_MAKE(id, options, LIST, first, ...)                                                     \
    FXI_CALL(fx_layer_make(fxi_type_##id(),                                                        \
                           FXI_OPTIONS(options, LIST(FXI_DEFAULT).first = __VA_ARGS__)))

#define FXI_ROW_NOTHING(...)
#define FXI_ROW_FIELD(f, KIND, ...)  {#f, offsetof(fxi_layer, f), FXI_ROW_##KIND},
#define FXI_ROW_MEMBER(f, KIND, ...) {.name = #f, .member = offsetof(fxi_layer, f), __VA_ARGS__},
#define FXI_ROW_OPTION(o, KIND, ...)                                                               \
    {.name = #o, .option = offsetof(fxi_options, o), .kind = FX_OPTION_##KIND, __VA_ARGS__},
#define FXI_ROW_FLUX(n, KIND, ...) {.name = #n, .kind = FX_OPTION_##KIND, __VA_ARGS__},
#define FXI_ROW_CHILD              FX_FIELD_CHILD, false
#define FXI_ROW_BUFFER             FX_FIELD_CHILD, true
#define FXI_ROW_LIST               FX_FIELD_LIST, false
#define FXI_ROW_SHARED             FX_FIELD_SHARED, false
#define FXI_ROW_NUMBER             FX_FIELD_NUMBER, false
#define FXI_ROW_INTEGER            FX_FIELD_INTEGER, false
#define FXI_ROW_FLAG               FX_FIELD_FLAG, false
#define FXI_ROW_STRING             FX_FIELD_STRING, false
#define FXI_ROW_DIMS               FX_FIELD_DIMS, false

FXI_END_C
#endif
