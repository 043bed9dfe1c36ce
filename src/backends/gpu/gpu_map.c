/* gpu_map.c: kernels with one value for every element of the output: elementwise programs,
 * and generators.
 *
 * An operand is one value, or has the output's layout and is read at the element's own index, or is
 * walked (gpu_walk.c). A work-item computes several elements. It loads all of them before it stores
 * the first: an output may have the memory of an operand, so no compiler moves a load over a store,
 * and a single load in flight does not fill the memory's bandwidth.
 *
 * The work-item's elements are, in this order of preference:
 *   - neighbours, loaded and stored as vectors, if all operands are dense or constant along the
 *     walk's first axis (dense arrays, permutations of the other axes, biases);
 *   - elements of a square tile, if an operand is dense along another axis. Reading it along the
 *     first axis would touch as many lines of memory as elements, so the group reads the tile
 *     along the operand's own axis into local memory, and then computes along the output's;
 *   - elements that are a group's width apart, so that neighbouring work-items access neighbours.
 * A CPU computes one element at a time: its compiler makes vectors, and its caches hold lines.
 */
#include "gpu_map.h"

#include <stdio.h>

/* ---- elementwise ----------------------------------------------------------------------------- */
static void set_patterns(fxi_gpu_map *p, const fx_tensor *space)
{
    p->layout = (fxi_gpu_layout){.nd = space->ndim};
    for (int d = 0; d < space->ndim; d++)
        p->layout.shape[d] = space->shape[d];
    for (int k = 0; k < p->nin; k++) {
        const fx_tensor *t = &p->in[k];
        /* An operand that was copied to work space is dense. */
        p->pattern[k] = p->from[k].role == FXI_GPU_WORK ? FXI_GPU_OWN
                        : fxi_gpu_is_scalar(t)          ? FXI_GPU_SINGLE
                        : fxi_is_dense(t->ndim, t->shape, t->stride)
                            ? FXI_GPU_OWN
                            : fxi_gpu_layout_add(&p->layout, t->stride);
    }
    p->walk = fxi_gpu_walk_over(&p->layout, UINT32_MAX);
    p->wide = fxi_gpu_layout_wide(&p->layout);
}

/* Do the kernel's arguments need more bytes than the device allows? */
static bool too_many(const fxi_gpu_builder *b, const fxi_gpu_map *p)
{
    const int buffers = (p->nin + p->nout) * (int)(2 * sizeof(int64_t)),
              params = (1 + fxi_gpu_walk_params(&p->walk)) * (p->wide ? 8 : 4);
    return buffers + params > b->limits->param_bytes;
}

/* Copies operands to work space until the arguments fit: every different set of strides takes
 * parameters. */
static void fit(fxi_gpu_builder *b, fxi_gpu_map *p, const fx_tensor *space)
{
    for (int k = 0; k < p->nin && too_many(b, p); k++)
        /* Dense operands and single values take no parameters. */
        if (p->pattern[k] >= 0) {
            p->from[k] = (fxi_gpu_buffer_ref){fxi_gpu_densify(b, k), FXI_GPU_WORK};
            set_patterns(p, space);
        }
}

const fxi_gpu_type *fxi_gpu_map_type(const fx_step *s, const fxi_gpu_map *p, int k)
{
    return &fxi_gpu_types[fx_step_program(s).instr[p->out[k] - p->nin].dtype];
}

void fxi_gpu_map_count(const fxi_gpu_builder *b, fxi_gpu_map *p)
{
    /* A long program spends its time on arithmetic and needs fewer loads in flight. With fewer
     * elements its text is repeated less often, so it compiles faster. */
    int words = fx_step_program(b->step).n / 8, narrowest = 0;
    for (int k = 0; k < p->nin + p->nout; k++) {
        const int size = k < p->nin ? fxi_gpu_types[p->in[k].dtype].size
                                    : fxi_gpu_map_type(b->step, p, k - p->nin)->size;
        if (k < p->nin && p->pattern[k] == FXI_GPU_SINGLE)
            continue;
        words += size > 4 ? size / 4 : 1;
        narrowest = narrowest == 0 || size < narrowest ? size : narrowest;
    }
    p->elements = fxi_gpu_pack_elements(b, narrowest, words);
}

/* Do neighbouring elements of the output, which one work-item computes, read the same element of
 * operand k? */
static bool is_same(const fxi_gpu_map *p, int k)
{
    return p->pattern[k] >= 0 && p->beside && p->walk.stride[p->pattern[k]][0] == 0;
}

/* Is operand k read by tiles through local memory? */
static bool is_tiled(const fxi_gpu_map *p, int k)
{
    const int q = p->pattern[k], axis = p->tiles.axis;
    return axis > 0 && q >= 0 && p->walk.stride[q][axis] == 1 && p->walk.stride[q][0] != 0;
}

/* Can a work-item take n neighbours along the first axis of the walk? They are then n neighbours,
 * or one element, of every operand, and vectors begin at multiples of n. */
static bool are_beside(const fxi_gpu_map *p, int n)
{
    const fxi_gpu_walk *w = &p->walk;
    bool good = w->npatterns > 0 && w->nd > 0 && w->shape[0] % n == 0;
    for (int q = 0; q < w->npatterns; q++) {
        good &= w->stride[q][0] == 0 || w->stride[q][0] == 1;
        for (int d = 1; d < w->nd && w->stride[q][0] == 1; d++)
            good &= w->stride[q][d] % n == 0;
    }
    return good;
}

/* Sets whether neighbours can be taken, and reduces their number if that makes it possible: short
 * vectors are still better than single elements, each of which needs divisions to find its offsets.
 */
static void choose_neighbours(fxi_gpu_map *p)
{
    for (int n = p->elements; n > 1 && !p->beside; n /= 2)
        if (are_beside(p, n)) {
            p->beside = true;
            p->elements = n;
        }
}

/* ---- tiles ----------------------------------------------------------------------------------- */
enum {
    LEAST_TILE = 16,
    TILE_MEMORY = 36 << 10, /* bytes of local memory, so that several groups fit on a unit */
    TILE_STRIDES = 8        /* the first parameter after sizes and numbers of tiles */
};

/* One word more than the tile, so that the elements of a column are in different banks. */
static int pitch_of(const fxi_gpu_map *p, int k)
{
    const int size = fxi_gpu_types[p->in[k].dtype].size;
    return p->tiles.size + (size < 4 ? 4 / size : 1);
}

/* The bytes of local memory for the tiles of all operands that have one; groups share a unit's
 * memory, so fewer bytes allow more groups at the same time. */
static int64_t tile_bytes(const fxi_gpu_map *p)
{
    int64_t bytes = 0;
    for (int k = 0; k < p->nin; k++)
        if (is_tiled(p, k))
            bytes += (int64_t)p->tiles.size * pitch_of(p, k) * fxi_gpu_types[p->in[k].dtype].size;
    return bytes;
}

/* Finds an operand that has gaps along axis 0, the output's dense axis, but is dense along another
 * axis, and returns that axis; 0: there is no such operand, or an axis is too short. */
static int tiled_axis(const fxi_gpu_walk *w)
{
    for (int d = 1; d < w->nd && w->shape[0] >= LEAST_TILE; d++)
        for (int q = 0; q < w->npatterns; q++)
            if (w->stride[q][d] == 1 && w->stride[q][0] != 0 && w->stride[q][0] != 1 &&
                w->shape[d] >= LEAST_TILE)
                return d;
    return 0;
}

/* Returns the number of parameters of the kernel by tiles, which say_tiles describes. */
static int tile_params(const fxi_gpu_map *p)
{
    return TILE_STRIDES + 2 * p->tiles.rest.npatterns + fxi_gpu_walk_params(&p->tiles.rest);
}

/* Chooses tiles if they help and the device has the memory for them. */
static void choose_tiles(const fxi_gpu_builder *b, fxi_gpu_map *p, const fx_tensor *space)
{
    fxi_gpu_tiles *t = &p->tiles;
    int64_t dense[FX_MAX_DIMS], most = b->limits->group_memory;
    most = most == 0 ? 16 << 10 : most < TILE_MEMORY ? most : TILE_MEMORY;
    if (p->elements == 1 || (t->axis = tiled_axis(&p->walk)) == 0)
        return;
    /* The larger size keeps more loads in flight, and reads longer runs of memory. */
    t->size = p->walk.shape[0] >= 48 && p->walk.shape[t->axis] >= 48 ? 64 : 32;
    while (t->size >= LEAST_TILE && tile_bytes(p) > most)
        t->size /= 2;
    /* The output is dense, so its pattern does not change how axes are merged. */
    fxi_dense_strides(space->ndim, space->shape, dense);
    t->out = fxi_gpu_layout_add(&p->layout, dense);
    p->walk = fxi_gpu_walk_over(&p->layout, UINT32_MAX);
    t->rest = fxi_gpu_walk_over(&p->walk, ~(1u | 1u << t->axis));
    const int steps = t->size * t->size / FXI_GPU_GROUP,
              bytes = (p->nin + p->nout) * (int)(2 * sizeof(int64_t)) +
                      tile_params(p) * (p->wide ? 8 : 4);
    if (t->size < LEAST_TILE || bytes > b->limits->param_bytes) {
        t->axis = 0;
        set_patterns(p, space);
        return;
    }
    p->elements = p->elements < steps ? p->elements : steps;
}

static bool is_bf16(const fxi_gpu_type *t)
{
    return t == &fxi_gpu_types[FX_DTYPE_BF16];
}

/* ---- one element ----------------------------------------------------------------------------- */
/* Appends "const fx_f32 r3 = FX_LOAD_f32(<array>, <index>)" for operand k. */
static void say_register(fxi_gpu_builder *b, const fxi_gpu_map *p, int k, const char *array,
                         const char *index)
{
    const fxi_gpu_type *t = &fxi_gpu_types[p->in[k].dtype];
    fxi_gpu_say(b, "const %s r%d = FX_LOAD_%s(%s, %s);\n", t->value, k, t->name, array, index);
}

enum { INDEX = 64 }; /* bytes of the text of an index */

/* Returns the text of operand k's index: `own`, that of the element, or an offset. */
static const char *index_of(const fxi_gpu_map *p, int k, const char *own, char text[INDEX])
{
    const int q = p->pattern[k];
    if (q < 0)
        return q == FXI_GPU_OWN ? own : "0";
    if (p->tiles.axis > 0)
        snprintf(text, INDEX, "o%d + a * P(%d) + b * P(%d)", q, TILE_STRIDES + 2 * q,
                 TILE_STRIDES + 2 * q + 1);
    else
        snprintf(text, INDEX, p->beside && !is_same(p, k) ? "o%d + (j - i)" : "o%d", q);
    return text;
}

/* Appends the stores of element i of all outputs. Registers of a program are rounded to their
 * type. */
static void say_stores(fxi_gpu_builder *b, const fxi_gpu_map *p)
{
    for (int k = 0; k < p->nout; k++) {
        const fxi_gpu_type *t = fxi_gpu_map_type(b->step, p, k);
        fxi_gpu_say(b, "FX_STORE_%s%s(y%d, i, r%d);\n", is_bf16(t) ? "rounded_" : "", t->name, k,
                    p->out[k]);
    }
}

void fxi_gpu_map_say_element(fxi_gpu_builder *b, const fxi_gpu_map *p)
{
    char array[16], index[INDEX];
    /* Before any output is stored, because an output may have the memory of an operand. */
    for (int k = 0; k < p->nin; k++) {
        snprintf(array, sizeof array, "x%d", k);
        say_register(b, p, k, array, index_of(p, k, "i", index));
    }
    fxi_gpu_say_program(b, p->nin);
    say_stores(b, p);
}

/* ---- several elements ------------------------------------------------------------------------ */
static fxi_gpu_pack pack_of(const fx_step *s, const fxi_gpu_map *p, int k, char name[16])
{
    snprintf(name, 16, "%c%d", k < p->nin ? 'v' : 'w', k < p->nin ? k : k - p->nin);
    return (fxi_gpu_pack){.name = name,
                          .type = k < p->nin ? &fxi_gpu_types[p->in[k].dtype]
                                             : fxi_gpu_map_type(s, p, k - p->nin),
                          .elements = p->elements};
}

/* Is there a pack for operand or output k? */
static bool has_pack(const fxi_gpu_map *p, int k)
{
    return k >= p->nin || (p->pattern[k] != FXI_GPU_SINGLE && !is_same(p, k) && !is_tiled(p, k));
}

static void say_packs(fxi_gpu_builder *b, const fxi_gpu_map *p, int n)
{
    char name[16];
    for (int k = 0; k < n; k++) {
        const fxi_gpu_pack pack = pack_of(b->step, p, k, name);
        if (has_pack(p, k))
            fxi_gpu_say_pack(b, &pack);
    }
}

/* Appends the loads of element e of all packs. */
static void say_pack_loads(fxi_gpu_builder *b, const fxi_gpu_map *p, const char *own)
{
    char index[INDEX];
    for (int k = 0; k < p->nin; k++)
        if (has_pack(p, k))
            fxi_gpu_say(b, "v%d.e[e] = x%d[%s];\n", k, k, index_of(p, k, own, index));
}

static void say_singles(fxi_gpu_builder *b, const fxi_gpu_map *p)
{
    char array[16], index[INDEX];
    for (int k = 0; k < p->nin; k++) {
        snprintf(array, sizeof array, "x%d", k);
        if (!has_pack(p, k) && !is_tiled(p, k))
            say_register(b, p, k, array, index_of(p, k, NULL, index));
    }
}

/* Appends the program for element e; operands with packs are in these. */
static void say_program_of_pack(fxi_gpu_builder *b, const fxi_gpu_map *p)
{
    char array[16];
    for (int k = 0; k < p->nin; k++) {
        snprintf(array, sizeof array, "v%d.e", k);
        if (has_pack(p, k) && is_bf16(&fxi_gpu_types[p->in[k].dtype]))
            fxi_gpu_say(b, "const fx_f32 r%d = FX_LOAD_word_bf16(v%d.w, e);\n", k, k);
        else if (has_pack(p, k))
            say_register(b, p, k, array, "e");
    }
    fxi_gpu_say_program(b, p->nin);
}

/* Appends the stores of element e in the packs of the outputs. BFloat16 numbers are made in pairs
 * at the end (say_pairs), because devices convert two at once. */
static void say_results(fxi_gpu_builder *b, const fxi_gpu_map *p)
{
    for (int k = 0; k < p->nout; k++) {
        const fxi_gpu_type *t = fxi_gpu_map_type(b->step, p, k);
        const int reg = p->out[k];
        if (!is_bf16(t))
            fxi_gpu_say(b, "FX_STORE_%s(w%d.e, e, r%d);\n", t->name, k, reg);
        else if (fxi_gpu_rounds(&fx_step_program(b->step).instr[reg - p->nin]))
            fxi_gpu_say(b, "f%d[e] = FX_PAIR_OF(t%d, r%d);\n", k, reg, reg);
        else
            fxi_gpu_say(b, "f%d[e] = r%d;\n", k, reg);
    }
}

/* For outputs of BFloat16: declares their Float32 numbers, or converts these in pairs. The numbers
 * are an array of their own because a pair is one word: both of its elements must be computed
 * before it is made. The loops are unrolled, so the arrays are registers.
 */
static void say_pairs(fxi_gpu_builder *b, const fxi_gpu_map *p, bool convert)
{
    for (int k = 0; k < p->nout; k++)
        if (is_bf16(fxi_gpu_map_type(b->step, p, k)) && convert)
            fxi_gpu_say(b,
                        "FX_UNROLL for (fx_int q = 0; q < %d; q++)\n"
                        "    w%d.w[q] = fx_pair_bf16(f%d[2 * q], f%d[2 * q + 1]);\n",
                        p->elements / 2, k, k, k);
        else if (is_bf16(fxi_gpu_map_type(b->step, p, k)))
            fxi_gpu_say(b, "fx_f32 f%d[%d];\n", k, p->elements);
}

static void say_vectors(fxi_gpu_builder *b, const fxi_gpu_map *p, bool stores)
{
    char name[16], at[32];
    for (int k = stores ? p->nin : 0; k < (stores ? p->nin + p->nout : p->nin); k++) {
        const fxi_gpu_pack pack = pack_of(b->step, p, k, name);
        if (!stores && p->pattern[k] >= 0)
            snprintf(at, sizeof at, "x%d + o%d", k, p->pattern[k]);
        else
            snprintf(at, sizeof at, "%c%d + i", stores ? 'y' : 'x', stores ? k - p->nin : k);
        if (has_pack(p, k))
            fxi_gpu_say_pack_moved(b, &pack, stores, at);
    }
}

/* Appends the addresses that decide whether vectors can be used, joined by |. Returns the bytes of
 * the longest vector. */
static int say_addresses(fxi_gpu_builder *b, const fxi_gpu_map *p)
{
    char name[16];
    int longest = 1;
    const char *join = "";
    for (int k = 0; k < p->nin + p->nout; k++) {
        const fxi_gpu_pack pack = pack_of(b->step, p, k, name);
        if (!has_pack(p, k))
            continue;
        longest = fxi_gpu_pack_bytes(&pack) > longest ? fxi_gpu_pack_bytes(&pack) : longest;
        fxi_gpu_say(b, "%sFX_ADDRESS(%c%d)", join, k < p->nin ? 'x' : 'y',
                    k < p->nin ? k : k - p->nin);
        join = " | ";
    }
    return longest;
}

void fxi_gpu_map_say_elements(fxi_gpu_builder *b, const fxi_gpu_map *p)
{
    fxi_gpu_set_number(b, "elements", p->elements);
    const char *text = fxi_gpu_say_until(b, fxi_gpu_text_several, "packs");
    say_packs(b, p, p->nin + p->nout);
    say_pairs(b, p, false);
    text = fxi_gpu_say_until(b, text, "addresses");
    fxi_gpu_set_number(b, "mask", say_addresses(b, p) - 1);
    text = fxi_gpu_say_until(b, text, "vector_loads");
    say_vectors(b, p, false);
    text = fxi_gpu_say_until(b, text, "loads");
    say_pack_loads(b, p, "j");
    text = fxi_gpu_say_until(b, text, "singles");
    say_singles(b, p);
    text = fxi_gpu_say_until(b, text, "program");
    say_program_of_pack(b, p);
    say_results(b, p);
    text = fxi_gpu_say_until(b, text, "pairs");
    say_pairs(b, p, true);
    text = fxi_gpu_say_until(b, text, "vector_stores");
    say_vectors(b, p, true);
    text = fxi_gpu_say_until(b, text, "stores");
    for (int k = 0; k < p->nout; k++)
        fxi_gpu_say(b, "y%d[i + e] = w%d.e[e];\n", k, k);
    fxi_gpu_say_part(b, text);
}

/* Appends the rest of a kernel for walked operands, whose elements are not neighbours. */
static void say_apart(fxi_gpu_builder *b, const fxi_gpu_map *p, const char *text)
{
    text = fxi_gpu_say_until(b, text, "packs");
    say_packs(b, p, p->nin);
    say_singles(b, p);
    text = fxi_gpu_say_until(b, text, "walk");
    fxi_gpu_walk_say(b, &p->walk, 1, "i", "o", NULL);
    text = fxi_gpu_say_until(b, text, "loads");
    say_pack_loads(b, p, "i");
    text = fxi_gpu_say_until(b, text, "program");
    say_program_of_pack(b, p);
    say_stores(b, p);
    fxi_gpu_say_part(b, text);
}

/* Appends the declaration of local memory, or the reading, of the operands that have tiles. */
static void say_tiled(fxi_gpu_builder *b, const fxi_gpu_map *p, bool fill)
{
    const int size = p->tiles.size;
    for (int k = 0; k < p->nin; k++) {
        const char *stored = fxi_gpu_types[p->in[k].dtype].stored;
        if (is_tiled(p, k) && !fill)
            fxi_gpu_say(b, "FX_LOCAL(%s, s%d, %d);\n", stored, k, size * pitch_of(p, k));
        if (!is_tiled(p, k) || !fill)
            continue;
        fxi_gpu_set(b, "stored", stored);
        fxi_gpu_set_number(b, "k", k);
        fxi_gpu_set_number(b, "pattern", p->pattern[k]);
        fxi_gpu_set_number(b, "stride", TILE_STRIDES + 2 * p->pattern[k]);
        fxi_gpu_set_number(b, "pitch", pitch_of(p, k));
        fxi_gpu_say_part(b, fxi_gpu_text_elementwise_fill);
    }
}

/* Appends the rest of a kernel by tiles. Parameters: the sizes of axis 0 (a) and of the tiles'
 * other axis (b); the divisors of the numbers of tiles along a and b; for each pattern the strides
 * along a and b; the walk over the other axes. */
static void say_tiles(fxi_gpu_builder *b, const fxi_gpu_map *p, const char *text)
{
    const fxi_gpu_tiles *t = &p->tiles;
    char own[INDEX], array[16], index[INDEX];
    snprintf(own, sizeof own, "o%d + a + b * P(%d)", t->out, TILE_STRIDES + 2 * t->out + 1);
    fxi_gpu_set_number(b, "tile", t->size);
    fxi_gpu_set_number(b, "rows", FXI_GPU_GROUP / t->size);
    fxi_gpu_set_number(b, "steps", t->size * t->size / FXI_GPU_GROUP);
    fxi_gpu_set(b, "index", own);
    text = fxi_gpu_say_until(b, text, "tiles");
    say_tiled(b, p, false);
    text = fxi_gpu_say_until(b, text, "walk");
    fxi_gpu_walk_say(b, &t->rest, TILE_STRIDES + 2 * t->rest.npatterns, "t2", "o", NULL);
    text = fxi_gpu_say_until(b, text, "fill");
    say_tiled(b, p, true);
    text = fxi_gpu_say_until(b, text, "singles");
    say_singles(b, p);
    text = fxi_gpu_say_until(b, text, "packs");
    say_packs(b, p, p->nin);
    text = fxi_gpu_say_until(b, text, "loads");
    say_pack_loads(b, p, own);
    text = fxi_gpu_say_until(b, text, "program");
    for (int k = 0; k < p->nin; k++) {
        snprintf(array, sizeof array, "s%d", k);
        snprintf(index, sizeof index, "lane * %d + r", is_tiled(p, k) ? pitch_of(p, k) : 0);
        if (is_tiled(p, k))
            say_register(b, p, k, array, index);
    }
    say_program_of_pack(b, p);
    say_stores(b, p);
    fxi_gpu_say_part(b, text);
}

/* ---- the kernel ------------------------------------------------------------------------------ */
/* The kernel's text; the head of this file gives the order of preference. */
static const char *text_of(const fxi_gpu_map *p)
{
    return p->tiles.axis > 0                   ? fxi_gpu_text_elementwise_tiles
           : p->elements == 1                  ? fxi_gpu_text_elementwise
           : p->layout.npatterns && !p->beside ? fxi_gpu_text_elementwise_apart
                                               : fxi_gpu_text_elementwise_vectors;
}

static void say_map(fxi_gpu_builder *b, const fxi_gpu_map *p)
{
    const fx_step *s = b->step;
    const char *text = text_of(p);
    if (!fxi_gpu_known(b))
        return;
    fxi_gpu_begin(b, p->wide);
    fxi_gpu_kernel(b, "fx_elementwise", p->nin + p->nout,
                   p->tiles.axis > 0 ? tile_params(p) : 1 + fxi_gpu_walk_params(&p->walk));
    fxi_gpu_set_number(b, "elements", p->elements);
    text = fxi_gpu_say_until(b, text, "operands");
    for (int k = 0; k < p->nin; k++)
        fxi_gpu_say(b, "FX_USE(%d, const %s, x%d)\n", k, fxi_gpu_types[p->in[k].dtype].stored, k);
    for (int k = 0; k < p->nout; k++)
        fxi_gpu_say(b, "FX_USE(%d, %s, y%d)\n", p->nin + k, fxi_gpu_map_type(s, p, k)->stored, k);
    if (p->tiles.axis > 0) {
        say_tiles(b, p, text);
    } else if (p->elements > 1 && p->layout.npatterns > 0 && !p->beside) {
        say_apart(b, p, text);
    } else if (p->elements > 1) {
        text = fxi_gpu_say_until(b, text, "walk");
        fxi_gpu_walk_say(b, &p->walk, 1, "i", "o", NULL);
        text = fxi_gpu_say_until(b, text, "several");
        fxi_gpu_map_say_elements(b, p);
        fxi_gpu_say_part(b, text);
    } else {
        text = fxi_gpu_say_until(b, text, "walk");
        fxi_gpu_walk_say(b, &p->walk, 1, "i", "o", NULL);
        text = fxi_gpu_say_until(b, text, "program");
        fxi_gpu_map_say_element(b, p);
        fxi_gpu_say_part(b, text);
    }
    fxi_gpu_end(b);
}

void fxi_gpu_map_outputs(fxi_gpu_map *p, const fx_step *s)
{
    const fx_more_outputs *more = fx_step_more(s);
    p->nout = 1 + more->n;
    p->out[0] = (uint8_t)(p->nin + fx_step_program(s).n - 1);
    for (int k = 0; k < more->n; k++)
        p->out[1 + k] = more->reg[k];
}

/* Sets the parameters that say_tiles describes, and one group for each tile. Neighbouring groups
 * have neighbouring tiles along the output's dense axis, so that they write to neighbouring memory
 * at about the same time.
 */
static void fill_tiles(const fxi_gpu_map *p, fxi_gpu_call *c)
{
    const fxi_gpu_tiles *t = &p->tiles;
    const fxi_gpu_walk *w = &p->walk;
    const int64_t along = fxi_gpu_divide_up(w->shape[0], t->size),
                  over = fxi_gpu_divide_up(w->shape[t->axis], t->size);
    fxi_gpu_param(c, 0, w->shape[0]);
    fxi_gpu_param(c, 1, w->shape[t->axis]);
    fxi_gpu_divisor(c, 2, along);
    fxi_gpu_divisor(c, 5, over);
    for (int q = 0; q < w->npatterns; q++) {
        fxi_gpu_param(c, TILE_STRIDES + 2 * q, w->stride[q][0]);
        fxi_gpu_param(c, TILE_STRIDES + 2 * q + 1, w->stride[q][t->axis]);
    }
    fxi_gpu_walk_fill(&t->rest, c, TILE_STRIDES + 2 * w->npatterns);
    c->groups[0] = along * over * fxi_gpu_walk_length(&t->rest);
}

void fxi_gpu_elementwise(fxi_gpu_builder *b)
{
    const fx_step *s = b->step;
    fxi_gpu_map p = {.in = s->in, .nin = s->nin, .length = fx_tensor_length(&s->out)};
    if (s->nin > FXI_GPU_OPERANDS) {
        fxi_gpu_fail(b, FX_STATUS_INTERNAL, "%d operands; the maximum is %d", (int)s->nin,
                     FXI_GPU_OPERANDS);
        return;
    }
    if (p.length == 0)
        return;
    fxi_gpu_map_outputs(&p, s);
    for (int k = 0; k < s->nin; k++)
        p.from[k] = (fxi_gpu_buffer_ref){k, FXI_GPU_IN};
    /* The order of these calls matters. An operand that `fit` copies gets another pattern. The
     * patterns decide how many elements a work-item gets. Patterns and number decide whether these
     * elements are neighbours. Tiles are for operands that are not read as neighbours. */
    set_patterns(&p, &s->out);
    fit(b, &p, &s->out);
    fxi_gpu_map_count(b, &p);
    choose_neighbours(&p);
    if (!p.beside)
        choose_tiles(b, &p, &s->out);
    say_map(b, &p);
    fxi_gpu_call *c = fxi_gpu_add_each(b, p.length);
    if (p.elements > 1)
        c->groups[0] = fxi_gpu_divide_up(p.length, (int64_t)p.elements * FXI_GPU_GROUP);
    for (int k = 0; k < p.nin; k++)
        fxi_gpu_buffer(c, k, (fxi_gpu_role)p.from[k].role, p.from[k].k);
    for (int k = 0; k < p.nout; k++)
        fxi_gpu_buffer(c, p.nin + k, FXI_GPU_OUT, k);
    if (p.tiles.axis > 0)
        fill_tiles(&p, c);
    else
        fxi_gpu_walk_fill(&p.walk, c, 1);
}

/* ---- generators ------------------------------------------------------------------------------ */
/* Element i is i / inner mod size: its index along the axis, below which are `inner` elements. */
static void iota(fxi_gpu_builder *b, int64_t n)
{
    const fx_tensor *t = &b->step->out;
    const fxi_gpu_type *type = &fxi_gpu_types[t->dtype];
    const int axis = fx_step_generator(b->step)->axis;
    int64_t strides[FX_MAX_DIMS];
    const fx_instr cast = {.op = FX_OP_CAST, .dtype = t->dtype, .from = FX_DTYPE_I64};
    fxi_dense_strides(t->ndim, t->shape, strides);
    fxi_gpu_begin(b, fxi_gpu_wide(n));
    fxi_gpu_kernel(b, "fx_iota", 1, 7);
    fxi_gpu_set(b, "stored", type->stored);
    fxi_gpu_set(b, "name", type->name);
    fxi_gpu_set_number(b, "result", t->dtype != FX_DTYPE_I64);
    const char *text = fxi_gpu_say_until(b, fxi_gpu_text_iota, "cast");
    /* The kernel computes the index as Int64 and converts it to other types. */
    if (t->dtype != FX_DTYPE_I64)
        fxi_gpu_say_instr(b, &cast, 1);
    fxi_gpu_say_part(b, text);
    fxi_gpu_end(b);
    fxi_gpu_call *c = fxi_gpu_add_each(b, n);
    fxi_gpu_buffer(c, 0, FXI_GPU_OUT, 0);
    /* The kernel divides by these two sizes for every element. */
    fxi_gpu_divisor(c, 1, strides[axis]);
    fxi_gpu_divisor(c, 4, t->shape[axis]);
}

/* Random number k of a block of words w. 16-bit types use as many bits as they can represent below
 * 1. The factors are 2⁻²⁴, 2⁻⁵³, 2⁻¹¹ and 2⁻⁸. */
static const char *const uniforms[FX_DTYPE_COUNT] = {
    [FX_DTYPE_F32] = "(fx_f32)(w[k] >> 8) * 5.96046448e-8f",
    [FX_DTYPE_F64] = "(fx_f64)((((fx_u64)w[2 * k] << 32) | w[2 * k + 1]) >> 11) "
                     "* 1.1102230246251565e-16",
    [FX_DTYPE_F16] = "(fx_f32)(w[k] >> 21) * 4.8828125e-4f",
    [FX_DTYPE_BF16] = "(fx_f32)(w[k] >> 24) * 3.90625e-3f",
};

static void uniform(fxi_gpu_builder *b, int64_t n)
{
    /* One call of Philox gives four words: four numbers, or two of Float64. */
    const int dtype = b->step->out.dtype, block = dtype == FX_DTYPE_F64 ? 2 : 4;
    const fxi_gpu_type *type = &fxi_gpu_types[dtype];
    if (!uniforms[dtype]) {
        fxi_gpu_fail(b, FX_STATUS_UNSUPPORTED, "no random numbers of element type %s", type->name);
        return;
    }
    fxi_gpu_begin(b, fxi_gpu_wide(n));
    fxi_gpu_say_part(b, fxi_gpu_text_philox);
    fxi_gpu_kernel(b, "fx_random", 2, 2);
    fxi_gpu_set(b, "stored", type->stored);
    fxi_gpu_set(b, "name", type->name);
    fxi_gpu_set_number(b, "block", block);
    fxi_gpu_set(b, "uniform", uniforms[dtype]);
    fxi_gpu_say_part(b, fxi_gpu_text_random);
    fxi_gpu_end(b);
    fxi_gpu_call *c = fxi_gpu_add(b);
    fxi_gpu_buffer(c, 0, FXI_GPU_OUT, 0);
    fxi_gpu_buffer(c, 1, FXI_GPU_STREAMS, 0);
    fxi_gpu_param(c, 0, n);
    fxi_gpu_param(c, 1, fx_step_generator(b->step)->stream);
    c->groups[0] = fxi_gpu_divide_up(n, (int64_t)block * FXI_GPU_GROUP);
}

void fxi_gpu_generate(fxi_gpu_builder *b)
{
    const int64_t n = fx_tensor_length(&b->step->out);
    if (n == 0)
        return;
    if (b->step->op == FX_OP_RANDOM)
        uniform(b, n);
    else
        iota(b, n);
}
