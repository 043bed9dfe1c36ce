/* onednn.h: what the files of the plugin share. Internal.
 *
 * A step is computed in parts: blocks of images, of matrix columns. Each part is one call of a
 * primitive that was created for one thread, and the library's own pool runs the parts. oneDNN's
 * threads (GNU OpenMP) are never used: they spin, which with another process on the cores makes a
 * small call a thousand times slower; and how a step is divided depends on its sizes alone, so
 * results are the same for any number of threads.
 */
#ifndef CFLUX_ONEDNN_H
#define CFLUX_ONEDNN_H

#include "onednn_api.h"
#include "kernel_library.h"

extern const fxi_kernel_host *fxi_onednn_host;
extern dnnl_engine_t fxi_onednn_engine;

/* Around every call that creates or executes: OpenMP's number of threads for this thread is 1
 * inside, and the program's own again afterwards. */
int fxi_onednn_enter(void);
void fxi_onednn_leave(int before);

fx_status fxi_onednn_status(dnnl_status_t s);
dnnl_data_type_t fxi_onednn_type(int dtype); /* undef: none */

/* A primitive with its scratchpad's size. */
typedef struct fxi_primitive {
    dnnl_primitive_t call;
    int64_t scratch;
    md_ref scratch_md; /* of pd */
    dnnl_primitive_desc_t pd;
} fxi_primitive;

/* Takes over pd, also when it fails. A slow reference implementation is FX_STATUS_UNSUPPORTED. */
fx_status fxi_primitive_create(fxi_primitive *p, dnnl_primitive_desc_t pd);
void fxi_primitive_free(fxi_primitive *p);

/* An argument of a call: DNNL_ARG_…, how it lies, and where. */
typedef struct fxi_onednn_arg {
    int which;
    md_ref as;
    void *at;
} fxi_onednn_arg;
/* scratch: p->scratch bytes. */
fx_status fxi_primitive_run(const fxi_primitive *p, int n, const fxi_onednn_arg *args,
                            void *scratch);

/* Reorders between two layouts of the same values; p->call stays NULL when they are the same. */
fx_status fxi_reorder_create(fxi_primitive *p, md_ref from, md_ref to);

/* Attributes of every primitive: scratchpads are ours. */
dnnl_primitive_attr_t fxi_onednn_attr(void);

/* Runs part(user, k, scratch), which returns a status, for all k < n, with so many bytes of scratch
 * each; some failure, or FX_OK. */
typedef fx_status (*fxi_onednn_part)(void *user, int64_t k, void *scratch);
fx_status fxi_onednn_parts(int64_t n, int64_t bytes, fxi_onednn_part part, void *user);

fx_status fxi_onednn_conv_prepare(const fx_step *step, fxi_kernel_ready **out);
fx_status fxi_onednn_matmul_prepare(const fx_step *step, fxi_kernel_ready **out);

/* Prepared steps: how they run and go. */
typedef struct fxi_onednn_ready {
    fxi_kernel_ready base;
    fx_status (*run)(const void *self, const void *const *in, void *out, void *work);
    void (*release)(void *self);
} fxi_onednn_ready;

/* The epilogues that are taken: none, or one addition of a Float32 bias along an axis. Functions
 * are not: oneDNN's lose NaN. */
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
