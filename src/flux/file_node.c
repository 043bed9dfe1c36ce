/* file_node.c: a struct read from a file for which the library has no type: see file_node.h.
 *
 * Copies of a node share its name, a text that walks skip. It is freed with the last copy.
 */
#include "file_node.h"
#include "memory.h"
#include "text.h"

#include <cflux/io.h>
#include <string.h>

/* ---- texts ----------------------------------------------------------------------------------- */

typedef struct text_object {
    fx_object base;
    char *text;
} text_object;

static void text_finish(void *self)
{
    fxi_free(((text_object *)self)->text);
}

static void text_describe(const void *self, fx_text *text)
{
    const text_object *t = self;
    fxi_text_put_quoted(text, t->text ? t->text : "");
}

static text_object text_error;
static const fx_type text_type = {.fxi_size = sizeof(fx_type),
                                  .name = "String",
                                  .size = sizeof(text_object),
                                  .describe = text_describe,
                                  .finish = text_finish,
                                  .error = &text_error,
                                  .flags = FX_TYPE_LEAF | FX_TYPE_ONE_LINE};

void *fxi_file_text(const char *text, size_t n)
{
    text_object init = {.text = fxi_malloc(n + 1)};
    if (!init.text) {
        fx_fail(FX_STATUS_MEMORY, "load", "no memory for a text of %zu bytes", n);
        return fx_error_object(&text_type);
    }
    memcpy(init.text, text, n);
    init.text[n] = 0;
    void *object = fxi_new(&text_type, &init);
    if (object == &text_error)
        fxi_free(init.text);
    return object;
}

const char *fxi_file_text_of(const void *object)
{
    return fx_is(object, &text_type) ? ((const text_object *)object)->text : NULL;
}

void *fx_string(const char *text)
{
    if (text)
        return fxi_file_text(text, strlen(text));
    fx_fail(FX_STATUS_ARGUMENT, "string", "the text is NULL");
    return fx_error_object(&text_type);
}

const char *fx_string_text(const void *object)
{
    return fxi_file_text_of(object);
}

/* ---- nodes ----------------------------------------------------------------------------------- */

typedef struct node_object {
    fx_object base;
    text_object *name;
    fx_list children;
} node_object;

static void *node_forward(void *self, int n, void *const *args)
{
    (void)n;
    (void)args;
    return fx_error_array(fx_fail(FX_STATUS_UNSUPPORTED, "call",
                                  "%s came from a file and is not a layer of this library",
                                  fxi_file_node_name(self)));
}

static void node_describe(const void *self, fx_text *text)
{
    const char *name = fxi_file_node_name(self);
    fxi_text_put_escaped(text, name ? name : "Node");
    fxi_text_put(text, "(…)");
}

static const fx_field node_fields[] = {
    {"name", offsetof(node_object, name), FX_FIELD_SHARED, false},
    {"children", offsetof(node_object, children), FX_FIELD_LIST, false}};
static node_object node_error;
static const fx_type node_type = {.fxi_size = sizeof(fx_type),
                                  .name = "Node",
                                  .size = sizeof(node_object),
                                  .fields = node_fields,
                                  .nfields = 2,
                                  .forward = node_forward,
                                  .describe = node_describe,
                                  .error = &node_error,
                                  .flags = FX_TYPE_INTERNAL};

void *fxi_file_node(const char *name, int n, const char *const *names, void *const *children)
{
    FXI_SCOPE;
    node_object init = {.name = fxi_file_text(name, strlen(name)), .children = {.n = n}};
    if (fx_is_error(init.name))
        return fx_error_object(&node_type);
    init.children.items = (void **)(uintptr_t)children;
    init.children.names = (char **)(uintptr_t)names;
    return fxi_keep(fxi_new(&node_type, &init));
}

const char *fxi_file_node_name(const void *object)
{
    return fx_is(object, &node_type) ? fxi_file_text_of(((const node_object *)object)->name) : NULL;
}
