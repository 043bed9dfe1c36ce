/* test_semantics_memory.c: memory that belongs to the program. It is read when a value is
 * evaluated, never written, and never used for a result; fx_data pins memory; C arrays keep their
 * bytes and get their dimensions in reverse order. In-place updates: an old value that the program
 * can still read does not change.
 */
#include "evaluate.h"
#include "semantics_check.h"

#include <sys/mman.h>

static int releases;
static void count_release(void *data, void *user)
{
    assert_ptr_equal(data, user);
    releases++;
}

static int start_counting(void **state)
{
    releases = 0;
    return clean_start(state);
}

/* ---- read at evaluation ---------------------------------------------------------------------- */

static void read_when_evaluated(void **state)
{
    (void)state;
    FX_SCOPE;
    float a[4] = {1, 2, 3, 4};
    fx_array *x = FX_FROM_C(a), *early = fx_mul(x, 10), *late = fx_mul(x, 10);
    fx_eval(early);
    a[0] = 7;
    CHECK(early, (4), 0, 10, 20, 30, 40);
    CHECK(late, (4), 0, 70, 20, 30, 40);
}

/* Also results that could be views of it. */
static void views_are_read_when_evaluated(void **state)
{
    (void)state;
    FX_SCOPE;
    float a[2][3] = {{1, 2, 3}, {4, 5, 6}};
    fx_array *x = FX_FROM_C(a);
    fx_array *views[] = {fx_reshape(x, 6),
                         fx_transpose(x),
                         fx_slice(x, 1, 0, 1),
                         fx_flip(x, FX_AXES(0)),
                         fx_expand(fx_reshape(x, 3, 2, 1), 3, 2, 2),
                         fx_stop_gradient(x),
                         fx_transpose(fx_transpose(x))};
    double before[7][12], after[12];
    for (int i = 0; i < 7; i++) {
        assert_int_equal(fx_eval(views[i]), FX_OK);
        check_read("view", views[i], before[i], fx_length(views[i]));
    }
    memset(a, 0, sizeof a);
    for (int i = 0; i < 7; i++) {
        check_read("view", views[i], after, fx_length(views[i]));
        for (int64_t k = 0; k < fx_length(views[i]); k++)
            check_value("view after its memory was changed", i, after[k], before[i][k], 0, 0);
    }
}

static void released_when_nothing_reads_it(void **state)
{
    (void)state;
    float a[4] = {1, 2, 3, 4};
    {
        FX_SCOPE;
        fx_array *y, *z;
        {
            FX_STEP;
            fx_array *x = fx_borrow(FX_DTYPE_F32, a, count_release, a, 4);
            y = fx_keep(fx_mul(x, 2));
            z = fx_keep(fx_reshape(x, 2, 2));
        }
        assert_int_equal(releases, 0); /* both are pending */
        fx_eval(y);
        assert_int_equal(releases, 0);
        fx_eval(z);
        CHECK(z, (2, 2), 0, 1, 2, 3, 4);
    }
    assert_int_equal(releases, 1);
    {
        FX_SCOPE;
        fx_borrow(FX_DTYPE_F32, a, NULL, NULL, 4);
        assert_int_equal(fx_error_status(), FX_OK);
    }
}

static void released_at_once_when_refused(void **state)
{
    (void)state;
    FX_SCOPE;
    float a[4] = {1, 2, 3, 4};
    check_error(fx_borrow(FX_DTYPE_F32, a, count_release, a, -4), FX_STATUS_ARGUMENT, "borrow: ");
    assert_int_equal(releases, 1);
    for (int64_t n = 0;; n++) {
        FX_SCOPE;
        fxi_reclaim_all();
        releases = 0;
        fxi_fault_set(n);
        fx_array *x = fx_borrow(FX_DTYPE_F32, a, count_release, a, 4);
        const bool past = fxi_fault_seen() <= n;
        fxi_fault_set(-1);
        assert_int_equal(releases, fx_is_error(x));
        if (fx_is_error(x))
            expect_error(FX_STATUS_MEMORY, "no memory");
        if (past)
            break;
    }
    /* the address must not be suitable for these numbers */
    check_error(fx_borrow(FX_DTYPE_F32, (char *)a + 1, count_release, (char *)a + 1, 2),
                FX_STATUS_ARGUMENT, "borrow: ");
}

/* ---- never written --------------------------------------------------------------------------- */

/* Parameters in memory that traps when it is written: training moves them elsewhere. The same graph
 * over owned memory has been planned before, with its results in place. */
static void never_written(void **state)
{
    (void)state;
    FX_SCOPE;
    float *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(page != MAP_FAILED);
    for (int i = 0; i < 6; i++)
        page[i] = (float)(i + 1);
    for (int borrowed = 0; borrowed < 2; borrowed++) {
        mprotect(page, 4096, PROT_READ);
        fx_array *w = borrowed ? fx_borrow(FX_DTYPE_F32, page, NULL, NULL, 2, 3)
                               : fx_from(FX_DTYPE_F32, page, 2, 3);
        fx_dense_layer *m = fx_dense(0, 0, .weight_array = w, .bias = false);
        void *opt = fx_setup(fx_descent(.eta = 0.5), m);
        for (int k = 0; k < 3; k++) {
            FX_STEP;
            fx_array *loss = fx_mul(0.5, fx_sum(fx_square(m->weight)));
            assert_int_equal(fx_update(opt, m, fx_gradient(loss, m)), FX_OK);
        }
        CHECK(m->weight, (2, 3), 0, 1 / 8.0, 2 / 8.0, 3 / 8.0, 4 / 8.0, 5 / 8.0, 6 / 8.0);
        assert_ptr_not_equal(address_of(m->weight), page);
    }
    for (int i = 0; i < 6; i++)
        SAME((double)page[i], i + 1);
    munmap(page, 4096);
}

/* The key knows alignment and overlap: whatever the address, the numbers are right. */
static void any_alignment_and_overlap(void **state)
{
    (void)state;
    FX_SCOPE;
    _Alignas(64) float memory[256];
    for (int i = 0; i < 256; i++)
        memory[i] = (float)(i % 17) - 8;
    for (int shift = 0; shift < 17; shift++) {
        FX_SCOPE;
        const float *p = memory + shift, *q = memory + shift + 3; /* overlapping */
        fx_array *x = fx_borrow(FX_DTYPE_F32, p, NULL, NULL, 10, 10);
        fx_array *y = fx_borrow(FX_DTYPE_F32, q, NULL, NULL, 10, 10);
        fx_array *product = fx_matmul(x, y), *sum = fx_sum(fx_mul(x, y)),
                 *rows = fx_sum(x, .dims = FX_AXES(1));
        double dot = 0;
        for (int i = 0; i < 100; i++)
            dot += (double)p[i] * (double)q[i];
        SAME(fx_item(sum), dot);
        for (int i = 0; i < 10; i++) {
            double row = 0;
            for (int j = 0; j < 10; j++) {
                double inner = 0;
                row += (double)p[i + 10 * j];
                for (int k = 0; k < 10; k++)
                    inner += (double)p[i + 10 * k] * (double)q[k + 10 * j];
                SAME(fx_at(product, i + 10 * j), inner);
            }
            SAME(fx_at(rows, i), row);
        }
    }
}

static void copies_are_copies(void **state)
{
    (void)state;
    FX_SCOPE;
    float a[3] = {1, 2, 3};
    fx_array *x = fx_from(FX_DTYPE_F32, a, 3);
    memset(a, 0, sizeof a);
    CHECK(x, (3), 0, 1, 2, 3);
}

/* ---- fx_data pins ---------------------------------------------------------------------------- */

static fx_dense_layer *trained_once(void **out_opt)
{
    fx_dense_layer *m = fx_dense(0, 0, .weight_array = fx_ones(4, 4), .bias = false);
    *out_opt = fx_setup(fx_descent(.eta = 0.5), m);
    FX_STEP;
    fx_array *loss = fx_mul(0.5, fx_sum(fx_square(m->weight)));
    assert_int_equal(fx_update(*out_opt, m, fx_gradient(loss, m)), FX_OK);
    return m;
}

static void train_once(void *opt, fx_dense_layer *m)
{
    FX_STEP;
    fx_array *loss = fx_mul(0.5, fx_sum(fx_square(m->weight)));
    assert_int_equal(fx_update(opt, m, fx_gradient(loss, m)), FX_OK);
}

static void data_pins(void **state)
{
    (void)state;
    FX_SCOPE;
    void *opt;
    fx_dense_layer *m = trained_once(&opt);
    const void *before = address_of(m->weight);
    train_once(opt, m);
    assert_ptr_equal(address_of(m->weight), before); /* in place: nothing else uses it */
    const float *p = fx_data(m->weight);
    assert_ptr_equal(p, before);
    SAME((double)p[0], 0.25);
    const uint64_t misses = fx_stats().donation_misses;
    {
        FX_STEP;
        fx_array *loss = fx_mul(0.5, fx_sum(fx_square(m->weight)));
        fx_array *alive = fx_stop_gradient(m->weight); /* this pending view keeps the value */
        assert_int_equal(fx_update(opt, m, fx_gradient(loss, m), .sinks = false), FX_OK);
        assert_ptr_not_equal(address_of(m->weight), p);
        SAME((double)p[0], 0.25);
        SAME((double)p[15], 0.25);
        CHECK(fx_sum(alive), (), 0, 4);
    }
    assert_true(fx_stats().donation_misses > misses);
    before = address_of(m->weight);
    train_once(opt, m);
    assert_ptr_equal(address_of(m->weight), before); /* the new one is not pinned */
    SAME(fx_at(m->weight, 3), 0.0625);
}

static void data_is_dense(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_from(FX_DTYPE_F32, ((float[]){1, 2, 3, 4, 5, 6}), 3, 2);
    fx_array *t = fx_transpose(x), *s = fx_slice(x, 0, 1, 3);
    const float *p = fx_data(t), *q = fx_data(s);
    static const float want_t[] = {1, 4, 2, 5, 3, 6}, want_s[] = {2, 3, 5, 6};
    assert_memory_equal(p, want_t, sizeof want_t);
    assert_memory_equal(q, want_s, sizeof want_s);
    assert_ptr_equal(fx_data(t), p); /* the same address while the value exists */
    assert_ptr_equal(fx_data(s), q);
}

/* ---- C arrays -------------------------------------------------------------------------------- */

static void c_arrays_turn_their_dimensions_round(void **state)
{
    (void)state;
    FX_SCOPE;
    float W[2][5] = {{1, 2, 3, 4, 5}, {6, 7, 8, 9, 10}};
    fx_array *x = FX_FROM_C(W);
    CHECK(x, (5, 2), 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10);
    assert_int_equal(fx_eltype(x), FX_DTYPE_F32);
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 5; j++)
            SAME(fx_at(fx_slice(fx_slice(x, 0, j, j + 1), 1, i, i + 1), 0), (double)W[i][j]);
    static const double img[2][3][4][5] = {{{{1, 2}, {3}}},
                                           {{{0}}, {{0}}, {{0}, {0}, {0}, {7, 8, 9, 10, 11}}}};
    x = FX_FROM_C(img);
    check_dims("W×H×C×N", x, 4, (int64_t[]){5, 4, 3, 2});
    assert_int_equal(fx_eltype(x), FX_DTYPE_F64);
    SAME(fx_at(x, 0), 1);
    SAME(fx_at(x, 5), 3);
    SAME(fx_at(x, 119), 11);
    int32_t cube[2][1][3] = {{{1, 2, 3}}, {{4, 5, 6}}};
    CHECK(FX_FROM_C(cube), (3, 1, 2), 0, 1, 2, 3, 4, 5, 6);
    assert_int_equal(fx_eltype(FX_FROM_C(cube)), FX_DTYPE_I32);
    int64_t l[2] = {1, INT64_MAX};
    assert_int_equal(fx_eltype(FX_FROM_C(l)), FX_DTYPE_I64);
    uint8_t u[2] = {1, 255};
    assert_int_equal(fx_eltype(FX_FROM_C(u)), FX_DTYPE_U8);
    bool b[2] = {true, false};
    assert_int_equal(fx_eltype(FX_FROM_C(b)), FX_DTYPE_BOOL);
    CHECK(FX_FROM_C(b), (2), 0, 1, 0);
    assert_ptr_equal(fx_data(FX_FROM_C(W)), W); /* no copy */
}

/* ---- in place, unseen ------------------------------------------------------------------------ */

/* A handle of an old value, or of a view of it, keeps its value. */
static void old_values_stay_as_they_were(void **state)
{
    (void)state;
    FX_SCOPE;
    void *opt;
    fx_dense_layer *m = trained_once(&opt); /* 0.5 everywhere */
    fx_array *views[] = {fx_transpose(m->weight), fx_reshape(m->weight, 16),
                         fx_slice(m->weight, 0, 1, 2), fx_add(m->weight, 0),
                         fx_flip(m->weight, FX_AXES(1))};
    for (int i = 0; i < 5; i++)
        fx_eval(views[i]);
    for (int k = 0; k < 3; k++)
        train_once(opt, m);
    for (int i = 0; i < 5; i++)
        SAME(fx_item(fx_sum(fx_ne(views[i], 0.5))), 0);
    SAME(fx_at(m->weight, 0), 0.0625);
}

static void snapshots_stay_as_they_were(void **state)
{
    (void)state;
    FX_SCOPE;
    void *opt;
    fx_dense_layer *m = trained_once(&opt), *first = fx_snapshot(m), *same = fx_snapshot(m);
    train_once(opt, m);
    fx_dense_layer *second = fx_snapshot(m);
    for (int k = 0; k < 3; k++)
        train_once(opt, m);
    SAME(fx_item(fx_sum(fx_ne(first->weight, 0.5))), 0);
    SAME(fx_item(fx_sum(fx_ne(same->weight, 0.5))), 0);
    SAME(fx_item(fx_sum(fx_ne(second->weight, 0.25))), 0);
    SAME(fx_at(m->weight, 0), 0.03125);
}

/* The same while they are pending: they are computed with the update, from the old value. */
static void pending_readers_come_along(void **state)
{
    (void)state;
    FX_SCOPE;
    void *opt;
    fx_dense_layer *m = trained_once(&opt);
    fx_array *views[] = {fx_transpose(m->weight), fx_reshape(m->weight, 16),
                         fx_slice(m->weight, 0, 1, 2), fx_cumsum(m->weight, 0),
                         fx_flip(m->weight, FX_AXES(1))};
    train_once(opt, m);
    for (int i = 0; i < 5; i++)
        SAME(fx_at(views[i], 0), 0.5);
    SAME(fx_at(m->weight, 0), 0.25);
}

/* Updates that read each other's old values, in one plan: x ← y, y ← x, and a shift. */
static void swaps(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *a = fx_add(fx_vector(1, 2), 0), *b = fx_add(fx_vector(3, 4), 0),
             *c = fx_add(fx_vector(5, 6), 0);
    fx_eval(fx_tuple(a, b, c));
    for (int k = 0; k < 2; k++) {
        fx_array *handles[] = {a, b, c}, *values[] = {fx_mul(b, 1), fx_mul(c, 1), fx_mul(a, 1)};
        assert_int_equal(fxi_commit(3, handles, values, NULL, false), FX_OK);
    }
    CHECK(a, (2), 0, 5, 6);
    CHECK(b, (2), 0, 1, 2);
    CHECK(c, (2), 0, 3, 4);
    fx_array *handles[] = {a, b},
             *values[] = {fx_flip(fx_add(a, 1), FX_AXES(0)), fx_sub(b, fx_flip(a, FX_AXES(0)))};
    assert_int_equal(fxi_commit(2, handles, values, NULL, false), FX_OK);
    CHECK(a, (2), 0, 7, 6);
    CHECK(b, (2), 0, -5, -3);
}

#undef TEST
#define TEST(f) cmocka_unit_test_setup_teardown(f, start_counting, clean_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(read_when_evaluated),
        TEST(views_are_read_when_evaluated),
        TEST(released_when_nothing_reads_it),
        TEST(released_at_once_when_refused),
        TEST(never_written),
        TEST(any_alignment_and_overlap),
        TEST(copies_are_copies),
        TEST(data_pins),
        TEST(data_is_dense),
        TEST(c_arrays_turn_their_dimensions_round),
        TEST(old_values_stay_as_they_were),
        TEST(snapshots_stay_as_they_were),
        TEST(pending_readers_come_along),
        TEST(swaps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
