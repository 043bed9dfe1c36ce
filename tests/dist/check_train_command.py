#!/usr/bin/env python3
"""cflux train in several processes of each MPI that is installed saves the model of one process.

91 observations in batches of 44: the last batch has 3, fewer than 4 processes. Rank 0 alone prints and writes. A run is
resumed by another number of processes. Mistakes and failures of rank 1 are reported once. About 16 s for both MPIs.
Without an MPI and its plugin, the check prints a message and passes.
Usage: check_train_command.py build-folder
"""
import array
import json
import math
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

import mpis
from mpis import ENVIRONMENT

MODEL = "Chain(Dense(2 => 8, tanh), Dense(8 => 1))"
RANDOM = "Chain(Dense(2 => 8, tanh), Dropout(0.5), Dense(8 => 1))"
NORM = "Chain(Dense(2 => 8; bias=false), BatchNorm(8, tanh), Dense(8 => 1))"
BOUND = 1e-6


def write_data(path):
    r = random.Random(1)
    with open(path, "w") as f:
        f.write("a,b,y\n")
        for _ in range(101):
            a, b = r.uniform(-1, 1), r.uniform(5, 9)
            f.write(f"{a:.5f},{b:.5f},{2 * a - 3 * b + 1 + r.gauss(0, 0.1):.5f}\n")


def numbers(path):
    """The Float32 arrays of a safetensors file, by name."""
    with open(path, "rb") as f:
        raw = f.read()
    n = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + n])
    return {name: array.array("f", raw[8 + n + e["data_offsets"][0]:8 + n + e["data_offsets"][1]])
            for name, e in header.items() if name != "__metadata__" and e["dtype"] == "F32"}


def distance(a, b):
    x, y = numbers(a), numbers(b)
    if x.keys() != y.keys() or len(x) < 4:
        sys.exit(f"{a} and {b} have different arrays")
    return max(abs(p - q) for k in x for p, q in zip(x[k], y[k])) / max(abs(p) for k in x for p in x[k])


class Run:
    def __init__(self, build, folder, start):
        self.cflux, self.folder, self.start = os.path.join(build, "tools", "cflux", "cflux"), folder, start
        self.other = os.path.join(build, "tests", "mpi_cases")
        self.environment = dict(ENVIRONMENT, FX_PLUGIN_PATH=build)

    def train(self, n, *more, model=MODEL, status=0, data="line.csv", epochs=6, validation="0.1"):
        before = [*self.start, "-n", str(n)] if n else []
        done = subprocess.run([*before, self.cflux, "train", "--data", data, "--model", model, "--batchsize", "44",
                               "--epochs", str(epochs), "--validation", validation, "--clip-norm", "2", *more],
                              text=True, capture_output=True, timeout=100, cwd=self.folder, env=self.environment,
                              stdin=subprocess.DEVNULL)
        if (done.returncode == 0) != (status == 0):
            sys.exit(f"{done.args}: status {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout, done.stderr

    def path(self, name):
        return os.path.join(self.folder, name)


def once(text, part):
    if text.count(part) != 1:
        sys.exit(f"printed {text.count(part)} times: {part}\n{text}")


def check(name, run):
    for n in (2, 4):
        out, err = run.train(n, "--save", "many.safetensors", "--log", "many.log")
        once(out, "finished after epoch 6, training step 18")
        once(err, f"{n} processes")
        once(err, "epoch 6/6")
        with open(run.path("many.log")) as f:
            once(f.read(), '"event":"end"')
        worst = distance(run.path("one.safetensors"), run.path("many.safetensors"))
        if worst > BOUND:
            sys.exit(f"{name}, {n} processes: {worst:.1e} from the model of one process")
        print(f"{name}, {n} processes: {worst:.1e} from the model of one process")
    # Batch norm takes the statistics of the whole batch.
    run.train(0, "--save", "one_norm.safetensors", model=NORM)
    run.train(4, "--save", "norm.safetensors", model=NORM)
    worst = distance(run.path("one_norm.safetensors"), run.path("norm.safetensors"))
    if worst > 10 * BOUND:
        sys.exit(f"{name}, batch norm: {worst:.1e} from the model of one process")
    print(f"{name}, batch norm: {worst:.1e} from the model of one process")
    bench = subprocess.run([*run.start, "-n", "2", run.cflux, "bench", "allreduce", "--seconds", "0.001", "--json"],
                           text=True, capture_output=True, timeout=100, env=run.environment)
    told = json.loads(bench.stdout)
    rows, link = told["rows"], told["link_bandwidth"]
    # With 2 processes each of them sends and receives as many bytes as the array has.
    if rows[0]["bytes"] != 4 or link <= 0 or not all(
            r["bus_bandwidth"] > 0 and r["mpi_seconds"] >= r["mpi_least_seconds"] > 0 and
            math.isclose(r["mpi_bus_bandwidth"], r["bytes"] / r["mpi_seconds"] * 1e-9, rel_tol=1e-6) and
            math.isclose(r["bound_seconds"], r["bytes"] / link * 1e-9, rel_tol=1e-6) for r in rows):
        sys.exit(f"{name}, bench: {bench.stdout}{bench.stderr}")
    # 4 processes, then 2, then one.
    for n, epochs in ((4, 2), (2, 4), (0, 6)):
        run.train(n, "--checkpoint", f"{name}.state", "--save", "again.safetensors", epochs=epochs)
    worst = distance(run.path("one.safetensors"), run.path("again.safetensors"))
    if worst > BOUND:
        sys.exit(f"{name}, resumed: {worst:.1e} from the model of one process")
    # Dropout draws other numbers on each rank, and the same ones in the next run.
    for file in ("r1", "r2"):
        run.train(2, "--save", f"{file}.safetensors", model=RANDOM)
    if distance(run.path("r1.safetensors"), run.path("r2.safetensors")) != 0:
        sys.exit(f"{name}: two runs with dropout differ")
    print(f"{name}: resumed by fewer processes; dropout repeats")


def check_validation(name, run):
    """Rank 1 has no memory, at one of its allocations: all ranks stop, and rank 0 alone says why."""
    shim, source = run.path("failing.so"), os.path.join(os.path.dirname(__file__), "..", "cli", "failing_calloc.c")
    compiler = shutil.which("cc")
    if not compiler or subprocess.run([compiler, "-shared", "-fPIC", "-O1", source, "-o", shim, "-ldl"],
                                      capture_output=True).returncode:
        print(f"{name}, validation: no compiler that makes failing_calloc.c: skipped")
        return
    script = run.path("failing.sh")
    with open(script, "w") as f:
        f.write('#!/bin/sh\n[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 1 ] && export LD_PRELOAD="$SHIM"\nexec "$@"\n')
    os.chmod(script, 0o755)
    failures = []
    for at in range(2, 60, 5):
        environment = dict(run.environment, SHIM=shim, FAIL_AT=str(at), FAIL_IN=run.cflux)
        done = subprocess.run([*run.start, "-n", "2", script, run.cflux, "train", "--data", "line.csv", "--model", MODEL,
                               "--validation", "0.1", "--epochs", "3", "--quiet"], text=True, capture_output=True,
                              timeout=60, cwd=run.folder, env=environment)
        if "#failed" not in done.stderr:
            break
        if done.returncode:
            once(done.stderr, "cflux train: ")
            failures += re.findall("(?m)^cflux train: rank 1: ((?:no|out of) memory.*)$", done.stderr)
        elif "finished after epoch 3" not in done.stdout:
            sys.exit(f"{name}, validation: {done.stdout}{done.stderr}")
    replaceable = at > 2 or "#failed" in done.stderr  # not so with a sanitizer's calloc
    if replaceable and not any(" numbers" in f or " sums of" in f for f in failures):
        sys.exit(f"{name}, validation: the failures were {failures}")
    print(f"{name}, validation: {len(failures)} failures of rank 1 are told by rank 0")


def check_mistakes(name, run):
    # No rank can read the checkpoint: a folder has its name.
    os.makedirs(run.path("folder.state.1/x"))
    once(run.train(2, "--checkpoint", "folder.state", status=1)[1], "cflux train: --checkpoint folder.state belongs to another")
    once(run.train(2, model="Chain(Dense(3 => 1))", status=1)[1], "cflux train: ")
    for more in ({"data": "-"}, {"validation": "-"}):
        once(run.train(2, status=1, **more)[1], "cannot share standard input")
    once(run.train(2, "-", status=1)[1], "cannot share standard input")
    once(run.train(2, "--loss", "dice_coeff_loss", status=1)[1], "is one value for all observations of a batch")
    # A signal to cflux launch: the status is that of the signal, and no file stays.
    folder = os.path.join(run.folder, "tmp")
    os.mkdir(folder)
    launched = subprocess.Popen([run.cflux, "launch", "--launcher", os.path.basename(run.start[0]), "-n", "2", "sh", "-c",
                                 ': > "started${OMPI_COMM_WORLD_RANK:-$PMI_RANK}"; exec sleep 100'], cwd=run.folder,
                                env=dict(run.environment, TMPDIR=folder), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 60
    while not all(os.path.exists(run.path(f"started{r}")) for r in (0, 1)) and time.monotonic() < end:
        time.sleep(0.05)
    launched.terminate()
    if launched.wait(timeout=60) != 128 + signal.SIGTERM:
        sys.exit(f"{name}: cflux launch has status {launched.returncode} after SIGTERM")
    left = [file for _, _, files in os.walk(folder) for file in files if file.startswith("cflux")]
    if left:
        sys.exit(f"{name}: {left} are left")
    script = run.path("other.sh")
    with open(script, "w") as f:
        f.write('#!/bin/sh\n[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 1 ] && more="--seed 7"\nexec "$@" $more\n')
    os.chmod(script, 0o755)
    killed = run.path("killed.sh")
    with open(killed, "w") as f:
        # The log has an epoch when all ranks train, and so handle the signal.
        f.write('#!/bin/sh\n[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 1 ] &&\n'
                '(for i in $(seq 900); do grep -qs \'"event":"epoch"\' killed.log && break; sleep 0.1; done; kill -TERM $$) &\n'
                'exec "$@"\n')
    os.chmod(killed, 0o755)
    done = subprocess.run([*run.start, "-n", "2", killed, run.cflux, "train", "--data", "line.csv", "--model", MODEL, "--epochs",
                           "10000000", "--patience", "9000000", "--quiet", "--log", "killed.log"], text=True, capture_output=True, timeout=100,
                          cwd=run.folder, env=run.environment)
    once(done.stdout, "interrupted after")  # rank 1 alone got the signal, and rank 0 prints
    start, run.start = run.start, [*run.start, "-n", "2", script]
    cflux = run.start + [run.cflux, "train", "--data", "line.csv", "--model", MODEL]
    done = subprocess.run(cflux, text=True, capture_output=True, timeout=60, cwd=run.folder, env=run.environment)
    run.start = start
    once(done.stderr, 'the processes have different settings: rank 1 has "--seed 7", rank 0 has "--seed 0"')
    # Rank 1 is another program, whose second operation is not the first one of the comparison of settings.
    done = subprocess.run([*start, "-n", "1", run.cflux, "train", "--data", "line.csv", "--model", MODEL, ":", "-n", "1", run.other,
                           "fails_to_compare"], text=True, capture_output=True, timeout=60, cwd=run.folder, env=run.environment)
    once(done.stderr, "rank 1 calls all_reduce (sum) of 1 Float32, but rank 0 calls all_reduce (max)")
    print(f"{name}: mistakes are told once")


def main():
    build = os.path.abspath(sys.argv[1])
    for name, command in mpis.installed(build):
        with tempfile.TemporaryDirectory() as folder:
            write_data(os.path.join(folder, "line.csv"))
            run = Run(build, folder, command)
            run.train(0, "--save", "one.safetensors")
            check(name, run)
            check_validation(name, run)
            check_mistakes(name, run)


if __name__ == "__main__":
    main()
