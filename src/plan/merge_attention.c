/* merge_attention.c: two steps of attention over the same operands become one with two outputs.
 *
 * The gradient of attention needs the logarithms of the sums of exponentials. If one plan computes
 * the result and the gradient, the forward step has the logarithms in registers and stores them, so
 * no other step computes the scores for them. A forward pass that is evaluated alone stores no
 * logarithms. The gradient of q and the gradients of k and v need the same scores and the same
 * gradients of the softmax; some devices compute all three in one step.
 *
 * A merged step is at the position of the first of the two, whose operands are the same values.
 * The other output is computed earlier than without merging, so no reader comes too early.
 */
#include "build.h"

/* Is operand i of a the same as operand k of b? */
static bool same_operand(const fx_step *a, int i, const fx_step *b, int k)
{
    return a->in_value[i] == b->in_value[k] && a->in_offset[i] == b->in_offset[k] &&
           fxi_same_view(&a->in[i], &b->in[k]);
}

static bool same_operands(const fx_step *a, const fx_step *b, int n)
{
    bool same = true;
    for (int k = 0; k < n; k++)
        same = same && same_operand(a, k, b, k);
    return same;
}

/* Do both steps have the same mask, or none? */
static bool same_mask(const fx_step *f, const fx_step *s)
{
    const int a = fx_step_attention(f)->mask, b = fx_step_attention(s)->mask;
    return a && b ? same_operand(f, a, s, b) : a == b;
}

/* Do both steps compute the same scores? */
static bool same_scores(const fx_step *f, const fx_step *s)
{
    const fx_attention_step *a = fx_step_attention(f), *b = fx_step_attention(s);
    return a->more.n == 0 && a->heads == b->heads && a->causal == b->causal &&
           a->scale == b->scale && same_operands(f, s, 2) && same_mask(f, s);
}

/* Makes the output of step `from` the second output of step `to`. Frees `from`. */
static void take_output(fx_step *to, fx_step *from)
{
    fx_more_outputs *more = &to->as.attention.more;
    more->value[more->n++] = from->out_value;
    fxi_step_free(from);
}

/* Both gradients, f and s, become one step, if the device prefers that and allows so many buffers.
 */
static bool merge_gradients(const fxi_planner *how, fx_device *device, fx_step *f, fx_step *s)
{
    const bool by_key = fx_step_attention(f)->kind == FX_ATTENTION_GRADIENT_KEY_VALUE;
    fx_step all = by_key ? *f : *s, query = by_key ? *s : *f;
    all.as.attention.kind = FX_ATTENTION_GRADIENTS;
    if (!how->attention || fx_step_buffers(&all) >= how->buffers || !how->attention(device, &all))
        return false;
    take_output(&all, &query);
    *f = all;
    return true;
}

/* Merges s into the earlier step f. False if they cannot be merged. */
static bool merge(const fxi_planner *how, fx_device *device, fx_step *f, fx_step *s)
{
    if (f->cls != FX_CLASS_ATTENTION || !same_scores(f, s))
        return false;
    const int first = fx_step_attention(f)->kind, second = fx_step_attention(s)->kind;
    if (first == FX_ATTENTION_FORWARD && second == FX_ATTENTION_LOGSUMEXP) {
        take_output(f, s);
        return true;
    }
    const bool gradients =
        (first == FX_ATTENTION_GRADIENT_QUERY && second == FX_ATTENTION_GRADIENT_KEY_VALUE) ||
        (first == FX_ATTENTION_GRADIENT_KEY_VALUE && second == FX_ATTENTION_GRADIENT_QUERY);
    return gradients && same_operands(f, s, s->nin) && merge_gradients(how, device, f, s);
}

void fxi_merge_attention(const fxi_planner *how, fxi_plan *p)
{
    int32_t n = 0;
    for (int32_t j = 0; j < p->nsteps; j++) {
        fx_step *s = &p->steps[j];
        const bool merges =
            s->cls == FX_CLASS_ATTENTION && fx_step_attention(s)->kind != FX_ATTENTION_FORWARD;
        bool merged = false;
        for (int32_t i = n - 1; i >= 0 && merges && !merged; i--)
            merged = merge(how, p->device, &p->steps[i], s);
        if (!merged)
            p->steps[n++] = *s;
    }
    p->nsteps = n;
}
