#!/usr/bin/env python3
"""Measures the cases of bench_runner with PyTorch (peer.py describes options, rows and limits).

Variants: eager. With --compile also torch.compile: of the function, or in training steps of forward pass and loss,
without and with the optimiser. Training steps also vary the optimiser (foreach, fused) and the layout (channels-last).
Predictions and the cases chain/… also have a variant with TorchScript.

The caller chooses threads and instruction set; run.py sets them to the best of the machine. PyTorch is
row-major: cflux's 1000×1024 array, whose first axis is contiguous, is a (1024, 1000) tensor here.
"""
import os
import sys
import warnings

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import peer  # noqa: E402
import shapes  # noqa: E402

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

if "--first-prediction" in sys.argv:  # the child process of start/…: its imports are part of the time
    net = nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10), nn.Softmax(1))
    with torch.inference_mode():
        peer.print_start(net(torch.ones(1, 784))[0, 0].item())
    sys.exit(0)

compiling = False  # --compile, if this PyTorch has torch.compile


def as_it_is(f):
    return f


def compiled(f):
    torch._dynamo.reset()  # pylint: disable=protected-access; else code of earlier cases slows this one down
    return torch.compile(f, dynamic=False)


# ---- networks --------------------------------------------------------------------------------------------------

def vgg_block(i, o):
    return [nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(),
            nn.Conv2d(o, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(), nn.MaxPool2d(2)]


def vgg():
    return nn.Sequential(*vgg_block(3, 32), *vgg_block(32, 64), *vgg_block(64, 128), nn.Flatten(),
                         nn.Linear(2048, 256), nn.ReLU(), nn.Linear(256, 10))


def lenet():
    return nn.Sequential(nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(),
                         nn.MaxPool2d(2), nn.Flatten(), nn.Linear(256, 120), nn.ReLU(),
                         nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))


def xor_net():
    return nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.BatchNorm1d(3), nn.Linear(3, 2))


def curve_net():
    return nn.Sequential(nn.Linear(1, 256), nn.Tanh(), nn.Linear(256, 1))


def digit_net():
    return nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))


class Outputs(nn.Module):
    """A recurrent layer without its last state."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)[0]


def lstm_net():
    return Outputs(nn.LSTM(64, 128))


def gru_net():
    return Outputs(nn.GRU(64, 128))


class Block(nn.Module):
    """The block of examples/gpt_model.h."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (t.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
                   for t in self.qkv(self.norm1(x)).split(width, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    """The model of examples/gpt_model.h."""

    def __init__(self, vocabulary, context, width, heads, blocks):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        nn.init.normal_(self.tokens.weight, std=0.02)
        nn.init.normal_(self.positions.weight, std=0.02)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(blocks))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.tokens.weight)


VOCABULARY = 50257
SQUARES, TOKENS = -1, -2  # the loss is the mean of the squares of the output; predictions of the next token
NETWORKS = {  # name: model, input shape, classes (0: a regression) or one of the two above
    "xor-2-3-bn-2-b64": (xor_net, (64, 2), 2),
    "mlp-1-256-1-b16": (curve_net, (16, 1), 0),
    "mlp-784-256-10-b64": (digit_net, (64, 784), 10),
    "mlp-784-256-10-b1024": (digit_net, (1024, 784), 10),
    "lenet-b64": (lenet, (64, 1, 28, 28), 10),
    "vgg-bn-b64": (vgg, (64, 3, 32, 32), 10),
    "lstm-64-128-seq50-b32": (lstm_net, (50, 32, 64), SQUARES),
    "gru-64-128-seq50-b32": (gru_net, (50, 32, 64), SQUARES),
    "block-256-h4-seq128-b8": (lambda: Block(256, 4), (8, 128, 256), SQUARES),
    "gpt2-4x256-seq64-b4": (lambda: Gpt(VOCABULARY, 1024, 256, 4, 4), (4, 64), TOKENS),
    "gpt2-124m-seq64-b4": (lambda: Gpt(VOCABULARY, 1024, 768, 12, 12), (4, 64), TOKENS),
}


def input_and_target(shape, kind):
    if kind == TOKENS:
        text = torch.randint(VOCABULARY, (shape[0], shape[1] + 1))
        return text[:, :-1].contiguous(), text[:, 1:].contiguous()
    x = torch.randn(shape)
    return x, torch.randint(0, kind, (shape[0],)) if kind > 0 else x * x


def criterion(kind):
    return {0: F.mse_loss, SQUARES: lambda y, _: y.square().mean(),
            TOKENS: lambda y, next_: F.cross_entropy(y.flatten(0, 1), next_.flatten())}.get(kind, F.cross_entropy)


def layouts(shape):
    """Returns the memory formats to try for an input."""
    return ("", "channels-last") if len(shape) == 4 else ("",)


def placed(thing, layout):
    return thing.contiguous(memory_format=torch.channels_last) if layout else thing


def optimisers():
    """Returns the options of Adam to try; old versions have no fused Adam on a CPU."""
    try:
        torch.optim.Adam([torch.zeros(1, requires_grad=True)], fused=True)
    except (TypeError, RuntimeError):
        return {"for-loop": {"foreach": False}, "foreach": {"foreach": True}}
    return {"foreach": {"foreach": True}, "fused": {"fused": True}}


def train_variant(make, shape, kind, layout, options, wrap_loss=as_it_is, wrap_update=as_it_is, wrap_model=as_it_is):
    model = wrap_model(make().to(memory_format=torch.channels_last) if layout else make())
    x, y = input_and_target(shape, kind)
    x, of = placed(x, layout), criterion(kind)
    opt = torch.optim.Adam(model.parameters(), lr=1e-4, **options)
    loss, update = wrap_loss(lambda: of(model(x), y)), wrap_update(opt.step)

    def body():
        opt.zero_grad(set_to_none=True)
        loss().backward()
        update()
    return body


def train(name):
    make, shape, kind = NETWORKS[name]
    adams = optimisers()
    for layout in layouts(shape):
        for label, options in adams.items():
            yield " ".join(filter(None, ["eager", layout, label])), \
                lambda l=layout, o=options: train_variant(make, shape, kind, l, o)
    if compiling:
        last, best = layouts(shape)[-1], list(adams)[-1]  # the fused Adam on a CPU exists from PyTorch 2.4 on
        yield f"compile {last} {best}".replace("  ", " "), \
            lambda: train_variant(make, shape, kind, last, adams[best], compiled)
        yield f"compile {last} with Adam".replace("  ", " "), \
            lambda: train_variant(make, shape, kind, last, {"foreach": True}, compiled, torch.compile)


def scripted(model):
    return torch.jit.optimize_for_inference(torch.jit.script(model))


def forward_variant(make, shape, kind, layout, wrap):
    model = make().eval()
    x, _ = input_and_target(shape, kind)
    if layout:
        model, x = model.to(memory_format=torch.channels_last), placed(x, layout)
    return value(wrap(model), [x])


def forward(name):
    make, shape, kind = NETWORKS[name]
    ways = {"inference mode": as_it_is, "optimised script": scripted, **({"compile": compiled} if compiling else {})}
    for layout in layouts(shape):
        for label, wrap in ways.items():
            yield f"{label} {layout}".strip(), \
                lambda l=layout, w=wrap: forward_variant(make, shape, kind, l, w)


# ---- operations ------------------------------------------------------------------------------------------------

def value(f, args):
    def body():
        with torch.inference_mode():
            return f(*args)
    return body


def gradient(f, args, inputs, seed):
    for t in inputs:
        t.requires_grad_()

    def body():
        for t in inputs:
            t.grad = None
        y = f(*args)
        y.backward(seed)
        return y
    return body


def operation(build, script=None):
    """Makes a case. build() returns f, its arguments and, for a row "…-gradient", the tensors to differentiate by
    and the gradient of the result. script: f for TorchScript."""
    def prepare(wrap):
        f, args, *rest = build()
        return gradient(wrap(f), args, *rest) if rest else value(wrap(f), args)

    def variants():
        yield "eager", lambda: prepare(as_it_is)
        if script:
            yield "script", lambda: prepare(lambda _: torch.jit.script(script))
        if compiling:
            yield "compile", lambda: prepare(compiled)
    return variants


def chain(x):
    return torch.tanh(1.3 * x + 0.2) * torch.sigmoid(x) + torch.exp(-x * x)


def with_seed(f, args, inputs, *sizes):
    return f, args, inputs, torch.ones(*sizes)


def chain_gradient(n):
    x = torch.randn(n)
    return with_seed(chain, [x], [x], n)


def crossentropy(*with_gradient):
    x = torch.randn(1024, 1000)
    return (F.cross_entropy, [x, torch.randint(0, 1000, (1024,))], *([[x], None] if with_gradient else []))


def norm(f, features, *sizes, with_gradient=True):
    """f(x, scale, bias), and the gradients of the three."""
    args = [torch.randn(*sizes), torch.ones(features), torch.zeros(features)]
    return with_seed(f, args, args, *sizes) if with_gradient else (f, args)


def layer_norm(x, w, b):
    return F.layer_norm(x, (768,), w, b)


def group_norm(x, w, b):
    return F.group_norm(x, 8, w, b)


def batch_norm():
    mean, variance = torch.zeros(64), torch.ones(64)
    return norm(lambda x, w, b: F.batch_norm(x, mean, variance, w, b, True), 64, 32, 64, 56, 56)


def attention(with_gradient):
    args = [torch.randn(8, 4, 512, 64) for _ in range(3)]
    f = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)  # noqa: E731
    return with_seed(f, args, args, 8, 4, 512, 64) if with_gradient else (f, args)


def gather_elements(with_gradient):
    x, index = torch.randn(4096, 4096), torch.randint(4096, (4096, 4096))
    f = lambda x, i: torch.gather(x, 1, i)  # noqa: E731
    return with_seed(f, [x, index], [x], 4096, 4096) if with_gradient else (f, [x, index])


def embedding(with_gradient):
    w, index = torch.randn(30000, 128), torch.randint(30000, (8192,))
    f = lambda i, w: F.embedding(i, w)  # noqa: E731
    return with_seed(f, [index, w], [w], 8192, 128) if with_gradient else (f, [index, w])


def product(m, n, k, transposed):
    """Makes the product of m×k and k×n matrices; in row-major order it is n×k times k×m."""
    x, w = torch.randn(n, k), torch.randn(m, k) if transposed else torch.randn(k, m)
    return (lambda x, w: x @ w.t()) if transposed else torch.matmul, [x, w]


def convolution(name, with_gradient, layout):
    axes, size, kernel, i, o, batch, options = shapes.CONVOLUTIONS[name]
    options = {"padding" if key == "pad" else key: value for key, value in options.items()}
    transposed, per_group = options.pop("transposed", False), i // options.get("groups", 1)
    f = getattr(F, f"conv_transpose{axes}d" if transposed else f"conv{axes}d")
    x = placed(torch.randn(batch, i, *[size] * axes), layout)
    w = placed(torch.randn(*((i, o) if transposed else (o, per_group)), *[kernel] * axes), layout)
    call = lambda x, w: f(x, w, **options)  # noqa: E731
    return (call, [x, w], [x, w], torch.ones_like(call(x, w))) if with_gradient else (call, [x, w])


def convolutions(name, with_gradient):
    def variants():
        for layout in ("", "channels-last") if shapes.CONVOLUTIONS[name][0] == 2 else ("",):
            for label, prepare in operation(lambda l=layout: convolution(name, with_gradient, l))():
                yield f"{label} {layout}".strip(), prepare
    return variants


# ---- the table -------------------------------------------------------------------------------------------------

def along_an_axis():
    functions = {"sum": torch.sum, "max": torch.amax, "var": lambda x, d: x.var(d), "argmax": torch.argmax,
                 "cumsum": torch.cumsum}
    for name, f in functions.items():
        for label, d in (("contiguous", 1), ("strided", 0)):
            yield f"matrix/{name}-4096-{label}", \
                operation(lambda f=f, d=d: (lambda x: f(x, d), [torch.randn(4096, 4096)]))


def cases():
    table = {}
    for name in NETWORKS:
        table[f"train/{name}"] = lambda n=name: train(n)
        table[f"record/{name}"] = table[f"train/{name}"]  # cflux records the training step, which gives the same results
        table[f"forward/{name}"] = lambda n=name: forward(n)
    for label, n in (("1e4", 10 ** 4), ("1e6", 10 ** 6), ("25e6", 25 * 10 ** 6)):
        table[f"chain/{label}"] = operation(lambda n=n: (chain, [torch.randn(n)]), chain)
        table[f"chain/{label}-gradient"] = operation(lambda n=n: chain_gradient(n), chain)
    table["chain/1e6-float64"] = operation(lambda: (chain, [torch.randn(10 ** 6, dtype=torch.float64)]), chain)
    table["random/normal-16e6"] = operation(lambda: (torch.randn, [16000000]))
    table["random/uniform-16e6"] = operation(lambda: (torch.rand, [16000000]))
    rows = {"softmax": lambda x: F.softmax(x, 1), "logsumexp": lambda x: torch.logsumexp(x, 1)}
    for name, f in rows.items():
        table[f"rows/{name}-1000x1024"] = operation(lambda f=f: (f, [torch.randn(1024, 1000)]))
    table["rows/crossentropy-1000x1024"] = operation(crossentropy)
    table["rows/crossentropy-1000x1024-gradient"] = operation(lambda: crossentropy(True))
    for suffix, g in (("", False), ("-gradient", True)):
        table[f"rows/layernorm-768x8192{suffix}"] = \
            operation(lambda g=g: norm(layer_norm, 768, 8192, 768, with_gradient=g))
        table[f"attention/256x512-h4-b8{suffix}"] = operation(lambda g=g: attention(g))
        table[f"matrix/gather-elements-4096{suffix}"] = operation(lambda g=g: gather_elements(g))
        table[f"embedding/128x30000-8192{suffix}"] = operation(lambda g=g: embedding(g))
        for name in shapes.CONVOLUTIONS:
            table[f"conv/{name}{suffix}"] = convolutions(name, g)
    table["rows/groupnorm-56x56x64x32-gradient"] = operation(lambda: norm(group_norm, 64, 32, 64, 56, 56))
    table["rows/batchnorm-56x56x64x32-gradient"] = operation(batch_norm)
    table.update(along_an_axis())
    table["matrix/pad-4096"] = operation(lambda: (lambda x: F.pad(x, (1, 1, 1, 1)), [torch.randn(4096, 4096)]))
    table["matrix/bias-4096"] = operation(lambda: (torch.add, [torch.randn(4096, 4096), torch.randn(4096)]))
    table["matrix/transpose-4096"] = operation(lambda: (lambda x: x.t().contiguous(), [torch.randn(4096, 4096)]))
    table["batched/16x16x16-4096"] = operation(lambda: (torch.bmm, [torch.randn(4096, 16, 16) for _ in range(2)]))
    for text in ("2x64x3", "64x16x1", "1x256x16", "10x64x256", "256x64x784", "64x256x784", "784x256x64-tn",
                 "256x1024x784", "512x512x512", "1024x768x256", "2048x2048x2048", "4096x1x4096",
                 "4096x1x4096-tn", "512x1x512", "512x1x512-tn"):
        m, n, k = (int(v) for v in text.split("-", maxsplit=1)[0].split("x"))
        table[f"matmul/{text}"] = operation(lambda m=m, n=n, k=k, t=text: product(m, n, k, t.endswith("-tn")))
    for name, memory in (("first-prediction", False), ("resident", True)):
        table[f"start/{name}"] = lambda m=memory: iter([("eager", lambda: peer.start(__file__, m))])
    return table


def blas():
    """Returns the name of the BLAS library. The reference BLAS is too slow for a fair comparison."""
    if torch.backends.mkl.is_available():
        return "MKL"
    with open("/proc/self/maps", encoding="utf-8") as f:
        for line in f:
            base = os.path.basename(line.split()[-1])
            if base.startswith(("libopenblas", "libmkl", "libblis")):
                return base
    return "reference BLAS: matrix products are not comparable"


def header():
    torch.randn(8, 8) @ torch.randn(8, 8)  # loads the BLAS library
    capability = torch.__config__.show().split("CPU capability usage: ")[-1].split("\n")[0]
    return {"program": "PyTorch", "version": torch.__version__, "isa": capability, "blas": blas(),
            "compile": compiling, "environment": peer.environment(("ATEN_", "OPENBLAS_", "OMP_", "MALLOC_", "GLIBC_"))}


def main():
    global compiling  # pylint: disable=global-statement
    args = peer.arguments()
    compiling = args.compile and hasattr(torch, "compile")
    warnings.filterwarnings("ignore")
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    peer.run(args, cases(), header(), "torch")


if __name__ == "__main__":
    main()
