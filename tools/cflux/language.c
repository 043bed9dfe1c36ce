/* language.c: see language.h. */
#include "language.h"
#include "failure.h"
#include "text_bytes.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- data ------------------------------------------------------------------------------------ */

static int check_lines(const char *path, const text_bytes *t)
{
    const char *at = t->text, *end = t->bytes + t->size;
    int status = EXIT_FINE;
    for (int64_t line = 1; status == EXIT_FINE && at < end; line++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        stop = stop ? stop : end;
        status = check_utf8(path, line, at, (size_t)(stop - at));
        at = stop + 1;
    }
    return status;
}

static int cut(const data_request *r, fx_array *ids, dataset *d)
{
    const int64_t t = r->context, n = (fx_length(ids) - 1) / t;
    if (n < 1)
        return fail(EXIT_BAD_INPUT,
                    "%s has %lld tokens, but a context of %lld needs at least %lld%s", r->path,
                    (long long)fx_length(ids), (long long)t, (long long)t + 1,
                    r->context_is_fixed ? "" : ": use a smaller --context");
    fx_array *narrow = fx_cast(ids, FX_DTYPE_I32);
    d->x = fx_reshape(fx_slice(narrow, 0, 0, n * t), t, n);
    d->y = fx_reshape(fx_slice(narrow, 0, 1, n * t + 1), t, n);
    return fx_eval(fx_tuple(d->x, d->y)) == FX_OK ? EXIT_FINE : fail_library(EXIT_FAILED);
}

int read_text_pieces(const data_request *r, dataset *d)
{
    text_bytes t = {.size = 0};
    int status = check_text_options(r, "one observation per piece");
    d->kind = KIND_LANGUAGE;
    if (status == EXIT_FINE)
        status = read_text_bytes(r->path, &t);
    if (status == EXIT_FINE)
        status = check_lines(r->path, &t);
    if (status == EXIT_FINE) {
        fx_array *ids =
            fx_tokenizer_encode(r->tokenizer, t.text, t.size - (size_t)(t.text - t.bytes));
        status = fx_is_error(ids) ? fail_library(EXIT_FAILED) : cut(r, ids, d);
    }
    free(t.bytes);
    return status;
}

/* ---- the problem ----------------------------------------------------------------------------- */

/* The number of characters that begin in a token; −1 on failure (recorded). */
static int count_characters(const fx_tokenizer *t, int64_t id)
{
    FX_SCOPE;
    size_t bytes;
    int n = 0;
    char small[256], *text = small;
    fx_array *ids = fx_from(FX_DTYPE_I64, &id, 1);
    if (fx_tokenizer_decode(t, ids, small, sizeof small, &bytes) != FX_OK)
        return -1;
    if (bytes > sizeof small) {
        text = malloc(bytes);
        if (!text || fx_tokenizer_decode(t, ids, text, bytes, &bytes) != FX_OK) {
            free(text);
            return -1;
        }
    }
    for (size_t i = 0; i < bytes; i++)
        n += ((unsigned char)text[i] & 0xC0) != 0x80;
    if (text != small)
        free(text);
    return n;
}

int language_problem(problem *p, const fx_tokenizer *t, int64_t context)
{
    const int status = p->kind ? EXIT_FINE : problem_loss(p, "logitcrossentropy");
    if (status != EXIT_FINE)
        return status;
    if (strcmp(p->loss, "logitcrossentropy") != 0)
        return fail(EXIT_BAD_INPUT, "--loss %s: the loss of a language model is logitcrossentropy",
                    p->loss);
    float *counts = calloc((size_t)p->tokens + 1, sizeof *counts);
    bool good = counts != NULL;
    for (int64_t i = 0; good && i < p->tokens; i++) {
        const int n = count_characters(t, i);
        good = n >= 0;
        counts[i] = (float)n;
    }
    p->context = context;
    p->characters = good ? fx_from(FX_DTYPE_F32, counts, p->tokens) : NULL;
    free(counts);
    return good && !fx_is_error(p->characters) ? EXIT_FINE
           : fx_error_status() != FX_OK        ? fail_library(EXIT_FAILED)
                                               : fail(EXIT_FAILED, "no memory for the tokens");
}

const char *language_model(const problem *p)
{
    static char text[200];
    snprintf(text, sizeof text, "Chain(Embedding(%lld => 64), GRU(64 => 256), Dense(256 => %lld))",
             (long long)p->tokens, (long long)p->tokens);
    return text;
}

/* True if another final id changes the scores of earlier positions. */
static bool looks_ahead(const problem *p, void *model, fx_array *x, const fx_array *output)
{
    const int64_t t = p->context;
    if (t < 2)
        return false;
    fx_array *last = fx_slice(x, 0, t - 1, t);
    fx_array *other = fx_cast(fx_mod(fx_add(last, 1), p->tokens), fx_eltype(x));
    fx_array *y = fx_call(model, fx_concat(0, fx_slice(x, 0, 0, t - 1), other));
    fx_array *before = fx_slice((fx_array *)(uintptr_t)output, 1, 0, t - 1);
    fx_array *after = fx_slice(y, 1, 0, t - 1);
    return fx_item(fx_maximum(fx_abs(fx_sub(before, after)))) >
           1e-4 * (1 + fx_item(fx_maximum(fx_abs(before))));
}

int language_check(const problem *p, void *model, fx_array *x, const fx_array *output)
{
    char sizes[100];
    describe_sizes(output, true, sizes, sizeof sizes);
    if (fx_ndims(output) != 3 || fx_size(output, 0) != p->tokens ||
        fx_size(output, 1) != p->context)
        return fail(EXIT_BAD_INPUT,
                    "the model's output for a piece of the text has size %s: use a last layer with "
                    "%lld outputs, one for each token, at each of the %lld positions",
                    sizes, (long long)p->tokens, (long long)p->context);
    if (looks_ahead(p, model, x, output))
        return fail(EXIT_BAD_INPUT,
                    "the model's output at a position depends on later tokens, so it knows the "
                    "token that it should predict: use layers that read only earlier tokens, such "
                    "as GRU or LSTM");
    return fx_error_status() == FX_OK ? EXIT_FINE : fail_library(EXIT_BAD_INPUT);
}

/* ---- scores ---------------------------------------------------------------------------------- */

fx_array *language_characters(const problem *p, fx_array *y)
{
    return fx_sum(fx_cast(fx_gather(fx_to(p->device, p->characters), y, 0), FX_DTYPE_F64));
}

double perplexity_of(const scores *s)
{
    return exp(s->loss);
}

double nats_per_character(const problem *p, const scores *s)
{
    return s->loss * (double)(s->n * p->context) / s->characters;
}

void print_language_scores(const problem *p, const scores *s)
{
    printf("perplexity %.6g, %.6g nats per character", perplexity_of(s), nats_per_character(p, s));
}

void put_language_scores(fx_json *j, const problem *p, const scores *s)
{
    fx_json_number(j, "perplexity", perplexity_of(s));
    fx_json_number(j, "nats_per_character", nats_per_character(p, s));
}
