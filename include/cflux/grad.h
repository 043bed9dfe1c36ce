/* cflux/grad.h: reverse-mode gradients.
 *
 * A gradient is more of the same lazy nodes, so gradients of gradients come for free. Build the
 * gradient before reading the loss: reading first costs a second forward pass.
 */
#ifndef CFLUX_GRAD_H
#define CFLUX_GRAD_H

#include <cflux/array.h>

FXI_BEGIN_C

/* d loss / d model: an object of the model's own type, so that g->weight is the gradient of
 * model->weight. `loss` is a one-element floating-point array. Parameters that the loss does not
 * reach get zeros; integer arrays and fields outside `.trainable` get none (NULL). A tied array has
 * one gradient, the sum over its uses. Errors: a loss of several elements; a loss built before the
 * parameters were last updated (FX_STATUS_STATE), never silent zeros. On error the result is of the
 * model's type, filled with error arrays. Passing an array as `model` gives an array. */
FX_API void *fxi_gradient(fx_array *loss, void *model);
#define fx_gradient(loss, model) (FXI_HERE, (__typeof__(model))fxi_gradient((loss), (model)))

/* As fx_gradient, and evaluates loss and gradient in one plan; *out_value gets the loss (NULL:
 * nowhere). Flux's withgradient. */
FX_API void *fx_withgradient(fx_array *loss, void *model, double *out_value);

/* d loss / d x[i] for n plain arrays, into out_gradients (owned by the scope). */
FX_API fx_status fx_gradient_of(fx_array *loss, fx_array *const *x, int n,
                                fx_array **out_gradients);

/* Vector–Jacobian product: the gradient of Σ y·gy for the given arrays; y of any shape, gy of y's.
 */
FX_API fx_status fx_pullback(fx_array *y, fx_array *gy, fx_array *const *x, int n,
                             fx_array **out_gradients);

FXI_END_C
#endif
