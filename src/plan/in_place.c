/* in_place.c: may a step write an output over a value that it reads?
 *
 * The one answer for arena memory (place.c) and for the buffers of replaced values (donate.c).
 * Only elementwise steps may: they read element i of every operand before they write element i of
 * an output. So each operand that is the value has to begin where the output begins, and to have
 * its element i at the byte where the output has its element i: the same offset, sizes, strides and
 * element size. A value that is larger than the operand does not qualify, even if the bytes of the
 * value and of the output are equal in number: half of a Float32 array, widened to Float64, has as
 * many bytes as the whole array, and element 1 of the output lies over element 2 of the array.
 */
#include "plan.h"

/* Is element i of the operand where element i of the output is, for all i, if the value and the
 * output begin at the same byte? Outputs are dense. */
static bool coincides(const fxi_plan *p, const fx_step *s, int k, int32_t out)
{
    const fx_tensor *t = &s->in[k];
    const int64_t size = (int64_t)fx_dtype_size((fx_dtype)t->dtype);
    if (s->in_offset[k] != 0 || t->ndim != s->out.ndim ||
        !fxi_is_dense(t->ndim, t->shape, t->stride))
        return false;
    for (int a = 0; a < t->ndim; a++)
        if (t->shape[a] != s->out.shape[a])
            return false;
    return fx_tensor_length(t) * size == p->values[out].bytes &&
           p->values[s->in_value[k]].bytes == p->values[out].bytes;
}

fxi_reading fxi_reads(const fxi_plan *p, const fx_step *s, int32_t value, int32_t out)
{
    fxi_reading how = FXI_READS_NOT;
    for (int k = 0; k < s->nin && how != FXI_READS_OTHERWISE; k++)
        if (s->in_value[k] == value)
            how = out >= 0 && s->cls == FX_CLASS_ELEMENTWISE && coincides(p, s, k, out)
                      ? FXI_READS_IN_PLACE
                      : FXI_READS_OTHERWISE;
    return how;
}
