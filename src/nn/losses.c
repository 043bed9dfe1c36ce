/* losses.c: Flux.Losses.
 *
 * All losses share a driver. It checks the sizes, converts ŷ and y to floating point (targets of
 * integers or Bool take ŷ's type), smooths labels, fills in defaults, calls a core, and aggregates.
 * A core is the formula for one observation or element; a loss is a core and a name. The losses on
 * logits compute log(softmax) and log(σ) in one formula, so they work for logits of any size. x·log
 * y is 0 for x = 0 (xlogy), so labels that do not occur contribute 0 and not NaN.
 */
#include "nn_layer.h"

#include "error.h"
#include "recorded_part.h"

#include <inttypes.h>
#include <math.h>

typedef struct terms {
    fx_array *pred, *target; /* floating point, equal sizes */
    fx_array *hot; /* the target as Bool, if it is neither smoothed nor weighted; else NULL */
    double eps, delta, gamma, smooth, beta, margin, quantile;
    fx_axes dims;
} terms;
typedef fx_array *(*core_fn)(const terms *t);
/* How a loss smooths labels: over the classes along dims, or between two classes. WEIGHTED: does
 * not smooth, but has classes like SMOOTH_CLASSES. */
typedef enum smoothing { SMOOTH_NONE, SMOOTH_CLASSES, SMOOTH_BINARY, WEIGHTED } smoothing;

/* ---- checks ----------------------------------------------------------------------------- */

enum { SIZE_TEXT = 180 };

/* A size as Julia prints it: "(3, 4)", "(4,)", "()". */
static const char *size_text(const fx_array *x, char text[SIZE_TEXT])
{
    const int nd = fx_ndims(x);
    int n = snprintf(text, SIZE_TEXT, "(");
    for (int i = 0; i < nd; i++)
        n +=
            snprintf(text + n, (size_t)(SIZE_TEXT - n), "%s%" PRId64, i ? ", " : "", fx_size(x, i));
    snprintf(text + n, (size_t)(SIZE_TEXT - n), nd == 1 ? ",)" : ")");
    return text;
}

/* Writes what to pass if the target lacks axis 0, as the targets of PyTorch's losses do: class
 * numbers, or one number per observation. Writes "" if the sizes differ in another way. */
static const char *hint_for_target(const fx_array *pred, const fx_array *target, bool classes,
                                   char hint[SIZE_TEXT])
{
    const bool whole = !fxi_is_floating(fx_eltype(target));
    bool same = fx_ndims(pred) == fx_ndims(target) + 1 && fx_eltype(target) != FX_DTYPE_BOOL;
    for (int i = 0; i < fx_ndims(target) && same; i++)
        same = fx_size(target, i) == fx_size(pred, i + 1);
    hint[0] = '\0';
    if (same && fx_size(pred, 0) == 1)
        snprintf(hint, SIZE_TEXT, "; pass fx_unsqueeze(y, 0)");
    else if (same && (classes || whole))
        snprintf(hint, SIZE_TEXT, "; for class numbers, pass fx_onehotbatch(%s, %" PRId64 ")",
                 whole ? "y" : "fx_cast(y, FX_DTYPE_I64)", fx_size(pred, 0));
    return hint;
}

static fx_status check_sizes(const char *name, const fx_array *pred, const fx_array *target,
                             bool classes)
{
    char p[SIZE_TEXT], t[SIZE_TEXT], hint[SIZE_TEXT];
    bool same = true;
    const int pd = fx_ndims(pred), td = fx_ndims(target), nd = pd > td ? pd : td;
    for (int i = 0; i < nd && same; i++)
        same = fx_size(pred, i) == fx_size(target, i);
    if (same)
        return FX_OK;
    return fx_fail(FX_STATUS_SHAPE, name,
                   "loss function expects size(ŷ) = %s to match size(y) = %s%s", size_text(pred, p),
                   size_text(target, t), hint_for_target(pred, target, classes, hint));
}

static fx_status check(const char *name, const fx_loss_args *a, bool classes)
{
    fx_status status = fxi_expect_array(name, "the prediction", a->pred);
    if (status == FX_OK)
        status = fxi_expect_array(name, "the target", a->target);
    if (status != FX_OK)
        return status;
    if (a->sum && a->none)
        return fx_fail(FX_STATUS_ARGUMENT, name, "takes sum or none, not both");
    if (!(a->eps >= 0 || a->eps == FX_EPS))
        return fx_fail(FX_STATUS_ARGUMENT, name, "eps must be at least 0, got %g", a->eps);
    if (!(a->delta >= 0))
        return fx_fail(FX_STATUS_ARGUMENT, name, "delta must be at least 0, got %g", a->delta);
    if (!(a->gamma >= 0))
        return fx_fail(FX_STATUS_ARGUMENT, name, "gamma must be at least 0, got %g", a->gamma);
    if (!(a->smoothing >= 0 && a->smoothing < 1))
        return fx_fail(FX_STATUS_ARGUMENT, name, "smoothing must be in [0, 1), got %g",
                       a->smoothing);
    if (!(a->beta >= 0 && a->beta <= 1))
        return fx_fail(FX_STATUS_ARGUMENT, name, "beta must be in [0, 1], got %g", a->beta);
    if (!(a->margin >= 0))
        return fx_fail(FX_STATUS_ARGUMENT, name, "the margin cannot be negative, got %g",
                       a->margin);
    if (!(a->quantile > 0 && a->quantile < 1))
        return fx_fail(FX_STATUS_ARGUMENT, name, "quantile must be between 0 and 1, got %g",
                       a->quantile);
    return check_sizes(name, a->pred, a->target, classes);
}

/* The only axis of a set; −1 if there are none or several. */
static int only_axis(fx_axes axes)
{
    for (int i = 0; i < FX_MAX_DIMS; i++)
        if (axes.bits == 1u << i)
            return i;
    return -1;
}

static fx_status check_weights(const char *name, const fx_loss_args *a, bool classes)
{
    const int axis = only_axis(a->dims);
    char w[SIZE_TEXT];
    if (!a->weights)
        return FX_OK;
    const fx_status status = fxi_expect_array(name, "the array of weights", a->weights);
    if (status != FX_OK)
        return status;
    if (!classes || axis < 0)
        return fx_fail(FX_STATUS_ARGUMENT, name, "takes no weights of classes%s",
                       classes ? " along several axes" : "");
    if (fx_ndims(a->weights) != 1 || fx_size(a->weights, 0) != fx_size(a->target, axis))
        return fx_fail(FX_STATUS_SHAPE, name,
                       "expects one weight for each of %lld classes, got size %s",
                       (long long)fx_size(a->target, axis), size_text(a->weights, w));
    return FX_OK;
}

/* ---- preparation ------------------------------------------------------------------------ */

/* The number of classes along these axes. Axes that x does not have are ignored. */
static int64_t classes(const fx_array *x, fx_axes axes)
{
    int64_t n = 1;
    for (int i = 0; i < fx_ndims(x); i++)
        if (axes.bits == FXI_BIT_ALL || axes.bits >> i & 1)
            n *= fx_size(x, i);
    return n;
}

static fx_array *smoothed(fx_array *y, double alpha, int64_t n)
{
    return fx_add(fx_mul(y, 1 - alpha), alpha / (double)(n > 0 ? n : 1));
}

/* Every term of a class has its target as a factor, so weights of classes are weights of targets.
 */
static fx_array *weighted(fx_array *y, fx_array *weights, int axis)
{
    int64_t sizes[FX_MAX_DIMS];
    for (int i = 0; i < FX_MAX_DIMS; i++)
        sizes[i] = i == axis ? fx_length(weights) : 1;
    return fx_mul(y, fx_cast(fxi_reshape(weights, axis + 1, sizes), fx_eltype(y)));
}

static terms prepare(const fx_loss_args *a, smoothing how)
{
    terms t = {.pred = a->pred,
               .target = a->target,
               .hot = fx_eltype(a->target) == FX_DTYPE_BOOL && !a->weights && a->smoothing == 0
                          ? a->target
                          : NULL,
               .dims = a->dims,
               .delta = a->delta,
               .gamma = a->gamma,
               .smooth = a->smooth,
               .beta = a->beta,
               .margin = a->margin,
               .quantile = a->quantile};
    if (!fxi_is_floating(fx_eltype(t.pred)))
        t.pred = fx_cast(t.pred,
                         fxi_is_floating(fx_eltype(t.target)) ? fx_eltype(t.target) : FX_DTYPE_F32);
    if (!fxi_is_floating(fx_eltype(t.target)))
        t.target = fx_cast(t.target, fx_eltype(t.pred));
    t.eps = a->eps == FX_EPS ? fxi_epsilon(fx_eltype(t.pred)) : a->eps;
    if ((how == SMOOTH_CLASSES || how == SMOOTH_BINARY) && a->smoothing > 0)
        t.target =
            smoothed(t.target, a->smoothing, how == SMOOTH_BINARY ? 2 : classes(t.target, t.dims));
    if (a->weights)
        t.target = weighted(t.target, a->weights, only_axis(t.dims));
    return t;
}

static fx_array *loss_of(const char *name, const fx_loss_args *a, smoothing how, core_fn core)
{
    const bool has_classes = how == SMOOTH_CLASSES || how == WEIGHTED;
    fx_status s = check(name, a, has_classes);
    if (s == FX_OK)
        s = check_weights(name, a, has_classes);
    if (s == FX_OK && a->smoothing != 0 && how != SMOOTH_CLASSES && how != SMOOTH_BINARY)
        s = fx_fail(FX_STATUS_ARGUMENT, name, "takes no label smoothing, got %g", a->smoothing);
    if (s != FX_OK)
        return fx_error_array(s);
    FXI_SCOPE;
    const terms t = prepare(a, how);
    fx_array *each = core(&t);
    return fx_keep(a->none ? each : a->sum ? fx_sum(each) : fx_mean(each));
}

/* In a recorded training step, repeats the loss that was computed before (recorded_part.h). */
static fx_array *loss(const char *name, const fx_loss_args *a, smoothing how, core_fn core)
{
    fxi_part p = {.what = name,
                  .numbers = {a->eps, a->delta, a->gamma, a->smoothing, a->smooth, a->beta,
                              a->margin, a->quantile, a->dims.bits, a->sum, a->none},
                  .in = {a->pred, a->target, a->weights}};
    if (!fxi_part_repeat(&p)) {
        p.out[0] = loss_of(name, a, how, core);
        fxi_part_note(&p);
    }
    return p.out[0];
}

/* ---- formulas --------------------------------------------------------------------------- */

static fx_array *error_of(const terms *t)
{
    return fx_sub(t->pred, t->target);
}
static fx_array *total(const terms *t, fx_array *x)
{
    return fx_sum(x, .dims = t->dims);
}

static fx_array *squared_error(const terms *t)
{
    return fx_square(error_of(t));
}
static fx_array *absolute_error(const terms *t)
{
    return fx_abs(error_of(t));
}
static fx_array *squared_log_error(const terms *t)
{
    return fx_square(fx_log(fx_div(fx_add(t->pred, t->eps), fx_add(t->target, t->eps))));
}

/* ½e² near 0, and a line that continues it with the same slope from |e| = δ on, so outliers have a
 * bounded gradient (Huber, 1964). */
static fx_array *huber(const terms *t)
{
    fx_array *e = fx_abs(error_of(t));
    fx_array *line = fx_mul(t->delta, fx_sub(e, 0.5 * t->delta));
    return fx_where(fx_lt(e, t->delta), fx_mul(0.5, fx_square(e)), line);
}

/* The error |y − ŷ|, multiplied by q if the prediction ŷ is below y, and by 1 − q if it is above
 * (Koenker, Bassett, 1978). */
static fx_array *quantile(const terms *t)
{
    fx_array *below = fx_sub(t->target, t->pred);
    return fx_max(fx_mul(t->quantile, below), fx_mul(t->quantile - 1, below));
}

/* −Σ y·log(ŷ + ε). xlogy is 0 where y is 0, also where log gives −∞: a class without probability
 * and without target costs nothing. */
static fx_array *class_entropy(const terms *t)
{
    return fx_neg(total(t, fx_xlogy(t->target, fx_add(t->pred, t->eps))));
}
/* Can the loss of the scores be computed by bool_class_entropy? Only types that are not converted
 * to another one for the computation; an empty array has no maximum. */
static bool is_bool_target(const terms *t)
{
    const fx_dtype type = fx_eltype(t->pred);
    return t->hot && (type == FX_DTYPE_F32 || type == FX_DTYPE_F64) && fx_length(t->pred) > 0;
}

/* The same loss for Bool targets: n·log Σe^d − Σd over the n classes that are true, where d is the
 * score minus the largest one. No term waits for the logarithm, so a row is read in two passes
 * instead of three. A score of −Inf costs nothing where the target is false. */
static fx_array *bool_class_entropy(const terms *t)
{
    fx_array *top = fx_stop_gradient(fx_maximum(t->pred, .dims = t->dims));
    fx_array *d = fx_sub(t->pred, top), *log_sum = fx_log(total(t, fx_exp(d)));
    return fx_sub(fx_mul(total(t, t->target), log_sum), total(t, fx_where(t->hot, d, 0)));
}

/* −Σ y·log softmax(ŷ). log softmax subtracts the largest score first, so no exponential overflows;
 * the gradient is softmax(ŷ)·Σy − y. */
static fx_array *logit_class_entropy(const terms *t)
{
    if (is_bool_target(t))
        return bool_class_entropy(t);
    return fx_neg(total(t, fx_mul(t->target, fx_logsoftmax(t->pred, .dims = t->dims))));
}
/* Σ y·log y − y·log(ŷ + ε): the cross-entropy minus the entropy of the target. */
static fx_array *divergence(const terms *t)
{
    return fx_add(total(t, fx_xlogy(t->target, t->target)), class_entropy(t));
}

static fx_array *binary_entropy(const terms *t)
{
    fx_array *yes = fx_xlogy(t->target, fx_add(t->pred, t->eps));
    fx_array *no = fx_xlogy(fx_sub(1, t->target), fx_add(fx_sub(1, t->pred), t->eps));
    return fx_sub(fx_neg(yes), no);
}
/* −y·log σ(ŷ) − (1−y)·log(1−σ(ŷ)), simplified by 1 − σ(ŷ) = σ(−ŷ) and log σ(−ŷ) = log σ(ŷ) − ŷ.
 * logsigmoid does not overflow. */
static fx_array *logit_binary_entropy(const terms *t)
{
    return fx_sub(fx_mul(fx_sub(1, t->target), t->pred), fx_logsigmoid(t->pred));
}

/* The negative log-likelihood of a count y with mean ŷ, without the constant log y!. */
static fx_array *poisson(const terms *t)
{
    return fx_sub(t->pred, fx_xlogy(t->target, t->pred));
}
static fx_array *hinge(const terms *t)
{
    return fx_max(0, fx_sub(1, fx_mul(t->pred, t->target)));
}
static fx_array *squared_hinge(const terms *t)
{
    return fx_square(hinge(t));
}

/* (1−p)^γ, which lowers the weight of observations that are already classified well (Lin et al.,
 * 2017). p may be 1 + ε, and a fractional power of a negative number is NaN (Flux throws). */
static fx_array *focus(const terms *t, fx_array *p)
{
    fx_array *rest = fx_sub(1, p);
    if (t->gamma != floor(t->gamma))
        rest = fx_max(rest, fxi_epsilon(fx_eltype(p)));
    return fx_pow(rest, t->gamma);
}
static fx_array *focal(const terms *t)
{
    fx_array *p = fx_add(t->pred, t->eps), *rest = focus(t, p);
    return fx_neg(total(t, fx_mul(fx_mul(t->target, rest), fx_log(p))));
}
/* ŷ = 1 makes 1 − ŷ − ε negative, whose logarithm is NaN (Flux throws). Such a value is replaced by
 * ε, but keeps the gradient of 1 − ŷ − ε: a certain and wrong prediction has to learn most. */
static fx_array *binary_focal(const terms *t)
{
    fx_array *yes = fx_add(t->pred, t->eps), *no = fx_sub(1, yes);
    no = fx_add(no, fx_stop_gradient(fx_sub(fx_max(no, t->eps), no)));
    fx_array *p = fx_add(fx_mul(t->target, yes), fx_mul(fx_sub(1, t->target), no));
    return fx_neg(fx_mul(focus(t, p), fx_log(p)));
}
/* y = 0: the inputs belong together, and the square of their distance is the loss; y = 1: they
 * differ, and only distances below the margin cost (Hadsell, Chopra, LeCun, 2006). */
static fx_array *contrastive(const terms *t)
{
    fx_array *apart = fx_square(fx_max(0, fx_sub(t->margin, t->pred)));
    return fx_add(fx_mul(fx_sub(1, t->target), fx_square(t->pred)), fx_mul(t->target, apart));
}
/* Dice's overlap of two sets, 2|A∩B|/(|A|+|B|), with products and squares in place of the counts,
 * as in V-Net (Milletari, Navab, Ahmadi, 2016). s avoids 0/0 for two empty sets. */
static fx_array *dice(const terms *t)
{
    fx_array *both = fx_add(fx_mul(2, fx_sum(fx_mul(t->target, t->pred))), t->smooth);
    fx_array *all = fx_add(fx_sum(fx_square(t->target)), fx_sum(fx_square(t->pred)));
    return fx_sub(1, fx_div(both, fx_add(all, t->smooth)));
}
/* Tversky's index: like Dice, with separate weights for false positives (1−β) and false negatives
 * (β) (Salehi, Erdogmus, Gholipour, 2017). */
static fx_array *tversky(const terms *t)
{
    fx_array *both = fx_sum(fx_mul(t->target, t->pred));
    fx_array *wrong_yes = fx_mul(1 - t->beta, fx_mul(fx_sub(1, t->target), t->pred));
    fx_array *wrong_no = fx_mul(t->beta, fx_mul(t->target, fx_sub(1, t->pred)));
    fx_array *all = fx_add(both, fx_sum(fx_add(wrong_yes, wrong_no)));
    return fx_sub(1, fx_div(fx_add(both, 1), fx_add(all, 1)));
}

#define LOSS(name, how, core)                                                                      \
    fx_array *fxi_##name(const fx_loss_args *given)                                                \
    {                                                                                              \
        FXI_OPERATION(#name);                                                                      \
        FXI_TAKE_OPTIONS(fx_loss_args, FXI_LOSS_ARGS, a, #name, given);                            \
        return a_ok ? loss(#name, &a, how, core) : fx_error_array(FX_STATUS_ARGUMENT);             \
    }
LOSS(mse, SMOOTH_NONE, squared_error)
LOSS(mae, SMOOTH_NONE, absolute_error)
LOSS(msle, SMOOTH_NONE, squared_log_error)
LOSS(huber_loss, SMOOTH_NONE, huber)
LOSS(quantile_loss, SMOOTH_NONE, quantile)
LOSS(crossentropy, SMOOTH_CLASSES, class_entropy)
LOSS(logitcrossentropy, SMOOTH_CLASSES, logit_class_entropy)
LOSS(binarycrossentropy, SMOOTH_BINARY, binary_entropy)
LOSS(logitbinarycrossentropy, SMOOTH_BINARY, logit_binary_entropy)
LOSS(kldivergence, SMOOTH_NONE, divergence)
LOSS(poisson_loss, SMOOTH_NONE, poisson)
LOSS(hinge_loss, SMOOTH_NONE, hinge)
LOSS(squared_hinge_loss, SMOOTH_NONE, squared_hinge)
LOSS(focal_loss, WEIGHTED, focal)
LOSS(binary_focal_loss, SMOOTH_NONE, binary_focal)
LOSS(siamese_contrastive_loss, SMOOTH_NONE, contrastive)
LOSS(dice_coeff_loss, SMOOTH_NONE, dice)
LOSS(tversky_loss, SMOOTH_NONE, tversky)

fx_array *fx_label_smoothing(fx_array *y, double alpha, fx_axes dims)
{
    FXI_OPERATION("label_smoothing");
    const fx_status status = fxi_expect_array("label_smoothing", "y", y);
    if (status != FX_OK)
        return fx_error_array(status);
    if (!(alpha > 0 && alpha < 1))
        return fx_error_array(fx_fail(FX_STATUS_ARGUMENT, "label_smoothing",
                                      "alpha must be between 0 and 1, got %g", alpha));
    FXI_SCOPE;
    y = fxi_is_floating(fx_eltype(y)) ? y : fx_cast(y, FX_DTYPE_F32);
    return fx_keep(smoothed(y, alpha, dims.bits ? classes(y, dims) : 2));
}
