/* cflux/optim.h: optimiser rules, their state, and the update. Formulas and defaults are those of
 * Optimisers.jl.
 *
 * A rule turns the gradient dx of a parameter x into a change dx′; the update is x ← x − dx′. The
 * optimiser state is a tree of the model's structure with one leaf per distinct trainable array: a
 * tied array has one leaf, and its gradients are added. */
#ifndef CFLUX_OPTIM_H
#define CFLUX_OPTIM_H

#include <cflux/tree.h>

FXI_BEGIN_C

typedef struct fx_rule fx_rule; /* opaque: an optimiser rule */
/* Options of rules. A rule owns no arrays; the scope owns the rule, and optimiser states retain it.
 * A negative or NaN eta is FX_STATUS_ARGUMENT: "the learning rate cannot be negative". */
/* clang-format off */
#define FXI_DESCENT_ARGS(F)                                                                        \
    F(double, eta, 0.1) /* learning rate η */
#define FXI_MOMENTUM_ARGS(F)                                                                       \
    F(double, eta, 0.01) /* learning rate η */                                                     \
    F(double, rho, 0.9)  /* ρ, decay of the velocity */
#define FXI_NESTEROV_ARGS(F)                                                                       \
    F(double, eta, 0.001) /* learning rate η */                                                    \
    F(double, rho, 0.9)   /* ρ, decay of the velocity */
#define FXI_ADAM_ARGS(F)                                                                           \
    F(double, eta, 0.001)    /* learning rate η */                                                 \
    F(double, beta1, 0.9)    /* β₁, decay of the mean of gradients */                              \
    F(double, beta2, 0.999)  /* β₂, decay of the mean of squared gradients */                      \
    F(double, epsilon, 1e-8) /* ε, avoids division by 0 */
#define FXI_ADAMW_ARGS(F)                                                                          \
    F(double, eta, 0.001)    /* learning rate η */                                                 \
    F(double, beta1, 0.9)    /* β₁, decay of the mean of gradients */                              \
    F(double, beta2, 0.999)  /* β₂, decay of the mean of squared gradients */                      \
    F(double, epsilon, 1e-8) /* ε, avoids division by 0 */                                         \
    F(double, lambda, 0)     /* λ, weight decay */                                                 \
    F(bool, couple, true)    /* true: dx′ = η(a + λx); false: dx′ = η·a + λx */
/* clang-format on */
FXI_OPTION_STRUCT(fx_descent_args, FXI_DESCENT_ARGS);
FXI_OPTION_STRUCT(fx_momentum_args, FXI_MOMENTUM_ARGS);
FXI_OPTION_STRUCT(fx_nesterov_args, FXI_NESTEROV_ARGS);
FXI_OPTION_STRUCT(fx_adam_args, FXI_ADAM_ARGS);
FXI_OPTION_STRUCT(fx_adamw_args, FXI_ADAMW_ARGS);
/* Rules: fx_descent(0.1) or fx_descent(.eta = 0.1). In the t-th update, m ← β₁m + (1−β₁)dx, v ← β₂v
 * + (1−β₂)dx², and Adam's direction is a = (m/(1−β₁ᵗ)) / (√(v/(1−β₂ᵗ)) + ε). */
FX_API fx_rule *fxi_descent(const fx_descent_args *a);   /* dx′ = η·dx */
FX_API fx_rule *fxi_momentum(const fx_momentum_args *a); /* v ← ρv + η·dx; dx′ = v */
FX_API fx_rule *fxi_nesterov(const fx_nesterov_args *a); /* dx′ = −ρ²v + (1+ρ)η·dx; v ← ρv − η·dx */
FX_API fx_rule *fxi_adam(const fx_adam_args *a);   /* dx′ = η·a; Kingma, Ba, 2015 */
FX_API fx_rule *fxi_adamw(const fx_adamw_args *a); /* see .couple; Loshchilov, Hutter, 2019 */

/* Options of fx_adjust. FX_UNCHANGED (NaN) keeps a number. */
#define FX_UNCHANGED __builtin_nan("")
/* clang-format off */
#define FXI_ADJUST_ARGS(F)                                                                         \
    F(double, eta, FX_UNCHANGED)     /* η of every rule */                                         \
    F(double, rho, FX_UNCHANGED)     /* ρ of Momentum and Nesterov */                              \
    F(double, beta1, FX_UNCHANGED)   /* β₁ of Adam and AdamW */                                    \
    F(double, beta2, FX_UNCHANGED)   /* β₂ of Adam and AdamW */                                    \
    F(double, epsilon, FX_UNCHANGED) /* ε of Adam and AdamW */                                     \
    F(double, lambda, FX_UNCHANGED)  /* λ of AdamW */
/* clang-format on */
FXI_OPTION_STRUCT(fx_adjust_args, FXI_ADJUST_ARGS);
#define FXI_RULE(f, T, MEMBERS, ...)                                                               \
    FXI_CALL(f(FXI_OPTIONS(T, MEMBERS(FXI_DEFAULT).fxi_size = sizeof(T), __VA_ARGS__)))
#define fx_descent(...)  FXI_RULE(fxi_descent, fx_descent_args, FXI_DESCENT_ARGS, __VA_ARGS__)
#define fx_momentum(...) FXI_RULE(fxi_momentum, fx_momentum_args, FXI_MOMENTUM_ARGS, __VA_ARGS__)
#define fx_nesterov(...) FXI_RULE(fxi_nesterov, fx_nesterov_args, FXI_NESTEROV_ARGS, __VA_ARGS__)
#define fx_adam(...)     FXI_RULE(fxi_adam, fx_adam_args, FXI_ADAM_ARGS, __VA_ARGS__)
#define fx_adamw(...)    FXI_RULE(fxi_adamw, fx_adamw_args, FXI_ADAMW_ARGS, __VA_ARGS__)
#define fx_adjust(state, ...)                                                                      \
    FXI_CALL(fxi_adjust(                                                                           \
        (state),                                                                                   \
        FXI_OPTIONS(fx_adjust_args,                                                                \
                    FXI_ADJUST_ARGS(FXI_DEFAULT).fxi_size = sizeof(fx_adjust_args), __VA_ARGS__)))

/* Returns the optimiser state of a model, which the scope owns. A model without trainable arrays
 * gives a warning: "setup found no trainable parameters in this model". An error array if `rule` is
 * not a rule or the model is NULL or an error object. Optimisers.setup. */
FX_API void *fx_setup(fx_rule *rule, void *model);
/* Sets the learning rate of a state, or of a branch of it, and keeps moments.
 * Optimisers.adjust!(state, η). FX_STATUS_ARGUMENT if eta is negative. */
FX_API fx_status fx_adjust_eta(void *state, double eta);
FX_API double fx_eta(void *state); /* learning rate of the first leaf; 0 if there is no leaf */
/* fx_adjust(state, .eta = …, .beta1 = …): sets hyperparameters and keeps moments. Numbers that are
 * not given, or that a rule does not have, are not changed. FX_STATUS_ARGUMENT if eta is negative
 * or `state` is not from fx_setup. Optimisers.adjust!(state; …). */
FX_API fx_status fxi_adjust(void *state, const fx_adjust_args *given);
/* fx_freeze: arrays of this state, or of this branch of it (fx_child, fx_child_named), are not
 * updated until fx_thaw. Optimisers.freeze!, thaw!. FX_STATUS_ARGUMENT if `state` is a model. */
FX_API fx_status fx_freeze(void *state);
FX_API fx_status fx_thaw(void *state);

/* Options of fx_update: fx_update(state, model, gradient, .guard = loss). */
/* clang-format off */
#define FXI_UPDATE_ARGS(F)                                                                         \
    F(void *, state, FXI_NULL)     /* from fx_setup */                                             \
    F(void *, model, FXI_NULL)                                                                     \
    F(void *, gradient, FXI_NULL)  /* from fx_gradient */                                          \
    F(fx_array *, guard, FXI_NULL) /* a loss: if it is not finite, parameters, optimiser state     \
                                      and layer state are not changed, and the call returns        \
                                      FX_STATUS_NONFINITE without an error record */               \
    F(bool, sinks, true)           /* true: also compute pending results that use the old          \
                                      parameters */
/* clang-format on */
FXI_OPTION_STRUCT(fx_update_args, FXI_UPDATE_ARGS);
/* Applies one update: computes new parameters and state in one plan, together with the arrays of
 * fx_want and fx_set, staged layer state, and pending results that use the old parameters. Then it
 * rebinds the handles of the model's arrays: pointers to parameters stay valid and have the new
 * values. On failure model and state are not changed; FX_STATUS_ARGUMENT if the three trees do not
 * match, FX_STATUS_SHAPE if a gradient's size differs from its parameter's. Optimisers.update!. */
FX_API fx_status fxi_update(const fx_update_args *a);
/* Returns the pair (new state, new model) as a tuple; does not change its arguments. The scope owns
 * the tuple; on failure it holds two error arrays. Optimisers.update. */
FX_API void *fx_updated(void *state, void *model, void *gradient);
/* Applies n updates in one plan, for (states[i], models[i], gradients[i]), e.g. for GANs. On
 * failure no model and no state is changed. */
FX_API fx_status fx_update_all(int n, void *const *states, void *const *models,
                               void *const *gradients);
#define fx_update(...)                                                                             \
    FXI_CALL(                                                                                      \
        fxi_update(FXI_OPTIONS(fx_update_args, FXI_UPDATE_ARGS(FXI_DEFAULT).state = __VA_ARGS__)))

FXI_END_C
#endif
