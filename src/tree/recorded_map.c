/* recorded_map.c: makes the gradient of a model without walking over it. See recorded_map.h. */
#include "recorded_map.h"
#include "object_types.h"
#include "same_tree.h"

#include <cflux/grad.h>
#include <string.h>

/* The result for a child: an index of `results`, NOTHING (NULL) or ITSELF (the child). */
enum { NOTHING = -1, ITSELF = -2 };

struct fxi_recorded_map {
    fxi_event event;
    fxi_tree_record tree;
    void *model;
    fx_array **trained;
    void **results;    /* n gradients, then the new objects of `tree.objects` */
    int32_t *children; /* for each child of each object that changes, in order: its result */
    int32_t *starts;   /* per object: its first child in `children`; −1: no child changes */
    int32_t n, nchildren, capacity;
};

static void map_free(fxi_event *e)
{
    fxi_recorded_map *r = (fxi_recorded_map *)e;
    fxi_tree_record_free(&r->tree);
    fxi_free(r->trained);
    fxi_free(r->results);
    fxi_free(r->children);
    fxi_free(r->starts);
    fxi_free(r);
}

static const fxi_event_kind map_kind = {map_free, false, NULL};

/* ---- noting ---------------------------------------------------------------------------------- */

typedef struct numbering {
    fxi_recorded_map *r;
    fxi_identity_map numbers; /* array or object → its result + 1 */
    bool changed, failed;
} numbering;

static void number_child(numbering *g, const void *child)
{
    fxi_recorded_map *r = g->r;
    void *known;
    int32_t to = fxi_is_array(child) ? NOTHING : ITSELF;
    if (fxi_identity_get(&g->numbers, child, &known))
        to = (int32_t)((intptr_t)known - 1);
    if (to >= r->n && r->starts[to - r->n] < 0)
        to = ITSELF;
    g->changed |= to != ITSELF;
    if (fxi_grow(&r->children, &r->capacity, r->nchildren + 1, sizeof *r->children))
        r->children[r->nchildren++] = to;
    else
        g->failed = true;
}

/* Visits the children in the order of fxi_object_copy. */
static void number_children(numbering *g, const void *x)
{
    const fx_type *type = fx_type_of(x);
    for (int i = 0; i < type->nfields; i++) {
        const fx_field *f = &type->fields[i];
        const fx_list *list = f->kind == FX_FIELD_LIST ? fxi_field_at(x, f) : NULL;
        for (int64_t k = 0; list && k < list->n; k++)
            if (list->items[k])
                number_child(g, list->items[k]);
        if (f->kind == FX_FIELD_CHILD && fxi_field_child(x, f))
            number_child(g, fxi_field_child(x, f));
    }
}

static bool number_all(fxi_recorded_map *r)
{
    numbering g = {.r = r};
    for (int32_t i = 0; i < r->n && !g.failed; i++)
        g.failed = !fxi_identity_put(&g.numbers, r->trained[i], (void *)(intptr_t)(i + 1));
    for (int32_t i = 0; i < r->tree.nobjects && !g.failed; i++) {
        const int32_t before = r->nchildren;
        g.changed = false;
        number_children(&g, r->tree.objects[i]);
        r->starts[i] = g.changed ? before : -1;
        r->nchildren = g.changed ? r->nchildren : before; /* it is not copied */
        g.failed |=
            !fxi_identity_put(&g.numbers, r->tree.objects[i], (void *)(intptr_t)(r->n + i + 1));
    }
    fxi_identity_free(&g.numbers);
    return !g.failed;
}

void fxi_note_map(fxi_context *c, int32_t first, void *model, const fxi_map_result *made)
{
    const int32_t n = made->n;
    fxi_recorded_map *r = n > 0 && !fxi_is_array(model) ? fxi_calloc(1, sizeof *r) : NULL;
    if (!r)
        return;
    r->event.kind = &map_kind;
    r->model = model;
    r->n = n;
    bool ok = fxi_tree_note(&r->tree, model);
    const size_t objects = (size_t)r->tree.nobjects;
    r->trained = fxi_malloc((size_t)n * sizeof *r->trained);
    r->results = fxi_calloc((size_t)n + objects + 1, sizeof *r->results);
    r->starts = fxi_calloc(objects + 1, sizeof *r->starts);
    ok = ok && objects > 0 && r->trained && r->results && r->starts;
    if (ok) {
        memcpy(r->trained, made->trained, (size_t)n * sizeof *r->trained);
        memcpy(r->results, made->gradients, (size_t)n * sizeof *r->results);
        r->results[(size_t)n + objects - 1] = made->tree;
    }
    if (ok && number_all(r))
        fxi_tape_add(c, &r->event, first);
    else
        map_free(&r->event);
}

/* ---- repeating ------------------------------------------------------------------------------- */

const fxi_recorded_map *fxi_map_event(const fxi_context *c, void *model)
{
    const fxi_recorded_map *r =
        fxi_tape_repeats(c) ? (fxi_recorded_map *)fxi_tape_event(c, &map_kind) : NULL;
    return r && r->model == model && fxi_tree_same(&r->tree) ? r : NULL;
}

/* Returns the result for a child of a noted object. */
static void *result_for(const fxi_recorded_map *r, int32_t to, void *child)
{
    return to == ITSELF ? child : to == NOTHING ? NULL : r->results[to];
}

typedef struct copying {
    const fxi_recorded_map *r;
    int32_t at; /* the next child */
} copying;

static void *next_child(void *user, void *child)
{
    copying *g = user;
    return result_for(g->r, g->r->children[g->at++], child);
}

/* Like the map of walk.c: an object is made again only where a child changes. */
static void *copy_objects(const fxi_recorded_map *r)
{
    copying g = {.r = r};
    void *y = NULL;
    for (int32_t i = 0; i < r->tree.nobjects; i++) {
        void *x = r->tree.objects[i];
        const fx_type *type = fx_type_of(x);
        y = x;
        if (r->starts[i] >= 0) {
            y = fxi_object_copy(type, x, next_child, &g);
            if (y && type->rebuild)
                y = type->rebuild(y);
        }
        if (!y)
            return NULL;
        r->results[r->n + i] = y;
    }
    return y;
}

void *fxi_map_again(const fxi_recorded_map *r, fx_array *loss, fx_status *out_status)
{
    *out_status = fx_gradient_of(loss, r->trained, r->n, (fx_array **)r->results);
    if (*out_status != FX_OK)
        return NULL;
    void *y = copy_objects(r);
    return y ? y : fx_error_object(fx_type_of(r->model));
}

/* ---- the object that was made ---------------------------------------------------------------- */

/* Returns true if y contains the results for the children of x. */
static bool holds(const fxi_recorded_map *r, const void *x, const void *y, int32_t at)
{
    const fx_type *type = fx_type_of(x);
    if (!y || fx_type_of(y) != type)
        return false;
    for (int i = 0; i < type->nfields; i++) {
        const fx_field *f = &type->fields[i];
        if (f->kind == FX_FIELD_CHILD) {
            void *child = fxi_field_child(x, f);
            if (fxi_field_child(y, f) != (child ? result_for(r, r->children[at++], child) : NULL))
                return false;
        } else if (f->kind == FX_FIELD_LIST) {
            const fx_list *from = fxi_field_at(x, f), *to = fxi_field_at(y, f);
            if (from->n != to->n)
                return false;
            for (int64_t k = 0; k < from->n; k++) {
                void *child = from->items[k];
                if (to->items[k] != (child ? result_for(r, r->children[at++], child) : NULL))
                    return false;
            }
        }
    }
    return true;
}

/* Compares parents before their children, so every object that is read is held by `gradient`. */
static bool holds_all(const fxi_recorded_map *r, const void *gradient)
{
    if (r->results[r->n + r->tree.nobjects - 1] != gradient)
        return false;
    for (int32_t i = r->tree.nobjects - 1; i >= 0; i--)
        if (r->starts[i] >= 0 && !holds(r, r->tree.objects[i], r->results[r->n + i], r->starts[i]))
            return false;
    return true;
}

/* The map of this tape whose result was `gradient`, compared by address only. */
static const fxi_recorded_map *map_to(const fxi_context *c, const void *model, const void *gradient)
{
    for (const fxi_event *e = c->tape->events; e; e = e->next) {
        const fxi_recorded_map *r = (const fxi_recorded_map *)e;
        if (e->kind == &map_kind && r->model == model &&
            r->results[r->n + r->tree.nobjects - 1] == gradient)
            return r;
    }
    return NULL;
}

bool fxi_map_read(const fxi_context *c, const void *model, void *gradient, fxi_map_result *out)
{
    const fxi_recorded_map *r = fxi_tape_repeats(c) ? map_to(c, model, gradient) : NULL;
    if (!r || !fxi_tree_same(&r->tree) || !holds_all(r, gradient))
        return false;
    *out = (fxi_map_result){r->n, r->trained, (fx_array *const *)r->results, gradient};
    return true;
}

int32_t fxi_map_find(const fxi_context *c, const void *model, const void *gradient,
                     const fx_array *x, const fx_array *dx)
{
    const fxi_recorded_map *r = map_to(c, model, gradient);
    for (int32_t i = 0; r && i < r->n; i++)
        if (r->trained[i] == x && r->results[i] == dx)
            return i;
    return -1;
}
