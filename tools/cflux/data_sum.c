/* data_sum.c: computes checksums of data and models: see data_sum.h. */
#include "data_sum.h"
#include <string.h>
#include <zlib.h>

static uint32_t add_bytes(uint32_t sum, const void *bytes, size_t n)
{
    return (uint32_t)crc32_z(sum, bytes, n);
}

static uint32_t add_array(uint32_t sum, fx_array *x, fx_dtype type)
{
    fx_array *plain = fx_cast(x, type);
    const void *values = fx_data(plain);
    return values ? add_bytes(sum, values, (size_t)fx_length(plain) * fx_dtype_size(type)) : 0;
}

uint32_t data_sum(const dataset *d)
{
    FX_SCOPE;
    uint32_t sum = add_array(0, d->x, FX_DTYPE_F32);
    if (d->y)
        sum = add_array(sum, d->y, FX_DTYPE_F64);
    for (int64_t i = 0; d->labels && i < fx_count(d->labels); i++) {
        const char *name = fx_child_name(d->labels, i);
        sum = add_bytes(sum, name, strlen(name) + 1);
    }
    return sum;
}

static void add_weights(fx_array *x, const char *path, bool trainable, void *user)
{
    (void)path;
    (void)trainable;
    uint32_t *sum = user;
    *sum = add_array(*sum, fx_cpu(x), FX_DTYPE_F64);
}

uint32_t model_sum(void *model)
{
    FX_SCOPE;
    uint32_t sum = 0;
    fx_visit(model, add_weights, &sum);
    return sum;
}
