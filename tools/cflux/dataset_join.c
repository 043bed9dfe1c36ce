/* dataset_join.c: joins the data of several files: see dataset_join.h. */
#include "dataset_join.h"
#include "dataset_text.h"
#include "failure.h"
#include "sorted_names.h"
#include <stdlib.h>
#include <string.h>

static const char *sort_of_target(const dataset *d)
{
    return !d->y ? "missing" : d->labels ? "text" : "numbers";
}

static int check_alike(const dataset *a, const dataset *b)
{
    char sizes[2][100];
    describe_sizes(a->x, true, sizes[0], sizeof sizes[0]);
    describe_sizes(b->x, true, sizes[1], sizeof sizes[1]);
    if (strcmp(sizes[0], sizes[1]) != 0)
        return fail(EXIT_BAD_INPUT, "an observation of %s has size %s, but one of %s has size %s",
                    a->path, sizes[0], b->path, sizes[1]);
    if (strcmp(sort_of_target(a), sort_of_target(b)) != 0)
        return fail(EXIT_BAD_INPUT, "the target of %s is %s, but that of %s is %s", a->path,
                    sort_of_target(a), b->path, sort_of_target(b));
    return EXIT_FINE;
}

/* ---- labels ---------------------------------------------------------------------------------- */

/* Merges two named tuples in alphabetical order and adds their row counts. */
static void *merge_labels(void *a, void *b)
{
    const int64_t na = fx_count(a), nb = fx_count(b);
    const char **names = calloc((size_t)(na + nb) + 1, sizeof *names);
    void **rows = calloc((size_t)(na + nb) + 1, sizeof *rows);
    int n = 0;
    for (int64_t i = 0, j = 0; names && rows && (i < na || j < nb); n++) {
        const int order = i == na   ? 1
                          : j == nb ? -1
                                    : strcmp(fx_child_name(a, i), fx_child_name(b, j));
        names[n] = order <= 0 ? fx_child_name(a, i) : fx_child_name(b, j);
        double count = 0;
        if (order <= 0)
            count += fx_item(fx_child(a, i++));
        if (order >= 0)
            count += fx_item(fx_child(b, j++));
        rows[n] = fx_scalar(count);
    }
    void *merged = names && rows ? fx_named_tuple_from(n, names, rows) : memory_error();
    free(names);
    free(rows);
    return merged;
}

/* Converts positions in `labels` to positions in `all`, which contains these labels in the same
 * order, and others between them. */
static fx_array *renumber(fx_array *y, void *labels, void *all)
{
    const int64_t n = fx_count(labels);
    float *indices = calloc((size_t)n + 1, sizeof *indices);
    for (int64_t i = 0, k = 0; indices && i < n; i++) {
        while (k < fx_count(all) && strcmp(fx_child_name(all, k), fx_child_name(labels, i)) != 0)
            k++;
        indices[i] = (float)k;
    }
    y = !indices ? memory_error()
                 : fx_gather(fx_from(FX_DTYPE_F32, indices, n), fx_cast(y, FX_DTYPE_I64), 0);
    free(indices);
    return y;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static fx_array *features_of(const dataset *d, void *labels)
{
    (void)labels;
    return d->x;
}

static fx_array *ids_of(const dataset *d, void *labels)
{
    return renumber(d->id, d->ids, labels);
}

static fx_array *targets_of(const dataset *d, void *labels)
{
    return labels ? renumber(d->y, d->labels, labels) : d->y;
}

/* Joins along the observation axis. NULL if out of memory; the result may be an error array. */
static fx_array *joined(const dataset *parts, int n, void *labels,
                        fx_array *(*of)(const dataset *, void *))
{
    fx_array **list = calloc((size_t)n, sizeof *list);
    for (int i = 0; list && i < n; i++)
        list[i] = of(&parts[i], labels);
    fx_array *x = list ? fxi_concat(fx_ndims(list[0]) - 1, n, list) : NULL;
    free(list);
    return x;
}

static fx_array *lines_of(const dataset *d, void *labels)
{
    (void)labels;
    return dataset_lines(d);
}

/* Merging needs the names of images in alphabetical order; they are in the order of their classes.
 * False if out of memory. */
static bool sort_names(dataset *d)
{
    const int64_t n = d->ids ? fx_count(d->ids) : 0;
    sorted_name *names = d->ids ? sorted_names(d->ids) : NULL;
    const char **texts = calloc((size_t)n + 1, sizeof *texts);
    void **rows = calloc((size_t)n + 1, sizeof *rows);
    float *positions = calloc((size_t)n + 1, sizeof *positions);
    const bool memory = names && texts && rows && positions;
    for (int64_t i = 0; memory && i < n; i++) {
        texts[i] = names[i].text;
        rows[i] = fx_child(d->ids, names[i].index);
        positions[names[i].index] = (float)i;
    }
    if (memory) {
        d->id = fx_gather(fx_from(FX_DTYPE_F32, positions, n), fx_cast(d->id, FX_DTYPE_I64), 0);
        d->ids = fx_named_tuple_from((int)n, texts, rows);
    }
    free(positions);
    free(rows);
    free(texts);
    free(names);
    return memory || !d->ids;
}

/* Notes where the observations come from. False on failure. */
static bool join_locations(const dataset *parts, int n, dataset *out)
{
    void **paths = calloc((size_t)n, sizeof *paths);
    int64_t *firsts = calloc((size_t)n, sizeof *firsts);
    const bool memory = paths && firsts;
    bool lines = true;
    for (int i = 0; memory && i < n; i++) {
        paths[i] = fx_string(parts[i].path);
        firsts[i] = i ? firsts[i - 1] + parts[i - 1].n : 0;
        lines = lines && parts[i].line;
    }
    out->paths = memory ? fxi_tuple(n, paths) : NULL;
    out->firsts = memory ? fx_from(FX_DTYPE_I64, firsts, n) : NULL;
    out->line = lines ? out->line : 0;
    out->lines = lines ? joined(parts, n, NULL, lines_of) : NULL;
    free(paths);
    free(firsts);
    return memory && (!lines || out->lines);
}

static const char *title(const char *first, int others)
{
    char text[400];
    snprintf(text, sizeof text, "%s and %d more", first, others);
    return fx_string_text(fx_string(text));
}

int dataset_join(dataset *parts, int n, dataset *out)
{
    if (strcmp(parts[0].kind, "text") == 0)
        align_texts(parts, n);
    *out = parts[0];
    out->path = title(parts[0].path, n - 1);
    if (!join_locations(parts, n, out))
        return fail(EXIT_FAILED, "out of memory");
    const bool images = strcmp(parts[0].kind, "images") == 0;
    for (int i = 0; images && i < n; i++)
        if (!sort_names(&parts[i]))
            return fail(EXIT_FAILED, "out of memory");
    out->id = parts[0].id;
    out->ids = parts[0].ids;
    for (int i = 1; i < n; i++) {
        const int status = check_alike(&parts[0], &parts[i]);
        if (status != EXIT_FINE)
            return status;
        out->n += parts[i].n;
        if (out->labels)
            out->labels = merge_labels(out->labels, parts[i].labels);
        if (out->ids)
            out->ids = merge_labels(out->ids, parts[i].ids);
        if ((out->labels && fx_is_error(out->labels)) || (out->ids && fx_is_error(out->ids)))
            return fail_library(EXIT_FAILED);
    }
    out->x = joined(parts, n, NULL, features_of);
    if (out->y)
        out->y = joined(parts, n, out->labels, targets_of);
    if (out->id)
        out->id = joined(parts, n, out->ids, ids_of);
    if (!out->x || (parts[0].y && !out->y) || (parts[0].id && !out->id))
        return fail(EXIT_FAILED, "out of memory");
    return fx_error_status() == FX_OK ? EXIT_FINE : fail_library(EXIT_BAD_INPUT);
}
