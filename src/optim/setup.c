/* setup.c: optimiser states.
 *
 * The state mirrors the model: named tuples where the model has children, one leaf per distinct
 * trainable array; the leaf of a tied array appears everywhere the array does.
 */
#include "error.h"
#include "julia_number.h"
#include "launcher.h"
#include "memory.h"
#include "object_types.h"
#include "update_items.h"
#include "tuples.h"

#include <stdlib.h>
#include <string.h>

static const fx_field leaf_fields[] = {
    {"rule", offsetof(fxi_state_leaf, rule), FX_FIELD_SHARED, false},
    {"states", offsetof(fxi_state_leaf, states), FX_FIELD_LIST, false},
    {"frozen", offsetof(fxi_state_leaf, frozen), FX_FIELD_FLAG, false},
};
static fxi_state_leaf leaf_error;

static void add_summary(fx_text *text, void *object)
{
    char one[256];
    fx_summary(object, one, sizeof one);
    fx_text_add(text, "%s", one);
}

/* The position in a state while it is printed. */
typedef struct cursor {
    void *const *states;
    const double *numbers;
} cursor;

static void add_part(fx_text *text, char kind, cursor *at)
{
    char a[FXI_NUMBER_TEXT], b[FXI_NUMBER_TEXT];
    if (kind == 'b') {
        fx_text_add(text, "(%s, %s)", fxi_float64_text(at->numbers[0], a),
                    fxi_float64_text(at->numbers[1], b));
        at->numbers += 2;
    } else if (kind == 't')
        fx_text_add(text, "%.0f", *at->numbers++);
    else if (kind == 'f')
        fx_text_add(text, "false");
    else
        add_summary(text, *at->states++);
}

/* Prints the state of a rule as Optimisers.jl does, with sizes instead of arrays. */
static void add_state(fx_text *text, const fx_rule *r, bool copy, cursor *at)
{
    const fx_list *inner = fxi_rule_parts(r);
    const char *parts = fxi_rule_state(r);
    fx_dtype type;
    if (inner && fxi_rule_is_mixed(r, &type)) {
        if (copy) {
            fx_text_add(text, "(");
            add_summary(text, *at->states++);
            fx_text_add(text, ", ");
        }
        add_state(text, inner->items[0], false, at);
        fx_text_add(text, copy ? ")" : "");
        return;
    }
    const int64_t n = inner ? inner->n : (int64_t)strlen(parts);
    const bool tuple = inner || n > 1;
    fx_text_add(text, n == 0 && !inner ? "nothing" : tuple ? "(" : "");
    for (int64_t i = 0; i < n; i++) {
        fx_text_add(text, i ? ", " : "");
        if (inner)
            add_state(text, inner->items[i], false, at);
        else
            add_part(text, parts[i], at);
    }
    fx_text_add(text, !tuple ? "" : inner && n == 1 ? ",)" : ")");
}

/* Leaf(Adam(…), (3×2 Matrix{Float32}, 3×2 Matrix{Float32}, (0.9, 0.999))) */
static void leaf_describe(const void *self, fx_text *text)
{
    const fxi_state_leaf *l = self;
    fx_text_add(text, "Leaf(");
    if (!fxi_is_rule(l->rule))
        add_summary(text, l->rule);
    else {
        fx_type_of(l->rule)->describe(l->rule, text); /* a chain may be longer than a summary */
        /* the type of the parameter is not known here, but one array more than the rule needs is a
         * copy */
        const bool copy = l->states.n > fxi_rule_nstates(l->rule, fxi_rule_state_type(l->rule, 0));
        fx_text_add(text, ", ");
        add_state(text, l->rule, copy, &(cursor){l->states.items, l->numbers});
    }
    fx_text_add(text, l->frozen ? ", frozen = true)" : ")");
}

const fx_type fxi_leaf_type = {.fxi_size = sizeof(fx_type),
                               .name = "Leaf",
                               .size = sizeof(fxi_state_leaf),
                               .fields = leaf_fields,
                               .nfields = (int)(sizeof leaf_fields / sizeof leaf_fields[0]),
                               .describe = leaf_describe,
                               .error = &leaf_error};

bool fxi_update_grow(void *array, int64_t *capacity, int64_t n, size_t size)
{
    if (n < *capacity)
        return true;
    const int64_t grown = *capacity ? 2 * *capacity : 32;
    void **at = array, *p = fxi_realloc(*at, (size_t)grown * size);
    if (!p)
        return false;
    *at = p;
    *capacity = grown;
    return true;
}

/* ---- setup ----------------------------------------------------------------------------------- */

typedef struct pair {
    const fx_array *array;
    fxi_state_leaf *leaf;
} pair;

typedef struct setup {
    fxi_leaf_fn leaf_of; /* fills in the leaf of an array */
    void *user;
    pair *pairs; /* the trained arrays; sorted by address once all are known */
    int64_t n, capacity;
    fx_status status;
} setup;

fxi_state_leaf *fxi_leaf_new(const fxi_leaf *parts)
{
    fxi_state_leaf init = {.rule = parts->rule,
                           .states = {parts->nstates, (void **)(uintptr_t)parts->states, NULL},
                           .frozen = parts->frozen,
                           .ndims = parts->ndims,
                           .item = -1};
    memcpy(init.numbers, parts->numbers, sizeof init.numbers);
    memcpy(init.sizes, parts->sizes, sizeof init.sizes);
    return fxi_new(&fxi_leaf_type, &init);
}

bool fxi_leaf_of(const void *object, fxi_leaf *out)
{
    if (!fxi_is_leaf(object) || object == &leaf_error)
        return false;
    const fxi_state_leaf *l = object;
    *out = (fxi_leaf){
        .rule = l->rule, .nstates = (int)l->states.n, .frozen = l->frozen, .ndims = l->ndims};
    memcpy(out->numbers, l->numbers, sizeof out->numbers);
    memcpy(out->sizes, l->sizes, sizeof out->sizes);
    for (int i = 0; i < out->nstates; i++)
        out->states[i] = l->states.items[i];
    return true;
}

bool fxi_leaf_divided(const void *object)
{
    fxi_leaf parts;
    return fxi_leaf_of(object, &parts) && fxi_is_rule(parts.rule) && fxi_rule_divides(parts.rule);
}

/* The initial state of a rule. */
static fx_status fresh_leaf(fx_array *x, fxi_leaf *out, void *rule)
{
    *out = (fxi_leaf){.rule = rule, .nstates = fxi_rule_nstates(rule, fx_eltype(x))};
    fxi_rule_init(rule, fxi_own_part(rule, x), out->states, out->numbers);
    return FX_OK;
}

static bool like(const fx_array *x, const fx_array *state, fx_dtype type)
{
    bool same = fx_eltype(state) == type && fx_ndims(x) == fx_ndims(state);
    for (int i = 0; i < fx_ndims(x) && same; i++)
        same = fx_size(x, i) == fx_size(state, i);
    return same;
}

static fx_status check_leaf(fx_array *x, const fxi_leaf *parts)
{
    bool good =
        fxi_is_rule(parts->rule) && parts->nstates == fxi_rule_nstates(parts->rule, fx_eltype(x));
    const fx_dtype type = good ? fxi_rule_state_type(parts->rule, fx_eltype(x)) : FX_DTYPE_F32;
    for (int i = 0; i < parts->nstates && good; i++) {
        if (fx_is_error(parts->states[i]))
            return fx_array_status(parts->states[i]);
        good = like(fxi_own_part(parts->rule, x), parts->states[i], type);
    }
    return good ? FX_OK
                : fx_fail(FX_STATUS_ARGUMENT, "setup", "the state does not match its parameter");
}

static void note_array(fx_array *x, const char *path, bool trainable, void *user)
{
    (void)path;
    setup *s = user;
    fxi_leaf parts = {.rule = NULL};
    if (!trainable || s->status != FX_OK)
        return;
    s->status = fx_is_error(x) ? fx_array_status(x) : s->leaf_of(x, &parts, s->user);
    if (s->status == FX_OK)
        s->status = check_leaf(x, &parts);
    if (s->status != FX_OK)
        return;
    parts.ndims = fx_ndims(x);
    for (int i = 0; i < parts.ndims; i++)
        parts.sizes[i] = fx_size(x, i);
    fxi_state_leaf *l = fxi_leaf_new(&parts);
    if (fx_is_error(l) || !fxi_update_grow(&s->pairs, &s->capacity, s->n, sizeof *s->pairs))
        s->status = fxi_update_no_memory();
    else
        s->pairs[s->n++] = (pair){x, l};
}

static int by_address(const void *a, const void *b)
{
    const pair *x = a, *y = b;
    return (uintptr_t)x->array < (uintptr_t)y->array ? -1
                                                     : (uintptr_t)x->array > (uintptr_t)y->array;
}

/* Maps a trained array to its leaf, and everything else without children to the empty tuple. */
static void *leaf_or_nothing(void *x, void *user)
{
    const setup *s = user;
    const pair key = {x, NULL};
    const pair *p =
        x && s->n ? bsearch(&key, s->pairs, (size_t)s->n, sizeof key, by_address) : NULL;
    return p ? (void *)p->leaf : fxi_tuple(0, NULL);
}

void *fxi_setup_with(void *model, fxi_leaf_fn leaf_of, void *user)
{
    setup s = {.leaf_of = leaf_of, .user = user};
    if (fx_is_error(model))
        return fx_error_array(fx_fail(FX_STATUS_ARGUMENT, "setup", "the model is %s",
                                      model ? "an error object" : "NULL"));
    void *state = NULL;
    {
        FXI_SCOPE;
        const fx_error earlier = fxi_error_begin();
        fx_visit(model, note_array, &s);
        const fx_status status = fxi_error_end(&earlier); /* of walks that failed */
        if (s.status == FX_OK)
            s.status = status;
        if (s.status == FX_OK && s.n > 0)
            qsort(s.pairs, (size_t)s.n, sizeof *s.pairs, by_address);
        if (s.status == FX_OK && s.n == 0)
            fx_message(1, "setup found no trainable parameters in this model");
        if (s.status == FX_OK)
            state = fx_keep(fxi_mirror("setup", model, leaf_or_nothing, &s));
    }
    fxi_free(s.pairs);
    return s.status == FX_OK ? state : fx_error_array(s.status);
}

void *fx_setup(fx_rule *rule, void *model)
{
    if (fxi_rule_info_of(rule)) {
        fxi_launcher_warn("trains a model of its own");
        return fxi_setup_with(model, fresh_leaf, rule);
    }
    return fx_error_array(fx_is_error(rule) && fx_error_status() != FX_OK
                              ? fx_error_status()
                              : fx_fail(FX_STATUS_ARGUMENT, "setup",
                                        "expects an optimiser rule, got %s", fxi_type_name(rule)));
}
