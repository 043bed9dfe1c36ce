/* sim_driver.c: the functions of the driver (sim_functions.h) except those of graphs. */
#include "sim_functions.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef FXI_AMDGPU
enum { IS_AMD = 1, DEVICES = 2, VERSION = 60200000 };
static const char *const hiders[] = {"ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"};
#else
enum { IS_AMD = 0, DEVICES = 3, VERSION = 13000 };
static const char *const hiders[] = {"CUDA_VISIBLE_DEVICES"};
#endif

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static sim_device devices[SIM_DEVICES_MOST];
static int ndevices, numbers[SIM_DEVICES_MOST];
static bool open;
static _Thread_local sim_device *current;
static bool reaches[SIM_DEVICES_MOST][SIM_DEVICES_MOST];

/* ---- beginning and ending a call ------------------------------------------------------------- */

int sim_begin(const char *function, bool needs_device)
{
    bool lost = false;
    pthread_mutex_lock(&lock);
    const int error = sim_script(function, &lost);
    if (error && lost && needs_device && current)
        current->error = error;
    if (error || !open)
        return error ? error : SIM_NOT_INITIALIZED;
    if (!needs_device)
        return SIM_OK;
    if (!current && IS_AMD)
        current = &devices[0];
    return current ? current->error : SIM_INVALID_CONTEXT;
}

int sim_end(int error)
{
    pthread_mutex_unlock(&lock);
    return error;
}

sim_device *sim_current(void)
{
    return current;
}

void sim_select_another(void)
{
    current = !IS_AMD ? NULL : ndevices == 1 ? current : &devices[(current->id + 1) % ndevices];
}

static int nevents;
/* Prints the numbers of live objects: blocks of device memory, of pinned memory, events, and
 * graphs. Tests find this function by dlsym. */
__attribute__((visibility("default"))) void sim_print_live(void);
void sim_print_live(void)
{
    int blocks = 0;
    pthread_mutex_lock(&lock);
    for (int k = 0; k < ndevices; k++)
        for (const sim_block *b = devices[k].blocks; b; b = b->next)
            blocks++;
    printf("live %d %d %d %d ", blocks, sim_pinned_count(), nevents, sim_graphs_live());
    pthread_mutex_unlock(&lock);
}

/* ---- devices --------------------------------------------------------------------------------- */

/* Keeps only the devices in a list of numbers. The first invalid number ends the list, as the
 * drivers' documentation says. */
static void hide(const char *list)
{
    int left[SIM_DEVICES_MOST], n = 0;
    while (list && *list) {
        char *rest;
        const long k = strtol(list, &rest, 10);
        if (rest == list || k < 0 || k >= ndevices || n == SIM_DEVICES_MOST)
            break;
        left[n++] = numbers[k];
        list = rest + (*rest == ',');
    }
    memcpy(numbers, left, (size_t)n * sizeof *left);
    ndevices = n;
}

int sim_Init(unsigned flags)
{
    bool lost;
    pthread_mutex_lock(&lock);
    const int error = sim_script(names.Init, &lost);
    if (error || flags || open)
        return sim_end(error ? error : flags ? SIM_INVALID_VALUE : SIM_OK);
    ndevices = (int)sim_setting("SIM_DEVICES", DEVICES);
    for (int k = 0; k < ndevices; k++)
        numbers[k] = k;
    for (size_t k = 0; k < sizeof hiders / sizeof *hiders; k++)
        if (getenv(hiders[k]))
            hide(getenv(hiders[k]));
    for (int k = 0; k < ndevices; k++) {
        devices[k].id = k;
        if (!sim_memory_open(&devices[k], (size_t)sim_setting("SIM_MEMORY", 1024) << 20))
            return sim_end(SIM_OUT_OF_MEMORY);
    }
    open = ndevices > 0;
    return sim_end(open ? SIM_OK : SIM_NO_DEVICE);
}

int sim_DriverVersion(int *out)
{
    bool lost;
    *out = (int)sim_setting("SIM_VERSION", VERSION);
    return sim_script(names.DriverVersion, &lost);
}

int sim_DeviceCount(int *out)
{
    BEGIN_ANY(DeviceCount);
    *out = ndevices;
    return sim_end(SIM_OK);
}

int sim_DeviceGet(int *out, int number)
{
    BEGIN_ANY(DeviceGet);
    *out = number;
    return sim_end(number >= 0 && number < ndevices ? SIM_OK : SIM_INVALID_DEVICE);
}

int sim_DeviceName(char *out, int size, int device)
{
    BEGIN_ANY(DeviceName);
    snprintf(out, (size_t)size, "Simulated %s %d", IS_AMD ? "AMD GPU" : "NVIDIA GPU",
             numbers[device]);
    return sim_end(SIM_OK);
}

static const char *architecture(void)
{
    const char *text = getenv("SIM_ARCHITECTURE");
    return text && *text ? text : IS_AMD ? "gfx90a" : "90";
}

int sim_DeviceAttribute(int *out, int which, int device)
{
    BEGIN_ANY(DeviceAttribute);
    (void)device;
    *out = which == FXI_RT_ITEMS_OF_GROUP                                 ? SIM_GROUP_MOST
           : which == FXI_RT_GROUPS_X                                     ? INT32_MAX
           : which == FXI_RT_GROUPS_X + 1 || which == FXI_RT_GROUPS_X + 2 ? UINT16_MAX
           : which == FXI_RT_GROUP_MEMORY                                 ? SIM_SHARED_MOST
           : which == FXI_RT_UNITS                                        ? 4
           : which == FXI_RT_WARP ? (strncmp(architecture(), "gfx9", 4) == 0 ? 64 : 32)
                                  : 0;
#ifndef FXI_AMDGPU
    if (which == FXI_RT_ASKED_MEMORY)
        *out = atoi(architecture()) >= 80 ? SIM_ASKED_MOST : 64 << 10;
    if (which == FXI_RT_MAJOR)
        *out = atoi(architecture()) / 10;
    if (which == FXI_RT_MINOR)
        *out = atoi(architecture()) % 10;
#endif
    return sim_end(SIM_OK);
}

int sim_DeviceMemory(size_t *out, int device)
{
    BEGIN_ANY(DeviceMemory);
    *out = devices[device].capacity;
    return sim_end(SIM_OK);
}

int sim_DeviceCanAccess(int *out, int device, int other)
{
    BEGIN_ANY(DeviceCanAccess);
    *out = device != other;
    return sim_end(SIM_OK);
}

static int enable(const sim_device *other)
{
    if (other == current)
        return SIM_INVALID_DEVICE;
    const bool already = reaches[current->id][other->id];
    reaches[current->id][other->id] = true;
    return already ? SIM_PEER_ALREADY : SIM_OK;
}

static int copy_between(sim_device *to_device, void *to, sim_device *from_device, const void *from,
                        size_t bytes, fxi_rt_stream stream)
{
    const sim_op op = {.kind = SIM_COPY,
                       .to_device = to_device,
                       .to = to,
                       .from_device = from_device,
                       .from = from,
                       .bytes = bytes};
    sim_stream *s = (sim_stream *)stream;
    return s->device == current ? sim_queue(s, &op) : SIM_INVALID_HANDLE;
}

#ifdef FXI_AMDGPU
int sim_DeviceSet(int device)
{
    BEGIN_ANY(DeviceSet);
    if (device < 0 || device >= ndevices)
        return sim_end(SIM_INVALID_DEVICE);
    current = &devices[device];
    return sim_end(SIM_OK);
}

const char *sim_ErrorName(int error)
{
    return error == SIM_OUT_OF_MEMORY     ? "hipErrorOutOfMemory"
           : error == SIM_NO_DEVICE       ? "hipErrorNoDevice"
           : error == SIM_INVALID_IMAGE   ? "hipErrorInvalidImage"
           : error == SIM_ILLEGAL_ADDRESS ? "hipErrorIllegalAddress"
           : error == SIM_LAUNCH_FAILED   ? "hipErrorLaunchFailure"
                                          : "hipErrorUnknown";
}

int sim_PeerEnable(int other, unsigned flags)
{
    BEGIN(PeerEnable);
    return sim_end(flags ? SIM_INVALID_VALUE : enable(&devices[other]));
}

int sim_PeerCopy(void *to, int to_device, const void *from, int from_device, size_t bytes,
                 fxi_rt_stream stream)
{
    BEGIN(PeerCopy);
    return sim_end(
        copy_between(&devices[to_device], to, &devices[from_device], from, bytes, stream));
}

/* Writes the architecture's name at its offset in the struct of ROCm 6; the next function at that
 * of ROCm 5. */
int sim_Properties6(void *out, int device)
{
    BEGIN_ANY(Properties6);
    (void)device;
    strcpy((char *)out + 1160, architecture());
    return sim_end(SIM_OK);
}

int sim_Properties5(void *out, int device)
{
    BEGIN_ANY(Properties5);
    (void)device;
    strcpy((char *)out + 396, architecture());
    return sim_end(SIM_OK);
}
#else
int sim_ContextRetain(fxi_rt_context *out, int device)
{
    BEGIN_ANY(ContextRetain);
    *out = (fxi_rt_context)&devices[device];
    return sim_end(SIM_OK);
}

int sim_ContextSet(fxi_rt_context context)
{
    BEGIN_ANY(ContextSet);
    current = (sim_device *)context;
    return sim_end(SIM_OK);
}

int sim_ErrorName(int error, const char **out)
{
    *out = error == SIM_OUT_OF_MEMORY     ? "CUDA_ERROR_OUT_OF_MEMORY"
           : error == SIM_NO_DEVICE       ? "CUDA_ERROR_NO_DEVICE"
           : error == SIM_INVALID_IMAGE   ? "CUDA_ERROR_INVALID_IMAGE"
           : error == SIM_NO_BINARY       ? "CUDA_ERROR_NO_BINARY_FOR_GPU"
           : error == SIM_UNSUPPORTED_PTX ? "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"
           : error == SIM_ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS"
           : error == SIM_LAUNCH_FAILED   ? "CUDA_ERROR_LAUNCH_FAILED"
                                          : NULL;
    return *out ? SIM_OK : SIM_INVALID_VALUE;
}

int sim_PeerEnable(fxi_rt_context other, unsigned flags)
{
    BEGIN(PeerEnable);
    return sim_end(flags ? SIM_INVALID_VALUE : enable((sim_device *)other));
}

int sim_PeerCopy(void *to, fxi_rt_context to_device, void *from, fxi_rt_context from_device,
                 size_t bytes, fxi_rt_stream stream)
{
    BEGIN(PeerCopy);
    return sim_end(
        copy_between((sim_device *)to_device, to, (sim_device *)from_device, from, bytes, stream));
}
#endif

/* ---- memory ---------------------------------------------------------------------------------- */

int sim_MemAlloc(void **out, size_t bytes)
{
    BEGIN_UNCAPTURED(MemAlloc);
    return sim_end(sim_memory_alloc(current, bytes, out));
}

int sim_MemFree(void *address)
{
    BEGIN_UNCAPTURED(MemFree);
    return sim_end(sim_memory_free(current, address));
}

int sim_MemInfo(size_t *out_free, size_t *out_all)
{
    BEGIN(MemInfo);
    *out_free = current->capacity - current->used;
    *out_all = current->capacity;
    return sim_end(SIM_OK);
}

int sim_HostAlloc(void **out, size_t bytes, unsigned flags)
{
    BEGIN_UNCAPTURED(HostAlloc);
    (void)flags;
    return sim_end(sim_pinned_alloc(bytes, out) ? SIM_OK : SIM_OUT_OF_MEMORY);
}

int sim_HostFree(void *address)
{
    BEGIN_UNCAPTURED(HostFree);
    return sim_end(sim_pinned_free(address) ? SIM_OK : SIM_INVALID_VALUE);
}

/* ---- copies ---------------------------------------------------------------------------------- */

static int queue(fxi_rt_stream stream, sim_op *op)
{
    sim_stream *s = (sim_stream *)stream;
    if (s->device != current) {
        sim_say("a stream of device %d is used while device %d is current", s->device->id,
                current->id);
        return SIM_INVALID_HANDLE;
    }
    return sim_queue(s, op);
}

/* Pageable memory is copied during the call, pinned memory when the work runs. */
int sim_WriteAsync(void *to, const void *from, size_t bytes, fxi_rt_stream stream)
{
    BEGIN(WriteAsync);
    sim_op op = {.kind = SIM_WRITE, .to_device = current, .to = to, .from = from, .bytes = bytes};
    if (!sim_is_pinned(from)) {
        op.copy = malloc(bytes);
        if (!op.copy)
            return sim_end(SIM_OUT_OF_MEMORY);
        memcpy(op.copy, from, bytes);
    }
    return sim_end(queue(stream, &op));
}

int sim_ReadAsync(void *to, void *from, size_t bytes, fxi_rt_stream stream)
{
    BEGIN(ReadAsync);
    sim_op op = {.kind = SIM_READ, .to = to, .from_device = current, .from = from, .bytes = bytes};
    return sim_end(queue(stream, &op));
}

int sim_CopyAsync(void *to, void *from, size_t bytes, fxi_rt_stream stream)
{
    BEGIN(CopyAsync);
    sim_op op = {.kind = SIM_COPY,
                 .to_device = current,
                 .to = to,
                 .from_device = current,
                 .from = from,
                 .bytes = bytes};
    return sim_end(queue(stream, &op));
}

int sim_FillAsync(void *to, unsigned char value, size_t bytes, fxi_rt_stream stream)
{
    BEGIN(FillAsync);
    sim_op op = {.kind = SIM_FILL, .to_device = current, .to = to, .bytes = bytes, .value = value};
    return sim_end(queue(stream, &op));
}

/* ---- streams and events ---------------------------------------------------------------------- */

int sim_StreamCreate(fxi_rt_stream *out, unsigned flags)
{
    BEGIN(StreamCreate);
    (void)flags;
    *out = (fxi_rt_stream)sim_stream_new(current);
    return sim_end(*out ? SIM_OK : SIM_OUT_OF_MEMORY);
}

int sim_StreamSync(fxi_rt_stream stream)
{
    BEGIN(StreamSync);
    error = sim_capture_stream((sim_stream *)stream, names.StreamSync);
    return sim_end(error ? error : sim_drain((sim_stream *)stream));
}

int sim_StreamQuery(fxi_rt_stream stream)
{
    BEGIN(StreamQuery);
    error = sim_capture_stream((sim_stream *)stream, names.StreamQuery);
    return sim_end(error ? error : sim_poll((sim_stream *)stream));
}

/* An event that was never recorded is complete. */
int sim_StreamWait(fxi_rt_stream stream, fxi_rt_event event, unsigned flags)
{
    BEGIN(StreamWait);
    sim_event *e = (sim_event *)event;
    sim_stream *s = (sim_stream *)stream;
    if (e->capture || (s->capture && e->point))
        return sim_end(sim_capture_wait(s, e));
    sim_op op = {.kind = SIM_WAIT, .point = e->point};
    if (flags || !e->point)
        return sim_end(flags ? SIM_INVALID_VALUE : SIM_OK);
    e->point->users++;
    return sim_end(queue(stream, &op));
}

int sim_EventCreate(fxi_rt_event *out, unsigned flags)
{
    BEGIN(EventCreate);
    sim_event *e = calloc(1, sizeof *e);
    if (e)
        *e = (sim_event){.device = current, .timed = flags != FXI_RT_NO_TIMES};
    nevents += e != NULL;
    *out = (fxi_rt_event)e;
    return sim_end(e ? SIM_OK : SIM_OUT_OF_MEMORY);
}

int sim_EventRecord(fxi_rt_event event, fxi_rt_stream stream)
{
    BEGIN(EventRecord);
    sim_event *e = (sim_event *)event;
    if (((sim_stream *)stream)->capture)
        return sim_end(sim_capture_record((sim_stream *)stream, e));
    e->capture = 0;
    sim_point *p = malloc(sizeof *p);
    if (!p || e->device != current)
        return sim_end(p ? SIM_INVALID_HANDLE : SIM_OUT_OF_MEMORY);
    *p = (sim_point){.stream = (sim_stream *)stream, .users = 2};
    sim_point_release(e->point);
    e->point = p;
    sim_op op = {.kind = SIM_RECORD, .point = p};
    return sim_end(queue(stream, &op));
}

int sim_EventSync(fxi_rt_event event)
{
    BEGIN(EventSync);
    error = sim_capture_event((sim_event *)event, names.EventSync);
    return sim_end(error ? error : sim_event_wait((sim_event *)event));
}

int sim_EventElapsed(float *out, fxi_rt_event first, fxi_rt_event last)
{
    BEGIN(EventElapsed);
    const sim_event *a = (sim_event *)first, *b = (sim_event *)last;
    if (!a->timed || !b->timed || !a->point || !b->point)
        return sim_end(SIM_INVALID_HANDLE);
    if (!a->point->reached || !b->point->reached)
        return sim_end(SIM_NOT_READY);
    *out = (float)(b->point->milliseconds - a->point->milliseconds);
    return sim_end(SIM_OK);
}

int sim_EventDestroy(fxi_rt_event event)
{
    BEGIN(EventDestroy);
    sim_point_release(((sim_event *)event)->point);
    free(event);
    nevents--;
    return sim_end(SIM_OK);
}

/* ---- programs and launches ------------------------------------------------------------------- */

int sim_ModuleLoad(fxi_rt_module *out, const void *image)
{
    BEGIN_UNCAPTURED(ModuleLoad);
    return sim_end(sim_module_load(current, image, (sim_module **)out));
}

/* A module has one function of each name, which belongs to it. */
int sim_ModuleFunction(fxi_rt_function *out, fxi_rt_module module, const char *name)
{
    BEGIN(ModuleFunction);
    sim_module *m = (sim_module *)module;
    sim_kernel *k = m->kernels;
    while (k && strcmp(k->name, name) != 0)
        k = k->next;
    if (!k) {
        error = sim_module_function(m, name, &k);
        if (error)
            return sim_end(error);
        k->next = m->kernels;
        m->kernels = k;
    }
    *out = (fxi_rt_function)k;
    return sim_end(SIM_OK);
}

int sim_FunctionAttribute(int *out, int which, fxi_rt_function function)
{
    BEGIN(FunctionAttribute);
    /* A driver reports at most what the kernel declares with __launch_bounds__. */
    *out = (int)sim_kernel_items((const sim_kernel *)function);
    return sim_end(which == FXI_RT_FUNCTION_ITEMS ? SIM_OK : SIM_INVALID_VALUE);
}

#ifndef FXI_AMDGPU
int sim_FunctionSet(fxi_rt_function function, int which, int value)
{
    BEGIN(FunctionSet);
    if (which != FXI_RT_FUNCTION_MEMORY || value < 0 || value > SIM_ASKED_MOST)
        return sim_end(SIM_INVALID_VALUE);
    ((sim_kernel *)function)->asked_most = (unsigned)value;
    return sim_end(SIM_OK);
}
#endif

/* Copies the arguments, as the driver does: the caller may change them after the call. */
static int take_arguments(sim_launch *l, void **arguments)
{
    size_t used = 0;
    int n = 0;
    for (const int *size = l->kernel->sizes; *size; size++, n++) {
        const size_t bytes = (size_t)abs(*size), align = bytes < 8 ? bytes : 8;
        used = (used + align - 1) / align * align;
        if (used + bytes > SIM_ARGUMENTS_MOST || n == 128) {
            sim_say("%s has more than %d bytes of arguments", l->kernel->name, SIM_ARGUMENTS_MOST);
            return SIM_INVALID_VALUE;
        }
        l->arguments[n] = memcpy(l->bytes + used, arguments[n], bytes);
        used += bytes;
        const void *address = *size < 0 ? *(void **)arguments[n] : NULL;
        if (address && !sim_memory_at(current, address, 0, l->kernel->name))
            return SIM_ILLEGAL_ADDRESS;
    }
    return SIM_OK;
}

/* A kernel has its memory in one section, so one that asks for memory must have exactly that. */
static bool fits_in_memory(const sim_kernel *k, unsigned asked)
{
    return asked == 0 ? k->shared_bytes <= SIM_SHARED_MOST
                      : asked <= k->asked_most && (!k->entry || k->shared_bytes == asked);
}

static int check_launch(const sim_launch *l, unsigned asked)
{
    const unsigned *g = l->groups, *n = l->items;
    const bool fits = g[0] >= 1 && g[0] <= INT32_MAX && g[1] >= 1 && g[1] <= UINT16_MAX &&
                      g[2] >= 1 && g[2] <= UINT16_MAX && n[0] >= 1 && n[1] >= 1 && n[2] >= 1 &&
                      (uint64_t)n[0] * n[1] * n[2] <= sim_kernel_items(l->kernel) &&
                      fits_in_memory(l->kernel, asked) &&
                      (!IS_AMD || (uint64_t)g[0] * n[0] <= UINT32_MAX);
    if (!fits) {
        sim_say("%s: %u×%u×%u groups of %u×%u×%u, %zu bytes of shared memory, are too many",
                l->kernel->name, g[0], g[1], g[2], n[0], n[1], n[2], l->kernel->shared_bytes);
        return SIM_INVALID_VALUE;
    }
    if (l->kernel->device == current)
        return SIM_OK;
    sim_say("%s of device %d is launched while device %d is current", l->kernel->name,
            l->kernel->device->id, current->id);
    return SIM_INVALID_HANDLE;
}

/* SIM_SLOW_KERNEL=NAME:MILLISECONDS: what a launch of this kernel takes on the simulated clock. */
static double launch_time(const char *name)
{
    const char *slow = getenv("SIM_SLOW_KERNEL");
    const size_t n = strlen(name);
    return slow && strncmp(slow, name, n) == 0 && slow[n] == ':' ? atof(slow + n + 1) : 0;
}

int sim_Launch(fxi_rt_function function, unsigned gx, unsigned gy, unsigned gz, unsigned x,
               unsigned y, unsigned z, unsigned shared, fxi_rt_stream stream, void **arguments,
               void **more)
{
    BEGIN(Launch);
    sim_op op = {.kind = SIM_LAUNCH};
    if (more || !(op.launch = malloc(sizeof *op.launch)))
        return sim_end(SIM_INVALID_VALUE);
    sim_launch *l = op.launch;
    l->kernel = (sim_kernel *)function;
    memcpy(l->groups, (unsigned[]){gx, gy, gz}, sizeof l->groups);
    memcpy(l->items, (unsigned[]){x, y, z}, sizeof l->items);
    op.milliseconds = launch_time(l->kernel->name);
    error = check_launch(l, shared);
    if (!error)
        error = take_arguments(l, arguments);
    /* A driver does not check addresses before a launch: the kernel fails, and the device is lost.
     */
    if (error == SIM_ILLEGAL_ADDRESS)
        current->error = error;
    if (error)
        free(l);
    else
        error = queue(stream, &op);
    sim_select_another();
    return sim_end(error);
}

/* ---- for simulated libraries ----------------------------------------------------------------- */

__attribute__((visibility("default"))) int sim_current_device(void)
{
    return current ? current->id : -1;
}

static int queue_one(void *stream, sim_kind kind, sim_point *point, sim_call *call)
{
    sim_stream *s = stream;
    const sim_op op = {.kind = kind, .to_device = s->device, .point = point, .call = call};
    return sim_queue(s, &op);
}

__attribute__((visibility("default"))) int
sim_queue_group(int n, void *const *streams, sim_call *const *first, sim_call *const *second)
{
    sim_point *points[SIM_DEVICES_MOST];
    int error = sim_begin("sim_queue_group", true);
    for (int k = 0; k < n && !error; k++) {
        points[k] = calloc(1, sizeof **points);
        if (!points[k])
            abort();
        *points[k] = (sim_point){.stream = streams[k], .users = 1 + n};
        error = queue_one(streams[k], SIM_CALL, NULL, first[k]);
        if (!error)
            error = queue_one(streams[k], SIM_RECORD, points[k], NULL);
    }
    for (int k = 0; k < n && !error; k++) {
        for (int j = 0; j < n && !error; j++)
            error = queue_one(streams[k], SIM_WAIT, points[j], NULL);
        if (!error)
            error = queue_one(streams[k], SIM_CALL, NULL, second[k]);
    }
    return sim_end(error);
}

__attribute__((visibility("default"))) int sim_queue_call(void *stream, sim_call *call)
{
    int error = sim_begin("sim_queue_call", true);
    sim_op op = {
        .kind = SIM_CALL, .to_device = current, .call = call, .milliseconds = call->milliseconds};
    if (!error)
        error = queue(stream, &op);
    else
        free(call);
    return sim_end(error);
}
