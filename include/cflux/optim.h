/* cflux/optim.h: optimiser rules, their state, and the update. Formulas and defaults are those of
 * Optimisers.jl, except the formula of Lion, which is that of the paper.
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
 * FX_STATUS_ARGUMENT ("Adam: the learning rate must be at least 0, got eta = -0.1") if a number is
 * NaN, if a number other than p of ClipNorm is negative, if β₁ or β₂ is at least 1, or if a comment
 * below excludes the value. */
/* clang-format off */
#define FXI_DESCENT_ARGS(F)                                                                        \
    F(double, eta, 0.1) /* learning rate η */
#define FXI_MOMENTUM_ARGS(F)                                                                       \
    F(double, eta, 0.01) /* learning rate η */                                                     \
    F(double, rho, 0.9)  /* ρ, decay of the velocity */
#define FXI_NESTEROV_ARGS(F)                                                                       \
    F(double, eta, 0.001) /* learning rate η */                                                    \
    F(double, rho, 0.9)   /* ρ, decay of the velocity */
#define FXI_RPROP_ARGS(F)                                                                          \
    F(double, eta, 0.001)   /* first step size of each element */                                  \
    F(double, ell1, 0.5)    /* ℓ₁, factor of the step size after a change of sign */               \
    F(double, ell2, 1.2)    /* ℓ₂, factor of the step size while the sign stays */                 \
    F(double, gamma1, 1e-6) /* Γ₁, smallest step size */                                           \
    F(double, gamma2, 50)   /* Γ₂, largest step size */
#define FXI_RMSPROP_ARGS(F)                                                                        \
    F(double, eta, 0.001)     /* learning rate η */                                                \
    F(double, rho, 0.9)       /* ρ, decay of the means */                                          \
    F(double, epsilon, 1e-8)  /* ε, avoids division by 0 */                                        \
    F(bool, centred, false)   /* true: divide by the deviation from the mean gradient */
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
#define FXI_OADAM_ARGS(F)                                                                          \
    F(double, eta, 0.001)    /* learning rate η */                                                 \
    F(double, beta1, 0.5)    /* β₁, decay of the mean of gradients */                              \
    F(double, beta2, 0.9)    /* β₂, decay of the mean of squared gradients */                      \
    F(double, epsilon, 1e-8) /* ε, avoids division by 0 */
#define FXI_ADABELIEF_ARGS(F)                                                                      \
    F(double, eta, 0.001)     /* learning rate η */                                                \
    F(double, beta1, 0.9)     /* β₁, decay of the mean of gradients */                             \
    F(double, beta2, 0.999)   /* β₂, decay of the squared deviations from that mean */             \
    F(double, epsilon, 1e-16) /* ε, added to the squared deviations and to their root */
#define FXI_ADAGRAD_ARGS(F)                                                                        \
    F(double, eta, 0.1)      /* learning rate η */                                                 \
    F(double, epsilon, 1e-8) /* ε, first value of the sum, and avoids division by 0 */
#define FXI_ADADELTA_ARGS(F)                                                                       \
    F(double, rho, 0.9)      /* ρ, decay of the means */                                           \
    F(double, epsilon, 1e-8) /* ε, inside both roots */
#define FXI_LION_ARGS(F)                                                                           \
    F(double, eta, 0.001)   /* learning rate η */                                                  \
    F(double, beta1, 0.9)   /* β₁, weight of the momentum in the sign */                           \
    F(double, beta2, 0.999) /* β₂, decay of the momentum */
#define FXI_WEIGHT_DECAY_ARGS(F)                                                                   \
    F(double, lambda, 5e-4) /* λ */
#define FXI_SIGN_DECAY_ARGS(F)                                                                     \
    F(double, lambda, 1e-3) /* λ */
#define FXI_CLIP_GRAD_ARGS(F)                                                                      \
    F(double, delta, 10) /* δ, largest absolute value */
#define FXI_CLIP_NORM_ARGS(F)                                                                      \
    F(double, omega, 10)    /* ω, largest norm of an array */                                      \
    F(double, p, 2)         /* the norm is (Σ|dx|ᵖ)^(1/p); INFINITY: the largest absolute value;   \
                               not NaN */                                                          \
    F(bool, throws, true)   /* true: an infinite or NaN norm makes the update fail; Optimisers.jl  \
                               names this option throw */
#define FXI_ACCUM_GRAD_ARGS(F)                                                                     \
    F(int64_t, n, 1) /* number of gradients of one update, at least 1 */
#define FXI_MIXED_PRECISION_ARGS(F)                                                                \
    F(fx_rule *, rule, FXI_NULL)       /* the rule; must not be a MixedPrecision */                \
    F(fx_dtype, type, FX_DTYPE_F32)    /* type that the rule computes in: Float32 or Float64 */    \
    F(double, scale, 1) /* factor of the loss, positive and finite: gradients are divided by it in \
                           `type`. If it is not 1, an update with gradients that are not finite    \
                           changes nothing and returns FX_STATUS_NONFINITE without an error        \
                           record */                                                               \
    F(int64_t, growth, 0) /* 0: the factor is fixed. n > 0: the factor begins with `scale` (2¹⁶ if \
                             that is 1), is halved by an update whose gradients are not finite,    \
                             and is doubled after n updates in a row with finite gradients */
/* clang-format on */
FXI_OPTION_STRUCT(fx_descent_args, FXI_DESCENT_ARGS);
FXI_OPTION_STRUCT(fx_momentum_args, FXI_MOMENTUM_ARGS);
FXI_OPTION_STRUCT(fx_nesterov_args, FXI_NESTEROV_ARGS);
FXI_OPTION_STRUCT(fx_rprop_args, FXI_RPROP_ARGS);
FXI_OPTION_STRUCT(fx_rmsprop_args, FXI_RMSPROP_ARGS);
FXI_OPTION_STRUCT(fx_adam_args, FXI_ADAM_ARGS);
FXI_OPTION_STRUCT(fx_adamw_args, FXI_ADAMW_ARGS);
FXI_OPTION_STRUCT(fx_adamax_args, FXI_ADAM_ARGS);
FXI_OPTION_STRUCT(fx_nadam_args, FXI_ADAM_ARGS);
FXI_OPTION_STRUCT(fx_radam_args, FXI_ADAM_ARGS);
FXI_OPTION_STRUCT(fx_amsgrad_args, FXI_ADAM_ARGS);
FXI_OPTION_STRUCT(fx_oadam_args, FXI_OADAM_ARGS);
FXI_OPTION_STRUCT(fx_adabelief_args, FXI_ADABELIEF_ARGS);
FXI_OPTION_STRUCT(fx_adagrad_args, FXI_ADAGRAD_ARGS);
FXI_OPTION_STRUCT(fx_adadelta_args, FXI_ADADELTA_ARGS);
FXI_OPTION_STRUCT(fx_lion_args, FXI_LION_ARGS);
FXI_OPTION_STRUCT(fx_weight_decay_args, FXI_WEIGHT_DECAY_ARGS);
FXI_OPTION_STRUCT(fx_sign_decay_args, FXI_SIGN_DECAY_ARGS);
FXI_OPTION_STRUCT(fx_clip_grad_args, FXI_CLIP_GRAD_ARGS);
FXI_OPTION_STRUCT(fx_clip_norm_args, FXI_CLIP_NORM_ARGS);
FXI_OPTION_STRUCT(fx_accum_grad_args, FXI_ACCUM_GRAD_ARGS);
FXI_OPTION_STRUCT(fx_mixed_precision_args, FXI_MIXED_PRECISION_ARGS);
/* Rules: fx_descent(0.1) or fx_descent(.eta = 0.1). In the t-th update, m ← β₁m + (1−β₁)dx, v ← β₂v
 * + (1−β₂)dx², m̂ = m/(1−β₁ᵗ), v̂ = v/(1−β₂ᵗ), and Adam's direction is a = m̂ / (√v̂ + ε). All
 * state arrays begin with zeros, except where a comment gives another first value. Where a rule
 * computes in Float16, a positive ε below 1e-7 counts as 1e-7, because Float16 rounds 1e-8 to
 * 0. */
FX_API fx_rule *fxi_descent(const fx_descent_args *a); /* dx′ = η·dx */
FX_API fx_rule *fxi_momentum(const fx_momentum_args *a); /* v ← ρv + η·dx; dx′ = v; Polyak, 1964 */
/* dx′ = −ρ²v + (1+ρ)η·dx; v ← ρv − η·dx. Nesterov, 1983; Sutskever et al., 2013. */
FX_API fx_rule *fxi_nesterov(const fx_nesterov_args *a);
/* Each element has a step size s, initially η. s ← min(ℓ₂s, Γ₂) if dx has the sign of the previous
 * gradient g, max(ℓ₁s, Γ₁) if it has the other sign; g ← dx, or 0 after a change of sign; dx′ =
 * s·sign(g). Riedmiller, Braun, 1993. */
FX_API fx_rule *fxi_rprop(const fx_rprop_args *a);
/* q ← ρq + (1−ρ)dx²; dx′ = η·dx / (√q + ε). With .centred, l ← ρl + (1−ρ)dx, and √(q − l²) replaces
 * √q. Tieleman, Hinton, 2012; Graves, 2013. */
FX_API fx_rule *fxi_rmsprop(const fx_rmsprop_args *a);
FX_API fx_rule *fxi_adam(const fx_adam_args *a);   /* dx′ = η·a; Kingma, Ba, 2015 */
FX_API fx_rule *fxi_adamw(const fx_adamw_args *a); /* see .couple; Loshchilov, Hutter, 2019 */
/* u ← max(β₂u, |dx|); dx′ = η·m̂ / (u + ε). Kingma, Ba, 2015. */
FX_API fx_rule *fxi_adamax(const fx_adamax_args *a);
/* dx′ = η(β₁m/(1−β₁·β₁ᵗ) + (1−β₁)dx/(1−β₁ᵗ)) / (√(β₂v/(1−β₂ᵗ)) + ε). Dozat, 2016. */
FX_API fx_rule *fxi_nadam(const fx_nadam_args *a);
/* With ρ∞ = 2/(1−β₂) − 1 and ρ = ρ∞ − 2t·β₂ᵗ/(1−β₂ᵗ): dx′ = η·a·r where ρ > 4, with r² =
 * (ρ−4)(ρ−2)ρ∞ / ((ρ∞−4)(ρ∞−2)ρ), else dx′ = η·m̂. Liu et al., 2020. */
FX_API fx_rule *fxi_radam(const fx_radam_args *a);
/* v̄ ← max(v̄, v); dx′ = η·m / (√v̄ + ε). m, v and v̄ begin with ε. Reddi, Kale, Kumar, 2018. */
FX_API fx_rule *fxi_amsgrad(const fx_amsgrad_args *a);
/* d ← η·a; dx′ = 2d − previous d; for GANs. Daskalakis et al., 2018. */
FX_API fx_rule *fxi_oadam(const fx_oadam_args *a);
/* s ← β₂s + (1−β₂)(dx−m)² + ε; dx′ = η·m̂ / (√(s/(1−β₂ᵗ)) + ε). Zhuang et al., 2020. */
FX_API fx_rule *fxi_adabelief(const fx_adabelief_args *a);
/* s ← s + dx²; dx′ = η·dx / (√s + ε). Duchi, Hazan, Singer, 2011. */
FX_API fx_rule *fxi_adagrad(const fx_adagrad_args *a);
/* s ← ρs + (1−ρ)dx²; dx′ = dx·√(d + ε) / √(s + ε); d ← ρd + (1−ρ)dx′². Zeiler, 2012. */
FX_API fx_rule *fxi_adadelta(const fx_adadelta_args *a);
/* dx′ = η·sign(β₁m + (1−β₁)dx); m ← β₂m + (1−β₂)dx. Chen et al., 2023. */
FX_API fx_rule *fxi_lion(const fx_lion_args *a);
/* Rules that change a gradient, for the front of an fx_optimiser_chain. */
FX_API fx_rule *fxi_weight_decay(const fx_weight_decay_args *a); /* dx′ = dx + λx (L2) */
FX_API fx_rule *fxi_sign_decay(const fx_sign_decay_args *a);     /* dx′ = dx + λ·sign(x) (L1) */
FX_API fx_rule *fxi_clip_grad(const fx_clip_grad_args *a);       /* dx′ = clamp(dx, −δ, δ) */
/* dx′ = dx·min(ω/‖dx‖, 1), with the norm of one array. fx_clip_global_norm uses the norm of all
 * arrays. With .throws, an update whose gradient has a norm that is not finite changes nothing and
 * is FX_STATUS_NONFINITE: "gradient has 2.0-norm NaN, for array 3×2 Matrix{Float32}". */
FX_API fx_rule *fxi_clip_norm(const fx_clip_norm_args *a);
/* Adds up dx/n and changes nothing until the n-th gradient; then dx′ is the mean of the n
 * gradients. Later rules of a chain run only in every n-th update. */
FX_API fx_rule *fxi_accum_grad(const fx_accum_grad_args *a);
/* fx_optimiser_chain(a, b, …): each rule changes the result of the previous one; the result of the
 * last one is subtracted. An empty chain is fx_descent(1). Chains may be nested. FX_STATUS_ARGUMENT
 * if one of the rules is NULL, a MixedPrecision or from fx_dist_optimiser, if there are more than
 * 32 rules, those of inner chains included, or if they keep more than 15 arrays or 16 numbers
 * together. */
FX_API fx_rule *fxi_optimiser_chain(int n, void *const *rules);
/* For 16-bit parameters: keeps a copy of each array in `type`, updates the copy by the rule,
 * and rounds it into the parameter. Arrays that have the type already get the plain rule. Multiply
 * the loss by `scale` so that small gradients do not vanish in Float16. With .growth the factor
 * changes: fx_train and fx_trainstep multiply the loss by it; in a loop of your own, multiply it by
 * fx_loss_scale(state). Micikevicius et al., 2018. */
FX_API fx_rule *fxi_mixed_precision(const fx_mixed_precision_args *a);
#define fx_optimiser_chain(...) fxi_optimiser_chain(FXI_OBJECTS(__VA_ARGS__))

/* Options of fx_adjust, in the names of the rules' options. FX_UNCHANGED (NaN) keeps a number. */
#define FX_UNCHANGED __builtin_nan("")
/* clang-format off */
#define FXI_ADJUST_ARGS(F)                                                                         \
    F(double, eta, FX_UNCHANGED)     /* η */                                                       \
    F(double, rho, FX_UNCHANGED)     /* ρ */                                                       \
    F(double, beta1, FX_UNCHANGED)   /* β₁ */                                                      \
    F(double, beta2, FX_UNCHANGED)   /* β₂ */                                                      \
    F(double, epsilon, FX_UNCHANGED) /* ε */                                                       \
    F(double, lambda, FX_UNCHANGED)  /* λ */                                                       \
    F(double, couple, FX_UNCHANGED)  /* of AdamW: 0 or 1 */                                        \
    F(double, ell1, FX_UNCHANGED)    /* ℓ₁ of Rprop */                                             \
    F(double, ell2, FX_UNCHANGED)    /* ℓ₂ of Rprop */                                             \
    F(double, gamma1, FX_UNCHANGED)  /* Γ₁ of Rprop */                                             \
    F(double, gamma2, FX_UNCHANGED)  /* Γ₂ of Rprop */                                             \
    F(double, delta, FX_UNCHANGED)   /* δ of ClipGrad */                                           \
    F(double, omega, FX_UNCHANGED)   /* ω of ClipNorm */                                           \
    F(double, p, FX_UNCHANGED)       /* p of ClipNorm */                                           \
    F(double, throws, FX_UNCHANGED)  /* of ClipNorm: 0 or 1 */                                     \
    F(double, n, FX_UNCHANGED)       /* n of AccumGrad */                                          \
    F(double, scale, FX_UNCHANGED)   /* of MixedPrecision */
/* clang-format on */
FXI_OPTION_STRUCT(fx_adjust_args, FXI_ADJUST_ARGS);
#define FXI_RULE(f, T, MEMBERS, ...)                                                               \
    FXI_CALL(f(FXI_OPTIONS(T, MEMBERS(FXI_DEFAULT).fxi_size = sizeof(T), __VA_ARGS__)))
#define fx_descent(...)  FXI_RULE(fxi_descent, fx_descent_args, FXI_DESCENT_ARGS, __VA_ARGS__)
#define fx_momentum(...) FXI_RULE(fxi_momentum, fx_momentum_args, FXI_MOMENTUM_ARGS, __VA_ARGS__)
#define fx_nesterov(...) FXI_RULE(fxi_nesterov, fx_nesterov_args, FXI_NESTEROV_ARGS, __VA_ARGS__)
#define fx_rprop(...)    FXI_RULE(fxi_rprop, fx_rprop_args, FXI_RPROP_ARGS, __VA_ARGS__)
#define fx_rmsprop(...)  FXI_RULE(fxi_rmsprop, fx_rmsprop_args, FXI_RMSPROP_ARGS, __VA_ARGS__)
#define fx_adam(...)     FXI_RULE(fxi_adam, fx_adam_args, FXI_ADAM_ARGS, __VA_ARGS__)
#define fx_adamw(...)    FXI_RULE(fxi_adamw, fx_adamw_args, FXI_ADAMW_ARGS, __VA_ARGS__)
#define fx_adamax(...)   FXI_RULE(fxi_adamax, fx_adamax_args, FXI_ADAM_ARGS, __VA_ARGS__)
#define fx_nadam(...)    FXI_RULE(fxi_nadam, fx_nadam_args, FXI_ADAM_ARGS, __VA_ARGS__)
#define fx_radam(...)    FXI_RULE(fxi_radam, fx_radam_args, FXI_ADAM_ARGS, __VA_ARGS__)
#define fx_amsgrad(...)  FXI_RULE(fxi_amsgrad, fx_amsgrad_args, FXI_ADAM_ARGS, __VA_ARGS__)
#define fx_oadam(...)    FXI_RULE(fxi_oadam, fx_oadam_args, FXI_OADAM_ARGS, __VA_ARGS__)
#define fx_adabelief(...)                                                                          \
    FXI_RULE(fxi_adabelief, fx_adabelief_args, FXI_ADABELIEF_ARGS, __VA_ARGS__)
#define fx_adagrad(...)  FXI_RULE(fxi_adagrad, fx_adagrad_args, FXI_ADAGRAD_ARGS, __VA_ARGS__)
#define fx_adadelta(...) FXI_RULE(fxi_adadelta, fx_adadelta_args, FXI_ADADELTA_ARGS, __VA_ARGS__)
#define fx_lion(...)     FXI_RULE(fxi_lion, fx_lion_args, FXI_LION_ARGS, __VA_ARGS__)
#define fx_weight_decay(...)                                                                       \
    FXI_RULE(fxi_weight_decay, fx_weight_decay_args, FXI_WEIGHT_DECAY_ARGS, __VA_ARGS__)
#define fx_sign_decay(...)                                                                         \
    FXI_RULE(fxi_sign_decay, fx_sign_decay_args, FXI_SIGN_DECAY_ARGS, __VA_ARGS__)
#define fx_clip_grad(...)                                                                          \
    FXI_RULE(fxi_clip_grad, fx_clip_grad_args, FXI_CLIP_GRAD_ARGS, __VA_ARGS__)
#define fx_clip_norm(...)                                                                          \
    FXI_RULE(fxi_clip_norm, fx_clip_norm_args, FXI_CLIP_NORM_ARGS, __VA_ARGS__)
#define fx_accum_grad(...)                                                                         \
    FXI_RULE(fxi_accum_grad, fx_accum_grad_args, FXI_ACCUM_GRAD_ARGS, __VA_ARGS__)
#define fx_mixed_precision(...)                                                                    \
    FXI_CALL(fxi_mixed_precision(FXI_OPTIONS(                                                      \
        fx_mixed_precision_args, FXI_MIXED_PRECISION_ARGS(FXI_DEFAULT).rule = __VA_ARGS__)))
#define fx_adjust(state, ...)                                                                      \
    FXI_CALL(fxi_adjust(                                                                           \
        (state),                                                                                   \
        FXI_OPTIONS(fx_adjust_args,                                                                \
                    FXI_ADJUST_ARGS(FXI_DEFAULT).fxi_size = sizeof(fx_adjust_args), __VA_ARGS__)))

/* Returns the optimiser state of a model, which the scope owns. A model without trainable arrays
 * gives a warning: "setup found no trainable parameters in this model". An error array if `rule` is
 * not a rule (FX_STATUS_ARGUMENT), or if the model is NULL or an error object. Optimisers.setup. */
FX_API void *fx_setup(fx_rule *rule, void *model);
/* Sets the learning rate of a state, or of a branch of it, and keeps moments.
 * Optimisers.adjust!(state, η). FX_STATUS_ARGUMENT if eta is negative or NaN. */
FX_API fx_status fx_adjust_eta(void *state, double eta);
FX_API double fx_eta(void *state); /* learning rate of the first leaf; 0 if there is none */
/* Returns the factor by which to multiply the loss of the next update, for a state of a
 * MixedPrecision with .growth; 0 for any other state. With a fixed .scale, multiply the loss by
 * that number. fx_update and fx_update_all change the factor, fx_updated does not. */
FX_API double fx_loss_scale(void *state);
/* fx_adjust(state, .eta = …, .beta1 = …): sets hyperparameters and keeps moments. In a chain every
 * rule with an option of that name gets the value. FX_STATUS_ARGUMENT, and no change, if the rule
 * does not accept the value (a negative eta, 2 for .couple, 0.5 for .n), if no rule has an option
 * of that name ("Descent(0.1) has no rho"; Optimisers.jl ignores it), or if `state` is not from
 * fx_setup. Optimisers.adjust!(state; …). */
FX_API fx_status fxi_adjust(void *state, const fx_adjust_args *given);
/* fx_freeze: arrays of this state, or of this branch of it (fx_child, fx_child_named), are not
 * updated until fx_thaw. Optimisers.freeze!, thaw!. FX_STATUS_ARGUMENT if `state` is a model. */
FX_API fx_status fx_freeze(void *state);
FX_API fx_status fx_thaw(void *state);

/* Clipping by the norm of all gradients together: fx_global_norm(g) = √(Σ dx²) over the arrays of a
 * gradient, 0-d; fx_clip_global_norm(g, most) is a gradient whose arrays are multiplied by min(most
 * / norm, 1), or by 0 if `most` is 0. Each distinct array counts once. A norm that is not finite
 * makes every gradient NaN or 0: pass the norm as fx_update's .guard to skip the update. The scope
 * owns the results. FX_STATUS_ARGUMENT for NULL, and for a negative `most`. PyTorch's
 * clip_grad_norm_. */
FX_API fx_array *fx_global_norm(void *gradient);
FX_API void *fxi_clip_global_norm(void *gradient, double most);
#define fx_clip_global_norm(gradient, most)                                                        \
    ((__typeof__(gradient))fxi_clip_global_norm((gradient), (most)))

/* fx_average(n, gradients): averages the gradients of n models of the same structure, one per
 * device, 1 ≤ n ≤ 8. gradients[i] becomes (Σₖ gradients[k])/n on the devices of the old
 * gradients[i]. Afterwards, call fx_update for model i with gradients[i]. The gradients may also be
 * losses (arrays), or tuples of a loss and a gradient. The sums are computed on the devices, by
 * NCCL or RCCL if it is installed and each gradient is on its own GPU of one backend; otherwise by
 * copies, in the order of the gradients. All models get the same bits; 16-bit numbers are added in
 * Float32. An array on which a model's loss does not depend counts as zeros there; if no loss
 * depends on it, fx_update leaves it unchanged. The call computes the gradients and the arrays of
 * fx_want; the results are constants for later gradients. On failure `gradients` is not changed.
 * FX_STATUS_SHAPE and FX_STATUS_ARGUMENT name the first parameter that differs, with its sizes and
 * devices; FX_STATUS_DTYPE names an array that is not floating-point; FX_STATUS_DEVICE names the
 * operation of NCCL that failed. */
FX_API fx_status fx_average(int n, void **gradients);

/* Options of fx_update: fx_update(state, model, gradient, .guard = loss). */
/* clang-format off */
#define FXI_UPDATE_ARGS(F)                                                                         \
    F(void *, state, FXI_NULL)     /* from fx_setup */                                             \
    F(void *, model, FXI_NULL)     /* the model */                                                 \
    F(void *, gradient, FXI_NULL)  /* from fx_gradient */                                          \
    F(fx_array *, guard, FXI_NULL) /* a loss: if it is not finite, parameters, optimiser state     \
                                      and layer state are not changed, and the call returns        \
                                      FX_STATUS_NONFINITE without an error record */               \
    F(bool, sinks, true)           /* true: also compute the pending results that were built from  \
                                      the old parameters, because they cannot be computed after    \
                                      the update. Attention scores are computed only if another    \
                                      result needs them */                                         \
    F(double, observations, -1)    /* with fx_dist_optimiser: the gradient is the mean over this   \
                                      many observations. The number is the gradient's weight in    \
                                      the mean over all members. 0: this member has none, and its  \
                                      gradient is not used. −1: equal weights. Set it on all       \
                                      members or on none */
/* clang-format on */
FXI_OPTION_STRUCT(fx_update_args, FXI_UPDATE_ARGS);
/* Applies one update: computes new parameters and state in one plan, together with the arrays of
 * fx_want and fx_set, staged layer state, and pending results that use the old parameters. Then it
 * rebinds the handles of the model's arrays: pointers to parameters stay valid and have the new
 * values. Arrays on which the loss of fx_gradient does not depend, and their states, are not
 * changed: weight decay and the momentum of earlier updates are not applied to them. In Flux their
 * gradient is `nothing`, with the same effect. With fx_dist_optimiser, their gradient is 0
 * instead, because another member may use them (dist.h). On failure model and state are not
 * changed. A GPU can find an index out of range only after the call has returned FX_OK (ops.h).
 * FX_STATUS_ARGUMENT if the three trees do not match or .observations is out of range;
 * FX_STATUS_SHAPE if the size of a gradient, or of the state's arrays, differs from that of the
 * parameter, or if a new value has another element type than the old one; FX_STATUS_DEVICE if
 * parameter, gradient and state are on different devices. If the loss of fx_gradient does not
 * depend on any parameter, a warning says so, once for a state. Optimisers.update!. */
FX_API fx_status fxi_update(const fx_update_args *a);
/* Returns the pair (new state, new model) as a tuple; does not change its arguments. The scope owns
 * the tuple; on failure it holds two error arrays. Errors: those of fx_update. Optimisers.update.
 */
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
