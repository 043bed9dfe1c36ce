/* show_inline.c: an array inside a line, as Julia 1.10 writes it (base/arrayshow.jl: show_vector,
 * _show_nonempty, show_nd): Float32[1.0 2.0; 3.0 4.0].
 *
 * As at Julia's prompt, long axes are cut: a vector of more than 20 elements shows ten at either
 * end, a matrix of more than four rows or columns shows two. Numbers are printed with all their
 * digits. Float64 and Int64 arrays have no type before the bracket.
 */
#include "show_array.h"
#include "elements.h"
#include "julia_number.h"

#include <cflux/device.h>

enum {
    LONG_VECTOR = 20,
    VECTOR_END = 10,
    LONG_SIDE = 4,
    SIDE_END = 2,
    MANY_SLICES = 10,
    SLICES = 3
};

typedef struct cells {
    const fxi_node *node;
    const char *at; /* the first element of the array, or of one of its matrices */
} cells;

static int64_t stride(const cells *c, int axis)
{
    return axis < c->node->ndim
               ? c->node->data->stride[axis] * (int64_t)fx_dtype_size((fx_dtype)c->node->dtype)
               : 0;
}

static int64_t length(const cells *c, int axis)
{
    return axis < c->node->ndim ? c->node->shape[axis] : 1;
}

static void put_number(fx_text *text, const cells *c, int64_t i, int64_t k)
{
    char buf[FXI_NUMBER_TEXT];
    fxi_text_put(text, fxi_number_text((fx_dtype)c->node->dtype,
                                       c->at + i * stride(c, 0) + k * stride(c, 1),
                                       FXI_NUMBER_VECTOR, buf));
}

static void put_vector(fx_text *text, const cells *c)
{
    const int64_t n = length(c, 0);
    const bool cut = n > LONG_VECTOR;
    for (int64_t i = 0; i < n; i++) {
        if (cut && i == VECTOR_END) {
            fxi_text_put(text, "  …  ");
            i = n - VECTOR_END;
        } else if (i > 0) {
            fxi_text_put(text, ", ");
        }
        put_number(text, c, i, 0);
    }
}

static void put_row(fx_text *text, const cells *c, int64_t i)
{
    const int64_t n = length(c, 1);
    for (int64_t k = 0; k < n; k++) {
        if (n > LONG_SIDE && k == SIDE_END) {
            fxi_text_put(text, " … ");
            k = n - SIDE_END;
        } else if (k > 0) {
            fxi_text_put(text, " ");
        }
        put_number(text, c, i, k);
    }
}

static void put_matrix(fx_text *text, const cells *c)
{
    const int64_t n = length(c, 0);
    for (int64_t i = 0; i < n; i++) {
        if (n > LONG_SIDE && i == SIDE_END) {
            fxi_text_put(text, "; … ; ");
            i = n - SIDE_END;
        } else if (i > 0) {
            fxi_text_put(text, "; ");
        }
        put_row(text, c, i);
    }
}

/* ---- more axes ------------------------------------------------------------------------------- */

static void put_semicolons(fx_text *text, int n)
{
    for (int i = 0; i < n; i++)
        fxi_text_put(text, ";");
}

static bool in_the_middle(int64_t i, int64_t n)
{
    return n > MANY_SLICES && i >= SLICES && i < n - SLICES;
}

/* True if the slice is omitted. The first omitted slice of an axis prints as dots. */
static bool skipped(fx_text *text, const fxi_node *n, const int64_t *index)
{
    for (int a = 2; a < n->ndim; a++) {
        if (!in_the_middle(index[a], n->shape[a]))
            continue;
        bool dots = index[a] == SLICES;
        for (int b = 2; b < a; b++)
            dots &= index[b] == 0;
        for (int b = a + 1; b < n->ndim; b++)
            dots &= !in_the_middle(index[b], n->shape[b]);
        if (dots) {
            put_semicolons(text, a + 1);
            fxi_text_put(text, " … ");
        }
        return true;
    }
    return false;
}

/* Advances to the next slice. Returns the highest axis whose index changed, −1 at the end. */
static int advance(const fxi_node *n, int64_t *index)
{
    for (int a = 2; a < n->ndim; a++) {
        if (++index[a] < n->shape[a])
            return a;
        index[a] = 0;
    }
    return -1;
}

static void put_slices(fx_text *text, cells c)
{
    const char *first = c.at;
    int64_t index[FX_MAX_DIMS] = {0};
    bool last_axis = false;
    for (int axis = 1; axis >= 0 && !text->failed; axis = advance(c.node, index)) {
        if (skipped(text, c.node, index))
            continue;
        if (axis >= 2) {
            put_semicolons(text, axis + 1);
            fxi_text_put(text, " ");
        }
        last_axis |= axis == c.node->ndim - 1;
        c.at = first;
        for (int a = 2; a < c.node->ndim; a++)
            c.at += index[a] * stride(&c, a);
        put_matrix(text, &c);
    }
    if (!last_axis) /* without these semicolons Julia would read an array of fewer axes */
        put_semicolons(text, c.node->ndim);
}

/* ---- a whole array --------------------------------------------------------------------------- */

/* In Julia, an empty array has no bracket notation, except a vector. */
static void put_empty(fx_text *text, const fx_array *x, const char *type)
{
    const int n = fx_ndims(x);
    if (n == 1) {
        fx_text_add(text, "%s[]", type);
        return;
    }
    fx_text_add(text, n == 2 ? "Matrix{%s}(undef" : "Array{%s}(undef", type);
    for (int i = 0; i < n; i++)
        fx_text_add(text, ", %lld", (long long)fx_size(x, i));
    fxi_text_put(text, ")");
}

static void put_elements(fx_text *text, const fx_array *x, const char *elements)
{
    char buf[FXI_NUMBER_TEXT];
    const fx_dtype type = fx_eltype(x);
    const int n = fx_ndims(x);
    const cells c = {.node = x->node, .at = elements};
    if (n == 0) {
        fxi_text_put(text, fxi_number_text(type, elements, FXI_NUMBER_ALONE, buf));
        return;
    }
    const bool implicit = type == FX_DTYPE_F64 || type == FX_DTYPE_I64;
    fx_text_add(text, "%s[", implicit ? "" : fx_dtype_name(type));
    if (n == 1)
        put_vector(text, &c);
    else if (n == 2)
        put_matrix(text, &c);
    else
        put_slices(text, c);
    fxi_text_put(text, n == 2 && fx_size(x, 1) == 1 ? ";;]" : "]");
}

void fxi_array_inline(fx_text *text, const fx_array *x)
{
    fxi_elements e = {0};
    if (fx_is_error(x) || !fx_is_evaluated(x) || x->node->data->buffer->freed ||
        fx_array_device(x) != fx_cpu_device())
        fxi_array_summary(text, x, true);
    else if (fx_length(x) == 0)
        put_empty(text, x, fx_dtype_name(fx_eltype(x)));
    else if (fxi_elements_open("show", x, &e) != FX_OK)
        fx_text_add(text, "error array (%s)", fx_status_name(fx_error_status()));
    else
        put_elements(text, x, e.at);
    fxi_elements_close(&e);
}
