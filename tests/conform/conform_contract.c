/* conform_contract.c: rows of matrix products, convolution, pooling and custom operations.
 *
 * Sizes are small, odd and prime, so that every edge of a blocked kernel is tested; --full also has
 * sizes one above and one below a multiple of the block. Parameters of convolutions: spatial axes,
 * stride, pad before, pad after, dilation, groups, flipped, extra output size.
 */
#include "conform.h"

#include "primitives.h"
#include "option_struct.h"

static fx_array *b_matmul(fx_array *const *x, const int64_t *p)
{
    return fx_matmul(p[0] ? fx_transpose(x[0]) : x[0], p[1] ? fx_transpose(x[1]) : x[1]);
}
static fx_array *b_batched(fx_array *const *x, const int64_t *p)
{
    return fx_batched_mul(p[0] ? fx_transpose(x[0]) : x[0], p[1] ? fx_transpose(x[1]) : x[1]);
}
/* act(W·x .+ b): a Dense layer. */
static fx_array *b_dense(fx_array *const *x, const int64_t *p)
{
    (void)p;
    return fx_tanh(fx_add(fx_matmul(x[0], x[1]), x[2]));
}

static fx_convolve_args conv_args(fx_array *const *x, const int64_t *p)
{
    FXI_DEFAULT_OPTIONS(fx_convolve_args, FXI_CONVOLVE_ARGS, a);
    a.x = x[0], a.w = x[1], a.flipped = p[6] != 0;
    a.groups = p[5] ? p[5] : 1;
    const int64_t spatial = p[0];
    for (int64_t d = 0; d < spatial; d++) {
        a.stride.v[d] = p[1] ? p[1] : 1;
        a.dilation.v[d] = p[4] ? p[4] : 1;
        a.pad.v[2 * d] = p[2];
        a.pad.v[2 * d + 1] = p[3];
    }
    a.stride.n = a.dilation.n = spatial;
    a.pad.n = 2 * spatial;
    return a;
}
static fx_array *b_convolve(fx_array *const *x, const int64_t *p)
{
    const fx_convolve_args a = conv_args(x, p);
    return fxi_convolve(&a);
}
static fx_array *b_convolve_transposed(fx_array *const *x, const int64_t *p)
{
    fx_convolve_args a = conv_args(x, p);
    if (p[7])
        a.outpad = FX_DIMS(p[7]);
    return fxi_convolve_transposed(&a);
}

/* Parameters: spatial axes, window, stride (0: the window), pad before, pad after, dilation,
 * exclude. */
static fx_pool_args pool_args(fx_array *const *x, const int64_t *p)
{
    FXI_DEFAULT_OPTIONS(fx_pool_args, FXI_POOL_ARGS, a);
    a.x = x[0], a.exclude_pad = p[6] != 0;
    for (int64_t d = 0; d < p[0]; d++) {
        a.window.v[d] = p[1];
        a.stride.v[d] = p[2];
        a.pad.v[2 * d] = p[3];
        a.pad.v[2 * d + 1] = p[4];
        a.dilation.v[d] = p[5] ? p[5] : 1;
    }
    a.window.n = p[0];
    a.stride.n = p[2] ? p[0] : 0;
    a.pad.n = 2 * p[0];
    a.dilation.n = p[0];
    return a;
}
static fx_array *b_pool_max(fx_array *const *x, const int64_t *p)
{
    const fx_pool_args a = pool_args(x, p);
    return fxi_pool_max(&a);
}
/* Squared, so that the gradient of its gradient picks elements by the windows of x. */
static fx_array *b_pool_squared(fx_array *const *x, const int64_t *p)
{
    return fx_square(b_pool_max(x, p));
}
static fx_array *b_pool_mean(fx_array *const *x, const int64_t *p)
{
    const fx_pool_args a = pool_args(x, p);
    return fxi_pool_mean(&a);
}
static fx_array *b_pool_lpnorm(fx_array *const *x, const int64_t *p)
{
    fx_pool_args a = pool_args(x, p);
    a.p = 3;
    return fxi_pool_lpnorm(&a);
}

/* A custom operation: y = x0·x1 + 1 of equal sizes, in Float32 or Float64. */
static fx_status custom_forward(const fx_custom_op *op, int n, const fx_custom_operand *in,
                                const fx_custom_operand *out)
{
    (void)op;
    int64_t length = 1;
    if (n != 2)
        return FX_STATUS_ARGUMENT;
    for (int k = 0; k < in[0].ndims; k++)
        length *= in[0].sizes[k];
    const float *a = in[0].data, *b = in[1].data;
    const double *c = in[0].data, *d = in[1].data;
    if (in[0].dtype != in[1].dtype || (in[0].dtype != FX_DTYPE_F32 && in[0].dtype != FX_DTYPE_F64))
        return FX_STATUS_DTYPE;
    for (int64_t i = 0; i < length; i++)
        if (in[0].dtype == FX_DTYPE_F32)
            ((float *)out->data)[i] = a[i] * b[i] + 1;
        else
            ((double *)out->data)[i] = c[i] * d[i] + 1;
    return FX_OK;
}
static void custom_gradient(const fx_custom_op *op, int n, fx_array *const *in, fx_array *out,
                            fx_array *gy, fx_array **gx)
{
    (void)op, (void)n, (void)out;
    gx[0] = fx_mul(gy, in[1]);
    gx[1] = fx_mul(gy, in[0]);
}
static fx_array *b_custom(fx_array *const *x, const int64_t *p)
{
    static const fx_custom_op op = {sizeof(fx_custom_op), "muladd1", custom_forward,
                                    custom_gradient, NULL};
    (void)p;
    fx_dims dims = {.n = fx_ndims(x[0])};
    for (int k = 0; k < dims.n; k++)
        dims.v[k] = fx_size(x[0], k);
    return fx_custom(&op, 2, x, fx_eltype(x[0]), dims);
}

/* A collective operation of two members; the other member has the same x. */
static fx_status run_with_twin(const fx_communicator *self, const fx_step *step, const void *in,
                               void *out, char *why, size_t size)
{
    (void)self, (void)why, (void)size;
    const int64_t n = fx_tensor_length(&step->out);
    if (step->out.dtype != FX_DTYPE_F32 && step->out.dtype != FX_DTYPE_F64)
        return FX_STATUS_DTYPE;
    for (int64_t i = 0; i < n; i++)
        if (step->out.dtype == FX_DTYPE_F32)
            ((float *)out)[i] = 2 * ((const float *)in)[i];
        else
            ((double *)out)[i] = 2 * ((const double *)in)[i];
    return FX_OK;
}
static fx_array *b_collective(fx_array *const *x, const int64_t *p)
{
    static const fx_communicator twins = {
        .fxi_size = sizeof twins, .name = "twins", .size = 2, .run = run_with_twin};
    const fx_collective w = {&twins, FX_COLLECTIVE_ALL_REDUCE, FX_REDUCE_SUM, 0, 0};
    (void)p;
    return fxi_collective(&w, x[0]);
}

static const char *const matmuls[] = {"m5n7k3=5x3 3x7",
                                      "m17n5k129=17x129 129x5",
                                      "m17n5k129.nt=17x129 5x129:0,1",
                                      "m17n5k129.tn=129x17 129x5:1,0",
                                      "m17n5k129.tt=129x17 5x129:1,1",
                                      "vector=5x7 7",
                                      "m1n1k1=1x1 1x1",
                                      "m1n6k4=1x4 4x6",
                                      "m6n1k4=6x4 4x1",
                                      "m0n5k3=0x3 3x5",
                                      "m3n0k5=3x5 5x0",
                                      "m3n5k0=3x0 0x5",
                                      "outer=6x1 1x5",
                                      "+m64n64k64=64x64 64x64",
                                      "+m63n65k31=63x31 31x65",
                                      "+m65n33k257=65x257 257x33",
                                      "+m65n33k257.nt=65x257 33x257:0,1",
                                      "m72n80k88=72x88 88x80",
                                      "+m136n136k72.nt=136x72 136x72:0,1",
                                      "+m136n129k104.tn=104x136 104x129:1,0",
                                      "+m2200n130k3=2200x3 3x130",
                                      "+m248n504k72=248x72 72x504", /* 2×2 of the largest tiles */
                                      NULL};
static const char *const batched[] = {
    "same=5x3x4 3x7x4",    "left=5x3 3x7x4",        "right=5x3x4 3x7",     "one=5x3x1 3x7x4",
    "two=2x3x2x3 3x4x2x3", "cross=2x3x2x1 3x4x1x3", "nt=5x3x4 7x3x4:0,1",  "tn=3x5x4 3x7x4:1,0",
    "none=5x3x0 3x7x0",    "k0=5x0x2 0x7x2",        "+many=7x5x17 5x3x17", NULL};
static const char *const denses[] = {"5x7 7x4 5", "17x13 13x1 17", "3x0 0x4 3", "+64x33 33x9 64",
                                     NULL};
static const char *const convs[] = {"1d=9x2x3 3x2x4:1",
                                    "2d=7x6x2x3 3x2x2x4:2",
                                    "3d=5x4x4x2x1 2x2x3x2x3:3",
                                    "flipped=7x6x2x2 3x3x2x3:2,1,0,0,1,1,1",
                                    "stride=9x8x2x1 3x3x2x3:2,2,1,1",
                                    "pad=5x5x1x2 3x3x1x2:2,1,2,1",
                                    "uneven=6x5x2x1 2x3x2x2:2,2,0,1",
                                    "dilated=9x9x1x2 3x3x1x2:2,1,2,2,2",
                                    "groups=6x6x4x2 3x3x2x6:2,1,1,1,1,2",
                                    "depthwise=6x5x3x1 3x3x1x3:2,1,1,1,1,3",
                                    "1x1=4x5x3x2 1x1x3x4:2",
                                    "whole=4x3x2x2 4x3x2x5:2",
                                    "batch0=5x5x2x0 3x3x2x2:2",
                                    "strided1d=17x3x2 5x3x2:1,3,2,2",
                                    "+all=11x10x4x2 3x2x2x4:2,2,1,2,2,2,1",
                                    "+wide=16x16x8x2 3x3x8x16:2,1,1,1",
                                    "+channels=16x16x32x1 3x3x32x34:2,1,1,1",
                                    "+3dpad=5x6x4x2x2 3x3x3x2x2:3,2,1,1,1,1,1",
                                    NULL};
/* w: kernel × out/groups × in. */
static const char *const transposed[] = {"1d=5x2x3 3x4x2:1",
                                         "2d=4x5x2x2 3x2x3x2:2",
                                         "stride=4x3x2x1 3x3x3x2:2,2",
                                         "pad=5x4x2x2 3x3x2x2:2,2,1,1",
                                         "outpad=4x4x2x1 3x3x2x2:2,2,1,1,1,1,0,1",
                                         "dilated=4x4x1x2 3x3x2x1:2,1,0,0,2",
                                         "groups=4x4x4x1 3x3x3x4:2,1,1,1,1,2",
                                         "flipped=4x5x2x1 3x2x3x2:2,2,0,0,1,1,1",
                                         "3d=3x3x2x2x1 2x2x2x2x2:3,2",
                                         "+uneven=5x5x2x2 4x4x3x2:2,3,1,2",
                                         "+channels=16x16x32x1 3x3x34x32:2,1,1,1",
                                         NULL};
static const char *const pools[] = {"1d=9x2x3:1,3",
                                    "2d=6x8x2x3:2,2",
                                    "3d=4x6x4x2x1:3,2",
                                    "overlap=7x7x2x2:2,3,2",
                                    "pad=6x5x2x2:2,3,2,1,1",
                                    "uneven=7x6x1x2:2,2,2,0,1",
                                    "one=4x3x2x1:2,1,1",
                                    "batch0=6x6x2x0:2,2",
                                    "rest=7x5x2x1:2,2",
                                    "+stride1=8x8x3x2:2,3,1,1,1",
                                    NULL};
static const char *const max_pools[] = {"1d=9x2x3:1,3",
                                        "2d=6x8x2x3:2,2",
                                        "3d=4x6x4x2x1:3,2",
                                        "overlap=7x7x2x2:2,3,2",
                                        "pad=6x5x2x2:2,3,2,1,1",
                                        "uneven=7x6x1x2:2,2,2,0,1",
                                        "one=4x3x2x1:2,1,1",
                                        "batch0=6x6x2x0:2,2",
                                        "rest=7x5x2x1:2,2",
                                        "dilated=9x8x2x1:2,3,2,1,1,2",
                                        "+stride1=8x8x3x2:2,3,1,1,1",
                                        NULL};
static const char *const inside_pools[] = {"pad=6x5x2x2:2,3,2,1,1,0,1",
                                           "uneven=7x6x1x2:2,2,2,0,1,0,1",
                                           "nopad=6x6x2x1:2,2,0,0,0,0,1", NULL};
static const char *const collectives[] = {"5x7", "s", "0x3", "+257", NULL};
static const char *const customs[] = {"5x7 5x7", "s s", "0x3 0x3", "+257 257", NULL};

#define AB                                                                                         \
    {                                                                                              \
        CF_ANY, CF_ANY                                                                             \
    }
#define CONV(name, shapes, perf)                                                                   \
    {                                                                                              \
#name, NULL, b_##name, shapes, perf, 2, AB, CF_REAL, CF_NMSE, CF_NO_SPECIAL                \
    }

const cf_row cf_contract_rows[] = {
    {"matmul", NULL, b_matmul, matmuls, "512x512 512x512", 2, AB, CF_HALF | CF_INT, CF_NMSE, 0},
    {"batched_mul", NULL, b_batched, batched, "64x64x64 64x64x64", 2, AB, CF_REAL | CF_T(I32),
     CF_NMSE, 0},
    {"dense",
     "fx_matmul",
     b_dense,
     denses,
     "256x784 784x64 256",
     3,
     {CF_ANY, CF_UNIT, CF_ANY},
     CF_REAL,
     CF_NMSE,
     0},
    CONV(convolve, convs, "32x32x16x16 3x3x16x32:2,1,1,1"),
    CONV(convolve_transposed, transposed, "16x16x16x16 3x3x16x16:2,2"),
    {"pool_max",
     NULL,
     b_pool_max,
     max_pools,
     "64x64x16x16:2,2",
     1,
     {CF_ANY},
     CF_REAL,
     CF_EXACT,
     CF_NO_SECOND},
    {"pool_max.ties",
     "fx_pool_max",
     b_pool_max,
     max_pools,
     NULL,
     1,
     {CF_TIES},
     CF_REAL,
     CF_EXACT,
     CF_NO_SECOND | CF_NO_DIFFERENCES},
    {"pool_max.squared",
     "fx_pool_max",
     b_pool_squared,
     max_pools,
     NULL,
     1,
     {CF_ANY},
     CF_REAL,
     CF_POINT,
     0},
    {"pool_mean", NULL, b_pool_mean, pools, "64x64x16x16:2,2", 1, {CF_ANY}, CF_REAL, CF_NMSE, 0},
    {"pool_lpnorm",
     NULL,
     b_pool_lpnorm,
     pools,
     NULL,
     1,
     {CF_NONZERO},
     CF_REAL,
     CF_NMSE,
     CF_NO_SECOND | CF_NO_SPECIAL},
    {"pool_mean.inside",
     "fx_pool_mean",
     b_pool_mean,
     inside_pools,
     NULL,
     1,
     {CF_ANY},
     CF_REAL,
     CF_NMSE,
     0},
    {"custom", NULL, b_custom, customs, NULL, 2, AB, CF_REAL, CF_POINT, CF_OWN_TYPES},
    {"collective",
     "collective",
     b_collective,
     collectives,
     NULL,
     1,
     {CF_ANY},
     CF_REAL,
     CF_POINT,
     CF_OWN_TYPES},
    {0},
};

const cf_row *const cf_tables[] = {cf_elementwise_rows, cf_shape_rows,     cf_contract_rows,
                                   cf_resample_rows,    cf_attention_rows, NULL};
