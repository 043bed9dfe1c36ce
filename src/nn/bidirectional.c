/* bidirectional.c: Bidirectional: two recurrent layers over a sequence, one of which runs
 * backwards.
 *
 * The layers' own return_state must be off: both states are results of the Bidirectional. PyTorch
 * gives the arrays of the backward layer the suffix _reverse. Source: Schuster, Paliwal, 1997.
 */
#include "recurrent_layer.h"

/* Stores the initial states of the forward and the backward layer in out[0] and out[1]; NULL: the
 * initial states of their cells. */
static fx_status divide_state(void *state, void *out[2])
{
    char got[200];
    out[0] = out[1] = NULL;
    if (!state)
        return FX_OK;
    if (fx_is_error(state))
        return fxi_state_status(state);
    if (fx_is_array(state) || fx_count(state) != 2) {
        fx_summary(state, got, sizeof got);
        return fx_fail(FX_STATUS_ARGUMENT, "Bidirectional",
                       "expects a tuple of the states of its two layers, but got %s", got);
    }
    out[0] = fx_child(state, 0), out[1] = fx_child(state, 1);
    return FX_OK;
}

void *fxi_bidirectional_run(fx_bidirectional_layer *l, const fxi_recurrent_call *call)
{
    void *layers[] = {l->forward, l->backward}, *states[2];
    fx_array *y[2];
    fx_status status = divide_state(call->state, states);
    for (int i = 0; i < 2 && status == FX_OK; i++) {
        const fxi_recurrent_call one = {call->x, states[i], call->mask, i == 1};
        status = fxi_recurrent_run(layers[i], &one, &y[i], &states[i]);
    }
    if (status != FX_OK)
        return fx_error_array(status);
    fx_array *both = fxi_concat(0, 2, y);
    return l->return_state ? fxi_with_state(both, fx_tuple(states[0], states[1])) : both;
}

static void *bidirectional_forward(void *self, int n, void *const *args)
{
    FXI_SCOPE;
    fx_array *x = fxi_layer_input(self, n == 2 ? 1 : n, args);
    if (fx_is_error(x))
        return fx_keep(x);
    const fxi_recurrent_call call = {x, n == 2 ? args[1] : NULL, NULL, false};
    return fx_keep(fxi_bidirectional_run(self, &call));
}

static bool bidirectional_build(const fx_type *type, const void *options, void *self)
{
    const fx_bidirectional_layer *l = self;
    const fx_recurrent_layer *both[] = {l->forward, l->backward};
    char got[200];
    (void)options;
    for (int i = 0; i < 2; i++) {
        if (both[i] && fx_is_error(both[i]))
            return false;
        if (!fxi_is_recurrent(both[i]))
            return fxi_layer_fail(type, "expects two recurrent layers, such as LSTM, got %s",
                                  fxi_given(both[i], got, sizeof got));
        if (both[i]->return_state)
            return fxi_layer_fail(type, "set return_state of Bidirectional, not of its layers");
    }
    return true;
}

/* clang-format off */
#define DIRECTION(M, name, suffix)                                                                 \
    M(name, CHILD, FX_FROM(name, LAYER), .positional = "a recurrent layer", .required = true, .torch = suffix)
#define ROWS(M, O, F)                                                                              \
    DIRECTION(M, forward, "*") DIRECTION(M, backward, "*_reverse")                                 \
    M(return_state, FLAG, FX_FROM(return_state, FLAG), .names = "return_state")
/* clang-format on */
FX_LAYER_TYPE(bidirectional, fx_bidirectional_layer, fx_bidirectional_args, FXI_BIDIRECTIONAL_ARGS,
              ROWS,
              (.name = "Bidirectional", .forward = bidirectional_forward, .layout_bytes = 8,
               .flags = FX_TYPE_ONE_LINE),
              .build = bidirectional_build, .semicolon = true);
FXI_LIBRARY_LAYER(bidirectional, fx_bidirectional_layer, fx_bidirectional_args)
