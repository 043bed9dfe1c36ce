/* networks.h: networks that tests and benchmarks share. The figures of docs/performance.md and of
 * bench/results are those of these sizes.
 */
#ifndef CFLUX_TEST_NETWORKS_H
#define CFLUX_TEST_NETWORKS_H

#include <cflux.h>

static inline fx_chain_layer *curve_net(void)
{
    return fx_chain(fx_dense(1, 256, FX_TANH), fx_dense(256, 1));
}

static inline fx_chain_layer *digit_net(void)
{
    return fx_chain(fx_dense(784, 256, FX_RELU), fx_dense(256, 10));
}

static inline fx_chain_layer *lenet(void)
{
    return fx_chain(fx_conv(FX_DIMS(5, 5), 1, 6, FX_RELU), fx_maxpool(FX_DIMS(2, 2)),
                    fx_conv(FX_DIMS(5, 5), 6, 16, FX_RELU), fx_maxpool(FX_DIMS(2, 2)), FX_FLATTEN,
                    fx_dense(256, 120, FX_RELU), fx_dense(120, 84, FX_RELU), fx_dense(84, 10));
}

/* Two convolutions, each followed by batch normalisation, and a pool. */
static inline fx_chain_layer *vgg_block(int64_t in, int64_t out)
{
    return fx_chain(fx_conv(FX_DIMS(3, 3), in, out, .pad = FX_DIMS(1, 1)),
                    fx_batchnorm(out, FX_RELU),
                    fx_conv(FX_DIMS(3, 3), out, out, .pad = FX_DIMS(1, 1)),
                    fx_batchnorm(out, FX_RELU), fx_maxpool(FX_DIMS(2, 2)));
}

static inline fx_chain_layer *vgg(void)
{
    return fx_chain(vgg_block(3, 32), vgg_block(32, 64), vgg_block(64, 128), FX_FLATTEN,
                    fx_dense(2048, 256, FX_RELU), fx_dense(256, 10));
}

#endif
