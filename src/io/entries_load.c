/* entries_load.c: copies the arrays of a file into an object, matched by name: see entries_load.h.
 */
#include "entries_load.h"
#include "memory.h"
#include "object_types.h"
#include "object_path.h"
#include "tuples.h"
#include "state_numbers.h"

#include <cflux/io.h>
#include <cflux/tree.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* fx_loadmodel would report a wrong size too, but without the name. */
static fx_status check_size(const char *source, fxi_entries *to, const fxi_entry *key,
                            fx_array *found)
{
    if (fxi_same_sizes(found, key->array))
        return to->status;
    char theirs[200], ours[200];
    fx_summary(found, theirs, sizeof theirs);
    fx_summary(key->array, ours, sizeof ours);
    return to->status = fx_fail(FX_STATUS_SHAPE, to->op,
                                "%s: the array \"%s\" is a %s, but the object has a %s", source,
                                key->name, theirs, ours);
}

/* The entry with the name of `key` in a list of n entries sorted by name; NULL if there is none. */
static const fxi_entry *find(const fxi_entry **order, int32_t n, const fxi_entry *key)
{
    const fxi_entry *const *found =
        bsearch(&key, order, (size_t)n, sizeof *order, fxi_entry_by_name);
    return found ? *found : NULL;
}

enum { NAMES = 200 };

/* Writes `lead` and the first names of a list, for messages. */
static void names_of(fxi_entries *e, const char *lead, char text[NAMES])
{
    fxi_child_names(fxi_entries_tuple(e), lead, text, NAMES);
}

/* Passes every array of the object and its source to fx_loadmodel, as two tuples. fx_loadmodel
 * converts types, keeps ties, and changes all arrays or none. */
static fx_status load_pairs(const char *source, fxi_entries *to, fxi_entries *from)
{
    const fxi_entry **order = fxi_entries_sorted(from);
    void **both = fxi_calloc(2 * (size_t)to->n + 1, sizeof *both);
    if (!order || !both)
        to->status = fx_fail(FX_STATUS_MEMORY, to->op, "no memory for a list of arrays");
    for (int32_t i = 0; to->status == FX_OK && i < to->n; i++) {
        const fxi_entry *key = &to->items[i], *found = find(order, from->n, key);
        if (!found) {
            char names[NAMES];
            names_of(from, "; it has ", names);
            to->status = fx_fail(FX_STATUS_FORMAT, to->op, "%s: there is no array \"%s\"%s", source,
                                 key->name, names);
        }
        both[i] = key->array;
        both[to->n + i] = found ? found->array : NULL;
    }
    for (int32_t i = 0; to->status == FX_OK && i < to->n; i++)
        check_size(source, to, &to->items[i], both[to->n + i]);
    if (to->status == FX_OK)
        to->status = fx_loadmodel(fxi_tuple(to->n, both), fxi_tuple(to->n, both + to->n));
    fxi_free((void *)order);
    fxi_free(both);
    return to->status;
}

/* Reports the first array of `from` that the object does not have. Call it only if `to` has fewer
 * names. */
static fx_status find_left_over(const char *source, fxi_entries *to, const fxi_entries *from)
{
    const fxi_entry **order = fxi_entries_sorted(to);
    for (int32_t i = 0; order && i < from->n && to->status == FX_OK; i++) {
        const fxi_entry *key = &from->items[i];
        if (!find(order, to->n, key)) {
            char names[NAMES];
            names_of(to, ", which has ", names);
            to->status = fx_fail(FX_STATUS_FORMAT, to->op,
                                 "%s: the array \"%s\" does not exist in the object%s", source,
                                 key->name, names);
        }
    }
    fxi_free((void *)order);
    return to->status;
}

fx_status fxi_entries_assign(const char *source, fxi_entries *to, fxi_entries *from)
{
    if (to->status == FX_OK)
        to->status = from->status;
    if (to->status == FX_OK && to->n < from->n)
        find_left_over(source, to, from);
    return to->status == FX_OK ? load_pairs(source, to, from) : to->status;
}

/* ---- what matches ---------------------------------------------------------------------------- */

typedef struct matching {
    void **pairs;                             /* arrays of the object, then their sources */
    int32_t n;                                /* number of pairs */
    const void **missing, **unused, **others; /* names and texts, alternating */
    int nmissing, nunused, nothers;
    bool failed; /* out of memory */
} matching;

static void note(matching *m, const void **list, int *n, const char *name, const char *text)
{
    void *string = fx_string(text);
    m->failed |= fx_is_error(string);
    list[(*n)++] = name;
    list[(*n)++] = string;
}

enum { SUMMARY = 200 };

/* If memory is exhausted, the summary is empty and an error is recorded. */
static void summarise(matching *m, fx_array *x, char text[SUMMARY])
{
    m->failed |= fx_summary(x, text, SUMMARY) == 0;
}

static void match(matching *m, const fxi_entry *key, const fxi_entry *found, int32_t capacity)
{
    char ours[SUMMARY], theirs[SUMMARY], text[2 * SUMMARY + 40];
    if (found && fxi_same_sizes(key->array, found->array)) {
        m->pairs[m->n] = key->array;
        m->pairs[capacity + m->n++] = found->array;
        return;
    }
    summarise(m, key->array, ours);
    if (!found) {
        note(m, m->missing, &m->nmissing, key->name, ours);
    } else {
        summarise(m, found->array, theirs);
        snprintf(text, sizeof text, "%s, but the model has a %s", theirs, ours);
        note(m, m->others, &m->nothers, key->name, text);
    }
}

/* The report has its own type, because a named tuple is printed on one line. */
typedef struct load_report {
    fx_object base;
    void *missing, *unused, *other_sizes; /* named tuples of texts */
} load_report;

static const fx_field report_fields[] = {
    {"missing", offsetof(load_report, missing), FX_FIELD_CHILD, true},
    {"unused", offsetof(load_report, unused), FX_FIELD_CHILD, true},
    {"other_sizes", offsetof(load_report, other_sizes), FX_FIELD_CHILD, true},
};

static void describe_report(const void *report, fx_text *text)
{
    const load_report *r = report;
    const void *const lists[] = {r->missing, r->unused, r->other_sizes};
    static const char *const titles[] = {"missing in the file", "not used", "other sizes"};
    int lines = 0;
    for (int k = 0; k < 3; k++) {
        const int64_t n = fx_count(lists[k]);
        if (n > 0)
            fx_text_add(text, "%s%s:", lines++ ? "\n" : "", titles[k]);
        for (int64_t i = 0; i < n; i++)
            fx_text_add(text, "\n  %s: %s", fx_child_name(lists[k], i),
                        fx_string_text(fx_child(lists[k], i)));
    }
    if (lines == 0)
        fx_text_add(text, "all arrays match");
}

static load_report report_error;
static const fx_type report_type = {.fxi_size = sizeof(fx_type),
                                    .name = "LoadReport",
                                    .size = sizeof(load_report),
                                    .fields = report_fields,
                                    .nfields = 3,
                                    .describe = describe_report,
                                    .error = &report_error};

static void *report_of(const matching *m)
{
    const load_report r = {.missing = fxi_named_pairs(m->nmissing, m->missing),
                           .unused = fxi_named_pairs(m->nunused, m->unused),
                           .other_sizes = fxi_named_pairs(m->nothers, m->others)};
    void *const lists[] = {r.missing, r.unused, r.other_sizes};
    for (int i = 0; i < 3; i++)
        if (fx_is_error(lists[i]))
            return fx_error_array(fxi_status_of_error(lists[i]));
    return fxi_new(&report_type, &r);
}

static fx_status load_matches(const char *source, fxi_entries *to, const fxi_entries *from,
                              const matching *m)
{
    if (m->n == 0 && m->nothers > 0)
        return fx_fail(
            FX_STATUS_FORMAT, to->op,
            "%s: no array has the name and sizes of an array of the object: \"%s\" is a %s", source,
            (const char *)m->others[0], fx_string_text((void *)m->others[1]));
    if (m->n == 0 && to->n > 0)
        return fx_fail(FX_STATUS_FORMAT, to->op,
                       "%s: no array has the name and sizes of an array of the object, such as "
                       "\"%s\"%s%s%s",
                       source, to->items[0].name, from->n ? "; it has \"" : "",
                       from->n ? from->items[0].name : "", from->n ? "\", …" : "");
    return fx_loadmodel(fxi_tuple(m->n, m->pairs), fxi_tuple(m->n, m->pairs + to->n));
}

bool fxi_entries_alike(fxi_entries *a, fxi_entries *b, int32_t except)
{
    const fxi_entry *left_out = except >= 0 ? &b->items[except] : NULL;
    const fxi_entry **x = fxi_entries_sorted(a), **y = fxi_entries_sorted(b);
    bool alike = x && y && a->n == b->n - (left_out != NULL);
    for (int32_t i = 0, k = 0; alike && i < a->n; i++, k++) {
        k += y[k] == left_out;
        alike = strcmp(x[i]->name, y[k]->name) == 0 && fxi_same_sizes(x[i]->array, y[k]->array);
    }
    fxi_free((void *)x);
    fxi_free((void *)y);
    return alike;
}

void *fxi_entries_match(const char *source, fxi_entries *to, fxi_entries *from)
{
    if (to->status != FX_OK || fxi_entries_unique(from) != FX_OK)
        return fx_error_array(to->status != FX_OK ? to->status : from->status);
    const fxi_entry **ours = fxi_entries_sorted(to), **theirs = fxi_entries_sorted(from);
    const size_t a = (size_t)to->n, b = (size_t)from->n;
    const void **lists = fxi_calloc(6 * a + 2 * b + 1, sizeof *lists);
    matching m = {.failed = !ours || !theirs || !lists};
    if (!m.failed) {
        m.pairs = (void **)(void *)lists;
        m.missing = lists + 2 * a, m.others = lists + 4 * a, m.unused = lists + 6 * a;
        for (int32_t i = 0; i < to->n; i++)
            match(&m, &to->items[i], find(theirs, from->n, &to->items[i]), to->n);
        for (int32_t i = 0; i < from->n; i++) {
            char text[SUMMARY];
            if (find(ours, to->n, &from->items[i]))
                continue;
            summarise(&m, from->items[i].array, text);
            note(&m, m.unused, &m.nunused, from->items[i].name, text);
        }
    }
    /* The report comes first: if it fails, the object is still unchanged. */
    void *report =
        m.failed
            ? fx_error_array(fx_fail(FX_STATUS_MEMORY, to->op, "no memory for a list of arrays"))
            : report_of(&m);
    if (!fx_is_error(report)) {
        const fx_status status = load_matches(source, to, from, &m);
        report = status == FX_OK ? report : fx_error_array(status);
    }
    fxi_free((void *)ours);
    fxi_free((void *)theirs);
    fxi_free((void *)lists);
    return report;
}

fx_status fxi_entries_load(const char *op, const char *path, void *file, const char *name,
                           void *object)
{
    FXI_SCOPE;
    fxi_entries to = {.op = op}, from = fxi_entries_of(op, file, name);
    fxi_entries_walk(&to, name, object);
    for (int32_t i = from.n - 1; i >= 0; i--)
        if (fxi_is_numbers_name(from.items[i].name) && !fxi_entries_find(&to, from.items[i].name))
            fxi_entries_remove(&from, i);
    if (to.status == FX_OK && from.status == FX_OK && to.n > 0 && from.n == 0)
        to.status = fxi_no_entry(FX_STATUS_FORMAT, op, path, file, name);
    fxi_entries_assign(path, &to, &from);
    fxi_entries_free(&to);
    fxi_entries_free(&from);
    return to.status;
}
