/* run.h: declarations that the files of this folder share: the evaluator of a thread (fxi_scratch)
 * and one run of a plan (fxi_binding). Internal.
 */
#ifndef CFLUX_RUN_H
#define CFLUX_RUN_H

#include "evaluate.h"
#include "planning.h"

/* Memory that a thread keeps between evaluations. A steady training loop then allocates nothing to
 * build its graph or to run its plan. */
typedef struct fxi_scratch {
    fxi_graph graph;
    fxi_root *roots;
    int32_t root_capacity;
    fxi_plan *plan;      /* the plan of the latest run, with a reference; NULL: none, or in use */
    fxi_buffer **arenas; /* arenas that no run uses: at most one for each device */
    int32_t narenas, arena_capacity;
    bool running;             /* the steps of a plan are running; evaluating now is an error */
    const fxi_node **foreign; /* values of other threads to be replaced, by address */
    int32_t nforeign, foreign_capacity;
    uint64_t oldest;                 /* least `seq` of the values to be replaced; 0: unknown */
    bool repeats;                    /* the roots are known to repeat the recorded evaluation */
    bool takes_sinks;                /* an update runs that computes sinks */
    int32_t nsinks;                  /* number of sinks, which are at the end of the roots */
    struct fxi_recorded_run *noting; /* the evaluation that is being noted (recorded_run.c) */
} fxi_scratch;

/* The value of a literal, as in fx_attr. */
typedef struct fxi_literal_value {
    double number;
    int64_t integer, is_integer;
} fxi_literal_value;

/* The memory and numbers of one run of a plan, or of many runs (`kept`). */
typedef struct fxi_binding {
    const fxi_plan *plan;
    fxi_buffer *arena;    /* the arena; NULL: the plan needs none */
    fxi_buffer **buffers; /* output buffers */
    fxi_data **datas;     /* per output of the plan */
    const bool *in_place; /* per output of the plan: only the memory of the value that it replaces
                             is needed, no data; NULL: all outputs need data */
    void **base;          /* per value of the plan: its address */
    void **at;            /* per operand of the plan's steps (fxi_plan.sites): its address */
    const char *bound;    /* kept: the start of the arena when the addresses were computed */
    bool kept;            /* the lists are used again by the next run */
    bool bound_once;      /* kept: an earlier run has filled in the literals */
    fxi_literal_value *literals; /* per literal of the plan: its value as the node has it */
    uint64_t *constants;         /* per literal of the plan: its value, in its type */
    uint64_t (*streams)[2];      /* seeds and counters, in the same block as the constants */
    fxi_node **leaves;
    void *lists;           /* the one allocation that holds all lists above */
    const int32_t *inputs; /* the nodes of the graph that are leaves, literals or streams; NULL: all
                              nodes are searched for them */
    int32_t ninputs;
} fxi_binding;

/* The evaluator of the calling thread, created on first use. NULL: the allocation failed
 * (recorded). */
fxi_scratch *fxi_scratch_of(fxi_context *c);

/* Drops the plan that is kept; s may be NULL. */
void fxi_plan_drop(fxi_scratch *s);

/* The arena that is kept for a device, still owned by the scratch; NULL: none. */
fxi_buffer *fxi_arena_kept(const fxi_scratch *s, const fx_device *device);
/* An arena of at least `bytes` on a device, owned by the caller: the kept one if it is large
 * enough, else a new one that replaces it. NULL: the allocation failed. */
fxi_buffer *fxi_arena_take(fxi_scratch *s, fx_device *device, int64_t bytes);
/* Keeps an arena for the next run on its device, or frees it if the list cannot grow. */
void fxi_arena_keep(fxi_scratch *s, fxi_buffer *arena);

/* ---- bind.c ---------------------------------------------------------------------------------- */
/* Allocates all memory that a run needs, and puts the graph's leaves, literals and random streams
 * into the plan's numbering. If an allocation fails, it frees caches and tries once more. Failures
 * are recorded. */
fx_status fxi_binding_reserve(fxi_binding *b, fxi_scratch *s, const fxi_graph *g);
/* Allocates the lists of a binding for graphs of this size. The caller of fxi_binding_reserve
 * may do this first, to fill `datas` with blocks that the results use. False: the allocation
 * failed. */
bool fxi_binding_alloc(fxi_binding *b, const fxi_graph *g);
/* Writes the value of the literal n, converted to dtype: at most 8 bytes. */
void fxi_put_literal(const fxi_node *n, uint8_t dtype, uint64_t *out);
/* Fills in the address of each value of the plan and of each operand of its steps. */
void fxi_bind_values(fxi_binding *b);
/* Drops the binding's references to the buffers of results, after the run and before the results
 * are handed over: then other threads can use them. The results hold their own references. */
void fxi_binding_let_go(fxi_binding *b);
/* Frees what the run allocated; the arena returns to the scratch. The lists of a kept binding stay,
 * for the next run. */
void fxi_binding_free(fxi_binding *b, fxi_scratch *s);

/* ---- run.c ----------------------------------------------------------------------------------- */
/* Adds a result to the list of n roots; false if the allocation fails. */
bool fxi_root_push(fxi_scratch *s, int32_t *n, fxi_node *node, fxi_node *donor);
/* Records that the list of roots could not grow. */
fx_status fxi_no_roots(void);
/* Evaluates roots, one plan for each device. Changes their order. */
fx_status fxi_run_all(fxi_context *c, int n, fxi_root *roots);

/* Evaluates roots on one device in one plan. */
fx_status fxi_run_roots(fxi_context *c, fxi_scratch *s, int n, const fxi_root *roots);
/* Runs the plan of a binding and counts what it did. On failure, values that were being replaced in
 * place are marked as lost. */
fx_status fxi_run_plan(const fxi_binding *b);

/* ---- old_values.c ---------------------------------------------------------------------------- */
/* Computes the pending values that the roots replace, because of which s->graph could not be built.
 */
fx_status fxi_settle_old_values(fxi_context *c, fxi_scratch *s, int n, const fxi_root *roots);

/* ---- begun.c --------------------------------------------------------------------------------- */
/* At most this many collective steps are begun and not finished; the first of them is finished
 * before a further one is begun. */
enum { FXI_MOST_BEGUN = 64 };
typedef struct fxi_begun_step {
    int32_t step;
    void *ticket; /* what the communicator's `begin` returned */
    void *copies; /* of operand and result in host memory; NULL: it works on those themselves */
} fxi_begun_step;
/* The steps of a run that have been begun and not finished, the oldest first. */
typedef struct fxi_begun {
    int32_t n;
    int32_t soonest; /* the first step that needs one of them finished; if n > 0 */
    fxi_begun_step at[FXI_MOST_BEGUN];
} fxi_begun;
/* Finishes the begun steps that step i needs (i = number of steps: all). Failures are recorded. */
fx_status fxi_finish_now(const fxi_binding *b, int32_t i, fxi_begun *begun);
static inline fx_status fxi_finish_before(const fxi_binding *b, int32_t i, fxi_begun *begun)
{
    return begun->n > 0 && begun->soonest <= i ? fxi_finish_now(b, i, begun) : FX_OK;
}
/* Finishes all begun steps after a failure, which stays the recorded error. */
void fxi_finish_all(const fxi_binding *b, fxi_begun *begun);
/* Begins collective step i. *out_begins false: the caller runs it at once. Fails, which is
 * recorded, if an earlier step that it finishes has failed. */
fx_status fxi_begin_step(const fxi_binding *b, int32_t i, fxi_begun *begun, bool *out_begins);

/* ---- recorded_run.c -------------------------------------------------------------------------- */
/* Call this only if fxi_tape_repeats(c). Do these roots repeat the next evaluation of the recorded
 * training step? They do not include its sinks. */
bool fxi_repeats_run(fxi_context *c, const fxi_scratch *s, int n, const fxi_root *roots);
/* Between fxi_repeats_run and the run: decides which handles of an update keep their nodes
 * (fxi_tape_keep_node). The arguments are those of fxi_commit_nodes. */
void fxi_keep_nodes(fxi_context *c, int n, fx_array *const *handles, fxi_node *const *values,
                    fx_array *const *made);
/* Runs the recorded plan of that evaluation. Results whose handles keep their nodes stay pending.
 */
fx_status fxi_repeat_run(fxi_context *c, fxi_scratch *s);
/* Note an evaluation of the open recorded training step: `begin` before its graph is built (it does
 * nothing if no training step is being recorded), `plan` before each plan runs, `end`
 * afterwards. */
void fxi_note_begin(fxi_context *c, fxi_scratch *s, int n, const fxi_root *roots);
void fxi_note_plan(fxi_context *c, fxi_scratch *s, fxi_plan *plan);
void fxi_note_end(fxi_context *c, fxi_scratch *s, fx_status status);

/* ---- sinks.c --------------------------------------------------------------------------------- */
/* The values that a pending result reads. LOST: one that an earlier update has replaced, so the
 * result cannot be computed any more. REPLACED: no lost value, but one that this update is about to
 * replace. NEITHER: no value of these two kinds. */
enum { FXI_READS_NEITHER, FXI_READS_REPLACED, FXI_READS_LOST };
/* Returns the worst of these answers for the pending node n and the pending nodes that it depends
 * on. The caller must have advanced c->mark. */
uint32_t fxi_what_it_reads(fxi_context *c, fxi_scratch *s, fxi_node *n);
/* Adds pending results that nothing has consumed and that read a value which an update replaces:
 * the values of the handles and staged state. False if an allocation fails. */
bool fxi_sinks_push(fxi_context *c, fxi_scratch *s, int32_t *m, int n, fx_array *const *handles);
/* Notes that this update replaces no value older than `oldest` (0: unknown). A node is calm if it
 * is older than every value that updates replace, so it reads none of them. If `oldest` is less
 * than in the previous call, calm nodes are examined again. */
void fxi_keep_calm(fxi_context *c, uint64_t oldest);

#endif
