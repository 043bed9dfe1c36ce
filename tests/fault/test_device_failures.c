/* test_device_failures.c: devices that fail while a program trains a small convolutional network:
 * every allocation, launch and copy fails in turn, once or from then on, and the device is lost at
 * every call in turn. After each failure a message names the device, nothing leaks, values are the
 * old ones or reported as lost, and training continues on another device. The devices are the
 * tests' stand-ins: CUDA:1 and AMDGPU:2, or those of the backends that the arguments name. ctest:
 * devices threads timeout=300 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <cflux.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "context.h"
#include "evaluate.h"
#include "memory.h"
#include "standin.h"

enum { BAD = 1, OTHER = 2, PARAMETERS = 12, FLOATS = 64 };
static fx_device *bad, *other, *neighbour; /* of `bad`, in its backend */
static const standin *script;

typedef struct network {
    void *model, *opt;
    fx_array *x, *y;
} network;

static network network_on(fx_device *device)
{
    fx_seed(7);
    network n;
    n.model = fx_to(device, fx_chain(fx_conv(FX_DIMS(3, 3), 1, 2, FX_RELU, .pad = FX_SAME),
                                     fx_batchnorm(2), fx_maxpool(FX_DIMS(2, 2)), FX_FLATTEN,
                                     fx_dropout(0.25), fx_dense(8, 3), fx_layernorm(FX_DIMS(3))));
    n.opt = fx_setup(fx_adam(.eta = 0.01), n.model);
    n.x = fx_to(device, fx_rand(4, 4, 1, 6));
    n.y = fx_to(device, fx_onehotbatch(fx_mod(fx_range_dtype(FX_DTYPE_I32, 0, 1, 6), 3), 3));
    return n;
}

static fx_status train(const network *n, double *loss_out)
{
    FX_STEP;
    fx_array *loss = fx_logitcrossentropy(fx_call(n->model, n->x), n->y);
    const fx_status s = fx_update(n->opt, n->model, fx_gradient(loss, n->model), .guard = loss);
    *loss_out = fx_item(loss);
    return s;
}

/* Builds, moves, trains, predicts, and copies the prediction to the host through another device.
 * Returns its sum, or NaN. */
static double program(fx_device *device)
{
    FX_SCOPE;
    double loss;
    const network n = network_on(device);
    train(&n, &loss);
    train(&n, &loss);
    fx_array *there = fx_to(device, fx_to(neighbour, fx_call(n.model, n.x)));
    const double sum = fx_item(fx_sum(fx_mul(fx_cpu(there), fx_vector(1, 2, 3))));
    return sum + loss;
}

/* A message about `bad`. */
static const char *say(const char *format)
{
    static char text[64];
    snprintf(text, sizeof text, format, bad->name);
    return text;
}

static void forget(void)
{
    script->refuse(BAD, 0, 0, 0);
    script->lose(BAD, -1);
}

/* Frees all caches and waits for all queued work. */
static void settle(void)
{
    fxi_reclaim_all();
    assert_int_equal(fx_synchronize(bad), FX_OK);
    assert_int_equal(fx_synchronize(other), FX_OK);
    assert_int_equal(fx_synchronize(neighbour), FX_OK);
}

typedef struct tally {
    int64_t points, reported, blocks, allocations;
} tally;

/* One run with a failure at the given point. False: the run ended before that point. */
static bool one_point(tally *t, double right)
{
    const double got = program(bad);
    const bool hit = script->failed(BAD);
    const fx_error e = fx_error_take();
    forget();
    settle();
    if (script->blocks(BAD) != t->blocks || fxi_live_allocations() != t->allocations)
        fail_msg("point %lld leaks %lld blocks, %lld allocations (%s)", (long long)t->points,
                 (long long)(script->blocks(BAD) - t->blocks),
                 (long long)(fxi_live_allocations() - t->allocations), e.message);
    if (e.status == FX_OK)
        assert_float_equal(got, right, 0.0); /* no failure: the result must be the same */
    else if (!hit || !strstr(e.message, bad->name) ||
             (e.status != FX_STATUS_DEVICE && e.status != FX_STATUS_MEMORY))
        fail_msg("point %lld is reported as %s: %s", (long long)t->points, fx_status_name(e.status),
                 e.message);
    if (hit && t->points++ % 32 == 0)
        assert_float_equal(program(other), right, 0.0);
    t->reported += e.status != FX_OK;
    return hit;
}

static tally every_point(unsigned which, int64_t times, double right)
{
    settle();
    tally t = {.blocks = script->blocks(BAD), .allocations = fxi_live_allocations()};
    for (bool more = true; more;) {
        if (which)
            script->refuse(BAD, which, t.points, times);
        else
            script->lose(BAD, t.points);
        more = one_point(&t, right);
    }
    assert_float_equal(program(bad), right, 0.0);
    assert_int_equal(fx_error_status(), FX_OK);
    return t;
}

static void every_call_fails_in_turn(void **state)
{
    (void)state;
    const bool has_marks = bad->backend->mark;
    const struct {
        const char *name;
        unsigned which;
        int64_t times, least;
        bool survives;
    } scripts[] = {{"an allocation", STANDIN_ALLOCS, 1, 20, true},
                   {"all allocations from", STANDIN_ALLOCS, INT64_MAX, 20, false},
                   {"a launch", STANDIN_LAUNCHES, 1, 40, false},
                   {"all launches from", STANDIN_LAUNCHES, INT64_MAX, 40, false},
                   {"a copy", STANDIN_COPIES, 1, 15, false},
                   {"all copies from", STANDIN_COPIES, INT64_MAX, 15, false},
                   {"a marker or a wait", STANDIN_MARKS, 1, has_marks ? 2 : 0, false},
                   {"all of them from", STANDIN_MARKS, INT64_MAX, has_marks ? 2 : 0, false},
                   {"the device is lost from", 0, 0, 100, false}};
    const double right = program(fx_cpu_device());
    assert_true(isfinite(right));
    assert_float_equal(program(bad), right, 0.0);
    assert_float_equal(program(other), right, 0.0);
    for (size_t i = 0; i < sizeof scripts / sizeof scripts[0]; i++) {
        const tally t = every_point(scripts[i].which, scripts[i].times, right);
        printf("%s on: %lld points, %lld reported\n", scripts[i].name, (long long)t.points,
               (long long)t.reported);
        assert_true(t.points >= scripts[i].least);
        assert_true(scripts[i].survives || t.reported == t.points);
    }
}

/* ---- what becomes of the model --------------------------------------------------------------- */

typedef struct values {
    int n, lost;
    int64_t length[PARAMETERS];
    float v[PARAMETERS][FLOATS];
    bool is_lost[PARAMETERS];
} values;

static void read_one(fx_array *x, const char *path, bool trainable, void *user)
{
    (void)path, (void)trainable;
    values *all = user;
    const int k = all->n++;
    assert_true(k < PARAMETERS && fx_length(x) <= FLOATS);
    all->length[k] = fx_length(x);
    all->is_lost[k] = fx_read_as(x, FX_DTYPE_F32, all->v[k], fx_length(x)) != FX_OK;
    all->lost += all->is_lost[k];
    assert_int_equal(fx_error_take().status != FX_OK, all->is_lost[k]);
}

static values values_of(void *model)
{
    values all = {0};
    fx_visit(model, read_one, &all);
    assert_true(all.n >= 6);
    return all;
}

/* Every launch of an update fails in turn: parameters and state are unchanged, or reading them is
 * an error that says that they were replaced; never half an update. */
static void a_model_is_as_it_was_or_says_so(void **state)
{
    (void)state;
    int points = 0, unchanged = 0, marked = 0;
    for (bool more = true; more; points++) {
        FX_SCOPE;
        double loss;
        const network n = network_on(bad);
        assert_int_equal(train(&n, &loss), FX_OK);
        assert_int_equal(train(&n, &loss), FX_OK);
        const values before = values_of(n.model);
        script->refuse(BAD, STANDIN_LAUNCHES, points, 1);
        const fx_status s = train(&n, &loss);
        more = script->failed(BAD);
        forget();
        assert_int_equal(s == FX_OK, !more);
        if (!more)
            break;
        const fx_error e = fx_error_take();
        assert_int_equal(e.status, FX_STATUS_DEVICE);
        assert_non_null(strstr(e.message, say("%s: a launch failed")));
        const values after = values_of(n.model);
        assert_int_equal(after.n, before.n);
        for (int k = 0; k < after.n; k++)
            if (!after.is_lost[k])
                assert_memory_equal(after.v[k], before.v[k],
                                    (size_t)before.length[k] * sizeof(float));
        unchanged += after.lost == 0;
        marked += after.lost > 0;
        const fx_status again = train(&n, &loss); /* continues exactly if no value was lost */
        assert_int_equal(again == FX_OK, after.lost == 0);
        fx_error_take();
    }
    printf("%d launches failed: %d left the model as it was, %d marked values as lost\n", points,
           unchanged, marked);
    assert_true(points >= 15 && unchanged >= 10);
}

/* A model on a lost device cannot be read. All other models, and a copy of it on another device,
 * remain usable. */
static void a_lost_device_leaves_the_others(void **state)
{
    (void)state;
    FX_SCOPE;
    double a, b;
    const network there = network_on(bad), here = network_on(other);
    assert_int_equal(train(&there, &a), FX_OK);
    fx_seed(8);
    assert_int_equal(train(&here, &b), FX_OK);
    void *kept = fx_cpu(there.model);
    const values before = values_of(kept);
    script->lose(BAD, 10);
    assert_int_equal(train(&there, &a), FX_STATUS_DEVICE);
    assert_non_null(strstr(fx_error_take().message, say("%s is lost")));
    assert_int_equal(values_of(there.model).lost, before.n);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(fx_synchronize(bad), FX_STATUS_DEVICE);
        assert_non_null(strstr(fx_error_take().message, say("%s is lost")));
        assert_true(fx_is_error(fx_to(bad, fx_ones(3))));
        assert_non_null(strstr(fx_error_take().message, say("%s is lost")));
        assert_int_equal(train(&here, &b), FX_OK);
    }
    const values after = values_of(kept);
    assert_memory_equal(&before, &after, sizeof before);
    network moved = {.model = fx_to(other, kept), .x = here.x, .y = here.y};
    moved.opt = fx_setup(fx_adam(.eta = 0.01), moved.model);
    assert_int_equal(train(&moved, &b), FX_OK);
    assert_true(isfinite(b));
    assert_int_equal(fx_error_status(), FX_OK);
    forget();
}

int main(int n, char **names)
{
    char name[32];
    standin_path();
    fx_message_set_hook(NULL, NULL);
    const char *one = n > 1 ? names[1] : "CUDA", *two = n > 2 ? names[2] : "AMDGPU";
    snprintf(name, sizeof name, "%s:%d", one, (int)BAD);
    bad = fx_device_find(name);
    neighbour = fx_device_get(one, 0);
    snprintf(name, sizeof name, "%s:%d", two, (int)OTHER);
    other = fx_device_find(name);
    script = standin_of(bad);
    if (fx_error_print(stderr) || !script)
        return 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_call_fails_in_turn),
                                       cmocka_unit_test(a_model_is_as_it_was_or_says_so),
                                       cmocka_unit_test(a_lost_device_leaves_the_others)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
