/* attention_loop.c: see attention_loop.h. The loops follow the formulas of fx_attention_step in
 * their order, one query after another. */
#include "attention_loop.h"
#include "half.h"

#include <math.h>
#include <stdlib.h>

enum { Q, K, V, GY, LSE, DELTA };

/* One head of one observation. `row` and `sums` are memory for the numbers of all keys. */
typedef struct head {
    const fx_step *step;
    const fx_attention_step *a;
    const void *const *in;
    void *out, *more; /* more: the second output, or NULL */
    int64_t h, b;
    double *row, *sums;
} head;

static double at(const head *d, int k, int64_t feature, int64_t i)
{
    const fx_tensor *t = &d->step->in[k];
    const int64_t e = feature * t->stride[0] + i * t->stride[1] + d->b * t->stride[2];
    if (t->dtype == FX_DTYPE_F32)
        return ((const float *)d->in[k])[e];
    const uint16_t bits = ((const uint16_t *)d->in[k])[e];
    return t->dtype == FX_DTYPE_F16 ? fxi_f16_to_f32(bits) : fxi_bf16_to_f32(bits);
}

static void put_in(const head *d, const fx_tensor *t, void *to, int64_t feature, int64_t i,
                   double value)
{
    const int64_t e = feature * t->stride[0] + i * t->stride[1] + d->b * t->stride[2];
    if (t->dtype == FX_DTYPE_F32)
        ((float *)to)[e] = (float)value;
    else
        ((uint16_t *)to)[e] =
            t->dtype == FX_DTYPE_F16 ? fxi_f32_to_f16((float)value) : fxi_f32_to_bf16((float)value);
}

static void put(const head *d, int64_t feature, int64_t i, double value)
{
    put_in(d, &d->step->out, d->out, feature, i, value);
}

/* Does query i see key j? */
static bool sees(const head *d, int64_t i, int64_t j)
{
    const int m = d->a->mask;
    const int64_t at[] = {j, i, d->h, d->b};
    int64_t e = 0;
    for (int k = 0; m && k < 4; k++)
        e += d->step->in[m].shape[k] > 1 ? at[k] * d->step->in[m].stride[k] : 0;
    return !(d->a->causal && j > i) && (!m || ((const uint8_t *)d->in[m])[e]);
}

/* Sets row to the scores of query i; returns the logarithm of the sum of their exponentials. */
static double scores(const head *d, int64_t i)
{
    const int64_t f = d->a->features;
    double most = -INFINITY, sum = 0;
    for (int64_t j = 0; j < d->a->keys; j++) {
        double s = 0;
        for (int64_t c = d->h * f; c < (d->h + 1) * f; c++)
            s += at(d, K, c, j) * at(d, Q, c, i);
        d->row[j] = sees(d, i, j) ? s * d->a->scale : -INFINITY;
        most = d->row[j] > most ? d->row[j] : most;
    }
    for (int64_t j = 0; j < d->a->keys; j++)
        sum += exp(d->row[j] - most);
    return most + log(sum);
}

static void forward(const head *d, int64_t i)
{
    const int64_t f = d->a->value_features;
    const double lse = scores(d, i);
    if (d->more)
        ((float *)d->more)[(d->b * d->a->queries + i) * d->a->heads + d->h] = (float)lse;
    for (int64_t c = d->h * f; c < (d->h + 1) * f; c++) {
        double y = 0;
        for (int64_t j = 0; j < d->a->keys; j++)
            y += at(d, V, c, j) * exp(d->row[j] - lse);
        put(d, c, i, y);
    }
}

static void log_sum_exp(const head *d, int64_t i)
{
    put(d, d->h, i, scores(d, i));
}

/* The gradient of the score of key j, whose α is given. */
static double score_gradient(const head *d, int64_t i, int64_t j, double alpha)
{
    const int64_t f = d->a->value_features;
    double sum = -at(d, DELTA, d->h, i);
    if (!sees(d, i, j))
        return 0;
    for (int64_t c = d->h * f; c < (d->h + 1) * f; c++)
        sum += at(d, V, c, j) * at(d, GY, c, i);
    return alpha * sum;
}

static void gradient_of_query(const head *d, const fx_tensor *t, void *to, int64_t i)
{
    const int64_t f = d->a->features;
    scores(d, i);
    for (int64_t j = 0; j < d->a->keys; j++)
        d->row[j] = score_gradient(d, i, j, exp(d->row[j] - at(d, LSE, d->h, i)));
    for (int64_t c = d->h * f; c < (d->h + 1) * f; c++) {
        double sum = 0;
        for (int64_t j = 0; j < d->a->keys; j++)
            sum += at(d, K, c, j) * d->row[j];
        put_in(d, t, to, c, i, d->a->scale * sum);
    }
}

static void gradient_query(const head *d, int64_t i)
{
    gradient_of_query(d, &d->step->out, d->out, i);
}

/* Adds the part of query i; after the last query the sums are the result. */
static void gradient_key_value(const head *d, int64_t i)
{
    const fx_attention_step *a = d->a;
    const int64_t f = a->features, vf = a->value_features;
    scores(d, i);
    for (int64_t j = 0; j < a->keys; j++) {
        const double alpha = exp(d->row[j] - at(d, LSE, d->h, i));
        const double ds = score_gradient(d, i, j, alpha);
        double *sums = d->sums + j * (f + vf);
        for (int64_t c = 0; c < f; c++)
            sums[c] += a->scale * at(d, Q, d->h * f + c, i) * ds;
        for (int64_t c = 0; c < vf; c++)
            sums[f + c] += at(d, GY, d->h * vf + c, i) * alpha;
        for (int64_t c = 0; i + 1 == a->queries && c < f; c++)
            put(d, d->h * f + c, j, sums[c]);
        for (int64_t c = 0; i + 1 == a->queries && c < vf; c++)
            put(d, a->heads * f + d->h * vf + c, j, sums[f + c]);
    }
}

static void gradients(const head *d, int64_t i)
{
    fx_tensor t = d->step->in[Q]; /* the output is dense */
    t.stride[0] = 1;
    t.stride[1] = t.shape[0];
    t.stride[2] = t.shape[0] * t.shape[1];
    gradient_of_query(d, &t, d->more, i);
    gradient_key_value(d, i);
}

bool attention_loop_takes(fx_device *device, const fx_step *step)
{
    const uint8_t type = step->out.dtype;
    (void)device;
    return type == FX_DTYPE_F16 || type == FX_DTYPE_BF16;
}

static bool compute(const fx_step *step, const void *const *in, void *out, const fx_run *run)
{
    static void (*const kinds[])(const head *,
                                 int64_t) = {[FX_ATTENTION_FORWARD] = forward,
                                             [FX_ATTENTION_LOGSUMEXP] = log_sum_exp,
                                             [FX_ATTENTION_GRADIENT_QUERY] = gradient_query,
                                             [FX_ATTENTION_GRADIENT_KEY_VALUE] = gradient_key_value,
                                             [FX_ATTENTION_GRADIENTS] = gradients};
    const fx_attention_step *a = fx_step_attention(step);
    head d = {.step = step, .a = a, .in = in, .out = out};
    d.more = a->more.n ? run->more[0] : NULL;
    d.row = malloc((size_t)a->keys * sizeof *d.row);
    for (d.b = 0; d.row && d.b < a->batch; d.b++)
        for (d.h = 0; d.h < a->heads; d.h++) {
            d.sums = calloc((size_t)(a->keys * (a->features + a->value_features)), sizeof *d.sums);
            for (int64_t i = 0; d.sums && i < a->queries; i++)
                kinds[a->kind](&d, i);
            if (!d.sums) {
                free(d.row);
                return false;
            }
            free(d.sums);
        }
    const bool done = d.row;
    free(d.row);
    return done;
}

static const fx_host *library;

static fx_status run(fx_device *device, const fx_step *step, const void *const *in, void *out,
                     fx_run *run)
{
    if (step->cls != FX_CLASS_ATTENTION)
        return library->cpu->run(device, step, in, out, run);
    return compute(step, in, out, run) ? FX_OK
                                       : library->fail(FX_STATUS_MEMORY, "attention", "no memory");
}

const fx_host *attention_loop_host(const fx_host *host)
{
    static fx_backend cpu;
    static fx_host own;
    library = host;
    cpu = *host->cpu;
    cpu.run = run;
    own = *host;
    own.cpu = &cpu;
    return &own;
}
