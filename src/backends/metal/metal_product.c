/* metal_product.c: large matrix products of Float32 by Metal Performance Shaders (MPS), Apple's
 * library, where it is faster than cflux's kernel.
 *
 * MPS stores matrices by rows, so it computes Cᵀ = op(B)ᵀ·op(A)ᵀ: in memory, a matrix with dense
 * columns is the same as its transpose with dense rows. Products of Float16 stay with cflux's
 * kernel, which adds in Float32: Apple does not say in which type MPS adds.
 */
#include "metal.h"

#include "c_text.h"
#include "gpu_addresses.h"
#include "gpu_product.h"
#include "thread.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the library ----------------------------------------------------------------------------- */

static struct {
    fxi_mutex lock;
    bool tried;
    char why[256]; /* "": MPS can be used */
} mps = {.lock = FXI_MUTEX_INIT};

static void open_mps(const fxi_metal_device *d)
{
    if (fxi_mps_open(mps.why, sizeof mps.why) && !fxi_mtl.suits_mps(d->device))
        snprintf(mps.why, sizeof mps.why, "MPS does not support %s", d->gpu.name);
}

/* Opened with the first product that is large enough: most programs have none. */
static const char *why_no_mps(void)
{
    fxi_mutex_lock(&mps.lock);
    if (!mps.tried)
        open_mps(fxi_metal_device_get());
    mps.tried = true;
    fxi_mutex_unlock(&mps.lock);
    return mps.why;
}

const char *fxi_metal_part(const char *name)
{
    return fxi_same_ignoring_case(name, "MPS") ? why_no_mps() : NULL;
}

/* ---- measuring ------------------------------------------------------------------------------- */

/* Waits for the device, and sets the seconds that the GPU has worked since the previous call. An
 * error stays with the device, for the next call that waits. */
static int wait_for_all(fxi_metal_device *d, double *out_seconds)
{
    const int error = fxi_metal_finish(d);
    fxi_mutex_lock(&d->lock);
    d->error = error ? error : d->error;
    *out_seconds = d->seconds;
    d->seconds = 0;
    fxi_mutex_unlock(&d->lock);
    return error;
}

static bool can_measure(fx_device *device)
{
    (void)device;
    return true;
}

static int start(fx_device *device)
{
    double earlier;
    return wait_for_all(fxi_metal_of(device), &earlier);
}

static int stop(fx_device *device, double *out_seconds)
{
    return wait_for_all(fxi_metal_of(device), out_seconds);
}

static const fxi_gpu_trial trial = {.can = can_measure, .start = start, .stop = stop};

static bool measures(void)
{
    const char *text = getenv("FX_GPU_MEASURE");
    return !text || strcmp(text, "0") != 0;
}

/* ---- which products -------------------------------------------------------------------------- */

/* Making the objects and the encoder of a call takes about as long as LEAST_OPERATIONS operations
 * on a GPU. */
enum { LEAST_OPERATIONS = 1 << 24, MOST_CALLS = 64 };
#define MOST_BYTES (INT64_C(1) << 32)

/* A matrix as MPS sees it. Its rows are the columns in memory. */
typedef struct extent {
    int64_t rows, columns, distance; /* elements from one row to the next */
} extent;

static extent extent_of(const fxi_gpu_product *p, int which)
{
    switch (which) {
    case FXI_GPU_A:
        return p->transpose_a ? (extent){p->m, p->k, p->lda} : (extent){p->k, p->m, p->lda};
    case FXI_GPU_B:
        return p->transpose_b ? (extent){p->k, p->n, p->ldb} : (extent){p->n, p->k, p->ldb};
    default:
        return (extent){p->n, p->m, p->ldc};
    }
}

/* MPS requires that the buffer has `distance` elements for the last row too, so several rows must
 * follow each other without gaps. */
static bool fits(const fxi_gpu_product *p, int which)
{
    const extent e = extent_of(p, which);
    return (e.rows == 1 || e.distance == e.columns) &&
           e.rows <= MOST_BYTES / (int64_t)sizeof(float) / e.columns;
}

static bool takes(const fxi_gpu_product *p)
{
    const double operations = 2.0 * (double)p->m * (double)p->n * (double)p->k;
    bool all = p->dtype == FX_DTYPE_F32 && operations >= LEAST_OPERATIONS &&
               p->batch.n <= MOST_CALLS / p->calls;
    for (int k = 0; k < FXI_GPU_MATRICES; k++)
        all = all && fits(p, k);
    return all;
}

/* ---- calls ----------------------------------------------------------------------------------- */

typedef struct product {
    fxi_gpu_product of;
    fxi_id multiplication, layouts[FXI_GPU_MATRICES];
} product;

static void release(fx_device *device, void *state)
{
    product *p = state;
    (void)device;
    fxi_mtl.release(p->multiplication);
    for (int k = 0; k < FXI_GPU_MATRICES; k++)
        fxi_mtl.release(p->layouts[k]);
    fxi_metal_host->free(p);
}

static const char no_command[] = "commandBuffer";

/* Returns the name of the call that fails; NULL: none. The caller holds the lock. */
static const char *multiply(fxi_metal_device *d, const product *p, char *const *at)
{
    fxi_id matrices[FXI_GPU_MATRICES] = {NULL};
    const fxi_id command = fxi_metal_command(d);
    const char *failed = command ? NULL : no_command;
    for (int k = 0; k < FXI_GPU_MATRICES && !failed; k++) {
        size_t offset;
        const fxi_id buffer = fxi_gpu_address_find(at[k], &offset);
        if (buffer)
            matrices[k] = FXI_SEND_WITH(matrix, FXI_SEND(allocate, fxi_mtl.class.MPSMatrix), buffer,
                                        offset, p->layouts[k]);
        failed = matrices[k] ? NULL : "initWithBuffer:offset:descriptor:";
    }
    if (!failed)
        FXI_SEND_WITH(multiply, p->multiplication, command, matrices[FXI_GPU_B],
                      matrices[FXI_GPU_A], matrices[FXI_GPU_C]);
    for (int k = 0; k < FXI_GPU_MATRICES; k++)
        fxi_mtl.release(matrices[k]);
    return failed;
}

/* A call of MPS for each batch. */
static const char *multiply_all(fxi_metal_device *d, const product *p, void *const *buffers,
                                const char *operation)
{
    const fxi_gpu_batches *batch = &p->of.batch;
    const fxi_gpu_launch launch = {.operation = operation};
    for (int64_t call = 0; call < p->of.calls; call++) {
        char *at[FXI_GPU_MATRICES];
        fxi_gpu_product_addresses(&p->of, call, buffers, at);
        for (int64_t k = 0; k < batch->n; k++) {
            const char *failed = multiply(d, p, at);
            if (failed)
                return failed;
            fxi_gpu_launched(&d->gpu, &launch);
            fxi_gpu_count(&fxi_gpu_counts.calls);
            for (int i = 0; i < FXI_GPU_MATRICES; i++)
                at[i] += batch->stride[i] * (int64_t)sizeof(float);
        }
    }
    return NULL;
}

static fx_status run(fx_device *device, void *state, void *const *buffers, const char *operation)
{
    fxi_metal_device *d = fxi_metal_of(device);
    /* Objects that MPS makes while it encodes belong to the thread's autorelease pool. */
    void *pool = fxi_mtl.push();
    fxi_mutex_lock(&d->lock);
    const char *failed = multiply_all(d, state, buffers, operation);
    fxi_mutex_unlock(&d->lock);
    fxi_mtl.pop(pool);
    const int error = failed == no_command ? FXI_MTL_NO_COMMAND : FXI_MTL_NO_OBJECT;
    return failed ? fxi_gpu_check(&d->gpu, operation, failed, error) : FX_OK;
}

static const fxi_gpu_routine routine = {.run = run, .release = release};

/* Makes the objects that all calls of the step share; false if one is missing. */
static bool make_objects(const fxi_metal_device *d, product *p)
{
    const fxi_gpu_product *of = &p->of;
    bool all = true;
    void *pool = fxi_mtl.push();
    p->multiplication =
        FXI_SEND_WITH(multiplication, FXI_SEND(allocate, fxi_mtl.class.MPSMatrixMultiplication),
                      d->device, of->transpose_b, of->transpose_a, (fxi_ns_uint)of->n,
                      (fxi_ns_uint)of->m, (fxi_ns_uint)of->k, 1.0, 0.0);
    for (int k = 0; k < FXI_GPU_MATRICES; k++) {
        const extent e = extent_of(of, k);
        p->layouts[k] = fxi_mtl.retain(FXI_SEND_WITH(
            layout, fxi_mtl.class.MPSMatrixDescriptor, (fxi_ns_uint)e.rows, (fxi_ns_uint)e.columns,
            (fxi_ns_uint)e.columns * sizeof(float), FXI_MPS_FLOAT32));
        all = all && p->layouts[k];
    }
    fxi_mtl.pop(pool);
    return all && p->multiplication;
}

/* ---- adding ---------------------------------------------------------------------------------- */

/* The names of the ways to compute a step (fxi_gpu_compare). */
enum { BY_KERNEL, BY_MPS };

static void write_key(const fxi_metal_device *d, const fxi_gpu_product *p, char *key, size_t size)
{
    snprintf(key, size,
             "product by MPS, %s, macOS %s, %lldx%lldx%lld, transposed %d %d, %lld times",
             d->gpu.name, d->system, (long long)p->m, (long long)p->n, (long long)p->k,
             p->transpose_a, p->transpose_b, (long long)(p->batch.n * p->calls));
}

static bool add(fxi_gpu_builder *b, const fxi_gpu_product *of)
{
    product *p = fxi_metal_host->alloc(sizeof *p);
    if (!p)
        return false;
    *p = (product){.of = *of};
    if (!make_objects(fxi_metal_of(b->device), p)) {
        release(b->device, p);
        return false;
    }
    fxi_gpu_call *c = fxi_gpu_add_routine(b, &routine, p, FXI_GPU_MATRICES);
    c->calls = (int32_t)(of->batch.n * of->calls);
    for (int k = 0; k < FXI_GPU_MATRICES; k++)
        fxi_gpu_buffer(c, k, (fxi_gpu_role)of->at[k].role, of->at[k].k);
    return true;
}

bool fxi_metal_product_step(fxi_gpu_builder *b)
{
    fxi_gpu_product p;
    char key[400];
    int32_t way;
    if (b->step->cls != FX_CLASS_MATMUL || !fxi_gpu_product_read(b->step, &p) || !takes(&p) ||
        *why_no_mps())
        return false;
    write_key(fxi_metal_of(b->device), &p, key, sizeof key);
    const bool known = fxi_gpu_way_known(fxi_metal_host, key, &way);
    if (known && way == BY_KERNEL)
        return false;
    if (fx_step_has_epilogue(b->step)) {
        fxi_gpu_too_much(b, "an epilogue that MPS does not compute");
        return true;
    }
    if (!add(b, &p))
        return false;
    if (!known && measures()) {
        fxi_gpu_compare(b, &trial, key, BY_MPS);
        fxi_gpu_other_way(b, BY_KERNEL);
        fxi_gpu_matmul(b);
    }
    return true;
}
