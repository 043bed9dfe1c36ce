/* plan.h: a plan is the list of steps that compute a graph's outputs, and the place of every value
 * in memory.
 *
 * A plan does not change after it is built, so threads share it and the cache keeps it. Data
 * that differ between runs are addressed by number: leaves, constants, streams of random numbers
 * and output buffers. Values between steps have offsets in one arena, so a run allocates one block
 * for all of them.
 */
#ifndef CFLUX_PLAN_H
#define CFLUX_PLAN_H

#include "graph.h"
#include "planner.h"
#include "step.h"

typedef enum fxi_value_kind {
    FXI_VALUE_LEAF,    /* index: leaf number */
    FXI_VALUE_LITERAL, /* index: number of the plan's literal */
    FXI_VALUE_ARENA,   /* offset in the arena */
    FXI_VALUE_OUTPUT,  /* index: output buffer number */
    FXI_VALUE_DONATED  /* index: leaf number whose buffer it takes over */
} fxi_value_kind;

typedef struct fxi_value {
    fxi_value_kind kind;
    int32_t index;
    int32_t first, last; /* the steps between which an arena value must be kept */
    int64_t offset;      /* bytes */
    int64_t bytes;
    bool channels_last; /* the order of its elements in memory: see layout.c */
    bool strided;       /* a leaf that is not dense: it extends over more than `bytes` */
} fxi_value;

/* A number that each run writes: a literal in the type in which it is needed, or a number that only
 * literals determine (literal.c). */
typedef struct fxi_plan_literal {
    int32_t constant; /* the graph's number of the literal */
    uint8_t dtype;
    uint8_t op;    /* FX_OP_CONST: the literal; else the operation that computes it, ... */
    int32_t in[2]; /* ... from these earlier literals */
} fxi_plan_literal;

/* An output of the graph: a view of a value. */
typedef struct fxi_result {
    int32_t value;
    int64_t offset; /* elements */
    int64_t stride[FX_MAX_DIMS];
} fxi_result;

/* An operand of a step: the value, and the bytes between its start and the operand. */
typedef struct fxi_site {
    int32_t value;
    int64_t offset;
} fxi_site;

/* The numbers of a step's sites: its first input, its work space (−1: none), its first output, and
 * its main output `out`, after which `more` further outputs follow. */
typedef struct fxi_operands {
    int32_t in, work, outputs, out, more;
} fxi_operands;

/* Consecutive steps that the backend runs in one call. Other steps run one by one. */
typedef struct fxi_part {
    fx_plan whole;
    int32_t first; /* the number of its first step */
} fxi_part;

typedef struct fxi_plan fxi_plan;
struct fxi_plan {
    int64_t refs; /* atomic; one for the cache, for each run, for each recorded evaluation, and for
                     each thread that keeps it because it was its latest */
    fx_device *device;
    uint64_t *key;
    uint32_t nkey;
    uint64_t hash;
    uint32_t *record; /* where the record of each node starts in `key`; explains why another graph
                         missed the cache */
    int32_t nnodes;
    fx_step *steps;
    int32_t nsteps, step_capacity;
    fxi_value *values;
    int32_t nvalues, value_capacity;
    int64_t stored_bytes; /* sum of all arena values, also of those that never exist at the same
                             time; building fails if it is too large */
    int64_t too_large;    /* bytes of the value with which the plan became too large for any
                             process; building fails then. 0: none */
    fxi_plan_literal *literals;
    int32_t nliterals, literal_capacity;
    fxi_result *results; /* per output of the graph */
    int32_t noutputs;
    int64_t *buffer_bytes; /* per output buffer */
    int32_t nbuffers, buffer_capacity;
    int64_t arena_bytes;
    int32_t work_step; /* the step that needs the most work space; −1: no step needs any */
    int32_t nstreams;  /* number of streams (a seed and a counter each) of random numbers */
    /* The literals in the arena, followed by the streams. 0 bytes: kernels read them from host
     * memory, where the run keeps them. */
    int64_t literals_offset, literals_bytes;
    uint64_t bytes_moved, bytes_saved; /* see fx_counters */
    int32_t fused_steps;
    fxi_site *sites; /* the operands of all steps, step by step (sites.c) */
    int32_t nsites;
    fxi_operands *operands; /* per step */
    int32_t *outside; /* leaves and outputs with buffers of their own: their addresses differ from
                         run to run, and those of donated values with them */
    int32_t noutside;
    int32_t donations, donations_denied;
    int64_t bytes; /* host memory that the plan keeps, including what the backend prepared */
    /* The backend's function. NULL: steps have no `ready`. */
    void (*release)(fx_device *device, fx_step *step);
    fxi_part *parts; /* those that the backend has taken, in the order of the steps */
    int32_t nparts;
    fx_plan_value *shown; /* the values as the backend sees them; NULL: the plan was not offered */
    /* The backend's function for parts. NULL: the plan has no parts. */
    void (*plan_release)(fx_device *device, fx_plan *plan);
    fxi_plan *next;          /* in its bucket of the cache */
    fxi_plan *newer, *older; /* in the order of use */
};

/* Builds the plan of a graph. The caller frees *out_plan, which is NULL on failure. Fails with
 * FX_STATUS_MEMORY, with FX_STATUS_INTERNAL if plans are checked and this one is wrong, or with the
 * status of the backend's `prepare`, `compile` or `plan_prepare`. All failures are recorded. */
fx_status fxi_plan_build(const fxi_planner *how, const fxi_graph *g, fxi_plan **out_plan);
void fxi_plan_free(fxi_plan *p);
static inline void fxi_plan_release(fxi_plan *p)
{
    if (__atomic_sub_fetch(&p->refs, 1, __ATOMIC_ACQ_REL) == 0)
        fxi_plan_free(p);
}

/* A literal takes 8 bytes, whatever its type, so the position in the arena follows from its number.
 * A stream takes 16: seed and counter. */
static inline int64_t fxi_plan_literals_bytes(const fxi_plan *p)
{
    return 8 * (int64_t)p->nliterals + 16 * (int64_t)p->nstreams;
}

/* The most work space that a step of the plan needs besides its operands. */
static inline int64_t fxi_plan_work_bytes(const fxi_plan *p)
{
    return p->work_step < 0 ? 0 : p->steps[p->work_step].work_bytes;
}

/* Does each step of the plan read the values that it is meant to read (plan_check.c)?
 * FX_STATUS_INTERNAL: no, and `why` names the step and the values. FX_STATUS_MEMORY: not checked.
 * Records nothing. */
fx_status fxi_plan_check(const fxi_plan *p, char *why, size_t size);

/* How a step reads a value (in_place.c). IN_PLACE: it reads each element only to write the same
 * element of the output value `out`. OTHERWISE: in any other way; also if `out` is −1, which means
 * no output. */
typedef enum fxi_reading { FXI_READS_NOT, FXI_READS_IN_PLACE, FXI_READS_OTHERWISE } fxi_reading;
fxi_reading fxi_reads(const fxi_plan *p, const fx_step *s, int32_t value, int32_t out);

/* A value that is computed inside another one. */
typedef struct fxi_inside {
    int32_t value; /* the output of a concatenation; negative: it is inside none */
    int64_t skip;  /* bytes from the beginning of that output */
} fxi_inside;

/* Fills in the entry of each value (inside.c), and says whether any value is inside another. */
bool fxi_find_inside(const fxi_plan *p, fxi_inside *inside);

/* Gives every arena value its offset (place.c). `joins`: operands of a concatenation may be
 * computed inside its output. Returns false if an allocation fails. */
bool fxi_plan_place(fxi_plan *p, bool joins);

/* Lists the operands of the steps, which must be final (sites.c). Returns false if an allocation
 * fails. */
bool fxi_list_sites(fxi_plan *p);

/* Counts what the steps do (account.c). */
void fxi_account(fxi_plan *p, const fxi_graph *g);
/* Bytes of the elements that a tensor names: an axis with stride 0 has one. */
int64_t fxi_stored_bytes(const fx_tensor *t);
/* Bytes that a step reads and writes, each operand counted once. */
int64_t fxi_step_bytes(const fxi_plan *p, const fx_step *s);
/* The number of graph nodes that a step computes. */
int32_t fxi_step_nodes(const fx_step *s);

#endif
