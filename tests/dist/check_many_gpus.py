#!/usr/bin/env python3
"""examples/many_gpus on three simulated devices prints the losses of one device, of the CPU, and of seven and eight
copies on the CPU, within 1e-5, and its losses fall."""
import re
import subprocess
import sys

program = sys.argv[1]
EPOCHS = 8


def losses(*devices):
    done = subprocess.run([program, str(EPOCHS), *devices], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(devices)}: {done.stderr}")
    named = re.findall(r"^device: (\S+)$", done.stdout, re.M)
    if [name.lower() for name in named] != list(devices):
        sys.exit(f"asked for {devices}, it used {named}")
    return [float(value) for value in re.findall(r"^epoch \d+: loss ([0-9.]+)$", done.stdout, re.M)]


three, one, cpu = losses("cuda:0", "cuda:1", "cuda:2"), losses("cuda:1"), losses("cpu")
copies = [losses(*["cpu"] * n) for n in (7, 8)]
print(three, one, cpu, *copies, sep="\n")
if len(three) != EPOCHS or not three[-1] < 0.9 * three[0]:
    sys.exit("the losses do not fall")
for other in (one, cpu, *copies):
    if max(abs(a - b) for a, b in zip(three, other)) > 1e-5:
        sys.exit("several devices do not have the losses of one")
