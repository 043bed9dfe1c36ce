/* onnx_recurrent.c: ONNX's RNN, LSTM and GRU, as layers of cflux.
 *
 * ONNX's gates are in another order: i, o, f, c for LSTM and z, r, h for GRU. linear_before_reset =
 * 0 is GRUv3, 1 is GRU. Arrays here are features×batch×time (layout 0), or features×time×batch.
 */
#include "onnx_case.h"

#include <string.h>

/* Rows of the gates, in Flux's order. */
static fx_array *gates(fx_array *w, const int *order, int n)
{
    fx_array *parts[4];
    const int64_t rows = fx_size(w, 0) / n;
    for (int i = 0; i < n; i++)
        parts[i] = fx_slice(w, 0, order[i] * rows, (order[i] + 1) * rows);
    return fxi_concat(0, n, parts);
}

/* W or R: 1×rows×columns in NumPy's order, of which the direction is dropped. */
static fx_array *weight(const onnx_node *n, int i)
{
    return fx_transpose(fx_squeeze(n->in[i], FX_AXES(2)));
}

/* The input biases plus those of the recurrence; zeros if there are none. */
static fx_array *bias(const onnx_node *n, int64_t rows)
{
    if (n->nin < 4 || !n->in[3])
        return fx_zeros(rows);
    fx_array *all = fx_vec(n->in[3]);
    return fx_add(fx_slice(all, 0, 0, rows), fx_slice(all, 0, rows, 2 * rows));
}

static bool is_zero(fx_array *x)
{
    return fx_item(fx_any(fx_ne(x, 0))) == 0;
}

/* The cases have sequences of full length and initial states of zeros only. */
static bool others_are_default(const onnx_node *n)
{
    for (int i = 5; i < n->nin; i++)
        if (n->in[i] && !is_zero(n->in[i]))
            return false;
    return true;
}

static void finish(onnx_node *n, fx_recurrent_layer *layer, int64_t rows, const int *order, int k)
{
    const bool batch_first = onnx_int(n, "layout", 0) == 1;
    onnx_ignore(n, "hidden_size");
    if (fx_is_error(layer))
        return;
    fx_cell_layer *cell = layer->cell;
    fx_array *wi = gates(weight(n, 1), order, k), *wh = gates(weight(n, 2), order, k);
    const int64_t out = fx_size(wh, 1);
    fx_set(&cell->wi, wi);
    if (cell->wh_new)
        fx_set(&cell->wh_new, fx_slice(wh, 0, 2 * out, 3 * out));
    fx_set(&cell->wh, cell->wh_new ? fx_slice(wh, 0, 0, 2 * out) : wh);
    fx_set(&cell->bias, gates(bias(n, rows), order, k));
    void *both = fx_call(layer, batch_first ? n->in[0] : fx_permute(n->in[0], 0, 2, 1));
    if (fx_is_error(both))
        return;
    fx_array *y = fx_child(both, 0), *h = fx_child(both, 1);
    if (!fx_is_array(h))
        h = fx_child(h, 0);
    /* Y: time×directions×batch×out or batch×time×directions×out in NumPy's order */
    n->out[0] = batch_first ? fx_unsqueeze(y, 1) : fx_unsqueeze(fx_permute(y, 0, 2, 1), 2);
    n->out[1] = fx_unsqueeze(h, batch_first ? 1 : 2);
}

static void op_rnn(onnx_node *n)
{
    static const int order[] = {0};
    const int64_t out = fx_size(n->in[2], 0);
    finish(n, fx_rnn(fx_size(n->in[0], 0), out, .return_state = true), out, order, 1);
}

static void op_lstm(onnx_node *n)
{
    static const int order[] = {0, 2, 3, 1};
    const int64_t out = fx_size(n->in[2], 0);
    if (!others_are_default(n))
        n->variant = "peepholes";
    else
        finish(n, fx_lstm(fx_size(n->in[0], 0), out, .return_state = true), 4 * out, order, 4);
}

/* Flux's GRU multiplies no bias by its reset gate, so a bias of the recurrence in the last gate is
 * possible with linear_before_reset = 0 only. */
static void op_gru(onnx_node *n)
{
    static const int order[] = {1, 0, 2};
    const int64_t in = fx_size(n->in[0], 0), out = fx_size(n->in[2], 0);
    const bool first = onnx_int(n, "linear_before_reset", 0) == 1;
    fx_recurrent_layer *layer =
        first ? fx_gru(in, out, .return_state = true) : fx_gruv3(in, out, .return_state = true);
    finish(n, layer, 3 * out, order, 3);
}

const onnx_op onnx_recurrent_ops[] = {
    {"GRU", GOLD_CONTRACTION, op_gru, NULL, NULL},
    {"LSTM", GOLD_CONTRACTION, op_lstm, NULL, NULL},
    {"RNN", GOLD_CONTRACTION, op_rnn, NULL, NULL},
    {NULL, GOLD_POINTWISE, NULL, NULL, NULL},
};
