/* tokenizer.c: texts to ids and back: see cflux/tokenizer.h.
 *
 * A word begins as the tokens of its bytes, a linked list. A queue holds its possible merges,
 * ordered by their rank, then by their position. An entry whose pair has changed in the meantime is
 * ignored. So a word of n bytes takes O(n log n) time; a text without blanks is a single word.
 */
#include "memory.h"
#include "object_types.h"
#include "tokenizer_parts.h"
#include "words.h"

#include <string.h>

static const char *const ENCODE = "tokenizer_encode", *const DECODE = "tokenizer_decode",
                         *const ENCODE_TEXTS = "tokenizer_encode_texts";

/* ---- the object ------------------------------------------------------------------------------ */

static void free_parts(fx_tokenizer *t)
{
    fxi_strings_free(&t->tokens);
    fxi_free(t->merges);
    t->merges = NULL;
    fxi_pair_map_free(&t->ranks);
}

static void finish(void *self)
{
    free_parts(self);
}

static void describe(const void *self, fx_text *text)
{
    const fx_tokenizer *t = self;
    fx_text_add(text, "Tokenizer(%d tokens, %d merges)", (int)t->tokens.count, (int)t->nmerges);
}

static fx_tokenizer error_tokenizer;
static const fx_type tokenizer_type = {
    .fxi_size = sizeof(fx_type),
    .name = "Tokenizer",
    .size = sizeof(fx_tokenizer),
    .describe = describe,
    .finish = finish,
    .error = &error_tokenizer,
    .flags = FX_TYPE_ONE_LINE | FX_TYPE_LEAF | FX_TYPE_INTERNAL,
};

fx_tokenizer *fxi_tokenizer_finish(fx_tokenizer *parts, bool good)
{
    fx_tokenizer *t = good ? fxi_new(&tokenizer_type, parts) : fx_error_object(&tokenizer_type);
    if (t == &error_tokenizer)
        free_parts(parts);
    return t;
}

bool fxi_tokenizer_add_merge(fx_tokenizer *t, const char *op, int32_t a, int32_t b, int32_t *out_id)
{
    enum { FEW = 256 };
    unsigned char few[FEW], *joined = few;
    size_t na, nb;
    const unsigned char *first = fxi_strings_get(&t->tokens, a, &na),
                        *second = fxi_strings_get(&t->tokens, b, &nb);
    joined = na + nb > FEW ? fxi_malloc(na + nb) : few;
    *out_id = -1;
    if (joined) {
        memcpy(joined, first, na);
        memcpy(joined + na, second, nb);
        *out_id = fxi_strings_add(&t->tokens, joined, na + nb);
    }
    if (joined != few)
        fxi_free(joined);
    int64_t *rank = *out_id >= 0 ? fxi_pair_put(&t->ranks, fxi_pair(a, b)) : NULL;
    if (!rank || !fxi_grow(&t->merges, &t->merges_capacity, t->nmerges + 1, sizeof *t->merges)) {
        fx_fail(FX_STATUS_MEMORY, op, "no memory for merge %d", (int)t->nmerges + 1);
        return false;
    }
    *rank = t->nmerges;
    t->merges[t->nmerges++] = (fxi_merge){a, b, *out_id};
    return true;
}

bool fxi_tokenizer_add_bytes(fx_tokenizer *t)
{
    for (uint32_t c = 0; c < 0x180; c++) {
        const int byte = fxi_character_byte(c);
        if (byte >= 0 && fxi_strings_add(&t->tokens, &(unsigned char){(unsigned char)byte}, 1) < 0)
            return false;
    }
    return fxi_tokenizer_find_bytes(t) == 256;
}

int fxi_tokenizer_find_bytes(fx_tokenizer *t)
{
    for (int i = 0; i < 256; i++) {
        const unsigned char byte = (unsigned char)i;
        t->byte_ids[i] = fxi_strings_find(&t->tokens, &byte, 1);
        if (t->byte_ids[i] < 0)
            return i;
    }
    return 256;
}

static bool is_error(const fx_tokenizer *t)
{
    return !t || t == &error_tokenizer || !fx_is(t, &tokenizer_type);
}

/* Records that the argument is not a tokenizer, unless it is an error object, which was recorded.
 */
static fx_status refuse(const fx_tokenizer *t, const char *op)
{
    if (t && fx_is_error(t))
        return fx_error_status() != FX_OK ? fx_error_status() : FX_STATUS_ARGUMENT;
    return fx_fail(FX_STATUS_ARGUMENT, op, "expects a tokenizer, got %s", fxi_type_name(t));
}

bool fxi_tokenizer_check(const fx_tokenizer *t, const char *op)
{
    if (is_error(t))
        refuse(t, op);
    return !is_error(t);
}

int64_t fx_tokenizer_count(const fx_tokenizer *t)
{
    return is_error(t) ? 0 : t->tokens.count;
}

int64_t fx_tokenizer_id(const fx_tokenizer *t, const char *token, size_t bytes)
{
    return is_error(t) || (!token && bytes > 0) ? -1 : fxi_strings_find(&t->tokens, token, bytes);
}

/* ---- encode ---------------------------------------------------------------------------------- */

/* A token of the current word; `id` −1: joined with the token before it. */
typedef struct symbol {
    int32_t id, before, next; /* positions in the word; −1: none */
} symbol;

typedef struct encoder {
    const fx_tokenizer *t;
    symbol *symbols;
    int32_t symbols_capacity;
    fxi_queue queue;
    int64_t *ids;
    size_t count, capacity;
} encoder;

/* Queues the merge of the symbol at `at` with the next one, if there is one. */
static bool queue_pair(encoder *e, int32_t at)
{
    const int32_t next = at >= 0 ? e->symbols[at].next : -1;
    const int64_t *rank =
        next >= 0 ? fxi_pair_find(&e->t->ranks, fxi_pair(e->symbols[at].id, e->symbols[next].id))
                  : NULL;
    const fxi_queued entry = {rank ? (uint64_t)*rank : 0, (uint64_t)at, 0};
    return !rank || fxi_queue_push(&e->queue, entry);
}

/* True if the queued merge still applies: the pair at its position makes the same token. */
static bool applies(const encoder *e, fxi_queued entry)
{
    const symbol *s = &e->symbols[entry.second];
    if (s->id < 0 || s->next < 0)
        return false;
    const int64_t *rank = fxi_pair_find(&e->t->ranks, fxi_pair(s->id, e->symbols[s->next].id));
    return rank && e->t->merges[*rank].joined == e->t->merges[entry.first].joined;
}

static bool merge_word(encoder *e)
{
    bool good = true;
    for (fxi_queued entry; good && fxi_queue_pop(&e->queue, &entry);) {
        if (!applies(e, entry))
            continue;
        const int32_t at = (int32_t)entry.second, next = e->symbols[at].next;
        symbol *s = &e->symbols[at];
        s->id = e->t->merges[entry.first].joined;
        s->next = e->symbols[next].next;
        e->symbols[next].id = -1;
        if (s->next >= 0)
            e->symbols[s->next].before = at;
        good = queue_pair(e, s->before) && queue_pair(e, at);
    }
    return good;
}

static bool put_id(encoder *e, int32_t id)
{
    if (e->count == e->capacity) {
        const size_t capacity = e->capacity ? 2 * e->capacity : 256;
        int64_t *ids = fxi_realloc(e->ids, capacity * sizeof *ids);
        if (!ids)
            return false;
        e->ids = ids;
        e->capacity = capacity;
    }
    e->ids[e->count++] = id;
    return true;
}

static bool encode_word(encoder *e, const unsigned char *word, size_t n)
{
    bool good = n < INT32_MAX &&
                fxi_grow(&e->symbols, &e->symbols_capacity, (int32_t)n, sizeof *e->symbols);
    for (int32_t i = 0; good && i < (int32_t)n; i++)
        e->symbols[i] = (symbol){e->t->byte_ids[word[i]], i - 1, i + 1 < (int32_t)n ? i + 1 : -1};
    for (int32_t i = 0; good && i < (int32_t)n; i++)
        good = queue_pair(e, i);
    good = good && merge_word(e);
    for (int32_t i = 0; good && i >= 0; i = e->symbols[i].next)
        good = put_id(e, e->symbols[i].id);
    return good;
}

static bool encode_bytes(encoder *e, const unsigned char *s, size_t n)
{
    bool good = true;
    for (size_t at = 0, end; good && at < n; at = end) {
        end = fxi_word_end(s, n, at);
        good = encode_word(e, s + at, end - at);
    }
    return good;
}

static void free_encoder(encoder *e)
{
    fxi_free(e->symbols);
    fxi_free(e->ids);
    fxi_queue_free(&e->queue);
}

fx_array *fx_tokenizer_encode(const fx_tokenizer *t, const char *text, size_t bytes)
{
    if (is_error(t))
        return fx_error_array(refuse(t, ENCODE));
    if (!text && bytes > 0)
        return fx_error_array(fx_fail(FX_STATUS_ARGUMENT, ENCODE, "the text is NULL"));
    encoder e = {.t = t};
    const bool good = encode_bytes(&e, (const unsigned char *)text, bytes);
    fx_array *ids =
        good ? fx_from(FX_DTYPE_I64, e.ids ? e.ids : &(int64_t){0}, (int64_t)e.count)
             : fx_error_array(fx_fail(FX_STATUS_MEMORY, ENCODE,
                                      "no memory for the tokens of a text of %zu bytes", bytes));
    free_encoder(&e);
    return ids;
}

/* ---- several texts --------------------------------------------------------------------------- */

/* The text without white space at its ends, and with a space before it; NULL: out of memory. The
 * caller frees it. */
static unsigned char *spaced_text(const char *text, size_t *out_n)
{
    static const char white[] = " \t\r\n\v\f";
    text += strspn(text, white);
    size_t n = strlen(text);
    while (n > 0 && strchr(white, text[n - 1]))
        n--;
    unsigned char *s = fxi_malloc(n + 1);
    if (s) {
        s[0] = ' ';
        memcpy(s + 1, text, n);
    }
    *out_n = n + 1;
    return s;
}

/* Appends the ids of text number i. */
static fx_status encode_one(encoder *e, const char *text, int64_t i, int64_t most)
{
    const size_t start = e->count;
    size_t n = 0;
    unsigned char *s = text ? spaced_text(text, &n) : NULL;
    fx_status status = FX_OK;
    if (!text || (s && n == 1))
        status = fx_fail(FX_STATUS_ARGUMENT, ENCODE_TEXTS, "text %lld is %s", (long long)i + 1,
                         text ? "empty" : "NULL");
    else if (!s || !encode_bytes(e, s, n))
        status = fx_fail(FX_STATUS_MEMORY, ENCODE_TEXTS, "no memory for the tokens of text %lld",
                         (long long)i + 1);
    fxi_free(s);
    if (most > 0 && e->count - start > (size_t)most)
        e->count = start + (size_t)most;
    return status;
}

/* The matrix of the ids, with −1 where a text is shorter than the longest one. Text i ends before
 * ends[i]. */
static fx_array *padded(const encoder *e, const size_t *ends, int64_t n)
{
    size_t longest = 0, size;
    for (int64_t i = 0; i < n; i++) {
        const size_t length = ends[i] - (i ? ends[i - 1] : 0);
        longest = length > longest ? length : longest;
    }
    const bool fits = !__builtin_mul_overflow(longest, (size_t)n, &size) && size < SIZE_MAX / 4;
    int32_t *ids = fits ? fxi_malloc(size * sizeof *ids) : NULL;
    if (!ids)
        return fx_error_array(fx_fail(FX_STATUS_MEMORY, ENCODE_TEXTS,
                                      "no memory for %zu tokens of each of %lld texts", longest,
                                      (long long)n));
    for (int64_t i = 0; i < n; i++) {
        const size_t start = i ? ends[i - 1] : 0;
        for (size_t k = 0; k < longest; k++)
            ids[(size_t)i * longest + k] = start + k < ends[i] ? (int32_t)e->ids[start + k] : -1;
    }
    fx_array *x = fx_from(FX_DTYPE_I32, ids, (int64_t)longest, n);
    fxi_free(ids);
    return x;
}

fx_array *fx_tokenizer_encode_texts(const fx_tokenizer *t, int64_t n, const char *const *texts,
                                    int64_t most)
{
    if (is_error(t))
        return fx_error_array(refuse(t, ENCODE_TEXTS));
    if (!texts || n < 1)
        return fx_error_array(fx_fail(FX_STATUS_ARGUMENT, ENCODE_TEXTS,
                                      texts ? "expected at least one text, got %lld"
                                            : "the list of %lld texts is NULL",
                                      (long long)n));
    encoder e = {.t = t};
    size_t *ends = fxi_calloc((size_t)n, sizeof *ends);
    fx_status status =
        ends ? FX_OK
             : fx_fail(FX_STATUS_MEMORY, ENCODE_TEXTS, "no memory for %lld texts", (long long)n);
    for (int64_t i = 0; status == FX_OK && i < n; i++) {
        status = encode_one(&e, texts[i], i, most);
        if (status == FX_OK)
            ends[i] = e.count;
    }
    fx_array *ids = status == FX_OK ? padded(&e, ends, n) : fx_error_array(status);
    fxi_free(ends);
    free_encoder(&e);
    return ids;
}

/* ---- decode ---------------------------------------------------------------------------------- */

static fx_status decode_ids(const fx_tokenizer *t, const int64_t *ids, int64_t n, char *dst,
                            size_t capacity, size_t *out_bytes)
{
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= t->tokens.count)
            return fx_fail(FX_STATUS_ARGUMENT, DECODE,
                           "id %lld at position %lld is not from 0 to %d", (long long)ids[i],
                           (long long)i, (int)t->tokens.count - 1);
    for (int64_t i = 0; i < n; i++) {
        size_t length;
        const unsigned char *token = fxi_strings_get(&t->tokens, (int32_t)ids[i], &length);
        const size_t left = *out_bytes < capacity ? capacity - *out_bytes : 0;
        if (left > 0)
            memcpy(dst + *out_bytes, token, length < left ? length : left);
        *out_bytes += length;
    }
    if (*out_bytes < capacity)
        dst[*out_bytes] = 0;
    return FX_OK;
}

fx_status fx_tokenizer_decode(const fx_tokenizer *t, fx_array *ids, char *dst, size_t capacity,
                              size_t *out_bytes)
{
    *out_bytes = 0;
    if (is_error(t))
        return refuse(t, DECODE);
    if (!ids || fx_is_error(ids))
        return ids ? fx_array_status(ids)
                   : fx_fail(FX_STATUS_ARGUMENT, DECODE, "the array of ids is NULL");
    const fx_dtype dtype = fx_eltype(ids);
    if (dtype != FX_DTYPE_I64 && dtype != FX_DTYPE_I32 && dtype != FX_DTYPE_U8)
        return fx_fail(FX_STATUS_DTYPE, DECODE, "ids must be integers, got %s",
                       fx_dtype_name(dtype));
    const int64_t n = fx_length(ids);
    int64_t *values = fxi_malloc((size_t)(n > 0 ? n : 1) * sizeof *values);
    fx_status status =
        values ? fx_read_as(ids, FX_DTYPE_I64, values, n)
               : fx_fail(FX_STATUS_MEMORY, DECODE, "no memory for %lld ids", (long long)n);
    if (status == FX_OK)
        status = decode_ids(t, values, n, dst, dst ? capacity : 0, out_bytes);
    fxi_free(values);
    return status;
}
