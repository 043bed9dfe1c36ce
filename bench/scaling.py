#!/usr/bin/env python3
"""Predicts the time of data-parallel training, and compares the predictions with runs over slowed links.

Without an exchange a training step takes T. A third of T is the forward pass. In the rest, the backward pass, each layer takes a share in
proportion to its multiplications. cflux joins the gradients into buckets (src/optim/average.c) and exchanges them one after the
other. The exchange of a bucket begins when its last gradient has been computed and the previous bucket has arrived:

    begin(k) = max(ready(k), end(k−1))    end(k) = begin(k) + cost(bytes(k))    training step = end(last)

With an exchange of all buckets after the backward pass, a training step takes T + Σ cost(bytes(k)). The efficiency of n ranks with a batch of
fixed size each is T / training step. Two functions give the cost of an all-reduce: `nccl` for GPUs, and `over_mpi` for host memory of
several machines.

Not in the model: ranks that are slower than others at times, other traffic, loading of data, and the time of the optimiser.

Usage: scaling.py                              prints the predictions of docs/performance.md
       scaling.py --measure BUILD [--rounds N] [--seconds S] >FILE
                                               measures bench_runner's cases scaling/ on hosts that are network namespaces (needs root)
       scaling.py --compare FILE               prints measured and predicted times, and the share of the exchange that a training step hides
"""
import argparse
import collections
import json
import math
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))

# ---- networks --------------------------------------------------------------------------------------------------------

# The lengths of a layer's arrays in the order of the model, and its multiplications for one observation (or token).
Layer = collections.namedtuple("Layer", "arrays work")


def convolution(inputs, outputs, width, size, more=1):
    """A layer on size × size pixels; `more`: arrays of one number for each output (a bias, or the two arrays of a batch norm)."""
    weight = inputs * outputs * width * width
    return Layer((weight,) + (outputs,) * more, weight * size * size)


def dense(inputs, outputs):
    return Layer((inputs * outputs, outputs), inputs * outputs)


def resnet(*blocks):
    """ResNet-50 (3, 4, 6, 3) or ResNet-101 (3, 4, 23, 3): He et al., arXiv:1512.03385, with the strides of torchvision."""
    layers, inputs, before = [convolution(3, 64, 7, 112, 2)], 64, 56
    for stage, n in enumerate(blocks):
        width, size = 64 << stage, 56 >> stage
        for block in range(n):
            layers += [convolution(inputs, width, 1, before, 2), convolution(width, width, 3, size, 2), convolution(width, 4 * width, 1, size, 2)]
            if block == 0:
                layers.append(convolution(inputs, 4 * width, 1, size, 2))
            inputs, before = 4 * width, size
    return layers + [dense(inputs, 1000)]


def vgg16():
    """Simonyan and Zisserman, arXiv:1409.1556."""
    layers, inputs = [], 3
    for size, outputs, n in ((224, 64, 2), (112, 128, 2), (56, 256, 3), (28, 512, 3), (14, 512, 3)):
        for _ in range(n):
            layers.append(convolution(inputs, outputs, 3, size))
            inputs = outputs
    return layers + [dense(7 * 7 * 512, 4096), dense(4096, 4096), dense(4096, 1000)]


def gpt2(vocabulary=50257, context=1024, width=768, blocks=12):
    """The model of 124 M parameters, as in examples/gpt_model.h. The embedding also computes the scores, so its gradient is complete last."""
    norm, square = Layer((width, width), 0), width * width
    attention = Layer((3 * square, 3 * width, square, width), 4 * square + context * width)
    layers = [Layer((vocabulary * width,), 0), Layer((context * width,), 0)]
    layers += [norm, attention, norm, dense(width, 4 * width), dense(4 * width, width)] * blocks
    return layers + [norm, Layer((), vocabulary * width)]


def parameters(layers):
    return sum(n for layer in layers for n in layer.arrays)


# ---- a training step -------------------------------------------------------------------------------------------------

LEAST_BYTES, MOST_BYTES, SHARES = 1 << 20, 25 << 20, 16  # of average.c
FLOAT = 4  # bytes of an element: gradients in 16 bits are sent as Float32 too
FORWARD = 1 / 3


def buckets(layers):
    """Returns the bytes of each bucket, and the share of the backward pass after which its gradients are complete."""
    arrays = [(n * FLOAT, k) for k, layer in enumerate(layers) for n in layer.arrays]
    full = min(max(parameters(layers) * FLOAT // SHARES, LEAST_BYTES), MOST_BYTES)
    all_work = sum(layer.work for layer in layers) or 1
    found = []
    for size, k in reversed(arrays):
        if not found or found[-1][0] >= full:
            found.append([0, k])
        found[-1] = [found[-1][0] + size, k]
    return [(size, sum(layer.work for layer in layers[k:]) / all_work) for size, k in found]


def training_step(layers, compute, cost, during=True, busy=0.0):
    """Returns the seconds of a training step. compute: T; cost(bytes): seconds of an all-reduce; during: buckets are exchanged during the backward
    pass, not after it; busy: seconds of a core for each byte, which the exchange takes from the computation because no other core is free."""
    end = taken = 0
    for size, share in buckets(layers):
        ready = compute * (FORWARD + (1 - FORWARD) * share if during else 1) + taken
        end = max(end, ready) + cost(size)
        taken += busy * size if during else 0
    return max(end, compute)


# ---- the cost of an all-reduce ---------------------------------------------------------------------------------------

# Nodes with GPUs: the number of GPUs of a node, and the bytes a second that the library reaches inside a node and between nodes.
Cluster = collections.namedtuple("Cluster", "gpus inside between")


def ring(n, size, rate, latency):
    """2(n−1) messages of size/n bytes, one after the other."""
    return 2 * (n - 1) * (latency + size / n / rate)


# The constants of NCCL's own model for the choice of a method (github.com/NVIDIA/nccl, src/graph/tuning.cc at 01afd20a), for its protocols LL128
# and Simple: microseconds at the start, for a message inside a node and for one between nodes; the share of the rate. If a ring with
# Simple passes several nodes, its microseconds are multiplied by 1.9 (PLATEAU).
RINGS = ((10.0, 1.9, 4.0, 0.92), (8.4, 3.4, 9.6, 1.0))
PLATEAU = 1.0, 1.9
TREES = ((4.4, 1.2, 8.5, 0.9 * 0.915), (0.0, 28.0, 50.0, 0.9))
# The share of a tree's rate that it reaches with arrays of 1, 2, 4, … 128 MiB.
TREE_SHARES = ((0.6, 0.6, 0.7, 0.7, 0.8, 0.9, 0.9, 1.0), (0.5, 0.5, 0.5, 0.6, 0.6, 0.7, 0.8, 0.9))


def nccl(cluster, n, size):
    """The fastest of a ring over all GPUs and of a tree over the nodes, whose leaves are chains of the GPUs of a node."""
    nodes = -(-n // cluster.gpus)
    rate = cluster.inside if nodes == 1 else min(cluster.inside, cluster.between)
    if n == 1:
        return 0.0
    found = [1e-6 * (more if nodes > 1 else 1) * (base + 2 * (n - nodes) * inside + 2 * (nodes - 1) * between) + ring(n, size, share * rate, 0)
             for (base, inside, between, share), more in zip(RINGS, PLATEAU)]
    at = max(0, int(math.log2(max(size, 1))) - 20)
    for (base, inside, between, share), shares in zip(TREES, TREE_SHARES):
        reached = shares[at] if at < len(shares) else 1.0
        chain = min(n, cluster.gpus) - 1
        found.append(1e-6 * (base + 2 * (chain * inside + math.ceil(math.log2(nodes)) * between)) + 2 * size / (share * reached * rate))
    return min(found)


# A small all-reduce over MPI, by which all ranks agree on an operation before NCCL begins it: seconds for each message. An assumption.
AGREEMENT = 5e-6


def on_gpus(cluster, n):
    """Returns the function that gives the cost of a bucket over NCCL."""
    return lambda size: 2 * math.ceil(math.log2(n)) * AGREEMENT + nccl(cluster, n, size)


def over_mpi(n, size, rate, latency):
    """`reduce_shares` of mpi_transport.c: each rank sends its parts to all others, and then the sum of its own part."""
    return 2 * (n - 1) / n * size / rate + latency if n > 1 else 0.0


# ---- predictions -----------------------------------------------------------------------------------------------------

LINE = 0.9  # share of a network's line rate that NCCL reaches. An assumption
GB, GBIT = 1e9, 1e9 / 8
A100 = Cluster(8, 200 * GB, 100 * GBIT * LINE)  # bus bandwidth of 8 A100: nccl-tests, issue 149
H100 = Cluster(8, 370 * GB, 100 * GBIT * LINE)  # of 8 H100, ring: nccl-tests, issue 272
HOROVOD = Cluster(4, 10 * GB, 25 * GBIT * LINE)  # 128 servers with 4 P100: Horovod's docs/benchmarks.rst; the rate inside is an assumption
RANKS = 8, 64, 512, 4096

# Name, layers, nodes, seconds of a training step on one GPU, and the number of batches whose gradients are added up before the exchange.
NETWORKS = (("ResNet-50, 256 images, TF32, A100", resnet(3, 4, 6, 3), A100, 256 / 938, 1),
            ("ResNet-50, 256 images, mixed precision, A100", resnet(3, 4, 6, 3), A100, 256 / 2470, 1),
            ("GPT-2, 8 × 1024 tokens, BFloat16, H100", gpt2(), H100, 23.966e-3, 1),
            ("GPT-2, 8 batches of 8 × 1024 tokens", gpt2(), H100, 23.966e-3, 8))
# Horovod's measurements: name, layers, seconds of 64 images on a P100, ranks, efficiency.
HOROVODS = (("VGG-16", vgg16(), 64 / 154, 128, 0.79), ("VGG-16", vgg16(), 64 / 154, 512, 0.68),
            ("ResNet-101", resnet(3, 4, 23, 3), 64 * (1 / 219 + 1 / 91.8) / 2, 512, 0.90))


def efficiency(layers, cluster, compute, batches, n, during, links=1):
    """links: the network links of a node."""
    one = training_step(layers, compute, on_gpus(cluster._replace(between=links * cluster.between), n), during)
    return batches * compute / ((batches - 1) * compute + one)


def percent(*shares):
    return " / ".join(f"{100 * x:.0f}" for x in shares)


def line(*cells):
    return "| " + " | ".join(map(str, cells)) + " |"


def predictions():
    yield line("network of each GPU", "links of a node", *(f"{n:,} ranks" for n in RANKS))
    yield "|---|--:|" + "--:|" * len(RANKS)
    for name, layers, cluster, compute, batches in NETWORKS:
        for links in (1, 8):
            yield line(name, links, *(percent(*(efficiency(layers, cluster, compute, batches, n, during, links) for during in (False, True)))
                                      for n in RANKS))
    yield ""
    yield line("network", "ranks", "Horovod, measured", "cflux, predicted: after the backward pass", "during it")
    yield "|---|--:|--:|--:|--:|"
    for name, layers, compute, n, measured in HOROVODS:
        yield line(name, n, percent(measured), *(percent(efficiency(layers, HOROVOD, compute, 1, n, during)) for during in (False, True)))


# ---- measurements over slowed links ----------------------------------------------------------------------------------

WIDTH, LAYERS = 512, 12  # of bench_scaling.c
DENSE = [dense(WIDTH, WIDTH)] * LAYERS
ETHERNET = 1448 / 1514  # bytes of data in a full TCP segment, divided by the bytes that count for the limit of the link
EXCHANGES = "scaling/exchange-4", "scaling/exchange-12m"
# Hosts, Mb/s (None: not limited), and cases.
RUNS = [(n, rate, EXCHANGES) for n in (2, 4, 8) for rate in (None, 500, 200)] + \
       [(n, rate, tuple(f"scaling/{kind}-b{batch}" for batch in batches for kind in ("alone", "train")))
        for n, rate, batches in ((2, 1000, (640,)), (2, 500, (640, 1280)), (2, 200, (640, 1280)), (4, 500, (320,)))] + \
       [(2, rate, (EXCHANGES[1], "scaling/exchange-1m", "scaling/alone-waiting", "scaling/train-waiting")) for rate in (None, 800, 500)]


def measure(a):
    sys.path.insert(0, os.path.join(HERE, os.pardir, "tests", "dist"))
    import hosts  # pylint: disable=import-outside-toplevel; only this needs the namespaces
    reason = hosts.enter()
    if reason:
        sys.exit(reason)
    build = os.path.abspath(a.measure)
    network = hosts.Hosts(max(n for n, _, _ in RUNS), build)
    output = os.path.join(network.folder, "output")
    for _ in range(a.rounds):
        for n, rate, cases in RUNS:
            for name in network.names:
                network.limit(name, rate)
            with open(output, "wb") as f:
                process = network.start(f, os.path.join(build, "tools", "cflux", "cflux"), "launch", "--launcher", "mpirun.openmpi", "-n", str(n),
                                        "--hosts", ",".join(network.names[:n]), os.path.join(build, "bench", "bench_runner"), "--no-onednn",
                                        "--processes", "--seconds", str(a.seconds), "--commit", a.commit, *cases)
            if process.wait():
                with open(output, encoding="utf-8") as f:
                    sys.exit(f.read())
            with open(output, encoding="utf-8") as f:
                for text in f:
                    if text.startswith("{"):
                        print(json.dumps({**json.loads(text), "rate": rate}), flush=True)
                    else:  # Open MPI warns now and then that it could not change a process group
                        print(text, end="", file=sys.stderr)


def read(path):
    """Returns the least median of each case, in seconds, by (hosts, Mb/s, case)."""
    found = {}
    with open(path, encoding="utf-8") as f:
        for row in map(json.loads, f):
            if row["row"] == "case":
                key = row["processes"], row["rate"], row["case"]
                found[key] = min(row["median"] * 1e-6, found.get(key, math.inf))
    return found


def predict(found, n, rate, case):
    """The time of a case over a slowed link. It is predicted from the rate, from exchanges over the link that is not limited (the latency, and the time of a
    core for each byte), and from the training step without an exchange."""
    size = FLOAT * parameters(DENSE)
    latency = found[n, None, EXCHANGES[0]]
    busy = (found[n, None, EXCHANGES[1]] - latency) / size

    def cost(bytes_):
        return over_mpi(n, bytes_, rate * 1e6 / 8 * ETHERNET, latency) + busy * bytes_
    if case == EXCHANGES[1]:
        return cost(size)
    return training_step(DENSE, found[n, rate, case.replace("train", "alone")], cost, busy=busy)


def comparison(found):
    yield line("hosts", "link", "case", "measured", "predicted", "error")
    yield "|--:|--:|---|--:|--:|--:|"
    for (n, rate, case), seconds in found.items():
        if rate and re.search(r"exchange-12m|train-b", case):
            predicted = predict(found, n, rate, case)
            yield line(n, f"{rate} Mb/s", case.split("/")[1], f"{1e3 * seconds:.0f} ms", f"{1e3 * predicted:.0f} ms", f"{100 * (predicted / seconds - 1):+.0f} %")


def hidden(found):
    """The share of the exchange that a training step hides: 1 − (with exchange − alone)/(exchange alone)."""
    yield line("hosts", "link", "case", "alone", "exchange alone", "with exchange", "hidden")
    yield "|--:|--:|---|--:|--:|--:|--:|"
    for (n, rate, case), seconds in found.items():
        if "train" in case and (n, rate, EXCHANGES[1]) in found:
            alone, exchange = found[n, rate, case.replace("train", "alone")], found[n, rate, EXCHANGES[1]]
            yield line(n, f"{rate} Mb/s" if rate else "unlimited", case.split("/")[1], *(f"{1e3 * t:.0f} ms" for t in (alone, exchange, seconds)),
                       f"{100 * (1 - (seconds - alone) / exchange):.0f} %")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--measure", metavar="BUILD")
    p.add_argument("--compare", metavar="FILE")
    p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--seconds", type=float, default=2)
    p.add_argument("--commit", default="unknown")
    a = p.parse_args()
    if a.measure:
        measure(a)
    else:
        found = read(a.compare) if a.compare else None
        print("\n".join([*comparison(found), "", *hidden(found)] if a.compare else predictions()))


if __name__ == "__main__":
    main()
