/* handle.h: what is left of an object that was freed.
 *
 * An object that is freed keeps its head for a while as a tombstone: its reference count is
 * FXI_FREED, an array has the status FX_STATUS_STATE and no node, any other object has the type
 * fxi_freed_type. So whoever uses a stale handle meets an error object instead of another object's
 * memory. The last FXI_GRAVES objects that each thread freed are kept, then their memory is used
 * again.
 *
 * With FX_HANDLES=1 in the environment (the default where CFLUX_DEBUG_CHECKS is defined;
 * FX_HANDLES=0 switches it off) every object also has a record of what it is, where it was made and
 * what freed it, and FXI_MANY_GRAVES of them are kept: about 20 MB a thread.
 */
#ifndef CFLUX_HANDLE_H
#define CFLUX_HANDLE_H

#include "object.h"

enum { FXI_GRAVES = 256, FXI_MANY_GRAVES = 1 << 16 };

/* The reference count of an object that was freed. Counts from FXI_IMMORTAL on never change. */
#define FXI_FREED (FXI_IMMORTAL + 1)
extern const fx_type fxi_freed_type;

extern bool fxi_handles_recorded; /* FX_HANDLES; set before main */
void fxi_handle_note_made(fx_object *o, const struct fxi_scope *scope);
void fxi_handle_note_end(fx_object *o);
void *fxi_handle_alloc_recorded(size_t bytes);
void fxi_handle_bury_other(fx_object *o);

/* Memory for an object of so many bytes, not initialised; NULL when memory is out. */
static inline fx_object *fxi_handle_alloc(size_t bytes)
{
    return __builtin_expect(fxi_handles_recorded, 0) ? fxi_handle_alloc_recorded(bytes)
                                                     : fxi_malloc_late(bytes, FXI_GRAVES);
}
/* Notes what an object is, after its head has been filled in. `scope` is where it was made. */
static inline void fxi_handle_made(fx_object *o, const struct fxi_scope *scope)
{
    if (__builtin_expect(fxi_handles_recorded, 0))
        fxi_handle_note_made(o, scope);
}
/* Before an object's fields are released: notes what it was and what frees it. */
static inline void fxi_handle_ends(fx_object *o)
{
    if (__builtin_expect(fxi_handles_recorded, 0))
        fxi_handle_note_end(o);
}
/* Makes a tombstone of it. Its fields have been released. */
static inline void fxi_handle_bury(fx_object *o)
{
    if (__builtin_expect(o->type != &fxi_array_type || fxi_handles_recorded, 0)) {
        fxi_handle_bury_other(o);
        return;
    }
    fx_array *x = (fx_array *)o;
    x->node = NULL;
    x->status = FX_STATUS_STATE;
    o->refs = FXI_FREED;
    fxi_free_late(o, FXI_GRAVES, sizeof *x);
}
/* Says for the calling thread which scope frees what is freed from now on, NULL: none. Returns what
 * was said before. */
const struct fxi_scope *fxi_handle_closing(const struct fxi_scope *scope);

static inline bool fxi_handle_freed(const fx_object *o)
{
    return __atomic_load_n(&o->refs, __ATOMIC_RELAXED) == FXI_FREED;
}
/* Records that an operation was given this object, which was freed: what it was, where it was made
 * and what freed it, as far as that is known. Returns FX_STATUS_STATE. */
fx_status fxi_handle_misused(const char *op, const void *object);
/* The status that an array carries; records the misuse of one that was freed. */
static inline fx_status fxi_array_check(const char *op, const fx_array *x)
{
    return x->status != FX_OK && fxi_handle_freed(&x->base) ? fxi_handle_misused(op, x) : x->status;
}
/* Is x an array with a value? C turns a void * into an fx_array * silently, so x may be another
 * kind of object. Records the misuse of a freed array. */
static inline bool fxi_has_node(const fx_array *x)
{
    if (x && x->base.type == &fxi_array_type && x->node)
        return true;
    if (x && fxi_handle_freed(&x->base))
        fxi_handle_misused("array", x);
    return false;
}
/* Releases an object and says why, for the message of a later use: "when fx_next went on to the
 * next batch". The text must be static. */
void fxi_release_because(void *object, const char *why);
/* At the end of the process, where FX_HANDLES is set: says what was retained and never released. */
void fxi_handle_report(void);
/* Is there an object at this address, alive or freed? Reads no memory that cannot be read, so it
 * may be asked about the value of a variable that was never set. */
bool fxi_handle_is_object(const void *p);

#endif
