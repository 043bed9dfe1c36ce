/* bson_shapes.c: describes layers as structs of Flux 0.16, optimisers as structs of Optimisers.jl
 * 0.4.
 *
 * The table of a layer (cflux/layer.h) lists the fields of its struct in the order of Flux's
 * definition, and the type parameters as Flux declares them. The rules of optimisers are in this
 * file; the macro @def of Optimisers.jl gives each field a type parameter:
 *     Leaf{R,S}            rule::R state::S frozen::Bool
 *     Adam{E,B,P}          eta::E beta::B epsilon::P
 *     AdamW{E,B,L,P}       eta::E beta::B lambda::L epsilon::P couple::Bool
 *     OptimiserChain{O}    opts::O (a tuple)
 *     MixedPrecision{T,O}  rule::O
 *     AccumGrad            n::Int
 * BSON.jl converts every field to the type that the parameters give, so the field values and the
 * parameters must agree.
 */
#include "bson_shapes.h"
#include "bson_callable.h"
#include "c_text.h"
#include "flux_rows.h"
#include "state_parts.h"

#include <cflux/nn.h>
#include <cflux/optim.h>
#include <string.h>

static fxi_item object(const void *x)
{
    return (fxi_item){.kind = FXI_ITEM_OBJECT, .object = x};
}
static fxi_item truth(bool x)
{
    return (fxi_item){.kind = FXI_ITEM_BOOL, .integer = x};
}
static fxi_item integer(int64_t x)
{
    return (fxi_item){.kind = FXI_ITEM_INT, .integer = x};
}
static fxi_item float32(double x)
{
    return (fxi_item){.kind = FXI_ITEM_FLOAT32, .number = x};
}
static fxi_item float64(double x)
{
    return (fxi_item){.kind = FXI_ITEM_FLOAT64, .number = x};
}
static fxi_item dims(const fx_dims *d)
{
    return (fxi_item){.kind = FXI_ITEM_DIMS, .object = d};
}
static fxi_item single(const char *const *path)
{
    return (fxi_item){.kind = FXI_ITEM_SINGLE, .path = path};
}
static fxi_param number(int64_t n)
{
    return (fxi_param){FXI_PARAM_NUMBER, n, NULL};
}
static fxi_param type_of(int field)
{
    return (fxi_param){field, 0, NULL};
}

/* ---- layers ---------------------------------------------------------------------------------- */

static const char *const colon[] = {"Main", "Base", "Colon", NULL};
static const char *const rng[] = {"Random", "TaskLocalRNG", NULL};
static const char *const broadcast[] = {"Main", "Base", "Broadcast", "#broadcast", NULL};
static const char *const scale_path[] = {"Flux", "Scale", NULL};
static const char *const fix1_path[] = {"Main", "Base", "Fix1", NULL};

/* A layer being described. */
typedef struct described {
    const void *self;
    const fx_type *type;
    const fx_layer *layer;
    const char *lost, *unknown; /* see fxi_shape */
} described;

static const void *member(const described *d, const fx_layer_row *row)
{
    return (const char *)d->self + row->member;
}

/* The object in the member with this name; NULL if there is none. */
static const void *child_named(const described *d, const char *name)
{
    const int i = fxi_row_named(d->layer, name);
    return i < 0 ? NULL : *fxi_child_address(fxi_row(d->layer, i), d->self);
}

static fxi_item act_of(const described *d)
{
    const void *act = child_named(d, "act");
    return object(act ? act : FX_IDENTITY);
}

/* The Flux.Scale, with the activation inside. A layer without affine parameters has only the
 * activation, broadcast over the elements. */
static fxi_item scale_of(const described *d)
{
    if (child_named(d, "scale"))
        return (fxi_item){.kind = FXI_ITEM_SCALE, .object = d->self};
    const fxi_item act = act_of(d);
    return act.object == FX_IDENTITY ? act
                                     : (fxi_item){.kind = FXI_ITEM_BROADCAST, .object = d->self};
}

static fxi_item real(described *d, const fx_layer_row *row, bool single_precision)
{
    double v = *(const double *)member(d, row);
    const char *lost = d->layer->to_flux ? d->layer->to_flux(d->self, row->name, &v) : NULL;
    d->lost = lost ? lost : d->lost;
    return single_precision ? float32(v) : float64(v);
}

/* A missing bias is written as false, any other missing child as `nothing`. */
static fxi_item child(const described *d, const fx_layer_row *row)
{
    const void *x = *fxi_child_address(row, d->self);
    for (int i = 0; i < d->layer->nrows && !x; i++) {
        const fx_layer_row *other = fxi_row(d->layer, i);
        if (other->kind == FX_OPTION_BIAS && other->present == row->member)
            return truth(false);
    }
    return object(x);
}

static fxi_item active(int64_t state)
{
    return state == FX_ACTIVE_AUTO ? object(NULL) : truth(state == FX_ACTIVE_ON);
}

static fxi_item index_of(int64_t i)
{
    return i < 0 ? object(NULL) : integer(i + 1);
}

static fxi_item axes(const fx_dims *d)
{
    fxi_item item = d->n ? dims(d) : single(colon);
    item.integer = d->n > 0; /* the writer adds it to each axis: axes here count from 0 */
    return item;
}

/* `nothing`, an integer or a tuple of integers. */
static fxi_item factors(const fx_dims *d)
{
    return d->n == 0 ? object(NULL) : d->n == 1 ? integer(d->v[0]) : dims(d);
}

/* Describes a plain field by the type of its member. */
static fxi_item plain(described *d, const fx_layer_row *row)
{
    const fx_field *f = fxi_field_of_row(d->type, row);
    const void *at = member(d, row);
    switch (f ? f->kind : FX_FIELD_STRING) {
    case FX_FIELD_CHILD:
        return child(d, row);
    case FX_FIELD_SHARED:
        return object(*fxi_child_address(row, d->self));
    case FX_FIELD_NUMBER:
        return real(d, row, false);
    case FX_FIELD_INTEGER:
        return integer(*(const int64_t *)at);
    case FX_FIELD_FLAG:
        return truth(*(const bool *)at);
    case FX_FIELD_DIMS:
        return dims(at);
    case FX_FIELD_LIST:
        return (fxi_item){.kind = FXI_ITEM_LIST, .object = at};
    default:
        return object(NULL);
    }
}

static fxi_item item_of(described *d, const fx_layer_row *row)
{
    fxi_item item;
    switch (row->kind) {
    case FX_OPTION_FUNCTION:
        item = plain(d, row);
        return item.object ? item : object(FX_IDENTITY);
    case FX_OPTION_SYMBOL:
        return (fxi_item){.kind = FXI_ITEM_SYMBOL, .object = *(const char *const *)member(d, row)};
    case FX_OPTION_INDEX:
        return index_of(*(const int64_t *)member(d, row));
    case FX_OPTION_ACTIVE:
        return active(*(const int64_t *)member(d, row));
    case FX_OPTION_AXES:
        return axes(member(d, row));
    case FX_OPTION_FACTORS:
        return factors(member(d, row));
    case FX_OPTION_REAL32:
        return real(d, row, true);
    case FX_OPTION_FLAG:
        return row->present
                   ? truth(*(void *const *)(const void *)((const char *)d->self + row->present) !=
                           NULL)
                   : plain(d, row);
    case FX_OPTION_SCALE:
        return scale_of(d);
    case FX_OPTION_RNG:
        return single(rng);
    case FX_OPTION_LAYER:
        return (fxi_item){.kind = FXI_ITEM_LAYER, .object = *fxi_child_address(row, d->self)};
    default:
        return plain(d, row);
    }
}

void fxi_shape_split_name(fxi_shape *s)
{
    int n = 0;
    if (!strchr(s->own_name, '.'))
        s->own_path[n++] = "Main";
    char *rest = s->own_name;
    for (char *part; n < FXI_SHAPE_PATH && (part = fxi_cut_word(".", &rest));)
        s->own_path[n++] = part;
    s->own_path[n] = NULL;
    s->path = s->own_path;
}

/* The value of a member that is a flag or a word. */
static fxi_param value_of(const described *d, fxi_word name)
{
    for (int i = 0; i < d->layer->nrows; i++) {
        const fx_layer_row *row = fxi_row(d->layer, i);
        if (!row->member || fxi_word_position(row->name, name) != 0)
            continue;
        if (row->kind == FX_OPTION_WORD)
            return (fxi_param){FXI_PARAM_WORD, *(const int64_t *)member(d, row), row->words};
        return (fxi_param){FXI_PARAM_FLAG, *(const bool *)member(d, row), NULL};
    }
    return number(0);
}

/* "#stride" is the length of the tuple in field stride, "#out+2" that length and 2, "=flag" and
 * ":word" the value of that member, "weight" the type of that field. */
static fxi_param param_of(const described *d, const fx_flux_form *form, const fxi_shape *s,
                          fxi_word word)
{
    if (*word.from == '=' || *word.from == ':')
        return value_of(d, (fxi_word){word.from + 1, word.n - 1});
    if (*word.from != '#')
        return type_of(fxi_word_position(form->fields, word));
    int n = 1;
    while (n < word.n && word.from[n] != '+')
        n++;
    const int64_t more = n < word.n ? word.from[n + 1] - '0' : 0;
    const int i = fxi_word_position(form->fields, (fxi_word){word.from + 1, n - 1});
    return i < 0 ? type_of(i) : number(((const fx_dims *)s->items[i].object)->n + more);
}

/* True if a form of the layer, which an older version wrote, has the field. */
static bool was_a_field(const fx_layer *layer, fxi_word name)
{
    for (const fx_flux_form *f = layer->forms; f->fields; f++)
        if (fxi_word_position(f->fields, name) >= 0)
            return true;
    return false;
}

/* Notes an array that the struct has no field for: in `lost` an initial state, which a struct of an
 * older version could store; in `unknown` any other array. */
static void note_lost(described *d, const fx_flux_form *form)
{
    for (int i = 0; i < d->layer->nrows; i++) {
        const fx_layer_row *row = fxi_row(d->layer, i);
        const char *at = row->flux;
        fxi_word w;
        const bool child =
            row->member && (row->kind == FX_OPTION_VECTOR || row->kind == FX_OPTION_ARRAY);
        if (!child || !*fxi_child_address(row, d->self))
            continue;
        if (!fxi_next_word(&at, &w))
            d->unknown = row->name;
        else if (fxi_word_position(form->fields, w) < 0 && was_a_field(d->layer, w))
            d->lost = "Flux since 0.15 cannot store its initial state; pass the state to the call "
                      "instead";
    }
}

static void fill_layer(described *d, const fx_flux_form *form, fxi_shape *s)
{
    const char *at = form->fields;
    *s = (fxi_shape){.names = form->fields};
    note_lost(d, form);
    snprintf(s->own_name, sizeof s->own_name, "%.*s", (int)strcspn(d->layer->flux, " "),
             d->layer->flux);
    fxi_shape_split_name(s);
    for (fxi_word w; s->nitems < FXI_SHAPE_FIELDS && fxi_next_word(&at, &w);) {
        const int i = fxi_row_of_flux(d->layer, w);
        s->items[s->nitems++] = i < 0 ? object(NULL) : item_of(d, fxi_row(d->layer, i));
    }
    at = form->params;
    for (fxi_word w; s->nparams < FXI_SHAPE_PARAMS && fxi_next_word(&at, &w);)
        s->params[s->nparams++] = param_of(d, form, s, w);
    s->lost = d->lost, s->unknown = d->unknown;
}

/* Uses the newest form, which is the final one in the table. */
static bool shape_of_layer(const void *x, fxi_shape *out)
{
    described d = {.self = x, .type = fx_type_of(x)};
    d.layer = fx_layer_of(d.type);
    const fx_flux_form *form = d.layer && d.layer->flux ? d.layer->forms : NULL;
    if (!form || !form->fields)
        return false;
    while (form[1].fields)
        form++;
    fill_layer(&d, form, out);
    return true;
}

/* Describes the Flux.Scale of a layer. */
static void scale(const void *x, fxi_shape *s)
{
    const described d = {.self = x, .type = fx_type_of(x), .layer = fx_layer_of(fx_type_of(x))};
    const fxi_item items[] = {object(child_named(&d, "scale")), object(child_named(&d, "bias")),
                              act_of(&d)};
    const fxi_param params[] = {type_of(2), type_of(0), type_of(1)};
    *s = (fxi_shape){.path = scale_path, .nitems = 3, .nparams = 3};
    memcpy(s->items, items, sizeof items);
    memcpy(s->params, params, sizeof params);
}

/* Describes Base.Fix1(broadcast, act). */
static void fix1(const void *x, fxi_shape *s)
{
    const described d = {.self = x, .type = fx_type_of(x), .layer = fx_layer_of(fx_type_of(x))};
    const fxi_item items[] = {single(broadcast), act_of(&d)};
    const fxi_param params[] = {type_of(0), type_of(1)};
    *s = (fxi_shape){.path = fix1_path, .nitems = 2, .nparams = 2};
    memcpy(s->items, items, sizeof items);
    memcpy(s->params, params, sizeof params);
}

/* ---- optimisers ------------------------------------------------------------------------------ */

static fxi_item two(fx_dtype type, double a, double b)
{
    return object(
        fxi_tuple(2, (void *const[]){fxi_full(type, a, 0, NULL), fxi_full(type, b, 0, NULL)}));
}

/* The value of a field; two numbers of the library's rules are a tuple in Julia (beta, ell, gamma).
 */
static fxi_item rule_field(const void *x, const fx_field *f)
{
    const void *at = (const char *)x + f->offset;
    double v[2];
    if (f->kind == FX_FIELD_FLAG)
        return truth(*(const bool *)at);
    if (f->kind == FX_FIELD_INTEGER)
        return integer(*(const int64_t *)at);
    if (f->name[strlen(f->name) - 1] != '1')
        return float64(*(const double *)at);
    memcpy(&v[0], at, sizeof v[0]);
    memcpy(&v[1], (const char *)x + f[1].offset, sizeof v[1]);
    return two(FX_DTYPE_F64, v[0], v[1]);
}

/* OptimiserChain{Tuple}(opts), MixedPrecision{T,Rule}(rule). T is the type of items[1], which is
 * not a field. */
static void outer_rule(const void *x, const fx_list *inner, fxi_shape *s)
{
    fx_dtype type;
    if (!fxi_rule_is_mixed(x, &type)) {
        s->items[0] = object(fxi_tuple((int)inner->n, inner->items));
        s->params[0] = type_of(0);
        s->nitems = s->nparams = 1;
        return;
    }
    double scale = 1;
    const fx_type *t = fx_type_of(x);
    memcpy(&scale, (const char *)x + t->fields[1].offset, sizeof scale);
    s->items[0] = object(inner->items[0]);
    s->items[1] = type == FX_DTYPE_F32 ? float32(0) : float64(0);
    s->params[0] = type_of(1);
    s->params[1] = type_of(0);
    s->nitems = 1;
    s->nparams = 2;
    s->lost = scale != 1 ? "Flux has no field for the factor of the loss (.scale, .growth)" : NULL;
}

/* The fields of the library's rules are those of Optimisers.jl in the same order. Fields that are
 * declared with a type, couple::Bool and n::Int, have no type parameter. */
static void rule(const void *x, fxi_shape *s)
{
    const fx_type *type = fx_type_of(x);
    const fx_list *inner = fxi_rule_parts(x);
    if (inner) {
        outer_rule(x, inner, s);
        return;
    }
    for (int i = 0; i < type->nfields; i++) {
        const fx_field *f = &type->fields[i];
        if (f->name[strlen(f->name) - 1] == '2')
            continue;
        if (strcmp(f->name, "couple") != 0 && f->kind != FX_FIELD_INTEGER)
            s->params[s->nparams++] = type_of(s->nitems);
        s->items[s->nitems++] = rule_field(x, f);
    }
}

/* The position in a state while it is described. */
typedef struct state_at {
    fx_array *const *arrays;
    const double *numbers;
    fx_dtype type;
} state_at;

static void *state_part(char kind, state_at *at)
{
    if (kind == 'f')
        return fxi_full(FX_DTYPE_BOOL, 0, 0, NULL);
    if (kind == 't')
        return fxi_full(FX_DTYPE_I64, *at->numbers++, 0, NULL);
    if (kind != 'b')
        return *at->arrays++;
    const double *b = at->numbers;
    at->numbers += 2;
    return (void *)(uintptr_t)two(at->type, b[0], b[1]).object;
}

/* The state of a rule in Optimisers.jl: `nothing`, an array, or a tuple of arrays and numbers. The
 * state of a chain is the tuple of its rules' states. The state of a MixedPrecision is the pair of
 * the copy and the inner rule's state, or only the latter if there is no copy. */
static void *state_of(const fx_rule *rule, bool copy, state_at *at)
{
    const fx_list *inner = fxi_rule_parts(rule);
    const char *parts = fxi_rule_state(rule);
    void *items[FXI_RULE_STATES + FXI_RULE_NUMBERS];
    fx_dtype type;
    if (fxi_rule_is_mixed(rule, &type)) {
        items[0] = copy ? *at->arrays++ : NULL;
        items[1] = state_of(inner->items[0], false, at);
        return copy ? fxi_tuple(2, items) : items[1];
    }
    const int n = inner ? (int)inner->n : (int)strlen(parts);
    for (int i = 0; i < n; i++)
        items[i] = inner ? state_of(inner->items[i], false, at) : state_part(parts[i], at);
    return inner || n > 1 ? fxi_tuple(n, items) : n == 1 ? items[0] : NULL;
}

static void leaf(const fxi_leaf *l, fxi_shape *s)
{
    const fx_dtype type = l->nstates ? fx_eltype(l->states[0]) : FX_DTYPE_F32;
    const fx_dtype without = fxi_rule_state_type(l->rule, type);
    const bool copy = l->nstates > fxi_rule_nstates(l->rule, without);
    state_at at = {l->states, l->numbers, type};
    const fxi_item items[] = {object(l->rule), object(state_of(l->rule, copy, &at)),
                              truth(l->frozen)};
    const fxi_param params[] = {type_of(0), type_of(1)};
    s->nitems = 3;
    s->nparams = 2;
    memcpy(s->items, items, sizeof items);
    memcpy(s->params, params, sizeof params);
}

/* Comparing the name alone is not enough: a program's own type may have the name of a rule or a
 * leaf. */
static bool shape_of_rule(const void *x, fxi_shape *out)
{
    fxi_leaf l;
    const bool is_leaf = fxi_leaf_of(x, &l);
    if (!is_leaf && !fxi_is_rule(x))
        return false;
    *out = (fxi_shape){.own_path = {"Optimisers", fx_type_of(x)->name}};
    out->path = out->own_path;
    if (is_leaf)
        leaf(&l, out);
    else
        rule(x, out);
    return true;
}

bool fxi_shape_of(const void *x, fxi_shape *out)
{
    return x && fx_type_of(x) && (shape_of_layer(x, out) || shape_of_rule(x, out));
}

bool fxi_shape_of_item(const fxi_item *item, fxi_shape *out)
{
    if (item->kind == FXI_ITEM_SCALE || item->kind == FXI_ITEM_BROADCAST) {
        (item->kind == FXI_ITEM_SCALE ? scale : fix1)(item->object, out);
        return true;
    }
    return item->kind == FXI_ITEM_OBJECT &&
           (fxi_callable_shape(item->object, out) || fxi_shape_of(item->object, out));
}
