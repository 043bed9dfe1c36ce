/* model_check.c: checks that a model fits the data and the loss: see model_check.h. */
#include "model_check.h"
#include "failure.h"
#include "language.h"
#include <string.h>

static bool is_layer(const void *layer, const char *name)
{
    return strcmp(fx_type_of(layer)->name, name) == 0;
}

/* Suggests a layer that would accept x instead; "" if there is no suggestion. */
static void suggest(const problem *p, void *layer, const fx_array *x, char *text, size_t size)
{
    const int rank = fx_ndims(x) - 1;
    const int64_t each = fx_length(x);
    *text = 0;
    if (p->tokens && fx_eltype(x) == FX_DTYPE_I32) {
        snprintf(text, size, "; %s(%lld => …)",
                 p->context ? "a language model begins with Embedding"
                            : "a model of texts begins with EmbeddingBag",
                 (long long)p->tokens);
    } else if (is_layer(layer, "Dense")) {
        const fx_dense_layer *dense = layer;
        const int64_t in = fx_size(dense->weight, 1), out = fx_size(dense->weight, 0);
        if (rank > 1 && in == each)
            snprintf(text, size, "; put Flux.flatten before it");
        else
            snprintf(text, size, "; use %sDense(%lld => %lld)", rank > 1 ? "Flux.flatten, " : "",
                     (long long)each, (long long)out);
    } else if (is_layer(layer, "Conv")) {
        const fx_conv_layer *conv = layer;
        const int axes = fx_ndims(conv->weight) - 2;
        const int64_t in = fx_size(conv->weight, axes) * conv->groups;
        if (rank != axes + 1)
            snprintf(text, size, "; it expects %d sizes and channels: give them with --shape",
                     axes);
        else if (fx_size(x, axes) != in)
            snprintf(text, size, "; use %lld => … channels", (long long)fx_size(x, axes));
    }
}

static int refuse_layer(const problem *p, void *layer, int64_t number, const char *data,
                        const fx_array *x)
{
    char what[200], got[100], hint[600];
    const fx_error e = fx_error_take();
    fx_summary(layer, what, sizeof what);
    describe_sizes(x, true, got, sizeof got);
    suggest(p, layer, x, hint, sizeof hint);
    if (!*hint)
        snprintf(hint, sizeof hint, " (%s)", failure_sentence(&e));
    if (number == 1 && p->tokens)
        return fail(EXIT_BAD_INPUT, "layer 1, %s, does not accept the tokens of %s%s", what, data,
                    hint);
    return number == 1
               ? fail(EXIT_BAD_INPUT,
                      "layer 1, %s, does not accept observations of size %s, as in %s%s", what, got,
                      data, hint)
               : fail(EXIT_BAD_INPUT, "layer %lld, %s, does not accept an input of size %s%s",
                      (long long)number, what, got, hint);
}

/* Passes one observation through the layers of a chain; NULL on failure (printed). */
static fx_array *through_layers(const problem *p, void *model, const char *data, fx_array *x)
{
    const bool chain = is_layer(model, "Chain");
    const int64_t n = chain ? fx_count(model) : 1;
    for (int64_t i = 0; i < n; i++) {
        void *layer = chain ? fx_child(model, i) : model;
        fx_array *y = fx_call(layer, i == 0 ? problem_input(p, x) : x);
        if (fx_is_error(y)) {
            refuse_layer(p, layer, i + 1, data, x);
            return NULL;
        }
        x = y;
    }
    return x;
}

static int check_outputs(problem *p, const char *data, const fx_array *output)
{
    const int64_t each = fx_length(output);
    char sizes[100];
    describe_sizes(output, true, sizes, sizeof sizes);
    const bool one = p->classes && p->nclasses == 2 && each == 1;
    if (one && !p->kind) /* the loss determines the threshold for the second class */
        return fail(EXIT_BAD_INPUT, "the model has one output for two classes, and its file "
                                    "contains no loss; give it with --loss");
    p->single = one && p->kind->binary;
    if (!p->classes || p->single || (fx_ndims(output) == 2 && each == p->nclasses))
        return EXIT_FINE;
    return fail(EXIT_BAD_INPUT,
                "the model's output for an observation has size %s, but %s has %lld classes: use a "
                "last layer with %lld outputs",
                sizes, data, (long long)p->nclasses, (long long)p->nclasses);
}

static int check_loss(const problem *p, const char *data, fx_array *output, fx_array *y)
{
    char have[100], want[100];
    const bool numbers = p->kind->means != TASK_CLASSES || p->kind->shares;
    if (!p->classes && !numbers && fx_length(y) == 1)
        return fail(EXIT_BAD_INPUT,
                    "the loss %s is for classes, but the target in %s is a number: use --loss mse "
                    "to learn numbers",
                    p->loss, data);
    fx_array *loss = problem_output_loss(p, output, y);
    const bool alike = fx_length(output) == fx_length(y) && fx_ndims(output) == fx_ndims(y);
    if (!fx_is_error(loss) && (p->classes || alike))
        return EXIT_FINE;
    if (p->classes)
        return fail_library(EXIT_BAD_INPUT);
    fx_error_take();
    describe_sizes(output, true, have, sizeof have);
    describe_sizes(y, true, want, sizeof want);
    return fail(EXIT_BAD_INPUT,
                "the model's output for an observation has size %s, but its target in %s has size "
                "%s: use %sa last layer with %s output%s",
                have, data, want, fx_ndims(output) > fx_ndims(y) ? "Flux.flatten and " : "", want,
                fx_length(y) == 1 ? "" : "s");
}

static fx_array *first_observation(fx_array *x)
{
    return fx_slice(x, fx_ndims(x) - 1, 0, 1);
}

/* A token without a column would fail only when it is looked up. */
static int check_tokens(const problem *p, void *model)
{
    const bool chain = is_layer(model, "Chain");
    const char *name = p->context ? "Embedding" : "EmbeddingBag";
    void *first = chain && fx_count(model) > 0 ? fx_child(model, 0) : model;
    if (!p->tokens || !is_layer(first, name))
        return EXIT_FINE;
    const fx_array *weight = p->context ? ((const fx_embedding_layer *)first)->weight
                                        : ((const fx_embeddingbag_layer *)first)->weight;
    if (fx_size(weight, 1) >= p->tokens)
        return EXIT_FINE;
    return fail(
        EXIT_BAD_INPUT,
        "layer 1, %s(%lld => %lld), has fewer columns than there are tokens; use %s(%lld => "
        "%lld)",
        name, (long long)fx_size(weight, 1), (long long)fx_size(weight, 0), name,
        (long long)p->tokens, (long long)fx_size(weight, 0));
}

int model_check(problem *p, void *model, const char *data, fx_array *x, fx_array *y)
{
    FX_TEST;
    if (!fx_type_of(model)->forward)
        return fail(EXIT_BAD_INPUT, "a %s is not a model: it cannot be called",
                    fx_type_of(model)->name);
    int status = check_tokens(p, model);
    fx_array *output =
        status == EXIT_FINE ? through_layers(p, model, data, first_observation(x)) : NULL;
    if (!output)
        return EXIT_BAD_INPUT;
    if (p->context)
        return language_check(p, model, first_observation(x), output);
    status = check_outputs(p, data, output);
    return status == EXIT_FINE && y ? check_loss(p, data, output, first_observation(y)) : status;
}

/* ---- a last function that the loss applies itself -------------------------------------------- */

/* The function that makes the model's outputs: a last function, or the activation of a last Dense
 * layer. NULL: another layer makes them. */
static const fx_function *last_function(const void *model)
{
    if (is_layer(model, "Chain"))
        return fx_count(model) ? last_function(fx_child(model, fx_count(model) - 1)) : NULL;
    if (fx_type_of(model) == fx_type_of(FX_SOFTMAX))
        return model;
    return is_layer(model, "Dense") ? ((const fx_dense_layer *)model)->act : NULL;
}

/* Softmax applied twice is a frequent mistake: training then learns slowly, without an error. */
void model_check_ending(const problem *p, const void *model)
{
    static const struct {
        const char *function, *loss, *instead;
    } twice[] = {{"softmax", "logitcrossentropy", "crossentropy"},
                 {"σ", "logitbinarycrossentropy", "binarycrossentropy"}};
    const fx_function *last = last_function(model);
    for (size_t i = 0; last && i < sizeof twice / sizeof twice[0]; i++)
        if (strcmp(last->name, twice[i].function) == 0 && strcmp(p->loss, twice[i].loss) == 0)
            warn("the model ends in %s, and the loss %s applies it again: remove it from the "
                 "model, or use --loss %s",
                 last->name, p->loss, twice[i].instead);
}
