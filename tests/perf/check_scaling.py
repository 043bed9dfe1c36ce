#!/usr/bin/env python3
"""bench/scaling.py: cases with a known time, the published sizes of the networks, and the buckets of src/optim/average.c.

  check_scaling.py
"""
import math
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench"))
import scaling  # noqa: E402

MIB = 1 << 20
checks = 0


def check(what, got, wanted):
    global checks
    checks += 1
    close = math.isclose(got, wanted, rel_tol=1e-12) if isinstance(wanted, float) else got == wanted
    if not close:
        sys.exit(f"{what}: got {got}, expected {wanted}")


def check_networks():
    """The numbers of parameters that torchvision's and OpenAI's models have, and the multiplications of ResNet-50 that torchvision states."""
    for name, layers, wanted in (("ResNet-50", scaling.resnet(3, 4, 6, 3), 25557032), ("ResNet-101", scaling.resnet(3, 4, 23, 3), 44549160),
                                 ("VGG-16", scaling.vgg16(), 138357544), ("GPT-2", scaling.gpt2(), 124439808)):
        check(f"parameters of {name}", scaling.parameters(layers), wanted)
        check(f"bytes of the buckets of {name}", sum(size for size, _ in scaling.buckets(layers)), 4 * wanted)
    check("10⁹ multiplications of ResNet-50", round(sum(layer.work for layer in scaling.resnet(3, 4, 6, 3)) / 1e9, 2), 4.09)


def check_buckets():
    with open(os.path.join(ROOT, "src", "optim", "average.c"), encoding="utf-8") as f:
        enum = re.search(r"enum \{ LEAST_BYTES = 1 << (\d+), MOST_BYTES = (\d+) << (\d+), SHARES = (\d+) \}", f.read())
    least, most, shift, shares = map(int, enum.groups())
    check("the sizes of average.c", (scaling.LEAST_BYTES, scaling.MOST_BYTES, scaling.SHARES), (1 << least, most << shift, shares))
    quarter = scaling.Layer((MIB // 16,), 1)  # 256 KiB
    check("four layers of 256 KiB fill a bucket; the last layer comes first", scaling.buckets([quarter] * 6), [(MIB, 4 / 6), (MIB // 2, 1.0)])
    check("a larger array is one bucket", scaling.buckets([quarter, scaling.Layer((MIB,), 2)]), [(4 * MIB, 2 / 3), (MIB // 4, 1.0)])


def check_steps():
    """One bucket, no bandwidth limit, everything hidden, and everything but the last bucket hidden."""
    one, rate, latency, compute = [scaling.Layer((1000,), 1)], 1e6, 1e-4, 0.3
    for n in (2, 3, 4, 1024):
        for during in (False, True):
            check("one bucket of 4000 bytes over a ring",
                  scaling.training_step(one, compute, lambda size, n=n: scaling.ring(n, size, rate, latency), during),
                  compute + 2 * (n - 1) / n * 4000 / rate + 2 * (n - 1) * latency)
    many = [scaling.Layer((MIB,), 1)] * 12  # buckets of 4 MiB
    check("a network that takes no time", scaling.training_step(many, compute, lambda size: scaling.ring(64, size, math.inf, 0)), compute)
    check("the last bucket remains", scaling.training_step(many, 1.0, lambda size: 0.05), 1.05)
    check("buckets that take longer than the backward pass", scaling.training_step(many, 1.0, lambda size: 0.5), 1 / 3 + 2 / 3 / 12 + 12 * 0.5)
    check("after the backward pass", scaling.training_step(many, 1.0, lambda size: 0.5, during=False), 7.0)
    check("without a free core", scaling.training_step(many, 1.0, lambda size: 0.01, busy=0.01 / (4 * MIB)), 1 + 11 * 0.01 + 0.01)
    check("a model without arrays", scaling.training_step([], 1.0, None), 1.0)


def check_costs():
    cluster = scaling.Cluster(8, 2e11, 1e10)
    size = 64 * MIB
    check("one GPU", scaling.nccl(cluster, 1, size), 0.0)
    check("8 GPUs of a node are a ring", scaling.nccl(cluster, 8, size), 1e-6 * (8.4 + 14 * 3.4) + 2 * 7 / 8 * size / 2e11)
    check("512 nodes are a tree: 7 GPUs of a chain and 9 levels", scaling.nccl(cluster, 4096, 256 * MIB),
          1e-6 * 2 * (7 * 28 + 9 * 50) + 2 * 256 * MIB / 9e9)
    for n, times in ((2, 1.0), (4, 1.5), (8, 1.75)):
        check(f"MPI with {n} hosts", scaling.over_mpi(n, 1000, 1e6, 0.5), 0.5 + times * 1e-3)


def check_monotone():
    """More ranks never take less time, and a faster network never more."""
    for name, layers, cluster, compute, batches in scaling.NETWORKS:
        for during in (False, True):
            shares = [scaling.efficiency(layers, cluster, compute, batches, 2 ** k, during) for k in range(13)]
            check(f"{name}: decreasing, of one rank 1", (sorted(shares, reverse=True) == shares, shares[0]), (True, 1.0))
            more = [scaling.efficiency(layers, cluster, compute, batches, 512, during, links) for links in (1, 2, 4, 8)]
            check(f"{name}: increasing with the links", sorted(more), more)
        check(f"{name}: during the backward pass is faster than after it", shares[9] > scaling.efficiency(layers, cluster, compute, batches, 512, False), True)


def check_comparison():
    """The table of a measurement that equals the prediction, and of one that is twice as long."""
    latency, size = 0.001, 4 * 12 * 512 * 513
    found = {(2, None, "scaling/exchange-4"): latency, (2, None, "scaling/exchange-12m"): latency}
    wire = size / (100e6 / 8 * scaling.ETHERNET)
    found[2, 100, "scaling/exchange-12m"] = latency + wire
    found[2, 100, "scaling/alone-b640"] = 24.0  # hides all but the last of 12 buckets
    found[2, 100, "scaling/train-b640"] = 2 * (24 + latency + wire / 12)
    check("measured and predicted", list(scaling.comparison(found))[2:],
          [f"| 2 | 100 Mb/s | exchange-12m | {1e3 * (latency + wire):.0f} ms | {1e3 * (latency + wire):.0f} ms | +0 % |",
           f"| 2 | 100 Mb/s | train-b640 | {2e3 * (24 + latency + wire / 12):.0f} ms | {1e3 * (24 + latency + wire / 12):.0f} ms | -50 % |"])


check_networks()
check_buckets()
check_steps()
check_costs()
check_monotone()
check_comparison()
assert len(list(scaling.predictions())) == 2 + 8 + 1 + 2 + 3
assert checks >= 53, checks
print(f"{checks} checks of scaling.py")
