/* rules.h: the interface of optimiser rules to the update. Internal to optim.
 *
 * As in Optimisers.jl, a rule has a state for each parameter and a function that computes from the
 * gradient the change dx′ and the next state, as lazy nodes. State has two kinds: arrays of the
 * parameter's shape, and numbers on the host (powers of β, counters). Hyperparameters and numbers
 * enter the graph as literals, which are inputs of the plan, so they change without a new plan.
 *
 * A chain of rules has the arrays and numbers of its rules one after the other, so a state is
 * always one list of arrays and one of numbers; each rule works on its part of the lists.
 */
#ifndef CFLUX_RULES_H
#define CFLUX_RULES_H

#include "state_parts.h"

#include <cflux/backend.h>

struct fx_rule {
    fx_object base;
    double eta, rho, beta1, beta2, epsilon, lambda; /* only those that the rule has are used */
    double ell1, ell2, gamma1, gamma2, delta, omega, p, scale;
    int64_t n;
    int64_t growth, good; /* of MixedPrecision: see .growth; updates with finite gradients since the
                             latest change */
    fx_dtype type;        /* of MixedPrecision */
    bool couple, centred, throws;
    fx_list rules; /* of OptimiserChain; of MixedPrecision and DistributedOptimizer: one */
    const fx_communicator *among; /* of DistributedOptimizer: gradients are averaged over its
                                     members */
    bool shard;                   /* of DistributedOptimizer: each member has a part of the state */
};

/* A norm that must be finite, or the update fails. */
typedef struct fxi_checked {
    fx_array *norm;      /* 0-d; of a MixedPrecision: the largest magnitude */
    const fx_rule *rule; /* a ClipNorm; NULL: a MixedPrecision, which fails without an error
                            record */
    fx_array *x;         /* the parameter */
} fxi_checked;
typedef struct fxi_checks {
    fxi_checked *all;
    int64_t n, capacity;
    bool no_memory;
} fxi_checks;

/* The literals of a rule, which consecutive parameters with equal numbers share. */
enum { FXI_RULE_LITERALS = 64 }; /* further literals are not shared */
typedef struct fxi_literals {
    const fx_rule *rule; /* NULL: empty */
    fx_dtype type;
    double numbers[FXI_RULE_NUMBERS]; /* before the update */
    int n, next;
    int32_t part, skipped; /* the part of a recorded training step that has the first ones (see
                              fxi_part_literal), and their number; 0: none */
    fx_array *at[FXI_RULE_LITERALS]; /* NULL: skipped, and not needed yet */
} fxi_literals;
/* Begins the literals of a parameter; keeps those of the previous one if they are the same. */
void fxi_literals_begin(fxi_literals *l, const fx_rule *r, fx_dtype type, const double *numbers);
/* Would fxi_literals_begin keep the literals? */
bool fxi_literals_kept(const fxi_literals *l, const fx_rule *r, fx_dtype type,
                       const double *numbers);
/* The next literal as an array. Calls must have the same order for each parameter. */
fx_array *fxi_literal(fxi_literals *l, double value);

/* One application of a rule to a parameter. */
typedef struct fxi_application {
    const fx_rule *rule;
    fx_array *x, *dx;
    fx_array *const *states;
    fx_array **new_states; /* to fill in; NULL on return: unchanged */
    double *numbers;       /* to replace by the new ones */
    fxi_literals *literals;
    fxi_checks *norms;
    fx_array *new_x; /* set by MixedPrecision, instead of x − dx′ */
    bool total;      /* dx is the complete sum of an AccumGrad (fxi_rule_accumulates) */
} fxi_application;
/* A formula of rules: returns dx′, which the scope owns like the new states; NULL: no change. */
typedef fx_array *(*fxi_formula)(fxi_application *s);
fx_array *fxi_rule_apply(fxi_application *s);

typedef struct fxi_rule_info {
    const char *name; /* printed name, the one of Optimisers.jl */
    /* The state in Optimisers.jl's order: z an array of zeros, e an array of ε, l an array of η, c
     * an array of zeros if the rule is centred, else false; b the powers of β₁ and β₂; t a count
     * from 1.
     */
    const char *state;
    fxi_formula apply;
} fxi_rule_info;

/* The row of a rule; NULL if the object is not a rule or is the error object of one. */
const fxi_rule_info *fxi_rule_info_of(const fx_rule *r);

/* A new rule of the same kind with the given numbers where it has them, and the other numbers of r.
 * The error object if a number is refused. */
fx_rule *fxi_rule_with(const fx_rule *r, const fx_adjust_args *given);
/* The name of a given number that neither the rule nor a rule inside of it has; NULL: none. */
const char *fxi_rule_lacks(const fx_rule *r, const fx_adjust_args *given);
/* η of the rule or of the first rule inside of it that has one; NaN: none. */
double fxi_rule_eta(const fx_rule *r);
/* After an update with a MixedPrecision that has .growth: the rule with the next factor of the
 * loss. NULL for other rules, the error object if the allocation fails. */
fx_rule *fxi_rule_rescaled(const fx_rule *r, bool finite);
/* Writes the rule's own numbers for a checkpoint, and those of the rules inside of it, at most
 * `capacity`. Returns their total count. */
int64_t fxi_rule_numbers_out(const fx_rule *r, double *out, int64_t capacity);
/* A rule of the same structure with the numbers of a checkpoint; NULL (not recorded) if they belong
 * to another rule, the error object if they are refused. */
fx_rule *fxi_rule_numbers_in(const fx_rule *r, const double *numbers);

/* The number by which a norm divides magnitudes before it raises them to a power: the largest of
 * them where that is needed, else 1. 0-d, as `largest`. */
fx_array *fxi_norm_scale(fx_array *largest);

/* min(most/norm, 1), 0-d: the factor that clips a gradient with this norm; 0 if `most` is 0, also
 * where the norm is 0. `literal`: `most` as an array. */
fx_array *fxi_norm_factor(fx_array *literal, double most, fx_array *norm);

/* Makes a DistributedOptimizer: a rule that is applied to the mean of the gradients of all members.
 * A MixedPrecision must stay the outermost rule, so there its inner rule is wrapped. */
fx_rule *fxi_rule_distributed(const fx_communicator *among, fx_rule *rule, bool shard);
/* The communicator among whose members the rule divides its state (divide.c); NULL: it does not. */
const fx_communicator *fxi_rule_divides(const fx_rule *r);
/* A copy of a rule that divides its state, but with an undivided state; the error object if memory
 * is exhausted. */
fx_rule *fxi_rule_undivided(const fx_rule *r);
/* The part of an array whose state the rule keeps on this member; x if the state is not divided. */
fx_array *fxi_own_part(const fx_rule *r, fx_array *x);
/* The communicator over whose members the rule averages gradients; NULL: the rule averages none. */
const fx_communicator *fxi_rule_among(const fx_rule *r);
/* The AccumGrad, r or a rule inside of it, that gets the gradient before all other rules. NULL:
 * there is none, or a rule checks the gradient first. Its array is the first one of the state,
 * after the copy of a MixedPrecision, and its count is the first number. */
const fx_rule *fxi_rule_accumulates(const fx_rule *r);
/* Replaces n arrays of floats by their means over all members, in buckets (average.c). */
fx_status fxi_average_arrays(const fx_communicator *among, int64_t n, fx_array **io_arrays);

/* Formulas: rule_formulas.c. */
fx_array *fxi_apply_descent(fxi_application *s);
fx_array *fxi_apply_momentum(fxi_application *s);
fx_array *fxi_apply_nesterov(fxi_application *s);
fx_array *fxi_apply_rprop(fxi_application *s);
fx_array *fxi_apply_rmsprop(fxi_application *s);
fx_array *fxi_apply_adam(fxi_application *s);
fx_array *fxi_apply_adamw(fxi_application *s);
fx_array *fxi_apply_adamax(fxi_application *s);
fx_array *fxi_apply_nadam(fxi_application *s);
fx_array *fxi_apply_radam(fxi_application *s);
fx_array *fxi_apply_amsgrad(fxi_application *s);
fx_array *fxi_apply_oadam(fxi_application *s);
fx_array *fxi_apply_adabelief(fxi_application *s);
fx_array *fxi_apply_adagrad(fxi_application *s);
fx_array *fxi_apply_adadelta(fxi_application *s);
fx_array *fxi_apply_lion(fxi_application *s);
fx_array *fxi_apply_weight_decay(fxi_application *s);
fx_array *fxi_apply_sign_decay(fxi_application *s);
fx_array *fxi_apply_clip_grad(fxi_application *s);
fx_array *fxi_apply_clip_norm(fxi_application *s);
fx_array *fxi_apply_accum_grad(fxi_application *s);
fx_array *fxi_apply_optimiser_chain(fxi_application *s);
fx_array *fxi_apply_mixed_precision(fxi_application *s);

#endif
