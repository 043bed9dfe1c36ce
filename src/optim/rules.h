/* rules.h: optimiser rules as the update sees them. Internal to optim.
 *
 * A rule is init and apply (Optimisers.jl): init gives a parameter its state, apply turns the
 * gradient into the step dx′ and the next state, as lazy nodes. State comes in two kinds: arrays of
 * the parameter's shape, and numbers on the host (powers of β), which are slots of the plan and so
 * change without a new one.
 */
#ifndef CFLUX_RULES_H
#define CFLUX_RULES_H

#include <cflux/optim.h>

struct fx_rule {
    fx_object base;
    double eta, rho, beta1, beta2, epsilon, lambda; /* those that the rule has */
    bool couple;
};

enum { FXI_RULE_STATES = 2, FXI_RULE_NUMBERS = 2, FXI_RULE_LITERALS = 8 }; /* the most of a rule */

typedef struct fxi_rule_info {
    const char *name; /* as Optimisers.jl prints it */
    int nstates;      /* arrays per parameter */
    int nnumbers;     /* host numbers per parameter */
    /* states: zeros of x's size and type, owned by the scope (error arrays when that fails). */
    void (*init)(const fx_rule *r, fx_array *x, fx_array **states, double *numbers);
    /* The numbers that apply computes with, for a parameter of this type, and how many: parameters
     * of one rule share the arrays made of them. Writes the next numbers. */
    int (*literals)(const fx_rule *r, fx_dtype type, const double *numbers, double *out,
                    double *new_numbers);
    /* Returns dx′ of x's element type; x ← x − dx′ is the caller's. new_states is complete;
     * everything is owned by the scope. */
    fx_array *(*apply)(const fx_rule *r, fx_array *const *literals, fx_array *x, fx_array *dx,
                       fx_array *const *states, fx_array **new_states);
} fxi_rule_info;

/* The row of a rule; NULL when the object is no rule, or the error object of one. */
const fxi_rule_info *fxi_rule_info_of(const fx_rule *r);

/* r with those of the numbers that are given and that it has: a new rule of the same kind (the
 * error object for a negative learning rate). */
fx_rule *fxi_rule_with(const fx_rule *r, const fx_adjust_args *given);

#endif
