/* sim_metal_queue.c: the simulated Metal: the queue, command buffers and encoders. A command buffer
 * runs when it is committed; with SIM_DEFER=1 when something waits for it. A test makes the third
 * one fail with "commit@3=3" (sim.h), and all from then on with "commit@3=11!".
 */
#include "sim_metal.h"

#include <stdlib.h>
#include <string.h>

/* One piece of work. */
typedef struct work {
    struct work *next;
    bool fills;
    sim_mtl_buffer *to, *from;
    size_t to_offset, from_offset, bytes;
    unsigned char value;
    sim_launch *launch;
    sim_mtl_task task; /* without `run` and without a launch: a copy or a fill */
    sim_mtl_buffer *buffers[FXI_MTL_BUFFERS];
    void *addresses[FXI_MTL_BUFFERS];
    char block[FXI_MTL_BYTES] __attribute__((aligned(16)));
} work;

typedef struct command {
    sim_object head;
    struct queue *queue;
    struct command *next;
    work *first, **last;
    bool encoding, committed, done;
    int error;
    int64_t microseconds; /* of the simulated GPU */
} command;

typedef struct queue {
    sim_object head;
    command *first, **last; /* committed and not run */
    int waiting, lost;
} queue;

typedef struct encoder {
    sim_object head;
    command *command;
    bool ended;
    const sim_mtl_pipeline *pipeline;
    sim_mtl_buffer *buffers[FXI_MTL_BUFFERS];
    size_t offsets[FXI_MTL_BUFFERS], bytes;
    fxi_ns_uint block_at; /* index of `block` */
    char block[FXI_MTL_BYTES];
} encoder;

/* ---- running --------------------------------------------------------------------------------- */

static int run_work(work *w)
{
    if ((w->task.run || w->launch) && sim_computes_nothing())
        return 0;
    if (w->task.run) {
        w->task.run(w->task.data);
        return 0;
    }
    if (w->launch)
        switch (sim_run(w->launch)) {
        case SIM_OK:
            return 0;
        case SIM_ILLEGAL_ADDRESS:
            return FXI_MTL_PAGE_FAULT;
        default:
            return FXI_MTL_TIMEOUT;
        }
    if (!w->to)
        return 0;
    if (w->fills)
        memset(w->to->bytes + w->to_offset, w->value, w->bytes);
    else
        memmove(w->to->bytes + w->to_offset, w->from->bytes + w->from_offset, w->bytes);
    return 0;
}

/* Runs the oldest command buffer. */
static void run_first(queue *q)
{
    command *c = q->first;
    bool lost = false;
    q->first = c->next;
    if (!q->first)
        q->last = &q->first;
    q->waiting--;
    c->error = q->lost ? q->lost : sim_script("commit", &lost);
    q->lost = lost ? c->error : q->lost;
    sim_mtl_lock();
    for (work *w = c->first; w && !c->error; w = w->next)
        c->error = run_work(w);
    sim_mtl_unlock();
    c->done = true;
    /* The queue's own reference. */
    sim_release(c);
}

static void free_work(command *c)
{
    for (work *w = c->first, *next; w; w = next) {
        next = w->next;
        sim_release(w->to);
        sim_release(w->from);
        for (int k = 0; k < FXI_MTL_BUFFERS; k++)
            sim_release(w->buffers[k]);
        if (w->task.end)
            w->task.end(w->task.data);
        free(w->launch);
        free(w);
    }
    c->first = NULL;
}

static work *append_work(command *c)
{
    work *w = calloc(1, sizeof *w);
    if (!w)
        abort();
    *c->last = w;
    c->last = &w->next;
    return w;
}

static work *add_work(encoder *e)
{
    if (e->ended || e->command->committed)
        sim_mistake("work is encoded after the end of the encoder");
    return append_work(e->command);
}

/* ---- encoders of kernels --------------------------------------------------------------------- */

static void encoder_end(fxi_id self, fxi_sel sel)
{
    encoder *e = (encoder *)self;
    (void)sel;
    if (e->ended)
        sim_mistake("an encoder ends twice");
    e->ended = true;
    e->command->encoding = false;
}

static void encoder_dealloc(sim_object *o)
{
    const encoder *e = (encoder *)o;
    if (!e->ended)
        sim_mistake("an encoder is freed before its end");
    for (int k = 0; k < FXI_MTL_BUFFERS; k++)
        sim_release(e->buffers[k]);
    sim_release(e->command);
}

static void compute_pipeline(fxi_id self, fxi_sel sel, fxi_id pipeline)
{
    (void)sel;
    if (!sim_is(pipeline, &sim_mtl_pipeline_class))
        sim_mistake("setComputePipelineState: of something else");
    ((encoder *)self)->pipeline = (sim_mtl_pipeline *)pipeline;
}

static void compute_buffer(fxi_id self, fxi_sel sel, fxi_id buffer, fxi_ns_uint offset,
                           fxi_ns_uint index)
{
    encoder *e = (encoder *)self;
    (void)sel;
    if (index >= FXI_MTL_BUFFERS || !sim_is(buffer, &sim_mtl_buffer_class)) {
        sim_mistake("setBuffer: of something else, or at the index %lu", index);
        return;
    }
    sim_retain(buffer);
    sim_release(e->buffers[index]);
    e->buffers[index] = (sim_mtl_buffer *)buffer;
    e->offsets[index] = offset;
}

static void compute_bytes(fxi_id self, fxi_sel sel, const void *bytes, fxi_ns_uint length,
                          fxi_ns_uint index)
{
    encoder *e = (encoder *)self;
    (void)sel;
    if (index >= FXI_MTL_BUFFERS || length == 0 || length > FXI_MTL_BYTES) {
        sim_mistake("setBytes: of %lu bytes at the index %lu", length, index);
        return;
    }
    memcpy(e->block, bytes, length);
    e->bytes = length;
    e->block_at = index;
    /* setBytes replaces the buffer at this index. */
    sim_release(e->buffers[index]);
    e->buffers[index] = NULL;
}

/* Stores the arguments of a launch: addresses of the buffers, and the block. */
static bool take_arguments(const encoder *e, work *w)
{
    const int *sizes = e->pipeline->kernel->sizes;
    for (int k = 0; sizes[k]; k++) {
        if (sizes[k] < 0 && e->buffers[k]) {
            w->buffers[k] = (sim_mtl_buffer *)sim_retain(e->buffers[k]);
            w->addresses[k] = sim_mtl_device.addresses +
                              (e->buffers[k]->bytes - sim_mtl_device.bytes) + e->offsets[k];
            w->launch->arguments[k] = &w->addresses[k];
        } else if (sizes[k] > 0 && e->block_at == (fxi_ns_uint)k && e->bytes == (size_t)sizes[k]) {
            memcpy(w->block, e->block, e->bytes);
            w->launch->arguments[k] = w->block;
        } else {
            sim_mistake("%s: argument %d is not bound, or has another size than %d bytes",
                        e->pipeline->kernel->name, k, sizes[k]);
            return false;
        }
    }
    return true;
}

static void compute_dispatch(fxi_id self, fxi_sel sel, fxi_mtl_size groups, fxi_mtl_size items)
{
    encoder *e = (encoder *)self;
    (void)sel;
    if (!e->pipeline ||
        items.width * items.height * items.depth > sim_kernel_items(e->pipeline->kernel) ||
        groups.width * groups.height * groups.depth == 0) {
        sim_mistake("a launch without a pipeline or groups, or with %lu work-items of a group",
                    items.width * items.height * items.depth);
        return;
    }
    sim_launch *l = calloc(1, sizeof *l);
    work *w = add_work(e);
    if (!l)
        abort();
    *l = (sim_launch){
        .kernel = e->pipeline->kernel,
        .groups = {(unsigned)groups.width, (unsigned)groups.height, (unsigned)groups.depth},
        .items = {(unsigned)items.width, (unsigned)items.height, (unsigned)items.depth}};
    w->launch = l;
    e->command->microseconds += sim_setting("SIM_KERNEL_TIME", 100);
    if (!take_arguments(e, w)) {
        /* Nothing to run. */
        free(l);
        w->launch = NULL;
    }
}

static const sim_method compute_methods[] = {
    SIM_METHOD(end, "endEncoding", encoder_end),
    SIM_METHOD(set_pipeline, "setComputePipelineState:", compute_pipeline),
    SIM_METHOD(set_buffer, "setBuffer:offset:atIndex:", compute_buffer),
    SIM_METHOD(set_bytes, "setBytes:length:atIndex:", compute_bytes),
    SIM_METHOD(dispatch, "dispatchThreadgroups:threadsPerThreadgroup:", compute_dispatch),
    {NULL, NULL}};
static const sim_class compute_class = {"MTLComputeCommandEncoder", compute_methods,
                                        encoder_dealloc, false};

/* ---- encoders of copies ---------------------------------------------------------------------- */

/* Copies and fills on macOS: whole multiples of 4 bytes, within the buffer. */
static bool is_range(const sim_object *buffer, fxi_ns_uint offset, fxi_ns_uint bytes)
{
    const bool right = sim_is(buffer, &sim_mtl_buffer_class) && offset % 4 == 0 && bytes % 4 == 0 &&
                       bytes > 0 && offset + bytes <= ((const sim_mtl_buffer *)buffer)->size;
    if (!right)
        sim_mistake("a copy or fill of %lu bytes at the offset %lu of a buffer", bytes, offset);
    return right;
}

static void blit_copy(fxi_id self, fxi_sel sel, fxi_id from, fxi_ns_uint from_offset, fxi_id to,
                      fxi_ns_uint to_offset, fxi_ns_uint bytes)
{
    (void)sel;
    if (!is_range(from, from_offset, bytes) || !is_range(to, to_offset, bytes))
        return;
    work *w = add_work((encoder *)self);
    w->to = (sim_mtl_buffer *)sim_retain(to);
    w->from = (sim_mtl_buffer *)sim_retain(from);
    w->to_offset = to_offset;
    w->from_offset = from_offset;
    w->bytes = bytes;
}

static void blit_fill(fxi_id self, fxi_sel sel, fxi_id to, fxi_ns_range range, uint8_t value)
{
    (void)sel;
    if (!is_range(to, range.location, range.length))
        return;
    work *w = add_work((encoder *)self);
    w->to = (sim_mtl_buffer *)sim_retain(to);
    w->to_offset = range.location;
    w->bytes = range.length;
    w->value = value;
    w->fills = true;
}

static const sim_method blit_methods[] = {
    SIM_METHOD(end, "endEncoding", encoder_end),
    SIM_METHOD(copy, "copyFromBuffer:sourceOffset:toBuffer:destinationOffset:size:", blit_copy),
    SIM_METHOD(fill, "fillBuffer:range:value:", blit_fill),
    {NULL, NULL}};
static const sim_class blit_class = {"MTLBlitCommandEncoder", blit_methods, encoder_dealloc, false};

/* ---- command buffers ------------------------------------------------------------------------- */

static fxi_id encoder_new(fxi_id self, const sim_class *class)
{
    command *c = (command *)self;
    if (c->encoding || c->committed)
        sim_mistake("an encoder is made while another one is open, or after the commit");
    encoder *e = sim_object_new(class, sizeof *e);
    e->command = (command *)sim_retain(c);
    e->block_at = FXI_MTL_BUFFERS;
    c->encoding = true;
    return sim_autorelease(e);
}

static fxi_id command_compute(fxi_id self, fxi_sel sel)
{
    bool lost;
    (void)sel;
    return sim_script("computeCommandEncoder", &lost) ? NULL : encoder_new(self, &compute_class);
}

static fxi_id command_blit(fxi_id self, fxi_sel sel)
{
    bool lost;
    (void)sel;
    return sim_script("blitCommandEncoder", &lost) ? NULL : encoder_new(self, &blit_class);
}

static void command_commit(fxi_id self, fxi_sel sel)
{
    command *c = (command *)sim_retain(self);
    queue *q = c->queue;
    (void)sel;
    if (c->encoding || c->committed)
        sim_mistake("a command buffer is committed twice, or while an encoder is open");
    c->committed = true;
    *q->last = c;
    q->last = &c->next;
    q->waiting++;
    while (q->first && (!sim_setting("SIM_DEFER", 0) || q->waiting > SIM_MTL_COMMANDS))
        run_first(q);
}

static void command_await(fxi_id self, fxi_sel sel)
{
    const command *c = (command *)self;
    (void)sel;
    if (!c->committed)
        sim_mistake("something waits for a command buffer that was not committed");
    while (c->committed && !c->done)
        run_first(c->queue);
}

static fxi_ns_uint command_status(fxi_id self, fxi_sel sel)
{
    enum { NOT_ENQUEUED, COMMITTED = 2, COMPLETED = 4 };
    const command *c = (command *)self;
    (void)sel;
    return !c->committed ? NOT_ENQUEUED
           : !c->done    ? COMMITTED
           : c->error    ? FXI_MTL_STATUS_ERROR
                         : COMPLETED;
}

static fxi_id command_error(fxi_id self, fxi_sel sel)
{
    const command *c = (command *)self;
    (void)sel;
    return c->error ? sim_mtl_error(c->error, "the command buffer failed") : NULL;
}

static double command_gpu_start(fxi_id self, fxi_sel sel)
{
    (void)self, (void)sel;
    return 1;
}

static double command_gpu_end(fxi_id self, fxi_sel sel)
{
    const command *c = (command *)self;
    (void)sel;
    if (!c->done)
        sim_mistake("the time of a command buffer that has not ended");
    return 1 + 1e-6 * (double)c->microseconds;
}

static void command_dealloc(sim_object *o)
{
    free_work((command *)o);
}

static const sim_method command_methods[] = {
    SIM_METHOD(compute, "computeCommandEncoder", command_compute),
    SIM_METHOD(blit, "blitCommandEncoder", command_blit),
    SIM_METHOD(commit, "commit", command_commit),
    SIM_METHOD(await, "waitUntilCompleted", command_await),
    SIM_METHOD(status, "status", command_status),
    SIM_METHOD(error, "error", command_error),
    SIM_METHOD(gpu_start, "GPUStartTime", command_gpu_start),
    SIM_METHOD(gpu_end, "GPUEndTime", command_gpu_end),
    {NULL, NULL}};
static const sim_class command_class = {"MTLCommandBuffer", command_methods, command_dealloc,
                                        false};

void sim_mtl_add_task(fxi_id object, const sim_mtl_task *task)
{
    command *c = (command *)object;
    if (!sim_is(object, &command_class) || c->encoding || c->committed)
        sim_mistake("work is added to something else than a command buffer without an encoder");
    work *w = append_work(c);
    w->task = *task;
    c->microseconds += task->microseconds;
}

static fxi_id queue_command(fxi_id self, fxi_sel sel)
{
    bool lost;
    (void)sel;
    if (sim_script("commandBuffer", &lost))
        return NULL;
    command *c = sim_object_new(&command_class, sizeof *c);
    c->queue = (queue *)self;
    c->last = &c->first;
    return sim_autorelease(c);
}

static const sim_method queue_methods[] = {SIM_METHOD(command, "commandBuffer", queue_command),
                                           {NULL, NULL}};
static const sim_class queue_class = {"MTLCommandQueue", queue_methods, NULL, true};

fxi_id sim_mtl_queue_new(void)
{
    queue *q = sim_object_new(&queue_class, sizeof *q);
    q->last = &q->first;
    return &q->head;
}
