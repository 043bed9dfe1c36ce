/* merge_attention.c: two steps of attention over the same operands become one with two outputs.
 *
 * The gradient of attention needs the logarithms of the sums of exponentials. If one plan computes
 * the result and the gradient, the forward step has the logarithms in registers and stores them, so
 * the scores are not computed a second time. A forward pass that is evaluated alone stores no
 * logarithms. The gradient of q and that of k and v have the scores and the gradients of α in
 * common; some devices compute all three in one step.
 *
 * A merged step reads its operands where the first of the two does, and they are the same values.
 * The other output is computed earlier than without merging, so no reader comes too early.
 */
#include "build.h"

static bool same_operands(const fx_step *a, const fx_step *b, int n)
{
    bool same = true;
    for (int k = 0; k < n; k++)
        same = same && a->in_value[k] == b->in_value[k] && a->in_offset[k] == b->in_offset[k] &&
               fxi_same_view(&a->in[k], &b->in[k]);
    return same;
}

/* Do both steps compute the same scores? */
static bool same_scores(const fx_step *f, const fx_step *s)
{
    const fx_attention_step *a = fx_step_attention(f), *b = fx_step_attention(s);
    return a->more.n == 0 && a->heads == b->heads && a->causal == b->causal &&
           a->scale == b->scale && same_operands(f, s, 2);
}

/* Makes `main` a step with the output of `other` as a second one. */
static void take_output(fx_step *main, fx_step *other, fx_attention_kind kind)
{
    main->as.attention.kind = (uint8_t)kind;
    main->as.attention.more.value[main->as.attention.more.n++] = other->out_value;
    fxi_step_free(other);
}

/* Merges s into the earlier step f. False if they cannot be merged. */
static bool merge(const fxi_planner *how, fx_device *device, fx_step *f, fx_step *s)
{
    const bool both = f->cls == FX_CLASS_ATTENTION && same_scores(f, s);
    const int kind = fx_step_attention(s)->kind, first = both ? fx_step_attention(f)->kind : -1;
    if (first == FX_ATTENTION_FORWARD && kind == FX_ATTENTION_LOGSUMEXP) {
        take_output(f, s, FX_ATTENTION_FORWARD);
        return true;
    }
    const bool by_query = first == FX_ATTENTION_GRADIENT_QUERY,
               by_key = first == FX_ATTENTION_GRADIENT_KEY_VALUE;
    if (!(by_query && kind == FX_ATTENTION_GRADIENT_KEY_VALUE) &&
        !(by_key && kind == FX_ATTENTION_GRADIENT_QUERY))
        return false;
    fx_step all = by_key ? *f : *s, other = by_key ? *s : *f;
    all.as.attention.kind = FX_ATTENTION_GRADIENTS;
    if (!same_operands(f, s, s->nin) || !how->attention || !how->attention(device, &all))
        return false;
    take_output(&all, &other, FX_ATTENTION_GRADIENTS);
    *f = all;
    return true;
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
