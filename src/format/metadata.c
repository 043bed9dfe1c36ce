/* metadata.c: texts by key, as an object that is saved with arrays: see metadata.h. */
#include "metadata.h"
#include "check_arguments.h"
#include "memory.h"

#include <stdlib.h>
#include <string.h>

typedef struct metadata {
    fx_object base;
    int64_t n;
    char **texts; /* key, text, key, … */
    /* Addresses of the keys in `texts`, in alphabetical order; equal keys keep their order. */
    char ***sorted;
} metadata;

static void finish(void *self)
{
    metadata *m = self;
    for (int64_t i = 0; m->texts && i < 2 * m->n; i++)
        fxi_free(m->texts[i]);
    fxi_free(m->texts);
    fxi_free((void *)m->sorted);
    m->texts = NULL;
    m->sorted = NULL;
    m->n = 0;
}

static void describe(const void *self, fx_text *text)
{
    const metadata *m = self;
    fx_text_add(text, "Metadata(");
    for (int64_t i = 0; i < m->n; i++)
        fx_text_add(text, "%s%s = \"%s\"", i ? ", " : "", m->texts[2 * i], m->texts[2 * i + 1]);
    fx_text_add(text, ")");
}

static metadata error_metadata;
const fx_type fxi_metadata_type = {.fxi_size = sizeof(fx_type),
                                   .name = "Metadata",
                                   .size = sizeof(metadata),
                                   .describe = describe,
                                   .finish = finish,
                                   .error = &error_metadata,
                                   .flags = FX_TYPE_LEAF | FX_TYPE_ONE_LINE | FX_TYPE_INTERNAL};

static void *failed(fx_status status, const char *why)
{
    fx_fail(status, "metadata", "%s", why);
    return fx_error_object(&fxi_metadata_type);
}

static int by_key(const void *a, const void *b)
{
    char *const *const x = *(char **const *)a, *const *const y = *(char **const *)b;
    const int order = strcmp(*x, *y);
    return order ? order : (x > y) - (x < y);
}

static bool sort_keys(metadata *m)
{
    m->sorted = fxi_calloc((size_t)m->n + 1, sizeof *m->sorted);
    for (int64_t i = 0; m->sorted && i < m->n; i++)
        m->sorted[i] = &m->texts[2 * i];
    if (m->sorted)
        qsort((void *)m->sorted, (size_t)m->n, sizeof *m->sorted, by_key);
    return m->sorted != NULL;
}

void *fxi_metadata(int n, const void *const *keys_and_texts)
{
    if (n % 2 != 0)
        return failed(FX_STATUS_ARGUMENT, "keys and texts must alternate");
    for (int i = 0; i < n; i++)
        if (!keys_and_texts[i])
            return failed(FX_STATUS_ARGUMENT, "a key or text is NULL");
    for (int i = 0; i < n; i++)
        if (fxi_check_text("metadata", i + 1, i % 2 ? "a text" : "a key", keys_and_texts[i]) !=
            FX_OK)
            return fx_error_object(&fxi_metadata_type);
    const metadata none = {.n = 0};
    metadata *m = fxi_new(&fxi_metadata_type, &none);
    if (m == &error_metadata)
        return m;
    m->texts = fxi_calloc((size_t)n + 1, sizeof *m->texts);
    if (!m->texts)
        return failed(FX_STATUS_MEMORY, "out of memory");
    m->n = n / 2;
    for (int i = 0; i < n; i++) {
        m->texts[i] = fxi_strdup(keys_and_texts[i]);
        if (!m->texts[i])
            return failed(FX_STATUS_MEMORY, "out of memory");
    }
    return sort_keys(m) ? (void *)m : failed(FX_STATUS_MEMORY, "out of memory");
}

static const metadata *as_metadata(const void *object)
{
    return object && fx_is(object, &fxi_metadata_type) ? object : NULL;
}

int64_t fx_metadata_count(const void *object)
{
    const metadata *m = as_metadata(object);
    return m ? m->n : 0;
}

const char *fx_metadata_key(const void *object, int64_t i)
{
    const metadata *m = as_metadata(object);
    return m && i >= 0 && i < m->n ? m->texts[2 * i] : NULL;
}

const char *fx_metadata_text(const void *object, const char *key)
{
    const metadata *m = as_metadata(object);
    int64_t low = 0, high = m && key ? m->n : 0;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (strcmp(*m->sorted[middle], key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return m && key && low < m->n && strcmp(*m->sorted[low], key) == 0 ? m->sorted[low][1] : NULL;
}

/* ---- as JSON --------------------------------------------------------------------------------- */

void fxi_metadata_put(fx_json *out, const char *name, const void *object)
{
    fx_json_open(out, name, '{');
    for (int64_t i = 0; i < fx_metadata_count(object); i++) {
        const char *key = fx_metadata_key(object, i);
        fx_json_text(out, key, fx_metadata_text(object, key));
    }
    fx_json_close(out);
}

typedef struct texts {
    char **items; /* key, text, key, … */
    int32_t n, capacity;
} texts;

static void add_text(fxi_bytes *b, texts *t, char *text)
{
    if (b->status == FX_OK && !fxi_grow(&t->items, &t->capacity, t->n + 1, sizeof *t->items))
        b->status = fx_fail(FX_STATUS_MEMORY, b->op, "%s: out of memory", b->path);
    if (text && b->status == FX_OK)
        t->items[t->n++] = text;
    else
        fxi_free(text);
}

void *fxi_metadata_read(fxi_bytes *b)
{
    texts t = {.n = 0};
    fxi_json_expect(b, '{');
    for (bool first = true; b->status == FX_OK && fxi_json_more(b, '}', first); first = false) {
        add_text(b, &t, fxi_json_string(b));
        fxi_json_expect(b, ':');
        add_text(b, &t, fxi_json_string(b));
    }
    void *m = NULL;
    if (b->status == FX_OK && t.n > 0)
        m = fxi_metadata(t.n, (const void *const *)t.items);
    if (m && fx_is_error(m)) {
        b->status = FX_STATUS_MEMORY; /* already recorded */
        m = NULL;
    }
    for (int32_t i = 0; i < t.n; i++)
        fxi_free(t.items[i]);
    fxi_free(t.items);
    return m;
}
