#!/usr/bin/env python3
"""Measures the cases of bench_runner with JAX on the CPU (peer.py describes options, rows and limits).

The one variant is the best program of a user of JAX: everything is one jitted function, and a training step donates
the buffers of parameters and moments. Adam is written by hand. A body returns when its results are computed. Images have
their channels last. The process may use as many cores as --threads says: XLA starts one thread per core.
"""
import functools
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import peer  # noqa: E402
import shapes  # noqa: E402

os.environ.setdefault("JAX_PLATFORMS", "cpu")
if __name__ == "__main__" and "--first-prediction" not in sys.argv:
    # Before XLA starts its threads, because later calls change the main thread only. Children inherit the cores.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:peer.arguments().threads])
import jax  # noqa: E402
from jax import lax, nn, numpy as jnp, random  # noqa: E402

if "--first-prediction" in sys.argv:  # the child process of start/…: its imports are part of the time
    net = jax.jit(lambda x: nn.softmax(nn.relu(x @ jnp.ones((784, 64))) @ jnp.ones((64, 10))))
    peer.print_start(float(net(jnp.ones((1, 784)))[0, 0]))
    sys.exit(0)

jax.config.update("jax_cpu_enable_async_dispatch", False)
PREDICTS = False  # read when a function is compiled: is it a prediction?
KEYS = iter(random.split(random.key(1), 100000))


def normal(*sizes, dtype=jnp.float32):
    return random.normal(next(KEYS), sizes, dtype)


def integers(limit, *sizes):
    return random.randint(next(KEYS), sizes, 0, limit)


# ---- layers: each is (parameters, function of parameters and x) ------------------------------------------------

def dense(i, o):
    return {"w": normal(i, o) * i ** -0.5, "b": jnp.zeros(o)}, lambda p, x: x @ p["w"] + p["b"]


def conv(i, o, size, pad=0):
    def apply(p, x):
        y = lax.conv_general_dilated(x, p["w"], (1, 1), [(pad, pad)] * 2, dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return y + p["b"]
    return {"w": normal(size, size, i, o) * (i * size * size) ** -0.5, "b": jnp.zeros(o)}, apply


def batch_norm(n):
    """A prediction uses stored statistics. A training step uses those of the batch and does not update the stored
    ones, which saves the peer two vectors of n for each layer."""
    stored = jnp.zeros(n), jnp.ones(n)

    def apply(p, x):
        axes = tuple(range(x.ndim - 1))
        mean, var = stored if PREDICTS else (x.mean(axes), x.var(axes))
        return (x - mean) * lax.rsqrt(var + 1e-5) * p["scale"] + p["bias"]
    return {"scale": jnp.ones(n), "bias": jnp.zeros(n)}, apply


def layer_norm(n):
    return {"scale": jnp.ones(n), "bias": jnp.zeros(n)}, normalised


def normalised(p, x):
    mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(var + 1e-5) * p["scale"] + p["bias"]


def plain(f):
    return {}, lambda _, x: f(x)


def pool(x):
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


RELU, TANH, POOL = plain(nn.relu), plain(jnp.tanh), plain(pool)
FLATTEN = plain(lambda x: x.reshape(x.shape[0], -1))


def chain_of(*layers):
    def apply(p, x):
        for parameters, (_, f) in zip(p, layers):
            x = f(parameters, x)
        return x
    return [p for p, _ in layers], apply


def vgg_block(i, o):
    return (conv(i, o, 3, 1), batch_norm(o), RELU, conv(o, o, 3, 1), batch_norm(o), RELU, POOL)


def vgg():
    return chain_of(*vgg_block(3, 32), *vgg_block(32, 64), *vgg_block(64, 128), FLATTEN, dense(2048, 256), RELU,
                    dense(256, 10))


def lenet():
    return chain_of(conv(1, 6, 5), RELU, POOL, conv(6, 16, 5), RELU, POOL, FLATTEN, dense(256, 120), RELU,
                    dense(120, 84), RELU, dense(84, 10))


def xor_net():
    return chain_of(dense(2, 3), TANH, batch_norm(3), dense(3, 2))


def curve_net():
    return chain_of(dense(1, 256), TANH, dense(256, 1))


def digit_net():
    return chain_of(dense(784, 256), RELU, dense(256, 10))


def recurrent(gates, cell):
    """x is length×batch×features. The products with x are one product before the scan."""
    parameters = {"wx": normal(64, gates * 128) * 0.1, "wh": normal(128, gates * 128) * 0.1,
                  "b": jnp.zeros(gates * 128)}

    def apply(p, x):
        state = (jnp.zeros((x.shape[1], 128)),) * 2
        return lax.scan(lambda s, g: cell(s, g, s[0] @ p["wh"]), state, x @ p["wx"] + p["b"])[1]
    return parameters, apply


def lstm_cell(state, from_x, from_h):
    i, f, g, o = jnp.split(from_x + from_h, 4, -1)
    c = nn.sigmoid(f) * state[1] + nn.sigmoid(i) * jnp.tanh(g)
    h = nn.sigmoid(o) * jnp.tanh(c)
    return (h, c), h


def gru_cell(state, from_x, from_h):
    (r, z, n), (hr, hz, hn) = jnp.split(from_x, 3, -1), jnp.split(from_h, 3, -1)
    r, z = nn.sigmoid(r + hr), nn.sigmoid(z + hz)
    h = (1 - z) * jnp.tanh(n + r * hn) + z * state[0]
    return (h, h), h


def block(width, heads):
    """The block of examples/gpt_model.h."""
    layers = [layer_norm(width), dense(width, 3 * width), dense(width, width), layer_norm(width),
              dense(width, 4 * width), dense(4 * width, width)]

    def apply(p, x):
        norm1, qkv, out, norm2, up, down = (functools.partial(f, q) for (_, f), q in zip(layers, p))
        q, k, v = (t.reshape(*x.shape[:2], heads, width // heads) for t in jnp.split(qkv(norm1(x)), 3, -1))
        x = x + out(nn.dot_product_attention(q, k, v, is_causal=True).reshape(x.shape))
        return x + down(nn.gelu(up(norm2(x))))
    return [p for p, _ in layers], apply


VOCABULARY = 50257


def gpt(width, heads, blocks):
    """The model of examples/gpt_model.h."""
    body, norm = chain_of(*(block(width, heads) for _ in range(blocks))), layer_norm(width)
    parameters = {"tokens": normal(VOCABULARY, width) * 0.02, "positions": normal(1024, width) * 0.02,
                  "body": body[0], "norm": norm[0]}

    def apply(p, tokens):
        x = p["tokens"][tokens] + p["positions"][:tokens.shape[1]]
        return norm[1](p["norm"], body[1](p["body"], x)) @ p["tokens"].T
    return parameters, apply


SQUARES, TOKENS = -1, -2  # the loss is the mean of the squares of the output; predictions of the next token
NETWORKS = {  # name: model, input shape, classes (0: a regression) or one of the two above
    "xor-2-3-bn-2-b64": (xor_net, (64, 2), 2),
    "mlp-1-256-1-b16": (curve_net, (16, 1), 0),
    "mlp-784-256-10-b64": (digit_net, (64, 784), 10),
    "mlp-784-256-10-b1024": (digit_net, (1024, 784), 10),
    "lenet-b64": (lenet, (64, 28, 28, 1), 10),
    "vgg-bn-b64": (vgg, (64, 32, 32, 3), 10),
    "lstm-64-128-seq50-b32": (lambda: recurrent(4, lstm_cell), (50, 32, 64), SQUARES),
    "gru-64-128-seq50-b32": (lambda: recurrent(3, gru_cell), (50, 32, 64), SQUARES),
    "block-256-h4-seq128-b8": (lambda: block(256, 4), (8, 128, 256), SQUARES),
    "gpt2-4x256-seq64-b4": (lambda: gpt(256, 4, 4), (4, 64), TOKENS),
    "gpt2-124m-seq64-b4": (lambda: gpt(768, 12, 12), (4, 64), TOKENS),
}


def input_and_target(shape, kind):
    if kind == TOKENS:
        text = integers(VOCABULARY, shape[0], shape[1] + 1)
        return text[:, :-1], text[:, 1:]
    x = normal(*shape)
    return x, integers(kind, shape[0]) if kind > 0 else x * x


def cross_entropy(scores, labels):
    """The mean of −log softmax(scores)[label]."""
    picked = jnp.take_along_axis(scores, labels[..., None], -1)[..., 0]
    return (nn.logsumexp(scores, -1) - picked).mean()


def loss_of(kind, y, target):
    if kind == SQUARES:
        return (y * y).mean()
    return cross_entropy(y, target) if kind else ((y - target) ** 2).mean()


def adam(p, m, v, g, t):
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    return p - 1e-4 * (m / (1 - 0.9 ** t)) / (jnp.sqrt(v / (1 - 0.999 ** t)) + 1e-8), m, v


def train(name):
    make, shape, kind = NETWORKS[name]
    parameters, apply = make()
    x, target = input_and_target(shape, kind)

    @functools.partial(jax.jit, donate_argnums=(0,))
    def update(state, x, target):
        p, m, v, t = state
        loss, g = jax.value_and_grad(lambda p: loss_of(kind, apply(p, x), target))(p)
        leaves, tree = jax.tree.flatten(p)
        new = [adam(*each, t) for each in zip(leaves, *map(jax.tree.leaves, (m, v, g)))]
        return (*(jax.tree.unflatten(tree, part) for part in zip(*new)), t + 1), loss

    zeros = [jax.tree.map(jnp.zeros_like, parameters) for _ in range(2)]
    state = [(parameters, *zeros, jnp.ones(()))]

    def body():
        state[0], loss = update(state[0], x, target)
        jax.block_until_ready((state[0], loss))
    return body


def function(f, *args):
    """Makes the body that calls the jitted f."""
    g = jax.jit(f)
    return lambda: jax.block_until_ready(g(*args))


def forward(name):
    make, shape, kind = NETWORKS[name]
    parameters, apply = make()

    def predict(p, x):
        global PREDICTS  # pylint: disable=global-statement
        PREDICTS = True
        try:
            return apply(p, x)
        finally:
            PREDICTS = False
    return function(predict, parameters, input_and_target(shape, kind)[0])


# ---- operations ------------------------------------------------------------------------------------------------

def gradient(f, by, *args):
    """Value and gradients, with ones as the gradient of the result; by: the positions of the arguments."""
    def both(*args):
        rest = list(args)

        def of(*chosen):
            for i, a in zip(by, chosen):
                rest[i] = a
            return f(*rest)
        y, back = jax.vjp(of, *(args[i] for i in by))
        return y, back(jnp.ones_like(y))
    return function(both, *args)


def chain(x):
    return jnp.tanh(1.3 * x + 0.2) * nn.sigmoid(x) + jnp.exp(-x * x)


def double_chain():
    with jax.enable_x64(True):
        x, f = normal(10 ** 6, dtype=jnp.float64), jax.jit(chain)

    def body():
        with jax.enable_x64(True):
            jax.block_until_ready(f(x))
    return body


def scaled(f, features, *sizes):
    """f({scale, bias}, x), and the gradients of all three."""
    return gradient(lambda x, w, b: f({"scale": w, "bias": b}, x), (0, 1, 2), normal(*sizes), jnp.ones(features),
                    jnp.zeros(features))


def group_norm(p, x):
    groups = x.reshape(*x.shape[:3], 8, 8)
    mean, var = groups.mean((1, 2, 4), keepdims=True), groups.var((1, 2, 4), keepdims=True)
    return ((groups - mean) * lax.rsqrt(var + 1e-5)).reshape(x.shape) * p["scale"] + p["bias"]


def attention(q, k, v):
    return nn.dot_product_attention(q, k, v, is_causal=True)


def gather_elements(x, i):
    return jnp.take_along_axis(x, i, 1)


def convolution(name, with_gradient):
    """A transposed convolution with strides is a convolution of an array with zeros between the elements, padded by
    the kernel's size − 1 − its own padding."""
    axes, size, kernel, i, o, batch, options = shapes.CONVOLUTIONS[name]
    groups, space = options.get("groups", 1), "DHW"[-axes:]
    stride, between, pad = options.get("stride", 1), 1, options.get("pad", 0)
    if options.get("transposed"):
        stride, between, pad = 1, stride, kernel - 1 - pad
    x, w = normal(batch, *[size] * axes, i), normal(*[kernel] * axes, i // groups, o)

    def f(x, w):
        return lax.conv_general_dilated(
            x, w, (stride,) * axes, [(pad,) * 2] * axes, lhs_dilation=(between,) * axes, rhs_dilation=(options.get("dilation", 1),) * axes,
            dimension_numbers=(f"N{space}C", f"{space}IO", f"N{space}C"), feature_group_count=groups)
    return gradient(f, (0, 1), x, w) if with_gradient else function(f, x, w)


def product(m, n, k, transposed):
    """Makes the product of m×k and k×n matrices; in row-major order it is n×k times k×m."""
    x, w = normal(n, k), normal(m, k) if transposed else normal(k, m)
    return function((lambda x, w: x @ w.T) if transposed else jnp.matmul, x, w)


def large(f):
    return lambda: function(f, normal(4096, 4096))


def cases():
    """Returns the functions that prepare the body of each case."""
    table = {}
    for name in NETWORKS:
        table[f"train/{name}"] = table[f"record/{name}"] = lambda n=name: train(n)
        table[f"forward/{name}"] = lambda n=name: forward(n)
    for label, n in (("1e4", 10 ** 4), ("1e6", 10 ** 6), ("25e6", 25 * 10 ** 6)):
        table[f"chain/{label}"] = lambda n=n: function(chain, normal(n))
        table[f"chain/{label}-gradient"] = lambda n=n: gradient(chain, (0,), normal(n))
    table["chain/1e6-float64"] = double_chain
    table["random/normal-16e6"] = lambda: function(lambda key: random.normal(key, (16000000,)), next(KEYS))
    table["random/uniform-16e6"] = lambda: function(lambda key: random.uniform(key, (16000000,)), next(KEYS))
    table["rows/softmax-1000x1024"] = lambda: function(nn.softmax, normal(1024, 1000))
    table["rows/logsumexp-1000x1024"] = lambda: function(lambda x: nn.logsumexp(x, 1), normal(1024, 1000))
    table["rows/crossentropy-1000x1024"] = lambda: function(cross_entropy, normal(1024, 1000), integers(1000, 1024))
    table["rows/crossentropy-1000x1024-gradient"] = \
        lambda: gradient(cross_entropy, (0,), normal(1024, 1000), integers(1000, 1024))
    table["rows/layernorm-768x8192"] = lambda: function(
        normalised, {"scale": jnp.ones(768), "bias": jnp.zeros(768)}, normal(8192, 768))
    table["rows/layernorm-768x8192-gradient"] = lambda: scaled(normalised, 768, 8192, 768)
    table["rows/groupnorm-56x56x64x32-gradient"] = lambda: scaled(group_norm, 64, 32, 56, 56, 64)
    table["rows/batchnorm-56x56x64x32-gradient"] = lambda: scaled(batch_norm(64)[1], 64, 32, 56, 56, 64)
    table["attention/256x512-h4-b8"] = lambda: function(attention, *(normal(8, 512, 4, 64) for _ in range(3)))
    table["attention/256x512-h4-b8-gradient"] = \
        lambda: gradient(attention, (0, 1, 2), *(normal(8, 512, 4, 64) for _ in range(3)))
    for name, f in {"sum": jnp.sum, "max": jnp.max, "var": functools.partial(jnp.var, ddof=1), "argmax": jnp.argmax,
                    "cumsum": jnp.cumsum}.items():
        for label, d in (("contiguous", 1), ("strided", 0)):
            table[f"matrix/{name}-4096-{label}"] = large(lambda x, f=f, d=d: f(x, d))
    table["matrix/gather-elements-4096"] = \
        lambda: function(gather_elements, normal(4096, 4096), integers(4096, 4096, 4096))
    table["matrix/gather-elements-4096-gradient"] = \
        lambda: gradient(gather_elements, (0,), normal(4096, 4096), integers(4096, 4096, 4096))
    table["matrix/pad-4096"] = large(lambda x: jnp.pad(x, 1))
    table["matrix/bias-4096"] = lambda: function(jnp.add, normal(4096, 4096), normal(4096))
    table["matrix/transpose-4096"] = large(lambda x: lax.optimization_barrier(x.T.ravel()))
    table["embedding/128x30000-8192"] = lambda: function(lambda w, i: w[i], normal(30000, 128), integers(30000, 8192))
    table["embedding/128x30000-8192-gradient"] = \
        lambda: gradient(lambda w, i: w[i], (0,), normal(30000, 128), integers(30000, 8192))
    table["batched/16x16x16-4096"] = lambda: function(jnp.matmul, normal(4096, 16, 16), normal(4096, 16, 16))
    for name in shapes.CONVOLUTIONS:
        table[f"conv/{name}"] = lambda n=name: convolution(n, False)
        table[f"conv/{name}-gradient"] = lambda n=name: convolution(n, True)
    for text in ("2x64x3", "64x16x1", "1x256x16", "10x64x256", "256x64x784", "64x256x784", "784x256x64-tn",
                 "256x1024x784", "512x512x512", "1024x768x256", "2048x2048x2048", "4096x1x4096",
                 "4096x1x4096-tn", "512x1x512", "512x1x512-tn"):
        m, n, k = (int(v) for v in text.split("-", maxsplit=1)[0].split("x"))
        table[f"matmul/{text}"] = lambda m=m, n=n, k=k, t=text: product(m, n, k, t.endswith("-tn"))
    for name, memory in (("first-prediction", False), ("resident", True)):
        table[f"start/{name}"] = lambda m=memory: peer.start(__file__, m)
    return table


def main():
    args = peer.arguments()
    table = {name: (lambda f=f: iter([("jit", f)])) for name, f in cases().items()}
    header = {"program": "JAX", "version": jax.__version__, "environment": peer.environment(("XLA_", "JAX_", "MALLOC_"))}
    peer.run(args, table, header, "jax")


if __name__ == "__main__":
    main()
