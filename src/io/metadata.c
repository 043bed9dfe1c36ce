/* metadata.c: texts by key, as an object that is saved along with arrays. */
#include "metadata.h"
#include "memory.h"

#include <string.h>

typedef struct metadata {
    fx_object base;
    int64_t n;
    char **texts; /* key, text, key, … */
} metadata;

static void finish(void *self)
{
    metadata *m = self;
    for (int64_t i = 0; m->texts && i < 2 * m->n; i++)
        fxi_free(m->texts[i]);
    fxi_free(m->texts);
    m->texts = NULL;
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
                                   .flags = FX_TYPE_LEAF | FX_TYPE_ONE_LINE};

static void *failed(fx_status status, const char *why)
{
    fx_fail(status, "metadata", "%s", why);
    return fxi_error_object(&fxi_metadata_type);
}

void *fxi_metadata(int n, const void *const *keys_and_texts)
{
    if (n % 2 != 0)
        return failed(FX_STATUS_ARGUMENT, "keys and texts must alternate");
    for (int i = 0; i < n; i++)
        if (!keys_and_texts[i])
            return failed(FX_STATUS_ARGUMENT, "a key or text is NULL");
    const metadata none = {.n = 0};
    metadata *m = fxi_new(&fxi_metadata_type, &none);
    if (m == &error_metadata)
        return m;
    m->texts = fxi_calloc((size_t)n + 1, sizeof *m->texts);
    if (!m->texts)
        return failed(FX_STATUS_MEMORY, "no memory");
    m->n = n / 2;
    for (int i = 0; i < n; i++) {
        m->texts[i] = fxi_strdup(keys_and_texts[i]);
        if (!m->texts[i])
            return failed(FX_STATUS_MEMORY, "no memory");
    }
    return m;
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
    for (int64_t i = 0; m && key && i < m->n; i++)
        if (strcmp(m->texts[2 * i], key) == 0)
            return m->texts[2 * i + 1];
    return NULL;
}
