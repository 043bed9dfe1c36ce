/* gpu_map.c: kernels with one value for every element of the output: elementwise programs,
 * and generators.
 *
 * An operand is one value, or has the output's layout and is read at the element's own index, or is
 * walked (gpu_walk.c). A work-item computes several elements. It loads all of them before it stores
 * the first: an output may have the memory of an operand, so no compiler moves a load over a store,
 * and a single load in flight does not fill the memory's bandwidth. Dense operands are loaded and
 * stored as vectors.
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
    /* A long program spends its time on arithmetic: it needs fewer loads in flight, and compiles
     * faster if it is repeated less. */
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

/* Appends the index of operand k of an element: that of the element, or an offset. */
static const char *index_of(const fxi_gpu_map *p, int k, const char *own, char text[16])
{
    if (p->pattern[k] < 0)
        return p->pattern[k] == FXI_GPU_OWN ? own : "0";
    snprintf(text, 16, "o%d", p->pattern[k]);
    return text;
}

/* Appends the storing of element i of all outputs. Registers of a program are rounded to their
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
    char array[16], index[16];
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
    return k >= p->nin || p->pattern[k] != FXI_GPU_SINGLE;
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

/* Appends the loading of element e of all packs. */
static void say_pack_loads(fxi_gpu_builder *b, const fxi_gpu_map *p, const char *own)
{
    char index[16];
    for (int k = 0; k < p->nin; k++)
        if (has_pack(p, k))
            fxi_gpu_say(b, "v%d.e[e] = x%d[%s];\n", k, k, index_of(p, k, own, index));
}

static void say_singles(fxi_gpu_builder *b, const fxi_gpu_map *p)
{
    char array[16];
    for (int k = 0; k < p->nin; k++) {
        snprintf(array, sizeof array, "x%d", k);
        if (!has_pack(p, k))
            say_register(b, p, k, array, "0");
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

/* Appends the storing of element e in the packs of the outputs. BFloat16 numbers are made in pairs
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

/* Appends the conversion of pairs, or the declaration of the numbers. */
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
    char name[16], at[16];
    for (int k = stores ? p->nin : 0; k < (stores ? p->nin + p->nout : p->nin); k++) {
        const fxi_gpu_pack pack = pack_of(b->step, p, k, name);
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

/* ---- the kernel ------------------------------------------------------------------------------ */
static void say_map(fxi_gpu_builder *b, const fxi_gpu_map *p)
{
    const fx_step *s = b->step;
    const char *text = p->elements == 1          ? fxi_gpu_text_elementwise
                       : p->layout.npatterns > 0 ? fxi_gpu_text_elementwise_apart
                                                 : fxi_gpu_text_elementwise_vectors;
    if (!fxi_gpu_known(b))
        return;
    fxi_gpu_begin(b, p->wide);
    fxi_gpu_kernel(b, "fx_elementwise", p->nin + p->nout, 1 + fxi_gpu_walk_params(&p->walk));
    fxi_gpu_set_number(b, "elements", p->elements);
    text = fxi_gpu_say_until(b, text, "operands");
    for (int k = 0; k < p->nin; k++)
        fxi_gpu_say(b, "FX_USE(%d, const %s, x%d)\n", k, fxi_gpu_types[p->in[k].dtype].stored, k);
    for (int k = 0; k < p->nout; k++)
        fxi_gpu_say(b, "FX_USE(%d, %s, y%d)\n", p->nin + k, fxi_gpu_map_type(s, p, k)->stored, k);
    if (p->elements > 1 && p->layout.npatterns > 0) {
        say_apart(b, p, text);
    } else if (p->elements > 1) {
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
    set_patterns(&p, &s->out);
    fit(b, &p, &s->out);
    fxi_gpu_map_count(b, &p);
    say_map(b, &p);
    fxi_gpu_call *c = fxi_gpu_add_each(b, p.length);
    if (p.elements > 1)
        c->groups[0] = fxi_gpu_divide_up(p.length, (int64_t)p.elements * FXI_GPU_GROUP);
    for (int k = 0; k < p.nin; k++)
        fxi_gpu_buffer(c, k, (fxi_gpu_role)p.from[k].role, p.from[k].k);
    for (int k = 0; k < p.nout; k++)
        fxi_gpu_buffer(c, p.nin + k, FXI_GPU_OUT, k);
    fxi_gpu_walk_fill(&p.walk, c, 1);
}

/* ---- generators ------------------------------------------------------------------------------ */
/* Element i of the index along an axis is i / inner mod size. */
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
