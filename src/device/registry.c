/* registry.c: the backends of this process and their devices.
 *
 * Two are built in: the CPU, and ref, the slow and obvious one that tests compare with. Flux's GPU
 * backends and OpenCL are known by name from the start, so that a program that asks for one runs
 * without it and can say why. Entries and devices are never moved or freed: arrays point to them.
 */
#include "registry.h"
#include "backends.h"
#include "memory.h"
#include "julia_number.h"
#include "object.h"
#include "pool.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

const char *const fxi_backend_order[] = {"CUDA", "AMDGPU", "Metal", "OpenCL", "CPU", NULL};

const char *fxi_backend_list(void)
{
    return "(\"CUDA\", \"AMDGPU\", \"Metal\", \"OpenCL\", \"CPU\")";
}

/* "CUDA device 0: NVIDIA H100 80GB HBM3"; "CPU" */
static void describe(const void *self, fx_text *text)
{
    const fx_device *d = self;
    if (strcmp(d->name, d->backend->name) == 0)
        fx_text_add(text, "%s", d->name);
    else
        fx_text_add(text, "%s device %d", d->backend->name, d->id);
    if (*d->info.name)
        fx_text_add(text, ": %s", d->info.name);
}

/* A device is an object as well, so that fx_show and every other function can tell what it is. */
static const fx_type device_type = {.fxi_size = sizeof(fx_type),
                                    .name = "Device",
                                    .size = sizeof(fx_device),
                                    .describe = describe,
                                    .flags = FX_TYPE_LEAF};
static fxi_pool cpu_pool = FXI_POOL_EMPTY, ref_pool = FXI_POOL_EMPTY;
static fx_device cpu = {.base = {.type = &device_type, .refs = FXI_IMMORTAL},
                        .backend = &fxi_cpu_backend,
                        .name = "CPU",
                        .pool = &cpu_pool};
static fx_device ref = {.base = {.type = &device_type, .refs = FXI_IMMORTAL},
                        .backend = &fxi_ref_backend,
                        .name = "ref",
                        .pool = &ref_pool};

/* ---- lists of devices ------------------------------------------------------------------------ */

typedef struct device_list {
    fx_object base;
    fx_list devices;
    const char *why; /* there are none */
} device_list;

/* A line each: ", 79.109 GiB of 79.647 GiB free" where that is known. */
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
                                  .flags = FX_TYPE_LEAF};

#define NOT_ASKED(name) "it is not loaded: fx_use(\"" name "\") has not been called"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of writers */
static int entries = 6;                                  /* atomic */
static fxi_registered registry[FXI_BACKENDS_MOST] = {
    {"CPU", &fxi_cpu_backend, &cpu, 1, ""},       {"ref", &fxi_ref_backend, &ref, 1, ""},
    {"CUDA", NULL, NULL, 0, NOT_ASKED("CUDA")},   {"AMDGPU", NULL, NULL, 0, NOT_ASKED("AMDGPU")},
    {"Metal", NULL, NULL, 0, NOT_ASKED("Metal")}, {"OpenCL", NULL, NULL, 0, NOT_ASKED("OpenCL")},
};

fx_device *fx_cpu_device(void)
{
    return &cpu;
}

fxi_registered *fxi_registered_find(const char *name)
{
    const int n = __atomic_load_n(&entries, __ATOMIC_ACQUIRE);
    for (int i = 0; name && i < n; i++)
        if (strcasecmp(registry[i].name, name) == 0)
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
        init.why = "there is no backend of that name";
    for (int i = 0; i < n; i++)
        for (int k = 0; (!backend || one == &registry[i]) && k < registry[i].count; k++)
            items[init.devices.n++] = &registry[i].devices[k];
    return fxi_new(&list_type, &init);
}

/* "CUDA:0" and so on, never freed. NULL: recorded. */
static fx_device *make_devices(const fx_backend *backend, int n)
{
    const size_t each = strlen(backend->name) + 8;
    fx_device *devices = fxi_calloc((size_t)n, sizeof *devices + sizeof(fxi_pool) + each);
    fxi_pool *pools = (fxi_pool *)(devices ? devices + n : NULL);
    char *names = (char *)(pools ? pools + n : NULL);
    if (!devices)
        fx_fail(FX_STATUS_MEMORY, "use", "no memory for the devices of %s", backend->name);
    for (int i = 0; devices && i < n; i++, names += each) {
        fx_device *d = &devices[i];
        snprintf(names, each, "%s:%d", backend->name, i);
        *d = (fx_device){.base = {.type = &device_type, .refs = FXI_IMMORTAL},
                         .backend = backend,
                         .id = i,
                         .name = names,
                         .pool = &pools[i]};
        pools[i] = (fxi_pool)FXI_POOL_EMPTY;
        if (backend->info && backend->info(d) != FX_OK) {
            fxi_free(devices);
            return NULL;
        }
    }
    return devices;
}

/* The entry of a name, made when there is none. NULL: there is no room (recorded). */
static fxi_registered *entry(const char *name)
{
    fxi_registered *r = fxi_registered_find(name);
    if (r)
        return r;
    if (entries == FXI_BACKENDS_MOST) {
        fx_fail(FX_STATUS_DEVICE, "use", "%s is one backend too many: there are %d", name,
                (int)FXI_BACKENDS_MOST);
        return NULL;
    }
    registry[entries].name = name;
    __atomic_store_n(&entries, entries + 1, __ATOMIC_RELEASE);
    return &registry[entries - 1];
}

static fx_status add(const fx_backend *backend, int devices, const char *why)
{
    fxi_registered *r = entry(backend->name);
    if (!r)
        return FX_STATUS_DEVICE;
    if (fxi_loaded(r))
        return FX_OK;
    r->devices = devices > 0 ? make_devices(backend, devices) : NULL;
    if (devices > 0 && !r->devices)
        return FX_STATUS_DEVICE;
    r->count = devices;
    snprintf(r->why, sizeof r->why, "%s", why ? why : "");
    __atomic_store_n(&r->backend, backend, __ATOMIC_RELEASE);
    return FX_OK;
}

fx_status fxi_backend_register(const fx_backend *backend, int devices, const char *why)
{
    if (!backend || !backend->name || devices < 0 || devices > FXI_DEVICES_MOST)
        return fx_fail(FX_STATUS_ARGUMENT, "use", "a backend with %d devices", devices);
    pthread_mutex_lock(&lock);
    const fx_status status = add(backend, devices, why);
    pthread_mutex_unlock(&lock);
    return status;
}

void fxi_registered_why(fxi_registered *r, const char *why)
{
    pthread_mutex_lock(&lock);
    if (!fxi_loaded(r))
        snprintf(r->why, sizeof r->why, "%s", why);
    pthread_mutex_unlock(&lock);
}
