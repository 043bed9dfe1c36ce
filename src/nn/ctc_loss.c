/* ctc_loss.c: connectionist temporal classification (Graves et al., 2006), as NNlib.ctc_loss:
 * raw scores, and the blank is the last class.
 *
 * The labels l₁ … l_L become the states blank, l₁, blank, …, l_L, blank. α[s, t] is the logarithm
 * of the probability of all paths that are in state s at time t:
 *
 *     α[s, t] = log p(state s, t) + log Σ exp α[r, t−1]
 *
 * The sum is over r = s, s−1, and s−2 if the labels of s and s−2 differ.
 *
 * The loss is −log(exp α[S, T] + exp α[S−1, T]). All values are logarithms, so long inputs neither
 * underflow nor overflow; the gradient follows from the operations. IMPOSSIBLE replaces −∞, whose
 * gradient would be NaN. The call reads the labels: it checks them, and the indices of its
 * operations depend on them.
 */
#include "error.h"
#include "memory.h"
#include "nn_layer.h"
#include "option_struct.h"

#include <cflux/device.h>
#include <math.h>

static const char NAME[] = "ctc_loss";
static const double IMPOSSIBLE = -1e30;

/* The labels of all sequences, and the arrays made of them. */
typedef struct sequences {
    int64_t classes, times, count; /* count: sequences in the batch */
    int64_t most, states;          /* rows of the targets, padding included; states = 2·most + 1 */
    int64_t *labels;               /* most×count; −1 after the end of a shorter sequence */
    int64_t *index;    /* states×count: rows of log p, as a matrix of classes·count rows */
    float *skip, *end; /* states×count: 0 where s−2 → s, or ending in s, is possible */
} sequences;

static void free_sequences(sequences *q)
{
    fxi_free(q->labels);
    fxi_free(q->index);
    fxi_free(q->skip);
    fxi_free(q->end);
}

static fx_status check_shapes(const fx_loss_args *a, sequences *q)
{
    const int nd = fx_ndims(a->pred);
    char scores[100], labels[100];
    fx_summary(a->pred, scores, sizeof scores);
    fx_summary(a->target, labels, sizeof labels);
    if (nd < 2 || nd > 3)
        return fx_fail(FX_STATUS_SHAPE, NAME,
                       "expects scores of classes×times or classes×times×batch, got a %s with "
                       "labels in a %s",
                       scores, labels);
    q->classes = fx_size(a->pred, 0);
    q->times = fx_size(a->pred, 1);
    q->count = fx_size(a->pred, 2);
    q->most = fx_size(a->target, 0);
    q->states = 2 * q->most + 1;
    const fx_dtype type = fx_eltype(a->target);
    if (type != FX_DTYPE_I64 && type != FX_DTYPE_I32 && type != FX_DTYPE_U8)
        return fx_fail(FX_STATUS_DTYPE, NAME, "expects labels as integers, got %s",
                       fx_dtype_name(type));
    if (fx_ndims(a->target) > nd - 1 || fx_size(a->target, 1) != q->count || q->times < 1)
        return fx_fail(
            FX_STATUS_SHAPE, NAME,
            "expects labels of length×batch for sequences of at least one time step, got scores in "
            "a %s and labels in a %s",
            scores, labels);
    return FX_OK;
}

static fx_status read_labels(const fx_loss_args *a, sequences *q)
{
    const size_t n = (size_t)(q->most * q->count), m = (size_t)(q->states * q->count);
    q->labels = fxi_malloc((n + 1) * sizeof *q->labels);
    q->index = fxi_malloc((m + 1) * sizeof *q->index);
    q->skip = fxi_malloc((m + 1) * sizeof *q->skip);
    q->end = fxi_malloc((m + 1) * sizeof *q->end);
    if (!q->labels || !q->index || !q->skip || !q->end)
        return fx_fail(FX_STATUS_MEMORY, NAME, "no memory for %lld labels", (long long)n);
    fx_array *labels = fx_cast(a->target, FX_DTYPE_I64);
    const fx_status status = fx_read_into(labels, q->labels, n * sizeof *q->labels);
    for (size_t i = 0; i < n && status == FX_OK; i++)
        if (q->labels[i] >= q->classes - 1)
            return fx_fail(FX_STATUS_ARGUMENT, NAME,
                           "label %lld is not in 0 … %lld: the last class is the blank",
                           (long long)q->labels[i], (long long)(q->classes - 2));
    return status;
}

/* Fills in the states of sequence k. */
static void fill_states(sequences *q, int64_t k)
{
    const int64_t *l = q->labels + k * q->most, at = k * q->states, blank = q->classes - 1;
    int64_t length = 0;
    while (length < q->most && l[length] >= 0)
        length++;
    for (int64_t s = 0; s < q->states; s++) {
        const int64_t i = s / 2;
        const bool label = s % 2 == 1 && i < length;
        const bool skips = label && i > 0 && l[i] != l[i - 1];
        q->index[at + s] = (label ? l[i] : blank) + k * q->classes;
        q->skip[at + s] = skips ? 0 : (float)IMPOSSIBLE;
        q->end[at + s] = s == 2 * length || (s == 2 * length - 1) ? 0 : (float)IMPOSSIBLE;
    }
}

/* log p of each state: states×count×times. */
static fx_array *state_scores(const fx_loss_args *a, const sequences *q)
{
    fx_array *x = a->pred;
    const bool narrow = fx_eltype(x) == FX_DTYPE_F16 || fx_eltype(x) == FX_DTYPE_BF16;
    x = fx_reshape(narrow ? fx_cast(x, FX_DTYPE_F32) : x, q->classes, q->times, q->count);
    /* −Inf becomes IMPOSSIBLE, because the gradient of −Inf would be NaN */
    fx_array *log_p = fx_permute(fx_max(fx_logsoftmax(x), IMPOSSIBLE), 0, 2, 1);
    fx_array *rows = fx_reshape(log_p, q->classes * q->count, q->times);
    fx_array *index = fx_from(FX_DTYPE_I64, q->index, q->states * q->count);
    index = fx_to(fx_array_device(a->pred), index);
    return fx_reshape(fx_gather(rows, index, 0), q->states, q->count, q->times);
}

/* α moved down by n states; the first n are impossible. */
static fx_array *shifted(fx_array *alpha, fx_array *none, int64_t n)
{
    const int64_t states = fx_size(alpha, 0);
    if (n >= states)
        return fx_slice(none, 0, 0, states);
    return fx_concat(0, fx_slice(none, 0, 0, n), fx_slice(alpha, 0, 0, states - n));
}

/* log(eᵃ + eᵇ + eᶜ) */
static fx_array *log_sum(fx_array *a, fx_array *b, fx_array *c)
{
    fx_array *most = fx_stop_gradient(fx_max(fx_max(a, b), c));
    fx_array *sum =
        fx_add(fx_add(fx_exp(fx_sub(a, most)), fx_exp(fx_sub(b, most))), fx_exp(fx_sub(c, most)));
    return fx_add(most, fx_log(sum));
}

static fx_array *mask(const fx_loss_args *a, const sequences *q, const float *values, fx_dtype type)
{
    fx_array *x = fx_from(FX_DTYPE_F32, values, q->states, q->count);
    return fx_to(fx_array_device(a->pred), fx_cast(x, type));
}

/* The loss of each sequence; Inf if it has too few time steps for all labels. */
static fx_array *losses_of(const fx_loss_args *a, const sequences *q)
{
    fx_array *scores = state_scores(a, q);
    const fx_dtype type = fx_eltype(scores);
    fx_array *skip = mask(a, q, q->skip, type), *end = mask(a, q, q->end, type);
    fx_array *none = fx_add(fx_mul(0, skip), IMPOSSIBLE);
    fx_array *alpha = NULL;
    for (int64_t t = 0; t < q->times; t++) {
        fx_array *here = fx_reshape(fx_slice(scores, 2, t, t + 1), q->states, q->count);
        if (t == 0) { /* paths begin in the first blank or in the first label */
            const int64_t first = q->states < 2 ? q->states : 2;
            alpha = first == q->states ? here
                                       : fx_concat(0, fx_slice(here, 0, 0, first),
                                                   fx_slice(none, 0, first, q->states));
            continue;
        }
        fx_array *skipped = fx_add(shifted(alpha, none, 2), skip);
        alpha = fx_add(here, log_sum(alpha, shifted(alpha, none, 1), skipped));
    }
    fx_array *last = fx_logsumexp(fx_add(alpha, end), .dims = FX_AXES(0));
    last = fx_reshape(last, q->count);
    return fx_where(fx_lt(last, IMPOSSIBLE / 2), (double)INFINITY, fx_neg(last));
}

static fx_status check(const fx_loss_args *a)
{
    fx_status status = fxi_expect_array(NAME, "the prediction", a->pred);
    if (status == FX_OK)
        status = fxi_expect_array(NAME, "the target", a->target);
    if (status != FX_OK)
        return status;
    if (a->sum && a->none)
        return fx_fail(FX_STATUS_ARGUMENT, NAME, "takes sum or none, not both");
    if (a->weights)
        return fx_fail(FX_STATUS_ARGUMENT, NAME, "takes no weights of classes");
    if (a->eps != FX_EPS || a->smoothing != 0)
        return fx_fail(FX_STATUS_ARGUMENT, NAME, "takes neither eps nor smoothing, got %g and %g",
                       a->eps, a->smoothing);
    return FX_OK;
}

fx_array *fxi_ctc_loss(const fx_loss_args *given)
{
    FXI_OPERATION(NAME);
    FXI_TAKE_OPTIONS(fx_loss_args, FXI_LOSS_ARGS, a, NAME, given);
    FXI_SCOPE;
    sequences q = {0};
    fx_status status = a_ok ? check(&a) : FX_STATUS_ARGUMENT;
    if (status == FX_OK)
        status = check_shapes(&a, &q);
    if (status == FX_OK)
        status = read_labels(&a, &q);
    for (int64_t k = 0; k < q.count && status == FX_OK; k++)
        fill_states(&q, k);
    fx_array *each = status == FX_OK ? losses_of(&a, &q) : fx_error_array(status);
    free_sequences(&q);
    return fx_keep(status != FX_OK || a.none ? each : a.sum ? fx_sum(each) : fx_mean(each));
}
