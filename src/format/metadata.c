/* metadata.c: texts by key, as an object that is saved with arrays: see metadata.h. */
#include "metadata.h"
#include "check_arguments.h"
#include "error.h"
#include "memory.h"
#include "text.h"

#include <stdlib.h>
#include <string.h>

typedef struct metadata {
    fx_object base;
    int64_t n;
    char **texts;   /* key, text, key, … */
    char ***sorted; /* addresses of the keys in `texts`, in alphabetical order */
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
    for (int64_t i = 0; i < m->n; i++) {
        fxi_text_put(text, i ? ", " : "");
        fxi_text_put_escaped(text, m->texts[2 * i]);
        fxi_text_put(text, " = ");
        fxi_text_put_quoted(text, m->texts[2 * i + 1]);
    }
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
    return strcmp(*x, *y);
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

/* A key that occurs twice; NULL if there is none. */
static const char *repeated_key(const metadata *m)
{
    for (int64_t i = 1; i < m->n; i++)
        if (strcmp(*m->sorted[i - 1], *m->sorted[i]) == 0)
            return *m->sorted[i];
    return NULL;
}

/* An error object if out of memory (recorded). */
static void *copy_texts(int n, const void *const *keys_and_texts)
{
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

void *fxi_metadata(int n, const void *const *keys_and_texts)
{
    if (n % 2 != 0)
        return failed(FX_STATUS_ARGUMENT, "keys and texts must alternate");
    fx_status status = fxi_check_list("metadata", "keys and texts", n, keys_and_texts);
    for (int i = 0; i < n && status == FX_OK; i++) {
        const char *expected = i % 2 ? "a text" : "a key";
        status = keys_and_texts[i] ? fxi_check_text("metadata", i + 1, expected, keys_and_texts[i])
                                   : fx_fail(FX_STATUS_ARGUMENT, "metadata",
                                             "argument %d is NULL; expected %s", i + 1, expected);
    }
    if (status != FX_OK)
        return fx_error_object(&fxi_metadata_type);
    void *m = copy_texts(n, keys_and_texts);
    const char *repeated = fx_is_error(m) ? NULL : repeated_key(m);
    if (!repeated)
        return m;
    fx_fail(FX_STATUS_ARGUMENT, "metadata", "two texts have the key \"%.80s\"", repeated);
    return fx_error_object(&fxi_metadata_type);
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
        m = copy_texts(t.n, (const void *const *)t.items);
    if (m && fx_is_error(m))
        b->status = FX_STATUS_MEMORY; /* already recorded */
    else if (m && repeated_key(m))
        fxi_bytes_fail(b, b->at, "the metadata contain the key \"%.80s\" twice", repeated_key(m));
    m = b->status == FX_OK ? m : NULL;
    for (int32_t i = 0; i < t.n; i++)
        fxi_free(t.items[i]);
    fxi_free(t.items);
    return m;
}
