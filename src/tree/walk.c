/* walk.c: the one walk over objects, as a map (new object) and as a visit (every array once).
 *
 * Identity is what matters: both remember every array and object by address, so what is reached
 * twice is handled once, and a map keeps it shared. A map works bottom-up and makes a new object
 * only when some child became another one: the identity map allocates nothing, and an object whose
 * arrays all stay is the original itself, as Functors.fmap does for leaves. Fields that are no
 * children are copied by their bytes. Functions and leaf types stay as they are.
 *
 * An array that is a view of another array of the same object (W and its transpose) is tied to it:
 * it becomes the same view of what that one becomes, and is no parameter of its own.
 *
 * Recursion is as deep as the nesting of the model, bounded by FXI_MAX_DEPTH. A walk that runs out
 * of memory records it and gives the error object of what it was asked to map.
 */
#include "walk.h"
#include "identity_map.h"
#include "object_types.h"
#include "text.h"
#include "ties.h"
#include "tuples.h"

static bool opaque(const void *object)
{
    const fx_type *type = fx_type_of(object);
    return (type->flags & (FX_TYPE_FUNCTION | FX_TYPE_LEAF)) || type->error == object;
}

static fx_status too_deep(const char *op)
{
    return fx_fail(FX_STATUS_ARGUMENT, op, "nested more than %d levels deep", FXI_MAX_DEPTH);
}

/* ---- ties ------------------------------------------------------------------------------------ */

/* The arrays of what is walked over, by node, known once the walk has met a view: most objects hold
 * none. */
typedef struct ties {
    void *root;
    fxi_identity_map handles;
    bool known, failed;
} ties;

static bool visit_raw(void *x, fx_visit_fn visit, void *user);

static void note_handle(fx_array *x, const char *path, bool trainable, void *user)
{
    (void)path, (void)trainable;
    ties *t = user;
    void *first;
    if (fx_is_error(x) || fxi_identity_get(&t->handles, x->node, &first) ||
        fxi_identity_put(&t->handles, x->node, x))
        return;
    fx_fail(FX_STATUS_MEMORY, "walk", "no memory to remember what arrays there are");
    t->failed = true;
}

/* The array of the same object that x is a view of, and that is no view of another; NULL: none. */
static fx_array *tied_to(ties *t, const fx_array *x)
{
    if (!fxi_is_view(x))
        return NULL;
    if (!t->known)
        t->failed |= !visit_raw(t->root, note_handle, t);
    t->known = true;
    fx_array *of = NULL;
    const fxi_node *n = x->node;
    for (int i = 0; i < FXI_TIE_MOST && (n = fxi_viewed(n)) != NULL; i++) {
        void *handle;
        if (fxi_identity_get(&t->handles, n, &handle))
            of = handle;
    }
    return of;
}

/* ---- map ------------------------------------------------------------------------------------- */

typedef struct mapping {
    fx_map_user_fn f;
    fx_object_fn object; /* NULL: the walk enters every object */
    void *user;
    fxi_identity_map seen;
    ties ties;
    bool failed;
} mapping;

static bool map_child(mapping *m, void *x, int depth);

/* Remembers what x became. */
static void became(mapping *m, void *x, void *y)
{
    if (m->failed || fxi_identity_put(&m->seen, x, y))
        return;
    fx_fail(FX_STATUS_MEMORY, "fmap", "no memory to remember what was visited");
    m->failed = true;
}

/* What became of a child that was mapped before. */
static void *mapped(void *user, void *x)
{
    const mapping *m = user;
    void *y;
    return fxi_identity_get(&m->seen, x, &y) ? y : x;
}

static bool map_field(mapping *m, void *x, const fx_field *f, int depth)
{
    if (f->kind == FX_FIELD_CHILD)
        return map_child(m, fxi_field_child(x, f), depth);
    if (f->kind != FX_FIELD_LIST)
        return false;
    const fx_list *list = fxi_field_at(x, f);
    bool changed = false;
    for (int64_t i = 0; i < list->n; i++)
        changed |= map_child(m, list->items[i], depth);
    return changed;
}

static void *map_object(mapping *m, void *x, int depth)
{
    const fx_type *type = fx_type_of(x);
    if (depth > FXI_MAX_DEPTH) {
        too_deep("fmap");
        m->failed = true;
        return x;
    }
    bool changed = false;
    for (int i = 0; i < type->nfields && !m->failed; i++)
        changed |= map_field(m, x, &type->fields[i], depth + 1);
    if (!changed || m->failed)
        return x;
    void *y = fxi_object_copy(type, x, mapped, m);
    if (y && type->rebuild)
        y = type->rebuild(y);
    m->failed |= !y;
    return y;
}

/* What a view of another array becomes: the same view of what that one becomes, evaluated where
 * that is. */
static fx_array *map_view(mapping *m, fx_array *x, fx_array *of, int depth)
{
    map_child(m, of, depth);
    fx_array *y = mapped(m, of);
    if (!y || y == of || m->failed)
        return y ? x : NULL;
    fx_array *view = fxi_view_again(x, of, y);
    if (!view) /* of other sizes */
        return m->f(x, m->user);
    return fx_is_evaluated(y) && fx_eval(view) != FX_OK ? fx_error_array(fx_error_status()) : view;
}

static fx_array *map_array(mapping *m, fx_array *x, int depth)
{
    fx_array *of = tied_to(&m->ties, x);
    m->failed |= m->ties.failed;
    return of ? map_view(m, x, of, depth) : m->f(x, m->user);
}

/* True when x became something else. */
static bool map_child(mapping *m, void *x, int depth)
{
    if (!x || m->failed)
        return false;
    const bool array = fx_is_array(x);
    if (!array && opaque(x))
        return false;
    void *y;
    if (fxi_identity_get(&m->seen, x, &y))
        return y != x;
    y = !array && m->object ? m->object(x, m->user) : NULL;
    if (!y)
        y = array ? (void *)map_array(m, x, depth) : map_object(m, x, depth);
    became(m, x, y);
    return y != x;
}

void *fx_fmap_objects(fx_map_user_fn f, fx_object_fn object, void *user, void *x)
{
    if (!f || !x)
        return fx_error_array(
            fx_fail(FX_STATUS_ARGUMENT, "fmap", "there is no %s", f ? "object" : "function"));
    mapping m = {.f = f, .object = object, .user = user, .ties.root = x};
    map_child(&m, x, 0);
    void *y = mapped(&m, x);
    fxi_identity_free(&m.seen);
    fxi_identity_free(&m.ties.handles);
    return m.failed ? fxi_error_object(fx_type_of(x)) : y;
}

void *fx_fmap_with(fx_map_user_fn f, void *user, void *x)
{
    return fx_fmap_objects(f, NULL, user, x);
}

static fx_array *without_user(fx_array *x, void *user)
{
    return (*(fx_map_fn *)user)(x);
}

void *fxi_fmap(fx_map_fn f, void *x)
{
    return fx_fmap_with(f ? without_user : NULL, &f, x);
}

static fx_array *snapshot(fx_array *x, void *user)
{
    (void)user;
    return fxi_array_snapshot(x);
}

void *fxi_snapshot(void *model)
{
    return fx_fmap_with(snapshot, NULL, model);
}

/* ---- visit ----------------------------------------------------------------------------------- */

typedef struct visiting {
    fx_visit_fn visit;
    fxi_visit_tied_fn tied; /* instead of `visit`, with the array that x is a view of */
    void *user;
    fx_text path;
    fxi_identity_map seen;
    ties ties;
    bool failed;
} visiting;

static void visit_any(visiting *v, void *x, bool frozen, int depth);

static bool is_real(const fx_array *x)
{
    static const bool real[FX_DTYPE_COUNT] = {[FX_DTYPE_F32] = true,
                                              [FX_DTYPE_F64] = true,
                                              [FX_DTYPE_F16] = true,
                                              [FX_DTYPE_BF16] = true};
    return real[fx_eltype(x)];
}

/* Goes to a child with `.name` added to the path; a negative index adds no number. */
static void visit_step(visiting *v, void *x, const char *name, int64_t index, bool frozen,
                       int depth)
{
    const size_t length = v->path.length;
    if (length)
        fxi_text_put(&v->path, ".");
    if (name)
        fxi_text_put(&v->path, name);
    else
        fx_text_add(&v->path, "%lld", (long long)index);
    visit_any(v, x, frozen, depth);
    fxi_text_cut(&v->path, length);
}

static void visit_list(visiting *v, const fx_list *list, bool frozen, int depth)
{
    for (int64_t i = 0; i < list->n; i++)
        visit_step(v, list->items[i], list->names ? list->names[i] : NULL, i, frozen, depth);
}

static void visit_field(visiting *v, void *x, const fx_field *f, bool frozen, int depth)
{
    frozen |= fxi_field_frozen(fx_type_of(x), f);
    if (f->kind == FX_FIELD_CHILD)
        visit_step(v, fxi_field_child(x, f), f->name, 0, frozen, depth);
    if (f->kind != FX_FIELD_LIST)
        return;
    const size_t length = v->path.length;
    if (!(fx_type_of(x)->flags &
          FX_TYPE_TUPLE)) /* a tuple's items are its own, not those of a field */
        fx_text_add(&v->path, "%s%s", length ? "." : "", f->name);
    visit_list(v, fxi_field_at(x, f), frozen, depth);
    fxi_text_cut(&v->path, length);
}

static fx_status visit_check(visiting *v, void *x, int depth)
{
    if (depth > FXI_MAX_DEPTH)
        return too_deep("visit");
    if (v->path.failed || !fxi_identity_put(&v->seen, x, NULL))
        return fx_fail(FX_STATUS_MEMORY, "visit", "no memory to remember what was visited");
    return FX_OK;
}

static void visit_array(visiting *v, fx_array *x, bool trainable)
{
    const char *path = v->path.data ? v->path.data : "";
    fx_array *of = v->ties.root ? tied_to(&v->ties, x) : NULL;
    v->failed |= v->ties.failed;
    if (v->failed)
        return;
    if (v->tied)
        v->tied(x, of, path, trainable && !of, v->user);
    else
        v->visit(x, path, trainable && !of, v->user);
}

static void visit_any(visiting *v, void *x, bool frozen, int depth)
{
    void *unused;
    if (!x || v->failed ||
        (!fx_is_array(x) && (fx_type_of(x)->flags & (FX_TYPE_FUNCTION | FX_TYPE_LEAF))))
        return;
    if (fxi_identity_get(&v->seen, x, &unused))
        return;
    v->failed = visit_check(v, x, depth) != FX_OK;
    if (v->failed)
        return;
    if (fx_is_array(x)) {
        visit_array(v, x, is_real(x) && !frozen);
        return;
    }
    const fx_type *type = fx_type_of(x);
    for (int i = 0; i < type->nfields; i++)
        visit_field(v, x, &type->fields[i], frozen, depth + 1);
}

static bool visit_with(visiting *v, void *x)
{
    if (!x || (!v->visit && !v->tied)) {
        fx_fail(FX_STATUS_ARGUMENT, "visit", "there is no %s", x ? "function" : "object");
        return false;
    }
    visit_any(v, x, false, 0);
    fxi_text_free(&v->path);
    fxi_identity_free(&v->seen);
    fxi_identity_free(&v->ties.handles);
    return !v->failed;
}

/* Every array as if it were one of its own. */
static bool visit_raw(void *x, fx_visit_fn visit, void *user)
{
    visiting v = {.visit = visit, .user = user};
    return visit_with(&v, x);
}

static bool visit_all(void *x, fx_visit_fn visit, void *user)
{
    visiting v = {.visit = visit, .user = user, .ties.root = x};
    return visit_with(&v, x);
}

void fx_visit(void *x, fx_visit_fn visit, void *user)
{
    visit_all(x, visit, user);
}

void fxi_visit_tied(void *x, fxi_visit_tied_fn visit, void *user)
{
    visiting v = {.tied = visit, .user = user, .ties.root = x};
    visit_with(&v, x);
}

/* ---- what visits are for --------------------------------------------------------------------- */

typedef struct collection {
    void **items;
    int n, capacity;
    bool failed;
} collection;

static void collect(fx_array *x, const char *path, bool trainable, void *user)
{
    (void)path;
    collection *c = user;
    if (!trainable || c->failed)
        return;
    if (c->n == c->capacity) {
        const int capacity = c->capacity ? 2 * c->capacity : 32;
        void **grown = fxi_realloc(c->items, (size_t)capacity * sizeof *grown);
        if (!grown) {
            fx_fail(FX_STATUS_MEMORY, "trainables", "no memory for %d arrays", capacity);
            c->failed = true;
            return;
        }
        c->items = grown;
        c->capacity = capacity;
    }
    c->items[c->n++] = x;
}

void *fx_trainables(void *model)
{
    collection c = {0};
    const bool complete = visit_all(model, collect, &c) && !c.failed;
    void *tuple = complete ? fxi_tuple(c.n, c.items) : fxi_error_object(&fxi_tuple_type);
    fxi_free(c.items);
    return tuple;
}

static void count_elements(fx_array *x, const char *path, bool trainable, void *user)
{
    (void)path;
    if (trainable)
        *(int64_t *)user += fx_length(x);
}

int64_t fx_parameter_count(void *model)
{
    int64_t n = 0;
    visit_all(model, count_elements, &n);
    return n;
}
