/* gate.h: gates, for tests that watch a backward pass. A gate is an operation between two layers
 * that copies its operand. Its gradient, computed in the middle of the backward pass, does what a
 * test wants.
 */
#ifndef CFLUX_TEST_GATE_H
#define CFLUX_TEST_GATE_H

#include <cflux.h>
#include <string.h>

static inline fx_status gate_copies(const fx_custom_operand *in, const fx_custom_operand *out)
{
    memcpy(out->data, in->data, sizeof(float) * (size_t)(in->sizes[0] * in->sizes[1]));
    return FX_OK;
}

static inline fx_status gate_passes(const fx_custom_op *op, int n, const fx_custom_operand *in,
                                    const fx_custom_operand *out)
{
    (void)op, (void)n;
    return gate_copies(in, out);
}

/* Puts a Float32 matrix through a gate. */
static inline fx_array *gate_pass(const fx_custom_op *op, fx_array *x)
{
    fx_dims sizes = {.n = 2, .v = {fx_size(x, 0), fx_size(x, 1)}};
    return fx_custom(op, 1, &x, FX_DTYPE_F32, sizes);
}

/* `user` is the operation of the backward pass. */
static inline void gate_backward(const fx_custom_op *op, int n, fx_array *const *in, fx_array *out,
                                 fx_array *gy, fx_array **gx)
{
    (void)n, (void)in, (void)out;
    gx[0] = gate_pass(op->user, gy);
}

/* Defines a gate; `does` is the forward function of the operation of its backward pass. */
#define GATE(name, does)                                                                           \
    static fx_custom_op name##_back = {.fxi_size = sizeof(fx_custom_op), .forward = (does)};       \
    static fx_custom_op name = {.fxi_size = sizeof(fx_custom_op),                                  \
                                .forward = gate_passes,                                            \
                                .gradient = gate_backward,                                         \
                                .user = &name##_back}

#endif
