/* notation.c: parses models, optimisers and losses in Flux's notation.
 *
 * Text printed by fx_show gives the same structure with new parameters; text written by hand works
 * too. Comments are Julia's, so the parameter counts of a printed model are skipped.
 *
 * The parser is a recursive descent in four files: this one has chains, tuples and the entry
 * points, notation_forms.c the parameters of single layers and rules, notation_closure.c anonymous
 * functions, notation_reader.c characters, names and numbers. The text may come from untrusted
 * sources, so nesting and the number of layers are limited here; notation_forms.c limits sizes.
 */
#include "evaluate_object.h"
#include "notation_closure.h"
#include "notation_forms.h"

#include "memory.h"
#include "option_struct.h"

#include <string.h>

enum { MAX_DEPTH = 64, MAX_LAYERS = 10000 };

/* ---- models ---------------------------------------------------------------------------------- */

/* The items between parentheses; names are copies. */
typedef struct list {
    void **items;
    char **names;
    int32_t n, item_capacity, name_capacity;
    bool named, comma;
    const fxi_form *form; /* the container; NULL: a tuple */
    int leading;          /* items before the list of layers; −1: a tuple */
    void *input;          /* of the container, for sizes that are left open; NULL: unknown */
} list;

static void free_list(list *l)
{
    for (int32_t i = 0; i < l->n; i++)
        fxi_free(l->names[i]);
    fxi_free(l->names);
    fxi_free(l->items);
}

static bool append(fxi_reader *r, list *l, fxi_span name, void *object)
{
    const size_t n = (size_t)(name.to - name.from);
    char *copy = n ? fxi_calloc(n + 1, 1) : NULL;
    const bool ok = (copy || !n) &&
                    fxi_grow(&l->items, &l->item_capacity, l->n + 1, sizeof(void *)) &&
                    fxi_grow(&l->names, &l->name_capacity, l->n + 1, sizeof(char *));
    if (!ok) {
        fxi_free(copy);
        return fxi_reader_no_memory(r, r->at);
    }
    if (n)
        memcpy(copy, name.from, n);
    l->items[l->n] = object;
    l->names[l->n++] = copy;
    l->named = l->named || n;
    return true;
}

/* The input of the next item; NULL if it is unknown. */
static void *input_of_item(const fxi_reader *r, const list *l)
{
    const int i = l->n - l->leading;
    const fx_type *type = l->input ? fx_type_of(l->input) : NULL;
    if (!l->form || !type || i < 0)
        return NULL;
    if (l->form->flow == FX_LAYER_FLOW_CHAIN)
        return i ? r->input : l->input;
    if (type->flags & FX_TYPE_TUPLE)
        return i < fx_count(l->input) ? fx_child(l->input, i) : NULL;
    return l->form->flow == FX_LAYER_FLOW_FIRST && i ? NULL : l->input;
}

/* After a layer of a chain: its result is the input of the next one. False if the layer does not
 * take its input. */
static bool pass_on(fxi_reader *r, const list *l, void *object, const char *at)
{
    if (!r->input || !l->form || l->form->flow != FX_LAYER_FLOW_CHAIN ||
        !fx_type_of(object)->forward)
        return true;
    r->input = fxi_call_for_shape(object, 1, &r->input);
    return !fx_is_error(r->input) || fxi_reader_passed_on(r, at);
}

static bool take_item(fxi_reader *r, list *l)
{
    fxi_span name = {NULL, NULL};
    fxi_reader_keyword(r, &name);
    r->input = input_of_item(r, l);
    fxi_reader_peek(r);
    const char *at = r->at;
    void *object = fxi_notation_object(r);
    return object && pass_on(r, l, object, at) && append(r, l, name, object);
}

/* Reads the items until `close`. After the leading items, the others may be in square brackets, as
 * Julia's vector: Chain([a, b]), Parallel(+, [a, b]). */
static bool take_list(fxi_reader *r, char close, bool nested, list *l)
{
    char buf[FXI_EXCERPT_BYTES];
    for (bool first = true; fxi_reader_next_item(r, first, close); first = false) {
        if (!nested && l->n == l->leading && fxi_reader_take(r, '['))
            return take_list(r, ']', true, l) &&
                   (fxi_reader_take(r, close) ||
                    fxi_reader_fail(r, r->at, "expected %c, got %s", close,
                                    fxi_reader_got(r, r->at, buf)));
        if (!take_item(r, l))
            return false;
        l->comma = fxi_reader_peek(r) == ',';
    }
    return r->status == FX_OK;
}

/* The number of items before the list of layers: 1 for Parallel(+, a, b), 0 for Chain(a, b). */
static int leading_items(const fxi_form *form)
{
    int n = 0;
    for (int i = 0; i < form->count; i++) {
        const char *at = (const char *)form->rows + (size_t)i * form->row_size;
        n += ((const fx_layer_row *)(const void *)at)->kind != FX_OPTION_LAYERS;
    }
    return n;
}

/* As in Julia, either all layers have names or none; items before them have none. */
static bool names_fit(fxi_reader *r, const fxi_form *form, const char *start, const list *l,
                      int leading)
{
    bool all = true, none = true;
    for (int32_t i = 0; i < l->n; i++) {
        if (i < leading && l->names[i])
            return fxi_reader_fail(r, start, "%s takes a connection before its layers, got %s = …",
                                   form->name, l->names[i]);
        all = all && (i < leading || l->names[i]);
        none = none && !l->names[i];
    }
    return all || none ||
           fxi_reader_fail(r, start, "either all layers of a %s have names, or none", form->name);
}

/* Chain(a, b), Chain(x = a, y = b), Chain([a, b]), and other containers of layers. */
static void *take_container(fxi_reader *r, const fxi_form *form, const char *start)
{
    list l = {.form = form, .leading = leading_items(form), .input = r->input};
    void *made = NULL;
    fxi_reader_take(r, '(');
    const bool good = take_list(r, ')', false, &l) && names_fit(r, form, start, &l, l.leading);
    r->input = l.input;
    if (good)
        made = form->build_list(l.n, l.named ? (const char *const *)l.names : NULL, l.items);
    free_list(&l);
    return !made || !fx_is_error(made) || fxi_reader_passed_on(r, start) ? made : NULL;
}

/* (a, b), (a,), (x = a,), (; x = a). As in Julia, (a) is a itself. */
static void *take_tuple(fxi_reader *r)
{
    const char *start = r->at;
    list l = {.leading = -1, .input = r->input};
    void *tuple = NULL;
    fxi_reader_take(r, '(');
    const bool ok = take_list(r, ')', false, &l);
    r->input = l.input;
    bool all = true;
    for (int32_t i = 0; i < l.n; i++)
        all = all && l.names[i];
    if (ok && l.n == 1 && !l.named && !l.comma)
        tuple = l.items[0];
    else if (ok && l.named && !all)
        fxi_reader_fail(r, start, "either all items of a tuple have names, or none");
    else if (ok)
        tuple = l.named ? fx_named_tuple_from(l.n, (const char *const *)l.names, l.items)
                        : fxi_tuple(l.n, l.items);
    free_list(&l);
    return !tuple || !fx_is_error(tuple) || fxi_reader_passed_on(r, start) ? tuple : NULL;
}

static void *take_named(fxi_reader *r, fxi_span name)
{
    if (fxi_reader_arrow(r))
        return fxi_notation_closure(r, name);
    if (fxi_reader_peek(r) != '(' || fxi_span_is(name, "cat"))
        return fxi_form_function(r, name);
    fxi_form form;
    if (!fxi_form_layer(r, name, &form))
        return NULL;
    return form.build_list ? take_container(r, &form, name.from)
                           : fxi_form_call(r, &form, name.from);
}

void *fxi_notation_object(fxi_reader *r)
{
    char buf[FXI_EXCERPT_BYTES];
    fxi_span name;
    void *object = NULL;
    const char c = fxi_reader_peek(r);
    if (r->depth == MAX_DEPTH || ++r->layers > MAX_LAYERS) {
        fxi_reader_fail(r, r->at,
                        r->layers > MAX_LAYERS ? "more than %d layers" : "nested deeper than %d",
                        r->layers > MAX_LAYERS ? MAX_LAYERS : MAX_DEPTH);
        return NULL;
    }
    r->depth++;
    if (c == '(')
        object = take_tuple(r);
    else if (fxi_reader_name(r, &name))
        object = take_named(r, name);
    else if ((object = fxi_form_operator(r)) == NULL)
        fxi_reader_fail(r, r->at, "expected a layer or a function, got %s",
                        fxi_reader_got(r, r->at, buf));
    r->depth--;
    return object;
}

/* ---- entry points ---------------------------------------------------------------------------- */

/* @autosize (28, 28, 1, 32): the sizes of the input, before the model. */
static bool take_autosize(fxi_reader *r)
{
    char buf[FXI_EXCERPT_BYTES];
    fxi_span name;
    fx_dims d = {.n = 0};
    if (!fxi_reader_take(r, '@'))
        return true;
    bool good =
        fxi_reader_name(r, &name) && fxi_span_is(name, "autosize") && fxi_reader_take(r, '(');
    fxi_reader_peek(r);
    const char *at = r->at;
    for (bool first = true; good && fxi_reader_next_item(r, first, ')'); first = false) {
        fxi_number n;
        good = d.n < FX_MAX_DIMS && fxi_reader_number(r, &n) && n.integer && n.whole >= 0;
        d.v[d.n++] = good ? n.whole : 0;
    }
    if (!good || d.n == 0)
        return fxi_reader_fail(r, at, "expected sizes as in @autosize (28, 28, 1, 32), got %s",
                               fxi_reader_got(r, at, buf));
    r->input = fxi_full(FX_DTYPE_F32, 0, (int)d.n, d.v);
    return r->status == FX_OK;
}

static void *parse(const char *text, const fx_dims *size)
{
    FXI_SCOPE;
    fxi_reader r;
    fxi_evaluate_new_suspend();
    const bool implicit = fxi_implicit_suspend();
    void *model = NULL;
    if (fxi_reader_begin(&r, "model", text)) {
        if (size)
            r.input = fxi_full(FX_DTYPE_F32, 0, (int)size->n, size->v);
        model = take_autosize(&r) ? fxi_notation_object(&r) : NULL;
    }
    r.input = NULL;
    fxi_implicit_resume(implicit);
    fxi_evaluate_new_resume();
    fx_status status = fxi_reader_end(&r) ? FX_OK : r.status;
    if (status == FX_OK)
        status = fxi_evaluate_new(model, NULL, NULL);
    return fx_keep(status == FX_OK ? model : fx_error_array(status));
}

void *fx_parse_model(const char *text)
{
    return parse(text, NULL);
}

void *fx_autosize(const char *text, fx_dims size)
{
    if (size.n >= 0 && size.n <= FX_MAX_DIMS)
        return parse(text, &size);
    return fx_error_array(fx_fail(FX_STATUS_ARGUMENT, "autosize",
                                  "expected 0 to %d sizes, got %lld", FX_MAX_DIMS,
                                  (long long)size.n));
}

static fx_rule *take_rule(fxi_reader *r);

static fx_rule *made_rule(fxi_reader *r, fx_rule *rule, const char *start)
{
    return !fx_is_error(rule) || fxi_reader_passed_on(r, start) ? rule : NULL;
}

/* OptimiserChain(a, b) */
static fx_rule *take_chain(fxi_reader *r, const char *start)
{
    enum { MOST = 32 };
    void *rules[MOST];
    int n = 0;
    fxi_reader_take(r, '(');
    for (bool first = true; fxi_reader_next_item(r, first, ')'); first = false) {
        if (n == MOST) {
            fxi_reader_fail(r, r->at, "OptimiserChain holds at most %d rules", MOST);
            return NULL;
        }
        rules[n] = take_rule(r);
        if (!rules[n++])
            return NULL;
    }
    return r->status == FX_OK ? made_rule(r, fxi_optimiser_chain(n, rules), start) : NULL;
}

/* Float32 or Float64; false (recorded) for anything else. */
static bool take_type(fxi_reader *r, fx_dtype *out)
{
    char buf[FXI_EXCERPT_BYTES];
    fxi_span name;
    const bool named = fxi_reader_name(r, &name);
    if (named && (fxi_span_is(name, "Float32") || fxi_span_is(name, "Float64"))) {
        *out = fxi_span_is(name, "Float32") ? FX_DTYPE_F32 : FX_DTYPE_F64;
        return true;
    }
    r->at = named ? name.from : r->at;
    return fxi_reader_fail(r, r->at, "MixedPrecision computes in Float32 or Float64, got %s",
                           fxi_reader_got(r, r->at, buf));
}

static bool is_whole(double x)
{
    return x > -1e15 && x < 1e15 && x == (double)(int64_t)x;
}

/* MixedPrecision(rule), MixedPrecision(Float32, rule), MixedPrecision{Float32}(rule), each with an
 * optional scale=… and growth=… at the end. */
static fx_rule *take_mixed(fxi_reader *r, const char *start)
{
    FXI_DEFAULT_OPTIONS(fx_mixed_precision_args, FXI_MIXED_PRECISION_ARGS, a);
    char buf[FXI_EXCERPT_BYTES];
    fxi_span name;
    fxi_number number;
    const bool typed = fxi_reader_take(r, '{');
    if (typed && (!take_type(r, &a.type) || !fxi_reader_take(r, '}') || !fxi_reader_take(r, '('))) {
        fxi_reader_fail(r, r->at, "expected }(, got %s", fxi_reader_got(r, r->at, buf));
        return NULL;
    }
    if (!typed)
        fxi_reader_take(r, '(');
    const char *inner = r->at;
    if (fxi_reader_name(r, &name) && fxi_reader_take(r, ',')) {
        r->at = name.from;
        if (!take_type(r, &a.type) || !fxi_reader_take(r, ','))
            return NULL;
        inner = r->at;
    }
    r->at = inner;
    a.rule = take_rule(r);
    if (!a.rule)
        return NULL;
    for (bool first = false; fxi_reader_next_item(r, first, ')');) {
        if (!fxi_reader_keyword(r, &name) ||
            !(fxi_span_is(name, "scale") || fxi_span_is(name, "growth")) ||
            !fxi_reader_number(r, &number) ||
            (fxi_span_is(name, "growth") && !is_whole(number.value))) {
            fxi_reader_fail(r, r->at, "MixedPrecision takes a rule, scale=… and growth=…, got %s",
                            fxi_reader_got(r, r->at, buf));
            return NULL;
        }
        if (fxi_span_is(name, "scale"))
            a.scale = number.value;
        else
            a.growth = (int64_t)number.value;
    }
    return r->status == FX_OK ? made_rule(r, fxi_mixed_precision(&a), start) : NULL;
}

static fx_rule *take_rule(fxi_reader *r)
{
    char buf[FXI_EXCERPT_BYTES];
    fxi_span name;
    fx_rule *rule = NULL;
    if (r->depth == MAX_DEPTH) {
        fxi_reader_fail(r, r->at, "nested deeper than %d", MAX_DEPTH);
        return NULL;
    }
    r->depth++;
    const bool named = fxi_reader_name(r, &name);
    const bool chain = named && fxi_span_is(name, "OptimiserChain");
    const bool mixed = named && fxi_span_is(name, "MixedPrecision");
    const char next = fxi_reader_peek(r);
    const fxi_form *form = named && !chain && !mixed ? fxi_form_rule(r, name) : NULL;
    if (chain && next == '(')
        rule = take_chain(r, name.from);
    else if (mixed && (next == '(' || next == '{'))
        rule = take_mixed(r, name.from);
    else if (form && next == '(')
        rule = fxi_form_call(r, form, name.from);
    else
        fxi_reader_fail(r, r->at, "expected an optimiser such as Adam(0.001), got %s",
                        fxi_reader_got(r, r->at, buf));
    r->depth--;
    return rule;
}

fx_rule *fx_parse_optimiser(const char *text)
{
    FXI_SCOPE;
    fxi_reader r;
    fx_rule *rule = fxi_reader_begin(&r, "optimiser", text) ? take_rule(&r) : NULL;
    if (fxi_reader_end(&r))
        return fx_keep(rule);
    return fx_error_object(fx_type_of(fx_descent()));
}

static fx_array *no_loss(const fx_loss_args *a)
{
    (void)a;
    return fx_error_array(FX_STATUS_ARGUMENT);
}

static const struct loss {
    const char *name;
    fx_formula_fn formula;
} LOSSES[] = {
    {"mse", fxi_mse},
    {"mae", fxi_mae},
    {"msle", fxi_msle},
    {"huber_loss", fxi_huber_loss},
    {"quantile_loss", fxi_quantile_loss},
    {"crossentropy", fxi_crossentropy},
    {"logitcrossentropy", fxi_logitcrossentropy},
    {"binarycrossentropy", fxi_binarycrossentropy},
    {"logitbinarycrossentropy", fxi_logitbinarycrossentropy},
    {"kldivergence", fxi_kldivergence},
    {"poisson_loss", fxi_poisson_loss},
    {"hinge_loss", fxi_hinge_loss},
    {"squared_hinge_loss", fxi_squared_hinge_loss},
    {"focal_loss", fxi_focal_loss},
    {"binary_focal_loss", fxi_binary_focal_loss},
    {"siamese_contrastive_loss", fxi_siamese_contrastive_loss},
    {"dice_coeff_loss", fxi_dice_coeff_loss},
    {"tversky_loss", fxi_tversky_loss},
    {"ctc_loss", fxi_ctc_loss},
};

static fx_formula_fn take_loss(fxi_reader *r)
{
    char known[400] = "", buf[FXI_EXCERPT_BYTES];
    fxi_span name;
    const bool named = fxi_reader_name(r, &name);
    for (size_t i = 0; i < sizeof LOSSES / sizeof *LOSSES; i++) {
        if (named && fxi_span_is(name, LOSSES[i].name))
            return LOSSES[i].formula;
        fxi_add_word(known, sizeof known, LOSSES[i].name);
    }
    r->at = named ? name.from : r->at;
    fxi_reader_fail(r, r->at, "unknown loss %s; known are %s", fxi_reader_got(r, r->at, buf),
                    known);
    return no_loss;
}

fx_formula_fn fx_parse_loss(const char *text)
{
    fxi_reader r;
    const fx_formula_fn formula = fxi_reader_begin(&r, "loss", text) ? take_loss(&r) : no_loss;
    return fxi_reader_end(&r) ? formula : no_loss;
}
