/* rules.h: the interface of optimiser rules to the update. Internal to optim.
 *
 * As in Optimisers.jl, a rule has two functions: init makes the state of a parameter, apply
 * computes from the gradient the change dx′ and the next state, as lazy nodes. State has two kinds:
 * arrays of the parameter's shape, and numbers on the host (powers of β). The numbers are inputs of
 * the plan, so they change without a new plan.
 */
#ifndef CFLUX_RULES_H
#define CFLUX_RULES_H

#include <cflux/optim.h>

struct fx_rule {
    fx_object base;
    double eta, rho, beta1, beta2, epsilon, lambda; /* only those that the rule has are used */
    bool couple;
};

enum { FXI_RULE_STATES = 2, FXI_RULE_NUMBERS = 2, FXI_RULE_LITERALS = 8 }; /* maximum */

typedef struct fxi_rule_info {
    const char *name; /* printed name, the one of Optimisers.jl */
    int nstates;      /* arrays per parameter */
    int nnumbers;     /* host numbers per parameter */
    /* Makes the states: zeros of x's size and type, owned by the scope (error arrays on failure).
     */
    void (*init)(const fx_rule *r, fx_array *x, fx_array **states, double *numbers);
    /* Fills in the numbers that apply computes with, for a parameter of this type, and returns
     * their count. Parameters of one rule share the arrays made from them. Updates `numbers`. */
    int (*literals)(const fx_rule *r, fx_dtype type, const double *numbers, double *out,
                    double *new_numbers);
    /* Returns dx′ in x's element type; the caller computes x ← x − dx′. Fills in every element of
     * new_states. The scope owns all results. */
    fx_array *(*apply)(const fx_rule *r, fx_array *const *literals, fx_array *x, fx_array *dx,
                       fx_array *const *states, fx_array **new_states);
} fxi_rule_info;

/* The row of a rule; NULL if the object is not a rule or is the error object of one. */
const fxi_rule_info *fxi_rule_info_of(const fx_rule *r);

/* A new rule of the same kind with the given numbers that it has, and the other numbers of r. The
 * error object for a negative learning rate. */
fx_rule *fxi_rule_with(const fx_rule *r, const fx_adjust_args *given);

#endif
