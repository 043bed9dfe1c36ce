/* json_value.c: reads JSON (RFC 8259) into a tree of values: see json_value.h. The only recursion
 * is over nested lists and objects, and its depth is limited. */
#include "json_value.h"
#include "c_text.h"
#include "json.h"
#include "memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static fxi_json *read_value(fxi_bytes *b, int depth);

/* ---- numbers --------------------------------------------------------------------------------- */

static bool is_digit(const fxi_bytes *b, size_t at)
{
    return at < b->size && b->data[at] >= '0' && b->data[at] <= '9';
}

static bool is_one_of(const fxi_bytes *b, size_t at, const char *characters)
{
    return at < b->size && b->data[at] && strchr(characters, b->data[at]);
}

static size_t after_digits(const fxi_bytes *b, size_t at)
{
    while (is_digit(b, at))
        at++;
    return at;
}

/* The end of the number (RFC 8259, section 6) that begins at `at`; `at` itself if none does. */
static size_t end_of_number(const fxi_bytes *b, size_t at)
{
    const size_t first = at + is_one_of(b, at, "-");
    size_t end = is_one_of(b, first, "0") ? first + 1 : after_digits(b, first);
    if (end == first)
        return at;
    if (is_one_of(b, end, ".") && is_digit(b, end + 1))
        end = after_digits(b, end + 1);
    const size_t power = end + 1 + is_one_of(b, end + 1, "+-");
    return is_one_of(b, end, "eE") && is_digit(b, power) ? after_digits(b, power) : end;
}

static fx_status no_memory(fxi_bytes *b)
{
    return b->status = fx_fail(FX_STATUS_MEMORY, b->op, "%s: no memory for its JSON", b->path);
}

static void read_number(fxi_bytes *b, fxi_json *out)
{
    const size_t n = end_of_number(b, b->at) - b->at;
    char few[64], *text = n < sizeof few ? few : fxi_malloc(n + 1);
    if (n == 0)
        fxi_bytes_fail(b, b->at, "expected a value");
    else if (!text)
        no_memory(b);
    if (b->status != FX_OK)
        return;
    memcpy(text, b->data + b->at, n);
    text[n] = 0;
    b->at += n;
    out->kind = FXI_JSON_NUMBER;
    out->number = fxi_strtod(text, NULL);
    if (text != few)
        fxi_free(text);
}

/* ---- other values ---------------------------------------------------------------------------- */

static void read_word(fxi_bytes *b, fxi_json *out)
{
    static const struct {
        const char *text;
        fxi_json_kind kind;
        bool flag;
    } words[] = {{"null", FXI_JSON_NULL, false},
                 {"true", FXI_JSON_FLAG, true},
                 {"false", FXI_JSON_FLAG, false}};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        const size_t n = strlen(words[i].text);
        if (fxi_bytes_left(b) < n || memcmp(b->data + b->at, words[i].text, n) != 0)
            continue;
        b->at += n;
        out->kind = words[i].kind;
        out->flag = words[i].flag;
        return;
    }
    fxi_bytes_fail(b, b->at, "expected a value");
}

/* Reads the values of a list, or of an object, whose values have names. Starts after the opening
 * bracket. */
static void read_children(fxi_bytes *b, fxi_json *out, int depth)
{
    const bool object = out->kind == FXI_JSON_OBJECT;
    fxi_json **end = &out->child;
    if (depth == FXI_IO_MAX_DEPTH) {
        fxi_bytes_fail(b, b->at, "lists and objects nested more than %d levels deep", depth);
        return;
    }
    while (fxi_json_more(b, object ? '}' : ']', end == &out->child)) {
        char *name = object ? fxi_json_string(b) : NULL;
        if (object && name)
            fxi_json_expect(b, ':');
        fxi_json *value = b->status == FX_OK ? read_value(b, depth + 1) : NULL;
        if (!value) {
            fxi_free(name);
            return;
        }
        value->name = name;
        *end = value;
        end = &value->next;
    }
}

static void read_into(fxi_bytes *b, fxi_json *out, int depth)
{
    const unsigned char c = fxi_json_peek(b);
    if (c == '{' || c == '[') {
        b->at++;
        out->kind = c == '{' ? FXI_JSON_OBJECT : FXI_JSON_LIST;
        read_children(b, out, depth);
    } else if (c == '"') {
        out->kind = FXI_JSON_TEXT;
        out->text = fxi_json_string(b);
    } else if (c == '-' || (c >= '0' && c <= '9')) {
        read_number(b, out);
    } else {
        read_word(b, out);
    }
}

static fxi_json *read_value(fxi_bytes *b, int depth)
{
    fxi_json *value = fxi_calloc(1, sizeof *value);
    if (!value)
        no_memory(b);
    else
        read_into(b, value, depth);
    if (b->status == FX_OK)
        return value;
    fxi_json_free(value);
    return NULL;
}

fxi_json *fxi_json_read(fxi_bytes *b)
{
    fxi_json *value = b->status == FX_OK ? read_value(b, 0) : NULL;
    fxi_json_peek(b);
    if (value && fxi_bytes_left(b) > 0) {
        fxi_bytes_fail(b, b->at, "text after the value");
        fxi_json_free(value);
        return NULL;
    }
    return value;
}

void fxi_json_free(fxi_json *value)
{
    while (value) {
        fxi_json *next = value->next;
        fxi_json_free(value->child);
        fxi_free(value->text);
        fxi_free(value->name);
        fxi_free(value);
        value = next;
    }
}

/* ---- looking into values --------------------------------------------------------------------- */

bool fxi_json_is(const fxi_json *value, fxi_json_kind kind)
{
    return value && value->kind == kind;
}

const fxi_json *fxi_json_member(const fxi_json *object, const char *name)
{
    const fxi_json *v = fxi_json_is(object, FXI_JSON_OBJECT) ? object->child : NULL;
    while (v && strcmp(v->name, name) != 0)
        v = v->next;
    return v;
}

const fxi_json *fxi_json_item(const fxi_json *list, size_t index)
{
    const fxi_json *v = list ? list->child : NULL;
    while (v && index-- > 0)
        v = v->next;
    return v;
}

size_t fxi_json_length(const fxi_json *list)
{
    size_t n = 0;
    for (const fxi_json *v = list ? list->child : NULL; v; v = v->next)
        n++;
    return n;
}

const char *fxi_json_text_of(const fxi_json *value)
{
    return value ? value->text : NULL;
}

double fxi_json_number_of(const fxi_json *value)
{
    return fxi_json_is(value, FXI_JSON_NUMBER) && isfinite(value->number) ? value->number : NAN;
}
