/* walk.c: maps and visits, built on the walk over objects (tree_walk.c). A map makes a new object;
 * a visit calls a function for every array once.
 *
 * A map works bottom-up and makes a new object only where a child changed. If no array of an object
 * changes, the result is the object itself, as Functors.fmap does for leaves. Fields that are not
 * children are copied byte by byte. Functions and leaf types stay unchanged.
 *
 * An array that is a view of another array of the same object (W and its transpose) is tied to it:
 * a map turns it into the same view of the mapped array, and it is not a parameter of its own. An
 * array that is reached through a frozen field and also through another field is trained.
 *
 * A map that fails returns an error object of the type that it should have returned.
 */
#include "walk.h"
#include "identity_map.h"
#include "object_types.h"
#include "reads.h"
#include "ties.h"
#include "tuples.h"

static bool opaque(const void *object)
{
    const fx_type *type = fxi_type_of(object);
    return (type->flags & (FX_TYPE_FUNCTION | FX_TYPE_LEAF)) || type->error == object;
}

/* ---- ties ------------------------------------------------------------------------------------ */

/* The arrays of the walked object, by node. Filled only when the walk meets a view, because most
 * objects have none. */
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
    fx_fail(FX_STATUS_MEMORY, "walk", "no memory for the list of visited arrays");
    t->failed = true;
}

/* The array of the same object that x is a view of, and that is not a view itself; NULL if there is
 * none. */
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
    fxi_valued_walk walk; /* the value of an array or object: what it is mapped to */
    fx_map_user_fn f;
    fx_object_fn object; /* NULL: the walk enters every object */
    void *user;
    ties ties;
    fxi_identity_map early; /* mapped values of arrays of which the walk met a view first */
    bool failed;
} mapping;

static fx_array *map_array(mapping *m, fx_array *x);

/* The mapped value of an array that others view. */
static fx_array *map_viewed(mapping *m, fx_array *x)
{
    void *y;
    if (fxi_walk_value(&m->walk, x, &y) || fxi_identity_get(&m->early, x, &y))
        return y;
    y = map_array(m, x);
    if (!m->failed && !fxi_identity_put(&m->early, x, y)) {
        fx_fail(FX_STATUS_MEMORY, "fmap", "no memory for the list of visited objects");
        m->failed = true;
    }
    return y;
}

/* Maps a view of another array to the same view of the mapped array. The view is evaluated now if
 * that array is evaluated. */
static fx_array *map_view(mapping *m, fx_array *x, fx_array *of)
{
    fx_array *y = map_viewed(m, of);
    if (!y || y == of || m->failed)
        return y ? x : NULL;
    fx_array *view = fxi_view_again(x, of, y);
    if (!view) /* the sizes changed */
        return m->f(x, m->user);
    return fx_is_evaluated(y) && fx_eval(view) != FX_OK ? fx_error_array(fx_error_status()) : view;
}

static fx_array *map_array(mapping *m, fx_array *x)
{
    void *y;
    if (m->early.count && fxi_identity_get(&m->early, x, &y))
        return y;
    fx_array *of = tied_to(&m->ties, x);
    m->failed |= m->ties.failed;
    return m->failed ? x : of ? map_view(m, x, of) : m->f(x, m->user);
}

static fx_walk map_meet(const fx_spot *at, void *user)
{
    mapping *m = user;
    void *x = at->objects[0];
    if (!x || (!fxi_is_array(x) && opaque(x)))
        return FX_WALK_PASS;
    void *y = fxi_is_array(x) ? map_array(m, x) : m->object ? m->object(x, m->user) : NULL;
    if (!y && !fxi_is_array(x))
        return FX_WALK_ENTER;
    m->walk.value = y;
    return m->failed ? FX_WALK_STOP : FX_WALK_PASS;
}

/* Values of children; the `left` values from `next` on are not read yet. */
typedef struct values {
    void **next;
    int64_t left, kept;
    bool changed;
} values;

/* Keeps the values of children that are not NULL at the front, in the order in which
 * fxi_object_copy asks for them. */
static void keep_values(values *v, void **first, void *const *children, int64_t n)
{
    for (int64_t i = 0; i < n && v->left > 0; i++, v->left--) {
        void *y = *v->next++;
        v->changed |= y != children[i];
        if (children[i])
            first[v->kept++] = y;
    }
}

/* Does the map change a child of x? */
static bool child_changed(mapping *m, const fx_type *type, const void *x)
{
    values v = {.next = m->walk.children, .left = m->walk.nchildren};
    for (int i = 0; i < type->nfields; i++) {
        const fx_field *f = &type->fields[i];
        const fx_list *list = f->kind == FX_FIELD_LIST ? fxi_field_at(x, f) : NULL;
        if (list)
            keep_values(&v, m->walk.children, list->items, list->n);
        else if (f->kind == FX_FIELD_CHILD)
            keep_values(&v, m->walk.children, fxi_field_at(x, f), 1);
    }
    m->walk.nchildren = (int32_t)v.kept;
    return v.changed;
}

/* The value of the next child. */
static void *next_value(void *user, void *child)
{
    mapping *m = user;
    return m->walk.nchildren-- > 0 ? *m->walk.children++ : child;
}

/* Makes a new object if a child changed. */
static bool map_leave(const fx_spot *at, void *user)
{
    mapping *m = user;
    void *x = at->objects[0];
    const fx_type *type = fxi_type_of(x);
    if (!child_changed(m, type, x))
        return true;
    void *y = fxi_object_copy(type, x, next_value, m);
    if (y && type->rebuild)
        y = type->rebuild(y);
    m->walk.value = y;
    m->failed |= !y;
    return !m->failed;
}

void *fx_fmap_objects(fx_map_user_fn f, fx_object_fn object, void *user, void *x)
{
    if (!f || !x)
        return fx_error_array(
            fx_fail(FX_STATUS_ARGUMENT, "fmap", "the %s is NULL", f ? "object" : "function"));
    mapping m = {.f = f, .object = object, .user = user, .ties.root = x};
    m.walk.walker =
        (fx_tree_walker){.op = "fmap", .meet = map_meet, .leave = map_leave, .user = &m};
    const fx_status status = fxi_tree_walk_valued(&m.walk, x);
    fxi_identity_free(&m.early);
    fxi_identity_free(&m.ties.handles);
    return m.failed || status != FX_OK ? fx_error_object(fxi_type_of(x)) : m.walk.value;
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
    if (!model) {
        fx_fail(FX_STATUS_ARGUMENT, "snapshot", "the model is NULL");
        return fx_error_array(FX_STATUS_ARGUMENT);
    }
    return fx_fmap_with(snapshot, NULL, model);
}

/* ---- visit ----------------------------------------------------------------------------------- */

enum { LISTED = 16 }; /* deeper objects are not listed */
typedef struct visiting {
    const char *op; /* for messages */
    fx_visit_fn visit;
    fxi_visit_tied_fn tied; /* called instead of `visit`, with the array that x is a view of */
    void *user;
    char *path;
    int32_t capacity;
    /* Lengths of the paths of the objects around the latest position, by depth. `path` begins with
     * the path of the innermost one that is listed. */
    size_t lengths[LISTED];
    ties ties;
    fxi_identity_map trained; /* arrays that optimisers see on some path */
    bool trained_known, failed;
} visiting;

static bool is_real(const fx_array *x)
{
    return fxi_is_float(x->node ? x->node->dtype : (int)fx_eltype(x));
}

static bool no_memory(visiting *v)
{
    fx_fail(FX_STATUS_MEMORY, v->op, "no memory for the list of visited objects");
    v->failed = true;
    return false;
}

static fx_walk note_trained(const fx_spot *at, void *user)
{
    visiting *v = user;
    void *x = at->objects[0];
    if (x && fxi_is_array(x) && !fxi_identity_put(&v->trained, x, NULL))
        return no_memory(v) ? FX_WALK_PASS : FX_WALK_STOP;
    return fx_has_children(x) ? FX_WALK_ENTER : FX_WALK_PASS;
}

/* True if the array, met on a frozen path, is also on a path that optimisers see. Computed once,
 * when the walk meets its first frozen array. */
static bool trained_elsewhere(visiting *v, const fx_array *x)
{
    void *unused;
    const fx_tree_walker how = {.op = v->op, .meet = note_trained, .trained_only = true, .user = v};
    if (!v->trained_known)
        v->failed |= fx_tree_walk(&how, &v->ties.root) != FX_OK;
    v->trained_known = true;
    return fxi_identity_get(&v->trained, x, &unused);
}

/* Writes the path of a position. Most positions only add a part to the path of their parent.
 * Returns its length. */
static size_t write_path(visiting *v, const fx_spot *at)
{
    const size_t capacity = (size_t)v->capacity;
    if (at->depth > LISTED)
        return fx_spot_path(at, NULL, v->path, capacity);
    return fxi_spot_part(at, at->depth ? v->lengths[at->depth - 1] : 0, v->path, capacity);
}

static size_t path_of(visiting *v, const fx_spot *at)
{
    const size_t n = write_path(v, at);
    if (n >= (size_t)v->capacity) {
        if (fxi_grow(&v->path, &v->capacity, (int32_t)n + 1, 1))
            write_path(v, at);
        else
            no_memory(v);
    }
    return n;
}

/* Enters an object: the paths of its children begin with its own. */
static fx_walk enter(visiting *v, const fx_spot *at)
{
    if (!v->tied && at->depth < LISTED)
        v->lengths[at->depth] = path_of(v, at);
    return v->failed ? FX_WALK_STOP : FX_WALK_ENTER;
}

static void visit_array(visiting *v, const fx_spot *at, fx_array *x)
{
    if (!v->tied)
        path_of(v, at);
    fx_array *of = v->ties.root ? tied_to(&v->ties, x) : NULL;
    const bool trainable =
        !of && is_real(x) && (!at->frozen || (v->ties.root && trained_elsewhere(v, x)));
    v->failed |= v->ties.failed;
    if (v->failed)
        return;
    if (v->tied)
        v->tied(x, of, trainable, v->user);
    else
        v->visit(x, v->path, trainable, v->user);
}

static fx_walk visit_meet(const fx_spot *at, void *user)
{
    visiting *v = user;
    void *x = at->objects[0];
    /* An object that could not be made usually has an error array as a child. If it has no child
     * (an error tuple), it counts as an error array itself. */
    if (fxi_is_array(x))
        visit_array(v, at, x);
    else if (x && fx_is_error(x) && fx_count(x) == 0)
        visit_array(v, at, fx_error_array(fxi_object_status(x)));
    else if (fx_has_children(x))
        return enter(v, at);
    return v->failed ? FX_WALK_STOP : FX_WALK_PASS;
}

/* Visits x. Returns the status of a failure, which is recorded. */
static fx_status visit_with(visiting *v, void *x)
{
    if (!x || (!v->visit && !v->tied))
        return fx_fail(FX_STATUS_ARGUMENT, v->op, "the %s is NULL", x ? "function" : "object");
    const fx_tree_walker how = {.op = v->op, .meet = visit_meet, .user = v};
    const fx_status status = fx_tree_walk(&how, &x);
    fxi_free(v->path);
    fxi_identity_free(&v->trained);
    fxi_identity_free(&v->ties.handles);
    return v->failed ? FX_STATUS_MEMORY : status;
}

/* Visits every array, views included, as if no arrays were tied. */
static bool visit_raw(void *x, fx_visit_fn visit, void *user)
{
    visiting v = {.op = "visit", .visit = visit, .user = user};
    return visit_with(&v, x) == FX_OK;
}

static bool visit_all(const char *op, void *x, fx_visit_fn visit, void *user)
{
    visiting v = {.op = op, .visit = visit, .user = user, .ties.root = x};
    return visit_with(&v, x) == FX_OK;
}

void fx_visit(void *x, fx_visit_fn visit, void *user)
{
    visit_all("visit", x, visit, user);
}

fx_status fxi_visit_tied(void *x, fxi_visit_tied_fn visit, void *user)
{
    visiting v = {.op = "visit", .tied = visit, .user = user, .ties.root = x};
    return visit_with(&v, x);
}

/* ---- functions built on visits --------------------------------------------------------------- */

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
    const bool complete = visit_all("trainables", model, collect, &c) && !c.failed;
    void *tuple = complete ? fxi_tuple(c.n, c.items) : fx_error_object(&fxi_tuple_type);
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
    visit_all("parameter_count", model, count_elements, &n);
    return n;
}
