/* cflux/layer.h: a layer as one table.
 *
 * FX_LAYER (tree.h) lists the fields of a struct; that is enough for gradients, moves, printing and
 * arrays in files. FX_LAYER_TYPE makes the descriptor from a table that says more: the options that
 * construct the layer, its names in Flux's files by version, and its names in PyTorch's state
 * dictionaries. From the table follow construction from options, the error object, printing in
 * Flux's notation, fx_parse_model, reading and writing of BSON, fx_torch_state, fx_trainmode and
 * copies. The library's own layers (src/nn) are made by the same macro. C only, as FX_OBJECT is:
 * C++ fills the structs by hand.
 */
#ifndef CFLUX_LAYER_H
#define CFLUX_LAYER_H

#include <cflux/tree.h>

FXI_BEGIN_C

/* How an option is stored in the option struct, and how the notation writes it. */
typedef enum fx_option_kind {
    FX_OPTION_NONE = 0,
    FX_OPTION_PAIR,     /* two int64_t, one after the other: in => out, older in, out */
    FX_OPTION_KERNEL,   /* fx_dims of sizes that multiply: (5, 5) */
    FX_OPTION_SIZES,    /* fx_dims of sizes that multiply: 4, 5 or (4, 5) */
    FX_OPTION_SIZE,     /* int64_t that counts parameters */
    FX_OPTION_INTEGER,  /* int64_t */
    FX_OPTION_REAL,     /* double; Float64 in Flux's files */
    FX_OPTION_REAL32,   /* double; Float32 in Flux's files */
    FX_OPTION_REALS,    /* two double, one after the other: (0.9, 0.999) */
    FX_OPTION_NUMBERS,  /* fx_dims: 2 or (2, 2) */
    FX_OPTION_PADDING,  /* fx_dims: the same, or SamePad() */
    FX_OPTION_AXES,     /* fx_axes; axes are written from 1, and : for all; the member: fx_dims */
    FX_OPTION_FUNCTION, /* fx_function *; NULL: the identity */
    FX_OPTION_BIAS,     /* int, true or false; Flux's files have false for an absent child */
    FX_OPTION_FLAG,     /* bool; Flux's files have nothing for an absent child */
    FX_OPTION_ACTIVE,   /* fx_active: true, false, nothing; the member: int64_t */
    FX_OPTION_INIT,     /* fx_init_fn, which the notation writes by name */
    FX_OPTION_VECTOR,   /* fx_array * of one axis; no notation */
    FX_OPTION_MATRIX,   /* fx_array * of two axes; no notation */
    FX_OPTION_ARRAY,    /* fx_array *; no notation */
    FX_OPTION_LAYERS,   /* a member that is an fx_list of layers */
    FX_OPTION_SCALE,    /* in Flux's files only: a Flux.Scale of the members scale, bias and act */
    FX_OPTION_RNG       /* in Flux's files only: the random number generator, which is not kept */
} fx_option_kind;

/* How PyTorch lays out an array that Flux lays out in another way. */
typedef enum fx_torch_layout {
    FX_TORCH_LAYOUT_SAME = 0,
    FX_TORCH_LAYOUT_TRANSPOSED, /* a matrix is transposed */
    FX_TORCH_LAYOUT_FLIPPED     /* a kernel is reversed along its spatial axes */
} fx_torch_layout;

/* One row of a layer's table: a member of the layer's struct, an option, or both in one. */
typedef struct fx_layer_row {
    const char *name;    /* of the member; of the option if the row has no member */
    size_t member;       /* offset in the layer's struct; 0: none */
    size_t option;       /* offset in the option struct; 0: none */
    size_t present;      /* offset of the child that a BIAS or FLAG says is there; 0: none */
    fx_option_kind kind; /* of the option; of a member without one, for Flux's files */
    const char *names;   /* keywords of the notation, separated by blanks, the printed one first */
    const char *place;   /* what errors call a positional option; NULL: keyword only */
    int64_t least;       /* smallest value of integers */
    bool required;       /* the notation must give it */
    bool silent;         /* never printed, as in Flux */
    const char *flux;    /* names of the field in Flux's structs, separated by blanks; NULL: none */
    const char *torch;   /* name in a state dictionary (default: the member's); "": left out */
    const char *torch_count; /* Int64 that PyTorch keeps beside it: written as 0, ignored on load */
    fx_torch_layout layout;
} fx_layer_row;

/* One form of the layer's struct in Flux. An array of forms ends with {0}. */
typedef struct fx_flux_form {
    const char *fields; /* in order: "weight bias σ" */
    const char *params; /* type parameters: names of fields, #name for the length of a tuple; NULL:
                           a form that is only read */
    int since, until;   /* versions of Flux, both included: 1206 is 0.12.6; 0: no limit */
} fx_flux_form;

/* The file that a layer is read from. */
typedef struct fx_flux_source {
    size_t fxi_size;
    int nfields;   /* of the struct in the file */
    bool in_lists; /* some chain around the layer is a list, as in Flux 0.6 */
    int newest;    /* the newest version of Flux that may have written the file: 1610 */
} fx_flux_source;

/* What FX_LAYER_TYPE adds to a descriptor; fx_type.layer points to it. */
typedef struct fx_layer {
    size_t fxi_size; /* sizeof(fx_layer) */
    const fx_layer_row *rows;
    size_t row_size; /* sizeof(fx_layer_row) */
    int nrows;
    const void *defaults; /* an option struct with its defaults */
    /* Completes `self`: members linked with options have the options' values already, all others
     * are zero. False after a failure that was recorded (fx_fail). NULL: nothing to complete. */
    bool (*build)(const fx_type *type, const void *options, void *self);
    /* Makes a layer that contains layers, `Name(layer, name = layer)`; names may be NULL. It
     * replaces build and the options. NULL: the layer contains none. */
    void *(*build_list)(int n, const char *const *names, void *const *layers);
    /* The inverse of build: fills in the options that no member holds. False: the layer has no
     * parameters to say them; it is printed as Name(). NULL: members hold all options. */
    bool (*recover)(const void *self, void *options);
    /* Size of Flux's struct where it depends on the layer, as fx_type.layout_bytes; may be NULL. */
    int64_t (*layout_bytes)(const void *self);
    bool semicolon;            /* the first keyword is printed after a semicolon, as in Flux */
    const char *flux;          /* name of Flux's struct, "Flux.Dense"; NULL: none */
    const fx_flux_form *forms; /* the newest form last */
    /* Completes what was read from a file: options, and children without an option in `self`. False
     * if they describe no such layer. May be NULL. */
    bool (*from_flux)(const fx_flux_source *source, void *options, void *self);
    /* Called for each number before it is written, which it may change. Returns what the file would
     * lose, which is then an error; NULL: nothing. May be NULL. */
    const char *(*to_flux)(const void *self, const char *member, double *number);
    /* Called before the arrays go into a state dictionary: logs what PyTorch must be told. NULL:
     * nothing. */
    void (*to_torch)(const void *self);
} fx_layer;

/* The table of a descriptor; NULL if it has none. */
FX_API const fx_layer *fx_layer_of(const fx_type *type);
/* Makes a layer from an option struct of its type. Owned by the scope; on failure the type's error
 * object. */
FX_API void *fx_layer_make(const fx_type *type, const void *options);
/* Writes the options that make a layer like this one into `options`, an option struct that begins
 * with its size. False if the layer does not say them (it has no table, or no parameters). */
FX_API bool fx_layer_options(const void *layer, void *options);
/* Writes Name(…) in Flux's notation: the member describe of types that FX_LAYER_TYPE makes. */
FX_API void fx_layer_describe(const void *layer, fx_text *text);
/* Makes a layer type known to fx_parse_model and to readers of Flux's files, until the process
 * ends. The library's layers are known. FX_STATUS_ARGUMENT if another type has the name. */
FX_API fx_status fx_register_layer(const fx_type *type);
/* The layer types that are known, the library's first; NULL behind the last one. */
FX_API const fx_type *fx_layer_type(int64_t i);

/* Whether a layer behaves as in training. FX_ACTIVE_AUTO: inside FX_STEP (Flux's `nothing`); the
 * others are Flux's false and true, so that .active = false is FX_ACTIVE_OFF. */
typedef enum fx_active { FX_ACTIVE_OFF = 0, FX_ACTIVE_ON = 1, FX_ACTIVE_AUTO = 2 } fx_active;

/* What initialises an array of the given sizes: fx_glorot_uniform and its like (nn.h). */
typedef fx_array *(*fx_init_fn)(int ndims, const int64_t *sizes);

/* An option struct of a program's layer, at most 4096 bytes, declared from a list
 * F(type, name, default)…:
 *     #define GATE_OPTIONS(F) F(int64_t, size, 0) F(bool, bias, true)
 *     FX_OPTIONS(gate_options, GATE_OPTIONS); */
#define FX_OPTIONS(T, LIST) FXI_OPTION_STRUCT(T, LIST)

/* The options of a layer that has none. */
#define FX_NO_OPTIONS(F)
typedef struct fx_no_options {
    size_t fxi_size;
} fx_no_options;

/* FX_LAYER_TYPE(id, T, options, LIST, ROWS, (members of fx_type), members of fx_layer) declares the
 * type of layers that are a T, after FX_OPTIONS(options, LIST) and after
 *     #define ROWS(M, O, F) …
 * a list of rows in the order of the notation's positional arguments and of printing:
 *   M(member, kind, …)  a member of T. Kinds: CHILD, BUFFER (a child that is not trained), LIST,
 *                       SHARED (a function), NUMBER, INTEGER, FLAG, DIMS. What follows sets members
 *                       of fx_layer_row by name; FX_FROM(option, kind) links an option.
 *   O(option, kind, …)  an option without a member. FX_PRESENT(child) says which child depends on
 *                       it.
 *   F(name, kind, …)    a field of Flux's struct only: SCALE, RNG.
 * fxi_type_ID() is the type, so that fx_new(ID, …) and FX_MAKE(ID, …) work. */
#define FX_LAYER_TYPE(id, T, options, LIST, ROWS, type_members, ...)                               \
    static inline const fx_type *fxi_type_##id(void)                                               \
    {                                                                                              \
        typedef T fxi_layer;                                                                       \
        typedef options fxi_options;                                                               \
        static const fx_field fields[] = {ROWS(FXI_ROW_FIELD, FXI_ROW_NOTHING, FXI_ROW_NOTHING)};  \
        static const fx_layer_row rows[] = {ROWS(FXI_ROW_MEMBER, FXI_ROW_OPTION, FXI_ROW_FLUX)};   \
        static const fxi_options defaults = {.fxi_size = sizeof(fxi_options), LIST(FXI_DEFAULT)};  \
        static T error; /* what constructors return on failure */                                  \
        static const fx_layer layer = {.fxi_size = sizeof(fx_layer),                               \
                                       .rows = rows,                                               \
                                       .row_size = sizeof(fx_layer_row),                           \
                                       .nrows = (int)(sizeof(rows) / sizeof(rows[0])),             \
                                       .defaults = &defaults,                                      \
                                       __VA_ARGS__};                                               \
        static const fx_type type = {.fxi_size = sizeof(fx_type),                                  \
                                     .size = sizeof(T),                                            \
                                     .fields = fields,                                             \
                                     .nfields = (int)(sizeof(fields) / sizeof(fields[0])),         \
                                     .describe = fx_layer_describe,                                \
                                     .error = &error,                                              \
                                     .layer = &layer,                                              \
                                     FXI_BARE_ type_members};                                      \
        return &type;                                                                              \
    }                                                                                              \
    struct fxi_eat_semicolon_##id
/* In a row: the option whose value the member holds. */
#define FX_FROM(opt, KIND) .option = offsetof(fxi_options, opt), .kind = FX_OPTION_##KIND
/* In a row of kind BIAS or FLAG: the child that is there if the option is true. */
#define FX_PRESENT(child) .present = offsetof(fxi_layer, child)
/* FX_MAKE(ID, options, LIST, first, values…) calls the constructor; `first` is the option that the
 * first value is for:
 *     #define gate(...) ((Gate *)FX_MAKE(Gate, gate_options, GATE_OPTIONS, size, __VA_ARGS__)) */
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
#define FXI_ROW_DIMS               FX_FIELD_DIMS, false

FXI_END_C
#endif
