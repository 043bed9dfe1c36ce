/* cflux/notation.h: reads models, optimiser rules and losses in Flux's notation. */
#ifndef CFLUX_NOTATION_H
#define CFLUX_NOTATION_H

#include <cflux/nn.h>
#include <cflux/optim.h>
#include <cflux/schedule.h>

FXI_BEGIN_C

/* Builds a model with new parameters from a text in Flux's notation. Reads the output of fx_show
 * and fx_summary, including names and comments, and texts like
 *
 *     Chain(Conv((5, 5), 1 => 6, relu), MaxPool((2, 2)), Flux.flatten, Dense(864 => 10))
 *
 * Layers: those of nn.h and of fx_register_layer (layer.h), with Flux's keyword arguments in any
 * order (stride=2 is stride=(2, 2)). Functions: those of tree.h, with or without their module, and
 * small anonymous ones: x -> reshape(x, :, size(x, 4)), x -> maxpool(x, (2, 2)), x -> tanh.(x),
 * x -> 2 .* x, and compositions of these. Older forms are accepted, for example
 * Dense(10, 5, σ). Tuples and named tuples of layers give tuples. The scope owns the result.
 *
 * On failure: an error array, and a record with the position and the expected text: "model, column
 * 15: Dense takes in => out, got 3 => )". FX_STATUS_FORMAT: a syntax error, an unknown name, a
 * number out of range, more than 2^40 parameters, 10000 layers, or 64 nested parentheses. Errors of
 * layer constructors are passed on. */
FX_API void *fx_parse_model(const char *text);
/* fx_parse_model for an input of the given sizes. Each size `_` in the text is replaced by a size
 * of the layer's input: the size along the axis before the last for convolutions, BatchNorm,
 * InstanceNorm and GroupNorm, and along the first axis for all other layers.
 *
 *     fx_autosize("Chain(Conv((3, 3), _ => 5), Flux.flatten, Dense(_ => 10))",
 *                 FX_DIMS(9, 9, 1, 32))
 *
 * fx_parse_model reads the same from "@autosize (9, 9, 1, 32) Chain(…)". In a PairwiseFusion only
 * the first layer may contain `_`, because the inputs of the others are results of the connection.
 * Flux.@autosize. */
FX_API void *fx_autosize(const char *text, fx_dims size);
/* Makes an optimiser rule (optim.h) from a text: "Adam(0.001)", "AdamW(eta=0.001, beta=(0.9,
 * 0.999), lambda=0.01)". The scope owns it. On failure: an error object, and an error record as for
 * fx_parse_model. */
FX_API fx_rule *fx_parse_optimiser(const char *text);
/* Makes a schedule (schedule.h) from a text in the names of ParameterSchedulers.jl, with steps that
 * count from 0: "Step(0.1, 0.5, 10)", "Sequence(Exp(0.1, 0.9) => 10, Constant(0.01) => 5)", and
 * "Warmup(0, 5, CosAnneal(0.001, 0, 45))", which is fx_schedule_warmup. As in Julia, the first two
 * arguments of CosAnneal, Triangle, Sin and their variants are the range and the offset: the values
 * are from offset to offset + range. At most 16 schedules may be nested. The scope owns the result.
 * On failure: an error object, and an error record as for fx_parse_model. */
FX_API fx_schedule *fx_parse_schedule(const char *text);
/* Returns a loss of losses.h by name, "mse" or "Flux.Losses.logitcrossentropy"; call it with
 * fx_call_loss(formula, ŷ, y). If the name is unknown, records FX_STATUS_FORMAT and returns a
 * function that returns error arrays. */
typedef fx_array *(*fx_formula_fn)(const fx_loss_args *a);
FX_API fx_formula_fn fx_parse_loss(const char *text);

FXI_END_C
#endif
