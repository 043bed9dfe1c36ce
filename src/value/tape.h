/* tape.h: recorded steps (FX_RECORD). Internal.
 *
 * The first step at a location is built as usual, and the tape of that location notes every node:
 * the operation, where its operands are on the tape, attributes and sizes. In the next step at this
 * location each call of fxi_node_new is compared with the tape. While calls repeat, they return the
 * tape's own nodes, and nothing is built; an evaluation that repeats a recorded one runs its plan
 * with the new leaves and literals (exec/recorded_run.c). The first call or evaluation that differs
 * turns the tape's nodes into ordinary pending nodes (fxi_tape_leave), and the step is built and
 * noted again from there.
 *
 * A node of the tape ("ghost") looks like a pending node to its readers. The tape holds one
 * reference to it; handles and operands add theirs. Its `in` is valid, but it holds no references
 * to its inputs and is not counted as their consumer; it is never a sink. All of this is made up
 * for in fxi_tape_leave. See docs/design/0046-a-recorded-step.md.
 */
#ifndef CFLUX_TAPE_H
#define CFLUX_TAPE_H

#include "context.h"
#include "identity_map.h"

/* A recorded call. */
typedef struct fxi_tape_entry {
    fxi_node *node;    /* the ghost */
    fxi_node *live;    /* while recording: the node that the step made; NULL: it has been freed */
    fx_device *device; /* of the call; fx_zeros_like changes that of the node afterwards */
    int32_t nin;       /* number of operands */
    int32_t operand;   /* its first one in `operands` */
    int32_t leaf_use;  /* the first one in `leaf_uses` of this entry or a later one */
    int32_t user;      /* the first one in `users`: operands of later entries that are this entry */
    bool inside;       /* made by a part that can be skipped (fxi_tape_skip) */
    bool moves;        /* its node has been replaced when a step closed, and may be again */
} fxi_tape_entry;

/* A value that was made before the step, or outside of it, and is evaluated: parameters, batches.
 * The fields before `shape` are what a plan may depend on. */
typedef struct fxi_tape_leaf {
    fxi_node *node; /* in the present step, retained; NULL: not met yet */
    fx_device *device, *place;
    uint8_t dtype, ndim;
    bool borrowed, unaligned;
    int64_t shape[FX_MAX_DIMS], stride[FX_MAX_DIMS];
} fxi_tape_leaf;

/* Something recorded between two calls: an evaluation, or a part that can be skipped. Freed by
 * `free`. */
typedef struct fxi_event fxi_event;
typedef struct fxi_event_kind {
    void (*free)(fxi_event *e);
} fxi_event_kind;
struct fxi_event {
    const fxi_event_kind *kind;
    fxi_event *next;
    int32_t first, end; /* the entries that it made; equal for an evaluation */
};

typedef enum fxi_tape_mode {
    FXI_TAPE_OFF,     /* the step is only built: it did something that no tape can repeat */
    FXI_TAPE_NOTES,   /* the step is built and noted */
    FXI_TAPE_REPEATS, /* the step has repeated the tape so far */
} fxi_tape_mode;

typedef struct fxi_tape_place {
    int32_t entry, input;
} fxi_tape_place;

struct fxi_tape {
    fxi_tape *next; /* in the thread's list, the most recently used one first */
    char *file;     /* a copy: the library that has the line may be unloaded */
    int line;
    fxi_tape_mode mode;
    const fxi_scope *scope;   /* of the step in progress */
    int failures;             /* steps in a row that did not repeat as a whole */
    int rest;                 /* steps to build without noting them */
    bool changed;             /* a literal differs from the recorded one, in this step */
    bool impure;              /* has operations whose gradient the program computes */
    int32_t n, capacity, pos; /* entries; how many this step has repeated */
    int32_t version;          /* changes when nodes are replaced of entries without `moves` */
    fxi_tape_entry *entries;
    int32_t *operands; /* an entry, or ~i for leaf i */
    int32_t noperands, operand_capacity;
    fxi_tape_place *leaf_uses, *users;
    int32_t nleaf_uses, leaf_use_capacity, nusers, user_capacity;
    fxi_tape_leaf *leaves;
    int32_t nleaves, leaf_capacity, nbound;
    fxi_identity_map numbers;   /* node → leaf number + 1, in the present step */
    fxi_event *events, *latest; /* in the order in which they began */
    fxi_event *dropped;         /* freed when the step closes */
    fxi_event *ran; /* REPEATS: the latest evaluation that this step has repeated; NULL: none */
};

/* A step opens or closes at a scope. `open` cannot fail: without memory the step is only built. */
void fxi_tape_open(fxi_context *c, const fxi_scope *s);
void fxi_tape_close(fxi_context *c);
/* Frees the tapes of the thread that no open step uses. */
void fxi_tapes_free(fxi_context *c);

/* The recorded node of a call that repeats the tape, with a reference for the caller; NULL: the
 * node must be made, because the call differs or nothing is repeated. */
fxi_node *fxi_tape_next(fxi_context *c, fx_op op, fx_dtype dtype, int ndim, const int64_t *shape,
                        fx_device *device, const fx_attr *attr, int nin, fxi_node *const *in);
/* Notes a new node. */
void fxi_tape_note(fxi_context *c, fxi_node *n);
/* A noted node is about to be freed. */
void fxi_tape_forget(fxi_context *c, const fxi_node *n);

static inline bool fxi_tape_notes(const fxi_context *c)
{
    return c->tape && c->tape->mode == FXI_TAPE_NOTES;
}
static inline bool fxi_tape_repeats(const fxi_context *c)
{
    return c->tape && c->tape->mode == FXI_TAPE_REPEATS;
}
/* From here on the step is built and noted. Does nothing unless the tape repeats. */
void fxi_tape_leave(fxi_context *c);
/* The rest of the step is only built, and the tape is emptied. */
void fxi_tape_break(fxi_context *c);

/* The number of the entry that made n, or of the leaf (as ~i); false: neither. */
bool fxi_tape_find(const fxi_tape *t, const fxi_node *n, int32_t *out);
/* The node of an entry or leaf number in the present step. */
static inline fxi_node *fxi_tape_node(const fxi_tape *t, int32_t i)
{
    return i >= 0 ? t->entries[i].node : t->leaves[~i].node;
}
/* The number of entries so far. */
static inline int32_t fxi_tape_at(const fxi_tape *t)
{
    return t->mode == FXI_TAPE_REPEATS ? t->pos : t->n;
}

/* Adds an event that began at entry `first` and ends here. Takes it over. */
void fxi_tape_add(fxi_context *c, fxi_event *e, int32_t first);
/* REPEATS: the event of this kind that begins at the present entry; NULL: none. */
fxi_event *fxi_tape_event(const fxi_context *c, const fxi_event_kind *kind);
/* REPEATS: repeats all calls up to entry `end` without making them. `fresh`: the leaves that the
 * step meets there for the first time, in order. False, and nothing is repeated: they differ from
 * the recorded ones. */
bool fxi_tape_skip(fxi_context *c, int32_t end, int n, fxi_node *const *fresh);
/* NOTES: marks the entries from `first` on as made by one part. */
void fxi_tape_inside(fxi_tape *t, int32_t first);
/* Can the entries from `first` on be skipped? They must have no random numbers, nor literals if
 * `literals` is false, and at most `leaves` leaves that no earlier entry has. */
bool fxi_tape_can_skip(const fxi_tape *t, int32_t first, bool literals, int32_t leaves);
/* How many evaluations the step has made so far. */
int32_t fxi_tape_evaluations(const fxi_tape *t);

#endif
