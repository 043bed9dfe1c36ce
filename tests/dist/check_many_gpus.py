#!/usr/bin/env python3
"""examples/many_gpus on three simulated devices prints the losses of one device, of the CPU, and of seven and eight
copies on the CPU, within 1e-5, and its losses fall. By NCCL the losses are the same, and if an
operation of NCCL fails, that is the error."""
import os
import re
import subprocess
import sys

program = sys.argv[1]
EPOCHS = 8


def run(devices, **settings):
    return subprocess.run([program, str(EPOCHS), *devices], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          check=False, env={**os.environ, **settings})


def losses(*devices, **settings):
    done = run(devices, **settings)
    if done.returncode != 0:
        sys.exit(f"{' '.join(devices)}: {done.stderr}")
    named = re.findall(r"^device: (\S+)$", done.stdout, re.M)
    if [name.lower() for name in named] != list(devices):
        sys.exit(f"asked for {devices}, it used {named}")
    return [float(value) for value in re.findall(r"^epoch \d+: loss ([0-9.]+)$", done.stdout, re.M)]


GPUS = ("cuda:0", "cuda:1", "cuda:2")
three, one, cpu = losses(*GPUS), losses("cuda:1"), losses("cpu")
nccl = losses(*GPUS, FX_NCCL_LIBRARY="")
failed = run(GPUS, FX_NCCL_LIBRARY="", SIM_FAIL="ncclAllReduce@8=1")
if failed.returncode == 0 or "average: NCCL: CUDA:1: ncclAllReduce failed: unhandled cuda error" not in failed.stderr:
    sys.exit(f"NCCL failed, and the program did not: {failed.stdout}{failed.stderr}")
copies = [losses(*["cpu"] * n) for n in (7, 8)]
print(three, one, cpu, *copies, sep="\n")
if len(three) != EPOCHS or not three[-1] < 0.9 * three[0]:
    sys.exit("the losses do not fall")
for other in (one, cpu, nccl, *copies):
    if max(abs(a - b) for a, b in zip(three, other)) > 1e-5:
        sys.exit("several devices do not have the losses of one")
