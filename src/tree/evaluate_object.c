/* evaluate_object.c: evaluates every pending array of an object in one plan. */
#include "evaluate_object.h"

#include "evaluate.h"
#include "handle.h"
#include "random.h"
#include "walk.h"

#include <cflux/tree.h>

typedef struct pending {
    fxi_node **nodes;
    int32_t n, capacity;
    fx_status status;
    fxi_chosen_fn chosen; /* NULL: all */
    void *user;
    int64_t bytes;
} pending;

static void add_pending(fx_array *x, fx_array *of, bool trainable, void *user)
{
    (void)of, (void)trainable;
    pending *p = user;
    if (p->status != FX_OK || (p->chosen && !p->chosen(x, p->user)))
        return;
    if (x->status != FX_OK)
        p->status = fxi_array_check("eval", x);
    else if (!x->node->data && !fxi_grow(&p->nodes, &p->capacity, p->n + 1, sizeof *p->nodes))
        p->status = fx_fail(FX_STATUS_MEMORY, "eval", "no memory for the list of results");
    else if (!x->node->data) {
        p->nodes[p->n++] = x->node;
        p->bytes += fx_length(x) * (int64_t)fx_dtype_size(fx_eltype(x));
    }
}

static fx_status evaluate_object(void *object)
{
    pending p = {.status = FX_OK};
    const fx_status walked = fxi_visit_tied(object, add_pending, &p);
    if (p.status == FX_OK)
        p.status = walked;
    if (p.status == FX_OK)
        p.status = fxi_evaluate(fxi_here(), p.n, p.nodes);
    fxi_free(p.nodes);
    return p.status;
}

void fxi_evaluate_new_suspend(void)
{
    fxi_here()->new_pending++;
}

void fxi_evaluate_new_resume(void)
{
    fxi_here()->new_pending--;
}

bool fxi_implicit_suspend(void)
{
    fxi_context *c = fxi_here();
    const bool before = c->busy;
    c->busy = true;
    return before;
}

void fxi_implicit_resume(bool before)
{
    fxi_here()->busy = before;
}

void *fxi_call_for_shape(void *model, int n, void *const *args)
{
    const int64_t created = fxi_here()->created;
    const bool implicit = fxi_implicit_suspend();
    const fxi_random_state before = fxi_random_now();
    fxi_here()->unstaged++;
    void *y;
    {
        FXI_OPEN_AT(FXI_SCOPE_TEST, NULL, 0); /* error records keep the location of the caller */
        y = fx_keep(fxi_call(model, n, args));
    }
    fxi_here()->unstaged--;
    fxi_random_leave(before);
    fxi_here()->created = created;
    fxi_implicit_resume(implicit);
    return y;
}

fx_status fxi_evaluate_new(void *object, fxi_chosen_fn chosen, void *user)
{
    pending p = {.status = FX_OK, .chosen = chosen, .user = user};
    fxi_context *c = fxi_here();
    if (c->new_pending)
        return FX_OK;
    const fx_status walked = fxi_visit_tied(object, add_pending, &p);
    if (p.status == FX_OK)
        p.status = walked;
    c->unwatched++;
    if (p.status == FX_OK && p.bytes <= FXI_EVALUATED_AT_ONCE)
        p.status = fxi_evaluate(c, p.n, p.nodes);
    c->unwatched--;
    fxi_free(p.nodes);
    return p.status;
}

fx_status fx_eval(void *object)
{
    if (!object)
        return fx_fail(FX_STATUS_ARGUMENT, "eval", "the object is NULL");
    return fx_is_array(object) ? fxi_evaluate_array(object) : evaluate_object(object);
}
