/* handle.h: detects the use of handles whose object was freed.
 *
 * An object that is freed keeps its head for a while as a tombstone, unless it has more than 4096
 * bytes: its reference count is FXI_FREED, an array has the status FX_STATUS_STATE and no node, any
 * other object has the type fxi_freed_type. So code that uses a stale handle finds an error object
 * and not the memory of another object. Each thread keeps the tombstones of the FXI_TOMBSTONES
 * objects that it freed last; the memory of older ones is used again.
 *
 * FX_HANDLES=1 in the environment (default: 1 if CFLUX_DEBUG_CHECKS is defined, else 0) gives every
 * object a record of its type, where it was made and what freed it. Each thread then keeps
 * FXI_MANY_TOMBSTONES tombstones: about 20 MB.
 */
#ifndef CFLUX_HANDLE_H
#define CFLUX_HANDLE_H

#include "object.h"

enum { FXI_TOMBSTONES = FXI_SPARES_WAIT, FXI_MANY_TOMBSTONES = 1 << 16 };

/* The reference count of a freed object. Counts from FXI_IMMORTAL on never change. */
#define FXI_FREED (FXI_IMMORTAL + 1)
extern const fx_type fxi_freed_type;

extern bool fxi_handles_recorded; /* FX_HANDLES; set before main */
void fxi_handle_note_made(fx_object *o, const struct fxi_scope *scope);
void fxi_handle_note_end(fx_object *o);
void *fxi_handle_alloc_recorded(size_t bytes);

/* Memory for an object of `bytes` bytes, not initialised; NULL if the allocation fails. */
static inline fx_object *fxi_handle_alloc(size_t bytes)
{
    return __builtin_expect(fxi_handles_recorded, 0) ? fxi_handle_alloc_recorded(bytes)
                                                     : fxi_malloc_late(bytes, FXI_TOMBSTONES);
}
/* The same for arrays, in few instructions, because every operation makes one: if
 * fxi_spares_have_late or fxi_spares_want_late is true, the block of an array may be taken from the
 * spare ones or added to them, and nothing is recorded. With FX_HANDLES, no thread keeps such
 * blocks. */
_Static_assert(sizeof(void *) != 8 ||
                   (sizeof(fx_array) > 48 && sizeof(fx_array) <= FXI_SPARE_LATE_BYTES),
               "a block of FXI_SPARE_LATE_BYTES");
/* Records what an object is; its head must be filled in. `scope`: where it was made. */
static inline void fxi_handle_made(fx_object *o, const struct fxi_scope *scope)
{
    if (__builtin_expect(fxi_handles_recorded, 0))
        fxi_handle_note_made(o, scope);
}
/* Records what an object was and what frees it. Call it before the fields are released. */
static inline void fxi_handle_ends(fx_object *o)
{
    if (__builtin_expect(fxi_handles_recorded, 0))
        fxi_handle_note_end(o);
}
/* Turns an object, whose fields have been released, into a tombstone. */
void fxi_handle_bury(fx_object *o);
/* The head of an array that is a tombstone. */
static inline void fxi_handle_array_ends(fx_array *x)
{
    x->node = NULL;
    x->status = FX_STATUS_STATE;
    x->base.refs = FXI_FREED;
}
/* Sets the scope that frees objects of this thread from now on; NULL: none. Returns the previous
 * one. Does nothing if objects have no records. */
const struct fxi_scope *fxi_handle_note_closing(const struct fxi_scope *scope);
static inline const struct fxi_scope *fxi_handle_closing(const struct fxi_scope *scope)
{
    return __builtin_expect(fxi_handles_recorded, 0) ? fxi_handle_note_closing(scope) : NULL;
}

static inline bool fxi_handle_freed(const fx_object *o)
{
    return __atomic_load_n(&o->refs, __ATOMIC_RELAXED) == FXI_FREED;
}
/* Records that an operation got a freed object. With FX_HANDLES=1 the message names the object's
 * type, the line of the program that made it and the function or scope that freed it; else it only
 * tells an array from another object. Returns FX_STATUS_STATE. */
fx_status fxi_handle_misused(const char *op, const void *object);
/* The status of an array. Records the misuse if it was freed. */
static inline fx_status fxi_array_check(const char *op, const fx_array *x)
{
    return x->status != FX_OK && fxi_handle_freed(&x->base) ? fxi_handle_misused(op, x) : x->status;
}
/* Is x an array without an error? */
static inline bool fxi_array_ok(const fx_array *x)
{
    return x && x->base.type == &fxi_array_type && x->status == FX_OK;
}
/* FX_OK if x is an array without an error. NULL and other objects are recorded; the status of an
 * error array or error object is returned without a new record. */
fx_status fxi_operand_status(const char *op, const fx_array *x);
/* Is x an array with a node, pending or computed? C turns a void * into an fx_array * silently, so
 * x may be another kind of object. Records the misuse of a freed array. */
static inline bool fxi_has_node(const fx_array *x)
{
    if (x && x->base.type == &fxi_array_type && x->node)
        return true;
    if (x && fxi_handle_freed(&x->base))
        fxi_handle_misused("array", x);
    return false;
}
/* Releases an object and records the reason, for the message of a later use: "when fx_next moved to
 * the next batch". The text must be static. */
void fxi_release_because(void *object, const char *why);
/* At the end of the process, if FX_HANDLES is set: reports objects that were retained and never
 * released. */
void fxi_handle_report(void);
/* Is there an object at this address, alive or freed? It checks that memory can be read before it
 * reads, so it may be asked about a variable that was never set. */
bool fxi_handle_is_object(const void *p);

#endif
