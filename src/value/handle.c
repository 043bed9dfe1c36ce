/* handle.c: tombstones of freed objects, and the records of objects with FX_HANDLES=1. See
 * handle.h.
 *
 * A record is in front of its object, in the same block of memory. So it is found from a handle
 * without a search and needs no allocation of its own. Its texts are static: locations come from
 * macros (base.h), and scopes keep the name of the file that opened them. Records of living objects
 * are in one list under a lock. Objects that are still in it when the process ends were retained
 * and never released.
 */
#include "handle.h"
#include "context.h"
#include "error.h"
#include "system_memory.h"
#include "thread.h"

#include <stdlib.h>
#include <string.h>

const fx_type fxi_freed_type = {.fxi_size = sizeof(fx_type),
                                .name = "freed object",
                                .size = sizeof(fx_object),
                                .flags = FX_TYPE_LEAF};

typedef struct record {
    const char *made;      /* location of the latest macro call before it was made; NULL: unknown */
    const char *made_file; /* file of the scope it was made in; NULL: none */
    const char *type;      /* name of its type */
    const char *why;       /* the reason why it was freed, if no scope freed it */
    const char *freed;     /* location of the latest macro call before it was freed */
    const char *file;      /* of the scope that freed it */
    int made_line, line;   /* lines of made_file and file */
    int16_t mode;          /* mode of the scope that freed it; −1: no scope */
    uint8_t op, dtype, ndim; /* of an array, when it was freed */
    bool root, is_array;     /* freed by a thread's root scope; an array that had a node */
    int64_t shape[FX_MAX_DIMS];
    struct record *prev, *next; /* in the list of living objects */
} record;
_Static_assert(sizeof(record) % 16 == 0, "objects stay aligned after their records");

/* Bytes. Larger objects are freed at once, so that tombstones do not hold much memory. */
enum { LARGE = 4096 };

bool fxi_handles_recorded;
static bool reports;
static fxi_mutex lock = FXI_MUTEX_INIT;
static record living = {.prev = &living, .next = &living};
static _Thread_local const fxi_scope *closing;
static _Thread_local const char *reason;

__attribute__((constructor)) static void read_environment(void)
{
    const char *text = getenv("FX_HANDLES");
#ifdef CFLUX_DEBUG_CHECKS
    fxi_handles_recorded = !text || strcmp(text, "0") != 0;
#else
    fxi_handles_recorded = text && *text && strcmp(text, "0") != 0;
#endif
    reports = fxi_handles_recorded && text;
    if (fxi_handles_recorded)
        fxi_memory_no_spares();
}

static record *record_of(const void *object)
{
    return (record *)(uintptr_t)object - 1;
}

/* ---- life ------------------------------------------------------------------------------------ */

void *fxi_handle_alloc_recorded(size_t bytes)
{
    record *r = bytes <= SIZE_MAX - sizeof *r ? fxi_malloc(sizeof *r + bytes) : NULL;
    return r ? r + 1 : NULL;
}

void fxi_handle_note_made(fx_object *o, const fxi_scope *scope)
{
    record *r = record_of(o);
    *r = (record){.made = fxi_call_site,
                  .made_file = scope->file,
                  .made_line = scope->line,
                  .type = o->type->name,
                  .mode = -1};
    fxi_mutex_lock(&lock);
    r->prev = living.prev;
    r->next = &living;
    r->prev->next = living.prev = r;
    fxi_mutex_unlock(&lock);
}

static void describe_array(record *r, const fx_array *x)
{
    if (!x->node)
        return;
    r->is_array = true;
    r->op = x->node->op;
    r->dtype = x->node->dtype;
    r->ndim = x->node->ndim;
    memcpy(r->shape, x->node->shape, r->ndim * sizeof *r->shape);
}

void fxi_handle_note_end(fx_object *o)
{
    record *r = record_of(o);
    if (o->type == &fxi_array_type)
        describe_array(r, (const fx_array *)o);
    r->freed = fxi_call_site;
    r->why = reason;
    if (closing && !reason) {
        r->mode = (int16_t)(closing->inside ? FXI_SCOPE_QUIET : closing->mode);
        r->file = closing->file;
        r->line = closing->line;
        r->root = closing->depth == 0;
    }
    fxi_mutex_lock(&lock);
    r->prev->next = r->next;
    r->next->prev = r->prev;
    fxi_mutex_unlock(&lock);
    r->prev = r->next = r;
}

void fxi_handle_bury(fx_object *o)
{
    const size_t bytes = o->type->size;
    size_t head = sizeof *o;
    if (o->type == &fxi_array_type) {
        head = sizeof(fx_array);
        fxi_handle_array_ends((fx_array *)o);
    } else {
        o->type = &fxi_freed_type;
        o->refs = FXI_FREED;
    }
    void *block = fxi_handles_recorded ? (void *)record_of(o) : (void *)o;
    if (bytes > LARGE)
        fxi_free(block);
    else if (fxi_handles_recorded)
        fxi_free_late(block, FXI_MANY_TOMBSTONES, sizeof(record) + head);
    else
        fxi_free_late(block, FXI_TOMBSTONES, head);
}

const fxi_scope *fxi_handle_note_closing(const fxi_scope *scope)
{
    const fxi_scope *before = closing;
    closing = scope;
    return before;
}

void fxi_release_because(void *object, const char *why)
{
    const char *before = reason;
    reason = why;
    fx_release(object);
    reason = before;
}

/* ---- messages -------------------------------------------------------------------------------- */

enum { TEXT = 220 };

/* "the array (2×3 Float32, add) made near main.c:4", "the Dense made near main.c:9" */
static const char *made_text(const record *r, char text[TEXT])
{
    char shape[FXI_SHAPE_TEXT], what[TEXT / 2];
    if (r->is_array)
        snprintf(what, sizeof what, "array (%s %s, %s)", fxi_shape_text(r->ndim, r->shape, shape),
                 fx_dtype_name((fx_dtype)r->dtype), fxi_ops[r->op].name);
    else
        snprintf(what, sizeof what, "%s", r->type);
    if (r->made)
        snprintf(text, TEXT, "the %s made near %s", what, r->made);
    else if (r->made_file)
        snprintf(text, TEXT, "the %s made in the scope opened at %s:%d", what, r->made_file,
                 r->made_line);
    else
        snprintf(text, TEXT, "the %s", what);
    return text;
}

/* "when the FX_STEP at main.c:3 closed", with advice */
static const char *freed_text(const record *r, char text[TEXT])
{
    static const char *const names[] = {[FXI_SCOPE_INHERIT] = "FX_SCOPE",
                                        [FXI_SCOPE_STEP] = "FX_STEP",
                                        [FXI_SCOPE_TEST] = "FX_TEST",
                                        [FXI_SCOPE_QUIET] = "library's scope inside the scope"};
    if (r->why)
        snprintf(text, TEXT, "%s: keep it with fx_retain, fx_keep or fx_set", r->why);
    else if (r->root)
        snprintf(text, TEXT, "when its thread ended: keep it with fx_retain or fx_set");
    else if (r->mode >= 0)
        snprintf(text, TEXT,
                 "when the %s at %s:%d closed: return it with fx_keep, or store it with fx_set",
                 names[r->mode], r->file ? r->file : "an unknown location", r->line);
    else
        snprintf(text, TEXT,
                 "by fx_release%s%s: without a previous fx_retain, fx_release frees the scope's "
                 "own reference",
                 r->freed ? " near " : "", r->freed ? r->freed : "");
    return text;
}

fx_status fxi_handle_misused(const char *op, const void *object)
{
    char made[TEXT], freed[TEXT];
    if (fxi_handles_recorded)
        return fx_fail(FX_STATUS_STATE, op, "%s was freed %s", made_text(record_of(object), made),
                       freed_text(record_of(object), freed));
    return fx_fail(
        FX_STATUS_STATE, op,
        "the %s was freed: its scope has closed, or it was released. Return an object from "
        "its scope with fx_keep, or store it with fx_set. With FX_HANDLES=1 in the "
        "environment this message names the object and the scope",
        fx_is_array(object) ? "array" : "object");
}

void fxi_handle_report(void)
{
    enum { SHOWN = 3 };
    char text[TEXT];
    int64_t n = 0, shown = 0;
    for (const record *r = living.next; reports && r != &living; r = r->next)
        n++;
    if (n > 0)
        fx_message(0, "FX_HANDLES: fx_retain or fx_set keeps %lld object%s until the process ends",
                   (long long)n, n == 1 ? "" : "s");
    for (record *r = living.next; n > 0 && r != &living && shown++ < SHOWN; r = r->next) {
        const fx_object *o = (const fx_object *)(const void *)(r + 1);
        if (o->type == &fxi_array_type)
            describe_array(r, (const fx_array *)o);
        fx_message(0, "FX_HANDLES: %s", made_text(r, text));
    }
}

/* ---- is it an object? ------------------------------------------------------------------------ */

/* Can this memory be read? Readable pages are remembered, because the question costs a system call.
 * All threads share the table. It can hold the pages of the handles that training steps make,
 * because the memory of these handles is used again (FXI_TOMBSTONES). */
static bool readable(const void *p, size_t bytes)
{
    enum { PAGES = 256 };
    static uintptr_t known[PAGES]; /* atomic */
    static uintptr_t size;         /* bytes of a page; atomic */
    uintptr_t page = __atomic_load_n(&size, __ATOMIC_RELAXED);
    if (!page) {
        page = (uintptr_t)fxi_page_bytes();
        __atomic_store_n(&size, page, __ATOMIC_RELAXED);
    }
    const uintptr_t first = (uintptr_t)p / page, last = ((uintptr_t)p + bytes - 1) / page;
    if (last < first)
        return false;
    for (uintptr_t i = first; i <= last; i++) {
        uintptr_t *entry = &known[i % PAGES];
        if (i != 0 && __atomic_load_n(entry, __ATOMIC_RELAXED) == i)
            continue;
        if (i == 0 || !fxi_page_readable(i * page))
            return false;
        __atomic_store_n(entry, i, __ATOMIC_RELAXED);
    }
    return true;
}

/* Is this the descriptor of a type? A descriptor has enough consistent fields that other memory
 * does not match by chance. */
__attribute__((no_sanitize("address", "thread"))) static bool looks_like_type(const fx_type *type)
{
    enum { MOST = 1024, MOST_FIELDS = 4096 }; /* the size in a descriptor tells its version */
    if ((uintptr_t)type % sizeof(void *) != 0 || !readable(type, sizeof *type))
        return false;
    return type->fxi_size >= offsetof(fx_type, fields) && type->fxi_size <= MOST &&
           type->size >= sizeof(fx_object) && type->nfields >= 0 && type->nfields <= MOST_FIELDS &&
           (type->nfields == 0 || readable(type->fields, sizeof *type->fields)) &&
           readable(type->name, 1) && (unsigned char)*type->name > ' ';
}

/* `p` may point to a short text. Its first word then contains unrelated bytes as well, and can look
 * like the address of memory that another thread has freed. So sanitizers must not check the reads
 * of that word and of a possible type, and the rest is read only if the word is the address of a
 * type. */
__attribute__((no_sanitize("address", "thread"))) bool fxi_handle_is_object(const void *p)
{
    const fx_object *o = p;
    return (uintptr_t)p % sizeof(void *) == 0 && readable(p, sizeof *o) &&
           looks_like_type(o->type) && __atomic_load_n(&o->refs, __ATOMIC_RELAXED) > 0;
}
