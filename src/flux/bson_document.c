/* bson_document.c: checks a BSON document once and then reads its values in place.
 *
 * The check keeps its own stack of libbson's iterators. Nothing is copied: a value points into the
 * file. A lookup searches the enclosing document from its start; documents with a tag are
 * short. Element types that BSON.jl never writes (dates, regular expressions, code, …) are refused
 * with their offset, because they have no meaning in a model.
 */
#include "bson_document.h"
#include "memory.h"

#include <stdlib.h>
#include <string.h>

static fxi_bson value_of(const bson_iter_t *iter)
{
    fxi_bson v = {FXI_BSON_NOTHING, 0, {0}};
    bson_subtype_t subtype;
    switch (bson_iter_type(iter)) {
    case BSON_TYPE_NULL:
        v.kind = FXI_BSON_NULL;
        break;
    case BSON_TYPE_BOOL:
        v.kind = FXI_BSON_BOOL;
        v.u.integer = bson_iter_bool(iter);
        break;
    case BSON_TYPE_INT32:
    case BSON_TYPE_INT64:
        v.kind = FXI_BSON_INT;
        v.size = bson_iter_type(iter) == BSON_TYPE_INT32 ? sizeof(int32_t) : sizeof(int64_t);
        v.u.integer = bson_iter_as_int64(iter);
        break;
    case BSON_TYPE_DOUBLE:
        v.kind = FXI_BSON_DOUBLE;
        v.u.number = bson_iter_double(iter);
        break;
    case BSON_TYPE_UTF8:
        v.kind = FXI_BSON_STRING;
        v.u.text = bson_iter_utf8(iter, &v.size);
        break;
    case BSON_TYPE_BINARY:
        v.kind = FXI_BSON_BINARY;
        bson_iter_binary(iter, &subtype, &v.size, &v.u.bytes);
        break;
    case BSON_TYPE_DOCUMENT:
        v.kind = FXI_BSON_DOCUMENT;
        bson_iter_document(iter, &v.size, &v.u.bytes);
        break;
    case BSON_TYPE_ARRAY:
        v.kind = FXI_BSON_ARRAY;
        bson_iter_array(iter, &v.size, &v.u.bytes);
        break;
    default:
        break;
    }
    return v;
}

fxi_bson_items fxi_bson_items_of(fxi_bson container)
{
    fxi_bson_items items;
    memset(&items, 0, sizeof items);
    items.open = (container.kind == FXI_BSON_DOCUMENT || container.kind == FXI_BSON_ARRAY) &&
                 bson_iter_init_from_data(&items.iter, container.u.bytes, container.size);
    return items;
}

bool fxi_bson_next(fxi_bson_items *items, fxi_bson *out_value)
{
    items->open = items->open && bson_iter_next(&items->iter);
    if (!items->open)
        return false;
    items->key = bson_iter_key(&items->iter);
    *out_value = value_of(&items->iter);
    return true;
}

int64_t fxi_bson_count(fxi_bson container)
{
    fxi_bson_items items = fxi_bson_items_of(container);
    fxi_bson v;
    int64_t n = 0;
    while (fxi_bson_next(&items, &v))
        n++;
    return n;
}

fxi_bson fxi_bson_get(fxi_bson document, const char *key)
{
    fxi_bson_items items = fxi_bson_items_of(document);
    fxi_bson v;
    while (document.kind == FXI_BSON_DOCUMENT && fxi_bson_next(&items, &v))
        if (strcmp(items.key, key) == 0)
            return v;
    return (fxi_bson){FXI_BSON_NOTHING, 0, {0}};
}

fxi_bson fxi_bson_tag(fxi_bson document)
{
    fxi_bson_items items = fxi_bson_items_of(document);
    fxi_bson v;
    for (int i = 0;
         document.kind == FXI_BSON_DOCUMENT && i < FXI_BSON_MAX_TAGGED && fxi_bson_next(&items, &v);
         i++)
        if (strcmp(items.key, "tag") == 0)
            return v;
    return (fxi_bson){FXI_BSON_NOTHING, 0, {0}};
}

fxi_bson fxi_bson_at(fxi_bson array, int64_t i)
{
    fxi_bson_items items = fxi_bson_items_of(array);
    fxi_bson v;
    while (array.kind == FXI_BSON_ARRAY && i >= 0 && fxi_bson_next(&items, &v))
        if (i-- == 0)
            return v;
    return (fxi_bson){FXI_BSON_NOTHING, 0, {0}};
}

bool fxi_bson_is(fxi_bson value, const char *text)
{
    return value.kind == FXI_BSON_STRING && value.size == strlen(text) &&
           memcmp(value.u.text, text, value.size) == 0;
}

/* ---- the check ------------------------------------------------------------------------------- */

/* libbson's iterator type requires an alignment that does not divide its size. */
typedef struct level {
    bson_iter_t iter;
} level;

typedef struct checker {
    fxi_bytes *b;
    level *stack;
    int depth;
} checker;

/* ---- keys, each once ------------------------------------------------------------------------- */

/* A key and its offset `at` in the file. */
typedef struct key_offset {
    const char *key;
    size_t at;
} key_offset;

static int by_key(const void *a, const void *b)
{
    const key_offset *x = a, *y = b;
    const int order = strcmp(x->key, y->key);
    return order ? order : (x->at > y->at) - (x->at < y->at);
}

/* Refuses duplicates among the sorted keys; reports the first one in the file. */
static bool each_once(fxi_bytes *b, const key_offset *keys, int64_t n)
{
    const key_offset *twice = NULL;
    for (int64_t i = 1; i < n; i++)
        if (strcmp(keys[i].key, keys[i - 1].key) == 0 && (!twice || keys[i].at < twice->at))
            twice = &keys[i];
    if (twice)
        fxi_bytes_fail(b, twice->at, "a document contains the key \"%.60s\" twice", twice->key);
    return !twice;
}

/* BSON.jl writes at most five keys into a document with a tag. */
static bool few_if_tagged(fxi_bytes *b, const key_offset *keys, int64_t n)
{
    const key_offset *tag = NULL;
    for (int64_t i = 0; i < n && n > FXI_BSON_MAX_TAGGED; i++)
        if (strcmp(keys[i].key, "tag") == 0)
            tag = &keys[i];
    if (tag)
        fxi_bytes_fail(b, tag->at,
                       "a document with the key \"tag\" has %lld keys, expected at most %d",
                       (long long)n, (int)FXI_BSON_MAX_TAGGED);
    return !tag;
}

/* Duplicate keys are refused as damage, because readers differ in which value they take. Keys of
 * arrays are exempt: no reader looks at them. */
static bool good_keys(checker *c, const uint8_t *data, size_t size)
{
    enum { FEW = 16 };
    key_offset few[FEW], *keys = few;
    const fxi_bson document = {FXI_BSON_DOCUMENT, (uint32_t)size, {.bytes = data}};
    const int64_t n = fxi_bson_count(document);
    if (n > FEW)
        keys = fxi_malloc((size_t)n * sizeof *keys);
    if (!keys) {
        c->b->status = fx_fail(FX_STATUS_MEMORY, c->b->op, "%s: no memory for %lld keys",
                               c->b->path, (long long)n);
        return false;
    }
    fxi_bson_items items = fxi_bson_items_of(document);
    fxi_bson v;
    for (int64_t i = 0; fxi_bson_next(&items, &v); i++)
        keys[i] = (key_offset){items.key, (size_t)((const unsigned char *)items.key - c->b->data)};
    qsort(keys, (size_t)n, sizeof *keys, by_key);
    const bool good = each_once(c->b, keys, n) && few_if_tagged(c->b, keys, n);
    if (keys != few)
        fxi_free(keys);
    return good;
}

static bool enter(checker *c, const uint8_t *data, size_t size)
{
    const size_t at = (size_t)(data - c->b->data);
    if (c->depth == FXI_BSON_MAX_NESTING)
        fxi_bytes_fail(c->b, at, "nested deeper than %d", FXI_BSON_MAX_NESTING);
    else if (!bson_iter_init_from_data(&c->stack[c->depth].iter, data, size))
        fxi_bytes_fail(c->b, at, "a document with a wrong length, %zu, or a wrong end", size);
    else
        return ++c->depth > 0;
    return false;
}

static size_t offset_of(const checker *c, const bson_iter_t *iter, uint32_t offset)
{
    return (size_t)(iter->raw - c->b->data) + offset;
}

static bool check_value(checker *c, const bson_iter_t *iter)
{
    const size_t at = offset_of(c, iter, bson_iter_offset((bson_iter_t *)(uintptr_t)iter));
    const char *key = bson_iter_key(iter);
    const fxi_bson v = value_of(iter);
    if (!bson_utf8_validate(key, strlen(key), false))
        return fxi_bytes_fail(c->b, at, "a key that is not UTF-8") == FX_OK;
    if (v.kind == FXI_BSON_NOTHING)
        return fxi_bytes_fail(c->b, at, "\"%.60s\" has type 0x%02x, which Flux does not write", key,
                              (unsigned)bson_iter_type(iter)) == FX_OK;
    if (v.kind == FXI_BSON_STRING && !bson_utf8_validate(v.u.text, v.size, true))
        return fxi_bytes_fail(c->b, at, "\"%.60s\" is a text that is not UTF-8", key) == FX_OK;
    if (v.kind == FXI_BSON_DOCUMENT && !good_keys(c, v.u.bytes, v.size))
        return false;
    return (v.kind != FXI_BSON_DOCUMENT && v.kind != FXI_BSON_ARRAY) || enter(c, v.u.bytes, v.size);
}

static bool check(checker *c)
{
    while (c->depth > 0) {
        bson_iter_t *iter = &c->stack[c->depth - 1].iter;
        const size_t at = offset_of(
            c, iter, 0); /* saved now: after an error libbson no longer knows the offset */
        if (bson_iter_next(iter)) {
            if (!check_value(c, iter))
                return false;
        } else if (iter->err_off) {
            fxi_bytes_fail(c->b, at + iter->err_off,
                           "a value that is damaged or extends past the end of its document");
            return false;
        } else {
            c->depth--;
        }
    }
    return true;
}

fxi_bson fxi_bson_open(fxi_bytes *b)
{
    const fxi_bson nothing = {FXI_BSON_NOTHING, 0, {0}};
    const size_t length = (size_t)fxi_bytes_number(b, 4, "the length of the document");
    if (b->status != FX_OK)
        return nothing;
    if (length != b->size || length < 5) {
        fxi_bytes_fail(b, 0, "the document should have %zu bytes, but the file has %zu", length,
                       b->size);
        return nothing;
    }
    checker c = {.b = b,
                 .stack = fxi_aligned(_Alignof(level), FXI_BSON_MAX_NESTING * sizeof(level))};
    if (!c.stack) {
        b->status = fx_fail(FX_STATUS_MEMORY, b->op, "%s: no memory to check the file", b->path);
        return nothing;
    }
    const bool good = good_keys(&c, b->data, b->size) && enter(&c, b->data, b->size) && check(&c);
    fxi_free(c.stack);
    return good ? (fxi_bson){FXI_BSON_DOCUMENT, (uint32_t)length, {.bytes = b->data}} : nothing;
}
