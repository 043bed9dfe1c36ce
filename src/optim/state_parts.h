/* state_parts.h: takes optimiser states and rules apart and rebuilds them, for files. Internal. */
#ifndef CFLUX_STATE_PARTS_H
#define CFLUX_STATE_PARTS_H

#include <cflux/optim.h>

/* The numbers in a state (rules, powers of β, frozen flags), that is everything but its arrays.
 * Writes at most `capacity` numbers and returns their total count: 0 for the state of a model
 * without parameters, −1 if the object is not a state, −2 if the walk failed (recorded). A leaf
 * that several paths reach is counted once. fxi_state_numbers_set accepts the numbers of a state
 * with the same structure and changes all or nothing. It also accepts the numbers of older files,
 * which repeat those of a leaf for every path to it. */
int64_t fxi_state_numbers(void *state, double *out, int64_t capacity);
fx_status fxi_state_numbers_set(void *state, const double *numbers, int64_t n);

/* The state of one array: the arrays that the rule keeps, with the array's sizes and type, and the
 * powers of β. fxi_leaf_of takes a leaf of a state apart; false if the object is not a leaf.
 * fxi_setup_with is fx_setup with leaves that `leaf_of` fills in, one for each distinct trainable
 * array; a status other than FX_OK, which `leaf_of` records, ends it. */
typedef struct fxi_leaf {
    fx_rule *rule;
    int nstates;
    fx_array *states[2];
    double numbers[2];
    bool frozen;
} fxi_leaf;
typedef fx_status (*fxi_leaf_fn)(fx_array *x, fxi_leaf *out_leaf, void *user);
bool fxi_leaf_of(const void *object, fxi_leaf *out_leaf);
/* The rule with this name in Optimisers.jl, with its defaults except for the given numbers that it
 * has. */
fx_rule *fxi_rule_named(const char *name, const fx_adjust_args *given, bool couple);
/* The numbers of a rule; 0 for those that it does not have. */
void fxi_rule_numbers(const fx_rule *rule, fx_adjust_args *out);
/* True for a rule of the library. The name is not enough: a program's own type may have the same
 * name. */
bool fxi_is_rule(const void *object);
void *fxi_setup_with(void *model, fxi_leaf_fn leaf_of, void *user);

#endif
