/* cflux/recurrent.h: recurrent cells, and layers that apply a cell to a sequence. Included by nn.h.
 *
 * A cell computes one time step. fx_call(cell, x, state) returns the tuple (output, new state), as
 * in Flux: fx_child(t, 0) is the output, fx_child(t, 1) the state. x is a vector of `in` numbers,
 * or in×batch; the state has `out` numbers, or out×batch, and fx_call(cell, x) starts with the
 * cell's initial state. The state of an LSTMCell is a tuple (h, c).
 *
 * A recurrent layer applies its cell to every time step of x: in×len, or in×len×batch, and returns
 * out×len, or out×len×batch. fx_call(layer, x, state) starts with this state. With .return_state =
 * true it returns the tuple (y, last state). The products of Wi with all time steps are one matrix
 * product. The layer keeps no state between calls, unlike the layers of Flux until 0.14, which had
 * reset!.
 *
 * Errors of calls: FX_STATUS_SHAPE for inputs and states of another size, and for a sequence
 * without time steps; FX_STATUS_ARGUMENT for a state that is not an array, or not a tuple of two
 * arrays for an LSTM.
 *
 * Files of Flux:
 *  - Flux until 0.14: fx_load reads a Recur(cell, state) as an RNN, LSTM, GRU or GRUv3. Its trained
 *    initial state becomes h0 and c0; an initial state of zeros becomes NULL.
 *  - Flux since 0.15 cannot store an initial state: saving a layer with h0 or c0 as BSON is
 *    FX_STATUS_UNSUPPORTED. Flux's GRU has no hidden_bias, so saving a layer with hidden_bias is
 *    FX_STATUS_UNSUPPORTED too.
 *
 * State dictionaries of PyTorch (fx_torch_state):
 *  - wi, wh and bias are called weight_ih, weight_hh and bias_ih, in layers with the suffix _l0.
 *    The gates have the same order.
 *  - PyTorch has a second vector, bias_hh. It is written as zeros; a file's bias_hh is added to the
 *    bias.
 *  - PyTorch's GRU multiplies the last third of bias_hh, b_hn, by the reset gate. A GRU with
 *    .hidden_bias = true reads and writes this third as its hidden_bias. Without the option the
 *    third must be 0, otherwise loading is FX_STATUS_UNSUPPORTED.
 *  - A chain of recurrent layers also loads from one PyTorch module with num_layers: its k-th layer
 *    from the arrays with the suffix _lk. It is saved as separate modules.
 *  - PyTorch has no GRUv3. */
#ifndef CFLUX_RECURRENT_H
#define CFLUX_RECURRENT_H

#include <cflux/nn.h>

FXI_BEGIN_C

/* ---- cells ----------------------------------------------------------------------------------- */
/* A cell of any of the four kinds. */
typedef struct fx_cell_layer {
    fx_object base;
    fx_array *wi;          /* Wi: (gates·out)×in */
    fx_array *wh;          /* Wh: (gates·out)×out; of a GRUv3Cell (2·out)×out */
    fx_array *bias;        /* b: gates·out; NULL with .bias = false */
    fx_array *wh_new;      /* Wh_h̃ of a GRUv3Cell: out×out; else NULL */
    fx_array *h0;          /* initial state, out numbers, trained; NULL: zeros */
    fx_array *c0;          /* of an LSTMCell: the same for c */
    fx_function *act;      /* of an RNNCell */
    fx_array *hidden_bias; /* b_hn of a GRUCell with .hidden_bias = true: out; else NULL */
} fx_cell_layer;
typedef fx_cell_layer fx_rnncell_layer, fx_lstmcell_layer, fx_grucell_layer, fx_gruv3cell_layer;

/* RNNCell: h' = act(Wi·x + Wh·h + b). Flux.RNNCell. */
/* clang-format off */
#define FXI_RNNCELL_ARGS(F)                                                                        \
    F(int64_t, in, 0)                                 /* size of x along axis 0 */                 \
    F(int64_t, out, 0)                                /* size of h along axis 0 */                 \
    F(fx_function *, act, FX_TANH)                    /* activation */                             \
    F(int, bias, true)                                /* false: no bias */                         \
    F(fx_init_fn, init_kernel, fx_glorot_uniform)     /* initialiser of Wi */                      \
    F(fx_init_fn, init_recurrent_kernel, fx_glorot_uniform) /* initialiser of Wh */                \
    F(fx_array *, wi_array, FXI_NULL)                 /* Wi itself; in and out may be 0 */         \
    F(fx_array *, wh_array, FXI_NULL)                 /* Wh itself */                              \
    F(fx_array *, bias_array, FXI_NULL)               /* b itself, instead of zeros */             \
    F(fx_array *, h0, FXI_NULL)                       /* initial state, a vector; NULL: zeros */
/* clang-format on */
FXI_OPTION_STRUCT(fx_rnncell_args, FXI_RNNCELL_ARGS);
FX_API fx_rnncell_layer *fxi_rnncell(const fx_rnncell_args *a);
#define fx_rnncell(...)                                                                            \
    FXI_CALL(                                                                                      \
        fxi_rnncell(FXI_OPTIONS(fx_rnncell_args, FXI_RNNCELL_ARGS(FXI_DEFAULT).in = __VA_ARGS__)))

/* In the formulas ⊙ is the elementwise product. LSTMCell, with the rows of Wi, Wh and b for the
 * gates i, f, g, o in this order:
 *   i, f, o = σ(Wi·x + Wh·h + b),  g = tanh(Wi·x + Wh·h + b)
 *   c' = f⊙c + i⊙g,  h' = o⊙tanh(c')
 * Hochreiter, Schmidhuber, 1997; Gers et al., 2000. Flux.LSTMCell.
 * GRUCell, with the gates r, z, h̃ in this order:
 *   r, z = σ(Wi·x + Wh·h + b),  h̃ = tanh(Wi·x + r⊙(Wh·h) + b),  h' = (1 − z)⊙h̃ + z⊙h
 * Version 1 of Cho et al., 2014. Flux.GRUCell. With .hidden_bias = true it has a second bias b_hn
 * of `out` numbers, as PyTorch's GRUCell: h̃ = tanh(Wi·x + r⊙(Wh·h + b_hn) + b). FX_STATUS_ARGUMENT
 * for hidden_bias in another cell, or with .bias = false.
 * GRUv3Cell: as GRUCell, with h̃ = tanh(Wi·x + Wh_h̃·(r⊙h) + b). Version 3. Flux.GRUv3Cell. */
/* clang-format off */
#define FXI_LSTMCELL_ARGS(F)                                                                     \
    F(int64_t, in, 0)                                 /* size of x along axis 0 */                 \
    F(int64_t, out, 0)                                /* size of h along axis 0 */                 \
    F(int, bias, true)                                /* false: no bias */                         \
    F(fx_init_fn, init_kernel, fx_glorot_uniform)     /* initialiser of Wi */                      \
    F(fx_init_fn, init_recurrent_kernel, fx_glorot_uniform) /* initialiser of Wh and Wh_h̃ */       \
    F(fx_array *, wi_array, FXI_NULL)                 /* Wi itself; in and out may be 0 */         \
    F(fx_array *, wh_array, FXI_NULL)                 /* Wh itself */                              \
    F(fx_array *, wh_new_array, FXI_NULL)             /* Wh_h̃ itself, GRUv3Cell only */            \
    F(fx_array *, bias_array, FXI_NULL)               /* b itself, instead of zeros */             \
    F(fx_array *, h0, FXI_NULL)                       /* initial state, a vector; NULL: zeros */   \
    F(fx_array *, c0, FXI_NULL)                       /* the same for c, LSTMCell only */          \
    F(bool, hidden_bias, false)                       /* true: b_hn as well, GRUCell only */       \
    F(fx_array *, hidden_bias_array, FXI_NULL)        /* b_hn itself, instead of zeros */
/* clang-format on */
FXI_OPTION_STRUCT(fx_lstmcell_args, FXI_LSTMCELL_ARGS);
typedef fx_lstmcell_args fx_grucell_args;
typedef fx_lstmcell_args fx_gruv3cell_args;
FX_API fx_lstmcell_layer *fxi_lstmcell(const fx_lstmcell_args *a);
FX_API fx_grucell_layer *fxi_grucell(const fx_grucell_args *a);
FX_API fx_gruv3cell_layer *fxi_gruv3cell(const fx_gruv3cell_args *a);
#define FXI_GATED_CELL(f, ...)                                                                     \
    FXI_CALL((f)(FXI_OPTIONS(fx_lstmcell_args, FXI_LSTMCELL_ARGS(FXI_DEFAULT).in = __VA_ARGS__)))
#define fx_lstmcell(...)  FXI_GATED_CELL(fxi_lstmcell, __VA_ARGS__)
#define fx_grucell(...)   FXI_GATED_CELL(fxi_grucell, __VA_ARGS__)
#define fx_gruv3cell(...) FXI_GATED_CELL(fxi_gruv3cell, __VA_ARGS__)

/* ---- layers ---------------------------------------------------------------------------------- */
/* RNN, LSTM, GRU, GRUv3 and Recurrence. */
typedef struct fx_recurrent_layer {
    fx_object base;
    void *cell; /* an fx_cell_layer; of a Recurrence any cell */
    bool return_state;
} fx_recurrent_layer;
typedef fx_recurrent_layer fx_rnn_layer, fx_lstm_layer, fx_gru_layer, fx_gruv3_layer;
typedef fx_recurrent_layer fx_recurrence_layer;

/* An RNNCell over a sequence. Flux.RNN. */
/* clang-format off */
#define FXI_RNN_ARGS(F)                                                                            \
    F(int64_t, in, 0)                                 /* size of x along axis 0 */                 \
    F(int64_t, out, 0)                                /* size of y along axis 0 */                 \
    F(fx_function *, act, FX_TANH)                    /* activation */                             \
    F(bool, return_state, false)                      /* true: returns (y, last state) */          \
    F(int, bias, true)                                /* false: no bias */                         \
    F(fx_init_fn, init_kernel, fx_glorot_uniform)     /* initialiser of Wi */                      \
    F(fx_init_fn, init_recurrent_kernel, fx_glorot_uniform) /* initialiser of Wh */                \
    F(void *, cell, FXI_NULL)                         /* the cell itself; in and out may be 0, and \
                                                         the options for a new cell are not used */
/* clang-format on */
FXI_OPTION_STRUCT(fx_rnn_args, FXI_RNN_ARGS);
FX_API fx_rnn_layer *fxi_rnn(const fx_rnn_args *a);
#define fx_rnn(...)                                                                                \
    FXI_CALL(fxi_rnn(FXI_OPTIONS(fx_rnn_args, FXI_RNN_ARGS(FXI_DEFAULT).in = __VA_ARGS__)))

/* An LSTMCell, GRUCell or GRUv3Cell over a sequence. Flux.LSTM, Flux.GRU, Flux.GRUv3. */
/* clang-format off */
#define FXI_LSTM_ARGS(F)                                                                          \
    F(int64_t, in, 0)                                 /* size of x along axis 0 */                 \
    F(int64_t, out, 0)                                /* size of y along axis 0 */                 \
    F(bool, return_state, false)                      /* true: returns (y, last state) */          \
    F(int, bias, true)                                /* false: no bias */                         \
    F(fx_init_fn, init_kernel, fx_glorot_uniform)     /* initialiser of Wi */                      \
    F(fx_init_fn, init_recurrent_kernel, fx_glorot_uniform) /* initialiser of Wh and Wh_h̃ */       \
    F(void *, cell, FXI_NULL)                         /* the cell itself; in and out may be 0, and \
                                                         the options for a new cell are not used */ \
    F(bool, hidden_bias, false)                       /* true: b_hn as well, GRU only */
/* clang-format on */
FXI_OPTION_STRUCT(fx_lstm_args, FXI_LSTM_ARGS);
typedef fx_lstm_args fx_gru_args;
typedef fx_lstm_args fx_gruv3_args;
FX_API fx_lstm_layer *fxi_lstm(const fx_lstm_args *a);
FX_API fx_gru_layer *fxi_gru(const fx_gru_args *a);
FX_API fx_gruv3_layer *fxi_gruv3(const fx_gruv3_args *a);
#define FXI_GATED(f, ...)                                                                          \
    FXI_CALL((f)(FXI_OPTIONS(fx_lstm_args, FXI_LSTM_ARGS(FXI_DEFAULT).in = __VA_ARGS__)))
#define fx_lstm(...)  FXI_GATED(fxi_lstm, __VA_ARGS__)
#define fx_gru(...)   FXI_GATED(fxi_gru, __VA_ARGS__)
#define fx_gruv3(...) FXI_GATED(fxi_gruv3, __VA_ARGS__)

/* Any cell over a sequence: an object whose call with (x) and with (x, state) returns the tuple
 * (output, new state), where x is one time step. The outputs of all time steps must have the same
 * shape. FX_STATUS_ARGUMENT if the cell is NULL or cannot be called, or returns anything but a
 * tuple of two. Flux.Recurrence. */
/* clang-format off */
#define FXI_RECURRENCE_ARGS(F)                                                                     \
    F(void *, cell, FXI_NULL)    /* the cell */                                                    \
    F(bool, return_state, false) /* true: returns (y, last state) */
/* clang-format on */
FXI_OPTION_STRUCT(fx_recurrence_args, FXI_RECURRENCE_ARGS);
FX_API fx_recurrence_layer *fxi_recurrence(const fx_recurrence_args *a);
#define fx_recurrence(...)                                                                         \
    FXI_CALL(fxi_recurrence(                                                                       \
        FXI_OPTIONS(fx_recurrence_args, FXI_RECURRENCE_ARGS(FXI_DEFAULT).cell = __VA_ARGS__)))

/* Two recurrent layers over a sequence: `forward` from the first time step to the last, `backward`
 * from the last to the first. y is (out + out)×len×batch: at each time step first the outputs of
 * `forward`, then those of `backward` at the same time step. fx_call(l, x, state) starts with the
 * states of the tuple (forward, backward); with .return_state = true the result is (y, states),
 * where `states` is the tuple of the last states of `forward` and `backward`. In a state dictionary
 * the arrays of `backward` have the suffix _reverse, as in PyTorch's LSTM(bidirectional=True). Flux
 * has no such layer, so it cannot be saved as BSON. FX_STATUS_ARGUMENT unless both are RNN, LSTM,
 * GRU, GRUv3 or Recurrence without return_state. Schuster, Paliwal, 1997. */
typedef struct fx_bidirectional_layer {
    fx_object base;
    void *forward, *backward; /* recurrent layers */
    bool return_state;
} fx_bidirectional_layer;
/* clang-format off */
#define FXI_BIDIRECTIONAL_ARGS(F)                                                                  \
    F(void *, forward, FXI_NULL)  /* the layer that runs from the first time step to the last */   \
    F(void *, backward, FXI_NULL) /* the layer that runs from the last time step to the first */   \
    F(bool, return_state, false)  /* true: returns (y, last states) */
/* clang-format on */
FXI_OPTION_STRUCT(fx_bidirectional_args, FXI_BIDIRECTIONAL_ARGS);
FX_API fx_bidirectional_layer *fxi_bidirectional(const fx_bidirectional_args *a);
#define fx_bidirectional(...)                                                                      \
    FXI_CALL(fxi_bidirectional(FXI_OPTIONS(                                                        \
        fx_bidirectional_args, FXI_BIDIRECTIONAL_ARGS(FXI_DEFAULT).forward = __VA_ARGS__)))

/* fx_recur(l, x, .lengths = n): a call of a recurrent layer or Bidirectional for sequences of
 * different lengths. x contains them side by side, each padded at the end to the length of the
 * longest one (fx_batch_sequence). The result is that of fx_call(l, x, state), with these
 * differences: at time steps after its end a sequence has the output 0, and its state does not
 * change. The last state of a sequence is therefore the state after its own last element, and a
 * backward layer starts at this element, as with PyTorch's packed sequences. The values of x after
 * the end do not matter. A length above len counts as len; a sequence of length 0 keeps the state
 * with which it starts.
 *
 * .mask is more general: a sequence can skip time steps at any position.
 *
 * The scope owns the result. FX_STATUS_ARGUMENT for another kind of layer, and for both lengths and
 * a mask. With lengths or a mask: FX_STATUS_SHAPE unless x is in×len×batch and there is one length
 * for each sequence, or the mask is len×batch; FX_STATUS_DTYPE if the mask is not Bool;
 * FX_STATUS_ARGUMENT if .state is NULL and the cell of a Recurrence is not one of the library's
 * cells. Other errors as for fx_call. */
/* clang-format off */
#define FXI_RECUR_ARGS(F)                                                                          \
    F(void *, layer, FXI_NULL)       /* the layer */                                               \
    F(fx_array *, x, FXI_NULL)       /* in×len×batch; without lengths and mask also in×len */      \
    F(void *, state, FXI_NULL)       /* to start with; NULL: the initial state of the cell */      \
    F(fx_array *, lengths, FXI_NULL) /* a vector: time steps of each sequence; NULL: all */        \
    F(fx_array *, mask, FXI_NULL)    /* Bool, len×batch: false: the sequence skips the time step */
/* clang-format on */
FXI_OPTION_STRUCT(fx_recur_args, FXI_RECUR_ARGS);
FX_API void *fxi_recur(const fx_recur_args *a);
#define fx_recur(...)                                                                              \
    FXI_CALL(fxi_recur(FXI_OPTIONS(fx_recur_args, FXI_RECUR_ARGS(FXI_DEFAULT).layer = __VA_ARGS__)))

/* The state with which a cell or a recurrent layer starts: a vector of zeros, or h0; of an LSTM the
 * tuple (h, c); of a Bidirectional the tuple of the states of `forward` and `backward`.
 * FX_STATUS_ARGUMENT for other objects, and for a Recurrence whose cell is not one of the library's
 * cells. The scope owns it. Flux.initialstates. */
FX_API void *fx_initialstates(void *layer);

FXI_END_C
#endif
