/* test_devices.c: several devices of two backends in one process, whose memory the host cannot
 * reach: training there gives the same bits as on the CPU, generated values move to the device that
 * uses them, and a move copies each array once. ctest: devices threads */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <cflux.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "context.h"
#include "evaluate.h"
#include "standin.h"
#include "temp_file.h"

enum { DEVICES = 5, STEPS = 4, MOST = 32, LONGEST = 256 };
static fx_device *d[DEVICES]; /* the CPU, three of one backend, one of another */

typedef struct values {
    int n;
    float v[MOST][LONGEST];
} values;

static void read_one(fx_array *x, const char *path, bool trainable, void *user)
{
    (void)path, (void)trainable;
    values *all = user;
    if (all->n < MOST && fx_length(x) <= LONGEST)
        fx_read_as(x, FX_DTYPE_F32, all->v[all->n++], fx_length(x));
}

typedef struct network {
    void *model, *opt;
    fx_array *x, *y;
} network;

static network network_on(fx_device *device)
{
    fx_seed(11);
    network n;
    n.model =
        fx_to(device, fx_chain(fx_conv(FX_DIMS(3, 3), 2, 4, FX_RELU), fx_batchnorm(4),
                               fx_maxpool(FX_DIMS(2, 2)), FX_FLATTEN, fx_dropout(0.3),
                               fx_dense(16, 8, FX_TANH), fx_layernorm(FX_DIMS(8)), fx_dense(8, 3)));
    n.opt = fx_setup(fx_adam(.eta = 0.02), n.model);
    n.x = fx_to(device, fx_randn(6, 6, 2, 5));
    n.y = fx_to(device, fx_onehotbatch(fx_mod(fx_range_dtype(FX_DTYPE_I32, 0, 1, 5), 3), 3));
    return n;
}

static fx_status train(const network *n)
{
    FX_STEP;
    fx_array *loss = fx_logitcrossentropy(fx_call(n->model, n->x), n->y);
    return fx_update(n->opt, n->model, fx_gradient(loss, n->model), .guard = loss);
}

/* Parameters, state and a prediction after some steps. */
static bool trained(fx_device *device, values *out)
{
    FX_SCOPE;
    memset(out, 0, sizeof *out);
    const network n = network_on(device);
    bool ok = true;
    for (int i = 0; i < STEPS; i++)
        ok = train(&n) == FX_OK && ok;
    fx_visit(n.model, read_one, out);
    fx_visit(n.opt, read_one, out);
    read_one(fx_call(n.model, n.x), NULL, false, out);
    return ok && fx_error_status() == FX_OK && out->n >= 20;
}

static values right;

static void training_has_the_bits_of_the_cpu(void **state)
{
    (void)state;
    static values got;
    assert_true(trained(d[0], &right));
    for (int i = 1; i < DEVICES; i++) {
        const standin *s = standin_of(d[i]);
        const int id = fx_device_id(d[i]);
        const int64_t before = s->calls(id, STANDIN_LAUNCH);
        assert_true(trained(d[i], &got));
        assert_memory_equal(&got, &right, sizeof right);
        assert_true(s->calls(id, STANDIN_LAUNCH) >= before + 10 * STEPS);
    }
}

/* The training steps of several networks alternate. */
static void several_at_once_do_not_disturb_each_other(void **state)
{
    (void)state;
    FX_SCOPE;
    static values got[DEVICES];
    network n[DEVICES];
    for (int i = 0; i < DEVICES; i++)
        n[i] = network_on(d[i]);
    for (int step = 0; step < STEPS; step++)
        for (int i = 0; i < DEVICES; i++) {
            fx_seed((uint64_t)step);
            assert_int_equal(train(&n[i]), FX_OK);
        }
    for (int i = 0; i < DEVICES; i++) {
        fx_visit(n[i].model, read_one, &got[i]);
        fx_visit(n[i].opt, read_one, &got[i]);
        assert_true(got[i].n >= 20);
        assert_memory_equal(&got[i], &got[0], sizeof got[0]);
    }
    assert_int_equal(fx_error_status(), FX_OK);
}

typedef struct job {
    fx_device *device;
    values got;
    bool ok;
} job;

static void *train_there(void *user)
{
    job *j = user;
    j->ok = trained(j->device, &j->got);
    fxi_reclaim_all();
    return NULL;
}

/* Two threads on each device. */
static void from_several_threads(void **state)
{
    (void)state;
    static job jobs[2 * DEVICES];
    pthread_t threads[2 * DEVICES];
    for (int i = 0; i < 2 * DEVICES; i++) {
        jobs[i].device = d[i % DEVICES];
        assert_int_equal(pthread_create(&threads[i], NULL, train_there, &jobs[i]), 0);
    }
    for (int i = 0; i < 2 * DEVICES; i++) {
        pthread_join(threads[i], NULL);
        assert_true(jobs[i].ok);
        assert_memory_equal(&jobs[i].got, &right, sizeof right);
    }
}

/* Values that are made only of generators have no device: they may be computed for one device and
 * used on another. */
static void values_of_generators_go_where_they_are_used(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *a = fx_to(d[1], fx_vector(1, 2, 3)), *b = fx_to(d[4], fx_vector(10, 20, 30));
    fx_array *mask = fx_mul(fx_ones(3), 2), *half = fx_mul(mask, 0.5);
    fx_array *on_a = fx_add(fx_mul(a, mask), half), *on_b = fx_mul(fx_mul(b, mask), mask);
    fx_array *alone = fx_add(mask, half);
    assert_true(fx_item(fx_sum(mask)) == 6); /* computed on the CPU, with consumers on devices */
    assert_true(fx_item(fx_sum(on_a)) == 15);
    assert_true(fx_item(fx_sum(on_b)) == 240);
    assert_true(fx_item(fx_sum(alone)) == 9);
    fx_array *noise = fx_rand(3), *both[2] = {fx_mul(a, noise), fx_mul(b, noise)};
    fx_array *two = fx_tuple(both[0], both[1]); /* one evaluation on two devices */
    assert_int_equal(fx_eval(two), FX_OK);
    assert_true(fx_item(fx_sum(fx_abs(fx_sub(fx_mul(fx_cpu(both[0]), 10), fx_cpu(both[1]))))) <
                1e-4);
    assert_ptr_equal(fx_array_device(both[0]), d[1]);
    assert_ptr_equal(fx_array_device(both[1]), d[4]);
    assert_int_equal(fx_error_status(), FX_OK);
}

static fx_status no_forward(const fx_custom_op *op, int n, const fx_custom_operand *in,
                            const fx_custom_operand *out)
{
    (void)op, (void)n, (void)in, (void)out;
    return FX_OK;
}
static fx_array *joined(fx_array *const *x)
{
    return fxi_concat(0, 3, x);
}
static fx_array *stacked(fx_array *const *x)
{
    return fxi_stack(0, 3, x);
}
static fx_array *own(fx_array *const *x)
{
    static const fx_custom_op op = {
        .fxi_size = sizeof(fx_custom_op), .name = "own", .forward = no_forward};
    return fx_custom(&op, 3, x, FX_DTYPE_F32, FX_DIMS(3));
}
static fx_array *selected(fx_array *const *x)
{
    return fx_where(x[0], x[1], x[2]);
}
static fx_array *limited(fx_array *const *x)
{
    return fx_clamp(x[0], x[1], x[2]);
}

/* A program moved the model after the first training steps, and forgot the state. */
static void a_state_stays_on_the_device_of_its_model(void **state)
{
    (void)state;
    FX_SCOPE;
    network n = network_on(d[4]);
    assert_int_equal(train(&n), FX_OK);
    n.model = fx_to(d[1], n.model);
    n.x = fx_to(d[1], n.x);
    n.y = fx_to(d[1], n.y);
    assert_int_equal(train(&n), FX_STATUS_DEVICE);
    assert_non_null(strstr(fx_error_take().message,
                           "the optimiser state is on AMDGPU:0, but the parameter is on CUDA:0"));
    n.opt = fx_to(d[1], n.opt);
    assert_int_equal(train(&n), FX_OK);
}

/* Operands of literals are on no device. In whatever positions they are, an operation of three
 * operands is on the device of the others, and refuses two devices. */
static void literals_do_not_hide_the_device(void **state)
{
    (void)state;
    static fx_array *(*const operations[])(fx_array *const *) = {joined, stacked, own, selected,
                                                                 limited};
    enum { LITERAL, ON_A, ON_B, KINDS };
    for (size_t k = 0; k < sizeof operations / sizeof *operations; k++)
        for (int i = 1; i < KINDS * KINDS * KINDS; i++) {
            FX_SCOPE;
            const int kinds[] = {i % KINDS, i / KINDS % KINDS, i / KINDS / KINDS};
            fx_array *x[3];
            bool a = false, b = false;
            for (int j = 0; j < 3; j++) {
                a = a || kinds[j] == ON_A;
                b = b || kinds[j] == ON_B;
                x[j] = kinds[j] == LITERAL ? fx_ones(3)
                                           : fx_to(d[kinds[j] == ON_A ? 1 : 4], fx_vector(1, 2, 3));
            }
            fx_array *y = operations[k](x);
            if (a && b)
                assert_true(fx_is_error(y) && fx_error_take().status == FX_STATUS_DEVICE);
            else
                assert_ptr_equal(fx_array_device(y), d[a ? 1 : 4]);
        }
}

static int64_t transfers(const fx_device *device, standin_call call)
{
    return standin_of(device)->calls(fx_device_id(device), call);
}

static void a_move_copies_each_array_once(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_dense_layer *first = fx_dense(5, 5);
    void *model = fx_chain(first, fx_dense(5, 5, FX_RELU), first); /* the third is the first */
    fx_eval(model);
    const int64_t writes = transfers(d[1], STANDIN_WRITE), copies = transfers(d[2], STANDIN_COPY),
                  reads = transfers(d[2], STANDIN_READ),
                  bytes = standin_of(d[1])->bytes(0, STANDIN_WRITE);
    void *there = fx_to(d[1], model);
    assert_int_equal(transfers(d[1], STANDIN_WRITE) - writes, 4);
    assert_int_equal(standin_of(d[1])->bytes(0, STANDIN_WRITE) - bytes, 2 * (25 + 5) * 4);
    assert_ptr_equal(fx_to(d[1], there), there);
    assert_int_equal(transfers(d[1], STANDIN_WRITE) - writes, 4);
    void *next = fx_to(d[2], there); /* from device to device, not through the host */
    assert_int_equal(transfers(d[2], STANDIN_COPY) - copies, 4);
    fx_cpu(next);
    assert_int_equal(transfers(d[2], STANDIN_READ) - reads, 4);
    assert_ptr_equal(fx_child(next, 0), fx_child(next, 2));
    fx_array *wrong = fx_add(fx_to(d[1], fx_ones(2)), fx_to(d[4], fx_ones(2)));
    assert_true(fx_is_error(wrong));
    const fx_error e = fx_error_take();
    assert_non_null(strstr(e.message, "CUDA:0"));
    assert_non_null(strstr(e.message, "AMDGPU:0"));
    assert_non_null(strstr(e.message, "fx_to"));
}

/* Between devices of two backends bytes pass through the host in pieces of 4 MiB. */
static void large_arrays_move_in_pieces(void **state)
{
    (void)state;
    FX_SCOPE;
    const int64_t n = ((int64_t)9 << 20) / 4 + 3;
    fx_array *x = fx_range_dtype(FX_DTYPE_I32, 0, 1, n);
    fx_array *there = fx_array_to(d[4], fx_array_to(d[1], x));
    const int32_t *v = fx_data(fx_cpu(there));
    assert_non_null(v);
    int64_t wrong = 0;
    for (int64_t i = 0; i < n; i++)
        wrong += v[i] != (int32_t)i;
    assert_int_equal(wrong, 0);
}

static int messages;

static void listen(int level, const char *text, void *user)
{
    (void)level, (void)text, (void)user;
    messages++;
}

/* Float64 narrows on the way. A pending array stays pending, as part of its graph; an evaluated one
 * is copied at once, because its memory may be borrowed and change later. */
static void narrowing_moves_what_is_there(void **state)
{
    (void)state;
    FX_SCOPE;
    double memory[3] = {1, 2, 3};
    fx_array *borrowed = fx_borrow(FX_DTYPE_F64, memory, NULL, NULL, 3);
    fx_array *moved = fx_gpu(borrowed);
    assert_true(fx_is_evaluated(moved));
    memory[0] = 100;
    assert_true(fx_item(fx_sum(moved)) == 6);
    fx_array *pending = fx_add(borrowed, 0.5); /* 100.5, 2.5, 3.5 */
    assert_false(fx_is_evaluated(pending));
    moved = fx_gpu(pending);
    assert_false(fx_is_evaluated(moved) || fx_is_evaluated(pending));
    assert_int_equal(fx_eltype(moved), FX_DTYPE_F32);
    assert_true(fx_item(fx_sum(moved)) == 106.5);
    assert_int_equal(fx_error_status(), FX_OK);
}

/* fx_cu always uses CUDA; fx_gpu follows the project's preference. */
static void cu_means_cuda(void **state)
{
    (void)state;
    FX_SCOPE;
    assert_string_equal(fx_gpu_backend(), "AMDGPU");
    fx_message_set_hook(listen, NULL);
    fx_array *x = fx_ones(2);
    assert_ptr_equal(fx_array_device(fx_gpu(x)), d[4]);
    assert_ptr_equal(fx_array_device(fx_gpu_strict(x)), d[4]);
    assert_ptr_equal(fx_array_device(fx_cu(x)), d[1]);
    fx_dense_layer *m = fx_fmap(fx_cu, fx_dense(2, 3));
    assert_ptr_equal(fx_array_device(m->weight), d[1]);
    assert_ptr_equal(fx_array_device(((fx_dense_layer *)fx_cu(fx_dense(2, 3)))->bias), d[1]);
    assert_int_equal(fx_eltype(fx_cu(fx_full_dtype(FX_DTYPE_F64, 1, 2))), FX_DTYPE_F32);
    assert_int_equal(fx_error_status(), FX_OK);
    assert_int_equal(messages, 0); /* all moves went to the device of the project's preference */
    fx_message_set_hook(NULL, NULL);
}

int main(void)
{
    static const char preference[] = "[Flux]\ngpu_backend = \"AMDGPU\"\n";
    char *project = strdup(temp_file("LocalPreferences.toml", preference, sizeof preference - 1));
    if (!project)
        return 1;
    *strrchr(project, '/') = '\0';
    setenv("CFLUX_PROJECT", project, 1);
    free(project);
    static const char *const names[DEVICES] = {"CPU", "CUDA:0", "CUDA:1", "CUDA:2", "AMDGPU:0"};
    standin_path();
    for (int i = 0; i < DEVICES; i++)
        d[i] = fx_device_find(names[i]);
    if (fx_error_print(stderr))
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(training_has_the_bits_of_the_cpu),
        cmocka_unit_test(several_at_once_do_not_disturb_each_other),
        cmocka_unit_test(from_several_threads),
        cmocka_unit_test(values_of_generators_go_where_they_are_used),
        cmocka_unit_test(a_state_stays_on_the_device_of_its_model),
        cmocka_unit_test(literals_do_not_hide_the_device),
        cmocka_unit_test(a_move_copies_each_array_once),
        cmocka_unit_test(large_arrays_move_in_pieces),
        cmocka_unit_test(cu_means_cuda),
        cmocka_unit_test(narrowing_moves_what_is_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
