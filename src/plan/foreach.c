/* foreach.c: planner rule 5: merges elementwise steps that run the same program on different
 * tensors into one step.
 *
 * An optimiser updates every parameter by the same few instructions. Such steps become one step
 * with a table of segments, one for each tensor: one launch for all parameters, so the many small
 * ones cost little. Each operand must be dense in all members, or a single value in all members.
 *
 * A pure function of the list of steps after donation, before memory is placed. A step is merged
 * only if no step of the plan reads its results, so that no value has to live longer. The merged
 * step runs where its last member would run. So members move towards the end, past other steps.
 * Condition: none of those steps overwrites an operand of a moved member (donation). No other
 * member may overwrite the operand either, since segments may run at the same time.
 */
#include "build.h"

#include <string.h>

/* One step while steps are merged. The members of a group are a list from its latest member to its
 * first. */
typedef struct member {
    int32_t before;   /* the member before this one, or −1 */
    int32_t count;    /* in the latest member: the size of the group; 0: merged into a later step */
    int32_t typical;  /* in the latest member: the member that other steps are compared with: one
                         with more than one element, if there is one */
    int32_t deadline; /* the first other step that overwrites what this step reads; in the latest
                         member: the first that overwrites what any member reads */
    bool fits;        /* can be a member */
} member;

/* ---- what may be merged ---------------------------------------------------------------------- */

/* Does operand k have an element for each element of the output, in the same order? Shapes need not
 * be equal: kernels of segments see only a length. */
static bool whole(const fx_step *s, int k)
{
    const fx_tensor *t = &s->in[k];
    return fx_tensor_length(t) == fx_tensor_length(&s->out) &&
           fxi_is_dense(t->ndim, t->shape, t->stride);
}

/* A segment has a length and no shape, so every operand must be dense or a single value. */
static bool segment_like(const fx_step *s)
{
    if (s->cls != FX_CLASS_ELEMENTWISE || fx_tensor_length(&s->out) == 0)
        return false;
    for (int k = 0; k < s->nin; k++)
        if (!whole(s, k) && !fxi_is_number(&s->in[k]))
            return false;
    return true;
}

/* Do both steps read operand k in the same way? A parameter of one element fits both ways, since
 * its operands are single values and dense. */
static bool same_kind(const fx_step *a, const fx_step *b, int k)
{
    if (a->in[k].dtype != b->in[k].dtype)
        return false;
    return fxi_is_number(&a->out) || fxi_is_number(&b->out) || whole(a, k) == whole(b, k);
}

bool fxi_same_instruction(const fx_instr *x, const fx_instr *y)
{
    return x->op == y->op && x->dtype == y->dtype && x->from == y->from && x->row == y->row &&
           x->attr == y->attr && x->nsrc == y->nsrc && memcmp(x->src, y->src, x->nsrc) == 0;
}

bool fxi_same_instructions(const fx_program *p, const fx_program *q)
{
    bool same = p->n == q->n;
    for (int k = 0; same && k < p->n; k++)
        same = fxi_same_instruction(&p->instr[k], &q->instr[k]);
    return same;
}

/* Equal instructions, and equal further outputs. Literals may differ: they are operands. */
static bool same_program(const fx_step *a, const fx_step *b)
{
    const fx_elementwise_step *p = fx_step_elementwise(a), *q = fx_step_elementwise(b);
    if (a->nin != b->nin || p->more.n != q->more.n ||
        memcmp(p->more.reg, q->more.reg, (size_t)p->more.n) != 0 ||
        !fxi_same_instructions(&p->program, &q->program))
        return false;
    for (int k = 0; k < a->nin; k++)
        if (!same_kind(a, b, k))
            return false;
    return true;
}

/* ---- merging --------------------------------------------------------------------------------- */

/* 1 + the input that output o takes over in every segment; 0: none. An input that is taken over
 * begins where the output begins (in_place.c). */
static uint8_t written_over(const fxi_plan *p, const fx_step *f, int32_t o)
{
    const fx_foreach_step *own = &f->as.foreach;
    const int32_t nin = f->nin / own->nsegments;
    for (int32_t k = 0; k < nin && k < UINT8_MAX; k++) {
        bool all = true;
        for (int32_t g = 0; g < own->nsegments && all; g++) {
            const fxi_value *to = &p->values[own->segments[g].value[o]],
                            *from = &p->values[f->in_value[g * nin + k]];
            all = to->kind == FXI_VALUE_DONATED && from->kind == FXI_VALUE_LEAF &&
                  to->index == from->index && f->in_offset[g * nin + k] == 0;
        }
        if (all)
            return (uint8_t)(k + 1);
    }
    return 0;
}

/* Replaces step j by a foreach step over all members of its group, first to last. All segments run
 * the program of step j. */
static bool merge(fxi_plan *p, const member *m, int32_t j)
{
    const int32_t n = m[j].count, nin = p->steps[j].nin;
    const fx_elementwise_step *each = fx_step_elementwise(&p->steps[j]);
    fx_segment *segments = fxi_calloc((size_t)n, sizeof *segments);
    fx_step merged = p->steps[j], *f = &merged;
    f->cls = FX_CLASS_FOREACH;
    f->nin = n * nin;
    f->as.foreach = (fx_foreach_step){
        .program = each->program, .more = each->more, .segments = segments, .nsegments = n};
    /* One list for all segments: the operands of segment t start at t · nin. */
    f->in = fxi_malloc((size_t)f->nin * sizeof *f->in);
    f->in_value = fxi_malloc((size_t)f->nin * sizeof *f->in_value);
    f->in_offset = fxi_malloc((size_t)f->nin * sizeof *f->in_offset);
    const bool ok = segments && f->in && f->in_value && f->in_offset;
    /* The list starts at the latest member, so the table is filled from its end. */
    int32_t at = n;
    for (int32_t a = j; a >= 0 && ok; a = m[a].before) {
        const fx_step *s = &p->steps[a];
        fx_segment *g = &segments[--at];
        g->length = fx_tensor_length(&s->out);
        for (int32_t o = 0; o < fx_step_outputs(s); o++)
            g->value[o] = fx_step_output(s, o);
        memcpy(f->in + at * nin, s->in, (size_t)nin * sizeof *f->in);
        memcpy(f->in_value + at * nin, s->in_value, (size_t)nin * sizeof *f->in_value);
        memcpy(f->in_offset + at * nin, s->in_offset, (size_t)nin * sizeof *f->in_offset);
    }
    if (!ok) {
        fxi_free(segments);
        fxi_free(f->in);
        fxi_free(f->in_value);
        fxi_free(f->in_offset);
        return false;
    }
    fxi_free(p->steps[j].in);
    fxi_free(p->steps[j].in_value);
    fxi_free(p->steps[j].in_offset);
    for (int32_t o = 0; o <= each->more.n; o++)
        f->as.foreach.over[o] = written_over(p, f, o);
    p->steps[j] = merged;
    return true;
}

/* Merges every group at its latest member and removes the other members from the list. */
static bool merge_all(fxi_plan *p, const member *m)
{
    /* A group of one step stays an elementwise step. */
    for (int32_t j = 0; j < p->nsteps; j++)
        if (m[j].count > 1 && !merge(p, m, j))
            return false;
    int32_t n = 0;
    for (int32_t j = 0; j < p->nsteps; j++) {
        if (m[j].count > 0)
            p->steps[n++] = p->steps[j];
        else
            fxi_step_free(&p->steps[j]);
    }
    p->nsteps = n;
    return true;
}

int32_t *fxi_overwriters(const fxi_plan *p)
{
    int32_t nleaves = 0;
    for (int32_t v = 0; v < p->nvalues; v++)
        if ((p->values[v].kind == FXI_VALUE_LEAF || p->values[v].kind == FXI_VALUE_DONATED) &&
            p->values[v].index >= nleaves)
            nleaves = p->values[v].index + 1;
    int32_t *by = fxi_malloc(((size_t)nleaves + 1) * sizeof *by);
    for (int32_t l = 0; by && l < nleaves; l++)
        by[l] = p->nsteps;
    for (int32_t i = 0; by && i < p->nsteps; i++)
        for (int32_t o = 0; o < fx_step_outputs(&p->steps[i]); o++) {
            const fxi_value *v = &p->values[fx_step_output(&p->steps[i], o)];
            /* A donated value has the number and the buffer of the leaf that it replaces. */
            if (v->kind == FXI_VALUE_DONATED)
                by[v->index] = i;
        }
    return by;
}

/* Decides whether step i can be a member, and how far it may move. Only donations overwrite memory
 * that a step still reads: the arena is placed later. */
static void note_member(const fxi_plan *p, const bool *read, const int32_t *by, int32_t i,
                        member *m)
{
    const fx_step *s = &p->steps[i];
    *m = (member){-1, 1, i, p->nsteps, segment_like(s)};
    for (int32_t o = 0; o < fx_step_outputs(s); o++)
        /* A reader between the members would run before the merged step. */
        m->fits &= !read[fx_step_output(s, o)];
    for (int k = 0; k < s->nin; k++) {
        const fxi_value *v = &p->values[s->in_value[k]];
        const int32_t writer = v->kind == FXI_VALUE_LEAF ? by[v->index] : p->nsteps;
        /* A step that overwrites its own operand does so element by element (in_place.c), which
         * merging does not change. */
        if (writer != i && writer < m->deadline)
            m->deadline = writer;
    }
}

static bool find_members(const fxi_plan *p, member *m)
{
    bool *read = fxi_calloc((size_t)p->nvalues + 1, sizeof *read);
    int32_t *by = fxi_overwriters(p);
    const bool ok = read && by;
    for (int32_t i = 0; i < p->nsteps && ok; i++)
        for (int k = 0; k < p->steps[i].nin; k++)
            read[p->steps[i].in_value[k]] = true;
    for (int32_t i = 0; i < p->nsteps && ok; i++)
        note_member(p, read, by, i, &m[i]);
    fxi_free(read);
    fxi_free(by);
    return ok;
}

/* How many groups are compared with each step. Without a limit, planning would take quadratic time.
 * An optimiser has few different programs, so a group of the same program is among the nearest. */
enum { NEAREST = 8 };

static bool has_one_element(const fxi_plan *p, int32_t i)
{
    return fxi_is_number(&p->steps[i].out);
}

/* Adds step j to a group that has the same program and may move to j. */
static void find_group(const fxi_plan *p, member *m, int32_t j)
{
    int compared = 0;
    for (int32_t i = j - 1; i >= 0 && compared < NEAREST; i--) {
        /* Count 0: it was merged, and its group is found at the latest member. */
        if (!m[i].fits || m[i].count == 0)
            continue;
        compared++;
        if (m[i].deadline <= j || !same_program(&p->steps[m[i].typical], &p->steps[j]))
            continue;
        m[j].before = i;
        m[j].count = m[i].count + 1;
        m[j].typical = has_one_element(p, m[i].typical) ? j : m[i].typical;
        m[j].deadline = m[i].deadline < m[j].deadline ? m[i].deadline : m[j].deadline;
        m[i].count = 0;
        return;
    }
}

bool fxi_merge_foreach(fxi_plan *p)
{
    member *m = fxi_malloc(((size_t)p->nsteps + 1) * sizeof *m);
    bool ok = m && find_members(p, m);
    for (int32_t j = 0; j < p->nsteps && ok; j++)
        if (m[j].fits)
            find_group(p, m, j);
    ok = ok && merge_all(p, m);
    fxi_free(m);
    return ok;
}
