/* gpu_conv.c: convolution and its two gradients, of one to three spatial axes, as one kernel text.
 *
 * All three kinds are products of matrices one of which is gathered from an array with spatial axes
 * (the source: x, or gy for the gradient of x) and never stored in memory:
 *     out[m, n] = Σ_k source[position(m) + position(k), plane(m) + plane(k)] · other[k, n]
 * Rows m and terms k are numbers of four digits, three along the spatial axes and one of channels
 * or of the batch; positions, planes and addresses are linear in the digits. The kinds differ in
 * the numbers only, which are parameters:
 *
 *   FORWARD  source x,  rows: positions of y, batch;  terms: taps, input channels;   other w
 *   DATA     source gy, rows: positions of x, batch;  terms: taps, output channels;  other w
 *   WEIGHT   source x,  rows: taps, input channels;   terms: positions of y, batch;  other gy
 *
 * Columns n are channels of a group. With strides, most taps of DATA meet no element of gy, and
 * which ones do depends on the remainder of x's position by the stride. Rows of one remainder (a
 * phase) are computed together, with their taps only.
 *
 * A work-item computes EACH rows (one or four) and WIDTH columns in registers, DEPTH terms at a
 * time. The factors of `other` and the decoded digits of these terms are in local memory.
 * Neighbouring work-items read neighbouring elements of the source, and all work-items of a group
 * read the same factor. If there are few tiles or few rows, the terms are cut into slices; if there
 * are fewer rows than work-items, several lanes of a group take a slice each. Slices are written to
 * work space, and a second kernel adds them, always in the same order: no atomics, and the same
 * bits in every run.
 *
 * Convolutions that are faster by tiles (gpu_conv_tile.c) are computed like products of matrices
 * (conv_tiles.cl), with the same parameters. WEIGHT multiplies the padding there, and is repaired
 * if gy is infinite somewhere (gpu_repair.c).
 *
 * In the padding the source counts as 0, so an infinite weight gives NaN there. WEIGHT leaves these
 * terms out, because its factor is gy: gradients become infinite or NaN more often than weights.
 */
#include "gpu_conv.h"

#include <stdio.h>
#include <string.h>

enum { DEPTH = FXI_GPU_CONV_DEPTH };
typedef fxi_gpu_contraction contraction;

#define NAME(name) #name,
static const char *const axis_names[] = {AXIS_PARAMS(NAME)}, *const names[] = {PARAMS(NAME)};

/* ---- the text -------------------------------------------------------------------------------- */

/* How a tile's text packs a position into a word (conv_tiles.cl): with fields of `bits` bits. */
static const struct {
    const char *word, *inside;
    int bits;
} packings[] = {{"(fx_u32)(a)", "0x80000000", 32},
                {"(fx_u32)(a) + (fx_u32)(b) * 0x10000u", "0x80008000", 16},
                {"(fx_u32)(a) + (fx_u32)(b) * 0x400u + (fx_u32)(c) * 0x100000u", "0x20080200", 10}};

int64_t fxi_gpu_conv_far(int axes)
{
    return (int64_t)1 << (packings[axes - 1].bits - 2);
}

static void set_tile(fxi_gpu_builder *b, const contraction *c)
{
    fxi_gpu_set_number(b, "tx", c->tile->tx);
    fxi_gpu_set_number(b, "ty", c->tile->ty);
    fxi_gpu_set_number(b, "rn", c->tile->rn);
    fxi_gpu_set_number(b, "depth", FXI_GPU_CONV_TILE_DEPTH);
    fxi_gpu_set_number(b, "by_rows", c->by_rows);
    fxi_gpu_set(b, "packed", packings[c->axes - 1].word);
    fxi_gpu_set(b, "inside", packings[c->axes - 1].inside);
    fxi_gpu_set_number(b, "far", fxi_gpu_conv_far(c->axes));
}

static void set_rows(fxi_gpu_builder *b, const contraction *c)
{
    fxi_gpu_set_number(b, "items", c->items);
    fxi_gpu_set_number(b, "lanes", c->lanes);
    fxi_gpu_set_number(b, "each", c->each);
    fxi_gpu_set_number(b, "width", c->width);
    fxi_gpu_set_number(b, "depth", DEPTH);
    /* With one lane a division is saved. */
    fxi_gpu_set(b, "row", c->lanes > 1 ? "(FX_ITEM % ITEMS)" : "FX_ITEM");
    fxi_gpu_set(b, "lane", c->lanes > 1 ? "(FX_ITEM / ITEMS)" : "0");
    fxi_gpu_set(b, "unsigned", c->wide ? "fx_u64" : "fx_u32");
}

static void set_constants(fxi_gpu_builder *b, const contraction *c, const char *stored_out)
{
    const fxi_gpu_type *t = c->type;
    (c->tile ? set_tile : set_rows)(b, c);
    fxi_gpu_set(b, "value", t->value);
    fxi_gpu_set(b, "name", t->name);
    fxi_gpu_set(b, "stored", t->stored);
    fxi_gpu_set(b, "out", stored_out);
}

static void say_parameters(fxi_gpu_builder *b)
{
    for (int k = 0; k < AXIS_PARAM_COUNT; k++)
        fxi_gpu_say(b, "#define %s(d) P(%d + (d))\n", axis_names[k], 3 * k);
    for (int k = AXES_END + 1; k < PARAM_COUNT; k++)
        fxi_gpu_say(b, "#define %s P(%d)\n", names[k - AXES_END - 1], k);
}

/* Appends a text once for every number below n, which is the value of its placeholder. */
static void say_numbered(fxi_gpu_builder *b, const char *text, const char *placeholder, int n)
{
    for (int k = 0; k < n; k++) {
        fxi_gpu_set_number(b, placeholder, k);
        fxi_gpu_say_part(b, text);
    }
}

static void say_sums(fxi_gpu_builder *b, const contraction *c)
{
    /* See the head of this file: gy may be infinite. */
    const bool leaves_out = fxi_gpu_repairs(b->step);
    for (int r = 0; r < c->each; r++)
        for (int n = 0; n < c->width; n++)
            fxi_gpu_say(b, "    VALUE sum%d_%d = 0;\n", r, n);
    fxi_gpu_say(b, "#define TERM(j) { const fx_int e = LANE * DEPTH + j, q = 4 * e; \\\n");
    say_numbered(b, fxi_gpu_text_conv_term, "r", c->each);
    for (int n = 0; n < c->width; n++) {
        fxi_gpu_say(b, "    const VALUE f%d = factor[e * WIDTH + %d]; \\\n", n, n);
        for (int r = 0; r < c->each; r++) {
            fxi_gpu_say(b, "    sum%d_%d = ", r, n);
            if (leaves_out)
                fxi_gpu_say(b, "!in%d ? sum%d_%d : ", r, r, n);
            fxi_gpu_say(b, "FX_MAD(v%d, f%d, sum%d_%d); \\\n", r, n, r, n);
        }
    }
    fxi_gpu_say(b, "}\n");
}

/* Adds all terms of a round without a loop, or a few in each pass of a loop: compilers load the
 * factors of all unrolled terms before they add the first term, and for several rows these factors
 * need more registers than a work-item has. */
static void say_terms(fxi_gpu_builder *b, const contraction *c)
{
    const int together = c->each == 1 ? DEPTH : c->each * c->width < 64 ? 4 : 2;
    if (together < DEPTH)
        fxi_gpu_say(b, "        FX_LOOP for (fx_int j = 0; j < DEPTH; j += %d) {\n", together);
    for (int k = 0; k < together; k++)
        fxi_gpu_say(b, together < DEPTH ? "        TERM((j + %d))\n" : "        TERM(%d)\n", k);
    if (together < DEPTH)
        fxi_gpu_say(b, "        }\n");
}

static void say_phases(fxi_gpu_builder *b, const char *phase, const char *param, bool phased)
{
    for (int d = 0; d < 3 && phased; d++)
        fxi_gpu_say(b, " + %s%d * %s(%d)", phase, d, param, d);
}

/* Each sum is a variable with a name of its own, so that it is a register. An array might be in
 * memory. */
static void say_row_out(fxi_gpu_builder *b, const contraction *c, const fxi_gpu_finish *f,
                        bool sliced, int row)
{
    fxi_gpu_set_number(b, "r", row);
    const char *text = fxi_gpu_say_until(b, fxi_gpu_text_conv_out, "columns");
    for (int n = 0; n < c->width; n++) {
        char sum[32];
        snprintf(sum, sizeof sum, "sum%d_%d", row, n);
        fxi_gpu_say(b, "if (n0 + %d < COLUMNS) {\nconst fx_int i = to%d + %d * OUT_COLUMN;\n", n,
                    row, n);
        if (sliced)
            fxi_gpu_say(b, "y[i] = %s;\n", sum);
        else
            fxi_gpu_finish_say(b, f, sum, PARAM_COUNT);
        fxi_gpu_say(b, "}\n");
    }
    fxi_gpu_say_part(b, text);
}

/* Appends the text up to the end of the phases; returns the rest. */
static const char *say_axes(fxi_gpu_builder *b, const contraction *c, const char *text)
{
    text = fxi_gpu_say_until(b, text, "axes");
    say_numbered(b, c->phased ? fxi_gpu_text_conv_axis_of_phase : fxi_gpu_text_conv_axis, "d", 3);
    text = fxi_gpu_say_until(b, text, "phases");
    say_phases(b, "phase", "OUT_PHASE", c->phased);
    return text;
}

/* The text for work-items with rows of their own, after its operands. */
static void say_rows(fxi_gpu_builder *b, const contraction *c, const fxi_gpu_finish *f, bool sliced,
                     const char *text)
{
    text = fxi_gpu_say_until(b, say_axes(b, c, text), "rows");
    say_numbered(b, fxi_gpu_text_conv_row, "r", c->each);
    text = fxi_gpu_say_until(b, text, "taps");
    say_phases(b, "tap", "OTHER_TAP", c->phased);
    text = fxi_gpu_say_until(b, text, "sums");
    say_sums(b, c);
    text = fxi_gpu_say_until(b, text, "terms");
    say_terms(b, c);
    text = fxi_gpu_say_until(b, text, "outputs");
    for (int r = 0; r < c->each; r++)
        say_row_out(b, c, f, sliced, r);
    fxi_gpu_say_part(b, text);
}

/* The same for tiles. */
static void say_tiles(fxi_gpu_builder *b, const contraction *c, const fxi_gpu_finish *f,
                      bool sliced, const char *text)
{
    /* The kernel stores its sums unchanged: no conversion and no epilogue. */
    const bool plain = sliced || (c->type->size == 4 && !fx_step_has_epilogue(b->step));
    text = fxi_gpu_say_until(b, say_axes(b, c, text), "taps");
    say_phases(b, "tap", "OTHER_TAP", c->phased);
    text = fxi_gpu_say_until(b, text, "vectors");
    if (plain)
        fxi_gpu_say_part(b, fxi_gpu_text_conv_tiles_vectors);
    text = fxi_gpu_say_until(b, text, "result");
    if (sliced)
        fxi_gpu_say(b, "y[i] = total;\n");
    else
        fxi_gpu_finish_say(b, f, "total", PARAM_COUNT);
    fxi_gpu_say_part(b, text);
}

/* ---- the step -------------------------------------------------------------------------------- */

/* Adds the product: into the output, or as slices of sums into work space. */
static fxi_gpu_call *add_product(fxi_gpu_builder *b, const contraction *c, const fxi_gpu_finish *f,
                                 bool sliced)
{
    const fxi_gpu_type *t = c->type;
    const int operands = sliced ? 0 : f->operands,
              params = PARAM_COUNT + (sliced ? 0 : fxi_gpu_walk_params(&f->walk));
    fxi_gpu_begin_groups(b, c->wide, c->items * c->lanes);
    fxi_gpu_kernel(b, "fx_conv", 3 + operands, params);
    set_constants(b, c, sliced ? t->value : t->stored);
    const char *text = c->tile ? fxi_gpu_text_conv_tiles : fxi_gpu_text_conv;
    text = fxi_gpu_say_until(b, text, "parameters");
    say_parameters(b);
    text = fxi_gpu_say_until(b, text, "operands");
    if (!sliced)
        fxi_gpu_finish_use(b, f, 3);
    (c->tile ? say_tiles : say_rows)(b, c, f, sliced, text);
    fxi_gpu_end(b);
    fxi_gpu_call *call = fxi_gpu_add(b);
    for (int k = 0; k < PARAM_COUNT; k++)
        fxi_gpu_param(call, k, c->v[k]);
    fxi_gpu_buffer(call, 0, FXI_GPU_IN, 0);
    fxi_gpu_buffer(call, 1, FXI_GPU_IN, 1);
    /* Replaced by work space if there are slices (fxi_gpu_conv). */
    fxi_gpu_buffer(call, 2, FXI_GPU_OUT, 0);
    return call;
}

void fxi_gpu_conv(fxi_gpu_builder *b)
{
    const fx_step *s = b->step;
    if (!fxi_gpu_types[s->out.dtype].math) {
        fxi_gpu_fail(b, FX_STATUS_DTYPE, "no convolution for element type %s",
                     fxi_gpu_types[s->out.dtype].name);
        return;
    }
    /* Nothing to compute, and a launch of no groups would be an error (check_call in gpu_step.c).
     */
    if (fx_tensor_length(&s->out) == 0 || !fxi_gpu_known(b))
        return;
    const contraction c = fxi_gpu_contraction_of(s, b->limits);
    const fxi_gpu_finish f = fxi_gpu_finish_of(s);
    const bool sliced = c.v[SLICES] * c.lanes > 1;
    int64_t groups = c.v[ROW_TILES] * c.v[COLUMN_TILES] * c.v[SLICES] * c.groups;
    for (int d = 0; d < 3 && c.phased; d++)
        groups *= c.v[3 * PHASES + d];
    fxi_gpu_call *call = add_product(b, &c, &f, sliced);
    call->groups[0] = groups;
    if (sliced) {
        const fxi_gpu_slices slices = {
            .sum = c.type->value, .n = c.v[SLICES] * c.lanes, .length = c.length, .wide = c.wide};
        const int64_t work = fxi_gpu_slices_work(b, &slices);
        fxi_gpu_buffer(call, 2, FXI_GPU_WORK, work);
        fxi_gpu_slices_add(b, &slices, &f, work);
    } else
        fxi_gpu_finish_set(&f, call, 3, PARAM_COUNT);
    /* Tiles multiply the padding. */
    if (c.tile && fxi_gpu_repairs(s))
        fxi_gpu_repair(b);
}
