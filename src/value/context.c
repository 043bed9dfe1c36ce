/* context.c: the context of a thread: its scopes, and the lifetime of objects.
 *
 * A new object is in the list of the current scope, which holds one reference to it. Closing a
 * scope releases that reference; fx_keep moves an object to the list of the parent scope. An object
 * that outlives its scope, because a tuple, a struct or fx_retain holds it, is in no list until
 * fx_keep puts it into one. Scopes close by depth: if longjmp left the block of a scope, the next
 * outer scope that closes also closes this one.
 *
 * Promises (layer state, fx_set) are due when a training step closes, or a scope that is not in
 * training mode. All other scopes, and those of the library, hand their promises to the parent.
 * When a training step (or a test outside a training step) closes, the history of objects that
 * survive is cut: an evaluated value that outlives its training step is a constant.
 */
#include "context.h"
#include "counters.h"
#include "error.h"
#include "handle.h"
#include "node_parts.h"
#include "object.h"
#include "tape.h"
#include "system_memory.h"
#include "thread.h"

#include <stdlib.h>
#include <string.h>

_Thread_local fxi_context *fxi_own_context;
static fxi_thread_value exit_key;
static fxi_once once = FXI_ONCE_INIT;
static uint32_t last_id;

/* ---- threads that are alive ------------------------------------------------------------------ */

static fxi_mutex threads_lock = FXI_MUTEX_INIT;
static fxi_context *threads;

void fxi_threads_lock(void)
{
    fxi_mutex_lock(&threads_lock);
}

void fxi_threads_unlock(void)
{
    fxi_mutex_unlock(&threads_lock);
}

bool fxi_send_home(fxi_node *n)
{
    fxi_threads_lock();
    fxi_context *c = threads;
    while (c && c->id != n->owner)
        c = c->next_thread;
    if (!c)
        return false;
    n->next = c->returned;
    __atomic_store_n(&c->returned, n, __ATOMIC_RELAXED);
    fxi_threads_unlock();
    return true;
}

static void thread_begins(fxi_context *c)
{
    fxi_threads_lock();
    c->next_thread = threads;
    threads = c;
    fxi_threads_unlock();
}

/* Removes an ended thread from the list. Its pending nodes have no owner from now on; they are used
 * only under the lock. */
static void forget(fxi_context *c)
{
    fxi_context **at = &threads;
    while (*at && *at != c)
        at = &(*at)->next_thread;
    if (*at)
        *at = c->next_thread;
    fxi_sinks_wake(c, 0);
    for (fxi_node *n = c->sinks.next, *next; n != &c->sinks; n = next) {
        next = n->next;
        n->prev = n->next = NULL;
    }
    c->sinks.next = c->sinks.prev = &c->sinks;
}

static void thread_ends(fxi_context *c)
{
    fxi_threads_lock();
    while (c->returned) {
        fxi_threads_unlock();
        fxi_take_back(c);
        fxi_threads_lock();
    }
    forget(c);
    fxi_threads_unlock();
}

/* ---- contexts without memory ----------------------------------------------------------------- */

/* A thread needs a context even to report that an allocation failed. If its context cannot be
 * allocated, it uses one of these. They are not thread-local, because a program can load the
 * library with dlopen only if all thread-local variables together are small (check_exports.py). */
enum { RESERVES = 256 };
static fxi_context reserves[RESERVES];
static bool taken[RESERVES];

/* NULL: all are in use. */
static fxi_context *take_reserve(void)
{
    for (int i = 0; i < RESERVES; i++)
        if (!__atomic_exchange_n(&taken[i], true, __ATOMIC_ACQUIRE)) {
            memset(&reserves[i], 0, sizeof reserves[i]);
            reserves[i].is_reserve = true;
            return &reserves[i];
        }
    return NULL;
}

static void free_context(fxi_context *c)
{
    if (c->is_reserve)
        __atomic_store_n(&taken[c - reserves], false, __ATOMIC_RELEASE);
    else
        fxi_free(c);
}

static void context_close(void *p)
{
    fxi_context *c = p;
    fxi_scope_close(-1);
    while (c->npromises > 0)
        fxi_promise_drop(c, c->npromises - 1);
    fxi_free(c->promises);
    c->promises = NULL;
    c->promise_capacity = 0;
    if (c->collective)
        fxi_node_release(c->collective);
    c->collective = NULL;
    fxi_tapes_free(c);
    fxi_the_evaluator.thread_ends(c);
    fxi_count_nodes_here();
    thread_ends(c);
    fxi_own_context = NULL;
    free_context(c);
}

static void make_key(void)
{
    fxi_thread_value_init(&exit_key, context_close);
}

/* The destructors of thread-specific keys do not run for the main thread at exit. */
__attribute__((destructor)) static void close_at_exit(void)
{
    if (fxi_own_context)
        context_close(fxi_own_context);
    fxi_handle_report();
}

/* How much may be pending before a thread evaluates by itself. If a training step is evaluated in
 * two parts, much is computed twice, so the bounds follow from the memory of the machine. A pending
 * node with its part of the plan takes about NODE bytes. A sixteenth of the memory may be used for
 * that, for at least LEAST and at most MOST nodes. Pending nodes also keep alive the arrays that
 * they are computed from; these may use a quarter of the memory. */
static void set_pending_bounds(fxi_context *c)
{
    enum { NODE = 2048, LEAST = 20000, MOST = 500000 };
    const int64_t total = fxi_system_memory_total(), nodes = total / 16 / NODE;
    c->most_created = nodes < LEAST ? LEAST : nodes > MOST ? MOST : nodes;
    c->most_brought = total > 0 ? total / 4 : INT64_MAX;
}

fxi_context *fxi_context_new(void)
{
    fxi_context *c;
    while (!(c = fxi_calloc(1, sizeof *c)) && !(c = take_reserve()))
        fxi_thread_yield(); /* until a thread ends or frees memory */
    fxi_own_context = c;
    fxi_call_once(&once, make_key);
    fxi_thread_value_set(exit_key, c);
    c->id = __atomic_add_fetch(&last_id, 1, __ATOMIC_RELAXED);
    c->sinks.next = c->sinks.prev = &c->sinks;
    c->resting.next = c->resting.prev = &c->resting;
    c->calm = 1;
    c->scope = &c->scopes[0];
    set_pending_bounds(c);
    thread_begins(c);
    return c;
}

/* ---- scopes ---------------------------------------------------------------------------------- */

static bool virtual_training(const fxi_context *c)
{
    const int top = c->virtual_scopes < 64 ? c->virtual_scopes : 64;
    return c->virtual_training >> (top - 1) & 1;
}

/* Opens a scope that has no memory: only its mode is remembered. */
static void open_virtual(fxi_context *c, int mode)
{
    const bool training = mode == FXI_SCOPE_STEP || (mode != FXI_SCOPE_TEST && fx_training());
    const int i = c->virtual_scopes++;
    if (i < 64)
        c->virtual_training = (c->virtual_training & ~(1ull << i)) | (uint64_t)training << i;
}

int fxi_scope_open(int mode, const char *file, int line)
{
    const bool inside = !file || mode == FXI_SCOPE_RECORD_INSIDE;
    const bool recorded = mode == FXI_SCOPE_RECORD || mode == FXI_SCOPE_RECORD_INSIDE;
    mode = recorded ? FXI_SCOPE_STEP : mode;
    fxi_context *c = fxi_here();
    const int depth = c->depth++;
    fxi_scope *parent = c->scope;
    fxi_scope *s = parent->depth + 1 < FXI_INLINE_SCOPES ? &c->scopes[parent->depth + 1]
                                                         : fxi_malloc(sizeof *s);
    /* Scopes without memory are only counted, so a scope inside one is only counted too. */
    if (!s || c->virtual_scopes) {
        if (s && parent->depth + 1 >= FXI_INLINE_SCOPES)
            fxi_free(s);
        open_virtual(c, mode);
        return depth;
    }
    s->first = NULL;
    s->below = parent->first;
    s->parent = parent;
    s->depth = parent->depth + 1;
    s->mode = mode;
    s->training = mode == FXI_SCOPE_STEP || (parent->training && mode != FXI_SCOPE_TEST);
    s->seq = c->seq;
    s->inside = inside;
    s->file = inside ? parent->file : file;
    s->line = inside ? parent->line : line;
    s->objects = s->most = s->grown = s->weight = s->bytes = 0;
    c->scope = s;
    if (!inside)
        fxi_error_where(file, line);
    if (recorded)
        fxi_tape_open(c, s, file, line);
    return depth;
}

static void unlink_object(fx_object *o)
{
    fxi_scope *s = o->fxi_scope;
    if (o->fxi_prev)
        o->fxi_prev->fxi_next = o->fxi_next;
    else
        s->first = o->fxi_next;
    if (o->fxi_next)
        o->fxi_next->fxi_prev = o->fxi_prev;
    o->fxi_prev = o->fxi_next = NULL;
    __atomic_store_n(&o->fxi_scope, NULL, __ATOMIC_RELEASE); /* after the links: see fxi_keep */
    s->objects--;
}

/* Removes the first object of a scope from its list. */
static inline void unlink_first(fxi_scope *s, fx_object *o)
{
    s->first = o->fxi_next;
    if (s->first)
        s->first->fxi_prev = NULL;
    o->fxi_next = NULL;
    __atomic_store_n(&o->fxi_scope, NULL, __ATOMIC_RELEASE);
    s->objects--;
}

static void link_object(fxi_scope *s, fx_object *o)
{
    __atomic_store_n(&o->fxi_scope, s, __ATOMIC_RELAXED);
    o->fxi_prev = NULL;
    o->fxi_next = s->first;
    if (s->first)
        s->first->fxi_prev = o;
    s->first = o;
    s->objects++;
}

/* Cuts the history of an evaluated array made since `seq`. */
static void cut_array(const fxi_context *c, fx_object *o, uint64_t seq)
{
    if (o->type != &fxi_array_type)
        return;
    fxi_node *n = ((fx_array *)o)->node;
    if (n && n->owner == c->id && n->seq >= seq && n->data) {
        n->history_cut |= n->nin > 0 && !n->tied;
        fxi_node_cut(n);
    }
}

/* Releases a reference. Returns whether it was the last one. */
static bool gives_last(fx_object *o)
{
    return __atomic_load_n(&o->refs, __ATOMIC_ACQUIRE) <= 1 ||
           __atomic_sub_fetch(&o->refs, 1, __ATOMIC_ACQ_REL) == 0;
}

static inline void free_object(fx_object *o);

/* Frees the objects of a scope. `cuts`: the history of those that survive is cut. */
static inline void free_objects(fxi_context *c, fxi_scope *s, bool cuts)
{
    const fxi_scope *outer = fxi_handle_closing(s);
    while (s->first) {
        fx_object *o = s->first;
        unlink_first(s, o);
        if (cuts && __atomic_load_n(&o->refs, __ATOMIC_ACQUIRE) > 1)
            cut_array(c, o, s->seq);
        if (gives_last(o))
            free_object(o);
    }
    fxi_handle_closing(outer);
    fxi_take_back(c);
}

void fxi_scope_empty(int depth)
{
    fxi_context *c = fxi_here();
    if (c->depth > depth + 1)
        fxi_scope_close(depth + 1);
    if (!c->virtual_scopes) /* otherwise its objects belong to another scope */
        free_objects(c, c->scope, false);
}

static void scope_pop(fxi_context *c)
{
    fxi_scope *s = c->scope;
    /* A test inside a training step cuts nothing: objects that survive it may be part of the loss.
     */
    const bool cuts =
        s->mode == FXI_SCOPE_STEP || (s->mode == FXI_SCOPE_TEST && !s->parent->training);
    const bool quiet = s->mode == FXI_SCOPE_QUIET;
    if (cuts || s->depth == 0 || (!s->training && !quiet))
        fxi_the_evaluator.promises_due(c, s->depth);
    else
        for (int i = 0; i < c->npromises; i++)
            if (c->promises[i].depth >= s->depth)
                c->promises[i].depth = s->depth - 1;
    free_objects(c, s, cuts);
    if (s->depth == 0)
        return;
    if (cuts) /* objects that fx_keep moved out are at the head of the parent's list */
        for (fx_object *o = s->parent->first; o && o != s->below; o = o->fxi_next)
            cut_array(c, o, s->seq);
    if (c->tape && c->tape->scope == s)
        fxi_tape_close(c);
    c->scope = s->parent;
    if (c->scope->file != s->file || c->scope->line != s->line)
        fxi_error_where(c->scope->file, c->scope->line);
    if (s->depth >= FXI_INLINE_SCOPES)
        fxi_free(s);
}

void fxi_scope_close(int depth)
{
    fxi_context *c = fxi_here();
    while (c->depth > depth && (c->depth > 0 || depth < 0)) {
        if (c->virtual_scopes > 0) {
            c->virtual_scopes--;
            c->depth--;
            continue;
        }
        scope_pop(c);
        if (c->depth == 0)
            break;
        c->depth--;
    }
}

bool fx_training(void)
{
    const fxi_context *c = fxi_here();
    return c->virtual_scopes ? virtual_training(c) : c->scope->training;
}

/* ---- loops without a scope ------------------------------------------------------------------- */

enum { MANY_EVALUATIONS = 1000, SOME_EVALUATIONS = 250 };
static const int64_t MANY_BYTES = (int64_t)1 << 30;

static bool warned_of_growth; /* atomic */

static void warn_of_growth(const fxi_scope *s)
{
    char scope[300] = "outside of every scope";
    if (__atomic_exchange_n(&warned_of_growth, true, __ATOMIC_RELAXED))
        return;
    if (s->file)
        snprintf(scope, sizeof scope, "in the scope opened at %s:%d", s->file, s->line);
    fx_message(1,
               "a loop%s%s seems to open no scope: each of %lld evaluations %s left objects alive. "
               "There are now %lld, and memory grows. Begin the body of the loop with "
               "FX_STEP; (training), FX_TEST; or FX_SCOPE;",
               fxi_call_site ? " near " : "", fxi_call_site ? fxi_call_site : "",
               (long long)s->grown, scope, (long long)s->objects);
}

void fxi_scope_watch(fxi_context *c, int weight)
{
    fxi_scope *s = c->scope;
    while (s->mode == FXI_SCOPE_QUIET && s->parent)
        s = s->parent;
    if (s->objects <= s->most)
        return;
    s->most = s->objects;
    const int64_t bytes = __atomic_load_n(&fxi_counters.live_bytes, __ATOMIC_RELAXED);
    if (s->grown == 0)
        s->bytes = bytes;
    s->grown++;
    s->weight += weight;
    if (s->weight >= MANY_EVALUATIONS ||
        (s->weight >= SOME_EVALUATIONS && bytes - s->bytes >= MANY_BYTES))
        warn_of_growth(s);
}

/* ---- objects --------------------------------------------------------------------------------- */

static __attribute__((noinline)) void *no_object(const fx_type *type)
{
    fx_fail(FX_STATUS_MEMORY, type->name, "no memory for an object of %zu bytes", type->size);
    return NULL;
}

/* Fills in the head of a new object. */
static inline void begin(fxi_context *c, fx_object *o, const fx_type *type)
{
    o->type = type;
    o->refs = 1;
    fxi_handle_made(o, c->scope);
    link_object(c->scope, o);
}

void *fxi_object_alloc(const fx_type *type)
{
    fxi_context *c = fxi_here();
    fx_object *o = fxi_handle_alloc(type->size);
    if (!o)
        return no_object(type);
    memset(o, 0, type->size);
    begin(c, o, type);
    return o;
}

void *fxi_object_like(const fx_type *type, const void *init)
{
    fxi_context *c = fxi_here();
    fx_object *o = fxi_handle_alloc(type->size);
    if (!o)
        return no_object(type);
    memcpy(o + 1, (const fx_object *)init + 1, type->size - sizeof *o);
    begin(c, o, type);
    return o;
}

/* Like fxi_object_alloc, for an array, whose node the caller sets. Inline in fxi_array_take, which
 * every operation calls. */
static inline __attribute__((always_inline)) fx_array *new_array(fxi_context *c)
{
    fxi_spares *s = fxi_own_spares;
    if (__builtin_expect(!fxi_spares_have_late(s), 0))
        return fxi_object_alloc(&fxi_array_type);
    fx_array *x = fxi_spares_take_late(s);
    x->status = FX_OK;
    x->base.type = &fxi_array_type;
    x->base.refs = 1;
    link_object(c->scope, &x->base);
    return x;
}

fx_array *fxi_array_take(fxi_node *n)
{
    if (!n)
        return fx_error_array(fxi_error_latest());
    fxi_context *c = fxi_here();
    fx_array *x = new_array(c);
    if (!x) {
        fxi_node_release(n);
        return fx_error_array(FX_STATUS_MEMORY);
    }
    fxi_array_hold(c, x, n);
    return x;
}

fx_array *fxi_array_of(fxi_node *n)
{
    fxi_node_retain(n);
    return fxi_array_take(n);
}

static bool immortal(const fx_object *o)
{
    return __atomic_load_n(&o->refs, __ATOMIC_RELAXED) >= FXI_IMMORTAL;
}

/* The scope of objects that were handed out: it has no list and is never opened or closed. */
static fxi_scope handed_out;

void fxi_hand_out(void *object)
{
    fx_object *o = object;
    if (o && !immortal(o) && !o->fxi_scope)
        o->fxi_scope = &handed_out;
}

/* Several threads may keep an object that no scope owns, e.g. an array of a model that they share.
 * One of them wins the exchange. To the others it is an object of another scope. */
void *fxi_keep(void *object)
{
    fxi_context *c = fxi_here();
    fx_object *o = object;
    if (!o || immortal(o))
        return object;
    const bool outward = c->scope->parent && !c->virtual_scopes;
    fxi_scope *to = outward ? c->scope->parent : c->scope;
    fxi_scope *owner = __atomic_load_n(&o->fxi_scope, __ATOMIC_RELAXED);
    if (!owner || owner == &handed_out) {
        if (__atomic_compare_exchange_n(&o->fxi_scope, &owner, to, false, __ATOMIC_ACQUIRE,
                                        __ATOMIC_RELAXED))
            link_object(to, fxi_retain(o));
    } else if (owner == c->scope && outward) {
        unlink_object(o);
        link_object(to, o);
    }
    return object;
}

void *fxi_retain(void *object)
{
    fx_object *o = object;
    if (o && !immortal(o))
        __atomic_fetch_add(&o->refs, 1, __ATOMIC_RELAXED);
    else if (o && fxi_handle_freed(o))
        fxi_handle_misused("retain", o);
    return object;
}

void *fxi_scope_take(fxi_scope *from, void *object)
{
    fx_object *o = object;
    if (!from || __atomic_load_n(&o->fxi_scope, __ATOMIC_RELAXED) != from)
        return fxi_retain(o);
    unlink_object(o);
    return o;
}

void fxi_scope_give(fxi_scope *to, void *object)
{
    fx_object *o = object;
    /* Another thread may put an object with more references into a scope of its own. */
    if (to && __atomic_load_n(&o->refs, __ATOMIC_ACQUIRE) == 1 && !o->fxi_scope)
        link_object(to, o);
    else
        fx_release(o);
}

static void release_list(fx_list *list)
{
    for (int64_t i = 0; i < list->n; i++) {
        fx_release(list->items ? list->items[i] : NULL);
        if (list->names)
            fxi_free(list->names[i]);
    }
    fxi_free(list->items);
    fxi_free(list->names);
}

static void release_fields(fx_object *o)
{
    for (int i = 0; i < o->type->nfields; i++) {
        const fx_field *f = &o->type->fields[i];
        void *at = (char *)o + f->offset;
        if (f->kind == FX_FIELD_CHILD || f->kind == FX_FIELD_SHARED)
            fx_release(*(void **)at);
        else if (f->kind == FX_FIELD_LIST)
            release_list(at);
    }
}

static inline __attribute__((always_inline)) void free_array(fx_array *x)
{
    fxi_node *n = x->node;
    if (!n)
        return;
    if (n->data) {
        __atomic_fetch_sub(&n->handles, 1, __ATOMIC_ACQ_REL);
    } else if (--n->handles == 0 && n->next) {
        n->prev->next = n->next; /* a result without a handle is not a sink */
        n->next->prev = n->prev;
        n->next = n->prev = NULL;
    }
    /* As drop_ref of node.c, without a call: most arrays are not the last reference. */
    if (!n->data && n->refs > 1)
        n->refs--;
    else
        fxi_node_release(n);
}

/* Frees an object that may hold others. Those are freed in the same loop, because a list of objects
 * may be longer than the stack is deep. An object counts as freed before its fields are released,
 * since a field may be the object itself. */
static __attribute__((noinline)) void free_holder(fx_object *o)
{
    static _Thread_local struct {
        fx_object *first; /* linked by fxi_next */
        bool busy;
    } dying;
    o->refs = FXI_FREED;
    o->fxi_next = dying.first;
    dying.first = o;
    if (dying.busy)
        return;
    dying.busy = true;
    while ((o = dying.first) != NULL) {
        dying.first = o->fxi_next;
        if (o->type->finish)
            o->type->finish(o);
        release_fields(o);
        fxi_handle_bury(o);
    }
    dying.busy = false;
}

static __attribute__((noinline)) void free_any(fx_object *o)
{
    fxi_handle_ends(o);
    if (o->type != &fxi_array_type) {
        free_holder(o);
        return;
    }
    free_array((fx_array *)o);
    fxi_handle_bury(o);
}

/* Frees an object whose last reference was released. */
static inline void free_object(fx_object *o)
{
    fxi_spares *s = fxi_own_spares;
    if (o->type != &fxi_array_type || __builtin_expect(!fxi_spares_want_late(s), 0)) {
        free_any(o);
        return;
    }
    fx_array *x = (fx_array *)o;
    free_array(x);
    fxi_handle_array_ends(x);
    fxi_spares_add_late(s, x);
}

void fx_release(void *object)
{
    fx_object *o = object;
    if (!o)
        return;
    if (immortal(o)) {
        if (fxi_handle_freed(o))
            fxi_handle_misused("release", o);
        return;
    }
    if (!gives_last(o))
        return;
    if (o->fxi_scope && o->fxi_scope != &handed_out)
        unlink_object(o); /* the released reference was the scope's */
    free_object(o);
}

/* ---- promises -------------------------------------------------------------------------------- */

void fxi_promise_drop(fxi_context *c, int i)
{
    fxi_promise p = c->promises[i];
    memmove(&c->promises[i], &c->promises[i + 1], (size_t)(c->npromises - i - 1) * sizeof p);
    c->npromises--;
    fx_release(p.target);
    fx_release(p.value);
}

fx_status fxi_promise_add(fxi_context *c, fxi_promise_kind kind, fx_array *target, fx_array *value)
{
    int32_t at = 0;
    while (target && at < c->npromises && c->promises[at].target != target)
        at++;
    const bool replaces = target && at < c->npromises;
    if (!replaces && c->npromises == c->promise_capacity) {
        const int capacity = c->promise_capacity ? 2 * c->promise_capacity : 16;
        fxi_promise *grown = fxi_realloc(c->promises, (size_t)capacity * sizeof *grown);
        if (!grown)
            return fx_fail(FX_STATUS_MEMORY, "stage",
                           "no memory for the list of values to compute");
        c->promises = grown;
        c->promise_capacity = capacity;
    }
    /* Retained before the earlier promise is dropped, which may hold the only references. */
    const fxi_promise p = {.kind = kind,
                           .depth = c->scope->depth,
                           .target = fxi_retain(target),
                           .value = fxi_retain(value)};
    if (replaces)
        fxi_promise_drop(c, at);
    c->promises[c->npromises++] = p;
    return FX_OK;
}

void fxi_set(void *target, void *object)
{
    void **at = target;
    void *old = *at;
    if (old && !fxi_handle_is_object(old)) {
        fx_fail(
            FX_STATUS_ARGUMENT, "set",
            "the variable holds %p, which is not an object: set it to NULL before the first fx_set",
            old);
        old = NULL;
    }
    *at = fxi_retain(object);
    fx_release(old);
    if (fx_is_array(object) && !fx_is_error(object))
        fxi_promise_add(fxi_here(), FXI_PROMISE_SET, NULL, object);
}

fx_array *fx_want(fx_array *x)
{
    if (!fx_is_error(x) && !x->node->data)
        fxi_promise_add(fxi_here(), FXI_PROMISE_WANT, NULL, x);
    return x;
}

fx_status fx_stage(fx_array *state, fx_array *value)
{
    if (fxi_here()->unstaged)
        return FX_OK;
    fx_status status = fxi_operand_status("stage", state);
    if (status == FX_OK)
        status = fxi_operand_status("stage", value);
    if (status != FX_OK)
        return status;
    return fxi_promise_add(fxi_here(), FXI_PROMISE_STAGE, state, value);
}

fx_array *fx_staged(fx_array *state)
{
    const fx_status status = fxi_operand_status("staged", state);
    if (status != FX_OK)
        return fx_error_array(status);
    const fxi_context *c = fxi_here();
    for (int i = 0; i < c->npromises; i++)
        if (c->promises[i].kind == FXI_PROMISE_STAGE && c->promises[i].target == state)
            return c->promises[i].value;
    return state;
}
