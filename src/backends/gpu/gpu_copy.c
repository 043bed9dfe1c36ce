/* gpu_copy.c: copies between any strides: stored views, concatenation, padding.
 *
 * Elements are copied as bytes, so there is one text for each size. If the two sides are contiguous
 * along different axes, square tiles, as wide as a warp, are copied through local memory, so that
 * both sides are accessed in whole lines. Otherwise a work-item copies single elements.
 */
#include "gpu_text.h"

static const char *type_of(size_t size)
{
    static const char *const types[] = {
        [1] = "fx_u8", [2] = "fx_u16", [4] = "fx_u32", [8] = "fx_u64"};
    return types[size];
}

typedef struct copy {
    size_t size;
    const fxi_gpu_side *from, *to;
    fxi_gpu_layout layout;
    int px, py; /* patterns of strides */
    bool wide;
    int32_t tile; /* elements of a tile along each of its axes */
} copy;

/* Appends a text with its walk over some axes. */
static void say_copy(fxi_gpu_builder *b, const copy *q, const char *text, const fxi_gpu_walk *w,
                     int first, const char *index)
{
    fxi_gpu_set(b, "type", type_of(q->size));
    fxi_gpu_set_number(b, "from", q->px);
    fxi_gpu_set_number(b, "to", q->py);
    fxi_gpu_set_number(b, "tile", q->tile);
    /* One more than the tile, so that the elements of a column are in different banks. */
    fxi_gpu_set_number(b, "pitch", q->tile + 1);
    fxi_gpu_set_number(b, "rows", FXI_GPU_GROUP / q->tile);
    text = fxi_gpu_say_until(b, text, "walk");
    fxi_gpu_walk_say(b, w, first, index, "o", NULL);
    fxi_gpu_say_part(b, text);
    fxi_gpu_end(b);
}

static void set_sides(fxi_gpu_call *c, const copy *q)
{
    fxi_gpu_buffer(c, 0, (fxi_gpu_role)q->from->buffer.role, q->from->buffer.k);
    fxi_gpu_buffer(c, 1, (fxi_gpu_role)q->to->buffer.role, q->to->buffer.k);
    fxi_gpu_param(c, 1, q->to->offset);
}

static void plain_copy(fxi_gpu_builder *b, const copy *q, const fxi_gpu_walk *w)
{
    fxi_gpu_begin(b, q->wide);
    fxi_gpu_kernel(b, "fx_copy", 2, 2 + fxi_gpu_walk_params(w));
    say_copy(b, q, fxi_gpu_text_copy, w, 2, "i");
    fxi_gpu_call *c = fxi_gpu_add_each(b, fxi_gpu_walk_length(w));
    set_sides(c, q);
    fxi_gpu_walk_fill(w, c, 2);
}

/* Returns the axis along which x is contiguous, if y is contiguous along axis 0 and both axes are
 * long enough for tiles; else −1. */
static int across(const copy *q, const fxi_gpu_walk *w)
{
    /* Half a tile at least: narrower axes would leave most work-items of a tile idle. */
    if (w->nd < 2 || w->stride[q->py][0] != 1 || w->shape[0] < q->tile / 2)
        return -1;
    for (int d = 1; d < w->nd; d++)
        if (w->stride[q->px][d] == 1 && w->shape[d] >= q->tile / 2)
            return d;
    return -1;
}

/* Parameters from 2 on: the sizes of the two axes, x's stride along the first and y's stride along
 * the second, the divisors of the numbers of tiles, the walk over the other axes. */
static void tiled_copy(fxi_gpu_builder *b, const copy *q, const fxi_gpu_walk *w, int axis)
{
    const fxi_gpu_walk rest = fxi_gpu_walk_over(w, ~(1u | 1u << axis));
    const int64_t along = fxi_gpu_divide_up(w->shape[0], q->tile),
                  over = fxi_gpu_divide_up(w->shape[axis], q->tile);
    fxi_gpu_begin(b, q->wide);
    fxi_gpu_kernel(b, "fx_transpose", 2, 12 + fxi_gpu_walk_params(&rest));
    say_copy(b, q, fxi_gpu_text_transpose, &rest, 12, "t2");
    fxi_gpu_call *c = fxi_gpu_add(b);
    set_sides(c, q);
    fxi_gpu_param(c, 2, w->shape[0]);
    fxi_gpu_param(c, 3, w->shape[axis]);
    fxi_gpu_param(c, 4, w->stride[q->px][0]);
    fxi_gpu_param(c, 5, w->stride[q->py][axis]);
    fxi_gpu_divisor(c, 6, along);
    fxi_gpu_divisor(c, 9, over);
    fxi_gpu_walk_fill(&rest, c, 12);
    c->groups[0] = along * over * fxi_gpu_walk_length(&rest);
}

/* A tile is as wide as a warp, or narrower if a group has too little memory. */
static int32_t tile_for(const fxi_gpu_limits *limits, size_t size)
{
    int32_t tile = limits->warp;
    while (limits->group_memory > 0 && tile > 8 &&
           (int64_t)tile * (tile + 1) * (int64_t)size > limits->group_memory)
        tile /= 2;
    return tile;
}

void fxi_gpu_copy(fxi_gpu_builder *b, int nd, const int64_t *shape, size_t size,
                  const fxi_gpu_side *from, const fxi_gpu_side *to)
{
    copy q = {.size = size,
              .from = from,
              .to = to,
              .layout = {.nd = nd},
              .tile = tile_for(b->limits, size)};
    for (int d = 0; d < nd; d++)
        q.layout.shape[d] = shape[d];
    q.px = fxi_gpu_layout_add(&q.layout, from->stride);
    /* The same pattern if both sides have the same strides. */
    q.py = fxi_gpu_layout_add(&q.layout, to->stride);
    q.wide = fxi_gpu_layout_wide(&q.layout) ||
             fxi_gpu_wide(to->offset + fxi_gpu_reach(nd, shape, to->stride));
    const fxi_gpu_walk w = fxi_gpu_walk_over(&q.layout, UINT32_MAX);
    if (fxi_gpu_walk_length(&w) == 0)
        return;
    const int axis = across(&q, &w);
    if (axis > 0)
        tiled_copy(b, &q, &w, axis);
    else
        plain_copy(b, &q, &w);
}

/* ---- matrices -------------------------------------------------------------------------------- */

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* A target that is larger than the source is written as a whole, with zeros in its other elements.
 * If the target is not larger, only the elements of the matrix are written. */
void fxi_gpu_copy_matrix(fxi_gpu_builder *b, size_t size, const fxi_gpu_matrix *from,
                         const fxi_gpu_matrix *to)
{
    const bool widens = to->rows > from->rows || to->columns > from->columns;
    const int64_t rows = widens ? to->ld : to->rows, n = rows * to->columns;
    fxi_gpu_begin(b, fxi_gpu_wide(n) || fxi_gpu_wide(from->ld * from->columns) ||
                         fxi_gpu_wide(to->ld * to->columns));
    fxi_gpu_kernel(b, "fx_copy_matrix", 2, 8);
    fxi_gpu_set(b, "type", type_of(size));
    fxi_gpu_say_part(b, fxi_gpu_text_copy_matrix);
    fxi_gpu_end(b);
    fxi_gpu_call *c = fxi_gpu_add_each(b, n);
    fxi_gpu_buffer(c, 0, (fxi_gpu_role)from->buffer.role, from->buffer.k);
    fxi_gpu_buffer(c, 1, (fxi_gpu_role)to->buffer.role, to->buffer.k);
    fxi_gpu_param(c, 1, to->ld);
    fxi_gpu_param(c, 2, smaller(from->rows, to->rows));
    fxi_gpu_param(c, 3, smaller(from->columns, to->columns));
    fxi_gpu_param(c, 4, from->ld);
    fxi_gpu_divisor(c, 5, rows);
}

/* ---- steps ----------------------------------------------------------------------------------- */
static void copy_in(fxi_gpu_builder *b, int k, const fx_tensor *t, fxi_gpu_buffer_ref buffer)
{
    int64_t dense[FX_MAX_DIMS];
    fxi_dense_strides(t->ndim, t->shape, dense);
    fxi_gpu_copy(b, t->ndim, t->shape, fxi_gpu_size(t->dtype),
                 &(fxi_gpu_side){{k, FXI_GPU_IN}, t->stride, 0}, &(fxi_gpu_side){buffer, dense, 0});
}

int64_t fxi_gpu_densify(fxi_gpu_builder *b, int k)
{
    const fx_tensor *t = &b->step->in[k];
    const int64_t at = fxi_gpu_work(b, fx_tensor_length(t) * (int64_t)fxi_gpu_size(t->dtype));
    copy_in(b, k, t, (fxi_gpu_buffer_ref){at, FXI_GPU_WORK});
    return at;
}

/* Stores a view as a dense array; the operand's strides describe the view. */
void fxi_gpu_move(fxi_gpu_builder *b)
{
    copy_in(b, 0, &b->step->in[0], (fxi_gpu_buffer_ref){0, FXI_GPU_OUT});
}

/* Copies operand k, or its single value, to `along` positions of the output's axis from `start`
 * on. */
static void put(fxi_gpu_builder *b, int k, int axis, int64_t start, int64_t along)
{
    const fx_tensor *out = &b->step->out, *t = &b->step->in[k];
    const int64_t single[FX_MAX_DIMS] = {0};
    int64_t dense[FX_MAX_DIMS], shape[FX_MAX_DIMS];
    fxi_dense_strides(out->ndim, out->shape, dense);
    for (int d = 0; d < out->ndim; d++)
        shape[d] = d == axis ? along : out->shape[d];
    fxi_gpu_copy(b, out->ndim, shape, fxi_gpu_size(out->dtype),
                 &(fxi_gpu_side){{k, FXI_GPU_IN}, t->ndim == out->ndim ? t->stride : single, 0},
                 &(fxi_gpu_side){{0, FXI_GPU_OUT}, dense, start * dense[axis]});
}

/* CONCAT copies its inputs one after the other. PAD is a concatenation of the value, the input and
 * the value. */
void fxi_gpu_join(fxi_gpu_builder *b)
{
    const fx_step *s = b->step;
    const int axis = fx_step_copy(s)->axis;
    int64_t start = 0;
    if (s->op == FX_OP_CONCAT) {
        for (int k = 0; k < s->nin; start += s->in[k++].shape[axis])
            put(b, k, axis, start, s->in[k].shape[axis]);
        return;
    }
    const int64_t before = fx_step_copy(s)->before, inside = s->in[0].shape[axis],
                  behind = s->out.shape[axis] - before - inside;
    /* Three launches instead of a fill and a copy: each element is written once. */
    put(b, 1, axis, 0, before);
    put(b, 0, axis, before, inside);
    put(b, 1, axis, before + inside, behind);
}
