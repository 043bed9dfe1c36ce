/* test_plan_limits.c: devices whose kernels take few buffers, or lack some kernels: every step
 * fits, results are those of a device without limits in every bit, and what a device cannot compute
 * fails before a step has run. ctest: devices */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <cflux.h>
#include <string.h>

#include "context.h"
#include "handle.h"
#include "planning.h"
#include "standin.h"

enum { M = 6, N = 5 };

static fx_array *leaf(fx_device *device, unsigned seed)
{
    float data[M * N];
    for (unsigned i = 0; i < M * N; i++)
        data[i] = (float)((i * 7 + seed * 13) % 31) / 16 - 0.9f;
    return fx_array_to(device, fx_from(FX_DTYPE_F32, data, M, N));
}

enum { RESULTS = 4 };

/* ---- graphs that would be steps of many buffers ---------------------------------------------- */

/* 40 operands, added up in pairs. */
static void sums(fx_device *d, fx_array *out[RESULTS])
{
    fx_array *x[40];
    for (unsigned k = 0; k < 40; k++)
        x[k] = leaf(d, k);
    for (int n = 40; n > 1; n = (n + 1) / 2)
        for (int k = 0; k < n / 2; k++)
            x[k] = fx_add(x[k], x[n - 1 - k]);
    out[0] = x[0];
}

/* Several results of one group: each is stored, and read by the next. */
static void stored(fx_device *d, fx_array *out[RESULTS])
{
    out[0] = fx_tanh(fx_add(leaf(d, 1), leaf(d, 2)));
    out[1] = fx_mul(out[0], leaf(d, 3));
    out[2] = fx_sub(out[1], leaf(d, 4));
    out[3] = fx_where(fx_lt(out[0], out[2]), out[1], leaf(d, 5));
}

/* A reduction with many producers. */
static void reduced(fx_device *d, fx_array *out[RESULTS])
{
    fx_array *x = leaf(d, 1);
    for (unsigned k = 2; k < 16; k++)
        x = fx_add(fx_mul(x, leaf(d, k)), 0.25 * k);
    out[0] = fx_sum(x, .dims = FX_AXES(1));
}

/* Row steps of many operands and outputs: softmax and normalise of one sum, and the gradient. */
static void rows(fx_device *d, fx_array *out[RESULTS])
{
    fx_array *x = leaf(d, 0), *w = leaf(d, 1);
    for (unsigned k = 2; k < 14; k++)
        w = fx_add(w, fx_mul(leaf(d, k), x));
    out[0] = fx_softmax(w);
    out[1] = fx_normalise(fx_add(w, out[0]), FX_AXES(0), 1e-5);
    fx_array *loss = fx_sum(fx_mul(fx_mul(out[0], out[1]), leaf(d, 20)));
    assert_int_equal(fx_gradient_of(loss, &x, 1, &out[2]), FX_OK);
}

/* A product with a bias, and another product after it. */
static void product(fx_device *d, fx_array *out[RESULTS])
{
    fx_array *y = fx_matmul(leaf(d, 1), fx_transpose(leaf(d, 2)));
    fx_array *more = fx_matmul(leaf(d, 3), fx_transpose(leaf(d, 4)));
    out[0] = fx_relu(fx_add(fx_add(y, fx_slice(leaf(d, 5), 1, 0, 1)), more));
}

static void (*const graphs[])(fx_device *d, fx_array *out[RESULTS]) = {sums, stored, reduced, rows,
                                                                       product};
enum { GRAPHS = sizeof graphs / sizeof graphs[0] };

/* The results of a graph, evaluated together; those that it lacks repeat the first. */
static fx_status compute(int graph, fx_device *d, fx_array *out[RESULTS])
{
    memset(out, 0, RESULTS * sizeof *out);
    graphs[graph](d, out);
    for (int k = 1; k < RESULTS; k++)
        out[k] = out[k] ? out[k] : out[0];
    return fx_eval(fx_tuple(out[0], out[1], out[2], out[3]));
}

static void same_bits(fx_array *x, fx_array *y)
{
    fx_array *a = fx_array_to(fx_cpu_device(), x), *b = fx_array_to(fx_cpu_device(), y);
    assert_int_equal(fx_length(a), fx_length(b));
    assert_memory_equal(fx_data(a), fx_data(b), (size_t)fx_length(a) * sizeof(float));
}

/* ---- buffers --------------------------------------------------------------------------------- */

/* Inputs and outputs of the step that has most of them. */
static int most_operands(fx_array *x)
{
    fxi_graph g = {0};
    fxi_plan *p;
    const fxi_root root = {x->node, NULL};
    assert_int_equal(fxi_graph_of(fxi_here(), &g, 1, &root), FX_OK);
    assert_int_equal(fxi_plan_new(&g, &p), FX_OK);
    int most = 0;
    for (int32_t i = 0; i < p->nsteps; i++) {
        const int n = p->steps[i].nin + fx_step_outputs(&p->steps[i]);
        most = n > most ? n : most;
    }
    fxi_plan_release(p);
    fxi_graph_free(&g);
    return most;
}

/* Work space takes one buffer; without a limit a group has 24 inputs at most, and an epilogue takes
 * the bias and the other product. */
static void groups_use_the_room(void **state)
{
    (void)state;
    fx_device *cpu = fx_cpu_device();
    for (int32_t buffers = FX_LEAST_BUFFERS; buffers <= 30; buffers++) {
        FX_SCOPE;
        fx_array *out[RESULTS];
        sums(cpu, out);
        cpu->info.buffers = buffers;
        assert_int_equal(most_operands(out[0]), buffers < 26 ? buffers - 1 : 25);
        cpu->info.buffers = 0;
        assert_int_equal(most_operands(out[0]), 25);
        product(cpu, out);
        cpu->info.buffers = buffers;
        assert_int_equal(most_operands(out[0]), buffers < 6 ? buffers - 1 : 5);
        cpu->info.buffers = 0;
    }
}

/* The stand-in fails at a step of more buffers than STANDIN_BUFFERS. Groups of any kind compute
 * what those of a device without limits compute. */
static void every_step_fits(void **state)
{
    (void)state;
    fx_device *small = fx_device_get("CUDA", 0);
    assert_int_equal(small->info.buffers, 7);
    for (int i = 0; i < GRAPHS; i++) {
        FX_SCOPE;
        fx_array *here[RESULTS], *there[RESULTS];
        assert_int_equal(compute(i, fx_cpu_device(), here), FX_OK);
        assert_int_equal(compute(i, small, there), FX_OK);
        for (int k = 0; k < RESULTS; k++)
            same_bits(here[k], there[k]);
    }
}

/* ---- kernels that a device lacks ------------------------------------------------------------- */

/* Fused steps that the backend refuses are computed by other steps. */
static void refused_steps_are_split(void **state)
{
    static const unsigned lacks[] = {1u << FX_CLASS_ROW,
                                     1u << FX_CLASS_ROW | 1u << FX_CLASS_FOREACH};
    (void)state;
    fx_device *d = fx_device_get("AMDGPU", 0);
    const standin *script = standin_of(d);
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < GRAPHS; i++) {
            FX_SCOPE;
            fx_array *here[RESULTS], *there[RESULTS];
            fxi_plans_reclaim();
            assert_int_equal(compute(i, fx_cpu_device(), here), FX_OK);
            script->lacks(d->id, lacks[round]);
            assert_int_equal(compute(i, d, there), FX_OK);
            script->lacks(d->id, 0);
            assert_int_equal(fx_error_status(), FX_OK);
            for (int k = 0; k < RESULTS; k++)
                same_bits(here[k], there[k]);
        }
}

/* A step without a kernel fails its plan with the backend's message before any step has run; when
 * there is a kernel, the plan computes. */
static void the_plan_fails_before_a_step_runs(void **state)
{
    (void)state;
    fx_device *d = fx_device_get("AMDGPU", 0);
    const standin *script = standin_of(d);
    FX_SCOPE;
    fxi_plans_reclaim();
    fx_array *x = leaf(d, 1), *y = fx_cumsum(fx_tanh(fx_cumsum(x, 0)), 1);
    const int64_t launched = script->calls(d->id, STANDIN_LAUNCH);
    for (int round = 0; round < 2; round++) { /* also when it has failed before */
        script->lacks(d->id, 1u << FX_CLASS_ELEMENTWISE);
        assert_int_equal(fx_eval(y), FX_STATUS_UNSUPPORTED);
        assert_int_equal(script->calls(d->id, STANDIN_LAUNCH), launched);
        assert_string_equal(fx_error_take().message, "prepare: the stand-in lacks such a kernel");
    }
    script->lacks(d->id, 0);
    assert_int_equal(fx_eval(y), FX_OK);
    same_bits(y, fx_cumsum(fx_tanh(fx_cumsum(fx_array_to(fx_cpu_device(), x), 0)), 1));
}

int main(void)
{
    standin_path();
    setenv("STANDIN_BUFFERS", "7", 1);
    if (fx_use("CUDA") != FX_OK)
        return 1;
    unsetenv("STANDIN_BUFFERS");
    if (fx_use("AMDGPU") != FX_OK || fx_use("CPU") != FX_OK)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_use_the_room),
        cmocka_unit_test(every_step_fits),
        cmocka_unit_test(refused_steps_are_split),
        cmocka_unit_test(the_plan_fails_before_a_step_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
