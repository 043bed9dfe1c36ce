/* torch_state.c: the state of a model as PyTorch keeps it.
 *
 * The arrays are found as for any file (entries.h), with other names for some fields. What PyTorch
 * and Flux lay out alike has the same bytes, because sizes are reversed; the two exceptions are
 * their own inverses, so that one table serves both ways.
 */
#include "entries.h"
#include "memory.h"

#include <cflux/io.h>
#include <cflux/ops.h>
#include <stdio.h>
#include <string.h>

static const char COUNT[] = "num_batches_tracked";

static const struct {
    const char *layer, *field, *name;
} names[] = {
    {"Chain", "layers", ""},
    {"BatchNorm", "gamma", "weight"},
    {"BatchNorm", "beta", "bias"},
    {"BatchNorm", "mean", "running_mean"},
    {"BatchNorm", "var", "running_var"},
    {"LayerNorm", "scale", "weight"},
};

static const char *name_of(const fx_type *type, const char *field)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i].layer, type->name) == 0 && strcmp(names[i].field, field) == 0)
            return names[i].name;
    return field;
}

/* ---- layouts --------------------------------------------------------------------------------- */

/* Kernels are the axes before the channels. */
static fx_array *flip(fx_array *w)
{
    return fx_ndims(w) > 2 ? fx_flip(w, (1u << (unsigned)(fx_ndims(w) - 2)) - 1) : w;
}

static fx_array *transpose(fx_array *w)
{
    return fx_ndims(w) == 2 ? fx_transpose(w) : w;
}

static const struct {
    const char *layer;
    fx_array *(*change)(fx_array *w);
} layouts[] = {{"Dense", transpose}, {"Conv", flip}};

/* Is this the name of that field, of whatever layer? */
static bool ends_with(const char *name, const char *field)
{
    const char *dot = strrchr(name, '.');
    return strcmp(dot ? dot + 1 : name, field) == 0;
}

/* An array of the entry's field in the other layout. */
static fx_array *change(const fxi_entry *e, fx_array *x)
{
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        if (e->owner && strcmp(e->owner->name, layouts[i].layer) == 0 &&
            ends_with(e->name, "weight") && !fx_is_error(x))
            return layouts[i].change(x);
    return x;
}

/* ---- giving ---------------------------------------------------------------------------------- */

/* "1.running_var" of a BatchNorm has "1.num_batches_tracked" beside it. */
static void add_count(fxi_entries *out, const fxi_entry *e)
{
    static const char before[] = "running_var";
    char name[4096 + sizeof COUNT];
    const int64_t none = 0;
    if (!e->owner || strcmp(e->owner->name, "BatchNorm") != 0 || !ends_with(e->name, before))
        return;
    snprintf(name, sizeof name, "%.*s%s", (int)(strlen(e->name) - strlen(before)), e->name, COUNT);
    fxi_entries_add(out, name, fxi_from(FX_DTYPE_I64, &none, 0, NULL));
}

void *fx_torch_state(void *model)
{
    FXI_SCOPE;
    fxi_entries own = {.op = "torch_state", .naming = name_of}, state = {.op = own.op};
    fxi_entries_walk(&own, "", model);
    state.status = own.status;
    for (int32_t i = 0; i < own.n && state.status == FX_OK; i++) {
        fxi_entries_add(&state, own.items[i].name, change(&own.items[i], own.items[i].array));
        add_count(&state, &own.items[i]);
    }
    void *tuple = fxi_entries_tuple(&state);
    fxi_entries_free(&own);
    fxi_entries_free(&state);
    return fx_keep(tuple);
}

/* ---- taking ---------------------------------------------------------------------------------- */

/* The state's arrays in the layout of the model's, without the counts. */
static fxi_entries in_our_layout(const fxi_entries *own, void *state)
{
    fxi_entries all = fxi_entries_of(own->op, state, ""),
                out = {.op = own->op, .status = all.status};
    for (int32_t i = 0; i < all.n && out.status == FX_OK; i++) {
        const fxi_entry *e = fxi_entries_find(own, all.items[i].name);
        if (e || !ends_with(all.items[i].name, COUNT))
            fxi_entries_add(&out, all.items[i].name,
                            e ? change(e, all.items[i].array) : all.items[i].array);
    }
    fxi_entries_free(&all);
    return out;
}

fx_status fx_load_torch_state(void *model, void *state)
{
    FXI_SCOPE;
    static const char *const op = "load_torch_state";
    if (!state)
        return fx_fail(FX_STATUS_ARGUMENT, op, "there is no state");
    if (fx_is_error(state))
        return fxi_status_of_error(state);
    if (fx_is_array(state))
        return fx_fail(FX_STATUS_ARGUMENT, op, "the state is an array, not a tuple of arrays");
    fxi_entries own = {.op = op, .naming = name_of};
    fxi_entries_walk(&own, "", model);
    fxi_entries from = {.op = op};
    if (own.status == FX_OK)
        from = in_our_layout(&own, state);
    fxi_entries_assign("the state", &own, &from);
    fxi_entries_free(&own);
    fxi_entries_free(&from);
    return own.status;
}
