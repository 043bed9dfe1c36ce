/* flux_optimiser.c: converts optimiser states between Flux's files and fx_update.
 *
 * Optimisers.jl keeps a tree with the names of Flux's fields and a Leaf for each array of the
 * model; this library's tree has its own field names. Both are matched through fx_flux_state, which
 * is the model in Flux's structure with the library's arrays: one walk over the file's tree and
 * this model pairs each Leaf with its array. An optimiser of Flux up to 0.14 is one object with a
 * dictionary from arrays to their state.
 *
 * Everything is checked before anything is made, so an optimiser of a file can be tried on every
 * model of that file.
 */
#include "flux_optimiser.h"
#include "c_text.h"
#include "error.h"
#include "file_node.h"
#include "memory.h"
#include "object_types.h"
#include "option_struct.h"
#include "state_parts.h"
#include "tuples.h"

#include <cflux/device.h>
#include <cflux/io.h>
#include <cflux/ops.h>
#include <cflux/optim.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char OP[] = "flux_optimiser";
/* Each array of a dictionary is compared with each array of a model. These numbers limit that work
 * while a file is loaded, and when the program asks for the match. A unit is one pair of arrays, or
 * 64 elements. */
enum { WORK_OF_LOADING = 400000, WORK_OF_ASKING = 100 * WORK_OF_LOADING };
static const char TOO_MUCH[] = "there are too many arrays to compare";
static const char NEW[] = "Optimisers.", OLD[] = "Flux.Optimise."; /* modules */

typedef struct pair {
    void *array, *leaf;
} pair;

/* The correspondence of leaves and arrays. */
typedef struct matching {
    pair *pairs;
    int32_t n, capacity;
    void *old; /* an optimiser of Flux up to 0.14; NULL: the file has leaves */
    bool no_memory;
    fx_status status; /* of walks that failed */
    int64_t work;     /* work that is still allowed */
    char why[300];    /* why it does not fit; "" if it fits */
} matching;

static bool unfit(matching *m, const char *format, ...) FXI_PRINTF(2, 3);
static bool unfit(matching *m, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (!m->why[0])
        fxi_vsnprintf(m->why, sizeof m->why, format, args);
    va_end(args);
    return false;
}

static fx_status failure(const matching *m)
{
    return m->no_memory ? fx_fail(FX_STATUS_MEMORY, OP, "out of memory")
                        : fx_fail(FX_STATUS_ARGUMENT, OP, "%s", m->why);
}

/* ---- recognising optimisers ------------------------------------------------------------------ */

static bool is_named(const void *object, const char *name)
{
    const char *is = object ? fxi_file_node_name(object) : NULL;
    return is && strcmp(is, name) == 0;
}

static bool is_leaf(const void *object)
{
    fxi_leaf parts;
    return is_named(object, "Optimisers.Leaf") || fxi_leaf_of(object, &parts);
}

static bool is_old(const void *object)
{
    const char *name = object ? fxi_file_node_name(object) : NULL;
    return name && strncmp(name, OLD, strlen(OLD)) == 0;
}

static bool is_branch(const fx_spot *at)
{
    const void *x = at->objects[0];
    return x && !fx_is_array(x) && at->depth <= FXI_IO_MAX_DEPTH;
}

static fx_walk find_leaf(const fx_spot *at, void *user)
{
    bool *found = user;
    *found = at->objects[0] && is_leaf(at->objects[0]);
    return *found ? FX_WALK_STOP : is_branch(at) ? FX_WALK_ENTER : FX_WALK_PASS;
}

/* io_status collects the first failure of these walks. */
static bool has_leaf(void *object, fx_status *io_status)
{
    bool found = false;
    const fx_tree_walker how = {.op = OP, .meet = find_leaf, .user = &found};
    const fx_status status = fx_tree_walk(&how, &object);
    *io_status = *io_status == FX_OK ? status : *io_status;
    return status == FX_OK && found;
}

/* ---- leaves and arrays ----------------------------------------------------------------------- */

static bool add(matching *m, void *array, void *leaf)
{
    m->no_memory = !fxi_grow(&m->pairs, &m->capacity, m->n + 1, sizeof *m->pairs);
    if (!m->no_memory)
        m->pairs[m->n++] = (pair){array, leaf};
    return !m->no_memory || unfit(m, "out of memory");
}

static fx_walk match_spot(const fx_spot *at, void *user)
{
    matching *m = user;
    void *tree = at->objects[0], *x = at->objects[1];
    const bool array = x && fx_is_array(x);
    if (tree && is_leaf(tree))
        return (array ? add(m, x, tree)
                      : unfit(m, "the tree has a Leaf at a position where the model has no array"))
                   ? FX_WALK_PASS
                   : FX_WALK_STOP;
    if (!is_branch(at))
        return FX_WALK_PASS;
    const int64_t n = fx_count(tree), has = x && !array ? fx_count(x) : 0;
    if (n == has)
        return FX_WALK_ENTER;
    if (!has_leaf(tree, &m->status))
        return m->status == FX_OK ? FX_WALK_PASS : FX_WALK_STOP;
    unfit(m, "the tree has %lld branches, but the model has %lld at that position", (long long)n,
          (long long)has);
    return FX_WALK_STOP;
}

/* Pairs the leaves of a tree with the arrays at the same positions of x. */
static bool match(matching *m, void *tree, void *x)
{
    void *const both[] = {tree, x};
    const fx_tree_walker how = {.op = OP, .trees = 2, .meet = match_spot, .user = m};
    const fx_status status = fx_tree_walk(&how, both);
    m->status = m->status == FX_OK ? status : m->status;
    m->no_memory |= m->status == FX_STATUS_MEMORY;
    return m->status != FX_OK ? unfit(m, "the tree cannot be traversed") : !m->why[0];
}

static int by_array(const void *a, const void *b)
{
    const uintptr_t x = (uintptr_t)((const pair *)a)->array,
                    y = (uintptr_t)((const pair *)b)->array;
    return (x > y) - (x < y);
}

static void sort_pairs(matching *m)
{
    if (m->n > 1)
        qsort(m->pairs, (size_t)m->n, sizeof *m->pairs, by_array);
}

/* The leaf of an array, or its entry in a dictionary; NULL if there is none. Requires sorted pairs.
 */
static void *leaf_of(const matching *m, void *array)
{
    const pair key = {array, NULL};
    const pair *p = m->n ? bsearch(&key, m->pairs, (size_t)m->n, sizeof *m->pairs, by_array) : NULL;
    return p ? p->leaf : NULL;
}

/* ---- rules ----------------------------------------------------------------------------------- */

/* Rules of Flux.Optimise: their names in Optimisers.jl, and the parts of their state
 * (fxi_rule_state) if the order differs. */
typedef struct old_rule {
    const char *old, *rule, *state;
} old_rule;
static const old_rule old_rules[] = {
    {"Descent", "Descent", NULL},     {"Momentum", "Momentum", NULL},
    {"Nesterov", "Nesterov", NULL},   {"RMSProp", "RMSProp", NULL},
    {"ADAM", "Adam", NULL},           {"Adam", "Adam", NULL},
    {"RADAM", "RAdam", NULL},         {"RAdam", "RAdam", NULL},
    {"AdaMax", "AdaMax", NULL},       {"OADAM", "OAdam", "zzzb"},
    {"OAdam", "OAdam", "zzzb"},       {"ADAGrad", "AdaGrad", NULL},
    {"AdaGrad", "AdaGrad", NULL},     {"ADADelta", "AdaDelta", NULL},
    {"AdaDelta", "AdaDelta", NULL},   {"AMSGrad", "AMSGrad", NULL},
    {"NADAM", "NAdam", NULL},         {"NAdam", "NAdam", NULL},
    {"AdaBelief", "AdaBelief", NULL}, {"WeightDecay", "WeightDecay", NULL},
    {"ClipValue", "ClipGrad", NULL},  {"ClipNorm", "ClipNorm", NULL},
};

/* The child with this name; NULL if there is none. */
static void *child(const void *object, const char *name)
{
    for (int64_t i = 0; i < fx_count(object); i++)
        if (strcmp(fx_child_name(object, i), name) == 0)
            return fx_child(object, i);
    return NULL;
}

static bool is_number(const void *object)
{
    return object && fx_is_array(object) && fx_length(object) == 1;
}

static void take_number(void *object, double *out)
{
    if (is_number(object))
        *out = fx_item(object);
}

/* Reads two numbers from a tuple or a vector. */
static bool two_numbers(void *object, double out[2])
{
    const bool vector = object && fx_is_array(object) && fx_length(object) == 2;
    const bool two = object && !fx_is_array(object) && fx_count(object) == 2;
    for (int i = 0; i < 2; i++) {
        void *part = two ? fx_child(object, i) : NULL;
        if (!vector && !is_number(part))
            return false;
        out[i] = vector ? fx_at(object, i) : fx_item(part);
    }
    return true;
}

/* Reads the numbers of a rule that the file stores. */
static fx_adjust_args arguments(void *node, bool *out_centred)
{
    FXI_DEFAULT_OPTIONS(fx_adjust_args, FXI_ADJUST_ARGS, a);
    const struct {
        const char *name;
        double *first, *second; /* second NULL: one number */
    } fields[] = {{"eta", &a.eta, NULL},          {"rho", &a.rho, NULL},
                  {"epsilon", &a.epsilon, NULL},  {"lambda", &a.lambda, NULL},
                  {"couple", &a.couple, NULL},    {"delta", &a.delta, NULL},
                  {"omega", &a.omega, NULL},      {"p", &a.p, NULL},
                  {"throw", &a.throws, NULL},     {"n", &a.n, NULL},
                  {"beta", &a.beta1, &a.beta2},   {"ell", &a.ell1, &a.ell2},
                  {"gamma", &a.gamma1, &a.gamma2}};
    double two[2], centred = 0;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        void *value = child(node, fields[i].name);
        if (!fields[i].second)
            take_number(value, fields[i].first);
        else if (two_numbers(value, two)) {
            *fields[i].first = two[0];
            *fields[i].second = two[1];
        }
    }
    /* Flux.Optimise: WeightDecay(wd), ClipValue(thresh), ClipNorm(thresh), which never throws */
    void *threshold = child(node, "thresh");
    take_number(child(node, "wd"), &a.lambda);
    take_number(threshold, &a.delta);
    take_number(threshold, &a.omega);
    if (threshold)
        a.throws = 0;
    take_number(child(node, "centred"), &centred);
    *out_centred = centred != 0;
    return a;
}

/* What a file has for one array, in the format of Optimisers.jl or of Flux.Optimise (`old`). */
typedef struct parts {
    void *rule;  /* a file node (file_node.h) */
    void *state; /* state that the rule keeps for the array; NULL: none */
    void *decay; /* number of a WeightDecay that follows the rule; NULL: none */
    bool frozen;
    bool old;
} parts;

/* ADAM followed by a WeightDecay is AdamW: Flux.Optimise has AdamW only in this form. A chain of
 * one rule is that rule. Other chains are unchanged (old_chain). */
static void open_chain(parts *p)
{
    if (!is_named(p->rule, "Flux.Optimise.Optimiser"))
        return;
    void *list = fx_child(p->rule, 0);
    const int64_t n = list && !fx_is_array(list) ? fx_count(list) : 0;
    void *last = n == 2 ? fx_child(list, 1) : NULL;
    void *first = n == 2 ? fx_child(list, 0) : NULL;
    const bool adam =
        is_named(first, "Flux.Optimise.ADAM") || is_named(first, "Flux.Optimise.Adam");
    if (adam && is_named(last, "Flux.Optimise.WeightDecay"))
        p->decay = fx_child(last, 0);
    if (n != 1 && !p->decay)
        return;
    p->rule = fx_child(list, 0);
    if (p->state && !fx_is_array(p->state) && fx_count(p->state) == n)
        p->state = fx_child(p->state, 0);
}

/* The name of a node without its module; NULL if it belongs to another module. */
static const char *name_in(const void *node, const char *module)
{
    const char *name = node ? fxi_file_node_name(node) : NULL;
    const size_t n = strlen(module);
    return name && strncmp(name, module, n) == 0 ? name + n : NULL;
}

static fx_rule *no_rule(const void *node, const char *suffix)
{
    const char *name = node ? fxi_file_node_name(node) : NULL;
    fx_fail(FX_STATUS_ARGUMENT, OP, "%s%s is not a rule of this library",
            name ? name : "the content of a Leaf", suffix);
    return fx_error_object(fx_type_of(fx_descent()));
}

enum { DEEPEST_RULE = 32, MOST_RULES = 32 };
static fx_rule *rule_of(void *node, fx_dtype copies, int depth);

/* OptimiserChain(rules), MixedPrecision(rule). T of MixedPrecision{T} is a type parameter, which is
 * not among the fields in the file; `copies` is T, taken from the arrays of the state. */
static fx_rule *outer_rule(void *node, bool chain, fx_dtype copies, int depth)
{
    void *list = fx_child(node, 0), *rules[MOST_RULES];
    const int64_t n = !chain ? 1 : list && !fx_is_array(list) ? fx_count(list) : MOST_RULES + 1;
    if (n > MOST_RULES || depth == DEEPEST_RULE)
        return no_rule(node, " of this size");
    for (int i = 0; i < n; i++) {
        rules[i] = rule_of(chain ? fx_child(list, i) : list, copies, depth + 1);
        if (fx_is_error(rules[i]))
            return rules[i];
    }
    return chain ? fxi_optimiser_chain((int)n, rules)
                 : fx_mixed_precision(rules[0], .type = copies);
}

/* Makes the rule of a node of Optimisers.jl; an error object if the library does not accept it. */
static fx_rule *rule_of(void *node, fx_dtype copies, int depth)
{
    const char *name = name_in(node, NEW);
    bool centred;
    if (!name || !fxi_rule_exists(name))
        return no_rule(node, "");
    const bool chain = strcmp(name, "OptimiserChain") == 0;
    if (chain || strcmp(name, "MixedPrecision") == 0)
        return outer_rule(node, chain, copies, depth);
    const fx_adjust_args a = arguments(node, &centred);
    return fxi_rule_named(name, &a, centred);
}

static const old_rule *old_row(const void *node)
{
    const char *name = name_in(node, OLD);
    for (size_t i = 0; name && i < sizeof old_rules / sizeof *old_rules; i++)
        if (strcmp(name, old_rules[i].old) == 0)
            return &old_rules[i];
    return NULL;
}

/* The rules of a chain of Flux.Optimise that has not been opened; NULL for another rule. */
static void *old_chain(const void *rule)
{
    void *list = is_named(rule, "Flux.Optimise.Optimiser") ? fx_child(rule, 0) : NULL;
    return list && !fx_is_array(list) ? list : NULL;
}

static fx_rule *old_rule_of(const parts *p)
{
    const old_rule *row = old_row(p->rule);
    void *list = old_chain(p->rule), *rules[MOST_RULES];
    bool centred;
    const int64_t n = list ? fx_count(list) : 0;
    for (int i = 0; n <= MOST_RULES && i < n; i++) {
        const parts part = {.rule = fx_child(list, i)};
        rules[i] =
            old_chain(part.rule) ? no_rule(part.rule, " inside of another") : old_rule_of(&part);
        if (fx_is_error(rules[i]))
            return rules[i];
    }
    if (list && n <= MOST_RULES)
        return fxi_optimiser_chain((int)n, rules);
    if (!row || (p->decay && strcmp(row->rule, "Adam") != 0))
        return no_rule(p->rule, p->decay ? " with a WeightDecay after it" : "");
    fx_adjust_args a = arguments(p->rule, &centred);
    if (!p->decay)
        return fxi_rule_named(row->rule, &a, false);
    take_number(p->decay, &a.lambda);
    a.couple = 0;
    return fxi_rule_named("AdamW", &a, false);
}

static fx_rule *make_rule(const parts *p)
{
    const bool two = p->state && !fx_is_array(p->state) && fx_count(p->state) == 2;
    void *copy = two ? fx_child(p->state, 0) : NULL;
    const bool wide = copy && fx_is_array(copy) && fx_eltype(copy) == FX_DTYPE_F64;
    return p->old ? old_rule_of(p) : rule_of(p->rule, wide ? FX_DTYPE_F64 : FX_DTYPE_F32, 0);
}

/* ---- dictionaries of Flux.Optimise ----------------------------------------------------------- */

/* The dictionary from arrays to the state that a rule keeps for them; NULL: the rule keeps none. */
static void *dictionary(const void *rule)
{
    static const char *const names[] = {"state", "velocity", "acc"};
    void *found = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && rule && !found; i++)
        found = child(rule, names[i]);
    return found;
}

/* The last rule of a chain that keeps a state; the rule itself if it is not a chain. */
static const void *stateful(const void *rule)
{
    void *list = old_chain(rule);
    const void *found = list ? NULL : rule;
    for (int64_t i = 0; list && i < fx_count(list); i++)
        if (dictionary(fx_child(list, i)))
            found = fx_child(list, i);
    return found;
}

static bool several_states(const void *rule)
{
    void *list = old_chain(rule);
    int n = 0;
    for (int64_t i = 0; list && i < fx_count(list); i++)
        n += dictionary(fx_child(list, i)) != NULL;
    return n > 1;
}

/* ---- states ---------------------------------------------------------------------------------- */

static bool same_size(const void *x, const void *y)
{
    return x && y && fx_is_array(x) && fx_is_array(y) && fxi_same_sizes(x, y);
}

/* The state of an array, taken from a file. */
typedef struct taken {
    void *arrays[FXI_RULE_STATES];
    double numbers[FXI_RULE_NUMBERS];
    int narrays, nnumbers;
} taken;

static bool take_array(matching *m, void *state, const void *x, const char *rule, taken *out)
{
    if (!same_size(state, x))
        return unfit(m, "the state of %s does not have the size of its array", rule);
    out->arrays[out->narrays++] = state;
    return true;
}

static bool take_part(matching *m, char kind, void *state, const void *x, const char *rule,
                      taken *out)
{
    double *numbers = out->numbers + out->nnumbers;
    if (kind == 'f')
        return true;
    if (kind != 'b' && kind != 't')
        return take_array(m, state, x, rule, out);
    out->nnumbers += kind == 'b' ? 2 : 1;
    if (kind == 'b' && !two_numbers(state, numbers))
        return unfit(m, "%s has no powers of beta", rule);
    if (kind == 't' && !is_number(state))
        return unfit(m, "%s has no count", rule);
    if (kind == 't')
        *numbers = fx_item(state);
    return true;
}

/* Takes the state of a rule apart as Optimisers.jl stores it. */
static bool take_state(matching *m, const fx_rule *rule, void *state, const void *x, taken *out)
{
    const fx_list *inner = fxi_rule_parts(rule);
    const char *form = fxi_rule_state(rule), *name = fx_type_of(rule)->name;
    const bool list = state && !fx_is_array(state);
    fx_dtype type;
    if (fxi_rule_is_mixed(rule, &type)) {
        if (type == fx_eltype(x))
            return take_state(m, inner->items[0], state, x, out);
        return (take_array(m, list && fx_count(state) == 2 ? fx_child(state, 0) : NULL, x, name,
                           out)) &&
               take_state(m, inner->items[0], fx_child(state, 1), x, out);
    }
    const int64_t n = inner ? inner->n : (int64_t)strlen(form);
    const bool alone = !inner && (n == 1 || strcmp(form, "zf") == 0);
    if (alone && (n == 1 || !list)) /* Flux.Optimise keeps one array for RMSProp */
        return take_part(m, *form, state, x, name, out);
    if (n > 0 && (!list || fx_count(state) != n))
        return unfit(m, "the state of %s does not have %lld parts", name, (long long)n);
    for (int64_t i = 0; i < n; i++)
        if (inner ? !take_state(m, inner->items[i], fx_child(state, i), x, out)
                  : !take_part(m, form[i], fx_child(state, i), x, name, out))
            return false;
    return true;
}

/* take_state for what Flux.Optimise stores: the state of the only rule of a chain that has one. */
static bool take_old_state(matching *m, const fx_rule *rule, const parts *p, const void *x,
                           taken *out)
{
    const fx_list *inner = fxi_rule_parts(rule);
    const old_rule *row = old_row(stateful(p->rule));
    const fx_rule *only = rule;
    for (int64_t i = 0; inner && i < inner->n; i++)
        if (*fxi_rule_state(inner->items[i]))
            only = inner->items[i];
    if (!row || !row->state)
        return take_state(m, only, p->state, x, out);
    const int64_t n = (int64_t)strlen(row->state);
    bool good = !fx_is_array(p->state) && fx_count(p->state) == n;
    if (!good)
        unfit(m, "the state of %s does not have %lld parts", row->rule, (long long)n);
    for (int64_t i = 0; i < n && good; i++)
        good = take_part(m, row->state[i], fx_child(p->state, i), x, row->rule, out);
    return good;
}

/* True if the library accepts the rule, whose numbers a file may choose, and the state has the form
 * that the rule needs. */
static bool fits(matching *m, const parts *p, const void *x)
{
    FXI_SCOPE;
    const fx_error earlier = fxi_error_begin();
    fx_rule *rule = make_rule(p);
    const fx_error why = fxi_is_rule(rule) ? (fx_error){0} : fx_error_take();
    fxi_error_end(&earlier);
    m->no_memory |= why.status == FX_STATUS_MEMORY;
    if (!fxi_is_rule(rule))
        return unfit(m, "%s", why.message);
    if (p->old && several_states(p->rule))
        return unfit(m, "a chain of Flux.Optimise has several rules with a state");
    if (p->old && !p->state) /* the array was never updated */
        return true;
    taken state = {.narrays = 0};
    return p->old ? take_old_state(m, rule, p, x, &state)
                  : take_state(m, rule, p->state, x, &state);
}

/* True if the key has the values of the model's array. Identity is not enough: a file that was
 * loaded twice has other arrays with the same values. */
static bool same_values(fx_array *x, fx_array *key)
{
    FXI_SCOPE;
    const size_t bytes = (size_t)fx_length(x) * fx_dtype_size(fx_eltype(x));
    if (x == key)
        return true;
    if (!same_size(x, key) || fx_eltype(x) != fx_eltype(key))
        return false;
    char *a = fxi_malloc(bytes + 1), *b = fxi_malloc(bytes + 1);
    const bool same = a && b && fx_read_into(x, a, bytes) == FX_OK &&
                      fx_read_into(key, b, bytes) == FX_OK && memcmp(a, b, bytes) == 0;
    fxi_free(a);
    fxi_free(b);
    return same;
}

/* Pairs the arrays of an old optimiser's dictionary with their state. */
static bool match_old(matching *m, void *optimiser)
{
    parts p = {.rule = optimiser};
    open_chain(&p);
    void *dict = dictionary(stateful(p.rule));
    void *keys = is_named(dict, "Dict") ? child(dict, "keys") : NULL;
    void *values = keys ? child(dict, "values") : NULL;
    bool good = true;
    for (int64_t i = 0; values && i < fx_count(keys) && i < fx_count(values) && good; i++) {
        void *key = fx_child(keys, i), *value = fx_child(values, i);
        good = !key || !value || !fx_is_array(key) || add(m, key, value);
    }
    return good;
}

/* The dictionary's entry for the array; NULL if there is none. */
static void *remembered(matching *m, fx_array *x)
{
    void *found = leaf_of(m, x);
    for (int32_t i = 0; i < m->n && !found && m->work > 0; i++) {
        fx_array *key = m->pairs[i].array;
        m->work -= 1 + (same_size(x, key) ? fx_length(x) / 64 : 0);
        found = same_values(x, key) ? m->pairs[i].leaf : NULL;
    }
    if (!found && m->work <= 0)
        unfit(m, "%s", TOO_MUCH);
    return found;
}

static bool parts_of(matching *m, fx_array *x, parts *out)
{
    void *leaf = m->old ? NULL : leaf_of(m, x);
    *out = (parts){.rule = m->old, .old = m->old != NULL};
    if (!m->old && !leaf)
        return unfit(m, "the tree has no Leaf for an array of the model");
    if (leaf) {
        double frozen = 0;
        take_number(child(leaf, "frozen"), &frozen);
        *out = (parts){.rule = child(leaf, "rule"), .state = child(leaf, "state")};
        out->frozen = frozen != 0;
    }
    open_chain(out);
    if (out->old)
        out->state = remembered(m, x);
    return !m->why[0];
}

/* ---- making ---------------------------------------------------------------------------------- */

static fx_array *as(fx_array *x, void *state, fx_dtype type, bool negative)
{
    fx_array *y = fx_to(fx_array_device(x), fx_cast(state, type));
    return negative ? fx_neg(y) : y;
}

static fx_status fill_leaf(fx_array *x, fxi_leaf *out, void *user)
{
    matching *m = user;
    parts p;
    void *leaf = m->old ? NULL : leaf_of(m, x);
    if (leaf && fxi_leaf_of(leaf, out))
        return FX_OK;
    if (!parts_of(m, x, &p) || !fits(m, &p, x))
        return failure(m);
    out->rule = make_rule(&p);
    if (fx_is_error(out->rule))
        return fx_error_status() != FX_OK ? fx_error_status() : FX_STATUS_MEMORY;
    out->frozen = p.frozen;
    out->nstates = fxi_rule_nstates(out->rule, fx_eltype(x));
    fxi_rule_init(out->rule, x, out->states, out->numbers);
    taken state = {.narrays = 0};
    if (!p.state)
        return FX_OK;
    if (!(p.old ? take_old_state(m, out->rule, &p, x, &state)
                : take_state(m, out->rule, p.state, x, &state)))
        return failure(m);
    /* Flux's own Momentum keeps v with the opposite sign of Optimisers.jl's */
    const bool negative = p.old && is_named(stateful(p.rule), "Flux.Optimise.Momentum");
    const fx_dtype type = fxi_rule_state_type(out->rule, fx_eltype(x));
    for (int i = 0; i < state.narrays; i++)
        out->states[i] = as(x, state.arrays[i], type, negative);
    memcpy(out->numbers, state.numbers, sizeof out->numbers);
    return FX_OK;
}

static void check_array(fx_array *x, const char *path, bool trainable, void *user)
{
    matching *m = user;
    parts p;
    fxi_leaf leaf;
    (void)path;
    if (!trainable || m->why[0] || (!m->old && fxi_leaf_of(leaf_of(m, x), &leaf)))
        return;
    if (parts_of(m, x, &p))
        fits(m, &p, x);
}

/* Checks whether the optimiser fits the model. The arrays in m stay in use until the state is made.
 */
static bool prepare(matching *m, void *optimiser, void *model)
{
    if (is_old(optimiser)) {
        m->old = optimiser;
        match_old(m, optimiser);
    } else if (!has_leaf(optimiser, &m->status)) {
        m->no_memory |= m->status == FX_STATUS_MEMORY;
        return unfit(m, "it contains neither a Leaf of Optimisers.jl nor an optimiser of Flux");
    } else
        match(m, optimiser, fx_flux_state(model));
    sort_pairs(m);
    if (!m->why[0])
        fx_visit(model, check_array, m);
    return !m->why[0];
}

static bool is_state_of(void *optimiser, void *model)
{
    matching m = {.work = WORK_OF_ASKING};
    fxi_leaf leaf;
    bool is = match(&m, optimiser, model) && m.n > 0;
    for (int32_t i = 0; i < m.n && is; i++)
        is = fxi_leaf_of(m.pairs[i].leaf, &leaf);
    fxi_free(m.pairs);
    return is;
}

void *fx_flux_optimiser(void *optimiser, void *model)
{
    FXI_SCOPE;
    if (fx_is_error(optimiser) || fx_is_error(model))
        return fx_error_array(fx_fail(FX_STATUS_ARGUMENT, OP, "the %s %s",
                                      fx_is_error(model) ? "model" : "optimiser",
                                      "is NULL or an error object"));
    matching m = {.work = WORK_OF_ASKING};
    const fx_error earlier = fxi_error_begin();
    void *state = is_state_of(optimiser, model)   ? optimiser
                  : prepare(&m, optimiser, model) ? fxi_setup_with(model, fill_leaf, &m)
                                                  : fx_error_array(failure(&m));
    const fx_status status = fxi_error_end(&earlier);
    fxi_free(m.pairs);
    if (status != FX_OK)
        return fx_error_array(status);
    return state == optimiser ? state : fx_keep(state);
}

/* ---- files ----------------------------------------------------------------------------------- */

static bool is_model(const void *object)
{
    const fx_type *type = object ? fx_type_of(object) : NULL;
    return type && type->forward && !fxi_file_node_name(object);
}

/* The state of a file's optimiser for one of its models; NULL if it fits none. */
static void *adopted(const fx_list *entries, void *optimiser, int64_t *io_work)
{
    void *state = NULL;
    for (int64_t i = 0; i < entries->n && !state && *io_work > 0; i++) {
        void *model = entries->items[i];
        matching m = {.work = *io_work};
        if (is_model(model) && (prepare(&m, optimiser, model) || m.no_memory))
            state =
                m.no_memory ? fx_error_array(failure(&m)) : fxi_setup_with(model, fill_leaf, &m);
        *io_work = m.work;
        fxi_free(m.pairs);
    }
    return state;
}

fx_status fxi_flux_optimisers_in(void *file)
{
    int64_t work = WORK_OF_LOADING;
    fx_status status = FX_OK;
    if (!(fx_type_of(file)->flags & FX_TYPE_TUPLE))
        return FX_OK;
    fx_list *entries = &((fx_tuple_object *)file)->items;
    for (int64_t i = 0; i < entries->n; i++) {
        void *entry = entries->items[i];
        if (!entry || is_model(entry) || !(is_old(entry) || has_leaf(entry, &status)))
            continue;
        void *state = adopted(entries, entry, &work);
        if (state && fx_is_error(state))
            return fx_array_status(state);
        if (state)
            fxi_set(&entries->items[i], state);
    }
    return status;
}

/* Maps each array with a leaf to this leaf, everything else to the empty tuple. */
static void *leaf_or_nothing(void *x, void *user)
{
    void *leaf = x && fx_is_array(x) ? leaf_of(user, x) : NULL;
    return leaf ? leaf : fxi_tuple(0, NULL);
}

static void *tree_beside(const fxi_saving *what, void *state)
{
    void *tree = NULL;
    matching m = {.n = 0};
    for (int i = 0; i < what->n && !tree && !m.no_memory; i++) {
        m.n = 0;
        m.why[0] = 0;
        if (!is_model(what->objects[i]) || !match(&m, state, what->objects[i]) || m.n == 0)
            continue;
        sort_pairs(&m);
        tree = fxi_mirror(OP, fx_flux_state(what->objects[i]), leaf_or_nothing, &m);
    }
    fxi_free(m.pairs);
    return m.no_memory ? fx_error_array(fx_fail(FX_STATUS_MEMORY, what->op, "out of memory"))
                       : tree;
}

fx_status fxi_flux_optimisers_out(const fxi_saving *what, void **objects)
{
    fx_status status = FX_OK;
    for (int i = 0; i < what->n; i++) {
        void *object = objects[i] = what->objects[i];
        if (fx_is_error(object) || is_model(object) || !has_leaf(object, &status))
            continue;
        objects[i] = tree_beside(what, object);
        if (!objects[i])
            return fx_fail(FX_STATUS_ARGUMENT, what->op,
                           "\"%s\" is the state of an optimiser, which Flux stores in the shape of "
                           "its model: save the model in the same file",
                           what->names[i]);
        if (fx_is_error(objects[i]))
            return fx_error_status() != FX_OK ? fx_error_status() : FX_STATUS_MEMORY;
    }
    return status;
}
