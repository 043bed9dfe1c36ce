/* build.h: the state of a plan while it is built, and the functions that the files of this folder
 * share. Nothing outside the folder includes it.
 */
#ifndef CFLUX_BUILD_H
#define CFLUX_BUILD_H

#include "plan.h"
#include "planner.h"
#include "group.h"

/* Where the elements of a node are while the plan is built: a view of a value. `value` is −1 for
 * nodes inside a group, which are never in memory. */
typedef struct fxi_place {
    int32_t value;
    int32_t dense; /* value of a dense copy made for a kernel that needs one, or −1 */
    int64_t offset;
    int64_t stride[FX_MAX_DIMS];
} fxi_place;

typedef struct fxi_builder {
    const fxi_planner *how;
    const fxi_graph *g;
    fxi_plan *p;
    fxi_place *places; /* per node */
    fxi_groups groups;
    int32_t *order; /* per node: the PERMUTE node in whose order of axes the product is stored; −1:
                       column-major, or not a product. NULL: all are column-major */
    int32_t *channels_last_copy; /* per node: the value of its channels-last copy, or −1; a copy is
                       made once, however many steps need it */
    bool views;
} fxi_builder;

static inline int64_t fxi_node_bytes(const fxi_node *n)
{
    return fxi_length(n->ndim, n->shape) * (int64_t)fx_dtype_size((fx_dtype)n->dtype);
}

/* The attribute that the instruction for node n carries. Only reductions and integer powers have
 * one; other elementwise operations have none. */
static inline int64_t fxi_instr_attr(const fxi_node *n)
{
    return n->op == FX_OP_REDUCE ? n->attr.reduce.fold : n->op == FX_OP_POWI ? n->attr.exponent : 0;
}

/* The position of id in a list of n, or −1. */
static inline int fxi_find_id(const int32_t *list, int n, int32_t id)
{
    for (int i = 0; i < n; i++)
        if (list[i] == id)
            return i;
    return -1;
}

/* Is the tensor one number for all elements? */
static inline bool fxi_is_number(const fx_tensor *t)
{
    return fxi_is_single(t->ndim, t->shape, t->stride);
}

/* Of the functions below, those that allocate return −1, NULL or false if that fails. */

/* Returns −1 also if no process can have so much memory, and then sets p->too_large to `bytes`. */
int32_t fxi_add_value(fxi_plan *p, fxi_value_kind kind, int32_t index, int64_t bytes);
int32_t fxi_add_literal(fxi_plan *p,
                        fxi_plan_literal literal); /* also adds a value for it and returns the
                                                      number of that value */

/* Sets the precision allowed for the product that a step computes, if it computes one. */
static inline void fxi_set_precision(const fxi_builder *b, fx_step *s)
{
    if (s->cls == FX_CLASS_MATMUL)
        s->as.matmul.precision = b->g->precision;
    if (s->cls == FX_CLASS_CONV)
        s->as.conv.precision = b->g->precision;
}

/* Appends a step of the operation's class. attr: NULL for zeros. The pointer is valid until the
 * next step is added: the list may move. */
fx_step *fxi_add_step(fxi_builder *b, uint8_t op, int nin, const fx_attr *attr);
/* Sets input i of a step: node n, seen through a place. */
void fxi_set_input(fx_step *s, int i, const fxi_node *n, const fxi_place *at);
/* Sets the output of the latest step: a new dense arena value, which `at` then names. */
bool fxi_set_output(fxi_builder *b, fx_step *s, const fxi_node *n, fxi_place *at);

/* Sets the iteration space of a program: the sizes of x with dense strides. */
void fxi_set_space(fx_tensor *space, const fxi_node *x);

/* Copies n's elements, as seen through `from`, into dense memory. */
bool fxi_copy_dense(fxi_builder *b, const fxi_node *n, const fxi_place *from, fxi_place *to);
/* A dense place of node id. Adds a copy step if the node has none; later calls return the same
 * copy. */
bool fxi_dense_place(fxi_builder *b, int32_t id, fxi_place *out);

/* Add the step of a group, of the members of a row step, and of any other node. */
bool fxi_lower_group(fxi_builder *b, int32_t root);
bool fxi_lower_row(fxi_builder *b, int32_t root);
bool fxi_lower(fxi_builder *b, int32_t id);

/* Frees the memory of a step, but not `ready`, which the backend frees (fxi_planner.release). */
void fxi_step_free(fx_step *s);

/* Offers all steps, or parts of them, to `plan_prepare` (parts.c). Failures are recorded. */
fx_status fxi_offer_parts(const fxi_planner *how, fxi_plan *p);
/* Moves elementwise steps that finish a matrix product or a forward convolution into that step
 * (epilogue.c). */
bool fxi_add_epilogues(const fxi_planner *how, fxi_plan *p);
/* Makes a step ready. The backend may have been asked about it before, with a longer epilogue. */
fx_status fxi_prepare_step(const fxi_planner *how, const fxi_plan *p, fx_step *s);
/* Makes the steps with an epilogue ready. Instructions that the backend refuses become a step after
 * their product. False if an allocation fails. */
bool fxi_settle_epilogues(const fxi_planner *how, fxi_plan *p);

/* Expresses a movement node as a view of its input's place. False: only a copy can do it. */
bool fxi_view(const fxi_node *n, const fxi_place *from, fxi_place *to);

/* ---- layouts (layout.c) ---- */

/* Does the backend want the first pending convolution of g that is not a matrix product in
 * channels-last order? Then row.c makes no rows around kept axes and no columns: row steps read
 * column-major operands (fxi_plain_place), so the activations would be copied. */
bool fxi_runs_channels_last(const fxi_planner *how, const fxi_graph *g);
/* Adds a conv or pool node as a channels-last step if the backend wants that; *out_done: whether it
 * did. */
bool fxi_lower_channels_last(fxi_builder *b, int32_t id, bool *out_done);
/* Gives the operands of an elementwise or reduce step that have its full size (`space`) one layout,
 * by copies where they differ. *out_channels_last: the layout is channels last. `ids` are the
 * operands' nodes. */
bool fxi_settle_layout(fxi_builder *b, const fxi_node *root, const fxi_node *space, int n,
                       const int32_t *ids, fxi_place *in, bool *out_channels_last);
/* The place of node id, replaced by a dense copy if it is channels last. */
bool fxi_plain_place(fxi_builder *b, int32_t id, fxi_place *out);
/* Rewrites the latest step, complete with its outputs, in the order of channels-last memory. */
void fxi_permute_step(fxi_builder *b, fx_step *s);
/* The part of fxi_permute_step that needs no plan: the axes of all tensors, and of the reduction.
 */
void fxi_permute_axes(fx_step *s);
/* The strides of an output of a step that fxi_permute_step has rewritten. */
void fxi_permute_place(const fxi_node *n, fxi_place *at);

/* ---- products, order and merged steps ---- */

/* Decides which products store their axes in another order (product_order.c): fills in b->order. */
bool fxi_order_products(fxi_builder *b);
/* Gives the latest step, the product of node id, the strides of the order decided for it. */
void fxi_reorder_product(fxi_builder *b, int32_t id, fx_step *s);
/* Does a product store its axes in another order? */
static inline bool fxi_is_reordered(const fx_step *s)
{
    return s->cls == FX_CLASS_MATMUL && !fxi_is_dense(s->out.ndim, s->out.shape, s->out.stride);
}

/* Chooses the collective steps that run beside others, after note_lives (overlap.c). */
bool fxi_overlap(fxi_builder *b);

/* Lets steps compute cheap values again instead of reading them from memory (planner rule 8;
 * again.c). */
bool fxi_compute_again(const fxi_planner *how, fxi_plan *p);

/* Moves products and reductions to where their operands exist, if that frees memory (early.c). */
bool fxi_run_early(fxi_plan *p);

/* Merges steps of attention over the same operands: the result with the logarithms, and the
 * gradients (merge_attention.c). Before donation. */
void fxi_merge_attention(const fxi_planner *how, fxi_plan *p);

/* Merges paddings of several axes with one number (merge_pads.c). Before donation. False if an
 * allocation fails. */
bool fxi_merge_pads(fxi_plan *p);

/* Merges steps of one program over different tensors (planner rule 5; foreach.c). */
bool fxi_merge_foreach(fxi_plan *p);
/* Merges small reductions with equal programs (foreach_reduce.c). After fxi_merge_foreach. */
bool fxi_merge_reductions(fxi_plan *p);
/* The step that overwrites each leaf; nsteps if none does. NULL if the allocation fails. */
int32_t *fxi_overwriters(const fxi_plan *p);
/* Equal operations on equal registers. Passes are not compared. */
bool fxi_same_instruction(const fx_instr *x, const fx_instr *y);
/* Literals may differ: they are operands. */
bool fxi_same_instructions(const fx_program *p, const fx_program *q);

/* Equal types, shapes and strides. */
static inline bool fxi_same_view(const fx_tensor *x, const fx_tensor *y)
{
    bool same = x->dtype == y->dtype && x->ndim == y->ndim;
    for (int a = 0; same && a < x->ndim; a++)
        same = x->shape[a] == y->shape[a] && x->stride[a] == y->stride[a];
    return same;
}

/* Lets outputs take over the buffers of the values they replace, and orders the steps for it
 * (donate.c). */
bool fxi_donate(fxi_builder *b);

#endif
