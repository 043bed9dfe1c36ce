/* cflux/grad.h: reverse-mode gradients.
 *
 * Gradients consist of the same graph nodes as other results, so they can be differentiated again.
 * Call fx_gradient before you read the loss: after a read the forward pass runs a second time. */
#ifndef CFLUX_GRAD_H
#define CFLUX_GRAD_H

#include <cflux/array.h>

FXI_BEGIN_C

/* fx_gradient(loss, model): d loss / d model, an object of the model's type, so that g->weight is
 * the gradient of model->weight. For an array as `model` the result is an array. Owned by the
 * scope. `loss` is a one-element floating-point array.
 *
 * Parameters that the loss does not depend on get zeros, and fx_update does not change them;
 * integer arrays and fields that are not trainable get NULL. A tied array has one gradient, the sum
 * over its uses. Flux.gradient.
 *
 * Errors: FX_STATUS_SHAPE if the loss does not have one element; FX_STATUS_DTYPE if it is not
 * floating-point; FX_STATUS_ARGUMENT for NULL; FX_STATUS_STATE if the loss was built before the
 * latest update of the parameters. If an error occurs, the result has the model's type and contains
 * error arrays. */
FX_API void *fxi_gradient(fx_array *loss, void *model);
#define fx_gradient(loss, model) (FXI_HERE, (__typeof__(model))fxi_gradient((loss), (model)))

/* As fx_gradient, but also evaluates the loss and the gradient, in one plan. Stores the loss in
 * *out_value, NaN on failure; out_value may be NULL. Flux.withgradient. */
FX_API void *fx_withgradient(fx_array *loss, void *model, double *out_value);

/* Stores d loss / d x[i] for n arrays in out_gradients[0 … n−1]; the scope owns them. NULL for an
 * integer array. Errors as for fx_gradient; out_gradients then holds error arrays. */
FX_API fx_status fx_gradient_of(fx_array *loss, fx_array *const *x, int n,
                                fx_array **out_gradients);

/* Vector–Jacobian product: stores d Σ(y·gy) / d x[i] in out_gradients[0 … n−1]. y may have any
 * shape. FX_STATUS_SHAPE if gy does not have the shape of y. The rest is as for fx_gradient_of. */
FX_API fx_status fx_pullback(fx_array *y, fx_array *gy, fx_array *const *x, int n,
                             fx_array **out_gradients);

/* ---- second derivatives and Jacobians -------------------------------------------------------- */
/* The Jacobian of y with respect to x: the length(y)×length(x) matrix J[i, j] = d y[i] / d x[j],
 * elements in column-major order. It takes one reverse sweep for each element of y. For the
 * parameters of a model, x is a vector from fx_destructure, and y is computed with fx_restructure.
 * FX_STATUS_DTYPE if y or x is not floating-point. Flux.jacobian. */
FX_API fx_array *fx_jacobian(fx_array *y, fx_array *x);
/* As fx_jacobian, but also evaluates y and the Jacobian, in one plan. Flux.withjacobian. */
FX_API fx_array *fx_withjacobian(fx_array *y, fx_array *x);
/* The Hessian of a one-element loss: the symmetric length(x)×length(x) matrix of d² loss / d x[i] d
 * x[j]. Errors as for fx_gradient_of. Flux.hessian. */
FX_API fx_array *fx_hessian(fx_array *loss, fx_array *x);
/* The diagonal of the Hessian, with the shape of x. Errors as for fx_gradient_of.
 * Flux.diaghessian. */
FX_API fx_array *fx_diaghessian(fx_array *loss, fx_array *x);

FXI_END_C
#endif
