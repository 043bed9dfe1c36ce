/* again.h: types and functions that two files share: again.c chooses the values that are computed
 * again, again_change.c changes the steps. No other file includes it.
 */
#ifndef CFLUX_AGAIN_H
#define CFLUX_AGAIN_H

#include "build.h"
#include "uses.h"

enum {
    FXI_AGAIN_REGISTERS = 256,
    FXI_AGAIN_LEAVES = 8 /* the most leaves of an expression */
};

/* An operand of the expression (not a leaf of the graph), in the shape of the elements. */
typedef struct fxi_leaf {
    uint8_t reg; /* its register in V's step */
    fx_tensor tensor;
    int32_t value; /* −1: the value of the row is not stored yet */
    int64_t offset;
} fxi_leaf;

typedef struct fxi_again {
    const fxi_planner *how;
    fxi_plan *p;
    fxi_uses uses;
    int32_t nvalues; /* number of values before this rule added any; `uses` lists only these */
    bool *dead;      /* per step: nothing reads its output any more */
    bool *shared;    /* per value: readers of an equal value read it now; uses does not list them */
    /* The expression that is examined: value v (V), which is register `root` of step `made`. */
    int32_t made, v;
    int root, ninstr, nleaves;
    bool wanted[FXI_AGAIN_REGISTERS]; /* instructions of the expression */
    fxi_leaf leaves[FXI_AGAIN_LEAVES];
} fxi_again;

/* The shape of the elements that the program of s computes. */
static inline const fx_tensor *fxi_again_space(const fx_step *s)
{
    return s->cls == FX_CLASS_ELEMENTWISE ? &s->out
           : s->cls == FX_CLASS_ROW       ? &s->as.row.space
                                          : &s->as.reduce.space;
}

/* The register of output k of step s. Not for reductions: their program computes the elements that
 * are reduced, so no register of the program is the output. */
int fxi_again_register(const fx_step *s, int32_t k);
/* The output of step s that stores register r; −1: none. */
int32_t fxi_again_output(const fx_step *s, int r);
/* The number of the operand of s that equals the leaf; −1: none. */
int fxi_again_operand(const fx_step *s, const fxi_leaf *l);
/* Sets the leaf to operand k, or to output k, of V's step. */
void fxi_again_leaf_of_operand(const fxi_again *a, fxi_leaf *l, int k);
void fxi_again_leaf_of_output(const fxi_again *a, fxi_leaf *l, int32_t k);

/* Lets the readers of V read value `other`. */
void fxi_again_read_instead(fxi_again *a, int32_t other);
/* Replaces V by its expression in all its readers. False if an allocation fails. */
bool fxi_again_in_readers(fxi_again *a);
/* Removes output k of V's step. */
void fxi_again_drop_output(fxi_again *a, int32_t k);
/* Removes the steps that have no output any more. */
void fxi_again_remove_dead(fxi_again *a);

#endif
