/* recorded_part.c: skips the calls of layers, losses and rules in a recorded training step. See
 * recorded_part.h.
 *
 * A part is noted only if its calls read nothing but the given arrays: every operand that was made
 * before the part is one of them. The part keeps its literals, because another caller may repeat
 * the same calls with other literals, which the ghosts then hold. Literals that the caller gives
 * are the first entries of the part.
 */
#include "recorded_part.h"

#include "handle.h"
#include "memory.h"
#include "tape.h"

#include <string.h>

enum { NONE = INT32_MIN };

typedef struct recorded_literal {
    int32_t entry;
    fx_attr attr;
} recorded_literal;

typedef struct recorded_part {
    fxi_event event;
    const char *what;
    const void *function;
    double numbers[FXI_PART_NUMBERS];
    bool training;
    bool weak[FXI_PART_INPUTS];
    int32_t in[FXI_PART_INPUTS];   /* numbers on the tape, or NONE */
    int32_t out[FXI_PART_RESULTS]; /* entries, or NONE */
    int32_t nliterals;
    recorded_literal literals[];
} recorded_part;

static void part_free(fxi_event *e)
{
    fxi_free(e);
}

static const fxi_event_kind part_kind = {part_free, false, NULL};

/* A function of the program may have state of its own. Those of the library are never freed. */
static bool library_function(const void *function)
{
    return !function || ((const fx_object *)function)->refs == FXI_IMMORTAL;
}

/* ---- noting ---------------------------------------------------------------------------------- */

static bool number_all(recorded_part *r, const fxi_tape *t, const fxi_part *p)
{
    for (int i = 0; i < FXI_PART_INPUTS; i++) {
        r->in[i] = NONE;
        if (!p->in[i])
            continue;
        if (fx_is_error(p->in[i]) || p->in[i]->node->tied ||
            !fxi_tape_find(t, p->in[i]->node, &r->in[i]))
            return false;
        r->weak[i] = p->in[i]->node->weak;
    }
    for (int k = 0; k < FXI_PART_RESULTS; k++) {
        r->out[k] = NONE;
        if (p->out[k] && (fx_is_error(p->out[k]) ||
                          !fxi_tape_find(t, p->out[k]->node, &r->out[k]) || r->out[k] < p->first))
            return false;
    }
    return true;
}

static bool is_input(const recorded_part *r, int32_t number)
{
    for (int i = 0; i < FXI_PART_INPUTS; i++)
        if (r->in[i] == number)
            return true;
    return false;
}

/* Returns true if the calls follow from the inputs. */
static bool reads_only_inputs(const recorded_part *r, const fxi_tape *t, int32_t first)
{
    for (int32_t i = first; i < t->n; i++) {
        const fxi_tape_entry *e = &t->entries[i];
        if (e->node->op == FX_OP_CUSTOM || e->node->op == FX_OP_OWN_GRADIENT)
            return false;
        for (int32_t k = 0; k < e->nin; k++) {
            const int32_t from = t->operands[e->operand + k];
            if (from < first && !is_input(r, from))
                return false;
        }
    }
    return true;
}

/* Returns true if the first calls made the literals that the part names. */
static bool begins_with_literals(const fxi_tape *t, const fxi_part *p)
{
    if (p->first + p->nliterals > t->n)
        return false;
    for (int k = 0; k < p->nliterals; k++) {
        const fxi_node *n = t->entries[p->first + k].node;
        if (n->op != FX_OP_CONST || n->attr.literal.is_integer ||
            n->attr.literal.number != p->literals[k])
            return false;
    }
    return true;
}

static int32_t count_literals(const fxi_tape *t, int32_t first)
{
    int32_t n = 0;
    for (int32_t i = first; i < t->n; i++)
        n += t->entries[i].node->op == FX_OP_CONST;
    return n;
}

void fxi_part_note(const fxi_part *p)
{
    fxi_context *c = fxi_here();
    fxi_tape *t = c->tape;
    if (!fxi_tape_notes(c) || !library_function(p->function) ||
        !fxi_tape_can_skip(t, p->first, true, FXI_PART_INPUTS) ||
        p->evaluations != fxi_tape_evaluations(t) || !begins_with_literals(t, p))
        return;
    const int32_t n = count_literals(t, p->first + p->nliterals);
    recorded_part *r = fxi_calloc(1, sizeof *r + (size_t)n * sizeof *r->literals);
    if (!r)
        return;
    r->event.kind = &part_kind;
    r->what = p->what;
    r->function = p->function;
    memcpy(r->numbers, p->numbers, sizeof r->numbers);
    r->training = fx_training();
    for (int32_t i = p->first + p->nliterals; i < t->n; i++)
        if (t->entries[i].node->op == FX_OP_CONST)
            r->literals[r->nliterals++] = (recorded_literal){i, t->entries[i].node->attr};
    if (number_all(r, t, p) && reads_only_inputs(r, t, p->first))
        fxi_tape_add(c, &r->event, p->first);
    else
        fxi_free(r);
}

/* ---- repeating ------------------------------------------------------------------------------- */

static const recorded_part *part_here(fxi_tape *t, const fxi_part *p)
{
    for (const fxi_event *e = fxi_tape_ahead(t); e; e = e->next) {
        const recorded_part *r = (const recorded_part *)e;
        if (e->kind == &part_kind && e->first == t->pos && e->end > t->pos && r->what == p->what &&
            r->function == p->function && memcmp(r->numbers, p->numbers, sizeof r->numbers) == 0 &&
            r->training == fx_training())
            return r;
    }
    return NULL;
}

/* Compares the inputs. Stores the leaves that this training step has not used yet, in the order of
 * their numbers, and their count. */
static bool same_inputs(const fxi_tape *t, const recorded_part *r, const fxi_part *p,
                        fxi_node *fresh[FXI_PART_INPUTS], int *out_nfresh)
{
    *out_nfresh = 0;
    for (int i = 0; i < FXI_PART_INPUTS; i++) {
        const int32_t at = r->in[i];
        if ((at == NONE) != !p->in[i])
            return false;
        if (at == NONE)
            continue;
        fxi_node *n = p->in[i]->node;
        if (!fxi_array_ok(p->in[i]) || n->tied || n->weak != r->weak[i])
            return false;
        const int32_t next = ~at - t->nbound;
        if (at >= 0 || next < 0) {
            if (fxi_tape_node(t, at) != n)
                return false;
        } else if (next >= FXI_PART_INPUTS || (fresh[next] && fresh[next] != n)) {
            return false;
        } else {
            *out_nfresh += !fresh[next];
            fresh[next] = n;
        }
    }
    for (int i = 0; i < *out_nfresh; i++)
        if (!fresh[i])
            return false;
    return true;
}

/* Gives the ghosts the literals of the part. */
static void put_literals(fxi_tape *t, const recorded_part *r, const fxi_part *p)
{
    for (int k = 0; k < p->nliterals; k++) {
        double *number = &t->entries[r->event.first + k].node->attr.literal.number;
        t->changed |= *number != p->literals[k];
        *number = p->literals[k];
    }
    for (int32_t i = 0; i < r->nliterals; i++) {
        fx_attr *attr = &t->entries[r->literals[i].entry].node->attr;
        const fx_attr *was = &r->literals[i].attr;
        if (memcmp(&attr->literal, &was->literal, sizeof was->literal) == 0)
            continue;
        *attr = *was;
        t->changed = true;
    }
}

bool fxi_part_repeat(fxi_part *p)
{
    fxi_context *c = fxi_here();
    fxi_tape *t = c->tape;
    if (!t || t->mode == FXI_TAPE_OFF)
        return false;
    p->first = fxi_tape_at(t);
    const recorded_part *r = fxi_tape_repeats(c) ? part_here(t, p) : NULL;
    fxi_node *fresh[FXI_PART_INPUTS] = {NULL};
    int nfresh;
    if (!r || !same_inputs(t, r, p, fresh, &nfresh) ||
        !fxi_tape_skip(c, r->event.end, nfresh, fresh)) {
        p->evaluations = fxi_tape_evaluations(t);
        return false;
    }
    put_literals(t, r, p);
    for (int k = 0; k < FXI_PART_RESULTS; k++) {
        p->out[k] = NULL;
        if (r->out[k] == NONE)
            continue;
        fxi_tape_show(t, r->event.first, r->out[k]);
        p->out[k] = fxi_array_of(t->entries[r->out[k]].node);
    }
    return true;
}

fx_array *fxi_part_literal(int32_t first, int k)
{
    const fxi_context *c = fxi_here();
    if (!fxi_tape_repeats(c) || !c->tape->entries[first].skipped)
        return NULL;
    fxi_tape_show(c->tape, first, first + k);
    return fxi_array_of(c->tape->entries[first + k].node);
}
