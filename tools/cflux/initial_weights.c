/* initial_weights.c: see initial_weights.h. */
#include "initial_weights.h"
#include "clean_text.h"
#include "failure.h"
#include "model_file.h"
#include "trained.h"
#include <stdlib.h>
#include <string.h>

/* An array of a model. */
typedef struct named_array {
    fx_array *x;
    fx_array *from; /* the array of the file that replaces it; NULL: none */
    char *path;     /* "layers.0.weight" */
} named_array;

typedef struct array_list {
    named_array *items;
    int64_t n, capacity;
    bool failed; /* out of memory */
} array_list;

static void add_array(fx_array *x, const char *path, bool trainable, void *user)
{
    (void)trainable; /* ignored: the statistics of a BatchNorm are not trainable, but they are
                        copied too */
    array_list *l = user;
    if (l->n == l->capacity) {
        const int64_t more = l->capacity ? 2 * l->capacity : 32;
        named_array *items = realloc(l->items, (size_t)more * sizeof *items);
        if (!items) {
            l->failed = true;
            return;
        }
        l->items = items;
        l->capacity = more;
    }
    char *copy = strdup(path);
    l->failed = l->failed || !copy;
    if (copy)
        l->items[l->n++] = (named_array){.x = x, .path = copy};
}

static void free_list(array_list *l)
{
    for (int64_t i = 0; i < l->n; i++)
        free(l->items[i].path);
    free(l->items);
}

static int64_t find_path(const array_list *l, const char *path)
{
    for (int64_t i = 0; i < l->n; i++)
        if (strcmp(l->items[i].path, path) == 0)
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

/* Finds the source of each array of `to`. Returns how many have one. */
static int64_t match(array_list *to, const array_list *from)
{
    int64_t matched = 0;
    for (int64_t i = 0; i < to->n; i++) {
        named_array *a = &to->items[i];
        const int64_t at = find_path(from, a->path);
        if (at < 0 || !same_sizes(a->x, from->items[at].x))
            continue;
        a->from = fx_cast(from->items[at].x, fx_eltype(a->x));
        matched++;
    }
    return matched;
}

static fx_array *replaced(fx_array *x, void *user)
{
    const array_list *l = user;
    for (int64_t i = 0; i < l->n; i++)
        if (l->items[i].x == x && l->items[i].from)
            return l->items[i].from;
    return x;
}

static void announce(const char *path, const array_list *to, const array_list *from,
                     int64_t matched)
{
    fputs("--init ", stderr);
    put_clean(stderr, path, 0);
    fprintf(stderr, ": %lld of %lld arrays copied\n", (long long)matched, (long long)to->n);
    for (int64_t i = 0; i < to->n; i++) {
        char want[100], have[100];
        const named_array *a = &to->items[i];
        const int64_t at = find_path(from, a->path);
        if (a->from)
            continue;
        fx_summary(a->x, want, sizeof want);
        if (at >= 0)
            fx_summary(from->items[at].x, have, sizeof have);
        fprintf(stderr, "  not copied: %s, a %s; the file has %s%s\n", a->path, want,
                at >= 0 ? "a " : "none", at >= 0 ? have : "");
    }
}

int initial_copy(const initial_model *f, void *model, bool announced, void **out)
{
    array_list to = {.n = 0}, from = {.n = 0};
    int status = EXIT_FINE;
    fx_visit(model, add_array, &to);
    fx_visit(f->model, add_array, &from);
    if (to.failed || from.failed)
        status = fail(EXIT_FAILED, "--init %s: out of memory", f->path);
    const int64_t matched = status == EXIT_FINE ? match(&to, &from) : 0;
    if (status == EXIT_FINE && matched == 0)
        status = fail(
            EXIT_BAD_INPUT,
            "--init %s: no array of the saved model has the path and sizes of an array of --model",
            f->path);
    if (status == EXIT_FINE) {
        *out = fx_fmap_with(replaced, &to, model);
        if (announced)
            announce(f->path, &to, &from, matched);
    }
    free_list(&from);
    free_list(&to);
    return status == EXIT_FINE && fx_error_status() != FX_OK ? fail_library(EXIT_FAILED) : status;
}

int initial_load(const char *path, initial_model *out)
{
    trained t;
    problem p = {.kind = NULL};
    const int status = trained_load(path, &t, &p);
    if (status == EXIT_FINE)
        *out = (initial_model){path, t.model, p.mean, p.std, t.columns, t.tokenizer};
    return status;
}

void initial_check_columns(const initial_model *from, const void *columns)
{
    const int64_t n = from->columns && columns ? fx_count(columns) : 0;
    if (n == 0 || n != fx_count(from->columns))
        return;
    for (int64_t i = 0; i < n; i++) {
        const char *now = fx_string_text(fx_child(columns, i));
        const char *then = fx_string_text(fx_child(from->columns, i));
        if (strcmp(now, then) != 0) {
            warn("--init %s: input %lld is \"%s\", but it was \"%s\" for the saved model: its "
                 "weights and scale are used for another feature",
                 from->path, (long long)i + 1, now, then);
            return;
        }
    }
}

bool initial_scale_fits(const initial_model *from, const fx_array *x)
{
    const int n = from->mean ? fx_ndims(from->mean) : -1;
    bool fits = n == fx_ndims(x) - 1;
    for (int k = 0; fits && k < n; k++)
        fits = fx_size(from->mean, k) == 1 || fx_size(from->mean, k) == fx_size(x, k);
    return fits;
}

int freeze_layers(void *state, const void *model, int64_t n)
{
    const bool chain = strcmp(fx_type_of(model)->name, "Chain") == 0;
    const int64_t layers = chain ? fx_count(model) : 1;
    if (n >= layers)
        return fail(EXIT_BAD_INPUT,
                    "--freeze %lld leaves nothing to train: the model has %lld layer%s",
                    (long long)n, (long long)layers, layers == 1 ? "" : "s");
    int64_t parameters = 0;
    for (int64_t i = n; i < layers; i++)
        parameters += fx_parameter_count(fx_child(model, i));
    if (parameters == 0)
        return fail(
            EXIT_BAD_INPUT,
            "--freeze %lld leaves nothing to train: the remaining layers have no parameters",
            (long long)n);
    for (int64_t i = 0; i < n; i++)
        if (fx_freeze(fx_child(state, i)) != FX_OK)
            return fail_library(EXIT_BAD_INPUT);
    return EXIT_FINE;
}
