#!/usr/bin/env python3
"""Trains examples/digits on a simulated GPU and on the CPU, and compares the losses of all epochs.

They may differ by 1e-4, and by the rounding of the four digits that are printed.

Usage: check_digits.py DEVICE PROGRAM
"""
import os
import re
import subprocess
import sys
import tempfile

EPOCHS, TOLERANCE = 12, 1e-4


def train(program, environment):
    ran = subprocess.run([program], text=True, capture_output=True, check=False, env={**os.environ, **environment})
    if ran.returncode != 0:
        sys.exit(f"{program}: status {ran.returncode}: {ran.stdout}{ran.stderr}")
    return ran.stdout


def rounding(text):
    """Half a unit of the fourth digit."""
    return 0.5 * 10.0 ** (int(f"{float(text):e}".split("e")[1]) - 3)


def main():
    device, program = sys.argv[1:]
    outputs = []
    for backend in (device.split(":")[0], "CPU"):
        with tempfile.TemporaryDirectory() as project:
            with open(os.path.join(project, "LocalPreferences.toml"), "w", encoding="utf-8") as f:
                f.write(f'[Flux]\ngpu_backend = "{backend}"\n')
            outputs.append(train(program, {"CFLUX_PROJECT": project}))
    there, here = outputs
    wrong = [f"the output has no line \"device: {name}\"" for name, output in ((device, there), ("CPU", here))
             if f"device: {name}\n" not in output]
    losses = [re.findall(r"^epoch \d+/\d+ .* loss (\S+)", output, re.M) for output in (there, here)]
    wrong += [f"{len(each)} epochs, expected {EPOCHS}" for each in losses if len(each) != EPOCHS]
    for epoch, (a, b) in enumerate(zip(*losses), 1):
        if not abs(float(a) - float(b)) <= TOLERANCE + rounding(a) + rounding(b):
            wrong.append(f"epoch {epoch}: loss {a} on {device}, {b} on the CPU")
    accuracy = re.search(r"^test accuracy: ([0-9.]+) %$", there, re.M)
    if not accuracy or float(accuracy.group(1)) < 96:
        wrong.append(f"accuracy: {accuracy and accuracy.group(0)}, expected at least 96 %")
    print("\n".join(wrong) or f"{device}: the losses of {EPOCHS} epochs are those of the CPU, {accuracy.group(0)}")
    return len(wrong) > 0


if __name__ == "__main__":
    sys.exit(main())
