"""The least time that a machine needs for each case of bench_runner, from the case's arithmetic and bytes.

A case is a list of parts that run one after the other. A part of f floating point operations that moves b bytes takes
at least max(f / F, b / B) seconds:

  F   the rate of the run's fastest matrix product 2048³, by cflux or a peer
  B   the run's rate of copying arrays that exceed the caches (copy-25e6) if b is above CACHED, otherwise smaller ones (copy-1e6)

Arithmetic is that of direct products and convolutions: 2 for each multiplication and addition. Fast convolutions
(docs/design/0065-fewer-multiplications.md) need less, so their share can exceed 1. Bytes are those that every program
must move: inputs that are read once, results that are written once, and for Adam the parameter and both moments, read
and written. The functions of elementwise work (exp, tanh) are not counted: where they take longer than memory, the
share is low.
"""
import re

import shapes

CACHED = 32e6  # bytes; parts that move more are compared with copy-25e6
F4 = 4
ADAM = 6 * F4  # bytes a parameter


def product(m, n, k):
    return 2 * m * n * k, F4 * (m * k + k * n + m * n)


def matmul(name):
    return [product(*map(int, re.findall(r"\d+", name.removesuffix("-tn"))))]


def moved(elements, arrays, size=F4):
    return [(0, elements * arrays * size)]


# ---- arrays ----------------------------------------------------------------------------------------------------

BIG, ROWS, NORM, IMAGES = 4096 * 4096, 1000 * 1024, 768 * 8192, 56 * 56 * 64 * 32
ATTENTION = 2 * 512 * 512 * 256 * 8  # two causal products of 512×512 with 256 features, 8 texts
QKVY = 4 * F4 * 256 * 512 * 8
FOUND, TABLE = 128 * 8192, 128 * 30000
ARRAYS = {
    "chain/1e4": moved(1e4, 2), "chain/1e4-gradient": moved(1e4, 4),
    "chain/1e6": moved(1e6, 2), "chain/1e6-gradient": moved(1e6, 4),
    "chain/25e6": moved(25e6, 2), "chain/25e6-gradient": moved(25e6, 4),
    "chain/1e6-float64": moved(1e6, 2, 8),
    "random/normal-16e6": moved(16e6, 1), "random/uniform-16e6": moved(16e6, 1),
    "rows/softmax-1000x1024": moved(ROWS, 2), "rows/logsumexp-1000x1024": moved(ROWS, 1),
    "rows/crossentropy-1000x1024": moved(ROWS, 1), "rows/crossentropy-1000x1024-gradient": moved(ROWS, 2),
    "rows/layernorm-768x8192": moved(NORM, 2), "rows/layernorm-768x8192-gradient": moved(NORM, 4),
    "rows/groupnorm-56x56x64x32-gradient": moved(IMAGES, 4), "rows/batchnorm-56x56x64x32-gradient": moved(IMAGES, 4),
    "attention/256x512-h4-b8": [(ATTENTION, QKVY)],
    "attention/256x512-h4-b8-gradient": [(3 * ATTENTION, 2 * QKVY)],
    "matrix/cumsum-4096-contiguous": moved(BIG, 2), "matrix/cumsum-4096-strided": moved(BIG, 2),
    "matrix/gather-elements-4096": moved(BIG, 4),  # the indices are Int64
    "matrix/gather-elements-4096-gradient": moved(BIG, 6),
    "matrix/pad-4096": moved(BIG, 2), "matrix/bias-4096": moved(BIG, 2), "matrix/transpose-4096": moved(BIG, 2),
    "embedding/128x30000-8192": moved(FOUND, 2),
    "embedding/128x30000-8192-gradient": moved(FOUND, 3) + moved(TABLE, 1),
    "batched/16x16x16-4096": [tuple(4096 * x for x in product(16, 16, 16))],
}
for of in ("sum", "max", "var", "argmax"):
    for axis in ("contiguous", "strided"):
        ARRAYS[f"matrix/{of}-4096-{axis}"] = moved(BIG, 1)


# ---- convolutions ----------------------------------------------------------------------------------------------

def conv(axes, size, kernel, c_in, c_out, batch, stride=1, pad=0, dilation=1, groups=1, transposed=False):
    """Returns the forward pass, as (operations, bytes of x, w and y)."""
    if transposed:
        out = (size - 1) * stride + kernel - 2 * pad
    else:
        out = (size + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1
    positions = min(out, size) ** axes if transposed else out ** axes
    weights = kernel ** axes * (c_in // groups) * c_out
    return 2 * weights * positions * batch, F4 * (size ** axes * c_in * batch + weights + out ** axes * c_out * batch)


def convolution(name):
    """The gradient's case has three convolutions, of twice the bytes: y, and the gradients of x and w."""
    *sizes, options = shapes.CONVOLUTIONS[name.removesuffix("-gradient")]
    flops, size = conv(*sizes, **options)
    return [(3 * flops, 2 * size)] if name.endswith("-gradient") else [(flops, size)]


# ---- networks --------------------------------------------------------------------------------------------------

class Network:
    """layers: (operations, bytes of x, w and y) of one pass through each layer, from the input to the output.
    parameters: those that Adam updates."""

    def __init__(self, layers, parameters, first_gradient=False):
        self.layers, self.parameters, self.first_gradient = layers, parameters, first_gradient

    def forward(self):
        return list(self.layers)

    def training_step(self):
        """Two more products of each layer, but no gradient of the input; then the update."""
        skipped = 0 if self.first_gradient else 1
        return ([(3 * f, 2 * b) for f, b in self.layers[skipped:]] + [(2 * f, 2 * b) for f, b in self.layers[:skipped]]
                + [(0, ADAM * self.parameters)])


def dense_layers(batch, *sizes):
    pairs = list(zip(sizes, sizes[1:]))
    return Network([product(o, batch, i) for i, o in pairs], sum((i + 1) * o for i, o in pairs))


def of_convolutions(convolutions, dense):
    """convolutions: arguments of conv."""
    layers, parameters = [], dense.parameters
    for arguments, pad in convolutions:
        layers.append(conv(*arguments, pad=pad))
        parameters += arguments[2] ** 2 * arguments[3] * arguments[4] + arguments[4]
    return Network(layers + dense.layers, parameters)


def recurrent(gates):
    """50 time steps of 32 rows; the products with x are one."""
    return Network([product(gates * 128, 50 * 32, 64), (50 * product(gates * 128, 32, 128)[0], 0)],
                   gates * 128 * (64 + 128 + 1))


def block_layers(width, length, texts):
    tokens = length * texts
    attention = 2 * length * length * width * texts, 4 * F4 * width * tokens
    return [product(3 * width, tokens, width), attention, product(width, tokens, width),
            product(4 * width, tokens, width), product(width, tokens, 4 * width)]


def gpt(width, blocks, length, texts, vocabulary=50257):
    layers = block_layers(width, length, texts) * blocks + [product(vocabulary, length * texts, width)]
    return Network(layers, 12 * width * width * blocks + vocabulary * width, first_gradient=True)


NETWORKS = {
    "mlp-784-256-10-b64": dense_layers(64, 784, 256, 10),
    "mlp-784-256-10-b1024": dense_layers(1024, 784, 256, 10),
    "lenet-b64": of_convolutions([((2, 28, 5, 1, 6, 64), 0), ((2, 12, 5, 6, 16, 64), 0)],
                                 dense_layers(64, 256, 120, 84, 10)),
    "vgg-bn-b64": of_convolutions([((2, 32, 3, 3, 32, 64), 1), ((2, 32, 3, 32, 32, 64), 1), ((2, 16, 3, 32, 64, 64), 1),
                                   ((2, 16, 3, 64, 64, 64), 1), ((2, 8, 3, 64, 128, 64), 1),
                                   ((2, 8, 3, 128, 128, 64), 1)], dense_layers(64, 2048, 256, 10)),
    "lstm-64-128-seq50-b32": recurrent(4),
    "gru-64-128-seq50-b32": recurrent(3),
    "block-256-h4-seq128-b8": Network(block_layers(256, 128, 8), 12 * 256 * 256),
    "gpt2-4x256-seq64-b4": gpt(256, 4, 64, 4),
    "gpt2-124m-seq64-b4": gpt(768, 12, 64, 4),
}


# ---- the limits ------------------------------------------------------------------------------------------------

def parts_of(case):
    """Returns the parts of a case as a list of (operations, bytes), or None for cases without a limit."""
    group, _, name = case.partition("/")
    if case in ARRAYS:
        return ARRAYS[case]
    if group == "matmul":
        return matmul(name)
    if group == "conv":
        return convolution(name)
    if group in ("train", "record", "forward") and name in NETWORKS:
        return NETWORKS[name].forward() if group == "forward" else NETWORKS[name].training_step()
    return None


def rates(ours, peers):
    """Returns (operations per µs, bytes per µs within the caches, beyond them) of a run, or None if it has not
    measured them. ours, and each of peers: rows by case."""
    products = [rows["matmul/2048x2048x2048"]["median"] for rows in (ours, *peers) if "matmul/2048x2048x2048" in rows]
    if not products or "limit/copy-25e6" not in ours or "limit/copy-1e6" not in ours:
        return None
    return (2 * 2048 ** 3 / min(products), 8e6 / ours["limit/copy-1e6"]["median"],
            200e6 / ours["limit/copy-25e6"]["median"])


def limit(case, of_run):
    """Returns (the least time in µs, whether arithmetic takes the larger part of it), or None."""
    parts = parts_of(case)
    if parts is None:
        return None
    flops, near, far = of_run
    times = [(f / flops, b / (far if b > CACHED else near)) for f, b in parts]
    arithmetic = sum(f for f, b in times if f > b)
    total = sum(max(f, b) for f, b in times)
    return total, 2 * arithmetic > total
