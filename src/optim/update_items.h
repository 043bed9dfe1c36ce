/* update_items.h: the optimiser's state for one array, and the arrays of an update. Internal to
 * optim.
 */
#ifndef CFLUX_UPDATE_ITEMS_H
#define CFLUX_UPDATE_ITEMS_H

#include "node_copy.h"
#include "rules.h"

/* The optimiser's state for one array. */
typedef struct fxi_state_leaf {
    fx_object base;
    fx_rule *rule;
    fx_list states; /* the arrays of the state */
    double numbers[FXI_RULE_NUMBERS];
    bool frozen;
    bool named; /* a message has said that the loss does not depend on it */
    int ndims;  /* of the parameter, whose state may be divided */
    int64_t sizes[FX_MAX_DIMS];
    int64_t item; /* index in the update in progress; −1 between updates */
} fxi_state_leaf;
extern const fx_type fxi_leaf_type;
/* fx_is without a call: updates ask it for every object. */
static inline bool fxi_is_leaf(const void *object)
{
    return object && ((const fx_object *)object)->type == &fxi_leaf_type;
}
fxi_state_leaf *fxi_leaf_new(const fxi_leaf *parts);

typedef struct fxi_item {
    fxi_state_leaf *leaf;
    fx_array *x, *gradient;
    int tree;   /* number of its state, model and gradient in the update */
    bool total; /* the gradient is the complete sum of an AccumGrad */
    /* the new array and its new states; NULL: unchanged */
    fx_array *values[1 + FXI_RULE_STATES];
    /* The same without handles, retained: the values of an application that was repeated or copied
     * as a whole. NULL where `values` has the array. */
    struct fxi_node *nodes[1 + FXI_RULE_STATES];
    double numbers[FXI_RULE_NUMBERS];
} fxi_item;

typedef struct fxi_items {
    fxi_item *all;
    int64_t n, capacity;
    fx_array **views; /* arrays that may be views of updated arrays */
    int64_t nviews, view_capacity;
    int tree;                     /* number of the state, model and gradient that are gathered */
    const fx_communicator *among; /* its members average all gradients; NULL: see fxi_items_among */
    fx_array **means;             /* nmeans numbers, each to be replaced by its mean over `among` */
    int nmeans;
    int64_t nunused;  /* parameters without a gradient that no message has named yet */
    char unused[120]; /* the path of the first of them */
    int rank;         /* of this member */
    fx_status status;
} fxi_items;
/* The index of the array in which an AccumGrad adds up the gradients themselves; −1: there is none.
 */
int fxi_leaf_sum(const fxi_state_leaf *l);
/* The communicator over whose members the gradient of a leaf is averaged; NULL: it is not averaged.
 */
const fx_communicator *fxi_items_among(const fxi_items *s, const fxi_state_leaf *l);
/* A handle of the new array (k = 0) or of the new state k − 1; NULL: unchanged. */
fx_array *fxi_item_value(fxi_item *it, int64_t k);
/* The trees of an update, n of each. */
typedef struct fxi_update_trees {
    int n;
    void *const *states, *const *models, *const *gradients;
} fxi_update_trees;
/* Adds the arrays of an update of this state. */
void fxi_items_gather(fxi_items *s, void *state, void *model, void *gradient);
/* Replaces the gradients of distributed rules by their means over all members (average.c), each
 * with the weight of its number of observations; negative: with the same weight. A gradient that
 * an AccumGrad only adds to its sum stays this member's own; then the complete sum is averaged.
 * *io_guard becomes a number that is finite only if the guards of all members are; NULL stays NULL.
 */
fx_status fxi_items_average(fxi_items *s, fx_array **io_guard, double observations);
/* fx_update with the means of all members' gradients, whatever the rules. The n numbers of io_means
 * (n ≥ 1) are replaced by their means too; the first is the guard. */
fx_status fxi_update_among(const fx_communicator *among, const fx_update_args *a, int n,
                           fx_array **io_means);
/* The message of an update about parameters on which this member's loss does not depend, for a
 * gradient that is averaged before the update. */
void fxi_update_name_unused(const fx_communicator *among, const fx_update_args *a);
/* Logs once per state that all gradients of the model are the literal 0 that fx_gradient returns
 * for a parameter on which the loss does not depend. */
void fxi_update_note_constant(void *state, void *model, void *gradient);
/* Replaces the unfinished sums of AccumGrads, which each member has of its own, by their means, so
 * that a checkpoint of one member has the gradients of all. */
fx_status fxi_states_settle(const fx_communicator *among, void *state);
/* After an update has failed: tells the reason to the other members of distributed rules, which
 * wait for this member (state_walk.c). */
void fxi_states_refuse(int n, void *const *states, fx_status status);
/* Replaces new parts of divided parameters by the whole new arrays (divide.c). */
fx_status fxi_items_join(fxi_items *s);
void fxi_items_done(fxi_items *s);
/* Begins an item without new values. Clears only the entries that its state has, because the lists
 * are much longer; `numbers` are filled in with the new values. */
static inline void fxi_item_begin(fxi_item *it, fxi_state_leaf *l, fx_array *x, fx_array *gradient,
                                  int tree)
{
    it->leaf = l;
    it->x = x;
    it->gradient = gradient;
    it->tree = tree;
    it->total = false;
    for (int64_t k = 0; k <= l->states.n; k++) {
        it->values[k] = NULL;
        it->nodes[k] = NULL;
    }
}
/* Adds an array with its gradient. */
void fxi_items_add(fxi_items *s, fxi_state_leaf *l, fx_array *x, fx_array *g);
/* The operands of an application: x, dx and the states. */
static inline int fxi_item_operands(const fxi_item *it)
{
    return 2 + (int)it->leaf->states.n;
}
static inline fx_array *fxi_item_operand(const fxi_item *it, int i)
{
    return i == 0 ? it->x : i == 1 ? it->gradient : it->leaf->states.items[i - 2];
}
/* Recorded training steps (recorded_items.c). Notes the items of an update that began at entry
 * `first` of the tape. */
void fxi_note_items(struct fxi_context *c, int32_t first, const fxi_items *s,
                    const fxi_update_trees *trees);
/* Gathers the same as in the recorded training step. False: nothing is added, and the trees must be
 * walked.
 */
bool fxi_repeat_items(const struct fxi_context *c, fxi_items *s, const fxi_update_trees *trees);
/* Consecutive items whose rules have the same literals (recorded_rule.c). */
typedef struct fxi_rule_run {
    int32_t first;   /* the entry where they begin */
    int64_t item, n; /* the first item, and the number of items; 0: no item so far */
} fxi_rule_run;
/* While a training step is recorded: adds item i, whose application began at entry `first`.
 * `shared`: it made no literals of its own. */
void fxi_note_rule(struct fxi_context *c, fxi_rule_run *run, const fxi_items *s, int64_t i,
                   int32_t first, bool shared);
/* Notes the run, which ends at the current entry, and empties it. */
void fxi_note_rules(struct fxi_context *c, fxi_rule_run *run, const fxi_items *s);
/* Repeats the run of rules that was recorded here, and fills in the new values of its items, the
 * first of which is item i. Returns the number of items. 0: they differ from the recorded ones. */
int64_t fxi_repeat_rules(struct fxi_context *c, fxi_items *s, int64_t i,
                         const fxi_literals *literals);
/* The nodes of an application, from which those of further applications are made (copied_rule.c).
 * Larger applications are not copied. Adam has 14 nodes and 8 literals, and a rule in
 * MixedPrecision after two others about 30. Further literals are nodes of each application. */
enum { FXI_COPIED_NODES = 32, FXI_COPIED_LITERALS = 32 };
/* What an application is given: x, dx, its states, and literals. */
enum { FXI_COPIED_GIVEN = 2 + FXI_RULE_STATES + FXI_COPIED_LITERALS };
typedef struct fxi_copied_rule {
    const fxi_item *from;                 /* its application is copied; NULL: none */
    int n;                                /* nodes, inputs first; < 0: see copied_rule.c */
    int16_t value[1 + FXI_RULE_STATES];   /* numbers of the new values */
    fx_dtype dtypes[2 + FXI_RULE_STATES]; /* of x, dx and the states */
    /* The node of each number, in the latest application. */
    struct fxi_node *values[FXI_COPIED_GIVEN + FXI_COPIED_NODES];
    fxi_copied_node all[FXI_COPIED_NODES];
} fxi_copied_rule;
/* Further applications with the same literals may copy the one of `it`. */
void fxi_copy_begin(fxi_copied_rule *r, const fxi_item *it);
/* Fills in the new values of an item. False: the application cannot be copied, and nothing has
 * changed. */
bool fxi_copy_rule(fxi_copied_rule *r, fxi_item *it, const fxi_literals *l, fx_status *out);
/* The number of arrays that the update may change. */
int fxi_items_handles(const fxi_items *s);
/* Builds the new array and the new states of an item. For the first item, `copied->from` must be
 * NULL. */
fx_status fxi_item_apply(fxi_item *it, fxi_literals *literals, fxi_checks *norms,
                         fxi_copied_rule *copied);
/* Records which norm made an update fail, unless the guard did. */
void fxi_blame_norm(fx_array *guard, const fxi_checks *norms);
/* After an update: the rules with the next factor of the loss (fxi_rule_rescaled). */
fx_status fxi_states_rescale(int n, void *const *states, bool finite);

fx_status fxi_update_no_memory(void);
/* Grows *array by doubling so that it can hold n + 1 items. */
bool fxi_update_grow(void *array, int64_t *capacity, int64_t n, size_t size);

#endif
