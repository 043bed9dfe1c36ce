/* test_plan_check.c: the check of finished plans finds each kind of mistake in plans made by hand.
 *
 * Every test builds a correct plan, which passes the check, makes one mistake in it, and expects
 * the message that names the mistake. Steps are never run.
 */
#include "semantics_check.h"

#include "planning.h"

#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 8 };

/* A plan with memory for a few steps and values. */
typedef struct draft {
    fxi_plan p;
    fxi_value values[MOST];
    fx_step steps[MOST];
    fx_tensor in[MOST][MOST];
    int32_t in_value[MOST][MOST];
    int64_t in_offset[MOST][MOST];
    fx_instr program[MOST];
    fx_segment segments[MOST];
    fxi_result results[MOST];
    int64_t buffers[MOST];
} draft;

static draft *new_draft(draft *d)
{
    memset(d, 0, sizeof *d);
    d->p.values = d->values;
    d->p.steps = d->steps;
    d->p.results = d->results;
    d->p.buffer_bytes = d->buffers;
    d->p.arena_bytes = 1024;
    return d;
}

static int32_t add_value(draft *d, fxi_value_kind kind, int32_t index, int64_t offset,
                         int64_t bytes)
{
    d->values[d->p.nvalues] =
        (fxi_value){.kind = kind, .index = index, .offset = offset, .bytes = bytes};
    if (kind == FXI_VALUE_OUTPUT) {
        d->buffers[index] = bytes;
        d->p.nbuffers = index + 1;
    }
    return d->p.nvalues++;
}

static int32_t in_arena(draft *d, int64_t offset, int64_t bytes)
{
    return add_value(d, FXI_VALUE_ARENA, 0, offset, bytes);
}
static int32_t a_leaf(draft *d, int32_t index, int64_t bytes)
{
    return add_value(d, FXI_VALUE_LEAF, index, 0, bytes);
}
static int32_t an_output(draft *d, int32_t index, int64_t bytes)
{
    return add_value(d, FXI_VALUE_OUTPUT, index, 0, bytes);
}

static fx_tensor vector_of(fx_dtype t, int64_t n, int64_t stride)
{
    return (fx_tensor){.dtype = (uint8_t)t, .ndim = 1, .shape = {n}, .stride = {stride}};
}

static fx_step *add_step(draft *d, fx_op op, int32_t out_value, fx_tensor out)
{
    fx_step *s = &d->steps[d->p.nsteps];
    *s = (fx_step){.op = (uint8_t)op,
                   .cls = (uint8_t)fxi_ops[op].cls,
                   .in = d->in[d->p.nsteps],
                   .in_value = d->in_value[d->p.nsteps],
                   .in_offset = d->in_offset[d->p.nsteps],
                   .out = out,
                   .out_value = out_value};
    d->p.nsteps++;
    return s;
}

static void add_operand(fx_step *s, int32_t value, int64_t offset, fx_tensor t)
{
    s->in[s->nin] = t;
    s->in_value[s->nin] = value;
    s->in_offset[s->nin++] = offset;
}

static void add_result(draft *d, int32_t value)
{
    d->results[d->p.noutputs++].value = value;
}

static void expect_sound(const draft *d)
{
    char why[200] = "";
    const fx_status status = fxi_plan_check(&d->p, why, sizeof why);
    if (status != FX_OK)
        fail_msg("a plan that is right: %s", why);
}

static void expect_wrong(const draft *d, const char *text)
{
    char why[200] = "";
    assert_int_equal(fxi_plan_check(&d->p, why, sizeof why), FX_STATUS_INTERNAL);
    if (!strstr(why, text))
        fail_msg("got \"%s\", expected \"%s\"", why, text);
}

/* leaf 0 → CUMSUM → value 1 in the arena → CAST → value 2 in the arena → CUMSUM → output 3.
 * 16 Float32; the cast goes to Int32. */
static draft *chain(draft *d)
{
    const fx_tensor f = vector_of(FX_DTYPE_F32, 16, 1), i = vector_of(FX_DTYPE_I32, 16, 1);
    new_draft(d);
    a_leaf(d, 0, 64);
    in_arena(d, 0, 64);
    in_arena(d, 64, 64);
    an_output(d, 0, 64);
    add_operand(add_step(d, FX_OP_CUMSUM, 1, f), 0, 0, f);
    add_operand(add_step(d, FX_OP_CAST, 2, i), 1, 0, f);
    add_operand(add_step(d, FX_OP_CUMSUM, 3, i), 2, 0, i);
    add_result(d, 3);
    return d;
}

static void in_place_is_right(void **state)
{
    (void)state;
    draft d;
    expect_sound(chain(&d));
    d.values[2].offset = 0; /* the cast writes over what it reads */
    expect_sound(&d);
}

/* ---- what a step writes over ----------------------------------------------------------------- */

/* Half of the value, widened: as many bytes as the whole. */
static void a_partial_read_is_overwritten(void **state)
{
    (void)state;
    draft d;
    chain(&d);
    d.steps[1].in[0] = vector_of(FX_DTYPE_F32, 8, 1);
    d.steps[1].out = d.steps[2].in[0] = vector_of(FX_DTYPE_I64, 8, 1);
    d.steps[2].out = vector_of(FX_DTYPE_I64, 8, 1);
    expect_sound(&d);
    d.values[2].offset = 0;
    expect_wrong(&d, "step 1 (cast) writes value 2 over value 1, which it reads in another order");
}

static void another_order_is_overwritten(void **state)
{
    (void)state;
    draft d;
    chain(&d);
    d.values[2].offset = 0;
    d.steps[1].in[0] = vector_of(FX_DTYPE_F32, 16, -1);
    d.steps[1].in_offset[0] = 15;
    expect_wrong(&d, "step 1 (cast) writes value 2 over value 1");
    chain(&d);
    d.values[2].offset = 0;
    d.steps[1].in[0].stride[0] = 0; /* one element for all */
    expect_wrong(&d, "step 1 (cast) writes value 2 over value 1");
    chain(&d);
    d.values[2].offset = 0;
    d.steps[1].op = FX_OP_CUMSUM; /* may not work in place at all */
    d.steps[1].cls = FX_CLASS_SCAN;
    expect_wrong(&d, "step 1 (cumsum) writes value 2 over value 1");
    chain(&d);
    d.values[1].bytes = 128; /* the output begins a few bytes before the operand */
    d.steps[0].out = d.steps[0].in[0] = vector_of(FX_DTYPE_F32, 32, 1);
    d.values[0].bytes = 128;
    d.values[2].offset = 64;
    d.steps[1].in_offset[0] = 8;
    expect_wrong(&d, "step 1 (cast) writes value 2 over value 1");
    d.steps[1].in_offset[0] = 16; /* the same bytes that the step reads */
    expect_sound(&d);
    d.steps[1].in_offset[0] = 0; /* overlaps only bytes that the step does not read */
    expect_sound(&d);
}

/* Two values of 16 Float32, made by steps 0 and 1, then their concatenation, which is read. */
static void operands_inside_a_concatenation(void **state)
{
    (void)state;
    draft d;
    const fx_tensor f = vector_of(FX_DTYPE_F32, 16, 1), both = vector_of(FX_DTYPE_F32, 32, 1);
    new_draft(&d);
    a_leaf(&d, 0, 64);
    in_arena(&d, 256, 64);
    in_arena(&d, 320, 64);
    in_arena(&d, 256, 128);
    an_output(&d, 0, 128);
    add_operand(add_step(&d, FX_OP_CUMSUM, 1, f), 0, 0, f);
    add_operand(add_step(&d, FX_OP_CUMSUM, 2, f), 0, 0, f);
    fx_step *s = add_step(&d, FX_OP_CONCAT, 3, both);
    add_operand(s, 1, 0, f);
    add_operand(s, 2, 0, f);
    add_operand(add_step(&d, FX_OP_CUMSUM, 4, both), 3, 0, both);
    add_result(&d, 4);
    expect_sound(&d);
    s->in_value[0] = 2; /* each where the other belongs */
    s->in_value[1] = 1;
    expect_wrong(&d,
                 "step 2 (concat) writes value 3 over value 2, which it reads in another order");
    s->in_value[0] = 1;
    s->in_value[1] = 2;
    s->in[1].stride[0] = -1;
    s->in_offset[1] = 15;
    expect_wrong(&d,
                 "step 2 (concat) writes value 3 over value 2, which it reads in another order");
    s->in[1].stride[0] = 1;
    s->in_offset[1] = 0;
    add_operand(&d.steps[3], 2, 0, f);
    expect_wrong(&d,
                 "step 3 (cumsum) reads value 2, over which step 2 (concat) has written value 3");
}

static void a_later_step_still_reads(void **state)
{
    (void)state;
    draft d;
    chain(&d);
    add_operand(&d.steps[2], 1, 0, vector_of(FX_DTYPE_F32, 16, 1));
    expect_sound(&d);
    d.values[2].offset = 0;
    expect_wrong(&d, "step 2 (cumsum) reads value 1, over which step 1 (cast) has written value 2");
    chain(&d);
    add_operand(&d.steps[2], 1, 0, vector_of(FX_DTYPE_F32, 16, 1));
    d.values[1].bytes = 128; /* two values that are alive at once overlap in part */
    d.steps[0].out = d.steps[0].in[0] = vector_of(FX_DTYPE_F32, 32, 1);
    d.values[0].bytes = 128;
    expect_wrong(&d, "step 2 (cumsum) reads value 1");
}

/* A value among several that the arena holds is the one that is lost. */
static void only_what_overlaps_is_lost(void **state)
{
    (void)state;
    const fx_tensor f = vector_of(FX_DTYPE_F32, 16, 1);
    for (int bad = 0; bad < 4; bad++) {
        draft d;
        new_draft(&d);
        a_leaf(&d, 0, 64);
        for (int k = 0; k < 3; k++) /* values 1, 2, 3 at 0, 64, 128 */
            in_arena(&d, 64 * k, 64);
        in_arena(&d, bad < 3 ? 64 * bad : 192, 64);
        an_output(&d, 0, 64);
        for (int k = 1; k <= 4; k++)
            add_operand(add_step(&d, FX_OP_CUMSUM, k, f), 0, 0, f);
        fx_step *last = add_step(&d, FX_OP_CONCAT, 5, f);
        for (int k = 1; k <= 4; k++)
            add_operand(last, k, 0, f);
        add_result(&d, 5);
        char text[100];
        snprintf(text, sizeof text,
                 "reads value %d, over which step 3 (cumsum) has written value 4", bad + 1);
        if (bad == 3)
            expect_sound(&d);
        else
            expect_wrong(&d, text);
    }
}

static void outputs_of_a_step_overlap(void **state)
{
    (void)state;
    draft d;
    chain(&d);
    in_arena(&d, 128, 64);
    d.program[0] = d.program[1] =
        (fx_instr){.op = FX_OP_CAST, .dtype = FX_DTYPE_I32, .from = FX_DTYPE_F32, .nsrc = 1};
    d.steps[1].as.elementwise =
        (fx_elementwise_step){{d.program, 2}, {.n = 1, .reg = {1}, .value = {4}}};
    expect_sound(&d);
    d.values[4].offset = 64;
    expect_wrong(&d, "step 1 (cast) writes value 4 over value 2, another output of it");
    d.values[4].offset = 128;
    /* The type of the instruction that computes the further output. */
    d.program[0].dtype = FX_DTYPE_I64;
    expect_wrong(&d, "step 1 (cast) writes 128 bytes to value 4, which has 64");
    d.program[0].dtype = FX_DTYPE_I32;
    d.steps[1].as.elementwise.more.reg[0] = 2; /* that of value 2 */
    expect_wrong(&d, "step 1 (cast) stores one register as values 2 and 4");
}

/* ---- attention ------------------------------------------------------------------------------- */

enum { FEATURES = 16, LENGTH = 4, HEADS = 2 };

/* features×length×1 of a Float16 array with `rows` features. */
static fx_tensor rows_of(int64_t rows)
{
    return (fx_tensor){.dtype = FX_DTYPE_F16,
                       .ndim = 3,
                       .shape = {FEATURES, LENGTH, 1},
                       .stride = {1, rows, rows * LENGTH}};
}

/* The gradient of the query: q, k and v are slices of leaf 0, which has `rows` features; gy is leaf
 * 1, and the logarithms of the sums and delta are leaf 2. */
static draft *attending(draft *d, int64_t rows)
{
    const fx_tensor sums = {.dtype = FX_DTYPE_F32,
                            .ndim = 3,
                            .shape = {HEADS, LENGTH, 1},
                            .stride = {1, HEADS, HEADS * LENGTH}};
    new_draft(d);
    a_leaf(d, 0, 2 * rows * LENGTH);
    a_leaf(d, 1, 2 * FEATURES * LENGTH);
    a_leaf(d, 2, 4 * HEADS * LENGTH);
    an_output(d, 0, 2 * FEATURES * LENGTH);
    fx_step *s = add_step(d, FX_OP_ATTENTION, 3, rows_of(FEATURES));
    for (int k = 0; k < 3; k++)
        add_operand(s, 0, k * FEATURES, rows_of(rows));
    add_operand(s, 1, 0, rows_of(FEATURES));
    add_operand(s, 2, 0, sums);
    add_operand(s, 2, 0, sums);
    fx_attr a = {.attention = {.kind = FX_ATTENTION_GRADIENT_QUERY, .heads = HEADS, .scale = 1}};
    fxi_step_set_attr(s, &a);
    fxi_step_set_attention_sizes(s);
    add_result(d, 3);
    return d;
}

/* Kernels load 8 of the neighbouring features at once. */
static void operands_of_attention(void **state)
{
    (void)state;
    draft d;
    expect_sound(attending(&d, 3 * FEATURES));
    expect_sound(attending(&d, 3 * FEATURES + 8));
    expect_wrong(attending(&d, 3 * FEATURES + 4),
                 "step 0 (attention) reads value 0, which is not aligned or not dense");
    attending(&d, 3 * FEATURES + 8);
    d.steps[0].in_offset[1] += 8;
    expect_sound(&d);
    d.steps[0].in_offset[1] -= 4;
    expect_wrong(&d, "step 0 (attention) reads value 0, which is not aligned");
    attending(&d, 3 * FEATURES);
    d.in[0][2].stride[0] = 2;
    expect_wrong(&d, "step 0 (attention) reads value 0, which is not aligned");
    attending(&d, 3 * FEATURES);
    for (int k = 0; k < 4; k++) { /* dense, and 14 bytes for each vector of features */
        d.in[0][k].shape[0] = d.in[0][k].stride[1] = 7;
        d.in[0][k].stride[2] = 7 * LENGTH;
    }
    expect_sound(&d);
    d.in[0][2].stride[1] = 9;
    expect_wrong(&d, "step 0 (attention) reads value 0, which is not aligned or not dense");
    attending(&d, 3 * FEATURES);
    d.in[0][5].stride[1] = 0; /* the delta of one query for all */
    expect_wrong(&d, "step 0 (attention) reads value 2, which is not aligned or not dense");
}

/* ---- donated buffers ------------------------------------------------------------------------- */

/* leaf 0 → NEG → value 1 in the leaf's buffer; leaf 0 → CUMSUM → output 2, before that. */
static draft *donation(draft *d)
{
    const fx_tensor f = vector_of(FX_DTYPE_F32, 16, 1);
    new_draft(d);
    a_leaf(d, 0, 64);
    add_value(d, FXI_VALUE_DONATED, 0, 0, 64);
    an_output(d, 0, 64);
    add_operand(add_step(d, FX_OP_CUMSUM, 2, f), 0, 0, f);
    add_operand(add_step(d, FX_OP_NEG, 1, f), 0, 0, f);
    add_result(d, 1);
    add_result(d, 2);
    return d;
}

static void donated_buffers(void **state)
{
    (void)state;
    draft d;
    expect_sound(donation(&d));
    const fx_step first = d.steps[0];
    d.steps[0] = d.steps[1];
    d.steps[1] = first;
    expect_wrong(&d, "step 1 (cumsum) reads value 0, over which step 0 (neg) has written value 1");
    donation(&d);
    d.steps[1].in[0] = vector_of(FX_DTYPE_F32, 16, -1);
    d.steps[1].in_offset[0] = 15;
    expect_wrong(&d, "step 1 (neg) writes value 1 over value 0, which it reads in another order");
    donation(&d);
    d.results[1].value = 0; /* the old value is also a result */
    expect_wrong(&d, "result 1 reads value 0, over which step 1 (neg) has written value 1");
    donation(&d);
    d.values[1].index = 1;
    expect_wrong(&d, "value 1 is in leaf 1 of 1");
    donation(&d);
    d.values[0].bytes = 128;
    expect_wrong(&d, "value 1 has 64 bytes, value 0 that it replaces 128");
}

/* Two segments of a foreach step, each in its leaf's buffer. */
static void segments(void **state)
{
    (void)state;
    const fx_tensor f = vector_of(FX_DTYPE_F32, 16, 1);
    for (int bad = 0; bad < 3; bad++) {
        draft d;
        new_draft(&d);
        a_leaf(&d, 0, 64);
        a_leaf(&d, 1, 64);
        add_value(&d, FXI_VALUE_DONATED, 0, 0, 64);
        add_value(&d, FXI_VALUE_DONATED, 1, 0, 64);
        fx_step *s = add_step(&d, FX_OP_NEG, 3, f);
        s->cls = FX_CLASS_FOREACH;
        s->as.foreach = (fx_foreach_step){.segments = d.segments, .nsegments = 2};
        for (int k = 0; k < 2; k++) {
            const bool crossed = bad == 1, reversed = bad == 2 && k == 1;
            d.segments[k] = (fx_segment){.length = 16, .value = {2 + k}};
            add_operand(s, crossed ? 1 - k : k, reversed ? 15 : 0,
                        vector_of(FX_DTYPE_F32, 16, reversed ? -1 : 1));
            add_result(&d, 2 + k);
        }
        if (bad == 0)
            expect_sound(&d);
        else
            expect_wrong(&d, "step 0 (neg) writes value 3 over value 1");
    }
}

/* ---- places and results ---------------------------------------------------------------------- */

static void places(void **state)
{
    (void)state;
    draft d;
    chain(&d);
    d.p.arena_bytes = 128;
    expect_sound(&d);
    d.p.arena_bytes = 127;
    expect_wrong(&d, "value 2 is at bytes 64 to 127 of an arena of 127");
    chain(&d);
    d.p.literals_offset = 64; /* literals follow */
    d.p.literals_bytes = 8;
    expect_wrong(&d, "value 2 is at bytes 64 to 127 of an arena of 64");
    chain(&d);
    d.p.literals_offset = 128;
    d.p.literals_bytes = 8;
    expect_sound(&d);
    d.p.arena_bytes = 130;
    expect_wrong(&d, "literals are at bytes 128 to 135 of an arena of 130");
    chain(&d);
    d.values[1].offset = -64;
    expect_wrong(&d, "value 1 is at bytes -64 to -1");
    chain(&d);
    d.values[2].offset = 68; /* kernels expect aligned memory */
    expect_wrong(&d, "value 2 is at bytes 68");
    chain(&d);
    d.buffers[0] = 32;
    expect_wrong(&d, "value 3 has 64 bytes, its buffer 32");
    chain(&d);
    d.values[3].index = 1;
    expect_wrong(&d, "value 3 is in output buffer 1 of 1");
}

static void order_and_sizes(void **state)
{
    (void)state;
    draft d;
    chain(&d);
    d.steps[0].in_value[0] = 2;
    expect_wrong(&d, "step 0 (cumsum) reads value 2 before a step has made it");
    chain(&d);
    d.steps[1].out_value = 1;
    expect_wrong(&d, "step 1 (cast) makes value 1, which is already defined");
    chain(&d);
    d.steps[1].out_value = 0;
    expect_wrong(&d, "step 1 (cast) makes value 0, which is already defined");
    chain(&d);
    d.steps[1].out = vector_of(FX_DTYPE_I64, 16, 1);
    expect_wrong(&d, "step 1 (cast) writes 128 bytes to value 2, which has 64");
    chain(&d);
    d.steps[1].in_offset[0] = 1;
    expect_wrong(&d, "step 1 (cast) reads bytes 4 to 67 of value 1, which has 64");
    chain(&d);
    d.steps[1].in[0].stride[0] = -1;
    expect_wrong(&d, "step 1 (cast) reads bytes -60 to 3 of value 1");
}

static void results(void **state)
{
    (void)state;
    draft d;
    chain(&d);
    add_result(&d, 2);
    expect_wrong(&d, "result 1 is value 2, whose memory does not outlive the run");
    chain(&d);
    an_output(&d, 1, 64);
    add_result(&d, 4);
    expect_wrong(&d, "result 1 reads value 4 before a step has made it");
    chain(&d);
    an_output(&d, 0, 64);
    const fx_tensor f = vector_of(FX_DTYPE_F32, 16, 1);
    add_operand(add_step(&d, FX_OP_CUMSUM, 4, f), 0, 0, f);
    expect_wrong(&d, "result 0 reads value 3, over which step 3 (cumsum) has written value 4");
}

/* A plan of the library passes, and fails when two of its steps are exchanged. */
static void plans_are_checked(void **state)
{
    (void)state;
    FX_SCOPE;
    const bool before = fxi_plans_checked();
#ifdef CFLUX_DEBUG_CHECKS
    assert_true(before);
#endif
    fxi_plans_checked_set(true);
    fx_array *y = fx_cumsum(fx_cumsum(fx_ones(16), 0), 0);
    fxi_graph g = {0};
    fxi_plan *p;
    const fxi_root root = {y->node, NULL};
    assert_int_equal(fxi_graph_of(fxi_here(), &g, 1, &root), FX_OK);
    assert_int_equal(fxi_plan_new(&g, &p), FX_OK);
    char why[200];
    assert_int_equal(fxi_plan_check(p, why, sizeof why), FX_OK);
    assert_true(p->nsteps >= 2);
    fx_device small = *p->device, *device = p->device;
    small.info.buffers = 2;
    p->device = &small;
    assert_int_equal(fxi_plan_check(p, why, sizeof why), FX_STATUS_INTERNAL);
    assert_non_null(strstr(why, "buffers, and the device allows 2"));
    p->device = device;
    const fx_step swapped = p->steps[0];
    p->steps[0] = p->steps[p->nsteps - 1];
    p->steps[p->nsteps - 1] = swapped;
    assert_int_equal(fxi_plan_check(p, why, sizeof why), FX_STATUS_INTERNAL);
    assert_non_null(strstr(why, "before a step has made it"));
    fxi_plan_release(p);
    fxi_graph_free(&g);
    fxi_plans_checked_set(before);
}

/* Reading a step as one of another class stops a debug build. */
static void another_class(void **state)
{
    (void)state;
#ifdef CFLUX_DEBUG_CHECKS
    const fx_step s = {.op = FX_OP_CONV, .cls = FX_CLASS_CONV};
    assert_ptr_equal(fx_step_conv(&s), &s.as.conv);
    const pid_t child = fork();
    if (child == 0)
        _exit(fx_step_row(&s)->row_axes != 0);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_false(WIFEXITED(status) && WEXITSTATUS(status) == 0);
#else
    print_message("skipped: not a debug build\n");
#endif
}

/* ---- work space ------------------------------------------------------------------------------ */

/* The chain, whose cast has 100 bytes of work space, value 4. */
static draft *working(draft *d, int64_t offset)
{
    chain(d);
    d->steps[1].work_bytes = 100;
    d->steps[1].work_value = in_arena(d, offset, 100);
    return d;
}

static void work_space(void **state)
{
    (void)state;
    draft d;
    expect_sound(working(&d, 128));
    expect_wrong(working(&d, 0), "step 1 (cast) has its work space, value 4, in value 1, which it "
                                 "reads");
    expect_wrong(working(&d, 64), "step 1 (cast) writes value 2 over its work space, value 4");
    expect_wrong(working(&d, 960), "value 4 is at bytes 960 to 1059 of an arena of 1024");
    working(&d, 128);
    d.steps[2].in_value[0] = 4; /* the value there has been overwritten */
    expect_wrong(&d, "step 2 (cumsum) reads value 4 before a step has made it");
    working(&d, 0);
    d.steps[1].in_value[0] = 0; /* a later step reads that memory */
    d.values[2].offset = 128;
    expect_sound(&d);
    add_operand(&d.steps[2], 1, 0, vector_of(FX_DTYPE_F32, 16, 1));
    expect_wrong(&d, "step 2 (cumsum) reads value 1, over which step 1 (cast) has written value 4");
    working(&d, 128);
    d.values[4].bytes = 99;
    expect_wrong(&d, "step 1 (cast) needs 100 bytes of work space, but value 4 is not work space");
    static const int32_t others[] = {-1, 5, 0, 3, 1}; /* no value, a leaf, a result, an operand */
    for (size_t k = 0; k < sizeof others / sizeof *others; k++) {
        working(&d, 128);
        d.steps[1].work_value = others[k];
        expect_wrong(&d, "step 1 (cast) needs 100 bytes of work space, but value");
    }
}

/* ---- random numbers -------------------------------------------------------------------------- */

static void streams_of_random_numbers(void **state)
{
    (void)state;
    draft d;
    new_draft(&d);
    an_output(&d, 0, 64);
    fx_step *s = add_step(&d, FX_OP_RANDOM, 0, vector_of(FX_DTYPE_F32, 16, 1));
    add_result(&d, 0);
    d.p.nstreams = 2;
    s->as.generator.stream = 1;
    expect_sound(&d);
    d.p.nstreams = 1;
    expect_wrong(&d, "step 0 (random) reads stream 1 of 1");
    s->as.generator.stream = -1;
    expect_wrong(&d, "step 0 (random) reads stream -1 of 1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_class),
        cmocka_unit_test(in_place_is_right),
        cmocka_unit_test(a_partial_read_is_overwritten),
        cmocka_unit_test(another_order_is_overwritten),
        cmocka_unit_test(operands_inside_a_concatenation),
        cmocka_unit_test(a_later_step_still_reads),
        cmocka_unit_test(only_what_overlaps_is_lost),
        cmocka_unit_test(outputs_of_a_step_overlap),
        cmocka_unit_test(operands_of_attention),
        cmocka_unit_test(donated_buffers),
        cmocka_unit_test(segments),
        cmocka_unit_test(places),
        cmocka_unit_test(order_and_sizes),
        cmocka_unit_test(results),
        cmocka_unit_test(work_space),
        cmocka_unit_test(streams_of_random_numbers),
        cmocka_unit_test_setup_teardown(plans_are_checked, clean_start, clean_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
