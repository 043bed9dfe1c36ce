/* gpu_whole.h: declarations of the files that run plans as a whole: gpu_whole.c keeps the
 * recordings, gpu_graph.c makes one, gpu_stage.c runs plans with addresses that no recording has.
 * Internal. docs/design/0052 gives the reasons.
 */
#ifndef CFLUX_GPU_WHOLE_H
#define CFLUX_GPU_WHOLE_H

#include "gpu_device.h"

/* Consecutive steps. Some are recorded together, one graph for each part; between them are steps
 * that a driver cannot record. */
typedef struct fxi_gpu_part {
    int32_t first, end; /* steps of the plan */
    bool recorded;
    bool checks;               /* a kernel may write to the fault words */
    bool mixed;                /* its steps have several operations */
    int32_t launches, library; /* launches, and those of them that are calls of a library */
} fxi_gpu_part;

/* The graphs of a plan for one set of addresses. */
typedef struct fxi_gpu_recording {
    void **graphs;       /* per part; NULL: the part is launched */
    void **values;       /* the addresses, per value */
    const void *streams; /* the address of the random streams */
    uint64_t used;       /* the number of the run that used it last */
    bool replayed;       /* a later run than the one that made it has replayed it */
} fxi_gpu_recording;

/* Memory of the plan into which values with changing addresses are copied (gpu_stage.c). */
typedef struct fxi_gpu_region {
    int32_t value;
    int64_t at, bytes; /* offset and size in that memory */
    bool in, out;      /* copied before the run, after the run */
} fxi_gpu_region;

typedef struct fxi_gpu_stage {
    char *memory; /* device memory; NULL: nothing is staged */
    fxi_gpu_region *regions;
    int32_t nregions;
    int32_t *region_of; /* per value; −1: its address does not change; −2: no step uses it */
    void **values;      /* the addresses with which the recording was made */
    fxi_gpu_recording made; /* made.values: addresses to compare */
    bool refused;
} fxi_gpu_stage;

enum {
    FXI_GPU_RECORDINGS = 4,
    /* After this many recordings of a plan were freed without a replay, it gets no more: recording
     * costs more than launching. */
    FXI_GPU_USELESS = 8
};

/* Whether the steps read or write a value. A plan that is a part of a larger one has values that
 * only steps of the other parts use: their addresses do not matter here. */
typedef struct fxi_gpu_use {
    bool read, written;
} fxi_gpu_use;

static inline bool fxi_gpu_is_used(const fxi_gpu_use *u)
{
    return u->read || u->written;
}

/* fx_plan.ready */
typedef struct fxi_gpu_whole {
    fxi_gpu_part *parts;
    int32_t nparts, launches;
    fxi_gpu_use *uses; /* per value */
    int32_t arena;     /* a value in the run's temporary memory; −1: there is none */
    uint64_t runs;     /* begun so far */
    uint64_t freed;    /* the value of fxi_gpu_device.freed at the latest comparison */
    bool refused;      /* nothing more is recorded */
    int32_t useless;   /* recordings that were freed without having been replayed */
    fxi_gpu_recording recordings[FXI_GPU_RECORDINGS];
    int32_t nrecordings;
    fxi_gpu_stage stage;
    void **in, **out; /* space for the addresses of one step */
} fxi_gpu_whole;

/* ---- gpu_graph.c ----------------------------------------------------------------------------- */

/* Launches the steps of a part. On failure *out_step is the step. */
fx_status fxi_gpu_launch_part(fx_device *device, const fx_plan *plan, const fxi_gpu_part *part,
                              void *const *values, fx_run *run, int32_t *out_step);
/* Records the plan with these addresses. False: the driver failed; no error is recorded, and the
 * recording has no graphs. The caller has allocated out->graphs. */
bool fxi_gpu_record(fx_device *device, const fx_plan *plan, void *const *values, fx_run *run,
                    fxi_gpu_recording *out);
/* Frees the graphs. */
void fxi_gpu_drop(fx_device *device, const fxi_gpu_whole *w, fxi_gpu_recording *r);

/* ---- gpu_stage.c ----------------------------------------------------------------------------- */

/* Is there a stage for these addresses? If there is none, makes one, with a recording, if copies
 * are worth it. */
bool fxi_gpu_stage_for(fx_device *device, const fx_plan *plan, void *const *values, fx_run *run);
/* Copies into the stage (out: back from it). */
fx_status fxi_gpu_stage_copy(fx_device *device, const fxi_gpu_stage *s, void *const *values,
                             bool out);
/* device NULL: only the host's memory is freed. */
void fxi_gpu_stage_free(fx_device *device, const fxi_gpu_whole *w, fxi_gpu_stage *s,
                        const fx_host *host);

#endif
