/* torch_parts.c: joins arrays of a model that PyTorch stores as one array, and divides that array:
 * see torch_parts.h. */
#include "torch_parts.h"

#include <cflux/ops.h>
#include <stdio.h>
#include <string.h>

#include "memory.h"

enum { NAME = 4200 };

/* ---- marks ----------------------------------------------------------------------------------- */

/* "0.q_proj|in_proj_1.weight" becomes "0.q_proj.weight", part 1 of "0.in_proj_weight". False if out
 * of memory. */
static bool take_mark(char *path, fxi_torch_part *out)
{
    char *mark = strchr(path, FXI_TORCH_PART), *field = mark ? strchr(mark, '.') : NULL;
    *out = (fxi_torch_part){0};
    if (!field)
        return true;
    char whole[NAME];
    const char *child = mark;
    while (child > path && child[-1] != '.')
        child--;
    out->index = field[-1] - '0';
    snprintf(whole, sizeof whole, "%.*s%.*s%s", (int)(child - path), path,
             (int)(field - 1 - (mark + 1)), mark + 1, field + 1);
    memmove(mark, field, strlen(field) + 1);
    out->whole = fxi_strdup(whole);
    return out->whole != NULL;
}

fxi_torch_part *fxi_torch_parts(fxi_entries *own)
{
    fxi_torch_part *parts = fxi_calloc((size_t)own->n + 1, sizeof *parts);
    bool good = parts != NULL;
    for (int32_t i = 0; i < own->n && good; i++)
        good = take_mark(own->items[i].name, &parts[i]);
    if (good)
        return parts;
    fxi_torch_parts_free(parts, own->n);
    own->status = fx_fail(FX_STATUS_MEMORY, own->op, "no memory for a list of names");
    return NULL;
}

void fxi_torch_parts_free(fxi_torch_part *parts, int32_t n)
{
    for (int32_t i = 0; parts && i < n; i++)
        fxi_free(parts[i].whole);
    fxi_free(parts);
}

/* ---- saving ---------------------------------------------------------------------------------- */

/* The parts of an array follow each other in a model, with other arrays of their layers between
 * them: at[k] is the position of part k. False if a part is missing. */
static bool find_parts(const fxi_entries *own, const fxi_torch_part *parts, int32_t first,
                       int32_t at[FXI_TORCH_PARTS])
{
    int found = 0;
    for (int32_t i = first; i < own->n && i < first + 3 * FXI_TORCH_PARTS; i++)
        if (parts[i].whole && parts[i].index == found && found < FXI_TORCH_PARTS &&
            strcmp(parts[i].whole, parts[first].whole) == 0)
            at[found++] = i;
    return found == FXI_TORCH_PARTS;
}

/* Can PyTorch hold these layers? Every weight must have as many outputs as the first one has
 * inputs. *square: all of them also have that many inputs. */
static bool torch_holds(const fxi_entries *state, const int32_t at[FXI_TORCH_PARTS], bool *square)
{
    const int64_t size = fx_size(state->items[at[0]].array, 0);
    bool holds = true;
    *square = true;
    for (int k = 0; k < FXI_TORCH_PARTS; k++) {
        const fx_array *w = state->items[at[k]].array;
        holds = holds && fx_ndims(w) == 2 && fx_size(w, 1) == size;
        *square = *square && fx_size(w, 0) == size;
    }
    return holds;
}

/* Replaces the name of an entry; false if out of memory. */
static bool rename_entry(fxi_entries *state, int32_t i, const char *name)
{
    char *copy = fxi_strdup(name);
    if (!copy)
        return false;
    fxi_free(state->items[i].name);
    state->items[i].name = copy;
    return true;
}

/* Makes the first of the parts the whole; the other ones get no array. */
static bool join(const fxi_torch_part *parts, const int32_t at[FXI_TORCH_PARTS], fxi_entries *state)
{
    fx_array *list[FXI_TORCH_PARTS];
    for (int k = 0; k < FXI_TORCH_PARTS; k++)
        list[k] = state->items[at[k]].array;
    fx_array *whole = fxi_concat(fx_ndims(list[0]) - 1, FXI_TORCH_PARTS, list);
    for (int k = 1; k < FXI_TORCH_PARTS; k++)
        state->items[at[k]].array = NULL;
    state->items[at[0]].array = whole;
    return !fx_is_error(whole) && rename_entry(state, at[0], parts[at[0]].whole);
}

/* "0.q_proj.weight" becomes "0.q_proj_weight". */
static void separate(const int32_t at[FXI_TORCH_PARTS], fxi_entries *state)
{
    for (int k = 0; k < FXI_TORCH_PARTS; k++)
        *strrchr(state->items[at[k]].name, '.') = '_';
}

static bool is_weight(const fxi_torch_part *p)
{
    const size_t n = strlen(p->whole);
    return n > 7 && strcmp(p->whole + n - 7, "_weight") == 0;
}

void fxi_torch_parts_join(const fxi_entries *own, const fxi_torch_part *parts, fxi_entries *state)
{
    bool holds = false, square = false, good = true;
    for (int32_t i = 0; i < own->n && good; i++) {
        int32_t at[FXI_TORCH_PARTS];
        if (!parts[i].whole || parts[i].index != 0)
            continue;
        const bool weight = is_weight(&parts[i]), all = find_parts(own, parts, i, at);
        if (weight) /* it precedes the bias of its layer */
            holds = all && torch_holds(state, at, &square);
        if (!all || !holds)
            continue;
        if (weight && !square)
            separate(at, state);
        else
            good = join(parts, at, state);
    }
    if (!good)
        state->status = fx_error_status() != FX_OK
                            ? fx_error_status()
                            : fx_fail(FX_STATUS_MEMORY, own->op, "no memory for a list of names");
}

/* ---- loading --------------------------------------------------------------------------------- */

/* Is `name` that of the entry, with an underscore for the last dot: "0.q_proj_weight"? */
static bool is_separate(const fxi_entry *e, const char *name)
{
    const char *dot = strrchr(e->name, '.');
    const size_t n = dot ? (size_t)(dot - e->name) : 0;
    return dot && strncmp(e->name, name, n) == 0 && name[n] == '_' &&
           strcmp(name + n + 1, dot + 1) == 0;
}

void fxi_torch_parts_add(const fxi_entries *own, const fxi_torch_part *parts, const char *name,
                         fx_array *x, fxi_entries *out)
{
    bool whole = false;
    for (int32_t i = 0; i < own->n && out->status == FX_OK; i++) {
        if (!parts[i].whole)
            continue;
        if (is_separate(&own->items[i], name)) {
            fxi_entries_add(out, own->items[i].name, x);
            return;
        }
        if (strcmp(parts[i].whole, name) != 0)
            continue;
        const int last = fx_ndims(x) - 1;
        const int64_t n = last < 0 ? 1 : fx_size(x, last), part = n / FXI_TORCH_PARTS;
        whole = true;
        if (n % FXI_TORCH_PARTS != 0)
            out->status =
                fx_fail(FX_STATUS_SHAPE, out->op,
                        "%s: %lld is not three times the size of a projection", name, (long long)n);
        else
            fxi_entries_add(out, own->items[i].name,
                            fx_slice(x, last, parts[i].index * part, (parts[i].index + 1) * part));
    }
    if (!whole)
        fxi_entries_add(out, name, x);
}
