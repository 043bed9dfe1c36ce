/* model_file.c: entries of files, with their models as text where the format holds arrays only.
 *
 * Before a file of arrays is written its text is read back and compared with the model, so that
 * what comes back later is what went in: sizes, settings, and which arrays are shared.
 */
#include "model_file.h"
#include "text_parts.h"
#include "tree_text.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char METADATA[] = "__metadata__", NOTATION[] = "notation.", TEXT[] = "text.",
                  TUPLE[] = "tuple.";
enum { PATH_BYTES = 512, DEPTH_AT_MOST = 64 };

/* ---- lists of names and things --------------------------------------------------------------- */

/* Names are copies. */
typedef struct pairs {
    const void **items; /* name, thing, name, thing, … */
    int n, room;
    bool failed;
} pairs;

static void add_part(pairs *p, const char *name, size_t length, const void *thing)
{
    char *copy = strndup(name, length);
    if (p->n + 2 > p->room) {
        const int room = 2 * p->room + 16;
        const void **more = realloc(p->items, (size_t)room * sizeof *more);
        p->items = more ? more : p->items;
        p->room = more ? room : p->room;
    }
    if (!copy || p->n + 2 > p->room) {
        free(copy);
        p->failed = true;
        return;
    }
    p->items[p->n++] = copy;
    p->items[p->n++] = thing;
}

static void add(pairs *p, const char *name, const void *thing)
{
    add_part(p, name, strlen(name), thing);
}

static void free_pairs(pairs *p)
{
    for (int i = 0; i < p->n; i += 2)
        free((void *)(uintptr_t)p->items[i]);
    free(p->items);
    *p = (pairs){0};
}

static fx_status no_memory(void)
{
    return fx_fail(FX_STATUS_MEMORY, "file", "no memory");
}

/* ---- what an object is ----------------------------------------------------------------------- */

static bool is_tuple(const void *object)
{
    const fx_type *type = object ? fx_type_of(object) : NULL;
    return type && (type->flags & FX_TYPE_TUPLE);
}

typedef struct contents {
    bool arrays, texts, nothing, layers;
    bool empty, dots; /* a tuple without children, a name with a dot */
    bool deep_texts;  /* below the first level */
} contents;

static void look(const void *object, int depth, contents *c)
{
    if (!object)
        c->nothing = true;
    else if (fx_is_array(object))
        c->arrays = true;
    else if (fx_string_text(object)) {
        c->texts = true;
        c->deep_texts = c->deep_texts || depth > 1;
    } else if (!is_tuple(object))
        c->layers = true;
    else {
        c->empty = c->empty || fx_count(object) == 0;
        for (int64_t i = 0; i < fx_count(object); i++) {
            c->dots = c->dots || strchr(fx_child_name(object, i), '.');
            look(fx_child(object, i), depth + 1, c);
        }
    }
}

static contents contents_of(const void *object)
{
    contents c = {0};
    look(object, 0, &c);
    return c;
}

void *model_file_entry(void *entries, const char *name)
{
    for (int64_t i = 0; is_tuple(entries) && i < fx_count(entries); i++)
        if (strcmp(fx_child_name(entries, i), name) == 0)
            return fx_child(entries, i);
    return NULL;
}

/* ---- is the text enough? --------------------------------------------------------------------- */

/* Flux stores some numbers as Float32. */
static bool same_number(double a, double b)
{
    return (float)a == (float)b || (isnan(a) && isnan(b));
}

static bool same_field(const fx_field *field, const void *a, const void *b)
{
    const char *x = (const char *)a + field->offset, *y = (const char *)b + field->offset;
    switch (field->kind) {
    case FX_FIELD_NUMBER:
        return same_number(*(const double *)(const void *)x, *(const double *)(const void *)y);
    case FX_FIELD_FLOAT:
        return same_number(*(const float *)(const void *)x, *(const float *)(const void *)y);
    case FX_FIELD_INTEGER:
        return *(const int64_t *)(const void *)x == *(const int64_t *)(const void *)y;
    case FX_FIELD_INT:
        return *(const int *)(const void *)x == *(const int *)(const void *)y;
    case FX_FIELD_FLAG:
        return *(const bool *)(const void *)x == *(const bool *)(const void *)y;
    default: /* what the text shows, or the walk comes to */
        return true;
    }
}

/* Writes what differs first into `what`; true: nothing does. The texts of both are the same. */
static bool same_settings(void *a, void *b, char *what, size_t size)
{
    const fx_type *type = a ? fx_type_of(a) : NULL;
    if (!a || !b || fx_is_array(a) || fx_type_of(b) != type || (type->flags & FX_TYPE_FUNCTION))
        return true;
    for (int i = 0; i < type->nfields; i++)
        if (!same_field(&type->fields[i], a, b)) {
            snprintf(what, size, "Flux's notation does not say %s of %s", type->fields[i].name,
                     type->name);
            return false;
        }
    for (int64_t i = 0; i < fx_count(a) && i < fx_count(b); i++)
        if (!same_settings(fx_child(a, i), fx_child(b, i), what, size))
            return false;
    return true;
}

typedef struct path_list {
    char *text;
    size_t n, room;
    bool failed;
} path_list;

static void put_path(path_list *l, const char *path, const fx_array *x)
{
    char line[PATH_BYTES + 256];
    size_t n = (size_t)snprintf(line, sizeof line, "%.*s", PATH_BYTES, path);
    for (int k = 0; k < fx_ndims(x); k++)
        n += (size_t)snprintf(line + n, sizeof line - n, " %lld", (long long)fx_size(x, k));
    line[n++] = '\n';
    if (l->n + n + 1 > l->room) {
        const size_t room = 2 * l->room + sizeof line;
        char *more = realloc(l->text, room);
        l->failed = l->failed || !more;
        l->text = more ? more : l->text;
        l->room = more ? room : l->room;
    }
    if (!l->failed) {
        memcpy(l->text + l->n, line, n);
        l->n += n;
    }
}

static void visit_path(fx_array *x, const char *path, bool trainable, void *user)
{
    (void)trainable;
    put_path(user, path, x);
}

/* Paths and sizes of the distinct arrays are the same: none is shared that the text does not say.
 */
static bool same_arrays(void *a, void *b)
{
    path_list l = {0}, m = {0};
    fx_visit(a, visit_path, &l);
    fx_visit(b, visit_path, &m);
    const bool same =
        !l.failed && !m.failed && l.n == m.n && (l.n == 0 || memcmp(l.text, m.text, l.n) == 0);
    free(l.text);
    free(m.text);
    return same;
}

/* Why a model is more than its text, in `what`; true: the text says all. */
static bool text_says_all(void *model, const char *text, char *what, size_t size)
{
    FX_SCOPE;
    const fx_status before = fx_error_status();
    void *again = fx_parse_model(text);
    if (fx_is_error(again)) {
        const fx_error why = before == FX_OK ? fx_error_take() : (fx_error){0};
        snprintf(what, size, "its notation, %.200s, cannot be read back: %.*s", text,
                 (int)strcspn(why.message, ";"), why.message);
        return false;
    }
    char *second = text_of(again, fx_summary);
    const bool same_text = second && strcmp(text, second) == 0;
    free(second);
    if (!same_text)
        snprintf(what, size, "its notation, %.200s, does not read back as itself", text);
    else if (!same_arrays(model, again))
        snprintf(what, size, "Flux's notation does not say which of its arrays are shared");
    else
        return same_settings(model, again, what, size);
    return false;
}

/* ---- writing --------------------------------------------------------------------------------- */

typedef struct saving {
    const char *path;
    bool model_texts;                /* the format has texts in its header, and no models */
    pairs objects, texts, notations; /* notations: name, text to be freed */
    fx_status status;
} saving;

static fx_status cannot(saving *s, const char *name, const char *why)
{
    s->status =
        fx_fail(FX_STATUS_UNSUPPORTED, "save", "%s cannot hold \"%s\": %s", s->path, name, why);
    return s->status;
}

static void add_text(saving *s, const char *prefix, const char *name, const char *below,
                     const char *text)
{
    char key[PATH_BYTES];
    const int n = snprintf(key, sizeof key, "%s%s%s%s", prefix, name, *below ? "." : "", below);
    if (n < 0 || n >= PATH_BYTES)
        cannot(s, name, "its name is too long");
    add(&s->texts, key, text);
}

static void add_texts(saving *s, const char *name, const void *object)
{
    if (fx_string_text(object)) {
        add_text(s, TEXT, name, "", fx_string_text(object));
        return;
    }
    for (int64_t i = 0; i < fx_count(object); i++) {
        char number[24];
        const char *below = fx_child_name(object, i);
        snprintf(number, sizeof number, "%lld", (long long)i);
        add_text(s, TEXT, name, *below ? below : number, fx_string_text(fx_child(object, i)));
    }
}

static void add_layers(saving *s, const char *name, void *object)
{
    char what[600], key[PATH_BYTES], *text = text_of(object, fx_summary);
    if (!text) {
        s->status = no_memory();
        return;
    }
    snprintf(key, sizeof key, "%s%s", NOTATION, name);
    add(&s->notations, key, text);
    if (!text_says_all(object, text, what, sizeof what))
        cannot(s, name, what);
    add(&s->texts, key, text);
    add(&s->objects, name, object);
}

/* Texts by key of a file's header, as one object or the other. */
static void add_header(saving *s, const void *object)
{
    for (int64_t i = 0; i < fx_metadata_count(object); i++) {
        const char *key = fx_metadata_key(object, i);
        add(&s->texts, key, fx_metadata_text(object, key));
    }
    for (int64_t i = 0; is_tuple(object) && i < fx_count(object); i++)
        add(&s->texts, fx_child_name(object, i), fx_string_text(fx_child(object, i)));
}

/* Why a format of arrays cannot hold an entry, whatever it has in its header; NULL: it can. */
static const char *too_rich(const contents *c)
{
    return c->nothing                                 ? "it has values that are nothing"
           : c->layers                                ? NULL /* its notation says the rest */
           : c->empty                                 ? "it has an empty tuple"
           : c->dots                                  ? "a name in it has a dot"
           : c->texts && (c->arrays || c->deep_texts) ? "its texts stand among arrays or lie deep"
                                                      : NULL;
}

/* A struct that this library has no layer for; says so in `what`. */
static bool has_struct(void *object, char *what, size_t size)
{
    char name[200];
    const tree_kind kind = tree_kind_of(object);
    if (kind == TREE_STRUCT) {
        tree_struct_name(object, name, sizeof name);
        snprintf(what, size, "it has a %s, which this library has no layer for", name);
        return true;
    }
    for (int64_t i = 0; kind >= TREE_TUPLE && i < fx_count(object); i++)
        if (has_struct(fx_child(object, i), what, size))
            return true;
    return false;
}

static void add_entry(saving *s, const char *name, void *object)
{
    const contents c = contents_of(object);
    const char *why = too_rich(&c);
    char title[300];
    if (strcmp(name, METADATA) == 0 && c.texts && !c.arrays && !c.layers && !c.deep_texts)
        add_header(s, object);
    else if (fx_metadata_count(object) > 0)
        add_header(s, object);
    else if (why)
        cannot(s, name, why);
    else if (!s->model_texts && !fx_is_array(object))
        cannot(s, name, "the format holds arrays by name, and nothing else");
    else if (c.layers && has_struct(object, title, sizeof title))
        cannot(s, name, title);
    else if (c.layers)
        add_layers(s, name, object);
    else if (c.texts)
        add_texts(s, name, object);
    else {
        if (is_tuple(object))
            add_text(s, TUPLE, name, "", "");
        add(&s->objects, name, object);
    }
}

static fx_status write_entries(saving *s)
{
    if (s->objects.failed || s->texts.failed || s->notations.failed)
        return no_memory();
    if (s->texts.n > 0 && !s->model_texts)
        return cannot(s, METADATA, "the format holds arrays and no texts");
    if (s->texts.n > 0)
        add(&s->objects, "", fxi_metadata(s->texts.n, s->texts.items));
    return s->objects.failed ? no_memory() : fxi_save(s->path, s->objects.n, s->objects.items);
}

/* BSON has texts of its own: those of a header become a dictionary. */
static void *header_as_tuple(const void *metadata)
{
    pairs p = {0};
    for (int64_t i = 0; i < fx_metadata_count(metadata); i++) {
        const char *key = fx_metadata_key(metadata, i);
        add(&p, key, fx_string(fx_metadata_text(metadata, key)));
    }
    void *tuple = fxi_named_pairs(p.n, p.items);
    free_pairs(&p);
    return tuple;
}

static fx_status save_whole(const char *path, void *entries)
{
    pairs p = {0};
    for (int64_t i = 0; i < fx_count(entries); i++) {
        void *object = fx_child(entries, i);
        add(&p, fx_child_name(entries, i),
            fx_metadata_count(object) > 0 ? header_as_tuple(object) : object);
    }
    const fx_status status = p.failed ? no_memory() : fxi_save(path, p.n, p.items);
    free_pairs(&p);
    return status;
}

fx_status model_file_save(const char *path, void *entries)
{
    FX_SCOPE;
    if (ends_with(path, ".bson"))
        return save_whole(path, entries);
    saving s = {.path = path, .model_texts = ends_with(path, ".safetensors")};
    for (int64_t i = 0; i < fx_count(entries) && s.status == FX_OK; i++)
        add_entry(&s, fx_child_name(entries, i), fx_child(entries, i));
    if (s.status == FX_OK)
        s.status = write_entries(&s);
    for (int i = 1; i < s.notations.n; i += 2)
        free((void *)(uintptr_t)s.notations.items[i]);
    free_pairs(&s.notations);
    free_pairs(&s.texts);
    free_pairs(&s.objects);
    return s.status;
}

/* ---- reading --------------------------------------------------------------------------------- */

typedef struct filling {
    const char *path, *name;
    void *file; /* a named tuple of arrays by name */
    bool *used; /* which of them */
    fx_array **from, **to;
    int64_t n, at; /* of from and to; where the search goes on */
    fx_status status;
} filling;

static int64_t find_array(const filling *f, const char *name, int64_t start)
{
    const int64_t n = fx_count(f->file);
    for (int64_t i = 0; i < n; i++)
        if (strcmp(fx_child_name(f->file, (start + i) % n), name) == 0)
            return (start + i) % n;
    return -1;
}

static bool same_sizes(const fx_array *a, const fx_array *b)
{
    bool same = fx_ndims(a) == fx_ndims(b);
    for (int k = 0; k < fx_ndims(a) && same; k++)
        same = fx_size(a, k) == fx_size(b, k);
    return same;
}

static void take_array(fx_array *x, const char *path, bool trainable, void *user)
{
    (void)trainable;
    filling *f = user;
    char name[PATH_BYTES];
    if (f->status != FX_OK)
        return;
    snprintf(name, sizeof name, "%s%s%s", f->name, *path ? "." : "", path);
    const int64_t i = find_array(f, name, f->at);
    fx_array *found = i >= 0 ? fx_child(f->file, i) : NULL;
    if (!found || !same_sizes(found, x)) {
        char have[100] = "there is none", want[100];
        fx_summary(x, want, sizeof want);
        if (found)
            fx_summary(found, have, sizeof have);
        f->status = fx_fail(FX_STATUS_FORMAT, "load", "%s: \"%s\" should be a %s: %s%s", f->path,
                            name, want, found ? "it is a " : "", have);
        return;
    }
    f->at = i + 1;
    f->used[i] = true;
    f->from[f->n] = x;
    f->to[f->n++] = found;
}

static fx_array *replaced(fx_array *x, void *user)
{
    filling *f = user;
    for (int64_t i = 0; i < f->n; i++, f->at++)
        if (f->from[f->at % f->n] == x)
            return f->to[f->at++ % f->n];
    return x;
}

/* An array below the entry that its notation has no place for. */
static void refuse_others(filling *f)
{
    const size_t length = strlen(f->name);
    for (int64_t i = 0; f->status == FX_OK && i < fx_count(f->file); i++) {
        const char *name = fx_child_name(f->file, i);
        if (!f->used[i] && strncmp(name, f->name, length) == 0 && name[length] == '.')
            f->status = fx_fail(FX_STATUS_FORMAT, "load",
                                "%s: the notation of \"%s\" has no place for \"%s\"", f->path,
                                f->name, name);
    }
}

/* The model of a text with the file's arrays, in their own element types. NULL: recorded. */
static void *model_of(const char *path, void *file, bool *used, const char *name, const char *text)
{
    const size_t n = (size_t)fx_count(file) + 1;
    filling f = {.path = path, .name = name, .file = file, .used = used};
    void *model = fx_parse_model(text);
    if (fx_is_error(model))
        return NULL;
    f.from = calloc(n, sizeof *f.from);
    f.to = calloc(n, sizeof *f.to);
    f.status = f.from && f.to ? FX_OK : no_memory();
    fx_visit(model, take_array, &f);
    refuse_others(&f);
    f.at = 0;
    void *filled = f.status == FX_OK ? fx_fmap_with(replaced, &f, model) : NULL;
    free(f.from);
    free(f.to);
    return filled;
}

/* The number below n that a name is, as it is printed; −1: none. */
static int place_of(const char *name, int n)
{
    char number[24];
    const long place = strtol(name, NULL, 10);
    snprintf(number, sizeof number, "%ld", place);
    return place >= 0 && place < n && strcmp(number, name) == 0 ? (int)place : -1;
}

/* A tuple where the names are 0, 1, …, whatever their order in the file; else a named one. */
static void *tuple_of(const pairs *p)
{
    const int n = p->n / 2;
    void **things = calloc((size_t)n + 1, sizeof *things);
    int placed = 0;
    for (int i = 0; things && i < n; i++) {
        const int place = place_of(p->items[2 * i], n);
        if (place < 0 || things[place])
            break;
        things[place] = (void *)(uintptr_t)p->items[2 * i + 1];
        placed++;
    }
    void *tuple = !things       ? fx_error_array(no_memory())
                  : placed == n ? fxi_tuple(n, things)
                                : fxi_named_pairs(p->n, p->items);
    free(things);
    return tuple;
}

static bool begins(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* The texts of entry `name`, which is so long: "text.NAME" is one text, "text.NAME.KEY" one of
 * several, a tuple where the keys are 0, 1, … */
static void *texts_of(const void *header, const char *name, int length)
{
    char one[PATH_BYTES], several[PATH_BYTES + 1];
    pairs p = {0};
    snprintf(one, sizeof one, "%s%.*s", TEXT, length, name);
    snprintf(several, sizeof several, "%s.", one);
    if (fx_metadata_text(header, one))
        return fx_string(fx_metadata_text(header, one));
    for (int64_t i = 0; i < fx_metadata_count(header); i++) {
        const char *key = fx_metadata_key(header, i);
        if (begins(key, several))
            add(&p, key + strlen(several), fx_string(fx_metadata_text(header, key)));
    }
    void *tuple = tuple_of(&p);
    free_pairs(&p);
    return tuple;
}

static bool has_name(const pairs *p, const char *name)
{
    for (int i = 0; i < p->n; i += 2)
        if (strcmp(p->items[i], name) == 0)
            return true;
    return false;
}

/* Those of file's arrays whose names begin so, as a tuple of the scope, nested at the dots. */
static void *nested(void *file, bool *used, const char *prefix, size_t length, int depth)
{
    pairs p = {0};
    for (int64_t i = 0; i < fx_count(file); i++) {
        const char *key = fx_child_name(file, i), *rest = key + length;
        if (used[i] || strncmp(key, prefix, length) != 0)
            continue;
        const size_t part = strcspn(rest, ".");
        used[i] = !rest[part] || depth == DEPTH_AT_MOST;
        add_part(&p, rest, part,
                 used[i] ? fx_child(file, i)
                         : nested(file, used, key, length + part + 1, depth + 1));
    }
    void *tuple = tuple_of(&p);
    free_pairs(&p);
    return tuple;
}

/* What the header says: entries in `out`, and in `rest` the texts that are no entries. false:
 * recorded. */
static bool read_header(const char *path, void *file, bool *used, const void *header, pairs *out,
                        pairs *rest)
{
    for (int64_t i = 0; i < fx_metadata_count(header); i++) {
        const char *key = fx_metadata_key(header, i), *text = fx_metadata_text(header, key);
        char name[PATH_BYTES];
        if (begins(key, NOTATION)) {
            const char *entry = key + strlen(NOTATION);
            void *model = model_of(path, file, used, entry, text);
            if (!model)
                return false;
            add(out, entry, model);
        } else if (begins(key, TEXT)) {
            const char *entry = key + strlen(TEXT);
            const int length = (int)strcspn(entry, ".");
            snprintf(name, sizeof name, "%.*s", length, entry);
            if (!has_name(out, name))
                add(out, name, texts_of(header, entry, length));
        } else if (begins(key, TUPLE)) {
            snprintf(name, sizeof name, "%s.", key + strlen(TUPLE));
            add(out, key + strlen(TUPLE), nested(file, used, name, strlen(name), 0));
        } else {
            add(rest, key, text);
        }
    }
    return true;
}

static void *entries_of(const char *path, void *file, const void *header)
{
    pairs out = {0}, rest = {0};
    bool *used = calloc((size_t)fx_count(file) + 1, sizeof *used);
    bool good = used && read_header(path, file, used, header, &out, &rest);
    for (int64_t i = 0; good && i < fx_count(file); i++)
        if (!used[i] && fx_child(file, i) != header)
            add(&out, fx_child_name(file, i), fx_child(file, i));
    if (good && rest.n > 0)
        add(&out, METADATA, fxi_metadata(rest.n, rest.items));
    if (!used || out.failed || rest.failed)
        no_memory();
    good = good && !out.failed && !rest.failed;
    void *entries = good ? fxi_named_pairs(out.n, out.items) : fx_error_array(fx_error_status());
    free_pairs(&out);
    free_pairs(&rest);
    free(used);
    return entries;
}

void *model_file_load(const char *path)
{
    FX_SCOPE;
    void *file = fx_load(path);
    if (fx_is_array(file))
        return fx_is_error(file) ? file : fx_keep(fx_named_tuple("array", file));
    const void *header = model_file_entry(file, METADATA);
    return fx_keep(fx_metadata_count(header) > 0 ? entries_of(path, file, header) : file);
}
