/* show_model.c: prints models in Flux's notation and columns; entry points of printing.
 *
 * The rules are those of Flux 0.16 (src/layers/show.jl): a container takes several lines if one of
 * its children is more than arrays, numbers and functions; a comment begins after 20 characters at
 * the top level and after 40 inside; the total is printed if there are more than two trainable
 * arrays. Sizes in bytes equal Julia's summarysize of the same model on a CPU. For a model on
 * another device they are the bytes of its arrays on that device, which is the number that users
 * need there.
 *
 * Flux counts a tied array twice among the non-trainable ones; this file counts it once.
 *
 * Objects for which Flux has no notation are printed as Julia prints them, with values: tuples and
 * named tuples without a layer (a state), and structs: Affine(Float32[1.0 2.0], 0.5).
 *
 * Sharing can give an object very many paths: 30 nested pairs, each holding the next pair twice,
 * have 2^30 leaves. Two rules keep text and time proportional to the number of objects: after
 * FULL_LINES lines, an object of several lines that was already printed becomes Name(…), and a line
 * ends after MOST_LINE bytes.
 */
#include "julia_number.h"
#include "identity_map.h"
#include "model_tally.h"
#include "object_types.h"
#include "show_array.h"
#include "show_parts.h"

#include <cflux/device.h>
#include <ctype.h>
#include <string.h>

enum { TOP_COLUMN = 20, NESTED_COLUMN = 39, INDENT = 2 };
enum { FULL_LINES = 1000, MOST_LINE = 1 << 16, MOST_SUMMARY = 1 << 24 };

/* ---- one line -------------------------------------------------------------------------------- */

static void put_object(fx_text *text, const void *object, int depth);

static bool is_full(const fx_text *text)
{
    return text->failed || (text->limit && text->length > text->limit);
}

static void put_dims(fx_text *text, const fx_dims *d)
{
    fxi_text_put(text, "(");
    for (int64_t i = 0; i < d->n && i < 2 * FX_MAX_DIMS; i++)
        fx_text_add(text, i ? ", %lld" : "%lld", (long long)d->v[i]);
    fxi_text_put(text, d->n == 1 ? ",)" : ")");
}

static void put_string(fx_text *text, const char *s)
{
    if (!s) {
        fxi_text_put(text, "nothing");
        return;
    }
    fxi_text_put_quoted(text, s);
}

static void put_field(fx_text *text, const fxi_part *p)
{
    char buf[FXI_NUMBER_TEXT];
    switch (p->field->kind) {
    case FX_FIELD_NUMBER:
        fxi_text_put(text, fxi_number_text(FX_DTYPE_F64, p->at, FXI_NUMBER_ALONE, buf));
        break;
    case FX_FIELD_INTEGER:
        fxi_text_put(text, fxi_number_text(FX_DTYPE_I64, p->at, FXI_NUMBER_ALONE, buf));
        break;
    case FX_FIELD_FLAG:
        fxi_text_put(text, fxi_number_text(FX_DTYPE_BOOL, p->at, FXI_NUMBER_ALONE, buf));
        break;
    case FX_FIELD_DIMS:
        put_dims(text, p->at);
        break;
    case FX_FIELD_INT:
        fx_text_add(text, "%d", *(const int *)p->at);
        break;
    case FX_FIELD_FLOAT:
        fxi_text_put(text, fxi_number_text(FX_DTYPE_F32, p->at, FXI_NUMBER_ALONE, buf));
        break;
    case FX_FIELD_STRING:
        put_string(text, *(const char *const *)p->at);
        break;
    default:
        break;
    }
}

/* Julia writes a name that is not an identifier as var"0.weight". */
static void put_name(fx_text *text, const char *name)
{
    bool plain = *name && !strchr("0123456789", *name);
    for (const char *s = name; *s && plain; s++)
        plain = (unsigned char)*s >= 0x80 || isalnum((unsigned char)*s) || strchr("_!", *s);
    if (plain || !text->values) {
        fxi_text_put_escaped(text, name);
    } else {
        fxi_text_put(text, "var");
        fxi_text_put_quoted(text, name);
    }
    fxi_text_put(text, " = ");
}

/* name = value */
static void put_part(fx_text *text, const fxi_part *p, int depth)
{
    if (p->name)
        put_name(text, p->name);
    if (p->is_object)
        put_object(text, p->object, depth);
    else
        put_field(text, p);
}

/* Name(a, b), or (a, b) and (x = a,) for tuples. */
static void put_parts(fx_text *text, const void *object, int depth)
{
    const fx_list *tuple = fxi_tuple_list(object);
    fxi_parts it = {.object = object, .frozen = true};
    int n = 0;
    const bool empty = tuple && tuple->n == 0 && tuple->names && text->values;
    fx_text_add(text, "%s(", !tuple ? fx_type_of(object)->name : empty ? "NamedTuple" : "");
    for (fxi_part p; !is_full(text) && fxi_next_part(&it, &p); n++) {
        fxi_text_put(text, n ? ", " : "");
        put_part(text, &p, depth + 1);
    }
    if (is_full(text))
        fxi_text_put(text, ", …");
    fxi_text_put(text, tuple && n == 1 ? ",)" : ")");
}

static void put_object(fx_text *text, const void *object, int depth)
{
    const fx_type *type = fx_type_of(object);
    if (!type)
        fxi_text_put(text, "nothing");
    else if (fx_is_array(object) && text->values)
        fxi_array_inline(text, object);
    else if (fx_is_array(object))
        fxi_array_summary(text, object, true);
    else if (fx_is_error(object))
        fx_text_add(text, "error %s (%s)", type->name, fx_status_name(fxi_object_status(object)));
    else if (depth > FXI_MAX_DEPTH || is_full(text))
        fxi_text_put(text, "…");
    else if (type->describe && !(type->flags & FX_TYPE_SEQUENCE))
        type->describe(object, text);
    else if (type->flags & FX_TYPE_FUNCTION)
        fxi_text_put(text, ((const fx_function *)object)->name);
    else
        put_parts(text, object, depth);
}

/* ---- comments -------------------------------------------------------------------------------- */

/* 51018 → 51_018 */
static void put_count(fx_text *text, int64_t n)
{
    char digits[24];
    const int length = snprintf(digits, sizeof digits, "%lld", (long long)n);
    for (int i = 0; i < length; i++)
        fx_text_add(text, "%s%c", i && (length - i) % 3 == 0 ? "_" : "", digits[i]);
}

static void put_state(fx_text *text, const fxi_tally *t)
{
    if (!t->nonzero)
        fxi_text_put(text, "  (all zero)");
    else if (t->nan)
        fxi_text_put(text, "  (some NaN)");
    else if (t->inf)
        fxi_text_put(text, "  (some Inf)");
}

/* "# 9 parameters, plus 4 non-trainable  (all zero)" after a line of `width` characters. */
static void put_comment(fx_text *text, void *object, int64_t indent, int64_t width)
{
    if (!fxi_has_parameters(object))
        return;
    const fxi_tally t = fxi_tally_of(object, true);
    if (t.arrays == 0)
        return;
    const int64_t pad = (indent ? NESTED_COLUMN : TOP_COLUMN) - indent - width;
    fxi_text_pad(text, pad > 2 ? pad : 2);
    fxi_text_put(text, "# ");
    put_count(text, t.parameters);
    fxi_text_put(text, " parameters");
    if (t.other_parameters > 0) {
        fxi_text_put(text, ", plus ");
        put_count(text, t.other_parameters);
        fxi_text_put(text, indent ? "" : " non-trainable");
    }
    put_state(text, &t);
}

static void put_total_bytes(fx_text *text, const fxi_tally *t, const void *object)
{
    const bool elsewhere = t->device != fx_cpu_device();
    int64_t bytes = t->bytes;
    if (!elsewhere &&
        __builtin_add_overflow(t->bytes_julia, fxi_struct_bytes(text, object), &bytes))
        bytes = INT64_MAX;
    fxi_text_bytes(text, bytes);
    if (elsewhere)
        fx_text_add(text, " on %s", t->device ? fx_device_name(t->device) : "several devices");
    fxi_text_put(text, ".");
}

static void put_total(fx_text *text, void *object)
{
    const fxi_tally t = fxi_tally_of(object, false);
    if (t.arrays <= 2 || !fxi_holds_layer(object))
        return;
    const bool others = t.other_arrays > 0;
    fxi_text_pad(text, others ? 8 : 18);
    fx_text_add(text, "# Total: %lld %sarrays, ", (long long)t.arrays, others ? "trainable " : "");
    put_count(text, t.parameters);
    fxi_text_put(text, " parameters,");
    if (others) {
        fxi_text_put(text, "\n");
        fxi_text_pad(text, 10);
        fx_text_add(text, "# plus %lld non-trainable, ", (long long)t.other_arrays);
        put_count(text, t.other_parameters);
        fxi_text_put(text, " parameters, summarysize");
    }
    fxi_text_put(text, " ");
    put_total_bytes(text, &t, object);
}

/* ---- several lines --------------------------------------------------------------------------- */

typedef struct page {
    fx_text *text;
    fxi_identity_map shown; /* objects already printed over several lines */
    int64_t lines;
} page;

static void put_tree(page *to, const fxi_part *p, int64_t indent);

/* "Chain(", "(" for a tuple, "(;" for a named one. */
static void put_opening(fx_text *text, const fxi_part *p)
{
    const fx_list *list = fxi_tuple_list(p->object);
    if (p->name)
        put_name(text, p->name);
    fx_text_add(text, "%s(%s\n", list ? "" : fx_type_of(p->object)->name,
                list && list->names ? ";" : "");
}

static void put_container(page *to, const fxi_part *p, int64_t indent)
{
    fx_text *text = to->text;
    text->failed |= !fxi_identity_put(&to->shown, p->object, NULL);
    put_opening(text, p);
    fxi_parts it = {.object = p->object};
    for (fxi_part child; !text->failed && fxi_next_part(&it, &child);)
        put_tree(to, &child, indent + INDENT);
    fxi_text_pad(text, indent);
    if (indent) {
        fxi_text_put(text, "),\n");
        return;
    }
    fxi_text_put(text, ") ");
    put_total(text, p->object);
}

/* "Chain(…),  # shown above" */
static void put_reference(fx_text *text, const fxi_part *p, int64_t indent)
{
    const size_t start = text->length;
    if (p->name)
        put_name(text, p->name);
    fx_text_add(text, "%s(…),", fxi_tuple_list(p->object) ? "" : fx_type_of(p->object)->name);
    const int64_t pad = NESTED_COLUMN + 1 - indent - fxi_text_width(text, start);
    fxi_text_pad(text, pad > 2 ? pad : 2);
    fxi_text_put(text, "# shown above\n");
}

/* Arrays of a struct or tuple are printed inside the line with their values; arrays on a line of
 * their own are printed by their sizes. */
static void put_line(page *to, const fxi_part *p, int64_t indent)
{
    fx_text *text = to->text;
    const size_t start = text->length;
    text->limit = start + MOST_LINE;
    text->values = !(p->is_object && p->object && fx_is_array(p->object));
    put_part(text, p, 0);
    text->values = false;
    text->limit = 0;
    const int64_t width = fxi_text_width(text, start);
    fxi_text_put(text, indent ? "," : "");
    const bool values = indent == 0 && fxi_tuple_list(p->object); /* a plain tuple is not a layer */
    if (p->is_object && p->field->kind != FX_FIELD_SHARED && !values)
        put_comment(text, p->object, indent, width);
    fxi_text_put(text, indent ? "\n" : "");
}

static void put_tree(page *to, const fxi_part *p, int64_t indent)
{
    void *unused;
    const bool plain = p->is_object && fxi_is_plain(p->object);
    fxi_text_pad(to->text, indent);
    to->lines++;
    if (!p->is_object || plain || indent > INDENT * FXI_MAX_DEPTH || !fxi_expands(p->object))
        put_line(to, p, indent);
    else if (to->lines > FULL_LINES && fxi_identity_get(&to->shown, p->object, &unused))
        put_reference(to->text, p, indent);
    else
        put_container(to, p, indent);
}

/* ---- entry points ---------------------------------------------------------------------------- */

/* Evaluates all values in one plan. An array that cannot be computed prints as an error. */
static void write_text(fx_text *text, void *object)
{
    page to = {.text = text};
    if (fx_is_array(object)) {
        fxi_array_show(text, object);
        return;
    }
    static const fx_field top = {.kind = FX_FIELD_CHILD};
    const fxi_part p = {.field = &top, .object = object, .is_object = true};
    if (object && !fx_is_error(object))
        fx_eval(object);
    put_tree(&to, &p, 0);
    fxi_identity_free(&to.shown);
}

size_t fx_show_text(void *object, char *dst, size_t capacity)
{
    fx_text text = {0};
    write_text(&text, object);
    return fxi_text_hand_over(&text, dst, capacity);
}

size_t fx_summary(void *object, char *dst, size_t capacity)
{
    fx_text text = {.limit = MOST_SUMMARY};
    if (fx_is_array(object))
        fxi_array_summary(&text, object, false);
    else
        put_object(&text, object, 0);
    return fxi_text_hand_over(&text, dst, capacity);
}

void fx_show_to(FILE *out, void *object)
{
    fx_text text = {0};
    write_text(&text, object);
    fxi_text_print(&text, out);
}

void fx_show(void *object)
{
    fx_show_to(stdout, object);
}
