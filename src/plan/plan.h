/* plan.h: a plan: the steps that compute a graph's outputs, and where every value lives.
 *
 * A plan is immutable once built. What a run brings along is addressed by number: leaves,
 * constants, streams, output buffers, and one arena for everything in between.
 */
#ifndef CFLUX_PLAN_H
#define CFLUX_PLAN_H

#include "graph.h"
#include "step.h"

typedef enum fxi_value_kind {
    FXI_VALUE_LEAF,   /* index: leaf number */
    FXI_VALUE_SLOT,   /* index: constant number */
    FXI_VALUE_ARENA,  /* offset in the arena */
    FXI_VALUE_OUTPUT, /* index: output buffer number */
    FXI_VALUE_DONATED /* index: leaf number whose buffer it takes over */
} fxi_value_kind;

typedef struct fxi_value {
    fxi_value_kind kind;
    int32_t index;
    int32_t first, last; /* steps between which an arena value lives */
    int64_t offset;      /* bytes */
    int64_t bytes;
    bool channels_last; /* how its elements lie: see layout.c */
} fxi_value;

/* A constant: the graph's constant number and the type in which it is needed. */
typedef struct fxi_slot {
    int32_t constant;
    uint8_t dtype;
} fxi_slot;

/* What becomes of an output node: a view of a value. */
typedef struct fxi_result {
    int32_t value;
    int64_t offset; /* elements */
    int64_t stride[FX_MAX_DIMS];
} fxi_result;

typedef struct fxi_plan fxi_plan;
struct fxi_plan {
    int64_t refs; /* atomic: the cache's and the runs' */
    fx_device *device;
    uint64_t *key;
    uint32_t nkey;
    uint64_t hash;
    uint32_t *record; /* of the nodes, to say why another graph missed */
    int32_t nnodes;
    fx_step *steps;
    int32_t nsteps, step_capacity;
    fxi_value *values;
    int32_t nvalues, value_capacity;
    fxi_slot *slots;
    int32_t nslots, slot_capacity;
    fxi_result *results; /* per output of the graph */
    int32_t noutputs;
    int64_t *buffer_bytes; /* per output buffer */
    int32_t nbuffers, buffer_capacity;
    int64_t arena_bytes;
    int64_t slots_offset, slots_bytes; /* where literals lie in the arena; 0 bytes: with the run */
    uint64_t bytes_moved, bytes_saved; /* see fx_counters */
    int32_t fused_steps;
    int32_t max_inputs, max_outputs; /* of a step; outputs counted for foreach steps only */
    int32_t donations, donations_denied;
    fxi_plan *next;          /* in its bucket of the cache */
    fxi_plan *newer, *older; /* in the order of use */
};

/* Builds the plan of a graph; NULL when memory is out (recorded). */
fxi_plan *fxi_plan_build(const fxi_graph *g);
void fxi_plan_release(fxi_plan *p);

/* The plan of a graph, from the cache or built; the caller's reference. NULL: recorded. */
fxi_plan *fxi_plan_of(const fxi_graph *g);
/* FX_EAGER=1: every node is a step of its own, for tests and for finding out where a number comes
 * from. */
bool fxi_eager(void);
/* Is `what` among the words of the environment variable FX_TRACE? */
bool fxi_traced(const char *what);
/* With FX_TRACE=donation: says why the new value of n did not get the memory of the old one. */
void fxi_trace_donation(const fxi_node *n, const char *why);
/* Drops all cached plans; only those that no run uses, which count as evicted. */
void fxi_plans_drop(void);
void fxi_plans_drop_idle(void);

/* Gives every arena value its offset (place.c). Returns false when memory is out. */
bool fxi_plan_place(fxi_plan *p);

/* Counts what the steps do (account.c). */
void fxi_account(fxi_plan *p, const fxi_graph *g);
/* Bytes that a step reads and writes, each operand once; the nodes of the graph that it computes.
 */
int64_t fxi_step_bytes(const fxi_plan *p, const fx_step *s);
int32_t fxi_step_nodes(const fx_step *s);

#endif
