/* test_moves.c: moves of whole objects. Each array is copied once; arrays that are on the device
 * already are not copied; element types; the printed form of objects on a device; arrays of two
 * devices in one operation. With an argument the devices are those of the plugin
 * of that name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <cflux.h>
#include <string.h>

#include "away.h"
#include "registry.h"

static fx_device *d[3];

static const char *plugin;

static int setup(void **state)
{
    (void)state;
    if (!plugin)
        away_register("CUDA", 3);
    else if (fx_use(plugin) != FX_OK)
        return -1;
    for (int i = 0; i < 3; i++)
        d[i] = fx_device_get("CUDA", i);
    return 0;
}

/* ---- counting copies ------------------------------------------------------------------------- */

typedef struct Inner {
    fx_object base;
    fx_array *a;
    fx_list more;
    double number;
    const char *label;
} Inner;
FX_FUNCTOR(Inner, a, more, number, label);

typedef struct Outer {
    fx_object base;
    Inner *left, *right;
    fx_array *shared, *kept; /* kept is not named: shared with the original */
    fx_function *act;
} Outer;
FX_FUNCTOR(Outer, left, right, shared, act);

static Outer *nested(void)
{
    fx_array *shared = fx_randn(5);
    void *items[] = {fx_randn(2), shared, fx_dense(2, 2, FX_RELU)};
    Inner *left = fx_new(Inner, .a = fx_randn(3), .more = {3, items, NULL}, .label = "left");
    return fx_new(Outer, .left = left, .right = left, .shared = shared, .kept = fx_randn(9),
                  .act = FX_TANH);
}

typedef struct where {
    fx_device *device;
    int n;
    int64_t bytes;
    bool all;
} where;

static void look(fx_array *x, const char *path, bool trainable, void *user)
{
    (void)path, (void)trainable;
    where *w = user;
    w->n++;
    w->bytes += fx_length(x) * (int64_t)fx_dtype_size(fx_eltype(x));
    w->all &= fx_array_device(x) == w->device;
}

/* Moves x three times; every array and byte goes once each time, and then no more. */
static void *copies(void *x, int arrays)
{
    fx_device *const route[] = {d[0], d[2], fx_cpu_device()};
    assert_int_equal(fx_eval(x), FX_OK);
    for (int i = 0; i < 3; i++) {
        where w = {.device = route[i], .all = true};
        const fx_counters before = fx_stats();
        void *y = fx_to(route[i], x);
        const fx_counters after = fx_stats();
        assert_ptr_not_equal(y, x);
        assert_ptr_equal(fx_type_of(y), fx_type_of(x));
        fx_visit(y, look, &w);
        assert_true(w.all);
        assert_int_equal(w.n, arrays);
        assert_int_equal(after.transfers - before.transfers, arrays);
        assert_int_equal(after.bytes_transferred - before.bytes_transferred, w.bytes);
        assert_ptr_equal(fx_to(route[i], y), y);
        assert_int_equal(fx_stats().transfers, after.transfers);
        x = y;
    }
    assert_int_equal(fx_error_status(), FX_OK);
    return x;
}

static void every_array_is_copied_once(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_randn(3, 4);
    fx_array *back = copies(x, 1);
    assert_true(fx_item(fx_all(fx_eq(back, x))) == 1);
    copies(fx_chain(fx_dense(2, 3), fx_batchnorm(3), fx_dense(3, 1)), 2 + 4 + 2);
    fx_dense_layer *dense = fx_dense(4, 4);
    fx_chain_layer *tied = copies(fx_chain(dense, FX_RELU, dense, fx_dense(4, 4)), 4);
    assert_ptr_equal(fx_child(tied, 0), fx_child(tied, 2));
    copies(fx_setup(fx_adam(), dense), 4);
    copies(fx_tuple(x, fx_tuple(x, fx_ones(2)), FX_RELU), 2);
    void *named = copies(fx_named_tuple("x", x, "y", fx_zeros(7)), 2);
    assert_string_equal(fx_child_name(named, 1), "y");
    Outer *o = nested(), *p = copies(o, 5);
    assert_ptr_equal(p->left, p->right);
    assert_ptr_equal(p->left->more.items[1], p->shared);
    assert_ptr_equal(p->kept, o->kept);
    assert_ptr_equal(p->act, FX_TANH);
    assert_string_equal(p->left->label, "left");
    fx_dense_layer *g = fx_gradient(fx_sum(fx_call(dense, fx_ones(4, 2))), dense);
    copies(g, 2); /* gradients too */
    void *both = copies(fx_tuple(dense, fx_setup(fx_momentum(), dense)), 4);
    assert_int_equal(fx_count(both), 2);
}

/* A value made of literals alone is on the CPU: it is computed there and is not moved. */
static void generators_move_once(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_add(fx_ones(3), 1), *pending = fx_add(fx_ones(3), 2);
    fx_eval(x);
    const fx_counters before = fx_stats();
    assert_ptr_equal(fx_cpu(x), x);
    assert_ptr_equal(fx_cpu(pending), pending);
    assert_true(fx_is_evaluated(pending));
    assert_int_equal(fx_stats().transfers, before.transfers);
    fx_array *there = fx_to(d[1], x), *back = fx_cpu(there);
    assert_ptr_equal(fx_array_device(there), d[1]);
    assert_ptr_equal(fx_array_device(back), fx_cpu_device());
    assert_int_equal(fx_stats().transfers - before.transfers, 2);
    assert_true(fx_item(fx_sum(back)) == 6 && fx_item(fx_sum(pending)) == 9);
    assert_int_equal(fx_error_status(), FX_OK);
}

/* NULL is the CPU, for arrays that are there already, on a device, and still to be computed there.
 */
static void no_device_is_the_cpu(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *here = fx_ones(3), *there = fx_to(d[0], fx_vector(1, 2, 3)),
             *pending = fx_add(there, 1);
    assert_ptr_equal(fx_array_to(NULL, here), here);
    assert_true(fx_is_evaluated(here));
    fx_array *const moved[] = {fx_array_to(NULL, there), fx_array_to(NULL, pending)};
    for (int i = 0; i < 2; i++) {
        assert_ptr_equal(fx_array_device(moved[i]), fx_cpu_device());
        assert_true(fx_item(fx_sum(moved[i])) == 6 + 3 * i);
    }
    assert_int_equal(fx_error_status(), FX_OK);
}

/* A value made only of literals belongs to no device, even after another array's evaluation
 * computed it on one and it was read back: it is computed on the device that uses it, and has
 * gradients. */
static void what_belongs_nowhere_still_does(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_add(fx_ones(3), 1), *user = fx_mul(x, fx_to(d[1], fx_vector(1, 2, 3)));
    fx_eval(fx_tuple(user, x));
    assert_ptr_equal(fx_array_device(x), d[1]);
    fx_array *y = fx_cpu(x), *z = fx_mul(y, fx_to(d[2], fx_vector(1, 2, 3)));
    assert_ptr_equal(fx_array_device(y), fx_cpu_device());
    assert_ptr_equal(fx_array_device(z), d[2]);
    fx_array *g = fx_gradient(fx_sum(z), x);
    for (int i = 0; i < 3; i++)
        assert_true(fx_at(fx_cpu(z), i) == 2 * (i + 1) && fx_at(fx_cpu(g), i) == i + 1);
    assert_ptr_equal(fx_array_device(g), d[2]);
    assert_int_equal(fx_error_status(), FX_OK);
}

/* A batch is made of its data and copied once. */
static void batches_are_copied_once(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_randn(2, 10), *y = fx_randn(1, 10);
    fx_eval(fx_tuple(x, y));
    fx_loader *loader = fx_dataloader(fx_tuple(x, y), .batchsize = 4);
    const fx_counters before = fx_stats();
    fx_loader *there = fx_to(d[1], loader);
    assert_ptr_equal(fx_to(d[1], there), there);
    assert_int_equal(fx_stats().transfers, before.transfers);
    int n = 0;
    for (fx_batch b = {0}; fx_next(there, &b); n++)
        assert_ptr_equal(fx_array_device(b.x), d[1]);
    assert_int_equal(n, 3);
    assert_int_equal(fx_stats().transfers - before.transfers, 6);
    assert_int_equal(fx_stats().bytes_transferred - before.bytes_transferred, 30 * sizeof(float));
    assert_int_equal(fx_error_status(), FX_OK);
}

/* ---- types ----------------------------------------------------------------------------------- */

static void literals_stay_literals(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_device *const all[] = {d[0], fx_device_get("ref", 0), fx_cpu_device()};
    fx_array *half = fx_full_dtype(FX_DTYPE_F16, 1, 2), *index = fx_full_dtype(FX_DTYPE_I32, 3, 2);
    for (int i = 0; i < 3; i++) {
        fx_array *two = fx_to(all[i], fx_scalar(2.5)), *h = fx_to(all[i], half);
        assert_int_equal(fx_eltype(fx_mul(h, two)), FX_DTYPE_F16);
        assert_int_equal(fx_eltype(fx_mul(h, fx_to(all[i], fx_cpu(two)))), FX_DTYPE_F16);
        assert_true(fx_item(fx_sum(fx_mul(h, two))) == 5);
        assert_int_equal(fx_eltype(fx_mul(fx_to(all[i], index), two)), FX_DTYPE_F32);
        fx_array *none = fx_to(all[i], fx_zeros()); /* an array, no literal */
        assert_int_equal(fx_eltype(fx_mul(h, none)), FX_DTYPE_F32);
    }
    assert_int_equal(fx_error_status(), FX_OK);
}

static void gpu_narrows(void **state)
{
    (void)state;
    FX_SCOPE;
    static const fx_dtype types[][2] = {
        {FX_DTYPE_F64, FX_DTYPE_F32}, {FX_DTYPE_F32, FX_DTYPE_F32},   {FX_DTYPE_F16, FX_DTYPE_F16},
        {FX_DTYPE_I64, FX_DTYPE_I64}, {FX_DTYPE_BF16, FX_DTYPE_BF16}, {FX_DTYPE_I32, FX_DTYPE_I32},
        {FX_DTYPE_U8, FX_DTYPE_U8},   {FX_DTYPE_BOOL, FX_DTYPE_BOOL}};
    for (int i = 0; i < 8; i++) {
        fx_array *x = fx_cast(fx_ones(3), types[i][0]), *y = fx_gpu(fx_tuple(x));
        assert_int_equal(fx_eltype(fx_child(y, 0)), types[i][1]);
        assert_int_equal(fx_eltype(fx_cpu(fx_child(y, 0))), types[i][1]); /* never back */
        assert_int_equal(fx_eltype(fx_gpu_strict(x)), types[i][1]);
        assert_int_equal(fx_eltype(fx_to(d[1], x)), types[i][0]);
    }
    assert_int_equal(fx_error_status(), FX_OK);
}

/* ---- printing -------------------------------------------------------------------------------- */

static void prints(void *object, const char *expected)
{
    char text[1500];
    fx_show_text(object, text, sizeof text);
    assert_string_equal(text, expected);
}

typedef struct Pair {
    fx_object base;
    fx_array *actor, *critic;
} Pair;
FX_STRUCT(Pair, actor, critic);

static void arrays_and_models_say_where(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_reshape(fx_range(1, 1, 6), 3, 2);
    prints(fx_to(d[0], x), "3×2 CUDA:0 Matrix{Float32}:\n 1.0  4.0\n 2.0  5.0\n 3.0  6.0");
    prints(x, "3×2 Matrix{Float32}:\n 1.0  4.0\n 2.0  5.0\n 3.0  6.0");
    prints(fx_to(d[2], fx_zeros(0, 3)), "0×3 CUDA:2 Matrix{Float32}");
    void *m = fx_chain(fx_dense(1, 256, FX_TANH), fx_dense(256, 1));
    const char *lines = "Chain(\n"
                        "  Dense(1 => 256, tanh),                # 512 parameters\n"
                        "  Dense(256 => 1),                      # 257 parameters\n"
                        ")                   # Total: 4 arrays, 769 parameters, ";
    char expected[400];
    for (int i = 0; i < 3; i++) { /* on any device, whichever was used last */
        snprintf(expected, sizeof expected, "%s3.004 KiB on CUDA:%d.", lines, i);
        prints(fx_to(d[i], m), expected);
    }
    snprintf(expected, sizeof expected, "%s3.207 KiB.", lines);
    prints(fx_cpu(fx_to(d[1], m)), expected);
    prints(fx_chain(fx_dense(2, 2), fx_to(d[1], fx_dense(2, 2))),
           "Chain(\n"
           "  Dense(2 => 2),                        # 6 parameters\n"
           "  Dense(2 => 2),                        # 6 parameters\n"
           ")                   # Total: 4 arrays, 12 parameters, 48 bytes on several devices.");
    Pair *p = fx_new(Pair, .actor = fx_to(d[1], fx_ones(2, 2)), .critic = fx_ones(2));
    assert_ptr_equal(fx_to(d[0], p), p); /* no children: it passes */
    prints(p, "Pair(2×2 CUDA:1 Matrix{Float32}, 2-element Vector{Float32})");
    assert_int_equal(fx_error_status(), FX_OK);
}

static void states_and_loaders_print(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_dense_layer *m = fx_to(d[0], fx_dense(2, 3));
    void *opt = fx_setup(fx_adam(), m);
    fx_freeze(fx_child_named(opt, "bias"));
    const char *leaf = "Leaf(Adam(eta=0.001, beta=(0.9, 0.999), epsilon=1.0e-8), (";
    char expected[600];
    snprintf(expected, sizeof expected,
             "(;\n  weight = %s3×2 CUDA:0 Matrix{Float32}, 3×2 CUDA:0 Matrix{Float32}, (0.9, "
             "0.999))),\n  bias = %s3-element CUDA:0 Vector{Float32}, 3-element CUDA:0 "
             "Vector{Float32}, (0.9, 0.999)), frozen = true),\n) ",
             leaf, leaf);
    prints(opt, expected); /* printing evaluates the zeros on the model's device */
    fx_dense_layer *g = fx_to(d[0], fx_dense(2, 3));
    assert_int_equal(fx_update(opt, m, g), FX_OK);
    assert_ptr_equal(fx_to(d[0], opt), opt);
    void *loader = fx_dataloader(fx_tuple(fx_ones(2, 10), fx_ones(10)), .batchsize = 3);
    prints(fx_to(d[1], loader), "4-element DataLoader(::Tuple{Matrix{Float32}, Vector{Float32}}, "
                                "batchsize=3, device=CUDA:1)");
    prints(fx_dataloader(fx_to(d[2], fx_ones(2, 10)), .batchsize = 5),
           "2-element DataLoader(::CUDA:2 Matrix{Float32}, batchsize=5)");
    assert_int_equal(fx_error_status(), FX_OK);
}

static int64_t half_free(fx_device *device)
{
    return device->info.memory / 2;
}

static fx_status big_info(fx_device *device)
{
    snprintf(device->info.name, sizeof device->info.name, "Card %d", device->id);
    device->info.memory = device->id ? (int64_t)16 << 30 : 0;
    return FX_OK;
}

static void devices_print(void **state)
{
    (void)state;
    if (plugin) /* its devices have names and sizes of their own */
        return;
    FX_SCOPE;
    prints(d[1], "CUDA device 1: Test device 1");
    prints(fx_cpu_device(), "CPU");
    void *list = fx_devices("cuda");
    assert_int_equal(fx_count(list), 3);
    assert_ptr_equal(fx_child(list, 2), d[2]);
    prints(list, "CUDA device 0: Test device 0\nCUDA device 1: Test device 1\nCUDA device 2: Test "
                 "device 2");
    static fx_backend metal;
    metal = *d[0]->backend;
    metal.head.name = "Metal";
    metal.info = big_info;
    metal.available = half_free;
    assert_int_equal(fxi_backend_register(&metal, 2, ""), FX_OK);
    prints(fx_devices("Metal"), "Metal device 0: Card 0, 0 bytes free\n"
                                "Metal device 1: Card 1, 8.000 GiB of 16.000 GiB free");
    prints(fx_devices("OpenCL"),
           "no devices: it is not loaded: fx_use(\"OpenCL\") has not been called");
    assert_int_equal(fx_count(fx_devices(NULL)), 7); /* with CPU and ref */
    assert_ptr_equal(fx_to(d[0], list), list);
    assert_ptr_equal(fx_device_get("CUDA", 3), fx_cpu_device());
    assert_string_equal(fx_error_take().message, "device: CUDA has 3 devices, so there is no id 3");
    assert_int_equal(fx_error_status(), FX_OK);
}

/* ---- two devices ----------------------------------------------------------------------------- */

static fx_status no_forward(const fx_custom_op *op, int n, const fx_custom_operand *in,
                            const fx_custom_operand *out)
{
    (void)op, (void)n, (void)in, (void)out;
    return FX_STATUS_INTERNAL;
}

static int refused;

/* Names both devices and what to call. */
static void refuses(void *result)
{
    const fx_error e = fx_error_take();
    assert_true(fx_is_error(result));
    assert_int_equal(e.status, FX_STATUS_DEVICE);
    assert_non_null(strstr(e.message, "CUDA:0"));
    assert_non_null(strstr(e.message, "CUDA:1"));
    assert_non_null(strstr(e.message, "fx_to"));
    refused++;
}

static void two_devices_in_one_operation(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *a = fx_to(d[0], fx_ones(2, 2)), *b = fx_to(d[1], fx_ones(2, 2));
    fx_array *image = fx_to(d[0], fx_ones(4, 4, 2, 1)), *kernel = fx_to(d[1], fx_ones(2, 2, 2, 2));
    fx_array *index = fx_to(d[1], fx_full_dtype(FX_DTYPE_I64, 0, 2));
    fx_array *index2 = fx_to(d[1], fx_full_dtype(FX_DTYPE_I64, 0, 2, 2));
    fx_array *const pair[] = {a, b};
    const fx_custom_op custom = {sizeof custom, "mine", no_forward, NULL, NULL};
    refuses(fx_add(a, b));
    refuses(fx_max(a, b));
    refuses(fx_lt(a, b));
    refuses(fx_where(fx_gt(a, 0), a, b));
    refuses(fx_where(fx_gt(b, 0), a, 1));
    refuses(fx_matmul(a, b));
    refuses(fx_batched_mul(fx_reshape(a, 2, 2, 1), fx_reshape(b, 2, 2, 1)));
    refuses(fxi_concat(0, 2, pair));
    refuses(fxi_stack(2, 2, pair));
    refuses(fx_convolve(image, kernel));
    refuses(fx_convolve_transposed(image, kernel));
    refuses(fx_gather(a, index, 0));
    refuses(fx_gather_elements(a, index2, 0));
    refuses(fx_scatter(FX_REDUCE_SUM, a, index, 1, 3));
    refuses(fx_scatter_elements(a, index2, a, 0));
    refuses(fx_custom(&custom, 2, pair, FX_DTYPE_F32, FX_DIMS(2, 2)));
    refuses(fx_mse(a, b));
    refuses(fx_mae(a, b));
    refuses(fx_crossentropy(a, b));
    refuses(fx_logitcrossentropy(a, b));
    refuses(fx_binarycrossentropy(a, b));
    refuses(fx_logitbinarycrossentropy(a, b));
    refuses(fx_huber_loss(a, b));
    refuses(fx_kldivergence(a, b));
    refuses(fx_call(fx_to(d[1], fx_dense(2, 2)), a));
    refuses(fx_call(fx_to(d[1], fx_conv(FX_DIMS(2, 2), 2, 2)), image));
    refuses(fx_call(fx_to(d[1], fx_batchnorm(2)), a));
    refuses(fx_call(fx_to(d[1], fx_layernorm(FX_DIMS(2))), a));
    {
        FX_STEP;
        refuses(fx_call(fx_to(d[1], fx_batchnorm(2)), a));
    }
    assert_int_equal(refused, 29);
}

static void updates_of_two_devices(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_dense_layer *m = fx_to(d[0], fx_dense(2, 2)), *g = fx_to(d[1], fx_dense(2, 2));
    void *opt = fx_setup(fx_adam(), m);
    fx_array *before = fx_snapshot(m->weight);
    assert_int_equal(fx_update(opt, m, g), FX_STATUS_DEVICE);
    refuses(NULL);
    fx_eval(opt);
    assert_int_equal(fx_update(fx_to(d[1], opt), m, fx_to(d[0], g)), FX_STATUS_DEVICE);
    refuses(NULL);
    assert_true(fx_item(fx_all(fx_eq(before, m->weight))) == 1);
    assert_int_equal(fx_update(opt, m, fx_to(d[0], g)), FX_OK);
    assert_int_equal(fx_error_status(), FX_OK);
}

static void loading_into_a_device(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_dense_layer *m = fx_to(d[1], fx_dense(2, 2, .bias_array = fx_ones(2)));
    fx_dense_layer *src = fx_dense(2, 2, .weight_array = fx_full(3.0, 2, 2), .bias = false);
    assert_int_equal(fx_loadmodel(m, src), FX_OK);
    assert_ptr_equal(fx_array_device(m->weight), d[1]);
    assert_ptr_equal(fx_array_device(m->bias), d[1]); /* zeros, made there */
    assert_true(fx_item(fx_sum(m->weight)) == 12 && fx_item(fx_sum(m->bias)) == 0);
    fx_array *y = fx_call(m, fx_to(d[1], fx_ones(2, 1)));
    assert_true(fx_item(fx_sum(y)) == 12);
    assert_int_equal(fx_error_status(), FX_OK);
}

static void the_device_of_an_object(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_device *ref = fx_device_get("ref", 0);
    fx_dense_layer *m = fx_dense(2, 3);
    assert_ptr_equal(fx_device_of(m), fx_cpu_device());
    assert_ptr_equal(fx_device_of(fx_to(ref, m)), ref);
    assert_ptr_equal(fx_device_of(fx_array_to(ref, m->weight)), ref);
    assert_null(fx_device_of(fx_chain(FX_RELU)));
    assert_int_equal(fx_error_status(), FX_OK);
    assert_null(fx_device_of(fx_tuple(m, fx_to(ref, m))));
    const fx_error e = fx_error_take();
    assert_int_equal(e.status, FX_STATUS_DEVICE);
    assert_non_null(strstr(e.message, "on different devices: CPU and ref"));
    assert_null(fx_device_of(NULL));
    assert_int_equal(fx_error_take().status, FX_STATUS_ARGUMENT);
}

/* A plugin's devices computed what was expected. */
static int launched(void **state)
{
    (void)state;
    const uint64_t *launches = plugin ? fx_backend_proc(plugin, "launches") : NULL;
    return plugin && (!launches || *launches < 10) ? -1 : 0;
}

int main(int argc, char **argv)
{
    plugin = argc > 1 ? argv[1] : NULL;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_device_of_an_object),
        cmocka_unit_test(every_array_is_copied_once),
        cmocka_unit_test(generators_move_once),
        cmocka_unit_test(no_device_is_the_cpu),
        cmocka_unit_test(what_belongs_nowhere_still_does),
        cmocka_unit_test(batches_are_copied_once),
        cmocka_unit_test(literals_stay_literals),
        cmocka_unit_test(gpu_narrows),
        cmocka_unit_test(arrays_and_models_say_where),
        cmocka_unit_test(states_and_loaders_print),
        cmocka_unit_test(devices_print),
        cmocka_unit_test(two_devices_in_one_operation),
        cmocka_unit_test(updates_of_two_devices),
        cmocka_unit_test(loading_into_a_device),
    };
    return cmocka_run_group_tests(tests, setup, launched);
}
