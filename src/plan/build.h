/* build.h: a plan while it is made; shared by the files of this folder. */
#ifndef CFLUX_BUILD_H
#define CFLUX_BUILD_H

#include "plan.h"
#include "planner.h"
#include "group.h"

/* Where a node's elements are while the plan is built. */
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
    int32_t *last; /* per node: value of a channels-last copy, or −1 */
    bool views;
    bool by_steps; /* the backend is not asked for the plan as a whole */
} fxi_builder;

static inline int64_t fxi_node_bytes(const fxi_node *n)
{
    return fxi_length(n->ndim, n->shape) * (int64_t)fx_dtype_size((fx_dtype)n->dtype);
}

/* The attribute of a node as an instruction. */
static inline int64_t fxi_instr_attr(const fxi_node *n)
{
    return n->op == FX_OP_REDUCE ? n->attr.reduce.fold : n->op == FX_OP_POWI ? n->attr.exponent : 0;
}

/* The place of id in a list of n, or −1. */
static inline int fxi_find_id(const int32_t *list, int n, int32_t id)
{
    for (int i = 0; i < n; i++)
        if (list[i] == id)
            return i;
    return -1;
}

/* All of these return −1, NULL or false when memory is out. */

int32_t fxi_add_value(fxi_plan *p, fxi_value_kind kind, int32_t index, int64_t bytes);
int32_t fxi_add_slot(fxi_plan *p, int32_t constant, uint8_t dtype); /* a value too */

/* What is allowed for the product that a step computes, if it computes one. */
static inline void fxi_set_precision(const fxi_builder *b, fx_step *s)
{
    if (s->cls == FX_CLASS_MATMUL)
        s->as.matmul.precision = b->g->precision;
    if (s->cls == FX_CLASS_CONV)
        s->as.conv.precision = b->g->precision;
}

/* A new step of the plan, of the operation's class. attr: NULL for zeros. */
fx_step *fxi_add_step(fxi_builder *b, uint8_t op, int nin, const fx_attr *attr);
/* Input i of a step: node n as it is seen at a place. */
void fxi_set_input(fx_step *s, int i, const fxi_node *n, const fxi_place *at);
/* The output of the newest step: a new dense arena value in `at`. */
bool fxi_set_output(fxi_builder *b, fx_step *s, const fxi_node *n, fxi_place *at);

/* The sizes of x, dense: what a program runs over. */
void fxi_set_space(fx_tensor *space, const fxi_node *x);

/* Copies n's elements, as seen through `from`, into dense memory. */
bool fxi_copy_dense(fxi_builder *b, const fxi_node *n, const fxi_place *from, fxi_place *to);
/* A place of node id that is dense, made if need be. */
bool fxi_dense_place(fxi_builder *b, int32_t id, fxi_place *out);

/* The step of a group, of a row step's members, and of any other node. */
bool fxi_lower_group(fxi_builder *b, int32_t root);
bool fxi_lower_row(fxi_builder *b, int32_t root);
bool fxi_lower(fxi_builder *b, int32_t id);

/* Frees what a step is made of, but not what the backend made ready. */
void fxi_step_free(fx_step *s);

/* Gives matrix products and forward convolutions the elementwise steps that finish them. */
bool fxi_add_epilogues(const fxi_planner *how, fxi_plan *p);
/* Makes a step ready, also one that the backend was asked about before. */
fx_status fxi_prepare_step(const fxi_planner *how, const fxi_plan *p, fx_step *s);
/* Makes the steps with an epilogue ready; what the backend cannot do of an epilogue becomes a step
 * after its product. False when memory is out. */
bool fxi_settle_epilogues(const fxi_planner *how, fxi_plan *p);

/* A movement node as another look at its input's place; false when only a copy can do it. */
bool fxi_view(const fxi_node *n, const fxi_place *from, fxi_place *to);

/* ---- layouts (layout.c) ---- */

/* A conv or pool node as a step that is channels last; *out_done: whether it is one. */
bool fxi_lower_channels_last(fxi_builder *b, int32_t id, bool *out_done);
/* Gives those operands of an elementwise or reduce step that have its full size (`space`) one
 * layout, by copies where they differ; *out_last: which. `ids` are the operands' nodes. */
bool fxi_settle_layout(fxi_builder *b, const fxi_node *root, const fxi_node *space, int n,
                       const int32_t *ids, fxi_place *in, bool *out_last);
/* Node id as it is seen, but dense where it lies channels last. */
bool fxi_plain_place(fxi_builder *b, int32_t id, fxi_place *out);
/* Rewrites the newest step, complete with its outputs, in the order of channels-last memory. */
void fxi_turn_step(fxi_builder *b, fx_step *s);
/* Only its axes: those of all its tensors, and of what it reduces. */
void fxi_turn_axes(fx_step *s);
/* The strides of an output of a step that was turned. */
void fxi_turn_place(const fxi_node *n, fxi_place *at);

/* Merges steps of one program over different tensors (planner rule 5). */
bool fxi_merge_foreach(fxi_plan *p);

/* Lets outputs take over the buffers of the values they replace, and orders the steps for it. */
bool fxi_donate(fxi_builder *b);

#endif
