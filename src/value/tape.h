/* tape.h: recorded training steps (FX_RECORD). Internal.
 *
 * The first training step at a location is built as usual, and the tape of that location notes
 * every node: the operation, the positions of its operands on the tape, attributes and sizes. In
 * the next training step at this location, each call of fxi_node_new is compared with the tape.
 * Calls that are equal return the tape's own nodes, and nothing is built; an evaluation that
 * repeats a recorded one runs its plan with the new leaves and literals (exec/recorded_run.c). At
 * the first call or evaluation that differs, fxi_tape_leave turns the tape's nodes into ordinary
 * pending nodes, and from there the training step is built and noted again.
 *
 * Code that reads a node of the tape (a "ghost") finds a pending node. The tape holds one reference
 * to it; handles and operands add theirs. Its `in` is valid, but it holds no references to its
 * inputs and is not counted as their consumer; it is never a sink. fxi_tape_leave adds these
 * references and counts. See docs/design/0046-a-recorded-step.md.
 */
#ifndef CFLUX_TAPE_H
#define CFLUX_TAPE_H

#include "context.h"
#include "identity_map.h"

/* The field `tape` of a node that an evaluation made, as a copy of its input for the device that
 * needs the value (bring in plan/graph.c). The program did not call for it, so it has no entry. */
enum { FXI_TAPE_COPY = -1 };

/* A recorded call. */
typedef struct fxi_tape_entry {
    fxi_node *node;    /* the ghost */
    fxi_node *live;    /* while recording: the node that the call made; NULL: it has been freed */
    fx_device *device; /* of the call; fx_zeros_like changes that of the node afterwards */
    int32_t nin;       /* number of operands */
    int32_t operand;   /* position of its first operand in `operands` */
    int32_t leaves;    /* number of leaves that earlier entries use */
    int32_t user;      /* position of its first use in `users`, which lists where it is an
                          operand */
    bool reads_leaf;   /* one of its operands is a leaf */
    bool inside;       /* made by a part that can be skipped (fxi_tape_skip) */
    bool moves;      /* its node has been replaced when a training step closed, and may be again */
    int32_t old;     /* 1 + the leaf with which the entry has exchanged its node; 0: none */
    int32_t skipped; /* REPEATS: this entry and those before entry `skipped` were skipped
                        together; 0: the call of this entry was made */
    uint64_t seq;    /* of its node, if `skipped` > 0 */
    fxi_data *spare; /* the block for the next value of the ghost; NULL: none */
} fxi_tape_entry;

/* An evaluated value that was made before the training step or outside of it: a parameter, a batch.
 * A plan may depend on the device, type, sizes, strides and flags of the leaf, so a later training
 * step can only use a node that has the same. */
typedef struct fxi_tape_leaf {
    fxi_node *node; /* in the current training step, retained; NULL: not used yet */
    fx_device *device, *buffer_device;
    uint8_t dtype, ndim;
    bool borrowed, unaligned;
    bool serves;  /* `node` may hold its new value (serves_as in recorded_run.c); false: unknown */
    int32_t user; /* position of its first use in `leaf_users` */
    const fxi_node *was; /* the node that the ghosts have as operand for this leaf; only its address
                            is used */
    uint64_t seq; /* of `was`. A node of this thread with this address and this `seq` is still
                     `was` */
    int64_t shape[FX_MAX_DIMS], stride[FX_MAX_DIMS];
} fxi_tape_leaf;

/* An evaluation, or a part of the training step that can be skipped, recorded between two calls. */
typedef struct fxi_event fxi_event;
typedef struct fxi_event_kind {
    void (*free)(fxi_event *e);
    bool skips; /* its entries are not made again (fxi_tape_inside) */
    /* Called if the training step has repeated the event and leaves the tape now; NULL: nothing to
     * do. */
    void (*leave)(const fxi_event *e, const fxi_tape *t);
} fxi_event_kind;
struct fxi_event {
    const fxi_event_kind *kind;
    fxi_event *next;
    int32_t first, end; /* the entries that it made; equal for an evaluation */
};

typedef enum fxi_tape_mode {
    FXI_TAPE_OFF,     /* the training step is built without notes: after fxi_tape_break, or without
                         memory */
    FXI_TAPE_NOTES,   /* the training step is built and noted */
    FXI_TAPE_REPEATS, /* the training step has repeated the tape so far */
} fxi_tape_mode;

typedef struct fxi_tape_use {
    int32_t entry, input;
} fxi_tape_use;

/* An update has bound the handle, which held the leaf, to the ghost; the new value is in the memory
 * of the old one. The handle is retained, because the program may free it before the training step
 * closes. */
typedef struct fxi_tape_rebound {
    fx_array *handle;
    fxi_node *leaf, *ghost;
} fxi_tape_rebound;

/* An update has written the value of an entry into the memory of a leaf. The handle still holds the
 * leaf, whose value is now the new one. */
typedef struct fxi_tape_overwritten {
    const fx_array *handle; /* only compared: the program may have freed it */
    int32_t leaf, entry;
} fxi_tape_overwritten;

struct fxi_tape {
    fxi_tape *next; /* in the thread's list, the most recently used one first */
    char *file;     /* a copy: the library that contains the text may be unloaded */
    int line;
    fxi_tape_mode mode;
    const fxi_scope *scope;   /* of the training step in progress */
    int failures;             /* training steps in a row that were built, at least in part */
    int rest;                 /* training steps to build without noting them */
    bool changed;             /* a literal differs from the recorded one, in this training step */
    bool impure;              /* has operations whose gradient a C function computes */
    int32_t n, capacity, pos; /* entries; how many this training step has repeated */
    int32_t version;          /* changes when the node of an entry without `moves` is replaced */
    fxi_tape_entry *entries;
    int32_t *operands; /* an entry, or ~i for leaf i */
    int32_t noperands, operand_capacity;
    fxi_tape_use *users, *leaf_users; /* lists for all entries, and for all leaves */
    int32_t nusers, user_capacity, nleaf_users, leaf_user_capacity;
    fxi_tape_leaf *leaves;
    int32_t nleaves, leaf_capacity, nbound;
    int32_t nused;  /* leaves that the entries use. A leaf of a call that ended the repetition has a
                       number too, even if no entry uses it */
    uint32_t owner; /* the thread */
    fxi_identity_map numbers;   /* current leaves of other threads → their number + 1 */
    fxi_event *events, *latest; /* in the order in which they ended */
    fxi_event *dropped;         /* freed when the training step closes */
    fxi_event *ahead; /* REPEATS: the events before this one end before the current entry */
    fxi_event *ran;   /* REPEATS: the latest evaluation that was repeated; NULL: none */
    int32_t *settled; /* REPEATS: the entries that have got a value; it can hold all of them */
    int32_t nsettled, settled_capacity;
    int32_t *shown; /* REPEATS: skipped entries that have got a handle; it can hold all of them */
    int32_t nshown, shown_capacity;
    fxi_tape_rebound *rebound; /* handles whose leaf this training step has replaced in place */
    int32_t nrebound, rebound_capacity;
    fxi_tape_overwritten *overwritten; /* REPEATS: leaves that have new values */
    int32_t noverwritten, overwritten_capacity;
    int32_t nexchanged; /* the number of these whose nodes fxi_tape_catch_up has exchanged */
};

/* A training step opens or closes with a scope. file:line is the location of its FX_RECORD, which
 * selects the tape. `open` cannot fail: if there is no memory for a tape, the training step is
 * built without one. */
void fxi_tape_open(fxi_context *c, const fxi_scope *s, const char *file, int line);
void fxi_tape_close(fxi_context *c);
/* Frees the tapes of the thread that no open training step uses. */
void fxi_tapes_free(fxi_context *c);

/* Returns the recorded node of a call that is equal to the next one on the tape, with a reference
 * for the caller. NULL: the caller must make the node, because the call differs or nothing is being
 * repeated. */
fxi_node *fxi_tape_next(fxi_context *c, fx_op op, fx_dtype dtype, int ndim, const int64_t *shape,
                        fx_device *device, const fx_attr *attr, int nin, fxi_node *const *in);
/* Notes a new node. */
void fxi_tape_note(fxi_context *c, fxi_node *n);
/* Call this before a noted node is freed. */
void fxi_tape_forget(fxi_context *c, const fxi_node *n);

static inline bool fxi_tape_notes(const fxi_context *c)
{
    return c->tape && c->tape->mode == FXI_TAPE_NOTES;
}
/* While repeating: notes that an update has written the value of the entry into the memory of the
 * leaf, which the handle keeps as its node. `made`: the only handle of the entry's node, which then
 * holds the leaf too; NULL: there is none. The caller has made space in `overwritten`. */
void fxi_tape_keep_node(fxi_tape *t, const fx_array *handle, fx_array *made, int32_t leaf,
                        int32_t entry);
void fxi_tape_exchange(fxi_tape *t);
/* While repeating: makes the node of each overwritten leaf the node of the entry whose value it
 * has. From here on, pending results that read the old values cannot be computed any more. Call
 * this before the nodes on the tape are compared or read. Most training steps end with their update
 * and never need it. */
static inline void fxi_tape_catch_up(const fxi_context *c)
{
    if (c->tape && __builtin_expect(c->tape->nexchanged < c->tape->noverwritten, 0))
        fxi_tape_exchange(c->tape);
}
static inline bool fxi_tape_repeats(const fxi_context *c)
{
    fxi_tape_catch_up(c);
    return c->tape && c->tape->mode == FXI_TAPE_REPEATS;
}
/* Ends the repetition: from here on the training step is built and noted. Does nothing if the
 * training step does not repeat a tape. */
void fxi_tape_leave(fxi_context *c);
/* Ends the recording: the rest of the training step is built without notes, and the tape is
 * emptied. */
void fxi_tape_break(fxi_context *c);

/* Stores the number of the entry that made n, or ~i if n is leaf i; for a copy, that of the value
 * which was copied. False: n is none of these. */
bool fxi_tape_find(const fxi_tape *t, const fxi_node *n, int32_t *out);
/* Returns the node that an entry or leaf number has in the current training step. */
static inline fxi_node *fxi_tape_node(const fxi_tape *t, int32_t i)
{
    return i >= 0 ? t->entries[i].node : t->leaves[~i].node;
}
/* Returns the number of entries so far. */
static inline int32_t fxi_tape_at(const fxi_tape *t)
{
    return t->mode == FXI_TAPE_REPEATS ? t->pos : t->n;
}

/* While repeating: the ghost n has got its value. */
static inline void fxi_tape_settled(fxi_tape *t, const fxi_node *n)
{
    t->settled[t->nsettled++] = n->tape - 1;
}

/* Binds a handle, whose value is lost, to the new value n. False, and no change: the training step
 * does not repeat this, or an allocation failed. */
bool fxi_tape_rebind(fxi_context *c, fx_array *handle, fxi_node *n);

/* Adds an event that began at entry `first` and ends here. The tape owns it from now on. */
void fxi_tape_add(fxi_context *c, fxi_event *e, int32_t first);
/* While repeating: returns the first event in the list that does not end before the current entry,
 * or NULL. The ends of the events in the list do not decrease. */
static inline fxi_event *fxi_tape_ahead(fxi_tape *t)
{
    while (t->ahead && t->ahead->end <= t->pos)
        t->ahead = t->ahead->next;
    return t->ahead;
}
/* While repeating: returns the event of this kind that begins at the current entry; NULL: none. */
fxi_event *fxi_tape_event(const fxi_context *c, const fxi_event_kind *kind);
/* While repeating: counts all calls up to entry `end` as repeated, without making them. `fresh`:
 * the leaves that are first used in these calls, in order. False: one of them differs from the
 * recorded leaf, and no call counts as repeated; the leaves before it are leaves of this training
 * step. */
bool fxi_tape_skip(fxi_context *c, int32_t end, int n, fxi_node *const *fresh);
/* Call this before the node of a skipped entry gets a handle, at most once for each entry. `first`:
 * the first of the entries that were skipped together with it. */
static inline void fxi_tape_show(fxi_tape *t, int32_t first, int32_t entry)
{
    t->entries[entry].node->seq = t->entries[first].seq + (uint64_t)(entry - first);
    t->shown[t->nshown++] = entry;
}
/* While repeating: the next entry after i whose call was made, or which was the first of several
 * that were skipped together. */
static inline int32_t fxi_tape_after(const fxi_tape *t, int32_t i)
{
    return t->entries[i].skipped ? t->entries[i].skipped : i + 1;
}
/* Gives the nodes of skipped entries the numbers that their calls would have given them. The nodes
 * in t->shown have them already; hardly anything reads the numbers of the others. */
void fxi_tape_number(fxi_tape *t);
/* While noting: marks the entries from `first` on as made by one part. */
void fxi_tape_inside(fxi_tape *t, int32_t first);
/* Returns true if the entries from `first` on can be skipped. They must have no random numbers, no
 * collective operations, no literals unless `literals` is true, and at most `leaves` leaves that no
 * earlier entry uses. */
bool fxi_tape_can_skip(const fxi_tape *t, int32_t first, bool literals, int32_t leaves);
/* Returns how many evaluations the training step has made so far. */
int32_t fxi_tape_evaluations(const fxi_tape *t);

#endif
