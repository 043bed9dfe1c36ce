#!/usr/bin/env python3
"""Counts the host's instructions of a training step on a simulated GPU whose launches cost nothing
(SIM_NOTHING, tests/sim/sim.h): recording, planning, and the replay of the plan's graph.

The count of one training step is the difference of two runs with different numbers of training steps. The
instructions of the simulated driver itself are subtracted. A training step may take 20 µs (MLP), 40 µs (LeNet)
and 150 µs (VGG), of which the backend 3 µs; the limits below are these times for a processor that
executes 4 instructions in a nanosecond. VGG has a sixteenth of its channels, which changes no launch.

On Metal, encoding a kernel may take half a microsecond, with everything around it in the backend.

At the end the MLP is trained with kernels that compute: a training step may take half a second of the processor's time.

Usage: check_host.py RUNNER
"""
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile

PER_US = 4000
CASES = [  # name, options, training steps of both runs, µs of a training step
    ("gpu/train-mlp-1-256-1-b16", [], 20, 140, 20),
    ("gpu/train-mlp-784-256-10-b64", [], 20, 140, 20),
    ("gpu/train-lenet-b128", [], 20, 120, 40),
    ("gpu/train-vgg-b256-f32", ["--tiny"], 20, 80, 150),
]
BACKEND_US = 3
COMPUTED, COMPUTED_SECONDS = "gpu/train-mlp-784-256-10-b64", 0.5
ENCODED, ENCODING_US = "gpu/train-mlp-784-256-10-b64", 0.5
CUDA = ("cuda:0", "libcuda.so.1", "libcflux-cuda.so")
METAL = ("metal:0", "libmetal-simulated.so", "libcflux-metal.so")
LAUNCH = "compute_dispatch"  # the simulated Metal's function


def entered(path, driver, backend):
    """From callgrind's file: the instructions of all calls into the driver, and into the backend,
    each with everything that is called there; and the number of launches on Metal."""
    objects, functions, cost, launches = {}, {}, {driver: 0, backend: 0}, 0
    here = there = called = ""
    calls = False

    def name(text, names):
        number, full = re.match(r"(\(\d+\))(?: (.*))?$", text.strip()).groups()
        names.setdefault(number, full)
        return names[number]

    with open(path, encoding="utf-8") as f:
        for line in f:
            if line.startswith("ob="):
                here = name(line[3:], objects)
            elif line.startswith("cob="):
                there = name(line[4:], objects)
            elif line.startswith("fn="):
                name(line[3:], functions)
            elif line.startswith("cfn="):
                called = name(line[4:], functions)
            elif line.startswith("calls="):
                launches += int(line[6:].split()[0]) if called == LAUNCH else 0
                calls = True
            elif calls:  # the line of the call: position, instructions
                for library in cost:
                    if there and there.endswith(library) and not here.endswith(library):
                        cost[library] += int(line.split()[1])
                calls, there = False, ""
    return cost[driver], cost[backend], launches


def environment(where):
    plugins = os.environ["FX_PLUGIN_PATH"] + ("/tests/sim/metal" if where == METAL else "")
    return {**os.environ, "FX_PLUGIN_PATH": plugins}


def fill_cache(runner, case, options, where=CUDA):
    """Compiles the kernels, which costs the host too."""
    subprocess.run([runner, "--device", where[0], *options, "--count", case, "3"], check=True, stderr=subprocess.DEVNULL,
                   env=environment(where))


def run(runner, case, options, steps, where=CUDA):
    """Instructions of the process, of the driver and of the backend without the driver, and launches."""
    device, *libraries = where
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "callgrind")
        ran = subprocess.run(["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", runner, "--device", device,
                              *options, "--count", case, str(steps)], text=True, capture_output=True, check=False,
                             env=environment(where))
        collected = re.search(r"Collected : (\d+)", ran.stderr)
        if ran.returncode != 0 or not collected:
            sys.exit(f"{case}: {ran.stdout}{ran.stderr}")
        driver, backend, launches = entered(out, *libraries)
        return int(collected.group(1)), driver, backend - driver, launches


def processor_seconds(runner, case, steps):
    """The processor's time of a run whose simulated kernels compute."""
    def used():
        return sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
    before = used()
    subprocess.run([runner, "--device", "cuda:0", "--count", case, str(steps)], check=True, stderr=subprocess.DEVNULL,
                   env={**os.environ, "SIM_NOTHING": "0"})
    return used() - before


def main():
    runner, wrong = sys.argv[1], 0
    if not shutil.which("valgrind"):
        print("skipped: valgrind is not installed")
        return 0
    for case, options, few, many, limit in CASES:
        fill_cache(runner, case, options)
        a, b = run(runner, case, options, few), run(runner, case, options, many)
        every, driver, backend, _ = ((y - x) / (many - few) for x, y in zip(a, b))
        host = every - driver
        print(f"{case}: {host:.0f} instructions, {host / PER_US:.1f} of {limit} µs; backend {backend:.0f}, "
              f"{backend / PER_US:.1f} of {BACKEND_US} µs")
        # A count of a few thousand would mean that no training step was run.
        wrong += not 10000 < host < limit * PER_US or not 500 < backend < BACKEND_US * PER_US
    fill_cache(runner, ENCODED, [], METAL)
    few, many = 20, 60
    a, b = (run(runner, ENCODED, [], steps, METAL) for steps in (few, many))
    launches, encoding = (b[3] - a[3]) / (many - few), (b[2] - a[2]) / (b[3] - a[3])
    print(f"{ENCODED} on Metal: {launches:.1f} kernels, {encoding:.0f} instructions to encode one, "
          f"{encoding / PER_US:.2f} of {ENCODING_US} µs")
    wrong += launches < 5 or not 50 < encoding < ENCODING_US * PER_US
    few, many = (processor_seconds(runner, COMPUTED, steps) for steps in (5, 15))
    print(f"{COMPUTED} with simulated kernels: {(many - few) / 10:.3f} of {COMPUTED_SECONDS} s")
    # A training step that computes nothing takes 10 µs.
    wrong += not 0.001 < (many - few) / 10 < COMPUTED_SECONDS
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
