/* operands.h: helpers for the functions that record operations. Internal to this folder. */
#ifndef CFLUX_OPERANDS_H
#define CFLUX_OPERANDS_H

#include "gradient.h"
#include "handle.h"
#include "primitives.h"

typedef struct fxi_operand {
    fxi_node *node; /* NULL for a number that has no node yet */
    fxi_arg arg;
    bool literal;
    bool made; /* true: this struct owns the reference; false: an argument does */
} fxi_operand;

/* Fills in n operands from arguments. The caller releases them, also after a failure. */
fx_status fxi_resolve(const char *op, const fxi_arg *args, int n, fxi_operand *out);
static inline void fxi_operands_release(fxi_operand *o, int n)
{
    for (int i = 0; i < n; i++)
        if (o[i].made && o[i].node)
            fxi_node_release(o[i].node);
}
/* May the calling thread use x? Records nothing. */
static inline bool fxi_usable(const fxi_context *c, const fx_array *x)
{
    return fxi_array_ok(x) && fxi_node_usable(c, x->node);
}
/* Evaluates pending results if there are too many, then calls fxi_check_array. */
static inline fx_status fxi_check_operand(const char *op, const fx_array *x)
{
    return fxi_usable(fxi_begin(), x) ? FX_OK : fxi_check_array(op, x);
}

/* The node of a number; NULL if the allocation fails. The caller owns the reference. */
fxi_node *fxi_literal_node(const fxi_arg *number, fx_dtype dtype);
/* fxi_operand_literal makes a node of a number, fxi_operand_convert converts an operand. Both
 * return false if an allocation fails. */
bool fxi_operand_literal(fxi_operand *o, fx_dtype dtype);
bool fxi_operand_convert(fxi_operand *o, fx_dtype dtype);
/* Reshapes an operand to `ndim` axes (1s at the end) and expands it to `shape`; false if an
 * allocation fails. */
bool fxi_operand_stretch(fxi_operand *o, int ndim, const int64_t *shape);

/* The common element type of the operands from `first` on, by Julia's promotion. Literals do not
 * widen it, but a real literal turns integers into Float32. Only literals: Float32. */
fx_dtype fxi_common_type(const fxi_operand *o, int first, int n);
/* Do the operands from `first` on include an integer literal that the integer type `type` cannot
 * represent? */
bool fxi_any_beyond(const fxi_operand *o, int first, int n, fx_dtype type);
static inline bool fxi_any_literal(const fxi_operand *o, int n)
{
    for (int i = 0; i < n; i++)
        if (o[i].literal)
            return true;
    return false;
}
/* *io: the common device of the operands so far; NULL: none of them names a device. This function
 * adds the device of `operand` (NULL: a number). FX_STATUS_DEVICE if they are on two devices. */
fx_status fxi_add_device(const char *op, const fxi_node *operand, fx_device **io);
/* The device of all operands; NULL if none names one. */
fx_status fxi_common_device(const char *op, const fxi_operand *o, int n, fx_device **out);
fx_status fxi_same_device(const char *op, const fx_array *a, const fx_array *b, fx_device **out);
/* The node whose shape all operands share, numbers ignored; NULL if they differ. */
static inline const fxi_node *fxi_all_alike(const fxi_operand *o, int n)
{
    const fxi_node *first = NULL;
    for (int i = 0; i < n; i++) {
        if (!o[i].node || o[i].node->ndim == 0)
            continue;
        if (first && !fxi_same_shape(first, o[i].node))
            return NULL;
        first = o[i].node;
    }
    return first;
}
/* Julia's broadcasting: axis k of every operand has the same size or 1. */
fx_status fxi_common_shape(const char *op, const fxi_operand *o, int n, int *out_ndim,
                           int64_t *out);

/* A node over one array. */
fx_array *fxi_node_over(fx_op op, fx_array *x, fx_dtype dtype, int ndim, const int64_t *shape,
                        const fx_attr *attr);

#endif
