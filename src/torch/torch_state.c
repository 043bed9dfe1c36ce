/* torch_state.c: the state of a model with PyTorch's names and layouts.
 *
 * The arrays are found as for any file (entries.h), but some fields have PyTorch's names. Arrays of
 * the same layout in PyTorch and Flux have the same bytes, because PyTorch's sizes are in reverse
 * order. The two layouts that differ are converted by functions that are their own inverses, so one
 * table works in both directions.
 */
#include "entries_load.h"
#include "flux_rows.h"
#include "torch_parts.h"

#include <cflux/io.h>
#include <cflux/nn.h>
#include <cflux/ops.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The name of a member in PyTorch. The table of a layer's type may override it. Its marks become
 * control characters, because names that a program gives to children may contain * and |. */
static const char *name_of(const fx_type *type, const fx_field *field)
{
    static _Thread_local char marked[128]; /* the caller copies it before the next call */
    const fx_layer *layer = fx_layer_of(type);
    const int i = layer ? fxi_row_named(layer, field->name) : -1;
    const char *name = i < 0 ? NULL : fxi_row(layer, i)->torch;
    if (!name || !strpbrk(name, "*|"))
        return name ? name : field->name;
    snprintf(marked, sizeof marked, "%s", name);
    for (char *c = marked; *c; c++)
        *c = *c == '*' ? FXI_TORCH_SUFFIX : *c == '|' ? FXI_TORCH_PART : *c;
    return marked;
}

/* ---- layouts --------------------------------------------------------------------------------- */

/* Reverses the kernel axes, which precede the channel axes. */
static fx_array *flip(fx_array *w)
{
    return fx_ndims(w) > 2 ? fx_flip(w, FXI_AXES((1u << (unsigned)(fx_ndims(w) - 2)) - 1)) : w;
}

static fx_array *transpose(fx_array *w)
{
    int64_t reversed[FX_MAX_DIMS];
    const int n = fx_ndims(w);
    for (int i = 0; i < n; i++)
        reversed[i] = n - 1 - i;
    return n > 1 ? fxi_permute(w, n, reversed) : w;
}

/* The part of a path after its last dot. */
static const char *last_part(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot ? dot + 1 : path;
}

/* True if the path ends with that name. */
static bool ends_with(const char *path, const char *name)
{
    return strcmp(last_part(path), name) == 0;
}

/* The same for a name that may have the suffix of a layer, _l0 (see with_suffixes). */
static bool is_named(const char *path, const char *name)
{
    const char *part = last_part(path);
    const size_t n = strlen(name);
    return strncmp(part, name, n) == 0 && (!part[n] || strncmp(part + n, "_l", 2) == 0);
}

/* "0.*_l0.weight_ih" becomes "0.weight_ih_l0", and "0.*_reverse.*_l0.weight_ih" becomes
 * "0.weight_ih_l0_reverse": PyTorch's recurrent layers have the arrays of their cells under names
 * with suffixes. */
static void with_suffixes(char *path)
{
    char suffix[32];
    for (char *star; (star = strrchr(path, FXI_TORCH_SUFFIX)) != NULL;) {
        const char *dot = strchr(star, '.');
        if (!dot || (size_t)(dot - star) > sizeof suffix)
            return;
        snprintf(suffix, sizeof suffix, "%.*s", (int)(dot - star - 1), star + 1);
        memmove(star, dot + 1, strlen(dot));
        strcat(path, suffix); /* the path is now shorter by more than the suffix */
    }
}

/* The arrays of the model under PyTorch's names, and which of them are parts. NULL on failure. */
static fxi_torch_part *list_own(fxi_entries *own, void *model)
{
    fxi_entries_walk(own, "", model);
    for (int32_t i = 0; i < own->n; i++)
        with_suffixes(own->items[i].name);
    return own->status == FX_OK ? fxi_torch_parts(own) : NULL;
}

/* The table row of an entry's array; NULL if its owner has no table. */
static const fx_layer_row *row_of(const fxi_entry *e)
{
    const fx_layer *layer = fx_layer_of(e->owner);
    for (int i = 0; layer && i < layer->nrows; i++) {
        const fx_layer_row *row = fxi_row(layer, i);
        if (row->member && is_named(e->name, row->torch ? row->torch : row->name))
            return row;
    }
    return NULL;
}

/* Returns k if the entry's array is the final 1/k of PyTorch's; otherwise 0. */
static int parts_of(const fxi_entry *e)
{
    const fx_layer_row *row = row_of(e);
    return row && !row->torch_added ? row->torch_last : 0;
}

/* PyTorch's array, of which the entry's array is the end: zeros precede it. */
static fx_array *after_zeros(const fxi_entry *e, fx_array *x)
{
    const int parts = parts_of(e);
    return parts ? fx_pad(x, 0, (parts - 1) * fx_size(x, 0), 0, 0) : x;
}

/* Converts an array of the entry's field to the other layout. */
static fx_array *change(const fxi_entry *e, fx_array *x)
{
    const fx_layer_row *row = row_of(e);
    if (!row || fx_is_error(x) || row->layout == FX_TORCH_LAYOUT_SAME)
        return x;
    return row->layout == FX_TORCH_LAYOUT_TRANSPOSED ? transpose(x) : flip(x);
}

/* ---- saving ---------------------------------------------------------------------------------- */

/* PyTorch stores "1.num_batches_tracked" beside "1.running_var". */
static void add_count(fxi_entries *out, const fxi_entry *e)
{
    char name[4200];
    const int64_t none = 0;
    const fx_layer_row *row = row_of(e);
    if (!row || !row->torch_count)
        return;
    const char *dot = strrchr(e->name, '.');
    snprintf(name, sizeof name, "%.*s%s", dot ? (int)(dot + 1 - e->name) : 0, e->name,
             row->torch_count);
    fxi_entries_add(out, name, fxi_from(FX_DTYPE_I64, &none, 0, NULL));
}

/* The name of the array that PyTorch adds to an entry's array: "0.bias_hh_l0" for "0.bias_ih_l0";
 * false if there is none. */
static bool added_name(const fxi_entry *e, char *name, size_t capacity)
{
    const fx_layer_row *row = row_of(e);
    if (!row || !row->torch_added)
        return false;
    const char *part = last_part(e->name);
    snprintf(name, capacity, "%.*s%s%s", (int)(part - e->name), e->name, row->torch_added,
             part + strlen(row->torch));
    return true;
}

/* Adds zeros for the array that PyTorch adds to the array of `e`, unless the model has an array for
 * the end of the added array. */
static void add_zeros(fxi_entries *out, const fxi_entries *own, const fxi_entry *e)
{
    char name[4200];
    if (added_name(e, name, sizeof name) && !fxi_entries_find(own, name))
        fxi_entries_add(out, name, fx_mul(e->array, 0));
}

/* Lets a layer warn about values that PyTorch's state does not hold. */
static void *say_note(void *object, void *user)
{
    const fx_layer *layer = fx_layer_of(fx_type_of(object));
    (void)user;
    if (layer && layer->to_torch)
        layer->to_torch(object);
    return NULL;
}

static fx_array *same(fx_array *x, void *user)
{
    (void)user;
    return x;
}

void *fx_torch_state(void *model)
{
    FXI_SCOPE;
    fxi_entries own = {.op = "torch_state", .naming = name_of}, state = {.op = own.op};
    if (model && !fx_is_array(model) && fx_is_error(fx_fmap_objects(same, say_note, NULL, model)))
        own.status = fx_error_status();
    fxi_torch_part *parts = list_own(&own, model);
    fxi_entries whole = {.op = own.op, .status = own.status};
    for (int32_t i = 0; i < own.n && whole.status == FX_OK; i++)
        fxi_entries_add(&whole, own.items[i].name,
                        after_zeros(&own.items[i], change(&own.items[i], own.items[i].array)));
    if (whole.status == FX_OK)
        fxi_torch_parts_join(&own, parts, &whole);
    state.status = whole.status;
    for (int32_t i = 0; i < own.n && state.status == FX_OK; i++) {
        if (whole.items[i].array)
            fxi_entries_add(&state, whole.items[i].name, whole.items[i].array);
        add_count(&state, &own.items[i]);
        add_zeros(&state, &own, &own.items[i]);
    }
    void *tuple = fxi_entries_tuple(&state);
    fxi_torch_parts_free(parts, own.n);
    fxi_entries_free(&own);
    fxi_entries_free(&whole);
    fxi_entries_free(&state);
    return fx_keep(tuple);
}

/* ---- loading --------------------------------------------------------------------------------- */

/* True if the name is a count that PyTorch keeps beside an array of the model. */
static bool is_count(const fxi_entries *own, const char *name)
{
    for (int32_t i = 0; i < own->n; i++) {
        const fx_layer_row *row = row_of(&own->items[i]);
        if (row && row->torch_count && ends_with(name, row->torch_count))
            return true;
    }
    return false;
}

/* True if the name is an array that PyTorch adds to one of the model's. */
static bool is_added(const fxi_entries *own, const char *name)
{
    char other[4200];
    for (int32_t i = 0; i < own->n; i++)
        if (added_name(&own->items[i], other, sizeof other) && strcmp(other, name) == 0)
            return true;
    return false;
}

/* False (recorded) if a part of an added array is not 0. */
static bool is_zero(fxi_entries *out, const char *name, fx_array *part, int parts)
{
    if (fx_item(fx_any(fx_ne(part, 0))) == 0)
        return true;
    out->status =
        fx_fail(FX_STATUS_UNSUPPORTED, out->op,
                "%s: the last 1/%d of it is not 0, but the layer has no hidden_bias; make "
                "the layer with .hidden_bias = true",
                name, parts);
    return false;
}

/* The array x of the state for the entry e, plus the array that PyTorch adds to it. */
static fx_array *with_added(const fxi_entries *own, fxi_entries *out, const fxi_entries *all,
                            const fxi_entry *e, fx_array *x)
{
    char name[4200], sizes[2][200];
    const fxi_entry *other = added_name(e, name, sizeof name) ? fxi_entries_find(all, name) : NULL;
    if (!other)
        return x;
    fx_array *added = other->array;
    const int64_t n = fx_length(added), parts = row_of(e)->torch_last;
    if (fx_ndims(added) != 1 || fx_ndims(x) != 1 || n != fx_length(x)) {
        fx_summary(added, sizes[0], sizeof sizes[0]), fx_summary(x, sizes[1], sizeof sizes[1]);
        out->status = fx_fail(FX_STATUS_SHAPE, out->op, "%s: a %s cannot be added to %s, a %s",
                              name, sizes[0], e->name, sizes[1]);
        return x;
    }
    if (parts == 0 || n == 0)
        return fx_add(x, added);
    const int64_t end = n / parts;
    if (!fxi_entries_find(own, name))
        return is_zero(out, name, fx_slice(added, 0, n - end, n), (int)parts) ? fx_add(x, added)
                                                                              : x;
    return fx_add(x, fx_pad(fx_slice(added, 0, 0, n - end), 0, 0, end, 0));
}

/* The entry's part of PyTorch's array x. */
static fx_array *own_end(const fxi_entry *e, fx_array *x)
{
    const int parts = parts_of(e);
    const int64_t n = fx_length(x);
    return parts && fx_ndims(x) == 1 && n % parts == 0 ? fx_slice(x, 0, n - n / parts, n) : x;
}

/* ---- layers of one recurrent module ---- */

/* The child that is recurrent layer number `k` of the module whose path is the first `n` bytes of
 * `path`: "1" for "rnn." and k = 1 if the model has "rnn.0.weight_ih_l0" and "rnn.1.weight_ih_l0".
 * NULL if there are fewer layers. */
static const char *recurrent_layer(const fxi_entries *own, const char *path, size_t n, long k,
                                   size_t *length)
{
    for (int32_t i = 0; i < own->n; i++) {
        const char *name = own->items[i].name, *child = name + n, *dot = NULL;
        if (strncmp(name, path, n) == 0)
            dot = strchr(child, '.');
        if (!dot || strcmp(dot, ".weight_ih_l0") != 0 || k-- > 0)
            continue;
        *length = (size_t)(dot - child);
        return child;
    }
    return NULL;
}

/* PyTorch's modules with num_layers have "rnn.weight_ih_l1", and a chain of layers has
 * "rnn.1.weight_ih_l0". Writes the name in the model for a name that only PyTorch has; returns
 * false for all other names. */
static bool name_in_chain(const fxi_entries *own, const char *name, char *out, size_t capacity)
{
    const char *part = last_part(name), *suffix = strstr(part, "_l");
    char *end = NULL;
    const long k = suffix && isdigit((unsigned char)suffix[2]) ? strtol(suffix + 2, &end, 10) : -1;
    size_t length = 0;
    if (k < 0 || (*end && strcmp(end, "_reverse") != 0) || fxi_entries_find(own, name))
        return false;
    const size_t before = (size_t)(part - name);
    const char *child = recurrent_layer(own, name, before, k, &length);
    if (child)
        snprintf(out, capacity, "%.*s%.*s.%.*s_l0%s", (int)before, name, (int)length, child,
                 (int)(suffix - part), part, end);
    return child != NULL;
}

/* The state's arrays in the layout of the model. Counts are left out, and arrays that PyTorch adds
 * are added to the arrays of the model. */
static fxi_entries in_our_layout(const fxi_entries *own, const fxi_torch_part *parts, void *state)
{
    fxi_entries given = fxi_entries_of(own->op, state, ""),
                all = {.op = own->op, .status = given.status};
    for (int32_t i = 0; i < given.n && all.status == FX_OK; i++) {
        char chained[4200];
        const char *name = given.items[i].name;
        const bool is_chained =
            name_in_chain(own, name, chained, sizeof chained) && !fxi_entries_find(&given, chained);
        fxi_torch_parts_add(own, parts, is_chained ? chained : name, given.items[i].array, &all);
    }
    fxi_entries out = {.op = own->op, .status = all.status};
    for (int32_t i = 0; i < all.n && out.status == FX_OK; i++) {
        const fxi_entry *e = fxi_entries_find(own, all.items[i].name);
        if (!e && (is_count(own, all.items[i].name) || is_added(own, all.items[i].name)))
            continue;
        fx_array *x = all.items[i].array;
        if (e)
            x = change(e, own_end(e, with_added(own, &out, &all, e, x)));
        fxi_entries_add(&out, all.items[i].name, x);
    }
    fxi_entries_free(&given);
    fxi_entries_free(&all);
    return out;
}

static fx_status check_state(const char *op, const void *state)
{
    if (!state)
        return fx_fail(FX_STATUS_ARGUMENT, op, "the state is NULL");
    if (fx_is_error(state))
        return fxi_status_of_error(state);
    return fx_is_array(state)
               ? fx_fail(FX_STATUS_ARGUMENT, op, "the state is an array, not a tuple of arrays")
               : FX_OK;
}

/* Loads the whole state, or with `report` what matches: *report is then the result of
 * fxi_entries_match. */
static fx_status load_state(const char *op, void *model, void *state, void **report)
{
    const fx_status status = check_state(op, state);
    if (status != FX_OK)
        return status;
    fxi_entries own = {.op = op, .naming = name_of};
    fxi_torch_part *parts = list_own(&own, model);
    fxi_entries from = {.op = op};
    if (own.status == FX_OK)
        from = in_our_layout(&own, parts, state);
    if (report)
        *report = fxi_entries_match("the state", &own, &from);
    else
        fxi_entries_assign("the state", &own, &from);
    fxi_torch_parts_free(parts, own.n);
    fxi_entries_free(&own);
    fxi_entries_free(&from);
    return own.status;
}

fx_status fx_load_torch_state(void *model, void *state)
{
    FXI_SCOPE;
    return load_state("load_torch_state", model, state, NULL);
}

void *fx_load_torch_matching(void *model, void *state)
{
    FXI_SCOPE;
    void *report = NULL;
    const fx_status status = load_state("load_torch_matching", model, state, &report);
    return fx_keep(report ? report : fx_error_array(status));
}
