/* show_array.c: arrays as Julia 1.10 shows them (base/arrayshow.jl: print_matrix, show_nd).
 *
 * The screen is always 24 × 80, so that the output does not depend on the terminal. As in Julia,
 * column widths are computed from the rows that are shown, columns are aligned at the decimal
 * point, and large arrays are cut in the middle with ⋮ … ⋱. Only the elements that are shown are
 * read, from the value's own memory through its strides, so the cost does not depend on the array's
 * size.
 *
 * Two differences from Julia are intended: an array on a device is printed with the device's name
 * ("3×2 ref Matrix{Float32}"), and a scalar (0-d) array prints as its number.
 */
#include "show_array.h"
#include "elements.h"
#include "julia_number.h"

#include <cflux/device.h>
#include <string.h>

enum {
    SCREEN_ROWS = 24 - 4,    /* Julia leaves four lines for the prompt */
    SCREEN_COLUMNS = 80 - 1, /* every line begins with a space */
    HALF_ROWS = SCREEN_ROWS / 2,
    TAIL_ROWS = (SCREEN_ROWS - 1) / 2,
    SEPARATOR = 2,
    MOST_COLUMNS = SCREEN_COLUMNS / (1 + SEPARATOR),
    DOTS = 5, /* width of HDOTS; every fifth row and column has a dot */
    MANY_SLICES = 10,
    SHOWN_SLICES = 3 /* at either end, if there are more than MANY_SLICES */
};
#define HDOTS "  …  "
#define DDOTS "  ⋱  "
#define VDOTS "⋮"

/* ---- summaries ------------------------------------------------------------------------------- */

static void put_sizes(fx_text *text, const fx_array *x)
{
    const int n = fx_ndims(x);
    if (n == 0)
        fxi_text_put(text, "0-dimensional");
    for (int i = 0; i < n; i++)
        fx_text_add(text, i ? "×%lld" : "%lld", (long long)fx_size(x, i));
    if (n == 1)
        fxi_text_put(text, "-element");
}

void fxi_array_summary(fx_text *text, const fx_array *x, bool brief)
{
    if (fx_is_error(x)) {
        fx_text_add(text, "error array (%s)", fx_status_name(fx_array_status(x)));
        return;
    }
    const int n = fx_ndims(x);
    const char *element = fx_dtype_name(fx_eltype(x));
    fx_device *device = fx_array_device(x);
    put_sizes(text, x);
    if (device != fx_cpu_device())
        fx_text_add(text, " %s", fx_device_name(device));
    if (n == 1 || n == 2)
        fx_text_add(text, " %s{%s}", n == 1 ? "Vector" : "Matrix", element);
    else if (brief)
        fx_text_add(text, " Array{%s,...}", element);
    else
        fx_text_add(text, " Array{%s, %d}", element, n);
}

/* ---- matrices -------------------------------------------------------------------------------- */

typedef struct matrix {
    const char *data;
    fx_dtype dtype;
    fxi_number_form form;
    int64_t rows, columns;
    int64_t row_stride, column_stride; /* in bytes */
} matrix;

/* Characters before and after the point of alignment. */
typedef struct width {
    int left, right;
} width;

typedef struct widths {
    width column[2 * MOST_COLUMNS];
    int count;
} widths;

typedef struct shown {
    int64_t index[2 * MOST_COLUMNS];
    int count;
} shown;

/* All indices 0 … n−1 if n is at most `fit`, otherwise the first `head` and the last `tail`. */
static shown select_indices(int64_t n, int fit, int head, int tail)
{
    shown s = {.count = n > fit ? head + tail : (int)n};
    for (int i = 0; i < s.count; i++)
        s.index[i] = n > fit && i >= head ? n - tail + (i - head) : i;
    return s;
}

static const char *element(const matrix *m, int64_t row, int64_t column, char buf[FXI_NUMBER_TEXT])
{
    return fxi_number_text(m->dtype, m->data + row * m->row_stride + column * m->column_stride,
                           m->form, buf);
}

static width measure_column(const matrix *m, const shown *rows, int64_t column)
{
    width w = {0, 0};
    for (int i = 0; i < rows->count; i++) {
        char buf[FXI_NUMBER_TEXT];
        int left, right;
        fxi_number_split(m->dtype, element(m, rows->index[i], column, buf), &left, &right);
        w.left = left > w.left ? left : w.left;
        w.right = right > w.right ? right : w.right;
    }
    return w;
}

/* Julia's alignment(): how many columns, counted from the left or from the right, fit into `limit`
 * characters. */
static widths measure(const matrix *m, const shown *rows, const shown *columns, bool from_right,
                      int limit)
{
    widths a = {.count = 0};
    int total = 0;
    for (int k = 0; k < columns->count; k++) {
        const width w =
            measure_column(m, rows, columns->index[from_right ? columns->count - 1 - k : k]);
        a.column[a.count++] = w;
        total += w.left + w.right;
        if (a.count > 1 && total + SEPARATOR * a.count >= limit) {
            a.count--;
            total -= w.left + w.right;
            break;
        }
    }
    while (1 < a.count && a.count < m->columns && total + SEPARATOR * a.count >= limit) {
        a.count--;
        total -= a.column[a.count].left + a.column[a.count].right;
    }
    return a;
}

static int total_width(const widths *a)
{
    int total = 0;
    for (int k = 0; k < a->count; k++)
        total += a->column[k].left + a->column[k].right;
    return total + (a->count - 1) * SEPARATOR;
}

static void reverse(widths *a)
{
    for (int i = 0, j = a->count - 1; i < j; i++, j--) {
        const width w = a->column[i];
        a->column[i] = a->column[j];
        a->column[j] = w;
    }
}

static void put_row(fx_text *text, const matrix *m, const widths *a, int64_t row, int64_t first)
{
    for (int k = 0; k < a->count; k++) {
        char buf[FXI_NUMBER_TEXT];
        int left, right;
        const char *number = element(m, row, first + k, buf);
        fxi_number_split(m->dtype, number, &left, &right);
        fxi_text_pad(text, a->column[k].left - left);
        fxi_text_put(text, number);
        if (first + k != m->columns - 1)
            fxi_text_pad(text, a->column[k].right - right);
        if (k + 1 < a->count)
            fxi_text_pad(text, SEPARATOR);
    }
}

/* The line between the upper and the lower rows: a ⋮ in each column k with (k + 1) mod 5 = phase.
 */
static void put_dots(fx_text *text, const widths *a, int64_t phase, bool pad_right)
{
    for (int k = 0; k < a->count; k++) {
        const bool last = k + 1 == a->count && !pad_right;
        const int w = a->column[k].left + a->column[k].right;
        int used = 0;
        if ((k + 1) % DOTS == phase) {
            const int left = a->column[k].left > 1 ? a->column[k].left - 1 : 0;
            fxi_text_pad(text, left);
            fxi_text_put(text, VDOTS);
            used = left + 1;
        }
        if (!last)
            fxi_text_pad(text, w - used);
        if (k + 1 < a->count)
            fxi_text_pad(text, SEPARATOR);
    }
}

/* The columns on the screen: all of them in `left`, or some on either side of the dots. */
typedef struct layout {
    widths left, right;
    bool whole;
} layout;

static layout lay_out_columns(const matrix *m, const shown *rows)
{
    const shown columns = select_indices(m->columns, MOST_COLUMNS, MOST_COLUMNS, MOST_COLUMNS);
    layout l = {.left = measure(m, rows, &columns, false, SCREEN_COLUMNS)};
    l.whole = m->columns <= l.left.count;
    if (l.whole)
        return l;
    l.right = measure(m, rows, &columns, true, (SCREEN_COLUMNS - DOTS + 1) / 2 + 1);
    reverse(&l.right);
    l.left = measure(m, rows, &columns, false, SCREEN_COLUMNS - total_width(&l.right) - DOTS);
    return l;
}

static int64_t modulo(int64_t a, int64_t n)
{
    return (a % n + n) % n;
}

static void put_dots_line(fx_text *text, const matrix *m, const layout *l)
{
    fxi_text_put(text, "\n ");
    put_dots(text, &l->left, 1, !l->whole);
    if (l->whole)
        return;
    fxi_text_put(text, DDOTS);
    put_dots(text, &l->right, modulo(l->right.count - m->columns + 1, DOTS), false);
}

static void put_matrix(fx_text *text, const matrix *m)
{
    const shown rows = select_indices(m->rows, SCREEN_ROWS, HALF_ROWS, TAIL_ROWS);
    const layout l = lay_out_columns(m, &rows);
    for (int i = 0; i < rows.count; i++) {
        const int64_t row = rows.index[i];
        fxi_text_put(text, i ? "\n " : " ");
        put_row(text, m, &l.left, row, 0);
        if (!l.whole) {
            if (row % DOTS == 0)
                fxi_text_put(text, HDOTS);
            else
                fxi_text_pad(text, DOTS);
            put_row(text, m, &l.right, row, m->columns - l.right.count);
        }
        if (m->rows > SCREEN_ROWS && i + 1 == HALF_ROWS)
            put_dots_line(text, m, &l);
    }
}

/* ---- more axes ------------------------------------------------------------------------------- */

typedef enum slice_kind { SLICE_SHOWN, SLICE_SKIPPED, SLICE_DOTS } slice_kind;

static bool in_the_middle(int64_t i, int64_t n)
{
    return n > MANY_SLICES && i >= SHOWN_SLICES && i < n - SHOWN_SLICES;
}

/* Decides whether the slice at index[2 …] is shown: of a long axis only three at either end are.
 * *out_axis is the axis that the dots replace. */
static slice_kind judge_slice(const fxi_node *n, const int64_t *index, int *out_axis)
{
    for (int i = 2; i < n->ndim; i++) {
        if (!in_the_middle(index[i], n->shape[i]))
            continue;
        bool dots = index[i] == SHOWN_SLICES;
        for (int j = 2; j < i; j++)
            dots &= index[j] == 0;
        for (int j = i + 1; j < n->ndim; j++)
            dots &= !in_the_middle(index[j], n->shape[j]);
        *out_axis = i;
        return dots ? SLICE_DOTS : SLICE_SKIPPED;
    }
    return SLICE_SHOWN;
}

static void put_label(fx_text *text, const fxi_node *n, const int64_t *index)
{
    fxi_text_put(text, "[:, :");
    for (int i = 2; i < n->ndim; i++)
        fx_text_add(text, ", %lld", (long long)index[i] + 1);
    fxi_text_put(text, "] =\n");
}

/* Advances to the next slice and skips all omitted ones but the first, which prints as dots. False
 * at the end. */
static bool next_slice(const fxi_node *n, int64_t *index)
{
    for (int i = 2; i < n->ndim; i++) {
        index[i]++;
        if (index[i] > SHOWN_SLICES && in_the_middle(index[i], n->shape[i]))
            index[i] = n->shape[i] - SHOWN_SLICES;
        if (index[i] < n->shape[i])
            return true;
        index[i] = 0;
    }
    return false;
}

static void put_slice(fx_text *text, const fxi_node *n, matrix m, const int64_t *index)
{
    const int64_t size = (int64_t)fx_dtype_size(m.dtype);
    bool last = true;
    for (int i = 2; i < n->ndim; i++) {
        m.data += index[i] * n->data->stride[i] * size;
        last &= index[i] == n->shape[i] - 1;
    }
    put_label(text, n, index);
    put_matrix(text, &m);
    if (!last)
        fxi_text_put(text, "\n\n");
}

static void put_slices(fx_text *text, const fxi_node *n, const matrix *m)
{
    int64_t index[FX_MAX_DIMS] = {0};
    do {
        int axis = 0;
        const slice_kind kind = judge_slice(n, index, &axis);
        if (kind == SLICE_SHOWN)
            put_slice(text, n, *m, index);
        for (int i = 0; kind == SLICE_DOTS && i <= axis; i++)
            fxi_text_put(text, ";");
        if (kind == SLICE_DOTS)
            fxi_text_put(text, " … \n\n");
    } while (!text->failed && next_slice(n, index));
}

/* ---- a whole array --------------------------------------------------------------------------- */

static matrix matrix_of(const fx_array *x, const char *elements)
{
    const fxi_node *n = x->node;
    const int64_t size = (int64_t)fx_dtype_size(fx_eltype(x));
    return (matrix){.data = elements,
                    .dtype = fx_eltype(x),
                    .form = fx_size(x, 1) > 1 ? FXI_NUMBER_MATRIX : FXI_NUMBER_VECTOR,
                    .rows = n->shape[0],
                    .columns = fx_size(x, 1),
                    .row_stride = n->data->stride[0] * size,
                    .column_stride = n->ndim > 1 ? n->data->stride[1] * size : 0};
}

static void put_elements(fx_text *text, const fx_array *x, const char *elements)
{
    char buf[FXI_NUMBER_TEXT];
    if (fx_ndims(x) == 0) {
        fxi_text_put(text, fxi_number_text(fx_eltype(x), elements, FXI_NUMBER_ALONE, buf));
        return;
    }
    fxi_array_summary(text, x, false);
    fxi_text_put(text, ":\n");
    const matrix m = matrix_of(x, elements);
    if (fx_ndims(x) <= 2)
        put_matrix(text, &m);
    else
        put_slices(text, x->node, &m);
}

void fxi_array_show(fx_text *text, fx_array *x)
{
    fx_status status = fx_is_error(x) ? fx_array_status(x) : fx_eval(x);
    fxi_elements e = {0};
    if (status == FX_OK)
        status = fxi_elements_open("show", x, &e);
    if (status != FX_OK)
        fx_text_add(text, "error array (%s)", fx_status_name(status));
    else if (fx_length(x) > 0)
        put_elements(text, x, e.at);
    else if (fx_ndims(x) == 1 && fx_array_device(x) == fx_cpu_device())
        fx_text_add(text, "%s[]", fx_dtype_name(fx_eltype(x)));
    else
        fxi_array_summary(text, x, false);
    fxi_elements_close(&e);
}
