/* target_scale.c: scales targets, or finds those that cannot be learned: see target_scale.h.
 *
 * A new model begins with outputs near 0. A training step of Adam changes a parameter by at most
 * about the learning rate η. Measured with 4 features, 800 observations and 32 hidden units: in n
 * training steps R² reaches 0.98 for targets up to about 10·n·η, and is below 0 for a mean of
 * 13·n·η with a standard deviation a tenth of that. With a standard deviation of 0.01 it is below 0
 * after 750 training steps.
 */
#include "target_scale.h"
#include "clean_text.h"
#include "failure.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A target is too large above REACH·n·η, but only above USUAL: a run of so few training steps that
 * REACH·n·η < USUAL is too short for any targets, and other units would not help. A standard
 * deviation below LEAST is too small. */
static const double REACH = 10, USUAL = 25, LEAST = 0.03;

static bool is_one_of(const char *name, size_t length, const char *const *names, int n)
{
    for (int i = 0; i < n; i++)
        if (strlen(names[i]) == length && strncmp(names[i], name, length) == 0)
            return true;
    return false;
}

/* True if the size of a training step of the optimiser does not grow with the gradient. */
static bool has_fixed_steps(const char *optimiser)
{
    static const char *const names[] = {"Adam",   "AdamW",     "RAdam",   "NAdam",
                                        "AdaMax", "OAdam",     "AMSGrad", "RMSProp",
                                        "Lion",   "AdaBelief", "AdaGrad"};
    return is_one_of(optimiser, strcspn(optimiser, "("), names, sizeof names / sizeof *names);
}

/* True if the targets can be numbers of any size and sign. */
static bool learns_any_numbers(const problem *p)
{
    static const char *const losses[] = {"mse", "mae", "huber_loss"};
    return !p->classes && !p->context &&
           is_one_of(p->loss, strlen(p->loss), losses, sizeof losses / sizeof *losses);
}

/* ---- the scale ------------------------------------------------------------------------------- */

/* The last layer of the model if it is W·h + b; otherwise NULL. */
static const fx_dense_layer *last_linear(const void *model)
{
    const char *name = fx_type_of(model)->name;
    if (strcmp(name, "Chain") == 0)
        return fx_count(model) ? last_linear(fx_child(model, fx_count(model) - 1)) : NULL;
    const fx_dense_layer *dense = strcmp(name, "Dense") == 0 ? model : NULL;
    return dense && dense->bias && dense->act == FX_IDENTITY ? dense : NULL;
}

/* New parameters of the last layer. */
typedef struct new_layer {
    const fx_dense_layer *old;
    fx_array *weight, *bias;
} new_layer;

static fx_array *replaced(fx_array *x, void *user)
{
    const new_layer *n = user;
    return x == n->old->weight ? n->weight : x == n->old->bias ? n->bias : x;
}

/* The last layer W·h + b becomes a·W·h + a·b + c; without `weight`, W·h + a·b + c. */
static int change_last_layer(train_run *r, fx_array *a, fx_array *c, bool weight)
{
    const fx_dense_layer *old = last_linear(r->t.model);
    fx_device *device = fx_device_of(r->t.model);
    fx_array *factor = fx_to(device, fx_cast(a, FX_DTYPE_F32));
    fx_array *bias = fx_add(fx_mul(old->bias, factor), fx_to(device, fx_cast(c, FX_DTYPE_F32)));
    new_layer n = {old, weight ? fx_mul(old->weight, factor) : old->weight, bias};
    r->t.model = fx_fmap_with(replaced, &n, r->t.model);
    return fx_eval(r->t.model) == FX_OK ? EXIT_FINE : fail_library(EXIT_FAILED);
}

static fx_array *scaled(const train_run *r, fx_array *y)
{
    return fx_cast(fx_div(fx_sub(fx_cast(y, FX_DTYPE_F64), r->target_mean), r->target_std),
                   FX_DTYPE_F32);
}

int scale_targets(train_run *r, const void *fresh)
{
    const fx_dense_layer *last = last_linear(r->t.model);
    int64_t axes[FX_MAX_DIMS];
    int n = 0;
    r->y = r->d.y;
    r->vy = r->d.vy;
    if (r->o->raw_targets || !learns_any_numbers(&r->p) || !last ||
        fx_size(last->weight, 0) != fx_size(r->y, 0))
        return EXIT_FINE;
    for (; n + 1 < fx_ndims(r->y); n++)
        axes[n] = n + 1;
    standard_scale(r->y, fx_axes_of(n, axes), &r->target_mean, &r->target_std);
    r->target_mean = fx_vec(r->target_mean);
    r->target_std = fx_vec(r->target_std);
    r->y = scaled(r, r->y);
    r->vy = r->vy ? scaled(r, r->vy) : NULL;
    if (fx_eval(r->vy ? fx_tuple(r->y, r->vy) : (void *)r->y) != FX_OK)
        return fail_library(EXIT_FAILED);
    /* --init may copy only the bias, if the saved layer has another number of inputs. */
    const fx_dense_layer *begun = last_linear(fresh);
    const bool weight = begun->weight != last->weight;
    return weight || begun->bias != last->bias
               ? change_last_layer(r, fx_div(1, r->target_std),
                                   fx_neg(fx_div(r->target_mean, r->target_std)), weight)
               : EXIT_FINE;
}

int unscale_model(train_run *r)
{
    return r->target_std ? change_last_layer(r, r->target_std, r->target_mean, true) : EXIT_FINE;
}

/* ---- targets without a scale ----------------------------------------------------------------- */

static bool is_examined(const train_run *r)
{
    return !r->target_std && learns_any_numbers(&r->p) && !r->o->init && !r->schedule &&
           has_fixed_steps(r->o->optimiser);
}

/* Mean and standard deviation of target k of `each`. */
static void moments(const double *y, int64_t n, int64_t each, int64_t k, double *mean, double *std)
{
    double squares = 0;
    *mean = 0;
    for (int64_t i = 0; i < n; i++)
        *mean += y[i * each + k] / (double)n;
    for (int64_t i = 0; i < n; i++)
        squares += (y[i * each + k] - *mean) * (y[i * each + k] - *mean);
    *std = sqrt(squares / (double)n);
}

/* The name of target k, for messages: its column, or "3 of a,b,c". */
static void name_target(const train_run *r, int64_t each, int64_t k, char *text, size_t size)
{
    char name[200] = "";
    clean_text(r->d.data.target ? r->d.data.target : "", name, sizeof name);
    if (each == 1)
        snprintf(text, size, "%s", name);
    else
        snprintf(text, size, "%lld of %s", (long long)k + 1, name);
}

/* True if target k cannot be learned; prints the warning. */
static bool examine(const train_run *r, const double *y, int64_t each, int64_t k)
{
    char name[240];
    double mean, std;
    const int64_t n = r->d.ntrain, size = r->o->batchsize < n ? r->o->batchsize : n;
    const double steps = (double)r->o->epochs * (double)((n + size - 1) / size);
    moments(y, n, each, k, &mean, &std);
    name_target(r, each, k, name, sizeof name);
    const char *how = r->o->raw_targets
                          ? last_linear(r->t.model) ? ", or leave out --raw-targets" : ""
                          : ", or end the model in a Dense layer with a bias and without an "
                            "activation, so that the targets are scaled";
    const double most = fmax(fabs(mean), std), rate = fx_eta(r->state),
                 reach = fmax(USUAL, REACH * steps * rate);
    if (std > 0 && most > reach)
        warn("the target \"%s\" has mean %.4g and standard deviation %.4g, which %.0f training "
             "steps "
             "with the learning rate %.4g may not reach: use %smore --epochs, other units of the "
             "target%s",
             name, mean, std, steps, rate,
             rate < 0.1 ? "a larger rate, such as -o 'Adam(0.1)', " : "", how);
    else if (std > 0 && std < LEAST)
        warn(
            "the target \"%s\" has standard deviation %.4g, which is less than the errors of a new "
            "model: use other units of the target, such as its values times %.0f%s",
            name, std, pow(10, -floor(log10(std))), how);
    return std > 0 && (most > reach || std < LEAST);
}

void warn_of_target_scale(const train_run *r)
{
    FX_SCOPE;
    const int64_t total = fx_length(r->d.y), each = r->d.ntrain > 0 ? total / r->d.ntrain : 0;
    if (each < 1 || !is_examined(r))
        return;
    double *y = calloc((size_t)total, sizeof *y);
    const bool good = y && fx_read_as(r->d.y, FX_DTYPE_F64, y, total) == FX_OK;
    for (int64_t k = 0; good && k < each; k++)
        if (examine(r, y, each, k))
            break;
    free(y);
}
