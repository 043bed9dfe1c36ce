/* cflux/optim.h: optimiser rules, their state, and the update. Formulas and defaults are
 * Optimisers.jl's.
 *
 * A rule turns a gradient dx into the step dx′; the update is x ← x − dx′. The state is a tree in
 * the model's shape with one leaf per distinct trainable array: a tied array has one state, and its
 * gradients are summed.
 */
#ifndef CFLUX_OPTIM_H
#define CFLUX_OPTIM_H

#include <cflux/tree.h>

FXI_BEGIN_C

typedef struct fx_rule fx_rule; /* how a gradient becomes a step */
/* Options of rules. A negative eta is an error: "the learning rate cannot be negative". 0 means the
 * default; FX_ZERO zero. */
typedef struct fx_rule_args {
    size_t fxi_size;
    double eta;          /* learning rate; Descent 0.1, Momentum 0.01, the others 0.001 */
    double rho;          /* Momentum, Nesterov: 0.9 */
    double beta1, beta2; /* Adam, AdamW: 0.9, 0.999 */
    double epsilon;      /* 1e-8 */
    double lambda;       /* AdamW: weight decay, 0 */
    bool no_couple;      /* AdamW: η·dx′ + λx instead of η(dx′ + λx) */
} fx_rule_args;
FX_API fx_rule *fxi_descent(const fx_rule_args *a);  /* dx′ = η·dx */
FX_API fx_rule *fxi_momentum(const fx_rule_args *a); /* v ← ρv + η·dx; dx′ = v */
FX_API fx_rule *fxi_nesterov(const fx_rule_args *a); /* dx′ = −ρ²v + (1+ρ)η·dx; v ← ρv − η·dx */
FX_API fx_rule *fxi_adam(const fx_rule_args *a);  /* Kingma, Ba, 2015 */
FX_API fx_rule *fxi_adamw(const fx_rule_args *a); /* Loshchilov, Hutter, 2019 */
FXI_END_C
#ifdef __cplusplus
#define FXI_CXX_RULE(name)                                                                         \
    inline fx_rule *fx_##name(const fx_rule_args &a)                                               \
    {                                                                                              \
        return fxi_##name(&a);                                                                     \
    }                                                                                              \
    inline fx_rule *fx_##name(double eta = 0)                                                      \
    {                                                                                              \
        fx_rule_args a = {};                                                                       \
        a.fxi_size = sizeof a, a.eta = eta;                                                        \
        return fxi_##name(&a);                                                                     \
    }
FXI_CXX_RULE(descent)
FXI_CXX_RULE(momentum)
FXI_CXX_RULE(nesterov)
FXI_CXX_RULE(adam)
FXI_CXX_RULE(adamw)
#else
#define FXI_RULE(...)         (&(const fx_rule_args){.fxi_size = sizeof(fx_rule_args), __VA_ARGS__})
#define fx_descent(...)       fxi_descent(FXI_RULE(__VA_ARGS__)) /* fx_descent(.eta = 0.1) */
#define fx_momentum(...)      fxi_momentum(FXI_RULE(__VA_ARGS__))
#define fx_nesterov(...)      fxi_nesterov(FXI_RULE(__VA_ARGS__))
#define fx_adam(...)          fxi_adam(FXI_RULE(__VA_ARGS__))
#define fx_adamw(...)         fxi_adamw(FXI_RULE(__VA_ARGS__))
#define fx_adjust(state, ...) fxi_adjust((state), FXI_RULE(__VA_ARGS__))
#endif
FXI_BEGIN_C

/* The optimiser state for a model: owned by the scope; the rule is shared. A model without
 * trainable parameters warns "setup found no trainable parameters in this model". */
FX_API void *fx_setup(fx_rule *rule, void *model);
/* Changes the learning rate and keeps the state: adjust!(state, η). */
FX_API fx_status fx_adjust_eta(void *state, double eta);
FX_API double fx_eta(void *state); /* the learning rate of its first leaf */
/* fx_adjust(state, .eta = …, .beta1 = …): adjust!(state; …). What is not given, or what a rule does
 * not have, stays; so do moments and powers. */
FX_API fx_status fxi_adjust(void *state, const fx_rule_args *given);
/* Arrays below this state, or this branch of it (fx_child, fx_child_named), are not updated until
 * thawed: freeze!, thaw!. A model instead of a state is an error. */
FX_API fx_status fx_freeze(void *state);
FX_API fx_status fx_thaw(void *state);

/* What a state holds besides arrays (rules, powers of β, what is frozen), as numbers: for files.
 * Writes at most `capacity` of them and returns how many there are, −1 when it is no state; the
 * second takes what the first gave of a state of the same structure, and changes all or nothing.
 */
FX_API int64_t fxi_state_numbers(void *state, double *out, int64_t capacity);
FX_API fx_status fxi_state_numbers_set(void *state, const double *numbers, int64_t n);

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
FX_API bool fxi_leaf_of(const void *object, fxi_leaf *out_leaf);
/* Is it a rule of this header? A program's own type may have the name of one. */
FX_API bool fxi_is_rule(const void *object);
FX_API void *fxi_setup_with(void *model, fxi_leaf_fn leaf_of, void *user);

/* Options of fx_update: fx_update(state, model, gradient, .guard = loss). */
typedef struct fx_update_args {
    size_t fxi_size;
    void *state, *model, *gradient;
    /* A loss: where it is not finite, parameters, optimiser and layer state stay as they are, and
     * the call returns FX_STATUS_NONFINITE without recording an error. */
    fx_array *guard;
    bool no_sinks; /* do not evaluate other pending results along */
} fx_update_args;
/* One training step: evaluates in one plan the new parameters and state, what fx_want and fx_set
 * asked for, staged layer state, and pending results that read what is replaced; then rebinds the
 * model's handles: pointers to parameters stay valid and see the new values. On error model and
 * state are untouched. */
FX_API fx_status fxi_update(const fx_update_args *a);
/* Out of place: leaves its arguments valid and returns the pair (state′, model′) as a tuple:
 * Optimisers.update. */
FX_API void *fx_updated(void *state, void *model, void *gradient);
/* Several (state, model, gradient) triples in one plan, as for GANs. */
FX_API fx_status fx_update_all(int n, void *const *states, void *const *models,
                               void *const *gradients);
FXI_END_C
#ifdef __cplusplus
inline fx_status fx_adjust(void *state, const fx_rule_args &given)
{
    return fxi_adjust(state, &given);
}
inline fx_status fx_update(const fx_update_args &a)
{
    return fxi_update(&a);
}
inline fx_status fx_update(void *state, void *model, void *gradient)
{
    const fx_update_args a = {sizeof(fx_update_args), state, model, gradient, nullptr, false};
    return fxi_update(&a);
}
#else
#define fx_update(...)                                                                             \
    fxi_update(&(const fx_update_args){.fxi_size = sizeof(fx_update_args), .state = __VA_ARGS__})
#endif
#endif
