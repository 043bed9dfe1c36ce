/* log_sums.c: the gradient of attention needs the logarithms of the sums of exponentials. If one
 * plan computes the result and the gradient, the forward step has the logarithms in registers and
 * stores them as a second output, so the scores are not computed a second time. A forward pass that
 * is evaluated alone stores no logarithms.
 *
 * A merged step reads its operands where the forward step does, and they are the same values. The
 * logarithms are computed earlier than without merging, so no reader comes too early.
 */
#include "build.h"

static bool same_operand(const fx_step *a, const fx_step *b, int k)
{
    return a->in_value[k] == b->in_value[k] && a->in_offset[k] == b->in_offset[k] &&
           fxi_same_view(&a->in[k], &b->in[k]);
}

static bool is_kind(const fx_step *s, fx_attention_kind kind)
{
    return s->cls == FX_CLASS_ATTENTION && fx_step_attention(s)->kind == kind;
}

/* Does the forward step f compute the scores of the step s too? */
static bool has_scores_of(const fx_step *f, const fx_step *s)
{
    const fx_attention_step *a = fx_step_attention(f), *b = fx_step_attention(s);
    return a->more.n == 0 && a->heads == b->heads && a->causal == b->causal &&
           a->scale == b->scale && same_operand(f, s, 0) && same_operand(f, s, 1);
}

/* The forward step among the first n that can store the result of s; NULL: none. */
static fx_step *forward_of(const fxi_plan *p, int32_t n, const fx_step *s)
{
    for (int32_t i = n - 1; i >= 0 && is_kind(s, FX_ATTENTION_LOGSUMEXP); i--)
        if (is_kind(&p->steps[i], FX_ATTENTION_FORWARD) && has_scores_of(&p->steps[i], s))
            return &p->steps[i];
    return NULL;
}

void fxi_merge_log_sums(fxi_plan *p)
{
    int32_t n = 0;
    for (int32_t j = 0; j < p->nsteps; j++) {
        fx_step *s = &p->steps[j], *f = forward_of(p, n, s);
        if (f) {
            f->as.attention.more.value[f->as.attention.more.n++] = s->out_value;
            fxi_step_free(s);
        } else {
            p->steps[n++] = *s;
        }
    }
    p->nsteps = n;
}
