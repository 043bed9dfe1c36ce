/* test_plan_in_place.c: a step may overwrite its operand only if both have every element at the
 * same address.
 *
 * A table of element types × views × consumers: a value that an opaque step made is read in part
 * or in another order, converted to another type and consumed. The numbers are small integers, so
 * every type has them exactly, and what is expected is computed here.
 */
#include "semantics_check.h"

#include "planning.h"

enum { N = 8 };

/* Element k of a view is element at[k] of its eight elements. */
typedef struct view {
    const char *name;
    fx_array *(*look)(fx_array *x);
    int rows, columns;
    int at[2 * N];
} view;

static fx_array *prefix(fx_array *x)
{
    return fx_slice(x, 0, 0, 4);
}
static fx_array *short_prefix(fx_array *x)
{
    return fx_slice(x, 0, 0, 1);
}
static fx_array *prefix_of_two(fx_array *x)
{
    return fx_slice(x, 0, 0, 2);
}
static fx_array *suffix(fx_array *x)
{
    return fx_slice(x, 0, 4, 8);
}
static fx_array *every_second(fx_array *x)
{
    return fx_slice_step(x, 0, 0, 2, 4);
}
static fx_array *reversed(fx_array *x)
{
    return fx_slice_step(x, 0, 7, -1, 8);
}
static fx_array *transposed(fx_array *x)
{
    return fx_transpose(fx_reshape(x, 2, 4));
}
static fx_array *first_columns(fx_array *x)
{
    return fx_slice(fx_reshape(x, 2, 4), 1, 0, 2);
}
static fx_array *first_rows(fx_array *x)
{
    return fx_slice(fx_reshape(x, 4, 2), 0, 0, 2);
}
static fx_array *spread(fx_array *x)
{
    return fx_expand(fx_reshape(fx_slice(x, 0, 0, 4), 4, 1), 4, 2);
}
static fx_array *all(fx_array *x)
{
    return fx_reshape(x, 4, 2);
}

static const view views[] = {
    {"prefix", prefix, 4, 1, {0, 1, 2, 3}},
    {"short prefix", short_prefix, 1, 1, {0}},
    {"prefix of two", prefix_of_two, 2, 1, {0, 1}},
    {"suffix", suffix, 4, 1, {4, 5, 6, 7}},
    {"every second", every_second, 4, 1, {0, 2, 4, 6}},
    {"reversed", reversed, 8, 1, {7, 6, 5, 4, 3, 2, 1, 0}},
    {"transposed", transposed, 4, 2, {0, 2, 4, 6, 1, 3, 5, 7}},
    {"first columns", first_columns, 2, 2, {0, 1, 2, 3}},
    {"first rows", first_rows, 2, 2, {0, 1, 4, 5}},
    {"spread", spread, 4, 2, {0, 1, 2, 3, 0, 1, 2, 3}},
    {"all", all, 4, 2, {0, 1, 2, 3, 4, 5, 6, 7}},
};
enum { VIEWS = sizeof views / sizeof *views };

/* A function of the converted view, and the same function in plain C: w has rows × columns
 * elements. */
typedef struct consumer {
    const char *name;
    fx_array *(*apply)(fx_array *w);
    int (*expect)(const double *w, int rows, int columns,
                  double *out); /* returns the number of elements */
    bool no_bool;
} consumer;

static fx_array *itself(fx_array *w)
{
    return w;
}
static int expect_itself(const double *w, int rows, int columns, double *out)
{
    memcpy(out, w, (size_t)(rows * columns) * sizeof *out);
    return rows * columns;
}
static fx_array *sums(fx_array *w)
{
    return fx_sum(w, .dims = FX_AXES(0));
}
static int expect_sums(const double *w, int rows, int columns, double *out)
{
    for (int c = 0; c < columns; c++) {
        out[c] = 0;
        for (int r = 0; r < rows; r++)
            out[c] += w[c * rows + r];
    }
    return columns;
}
static fx_array *running(fx_array *w)
{
    return fx_cumsum(w, 0);
}
static int expect_running(const double *w, int rows, int columns, double *out)
{
    for (int c = 0; c < columns; c++)
        for (int r = 0; r < rows; r++)
            out[c * rows + r] = w[c * rows + r] + (r ? out[c * rows + r - 1] : 0);
    return rows * columns;
}
/* A row program: a reduction and the operation that reads its result. */
static fx_array *largest_of_row(fx_array *w)
{
    return fx_cumsum(fx_cast(fx_eq(w, fx_maximum(w, .dims = FX_AXES(0))), FX_DTYPE_F32), 0);
}
static int expect_largest(const double *w, int rows, int columns, double *out)
{
    for (int c = 0; c < columns; c++) {
        double most = w[c * rows], n = 0;
        for (int r = 0; r < rows; r++)
            most = w[c * rows + r] > most ? w[c * rows + r] : most;
        for (int r = 0; r < rows; r++)
            out[c * rows + r] = n += w[c * rows + r] == most;
    }
    return rows * columns;
}
static fx_array *product(fx_array *w)
{
    return fx_matmul(fx_cast(fx_ones(1, fx_size(w, 0)), fx_eltype(w)), w);
}
static fx_array *upside_down(fx_array *w)
{
    const int64_t n = fx_size(w, 0);
    return fx_gather(w, fx_range_dtype(FX_DTYPE_I64, (double)n - 1, -1, n), 0);
}
static int expect_upside_down(const double *w, int rows, int columns, double *out)
{
    for (int c = 0; c < columns; c++)
        for (int r = 0; r < rows; r++)
            out[c * rows + r] = w[c * rows + rows - 1 - r];
    return rows * columns;
}
static fx_array *twice(fx_array *w)
{
    return fx_concat(0, fx_reshape(w, -1), fx_reshape(w, -1));
}
static int expect_twice(const double *w, int rows, int columns, double *out)
{
    expect_itself(w, rows, columns, out);
    return rows * columns + expect_itself(w, rows, columns, out + rows * columns);
}

static const consumer consumers[] = {
    {"itself", itself, expect_itself, false},
    {"sum", sums, expect_sums, false},
    {"cumsum", running, expect_running, false},
    {"row program", largest_of_row, expect_largest, false},
    {"matmul", product, expect_sums, true},
    {"gather", upside_down, expect_upside_down, false},
    {"concat", twice, expect_twice, false},
};
enum { CONSUMERS = sizeof consumers / sizeof *consumers };

static double as_type(fx_dtype t, double v)
{
    return t == FX_DTYPE_BOOL ? v != 0 : v;
}

/* Arena values that dense steps read otherwise, made in the order 3 1 0 2 7 5 4 6. */
static const int64_t shuffle[N] = {3, 1, 0, 2, 7, 5, 4, 6};

static void check_one(fx_dtype a, fx_dtype b, const view *v, const consumer *c)
{
    FX_SCOPE;
    char what[160];
    double w[2 * N], want[4 * N], numbers[N];
    for (int k = 0; k < N; k++)
        numbers[k] = (k * 5 + 3) % 8 % (a == FX_DTYPE_BOOL ? 2 : 8);
    fx_array *x = fx_cast(fxi_from(FX_DTYPE_F64, numbers, 1, (int64_t[]){N}), a);
    fx_array *order = fxi_from(FX_DTYPE_I64, shuffle, 1, (int64_t[]){N});
    assert_int_equal(fx_eval(fx_tuple(x, order)), FX_OK);
    fx_array *y = fx_reshape(fx_cast(v->look(fx_gather(x, order, 0)), b), v->rows, v->columns);
    for (int k = 0; k < v->rows * v->columns; k++)
        w[k] = as_type(b, as_type(a, numbers[shuffle[v->at[k]]]));
    const int n = c->expect(w, v->rows, v->columns, want);
    snprintf(what, sizeof what, "%s of a %s view, %s to %s", c->name, v->name, fx_dtype_name(a),
             fx_dtype_name(b));
    check_array(what, c->apply(y), n, want, 0, 0);
}

static void types_views_and_consumers(void **state)
{
    (void)state;
    int ran = 0;
    for (int a = 0; a < FX_DTYPE_COUNT; a++)
        for (int b = 0; b < FX_DTYPE_COUNT; b++)
            for (int v = 0; v < VIEWS; v++)
                for (int c = 0; c < CONSUMERS; c++) {
                    if (a == b || (consumers[c].no_bool && b == FX_DTYPE_BOOL))
                        continue;
                    check_one((fx_dtype)a, (fx_dtype)b, &views[v], &consumers[c]);
                    ran++;
                }
    assert_true(ran >= (8 * 7 * CONSUMERS - 7) * VIEWS);
}

/* ---- what may be taken over still is --------------------------------------------------------- */

/* Bytes between the steps of the plan after x. */
static int64_t arena_bytes(fx_array *x)
{
    fxi_graph g = {0};
    const fxi_root root = {x->node, NULL};
    assert_int_equal(fxi_graph_of(fxi_here(), &g, 1, &root), FX_OK);
    fxi_plan *p;
    assert_int_equal(fxi_plan_new(&g, &p), FX_OK);
    const int64_t bytes = p->arena_bytes;
    fxi_plan_release(p);
    fxi_graph_free(&g);
    return bytes;
}

/* One value of 1024 Float32 is made, converted and consumed. */
static int64_t bytes_with(fx_dtype to, int64_t take)
{
    FX_SCOPE;
    fx_array *x = fx_range(0, 1, 1024), *at = fx_range_dtype(FX_DTYPE_I64, 0, 1, 1024);
    assert_int_equal(fx_eval(fx_tuple(x, at)), FX_OK);
    fx_array *y = fx_cast(fx_slice(fx_gather(x, at, 0), 0, 0, take), to);
    return arena_bytes(fx_concat(0, y, y));
}

static void an_equal_size_is_taken_over(void **state)
{
    (void)state;
    assert_int_equal(bytes_with(FX_DTYPE_I32, 1024), 4096);
    assert_int_equal(bytes_with(FX_DTYPE_F64, 1024), 4096 + 8192);
    assert_int_equal(bytes_with(FX_DTYPE_F64, 512), 4096 + 4096);
    assert_int_equal(bytes_with(FX_DTYPE_F16, 1024), 4096 + 2048);
}

/* A value that its last reader reads both in order and otherwise stays where it is. */
static void a_second_look_keeps_the_value(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_range(0, 1, 64), *at = fx_range_dtype(FX_DTYPE_I64, 0, 1, 64);
    assert_int_equal(fx_eval(fx_tuple(x, at)), FX_OK);
    fx_array *g = fx_gather(x, at, 0);
    fx_array *y = fx_cumsum(fx_mul(g, fx_slice_step(g, 0, 63, -1, 64)), 0);
    assert_int_equal(arena_bytes(y), 2 * 256);
    double want[64], sum = 0;
    for (int k = 0; k < 64; k++)
        want[k] = sum += k * (63.0 - k);
    check_array("cumsum of x·reversed x", y, 64, want, 0, 0);
}

/* The columns of 8×7 numbers k, upside down: element r of column c is 8·c + 7 − r. */
static fx_array *columns(void)
{
    fx_array *x = fx_reshape(fx_range(0, 1, 56), 8, 7),
             *at = fx_range_dtype(FX_DTYPE_I64, 7, -1, 8);
    assert_int_equal(fx_eval(fx_tuple(x, at)), FX_OK);
    return fx_gather(x, at, 0);
}

/* A row step writes over its operand with what it computes last, whatever the number of passes: the
 * distance of each column's elements from its maximum, then that divided by its sum. */
static void a_row_step_writes_over_its_operand(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *g = columns(), *far = fx_sub(fx_maximum(g, .dims = FX_AXES(0)), g);
    fx_array *y = fx_cumsum(fx_div(far, fx_sum(far, .dims = FX_AXES(0))), 1);
    assert_int_equal(arena_bytes(y), 256);
    double want[56];
    for (int k = 0; k < 56; k++)
        want[k] = (k / 8 + 1) * (k % 8) / 28.0;
    check_array("columns in place", y, 56, want, 1e-6, 0);
}

/* An output that is complete before a reduction reads the operand again has memory of its own. */
static void a_later_reading_keeps_the_operand(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *g = columns(), *far = fx_sub(fx_maximum(g, .dims = FX_AXES(0)), g);
    fx_array *sums = fx_sum(fx_mul(far, g), .dims = FX_AXES(0));
    fx_array *y = fx_concat(0, fx_cumsum(far, 1), sums);
    double want[63];
    for (int c = 0; c < 7; c++) {
        want[9 * c + 8] = 0;
        for (int r = 0; r < 8; r++) {
            want[9 * c + r] = (c + 1) * r;
            want[9 * c + 8] += r * (8.0 * c + 7 - r);
        }
    }
    assert_true(arena_bytes(y) >= 2 * 256);
    check_array("a reduction behind an output", y, 63, want, 1e-6, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(types_views_and_consumers, clean_start, clean_end),
        cmocka_unit_test_setup_teardown(an_equal_size_is_taken_over, clean_start, clean_end),
        cmocka_unit_test_setup_teardown(a_second_look_keeps_the_value, clean_start, clean_end),
        cmocka_unit_test_setup_teardown(a_row_step_writes_over_its_operand, clean_start, clean_end),
        cmocka_unit_test_setup_teardown(a_later_reading_keeps_the_operand, clean_start, clean_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
