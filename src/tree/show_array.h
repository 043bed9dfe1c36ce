/* show_array.h: arrays as text. Internal. */
#ifndef CFLUX_SHOW_ARRAY_H
#define CFLUX_SHOW_ARRAY_H

#include "node.h"
#include "text.h"

/* "3×2 Matrix{Float32}", "2×3×4 Array{Float32, 3}"; brief: "2×3×4 Array{Float32,...}", as Flux
 * writes arrays among layers. Evaluates nothing. */
void fxi_array_summary(fx_text *text, const fx_array *x, bool brief);

/* What Julia shows at its prompt, without a last newline. Evaluates x. */
void fxi_array_show(fx_text *text, fx_array *x);

/* The first element of an evaluated array. */
static inline const char *fxi_array_elements(const fx_array *x)
{
    const fxi_data *d = x->node->data;
    return (const char *)d->buffer->ptr +
           d->offset * (int64_t)fx_dtype_size((fx_dtype)x->node->dtype);
}

#endif
