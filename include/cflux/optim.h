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
/* Options of rules. A negative eta is an error: "the learning rate cannot be negative". */
/* clang-format off */
#define FXI_DESCENT_ARGS(F)                                                                        \
    F(double, eta, 0.1)       /* learning rate */
#define FXI_MOMENTUM_ARGS(F)                                                                       \
    F(double, eta, 0.01)      /* learning rate */                                                  \
    F(double, rho, 0.9)
#define FXI_NESTEROV_ARGS(F)                                                                       \
    F(double, eta, 0.001)     /* learning rate */                                                  \
    F(double, rho, 0.9)
#define FXI_ADAM_ARGS(F)                                                                           \
    F(double, eta, 0.001)     /* learning rate */                                                  \
    F(double, beta1, 0.9)     /* decay of the mean of gradients */                                 \
    F(double, beta2, 0.999)   /* decay of the mean of their squares */                             \
    F(double, epsilon, 1e-8)
#define FXI_ADAMW_ARGS(F)                                                                          \
    F(double, eta, 0.001)     /* learning rate */                                                  \
    F(double, beta1, 0.9)     /* decay of the mean of gradients */                                 \
    F(double, beta2, 0.999)   /* decay of the mean of their squares */                             \
    F(double, epsilon, 1e-8)                                                                       \
    F(double, lambda, 0)      /* weight decay */                                                   \
    F(bool, couple, true)     /* η(dx′ + λx); false: η·dx′ + λx */
/* clang-format on */
FXI_OPTION_STRUCT(fx_descent_args, FXI_DESCENT_ARGS);
FXI_OPTION_STRUCT(fx_momentum_args, FXI_MOMENTUM_ARGS);
FXI_OPTION_STRUCT(fx_nesterov_args, FXI_NESTEROV_ARGS);
FXI_OPTION_STRUCT(fx_adam_args, FXI_ADAM_ARGS);
FXI_OPTION_STRUCT(fx_adamw_args, FXI_ADAMW_ARGS);
FX_API fx_rule *fxi_descent(const fx_descent_args *a);   /* dx′ = η·dx */
FX_API fx_rule *fxi_momentum(const fx_momentum_args *a); /* v ← ρv + η·dx; dx′ = v */
FX_API fx_rule *fxi_nesterov(const fx_nesterov_args *a); /* dx′ = −ρ²v + (1+ρ)η·dx; v ← ρv − η·dx */
FX_API fx_rule *fxi_adam(const fx_adam_args *a);   /* Kingma, Ba, 2015 */
FX_API fx_rule *fxi_adamw(const fx_adamw_args *a); /* Loshchilov, Hutter, 2019 */

/* The numbers that fx_adjust changes; FX_UNCHANGED (NaN) leaves one as it is. */
#define FX_UNCHANGED __builtin_nan("")
/* clang-format off */
#define FXI_ADJUST_ARGS(F)                                                                         \
    F(double, eta, FX_UNCHANGED)                                                                   \
    F(double, rho, FX_UNCHANGED)                                                                   \
    F(double, beta1, FX_UNCHANGED)                                                                 \
    F(double, beta2, FX_UNCHANGED)                                                                 \
    F(double, epsilon, FX_UNCHANGED)                                                               \
    F(double, lambda, FX_UNCHANGED)
/* clang-format on */
FXI_OPTION_STRUCT(fx_adjust_args, FXI_ADJUST_ARGS);
/* fx_descent(0.1), fx_descent(.eta = 0.1) */
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

/* The optimiser state for a model: owned by the scope; the rule is shared. A model without
 * trainable parameters warns "setup found no trainable parameters in this model". */
FX_API void *fx_setup(fx_rule *rule, void *model);
/* Changes the learning rate and keeps the state: adjust!(state, η). */
FX_API fx_status fx_adjust_eta(void *state, double eta);
FX_API double fx_eta(void *state); /* the learning rate of its first leaf */
/* fx_adjust(state, .eta = …, .beta1 = …): adjust!(state; …). What is not given, or what a rule does
 * not have, stays; so do moments and powers. */
FX_API fx_status fxi_adjust(void *state, const fx_adjust_args *given);
/* Arrays below this state, or this branch of it (fx_child, fx_child_named), are not updated until
 * thawed: freeze!, thaw!. A model instead of a state is an error. */
FX_API fx_status fx_freeze(void *state);
FX_API fx_status fx_thaw(void *state);

/* Options of fx_update: fx_update(state, model, gradient, .guard = loss). */
/* clang-format off */
#define FXI_UPDATE_ARGS(F)                                                                         \
    F(void *, state, FXI_NULL)                                                                     \
    F(void *, model, FXI_NULL)                                                                     \
    F(void *, gradient, FXI_NULL)                                                                  \
    F(fx_array *, guard, FXI_NULL) /* a loss: if it is not finite, parameters, optimiser and       \
                                      layer state stay as they are, and the call returns           \
                                      FX_STATUS_NONFINITE without recording an error */            \
    F(bool, sinks, true)           /* evaluate other pending results along */
/* clang-format on */
FXI_OPTION_STRUCT(fx_update_args, FXI_UPDATE_ARGS);
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
#define fx_update(...)                                                                             \
    FXI_CALL(                                                                                      \
        fxi_update(FXI_OPTIONS(fx_update_args, FXI_UPDATE_ARGS(FXI_DEFAULT).state = __VA_ARGS__)))

FXI_END_C
#endif
