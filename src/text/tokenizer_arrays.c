/* tokenizer_arrays.c: tokenizers and their ids as arrays for models and model files: see
 * cflux/tokenizer.h. */
#include "memory.h"
#include "tokenizer_parts.h"

#include <cflux/tree.h>

static const char *const MERGES = "tokenizer_merges", *const FROM_MERGES = "tokenizer_from_merges",
                         *const BAGS = "token_bags";

/* ---- merges ---------------------------------------------------------------------------------- */

/* A merge may double the longest token, so a small damaged file could describe terabytes. */
enum { BYTES = 4 << 20, BYTES_EACH = 256 };

/* Adds the number of bytes of a token. False if there are too many for n merges. */
static bool count_bytes(const fx_tokenizer *t, int32_t token, int64_t n, size_t *sum)
{
    size_t bytes;
    fxi_strings_get(&t->tokens, token, &bytes);
    *sum += bytes;
    return *sum <= BYTES + BYTES_EACH * (size_t)n;
}

static bool too_long(const char *op, int64_t n)
{
    fx_fail(FX_STATUS_ARGUMENT, op, "the tokens of %lld merges have more than %zu bytes",
            (long long)n, BYTES + BYTES_EACH * (size_t)n);
    return false;
}

/* True if the ids follow from the merges alone. */
static bool has_learned_ids(const fx_tokenizer *t)
{
    int32_t count = 0;
    bool good = true;
    for (uint32_t c = 0; good && count < 256; c++) {
        const int byte = fxi_character_byte(c);
        good = byte < 0 || t->byte_ids[byte] == count++;
    }
    for (int32_t i = 0; good && i < t->nmerges; i++) {
        good = t->merges[i].joined <= count;
        count += t->merges[i].joined == count;
    }
    return good && count == t->tokens.count;
}

fx_array *fx_tokenizer_merges(const fx_tokenizer *t)
{
    if (!fxi_tokenizer_check(t, MERGES))
        return fx_error_array(fx_error_status());
    if (!has_learned_ids(t))
        return fx_error_array(fx_fail(FX_STATUS_ARGUMENT, MERGES,
                                      "the ids of this vocabulary do not follow from its merges"));
    size_t bytes = 0;
    for (int32_t i = 0; i < t->nmerges; i++)
        if (!count_bytes(t, t->merges[i].joined, t->nmerges, &bytes) &&
            !too_long(MERGES, t->nmerges))
            return fx_error_array(fx_error_status());
    int32_t *pairs = fxi_malloc(2 * ((size_t)t->nmerges + 1) * sizeof *pairs);
    if (!pairs)
        return fx_error_array(
            fx_fail(FX_STATUS_MEMORY, MERGES, "no memory for %d merges", (int)t->nmerges));
    for (int32_t i = 0; i < t->nmerges; i++) {
        pairs[2 * i] = t->merges[i].a;
        pairs[2 * i + 1] = t->merges[i].b;
    }
    fx_array *x = fx_from(FX_DTYPE_I32, pairs, 2, (int64_t)t->nmerges);
    fxi_free(pairs);
    return x;
}

static bool is_matrix(const fx_array *x)
{
    const fx_dtype type = fx_is_array(x) ? fx_eltype(x) : FX_DTYPE_F32;
    return (type == FX_DTYPE_I64 || type == FX_DTYPE_I32) && fx_ndims(x) == 2;
}

static fx_status refuse_array(const char *op, const char *expected, fx_array *x)
{
    char got[100];
    fx_summary(x, got, sizeof got);
    return fx_fail(FX_STATUS_ARGUMENT, op, "expected %s, got %s", expected, x ? got : "NULL");
}

/* The elements of a matrix of integers; NULL on failure (recorded). The caller frees them. */
static int64_t *elements_of(const char *op, fx_array *x)
{
    const int64_t n = fx_length(x);
    int64_t *v = fxi_calloc((size_t)n + 1, sizeof *v);
    if (!v) {
        fx_fail(FX_STATUS_MEMORY, op, "no memory for %lld numbers", (long long)n);
        return NULL;
    }
    if (n > 0 && fx_read_as(x, FX_DTYPE_I64, v, n) != FX_OK) {
        fxi_free(v);
        return NULL;
    }
    return v;
}

static bool add_merges(fx_tokenizer *t, const int64_t *pairs, int64_t n)
{
    int32_t id;
    size_t bytes = 0;
    if (!fxi_tokenizer_add_bytes(t)) {
        fx_fail(FX_STATUS_MEMORY, FROM_MERGES, "no memory for the 256 bytes");
        return false;
    }
    for (int64_t i = 0; i < n; i++) {
        const int64_t a = pairs[2 * i], b = pairs[2 * i + 1], count = t->tokens.count;
        if (a < 0 || b < 0 || a >= count || b >= count) {
            fx_fail(FX_STATUS_ARGUMENT, FROM_MERGES,
                    "merge %lld joins tokens %lld and %lld, but there are only %lld tokens before "
                    "it",
                    (long long)i + 1, (long long)a, (long long)b, (long long)count);
            return false;
        }
        if (!count_bytes(t, (int32_t)a, n, &bytes) || !count_bytes(t, (int32_t)b, n, &bytes))
            return too_long(FROM_MERGES, n);
        if (!fxi_tokenizer_add_merge(t, FROM_MERGES, (int32_t)a, (int32_t)b, &id))
            return false;
    }
    return true;
}

fx_tokenizer *fx_tokenizer_from_merges(fx_array *merges)
{
    fx_tokenizer t = {0};
    int64_t *pairs = NULL;
    const bool error = fx_is_array(merges) && fx_is_error(merges);
    if (!error && (!is_matrix(merges) || fx_size(merges, 0) != 2))
        refuse_array(FROM_MERGES, "a matrix of integers with 2 rows", merges);
    else if (!error)
        pairs = elements_of(FROM_MERGES, merges);
    const bool good = pairs && add_merges(&t, pairs, fx_size(merges, 1));
    fxi_free(pairs);
    return fxi_tokenizer_finish(&t, good);
}

/* ---- bags ------------------------------------------------------------------------------------ */

/* Moves the ids before the first −1 of each column to the front; *out_n: their number. at[i]:
 * where those of column i begin. Returns the first column without an id; n: each has one. */
static int64_t pack(int64_t *ids, int64_t rows, int64_t n, int64_t *at, int64_t *out_n)
{
    int64_t kept = 0, i = 0;
    for (; i < n; i++) {
        at[i] = kept;
        for (int64_t k = 0; k < rows && ids[i * rows + k] >= 0; k++)
            ids[kept++] = ids[i * rows + k];
        if (kept == at[i])
            break;
    }
    *out_n = kept;
    return i;
}

/* The error of an array that could not be made; otherwise the tuple of both. */
static void *tuple_of(fx_array *ids, fx_array *firsts)
{
    if (fx_is_error(ids) || fx_is_error(firsts))
        return fx_is_error(ids) ? ids : firsts;
    return fx_tuple(ids, firsts);
}

void *fx_token_bags(fx_array *ids)
{
    if (fx_is_array(ids) && fx_is_error(ids))
        return ids;
    if (!is_matrix(ids))
        return fx_error_array(refuse_array(BAGS, "a matrix of integers", ids));
    const int64_t rows = fx_size(ids, 0), n = fx_size(ids, 1);
    int64_t *v = elements_of(BAGS, ids), *at = fxi_calloc((size_t)n + 1, sizeof *at), kept;
    void *bags = NULL;
    if (!v || !at)
        bags = fx_error_array(
            v ? fx_fail(FX_STATUS_MEMORY, BAGS, "no memory for %lld bags", (long long)n)
              : fx_error_status());
    else if (n == 0 || pack(v, rows, n, at, &kept) < n)
        bags = fx_error_array(
            fx_fail(FX_STATUS_ARGUMENT, BAGS, n == 0 ? "there are no texts" : "a text has no ids"));
    else
        bags = tuple_of(fx_from(FX_DTYPE_I64, v, kept), fx_from(FX_DTYPE_I64, at, n));
    fxi_free(v);
    fxi_free(at);
    return bags;
}
