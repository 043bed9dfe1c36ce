/* cflux/losses.h: Flux.Losses: mean errors, cross-entropies, hinge, focal, overlap and CTC losses.
 * Included by nn.h. A loss is a function of the prediction ŷ and the target y: fx_mse(ŷ, y, .sum =
 * true). */
#ifndef CFLUX_LOSSES_H
#define CFLUX_LOSSES_H

#include <cflux/layer.h>

FXI_BEGIN_C

/* Value of the option .eps of losses: the machine epsilon of ŷ's element type. */
#define FX_EPS (-1.0)
/* Options of losses: fx_mse(ŷ, y, .sum = true). ŷ and y must have the same shape, except in
 * fx_ctc_loss (FX_STATUS_SHAPE: "loss function expects size(ŷ) = (3, 4) to match size(y) = (4,)").
 * Integer and Bool targets are converted to ŷ's type; integer and Bool predictions to y's type, or
 * to Float32 if y is not floating-point either. FX_STATUS_ARGUMENT for NULL, for both .sum and
 * .none, for a number out of its range, for .smoothing or .weights with a loss that does not use
 * them, and for .weights with several .dims; FX_STATUS_SHAPE for .weights of another length. */
/* clang-format off */
#define FXI_LOSS_ARGS(F)                                                                           \
    F(fx_array *, pred, FXI_NULL)    /* ŷ, the prediction */                                       \
    F(fx_array *, target, FXI_NULL)  /* y, the target */                                           \
    F(bool, sum, false)              /* true: return the sum; Flux's agg = sum */                  \
    F(bool, none, false)             /* true: return every value; Flux's agg = identity */         \
    F(double, eps, FX_EPS)           /* ε ≥ 0; default: machine epsilon of ŷ's type */             \
    F(fx_axes, dims, FXI_AXES_OF(0)) /* axes of the classes */                                     \
    F(double, delta, 1)              /* δ ≥ 0 of fx_huber_loss */                                  \
    F(double, smoothing, 0)          /* label smoothing α in [0, 1), cross-entropies only */       \
    F(double, gamma, 2)              /* γ ≥ 0 of fx_focal_loss and fx_binary_focal_loss */         \
    F(double, smooth, 1)             /* s of fx_dice_coeff_loss */                                 \
    F(double, beta, 0.7)             /* β of fx_tversky_loss, in [0, 1] */                         \
    F(double, margin, 1)             /* m ≥ 0 of fx_siamese_contrastive_loss */                    \
    F(fx_array *, weights, FXI_NULL) /* crossentropy, logitcrossentropy and focal_loss: a factor   \
                                        for each class, which multiplies its terms. The mean still \
                                        divides by the number of observations */                   \
    F(double, quantile, 0.5)         /* q of fx_quantile_loss, in (0, 1) */
/* clang-format on */
FXI_OPTION_STRUCT(fx_loss_args, FXI_LOSS_ARGS);
/* The formulas are per element, with e = ŷ − y; Σ is over .dims (default: axis 0, the classes). The
 * result is the mean over all remaining values, a 0-d array, unless .sum or .none is set. Losses
 * with *logit* in the name expect raw scores, without softmax or sigmoid; they stay finite where
 * the others overflow. */
FX_API fx_array *fxi_mse(const fx_loss_args *a);        /* (ŷ − y)² */
FX_API fx_array *fxi_mae(const fx_loss_args *a);        /* |ŷ − y| */
FX_API fx_array *fxi_msle(const fx_loss_args *a);       /* log((ŷ + ε)/(y + ε))² */
FX_API fx_array *fxi_huber_loss(const fx_loss_args *a); /* ½e² if |e| < δ, else δ(|e| − ½δ) */
/* max(q·(y − ŷ), (q − 1)·(y − ŷ)), the pinball loss. Its mean is smallest if ŷ is the quantile q of
 * y: a fraction q of the values of y is at most this number. Flux has no such loss. Koenker,
 * Bassett, 1978. */
FX_API fx_array *fxi_quantile_loss(const fx_loss_args *a);
FX_API fx_array *fxi_crossentropy(const fx_loss_args *a);      /* −Σ y·log(ŷ + ε) */
FX_API fx_array *fxi_logitcrossentropy(const fx_loss_args *a); /* −Σ y·logsoftmax(ŷ) */
FX_API fx_array *fxi_binarycrossentropy(const fx_loss_args *a); /* −y·log(ŷ+ε) − (1−y)·log(1−ŷ+ε) */
FX_API fx_array *fxi_logitbinarycrossentropy(const fx_loss_args *a); /* (1−y)·ŷ − logσ(ŷ) */
FX_API fx_array *fxi_kldivergence(const fx_loss_args *a); /* Σ (y·log(y) − y·log(ŷ+ε)) */
FX_API fx_array *fxi_poisson_loss(const fx_loss_args *a); /* ŷ − y·log ŷ */
FX_API fx_array *fxi_hinge_loss(const fx_loss_args *a);   /* max(0, 1 − ŷ·y), y = ±1 */
FX_API fx_array *fxi_squared_hinge_loss(const fx_loss_args *a); /* max(0, 1 − ŷ·y)², y = ±1 */
/* −Σ y·(1−p)^γ·log p, p = ŷ + ε; Lin et al., 2017 */
FX_API fx_array *fxi_focal_loss(const fx_loss_args *a);
/* −(1−p)^γ·log p, p = y·(ŷ+ε) + (1−y)·max(1−ŷ−ε, ε). The gradient is that of the formula without
 * max, so that a wrong prediction with p near 0 is corrected. */
FX_API fx_array *fxi_binary_focal_loss(const fx_loss_args *a);
/* (1−y)·ŷ² + y·max(0, m−ŷ)², ŷ a distance; y = 1: the two inputs differ. Hadsell et al., 2006 */
FX_API fx_array *fxi_siamese_contrastive_loss(const fx_loss_args *a);
/* 1 − (2·Σ y·ŷ + s) / (Σ y² + Σ ŷ² + s), 0-d: the sums are over all elements. Milletari et
 * al., 2016. */
FX_API fx_array *fxi_dice_coeff_loss(const fx_loss_args *a);
/* 1 − (Σ y·ŷ + 1) / (Σ(y·ŷ + (1−β)·(1−y)·ŷ + β·y·(1−ŷ)) + 1), 0-d: the sums are over all elements.
 * A larger β gives false negatives more weight, as Flux's documentation says. The code of Flux 0.16
 * exchanges β and 1−β: pass 1−β to get its result. Salehi et al., 2017. */
FX_API fx_array *fxi_tversky_loss(const fx_loss_args *a);
/* Connectionist temporal classification. ŷ: raw scores, classes×times or classes×times×batch; the
 * last class is the blank. y: labels from 0 as integers, a vector or length×batch; a negative label
 * ends a shorter sequence. One value for each sequence; Inf if there are too few time steps for
 * the labels. The labels are read (evaluated) by the call. FX_STATUS_SHAPE if the sizes do not
 * match; FX_STATUS_DTYPE for labels that are not integers; FX_STATUS_ARGUMENT for a label that is
 * not a class, and for .eps and .smoothing, which this loss does not use. NNlib.ctc_loss; Graves et
 * al., 2006. */
FX_API fx_array *fxi_ctc_loss(const fx_loss_args *a);
/* y·(1−α) + α/n for the n classes along `dims`. An empty `dims` means two classes, n = 2. Integer
 * and Bool targets become Float32. FX_STATUS_ARGUMENT unless 0 < α < 1. Flux.label_smoothing;
 * Szegedy et al., 2016. */
FX_API fx_array *fx_label_smoothing(fx_array *y, double alpha, fx_axes dims);

/* Calls a loss through a pointer, e.g. from fx_parse_loss: fx_call_loss(formula, ŷ, y, .sum =
 * true). */
#define fx_call_loss(formula, ...)                                                                 \
    FXI_CALL((formula)(FXI_OPTIONS(fx_loss_args, FXI_LOSS_ARGS(FXI_DEFAULT).pred = __VA_ARGS__)))
#define fx_mse(...)                      fx_call_loss(fxi_mse, __VA_ARGS__)
#define fx_mae(...)                      fx_call_loss(fxi_mae, __VA_ARGS__)
#define fx_msle(...)                     fx_call_loss(fxi_msle, __VA_ARGS__)
#define fx_huber_loss(...)               fx_call_loss(fxi_huber_loss, __VA_ARGS__)
#define fx_quantile_loss(...)            fx_call_loss(fxi_quantile_loss, __VA_ARGS__)
#define fx_crossentropy(...)             fx_call_loss(fxi_crossentropy, __VA_ARGS__)
#define fx_logitcrossentropy(...)        fx_call_loss(fxi_logitcrossentropy, __VA_ARGS__)
#define fx_binarycrossentropy(...)       fx_call_loss(fxi_binarycrossentropy, __VA_ARGS__)
#define fx_logitbinarycrossentropy(...)  fx_call_loss(fxi_logitbinarycrossentropy, __VA_ARGS__)
#define fx_kldivergence(...)             fx_call_loss(fxi_kldivergence, __VA_ARGS__)
#define fx_poisson_loss(...)             fx_call_loss(fxi_poisson_loss, __VA_ARGS__)
#define fx_hinge_loss(...)               fx_call_loss(fxi_hinge_loss, __VA_ARGS__)
#define fx_squared_hinge_loss(...)       fx_call_loss(fxi_squared_hinge_loss, __VA_ARGS__)
#define fx_focal_loss(...)               fx_call_loss(fxi_focal_loss, __VA_ARGS__)
#define fx_binary_focal_loss(...)        fx_call_loss(fxi_binary_focal_loss, __VA_ARGS__)
#define fx_siamese_contrastive_loss(...) fx_call_loss(fxi_siamese_contrastive_loss, __VA_ARGS__)
#define fx_dice_coeff_loss(...)          fx_call_loss(fxi_dice_coeff_loss, __VA_ARGS__)
#define fx_tversky_loss(...)             fx_call_loss(fxi_tversky_loss, __VA_ARGS__)
#define fx_ctc_loss(...)                 fx_call_loss(fxi_ctc_loss, __VA_ARGS__)

FXI_END_C
#endif
