/* Whole training steps give the same bits for any number of threads, with every instruction set:
 * parameters, running statistics and losses after some steps of Adam. Sizes are large enough that
 * threads take part; and again with threads for everything, however small. ctest: threads */
#include "cpu_check.h"
#include "cpu_parallel.h"

#include <cflux.h>

static fx_chain_layer *xor_net(void)
{
    return fx_chain(fx_dense(2, 3, FX_TANH), fx_batchnorm(3), fx_dense(3, 2));
}

static fx_chain_layer *lenet(void)
{
    return fx_chain(fx_conv(FX_DIMS(5, 5), 1, 6, FX_RELU), fx_maxpool(FX_DIMS(2, 2)),
                    fx_conv(FX_DIMS(5, 5), 6, 16, FX_RELU), fx_maxpool(FX_DIMS(2, 2)), FX_FLATTEN,
                    fx_dense(256, 120, FX_RELU), fx_dense(120, 10));
}

/* Small images, strides, groups, dropout. */
static fx_chain_layer *vgg(void)
{
    return fx_chain(fx_conv(FX_DIMS(3, 3), 3, 32, .pad = FX_DIMS(1, 1)), fx_batchnorm(32, FX_RELU),
                    fx_maxpool(FX_DIMS(2, 2)),
                    fx_conv(FX_DIMS(3, 3), 32, 48, .pad = FX_DIMS(1, 1), .stride = FX_DIMS(2, 2)),
                    fx_batchnorm(48, FX_RELU),
                    fx_conv(FX_DIMS(3, 3), 48, 48, .pad = FX_DIMS(1, 1), .groups = 48),
                    fx_conv(FX_DIMS(1, 1), 48, 64, FX_RELU), fx_dropout(0.3),
                    fx_meanpool(FX_DIMS(2, 2)), FX_FLATTEN, fx_dense(64 * 4, 10));
}

typedef struct network {
    const char *name;
    fx_chain_layer *(*make)(void);
    int nd;
    int64_t size[4], classes;
} network;
static const network networks[] = {{"xor", xor_net, 2, {2, 64}, 2},
                                   {"lenet", lenet, 4, {28, 28, 1, 40}, 10},
                                   {"vgg", vgg, 4, {16, 16, 3, 24}, 10}};

enum { STEPS = 2, BYTES = 1 << 20 };
typedef struct bits {
    size_t used;
    char data[BYTES];
} bits;

static void keep_bits(fx_array *x, const char *path, bool trainable, void *user)
{
    bits *b = user;
    (void)path, (void)trainable;
    const size_t n = (size_t)fx_length(x) * fx_dtype_size(fx_eltype(x));
    assert_true(b->used + n <= BYTES);
    assert_int_equal(fx_read_into(x, b->data + b->used, n), FX_OK);
    b->used += n;
}

static void train(const network *net, int threads, bits *out)
{
    FX_SCOPE;
    assert_int_equal(fx_set_num_threads(threads), FX_OK);
    fx_seed(3);
    out->used = 0;
    fx_chain_layer *model = net->make();
    void *opt = fx_setup(fx_adam(.eta = 1e-3), model);
    fx_array *x = fxi_randn(FX_DTYPE_F32, net->nd, net->size);
    fx_array *pick = fx_floor(fx_mul(fx_rand(net->size[net->nd - 1]), net->classes));
    fx_array *y = fx_onehotbatch(fx_cast(pick, FX_DTYPE_I64), net->classes);
    assert_int_equal(fx_eval(fx_tuple(x, y, model)), FX_OK);
    for (int k = 0; k < STEPS; k++) {
        FX_STEP;
        fx_array *loss = fx_logitcrossentropy(fx_call(model, x), y);
        fx_want(loss);
        assert_int_equal(fx_update(opt, model, fx_gradient(loss, model)), FX_OK);
        keep_bits(loss, "loss", false, out);
    }
    fx_visit(model, keep_bits, out);
}

static void training_gives_the_same_bits(void **state)
{
    (void)state;
    static const int counts[] = {2, 3, 5};
    static bits one, many;
    for (int from = 0; from < 2; from++)
        for (size_t n = 0; n < sizeof networks / sizeof *networks; n++) {
            fxi_cpu_parts_from(from ? 0 : FXI_PARTS_FROM);
            train(&networks[n], 1, &one);
            for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
                train(&networks[n], counts[k], &many);
                assert_int_equal(many.used, one.used);
                if (memcmp(many.data, one.data, one.used) != 0)
                    fail_msg("%s: %d threads give other bits than one", networks[n].name,
                             counts[k]);
            }
            assert_true(one.used > 30 * sizeof(float));
        }
    fxi_cpu_parts_from(FXI_PARTS_FROM);
    fx_set_num_threads(0);
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(training_gives_the_same_bits)};

RUN_ON_EVERY_ISA(tests)
