/* layer_cases.h: rows of at least one test case for every layer of the library: the layer in Flux's
 * notation and its inputs. test_every_layer.c runs every check over every row, and fails if a layer
 * has none. */
#ifndef CFLUX_TEST_LAYER_CASES_H
#define CFLUX_TEST_LAYER_CASES_H

#include <stdbool.h>
#include <stdint.h>

/* An input: normal random numbers, or with `labels` random integers from 0 to labels − 1. */
typedef struct layer_input {
    int ndims;
    int64_t sizes[5], labels;
} layer_input;

#define SIZES(...)                                                                                 \
    {                                                                                              \
        .ndims = sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), .sizes = { __VA_ARGS__ }      \
    }
#define LABELS(n, ...)                                                                             \
    {                                                                                              \
        .ndims = sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), .sizes = {__VA_ARGS__},       \
        .labels = (n)                                                                              \
    }

typedef struct layer_case {
    const char *text; /* in the notation */
    layer_input inputs[3];
    const char *printed; /* as printed, if that differs from the text */
    bool no_bson;        /* Flux has no such layer, so its files cannot contain it */
} layer_case;

/* clang-format off */
static const layer_case layer_cases[] = {
    {.text = "Dense(4 => 3, tanh)", .inputs = {SIZES(4, 5)}},
    {.text = "Dense(4 => 3; bias=false)", .inputs = {SIZES(4, 2, 3)}},
    {.text = "Chain(Dense(3 => 4, sigmoid), Dense(4 => 2), softmax)", .inputs = {SIZES(3, 5)},
     .printed = "Chain(Dense(3 => 4, σ), Dense(4 => 2), softmax)"},
    {.text = "Chain(encoder = Dense(3 => 4, gelu), decoder = Dense(4 => 3))", .inputs = {SIZES(3, 5)},
     .printed = "Chain(encoder = Dense(3 => 4, gelu_tanh), decoder = Dense(4 => 3))"},
    {.text = "Conv((3,), 2 => 4, tanh)", .inputs = {SIZES(7, 2, 3)}},
    {.text = "Conv((3, 2), 2 => 4, pad=1, stride=2)", .inputs = {SIZES(7, 6, 2, 3)}},
    {.text = "Conv((2, 2, 2), 4 => 4, groups=2, bias=false)", .inputs = {SIZES(3, 4, 3, 4, 2)}},
    {.text = "CrossCor((3,), 2 => 4, tanh)", .inputs = {SIZES(7, 2, 3)}},
    {.text = "CrossCor((3, 2), 2 => 4, pad=(1, 0, 2, 1), stride=2, dilation=2, bias=false)",
     .inputs = {SIZES(7, 6, 2, 3)}},
    {.text = "ConvTranspose((3,), 2 => 4, tanh, pad=(1, 0), stride=2)", .inputs = {SIZES(5, 2, 3)}},
    {.text = "ConvTranspose((3, 2), 4 => 2, pad=1, stride=(2, 3), groups=2, outpad=(1, 0))",
     .inputs = {SIZES(3, 4, 4, 2)}},
    {.text = "ConvTranspose((2, 2, 2), 2 => 2, dilation=2, bias=false)", .inputs = {SIZES(3, 2, 2, 2, 2)}},
    {.text = "DepthwiseConv((2, 3), 2 => 4, relu)", .inputs = {SIZES(4, 5, 2, 2)},
     .printed = "Conv((2, 3), 2 => 4, relu, groups=2)"},
    {.text = "MaxPool((2, 2))", .inputs = {SIZES(6, 6, 2, 3)}},
    {.text = "MeanPool((3,), pad=1, stride=2)", .inputs = {SIZES(9, 2, 3)}},
    {.text = "GlobalMaxPool()", .inputs = {SIZES(4, 3, 2, 3)}},
    {.text = "GlobalMeanPool()", .inputs = {SIZES(5, 2, 3)}},
    {.text = "AdaptiveMaxPool((3, 2))", .inputs = {SIZES(7, 6, 2, 3)}},
    {.text = "AdaptiveMeanPool((3,))", .inputs = {SIZES(8, 2, 3)}},
    {.text = "LPNormPool((2, 2))", .inputs = {SIZES(4, 6, 2, 2)}, .no_bson = true},
    {.text = "LPNormPool((3,), p=3.0, pad=1, stride=2)", .inputs = {SIZES(7, 2, 2)}, .no_bson = true},
    {.text = "Upsample(:nearest, scale = (2, 3))", .inputs = {SIZES(3, 2, 2, 2)}},
    {.text = "Upsample(3, :bilinear)", .inputs = {SIZES(3, 2, 2, 2)},
     .printed = "Upsample(:bilinear, scale = 3)"},
    {.text = "Upsample(:trilinear, size = (3, 5, 4))", .inputs = {SIZES(2, 3, 2, 1, 2)}},
    {.text = "PixelShuffle(2)", .inputs = {SIZES(2, 3, 8, 2)}},
    {.text = "BatchNorm(3, tanh)", .inputs = {SIZES(3, 6)}},
    {.text = "BatchNorm(3, affine=false)", .inputs = {SIZES(4, 3, 3, 2)}},
    {.text = "LayerNorm(4)", .inputs = {SIZES(4, 5)}},
    {.text = "LayerNorm(4, 3, affine=false)", .inputs = {SIZES(4, 3, 5)}},
    {.text = "Dropout(0.4)", .inputs = {SIZES(5, 6)}},
    {.text = "Parallel(+, Dense(4 => 3), Dense(4 => 3, tanh))", .inputs = {SIZES(4, 5)}},
    {.text = "Parallel(vcat, a = Dense(4 => 3), b = Dense(2 => 3))", .inputs = {SIZES(4, 5), SIZES(2, 5)}},
    {.text = "Parallel(cat(dims=3), Conv((2, 2), 1 => 2), MaxPool((2, 2), stride=1))",
     .inputs = {SIZES(4, 3, 1, 2)}, .no_bson = true},
    {.text = "PairwiseFusion(.*, Dense(3 => 4), tanh)", .inputs = {SIZES(3, 5), SIZES(4, 5)}},
    {.text = "Maxout(Dense(3 => 4), Dense(3 => 4), Dense(3 => 4))", .inputs = {SIZES(3, 5)}},
    {.text = "SkipConnection(Dense(4 => 4, tanh), +)", .inputs = {SIZES(4, 5)}},
    {.text = "SkipConnection(Dense(4 => 2), Bilinear((2, 4) => 3))", .inputs = {SIZES(4, 5)}},
    {.text = "Embedding(5 => 3)", .inputs = {LABELS(5, 4, 2)}},
    {.text = "Embedding(5 => 3, padding_idx=2)", .inputs = {LABELS(5, 7)}},
    {.text = "EmbeddingBag(5 => 3)", .inputs = {LABELS(5, 4, 2)}},
    {.text = "EmbeddingBag(5 => 3, sum)", .inputs = {LABELS(5, 6)}},
    {.text = "EmbeddingBag(5 => 3, maximum)", .inputs = {LABELS(5, 3, 2, 2)}},
    {.text = "WeightNorm(Dense(4 => 3, tanh), :weight; dims=2)", .inputs = {SIZES(4, 5)}},
    {.text = "WeightNorm(Conv((3,), 2 => 3), :weight; dims=(1, 2))", .inputs = {SIZES(6, 2, 2)}},
    {.text = "WeightNorm(Scale(4), :scale)", .inputs = {SIZES(4, 5)},
     .printed = "WeightNorm(Scale(4), :scale; dims=1)"},
    {.text = "Scale(4, tanh)", .inputs = {SIZES(4, 5)}},
    {.text = "Scale(1, 3; bias=false)", .inputs = {SIZES(2, 3, 4)}},
    {.text = "Bilinear((3, 2) => 4, tanh)", .inputs = {SIZES(3, 5), SIZES(2, 5)}},
    {.text = "Bilinear(3 => 2; bias=false)", .inputs = {SIZES(3, 2, 2)}},
    {.text = "InstanceNorm(3, tanh, affine=true)", .inputs = {SIZES(4, 3, 2)}},
    {.text = "InstanceNorm(3)", .inputs = {SIZES(2, 4, 3, 2)},
     .printed = "InstanceNorm(3, affine=false)"},
    {.text = "InstanceNorm(3, affine=true, track_stats=true)", .inputs = {SIZES(4, 3, 2)}},
    {.text = "GroupNorm(6, 3, relu)", .inputs = {SIZES(3, 2, 6, 2)}},
    {.text = "GroupNorm(4, 2, affine=false)", .inputs = {SIZES(4, 3)}},
    {.text = "RMSNorm(4, tanh)", .inputs = {SIZES(4, 5)}, .no_bson = true},
    {.text = "RMSNorm(4, 3, affine=false, eps=0.01)", .inputs = {SIZES(4, 3, 2)}, .no_bson = true},
    {.text = "AlphaDropout(0.4)", .inputs = {SIZES(5, 6)}},
    {.text = "MultiHeadAttention(4; nheads=2)", .inputs = {SIZES(4, 5, 2)}},
    {.text = "MultiHeadAttention(4 => 6 => 3; nheads=3, bias=true, dropout_prob=0.3)",
     .inputs = {SIZES(4, 3, 2), SIZES(4, 5, 2)}},
    {.text = "MultiHeadAttention((4, 3, 2) => (6, 4) => 5; nheads=2)",
     .inputs = {SIZES(4, 3, 2), SIZES(3, 5, 2), SIZES(2, 5, 2)}},
    {.text = "TransformerBlock(4; nheads=2, hidden=6, dropout_prob=0.0)", .inputs = {SIZES(4, 3, 2)},
     .no_bson = true},
    {.text = "TransformerBlock(4, tanh; nheads=1, norm_first=true, causal=true)", .inputs = {SIZES(4, 3)},
     .no_bson = true},
    {.text = "RNNCell(3 => 4, tanh)", .inputs = {SIZES(3, 5), SIZES(4, 5)}},
    {.text = "RNNCell(3 => 4, gelu; bias=false)", .inputs = {SIZES(3)},
     .printed = "RNNCell(3 => 4, gelu_tanh; bias=false)"},
    {.text = "LSTMCell(3 => 4)", .inputs = {SIZES(3, 5)}},
    {.text = "GRUCell(3 => 4)", .inputs = {SIZES(3, 5), SIZES(4)}},
    {.text = "GRUCell(3 => 4; hidden_bias=true)", .inputs = {SIZES(3, 5), SIZES(4)}, .no_bson = true},
    {.text = "GRUv3Cell(3 => 4)", .inputs = {SIZES(3, 5), SIZES(4, 5)}},
    {.text = "RNN(3 => 4, relu)", .inputs = {SIZES(3, 5, 2)}},
    {.text = "LSTM(3 => 4)", .inputs = {SIZES(3, 5, 2)}},
    {.text = "LSTM(3 => 4; return_state=true, bias=false)", .inputs = {SIZES(3, 4)}},
    {.text = "GRU(3 => 4)", .inputs = {SIZES(3, 5, 2), SIZES(4, 2)}},
    {.text = "GRU(3 => 4; return_state=true)", .inputs = {SIZES(3, 3)}},
    {.text = "GRU(3 => 4; hidden_bias=true)", .inputs = {SIZES(3, 5, 2)}, .no_bson = true},
    {.text = "GRUv3(3 => 4)", .inputs = {SIZES(3, 4, 2)}},
    {.text = "Recurrence(RNNCell(3 => 4, tanh); return_state=true)", .inputs = {SIZES(3, 4, 2)}},
    {.text = "Chain(Recurrence(LSTMCell(3 => 4)), LSTM(4 => 2))", .inputs = {SIZES(3, 4, 2)}},
    {.text = "Bidirectional(LSTM(3 => 4), GRU(3 => 2))", .inputs = {SIZES(3, 5, 2)}, .no_bson = true},
    {.text = "Bidirectional(RNN(3 => 2, tanh), Recurrence(RNNCell(3 => 4, tanh)); return_state=true)",
     .inputs = {SIZES(3, 4)}, .no_bson = true},
};
/* clang-format on */

#endif
