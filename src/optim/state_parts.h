/* state_parts.h: takes optimiser states and rules apart and rebuilds them, for files. Internal. */
#ifndef CFLUX_STATE_PARTS_H
#define CFLUX_STATE_PARTS_H

#include <cflux/optim.h>

/* The numbers in a state (rules, powers of β, frozen flags), that is everything but its arrays.
 * Writes at most `capacity` numbers and returns their total count: 0 for the state of a model
 * without parameters, −1 if the object is not a state, −2 if the walk failed (recorded). A leaf
 * that several paths reach is counted once. fxi_state_numbers_set accepts the numbers of a state
 * with the same structure and changes all or nothing. It also accepts the numbers of older files,
 * which repeat those of a leaf for every path to it. keep_frozen: the frozen flags are unchanged.
 */
int64_t fxi_state_numbers(void *state, double *out, int64_t capacity);
fx_status fxi_state_numbers_set(void *state, const double *numbers, int64_t n, bool keep_frozen);

enum { FXI_RULE_STATES = 16, FXI_RULE_NUMBERS = 16 }; /* maximum per parameter */

/* The state of one array: the arrays that the rule keeps, with the sizes of fxi_own_part and the
 * type of fxi_rule_state_type, and its numbers: powers of β and counts. fxi_leaf_of takes a leaf of
 * a state apart; false if the object is not a leaf. fxi_setup_with is fx_setup with leaves that
 * `leaf_of` fills in, one for each distinct trainable array; a status other than FX_OK, which
 * `leaf_of` records, ends it. */
typedef struct fxi_leaf {
    fx_rule *rule;
    int nstates;
    fx_array *states[FXI_RULE_STATES];
    double numbers[FXI_RULE_NUMBERS];
    bool frozen;
    int ndims; /* of the parameter; fxi_setup_with sets its sizes */
    int64_t sizes[FX_MAX_DIMS];
} fxi_leaf;
typedef fx_status (*fxi_leaf_fn)(fx_array *x, fxi_leaf *out_leaf, void *user);
bool fxi_leaf_of(const void *object, fxi_leaf *out_leaf);
void *fxi_setup_with(void *model, fxi_leaf_fn leaf_of, void *user);

/* Is the object a leaf whose arrays are this member's part of the state (divide.c)? */
bool fxi_leaf_divided(const void *object);
/* fx_dist_whole and fx_dist_divide. */
void *fxi_states_whole(void *state);
fx_status fxi_states_divide(void *state, void *whole);

/* The rule with this name in Optimisers.jl. The given numbers and .centred replace its defaults if
 * it has such fields. An error object if there is no such rule, if it contains rules, or if a
 * number is refused. */
fx_rule *fxi_rule_named(const char *name, const fx_adjust_args *given, bool centred);
bool fxi_rule_exists(const char *name);
/* True for a rule of the library. The name is not enough: a program's own type may have the same
 * name. */
bool fxi_is_rule(const void *object);
/* The rules inside of a chain or of a MixedPrecision; NULL for other rules. */
const fx_list *fxi_rule_parts(const fx_rule *rule);
/* True for a MixedPrecision. out_type: the type that it computes in. */
bool fxi_rule_is_mixed(const fx_rule *rule, fx_dtype *out_type);
/* The state of a rule without rules inside, one letter for each part: z, e, l, c an array; f false;
 * b the powers of β₁ and β₂; t an integer. A single part is the state itself, several parts are a
 * tuple, and no part is Julia's nothing. */
const char *fxi_rule_state(const fx_rule *rule);
/* The number of arrays and of numbers that a rule keeps for a parameter of this type. */
int fxi_rule_nstates(const fx_rule *rule, fx_dtype type);
int fxi_rule_nnumbers(const fx_rule *rule);
/* The initial state of a parameter; the scope owns the arrays (error arrays on failure). */
void fxi_rule_init(const fx_rule *rule, fx_array *x, fx_array **states, double *numbers);
/* The element type of the state of a parameter of this type. */
fx_dtype fxi_rule_state_type(const fx_rule *rule, fx_dtype type);

#endif
