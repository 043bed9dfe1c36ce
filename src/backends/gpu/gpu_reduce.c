/* gpu_reduce.c: reductions over any axes, of a tensor or of a program's values; several of them in
 * one launch; and scatter as a reduction.
 *
 * Some lanes of a group compute one result: its terms are divided between them, and their
 * accumulators are joined in a tree. This one kernel serves rows, columns and whole arrays.
 * Neighbouring work-items are lanes of one result if its terms are neighbours in memory, else
 * neighbouring results, or vectors of neighbouring results. If results are so few that the device
 * would be idle, their terms are cut into pieces: each group leaves an accumulator in work space,
 * and a second kernel joins these. The division depends on shapes and on the device alone, and so
 * do the bits.
 *
 * Reductions that are one step (foreach) share a launch if they have the same text and one piece
 * each. A group finds its reduction by its own number, and then works as in a launch of that
 * reduction alone.
 */
#include "gpu_text.h"

#include <stdio.h>
#include <string.h>

enum {
    SEGMENTS = 16, /* reductions of a launch without a table, at most */
    OPERANDS = 32,
    TEAMS = 16,      /* neighbouring lanes that have different results, at least */
    SMALL = 1 << 21, /* elements: a GPU reads them in the time of a launch */
    TERMS = 16,      /* terms of a lane, before the terms of a result are divided further */
    PIECES = 1024,   /* of a result, at most: each lane of the second kernel then joins four */
    /* Parameters: results, terms, pieces, terms of a piece, lanes. */
    RESULTS = 0,
    COUNT,
    PARTS,
    CHUNK,
    LANES,
    WALKS = LANES + FXI_GPU_LANE_PARAMS
};

typedef struct reduction {
    const fx_tensor *in;
    const fx_tensor *out;
    int32_t segment;      /* its number in the step */
    int nin, kind, dtype; /* dtype: type of the reduced values */
    bool matches;         /* scatter: only terms whose index (operand 1) is the result's own */
    int pattern[OPERANDS];
    int coordinate; /* scatter: the pattern that gives the result's own index */
    fxi_gpu_layout layout;
    fxi_gpu_walk kept, reduced;
    int64_t results, terms, pieces;
    fxi_gpu_lanes lanes;
    bool wide;
    int elements;    /* terms that a lane loads at a time */
    bool neighbours; /* they may be neighbours in memory */
    int several;     /* columns by vectors: terms of `elements` results that a lane loads; else 0 */
    int64_t partial; /* offset of the pieces' accumulators in work space */
} reduction;

/* The patterns in which results that differ along the first axis use the same element, for example
 * the mean of an observation in the gradient of a layer norm's scale. Bit p: pattern p. */
static uint32_t shared_patterns(const reduction *r)
{
    uint32_t shared = 0;
    for (int q = 0; q < r->kept.npatterns && r->kept.nd > 0; q++)
        shared |= r->kept.stride[q][0] == 0 ? 1u << q : 0;
    return shared;
}

/* The patterns of operands of which a pack has one element, which all results of a vector share. */
static uint32_t shared_of(const reduction *r)
{
    return r->several ? shared_patterns(r) : 0;
}

static fxi_gpu_packs packs_of(const reduction *r)
{
    return (fxi_gpu_packs){.in = r->in,
                           .n = r->nin,
                           .pattern = r->pattern,
                           .elements = r->elements,
                           .neighbours = r->neighbours,
                           .several = r->several,
                           .shared = shared_of(r)};
}

/* ---- how it is divided ----------------------------------------------------------------------- */
/* Columns if neighbouring results are closer together in memory than neighbouring terms. */
static bool by_columns(const reduction *r)
{
    /* Without patterns all operands are single values, and no order is better. */
    if (r->kept.nd == 0 || r->reduced.nd == 0 || r->layout.npatterns == 0)
        return r->kept.nd > 0;
    const int64_t k = r->kept.stride[0][0], s = r->reduced.stride[0][0];
    return (k < 0 ? -k : k) < (s < 0 ? -s : s) &&
           (r->kept.shape[0] >= 8 || r->reduced.shape[0] < 8);
}

static int64_t groups_of(const reduction *r)
{
    return fxi_gpu_divide_up(r->results,
                             FXI_GPU_GROUP / r->lanes.lanes * (r->several ? r->elements : 1));
}

/* Are n neighbouring results n neighbours, which begin at multiples of n, in every operand that has
 * an element of its own for each of them? */
static bool are_columns(const reduction *r, uint32_t shared, int n)
{
    const fxi_gpu_walk *kept = &r->kept, *reduced = &r->reduced;
    bool good = n > 1 && kept->nd > 0 && kept->npatterns > 0 && kept->shape[0] % n == 0;
    for (int q = 0; q < kept->npatterns && good; q++) {
        if (shared >> q & 1)
            continue;
        good = kept->stride[q][0] == 1;
        for (int d = 1; d < kept->nd; d++)
            good &= kept->stride[q][d] % n == 0;
        for (int d = 0; d < reduced->nd; d++)
            good &= reduced->stride[q][d] % n == 0;
    }
    return good;
}

/* Chooses vectors of neighbouring results. A lane that reads single elements reads few bytes at a
 * time. If each result has many lanes, a group has few results, and these are less than a line of
 * memory: 16 results of BFloat16 are 32 bytes of each term. */
static void choose_columns(const fxi_gpu_builder *b, reduction *r)
{
    enum { ACCUMULATOR = 4, LOADED = 32 }; /* words of an accumulator; of the loads in flight */
    int words = ACCUMULATOR + fx_step_program(b->step).n / 8, narrowest = 0;
    /* Small reductions of one step share a launch if they have the same text, but vectors of the
     * same size seldom divide the results of all of them. */
    const bool shares = b->step->cls == FX_CLASS_FOREACH && r->results * r->terms < SMALL;
    if (!by_columns(r) || r->matches || shares)
        return;
    /* A shared element needs one register for all results of a vector. */
    const uint32_t shared = shared_patterns(r);
    for (int k = 0; k < r->nin; k++) {
        const int size = fxi_gpu_types[r->in[k].dtype].size;
        if (r->pattern[k] < 0 || shared >> r->pattern[k] & 1)
            continue;
        words += size > 4 ? size / 4 : 1;
        narrowest = narrowest == 0 || size < narrowest ? size : narrowest;
    }
    int n = narrowest > 0 ? fxi_gpu_pack_elements(b, narrowest, words) : 1;
    while (n > 1 && !are_columns(r, shared, n))
        n /= 2;
    if (n == 1)
        return;
    r->elements = n;
    r->neighbours = true;
    r->several = n * (words - ACCUMULATOR) * 4 > LOADED ? 2 : 4;
}

/* Uses more lanes, then more pieces, until there are four groups for each unit, or lanes have too
 * few terms to repay the joining. */
static void divide(const fxi_gpu_builder *b, reduction *r)
{
    const int64_t busy = 4 * (int64_t)b->limits->units;
    r->lanes = (fxi_gpu_lanes){.lanes = 1, .columns = by_columns(r)};
    if (r->several) {
        /* Neighbouring lanes have different results, so that TEAMS vectors of a term are a long run
         * of memory; the other lanes take other terms. */
        const int32_t vectors = fxi_gpu_power(r->results / r->elements);
        r->lanes.lanes = FXI_GPU_GROUP / (vectors < TEAMS ? vectors : TEAMS);
        while (r->lanes.lanes > 1 && r->terms / r->lanes.lanes < r->several)
            r->lanes.lanes /= 2;
    }
    /* Rows: a lane has about as many terms as it loads at a time, but about four at least. */
    if (!r->lanes.columns)
        r->lanes.lanes = fxi_gpu_power(r->terms / (r->elements > 4 ? r->elements : 4));
    while (!r->several && groups_of(r) < busy && r->lanes.lanes < FXI_GPU_GROUP &&
           r->terms / r->lanes.lanes > TERMS)
        r->lanes.lanes *= 2;
    r->pieces = busy / (groups_of(r) > 0 ? groups_of(r) : 1);
    /* A piece has at least TERMS terms for each lane. */
    const int64_t most = r->terms / ((int64_t)r->lanes.lanes * TERMS);
    r->pieces = r->pieces < most ? r->pieces : most;
    r->pieces = r->pieces < 1 ? 1 : r->pieces > PIECES ? PIECES : r->pieces;
}

/* ---- text ------------------------------------------------------------------------------------ */
/* Appends the text that adds term t, element e of all packs, to the accumulator. */
static void say_value(fxi_gpu_builder *b, const reduction *r)
{
    for (int k = 0; k < r->nin; k++) {
        const fxi_gpu_type *t = &fxi_gpu_types[r->in[k].dtype];
        const bool single = r->pattern[k] < 0,
                   shared = !single && shared_of(r) >> r->pattern[k] & 1;
        const char *pack = r->several ? "[c].e" : ".e";
        fxi_gpu_say(b, "const %s r%d = FX_LOAD_%s(%c%d%s, %c);\n", t->value, k, t->name,
                    single ? 'x' : 'v', k, single ? "" : pack, single || shared ? '0' : 'e');
    }
    const int result = fxi_gpu_say_program(b, r->nin);
    /* All indices are read and compared: the kernel has no list of the terms of a result. */
    if (r->matches)
        fxi_gpu_say(b, "if ((fx_i64)r1 == (fx_i64)k%d)\n    ", r->coordinate);
    fxi_gpu_say(b, "a0 = fx_take0(a0, r%d, t);\n", result);
}

/* Appends the part that all reductions have in common, up to and including the lanes. */
static const char *say_head(fxi_gpu_builder *b, const char *text)
{
    const fxi_gpu_type *t = &fxi_gpu_types[b->step->out.dtype];
    fxi_gpu_set(b, "stored", t->stored);
    fxi_gpu_set(b, "name", t->name);
    fxi_gpu_set_number(b, "results", RESULTS);
    fxi_gpu_set_number(b, "count", COUNT);
    text = fxi_gpu_say_until(b, text, "lanes");
    fxi_gpu_say_lanes(b, LANES);
    return text;
}

/* The parameters of a reduction. */
static int params_of(const reduction *r)
{
    return WALKS + fxi_gpu_walk_params(&r->kept) + fxi_gpu_walk_params(&r->reduced);
}

/* Appends the body of a kernel whose operands have been declared. `group`: the number of the group
 * among those of the reduction. */
static void say_body(fxi_gpu_builder *b, const reduction *r, const char *text, const char *group)
{
    const int walks = fxi_gpu_walk_params(&r->kept);
    const fxi_gpu_packs packs = packs_of(r);
    fxi_gpu_set_number(b, "chunk", CHUNK);
    fxi_gpu_set_number(b, "parts", PARTS);
    fxi_gpu_set(b, "group", group);
    fxi_gpu_set_number(b, "elements", r->elements);
    fxi_gpu_set_number(b, "several", r->several);
    text = fxi_gpu_say_until(b, say_head(b, text), "kept");
    fxi_gpu_walk_say(b, &r->kept, WALKS, "o", "k", NULL);
    text = fxi_gpu_say_until(b, text, "near");
    fxi_gpu_say_near(b, &packs, r->several ? "0" : "first");
    text = fxi_gpu_say_until(b, text, "packs");
    fxi_gpu_say_packs(b, &packs, NULL);
    /* The walk over the terms is in the text twice: a branch within the loop of loads would let
     * each load wait for the previous one. */
    if (r->several) {
        text = fxi_gpu_say_until(b, text, "reduced");
        fxi_gpu_walk_say(b, &r->reduced, WALKS + walks, "t", "o", "k");
    }
    text = fxi_gpu_say_until(b, text, "vector_loads");
    fxi_gpu_say_vector_loads(b, &packs, NULL);
    text = fxi_gpu_say_until(b, text, r->several ? "reduced_again" : "reduced");
    fxi_gpu_walk_say(b, &r->reduced, WALKS + walks, "t", "o", "k");
    text = fxi_gpu_say_until(b, text, "loads");
    fxi_gpu_say_element_loads(b, &packs, NULL);
    text = fxi_gpu_say_until(b, text, "value");
    say_value(b, r);
    text = fxi_gpu_say_until(b, text, "tree");
    /* Several results use the same local memory. */
    fxi_gpu_say_tree(b, 0, 0, r->lanes.columns, r->several > 0);
    fxi_gpu_say_part(b, text);
    fxi_gpu_end(b);
}

static const char *text_of(const reduction *r)
{
    return r->several ? fxi_gpu_text_reduce_columns : fxi_gpu_text_reduce;
}

static void say_reduction(fxi_gpu_builder *b, const reduction *r, int *bytes)
{
    fxi_gpu_begin(b, r->wide);
    *bytes = fxi_gpu_say_fold(b, 0, r->kind, r->dtype, b->step->out.dtype);
    fxi_gpu_kernel(b, "fx_reduce", r->nin + 2, params_of(r));
    const char *text = fxi_gpu_say_until(b, text_of(r), "operands");
    fxi_gpu_say_operands(b, r->in, r->nin);
    fxi_gpu_say(b, "FX_USE(%d, %s, y)\nFX_USE(%d, fx_acc0, partial)\n", r->nin,
                fxi_gpu_types[b->step->out.dtype].stored, r->nin + 1);
    say_body(b, r, text, "FX_GROUP_X");
}

/* Sets the parameters of a reduction from `first` on. */
static void fill(const reduction *r, int64_t chunk, fxi_gpu_call *c, int first)
{
    const int walks = first + WALKS;
    fxi_gpu_param(c, first + RESULTS, r->results);
    fxi_gpu_param(c, first + COUNT, r->terms);
    fxi_gpu_param(c, first + PARTS, r->pieces);
    fxi_gpu_param(c, first + CHUNK, chunk);
    fxi_gpu_lanes_fill(r->lanes, c, first + LANES);
    fxi_gpu_walk_fill(&r->kept, c, walks);
    fxi_gpu_walk_fill(&r->reduced, c, walks + fxi_gpu_walk_params(&r->kept));
}

static void add_reduction(fxi_gpu_builder *b, reduction *r, int bytes)
{
    fxi_gpu_call *c = fxi_gpu_add(b);
    for (int k = 0; k < r->nin; k++)
        fxi_gpu_buffer(c, k, FXI_GPU_IN, r->segment * r->nin + k);
    fxi_gpu_buffer(c, r->nin, FXI_GPU_OUT, r->segment);
    /* Never written if there is one piece, but every buffer of a kernel needs an address. */
    fxi_gpu_buffer(c, r->nin + 1, FXI_GPU_OUT, r->segment);
    if (r->pieces > 1) {
        r->partial = fxi_gpu_work(b, r->pieces * r->results * bytes);
        fxi_gpu_buffer(c, r->nin + 1, FXI_GPU_WORK, r->partial);
    }
    const int64_t chunk = (r->terms + r->pieces - 1) / r->pieces;
    /* Rounding up the terms of a piece may leave fewer pieces than were asked for. */
    r->pieces = chunk > 0 ? (r->terms + chunk - 1) / chunk : 1;
    fill(r, chunk, c, 0);
    c->groups[0] = groups_of(r);
    c->groups[1] = r->pieces;
}

/* Adds the launch that joins the pieces of every result. */
static void finish(fxi_gpu_builder *b, const reduction *r)
{
    /* By columns: the accumulators of neighbouring results are neighbours in work space. */
    const fxi_gpu_lanes lanes = {.lanes = fxi_gpu_power(r->pieces / 4), .columns = true};
    fxi_gpu_begin(b, r->wide);
    fxi_gpu_say_fold(b, 0, r->kind, r->dtype, b->step->out.dtype);
    fxi_gpu_kernel(b, "fx_finish", 2, WALKS);
    const char *text = say_head(b, fxi_gpu_text_reduce_finish);
    text = fxi_gpu_say_until(b, text, "tree");
    fxi_gpu_say_tree(b, 0, 0, true, false);
    fxi_gpu_say_part(b, text);
    fxi_gpu_end(b);
    fxi_gpu_call *c = fxi_gpu_add(b);
    fxi_gpu_buffer(c, 0, FXI_GPU_WORK, r->partial);
    fxi_gpu_buffer(c, 1, FXI_GPU_OUT, r->segment);
    fxi_gpu_param(c, RESULTS, r->results);
    fxi_gpu_param(c, COUNT, r->pieces);
    fxi_gpu_lanes_fill(lanes, c, LANES);
    c->groups[0] = fxi_gpu_divide_up(r->results, FXI_GPU_GROUP / lanes.lanes);
}

/* Divides the reduction. `axes`: the axes of the layout that are reduced. */
static void settle(const fxi_gpu_builder *b, reduction *r, uint32_t axes)
{
    r->kept = fxi_gpu_walk_over(&r->layout, ~axes);
    r->reduced = fxi_gpu_walk_over(&r->layout, axes);
    r->results = fx_tensor_length(r->out);
    r->terms = fxi_gpu_walk_length(&r->reduced);
    fxi_gpu_packs packs = packs_of(r);
    fxi_gpu_packs_divide(b, &packs, &r->reduced, fx_step_program(b->step).n / 8);
    r->elements = packs.elements;
    r->neighbours = packs.neighbours;
    choose_columns(b, r);
    divide(b, r);
    /* Vectors give fewer groups, so terms are cut into pieces. The second launch, which joins the
     * pieces, takes longer than a small reduction gains by vectors. */
    if (r->several && r->pieces > 1 && r->results * r->terms < SMALL) {
        r->several = 0;
        r->elements = packs.elements;
        r->neighbours = packs.neighbours;
        divide(b, r);
    }
    /* The accumulators of the pieces are an array of their own. */
    r->wide |= fxi_gpu_wide(r->pieces * r->results);
}

/* Adds a reduction in a launch of its own. */
static void reduce(fxi_gpu_builder *b, reduction *r)
{
    int bytes;
    say_reduction(b, r, &bytes);
    add_reduction(b, r, bytes);
    if (r->pieces > 1)
        finish(b, r);
}

/* ---- reduce ---------------------------------------------------------------------------------- */
/* Describes reduction `segment` of the step: the reduce step s. */
static void describe(const fxi_gpu_builder *b, const fx_step *s, int32_t segment, reduction *r)
{
    const fx_reduce_step *own = fx_step_reduce(s);
    const fx_program *p = &own->program;
    const fx_tensor *space = p->n ? &own->space : &s->in[0];
    *r = (reduction){
        .in = s->in, .out = &s->out, .segment = segment, .nin = s->nin, .kind = own->fold};
    r->dtype = p->n ? p->instr[p->n - 1].dtype : s->in[0].dtype;
    r->layout.nd = space->ndim;
    for (int d = 0; d < space->ndim; d++)
        r->layout.shape[d] = space->shape[d];
    for (int k = 0; k < s->nin; k++)
        r->pattern[k] =
            fxi_gpu_is_scalar(&s->in[k]) ? -1 : fxi_gpu_layout_add(&r->layout, s->in[k].stride);
    r->wide = fxi_gpu_layout_wide(&r->layout);
    settle(b, r, own->mask);
}

/* Can a kernel compute the reduce step s, which may be a part of a foreach step? If not, records an
 * error. */
static bool can_reduce(fxi_gpu_builder *b, const fx_step *s)
{
    const fx_program p = fx_step_program(s);
    if (s->nin > OPERANDS) {
        fxi_gpu_fail(b, FX_STATUS_INTERNAL, "%d operands; the maximum is %d", (int)s->nin,
                     OPERANDS);
        return false;
    }
    return fxi_gpu_has_fold(b, fx_step_reduce(s)->fold,
                            p.n ? p.instr[p.n - 1].dtype : s->in[0].dtype) &&
           fxi_gpu_known(b);
}

void fxi_gpu_reduce(fxi_gpu_builder *b)
{
    reduction r;
    if (!can_reduce(b, b->step) || fx_tensor_length(&b->step->out) == 0)
        return;
    describe(b, b->step, 0, &r);
    reduce(b, &r);
}

/* ---- several reductions ---------------------------------------------------------------------- */
/* Do both reductions have the same text, so that they differ in parameters only? */
static bool same_text(const reduction *a, const reduction *b)
{
    bool same = !a->wide && !b->wide && a->pieces == 1 && b->pieces == 1 &&
                a->elements == b->elements && a->neighbours == b->neighbours &&
                a->several == b->several && shared_of(a) == shared_of(b) &&
                a->lanes.columns == b->lanes.columns &&
                a->layout.npatterns == b->layout.npatterns &&
                fxi_gpu_walk_params(&a->kept) == fxi_gpu_walk_params(&b->kept) &&
                fxi_gpu_walk_params(&a->reduced) == fxi_gpu_walk_params(&b->reduced);
    for (int k = 0; k < a->nin && same; k++)
        same = a->pattern[k] == b->pattern[k];
    return same;
}

/* The most reductions like r in a launch: as many as its arguments can hold. */
static int most_of(const fxi_gpu_builder *b, const reduction *r, bool table)
{
    /* OpenCL passes an offset with each address. */
    const int address = (int)sizeof(int64_t) * (table ? 1 : 2), own = r->nin + 1,
              params = params_of(r) + 1,
              bytes = b->limits->param_bytes / (own * address + params * (int)sizeof(int32_t));
    int most = table ? FXI_GPU_TABLE / own : b->limits->buffers / own;
    most = table || most < SEGMENTS ? most : SEGMENTS;
    most = most < FXI_GPU_PARAMS / params ? most : FXI_GPU_PARAMS / params;
    return most < bytes ? most : bytes;
}

/* Appends the kernel of `count` reductions like r. */
static void say_reductions(fxi_gpu_builder *b, const reduction *r, int count, bool table)
{
    const int own = r->nin + 1;
    fxi_gpu_begin(b, false);
    fxi_gpu_say_fold(b, 0, r->kind, r->dtype, b->step->out.dtype);
    fxi_gpu_kernel_with_table(b, "fx_reductions", count * own, table ? count * own : 0,
                              count * (1 + params_of(r)));
    fxi_gpu_set_number(b, "batch", count);
    fxi_gpu_set_number(b, "params", params_of(r));
    const char *text = fxi_gpu_say_until(b, fxi_gpu_text_reductions, "later_reductions");
    for (int g = 1; g < count; g++)
        fxi_gpu_say(b, " + (FX_GROUP_X >= P(%d))", g);
    fxi_gpu_say_part(b, text);
    for (int k = 0; k < own; k++) {
        const bool in = k < r->nin;
        const char *is_const = in ? "const " : "",
                   *type = fxi_gpu_types[in ? r->in[k].dtype : b->step->out.dtype].stored;
        char name[16];
        snprintf(name, sizeof name, in ? "x%d" : "y", k);
        for (int g = 0; g < count && !table; g++)
            fxi_gpu_say(b, "FX_USE(%d, %s%s, b%d)\n", k + g * own, is_const, type, k + g * own);
        fxi_gpu_say(b, "FX_GLOBAL %s%s *%s = ", is_const, type, name);
        if (table)
            fxi_gpu_say(b, "(%s%s *)FX_ENTRY(g * %d + %d)", is_const, type, own, k);
        else
            fxi_gpu_say_choice(b, count, "b%d", k, own);
        fxi_gpu_say(b, ";\n");
    }
    /* Each reduction has one piece, so `partial` is not used. */
    fxi_gpu_say(b, "FX_GLOBAL fx_acc0 *partial = (FX_GLOBAL fx_acc0 *)y;\n");
    b->own = "from + ";
    fxi_gpu_set(b, "own", b->own);
    text = fxi_gpu_say_until(b, text_of(r), "operands");
    say_body(b, r, text, "group");
}

/* Adds a launch of reduction `first` and of those that can share it; marks them as done. */
static void add_reductions(fxi_gpu_builder *b, int32_t first, bool *done)
{
    const fx_foreach_step *f = fx_step_foreach(b->step);
    const bool table = fxi_gpu_reads_addresses(b);
    reduction r, other;
    describe(b, &f->each[first], first, &r);
    int32_t chosen[FXI_GPU_TABLE], n = 0;
    const int most = r.results > 0 ? most_of(b, &r, table) : 0;
    for (int32_t g = first; g < f->nsegments && n < most; g++) {
        if (!done[g])
            describe(b, &f->each[g], g, &other);
        if (!done[g] && same_text(&r, &other))
            chosen[n++] = g;
    }
    done[first] = true;
    if (n < 2) {
        if (r.results > 0)
            reduce(b, &r);
        return;
    }
    /* Each count needs a kernel of its own, so only powers of two and the largest count are
     * used. */
    int count = 2;
    while (count < n)
        count *= 2;
    count = count < most ? count : most;
    say_reductions(b, &r, count, table);
    fxi_gpu_call *c = fxi_gpu_add(b);
    int64_t groups = 0;
    for (int k = 0; k < count; k++) {
        /* No group has the number INT32_MAX, so no group chooses an unused reduction. */
        fxi_gpu_param(c, k, k < n ? groups : INT32_MAX);
        if (k >= n)
            continue;
        describe(b, &f->each[chosen[k]], chosen[k], &other);
        fill(&other, other.terms, c, count + k * params_of(&r));
        for (int i = 0; i < r.nin; i++)
            fxi_gpu_buffer(c, k * (r.nin + 1) + i, FXI_GPU_IN, chosen[k] * r.nin + i);
        fxi_gpu_buffer(c, k * (r.nin + 1) + r.nin, FXI_GPU_OUT, chosen[k]);
        groups += groups_of(&other);
        done[chosen[k]] = true;
    }
    c->groups[0] = groups;
}

void fxi_gpu_reductions(fxi_gpu_builder *b)
{
    const fx_foreach_step *f = fx_step_foreach(b->step);
    const fx_host *host = b->runtime->host;
    bool *done = host->alloc((size_t)f->nsegments);
    if (!done) {
        fxi_gpu_no_memory(b);
        return;
    }
    memset(done, 0, (size_t)f->nsegments);
    for (int32_t g = 0; g < f->nsegments && can_reduce(b, &f->each[g]) && !b->status; g++)
        if (!done[g])
            add_reductions(b, g, done);
    host->free(done);
}

/* ---- scatter --------------------------------------------------------------------------------- */
/* A scatter as a reduction. The axes of the layout are the output's, then those of idx (only
 * `axis`, if idx has an index for each element): an element of the output takes the terms whose
 * index is its own. */
void fxi_gpu_scatter_by_output(fxi_gpu_builder *b)
{
    const fx_step *s = b->step;
    const fx_tensor *src = &s->in[0], *idx = &s->in[1], *out = &s->out;
    const bool elements = fx_step_by_element(s);
    const int axis = fx_step_scatter(s)->axis, n = out->ndim, axes = elements ? 1 : idx->ndim;
    int64_t from_src[FXI_GPU_AXES] = {0}, from_idx[FXI_GPU_AXES] = {0},
            coordinate[FXI_GPU_AXES] = {0};
    reduction r = {
        .in = s->in, .out = &s->out, .nin = 2, .kind = fx_step_scatter(s)->fold, .matches = true};
    r.dtype = src->dtype;
    r.layout.nd = n + axes;
    for (int d = 0; d < n; d++) {
        r.layout.shape[d] = out->shape[d];
        if (d == axis)
            continue;
        from_src[d] = src->stride[d < axis ? d : d + axes - 1];
        from_idx[d] = elements ? idx->stride[d] : 0;
    }
    for (int d = 0; d < axes; d++) {
        r.layout.shape[n + d] = src->shape[axis + d];
        from_src[n + d] = src->stride[axis + d];
        from_idx[n + d] = idx->stride[elements ? axis : d];
    }
    /* A stride of 1 along the axis and 0 elsewhere: the walk's offset is then the index itself. */
    coordinate[axis] = 1;
    r.pattern[0] = fxi_gpu_layout_add(&r.layout, from_src);
    r.pattern[1] = fxi_gpu_layout_add(&r.layout, from_idx);
    r.coordinate = fxi_gpu_layout_add(&r.layout, coordinate);
    r.wide = fxi_gpu_layout_wide(&r.layout);
    if (!fxi_gpu_has_fold(b, r.kind, r.dtype) || !fxi_gpu_known(b) || fx_tensor_length(out) == 0)
        return;
    settle(b, &r, ~0u << n);
    reduce(b, &r);
}
