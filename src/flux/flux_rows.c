/* flux_rows.c: finds rows of layer tables by Flux's names: see flux_rows.h. The tables are short,
 * so searches are linear. */
#include "flux_rows.h"

#include <string.h>

bool fxi_next_word(const char **io_at, fxi_word *out)
{
    if (!*io_at)
        return false;
    const char *from = *io_at + strspn(*io_at, " ");
    const size_t n = strcspn(from, " ");
    *io_at = from + n;
    *out = (fxi_word){from, (int)n};
    return n > 0;
}

int fxi_count_words(const char *words)
{
    int n = 0;
    for (fxi_word w; fxi_next_word(&words, &w);)
        n++;
    return n;
}

int fxi_word_position(const char *words, fxi_word word)
{
    fxi_word w;
    for (int i = 0; fxi_next_word(&words, &w); i++)
        if (w.n == word.n && strncmp(w.from, word.from, (size_t)w.n) == 0)
            return i;
    return -1;
}

const fx_layer_row *fxi_row(const fx_layer *layer, int i)
{
    const char *at = (const char *)layer->rows + (size_t)i * layer->row_size;
    return (const fx_layer_row *)(const void *)at;
}

int fxi_row_of_flux(const fx_layer *layer, fxi_word name)
{
    for (int i = 0; i < layer->nrows; i++)
        if (fxi_word_position(fxi_row(layer, i)->flux, name) >= 0)
            return i;
    return -1;
}

int fxi_row_named(const fx_layer *layer, const char *name)
{
    for (int i = 0; i < layer->nrows; i++)
        if (fxi_row(layer, i)->member && strcmp(fxi_row(layer, i)->name, name) == 0)
            return i;
    return -1;
}

const fx_field *fxi_field_of_row(const fx_type *type, const fx_layer_row *row)
{
    for (int i = 0; row->member && i < type->nfields; i++)
        if (type->fields[i].offset == row->member)
            return &type->fields[i];
    return NULL;
}

void **fxi_child_address(const fx_layer_row *row, const void *layer)
{
    return (void **)(void *)((char *)(uintptr_t)layer + row->member);
}

const fx_type *fxi_next_type_of_flux(const char *name, int64_t *io_i)
{
    const fxi_word word = {name, (int)strlen(name)};
    for (const fx_type *type; (type = fx_layer_type(*io_i)); (*io_i)++) {
        const fx_layer *layer = fx_layer_of(type);
        if (layer->forms && fxi_word_position(layer->flux, word) >= 0)
            return type;
    }
    return NULL;
}

const fx_type *fxi_type_of_flux(const char *name)
{
    return fxi_next_type_of_flux(name, &(int64_t){0});
}
