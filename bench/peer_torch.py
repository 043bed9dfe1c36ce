#!/usr/bin/env python3
"""Measures the cases of bench_runner with PyTorch and prints rows in the same format.

A case can have several variants (eager, TorchScript, channels-last, foreach optimiser): programs that a
user of PyTorch could write for the same numbers. Each variant is measured and printed as a row; the
programs that read the rows use the fastest. Sampling follows bench_sample.c.

  peer_torch.py [--threads N] [--seconds S] [part of a name…]
  peer_torch.py --serve      reads one name per line; prints its rows and then a line {"row": "end"}

The caller chooses threads and instruction set; run.py sets them to the best of the machine. PyTorch is
row-major: cflux's 1000×1024 array, whose first axis is contiguous, is a (1024, 1000) tensor here.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

if "--first-prediction" in sys.argv:  # the child process of start/…: its imports are part of the time
    import torch
    net = torch.nn.Sequential(torch.nn.Linear(784, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10),
                              torch.nn.Softmax(1))
    with torch.inference_mode():
        p = net(torch.ones(1, 784))[0, 0].item()
    moment = time.monotonic()
    peak = [line for line in open("/proc/self/status") if line.startswith("VmHWM")][0].split()[1]
    print(f"{moment:.9f} {peak} {p}")
    sys.exit(0)

import torch
from torch import nn
from torch.nn import functional as F

MIN_SAMPLE, MIN_SAMPLES, MAX_SAMPLES, WARM_UP = 5e-3, 7, 400, 3


# ---- sampling ----------------------------------------------------------------------------------------

def run_delay():
    """Returns the seconds in which threads of this process were runnable but had no core."""
    total = 0
    for task in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{task}/schedstat") as f:
                total += int(f.read().split()[1])
        except (OSError, IndexError):
            pass
    return 1e-9 * total


def repeat(step, n):
    start = time.perf_counter()
    for _ in range(n):
        step()
    return time.perf_counter() - start


def calibrate(step):
    repeat(step, WARM_UP)
    n = 1
    while (t := repeat(step, n)) < MIN_SAMPLE:
        n *= 2 if t > MIN_SAMPLE / 8 else 8
    return n


def row_of(values, unit, taken=None, contended=False):
    return {"n": len(values), "taken": taken or len(values), "median": statistics.median(values),
            "min": min(values), "max": max(values), "unit": unit, "contended": contended}


def sample(step, seconds):
    n, clean, ran = calibrate(step), [], []
    start = time.perf_counter()
    while len(ran) < MAX_SAMPLES:
        spent = time.perf_counter() - start
        if (len(clean) >= MIN_SAMPLES and spent >= seconds) or \
                (len(ran) >= MIN_SAMPLES and spent >= 5 * seconds + 1):
            break
        before, t = run_delay(), repeat(step, n)
        waited = run_delay() - before
        ran.append(1e6 * (t - waited) / n)
        if waited < 0.01 * t:
            clean.append(1e6 * t / n)
    contended = len(clean) < 3
    return row_of(ran if contended else clean, "us", len(ran), contended)


# ---- networks ----------------------------------------------------------------------------------------

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


NETWORKS = {  # name: model, input shape, classes (0: a regression)
    "xor-2-3-bn-2-b64": (xor_net, (64, 2), 2),
    "mlp-1-256-1-b16": (curve_net, (16, 1), 0),
    "mlp-784-256-10-b64": (digit_net, (64, 784), 10),
    "mlp-784-256-10-b1024": (digit_net, (1024, 784), 10),
    "lenet-b64": (lenet, (64, 1, 28, 28), 10),
    "vgg-bn-b64": (vgg, (64, 3, 32, 32), 10),
}


def layouts(shape):
    """Returns the memory formats to try for an input."""
    return ("", "channels-last") if len(shape) == 4 else ("",)


def placed(thing, layout):
    return thing.contiguous(memory_format=torch.channels_last) if layout else thing


def train_variant(make, shape, classes, layout, foreach):
    model = make().to(memory_format=torch.channels_last) if layout else make()
    x = placed(torch.randn(shape), layout)
    y = torch.randint(0, classes, (shape[0],)) if classes else x * x
    criterion = F.cross_entropy if classes else F.mse_loss
    opt = torch.optim.Adam(model.parameters(), lr=1e-4, foreach=foreach)

    def step():
        opt.zero_grad(set_to_none=True)
        criterion(model(x), y).backward()
        opt.step()
    return step


def train(name):
    make, shape, classes = NETWORKS[name]
    for layout in layouts(shape):
        for foreach in (False, True):
            label = " ".join(filter(None, ["eager", layout, "foreach" if foreach else ""]))
            yield label, lambda l=layout, f=foreach: train_variant(make, shape, classes, l, f)


def forward_variant(make, shape, layout, optimised):
    model = make().eval()
    x = torch.randn(shape)
    if layout:
        model, x = model.to(memory_format=torch.channels_last), placed(x, layout)
    if optimised:
        model = torch.jit.optimize_for_inference(torch.jit.script(model))

    def step():
        with torch.inference_mode():
            return model(x)
    return step


def forward(name):
    make, shape, _ = NETWORKS[name]
    for layout in layouts(shape):
        yield f"inference mode {layout}".strip(), lambda l=layout: forward_variant(make, shape, l, False)
        yield f"optimised script {layout}".strip(), lambda l=layout: forward_variant(make, shape, l, True)


# ---- arrays ------------------------------------------------------------------------------------------

def chain(a, x, b):
    return torch.tanh(a * x + b) * torch.sigmoid(x) + torch.exp(-x * x)


def scripted_chain(x):
    f, a, b = torch.jit.script(chain), torch.tensor(1.3), torch.tensor(0.2)
    return lambda: f(a, x, b)


def value(f):
    def step():
        with torch.inference_mode():
            return f()
    return step


def gradient(f, inputs, seed):
    for t in inputs:
        t.requires_grad_()

    def step():
        for t in inputs:
            t.grad = None
        y = f()
        y.backward(seed)
        return y
    return step


def chain_value(n, script):
    x = torch.randn(n)
    return value(scripted_chain(x) if script else lambda: chain(1.3, x, 0.2))


def chain_gradient(n, script):
    x = torch.randn(n)
    return gradient(scripted_chain(x) if script else lambda: chain(1.3, x, 0.2), [x], torch.ones(n))


def double_chain():
    x = torch.randn(10 ** 6, dtype=torch.float64)
    return value(lambda: chain(1.3, x, 0.2))


def chains(build, n):
    yield "eager", lambda: build(n, False)
    yield "script", lambda: build(n, True)


def rows_1000(f):
    x = torch.randn(1024, 1000)
    return value(lambda: f(x))


def crossentropy(with_gradient):
    x, y = torch.randn(1024, 1000), torch.randint(0, 1000, (1024,))
    f = lambda: F.cross_entropy(x, y)
    return gradient(f, [x], None) if with_gradient else value(f)


def layernorm(with_gradient):
    x, w, b = torch.randn(8192, 768), torch.ones(768), torch.zeros(768)
    f = lambda: F.layer_norm(x, (768,), w, b)
    return gradient(f, [x, w, b], torch.ones(8192, 768)) if with_gradient else value(f)


def groupnorm():
    x, w, b = torch.randn(32, 64, 56, 56), torch.ones(64), torch.zeros(64)
    return gradient(lambda: F.group_norm(x, 8, w, b), [x, w, b], torch.ones(32, 64, 56, 56))


def gather_elements():
    index = torch.randint(4096, (4096, 4096))
    return matrix(lambda x: torch.gather(x, 1, index))


CONVOLUTIONS = {  # name: side, channels of x and of y, images, kernel, stride, groups
    "3x3-64x64-56-b4": (56, 64, 64, 4, 3, 1, 1), "3x3-64x64-56-b1": (56, 64, 64, 1, 3, 1, 1),
    "1x1-256x64-56-b4": (56, 256, 64, 4, 1, 1, 1), "1x1-stride-2-128x256-28-b4": (28, 128, 256, 4, 1, 2, 1),
    "depthwise-3x3-64-56-b4": (56, 64, 64, 4, 3, 1, 64),
    "depthwise-5x5-stride-2-64-28-b4": (28, 64, 64, 4, 5, 2, 64),
    "32-groups-3x3-512x512-28-b4": (28, 512, 512, 4, 3, 1, 32)}


def convolutions(name, gradient, last):
    side, inner, outer, images, kernel, stride, groups = CONVOLUTIONS[name]
    order = torch.channels_last if last else torch.contiguous_format
    x = torch.randn(images, inner, side, side).to(memory_format=order).requires_grad_(gradient)
    w = torch.randn(outer, inner // groups, kernel, kernel).to(memory_format=order).requires_grad_(gradient)
    forward = lambda: F.conv2d(x, w, stride=stride, padding=kernel // 2, groups=groups)
    if not gradient:
        return value(forward)
    g = torch.ones_like(forward())
    return lambda: torch.autograd.grad(forward(), (x, w), g)


def convolution_variants(name, gradient):
    for label, last in (("eager", False), ("eager channels-last", True)):
        yield label, lambda last=last: convolutions(name, gradient, last)


def matrix(f):
    x = torch.randn(4096, 4096)
    return value(lambda: f(x))


def product(m, n, k, transposed):
    """Makes the product of m×k and k×n matrices; in row-major order it is n×k times k×m."""
    x, w = torch.randn(n, k), torch.randn(m, k) if transposed else torch.randn(k, m)
    return value((lambda: torch.matmul(x, w.t())) if transposed else (lambda: torch.matmul(x, w)))


def embedding(gradient):
    w = torch.randn(30000, 128, requires_grad=gradient)
    index = torch.randint(30000, (8192,))
    g = torch.ones(8192, 128)
    if not gradient:
        return value(lambda: F.embedding(index, w))

    def step():
        y = F.embedding(index, w)
        return y, torch.autograd.grad(y, w, g)
    return step


# ---- starting ----------------------------------------------------------------------------------------

def start(want_memory):
    values = []
    for _ in range(7):
        begin = time.monotonic()
        out = subprocess.run([sys.executable, __file__, "--first-prediction"], check=True,
                             stdout=subprocess.PIPE, text=True).stdout.split()
        values.append(float(out[1]) / 1024 if want_memory else 1e6 * (float(out[0]) - begin))
    return row_of(values, "MiB" if want_memory else "us")


# ---- the table ---------------------------------------------------------------------------------------

def one(make):
    """Makes a case with a single variant."""
    return lambda: iter([("eager", make)])


def cases():
    table = {}
    for name in NETWORKS:
        table[f"train/{name}"] = lambda n=name: train(n)
        table[f"record/{name}"] = table[f"train/{name}"]  # cflux records the step, which gives the same results
        table[f"forward/{name}"] = lambda n=name: forward(n)
    for label, n in (("1e4", 10 ** 4), ("1e6", 10 ** 6), ("25e6", 25 * 10 ** 6)):
        table[f"chain/{label}"] = lambda n=n: chains(chain_value, n)
        table[f"chain/{label}-gradient"] = lambda n=n: chains(chain_gradient, n)
    table["chain/1e6-float64"] = one(double_chain)
    table["random/normal-16e6"] = one(lambda: value(lambda: torch.randn(16000000)))
    table["random/uniform-16e6"] = one(lambda: value(lambda: torch.rand(16000000)))
    table["rows/groupnorm-56x56x64x32-gradient"] = one(groupnorm)
    table["rows/softmax-1000x1024"] = one(lambda: rows_1000(lambda x: F.softmax(x, 1)))
    table["rows/logsumexp-1000x1024"] = one(lambda: rows_1000(lambda x: torch.logsumexp(x, 1)))
    for suffix, g in (("", False), ("-gradient", True)):
        table[f"rows/crossentropy-1000x1024{suffix}"] = one(lambda g=g: crossentropy(g))
        table[f"rows/layernorm-768x8192{suffix}"] = one(lambda g=g: layernorm(g))
    for label, d in (("contiguous", 1), ("strided", 0)):
        table[f"matrix/sum-4096-{label}"] = one(lambda d=d: matrix(lambda x: x.sum(d)))
        table[f"matrix/max-4096-{label}"] = one(lambda d=d: matrix(lambda x: torch.amax(x, d)))
        table[f"matrix/var-4096-{label}"] = one(lambda d=d: matrix(lambda x: x.var(d)))
        table[f"matrix/argmax-4096-{label}"] = one(lambda d=d: matrix(lambda x: x.argmax(d)))
        table[f"matrix/cumsum-4096-{label}"] = one(lambda d=d: matrix(lambda x: x.cumsum(d)))
    table["matrix/gather-elements-4096"] = one(gather_elements)
    table["matrix/bias-4096"] = one(lambda: matrix(lambda x, b=torch.randn(4096): x + b))
    table["matrix/transpose-4096"] = one(lambda: matrix(lambda x: x.t().contiguous()))
    for suffix, g in (("", False), ("-gradient", True)):
        table[f"embedding/128x30000-8192{suffix}"] = one(lambda g=g: embedding(g))
    for name in CONVOLUTIONS:
        for suffix, g in (("", False), ("-gradient", True)):
            table[f"conv/{name}{suffix}"] = lambda n=name, g=g: convolution_variants(n, g)
    for text in ("2x64x3", "64x16x1", "1x256x16", "4096x1x4096", "4096x1x4096-tn", "512x1x512", "512x1x512-tn", "10x64x256", "256x64x784", "64x256x784",
                 "784x256x64-tn", "256x1024x784", "512x512x512", "1024x768x256", "2048x2048x2048"):
        m, n, k = (int(v) for v in text.split("-")[0].split("x"))
        table[f"matmul/{text}"] = one(lambda m=m, n=n, k=k, t=text: product(m, n, k, t.endswith("-tn")))
    table["start/first-prediction"] = lambda: iter([("eager", False)])
    table["start/resident"] = lambda: iter([("eager", True)])
    return table


def measure(name, variant, make, seconds):
    """Returns the row of a case, or a row of kind failure with the message."""
    row = {"row": "case", "case": name, "variant": variant, "backend": "torch",
           "threads": torch.get_num_threads()}
    try:
        torch.manual_seed(1)
        row.update(start(make) if name.startswith("start/") else sample(make(), seconds))
    except (RuntimeError, OSError, subprocess.SubprocessError) as e:
        row = {"row": "failure", "case": name, "variant": variant, "message": str(e)[:200]}
    return row


def emit(row):
    print(json.dumps(row), flush=True)


def blas():
    """Returns the name of the loaded BLAS library. The reference BLAS is too slow for a fair comparison."""
    for line in open("/proc/self/maps"):
        base = os.path.basename(line.split()[-1])
        if base.startswith(("libopenblas", "libmkl", "libblis")):
            return base
    return "reference BLAS: matrix products are not comparable"


def header():
    torch.randn(8, 8) @ torch.randn(8, 8)
    capability = torch.__config__.show().split("CPU capability usage: ")[-1].split("\n")[0]
    return {"row": "header", "program": "PyTorch", "version": torch.__version__, "isa": capability,
            "blas": blas(), "threads": torch.get_num_threads(),
            "environment": {k: os.environ[k] for k in sorted(os.environ)
                            if k.startswith(("ATEN_", "OPENBLAS_", "OMP_", "MALLOC_", "GLIBC_"))}}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--serve", action="store_true")
    parser.add_argument("part", nargs="*")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    emit(header())
    table = cases()
    names = sys.stdin if args.serve else [n for n in table if not args.part
                                          or any(p in n for p in args.part)]
    for name in names:
        name = name.strip()
        for variant, make in table[name]() if name in table else ():
            emit(measure(name, variant, make, args.seconds))
        if args.serve:
            emit({"row": "end", "case": name})


if __name__ == "__main__":
    main()
