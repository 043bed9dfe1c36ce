/* cflux/notation.h: models, optimiser rules and losses as text, in Flux's notation. */
#ifndef CFLUX_NOTATION_H
#define CFLUX_NOTATION_H

#include <cflux/nn.h>
#include <cflux/optim.h>

FXI_BEGIN_C

/* The model that a text in Flux's notation describes, with new parameters: what fx_show and
 * fx_summary print, comments and names included, and what is written by hand, such as
 *
 *     Chain(Conv((5, 5), 1 => 6, relu), MaxPool((2, 2)), Flux.flatten, Dense(864 => 10))
 *
 * Layers are those of nn.h and those given to fx_register_layer (layer.h), their options Flux's
 * keyword arguments in any order (stride=2 is stride=(2, 2)), functions those of tree.h with or
 * without their module; older forms such as Dense(10, 5, σ) are read too. Tuples of layers, named
 * ones as well, are tuples. The result belongs to the scope. Errors are an error object; their
 * records name the place and what was expected: "model, column 15: Dense takes in => out, got 3 =>
 * )". FX_STATUS_FORMAT: not the notation, an unknown name, a number out of its range, more than
 * 2^40 parameters in all, 10000 layers, or parentheses 64 deep; otherwise what the layer's
 * constructor says. */
FX_API void *fx_parse_model(const char *text);
/* A rule of optim.h: "Adam(0.001)", "AdamW(eta=0.001, beta=(0.9, 0.999), lambda=0.01)". */
FX_API fx_rule *fx_parse_optimiser(const char *text);
/* A loss of nn.h by its name: "mse", "Flux.Losses.logitcrossentropy", to be called as
 * fx_call_loss(formula, ŷ, y). When there is none, a
 * function that returns error arrays. */
typedef fx_array *(*fx_formula_fn)(const fx_loss_args *a);
FX_API fx_formula_fn fx_parse_loss(const char *text);

FXI_END_C
#endif
