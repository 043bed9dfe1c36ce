/* tree_walk.c: the walk over objects that most other walks use: see fx_tree_walk in tree.h.
 * docs/design/0027 names the walks that do not use it.
 *
 * The walk visits one or more trees side by side. A row holds the corresponding object of each
 * tree. Objects may be shared: N objects, each holding the next one twice, have 2^N paths, so the
 * walk keeps the rows it met in a hash table and visits each row once. A walk over every path
 * (needed for files of arrays) still enters an object only once if nothing was taken below it.
 *
 * Recursion is as deep as the nesting of the objects, at most FXI_MAX_DEPTH. A row that is met
 * again while its children are walked is part of a cycle, which is an error.
 */
#include "object_types.h"
#include "tuples.h"
#include "walk.h"

#include <stdio.h>
#include <string.h>

enum { MOST_TREES = 8 };

/* ---- rows ------------------------------------------------------------------------------------ */

/* State of a row: OPEN while its children are walked, FRUITFUL if it was taken, or something below
 * it. */
enum { OPEN = 1, FRUITFUL = 2 };

enum { FIRST_ROWS = 64, FIRST_WIDTH = 4, FIRST_BUCKETS = 2 * FIRST_ROWS };
typedef struct row_set {
    int width;            /* objects in a row */
    bool valued;          /* a row has a value, after its objects; its width is 1 */
    void **rows;          /* all rows */
    unsigned char *flags; /* OPEN, FRUITFUL */
    int32_t n, capacity;
    int32_t most;     /* rows before `rows` or `buckets` must grow */
    int32_t *buckets; /* hash table of row + 1; 0: empty */
    size_t nbuckets;  /* a power of two, at least twice n */
    /* Small trees need no allocation. */
    void *first_rows[FIRST_ROWS * FIRST_WIDTH];
    unsigned char first_flags[FIRST_ROWS];
    int32_t first_buckets[FIRST_BUCKETS];
} row_set;

/* Functions with a parameter `valued` are inline, because the compiler then makes two copies of the
 * walk. That of walks with values, which have one tree, has no loops over trees. */
#define INLINE static inline __attribute__((always_inline))

INLINE int width_of(const row_set *s, bool valued)
{
    return valued ? 1 : s->width;
}

/* Pointers in a row. */
INLINE int stride_of(const row_set *s, bool valued)
{
    return width_of(s, valued) + valued;
}

static void row_set_init(row_set *s, int width, bool valued)
{
    s->width = width;
    s->valued = valued;
    s->n = 0;
    s->rows = s->first_rows;
    s->flags = s->first_flags;
    const int stride = stride_of(s, valued);
    s->capacity = stride <= FIRST_WIDTH ? FIRST_ROWS : FIRST_ROWS * FIRST_WIDTH / stride;
    s->most = s->capacity;
    s->buckets = s->first_buckets;
    s->nbuckets = FIRST_BUCKETS;
    memset(s->first_buckets, 0, sizeof s->first_buckets);
}

INLINE void **row_at(const row_set *s, int32_t number, bool valued)
{
    return s->rows + (size_t)number * (size_t)stride_of(s, valued);
}

INLINE bool same_row(const row_set *s, int32_t number, void *const *row, bool valued)
{
    void *const *known = row_at(s, number, valued);
    int k = 0;
    while (k < width_of(s, valued) && known[k] == row[k])
        k++;
    return k == width_of(s, valued);
}

INLINE size_t bucket_of(const row_set *s, void *const *row, bool valued)
{
    /* multiplicative hashing: Knuth, volume 3, 6.4 */
    uint64_t h = (uint64_t)(uintptr_t)row[0] * 0x9E3779B97F4A7C15u;
    for (int k = 1; k < width_of(s, valued); k++)
        h = (h ^ (uint64_t)(uintptr_t)row[k]) * 0x9E3779B97F4A7C15u;
    size_t i = (size_t)(h >> 32) & (s->nbuckets - 1);
    while (s->buckets[i] && !same_row(s, s->buckets[i] - 1, row, valued))
        i = (i + 1) & (s->nbuckets - 1);
    return i;
}

static bool more_buckets(row_set *s)
{
    const size_t n = 2 * s->nbuckets;
    int32_t *buckets = fxi_calloc(n, sizeof *buckets);
    if (!buckets)
        return false;
    if (s->buckets != s->first_buckets)
        fxi_free(s->buckets);
    s->buckets = buckets;
    s->nbuckets = n;
    for (int32_t i = 0; i < s->n; i++)
        s->buckets[bucket_of(s, row_at(s, i, s->valued), s->valued)] = i + 1;
    return true;
}

static void row_set_free(row_set *s)
{
    if (s->rows != s->first_rows) {
        fxi_free(s->rows);
        fxi_free(s->flags);
    }
    if (s->buckets != s->first_buckets)
        fxi_free(s->buckets);
}

static bool more_rows(row_set *s)
{
    const size_t bytes = (size_t)stride_of(s, s->valued) * sizeof *s->rows,
                 capacity = 2 * (size_t)s->capacity + 1;
    void **rows = capacity < INT32_MAX ? fxi_malloc(capacity * bytes) : NULL;
    unsigned char *flags = fxi_malloc(capacity);
    if (!rows || !flags) {
        fxi_free(rows);
        fxi_free(flags);
        return false;
    }
    memcpy(rows, s->rows, (size_t)s->n * bytes);
    memcpy(flags, s->flags, (size_t)s->n);
    if (s->rows != s->first_rows) {
        fxi_free(s->rows);
        fxi_free(s->flags);
    }
    s->rows = rows;
    s->flags = flags;
    s->capacity = (int32_t)capacity;
    return true;
}

/* Makes space for one more row. */
static __attribute__((noinline)) bool more(row_set *s)
{
    if ((s->n == s->capacity && !more_rows(s)) ||
        (2 * ((size_t)s->n + 1) > s->nbuckets && !more_buckets(s)))
        return false;
    const int32_t half = s->nbuckets / 2 < INT32_MAX ? (int32_t)(s->nbuckets / 2) : INT32_MAX;
    s->most = s->capacity < half ? s->capacity : half;
    return true;
}

/* The number of a row, −1 if out of memory; *out_new: the row was added. */
INLINE int32_t row_number(row_set *s, void *const *row, bool valued, bool *out_new)
{
    *out_new = false;
    if (__builtin_expect(s->n == s->most, 0) && !more(s))
        return -1;
    int32_t *bucket = &s->buckets[bucket_of(s, row, valued)];
    if (*bucket)
        return *bucket - 1;
    const int32_t n = s->n;
    void **added = row_at(s, n, valued);
    added[0] = row[0];
    for (int k = 1; k < width_of(s, valued); k++) /* memcpy takes longer for so few */
        added[k] = row[k];
    if (valued)
        added[1] = row[0];
    s->flags[n] = 0;
    *bucket = s->n = n + 1;
    *out_new = true;
    return n;
}

/* ---- the walk -------------------------------------------------------------------------------- */

typedef struct walking {
    const fx_tree_walker *how;
    fxi_valued_walk *valued; /* NULL: positions have no values */
    void **values; /* stack: values of the walked children of each object around the position */
    int32_t nvalues, value_capacity;
    void *first_values[FIRST_ROWS]; /* small trees need no allocation */
    row_set met;
    int64_t taken; /* number of spots that `meet` took */
    bool stopped;
    fx_status status;
} walking;

bool fx_has_children(const void *object)
{
    return object && !fxi_is_array(object) &&
           !(fxi_type_of(object)->flags & (FX_TYPE_FUNCTION | FX_TYPE_LEAF));
}

static void fail(walking *w, fx_status status)
{
    w->status = status;
    w->stopped = true;
}

static void fail_memory(walking *w)
{
    fail(w, fx_fail(FX_STATUS_MEMORY, w->how->op, "no memory for the list of visited objects"));
}

/* Must a spot be visited whose row was met before? */
static __attribute__((noinline)) bool meets_again(walking *w, const fx_spot *at, int32_t row)
{
    if (row < 0)
        fail_memory(w);
    else if (w->met.flags[row] & OPEN)
        fail(w, fx_fail(FX_STATUS_ARGUMENT, w->how->op, "a %s contains itself",
                        fxi_type_of(at->objects[0])->name));
    return !w->stopped && w->how->every_path && (w->met.flags[row] & FRUITFUL);
}

/* Continues with what `meet` decided about a spot: other than FX_WALK_PASS. */
static void decide_plain(walking *w, const fx_spot *at, int32_t row, fx_walk decision);
static void decide_valued(walking *w, const fx_spot *at, int32_t row, fx_walk decision);

/* Visits a spot, unless that has been done. If positions have values, w->valued->value is that of
 * the spot afterwards. Inline, because most spots are arrays, which take few instructions. */
INLINE void walk_spot(walking *w, const fx_spot *at, bool valued)
{
    bool is_new;
    const int32_t row = row_number(&w->met, at->objects, valued, &is_new);
    if (!is_new && !meets_again(w, at, row)) {
        if (valued && row >= 0)
            w->valued->value = row_at(&w->met, row, valued)[1];
        return;
    }
    if (valued)
        w->valued->value = at->objects[0];
    const fx_walk decision = w->how->meet(at, w->how->user);
    if (decision != FX_WALK_PASS)
        (valued ? decide_valued : decide_plain)(w, at, row, decision);
    if (valued)
        row_at(&w->met, row, valued)[1] = w->valued->value;
}

static __attribute__((noinline)) bool more_values(walking *w)
{
    void **values = w->values == w->first_values ? NULL : w->values;
    if (!fxi_grow(&values, &w->value_capacity, w->nvalues + 1, sizeof *values))
        return false;
    if (w->values == w->first_values)
        memcpy(values, w->first_values, sizeof w->first_values);
    w->values = values;
    return true;
}

/* Adds the value of a child, for `leave` of its parent. */
static inline void add_value(walking *w)
{
    if (w->nvalues == w->value_capacity && !more_values(w))
        fail_memory(w);
    else
        w->values[w->nvalues++] = w->valued->value;
}

/* The child of x that corresponds to item k of a field of the first tree's object; NULL if there is
 * none. x may have another type. */
static void *child_at(void *x, const fx_type *type, const fx_field *f, int64_t k, int64_t child)
{
    if (!x || fxi_is_array(x))
        return NULL;
    if (((const fx_object *)x)->type != type)
        return fxi_child_or_null(x, child);
    if (f->kind == FX_FIELD_CHILD)
        return fxi_field_child(x, f);
    const fx_list *list = fxi_field_at(x, f);
    return k < list->n ? list->items[k] : NULL;
}

/* Visits the n children in a field of the first tree's object; at->child is the index of the first
 * one. */
INLINE void walk_field(walking *w, const fx_type *type, const fx_field *f, fx_spot *at, void **row,
                       int64_t n, bool valued)
{
    const fx_list *list = f->kind == FX_FIELD_LIST ? fxi_field_at(at->parent->objects[0], f) : NULL;
    for (int64_t k = 0; k < n && !w->stopped; k++, at->child++) {
        if (!list)
            row[0] = fxi_field_child(at->parent->objects[0], f);
        else
            row[0] = k < list->n ? list->items[k] : NULL;
        for (int t = 1; t < width_of(&w->met, valued); t++)
            row[t] = child_at(at->parent->objects[t], type, f, k, at->child);
        walk_spot(w, at, valued);
        if (valued)
            add_value(w);
    }
}

INLINE void walk_children(walking *w, const fx_spot *parent, bool valued)
{
    void *const object = parent->objects[0];
    const fx_type *type = fxi_type_of(object);
    void *row[MOST_TREES];
    fx_spot at = {.objects = row, .parent = parent, .depth = parent->depth + 1};
    for (int i = 0; i < type->nfields && !w->stopped; i++) {
        const fx_field *f = &type->fields[i];
        const int64_t n = fxi_field_children(object, f);
        if (n == 0)
            continue;
        at.frozen = parent->frozen || fxi_field_frozen(type, f);
        if (at.frozen && w->how->trained_only)
            at.child += n;
        else if (at.depth > FXI_MAX_DEPTH + 1)
            fail(w, fx_fail(FX_STATUS_ARGUMENT, w->how->op, "nested more than %d levels deep",
                            FXI_MAX_DEPTH));
        else
            walk_field(w, type, f, &at, row, n, valued);
    }
}

/* The children of an object have been walked; their values begin at `first`. */
INLINE bool leave(walking *w, const fx_spot *at, int32_t first, bool valued)
{
    if (valued) {
        w->valued->value = at->objects[0];
        w->valued->children = w->values + first;
        w->valued->nchildren = w->nvalues - first;
        w->nvalues = first;
    }
    return !w->how->leave || w->how->leave(at, w->how->user);
}

INLINE void enter(walking *w, const fx_spot *at, int32_t row, bool valued)
{
    const int32_t first = w->nvalues;
    w->met.flags[row] |= OPEN;
    walk_children(w, at, valued);
    w->met.flags[row] &= (unsigned char)~OPEN;
    if (!w->stopped && !leave(w, at, first, valued))
        w->stopped = true;
}

INLINE void decide(walking *w, const fx_spot *at, int32_t row, fx_walk decision, bool valued)
{
    const int64_t before = w->taken;
    if (decision == FX_WALK_ENTER)
        enter(w, at, row, valued);
    else if (decision == FX_WALK_STOP)
        w->stopped = true;
    else
        w->taken++;
    if (w->taken > before)
        w->met.flags[row] |= FRUITFUL;
}

static __attribute__((noinline)) void decide_plain(walking *w, const fx_spot *at, int32_t row,
                                                   fx_walk decision)
{
    decide(w, at, row, decision, false);
}

static __attribute__((noinline)) void decide_valued(walking *w, const fx_spot *at, int32_t row,
                                                    fx_walk decision)
{
    decide(w, at, row, decision, true);
}

INLINE fx_status walk(const fx_tree_walker *how, void *const *trees, fxi_valued_walk *v,
                      bool valued)
{
    walking w; /* not zeroed as a whole: it is large */
    w.how = how;
    w.valued = v;
    w.values = w.first_values;
    w.nvalues = 0;
    w.value_capacity = FIRST_ROWS;
    w.taken = 0;
    w.stopped = false;
    w.status = FX_OK;
    if (how->trees > MOST_TREES)
        return fx_fail(FX_STATUS_ARGUMENT, how->op, "takes at most %d trees", MOST_TREES);
    row_set_init(&w.met, how->trees ? how->trees : 1, valued);
    if (valued)
        v->state = &w;
    const fx_spot top = {.objects = trees};
    walk_spot(&w, &top, valued);
    row_set_free(&w.met);
    if (w.values != w.first_values)
        fxi_free(w.values);
    return w.status;
}

fx_status fx_tree_walk(const fx_tree_walker *how, void *const *trees)
{
    return walk(how, trees, NULL, false);
}

fx_status fxi_tree_walk_valued(fxi_valued_walk *v, void *x)
{
    return walk(&v->walker, &x, v, true);
}

bool fxi_walk_value(const fxi_valued_walk *v, void *x, void **out)
{
    const row_set *met = &v->state->met;
    const int32_t row = met->buckets[bucket_of(met, &x, true)] - 1;
    *out = row < 0 ? NULL : row_at(met, row, true)[1];
    return row >= 0;
}

/* ---- paths ----------------------------------------------------------------------------------- */

typedef struct path_text {
    char *dst;
    size_t capacity, length;
} path_text;

static void add_char(path_text *t, char c)
{
    if (t->length + 1 < t->capacity)
        t->dst[t->length] = c;
    t->length++;
}

/* Parts are short, so that a loop takes less time than calls of strlen and memcpy. */
static inline void add_part(path_text *t, const char *part)
{
    if (*part && t->length)
        add_char(t, '.');
    size_t space = t->length + 1 < t->capacity ? t->capacity - t->length - 1 : 0, n = 0;
    for (; part[n]; n++)
        if (n < space)
            t->dst[t->length + n] = part[n];
    t->length += n;
}

/* Most lists have at most ten items. */
static void add_number(path_text *t, int64_t item)
{
    char number[24];
    if (item > 9) {
        snprintf(number, sizeof number, "%lld", (long long)item);
        add_part(t, number);
        return;
    }
    if (t->length)
        add_char(t, '.');
    add_char(t, (char)('0' + item));
}

static const char *own_name(const fx_type *type, const fx_field *field)
{
    (void)type;
    return field->name;
}

const char *fx_naming_children(const fx_type *type, const fx_field *field)
{
    (void)type;
    return field->kind == FX_FIELD_LIST ? "" : field->name;
}

/* Adds the part of a position below its parent. */
static inline __attribute__((always_inline)) void add_own_part(path_text *t, const fx_spot *at,
                                                               fx_naming_fn naming)
{
    const void *object = at->parent->objects[0];
    const fx_type *type = fxi_type_of(object);
    int64_t item = at->child;
    int i = 0;
    for (; i < type->nfields && item >= fxi_field_children(object, &type->fields[i]); i++)
        item -= fxi_field_children(object, &type->fields[i]);
    const fx_field *f = &type->fields[i];
    if (!(type->flags & FX_TYPE_TUPLE)) /* items of a tuple: no field name */
        add_part(t, naming(type, f));
    if (f->kind != FX_FIELD_LIST)
        return;
    const fx_list *list = fxi_field_at(object, f);
    const char *name = list->names ? list->names[item] : NULL;
    if (name && *name)
        add_part(t, name);
    else
        add_number(t, item);
}

static void add_parts(path_text *t, const fx_spot *at, fx_naming_fn naming)
{
    if (!at->parent)
        return;
    add_parts(t, at->parent, naming);
    add_own_part(t, at, naming);
}

static size_t end_path(const path_text *t)
{
    if (t->capacity)
        t->dst[t->length < t->capacity ? t->length : t->capacity - 1] = 0;
    return t->length;
}

size_t fxi_spot_part(const fx_spot *at, size_t before, char *dst, size_t capacity)
{
    path_text t = {.dst = dst, .capacity = capacity, .length = before};
    if (at->parent)
        add_own_part(&t, at, own_name);
    return end_path(&t);
}

size_t fx_spot_path(const fx_spot *at, fx_naming_fn naming, char *dst, size_t capacity)
{
    path_text t = {.dst = dst, .capacity = dst ? capacity : 0};
    add_parts(&t, at, naming ? naming : own_name);
    return end_path(&t);
}

/* ---- mirrors --------------------------------------------------------------------------------- */

typedef struct mirroring {
    fxi_valued_walk walk; /* the value of an object: its tuple, or the result of `leaf` */
    void *(*leaf)(void *x, void *user);
    void *user;
    bool failed;
} mirroring;

static bool record_result(mirroring *m, void *x, void *y)
{
    m->walk.value = y;
    m->failed |= y && fx_is_error(y) && !(x && fx_is_error(x));
    return !m->failed;
}

static fx_walk mirror_leaf(const fx_spot *at, void *user)
{
    mirroring *m = user;
    void *x = at->objects[0];
    if (fx_has_children(x) && !fx_is_error(x))
        return FX_WALK_ENTER;
    return record_result(m, x, m->leaf(x, m->user)) ? FX_WALK_PASS : FX_WALK_STOP;
}

static bool mirror_object(const fx_spot *at, void *user)
{
    mirroring *m = user;
    void *x = at->objects[0], *t = fx_functor(x);
    const int64_t n = fx_count(t);
    for (int64_t i = 0; i < n && i < m->walk.nchildren; i++)
        fxi_child_set(t, i, m->walk.children[i]);
    return record_result(m, x, t);
}

void *fxi_mirror(const char *op, void *x, void *(*leaf)(void *x, void *user), void *user)
{
    mirroring m = {.leaf = leaf, .user = user};
    m.walk.walker =
        (fx_tree_walker){.op = op, .meet = mirror_leaf, .leave = mirror_object, .user = &m};
    const fx_status status = fxi_tree_walk_valued(&m.walk, x);
    return status == FX_OK && !m.failed
               ? m.walk.value
               : fx_error_array(status == FX_OK ? fx_error_status() : status);
}
