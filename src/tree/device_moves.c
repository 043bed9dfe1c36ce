/* device_moves.c: moves whole objects between devices.
 *
 * One walk moves every array once, so tied arrays stay tied. A type may replace the move of its
 * objects (fx_type.move). An object that is already on the device is returned unchanged.
 */
#include "reads.h"
#include "registry.h"

#include <cflux/device.h>
#include <cflux/ops.h>
#include <string.h>

static fx_array *to_device(fx_array *x, void *user)
{
    return fx_array_to(user, x);
}

static void *object_to_device(void *object, void *user)
{
    const fx_type *type = fx_type_of(object);
    return type->move ? type->move(object, user, NULL) : NULL;
}

static fx_array *to_device_alone(fx_array *x, void *user)
{
    return fxi_array_to_alone(user, x);
}

/* Two ways to move an array: `array` keeps the history that gradients need, `alone` drops it. */
typedef struct moves {
    fx_map_user_fn array, alone;
    fx_object_fn object;
} moves;
static const moves device_moves = {to_device, to_device_alone, object_to_device};

/* A single pending array moves when it is evaluated, as part of its graph. Models and batches move
 * now. Outside a training step they move without their history, which would keep the memory on the
 * previous device alive for as long as they live. */
static void *moved(const moves *m, fx_device *device, void *object)
{
    const bool alone = !fx_is_array(object) && !fx_training();
    void *result = fx_fmap_objects(alone ? m->alone : m->array, m->object, device, object);
    if (result != object && !fx_is_array(result))
        fx_eval(result);
    return result;
}

void *fxi_to(fx_device *device, void *object)
{
    return moved(&device_moves, device ? device : fx_cpu_device(), object);
}

void *fxi_cpu(void *object)
{
    return fxi_to(fx_cpu_device(), object);
}

/* Follows CUDA.cu: Float64 becomes Float32 on the way to an accelerator. 16-bit floats, integers,
 * and arrays already on the device keep their type. */
static fx_array *narrowed(fx_map_user_fn move, fx_array *x, fx_device *device)
{
    const bool narrow = !fx_is_error(x) && fx_eltype(x) == FX_DTYPE_F64 &&
                        device != fx_cpu_device() && fx_array_device(x) != device;
    fx_array *result = move(narrow ? fx_cast(x, FX_DTYPE_F32) : x, device);
    if (narrow && fx_is_evaluated(x)) /* move evaluated values now: they may be borrowed memory */
        fx_eval(result);
    return result;
}

static fx_array *to_gpu(fx_array *x, void *user)
{
    return narrowed(to_device, x, user);
}

static fx_array *to_gpu_alone(fx_array *x, void *user)
{
    return narrowed(to_device_alone, x, user);
}

static void *object_to_gpu(void *object, void *user)
{
    const fx_type *type = fx_type_of(object);
    return type->move ? type->move(object, user, to_gpu) : NULL;
}

static const moves gpu_moves = {to_gpu, to_gpu_alone, object_to_gpu};

void *fxi_gpu(void *object)
{
    fx_device *device = fx_gpu_device();
    if (device != fx_cpu_device())
        return moved(&gpu_moves, device, object);
    return strcmp(fx_gpu_backend(), "CPU") == 0 ? fxi_cpu(object) : object;
}

void *fxi_gpu_strict(void *object)
{
    fx_device *device = fxi_gpu_required("gpu_strict");
    if (device)
        return moved(&gpu_moves, device, object);
    return fx_is_array(object) ? fx_error_array(FX_STATUS_DEVICE)
                               : fx_error_object(fx_type_of(object));
}

void *fxi_cu(void *object)
{
    fx_device *device = fxi_cuda_or_none();
    return device ? moved(&gpu_moves, device, object) : object;
}

fx_array *(fx_cu)(fx_array *x)
{
    return fxi_cu(x);
}
fx_array *(fx_gpu)(fx_array *x)
{
    return fxi_gpu(x);
}
fx_array *(fx_cpu)(fx_array *x)
{
    return fxi_cpu(x);
}
