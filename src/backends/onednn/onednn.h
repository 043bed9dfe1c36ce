/* onednn.h: shared by the files of the oneDNN plugin. Internal.
 *
 * A step is computed in parts: blocks of images, or for a matrix product blocks of the batch, of
 * rows or of columns. Each part is one call of a primitive that was created for one thread, and
 * cflux's own thread pool runs the parts. oneDNN's threads (GNU OpenMP) are never used: they spin,
 * so a small call becomes a thousand times slower if another process uses the cores. The division
 * of a step depends on its sizes alone, so results are the same for any number of threads.
 */
#ifndef CFLUX_ONEDNN_H
#define CFLUX_ONEDNN_H

#include "onednn_api.h"
#include "kernel_library.h"

extern const fxi_kernel_host *fxi_onednn_host;
extern dnnl_engine_t fxi_onednn_engine;

/* Called before and after every call that creates or executes a primitive. In between, OpenMP uses
 * only the calling thread; afterwards the program's own number of threads is set again. */
int fxi_onednn_enter(void);
void fxi_onednn_leave(int before);

fx_status fxi_onednn_status(dnnl_status_t s);
dnnl_data_type_t fxi_onednn_type(int dtype); /* dnnl_data_type_undef: not supported */

/* A primitive, and the size of its scratchpad in bytes. */
typedef struct fxi_primitive {
    dnnl_primitive_t call;
    int64_t scratch;
    md_ref scratch_md; /* owned by pd */
    dnnl_primitive_desc_t pd;
} fxi_primitive;

/* Creates the primitive of pd and takes pd, also on failure. If oneDNN has only a slow
 * implementation, returns FX_STATUS_UNSUPPORTED. */
fx_status fxi_primitive_create(fxi_primitive *p, dnnl_primitive_desc_t pd);
void fxi_primitive_free(fxi_primitive *p);

/* An argument of a call: DNNL_ARG_…, its layout, its address. */
typedef struct fxi_onednn_arg {
    int which;
    md_ref as;
    void *at;
} fxi_onednn_arg;
/* Runs a primitive. scratch: p->scratch bytes. */
fx_status fxi_primitive_run(const fxi_primitive *p, int n, const fxi_onednn_arg *args,
                            void *scratch);

/* A conversion between two layouts of the same values; p->call is NULL if they are the same
 * layout. */
fx_status fxi_reorder_create(fxi_primitive *p, md_ref from, md_ref to);

/* The attributes of every primitive: the caller provides scratchpads. */
dnnl_status_t fxi_onednn_attr(dnnl_primitive_attr_t *out);

/* Runs part(user, k, scratch) for all k < n, each with `bytes` of scratch. Returns FX_OK,
 * FX_STATUS_MEMORY, or the status of a part that failed. */
typedef fx_status (*fxi_onednn_part)(void *user, int64_t k, void *scratch);
fx_status fxi_onednn_parts(int64_t n, int64_t bytes, fxi_onednn_part part, void *user);

fx_status fxi_onednn_conv_prepare(const fx_step *step, fxi_kernel_ready **out);
fx_status fxi_onednn_matmul_prepare(const fx_step *step, fxi_kernel_ready **out);

/* A prepared step: the functions that run and free it. */
typedef struct fxi_onednn_ready {
    fxi_kernel_ready base;
    fx_status (*run)(const void *self, const void *const *in, void *out, void *work);
    void (*release)(void *self);
} fxi_onednn_ready;

/* Can the plugin compute the step's epilogue? Yes if there is none, or if it only adds a Float32
 * bias along an axis. oneDNN's activation functions are not used, because they lose NaN.
 */
bool fxi_onednn_epilogue(const fx_step *step, int axis);

static inline int64_t fxi_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
static inline int64_t fxi_most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

#endif
