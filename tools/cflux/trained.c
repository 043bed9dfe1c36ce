/* trained.c: saves and loads trained models: see trained.h. */
#include "trained.h"
#include "failure.h"
#include "input_file.h"
#include "language.h"
#include "model_file.h"
#include "system.h"
#include <stdlib.h>
#include <string.h>

enum { ENTRIES = 9 };

typedef struct entry_list {
    const void *pairs[2 * ENTRIES];
    int n;
} entry_list;

static void add_if(entry_list *e, const char *name, const void *object)
{
    if (!object)
        return;
    e->pairs[e->n++] = name;
    e->pairs[e->n++] = object;
}

static void *texts_of_classes(const problem *p)
{
    void **texts = calloc((size_t)p->nclasses + 1, sizeof *texts);
    for (int64_t i = 0; texts && i < p->nclasses; i++)
        texts[i] = fx_string(class_name(p, i));
    void *tuple = texts ? fxi_tuple((int)p->nclasses, texts) : memory_error();
    free(texts);
    return tuple;
}

static void *about_of(const trained *t, const problem *p)
{
    entry_list e = {.n = 0};
    add_if(&e, "loss", fx_string(p->loss));
    add_if(&e, "kind", fx_string(t->kind));
    add_if(&e, "target", t->target ? fx_string(t->target) : NULL);
    add_if(&e, "shape", t->given_shape ? fx_string(t->given_shape) : NULL);
    add_if(&e, "decimal", t->comma ? fx_string(",") : NULL);
    add_if(&e, "missing", t->drops ? fx_string("drop") : NULL);
    add_if(&e, "transpose", t->transposed ? fx_string("yes") : NULL);
    return fxi_named_pairs(e.n, e.pairs);
}

static void *entries_of(const trained *t, const problem *p)
{
    entry_list e = {.n = 0};
    add_if(&e, "model", t->model);
    add_if(&e, "about", about_of(t, p));
    add_if(&e, "shape", t->shape);
    add_if(&e, "columns", t->columns);
    add_if(&e, "classes", p->classes ? texts_of_classes(p) : NULL);
    add_if(&e, "mean", p->mean);
    add_if(&e, "std", p->std);
    add_if(&e, "fill", p->fill);
    add_if(&e, "merges", t->tokenizer ? fx_tokenizer_merges(t->tokenizer) : NULL);
    return fxi_named_pairs(e.n, e.pairs);
}

fx_status trained_save(const char *path, const trained *t, const problem *p)
{
    FX_SCOPE;
    return model_file_save(path, entries_of(t, p), NULL, NULL);
}

int trained_try(const char *path, const trained *t, const problem *p)
{
    const char *slash = strrchr(path, '/'), *dot = strrchr(slash ? slash : path, '.');
    void *loaded;
    FX_SCOPE;
    if (!dot || (strcmp(dot, ".bson") != 0 && strcmp(dot, ".safetensors") != 0))
        return fail(EXIT_BAD_INPUT, "--save %s: models are saved as .bson or .safetensors", path);
    /* Making a model of its notation draws initial weights. Training must draw the same numbers as
     * without --save. */
    const fx_random_state random = fx_random_get();
    const bool saved = model_file_try(path, entries_of(t, p), &loaded) == FX_OK;
    const bool good = saved && !fx_is_error(fx_predictor(path, loaded));
    fx_random_set(random);
    if (good)
        return EXIT_FINE;
    const fx_error e = fx_error_take();
    return saved ? fail(EXIT_BAD_INPUT,
                        "--save %s: the file could not be read back (%s); try another "
                        "format",
                        path, failure_sentence(&e))
                 : fail(EXIT_BAD_INPUT, "--save %s: %s", path, failure_sentence(&e));
}

/* ---- loading --------------------------------------------------------------------------------- */

static const char *text_in(void *tuple, const char *name)
{
    return fx_string_text(tuple ? model_file_entry(tuple, name) : NULL);
}

static void *classes_of(void *texts)
{
    const int64_t n = fx_count(texts);
    const void **pairs = calloc(2 * (size_t)n + 1, sizeof *pairs);
    for (int64_t i = 0; pairs && i < n; i++) {
        pairs[2 * i] = fx_string_text(fx_child(texts, i));
        pairs[2 * i + 1] = fxi_from(FX_DTYPE_I64, &i, 0, NULL);
    }
    void *tuple = pairs ? fxi_named_pairs(2 * (int)n, pairs) : memory_error();
    free(pairs);
    return tuple;
}

/* Reads the sizes of an observation, which fx_predictor has checked. Returns its number of
 * elements. */
static int64_t sizes_of(const trained *t, int64_t sizes[FX_MAX_DIMS])
{
    const int64_t n = fx_length(t->shape);
    int64_t each = 1;
    fx_read_as(t->shape, FX_DTYPE_I64, sizes, n);
    for (int64_t i = 0; i < n; i++)
        each *= sizes[i];
    return each;
}

bool trained_is_language(const trained *t)
{
    return t->kind && strcmp(t->kind, KIND_LANGUAGE) == 0 && t->tokenizer && t->shape;
}

int trained_load(const char *path, trained *t, problem *p)
{
    int64_t sizes[FX_MAX_DIMS];
    void *loaded = input_file_has_end(path) ? fx_load_entries(path, NULL) : NULL;
    void *entries = loaded ? fx_predictor(path, loaded) : NULL;
    if (!entries || fx_is_error(entries))
        return fail_library(EXIT_BAD_INPUT);
    if (model_file_entry(loaded, "cflux.counts"))
        warn("%s is a checkpoint, without the scale and the names of its data: use the file of "
             "cflux train --save",
             path);
    *t = (trained){.model = model_file_entry(entries, "model")};
    void *about = model_file_entry(entries, "about");
    void *classes = model_file_entry(entries, "classes");
    t->kind = text_in(about, "kind");
    t->target = text_in(about, "target");
    t->given_shape = text_in(about, "shape");
    const char *mark = text_in(about, "decimal");
    t->comma = mark && strcmp(mark, ",") == 0;
    const char *missing = text_in(about, "missing");
    t->drops = missing && strcmp(missing, "drop") == 0;
    t->transposed = text_in(about, "transpose") != NULL;
    t->shape = model_file_entry(entries, "shape");
    t->columns = model_file_entry(entries, "columns");
    p->mean = model_file_entry(entries, "mean");
    p->std = model_file_entry(entries, "std");
    p->fill = model_file_entry(entries, "fill");
    fx_array *merges = model_file_entry(entries, "merges");
    t->tokenizer = merges ? fx_tokenizer_from_merges(merges) : NULL;
    p->tokens = t->tokenizer ? fx_tokenizer_count(t->tokenizer) : 0;
    if (classes) {
        p->classes = classes_of(classes);
        p->nclasses = fx_count(p->classes);
    }
    const fx_error error = fx_error_take();
    if (error.status != FX_OK)
        return fail(EXIT_BAD_INPUT, "%s: %s", path, error.message);
    const int status = p->kind ? EXIT_FINE : problem_loss(p, text_in(about, "loss"));
    return status == EXIT_FINE && trained_is_language(t)
               ? language_problem(p, t->tokenizer, sizes_of(t, sizes))
               : status;
}

void trained_request(const trained *t, const problem *p, data_request *r)
{
    r->columns = t->columns;
    r->tokenizer = t->tokenizer;
    r->context = p->context;
    r->context_is_fixed = p->context > 0;
    r->missing = p->fill ? MISSING_KEPT : t->drops ? MISSING_DROPPED : MISSING_REFUSED;
    r->column = t->kind && strcmp(t->kind, "csv") == 0 ? t->target : NULL;
    int64_t sizes[FX_MAX_DIMS];
    r->features = t->shape ? sizes_of(t, sizes) : 0;
    const bool images = t->kind && strcmp(t->kind, "images") == 0;
    if (!r->shape && (images || t->transposed))
        r->shape = t->given_shape;
    r->transpose |= t->transposed;
    r->comma = t->comma;
}

static int wrong_size(const char *path, const int64_t *sizes, const dataset *d, const char *have)
{
    return fail(EXIT_BAD_INPUT,
                "%s takes images of %lld×%lld×%lld, but those of %s are %s: --shape "
                "%lldx%lldx%lld resizes them",
                path, (long long)sizes[0], (long long)sizes[1], (long long)sizes[2], d->path, have,
                (long long)sizes[0], (long long)sizes[1], (long long)sizes[2]);
}

int trained_shape(const char *path, const trained *t, dataset *d)
{
    int64_t sizes[FX_MAX_DIMS];
    char have[100];
    if (!t->shape || t->tokenizer)
        return EXIT_FINE;
    const int64_t each = sizes_of(t, sizes);
    const int n = (int)fx_length(t->shape);
    const bool image = n == 3 && strcmp(d->kind, "images") == 0;
    describe_sizes(d->x, true, have, sizeof have);
    if (each != fx_length(d->x) / d->n && !image)
        return fail(EXIT_BAD_INPUT, "%s takes %lld numbers per observation, but %s has %s", path,
                    (long long)each, d->path, have);
    sizes[n] = d->n;
    for (int k = 0; image && k < n; k++)
        if (fx_size(d->x, k) != sizes[k])
            return wrong_size(path, sizes, d, have);
    d->x = fxi_reshape(d->x, n + 1, sizes);
    return EXIT_FINE;
}
