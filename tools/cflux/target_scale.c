/* target_scale.c: finds targets that are too large or too small to be learned: see target_scale.h.
 *
 * cflux train scales inputs, not targets, so a new model begins with outputs near 0. A training
 * step of Adam changes a parameter by at most about the learning rate η. Measured with 4 features,
 * 800 observations and 32 hidden units: in n steps R² reaches 0.98 for targets up to about 10·n·η,
 * and is below 0 for a mean of 13·n·η with a standard deviation a tenth of that. With a standard
 * deviation of 0.01 it is below 0 after 750 steps.
 */
#include "target_scale.h"
#include "clean_text.h"
#include "failure.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Up to USUAL a target is not too large, because a short run does not learn anything else either.
 */
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

static bool is_examined(const train_run *r)
{
    static const char *const losses[] = {"mse", "mae", "huber_loss"};
    return !r->p.classes && !r->p.context && !r->o->init && !r->schedule &&
           has_fixed_steps(r->o->optimiser) &&
           is_one_of(r->p.loss, strlen(r->p.loss), losses, sizeof losses / sizeof *losses);
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
    const double most = fmax(fabs(mean), std), rate = fx_eta(r->state),
                 reach = fmax(USUAL, REACH * steps * rate);
    if (std > 0 && most > reach)
        warn(
            "the target \"%s\" has mean %.4g and standard deviation %.4g, which %.0f training "
            "steps "
            "with the learning rate %.4g may not reach: use %smore --epochs, or other units of the "
            "target",
            name, mean, std, steps, rate,
            rate < 0.1 ? "a larger rate, such as -o 'Adam(0.1)', " : "");
    else if (std > 0 && std < LEAST)
        warn(
            "the target \"%s\" has standard deviation %.4g, which is less than the errors of a new "
            "model: use other units of the target, such as its values times %.0f",
            name, std, pow(10, -floor(log10(std))));
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
