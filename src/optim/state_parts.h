/* state_parts.h: the parts of optimiser states and rules, for the files that keep them. Internal.
 */
#ifndef CFLUX_STATE_PARTS_H
#define CFLUX_STATE_PARTS_H

#include <cflux/optim.h>

/* What a state holds besides arrays (rules, powers of β, what is frozen), as numbers: for files.
 * Writes at most `capacity` of them and returns how many there are: 0 for the state of a model
 * without parameters, −1 if it is no state, −2 if the walk failed, which is recorded. A leaf that
 * several paths reach is counted once. fxi_state_numbers_set takes what fxi_state_numbers gave of a
 * state of the same structure, and changes all or nothing. It also takes the numbers of older
 * files, which have those of a leaf once for every path to it. */
int64_t fxi_state_numbers(void *state, double *out, int64_t capacity);
fx_status fxi_state_numbers_set(void *state, const double *numbers, int64_t n);

/* What a state holds for one array, for files: as many arrays, of the array's sizes and type, as
 * the rule has, and the powers of β. The first takes a leaf of a state apart, false when the object
 * is none; the second is fx_setup with leaves that the caller fills in, one for each distinct
 * trainable array (what is not FX_OK ends it, recorded by the caller). */
typedef struct fxi_leaf {
    fx_rule *rule;
    int nstates;
    fx_array *states[2];
    double numbers[2];
    bool frozen;
} fxi_leaf;
typedef fx_status (*fxi_leaf_fn)(fx_array *x, fxi_leaf *out_leaf, void *user);
bool fxi_leaf_of(const void *object, fxi_leaf *out_leaf);
/* The rule that Optimisers.jl prints under this name, with its defaults but for the numbers that
 * are given and that it has. */
fx_rule *fxi_rule_named(const char *name, const fx_adjust_args *given, bool couple);
/* The numbers of a rule; what it does not have is 0. */
void fxi_rule_numbers(const fx_rule *rule, fx_adjust_args *out);
/* Is it a rule of this header? A program's own type may have the name of one. */
bool fxi_is_rule(const void *object);
void *fxi_setup_with(void *model, fxi_leaf_fn leaf_of, void *user);

#endif
