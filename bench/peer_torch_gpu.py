#!/usr/bin/env python3
"""Measures the cases of bench_gpu.c, and the networks of bench_gpu_networks.c, with PyTorch. Rows have the format of bench_runner.

Variants: eager, and torch.compile with the modes default and reduce-overhead (CUDA graphs). For networks the
optimiser is fused Adam, which is not compiled, and on a GPU there is a variant "graphed": the whole training step as
one CUDA graph. For networks with convolutions also "deterministic": eager, limited to those algorithms of cuDNN that
give the same bits in every run, as cflux is; the other variants may use all algorithms. On a GPU, products have a
variant "cublaslt": eager, computed by cuBLASLt, where PyTorch may prefer cuBLAS. Adam alone is measured eager only.
TensorFloat-32 is off for products and for convolutions, except in the cases whose name says tf32: PyTorch's own
default would use it in convolutions. With --tf32 it is on in all cases. A time is that of evaluations queued one
after the other, between two events on a GPU, by the clock on a CPU.

  peer_torch_gpu.py [--device cuda] [--seconds S] [--tiny] [--tf32] [--eager] [--variant PART]… [part of a name …]
  peer_torch_gpu.py --list
"""
import argparse
import json
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

WARM_UP, LEAST_SAMPLES, MOST_SAMPLES, QUEUE_SECONDS, MOST_QUEUED = 5, 7, 200, 20e-3, 1000
options = None


def size(n):
    """The same sizes as in tiny runs of bench_gpu.c."""
    return 4 + n % 33 if options.tiny and n >= 100 else n


# ---- sampling --------------------------------------------------------------------------------------------------

def queued(body, n):
    """Seconds of n calls of the body, the device's work included."""
    if options.device == "cpu":
        start = time.perf_counter()
        for _ in range(n):
            body()
        return time.perf_counter() - start
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    for _ in range(n):
        body()
    last.record()
    last.synchronize()
    return 1e-3 * first.elapsed_time(last)


def sample(body):
    queued(body, 1 if options.tiny else WARM_UP)
    once = queued(body, 1 if options.tiny else 3) / (1 if options.tiny else 3)
    each = 1 if options.tiny else max(1, min(MOST_QUEUED, int(QUEUE_SECONDS / max(once, 1e-9))))
    values, start = [], time.perf_counter()
    while len(values) < MOST_SAMPLES and (len(values) < (1 if options.tiny else LEAST_SAMPLES)
                                          or time.perf_counter() - start < options.seconds):
        values.append(1e6 * queued(body, each) / each)
    return {"n": len(values), "taken": len(values), "median": statistics.median(values), "min": min(values),
            "max": max(values), "unit": "us", "contended": False}


# ---- operations ------------------------------------------------------------------------------------------------

def random(*sizes, dtype=torch.float32):
    return torch.randn(*sizes, device=options.device).to(dtype)


def modes():
    """(label, function that compiles)"""
    yield "eager", lambda f: f
    if not options.eager:
        yield "compile", torch.compile
        yield "compile reduce-overhead", lambda f: torch.compile(f, mode="reduce-overhead")


def without_gradient(f):
    def body():
        with torch.inference_mode():
            return f()
    return body


def operation(make):
    """Variants of a case whose `make` returns the function of its inputs and the inputs."""
    for label, compiled in modes():
        def prepare(compiled=compiled):
            f, inputs = make()
            g = compiled(f)
            return without_gradient(lambda: g(*inputs))
        yield label, prepare


def product(n, dtype):
    n = size(n)
    return torch.matmul, (random(n, n, dtype=dtype), random(n, n, dtype=dtype))


def products(n, dtype):
    yield from operation(lambda: product(n, dtype))
    if options.device != "cpu":
        yield from by_cublaslt(n, dtype)


def by_cublaslt(n, dtype):
    before = []

    def prepare():
        before.append(torch.backends.cuda.preferred_blas_library())
        torch.backends.cuda.preferred_blas_library("cublaslt")
        f, inputs = product(n, dtype)
        return without_gradient(lambda: f(*inputs))
    yield "cublaslt", prepare
    # Empty if this version of PyTorch lacks the function: then `prepare` has failed.
    if before:
        torch.backends.cuda.preferred_blas_library(before[0])


def chain(x):
    y = torch.tanh(x * 1.5 + 0.25) * torch.sigmoid(x)
    return y * y - x


def copy(n):
    x = random(size(n))
    return torch.Tensor.copy_, (torch.empty_like(x), x)


def one_input(f, *sizes, dtype=torch.float32):
    return f, (random(*(size(n) for n in sizes), dtype=dtype),)


def rows(kind, dtype):
    """The function of a case on rows, and its inputs; row-major: 8192 rows of 4096."""
    x = random(size(8192), size(4096), dtype=dtype)
    if kind == "softmax":
        return (lambda x: F.softmax(x, 1)), (x,)
    if kind == "layernorm":
        columns = (x.shape[1],)
        return (lambda x, w, b: F.layer_norm(x, columns, w, b)), \
            (x, torch.ones(columns, device=options.device, dtype=dtype),
             torch.zeros(columns, device=options.device, dtype=dtype))
    label = torch.randint(0, x.shape[1], (x.shape[0],), device=options.device)
    return (lambda x: F.cross_entropy(x, label)), (x,)


def rows_gradient(kind, dtype):
    for label, compiled in modes():
        def prepare(compiled=compiled):
            f, inputs = rows(kind, dtype)
            for t in inputs:
                t.requires_grad_()
            g = compiled(f)
            seed = None if kind == "crossentropy" else torch.randn_like(inputs[0])

            def body():
                y = g(*inputs)
                return torch.autograd.grad(y, inputs, seed)
            return body
        yield label, prepare


def indexed(scatter):
    x = random(size(16384), size(1024))
    index = torch.randint(0, x.shape[0], (x.shape[0],), device=options.device)
    if scatter:
        return (lambda x, i: torch.zeros_like(x).index_add_(0, i, x)), (x, index)
    return (lambda x, i: x[i]), (x, index)


def adam():
    for label in ("eager foreach", "eager fused"):
        def prepare(label=label):
            arrays = [random(size(500000)).requires_grad_() for _ in range(5 if options.tiny else 200)]
            for a in arrays:
                a.grad = torch.randn_like(a)
            return torch.optim.Adam(arrays, lr=1e-4, **{label.split()[1]: True}).step
        yield label, prepare


# ---- networks --------------------------------------------------------------------------------------------------

def curve_net():
    return nn.Sequential(nn.Linear(1, 256), nn.Tanh(), nn.Linear(256, 1))


def digit_net():
    return nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))


def lenet():
    return nn.Sequential(nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(),
                         nn.MaxPool2d(2), nn.Flatten(), nn.Linear(256, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
                         nn.Linear(84, 10))


def conv_norm(i, o, k, stride=1, act=True):
    layers = [nn.Conv2d(i, o, k, stride, k // 2, bias=False), nn.BatchNorm2d(o)]
    return layers + [nn.ReLU()] if act else layers


def wide(channels):
    return channels // 16 if options.tiny else channels


def vgg():
    layers = []
    for i, o in ((3, wide(32)), (wide(32), wide(64)), (wide(64), wide(128))):
        layers += conv_norm(i, o, 3) + conv_norm(o, o, 3) + [nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(wide(128) * (4 if options.tiny else 16), 256), nn.ReLU(),
                         nn.Linear(256, 10))


class Residual(nn.Module):
    def __init__(self, i, o, stride):
        super().__init__()
        self.body = nn.Sequential(*conv_norm(i, o, 3, stride), *conv_norm(o, o, 3, act=False))
        self.beside = nn.Identity() if i == o else nn.Sequential(*conv_norm(i, o, 1, stride, act=False))

    def forward(self, x):
        return F.relu(self.body(x) + self.beside(x))


def resnet():
    widths = ((64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2),
              (512, 512, 1))
    return nn.Sequential(*conv_norm(3, wide(64), 7, 2), nn.MaxPool2d(3, 2, 1),
                         *(Residual(wide(i), wide(o), stride) for i, o, stride in widths),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(wide(512), 1000))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feedforward = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"),
                                         nn.Linear(4 * width, width))

    def forward(self, x):
        b, t, w = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(self.norm1(x)).split(w, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, w))
        return x + self.feedforward(self.norm2(x))


class Gpt(nn.Module):
    def __init__(self, vocabulary, context, width, heads, blocks):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(blocks)))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens):
        where = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.norm(self.blocks(self.tokens(tokens) + self.positions(where)))
        return x @ self.tokens.weight.t()


def gpt2():
    return Gpt(50, 16, 16, 2, 1) if options.tiny else Gpt(50257, 1024, 768, 12, 12)


def one_block():
    return Block(16, 2) if options.tiny else Block(1024, 16)


def next_token(model, tokens, _):
    scores = model(tokens[:, :-1])
    return F.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())


NETWORKS = {  # name: model, shape, classes, loss of (model, x, y)
    "mlp-1-256-1-b16": (curve_net, (16, 1), 0, lambda m, x, y: F.mse_loss(m(x), y)),
    "mlp-784-256-10-b64": (digit_net, (64, 784), 10, None),
    "lenet-b128": (lenet, (128, 1, 28, 28), 10, None),
    "vgg-b256": (vgg, (256, 3, 32, 32), 10, None),
    "resnet18-b64": (resnet, (64, 3, 224, 224), 1000, None),
    "gpt2-b8": (gpt2, (8, 1025), -1, next_token),  # 1,024 tokens are predicted
    "block-b16": (one_block, (16, 1024, 1024), 0, lambda m, x, y: m(x).square().mean()),
}


def tiny_shape(name, shape):
    if name.startswith("gpt2"):
        return (2, 16)
    if name.startswith("block"):
        return (2, 8, 16)
    return (2, shape[1], 16, 16) if len(shape) == 4 and shape[2] != 28 else (2, *shape[1:])


def train(name, dtype):
    make, shape, classes, loss = NETWORKS[name]
    shape = tiny_shape(name, shape) if options.tiny else shape
    loss = loss or (lambda m, x, y: F.cross_entropy(m(x), y))
    layouts = (False, True) if len(shape) == 4 and not options.tiny else (False,)
    for label, compiled in modes():
        for channels_last in layouts:
            def prepare(compiled=compiled, channels_last=channels_last, label=label):
                model = make().to(options.device, dtype)
                if classes < 0:
                    x = torch.randint(0, 50 if options.tiny else 50257, shape, device=options.device)
                else:
                    x = random(*shape, dtype=dtype)
                if channels_last:
                    model, x = (t.to(memory_format=torch.channels_last) for t in (model, x))
                y = torch.randint(0, classes, shape[:1], device=options.device) if classes > 0 else x * x
                opt = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)

                def body():
                    opt.zero_grad(set_to_none=True)
                    loss(model, x, y).backward()
                    opt.step()
                if label == "eager":
                    return body
                forward = compiled(lambda x, y: loss(model, x, y))

                def fast():
                    opt.zero_grad(set_to_none=True)
                    forward(x, y).backward()
                    opt.step()
                return fast
            yield f"{label}{' channels-last' if channels_last else ''}", prepare
            if label == "eager" and channels_last:
                yield "deterministic", lambda prepare=prepare: deterministic(prepare)
        if label == "eager" and options.device != "cpu" and not options.tiny:
            yield "graphed", lambda: graphed(make, shape, classes, loss, dtype)


def deterministic(prepare):
    torch.backends.cudnn.deterministic = True
    return prepare()


def graphed(make, shape, classes, loss, dtype):
    """A whole training step with fused Adam as one CUDA graph, as a user writes it by hand."""
    model = make().to(options.device, dtype)
    x = torch.randint(0, 50257, shape, device=options.device) if classes < 0 else random(*shape, dtype=dtype)
    y = torch.randint(0, classes, shape[:1], device=options.device) if classes > 0 else x * x
    opt = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True, capturable=True)

    def body():
        opt.zero_grad(set_to_none=True)
        loss(model, x, y).backward()
        opt.step()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            body()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        body()
    return graph.replay


# ---- the table -------------------------------------------------------------------------------------------------

def cases():
    table = {}
    for name, n, dtype in (("8192-bf16", 8192, torch.bfloat16), ("4096-tf32", 4096, torch.float32),
                           ("4096-f32", 4096, torch.float32)):
        table[f"gpu/matmul-{name}"] = lambda n=n, d=dtype: products(n, d)
    for name, dtype in (("f32", torch.float32), ("bf16", torch.bfloat16)):
        table[f"gpu/unary-{name}"] = lambda d=dtype: operation(lambda: one_input(torch.relu, 1 << 28, dtype=d))
        table[f"gpu/chain-{name}"] = lambda d=dtype: operation(lambda: one_input(chain, 1 << 28, dtype=d))
        for kind in ("softmax", "layernorm", "crossentropy"):
            table[f"gpu/{kind}-{name}"] = lambda k=kind, d=dtype: operation(lambda: rows(k, d))
            table[f"gpu/{kind}-gradient-{name}"] = lambda k=kind, d=dtype: rows_gradient(k, d)
    for name, f in (("all", torch.sum), ("first", lambda x: x.sum(1)), ("last", lambda x: x.sum(0)),
                    ("transpose", lambda x: x.t().contiguous() * 2)):
        label = name if name == "transpose" else f"sum-{name}"
        table[f"gpu/{label}"] = lambda f=f: operation(lambda: one_input(f, 16384, 16384))
    table["gpu/copy"] = lambda: operation(lambda: copy(1 << 28))
    table["gpu/gather"] = lambda: operation(lambda: indexed(False))
    table["gpu/scatter-add"] = lambda: operation(lambda: indexed(True))
    table["gpu/adam"] = adam
    for name in NETWORKS:
        types = {"vgg-b256": ("f32", "bf16"), "resnet18-b64": ("f32", "bf16"), "gpt2-b8": ("bf16",),
                 "block-b16": ("bf16",)}.get(name, ("",))
        for t in types:
            table[f"gpu/train-{name}{'-' if t else ''}{t}"] = \
                lambda n=name, t=t: train(n, torch.bfloat16 if t == "bf16" else torch.float32)
    return table


def precision(name):
    on = options.tf32 or "tf32" in name
    torch.backends.cuda.matmul.allow_tf32 = on
    torch.backends.cudnn.allow_tf32 = on
    torch.backends.cudnn.deterministic = False


def measure(name, variant, prepare):
    row = {"row": "case", "case": name, "variant": variant + (" tf32" if options.tf32 else ""), "backend": "torch",
           "threads": torch.get_num_threads()}
    try:
        torch.manual_seed(1)
        precision(name)
        row.update(sample(prepare()))
    except Exception as e:  # a compiler's failure is a result, not the end of the run
        row = {"row": "failure", "case": name, "variant": variant, "message": f"{type(e).__name__}: {str(e)[:200]}"}
    torch.compiler.reset() if hasattr(torch, "compiler") else None
    if options.device != "cpu":
        torch.cuda.empty_cache()
    return row


def header():
    gpu = torch.cuda.get_device_name() if options.device != "cpu" else "cpu"
    return {"row": "header", "program": "PyTorch", "version": torch.__version__, "cuda": torch.version.cuda, "gpu": gpu,
            "cudnn": torch.backends.cudnn.version() if options.device != "cpu" else None}


def main():
    global options
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--tf32", action="store_true")
    parser.add_argument("--eager", action="store_true")
    parser.add_argument("--variant", action="append", default=[], help="only variants with this part in their name")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("part", nargs="*")
    options = parser.parse_intermixed_args()
    table = cases()
    if options.list:
        print("\n".join(table))
        return 0
    print(json.dumps(header()), flush=True)
    failures = 0
    for name in table:
        if options.part and not any(part in name for part in options.part):
            continue
        for variant, prepare in table[name]():
            if options.variant and not any(part in variant for part in options.variant):
                continue
            row = measure(name, variant, prepare)
            failures += row["row"] == "failure"
            print(json.dumps(row), flush=True)
    return failures > 0


if __name__ == "__main__":
    sys.exit(main())
