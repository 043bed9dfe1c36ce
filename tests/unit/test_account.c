/* test_account.c: counters of fused steps and of bytes that fusion saves, the figures of
 * fx_plan_show, and why a donation was not made. Expected numbers are worked out by hand.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <cflux.h>
#include <stdlib.h>
#include <string.h>

static fx_array *leaf(int64_t m, int64_t n)
{
    fx_array *x = fx_rand(m, n);
    assert_int_equal(fx_eval(x), FX_OK);
    return x;
}

static bool fuses(void)
{
    const char *eager = getenv("FX_EAGER");
    return !eager || strcmp(eager, "0") == 0;
}

typedef struct counted {
    uint64_t steps, fused, moved, saved;
} counted;

static counted run(fx_array *y)
{
    const fx_counters a = fx_stats();
    assert_int_equal(fx_eval(y), FX_OK);
    const fx_counters b = fx_stats();
    return (counted){b.steps_run - a.steps_run, b.fused_steps - a.fused_steps,
                     b.bytes_moved - a.bytes_moved, b.bytes_saved - a.bytes_saved};
}

static void a_chain_saves_its_intermediates(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = leaf(30, 40); /* 1200 elements, 4800 bytes */
    const counted c = run(fx_tanh(fx_add(fx_mul(x, 1.3), 0.2)));
    /* as separate steps: mul and add read 4800 + 8 or 4 and write 4800, tanh reads and writes 4800
     */
    if (fuses()) {
        assert_int_equal(c.steps, 1);
        assert_int_equal(c.fused, 1);
        assert_int_equal(c.moved, 2 * 4800 + 2 * 4);
        assert_int_equal(c.saved, 4 * 4800);
    } else {
        assert_int_equal(c.steps, 3);
        assert_int_equal(c.fused, 0);
        assert_int_equal(c.moved, 6 * 4800 + 2 * 4);
        assert_int_equal(c.saved, 0);
    }
}

static void a_reduction_saves_what_it_reads(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = leaf(30, 40);
    const counted c = run(fx_sum(fx_exp(x), FX_AXES(0)));
    if (fuses()) {
        assert_int_equal(c.fused, 1);
        assert_int_equal(c.moved, 4800 + 160);
        assert_int_equal(c.saved, 2 * 4800);
    } else {
        assert_int_equal(c.fused, 0);
        assert_int_equal(c.saved, 0);
    }
}

static void a_broadcast_counts_once(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = leaf(30, 40), *b = leaf(30, 1);
    const counted c = run(fx_add(x, b));
    assert_int_equal(c.steps, 1);
    assert_int_equal(c.fused, 0);
    assert_int_equal(c.moved, 2 * 4800 + 120);
    assert_int_equal(c.saved, 0);
}

/* ---- fx_plan_show ---------------------------------------------------------------------------- */

static void a_plan_for_a_person(void **state)
{
    (void)state;
    if (!fuses())
        return;
    FX_SCOPE;
    fx_array *x = leaf(30, 40), *w = leaf(10, 30);
    FILE *f = tmpfile();
    assert_non_null(f);
    fx_plan_show(f, fx_sum(fx_matmul(w, fx_mul(x, 1.5)), FX_AXES(1)));
    char text[2000] = "";
    rewind(f);
    const size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    assert_true(n > 0);
    /* 10×30 times 30×40: 24,000 operations; 1200 + 4800 + 1600 bytes; the sum reads 1600, writes 40
     */
    assert_string_equal(text, "6 nodes in 3 steps (0 fused) on CPU: 18.4 KiB moved, 0 bytes saved, "
                              "6.2 KiB of arena, 0.024 MFLOP\n"
                              "  1  mul(x1, c0) → Float32 30×40, 9.4 KiB\n"
                              "  2  matmul(x0, 1) → Float32 10×40, 0.024 MFLOP, 7.4 KiB\n"
                              "  3  reduce sum(2) → Float32 10×1, 1.6 KiB\n"
                              "  x0  Float32 10×30\n"
                              "  x1  Float32 30×40\n"
                              "  c0  1.5 Float32\n");
}

/* ---- donations ------------------------------------------------------------------------------- */

static char said[2000];

static void hear(int level, const char *text, void *user)
{
    (void)level, (void)user;
    if (strncmp(text, "donation miss: ", 15) == 0 && strlen(said) + strlen(text) < sizeof said - 2)
        strcat(strcat(said, text), "\n");
}

/* Calls `spoil` for a layer's weight and updates the layer once; returns what FX_TRACE reported. */
static void after(fx_array *(*spoil)(fx_array *weight), uint64_t misses, const char *why)
{
    FX_SCOPE;
    fx_dense_layer *layer = fx_dense(3, 2, .bias = false);
    void *opt = fx_setup(fx_descent(.eta = 0.1), layer);
    fx_array *x = leaf(3, 5);
    assert_int_equal(fx_eval(layer), FX_OK);
    fx_array *kept = spoil ? spoil(layer->weight) : NULL;
    const fx_counters before = fx_stats();
    *said = 0;
    {
        FX_STEP;
        fx_array *loss = fx_sum(fx_call(layer, x));
        fx_dense_layer *g = fx_gradient(loss, layer);
        assert_int_equal(fx_update(opt, layer, g), FX_OK);
    }
    const fx_counters now = fx_stats();
    assert_int_equal(now.donation_misses - before.donation_misses, misses);
    assert_int_equal(now.donations - before.donations, !misses);
    if (why)
        assert_non_null(strstr(said, why));
    else
        assert_string_equal(said, "");
    (void)kept;
}

static fx_array *pin(fx_array *w)
{
    assert_non_null(fx_data(w));
    return w;
}

static fx_array *view(fx_array *w)
{
    fx_array *v = fx_slice(w, 0, 0, 1);
    assert_int_equal(fx_eval(v), FX_OK);
    return v;
}

static void reasons_of_missed_donations(void **state)
{
    (void)state;
    after(NULL, 0, NULL);
    after(pin, 1, "donation miss: Float32 2×3: the old value is pinned by fx_data or a snapshot\n");
    after(view, 1, "a view shares the memory of the old value\n");
}

int main(void)
{
    setenv("FX_TRACE", "donation", 1); /* read once */
    fx_message_set_hook(hear, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chain_saves_its_intermediates),
        cmocka_unit_test(a_reduction_saves_what_it_reads),
        cmocka_unit_test(a_broadcast_counts_once),
        cmocka_unit_test(a_plan_for_a_person),
        cmocka_unit_test(reasons_of_missed_donations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
