/* test_plan_place.c: the arena reuses freed memory: a value gets the smallest gap that holds it,
 * and neighbouring gaps are merged. The operands of a concatenation are computed inside its output.
 *
 * The plans of the first part are made by hand. Each step makes one value; an earlier value dies at
 * the last step that reads it. These steps are never run.
 */
#include "semantics_check.h"

#include "planning.h"
#include <cflux/backend.h>

#include <math.h>

enum { MOST = 16 };

typedef struct draft {
    fxi_plan p;
    fxi_value values[MOST];
    fx_step steps[MOST];
    int32_t in_value[MOST][4];
} draft;

static void begin(draft *d)
{
    memset(d, 0, sizeof *d);
    d->p.device = fx_cpu_device();
    d->p.values = d->values;
    d->p.steps = d->steps;
}

/* Adds a step (not an elementwise one) that makes a value of this many bytes and is the last to
 * read two others (−1: none). */
static int32_t make(draft *d, int64_t bytes, int32_t reads, int32_t reads_too)
{
    const int32_t k = d->p.nsteps++;
    fx_step *s = &d->steps[k];
    s->op = FX_OP_CUMSUM;
    s->cls = FX_CLASS_SCAN;
    s->in_value = d->in_value[k];
    s->out_value = k;
    d->values[k] = (fxi_value){
        .kind = FXI_VALUE_ARENA, .first = k, .last = MOST - 1, .offset = -1, .bytes = bytes};
    d->p.nvalues = d->p.nsteps;
    const int32_t died[] = {reads, reads_too};
    for (int i = 0; i < 2; i++)
        if (died[i] >= 0) {
            s->in_value[s->nin++] = died[i];
            d->values[died[i]].last = k;
        }
    return k;
}

static void place(draft *d)
{
    for (int32_t v = 0; v < d->p.nvalues; v++)
        if (d->values[v].last >= d->p.nsteps)
            d->values[v].last = d->p.nsteps - 1;
    assert_true(fxi_plan_place(&d->p, true));
}

/* a 256, b 64, c 128, d 64; then a and c die. */
static void begin_with_gaps(draft *d)
{
    begin(d);
    make(d, 256, -1, -1);
    make(d, 64, -1, -1);
    make(d, 128, -1, -1);
    make(d, 64, 0, 2);
}

static void the_smallest_gap_is_taken(void **state)
{
    (void)state;
    draft d;
    begin_with_gaps(&d);
    const int32_t e = make(&d, 128, -1, -1), f = make(&d, 256, -1, -1);
    place(&d);
    assert_int_equal(d.values[3].offset, 448);
    assert_int_equal(d.values[e].offset, 320); /* where c was, exactly */
    assert_int_equal(d.values[f].offset, 0);   /* where a was */
    assert_int_equal(d.p.arena_bytes, 512);
}

static void a_gap_is_divided(void **state)
{
    (void)state;
    draft d;
    begin_with_gaps(&d);
    const int32_t e = make(&d, 192, -1, -1), f = make(&d, 64, -1, -1), g = make(&d, 128, -1, -1);
    place(&d);
    assert_int_equal(d.values[e].offset, 0);
    assert_int_equal(d.values[f].offset, 192);
    assert_int_equal(d.values[g].offset, 320);
    assert_int_equal(d.p.arena_bytes, 512);
}

/* b dies between two gaps: one gap of all three. */
static void gaps_that_meet_are_one(void **state)
{
    (void)state;
    draft d;
    begin_with_gaps(&d);
    make(&d, 64, 1, -1); /* takes a part of c's gap; then b dies */
    const int32_t f = make(&d, 320, -1, -1);
    place(&d);
    assert_int_equal(d.values[4].offset, 320);
    assert_int_equal(d.values[f].offset, 0); /* 256 of a and 64 of b */
    assert_int_equal(d.p.arena_bytes, 512);
    begin_with_gaps(&d);
    make(&d, 0, 1, -1); /* b dies */
    const int32_t all = make(&d, 448, -1, -1);
    place(&d);
    assert_int_equal(d.values[all].offset, 0); /* a, b and c */
    assert_int_equal(d.p.arena_bytes, 512);
}

/* The gap at the end grows. */
static void the_end_grows(void **state)
{
    (void)state;
    draft d;
    begin(&d);
    make(&d, 64, -1, -1);
    make(&d, 100, -1, -1); /* 128 with its alignment */
    make(&d, 0, 1, -1);
    const int32_t e = make(&d, 512, -1, -1);
    place(&d);
    assert_int_equal(d.values[1].offset, 64);
    assert_int_equal(d.values[e].offset, 64);
    assert_int_equal(d.p.arena_bytes, 64 + 512);
}

/* Work space is taken after the outputs, from other bytes than the operands', and is free again
 * when the step has run. */
static void work_space_lives_for_its_step(void **state)
{
    (void)state;
    draft d;
    begin(&d);
    make(&d, 64, -1, -1);
    make(&d, 64, 0, -1);
    const int32_t e = make(&d, 256, -1, -1), work = MOST - 1;
    d.steps[1].work_bytes = 100;
    d.steps[1].work_value = work;
    d.values[work] =
        (fxi_value){.kind = FXI_VALUE_ARENA, .first = 1, .last = 1, .offset = -1, .bytes = 100};
    d.p.nvalues = MOST;
    for (int32_t v = d.p.nsteps; v < work; v++)
        d.values[v].kind = FXI_VALUE_LEAF;
    place(&d);
    assert_int_equal(d.values[0].offset, 0);
    assert_int_equal(d.values[1].offset, 64);
    assert_int_equal(d.values[work].offset, 128); /* 0 to 63 is read by the same step */
    assert_int_equal(d.values[e].offset, 128);    /* where the work space was, and on */
    assert_int_equal(d.p.arena_bytes, 128 + 256);
}

/* ---- concatenations -------------------------------------------------------------------------- */

static fxi_plan *plan_of(fx_array *x)
{
    fxi_graph g = {0};
    const fxi_root root = {x->node, NULL};
    fxi_plan *p;
    assert_int_equal(fxi_graph_of(fxi_here(), &g, 1, &root), FX_OK);
    assert_int_equal(fxi_plan_new(&g, &p), FX_OK);
    fxi_graph_free(&g);
    return p;
}

/* Bit k < 31: operand k, counted over all concatenations, is inside the output of its step. Also
 * checks the plan. */
static int inside(fx_array *x)
{
    fxi_plan *p = plan_of(x);
    int bits = 0, k = 0;
    for (int32_t i = 0; i < p->nsteps; i++) {
        const fx_step *s = &p->steps[i];
        if (s->op != FX_OP_CONCAT || p->values[s->out_value].kind != FXI_VALUE_ARENA)
            continue;
        const fxi_value *out = &p->values[s->out_value];
        for (int j = 0; j < s->nin; j++, k++) {
            const fxi_value *v = &p->values[s->in_value[j]];
            const bool is_inside = v->kind == FXI_VALUE_ARENA && v->offset >= out->offset &&
                                   v->offset + v->bytes <= out->offset + out->bytes;
            if (is_inside && k < 31)
                bits |= 1 << k;
        }
    }
    char why[200];
    if (fxi_plan_check(p, why, sizeof why) != FX_OK)
        fail_msg("%s", why);
    fxi_plan_release(p);
    return bits;
}

static fx_array *numbers(int64_t from, int64_t n)
{
    fx_array *x = fx_range((double)from, 1, n);
    assert_int_equal(fx_eval(x), FX_OK);
    return x;
}

/* A scan is a step of its own, so its result is a value. */
static fx_array *scan(int64_t from, int64_t n)
{
    return fx_cumsum(numbers(from, n), 0);
}

/* A value of the arena, not a result. */
static fx_array *read(fx_array *x)
{
    return fx_cumsum(x, 0);
}

static void operands_are_inside(void **state)
{
    (void)state;
    FX_SCOPE;
    assert_int_equal(inside(read(fx_concat(0, scan(1, 16), scan(2, 32), scan(3, 7)))), 7);
    /* A leaf is copied. */
    assert_int_equal(inside(read(fx_concat(0, scan(1, 16), numbers(1, 32), scan(2, 7)))), 5);
    /* So is what would begin at byte 40. */
    assert_int_equal(inside(read(fx_concat(0, scan(1, 10), scan(2, 32)))), 1);
    /* And a value that is several operands. */
    fx_array *x = scan(1, 16);
    assert_int_equal(inside(read(fx_concat(0, x, scan(2, 16), x, x))), 2);
    /* And one whose other use is a part of it, or does not begin at a cache line. */
    assert_int_equal(inside(read(fx_concat(0, fx_slice(x, 0, 0, 16), x))), 0);
    fx_array *y = scan(1, 16);
    assert_int_equal(inside(read(fx_concat(0, scan(1, 10), y, scan(2, 6), y))), 1);
    /* The columns of a matrix are neighbours; its rows are not. */
    fx_array *m = fx_cumsum(fx_reshape(numbers(1, 32), 16, 2), 0);
    fx_array *n = fx_cumsum(fx_reshape(numbers(2, 32), 16, 2), 0);
    assert_int_equal(inside(read(fx_concat(1, m, n))), 3);
    assert_int_equal(inside(read(fx_concat(0, m, n))), 0);
    /* A result has memory of its own. */
    assert_int_equal(inside(fx_concat(0, scan(1, 16), scan(2, 32))), 0);
}

static void a_value_that_is_read_later_is_copied(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = scan(1, 16), *y = scan(2, 16);
    fx_array *joined = read(fx_concat(0, x, y));
    assert_int_equal(inside(fx_add(joined, fx_concat(0, read(x), scan(3, 16)))), 2 | 4 | 8);
}

/* A concatenation inside another has none inside itself, whatever the length of the chain. */
static void concatenations_of_concatenations(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = scan(1, 16);
    assert_int_equal(inside(read(fx_concat(0, fx_concat(0, x, scan(2, 16)), scan(3, 16)))), 4 | 8);
    for (int k = 0; k < 500; k++)
        x = fx_concat(0, x, scan(1, 16));
    inside(read(x));
    /* cumsum(1 … 16) adds up to 816. */
    assert_true(fx_item(fx_sum(x)) == 501 * 816);
}

static void the_values_are_right(void **state)
{
    (void)state;
    FX_SCOPE;
    enum { N = 48 + 4096 + 7 };
    fx_array *y = read(fx_concat(0, scan(1, 48), scan(2, 4096), scan(3, 7)));
    float got[N];
    double want = 0;
    assert_int_equal(fx_read_into(y, got, sizeof got), FX_OK);
    for (int64_t i = 0; i < N; i++) {
        const int64_t start = i < 48          ? 0
                              : i < 48 + 4096 ? 48
                                              : 48 + 4096,
                      n = i - start + 1,
                      from = start == 0    ? 1
                             : start == 48 ? 2
                                           : 3;
        want += (double)(n * from + n * (n - 1) / 2);
        assert_true(fabs(got[i] - want) <= 1e-6 * want);
    }
}

/* The output would be kept from the first small operand on, beside large values. */
static void the_arena_never_grows(void **state)
{
    (void)state;
    FX_SCOPE;
    enum { LARGE = 1 << 16 };
    fx_array *small = scan(1, 16), *x = fx_cumsum(fx_mul(numbers(0, LARGE), fx_sum(small)), 0);
    for (int k = 0; k < 5; k++)
        x = fx_cumsum(x, 0);
    fx_array *whole = read(fx_concat(0, small, x));
    assert_int_equal(inside(whole), 0);
    fxi_plan *p = plan_of(whole);
    assert_true(p->arena_bytes <= 2 * LARGE * 4 + 256);
    fxi_plan_release(p);
    /* Without the others, nothing is kept for longer. */
    assert_int_equal(inside(read(fx_concat(0, scan(2, 16), scan(0, LARGE)))), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_smallest_gap_is_taken),
        TEST(a_gap_is_divided),
        TEST(gaps_that_meet_are_one),
        TEST(the_end_grows),
        TEST(work_space_lives_for_its_step),
        TEST(operands_are_inside),
        TEST(a_value_that_is_read_later_is_copied),
        TEST(concatenations_of_concatenations),
        TEST(the_values_are_right),
        TEST(the_arena_never_grows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
