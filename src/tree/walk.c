/* walk.c: the one walk over objects, as a map (new object) and as a visit (every array once).
 *
 * Identity is what matters: both remember every array and object by address, so what is reached
 * twice is handled once, and a map keeps it shared. A map works bottom-up and makes a new object
 * only when some child became another one: the identity map allocates nothing, and an object whose
 * arrays all stay is the original itself, as Functors.fmap does for leaves. Fields that are no
 * children are copied by their bytes. Functions and leaf types stay as they are.
 *
 * Recursion is as deep as the nesting of the model, bounded by FXI_MAX_DEPTH. A walk that runs out
 * of memory records it and gives the error object of what it was asked to map.
 */
#include "identity_map.h"
#include "object_types.h"
#include "text.h"
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

/* ---- map ------------------------------------------------------------------------------------- */

typedef struct mapping {
    fx_map_user_fn f;
    fx_object_fn object; /* NULL: the walk enters every object */
    void *user;
    fxi_identity_map seen;
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
        y = array ? m->f(x, m->user) : map_object(m, x, depth);
    became(m, x, y);
    return y != x;
}

void *fx_fmap_objects(fx_map_user_fn f, fx_object_fn object, void *user, void *x)
{
    if (!f || !x)
        return fx_error_array(
            fx_fail(FX_STATUS_ARGUMENT, "fmap", "there is no %s", f ? "object" : "function"));
    mapping m = {.f = f, .object = object, .user = user};
    map_child(&m, x, 0);
    void *y = mapped(&m, x);
    fxi_identity_free(&m.seen);
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
    void *user;
    fx_text path;
    fxi_identity_map seen;
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
        v->visit(x, v->path.data ? v->path.data : "", is_real(x) && !frozen, v->user);
        return;
    }
    const fx_type *type = fx_type_of(x);
    for (int i = 0; i < type->nfields; i++)
        visit_field(v, x, &type->fields[i], frozen, depth + 1);
}

static bool visit_all(void *x, fx_visit_fn visit, void *user)
{
    if (!x || !visit) {
        fx_fail(FX_STATUS_ARGUMENT, "visit", "there is no %s", visit ? "object" : "function");
        return false;
    }
    visiting v = {.visit = visit, .user = user};
    visit_any(&v, x, false, 0);
    fxi_text_free(&v.path);
    fxi_identity_free(&v.seen);
    return !v.failed;
}

void fx_visit(void *x, fx_visit_fn visit, void *user)
{
    visit_all(x, visit, user);
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
