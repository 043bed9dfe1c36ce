/* recurrent_cell.c: RNNCell, LSTMCell, GRUCell and GRUv3Cell: one time step of a recurrent layer.
 *
 * The four cells share their struct, their checks and their calls; a row of `rules` has the
 * differences. Wi·x + b is separate from the time step, because a layer computes it for all time
 * steps in one product. A state of zeros is NULL, so that the first time step of a sequence needs
 * no product with it. Arrays have two axes inside: a vector is one column.
 *
 * Sources: Hochreiter, Schmidhuber, 1997; Cho et al., 2014, versions 1 and 3; Flux's recurrent.jl.
 */
#include "recurrent_cell.h"

#include <inttypes.h>

typedef struct rule {
    const fx_type *(*type)(void);
    int input_gates, state_gates; /* rows of Wi and Wh per output */
    void (*time_step)(const fx_cell_layer *l, fx_array *p, fxi_states *io);
} rule;

/* Rows from·n to to·n: those of some gates. */
static fx_array *gates(fx_array *x, int64_t n, int from, int to)
{
    return fx_slice(x, 0, from * n, to * n);
}

/* p + W·h */
static fx_array *with_state(fx_array *p, fx_array *w, fx_array *h)
{
    return h ? fx_add(fx_matmul(w, h), p) : p;
}

static void rnn_time_step(const fx_cell_layer *l, fx_array *p, fxi_states *io)
{
    io->h = fxi_activate(l->act, with_state(p, l->wh, io->h));
}

static void lstm_time_step(const fx_cell_layer *l, fx_array *p, fxi_states *io)
{
    const int64_t n = fxi_cell_out(l);
    fx_array *g = with_state(p, l->wh, io->h);
    fx_array *c = fx_mul(fx_sigmoid(gates(g, n, 0, 1)), fx_tanh(gates(g, n, 2, 3)));
    if (io->c)
        c = fx_add(fx_mul(fx_sigmoid(gates(g, n, 1, 2)), io->c), c);
    io->c = c;
    io->h = fx_mul(fx_sigmoid(gates(g, n, 3, 4)), fx_tanh(c));
}

/* (1 − z)⊙h̃ + z⊙h */
static void gru_mix(fx_array *z, fx_array *candidate, fxi_states *io)
{
    fx_array *h = fx_mul(fx_sub(1, z), candidate);
    io->h = io->h ? fx_add(h, fx_mul(z, io->h)) : h;
}

static void gru_time_step(const fx_cell_layer *l, fx_array *p, fxi_states *io)
{
    const int64_t n = fxi_cell_out(l);
    fx_array *r = gates(p, n, 0, 1), *z = gates(p, n, 1, 2), *candidate = gates(p, n, 2, 3);
    fx_array *kept = l->hidden_bias; /* Wh·h + b_hn; NULL: zeros */
    if (io->h) {
        fx_array *g = fx_matmul(l->wh, io->h);
        r = fx_add(r, gates(g, n, 0, 1));
        z = fx_add(z, gates(g, n, 1, 2));
        kept = fxi_biased(gates(g, n, 2, 3), kept, 0);
    }
    if (kept)
        candidate = fx_add(candidate, fx_mul(fx_sigmoid(r), kept));
    gru_mix(fx_sigmoid(z), fx_tanh(candidate), io);
}

static void gruv3_time_step(const fx_cell_layer *l, fx_array *p, fxi_states *io)
{
    const int64_t n = fxi_cell_out(l);
    fx_array *rz = with_state(gates(p, n, 0, 2), l->wh, io->h), *candidate = gates(p, n, 2, 3);
    if (io->h) {
        fx_array *kept = fx_mul(fx_sigmoid(gates(rz, n, 0, 1)), io->h);
        candidate = fx_add(fx_matmul(l->wh_new, kept), candidate);
    }
    gru_mix(fx_sigmoid(gates(rz, n, 1, 2)), fx_tanh(candidate), io);
}

static const rule rules[] = {
    {fxi_rnncell_type, 1, 1, rnn_time_step},
    {fxi_lstmcell_type, 4, 4, lstm_time_step},
    {fxi_grucell_type, 3, 3, gru_time_step},
    {fxi_gruv3cell_type, 3, 2, gruv3_time_step},
};

static const rule *rule_of(const fx_type *type)
{
    for (int i = 0; i < FXI_COUNT(rules); i++)
        if (type == rules[i].type())
            return &rules[i];
    return NULL;
}

/* ---- what layers use ------------------------------------------------------------------------- */

bool fxi_is_cell(const void *object)
{
    return object && rule_of(fx_type_of(object)) != NULL;
}

int64_t fxi_cell_in(const fx_cell_layer *cell)
{
    return fx_size(cell->wi, 1);
}

int64_t fxi_cell_out(const fx_cell_layer *cell)
{
    return fx_size(cell->wh, 1);
}

fx_array *fxi_cell_project(const fx_cell_layer *cell, fx_array *x)
{
    return fxi_biased(fx_matmul(cell->wi, x), cell->bias, 0);
}

void fxi_cell_time_step(const fx_cell_layer *cell, fx_array *p, fxi_states *io)
{
    rule_of(fx_type_of(cell))->time_step(cell, p, io);
}

static bool has_c(const fx_cell_layer *cell)
{
    return fx_type_of(cell) == fxi_lstmcell_type();
}

/* One array of a state as out×batch or out×1. */
static fx_status state_array(const fx_cell_layer *cell, void *layer, fx_array *x, int64_t batch,
                             fx_array **out)
{
    char got[200];
    const int64_t n = fxi_cell_out(cell);
    if (fx_is_error(x))
        return fx_array_status(x);
    const bool fits = fx_ndims(x) >= 1 && fx_ndims(x) <= 2 && fx_size(x, 0) == n;
    const int64_t columns = fits && fx_ndims(x) == 2 ? fx_size(x, 1) : 1;
    if (!fits || (columns != batch && columns != 1 && batch != 1)) {
        fx_summary(x, got, sizeof got);
        return fx_fail(FX_STATUS_SHAPE, fx_type_of(layer)->name,
                       "expects a state of %" PRId64 " numbers, or %" PRId64 "×%" PRId64
                       ", but got %s",
                       n, n, batch, got);
    }
    *out = fxi_match_type(cell->wi, fx_reshape(x, n, columns));
    return FX_OK;
}

fx_status fxi_cell_states(const fx_cell_layer *cell, void *layer, void *state, int64_t batch,
                          fxi_states *out)
{
    fx_array *x[2] = {cell->h0, cell->c0}, **to[2] = {&out->h, &out->c};
    const bool two = has_c(cell);
    const int64_t n = state && !fx_is_array(state) ? fx_count(state) : 1;
    char got[200];
    *out = (fxi_states){NULL, NULL};
    if (state && fx_is_error(state))
        return fx_is_array(state) ? fx_array_status(state) : FX_STATUS_ARGUMENT;
    for (int i = 0; state && i < 1 + two; i++)
        x[i] = two && n == 2 ? fx_child(state, i) : state;
    if (state && (n != 1 + two || !x[0] || !fx_is_array(x[0]) || (two && !fx_is_array(x[1])))) {
        fx_summary(state, got, sizeof got);
        return fx_fail(FX_STATUS_ARGUMENT, fx_type_of(layer)->name, "expects %s, but got %s",
                       two ? "a state that is a tuple of two arrays" : "a state that is an array",
                       got);
    }
    fx_status s = FX_OK;
    for (int i = 0; i < 1 + two && s == FX_OK; i++)
        if (x[i])
            s = state_array(cell, layer, x[i], batch, to[i]);
    return s;
}

void *fxi_cell_state_object(const fx_cell_layer *cell, const fxi_states *states, bool vector)
{
    fx_array *h = vector ? fx_vec(states->h) : states->h;
    if (!has_c(cell))
        return h;
    return fx_tuple(h, vector ? fx_vec(states->c) : states->c);
}

/* ---- one call of a cell ---------------------------------------------------------------------- */

static void *cell_forward(void *self, int n, void *const *args)
{
    fx_cell_layer *l = self;
    FXI_SCOPE;
    fx_array *x = fxi_weighted_input(self, n == 2 ? 1 : n, args, l->wi);
    fxi_states states;
    if (fx_is_error(x))
        return fx_keep(x);
    if (fx_ndims(x) != 1 && fx_ndims(x) != 2)
        return fx_error_array(
            fxi_layer_mismatch(self, x, FX_STATUS_SHAPE, "ndims(input) == 1 or 2"));
    const int64_t batch = fx_ndims(x) == 2 ? fx_size(x, 1) : 1;
    fx_status s = fxi_expect_size(self, x, 0, fxi_cell_in(l));
    if (s == FX_OK)
        s = fxi_cell_states(l, self, n == 2 ? args[1] : NULL, batch, &states);
    if (s != FX_OK)
        return fx_error_array(s);
    fx_array *p = fx_reshape(fxi_match_type(l->wi, x), fxi_cell_in(l), batch);
    fxi_cell_time_step(l, fxi_cell_project(l, p), &states);
    const bool vector = fx_ndims(x) == 1 && fx_length(states.h) == fxi_cell_out(l);
    fx_array *h = vector ? fx_vec(states.h) : states.h;
    return fx_keep(fx_tuple(h, fxi_cell_state_object(l, &states, vector)));
}

void *fxi_cell_initial(const fx_cell_layer *cell)
{
    const int64_t n = fxi_cell_out(cell);
    const fx_dtype type = fx_eltype(cell->wi);
    fx_array *h = cell->h0 ? cell->h0 : fxi_full(type, 0, 1, &n);
    if (!has_c(cell))
        return h;
    return fx_tuple(h, cell->c0 ? cell->c0 : fxi_full(type, 0, 1, &n));
}

/* ---- construction ---------------------------------------------------------------------------- */

typedef struct cell_options {
    int64_t in, out;
    bool bias, hidden_bias;
    fx_init_fn init, init_state;
} cell_options;

static bool state_fits(const fx_type *type, const char *name, fx_array *x, int64_t n)
{
    char got[200];
    if (!x || (fx_ndims(x) == 1 && fx_size(x, 0) == n))
        return true;
    fx_summary(x, got, sizeof got);
    return fxi_layer_fail(type, "%s must have %" PRId64 " elements, got %s", name, n, got);
}

/* Sets *io to the number of columns of the matrix, if there is one. False (recorded) if *io already
 * was another number, except 0. */
static bool size_from(const fx_type *type, const char *name, const fx_array *matrix, int64_t *io)
{
    const int64_t given = *io;
    if (matrix && fx_ndims(matrix) == 2)
        *io = fx_size(matrix, 1);
    return !given || given == *io ||
           fxi_layer_fail(type, "%s is %" PRId64 ", but the given array has %" PRId64 " columns",
                          name, given, *io);
}

static bool build_cell(const fx_type *type, cell_options o, fx_cell_layer *l)
{
    const rule *r = rule_of(type);
    if (!size_from(type, "in", l->wi, &o.in) || !size_from(type, "out", l->wh, &o.out))
        return false;
    if (o.hidden_bias && type != fxi_grucell_type())
        return fxi_layer_fail(type, "only a GRUCell has hidden_bias");
    if (o.hidden_bias && !o.bias)
        return fxi_layer_fail(type, "hidden_bias needs bias = true");
    if (o.in < 1 || o.out < 1 || o.out > INT64_MAX / 4)
        return fxi_layer_fail(type, "sizes must be positive, got %" PRId64 " => %" PRId64, o.in,
                              o.out);
    const int64_t rows = r->input_gates * o.out;
    const int64_t wi[] = {rows, o.in}, wh[] = {r->state_gates * o.out, o.out},
                  square[] = {o.out, o.out};
    const bool third = r->state_gates < r->input_gates;
    return fxi_weight(type, &l->wi, o.init, 2, wi) &&
           fxi_weight(type, &l->wh, o.init_state, 2, wh) &&
           (!third || fxi_weight(type, &l->wh_new, o.init_state, 2, square)) &&
           fxi_bias(type, &l->bias, o.bias, l->wi, rows) &&
           fxi_bias(type, &l->hidden_bias, o.hidden_bias, l->wi, o.out) &&
           state_fits(type, "h0", l->h0, o.out) && state_fits(type, "c0", l->c0, o.out);
}

static bool rnncell_build(const fx_type *type, const void *options, void *self)
{
    const fx_rnncell_args *a = options;
    return build_cell(
        type,
        (cell_options){a->in, a->out, a->bias, false, a->init_kernel, a->init_recurrent_kernel},
        self);
}

static bool gated_build(const fx_type *type, const void *options, void *self)
{
    const fx_lstmcell_args *a = options;
    return build_cell(type,
                      (cell_options){a->in, a->out, a->bias, a->hidden_bias || a->hidden_bias_array,
                                     a->init_kernel, a->init_recurrent_kernel},
                      self);
}

static bool recover(const fx_cell_layer *l, int64_t *in, int64_t *out)
{
    *in = l->wi ? fxi_cell_in(l) : 0;
    *out = l->wh ? fxi_cell_out(l) : 0;
    return l->wi && l->wh;
}
static bool rnncell_recover(const void *self, void *options)
{
    fx_rnncell_args *a = options;
    return recover(self, &a->in, &a->out);
}
static bool gated_recover(const void *self, void *options)
{
    fx_lstmcell_args *a = options;
    return recover(self, &a->in, &a->out);
}

/* ---- files ----------------------------------------------------------------------------------- */

/* Until Flux 0.14 every cell stored an initial state. A state of zeros is the default. */
static bool drop_zeros(fx_array **io)
{
    if (*io && fx_eval(*io) != FX_OK)
        return false;
    if (*io && fx_item(fx_any(fx_ne(*io, 0))) == 0)
        *io = NULL;
    return true;
}
static bool rnncell_from_flux(const fx_flux_source *source, void *options, void *self)
{
    fx_rnncell_args *a = options;
    (void)source, (void)self;
    return drop_zeros(&a->h0);
}
static bool gated_from_flux(const fx_flux_source *source, void *options, void *self)
{
    fx_lstmcell_args *a = options;
    (void)source, (void)self;
    return drop_zeros(&a->h0) && drop_zeros(&a->c0);
}

/* clang-format off */
#define FIRST(O)                                                                                   \
    O(in, PAIR, .positional = "in => out", .least = 1, .required = true)
#define WEIGHTS(M)                                                                                 \
    M(wi, CHILD, FX_FROM(wi_array, MATRIX), .flux = "Wi", .torch = "weight_ih", .layout = FX_TORCH_LAYOUT_TRANSPOSED) \
    M(wh, CHILD, FX_FROM(wh_array, MATRIX), .flux = "Wh", .torch = "weight_hh", .layout = FX_TORCH_LAYOUT_TRANSPOSED)
#define BIAS(M, ...)                                                                               \
    M(bias, CHILD, FX_FROM(bias_array, VECTOR), .torch = "bias_ih", .torch_added = "bias_hh", __VA_ARGS__)
#define STATE(M)                                                                                   \
    M(h0, CHILD, FX_FROM(h0, VECTOR), .flux = "h", .torch = "h0")
#define OTHERS(O)                                                                                  \
    O(bias, BIAS, FX_PRESENT(bias), .names = "bias")                                               \
    O(init_kernel, INIT, .names = "init_kernel init")                                              \
    O(init_recurrent_kernel, INIT, .names = "init_recurrent_kernel")
#define RNN_ROWS(M, O, F)                                                                          \
    FIRST(O)                                                                                       \
    M(act, SHARED, FX_FROM(act, FUNCTION), .positional = "a function", .shown = true, .flux = "σ")      \
    WEIGHTS(M) BIAS(M, .flux = "bias b") STATE(M) OTHERS(O)                                        \
    F(state0, STATES, .flux = "state0")
#define LSTM_ROWS(M, O, F)                                                                         \
    FIRST(O) WEIGHTS(M) BIAS(M, .flux = "bias b") STATE(M)                                         \
    M(c0, CHILD, FX_FROM(c0, VECTOR), .flux = "c", .torch = "c0")                                  \
    OTHERS(O) F(state0, STATES, .flux = "state0")
#define GRU_ROWS(M, O, F)                                                                          \
    FIRST(O) WEIGHTS(M) BIAS(M, .flux = "b", .torch_last = 3)                                      \
    M(hidden_bias, CHILD, FX_FROM(hidden_bias_array, VECTOR), .torch = "bias_hh", .torch_last = 3)    \
    STATE(M) OTHERS(O)                                                                             \
    O(hidden_bias, FLAG, FX_PRESENT(hidden_bias), .names = "hidden_bias")                          \
    F(state0, STATES, .flux = "state0")
#define GRUV3_ROWS(M, O, F)                                                                        \
    FIRST(O) WEIGHTS(M)                                                                            \
    M(bias, CHILD, FX_FROM(bias_array, VECTOR), .flux = "b", .torch = "bias_ih")                   \
    M(wh_new, CHILD, FX_FROM(wh_new_array, MATRIX), .flux = "Wh_h̃", .torch = "weight_hn", .layout = FX_TORCH_LAYOUT_TRANSPOSED) \
    STATE(M) OTHERS(O) F(state0, STATES, .flux = "state0")
/* clang-format on */

#define CELL(id, text, kind, options, LIST, ROWS, bytes)                                           \
    FX_LAYER_TYPE(id, fx_cell_layer, options, LIST, ROWS,                                          \
                  (.name = (text), .forward = cell_forward, .layout_bytes = (bytes)),              \
                  .build = kind##_build, .recover = kind##_recover, .semicolon = true,             \
                  .flux = "Flux." text, .forms = id##_forms, .from_flux = kind##_from_flux);       \
    FXI_LIBRARY_LAYER(id, fx_cell_layer, options)

static const fx_flux_form rnncell_forms[] = {
    {"σ Wi Wh b h", NULL, 0, 1199},
    {"σ Wi Wh b state0", NULL, 1200, 1499},
    {"σ Wi Wh bias", "σ Wi Wh bias", 1500, 0},
    {0},
};
CELL(rnncell, "RNNCell", rnncell, fx_rnncell_args, FXI_RNNCELL_ARGS, RNN_ROWS, 24)

static const fx_flux_form lstmcell_forms[] = {
    {"Wi Wh b h c", NULL, 0, 1199},
    {"Wi Wh b state0", NULL, 1200, 1499},
    {"Wi Wh bias", "Wi Wh bias", 1500, 0},
    {0},
};
CELL(lstmcell, "LSTMCell", gated, fx_lstmcell_args, FXI_LSTMCELL_ARGS, LSTM_ROWS, 24)

static const fx_flux_form grucell_forms[] = {
    {"Wi Wh b h", NULL, 0, 1199},
    {"Wi Wh b state0", NULL, 1200, 1499},
    {"Wi Wh b", "Wi Wh b", 1500, 0},
    {0},
};
CELL(grucell, "GRUCell", gated, fx_lstmcell_args, FXI_LSTMCELL_ARGS, GRU_ROWS, 24)

static const fx_flux_form gruv3cell_forms[] = {
    {"Wi Wh b Wh_h̃ state0", NULL, 1200, 1499},
    {"Wi Wh b Wh_h̃", "Wi Wh b Wh_h̃", 1500, 0},
    {0},
};
CELL(gruv3cell, "GRUv3Cell", gated, fx_lstmcell_args, FXI_LSTMCELL_ARGS, GRUV3_ROWS, 32)
