/* show_plan.c: prints a plan: what each step computes, from which inputs, and how much.
 *
 * Each step has one line: its number, its operation (all instructions of an elementwise step), its
 * inputs, type and size of its outputs, and for contractions the number of floating-point
 * operations. Inputs are x0, x1, … (values evaluated before), literals c0, …, and steps by number;
 * ′ marks a view. The planner's golden tests compare this text; fx_plan_show adds bytes and a list
 * of the inputs.
 */
#include "error.h"
#include "planning.h"
#include "text.h"

#include <cflux/device.h>

#include <cflux/tree.h>
#include <string.h>

/* `in_memory_order`: x is the tensor of a step whose axes are in memory order, channels first
 * (layout.c); prints its sizes in the order that programs see. */
static void add_shape(fx_text *t, const fx_tensor *x, bool in_memory_order)
{
    const int n = x->ndim;
    fx_text_add(t, "%s", fx_dtype_name((fx_dtype)x->dtype));
    for (int i = 0; i < n; i++) {
        const int at = !in_memory_order || i == n - 1 ? i : i == n - 2 ? 0 : i + 1;
        fx_text_add(t, i ? "×%lld" : " %lld", (long long)x->shape[at]);
    }
}

/* The step that computes a value, counted from 1; 0 for a value evaluated before. */
static int producer_of(const fxi_plan *p, int32_t value)
{
    for (int32_t i = 0; i < p->nsteps; i++) {
        for (int32_t k = 0; k < fx_step_outputs(&p->steps[i]); k++)
            if (fx_step_output(&p->steps[i], k) == value)
                return i + 1;
    }
    return 0;
}

static void add_input(fx_text *t, const fxi_plan *p, const fx_step *s, int i)
{
    const fxi_value *v = &p->values[s->in_value[i]];
    const fx_tensor *x = &s->in[i];
    if (v->kind == FXI_VALUE_LEAF)
        fx_text_add(t, "x%d", (int)v->index);
    else if (v->kind == FXI_VALUE_LITERAL)
        fx_text_add(t, "c%d", (int)v->index);
    else
        fx_text_add(t, "%d", producer_of(p, s->in_value[i]));
    if (v->kind != FXI_VALUE_LITERAL &&
        !(s->in_offset[i] == 0 && fxi_is_dense(x->ndim, x->shape, x->stride)))
        fx_text_add(t, "′"); /* seen through a view */
}

static const char *const reductions[] = {"sum",    "max",   "min", "prod", "squared deviations",
                                         "argmax", "argmin"};

/* Separates passes with a vertical bar, and puts in parentheses the instructions that run on values
 * of the whole row. */
static void add_passes(fx_text *t, const fx_program *p)
{
    int pass = 0;
    bool inside = false;
    fx_text_add(t, "row");
    for (int k = 0; k < p->n; k++) {
        const fx_instr *ins = &p->instr[k];
        const bool value = ins->row && ins->op != FX_OP_REDUCE;
        if (inside && (!value || ins->pass != pass))
            fx_text_add(t, ")");
        if (ins->pass != pass)
            fx_text_add(t, " |");
        fx_text_add(t, value && (!inside || ins->pass != pass) ? " (%s%s" : " %s%s",
                    ins->op == FX_OP_REDUCE ? reductions[ins->attr] : fxi_ops[ins->op].name,
                    ins->op == FX_OP_REDUCE && !ins->row ? " across" : "");
        inside = value;
        pass = ins->pass;
    }
    fx_text_add(t, inside ? ")" : "");
}

static void add_program(fx_text *t, const char *before, const fx_program *p)
{
    for (int k = 0; k < p->n; k++)
        fx_text_add(t, "%s%s", k ? " " : before, fxi_ops[p->instr[k].op].name);
}

static void add_work(fx_text *t, const fx_step *s)
{
    static const char *const convs[] = {"forward", "by data", "by weight"};
    static const char *const pools[] = {"max", "mean", "max gradient", "mean gradient", "max pick"};
    static const char *const attentions[] = {"forward", "log sum exp", "by query",
                                             "by key and value", "gradients"};
    const fx_program p = fx_step_program(s);
    switch (s->cls) {
    case FX_CLASS_ROW:
        add_passes(t, &p);
        break;
    case FX_CLASS_FOREACH:
        fx_text_add(t, "foreach of %d: ", (int)fx_step_segments(s));
        if (fx_step_foreach(s)->each)
            fx_text_add(t, "reduce %s", reductions[fx_step_reduce(fx_step_foreach(s)->each)->fold]);
        add_program(t, fx_step_foreach(s)->each ? " of " : "", &p);
        break;
    case FX_CLASS_ELEMENTWISE:
        add_program(t, "", &p);
        break;
    case FX_CLASS_REDUCE:
        fx_text_add(t, "reduce %s", reductions[fx_step_reduce(s)->fold]);
        add_program(t, " of ", &p);
        break;
    case FX_CLASS_CONV:
        fx_text_add(t, "conv %s", convs[fx_step_conv(s)->attr.kind]);
        add_program(t, " then ", &p);
        break;
    case FX_CLASS_MATMUL:
        fx_text_add(t, "matmul%s%s", fx_step_matmul(s)->transpose_a ? " Aᵀ" : "",
                    fx_step_matmul(s)->transpose_b ? " Bᵀ" : "");
        add_program(t, " then ", &p);
        break;
    case FX_CLASS_POOL:
        fx_text_add(t, "pool %s", pools[fx_step_pool(s)->attr.kind]);
        break;
    case FX_CLASS_ATTENTION:
        fx_text_add(t, "attention %s", attentions[fx_step_attention(s)->kind]);
        break;
    default:
        fx_text_add(t, "%s", s->cls == FX_CLASS_MOVEMENT ? "copy" : fxi_ops[s->op].name);
    }
}

/* Floating-point operations of an attention step. Each kind computes some matrix products over the
 * features of q and k (by_features), and some over those of v (by_value_features). Each has
 * queries×keys×features terms; a causal step needs about half of them. */
static double attention_flops(const fx_attention_step *a)
{
    static const uint8_t by_features[] = {1, 1, 2, 2, 3}, by_value_features[] = {1, 0, 1, 2, 2};
    const double terms = (double)(by_features[a->kind] * a->features) +
                         (double)(by_value_features[a->kind] * a->value_features);
    const double scores = (double)a->queries * (double)a->keys * (double)(a->heads * a->batch);
    return (a->causal ? 1 : 2) * terms * scores;
}

/* Floating-point operations (multiplications and additions) of a contraction; 0 for other steps. */
static double flops(const fx_step *s)
{
    const double out = (double)fxi_length(s->out.ndim, s->out.shape);
    if (s->op == FX_OP_MATMUL)
        return 2 * out * (double)s->in[0].shape[fx_step_matmul(s)->transpose_a ? 0 : 1];
    if (s->op == FX_OP_ATTENTION)
        return attention_flops(fx_step_attention(s));
    if (s->op != FX_OP_CONV)
        return 0;
    /* products of one forward pass: outputs × taps × input channels per group */
    const int kind = fx_step_conv(s)->attr.kind;
    const fx_tensor *y = kind == FX_CONV_FORWARD ? &s->out
                         : kind == FX_CONV_DATA  ? &s->in[0]
                                                 : &s->in[1];
    const fx_tensor *w = kind == FX_CONV_WEIGHT ? &s->out : &s->in[1];
    return 2 * (double)fxi_length(y->ndim, y->shape) * (double)fxi_length(w->ndim - 1, w->shape);
}

/* Prints a byte count with a unit (bytes, KiB, MiB …). */
static void add_bytes(fx_text *t, uint64_t bytes)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    double n = (double)bytes;
    int k = 0;
    for (; n >= 1024 && k < 4; k++)
        n /= 1024;
    fx_text_add(t, k ? "%.1f %s" : "%.0f %s", n, units[k]);
}

/* The additional outputs of a row step have their own shapes. */
static void add_row_outputs(fx_text *t, const fx_step *s)
{
    for (int32_t k = 1; k < fx_step_outputs(s); k++) {
        const fx_tensor x = fxi_step_output_tensor(s, k);
        fx_text_add(t, ", ");
        add_shape(t, &x, false);
    }
}

/* Prints types and lengths of the outputs of a foreach step. */
static void add_segments(fx_text *t, const fxi_plan *p, const fx_step *s)
{
    fx_text_add(t, "%s", fx_dtype_name((fx_dtype)s->out.dtype));
    const fx_foreach_step *f = fx_step_foreach(s);
    for (int32_t k = 0; k < f->nsegments; k++)
        fx_text_add(t, "%s %lld", k ? "," : "", (long long)f->segments[k].length);
    if (f->more.n)
        fx_text_add(t, " and %d more each", (int)f->more.n);
    int32_t in_place = 0;
    for (int32_t k = 0; k < fx_step_outputs(s); k++)
        in_place += p->values[fx_step_output(s, k)].kind == FXI_VALUE_DONATED;
    if (in_place)
        fx_text_add(t, ", %d in place", (int)in_place);
}

static void add_outputs(fx_text *t, const fxi_plan *p, const fx_step *s)
{
    add_shape(t, &s->out, s->in_memory_order);
    if (p->values[s->out_value].channels_last)
        fx_text_add(t, " channels last");
    if (s->cls == FX_CLASS_ROW)
        add_row_outputs(t, s);
    else if (fx_step_more(s)->n)
        fx_text_add(t, " and %d more", (int)fx_step_more(s)->n);
    if (p->values[s->out_value].kind == FXI_VALUE_DONATED)
        fx_text_add(t, ", in place of x%d", (int)p->values[s->out_value].index);
}

static void add_step(fx_text *t, const fxi_plan *p, int32_t i, bool details)
{
    const fx_step *s = &p->steps[i];
    fx_text_add(t, "%3d  ", (int)i + 1);
    add_work(t, s);
    fx_text_add(t, "(");
    for (int k = 0; k < s->nin; k++) {
        if (k) /* separate segments */
            fx_text_add(t, k % (s->nin / fx_step_segments(s)) == 0 ? "; " : ", ");
        add_input(t, p, s, k);
    }
    fx_text_add(t, ") → ");
    if (s->cls == FX_CLASS_FOREACH)
        add_segments(t, p, s);
    else
        add_outputs(t, p, s);
    if (flops(s) > 0)
        fx_text_add(t, ", %.3g MFLOP", flops(s) * 1e-6);
    if (details) {
        fx_text_add(t, ", ");
        add_bytes(t, (uint64_t)fxi_step_bytes(p, s));
        if (s->work_bytes > 0) {
            fx_text_add(t, " and ");
            add_bytes(t, (uint64_t)s->work_bytes);
            fx_text_add(t, " of work space");
        }
    }
    fx_text_add(t, "\n");
}

static void add_summary(fx_text *t, const fxi_plan *p)
{
    double work = 0;
    for (int32_t i = 0; i < p->nsteps; i++)
        work += flops(&p->steps[i]);
    fx_text_add(t, "%d nodes in %d steps (%d fused) on %s: ", (int)p->nnodes, (int)p->nsteps,
                (int)p->fused_steps, fx_device_name(p->device));
    add_bytes(t, p->bytes_moved);
    fx_text_add(t, " moved, ");
    add_bytes(t, p->bytes_saved);
    fx_text_add(t, " saved, ");
    add_bytes(t, (uint64_t)p->arena_bytes);
    fx_text_add(t, " of arena");
    if (work > 0)
        fx_text_add(t, ", %.3g MFLOP", work * 1e-6);
    fx_text_add(t, "\n");
}

/* x0, x1, …: the evaluated values that the graph reads. */
static void add_leaves(fx_text *t, const fxi_graph *g)
{
    for (int32_t i = 0; i < g->n; i++) {
        const fxi_node *n = g->nodes[i];
        if (!n->data)
            continue;
        fx_text_add(t, "  x%d  %s", (int)g->slot[i], fx_dtype_name((fx_dtype)n->dtype));
        for (int k = 0; k < n->ndim; k++)
            fx_text_add(t, k ? "×%lld" : " %lld", (long long)n->shape[k]);
        fx_text_add(t, n->data->buffer->borrowed ? ", borrowed\n" : "\n");
    }
}

static void add_literals(fx_text *t, const fxi_plan *p, const fxi_graph *g)
{
    for (int32_t k = 0; k < p->nliterals; k++) {
        const fxi_plan_literal *s = &p->literals[k];
        const char *type = fx_dtype_name((fx_dtype)s->dtype);
        if (s->op != FX_OP_CONST) {
            fx_text_add(t, "  c%d  %s(c%d", (int)k, fxi_ops[s->op].name, (int)s->in[0]);
            if (fxi_ops[s->op].inputs > 1)
                fx_text_add(t, ", c%d", (int)s->in[1]);
            fx_text_add(t, ") %s\n", type);
            continue;
        }
        for (int32_t i = 0; i < g->n; i++) {
            const fxi_node *n = g->nodes[i];
            if (n->data || n->op != FX_OP_CONST || g->slot[i] != s->constant)
                continue;
            if (n->attr.literal.is_integer)
                fx_text_add(t, "  c%d  %lld %s\n", (int)k, (long long)n->attr.literal.integer,
                            type);
            else
                fx_text_add(t, "  c%d  %.9g %s\n", (int)k, n->attr.literal.number, type);
        }
    }
}

static void add_plan(fx_text *t, const fxi_plan *p, const fxi_graph *g, bool details)
{
    add_summary(t, p);
    for (int32_t i = 0; i < p->nsteps; i++)
        add_step(t, p, i, details);
    if (details) {
        add_leaves(t, g);
        add_literals(t, p, g);
    }
}

/* ---- the plan of pending arrays -------------------------------------------------------------- */

typedef struct pending {
    fxi_root *roots;
    int32_t n, capacity;
    fx_status status;
} pending;

static void note_array(fx_array *x, const char *path, bool trainable, void *user)
{
    (void)path, (void)trainable;
    pending *p = user;
    if (x->status != FX_OK || x->node->data)
        return;
    if (!fxi_grow(&p->roots, &p->capacity, p->n + 1, sizeof *p->roots))
        p->status = fx_fail(FX_STATUS_MEMORY, "plan", "no memory for the list of results");
    else
        p->roots[p->n++] = (fxi_root){x->node, NULL};
}

static fx_status describe(void *object, fx_text *text, bool details)
{
    pending p = {0};
    fxi_graph g = {0};
    fxi_plan *plan = NULL;
    const fx_error earlier = fxi_error_begin();
    fx_visit(object, note_array, &p);
    const fx_status walked = fxi_error_end(&earlier);
    if (p.status == FX_OK)
        p.status = walked;
    if (p.status == FX_OK && p.n > 0)
        p.status = fxi_graph_of(fxi_here(), &g, p.n, p.roots);
    if (p.status == FX_OK && p.n > 0)
        p.status = fxi_plan_new(&g, &plan);
    if (plan) {
        add_plan(text, plan, &g, details);
        fxi_plan_release(plan);
    } else if (p.status == FX_OK) {
        fx_text_add(text, "nothing is pending\n");
    }
    fxi_graph_free(&g);
    fxi_free(p.roots);
    return p.status;
}

size_t fx_plan_text(void *object, char *dst, size_t capacity)
{
    fx_text text = {0};
    if (describe(object, &text, false) != FX_OK)
        fxi_text_free(&text);
    return fxi_text_hand_over(&text, dst, capacity);
}

void fx_plan_show(FILE *out, void *object)
{
    fx_text text = {0};
    if (describe(object, &text, true) == FX_OK) {
        fxi_text_cut(&text, text.length - 1); /* its newline, because another one is printed */
        fxi_text_print(&text, out);
    }
    fxi_text_free(&text);
}
