/* test_plan_place.c: the arena reuses freed memory: a value gets the smallest gap that holds it,
 * and neighbouring gaps are merged.
 *
 * Plans are made by hand. Each step makes one value; an earlier value dies at the last step that
 * reads it. Steps are never run.
 */
#include "semantics_check.h"

#include "plan.h"
#include <cflux/backend.h>

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
    assert_true(fxi_plan_place(&d->p));
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_smallest_gap_is_taken),     TEST(a_gap_is_divided),
        TEST(gaps_that_meet_are_one),        TEST(the_end_grows),
        TEST(work_space_lives_for_its_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
