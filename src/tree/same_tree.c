/* same_tree.c: notes the words that walks read of an object, and compares them later. See
 * same_tree.h. */
#include "same_tree.h"
#include "memory.h"
#include "object_types.h"
#include "ties.h"

enum { DEEPEST = 64 };

static bool note_word(fxi_tree_record *r, const void *at)
{
    if (!fxi_grow(&r->words, &r->word_capacity, r->nwords + 1, sizeof *r->words))
        return false;
    r->words[r->nwords++] = (fxi_tree_word){at, *(const uintptr_t *)at};
    return true;
}

/* Refuses a view: its gradient is added to the array that it views, and the words do not show which
 * array that is. */
static bool good_array(const fx_array *x)
{
    return x->status == FX_OK && x->node && !fxi_viewed(x->node);
}

static bool note_array(fxi_tree_record *r, fx_array *x)
{
    if (!good_array(x) ||
        !fxi_grow(&r->arrays, &r->array_capacity, r->narrays + 1, sizeof *r->arrays))
        return false;
    r->arrays[r->narrays++] = (fxi_tree_array){x, x->node->dtype};
    return true;
}

static bool note_object(fxi_tree_record *r, void *x, int depth);

static bool note_child(fxi_tree_record *r, void *const *at, int depth)
{
    return note_word(r, at) && (!*at || note_object(r, *at, depth + 1));
}

static bool note_field(fxi_tree_record *r, void *x, const fx_field *f, int depth)
{
    if (f->kind == FX_FIELD_CHILD)
        return note_child(r, fxi_field_at(x, f), depth);
    if (f->kind != FX_FIELD_LIST)
        return true;
    const fx_list *list = fxi_field_at(x, f);
    bool ok = note_word(r, &list->n) && note_word(r, &list->items);
    for (int64_t k = 0; k < list->n && ok; k++)
        ok = note_child(r, &list->items[k], depth);
    return ok;
}

static bool note_object(fxi_tree_record *r, void *x, int depth)
{
    void *unused;
    const fx_type *type = fx_type_of(x);
    if (fxi_identity_get(&r->seen, x, &unused))
        return true;
    if (depth > DEEPEST || fx_is_error(x) || !fxi_identity_put(&r->seen, x, NULL) ||
        !note_word(r, &((const fx_object *)x)->type))
        return false;
    if (fxi_is_array(x))
        return note_array(r, x);
    if (!fx_has_children(x))
        return true;
    for (int i = 0; i < type->nfields; i++)
        if (!note_field(r, x, &type->fields[i], depth))
            return false;
    if (!fxi_grow(&r->objects, &r->object_capacity, r->nobjects + 1, sizeof *r->objects))
        return false;
    r->objects[r->nobjects++] = x;
    return true;
}

bool fxi_tree_note(fxi_tree_record *r, void *root)
{
    const bool ok = note_object(r, root, 0);
    fxi_identity_free(&r->seen);
    return ok;
}

bool fxi_tree_same(const fxi_tree_record *r)
{
    for (const fxi_tree_word *w = r->words, *end = w + r->nwords; w < end; w++)
        if (*(const uintptr_t *)w->at != w->was)
            return false;
    for (const fxi_tree_array *a = r->arrays, *end = a + r->narrays; a < end; a++)
        if (!good_array(a->array) || a->array->node->dtype != a->dtype)
            return false;
    return true;
}

void fxi_tree_record_free(fxi_tree_record *r)
{
    fxi_free(r->words);
    fxi_free(r->arrays);
    fxi_free(r->objects);
    fxi_identity_free(&r->seen);
}
