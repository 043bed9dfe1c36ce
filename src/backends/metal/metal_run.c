/* metal_run.c: encodes kernels, and defines the table of functions that the code shared by all GPU
 * backends calls (gpu_device.h).
 */
#include "metal.h"

#include "gpu_addresses.h"

#include <stdio.h>
#include <string.h>

/* The argument after the buffers: the offsets of the buffers, followed by the parameters. Its size
 * is a multiple of 8 bytes, like that of the kernel's structure. */
typedef struct arguments {
    int64_t words[FXI_MTL_BYTES / 8];
    size_t bytes;
} arguments;

/* Binds a buffer unless the encoder has it at that index. An encoder keeps its buffers alive, so
 * no other buffer can have the same address. */
static void bind(fxi_metal_device *d, fxi_id encoder, fxi_id buffer, int index)
{
    if (d->bound[index] == buffer)
        return;
    FXI_SEND_WITH(set_buffer, encoder, buffer, 0, (fxi_ns_uint)index);
    d->bound[index] = buffer;
}

/* Binds all buffers; false if an address is not one of the backend's. */
static bool bind_all(fxi_metal_device *d, fxi_id encoder, const fxi_gpu_launch *l, arguments *a)
{
    for (int k = 0; k < l->nbuffers; k++) {
        size_t offset;
        const fxi_id buffer = fxi_gpu_address_find(l->buffers[k], &offset);
        if (!buffer)
            return false;
        a->words[k] = (int64_t)offset;
        bind(d, encoder, buffer, k);
    }
    return true;
}

static void set_arguments(const fxi_gpu_launch *l, arguments *a)
{
    /* C has no arrays without elements, so a kernel without buffers has one offset too. */
    const size_t offsets = l->nbuffers > 0 ? (size_t)l->nbuffers : 1;
    a->words[0] = 0;
    const size_t words = offsets + (l->param_bytes + 7) / 8;
    /* The parameters may fill only half of the final word. */
    a->words[words - 1] = 0;
    memcpy(&a->words[offsets], l->params, l->param_bytes);
    a->bytes = 8 * words;
}

/* Returns the name of the call that fails; NULL: none. The caller holds the lock. */
static const char *encode(fxi_metal_device *d, const fxi_gpu_launch *l)
{
    arguments a;
    const fxi_id encoder = fxi_metal_compute(d);
    if (!encoder)
        return "computeCommandEncoder";
    set_arguments(l, &a);
    FXI_SEND_WITH(set_pipeline, encoder, l->kernel);
    if (!bind_all(d, encoder, l, &a))
        return "setBuffer";
    FXI_SEND_WITH(set_bytes, encoder, a.words, a.bytes, (fxi_ns_uint)l->nbuffers);
    /* setBytes replaces the buffer at this index. */
    d->bound[l->nbuffers] = NULL;
    FXI_SEND_WITH(dispatch, encoder, (fxi_mtl_size){l->groups[0], l->groups[1], l->groups[2]},
                  (fxi_mtl_size){(fxi_ns_uint)l->group, 1, 1});
    return NULL;
}

static fx_status launch(fx_device *device, const fxi_gpu_launch *l)
{
    fxi_metal_device *d = fxi_metal_of(device);
    /* Only a mistake in the shared code leads here: fxi_gpu_kernel checks the limits. */
    if (l->nbuffers >= FXI_MTL_BUFFERS ||
        (size_t)l->nbuffers * 8 + l->param_bytes + 16 > FXI_MTL_BYTES) {
        char text[96];
        snprintf(text, sizeof text,
                 "a kernel with %d buffers and %zu bytes of parameters exceeds Metal's limits",
                 (int)l->nbuffers, l->param_bytes);
        return fxi_metal_host->fail(FX_STATUS_INTERNAL, l->operation, text);
    }
    fxi_mutex_lock(&d->lock);
    const char *failed = encode(d, l);
    fxi_mutex_unlock(&d->lock);
    if (failed)
        return fxi_gpu_check(&d->gpu, l->operation, failed, FXI_MTL_NO_COMMAND);
    fxi_gpu_launched(&d->gpu, l);
    return FX_OK;
}

/* ---- the driver ------------------------------------------------------------------------------ */

/* After other errors, for example a page fault, later command buffers still run. */
static fxi_gpu_error_kind kind_of(int error)
{
    return error == FXI_MTL_OUT_OF_MEMORY ? FXI_GPU_ERROR_MEMORY
           : error == FXI_MTL_DEVICE_REMOVED || error == FXI_MTL_ACCESS_REVOKED
               ? FXI_GPU_ERROR_LOSS
               : FXI_GPU_ERROR_OTHER;
}

static void submit(fx_device *device)
{
    fxi_metal_commit(fxi_metal_of(device));
}

/* Commits, because a mark must be reached even if `submit` is not called. The only queue is in
 * order, so a mark needs no object, and later work need not wait for it. */
static void *mark(fx_device *device)
{
    fxi_metal_commit(fxi_metal_of(device));
    return device;
}

static fx_status wait_for_mark(fx_device *device, void *mark)
{
    (void)device, (void)mark;
    return FX_OK;
}

static void unmark(fx_device *device, void *mark)
{
    (void)device, (void)mark;
}

fxi_gpu_driver fxi_metal_driver = {
    .kind = "metal",
    .runtime = FXI_GPU_RUNTIME(FXI_GPU_METAL, launch, fxi_metal_product_step),
    .compile = fxi_metal_compile,
    .binary = fxi_metal_binary,
    .load = fxi_metal_load,
    .function = fxi_metal_function_of,
    .alloc = fxi_metal_alloc,
    .free = fxi_metal_free,
    .write = fxi_metal_write,
    .read = fxi_metal_read,
    .copy = fxi_metal_copy,
    .fill = fxi_metal_fill,
    .available = fxi_metal_available,
    .submit = submit,
    .finish = fxi_metal_finish,
    .finish_call = FXI_METAL_FINISH,
    .mark = mark,
    .wait = wait_for_mark,
    .unmark = unmark,
    .error_kind = kind_of,
    .error_name = fxi_mtl_error_name};
