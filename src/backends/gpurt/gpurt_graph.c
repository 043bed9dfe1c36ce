/* gpurt_graph.c: records launches as graphs of the driver, which replays them with one call
 * (fxi_gpu_driver.record).
 *
 * The driver records what is queued in a stream, and in streams that wait for it: the branches.
 * These are streams of their own, in which nothing else is ever queued: other threads continue to
 * use the stream `work` during a recording. All calls are made under the device's lock.
 */
#include "gpurt.h"

#include <string.h>

struct fxi_rt_recorder {
    fxi_rt_stream branches[FXI_GPU_BRANCHES];
    fxi_rt_event *points; /* npoints of them */
    int32_t npoints;
};

/* A library's handle has one stream. During a recording this is branch 0. */
static int follow(fxi_rt_device *d, fxi_rt_stream stream)
{
    const fxi_rt_library_handle *handles[] = {&d->blas, &d->dnn};
    int error = 0;
    for (size_t k = 0; k < sizeof handles / sizeof *handles && !error; k++)
        if (handles[k]->object && handles[k]->follow)
            error = handles[k]->follow(handles[k]->object, stream);
    return error;
}

/* Made at the first recording. After a failure the next recording creates the missing branches. */
static fx_status open_recorder(fxi_rt_device *d)
{
    fx_status status = FX_OK;
    if (!d->recorder && (d->recorder = fxi_rt_host->alloc(sizeof *d->recorder)))
        memset(d->recorder, 0, sizeof *d->recorder);
    if (!d->recorder)
        return FX_STATUS_MEMORY;
    for (int k = 0; k < FXI_GPU_BRANCHES && !status; k++)
        if (!d->recorder->branches[k])
            status = FXI_RT_TRY(d, "record", StreamCreate,
                                (&d->recorder->branches[k], FXI_RT_NON_BLOCKING));
    return status;
}

static fx_status record(fx_device *device)
{
    fxi_rt_device *d = fxi_rt_of(device);
    fx_status status = fxi_gpu_check(&d->gpu, "record", "selecting the device", fxi_rt_select(d));
    if (!status)
        status = open_recorder(d);
    if (!status)
        status =
            FXI_RT_TRY(d, "record", CaptureBegin, (d->recorder->branches[0], FXI_RT_THREAD_LOCAL));
    if (status)
        return status;
    d->launches = d->recorder->branches[0];
    /* Without this call the recording would lack the library's work. If the call fails, the capture
     * is ended and its graph freed. */
    if (follow(d, d->launches) == 0)
        return FX_OK;
    fxi_rt_graph graph = NULL;
    follow(d, d->work);
    d->launches = d->work;
    if (fxi_rt.CaptureEnd(d->recorder->branches[0], &graph) == 0 && graph)
        fxi_rt.GraphDestroy(graph);
    return FX_STATUS_DEVICE;
}

static fx_status recorded(fx_device *device, void **out_recording)
{
    fxi_rt_device *d = fxi_rt_of(device);
    fxi_rt_graph graph = NULL;
    fxi_rt_exec exec = NULL;
    d->launches = d->work;
    fx_status status = fxi_gpu_check(&d->gpu, "record", "selecting the device", fxi_rt_select(d));
    if (follow(d, d->work) != 0 && !status)
        status = FX_STATUS_DEVICE;
    /* The capture is ended after an error too, because the stream must not continue to record. */
    const fx_status ended = FXI_RT_TRY(d, "record", CaptureEnd, (d->recorder->branches[0], &graph));
    status = status ? status : ended;
    if (!status)
        status = FXI_RT_TRY(d, "record", GraphInstantiate, (&exec, graph, 0));
    if (graph)
        fxi_rt.GraphDestroy(graph);
    *out_recording = exec;
    return status;
}

static fx_status replay(fx_device *device, void *recording)
{
    fxi_rt_device *d = fxi_rt_of(device);
    const fx_status status =
        fxi_gpu_check(&d->gpu, "replay", "selecting the device", fxi_rt_select(d));
    return status ? status : FXI_RT_TRY(d, "replay", GraphLaunch, (recording, d->work));
}

/* If a graph is running, NVIDIA's driver frees it after it has ended; AMD's manual does not promise
 * that, so the plugin waits. Graphs of a lost device are freed with the process. */
static void drop(fx_device *device, void *recording)
{
    fxi_rt_device *d = fxi_rt_of(device);
    if (fxi_gpu_lost(&d->gpu.health) || fxi_rt_select(d) != 0)
        return;
#ifdef FXI_AMDGPU
    if (fxi_rt.StreamSync(d->work) != 0)
        return;
#endif
    fxi_rt.ExecDestroy(recording);
}

/* ---- branches -------------------------------------------------------------------------------- */

static fx_status branch(fx_device *device, int32_t branch)
{
    fxi_rt_device *d = fxi_rt_of(device);
    d->launches = d->recorder->branches[branch];
    return FX_OK;
}

/* Events are kept for later recordings: each point needs its own in one recording. */
static bool grow_points(fxi_rt_recorder *r, int32_t n)
{
    if (n <= r->npoints)
        return true;
    const int32_t more = n < 16 ? 16 : 2 * n;
    fxi_rt_event *points = fxi_rt_host->alloc((size_t)more * sizeof *points);
    if (!points)
        return false;
    memset(points, 0, (size_t)more * sizeof *points);
    if (r->npoints)
        memcpy(points, r->points, (size_t)r->npoints * sizeof *points);
    fxi_rt_host->free(r->points);
    r->points = points;
    r->npoints = more;
    return true;
}

static fx_status point(fx_device *device, int32_t number)
{
    fxi_rt_device *d = fxi_rt_of(device);
    fxi_rt_recorder *r = d->recorder;
    if (!grow_points(r, number + 1))
        return FX_STATUS_MEMORY;
    fx_status status = fxi_gpu_check(&d->gpu, "record", "selecting the device", fxi_rt_select(d));
    if (!status && !r->points[number])
        status = FXI_RT_TRY(d, "record", EventCreate, (&r->points[number], FXI_RT_NO_TIMES));
    return status ? status : FXI_RT_TRY(d, "record", EventRecord, (r->points[number], d->launches));
}

static fx_status after(fx_device *device, int32_t number)
{
    fxi_rt_device *d = fxi_rt_of(device);
    const fx_status status =
        fxi_gpu_check(&d->gpu, "record", "selecting the device", fxi_rt_select(d));
    return status
               ? status
               : FXI_RT_TRY(d, "record", StreamWait, (d->launches, d->recorder->points[number], 0));
}

void fxi_rt_find_graphs(void)
{
    if (!fxi_rt.CaptureBegin || !fxi_rt.CaptureEnd || !fxi_rt.GraphInstantiate ||
        !fxi_rt.GraphLaunch || !fxi_rt.GraphDestroy || !fxi_rt.ExecDestroy)
        return;
    fxi_rt_driver.record = record;
    fxi_rt_driver.recorded = recorded;
    fxi_rt_driver.replay = replay;
    fxi_rt_driver.drop = drop;
    fxi_rt_driver.branch = branch;
    fxi_rt_driver.point = point;
    fxi_rt_driver.after = after;
}
