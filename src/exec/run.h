/* run.h: what the files of this folder share: a thread's evaluator and one run of a plan. Internal.
 */
#ifndef CFLUX_RUN_H
#define CFLUX_RUN_H

#include "evaluate.h"
#include "planning.h"

typedef struct fxi_scratch {
    fxi_graph graph;
    fxi_root *roots;
    int32_t root_capacity;
    fxi_buffer **arenas; /* work space that no run uses: at most one a device, kept for the next */
    int32_t narenas, arena_capacity;
    bool running;             /* the steps of a plan are running */
    const fxi_node **foreign; /* values of other threads that an update replaces, sorted */
    int32_t nforeign, foreign_capacity;
    uint64_t oldest; /* values that the update replaces are this old at most; 0: unknown */
} fxi_scratch;

/* What one run brings along. */
typedef struct fxi_binding {
    const fxi_plan *plan;
    fxi_buffer *arena;      /* work space; NULL: the plan needs none */
    fxi_buffer **buffers;   /* output buffers */
    fxi_data **datas;       /* per output */
    void **base;            /* per value */
    const void **in;        /* operand pointers of one step */
    void **out;             /* output pointers of a foreach step */
    uint64_t *constants;    /* per slot, in its type */
    uint64_t (*streams)[2]; /* behind them */
    fxi_node **leaves;
} fxi_binding;

/* The calling thread's evaluator, made on first use. NULL: no memory (recorded). */
fxi_scratch *fxi_scratch_of(fxi_context *c);

/* The work space that is kept for a device, still owned by the scratch; NULL: none. */
fxi_buffer *fxi_arena_kept(const fxi_scratch *s, const fx_device *device);
/* At least `bytes` of work space on a device, now the caller's: the one that is kept if it is large
 * enough, else a new one in its stead. NULL: no memory. */
fxi_buffer *fxi_arena_take(fxi_scratch *s, fx_device *device, int64_t bytes);
/* Keeps it for the next run on its device, or frees it if there is no memory for the list. */
void fxi_arena_keep(fxi_scratch *s, fxi_buffer *arena);

/* ---- bind.c ---------------------------------------------------------------------------------- */
/* Allocates all that a run needs, and binds the graph's leaves, literals and random streams to the
 * plan's numbering. If memory is out, it makes room and tries once more. Recorded on failure. */
fx_status fxi_binding_reserve(fxi_binding *b, fxi_scratch *s, const fxi_graph *g);
/* The address of each value of the plan. */
void fxi_bind_values(fxi_binding *b);
/* Frees what the run allocated; the work space goes back to the scratch. */
void fxi_binding_free(fxi_binding *b, fxi_scratch *s);

/* ---- run.c ----------------------------------------------------------------------------------- */
/* Adds a result to the scratch's list of n roots; false if memory is out. */
bool fxi_root_push(fxi_scratch *s, int32_t *n, fxi_node *node, fxi_node *donor);
/* Records that memory for the list of roots is out. */
fx_status fxi_no_roots(void);
/* Evaluates roots, device by device; reorders them. */
fx_status fxi_run_all(fxi_context *c, int n, fxi_root *roots);

/* ---- sinks.c --------------------------------------------------------------------------------- */
/* What a pending result reads, the worst of it: nothing of this, a value that is about to be
 * replaced, or a value that an earlier update has replaced, so that it cannot be computed. */
enum { FXI_READS_NEITHER, FXI_READS_REPLACED, FXI_READS_LOST };
/* The answer for the pending graph behind n; c->mark is that of this question. */
uint32_t fxi_what_it_reads(fxi_context *c, fxi_scratch *s, fxi_node *n);
/* Adds the pending results that nothing consumed and that read what an update replaces: the values
 * of the handles and staged state. False if memory is out. */
bool fxi_sinks_push(fxi_context *c, fxi_scratch *s, int32_t *m, int n, fx_array *const *handles);
/* No update replaces values older than `oldest` from now on, 0: any may be replaced. */
void fxi_keep_calm(fxi_context *c, uint64_t oldest);

#endif
