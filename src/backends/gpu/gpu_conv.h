/* gpu_conv.h: a convolution as a product of matrices (gpu_conv.c): its numbers, which are
 * parameters of the text, and its tiles (gpu_conv_kinds.c). */
#ifndef FXI_GPU_CONV_H
#define FXI_GPU_CONV_H

#include "gpu_text.h"

/* Terms of a round, whose factors are in local memory: of a row or of a tile. */
enum { FXI_GPU_CONV_DEPTH = 16, FXI_GPU_CONV_TILE_DEPTH = 8 };

/* Parameters of the text: one for each spatial axis, and single ones. gpu_conv.c explains rows m,
 * terms k, phases, `source` and `other`. */
#define AXIS_PARAMS(X)                                                                             \
    X(ROWS)          /* values of m's digit, in all phases together */                             \
    X(TAPS)          /* values of k's digit, in all phases together */                             \
    X(FROM)          /* position of the first row's first term; DATA: padding before */            \
    X(ROW_DISTANCE)  /* distance in the source for one of m's digit */                             \
    X(TERM_DISTANCE) /* distance in the source for one of k's digit */                             \
    X(SIZE)          /* size of the source */                                                      \
    X(OTHER)         /* distance in `other` for one of k's digit */                                \
    X(OUT)           /* distance in the output for one of m's digit */                             \
    X(PHASES)        /* number of phases; this and the following are used only with phases */      \
    X(STRIDE)                                                                                      \
    X(DILATION)                                                                                    \
    X(EVERY)     /* from one tap of a phase to the next, in taps */                                \
    X(OTHER_TAP) /* distance in `other` for one tap */                                             \
    X(OUT_PHASE) /* distance in the output for one phase */
#define PARAMS(X)                                                                                  \
    X(ROW_TILES)                                                                                   \
    X(COLUMN_TILES)                                                                                \
    X(SLICES) /* groups between which the terms of a result are divided */                         \
    X(LENGTH) /* terms of a slice, whole rounds; each lane of a group has a slice */               \
    X(COLUMNS)                                                                                     \
    X(LAST_ROWS)   /* size of the fourth digit of m */                                             \
    X(LAST_TERMS)  /* size of the fourth digit of k */                                             \
    X(SOURCE_ROW)  /* distance in the source for one of m's fourth digit */                        \
    X(SOURCE_TERM) /* the same for one of k's fourth digit */                                      \
    X(SOURCE_GROUP)                                                                                \
    X(OTHER_START)                                                                                 \
    X(OTHER_TERM)                                                                                  \
    X(OTHER_COLUMN)                                                                                \
    X(OTHER_GROUP)                                                                                 \
    X(OUT_ROW)                                                                                     \
    X(OUT_COLUMN)                                                                                  \
    X(OUT_GROUP)                                                                                   \
    X(OUT_SLICE)
#define NUMBER(name) name,
enum { AXIS_PARAMS(NUMBER) AXIS_PARAM_COUNT };
enum { AXES_END = 3 * AXIS_PARAM_COUNT - 1, PARAMS(NUMBER) PARAM_COUNT };

/* Work-items along rows and columns, each with 8 rows and `rn` columns (conv_tiles.cl). */
typedef struct fxi_gpu_conv_tile {
    int tx, ty, rn;
} fxi_gpu_conv_tile;

typedef struct fxi_gpu_contraction {
    const fx_step *step;
    const fxi_gpu_type *type;
    int64_t v[PARAM_COUNT];
    int64_t rows, terms, groups; /* counts of the largest phase */
    int64_t length;              /* elements of the output */
    bool phased;
    int items, lanes; /* work-items of a group, along rows and slices */
    int each, width;  /* rows and columns of a work-item */
    bool wide;
    /* The tile of a group; NULL: work-items with rows of their own. Then the following are unused.
     */
    const fxi_gpu_conv_tile *tile;
    int axes;     /* spatial axes */
    bool by_rows; /* are rows neighbours in the source? Otherwise terms are. */
} fxi_gpu_contraction;

/* Positions in a tile's words are below this number (conv_tiles.cl). */
int64_t fxi_gpu_conv_far(int axes);
/* Chooses a tile and slices, if tiles are likely to be faster than rows (gpu_conv_tile.c). */
void fxi_gpu_conv_choose_tile(fxi_gpu_contraction *c, const fxi_gpu_limits *limits);

fxi_gpu_contraction fxi_gpu_contraction_of(const fx_step *s, const fxi_gpu_limits *limits);

#endif
