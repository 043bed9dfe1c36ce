/* foreach_reduce.c: planner rule 7: merges small reductions of one program into one step.
 *
 * A training step has a reduction for each bias, and two for each norm. On a GPU every step is a
 * launch, which takes longer than a small reduction itself. So reductions with equal folds,
 * programs and element types become one foreach step (fx_foreach_step.each). A GPU computes as many
 * of them in a launch as the arguments of the launch hold. Their shapes and strides may differ.
 *
 * A pure function of the list of steps after fxi_merge_foreach. Members move to the position of
 * the last one. So no step in between may read a result, or overwrite an operand. Operands of
 * members are kept for longer, so a member may read at most MEMBER_BYTES, about as much as a GPU
 * reads in the time of a launch.
 */
#include "build.h"

#include <string.h>

enum {
    MEMBER_BYTES = 4 << 20, /* most bytes of the operands of a reduction */
    MEMBERS = 32, /* most members of a step: about as many as the arguments of a launch hold */
    NEAREST = 8   /* groups that are compared with each reduction, for the reason in foreach.c */
};

/* A reduction while reductions are merged. The members of a group are a list from its latest member
 * to its first. */
typedef struct member {
    int32_t before;   /* the member before this one, or −1 */
    int32_t count;    /* in the latest member: the size of the group; 0: it is in a later group, or
                         cannot be merged */
    int32_t deadline; /* the first step that reads its result or overwrites an operand; in the
                         latest member: the first for any member */
} member;

static int64_t operand_bytes(const fx_step *s)
{
    int64_t bytes = 0;
    for (int k = 0; k < s->nin; k++)
        bytes += fx_tensor_length(&s->in[k]) * fx_tensor_element_bytes(&s->in[k]);
    return bytes;
}

/* A reduction whose result overwrites an old value is not merged: the other members may read that
 * value. */
static bool is_small(const fxi_plan *p, const fx_step *s)
{
    return s->cls == FX_CLASS_REDUCE && fx_tensor_length(&s->out) > 0 &&
           p->values[s->out_value].kind != FXI_VALUE_DONATED && operand_bytes(s) <= MEMBER_BYTES;
}

/* Do both steps need the same instructions? Shapes, strides and reduced axes may differ. */
static bool alike(const fx_step *a, const fx_step *b)
{
    const fx_reduce_step *x = fx_step_reduce(a), *y = fx_step_reduce(b);
    bool same = a->nin == b->nin && a->out.dtype == b->out.dtype && x->fold == y->fold &&
                fxi_same_instructions(&x->program, &y->program);
    for (int k = 0; k < a->nin && same; k++)
        same = a->in[k].dtype == b->in[k].dtype;
    return same;
}

/* Fills the list from the last step to the first, so that `reader` is the first reader of each
 * value after the step. */
static bool find_members(const fxi_plan *p, member *m)
{
    int32_t *reader = fxi_malloc(((size_t)p->nvalues + 1) * sizeof *reader);
    int32_t *by = fxi_overwriters(p);
    const bool ok = reader && by;
    for (int32_t v = 0; v < p->nvalues && ok; v++)
        reader[v] = p->nsteps;
    for (int32_t i = p->nsteps - 1; i >= 0 && ok; i--) {
        const fx_step *s = &p->steps[i];
        m[i] = (member){-1, is_small(p, s), reader[s->out_value]};
        for (int k = 0; k < s->nin; k++) {
            const fxi_value *v = &p->values[s->in_value[k]];
            if (v->kind == FXI_VALUE_LEAF && by[v->index] < m[i].deadline)
                m[i].deadline = by[v->index];
            reader[s->in_value[k]] = i;
        }
    }
    fxi_free(reader);
    fxi_free(by);
    return ok;
}

/* Adds reduction j to a group that may move to j. */
static void find_group(const fxi_plan *p, member *m, int32_t j)
{
    int compared = 0;
    for (int32_t i = j - 1; i >= 0 && compared < NEAREST; i--) {
        if (m[i].count == 0)
            continue;
        compared++;
        if (m[i].deadline <= j || m[i].count == MEMBERS || !alike(&p->steps[i], &p->steps[j]))
            continue;
        m[j] = (member){i, m[i].count + 1,
                        m[i].deadline < m[j].deadline ? m[i].deadline : m[j].deadline};
        m[i].count = 0;
        return;
    }
}

/* Allocates the lists of a step over n reductions like s. False, and nothing is allocated, if an
 * allocation fails. */
static bool make_lists(fx_step *f, const fx_step *s, int32_t n)
{
    const size_t nin = (size_t)n * (size_t)s->nin + 1;
    fx_foreach_step *own = &f->as.foreach;
    f->in = fxi_malloc(nin * sizeof *f->in);
    f->in_value = fxi_malloc(nin * sizeof *f->in_value);
    f->in_offset = fxi_malloc(nin * sizeof *f->in_offset);
    own->segments = fxi_calloc((size_t)n, sizeof *own->segments);
    own->each = fxi_calloc((size_t)n, sizeof *own->each);
    if (f->in && f->in_value && f->in_offset && own->segments && own->each)
        return true;
    fxi_free(f->in);
    fxi_free(f->in_value);
    fxi_free(f->in_offset);
    fxi_free(own->segments);
    fxi_free(own->each);
    return false;
}

/* Makes s member `at` of the step f. The operands of s move into the lists of f, and the member
 * points into these lists. */
static void put(fx_step *f, int32_t at, const fx_step *s)
{
    const size_t nin = (size_t)s->nin, from = (size_t)at * nin;
    fx_foreach_step *own = &f->as.foreach;
    fx_step *e = &own->each[at];
    *e = *s;
    e->in = memcpy(f->in + from, s->in, nin * sizeof *s->in);
    e->in_value = memcpy(f->in_value + from, s->in_value, nin * sizeof *s->in_value);
    e->in_offset = memcpy(f->in_offset + from, s->in_offset, nin * sizeof *s->in_offset);
    own->segments[at].length = fx_tensor_length(&s->out);
    own->segments[at].value[0] = s->out_value;
    fxi_free(s->in);
    fxi_free(s->in_value);
    fxi_free(s->in_offset);
}

/* Replaces step j by a step over all members of its group, first to last. */
static bool merge(fxi_plan *p, const member *m, int32_t j)
{
    const int32_t n = m[j].count;
    fx_step merged = p->steps[j];
    merged.cls = FX_CLASS_FOREACH;
    merged.nin = n * p->steps[j].nin;
    merged.as.foreach =
        (fx_foreach_step){.program = fx_step_reduce(&p->steps[j])->program, .nsegments = n};
    if (!make_lists(&merged, &p->steps[j], n))
        return false;
    for (int32_t a = j, at = n; a >= 0; a = m[a].before)
        put(&merged, --at, &p->steps[a]);
    p->steps[j] = merged;
    return true;
}

bool fxi_merge_reductions(fxi_plan *p)
{
    member *m = fxi_malloc(((size_t)p->nsteps + 1) * sizeof *m);
    /* Reductions that are in a group. Their lists belong to it, so they are not freed. */
    bool *gone = fxi_calloc((size_t)p->nsteps + 1, sizeof *gone);
    bool ok = m && gone && find_members(p, m);
    for (int32_t j = 0; j < p->nsteps && ok; j++)
        if (m[j].count)
            find_group(p, m, j);
    int32_t n = 0;
    for (int32_t j = 0; j < p->nsteps && ok; j++) {
        ok = m[j].count < 2 || merge(p, m, j);
        for (int32_t a = m[j].before; a >= 0 && ok && m[j].count; a = m[a].before)
            gone[a] = true;
    }
    /* Done after a failure too: a step that has moved into a group must not be freed twice. */
    for (int32_t j = 0; j < p->nsteps && m && gone; j++)
        if (!gone[j])
            p->steps[n++] = p->steps[j];
    if (m && gone)
        p->nsteps = n;
    fxi_free(m);
    fxi_free(gone);
    return ok;
}
