/* device.c: which devices there are, how one is chosen, and moves of whole objects.
 *
 * Two backends are built in: the CPU, and ref. The GPU backends of Flux are known by name, so that
 * a program that asks for one runs without it and can say why.
 */
#include "backend.h"
#include "backends.h"
#include "object.h"

#include <cflux/device.h>
#include <pthread.h>
#include <string.h>

static void describe(const void *self, fx_text *text)
{
    fx_text_add(text, "%s", ((const fx_device *)self)->name);
}

/* A device is an object as well, so that fx_show and every other function can tell what it is. */
static const fx_type device_type = {.fxi_size = sizeof(fx_type),
                                    .name = "Device",
                                    .size = sizeof(fx_device),
                                    .describe = describe,
                                    .flags = FX_TYPE_LEAF};
static fx_device cpu = {{.type = &device_type, .refs = FXI_IMMORTAL}, &fxi_cpu_backend, 0, "CPU"};
static fx_device ref = {{.type = &device_type, .refs = FXI_IMMORTAL}, &fxi_ref_backend, 0, "ref"};

static const struct known {
    const char *name;
    fx_device *device; /* NULL: no such backend in this build */
} backends[] = {{"CPU", &cpu},    {"ref", &ref},   {"CUDA", NULL},
                {"AMDGPU", NULL}, {"Metal", NULL}, {"OpenCL", NULL}};
enum { BACKENDS = sizeof backends / sizeof backends[0] };

static const struct known *find(const char *name)
{
    for (int i = 0; name && i < BACKENDS; i++)
        if (strcmp(backends[i].name, name) == 0)
            return &backends[i];
    return NULL;
}

fx_device *fx_cpu_device(void)
{
    return &cpu;
}
const char *fx_device_name(const fx_device *device)
{
    return device ? device->name : "CPU";
}
int fx_device_id(const fx_device *device)
{
    return device ? device->id : 0;
}

bool fx_functional(const char *backend)
{
    const struct known *k = find(backend);
    return k && k->device;
}

const char *fx_why_not(const char *backend)
{
    const struct known *k = find(backend);
    if (!k)
        return "there is no backend of that name; known are CPU, CUDA, AMDGPU, Metal, OpenCL";
    return k->device ? "" : "this version of cflux has no such backend yet";
}

fx_status fx_use(const char *backend)
{
    return fx_functional(backend) ? FX_OK : FX_STATUS_DEVICE;
}
fx_status fx_use_all(void)
{
    return FX_OK;
}

fx_device *fxi_get_device(const fx_dev_opts *opts)
{
    if (opts->verbose)
        fx_message(0, "Using backend: CPU.");
    return &cpu;
}

fx_device *fx_device_get(const char *backend, int id)
{
    const struct known *k = find(backend);
    if (!k || !k->device)
        fx_fail(FX_STATUS_DEVICE, "device", "Unavailable backend: %s: %s",
                backend ? backend : "NULL", fx_why_not(backend));
    else if (id != 0)
        fx_fail(FX_STATUS_DEVICE, "device", "%s has 1 device, there is no id %d", backend, id);
    return k && k->device ? k->device : &cpu;
}

static fx_array *to_device(fx_array *x, void *user)
{
    return fx_array_to(user, x);
}

static void *move_object(void *object, void *user)
{
    const fx_type *type = fx_type_of(object);
    return type->move ? type->move(object, user) : NULL;
}

void *fxi_to(fx_device *device, void *object)
{
    return fx_fmap_objects(to_device, move_object, device ? device : &cpu, object);
}

void *fxi_cpu(void *object)
{
    return fxi_to(&cpu, object);
}

static void say_once(void)
{
    fx_message(
        0, "The GPU functionality is being called but no GPU backend is loaded.\n"
           "Defaulting back to the CPU. (No action is required if you want to run on the CPU).");
}

void *fxi_gpu(void *object)
{
    static pthread_once_t said = PTHREAD_ONCE_INIT;
    pthread_once(&said, say_once);
    return object;
}
