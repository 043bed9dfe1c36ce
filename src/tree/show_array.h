/* show_array.h: arrays as text. Internal. */
#ifndef CFLUX_SHOW_ARRAY_H
#define CFLUX_SHOW_ARRAY_H

#include "node.h"
#include "text.h"

/* "3×2 Matrix{Float32}", "2×3×4 Array{Float32, 3}"; brief: "2×3×4 Array{Float32,...}", as Flux
 * prints arrays among layers. Evaluates nothing. */
void fxi_array_summary(fx_text *text, const fx_array *x, bool brief);

/* The text that Julia shows at its prompt, without a final newline. Evaluates x. */
void fxi_array_show(fx_text *text, fx_array *x);

/* The same values on one line: "Float32[1.0 2.0; 3.0 4.0]", long axes cut. An array that is
 * pending, or on another device than the CPU, is only summarised, with its device. */
void fxi_array_inline(fx_text *text, const fx_array *x);

#endif
