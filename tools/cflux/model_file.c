/* model_file.c: writes the entries of a file; models become text in formats that hold only arrays.
 *
 * Before such a file is written, the notation of each model is parsed back and compared with the
 * model, so that a later load gives the same sizes, settings and shared arrays. Everything that the
 * format cannot hold is collected first; nothing is written unless the caller allowed the losses.
 */
#include "model_file.h"
#include "array_text.h"
#include "failure.h"
#include "model_text.h"
#include "name_pairs.h"
#include "text_parts.h"
#include "tree_text.h"
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 512 };

static fx_status no_memory(void)
{
    return fx_fail(FX_STATUS_MEMORY, "save", "out of memory");
}

/* ---- contents of an object ------------------------------------------------------------------- */

static bool is_tuple(const void *object)
{
    const fx_type *type = object ? fx_type_of(object) : NULL;
    return type && (type->flags & FX_TYPE_TUPLE);
}

typedef struct contents {
    bool arrays, texts, nothing, layers;
    bool empty, dots; /* a tuple without children; a name with a dot */
    bool deep_texts;  /* texts below the first level */
} contents;

/* Inspects the items of a tuple. */
static void note_items(const void *tuple, bool inside, contents *c)
{
    c->empty = c->empty || fx_count(tuple) == 0;
    for (int64_t i = 0; i < fx_count(tuple); i++) {
        c->dots = c->dots || strchr(fx_child_name(tuple, i), '.');
        c->deep_texts = c->deep_texts || (inside && fx_string_text(fx_child(tuple, i)));
    }
}

static fx_walk note_kind(const fx_spot *at, void *user)
{
    contents *c = user;
    const void *object = at->objects[0];
    if (!object)
        c->nothing = true;
    else if (fx_is_array(object))
        c->arrays = true;
    else if (fx_string_text(object))
        c->texts = true;
    else if (!is_tuple(object))
        c->layers = true;
    else {
        note_items(object, at->depth > 0, c);
        return FX_WALK_ENTER;
    }
    return FX_WALK_PASS;
}

static contents contents_of(void *object)
{
    contents c = {0};
    const fx_tree_walker how = {.op = "save", .meet = note_kind, .user = &c};
    fx_tree_walk(&how, &object);
    return c;
}

void *model_file_entry(void *entries, const char *name)
{
    for (int64_t i = 0; is_tuple(entries) && i < fx_count(entries); i++)
        if (strcmp(fx_child_name(entries, i), name) == 0)
            return fx_child(entries, i);
    return NULL;
}

int64_t model_file_index(void *entries, bool (*is_model)(void *object))
{
    int64_t found = -1, n = 0;
    for (int64_t i = 0; i < fx_count(entries); i++) {
        if (!is_model(fx_child(entries, i)))
            continue;
        if (strcmp(fx_child_name(entries, i), "model") == 0)
            return i;
        found = i;
        n++;
    }
    return n == 1 ? found : -1;
}

/* ---- writing --------------------------------------------------------------------------------- */

typedef struct saving {
    const char *path;
    model_file_form form;
    bool holds_texts;          /* the format holds texts beside arrays, but no models */
    name_pairs objects, texts; /* the texts are copies, to be freed */
    losses *lost;
    void **out_loaded; /* see model_file_try; NULL: the file is saved */
    fx_status status;  /* out of memory, or a failure while reading arrays */
} saving;

static void lose(saving *s, const char *name, const char *why)
{
    losses_add(s->lost, name, why);
}

/* Adds a text under the name made of prefix, name and `below`. */
static void add_text(saving *s, const char *prefix, const char *name, const char *below,
                     const char *text)
{
    char key[PATH_BYTES];
    const int n = snprintf(key, sizeof key, "%s%s%s%s", prefix, name, *below ? "." : "", below);
    char *copy = strdup(text);
    if (n < 0 || n >= PATH_BYTES) {
        lose(s, name, "its name is too long");
        free(copy);
        return;
    }
    if (copy)
        pairs_add(&s->texts, key, copy);
    if (!copy || s->texts.failed)
        s->status = no_memory();
}

static void add_texts(saving *s, const char *name, const void *object)
{
    if (fx_string_text(object)) {
        add_text(s, FXI_ENTRIES_TEXT, name, "", fx_string_text(object));
        return;
    }
    for (int64_t i = 0; i < fx_count(object); i++) {
        char number[24];
        const char *below = fx_child_name(object, i);
        snprintf(number, sizeof number, "%lld", (long long)i);
        add_text(s, FXI_ENTRIES_TEXT, name, *below ? below : number,
                 fx_string_text(fx_child(object, i)));
    }
}

/* Adds the texts of a header; `object` is metadata or a tuple of texts. */
static void add_header(saving *s, const void *object)
{
    for (int64_t i = 0; i < fx_metadata_count(object); i++) {
        const char *key = fx_metadata_key(object, i);
        add_text(s, "", key, "", fx_metadata_text(object, key));
    }
    for (int64_t i = 0; is_tuple(object) && i < fx_count(object); i++)
        add_text(s, "", fx_child_name(object, i), "", fx_string_text(fx_child(object, i)));
}

/* Converts the arrays of an entry to texts. */
typedef struct array_texts {
    saving *s;
    const char *name; /* of the entry */
    int n;
} array_texts;

static void add_array_text(saving *s, const char *name, fx_array *x)
{
    char *text = array_to_text(x);
    if (text)
        add_text(s, FXI_ENTRIES_ARRAY, name, "", text);
    else
        s->status = fx_error_status();
    free(text);
}

static fx_walk meet_array(const fx_spot *at, void *user)
{
    enum { MOST = 100000 };
    array_texts *all = user;
    void *x = at->objects[0];
    if (!x || !fx_is_array(x))
        return fx_count(x) > 0 ? FX_WALK_ENTER : FX_WALK_PASS;
    if (all->n++ == MOST) {
        lose(all->s, all->name, "its arrays have too many names, because other objects share them");
        return FX_WALK_STOP;
    }
    char path[PATH_BYTES], below[PATH_BYTES];
    const size_t n = fx_spot_path(at, fx_naming_children, below, sizeof below);
    const int whole = snprintf(path, sizeof path, "%s%s%s", all->name, n ? "." : "", below);
    if (n >= sizeof below || whole >= (int)sizeof path)
        lose(all->s, all->name, "its name is too long");
    else
        add_array_text(all->s, path, x);
    return all->s->status == FX_OK ? FX_WALK_TAKE : FX_WALK_STOP;
}

/* Adds the arrays of an entry as texts: PyTorch refuses a file with arrays that do not belong to
 * its model. */
static void add_arrays_as_texts(saving *s, const char *name, void *object)
{
    array_texts all = {.s = s, .name = name};
    const fx_tree_walker how = {.op = "save", .meet = meet_array, .every_path = true, .user = &all};
    const fx_status status = fx_tree_walk(&how, &object);
    if (s->status == FX_OK)
        s->status = status;
}

static void add_arrays(saving *s, const char *name, void *object)
{
    if (s->form.pytorch)
        add_arrays_as_texts(s, name, object);
    else
        pairs_add(&s->objects, name, object);
}

/* Detects whether the arrays have different types. */
typedef struct mixture {
    int type; /* −1: no array yet */
    bool mixed;
} mixture;

static void note_type(fx_array *x, const char *path, bool trainable, void *user)
{
    mixture *m = user;
    const int type = (int)fx_eltype(x);
    (void)path;
    (void)trainable;
    m->mixed = m->mixed || (m->type >= 0 && m->type != type);
    m->type = type;
}

/* Adds the notation of an entry, if a reader can make the model from it. */
static void add_notation(saving *s, const char *prefix, const char *name, void *object)
{
    char what[600], *text = text_of(object, fx_summary);
    mixture m = {.type = -1};
    if (!text) {
        s->status = no_memory();
        return;
    }
    const text_worth worth = model_text_worth(object, text, what, sizeof what);
    if (worth == TEXT_NO_MEMORY)
        s->status = no_memory();
    else if (worth != TEXT_ALL)
        lose(s, name, what);
    if (worth == TEXT_MOST || worth == TEXT_ALL)
        add_text(s, prefix, name, "", text);
    fx_visit(object, note_type, &m);
    if (s->form.pytorch && m.mixed)
        lose(s, name, "its arrays have several element types, but would be read back with one");
    free(text);
}

/* The reason why a format of arrays cannot hold an entry, whatever texts are added; NULL if it can.
 */
static const char *too_rich(const contents *c)
{
    return c->nothing  ? "it contains `nothing` values"
           : c->layers ? NULL /* the notation covers the rest */
           : c->empty  ? "it has an empty tuple"
           : c->dots   ? "a name in it has a dot"
           : c->texts && (c->arrays || c->deep_texts)
               ? "its texts are mixed with arrays or nested deeply"
               : NULL;
}

typedef struct found_struct {
    char *what; /* receives a description of at most `size` bytes */
    size_t size;
    bool found;
} found_struct;

static fx_walk find_struct(const fx_spot *at, void *user)
{
    found_struct *f = user;
    char name[200];
    const tree_kind kind = tree_kind_of(at->objects[0]);
    if (kind != TREE_STRUCT)
        return kind >= TREE_TUPLE ? FX_WALK_ENTER : FX_WALK_PASS;
    tree_struct_name(at->objects[0], name, sizeof name);
    snprintf(f->what, f->size, "it contains a %s, which is not a layer of this library", name);
    f->found = true;
    return FX_WALK_STOP;
}

/* True if the object has a struct for which the library has no layer; describes it in `what`. */
static bool has_struct(void *object, char *what, size_t size)
{
    found_struct f = {.what = what, .size = size};
    const fx_tree_walker how = {.op = "save", .meet = find_struct, .user = &f};
    fx_tree_walk(&how, &object);
    return f.found;
}

/* Adds the model under PyTorch's names. */
static void add_pytorch(saving *s, const char *name, void *object)
{
    if (!s->form.arrays)
        add_notation(s, FXI_ENTRIES_PYTORCH, name, object);
    pairs_add(&s->objects, "", fx_torch_state(object));
}

static void add_layers(saving *s, const char *name, void *object)
{
    char what[300];
    if (has_struct(object, what, sizeof what))
        lose(s, name, what);
    else
        add_notation(s, FXI_ENTRIES_NOTATION, name, object);
    pairs_add(&s->objects, name, object);
}

/* Adds an entry of which the format can hold only the arrays. */
static void add_stripped(saving *s, const char *name, void *object, const contents *c,
                         const char *why)
{
    lose(s, name, why);
    if (c->arrays || c->layers)
        add_arrays(s, name, object);
}

static bool is_header(const char *name, const void *object, const contents *c)
{
    return fx_metadata_count(object) > 0 || (strcmp(name, FXI_ENTRIES_METADATA) == 0 && c->texts &&
                                             !c->arrays && !c->layers && !c->deep_texts);
}

static void add_entry(saving *s, const char *name, void *object, bool is_model)
{
    const contents c = contents_of(object);
    const bool header = is_header(name, object, &c);
    if (s->form.pytorch && is_model)
        add_pytorch(s, name, object);
    else if (!s->holds_texts && (header || c.texts || c.nothing || !fx_is_array(object)))
        add_stripped(s, name, object, &c,
                     c.layers ? "its structure is not an array" : "not an array");
    else if (header)
        add_header(s, object);
    else if (s->form.pytorch && c.layers)
        lose(s, name, "PyTorch's names can describe only one model");
    else if (too_rich(&c))
        add_stripped(s, name, object, &c, too_rich(&c));
    else if (c.layers)
        add_layers(s, name, object);
    else if (c.texts)
        add_texts(s, name, object);
    else {
        if (is_tuple(object))
            add_text(s, FXI_ENTRIES_TUPLE, name, "", "");
        add_arrays(s, name, object);
    }
}

static fx_status write_pairs(const saving *s, const name_pairs *p)
{
    if (p->failed)
        return no_memory();
    return s->out_loaded ? fx_save_try(s->path, p->n, p->items, s->out_loaded)
                         : fxi_save(s->path, p->n, p->items);
}

static fx_status write_entries(saving *s)
{
    if (s->texts.n > 0)
        pairs_add(&s->objects, "", fxi_metadata(s->texts.n, s->texts.items));
    return write_pairs(s, &s->objects);
}

/* BSON has texts of its own, so the texts of a header become a dictionary. */
static void *header_as_tuple(const void *metadata)
{
    name_pairs p = {0};
    for (int64_t i = 0; i < fx_metadata_count(metadata); i++) {
        const char *key = fx_metadata_key(metadata, i);
        pairs_add(&p, key, fx_string(fx_metadata_text(metadata, key)));
    }
    void *tuple = p.failed ? memory_error() : fxi_named_pairs(p.n, p.items);
    pairs_free(&p);
    return tuple;
}

static fx_status save_whole(const saving *s, void *entries)
{
    name_pairs p = {0};
    for (int64_t i = 0; i < fx_count(entries); i++) {
        void *object = fx_child(entries, i);
        pairs_add(&p, fx_child_name(entries, i),
                  fx_metadata_count(object) > 0 ? header_as_tuple(object) : object);
    }
    const fx_status status = write_pairs(s, &p);
    pairs_free(&p);
    return status;
}

/* Fails because of losses that the caller did not allow; nothing is written. */
static fx_status refused(const saving *s)
{
    return fx_fail(FX_STATUS_UNSUPPORTED, "save", "%s cannot hold %s", s->path,
                   losses_sentence(s->lost));
}

static bool loss_is_fine(const saving *s)
{
    return s->lost->n == 0 || s->form.lossy || s->form.arrays;
}

static fx_status save_checkpoint(saving *s, void *entries)
{
    void *model = model_file_entry(entries, "model");
    if (!model)
        return fx_fail(FX_STATUS_UNSUPPORTED, "save", "%s: a checkpoint needs an entry \"model\"",
                       s->path);
    for (int64_t i = 0; i < fx_count(entries); i++)
        if (fx_child(entries, i) != model)
            lose(s, fx_child_name(entries, i), "not a part of a checkpoint");
    add_notation(s, FXI_ENTRIES_NOTATION, "model", model);
    if (s->status != FX_OK)
        return s->status;
    return loss_is_fine(s) ? fx_checkpoint_save(s->path, model, .keep = 1) : refused(s);
}

/* True if the object has layers, for which PyTorch's names exist. */
static bool has_layers(void *object)
{
    return contents_of(object).layers;
}

static fx_status save_arrays(saving *s, void *entries)
{
    const int64_t model = s->form.pytorch ? model_file_index(entries, has_layers) : -1;
    s->holds_texts = !s->form.arrays && !ends_with(s->path, ".npy");
    if (s->form.pytorch && model < 0)
        return fx_fail(FX_STATUS_ARGUMENT, "save",
                       "there is no entry \"model\" to convert for PyTorch");
    for (int64_t i = 0; i < fx_count(entries) && s->status == FX_OK; i++)
        add_entry(s, fx_child_name(entries, i), fx_child(entries, i), i == model);
    if (s->status != FX_OK)
        return s->status;
    return loss_is_fine(s) ? write_entries(s) : refused(s);
}

static fx_status save(saving *s, void *entries)
{
    const fx_status status = s->form.checkpoint            ? save_checkpoint(s, entries)
                             : ends_with(s->path, ".bson") ? save_whole(s, entries)
                                                           : save_arrays(s, entries);
    for (int i = 1; i < s->texts.n; i += 2)
        free((void *)(uintptr_t)s->texts.items[i]);
    pairs_free(&s->texts);
    pairs_free(&s->objects);
    return status;
}

fx_status model_file_save(const char *path, void *entries, const model_file_form *form,
                          losses *out_lost)
{
    FX_SCOPE;
    losses own = {0};
    saving s = {.path = path, .lost = out_lost ? out_lost : &own};
    if (form)
        s.form = *form;
    return save(&s, entries);
}

fx_status model_file_try(const char *path, void *entries, void **out_loaded)
{
    FX_SCOPE;
    losses own = {0};
    saving s = {.path = path, .lost = &own, .out_loaded = out_loaded};
    *out_loaded = NULL;
    const fx_status status = save(&s, entries);
    if (*out_loaded)
        fx_keep(*out_loaded);
    return status;
}
