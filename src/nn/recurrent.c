/* recurrent.c: RNN, LSTM, GRU, GRUv3 and Recurrence: a cell over a sequence, in either direction.
 *
 * The input of all time steps is multiplied by Wi in one product. In this product the batch axis
 * precedes the axis of time, so that each time step reads adjacent columns. A cell that is not one
 * of the library's is called once for each time step.
 *
 * Sequences of several lengths: a time step that the mask skips computes a new state like the
 * others, and then keeps the previous one. So the plan is the same for all lengths, and in the
 * backward direction each sequence starts at its own last element. Skipped inputs are set to 0
 * first, so that a NaN in them does not reach a gradient.
 *
 * A Recur of Flux until 0.14 becomes the layer whose cell it holds. Source: Flux's recurrent.jl.
 */
#include "recurrent_layer.h"
#include "memory.h"
#include "recurrent_cell.h"

#include <inttypes.h>

/* A sequence, and the outputs of its time steps. */
typedef struct sequence {
    fx_array *x;        /* in×len, or in×len×batch */
    fx_array *mask;     /* len×batch; NULL: no time step is skipped */
    int64_t len, batch; /* time steps; observations */
    bool batched, backwards;
    fx_array **outputs;
} sequence;

static fx_status no_sequence(void *self, fx_array *x, const char *expectation)
{
    return fxi_layer_mismatch(self, x, FX_STATUS_SHAPE, expectation);
}

static fx_status begin(void *self, const fxi_recurrent_call *call, sequence *s)
{
    fx_array *x = call->x;
    const int nd = fx_ndims(x);
    if (nd != 2 && nd != 3)
        return no_sequence(self, x, "ndims(input) == 2 or 3");
    *s = (sequence){.x = x,
                    .mask = call->mask,
                    .len = fx_size(x, 1),
                    .batch = nd == 3 ? fx_size(x, 2) : 1,
                    .batched = nd == 3,
                    .backwards = call->backwards};
    if (s->len < 1)
        return no_sequence(self, x, "size(input, 2) >= 1");
    if (s->mask)
        s->x = fx_where(fx_reshape(s->mask, 1, s->len, s->batch), x, 0);
    if (fx_is_error(s->x))
        return fx_array_status(s->x);
    s->outputs = fxi_calloc((size_t)s->len, sizeof(fx_array *));
    return s->outputs ? FX_OK
                      : fx_fail(FX_STATUS_MEMORY, fx_type_of(self)->name,
                                "no memory for %" PRId64 " time steps", s->len);
}

/* The time step that iteration i computes. */
static int64_t time_of(const sequence *s, int64_t i)
{
    return s->backwards ? s->len - 1 - i : i;
}

/* Reshapes `mask`, one number for each sequence, to nd axes: size 1 along all but the last. */
static fx_array *along_batch(fx_array *mask, int nd)
{
    int64_t sizes[FX_MAX_DIMS];
    for (int k = 0; k < nd; k++)
        sizes[k] = k == nd - 1 ? fx_length(mask) : 1;
    return fxi_reshape(mask, nd, sizes);
}

/* Returns the state after a time step. A sequence that skips the time step keeps its state `before`
 * (NULL: zeros). */
static fx_array *kept(fx_array *mask, fx_array *after, fx_array *before)
{
    fx_array *on = along_batch(mask, fx_ndims(after));
    return before ? fx_where(on, after, before) : fx_where(on, after, 0);
}

/* One number for each sequence: 0 if it skips the time step. */
static fx_array *mask_at(const sequence *s, int64_t t)
{
    return fx_slice(s->mask, 0, t, t + 1);
}

/* y with zeros at skipped time steps; its axes are a×len×…×batch. */
static fx_array *without_skipped(const sequence *s, fx_array *y)
{
    int64_t sizes[FX_MAX_DIMS];
    const int nd = fx_ndims(y);
    if (!s->mask || fx_is_error(y))
        return y;
    for (int k = 0; k < nd; k++)
        sizes[k] = k == 1 ? s->len : k == nd - 1 ? s->batch : 1;
    return fx_where(fxi_reshape(s->mask, nd, sizes), y, 0);
}

/* ---- the library's cells --------------------------------------------------------------------- */

/* (gates·out)×batch×len */
static fx_array *projected(const fx_cell_layer *cell, const sequence *s)
{
    const int64_t in = fxi_cell_in(cell);
    fx_array *x = fxi_match_type(cell->wi, s->x);
    if (s->batched)
        x = fx_permute(x, 0, 2, 1);
    fx_array *p = fxi_cell_project(cell, fx_reshape(x, in, s->batch * s->len));
    return fx_reshape(p, fx_size(cell->wi, 0), s->batch, s->len);
}

static fx_status run_cell(void *self, const fx_cell_layer *cell, sequence *s, void **state)
{
    fxi_states states;
    fx_status status = fxi_expect_size(self, s->x, 0, fxi_cell_in(cell));
    if (status == FX_OK)
        status = fxi_cell_states(cell, self, *state, s->batch, &states);
    if (status != FX_OK)
        return status;
    fx_array *p = projected(cell, s);
    for (int64_t i = 0; i < s->len; i++) {
        const int64_t t = time_of(s, i);
        const fxi_states before = states;
        fx_array *now = fx_slice(p, 2, t, t + 1);
        fxi_cell_time_step(cell, fx_reshape(now, fx_size(p, 0), s->batch), &states);
        if (s->mask)
            states.h = kept(mask_at(s, t), states.h, before.h);
        if (s->mask && states.c)
            states.c = kept(mask_at(s, t), states.c, before.c);
        s->outputs[t] = states.h;
    }
    *state = fxi_cell_state_object(cell, &states, !s->batched && fx_size(states.h, 1) == 1);
    if (states.c && fx_is_error(states.c))
        return fx_array_status(states.c);
    return fx_is_error(*state) ? fxi_state_status(*state) : FX_OK;
}

/* The outputs as out×len, or out×len×batch if the input or the state has a batch. */
static fx_array *joined(const sequence *s)
{
    fx_array *y = fxi_stack(1, (int)s->len, s->outputs);
    return s->batched || fx_is_error(y) || fx_size(y, 2) != 1
               ? y
               : fx_reshape(y, fx_size(y, 0), s->len);
}

/* ---- other cells ----------------------------------------------------------------------------- */

static fx_status not_a_pair(void *self, void *result)
{
    char got[200];
    if (result && fx_is_error(result))
        return fxi_state_status(result);
    fx_summary(result, got, sizeof got);
    return fx_fail(FX_STATUS_ARGUMENT, fx_type_of(self)->name,
                   "the cell must return a tuple (output, state), got %s", got);
}

static fx_array *kept_array(int n, fx_array *const *states, void *mask)
{
    (void)n;
    return kept(mask, states[0], states[1]);
}

static fx_status run_any(void *self, void *cell, sequence *s, void **state)
{
    if (s->mask && !*state)
        return fx_fail(FX_STATUS_ARGUMENT, fx_type_of(self)->name,
                       "with lengths or a mask, set .state: the initial state of its cell is "
                       "unknown");
    for (int64_t i = 0; i < s->len; i++) {
        const int64_t t = time_of(s, i);
        fx_array *x = fx_squeeze(fx_slice(s->x, 1, t, t + 1), FX_AXES(1));
        void *const args[] = {x, *state};
        void *result = fxi_call(cell, *state ? 2 : 1, args);
        const bool tuple = result && !fx_is_array(result) && fx_count(result) == 2;
        s->outputs[t] = tuple ? fx_child(result, 0) : NULL;
        if (!s->outputs[t] || !fx_is_array(s->outputs[t]))
            return not_a_pair(self, result);
        void *const both[] = {fx_child(result, 1), *state};
        *state = s->mask ? fx_fmap_n(kept_array, mask_at(s, t), 2, both) : both[0];
        if (*state && fx_is_error(*state))
            return fxi_state_status(*state);
    }
    return FX_OK;
}

/* ---- calls ----------------------------------------------------------------------------------- */

fx_status fxi_recurrent_run(fx_recurrent_layer *l, const fxi_recurrent_call *call, fx_array **out_y,
                            void **out_state)
{
    sequence s = {.x = NULL};
    const bool own = fxi_is_cell(l->cell);
    *out_y = NULL;
    *out_state = call->state;
    fx_status status = begin(l, call, &s);
    if (status == FX_OK)
        status = (own ? run_cell(l, l->cell, &s, out_state) : run_any(l, l->cell, &s, out_state));
    if (status == FX_OK)
        *out_y = without_skipped(&s, own ? joined(&s) : fxi_stack(1, (int)s.len, s.outputs));
    fxi_free(s.outputs);
    return status;
}

static void *recurrent_run(fx_recurrent_layer *l, const fxi_recurrent_call *call)
{
    fx_array *y;
    void *state;
    const fx_status status = fxi_recurrent_run(l, call, &y, &state);
    if (status != FX_OK)
        return fx_error_array(status);
    return l->return_state ? fxi_with_state(y, state) : y;
}

static void *recurrent_forward(void *self, int n, void *const *args)
{
    FXI_SCOPE;
    fx_array *x = fxi_layer_input(self, n == 2 ? 1 : n, args);
    if (fx_is_error(x))
        return fx_keep(x);
    return fx_keep(
        recurrent_run(self, &(fxi_recurrent_call){x, n == 2 ? args[1] : NULL, NULL, false}));
}

bool fxi_is_recurrent(const void *object)
{
    return object && fx_type_of(object)->forward == recurrent_forward;
}

/* ---- lengths and masks ----------------------------------------------------------------------- */

/* *out: the mask of the call, len×batch; NULL: none. */
static fx_status mask_of(const fx_recur_args *a, fx_array **out)
{
    fx_array *given = a->lengths ? a->lengths : a->mask;
    const char *name = fx_type_of(a->layer)->name, *what = a->lengths ? ".lengths" : ".mask";
    char got[200];
    *out = NULL;
    if (a->lengths && a->mask)
        return fx_fail(FX_STATUS_ARGUMENT, name, "takes lengths or a mask, not both");
    const fx_status status = given ? fxi_expect_array(name, what, given) : FX_OK;
    if (status != FX_OK || !given)
        return status;
    if (fx_ndims(a->x) != 3)
        return fxi_layer_mismatch(a->layer, a->x, FX_STATUS_SHAPE,
                                  "ndims(input) == 3 with lengths or a mask");
    const int64_t len = fx_size(a->x, 1), batch = fx_size(a->x, 2);
    if (a->lengths) {
        if (fx_ndims(given) != 1 || fx_length(given) != batch)
            return fx_fail(FX_STATUS_SHAPE, name,
                           "expects one length for each of %" PRId64 " sequences, got %s", batch,
                           fxi_given(given, got, sizeof got));
        fx_array *time = fx_range_dtype(FX_DTYPE_I64, 0, 1, len);
        *out = fx_lt(time, fx_reshape(given, 1, batch));
        return FX_OK;
    }
    if (fx_ndims(given) != 2 || fx_size(given, 0) != len || fx_size(given, 1) != batch)
        return fx_fail(FX_STATUS_SHAPE, name,
                       "expects a mask of %" PRId64 "×%" PRId64 " (length×batch), got %s", len,
                       batch, fxi_given(given, got, sizeof got));
    if (fx_eltype(given) != FX_DTYPE_BOOL)
        return fx_fail(FX_STATUS_DTYPE, name, "the mask is %s, expected Bool",
                       fx_dtype_name(fx_eltype(given)));
    *out = given;
    return FX_OK;
}

void *fxi_recur(const fx_recur_args *given)
{
    FXI_TAKE_OPTIONS(fx_recur_args, FXI_RECUR_ARGS, a, "recur", given);
    FXI_SCOPE;
    const bool both = a_ok && a.layer && fx_is(a.layer, fxi_bidirectional_type());
    char got[200];
    if (!a_ok || (a.layer && fx_is_error(a.layer)))
        return fx_error_array(FX_STATUS_ARGUMENT);
    if (!both && !fxi_is_recurrent(a.layer))
        return fx_error_array(fx_fail(FX_STATUS_ARGUMENT, "recur",
                                      "expects a recurrent layer, got %s",
                                      fxi_given(a.layer, got, sizeof got)));
    fxi_recurrent_call call = {.x = fxi_layer_input(a.layer, 1, (void *const[]){a.x}),
                               .state = a.state};
    if (fx_is_error(call.x))
        return fx_keep(call.x);
    const fx_status status = mask_of(&a, &call.mask);
    if (status != FX_OK)
        return fx_error_array(status);
    return fx_keep(both ? fxi_bidirectional_run(a.layer, &call) : recurrent_run(a.layer, &call));
}

void *fx_initialstates(void *layer)
{
    const fx_type *type = layer ? fx_type_of(layer) : NULL;
    FXI_SCOPE;
    if (type == fxi_bidirectional_type() && !fx_is_error(layer)) {
        const fx_bidirectional_layer *l = layer;
        void *first = fx_initialstates(l->forward), *second = fx_initialstates(l->backward);
        return fx_keep(fx_is_error(first) || fx_is_error(second)
                           ? fx_error_array(FX_STATUS_ARGUMENT)
                           : fx_tuple(first, second));
    }
    void *cell = fxi_is_recurrent(layer) && !fx_is_error(layer)
                     ? ((fx_recurrent_layer *)layer)->cell
                     : layer;
    if (layer && fxi_is_cell(cell) && !fx_is_error(cell))
        return fx_keep(fxi_cell_initial(cell));
    char got[200];
    fx_fail(FX_STATUS_ARGUMENT, "initialstates",
            "expects a recurrent layer or cell of the library, got %s",
            fxi_given(layer, got, sizeof got));
    return fx_error_array(FX_STATUS_ARGUMENT);
}

/* ---- construction ---------------------------------------------------------------------------- */

/* Uses `made` as the cell if none was given. Checks type and sizes of the cell; size 0: any. */
static bool take_cell(const fx_type *type, const fx_type *wanted, fx_recurrent_layer *l, void *made,
                      int64_t in, int64_t out)
{
    char got[200];
    if (!l->cell)
        l->cell = made;
    if (fx_is_error(l->cell))
        return false;
    const bool is = fx_is(l->cell, wanted);
    if (is && (!in || in == fxi_cell_in(l->cell)) && (!out || out == fxi_cell_out(l->cell)))
        return true;
    fx_summary(l->cell, got, sizeof got);
    if (is)
        return fxi_layer_fail(type, "expects a cell of %" PRId64 " => %" PRId64 ", got %s", in, out,
                              got);
    return fxi_layer_fail(type, "expects a cell of type %s, got %s", wanted->name, got);
}

static bool rnn_build(const fx_type *type, const void *options, void *self)
{
    const fx_rnn_args *a = options;
    fx_recurrent_layer *l = self;
    void *made =
        l->cell ? NULL
                : fx_rnncell(a->in, a->out, a->act, .bias = a->bias, .init_kernel = a->init_kernel,
                             .init_recurrent_kernel = a->init_recurrent_kernel);
    return take_cell(type, fxi_rnncell_type(), l, made, a->in, a->out);
}

static bool gated_build(const fx_type *type, const fx_type *wanted, const void *options,
                        fx_recurrent_layer *l)
{
    const fx_lstm_args *a = options;
    const fx_lstmcell_args cell = {.fxi_size = sizeof cell,
                                   .in = a->in,
                                   .out = a->out,
                                   .bias = a->bias,
                                   .init_kernel = a->init_kernel,
                                   .init_recurrent_kernel = a->init_recurrent_kernel,
                                   .hidden_bias = a->hidden_bias};
    return take_cell(type, wanted, l, l->cell ? NULL : fx_layer_make(wanted, &cell), a->in, a->out);
}

#define GATED_BUILD(id, cell)                                                                      \
    static bool id##_build(const fx_type *type, const void *options, void *self)                   \
    {                                                                                              \
        return gated_build(type, fxi_##cell##_type(), options, self);                              \
    }
GATED_BUILD(lstm, lstmcell)
GATED_BUILD(gru, grucell)
GATED_BUILD(gruv3, gruv3cell)

static bool recurrence_build(const fx_type *type, const void *options, void *self)
{
    fx_recurrent_layer *l = self;
    char got[200];
    (void)options;
    if (fxi_is_callable(l->cell))
        return true;
    return fxi_layer_fail(type, "expects a cell, got %s", fxi_given(l->cell, got, sizeof got));
}

static bool rnn_recover(const void *self, void *options)
{
    const fx_recurrent_layer *l = self;
    fx_rnn_args *a = options;
    fx_rnncell_args cell = {.fxi_size = sizeof cell};
    if (!l->cell || !fx_layer_options(l->cell, &cell))
        return false;
    a->in = cell.in, a->out = cell.out, a->act = cell.act, a->bias = cell.bias;
    return true;
}

static bool gated_recover(const void *self, void *options)
{
    const fx_recurrent_layer *l = self;
    fx_lstm_args *a = options;
    fx_lstmcell_args cell = {.fxi_size = sizeof cell};
    if (!l->cell || !fx_layer_options(l->cell, &cell))
        return false;
    a->in = cell.in, a->out = cell.out, a->bias = cell.bias, a->hidden_bias = cell.hidden_bias;
    return true;
}

/* In Julia the struct has only its cell, stored inline, so it has no bytes of its own. */
static int64_t no_bytes(const void *self)
{
    (void)self;
    return 0;
}

/* ---- files ----------------------------------------------------------------------------------- */

/* In old files several types are a Recur, and the type of the cell says which. */
#define FROM_FLUX(id, options)                                                                     \
    static bool id##_from_flux(const fx_flux_source *source, void *read, void *self)               \
    {                                                                                              \
        const options *a = read;                                                                   \
        (void)source, (void)self;                                                                  \
        return fx_is(a->cell, fxi_##id##cell_type());                                              \
    }
FROM_FLUX(rnn, fx_rnn_args)
FROM_FLUX(lstm, fx_lstm_args)
FROM_FLUX(gru, fx_lstm_args)
FROM_FLUX(gruv3, fx_lstm_args)

/* clang-format off */
#define CELL(M)                                                                               \
    M(cell, CHILD, FX_FROM(cell, LAYER), .flux = "cell", .torch = "*_l0")
#define FIRST(O)                                                                                   \
    O(in, PAIR, .positional = "in => out", .least = 1, .required = true)
#define OTHERS(M, O, F)                                                                            \
    M(return_state, FLAG, FX_FROM(return_state, FLAG), .names = "return_state")                    \
    O(bias, BIAS, .names = "bias")                                                                 \
    O(init_kernel, INIT, .names = "init_kernel init")                                              \
    O(init_recurrent_kernel, INIT, .names = "init_recurrent_kernel")                               \
    F(state, RNG, .flux = "state init")
#define RNN_ROWS(M, O, F)                                                                          \
    FIRST(O)                                                                                       \
    O(act, FUNCTION, .positional = "a function", .shown = true)                                         \
    CELL(M) OTHERS(M, O, F)
#define GATED_ROWS(M, O, F) FIRST(O) CELL(M) OTHERS(M, O, F)
#define GRU_ROWS(M, O, F)                                                                          \
    FIRST(O) CELL(M) OTHERS(M, O, F)                                                               \
    O(hidden_bias, FLAG, .names = "hidden_bias")
#define RECURRENCE_ROWS(M, O, F)                                                                   \
    M(cell, CHILD, FX_FROM(cell, LAYER), .positional = "a cell", .required = true, .flux = "cell",      \
      .torch = "*_l0")                                                                             \
    M(return_state, FLAG, FX_FROM(return_state, FLAG), .names = "return_state")
/* clang-format on */
static const fx_flux_form forms[] = {
    {"cell init state", NULL, 0, 1199},
    {"cell state", NULL, 1200, 1499},
    {"cell", "=return_state cell", 1500, 0},
    {0},
};
#define RECURRENT(id, text, options, LIST, ROWS, kind)                                             \
    FX_LAYER_TYPE(id, fx_recurrent_layer, options, LIST, ROWS,                                     \
                  (.name = (text), .forward = recurrent_forward, .flags = FX_TYPE_ONE_LINE),       \
                  .build = id##_build, .recover = kind##_recover, .layout_bytes = no_bytes,        \
                  .semicolon = true, .flux = "Flux." text " Flux.Recur", .forms = forms,           \
                  .from_flux = id##_from_flux);                                                    \
    FXI_LIBRARY_LAYER(id, fx_recurrent_layer, options)
RECURRENT(rnn, "RNN", fx_rnn_args, FXI_RNN_ARGS, RNN_ROWS, rnn)
RECURRENT(lstm, "LSTM", fx_lstm_args, FXI_LSTM_ARGS, GATED_ROWS, gated)
RECURRENT(gru, "GRU", fx_lstm_args, FXI_LSTM_ARGS, GRU_ROWS, gated)
RECURRENT(gruv3, "GRUv3", fx_lstm_args, FXI_LSTM_ARGS, GATED_ROWS, gated)

static const fx_flux_form recurrence_forms[] = {{"cell", "=return_state cell", 1500, 0}, {0}};
FX_LAYER_TYPE(recurrence, fx_recurrent_layer, fx_recurrence_args, FXI_RECURRENCE_ARGS,
              RECURRENCE_ROWS,
              (.name = "Recurrence", .forward = recurrent_forward, .trainable = "cell"),
              .build = recurrence_build, .layout_bytes = no_bytes, .semicolon = true,
              .flux = "Flux.Recurrence", .forms = recurrence_forms);
FXI_LIBRARY_LAYER(recurrence, fx_recurrent_layer, fx_recurrence_args)
