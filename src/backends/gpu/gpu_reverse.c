/* gpu_reverse.c: reverses the windows of a convolution's weights, for a library that computes
 * cross-correlations only. The spatial axes are the first ones, so a window that is reversed along
 * all of them has its neighbouring elements in the opposite order.
 */
#include "gpu_text.h"

void fxi_gpu_reverse(fxi_gpu_builder *b, fxi_gpu_buffer_ref from, fxi_gpu_buffer_ref to,
                     int64_t length, int64_t window)
{
    fxi_gpu_begin(b, fxi_gpu_wide(length + FXI_GPU_GROUP));
    fxi_gpu_kernel(b, "fx_reverse", 2, 2);
    fxi_gpu_set(b, "stored", fxi_gpu_types[b->step->out.dtype].stored);
    fxi_gpu_say_part(b, fxi_gpu_text_reverse);
    fxi_gpu_end(b);
    fxi_gpu_call *c = fxi_gpu_add(b);
    fxi_gpu_buffer(c, 0, (fxi_gpu_role)from.role, from.k);
    fxi_gpu_buffer(c, 1, (fxi_gpu_role)to.role, to.k);
    fxi_gpu_param(c, 0, length);
    fxi_gpu_param(c, 1, window);
    c->groups[0] = fxi_gpu_divide_up(length, FXI_GPU_GROUP);
}
