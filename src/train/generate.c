/* generate.c: continues texts with language models: see predict.h.
 *
 * The model always gets `context` ids, so that one plan computes every token. Known tokens come
 * first, and the ids after them have no effect, because the scores at a position depend only on the
 * ids up to it.
 */
#include <cflux/data.h>
#include <cflux/device.h>
#include <cflux/ops.h>
#include <cflux/predict.h>
#include <cflux/tokenizer.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"
#include "option_struct.h"
#include "predictor_parts.h"

static const char *const OP = "generate";

enum { TOKEN_BYTES = 256 };

typedef struct writer {
    fx_generate_args a;
    void *model;
    fx_device *device;
    fx_tokenizer *tokenizer;
    int64_t context, tokens; /* tokens: size of the vocabulary */
    int64_t *text;           /* the ids of the prompt, then the new ones */
    int64_t prompt, n;       /* ids of the prompt; all ids so far */
    int64_t *seen;           /* the `context` ids that the model gets */
    float *scores, *sorted;  /* of each token; sorted: space for top_k */
} writer;

static fx_status refuse(const char *what)
{
    return fx_fail(FX_STATUS_ARGUMENT, OP, "%s", what);
}

static fx_status check(const fx_generate_args *a)
{
    const fx_status wrong = fxi_predictor_check(OP, a->predictor);
    if (wrong != FX_OK)
        return wrong;
    if (fxi_predictor_context(a->predictor) <= 0)
        return refuse("the model is not a language model: it does not predict the next token");
    if (a->length < 1)
        return fx_fail(FX_STATUS_ARGUMENT, OP, "length is %lld, expected at least 1",
                       (long long)a->length);
    if (!(a->temperature >= 0) || isinf(a->temperature))
        return fx_fail(FX_STATUS_ARGUMENT, OP,
                       "temperature is %g, expected a finite number of at least 0", a->temperature);
    if (a->top_k < 0)
        return fx_fail(FX_STATUS_ARGUMENT, OP, "top_k is %lld, expected at least 0",
                       (long long)a->top_k);
    return FX_OK;
}

/* ---- drawing --------------------------------------------------------------------------------- */

static int downwards(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

/* The least score of the tokens to draw from. */
static float threshold(writer *w)
{
    const int64_t k = w->a.top_k;
    if (k == 0 || k >= w->tokens)
        return -INFINITY;
    memcpy(w->sorted, w->scores, (size_t)w->tokens * sizeof *w->sorted);
    qsort(w->sorted, (size_t)w->tokens, sizeof *w->sorted, downwards);
    return w->sorted[k - 1];
}

/* Draws a token with the probabilities softmax(scores / temperature). */
static int64_t draw(writer *w)
{
    int64_t best = 0;
    double sum = 0;
    const float least = threshold(w);
    for (int64_t i = 1; i < w->tokens; i++)
        best = w->scores[i] > w->scores[best] ? i : best;
    if (w->a.temperature == 0)
        return best;
    const double most = (double)w->scores[best];
    for (int64_t i = 0; i < w->tokens; i++) {
        w->sorted[i] =
            w->scores[i] < least ? 0 : (float)exp(((double)w->scores[i] - most) / w->a.temperature);
        sum += (double)w->sorted[i];
    }
    double at = (double)(fx_rand_u64() >> 11) * 0x1p-53 * sum;
    for (int64_t i = 0; i < w->tokens; i++) {
        at -= (double)w->sorted[i];
        if (at < 0 && w->sorted[i] > 0)
            return i;
    }
    return best; /* the sum was rounded up */
}

/* ---- the model ------------------------------------------------------------------------------- */

/* A score of −∞ means that the token cannot follow. */
static fx_status check_scores(const writer *w)
{
    bool possible = false;
    for (int64_t i = 0; i < w->tokens; i++) {
        if (isnan(w->scores[i]) || w->scores[i] == INFINITY)
            return fx_fail(FX_STATUS_NONFINITE, OP, "the score of token %lld is %s", (long long)i,
                           isnan(w->scores[i]) ? "NaN" : "infinite");
        possible |= w->scores[i] != -INFINITY;
    }
    return possible ? FX_OK : fx_fail(FX_STATUS_NONFINITE, OP, "the scores of all tokens are -Inf");
}

/* Reads the scores of the next token. */
static fx_status forecast(writer *w)
{
    FXI_SCOPE;
    const int64_t known = w->n < w->context ? w->n : w->context, last = known - 1;
    memcpy(w->seen, w->text + w->n - known, (size_t)known * sizeof *w->seen);
    fx_array *x = fx_from(FX_DTYPE_I64, w->seen, w->context, 1);
    fx_array *y = fx_call(w->model, fx_to(w->device, x));
    if (fx_is_error(y))
        return fx_array_status(y);
    if (fx_ndims(y) != 3 || fx_size(y, 0) < w->tokens || fx_size(y, 1) != w->context)
        return fx_fail(FX_STATUS_SHAPE, OP,
                       "expected scores of shape tokens×context×1 with at least %lld tokens and "
                       "the context %lld from the model",
                       (long long)w->tokens, (long long)w->context);
    fx_array *at = fx_to(w->device, fx_from(FX_DTYPE_I64, &last, 1));
    y = fx_gather(fx_reshape(y, fx_size(y, 0), w->context), at, 1);
    y = fx_cpu(fx_slice(y, 0, 0, w->tokens));
    const fx_status status = fx_read_as(y, FX_DTYPE_F32, w->scores, w->tokens);
    return status == FX_OK ? check_scores(w) : status;
}

/* Passes the latest token to the program. *out_stop: the program ends the text. */
static fx_status announce(const writer *w, bool *out_stop)
{
    FXI_SCOPE;
    char small[TOKEN_BYTES], *large = NULL;
    size_t bytes;
    fx_array *id = fx_from(FX_DTYPE_I64, w->text + w->n - 1, 1);
    *out_stop = false;
    if (!w->a.on_token)
        return FX_OK;
    fx_status status = fx_tokenizer_decode(w->tokenizer, id, small, sizeof small, &bytes);
    if (status == FX_OK && bytes > sizeof small) {
        large = fxi_malloc(bytes);
        status = large ? fx_tokenizer_decode(w->tokenizer, id, large, bytes, &bytes)
                       : fx_fail(FX_STATUS_MEMORY, OP, "no memory for a token");
    }
    if (status == FX_OK)
        *out_stop = !w->a.on_token(large ? large : small, bytes, w->a.user);
    fxi_free(large);
    return status;
}

static fx_status write_tokens(writer *w)
{
    bool stop = false;
    fx_status status = FX_OK;
    while (status == FX_OK && !stop && w->n < w->prompt + w->a.length) {
        status = forecast(w);
        if (status != FX_OK)
            break;
        w->text[w->n++] = draw(w);
        status = announce(w, &stop);
    }
    return status;
}

/* ---- the function ---------------------------------------------------------------------------- */

static fx_status prepare(writer *w)
{
    const char *prompt = w->a.prompt && *w->a.prompt ? w->a.prompt : "\n";
    void *predictor = w->a.predictor;
    w->model = fxi_predictor_entry(predictor, "model");
    w->context = fxi_predictor_context(predictor);
    fx_device *device = fx_device_of(w->model);
    w->device = device ? device : fx_cpu_device();
    w->tokenizer = fx_tokenizer_from_merges(fxi_predictor_entry(predictor, "merges"));
    w->tokens = fx_tokenizer_count(w->tokenizer);
    fx_array *ids = fx_tokenizer_encode(w->tokenizer, prompt, strlen(prompt));
    if (fx_is_error(ids))
        return fx_array_status(ids);
    w->prompt = w->n = fx_length(ids);
    if (w->a.length > INT64_MAX / (int64_t)sizeof *w->text - w->prompt)
        return fx_fail(FX_STATUS_ARGUMENT, OP, "length is %lld, which is more than memory can hold",
                       (long long)w->a.length);
    w->text = fxi_calloc((size_t)(w->prompt + w->a.length), sizeof *w->text);
    w->seen = fxi_calloc((size_t)w->context, sizeof *w->seen);
    w->scores = fxi_calloc((size_t)w->tokens, sizeof *w->scores);
    w->sorted = fxi_calloc((size_t)w->tokens, sizeof *w->sorted);
    if (!w->text || !w->seen || !w->scores || !w->sorted)
        return fx_fail(FX_STATUS_MEMORY, OP, "no memory for a text of %lld tokens",
                       (long long)w->a.length);
    return fx_read_as(ids, FX_DTYPE_I64, w->text, w->n);
}

fx_array *fxi_generate(const fx_generate_args *given)
{
    FXI_OPEN_AT(FXI_SCOPE_TEST, NULL, 0);
    FXI_TAKE_OPTIONS(fx_generate_args, FXI_GENERATE_ARGS, a, OP, given);
    writer w = {.a = a};
    fx_status status = a_ok ? check(&a) : FX_STATUS_ARGUMENT;
    if (status == FX_OK)
        status = prepare(&w);
    if (status == FX_OK)
        status = write_tokens(&w);
    fx_array *ids = status == FX_OK ? fx_from(FX_DTYPE_I64, w.text + w.prompt, w.n - w.prompt)
                                    : fx_error_array(status);
    fxi_free(w.text);
    fxi_free(w.seen);
    fxi_free(w.scores);
    fxi_free(w.sorted);
    return fx_keep(ids);
}

fx_status fx_predicted_text(void *predictor, fx_array *ids, char *dst, size_t capacity,
                            size_t *out_bytes)
{
    FXI_SCOPE;
    fx_array *merges = fxi_predictor_entry(predictor, "merges");
    const fx_status status = fxi_predictor_status(predictor);
    if (out_bytes)
        *out_bytes = 0;
    if (status != FX_OK)
        return status;
    if (!merges)
        return refuse("the predictor has no tokenizer");
    return fx_tokenizer_decode(fx_tokenizer_from_merges(merges), ids, dst, capacity, out_bytes);
}
