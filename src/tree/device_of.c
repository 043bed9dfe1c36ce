/* device_of.c: the device of an object. */
#include <cflux/device.h>
#include <cflux/tree.h>

typedef struct finding {
    fx_device *first, *other;
} finding;

static void note_device(fx_array *x, const char *path, bool trainable, void *user)
{
    finding *f = user;
    (void)path;
    (void)trainable;
    fx_device *device = fx_array_device(x);
    if (!f->first)
        f->first = device;
    else if (device != f->first)
        f->other = device;
}

fx_device *fx_device_of(void *object)
{
    finding f = {0};
    if (!object)
        fx_fail(FX_STATUS_ARGUMENT, "device_of", "the object is NULL");
    else if (!fx_is_error(object))
        fx_visit(object, note_device, &f);
    if (!f.other)
        return f.first;
    fx_fail(FX_STATUS_DEVICE, "device_of", "Objects are on different devices: %s and %s.",
            fx_device_name(f.first), fx_device_name(f.other));
    return NULL;
}
