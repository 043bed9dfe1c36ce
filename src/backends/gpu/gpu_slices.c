/* gpu_slices.c: the end of products and convolutions: an epilogue that walks its operands, and sums
 * in slices.
 *
 * If a product has too few tiles to keep the device busy, its terms are cut into slices. Each slice
 * has sums of its own in work space, and a second kernel adds them, always in the same order: no
 * atomics, and the same bits in every run. Sums are complete only in that kernel, so it applies the
 * epilogue. Sums of 16-bit floats are Float32.
 */
#include "gpu_text.h"

#include <string.h>

/* Operands may be broadcast along any axis, so they are walked, like those of elementwise steps. */
fxi_gpu_finish fxi_gpu_finish_of(const fx_step *s)
{
    fxi_gpu_layout l = {.nd = s->out.ndim};
    const bool ordered = s->cls == FX_CLASS_MATMUL && fxi_gpu_is_ordered(&s->out);
    fxi_gpu_finish f = {.operands = s->nin - 2, .out = -1};
    memcpy(l.shape, s->out.shape, sizeof l.shape);
    for (int k = 0; k < f.operands; k++)
        f.pattern[k] = fxi_gpu_layout_add(&l, s->in[2 + k].stride);
    if (ordered)
        f.out = fxi_gpu_layout_add(&l, s->out.stride);
    f.walk = fxi_gpu_walk_over(&l, UINT32_MAX);
    return f;
}

void fxi_gpu_finish_use(fxi_gpu_builder *b, const fxi_gpu_finish *f, int first)
{
    for (int k = 0; k < f->operands; k++)
        fxi_gpu_say(b, "FX_USE(%d, const %s, e%d)\n", first + k,
                    fxi_gpu_types[b->step->in[2 + k].dtype].stored, k);
}

void fxi_gpu_finish_set(const fxi_gpu_finish *f, fxi_gpu_call *call, int first_buffer,
                        int first_param)
{
    for (int k = 0; k < f->operands; k++)
        fxi_gpu_buffer(call, first_buffer + k, FXI_GPU_IN, 2 + k);
    fxi_gpu_walk_fill(&f->walk, call, first_param);
}

/* The sum is rounded to the output's type first, as if the epilogue were steps of their own, so
 * that fusion does not change a bit. */
void fxi_gpu_finish_say(fxi_gpu_builder *b, const fxi_gpu_finish *f, const char *sum,
                        int first_param)
{
    const fx_step *s = b->step;
    const fxi_gpu_type *t = &fxi_gpu_types[s->out.dtype];
    /* Without an epilogue the store rounds. */
    const bool rounds = t->math && t->size == 2 && fx_step_has_epilogue(s);
    fxi_gpu_say(b, "const %s r0 = %s%s(%s);\n", t->value, rounds ? "fx_round_" : "",
                rounds ? t->name : "", sum);
    fxi_gpu_walk_say(b, &f->walk, first_param, "i", "o", NULL);
    for (int k = 0; k < f->operands; k++) {
        const fxi_gpu_type *from = &fxi_gpu_types[s->in[2 + k].dtype];
        fxi_gpu_say(b, "const %s r%d = FX_LOAD_%s(e%d, o%d);\n", from->value, 1 + k, from->name, k,
                    f->pattern[k]);
    }
    const int result = fxi_gpu_say_program(b, 1 + f->operands);
    if (f->out < 0)
        fxi_gpu_say(b, "FX_STORE_%s(y, i, r%d);\n", t->name, result);
    else
        fxi_gpu_say(b, "FX_STORE_%s(y, o%d, r%d);\n", t->name, f->out, result);
}

int64_t fxi_gpu_slices_work(fxi_gpu_builder *b, const fxi_gpu_slices *s)
{
    const int64_t size = fxi_gpu_size(b->step->out.dtype) == 8 ? 8 : 4;
    return fxi_gpu_work(b, s->length * s->n * size);
}

void fxi_gpu_slices_add(fxi_gpu_builder *b, const fxi_gpu_slices *s, const fxi_gpu_finish *f,
                        int64_t work)
{
    /* The other work-items of a group take other slices of the same elements. At least a warp of
     * neighbours, so that they read neighbouring memory. */
    int32_t columns = FXI_GPU_GROUP / fxi_gpu_power(s->n);
    if (columns < b->limits->warp)
        columns = b->limits->warp;
    fxi_gpu_begin(b, s->wide);
    fxi_gpu_kernel(b, "fx_slices", 2 + f->operands, 2 + fxi_gpu_walk_params(&f->walk));
    fxi_gpu_set(b, "value", s->sum);
    fxi_gpu_set(b, "stored", fxi_gpu_types[b->step->out.dtype].stored);
    fxi_gpu_set_number(b, "columns", columns);
    const char *text = fxi_gpu_say_until(b, fxi_gpu_text_slices, "operands");
    fxi_gpu_finish_use(b, f, 2);
    text = fxi_gpu_say_until(b, text, "finish");
    fxi_gpu_finish_say(b, f, "sum", 2);
    fxi_gpu_say_part(b, text);
    fxi_gpu_end(b);
    fxi_gpu_call *call = fxi_gpu_add(b);
    fxi_gpu_buffer(call, 0, FXI_GPU_WORK, work);
    fxi_gpu_buffer(call, 1, FXI_GPU_OUT, 0);
    fxi_gpu_param(call, 0, s->length);
    fxi_gpu_param(call, 1, s->n);
    fxi_gpu_finish_set(f, call, 2, 2);
    call->groups[0] = fxi_gpu_divide_up(s->length, columns);
}
