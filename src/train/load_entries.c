/* load_entries.c: reads the entries of a file of models: see fx_load_entries in predict.h. Every
 * array of a model must be in the file with the right size, and no other array may be below the
 * model's name. */
#include <cflux/io.h>
#include <cflux/notation.h>
#include <cflux/ops.h>
#include <cflux/predict.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "array_of_text.h"
#include "memory.h"
#include "predictor_parts.h"

static const char *const OP = "load";

static void *no_memory(void)
{
    return fx_error_array(fx_fail(FX_STATUS_MEMORY, OP, "no memory for the entries of a file"));
}

/* ---- names and objects ----------------------------------------------------------------------- */

typedef struct name_pairs {
    const void **items; /* name (a copy), object, name, object, … */
    int32_t n, capacity;
    bool failed; /* out of memory */
} name_pairs;

/* Adds a pair whose name is the first `length` bytes. */
static void pairs_add_part(name_pairs *p, const char *name, size_t length, const void *object)
{
    char *copy = fxi_malloc(length + 1);
    if (!copy || !fxi_grow(&p->items, &p->capacity, p->n + 2, sizeof *p->items)) {
        fxi_free(copy);
        p->failed = true;
        return;
    }
    memcpy(copy, name, length);
    copy[length] = 0;
    p->items[p->n++] = copy;
    p->items[p->n++] = object;
}

static void pairs_add(name_pairs *p, const char *name, const void *object)
{
    pairs_add_part(p, name, strlen(name), object);
}

static bool pairs_have(const name_pairs *p, const char *name)
{
    for (int32_t i = 0; i < p->n; i += 2)
        if (strcmp(p->items[i], name) == 0)
            return true;
    return false;
}

static void pairs_free(name_pairs *p)
{
    for (int32_t i = 0; i < p->n; i += 2)
        fxi_free((void *)(uintptr_t)p->items[i]);
    fxi_free(p->items);
    *p = (name_pairs){0};
}

/* ---- models ---------------------------------------------------------------------------------- */

enum { PATH_BYTES = 512, DEPTH_AT_MOST = 64 };

/* The state of reading one file. */
typedef struct reading {
    const char *path, *given; /* given: the caller's notation of the model; NULL: none */
    void *file;               /* the arrays by name, a named tuple */
    void *header;             /* the texts of the header; NULL: none */
    int64_t narrays; /* arrays of the file itself; in `file`, arrays read from texts follow them */
    bool *used;      /* which arrays belong to an entry */
    name_pairs out, rest; /* entries; texts that are not entries */
    bool good;
} reading;

typedef struct filling {
    const char *path, *name;
    void *file; /* the arrays by name, a named tuple */
    bool *used; /* which of them are used */
    fx_array **from, **to;
    int64_t n, at; /* length of `from` and `to`; position where the search continues */
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

/* Searches the first n names; −1 if there is none. */
static int64_t find_name(void *file, const char *name, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (strcmp(fx_child_name(file, i), name) == 0)
            return i;
    return -1;
}

static bool same_sizes(const fx_array *a, const fx_array *b)
{
    bool same = fx_ndims(a) == fx_ndims(b);
    for (int k = 0; k < fx_ndims(a) && same; k++)
        same = fx_size(a, k) == fx_size(b, k);
    return same;
}

/* Finds the array of the file with this name for x, an array of the model. */
static void take_named(filling *f, fx_array *x, const char *name)
{
    const int64_t i = find_array(f, name, f->at);
    fx_array *found = i >= 0 ? fx_child(f->file, i) : NULL;
    if (!found || !fx_is_array(found) || !same_sizes(found, x)) {
        char have[100] = "there is none", want[100];
        fx_summary(x, want, sizeof want);
        if (found && fx_is_array(found))
            fx_summary(found, have, sizeof have);
        f->status = fx_fail(FX_STATUS_FORMAT, OP, "%s: \"%s\" should be a %s: %s%s", f->path, name,
                            want, found ? "it is a " : "", have);
        return;
    }
    /* `from` and `to` have one entry for each array of the file. */
    if (f->used[i]) {
        f->status = fx_fail(FX_STATUS_FORMAT, OP, "%s: two arrays of the model are called \"%s\"",
                            f->path, name);
        return;
    }
    f->at = i + 1;
    f->used[i] = true;
    f->from[f->n] = x;
    f->to[f->n++] = found;
}

static void take_array(fx_array *x, const char *path, bool trainable, void *user)
{
    (void)trainable;
    filling *f = user;
    if (f->status != FX_OK)
        return;
    const size_t size = strlen(f->name) + strlen(path) + 2;
    char *name = fxi_malloc(size);
    if (!name) {
        f->status = fx_fail(FX_STATUS_MEMORY, OP, "out of memory");
        return;
    }
    snprintf(name, size, "%s%s%s", f->name, *path && *f->name ? "." : "", path);
    take_named(f, x, name);
    fxi_free(name);
}

static fx_array *replaced(fx_array *x, void *user)
{
    filling *f = user;
    for (int64_t i = 0; i < f->n; i++, f->at++)
        if (f->from[f->at % f->n] == x)
            return f->to[f->at++ % f->n];
    return x;
}

/* Refuses an array below the entry that is not in its notation. */
static void refuse_others(filling *f)
{
    const size_t length = strlen(f->name);
    for (int64_t i = 0; f->status == FX_OK && i < fx_count(f->file); i++) {
        const char *name = fx_child_name(f->file, i);
        const bool below = strncmp(name, f->name, length) == 0 && (!length || name[length] == '.');
        if (!f->used[i] && below && fx_is_array(fx_child(f->file, i)))
            f->status =
                fx_fail(FX_STATUS_FORMAT, OP, "%s: the notation of \"%s\" has no array \"%s\"",
                        f->path, length ? f->name : "model", name);
    }
}

/* Makes the model of a text with the file's arrays in their own element types. NULL on failure
 * (recorded). */
static void *model_of(const char *path, void *file, bool *used, const char *name, const char *text)
{
    const size_t n = (size_t)fx_count(file) + 1;
    filling f = {.path = path, .name = name, .file = file, .used = used};
    void *model = fx_parse_model(text);
    if (fx_is_error(model))
        return NULL;
    f.from = fxi_calloc(n, sizeof *f.from);
    f.to = fxi_calloc(n, sizeof *f.to);
    f.status = f.from && f.to ? FX_OK : fx_fail(FX_STATUS_MEMORY, OP, "out of memory");
    fx_visit(model, take_array, &f);
    refuse_others(&f);
    f.at = 0;
    void *filled = f.status == FX_OK ? fx_fmap_with(replaced, &f, model) : NULL;
    fxi_free(f.from);
    fxi_free(f.to);
    return filled;
}

/* The value of a name that is a number from 0 to n − 1 in its usual form; otherwise −1. */
static int index_of(const char *name, int n)
{
    char number[24];
    const long index = strtol(name, NULL, 10);
    snprintf(number, sizeof number, "%ld", index);
    return index >= 0 && index < n && strcmp(number, name) == 0 ? (int)index : -1;
}

/* A tuple if the names are 0, 1, …, in any order; otherwise a named tuple. An error object if one
 * of the objects is an error object, or if out of memory. */
static void *tuple_of(const name_pairs *p)
{
    if (p->failed)
        return no_memory();
    for (int32_t i = 1; i < p->n; i += 2)
        if (fx_is_error(p->items[i]))
            return fx_error_array(fx_error_status());
    const int n = p->n / 2;
    void **things = fxi_calloc((size_t)n + 1, sizeof *things);
    int found = 0;
    for (int i = 0; things && i < n; i++) {
        const int index = index_of(p->items[2 * i], n);
        if (index < 0 || things[index])
            break;
        things[index] = (void *)(uintptr_t)p->items[2 * i + 1];
        found++;
    }
    void *tuple = !things      ? no_memory()
                  : found == n ? fxi_tuple(n, things)
                               : fxi_named_pairs(p->n, p->items);
    fxi_free(things);
    return tuple;
}

static bool begins(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* The texts of entry `name`: "text.NAME" is a single text, "text.NAME.KEY" one of several; keys 0,
 * 1, … make a tuple. */
static void *texts_of(const void *header, const char *name, int length)
{
    char one[PATH_BYTES], several[PATH_BYTES + 1];
    name_pairs p = {0};
    snprintf(one, sizeof one, "%s%.*s", FXI_ENTRIES_TEXT, length, name);
    snprintf(several, sizeof several, "%s.", one);
    if (fx_metadata_text(header, one))
        return fx_string(fx_metadata_text(header, one));
    for (int64_t i = 0; i < fx_metadata_count(header); i++) {
        const char *key = fx_metadata_key(header, i);
        if (begins(key, several))
            pairs_add(&p, key + strlen(several), fx_string(fx_metadata_text(header, key)));
    }
    void *tuple = tuple_of(&p);
    pairs_free(&p);
    return tuple;
}

/* The file's arrays whose names begin with the prefix, as a tuple owned by the scope, nested at the
 * dots. */
static void *nested(void *file, bool *used, const char *prefix, size_t length, int depth)
{
    name_pairs p = {0};
    for (int64_t i = 0; i < fx_count(file); i++) {
        const char *key = fx_child_name(file, i), *rest = key + length;
        if (used[i] || strncmp(key, prefix, length) != 0)
            continue;
        const size_t part = strcspn(rest, ".");
        used[i] = !rest[part] || depth == DEPTH_AT_MOST;
        pairs_add_part(&p, rest, part,
                       used[i] ? fx_child(file, i)
                               : nested(file, used, key, length + part + 1, depth + 1));
    }
    void *tuple = tuple_of(&p);
    pairs_free(&p);
    return tuple;
}

/* ---- PyTorch's names ------------------------------------------------------------------------- */

/* Finds the widest real element type of the arrays, which becomes the type of the model. */
static void widen(fx_array *x, const char *path, bool trainable, void *user)
{
    fx_dtype *widest = user;
    const fx_dtype t = fx_eltype(x);
    const bool real =
        t == FX_DTYPE_F32 || t == FX_DTYPE_F64 || t == FX_DTYPE_F16 || t == FX_DTYPE_BF16;
    (void)path;
    (void)trainable;
    if (real && (*widest == FX_DTYPE_COUNT || fx_dtype_size(t) > fx_dtype_size(*widest)))
        *widest = t;
}

/* Makes the model of a text with all arrays of the file, which have PyTorch's names. NULL on
 * failure (recorded). */
static void *pytorch_model(const reading *r, const char *text)
{
    name_pairs state = {0};
    fx_dtype type = FX_DTYPE_COUNT;
    for (int64_t i = 0; i < r->narrays; i++)
        if (fx_is_array(fx_child(r->file, i))) {
            pairs_add(&state, fx_child_name(r->file, i), fx_child(r->file, i));
            r->used[i] = true;
        }
    void *model = fx_parse_model(text);
    void *arrays = state.failed ? no_memory() : fxi_named_pairs(state.n, state.items);
    pairs_free(&state);
    if (fx_is_error(model) || fx_is_error(arrays))
        return NULL;
    fx_visit(arrays, widen, &type);
    if (type != FX_DTYPE_COUNT && type != FX_DTYPE_F32)
        model = fxi_in_precision(type, model);
    return fx_load_torch_state(model, arrays) == FX_OK ? model : NULL;
}

/* ---- the texts of a file --------------------------------------------------------------------- */

/* `object`: NULL or an error object after a failure (recorded). */
static void add_entry(reading *r, const char *name, void *object)
{
    r->good = r->good && object && !fx_is_error(object);
    if (object)
        pairs_add(&r->out, name, object);
}

/* The position of an array that is stored as text; −1 if the text was not an array. */
static int64_t find_text_array(const reading *r, const char *name)
{
    const int64_t at = find_name(r->file, name, fx_count(r->file));
    return at >= r->narrays ? at : -1;
}

/* Reads one text of the header. A model given by the caller replaces the one in the file. */
static void read_text(reading *r, const char *key, const char *text)
{
    char name[PATH_BYTES];
    if (begins(key, FXI_ENTRIES_NOTATION)) {
        const char *entry = key + strlen(FXI_ENTRIES_NOTATION);
        if (!r->given || strcmp(entry, "model") != 0)
            add_entry(r, entry, model_of(r->path, r->file, r->used, entry, text));
    } else if (begins(key, FXI_ENTRIES_PYTORCH)) {
        if (!r->given)
            add_entry(r, key + strlen(FXI_ENTRIES_PYTORCH), pytorch_model(r, text));
    } else if (begins(key, FXI_ENTRIES_TEXT)) {
        const char *entry = key + strlen(FXI_ENTRIES_TEXT);
        const int length = (int)strcspn(entry, ".");
        snprintf(name, sizeof name, "%.*s", length, entry);
        if (!pairs_have(&r->out, name))
            add_entry(r, name, texts_of(r->header, entry, length));
    } else if (begins(key, FXI_ENTRIES_TUPLE)) {
        const char *entry = key + strlen(FXI_ENTRIES_TUPLE);
        snprintf(name, sizeof name, "%s.", entry);
        add_entry(r, entry, nested(r->file, r->used, name, strlen(name), 0));
    } else if (!begins(key, FXI_ENTRIES_ARRAY) ||
               find_text_array(r, key + strlen(FXI_ENTRIES_ARRAY)) < 0) {
        pairs_add(&r->rest, key, text);
    }
}

/* The array that a text encodes, unless the file has an array of the same name. */
static fx_array *array_of(void *file, const char *key, const char *text)
{
    const bool fits = begins(key, FXI_ENTRIES_ARRAY) &&
                      find_name(file, key + strlen(FXI_ENTRIES_ARRAY), fx_count(file)) < 0;
    return fits ? fxi_array_of_text(text) : NULL;
}

/* Appends the arrays that are stored as texts to the file's own. */
static void *with_arrays_of_texts(void *file, const void *header)
{
    name_pairs all = {0};
    for (int64_t i = 0; i < fx_count(file); i++)
        pairs_add(&all, fx_child_name(file, i), fx_child(file, i));
    for (int64_t i = 0; i < fx_metadata_count(header); i++) {
        const char *key = fx_metadata_key(header, i);
        fx_array *x = array_of(file, key, fx_metadata_text(header, key));
        if (x)
            pairs_add(&all, key + strlen(FXI_ENTRIES_ARRAY), x);
    }
    void *tuple = all.failed ? no_memory() : fxi_named_pairs(all.n, all.items);
    pairs_free(&all);
    return tuple;
}

/* The path of the first array of the model, to see how the file names it. */
static void first_path(fx_array *x, const char *path, bool trainable, void *user)
{
    char *first = user;
    (void)x;
    (void)trainable;
    if (!*first)
        snprintf(first, PATH_BYTES, "%s", path);
}

/* Reads the model that the caller described. */
static void read_given(reading *r)
{
    char path[PATH_BYTES] = "";
    bool below = false;
    void *model = fx_parse_model(r->given);
    if (fx_is_error(model)) {
        r->good = false;
        return;
    }
    fx_visit(model, first_path, path);
    for (int64_t i = 0; i < r->narrays; i++)
        below = below || begins(fx_child_name(r->file, i), "model.");
    if (below)
        model = model_of(r->path, r->file, r->used, "model", r->given);
    else if (find_name(r->file, path, r->narrays) >= 0)
        model = model_of(r->path, r->file, r->used, "", r->given);
    else
        model = pytorch_model(r, r->given);
    add_entry(r, "model", model);
}

static void add_unused(reading *r)
{
    for (int64_t i = 0; i < fx_count(r->file); i++)
        if (!r->used[i] && fx_child(r->file, i) != r->header)
            pairs_add(&r->out, fx_child_name(r->file, i), fx_child(r->file, i));
    if (r->rest.n > 0)
        add_entry(r, FXI_ENTRIES_METADATA, fxi_metadata(r->rest.n, r->rest.items));
}

static void *entries_of(const char *path, void *file, void *header, const char *given)
{
    reading r = {.path = path, .header = header, .given = given, .good = true};
    r.narrays = fx_count(file);
    r.file = with_arrays_of_texts(file, header);
    if (fx_is_error(r.file))
        return r.file;
    r.used = fxi_calloc((size_t)fx_count(r.file) + 1, sizeof *r.used);
    if (r.used && given)
        read_given(&r);
    for (int64_t i = 0; r.used && r.good && i < fx_metadata_count(header); i++) {
        const char *key = fx_metadata_key(header, i);
        read_text(&r, key, fx_metadata_text(header, key));
    }
    if (r.used && r.good)
        add_unused(&r);
    if (!r.used || r.out.failed || r.rest.failed) {
        no_memory();
        r.good = false;
    }
    void *entries =
        r.good ? fxi_named_pairs(r.out.n, r.out.items) : fx_error_array(fx_error_status());
    pairs_free(&r.out);
    pairs_free(&r.rest);
    fxi_free(r.used);
    return entries;
}

void *fxi_predictor_entries(const char *path, void *file)
{
    void *header = fxi_predictor_entry(file, FXI_ENTRIES_METADATA);
    bool notation = false;
    for (int64_t i = 0; i < fx_metadata_count(header) && !notation; i++)
        notation = begins(fx_metadata_key(header, i), FXI_ENTRIES_NOTATION) ||
                   begins(fx_metadata_key(header, i), FXI_ENTRIES_PYTORCH);
    return notation ? entries_of(path, file, header, NULL) : file;
}

void *fx_load_entries(const char *path, const char *notation)
{
    FXI_SCOPE;
    void *file = fx_load(path);
    if (fx_is_array(file))
        return fx_is_error(file) ? file : fx_keep(fx_named_tuple("array", file));
    void *header = fxi_predictor_entry(file, FXI_ENTRIES_METADATA);
    header = fx_metadata_count(header) > 0 ? header : NULL;
    return fx_keep(header || notation ? entries_of(path, file, header, notation) : file);
}
