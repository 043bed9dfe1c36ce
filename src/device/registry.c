/* registry.c: the list of backends of this process and their devices.
 *
 * Two are built in: the CPU, and `ref`, a slow and simple implementation with which tests compare
 * results. Flux's GPU backends and OpenCL are known by name from the start, so a program that asks
 * for one that is missing still runs, and can report why it is missing. Entries and devices are
 * never moved or freed, because arrays point to them.
 */
#include "registry.h"
#include "backends.h"
#include "c_text.h"
#include "context.h"
#include "forked.h"
#include "julia_number.h"
#include "memory.h"
#include "object.h"
#include "pool.h"
#include "this_process.h"
#include "thread.h"

#include <stdio.h>
#include <string.h>

const char *const fxi_backend_order[] = {"CUDA", "AMDGPU", "Metal", "OpenCL", "CPU", NULL};

const char *fxi_backend_list(void)
{
    return "(\"CUDA\", \"AMDGPU\", \"Metal\", \"OpenCL\", \"CPU\")";
}

bool fxi_is_preferable(const char *name)
{
    for (int i = 0; fxi_backend_order[i]; i++)
        if (strcmp(fxi_backend_order[i], name) == 0)
            return true;
    return false;
}

/* "CUDA device 0: NVIDIA H100 80GB HBM3"; "CPU" */
static void describe(const void *self, fx_text *text)
{
    const fx_device *d = self;
    if (strcmp(d->name, d->backend->head.name) == 0)
        fx_text_add(text, "%s", d->name);
    else
        fx_text_add(text, "%s device %d", d->backend->head.name, d->id);
    if (*d->info.name)
        fx_text_add(text, ": %s", d->info.name);
}

/* A device is an object, so that fx_show and other functions recognise it. */
static const fx_type device_type = {.fxi_size = sizeof(fx_type),
                                    .name = "Device",
                                    .size = sizeof(fx_device),
                                    .describe = describe,
                                    .flags = FX_TYPE_LEAF | FX_TYPE_INTERNAL};
#define DEVICE(its_backend, its_id, its_name)                                                      \
    {                                                                                              \
        .device = {.base = {.type = &device_type, .refs = FXI_IMMORTAL},                           \
                   .backend = (its_backend),                                                       \
                   .id = (its_id),                                                                 \
                   .name = (its_name)},                                                            \
        .pool = FXI_POOL_EMPTY                                                                     \
    }
static fxi_device cpu = DEVICE(&fxi_cpu_backend, 0, "CPU"),
                  ref = DEVICE(&fxi_ref_backend, 0, "ref");
static fx_device *const the_cpu[] = {&cpu.device}, *const the_ref[] = {&ref.device};

/* ---- lists of devices ------------------------------------------------------------------------ */

typedef struct device_list {
    fx_object base;
    fx_list devices;
    const char *why; /* why there are none */
} device_list;

/* One line for each device, with ", 79.109 GiB of 79.647 GiB free" if known. */
static void describe_list(const void *self, fx_text *text)
{
    const device_list *l = self;
    char bytes[FXI_NUMBER_TEXT];
    if (l->devices.n == 0)
        fx_text_add(text, "no devices: %s", l->why);
    for (int64_t i = 0; i < l->devices.n; i++) {
        fx_device *d = l->devices.items[i];
        const int64_t free = d->backend->available ? d->backend->available(d) : -1;
        fx_text_add(text, i ? "\n" : "");
        describe(d, text);
        if (free >= 0)
            fx_text_add(text, ", %s", fxi_bytes_text(free, bytes));
        if (d->info.memory > 0)
            fx_text_add(text, "%s%s", free >= 0 ? " of " : ", ",
                        fxi_bytes_text(d->info.memory, bytes));
        fx_text_add(text, free >= 0 ? " free" : "");
    }
}

static const fx_field list_fields[] = {
    {"devices", offsetof(device_list, devices), FX_FIELD_LIST, false}};
static device_list list_error;
static const fx_type list_type = {.fxi_size = sizeof(fx_type),
                                  .name = "Devices",
                                  .size = sizeof(device_list),
                                  .fields = list_fields,
                                  .nfields = 1,
                                  .describe = describe_list,
                                  .error = &list_error,
                                  .flags = FX_TYPE_LEAF | FX_TYPE_INTERNAL};

#define NOT_ASKED(name) "it is not loaded: fx_use(\"" name "\") has not been called"

static fxi_mutex lock = FXI_MUTEX_INIT; /* for writers; readers use the atomic count */
static int entries = 6;                 /* atomic */
static fxi_registered registry[FXI_BACKENDS_MOST] = {
    {"CPU", &fxi_cpu_backend, the_cpu, 1, "", false, false},
    {"ref", &fxi_ref_backend, the_ref, 1, "", false, false},
    {"CUDA", NULL, NULL, 0, NOT_ASKED("CUDA"), false, false},
    {"AMDGPU", NULL, NULL, 0, NOT_ASKED("AMDGPU"), false, false},
    {"Metal", NULL, NULL, 0, NOT_ASKED("Metal"), false, false},
    {"OpenCL", NULL, NULL, 0, NOT_ASKED("OpenCL"), false, false},
};

fx_device *fx_cpu_device(void)
{
    return &cpu.device;
}

fxi_registered *fxi_registered_find(const char *name)
{
    const int n = __atomic_load_n(&entries, __ATOMIC_ACQUIRE);
    for (int i = 0; name && i < n; i++)
        if (fxi_same_ignoring_case(registry[i].name, name))
            return &registry[i];
    return NULL;
}

void *fx_devices(const char *backend)
{
    const int n = __atomic_load_n(&entries, __ATOMIC_ACQUIRE);
    const fxi_registered *one = fxi_registered_find(backend);
    void *items[FXI_BACKENDS_MOST * FXI_DEVICES_MOST];
    device_list init = {.devices = {.items = items}, .why = one ? one->why : ""};
    if (backend && !one)
        init.why = "unknown backend";
    for (int i = 0; i < n; i++)
        for (int k = 0; (!backend || one == &registry[i]) && k < registry[i].count; k++)
            items[init.devices.n++] = registry[i].devices[k];
    return fxi_new(&list_type, &init);
}

/* Does the device allow fewer buffers than a step may need? Recorded. */
static bool states_too_few(const fx_device *d)
{
    const bool few = d->info.buffers != 0 && d->info.buffers < FX_LEAST_BUFFERS;
    if (few)
        fx_fail(FX_STATUS_DEVICE, "use",
                "%s allows %d buffers in a step; the minimum is %d (fx_step_buffers)", d->name,
                (int)d->info.buffers, (int)FX_LEAST_BUFFERS);
    return few;
}

/* The devices "CUDA:0", "CUDA:1", …, never freed. NULL: failed (recorded). */
static fx_device **make_devices(const fx_backend *backend, int n)
{
    const size_t each = strlen(backend->head.name) + 8;
    fxi_device *all = fxi_calloc((size_t)n, sizeof *all + sizeof(fx_device *) + each);
    fx_device **devices = (fx_device **)(all ? all + n : NULL);
    char *names = (char *)(all ? devices + n : NULL);
    if (!all)
        fx_fail(FX_STATUS_MEMORY, "use", "no memory for the devices of %s", backend->head.name);
    for (int i = 0; all && i < n; i++, names += each) {
        fx_device *d = devices[i] = &all[i].device;
        snprintf(names, each, "%s:%d", backend->head.name, i);
        all[i] = (fxi_device)DEVICE(backend, i, names);
        if ((backend->info && backend->info(d) != FX_OK) || states_too_few(d)) {
            fxi_free(all);
            return NULL;
        }
        if (d->info.no_f64)
            fxi_note_no_f64();
    }
    return devices;
}

/* The entry of a name, added if it is new. NULL: the list is full (recorded). */
static fxi_registered *entry(const char *name)
{
    fxi_registered *r = fxi_registered_find(name);
    if (r)
        return r;
    if (entries == FXI_BACKENDS_MOST) {
        fx_fail(FX_STATUS_DEVICE, "use", "%s cannot be registered: there are already %d backends",
                name, (int)FXI_BACKENDS_MOST);
        return NULL;
    }
    registry[entries].name = name;
    __atomic_store_n(&entries, entries + 1, __ATOMIC_RELEASE);
    return &registry[entries - 1];
}

/* ---- forks ----------------------------------------------------------------------------------- */

/* Only the thread that called fork exists in the child. */
static void in_child(void)
{
    static fx_backend tables[FXI_BACKENDS_MOST];
    fxi_mutex_init(&lock);
    for (int i = 0; i < entries; i++) {
        fxi_registered *r = &registry[i];
        if (!r->plugin || r->backend == &tables[i])
            continue;
        fxi_forked_table(r->backend, &tables[i]);
        r->backend = &tables[i];
        for (int k = 0; k < r->count; k++)
            r->devices[k]->backend = &tables[i];
    }
}

void fxi_registered_plugin(const char *name)
{
    static bool watched;
    fxi_mutex_lock(&lock);
    fxi_registered *r = fxi_registered_find(name);
    watched = watched || fxi_process_on_fork(NULL, NULL, in_child);
    if (fxi_loaded(r) && watched)
        r->plugin = true;
    fxi_mutex_unlock(&lock);
}

/* ---- registering ----------------------------------------------------------------------------- */

static bool more_devices; /* atomic */

bool fxi_has_more_devices(void)
{
    return __atomic_load_n(&more_devices, __ATOMIC_RELAXED);
}

static fx_status add_backend(const fx_backend *backend, int devices, const char *why)
{
    fxi_registered *r = entry(backend->head.name);
    if (!r)
        return FX_STATUS_DEVICE;
    if (fxi_loaded(r))
        return FX_OK;
    r->devices = devices > 0 ? make_devices(backend, devices) : NULL;
    if (devices > 0 && !r->devices)
        return FX_STATUS_DEVICE;
    r->count = devices;
    snprintf(r->why, sizeof r->why, "%s", why ? why : "");
    if (devices > 0)
        __atomic_store_n(&more_devices, true, __ATOMIC_RELAXED);
    __atomic_store_n(&r->backend, backend, __ATOMIC_RELEASE);
    return FX_OK;
}

fx_status fxi_backend_register(const fx_backend *backend, int devices, const char *why)
{
    if (!backend || !backend->head.name || devices < 0 || devices > FXI_DEVICES_MOST)
        return fx_fail(FX_STATUS_ARGUMENT, "use",
                       "a backend needs a name and 0 to %d devices, got %d", FXI_DEVICES_MOST,
                       devices);
    fxi_mutex_lock(&lock);
    const fx_status status = add_backend(backend, devices, why);
    fxi_mutex_unlock(&lock);
    return status;
}

/* Adds an entry; the name is copied. NULL if the list is full or an allocation fails. That is not
 * an error: the reason is then only in the log. */
static fxi_registered *add_unknown(const char *name)
{
    const size_t n = strlen(name) + 1;
    char *copy = entries < FXI_BACKENDS_MOST ? fxi_malloc(n) : NULL;
    return copy ? entry(memcpy(copy, name, n)) : NULL;
}

void fxi_registered_why(const char *name, const char *why, bool add)
{
    fxi_mutex_lock(&lock);
    fxi_registered *r = fxi_registered_find(name);
    if (!r && add)
        r = add_unknown(name);
    if (r && !fxi_loaded(r)) {
        snprintf(r->why, sizeof r->why, "%s", why);
        __atomic_store_n(&r->tried, true, __ATOMIC_RELEASE);
    }
    fxi_mutex_unlock(&lock);
}
