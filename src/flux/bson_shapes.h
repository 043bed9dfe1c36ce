/* bson_shapes.h: describes layers and rules as structs of Julia's packages. Internal. */
#ifndef CFLUX_BSON_SHAPES_H
#define CFLUX_BSON_SHAPES_H

#include <cflux/tree.h>

enum { FXI_SHAPE_FIELDS = 32, FXI_SHAPE_PARAMS = 5, FXI_SHAPE_PATH = 8 };

typedef struct fxi_shape fxi_shape;

/* The value of a field. */
typedef enum fxi_item_kind {
    FXI_ITEM_OBJECT = 0, /* an array, function, layer or tuple; NULL is Julia's nothing */
    FXI_ITEM_LAYER,      /* an object that a chain applies to an array */
    FXI_ITEM_BOOL,
    FXI_ITEM_INT,
    FXI_ITEM_FLOAT32,
    FXI_ITEM_FLOAT64,
    FXI_ITEM_SYMBOL, /* `object` is its text */
    FXI_ITEM_DIMS,   /* a tuple of integers */
    FXI_ITEM_LIST,   /* the layers of a chain: a tuple of objects, or a named tuple */
    FXI_ITEM_SINGLE, /* the only value of a singleton type: Base.Colon, Random.TaskLocalRNG, … */
    FXI_ITEM_SCALE,  /* the Flux.Scale of a LayerNorm */
    FXI_ITEM_BROADCAST /* Base.Fix1(broadcast, act) */
} fxi_item_kind;

typedef struct fxi_item {
    fxi_item_kind kind;
    const void *object; /* OBJECT, LIST (fx_list), DIMS (fx_dims); SCALE and BROADCAST: the layer */
    const char *const *path; /* SINGLE */
    int64_t integer;         /* also for a Bool; DIMS: added to each integer */
    double number;
} fxi_item;

/* A type parameter: a number, true or false, a symbol, or (field ≥ 0) the type of a field. */
enum { FXI_PARAM_NUMBER = -1, FXI_PARAM_FLAG = -2, FXI_PARAM_WORD = -3 };
typedef struct fxi_param {
    int field;
    int64_t number;
    const char *words; /* WORD: the symbol is word `number` of these */
} fxi_param;

struct fxi_shape {
    const char *const *path; /* {"Flux", "Dense", NULL} */
    const char *names;   /* field names, "weight bias σ"; NULL: look them up by the type's name */
    const char *lost;    /* why the struct cannot store the object, for a message; NULL: it can */
    const char *unknown; /* member with an array for which the struct has no field; NULL: none */
    int nitems, nparams;
    fxi_item items[FXI_SHAPE_FIELDS];
    fxi_param params[FXI_SHAPE_PARAMS];
    const char *own_path[FXI_SHAPE_PATH + 1]; /* storage for `path` if the name was split */
    char own_name[120];
};

/* Splits own_name at its dots and makes the parts the path: "Flux.Dense" becomes Flux and Dense. A
 * name without modules belongs to Main. */
void fxi_shape_split_name(fxi_shape *s);
/* The struct that Flux has for the object or the item; false if it has none. */
bool fxi_shape_of(const void *object, fxi_shape *out);
bool fxi_shape_of_item(const fxi_item *item, fxi_shape *out);

#endif
